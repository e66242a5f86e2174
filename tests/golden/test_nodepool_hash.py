"""The hashes that existing clusters carry, bit for bit; a wrong one would replace every node of a pool."""

import json
import pathlib
from typing import Any

import msgspec
import pytest

from provisioner.apis.hash import HASH_VERSION, nodepool_hash
from provisioner.apis.karpenter import NodeClaimTemplate

ROWS: list[dict[str, Any]] = json.loads(
    (pathlib.Path(__file__).parents[1] / "data" / "golden-hashes.json").read_text(encoding="utf-8")
)


def hash_of(wire: Any) -> str:
    return nodepool_hash(msgspec.convert(wire, NodeClaimTemplate))


def test_there_are_97_rows_of_version_3() -> None:
    assert (len(ROWS), HASH_VERSION) == (97, "v3")


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_the_hash_of_a_template(row: dict[str, Any]) -> None:
    assert hash_of(row["template"]) == row["hash"]


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_the_hash_survives_a_round_trip_through_the_types(row: dict[str, Any]) -> None:
    template = msgspec.convert(row["template"], NodeClaimTemplate)
    again = msgspec.json.decode(msgspec.json.encode(template), type=NodeClaimTemplate)
    assert nodepool_hash(again) == row["hash"]
