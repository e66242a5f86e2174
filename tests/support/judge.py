"""The real kube-scheduler as judge of a plan: the same objects are given to the solver and to a control plane.

A `Scenario` says what stands in the cluster and what waits, as documents of the API. `Bench.judge` creates it, decodes what the
API server made of it with the product's own decoders, solves, makes the planned nodes, and lets kube-scheduler bind.
Waiting pods carry a scheduling gate until their turn comes.

Many scenarios share one cluster: each has a namespace and a node label of its own, which every pod of it selects. Where even
that is too little (a policy or selector that looks at all nodes) the scenario uses label keys of its own; `@` in any
text of a document stands for the scenario's name.
"""

import contextlib
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.core import DaemonSet, Node
from provisioner.apis.plan import Plan, PlanEntry, encode_plan
from provisioner.apis.pods import Pod, is_active
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.resources import (
    CSINODES,
    DAEMONSETS,
    NAMESPACES,
    NODECLAIMS,
    NODES,
    PODGROUPS,
    PODS,
    PVCS,
    PVS,
    SERVICEACCOUNTS,
    STORAGECLASSES,
)
from provisioner.scheduling.problem import Bin, SchedulingPool, Storage
from provisioner.state.daemons import daemon_shape
from provisioner.values.requirement import Requirements
from provisioner.values.resources import EMPTY, Resources
from tests.support import checker, search
from tests.support.eventually import PATIENCE, eventually
from tests.support.kubescheduler import World
from tests.support.problems import WELL_KNOWN
from tests.support.question import Problem, solve

Document = dict[str, Any]
ROW_LABEL = "judge.example/row"
GATE = "judge.example/not-yet"
DRIVER = "csi.judge.example"
_PLURALS = {"PriorityClass": "priorityclasses", "RuntimeClass": "runtimeclasses"}


# --- documents ---


def labelled(name: str, **labels: str) -> Document:
    """Metadata; `_` in the name of a label stands for a dash."""
    return {"name": name, "labels": {key.replace("_", "-"): value for key, value in labels.items()}}


def pod(
    name: str,
    cpu: str = "1",
    memory: str = "",
    *,
    app: str = "",
    labels: Mapping[str, str] | None = None,
    namespace: str = "",
    more: Mapping[str, str] | None = None,
    ports: Iterable[Mapping[str, object]] = (),
    claims: Iterable[str] = (),
    ephemeral: str = "",
    on: str = "",
    **spec: Any,
) -> Document:
    """A pod of one container.

    Args:
        name: of the pod.
        cpu: request.
        memory: request, none by default.
        app: value of the label `app`.
        labels: besides.
        namespace: "" is the scenario's own, else what follows its name and a dash.
        more: further requests, which are limits too.
        ports: of its container.
        claims: names of PersistentVolumeClaims that it uses.
        ephemeral: storage class of an ephemeral volume called `scratch`.
        on: name of the node that it runs on already.
        spec: any field of the pod's spec.
    """
    requests = {key: value for key, value in {"cpu": cpu, "memory": memory, **(more or {})}.items() if value}
    limits = dict(more or {})
    volumes: list[Document] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in enumerate(claims)
    ]
    if ephemeral:
        template = {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": ephemeral,
                "resources": {"requests": {"storage": "1Gi"}},
            }
        }
        volumes.append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}})
    container: Document = {
        "name": "main",
        "image": "none.invalid/none",
        "resources": {"requests": requests, "limits": limits},
        "ports": [dict(one) for one in ports],
    }
    body: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**({"app": app} if app else {}), **(labels or {})},
        },
        "spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 0, **spec},
    }
    if on:
        body["spec"]["nodeName"] = on
    return body


def several(count: int, name: str, *arguments: Any, **keywords: Any) -> tuple[Document, ...]:
    """So many equal pods."""
    return tuple(pod(f"{name}-{number}", *arguments, **keywords) for number in range(count))


