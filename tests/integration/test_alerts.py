"""The alerts by Prometheus' own tool: by series that somebody wrote, and over what our programs serve when there is a fault."""

import json
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs import expiry
from certs.serving import write_atomically
from certs.store import SecretNames, mint
from provisioner.apis.core import micro_time
from provisioner.kube.client import Client
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.monitoring import rules
from provisioner.support import metrics
from tests.support import promtool
from tests.support.clock import NOON
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.provisioner import SECONDS, Plot, start_child
from tests.unit.webhook.test_app import post
from tests.unit.webhook.test_review import body

pytestmark = pytest.mark.timeout(1200)  # promtool is built first
TESTS = Path(__file__).parents[1] / "data" / "alerts.yaml"
LEADER = "leader_election_master_status 1\ndovetail_threads_died_total 0\n"
"""Of a cluster whose provisioner leads."""
NAME = "provisioner-of-alerts"


def test_the_rules_are_valid() -> None:
    said = promtool.run("check", "rules", promtool.RULES)
    assert f"{len(rules.ALERTS) + len(rules.RECORDED)} rules found" in said


def test_each_alert_fires_when_it_should_and_not_before() -> None:
    assert "SUCCESS" in promtool.run("test", "rules", TESTS)


def page(*names: str) -> str:
    """These families of what this process serves."""
    lines = b"".join(metrics.chunks()).decode().splitlines()
    return LEADER + "".join(f"{line}\n" for line in lines if line.startswith(names))


def test_a_certificate_that_is_not_renewed(tmp_path: Path) -> None:
    path = tmp_path / "tls.crt"
    write_atomically(path, mint(SecretNames(("localhost",)), NOON, days=30).pem())
    expiry.watch("of-alerts", path)
    shown = page('dovetail_certificate_expiration_timestamp_seconds{certificate="of-alerts"')
    alert = "DovetailCertificateExpiring"
    promtool.judge(tmp_path, {"a": shown}, silent={alert}, now=(NOON + timedelta(days=20)).timestamp())
    promtool.judge(tmp_path, {"a": shown}, firing={alert}, now=(NOON + timedelta(days=24)).timestamp())


def test_a_webhook_that_fails(tmp_path: Path) -> None:
    before = page("dovetail_webhook_")
    assert post(body())[0] == 200
    alert = "DovetailWebhookErrors"
    promtool.judge(tmp_path, {"w": page("dovetail_webhook_")}, silent={alert}, before={"w": before})
    post(body(namespace="broken"))  # whose cache is broken
    promtool.judge(tmp_path, {"w": page("dovetail_webhook_")}, firing={alert}, before={"w": before})


@pytest.fixture
def plot(client: Client) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


@pytest.mark.plane
def test_nobody_leads_and_a_nodepool_is_not_ready(plane: DevCluster, plot: Plot, tmp_path: Path) -> None:
    """The Lease is still that of a leader that is gone; then ours leads, and finds no node class; then it is stopped."""
    port, lease = free_port(), f"{plot.name}-leader"
    held = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": micro_time(datetime.now(UTC))}
    metadata = {"name": lease, "namespace": plot.name}
    document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": held}
    plane.kubectl("create", "-f", "-", stdin=json.dumps(document))
    pool = plot.pool(node_class=False, ready=False)
    own = (f"--metrics-port={port}", f"--leader-election-name={lease}", f"--leader-election-namespace={plot.name}")
    start_child(plane, NAME, *own)
    try:
        waits = eventually(
            lambda: served(port, "leader_election_master_status", " 0.0"),
            lambda: plane.log(NAME).read_text()[-2000:],
            SECONDS,
        )
        promtool.judge(tmp_path, {"a": waits}, firing={"DovetailNoLeader"}, silent={"DovetailNotReady"})
        told = f'name="{pool}",type="Ready",status="False"'
        leads = eventually(
            lambda: served(port, 'operator_status_condition_count{group="karpenter.sh",kind="NodePool"', told),
            "told",
            SECONDS,
        )
        promtool.judge(tmp_path, {"a": leads}, firing={"DovetailNotReady"}, silent={"DovetailNoLeader"})
    finally:
        plane.stop(NAME)
    promtool.judge(tmp_path, {}, firing={"DovetailNoLeader"}, silent={"DovetailNotReady"})


def served(port: int, beginning: str, part: str) -> str:
    """What the program serves, once it has such a line; else nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
    except OSError:
        return ""
    return text if any(line.startswith(beginning) and part in line for line in text.splitlines()) else ""
