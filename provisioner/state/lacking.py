"""What a Node still lacks of what is planned there, so that kube-scheduler refuses the pods that need it: resources and CSI drivers."""

from collections.abc import Iterable
from typing import NamedTuple

from provisioner.apis.core import Node


class Lacking(NamedTuple):
    """What is lacking, sorted.

    Attributes:
        resources: requested ones that no device plugin has registered.
        drivers: CSI drivers that pods' volumes need and the Node's CSINode does not list.
    """

    resources: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()


NOTHING = Lacking()


def unregistered(node: Node, wanted: Iterable[str]) -> tuple[str, ...]:
    """Of these resources those of which a Node has none. A device plugin that is not there yet, or restarts, tells no amount, or 0."""
    there = node.status.allocatable
    return tuple(sorted(name for name in wanted if str(there.get(name, 0)) == "0"))
