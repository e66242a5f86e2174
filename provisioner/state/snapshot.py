"""One frozen instant of the cluster: what scheduling, disruption and the reports of both read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.core import PersistentVolume, PersistentVolumeClaim, StorageClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import LabelSelector, is_true
from provisioner.apis.pods import Pod, PodShape
from provisioner.apis.reboot import is_rebooting, reboots_of
from provisioner.state.disruption_commands import Command
from provisioner.state.groups import Group, GroupRest
from provisioner.state.keys import NodeKey
from provisioner.state.misses import Stop
from provisioner.state.predictions import NO_PREDICTIONS, PodPredictions
from provisioner.values.resources import EMPTY, Resources
from provisioner.values.taints import Taint


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as pods see it: a Node, a NodeClaim still without one, or both joined.

    Attributes:
        key: unique in a snapshot.
        name: the Node's name; "" while none has joined.
        claim: the NodeClaim; None for a node that is not ours.
        pool: the NodePool's name, "" where unknown.
        labels, taints: what a pod must match. An unregistered node shows its claim's; an uninitialised
            managed one lacks the startup and ephemeral taints, which will fall. Source: core spec 3.6.
        capacity, allocatable: the claim's until the Node is initialised, then the Node's.
        used: requests of the pods bound here.
        planned: the room that is kept for assigned pods.
        room: what one more pod may use: allocatable - used - daemons still due - planned. May be negative; nothing on an
            ambiguous claim.
        pods: the pods bound here that still use room, by name.
        assigned: pods that are planned here, by name; all of them are unbound, or about to leave another node.
        attach_limits: how many volumes of each CSI driver the node takes, as its CSINode says; of a driver that is absent, what its type takes.
        features: that its kubelet declares; None before it has said anything.
        deleting: the Node or its claim is going, carries the disrupted taint, or is a candidate of a command.
        awaits: its deletion waits for a confirmation, as its claim or its Node says.
        command: the ID of the disruption command of which its claim is a candidate; "" for none.
        last_pod_event: the last bind or end of a pod that is no daemon; None when none was seen.
        do_not_disrupt: the Node or its claim carries karpenter.sh/do-not-disrupt: "true".
        do_not_repair: likewise karpenter.sh/do-not-repair: "true".
        nominated: room is kept here for some pod.
        charge: what the limits of its pool are charged with: its capacity and one of `nodes`; before the launch the most
            that the claim may become. Empty for a node that is not ours, or goes: see `node_views.goes`.
        ambiguous: several claims have its provider ID, or several Nodes: nothing may be done to it.
        derived: what follows from the view alone, kept with it; whoever makes it says under which word.
    """

    key: NodeKey
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
    initialized: bool
    ready: bool
    deleting: bool
    do_not_disrupt: bool
    nominated: bool
    last_pod_event: datetime | None
    assigned: tuple[Pod, ...] = ()
    attach_limits: Mapping[str, int] = field(default_factory=dict)
    features: frozenset[str] | None = None
    charge: Resources = EMPTY
    ambiguous: bool = False
    command: str = ""
    awaits: bool = False
    do_not_repair: bool = False
    derived: dict[str, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_ours(self) -> bool:
        """Whether something may be decided about its NodeClaim: it has one, which is not being deleted."""
        return self.claim is not None and self.claim.metadata.deletion_timestamp is None

    @property
    def is_ending(self) -> bool:
        """Whether its instance ends, and no drain goes on any more."""
        return self.claim is not None and is_true(self.claim.status.conditions, names.INSTANCE_TERMINATING)

    @property
    def rebooting(self) -> bool:
        """Whether it is being rebooted: it comes back, and its pods wait for it."""
        return self.claim is not None and is_rebooting(self.claim)

    @property
    def reboot_failed(self) -> bool:
        """Whether a reboot of it has failed, so that it waits for its replacement."""
        return self.claim is not None and reboots_of(self.claim).failed

    @property
    def spends(self) -> bool:
        """Whether it counts for the budgets of its NodePool: it has been initialized, also where a reboot has taken that back."""
        return self.initialized or self.rebooting or self.reboot_failed

    @property
    def counts(self) -> bool:
        """Whether it counts against limits: of its NodePool's resources, and of money."""
        return bool(self.charge)

    def __repr__(self) -> str:
        state = "deleting" if self.deleting else "initialized" if self.initialized else "in flight"
        return f"<{self.key} {state} pool={self.pool} pods={len(self.pods)} room={dict(self.room)}>"


@dataclass(frozen=True, slots=True)
class PoolView:
    """A NodePool with what its limits are charged with.

    Attributes:
        used: the charges of its nodes (`NodeView.charge`), in-flight ones included; without amounts of 0.
        nodes: how many nodes it has, those that go included.
    """

    pool: NodePool
    used: Resources
    nodes: int = 0

    @property
    def left(self) -> Resources | None:
        """What its limits leave of each limited resource, less than 0 where more is there; None without limits.

        A static NodePool counts every node as long as it exists. Source: core spec 3.4, 5.1.

        Raises:
            QuantityError: a limit cannot be read.
        """
        if not self.pool.spec.limits:
            return None
        limits = Resources.parse(self.pool.spec.limits)
        used = self.used if self.pool.spec.replicas is None else Resources.of({names.NODES: self.nodes})
        return Resources.of({key: limit - used.amount(key) for key, limit in limits.items()})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What placement depends on besides pods and nodes; the maps never change.

    Attributes:
        claims: PersistentVolumeClaims by "namespace/name".
        volumes: PersistentVolumes by name.
        classes: StorageClasses by name.
        attach_limits: by instance type, then CSI driver: volumes that a Node of that type takes, as seen on some.
        namespaces: labels by name.
        services: selectors of Services by namespace; empty unless default spread constraints ask for them.
        controllers: selectors of ReplicaSets, StatefulSets and ReplicationControllers by UID; likewise.
        selected: by "namespace/name", since when an unbound claim has named the node that it names, as this process saw it.
        required_drivers: CSI drivers without which no pod with a volume of theirs may run on a node.
    """

    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    attach_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    services: Mapping[str, tuple[Mapping[str, str], ...]] = field(default_factory=dict)
    controllers: Mapping[str, LabelSelector] = field(default_factory=dict)
    selected: Mapping[str, datetime] = field(default_factory=dict)
    required_drivers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a decision may look at, at one instant.

    Attributes:
        at: the instant, UTC.
        nodes: initialised first, then by key.
        pools: by name; every NodePool, usable or not.
        daemons: one shape a DaemonSet.
        pending: unbound pods that a node could help, less those a live plan covers, whatever their schedulers have said; by age, then UID.
        waiting: those of them that wait for a node of ours (`state.waiting`), so that a launch may be made for them and room is nobody else's that they
            will take; less those for which kube-scheduler makes room by preemption, and classes that are stopped.
        leaving: reschedulable pods on deleting nodes that can be evicted, or lose their node anyway, and that no plan covers yet, as they will be
            when they are admitted again; those of candidates belong to their command until these are deleted.
        around: volumes, namespaces and selectors.
        avoided: by pod UID, names of the Nodes on which kube-scheduler did not bind it as planned.
        stopped: by key, the classes that are not planned for a while, since kube-scheduler did not follow their plans.
        pod_budgets: PodDisruptionBudgets; the same object while none changed.
        commands: the disruption commands under way, by the name of the first candidate.
        early: whether some of the pending pods wait a moment later, with nothing but time.
        groups: by key, the PodGroups that kube-scheduler does not try, so that their pods do not wait; and groups of annotations that are not complete.
        minima: by key, of the other groups that need several pods at once, how many, those that run among them; the same object while none changed.
        topology: by key of a PodGroup whose pods must all run in one domain, the node label; the same object while none changed.
        together: keys of the PodGroups whose pods are disrupted all at once or not at all; the same object while none changed.
        consolidated: those of them that consolidation may disrupt; likewise.
        resting: by key, the groups that wait for no node now since their nodes were given up, and for how long.
        predictions: what pods that move will ask for; the same object while nothing changes.
    """

    at: datetime
    nodes: tuple[NodeView, ...]
    pools: tuple[PoolView, ...]
    daemons: tuple[PodShape, ...]
    pending: tuple[Pod, ...]
    waiting: tuple[Pod, ...]
    leaving: tuple[Pod, ...]
    around: Surroundings = Surroundings()
    avoided: Mapping[str, frozenset[str]] = field(default_factory=dict)
    stopped: Mapping[str, Stop] = field(default_factory=dict)
    pod_budgets: PodBudgets = field(default_factory=PodBudgets)
    commands: tuple[Command, ...] = ()
    early: bool = False
    groups: Mapping[str, Group] = field(default_factory=dict)
    minima: Mapping[str, int] = field(default_factory=dict)
    topology: Mapping[str, str] = field(default_factory=dict)
    together: frozenset[str] = frozenset()
    consolidated: frozenset[str] = frozenset()
    resting: Mapping[str, GroupRest] = field(default_factory=dict)
    predictions: PodPredictions = NO_PREDICTIONS
