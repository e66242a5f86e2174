"""Flags of the provisioner as whoever runs it meets them: the real program on a real control plane."""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from provisioner.apis.reports import REPORTS_URL_ANNOTATION
from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import LEASES
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.eventually import PATIENCE, eventually
from tests.support.ports import free_port

pytestmark = pytest.mark.plane


class Running:
    """One provisioner with flags of a test; its logs are files."""

    def __init__(self, cluster: DevCluster, folder: Path, *flags: str) -> None:
        self.logs, self.failures = folder / "log", folder / "failures"
        self._output = (folder / "output").open("wb")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "provisioner.cli.main", "provisioner"),
                *("--kubeconfig", str(cluster.kubeconfig), "--bind-address=127.0.0.1", "--report-port=0"),
                *(f"--log-output-paths={self.logs}", f"--log-error-output-paths={self.failures}"),
                *flags,
            ],
            stdout=self._output,
            stderr=self._output,
        )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20 * PATIENCE)
        self._output.close()

    def records(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.logs.read_text().splitlines()] if self.logs.exists() else []

    def says(self, part: str) -> list[dict[str, object]]:
        return [record for record in self.records() if part in str(record["message"])]


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        text: str = answer.read().decode()
    return text


def reachable(port: int, path: str) -> str:
    """The page, or nothing while nobody answers."""
    try:
        return page(port, path)
    except OSError:
        return ""


def held(client: Client, name: str) -> bool:
    try:
        return bool(client.get(LEASES, name, "default").spec.holder_identity)
    except NotFound:
        return False


def test_ports_lease_logs_and_profiling_follow_their_flags(plane: DevCluster, client: Client, tmp_path: Path) -> None:
    figures, probes = free_port(), free_port()
    running = Running(
        plane,
        tmp_path,
        *(f"--metrics-port={figures}", f"--health-probe-port={probes}", "--enable-profiling"),
        *("--leader-election-name=of-this-test", "--leader-election-namespace=default"),
        *("--memory-limit=1048576", "--karpenter-service=x", "--feature-gates=NodeRepair=true,Unheard=true"),
        "--log-format=json",
    )
    try:
        eventually(lambda: held(client, "of-this-test"), "its Lease is held", 30)
        eventually(lambda: "ok" in reachable(probes, "/readyz"), "it is ready", 30)
        text = page(figures, "/metrics")
        assert "karpenter_build_info{" in text
        eventually(lambda: "# TYPE karpenter_pods_state gauge" in page(figures, "/metrics"), "pods are told", 30)
        assert "MainThread" in page(figures, "/debug/stacks")
        warned = [str(record["message"]) for record in running.says("has no effect")]
        assert any("--karpenter-service is accepted" in one for one in warned)
        assert any("Unheard is not a feature gate" in one for one in warned)
        eventually(lambda: running.says("Memory usage is above 90 %"), "memory is short", 30)
        assert (tmp_path / "output").read_text() == ""
    finally:
        running.stop()


def test_one_observability_flag_leaves_single_objects_out(plane: DevCluster, client: Client, tmp_path: Path) -> None:
    figures, probes = free_port(), free_port()
    running = Running(
        plane,
        tmp_path,
        *(f"--metrics-port={figures}", f"--health-probe-port={probes}", "--disable-leader-election"),
        *("--disable-cluster-state-observability", "--log-level=debug", "--log-format=text"),
    )
    try:
        eventually(
            lambda: "karpenter_cluster_state_synced 1.0" in reachable(figures, "/metrics"), "the state is told", 30
        )
        time.sleep(1.5)
        text = page(figures, "/metrics")
        assert "karpenter_pods_state" not in text
        assert "karpenter_nodes_allocatable" not in text
        assert " DEBUG " in running.logs.read_text() or " INFO " in running.logs.read_text()
    finally:
        running.stop()


def test_the_address_of_reports_is_on_the_lease(plane: DevCluster, client: Client, tmp_path: Path) -> None:
    figures, probes = free_port(), free_port()
    running = Running(
        plane,
        tmp_path,
        *(f"--metrics-port={figures}", f"--health-probe-port={probes}"),
        *("--leader-election-name=of-reports", "--leader-election-namespace=default"),
        "--report-address=10.1.2.3:8444",
    )
    try:
        eventually(lambda: held(client, "of-reports"), "its Lease is held", 30)
        eventually(
            lambda: (
                client.get(LEASES, "of-reports", "default").metadata.annotations.get(REPORTS_URL_ANNOTATION)
                == "http://10.1.2.3:8444/reports"
            ),
            "the address is on the Lease",
            30,
        )
    finally:
        running.stop()
