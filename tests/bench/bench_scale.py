"""Clusters of 1,000, 2,000 and 5,000 nodes with ten pods each, in real time: `make bench-scale`, which keeps results/scale.json.

The real `dovetail provisioner` beside an API server in memory over HTTP, in another process. Consolidation is on, 1 % of the pods are replaced every
20 s, and a Deployment of eight pods that need new nodes comes every 4 s. After so long that consolidation has little left to do, it is measured. Kubelets and kube-scheduler are played: nodes join at once, and pods are
bound where they are planned, else where there is room. The fleet is the one that the solver buys for all pods.

Goals are meant for a machine whose calibration loop takes 0.069 s, and scale with it; the batch window of 1 s does not. `SCALE_NODES=1000` runs some
sizes, `SCALE_SECONDS=60` measures for so long, after `SCALE_WARM=60`. `make bench` runs 50 nodes, which says only that it works.
"""

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from provisioner.apis import names
from provisioner.lab.harness.machine import calibration, slowness
from provisioner.lab.harness.memory import cpu_seconds, pss_bytes
from provisioner.lab.harness.results import Figure, Goal, at_most, write
from provisioner.scheduling.prepared import prepare
from provisioner.simulator.api_server import ServerChange, Wire
from tests.bench.bench_disruption import LARGEST
from tests.support import loads
from tests.support.eventually import eventually
from tests.support.fleets import Fleet, pool
from tests.support.httpapiserver import HttpApiServer, serving
from tests.support.pods import wire_pod
from tests.support.ports import free_port

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
PODS_A_NODE: Final = 10
CHURN, CHURN_SECONDS = 0.01, 20.0
BURST, BURST_SECONDS = 8, 4.0
NAMESPACE = "shop"
WINDOW_SECONDS = 1.0
"""Of a batch, by default."""
PACKING = "provisioner.packing"
SIZES = tuple(int(one) for one in os.environ.get("SCALE_NODES", "50").split(","))
WARM = float(os.environ.get("SCALE_WARM", "10"))
SECONDS = float(os.environ.get("SCALE_SECONDS", "20"))
FEWEST = 1_000
"""Nodes for which there are goals."""


# --- what there is ----------------------------------------------------------------------------------------------------


def _types() -> tuple[Any, ...]:
    return tuple(one for one in loads.ec2() if one.capacity["cpu"] <= LARGEST)


def catalogue(directory: Path) -> Path:
    """The types of the fleet, as the provisioner reads them."""
    kept = {one.name for one in _types()}
    rows = [one for one in json.loads(loads.CATALOGUE.read_text(encoding="utf-8")) if one["name"] in kept]
    path = directory / "types.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def bought(nodes: int) -> tuple[Fleet, dict[str, list[tuple[str, int]]]]:
    """The nodes that the solver buys for ten pods each, of 400 Deployments for each 1,000 of them, and by node the pods: (Deployment, number)."""
    on_demand = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]}
    fleet = Fleet([pool(requirements=(on_demand,), disruption={"budgets": [{"nodes": "10%"}]})], types=_types())
    deployments = nodes * PODS_A_NODE // 25
    pods = list(loads.deployments(deployments, 25, spread=(names.ZONE_LABEL,), apart=names.HOSTNAME_LABEL))
    by_name = {one.name: one for one in fleet.types}
    where: dict[str, list[tuple[str, int]]] = {}
    for number, claim in enumerate(prepare(fleet.prepared().world).solve(pods, explain=False).claims):
        name = f"n{number:05d}"
        fleet.node(
            name,
            (),
            kind=by_name[claim.planned_type],
            zone=claim.planned_zone,
            capacity_type=claim.planned_capacity_type,
        )
        where[f"node-{name}"] = [(app, int(at)) for app, _, at in (one.name.rpartition("-") for one in claim.pods)]
    return fleet, where


