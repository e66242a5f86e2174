"""Trying permissions out with our own credentials, so that nothing changes: reading calls for real, dry runs of EC2; what has neither stays unknown."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from provisioner.apis import ec2
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.ec2.access.client import Clients
from provisioner.ec2.access.errors import FailureKind, classify_exception
from provisioner.ec2.access.permissions import (
    CREATED,
    ENDED,
    OWN_PARAMETERS,
    REBOOTED,
    ROLE_PASSED,
    TAGGED_LATER,
    TAGGED_WHEN_CREATED,
    TEMPLATE_USED,
    USED,
    IamScope,
)
from provisioner.ec2.launch.orders import launch_tags
from provisioner.ec2.launch.templates import NAME_PREFIX, LaunchTemplate
from provisioner.ec2.launch.userdata.inputs import JoinedCluster, UserDataError
from provisioner.ec2.market.prices import pricing_region
from provisioner.ec2.nodeclass.dry_run import (
    STAND_IN_POOL,
    Choice,
    choose,
    fleet_request,
    places,
    rehearsed,
    run_request,
)
from provisioner.ec2.preflight.answers import PermissionAnswer, tried
from provisioner.ec2.preflight.findings import CheckVerdict
from provisioner.ec2.preflight.needs import Need
from provisioner.ec2.settings import AwsSettings
from provisioner.values.message import Said

_NOBODY: Final = "dovetail-preflight"
_PARAMETER: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
_FEW: Final = 5
_DENIED: Final = re.compile(r"not authorized to perform: ([\w-]+:\w+)")
_AFTER_PERMISSIONS: Final = frozenset({"ReceiptHandleIsInvalid"})
"""Refusals of requests that were permitted."""

Trial = Callable[[], object]


@dataclass(frozen=True, slots=True)
class TrialSample:
    """The launch that dry runs ask for: that of an EC2NodeClass, as the controllers rehearse it.

    Attributes:
        tags: of everything that a launch makes.
        why_not: why there is no launch to ask for; "" where there is one, then the others are set.
        choice: instance type and image.
        place: the subnet.
        template: the launch template.
    """

    tags: Mapping[str, str]
    why_not: str = ""
    choice: Choice | None = None
    place: ec2.SubnetStatus | None = None
    template: LaunchTemplate | None = None

    @property
    def profile(self) -> Mapping[str, Any]:
        """The instance profile, as RunInstances takes it; empty where there is none yet."""
        return {} if self.template is None else self.template.data.get("IamInstanceProfile", {})

    def launch(self) -> tuple[Choice, ec2.SubnetStatus, LaunchTemplate]:
        """Raises `NothingToTry`."""
        if self.choice is None or self.place is None or self.template is None:
            raise NothingToTry(self.why_not)
        return self.choice, self.place, self.template


def sample(node_class: EC2NodeClass, found: ec2.EC2NodeClassStatus, cluster: JoinedCluster, region: str) -> TrialSample:
    """Of a class for which `found` was discovered. Pure."""
    tags = launch_tags(node_class, STAND_IN_POOL, cluster.name)
    resolved = msgspec.structs.replace(node_class, status=found)
    choice = choose(resolved, (), ())
    if choice is None or not found.subnets or not found.security_groups:
        why = Said("no EC2NodeClass has an image, a subnet and security groups for a test launch")
        return TrialSample(tags, why)
    try:
        made = rehearsed(resolved, choice, None, cluster, None, region)
    except UserDataError as error:
        return TrialSample(tags, Said(f"spec.userData of EC2NodeClass {node_class.name}: {error}"))
    data = {key: value for key, value in made.data.items() if key != "IamInstanceProfile" or found.instance_profile}
    return TrialSample(tags, "", choice, places(resolved)[0], LaunchTemplate(NAME_PREFIX + _NOBODY, data, made.tags))


class NothingToTry(Exception):  # noqa: N818  (a state, not a fault)
    """A dry run needs something that is not there; the message says what."""


class Trials:
    """Answers of trials; each call is made once, when its answer is first wanted. `close` removes what they needed.

    Only a dry run that names a launch template tells whether CreateFleet is permitted. Before the first launch there is none, so one is made and deleted.
    """

    def __init__(self, aws: Clients, settings: AwsSettings, sample: TrialSample, cluster_arn: str) -> None:
        self._aws, self._settings, self._sample, self._cluster_arn = aws, settings, sample, cluster_arn
        self._made: Mapping[str, Any] | None = None
        self._outcomes: dict[Trial, PermissionAnswer] = {}
        self._reads = self._reading_calls()
        self._dry_runs: Mapping[tuple[str, IamScope], Trial] = {
            ("ec2:RunInstances", USED): self._run,
            ("ec2:RunInstances", CREATED): self._run,
            ("ec2:RunInstances", TEMPLATE_USED): self._fleet,
            ("ec2:CreateFleet", USED): self._fleet,
            ("ec2:CreateFleet", TEMPLATE_USED): self._fleet,
            ("ec2:CreateFleet", CREATED): self._fleet,
            ("ec2:CreateLaunchTemplate", CREATED): self._make_template,
            ("ec2:CreateTags", TAGGED_WHEN_CREATED): self._make_template,
            ("ec2:CreateTags", TAGGED_LATER): self._tag,
            ("ec2:TerminateInstances", ENDED): self._terminate,
            ("ec2:RebootInstances", REBOOTED): self._reboot,
            ("ec2:DeleteLaunchTemplate", ENDED): self._delete_template,
            # EC2 asks whether the role may be passed before it says anything of a launch with its profile
            ("iam:PassRole", ROLE_PASSED): self._run if sample.profile else self._without_profile,
        }

    def probes(self, need: Need) -> bool:
        """Whether the permission is one that the controllers rehearse before a class is Ready: what a dry run answers holds, whatever a simulation says."""
        return self._dry_runs.get((need.row.action, need.row.scope)) in (self._run, self._fleet, self._make_template)

    def close(self) -> str:
        """Delete the launch template that was made for dry runs; why it is still there, "" where it is not."""
        if self._made is None:
            return ""
        name = str(self._made["LaunchTemplateName"])
        try:
            self._aws.client("ec2").delete_launch_template(LaunchTemplateName=name)
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            failure = classify_exception(error)
            if failure.kind is not FailureKind.NOT_FOUND:
                return Said(
                    f"the launch template {name}, which was created for dry runs, could not be deleted: {failure}"
                )
        return ""

    def answers(self, need: Need) -> tuple[PermissionAnswer, ...]:
        """Whether the permission is there, as far as it can be tried."""
        row = need.row
        if row.scope == OWN_PARAMETERS:
            return tuple(self._own_parameter(arn) for arn in need.resources)
        trial = self._dry_runs.get((row.action, row.scope)) or self._reads.get(row.action)
        if trial is None:
            return (PermissionAnswer(CheckVerdict.UNKNOWN, why="the action cannot be tested without performing it"),)
        if trial not in self._outcomes:
            self._outcomes[trial] = _outcome(trial)
        return (_of_action(self._outcomes[trial], row.action),)

    # ------------------------------------------------------------------ reading

    def _reading_calls(self) -> Mapping[str, Trial]:
        ec2_client, iam, sqs = (self._aws.client(service) for service in ("ec2", "iam", "sqs"))
        region, name = pricing_region(self._settings.region), self._settings.cluster_name
        return {
            "ec2:DescribeCapacityReservations": lambda: ec2_client.describe_capacity_reservations(MaxResults=_FEW),
            "ec2:DescribeImages": lambda: ec2_client.describe_images(Owners=["self"], MaxResults=_FEW),
            "ec2:DescribeInstances": lambda: ec2_client.describe_instances(MaxResults=_FEW),
            "ec2:DescribeInstanceStatus": lambda: ec2_client.describe_instance_status(MaxResults=_FEW),
            "ec2:DescribeInstanceTypeOfferings": lambda: ec2_client.describe_instance_type_offerings(MaxResults=_FEW),
            "ec2:DescribeInstanceTypes": lambda: ec2_client.describe_instance_types(MaxResults=_FEW),
            "ec2:DescribeLaunchTemplates": lambda: ec2_client.describe_launch_templates(MaxResults=_FEW),
            "ec2:DescribePlacementGroups": ec2_client.describe_placement_groups,
            "ec2:DescribeSecurityGroups": lambda: ec2_client.describe_security_groups(MaxResults=_FEW),
            "ec2:DescribeSpotPriceHistory": lambda: ec2_client.describe_spot_price_history(MaxResults=_FEW),
            "ec2:DescribeSubnets": lambda: ec2_client.describe_subnets(MaxResults=_FEW),
            "ssm:GetParameter": lambda: self._aws.client("ssm").get_parameter(Name=_PARAMETER),
            "pricing:GetProducts": lambda: self._aws.client("pricing", region).get_products(
                ServiceCode="AmazonEC2", MaxResults=1
            ),
            "iam:ListInstanceProfiles": lambda: iam.list_instance_profiles(PathPrefix="/karpenter/", MaxItems=1),
            "iam:GetInstanceProfile": lambda: iam.get_instance_profile(InstanceProfileName=_NOBODY),
            "eks:DescribeCluster": lambda: self._aws.client("eks").describe_cluster(name=name),
            "arc-zonal-shift:GetManagedResource": lambda: self._aws.client("arc-zonal-shift").get_managed_resource(
                resourceIdentifier=self._cluster_arn
            ),
            "sqs:GetQueueUrl": self._queue_url,
            # what is received so is to be received again at once, by the controllers
            "sqs:ReceiveMessage": lambda: sqs.receive_message(
                QueueUrl=self._known_queue(), MaxNumberOfMessages=1, VisibilityTimeout=0, WaitTimeSeconds=0
            ),
            "sqs:DeleteMessage": lambda: sqs.delete_message(QueueUrl=self._known_queue(), ReceiptHandle=_NOBODY),
        }

    def _queue_url(self) -> str:
        answer = self._aws.client("sqs").get_queue_url(QueueName=self._settings.interruption_queue)
        return str(answer["QueueUrl"])

    def _known_queue(self) -> str:
        try:
            return self._queue_url()
        except Exception as error:
            if classify_exception(error).kind is FailureKind.NOT_FOUND:
                raise NothingToTry(f"queue {self._settings.interruption_queue} does not exist") from None
            raise

    def _own_parameter(self, arn: str) -> PermissionAnswer:
        name = "/" + arn.partition(":parameter/")[2]
        return _outcome(lambda: self._aws.client("ssm").get_parameter(Name=name), arn)

    # ------------------------------------------------------------------ dry runs

    def _run(self) -> object:
        choice, place, template = self._sample.launch()
        request = run_request(choice, template, place, self._sample.tags)
        del request["LaunchTemplate"]  # so that it tells of this action whether templates may be made or not
        if self._sample.profile:
            request["IamInstanceProfile"] = dict(self._sample.profile)
        return self._aws.client("ec2").run_instances(**request)

    def _without_profile(self) -> object:
        self._sample.launch()
        raise NothingToTry("the instance profile does not exist yet; check again once the EC2NodeClass is Ready")

    def _fleet(self) -> object:
        choice, place, _ = self._sample.launch()
        template = str(self._template()["LaunchTemplateName"])
        request = fleet_request(template, choice.instance_type, place, choice.image.id, self._sample.tags)
        return self._aws.client("ec2").create_fleet(**request)

    def _make_template(self) -> object:
        template = self._sample.template or LaunchTemplate(
            NAME_PREFIX + _NOBODY, {"Monitoring": {"Enabled": False}}, dict(self._sample.tags)
        )
        return self._aws.client("ec2").create_launch_template(DryRun=True, **template.request())

    def _delete_template(self) -> object:
        template = self._template()["LaunchTemplateId"]
        return self._aws.client("ec2").delete_launch_template(DryRun=True, LaunchTemplateId=template)

    def _tag(self) -> object:
        instance = self._own_instance()
        tags = [{"Key": ec2.CLUSTER_NAME_TAG, "Value": self._settings.cluster_name}]
        return self._aws.client("ec2").create_tags(DryRun=True, Resources=[instance], Tags=tags)

    def _terminate(self) -> object:
        return self._aws.client("ec2").terminate_instances(DryRun=True, InstanceIds=[self._own_instance()])

    def _reboot(self) -> object:
        return self._aws.client("ec2").reboot_instances(DryRun=True, InstanceIds=[self._own_instance()])

    def _template(self) -> Mapping[str, Any]:
        """A launch template of the cluster; where it has none, one that is there until `close`."""
        if self._made is not None:
            return self._made
        ec2_client = self._aws.client("ec2")
        found = ec2_client.describe_launch_templates(Filters=self._ours(), MaxResults=_FEW)
        for row in found.get("LaunchTemplates", ()):
            return dict(row)
        _, _, template = self._sample.launch()
        try:
            self._made = dict(ec2_client.create_launch_template(**template.request())["LaunchTemplate"])
        except Exception as error:
            failure = classify_exception(error)
            raise NothingToTry(f"the launch template for a dry run could not be created: {failure}") from error
        return self._made

    def _own_instance(self) -> str:
        living = {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}
        found = self._aws.client("ec2").describe_instances(Filters=[*self._ours(), living], MaxResults=_FEW)
        for reservation in found.get("Reservations", ()):
            for row in reservation.get("Instances", ()):
                return str(row["InstanceId"])
        raise NothingToTry("the cluster has no instance yet; check again after the first launch")

    def _ours(self) -> list[dict[str, Any]]:
        return [
            {"Name": f"tag:{ec2.CLUSTER_NAME_TAG}", "Values": [self._settings.cluster_name]},
            {"Name": "tag-key", "Values": [ec2.NODEPOOL_TAG]},
        ]


def _outcome(trial: Trial, resource: str = "") -> PermissionAnswer:
    try:
        trial()
    except NothingToTry as reason:
        return PermissionAnswer(CheckVerdict.UNKNOWN, resource, str(reason))
    except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
        failure = classify_exception(error)
        return tried(None if failure.code in _AFTER_PERMISSIONS else failure, resource)
    return tried(None, resource)


def _of_action(answer: PermissionAnswer, action: str) -> PermissionAnswer:
    """The answer as it is about one action: a call is refused for the first permission that is missing, and may not say which."""
    if answer.verdict is not CheckVerdict.MISSING:
        return answer
    named = _DENIED.search(answer.why)
    if named is None or named[1] == action:
        return answer
    return PermissionAnswer(
        CheckVerdict.UNKNOWN,
        answer.resource,
        f"the test call was rejected because of {named[1]}, so this permission could not be determined",
    )
