"""What it costs to disrupt a node, and what the node costs. Source: core spec 6.3; Karpenter 1.15."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from provisioner.apis import deletion_cost, names
from provisioner.apis.karpenter import NEVER, NodeClaim
from provisioner.apis.pods import Pod, is_reschedulable
from provisioner.cloudprovider.types import InstanceType, offering_price
from provisioner.values.duration import DurationError, parse_duration

_DISRUPTION_COSTS: Final = 2.0**27
_PRIORITIES: Final = 2.0**25
_MOST: Final = 10.0


def eviction_cost(pod: Pod) -> float:
    """What the eviction of one pod costs, from -10 to 10; 1 for one that says nothing of itself. See `deletion_cost.disruption_cost`."""
    cost = 1.0 + pod.shape.priority / _PRIORITIES + deletion_cost.disruption_cost(pod) / _DISRUPTION_COSTS
    return min(_MOST, max(-_MOST, cost))


def reschedule_cost(pods: Iterable[Pod]) -> float:
    """What it costs to have the pods of one node placed anew: 1 and what its reschedulable pods cost, none less than 0."""
    return 1.0 + sum(max(0.0, eviction_cost(pod)) for pod in pods if is_reschedulable(pod))


def lifetime_remaining(claim: NodeClaim, now: datetime) -> float:
    """The share of its life that a node has before it, from 0 to 1; 1 where it never expires."""
    left = time_left(claim, now)
    if left is None:
        return 1.0
    return min(1.0, max(0.0, left / parse_duration(claim.spec.expire_after)))


def time_left(claim: NodeClaim, now: datetime) -> timedelta | None:
    """Until the node expires, negative once it has; None where it never does, or nobody can read when."""
    created = claim.metadata.creation_timestamp
    if claim.spec.expire_after == NEVER or created is None:
        return None
    try:
        life = parse_duration(claim.spec.expire_after)
    except DurationError:
        return None
    return life - (now - created) if life > timedelta(0) else None


def disruption_cost(claim: NodeClaim, pods: Iterable[Pod], now: datetime) -> float:
    """What all its pods cost, less the more of its life is over: the order in which a static pool gives up nodes."""
    return sum(map(eviction_cost, pods)) * lifetime_remaining(claim, now)


def known_price(labels: Mapping[str, str], instance_type: InstanceType | None) -> float | None:
    """USD per hour of a node with these labels; None where its type, its offering or the price is not known."""
    if instance_type is None:
        return None
    zone, capacity_type = labels.get(names.ZONE_LABEL, ""), labels.get(names.CAPACITY_TYPE_LABEL, "")
    price = offering_price(instance_type, zone, capacity_type)
    return None if price is None or math.isnan(price) else price


def price_of(labels: Mapping[str, str], instance_type: InstanceType | None) -> float:
    """Likewise; 0 where it is not known."""
    return known_price(labels, instance_type) or 0.0
