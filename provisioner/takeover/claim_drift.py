"""Which NodeClaims would drift under Dovetail, and why: the hashes as the controllers would stamp them, judged as they would judge. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from provisioner.apis import ec2, ec2_hash, hash, names  # noqa: A004 - the module of pools' hashes
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import condition, is_true
from provisioner.disruption.pool_drift import pool_drift

_Annotated = TypeVar("_Annotated", NodeClaim, NodePool, EC2NodeClass)
AMI: Final = "AMIDrift"
UNREADABLE: Final = "the hash cannot be computed"
MARKED: Final = "Drifted"
"""A claim that Karpenter has marked."""


@dataclass(frozen=True, slots=True)
class ClaimDrift:
    """A NodeClaim that would drift.

    Attributes:
        reason: such as NodePoolDrifted, as in its condition.
        also_karpenter: Karpenter would replace its node as well.
    """

    claim: str
    reason: str
    also_karpenter: bool


@dataclass(frozen=True, slots=True)
class DriftVerdict:
    """What becomes of all claims.

    Attributes:
        judged: how many claims were looked at: those that are launched.
        drifts: by name of the claim.
        undetermined: (claim, why) of those that nobody can judge by what was read.
    """

    judged: int
    drifts: tuple[ClaimDrift, ...]
    undetermined: tuple[tuple[str, str], ...]

    @property
    def only_here(self) -> tuple[ClaimDrift, ...]:
        """Those whose nodes Karpenter would keep."""
        return tuple(one for one in self.drifts if not one.also_karpenter)


class _UnknownBundleError(Exception):
    """The hash of a class depends on the cluster's CA, which is not known."""


def drift_of(
    claims: Iterable[NodeClaim],
    pools: Iterable[NodePool],
    classes: Iterable[EC2NodeClass],
    bundles: Iterable[str | None],
) -> DriftVerdict:
    """What becomes of claims when Dovetail's controllers meet them. Cost: some 0.6 ms a class and 0.1 ms a pool, little for a claim.

    Args:
        claims: all of them.
        pools: by which they are judged.
        classes: likewise.
        bundles: the CA as nodes get it, in base64: as Karpenter is told and as the cluster's is; None where that is not known.
    """
    by_pool = {one.name: one for one in pools}
    stamped = {one.name: _StampedClass.of(one, tuple(bundles)) for one in classes}
    judged, drifts, undetermined = 0, [], []
    for claim in sorted(claims, key=lambda one: one.name):
        if not is_true(claim.status.conditions, names.LAUNCHED) or claim.metadata.deletion_timestamp is not None:
            continue
        judged += 1
        try:
            here, there = _reasons(claim, by_pool.get(claim.pool), stamped.get(claim.spec.node_class_ref.name))
        except _UnknownBundleError:
            undetermined.append(
                (claim.name, "the CA of the cluster, which the hash of its EC2NodeClass contains, is not known")
            )
            continue
        except ValueError as error:
            undetermined.append((claim.name, f"{UNREADABLE}: {error}"))
            continue
        if here:
            drifts.append(ClaimDrift(claim.name, here, bool(there)))
    return DriftVerdict(judged, tuple(drifts), tuple(undetermined))


def _reasons(claim: NodeClaim, pool: NodePool | None, node_class: "_StampedClass | None") -> tuple[str, str]:
    """Why it would drift under Dovetail, and under Karpenter; "" for not at all."""
    marked = condition(claim.status.conditions, names.DRIFTED) is not None
    both = MARKED if marked else ""
    if pool is not None and not both:
        both = pool_drift(claim, pool)
    if node_class is not None and not both:
        both = ec2_hash.static_drift(claim, node_class.found) or _image_drift(claim, node_class.found)
    here = both
    if pool is not None and not here:
        here = pool_drift(*_pool_stamped(claim, pool, drifted=marked))
    if node_class is not None and not here:
        here = node_class.drift(claim, drifted=marked)
    return here, both


def _pool_stamped(claim: NodeClaim, pool: NodePool, *, drifted: bool) -> tuple[NodeClaim, NodePool]:
    """Both as they are once the controller of NodePools has seen the pool."""
    if pool.unknown_fields and names.NODEPOOL_HASH in pool.metadata.annotations:
        return claim, pool
    wanted = hash.pool_stamp(pool.spec.template)
    if pool.metadata.annotations.get(names.NODEPOOL_HASH_VERSION) != hash.HASH_VERSION:
        claim = _annotated(claim, hash.claim_stamp(claim.metadata.annotations, wanted, drifted=drifted))
    return claim, _annotated(pool, wanted)


@dataclass(frozen=True, slots=True)
class _StampedClass:
    """An EC2NodeClass as it is, and the CA that its controller would hash it with; None where that is not known."""

    found: EC2NodeClass
    bundle: str | None

    @classmethod
    def of(cls, found: EC2NodeClass, bundles: tuple[str | None, ...]) -> "_StampedClass":
        """With the CA by which Karpenter's own hash comes out, if any does: then it is the right one."""
        annotations = found.metadata.annotations
        version, told = annotations.get(ec2.HASH_VERSION_ANNOTATION), annotations.get(ec2.HASH_ANNOTATION)
        compute = {ec2_hash.HASH_VERSION: ec2_hash.nodeclass_hash, ec2_hash.FORMER_VERSION: ec2_hash.former_hash}
        known = [one for one in bundles if one is not None]
        if version in compute and told is not None:
            fits = next((one for one in (*known, "") if compute[version](found.spec, one) == told), None)
            if fits is not None:
                return cls(found, fits)
        return cls(found, known[0] if len(known) == len(bundles) and known else None)

    def drift(self, claim: NodeClaim, *, drifted: bool) -> str:
        """As `static_drift`, once the controller of EC2NodeClasses has seen both."""
        annotations = self.found.metadata.annotations
        if self.found.unknown_fields and ec2.HASH_ANNOTATION in annotations:
            return ""
        if ec2.HASH_ANNOTATION not in claim.metadata.annotations:
            return ""
        if self.bundle is None:
            raise _UnknownBundleError
        stamp = ec2_hash.claim_stamp(claim.metadata.annotations, self.found.spec, self.bundle, drifted=drifted)
        after = _annotated(self.found, ec2_hash.class_stamp(self.found.spec, self.bundle))
        return ec2_hash.static_drift(_annotated(claim, stamp), after)


def _image_drift(claim: NodeClaim, node_class: EC2NodeClass) -> str:
    images = {one.id for one in node_class.status.amis}
    return AMI if images and claim.status.image_id and claim.status.image_id not in images else ""


def _annotated(one: _Annotated, annotations: dict[str, str]) -> _Annotated:
    metadata = msgspec.structs.replace(one.metadata, annotations={**one.metadata.annotations, **annotations})
    return msgspec.structs.replace(one, metadata=metadata)