def shape_of(app: str) -> tuple[str, str]:
    number = int(app.split("-")[1])
    return loads.CPUS[number % 5], loads.MEMORIES[number % 6]


def template(app: str, cpu: str, memory: str, *, tied: bool) -> Wire:
    """A pod of a Deployment; spread over zones and a host apart where it is `tied`."""
    pod = wire_pod()
    pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "app": app}
    pod["metadata"]["annotations"] = {"prometheus.io/scrape": "true"}
    pod["metadata"]["ownerReferences"][0] |= {"name": f"{app}-7d9c5b8f6d", "uid": f"owner-{app}"}
    pod["metadata"]["namespace"] = NAMESPACE
    spec = pod["spec"]
    spec["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": memory}}
    spec.pop("affinity")
    spec.pop("nodeName")
    selector = {"matchLabels": {"app": app}}
    if tied:
        spec["affinity"] = {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": selector}
                ]
            }
        }
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": names.ZONE_LABEL,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }
        ]
    return pod


def node_wire(view: Any) -> Wire:
    """A Node that has been ready for long, with 30 images as a kubelet lists them."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-11-21T10:00:00Z"}
    images = [
        {"names": [f"registry.example.com/team/service-{i}@sha256:{i:064d}"], "sizeBytes": 10**8} for i in range(30)
    ]
    return {
        "metadata": {
            "name": view.name,
            "uid": f"uid-{view.name}",
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "finalizers": [names.TERMINATION_FINALIZER],
            "labels": {
                **view.labels,
                **names.READY_LABELS,
                names.KWOK_NODE: names.KWOK_NODE_FAKE,
            },
            "annotations": {names.KWOK_NODE: names.KWOK_NODE_FAKE},
        },
        "spec": {"providerID": view.provider_id},
        "status": {
            "capacity": {**view.capacity.to_wire()},
            "allocatable": {**view.allocatable.to_wire()},
            "conditions": [ready],
            "images": images,
        },
    }


def claim_wire(view: Any) -> Wire:
    wire: Wire = msgspec.json.decode(msgspec.json.encode(view.claim))
    wire["metadata"] = {key: value for key, value in wire["metadata"].items() if value}
    wire["metadata"]["finalizers"] = [names.TERMINATION_FINALIZER]
    wire["status"] |= {
        "nodeName": view.name,
        "capacity": {**view.capacity.to_wire()},
        "allocatable": {**view.allocatable.to_wire()},
    }
    return wire


# --- kubelets, kube-scheduler and owners of pods, as far as they are needed ----------------------------------------------


class Around:
    """What plays everything around the provisioner: `heard` under the server's lock, the rest in a thread of its own.

    Attributes:
        latencies: of each pod of a burst, seconds from a pod's creation to the NodeClaim that is made for it.
    """

    def __init__(self, server: HttpApiServer) -> None:
        self.server, self.stopping = server, threading.Event()
        self.latencies: list[float] = []
        self._born: dict[str, float] = {}
        self._templates: dict[str, Wire] = {}
        self._planned: dict[str, str] = {}  # UID of a pod -> Node
        self._waiting: dict[str, tuple[str, float]] = {}  # likewise -> (name, since)
        self._dying: list[tuple[str, str]] = []
        self._joining: list[str] = []
        self._left: dict[str, list[int]] = {}  # by Node: thousandths of a CPU, bytes
        self._number = 0
        self._chance = random.Random(7)
        self._thread = threading.Thread(target=self._act, daemon=True)
        server.heard = self.heard

    def fill(self, fleet: Fleet, where: dict[str, list[tuple[str, int]]]) -> None:
        """A cluster that has stood for long."""
        server = self.server
        server.fill(
            "namespaces", iter([{"metadata": {"name": one, "uid": one}} for one in (NAMESPACE, "dovetail-system")])
        )
        server.fill("kwoknodeclasses", iter([{"metadata": {"name": "default", "uid": "class"}, "spec": {}}]))
        for its_pool in fleet.pools:
            wire = msgspec.json.decode(msgspec.json.encode(its_pool))
            wire["metadata"] = {"name": its_pool.name, "uid": "pool", "generation": 1}
            server.fill("nodepools", iter([wire]))
        server.fill("nodes", (node_wire(one) for one in fleet.nodes))
        server.fill("nodeclaims", (claim_wire(one) for one in fleet.nodes))
        for view in fleet.nodes:
            self._left[view.name] = [view.allocatable.amount(names.CPU), view.allocatable.amount(names.MEMORY)]
        server.fill("pods", (self._made(app, node) for node, some in where.items() for app, _ in some))

    def _made(self, app: str, node: str = "") -> Wire:
        """The next pod of a Deployment."""
        if app not in self._templates:
            size = ("3", "4Gi") if app.startswith("burst") else shape_of(app)
            self._templates[app] = template(app, *size, tied=not app.startswith("burst"))
        of, self._number = self._templates[app], self._number + 1
        name = f"{app}-7d9c5b8f6d-{self._number:06d}"
        wire = {
            **of,
            "metadata": {
                **of["metadata"],
                "name": name,
                "uid": f"uid-{name}",
                "creationTimestamp": self.server.objects.stamp(),
            },
        }
        wire["metadata"].pop("resourceVersion", None)
        if not node:
            return wire
        self._take(wire, node)
        return bound(wire, node)

    def _take(self, wire: Wire, node: str, sign: int = -1) -> None:
        left = self._left.get(node)
        if left is not None:
            asked = size_of(wire)
            left[0] += sign * asked[0]
            left[1] += sign * asked[1]

    def heard(self, change: ServerChange) -> None:
        if change.plural == "nodeclaims" and change.before is None and change.after is not None:
            self._plans(change.after)
        elif change.plural == "nodes" and change.before is None and change.after is not None:
            self._joining.append(change.name)
        elif change.plural == "nodes" and change.after is None:
            self._left.pop(change.name, None)
        elif change.plural == "pods" and change.by is self.server and change.after is not None:
            meta = change.after["metadata"]
            if "deletionTimestamp" in meta:
                self._dying.append((meta["namespace"], meta["name"]))

    def _plans(self, claim: Wire) -> None:
        meta = claim["metadata"]
        plan = json.loads(meta.get("annotations", {}).get(names.PLAN_ANNOTATION, "{}"))
        now = time.monotonic()
        for group in plan.get("pods", ()):
            for uid in group.get("uids", ()):
                self._planned[uid] = f"kwok-{meta['name']}"
                if (born := self._born.pop(uid, None)) is not None:
                    self.latencies.append(now - born)

    # ------------------------------------------------------------------ the thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(30)

    def _act(self) -> None:
        while not self.stopping.wait(0.1):
            with self.server.lock:
                self._join()
                self._bury()
                self._bind()

    def _join(self) -> None:
        joining, self._joining = self._joining, []
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastTransitionTime": "2026-11-21T10:00:00Z",
        }
        for name in joining:
            node = self.server.objects.get("nodes", name)
            if node is not None:
                self.server.objects.change("nodes", name, {"status": {"conditions": [ready]}})
                given = node["status"]["allocatable"]
                self._left[name] = [cpu_of(given["cpu"]), memory_of(given["memory"])]

    def _bury(self) -> None:
        """Evicted pods end, and their owners make others."""
        dying, self._dying = self._dying, []
        for namespace, name in dying:
            pod = self.server.objects.get("pods", name, namespace)
            if pod is not None:
                self._take(pod, pod["spec"].get("nodeName", ""), 1)
                self.server.objects.drop("pods", name, namespace)
                self.create(pod["metadata"]["labels"]["app"], born=False)

    def _bind(self) -> None:
        now = time.monotonic()
        for uid, (name, since) in list(self._waiting.items()):
            pod = self.server.objects.get("pods", name, NAMESPACE)
            if pod is None or pod["spec"].get("nodeName"):
                del self._waiting[uid]
                continue
            node = self._planned.get(uid) or pod.get("status", {}).get("nominatedNodeName") or ""
            if not node and now - since > 3.0 and uid not in self._born:
                node = self._with_room(pod)
            wire = self.server.objects.get("nodes", node) if node else None
            taints = (wire["spec"].get("taints") or ()) if wire is not None else ()
            if wire is None or any(one["effect"] != "PreferNoSchedule" for one in taints):
                continue
            self._take(pod, node)
            self.server.objects.store("pods", bound(pod, node))
            del self._waiting[uid]

    def _with_room(self, pod: Wire) -> str:
        cpu, memory = size_of(pod)
        fitting = [name for name, left in self._left.items() if left[0] >= cpu and left[1] >= memory]
        return self._chance.choice(fitting) if fitting else ""

    # ------------------------------------------------------------------ users

    def create(self, app: str, *, born: bool = True) -> None:
        """A pod that waits."""
        with self.server.lock:
            pod = self._made(app)
            uid, now = pod["metadata"]["uid"], time.monotonic()
            if born:
                self._born[uid] = now
            self._waiting[uid] = pod["metadata"]["name"], now
            self.server.objects.store("pods", pod)

    def burst(self, number: int) -> None:
        """A Deployment whose pods fit on no node that is there."""
        for _ in range(BURST):
            self.create(f"burst-{number}")

    def replace(self, count: int) -> None:
        """As many pods end, and others of their size come in their places, bound."""
        with self.server.lock:
            pods = self.server.objects.objects["pods"]
            by_size: defaultdict[tuple[int, int], list[Wire]] = defaultdict(list)
            for key in self._chance.sample(list(pods), count):
                pod = pods[key]
                there = pod["spec"].get("nodeName") in self._left
                if there and "deletionTimestamp" not in pod["metadata"] and "burst" not in pod["metadata"]["name"]:
                    by_size[size_of(pod)].append(pod)
            for some in by_size.values():
                places = [one["spec"]["nodeName"] for one in some]
                for pod in some:
                    self._take(pod, pod["spec"]["nodeName"], 1)
                    self.server.objects.drop("pods", pod["metadata"]["name"], NAMESPACE)
                for pod, node in zip(some, [*places[1:], places[0]], strict=True):
                    self.server.objects.store("pods", self._made(pod["metadata"]["labels"]["app"], node))

    @property
    def unplanned(self) -> int:
        """Pods of bursts for which no NodeClaim was made so far."""
        return len(self._born)


def bound(pod: Wire, node: str) -> Wire:
    """The pod, running."""
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-11-21T10:00:02Z"}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    status = {
        "phase": "Running",
        "conditions": conditions,
        "startTime": "2026-11-21T10:00:02Z",
        "qosClass": "Burstable",
    }
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def cpu_of(text: str) -> int:
    return int(text.removesuffix("m")) if text.endswith("m") else int(float(text) * 1000)


def memory_of(text: str) -> int:
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
    return int(text[:-2]) * units[text[-2:]] if text[-2:] in units else int(text)


def size_of(pod: Wire) -> tuple[int, int]:
    asked = pod["spec"]["containers"][0]["resources"]["requests"]
    return cpu_of(asked["cpu"]), memory_of(asked["memory"])


# --- the program and its figures ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def program(directory: Path, server: HttpApiServer) -> Iterator[int]:
    """The provisioner, which leads at once; its process."""
    ports = ["--bind-address", "127.0.0.1", "--report-port", "0"]
    ports += ["--metrics-port", str(free_port()), "--health-probe-port", str(free_port())]
    flags = ["--kubeconfig", str(server.kubeconfig(directory)), "--disable-leader-election"]
    flags += ["--instance-types-file-path", str(catalogue(directory)), *ports]
    command = [sys.executable, "-m", "tests.support.measured_provisioner", str(directory), *flags]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def timed(path: Path) -> list[dict[str, float]]:
    """What the program wrote of each pass, or of each batch."""
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()] if path.exists() else []


def measured(directory: Path, nodes: int, *, warm: float = WARM, seconds: float = SECONDS) -> dict[str, float]:
    """All figures of one size."""
    with serving() as server:
        around = Around(server)
        around.fill(*bought(nodes))
        there = {plural: len(server.objects.objects[plural]) for plural in ("nodes", "pods")}
        around.start()
        started = time.monotonic()
        around.burst(0)
        with program(directory, server) as pid:
            eventually(lambda: bool(around.latencies), "a new leader decides", seconds=600)
            leader = time.monotonic() - started
            _live(around, there["pods"], warm)
            around.latencies.clear()
            before, cpu = time.monotonic(), cpu_seconds(pid, children=False)
            _live(around, there["pods"], seconds)
            after = time.monotonic()
            figures = {
                **there,
                "leader": leader,
                "pss": pss_bytes(pid, apart=PACKING) / 1e6,
                "cores": (cpu_seconds(pid, children=False) - cpu) / (after - before),
                "claims": float(len(around.latencies)),
                "unplanned": float(around.unplanned),
            }
        around.stop()
    took, batches = (
        [one for one in timed(directory / kind) if before <= one["at"] + one["seconds"] and one["at"] <= after]
        for kind in ("passes", "batches")
    )
    passing = sum(min(after, one["at"] + one["seconds"]) - max(before, one["at"]) for one in took)
    ordered = sorted(around.latencies)
    return figures | {
        "p50": statistics.median(ordered),
        "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "passes": float(len(took)),
        "pass cpu": max((one["cpu"] for one in took), default=float("nan")),
        "pass cpu median": statistics.median([one["cpu"] for one in took]) if took else float("nan"),
        "pass seconds": max((one["seconds"] for one in took), default=float("nan")),
        "share in passes": passing / (after - before),
        "batch cpu": statistics.median([one["cpu"] for one in batches]),
        "share of batches": sum(one["cpu"] for one in batches) / sum(one["process"] for one in batches),
        "calibration": calibration(),
    }


def _live(around: Around, pods: int, seconds: float) -> None:
    """Pods come and go for so long."""
    end, turn = time.monotonic() + seconds, 0
    share = max(1, round(CHURN * pods / CHURN_SECONDS))
    while time.monotonic() < end:
        began = time.monotonic()
        around.replace(share)
        if not turn % int(BURST_SECONDS):
            around.burst(around._number)
        turn += 1
        time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))


@pytest.mark.parametrize("nodes", SIZES)
def test_a_leader_of_many_nodes(nodes: int, tmp_path: Path) -> None:
    found = measured(tmp_path, nodes)
    slow = slowness(found["calibration"])
    assert found["claims"] > 0
    goals: dict[str, Goal] = (
        {}
        if nodes < FEWEST
        else {
            "p99": Goal(at_most(1.5).bound, 1.5, WINDOW_SECONDS).where_slow(slow),
            "pass cpu median": at_most(5.0 * slow),
            "leader": at_most(10.0 * slow),
            "pss": at_most(400.0),
            "unplanned": at_most(float(BURST)),
        }
    )
    units = {"pss": "MB", "cores": "cores", "share in passes": "", "share of batches": ""} | dict.fromkeys(
        ("leader", "p50", "p99", "pass cpu", "pass cpu median", "pass seconds", "batch cpu", "calibration"), "s"
    )
    figures = [
        Figure(f"{nodes:,} nodes: {kind}", value, units.get(kind, kind), goals.get(kind))
        for kind, value in found.items()
    ]
    for one in figures:
        print(one.line(), flush=True)
    write(ROOT / "results", f"scale-{nodes}", figures)
    missed = [one.line() for one in figures if one.met is False]
    assert not missed, "\n".join(missed)
