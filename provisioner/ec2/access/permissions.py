"""Every permission that the controllers need: the action, on what, on which condition, why, and what degrades without it. Pure.

`PERMISSIONS` is the one table. The policy documents in manifests/aws are made from it (`dovetail manifests`), and so is every question that
`dovetail aws check` asks. Policies that are not `optional` are those of Karpenter 1.14, no more and no less, so a role that runs Karpenter
runs this; what goes beyond them is in policies of its own, and its absence costs only the feature that its rows name.

Source: spec/karpenter-aws.md 7.1; the Service Authorization Reference for the resources and condition keys of each action.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.apis import ec2
from provisioner.apis.names import REGION_LABEL

ANY: Final = "*"

_CREATE_ACTION: Final = "ec2:CreateAction"


class Feature(enum.StrEnum):
    """What a permission is for; `always` is what no cluster does without."""

    ALWAYS = "always"
    PROFILES = "instance profiles created for the role of an EC2NodeClass"
    ENDPOINT = "discovery of the cluster from EKS"
    INTERRUPTION = "interruption queue"
    ZONAL_SHIFT = "zonal shift"
    PRICES = "on-demand prices"
    SPOT = "Spot Instances"
    RESERVATIONS = "capacity reservations"
    PLACEMENT_GROUPS = "placement groups"
    ALIASES = "AMI aliases"
    OWN_PARAMETERS = "AMIs in your own SSM parameters"
    SNAPSHOTS = "volumes created from snapshots"
    OWN_KEYS = "volumes encrypted with your own KMS key"
    REBOOTS = "reboots of nodes with GPU errors (AWS feature gate RebootForRepair)"
    SELF_CHECK = "`dovetail aws check` inside the cluster"


@dataclass(frozen=True, slots=True)
class PolicyCondition:
    """One test of a statement: the operator, the key that it looks at, and the values that pass."""

    operator: str
    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IamPolicy:
    """One managed policy.

    Attributes:
        name: as in `KarpenterController<name>Policy-<cluster>`.
        title: what it is for.
        optional: not one of Karpenter's; to be attached where its feature is wanted.
    """

    name: str
    title: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class IamScope:
    """One statement without its actions: where they are allowed. Strings have fields of `PolicyNames` in braces."""

    policy: IamPolicy
    sid: str
    resources: tuple[str, ...]
    conditions: tuple[PolicyCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class Permission:
    """One row: an action in one scope.

    Attributes:
        action: `service:Action`.
        why: what it is called for, or what AWS checks it for.
        without: what happens when it is missing.
        through: the actions that AWS checks this one for, where nothing calls it by itself.
    """

    action: str
    scope: IamScope
    feature: Feature
    why: str
    without: str
    through: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyNames:
    """What a policy is written for.

    Attributes:
        account: twelve digits.
        queue_arn: of the interruption queue.
        node_role_arn: of the role that nodes get.
        controller_role_arn: of the role that the controllers run under.
        parameter_path: where SSM parameters of one's own are, without the slash in front.
        key_arn: of the KMS key that encrypts volumes.
    """

    partition: str
    region: str
    account: str
    cluster: str
    queue_arn: str
    node_role_arn: str
    controller_role_arn: str
    parameter_path: str
    key_arn: str

    @classmethod
    def of(cls, partition: str, region: str, account: str, cluster: str, *, queue: str = "") -> "PolicyNames":
        """Those of a cluster whose resources have the names of manifests/aws."""
        return cls(
            partition=partition,
            region=region,
            account=account,
            cluster=cluster,
            queue_arn=f"arn:{partition}:sqs:{region}:{account}:{queue or cluster}",
            node_role_arn=f"arn:{partition}:iam::{account}:role/{node_role(cluster)}",
            controller_role_arn=f"arn:{partition}:iam::{account}:role/{controller_role(cluster)}",
            parameter_path=f"{cluster}/ami",
            key_arn=f"arn:{partition}:kms:{region}:{account}:key/*",
        )

    def fill(self, text: str) -> str:
        """`text` with these names in place of the braces."""
        return text.format(**{name: getattr(self, name) for name in self.__slots__})


def node_role(cluster: str) -> str:
    """Name of the role that nodes get; Karpenter's, so that its manifests carry over."""
    return f"KarpenterNodeRole-{cluster}"


