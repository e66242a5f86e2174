"""The alerts' runbooks, and what kustomize is told to install."""

import re
from pathlib import Path

import pytest
import yaml

from provisioner.lab.monitoring import dashboards, rules

REPOSITORY = Path(__file__).parents[4]
SECTIONS = dict(
    re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", (REPOSITORY / rules.RUNBOOKS).read_text(), re.DOTALL | re.MULTILINE)
)
GUIDE = (REPOSITORY / "docs" / "guides" / "monitoring.md").read_text()
TESTED = {
    test["name"].partition(",")[0]
    for test in yaml.safe_load((REPOSITORY / "tests" / "data" / "alerts.yaml").read_text())["tests"]
}
ALERTS = {alert.name: alert for alert in rules.ALERTS}


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS.keys())
def test_an_alert_has_a_runbook_a_test_and_a_row(alert: rules.Alert) -> None:
    section = SECTIONS[alert.name]
    for part in ("**Symptom.**", "**Command.**", "**Fix.**"):
        assert part in section
    annotations = alert.rule()["annotations"]
    assert annotations["runbook_url"] == f"{rules.RUNBOOKS}#{alert.name.lower()}"
    assert alert.name in TESTED
    assert f"| [{alert.name}](runbooks.md#{alert.name.lower()}) | {alert.severity} |" in GUIDE


def test_no_runbook_is_about_an_alert_that_is_gone() -> None:
    assert list(SECTIONS) == list(ALERTS)


def test_there_are_not_too_many() -> None:
    assert 8 <= len(ALERTS) <= 12


def test_every_dashboard_is_installed() -> None:
    kustomization = yaml.safe_load((REPOSITORY / "manifests" / "monitoring" / "kustomization.yaml").read_text())
    (generator,) = kustomization["configMapGenerator"]
    assert generator["files"] == [f"dashboards/{one.name}.json" for one in dashboards.DASHBOARDS]
