"""The extender beside a real kube-scheduler: planned pods land where planned, strangers wait and are let in, and
kube-scheduler goes on without it.

Nodes and NodeClaims are made here by hand, with kwok as the kubelet; no provisioner runs.
"""

import contextlib
import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.plan import Plan, PlanEntry, encode_plan
from provisioner.apis.pods import Pod
from provisioner.apis.reports import LEASE_NAME, REPORTS_URL_ANNOTATION, PodReport, ReportReason, decode_reports
from provisioner.apis.reservations import ReservedRoom, encode_reservations
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.resources import (
    DAEMONSETS,
    LEASES,
    NAMESPACES,
    NODECLAIMS,
    NODES,
    PODS,
    REPLICASETS,
    SERVICEACCOUNTS,
)
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.support.eventually import PATIENCE, eventually
from tests.support.rawhttp import Address

pytestmark = pytest.mark.plane

HOLD_SECONDS = 60.0
"""No hold ends by time before a busy machine has come to what ends it, or to whom it keeps out."""
SHORT_HOLD_SECONDS = 6.0 * PATIENCE
REPOSITORY = Path(__file__).parents[2]
SYSTEM = "dovetail-system"
UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
Document = dict[str, Any]


# --- the plane and the program --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    plane = DevCluster(temporary=True, extender=True, progress=progress_for(sys.__stderr__))
    plane.up()
    try:
        yield plane
    finally:
        plane.down()


@pytest.fixture(scope="module")
def client(cluster: DevCluster) -> Client:
    cluster.kubectl("apply", "--server-side", "-f", str(REPOSITORY / "manifests" / "crds"))
    cluster.await_definitions()
    clock = SystemClock()
    made = Client(connect(str(cluster.kubeconfig), user_agent="dovetail-test", clock=clock), clock)
    made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    return made


