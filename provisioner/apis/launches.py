"""How far the launch of a NodeClaim is, as it says itself. Pure."""

from collections.abc import Mapping

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true


def is_launched(claim: NodeClaim) -> bool:
    """Whether the claim has an instance, as far as its status says."""
    return bool(claim.status.provider_id) or is_true(claim.status.conditions, names.LAUNCHED)


def may_have_begun(annotations: Mapping[str, str]) -> bool:
    """Whether a launch has begun of which not everything is known, by the annotations of a claim: there may be an instance that its status does not name."""
    return names.LAUNCH_ANNOTATION in annotations


def may_have_instance(claim: NodeClaim) -> bool:
    """Whether it is launched, or a launch has begun of which not everything is known."""
    return is_launched(claim) or may_have_begun(claim.metadata.annotations)
