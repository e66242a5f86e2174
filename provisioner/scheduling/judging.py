"""Whether a whole set of nodes that somebody else designed is legal: each node by itself, and all of them together.

Nodes together are judged as they will be once every pod is bound: one node more can make another's spread illegal.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Final

from msgspec.structs import replace

from provisioner.apis.names import CAPACITY_TYPE_LABEL, ZONE_LABEL
from provisioner.apis.pods import Pod
from provisioner.scheduling.attempts.attempt import Attempt
from provisioner.scheduling.attempts.binding_order import (
    Existing,
    Stuck,
    domain_not_settled,
    fault,
    none_waits,
    spread_over,
)
from provisioner.scheduling.attempts.finishing import finish
from provisioner.scheduling.attempts.placing.filler import sides_of
from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.capacity.offers import OfferState, PreparedPool, pin
from provisioner.scheduling.capacity.places import PoolAccount
from provisioner.scheduling.capacity.pool_limits import LimitLedger
from provisioner.scheduling.constraints.bitsets import mask_of
from provisioner.scheduling.constraints.classes import LeftOut, PodClass
from provisioner.scheduling.constraints.demands import Count
from provisioner.scheduling.constraints.filters import FilterTerm
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.scheduling.topology.company import choosy_terms
from provisioner.scheduling.topology.relations import Counter, PodRun
from provisioner.values.message import Said


@dataclass(frozen=True, slots=True)
class DesignedNode:
    """A node to make, as somebody else would have it.

    Attributes:
        pool: the NodePool's name.
        instance_type, zone, capacity_type: the offering; "" for a zone or capacity type that the provider does not have.
        pods: on it.
        charge: by limited resource, the most that it may count against the limits of its NodePool, where these are near: a
            cheaper type that counts more is left out. Empty for any.
        labels: that it is to have, of those of which the NodePool leaves the value open; others are as its pods want them.
    """

    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    pods: tuple[Pod, ...]
    charge: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Design:
    """Where pods are to be.

    Attributes:
        existing: pods by name of the existing node that is to take them.
    """

    nodes: tuple[DesignedNode, ...] = ()
    existing: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)

    @property
    def pods(self) -> tuple[Pod, ...]:
        parts = [*(one.pods for one in self.nodes), *self.existing.values()]
        return tuple([pod for some in parts for pod in some])


def part_of(design: Design, uids: Collection[str]) -> Design:
    """A design as far as it is about the pods with these UIDs."""
    nodes = [changed(one, pods=tuple([pod for pod in one.pods if pod.uid in uids])) for one in design.nodes]
    existing = {name: tuple([pod for pod in pods if pod.uid in uids]) for name, pods in design.existing.items()}
    return Design(tuple([one for one in nodes if one.pods]), {name: pods for name, pods in existing.items() if pods})


def design_of(result: Result) -> Design:
    """What a result plans, as a design."""
    return Design(designed(result.claims), result.existing)


def designed(claims: Iterable[PlannedClaim]) -> tuple[DesignedNode, ...]:
    """Claims as nodes of a design."""
    nodes = [
        DesignedNode(
            one.pool,
            one.planned_type,
            one.planned_zone,
            one.planned_capacity_type,
            one.pods,
            tuple(one.charge.items()),
            tuple(one.labels.items()),
        )
        for one in claims
    ]
    return tuple(nodes)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one class of pods on one node.

    Attributes:
        node: the number of a designed node, or the name of an existing node.
        pod: one of them.
        problem: in words.
    """

    node: int | str
    pod: Pod
    problem: str

    def __str__(self) -> str:
        return f"{self.pod.key} on {self.node}: {self.problem}"


@dataclass(frozen=True, slots=True)
class LegalityVerdict:
    """What is wrong with a design; nothing where it is legal."""

    faults: tuple[Fault, ...] = ()

    @property
    def legal(self) -> bool:
        """Whether every pod may be where it is put."""
        return not self.faults


def judge(setting: Setting, left_out: Iterable[LeftOut], design: Design, numbers: Mapping[str, int]) -> LegalityVerdict:
    """Judge a design; `setting` is of its pods, `numbers` of existing nodes by name."""
    return _Judge(setting, design, numbers).verdict(left_out)


def settle(
    setting: Setting, left_out: Iterable[LeftOut], design: Design, numbers: Mapping[str, int]
) -> tuple[LegalityVerdict, tuple[PlannedClaim, ...]]:
    """Judge a design, and say its nodes as claims, in their order, each with its own pods; none where it is not legal."""
    judging = _Judge(setting, design, numbers)
    verdict = judging.verdict(left_out)
    if not verdict.legal:
        return verdict, ()
    claims = finish(judging.table.claims())
    nodes = [node for node in design.nodes if node.pods]
    return verdict, tuple([replace(one, pods=node.pods) for one, node in zip(claims, nodes, strict=True)])


