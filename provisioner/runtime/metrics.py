"""The provisioner's metrics, under Karpenter's names wherever it has one, and how those are counted that take more than a line. Source: core spec 8.1."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.eviction import impossible
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod, is_reschedulable
from provisioner.state.snapshot import Snapshot
from provisioner.support.metrics import DURATION_BUCKETS, GaugeSeries, counter, gauge, histogram, summary
from provisioner.values.duration import DurationError, parse_duration

_LIFETIMES = (
    *(900.0, 1800.0, 2700.0),
    *(3600.0 * hours for hours in (1, 2, 4, 6, 8, 10, 12, 16, 20)),
    *(86400.0 * days for days in (1, 2, 3, 5, 10, 15, 20, 25, 30)),
)
_INSTANCE_ENDS = tuple(float(2**step) for step in range(11))
_CLAIM_ENDS = tuple(float(2**step) for step in range(12))
_DISRUPTION = ("reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode")
_PREFIX = "karpenter_"
_DECISION = ("controller", "scheduling_id")

_told: dict[str, object] = {}  # of what a gauge was written last


def _of_pools(name: str, doc: str, labels: tuple[str, str]) -> GaugeSeries:
    return GaugeSeries(gauge(f"{_PREFIX}nodepools_{name}", doc, labels))


_IMPOSSIBLE_BUDGETS = GaugeSeries(
    gauge(
        "dovetail_pod_disruption_budgets_never_allowing",
        "PodDisruptionBudgets that allow no eviction until they or the number of their pods change; always 1.",
        ("namespace", "poddisruptionbudget"),
    )
)
CLAIMS_CREATED = counter(
    f"{_PREFIX}nodeclaims_created_total",
    "NodeClaims that were created.",
    ("reason", "nodepool", "min_values_relaxed"),
)
_TERMINATED = counter(
    f"{_PREFIX}nodeclaims_terminated_total",
    "NodeClaims that were terminated and no longer exist.",
    ("nodepool", "capacity_type", "zone"),
)
_DISRUPTED = counter(
    f"{_PREFIX}nodeclaims_disrupted_total",
    "NodeClaims that were disrupted, by reason.",
    _DISRUPTION,
)
_PODS_DISRUPTED = counter(
    f"{_PREFIX}pods_disruption_initiated_total",
    "Reschedulable pods on NodeClaims when these were disrupted.",
    _DISRUPTION,
)
_CLAIM_END = histogram(
    f"{_PREFIX}nodeclaims_termination_duration_seconds",
    "Time from the deletion of a NodeClaim until it no longer exists.",
    ("nodepool",),
    buckets=_CLAIM_ENDS,
)
_INSTANCE_END = histogram(
    f"{_PREFIX}nodeclaims_instance_termination_duration_seconds",
    "Time from the first request to terminate an instance until it has terminated.",
    ("nodepool",),
    buckets=_INSTANCE_ENDS,
)
NODES_DRAINED = counter(f"{_PREFIX}nodes_drained_total", "Nodes that were drained completely.", ("nodepool",))
_NODE_END = summary(
    f"{_PREFIX}nodes_termination_duration_seconds",
    "Time from the deletion of a Node until its finalizer is removed.",
    ("nodepool",),
)
NODES_CREATED = counter(f"{_PREFIX}nodes_created_total", "Nodes that were registered.", ("nodepool", "zone"))
_NODES_TERMINATED = counter(
    f"{_PREFIX}nodes_terminated_total", "Nodes that were terminated and no longer exist.", ("nodepool", "zone")
)
_LIFETIME = histogram(
    f"{_PREFIX}nodes_lifetime_duration_seconds",
    "Age of Nodes when they were terminated.",
    ("nodepool",),
    buckets=_LIFETIMES,
)
_LIMIT = _of_pools("limit", "Resource limits of NodePools.", ("resource_type", "nodepool"))
_USAGE = _of_pools("usage", "Resources that the nodes of NodePools have in total.", ("resource_type", "nodepool"))
_ALLOWED = _of_pools(
    "allowed_disruptions",
    "Nodes that disruption budgets currently allow to be disrupted at the same time, including those that are being disrupted.",
    ("nodepool", "reason"),
)
_CONSUMING = _of_pools(
    "nodes_consuming_budgets", "Nodes that currently count against disruption budgets.", ("nodepool", "reason")
)
EVICTIONS = counter(
    f"{_PREFIX}pods_eviction_requests_total", "Responses to eviction requests, by status code.", ("code",)
)
DELETION_COSTS = counter(
    f"{_PREFIX}pod_deletion_cost_pod_annotation_writes_total",
    "Deletion costs of pods that were decided, by result.",
    ("result",),
)
_PENDING_DELETION_COSTS = GaugeSeries(
    gauge(
        f"{_PREFIX}pod_deletion_cost_nodes_with_pending_annotation_writes",
        "Nodes with pods whose deletion costs had to be written at the beginning of the most recent pass.",
        ("nodepool",),
    )
)
PODS_DRAINED = counter(
    f"{_PREFIX}pods_drained_total", "Pods that were evicted or deleted to drain a node, by reason.", ("reason",)
)
_SCHEDULING = histogram(
    f"{_PREFIX}scheduler_scheduling_duration_seconds",
    "Duration of one scheduling decision.",
    ("controller",),
    buckets=DURATION_BUCKETS,
)
_DEPTH = gauge(f"{_PREFIX}scheduler_queue_depth", "Pods in the scheduling decision that is in progress.", _DECISION)
_UNFINISHED = gauge(
    f"{_PREFIX}scheduler_unfinished_work_seconds",
    "Time since the scheduling decision in progress started.",
    _DECISION,
)
_BY_ZONE = GaugeSeries(
    gauge(
        f"{_PREFIX}scheduler_pending_pods_by_effective_zone_count",
        "Pending pods by the only zone they can run in: flexible if there are several, none if there is no such zone.",
        ("controller", "zone"),
    )
)
IGNORED_PODS = gauge(
    f"{_PREFIX}scheduler_ignored_pods_count", "Pending pods that are not considered for scheduling.", ()
)
UNSCHEDULABLE_PODS = gauge(
    f"{_PREFIX}scheduler_unschedulable_pods_count",
    "Pods that cannot be scheduled to any existing or new node.",
    ("controller",),
)
_DECISIONS = counter(
    f"{_PREFIX}voluntary_disruption_decisions_total",
    "Disruptions that were started.",
    ("decision", "reason", "consolidation_type"),
)
_POOL_DECISIONS = counter(
    f"{_PREFIX}voluntary_disruption_decisions_by_nodepool_total",
    "Disruptions that were started, by NodePool of the candidate.",
    ("decision", "reason", "consolidation_type", "nodepool"),
)
_TERMINATE_FIRST = counter(
    f"{_PREFIX}voluntary_disruption_terminate_first_decisions_total",
    "Disruptions that were started whose node goes before its replacement is launched, because there is no room for both.",
    ("nodepool", "reason", "terminate_first_reason"),
)
_EVALUATION = histogram(
    f"{_PREFIX}voluntary_disruption_decision_evaluation_duration_seconds",
    "Duration of one evaluation of a disruption method.",
    ("reason", "consolidation_type"),
)
ELIGIBLE_NODES = gauge(
    f"{_PREFIX}voluntary_disruption_eligible_nodes",
    "Nodes that a disruption method could currently disrupt.",
    ("reason",),
)
FAILED_VALIDATIONS = counter(
    f"{_PREFIX}voluntary_disruption_failed_validations_total",
    "Candidates of disruptions that were canceled because they were no longer valid.",
    ("consolidation_type",),
)
QUEUE_FAILURES = counter(
    f"{_PREFIX}voluntary_disruption_queue_failures_total",
    "Replacement NodeClaims that were not initialized when their disruption was canceled.",
    ("decision", "reason", "consolidation_type"),
)
CONSOLIDATION_TIMEOUTS = counter(
    f"{_PREFIX}voluntary_disruption_consolidation_timeouts_total",
    "Consolidation passes that timed out before every candidate was evaluated.",
    ("consolidation_type",),
)
for _kind in ("single", "multi"):
    CONSOLIDATION_TIMEOUTS.labels(_kind)
_UNHEALTHY = counter(
    f"{_PREFIX}nodeclaims_unhealthy_disrupted_total",
    "NodeClaims deleted because their Node was unhealthy, by condition.",
    ("condition", "nodepool", "capacity_type", "image_id", "termination_mode"),
)
_REBOOT_BUCKETS = tuple(10.0 * 2**power for power in range(8))
_REBOOTS = counter(f"{_PREFIX}nodes_reboots_total", "Reboots of unhealthy nodes, by result.", ("result",))
_REBOOT_SECONDS = histogram(
    f"{_PREFIX}nodes_reboot_duration_seconds",
    "Time from the decision to reboot a node to its end, by result.",
    ("result",),
    buckets=_REBOOT_BUCKETS,
)
_REBOOT_RECOVERY = histogram(
    f"{_PREFIX}nodes_reboot_recovery_duration_seconds",
    "Time from the request to reboot an instance until its Node was Ready again.",
    (),
    buckets=_REBOOT_BUCKETS,
)
CONSOLIDATION_POTENTIAL = gauge(
    "dovetail_consolidation_potential_usd_per_hour",
    "Upper bound of what consolidation could still save: the price of all nodes minus a lower bound of what their pods cost.",
    (),
)
_NODE_COUNT = gauge(
    f"{_PREFIX}cluster_state_node_count",
    "Nodes in the cluster state, including NodeClaims that have no Node yet.",
    (),
)
_SYNCED = gauge(
    f"{_PREFIX}cluster_state_synced", "Whether the cluster state is synchronized: 1 if it is, otherwise 0.", ()
)
_UNSYNCED = gauge(
    f"{_PREFIX}cluster_state_unsynced_time_seconds", "Time since the cluster state was last synchronized.", ()
)
_LEADS = gauge(
    "leader_election_master_status",
    "Whether this replica holds the leader election Lease of this name: 1 if it does, otherwise 0.",
    ("name",),
)
PLAN_PODS = counter("dovetail_plan_pods_total", "Planned pods, by how their wait ended.", ("outcome",))
PLAN_MISSES = counter(
    "dovetail_plan_misses_total",
    "Planned pods that kube-scheduler did not bind as planned, by cause.",
    ("cause",),
)
NOMINATIONS = counter("dovetail_nominations_total", "Attempts to nominate a planned pod, by outcome.", ("outcome",))
NOMINATIONS_WITHHELD = counter(
    "dovetail_nominations_withheld_total", "Planned pods that were not nominated, by reason.", ("reason",)
)
NOMINATIONS_WITHDRAWN = counter(
    "dovetail_nominations_withdrawn_total",
    "Nominations that were withdrawn before the pod was bound, by reason.",
    ("reason",),
)
_SCORES = histogram(
    f"{_PREFIX}consolidation_score",
    "Scores of consolidations that NodePools with consolidationPolicy Balanced approved or rejected.",
    ("decision", "nodepool", "policy"),
    buckets=(0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0),
)
_MOVES = counter(
    f"{_PREFIX}consolidation_moves_total",
    "Consolidations that NodePools with consolidationPolicy Balanced approved or rejected.",
    ("decision", "nodepool", "policy"),
)
DISRUPTION_LOOPS = counter(
    "dovetail_disruption_loops_total",
    "Workloads whose nodes were launched and removed three times within an hour and are no longer disrupted, by NodePool.",
    ("nodepool",),
)
HELD_BACK = GaugeSeries(
    gauge(
        "dovetail_nodeclaims_held_back",
        "NodeClaims of the most recent plan that wait because of --max-claims-per-minute or --max-usd-per-hour.",
        ("nodepool", "limit"),
    )
)
PROVISIONING_REQUESTS = GaugeSeries(
    gauge(
        "dovetail_provisioning_requests",
        "ProvisioningRequests of the classes in --provisioning-classes, by the condition that is true: Accepted, Provisioned, BookingExpired or Failed.",
        ("class", "condition"),
    )
)
_GANGS = GaugeSeries(
    gauge(
        "dovetail_gangs",
        "Groups of pods that are planned as a whole, by source (podgroup, annotations, volcano or coscheduling) and state: running (enough pods are bound), "
        "launching (its nodes are being launched), placed (its pods have places on nodes), waiting (they have none), given_up (its nodes were given up, it is "
        "planned again later); not planned: incomplete (pods are missing), gated, queued (by Volcano), unknown (there is no such PodGroup), "
        "contradiction (its pods differ in priority or scheduler), unread (PodGroups, or its Job, cannot be read).",
        ("source", "state"),
    )
)
_GANG_USD_WAITING = gauge(
    "dovetail_gang_usd_waiting",
    "Price of launched nodes that wait for other nodes of a group of pods that does not run yet, in USD per hour.",
    (),
)
GANG_READY = histogram(
    "dovetail_gang_ready_seconds",
    "Time from when all pods that a group needs exist until as many as it needs are bound; groups that already had a bound pod are left out.",
    (),
    buckets=(1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0, 3600.0),
)
GANGS_GIVEN_UP = counter(
    "dovetail_gang_given_up_total",
    "Times that all new nodes of a group of pods were given up, by reason: insufficient_capacity (one of them could not be launched) or "
    "hold_expired (launched nodes waited too long for the others).",
    ("reason",),
)
_PLAN_COST = gauge("dovetail_plan_cost", "Price of the new nodes in the most recent plan, in USD per hour.", ())
_PLAN_BOUND = gauge(
    "dovetail_plan_lower_bound",
    "Proved lower bound of what new nodes for the pods of the most recent plan cost, in USD per hour; NaN if it is unknown.",
    (),
)
_PLAN_GAP = gauge(
    "dovetail_plan_gap",
    "Price of the most recent plan above its lower bound, as a fraction of the bound; NaN if it is unknown.",
    (),
)
_PLANS = counter(
    "dovetail_plans_total", "Plans with new nodes, by outcome of the search for a cheaper one.", ("outcome",)
)
REBUILDS = counter(
    "dovetail_consolidation_plans_total",
    "Searches of consolidation for cheaper nodes for the pods of many nodes, by outcome: improved (found, whether or not replacing pays), "
    "unchanged (none found), refused (what was found is not possible), exact (fewer than ten pods on new nodes: all partitions were compared); "
    "not searched: near-bound (next to nothing can be saved), greedy (no NodePool is packed by cost), no-time; no answer: not-installed "
    "(packages are missing), starting, failed, late, too-large (the question).",
    ("outcome",),
)
REPORTED_PODS = counter("dovetail_reports_total", "Unschedulable pods that the extender reported.", ())


def claim_disrupted(
    claim: NodeClaim, reason: str, pods: Iterable[Pod] = (), *, policy: str = "", grace: timedelta | None = None
) -> None:
    """A NodeClaim's end was begun by us.

    Args:
        claim: it.
        reason: in snake_case.
        pods: that were bound there; those count that can move.
        policy: consolidationPolicy of its NodePool, where it was consolidated or empty.
        grace: of the repair that ends it; None for its own terminationGracePeriod.
    """
    capacity_type = claim.metadata.labels.get(names.CAPACITY_TYPE_LABEL, "")
    labels = (reason, claim.pool, capacity_type, _snake(policy), _termination_mode(claim, grace))
    _DISRUPTED.labels(*labels).inc()
    _PODS_DISRUPTED.labels(*labels).inc(sum(map(is_reschedulable, pods)))


def claim_terminated(claim: NodeClaim, now: datetime, *, with_instance: bool) -> None:
    """A NodeClaim's finalizer fell; `with_instance` where its instance has ended, and is not another claim's."""
    asked = claim.metadata.deletion_timestamp
    if asked is not None:
        _CLAIM_END.labels(claim.pool).observe(max(0.0, (now - asked).total_seconds()))
    ending = condition(claim.status.conditions, names.INSTANCE_TERMINATING)
    if ending is not None and ending.last_transition_time is not None and with_instance:
        _INSTANCE_END.labels(claim.pool).observe(max(0.0, (now - ending.last_transition_time).total_seconds()))
    elif with_instance and claim.status.provider_id:
        _INSTANCE_END.labels(claim.pool).observe(0.0)  # it was gone at the first request
    labels = claim.metadata.labels
    _TERMINATED.labels(claim.pool, labels.get(names.CAPACITY_TYPE_LABEL, ""), labels.get(names.ZONE_LABEL, "")).inc()


def node_terminated(claim: NodeClaim, node: Node, now: datetime) -> None:
    """A Node's finalizer fell."""
    _NODES_TERMINATED.labels(claim.pool, claim.metadata.labels.get(names.ZONE_LABEL, "")).inc()
    if node.metadata.deletion_timestamp is not None:
        _NODE_END.observe(max(0.0, (now - node.metadata.deletion_timestamp).total_seconds()), claim.pool)
    if node.metadata.creation_timestamp is not None:
        _LIFETIME.labels(claim.pool).observe((now - node.metadata.creation_timestamp).total_seconds())


