"""Which nodes may be disrupted, and why each other one may not. Source: core spec 6.2."""

import enum
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import is_true
from provisioner.apis.pods import Pod, is_active, is_evictable, is_reschedulable, read_do_not_disrupt
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption import costs
from provisioner.disruption.gangs import held_nodes, moves_together, never_back, not_consolidated
from provisioner.disruption.proposal import DISRUPTION_LOOP, Blocked
from provisioner.disruption.view import DisruptionStanding, DisruptionVerdict, DisruptionView, Spared
from provisioner.scheduling.constraints.filters import FilterError, node_filter
from provisioner.scheduling.constraints.volumes import claim_keys
from provisioner.state.pause import Activity
from provisioner.state.predictions import PodPredictions
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.message import Said
from provisioner.values.resources import Resources
from provisioner.values.taints import first_untolerated

ALREADY_DISRUPTED: Final = Said("Node is already being disrupted")
IS_REBOOTING: Final = Said("Node is rebooting")
SHARED_PROVIDER_ID: Final = Said("Several Nodes or NodeClaims have the same provider ID")


class Obstacle(enum.StrEnum):
    """Why a node is no candidate."""

    UNDER_WAY = "under-way"
    PAUSED = "paused"
    CALLED_OFF = "called-off"
    REPLACEMENT = "replacement"
    BACKING_OFF = "backing-off"
    UNMANAGED = "unmanaged"
    AMBIGUOUS = "ambiguous"
    NO_NODE = "no-node"
    NOT_INITIALIZED = "not-initialized"
    DELETING = "deleting"
    REBOOTING = "rebooting"
    NOMINATED = "nominated"
    NODE_PROTECTED = "node-protected"
    NO_POOL_LABEL = "no-pool-label"
    NO_POOL = "no-pool"
    POD_PROTECTED = "pod-protected"
    POD_UNJUDGED = "pod-unjudged"
    POD_GROUP = "pod-group"
    SEVERAL_POD_BUDGETS = "several-pod-budgets"
    POD_BUDGET = "pod-budget"
    LOOP = "loop"


BIND_TIMEOUT: Final = timedelta(minutes=10)
"""For so long kube-scheduler waits for the volumes of a pod (VolumeBindingArgs.bindTimeoutSeconds), and then chooses anew."""
_STATE_TAINTS: Final = "node.kubernetes.io/"
_SPARED: Final = (Obstacle.PAUSED, Obstacle.CALLED_OFF, Obstacle.REPLACEMENT, Obstacle.BACKING_OFF)
_GOING: Final = (Obstacle.UNDER_WAY, Obstacle.DELETING, Obstacle.REBOOTING)
_UNTOLD: Final = frozenset({*_GOING, Obstacle.UNMANAGED, *_SPARED})
"""Of which no event tells: its NodePool, its command or its deletion did, or nobody needs to hear."""


REPLACES: Final = Spared(Obstacle.REPLACEMENT, Said("it is a replacement in a disruption that is in progress"))
CALLED_OFF: Final = Spared(
    Obstacle.CALLED_OFF, Said("its disruption was canceled a moment ago, so it is not disrupted for now")
)
BACKING_OFF: Final = Spared(
    Obstacle.BACKING_OFF,
    Said("replacements in its NodePool recently failed to become nodes, so none of its nodes are replaced for now"),
)


@dataclass(frozen=True, slots=True)
class RefusedNode:
    """A node that is no candidate; `str` is the event's message.

    Attributes:
        obstacle: why, for programs.
        message: why, for people.
        until: when the clock alone lifts it; None when only an event can.
    """

    node: NodeView
    obstacle: Obstacle
    message: str
    until: datetime | None = None

    def __str__(self) -> str:
        return self.message

    @property
    def verdict(self) -> DisruptionVerdict:
        """What becomes of the node."""
        return DisruptionVerdict(
            DisruptionStanding.UNDER_WAY if self.obstacle in _GOING else DisruptionStanding.BLOCKED,
            self.message,
            self.until,
        )

    @property
    def blocked(self) -> Blocked | None:
        """As it is published; None where nobody needs to hear."""
        if self.obstacle in _UNTOLD:
            return None
        if self.obstacle is Obstacle.LOOP:
            return Blocked(self.node.key.name, self.node.pool, self.message, DISRUPTION_LOOP, until=self.until)
        return Blocked(self.node.key.name, self.node.pool, self.message, until=self.until)


