"""The catalogue against the published reference of instance types (AL2023, default settings): equal but for what is listed."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from provisioner.apis import ec2
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2.access import wire
from provisioner.ec2.market import instance_types, static_data
from tests.support import ec2pages
from tests.support.ec2 import nodes

DATA = Path(__file__).parents[3] / "data" / "aws"
CLOCK = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz"
POD_ENI = "vpc.amazonaws.com/pod-eni"
GPUS = "nvidia.com/gpu"
NAME = "instance_type"


@functools.cache
def published() -> dict[str, dict[str, str]]:
    return {row[NAME]: dict(row) for row in static_data.published_types()}


@functools.cache
def ours() -> dict[str, InstanceType]:
    shape = instance_types.Shape(family=ec2.AL2023, zones=(("us-east-1a", "use1-az1"),))
    settings = instance_types.MarketSettings("us-east-1")
    infos = [
        info
        for page in ec2pages.type_pages(ec2pages.described_types().values())
        for info in wire.instance_types(page)[0]
    ]
    return {
        info.name: instance_types.type_of(info, ["us-east-1a"], shape, settings)
        for info in infos
        if instance_types.usable(info)
    }


def shown(instance_type: InstanceType, column: str) -> str:
    """What we say where the reference has a column: a label, or an allocatable amount."""
    if column in instance_type.requirements:
        return instance_type.requirements[column].single_value or ""
    return instance_type.allocatable.to_wire().get(column, "")


@functools.cache
def differences() -> Mapping[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for name, row in published().items():
        mine = ours().get(name)
        if mine is None:
            found.setdefault(NAME, {})[name] = [name, ""]
            continue
        for column, value in row.items():
            if column != NAME and shown(mine, column) != value:
                found.setdefault(column, {})[name] = [value, shown(mine, column)]
    return found


def test_every_difference_is_listed_with_its_reason() -> None:
    listed = json.loads((DATA / "published-differences.json").read_text())
    assert {column: entry["rows"] for column, entry in listed.items()} == differences()
    assert all(entry["reason"] for entry in listed.values())


def test_at_least_1350_rows_are_equal_but_for_three_columns() -> None:
    known = {CLOCK, POD_ENI, GPUS}
    differing = {name for column, rows in differences().items() if column not in known for name in rows}
    assert len(published()) - len(differing) >= 1350
    assert len(differences()[CLOCK]) <= 66
    assert len(differences()[POD_ENI]) <= 56
    assert differences()[GPUS].keys() == nodes.GPU_SHARES.keys()


def test_every_column_of_the_reference_is_compared_with_something_of_ours() -> None:
    columns = set(next(iter(published().values()))) - {NAME}
    used = {column for column in columns for mine in ours().values() if shown(mine, column)}
    assert used == columns - {"amd.com/gpu"}  # the only types with AMD GPUs, g4ad, are not in moto's data
