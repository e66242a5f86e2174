"""Labels of Nodes that have registered: what a NodeClaim decides is put back where somebody else changed it, and what was made before Karpenter had the label
of the NodeClass gets it. Source: core spec 0, "hydration".

Differs: Karpenter writes labels once, at registration. A kubelet may relabel its own Node, and would attract pods of another NodePool.
"""

from typing import Final

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import CloudProvider, manages
from provisioner.kube.errors import Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.lifecycle import registration
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime.controller import Keys
from provisioner.runtime.object_reference import publish
from provisioner.state.cluster import Cluster
from provisioner.state.expected_node import own_labels
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, ReconcileResult
from provisioner.values.message import EventMessage

#: A label that differs is looked at again after so long: we ourselves write Node and NodeClaim one after the other.
SETTLE_SECONDS: Final = 2.0
#: Between one restoration and the next of the same Node, doubled each time.
FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 600.0


def missing_labels(claim: NodeClaim, thing: NodeClaim | Node) -> dict[str, str]:
    """The labels that a claim, or its Node, should have and has not; pure. One that is there is somebody's choice."""
    reference = claim.spec.node_class_ref
    wanted = {names.nodeclass_label(reference.group, reference.kind): reference.name}
    return {key: value for key, value in wanted.items() if key not in thing.metadata.labels}


def changed_labels(claim: NodeClaim, node: Node) -> dict[str, str]:
    """The labels of a claim's registered Node that are not as the claim decides, with the right values; pure."""
    if not registration.was_registered(claim, node) or node.metadata.deletion_timestamp is not None:
        return {}
    labels = node.metadata.labels
    return {key: value for key, value in own_labels(claim).items() if labels.get(key) != value}


class Hydration:
    """Writes them, one object at a time; one key is a claim's name."""

    def __init__(
        self,
        cluster: Cluster,
        provider: CloudProvider,
        writer: ClaimWriter,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._cluster, self._provider, self._writer = cluster, provider, writer
        self._recorder, self._clock = recorder, clock
        self._pauses: dict[str, tuple[float, float]] = {}  # claim -> the last pause, and when it is over

    def seen(self, claim: NodeClaim) -> Keys:
        """A claim, or the Node of a claim, as it is now: when it is looked at; those that lack nothing are not."""
        if claim.metadata.uid and manages(self._provider, claim.spec.node_class_ref):
            node = self._cluster.node_of(claim)
            if missing_labels(claim, claim) or (node is not None and _lacks(claim, node)):
                return (claim.name,)
            if node is not None and changed_labels(claim, node):
                return ((claim.name, SETTLE_SECONDS),)
        return ()

    def reconcile(self, name: str) -> ReconcileResult:
        """Write what one claim and its Node lack."""
        claim = self._cluster.claim(name)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            self._pauses.pop(name, None)
            return DONE
        try:
            if labels := missing_labels(claim, claim):
                claim = self._writer.metadata(claim, labels=labels)
            node = self._cluster.node_of(claim)
            if node is None:
                return DONE
            if _lacks(claim, node):
                self._writer.label_node(node, missing_labels(claim, node))
            return self._restore(claim, node)
        except (NotFound, Conflict):
            return DONE  # gone, or another one; its watch brings us back

    def _restore(self, claim: NodeClaim, node: Node) -> ReconcileResult:
        changed, now = changed_labels(claim, node), self._clock.monotonic()
        if not changed:
            return DONE
        pause, until = self._pauses.get(claim.name, (0.0, 0.0))
        if now < until:
            return ReconcileResult(requeue_after=until - now)
        forgotten = now - until > LONGEST_PAUSE_SECONDS
        pause = FIRST_PAUSE_SECONDS if forgotten or not pause else min(2 * pause, LONGEST_PAUSE_SECONDS)
        recent = {key: one for key, one in self._pauses.items() if now - one[1] <= LONGEST_PAUSE_SECONDS}
        self._pauses = {**recent, claim.name: (pause, now + pause)}
        self._writer.label_node(node, changed)
        message = EventMessage(
            "Warning",
            "NodeLabelsRestored",
            f'Restored labels of Node "{node.metadata.name}" that no longer agreed with its NodeClaim: '
            f"{', '.join(sorted(changed))}",
        )
        publish(self._recorder, self._cluster, (claim.name,), message)
        return DONE


def _lacks(claim: NodeClaim, node: Node) -> bool:
    """One that is not registered gets the claim's labels when it is."""
    return node.registered and bool(missing_labels(claim, node))
