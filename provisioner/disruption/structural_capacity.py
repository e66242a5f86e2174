"""Is the capacity that the successor of a node would need structurally full, and by what? Pure; the one owner of that question.

Then a node that drifted or is broken may go first, and its successor takes what it gives back. What is short for a while is no reason: a launch that
failed says nothing here. Source: Karpenter 1.15, TerminateFirstDrift and TerminateFirstRepair.

Differs: Karpenter knows full reservations and static NodePools at their limit; here spread placement groups and subnets without addresses are caps as
well, and a reservation that is full because a launch said so is not, until it was read. A vCPU quota is none: only a launch that fails tells of one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from provisioner.apis import names
from provisioner.cloudprovider.types import (
    NO_INSTANCES_PRICE,
    CapKind,
    InstanceType,
    Offering,
    StructuralCap,
)
from provisioner.scheduling.problem import SchedulingPool
from provisioner.scheduling.result import Result
from provisioner.values.message import Said
from provisioner.values.requirement import Requirements

NO_CAPS: Final[frozenset[StructuralCap]] = frozenset()


def caps_held(labels: Mapping[str, str], kind: InstanceType | None) -> frozenset[StructuralCap]:
    """The caps that are full, and under which a node with these labels counts. Cost: the offerings of its type."""
    if kind is None:
        return NO_CAPS
    mine = Requirements.from_labels(dict(labels))
    return frozenset(
        one.full for one in kind.offerings if one.full is not None and mine.conflict(one.requirements) is None
    )


def full_by(types: Iterable[InstanceType], requirements: Requirements) -> frozenset[StructuralCap]:
    """What keeps a node with these requirements from being launched, as long as no instance ends; none where it can be launched, or is only short.

    Every way to launch it counts: one that can be taken, or that may come back by itself, is the end of the question. What is not sold, and a
    reservation that is not available, is no way.

    Cost: the offerings.
    """
    caps: set[StructuralCap] = set()
    for kind in types:
        if kind.requirements.conflict(requirements) is not None:
            continue
        for one in kind.offerings:
            if requirements.conflict(one.requirements) is not None or not _is_way(kind, one):
                continue
            if one.full is None:
                return NO_CAPS
            caps.add(one.full)
    return frozenset(caps)


def _is_way(kind: InstanceType, one: Offering) -> bool:
    """Whether an instance may come of an offering, now or later."""
    if one.full is not None or one.capacity_type == names.CAPACITY_RESERVED:
        return one.available
    return one.price < NO_INSTANCES_PRICE and kind.requirements.conflict(one.requirements) is None


def released(caps: Iterable[StructuralCap], held: frozenset[StructuralCap]) -> StructuralCap | None:
    """Which of the caps that keep a successor from being launched gives way when the node that holds these goes; None where none does."""
    return min(held.intersection(caps), default=None)


def recovered(pools: Iterable[SchedulingPool]) -> tuple[SchedulingPool, ...]:
    """NodePools as they will be once nothing is short, while what is full stays full. Cost: the offerings."""

    def back(kind: InstanceType, one: Offering) -> Offering:
        return replace(one, available=_may_come_back(kind, one))

    return tuple(replace(pool, instance_types=_with_offerings(pool.instance_types, back)) for pool in pools)


def credited(pools: Iterable[SchedulingPool], cap: StructuralCap) -> tuple[SchedulingPool, ...]:
    """NodePools as they are with one instance less under a cap that is full. Cost: the offerings."""
    return tuple(replace(pool, instance_types=credited_types(pool.instance_types, cap)) for pool in pools)


def credited_types(types: Iterable[InstanceType], cap: StructuralCap) -> tuple[InstanceType, ...]:
    """Instance types with one instance less under a cap that is full."""

    def opened(_: InstanceType, one: Offering) -> Offering:
        if one.full != cap:
            return one
        left = 1 if cap.kind is CapKind.RESERVATION else one.reservation_capacity
        return replace(one, full=None, reservation_capacity=left)

    return _with_offerings(types, opened)


def draws(result: Result, pools: Iterable[SchedulingPool], cap: StructuralCap) -> int:
    """How many new nodes of an answer draw on a cap, as they are planned.

    Args:
        result: of a question about a world in which the cap was credited.
        pools: as they are.
        cap: of which one place becomes free.
    """
    kinds = {pool.name: {kind.name: kind for kind in pool.instance_types} for pool in pools}

    def is_drawn(pool: str, name: str, zone: str, capacity_type: str) -> bool:
        kind = kinds.get(pool, {}).get(name)
        ways = kind.offerings if kind is not None else ()
        return any((one.full, one.zone, one.capacity_type) == (cap, zone, capacity_type) for one in ways)

    return sum(
        is_drawn(one.pool, one.planned_type, one.planned_zone, one.planned_capacity_type) for one in result.claims
    )


def no_room(cap: StructuralCap, *, held: bool) -> str:
    """Why a node is not replaced first, as users read it.

    Args:
        cap: what is full.
        held: whether the node itself counts under it, so that it could go first where that is enabled.
    """
    texts = {
        CapKind.RESERVATION: Said(f"capacity reservation {cap.name} is full"),
        CapKind.PLACEMENT_GROUP: Said(f"spread placement group {cap.name} is full"),
        CapKind.ADDRESSES: Said(f"no address is free in {cap.name}"),
        CapKind.NODE_LIMIT: Said(f'NodePool "{cap.name}" has reached its limit for nodes'),
    }
    text = texts[cap.kind]
    return text if held else Said(f"{text}, and the node does not count there")


def _may_come_back(kind: InstanceType, one: Offering) -> bool:
    return one.available or (one.full is None and one.capacity_type != names.CAPACITY_RESERVED and _is_way(kind, one))


def _with_offerings(
    types: Iterable[InstanceType], change: Callable[[InstanceType, Offering], Offering]
) -> tuple[InstanceType, ...]:
    return tuple(replace(kind, offerings=tuple(change(kind, one) for one in kind.offerings)) for kind in types)
