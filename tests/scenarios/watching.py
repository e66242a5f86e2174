"""What happens on a control plane, seen from outside: five watches and the audit log, kept for questions about the past."""

import json
import random
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from provisioner.apis import names
from provisioner.apis.core import Event, Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.apis.pods import Pod
from provisioner.kube.config import Api
from provisioner.kube.resources import EVENTS, NODECLAIMS, NODES, PODS, ObjectIdentity
from provisioner.kube.store import Store
from provisioner.kube.watch import Reflector
from provisioner.lab.harness.observing import as_deletions
from provisioner.support.clock import Clock

T = TypeVar("T")

_GARBAGE = frozenset(
    {
        "system:serviceaccount:kube-system:pod-garbage-collector",
        "system:serviceaccount:kube-system:taint-eviction-controller",
    }
)
"""Who deletes pods whose node has gone from under them."""


@dataclass
class Guard:
    """The fewest ready pods of one app that were seen since somebody began to look."""

    app: str
    least: int
    fewest: int


def _fail(identity: ObjectIdentity, error: Exception) -> None:
    raise AssertionError(f"{identity.name} cannot be read: {error}")


class Watching:
    """The cluster as its objects have been since `start`; thread-safe."""

    def __init__(self, connection: Api, clock: Clock) -> None:
        rng = random.Random(0)
        self._lock = threading.Lock()
        self._guards: defaultdict[str, list[Guard]] = defaultdict(list)
        self._steps: defaultdict[str, list[tuple[int, str, str, bool]]] = defaultdict(list)
        self._left: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        self._clock = clock
        self._pods = Reflector(
            connection, PODS, changed=as_deletions(self._on_pod), unreadable=_fail, clock=clock, rng=rng
        )
        self._nodes = Reflector(
            connection, NODES, changed=as_deletions(self._on_node), unreadable=_fail, clock=clock, rng=rng
        )
        self._claims = Reflector(
            connection, NODECLAIMS, changed=as_deletions(self._on_claim), unreadable=_fail, clock=clock, rng=rng
        )
        self._events = Reflector(connection, EVENTS, clock=clock, rng=rng)
        self._all: tuple[Reflector[Any], ...] = (self._pods, self._nodes, self._claims, self._events)

    def start(self, seconds: float = 60.0) -> None:
        for one in self._all:
            one.start()
        for one in self._all:
            assert one.synced.wait(seconds), f"no first list of {one.resource}"

    def stop(self) -> None:
        for one in self._all:
            one.stop()

    # ------------------------------------------------------------------ now

    def pods(self, namespace: str) -> list[Pod]:
        return [one for one in self._pods.store.list() if one.namespace == namespace]

    @property
    def nodes(self) -> Store[Node]:
        return self._nodes.store

    @property
    def claims(self) -> Store[NodeClaim]:
        return self._claims.store

    def events(self, name: str) -> list[Event]:
        """What was said about any object of this name."""
        return [one for one in self.all_events() if one.involved_object.name == name]

    def all_events(self) -> list[Event]:
        return self._events.store.list()

    # ------------------------------------------------------------------ the past

    def guard(self, namespace: str, app: str, least: int) -> Guard:
        """Count the ready pods of an app from now on, at every change."""
        with self._lock:
            one = Guard(app, least, self._ready(namespace, app))
            self._guards[namespace].append(one)
        return one

    def left_at(self, uid: str) -> float:
        """When a pod was first seen to end (monotonic seconds); infinite while it has not."""
        return self._left.get(uid, float("inf"))

    def gone_at(self, uid: str) -> float:
        """When a pod was seen to be no more (monotonic seconds); infinite while it is there."""
        return self._gone.get(uid, float("inf"))

    def most_disrupted(self, *pools: str) -> int:
        """Nodes of some NodePools that were tainted for disruption at one time, less those whose instance was ending already."""
        with self._lock:
            history = sorted(one for pool in pools for one in self._steps[pool])
        tainted: set[str] = set()
        ended: set[str] = set()
        most = 0
        for _, kind, name, value in history:
            which = tainted if kind == "tainted" else ended
            (which.add if value else which.discard)(name)
            most = max(most, len(tainted - ended))
        return most

    def _ready(self, namespace: str, app: str) -> int:
        mine = (one for one in self.pods(namespace) if one.labels.get("app") == app)
        return sum(one.ready and one.deleted is None for one in mine)

    def _on_pod(self, pod: Pod, deleted: bool) -> None:
        if deleted or pod.deleted is not None:
            self._left.setdefault(pod.uid, self._clock.monotonic())
        if deleted:
            self._gone.setdefault(pod.uid, self._clock.monotonic())
        with self._lock:
            for one in self._guards.get(pod.namespace, ()):
                one.fewest = min(one.fewest, self._ready(pod.namespace, one.app))

    def _on_node(self, node: Node, deleted: bool) -> None:
        value = not deleted and any(taint.key == names.DISRUPTED_TAINT.key for taint in node.spec.taints)
        self._step(node.metadata.labels.get(names.NODEPOOL_LABEL, ""), node, "tainted", node.metadata.name, value)

    def _on_claim(self, claim: NodeClaim, deleted: bool) -> None:
        value = deleted or is_true(claim.status.conditions, names.INSTANCE_TERMINATING)
        if claim.status.node_name:
            self._step(claim.pool, claim, "ended", claim.status.node_name, value)

    def _step(self, pool: str, thing: Node | NodeClaim, kind: str, name: str, value: bool) -> None:
        # the versions of all kinds are of one etcd, so they tell what came first
        with self._lock:
            self._steps[pool].append((int(thing.metadata.resource_version), kind, name, value))


