"""A search where somebody is left without a place: the same attempt again and again, with its choices made by lot.

An attempt chooses between classes, wishes, domains, pools and places. What is allowed is judged by the very code of every
attempt, so nothing that a search finds is illegal. The lots are a fixed sequence: the same problem has the same answer.
Small puzzles are mostly solved by the first fifty lots; searches that change a few choices only, in order, need more.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Final

from provisioner.scheduling.attempts.attempt import Attempt
from provisioner.scheduling.attempts.placing.class_candidates import ClassCandidates
from provisioner.scheduling.attempts.placing.domain_spreading import DomainSpreading, Lead
from provisioner.scheduling.attempts.placing.filler import Filler, T
from provisioner.scheduling.attempts.placing.place_table import Pin
from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.demands import Count, Demand
from provisioner.scheduling.topology.relations import AxisPlan, PodRun

Badness = tuple[bool, list[int]]
"""(whether something is illegal, pods without a place by priority, highest first)"""

_MOST_CLASSES: Final = 6
"""Of those that could be next, and of places that could be taken, so many are options."""
_MOST_PLACES: Final = 4
_MULTIPLIER, _INCREMENT, _BITS = 6364136223846793005, 1442695040888963407, 64
"""Of a linear congruential sequence; its high bits are good lots. Source: Knuth, MMIX."""


class Lots:
    """Numbers that follow no pattern, the same ones each time."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = 1

    def draw(self, options: int) -> int:
        """The number of an option; in two of five draws the first, else any."""
        return self._next(options) if self._next(5) < 3 else 0

    def _next(self, below: int) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) % (1 << _BITS)
        return (self._state >> 33) % below


class Choices:
    """What one attempt chooses.

    Args:
        script: the options to take, one after another; later ones are drawn, or the first where there are no lots.

    Attributes:
        taken: the numbers of the options that were taken, in turn.
        free: whether there are choices now; else the first option is taken, and not noted.
    """

    __slots__ = ("_lots", "_script", "free", "taken")

    def __init__(self, script: Sequence[int], lots: Lots | None = None) -> None:
        self._script, self._lots = script, lots
        self.taken: Final[list[int]] = []
        self.free = True

    def of(self, options: int) -> int:
        """The number of the option to take."""
        if options <= 1 or not self.free:
            return 0
        number = len(self.taken)
        if number < len(self._script):
            option = self._script[number] if self._script[number] < options else 0
        else:
            option = self._lots.draw(options) if self._lots is not None else 0
        self.taken.append(option)
        return option


def search(
    attempt_by: Callable[[Choices], Attempt],
    best: Attempt,
    badness: Callable[[Attempt], Badness],
    most: int,
    over: Callable[[], bool] = bool,
) -> Attempt:
    """The best of `best` and `most` other attempts; it ends where nobody is left who is tied to others.

    Once it is `over`, the best so far is it. Of the choices by which another attempt is better those are taken back that make no difference, in `most`
    attempts more.
    """
    least, lots = badness(best), Lots()
    taken: Sequence[int] = ()
    for _ in range(most):
        if over():
            return best
        choices = Choices((), lots)
        attempt = attempt_by(choices)
        found = badness(attempt)
        if found < least:
            best, least, taken = attempt, found, choices.taken
            if not best.tied():
                break
    for number in [number for number, option in enumerate(taken) if option][:most]:
        if number < len(taken) and taken[number] and not over():  # it may be gone with those before it
            choices = Choices([*taken[:number], 0, *taken[number + 1 :]])
            attempt = attempt_by(choices)
            found = badness(attempt)
            if (found, attempt.size) <= (least, best.size):
                best, least, taken = attempt, found, choices.taken
    return best


class Choosing(Attempt):
    """An attempt that takes its choices from outside.

    Args:
        choices: of this attempt.
        concerned: the classes about whose pods there is a choice.
    """

    def __init__(
        self,
        setting: Setting,
        cautious: Collection[Count],
        wary: Collection[Count],
        classes: Sequence[PodClass],
        choices: Choices,
        concerned: Collection[PodClass],
    ) -> None:
        self._choices, self._concerned = choices, concerned
        super().__init__(setting, cautious, classes, wary=wary)

    def _spreading(self) -> DomainSpreading:
        return _ChoosingSpreading(_ChoosingFiller(self.candidates, self.wary, self._choices), self._choices)

    def _band(self, classes: Sequence[PodClass], hurried: Collection[PodClass]) -> list[tuple[PodClass, int]]:
        choices, later = self._choices, []
        left = list(classes)
        while left:
            choices.free = left[0] in self._concerned
            next_ones = (number for number, one in enumerate(left) if one in self._concerned) if choices.free else (0,)
            options = list(islice(next_ones, _MOST_CLASSES))
            one = left.pop(options[choices.of(len(options))])
            now = one in hurried or (one.ladder[0].relations.on_hosts and bool(choices.of(2)))
            later += super()._band([one], {one} if now else ())
        choices.free = False
        return later

    def _ladder(self, one: PodClass) -> Sequence[Demand]:
        return one.ladder[-1:] if self._choices.of(min(2, len(one.ladder))) else one.ladder


class _ChoosingFiller(Filler):
    """Places that are chosen from outside."""

    def __init__(self, candidates: ClassCandidates, wary: Collection[Count], choices: Choices) -> None:
        super().__init__(candidates, wary)
        self._choices: Final = choices

    def in_turn(self, choices: list[T]) -> list[T]:
        number = self._choices.of(len(choices))
        return [choices[number], *choices[:number], *choices[number + 1 :]] if number else choices

    def put(self, run: PodRun, mask: int, limit: int, pins: tuple[Pin, ...]) -> int:
        there = [1 << i for i in islice(members(self.candidates.of(run, together=run.together) & mask), _MOST_PLACES)]
        may_open = run.opening and self.may_open(run) and bool(there or limit > 1)
        number = self._choices.of(max(1, len(there)) + may_open)
        if number and number >= len(there):
            return self.open(run, 1, pins) or super().put(run, mask, limit, pins)
        if number:
            mask &= -there[number]  # from that place on
        return super().put(run, mask, limit, pins)


class _ChoosingSpreading(DomainSpreading):
    """Domains that are chosen from outside."""

    def __init__(self, filler: Filler, choices: Choices) -> None:
        super().__init__(filler)
        self._choices: Final = choices

    def place(self, run: PodRun, opening: bool) -> None:
        """As ever, or without leaving room for the spread of others."""
        if run.plan.considerate:
            run.soft = not self._choices.of(2)
        super().place(run, opening)

    def _evenly(self, run: PodRun, ap: AxisPlan) -> bool:
        return not self._choices.free and super()._evenly(run, ap)

    def only_opens(self, run: PodRun) -> bool:
        return super().only_opens(run) or bool(self._choices.of(2))

    def _shares(
        self, run: PodRun, ap: AxisPlan, leads: Sequence[Lead], legal: list[int], pods: int
    ) -> list[tuple[int, int]]:
        together = not run.plan.bootstraps or run.plan.anywhere
        reach, candidates = self.candidates.openable(run, ap.axis), self.candidates.of(run, together=together)
        legal = [domain for domain in legal if domain in reach or candidates & ap.axis.could[domain]]
        usual = super()._shares(run, ap, leads, legal, pods)
        if len(legal) <= 1:
            return usual
        share = 1 if leads or ap.alone else pods
        allowed = self.candidates.legal(run, ap, together=False)  # by the counter that the usual shares keep even, too
        others = [[(domain, share)] for domain in legal if domain in allowed and usual[:1] != [(domain, share)]]
        return [usual, *others][self._choices.of(1 + len(others))]
