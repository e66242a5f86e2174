"""The course of a run as moments, and what can be said of it; pure."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Moment:
    """What was there at one look.

    Attributes:
        seconds: since the run began.
        load: what the workload has to do, in CPUs.
        wanted: replicas that the Deployment asks for.
        running: of its pods.
        usd_per_hour: of all nodes.
    """

    seconds: float
    load: float
    wanted: int
    running: int
    nodes: int
    usd_per_hour: float


def changes(course: Iterable[Moment]) -> list[Moment]:
    """The moments at which something was different from the one before, the first and the last."""
    every = list(course)
    kept = [moment for before, moment in itertools.pairwise(every) if replace(before, seconds=moment.seconds) != moment]
    return sorted({*every[:1], *kept, *every[-1:]}, key=lambda moment: moment.seconds)


def steps(course: Sequence[Moment]) -> list[tuple[float, int]]:
    """When the Deployment's replicas changed, and to how many; the first number too."""
    found: list[tuple[float, int]] = []
    for moment in course:
        if not found or found[-1][1] != moment.wanted:
            found.append((moment.seconds, moment.wanted))
    return found


def too_fast(course: Sequence[Moment], percent: int, seconds: float) -> list[Moment]:
    """The moments at which fewer replicas were wanted than an HPA allows that takes at most `percent` of them in `seconds`.

    Rounded as the HPA does it, to fewer replicas: of 7 it takes 3 for 30 %. Costs the square of the moments at worst.
    """
    found = []
    for place, moment in enumerate(course):
        at_the_start = next((one for one in reversed(course[:place]) if one.seconds <= moment.seconds - seconds), None)
        if at_the_start is not None and moment.wanted < at_the_start.wanted * (100 - percent) // 100:
            found.append(moment)
    return found


def dollars(course: Sequence[Moment]) -> float:
    """What the nodes cost from the first moment to the last."""
    return sum(
        before.usd_per_hour * (after.seconds - before.seconds) / 3600 for before, after in itertools.pairwise(course)
    )
