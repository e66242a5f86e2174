"""`dovetail aws check` against EC2: from outside by the simulator of IAM, inside by trials, with policies that lack something."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from provisioner.apis import ec2
from provisioner.cli.main import dovetail
from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.access.permissions import POLICIES, SELF_CHECK, Feature, PolicyNames, document
from provisioner.ec2.launch.orders import launch_tags
from provisioner.ec2.preflight.check import check as run_check
from provisioner.ec2.preflight.findings import CheckReport
from provisioner.ec2.preflight.needs import AwsAccount, needs
from provisioner.ec2.preflight.simulator import simulate
from provisioner.ec2.settings import AwsSettings
from provisioner.kube.resources import EC2NODECLASSES
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from tests.support.awshttp import Answer, serving, session
from tests.support.definitions import with_definitions
from tests.support.ec2 import Ec2, Fault

CLUSTER, REGION = "prod", "us-west-2"
Documents = list[dict[str, Any]]


def names_of(account: str) -> PolicyNames:
    return PolicyNames.of("aws", REGION, account, CLUSTER)


def defaults(account: str = "123456789012") -> Documents:
    return [document(policy, names_of(account)) for policy in POLICIES if not policy.optional]


def without(sid: str, documents: Documents) -> Documents:
    """The same policies less one statement."""
    return [{**one, "Statement": [part for part in one["Statement"] if part["Sid"] != sid]} for one in documents]


def body(name: str = "default", **spec: Any) -> dict[str, Any]:
    """An EC2NodeClass that selects what the emulator has; a field that is None is left out."""
    tags = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
    wanted = {
        "role": f"KarpenterNodeRole-{CLUSTER}",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": tags,
        "securityGroupSelectorTerms": tags,
        **spec,
    }
    return {
        "apiVersion": ec2.API_VERSION,
        "kind": ec2.KIND,
        "metadata": {"name": name},
        "spec": {key: value for key, value in wanted.items() if value is not None},
    }


def node_class(name: str = "default", **spec: Any) -> ec2.EC2NodeClass:
    """The same, decoded."""
    return msgspec.json.decode(msgspec.json.encode(body(name, **spec)), type=ec2.EC2NodeClass)


def manifest(path: Path) -> str:
    """A file with one such class."""
    file = path / "class.yaml"
    file.write_text(json.dumps(body()), encoding="utf-8")
    return str(file)


@contextlib.contextmanager
def only(environment: Mapping[str, str]) -> Iterator[None]:
    """Nothing of this process' own cloud or cluster is heeded."""
    before = dict(os.environ)
    kept = {name: value for name, value in before.items() if not name.startswith(("AWS_", "KUBE", "CLUSTER_"))}
    os.environ.clear()
    os.environ.update({**kept, **environment, "HOME": "/nonexistent"})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def check(environment: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    with only(environment):
        result = CliRunner().invoke(dovetail, ["aws", "check", "--cluster-name", CLUSTER, *arguments])
    return result.exit_code, result.output


Said = tuple[int, dict[tuple[str, str], str], dict[str, str]]


class Checker:
    """The check without the command, so that tests share the clients of one EC2."""

    def __init__(self, where: Ec2) -> None:
        self.where = where
        self._aws = AwsClients(CallPolicy(REGION, attempts=2), SystemClock(), where.session())
        self._settings = AwsSettings(cluster_name=CLUSTER, region=REGION)

    def __call__(self, *classes: ec2.EC2NodeClass, role_arn: str = "", **settings: Any) -> Said:
        """Exit code, verdict by (about, what), and what is said by what."""
        report = self.report(*classes, role_arn=role_arn, **settings)
        return (
            report.exit_code,
            {(one.about, one.what): str(one.verdict) for one in report.findings},
            {one.what: f"{one.found} | {one.advice}" for one in report.findings},
        )

    def report(self, *classes: ec2.EC2NodeClass, role_arn: str = "", **settings: Any) -> CheckReport:
        given = dataclasses.replace(self._settings, **settings)
        return run_check(self._aws, given, SystemClock(), classes=classes, role_arn=role_arn)

    def client(self, service: str) -> Any:
        return self._aws.client(service)


def having(verdicts: Mapping[tuple[str, str], str], verdict: str) -> set[str]:
    return {what for (_, what), one in verdicts.items() if one == verdict}


def actions(verdicts: Mapping[tuple[str, str], str], verdict: str) -> set[str]:
    """Permissions without what they are for."""
    return {
        what.partition(" ")[0] for (about, what), one in verdicts.items() if (about, one) == ("permissions", verdict)
    }


@pytest.fixture(scope="module")
def open_ec2() -> Iterator[Checker]:
    """Everybody may do everything there, so that roles can be made."""
    with Ec2.start(name=CLUSTER, region=REGION, data="small") as made:
        yield Checker(made)


@pytest.fixture(scope="module")
def strict_ec2() -> Iterator[Checker]:
    """Calls are allowed by our own default policies alone."""
    with Ec2.start(name=CLUSTER, region=REGION, data="small", policies=defaults()) as made:
        yield Checker(made)


LACKING = (
    *("AllowScopedEC2InstanceActionsWithTags", "AllowInterruptionQueueActions", "AllowSSMReadActions"),
    "AllowAPIServerEndpointDiscovery",
)


@pytest.fixture(scope="module")
def poor_ec2() -> Iterator[Checker]:
    """Some statements of our policies are not there."""
    documents = defaults()
    for sid in LACKING:
        documents = without(sid, documents)
    with Ec2.start(name=CLUSTER, region=REGION, data="small", policies=documents) as made:
        yield Checker(made)


def role(there: Checker, name: str, documents: Sequence[Mapping[str, Any]]) -> str:
    """A role with these policies; its ARN."""
    iam = there.client("iam")
    trust = {"Version": "2012-10-17", "Statement": []}
    arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    for number, one in enumerate(documents):
        made = iam.create_policy(PolicyName=f"{name}-{number}", PolicyDocument=json.dumps(one))
        iam.attach_role_policy(RoleName=name, PolicyArn=made["Policy"]["Arn"])
    return str(arn)


# --- from outside ---------------------------------------------------------------------------------------------------


def test_a_role_with_the_default_policies_is_all_well(open_ec2: Checker, tmp_path: Path) -> None:
    ec2_ = open_ec2.where
    arn = role(open_ec2, "complete", defaults(ec2_.vpc.account))
    ec2_.reset_calls()
    flags = ("--interruption-queue", ec2_.vpc.queue, "--enable-zonal-shift")
    code, output = check(ec2_.environment(), "--role-arn", arn, "-f", manifest(tmp_path), *flags)
    assert code == 0, output
    assert "permissions are granted" in output
    assert output.splitlines()[-1].startswith("all ")
    assert ec2_.calls()["SimulatePrincipalPolicy"] <= 20
    for subnet in ec2_.vpc.subnets.values():
        assert subnet in output


def test_the_same_for_programs(open_ec2: Checker, tmp_path: Path) -> None:
    arn = role(open_ec2, "unpriced", without("AllowPricingReadActions", defaults(open_ec2.where.vpc.account)))
    code, output = check(open_ec2.where.environment(), "--role-arn", arn, "-f", manifest(tmp_path), "-o", "json")
    report = json.loads(output)
    assert code == report["exitCode"] == 1
    assert report["summary"].startswith("1 missing, of ")
    (missing,) = (one for one in report["findings"] if one["verdict"] == "missing")
    assert (missing["about"], missing["what"]) == ("permissions", "pricing:GetProducts")
    assert "without it: the prices that are built into this version are used" in missing["found"]
    assert "KarpenterControllerResourceDiscoveryPolicy-prod" in missing["advice"]


MISSING = {
    "no tags after the launch": ("AllowScopedResourceTagging", {"ec2:CreateTags on instance"}),
    "no instance may be ended": (
        "AllowScopedDeletion",
        {"ec2:TerminateInstances on instance", "ec2:DeleteLaunchTemplate on launch-template"},
    ),
    "the nodes' role may not be passed": ("AllowPassingInstanceRole", {"iam:PassRole on role/KarpenterNodeRole-prod"}),
    "no aliases": ("AllowSSMReadActions", {"ssm:GetParameter on parameter/aws/service"}),
}


@pytest.mark.parametrize(("sid", "missing"), MISSING.values(), ids=MISSING)
def test_what_a_role_lacks_is_named_with_what_to_do(open_ec2: Checker, sid: str, missing: set[str]) -> None:
    arn = role(open_ec2, f"less-{sid}", without(sid, defaults(open_ec2.where.vpc.account)))
    code, verdicts, said = open_ec2(node_class(), role_arn=arn)
    assert code == 1
    assert having(verdicts, "missing") == missing
    assert having(verdicts, "unknown") == set()
    for what in missing:
        assert f"statement {sid} allows it" in said[what]


def test_a_denial_is_told_apart_from_what_is_lacking(open_ec2: Checker) -> None:
    denial = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "ec2:RunInstances", "Resource": "*"}]}
    arn = role(open_ec2, "denied", [*defaults(open_ec2.where.vpc.account), denial])
    code, verdicts, said = open_ec2(node_class(), role_arn=arn)
    assert code == 1
    assert {what.partition(" ")[0] for what in having(verdicts, "missing")} == {"ec2:RunInstances"}
    assert all("a policy statement denies the action" in said[what] for what in having(verdicts, "missing"))


