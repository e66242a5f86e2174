"""What is there: the account, the cluster, its queue, and what the selectors of each class find. Reads with our own credentials."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.ec2.access.client import Clients
from provisioner.ec2.access.errors import BOTOCORE_ERRORS, Failure, FailureKind, classify_exception
from provisioner.ec2.access.permissions import PolicyNames
from provisioner.ec2.market.prices import partition
from provisioner.ec2.nodeclass import verdicts
from provisioner.ec2.nodeclass.cluster import EksCluster
from provisioner.ec2.nodeclass.discovery import Discovery, DiscoveryError
from provisioner.ec2.nodeclass.groups import FoundSecurityGroup
from provisioner.ec2.nodeclass.groups import to_status as groups_to_status
from provisioner.ec2.nodeclass.profiles import role_name
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import ENDLESS, Subnet, SubnetBook, to_status
from provisioner.ec2.nodeclass.validation import unsupported_alias
from provisioner.ec2.preflight.findings import CheckFinding, CheckVerdict
from provisioner.ec2.settings import AwsSettings
from provisioner.support.clock import Clock
from provisioner.values.printable import listed

CLUSTER: Final = "cluster"
_NAMED: Final = 5


@dataclass(frozen=True)
class ClusterSurvey:
    """What is known of account and cluster.

    Attributes:
        account: twelve digits; "" where it could not be told.
        caller: ARN of whose credentials we have; "" likewise.
        eks: None where EKS knows no such cluster, or did not say.
    """

    findings: tuple[CheckFinding, ...]
    account: str = ""
    caller: str = ""
    eks: EksCluster | None = None


@dataclass
class ClassSurvey:
    """What the selectors of a class find.

    Attributes:
        images: with the architecture that each is for.
        roles: ARNs of the roles that its nodes get.
    """

    findings: tuple[CheckFinding, ...] = ()
    subnets: tuple[Subnet, ...] = ()
    groups: tuple[FoundSecurityGroup, ...] = ()
    images: tuple[ec2.AMI, ...] = ()
    reservations: tuple[str, ...] = ()
    placement_group: str = ""
    roles: tuple[str, ...] = ()

    def status(self, node_class: EC2NodeClass) -> ec2.EC2NodeClassStatus:
        """What the controllers would write on the class of this."""
        own = node_class.spec.instance_profile
        return ec2.EC2NodeClassStatus(
            subnets=to_status(self.subnets),
            security_groups=groups_to_status(self.groups),
            amis=self.images,
            instance_profile=own if isinstance(own, str) else node_class.status.instance_profile,
        )

    def ids(self) -> Mapping[str, Sequence[str]]:
        """Ids by the kind that ARNs of EC2 name."""
        return {
            "subnet": [one.id for one in self.subnets],
            "security-group": [one.id for one in self.groups],
            "image": [one.id for one in self.images],
            "capacity-reservation": self.reservations,
            "placement-group": [self.placement_group] if self.placement_group else [],
        }


class Surveyor:
    """Looks around; changes nothing."""

    def __init__(self, aws: Clients, settings: AwsSettings, clock: Clock) -> None:
        self._aws, self._settings = aws, settings
        self._discovery = Discovery(aws, clock, SubnetBook(), ReservationBook())

    def cluster(self) -> ClusterSurvey:
        """The account, the cluster and its queue."""
        account, caller, who = self._caller()
        eks, what = self._eks()
        return ClusterSurvey((who, what, self._queue()), account, caller, eks)

    def node_class(self, node_class: EC2NodeClass, minor: int, where: PolicyNames, vpc: str = "") -> ClassSurvey:
        """What one class finds.

        Args:
            node_class: as the user wrote it.
            minor: of the cluster's Kubernetes; 0 where it is not known, then aliases cannot be looked up.
            where: partition and account, for ARNs.
            vpc: of the cluster; "" where it is not known.
        """
        return _ClassLook(self._aws, self._discovery, node_class, minor, where, vpc).survey()

    # ------------------------------------------------------------------ the cluster

    def _caller(self) -> tuple[str, str, CheckFinding]:
        try:
            answer = self._aws.client("sts").get_caller_identity()
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            return "", "", _untold(CLUSTER, "account", "sts:GetCallerIdentity", classify_exception(error))
        account, caller = str(answer["Account"]), str(answer["Arn"])
        said = f"account {account}, region {self._settings.region}, as {caller}"
        return account, caller, CheckFinding(CLUSTER, "account", CheckVerdict.OK, said)

    def _eks(self) -> tuple[EksCluster | None, CheckFinding]:
        name, region = self._settings.cluster_name, self._settings.region
        try:
            eks = EksCluster.of(self._aws.client("eks").describe_cluster(name=name))
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            failure = classify_exception(error)
            if failure.kind is not FailureKind.NOT_FOUND:
                return None, _untold(CLUSTER, "EKS cluster", "eks:DescribeCluster", failure)
            if self._settings.cluster_endpoint:
                said = f"{name} is not an EKS cluster; its endpoint is set to {self._settings.cluster_endpoint}"
                return None, CheckFinding(CLUSTER, "EKS cluster", CheckVerdict.OK, said)
            said = f"EKS cluster {name} does not exist in {region}"
            advice = "correct --cluster-name or --aws-region; for a cluster outside EKS set --cluster-endpoint"
            return None, CheckFinding(CLUSTER, "EKS cluster", CheckVerdict.MISSING, said, advice)
        told = {"endpoint": eks.endpoint, "Services": eks.cidr, "VPC": eks.vpc}
        said = ", ".join([f"{name}: Kubernetes 1.{eks.minor}", *(f"{key} {one}" for key, one in told.items() if one)])
        return eks, CheckFinding(CLUSTER, "EKS cluster", CheckVerdict.OK, said)

    def _queue(self) -> CheckFinding:
        queue = self._settings.interruption_queue
        if not queue:
            return CheckFinding(
                CLUSTER,
                "interruption queue",
                CheckVerdict.RISK,
                "not set, so Spot Instances are reclaimed and scheduled maintenance begins without their pods being moved first",
                "create it with manifests/aws, and set --interruption-queue",
            )
        try:
            answer = self._aws.client("sqs").get_queue_url(QueueName=queue)
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            failure = classify_exception(error)
            if failure.kind is not FailureKind.NOT_FOUND:
                return _untold(CLUSTER, "interruption queue", "sqs:GetQueueUrl", failure)
            said = f"queue {queue} does not exist in {self._settings.region}"
            advice = "create it with manifests/aws, or correct --interruption-queue"
            return CheckFinding(CLUSTER, "interruption queue", CheckVerdict.MISSING, said, advice)
        return CheckFinding(CLUSTER, "interruption queue", CheckVerdict.OK, str(answer["QueueUrl"]))


class _ClassLook:
    """One look at one class; what was found so far is in the attributes."""

    def __init__(
        self, aws: Clients, discovery: Discovery, node_class: EC2NodeClass, minor: int, where: PolicyNames, vpc: str
    ) -> None:
        self._aws, self._discovery, self._class = aws, discovery, node_class
        self._minor, self._where, self._vpc = minor, where, vpc
        self._about = f"EC2NodeClass {node_class.name}"
        self._found = ClassSurvey()

    def survey(self) -> ClassSurvey:
        """Everything that the class selects."""
        spec = self._class.spec
        looks = {
            "subnets": self._look_at_subnets,
            "security groups": self._look_at_groups,
            "images": self._look_at_images,
        }
        if spec.capacity_reservation_selector_terms:
            looks["capacity reservations"] = self._look_at_reservations
        if isinstance(spec.placement_group_selector, ec2.PlacementGroupSelector):
            looks["placement group"] = self._look_at_placement_group
        findings = [self._look(what, look) for what, look in looks.items()]
        profile = self._look_at_role() if isinstance(spec.role, str) else self._look_at_profile()
        self._found.findings = (*findings, profile, *_told_by_controllers(self._about, self._class))
        return self._found

    def _look(self, what: str, look: Callable[[], CheckFinding]) -> CheckFinding:
        try:
            return look()
        except DiscoveryError as error:
            return _untold(self._about, what, error.action, error.failure)

    def _look_at_subnets(self) -> CheckFinding:
        self._found.subnets = self._discovery.subnets(self._class)
        outside = [one.id for one in self._found.subnets if self._vpc and one.vpc and one.vpc != self._vpc]
        if outside:
            said = f"{', '.join(outside)} are not in the cluster's VPC {self._vpc}: nodes there cannot join"
            return CheckFinding(self._about, "subnets", CheckVerdict.MISSING, said, "narrow spec.subnetSelectorTerms")
        judged = verdicts.of_subnets(self._found.subnets, 0.0)
        return _judged(self._about, "subnets", judged, "; ".join(map(_subnet, self._found.subnets)))

    def _look_at_groups(self) -> CheckFinding:
        self._found.groups = self._discovery.security_groups(self._class)
        told = ", ".join(f"{one.id} ({one.name})" for one in self._found.groups)
        return _judged(
            self._about, "security groups", verdicts.of_groups(self._found.groups, self._found.subnets), told
        )

    def _look_at_images(self) -> CheckFinding:
        problem = unsupported_alias(self._class, self._minor) if self._minor else ""
        if problem:
            return _judged(self._about, "images", verdicts.of_unsupported_alias(problem), "")
        if not self._minor and any(term.alias for term in self._class.spec.ami_selector_terms):
            said = "the version of the cluster is not known, so images of an alias cannot be resolved"
            return CheckFinding(self._about, "images", CheckVerdict.UNKNOWN, said, "see the finding about the cluster")
        read = self._discovery.images(self._class, self._minor)
        self._found.images = read.amis
        if read.failures:
            advice = "check the credentials that this command uses"
            return CheckFinding(self._about, "images", CheckVerdict.UNKNOWN, "; ".join(read.failures), advice)
        told = listed((f"{one.id} ({one.name})" for one in read.amis), _NAMED)
        return _judged(self._about, "images", verdicts.of_images(read, self._minor), told)

    def _look_at_reservations(self) -> CheckFinding:
        read = self._discovery.capacity_reservations(self._class)
        self._found.reservations = tuple(one.id for one in read.reservations)
        told = ", ".join(f"{name} ({read.left.get(name, 0)} instances available)" for name in self._found.reservations)
        judged = verdicts.of_reservations(self._class, read, None)
        return _judged(self._about, "capacity reservations", judged, told or "none are active")

    def _look_at_placement_group(self) -> CheckFinding:
        group = self._discovery.find_placement_group(self._class)
        self._found.placement_group = "" if group is None else group.id
        told = "" if group is None else f"{group.id} ({group.strategy})"
        return _judged(self._about, "placement group", verdicts.of_group(group, wanted=True), told)

    def _look_at_role(self) -> CheckFinding:
        role = str(self._class.spec.role)
        stem = f"arn:{self._where.partition}:iam::{self._where.account}:role/"
        self._found.roles = (role if role.startswith("arn:") else stem + role.lstrip("/"),)
        iam, made = self._aws.client("iam"), self._class.status.instance_profile
        arns: tuple[str, ...] = ()
        if made:
            with contextlib.suppress(*BOTOCORE_ERRORS):  # the role is asked about then
                arns = self._roles_of(made)  # which the controllers may read
        if role_name(role) in map(role_name, arns):
            self._found.roles = arns
            return CheckFinding(
                self._about, "role", CheckVerdict.OK, f"{role}; the controllers created its instance profile {made}"
            )
        try:
            self._found.roles = (str(iam.get_role(RoleName=role_name(role))["Role"]["Arn"]),)
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            failure = classify_exception(error)
            if failure.kind is not FailureKind.NOT_FOUND:
                return _untold(self._about, "role", "iam:GetRole", failure)
            advice = "create it with manifests/aws, or correct spec.role"
            return CheckFinding(self._about, "role", CheckVerdict.MISSING, f"role {role} does not exist", advice)
        return CheckFinding(
            self._about, "role", CheckVerdict.OK, f"{role}; the controllers create its instance profile"
        )

    def _roles_of(self, profile: str) -> tuple[str, ...]:
        """ARNs of the roles in an instance profile; raises what botocore raises."""
        answer = self._aws.client("iam").get_instance_profile(InstanceProfileName=profile)
        return tuple(str(row["Arn"]) for row in answer["InstanceProfile"].get("Roles", ()))

    def _look_at_profile(self) -> CheckFinding:
        what, profile = "instance profile", self._class.spec.instance_profile
        if not isinstance(profile, str):
            return CheckFinding(
                self._about,
                what,
                CheckVerdict.MISSING,
                "the EC2NodeClass sets neither role nor instanceProfile",
                "set spec.role",
            )
        try:
            self._found.roles = self._roles_of(profile)
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            failure = classify_exception(error)
            if failure.kind is not FailureKind.NOT_FOUND:
                return _untold(self._about, what, "iam:GetInstanceProfile", failure)
            advice = "create it, or correct spec.instanceProfile"
            return CheckFinding(
                self._about, what, CheckVerdict.MISSING, f"instance profile {profile} does not exist", advice
            )
        if not self._found.roles:
            said = f"instance profile {profile} contains no role"
            return CheckFinding(self._about, what, CheckVerdict.MISSING, said, "add the role of the nodes to it")
        return CheckFinding(self._about, what, CheckVerdict.OK, f"{profile} with {', '.join(self._found.roles)}")


def names_of(settings: AwsSettings, account: str) -> PolicyNames:
    """The names that policies of this cluster are written for."""
    queue = settings.interruption_queue
    return PolicyNames.of(partition(settings.region), settings.region, account, settings.cluster_name, queue=queue)


def _judged(about: str, what: str, judged: verdicts.ClassFinding, told: str) -> CheckFinding:
    """Our finding for a condition of the class."""
    if judged.good and not judged.warnings:
        return CheckFinding(about, what, CheckVerdict.OK, told)
    said = f"{told}; but {'; '.join(judged.warnings)}" if judged.good else judged.message
    return CheckFinding(
        about, what, CheckVerdict.MISSING, said, "correct the EC2NodeClass or the resources that it selects"
    )


def _told_by_controllers(about: str, one: EC2NodeClass) -> Iterable[CheckFinding]:
    """What the controllers themselves found wrong, where they have seen the class as it is."""
    for condition in one.status.conditions:
        seen = condition.observed_generation in (0, one.metadata.generation)
        if condition.status == names.FALSE and seen and condition.type == ec2.VALIDATION_SUCCEEDED:
            yield CheckFinding(
                about,
                condition.type,
                CheckVerdict.MISSING,
                f"{condition.reason}: {condition.message}",
                "see the conditions of the EC2NodeClass",
            )


def _untold(about: str, what: str, action: str, failure: Failure) -> CheckFinding:
    """What could not be read, for whatever reason, is unknown."""
    return CheckFinding(
        about, what, CheckVerdict.UNKNOWN, f"{action}: {failure}", "check the credentials that this command uses"
    )


def _subnet(one: Subnet) -> str:
    free = "IPv6 only" if one.free_ips >= ENDLESS else f"{one.free_ips} addresses free"
    return f"{one.id} in {one.zone} ({free})"


@dataclass(frozen=True)
class Everything:
    """Cluster and classes together; what permissions are asked about."""

    cluster: ClusterSurvey
    classes: Mapping[str, ClassSurvey] = field(default_factory=dict)

    def findings(self) -> Iterable[CheckFinding]:
        """All of them."""
        yield from self.cluster.findings
        for survey in self.classes.values():
            yield from survey.findings

    def ids(self) -> dict[str, list[str]]:
        """Ids of all classes by kind, each once, in order of discovery."""
        merged: dict[str, dict[str, Any]] = {}
        for survey in self.classes.values():
            for kind, found in survey.ids().items():
                merged.setdefault(kind, {}).update(dict.fromkeys(found))
        return {kind: list(found) for kind, found in merged.items()}

    def roles(self) -> tuple[str, ...]:
        """ARNs of the roles of nodes, each once."""
        return tuple(dict.fromkeys(role for survey in self.classes.values() for role in survey.roles))
