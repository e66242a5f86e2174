"""An attempt is in one pair of hands. Everything else of launches: tests/integration/test_aws_launch_once.py and test_aws_launch_faults.py."""

import base64
import queue
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.cloudprovider.errors import CreateError, LaunchUnderWayError
from provisioner.cloudprovider.types import InstanceType, LaunchedInstance
from provisioner.ec2.instances.instances import Instances
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.launcher import Launcher
from provisioner.ec2.launch.orders import LaunchWorld
from provisioner.ec2.launch.templates import TemplateUses
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import Subnet, SubnetBook
from provisioner.ec2.settings import AwsSettings
from provisioner.support import heartbeat
from provisioner.support.heartbeat import PATIENCE_SECONDS, Pulses
from provisioner.values.resources import Resources
from tests.support.clock import NOON, FakeClock
from tests.support.eventually import eventually
from tests.support.launching import CLOCK, CLUSTER, Claims
from tests.unit.ec2.launch.test_orders import TYPES, node_class

SECONDS = 10.0


class Cloud:
    """EC2 and the way to it: answers each CreateFleet with one instance a client token, the first when it may.

    Attributes:
        fleets: the tokens of all CreateFleets.
        templates: the user data of all launch templates.
        rows: the instances that are described.
        searches: how often they were.
        begun: the first CreateFleet has come.
        answers: it may be answered.
    """

    def __init__(self) -> None:
        self.fleets: list[str] = []
        self.templates: list[str] = []
        self.rows: list[Mapping[str, Any]] = []
        self.searches = 0
        self.begun, self.answers = threading.Event(), threading.Event()

    def client(self, service: str, region: str = "") -> "Cloud":
        return self

    def create_launch_template(self, **asked: Any) -> Mapping[str, Any]:
        self.templates.append(base64.b64decode(asked["LaunchTemplateData"]["UserData"]).decode())
        return {}

    def describe_instances(self, **_: Any) -> Mapping[str, Any]:
        self.searches += 1
        return {"Reservations": [{"Instances": self.rows}]}

    def create_fleet(self, **asked: Any) -> Mapping[str, Any]:
        token, first = asked["ClientToken"], not self.fleets
        self.fleets.append(token)
        if first:
            self.begun.set()
            assert self.answers.wait(SECONDS)
        echo = {"Overrides": asked["LaunchTemplateConfigs"][0]["Overrides"][0]}
        return {"Instances": [{"LaunchTemplateAndOverrides": echo, "InstanceIds": [f"i-{token}"]}]}


def max_pods(node_class: EC2NodeClass, _: str = "") -> int:
    """What the class says, or 29."""
    found: int = node_class.kubelet.get("maxPods", 29)
    return found


def types_of(node_class: EC2NodeClass) -> tuple[InstanceType, ...]:
    """Types that hold as many pods."""
    pods = max_pods(node_class)
    return tuple(replace(one, capacity=Resources.of({**one.capacity.to_dict(), "pods": pods})) for one in TYPES)


class Stage:
    """A launcher over such a cloud, and whom it told that there is an answer, in their order."""

    def __init__(self, *, failing: str = "") -> None:
        self.cloud, self.claims = Cloud(), Claims()
        self.told: queue.Queue[str] = queue.Queue()
        shortages, settings = Shortages(), AwsSettings(cluster_name="prod", region="us-west-2")
        subnets = SubnetBook(shortages.subnet_open)
        subnets.note([Subnet(f"subnet-{zone}", zone, free_ips=100) for zone in "ab"], NOON)
        ready = node_class()
        self.launcher = Launcher(
            self.cloud,
            Instances(self.cloud, CLOCK, "prod"),
            LaunchTemplates(self.cloud, TemplateUses(), CLOCK, "prod"),
            LaunchWorld(
                class_of=lambda _: ready,
                types_of=types_of,
                cluster=lambda: CLUSTER,
                max_pods=max_pods,
                claims=self.claims.all,
                claims_now=self.claims.read_all,
                read=self.claims.read,
                write=self.claims.write,
                failing=lambda _: failing,
            ),
            subnets=subnets,
            reservations=ReservationBook(),
            shortages=shortages,
            clock=CLOCK,
            settings=settings,
            look=0.05,
        )
        self.launcher.listen(self.told.put)

    def offer(self, name: str) -> None:
        with pytest.raises(LaunchUnderWayError):
            self.launcher.create(self.claims.get(name))

    def launched(self, name: str) -> LaunchedInstance:
        """What it gets in the end; it is offered again as often as it is told to wait."""
        while True:
            try:
                return self.launcher.create(self.claims.get(name))
            except LaunchUnderWayError:
                self.told.get(timeout=SECONDS)