def node(
    name: str,
    cpu: str = "4",
    *,
    zone: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
    more: Mapping[str, str] | None = None,
    pods: int = 110,
    memory: str = "16Gi",
    attach: int | None = None,
    declares: Iterable[str] | None = None,
) -> Document:
    """A node of now; `attach` is how many volumes of `DRIVER` it takes, `declares` what features its kubelet reports, with its version."""
    own = {names.HOSTNAME_LABEL: name, names.OS_LABEL: "linux", names.ARCH_LABEL: "amd64", **(labels or {})}
    if zone:
        own[names.ZONE_LABEL] = zone
    room = {"cpu": cpu, "memory": memory, "pods": str(pods), **(more or {})}
    body: Document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": own, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"taints": [dict(one) for one in taints]},
        "status": {"capacity": room, "allocatable": room},
    }
    if declares is not None:
        body["status"] |= {"declaredFeatures": sorted(declares), "nodeInfo": {"kubeletVersion": "v1.37.2"}}
    if attach is not None:
        body["attach"] = attach
    return body


def storage_class(name: str, *zones: str, immediate: bool = False, provisioner: str = DRIVER) -> Document:
    """A class whose volumes are made where the first pod is; `zones` are all where it can make them."""
    body: Document = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "Immediate" if immediate else "WaitForFirstConsumer",
    }
    if zones:
        body["allowedTopologies"] = [{"matchLabelExpressions": [{"key": names.ZONE_LABEL, "values": list(zones)}]}]
    return body


def volume_claim(name: str, kind: str, volume: str = "", modes: Iterable[str] = ("ReadWriteOnce",)) -> Document:
    """A PersistentVolumeClaim of a class, bound to `volume` where one is named."""
    spec: Document = {
        "accessModes": list(modes),
        "storageClassName": kind,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    if volume:
        spec["volumeName"] = volume
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def volume(
    name: str,
    kind: str,
    *zones: str,
    labels: Mapping[str, str] | None = None,
    terms: Iterable[Mapping[str, Any]] = (),
    modes: Iterable[str] = ("ReadWriteOnce",),
) -> Document:
    """A PersistentVolume of `DRIVER` that can be reached from these zones only."""
    wanted = [dict(one) for one in terms]
    if zones:
        wanted.append({"matchExpressions": [{"key": names.ZONE_LABEL, "operator": "In", "values": list(zones)}]})
    spec: Document = {
        "accessModes": list(modes),
        "capacity": {"storage": "1Gi"},
        "storageClassName": kind,
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": DRIVER, "volumeHandle": name},
    }
    if wanted:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": wanted}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": spec,
    }


# --- scenarios and verdicts ---