def pool(name: str, limits: dict[str, float], usage: dict[str, float]) -> None:
    """Limits and use of one NodePool, in base units (cores, bytes); none of one that was deleted."""
    _LIMIT.replace(name, [((resource, name), amount) for resource, amount in limits.items()])
    _USAGE.replace(name, [((resource, name), amount) for resource, amount in usage.items()])


def budgets(reason: str, counts: Mapping[str, tuple[int, int]]) -> None:
    """(allowed at once, consuming) of every NodePool's budgets for one reason; pools that are left out are forgotten."""
    word = reason.lower()
    _ALLOWED.replace(word, [((pool, word), allowed) for pool, (allowed, _) in counts.items()])
    _CONSUMING.replace(word, [((pool, word), consuming) for pool, (_, consuming) in counts.items()])


def pending_deletion_costs(nodes: Mapping[str, int]) -> None:
    """How many nodes of each NodePool have pods whose deletion costs are to be written."""
    _PENDING_DELETION_COSTS.replace("", (((pool,), count) for pool, count in nodes.items()))


@contextmanager
def scheduling(decision: str, pods: int, monotonic: Callable[[], float]) -> Iterator[None]:
    """Around one solve of so many pods; `decision` is its ID."""
    started, labels = monotonic(), ("provisioner", decision)
    _DEPTH.labels(*labels).set(pods)
    _UNFINISHED.labels(*labels).set_function(lambda: monotonic() - started)
    try:
        yield
    finally:
        _SCHEDULING.labels("provisioner").observe(monotonic() - started)
        _DEPTH.remove(*labels)
        _UNFINISHED.remove(*labels)


