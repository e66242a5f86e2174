"""The hashes that existing clusters carry, bit for bit; a wrong one would replace every node of a class."""

import json
import pathlib
from typing import Any

import msgspec
import pytest

from provisioner.apis.ec2 import EC2NodeClassSpec
from provisioner.apis.ec2_hash import FORMER_VERSION, HASH_VERSION, former_hash, nodeclass_hash

DATA = pathlib.Path(__file__).parents[1] / "data"
VERSIONS = {FORMER_VERSION: former_hash, HASH_VERSION: nodeclass_hash}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{version}: {row['name']}": (version, row)
    for version in VERSIONS
    for row in json.loads((DATA / f"golden-nodeclass-hashes-{version}.json").read_text(encoding="utf-8"))
}


def test_every_row_of_both_versions_is_there() -> None:
    assert {version: sum(one == version for one, _ in ROWS.values()) for version in VERSIONS} == {"v5": 89, "v6": 107}


@pytest.mark.parametrize("name", ROWS)
def test_the_hash_of_a_class(name: str) -> None:
    version, row = ROWS[name]
    spec = msgspec.convert(row["spec"], EC2NodeClassSpec)
    assert VERSIONS[version](spec, row.get("caBundle", "")) == row["hash"]


@pytest.mark.parametrize("name", ROWS)
def test_the_hash_survives_a_round_trip_through_the_types(name: str) -> None:
    version, row = ROWS[name]
    spec = msgspec.convert(row["spec"], EC2NodeClassSpec)
    again = msgspec.json.decode(msgspec.json.encode(spec), type=EC2NodeClassSpec)
    assert VERSIONS[version](again, row.get("caBundle", "")) == row["hash"]