@dataclass(frozen=True)
class Candidate:
    """A node that may be disrupted; the same object in every pass while its view, NodePool and instance type are.

    Attributes:
        pods: those that need another place, by name, as they will be when they are admitted again.
        instance_type: None where its pool's catalogue has none of that name.
        usd_per_hour: what it costs; 0 where unknown.
        cost: of having its pods placed anew; see `costs.reschedule_cost`.
    """

    node: NodeView
    claim: NodeClaim
    pool: NodePool
    pods: tuple[Pod, ...]
    instance_type: InstanceType | None
    usd_per_hour: float
    cost: float

    @property
    def key(self) -> str:
        """The NodeClaim's name."""
        return self.claim.metadata.name

    @functools.cached_property
    def requests(self) -> Resources:
        """What its pods ask for together."""
        return Resources.total(pod.shape.requests for pod in self.pods)

    @functools.cached_property
    def evictions(self) -> float:
        """What the evictions of its pods cost together, none less than 0; see `costs.eviction_cost`."""
        return sum(max(0.0, costs.eviction_cost(pod)) for pod in self.pods)

    @property
    def spot(self) -> bool:
        return self.node.labels.get(names.CAPACITY_TYPE_LABEL) == names.CAPACITY_SPOT


@dataclass(frozen=True, slots=True)
class Candidates:
    """All nodes of a snapshot.

    Attributes:
        eligible: by name of the NodeClaim.
        refused: likewise.
        recheck_at: when the clock alone makes one of the refused eligible; None when it does not.
    """

    eligible: tuple[Candidate, ...]
    refused: tuple[RefusedNode, ...]
    recheck_at: datetime | None

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        """The refused, as they are told."""
        return tuple(told for one in self.refused if (told := one.blocked) is not None)

    @property
    def quiet(self) -> dict[str, DisruptionVerdict]:
        """By NodeClaim, the other refused."""
        return {
            one.node.key.name: one.verdict for one in self.refused if one.blocked is None and one.node.claim is not None
        }


def budget_prevents_evictions(budget: str) -> str:
    """Why a node is not disrupted, or a command does not go on."""
    return Said(f"Pdb prevents pod evictions (PodDisruptionBudget={budget})")


def held_back(budgets: PodBudgets, pods: Iterable[Pod], now: datetime) -> tuple[Obstacle, str] | None:
    """What PodDisruptionBudgets say against the eviction of these pods; None where every one can be evicted.

    Only pods that the drain would evict are asked; those that are starting too, though the Eviction API asks no budget for them.
    """
    for pod in pods:
        held = budgets.holding(pod, soon=True) if is_evictable(pod, now) else ()
        if len(held) > 1:
            return Obstacle.SEVERAL_POD_BUDGETS, Said("Eviction does not support multiple PDBs")
        if held:
            return Obstacle.POD_BUDGET, budget_prevents_evictions(held[0].metadata.key)
    return None


def candidates(
    view: DisruptionView, activity: Activity, *, only: Callable[[NodeClaim], bool] = lambda _: True
) -> Candidates:
    """Who may be disrupted now.

    Args:
        view: the instant.
        activity: what for. Drift must come to pass: a NodeClaim with a terminationGracePeriod is disrupted though pods or their budgets object. Repair
            takes nodes that are not initialized, nominated, protected or held for a loop, too, and judges pods by itself (`pods_blocking`).
        only: nodes of other NodeClaims are not looked at.

    Cost: O(nodes + pods on them).
    """
    pools = {one.pool.metadata.name: one.pool for one in view.snapshot.pools}
    types, awaited = CandidateTypes(view), awaited_nodes(view.snapshot)
    eligible: list[Candidate] = []
    refused: list[RefusedNode] = []
    for node in view.snapshot.nodes:
        if node.claim is not None and not only(node.claim):
            continue
        why = refusal(node, view, pools, awaited, activity)
        if why is not None:
            refused.append(why)
        elif node.claim is not None:
            eligible.append(_candidate(node, node.claim, pools[node.pool], types.of(node), view.snapshot.predictions))
    eligible.sort(key=lambda one: one.node.key)
    refused.sort(key=lambda one: one.node.key)
    return Candidates(
        tuple(eligible), tuple(refused), min((one.until for one in refused if one.until is not None), default=None)
    )


def _candidate(
    node: NodeView, claim: NodeClaim, pool: NodePool, kind: InstanceType | None, predictions: PodPredictions
) -> Candidate:
    """A node as a candidate, kept with its view; two threads that make it at once make the same."""
    known = node.derived.get("candidate")
    if isinstance(known, _Kept) and known.predictions is predictions:
        one = known.candidate
        if one.pool is pool and one.instance_type is kind:
            return one
    pods = tuple(predictions.readmitted(pod) for pod in node.pods if is_reschedulable(pod))
    price = costs.price_of(node.labels, kind)
    made = Candidate(node, claim, pool, pods, kind, price, costs.reschedule_cost(pods))
    node.derived["candidate"] = _Kept(predictions, made)
    return made