def test_a_policy_that_looks_at_something_unknown_is_unknown_and_not_missing(open_ec2: Checker) -> None:
    documents = without("AllowPricingReadActions", defaults(open_ec2.where.vpc.account))
    from_vpc = {
        "Effect": "Allow",
        "Action": "pricing:GetProducts",
        "Resource": "*",
        "Condition": {"StringEquals": {"aws:SourceVpc": "vpc-1"}},
    }
    arn = role(open_ec2, "from-vpc", [*documents, {"Version": "2012-10-17", "Statement": [from_vpc]}])
    code, verdicts, said = open_ec2(node_class(), role_arn=arn)
    assert code == 3
    assert having(verdicts, "missing") == set()
    assert having(verdicts, "unknown") == {"pricing:GetProducts"}
    assert "aws:SourceVpc" in said["pricing:GetProducts"]


def test_a_role_that_is_not_there(open_ec2: Checker) -> None:
    arn = f"arn:aws:iam::{open_ec2.where.vpc.account}:role/nobody"
    code, verdicts, said = open_ec2(node_class(), role_arn=arn)
    assert code == 1
    assert having(verdicts, "missing") == {"role"}
    assert f"role {arn} does not exist" in said["role"]


def test_somebody_who_may_not_ask_is_told_so(strict_ec2: Checker) -> None:
    code, verdicts, said = strict_ec2(node_class(), role_arn="arn:aws:iam::123456789012:role/other")
    assert code == 3
    assert having(verdicts, "unknown") == {"role"}
    assert "iam:SimulatePrincipalPolicy" in said["role"]


