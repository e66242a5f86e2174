"""Tags that instances get once their Node has joined."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from provisioner.apis import ec2, names
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError
from provisioner.ec2.instances.instances import Ec2Instance
from provisioner.ec2.instances.tagging_controller import TaggingController, is_due, missing_tags
from provisioner.support.workers import DONE, ReconcileResult
from tests.support.cluster import World, claim
from tests.support.worldserver import WorldServer

INSTANCE = Ec2Instance("i-00000000000000001", "running", "m5.large", "us-east-1a", "spot")
ALL = {ec2.NAME_TAG: "node-a", ec2.NODECLAIM_TAG: "a", ec2.CLUSTER_NAME_TAG: "blue"}
TAGGED = {ec2.TAGGED_ANNOTATION: "true", ec2.CLUSTER_NAME_TAGGED_ANNOTATION: "true"}


class Stage:
    def __init__(self, tags: Mapping[str, str], **fields: Any) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.instance, self.tagged = replace(INSTANCE, tags=tags), list[tuple[str, Mapping[str, str]]]()
        self.error: CloudError | None = None
        self.shifted: set[str] = set()
        self.controller = TaggingController(
            lambda _: self.instance,
            self._tag,
            self.world.cluster,
            self.server.writer,
            "blue",
            self.world.clock,
            shifted=lambda: self.shifted,
        )
        given = {"provider_id": INSTANCE.provider_id, "true": (names.LAUNCHED, names.REGISTERED), **fields}
        self.server.put(claim("a", **given))
        stored = self.server.objects["nodeclaims"]["a"]
        stored["status"]["nodeName"] = "node-a"
        self.server.put(self.server.claim("a"))

    def _tag(self, instance: str, tags: Mapping[str, str]) -> None:
        if self.error is not None:
            raise self.error
        self.tagged.append((instance, tags))


LACKING: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "an instance without tags gets all": ({}, ALL),
    "what is there stays": ({ec2.NAME_TAG: "mine", ec2.NODECLAIM_TAG: "a"}, {ec2.CLUSTER_NAME_TAG: "blue"}),
    "an instance with all": (ALL, {}),
}


@pytest.mark.parametrize(("present", "lacking"), LACKING.values(), ids=LACKING)
def test_an_instance_gets_the_tags_that_it_lacks(present: dict[str, str], lacking: dict[str, str]) -> None:
    stage = Stage(present)
    assert missing_tags(present, stage.server.claim("a"), "blue") == lacking
    assert stage.controller.reconcile("a") == DONE
    assert stage.tagged == ([(INSTANCE.id, lacking)] if lacking else [])
    found = stage.server.claim("a")
    assert {key: found.metadata.annotations.get(key) for key in TAGGED} == TAGGED
    assert not is_due(found)


NOT_DUE: dict[str, dict[str, Any]] = {
    "not registered": {"true": (names.LAUNCHED,)},
    "tagged already": {"annotations": TAGGED},
    "going": {"deletionTimestamp": "2026-11-21T12:00:00Z"},
    "of another cloud": {"provider_id": "kwok://a"},
}


@pytest.mark.parametrize("fields", NOT_DUE.values(), ids=NOT_DUE)
def test_some_claims_are_left(fields: dict[str, Any]) -> None:
    stage = Stage({}, **fields)
    assert stage.controller.reconcile("a") == DONE
    assert stage.tagged == []
    assert stage.controller.reconcile("gone") == DONE


def test_a_claim_tagged_by_an_old_karpenter_gets_what_is_new() -> None:
    stage = Stage({}, annotations={ec2.TAGGED_ANNOTATION: "true"})
    assert is_due(stage.server.claim("a"))


def test_an_instance_that_ec2_does_not_know_is_tried_again_until_its_claim_goes() -> None:
    stage = Stage({})
    stage.error = InstanceNotFoundError("x")
    assert stage.controller.reconcile("a") == ReconcileResult(failed=True)
    stage.error = None
    assert stage.controller.reconcile("a") == DONE
    assert stage.tagged


def test_instances_in_a_zone_that_is_shifted_away_from_wait() -> None:
    stage = Stage({})
    stage.instance = replace(stage.instance, zone_id="use1-az1")
    stage.shifted = {"use1-az1"}
    assert stage.controller.reconcile("a") == ReconcileResult(requeue_after=60.0)
    assert stage.tagged == []
    stage.shifted.clear()
    stage.controller.reconcile("a")
    assert stage.tagged


@pytest.mark.parametrize(
    ("fields", "waits"),
    [({}, True), ({"true": (names.LAUNCHED,)}, False), ({"deletionTimestamp": "2026-11-21T12:00:00Z"}, False)],
    ids=["a launch", "an instance that boots", "a claim that goes"],
)
def test_tags_give_way_to_launches_for_a_while(fields: dict[str, Any], waits: bool) -> None:
    stage = Stage({})
    stage.server.put(claim("b", **fields))
    assert stage.controller.reconcile("a") == (ReconcileResult(requeue_after=5.0) if waits else DONE)
    assert bool(stage.tagged) is not waits
    stage.world.clock.advance(29.0)
    assert stage.controller.reconcile("a") == (ReconcileResult(requeue_after=5.0) if waits else DONE)
    stage.world.clock.advance(1.0)
    assert stage.controller.reconcile("a") == DONE
    assert len(stage.tagged) == 1


def test_tags_are_added_once_the_launch_is_over() -> None:
    stage = Stage({})
    stage.server.put(claim("b"))
    assert stage.controller.reconcile("a") == ReconcileResult(requeue_after=5.0)
    stage.server.put(claim("b", provider_id="aws:///z/i-2", true=(names.LAUNCHED,)))
    stage.world.clock.advance(5.0)
    assert stage.controller.reconcile("a") == DONE
    assert stage.tagged


def test_tags_that_fail_are_tried_again_and_not_noted() -> None:
    stage = Stage({})
    stage.error = CloudError("throttled")
    assert stage.controller.reconcile("a") == ReconcileResult(failed=True)
    assert is_due(stage.server.claim("a"))


def test_at_most_two_instances_a_second_so_that_launches_come_first() -> None:
    stage = Stage({})
    for _ in range(25):
        stage.server.objects["nodeclaims"]["a"]["metadata"]["annotations"] = {}
        stage.server.put(stage.server.claim("a"))
        stage.controller.reconcile("a")
    assert sum(stage.world.clock.slept) == pytest.approx(10.0)
    assert len(stage.tagged) == 25
