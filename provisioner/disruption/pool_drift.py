"""Why a NodeClaim is no longer what its NodePool asks for. Source: core spec 6.7.

What acts on it is another matter: this is the verdict that the claim's condition Drifted tells.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.hash import HASH_VERSION, nodepool_hash
from provisioner.apis.karpenter import NodeClaim, NodePool, requirements_of
from provisioner.apis.meta import is_true
from provisioner.cloudprovider.types import InstanceType
from provisioner.values.requirement import Requirement, RequirementError, Requirements

NODE_POOL: Final = "NodePoolDrifted"
REQUIREMENTS: Final = "RequirementsDrifted"
TYPE_NOT_FOUND: Final = "InstanceTypeNotFound"

#: A type that a catalogue lacks for a moment is no reason to replace a node that has just come.
TYPE_GRACE: Final = timedelta(hours=1)
_RESERVATION_LABELS: Final = "capacity-reservation-"


def pool_drift(claim: NodeClaim, pool: NodePool) -> str:
    """What the objects alone say: NodePoolDrifted, RequirementsDrifted or ""; "" for a claim that is not launched.

    Hashes count only where both objects have one, of the same version, and the pool has no field that this version does not know: its hash may
    be another program's, and nodes that we make would lack what the field asks for. A pool whose requirements cannot be read says so itself, and
    drifts nothing.
    """
    if not is_true(claim.status.conditions, names.LAUNCHED):
        return ""
    if not pool.unknown_fields and _hash_differs(claim, pool):
        return NODE_POOL
    try:
        wanted = requirements_of(pool.spec.template.spec.requirements)
    except RequirementError:
        return ""
    carried = Requirements.from_labels(claim.metadata.labels)
    return REQUIREMENTS if carried.incompatibility(wanted) is not None else ""


def type_drift(claim: NodeClaim, types: Sequence[InstanceType], now: datetime) -> str:
    """InstanceTypeNotFound where the instance could not be bought again, whatever there is of it now; else "".

    Args:
        claim: launched.
        types: of its pool; none at all says nothing.
        now: UTC.
    """
    created = claim.metadata.creation_timestamp
    if created is None or now - created < TYPE_GRACE:
        return ""
    name = claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "")
    found = next((one for one in types if one.name == name), None)
    if found is None:
        return TYPE_NOT_FOUND if types else ""
    carried = _bought_as(claim)
    return "" if any(carried.conflict(one.requirements) is None for one in found.offerings) else TYPE_NOT_FOUND


def _hash_differs(claim: NodeClaim, pool: NodePool) -> bool:
    of_claim, of_pool = claim.metadata.annotations, pool.metadata.annotations
    versions = of_claim.get(names.NODEPOOL_HASH_VERSION), of_pool.get(names.NODEPOOL_HASH_VERSION)
    hashes = of_claim.get(names.NODEPOOL_HASH), of_pool.get(names.NODEPOOL_HASH)
    if None in versions or None in hashes or versions[0] != versions[1] or hashes[0] == hashes[1]:
        return False
    # a claim may be made from a template whose hash is not on its pool yet: it would be replaced by one that drifts the same way
    return versions[0] != HASH_VERSION or hashes[0] != nodepool_hash(pool.spec.template)


def _bought_as(claim: NodeClaim) -> Requirements:
    """The labels that an offering fixes; an instance of a reservation may also be had without it."""
    found = Requirements.from_labels(
        {
            key: value
            for key, value in claim.metadata.labels.items()
            if not key.rpartition("/")[2].startswith(_RESERVATION_LABELS)
        }
    )
    if claim.metadata.labels.get(names.CAPACITY_TYPE_LABEL) != names.CAPACITY_RESERVED:
        return found
    either = Requirement.of(names.CAPACITY_TYPE_LABEL, "In", [names.CAPACITY_RESERVED, names.CAPACITY_ON_DEMAND])
    return Requirements.of(either if key == names.CAPACITY_TYPE_LABEL else one for key, one in found.items())