class Extender:
    """The program as a child, in a process group of its own."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster
        self._child: subprocess.Popen[bytes] | None = None
        self.log = cluster.dir / "extender.log"

    def start(self, host: str = "127.0.0.1") -> None:
        ports = self._cluster.ports
        arguments = {
            "--kubeconfig": str(self._cluster.kubeconfig),
            "--bind": f"{host}:{ports['extender']}",
            "--metrics-bind": f"127.0.0.1:{ports['extender-metrics']}",
            "--namespace": SYSTEM,
        }
        line = [part for pair in arguments.items() for part in pair]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "provisioner.cli.main", "extender", *line],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=REPOSITORY,
            )
        eventually(self.ready, self.tail, 30.0)

    def ready(self) -> bool:
        assert self._child is not None
        assert self._child.poll() is None, self.tail()
        return self.page("readyz") is not None

    def page(self, path: str) -> str | None:
        url = f"http://127.0.0.1:{self._cluster.ports['extender-metrics']}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def metric(self, series: str) -> float:
        page = eventually(lambda: self.page("metrics"), self.tail)
        assert page is not None
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(series))

    def send(self, number: signal.Signals) -> None:
        assert self._child is not None
        os.killpg(self._child.pid, number)

    def stop(self) -> None:
        if self._child is None:
            return
        for number in (signal.SIGCONT, signal.SIGTERM):
            with contextlib.suppress(ProcessLookupError):
                self.send(number)
        try:
            self._child.wait(10 * PATIENCE)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self._child.wait(10 * PATIENCE)
        self._child = None

    def tail(self) -> str:
        return self.log.read_bytes()[-4000:].decode(errors="replace")


@pytest.fixture(scope="module")
def extender(cluster: DevCluster, client: Client) -> Iterator[Extender]:
    program = Extender(cluster)
    program.start()
    try:
        yield program
    finally:
        program.stop()


# --- what a test builds ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExtenderNamespace:
    """A namespace and nodes of one test's own; its pods select its nodes."""

    client: Client
    name: str

    def pod(
        self, name: str, cpu: str = "1", scheduler: str = "default-scheduler", priority: str = "", gate: str = ""
    ) -> Pod:
        spec = {**self.pod_spec(cpu, scheduler), **({"priorityClassName": priority} if priority else {})}
        if gate:
            spec["schedulingGates"] = [{"name": gate}]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        return self.client.create(PODS, body, self.name)

    def pod_spec(self, cpu: str, scheduler: str = "default-scheduler") -> Document:
        container = {"name": "main", "image": "none.invalid/none", "resources": {"requests": {"cpu": cpu}}}
        return {
            "containers": [container],
            "nodeSelector": {"test": self.name},
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
        }

    def replica_set(self, name: str, replicas: int, cpu: str = "1") -> str:
        labels = {"app": name}
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": self.pod_spec(cpu)},
            },
        }
        return self.client.create(REPLICASETS, body, self.name).metadata.uid

    def open_gate(self, name: str) -> None:
        self.client.patch(PODS, name, {"spec": {"schedulingGates": None}}, self.name)

    def pods(self, prefix: str = "") -> list[Pod]:
        return [pod for pod in self.client.list(PODS, self.name) if pod.name.startswith(prefix)]

    def nodes_of(self, prefix: str = "") -> dict[str, str]:
        return {pod.name: pod.node_name for pod in self.pods(prefix)}

    def bound(self, name: str) -> str:
        return self.client.get(PODS, name, self.name).node_name

    def unschedulable(self, *prefixes: str) -> bool:
        return all(pod.unschedulable for prefix in prefixes for pod in self.pods(prefix))

    def node(self, name: str, cpu: str, *, tainted: bool = False, plan: Plan | None = None) -> str:
        """A node of kwok's; with a plan, its NodeClaim is made first, as the provisioner does."""
        full = f"{self.name}-{name}"
        if plan is not None:
            self.claim(full, plan)
        annotations = {"kwok.x-k8s.io/node": "fake"}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": full, "annotations": annotations, "labels": {"test": self.name, "type": "kwok"}},
            "spec": {"providerID": f"test://{full}", "taints": [UNREGISTERED] if tainted else []},
            "status": {key: {"cpu": cpu, "memory": "64Gi", "pods": "110"} for key in ("capacity", "allocatable")},
        }
        self.client.create(NODES, body)
        return full

    def claim(self, name: str, plan: Plan) -> None:
        """One that is launched; whoever knows the plan knows that, too."""
        body = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": name},
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            },
        }
        self.client.create(NODECLAIMS, body)
        initialized = {
            "type": names.INITIALIZED,
            "status": names.TRUE,
            "reason": names.INITIALIZED,
            "message": "",
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        status = {"providerID": f"test://{name}", "conditions": [initialized]}
        self.client.patch(NODECLAIMS, name, {"status": status}, subresource="status")
        planned = {"metadata": {"annotations": {names.PLAN_ANNOTATION: encode_plan(plan)}}}
        self.client.patch(NODECLAIMS, name, planned)

    def ready(self, *nodes: str) -> bool:
        return all(self._is_ready(node) for node in nodes)

    def _is_ready(self, node: str) -> bool:
        conditions = self.client.get(NODES, node).status.conditions
        return any(one.type == "Ready" and one.status == "True" for one in conditions)

    def untaint(self, node: str) -> None:
        taints = [
            {"key": taint.key, "effect": taint.effect, "value": taint.value}
            for taint in self.client.get(NODES, node).spec.taints
            if taint.key != UNREGISTERED["key"]
        ]
        self.client.patch(NODES, node, {"spec": {"taints": taints}})

    def clear(self) -> None:
        for node in self.client.list(NODES, label_selector=f"test={self.name}"):
            self.client.delete(NODES, node.metadata.name)
        for claim in self.client.list(NODECLAIMS):
            if claim.metadata.name.startswith(f"{self.name}-"):
                self.client.delete(NODECLAIMS, claim.metadata.name)
        with contextlib.suppress(ApiError):
            self.client.delete(NAMESPACES, self.name)


@pytest.fixture
def stage(client: Client, request: pytest.FixtureRequest) -> Iterator[ExtenderNamespace]:
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:40].strip("-")
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def account() -> bool:
        with contextlib.suppress(NotFound):
            return client.get(SERVICEACCOUNTS, "default", name).metadata.name == "default"
        return False

    eventually(account, "the namespace has its account", 20.0)
    made = ExtenderNamespace(client, name)
    try:
        yield made
    finally:
        made.clear()


HELD = "dovetail_extender_held_nodes "
PLANS = "dovetail_extender_plans "