class _Kept(NamedTuple):
    predictions: PodPredictions
    candidate: Candidate


class AwaitedNode(NamedTuple):
    """Why a node waits for pods, as users read it, and when the clock alone ends it; None when it does not."""

    message: str
    until: datetime | None = None


NOMINATED: Final = AwaitedNode(Said("Node is nominated for a pending pod"))


def awaited_nodes(snapshot: Snapshot) -> Mapping[str, AwaitedNode]:
    """By name, the Nodes that kube-scheduler has chosen for pods that are not bound yet, for themselves or for a volume that is being made.

    And those that were launched together for a group of which pods are not bound yet: it needs all of them. Those that we plan are `nominated`; these
    follow no plan of ours. Differs: Karpenter does not know them.
    What a PersistentVolumeClaim says is its owner's word: it keeps one node for each pod, where the pod may run, for `BIND_TIMEOUT`.
    Cost: the waiting pods, and the nodes where one of them waits for a volume.
    """
    found = {pod.nominated_node_name for pod in snapshot.pending}
    nodes: dict[str, NodeView] | None = None
    for pod in snapshot.pending:
        if pod.nominated_node_name or not (name := _selected_node(pod, snapshot)):
            continue
        if nodes is None:
            nodes = {one.name: one for one in snapshot.nodes}
        if name not in found and (node := nodes.get(name)) is not None and _may_run(pod, node):
            found.add(name)
    held = {name: AwaitedNode(*entry) for name, entry in held_nodes(snapshot).items()}
    return held | dict.fromkeys(found - {""}, NOMINATED)


def _selected_node(pod: Pod, snapshot: Snapshot) -> str:
    """The node that the claims of a pod agree on, "" for none: kube-scheduler binds no pod whose claims name several."""
    around = snapshot.around
    chosen: set[str] = set()
    fresh = False
    for key in claim_keys(pod):
        claim = around.claims.get(key)
        if claim is None or names.BIND_COMPLETED in claim.metadata.annotations:
            continue
        if name := claim.metadata.annotations.get(names.SELECTED_NODE):
            chosen.add(name)
            fresh = fresh or snapshot.at - around.selected.get(key, pod.created) < BIND_TIMEOUT
    return chosen.pop() if fresh and len(chosen) == 1 else ""


def _may_run(pod: Pod, node: NodeView) -> bool:
    """Whether selector, affinity and tolerations let the pod onto the node; taints that come and go with its state do not count."""
    try:
        wanted = node_filter(pod.shape)
    except FilterError:
        return False
    if not any(term.matches(node.labels, node.name) for term in wanted.terms):
        return False
    lasting = (taint for taint in node.taints if not taint.key.startswith(_STATE_TAINTS))
    return first_untolerated(wanted.tolerations, lasting) is None


def pod_is_annotated(annotation: str, pod: str) -> str:
    """Why a node is not disrupted, or a command does not go on."""
    return Said(f'Pod has "{annotation}" annotation (Pod={pod})')


def refusal(
    node: NodeView,
    view: DisruptionView,
    pools: Mapping[str, NodePool],
    awaited: Mapping[str, AwaitedNode],
    activity: Activity,
) -> RefusedNode | None:
    """Why `node` is no candidate; None where it is one. Arguments as of `candidates`; `awaited` as of `awaited_nodes`."""
    found = of_node(node, view, pools, awaited, activity)
    if found is not None:
        waits = awaited.get(node.name) if found[0] is Obstacle.NOMINATED else None
        return RefusedNode(node, *found, until=waits.until if waits is not None else None)
    # pods are no better off on a broken node, whatever became of others
    if activity is not Activity.REPAIR and (loop := view.loops.refusal(node)) is not None:
        return RefusedNode(node, Obstacle.LOOP, *loop)
    stays = view.snapshot.together if activity is Activity.CONSOLIDATION else frozenset[str]()
    if group := moves_together(node.pods, stays, view.snapshot.consolidated):
        return RefusedNode(node, Obstacle.POD_GROUP, not_consolidated(group))
    eventual = activity is Activity.DRIFT
    if activity is Activity.REPAIR or (
        eventual and node.claim is not None and node.claim.spec.termination_grace_period
    ):
        return None
    return pods_blocking(node, view, eventual=eventual)