def pending_by_zone(counts: Mapping[str, int]) -> None:
    """The pods of the last batch by effective zone."""
    _BY_ZONE.replace("provisioner", ((("provisioner", zone), count) for zone, count in counts.items()))


def gangs(counts: Mapping[tuple[str, str], int], usd_waiting: float) -> None:
    """How many groups of pods of a source (first) are in a state (second), and what those cost an hour that wait."""
    _GANGS.replace("", counts.items())
    _GANG_USD_WAITING.set(usd_waiting)


def decision(decision: str, reason: str, consolidation_type: str, pools: Iterable[str] = ()) -> None:
    """One voluntary disruption was begun; `pools` of its candidates, each once."""
    _DECISIONS.labels(decision, reason, consolidation_type).inc()
    for pool in pools:
        _POOL_DECISIONS.labels(decision, reason, consolidation_type, pool).inc()


_TERMINATE_FIRST_REASONS = {"reservation": "no-reserved-capacity", "node-limit": "static-at-limit"}
"""Karpenter's words, for the two of `CapKind` that it knows."""


def terminate_first(reason: str, kind: str, pools: Iterable[str]) -> None:
    """A disruption was begun whose node goes first; `kind` is of what is full."""
    for pool in pools:
        _TERMINATE_FIRST.labels(pool, reason, _TERMINATE_FIRST_REASONS.get(kind, kind)).inc()