# --- inside ---------------------------------------------------------------------------------------------------------

UNTRIED = {
    *("iam:PassRole", "iam:CreateInstanceProfile", "iam:TagInstanceProfile", "iam:AddRoleToInstanceProfile"),
    *("iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"),
}
"""What has neither a dry run nor a reading call."""


def launch_something(there: Checker) -> str:
    """A template and an instance of the cluster, as the controllers make them."""
    tags = launch_tags(ec2.EC2NodeClass(), "default", CLUSTER)
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    boto = there.client("ec2")
    image = boto.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    boto.create_launch_template(
        LaunchTemplateName="dovetail.dev/1",
        LaunchTemplateData={
            "ImageId": image,
            "TagSpecifications": [{"ResourceType": "network-interface", "Tags": listed}],
        },
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": listed}],
    )
    subnet = next(iter(there.where.vpc.subnets.values()))
    made = boto.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "dovetail.dev/1", "Version": "$Latest"},
                "Overrides": [{"InstanceType": "m5.large", "SubnetId": subnet, "ImageId": image}],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
        TagSpecifications=[{"ResourceType": kind, "Tags": listed} for kind in ("fleet", "instance", "volume")],
    )
    return str(made["Instances"][0]["InstanceIds"][0])


def test_trials_change_nothing_and_what_cannot_be_tried_is_unknown(strict_ec2: Checker) -> None:
    queue = strict_ec2.where.vpc.queue
    code, verdicts, said = strict_ec2(node_class(), interruption_queue=queue)
    assert having(verdicts, "missing") == set()
    of_instances = {"ec2:TerminateInstances", "ec2:CreateTags"}
    assert actions(verdicts, "unknown") == UNTRIED | of_instances, "a launch is rehearsed before there was one"
    assert {"ec2:CreateFleet", "ec2:RunInstances", "ec2:DeleteLaunchTemplate"} <= actions(verdicts, "ok")
    assert strict_ec2.client("ec2").describe_launch_templates()["LaunchTemplates"] == []
    assert code == 3
    assert "check again after the first launch" in said["ec2:TerminateInstances on instance"]
    assert "--role-arn" in said[f"iam:PassRole on role/KarpenterNodeRole-{CLUSTER}"]
    assert "with dry runs and read-only calls" in said["role"]

    instance = launch_something(strict_ec2)
    strict_ec2.where.skip(5.0)
    strict_ec2.client("ec2").get_waiter("instance_running").wait(InstanceIds=[instance], WaiterConfig={"Delay": 1})
    strict_ec2.where.reset_calls()
    code, verdicts, _ = strict_ec2(node_class(), interruption_queue=queue)
    assert having(verdicts, "missing") == set()
    assert actions(verdicts, "unknown") == UNTRIED
    assert code == 3
    tried = strict_ec2.where.calls()
    assert all(tried[action] == 1 for action in ("CreateFleet", "RunInstances", "CreateLaunchTemplate", "CreateTags"))
    (left,) = strict_ec2.where.instances()
    assert (left["id"], left["state"] in {"pending", "running"}) == (instance, True)
    assert len(strict_ec2.client("ec2").describe_launch_templates()["LaunchTemplates"]) == 1


