"""Adds the label of the NodeClass to NodeClaims and Nodes that were made before Karpenter had this label. Source: core spec 0, "hydration"."""

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import CloudProvider
from provisioner.controllers.core.claim_writer import ClaimWriter
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import Conflict, NotFound
from provisioner.state.cluster import Cluster
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, Result


def missing_labels(claim: NodeClaim, thing: NodeClaim | Node) -> dict[str, str]:
    """The labels that a claim, or its Node, should have and has not; pure. One that is there is somebody's choice."""
    reference = claim.spec.node_class_ref
    wanted = {names.nodeclass_label(reference.group, reference.kind): reference.name}
    return {key: value for key, value in wanted.items() if key not in thing.metadata.labels}


class Hydration:
    """Adds them, one object at a time; one key is a claim's name."""

    def __init__(
        self, cluster: Cluster, client: Client, provider: CloudProvider, writer: ClaimWriter, clock: Clock
    ) -> None:
        self._cluster, self._client, self._provider, self._writer = cluster, client, provider, writer
        self.queue = KeyedQueue("nodeclaim-hydration", self._fill, clock)

    def seen(self, claim: NodeClaim) -> None:
        """A claim, or the Node of a claim, as it is now; those that lack nothing cost a look."""
        reference = claim.spec.node_class_ref
        if claim.metadata.uid and (reference.group, reference.kind) in self._provider.node_class_kinds():
            node = self._cluster.node_of(claim)
            if missing_labels(claim, claim) or (node is not None and _lacks(claim, node)):
                self.queue.add(claim.metadata.name)

    def _fill(self, name: str) -> Result:
        claim = self._cluster.claim(name)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return DONE
        try:
            if labels := missing_labels(claim, claim):
                claim = self._writer.metadata(claim, labels=labels)
            node = self._cluster.node_of(claim)
            if node is not None and _lacks(claim, node):
                body = {"metadata": {"uid": node.metadata.uid, "labels": missing_labels(claim, node)}}
                self._writer.node_written(self._client.patch(resources.NODES, node.metadata.name, body))
        except (NotFound, Conflict):
            return DONE  # gone, or another one; its watch brings us back
        return DONE


def _lacks(claim: NodeClaim, node: Node) -> bool:
    """One that is not registered gets the claim's labels when it is."""
    return node.metadata.labels.get(names.REGISTERED_LABEL) == "true" and bool(missing_labels(claim, node))
