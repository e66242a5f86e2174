"""What the planner works on, in whole numbers: items (equal pods), slots (ways to make a node), and what stays as scheduling has it.

A claim of scheduling's answer is planned again when the model says everything about its pods. It stays as it is, pods and
all, where one of them

- has volumes or host ports, claims devices, or names several node selector terms;
- has a required or preferred affinity to pods of its own node; other wishes that it was granted it demands (`scheduling.improvement.granted`);
- is bound by a topology other than zone and hostname, or by one over hostname that more than 8 kinds of pods share;
- settles a label that the pool leaves open, or fits on no instance types that keep the pool's minValues for certain; or where
  the claim draws from a reservation, or the pool's minValues were relaxed for it;
- is of a pool that is packed greedily, or to which pods of a hostname spread may come of which a claim that stays has more than maxSkew:
  one node more would make that illegal. None of the others' pods are moved there.

What a pool's limits leave for claims that are planned again is in the model (`PackingLimit`): no more than these claims are charged with now
where some claims of the pool stay, for the lists of these were cut for that, or where pods are left without a place. In a pool with
minValues a slot is as small as several instance types together, which keep them (`envelopes`). Pods on existing nodes stay
there. A pod that is counted by zone keeps its zone, so every count by zone is what scheduling made it; over hostnames, no
node takes more than maxSkew pods of a spread, or one of those that keep apart.
"""

import functools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from typing import Final

from provisioner.apis.names import CAPACITY_SPOT, CAPACITY_TYPE_LABEL, HOSTNAME_LABEL, ZONE_LABEL
from provisioner.apis.pods import Pod
from provisioner.packing.envelopes import envelopes
from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.capacity.catalogue import Catalogue
from provisioner.scheduling.capacity.offers import PreparedPool
from provisioner.scheduling.capacity.places import bought
from provisioner.scheduling.constraints.bitsets import mask_of, members
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.demands import Count
from provisioner.scheduling.constraints.filters import FilterTerm, NodeFilter
from provisioner.scheduling.constraints.volumes import NO_VOLUMES
from provisioner.scheduling.judging import DesignedNode
from provisioner.scheduling.problem import Packing
from provisioner.scheduling.result import PlannedClaim, Result

Vector = tuple[int, ...]

_ALONE: Final = 1 << 12
"""What a pod that keeps others off its node takes of the room for it; others take 1. More than pods on any node."""
_MOST_SHARED: Final = 8
"""Kinds of hostname constraints that several classes share; each is a resource more."""
_FLEXIBLE: Final = 15
"""So many instance types a spot node can be, where there are so many. Source: Karpenter's least number for moving spot to spot."""
_MANY: Final = 60
"""Only of so many types are 15 insisted on: less than a quarter of them are large enough to be rare."""
_SMALL_SHARE: Final = 8
_MOST_SIDES: Final = 6
"""So many sets of instance types that pods leave are told apart in a pool with minValues."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One way to make a node.

    Attributes:
        offer: number of the pool in the question.
        row: number of the instance type in the pool's catalogue.
        zone, capacity_type: "" where they need not be said.
        usd: per hour; exact.
        room: what a node has for pods, by dimension.
        supply: number of the reservation that it draws from; -1 for any number of nodes.
        rare: spot, and too few instance types have that much room; see `_rare`.
        penalty: what the NodePool adds to the price of each node when fleets are compared; not part of any bound.
        alternatives: as of `Offering`.
        on_demand: its type's price where the launch may come to be on-demand, too, which then takes no spot that is dearer; else infinite.
        surplus: how much more than `usd` the launch is expected to cost, by estimate (`interruption_cost`); not part of any bound either.
        rows: one bit for each instance type that has so much room and keeps the pool's minValues together; 0 without minValues.
        charge: what such a node counts against each limit of the model.
        lone: one instance type of a pool with minValues: never planned, and what a launch may come to be (`interruption_cost`).
    """

    offer: int
    row: int
    zone: str
    capacity_type: str
    usd: Fraction
    room: Vector
    supply: int = -1
    rare: bool = False
    penalty: float = 0.0
    alternatives: int = 1
    on_demand: float = math.inf
    surplus: float = 0.0
    rows: int = 0
    charge: Vector = ()
    lone: bool = False


@dataclass(frozen=True, slots=True)
class PackingLimit:
    """What nodes may count together of one limited resource of one pool.

    Attributes:
        offer: number of the pool in the question.
        name: of the resource, or "nodes".
        budget: for all nodes of a model.
        largest: the most that any instance type of the pool counts.
    """

    offer: int
    name: str
    budget: int
    largest: int = 0


