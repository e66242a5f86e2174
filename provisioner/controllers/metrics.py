"""The provisioner's metrics, under Karpenter's names wherever it has one. Source: core spec 8.1."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition
from provisioner.disruption.blockers import impossible
from provisioner.state.snapshot import Snapshot
from provisioner.support.metrics import DURATION_BUCKETS, GaugeSeries, counter, gauge, histogram, summary
from provisioner.values.duration import DurationError, parse_duration

_LIFETIMES = tuple(float(60 * minutes) for minutes in (15, 30, 60, 120, 240, 480, 720, 1440, 2880, 10080, 20160, 43200))
_INSTANCE_ENDS = tuple(float(2**step) for step in range(11))
_CLAIM_ENDS = tuple(float(2**step) for step in range(12))
_DISRUPTED = ("reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode")
_PREFIX = "karpenter_"
_DECISION = ("controller", "scheduling_id")


class Metrics:
    """Every metric of the program; declared once a process."""

    def __init__(self) -> None:
        self._known_budgets: object = None
        self._impossible_budgets = GaugeSeries(
            gauge(
                "dovetail_pod_disruption_budgets_never_allowing",
                "PodDisruptionBudgets that allow no eviction until they or the number of their pods change; always 1.",
                ("namespace", "poddisruptionbudget"),
            )
        )
        self._created = counter(
            f"{_PREFIX}nodeclaims_created_total",
            "NodeClaims that were created.",
            ("reason", "nodepool", "min_values_relaxed"),
        )
        self._terminated = counter(
            f"{_PREFIX}nodeclaims_terminated_total",
            "NodeClaims that were terminated and no longer exist.",
            ("nodepool", "capacity_type", "zone"),
        )
        self._disrupted = counter(
            f"{_PREFIX}nodeclaims_disrupted_total",
            "NodeClaims that were disrupted, by reason.",
            _DISRUPTED,
        )
        self._pods_disrupted = counter(
            f"{_PREFIX}pods_disruption_initiated_total",
            "Reschedulable pods on NodeClaims when these were disrupted.",
            _DISRUPTED,
        )
        self._claim_end = histogram(
            f"{_PREFIX}nodeclaims_termination_duration_seconds",
            "Time from the deletion of a NodeClaim until it no longer exists.",
            ("nodepool",),
            buckets=_CLAIM_ENDS,
        )
        self._instance_end = histogram(
            f"{_PREFIX}nodeclaims_instance_termination_duration_seconds",
            "Time from the first request to terminate an instance until it has terminated.",
            ("nodepool",),
            buckets=_INSTANCE_ENDS,
        )
        self._nodes_drained = counter(
            f"{_PREFIX}nodes_drained_total", "Nodes that were drained completely.", ("nodepool",)
        )
        self._node_end = summary(
            f"{_PREFIX}nodes_termination_duration_seconds",
            "Time from the deletion of a Node until its finalizer is removed.",
            ("nodepool",),
        )
        self._nodes_created = counter(
            f"{_PREFIX}nodes_created_total", "Nodes that were registered.", ("nodepool", "zone")
        )
        self._nodes_terminated = counter(
            f"{_PREFIX}nodes_terminated_total", "Nodes that were terminated and no longer exist.", ("nodepool", "zone")
        )
        self._lifetime = histogram(
            f"{_PREFIX}nodes_lifetime_duration_seconds",
            "Age of Nodes when they were terminated.",
            ("nodepool",),
            buckets=_LIFETIMES,
        )
        self._limit = _of_pools("limit", "Resource limits of NodePools.", ("resource_type", "nodepool"))
        self._usage = _of_pools(
            "usage", "Resources that the nodes of NodePools have in total.", ("resource_type", "nodepool")
        )
        self._allowed = _of_pools(
            "allowed_disruptions",
            "Nodes that disruption budgets currently allow to be disrupted at the same time, including those that are being disrupted.",
            ("nodepool", "reason"),
        )
        self._consuming = _of_pools(
            "nodes_consuming_budgets", "Nodes that currently count against disruption budgets.", ("nodepool", "reason")
        )
        self._evictions = counter(
            f"{_PREFIX}pods_eviction_requests_total", "Responses to eviction requests, by status code.", ("code",)
        )
        self._drained = counter(
            f"{_PREFIX}pods_drained_total", "Pods that were evicted or deleted to drain a node, by reason.", ("reason",)
        )
        self._scheduling = histogram(
            f"{_PREFIX}scheduler_scheduling_duration_seconds",
            "Duration of one scheduling decision.",
            ("controller",),
            buckets=DURATION_BUCKETS,
        )
        self._depth = gauge(
            f"{_PREFIX}scheduler_queue_depth", "Pods in the scheduling decision that is in progress.", _DECISION
        )
        self._unfinished = gauge(
            f"{_PREFIX}scheduler_unfinished_work_seconds",
            "Time since the scheduling decision in progress started.",
            _DECISION,
        )
        self._by_zone = gauge(
            f"{_PREFIX}scheduler_pending_pods_by_effective_zone_count",
            "Pending pods by the only zone they can run in: flexible if there are several, none if there is no such zone.",
            ("controller", "zone"),
        )
        self._zones: frozenset[str] = frozenset()
        self._ignored = gauge(
            f"{_PREFIX}scheduler_ignored_pods_count", "Pending pods that are not considered for scheduling.", ()
        )
        self._unschedulable = gauge(
            f"{_PREFIX}scheduler_unschedulable_pods_count",
            "Pods that cannot be scheduled to any existing or new node.",
            ("controller",),
        )
        self._decisions = counter(
            f"{_PREFIX}voluntary_disruption_decisions_total",
            "Disruptions that were started.",
            ("decision", "reason", "consolidation_type"),
        )
        self._pool_decisions = counter(
            f"{_PREFIX}voluntary_disruption_decisions_by_nodepool_total",
            "Disruptions that were started, by NodePool of the candidate.",
            ("decision", "reason", "consolidation_type", "nodepool"),
        )
        self._evaluation = histogram(
            f"{_PREFIX}voluntary_disruption_decision_evaluation_duration_seconds",
            "Duration of one evaluation of a disruption method.",
            ("reason", "consolidation_type"),
        )
        self._eligible = gauge(
            f"{_PREFIX}voluntary_disruption_eligible_nodes",
            "Nodes that a disruption method could currently disrupt.",
            ("reason",),
        )
        self._failed_validations = counter(
            f"{_PREFIX}voluntary_disruption_failed_validations_total",
            "Candidates of disruptions that were canceled because they were no longer valid.",
            ("consolidation_type",),
        )
        self._queue_failures = counter(
            f"{_PREFIX}voluntary_disruption_queue_failures_total",
            "Replacement NodeClaims that were not initialized when their disruption was canceled.",
            ("decision", "reason", "consolidation_type"),
        )
        self._timeouts = counter(
            f"{_PREFIX}voluntary_disruption_consolidation_timeouts_total",
            "Consolidation passes that timed out before every candidate was evaluated.",
            ("consolidation_type",),
        )
        for kind in ("single", "multi"):
            self._timeouts.labels(kind)
        self._unhealthy = counter(
            f"{_PREFIX}nodeclaims_unhealthy_disrupted_total",
            "NodeClaims deleted because their Node was unhealthy, by condition.",
            ("condition", "nodepool", "capacity_type", "image_id"),
        )
        self._potential = gauge(
            "dovetail_consolidation_potential_usd_per_hour",
            "Upper bound of what consolidation could still save: the price of all nodes minus a lower bound of what their pods cost.",
            (),
        )
        self._node_count = gauge(
            f"{_PREFIX}cluster_state_node_count",
            "Nodes in the cluster state, including NodeClaims that have no Node yet.",
            (),
        )
        self._synced = gauge(
            f"{_PREFIX}cluster_state_synced", "Whether the cluster state is synchronized: 1 if it is, otherwise 0.", ()
        )
        self._unsynced = gauge(
            f"{_PREFIX}cluster_state_unsynced_time_seconds", "Time since the cluster state was last synchronized.", ()
        )
        self._plan_pods = counter("dovetail_plan_pods_total", "Planned pods, by how their wait ended.", ("outcome",))
        self._plan_misses = counter(
            "dovetail_plan_misses_total",
            "Planned pods that kube-scheduler did not bind as planned, by cause.",
            ("cause",),
        )
        self._nominations = counter(
            "dovetail_nominations_total", "Attempts to nominate a planned pod, by outcome.", ("outcome",)
        )
        self._withheld = counter(
            "dovetail_nominations_withheld_total", "Planned pods that were not nominated, by reason.", ("reason",)
        )
        self._withdrawn = counter(
            "dovetail_nominations_withdrawn_total",
            "Nominations that were withdrawn before the pod was bound, by reason.",
            ("reason",),
        )
        self._scores = histogram(
            f"{_PREFIX}consolidation_score",
            "Scores of consolidations that NodePools with consolidationPolicy Balanced approved or rejected.",
            ("decision", "nodepool", "policy"),
            buckets=(0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0),
        )
        self._moves = counter(
            f"{_PREFIX}consolidation_moves_total",
            "Consolidations that NodePools with consolidationPolicy Balanced approved or rejected.",
            ("decision", "nodepool", "policy"),
        )
        self._loops = counter(
            "dovetail_disruption_loops_total",
            "Workloads whose nodes were launched and removed three times within an hour and are left alone since, by NodePool.",
            ("nodepool",),
        )
        self._held_back = GaugeSeries(
            gauge(
                "dovetail_nodeclaims_held_back",
                "NodeClaims of the most recent plan that wait because of --max-claims-per-minute or --max-usd-per-hour.",
                ("nodepool", "limit"),
            )
        )
        self._plan_cost = gauge(
            "dovetail_plan_cost", "Price of the new nodes in the most recent plan, in USD per hour.", ()
        )
        self._plan_bound = gauge(
            "dovetail_plan_lower_bound",
            "Proved lower bound of what new nodes for the pods of the most recent plan cost, in USD per hour; NaN if it is unknown.",
            (),
        )
        self._plan_gap = gauge(
            "dovetail_plan_gap",
            "Price of the most recent plan above its lower bound, as a fraction of the bound; NaN if it is unknown.",
            (),
        )
        self._plans = counter(
            "dovetail_plans_total", "Plans with new nodes, by what came of the search for a cheaper one.", ("outcome",)
        )
        self._rebuilds = counter(
            "dovetail_consolidation_plans_total",
            "Searches of consolidation for cheaper nodes for the pods of many nodes, by outcome: improved (found, whether or not replacing pays), "
            "unchanged (none found), refused (what was found is not possible), exact (fewer than ten pods on new nodes: all partitions were compared); "
            "not searched: near-bound (next to nothing can be saved), greedy (no NodePool is packed by cost), no-time; no answer: not-installed "
            "(packages are missing), starting, failed, late, too-large (the question).",
            ("outcome",),
        )
        self._reports = counter("dovetail_reports_total", "Unschedulable pods that the extender reported.", ())

    def claim_created(self, pool: str, reason: str = "provisioned", *, min_values_relaxed: bool = False) -> None:
        """A NodeClaim was created for pods, or to replace one that is disrupted: then `reason` is why, in lower case."""
        self._created.labels(reason, pool, "true" if min_values_relaxed else "false").inc()

    def claim_disrupted(self, claim: NodeClaim, reason: str, pods: int = 0, *, policy: str = "") -> None:
        """A NodeClaim's end was begun by us.

        Args:
            claim: it.
            reason: in snake_case.
            pods: that were bound there and can move.
            policy: consolidationPolicy of its NodePool, where it was consolidated or empty.
        """
        capacity_type = claim.metadata.labels.get(names.CAPACITY_TYPE_LABEL, "")
        labels = (reason, claim.pool, capacity_type, _snake(policy), _termination_mode(claim))
        self._disrupted.labels(*labels).inc()
        self._pods_disrupted.labels(*labels).inc(pods)

    def claim_terminated(self, claim: NodeClaim, now: datetime, *, with_instance: bool) -> None:
        """A NodeClaim's finalizer fell; `with_instance` where its instance has ended, and is not another claim's."""
        asked = claim.metadata.deletion_timestamp
        if asked is not None:
            self._claim_end.labels(claim.pool).observe(max(0.0, (now - asked).total_seconds()))
        ending = condition(claim.status.conditions, names.INSTANCE_TERMINATING)
        if ending is not None and ending.last_transition_time is not None and with_instance:
            self._instance_end.labels(claim.pool).observe(max(0.0, (now - ending.last_transition_time).total_seconds()))
        elif with_instance and claim.status.provider_id:
            self._instance_end.labels(claim.pool).observe(0.0)  # it was gone at the first request
        labels = claim.metadata.labels
        self._terminated.labels(
            claim.pool, labels.get(names.CAPACITY_TYPE_LABEL, ""), labels.get(names.ZONE_LABEL, "")
        ).inc()

    def node_created(self, claim: NodeClaim) -> None:
        """A Node was registered."""
        self._nodes_created.labels(claim.pool, claim.metadata.labels.get(names.ZONE_LABEL, "")).inc()

    def node_terminated(self, claim: NodeClaim, node: Node, now: datetime) -> None:
        """A Node's finalizer fell."""
        self._nodes_terminated.labels(claim.pool, claim.metadata.labels.get(names.ZONE_LABEL, "")).inc()
        if node.metadata.deletion_timestamp is not None:
            self._node_end.observe(max(0.0, (now - node.metadata.deletion_timestamp).total_seconds()), claim.pool)
        if node.metadata.creation_timestamp is not None:
            self._lifetime.labels(claim.pool).observe((now - node.metadata.creation_timestamp).total_seconds())

    def node_drained(self, claim: NodeClaim) -> None:
        """The last pod that holds up the end of a Node has left it."""
        self._nodes_drained.labels(claim.pool).inc()

    def pool(self, name: str, limits: dict[str, float], usage: dict[str, float]) -> None:
        """Limits and use of one NodePool, in base units (cores, bytes)."""
        self._limit.replace(name, [((resource, name), amount) for resource, amount in limits.items()])
        self._usage.replace(name, [((resource, name), amount) for resource, amount in usage.items()])

    def pool_gone(self, name: str) -> None:
        """A NodePool was deleted."""
        self._limit.forget(name)
        self._usage.forget(name)

    def budgets(self, reason: str, counts: Mapping[str, tuple[int, int]]) -> None:
        """(allowed at once, consuming) of every NodePool's budgets for one reason; pools that are left out are forgotten."""
        self._allowed.replace(reason, [((pool, reason), allowed) for pool, (allowed, _) in counts.items()])
        self._consuming.replace(reason, [((pool, reason), consuming) for pool, (_, consuming) in counts.items()])

    def eviction(self, code: str) -> None:
        """One answer to an eviction request."""
        self._evictions.labels(code).inc()

    def pod_drained(self, reason: str) -> None:
        """One pod was evicted."""
        self._drained.labels(reason).inc()

    @contextmanager
    def scheduling(self, decision: str, pods: int, monotonic: Callable[[], float]) -> Iterator[None]:
        """Around one solve of so many pods; `decision` is its ID."""
        started, labels = monotonic(), ("provisioner", decision)
        self._depth.labels(*labels).set(pods)
        self._unfinished.labels(*labels).set_function(lambda: monotonic() - started)
        try:
            yield
        finally:
            self._scheduling.labels("provisioner").observe(monotonic() - started)
            self._depth.remove(*labels)
            self._unfinished.remove(*labels)

    def pending_by_zone(self, counts: Mapping[str, int]) -> None:
        """The pods of the last batch by effective zone."""
        for gone in self._zones - counts.keys():
            self._by_zone.remove("provisioner", gone)
        for zone, count in counts.items():
            self._by_zone.labels("provisioner", zone).set(count)
        self._zones = frozenset(counts)

    def ignored_pods(self, count: int) -> None:
        """Pending pods that did not count in the last batch."""
        self._ignored.set(count)

    def unschedulable_pods(self, count: int) -> None:
        """Pods of the last batch without a place."""
        self._unschedulable.labels("provisioner").set(count)

    def decision(self, decision: str, reason: str, consolidation_type: str, pools: Iterable[str] = ()) -> None:
        """One voluntary disruption was begun; `pools` of its candidates, each once."""
        self._decisions.labels(decision, reason, consolidation_type).inc()
        for pool in pools:
            self._pool_decisions.labels(decision, reason, consolidation_type, pool).inc()

    @contextmanager
    def evaluating(self, reason: str, consolidation_type: str, monotonic: Callable[[], float]) -> Iterator[None]:
        """Around one evaluation of a disruption method; `reason` in lower case. Differs: Karpenter counts each simulation as a scheduling decision."""
        started = monotonic()
        try:
            yield
        finally:
            seconds = monotonic() - started
            self._evaluation.labels(reason, consolidation_type).observe(seconds)
            if reason != names.REASON_EMPTY.lower():  # it asks for no places
                self._scheduling.labels("disruption").observe(seconds)

    def eligible_nodes(self, reason: str, count: int) -> None:
        """How many nodes a method could disrupt now, budgets left aside; `reason` in lower case."""
        self._eligible.labels(reason).set(count)

    def validation_failed(self, consolidation_type: str, candidates: int) -> None:
        """A command was called off, since so many candidates may not go any more."""
        self._failed_validations.labels(consolidation_type).inc(candidates)

    def queue_failed(self, decision: str, reason: str, consolidation_type: str, replacements: int) -> None:
        """A command was called off while so many replacements were not initialized."""
        self._queue_failures.labels(decision, reason, consolidation_type).inc(replacements)

    def consolidation_timed_out(self, consolidation_type: str) -> None:
        """A pass ended before every candidate was judged."""
        self._timeouts.labels(consolidation_type).inc()

    def consolidation_potential(self, usd_per_hour: float) -> None:
        """The most that consolidation could still save, by proof."""
        self._potential.set(usd_per_hour)

    def unhealthy_disrupted(self, claim: NodeClaim, kind: str) -> None:
        """A NodeClaim was deleted for a condition of its Node; `kind` is the condition's type."""
        capacity_type = claim.metadata.labels.get(names.CAPACITY_TYPE_LABEL, "")
        self._unhealthy.labels(_snake(kind), claim.pool, capacity_type, claim.status.image_id).inc()

    def consolidation_scored(self, pool: str, score: float, *, approved: bool) -> None:
        """A NodePool that balances savings with disruption has judged one move."""
        labels = ("approved" if approved else "rejected", pool, "balanced")
        self._scores.labels(*labels).observe(score)
        self._moves.labels(*labels).inc()

    def disruption_loop(self, pool: str) -> None:
        """A workload is in a loop from now on; the NodePool of its last node."""
        self._loops.labels(pool).inc()

    def held_back(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Planned NodeClaims that growth limits hold back, by NodePool and limit; what is left out is forgotten."""
        self._held_back.replace("all", counts.items())

    def plan(self, outcome: str, usd_per_hour: float, usd_at_least: float | None, gap: float | None) -> None:
        """A plan with new nodes was made; `outcome` as of `provisioner.controllers.core.planner.PlanOutcome`."""
        self._plans.labels(outcome).inc()
        self._plan_cost.set(usd_per_hour)
        self._plan_bound.set(math.nan if usd_at_least is None else usd_at_least)
        self._plan_gap.set(math.nan if gap is None else gap)

    def rebuild(self, outcome: str) -> None:
        """Consolidation had somebody look for a cheaper fleet; `outcome` as of `plan`."""
        self._rebuilds.labels(outcome).inc()

    def plan_pod(self, outcome: str) -> None:
        """A planned pod's wait ended; see `provisioner.state.effects.PodSettled`."""
        self._plan_pods.labels(outcome).inc()

    def plan_miss(self, cause: str) -> None:
        """kube-scheduler did not bind a pod as planned; see `provisioner.state.misses.CAUSES`."""
        self._plan_misses.labels(cause).inc()

    def nomination(self, outcome: str) -> None:
        """A nomination was written, refused (the pod is gone, bound, or nominated by another), or failed."""
        self._nominations.labels(outcome).inc()

    def nomination_withheld(self, reason: str) -> None:
        """A planned pod goes without a nomination: carries_spread, counted_by_spread or not_needed."""
        self._withheld.labels(reason).inc()

    def nomination_withdrawn(self, reason: str) -> None:
        """A nomination was taken back: not_bound, not_planned or counted_by_spread."""
        self._withdrawn.labels(reason).inc()

    def reported(self, count: int) -> None:
        """The extender reported pods."""
        self._reports.inc(count)

    def sync(self, is_synced: Callable[[], bool], monotonic: Callable[[], float]) -> None:
        """How to find out whether the cluster state shows all that there is; asked at every scrape."""
        since = [monotonic()]

        def unsynced() -> float:
            if is_synced():
                since[0] = monotonic()
            return monotonic() - since[0]

        self._synced.set_function(lambda: float(is_synced()))
        self._unsynced.set_function(unsynced)

    def state(self, snapshot: Snapshot) -> None:
        """The size of the cluster state; call once in a while."""
        self._node_count.set(len(snapshot.nodes))
        if self._known_budgets is not snapshot.pod_budgets:
            self._known_budgets = snapshot.pod_budgets
            self._impossible_budgets.replace("budgets", ((key, 1.0) for key in impossible(snapshot.pod_budgets)))


def _of_pools(name: str, doc: str, labels: tuple[str, str]) -> GaugeSeries:
    return GaugeSeries(gauge(f"{_PREFIX}nodepools_{name}", doc, labels))


def _termination_mode(claim: NodeClaim) -> str:
    """How a NodeClaim ends: graceful without a terminationGracePeriod, eventual with one, forceful with one of no length."""
    text = claim.spec.termination_grace_period
    if not text:
        return "graceful"
    try:
        return "eventual" if parse_duration(text) > timedelta(0) else "forceful"
    except DurationError:  # nobody forces it, see `drain.grace_end`
        return "graceful"


def _snake(name: str) -> str:
    """A name in snake_case: WhenEmpty is when_empty."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
