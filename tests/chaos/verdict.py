"""What is written down while things break, and what must be true in the end. Independent of the product's own state.

Pods and Nodes are followed by raw watches past every proxy; what happened first is told by resource versions, which etcd
counts for all objects together. Who deleted what is told by the API server's audit log.
"""

import contextlib
import http.client
import itertools
import json
import math
import ssl
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from provisioner.apis.meta import is_true
from provisioner.apis.names import INITIALIZED, PLAN_ANNOTATION, UNREGISTERED_TAINT
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import EVENTS, NODECLAIMS, NODEPOOLS, NODES, PODS
from tests.chaos.churn import NAMESPACE, Churn
from tests.chaos.repairs import Repairs, calls_without_an_intent, left_behind
from tests.chaos.stage import STATIC, ChaosCluster
from tests.support.audit import entries

OWN_AGENT: Final = "dovetail-provisioner"
RECOVERY_SECONDS: Final = 90.0
BALANCE_SECONDS: Final = 60.0
ORPHAN_SECONDS: Final = 420.0
WAIT_SECONDS: Final = 60.0
REBOOTS: Final = "RebootInstances"
CLOCK_SECONDS: Final = 3.0
"""Two clocks, and whole seconds, may differ by so much."""
_CONTROLLERS: Final = (
    "system:serviceaccount:kube-system:replicaset-controller",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:generic-garbage-collector",
)
_POD_GC: Final = "system:serviceaccount:kube-system:pod-garbage-collector"


PROVISIONER: Final = "karpenter"
"""The component that events of the provisioner name."""
_DEEP: Final = threading.Lock()


@dataclass
class Life:
    """One pod, Node or NodeClaim, by resource versions; 0 for what has not happened.

    Attributes:
        seen_at: when it was first seen, in seconds since 1970; likewise `bound_at`.
        leaves_at: when its deletion was asked for, by the API server's clock.
        planned_at: of a pod, when a NodeClaim was first seen whose plan names it.
        open_at: of a Node, when it first let pods in.
    """

    name: str
    namespace: str = ""
    node: str = ""
    bound: int = 0
    deleting: int = 0
    gone: int = 0
    finished: int = 0
    daemon: bool = False
    phase: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    provider_id: str = ""
    seen_at: float = field(default_factory=time.time)
    bound_at: float = 0.0
    leaves_at: float = 0.0
    planned_at: float = 0.0
    open_at: float = 0.0


class Lives:
    """What was seen of pods and Nodes, by UID, from watch events. Thread-safe.

    Attributes:
        owners: by provider ID, the NodeClaims (name and UID) on which it has ever stood.
        told: UIDs of pods of which an event of the provisioner has said what they wait for.
        repairs: of Nodes and NodeClaims.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Life] = {}
        self.nodes: dict[str, Life] = {}
        self.owners: dict[str, set[str]] = {}
        self.told: set[str] = set()
        self.repairs = Repairs()
        self.lock = threading.Lock()

    def take_pod(self, kind: str, item: Mapping[str, Any]) -> None:
        meta, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
        version = int(meta["resourceVersion"])
        with self.lock:
            life = self.pods.setdefault(meta["uid"], Life(meta["name"], meta["namespace"]))
            life.labels, life.phase = meta.get("labels", {}), status.get("phase", "")
            life.daemon = any(owner["kind"] == "DaemonSet" for owner in meta.get("ownerReferences", []))
            if spec.get("nodeName") and not life.bound:
                life.node, life.bound, life.bound_at = spec["nodeName"], version, time.time()
            if meta.get("deletionTimestamp") and not life.deleting:
                life.deleting = version
                life.leaves_at = time.time()
                with contextlib.suppress(ValueError, OverflowError):  # one of the faults leaves in centuries
                    ends = datetime.fromisoformat(meta["deletionTimestamp"]).timestamp()
                    life.leaves_at = ends - meta.get("deletionGracePeriodSeconds", 0)
            if life.phase in ("Succeeded", "Failed") and not life.finished:
                life.finished = version
            if kind == "DELETED":
                life.gone = version
                life.leaves_at = life.leaves_at or time.time()

    def take_claim(self, kind: str, item: Mapping[str, Any]) -> None:
        identity, meta = item.get("status", {}).get("providerID"), item["metadata"]
        plan = json.loads(meta.get("annotations", {}).get(PLAN_ANNOTATION, "{}"))
        with self.lock:
            self.repairs.take_claim(kind, item, time.time())
            for uid in itertools.chain.from_iterable(one.get("uids", ()) for one in plan.get("pods", ())):
                if (life := self.pods.get(uid)) is not None:
                    life.planned_at = life.planned_at or time.time()
            if identity:
                self.owners.setdefault(identity, set()).add(f"{meta['name']} ({meta['uid']})")

    def take_event(self, _: str, item: Mapping[str, Any]) -> None:
        """kube-scheduler's word is no cause: it names what is there, and not why nothing more comes."""
        about = item.get("involvedObject", {})
        if about.get("kind") == "Pod" and item.get("reportingComponent") == PROVISIONER:
            with self.lock:
                self.told.add(about.get("uid", ""))

    def take_node(self, kind: str, item: Mapping[str, Any]) -> None:
        meta, version = item["metadata"], int(item["metadata"]["resourceVersion"])
        with self.lock:
            self.repairs.take_node(kind, item, time.time())
            life = self.nodes.setdefault(meta["uid"], Life(meta["name"]))
            life.provider_id = item.get("spec", {}).get("providerID", "")
            if not life.open_at and all(one["key"] != UNREGISTERED_TAINT.key for one in item["spec"].get("taints", [])):
                life.open_at = time.time()
            if meta.get("deletionTimestamp") and not life.deleting:
                life.deleting = version
            if kind == "DELETED":
                life.gone = version

    def missed(self, lives: Mapping[str, Life], there: Collection[str], version: int) -> None:
        """Of what is there no longer, nobody saw the end: a new API server does not tell what went before it began."""
        with self.lock:
            for uid, life in lives.items():
                if uid not in there and not life.gone:
                    life.gone, life.leaves_at = version, life.leaves_at or time.time()


