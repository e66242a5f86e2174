"""Batch windows as an observer can know them: from the times at which pods appeared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

IDLE_SECONDS = 1.0
MAX_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Window:
    """One batch window on the observer's monotonic clock, in seconds."""

    start: float
    end: float


def windows(added: Iterable[float]) -> tuple[Window, ...]:
    """The batch windows that pods appearing at these times make.

    A window opens with a pod, closes once no other came for `IDLE_SECONDS`, and at the latest `MAX_SECONDS`
    after it opened (spec/karpenter-core.md §4).
    """
    found: list[Window] = []
    start = last = 0.0
    is_open = False
    for moment in sorted(added):
        if is_open and moment < min(last + IDLE_SECONDS, start + MAX_SECONDS):
            last = moment
            continue
        if is_open:
            found.append(Window(start, min(last + IDLE_SECONDS, start + MAX_SECONDS)))
        start = last = moment
        is_open = True
    if is_open:
        found.append(Window(start, min(last + IDLE_SECONDS, start + MAX_SECONDS)))
    return tuple(found)


def claims_after_window(pods: Iterable[float], claims: Iterable[float]) -> float | None:
    """Seconds from the end of the last window to the last claim, negative if it came before; None without either."""
    closed, created = windows(pods), sorted(claims)
    if not closed or not created:
        return None
    return created[-1] - closed[-1].end


def latencies(added: Mapping[str, float], claimed: Mapping[str, float]) -> tuple[float, ...]:
    """Seconds from each pod's appearance to its claim's, for pods that have both; ascending."""
    return tuple(sorted(claimed[uid] - moment for uid, moment in added.items() if uid in claimed))
