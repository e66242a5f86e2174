"""Instances without a claim, claims without an instance: who is ended, and who only almost."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner.apis import ec2, names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError
from provisioner.cloudprovider.types import LaunchedInstance
from provisioner.ec2.instances.instances import Ec2Instance, InstanceUnseenError
from provisioner.ec2.instances.orphans import sort_out
from provisioner.kube.errors import ApiError
from provisioner.lifecycle.garbage_collection import MISSED_SECONDS, POLL_SECONDS, ClaimCollector, InstanceCollector
from tests.support.cluster import World, claim, node
from tests.support.worldserver import WorldServer

ORPHAN = Ec2Instance("i-00000000000000001", "running", "m5.large", "us-east-1a", "spot")
REGISTERED = (names.LAUNCHED, names.REGISTERED)


class Stage:
    """A collector over instances that the test lists, and an API server."""

    def __init__(self) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.instances: list[Ec2Instance] = [ORPHAN]
        self.terminated: list[str] = []
        self.again: list[str] = []
        self.broken: CloudError | None = None
        self.beside = ""
        self.collector = InstanceCollector(
            lambda: self.instances,
            sort_out,
            lambda one: self.server.terminator().end_orphan(one, self._terminate),
            self.world.cluster,
            self.server.client,
            self.server.writer,
            self.world.clock,
            look_again=self.again.append,
            orphan_after=timedelta(minutes=5),
            beside=lambda: self.beside,
        )

    def _terminate(self, provider_id: str) -> None:
        if self.broken is not None:
            raise self.broken
        self.terminated.append(provider_id)

    def poll_for(self, seconds: float) -> None:
        """Poll as often as it asks to."""
        left = seconds
        while left >= 0:
            wait = self.collector.poll()
            self.world.clock.advance(wait)
            left -= wait


def test_an_instance_of_nobody_is_terminated_after_five_minutes() -> None:
    stage = Stage()
    stage.poll_for(270)
    assert stage.terminated == []
    stage.poll_for(120)
    assert stage.terminated[0] == ORPHAN.provider_id


def test_while_another_karpenter_leads_its_instances_are_no_orphans() -> None:
    stage = Stage()
    stage.poll_for(270)
    stage.beside = "Karpenter runs"
    stage.poll_for(600)
    stage.beside = ""
    stage.poll_for(270)
    assert stage.terminated == []
    stage.poll_for(120)
    assert stage.terminated[0] == ORPHAN.provider_id


def test_its_node_goes_with_it() -> None:
    stage = Stage()
    stage.server.put(node("n", provider_id=ORPHAN.provider_id, finalizers=[names.TERMINATION_FINALIZER]))
    stage.poll_for(330)
    assert stage.server.done == ["PATCH nodes/n", "DELETE nodes/n"]


def test_live_pods_of_an_instance_of_nobody_are_evicted_before_it_is_terminated() -> None:
    stage = Stage()
    stage.server.put(node("n", provider_id=ORPHAN.provider_id))
    stage.server.bind("web", "n")
    stage.poll_for(330)
    assert stage.terminated == []
    assert names.DISRUPTED_TAINT.key in {taint.key for taint in stage.server.node("n").spec.taints}
    stage.server.work_off()
    assert "POST evictions/web" in stage.server.done
    stage.poll_for(10)
    assert stage.terminated == [ORPHAN.provider_id]


def test_an_instance_of_nobody_stays_while_its_pods_cannot_be_listed() -> None:
    stage = Stage()
    stage.server.put(node("n", provider_id=ORPHAN.provider_id))
    stage.server.refuse["pods"] = 403
    stage.poll_for(600)
    assert stage.terminated == []


def test_five_minutes_without_a_break() -> None:
    stage = Stage()
    stage.poll_for(200)
    stage.instances = []
    stage.collector.poll()
    stage.instances = [ORPHAN]
    stage.poll_for(200)
    assert stage.terminated == []


def test_the_api_server_is_asked_before_anything_is_ended() -> None:
    stage = Stage()
    stage.server.tell = False  # our watch hangs
    stage.server.put(claim("mine", provider_id=ORPHAN.provider_id, true=REGISTERED))
    stage.poll_for(400)
    assert stage.terminated == []
    asked = [sent for sent in stage.server.api.sent if sent.method == "GET"]
    assert asked, "the instance looked like nobody's"


def test_nothing_is_ended_while_the_api_server_does_not_answer() -> None:
    stage = Stage()
    stage.poll_for(290)
    stage.server.refuse["GET"] = 503
    with pytest.raises(ApiError):
        stage.poll_for(30)
    assert stage.terminated == []


def test_an_instance_of_a_launch_under_way_is_taken_over_by_its_claim() -> None:
    stage = Stage()
    stage.instances = [replace(ORPHAN, tags={ec2.NODECLAIM_TAG: "mine"})]
    stage.server.put(claim("mine"))
    stage.poll_for(600)
    assert stage.terminated == []
    assert set(stage.again) == {"mine"}


@pytest.mark.parametrize("error", [CloudError("throttled"), InstanceNotFoundError(ORPHAN.provider_id)])
def test_a_termination_that_fails_is_tried_again(error: CloudError) -> None:
    stage = Stage()
    stage.server.put(node("n", provider_id=ORPHAN.provider_id, finalizers=[names.TERMINATION_FINALIZER]))
    stage.broken = error
    stage.poll_for(330)
    gone = isinstance(error, InstanceNotFoundError)
    assert stage.server.has("nodes", "n") is not gone
    stage.broken = None
    if not gone:
        stage.poll_for(120)
        assert stage.terminated


def test_it_looks_often_at_first() -> None:
    stage = Stage()
    stage.instances = []
    assert [stage.collector.poll() for _ in range(22)] == [10.0] * 20 + [120.0] * 2


class Cloud:
    """A provider that only lists and gets."""

    name = "fake"

    def __init__(self, *there: str) -> None:
        self.there = list(there)
        self.lagging: list[str] = []
        self.broken = False
        self.unseen = False
        self.failed = ""

    def list(self) -> Sequence[LaunchedInstance]:
        return [LaunchedInstance(one, "m5.large", "z", "spot") for one in self.there if one not in self.lagging]

    def get(self, provider_id: str) -> LaunchedInstance:
        if self.broken:
            raise CloudError("throttled")
        if self.unseen:
            raise InstanceUnseenError(provider_id, 300.0)
        if provider_id not in self.there:
            raise InstanceNotFoundError(provider_id, self.failed)
        return LaunchedInstance(provider_id, "m5.large", "z", "spot")

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        return frozenset({("karpenter.kwok.sh", "KWOKNodeClass")})


def collected(cloud: Cloud, *things: NodeClaim | Node, uncertain: bool = False, looks: int = 1) -> bool:
    """Whether the claim "a" is deleted after so many looks."""
    server = WorldServer(World())
    server.put(*things)
    collector = ClaimCollector(
        server.world.cluster,
        cloud,  # type: ignore[arg-type]
        server.writer,
        uncertain=lambda _: uncertain,
    )
    for _ in range(looks):
        collector.poll()
    return not server.has("nodeclaims", "a")


LOST = claim("a", provider_id="kwok://a", true=REGISTERED)
NEVER_JOINED = claim("a", provider_id="kwok://a", true=(names.LAUNCHED,))


def test_a_claim_whose_instance_is_gone_is_deleted() -> None:
    assert collected(Cloud(), LOST)
    assert collected(Cloud("kwok://b"), LOST, node("a", ready=False))


def test_a_claim_whose_node_is_ready_stays() -> None:
    assert not collected(Cloud(), LOST, node("a"))


def test_a_claim_that_a_list_forgets_stays() -> None:
    cloud = Cloud("kwok://a")
    cloud.lagging = ["kwok://a"]
    assert not collected(cloud, LOST)


def test_a_claim_stays_while_nobody_knows() -> None:
    cloud = Cloud()
    cloud.broken = True
    assert not collected(cloud, LOST)


def test_a_claim_whose_instance_ended_before_it_joined_is_deleted_at_the_second_look() -> None:
    """Its pods would wait for the registration timeout; at the first look its instance may be too young to be known."""
    assert not collected(Cloud(), NEVER_JOINED)
    assert collected(Cloud(), NEVER_JOINED, looks=2)


def test_a_claim_whose_instance_its_cloud_ended_at_launch_is_deleted_at_once() -> None:
    cloud = Cloud()
    cloud.failed = "EC2 terminated it"
    assert collected(cloud, NEVER_JOINED)


def test_while_a_node_is_awaited_looks_are_frequent() -> None:
    server = WorldServer(World())
    cloud = Cloud("kwok://a", "kwok://b")
    collector = ClaimCollector(
        server.world.cluster,
        cloud,  # type: ignore[arg-type]
        server.writer,
        uncertain=lambda _: False,
    )
    assert collector.poll() == POLL_SECONDS
    server.put(NEVER_JOINED)
    assert collector.poll() == MISSED_SECONDS
    server.put(claim("a", provider_id="kwok://a", true=REGISTERED))
    assert collector.poll() == POLL_SECONDS


def test_a_claim_whose_instance_has_not_joined_yet_stays() -> None:
    assert not collected(Cloud("kwok://a"), NEVER_JOINED, looks=3)
    assert not collected(Cloud(), NEVER_JOINED, uncertain=True, looks=3)
    assert not collected(Cloud(), claim("a"), looks=3)  # not launched


def test_a_claim_whose_instance_nobody_can_be_sure_about_stays() -> None:
    assert not collected(Cloud(), LOST, uncertain=True)


def test_a_claim_whose_instance_ec2_did_not_describe_once_stays() -> None:
    """The provider of EC2 says so, and does not say that it is gone."""
    cloud = Cloud()
    cloud.unseen = True
    assert not collected(cloud, LOST)
