"""The entries of a history, frozen and small: what happened in a cluster, in counts and figures, never as manifests. Pure.

Pods are counted by class, nodes by number. A number means the same within one segment, where the entry that introduces it stands before those that
use it. Times inside of entries are seconds since 1970, 0 where they are not known; when an entry happened is told beside it, to a tenth of a second.

A version adds fields at the end of an entry, each with a default, and entries with new tags; it changes no field that is there.
"""

import enum
from typing import Annotated, Any, Final

import msgspec

VERSION: Final = 1
Count = Annotated[int, msgspec.Meta(ge=0)]
NO_NODE: Final = 0
"""The number of no node: of pods that wait for one."""


class HistoryPodClass(msgspec.Struct, frozen=True, array_like=True):
    """What equal pods have in common.

    Attributes:
        key: of `apis.shapes.PodShape`: equal in every process. In an anonymous history it only tells classes apart.
        owner_kind: of their controller: "ReplicaSet"; "" for pods of their own.
        priority: as kube-scheduler has it.
        requests: effective; CPU in thousandths, everything else in whole units.
        constraints: the other fields of `PodShape` that say something, as JSON has them; see `pod_classes.shape_of_class`.
        do_not_disrupt: the value of the annotation `karpenter.sh/do-not-disrupt`; "" without it.
        grace_seconds: of their termination; None where they say nothing.
    """

    key: str
    namespace: str
    owner_kind: str
    priority: int
    requests: dict[str, int]
    constraints: dict[str, Any]
    do_not_disrupt: str = ""
    grace_seconds: int | None = None


class NodeKind(msgspec.Struct, frozen=True, array_like=True):
    """What equal nodes have in common.

    Attributes:
        instance_type, zone, capacity_type: "" where no label tells them.
        group: its NodePool, or the node group of EKS.
        labels: all but those of single nodes.
        taints: (key, value, effect), less those that come and go.
        allocatable: CPU in thousandths, everything else in whole units.
    """

    instance_type: str
    zone: str
    capacity_type: str
    group: str
    labels: dict[str, str]
    taints: tuple[tuple[str, str, str], ...]
    allocatable: dict[str, int]


class PlannedNodes(msgspec.Struct, frozen=True, array_like=True):
    """Equal nodes of a plan; `usd_per_hour` is the price of one of them, `pods` are those of all."""

    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    usd_per_hour: float
    nodes: int
    pods: int


class PodEnd(enum.IntEnum):
    """How a pod ended."""

    DELETED = 0
    SUCCEEDED = 1
    FAILED = 2


class CommandTurn(enum.IntEnum):
    """What became of a command."""

    BEGUN = 0
    COMMITTED = 1
    DRAINING = 2
    DELETING = 3
    DONE = 4
    CALLED_OFF = 5


class HistoryEntry(msgspec.Struct, frozen=True, array_like=True):
    """Anything that a history tells."""


# --- what numbers mean, and how things stood when a segment began


class ClassSeen(HistoryEntry, frozen=True, array_like=True, tag=1):
    """From here on a number stands for this class."""

    number: int
    pod_class: HistoryPodClass


class KindSeen(HistoryEntry, frozen=True, array_like=True, tag=2):
    """From here on a number stands for this kind of nodes."""

    number: int
    kind: NodeKind


class PodsStanding(HistoryEntry, frozen=True, array_like=True, tag=3):
    """At the beginning of a segment: so many pods of a class are on a node, or wait (`NO_NODE`)."""

    pod_class: int
    node: int
    count: Count


# --- pods


class PodsArrived(HistoryEntry, frozen=True, array_like=True, tag=4):
    """So many pods of a class were created."""

    pod_class: int
    count: Count


class PodsBound(HistoryEntry, frozen=True, array_like=True, tag=5):
    """Pods of a class were bound to a node: one for each of `waited_ms`, which says how long it had waited."""

    pod_class: int
    node: int
    waited_ms: tuple[int, ...]


class PodsEnded(HistoryEntry, frozen=True, array_like=True, tag=6):
    """Pods of a class ended: one for each of `seconds`, for which it had been on its node, or had waited."""

    pod_class: int
    node: int
    how: PodEnd
    seconds: tuple[int, ...]


# --- nodes


class NodeSeen(HistoryEntry, frozen=True, array_like=True, tag=7):
    """A Node as it is from now on.

    Attributes:
        number: stands for it.
        kind: number of its kind.
        ready: when it became Ready; 0 while it is not.
        deleting: when it was asked to go.
        usd_per_hour: 0 where it is not known.
    """

    number: int
    name: str
    kind: int
    created: int
    ready: int = 0
    deleting: int = 0
    usd_per_hour: float = 0.0


class NodeGone(HistoryEntry, frozen=True, array_like=True, tag=8):
    """A Node is no more."""

    node: int


class ClaimSeen(HistoryEntry, frozen=True, array_like=True, tag=9):
    """A NodeClaim as it is from now on; the times are those of its conditions, so they tell what a boot takes.

    Attributes:
        node: name of its Node; "" while none has joined.
        failed: why it is not launched; "" where it is, or nobody has said.
    """

    name: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    node: str
    created: int
    launched: int = 0
    registered: int = 0
    initialized: int = 0
    deleting: int = 0
    usd_per_hour: float = 0.0
    failed: str = ""


