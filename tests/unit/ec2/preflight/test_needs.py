"""Which permissions settings and classes need, and on which resources."""

from typing import Any

import pytest

from provisioner.apis import ec2
from provisioner.ec2.access.permissions import PERMISSIONS, POLICIES, Feature, PolicyNames, document
from provisioner.ec2.preflight.needs import AwsAccount, Need, features, keys, needs, parameters
from provisioner.ec2.settings import AwsSettings
from tests.support.iam import Decision, Touched, judge

NAMES = PolicyNames.of("aws", "eu-west-1", "123456789012", "prod")
OWN_KEY = "0b1c2d3e-0000-0000-0000-000000000000"


def settings(region: str = "eu-west-1", **given: Any) -> AwsSettings:
    return AwsSettings(cluster_name="prod", region=region, **given)


def node_class(**spec: Any) -> ec2.EC2NodeClass:
    return ec2.EC2NodeClass(metadata=meta, spec=ec2.EC2NodeClassSpec(**spec))


meta = ec2.EC2NodeClass().metadata
ALIAS = node_class(role="nodes", ami_selector_terms=(ec2.AMISelectorTerm(alias="al2023@latest"),))


def volume(**ebs: Any) -> ec2.EC2NodeClass:
    device = ec2.BlockDeviceMapping(device_name="/dev/xvda", ebs=ec2.BlockDevice(**ebs))
    return node_class(role="nodes", block_device_mappings=(device,))


FEATURES = {
    "settings alone, without classes": (settings(), (), {Feature.ENDPOINT, Feature.PRICES}),
    "classes that could not be read are guessed": (
        settings(),
        None,
        {Feature.ENDPOINT, Feature.PRICES, Feature.PROFILES, Feature.ALIASES},
    ),
    "an endpoint that is set": (settings(cluster_endpoint="https://api"), (), {Feature.PRICES}),
    "the version from EKS all the same": (
        settings(cluster_endpoint="https://api", eks_control_plane=True),
        (),
        {Feature.ENDPOINT, Feature.PRICES},
    ),
    "a queue": (settings(interruption_queue="q"), (), {Feature.ENDPOINT, Feature.PRICES, Feature.INTERRUPTION}),
    "zonal shift asks EKS for the cluster's ARN": (
        settings(cluster_endpoint="https://api", enable_zonal_shift=True),
        (),
        {Feature.ENDPOINT, Feature.PRICES, Feature.ZONAL_SHIFT},
    ),
    "an isolated VPC": (settings(isolated_vpc=True), (), {Feature.ENDPOINT}),
    "GovCloud has no Pricing API": (settings("us-gov-west-1"), (), {Feature.ENDPOINT}),
    "a class with role and alias": (
        settings(),
        (ALIAS,),
        {Feature.ENDPOINT, Feature.PRICES, Feature.PROFILES, Feature.ALIASES},
    ),
    "a ready-made profile and an image by id": (
        settings(),
        (node_class(instance_profile="p", ami_selector_terms=(ec2.AMISelectorTerm(id="ami-1"),)),),
        {Feature.ENDPOINT, Feature.PRICES},
    ),
    "a parameter of AWS": (
        settings(),
        (
            node_class(
                instance_profile="p", ami_selector_terms=(ec2.AMISelectorTerm(ssm_parameter="/aws/service/eks/x"),)
            ),
        ),
        {Feature.ENDPOINT, Feature.PRICES, Feature.ALIASES},
    ),
    "a parameter of one's own": (
        settings(),
        (node_class(instance_profile="p", ami_selector_terms=(ec2.AMISelectorTerm(ssm_parameter="/golden/gpu"),)),),
        {Feature.ENDPOINT, Feature.PRICES, Feature.OWN_PARAMETERS},
    ),
    "reservations": (
        settings(),
        (
            node_class(
                instance_profile="p",
                capacity_reservation_selector_terms=(ec2.CapacityReservationSelectorTerm(id="cr-1"),),
            ),
        ),
        {Feature.ENDPOINT, Feature.PRICES, Feature.RESERVATIONS},
    ),
    "a placement group": (
        settings(),
        (node_class(instance_profile="p", placement_group_selector=ec2.PlacementGroupSelector(name="g")),),
        {Feature.ENDPOINT, Feature.PRICES, Feature.PLACEMENT_GROUPS},
    ),
    "a key of one's own": (
        settings(),
        (volume(volume_size="20Gi", kms_key_id=OWN_KEY),),
        {Feature.ENDPOINT, Feature.PRICES, Feature.PROFILES, Feature.OWN_KEYS},
    ),
    "a snapshot": (
        settings(),
        (volume(snapshot_id="snap-1"),),
        {Feature.ENDPOINT, Feature.PRICES, Feature.PROFILES, Feature.SNAPSHOTS},
    ),
}