class _Entry(NamedTuple):
    """One request about a pod: evict, delete or forced (see `Log.forced`)."""

    what: str
    name: str
    user: str
    status: int
    at: datetime


@dataclass
class Log:
    """The audit log, read as it grows: what was done to pods, by namespace."""

    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _offset: int = 0
    _found: defaultdict[str, list[_Entry]] = field(default_factory=lambda: defaultdict(list))

    def evictions(self, namespace: str) -> list[str]:
        """Names of the pods whose eviction was granted, once for each time."""
        return [one.name for one in self._evictions(namespace)]

    def last_eviction(self, namespace: str) -> datetime | None:
        """When the last eviction that was granted was asked for."""
        return max((one.at for one in self._evictions(namespace)), default=None)

    def orphans(self, namespace: str) -> list[str]:
        """Names of pods that kube-controller-manager deleted because their node was gone or evicts at once."""
        return [one.name for one in self._of(namespace) if one.what == "delete" and one.user in _GARBAGE]

    def forced(self, namespace: str) -> list[str]:
        """Names of pods that a program of ours deleted without asking for an eviction."""
        return [one.name for one in self._of(namespace) if one.what == "forced" and one.status < 300 and one.user]

    def _evictions(self, namespace: str) -> list[_Entry]:
        return [one for one in self._of(namespace) if one.what == "evict" and one.status < 300]

    def _of(self, namespace: str) -> list[_Entry]:
        with self._lock:
            self._read()
            return list(self._found[namespace])

    def _read(self) -> None:
        with self.path.open("rb") as log:
            log.seek(self._offset)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for namespace, one in _entries(whole.splitlines()):
            self._found[namespace].append(one)


def _entries(lines: Iterable[bytes]) -> Iterable[tuple[str, _Entry]]:
    for line in lines:
        if b'"pods"' not in line:
            continue
        entry = json.loads(line)
        about = entry.get("objectRef", {})
        if about.get("resource") != "pods":
            continue
        user, agent = entry.get("user", {}).get("username", ""), entry.get("userAgent", "")
        if entry["verb"] == "create" and about.get("subresource") == "eviction":
            what = "evict"
        elif entry["verb"] == "delete":
            what = "forced" if "dovetail-provisioner" in agent or agent.startswith("karpenter") else "delete"
        else:
            continue
        status = entry.get("responseStatus", {}).get("code", 0)
        at = datetime.fromisoformat(entry["requestReceivedTimestamp"])
        yield about.get("namespace", ""), _Entry(what, about.get("name", ""), user, status, at)
