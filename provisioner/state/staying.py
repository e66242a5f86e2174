"""Which nodes stay, so that pods are where they may be, and which keep what is planned there. Not thread-safe."""

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod, read_architectures
from provisioner.state.disruption_commands import Commands
from provisioner.state.joining import Joining
from provisioner.state.keys import NodeKey
from provisioner.state.node_views import is_deleted, is_disrupted, is_going, is_lost


class StayingNodes:
    """Nodes, judged by what is written on them and by the disruption commands under way. Every call is O(1)."""

    def __init__(self, joining: Joining, commands: Commands) -> None:
        self._joining, self._commands = joining, commands

    def found_place(self, pod: Pod) -> bool:
        """Whether a pod is bound to a node that stays, or is not known."""
        return bool(pod.node_name) and not self.goes(pod.node_name)

    def goes(self, node_name: str) -> bool:
        """Whether a Node is there, and does not stay."""
        node = self._joining.nodes.get(node_name)
        return node is not None and self._is_going(node, self._joining.claim_of(node))

    def takes(self, key: NodeKey) -> bool:
        """Whether pods may be planned onto a node: it is known, stays, and is one."""
        pair = self._joining.pair(key)
        if pair is None or self._is_going(*pair) or is_lost(*pair):
            return False
        claim = pair[1]
        return claim is None or self._joining.rivals(claim.status.provider_id) is None

    def keeps(self, key: NodeKey) -> bool:
        """Whether a node keeps the pods that are planned onto it.

        The taint of a disruption alone ends nothing: who wrote it looks at what is planned there, and may take it off again.
        """
        node, claim = self._joining.pair(key) or (None, None)
        if (node is None and claim is None) or is_deleted(node, claim):
            return False
        if claim is None:
            return True
        interrupted = is_disrupted(node) and names.INTERRUPTION_ANNOTATION in claim.metadata.annotations
        return not interrupted and self._joining.rivals(claim.status.provider_id) is None

    def is_candidate(self, node_name: str) -> bool:
        """Whether a command has a Node as a candidate, so that places of its pods are kept as long as that lives."""
        node = self._joining.nodes.get(node_name)
        claim = self._joining.claim_of(node) if node is not None else None
        return claim is not None and self._commands.of(claim.metadata.name) is not None

    def runs_images(self, key: NodeKey, pod: Pod) -> bool:
        """Whether a node is known to be of an architecture that the pod's images were built for, as far as that is known."""
        wanted = {*read_architectures(pod.annotations)}
        node, claim = self._joining.pair(key) or (None, None)
        told = {
            one.metadata.labels[names.ARCH_LABEL]
            for one in (node, claim)
            if one is not None and names.ARCH_LABEL in one.metadata.labels
        }
        if not told and claim is not None:
            told.update(
                *(one.values for one in claim.spec.requirements if one.key == names.ARCH_LABEL and one.operator == "In")
            )
        return not wanted or (bool(told) and told <= wanted)

    def _is_going(self, node: Node | None, claim: NodeClaim | None) -> bool:
        return is_going(node, claim) or (claim is not None and self._commands.of(claim.metadata.name) is not None)