class Witness(Lives):
    """Follows all pods, Nodes and NodeClaims until it is stopped."""

    def __init__(self, stage: ChaosCluster) -> None:
        super().__init__()
        self._host, self._port = "127.0.0.1", stage.cluster.ports["kube-apiserver"]
        self._context = ssl.create_default_context(cadata=stage.cluster.ca.certificate_pem.decode())
        self._token = _token(stage)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(path, take), daemon=True)
            for path, take in (
                ("/api/v1/pods", self.take_pod),
                ("/api/v1/nodes", self.take_node),
                (NODECLAIMS.path(), self.take_claim),
                ("/api/v1/events", self.take_event),
            )
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _follow(self, path: str, take: Callable[[str, Mapping[str, Any]], None]) -> None:
        version = seen = ""
        while not self._stop.is_set():
            try:
                if not version:
                    version = self._list(path, take, int(seen or 0))
                seen, version = version, self._watch(path, version, take)
            except (OSError, http.client.HTTPException, ValueError):
                self._stop.wait(0.2)

    def _list(self, path: str, take: Callable[[str, Mapping[str, Any]], None], seen: int) -> str:
        with self._asked(path) as answer:
            body = _read(answer.read())
        for item in body["items"]:
            take("ADDED", item)
        there, version = {item["metadata"]["uid"] for item in body["items"]}, int(body["metadata"]["resourceVersion"])
        if take == self.take_pod:
            self.missed(self.pods, there, seen + 1)
        elif take == self.take_node:
            self.missed(self.nodes, there, version)
        return str(version)

    def _watch(self, path: str, version: str, take: Callable[[str, Mapping[str, Any]], None]) -> str:
        query = urllib.parse.urlencode(
            {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "60"}
        )
        with self._asked(f"{path}?{query}") as answer:
            while not self._stop.is_set():
                line = answer.readline()
                if not line:
                    return version
                event = _read(line)
                if event["type"] == "ERROR":
                    return ""  # too old: list anew
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    take(event["type"], event["object"])
        return version

    @contextlib.contextmanager
    def _asked(self, path: str) -> Iterator[http.client.HTTPResponse]:
        far = http.client.HTTPSConnection(self._host, self._port, context=self._context, timeout=90)
        try:
            far.request("GET", path, headers={"authorization": f"Bearer {self._token}"})
            answer = far.getresponse()
            if answer.status != 200:
                raise OSError(f"{path}: {answer.status}")
            yield answer
        finally:
            far.close()


def _read(text: bytes) -> Any:
    """JSON as deep as one of the faults nests a pod."""
    with _DEEP:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(10_000)
        try:
            return json.loads(text)
        finally:
            sys.setrecursionlimit(usual)


def _token(stage: ChaosCluster) -> str:
    text = stage.cluster.kubeconfig.read_text()
    found = json.loads(text) if text.startswith("{") else None
    if found is None:
        found = yaml.safe_load(text)
    return str(found["users"][0]["user"]["token"])