def pods_blocking(node: NodeView, view: DisruptionView, *, eventual: bool) -> RefusedNode | None:
    """What pods and their budgets say against a disruption, which must come to pass where it is `eventual`; None for nothing."""
    now = view.snapshot.at
    for pod in node.pods:
        if is_active(pod) and (protection := read_do_not_disrupt(pod)).holds(now):
            text = pod_is_annotated(names.DO_NOT_DISRUPT, pod.key)
            return RefusedNode(node, Obstacle.POD_PROTECTED, text, protection.until)
        if not eventual and pod.shape.unjudged and is_reschedulable(pod):
            return RefusedNode(
                node,
                Obstacle.POD_UNJUDGED,
                Said(f"Pod cannot be planned onto another node (Pod={pod.key}): {pod.shape.error}"),
            )
    if why := never_back(node.pods, view.snapshot.groups):
        return RefusedNode(node, Obstacle.POD_GROUP, why)
    held = held_back(view.snapshot.pod_budgets, node.pods, now)
    return None if held is None else RefusedNode(node, *held)


def blocked_by_annotation(annotation: str) -> str:
    """Why a node is not disrupted, or a command does not go on."""
    return Said(f'Disruption is blocked through the "{annotation}" annotation')


def label_is_missing(label: str) -> str:
    """Why a node is not disrupted."""
    return Said(f'Node does not have label "{label}"')


def pool_not_found(pool: str) -> str:
    """Why a node is not disrupted."""
    return Said(f"NodePool not found (NodePool={pool})")


def of_node(
    node: NodeView,
    view: DisruptionView,
    pools: Mapping[str, NodePool],
    awaited: Mapping[str, AwaitedNode],
    activity: Activity,
) -> tuple[Obstacle, str] | None:
    """What the node itself is refused for by whoever does `activity`; the order is Karpenter's.

    A broken node is repaired though it is protected or nominated, and though it never was initialized, if it has registered: the pods that are planned
    there are planned anew. Differs: Karpenter does not repair an initialized node that is nominated.
    """
    repair = activity is Activity.REPAIR
    if node.key.of_claim and node.key.name in view.under_way:
        return Obstacle.UNDER_WAY, ALREADY_DISRUPTED
    if node.key.of_claim and (paused := view.pause.why(node.pool, activity)):
        return Obstacle.PAUSED, paused
    if node.key.of_claim and (spared := view.spared.get(node.key.name)) is not None:
        return Obstacle(spared.kind), spared.message
    if node.claim is None:
        return Obstacle.UNMANAGED, Said("Node isn't managed by karpenter")
    if node.ambiguous:
        return Obstacle.AMBIGUOUS, SHARED_PROVIDER_ID
    if not node.name:
        return Obstacle.NO_NODE, Said("Nodeclaim does not have an associated node")
    if node.rebooting:
        return Obstacle.REBOOTING, IS_REBOOTING
    registered = node.initialized or (repair and is_true(node.claim.status.conditions, names.REGISTERED))
    if not registered:
        return Obstacle.NOT_INITIALIZED, Said("Node isn't initialized")
    if node.deleting:
        return Obstacle.DELETING, Said("Node is deleting or marked for deletion")
    if not repair and (node.nominated or node.name in awaited):
        return Obstacle.NOMINATED, (NOMINATED if node.nominated else awaited[node.name]).message
    if not repair and node.do_not_disrupt:
        return Obstacle.NODE_PROTECTED, blocked_by_annotation(names.DO_NOT_DISRUPT)
    if not node.pool:
        return Obstacle.NO_POOL_LABEL, label_is_missing(names.NODEPOOL_LABEL)
    if node.pool not in pools:
        return Obstacle.NO_POOL, pool_not_found(node.pool)
    return None


class CandidateTypes:
    """Instance types by name for the nodes of each pool."""

    def __init__(self, view: DisruptionView) -> None:
        self._view: Final = view
        usable = view.prepared.world.pools if view.prepared is not None else ()
        self._lists: Final = {pool.name: pool.instance_types for pool in usable}
        self._pools: Final = {one.pool.metadata.name: one.pool for one in view.snapshot.pools}
        self._by_name: Final[dict[str, dict[str, InstanceType]]] = {}

    def of_pool(self, name: str) -> Mapping[str, InstanceType]:
        """By name; nothing for a pool that is not there."""
        found = self._by_name.get(name)
        if found is None:
            pool = self._pools.get(name)
            types = self._lists.get(name)
            if types is None:
                types = () if pool is None else self._view.types_of(pool)
            found = self._by_name[name] = {one.name: one for one in types}
        return found

    def of(self, node: NodeView) -> InstanceType | None:
        """The type of a node; None where its pool has none of that name."""
        return self.of_pool(node.pool).get(node.labels.get(names.INSTANCE_TYPE_LABEL, ""))
