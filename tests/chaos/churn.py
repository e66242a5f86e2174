"""A steady churn: Deployments of several kinds whose replicas change all the time."""

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from provisioner.apis import names
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import CAPACITYBUFFERS, DEPLOYMENTS, PDBS
from provisioner.lab.harness import applying
from provisioner.lab.harness.workload import Document, deployment

NAMESPACE = "shop"
MOST_SHARE = 0.25
INTERVAL_SECONDS = 1.0
LULLS, LULL_SECONDS = 1 / 40, 35.0
NIGHT_SECONDS = 120.0
"""Between two nights, on average, where pods come at a rate."""
BUFFERED = 3
"""Pods that the CapacityBuffer keeps room for."""


@dataclass(frozen=True)
class Kind:
    """One Deployment."""

    name: str
    replicas: int
    cpu: str
    memory: str
    spread: str = ""  # topology key of a hard spread


KINDS = (
    Kind("web", 80, "250m", "256Mi"),
    Kind("api", 60, "500m", "512Mi"),
    Kind("zonal", 45, "250m", "512Mi", "topology.kubernetes.io/zone"),
    Kind("hosts", 12, "250m", "256Mi", "kubernetes.io/hostname"),
    Kind("cache", 30, "1", "4Gi"),
    Kind("small", 73, "100m", "128Mi"),
)


def documents(share: float, pools: Mapping[str, str]) -> list[Document]:
    """The Deployments, with that share of their replicas; some may run in one NodePool only, by name of the Deployment."""
    made: list[Document] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
    for kind in KINDS:
        document = deployment(
            kind.name, NAMESPACE, max(2, int(kind.replicas * share)), {"cpu": kind.cpu, "memory": kind.memory}
        )
        if kind.name in pools:
            document["spec"]["template"]["spec"]["nodeSelector"] = {names.NODEPOOL_LABEL: pools[kind.name]}
        if kind.spread:
            document["spec"]["template"]["spec"]["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": kind.spread,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": document["spec"]["selector"],
                }
            ]
        made.append(document)
    return made


def spare() -> dict[str, Document]:
    """A CapacityBuffer that keeps room for some pods, with its template, by path."""
    container = {"name": "main", "image": "none.invalid/none", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    meta = {"name": "spare", "namespace": NAMESPACE}
    template = {"metadata": meta, "template": {"spec": {"containers": [container]}}}
    spec = {"podTemplateRef": {"name": "spare"}, "replicas": BUFFERED}
    return {
        f"/api/v1/namespaces/{NAMESPACE}/podtemplates/spare": {"apiVersion": "v1", "kind": "PodTemplate", **template},
        CAPACITYBUFFERS.path(NAMESPACE, "spare"): {
            "apiVersion": CAPACITYBUFFERS.api_version,
            "kind": "CapacityBuffer",
            "metadata": meta,
            "spec": spec,
        },
    }


def budget(name: str) -> Document:
    """At most a fifth of a Deployment's pods may be evicted at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"maxUnavailable": "20%", "selector": {"matchLabels": {"app": name}}},
    }


class Churn:
    """Changes the replicas of one Deployment every `interval` seconds, or at a rate of pods, in a thread of its own, until it is stopped.

    Now and then a night falls: half of the replicas go, and then nothing changes for a while. Nodes on which something happens all the time are never
    consolidated, and neither are full ones.

    Args:
        rate: pods that come each second, between two nights; 0: the interval counts.

    Attributes:
        interval: may be changed at any time.
    """

    def __init__(
        self,
        client: Client,
        chance: random.Random,
        share: float,
        interval: float = INTERVAL_SECONDS,
        lulls: float = LULLS,
        pools: Mapping[str, str] = MappingProxyType({}),
        rate: float = 0.0,
    ) -> None:
        self._client, self._chance, self._share, self._lulls = client, chance, share, lulls
        self.interval, self._rate = interval, rate
        self._pools = pools
        self.wanted = {kind.name: max(2, int(kind.replicas * share)) for kind in KINDS}
        self.changes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)

    def start(self) -> None:
        """Apply everything and begin."""
        applying.apply(self._client, documents(self._share, self._pools))
        budgets = {PDBS.path(NAMESPACE, kind.name): budget(kind.name) for kind in KINDS}
        query = {"fieldManager": "chaos", "force": "true"}
        for path, document in {**budgets, **spare()}.items():
            self._client.raw("PATCH", path, document, query, content_type="application/apply-patch+yaml")
        self._thread.start()

    def stop(self) -> None:
        """Change nothing more; what is wanted then stays."""
        self._stop.set()
        self._thread.join(60)

    def settle(self) -> None:
        """Make sure that the API server knows what is wanted: a change may have been lost on the way."""
        for name, replicas in self.wanted.items():
            self._scale(name, replicas)

    def _run(self) -> None:
        pause = self.interval
        while not self._stop.wait(pause):
            kind = self._chance.choice(KINDS)
            most = max(2, int(kind.replicas * self._share))
            step = max(1, int(most * MOST_SHARE))
            wanted = min(most, max(1, self.wanted[kind.name] + self._chance.randint(-step, step)))
            try:
                self._scale(kind.name, wanted)
            except (ApiError, OSError):
                continue  # the API server is away: nothing was wanted
            pause = max(0, wanted - self.wanted[kind.name]) / self._rate if self._rate else self.interval
            self.wanted[kind.name] = wanted
            self.changes += 1
            if self._chance.random() < (pause / NIGHT_SECONDS if self._rate else self._lulls):
                self._fall_asleep()
                if self._stop.wait(LULL_SECONDS):
                    return

    def _fall_asleep(self) -> None:
        for name, wanted in self.wanted.items():
            try:
                self._scale(name, max(1, wanted // 2))
            except (ApiError, OSError):
                continue
            self.wanted[name] = max(1, wanted // 2)
            self.changes += 1

    def _scale(self, name: str, replicas: int) -> None:
        self._client.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, NAMESPACE)
