"""Before anything ends, the API server is asked whether it has what the caches show: `LiveReads`, the one whom all ask.

A watch may be behind and nobody knows it yet. So whoever taints a Node, evicts its pods or deletes its NodeClaim asks here first: Node,
NodeClaim and the unfinished pods of the Node are read, metadata only, and each has to be known by its UID at that version or a later one.
Otherwise the end is postponed: until the caches have caught up, or for as long as the caller has patience, which depends on what is lost by waiting.

Not asked is who decides from a list of the API server itself (`Terminator`, a drain while the watch of pods is behind, `SchedulerLiveness`), and who goes on
with what nothing takes back: a command that is sealed, the Node of a NodeClaim that is being deleted, pods at the deadline of their Node. A NodeClaim that was
not launched has neither Node nor pods: it is deleted at the version that was decided from, which the API server compares.
"""

import itertools
import math
import threading
from dataclasses import dataclass
from typing import Final, Protocol

from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import key_of, version_number
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.events import Recorder
from provisioner.kube.resources import ObjectIdentity, PartialIdentity
from provisioner.runtime.object_reference import reference_of
from provisioner.state.cluster import Cluster
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter, gauge
from provisioner.values.bounded import put_newest
from provisioner.values.message import Said

#: The instance is taken away in two minutes, whatever we do.
INTERRUPTED_SECONDS: Final = 5.0
#: The end is decided by others, or by what is broken; its drain asks for each pod once more.
DECIDED_SECONDS: Final = 30.0
#: We chose it, and it can wait. An object that nobody can decode is never known at its version; it must not keep a node for ever.
CHOSEN_SECONDS: Final = 600.0
#: So long a read is compared with what the caches show, then it is read again; one that failed, earlier.
READ_SECONDS, FAILED_SECONDS = 5.0, 1.0
#: What was postponed and not asked for again for so long was given up.
FORGET_SECONDS: Final = 60.0
#: Caches are behind for moments all the time; an event is for what lasts longer.
TELL_SECONDS: Final = 5.0
_MOST: Final = 20_000
_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_POSTPONED = counter(
    "dovetail_ends_postponed_total",
    "Times that a Node was not tainted, its pods not evicted or its NodeClaim not deleted yet, because the caches did not show what the "
    "API server has (differs) or it could not be read (unread), or were ended anyway after a while (overruled).",
    ("cause",),
)
_WAITING = gauge(
    "dovetail_nodes_end_postponed", "Nodes and NodeClaims whose end is postponed until the caches have caught up."
)


class Postponed(Protocol):
    """`LiveReads.postponed`, as those need it who end something."""

    def __call__(self, claim: NodeClaim | None, node: Node | None = None, *, patience: float = ...) -> str: ...


def never(claim: NodeClaim | None, node: Node | None = None, *, patience: float = 0.0) -> str:  # noqa: ARG001 - the seam has them
    """Nothing is ever postponed: for who has no API server to ask."""
    return ""


@dataclass(frozen=True, slots=True)
class _Read:
    """What the API server has of one node; None for what is not there, or was not asked for."""

    claim: tuple[str, PartialIdentity | None]
    node: tuple[str, PartialIdentity | None]
    pods: tuple[PartialIdentity, ...] = ()
    pods_version: int = 0


@dataclass(slots=True)
class _Wait:
    since: float
    asked: float
    read_at: float
    why: str
    read: _Read | None


def _not_known_as_it_is(kind: str, name: str) -> str:
    return Said(f"the cache does not have the current version of {kind} {name} yet")