def controller_role(cluster: str) -> str:
    """Name of the role that the controllers run under; Karpenter's."""
    return f"{cluster}-karpenter"


def policy_name(policy: IamPolicy, cluster: str) -> str:
    """Name of a managed policy; Karpenter's for those that are Karpenter's."""
    return f"KarpenterController{policy.name}Policy-{cluster}"


NODE_LIFECYCLE: Final = IamPolicy(
    "NodeLifecycle", "launches, tags and terminates instances, creates and deletes launch templates"
)
IAM_INTEGRATION: Final = IamPolicy("IAMIntegration", "creates instance profiles and passes the role of the nodes")
EKS_INTEGRATION: Final = IamPolicy("EKSIntegration", "reads the cluster's endpoint, version and network")
INTERRUPTION: Final = IamPolicy("Interruption", "reads the interruption queue")
ZONAL_SHIFT: Final = IamPolicy("ZonalShift", "reads active zonal shifts")
RESOURCE_DISCOVERY: Final = IamPolicy("ResourceDiscovery", "reads images, subnets, types, prices and the like")
CUSTOM_PARAMETERS: Final = IamPolicy("CustomParameters", "reads your own SSM parameters that hold AMIs", optional=True)
VOLUME_ENCRYPTION: Final = IamPolicy("VolumeEncryption", "uses your own KMS key for volumes", optional=True)
NODE_REBOOT: Final = IamPolicy("NodeReboot", "reboots instances with GPU errors", optional=True)
SELF_CHECK: Final = IamPolicy("SelfCheck", "lets `dovetail aws check` ask IAM about its own role", optional=True)

POLICIES: Final = (
    *(NODE_LIFECYCLE, IAM_INTEGRATION, EKS_INTEGRATION, INTERRUPTION, ZONAL_SHIFT, RESOURCE_DISCOVERY),
    *(CUSTOM_PARAMETERS, VOLUME_ENCRYPTION, NODE_REBOOT, SELF_CHECK),
)


def _tag(which: str, key: str, value: str) -> PolicyCondition:
    """A tag of the request ("Request") or of what is acted on ("Resource"); ANY asks only that it is there."""
    return PolicyCondition("StringLike" if value == ANY else "StringEquals", f"aws:{which}Tag/{key}", (value,))


def _owned(which: str) -> PolicyCondition:
    return _tag(which, ec2.CLUSTER_TAG_PREFIX + "{cluster}", "owned")


def _ec2(*kinds: str) -> tuple[str, ...]:
    """ARNs of EC2 resources; images and snapshots may be of any account and their ARNs name none."""
    return tuple(
        "arn:{partition}:ec2:{region}:" + ("" if kind in ("image", "snapshot") else ANY) + f":{kind}/*"
        for kind in kinds
    )


_CLUSTER_REQUESTED: Final = _tag("Request", ec2.CLUSTER_NAME_TAG, "{cluster}")
_POOL_OF_REQUEST: Final = _tag("Request", ec2.NODEPOOL_TAG, ANY)
_OURS: Final = (_owned("Resource"), _tag("Resource", ec2.NODEPOOL_TAG, ANY))
_MADE: Final = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
_PROFILES: Final = ("arn:{partition}:iam::{account}:instance-profile/*",)
_PROFILE_OURS: Final = (
    _owned("Resource"),
    _tag("Resource", REGION_LABEL, "{region}"),
    _tag("Resource", ec2.NODECLASS_TAG, ANY),
)
_PROFILE_REQUESTED: Final = (
    _owned("Request"),
    _CLUSTER_REQUESTED,
    _tag("Request", REGION_LABEL, "{region}"),
    _tag("Request", ec2.NODECLASS_TAG, ANY),
)
CLUSTER_ARN: Final = "arn:{partition}:eks:{region}:{account}:cluster/{cluster}"
_THROUGH_EC2: Final = PolicyCondition(
    "StringEquals", "kms:ViaService", ("ec2.{region}.amazonaws.com", "ec2.{region}.amazonaws.com.cn")
)

