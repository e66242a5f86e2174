"""What manifests/aws makes: the same in CloudFormation and in Terraform, in every partition, within the limits of IAM."""

import itertools
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from cfnlint import api as cfnlint

from provisioner.ec2.access.permissions import (
    POLICIES,
    PolicyNames,
    document,
    node_role,
    policy_name,
)
from provisioner.ec2.interruption.messages import _READERS
from provisioner.lab.infrastructure import logical_name, snake
from tests.support import cloudformation, terraform
from tests.support.iam import size

MAX_POLICY_CHARACTERS = 6144
"""What IAM takes as one managed policy, whitespace left out."""


MANIFESTS = Path(__file__).parents[2] / "manifests"
TEMPLATE = MANIFESTS / "aws" / "cloudformation.yaml"
MODULE = MANIFESTS / "aws" / "terraform"
ACCOUNT = "123456789012"
LONGEST = "c" * 46
KEY = "arn:aws:kms:eu-west-1:123456789012:key/0b1c"


class Place(NamedTuple):
    partition: str
    region: str
    suffix: str


PLACES = {
    "everywhere": Place("aws", "eu-west-1", "amazonaws.com"),
    "China": Place("aws-cn", "cn-northwest-1", "amazonaws.com.cn"),
    "GovCloud": Place("aws-us-gov", "us-gov-west-1", "amazonaws.com"),
}
ANYWHERE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


def names_of(place: Place, cluster: str = "prod") -> PolicyNames:
    made = PolicyNames.of(place.partition, place.region, ACCOUNT, cluster)
    return PolicyNames(
        **{**{name: getattr(made, name) for name in made.__slots__}, "parameter_path": "own/ami", "key_arn": KEY}
    )


def stack_of(place: Place, cluster: str = "prod", **parameters: str) -> cloudformation.Stack:
    names = names_of(place, cluster)
    given = {"CustomParameterPath": "own/ami", "VolumeKeyArn": KEY, "NodeReboot": "true", "SelfCheck": "true"}
    return cloudformation.Stack(
        cloudformation.load(TEMPLATE),
        {
            "AWS::Partition": place.partition,
            "AWS::Region": place.region,
            "AWS::AccountId": ACCOUNT,
            "AWS::URLSuffix": place.suffix,
        },
        {"ClusterName": cluster, **given, **parameters},
        {"KarpenterInterruptionQueue.Arn": names.queue_arn, "KarpenterNodeRole.Arn": names.node_role_arn},
    )


def references_of(place: Place, cluster: str = "prod") -> dict[str, str]:
    names = names_of(place, cluster)
    return {
        "local.partition": place.partition,
        "local.region": place.region,
        "local.account": ACCOUNT,
        "data.aws_partition.current.dns_suffix": place.suffix,
        "var.cluster_name": cluster,
        "var.namespace": "dovetail-system",
        "var.service_account": "dovetail-provisioner",
        "var.custom_parameter_path": "own/ami",
        "var.volume_key_arn": KEY,
        "aws_sqs_queue.interruption.arn": names.queue_arn,
        "aws_iam_role.node.arn": names.node_role_arn,
    }


def policies_of(stack: cloudformation.Stack) -> dict[str, dict[str, Any]]:
    """The policy documents of a stack by the policy's name."""
    return {
        stack.value(one["Properties"]["ManagedPolicyName"]): json.loads(
            stack.value(one["Properties"]["PolicyDocument"])
        )
        for one in stack.resources.values()
        if one["Type"] == "AWS::IAM::ManagedPolicy"
    }


# --- policies of the controllers ------------------------------------------------------------------------------------


@ANYWHERE
def test_the_policies_of_the_template_are_the_table(place: Place) -> None:
    wanted = {policy_name(policy, "prod"): document(policy, names_of(place)) for policy in POLICIES}
    assert policies_of(stack_of(place)) == wanted


