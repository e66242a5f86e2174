"""What the nodes of a NodePool may cost together, as one more resource of its limits.

An instance type counts with the highest price that a node of it can come to have in the NodePool, spot or on demand: so the limit holds
whatever is launched. Nodes that are there count with what they cost, so what spot leaves is there for the next batch.

Differs: Karpenter limits resources only.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import ceil, isfinite
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, requirements_of
from provisioner.apis.pool_limits import MICROS, USD
from provisioner.cloudprovider.types import NO_INSTANCES_PRICE, InstanceType
from provisioner.scheduling.capacity.hourly_price import usd_per_hour
from provisioner.scheduling.problem import World
from provisioner.state.snapshot import NodeView
from provisioner.values.requirement import RequirementError, Requirements
from provisioner.values.resources import Resources

_MOST_KEPT: Final = 256
USD_OF_ALL: Final = "USD per hour of all NodePools"


def spent(nodes: Iterable[NodeView], types: Mapping[str, InstanceType]) -> int:
    """What those of these nodes of one NodePool that count cost, or will, in millionths of a USD per hour."""
    claims = (one.claim for one in nodes if one.counts and one.claim is not None)
    return round(MICROS * sum(usd_per_hour(claim, types) for claim in claims))


def highest_usd_per_hour(claim: NodeClaim, types: Mapping[str, InstanceType]) -> float:
    """The most that the node of a NodeClaim can come to cost by the instance types that it names; 0 where it names none that is known."""
    try:
        requirements = requirements_of(claim.spec.requirements)
    except RequirementError:
        return 0.0
    named = requirements.requirement(names.INSTANCE_TYPE_LABEL)
    kinds = [types[name] for name in named.values if name in types] if not named.complement else []
    return max((_priced(one, requirements).capacity.amount(USD) for one in kinds), default=0) / MICROS


def reached(left: int, types: Iterable[InstanceType], requirements: Requirements) -> bool:
    """Whether what is left, in millionths of a USD per hour, allows no further node of a NodePool with these requirements."""
    counts = [
        _priced(one, requirements).capacity.amount(USD)
        for one in types
        if one.requirements.conflict(requirements) is None
    ]
    return min(counts, default=0) > left


def lowest(one: InstanceType, requirements: Requirements) -> InstanceType:
    """A type as `--max-usd-per-hour` counts it before its node is launched: with the least that one costs in the NodePool now."""
    offered = [each for each in one.offerings if each.launchable and each.requirements.conflict(requirements) is None]
    return _with(one, USD_OF_ALL, min([each.price for each in offered if isfinite(each.price)], default=0.0))


def within(world: World, usd: float, priced: "PricedTypes | None" = None) -> World:
    """A world in which the new nodes of no NodePool cost more than so many USD per hour together, as they are planned.

    Args:
        world: where nothing limits that.
        usd: the limit.
        priced: of `lowest`, where it is asked again and again.
    """
    priced = priced or PricedTypes(lowest)
    left = Resources.of({USD_OF_ALL: round(MICROS * usd)})
    pools = [
        replace(
            pool,
            instance_types=priced.of(pool.name, pool.instance_types, pool.requirements),
            remaining=left if pool.remaining is None else pool.remaining + left,
        )
        for pool in world.pools
    ]
    return replace(world, pools=tuple(pools))


class PricedTypes:
    """The instance types of NodePools with their price among their capacity; the same tuple while nothing changed. Any thread may ask."""

    def __init__(self, counted: Callable[[InstanceType, Requirements], InstanceType] | None = None) -> None:
        self._counted: Final = counted or _priced
        self._known: Final[dict[str, tuple[tuple[InstanceType, ...], Requirements, tuple[InstanceType, ...]]]] = {}

    def of(self, pool: str, types: tuple[InstanceType, ...], requirements: Requirements) -> tuple[InstanceType, ...]:
        """The types as a NodePool with these requirements counts them. Cost: O(offerings) where the tuple is another one."""
        known = self._known.get(pool)
        if known is not None and known[0] is types and known[1] == requirements:
            return known[2]
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        made = tuple([self._counted(one, requirements) for one in types])
        self._known[pool] = types, requirements, made
        return made


def _priced(one: InstanceType, requirements: Requirements) -> InstanceType:
    prices = [
        offering.price
        for offering in one.offerings
        if offering.requirements.conflict(requirements) is None
        and offering.price > 0
        and isfinite(offering.price)
        # a zone that does not sell the type has no price
        and (offering.available or offering.price < NO_INSTANCES_PRICE)
    ]
    return _with(one, USD, max(prices, default=0.0))


def _with(one: InstanceType, name: str, usd: float) -> InstanceType:
    price = Resources.of({name: ceil(MICROS * usd)})
    return replace(one, capacity=one.capacity + price, overhead=one.overhead + price)
