"""Adds the taint `karpenter.sh/disrupted` to Nodes, which closes them to new pods, removes it again, and knows since when each Node has it."""

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node, NodeSpec
from provisioner.apis.meta import Object, ObjectMeta
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import DecodeError
from provisioner.runtime.node_patch import merged, patch_node
from provisioner.support.clock import Clock
from provisioner.values.bounded import forget_oldest
from provisioner.values.jsontext import pointer

_MOST = 20_000


def disruption_patch(node: Node) -> list[dict[str, Any]]:
    """Operations that give a Node the disrupted taint, replacing one of the same key; none where it has it; pure."""
    wanted = names.DISRUPTED_TAINT
    if is_disrupted(node):
        return []
    return taints_patch(node, (*(taint for taint in node.spec.taints if taint.key != wanted.key), wanted))


def healing_patch(node: Node) -> list[dict[str, Any]]:
    """Operations that take the disrupted taint off again; pure."""
    left = tuple(taint for taint in node.spec.taints if taint.key != names.DISRUPTED_TAINT.key)
    return taints_patch(node, left) if left != node.spec.taints else []


def is_disrupted(node: Node) -> bool:
    """Whether kube-scheduler binds nothing more here that does not tolerate the disrupted taint."""
    wanted = names.DISRUPTED_TAINT
    return any(taint.key == wanted.key and taint.effect == wanted.effect for taint in node.spec.taints)


def taints_patch(node: Node, taints: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Operations that give a Node these taints, guarded by those that it was decided from."""
    operations: list[dict[str, Any]] = []
    if node.spec.taints:
        operations.append({"op": "test", "path": "/spec/taints", "value": msgspec.to_builtins(node.spec.taints)})
    operations.append({"op": "add", "path": "/spec/taints", "value": msgspec.to_builtins(taints)})
    return operations


def _without_hostname(node: Node) -> list[dict[str, Any]]:
    """A Node without the label of a spread constraint's topologyKey is no domain of it; with it, it is one until it is gone, tainted or not."""
    key = names.HOSTNAME_LABEL
    if key not in node.metadata.labels:
        return []
    return [{"op": "remove", "path": pointer("metadata", "labels", key)}]


class TaintFacts(Object, frozen=True, kw_only=True):
    """Whose a Node is, and what keeps pods off it: a Node without its status, which its kubelet may write as it likes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()


decode_facts = msgspec.json.Decoder(TaintFacts).decode


def read_node(client: Client, name: str) -> Node:
    """The Node as the API server has it; without its status where that cannot be decoded.

    Raises:
        DecodeError: it cannot be decoded at all.
        ApiError: it is not known.
    """
    body = client.raw("GET", resources.NODES.path(name=name))
    try:
        return resources.NODES.decode(body)
    except Exception as error:  # noqa: BLE001 - whatever the decoder raises concerns this object alone
        try:
            facts = decode_facts(body)
        except Exception:  # noqa: BLE001 - whatever the decoder raises concerns this object alone
            raise DecodeError(200, "BadObject", f"{type(error).__name__}: {error}", None) from error
        return Node(metadata=facts.metadata, spec=facts.spec)


class DisruptedTaints:
    """The only writer of the disrupted taint; remembers since when each Node has it without a break. Thread-safe.

    What an earlier process wrote counts from the moment at which this one first saw it.

    Args:
        told: takes the API server's answer to each write, for the state to know it before the watch tells.
    """

    def __init__(self, client: Client, clock: Clock, *, told: Callable[[Node], object]) -> None:
        self._client, self._clock, self._told = client, clock, told
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}  # by UID of the Node: another one may have the name tomorrow

    def close(self, node: Node, *, ending: bool = False) -> Node:
        """Give the Node the taint unless it has it.

        Args:
            node: as it is known; it is read again where it has changed.
            ending: it ends whatever happens: in the same write it gets the label that takes it out of external load balancers,
                and loses its hostname label, so that kube-scheduler counts it no more where pods are spread over hosts.

        Raises:
            NotFound: the Node is gone.
            ApiError: it may be closed or not.
        """
        wrote = False

        def patch_of(current: Node) -> list[dict[str, Any]]:
            nonlocal wrote
            operations = disruption_patch(current)
            wrote = bool(operations)
            if ending:
                label = {names.EXCLUDE_BALANCERS_LABEL: names.EXCLUDE_BALANCERS_VALUE}
                operations = operations + merged("/metadata/labels", current.metadata.labels, label)
                operations += _without_hostname(current)
            return operations

        try:
            written = patch_node(self._client, node, patch_of)
            self._told(written)
        except DecodeError:  # what its kubelet wrote into its status does not keep it from being closed
            written = read_node(self._client, node.metadata.name)
            if not is_disrupted(written):
                raise
            wrote = False
        now = self._clock.monotonic()  # after the answer: whatever is asked from here on is younger than the taint
        with self._lock:
            if wrote:
                self._since[written.metadata.uid] = now
            else:
                self._since.setdefault(written.metadata.uid, now)
            forget_oldest(self._since, _MOST)
        return written

    def reopen(self, node: Node) -> Node:
        """Take the taint off; the time that it was there counts for nothing any more.

        Raises:
            NotFound: the Node is gone.
            ApiError: it may be open or not.
        """
        self.forget(node)
        written = patch_node(self._client, node, healing_patch)
        self._told(written)
        return written

    def seconds(self, node: Node) -> float:
        """For how long the Node has had the taint, as far as this process knows; 0 for one that it has not closed."""
        with self._lock:
            since = self._since.get(node.metadata.uid)
        return 0.0 if since is None else max(0.0, self._clock.monotonic() - since)

    def forget(self, node: Node) -> None:
        """The Node is gone, or will be open."""
        with self._lock:
            self._since.pop(node.metadata.uid, None)