@dataclass(frozen=True, slots=True)
class PackingItem:
    """Equal pods as far as the planner is concerned.

    Attributes:
        need: of one pod, by dimension.
        allowed: one bit a slot.
        most: on one node; 0 for any number.
        group: of the market.
        pods: in the order in which they are dealt out.
        launched: one bit a slot, those too that are not planned: of what a launch with such a pod may come to be.
    """

    need: Vector
    allowed: int
    most: int
    group: int
    pods: tuple[Pod, ...]
    launched: int = -1


@dataclass(frozen=True, slots=True)
class ItemGroup:
    """Pods that may go to the same slots and existing nodes, for the bound.

    Attributes:
        demand: of all of them together, by dimension.
        allowed: one bit a slot.
        free: one bit for each kind of existing nodes that admits them.
    """

    demand: Vector
    allowed: int
    free: int


@dataclass(frozen=True, slots=True)
class PackingMarket:
    """What the bound is about: every pod that has a place, every way to give it one.

    Attributes:
        free: by kind of existing nodes, their room together.
        supplies: by reservation, how many instances are left of it.
        budgets: by limit, what all nodes may count together.
    """

    names: tuple[str, ...]
    slots: tuple[Slot, ...]
    groups: tuple[ItemGroup, ...]
    free: tuple[Vector, ...] = ()
    supplies: tuple[int, ...] = ()
    budgets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PackingNode:
    """A node of the model: its slot, and (item, pods) in ascending order of items."""

    slot: int
    load: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A question for the planner.

    Attributes:
        slots, items: of the pods that are planned again.
        nodes: what scheduling made for them.
        familiar: whether `nodes` are possible with these slots; not where scheduling made spot nodes that hardly any other type could
            take the place of, or used minValues up to the last value.
        limits: that nodes must keep together.
    """

    slots: tuple[Slot, ...]
    items: tuple[PackingItem, ...]
    nodes: tuple[PackingNode, ...]
    kept: tuple[PlannedClaim, ...]
    market: PackingMarket
    familiar: bool = True
    limits: tuple[PackingLimit, ...] = ()

    def weight(self, node: PackingNode) -> float:
        """What a node is expected to cost, with the penalty for a node."""
        slot = self.slots[node.slot]
        return float(slot.usd) + slot.surplus + slot.penalty

    def own_market(self, share: float = 1.0) -> PackingMarket:
        """What is planned again alone, at the price that is expected of it, within so much of the limits: for what its duals say of them."""
        width = len(self.market.names)
        demands: defaultdict[int, list[int]] = defaultdict(lambda: [0] * width)
        for one in self.items:
            own = demands[one.allowed]
            for d in range(width):
                own[d] += one.need[d] * len(one.pods)
        slots = tuple(
            [
                replace(one, room=one.room[:width])
                if one.alternatives <= 1
                else replace(one, room=one.room[:width], usd=_exact(round(float(one.usd) + one.surplus, 6)))
                for one in self.slots
            ]
        )
        groups = tuple([ItemGroup(tuple(demand), allowed, 0) for allowed, demand in demands.items()])
        budgets = tuple([int(one.budget * share) for one in self.limits])
        return PackingMarket(self.market.names, slots, groups, budgets=budgets)

    def designed(self, setting: Setting, nodes: Sequence[PackingNode]) -> tuple[DesignedNode, ...]:
        """These nodes with pods dealt out to them, for scheduling to judge beside what stays."""
        dealt = [0] * len(self.items)
        made = []
        numbers = Counter(self.slots[node.slot].offer for node in nodes)
        near = {one.offer for one in self.limits if numbers[one.offer] * one.largest > one.budget}
        for node in nodes:
            slot = self.slots[node.slot]
            offer = setting.offers[slot.offer]
            pods: list[Pod] = []
            for number, count in node.load:
                start = dealt[number]
                dealt[number] = start + count
                pods += self.items[number].pods[start : start + count]
            name = offer.catalogue.types[slot.row].name
            charge: tuple[tuple[str, int], ...] = ()
            if slot.offer in near:
                charge = tuple(
                    [
                        (limit.name, amount)
                        for limit, amount in zip(self.limits, slot.charge, strict=True)
                        if limit.offer == slot.offer
                    ]
                )
            made.append(DesignedNode(offer.pool.name, name, slot.zone, slot.capacity_type, tuple(pods), charge))
        return tuple(made)


def models_of(setting: Setting, result: Result) -> Iterator[Model]:
    """Models of a question and scheduling's answer to it, the most promising one first; `setting` is of all pods that have a place in it.

    Where scheduling has put more than maxSkew pods of a hostname spread on one node, they are spread over nodes of at most maxSkew;
    nodes that have no other pods, and are the only ones to which these may come, stay in the first model.
    """
    first = _Reader(setting, result)
    alone = first.alone()
    yield first.model(alone)
    if alone:
        yield _Reader(setting, result).model(frozenset())


@dataclass(frozen=True, slots=True)
class _Tie:
    """What pods have to do with each other on one node: `owners` keep `members` to `most`."""

    owners: frozenset[int]
    members: frozenset[int]
    most: int
    apart: bool


class _Reader:
    def __init__(self, setting: Setting, result: Result) -> None:
        self.setting: Final = setting
        self.result: Final = result
        self.classes: Final = setting.classes
        self.number_of: Final = {pod.uid: number for number, one in enumerate(self.classes) for pod in one.pods}
        self._known: Final[dict[object, int]] = {}
        self.zoned: Final = [self._zoned(one) for one in self.classes]
        own, self.shared, many = self._ties()
        self.most: Final = own
        self.unknown = [n in many or self._unknown(one) for n, one in enumerate(self.classes)]
        self.closed = {one.pool.name for one in setting.offers if one.pool.packing is Packing.GREEDY}
        self.weights: Final = {offer.pool.name: offer.pool.weight for offer in setting.offers}
        self.lone = 0
        self.min_values: Final = {offer.pool.name: bool(offer.min_values) for offer in setting.offers}

    # ------------------------------------------------------------------ what the model does not know

    def _counts(self, one: PodClass) -> set[Count]:
        """Everything that is counted for pods of a class, and everything that counts them."""
        if self.setting.scope.empty:
            return set()
        return {*one.counts, *self.setting.scope.including(one.facts.pod)}

    def _zoned(self, one: PodClass) -> bool:
        return any(count.key == ZONE_LABEL for count in self._counts(one))

    def _unknown(self, one: PodClass) -> bool:
        first, last = one.ladder[0], one.ladder[-1]
        if one.volumes is not NO_VOLUMES or one.facts.ports or one.shape.resource_claims or one.shape.volumes:
            return True
        if first.filter.terms != last.filter.terms or len(last.filter.terms) != 1:
            return True
        if last.filter.terms[0].names is not None:
            return True
        if any(count.key not in (ZONE_LABEL, HOSTNAME_LABEL) for count in self._counts(one)):
            return True
        return any(count.on_hosts for demand in one.ladder for count in demand.relations.together)

    def _bound_to(self, kept: Iterable[PlannedClaim]) -> set[str]:
        """The pools to which pods may come of which claims that stay have more than maxSkew: see above."""
        found: set[str] = set()
        if self.setting.scope.empty:
            return found
        loads = [Counter(self.number_of[pod.uid] for pod in claim.pods) for claim in kept]
        counted = [set(self.setting.scope.including(one.facts.pod)) for one in self.classes]
        for one in self.classes:
            for spread in one.ladder[0].relations.spreads:
                if spread.count.on_hosts and any(
                    sum(count for number, count in load.items() if spread.count in counted[number]) > spread.max_skew
                    for load in loads
                ):
                    found |= {offer.pool.name for offer in self.setting.offers if offer.admits(one.filter)}
        return found

    def _ties(self) -> tuple[dict[int, int], list[_Tie], set[int]]:
        """Most pods on a node by class; ties that several classes share; classes of more of these than can be looked after."""
        owners: defaultdict[tuple[Count | str, int, bool], set[int]] = defaultdict(set)
        counted: defaultdict[Count | str, set[int]] = defaultdict(set)
        for owner, most, some in self._crowds():
            owners[owner, most, False] = counted[owner] = some
        if self.setting.scope.empty and not owners:
            return {}, [], set()
        for number, one in enumerate(() if self.setting.scope.empty else self.classes):
            relations = one.ladder[0].relations
            for count in relations.apart:
                if count.on_hosts:
                    owners[count, 1, True].add(number)
            for spread in relations.spreads:
                if spread.count.on_hosts:
                    owners[spread.count, spread.max_skew, False].add(number)
        wanted = {count for count, _, _ in owners}
        for number, one in enumerate(() if self.setting.scope.empty else self.classes):
            for count in self.setting.scope.including(one.facts.pod):
                if count in wanted:
                    counted[count].add(number)
        own: dict[int, int] = {}
        shared: list[_Tie] = []
        many: set[int] = set()
        for (tied, most, apart), some in owners.items():
            concerned = some | counted[tied]
            if len(concerned) > 1:
                if len(shared) < _MOST_SHARED:
                    shared.append(_Tie(frozenset(some), frozenset(counted[tied]), most, apart))
                else:
                    many |= concerned
            elif counted[tied]:
                (number,) = some
                own[number] = min(most, own.get(number, most))
        return own, shared, many

    def _crowds(self) -> Iterable[tuple[str, int, set[int]]]:
        """Owners of more pods than a new node takes of one owner: how many it takes, and their classes."""
        tops = self.setting.world.most_of_one
        if not tops:
            return
        classes: defaultdict[str, set[int]] = defaultdict(set)
        for number, one in enumerate(self.classes):
            if one.owner:
                classes[one.owner].add(number)
        for owner, some in classes.items():
            filters = {self.classes[number].filter for number in some}
            most = [
                tops[offer.pool.name]
                for offer in self.setting.offers
                if offer.pool.name in tops and any(offer.admits(one) for one in filters)
            ]
            if most and sum(len(self.classes[number].pods) for number in some) > min(most):
                yield owner, min(most), some

    def alone(self) -> frozenset[int]:
        """Classes with more than the maxSkew of their hostname spread on one node, that have all new nodes to which they may come for themselves."""
        if self.setting.scope.empty:
            return frozenset()
        skews = {
            number: min(some)
            for number, one in enumerate(self.classes)
            if (some := [spread.max_skew for spread in one.ladder[0].relations.spreads if spread.count.on_hosts])
        }
        if not skews:
            return frozenset()
        users: defaultdict[str, set[int]] = defaultdict(set)
        crowded: set[int] = set()
        for claim in self.result.claims:
            load = Counter(self.number_of[pod.uid] for pod in claim.pods)
            users[claim.pool].update(load)
            crowded.update(n for n, count in load.items() if n in skews and count > skews[n])
        offers = self.setting.offers
        return frozenset(
            n
            for n in crowded
            if all(users[one.pool.name] <= {n} for one in offers if one.admits(self.classes[n].filter))
        )

    # ------------------------------------------------------------------ the model

    def model(self, whole: Collection[int]) -> Model:
        """The model; claims with pods of the classes `whole` stay as they are."""
        self.unknown = [unknown or n in whole for n, unknown in enumerate(self.unknown)]
        again, kept = self._claims()
        while not (more := self._bound_to(kept)) <= self.closed:
            self.closed |= more
            again, kept = self._claims()
        names = self.setting.bins.dimensions.names
        by_zone, by_capacity = self._told_apart(again)
        limits = self._limits(again, kept)
        slots = self._slots_within(limits, by_zone=by_zone, by_capacity=by_capacity)
        ways = _ways_of(slots)
        self.lone = mask_of(number for number, slot in enumerate(slots) if slot.lone)
        market, group_of = self._market(names)
        items: dict[tuple[Vector, int, int, int, int, int], int] = {}
        pods: list[list[Pod]] = []
        loads: list[Counter[int]] = []
        allowed: dict[tuple[int, str, int], int] = {}
        needs = {number: self._need(number) for number in range(len(self.classes))}
        for claim, zone in again:
            weight = self.weights[claim.pool]
            load: Counter[int] = Counter()
            for pod in claim.pods:
                number = self.number_of[pod.uid]
                own = zone if self.zoned[number] else ""
                asked = (number, own, weight)
                if asked not in allowed:
                    allowed[asked] = self._slots_for(number, ways, own, weight)
                most = self.most.get(number, 0)
                launched = allowed[asked]
                key = (needs[number], launched & ~self.lone, most, group_of[number], number if most else -1, launched)
                item = items.setdefault(key, len(items))
                if item == len(pods):
                    pods.append([])
                pods[item].append(pod)
                load[item] += 1
            loads.append(load)
        made = tuple([PackingItem(*key[:4], tuple(some), key[5]) for key, some in zip(items, pods, strict=True)])
        homeless = {self.number_of[pod.uid] for one in made if not _fits(slots, one) for pod in one.pods}
        if homeless:
            return self.model(homeless)  # of fewer pods each time
        nodes = []
        familiar = True
        for load, (claim, _) in zip(loads, again, strict=True):
            node = cheapest(slots, made, tuple(sorted(load.items())))
            if node is None:
                familiar = False
                if not self.min_values[claim.pool]:  # what scheduling knows is more than the model does
                    return Model((), (), (), self.result.claims, market)
                node = PackingNode(-1, tuple(sorted(load.items())))
            nodes.append(node)
        common = _common(slots, made)
        familiar = familiar and (common is made or all(cheapest(slots, common, node.load) for node in nodes))
        return Model(slots, common, tuple(nodes), tuple(kept), market, familiar, limits)

    def _limits(
        self, again: Iterable[tuple[PlannedClaim, str]], kept: Iterable[PlannedClaim]
    ) -> tuple[PackingLimit, ...]:
        """What the limits of pools leave for the claims that are planned again."""
        charged: defaultdict[str, Counter[str]] = defaultdict(Counter)
        staying: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for claim, _ in again:
            charged[claim.pool].update(claim.charge)
        for claim in kept:
            staying[claim.pool].update(claim.charge)
        found = []
        for number, offer in enumerate(self.setting.offers):
            pool = offer.pool
            if pool.name not in self.closed:
                for name, left in (pool.remaining or {}).items():
                    budget = left
                    if pool.name in staying or self.result.unplaced:
                        budget = min(left - staying[pool.name][name], charged[pool.name][name])
                    found.append(PackingLimit(number, name, max(0, budget), offer.catalogue.largest(name)))
        return tuple(found)

    def _claims(self) -> tuple[list[tuple[PlannedClaim, str]], list[PlannedClaim]]:
        """The claims that are planned again, with their zone where it matters; the others."""
        pools = {offer.pool.name: offer for offer in self.setting.offers}
        again: list[tuple[PlannedClaim, str]] = []
        kept: list[PlannedClaim] = []
        for claim in self.result.claims:
            numbers = {self.number_of[pod.uid] for pod in claim.pods}
            zone = claim.requirements.requirement(ZONE_LABEL).single_value or ""
            if (
                claim.pool in self.closed
                or any(self.unknown[n] or (self.zoned[n] and not zone) for n in numbers)
                or claim.min_values_relaxed
                or claim.reservations
                or any(self._settles(self.classes[n], pools[claim.pool]) for n in numbers)
            ):
                kept.append(claim)
            else:
                again.append((claim, zone))
        return again, kept

    def _settles(self, one: PodClass, offer: PreparedPool) -> bool:
        """Whether such a pod decides a label that the pool leaves open, or heeds a soft taint of the pool."""
        state = offer.narrowed(offer.base, _asked(one).terms[0])
        return state is None or state.said != offer.base.said or not offer.tolerated(one.ladder[0].filter)

    def _told_apart(self, again: Sequence[tuple[PlannedClaim, str]]) -> tuple[bool, bool]:
        """Whether zones and capacity types of nodes have to be told apart."""
        numbers = {self.number_of[pod.uid] for claim, _ in again for pod in claim.pods}
        keys = {
            key for n in numbers for term in _asked(self.classes[n]).terms for key in term.requirements
        }  # fmt: skip
        return ZONE_LABEL in keys or any(self.zoned[n] for n in numbers), CAPACITY_TYPE_LABEL in keys

    def _slots_within(self, limits: Sequence[PackingLimit], *, by_zone: bool, by_capacity: bool) -> tuple[Slot, ...]:
        """Every way to make a node in a pool that does not stay as it is, with what it counts, so that it keeps minValues."""
        found: list[Slot] = []
        for slot in self._slots(by_zone=by_zone, by_capacity=by_capacity):
            offer = self.setting.offers[slot.offer]
            if offer.pool.name not in self.closed and (not offer.min_values or slot.alternatives > 1):
                found.append(_charged(replace(slot, lone=True) if offer.min_values else slot, limits, offer.catalogue))
        for number, offer in enumerate(self.setting.offers):
            if offer.pool.name not in self.closed and offer.min_values:
                found += [
                    _charged(slot, limits, offer.catalogue)
                    for zone, kind in self._ways(offer, by_zone=by_zone, by_capacity=by_capacity)
                    for slot in self._with_values(number, offer, zone, kind)
                ]
        return tuple(found)

    def _with_values(self, number: int, offer: PreparedPool, zone: str, kind: str) -> Iterable[Slot]:
        """The slots of a pool with minValues: for every set of types that pods leave, those that keep them."""
        state = bought(offer, zone, kind)
        if state is None:
            return
        sides = {state.rows: state}
        for one in self.classes:
            narrower = offer.narrowed(state, _asked(one).terms[0])
            if narrower is not None and len(sides) < _MOST_SIDES:
                sides.setdefault(narrower.rows, narrower)
        more = self._more()
        for side in sides.values():
            priced = [one for one in offer.ranked(side).priced if side.rows >> one.row & 1]
            spot = any(one.offering.capacity_type == CAPACITY_SPOT for one in priced)
            alternatives = {one.row: one.offering.alternatives for one in priced}
            for kind_of in envelopes(offer, side, priced):
                rare = spot and kind_of.holding < min(_FLEXIBLE, len(priced) // _SMALL_SHARE)
                yield Slot(
                    number,
                    kind_of.row,
                    zone,
                    kind,
                    _exact(kind_of.usd),
                    kind_of.room + more,
                    rare=rare,
                    penalty=offer.pool.node_penalty,
                    alternatives=alternatives[kind_of.row],
                    rows=kind_of.rows,
                )

    @staticmethod
    def _ways(offer: PreparedPool, *, by_zone: bool, by_capacity: bool) -> list[tuple[str, str]]:
        """The zones and capacity types of a pool's nodes, as far as they are told apart."""
        zones = (offer.domains(offer.base, ZONE_LABEL) if by_zone else ()) or ("",)
        kinds = (offer.domains(offer.base, CAPACITY_TYPE_LABEL) if by_capacity else ()) or ("",)
        return [(zone, kind) for zone in zones for kind in kinds]

    def _more(self) -> Vector:
        return tuple([_ALONE if tie.apart else tie.most for tie in self.shared])

    def _slots(self, *, by_zone: bool, by_capacity: bool) -> tuple[Slot, ...]:
        """Every way to make a node, minValues aside."""
        found: list[Slot] = []
        more = self._more()
        for number, offer in enumerate(self.setting.offers):
            for zone, kind in self._ways(offer, by_zone=by_zone, by_capacity=by_capacity):
                state = bought(offer, zone, kind)
                if state is None:
                    continue
                priced = offer.ranked(state).priced
                spot = any(one.offering.capacity_type == CAPACITY_SPOT for one in priced)
                rare = _rare({one.row: offer.room[one.row] for one in priced}) if spot else frozenset()
                both = offer.catalogue.on_demand(state.requirements) if spot and not offer.min_values else ()
                on_demand = {one.row: one.offering.price for one in both}
                found += [
                    Slot(
                        number,
                        one.row,
                        zone,
                        kind,
                        _exact(one.offering.price),
                        offer.room[one.row] + more,
                        rare=one.row in rare and one.offering.capacity_type == CAPACITY_SPOT,
                        penalty=offer.pool.node_penalty,
                        alternatives=one.offering.alternatives,
                        on_demand=on_demand.get(one.row, math.inf),
                    )
                    for one in priced
                ]
        return tuple(found)

    def _slots_for(self, number: int, ways: "_Ways", zone: str, weight: int) -> int:
        one = self.classes[number]
        key = (one.filter, one.ladder[0].filter, zone, weight)
        if key not in self._known:
            self._known[key] = self._allowed(one, ways, zone, weight)
        return self._known[key]

    def _allowed(self, one: PodClass, ways: "_Ways", zone: str, weight: int) -> int:
        """The slots on which a pod may be, its size not looked at."""
        found: list[int] = []
        for (number, slot_zone, kind), own in ways.items():
            offer = self.setting.offers[number]
            if offer.pool.weight != weight:
                continue
            if (zone and slot_zone and slot_zone != zone) or not offer.tolerated(one.ladder[0].filter):
                continue
            state = bought(offer, slot_zone, kind)
            narrower = None if state is None else offer.narrowed(state, _asked(one).terms[0])
            if state is None or narrower is None or narrower.said != state.said:
                continue
            asked = offer.catalogue.asked
            if asked(narrower.requirements) != asked(state.requirements):
                continue  # a slot's price holds for what the slot says alone
            for rows, slot in own:
                if not rows & ~narrower.rows and (
                    not offer.min_values or self.lone >> slot & 1 or offer.enough_values(narrower, rows)
                ):
                    found.append(slot)
        return mask_of(found)

    def _need(self, number: int) -> Vector:
        one = self.classes[number]
        own = self.setting.bins.dimensions.filled(self.setting.needs[one])
        return own + tuple([_share(tie, number) for tie in self.shared])

    # ------------------------------------------------------------------ for the bound

    def _market(self, names: tuple[str, ...]) -> tuple[PackingMarket, dict[int, int]]:
        """For the bound; and the group of each class.

        Zones that pods were given and constraints between pods are left out: a bound without them holds with them.
        """
        setting = self.setting
        placed = Counter(self.number_of[pod.uid] for pod in self.result.placed)
        terms = [term for number in placed for term in self.classes[number].filter.terms]
        keys = {key for term in terms for key in term.requirements}
        limits = [
            PackingLimit(number, name, max(0, left))
            for number, offer in enumerate(setting.offers)
            for name, left in (offer.pool.remaining or {}).items()
        ]
        slots = [
            _charged(slot, limits, setting.offers[slot.offer].catalogue)
            for slot in self._plain_slots(by_zone=ZONE_LABEL in keys, by_capacity=CAPACITY_TYPE_LABEL in keys)
        ]
        supplies: list[int] = []
        slots += self._reserved(supplies)
        ways = _ways_of(slots)
        kinds: dict[int, int] = {}
        demands: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0] * len(names))
        admitted: dict[object, tuple[int, int]] = {}
        key_of: dict[int, object] = {}
        for number, count in sorted(placed.items()):
            one = self.classes[number]
            key = key_of[number] = (one.filter, self._least_weight(one))
            if key not in admitted:
                admitted[key] = self._possible(one, ways, key[1]), setting.bins.admitting(one.filter)
            own = demands[admitted[key]]
            for d, amount in setting.needs[one]:
                own[d] += amount * count
        for _, bins in demands:
            kinds.setdefault(bins, len(kinds))
        # an existing node is of one kind by the set of groups that it admits
        sets = list(kinds)
        rooms: dict[int, list[int]] = {}
        for i in members(functools.reduce(operator.or_, sets, 0)):
            signature = sum(1 << n for n, bins in enumerate(sets) if bins >> i & 1)
            room = rooms.setdefault(signature, [0] * len(names))
            for d, amount in enumerate(setting.bins.rooms[i]):
                room[d] += max(0, amount)
        order = list(rooms)
        groups = tuple(
            ItemGroup(tuple(demand), slots_of, sum(1 << k for k, s in enumerate(order) if s >> kinds[bins] & 1))
            for (slots_of, bins), demand in demands.items()
        )
        free = tuple([tuple(rooms[s]) for s in order])
        budgets = tuple([one.budget for one in limits])
        market = PackingMarket(names, tuple(slots), groups, free, tuple(supplies), budgets)
        place = {key: number for number, key in enumerate(demands)}
        return market, {number: place[admitted[key]] for number, key in key_of.items()}

    def _plain_slots(self, *, by_zone: bool, by_capacity: bool) -> Iterable[Slot]:
        width = len(self.setting.bins.dimensions.names)
        for one in self._slots(by_zone=by_zone, by_capacity=by_capacity):
            yield Slot(one.offer, one.row, one.zone, one.capacity_type, one.usd, one.room[:width])

    def _reserved(self, supplies: list[int]) -> Iterable[Slot]:
        known: dict[str, int] = {}
        label = self.setting.world.reservation_label
        for number, offer in enumerate(self.setting.offers):
            if not offer.catalogue.reserved:
                continue
            for name, left, asked in offer.catalogue.reservations(offer.base.requirements, label):
                state = offer.narrowed(offer.base, FilterTerm(asked))
                if state is None:
                    continue
                if name not in known:
                    known[name] = len(supplies)
                    supplies.append(left)
                for one in offer.ranked(state).priced:
                    usd = _exact(one.offering.price)
                    yield Slot(number, one.row, _ANY, _ANY, usd, offer.room[one.row], known[name])

    def _least_weight(self, one: PodClass) -> int | None:
        """The weight of the first pool that surely takes such a pod: pools of less weight are not asked. None for no such pool."""
        need = self.setting.needs[one]
        for offer in self.setting.offers:
            if offer.pool.remaining is None and not offer.min_values and offer.takes(one.filter, need):
                return offer.pool.weight
        return None

    def _possible(self, one: PodClass, ways: "_Ways", least_weight: int | None) -> int:
        """At least the slots on which a pod may be, in pools of no less than this weight."""
        found: list[int] = []
        for (number, zone, kind), own in ways.items():
            offer = self.setting.offers[number]
            if (least_weight is not None and offer.pool.weight < least_weight) or not offer.tolerated(one.filter):
                continue
            state = offer.base if zone == _ANY else bought(offer, zone, kind)
            for term in one.filter.terms:
                narrower = None if state is None else offer.narrowed(state, term)
                if narrower is not None:
                    found += [slot for rows, slot in own if not rows & ~narrower.rows]
        return mask_of(found)


