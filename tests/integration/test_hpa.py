"""The HPA loop on a real control plane with metrics-server: the workload of manifests/examples/hpa-workload.yaml.

As it was published, but its HPA takes 30 % of the replicas away in 20 seconds instead of 60, and waits as long before: how fast pods become fewer is
nothing of ours. A HPA that does not see what pods use keeps one replica, a provisioner that does not follow leaves pods pending, one that does not
consolidate leaves four nodes.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import parse

import pytest

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.metrics import API_SERVICE
from provisioner.lab.harness.scoreboard import RunCounts
from provisioner.lab.harness.table import Show
from provisioner.lab.hpa import run_hpa
from provisioner.lab.progress import progress_for
from tests.support.eventually import eventually

pytestmark = [pytest.mark.plane, pytest.mark.timeout(2400)]  # metrics-server is built first, beside other tests

FALL_SECONDS = 20.0
SVG = "{http://www.w3.org/2000/svg}"


@contextlib.contextmanager
def unseen() -> Iterator[Show]:
    def show(seconds: float, counts: RunCounts) -> None:
        pass

    yield show


def test_pods_follow_the_load_and_nodes_follow_the_pods(tmp_path: Path) -> None:
    said: list[str] = []
    figures = run_hpa(said.append, unseen, tmp_path, progress_for(sys.__stderr__), fall_seconds=FALL_SECONDS)
    lines = "\n".join((*said, *(figure.line() for figure in figures)))
    assert not [figure.line() for figure in figures if figure.met is False], lines
    found = {figure.name: figure.value for figure in figures}
    assert found["nodes under load"] <= 5, lines
    root = parse(tmp_path / "hpa.svg").getroot()
    assert len(list(root.iter(f"{SVG}polyline"))) == 5


def test_metrics_come_and_go_with_the_clusters_data(env: dict[str, str]) -> None:
    cluster = DevCluster("comes", env=env, metrics=True, progress=progress_for(sys.__stderr__))
    cluster.up()
    cluster.kubectl("create", "namespace", "kept")
    assert '"usages"' in cluster.kubectl("get", "clusterresourceusage", "usage", "-o", "json")
    cluster.kubectl("patch", "clusterresourceusage", "usage", "--type=merge", "-p", '{"spec": {"usages": []}}')
    assert not DevCluster("comes", env=env).up(), "it is up, as it was"

    without = DevCluster("comes", env=env, metrics=False)
    assert without.up(), "started anew"
    assert "metrics-server" not in [entry.name for entry in without.status()]
    assert API_SERVICE not in without.kubectl("get", "apiservices", "-o", "name")
    without.kubectl("delete", "namespace", "kept", "--timeout=60s")

    again = DevCluster("comes", env=env, metrics=True)
    again.up()
    assert again.is_up
    available = ("get", "apiservice", API_SERVICE, "-o", 'jsonpath={.status.conditions[?(@.type=="Available")].status}')
    eventually(lambda: again.kubectl(*available) == "True", "the API server reaches metrics-server", seconds=60)
    usages = again.kubectl("get", "clusterresourceusage", "usage", "-o", "jsonpath={.spec.usages}")
    assert usages == "[]", "what a user wrote stays"