DENIED = {
    "CreateFleet": "ec2:CreateFleet",
    "RunInstances": "ec2:RunInstances",
    "PassRole": "iam:PassRole",
    "CreateLaunchTemplate": "ec2:CreateLaunchTemplate",
    "DeleteLaunchTemplate": "ec2:DeleteLaunchTemplate",
}


@pytest.mark.parametrize("action", DENIED.values(), ids=DENIED)
def test_what_a_launch_lacks_is_found_before_the_first(action: str) -> None:
    denial = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": action, "Resource": "*"}]}
    with Ec2.start(name=CLUSTER, region=REGION, data="small", policies=[*defaults(), denial]) as made:
        there = Checker(made)
        code, verdicts, said = there(node_class(role=None, instanceProfile=made.vpc.profile))
        left = there.client("ec2").describe_launch_templates()["LaunchTemplates"]
    assert code == 1
    assert actions(verdicts, "missing") == {action}
    assert action in next(said[what] for what in having(verdicts, "missing"))
    if action == "ec2:DeleteLaunchTemplate":
        assert len(left) == 1
        assert f"launch template {left[0]['LaunchTemplateName']}" in said["launch template"]
        assert verdicts["permissions", "launch template"] == "risk"
    else:
        assert left == []


def test_what_our_own_credentials_lack_is_missing(poor_ec2: Checker) -> None:
    image = poor_ec2.client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    classes = (node_class("by-id", amiFamily="AL2023", amiSelectorTerms=[{"id": image}]), node_class("by-alias"))
    code, verdicts, said = poor_ec2(*classes, interruption_queue=poor_ec2.where.vpc.queue)
    assert code == 1
    assert actions(verdicts, "missing") == {
        *("ec2:RunInstances", "ec2:CreateLaunchTemplate", "sqs:GetQueueUrl", "ssm:GetParameter", "eks:DescribeCluster"),
    }
    assert "set CLUSTER_ENDPOINT" in said[f"eks:DescribeCluster on cluster/{CLUSTER}"]
    # what is refused to us cannot be looked at, which is not the same as not there
    assert {what for (about, what), one in verdicts.items() if one == "unknown" and about != "permissions"} == {
        *("EKS cluster", "interruption queue", "images", "role"),
    }


def test_a_role_that_may_ask_about_itself_is_told_everything(open_ec2: Checker) -> None:
    account = open_ec2.where.vpc.account
    own = dataclasses.replace(names_of(account), controller_role_arn=f"arn:aws:iam::{account}:role/karpenter")
    arn = role(open_ec2, "karpenter", [*defaults(account), document(SELF_CHECK, own)])
    code, verdicts, said = open_ec2(node_class())
    assert having(verdicts, "missing") | having(verdicts, "unknown") == set()
    assert having(verdicts, "risk") == {"interruption queue"}
    assert code == 0
    assert said["role"].startswith(f"{arn}, checked with policy simulation")
    assert open_ec2.report(node_class()).summary().endswith("checks passed; 1 risk")
    # what is denied to a session is missing though its role has it
    open_ec2.where.script([Fault(action="CreateFleet", kind="denied", times=0)])
    try:
        code, verdicts, _ = open_ec2(node_class())
    finally:
        open_ec2.where.script()
    assert (code, actions(verdicts, "missing")) == (1, {"ec2:CreateFleet"})


