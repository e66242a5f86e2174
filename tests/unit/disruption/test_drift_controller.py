"""The condition Drifted: set, changed and cleared, and who is looked at when."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import condition
from provisioner.cloudprovider.errors import CloudError
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.drift_controller import RECHECK_SECONDS, DriftController
from provisioner.runtime.changes import Change, NodeChanged, NodeClaimChanged, NodeClassChanged, NodePoolChanged
from provisioner.support.workers import DONE, ReconcileResult
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pool
from tests.support.worldserver import WorldServer

HASHED = {names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: "v3"}


class Cloud:
    """A provider whose verdict the test gives."""

    verdict = ""
    error: CloudError | None = None

    def instance_types(self, _: NodePool) -> tuple[InstanceType, ...]:
        return ()

    def is_drifted(self, _: NodeClaim) -> str:
        if self.error is not None:
            raise self.error
        return self.verdict


class Stage:
    def __init__(self) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.cloud = Cloud()
        self.pool: NodePool | None = stamped()
        self.controller = DriftController(
            self.world.cluster,
            self.cloud,  # type: ignore[arg-type]
            self.server.writer,
            self.world.clock,
            pool=lambda _: self.pool,
        )
        self.server.put(claim("a", provider_id="kwok://a", true=(names.LAUNCHED,), annotations=HASHED))

    def reason(self) -> str:
        found = condition(self.server.claim("a").status.conditions, names.DRIFTED)
        return f"{found.status}/{found.reason}" if found is not None else ""


def stamped(digest: str = "1") -> NodePool:
    one = pool()
    annotations = {**HASHED, names.NODEPOOL_HASH: digest}
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, annotations=annotations))


def test_a_claim_that_has_not_drifted_is_not_written() -> None:
    stage = Stage()
    assert stage.controller.reconcile("a") == ReconcileResult(requeue_after=RECHECK_SECONDS)
    assert stage.server.done == []


def test_the_condition_comes_changes_and_goes() -> None:
    stage = Stage()
    stage.cloud.verdict = "AMIDrift"
    stage.controller.reconcile("a")
    assert stage.reason() == "True/AMIDrift"
    stage.controller.reconcile("a")
    assert stage.server.done == ["PATCH nodeclaims/a"]
    stage.pool = stamped("2")
    stage.controller.reconcile("a")
    assert stage.reason() == "True/NodePoolDrifted", "the pool comes before the provider"
    stage.pool, stage.cloud.verdict = stamped(), ""
    stage.controller.reconcile("a")
    assert stage.reason() == ""


@pytest.mark.parametrize("verdict", ["", "AMIDrift"])
def test_what_cannot_be_judged_now_stays_as_it_is(verdict: str) -> None:
    stage = Stage()
    stage.cloud.verdict = verdict
    stage.controller.reconcile("a")
    before = stage.reason()
    stage.cloud.error = CloudError("the placement group is not known yet")
    assert stage.controller.reconcile("a") == ReconcileResult(requeue_after=RECHECK_SECONDS)
    assert stage.reason() == before


def test_without_its_pool_a_claim_has_not_drifted() -> None:
    stage = Stage()
    stage.cloud.verdict, stage.pool = "AMIDrift", None
    stage.controller.reconcile("a")
    assert stage.reason() == ""


UNJUDGED: dict[str, dict[str, Any]] = {
    "not launched": {},
    "going": {"provider_id": "kwok://a", "true": (names.LAUNCHED,), "deletionTimestamp": "2026-11-21T12:00:00Z"},
}


@pytest.mark.parametrize("fields", UNJUDGED.values(), ids=UNJUDGED)
def test_some_claims_are_not_judged(fields: dict[str, Any]) -> None:
    stage = Stage()
    stage.server.put(claim("a", **fields))
    stage.cloud.verdict = "AMIDrift"
    assert stage.controller.reconcile("a") == DONE
    assert stage.server.done == []
    assert stage.controller.reconcile("gone") == DONE


def test_a_write_that_does_not_go_through_is_tried_again_soon() -> None:
    stage = Stage()
    stage.cloud.verdict = "AMIDrift"
    stage.server.refuse["a"] = 409
    assert stage.controller.reconcile("a") == ReconcileResult(requeue_after=1.0)


def waiting(controller: DriftController, *changes: Change) -> int:
    """How many claims are to be looked at after these."""
    return sum(len(list(controller.heard(change))) for change in changes)


def test_events_have_those_looked_at_whom_they_concern() -> None:
    stage = Stage()
    one = stage.server.claim("a")
    unconcerned = (
        NodeClaimChanged(one, one),
        NodePoolChanged(stamped(), stamped()),
        NodePoolChanged(stamped(), None),
        NodeChanged(None, node("a")),
    )
    assert waiting(stage.controller, *unconcerned) == 0
    assert waiting(stage.controller, NodePoolChanged(stamped(), stamped("2"))) == 1
    other = Stage().controller
    assert waiting(other, NodeClassChanged(None, claim("default"))) == 1, "whatever the kind, its name counts"
    relabelled = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels={}))
    third = Stage().controller
    assert waiting(third, NodeClaimChanged(one, relabelled)) == 1


def observed(*generations: int) -> EC2NodeClass:
    """A class of generation 2 whose conditions are of these."""
    conditions = [
        {"type": f"C{one}", "status": "True", "observedGeneration": one, "lastTransitionTime": NOON.isoformat()}
        for one in generations
    ]
    body = {"metadata": {"name": "default", "generation": 2}, "spec": {}, "status": {"conditions": conditions}}
    return msgspec.convert(body, EC2NodeClass)


@pytest.mark.parametrize(
    ("generations", "seconds"),
    [((2,), 1.0), ((1,), 5.0), ((1, 2), 5.0), ((), 5.0)],
    ids=["its status is of its spec", "of an earlier spec", "in part of an earlier spec", "nobody has looked at it"],
)
def test_a_class_is_waited_for_until_its_status_is_of_its_spec(generations: tuple[int, ...], seconds: float) -> None:
    stage = Stage()
    assert stage.controller.heard(NodeClassChanged(None, observed(1))) == [("a", 5.0)]
    assert stage.controller.heard(NodeClassChanged(None, observed(*generations))) == [("a", seconds)]