def nodes_ended_with_live_pods(witness: Lives, broken: Collection[str] = ()) -> list[str]:
    """Nodes, but for those that were broken, that went while a pod on them was neither finished nor asked to leave."""
    found: list[str] = []
    with witness.lock:
        by_node: dict[str, list[Life]] = {}
        for pod in witness.pods.values():
            if pod.bound and not pod.daemon:
                by_node.setdefault(pod.node, []).append(pod)
        for node in witness.nodes.values():
            if not node.gone or node.name in broken:
                continue
            for pod in by_node.get(node.name, ()):
                over = min([version for version in (pod.deleting, pod.finished, pod.gone) if version], default=0)
                if pod.bound < node.gone and not (over and over < node.gone):
                    found.append(f"{node.name} went at {node.gone} with {pod.namespace}/{pod.name} on it ({pod})")
    return sorted(found)


def instances_ended_with_live_pods(instances: Iterable[Mapping[str, Any]], witness: Lives) -> list[str]:
    """Instances that we had EC2 end while a pod on them was neither finished nor asked to leave; what EC2 takes back is its own."""
    found: list[str] = []
    with witness.lock:
        by_node: dict[str, list[Life]] = {}
        for pod in witness.pods.values():
            if pod.bound and not pod.daemon and not pod.finished:
                by_node.setdefault(pod.node, []).append(pod)
        for one in instances:
            if not (one["ended"] and ended_by_request(one)):
                continue
            ended = datetime.fromisoformat(one["ended"]).timestamp()
            for pod in by_node.get(one["node"], ()):
                leaves = pod.leaves_at or math.inf
                if pod.bound_at < ended - CLOCK_SECONDS and leaves > ended + CLOCK_SECONDS:
                    found.append(f"{one['id']} ended at {one['ended']} with {pod.namespace}/{pod.name} on it ({pod})")
    return sorted(found)


def ended_by_request(instance: Mapping[str, Any]) -> bool:
    """Whether somebody called TerminateInstances: nobody but the provisioner does."""
    return str(instance["terminated_by"]).startswith("User initiated")


def instances_of_two_claims(witness: Lives) -> list[str]:
    """Provider IDs that have stood on two NodeClaims, at whatever time."""
    with witness.lock:
        return sorted(f"{one} stood on {sorted(its)}" for one, its in witness.owners.items() if len(its) > 1)


def long_waits_without_a_cause(witness: Lives, now: float) -> list[str]:
    """Pods of the churn that waited for more than a minute while the provisioner had not said what they wait for."""
    with witness.lock:
        return sorted(
            f"{pod.name} waited for {waited:.0f} s, and no event of the provisioner said why"
            for uid, pod in witness.pods.items()
            if pod.namespace == NAMESPACE
            and uid not in witness.told
            and (waited := min(pod.bound_at or now, pod.leaves_at or now) - pod.seen_at) > WAIT_SECONDS
        )


def deletions_past_the_eviction_api(log: Path, witness: Lives, spared: frozenset[str] = frozenset()) -> list[str]:
    """Deletions of pods that nobody but their owner may make, from the audit log; `spared` Nodes were interrupted."""
    with witness.lock:
        lives = {(life.namespace, life.name): life for life in witness.pods.values()}
        nodes = {life.name: life for life in witness.nodes.values()}
    found: list[str] = []
    for event in entries(log):
        what, user = event.get("objectRef", {}), event.get("user", {}).get("username", "")
        if event.get("verb") not in ("delete", "deletecollection") or what.get("resource") != "pods":
            continue
        if what.get("subresource") or event.get("responseStatus", {}).get("code", 500) >= 300:
            continue
        agent = event.get("userAgent", "")
        if user in _CONTROLLERS or "kwok" in agent or ("dovetail" in agent and OWN_AGENT not in agent):
            continue
        life = lives.get((what.get("namespace", ""), what.get("name", "")))
        if life is not None and (life.node in spared or life.daemon):
            continue
        node = nodes.get(life.node) if life is not None else None
        if life is not None and node is not None and user == _POD_GC and 0 < node.gone < life.bound:
            continue  # kube-scheduler bound it to a Node that was no more: it never ran
        told = f"{user or agent} deleted pod {what.get('namespace')}/{what.get('name')} ({agent[:40]})"
        if life is not None and node is not None:
            told += f"; bound to {life.node} at {life.bound}, {life.phase}; the Node was to go at {node.deleting} and gone at {node.gone}"
        found.append(told)
    return sorted(Counter(found))


