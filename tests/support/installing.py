"""Dovetail as an operator installs it, with Helm and with kustomize, on a dev cluster.

Objects are applied for real. Nothing runs Pods there, so webhook and provisioner are children of the dev cluster, started anew with what their Deployments say after
each step, as a kubelet would.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.errors import StateError
from provisioner.lab.harness.session import answers
from tests.support.charts import CHART, DEFINITIONS, MANIFESTS, run, tools
from tests.support.deployed import start
from tests.support.eventually import eventually
from tests.support.oldversion import OldVersion

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

    def remove_definitions(self) -> None:
        """Remove what stays, as docs/guides/leave.md says."""


def _remove_definitions(cluster: DevCluster, namespace: str) -> None:
    cluster.kubectl("delete", "-k", str(MANIFESTS / "crds"))
    cluster.kubectl("delete", "namespace", namespace)


@dataclass
class Helm:
    """The charts.

    Attributes:
        values: of the chart of the programs, as `--set` takes them.
        taking: flags by which objects become Helm's that kubectl applied before.
    """

    cluster: DevCluster
    home: Path
    namespace: str
    values: tuple[str, ...] = ("provider=kwok",)
    taking: tuple[str, ...] = ()

    def definitions(self) -> None:
        self.helm("upgrade", "--install", "dovetail-crd", DEFINITIONS, "--create-namespace", *self.taking)

    def apply(self, *, upgraded: bool) -> None:
        values = (*self.values, *(("settings.batchMaxDuration=3s", "webhook.replicas=3") if upgraded else ()))
        given = [word for one in values for word in ("--set", one)]
        self.helm("upgrade", "--install", "dovetail", CHART, *given, *self.taking)

    def back(self) -> None:
        self.helm("rollback", "dovetail")

    def remove(self) -> None:
        self.helm("uninstall", "dovetail")
        self.helm("uninstall", "dovetail-crd")

    def remove_definitions(self) -> None:
        _remove_definitions(self.cluster, self.namespace)

    def helm(self, *arguments: str | Path) -> str:
        places = {f"HELM_{name}_HOME": str(self.home / name) for name in ("CACHE", "CONFIG", "DATA")}
        environment = {**os.environ, **places, "KUBECONFIG": str(self.cluster.kubeconfig)}
        return run(tools()["helm"], *arguments, "--namespace", self.namespace, env=environment)


@dataclass
class Kustomize:
    """Overlays, one for each version.

    Attributes:
        overlay: that they are made from.
    """

    cluster: DevCluster
    home: Path
    namespace: str = "dovetail-system"
    overlay: Path = MANIFESTS / "overlays" / "kwok"

    def definitions(self) -> None:
        for name in ("crds", "namespace"):
            self.cluster.kubectl("apply", "-k", str(MANIFESTS / name))

    def apply(self, *, upgraded: bool) -> None:
        self.cluster.kubectl("apply", "-k", str(self._overlay(upgraded=upgraded)))

    def back(self) -> None:
        self.apply(upgraded=False)

    def remove(self) -> None:
        self.cluster.kubectl("delete", "--ignore-not-found", "-k", str(self._overlay(upgraded=False)))

    def remove_definitions(self) -> None:
        _remove_definitions(self.cluster, self.namespace)

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
        base = os.path.relpath(self.overlay, folder.resolve())
        (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [base], "patches": patches}), "utf-8")
        return folder


@dataclass
class Installation:
    """A cluster, and the programs that its Deployments ask for.

    Attributes:
        places: more flags of the provisioner, which say where things are on this machine.
        environment: of the programs, beside what their Deployments say.
        version: whose sources the programs are; this checkout's without one.
        started: spec of the Pod of each Deployment whose program runs.
    """

    cluster: DevCluster
    home: Path
    places: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    version: OldVersion | None = None
    started: dict[str, Document] = field(default_factory=dict)
    _lines: dict[str, int] = field(default_factory=dict)

    def items(self, *what: str) -> list[Document]:
        found: list[Document] = json.loads(self.cluster.kubectl("get", *what, "-o", "json"))["items"]
        return found

    def sync(self, namespace: str) -> None:
        """What kubelets and controllers do after a change: programs of other Deployments than before end, and begin anew."""
        found = [one for one in self._deployments(namespace) if one["spec"]["replicas"]]
        wanted = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in found}
        self._end([name for name, pod in self.started.items() if wanted.get(name) != pod])
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
                    **self.places,
                },
                "webhook": {
                    "bind": f"127.0.0.1:{ports['webhook']}",
                    "metrics-bind": f"127.0.0.1:{ports['webhook-metrics']}",
                    "health-bind": "127.0.0.1:0",
                    "cert-dir": self.home / "serving",
                },
            }
            start(
                self.cluster,
                pod,
                program,
                flags[program],
                namespace=namespace,
                environment=self.environment,
                version=self.version,
            )
        pages = {
            "dovetail-provisioner": f"http://127.0.0.1:{ports['provisioner-health']}/readyz",
            "dovetail-webhook": f"http://127.0.0.1:{ports['webhook-metrics']}/readyz",
        }
        for name in wanted:
            program = name.removeprefix("dovetail-")
            eventually(partial(answers, pages[name]), partial(self.log, program), SECONDS, 0.2)

    def become(self, version: OldVersion | None) -> None:
        """From the next `sync` on, programs are of these sources."""
        self._end(list(self.started))
        self.version = version

    def _end(self, names: Iterable[str]) -> None:
        for name in names:
            self.cluster.stop(name.removeprefix("dovetail-"))
            del self.started[name]

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
        path = self.cluster.log(program)
        return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []

    def work(self, pods: int = PODS) -> None:
        """Pods on nodes that nothing disrupts but the operator."""
        self.cluster.kubectl("apply", "-f", str(MANIFESTS / "examples" / "quick-start.yaml"))
        wanted = {"spec": {"limits": {"cpu": 1000}, "disruption": {"budgets": [{"nodes": "0"}]}}}
        self.cluster.kubectl("patch", "nodepool", WORK, "--type=merge", "-p", json.dumps(wanted))
        self.scale(pods)

    def scale(self, pods: int) -> None:
        self.cluster.kubectl("-n", WORK, "scale", "deployment", "web", f"--replicas={pods}")
        eventually(lambda: self.running() == pods, lambda: f"{pods} pods run\n{self.log('provisioner')}", SECONDS, 0.5)

    def running(self) -> int:
        pods = self.items("-n", WORK, "pods")
        up = [one for one in pods if one["status"].get("phase") == "Running" and not is_deleted(one)]
        return len(up) if len(up) == len(pods) else -1

    def census(self) -> dict[tuple[str, str], str]:
        """The UID of everything that may not be lost, by kind and name; none of it is being deleted."""
        found: dict[tuple[str, str], str] = {}
        ours = re.compile(r"karpenter|capacitybuffers")
        for kind in ("customresourcedefinitions", "nodepools", "kwoknodeclasses", "nodeclaims", "nodes"):
            for one in self.items(kind):
                if kind != "customresourcedefinitions" or ours.search(one["metadata"]["name"]):
                    assert not is_deleted(one), (kind, one["metadata"])
                    found[kind, one["metadata"]["name"]] = one["metadata"]["uid"]
        for one in self.items("-n", WORK, "pods"):
            assert not is_deleted(one)
            found["pods", one["metadata"]["name"]] = f"{one['metadata']['uid']} on {one['spec'].get('nodeName')}"
        return found

    def bundles(self) -> set[str]:
        """CA bundles that the webhook wrote into its configurations."""
        hooks = self.items("mutatingwebhookconfigurations", "-l", "app.kubernetes.io/name=dovetail")
        return {hook["clientConfig"].get("caBundle", "") for one in hooks for hook in one["webhooks"]}


def is_deleted(one: Document) -> bool:
    """Whether its deletion has begun."""
    return "deletionTimestamp" in one["metadata"]