def held_node(
    extender: Extender,
    stage: ExtenderNamespace,
    cpu: str,
    planned: Sequence[Pod],
    hold_seconds: float = HOLD_SECONDS,
) -> str:
    """A node on which room is held for these pods, and for nobody anywhere else.

    That the plan is known says nothing of the node: kube-scheduler, which may know it earlier, does not wait long for the extender's watch.
    """
    eventually(lambda: extender.metric(HELD) == 0, extender.tail, 20.0)  # of former tests
    node = stage.node("n", cpu, plan=plan_of(planned, hold_seconds))
    eventually(lambda: stage.ready(node), stage.nodes_of, 20.0)
    eventually(lambda: extender.metric(HELD) == 1, extender.tail, 5.0)
    return node


def plan_of(pods: Sequence[Pod], hold_seconds: float = HOLD_SECONDS) -> Plan:
    """A plan for exactly these pods, as the provisioner writes it."""
    families: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        families.setdefault((pod.owner.uid if pod.owner else "", pod.shape.key), []).append(pod.uid)
    entries = [
        PlanEntry(owner=owner, klass=klass, count=len(uids), uids=tuple(uids))
        for (owner, klass), uids in families.items()
    ]
    return Plan.of(tuple(entries), hold_seconds)


# --- the tests ------------------------------------------------------------------------------------------------------


def test_planned_pods_land_on_their_nodes(extender: Extender, stage: ExtenderNamespace) -> None:
    """Two owners, four nodes without slack, opened one after the other in an order that tempts every pod."""
    pods = [stage.pod(f"a-{i}") for i in range(12)] + [stage.pod(f"b-{i}", cpu="500m") for i in range(8)]
    eventually(lambda: stage.unschedulable("a-", "b-"), stage.nodes_of, 20.0)
    homes = {f"n{i}": [*pods[3 * i : 3 * i + 3], *pods[12 + 2 * i : 14 + 2 * i]] for i in range(4)}
    eventually(lambda: extender.metric(PLANS) == 0, extender.tail)  # of former tests
    nodes = {name: stage.node(name, "4", tainted=True, plan=plan_of(planned)) for name, planned in homes.items()}
    eventually(lambda: extender.metric(PLANS) == len(nodes), extender.tail)
    eventually(lambda: stage.ready(*nodes.values()), stage.nodes_of, 20.0)
    for name in sorted(nodes, reverse=True):
        stage.untaint(nodes[name])
        time.sleep(0.3)
    eventually(lambda: all(stage.nodes_of().values()), stage.nodes_of, 20.0)
    want = {pod.name: (nodes[name], pod.shape.key) for name, planned in homes.items() for pod in planned}
    # Equal pods without an owner are interchangeable: what counts is how many of each class are on each node.
    got = sorted((pod.node_name, pod.shape.key) for pod in stage.pods())
    assert got == sorted(want.values())
    steered = 'dovetail_extender_requests_total{answer="steered"'
    eventually(lambda: extender.metric(steered) >= 20, lambda: extender.metric(steered))


def test_a_stranger_waits_until_the_hold_ends_by_time(extender: Extender, stage: ExtenderNamespace) -> None:
    planned = [stage.pod(f"planned-{i}", scheduler="nobody") for i in range(2)]
    began = time.monotonic()
    node = held_node(extender, stage, "2", planned, SHORT_HOLD_SECONDS)
    opened = time.monotonic()
    stage.pod("stranger")
    eventually(lambda: stage.unschedulable("stranger"), stage.nodes_of, 10.0)
    assert stage.bound("stranger") == ""
    eventually(lambda: stage.bound("stranger"), extender.tail, SHORT_HOLD_SECONDS + 4.0)
    bound = time.monotonic()
    assert bound - began > SHORT_HOLD_SECONDS - 1.5, "an object's time has whole seconds"
    assert bound - opened < SHORT_HOLD_SECONDS + 2.0 * PATIENCE
    assert stage.client.get(NODES, node).metadata.annotations[names.HOLD_RELEASED_ANNOTATION]


def test_room_is_held_and_not_names(extender: Extender, stage: ExtenderNamespace) -> None:
    planned = [stage.pod(f"planned-{i}", scheduler="nobody") for i in range(2)]
    node = held_node(extender, stage, "3", planned)
    stage.pod("fits-beside")
    eventually(lambda: stage.bound("fits-beside") == node, stage.nodes_of, 3.0)
    stage.pod("too-many")
    eventually(lambda: stage.unschedulable("too-many"), stage.nodes_of, 5.0)
    assert stage.bound("too-many") == ""


