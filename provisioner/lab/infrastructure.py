"""The parts of manifests/aws that are made from `permissions.PERMISSIONS`: policies for CloudFormation and Terraform, and the README's table. Pure.

What people write by hand (roles, queue, rules) stays theirs: in files of both kinds only what stands between the two marks is replaced.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from provisioner.ec2.access.permissions import (
    POLICIES,
    IamPolicy,
    IamScope,
    Permission,
    PolicyCondition,
    PolicyNames,
    document,
    permissions_of,
    scopes,
)

GENERATED: Final = "made from provisioner/ec2/access/permissions.py by `make manifests`; do not edit"
BEGIN: Final = "BEGIN policies"
END: Final = "END policies"

CLOUDFORMATION: Final = PolicyNames(
    partition="${AWS::Partition}",
    region="${AWS::Region}",
    account="${AWS::AccountId}",
    cluster="${ClusterName}",
    queue_arn="${KarpenterInterruptionQueue.Arn}",
    node_role_arn="${KarpenterNodeRole.Arn}",
    # spelled out: the role attaches the policy, so the policy cannot refer to it
    controller_role_arn="arn:${AWS::Partition}:iam::${AWS::AccountId}:role/${ClusterName}-karpenter",
    parameter_path="${CustomParameterPath}",
    key_arn="${VolumeKeyArn}",
)
TERRAFORM: Final = PolicyNames(
    partition="${local.partition}",
    region="${local.region}",
    account="${local.account}",
    cluster="${var.cluster_name}",
    queue_arn="${aws_sqs_queue.interruption.arn}",
    node_role_arn="${aws_iam_role.node.arn}",
    controller_role_arn="arn:${local.partition}:iam::${local.account}:role/${var.cluster_name}-karpenter",
    parameter_path="${var.custom_parameter_path}",
    key_arn="${var.volume_key_arn}",
)
_EXAMPLE: Final = PolicyNames(
    partition="PARTITION",
    region="REGION",
    account="ACCOUNT",
    cluster="CLUSTER",
    queue_arn="the queue",
    node_role_arn="the nodes' role",
    controller_role_arn="the controllers' role",
    parameter_path="PATH",
    key_arn="the key",
)


class MarksError(ValueError):
    """A file in which a part is to be replaced has no such part."""


def spliced(text: str, block: str) -> str:
    """`text` with the lines between the line with BEGIN and the one with END replaced by `block`.

    Raises:
        MarksError: the marks are not there once each, in this order.
    """
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines) if BEGIN in line]
    ends = [number for number, line in enumerate(lines) if END in line]
    if len(begins) != 1 or len(ends) != 1 or ends < begins:
        raise MarksError(f"expected one line with {BEGIN!r} and after it one with {END!r}")
    kept = [*lines[: begins[0] + 1], *block.splitlines(), *lines[ends[0] :]]
    return "\n".join(kept) + "\n"


def logical_name(policy: IamPolicy) -> str:
    """Name of the policy's resource in the CloudFormation template."""
    return f"{policy.name}Policy"


def cloudformation() -> str:
    """The policies as resources of a template, each with its document as text, because tag keys hold the cluster's name."""
    return "\n".join(_resource(policy) for policy in POLICIES)


def _resource(policy: IamPolicy) -> str:
    condition = [f"    Condition: Has{policy.name}"] if policy.optional else []
    body = json.dumps(document(policy, CLOUDFORMATION), indent=2)
    lines = [
        f"  {logical_name(policy)}:",
        "    Type: AWS::IAM::ManagedPolicy",
        *condition,
        "    Properties:",
        f'      ManagedPolicyName: !Sub "KarpenterController{policy.name}Policy-${{ClusterName}}"',
        f"      Description: {_sentence(policy)}",
        "      PolicyDocument: !Sub |",
        *(f"        {line}" for line in body.splitlines()),
    ]
    return "\n".join(lines)


def _sentence(policy: IamPolicy) -> str:
    return f"The node autoscaler {policy.title}"