@pytest.mark.parametrize(("given", "classes", "wanted"), FEATURES.values(), ids=FEATURES)
def test_what_is_in_use(given: AwsSettings, classes: tuple[ec2.EC2NodeClass, ...] | None, wanted: set[Feature]) -> None:
    assert features(given, classes) == wanted | {Feature.ALWAYS, Feature.SPOT}


def asked(account: AwsAccount, *used: Feature) -> tuple[Need, ...]:
    return needs(frozenset({Feature.ALWAYS, Feature.SPOT, *used}), account)


def resources(found: tuple[Need, ...], action: str, sid: str = "") -> set[str]:
    return {
        resource
        for need in found
        for resource in need.resources
        if need.row.action == action and need.row.scope.sid.startswith(sid)
    }


EVERYTHING = needs(
    frozenset(Feature),
    AwsAccount(NAMES, parameters=("/prod/ami/gpu",), keys=(f"arn:aws:kms:eu-west-1:123456789012:key/{OWN_KEY}",)),
)


def test_every_row_is_asked_about_where_every_feature_is_used() -> None:
    assert [need.row for need in EVERYTHING] == list(PERMISSIONS)


@pytest.mark.parametrize("need", EVERYTHING, ids=lambda need: f"{need.row.action} {need.row.scope.sid}")
def test_what_is_asked_about_is_what_our_own_policies_allow(need: Need) -> None:
    """A role with all policies must pass every question: else the check cries wolf."""
    context = {key: values if key == "aws:TagKeys" else values[0] for key, values in need.context}
    touched = [Touched(resource, context) for resource in need.resources]
    assert judge([document(policy, NAMES) for policy in POLICIES], need.row.action, touched) is Decision.ALLOWED


@pytest.mark.parametrize("need", EVERYTHING, ids=lambda need: f"{need.row.action} {need.row.scope.sid}")
def test_what_is_asked_about_is_not_allowed_without_its_own_statement(need: Need) -> None:
    documents = [document(policy, NAMES) for policy in POLICIES]
    for one in documents:
        one["Statement"] = [statement for statement in one["Statement"] if statement["Sid"] != need.row.scope.sid]
    context = {key: values if key == "aws:TagKeys" else values[0] for key, values in need.context}
    touched = [Touched(resource, context) for resource in need.resources]
    assert judge(documents, need.row.action, touched) is Decision.NOT_ALLOWED


def test_what_was_discovered_is_asked_about() -> None:
    found = asked(AwsAccount(NAMES, ids={"subnet": ["subnet-1", "subnet-2"], "image": ["ami-9"]}))
    used = resources(found, "ec2:RunInstances", "AllowScopedEC2InstanceAccess")
    assert "arn:aws:ec2:eu-west-1:123456789012:subnet/subnet-1" in used
    assert "arn:aws:ec2:eu-west-1:123456789012:subnet/subnet-2" in used
    assert "arn:aws:ec2:eu-west-1::image/ami-9" in used


def test_many_of_a_kind_are_asked_about_by_a_few() -> None:
    found = asked(AwsAccount(NAMES, ids={"subnet": [f"subnet-{number}" for number in range(100)]}))
    assert sum(":subnet/" in one for one in resources(found, "ec2:CreateFleet")) == 5