USED: Final = IamScope(
    NODE_LIFECYCLE,
    "AllowScopedEC2InstanceAccessActions",
    _ec2("image", "snapshot", "security-group", "subnet", "capacity-reservation", "placement-group"),
)
TEMPLATE_USED: Final = IamScope(
    NODE_LIFECYCLE, "AllowScopedEC2LaunchTemplateAccessActions", _ec2("launch-template"), _OURS
)
CREATED: Final = IamScope(
    NODE_LIFECYCLE,
    "AllowScopedEC2InstanceActionsWithTags",
    _ec2(*_MADE),
    (_owned("Request"), _CLUSTER_REQUESTED, _POOL_OF_REQUEST),
)
TAGGED_WHEN_CREATED: Final = IamScope(
    NODE_LIFECYCLE,
    "AllowScopedResourceCreationTagging",
    _ec2(*_MADE),
    (
        _owned("Request"),
        _CLUSTER_REQUESTED,
        PolicyCondition("StringEquals", _CREATE_ACTION, ("RunInstances", "CreateFleet", "CreateLaunchTemplate")),
        _POOL_OF_REQUEST,
    ),
)
TAGGED_LATER: Final = IamScope(
    NODE_LIFECYCLE,
    "AllowScopedResourceTagging",
    _ec2("instance"),
    (
        *_OURS,
        PolicyCondition("StringEqualsIfExists", f"aws:RequestTag/{ec2.CLUSTER_NAME_TAG}", ("{cluster}",)),
        PolicyCondition(
            "ForAllValues:StringEquals", "aws:TagKeys", (ec2.CLUSTER_NAME_TAG, ec2.NODECLAIM_TAG, ec2.NAME_TAG)
        ),
    ),
)
ENDED: Final = IamScope(NODE_LIFECYCLE, "AllowScopedDeletion", _ec2("instance", "launch-template"), _OURS)
ROLE_PASSED: Final = IamScope(
    IAM_INTEGRATION,
    "AllowPassingInstanceRole",
    ("{node_role_arn}",),
    (PolicyCondition("StringEquals", "iam:PassedToService", ("ec2.amazonaws.com", "ec2.amazonaws.com.cn")),),
)
_PROFILE_CREATED: Final = IamScope(
    IAM_INTEGRATION, "AllowScopedInstanceProfileCreationActions", _PROFILES, _PROFILE_REQUESTED
)
_PROFILE_TAGGED: Final = IamScope(
    IAM_INTEGRATION, "AllowScopedInstanceProfileTagActions", _PROFILES, (*_PROFILE_OURS, *_PROFILE_REQUESTED)
)
_PROFILE_CHANGED: Final = IamScope(IAM_INTEGRATION, "AllowScopedInstanceProfileActions", _PROFILES, _PROFILE_OURS)
_CLUSTER_READ: Final = IamScope(EKS_INTEGRATION, "AllowAPIServerEndpointDiscovery", (CLUSTER_ARN,))
_QUEUE: Final = IamScope(INTERRUPTION, "AllowInterruptionQueueActions", ("{queue_arn}",))
_SHIFTS_READ: Final = IamScope(
    ZONAL_SHIFT,
    "AllowZonalShiftStatusReadOnly",
    (ANY,),
    (PolicyCondition("StringEquals", "arc-zonal-shift:ResourceIdentifier", (CLUSTER_ARN,)),),
)
_REGION_READ: Final = IamScope(
    RESOURCE_DISCOVERY,
    "AllowRegionalReadActions",
    (ANY,),
    (PolicyCondition("StringEquals", "aws:RequestedRegion", ("{region}",)),),
)
_PARAMETERS_READ: Final = IamScope(
    RESOURCE_DISCOVERY, "AllowSSMReadActions", ("arn:{partition}:ssm:{region}::parameter/aws/service/*",)
)
_PRICES_READ: Final = IamScope(RESOURCE_DISCOVERY, "AllowPricingReadActions", (ANY,))
_PROFILES_LISTED: Final = IamScope(RESOURCE_DISCOVERY, "AllowUnscopedInstanceProfileListAction", (ANY,))
_PROFILE_READ: Final = IamScope(RESOURCE_DISCOVERY, "AllowInstanceProfileReadActions", _PROFILES)
OWN_PARAMETERS: Final = IamScope(
    CUSTOM_PARAMETERS,
    "AllowReadingOwnParameters",
    ("arn:{partition}:ssm:{region}:{account}:parameter/{parameter_path}/*",),
)
_KEY_USED: Final = IamScope(VOLUME_ENCRYPTION, "AllowVolumeKeyThroughEC2", ("{key_arn}",), (_THROUGH_EC2,))
_KEY_GRANTED: Final = IamScope(
    VOLUME_ENCRYPTION,
    "AllowVolumeKeyGrants",
    ("{key_arn}",),
    (_THROUGH_EC2, PolicyCondition("Bool", "kms:GrantIsForAWSResource", ("true",))),
)
REBOOTED: Final = IamScope(NODE_REBOOT, "AllowScopedReboot", _ec2("instance"), _OURS)
_SELF_SIMULATED: Final = IamScope(SELF_CHECK, "AllowAskingAboutOwnRole", ("{controller_role_arn}",))
_NODE_ROLE_READ: Final = IamScope(SELF_CHECK, "AllowReadingInstanceRole", ("{node_role_arn}",))

