"""The table of permissions: exactly Karpenter's by default, exactly what our code calls, and concrete calls judged by the policies."""

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from provisioner.apis import ec2, names
from provisioner.apis.meta import ObjectMeta
from provisioner.ec2.access.permissions import (
    IAM_INTEGRATION,
    NODE_LIFECYCLE,
    PERMISSIONS,
    POLICIES,
    SELF_CHECK,
    VOLUME_ENCRYPTION,
    PolicyNames,
    document,
    permissions_of,
    scopes,
)
from provisioner.ec2.launch import fleet, templates
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.launch.orders import launch_tags
from provisioner.ec2.market.unavailable_offerings import OfferingKey
from provisioner.ec2.nodeclass.profiles import Naming
from tests.support.iam import Decision, Touched, judge, request_tags, resource_tags
from tests.support.rooms import aws, controllers

CHECKED_AS = {"sqs:DeleteMessageBatch": "sqs:DeleteMessage"}
"""Operations whose permission has another name."""


REGION, ACCOUNT, CLUSTER = "eu-west-1", "123456789012", "prod"
NAMES = PolicyNames.of("aws", REGION, ACCOUNT, CLUSTER)
OWNED = "kubernetes.io/cluster/prod"
OURS = {OWNED: "owned", "karpenter.sh/nodepool": "default", "eks:eks-cluster-name": CLUSTER}
REQUESTED = launch_tags(ec2.EC2NodeClass(metadata=ObjectMeta(name="default")), "default", CLUSTER)

DEFAULTS = [document(policy, NAMES) for policy in POLICIES if not policy.optional]
ALL = [document(policy, NAMES) for policy in POLICIES]


def arn(kind: str, name: str = "x-1", account: str = ACCOUNT) -> str:
    return f"arn:aws:ec2:{REGION}:{'' if kind in ('image', 'snapshot') else account}:{kind}/{name}"


# --- the table ------------------------------------------------------------------------------------------------------


def test_every_row_says_why_and_what_is_lost() -> None:
    for row in PERMISSIONS:
        assert row.why, row.action
        assert row.without, row.action
        assert not row.why.endswith("."), row.action


def test_no_row_is_there_twice_and_no_statement_in_two_policies() -> None:
    assert len({(row.action, row.scope) for row in PERMISSIONS}) == len(PERMISSIONS)
    assert len({scope.sid for scope in scopes(PERMISSIONS)}) == len(scopes(PERMISSIONS))


def test_every_policy_has_rows_and_every_row_a_policy() -> None:
    assert [row for policy in POLICIES for row in permissions_of(policy)] == list(PERMISSIONS)
    assert all(permissions_of(policy) for policy in POLICIES)