@dataclass(frozen=True)
class Scenario:
    """What is in the cluster and what waits, and what is known in advance of the answer.

    Attributes:
        pods: those that wait, or, with `on`, that run already.
        pools: where nodes may come from; each gets the scenario's node label.
        nodes: existing nodes.
        objects: StorageClasses, PersistentVolumes, PersistentVolumeClaims.
        daemons: name to request of cpu.
        namespaces: labels by what follows the scenario's name and a dash.
        attach: volumes of `DRIVER` that a new node takes, by instance type.
        left: waiting pods that must get no place, in the plan and for kube-scheduler.
        claims: how many nodes must be made; None where it is the solver's choice.
        free: kube-scheduler gets the pods all at once and without a hint, and must place all of them, wherever. The others are
            nominated to their planned nodes and come one after another: their plan is legal in one order only, or
            tighter than kube-scheduler, which prefers empty nodes, would pack by itself.
        extended: also judged with the extender.
        steered: kube-scheduler by itself may bind its pods so that one finds no place, or not the planned one, though the plan had one for it;
            the extender keeps it from that. Only tests/support/at_once.py asks.
        groups: PodGroups by name, with their minCount; their pods come to kube-scheduler together, one group after the other.
        topology: the topology key of some of these.
    """

    pods: tuple[Document, ...]
    pools: tuple[SchedulingPool, ...] = ()
    nodes: tuple[Document, ...] = ()
    objects: tuple[Document, ...] = ()
    daemons: Mapping[str, str] = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    attach: Mapping[str, int] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    claims: int | None = None
    free: bool = False
    extended: bool = True
    steered: bool = False
    groups: Mapping[str, int] = field(default_factory=dict)
    topology: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What became of one scenario.

    Attributes:
        planned: node by pod, as solved.
        bound: node by pod, as kube-scheduler has it; "" where it is unbound.
        left: pods that the plan leaves without a place.
        violations: what the naive checker found wrong.
        claims: nodes made.
        error: what failed on the way.
    """

    planned: Mapping[str, str] = field(default_factory=dict)
    bound: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    violations: tuple[str, ...] = ()
    claims: int = 0
    error: str = ""


@dataclass(frozen=True)
class Planned:
    """What somebody wants to be true: the nodes to make, and the node of each pod that has a place, by UID."""

    launches: Mapping[str, checker.Option]
    places: Mapping[str, str]
    violations: tuple[str, ...] = ()


Planner = Callable[[Problem], Planned]


def by_the_solver(problem: Problem) -> Planned:
    """The product's plan, with what the checker says of it."""
    result = solve(problem)
    launches = {}
    places = {one.uid: name for name, pods in result.existing.items() for one in pods}
    for number, claim in enumerate(result.claims):
        option = checker.nominal(claim, checker.options_of(problem, claim))
        if option is None:
            raise AssertionError(f"{claim!r} is planned as what it does not allow")
        name = f"new-{number}"
        launches[name] = option
        places |= {one.uid: name for one in claim.pods}
    wrong = (
        () if problem.groups else tuple(checker.violations(problem, result))
    )  # it knows no groups, and would place a part of one
    return Planned(launches, places, wrong)


def by_the_checker(problem: Problem) -> Planned:
    """A plan that only the naive checker's idea of kube-scheduler made, so that the idea itself is judged."""
    launches, places = search.first_fit(problem)
    return Planned(launches, places)