# --- what was discovered --------------------------------------------------------------------------------------------


def test_what_a_class_finds_is_told(open_ec2: Checker) -> None:
    vpc = open_ec2.where.vpc
    _, verdicts, said = open_ec2(node_class())
    about = "EC2NodeClass default"
    assert {what for (one, what) in verdicts if one == about} == {"subnets", "security groups", "images", "role"}
    assert vpc.groups[0] in said["security groups"]
    assert "addresses free" in said["subnets"]
    assert "ami-" in said["images"]
    assert f"account {vpc.account}, region {REGION}" in said["account"]
    assert "Kubernetes 1.36" in said["EKS cluster"]


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no subnet": ({"subnetSelectorTerms": [{"tags": {"a": "b"}}]}, "subnets", "select no subnet"),
    "no group": ({"securityGroupSelectorTerms": [{"tags": {"a": "b"}}]}, "security groups", "select no security group"),
    "no image": ({"amiFamily": "AL2023", "amiSelectorTerms": [{"name": "nothing-*"}]}, "images", "select no image"),
    "a family that ended": ({"amiSelectorTerms": [{"alias": "al2@latest"}]}, "images", "AL2"),
    "no profile": (
        {"role": None, "instanceProfile": "nobody"},
        "instance profile",
        "instance profile nobody does not exist",
    ),
    "no role": ({"role": "NoSuchRole"}, "role", "role NoSuchRole does not exist"),
    "no role of a path": ({"role": "some/path/NoSuchRole"}, "role", "role some/path/NoSuchRole does not exist"),
    "no placement group": (
        {"placementGroupSelector": {"name": "nothing"}},
        "placement group",
        "does not exist in this Region",
    ),
    "no reservation": (
        {"capacityReservationSelectorTerms": [{"id": "cr-0123"}]},
        "capacity reservations",
        "capacity reservation cr-0123 does not exist or is not active",
    ),
}


@pytest.fixture(scope="module")
def of_wrong_classes(open_ec2: Checker) -> CheckReport:
    """All classes that find something not, each called by its row, in one look."""
    return open_ec2.report(*(node_class(name, **spec) for name, (spec, _, _) in WRONG.items()))


@pytest.mark.parametrize("name", WRONG)
def test_what_a_class_does_not_find_is_missing(of_wrong_classes: CheckReport, name: str) -> None:
    _, what, words = WRONG[name]
    missing = [one for one in of_wrong_classes.findings if one.about == f"EC2NodeClass {name}" and one.verdict != "ok"]
    assert [(one.what, str(one.verdict)) for one in missing] == [(what, "missing")]
    assert words in missing[0].found
    assert missing[0].advice
    assert of_wrong_classes.exit_code == 1


def test_a_profile_that_is_ready_made_tells_the_role_that_is_passed(open_ec2: Checker) -> None:
    vpc = open_ec2.where.vpc
    arn = role(open_ec2, "passer", without("AllowPassingInstanceRole", defaults(vpc.account)))
    code, verdicts, said = open_ec2(node_class(role=None, instanceProfile=vpc.profile), role_arn=arn)
    assert code == 1
    assert vpc.role in said["instance profile"]
    (missing,) = having(verdicts, "missing")
    assert missing == f"iam:PassRole on role/{vpc.role.rpartition('/')[2]}"


def test_the_profile_that_the_controllers_made_tells_of_its_role(strict_ec2: Checker) -> None:
    """They may not read roles."""
    vpc = strict_ec2.where.vpc
    made = node_class(role=vpc.role.rpartition("/")[2])
    for profile, verdict in ((vpc.profile, "ok"), ("nobody", "unknown"), ("", "unknown")):
        told = msgspec.structs.replace(made, status=msgspec.convert({"instanceProfile": profile}, type(made.status)))
        assert strict_ec2(told)[1]["EC2NodeClass default", "role"] == verdict


