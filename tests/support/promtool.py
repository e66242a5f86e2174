"""Prometheus' own tool, which evaluates our rules: over series of a file, or over pages that were scraped."""

import math
import os
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

from provisioner.lab.devcluster.binaries import find
from provisioner.lab.devcluster.building import GoBuild
from provisioner.lab.devcluster.versions import PROMTOOL
from provisioner.lab.monitoring.rules import ALERTS
from tests.support.skips import built

RULES: Final = Path(__file__).parents[2] / "manifests" / "monitoring" / "rules" / "dovetail.yaml"
LONG, LATE = 120, 8
"""Minutes: a page is served for longer than any alert waits; what is different in `before` changed late, but longer ago than such alerts wait."""


def promtool() -> Path:
    """The program, built where it is missing: minutes, once a machine. The test is skipped where it cannot be built."""
    return built(_tools)[PROMTOOL]


def _tools() -> Mapping[str, Path]:
    return find(GoBuild(os.environ, tools=True), os.environ, names=[PROMTOOL]).paths


def run(*arguments: str | Path) -> str:
    """What it writes; fails with it when its status is not 0."""
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def judge(
    directory: Path,
    pages: Mapping[str, str],
    *,
    firing: Collection[str] = (),
    silent: Collection[str] = (),
    before: Mapping[str, str] | None = None,
    now: float = 0.0,
) -> None:
    """These alerts fire, and those do not, where the programs at these addresses serve these pages for two hours from `now` on.

    Args:
        directory: where a file may be left.
        pages: in Prometheus' text format, by instance; none at all is a Prometheus that reaches nobody.
        firing, silent: names of alerts.
        before: what they served until eight minutes before the end, where that was something else.
        now: Unix time.
    """
    unknown = {*firing, *silent} - {alert.name for alert in ALERTS}
    assert not unknown
    test = {
        "interval": "1m",
        "start_timestamp": int(now),
        "input_series": [
            series
            for instance, page in pages.items()
            for series in _series(instance, page, (before or pages).get(instance, ""))
        ],
        "promql_expr_test": [
            {
                "expr": f'(count(ALERTS{{alertname="{name}", alertstate="firing"}}) > bool 0) or vector(0)',
                "eval_time": f"{LONG - 1}m",
                "exp_samples": [{"labels": "{}", "value": int(name in firing)}],
            }
            for name in (*firing, *silent)
        ],
    }
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    path = directory / "rules-test.yaml"
    path.write_text(yaml.safe_dump(document))
    run("test", "rules", path)


def _series(instance: str, page: str, before: str) -> Iterator[dict[str, Any]]:
    was = _samples(instance, before)
    for name, value in _samples(instance, page).items():
        first = f"{was[name]!r}" if name in was else "_"
        yield {"series": name, "values": f"{first}x{LONG - LATE} {value!r}x{LATE}"}


def _samples(instance: str, page: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if value} | {"instance": instance}
            text = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
            if math.isfinite(sample.value):  # promtool can write no other
                found[f"{sample.name}{{{text}}}"] = sample.value
    return found


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