def test_reserved_room_is_for_pods_that_name_its_request(extender: Extender, stage: ExtenderNamespace) -> None:
    eventually(lambda: extender.metric(HELD) == 0, extender.tail, 20.0)  # of former tests
    node = stage.node("n", "3", plan=Plan())
    room = ReservedRoom(request=f"{stage.name}/r", requests={"cpu": "2", "pods": "2"})
    text = encode_reservations([room], datetime.now(UTC) + timedelta(minutes=10))
    stage.client.patch(NODECLAIMS, node, {"metadata": {"annotations": {names.RESERVED: text}}})
    eventually(lambda: stage.ready(node), stage.nodes_of, 20.0)
    eventually(lambda: extender.metric(HELD) == 1, extender.tail, 5.0)
    stage.pod("stranger", "2")
    eventually(lambda: stage.unschedulable("stranger"), stage.nodes_of, 5.0)
    meta = {"name": "own", "annotations": {names.CONSUMES[0]: "r"}}
    stage.client.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": stage.pod_spec("1")}, stage.name
    )
    eventually(lambda: stage.bound("own") == node, stage.nodes_of, 5.0)
    stage.client.patch(NODECLAIMS, node, {"metadata": {"annotations": {names.RESERVED: None}}})
    eventually(lambda: stage.bound("stranger") == node, extender.tail, 5.0)


def test_planned_pods_that_go_away_release_their_room_at_once(extender: Extender, stage: ExtenderNamespace) -> None:
    planned = [stage.pod(f"planned-{i}", scheduler="nobody") for i in range(2)]
    node = held_node(extender, stage, "2", planned)
    stage.pod("stranger")
    eventually(lambda: stage.unschedulable("stranger"), stage.nodes_of, 5.0)
    for pod in planned:
        stage.client.delete(PODS, pod.name, stage.name, grace_seconds=0)
    eventually(lambda: stage.bound("stranger") == node, extender.tail, 4.0)


def test_a_failed_claim_releases_its_room(extender: Extender, stage: ExtenderNamespace) -> None:
    planned = [stage.pod(f"planned-{i}", scheduler="nobody") for i in range(2)]
    node = held_node(extender, stage, "2", planned)
    stage.pod("stranger")
    eventually(lambda: stage.unschedulable("stranger"), stage.nodes_of, 5.0)
    stage.client.delete(NODECLAIMS, node)
    eventually(lambda: stage.bound("stranger") == node, extender.tail, 4.0)


def test_a_node_that_a_command_disrupts_takes_no_pod_before_its_taint(
    extender: Extender, stage: ExtenderNamespace
) -> None:
    """The Node is ready and untainted all the time; only its NodeClaim says that it goes."""
    eventually(lambda: extender.metric(PLANS) == 0, extender.tail, 11.0)
    node = stage.node("n", "2", plan=plan_of([stage.pod("planned", scheduler="nobody")]))
    eventually(lambda: stage.ready(node), stage.nodes_of, 20.0)
    eventually(lambda: extender.metric(PLANS) == 1, extender.tail, 5.0)
    stage.client.patch(NODECLAIMS, node, {"metadata": {"annotations": {names.COMMAND_MEMBER_ANNOTATION: "c1"}}})
    eventually(lambda: extender.metric(PLANS) == 0, extender.tail, 5.0)  # it has been seen
    stage.pod("late")
    eventually(lambda: stage.unschedulable("late"), stage.nodes_of, 5.0)
    assert stage.bound("late") == ""
    assert stage.client.get(NODES, node).spec.taints == ()
    stage.client.patch(NODECLAIMS, node, {"metadata": {"annotations": {names.COMMAND_MEMBER_ANNOTATION: None}}})
    eventually(lambda: stage.bound("late") == node, extender.tail, 5.0)