@pytest.mark.parametrize(("tokens", "verdict"), [(None, "ok"), ("required", "ok"), ("optional", "missing")])
def test_a_policy_that_asks_for_metadata_options_sees_those_of_the_class(tokens: str | None, verdict: str) -> None:
    """The dry run had none, and was refused although launches were not."""
    denial = {
        "Sid": "RequireTokens",
        "Effect": "Deny",
        "Action": "ec2:RunInstances",
        "Resource": "arn:aws:ec2:*:*:instance/*",
        "Condition": {"StringNotEquals": {"ec2:MetadataHttpTokens": "required"}},
    }
    policies = [*defaults(), {"Version": "2012-10-17", "Statement": [denial]}]
    options: dict[str, Any] = {} if tokens is None else {"metadataOptions": {"httpTokens": tokens}}
    with Ec2.start(name=CLUSTER, region=REGION, data="small", policies=policies) as made:
        _, verdicts, _ = Checker(made)(node_class(**options))
    found = {one for (_, what), one in verdicts.items() if what.startswith("ec2:RunInstances on ") and "image" in what}
    assert found == {verdict}


def test_what_is_asked_of_a_queue_that_is_not_there_stays_unknown(open_ec2: Checker) -> None:
    open_ec2.where.script([Fault(action="SimulatePrincipalPolicy", kind="denied", times=0)])
    try:
        _, verdicts, said = open_ec2(node_class(), interruption_queue="nothing")
    finally:
        open_ec2.where.script()
    assert {"sqs:ReceiveMessage", "sqs:DeleteMessage"} <= actions(verdicts, "unknown")
    assert "queue nothing does not exist" in next(said[what] for what in said if what.startswith("sqs:ReceiveMessage"))


@pytest.mark.parametrize(
    ("settings", "what", "words"),
    [
        pytest.param(
            {"interruption_queue": "nothing"}, "interruption queue", "queue nothing does not exist", id="no queue"
        ),
        pytest.param({"cluster_name": "other"}, "EKS cluster", "EKS cluster other does not exist", id="no cluster"),
    ],
)
def test_what_the_cluster_lacks(open_ec2: Checker, settings: dict[str, str], what: str, words: str) -> None:
    code, verdicts, said = open_ec2(node_class(), **settings)
    assert code == 1
    assert verdicts["cluster", what] == "missing"
    assert words in said[what]


def test_a_cluster_that_is_not_eks_is_no_fault_where_its_endpoint_is_set(open_ec2: Checker) -> None:
    _, verdicts, _ = open_ec2(cluster_name="other", cluster_endpoint="https://10.0.0.1")
    assert verdicts["cluster", "EKS cluster"] == "ok"