def test_nothing_is_asked_that_ec2_does_not_check() -> None:
    every = EVERYTHING
    assert not any("fleet/" in one for one in resources(every, "ec2:RunInstances"))
    assert not any("spot-instances-request/" in one for one in resources(every, "ec2:CreateFleet"))
    assert not any(
        "launch-template/" in one for one in resources(every, "ec2:CreateFleet", "AllowScopedEC2InstanceActions")
    )
    assert {one.rpartition(":")[2].partition("/")[0] for one in resources(every, "ec2:CreateLaunchTemplate")} == {
        "launch-template"
    }
    assert all(":instance/" in one for one in resources(every, "ec2:TerminateInstances"))
    assert all(":launch-template/" in one for one in resources(every, "ec2:DeleteLaunchTemplate"))


@pytest.mark.parametrize(
    ("feature", "kind"),
    [
        (Feature.RESERVATIONS, "capacity-reservation"),
        (Feature.PLACEMENT_GROUPS, "placement-group"),
        (Feature.SNAPSHOTS, "snapshot"),
    ],
)
def test_kinds_of_resources_are_asked_about_where_they_are_used(feature: Feature, kind: str) -> None:
    def is_asked(found: tuple[Need, ...]) -> bool:
        return any(f":{kind}/" in one for one in resources(found, "ec2:RunInstances"))

    assert not is_asked(asked(AwsAccount(NAMES)))
    assert is_asked(asked(AwsAccount(NAMES), feature))


def test_the_roles_of_the_classes_are_those_that_are_passed() -> None:
    roles = ("arn:aws:iam::123456789012:role/a", "arn:aws:iam::123456789012:role/team/b")
    assert resources(asked(AwsAccount(NAMES, node_roles=roles)), "iam:PassRole") == set(roles)
    assert resources(asked(AwsAccount(NAMES)), "iam:PassRole") == {NAMES.node_role_arn}


def test_a_queue_called_like_a_kind_of_resource_is_asked_about() -> None:
    odd = PolicyNames.of("aws", "eu-west-1", "123456789012", "prod", queue="snapshot")
    found = asked(AwsAccount(odd), Feature.INTERRUPTION)
    assert resources(found, "sqs:ReceiveMessage") == {"arn:aws:sqs:eu-west-1:123456789012:snapshot"}


def test_services_have_the_names_of_the_partition() -> None:
    china = PolicyNames.of("aws-cn", "cn-north-1", "123456789012", "prod")
    (need,) = (need for need in asked(AwsAccount(china)) if need.row.action == "iam:PassRole")
    assert dict(need.context)["iam:PassedToService"] == ("ec2.amazonaws.com.cn",)
    (need,) = (need for need in EVERYTHING if need.row.action == "iam:PassRole")
    assert dict(need.context)["iam:PassedToService"] == ("ec2.amazonaws.com",)


def test_parameters_of_ones_own_as_arns() -> None:
    names = ("/golden/gpu", "bare", "arn:aws:ssm:eu-west-1:999999999999:parameter/shared")
    found = asked(AwsAccount(NAMES, parameters=names), Feature.OWN_PARAMETERS)
    assert resources(found, "ssm:GetParameter") == {
        "arn:aws:ssm:eu-west-1:123456789012:parameter/golden/gpu",
        "arn:aws:ssm:eu-west-1:123456789012:parameter/bare",
        "arn:aws:ssm:eu-west-1:999999999999:parameter/shared",
    }


def test_parameters_that_aws_publishes_are_none_of_ones_own() -> None:
    terms = ("/aws/service/eks/x", "arn:aws:ssm:eu-west-1::parameter/aws/service/eks/x", "/golden/gpu")
    one = node_class(ami_selector_terms=tuple(ec2.AMISelectorTerm(ssm_parameter=name) for name in terms))
    assert parameters([one]) == ("/golden/gpu",)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        pytest.param(OWN_KEY, f"arn:aws:kms:eu-west-1:123456789012:key/{OWN_KEY}", id="an id"),
        pytest.param("arn:aws:kms:eu-west-1:1:key/k", "arn:aws:kms:eu-west-1:1:key/k", id="an ARN"),
        pytest.param("alias/ebs", "arn:aws:kms:eu-west-1:123456789012:alias/ebs", id="an alias"),
    ],
)
def test_keys_as_arns(written: str, wanted: str) -> None:
    assert keys([volume(volume_size="20Gi", kms_key_id=written)], NAMES) == (wanted,)
