"""Judging calls by IAM policies as AWS does: a call may be made when every resource that it touches may be touched, and a deny wins.

Which statement applies is decided by the emulator's own `policies`; what it does not know (an operator) is an error, never an answer.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.ec2.access.permissions import POLICIES, PolicyNames, document
from tests.support.ec2.policies import decide

Context = Mapping[str, str | Sequence[str]]


class Decision(enum.Enum):
    """What AWS answers."""

    ALLOWED = "allowed"
    NOT_ALLOWED = "implicitDeny"
    DENIED = "explicitDeny"


@dataclass(frozen=True)
class Touched:
    """One resource that a call touches, and the condition keys that are known when it does."""

    arn: str
    context: Context = field(default_factory=dict)


def judge(documents: Iterable[Mapping[str, Any]], action: str, touched: Iterable[Touched]) -> Decision:
    """Whether the policies together let the action be done to all of these resources."""
    kept = list(documents)
    decisions = {Decision(decide(kept, action, one.arn, _listed(one.context))) for one in touched}
    if Decision.DENIED in decisions:
        return Decision.DENIED
    return Decision.ALLOWED if decisions == {Decision.ALLOWED} else Decision.NOT_ALLOWED


def _listed(context: Context) -> dict[str, Sequence[str]]:
    return {key: [value] if isinstance(value, str) else value for key, value in context.items()}


def default_policies(cluster: str, region: str = "us-west-2", account: str = "123456789012") -> list[dict[str, Any]]:
    """The documents of all policies that are not optional: what Karpenter asks for, and all that `Ec2.start(policies=...)` need allow."""
    names = PolicyNames.of("aws", region, account, cluster)
    return [document(policy, names) for policy in POLICIES if not policy.optional]


def request_tags(tags: Iterable[Mapping[str, str]] | Mapping[str, str]) -> dict[str, str | Sequence[str]]:
    """The condition keys of tags that a request asks for; as a mapping, or as EC2 lists them."""
    pairs = tags if isinstance(tags, Mapping) else {tag["Key"]: tag["Value"] for tag in tags}
    return {**{f"aws:RequestTag/{key}": value for key, value in pairs.items()}, "aws:TagKeys": tuple(pairs)}


def resource_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The condition keys of tags that a resource has."""
    return {f"aws:ResourceTag/{key}": value for key, value in tags.items()}


def size(text: str) -> int:
    """Characters of a policy as IAM counts them: without whitespace."""
    return sum(not character.isspace() for character in text)
