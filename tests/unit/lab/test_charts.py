"""The charts are made from the manifests and from the provisioner's settings; what no value stands for is said, with the reason."""

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest

from provisioner.lab.charts import karpenter
from provisioner.lab.charts.rows import ELSEWHERE, SETTINGS
from provisioner.lab.charts.tree import ComponentError, Tree, read
from provisioner.lab.charts.writing import left_over
from provisioner.lab.harness.workload import REPOSITORY
from provisioner.options import Options, command

MANIFESTS = REPOSITORY / "manifests"
CHART = MANIFESTS / "charts" / "dovetail"
NOTES = (CHART / "templates" / "NOTES.txt").read_text(encoding="utf-8")


def schema() -> dict[str, Any]:
    found = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def known(path: str) -> dict[str, Any] | None:
    """What the schema says of one value; None where there is no such value. A value whose keys are free has all of them."""
    found: dict[str, Any] | None = schema()
    for key in path.split("."):
        if found is None or (found.get("type") == "object" and "properties" not in found):
            return found
        found = found["properties"].get(key)
    return found


def test_every_flag_of_the_provisioner_is_a_setting_or_has_another_place() -> None:
    flags = {
        one.opts[0].removeprefix("--") for one in command().params if isinstance(one, click.Option) and not one.hidden
    }
    assert {one.variable for one in SETTINGS} <= {
        str(one.envvar) for one in command().params if isinstance(one, click.Option)
    }
    assert len(SETTINGS) + len(ELSEWHERE) == len(flags)
    assert ELSEWHERE.keys() <= flags
    for place in ELSEWHERE.values():
        assert " " in place or known(place) is not None, place


def test_the_defaults_that_values_yaml_tells_are_those_of_the_provisioner() -> None:
    variables = {one.variable: one.default for one in SETTINGS if one.default and one.kind != "YAML"}
    assert Options.parse([], variables) == Options()


@pytest.mark.parametrize("version", karpenter.VERSIONS)
def test_every_value_of_karpenter_s_chart_is_taken_or_renamed_or_refused_with_a_reason(version: str) -> None:
    verdicts = {one.key: one for one in karpenter.verdicts()}
    keys = karpenter.keys(version)
    assert len(keys) > 70
    assert keys.keys() <= verdicts.keys()
    for key in keys:
        one = verdicts[key]
        match one.status:
            case "taken":
                assert known(key), key
            case "accepted":
                assert f"{key} is accepted but has no effect: {one.reason}" in NOTES, key
            case "renamed":
                assert known(one.now), key
                assert not one.reason
            case "refused":
                assert len(one.reason.split()) > 3, key
                assert not one.now


def test_what_is_said_of_karpenter_s_values_is_about_values_that_it_has() -> None:
    written = json.loads((REPOSITORY / "tests/data/karpenter-chart-verdicts.json").read_text(encoding="utf-8"))[
        "values"
    ]
    assert written.keys() == {one.key for one in karpenter.verdicts()}
    for version in karpenter.VERSIONS:
        table = json.loads((REPOSITORY / f"tests/data/karpenter-chart-{version}.json").read_text(encoding="utf-8"))
        assert table["version"].startswith(version)
        assert table["source"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("base", "components", "scheduler"):
        shutil.copytree(MANIFESTS / name, tmp_path / name)
    return tmp_path


def test_a_component_without_a_value_is_an_error(tree: Path) -> None:
    shutil.copytree(tree / "components" / "surge", tree / "components" / "new")
    with pytest.raises(ComponentError, match="components without a value: new"):
        read(Tree(tree, {}))


def test_a_change_that_the_charts_have_no_place_for_is_an_error(tree: Path) -> None:
    file = tree / "components" / "kwok" / "kustomization.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("op: add", "op: replace"), encoding="utf-8")
    with pytest.raises(ComponentError, match="no place for replace of /spec/template"):
        read(Tree(tree, {}))


def test_templates_whose_source_is_gone_are_found(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "charts" / "dovetail")
    wanted = {path.relative_to(tmp_path) for path in (tmp_path / "charts").rglob("*") if path.is_file()}
    assert left_over(tmp_path, wanted) == []
    gone = Path("charts/dovetail/templates/base/webhook.yaml")
    assert left_over(tmp_path, wanted - {gone}) == [gone]
    assert left_over(tmp_path, wanted - {Path("charts/dovetail/templates/NOTES.txt")}) == [], "people wrote that"