@contextmanager
def evaluating(reason: str, consolidation_type: str, monotonic: Callable[[], float]) -> Iterator[None]:
    """Around one evaluation of a disruption method; `reason` in lower case. Differs: Karpenter counts each simulation as a scheduling decision."""
    started = monotonic()
    try:
        yield
    finally:
        seconds = monotonic() - started
        _EVALUATION.labels(reason, consolidation_type).observe(seconds)
        if reason != names.REASON_EMPTY.lower():  # it asks for no places
            _SCHEDULING.labels("disruption").observe(seconds)


def unhealthy_disrupted(claim: NodeClaim, kind: str, grace: timedelta | None) -> None:
    """A NodeClaim was deleted for a condition of its Node; `kind` is the condition's type, `grace` as of `claim_disrupted`."""
    capacity_type = claim.metadata.labels.get(names.CAPACITY_TYPE_LABEL, "")
    mode = _termination_mode(claim, grace)
    _UNHEALTHY.labels(_snake(kind), claim.pool, capacity_type, claim.status.image_id, mode).inc()


def rebooted(result: str, requested: datetime, issued: datetime | None, now: datetime) -> None:
    """A reboot has ended; `issued` is when the cloud was called. Source: Karpenter 1.15 spec 4."""
    _REBOOTS.labels(result).inc()
    _REBOOT_SECONDS.labels(result).observe(max(0.0, (now - requested).total_seconds()))
    if result == "succeeded" and issued is not None:
        _REBOOT_RECOVERY.observe(max(0.0, (now - issued).total_seconds()))


