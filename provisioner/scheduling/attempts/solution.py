"""The answer to one question: attempts, each more careful than the one before, the best of them settled and explained."""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.attempts.attempt import NO_CEILINGS, Attempt
from provisioner.scheduling.attempts.explaining import Explainer
from provisioner.scheduling.attempts.finishing import finish
from provisioner.scheduling.attempts.lower_bound import lower_bound, usd_at_least
from provisioner.scheduling.attempts.randomized_search import Badness, Choices, Choosing, search
from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.constraints.classes import LeftOut, PodClass, sort_key
from provisioner.scheduling.constraints.demands import Count
from provisioner.scheduling.constraints.filters import NodeFilter
from provisioner.scheduling.constraints.vectors import Need
from provisioner.scheduling.reasons import NOT_TRIED, Reason
from provisioner.scheduling.result import Later, Result, Unplaced

EFFORT: Final = 100
"""Lots that are drawn where nobody says how many."""
_MOST_ATTEMPTS: Final = 6
_DEAR: Final = 1.15
"""An answer that costs no more than so many times the least that is possible is not improved any more."""
_MOST_SHARED: Final = 3
"""Numbers of nodes over which everything is shared evenly that are tried."""
_MOST_CEILINGS: Final = 3
"""So many of them only fill nodes less, for the sake of a hostname spread that was broken."""
_TURNS: Final = (False, True, False, True)
"""Those who found no place for what others did are tried before them so often, and wait for nobody; in some turns with
pods scattered."""
_FEW: Final = 12
"""So many classes may all matter to one that has no place."""
_NARROWED_A_STEP: Final = 16
"""So many terms are held against a NodePool each in one step."""
_MOST_WORK: Final = 400
"""Classes that are placed by the attempts of a search all together."""


