"""Hostname spread, once the rest is placed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.scheduling.attempts.placing.class_candidates import MUCH
from provisioner.scheduling.attempts.placing.domain_spreading import DomainSpreading
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.demands import Count
from provisioner.scheduling.topology.counters import HostCounter
from provisioner.scheduling.topology.relations import HostSpread, PodRun


@dataclass(frozen=True, slots=True)
class _Filled:
    """Places that are there, and pods of one count.

    Attributes:
        lowest: pods on the emptiest once all of them are as full as can be.
        pods: of those that take more, (how many there are, how many there could be).
    """

    lowest: int
    pods: Sequence[tuple[int, int]]

    def capped(self, top: int) -> int:
        """How many more there may be, with at most `top` on each."""
        return sum([min(most_pods, top) - has for has, most_pods in self.pods if has < top])


_MOST_FILLED: Final = 512
_NONE_THERE: Final = _Filled(MUCH, ())


class HostnameSpreading:
    """Settles hostname spread by true numbers.

    Attributes:
        forced: hostname spread opened more nodes than room alone needs.
    """

    def __init__(self, spreading: DomainSpreading, ceilings: Mapping[Count, int], nodes_wanted: int) -> None:
        """`ceilings`: most pods on a node, by spread; `nodes_wanted`: pods are shared out over so many nodes at least."""
        self._spreading: Final = spreading
        self._candidates: Final = spreading.candidates
        self._ceilings: Final = ceilings
        self._nodes_wanted: Final = nodes_wanted
        self.forced = False

    def late(self, run: PodRun) -> None:
        """Hostname spread by the true number on the emptiest node; then on as few new claims as even numbers allow.

        Source: kube-scheduler 1.36, design 3b.9.
        """
        may_open = not self._spreading.closing
        if may_open and run.left and not self._room_for_all(run):
            self._on_new_ones(run)
            may_open = False
        while run.left and not (may_open and self._spreading.only_opens(run)):
            before = run.start
            run.allow(self._emptiest(run.plan.spreads))
            self._spreading.place(run, opening=False)
            if run.start == before:
                break
        if run.left and may_open:
            self._on_new_ones(run)
        if run.left and run.plan.considerate:
            run.allow(self._emptiest(run.plan.spreads))
            self._spreading.inconsiderately(run, opening=False)

    def _room_for_all(self, run: PodRun) -> bool:
        """Whether the places that are there have room for the pods of the class, whatever hostname spread says."""
        candidates = self._candidates
        return not self._nodes_wanted and candidates.room(run, candidates.of(run, evenly=False), run.left) >= run.left

    def _on_new_ones(self, run: PodRun) -> None:
        """On as few new claims as even numbers allow, and those that are there filled as far as even numbers are."""
        candidates, table = self._candidates, self._candidates.table
        beside = self._least_beside(run)
        new = candidates.largest_new(run) + beside
        highest, number = new, self._nodes_wanted
        there = _NONE_THERE
        for host, skew, _, least in run.plan.spreads:
            known = table.node_count(host)
            there = self._filled(run, host)
            ceiling = there.lowest + skew if host.eligible & table.usable else new
            if host.count in candidates.cautious:
                ceiling = min(ceiling, skew + (beside if known >= least else 0))  # some that can be had were not
            if least - known > run.left:
                ceiling = min(ceiling, skew)
            highest = min(highest, ceiling, self._ceilings.get(host.count, highest))
            number = max(number, least if least - known <= run.left else 0) - known
        if beside and highest <= beside:
            return  # the daemons alone are as many as a node may have
        highest = max(1, highest)
        fewest = max(1, number)
        if there.capped(highest) + fewest * (highest - beside) < run.left:
            fewest = -(-(run.left - there.capped(highest)) // (highest - beside))
        if highest < new and fewest > max(1, number, -(-run.left // max(1, new - beside))):
            self.forced = True
        for ap in run.plan.axes:
            if ap.spreads and fewest > 1:  # as many in each domain
                domains = max(1, len(candidates.openable(run, ap.axis)))
                fewest = -(-fewest // domains) * domains
        fewest = min(fewest, run.left)
        even = highest  # the least on each with which there is room for all
        low = 1 + beside
        while low < even:
            middle = (low + even) // 2
            if there.capped(middle) + fewest * (middle - beside) >= run.left:
                even = middle
            else:
                low = middle + 1
        for top, opening in ((even - 1, False), (even, True), (even, False)):
            if run.left and top > 0:
                run.allow([top - skew for _, skew, _, _ in run.plan.spreads])
                end = run.end
                if opening:
                    run.end = min(end, run.start + fewest * (even - beside))
                    run.over = run.left, fewest
                if opening or there.pods:
                    self._spreading.place(run, opening=opening)
                run.end, run.over = end, (0, 0)

    def _least_beside(self, run: PodRun) -> int:
        """How many daemons count at least on each new node, by the hostname spread of the class that counts most."""
        companions = self._candidates.companions
        found = [
            companions.brought_with(account, state, run)
            for account in (self._candidates.takers(run) if companions.company else ())
            for term in run.filter.terms
            for state in self._spreading.filler.harmless_ways(run, account, term)
        ]
        return max(
            (min((one.hosts.get(host, 0) for one in found), default=0) for host, *_ in run.plan.spreads), default=0
        )

    def _filled(self, run: PodRun, host: HostCounter) -> _Filled:
        """What the places that are there already have of the pods of one count, and could have."""
        places = host.eligible & self._candidates.table.usable
        candidates = self._candidates.of(run, evenly=False) & places
        full = places & ~candidates
        lowest = host.emptiest(full) if full else MUCH
        holds: list[tuple[int, int]] = []
        for i in members(candidates):
            has = host.counts.get(i, 0)
            if len(holds) >= _MOST_FILLED:  # the others are taken as they are
                lowest = min(lowest, has)
                continue
            most_pods = has + self._candidates.room(run, 1 << i, run.left)
            holds.append((has, most_pods))
            lowest = min(lowest, most_pods)
        return _Filled(lowest, holds)

    def _emptiest(self, spreads: Sequence[HostSpread]) -> list[int]:
        """By spread, the number of pods on the emptiest node."""
        table, floors = self._candidates.table, []
        for host, _, _, min_domains in spreads:
            careful = host.count in self._candidates.cautious and not self._spreading.closing
            few = min_domains > 1 and table.node_count(host) < min_domains
            floors.append(0 if careful or few else host.emptiest(host.eligible & table.usable))
        return floors