def snake(name: str) -> str:
    """`IAMIntegration` as `iam_integration`: names of Terraform."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def terraform() -> str:
    """policies.tf: a data source for each policy, and maps of all of them by name for `for_each`."""
    parts = [f"# Policies of the controllers; {GENERATED}.", *(_data(policy) for policy in POLICIES), _maps()]
    return "\n\n".join(parts) + "\n"


def _data(policy: IamPolicy) -> str:
    blocks = [_statement(scope, rows) for scope, rows in scopes(permissions_of(policy)).items()]
    return "\n".join(
        [f'data "aws_iam_policy_document" "{snake(policy.name)}" {{', "\n\n".join(blocks), "}"],
    )


def _statement(scope: IamScope, rows: Sequence[Permission]) -> str:
    attributes = {
        "sid": _quoted(scope.sid),
        "actions": _list([row.action for row in rows], 4),
        "resources": _list([TERRAFORM.fill(resource) for resource in scope.resources], 4),
    }
    lines = ["  statement {", *_attributes(attributes, 4)]
    for condition in scope.conditions:
        lines += ["", *_condition(condition)]
    return "\n".join([*lines, "  }"])


def _condition(condition: PolicyCondition) -> list[str]:
    attributes = {
        "test": _quoted(condition.operator),
        "variable": _quoted(TERRAFORM.fill(condition.key)),
        "values": _list([TERRAFORM.fill(value) for value in condition.values], 6),
    }
    return ["    condition {", *_attributes(attributes, 6), "    }"]


def _attributes(attributes: Mapping[str, str], indent: int) -> list[str]:
    """The lines of attributes as `terraform fmt` wants them: neighbours of one line each have their signs in one column."""
    lines = []
    for run_of_one_line, items in itertools.groupby(attributes.items(), lambda item: "\n" not in item[1]):
        run = list(items)
        widest = max(len(name) for name, _ in run) if run_of_one_line else 0
        lines += [f"{' ' * indent}{name:<{widest}} = {text}" for name, text in run]
    return lines


def _quoted(text: str) -> str:
    return json.dumps(text)


def _list(items: Sequence[str], indent: int) -> str:
    if len(items) == 1:
        return f"[{_quoted(items[0])}]"
    inside = "".join(f"{' ' * (indent + 2)}{_quoted(item)},\n" for item in items)
    return f"[\n{inside}{' ' * indent}]"


def _maps() -> str:
    always = [policy for policy in POLICIES if not policy.optional]
    optional = [policy for policy in POLICIES if policy.optional]
    return "\n".join(["locals {", *_map("default_policies", always), "", *_map("optional_policies", optional), "}"])


def _map(name: str, policies: Sequence[IamPolicy]) -> list[str]:
    widest = max(len(policy.name) for policy in policies)
    rows = [
        f"    {policy.name:<{widest}} = data.aws_iam_policy_document.{snake(policy.name)}.json" for policy in policies
    ]
    return [f"  {name} = {{", *rows, "  }"]


def permissions_table() -> str:
    """The table for people, in Markdown: every row of `PERMISSIONS` under its policy."""
    parts = []
    for policy in POLICIES:
        optional = " (optional)" if policy.optional else ""
        parts += [
            f"#### {policy.name}{optional}: {policy.title}",
            "",
            "| action | on | condition | why | needed for | without it |",
            "|--|--|--|--|--|--|",
            *(_row(row) for row in permissions_of(policy)),
            "",
        ]
    return "\n".join(["", *parts])


def _row(row: Permission) -> str:
    where = "<br>".join(_short(_EXAMPLE.fill(resource)) for resource in row.scope.resources)
    conditions: Mapping[str, Any] = {
        f"{_EXAMPLE.fill(one.key)} {one.operator}": ", ".join(_short(_EXAMPLE.fill(value)) for value in one.values)
        for one in row.scope.conditions
    }
    when = "<br>".join(f"{key} {values}" for key, values in conditions.items()) or "none"
    cells = (f"`{row.action}`", where, when, row.why, row.feature, row.without)
    return "| " + " | ".join(cell.replace("*", "\\*") for cell in cells) + " |"


def _short(resource: str) -> str:
    """An ARN as people say it: what follows service, region and account."""
    return resource.split(":", 5)[5] if resource.startswith("arn:") else resource