def test_a_recreated_pod_takes_its_brothers_place(extender: Extender, stage: ExtenderNamespace) -> None:
    stage.replica_set("web", 3)
    eventually(lambda: len(stage.pods("web")) == 3 and stage.unschedulable("web"), stage.nodes_of, 20.0)
    pods = sorted(stage.pods("web"), key=lambda pod: pod.name)
    home = stage.node("home", "3", tainted=True, plan=plan_of(pods))
    stage.client.delete(PODS, pods[0].name, stage.name, grace_seconds=0)
    eventually(lambda: len(stage.pods("web")) == 3 and pods[0].name not in stage.nodes_of(), stage.nodes_of, 10.0)
    eventually(lambda: stage.ready(home), stage.nodes_of, 20.0)
    stage.untaint(home)
    eventually(lambda: set(stage.nodes_of("web").values()) == {home}, stage.nodes_of, 10.0)


def test_a_pod_planned_onto_an_existing_node_finds_its_room(extender: Extender, stage: ExtenderNamespace) -> None:
    planned = [stage.pod("planned", cpu="2", scheduler="dovetail-scheduler")]
    eventually(lambda: stage.unschedulable("planned"), stage.nodes_of, 10.0)
    other = stage.node("a-other", "1")
    node = stage.node("b-node", "2", tainted=True)
    eventually(lambda: stage.ready(node, other), stage.nodes_of, 20.0)
    annotation = {names.PLAN_ANNOTATION: encode_plan(plan_of(planned))}
    stage.client.patch(NODES, node, {"metadata": {"annotations": annotation}})
    stage.untaint(node)
    eventually(lambda: stage.bound("planned") == node, stage.nodes_of, 10.0)


def test_pods_without_a_plan_fill_nodes_that_are_full_already(extender: Extender, stage: ExtenderNamespace) -> None:
    """kube-scheduler by itself takes the emptier node, which then can no longer be removed."""
    full = stage.node("a-full", "4")
    eventually(lambda: stage.ready(full), stage.nodes_of, 20.0)
    for i in range(2):
        stage.pod(f"old-{i}")
    eventually(lambda: all(stage.nodes_of("old-").values()), stage.nodes_of, 10.0)
    empty = stage.node("b-empty", "4")
    eventually(lambda: stage.ready(empty), stage.nodes_of, 20.0)
    stage.pod("with")
    eventually(lambda: stage.bound("with"), extender.tail, 10.0)
    assert stage.bound("with") == full
    extender.stop()
    try:
        stage.pod("without")
        eventually(lambda: stage.bound("without"), stage.nodes_of, 20.0)
        assert stage.bound("without") == empty
    finally:
        extender.start()


class Intake:
    """A provisioner's end of the reports."""

    def __init__(self) -> None:
        self.reports: list[PodReport] = []
        intake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                intake.reports += decode_reports(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/reports"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@pytest.fixture
def intake(client: Client) -> Iterator[Intake]:
    made = Intake()
    lease: Mapping[str, object] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE_NAME, "annotations": {REPORTS_URL_ANNOTATION: made.url}},
        "spec": {"holderIdentity": "test"},
    }
    client.create(LEASES, lease, SYSTEM)
    try:
        yield made
    finally:
        client.delete(LEASES, LEASE_NAME, SYSTEM)
        made.stop()


def test_a_held_off_pod_is_reported_to_the_leader(extender: Extender, stage: ExtenderNamespace, intake: Intake) -> None:
    planned = [stage.pod("planned", scheduler="nobody")]
    node = held_node(extender, stage, "1", planned)
    stranger = stage.pod("stranger")
    wanted = PodReport(uid=stranger.uid, node=node, reason=ReportReason.HELD)
    eventually(lambda: wanted in intake.reports, extender.tail, 5.0)  # those of earlier tests may come first


def test_pods_of_a_daemonset_walk_over_holds_and_pods_that_only_name_it_do_not(
    extender: Extender, stage: ExtenderNamespace
) -> None:
    planned = [stage.pod("planned", scheduler="nobody")]
    node = held_node(extender, stage, "1", planned)
    labels = {"app": "agent"}
    template = {"metadata": {"labels": labels}, "spec": stage.pod_spec("500m")}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    uid = stage.client.create(DAEMONSETS, body, stage.name).metadata.uid
    eventually(lambda: stage.nodes_of("agent-").values() and all(stage.nodes_of("agent-").values()), extender.tail, 5.0)
    assert set(stage.nodes_of("agent-").values()) == {node}
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": uid, "controller": True}
    fake = {"name": "agent-fake1", "ownerReferences": [owner]}
    spec = stage.pod_spec("500m")
    stage.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": fake, "spec": spec}, stage.name)
    eventually(lambda: stage.unschedulable("agent-fake1"), extender.tail, 5.0)
    assert stage.bound("agent-fake1") == ""