class Balance:
    """Instances against claims, now."""

    def __init__(self, stage: ChaosCluster) -> None:
        claims = stage.client.list(NODECLAIMS)
        self.claims = {one.metadata.name: one.status.provider_id for one in claims}
        if stage.ec2 is not None:
            self.instances = {str(one["id"]) for one in stage.ec2.alive()}
        else:
            self.instances = {
                node.spec.provider_id.rpartition("/")[2]
                for node in stage.client.list(NODES)
                if node.spec.provider_id.startswith("kwok://")
            }
        self.owned = Counter(identity.rpartition("/")[2] for identity in self.claims.values() if identity)

    @property
    def shared(self) -> list[str]:
        """Instances that stand on two claims."""
        return sorted(identity for identity, count in self.owned.items() if count > 1)

    @property
    def orphans(self) -> list[str]:
        return sorted(self.instances - self.owned.keys())

    @property
    def empty_claims(self) -> list[str]:
        return sorted(
            name for name, identity in self.claims.items() if identity.rpartition("/")[2] not in self.instances
        )

    @property
    def is_even(self) -> bool:
        return not (self.shared or self.orphans or self.empty_claims)

    def __str__(self) -> str:
        return (
            f"{len(self.instances)} instances, {len(self.claims)} claims; on two claims: {self.shared}; "
            f"without a claim: {self.orphans}; claims without an instance: {self.empty_claims}"
        )


def running(stage: ChaosCluster) -> Counter[str]:
    """Running pods of the churn, by Deployment; those that leave do not count."""
    pods = stage.client.list(PODS, NAMESPACE)
    return Counter(pod.labels.get("app", "") for pod in pods if pod.phase == "Running" and pod.deleted is None)


def missing_replicas(stage: ChaosCluster) -> int:
    """How many nodes the static NodePool has too few; negative where it has too many."""
    there = sum(
        one.pool == STATIC and one.metadata.deletion_timestamp is None and is_true(one.status.conditions, INITIALIZED)
        for one in stage.client.list(NODECLAIMS)
    )
    return (stage.client.get(NODEPOOLS, STATIC).spec.replicas or 0) - there


def unexplained(stage: ChaosCluster) -> list[str]:
    """Pods of the churn that are not running and of which no event of the provisioner says why."""
    told = {
        event.involved_object.uid
        for event in stage.client.list(EVENTS, NAMESPACE)
        if event.involved_object.kind == "Pod" and event.reporting_component == PROVISIONER
    }
    pods = stage.client.list(PODS, NAMESPACE)
    return sorted(pod.name for pod in pods if pod.phase == "Pending" and pod.uid not in told)


def wait_until(stage: ChaosCluster, true: Callable[[], bool], seconds: float) -> float | None:
    """Seconds until `true`; None when it did not come. The API server may be away in between."""
    clock = stage.session.clock
    began = clock.monotonic()
    while clock.monotonic() - began < seconds:
        with contextlib.suppress(ApiError, OSError):
            if true():
                return clock.monotonic() - began
        clock.sleep(0.5)
    return None


def _left_behind(stage: ChaosCluster) -> list[str]:
    return left_behind(stage.client.list(NODES), stage.client.list(NODECLAIMS))


def judge(stage: ChaosCluster, churn: Churn, witness: Witness, spared: frozenset[str] = frozenset()) -> list[str]:
    """Everything that is wrong once the faults are over; nothing where all is well. Waits for recovery, bounded."""
    wrong: list[str] = []
    wanted = Counter(churn.wanted)
    recovered = wait_until(stage, lambda: running(stage) == wanted, RECOVERY_SECONDS)
    if recovered is None:
        wrong.append(
            f"running {dict(running(stage))} instead of {dict(wanted)} {RECOVERY_SECONDS:g} s after the last fault; "
            f"pending without a named cause: {unexplained(stage)}"
        )
    if wait_until(stage, lambda: Balance(stage).is_even, BALANCE_SECONDS) is None:
        balance = Balance(stage)
        if balance.shared or balance.empty_claims:
            wrong.append(str(balance))
        elif wait_until(stage, lambda: Balance(stage).is_even, ORPHAN_SECONDS) is None:
            wrong.append(f"after the garbage collector's time: {Balance(stage)}")
    if stage.every_method and wait_until(stage, lambda: missing_replicas(stage) == 0, RECOVERY_SECONDS) is None:
        wrong.append(f"the static NodePool lacks {missing_replicas(stage)} nodes")
    if wait_until(stage, lambda: not _left_behind(stage), RECOVERY_SECONDS) is None:
        wrong += _left_behind(stage)
    with witness.lock:
        wrong += witness.repairs.wrong
        calls = None if stage.ec2 is None else stage.ec2.calls()[REBOOTS]
        wrong += calls_without_an_intent(witness.repairs, calls)
    wrong += nodes_ended_with_live_pods(witness, stage.broken)
    instances = stage.ec2.instances() if stage.ec2 is not None else ()
    wrong += instances_ended_with_live_pods([one for one in instances if one["node"] not in stage.broken], witness)
    wrong += instances_of_two_claims(witness)
    wrong += long_waits_without_a_cause(witness, time.time())
    wrong += deletions_past_the_eviction_api(stage.cluster.audit_log, witness, spared)
    return wrong