class FakeProvisioner:
    """Makes the volumes that WaitForFirstConsumer claims ask for once kube-scheduler has chosen a node."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-provisioner", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopped.wait(0.1):
            with contextlib.suppress(ApiError):
                for claim in self._client.list(PVCS):
                    chosen = claim.metadata.annotations.get(names.SELECTED_NODE, "")
                    if chosen and not claim.spec.volume_name:
                        self._make(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid, chosen)

    def _make(self, namespace: str, name: str, uid: str, chosen: str) -> None:
        kind = self._client.get(PVCS, name, namespace).spec.storage_class_name or ""
        zone = self._client.get(NODES, chosen).metadata.labels.get(names.ZONE_LABEL, "")
        body = volume(f"pv-{uid}", kind, *([zone] if zone else []))
        body["spec"]["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": name,
            "uid": uid,
        }
        with contextlib.suppress(ApiError):
            self._client.create(PVS, body)


class Bench:
    """A control plane on which scenarios are judged, several at a time."""

    def __init__(self, client: Client, *, extender: bool) -> None:
        self._client = client
        self._extender = extender
        self.provisioner = FakeProvisioner(client)

    def close(self) -> None:
        self.provisioner.stop()

    def judge(self, name: str, scenario: Scenario, planner: Planner = by_the_solver) -> Verdict:
        """Whatever goes wrong is part of the verdict."""
        try:
            return _Case(self._client, name, scenario, planner, extender=self._extender).run()
        except Exception as error:  # noqa: BLE001 - it is part of the verdict
            return Verdict(error=f"{type(error).__name__}: {error}")


class Setting:
    """What a scenario finds in the cluster, made in namespaces and under a node label of its own.

    Attributes:
        namespaces: where its pods are.
    """

    def __init__(self, client: Client, name: str, scenario: Scenario) -> None:
        self._client, self._name, self._scenario = client, name, scenario
        self.namespaces = [name, *(f"{name}-{one}" for one in scenario.namespaces)]

    def prepare(self) -> None:
        """Everything but the pods that wait: what stands is Ready, and what runs is bound."""
        scenario = self._scenario
        labels = {self._name: {}, **{f"{self._name}-{key}": value for key, value in scenario.namespaces.items()}}
        for name, own in labels.items():
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": self._own(dict(own))}}
            self._client.create(NAMESPACES, body)
        for one in scenario.nodes:
            self._create_node(self._own(one))
        for one in scenario.objects:
            body = self._own(one)
            match body["kind"]:
                case "StorageClass":
                    self._client.create(STORAGECLASSES, body)
                case "PersistentVolume":
                    self._client.create(PVS, body)
                case "PersistentVolumeClaim":
                    self._client.create(PVCS, body, self._name)
                case kind:
                    self._client.raw("POST", f"/apis/{body['apiVersion']}/{_PLURALS[kind]}", body)
        for name in labels:
            eventually(lambda name=name: self._has_account(name), f"account of {name}")  # type: ignore[misc]
        for name, cpu in scenario.daemons.items():
            self._client.create(DAEMONSETS, self._daemon(name, cpu), self._name)
        for name in scenario.groups:
            self._client.create(PODGROUPS, self._group(name), self._name)
        for one in scenario.pods:
            if one["spec"].get("nodeName"):
                self._create_pod(self._own(one))
        for one in scenario.objects:
            if one["kind"] == "PersistentVolumeClaim" and one["spec"].get("volumeName"):
                claim = one["metadata"]["name"]
                eventually(
                    lambda claim=claim: self._client.get(PVCS, claim, self._name).status.phase == "Bound",  # type: ignore[misc]
                    f"{claim} is bound",
                )
        self._await_ready([self._own(one) for one in scenario.nodes])
        if scenario.daemons and scenario.nodes:
            wanted = len(scenario.daemons) * len(scenario.nodes)
            eventually(lambda: sum(1 for one in self._daemon_pods() if one.node_name) == wanted, "daemons run")

    def create_waiting(self, *, gated: bool) -> None:
        """The pods that wait, as fast as they can be created; gated ones are kept from kube-scheduler."""
        waiting = [one for one in self._scenario.pods if not one["spec"].get("nodeName")]
        for one in waiting:
            body = self._own(one)
            if gated:
                body["spec"]["schedulingGates"] = [{"name": GATE}]
            self._create_pod(body)
        for one in waiting:
            if any("ephemeral" in part for part in one["spec"]["volumes"]):
                claim = f"{one['metadata']['name']}-scratch"
                eventually(lambda claim=claim: self._exists(claim), f"{claim} is made")  # type: ignore[misc]

    def _own(self, document: Any) -> Any:
        """The document with this scenario's name in it."""
        return json.loads(json.dumps(document).replace("@", self._name))

    def _has_account(self, namespace: str) -> bool:
        with contextlib.suppress(NotFound):
            return bool(self._client.get(SERVICEACCOUNTS, "default", namespace).metadata.name)
        return False

    def _exists(self, claim: str) -> bool:
        with contextlib.suppress(NotFound):
            return bool(self._client.get(PVCS, claim, self._name).metadata.name)
        return False

    def _create_node(self, body: Document) -> None:
        attach = body.pop("attach", None)
        body["metadata"]["labels"][ROW_LABEL] = self._name
        name = body["metadata"]["name"]
        if attach is not None:  # before the node: kube-scheduler must never see it without
            self._create_csi_node(name, attach)
        self._client.create(NODES, body)

    def _create_csi_node(self, name: str, attach: int) -> None:
        body = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": name},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "allocatable": {"count": attach}}]},
        }
        self._client.create(CSINODES, body)

    def _create_pod(self, body: Document) -> None:
        suffix = body["metadata"].pop("namespace")
        body["spec"].setdefault("nodeSelector", {})[ROW_LABEL] = self._name
        self._client.create(PODS, body, f"{self._name}-{suffix}" if suffix else self._name)

    def _daemon(self, name: str, cpu: str) -> Document:
        labels = {"daemon": name}
        container = {"name": "main", "image": "none.invalid/none", "resources": {"requests": {"cpu": cpu}}}
        template = {
            "metadata": {"labels": labels},
            "spec": {
                "containers": [container],
                "nodeSelector": {ROW_LABEL: self._name},
                "terminationGracePeriodSeconds": 0,
            },
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        }

    def _group(self, name: str) -> Document:
        spec: Document = {"schedulingPolicy": {"gang": {"minCount": self._scenario.groups[name]}}}
        if key := self._scenario.topology.get(name):
            spec["schedulingConstraints"] = {"topology": [{"key": key}]}
        return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}

    def _pods(self) -> list[Pod]:
        return [one for namespace in self.namespaces for one in self._client.list(PODS, namespace)]

    def _daemon_pods(self) -> list[Pod]:
        return [one for one in self._pods() if one.owner is not None and one.owner.kind == "DaemonSet"]

    def _await_ready(self, documents: Iterable[Document]) -> None:
        for document in documents:
            wanted = {one["key"] for one in document["spec"]["taints"]}
            name = document["metadata"]["name"]
            eventually(lambda: self._is_ready(name, wanted), f"{name} is ready", 60.0)  # noqa: B023  (called at once)

    def _is_ready(self, name: str, taints: set[str]) -> bool:
        one = self._client.get(NODES, name)
        ready = any(state.type == "Ready" and state.status == "True" for state in one.status.conditions)
        return ready and {taint.key for taint in one.spec.taints} == taints


