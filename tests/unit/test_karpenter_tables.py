"""What Karpenter publishes against what is here: fields of definitions, flags and gates; each difference has its reason in one list. And the rows of its specs.

A new release is a new set of tables. Its metrics: runtime/test_metrics_table.py. Values of its chart: lab/test_charts.py.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from provisioner.apis.crds import documents
from provisioner.options import AwsFeatureGates, FeatureGates, Options, command
from tests.scenarios.tables import ROWS

DATA = Path(__file__).parents[1] / "data"
RELEASE = "1.15"
REASONS = DATA / f"karpenter-{RELEASE}-differences.txt"
OURS_ALONE = "KWOKNodeClass"
"""A kind whose definition the provider of AWS does not ship."""


def lines(path: Path) -> list[str]:
    return [one for one in path.read_text(encoding="utf-8").splitlines() if not one.startswith("#")]


def published(table: str) -> list[str]:
    return lines(DATA / f"karpenter-{RELEASE}-{table}.txt")


def walked(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """The fields below a node of a schema: lists are [], maps of anything are {}."""
    for value in schema.get("enum", ()):
        yield f"{path} = {value}"
    if schema.get("type") == "array" and "items" in schema:
        yield from walked(schema["items"], f"{path}[]")
    elif isinstance(free := schema.get("additionalProperties"), dict):
        yield from walked(free, f"{path}{{}}")
    required = schema.get("required", ())
    for name, one in schema.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        yield below + (" required" if name in required else "")
        if "type" in one:
            yield f"{below} : {one['type']}"
        if "default" in one:
            yield f"{below} default {json.dumps(one['default'], sort_keys=True)}"
        yield from walked(one, below)


def fields() -> Iterator[str]:
    for document in documents().values():
        for version in document["spec"]["versions"]:
            kind = f"{document['spec']['names']['kind']}/{version['name']}"
            for row in walked(version["schema"]["openAPIV3Schema"], ""):
                if row.startswith(("spec", "status")) and not kind.startswith(OURS_ALONE):
                    yield f"{kind} {row}"


def flags() -> Iterator[str]:
    """Those whose variable has no prefix of ours."""
    for one in command().params:
        if not str(one.envvar).startswith("DOVETAIL_"):
            yield f"{one.opts[0]} {one.envvar}"


def gates() -> Iterator[str]:
    for flag, known in (("--feature-gates", FeatureGates()), ("--aws-feature-gates", AwsFeatureGates())):
        yield from (f"{flag} {one}" for one in str(known).split(","))


def differences(table: str, ours: Iterable[str], theirs: Iterable[str]) -> set[str]:
    here, there = set(ours), set(theirs)
    return {f"{table} - {one}" for one in there - here} | {f"{table} + {one}" for one in here - there}


def test_each_difference_has_its_reason_and_each_reason_its_difference() -> None:
    found = (
        differences("fields", fields(), published("fields"))
        | differences("flags", flags(), (" ".join(one.split()[:2]) for one in published("flags")))
        | differences("gates", gates(), published("gates"))
    )
    told = dict(one.split(": ", 1) for one in lines(REASONS))
    assert found - told.keys() == set(), "differences without a reason"
    assert told.keys() - found == set(), "reasons of what does not differ"
    assert all(len(reason.split()) > 3 for reason in told.values())


def test_each_spec_has_a_row_or_a_test() -> None:
    names = {one.name for one in ROWS}
    found = [tuple(one.split(" > ", 1)) for one in published("specs")]
    assert [row for _, row in found if row not in names and not (DATA.parents[1] / row[1:-1]).is_file()] == []
    assert len({spec for spec, _ in found}) == len(found)


@pytest.mark.parametrize("name", ["fields", "flags", "gates", "differences", "specs"])
def test_tables_are_sorted(name: str) -> None:
    rows = lines(DATA / f"karpenter-{RELEASE}-{name}.txt")
    assert rows == sorted(set(rows))


FLAGS = [one.split(" ", 2) for one in published("flags")]


@pytest.mark.parametrize("row", FLAGS, ids=[row[0] for row in FLAGS])
def test_a_setting_has_karpenters_default(row: list[str]) -> None:
    flag, variable, *default = row
    given = default[0] if default else ""
    usual = Options.parse([], {})
    if given:
        assert Options.parse([f"{flag}={given}"], {}) == usual
        assert Options.parse([], {variable: given}) == usual
    else:
        assert Options.parse([], {variable: given}) == usual
