"""What is around the provisioner: kubelets, kube-scheduler, ReplicaSets, the controller of PodDisruptionBudgets, the collector of orphaned pods."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.apis import names
from provisioner.simulator.api_server import ApiServer, Wire, covers
from provisioner.values.resources import CPU, Resources
from tests.interleaving.threads import STAGE

NAMESPACE: Final = "shop"
POOL: Final = "general"
BIND_SECONDS: Final = 1.0
"""A binding is written at most so long after kube-scheduler has looked; a taint stands for two seconds at least."""
Hand = Callable[[], None]


@dataclass
class Workload:
    """A ReplicaSet.

    Attributes:
        slots: the names of its pods, by which each stands in for the one before: slot -> how often it was made.
        apart: its pods have a node each.
        gang: so many of its pods need nodes at the same time; 0 for single pods.
        first: millicores of the pod in slot 0, if others than those of the rest.
    """

    name: str
    replicas: int
    cpu: int  # millicores
    apart: bool = False
    protected: bool = False
    gang: int = 0
    first: int = 0
    slots: dict[int, int] = field(default_factory=dict)


@dataclass
class _Binding:
    pod: str
    uid: str
    node: str
    by: float


class Place:
    """Everybody else.

    Attributes:
        lazy: the kubelets of Nodes that come from now on never report.
        failed: is told when that becomes true of a Node.
    """

    def __init__(self, server: ApiServer, chance: random.Random) -> None:
        self.server, self._chance = server, chance
        self.workloads: dict[str, Workload] = {}
        self.lazy = False
        self.sizes = ["2", "4", "8"]
        self.capacity = [names.CAPACITY_ON_DEMAND, names.CAPACITY_SPOT]
        self._lazy: set[str] = set()
        self._bindings: list[_Binding] = []
        self.calm = False
        self.failed: Callable[[], None] = lambda: None

    # ------------------------------------------------------------------ what users make

    def pool(self, *, revision: str = "one", **disruption: Any) -> None:
        """The NodePool, or another template for it; nodes of `sizes`."""
        known = self.server.get("nodepools", POOL)
        spec = {
            "template": {
                "metadata": {"labels": {"revision": revision}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [
                        {"key": names.KWOK_INSTANCE_CPU_LABEL, "operator": "In", "values": self.sizes},
                        {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": self.capacity},
                    ],
                    "expireAfter": "Never",
                },
            },
            "disruption": disruption or (known["spec"]["disruption"] if known else {}),
        }
        if known is None:
            self.server.store("kwoknodeclasses", {"metadata": {"name": "default"}, "spec": {}})
            self.server.store("nodepools", {"metadata": {"name": POOL}, "spec": spec, "status": {}})
        else:
            self.server.store("nodepools", {**known, "metadata": dict(known["metadata"]), "spec": spec})

    def deploy(self, one: Workload) -> None:
        self.workloads[one.name] = one

    def guard(self, name: str, unavailable: int) -> None:
        """A PodDisruptionBudget for a workload, or another number in it."""
        known = self.server.get("poddisruptionbudgets", name, NAMESPACE)
        if known is not None:
            self.server.change("poddisruptionbudgets", name, {"spec": {"maxUnavailable": unavailable}}, NAMESPACE)
            return
        body = {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"maxUnavailable": unavailable, "selector": {"matchLabels": {"app": name}}},
            "status": {},
        }
        status = self._budget_status(body)
        self.server.store("poddisruptionbudgets", {**body, "status": {**status, "observedGeneration": 1}})

    def protect(self, pod: Wire, *, on: bool = True) -> None:
        """do-not-disrupt on a pod that is there."""
        meta = pod["metadata"]
        value = "true" if on else None
        self.server.change(
            "pods", meta["name"], {"metadata": {"annotations": {names.DO_NOT_DISRUPT: value}}}, NAMESPACE
        )

    # ------------------------------------------------------------------ what everybody does by himself

    def hands(self) -> list[Hand]:
        """What could be done now, one thing each."""
        return [
            *self._bind(),
            *self._replicas(),
            *self._schedule(),
            *self._kubelets(),
            *self._budgets(),
            *self._collect(),
        ]

    def due(self) -> Hand | None:
        """What cannot wait any longer."""
        late = next((one for one in self._bindings if one.by <= STAGE.seconds), None)
        return (lambda: self._land(late)) if late is not None else None

    def bound_by(self) -> float | None:
        """When a binding is written at the latest."""
        return min((one.by for one in self._bindings), default=None)

    def running(self, pod: Wire) -> bool:
        return pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]

    def _pods_of(self, workload: Workload) -> list[Wire]:
        return [
            one
            for one in self.server.all("pods")
            if one["metadata"]["labels"]["app"] == workload.name and "deletionTimestamp" not in one["metadata"]
        ]

    def _replicas(self) -> Iterator[Hand]:
        for workload in self.workloads.values():
            have = self._pods_of(workload)
            if len(have) < workload.replicas:
                yield lambda workload=workload: self._make(workload)  # type: ignore[misc]
            elif len(have) > workload.replicas:
                waiting = [one for one in have if not one["spec"].get("nodeName")]
                last = (waiting or have)[-1]["metadata"]["name"]
                yield lambda last=last: self.server.remove("pods", last, NAMESPACE)  # type: ignore[misc]

    def _make(self, workload: Workload) -> None:
        taken = {int(one["metadata"]["labels"]["slot"]) for one in self._pods_of(workload)}
        slot = next(number for number in range(1000) if number not in taken)
        turn = workload.slots[slot] = workload.slots.get(slot, -1) + 1
        cpu = workload.cpu if slot else workload.first or workload.cpu
        spec: Wire = {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": f"{cpu}m", "memory": "256Mi"}}}],
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
        }
        if workload.apart:
            term = {"labelSelector": {"matchLabels": {"app": workload.name}}, "topologyKey": names.HOSTNAME_LABEL}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": workload.name,
            "uid": workload.name,
            "controller": True,
        }
        annotations = {names.DO_NOT_DISRUPT: "true"} if workload.protected else {}
        if workload.gang:
            annotations |= {names.GANG: workload.name, names.GANG_MINIMUM: str(workload.gang)}
        self.server.store(
            "pods",
            {
                "metadata": {
                    "name": f"{workload.name}-{slot}-{turn}",
                    "namespace": NAMESPACE,
                    "labels": {"app": workload.name, "slot": str(slot)},
                    "annotations": annotations,
                    "ownerReferences": [owner],
                },
                "spec": spec,
                "status": {"phase": "Pending"},
            },
        )

    def _schedule(self) -> Iterator[Hand]:
        on_the_way = {one.uid for one in self._bindings}
        for pod in self.server.all("pods"):
            meta = pod["metadata"]
            if pod["spec"].get("nodeName") or "deletionTimestamp" in meta or meta["uid"] in on_the_way:
                continue
            fitting = self.fitting(pod)
            if fitting:
                node = self._chance.choice(fitting)
                yield lambda pod=pod, node=node: self._decide(pod, node)  # type: ignore[misc]
            elif not any(one["type"] == "PodScheduled" for one in pod["status"].get("conditions", ())):
                yield lambda pod=pod: self._give_up(pod)  # type: ignore[misc]

    def _give_up(self, pod: Wire) -> None:
        told = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0 nodes are available",
            "lastTransitionTime": self.server.stamp(),
        }
        self.server.change("pods", pod["metadata"]["name"], {"status": {"conditions": [told]}}, NAMESPACE)

    def fitting(self, pod: Wire, *, without: frozenset[str] = frozenset()) -> list[str]:
        """Nodes to which kube-scheduler would bind the pod now."""
        return [
            node["metadata"]["name"]
            for node in self.server.all("nodes")
            if node["metadata"]["name"] not in without and self._fits(pod, node)
        ]

    def _fits(self, pod: Wire, node: Wire) -> bool:
        taints = node["spec"].get("taints") or ()
        if not is_ready(node) or any(one["effect"] in ("NoSchedule", "NoExecute") for one in taints):
            return False
        name = node["metadata"]["name"]
        coming = {one.pod for one in self._bindings if one.node == name}
        there = [
            one
            for one in self.server.objects["pods"].values()
            if one["spec"].get("nodeName") == name or one["metadata"]["name"] in coming
        ]
        room = Resources.parse(node["status"]["allocatable"])[CPU]
        if sum(map(cpu_of, there)) + cpu_of(pod) > room:
            return False
        app = pod["metadata"]["labels"]["app"]
        if "affinity" in pod["spec"]:
            return not any(one["metadata"]["labels"]["app"] == app for one in there)
        return True

    def _decide(self, pod: Wire, node: str) -> None:
        meta = pod["metadata"]
        late = 0.0 if self._chance.random() < 0.6 else self._chance.uniform(0.0, BIND_SECONDS)
        self._bindings.append(_Binding(meta["name"], meta["uid"], node, STAGE.seconds + late))

    def _bind(self) -> Iterator[Hand]:
        for one in self._bindings:
            yield lambda one=one: self._land(one)  # type: ignore[misc]

    def _land(self, one: _Binding) -> None:
        """The API server takes a binding to whatever Node there is."""
        self._bindings.remove(one)
        pod = self.server.get("pods", one.pod, NAMESPACE)
        if pod is None or pod["metadata"]["uid"] != one.uid or "deletionTimestamp" in pod["metadata"]:
            return
        if self.server.get("nodes", one.node) is None:
            return
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.server.stamp()}
        patch = {"spec": {"nodeName": one.node}, "status": {"conditions": [bound]}}
        self.server.change("pods", one.pod, patch, NAMESPACE)

    def _kubelets(self) -> Iterator[Hand]:
        for node in self.server.all("nodes"):
            name = node["metadata"]["name"]
            if is_ready(node):
                continue
            if name not in self._lazy and self.lazy and self._chance.random() < 0.5:
                self._lazy.add(name)
                self.failed()
            if name not in self._lazy or self.calm:
                yield lambda name=name: self._report(name)  # type: ignore[misc]
        for pod in self.server.all("pods"):
            meta, node_name = pod["metadata"], pod["spec"].get("nodeName", "")
            if "deletionTimestamp" in meta:
                yield lambda meta=meta: self.server.drop("pods", meta["name"], NAMESPACE)  # type: ignore[misc]
            elif node_name and pod["status"]["phase"] == "Pending":
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.server.stamp()}
                conditions = [*pod["status"]["conditions"], ready]
                patch = {"status": {"phase": "Running", "startTime": self.server.stamp(), "conditions": conditions}}
                yield lambda meta=meta, patch=patch: self.server.change("pods", meta["name"], patch, NAMESPACE) and None  # type: ignore[misc]

    def _report(self, name: str) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.server.stamp()}
        self.server.change("nodes", name, {"status": {"conditions": [ready]}})

    def _budget_status(self, budget: Wire) -> Wire:
        workload = self.workloads[budget["metadata"]["name"]]
        mine = [one for one in self.server.all("pods") if covers(budget, one)]
        leaving = {
            key: at
            for key, at in budget.get("status", {}).get("disruptedPods", {}).items()
            if any(one["metadata"]["name"] == key and "deletionTimestamp" not in one["metadata"] for one in mine)
        }
        healthy = sum(self.running(one) and one["metadata"]["name"] not in leaving for one in mine)
        wanted = max(0, workload.replicas - budget["spec"]["maxUnavailable"])
        return {
            "observedGeneration": budget["metadata"].get("generation", 1),
            "expectedPods": workload.replicas,
            "currentHealthy": healthy,
            "desiredHealthy": wanted,
            "disruptionsAllowed": max(0, healthy - wanted),
            "disruptedPods": leaving,
        }

    def _budgets(self) -> Iterator[Hand]:
        for budget in self.server.all("poddisruptionbudgets"):
            status = self._budget_status(budget)
            if status != budget["status"]:
                yield (
                    lambda budget=budget, status=status: (
                        self.server.store(  # type: ignore[misc]
                            "poddisruptionbudgets", {**budget, "metadata": dict(budget["metadata"]), "status": status}
                        )
                        and None
                    )
                )

    def _collect(self) -> Iterator[Hand]:
        known = self.server.objects["nodes"]
        for pod in self.server.all("pods"):
            node_name = pod["spec"].get("nodeName", "")
            if node_name and node_name not in known:
                yield lambda pod=pod: self.server.drop("pods", pod["metadata"]["name"], NAMESPACE)  # type: ignore[misc]


def is_ready(node: Wire) -> bool:
    """Whether its kubelet says so."""
    found = node.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found)


def cpu_of(pod: Wire) -> int:
    """Millicores."""
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))