_LAUNCHES: Final = ("ec2:CreateFleet",)
_NO_LAUNCH: Final = "no instances are launched; NodeClaims get Launched=False with reason Unauthorized"
_NO_TEMPLATE: Final = "no launch templates are created, so no instances are launched; the EC2NodeClass gets CreateLaunchTemplateAuthCheckFailed"
_STALE: Final = "the last result is kept; after a restart the EC2NodeClass does not become ready"
_NO_VOLUME: Final = "instances with such volumes terminate right after their launch"
_NO_PROFILE: Final = (
    "EC2NodeClasses with `role` do not become ready; set `instanceProfile` to an existing profile instead"
)

PERMISSIONS: Final = (
    Permission(
        "ec2:RunInstances",
        USED,
        Feature.ALWAYS,
        "EC2 checks this action for every instance of a fleet",
        _NO_LAUNCH,
        _LAUNCHES,
    ),
    Permission("ec2:CreateFleet", USED, Feature.ALWAYS, "launches instances", _NO_LAUNCH),
    Permission(
        "ec2:RunInstances",
        TEMPLATE_USED,
        Feature.ALWAYS,
        "instances are created from launch templates of this cluster",
        _NO_LAUNCH,
        _LAUNCHES,
    ),
    Permission(
        "ec2:CreateFleet", TEMPLATE_USED, Feature.ALWAYS, "fleet requests refer to launch templates", _NO_LAUNCH
    ),
    Permission(
        "ec2:RunInstances",
        CREATED,
        Feature.ALWAYS,
        "instances, volumes and network interfaces are created with the tags of the cluster",
        _NO_LAUNCH,
        _LAUNCHES,
    ),
    Permission(
        "ec2:CreateFleet", CREATED, Feature.ALWAYS, "fleets are created with the tags of the cluster", _NO_LAUNCH
    ),
    Permission(
        "ec2:CreateLaunchTemplate",
        CREATED,
        Feature.ALWAYS,
        "stores user data, instance profile and volumes",
        _NO_TEMPLATE,
    ),
    Permission(
        "ec2:CreateTags",
        TAGGED_WHEN_CREATED,
        Feature.ALWAYS,
        "EC2 checks this action for tags that are set at creation",
        _NO_LAUNCH,
        ("ec2:CreateFleet", "ec2:CreateLaunchTemplate"),
    ),
    Permission(
        "ec2:CreateTags",
        TAGGED_LATER,
        Feature.ALWAYS,
        "tags an instance with its NodeClaim, node name and cluster",
        "instances lack the tags Name and karpenter.sh/nodeclaim, so an instance whose NodeClaim was lost cannot be adopted",
    ),
    Permission(
        "ec2:TerminateInstances",
        ENDED,
        Feature.ALWAYS,
        "terminates instances",
        "instances are never terminated and cost money until they are terminated manually",
    ),
    Permission(
        "ec2:DeleteLaunchTemplate",
        ENDED,
        Feature.ALWAYS,
        "deletes launch templates that are no longer used",
        "launch templates accumulate until the quota of the account is reached, and EC2NodeClasses cannot be deleted",
    ),
    Permission(
        "iam:PassRole",
        ROLE_PASSED,
        Feature.ALWAYS,
        "passes the role of the nodes to instances",
        _NO_LAUNCH,
        ("iam:AddRoleToInstanceProfile", "ec2:CreateFleet"),
    ),
    Permission(
        "iam:CreateInstanceProfile",
        _PROFILE_CREATED,
        Feature.PROFILES,
        "creates the instance profile of an EC2NodeClass",
        _NO_PROFILE,
    ),
    Permission(
        "iam:TagInstanceProfile",
        _PROFILE_TAGGED,
        Feature.PROFILES,
        "IAM checks this action for tags that are set at creation",
        _NO_PROFILE,
        ("iam:CreateInstanceProfile",),
    ),
    Permission(
        "iam:AddRoleToInstanceProfile",
        _PROFILE_CHANGED,
        Feature.PROFILES,
        "adds the role to an instance profile",
        _NO_PROFILE,
    ),
    Permission(
        "iam:RemoveRoleFromInstanceProfile",
        _PROFILE_CHANGED,
        Feature.PROFILES,
        "removes the role before the instance profile gets another role or is deleted",
        "instance profiles keep their old role, and EC2NodeClasses cannot be deleted",
    ),
    Permission(
        "iam:DeleteInstanceProfile",
        _PROFILE_CHANGED,
        Feature.PROFILES,
        "deletes unused instance profiles",
        "instance profiles accumulate, and EC2NodeClasses cannot be deleted",
    ),
    Permission(
        "eks:DescribeCluster",
        _CLUSTER_READ,
        Feature.ENDPOINT,
        "reads endpoint, CA, version and service CIDR",
        "set CLUSTER_ENDPOINT; the version and the service CIDR are then read from the API server",
    ),
    Permission(
        "sqs:DeleteMessage",
        _QUEUE,
        Feature.INTERRUPTION,
        "deletes processed messages from the queue",
        "every message is processed repeatedly until its retention of five minutes ends",
    ),
    Permission(
        "sqs:GetQueueUrl",
        _QUEUE,
        Feature.INTERRUPTION,
        "finds the queue",
        "interruptions are not noticed; Spot Instances are reclaimed without their pods being moved first",
    ),
    Permission(
        "sqs:ReceiveMessage",
        _QUEUE,
        Feature.INTERRUPTION,
        "reads messages",
        "interruptions are not noticed; Spot Instances are reclaimed without their pods being moved first",
    ),
    Permission(
        "arc-zonal-shift:GetManagedResource",
        _SHIFTS_READ,
        Feature.ZONAL_SHIFT,
        "reads active zonal shifts",
        "instances are launched in zones that traffic is shifted away from",
    ),
    Permission(
        "ec2:DescribeCapacityReservations",
        _REGION_READ,
        Feature.RESERVATIONS,
        "finds capacity reservations and their available instances",
        "capacity reservations are not used; EC2NodeClasses that select any do not become ready",
    ),
    Permission("ec2:DescribeImages", _REGION_READ, Feature.ALWAYS, "finds images", _STALE),
    Permission(
        "ec2:DescribeInstances",
        _REGION_READ,
        Feature.ALWAYS,
        "reads the state of instances",
        "lost instances are not noticed, and a launch that was interrupted by a crash is not resumed",
    ),
    Permission(
        "ec2:DescribeInstanceStatus",
        _REGION_READ,
        Feature.ALWAYS,
        "finds instances that are impaired or scheduled for maintenance",
        "impaired instances and scheduled changes are noticed only through messages of the queue",
    ),
    Permission(
        "ec2:DescribeInstanceTypeOfferings",
        _REGION_READ,
        Feature.ALWAYS,
        "reads the instance types of each zone",
        _STALE,
    ),
    Permission("ec2:DescribeInstanceTypes", _REGION_READ, Feature.ALWAYS, "reads the available instance types", _STALE),
    Permission(
        "ec2:DescribeLaunchTemplates",
        _REGION_READ,
        Feature.ALWAYS,
        "finds unused launch templates",
        "launch templates accumulate until the quota of the account is reached, and EC2NodeClasses cannot be deleted",
    ),
    Permission(
        "ec2:DescribePlacementGroups",
        _REGION_READ,
        Feature.PLACEMENT_GROUPS,
        "finds the placement group of an EC2NodeClass",
        "EC2NodeClasses that select one do not become ready",
    ),
    Permission("ec2:DescribeSecurityGroups", _REGION_READ, Feature.ALWAYS, "finds security groups", _STALE),
    Permission(
        "ec2:DescribeSpotPriceHistory",
        _REGION_READ,
        Feature.SPOT,
        "reads spot prices",
        "Spot Instances are assumed to cost as much as On-Demand Instances, so they are rarely chosen",
    ),
    Permission(
        "ec2:DescribeSubnets", _REGION_READ, Feature.ALWAYS, "finds subnets and their free IP addresses", _STALE
    ),
    Permission(
        "ssm:GetParameter",
        _PARAMETERS_READ,
        Feature.ALIASES,
        "finds the images that AWS publishes for an AMI family",
        "EC2NodeClasses with an `alias` do not become ready; select images by ID, name or tags instead",
    ),
    Permission(
        "pricing:GetProducts",
        _PRICES_READ,
        Feature.PRICES,
        "reads on-demand prices",
        "the prices that are built into this version are used, which may be months old",
    ),
    Permission(
        "iam:ListInstanceProfiles",
        _PROFILES_LISTED,
        Feature.PROFILES,
        "finds unused instance profiles",
        "unused instance profiles are not deleted, and EC2NodeClasses with `role` cannot be deleted",
    ),
    Permission(
        "iam:GetInstanceProfile", _PROFILE_READ, Feature.PROFILES, "reads an instance profile and its role", _NO_PROFILE
    ),
    Permission(
        "ssm:GetParameter",
        OWN_PARAMETERS,
        Feature.OWN_PARAMETERS,
        "reads the image of a term with `ssmParameter`",
        "EC2NodeClasses whose `ssmParameter` is outside /aws/service do not become ready",
    ),
    *(
        Permission(
            action,
            _KEY_USED,
            Feature.OWN_KEYS,
            "EC2 checks this action for volumes that the key encrypts",
            _NO_VOLUME,
            _LAUNCHES,
        )
        for action in (
            "kms:Decrypt",
            "kms:DescribeKey",
            "kms:GenerateDataKeyWithoutPlaintext",
            "kms:ReEncryptFrom",
            "kms:ReEncryptTo",
        )
    ),
    Permission(
        "kms:CreateGrant",
        _KEY_GRANTED,
        Feature.OWN_KEYS,
        "EC2 creates a grant so that volumes can use the key",
        _NO_VOLUME,
        _LAUNCHES,
    ),
    Permission(
        "ec2:RebootInstances",
        REBOOTED,
        Feature.REBOOTS,
        "reboots instances whose GPUs report errors that a reboot fixes",
        "such nodes are drained for nothing, and then replaced",
    ),
    Permission(
        "iam:SimulatePrincipalPolicy",
        _SELF_SIMULATED,
        Feature.SELF_CHECK,
        "simulates the policies of the role",
        "`dovetail aws check` inside the cluster reports actions without a dry run as unknown; run it outside the cluster with --role-arn",
    ),
    Permission(
        "iam:GetRole",
        _NODE_ROLE_READ,
        Feature.SELF_CHECK,
        "looks for the role of the nodes",
        "`dovetail aws check` inside the cluster reports the role of an EC2NodeClass as unknown until its instance profile exists",
    ),
)


