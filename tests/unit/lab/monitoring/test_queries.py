"""Every series and label that an alert or a dashboard asks for exists, ours and Karpenter's."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.lab.monitoring import dashboards, rules
from tests.support import promql
from tests.support.metricfamilies import Family, families

REPOSITORY = Path(__file__).parents[4]
REFERENCE = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text()
MONITORS = list(yaml.safe_load_all((REPOSITORY / "manifests" / "monitoring" / "service-monitors.yaml").read_text()))
THEIRS = json.loads((REPOSITORY / "tests" / "data" / "karpenter-dashboards.json").read_text())["dashboards"]
TARGET = {"instance", "job"}
"""Labels that Prometheus adds to whatever it scrapes."""
OF_COUNTERS = {"rate", "increase", "irate", "resets"}
PARTS = {"_bucket": {"le"}, "_sum": set(), "_count": set()}
ALERTS = {alert.name: alert for alert in rules.ALERTS}
PANELS = {
    f"{board.name}: {panel.title}: {expr}": (expr, legend)
    for board in dashboards.DASHBOARDS
    for panel in board.panels
    for expr, legend in panel.queries
}


def series(name: str) -> tuple[str, set[str]]:
    """Kind and labels of a series, of which a histogram's parts have names of their own; fails where there is none."""
    known: Mapping[str, Family] = families()
    for ending, more in PARTS.items():
        family = known.get(name.removesuffix(ending))
        if name.endswith(ending) and family is not None and family.kind in {"histogram", "summary"}:
            return "counter", {*family.labels, *more, *TARGET}
    family = known[name]
    own = {"quantile"} if family.kind == "summary" else set()
    return family.kind, {*family.labels, *own, *TARGET}


def judge(expr: str, *, shown: str = "") -> None:
    """An expression asks for what there is, and a rate is one of a counter; `shown` is a text with {{labels}}."""
    query = promql.read(expr)
    assert query.asked
    labels: set[str] = set()
    for asked in query.asked:
        kind, has = series(asked.name)
        assert asked.labels <= has, asked
        assert (asked.function in OF_COUNTERS) <= (kind == "counter"), f"{asked.function} of a {kind}: {asked.name}"
        labels |= has
    assert query.grouped <= labels, query
    assert set(re.findall(r"\{\{(?: \$labels\.)?(\w+)", shown)) <= labels | query.made, shown


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS.keys())
def test_an_alert_asks_for_what_there_is(alert: rules.Alert) -> None:
    judge(alert.expr, shown=re.sub(r"\{\{ \$value.*?\}\}", "", alert.summary + alert.description))


@pytest.mark.parametrize("query", PANELS.values(), ids=PANELS.keys())
def test_a_panel_asks_for_what_there_is(query: tuple[str, str]) -> None:
    expr, legend = query
    judge(expr, shown=legend)


def test_every_metric_of_a_query_is_in_the_reference() -> None:
    asked = {one.name for expr in every_expression() for one in promql.read(expr).asked}
    parts = re.compile("|".join(f"{ending}$" for ending in PARTS))
    missing = [name for name in asked if f"`{parts.sub('', name)}`" not in REFERENCE and f"`{name}`" not in REFERENCE]
    assert missing == ["process_resident_memory_bytes"]  # of Prometheus' client, as in every program


def every_expression() -> Iterator[str]:
    yield from (alert.expr for alert in rules.ALERTS)
    yield from rules.RECORDED.values()
    yield from (expr for expr, _ in PANELS.values())


def test_the_judge_finds_what_is_wrong() -> None:
    for wrong in (
        "karpenter_nodes_created",
        'karpenter_nodes_created_total{pool="a"}',
        "sum by (pool) (karpenter_nodes_created_total)",
        "rate(karpenter_cluster_state_node_count[5m])",
    ):
        with pytest.raises((AssertionError, KeyError)):
            judge(wrong)


@pytest.mark.parametrize("board", THEIRS.values(), ids=THEIRS.keys())
def test_karpenters_dashboards_find_their_series(board: Mapping[str, Any]) -> None:
    """Under the names of now, or recorded by our rules under those that Karpenter gave up."""
    for name, wanted in board["series"].items():
        for label in wanted:
            key, _, value = label.partition("=")
            assert key in labels_of(name), f"{name}: {label}"
            assert not value or (key, value) == ("job", job_of_the_provisioner())


def labels_of(name: str) -> set[str]:
    """The labels of a series that is served or recorded."""
    if name not in rules.RECORDED:
        return series(name)[1]
    query = promql.read(rules.RECORDED[name])
    assert name not in families(), "recorded, but there is one"
    (asked,) = query.asked
    return series(asked.name)[1] | query.made


def job_of_the_provisioner() -> str:
    """What the ServiceMonitor makes of the label job."""
    (monitor,) = [
        one for one in MONITORS if one["kind"] == "ServiceMonitor" and one["metadata"]["name"] == "dovetail-provisioner"
    ]
    (job,) = [
        one["replacement"] for one in monitor["spec"]["endpoints"][0]["relabelings"] if one["targetLabel"] == "job"
    ]
    return str(job)


def test_a_dashboard_is_a_grid_without_overlap_and_has_everything_that_grafana_asks_for() -> None:
    for name, board in dashboards.documents().items():
        places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in board["panels"]]
        assert len(set(places)) == len(places), name
        assert len({one["id"] for one in board["panels"]}) == len(places)
        assert all(x + 12 <= 24 for x, _ in places)
        assert board["uid"] == name
        assert len(name) <= 40