def test_an_attempt_whose_answer_is_on_its_way_is_not_resumed() -> None:
    """Somebody applied a claim again under another name, its mark with it, while CreateFleet hangs: nothing is looked for, sent again or dealt."""
    stage = Stage()
    (name,) = stage.claims.add(1)
    stage.offer(name)
    assert stage.cloud.begun.wait(SECONDS)
    (copy,) = stage.claims.add(1)
    stage.claims.change(copy, annotations=stage.claims.get(name).metadata.annotations)
    stage.offer(copy)
    assert stage.told.get(timeout=SECONDS) == copy
    stage.offer(copy)
    assert (len(stage.cloud.fleets), stage.cloud.searches) == (1, 0)
    stage.cloud.answers.set()
    assert len({stage.launched(one).provider_id for one in (name, copy)}) == 2
    assert stage.claims.get(copy).metadata.annotations != stage.claims.get(name).metadata.annotations
    assert len(stage.cloud.fleets) == len(set(stage.cloud.fleets)) == 2
    stage.launcher.stop()


def test_a_launcher_that_hangs_is_named_for_liveness_and_one_that_waits_for_claims_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(heartbeat, "_OURS", Pulses(clock))
    stage, hangs, goes_on = Stage(), threading.Event(), threading.Event()
    release = stage.launcher._release

    def hang(claims: Any) -> None:
        hangs.set()
        assert goes_on.wait(SECONDS)
        release(claims)

    monkeypatch.setattr(stage.launcher, "_release", hang)
    (name,) = stage.claims.add(1)
    stage.cloud.answers.set()
    stage.offer(name)
    assert hangs.wait(SECONDS)
    clock.advance(PATIENCE_SECONDS + 1)
    assert heartbeat.problem() == f"launcher has made no progress for {PATIENCE_SECONDS + 1:.0f} s"
    goes_on.set()
    assert stage.launched(name).provider_id
    clock.advance(10 * PATIENCE_SECONDS)
    eventually(
        lambda: heartbeat.problem() == "",
        "it waits for claims, and nobody misses the threads that made templates",
        SECONDS,
    )
    stage.launcher.stop()


@pytest.mark.parametrize(
    ("code", "pauses"), [("Client.InternalError", True), ("Server.InsufficientInstanceCapacity", False)]
)
def test_what_an_earlier_leader_saw_ended_holds_launches_back_as_it_did_then(code: str, *, pauses: bool) -> None:
    """Seen: after capacity had run out, which held nothing back, a new leader launched one at a time until a Node registered."""
    stage = Stage(failing=f"EC2 terminated instance i-1 at launch: {code}: something")
    (name,) = stage.claims.add(1)
    stage.cloud.answers.set()
    if pauses:
        with pytest.raises(CreateError, match=code):
            stage.launched(name)
    else:
        assert stage.launched(name).provider_id
    assert bool(stage.cloud.fleets) is not pauses
    stage.launcher.stop()


# --- the kubelet that conversion kept -------------------------------------------------------------------------------


def test_an_instance_is_launched_with_the_kubelet_that_its_claim_kept() -> None:
    stage = Stage()
    plain, kept = stage.claims.add(2)
    stage.claims.change(kept, annotations={names.KUBELET_ANNOTATION: '{"maxPods":7}'})
    stage.cloud.answers.set()
    found = {}
    for name in (plain, kept):
        stage.cloud.templates.clear()
        pods = stage.launched(name).capacity["pods"]
        found[name] = pods, any("maxPods: 7" in one for one in stage.cloud.templates)
    assert found == {plain: (29, False), kept: (7, True)}
    stage.launcher.stop()


def test_an_instance_that_another_process_launched_has_the_kubelet_that_its_claim_kept() -> None:
    stage = Stage()
    (name,) = stage.claims.add(1)
    marked = {names.KUBELET_ANNOTATION: '{"maxPods":7}', names.LAUNCH_ANNOTATION: "batch/1/0"}
    stage.claims.change(name, annotations=marked)
    place = {"AvailabilityZone": "a"}
    row = {"InstanceId": "i-1", "InstanceType": "m5.large", "State": {"Name": "running"}, "Placement": place}
    stage.cloud.rows.append(row)
    stage.launcher.resume(stage.claims.all())
    found = stage.launched(name)
    assert (found.provider_id, found.capacity["pods"]) == ("aws:///a/i-1", 7)
    assert stage.cloud.fleets == []
    stage.launcher.stop()
