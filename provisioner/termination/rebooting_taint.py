"""Adds the taint `karpenter.sh/rebooting` to Nodes, and removes it again."""

from collections.abc import Callable
from typing import Any

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.kube.client import Client
from provisioner.runtime.node_patch import patch_node
from provisioner.termination.disrupted_taint import taints_patch

_TAINT = names.REBOOTING_TAINT


def is_closed_for_reboot(node: Node) -> bool:
    """Whether the Node carries the taint."""
    return any(one.key == _TAINT.key for one in node.spec.taints)


def reboot_patch(node: Node) -> list[dict[str, Any]]:
    """Operations that give a Node the taint; pure."""
    return [] if is_closed_for_reboot(node) else taints_patch(node, (*node.spec.taints, _TAINT))


def return_patch(node: Node) -> list[dict[str, Any]]:
    """Operations that take it off; pure."""
    left = tuple(one for one in node.spec.taints if one.key != _TAINT.key)
    return taints_patch(node, left) if left != node.spec.taints else []


class RebootingTaints:
    """The only writer of the taint. Thread-safe.

    Args:
        told: takes the API server's answer to each write, for the state to know it before the watch tells.
    """

    def __init__(self, client: Client, *, told: Callable[[Node], object]) -> None:
        self._client, self._told = client, told

    def close(self, node: Node) -> None:
        """Give the Node the taint unless it has it; raises ApiError where that is not known."""
        self._told(patch_node(self._client, node, reboot_patch))

    def reopen(self, node: Node) -> None:
        """Take it off; raises ApiError where that is not known."""
        self._told(patch_node(self._client, node, return_patch))
