"""One question, made ready: what all attempts at it share, how it is asked, and how much may be done for it."""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.apis.attachments import Attachment
from provisioner.apis.names import ZONE_LABEL
from provisioner.scheduling.capacity.nodes import Bins
from provisioner.scheduling.capacity.offers import PreparedPool, pin
from provisioner.scheduling.capacity.prepared_types import Daemon
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.demands import Count, Spread
from provisioner.scheduling.constraints.filters import FilterTerm, NodeFilter
from provisioner.scheduling.constraints.ports import Port
from provisioner.scheduling.constraints.vectors import Need
from provisioner.scheduling.constraints.workload_limits import Crowding
from provisioner.scheduling.problem import World
from provisioner.scheduling.topology.counters import DomainScope

_STEPS_A_LOOK: Final = 16
LOOKED_UP_A_STEP: Final = 64
"""So many counts are compared with the labels of pods, or with running pods, in one step."""
_NEVER: Final = 1 << 40
"""More nodes than there will ever be."""


class Work:
    """How much may still be done for one question: so many steps, and until `expired` says that it is enough.

    A step is one class that asks for a place by one of its demands, or one share of its pods in one domain; more where much is looked at
    (`PodRun.cost`).

    Attributes:
        limited: whether there is an end at all; else steps need not be counted.
        over: nothing more may be done; what has no place by now stays without.
        steps: done so far.
    """

    __slots__ = ("_budget", "_expired", "_looked", "limited", "over", "steps")

    def __init__(self, budget: int | None = None, expired: Callable[[], bool] | None = None) -> None:
        self._budget: Final = budget
        self._expired: Final = expired
        self.limited: Final = budget is not None or expired is not None
        self.steps = 0
        self.over = False
        self._looked = 0

    def step(self, cost: int = 1) -> bool:
        """Do one more, or one that costs as much as so many; False where there is no more."""
        if self.over:
            return False
        self.steps += cost
        if self._budget is not None and self.steps > self._budget:
            self.over = True
        elif self._expired is not None and self.steps - self._looked >= _STEPS_A_LOOK:
            self._looked = self.steps
            self.over = self._expired()
        return not self.over

    def look(self) -> bool:
        """Whether it is over, with a look at the clock where there is one."""
        if not self.over and self._expired is not None and self._expired():
            self.over = True
        return self.over


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """How a question is asked.

    Attributes:
        effort: lots that may be drawn where somebody is left without a place; with 0, nothing is attempted twice.
        max_new: most claims; None for any number.
        stop: a pod without a place is answer enough.
    """

    work: Work
    effort: int
    max_new: int | None = None
    stop: bool = False


