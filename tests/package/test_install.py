"""What an operator does with an installation, with Helm and with kustomize, on a real control plane: it is installed, upgraded, rolled back, removed and
installed again, and neither a definition nor a NodePool, node or pod is lost by it.

Objects are applied for real. Nothing runs Pods here, so webhook and provisioner are children of the dev cluster, started anew with what their Deployments say after
each step, as a kubelet would.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import yaml

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.errors import StateError
from provisioner.lab.harness.session import answers
from provisioner.lab.progress import progress_for
from tests.support.charts import CHART, DEFINITIONS, MANIFESTS, run, tools
from tests.support.deployed import start
from tests.support.eventually import eventually
from tests.support.oldversion import OldVersion

pytestmark = [pytest.mark.package, pytest.mark.plane, pytest.mark.timeout(1200)]

Document = dict[str, Any]

PODS: Final = 60
SECONDS: Final = 120.0
WORK: Final = "quick-start"


class Way(Protocol):
    """How an installation is changed."""

    namespace: str

    def definitions(self) -> None:
        """Install what stays."""

    def apply(self, *, upgraded: bool) -> None:
        """Install the programs, or change them: upgraded, batches are shorter and a third webhook runs."""

    def back(self) -> None:
        """Undo the upgrade."""

    def remove(self) -> None:
        """Remove the programs."""


@dataclass
class Helm:
    """The charts."""

    cluster: DevCluster
    home: Path
    namespace: str

    def definitions(self) -> None:
        self.helm("install", "dovetail-crd", DEFINITIONS, "--create-namespace")

    def apply(self, *, upgraded: bool) -> None:
        values = ["--set", "settings.batchMaxDuration=3s", "--set", "webhook.replicas=3"] if upgraded else []
        self.helm("upgrade", "--install", "dovetail", CHART, "--set", "provider=kwok", *values)

    def back(self) -> None:
        self.helm("rollback", "dovetail")

    def remove(self) -> None:
        self.helm("uninstall", "dovetail")
        self.helm("uninstall", "dovetail-crd")

    def helm(self, *arguments: str | Path) -> str:
        places = {f"HELM_{name}_HOME": str(self.home / name) for name in ("CACHE", "CONFIG", "DATA")}
        environment = {**os.environ, **places, "KUBECONFIG": str(self.cluster.kubeconfig)}
        return run(tools()["helm"], *arguments, "--namespace", self.namespace, env=environment)


@dataclass
class Kustomize:
    """Overlays, one for each version."""

    cluster: DevCluster
    home: Path
    namespace: str = "dovetail-system"

    def definitions(self) -> None:
        for name in ("crds", "namespace"):
            self.cluster.kubectl("apply", "-k", str(MANIFESTS / name))

    def apply(self, *, upgraded: bool) -> None:
        self.cluster.kubectl("apply", "-k", str(self._overlay(upgraded=upgraded)))

    def back(self) -> None:
        self.apply(upgraded=False)

    def remove(self) -> None:
        self.cluster.kubectl("delete", "-k", str(self._overlay(upgraded=False)))

    def _overlay(self, *, upgraded: bool) -> Path:
        folder = self.home / f"upgraded-{upgraded}"
        folder.mkdir(parents=True, exist_ok=True)
        environment = [{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": None}]
        environment[0]["value"] = {"name": "BATCH_MAX_DURATION", "value": "3s"}  # type: ignore[assignment]
        changes: list[tuple[str, list[Document]]] = [
            ("dovetail-provisioner", environment),
            ("dovetail-webhook", [{"op": "replace", "path": "/spec/replicas", "value": 3}]),
        ]
        patches = [
            {"target": {"kind": "Deployment", "name": name}, "patch": json.dumps(operations)}
            for name, operations in changes
            if upgraded
        ]
        base = os.path.relpath(MANIFESTS / "overlays" / "kwok", folder.resolve())
        (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [base], "patches": patches}), "utf-8")
        return folder


@dataclass
class Installation:
    """A cluster, and the programs that its Deployments ask for."""

    cluster: DevCluster
    home: Path
    started: dict[str, Document] = field(default_factory=dict)
    _lines: dict[str, int] = field(default_factory=dict)

    def items(self, *what: str) -> list[Document]:
        found: list[Document] = json.loads(self.cluster.kubectl("get", *what, "-o", "json"))["items"]
        return found

    def sync(self, namespace: str) -> None:
        """What kubelets and controllers do after a change: programs of other Deployments than before end, and begin anew."""
        wanted = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in self._deployments(namespace)}
        for name in [name for name, pod in self.started.items() if wanted.get(name) != pod]:
            self.cluster.stop(name.removeprefix("dovetail-"))
            del self.started[name]
        ports = self.cluster.ports
        for name, pod in wanted.items():
            if name in self.started:
                continue
            self.started[name] = pod
            program = name.removeprefix("dovetail-")
            certificates = self.home / "certificates"
            certificates.mkdir(exist_ok=True)
            flags: dict[str, dict[str, object]] = {
                "provisioner": {
                    "bind-address": "127.0.0.1",
                    "metrics-port": ports["provisioner-metrics"],
                    "health-probe-port": ports["provisioner-health"],
                    "report-port": ports["provisioner-reports"],
                    "report-address": f"127.0.0.1:{ports['provisioner-reports']}",
                    "report-cert-dir": certificates,
                },
                "webhook": {
                    "bind": f"127.0.0.1:{ports['webhook']}",
                    "metrics-bind": f"127.0.0.1:{ports['webhook-metrics']}",
                    "health-bind": "127.0.0.1:0",
                    "cert-dir": self.home / "serving",
                },
            }
            start(self.cluster, pod, program, flags[program], namespace=namespace)
        pages = {
            "dovetail-provisioner": f"http://127.0.0.1:{ports['provisioner-health']}/readyz",
            "dovetail-webhook": f"http://127.0.0.1:{ports['webhook-metrics']}/readyz",
        }
        for name in wanted:
            program = name.removeprefix("dovetail-")
            eventually(lambda page=pages[name]: answers(page), f"{name}\n{self.log(program)}", SECONDS, 0.2)  # type: ignore[misc]

    def _deployments(self, namespace: str) -> list[Document]:
        try:
            return self.items("-n", namespace, "deployments")
        except StateError:
            return []

    def log(self, program: str) -> str:
        return "\n".join(self._log(program))[-3000:]

    def ended(self) -> None:
        """What programs wrote until now says nothing of the next ones: they were there for a moment longer than their roles."""
        self._lines = {program: len(self._log(program)) for program in ("provisioner", "webhook")}

    def nothing_was_forbidden(self) -> None:
        """The roles of the installation are enough."""
        for program in ("provisioner", "webhook"):
            found = [line for line in self._log(program)[self._lines.get(program, 0) :] if "forbidden" in line.lower()]
            assert not found, found[:5]

    def _log(self, program: str) -> list[str]:
        return self.cluster.log(program).read_text(encoding="utf-8", errors="replace").splitlines()

    def work(self, pods: int = PODS) -> None:
        """Pods on nodes that nothing disrupts but the operator."""
        self.cluster.kubectl("apply", "-f", str(MANIFESTS / "examples" / "quick-start.yaml"))
        wanted = {"spec": {"limits": {"cpu": 1000}, "disruption": {"budgets": [{"nodes": "0"}]}}}
        self.cluster.kubectl("patch", "nodepool", WORK, "--type=merge", "-p", json.dumps(wanted))
        self.scale(pods)

    def scale(self, pods: int) -> None:
        self.cluster.kubectl("-n", WORK, "scale", "deployment", "web", f"--replicas={pods}")
        eventually(lambda: self.running() == pods, f"{pods} pods run\n{self.log('provisioner')}", SECONDS, 0.5)

    def running(self) -> int:
        pods = self.items("-n", WORK, "pods")
        up = [one for one in pods if one["status"].get("phase") == "Running" and not _goes(one)]
        return len(up) if len(up) == len(pods) else -1

    def census(self) -> dict[tuple[str, str], str]:
        """The UID of everything that may not be lost, by kind and name; none of it is being deleted."""
        found: dict[tuple[str, str], str] = {}
        ours = re.compile(r"karpenter|capacitybuffers")
        for kind in ("customresourcedefinitions", "nodepools", "kwoknodeclasses", "nodeclaims", "nodes"):
            for one in self.items(kind):
                if kind != "customresourcedefinitions" or ours.search(one["metadata"]["name"]):
                    assert not _goes(one), (kind, one["metadata"])
                    found[kind, one["metadata"]["name"]] = one["metadata"]["uid"]
        for one in self.items("-n", WORK, "pods"):
            assert not _goes(one)
            found["pods", one["metadata"]["name"]] = f"{one['metadata']['uid']} on {one['spec'].get('nodeName')}"
        return found

    def bundles(self) -> set[str]:
        """CA bundles that the webhook wrote into its configurations."""
        hooks = self.items("mutatingwebhookconfigurations", "-l", "app.kubernetes.io/name=dovetail")
        return {hook["clientConfig"].get("caBundle", "") for one in hooks for hook in one["webhooks"]}


def _goes(one: Document) -> bool:
    return "deletionTimestamp" in one["metadata"]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        yield Installation(cluster, tmp_path)
    finally:
        cluster.down()


@pytest.fixture(params=["helm", "helm in a namespace of ours", "kustomize"])
def way(request: pytest.FixtureRequest, installation: Installation, tmp_path: Path) -> Way:
    if request.param == "kustomize":
        return Kustomize(installation.cluster, tmp_path / "overlays")
    namespace = "dovetail-system" if request.param == "helm" else "autoscaling"
    return Helm(installation.cluster, tmp_path / "helm", namespace)


def test_nothing_is_lost_by_upgrade_rollback_removal_and_a_second_installation(
    installation: Installation, way: Way
) -> None:
    way.definitions()
    way.apply(upgraded=False)
    installation.sync(way.namespace)
    bundle = eventually(
        lambda: {""} != installation.bundles() and installation.bundles(),
        f"caBundle\n{installation.log('webhook')}",
        SECONDS,
    )
    installation.work()
    before = installation.census()
    assert len([key for key in before if key[0] == "nodes"]) > 1
    first = installation.started["dovetail-provisioner"]

    way.apply(upgraded=True)
    installation.sync(way.namespace)
    assert installation.started["dovetail-provisioner"] != first
    installation.scale(PODS + 20)  # it works
    later = installation.census()
    assert before.items() <= later.items()
    assert installation.bundles() == bundle, "an upgrade keeps what the webhook wrote"

    way.back()
    installation.sync(way.namespace)
    assert installation.started["dovetail-provisioner"] == first
    assert installation.census() == later
    assert installation.bundles() == bundle

    installation.nothing_was_forbidden()
    way.remove()
    installation.sync(way.namespace)
    installation.ended()
    assert installation.started == {}
    assert installation.census() == later
    assert installation.items("clusterroles", "-l", "app.kubernetes.io/name=dovetail") == []

    if isinstance(way, Helm):  # the definitions are kept, and are no release's any more
        way.helm("install", "dovetail-crd", DEFINITIONS, "--take-ownership")
    way.apply(upgraded=False)
    installation.sync(way.namespace)
    installation.scale(PODS + 30)
    assert later.items() <= installation.census().items()
    installation.nothing_was_forbidden()


def test_the_notes_of_the_chart_warn_of_what_is_missing_and_of_who_else_is_there(
    installation: Installation, tmp_path: Path
) -> None:
    cluster, charts = installation.cluster, Helm(installation.cluster, tmp_path / "helm", "dovetail-system")
    dry = ("install", "dovetail", CHART, "--set", "provider=kwok", "--dry-run=server")
    told = charts.helm(*dry)
    assert "WARNING: the definition nodepools.karpenter.sh does not exist" in told
    assert "WARNING: Karpenter has a Lease" not in told
    charts.definitions()
    lease: Document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    lease |= {
        "metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
        "spec": {"holderIdentity": "k"},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(lease))
    told = charts.helm(*dry)
    assert "nodepools.karpenter.sh does not exist" not in told
    assert "WARNING: Karpenter has a Lease in the namespace kube-system" in told
    assert "dovetail uninstall --dry-run" in told
    told = charts.helm(*dry, "--set", "scheduler.enabled=true", "--set", "scheduler.image.tag=v1.99.0")
    assert "WARNING: scheduler.image.tag v1.99.0 is newer than the API server" in told


def test_helm_takes_over_what_kustomize_applied(installation: Installation, tmp_path: Path) -> None:
    cluster = installation.cluster
    by_hand, charts = Kustomize(cluster, tmp_path / "overlays"), Helm(cluster, tmp_path / "helm", "dovetail-system")
    by_hand.definitions()
    by_hand.apply(upgraded=False)
    installation.sync("dovetail-system")
    installation.work(20)
    before, running = installation.census(), dict(installation.started)
    taking = ("--take-ownership", "--force-conflicts")
    charts.helm("install", "dovetail-crd", DEFINITIONS, *taking)
    charts.helm("install", "dovetail", CHART, "--set", "provider=kwok", *taking)
    installation.sync("dovetail-system")
    assert installation.census() == before
    assert installation.started.keys() == running.keys()
    values = ("--set", "provider=kwok", "--set", "webhook.replicas=3")
    with pytest.raises(AssertionError, match="kubectl-client-side-apply"):  # what kubectl applied stays its own, too
        charts.helm("upgrade", "dovetail", CHART, *values)
    charts.helm("upgrade", "dovetail", CHART, *values, "--force-conflicts")
    installation.sync("dovetail-system")
    assert installation.census() == before
    charts.remove()
    installation.sync("dovetail-system")
    assert installation.census() == before


BEFORE: Final = "9982b13a"
"""The last commit but one whose overlays contained definitions and namespace without a word to pruners."""
SELECTED: Final = ("--prune", "-l", "app.kubernetes.io/name=dovetail")
ALLOWED: Final = (
    "--prune-allowlist=apiextensions.k8s.io/v1/CustomResourceDefinition",
    "--prune-allowlist=core/v1/Namespace",
    "--prune-allowlist=core/v1/ConfigMap",
)


@pytest.mark.parametrize("prepared", [True, False], ids=["as the page says", "without the first step"])
def test_pruning_after_an_upgrade_takes_no_definition_nodepool_or_node(
    installation: Installation, tmp_path: Path, *, prepared: bool
) -> None:
    """Without the first step of docs/guides/upgrade.md the namespace goes, and with it the programs; the second time they are back."""
    cluster, old = installation.cluster, OldVersion(tmp_path / "old", BEFORE)
    overlay = str(MANIFESTS / "overlays" / "kwok")
    cluster.kubectl("apply", "-k", str(old.folder / "manifests" / "overlays" / "kwok"))
    installation.sync("dovetail-system")
    installation.work(20)
    before = installation.census()
    (namespace,) = (one for one in installation.items("namespaces") if one["metadata"]["name"] == "dovetail-system")
    if prepared:
        for name in ("crds", "namespace"):
            cluster.kubectl("apply", "-k", str(MANIFESTS / name))
    for allowed in ((), ALLOWED):
        try:
            cluster.kubectl("apply", *SELECTED, *allowed, "-k", overlay)
        except StateError:
            if prepared:
                raise
    found = [one for one in installation.items("namespaces") if one["metadata"]["uid"] == namespace["metadata"]["uid"]]
    assert bool(found and not _goes(found[0])) == prepared
    if not prepared:
        for name in installation.started.copy():
            cluster.stop(name.removeprefix("dovetail-"))
            del installation.started[name]
        eventually(
            lambda: "dovetail-system" not in {one["metadata"]["name"] for one in installation.items("namespaces")},
            "the namespace is gone",
            SECONDS,
            0.5,
        )
        for name in ("crds", "namespace", "overlays/kwok"):
            cluster.kubectl("apply", "-k", str(MANIFESTS / name))
    installation.sync("dovetail-system")
    installation.scale(30)
    assert before.items() <= installation.census().items()
    later = installation.census()
    cluster.kubectl("delete", "-k", overlay)
    installation.sync("dovetail-system")
    assert installation.census() == later
    assert "dovetail-system" in {one["metadata"]["name"] for one in installation.items("namespaces")}
