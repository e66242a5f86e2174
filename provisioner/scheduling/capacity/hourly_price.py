"""What the node of a NodeClaim costs an hour."""

import math
from collections.abc import Mapping
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, requirements_of
from provisioner.cloudprovider.types import NO_INSTANCES_PRICE, InstanceType, by_price, offering_price
from provisioner.values.requirement import RequirementError

_PARTS: Final = 3


def usd_per_hour(claim: NodeClaim, types: Mapping[str, InstanceType]) -> float:
    """What the node of a NodeClaim costs: as launched, else as planned, else the least that it may come to be; 0 where nobody knows.

    Args:
        claim: it.
        types: of its NodePool, by name.
    """
    price = _usd_per_hour(claim, types)
    return 0.0 if price is None or price >= NO_INSTANCES_PRICE else price


def lacks_price(claim: NodeClaim, types: Mapping[str, InstanceType]) -> bool:
    """Whether no price is known of what it is or may come to be: limits count its node as free, so whoever limits has to be told."""
    price = _usd_per_hour(claim, types)
    return price is not None and price >= NO_INSTANCES_PRICE


def _usd_per_hour(claim: NodeClaim, types: Mapping[str, InstanceType]) -> float | None:
    """Infinite where its types are known and their prices are not; None where its types are not."""
    labels = claim.metadata.labels
    launched = [labels.get(key, "") for key in (names.INSTANCE_TYPE_LABEL, names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL)]
    planned = claim.metadata.annotations.get(names.PLANNED_OFFERING_ANNOTATION, "").split("/")
    for offering in (launched, planned):
        if len(offering) == _PARTS and all(offering) and (kind := types.get(offering[0])) is not None:
            price = offering_price(kind, offering[1], offering[2])
            if price is not None and price >= 0:  # not NaN
                return price
    if all(launched):
        return math.inf if launched[0] in types else None
    try:
        cheapest = by_price(types.values(), requirements_of(claim.spec.requirements))
    except RequirementError:
        return None
    return cheapest[0][1].price if cheapest else None