class _Case(Setting):
    """One scenario on its way."""

    def __init__(self, client: Client, name: str, scenario: Scenario, planner: Planner, *, extender: bool) -> None:
        super().__init__(client, name, scenario)
        self._planner, self._extender = planner, extender

    def run(self) -> Verdict:
        self.prepare()
        self.create_waiting(gated=True)
        problem = self._problem()
        plan = self._planner(problem)
        violations = plan.violations
        world, planned = self._make_nodes(problem, plan)
        by_uid = {one.uid: one for one in problem.pods}
        left = [one for one in problem.pods if one.uid not in planned]
        classes = {one.name: f"{one.namespace} {one.shape.key}" for one in problem.pods}
        order = world.in_order((by_uid[uid], node) for uid, node in planned.items())
        if len(order) < len(planned):
            missing = sorted(by_uid[uid].name for uid in planned.keys() - {one.uid for one, _ in order})
            violations += (f"no order for {missing}",)
        if self._scenario.groups:
            self._bind_groups(problem, {one.uid: node for one, node in order})
        elif self._scenario.free and not self._extender:
            for one, _ in order:
                self._release(one)
            self._await_bound([one for one, _ in order])
        else:
            for one, node_name in order:
                if not self._extender:
                    self._nominate(one, node_name)
                self._release(one)
                self._await_bound([one])
        for one in left:
            self._release(one)
        for one in left:
            self._await_refused(one)
        bound = {one.uid: one.node_name for one in self._pods()}
        return Verdict(
            planned={by_uid[uid].name: node for uid, node in planned.items()},
            bound={one.name: bound.get(one.uid, "") for one in problem.pods},
            classes=classes,
            left=frozenset(one.name for one in left),
            violations=violations,
            claims=len(plan.launches),
        )

    def _bind_groups(self, problem: Problem, places: Mapping[str, str]) -> None:
        """Each group whole, those that the plan leaves out at the end; `places` by UID. Gated pods hold the room to which they are nominated, too."""
        placed = [one for one in problem.pods if one.uid in places]
        for one in placed:
            self._nominate(one, places[one.uid])
        planned = {one.group for one in placed}
        for name in sorted(self._scenario.groups, key=lambda name: name not in planned):
            for one in problem.pods:
                if one.group == name:
                    self._release(one)
            self._await_bound([one for one in placed if one.group == name])

    # --- the question ---

    def _problem(self) -> Problem:
        scenario = self._scenario
        pods = self._pods()
        nodes = self._client.list(NODES, label_selector=f"{ROW_LABEL}={self._name}")
        limits = {
            one.metadata.name: {
                driver.name: driver.allocatable.count
                for driver in one.spec.drivers
                if driver.allocatable is not None and driver.allocatable.count is not None
            }
            for one in self._client.list(CSINODES)
        }
        names_of_classes = {one["metadata"]["name"] for one in self._own(scenario.objects)}
        storage = Storage(
            claims={
                f"{one.metadata.namespace}/{one.metadata.name}": one for one in self._client.list(PVCS, self._name)
            },
            volumes={one.metadata.name: one for one in self._client.list(PVS) if one.metadata.name in names_of_classes},
            classes={
                one.metadata.name: one
                for one in self._client.list(STORAGECLASSES)
                if one.metadata.name in names_of_classes
            },
            attach_limits={name: {DRIVER: count} for name, count in scenario.attach.items()},
        )
        return Problem(
            pods=tuple(msgspec.structs.replace(one, gated=False) for one in pods if one.gated),
            pools=tuple(self._pool(one) for one in scenario.pools),
            bins=tuple(
                self._bin(one, [other for other in pods if other.node_name == one.metadata.name], limits)
                for one in sorted(nodes, key=lambda one: one.metadata.name)
            ),
            daemons=tuple(map(daemon_shape, self._daemon_sets())),
            well_known=WELL_KNOWN,
            namespaces={one: self._client.get(NAMESPACES, one).metadata.labels for one in self.namespaces},
            storage=storage,
            groups={f"{self._name}/{name}": least for name, least in scenario.groups.items()},
            topology={f"{self._name}/{name}": key for name, key in scenario.topology.items()},
        )

    def _daemon_sets(self) -> list[DaemonSet]:
        return self._client.list(DAEMONSETS, self._name)

    def _pool(self, one: SchedulingPool) -> SchedulingPool:
        own = Requirements.from_labels({ROW_LABEL: self._name})
        return replace(one, requirements=one.requirements.merged(own))

    def _bin(self, one: Node, pods: list[Pod], limits: Mapping[str, Mapping[str, int]]) -> Bin:
        used = EMPTY
        running = tuple(other for other in pods if is_active(other))
        for other in running:
            used += other.shape.requests
        return Bin(
            name=one.metadata.name,
            labels=one.metadata.labels,
            room=Resources.parse(one.status.allocatable) - used,
            taints=one.spec.taints,
            node_name=one.metadata.name,
            pods=running,
            attach_limits=limits.get(one.metadata.name, {}),
            features=frozenset(one.status.declared_features) if one.status.node_info.kubelet_version else None,
        )

    # --- the answer made true ---

    def _make_nodes(self, problem: Problem, plan: Planned) -> tuple[World, dict[str, str]]:
        """The planned nodes, Ready; the world as the checker sees it, and the node of every placed pod by UID."""
        chosen = {f"{self._name}-{name}": option for name, option in plan.launches.items()}
        planned = {uid: f"{self._name}-{name}" if name in plan.launches else name for uid, name in plan.places.items()}
        pods: dict[str, list[Pod]] = {}
        for one in problem.pods:
            if one.uid in planned:
                pods.setdefault(planned[one.uid], []).append(one)
        documents = []
        for name, option in chosen.items():
            size = option.type.allocatable.to_wire()
            document: Document = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {**option.labels, names.HOSTNAME_LABEL: name},
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                },
                "spec": {"providerID": f"judge://{name}", "taints": msgspec.to_builtins(option.pool.taints)},
                "status": {"capacity": size, "allocatable": size},
            }
            if option.type.name in self._scenario.attach:
                document["attach"] = self._scenario.attach[option.type.name]
            documents.append(document)
            if self._extender:
                self._create_claim(name, pods.get(name, ()))
        if self._extender:
            for name in pods.keys() - chosen.keys():
                self._create_claim(name, pods[name])  # plans stand on NodeClaims only
        for document in documents:
            self._create_node(document)
        self._await_ready(documents)
        if self._scenario.daemons:
            daemons = sum(len(checker.daemons_on(problem, option.pool, option.labels)) for option in chosen.values())
            eventually(
                lambda: sum(1 for one in self._daemon_pods() if one.node_name in chosen) == daemons,
                "daemons run on the new nodes",
            )
        return checker.world_of(problem, chosen.items()), planned

    def _create_claim(self, name: str, pods: Iterable[Pod]) -> None:
        body = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": name, "annotations": {names.PLAN_ANNOTATION: plan_text(pods)}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": names.ARCH_LABEL, "operator": "Exists"}],
            },
        }
        self._client.create(NODECLAIMS, body)
        status = {"status": {"providerID": f"judge://{name}", "nodeName": name}}
        self._client.patch(NODECLAIMS, name, status, subresource="status")

    def _nominate(self, one: Pod, node_name: str) -> None:
        body = {"status": {"nominatedNodeName": node_name}}
        self._client.patch(PODS, one.name, body, one.namespace, "status")

    def _release(self, one: Pod) -> None:
        self._client.patch(PODS, one.name, {"spec": {"schedulingGates": None}}, one.namespace)

    def _await_bound(self, pods: list[Pod], seconds: float = 15.0) -> None:
        """Until all are bound or the time is over; who is not is seen in the verdict."""
        deadline = time.monotonic() + seconds * PATIENCE
        for one in pods:
            while not self._client.get(PODS, one.name, one.namespace).node_name and time.monotonic() < deadline:
                time.sleep(0.03)

    def _await_refused(self, one: Pod) -> None:
        def judged() -> bool:
            now = self._client.get(PODS, one.name, one.namespace)
            return bool(now.unschedulable or now.node_name)

        eventually(judged, f"kube-scheduler says what becomes of {one.name}", 15.0)