IMPORTANT = "important"


@pytest.fixture(scope="module")
def important(cluster: DevCluster) -> str:
    cluster.kubectl("create", "priorityclass", IMPORTANT, "--value=1000")
    return IMPORTANT


def crowd(stage: ExtenderNamespace) -> tuple[str, list[Pod]]:
    """A node that is full of pods without priority, and those."""
    node = stage.node("full", "2")
    eventually(lambda: stage.ready(node), stage.nodes_of, 20.0)
    for i in range(2):
        stage.pod(f"low-{i}")
    eventually(lambda: all(stage.nodes_of("low-").values()), stage.nodes_of, 20.0)
    return node, stage.pods("low-")


def wanted(stage: ExtenderNamespace) -> set[str]:
    """Pods without priority that nobody has evicted."""
    return {pod.uid for pod in stage.pods("low-") if pod.deleted is None}


def situation(extender: Extender, stage: ExtenderNamespace) -> str:
    """What a test that fails wants to know."""
    pods = {pod.name: (pod.node_name, pod.scheduled_reason, pod.nominated_node_name) for pod in stage.pods()}
    asked = [line for line in (extender.page("metrics") or "").splitlines() if "extender_requests_total{" in line]
    return "\n".join([str(pods), *asked, extender.tail()])


def plan_is_coming(extender: Extender, stage: ExtenderNamespace, priority: str) -> float:
    """A pod of priority that kube-scheduler may only look at once the extender knows the node that comes for it.

    The answer is how many preemptions were put off before: those of former tests, which are over.
    """
    # A pod that goes makes kube-scheduler try all others again, and a second try preempts: former tests are over first.
    eventually(lambda: {one.namespace for one in stage.client.list(PODS)} == {stage.name}, stage.pods, 30.0)
    pod = stage.pod("vip", priority=priority, gate="test/plan")
    eventually(lambda: extender.metric(PLANS) == 0, extender.tail, 10.0)  # of former tests
    stage.claim(f"{stage.name}-coming", plan_of([pod]))
    eventually(lambda: extender.metric(PLANS) == 1, extender.tail, 5.0)
    before = extender.metric(VETOED)
    stage.open_gate("vip")
    return before


VETOED = 'dovetail_extender_requests_total{answer="vetoed",verb="preempt"}'


def test_a_needless_preemption_is_put_off_until_the_planned_node_is_there(
    extender: Extender, stage: ExtenderNamespace, important: str
) -> None:
    _, low = crowd(stage)
    before = plan_is_coming(extender, stage, important)
    eventually(lambda: stage.unschedulable("vip"), lambda: situation(extender, stage), 10.0)
    eventually(lambda: extender.metric(VETOED) == before + 1, lambda: (before, extender.metric(VETOED)))
    assert wanted(stage) == {pod.uid for pod in low}
    coming = stage.node("coming", "1")
    eventually(lambda: stage.bound("vip") == coming, lambda: situation(extender, stage), 10.0)
    assert wanted(stage) == {pod.uid for pod in low}, "nobody was evicted for it"


def test_a_preemption_is_put_off_once_and_then_happens(
    extender: Extender, stage: ExtenderNamespace, important: str
) -> None:
    full, low = crowd(stage)
    small = stage.node("small", "100m")
    eventually(lambda: stage.ready(small), stage.nodes_of, 20.0)
    stage.pod("tiny", cpu="50m")
    eventually(lambda: stage.bound("tiny") == small, stage.nodes_of, 10.0)
    before = plan_is_coming(extender, stage, important)
    eventually(lambda: stage.unschedulable("vip"), lambda: situation(extender, stage), 10.0)
    assert wanted(stage) == {pod.uid for pod in low}, situation(extender, stage)
    stage.client.delete(PODS, "tiny", stage.name, grace_seconds=0)  # kube-scheduler tries the pod again
    eventually(lambda: stage.bound("vip") == full, lambda: situation(extender, stage), 15.0)
    assert len(wanted(stage)) == 1
    eventually(lambda: extender.metric(VETOED) == before + 1, lambda: (before, extender.metric(VETOED)))


