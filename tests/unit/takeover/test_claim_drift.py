"""Which NodeClaims of Karpenter would drift under Dovetail."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.takeover.claim_drift import DriftVerdict, drift_of
from tests.support.takeover import CA, Wire, node_claim, node_class, node_pool

POOL, CLASS = node_pool(), node_class()
OTHER_POOL = node_pool(taints=[{"key": "a", "effect": "NoSchedule"}])
OLD_POOL = node_pool(hashed="v2")
DRIFTED = {
    "type": "Drifted",
    "status": "True",
    "reason": "AMIDrift",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def judged(
    claim: Wire, pool: Wire = POOL, its_class: Wire = CLASS, bundles: tuple[str | None, ...] = (CA,)
) -> DriftVerdict:
    return drift_of(
        [msgspec.convert(claim, NodeClaim, strict=False)],
        [msgspec.convert(pool, NodePool)],
        [msgspec.convert(its_class, EC2NodeClass)],
        bundles,
    )


def with_status(claim: Wire, **status: Any) -> Wire:
    return {**claim, "status": {**claim["status"], **status}}


def required(values: list[str]) -> Wire:
    return node_pool(requirements=[{"key": "team", "operator": "In", "values": values}])


CLAIM = node_claim("a", POOL, CLASS)
CASES: dict[str, tuple[DriftVerdict, str, bool]] = {
    "of the pool and class as they are": (judged(CLAIM), "", False),
    "hashed by an older version": (judged(node_claim("a", OLD_POOL, CLASS), OLD_POOL), "", False),
    "of another template of the pool": (judged(node_claim("a", OTHER_POOL, CLASS)), "NodePoolDrifted", True),
    "of another spec of the class": (judged(node_claim("a", POOL, node_class(userData="x"))), "NodeClassDrift", True),
    "another image": (judged(with_status(CLAIM, imageID="ami-0")), "AMIDrift", True),
    "marked by Karpenter": (
        judged(with_status(CLAIM, conditions=[*CLAIM["status"]["conditions"], DRIFTED])),
        "Drifted",
        True,
    ),
    "a requirement that it lacks": (judged(CLAIM, required(["a"])), "RequirementsDrifted", True),
    "of a hash that is not ours, in our version": (
        judged(
            node_claim("a", POOL, CLASS, **{names.NODEPOOL_HASH: "1"}),
            {
                **POOL,
                "metadata": {
                    **POOL["metadata"],
                    "annotations": {names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: "v3"},
                },
            },
        ),
        "NodePoolDrifted",
        False,
    ),
    "of a class that Karpenter hashed in another way": (
        judged(
            node_claim("a", POOL, CLASS, **{ec2.HASH_ANNOTATION: "1"}),
            POOL,
            {
                **CLASS,
                "metadata": {
                    **CLASS["metadata"],
                    "annotations": {ec2.HASH_ANNOTATION: "1", ec2.HASH_VERSION_ANNOTATION: "v5"},
                },
            },
        ),
        "NodeClassDrift",
        False,
    ),
    "not launched yet": (judged(with_status(node_claim("a", OTHER_POOL, CLASS), conditions=[])), "", False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_reasons(case: tuple[DriftVerdict, str, bool]) -> None:
    verdict, reason, also_karpenter = case
    found = [(one.reason, one.also_karpenter) for one in verdict.drifts]
    assert found == ([(reason, also_karpenter)] if reason else [])
    assert verdict.undetermined == ()


def test_the_authority_is_found_by_the_hash_that_karpenter_wrote() -> None:
    assert judged(CLAIM, bundles=("b3RoZXI=", CA)).drifts == ()
    assert judged(CLAIM, bundles=(CA, None)).drifts == ()


def test_without_the_authority_nobody_can_tell() -> None:
    assert [name for name, _ in judged(CLAIM, bundles=(None,)).undetermined] == ["a"]
    assert [name for name, _ in judged(CLAIM, bundles=("b3RoZXI=", None)).undetermined] == ["a"]