class ClaimGone(HistoryEntry, frozen=True, array_like=True, tag=10):
    """A NodeClaim is no more."""

    name: str


class InstanceInterrupted(HistoryEntry, frozen=True, array_like=True, tag=11):
    """The cloud takes an instance back, or has work planned on it; `ends` is when it is gone, if that is known."""

    claim: str
    instance_type: str
    zone: str
    capacity_type: str
    reason: str
    ends: int = 0


class OfferingTurned(HistoryEntry, frozen=True, array_like=True, tag=12):
    """An offering can be had no more (`available` is False), or again."""

    instance_type: str
    zone: str
    capacity_type: str
    available: bool


class PoolSeen(HistoryEntry, frozen=True, array_like=True, tag=13):
    """A NodePool as it is from now on; `spec` is None where it is gone."""

    name: str
    spec: dict[str, Any] | None


# --- decisions


class BatchPlanned(HistoryEntry, frozen=True, array_like=True, tag=14):
    """Pods that waited were planned.

    Attributes:
        id: the scheduling ID of the log line.
        new: nodes that are made for them.
        existing: so many pods got room on nodes that are there.
        unplaced: (reason, pods) of those that got none.
        usd_per_hour, usd_greedy: of the new nodes, as planned and as first fit by size would have had them.
        usd_at_least: no plan costs less; None where nothing is known.
        outcome: of the planner.
    """

    id: str
    pods: int
    new: tuple[PlannedNodes, ...]
    existing: int
    unplaced: tuple[tuple[str, int], ...]
    usd_per_hour: float
    usd_greedy: float
    usd_at_least: float | None
    outcome: str
    milliseconds: int


class CommandSeen(HistoryEntry, frozen=True, array_like=True, tag=15):
    """A disruption command began, or went on.

    Attributes:
        candidates: names of NodeClaims.
        new: nodes that replace them; known where it began.
        usd_before, usd_after: of the candidates and of what replaces them, per hour; 0 where it is not known.
        pods: that move.
    """

    id: str
    turn: CommandTurn
    reason: str
    method: str
    candidates: tuple[str, ...]
    new: tuple[PlannedNodes, ...] = ()
    usd_before: float = 0.0
    usd_after: float = 0.0
    pods: int = 0


class EventTold(HistoryEntry, frozen=True, array_like=True, tag=16):
    """An autoscaler said something about an object that is no pod: why it does what it does, or does it not. The message may be cut."""

    kind: str
    name: str
    reason: str
    message: str


# --- figures


class FleetCost(HistoryEntry, frozen=True, array_like=True, tag=17):
    """Every minute: what all nodes cost at current prices, and how many pods run and wait."""

    usd_per_hour: float
    nodes: int
    unpriced: int
    pods: int
    waiting: int


class FleetBound(HistoryEntry, frozen=True, array_like=True, tag=18):
    """What new nodes cost for the pods on nodes of dynamic NodePools and those that wait; its age is the time since `asked`.

    Attributes:
        usd_greedy: per hour, by first fit.
        usd_at_least: no new nodes for these pods cost less.
        asked: when the pods were counted.
        pods: of how many it speaks.
        unplaced: so many more found no place, or there was no time for them.
        cpu_seconds: that it took.
        usd_now: what the nodes of dynamic NodePools cost then, as far as prices are known; None where an older version wrote it.
    """

    usd_greedy: float
    usd_at_least: float
    asked: float
    pods: int
    unplaced: int
    cpu_seconds: float
    usd_now: float | None = None


class Gap(HistoryEntry, frozen=True, array_like=True, tag=19):
    """So many changes were not written since there were too many at once; what follows is complete again."""

    dropped: int


class BoundCause(msgspec.Struct, frozen=True, array_like=True):
    """What keeps nodes as they are: how many of them, and so much lower the bound would be if this cause alone were lifted, in USD per hour."""

    cause: str
    nodes: int
    usd: float


class BoundCauses(HistoryEntry, frozen=True, array_like=True, tag=20):
    """What keeps the fleet from `FleetBound.usd_at_least`. The parts do not add up: a node may be kept by several causes.

    Attributes:
        asked: when it was looked at.
        usd_now: what the nodes cost.
        usd_kept: the bound while every cause holds: nodes that are kept with their pods, and no less than new nodes for the other pods.
        usd_at_least: the bound with all causes lifted together.
        causes: each alone.
        cpu_seconds: that it took.
    """

    asked: float
    usd_now: float
    usd_kept: float
    usd_at_least: float
    causes: tuple[BoundCause, ...]
    cpu_seconds: float


AnyHistoryEntry = (
    ClassSeen
    | KindSeen
    | PodsStanding
    | PodsArrived
    | PodsBound
    | PodsEnded
    | NodeSeen
    | NodeGone
    | ClaimSeen
    | ClaimGone
    | InstanceInterrupted
    | OfferingTurned
    | PoolSeen
    | BatchPlanned
    | CommandSeen
    | EventTold
    | FleetCost
    | FleetBound
    | Gap
    | BoundCauses
)
"""Every entry that a history of this version can hold."""
