"""What scheduling is asked: pods, and everything they might run on. Values only."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from provisioner.apis.core import PersistentVolume, PersistentVolumeClaim, StorageClass, TopologySpreadConstraint
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.values.requirement import Requirements
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint


class PreferencePolicy(enum.StrEnum):
    """What becomes of preferences: Karpenter's flag `--preference-policy`."""

    RESPECT = "Respect"
    """Demanded like requirements, and given up one after another where the pod would find no place."""
    IGNORE = "Ignore"
    """Not looked at."""


class MinValuesPolicy(enum.StrEnum):
    """What becomes of minValues that cannot be kept: Karpenter's flag `--min-values-policy`."""

    STRICT = "Strict"
    """The pod gets no place in that pool."""
    BEST_EFFORT = "BestEffort"
    """The claim asks for as many values as can be had, and says so (`PlannedClaim.min_values_relaxed`)."""


class DevicePolicy(enum.StrEnum):
    """What becomes of pods with resource claims (DRA)."""

    REFUSE = "Refuse"
    """They get no place, and the reason says why."""
    IGNORE = "Ignore"
    """Their resource claims are no constraint."""


NODE_PENALTY: Final = 0.01
"""USD per hour; about what a root volume of 50 GiB and a public address cost, which no price list of instance types has."""


class Packing(enum.StrEnum):
    """How nodes are chosen for the pods of a batch."""

    COST = "cost"
    """By the cost planner, where it finds a cheaper fleet in time."""
    GREEDY = "greedy"
    """First fit by decreasing size, as Karpenter does."""


@dataclass(frozen=True, slots=True)
class SchedulingPool:
    """A NodePool that may make nodes now (ready, not static, not deleting).

    Attributes:
        name: unique in a problem.
        weight: higher is tried first; equal weights by name, descending, as Karpenter does.
        requirements: the template's requirements, its labels, the nodepool label and the NodeClass label, merged.
        taints: what pods and daemons must tolerate.
        instance_types: the provider's answer for this pool, any order; give the same tuple while it is unchanged,
            what is derived from it is kept between problems.
        types_problem: why there is no answer; "" where there is one.
        remaining: limits less what the pool's nodes use, `nodes` included; None without limits. Only limited
            resources appear; an amount may be negative.
        template: opaque to scheduling, handed back with every planned claim.
        hostname_domains: as of `World`, for pods that may come to this pool; None for the world's.
        packing: whether the planner may change what scheduling has for this pool; scheduling does not look at it.
        node_penalty: USD per hour that the planner adds to the price of each node: fewer nodes are worth so much. Likewise.
    """

    name: str
    requirements: Requirements
    instance_types: tuple[InstanceType, ...]
    weight: int = 0
    taints: tuple[Taint, ...] = ()
    remaining: Resources | None = None
    template: object = None
    hostname_domains: int | None = None
    packing: Packing = Packing.COST
    node_penalty: float = NODE_PENALTY
    types_problem: str = ""