def _asked(one: PodClass) -> NodeFilter:
    """What pods that the model knows ask of a node: what they require, and the wishes that they were granted."""
    return one.narrowed(one.ladder[0].filter)


_ANY: Final = "*"
"""The zone and capacity type of reserved slots in the bound."""
_Ways = Mapping[tuple[int, str, str], Sequence[tuple[int, int]]]
"""By pool, zone and capacity type: the instance types of a slot, one bit each, and its number."""


def _ways_of(slots: Sequence[Slot]) -> _Ways:
    found: defaultdict[tuple[int, str, str], list[tuple[int, int]]] = defaultdict(list)
    for number, one in enumerate(slots):
        found[one.offer, one.zone, one.capacity_type].append((one.rows or 1 << one.row, number))
    return found


def _charged(slot: Slot, limits: Sequence[PackingLimit], catalogue: Catalogue) -> Slot:
    """The slot with what it counts against each limit: as much as any instance type that it may come to be charged for."""
    if not limits:
        return slot
    rows = list(members(slot.rows)) or [slot.row]
    return replace(
        slot,
        charge=tuple(
            [max(catalogue.amount(row, one.name) for row in rows) if one.offer == slot.offer else 0 for one in limits]
        ),
    )


@functools.lru_cache(1 << 14)
def _exact(usd: float) -> Fraction:
    """A price as it is written; many slots have the same one."""
    return Fraction(str(usd))


