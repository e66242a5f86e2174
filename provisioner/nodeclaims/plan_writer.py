"""Writes plans where every program can read them: on NodeClaims, also on those of nodes that exist already. Design 3b.3.

Nothing is read from Nodes or written there: a kubelet may write its own Node, and would lure pods. What earlier versions
wrote on Nodes is removed.
"""

import threading
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.plan import Plan, PlanError, decode_plan, fitting_text
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, Invalid, NotFound
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime.controller import Keys
from provisioner.state.cluster import Cluster
from provisioner.state.keys import NodeKey
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, ReconcileResult, WorkerPool
from provisioner.values.jsontext import pointer

_TRIES = 4
_PATH = pointer("metadata", "annotations", names.PLAN_ANNOTATION)
#: A kubelet that writes the annotation again and again is not followed at its pace: nobody reads it.
REMOVE_AGAIN_SECONDS = 3600.0
_log = logs.get_logger(__name__)
_FAILED_TO_WRITE_PLAN: Final = "Failed to write the plan of a NodeClaim"


class PlanWriter:
    """Brings the plan of one NodeClaim up to date with the assignments that the state knows, one write at a time.

    What is written is read from the state when it is written, so however many changes come meanwhile, one more write
    tells them all. A write that fails costs placement, never a pod: the room is kept in memory all the same.
    """

    def __init__(self, cluster: Cluster, writer: ClaimWriter, workers: WorkerPool) -> None:
        self._cluster, self._writer, self._workers = cluster, writer, workers
        self._lock = threading.Lock()
        self._due: set[NodeKey] = set()
        self._busy: set[NodeKey] = set()

    def changed(self, key: NodeKey) -> None:
        """The assignments of this node are others than its plan says. Nodes without a NodeClaim carry no plan."""
        if not key.of_claim:
            return
        with self._lock:
            self._due.add(key)
            if key in self._busy:
                return
            self._busy.add(key)
        self._workers.submit(lambda: self._run(key))

    def _run(self, key: NodeKey) -> None:
        while True:
            with self._lock:
                if key not in self._due:
                    self._busy.discard(key)
                    return
                self._due.discard(key)
            try:
                self._write(key)
            except NotFound:
                continue
            except ApiError as error:
                _log.info(_FAILED_TO_WRITE_PLAN, nodeclaim=key.name, error=str(error))
            except Exception:  # noqa: BLE001 - the thread outlives a pass that fails
                _log.exception(_FAILED_TO_WRITE_PLAN, nodeclaim=key.name)

    def _write(self, key: NodeKey) -> None:
        claim = self._cluster.claim(key.name)
        for attempt in range(_TRIES):
            if claim is None or not claim.metadata.uid or claim.metadata.deletion_timestamp is not None:
                return
            plan = self._cluster.plan_of(key)
            text, former = (
                fitting_text(plan) if plan.pods else "",
                claim.metadata.annotations.get(names.PLAN_ANNOTATION, ""),
            )
            if text == former or (plan.pods and not text):
                return
            try:
                self._writer.patch(claim, plan_patch(claim, text))
            except (Invalid, Conflict):  # somebody wrote it, or the claim, in between
                if attempt == _TRIES - 1:
                    raise
                claim = self._writer.read(claim)
            else:
                for other in self._cluster.moved(key, readable(former)):
                    self.changed(other)
                return


def readable(text: str) -> Plan:
    """The plan of an annotation, an empty one where it holds none."""
    try:
        return decode_plan(text) if text else Plan()
    except PlanError:
        return Plan()


def plan_patch(claim: NodeClaim, text: str) -> list[dict[str, Any]]:
    """A JSON patch that sets a claim's plan, or takes it off where `text` is "", if it is still as it was read."""
    return annotation_patch(claim, names.PLAN_ANNOTATION, text)


def annotation_patch(claim: NodeClaim, key: str, text: str) -> list[dict[str, Any]]:
    """The same for any annotation."""
    annotations, path = claim.metadata.annotations, pointer("metadata", "annotations", key)
    uid = {"op": "test", "path": "/metadata/uid", "value": claim.metadata.uid}
    if key in annotations:
        was = {"op": "test", "path": path, "value": annotations[key]}
        return [uid, was, {"op": "replace", "path": path, "value": text} if text else {"op": "remove", "path": path}]
    if not text:
        return []
    same = {"op": "test", "path": "/metadata/resourceVersion", "value": claim.metadata.resource_version}
    if annotations:
        return [uid, same, {"op": "add", "path": path, "value": text}]
    return [uid, same, {"op": "add", "path": "/metadata/annotations", "value": {key: text}}]


class NodePlanRemover:
    """Removes the plans that earlier versions wrote on Nodes, one at a time and none more than once an hour."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._removed_at: dict[str, float] = {}

    def seen(self, node: Node) -> Keys:
        """A Node as it is now; its name, where a plan is to be removed."""
        name = node.metadata.name
        if names.PLAN_ANNOTATION not in node.metadata.annotations:
            return ()
        with self._lock:
            at = self._removed_at.get(name)
            if at is not None and self._clock.monotonic() - at < REMOVE_AGAIN_SECONDS:
                return ()
            self._nodes[name] = node
        return (name,)

    def gone(self, name: str) -> None:
        """A Node does not exist any more."""
        with self._lock:
            self._nodes.pop(name, None)
            self._removed_at.pop(name, None)

    def reconcile(self, name: str) -> ReconcileResult:
        """Remove the plan of one Node."""
        with self._lock:
            node = self._nodes.pop(name, None)
            if node is None:
                return DONE
            self._removed_at[name] = self._clock.monotonic()
        body = {"metadata": {"uid": node.metadata.uid, "annotations": {names.PLAN_ANNOTATION: None}}}
        try:
            self._client.patch(resources.NODES, name, body)
        except (NotFound, Conflict):
            self.gone(name)
        except ApiError as error:
            _log.info("Failed to remove an outdated plan from a Node; retrying", node=name, error=str(error))
        else:
            _log.info("Removed an outdated plan from a Node", node=name)
        return DONE
