"""Plans written where every program sees them: on the NodeClaim until it is initialised, then on its Node. Design 3b.3."""

import threading
from typing import Any

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.controllers.claims import plan_text
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, NotFound
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.workers import Pool as Workers

_log = logs.get_logger(__name__)


class PlanWriter:
    """Brings the annotation of one machine up to date with the promises that the state knows, one write at a time.

    What is written is read from the state when it is written, so however many changes come meanwhile, one more write
    tells them all. A write that fails costs placement, never a pod: the room is promised in memory all the same.
    """

    def __init__(self, cluster: Cluster, client: Client, workers: Workers) -> None:
        self._cluster, self._client, self._workers = cluster, client, workers
        self._lock = threading.Lock()
        self._due: set[str] = set()
        self._busy: set[str] = set()

    def changed(self, key: str) -> None:
        """Promises on this machine (`NodeView.key`) changed after its plan was written."""
        with self._lock:
            self._due.add(key)
            if key in self._busy:
                return
            self._busy.add(key)
        self._workers.submit(lambda: self._run(key))

    def _run(self, key: str) -> None:
        while True:
            with self._lock:
                if key not in self._due:
                    self._busy.discard(key)
                    return
                self._due.discard(key)
            try:
                self._write(key)
            except (NotFound, Conflict):
                continue  # gone, or another object has its name
            except ApiError as error:
                _log.info("a plan stays in memory only", machine=key, error=str(error))
            except Exception:
                _log.exception("a plan stays in memory only", machine=key)

    def _write(self, key: str) -> None:
        text = plan_text(self._cluster.promised(key))
        node = self._node(key)
        if node is not None:
            if node.metadata.annotations.get(names.PLAN_ANNOTATION, "") != text:
                self._cluster.node_plan_written(node.metadata.name, text)
                self._client.patch(resources.NODES, node.metadata.name, _body(node, text or None))
            return
        claim = self._cluster.claim(key)
        if claim is not None and claim.metadata.uid and text:
            self._cluster.claim_written(self._client.patch(resources.NODECLAIMS, key, _body(claim, text)))

    def _node(self, key: str) -> Node | None:
        """The Node that carries this machine's plan; None while its claim does."""
        claim = self._cluster.claim(key)
        if claim is None:
            return self._cluster.node(key.removeprefix("node/")) if key.startswith("node/") else None
        return self._cluster.node_of(claim) if is_true(claim.status.conditions, names.INITIALIZED) else None


def _body(machine: Node | NodeClaim, text: str | None) -> dict[str, Any]:
    return {"metadata": {"uid": machine.metadata.uid, "annotations": {names.PLAN_ANNOTATION: text}}}