def consolidation_scored(pool: str, score: float, *, approved: bool) -> None:
    """A NodePool that balances savings with disruption has judged one move."""
    labels = ("approved" if approved else "rejected", pool, "balanced")
    _SCORES.labels(*labels).observe(score)
    _MOVES.labels(*labels).inc()


def plan(outcome: str, usd_per_hour: float, usd_at_least: float | None, gap: float | None) -> None:
    """A plan with new nodes was made; `outcome` as of `provisioner.packing.planner.PlanOutcome`."""
    _PLANS.labels(outcome).inc()
    _PLAN_COST.set(usd_per_hour)
    _PLAN_BOUND.set(math.nan if usd_at_least is None else usd_at_least)
    _PLAN_GAP.set(math.nan if gap is None else gap)


def sync(is_synced: Callable[[], bool], monotonic: Callable[[], float]) -> None:
    """How to find out whether the cluster state shows all that there is; asked at every scrape."""
    since = [monotonic()]

    def unsynced() -> float:
        if is_synced():
            since[0] = monotonic()
        return monotonic() - since[0]

    _SYNCED.set_function(lambda: float(is_synced()))
    _UNSYNCED.set_function(unsynced)


def leading(lease: str, leads: Callable[[], bool]) -> None:
    """How to find out whether this process leads, by the name of its Lease; asked at every scrape."""
    _LEADS.labels(lease).set_function(lambda: float(leads()))


def state(snapshot: Snapshot) -> None:
    """The size of the cluster state; call once in a while."""
    _NODE_COUNT.set(len(snapshot.nodes))
    if _told.get("budgets") is not snapshot.pod_budgets:
        _told["budgets"] = snapshot.pod_budgets
        _IMPOSSIBLE_BUDGETS.replace("budgets", ((key, 1.0) for key in impossible(snapshot.pod_budgets)))


def _termination_mode(claim: NodeClaim, grace: timedelta | None) -> str:
    """How a NodeClaim ends: graceful without a terminationGracePeriod, eventual with one, forceful with one of no length; that of a repair counts first."""
    if grace is not None:
        return "eventual" if grace > timedelta(0) else "forceful"
    text = claim.spec.termination_grace_period
    if not text:
        return "graceful"
    try:
        return "eventual" if parse_duration(text) > timedelta(0) else "forceful"
    except DurationError:  # nobody forces it, see `eviction_queue.grace_end`
        return "graceful"


def _snake(name: str) -> str:
    """A name in snake_case: WhenEmpty is when_empty."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
