"""The provisioner's metrics against the table of Karpenter's: names, types and labels."""

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import provisioner
from provisioner.lab.reference import controllers
from provisioner.lab.reference import metrics as reference
from provisioner.observability.collector import announce_build
from provisioner.observability.conditions import condition_lines
from provisioner.support import metrics
from tests.support.clock import NOON
from tests.support.cluster import claim
from tests.support.metricfamilies import families

TABLE = json.loads((Path(__file__).parents[2] / "data" / "karpenter-1.15-metrics.json").read_text())["families"]
KARPENTERS = {row["name"]: row for row in TABLE}
FLAWS = (Path(__file__).parents[3] / "docs" / "known-flaws.md").read_text()


def test_every_series_of_karpenter_is_here_with_its_kind_and_labels_or_a_known_flaw() -> None:
    known, missing = families(), []
    for name, row in KARPENTERS.items():
        found = known.get(name)
        if found is None:
            missing.append(name)
            continue
        kind, labels = found
        assert (kind, labels) == (row["type"], frozenset(row["labels"])), name
    absent = "".join(line for line in FLAWS.splitlines() if line.startswith("| metrics | these series"))
    assert set(re.findall(r"`(\w+)`", absent)) & KARPENTERS.keys() == set(missing)


def test_a_controller_has_one_name_wherever_it_is_told() -> None:
    """The controllers that call the cloud provider, in its metrics and in those of reconciliations."""
    sources = [path.read_text() for path in Path(provisioner.__path__[0]).rglob("*.py") if "lab" not in path.parts]
    told = {
        name
        for text in sources
        for name in re.findall(r'provider_for\("([^"]+)"\)|CONTROLLER: Final = "([^"]+)"', text)
    }
    names_told = {name for pair in told for name in pair if name} - {"why"}  # not a controller: questions of users
    assert names_told <= controllers.controllers("aws").keys()


def test_the_build_is_announced() -> None:
    announce_build("abc")
    (family,) = [
        one
        for one in text_string_to_metric_families(b"".join(metrics.chunks()).decode())
        if one.name == "karpenter_build_info"
    ]
    (sample,) = [one for one in family.samples if one.labels["commit"] == "abc"]
    assert sample.value == 1
    assert sample.labels["goversion"].startswith("python3.")


def test_a_condition_is_told_since_when() -> None:
    one = claim("a", true=("Ready",))
    lines = list(condition_lines([one], NOON.replace(minute=1)))
    wanted = 'namespace="",name="a",type="Ready",status="True",reason="Ready"} '
    typed = 'namespace="",name="a",karpenter_k8s_aws_ec2nodeclass="",karpenter_sh_nodepool="general",type="Ready",status="True",reason="Ready"} '
    assert f"operator_nodeclaim_status_condition_count{{{typed}1.0\n" in lines
    assert f"operator_nodeclaim_status_condition_current_status_seconds{{{typed}60.0\n" in lines
    group = 'operator_status_condition_count{group="karpenter.sh",kind="NodeClaim",'
    assert f"{group}{wanted}1.0\n" in lines


def test_the_reference_page_has_every_family_of_the_table() -> None:
    page = reference.text()
    assert [name for name in KARPENTERS if f"`{name}`" not in page + FLAWS] == []