@ANYWHERE
def test_the_policies_of_terraform_are_those_of_the_template(place: Place) -> None:
    found = terraform.policy_documents(terraform.load(MODULE), references_of(place))
    mine = {snake(policy.name): policies_of(stack_of(place))[policy_name(policy, "prod")] for policy in POLICIES}
    assert {name: normal(found[name]) for name in mine} == {name: normal(one) for name, one in mine.items()}


def normal(written: Any) -> Any:
    """Policies that mean the same as equal values: one value is a list of one, keys in no order."""
    if isinstance(written, dict):
        return {
            key: normal([one] if key in ("Action", "Resource") and isinstance(one, str) else one)
            for key, one in written.items()
        }
    return [normal(one) for one in written] if isinstance(written, list) else written


@ANYWHERE
def test_every_policy_is_small_enough_for_the_longest_name(place: Place) -> None:
    sizes = {name: size(json.dumps(one)) for name, one in policies_of(stack_of(place, LONGEST)).items()}
    assert len(sizes) == len(POLICIES)
    assert max(sizes.values()) <= MAX_POLICY_CHARACTERS
    assert max(map(len, sizes)) <= 128


def test_names_of_roles_fit_the_longest_name_that_the_template_takes() -> None:
    pattern = cloudformation.load(TEMPLATE)["Parameters"]["ClusterName"]["AllowedPattern"]
    assert pattern.endswith("{0,45}$")
    assert len(node_role(LONGEST)) == 64


@ANYWHERE
def test_no_partition_is_written_out(place: Place) -> None:
    stack = stack_of(place, VolumeKeyArn="")
    text = json.dumps(stack.value(stack.resources))
    assert f"arn:{place.partition}:" in text
    assert text.count("arn:") == text.count(f"arn:{place.partition}:")


def test_optional_policies_are_made_only_where_they_are_asked_for() -> None:
    bare = stack_of(
        PLACES["everywhere"], CustomParameterPath="", VolumeKeyArn="", NodeReboot="false", SelfCheck="false"
    )
    wanted = {policy_name(policy, "prod") for policy in POLICIES if not policy.optional}
    assert policies_of(bare).keys() == wanted
    attached = bare.value(bare.resources["ControllerRole"]["Properties"]["ManagedPolicyArns"])
    assert attached == [f"<{logical_name(policy)}>" for policy in POLICIES if not policy.optional]


def test_the_role_gets_every_policy_that_is_made() -> None:
    stack = stack_of(PLACES["everywhere"])
    attached = stack.value(stack.resources["ControllerRole"]["Properties"]["ManagedPolicyArns"])
    assert attached == [f"<{logical_name(policy)}>" for policy in POLICIES]
    assert len(attached) <= 10  # IAM's quota of policies of a role


def test_terraform_attaches_by_the_same_choice() -> None:
    module = terraform.load(MODULE)
    maps: dict[str, Any] = {}
    for one in module["locals"]:
        maps |= one
    assert set(maps["default_policies"]) == {policy.name for policy in POLICIES if not policy.optional}
    assert set(maps["optional_policies"]) == {policy.name for policy in POLICIES if policy.optional}
    assert set(maps["wanted"]) == set(maps["optional_policies"])
    for policy in POLICIES:
        chosen = maps["optional_policies" if policy.optional else "default_policies"][policy.name]
        assert chosen == f"${{data.aws_iam_policy_document.{snake(policy.name)}.json}}"


# --- roles, queue, rules --------------------------------------------------------------------------------------------


@ANYWHERE
@pytest.mark.parametrize(
    ("resource", "member", "source"),
    [
        pytest.param("KarpenterNodeRole", "AssumeRolePolicyDocument", "node_trust", id="who may be a node"),
        pytest.param("ControllerRole", "AssumeRolePolicyDocument", "controller_trust", id="who may be the controllers"),
        pytest.param("KarpenterInterruptionQueuePolicy", "PolicyDocument", "queue", id="who may write to the queue"),
    ],
)
def test_the_other_policies_are_the_same_in_both(place: Place, resource: str, member: str, source: str) -> None:
    stack = stack_of(place)
    written = stack.value(stack.resources[resource]["Properties"][member])
    found = terraform.policy_documents(terraform.load(MODULE), references_of(place))[source]
    assert comparable(written) == comparable(found)


