"""The questions to IAM's simulator: few calls, with the values that our requests will have."""

import pytest

from provisioner.ec2.access.permissions import PERMISSIONS, Feature, PolicyNames
from provisioner.ec2.preflight.needs import AwsAccount, Need, needs
from provisioner.ec2.preflight.simulator import MOST_RESULTS, batches, context_entries

NAMES = PolicyNames.of("aws", "eu-west-1", "123456789012", "prod")
EVERYTHING = needs(
    frozenset(Feature), AwsAccount(NAMES, parameters=("/a",), keys=("arn:aws:kms:eu-west-1:123456789012:key/1",))
)


def pairs(found: tuple[Need, ...]) -> set[tuple[str, str, object]]:
    return {(need.row.action, resource, need.context) for need in found for resource in need.resources}


def test_every_question_is_in_a_call_and_none_is_asked_twice() -> None:
    made = [
        (action, resource, context)
        for actions, resources, context in batches(EVERYTHING)
        for action in actions
        for resource in resources
    ]
    assert set(made) == pairs(EVERYTHING)
    assert len(made) == len(set(made))


def test_few_calls_ask_all() -> None:
    assert len(PERMISSIONS) > 40
    assert len(batches(EVERYTHING)) <= 26


@pytest.mark.parametrize("count", [1, 99, 100, 101, 1000])
def test_no_call_asks_more_than_a_page(count: int) -> None:
    row = EVERYTHING[0].row
    many = Need(row, tuple(f"arn:aws:ec2:eu-west-1:1:subnet/subnet-{number}" for number in range(count)), ())
    made = batches([many])
    assert sum(len(actions) * len(resources) for actions, resources, _ in made) == count
    assert all(len(actions) * len(resources) <= MOST_RESULTS for actions, resources, _ in made)


def test_reading_calls_are_one_question() -> None:
    describing = [need for need in EVERYTHING if need.row.action.startswith("ec2:Describe")]
    ((actions, resources, context),) = batches(describing)
    assert len(actions) == 11
    assert resources == ("*",)
    assert context == (("aws:RequestedRegion", ("eu-west-1",)),)


def entries(action: str, sid: str) -> dict[str, tuple[list[str], str]]:
    (need,) = (need for need in EVERYTHING if need.row.action == action and need.row.scope.sid == sid)
    return {
        one["ContextKeyName"]: (one["ContextKeyValues"], one["ContextKeyType"]) for one in context_entries(need.context)
    }


def test_tags_of_a_request_are_context() -> None:
    assert entries("ec2:CreateFleet", "AllowScopedEC2InstanceActionsWithTags") == {
        "aws:RequestTag/kubernetes.io/cluster/prod": (["owned"], "string"),
        "aws:RequestTag/eks:eks-cluster-name": (["prod"], "string"),
        "aws:RequestTag/karpenter.sh/nodepool": (["preflight"], "string"),
    }


def test_keys_of_tags_are_a_list() -> None:
    assert entries("ec2:CreateTags", "AllowScopedResourceTagging")["aws:TagKeys"] == (
        ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"],
        "stringList",
    )


def test_a_grant_for_aws_is_a_boolean() -> None:
    assert entries("kms:CreateGrant", "AllowVolumeKeyGrants")["kms:GrantIsForAWSResource"] == (["true"], "boolean")