_LOOKS_OF_A_JUDGEMENT: Final = 200_000
"""So many looks may be spent on further orders of binding before a design counts as one that has none: about half a second."""

_Opened = tuple[int, DesignedNode, PoolAccount, int, PodClass]
"""(number, node, its pool, its place, the class of its first pod)"""


class _Judge:
    def __init__(self, setting: Setting, design: Design, numbers: Mapping[str, int]) -> None:
        self.setting: Final = setting
        self.design: Final = design
        self.numbers: Final = numbers
        self.attempt: Final = Attempt(setting, (), setting.classes)
        self.table: Final = self.attempt.table
        self.class_of: Final = {pod.uid: one for one in setting.classes for pod in one.pods}
        self.starts: Final[dict[PodClass, int]] = {}
        self.faults: Final[list[Fault]] = []
        self.places: Final[dict[int, int | str]] = {}
        self.placed: Final[list[tuple[PodClass, int, int]]] = []  # class, number of the place, how many of its pods
        self.opened: Final[list[_Opened]] = []

    def verdict(self, left_out: Iterable[LeftOut]) -> LegalityVerdict:
        refused = {pod.uid: str(one.reason) for one in left_out for pod in one.pods}
        for name, pods in sorted(self.design.existing.items()):
            self._existing(name, pods, refused)
        for number, node in enumerate(self.design.nodes):
            self._new(number, node, refused)
        open_ones = self._undecided()
        failed = self.attempt.filler.settle()
        for opened in self.opened:
            self._check_type(*opened)
        if not self.faults:
            found = open_ones or self._unsettled(failed) or self._broken() or self._stuck()
            for one, place, problem in found:
                self._fault(self.places[place], one, problem)
        return LegalityVerdict(tuple(self.faults))

    def _undecided(self) -> list[Stuck]:
        """Pods whose node may still come to several domains of a label that matters to them: they were not counted in any."""
        return [
            (one, place, domain_not_settled(ap.axis.key))
            for one, place, _ in self.placed
            for ap in self.attempt.plans.plan_for(one).axes
            if not ap.axis.fixed >> place & 1
        ]

    def _unsettled(self, failed: Collection[Count]) -> list[Stuck]:
        """Pods whose spread some node would break, because it may still come to several domains, whichever it comes to."""
        return [
            (one, place, spread_over(spread.count.key))
            for one, place, _ in self.placed
            for spread in one.ladder[-1].relations.spreads
            if spread.count in failed
        ]

    def _broken(self) -> list[Stuck]:
        """Pods of which a required term does not hold once everything is where it was put."""
        found: list[Stuck] = []
        existing: Existing = {}
        for one, place, _ in self.placed:
            if one.facts.plain and self.setting.scope.empty:
                continue
            plan, own = self.attempt.plans.plan_for(one), {*one.ladder[-1].relations.guards}

            def mine(counter: Counter, own: Collection[object] = own, one: PodClass = one) -> int:
                """Whether the pod is counted itself."""
                count = counter.count
                return int(
                    count in own if count.owners else count.include(one.facts.pod, self.setting.world.namespaces)
                )

            if problem := fault(self.table, plan, place, plan.domains_of(1 << place), existing, mine):
                found.append((one, place, problem))
        return found

    def _stuck(self) -> list[Stuck]:
        """Pods that cannot be bound one after another, of those that want to be with others or that two spreads hold back, and theirs."""
        if none_waits(self.table, self.attempt.plans.plan_for):
            return []
        counts = {count for one in self.starts for count in one.ladder[-1].relations.together}
        counts.update(self.attempt.breaches.waiting_for_each_other(self.starts))
        return self.attempt.breaches.stuck(counts, _LOOKS_OF_A_JUDGEMENT) if counts else []

    def _fault(self, node: int | str, one: PodClass, problem: str) -> None:
        self.faults.append(Fault(node, one.pods[0], problem))

    def _by_class(self, node: int | str, pods: Sequence[Pod], refused: Mapping[str, str]) -> dict[PodClass, int]:
        found: dict[PodClass, int] = {}
        for pod in pods:
            if pod.uid in refused:
                self.faults.append(Fault(node, pod, refused[pod.uid]))
            else:
                one = self.class_of[pod.uid]
                found[one] = found.get(one, 0) + 1
        return found

    def _run(self, one: PodClass, count: int) -> PodRun:
        start = self.starts.get(one, 0)
        self.starts[one] = start + count
        run = self.attempt.plans.run_for(one, one.ladder[-1], start)
        run.end = start + count
        run.caps, run.soft = (), False
        return run

    def _existing(self, name: str, pods: Sequence[Pod], refused: Mapping[str, str]) -> None:
        number = self.numbers.get(name)
        bins = self.setting.bins
        for one, count in self._by_class(name, pods, refused).items():
            run = self._run(one, count)
            if number is None or not bins.everything >> number & 1:
                self._fault(name, one, Said("the node does not exist"))
            elif not bins.admitting(run.filter) >> number & 1:
                self._fault(name, one, Said("the taints, labels or state of the node do not allow the pod"))
            else:
                self._fill(name, run, number, count)

    def _fill(self, node: int | str, run: PodRun, number: int, count: int) -> None:
        """Pods of one class onto a place that is there."""
        low = 1 << number
        self.places[number] = node
        if run.ports and (count > 1 or self.table.ports.clashing(run.ports) & low):
            self._fault(node, run.pods, Said("a host port of the pod is in use on the node"))
            return
        if self.attempt.candidates.companions.shut_to(run) & low:
            self._fault(node, run.pods, Said("a DaemonSet pod that it brings cannot run next to other pods"))
            return
        exclusive = run.pods.volumes.exclusive
        if exclusive and (count > 1 or any(claim in self.attempt.plans.volumes.in_use for claim in exclusive)):
            self._fault(node, run.pods, Said("a volume that only one pod may use is in use"))
            return
        self.attempt.plans.volumes.in_use.update(exclusive)
        pins = tuple([(ap.axis, ap.axis.domain_of(low)) for ap in run.plan.axes if ap.axis.fixed & low])
        done = 0
        while done < count:
            put = self.attempt.filler.fill(run, low, count - done, pins)
            if not put:
                break
            done += put
        if done < count and run.crowd is not None and run.crowd.full & low:
            self._fault(node, run.pods, Said("the NodePool allows no more pods of this owner on one node"))
        elif done < count:
            self._fault(node, run.pods, Said("does not fit together with the other pods"))
        else:
            self.attempt.plans.volumes.decide(run.pods, run.end - count, run.end)
            self.placed.append((run.pods, number, count))

    def _new(self, number: int, node: DesignedNode, refused: Mapping[str, str]) -> None:
        groups = self._by_class(number, node.pods, refused)
        account = next((one for one in self.table.accounts if one.offer.pool.name == node.pool), None)
        if not groups:
            return
        first = next(iter(groups))
        if account is None:
            self._fault(number, first, Said(f"NodePool {node.pool!r} does not exist or cannot launch nodes"))
            return
        place = self._opened(number, node, account)
        if place is None:
            text = Said(
                f"NodePool {node.pool!r} has no {node.instance_type} in {node.zone or 'any zone'} "
                f"({node.capacity_type})"
            )
            self._fault(number, first, text)
            return
        for one, count in groups.items():
            run = self._run(one, count)
            if not account.offer.tolerated(run.filter):
                self._fault(number, one, Said("a taint of the NodePool is not tolerated"))
            else:
                self._fill(number, run, place, count)
        self.opened.append((number, node, account, place, first))

    def _opened(self, number: int, node: DesignedNode, account: PoolAccount) -> int | None:
        """An empty claim in its zone, with its capacity type and labels; its number."""
        offer = account.offer
        term = FilterTerm()
        said = [label for label in node.labels if label[0] in offer.types.open_labels]
        for key, value in ((ZONE_LABEL, node.zone), (CAPACITY_TYPE_LABEL, node.capacity_type), *said):
            if value:
                term = term.joined(pin(key, value))
        state = offer.narrowed(offer.base, term)
        row = offer.catalogue.row_of(node.instance_type)
        if state is not None and row is not None and node.charge and account.ledger is not None:
            state = offer.without(state, _over(offer, state, row, account.ledger, node.charge))
        if state is None or row is None or not state.rows >> row & 1:
            return None
        for terms in choosy_terms(self.attempt.candidates.companions.company):
            sides = sides_of(offer, state, terms, [0] * len(offer.dimensions.names))
            state = next((one for one in sides if one.rows >> row & 1), state)
        self.places[len(self.table.places)] = number
        return self.attempt.filler.open_empty(account, state)

    def _check_type(self, number: int, node: DesignedNode, account: PoolAccount, place: int, first: PodClass) -> None:
        claim = self.table.place_at(place)
        row = account.offer.catalogue.row_of(node.instance_type)
        state = claim.settled or claim.state
        if state is None or row is None or not account.offer.types.fitting(state.rows & 1 << row, claim.load()):
            self._fault(number, first, Said(f"does not fit on {node.instance_type} with the others"))


def _over(
    offer: PreparedPool, state: OfferState, row: int, ledger: LimitLedger, charge: tuple[tuple[str, int], ...]
) -> int:
    """The types that count more than a node may, and for which it would be charged if they were left: where there are minValues, any."""
    allowed = -1
    for name, amount in charge:
        if name in ledger.remaining:
            allowed &= ledger.within(name, amount)
    others = state.rows
    if not offer.min_values:
        priced = [one.row for one in offer.ranked(state).priced]
        others = mask_of(priced[: priced.index(row)]) if row in priced else 0
    return others & ~allowed & ~(1 << row)