MADE = "fleet instance volume network-interface launch-template spot-instances-request"
KARPENTER = (
    # what spec/karpenter-aws.md 7.1 lists: actions, EC2 resources or ARN, conditions
    (
        "ec2:RunInstances ec2:CreateFleet",
        "image snapshot security-group subnet capacity-reservation placement-group",
        "",
    ),
    (
        "ec2:RunInstances ec2:CreateFleet",
        "launch-template",
        f"Resource {OWNED}=owned, Resource karpenter.sh/nodepool=*",
    ),
    (
        "ec2:RunInstances ec2:CreateFleet ec2:CreateLaunchTemplate",
        MADE,
        f"Request {OWNED}=owned, Request eks:eks-cluster-name=prod, Request karpenter.sh/nodepool=*",
    ),
    (
        "ec2:CreateTags",
        MADE,
        (
            f"Request {OWNED}=owned, Request eks:eks-cluster-name=prod, Request karpenter.sh/nodepool=*, "
            "StringEquals ec2:CreateAction=RunInstances|CreateFleet|CreateLaunchTemplate"
        ),
    ),
    (
        "ec2:CreateTags",
        "instance",
        (
            f"Resource {OWNED}=owned, Resource karpenter.sh/nodepool=*, "
            "StringEqualsIfExists aws:RequestTag/eks:eks-cluster-name=prod, "
            "ForAllValues:StringEquals aws:TagKeys=eks:eks-cluster-name|karpenter.sh/nodeclaim|Name"
        ),
    ),
    (
        "ec2:TerminateInstances ec2:DeleteLaunchTemplate",
        "instance launch-template",
        f"Resource {OWNED}=owned, Resource karpenter.sh/nodepool=*",
    ),
    (
        "iam:PassRole",
        "arn:aws:iam::123456789012:role/KarpenterNodeRole-prod",
        "StringEquals iam:PassedToService=ec2.amazonaws.com|ec2.amazonaws.com.cn",
    ),
    (
        "iam:CreateInstanceProfile",
        "arn:aws:iam::123456789012:instance-profile/*",
        (
            f"Request {OWNED}=owned, Request eks:eks-cluster-name=prod, Request topology.kubernetes.io/region=eu-west-1, "
            "Request karpenter.k8s.aws/ec2nodeclass=*"
        ),
    ),
    (
        "iam:TagInstanceProfile",
        "arn:aws:iam::123456789012:instance-profile/*",
        (
            f"Resource {OWNED}=owned, Resource topology.kubernetes.io/region=eu-west-1, "
            f"Resource karpenter.k8s.aws/ec2nodeclass=*, Request {OWNED}=owned, Request eks:eks-cluster-name=prod, "
            "Request topology.kubernetes.io/region=eu-west-1, Request karpenter.k8s.aws/ec2nodeclass=*"
        ),
    ),
    (
        "iam:AddRoleToInstanceProfile iam:RemoveRoleFromInstanceProfile iam:DeleteInstanceProfile",
        "arn:aws:iam::123456789012:instance-profile/*",
        (
            f"Resource {OWNED}=owned, Resource topology.kubernetes.io/region=eu-west-1, "
            "Resource karpenter.k8s.aws/ec2nodeclass=*"
        ),
    ),
    ("eks:DescribeCluster", "arn:aws:eks:eu-west-1:123456789012:cluster/prod", ""),
    (
        "sqs:DeleteMessage sqs:GetQueueUrl sqs:ReceiveMessage",
        "arn:aws:sqs:eu-west-1:123456789012:prod",
        "",
    ),
    (
        "arc-zonal-shift:GetManagedResource",
        "*",
        "StringEquals arc-zonal-shift:ResourceIdentifier=arn:aws:eks:eu-west-1:123456789012:cluster/prod",
    ),
    (
        (
            "ec2:DescribeCapacityReservations ec2:DescribeImages ec2:DescribeInstances ec2:DescribeInstanceStatus "
            "ec2:DescribeInstanceTypeOfferings ec2:DescribeInstanceTypes ec2:DescribeLaunchTemplates "
            "ec2:DescribePlacementGroups ec2:DescribeSecurityGroups ec2:DescribeSpotPriceHistory ec2:DescribeSubnets"
        ),
        "*",
        "StringEquals aws:RequestedRegion=eu-west-1",
    ),
    ("ssm:GetParameter", "arn:aws:ssm:eu-west-1::parameter/aws/service/*", ""),
    ("pricing:GetProducts iam:ListInstanceProfiles", "*", ""),
    ("iam:GetInstanceProfile", "arn:aws:iam::123456789012:instance-profile/*", ""),
)

Grant = tuple[str, str, frozenset[tuple[str, str, frozenset[str]]]]


def spelled(resource: str) -> str:
    """The ARN of a kind of EC2's; ARNs as they are."""
    if resource == "*" or resource.startswith("arn:"):
        return resource
    return f"arn:aws:ec2:eu-west-1:{'' if resource in ('image', 'snapshot') else '*'}:{resource}/*"


def condition(text: str) -> tuple[str, str, frozenset[str]]:
    first, _, test = text.partition(" ")
    key, _, values = test.partition("=")
    if first in ("Request", "Resource"):
        return ("StringLike" if values == "*" else "StringEquals"), f"aws:{first}Tag/{key}", frozenset({values})
    return first, key, frozenset(values.split("|"))


def karpenters() -> Iterator[Grant]:
    for actions, resources, conditions in KARPENTER:
        tests = frozenset(condition(one) for one in conditions.split(", ") if one)
        for action in actions.split():
            for resource in resources.split():
                yield action, spelled(resource), tests


