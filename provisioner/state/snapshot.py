"""One frozen instant of the cluster: what scheduling, disruption and the reports of both read. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from provisioner.apis.core import PersistentVolume, PersistentVolumeClaim, StorageClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint


@dataclass(frozen=True, slots=True)
class NodeView:
    """A machine as pods see it: a Node, a NodeClaim still without one, or both joined.

    Attributes:
        key: the claim's name where there is one, else the Node's; unique in a snapshot.
        name: the Node's name; "" while the machine has not joined.
        claim: the NodeClaim; None for a machine that is not ours.
        pool: the NodePool's name, "" where unknown.
        labels, taints: what a pod must match. An unregistered machine shows its claim's; an uninitialised
            managed one lacks the startup and ephemeral taints, which will fall. Source: core spec 3.6.
        capacity, allocatable: the claim's until the Node is initialised, then the Node's.
        used: requests of the pods bound here.
        planned: requests of unbound pods that a live plan promises this machine to.
        room: what one more pod may use: allocatable - used - daemons still due - planned. May be negative.
        pods: the pods bound here that still use room, by name.
        promised: pods that a live plan promises this machine to, by name; all of them are unbound, or about to leave
            another machine.
        attach_limits: how many volumes of each CSI driver the machine takes; a driver that is absent has no limit.
        deleting: the Node or its claim is going, or carries the disrupted taint.
        last_pod_event: the last bind or end of a pod that is no daemon; None when none was seen.
        do_not_disrupt: the Node or its claim carries karpenter.sh/do-not-disrupt: "true".
        nominated: some unbound pod has a live promise of room here.
    """

    key: str
    name: str
    claim: NodeClaim | None
    pool: str
    provider_id: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    capacity: Resources
    allocatable: Resources
    used: Resources
    planned: Resources
    room: Resources
    pods: tuple[Pod, ...]
    registered: bool
    initialized: bool
    ready: bool
    deleting: bool
    do_not_disrupt: bool
    nominated: bool
    last_pod_event: datetime | None
    promised: tuple[Pod, ...] = ()
    attach_limits: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        state = "deleting" if self.deleting else "initialized" if self.initialized else "in flight"
        return f"<{self.key} {state} pool={self.pool} pods={len(self.pods)} room={dict(self.room)}>"


@dataclass(frozen=True, slots=True)
class PoolView:
    """A NodePool with what its machines hold now.

    Attributes:
        used: capacity of its machines, in-flight ones included, with the pseudo resource `nodes`.
    """

    pool: NodePool
    used: Resources


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What placement depends on besides pods and machines; the maps never change.

    Attributes:
        claims: PersistentVolumeClaims by "namespace/name".
        volumes: PersistentVolumes by name.
        classes: StorageClasses by name.
        attach_limits: by instance type, then CSI driver: volumes that a Node of that type takes, as seen on some.
        namespaces: labels by name.
        services: selectors of Services by namespace; empty unless default spread constraints ask for them.
        controllers: selectors of ReplicaSets, StatefulSets and ReplicationControllers by UID; likewise.
    """

    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    attach_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    services: Mapping[str, tuple[Mapping[str, str], ...]] = field(default_factory=dict)
    controllers: Mapping[str, LabelSelector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a decision may look at, at one instant.

    Attributes:
        at: the instant, UTC.
        nodes: initialised first, then by key.
        pools: by name; every NodePool, usable or not.
        daemons: one shape a DaemonSet.
        pending: unbound pods that a machine could help, less those a live plan covers; by age, then UID.
        leaving: reschedulable pods on deleting machines that can be evicted, or lose their machine anyway, and that no plan covers yet.
        around: volumes, namespaces and selectors.
    """

    at: datetime
    nodes: tuple[NodeView, ...]
    pools: tuple[PoolView, ...]
    daemons: tuple[PodShape, ...]
    pending: tuple[Pod, ...]
    leaving: tuple[Pod, ...]
    around: Surroundings = Surroundings()