@ANYWHERE
def test_only_rules_of_this_account_may_write_to_the_queue(place: Place) -> None:
    stack = stack_of(place)
    policy = stack.value(stack.resources["KarpenterInterruptionQueuePolicy"]["Properties"]["PolicyDocument"])
    for statement in policy["Statement"]:
        if statement["Effect"] == "Allow":
            assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}


def comparable(policy: Mapping[str, Any]) -> Any:
    """Without what Terraform adds or leaves out: ids of statements, lists of one."""
    return [{key: ones(one) for key, one in statement.items() if key != "Sid"} for statement in policy["Statement"]]


def ones(written: Any) -> Any:
    match written:
        case [one]:
            return one
        case dict():
            return {key: ones(inner) for key, inner in written.items()}
        case _:
            return written


def test_nodes_of_china_are_trusted_by_their_own_service() -> None:
    stack = stack_of(PLACES["China"])
    trust = stack.value(stack.resources["KarpenterNodeRole"]["Properties"]["AssumeRolePolicyDocument"])
    assert trust["Statement"][0]["Principal"] == {"Service": "ec2.amazonaws.com.cn"}


def test_nodes_have_the_same_managed_policies_in_both() -> None:
    stack = stack_of(PLACES["everywhere"])
    mine = [
        arn.rpartition("/")[2]
        for arn in stack.value(stack.resources["KarpenterNodeRole"]["Properties"]["ManagedPolicyArns"])
    ]
    assert mine == [
        *("AmazonEKS_CNI_Policy", "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"),
        "AmazonSSMManagedInstanceCore",
    ]
    (attachment,) = (
        body
        for kind, name, body in terraform.named(terraform.load(MODULE)["resource"])
        if (kind, name) == ("aws_iam_role_policy_attachment", "node")
    )
    assert all(f'"{name}"' in attachment["for_each"] for name in mine)


def events_of_template() -> dict[str, tuple[str, str]]:
    return {
        name.removesuffix("Rule"): (
            *one["Properties"]["EventPattern"]["source"],
            *one["Properties"]["EventPattern"]["detail-type"],
        )
        for name, one in stack_of(PLACES["everywhere"]).resources.items()
        if one["Type"] == "AWS::Events::Rule"
    }


def test_the_rules_are_for_every_event_that_is_understood() -> None:
    assert set(events_of_template().values()) == {(source, kind) for _, source, kind in _READERS}


def test_every_rule_of_the_template_sends_to_the_queue() -> None:
    stack = stack_of(PLACES["everywhere"])
    queue = names_of(PLACES["everywhere"]).queue_arn
    for one in stack.resources.values():
        if one["Type"] == "AWS::Events::Rule":
            assert stack.value(one["Properties"]["Targets"]) == [
                {"Id": "KarpenterInterruptionQueueTarget", "Arn": queue}
            ]


def test_the_rules_of_terraform_are_those_of_the_template() -> None:
    (found,) = (one["events"] for one in terraform.load(MODULE)["locals"] if "events" in one)
    assert {name: (one["source"], one["detail_type"]) for name, one in found.items()} == events_of_template()


