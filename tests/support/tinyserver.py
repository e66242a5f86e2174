"""A small API server for NodeClaims, Nodes and pods, that tells a `World` what a watch would tell."""

import copy
import math
import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import CloudProvider
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.interruption.controller import Interruptions
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.state.pause import NOTHING
from provisioner.support.workers import WorkerPool
from provisioner.termination.disrupted_taint import DisruptedTaints
from provisioner.termination.eviction_queue import Evictions
from provisioner.termination.terminator import Terminator
from tests.support import jsonpatch
from tests.support.cluster import World
from tests.support.eventually import eventually
from tests.support.kube import FakeAnswer, FakeApi, Sent, ok, refusal
from tests.support.pods import wire_pod

_KINDS: dict[str, Any] = {"nodeclaims": NodeClaim, "nodes": Node}
_PATH = re.compile(
    r"/(?:api/v1|apis/karpenter.sh/v1)/(?P<kind>nodeclaims|nodes)(?:/(?P<name>[^/]+))?(?P<status>/status)?"
)
_GUARDS = frozenset({"uid", "resourceVersion"})
_PDBS = re.compile(r"/apis/policy/v1/namespaces/(?P<namespace>[^/]+)/poddisruptionbudgets")
_POD = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/]+)(?P<eviction>/eviction)?")


class Told(Recorder):
    """Keeps events instead of sending them: (kind, name, type, reason), and apart from them messages, the objects' UIDs, and what makes them the same."""

    def __init__(self, client: Client, clock: Any) -> None:
        super().__init__(client, "test", clock)
        self.events: list[tuple[str, str, str, str]] = []
        self.messages: list[str] = []
        self.uids: list[str] = []
        self.dedupes: list[tuple[str, ...]] = []

    def publish(self, ref: Any, type: Any, reason: str, message: str, dedupe: Any = (), ttl: Any = None) -> None:  # noqa: A002
        self.events.append((ref.kind, ref.name, type, reason))
        self.messages.append(message)
        self.uids.append(ref.uid)
        self.dedupes.append(dedupe)


class ServerDied(Exception):  # noqa: N818  (what a test sees of kill -9)
    """The process ended before this write."""