class LiveReads:
    """See the module. Thread-safe."""

    def __init__(self, cluster: Cluster, client: Client, recorder: Recorder, clock: Clock) -> None:
        self._cluster, self._client, self._recorder, self._clock = cluster, client, recorder, clock
        self._lock = threading.Lock()
        self._waits: dict[str, _Wait] = {}
        _WAITING.set_function(lambda: len(self.waiting()))

    def postponed(self, claim: NodeClaim | None, node: Node | None = None, *, patience: float = math.inf) -> str:
        """Why nothing of this node may end now, in words; "" where the caches show what the API server has.

        Args:
            claim: None for a Node without.
            node: None for a NodeClaim whose Node is not known.
            patience: seconds of postponement after which it ends all the same.

        Cost: three small reads; none while what was read less than five seconds ago has not arrived.
        """
        key = claim.name if claim is not None else node.metadata.name if node is not None else ""
        now = self._clock.monotonic()
        with self._lock:
            known = self._waits.get(key)
        if known is None or now - known.asked > FORGET_SECONDS:
            known = _Wait(now, now, float("-inf"), "", None)
        known.asked = now
        if now - known.read_at >= (READ_SECONDS if known.read is not None else FAILED_SECONDS):
            known.read_at = now
            try:
                known.read = self._read(claim, node)
            except ApiError as error:
                known.read, known.why = None, Said(f"its objects could not be read from the API server: {error}")
        if known.read is not None:
            known.why = self._difference(known.read)
        waited, over = now - known.since, now - known.since >= patience
        with self._lock:
            if known.why:
                put_newest(self._waits, key, known, _MOST)
            else:
                self._waits.pop(key, None)
        if not known.why:
            return ""
        _POSTPONED.labels("overruled" if over else "unread" if known.read is None else "differs").inc()
        if waited >= TELL_SECONDS and claim is not None:
            self._recorder.publish(reference_of(claim), "Normal", "DisruptionBlocked", known.why)
        return "" if over else known.why

    def waiting(self) -> dict[str, str]:
        """What is postponed now, and why: by NodeClaim, or by Node where it has none."""
        now = self._clock.monotonic()
        with self._lock:
            return {key: one.why for key, one in self._waits.items() if now - one.asked <= FORGET_SECONDS}

    # ------------------------------------------------------------------ reading and comparing

    def _read(self, claim: NodeClaim | None, node: Node | None) -> _Read:
        name = claim.metadata.name if claim is not None else ""
        host = node.metadata.name if node is not None else claim.status.node_name if claim is not None else ""
        mine = self._identity(resources.NODECLAIMS, name)
        its = self._identity(resources.NODES, host)
        if not host:
            return _Read((name, mine), (host, its))
        pods, version = self._client.identities(resources.PODS, f"spec.nodeName={host},{_UNFINISHED}")
        return _Read((name, mine), (host, its), pods, version_number(version))

    def _identity(
        self, resource: resources.Resource[NodeClaim] | resources.Resource[Node], name: str
    ) -> PartialIdentity | None:
        try:
            return self._client.identity(resource, name) if name else None
        except NotFound:
            return None

    def _difference(self, read: _Read) -> str:
        """The first object that the caches do not show as it was read, in words; "" where there is none."""
        name, claim = read.claim
        if name and not _is_known(_meta(self._cluster.claim(name)), claim):
            return _not_known_as_it_is("NodeClaim", name)
        host, node = read.node
        if host and not _is_known(_meta(self._cluster.node(host)), node):
            return _not_known_as_it_is("Node", host)
        bound = {pod.uid: pod for pod in self._cluster.bound_to(host)} if host else {}
        there = {pod.uid for pod in read.pods}
        unknown = (pod for pod in read.pods if not _is_known(bound.get(pod.uid), pod))
        gone = (
            pod
            for pod in bound.values()
            if pod.uid not in there and version_number(pod.resource_version) <= read.pods_version
        )
        first = min(map(key_of, itertools.chain[ObjectIdentity](unknown, gone)), default="")
        return _not_known_as_it_is("Pod", first) if first else ""


def _meta(thing: NodeClaim | Node | None) -> ObjectIdentity | None:
    return thing.metadata if thing is not None else None


def _is_known(known: ObjectIdentity | None, read: PartialIdentity | None) -> bool:
    """Whether what the caches have is what was read, or later. Of one that is gone they must have nothing."""
    if known is None or read is None:
        return known is None and read is None
    return known.uid == read.uid and version_number(known.resource_version) >= version_number(read.resource_version)
