"""Reboots of EC2 instances over HTTP: by the emulator's count of calls each intent has one at most, whoever is killed when, and whatever EC2 answers."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from provisioner.apis import names
from provisioner.apis.command import RepairTerms
from provisioner.apis.reboot import RebootEnd, reboots_of
from provisioner.cloudprovider.errors import InstanceNotFoundError, RebootRefusedError
from provisioner.disruption.proposal import Proposal
from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.instances.instances import Instances, provider_id
from provisioner.support.clock import SystemClock
from tests.support.disrupting import DisruptedNodes, staged
from tests.support.ec2 import Ec2, Fault
from tests.support.eventually import eventually
from tests.support.worldserver import ServerDied
from tests.unit.disruption.reboots.test_controller import POLICIES, _restart, says, told, turn

REBOOTS = "RebootInstances"


@pytest.fixture(scope="module")
def emulator() -> Iterator[Ec2]:
    with Ec2.start(data="small", rate_limits=False, name="dovetail", clock_factor=4.0) as one:
        yield one


@dataclass
class Rebooted:
    """One instance of the emulator, and the stage whose node `a` it is."""

    ec2: Ec2
    instances: Instances
    provider_id: str
    stage: DisruptedNodes

    def calls(self) -> int:
        return self.ec2.calls()[REBOOTS]

    def reboot(self, *_: object) -> None:
        self.instances.reboot(self.provider_id)


def instances_of(ec2: Ec2) -> Instances:
    """As the program has them, with all its repetitions."""
    aws = AwsClients(CallPolicy(ec2.region), SystemClock(), ec2.session())
    return Instances(aws, SystemClock(), ec2.vpc.cluster, idle=0.0, once=lambda: aws.once("ec2"))


def launched(ec2: Ec2) -> str:
    """An instance; its provider ID."""
    client = ec2.client("ec2")
    image = client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    subnet = next(iter(ec2.vpc.subnets.values()))
    made = client.run_instances(ImageId=image, InstanceType="m5.large", SubnetId=subnet, MinCount=1, MaxCount=1)
    known = made["Instances"][0]["InstanceId"]
    wanted = [{"Name": "instance-id", "Values": [known]}, {"Name": "instance-state-name", "Values": ["running"]}]
    eventually(lambda: client.describe_instances(Filters=wanted)["Reservations"], "it runs", 30.0)
    return provider_id("us-west-2a", known)


@pytest.fixture
def one(emulator: Ec2) -> Iterator[Rebooted]:
    found = launched(emulator)
    with staged() as make:
        stage = make("a", policies=POLICIES, methods=(), consolidations=())
        says(stage, "a", reason="NvidiaXID46Error")
        rebooted = Rebooted(emulator, instances_of(emulator), found, stage)
        stage.cloud.rebooting = rebooted.reboot
        emulator.reset_calls()
        yield rebooted
    emulator.script()


def begin(stage: DisruptedNodes) -> None:
    terms = RepairTerms("AcceleratedHardwareReady", 0)
    assert stage.reboots.begin(Proposal(names.REASON_UNHEALTHY, "repair", ("a",), repair=terms, reboot=True))


def goes_on(stage: DisruptedNodes, seconds: float, step: float = 1.0) -> None:
    while seconds > 0:
        turn(stage, min(step, seconds))
        seconds -= step


def test_an_instance_is_rebooted_by_one_call(one: Rebooted) -> None:
    begin(one.stage)
    goes_on(one.stage, 10)
    assert one.calls() == 1
    assert told(one.stage) == ("True", "RebootIssued")
    says(one.stage, "a", boot="second")
    goes_on(one.stage, 3)
    assert told(one.stage) == ("False", "RebootSucceeded")
    assert one.calls() == 1


def test_killed_before_the_call_it_is_never_made(one: Rebooted) -> None:
    """The intent is written, and the process ends."""

    def dies(*_: object) -> None:
        raise ServerDied

    one.stage.cloud.rebooting = dies
    begin(one.stage)
    goes_on(one.stage, 6)
    one.stage.cloud.rebooting = one.reboot
    _restart(one.stage)
    goes_on(one.stage, 19 * 60, 60)
    assert told(one.stage) == ("True", "RebootIssued")
    goes_on(one.stage, 2 * 60, 60)
    assert told(one.stage) == ("False", "RebootFailed")
    assert one.calls() == 0


def test_killed_after_the_call_it_is_not_repeated(one: Rebooted) -> None:
    """EC2 has done it, and nobody has heard."""

    def dies(*_: object) -> None:
        one.reboot()
        raise ServerDied

    one.stage.cloud.rebooting = dies
    begin(one.stage)
    goes_on(one.stage, 6)
    assert one.calls() == 1
    one.stage.cloud.rebooting = one.reboot
    _restart(one.stage)
    goes_on(one.stage, 60, 10)
    assert one.calls() == 1
    says(one.stage, "a", boot="second")
    goes_on(one.stage, 3)
    assert told(one.stage) == ("False", "RebootSucceeded")
    assert one.calls() == 1


ANSWERS = {
    "an answer that is lost": (Fault(REBOOTS, "timeout-after-effect", times=9), 1, None),
    "an error of EC2": (Fault(REBOOTS, "500", times=9), 1, None),
    "throttled once": (Fault(REBOOTS, "throttled", times=1), 2, None),
    "denied": (Fault(REBOOTS, "denied", times=9), 1, RebootEnd.PROVIDER_ERROR),
    "not found": (Fault(REBOOTS, "not-found", times=9), 1, RebootEnd.PROVIDER_ERROR),
}


@pytest.mark.parametrize(("fault", "calls", "end"), ANSWERS.values(), ids=ANSWERS)
def test_what_ec2_answers_is_asked_for_no_second_time(
    one: Rebooted, fault: Fault, calls: int, end: RebootEnd | None
) -> None:
    """Only what is known to have had no effect is another attempt, with an intent of its own."""
    one.ec2.script([fault])
    begin(one.stage)
    goes_on(one.stage, 20)
    goes_on(one.stage, 120, 10)
    assert one.calls() == calls
    episode = reboots_of(one.stage.server.claim("a")).episode
    assert episode is not None
    assert episode.end is end
    assert episode.intent is not None
    assert episode.intent.attempt == calls


def test_an_instance_that_is_gone_is_not_asked_about_twice(one: Rebooted) -> None:
    one.ec2.client("ec2").terminate_instances(InstanceIds=[one.provider_id.rpartition("/")[2]])
    one.ec2.reset_calls()
    with pytest.raises(InstanceNotFoundError):
        one.reboot()
    assert one.calls() == 0


def test_no_instance_is_rebooted_in_a_zone_that_traffic_is_shifted_away_from(one: Rebooted) -> None:
    zone = one.instances.get(one.provider_id).zone_id
    shifted = Instances(
        one.instances._aws, SystemClock(), "dovetail", idle=0.0, shifted=lambda: {zone}, once=lambda: None
    )
    with pytest.raises(RebootRefusedError, match="zonal shift") as refused:
        shifted.reboot(one.provider_id)
    assert not refused.value.final
    assert one.calls() == 0