class TinyServer:
    """Takes merge and JSON patches, deletions and lists.

    Attributes:
        world: what our caches have; `tell` off, the server knows more than they.
        pods: what is bound, by UID, as the server encodes it; evicted and deleted ones are gone at once.
        budgets: PodDisruptionBudgets, as JSON.
        attachments: VolumeAttachments, as JSON.
        refuse: status to answer to writes of objects by name, instead of doing them.
        refusal: what is said with them.
        refuse_creates: status to answer to every creation; 0 creates.
        done: requests that changed something, as "METHOD kind/name".
        pause: what is paused, for evictions.
        postpone: why no node may end, to whoever asks `postponed`, which keeps their patience in `patience`.
        dies_after: how many of those there may be before everything raises `ServerDied`; None never dies.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.objects: dict[tuple[str, str], Any] = {}
        self.pods: dict[str, tuple[str, bytes]] = {}  # UID -> (Node, JSON)
        self.budgets: list[Any] = []
        self.attachments: list[Any] = []
        self.refuse: dict[str, int] = {}
        self.refusal = "no"
        self.refuse_creates = 0
        self.done: list[str] = []
        self.dies_after: int | None = None
        self.tell = True
        self.pause = NOTHING
        self.postpone, self.patience = "", list[float]()
        self.api = FakeApi(respond=self._answer, clock=world.clock)
        self.client = Client(self.api, world.clock)
        self.writer = ClaimWriter(self.client, world.cluster, lambda _: None)
        self.recorder = Told(self.client, world.clock)
        self.taints = DisruptedTaints(self.client, world.clock, told=self.writer.node_written)
        self.evictions = Evictions(
            world.cluster, self.client, self.recorder, world.clock, workers=1, pause=lambda: self.pause
        )
        self._version = 1000

    def postponed(self, claim: NodeClaim | None, node: Node | None = None, *, patience: float = math.inf) -> str:
        """As `live_reads.LiveReads`."""
        self.patience.append(patience)
        return self.postpone

    def terminator(self, provider: object = None) -> Terminator:
        """Who ends instances of `provider`, with what it has of this server."""
        cluster, clock = self.world.cluster, self.world.clock
        return Terminator(
            cast(CloudProvider, provider),
            self.client,
            cluster.claims,
            self.evictions,
            self.taints,
            self.recorder,
            clock,
            volume_of=cluster.volume_of,
        )

    def interruptions(
        self, workers: WorkerPool, plan: Callable[[str], None] = lambda _: None, **settings: Any
    ) -> Interruptions:
        """What carries out interruptions, with what it has of this server; `settings` are as of `Interruptions`."""
        return Interruptions(
            self.world.cluster,
            self.taints,
            self.writer,
            self.recorder,
            workers,
            self.world.clock,
            ledger=BudgetLedger(self.world.cluster),
            plan=plan,
            postponed=self.postponed,
            **settings,
        )

    def put(self, *things: NodeClaim | Node) -> None:
        """Objects that are there, and that our caches know."""
        for thing in things:
            kind = "nodes" if isinstance(thing, Node) else "nodeclaims"
            self._store(kind, thing.metadata.name, msgspec.json.decode(msgspec.json.encode(thing)))

    def work_off(self) -> None:
        """Until every eviction that is wanted now was asked for."""
        self.evictions.queue.start()
        eventually(self.evictions.queue.idle, "evictions are asked for", 10.0, 0.01)

    def bind(self, name: str, node: str, *, raw: bytes = b"", **changes: Any) -> None:
        """A pod that the server knows to be bound, and our caches do not; its UID is its name."""
        wire = wire_pod(metadata__name=name, metadata__uid=name, metadata__namespace="default", spec__nodeName=node)
        wire["status"] = {"phase": "Running"}
        for path, value in changes.items():
            at, *parents, last = wire, *path.split("__")
            for parent in parents:
                at = at.setdefault(parent, {})
            at[last] = value
        self.pods[name] = (node, raw or msgspec.json.encode(wire))

    def claim(self, name: str) -> NodeClaim:
        """A claim as the server has it."""
        found: NodeClaim = msgspec.convert(self.objects["nodeclaims", name], NodeClaim, strict=False)
        return found

    def node(self, name: str) -> Node:
        """A Node as the server has it."""
        found: Node = msgspec.convert(self.objects["nodes", name], Node, strict=False)
        return found

    def has(self, kind: str, name: str) -> bool:
        """Whether an object is there and stays."""
        found = self.objects.get((kind, name))
        return found is not None and "deletionTimestamp" not in found["metadata"]

    def _answer(self, sent: Sent) -> FakeAnswer:
        if sent.path == "/apis/storage.k8s.io/v1/volumeattachments":
            if "volumeattachments" in self.refuse:
                return refusal(self.refuse["volumeattachments"])
            return ok({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": self.attachments})
        if sent.path == "/api/v1/pods":
            return self._list_pods(sent)
        if found := _POD.fullmatch(sent.path):
            if found["name"] in self.refuse:
                return refusal(self.refuse[found["name"]], message=self.refusal)
            self.pods.pop(found["name"], None)
            self.done.append(f"{sent.method} {'evictions' if found['eviction'] else 'pods'}/{found['name']}")
            return ok({"kind": "Status", "status": "Success"})
        if found := _PDBS.fullmatch(sent.path):
            items = [one for one in self.budgets if one["metadata"]["namespace"] == found["namespace"]]
            return ok({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})
        path = _PATH.fullmatch(sent.path)
        assert path is not None, f"nobody expected {sent.method} {sent.path}"
        kind, name = path["kind"], path["name"]
        if name is None:
            if kind in self.refuse:
                return refusal(self.refuse[kind])
            if sent.method == "POST":
                return self._create(kind, sent.body)
            items = [thing for (one, _), thing in sorted(self.objects.items()) if one == kind]
            return ok({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})
        if sent.method != "GET" and name in self.refuse:
            return refusal(self.refuse[name])
        known = self.objects.get((kind, name))
        if known is None:
            return refusal(404, "NotFound")
        if sent.method == "GET":
            return ok(known)
        if self.dies_after is not None and len(self.done) >= self.dies_after:
            raise ServerDied
        body = sent.body if isinstance(sent.body, dict) else {}
        given = body.get("preconditions" if sent.method == "DELETE" else "metadata", {})
        if any(value != known["metadata"][key] for key, value in given.items() if key in _GUARDS):
            return refusal(409, "Conflict")
        self.done.append(f"{sent.method} {kind}/{name}")
        if sent.method == "DELETE":
            return self._delete(kind, name, known)
        if "json-patch" in sent.content_type:
            try:
                changed = jsonpatch.apply(known, sent.body)
            except jsonpatch.PatchError:
                return refusal(422, "Invalid")
        else:
            changed = _merged(known, sent.body)
        return ok(self._store(kind, name, changed))

    def _create(self, kind: str, body: Any) -> FakeAnswer:
        name = body["metadata"]["name"]
        if self.refuse_creates:
            return refusal(self.refuse_creates)
        if (kind, name) in self.objects:
            return refusal(409, "AlreadyExists")
        if self.dies_after is not None and len(self.done) >= self.dies_after:
            raise ServerDied
        self.done.append(f"POST {kind}/{name}")
        made = copy.deepcopy(body)
        made["metadata"] |= {
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": self.world.clock.now().isoformat(),
        }
        return ok(self._store(kind, name, made))

    def _list_pods(self, sent: Sent) -> FakeAnswer:
        """Those of one Node, as a quorum read: a request that allows old answers is a defect."""
        assert "resourceVersion" not in sent.query
        if "pods" in self.refuse:
            return refusal(self.refuse["pods"])
        wanted = sent.query["fieldSelector"].removeprefix("spec.nodeName=").partition(",")[0]
        items = b",".join(raw for node, raw in self.pods.values() if node == wanted)
        return FakeAnswer(
            data=b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[' + items + b"]}"
        )

    def _delete(self, kind: str, name: str, known: Any) -> FakeAnswer:
        if known["metadata"].get("finalizers"):
            gone = copy.deepcopy(known)
            gone["metadata"]["deletionTimestamp"] = self.world.clock.now().isoformat()
            return ok(self._store(kind, name, gone))
        del self.objects[kind, name]
        return ok({"kind": "Status", "status": "Success"})

    def next_version(self) -> str:
        """Of what is written now, by whomever."""
        self._version += 1
        return str(self._version)

    def _store(self, kind: str, name: str, wire: Any) -> Any:
        wire["metadata"]["resourceVersion"] = self.next_version()
        self.objects[kind, name] = wire
        if self.tell:
            thing = msgspec.convert(wire, _KINDS[kind], strict=False)
            cluster = self.world.cluster
            if kind == "nodes":
                cluster.node_changed(cluster.node(name), thing)
            else:
                cluster.claim_changed(cluster.claim(name), thing)
        return wire


def _merged(known: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(known) if isinstance(known, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
