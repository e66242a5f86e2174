"""A fleet of nodes that are equal in each zone, instead of one of the same price on which kube-scheduler would leave pods without a place.

Pods with a hard spread need room in each zone; others go where most of it is, and take the room that was planned for them. Where zones are of equal
size nobody has to keep them off: pods are planned where kube-scheduler would bind them by its own scores (`unaided`). That makes nominations
superfluous, and is often cheaper as well.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.scheduling.becoming import labels_of, opened, taints_of
from provisioner.scheduling.capacity.places import bought
from provisioner.scheduling.constraints.vectors import Vector
from provisioner.scheduling.improvement.acceptance import EPSILON_USD, settled, weighed
from provisioner.scheduling.improvement.granted import Granted, granted
from provisioner.scheduling.judging import DesignedNode
from provisioner.scheduling.nomination.nomination_rules import NominationPolicy, is_hard
from provisioner.scheduling.nomination.unaided import OpenNode, Running, is_modelled, needed, packed
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.values.resources import Resources

_MOST_NODES: Final = 32
_MOST_STEPS: Final = 50_000
"""Sets of nodes that are compared with what pods need, 5 us each."""
_MOST_TRIED: Final = 16
"""Fleets; of many pods fewer, so that no more than `_MOST_PLACED` are placed."""
_MOST_PLACED: Final = 6_000
_MOST_MORE: Final = 3
_MOST_COVERS: Final = 4
"""Nodes beside those that are the same everywhere, and choices of them."""


class _Kind(NamedTuple):
    """An instance type: its row in the catalogue, price in the dearest zone, and what it has for pods."""

    row: int
    usd: float
    room: Vector


Fleet = tuple[tuple[_Kind, str], ...]
"""Instance types and zones of nodes."""


def balanced(
    prepared: Prepared, result: Result, *, grants: Granted | None = None, expired: Callable[[], bool] = bool
) -> Result:
    """The same pods on nodes that are equal in each zone, where that costs no more, and kube-scheduler would leave pods of `result`.

    Args:
        prepared: the world that `result` is about.
        result: legal as a whole.
        grants: what it granted, where somebody asked already.
        expired: says that time is up.

    Returns:
        `result` itself where nothing was found; never one that is dearer, leaves others, or gives up what was granted.

    Cost: as of `needed` for what is planned, and for some fleets that are tried; counted in steps and looks.
    """
    placed = result.placed
    hard = any(is_hard(one) for shape in {id(pod.shape): pod.shape for pod in placed}.values() for one in shape.spread)
    if not hard or len(placed) > _MOST_PLACED or len(result.claims) < 2:
        return result
    running = Running((one.labels, one.pods) for one in prepared.world.bins if not one.leaving)
    least = spoiled(result.claims, running)
    if any(least) and grants is None:
        grants = granted(prepared, prepared.setting(placed), result)
    if not any(least) or grants is None:
        return result
    again, kept = grants.split(result.claims)
    alike = {(one.pool, one.planned_capacity_type) for one in again}
    if len(alike) != 1 or not all(is_modelled(pod.shape) for one in again for pod in one.pods):
        return result
    best, balancing = result, _Balancing(grants, again, weighed(prepared, again))
    for fleet in itertools.islice(balancing.roomy_first(), min(_MOST_TRIED, _MOST_PLACED // len(placed))):
        where = packed(balancing.open_nodes(fleet), running)
        if where is None or expired():
            continue
        found, _ = settled(prepared, grants.setting, result, kept, balancing.designed(fleet, where))
        if (
            found is None
            or weighed(prepared, found.claims) > weighed(prepared, result.claims) + EPSILON_USD
            or found.usd_per_hour > result.usd_per_hour + EPSILON_USD
        ):
            continue
        count = spoiled(found.claims, running)
        if count < least:
            best, least = found, count
        if not any(least):
            break
    return best


def spoiled(claims: Sequence[PlannedClaim], running: Running) -> tuple[int, int]:
    """How many pods of a plan kube-scheduler leaves, and how many need a nomination."""
    policy = NominationPolicy(pod for one in claims for pod in one.pods)
    withheld = {uid for one in claims for uid in policy.withheld(one.pods)}
    found = needed(coming(claims), withheld, running=running)
    return found.left, len(found.nominated)


def coming(claims: Sequence[PlannedClaim]) -> list[OpenNode]:
    """The nodes of a plan as kube-scheduler will find them; each hostname is "planned-" and its number."""
    nodes = []
    for number, claim in enumerate(claims):
        node = opened(claim, f"planned-{number}")
        labels = {**node.labels, names.HOSTNAME_LABEL: node.name}
        nodes.append(OpenNode(labels, claim.allocatable, node.room, claim.pods, node.taints))
    return nodes


class _Balancing:
    """Fleets for the pods of claims of one NodePool and capacity type, for no more than these cost."""

    def __init__(self, grants: Granted, again: Sequence[PlannedClaim], budget: float) -> None:
        self._first: Final = again[0]
        self._offer: Final = grants.offers[self._first.pool]
        self._pods: Final = tuple([pod for one in again for pod in one.pods])
        self._zones: Final = sorted({one.planned_zone for one in again})
        hosts = any(one.topology_key == names.HOSTNAME_LABEL for pod in self._pods for one in pod.shape.spread)
        self._groups: Final = self._zones * (max(1, len(again) // len(self._zones)) if hosts else 1)
        self._budget: Final = budget + EPSILON_USD
        asked = [pod.shape.requests.amounts_of(self._offer.dimensions.names) for pod in self._pods]
        self._demand: Final = [sum(amounts) for amounts in zip(*asked, strict=True)]
        self._least: Final = [min(amounts) for amounts in zip(*asked, strict=True)]
        self._kinds: Final = self._useful()
        width = range(len(self._demand))
        self._best: Final = [max((one.room[d] / one.usd for one in self._kinds), default=0.0) for d in width]
        self._steps = 0

    def _useful(self) -> list[_Kind]:
        """What is to be had in every zone, dearest first, without what costs no less than something that has no less room."""
        offer = self._offer
        prices: list[Mapping[int, float]] = []
        for zone in self._zones:
            state = bought(offer, zone, self._first.planned_capacity_type)
            ranked = offer.ranked(state).priced if state is not None else ()
            prices.append({one.row: one.offering.price for one in ranked})
        everywhere = set.intersection(*map(set, prices))
        kinds = [
            _Kind(row, max(some[row] for some in prices) + offer.pool.node_penalty, offer.room[row])
            for row in everywhere
            if prices[0][row] > 0
        ]
        found: list[_Kind] = []
        for one in sorted(kinds, key=lambda kind: (kind.usd, [-amount for amount in kind.room], kind.row)):
            if not any(all(a <= b for a, b in zip(one.room, other.room, strict=True)) for other in found):
                found.append(one)
        return found[::-1]

    def roomy_first(self) -> Iterator[Fleet]:
        """The fleets, those last that have not even room for half of the smallest pod on each node: so much is left over where nobody looks for what fits."""
        tight = []
        for fleet in self._fleets():
            room = map(sum, zip(*(kind.room for kind, _ in fleet), strict=True))
            if any(
                some < need + len(fleet) * least // 2
                for some, need, least in zip(room, self._demand, self._least, strict=True)
            ):
                tight.append(fleet)
            else:
                yield fleet
        yield from tight

    def _fleets(self) -> Iterator[Fleet]:
        """Nodes and their zones: the same in each zone, or that many times, and a few more; those of the largest nodes first."""
        groups, most = self._groups, _MOST_NODES // len(self._groups)
        share = self._budget / len(groups)
        for first in self._kinds:
            for count in range(min(int(share / first.usd), most), 0, -1):
                rest = share - count * first.usd
                others = ((one,) for one in self._kinds if one.usd <= rest and count < most)
                for second in itertools.chain(((),), others):
                    each = (first,) * count + second
                    for more in itertools.islice(self._beside(each), _MOST_COVERS):
                        own = tuple([(one, zone) for zone in groups for one in each])
                        yield (*own, *zip(more, itertools.cycle(self._zones), strict=False))
                    if self._steps > _MOST_STEPS:
                        return

    def _beside(self, each: Sequence[_Kind]) -> Iterator[tuple[_Kind, ...]]:
        """What has room for the pods that such nodes in each group have none for, and may be paid."""
        times = len(self._groups)
        lacking = [need - times * sum(one.room[d] for one in each) for d, need in enumerate(self._demand)]
        return self._covers(lacking, self._budget - times * sum(one.usd for one in each), _MOST_MORE, math.inf)

    def _covers(self, lacking: Sequence[int], budget: float, count: int, most: float) -> Iterator[tuple[_Kind, ...]]:
        """Up to so many nodes, of at most this price each, that have what is lacking; the cheapest where one is enough."""
        self._steps += 1
        if max(lacking, default=0) <= 0:
            yield ()
            return
        usable = [one for one in self._kinds if one.usd <= min(budget, most)]
        if not count or any(need > budget * best for need, best in zip(lacking, self._best, strict=True)):
            return
        self._steps += len(usable)
        for one in reversed(usable):
            if all(need <= amount for need, amount in zip(lacking, one.room, strict=True)):
                yield (one,)
                return
        for one in usable:
            if self._steps > _MOST_STEPS:
                return
            left = [need - amount for need, amount in zip(lacking, one.room, strict=True)]
            yield from ((one, *more) for more in self._covers(left, budget - one.usd, count - 1, one.usd))

    def open_nodes(self, fleet: Fleet) -> list[OpenNode]:
        """These nodes, as if all pods were planned on the first: where they go is the question."""
        labels, taints, offer = labels_of(self._first), taints_of(self._first), self._offer
        nodes = []
        for number, (kind, zone) in enumerate(fleet):
            room = Resources.of(dict(zip(offer.dimensions.names, kind.room, strict=True)))
            own = {
                names.INSTANCE_TYPE_LABEL: offer.catalogue.types[kind.row].name,
                names.ZONE_LABEL: zone,
                names.HOSTNAME_LABEL: f"planned-{number}",
            }
            pods = () if number else self._pods
            nodes.append(OpenNode({**labels, **own}, room + offer.types.overhead[kind.row], room, pods, taints))
        return nodes

    def designed(self, fleet: Fleet, where: Mapping[str, int]) -> list[DesignedNode]:
        """The same with their pods."""
        pods: list[list[Pod]] = [[] for _ in fleet]
        for pod in self._pods:
            pods[where[pod.uid]].append(pod)
        pool, capacity_type = self._first.pool, self._first.planned_capacity_type
        return [
            DesignedNode(pool, self._offer.catalogue.types[kind.row].name, zone, capacity_type, tuple(own))
            for (kind, zone), own in zip(fleet, pods, strict=True)
        ]