class Solution:
    """One question while it is being answered."""

    def __init__(self, setting: Setting, left_out: Sequence[LeftOut]) -> None:
        self.setting: Final = setting
        self.classes: Final = list(setting.classes)
        self.left_out: Final = left_out
        self.hurried: Final[set[PodClass]] = set()
        if setting.bins.everything:
            self._captives_first()

    def _captives_first(self) -> None:
        """Of one priority, those first that no pool takes: they have nothing but existing nodes."""
        needs, work = self.setting.needs, self.setting.terms.work
        known: dict[tuple[NodeFilter, Need], bool] = {}
        for one in self.classes:
            question = one.filter, needs[one]
            if question not in known:
                if not work.step(len(question[0].terms) * len(self.setting.offers) // _NARROWED_A_STEP):
                    return
                known[question] = self.setting.buys(*question)
        if not all(known.values()):
            self.classes.sort(key=lambda one: (one.facts.order[0], known[one.filter, needs[one]]))

    def result(self, *, explain: bool) -> Result:
        """Place, settle, explain."""
        attempt = self._best()
        dropped: Collection[PodClass] = ()
        if self.setting.terms.work.over or not self.setting.terms.effort:
            broken = attempt.breaches.broken()
            if broken:
                dropped = attempt.breaches.freed(broken)
        return Result(
            claims=finish(attempt.claims_without(dropped)),
            existing=self._existing(attempt, dropped),
            unplaced=self._unplaced(attempt, dropped, explain=explain),
            bound=lower_bound(self.setting, attempt.waiting, dropped),
        )

    def _attempt(
        self,
        cautious: Collection[Count],
        ceilings: Mapping[Count, int] = NO_CEILINGS,
        wary: Collection[Count] = (),
        *,
        by_priority: bool,
        scattering: bool,
        sparing_below: int | None = None,
    ) -> Attempt:
        attempt = Attempt(self.setting, cautious, self.classes, ceilings, wary=wary)
        attempt.run(by_priority=by_priority, scattering=scattering, hurried=self.hurried, sparing_below=sparing_below)
        return attempt

    def _best(self) -> Attempt:
        """Attempts, each more careful than the one before, until one is legal as a whole.

        Hostname spread is settled last, so that it finds all nodes. Where somebody is left without a place, that
        could cost a pod its place that comes before others; then each priority is finished before the next.
        """
        attempt = self._legal(by_priority=False)
        by_priority = bool(attempt.delayed) and len({one.shape.priority for one in self.classes}) > 1
        if attempt.waiting and by_priority and self.setting.terms.effort:
            attempt = self._prior(self._better(attempt, self._legal(by_priority=True)))
        terms = self.setting.terms
        for scattering in _TURNS if terms.effort else ():
            if terms.work.look():
                break
            urgent = attempt.tied()
            if not urgent:
                break
            waited = urgent & attempt.delayed
            self.hurried.update(waited)
            if not self._to_front(urgent) and not waited and not scattering:
                continue
            other = self._legal(by_priority=by_priority, scattering=scattering)
            attempt = min(attempt, other, key=_badness)  # of equals the first
        if terms.effort and attempt.opened_late and not terms.work.look():
            attempt = self._shared(attempt, by_priority=by_priority)
        return self._searched(attempt, by_priority=by_priority)

    def _prior(self, attempt: Attempt) -> Attempt:
        """The same, unless pods have a place only if those of lower priority get no new nodes, which their hostname spread would see."""
        first = self._first_waiting(attempt)
        if first is None or self.setting.terms.work.look():
            return attempt
        other = self._attempt((), by_priority=True, scattering=False, sparing_below=first)
        return min(attempt, other, key=_badness)  # of equals the first

    def _first_waiting(self, attempt: Attempt) -> int | None:
        """The highest priority of pods without a place; None where nobody is of a lower one."""
        first = max((one.shape.priority for one in attempt.waiting), default=None)
        return first if first is not None and any(one.shape.priority < first for one in self.classes) else None

    def _shared(self, attempt: Attempt, *, by_priority: bool) -> Attempt:
        """A cheaper attempt, where hostname spread opened nodes.

        A node for every maxSkew pods may be cheaper than fewer large ones. Where nodes that others filled made it open many
        more, all can share them evenly: pods that are spread come first then, on as many nodes as all need together, and
        the others fill what they leave.
        """
        best, least, price = attempt, _badness(attempt), attempt.usd_per_hour()
        if attempt.usd_at_lowest() > attempt.usd_apart():
            cautious = {*attempt.cautious, *attempt.spread_counts()}
            other = self._attempt(cautious, NO_CEILINGS, attempt.wary, by_priority=by_priority, scattering=False)
            found = _badness(other)
            if found <= least and (found < least or other.usd_per_hour() < price):
                best, least, price = other, found, other.usd_per_hour()
        if not best.hostnames.forced:
            return best
        possible = usd_at_least(self.setting, {one: len(one.pods) for one in self.classes})
        if possible is not None and best.usd_at_lowest() <= _DEAR * possible:
            return best
        hurried = self.hurried | attempt.delayed
        nodes = attempt.nodes_for(attempt.delayed)
        for _ in range(_MOST_SHARED):
            other = Attempt(self.setting, attempt.cautious, self.classes, nodes_wanted=nodes, wary=attempt.wary)
            other.run(by_priority=by_priority, scattering=False, hurried=hurried)
            found = _badness(other)
            if found <= least and (found < least or other.usd_per_hour() < price):
                best, least, price = other, found, other.usd_per_hour()
                break
            nodes += 1 + nodes // 4
        return best

    def _searched(self, attempt: Attempt, *, by_priority: bool) -> Attempt:
        """A better attempt, where somebody is left and there are few enough classes for some lots."""
        terms = self.setting.terms
        most = min(terms.effort, _MOST_WORK // max(1, len(self.classes)))
        urgent = attempt.tied() if most and not terms.work.over else set()
        if not urgent:
            return attempt
        concerned = attempt.related(urgent) if len(self.classes) > _FEW else set(self.classes)
        known, wary = attempt.cautious, attempt.wary
        first = self._first_waiting(attempt) if by_priority else None

        def attempt_by(choices: Choices) -> Attempt:
            cautious = () if choices.of(1 + bool(known)) else known
            other = Choosing(self.setting, cautious, wary if cautious else (), self.classes, choices, concerned)
            sparing = first if first is not None and choices.of(2) else None
            other.run(by_priority=by_priority, scattering=False, hurried=self.hurried, sparing_below=sparing)
            return other

        return search(attempt_by, attempt, _badness, most, terms.work.look)

    def _better(self, first: Attempt, second: Attempt) -> Attempt:
        """The second, unless it breaks what the first keeps, or time ran out in it."""
        least, found = _badness(first), _badness(second)
        return first if least[0] < found[0] or (self.setting.terms.work.over and least < found) else second

    def _to_front(self, urgent: set[PodClass]) -> bool:
        """Try these first of their priority from now on; whether that is another order."""
        before = list(self.classes)
        self.classes.sort(key=lambda one: (one.facts.order[0], one not in urgent))
        return before != self.classes

    def _legal(self, *, by_priority: bool, scattering: bool = False) -> Attempt:
        cautious: set[Count] = set()
        terms = self.setting.terms
        best: Attempt | None = None
        ceilings = foreseen = self._foreseen({})
        wary: set[Count] = set()
        for number in range(_MOST_ATTEMPTS):
            attempt = self._attempt(cautious, ceilings, wary, by_priority=by_priority, scattering=scattering)
            if best is not None and terms.work.over:
                return best if attempt.breaches.broken() else attempt
            if ceilings is foreseen and foreseen and attempt.waiting and self._foreseen(attempt.waiting) != foreseen:
                ceilings = {}  # there are fewer nodes without those that have no place
                attempt = self._attempt(cautious, ceilings, wary, by_priority=by_priority, scattering=scattering)
            broken = attempt.breaches.broken()
            if not broken or (broken <= cautious and attempt.breaches.unordered <= wary) or not terms.effort:
                return attempt
            best = attempt if best is None else best
            lower = attempt.breaches.evenly(broken) if number < _MOST_CEILINGS else {}
            lower = {count: top for count, top in lower.items() if top < ceilings.get(count, top + 1)}
            ceilings = ceilings | lower
            wary = wary | (attempt.breaches.unordered & cautious)
            cautious = cautious | (broken - lower.keys())
        everything = {count for one in self.classes for count in one.counts}
        return self._attempt(everything, NO_CEILINGS, wary, by_priority=by_priority, scattering=scattering)

    def _foreseen(self, waiting: Mapping[PodClass, int]) -> dict[Count, int]:
        """The most pods on a node with which a hostname spread can hold, where all nodes are to come.

        All pods but those that are `waiting` need so many nodes at least, and the emptiest has no more than an equal share. So it is
        not found out by filling the first few nodes too much.
        """
        setting = self.setting
        if setting.bins.everything or not any(count.on_hosts for count in setting.skews):
            return {}
        nodes = max(1, setting.nodes_at_least(waiting))
        return {
            count: setting.meant(count) // nodes + skew
            for count, skew in setting.skews.items()
            if count.on_hosts
            and (
                count.eligibility is None or (count.eligibility.terms is None and count.eligibility.tolerations is None)
            )
        }

    def _existing(self, attempt: Attempt, dropped: Collection[PodClass]) -> dict[str, tuple[Pod, ...]]:
        table, bins = attempt.table, self.setting.bins.bins
        found = {}
        for number, place in table.known():
            if place.placed:
                pods = [pod for part, start, end in place.placed if part not in dropped for pod in part.pods[start:end]]
                if pods:
                    found[bins[number].name] = tuple(pods)
        return found

    def _unplaced(self, attempt: Attempt, dropped: Collection[PodClass], *, explain: bool) -> tuple[Unplaced, ...]:
        found: list[tuple[PodShape, Sequence[Pod], Later[tuple[Reason, ...]] | tuple[Reason, ...]]] = [
            (one.shape, one.pods, (one.reason,)) for one in self.left_out
        ]
        waiting = {**attempt.waiting, **dict.fromkeys(dropped, 0)}
        if waiting:
            terms = self.setting.terms
            explainer: Explainer | None = None
            for one, start in waiting.items():
                why: Later[tuple[Reason, ...]] | tuple[Reason, ...] = _NOT_TRIED
                if one not in dropped and (one in attempt.refused or not attempt.unfinished):
                    if explainer is None:
                        explainer = Explainer(attempt)
                    if not explain:
                        why = Later(functools.partial(explainer.reasons, one))
                    elif not terms.work.look():
                        why = explainer.reasons(one)
                found.append((one.shape, one.pods[start:], why))
        found.sort(key=lambda entry: sort_key(entry[0]))
        return tuple([Unplaced(pod, why) for _, pods, why in found for pod in pods])


_NOT_TRIED: Final = (NOT_TRIED,)


def _badness(attempt: Attempt) -> Badness:
    return bool(attempt.breaches.broken()), attempt.left_by_priority()
