"""Dry runs: what they ask EC2 for is what a launch asks for."""

from typing import Any

from botocore.exceptions import ClientError

from provisioner.apis import ec2
from provisioner.ec2.access.permissions import PERMISSIONS, TEMPLATE_USED
from provisioner.ec2.launch.templates import LaunchTemplate
from provisioner.ec2.nodeclass.dry_run import Choice
from provisioner.ec2.preflight.findings import CheckVerdict
from provisioner.ec2.preflight.needs import Need
from provisioner.ec2.preflight.trials import Trials, TrialSample
from provisioner.ec2.settings import AwsSettings

SAMPLE = TrialSample(
    {"team": "a"},
    "",
    Choice("m5.large", ec2.AMI(id="ami-1")),
    ec2.SubnetStatus(id="subnet-1", zone="us-east-1a"),
    LaunchTemplate("dovetail.dev/2", {}, {}),
)
FLEET = Need(next(row for row in PERMISSIONS if (row.action, row.scope) == ("ec2:CreateFleet", TEMPLATE_USED)), (), ())


class Cloud:
    """EC2 with one launch template of ours; dry runs end as they are told to."""

    def __init__(self, code: str = "DryRunOperation") -> None:
        self.code = code
        self.fleets: list[dict[str, Any]] = []

    def client(self, service: str, region: str = "") -> "Cloud":
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda **_: {}  # calls that these tests do not look at

    def describe_launch_templates(self, **_: Any) -> dict[str, Any]:
        return {"LaunchTemplates": [{"LaunchTemplateName": "dovetail.dev/1", "LaunchTemplateId": "lt-1"}]}

    def create_fleet(self, **asked: Any) -> None:
        self.fleets.append(asked)
        raise ClientError({"Error": {"Code": self.code, "Message": "so"}}, "CreateFleet")


def verdict(cloud: Cloud) -> CheckVerdict:
    (answer,) = Trials(cloud, AwsSettings(cluster_name="prod", region="us-east-1"), SAMPLE, "").answers(FLEET)
    return answer.verdict


def test_a_fleet_is_tried_with_the_type_and_the_zone_of_the_sample() -> None:
    cloud = Cloud()
    assert verdict(cloud) is CheckVerdict.OK
    (asked,) = cloud.fleets
    assert asked["DryRun"] is True
    (override,) = asked["LaunchTemplateConfigs"][0]["Overrides"]
    assert (override["InstanceType"], override["AvailabilityZone"]) == ("m5.large", "us-east-1a")
    assert (override["SubnetId"], override["ImageId"]) == ("subnet-1", "ami-1")
    assert asked["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "on-demand"


def test_a_fleet_that_is_refused_as_it_is_permits_nothing() -> None:
    assert verdict(Cloud("InvalidParameterValue")) is CheckVerdict.UNKNOWN
    assert verdict(Cloud("UnauthorizedOperation")) is CheckVerdict.MISSING
