"""What the source says to AWS and reads of its answers is in AWS's own description of its services. (Calls as they are made: tests/integration/test_aws_second_judge.py.)"""

from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

import pytest
from botocore import xform_name

from provisioner.ec2.access import wire
from tests.support import ec2pages
from tests.support.servicemodel import (
    Answered,
    Page,
    Watch,
    calls_of,
    keywords_of,
    members_of,
    methods_of,
    misfits,
    model,
    names_in,
    product,
    services_of,
    unknown_filters,
)

OF_BOTOCORE: Final = {"Error", "HTTPStatusCode", "ResponseMetadata", "RetryAttempts"}
"""What botocore adds to every answer by itself."""

OF_CLIENTS: Final = {"get_paginator", "meta"}
"""What a client has beside its operations."""


def test_every_method_that_is_called_of_a_client_is_an_operation() -> None:
    called = methods_of(product())
    assert len(called) > 10
    strange = {
        (service, method): at
        for (service, method), at in called.items()
        if method not in {*map(xform_name, model(service).operation_names), *OF_CLIENTS}
    }
    assert strange == {}


def test_every_parameter_that_is_passed_by_name_is_one_of_its_operation() -> None:
    files = product()
    passed = keywords_of(files, services_of(files))
    assert len(passed) > 50
    strange = {
        asked: at
        for asked, at in passed.items()
        if asked[2] not in model(asked[0]).operation_model(asked[1]).input_shape.members
    }
    assert strange == {}


def test_every_member_that_is_read_is_in_the_answer_of_an_operation_that_is_called() -> None:
    files = product()
    calls = calls_of(files, services_of(files))
    told: set[str] = set(OF_BOTOCORE)
    for service, operation in calls:
        described = model(service).operation_model(operation)
        told |= names_in(described.output_shape)
    read = members_of(files)
    assert len(read) > 80
    assert {member: at for member, at in read.items() if member not in told} == {}


# ------------------------------------------------------------------ what finds nothing finds something


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('aws.client("ec2").describe_nothing()', ("ec2", "describe_nothing")),
        ('aws.client("iam", region).list_roles', ("iam", "list_roles")),
    ],
)
def test_methods_are_found(tmp_path: Path, source: str, found: tuple[str, str]) -> None:
    assert set(methods_of([written(tmp_path, source)])) == {found}


def test_operations_are_found_however_they_are_named(tmp_path: Path) -> None:
    file = written(tmp_path, 'sts = x.client("sts")\nsts.get_session_token(DurationSeconds=900)\nname = "AssumeRole"\n')
    services = services_of([file])
    assert services == {"sts"}
    assert set(calls_of([file], services)) == {("sts", "GetSessionToken"), ("sts", "AssumeRole")}
    assert set(keywords_of([file], services)) == {("sts", "GetSessionToken", "DurationSeconds")}


def test_members_are_found_however_they_are_read(tmp_path: Path) -> None:
    source = 'a["One"], b.get("Two", {}), "Three" in c, d["four"]\nd["Five"] = 1\n'
    assert set(members_of([written(tmp_path, source)])) == {"One", "Two", "Three"}


def written(tmp_path: Path, source: str) -> Path:
    file = tmp_path / "module.py"
    file.write_text(source, encoding="utf-8")
    return file


def test_a_member_that_no_answer_has_is_a_fault_wherever_it_is_read() -> None:
    watch, shape = Watch(), model("ec2").operation_model("DescribeInstances").output_shape
    row = {"InstanceId": "i-1", "Placement": {"Tenancy": "default"}}
    answer = Answered({"Reservations": [{"Instances": [row]}], "ResponseMetadata": {}}, shape, watch, outermost=True)
    (instance,) = answer["Reservations"][0]["Instances"]
    assert instance.get("SpotInstanceRequestId") is None
    assert answer["ResponseMetadata"] == {}
    assert list(watch.faults) == []
    assert watch.there == {
        *{("DescribeInstancesResult", "Reservations"), ("DescribeInstancesResult", "ResponseMetadata")},
        ("Reservation", "Instances"),
    }
    assert instance.get("SpotRequestId") is None
    assert "Zone" not in instance["Placement"]
    assert [fault.partition(" ")[2] for fault in watch.faults] == [
        "reads SpotRequestId of Instance, which has no such member",
        "reads Zone of Placement, which has no such member",
    ]


@pytest.mark.parametrize(
    ("service", "operation", "request_", "fault"),
    [
        ("ec2", "RunInstances", {"InstanceType": "m99.large", "MinCount": 1}, ""),
        ("ec2", "CreateFleet", {"Type": "at once"}, "CreateFleet.Type is 'at once', which is none of FleetType"),
        (
            *("ec2", "CreateFleet", {"LaunchTemplateConfigs": [{"Override": []}]}),
            "CreateFleet.LaunchTemplateConfigs[] has no member Override",
        ),
        (
            *("iam", "GetRole", {"RoleName": "r" * 65}),
            "GetRole.RoleName is larger than roleNameType may be: 64",
        ),
    ],
)
def test_requests_are_held_against_the_model(
    service: str, operation: str, request_: dict[str, Any], fault: str
) -> None:
    shape = model(service).operation_model(operation).input_shape
    assert list(misfits(request_, shape, operation)) == ([fault] if fault else [])


@pytest.mark.parametrize(
    ("operation", "name", "known"),
    [
        ("DescribeInstances", "instance-state-name", True),
        ("DescribeInstances", "instance-state", False),
        ("DescribeSubnets", "tag:karpenter.sh/discovery", True),
        ("DescribeInstanceStatus", "event.code", True),
        ("DescribeSubnets", "event.code", False),
    ],
)
def test_filters_are_held_against_what_is_said_of_them(operation: str, name: str, known: bool) -> None:
    found = unknown_filters({"Filters": [{"Name": name, "Values": ["x"]}]}, model("ec2").operation_model(operation))
    assert list(found) == ([] if known else [f"{operation} has no filter {name}"])


def test_an_element_that_no_page_has_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    monkeypatch.setattr(wire, "fromstring", lambda content: Page.of(content, watch))
    content = ec2pages.page("DescribeInstanceTypes", {"InstanceTypes": [{"InstanceType": "m5.large"}]})
    assert [one.name for one in wire.instance_types(content)[0]] == ["m5.large"]
    assert list(watch.faults) == []
    Page.of(content, watch).findtext(f"{namespace(content)}token")
    assert [fault.partition(" ")[2] for fault in watch.faults] == [
        "reads token of DescribeInstanceTypesResult, which has no such member"
    ]


def namespace(content: bytes) -> str:
    made: Element = Page.of(content, Watch())._element
    return made.tag.partition("}")[0] + "}"
