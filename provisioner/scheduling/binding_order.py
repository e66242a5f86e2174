"""Whether kube-scheduler can bind pods where an attempt has put them, one after another, in some order.

An attempt puts pods into places before it knows every domain that there will be. A spread constraint that held then may hold
in the end as well, and yet not at the moment at which its pod is bound, because those that it waits for wait themselves for others.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from provisioner.scheduling.classes import PodClass
from provisioner.scheduling.placing import Placing
from provisioner.scheduling.topology import ALL, DomainCounter, Topology
from provisioner.scheduling.topology_plan import Plan

_MOST_LOOKS: Final = 100_000
"""Pods and places that are looked at, before an order counts as not found."""


class _Alike:
    """Pods that ask the same of places that are the same to them.

    Attributes:
        plan: what they ask, over counters of the order.
        low: the place of one of them, as a set.
        place: its number.
        domains: by axis of the plan, where they are; -1 for nowhere.
        left: how many are not bound yet.
        asks: whether anything but room is asked.
    """

    __slots__ = ("asks", "domains", "left", "low", "place", "plan")

    def __init__(self, plan: Plan, place: int, domains: Sequence[int], pods: int) -> None:
        self.plan: Final = plan
        self.place: Final = place
        self.low: Final = 1 << place
        self.domains: Final = domains
        self.left = pods
        self.asks: Final = bool(
            plan.spreads
            or plan.together
            or plan.apart
            or plan.blocked
            or any(ap.spreads or ap.together or ap.apart or ap.blocked for ap in plan.axes)
        )


def can_be_bound(
    placing: Placing,
    classes: Collection[PodClass],
    plan_over: Callable[[PodClass, Topology], Plan],
) -> bool:
    """Whether an order was found in which all pods of these classes can be bound, with every node there from the start.

    Each turn is of the first pod that may, of those that look at others before those that do not. False says that this is no
    such order; there may be one. Cost: O(kinds of pods and domains) a pod, and no more than some tenths of a second.
    """
    return _Order(placing, classes, plan_over).found()


class _Order:
    def __init__(
        self,
        placing: Placing,
        classes: Collection[PodClass],
        plan_over: Callable[[PodClass, Topology], Plan],
    ) -> None:
        self._placing: Final = placing
        self._topology: Final = placing.topology.emptied()
        self._existing: Final[dict[DomainCounter, tuple[Sequence[int], int]]] = {}
        self._looks = 0
        alike: dict[tuple[int, Sequence[int], int], _Alike] = {}
        plans = {one: plan_over(one, self._topology) for one in classes}
        for place, one in enumerate(placing.places):
            for part, start, end in () if one is None else one.placed:
                if part not in classes:
                    continue
                plan = plans[part]
                low = 1 << place
                domains = tuple([ap.axis.domain_of(low) if ap.axis.fixed & low else -1 for ap in plan.axes])
                on_hosts = plan.spreads or plan.together or plan.apart or plan.blocked or plan.adds
                key = id(plan), domains, place if on_hosts else -1
                known = alike.get(key)
                if known is None:
                    alike[key] = _Alike(plan, place, domains, end - start)
                else:
                    known.left += end - start
        self._free: Final = [some for some in alike.values() if not some.asks]
        self._asking: Final = [some for some in alike.values() if some.asks]

    def found(self) -> bool:
        asking, free = self._asking, self._free
        while asking:
            before = sum(some.left for some in asking)
            for some in asking:
                if self._may(some):
                    self._bind(some)
            if self._looks > _MOST_LOOKS:
                return False
            asking = [some for some in asking if some.left]
            if asking and sum(some.left for some in asking) == before:
                if not free:
                    return False
                self._bind(free[0])
                free = [some for some in (*free[1:], free[0]) if some.left]
        return True

    def _may(self, some: _Alike) -> bool:
        """Whether one more of them may be bound now."""
        self._looks += 1
        plan, place, low = some.plan, some.place, some.low
        if any(host.counts.get(place) for host in (*plan.apart, *plan.blocked)):
            return False
        for host, skew, own, least in plan.spreads:
            lowest = 0
            if self._placing.node_count(host) >= least:
                lowest = host.emptiest(host.eligible & self._placing.usable)
            if host.counts.get(place, 0) + own > lowest + skew:
                return False
        first = plan.bootstraps and not self._placing.anywhere(plan)
        if not first and not all(host.with_at_least(1) & low for host in plan.together):
            return False
        for ap, domain in zip(plan.axes, some.domains, strict=True):
            if domain < 0:
                continue
            if any(one.counts[domain] for one in (*ap.apart, *ap.blocked)):
                return False
            if not first and not all(one.counts[domain] for one in ap.together):
                return False
            for counter, skew, own, least in ap.spreads:
                existing, staying = self._domains(counter)
                lowest = min((counter.counts[one] for one in existing), default=0) if staying >= least else 0
                if counter.counts[domain] + own > lowest + skew:
                    return False
        return True

    def _domains(self, counter: DomainCounter) -> tuple[Sequence[int], int]:
        """The domains that there are, and how many of them stay."""
        found = self._existing.get(counter)
        if found is None:
            placing = self._placing
            found = counter.existing(placing.domains), len(counter.existing(placing.usable))
            self._existing[counter] = found
        return found

    def _bind(self, some: _Alike) -> None:
        some.left -= 1
        for host in some.plan.adds:
            host.add(some.place, some.low, 1)
        for ap, domain in zip(some.plan.axes, some.domains, strict=True):
            for counter in ap.adds if domain >= 0 else ():
                if counter.eligible == ALL or counter.eligible & some.low:
                    counter.add(domain, 1)
