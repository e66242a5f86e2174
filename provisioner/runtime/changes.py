"""What the caches tell the controllers: one change of one object. Each kind that a controller listens to has a type of its own.

A listener matches the types that concern it; mypy then knows what `old` and `new` are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from provisioner.apis.buffer import CapacityBuffer
from provisioner.apis.core import (
    AnyPodGroup,
    CSIDriver,
    CSINode,
    LabelledNamespace,
    LimitRange,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    PriorityClass,
    RuntimeClass,
    StorageClass,
)
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.pods import Pod
from provisioner.apis.provisioning_request import ProvisioningRequest
from provisioner.runtime.conditioned import Conditioned

T_co = TypeVar("T_co", covariant=True)

#: What decides beside Nodes and pods where a pod may run, and whether it is tried.
Surrounding: TypeAlias = (
    AnyPodGroup
    | CSIDriver
    | CSINode
    | LabelledNamespace
    | LimitRange
    | PersistentVolume
    | PersistentVolumeClaim
    | PriorityClass
    | RuntimeClass
    | StorageClass
)


@dataclass(frozen=True, slots=True)
class Changed(Generic[T_co]):
    """One change of one object.

    Attributes:
        old: the object before; None where it is new to us.
        new: the object now; None where it is gone.
    """

    old: T_co | None
    new: T_co | None

    @property
    def latest(self) -> T_co:
        """The object now, or as it was last.

        Raises:
            ValueError: there is neither; no watch tells that.
        """
        found = self.old if self.new is None else self.new
        if found is None:
            raise ValueError("a change needs the object before or after it")
        return found


class PodChanged(Changed[Pod]):
    """A pod."""


class NodeChanged(Changed[Node]):
    """A Node, of ours or not."""


class NodeClaimChanged(Changed[NodeClaim]):
    """A NodeClaim."""


class NodePoolChanged(Changed[NodePool]):
    """A NodePool."""


class NodeClassChanged(Changed[Conditioned]):
    """A NodeClass of the provider's own kind."""


class NodeOverlayChanged(Changed[NodeOverlay]):
    """A NodeOverlay; never while the feature gate is off."""


class CapacityBufferChanged(Changed[CapacityBuffer]):
    """A CapacityBuffer; never while the feature gate is off."""


class ProvisioningRequestChanged(Changed[ProvisioningRequest]):
    """A ProvisioningRequest; never where `--provisioning-classes` names none."""


class SurroundingChanged(Changed[Surrounding]):
    """One of the objects around pods that decide where they may run."""


Change: TypeAlias = (
    PodChanged
    | NodeChanged
    | NodeClaimChanged
    | NodePoolChanged
    | NodeClassChanged
    | NodeOverlayChanged
    | CapacityBufferChanged
    | ProvisioningRequestChanged
    | SurroundingChanged
)


Listener: TypeAlias = Callable[[Change], None]
"""Who is told of every change, in the thread of the watch, after the state has taken it in: put work into a queue."""
