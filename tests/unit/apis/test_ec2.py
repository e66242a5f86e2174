"""EC2NodeClass: what is derived from its fields, its conditions, and names on its objects."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from provisioner.apis import ec2
from provisioner.apis.meta import condition
from provisioner.values.requirement import Requirement

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FAMILIES: dict[str, tuple[dict[str, Any], str]] = {
    "as written": ({"amiFamily": "AL2", "amiSelectorTerms": [{"id": "ami-1"}]}, "AL2"),
    "as written, over an alias": ({"amiFamily": "Custom", "amiSelectorTerms": [{"alias": "al2023@latest"}]}, "Custom"),
    **{
        f"of the alias of {family}": ({"amiSelectorTerms": [{"alias": f"{family.lower()}@latest"}]}, family)
        for family in ec2.FAMILIES
        if family != ec2.CUSTOM
    },
    "of nothing is Custom": ({"amiSelectorTerms": [{"id": "ami-1"}]}, "Custom"),
    "of an alias that nobody knows is Custom": ({"amiSelectorTerms": [{"alias": "ubuntu@latest"}]}, "Custom"),
}


def class_of(spec: dict[str, Any], **more: Any) -> ec2.EC2NodeClass:
    return msgspec.convert({"metadata": {"name": "a"}, "spec": spec, **more}, ec2.EC2NodeClass)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_family(name: str) -> None:
    spec, want = FAMILIES[name]
    assert class_of(spec).family == want


@pytest.mark.parametrize(
    ("alias", "family", "version"),
    [
        ("al2023@latest", "AL2023", "latest"),
        ("bottlerocket@v1.20.4", "Bottlerocket", "v1.20.4"),
        ("windows2022@latest", "Windows2022", "latest"),
        ("", "", ""),
        ("custom@latest", "", "latest"),
    ],
)
def test_an_alias_is_family_and_version(alias: str, family: str, version: str) -> None:
    term = ec2.AMISelectorTerm(alias=alias)
    assert (term.alias_family, term.alias_version) == (family, version)


def test_what_is_absent_reads_as_empty() -> None:
    bare = class_of({})
    assert (bare.kubelet, bare.tags, bare.block_device_mappings, bare.network_interfaces) == ({}, {}, (), ())


def test_what_is_given_reads_as_given() -> None:
    full = class_of(
        {
            "kubelet": {"maxPods": "x"},
            "tags": {"a": "b"},
            "blockDeviceMappings": [{"deviceName": "d"}],
            "networkInterfaces": [{"networkCardIndex": 1, "deviceIndex": 0, "interfaceType": "interface"}],
        }
    )
    assert (full.kubelet, full.tags) == ({"maxPods": "x"}, {"a": "b"})
    assert full.block_device_mappings[0].device_name == "d"
    assert full.network_interfaces[0].network_card_index == 1


def test_an_image_says_what_types_run_it() -> None:
    requirements = ({"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},)
    ami = msgspec.convert({"id": "ami-1", "requirements": requirements}, ec2.AMI)
    assert ami.compatible().requirement("kubernetes.io/arch") == Requirement.of("kubernetes.io/arch", "In", ["arm64"])


def test_an_object_without_spec_decodes_as_one_of_an_older_schema_may() -> None:
    assert class_of({}).spec == msgspec.json.decode(b'{"kind":"EC2NodeClass"}', type=ec2.EC2NodeClass).spec


def test_zeros_and_defaults_that_the_api_demands_are_written() -> None:
    interface = ec2.NetworkInterface(network_card_index=0, device_index=0, interface_type="interface")
    assert msgspec.to_builtins(interface) == {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    assert msgspec.to_builtins(ec2.AMI(id="ami-1")) == {"id": "ami-1", "requirements": ()}


@pytest.mark.parametrize(
    ("conditions", "count"), [(ec2.NODECLASS_CONDITIONS, 7), (ec2.NODECLASS_CONDITIONS_WITHOUT_RESERVATIONS, 6)]
)
def test_a_class_is_ready_when_every_dependent_is(conditions: Any, count: int) -> None:
    assert len(conditions.dependents) == count
    found = conditions.initialise((), generation=1, created=NOW)
    for kind in conditions.dependents:
        ready = condition(found, "Ready")
        assert ready is not None
        assert ready.status == "Unknown"
        found = conditions.set(found, kind, "True", generation=1, now=NOW)
    ready = condition(found, "Ready")
    assert ready is not None
    assert ready.status == "True"


def test_reservations_left_over_have_no_say_when_they_are_off() -> None:
    without = ec2.NODECLASS_CONDITIONS_WITHOUT_RESERVATIONS
    found = without.initialise((), generation=1, created=NOW)
    found = without.set(found, ec2.CAPACITY_RESERVATIONS_READY, "False", "X", generation=1, now=NOW)
    for kind in without.dependents:
        found = without.set(found, kind, "True", generation=1, now=NOW)
    ready = condition(found, "Ready")
    assert ready is not None
    assert ready.status == "True"
    assert condition(without.clear(found, ec2.CAPACITY_RESERVATIONS_READY), ec2.CAPACITY_RESERVATIONS_READY) is None


def test_the_label_of_its_nodes() -> None:
    assert ec2.NODECLASS_LABEL == "karpenter.k8s.aws/ec2nodeclass"
