import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.kwok.catalogue import CatalogueError, generated, load
from provisioner.cloudprovider.types import by_price, offering_price
from provisioner.values.resources import Resources

EC2 = Path(__file__).parents[3] / "data" / "kwok-catalogue-ec2.json"


def entry(name: str = "m5.large") -> dict[str, Any]:
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "20Gi"},
        "offerings": [
            {
                "Price": 0.096,
                "Available": True,
                "Requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]},
                ],
            }
        ],
    }


def written(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


# --- the generated types ----------------------------------------------------------------------------------------


def test_there_are_144_types_with_8_offerings_each_in_order_of_name() -> None:
    types = generated().types
    assert len(types) == len({one.name for one in types}) == 144
    assert [one.name for one in types] == sorted(one.name for one in types)
    assert all(len({(offering.zone, offering.capacity_type) for offering in one.offerings}) == 8 for one in types)
    assert generated().types is types


GENERATED: dict[str, tuple[str, dict[str, str], float]] = {
    "the smallest": (
        "c-1x-amd64-linux",
        {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "20Gi", "pods": "16"},
        0.027147483648,
    ),
    "standard": (
        "s-16x-arm64-linux",
        {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "20Gi", "pods": "256"},
        0.468719476736,
    ),
    "the largest": (
        "m-256x-arm64-windows",
        {"cpu": "256", "memory": "2Ti", "ephemeral-storage": "20Gi", "pods": "1024"},
        8.599023255552,
    ),
}


@pytest.mark.parametrize(("name", "capacity", "price"), GENERATED.values(), ids=GENERATED)
def test_a_generated_type(name: str, capacity: dict[str, str], price: float) -> None:
    (one,) = [one for one in generated().types if one.name == name]
    family, size, architecture, system = name.replace("x-", "-").split("-")
    assert one.capacity.to_wire() == capacity
    assert one.capacity - one.allocatable == Resources.parse(
        {"cpu": "100m", "memory": "10Mi", "pods": 0, "ephemeral-storage": 0}
    )
    for zone in ("test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"):
        assert offering_price(one, zone, "on-demand") == pytest.approx(price)
        assert offering_price(one, zone, "spot") == pytest.approx(price * 0.7)
    assert {key: requirement.single_value for key, requirement in one.requirements.items()} == {
        names.INSTANCE_TYPE_LABEL: name,
        names.ARCH_LABEL: architecture,
        names.OS_LABEL: system,
        names.ZONE_LABEL: None,
        names.CAPACITY_TYPE_LABEL: None,
        names.KWOK_INSTANCE_SIZE_LABEL: size,
        names.KWOK_INSTANCE_FAMILY_LABEL: family,
        names.KWOK_INSTANCE_CPU_LABEL: size,
        names.KWOK_INSTANCE_MEMORY_LABEL: capacity["memory"],
    }
    assert one.requirements[names.ZONE_LABEL].values == {"test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"}


def test_the_labels_of_the_provider_are_well_known() -> None:
    assert generated().well_known_labels == {
        names.KWOK_INSTANCE_SIZE_LABEL,
        names.KWOK_INSTANCE_FAMILY_LABEL,
        names.KWOK_INSTANCE_CPU_LABEL,
        names.KWOK_INSTANCE_MEMORY_LABEL,
        names.ZONE_LABEL,
        names.CAPACITY_TYPE_LABEL,
    }


# --- a file of the user's own -----------------------------------------------------------------------------------


def test_real_ec2_types_load() -> None:
    catalogue = load(str(EC2))
    assert (len(catalogue.types), catalogue.left_out) == (330, ())
    (one,) = [one for one in catalogue.types if one.name == "c3.2xlarge"]
    assert one.allocatable == Resources.parse(
        {"cpu": "7710m", "memory": "12915Mi", "pods": 55, "ephemeral-storage": "20Gi"}
    )
    assert offering_price(one, "test-zone-b", "on-demand") == 0.42
    assert one.requirements[names.KWOK_INSTANCE_SIZE_LABEL].single_value == "2xlarge"
    assert one.requirements[names.KWOK_INSTANCE_FAMILY_LABEL].single_value == "c3"


def test_names_of_fields_may_have_any_case_and_unknown_ones_are_skipped(tmp_path: Path) -> None:
    own = entry()
    own["OPERATINGSYSTEMS"] = own.pop("operatingSystems")
    own["offerings"] = [{key.lower(): value for key, value in own["offerings"][0].items()}]
    own["comment"] = "mine"
    (one,) = load(written(tmp_path / "types.json", [own])).types
    assert offering_price(one, "test-zone-a", "on-demand") == 0.096


def test_pods_are_110_and_an_offering_is_available_where_nothing_is_said(tmp_path: Path) -> None:
    own = entry()
    del own["offerings"][0]["Available"]
    (one,) = load(written(tmp_path / "types.json", [own])).types
    assert one.capacity["pods"] == 110
    assert len(by_price([one])) == 1


def test_an_offering_may_be_sold_out(tmp_path: Path) -> None:
    own = entry()
    own["offerings"][0]["Available"] = False
    (one,) = load(written(tmp_path / "types.json", [own])).types
    assert by_price([one]) == []
    assert one.requirements[names.ZONE_LABEL].single_value == "test-zone-a"


def test_a_key_that_offerings_speak_of_is_well_known(tmp_path: Path) -> None:
    own = entry()
    own["offerings"][0]["Requirements"].append({"key": "example.com/rack", "operator": "In", "values": ["7"]})
    assert "example.com/rack" in load(written(tmp_path / "types.json", [own])).well_known_labels


FAMILIES = {
    "EC2 has family.size": ("m5.24xlarge", "m5", "24xlarge"),
    "EC2 has bare metal": ("m5.metal", "m5", "metal"),
    "GCP has the family before a dash": ("n2-standard-4", "n2", "2"),
    "Azure has neither": ("StandardD4", "S", "2"),
}


@pytest.mark.parametrize(("name", "family", "size"), FAMILIES.values(), ids=FAMILIES)
def test_family_and_size_come_from_the_name(tmp_path: Path, name: str, family: str, size: str) -> None:
    (one,) = load(written(tmp_path / "types.json", [entry(name)])).types
    assert one.requirements[names.KWOK_INSTANCE_FAMILY_LABEL].single_value == family
    assert one.requirements[names.KWOK_INSTANCE_SIZE_LABEL].single_value == size


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(own: dict[str, Any]) -> None:
        target: Any = own
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return change


def without(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(own: dict[str, Any]) -> None:
        target: Any = own
        for step in path[:-1]:
            target = target[step]
        del target[path[-1]]

    return change


ZONE_VALUES = ("offerings", 0, "Requirements", 1, "values")
KIND_VALUES = ("offerings", 0, "Requirements", 0, "values")

BAD = {
    "no name": (without("name"), "name: is required"),
    "a name that is no label value": (put("name", value="my type"), 'name: "my type" is not the value of a label'),
    "no architecture": (without("architecture"), "architecture: is required"),
    "no systems": (
        put("operatingSystems", value=[]),
        "operatingsystems: must be a list with at least one operating system",
    ),
    "a system that is a number": (
        put("operatingSystems", value=[7]),
        "operatingsystems[0]: must be a string, not an integer",
    ),
    "no resources": (without("resources"), "resources: is required"),
    "no memory": (without("resources", "memory"), "resources.memory: is required"),
    "cpu that is no quantity": (put("resources", "cpu", value="two"), "resources: 'two' is not a quantity"),
    "cpu that is a list": (
        put("resources", "cpu", value=[2]),
        "resources.cpu: must be a quantity like 4 or 16Gi, is [2]",
    ),
    "no cpu at all": (put("resources", "cpu", value=0), "resources.cpu: is 0, must be more than 0"),
    "negative pods": (put("resources", "pods", value="-1"), "resources.pods: is -1, must be more than 0"),
    "no offerings": (without("offerings"), "offerings: is required"),
    "an offering that is a text": (put("offerings", 0, value="spot"), "offerings[0]: must be an object, not a string"),
    "no price": (
        without("offerings", 0, "Price"),
        "offerings[0].price: is required",
    ),
    "a price that no number holds": (
        put("offerings", 0, "Price", value=10**400),
        "is more than the maximum 1000000000",
    ),
    "a price in words": (put("offerings", 0, "Price", value="0.1"), "offerings[0].price: must be"),
    "a negative price": (
        put("offerings", 0, "Price", value=-1),
        "offerings[0].price: -1 is less than the minimum 0",
    ),
    "availability in words": (
        put("offerings", 0, "Available", value="yes"),
        "offerings[0].available: must be a boolean, not a string",
    ),
    "no requirements": (
        without("offerings", 0, "Requirements"),
        "offerings[0].requirements: is required",
    ),
    "no zone": (
        without("offerings", 0, "Requirements", 1),
        "offerings[0].requirements: must fix topology.kubernetes.io/zone to one value",
    ),
    "two zones": (
        put(*ZONE_VALUES, value=["a", "b"]),
        "offerings[0].requirements: must fix topology.kubernetes.io/zone to one value",
    ),
    "no zone value": (
        put(*ZONE_VALUES, value=[]),
        "offerings[0].requirements[1].values: operator In needs at least one",
    ),
    "a zone that is a number": (
        put(*ZONE_VALUES, value=[1]),
        "offerings[0].requirements[1].values[0]: must be a string",
    ),
    "zones that are no list": (
        put(*ZONE_VALUES, value="a"),
        "offerings[0].requirements[1].values: must be a list, not a string",
    ),
    "an unknown operator": (
        put("offerings", 0, "Requirements", 1, "operator", value="Is"),
        "offerings[0].requirements[1].operator: 'Is' is unknown",
    ),
    "an operator that is a number": (
        put("offerings", 0, "Requirements", 1, "operator", value=1),
        "offerings[0].requirements[1].operator: must be a string",
    ),
    "a key that is no label": (
        put("offerings", 0, "Requirements", 1, "key", value="a b"),
        'offerings[0].requirements[1].key: "a b" is not a qualified name',
    ),
    "an unknown capacity type": (
        put(*KIND_VALUES, value=["cheap"]),
        "karpenter.sh/capacity-type must be one of on-demand, reserved, spot, is cheap",
    ),
}


@pytest.mark.parametrize(("change", "problem"), BAD.values(), ids=BAD)
def test_a_bad_entry_is_reported_and_left_out_and_the_others_work(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    bad = copy.deepcopy(entry("bad.large"))
    change(bad)
    path = written(tmp_path / "types.json", [entry("a.large"), bad, entry("z.large")])
    catalogue = load(path)
    assert [one.name for one in catalogue.types] == ["a.large", "z.large"]
    (left_out,) = catalogue.left_out
    sentence = str(left_out)
    assert sentence.startswith(f"instance types file {path}: entry [1]")
    assert "is ignored: " in sentence
    assert problem in sentence


def test_an_entry_that_is_no_object_is_left_out(tmp_path: Path) -> None:
    catalogue = load(written(tmp_path / "types.json", [entry(), None, "m5"]))
    assert [left_out.entry for left_out in catalogue.left_out] == [1, 2]


def test_the_second_of_one_name_is_left_out(tmp_path: Path) -> None:
    catalogue = load(written(tmp_path / "types.json", [entry(), entry()]))
    assert len(catalogue.types) == 1
    assert "entry [1] (m5.large) is ignored: name: another entry has the same name" in str(catalogue.left_out[0])


USELESS: dict[str, tuple[object, str]] = {
    "no JSON": ("[{", "is not JSON"),
    "JSON that is nested too deeply": ("[" * 5000 + "]" * 5000, "is not JSON"),
    "an object": ({"types": []}, "must be a JSON list of instance types"),
    "an empty list": ([], "has no usable instance type among 0 entries"),
    "only bad entries": ([{"name": "a"}], "has no usable instance type among 1 entries; the first: "),
}


@pytest.mark.parametrize(("content", "problem"), USELESS.values(), ids=USELESS)
def test_a_file_without_one_good_entry_is_an_error(tmp_path: Path, content: object, problem: str) -> None:
    path = written(tmp_path / "types.json", content)
    with pytest.raises(CatalogueError) as caught:
        load(path)
    assert str(caught.value).startswith(f"instance types file {path}: {problem}")


def test_a_missing_file_is_an_error_that_says_where_it_is_set(tmp_path: Path) -> None:
    with pytest.raises(
        CatalogueError, match="cannot be read: No such file or directory; check INSTANCE_TYPES_FILE_PATH"
    ):
        load(str(tmp_path / "none.json"))


def test_offerings_in_one_place_keep_one_object_of_requirements() -> None:
    offerings = [one.requirements for kind in generated().types for one in kind.offerings]
    assert len(set(map(id, offerings))) == len(set(offerings)) == 8