def permissions_of(policy: IamPolicy) -> tuple[Permission, ...]:
    """The rows of one policy, in the order of the table."""
    return tuple(row for row in PERMISSIONS if row.scope.policy == policy)


def scopes(rows: Iterable[Permission]) -> Mapping[IamScope, tuple[Permission, ...]]:
    """The rows by scope, in the order of the first row of each."""
    grouped: dict[IamScope, list[Permission]] = {}
    for row in rows:
        grouped.setdefault(row.scope, []).append(row)
    return {scope: tuple(inside) for scope, inside in grouped.items()}


def document(policy: IamPolicy, names: PolicyNames) -> dict[str, Any]:
    """The policy document for `names`; lists even where there is one, and in the order of the table."""
    return {
        "Version": "2012-10-17",
        "Statement": [_statement(scope, rows, names) for scope, rows in scopes(permissions_of(policy)).items()],
    }


def _statement(scope: IamScope, rows: Iterable[Permission], names: PolicyNames) -> dict[str, Any]:
    made: dict[str, Any] = {
        "Sid": scope.sid,
        "Effect": "Allow",
        "Resource": [names.fill(resource) for resource in scope.resources],
        "Action": [row.action for row in rows],
    }
    conditions: dict[str, dict[str, list[str]]] = {}
    for condition in scope.conditions:
        values = [names.fill(value) for value in condition.values]
        conditions.setdefault(condition.operator, {})[names.fill(condition.key)] = values
    if conditions:
        made["Condition"] = conditions
    return made