def test_queue_and_association_are_the_same_in_both() -> None:
    stack = stack_of(PLACES["everywhere"])
    queue = stack.value(stack.resources["KarpenterInterruptionQueue"]["Properties"])
    association = stack.value(stack.resources["ControllerAssociation"]["Properties"])
    bodies = {f"{kind}.{name}": body for kind, name, body in terraform.named(terraform.load(MODULE)["resource"])}
    references = {**references_of(PLACES["everywhere"]), "aws_iam_role.controller[0].arn": "<ControllerRole.Arn>"}
    made = bodies["aws_sqs_queue.interruption"]
    assert queue == {
        "QueueName": terraform.filled(made["name"], references),
        "MessageRetentionPeriod": made["message_retention_seconds"],
        "SqsManagedSseEnabled": made["sqs_managed_sse_enabled"],
    }
    made = bodies["aws_eks_pod_identity_association.controller"]
    assert association == {
        "ClusterName": terraform.filled(made["cluster_name"], references),
        "Namespace": terraform.filled(made["namespace"], references),
        "ServiceAccount": terraform.filled(made["service_account"], references),
        "RoleArn": terraform.filled(made["role_arn"], references),
    }


def test_the_role_is_for_the_account_that_the_provisioner_runs_under() -> None:
    parameters = cloudformation.load(TEMPLATE)["Parameters"]
    documents = list(yaml.safe_load_all((MANIFESTS / "base" / "provisioner-rbac.yaml").read_text(encoding="utf-8")))
    (account,) = (one for one in documents if one["kind"] == "ServiceAccount")
    assert parameters["Namespace"]["Default"] == account["metadata"]["namespace"]
    assert parameters["ServiceAccount"]["Default"] == account["metadata"]["name"]
    variables = {name: body for block in terraform.load(MODULE)["variable"] for name, body in block.items()}
    assert variables["namespace"]["default"] == account["metadata"]["namespace"]
    assert variables["service_account"]["default"] == account["metadata"]["name"]


@pytest.mark.parametrize(
    ("parameters", "without"),
    [
        pytest.param({"PodIdentity": "false"}, {"ControllerRole", "ControllerAssociation"}, id="a role of one's own"),
        pytest.param({"AccessEntry": "none"}, {"NodeAccessEntry"}, id="aws-auth"),
        pytest.param({"CreateSpotServiceLinkedRole": "false"}, {"SpotServiceLinkedRole"}, id="spot was used before"),
    ],
)
def test_what_a_parameter_leaves_out(parameters: dict[str, str], without: set[str]) -> None:
    everything = stack_of(PLACES["everywhere"], CreateSpotServiceLinkedRole="true").resources.keys()
    left = stack_of(PLACES["everywhere"], **{"CreateSpotServiceLinkedRole": "true", **parameters}).resources.keys()
    assert everything - left == without


def parameters_of_readme() -> dict[str, str]:
    """Parameters of the template with their names in Terraform, from the table in the README."""
    lines = (MANIFESTS / "aws" / "README.md").read_text(encoding="utf-8").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("| CloudFormation | Terraform |"))
    found: dict[str, str] = {}
    for line in itertools.takewhile(lambda line: line.startswith("|"), lines[begin + 2 :]):
        parameters, variables = (cell.strip().split(", ") for cell in line.split("|")[1:3])
        found.update(zip(parameters, variables, strict=True))
    return found


def test_the_readme_tells_of_every_parameter_and_both_forms_have_the_same() -> None:
    told = parameters_of_readme()
    assert set(told) == set(cloudformation.load(TEMPLATE)["Parameters"])
    assert set(told.values()) == {name for block in terraform.load(MODULE)["variable"] for name in block} - {"tags"}
    assert all(snake(parameter) == variable for parameter, variable in told.items())


# --- linters --------------------------------------------------------------------------------------------------------


def test_cfn_lint_finds_nothing() -> None:
    regions = [place.region for place in PLACES.values()]
    assert cfnlint.lint_file(TEMPLATE, config=cfnlint.ManualArgs(regions=regions, include_checks=["I"])) == []


@pytest.mark.skipif(shutil.which("terraform") is None, reason="this machine has no terraform; nothing else needs it")
def test_terraform_is_formatted_as_terraform_formats(tmp_path: Path) -> None:
    settings = tmp_path / "terraformrc"
    settings.touch()
    found = subprocess.run(
        ["terraform", "fmt", "-check", "-diff", str(MODULE)],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "TF_CLI_CONFIG_FILE": str(settings), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, "")