@pytest.mark.parametrize("kind", ["throttled", "500"])
@pytest.mark.parametrize(
    ("action", "what"),
    [
        ("DescribeSubnets", "subnets"),
        ("GetParameter", "images"),
        ("DescribeCluster", "EKS cluster"),
        ("SimulatePrincipalPolicy", "role"),
    ],
)
def test_what_fails_is_unknown_and_not_missing(open_ec2: Checker, action: str, kind: Any, what: str) -> None:
    arn = role(open_ec2, f"failing-{action}-{kind}", defaults(open_ec2.where.vpc.account))
    open_ec2.where.script([Fault(action=action, kind=kind)])
    try:
        code, verdicts, _ = open_ec2(node_class(), role_arn=arn)
    finally:
        open_ec2.where.script()
    assert code == 3
    assert having(verdicts, "missing") == set()
    assert what in having(verdicts, "unknown")


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--cluster-name", ""], "--cluster-name (or CLUSTER_NAME) is required", id="no cluster"),
        pytest.param(["--role-arn", "karpenter"], "karpenter is not the ARN of a role", id="no ARN"),
        pytest.param(["--cluster-nam", "x"], "cluster-nam", id="an unknown flag"),
        pytest.param(["--reserved-enis", "many"], "reserved-enis", id="a value that cannot be read"),
        pytest.param(["-o", "xml"], "xml", id="an unknown format"),
        pytest.param(["-f", "/nonexistent.yaml"], "/nonexistent.yaml", id="a file that is not there"),
    ],
)
def test_wrong_use_exits_2(arguments: list[str], words: str) -> None:
    code, output = check({"AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}, *arguments)
    assert code == 2
    assert words in output


def test_a_file_that_is_no_class_exits_2(tmp_path: Path) -> None:
    file = tmp_path / "class.yaml"
    file.write_text(json.dumps({**body(), "spec": {"role": 3}}), encoding="utf-8")
    code, output = check({"AWS_REGION": REGION}, "-f", str(file))
    assert code == 2
    assert "class.yaml" in output


def test_aws_that_cannot_be_reached_is_unknown(tmp_path: Path) -> None:
    nowhere = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    arn = f"arn:aws:iam::123456789012:role/{CLUSTER}-karpenter"
    code, output = check(nowhere, "-f", manifest(tmp_path), "--role-arn", arn)
    assert code == 3
    assert "missing" not in output
    for what in ("account", "EKS cluster", "subnets", "security groups", "role"):
        assert f"  unknown  {what}: " in output
    assert [line for line in output.splitlines() if line.startswith(("  ok", "  risk"))] == [
        (
            "  risk     interruption queue: not set, so Spot Instances are reclaimed and scheduled maintenance begins without "
            "their pods being moved first"
        )
    ]


def test_without_credentials_nothing_is_called_missing(open_ec2: Checker, tmp_path: Path) -> None:
    bare = {name: value for name, value in open_ec2.where.environment().items() if "KEY" not in name}
    code, output = check(bare, "-f", manifest(tmp_path))
    assert code == 3
    assert "  missing  " not in output
    assert "assign a role to the provisioner" in output


def test_without_a_cluster_to_ask_classes_are_unknown(open_ec2: Checker) -> None:
    arn = role(open_ec2, "lonely", defaults(open_ec2.where.vpc.account))
    code, output = check(open_ec2.where.environment(), "--role-arn", arn)
    assert code == 3
    assert "  unknown  EC2NodeClasses: " in output
    assert "--file" in output
    assert output.splitlines()[-1].startswith("1 could not be determined")


def simulated(action: str, resource: str) -> str:
    return (
        f"<member><EvalActionName>{action}</EvalActionName><EvalResourceName>{resource}</EvalResourceName>"
        "<EvalDecision>allowed</EvalDecision></member>"
    )


def test_answers_of_several_pages_are_all_read() -> None:
    """The simulator cuts long answers."""

    def respond(action: str, form: Mapping[str, Any]) -> Answer:
        assert action == "SimulatePrincipalPolicy"
        actions = [form[name] for name in sorted(form) if name.startswith("ActionNames.member.")]
        arns = [form[name] for name in sorted(form) if name.startswith("ResourceArns.member.")]
        rows = [simulated(one, arn) for one in actions for arn in arns]
        start = int(form.get("Marker", 0))
        answer = (
            '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><SimulatePrincipalPolicyResult>'
            f"<IsTruncated>{str(start + 1 < len(rows)).lower()}</IsTruncated><Marker>{start + 1}</Marker>"
            f"<EvaluationResults>{rows[start]}</EvaluationResults>"
            "</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"
        )
        return 200, answer.encode()

    asked = needs(frozenset({Feature.ALWAYS}), AwsAccount(names_of("123456789012")))
    with serving(respond) as server:
        iam = session(server.url).create_client("iam", region_name=REGION)
        answers = simulate(iam, "arn:aws:iam::123456789012:role/r", asked)
    assert {one.verdict for given in answers.values() for one in given} == {"ok"}
    assert all(len(given) == len(need.resources) for need, given in answers.items())


@pytest.mark.plane
def test_the_classes_of_the_cluster_are_looked_at(plane: DevCluster, open_ec2: Checker) -> None:
    arn = role(open_ec2, "of-the-cluster", defaults(open_ec2.where.vpc.account))
    role(open_ec2, "nodes", ())
    kube = with_definitions(plane)
    kube.create(EC2NODECLASSES, body("checked", role="nodes"))
    try:
        flags = ("--role-arn", arn, "--kubeconfig", str(plane.kubeconfig), "-o", "json")
        code, output = check(open_ec2.where.environment(), *flags)
    finally:
        kube.delete(EC2NODECLASSES, "checked")
    findings = json.loads(output)["findings"]
    assert {one["about"] for one in findings} == {"cluster", "EC2NodeClass checked", "permissions"}
    (missing,) = (one for one in findings if one["verdict"] == "missing")
    assert missing["what"] == "iam:PassRole on role/nodes"  # the policies are for another role
    assert "KarpenterControllerIAMIntegrationPolicy-prod" in missing["advice"]
    assert code == 1
