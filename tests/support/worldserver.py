"""An API server in memory that tells a `World` what a watch would tell, and what acts on it."""

import math
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import CloudProvider
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.interruption.controller import Interruptions
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.simulator.api_server import ApiServer, ServerChange, Wire, asked
from provisioner.state.pause import NOTHING
from provisioner.support.workers import WorkerPool
from provisioner.termination.disrupted_taint import DisruptedTaints
from provisioner.termination.eviction_queue import Evictions
from provisioner.termination.terminator import Terminator
from tests.support.cluster import World
from tests.support.eventually import eventually
from tests.support.kube import FakeAnswer, FakeApi, Sent, refusal
from tests.support.pods import wire_pod

KINDS: Final[dict[str, Any]] = {"nodeclaims": NodeClaim, "nodes": Node}


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

    def said(self, reason: str, kind: str = "") -> list[str]:
        """Messages of a reason, of objects of this kind or of all."""
        told = zip(self.events, self.messages, strict=True)
        return [message for event, message in told if event[3] == reason and kind in ("", event[0])]


class ServerDied(Exception):  # noqa: N818  (what a test sees of kill -9)
    """The process ended before this write."""


class WorldServer(ApiServer):
    """The API server of one world.

    Attributes:
        world: what our caches have of NodeClaims and Nodes; `tell` off, the server knows more than they.
        ends_at_once: a pod that a program asks to end is gone; else it ends when the test says so.
        intercept: sees each request before it is done; what it answers counts instead.
        refuse: status to answer instead of doing it: to writes of objects by name, to lists of a kind by plural, to all requests of a method.
        refusal: what is said with them.
        refuse_creates: status to answer to every creation; 0 creates.
        done: requests that changed something, as "METHOD kind/name".
        pause: what is paused, for evictions.
        postpone: why no node may end, to whoever asks `postponed`, which keeps their patience in `patience`.
        dies_after: how many of those there may be before everything raises `ServerDied`; None never dies.
    """

    def __init__(self, world: World, before: "WorldServer | None" = None) -> None:
        """`before`: the same server as another process had it; the world is told of what is there, in the order in which it was written."""
        super().__init__(world.clock)
        self.world = world
        self.version = 1_000_000  # later than whatever the tests write themselves
        self.told = self._heard
        self.refuse: dict[str, int] = {}
        self.refusal = "no"
        self.refuse_creates = 0
        self.done: list[str] = []
        self.dies_after: int | None = None
        self.intercept: Callable[[Sent], FakeAnswer | None] = lambda _: None
        self.tell = self.ends_at_once = True
        self.pause = NOTHING
        self.postpone, self.patience = "", list[float]()
        self.api = FakeApi(respond=self._respond, clock=world.clock)
        self.client = Client(self.api, world.clock)
        self.writer = ClaimWriter(self.client, world.cluster, lambda _: None)
        self.recorder = Told(self.client, world.clock)
        self.taints = DisruptedTaints(self.client, world.clock, told=self.writer.node_written)
        self.evictions = Evictions(
            world.cluster, self.client, self.recorder, world.clock, workers=1, pause=lambda: self.pause
        )
        if before is not None:
            self.objects, self.version, self._owned = before.objects, before.version, before._owned
            known = [(plural, one) for plural in KINDS for one in self.all(plural)]
            for plural, one in sorted(known, key=lambda pair: int(pair[1]["metadata"]["resourceVersion"])):
                self._heard(ServerChange(None, plural, one["metadata"]["name"], None, one))

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
            plural = "nodes" if isinstance(thing, Node) else "nodeclaims"
            wire = msgspec.json.decode(msgspec.json.encode(thing))
            wire["metadata"].pop("resourceVersion", None)  # however it was before, it is written anew
            self.store(plural, wire)

    def only(self, plural: str, *wires: Wire) -> None:
        """There are these of a kind, and no others."""
        self.objects[plural].clear()
        for one in wires:
            self.store(plural, one)

    def work_off(self) -> None:
        """Until every eviction that is wanted now was asked for."""
        self.evictions.queue.start()
        eventually(self.evictions.queue.idle, "evictions are asked for", 10.0, 0.01)

    def bind(self, name: str, node: str, **changes: Any) -> None:
        """A pod that the server knows to be bound, and our caches do not; its UID is its name. `changes` are as of `wire_pod`."""
        given = {"metadata__uid": name, "status": {"phase": "Running"}, **changes}
        self.store("pods", wire_pod(metadata__name=name, metadata__namespace="default", spec__nodeName=node, **given))

    def add(self, *pods: Pod) -> None:
        """Pods that wait, as the server and our caches know them; of a shape the server knows nothing."""
        self.world.add(*pods)
        for one in pods:
            meta: Wire = {"name": one.name, "namespace": one.namespace, "uid": one.uid}
            meta |= {"annotations": dict(one.annotations)} if one.annotations else {}
            self.store("pods", {"metadata": meta, "spec": {}, "status": {"phase": "Pending"}})

    def claim(self, name: str) -> NodeClaim:
        """A claim as the server has it."""
        found: NodeClaim = msgspec.convert(self.objects["nodeclaims"][name], NodeClaim, strict=False)
        return found

    def node(self, name: str) -> Node:
        """A Node as the server has it."""
        found: Node = msgspec.convert(self.objects["nodes"][name], Node, strict=False)
        return found

    def has(self, plural: str, name: str) -> bool:
        """Whether an object is there and stays; pods are those of the namespace `default`."""
        found = self.get(plural, name, "default" if plural == "pods" else "")
        return found is not None and "deletionTimestamp" not in found["metadata"]

    def next_version(self) -> str:
        """Of what is written now, by whomever."""
        self.version += 1
        return str(self.version)

    def uid_of(self, name: str) -> str:
        return f"uid-{name}"

    def _respond(self, sent: Sent) -> FakeAnswer:
        if (instead := self.intercept(sent)) is not None:
            return instead
        about = asked(sent.path)
        assert about is not None, f"nobody serves {sent.method} {sent.path}"
        assert about.name or "resourceVersion" not in sent.query, "a list that may be old"
        writes = sent.method != "GET" and not sent.query.get("dryRun")
        of_this = self.refuse.get(about.name or about.plural) if writes or not about.name else None
        if (status := self.refuse.get(sent.method, of_this)) is not None:
            return refusal(status, message=self.refusal)
        if self.refuse_creates and sent.method == "POST" and not about.name:
            return refusal(self.refuse_creates, message=self.refusal)
        if writes and self.dies_after is not None and len(self.done) >= self.dies_after:
            raise ServerDied
        name = about.name or (sent.body["metadata"]["name"] if writes else "")
        answer = self.answer(sent, self)
        if writes and answer.status < 300:
            self.done.append(f"{sent.method} {'evictions' if about.sub == 'eviction' else about.plural}/{name}")
        return answer

    def _written(self, pod: Wire) -> None:
        """A pod as a program has left it: a nomination and annotations are told, an end may come at once."""
        meta, cluster = pod["metadata"], self.world.cluster
        if self.ends_at_once and "deletionTimestamp" in meta:
            self.drop("pods", meta["name"], meta["namespace"])
        elif self.tell and (known := cluster.pod(meta["uid"])) is not None:
            to, version = pod.get("status", {}).get("nominatedNodeName", ""), meta["resourceVersion"]
            now = {"annotations": meta.get("annotations", {}), "nominated_node_name": to, "resource_version": version}
            cluster.pod_changed(known, msgspec.structs.replace(known, **now))

    def _heard(self, change: ServerChange) -> None:
        after = change.after
        if change.plural == "pods":
            if change.by is self and after is not None:
                self._written(after)
        elif self.tell and change.plural in KINDS:
            cluster = self.world.cluster
            thing = msgspec.convert(after, KINDS[change.plural], strict=False) if after is not None else None
            if change.plural == "nodes":
                cluster.node_changed(cluster.node(change.name), thing)
            else:
                cluster.claim_changed(cluster.claim(change.name), thing)