@dataclass(frozen=True, eq=False)
class Setting:
    """What all attempts at one question share.

    Attributes:
        needs: of each class, what one pod takes.
        pods, load: how many pods there are, and what they take together.
        sizes: how many different needs there are.
        offers: of the pools, in their order.
        scope: what is counted.
        skews: by what pods of the question are spread by, and its least maxSkew.
        ports: of nodes, and the nodes on which they are taken or will be by daemons.
        in_use: volume claims for one pod only that some running pod uses.
        attached_to: tells the volumes of an existing node; None where no pod of the question has any.
        terms: how the question is asked.
        lingering: nodes that leave by this question: they are domains for kube-scheduler until they are gone.
        crowding: how many pods of one owner nodes take; None where no NodePool says so.
        company: the daemons of nodes to come that have to do with pods of the question.
        due: of those that wait for others, the nodes to which they may still come.
        pending: by what is counted, how many pods of the question are; filled when it is asked for.
    """

    world: World
    classes: Sequence[PodClass]
    needs: Mapping[PodClass, Need]
    pods: int
    load: Sequence[int]
    sizes: int
    offers: Sequence[PreparedPool]
    bins: Bins
    scope: DomainScope
    skews: Mapping[Count, int]
    ports: Mapping[Port, int]
    in_use: frozenset[str]
    attached_to: Callable[[int], set[Attachment]] | None
    terms: Terms
    lingering: int = 0
    crowding: Crowding | None = None
    company: Sequence[Daemon] = ()
    due: Mapping[Daemon, int] = field(default_factory=dict)
    pending: dict[Count, int] = field(default_factory=dict)

    def attached(self, number: int) -> set[Attachment] | None:
        """The volumes that an existing node has attached; None where no pod of the question has any."""
        return None if self.attached_to is None else self.attached_to(number)

    @functools.cached_property
    def users(self) -> Counter[str]:
        """By volume claim that is not bound, how many pods of the question use it."""
        found: Counter[str] = Counter()
        for one in self.classes:
            for unbound in one.volumes.unbound:
                found[unbound.claim] += len(one.pods)
        return found

    @functools.cached_property
    def zones(self) -> Sequence[FilterTerm]:
        """Every zone that a node is in or may come to, as what it takes to be there."""
        values = {value for value in self.bins.by_label(ZONE_LABEL) if value is not None}
        for offer in self.offers:
            values.update(offer.domains(offer.base, ZONE_LABEL))
        return [pin(ZONE_LABEL, value) for value in sorted(values)]

    @functools.cached_property
    def domains_vary(self) -> bool:
        """Whether pools differ in what they say of hostname spread."""
        return any(offer.pool.hostname_domains is not None for offer in self.offers)

    def hostname_domains(self, node_filter: NodeFilter) -> int:
        """Over how many nodes such pods are planned, where they do not say: what the strictest pool says that they admit."""
        whole = self.world.hostname_domains
        if not self.domains_vary:
            return whole
        said = [
            whole if offer.pool.hostname_domains is None else offer.pool.hostname_domains
            for offer in self.offers
            if offer.base.rows and offer.admits(node_filter)
        ]
        return 0 if 0 in said else max(said, default=whole)

    def least(self, spread: Spread, domains: int) -> int:
        """Of how many nodes there must be before a hostname spread looks at the emptiest of them. Source: design 3b.9."""
        if spread.stated or spread.wish or domains == 1:
            return spread.min_domains
        if not domains:
            return _NEVER
        return max(1, min(self.meant(spread.count), domains))

    def meant(self, count: Count) -> int:
        """How many pods a count means, running and of the question."""
        pods = self.pending.get(count)
        if pods is None:
            if not self.pending:
                by_labels: defaultdict[int, list[PodClass]] = defaultdict(list)  # many classes may have the same
                for one in self.classes:
                    by_labels[id(one.facts.pod)].append(one)
                work, cost = self.terms.work, len(self.scope.index.numbers) // LOOKED_UP_A_STEP
                for alike in by_labels.values():
                    if work.limited and not work.step(cost):
                        break  # nothing is placed any more, so nobody asks
                    some = sum([len(one.pods) for one in alike])
                    for each in self.scope.including(alike[0].facts.pod):
                        self.pending[each] = self.pending.get(each, 0) + some
            pods = self.pending.setdefault(count, 0)
        return pods + sum(self.scope.spots(count).counts.values())

    def nodes_at_least(self, waiting: Mapping[PodClass, int]) -> int:
        """How many new nodes there must be for all pods but those of `waiting` from their number on, where there are none yet."""
        load = list(self.load)
        for one, start in waiting.items():
            for d, amount in self.needs[one]:
                load[d] -= amount * (len(one.pods) - start)
        points = [point for offer in self.offers for point in offer.base.points]  # nowhere is there more than at these
        largest = [max(most) for most in zip(*points, strict=True)] if points else [0] * len(load)
        return max((-(-amount // most) for amount, most in zip(load, largest, strict=True) if most > 0), default=0)

    def has_room(self, one: PodClass) -> bool:
        """Whether some existing node takes a pod of a class as long as no other has a place."""
        return bool(self.bins.admitting(one.filter) & self.bins.roomy(self.needs[one]))

    def takes(self, one: PodClass) -> bool:
        """Whether some existing node takes a pod of a class, or some pool has nodes that do; if not, it has no place whatever becomes of others."""
        return self.has_room(one) or self.buys(one.filter, self.needs[one])

    def buys(self, node_filter: NodeFilter, need: Need) -> bool:
        """Whether some pool has nodes on which such a pod fits."""
        return any(offer.takes(node_filter, need) for offer in self.offers)