def answers(url: str) -> bool:
    """Whether something there says 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def plan_text(pods: Iterable[Pod]) -> str:
    """The annotation's text for exactly these pods, as the provisioner writes it."""
    families: dict[tuple[str, str], list[str]] = {}
    for one in pods:
        families.setdefault((one.owner.uid if one.owner else "", one.shape.key), []).append(one.uid)
    return encode_plan(
        Plan(
            pods=tuple(
                PlanEntry(owner=owner, klass=klass, count=len(uids), uids=tuple(uids))
                for (owner, klass), uids in families.items()
            )
        )
    )


def complaint(scenario: Scenario, verdict: Verdict, *, extender: bool) -> str:
    """What is wrong with a verdict; "" for a good one."""
    if verdict.error:
        return verdict.error
    if verdict.violations:
        return f"the checker: {'; '.join(verdict.violations)}"
    if Counter(map(stem, verdict.left)) != Counter(map(stem, scenario.left)):
        return f"left without a place are {sorted(verdict.left)}, not {sorted(scenario.left)}"
    unbound = sorted(name for name in verdict.planned if not verdict.bound[name])
    if unbound:
        return f"kube-scheduler leaves {unbound} of {verdict.planned}"
    taken = sorted(name for name in verdict.left if verdict.bound[name])
    if taken:
        return f"kube-scheduler found a place for { ({name: verdict.bound[name] for name in taken}) }"
    if scenario.claims is not None and verdict.claims != scenario.claims:
        return f"{verdict.claims} nodes instead of {scenario.claims}"
    if scenario.free and not extender:
        return ""
    want = sorted((node_name, verdict.classes[name]) for name, node_name in verdict.planned.items())
    got = sorted((verdict.bound[name], verdict.classes[name]) for name in verdict.planned)
    return "" if want == got else f"planned {dict(verdict.planned)}, bound {dict(verdict.bound)}"


def stem(name: str) -> str:
    """A pod's name without its number: which of several equals is left is nobody's business."""
    return re.sub(r"-\d+$", "", name)