@dataclass(frozen=True)
class Bin:
    """A node that exists or is on its way: a Node, or a NodeClaim whose Node has not come yet.

    Give the same object while nothing of it changed: what is derived from it is kept on it between problems.

    Attributes:
        name: unique in a problem, the key of `Result.existing`.
        labels: as kube-scheduler will see them; nothing else is known of the node. Without a hostname label the
            node's name (else `name`) is its hostname.
        room: what one more pod may use: daemons still due and planned pods are taken off already.
        taints: as kube-scheduler will see them once the node is ready (no startup, no ephemeral ones).
        node_name: the Node's name, for matchFields; "" while it is unknown.
        pool: the NodePool's name, "" where there is none.
        pods: the pods on it that are not finished, daemons and terminating ones included, and the unbound ones that a
            live plan promises to it. `room` is what they leave; here they count for spread, affinity, host ports and
            volumes. Those that the problem asks to place (same UID) count nowhere.
        attach_limits: by CSI driver, how many volumes the node takes, as its CSINode says; of a driver that is absent it
            takes what its type does.
        features: that its kubelet declares; None for a node to come, which has whatever a pod needs.
        leaving: it is going away: it takes no pod and offers no domain, but what is on it still counts.
        closed: it takes no pod now, and counts in everything else.
    """

    name: str
    labels: Mapping[str, str]
    room: Resources
    taints: tuple[Taint, ...] = ()
    node_name: str = ""
    pool: str = ""
    pods: tuple[Pod, ...] = ()
    attach_limits: Mapping[str, int] = field(default_factory=dict)
    features: frozenset[str] | None = None
    leaving: bool = False
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Storage:
    """What is known of volumes, as the API server has it; only what pods of the problem use is ever read.

    Attributes:
        claims: PersistentVolumeClaims by "namespace/name".
        volumes: PersistentVolumes by name.
        classes: StorageClasses by name.
        attach_limits: by instance type, then CSI driver: how many volumes a node of that type takes, learnt from
            CSINodes of its kind; `capacity/attach_limits.py` decides by this and others. Give the same object while it is unchanged.
    """

    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    attach_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpreadDefaults:
    """Topology spread for pods that have none of their own (`--scheduler-config`, kube-scheduler's List defaulting).

    The selector of such a constraint is deduced as kube-scheduler does: the labels of every Service of the namespace that
    selects the pod, merged, and the selector of its controller. A pod without either is not spread.

    Attributes:
        constraints: without selectors.
        services: selectors of the Services, by namespace; those without selector left out.
        controllers: selectors by UID of the ReplicaSet, StatefulSet or ReplicationController.
    """

    constraints: tuple[TopologySpreadConstraint, ...] = ()
    services: Mapping[str, tuple[Mapping[str, str], ...]] = field(default_factory=dict)
    controllers: Mapping[str, LabelSelector] = field(default_factory=dict)

    @property
    def hard_keys(self) -> frozenset[str]:
        """The labels over whose values pods are spread by constraints that kube-scheduler does not give up."""
        return frozenset(one.topology_key for one in self.constraints if one.when_unsatisfiable != "ScheduleAnyway")


@dataclass(frozen=True, slots=True)
class World:
    """Everything that pods might run on, at one instant; what `prepared.prepare` is given.

    Attributes:
        pools: where new nodes may come from; any order.
        bins: existing nodes in order of preference (initialised first, then by name): the order is meant.
        daemons: one shape a DaemonSet; any order.
        well_known: label keys that the provider sets by itself, so that a NodePool need not define them, besides
            `names.WELL_KNOWN_LABELS`, which always count.
        namespaces: labels by namespace, for namespaceSelectors; a namespace that is absent has no labels.
        storage: PVCs and what they lead to. A pod whose PVC is not in it gets no place.
        spread_defaults: topology spread for pods without.
        preferences, min_values, devices: policies.
        reservation_label: the label of an offering that says which reservation it draws from; "" where the provider has
            none, then each reserved offering of a type is a reservation of its own.
        hostname_domains: a hard hostname spread without minDomains is planned over so many nodes, or over as many as there are
            pods if these are fewer; 1 is kube-scheduler's letter, 0 a node for every maxSkew pods, as Karpenter does.
        most_of_one: by NodePool that says so, also those that make no nodes now: the most pods of one owner on a node.
        groups: by key (`apis.gangs.group_of`), how many pods of a group must have places, those on nodes among them, or no other gets one; give the
            same object while it is unchanged. A group that is absent is of single pods.
        topology: by key of a group whose pods must all run in one domain, the node label; likewise the same object.
    """

    pools: tuple[SchedulingPool, ...] = ()
    bins: tuple[Bin, ...] = ()
    daemons: tuple[PodShape, ...] = ()
    well_known: frozenset[str] = frozenset()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    storage: Storage = Storage()
    spread_defaults: SpreadDefaults = SpreadDefaults()
    preferences: PreferencePolicy = PreferencePolicy.RESPECT
    min_values: MinValuesPolicy = MinValuesPolicy.STRICT
    devices: DevicePolicy = DevicePolicy.REFUSE
    reservation_label: str = ""
    hostname_domains: int = 1
    most_of_one: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    topology: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """What has become of a world since it was prepared; what is not named stays.

    Attributes:
        bins: nodes by name that changed or came; those that came are the last in order of preference.
        gone: names of nodes that are no more.
        pools: all of them, where any changed.
        daemons: likewise.
        namespaces: likewise.
        storage: likewise.
        spread_defaults: likewise.
        groups: likewise.
        topology: likewise.
    """

    bins: Mapping[str, Bin] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    pools: tuple[SchedulingPool, ...] | None = None
    daemons: tuple[PodShape, ...] | None = None
    namespaces: Mapping[str, Mapping[str, str]] | None = None
    storage: Storage | None = None
    spread_defaults: SpreadDefaults | None = None
    groups: Mapping[str, int] | None = None
    topology: Mapping[str, str] | None = None
