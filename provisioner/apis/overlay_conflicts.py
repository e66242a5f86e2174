"""Which NodeOverlays contradict each other: the rules that need no instance types. Pure.

`cloudprovider.overlays` judges the same with the instance types of every NodePool; of what it finds, nothing is left out here.
"""

import enum
from collections.abc import Iterable
from typing import Final

from provisioner.apis import names
from provisioner.apis.overlay import NodeOverlay
from provisioner.values.requirement import RequirementError, Requirements

PRICE_SUBJECT: Final = "spec.price"
"""No resource is called so."""
MAX_OVERLAYS: Final = 256
"""With more NodeOverlays that may contradict one, nothing is said."""

_SEVERAL_IN_A_TYPE: Final = frozenset({names.OS_LABEL, "karpenter.k8s.aws/instance-tenancy"})
_SEVERAL_IN_ITS_OFFERINGS: Final = frozenset(
    {
        names.ZONE_LABEL,
        names.CAPACITY_TYPE_LABEL,
        "topology.k8s.aws/zone-id",
        "karpenter.k8s.aws/capacity-reservation-id",
        "karpenter.k8s.aws/capacity-reservation-type",
        "karpenter.k8s.aws/capacity-reservation-interruptible",
        "karpenter.k8s.aws/placement-group-partition",
    }
)


class OverlayConflict(enum.Enum):
    """Whether two overlays change the same."""

    NEVER = enum.auto()
    POSSIBLE = enum.auto()
    """There may be instance types that both select."""
    CERTAIN = enum.auto()
    """One selects nothing that the other does not select."""


def subjects(overlay: NodeOverlay) -> frozenset[str]:
    """What an overlay changes: the names of resources, and `PRICE_SUBJECT`."""
    spec = overlay.spec
    priced = spec.price is not None or spec.price_adjustment is not None
    return frozenset({*spec.capacity, *((PRICE_SUBJECT,) if priced else ())})


def conflict(one: NodeOverlay, other: NodeOverlay) -> OverlayConflict:
    """Whether two overlays contradict each other; the same in either order.

    Overlays of different weights never do, nor does one whose requirements cannot be read or select nothing.
    """
    both = subjects(one) & subjects(other)
    if one.spec.weight != other.spec.weight or not both:
        return OverlayConflict.NEVER
    try:
        left, right = (Requirements.of(each.requirement() for each in some.spec.requirements) for some in (one, other))
    except RequirementError:
        return OverlayConflict.NEVER
    if any(each.is_contradiction for each in (*left.values(), *right.values())):
        return OverlayConflict.NEVER
    if left.implies(right) or right.implies(left):
        return OverlayConflict.CERTAIN
    # a type has one price for each offering, and its resources whatever the offering is
    shared = _SEVERAL_IN_A_TYPE if both == {PRICE_SUBJECT} else _SEVERAL_IN_A_TYPE | _SEVERAL_IN_ITS_OFFERINGS
    apart = any(key not in shared and not left[key].intersects(right[key]) for key in left if key in right)
    return OverlayConflict.NEVER if apart else OverlayConflict.POSSIBLE


def conflicts_of(overlay: NodeOverlay, others: Iterable[NodeOverlay]) -> dict[OverlayConflict, str]:
    """The first by name of the others that contradict an overlay, by how sure that is; one of its own name is passed over.

    Cost: O(others), some 20 us for each that changes the same; more than `MAX_OVERLAYS` of those are not looked at.
    """
    changed = subjects(overlay)
    near = [
        one
        for one in others
        if one.metadata.name != overlay.metadata.name
        and one.spec.weight == overlay.spec.weight
        and not changed.isdisjoint(subjects(one))
    ]
    if len(near) > MAX_OVERLAYS:
        return {}
    found: dict[OverlayConflict, str] = {}
    for one in sorted(near, key=lambda each: each.metadata.name):
        if (how := conflict(overlay, one)) is not OverlayConflict.NEVER:
            found.setdefault(how, one.metadata.name)
    return found