def ours() -> Iterator[Grant]:
    for statement in (statement for one in DEFAULTS for statement in one["Statement"]):
        tests = frozenset(
            (operator, key, frozenset(values))
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
        assert statement["Effect"] == "Allow"
        for action in statement["Action"]:
            for resource in statement["Resource"]:
                yield action, resource, tests


def test_the_default_policies_allow_what_karpenter_asks_for_and_nothing_else() -> None:
    assert set(ours()) == set(karpenters())


# --- what our code calls --------------------------------------------------------------------------------------------

FREE = {"sts:GetCallerIdentity"}
"""Needs no permission."""

SERVICES = ("ec2", "iam", "eks", "ssm", "sqs", "sts", "pricing", "arc-zonal-shift")


def operations() -> dict[str, set[str]]:
    """Every name that an operation of AWS goes by in code, with the actions that it may be."""
    session = botocore.session.Session()
    found: dict[str, set[str]] = {}
    for service in SERVICES:
        for operation in session.get_service_model(service).operation_names:
            for name in (operation, xform_name(operation)):
                action = f"{service}:{operation}"
                found.setdefault(name, set()).add(CHECKED_AS.get(action, action))
    return found


def words(tree: ast.AST) -> Iterator[str]:
    """Attributes and texts of a module: a client's methods, and operations that are named (paginators, raw pages)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@functools.cache
def called() -> dict[str, tuple[set[str], set[str]]]:
    """By name: the actions that it may be, and the modules that it is in."""
    known = operations()
    found: dict[str, tuple[set[str], set[str]]] = {}
    for path in (*aws(), *controllers()):
        if path.name == "permissions.py":
            continue
        for word in words(ast.parse(path.read_text(encoding="utf-8"))):
            if word in known:
                found.setdefault(word, (known[word], set()))[1].add(str(path))
    return found


def test_every_action_that_is_called_is_in_the_table() -> None:
    table = {row.action for row in PERMISSIONS} | FREE
    assert {name: where for name, (actions, where) in called().items() if not actions & table} == {}


def test_nothing_is_in_the_table_that_is_not_called() -> None:
    made = {action for actions, _ in called().values() for action in actions}
    direct = {row.action for row in PERMISSIONS if not row.through}
    implied = {action for row in PERMISSIONS for action in row.through}
    assert direct - made == set()
    assert implied - made == set()


# --- concrete calls -------------------------------------------------------------------------------------------------


def fleet_request(tags: Mapping[str, str]) -> dict[str, Any]:
    offer = OfferingKey("m5.large", "eu-west-1a", names.CAPACITY_SPOT)
    override = fleet.Override("dovetail.dev/1", offer, "subnet-1", "ami-1", 0.1)
    return fleet.request([override], capacity_type=names.CAPACITY_SPOT, count=2, tags=tags, mark=Mark("b", 1, 0))


def template_request(tags: Mapping[str, str]) -> dict[str, Any]:
    instance = templates.InstanceSpec("ami-1", "", "profile", ("sg-1",), names.CAPACITY_SPOT)
    return templates.template(ec2.EC2NodeClass(), instance, tags, REGION).request()


def tags_by_kind(specifications: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    return {one["ResourceType"]: {tag["Key"]: tag["Value"] for tag in one["Tags"]} for one in specifications}


def launch(tags: Mapping[str, str], template_tags: Mapping[str, str] | None = None) -> list[Touched]:
    """What CreateFleet touches for instances that our own requests make."""
    wanted = fleet_request(tags)
    template = template_request(template_tags or tags)
    made = tags_by_kind([*wanted["TagSpecifications"], *template["LaunchTemplateData"]["TagSpecifications"]])
    (own,) = tags_by_kind(template["TagSpecifications"]).values()
    return [
        *(Touched(arn(kind), request_tags(asked)) for kind, asked in made.items()),
        Touched(arn("launch-template"), resource_tags(own)),
        *(Touched(arn(kind)) for kind in ("image", "snapshot", "subnet", "security-group")),
    ]


def tagging(action: str, kinds: Mapping[str, Mapping[str, str]]) -> list[Touched]:
    return [Touched(arn(kind), {**request_tags(tags), "ec2:CreateAction": action}) for kind, tags in kinds.items()]


@pytest.mark.parametrize("action", ["ec2:CreateFleet", "ec2:RunInstances"])
def test_the_launch_that_we_ask_for_is_allowed(action: str) -> None:
    assert judge(DEFAULTS, action, launch(REQUESTED)) is Decision.ALLOWED


def test_the_tags_of_a_launch_are_allowed() -> None:
    wanted = tags_by_kind(fleet_request(REQUESTED)["TagSpecifications"])
    assert "dovetail.dev/launch" in wanted["instance"]
    assert judge(DEFAULTS, "ec2:CreateTags", tagging("CreateFleet", wanted)) is Decision.ALLOWED


def test_the_launch_template_that_we_ask_for_is_allowed() -> None:
    wanted = tags_by_kind(template_request(REQUESTED)["TagSpecifications"])
    touched = [Touched(arn("launch-template"), request_tags(wanted["launch-template"]))]
    assert judge(DEFAULTS, "ec2:CreateLaunchTemplate", touched) is Decision.ALLOWED
    assert judge(DEFAULTS, "ec2:CreateTags", tagging("CreateLaunchTemplate", wanted)) is Decision.ALLOWED


@pytest.mark.parametrize(
    ("tags", "template_tags"),
    [
        pytest.param({}, None, id="no tags"),
        pytest.param({key: value for key, value in REQUESTED.items() if key != OWNED}, None, id="without the owner"),
        pytest.param(
            {key: value for key, value in REQUESTED.items() if key != "eks:eks-cluster-name"}, None, id="no cluster"
        ),
        pytest.param(
            {key: value for key, value in REQUESTED.items() if key != "karpenter.sh/nodepool"}, None, id="no pool"
        ),
        pytest.param({**REQUESTED, "eks:eks-cluster-name": "other"}, None, id="the name of another cluster"),
        pytest.param({**REQUESTED, OWNED: "shared"}, None, id="shared, not owned"),
        pytest.param(REQUESTED, {"Name": "somebody's"}, id="somebody's launch template"),
    ],
)
def test_a_launch_that_is_not_the_clusters_is_not_allowed(
    tags: Mapping[str, str], template_tags: Mapping[str, str] | None
) -> None:
    assert judge(DEFAULTS, "ec2:CreateFleet", launch(tags, template_tags)) is Decision.NOT_ALLOWED


INSTANCES = {
    "ours": (OURS, Decision.ALLOWED),
    "another cluster's": ({"kubernetes.io/cluster/other": "owned", "karpenter.sh/nodepool": "d"}, Decision.NOT_ALLOWED),
    "shared with ours": ({OWNED: "shared", "karpenter.sh/nodepool": "default"}, Decision.NOT_ALLOWED),
    "the cluster's, but of no pool": ({OWNED: "owned"}, Decision.NOT_ALLOWED),
    "somebody else's": ({"Name": "database"}, Decision.NOT_ALLOWED),
    "without tags": ({}, Decision.NOT_ALLOWED),
}


@pytest.mark.parametrize(("tags", "wanted"), INSTANCES.values(), ids=INSTANCES)
@pytest.mark.parametrize(
    ("action", "kind"), [("ec2:TerminateInstances", "instance"), ("ec2:DeleteLaunchTemplate", "launch-template")]
)
def test_only_what_is_ours_may_be_ended(action: str, kind: str, tags: Mapping[str, str], wanted: Decision) -> None:
    assert judge(ALL, action, [Touched(arn(kind), resource_tags(tags))]) is wanted


def test_ending_one_of_ours_with_one_of_theirs_is_not_allowed() -> None:
    both = [Touched(arn("instance", name), resource_tags(tags)) for name, tags in (("i-1", OURS), ("i-2", {}))]
    assert judge(DEFAULTS, "ec2:TerminateInstances", both) is Decision.NOT_ALLOWED


TAGGINGS = {
    "the NodeClaim, the node's name and the cluster": (
        {"karpenter.sh/nodeclaim": "c", "Name": "ip-10-0-0-1", "eks:eks-cluster-name": CLUSTER},
        OURS,
        Decision.ALLOWED,
    ),
    "the NodeClaim alone": ({"karpenter.sh/nodeclaim": "c"}, OURS, Decision.ALLOWED),
    "the name of another cluster": ({"eks:eks-cluster-name": "other"}, OURS, Decision.NOT_ALLOWED),
    "a key of our own": ({"dovetail.dev/launch": "b/1"}, OURS, Decision.NOT_ALLOWED),
    "another pool": ({"karpenter.sh/nodepool": "other"}, OURS, Decision.NOT_ALLOWED),
    "somebody's instance": ({"Name": "mine now"}, {"Name": "database"}, Decision.NOT_ALLOWED),
    "making somebody's instance ours": ({OWNED: "owned"}, {"Name": "database"}, Decision.NOT_ALLOWED),
}


@pytest.mark.parametrize(("asked", "there", "wanted"), TAGGINGS.values(), ids=TAGGINGS)
def test_tags_after_the_launch_are_limited(
    asked: Mapping[str, str], there: Mapping[str, str], wanted: Decision
) -> None:
    touched = Touched(arn("instance"), {**request_tags(asked), **resource_tags(there)})
    assert judge(DEFAULTS, "ec2:CreateTags", [touched]) is wanted


PROFILE = "arn:aws:iam::123456789012:instance-profile/karpenter/eu-west-1/prod/uid/prod_1"


def profile_tags(cluster: str = CLUSTER, region: str = REGION) -> dict[str, str]:
    return Naming(cluster, region).tags(ec2.EC2NodeClass(metadata=ObjectMeta(name="default", uid="uid")))


def test_the_profile_that_we_ask_for_is_allowed_with_its_tags() -> None:
    wanted = request_tags(profile_tags())
    assert judge(DEFAULTS, "iam:CreateInstanceProfile", [Touched(PROFILE, wanted)]) is Decision.ALLOWED
    both = {**wanted, **resource_tags(profile_tags())}
    assert judge(DEFAULTS, "iam:TagInstanceProfile", [Touched(PROFILE, both)]) is Decision.ALLOWED


@pytest.mark.parametrize(
    "action", ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"]
)
@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        pytest.param(profile_tags(), Decision.ALLOWED, id="ours"),
        pytest.param(profile_tags(cluster="other"), Decision.NOT_ALLOWED, id="another cluster's"),
        pytest.param(profile_tags(region="us-east-1"), Decision.NOT_ALLOWED, id="the same cluster's of another region"),
        pytest.param({}, Decision.NOT_ALLOWED, id="somebody's"),
    ],
)
def test_only_our_profiles_may_be_changed(action: str, tags: Mapping[str, str], wanted: Decision) -> None:
    assert judge(DEFAULTS, action, [Touched(PROFILE, resource_tags(tags))]) is wanted


@pytest.mark.parametrize(
    ("role", "service", "wanted"),
    [
        pytest.param("KarpenterNodeRole-prod", "ec2.amazonaws.com", Decision.ALLOWED, id="the nodes' role to EC2"),
        pytest.param("KarpenterNodeRole-prod", "ec2.amazonaws.com.cn", Decision.ALLOWED, id="to EC2 of China"),
        pytest.param("KarpenterNodeRole-prod", "lambda.amazonaws.com", Decision.NOT_ALLOWED, id="to another service"),
        pytest.param("Admin", "ec2.amazonaws.com", Decision.NOT_ALLOWED, id="another role"),
    ],
)
def test_only_the_nodes_role_may_be_passed_and_only_to_ec2(role: str, service: str, wanted: Decision) -> None:
    touched = Touched(f"arn:aws:iam::{ACCOUNT}:role/{role}", {"iam:PassedToService": service})
    assert judge(ALL, "iam:PassRole", [touched]) is wanted


@pytest.mark.parametrize(
    ("action", "resource", "context", "wanted"),
    [
        pytest.param("ec2:DescribeImages", "*", {"aws:RequestedRegion": REGION}, Decision.ALLOWED, id="reading here"),
        pytest.param(
            "ec2:DescribeImages", "*", {"aws:RequestedRegion": "us-east-1"}, Decision.NOT_ALLOWED, id="elsewhere"
        ),
        pytest.param("pricing:GetProducts", "*", {"aws:RequestedRegion": "us-east-1"}, Decision.ALLOWED, id="prices"),
        pytest.param(
            "ssm:GetParameter", "arn:aws:ssm:eu-west-1::parameter/aws/service/eks/x", {}, Decision.ALLOWED, id="AMIs"
        ),
        pytest.param(
            "ssm:GetParameter",
            f"arn:aws:ssm:eu-west-1:{ACCOUNT}:parameter/db/password",
            {},
            Decision.NOT_ALLOWED,
            id="somebody's secret",
        ),
        pytest.param(
            "ssm:GetParameters",
            "arn:aws:ssm:eu-west-1::parameter/aws/service/eks/x",
            {},
            Decision.NOT_ALLOWED,
            id="several parameters at once",
        ),
        pytest.param(
            "eks:DescribeCluster", f"arn:aws:eks:eu-west-1:{ACCOUNT}:cluster/prod", {}, Decision.ALLOWED, id="cluster"
        ),
        pytest.param(
            "eks:DescribeCluster",
            f"arn:aws:eks:eu-west-1:{ACCOUNT}:cluster/other",
            {},
            Decision.NOT_ALLOWED,
            id="another cluster",
        ),
        pytest.param(
            "sqs:ReceiveMessage", f"arn:aws:sqs:eu-west-1:{ACCOUNT}:prod", {}, Decision.ALLOWED, id="the queue"
        ),
        pytest.param(
            "sqs:ReceiveMessage", f"arn:aws:sqs:eu-west-1:{ACCOUNT}:x", {}, Decision.NOT_ALLOWED, id="another queue"
        ),
        pytest.param("sqs:SendMessage", NAMES.queue_arn, {}, Decision.NOT_ALLOWED, id="writing to the queue"),
        pytest.param(
            "ec2:DescribeAvailabilityZones", "*", {"aws:RequestedRegion": REGION}, Decision.NOT_ALLOWED, id="zones"
        ),
        pytest.param("iam:GetRole", NAMES.node_role_arn, {}, Decision.NOT_ALLOWED, id="a role"),
    ],
)
def test_reading(action: str, resource: str, context: Mapping[str, str], wanted: Decision) -> None:
    assert judge(DEFAULTS, action, [Touched(resource, context)]) is wanted


def test_what_is_optional_is_not_allowed_by_the_default_policies() -> None:
    through = {"kms:ViaService": f"ec2.{REGION}.amazonaws.com", "kms:GrantIsForAWSResource": "true"}
    key = Touched(f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1", through)
    own = Touched(f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/prod/ami/gpu")
    role = Touched(NAMES.controller_role_arn)
    for action, touched in (
        ("kms:CreateGrant", key),
        ("ssm:GetParameter", own),
        ("iam:SimulatePrincipalPolicy", role),
    ):
        assert judge(DEFAULTS, action, [touched]) is Decision.NOT_ALLOWED
        assert judge(ALL, action, [touched]) is Decision.ALLOWED


@pytest.mark.parametrize(
    "context",
    [
        pytest.param({}, id="by itself"),
        pytest.param({"kms:ViaService": f"s3.{REGION}.amazonaws.com", "kms:GrantIsForAWSResource": "true"}, id="S3"),
        pytest.param(
            {"kms:ViaService": f"ec2.{REGION}.amazonaws.com", "kms:GrantIsForAWSResource": "false"}, id="for a person"
        ),
    ],
)
def test_keys_are_granted_through_ec2_alone(context: Mapping[str, str]) -> None:
    touched = Touched(f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1", context)
    assert judge([document(VOLUME_ENCRYPTION, NAMES)], "kms:CreateGrant", [touched]) is Decision.NOT_ALLOWED


def test_nobody_else_may_be_asked_about() -> None:
    other = Touched(f"arn:aws:iam::{ACCOUNT}:role/Admin")
    assert judge([document(SELF_CHECK, NAMES)], "iam:SimulatePrincipalPolicy", [other]) is Decision.NOT_ALLOWED


def test_a_deny_of_somebody_else_wins() -> None:
    boundary = {"Statement": [{"Effect": "Deny", "Action": "ec2:*", "Resource": "*"}]}
    touched = Touched(arn("instance"), resource_tags(OURS))
    assert judge([*DEFAULTS, boundary], "ec2:TerminateInstances", [touched]) is Decision.DENIED


def test_a_policy_of_another_cluster_does_not_reach_ours() -> None:
    other = PolicyNames.of("aws", REGION, ACCOUNT, "other")
    policies = [document(policy, other) for policy in (NODE_LIFECYCLE, IAM_INTEGRATION)]
    assert judge(policies, "ec2:CreateFleet", launch(REQUESTED)) is Decision.NOT_ALLOWED
    instance = Touched(arn("instance"), resource_tags(OURS))
    assert judge(policies, "ec2:TerminateInstances", [instance]) is Decision.NOT_ALLOWED
