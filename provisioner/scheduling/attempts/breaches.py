"""What an attempt has broken once everything is placed, and the order in which its pods can be bound."""

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from provisioner.scheduling.attempts.binding_order import Stuck, none_waits, stuck
from provisioner.scheduling.attempts.class_plans import ClassPlans
from provisioner.scheduling.attempts.placing.companions import Companions
from provisioner.scheduling.constraints.classes import PodClass, ladders_of
from provisioner.scheduling.constraints.demands import Count
from provisioner.scheduling.topology.counters import HostCounter, above, uneven
from provisioner.scheduling.topology.relations import PodRun

_FEW_PODS: Final = 100
"""Of so many, an order of binding is looked for wherever two spreads wait for each other; of more, a judged design alone pays it."""
_LOOKS_OF_AN_ATTEMPT: Final = 5_000
"""So many looks may be spent on further orders of binding in one attempt; there is another attempt where none is found."""


class Breaches:
    """The spread constraints that do not hold.

    Args:
        classes: all of them.
        waiting: of which pods are left, and the number of the first of them; asked once everything is placed.

    Attributes:
        unsettled: those that some node would break, whichever domain it comes to.
    """

    def __init__(
        self, companions: Companions, plans: ClassPlans, classes: Sequence[PodClass], waiting: Mapping[PodClass, int]
    ) -> None:
        self._companions: Final = companions
        self._table: Final = companions.table
        self._plans: Final = plans
        self._classes: Final = classes
        self._waiting: Final = waiting
        self.unsettled: Final[set[Count]] = set()
        self._doubtful: Final[set[Count]] = set()
        self._known_to: Final[dict[HostCounter, int]] = {}

    def note(self, run: PodRun, *, late: bool) -> None:
        """Pods of a class were placed: was one of them the first of those that it must be with, or did hostname spread wait?"""
        if run.plan.bootstraps:
            self._doubtful.update(counter.count for ap in run.plan.axes for counter, _ in ap.holds)
        if late and run.plan.axes:
            self._known_to.update((host, len(self._table.places)) for host, *_ in run.plan.spreads)
            self._doubtful.update(host.count for host, *_ in run.plan.spreads if self._is_above(host))

    def _is_above(self, host: HostCounter) -> bool:
        return above(host, self._table.usable, self._table.node_count(host))

    def broken(self) -> set[Count]:
        """The spread constraints that what was placed first holds no longer, because of what was placed later."""
        usable, topology = self._table.usable, self._table.topology
        hosts = {count for count, host in topology.hosts.items() if host.held and self._is_above(host)}
        return (
            hosts
            | self.unsettled
            | self.unordered
            | {count for count, one in topology.domains.items() if uneven(one, usable, self._table.setting.lingering)}
        )

    @functools.cached_property
    def unordered(self) -> set[Count]:
        """The spread constraints that hold once all is bound, for which no order was found in which it can be.

        Asked once everything is placed. Only where a domain came that pods did not reckon with, because they cannot go there; for
        pods that are spread and had to be the first of those that they must be with; and for those whose hostname spread waits for pods
        placed later, where they look at other domains as well: what makes room for them may take it there.
        """
        table = self._table
        scope = table.setting.scope
        before = (1 << table.now) - 1
        late = {
            count
            for count, one in table.topology.domains.items()
            if one.blind
            and one.surprised(table.usable, table.usable & before, scope.sums(count) or [0] * len(one.counts))
        } | self._doubtful.union(
            host.count for host, size in self._known_to.items() if host.surprised(table.usable >> size << size)
        )
        few = table.setting.pods <= _FEW_PODS
        if not (late or few) or none_waits(table, self._plans.plan_for):
            return set()
        if few:
            late |= self.waiting_for_each_other(self._placed())
        return late if late and self.stuck(late, _LOOKS_OF_AN_ATTEMPT) else set()

    def waiting_for_each_other(self, classes: Iterable[PodClass]) -> set[Count]:
        """Of these classes, the spreads that hold only once pods are in all domains, and of which several count the pods of one class."""
        ladders, usable, topology = ladders_of(classes), self._table.usable, self._table.topology
        spreads = {(one.count, one.max_skew) for ladder in ladders for one in ladder[-1].relations.spreads}
        waiting = {
            count
            for count, skew in spreads
            if (
                topology.host(count).with_at_least(skew + 1) & usable
                if count.on_hosts
                else max(topology.domain(count).counts, default=0) > skew
            )
        }
        several = [waiting & self._table.setting.scope.about(one) for one in ladders] if len(waiting) > 1 else ()
        return set[Count]().union(*[both for both in several if len(both) > 1])

    def stuck(self, counts: Collection[Count], most: int) -> list[Stuck]:
        """The pods that have to do with these counts and are left in the best order that `binding_order.stuck` found."""
        return stuck(self._companions, self.freed(counts), self._plans.plans_over, most)

    def evenly(self, broken: Collection[Count]) -> dict[Count, int]:
        """Of broken hostname spreads, the most pods on a node with which the emptiest one would do."""
        table, skews = self._table, self._table.setting.skews
        return {
            count: host.emptiest(host.eligible & table.usable) + skews.get(count, 1)
            for count, host in table.topology.hosts.items()
            if count in broken
        }

    def freed(self, broken: Collection[Count]) -> set[PodClass]:
        """The classes without which nothing is broken: all that must have to do with what is, directly or by others, and have places."""
        counted, placed, about = set(broken), self._placed(), self._table.setting.scope.about
        left = {ladder[-1].relations: about(ladder[-1:]) for ladder in ladders_of(placed)}
        while more := [relations for relations, own in left.items() if not counted.isdisjoint(own)]:
            counted.update(*map(left.pop, more))
        return {one for one in placed if one.ladder[-1].relations not in left}

    def _placed(self) -> list[PodClass]:
        """The classes of which pods have places."""
        return [one for one in self._classes if self._waiting.get(one, 1)]