def test_a_pod_that_was_refused_before_a_restart_is_woken(extender: Extender, stage: ExtenderNamespace) -> None:
    """Its reason ended while nobody was there: kube-scheduler hears of nothing, and the new process knows of no refusal."""
    planned = stage.pod("planned", scheduler="nobody")
    node = held_node(extender, stage, "1", [planned])
    stage.pod("stranger")
    eventually(lambda: stage.unschedulable("stranger"), stage.nodes_of, 10.0)
    assert stage.bound("stranger") == ""
    extender.send(signal.SIGKILL)
    extender.stop()
    stage.client.delete(PODS, planned.name, stage.name)
    extender.start()
    eventually(lambda: stage.bound("stranger") == node, extender.tail, 15.0)


def test_slow_clients_do_not_keep_kube_scheduler_waiting(
    cluster: DevCluster, extender: Extender, stage: ExtenderNamespace
) -> None:
    """Loopback is shared with every pod of the host's network; sixteen stopped its probes."""
    node = stage.node("n", "64")
    eventually(lambda: stage.ready(node), stage.nodes_of, 20.0)
    questions = Address(cluster.ports["extender"])
    probes = Address(cluster.ports["extender-metrics"])
    try:
        for _ in range(200):
            for address in (questions, probes):
                with contextlib.suppress(OSError):
                    address.tcp().send(b"POST /filter HTTP/1.1\r\nHost: ")
        echoed = 'dovetail_extender_requests_total{answer="echoed"'
        before = extender.metric(echoed)
        for i in range(10):
            stage.pod(f"p-{i}")
        eventually(lambda: all(stage.nodes_of("p-").values()), stage.nodes_of, 10.0)
        well = "[+] questions: ok\n[+] threads: ok\nok\n"
        eventually(lambda: extender.page("healthz") == well, lambda: extender.page("healthz"))
        eventually(lambda: extender.metric(echoed) >= before + 10, lambda: (before, extender.metric(echoed)))
    finally:
        questions.leave()
        probes.leave()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_needed_preemption_happens_without(
    cluster: DevCluster, extender: Extender, stage: ExtenderNamespace, important: str, number: signal.Signals
) -> None:
    full, _ = crowd(stage)
    extender.send(number)
    try:
        stage.pod("vip", priority=important)
        eventually(lambda: stage.bound("vip") == full, stage.nodes_of, 30.0)
    finally:
        extender.stop()
        extender.start()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_pods_run_without(
    cluster: DevCluster, extender: Extender, stage: ExtenderNamespace, number: signal.Signals
) -> None:
    node = stage.node("n", "64")
    eventually(lambda: stage.ready(node), stage.nodes_of, 20.0)
    extender.send(number)
    try:
        for i in range(10):
            stage.pod(f"p-{i}")
        eventually(lambda: all(stage.nodes_of("p-").values()), stage.nodes_of, 40.0)
    finally:
        extender.stop()
        extender.start()
    stage.pod("after")
    eventually(lambda: stage.bound("after") == node, stage.nodes_of, 10.0)


@pytest.fixture
def on_ipv6(cluster: DevCluster, extender: Extender) -> Iterator[Extender]:
    """The program on [::1], where kube-scheduler asks it; afterwards all is as before."""
    file = cluster.dir / "kube-scheduler.json"
    before = file.read_text()
    url = f"127.0.0.1:{cluster.ports['extender']}"
    assert url in before
    extender.stop()
    try:
        file.write_text(before.replace(url, url.replace("127.0.0.1", "[::1]")))
        cluster.restart("kube-scheduler")
        extender.start("[::1]")
        yield extender
    finally:
        extender.stop()
        file.write_text(before)
        cluster.restart("kube-scheduler")
        extender.start()


def test_kube_scheduler_asks_it_over_ipv6(on_ipv6: Extender, stage: ExtenderNamespace) -> None:
    planned = [stage.pod("planned", scheduler="nobody")]
    held_node(on_ipv6, stage, "1", planned)
    stage.pod("stranger")
    eventually(lambda: stage.unschedulable("stranger"), stage.nodes_of, 10.0)
    assert stage.bound("stranger") == "", "its room is held for another"
    eventually(lambda: on_ipv6.metric("dovetail_extender_requests_total") > 0, "it is counted")