def _fits(slots: Sequence[Slot], one: PackingItem) -> bool:
    """Whether there is a slot for a pod by itself."""
    return any(all(map(int.__ge__, slots[number].room, one.need)) for number in members(one.allowed))


def _share(tie: _Tie, number: int) -> int:
    """What a pod takes of the room for one tie."""
    if tie.apart:
        return _ALONE if number in tie.owners else int(number in tie.members)
    return int(number in tie.members or number in tie.owners)


def _rare(rooms: Mapping[int, Vector]) -> frozenset[int]:
    """Those of which fewer than 15 have at least their room, in every dimension; of fewer than 60, fewer than an eighth of them.

    Of a short list a larger share would leave no large node, and so twice the nodes for the same money.

    Cost: O(types x dimensions) operations on bitsets.
    """
    rows = list(rooms)
    enough = _FLEXIBLE if len(rows) >= _MANY else len(rows) // _SMALL_SHARE
    covering = dict.fromkeys(rows, -1)
    for amounts in zip(*rooms.values(), strict=True):
        seen = 0
        own = dict(zip(rows, amounts, strict=True))
        for _, some in groupby(sorted(rows, key=own.__getitem__, reverse=True), own.__getitem__):
            equal = list(some)
            for row in equal:
                seen |= 1 << row
            for row in equal:
                covering[row] &= seen
    return frozenset([row for row in rows if covering[row].bit_count() < enough])


def _common(slots: Sequence[Slot], items: tuple[PackingItem, ...]) -> tuple[PackingItem, ...]:
    """The items without the slots that are rare, but for those that fit on no other."""
    rare = mask_of(number for number, slot in enumerate(slots) if slot.rare)
    if not rare:
        return items
    made = []
    for one in items:
        others = one.allowed & ~rare
        common = replace(one, allowed=others)
        made.append(common if _fits(slots, common) else one)
    return tuple(made)


def cheapest(
    slots: Sequence[Slot], items: Sequence[PackingItem], load: tuple[tuple[int, int], ...]
) -> PackingNode | None:
    """The cheapest node for these pods; None where no slot holds them."""
    allowed = -1
    width = len(items[load[0][0]].need)
    used = [0] * width
    for number, count in load:
        one = items[number]
        allowed &= one.allowed
        for d in range(width):
            used[d] += one.need[d] * count
    best = -1
    for number in members(allowed & (1 << len(slots)) - 1):
        slot = slots[number]
        if all(map(int.__ge__, slot.room, used)) and (best < 0 or slot.usd < slots[best].usd):
            best = number
    return PackingNode(best, load) if best >= 0 else None
