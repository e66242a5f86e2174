"""Pods that wait become NodeClaims: gather a snapshot, solve, create. Source: core spec 3, 4; design 3.5, 3b.3-3b.6."""

import random
import string
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from provisioner.apis import names
from provisioner.apis.core import ObjectReference, TopologySpreadConstraint
from provisioner.apis.karpenter import NodeClaim, NodePool, requirements_of
from provisioner.apis.meta import is_true
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import CloudProvider, InstanceType
from provisioner.controllers import claims, telling
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.plans import PlanWriter
from provisioner.controllers.references import pod_reference
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, ApiError
from provisioner.kube.events import Recorder
from provisioner.options import Options
from provisioner.scheduling.problem import (
    Bin,
    DevicePolicy,
    MinValuesPolicy,
    Pool,
    PreferencePolicy,
    Problem,
    SpreadDefaults,
    Storage,
)
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.scheduling.solver import solve
from provisioner.scheduling.zones import pending_by_zone
from provisioner.state.cluster import EXISTING_TTL, Cluster
from provisioner.state.snapshot import NodeView, PoolView, Snapshot
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import Pool as Workers
from provisioner.values.quantity import QuantityError
from provisioner.values.requirement import Operator, Requirement, RequirementError, Requirements
from provisioner.values.resources import Resources

_NAME_LETTERS = string.ascii_lowercase + string.digits
_NOT_RESERVED = Requirements.of([Requirement.of(names.CAPACITY_TYPE_LABEL, Operator.NOT_IN, [names.CAPACITY_RESERVED])])
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Policies:
    """What the flags say about judging pods; `of` reads them.

    Attributes:
        spread: cluster default spread constraints, without selectors.
        reserves: whether reserved capacity may be used.
    """

    preferences: PreferencePolicy = PreferencePolicy.RESPECT
    min_values: MinValuesPolicy = MinValuesPolicy.STRICT
    devices: DevicePolicy = DevicePolicy.REFUSE
    spread: tuple[TopologySpreadConstraint, ...] = ()
    reserves: bool = True

    @classmethod
    def of(cls, options: Options) -> "Policies":
        """As the program was started.

        --ignore-dra-requests, on by default, means as in Karpenter that devices are not planned for, so pods with
        resource claims are refused. Switched off, such pods get places and their claims are no constraint, as long as
        there is no allocator.
        """
        return cls(
            preferences=PreferencePolicy(options.preference_policy),
            min_values=MinValuesPolicy(options.min_values_policy),
            devices=DevicePolicy.REFUSE if options.ignore_dra_requests else DevicePolicy.IGNORE,
            spread=tuple(
                TopologySpreadConstraint(
                    max_skew=one.max_skew, topology_key=one.topology_key, when_unsatisfiable=one.when_unsatisfiable
                )
                for one in options.scheduler_config
            ),
            reserves=options.feature_gates.reserved_capacity,
        )


class Bins:
    """Machines as scheduling sees them, the same object while nothing of a machine changed. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[NodeView, Bin]] = {}

    def of(self, snapshot: Snapshot) -> tuple[Bin, ...]:
        """The machines of a snapshot in its order; those that are gone are forgotten."""
        known = self._known
        self._known = {
            view.key: entry if (entry := known.get(view.key)) is not None and entry[0] is view else (view, _bin(view))
            for view in snapshot.nodes
        }
        return tuple(made for _, made in self._known.values())


def _bin(node: NodeView) -> Bin:
    here = {pod.uid for pod in node.pods}
    return Bin(
        name=node.key,
        labels=node.labels,
        room=node.room,
        taints=node.taints,
        node_name=node.name,
        pool=node.pool,
        pods=node.pods + tuple(pod for pod in node.promised if pod.uid not in here),
        attach_limits=node.attach_limits,
        leaving=node.deleting,
    )


def problem_of(
    snapshot: Snapshot,
    pods: tuple[Pod, ...],
    types_of: Callable[[NodePool], tuple[InstanceType, ...]],
    well_known: frozenset[str],
    manages: Callable[[NodePool], bool],
    policies: Policies = Policies(),
    bins: Bins | None = None,
    reservation_label: str = "",
) -> Problem:
    """The question that this instant asks; what only depends on the snapshot is decided here.

    A pool takes part when it is ours, Ready, dynamic, not being deleted and readable: a malformed one says so itself
    (ValidationSucceeded) and must not stop the others. A machine that leaves takes no pods; those on it still count.

    `policies` is what the flags say; `bins` keeps machines from one question to the next; `reservation_label` is the provider's.
    """
    usable = [view for view in snapshot.pools if manages(view.pool) and is_usable(view.pool)]
    pools = [pool for view in usable if (pool := _pool(view, types_of(view.pool), policies)) is not None]
    around = snapshot.around
    return Problem(
        pods=pods,
        pools=tuple(pools),
        bins=(bins or Bins()).of(snapshot),
        daemons=snapshot.daemons,
        well_known=well_known,
        namespaces=around.namespaces,
        storage=Storage(
            claims=around.claims,
            volumes=around.volumes,
            classes=around.classes,
            attach_limits=around.attach_limits,
        ),
        spread_defaults=SpreadDefaults(
            constraints=policies.spread, services=around.services, controllers=around.controllers
        ),
        preferences=policies.preferences,
        min_values=policies.min_values,
        devices=policies.devices,
        reservation_label=reservation_label,
    )


def without(snapshot: Snapshot, claim_name: str) -> tuple[Snapshot, tuple[Pod, ...]]:
    """The instant as if a claim had never been made, and the pods that wait for it; none where it has no machine to come.

    Other claims that have no machine yet are no place to go either: they may wait for the same.
    """
    gone = next((view for view in snapshot.nodes if view.claim is not None and view.claim.name == claim_name), None)
    if gone is None:
        return snapshot, ()
    freed = gone.capacity + Resources.of({names.NODES: 1})
    rest = replace(
        snapshot,
        nodes=tuple(
            view
            for view in snapshot.nodes
            if view is not gone and (view.claim is None or view.claim.status.provider_id)
        ),
        pools=tuple(
            replace(view, used=view.used - freed) if view.pool.metadata.name == gone.pool else view
            for view in snapshot.pools
        ),
    )
    return rest, gone.promised


def is_usable(pool: NodePool) -> bool:
    """Whether new machines may come from this pool."""
    return (
        pool.metadata.deletion_timestamp is None
        and pool.spec.replicas is None
        and is_true(pool.status.conditions, names.READY)
    )


def _pool(view: PoolView, types: tuple[InstanceType, ...], policies: Policies) -> Pool | None:
    template = view.pool.spec.template
    reference = view.pool.node_class_ref
    labels = {
        **view.pool.labels,
        names.NODEPOOL_LABEL: view.pool.metadata.name,
        names.nodeclass_label(reference.group, reference.kind): reference.name,
    }
    try:
        requirements = requirements_of(template.spec.requirements)
        limits = Resources.parse(view.pool.spec.limits)
    except (RequirementError, QuantityError) as error:
        _log.warning("nodepool cannot be read, it is left out", nodepool=view.pool.metadata.name, error=str(error))
        return None
    requirements = requirements.merged(Requirements.from_labels(labels))
    if not policies.reserves:
        requirements = requirements.merged(_NOT_RESERVED)
    return Pool(
        name=view.pool.metadata.name,
        weight=view.pool.spec.weight,
        requirements=requirements,
        taints=view.pool.taints,
        startup_taints=view.pool.startup_taints,
        instance_types=types,
        remaining=Resources.of({key: limit - view.used.get(key, 0) for key, limit in limits.items()})
        if limits
        else None,
        template=view.pool,
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """What one run did, for logs, metrics and tests."""

    pods: int
    claims: int
    existing: int
    unplaced: int
    usd_per_hour: float


class Provisioner:
    """Runs one batch after another; creating the claims of one never holds up the next.

    A claim is told to the state before it is written, so the next batch plans around it at once; a create that
    fails takes that back and the pods are planned again.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        provider: CloudProvider,
        recorder: Recorder,
        metrics: Metrics,
        workers: Workers,
        clock: Clock,
        *,
        counts: Callable[[Pod], bool],
        retry: Callable[[str], None],
        created: Callable[[NodeClaim], None],
        chance: random.Random,
        plans: PlanWriter,
        policies: Policies = Policies(),
    ) -> None:
        self._policies, self._bins, self._told = policies, Bins(), telling.Told()
        self._plans = plans
        self._cluster, self._client, self._provider = cluster, client, provider
        self._recorder, self._metrics, self._workers, self._clock = recorder, metrics, workers, clock
        self._counts, self._retry, self._created, self._chance = counts, retry, created, chance

    def run(self) -> Batch | None:
        """Plan every pod that waits and counts; None when there is none."""
        snapshot = self._cluster.snapshot()
        waiting = tuple(pod for pod in snapshot.pending if self._may_plan(pod))
        early = sum(1 for pod in snapshot.pending if not self._counts(pod))
        if early:
            self._retry("early")
        pods = waiting + snapshot.leaving
        self._metrics.ignored_pods(len(snapshot.pending) - len(waiting))
        if not pods:
            self._metrics.unschedulable_pods(0)
            self._metrics.pending_by_zone({})
            return None
        decision, started = str(uuid.UUID(int=self._chance.getrandbits(128))), self._clock.monotonic()
        with self._metrics.scheduling(decision, len(pods), self._clock.monotonic):
            problem = self._problem(snapshot, pods, self._bins)
            result = solve(problem)
        seconds = self._clock.monotonic() - started
        self._metrics.unschedulable_pods(len(result.unplaced))
        self._metrics.plan(result.usd_per_hour)
        batch = Batch(
            len(pods),
            len(result.claims),
            sum(map(len, result.existing.values())),
            len(result.unplaced),
            result.usd_per_hour,
        )
        _log.info(
            "planned",
            scheduling_id=decision,
            pods=batch.pods,
            claims=batch.claims,
            existing=batch.existing,
            unplaced=batch.unplaced,
            usd_per_hour=round(batch.usd_per_hour, 4),
            milliseconds=round(seconds * 1000, 1),
        )
        self._act(snapshot, result)
        self._metrics.pending_by_zone(pending_by_zone(problem))  # last: claims wait for nothing
        return batch

    def fits_elsewhere(self, claim_name: str) -> bool:
        """Whether every pod that waits for a claim would find another place now, on machines of today or others that can be had."""
        snapshot, pods = without(self._cluster.snapshot(), claim_name)
        return bool(pods) and not solve(self._problem(snapshot, pods)).unplaced

    def _may_plan(self, pod: Pod) -> bool:
        if pod.nominated_node_name and any(
            victim.deleted is not None for victim in self._cluster.bound_to(pod.nominated_node_name)
        ):
            return False  # kube-scheduler is making room for it by preemption
        return self._counts(pod) and not opted_out(pod)

    def _problem(self, snapshot: Snapshot, pods: tuple[Pod, ...], bins: Bins | None = None) -> Problem:
        return problem_of(
            snapshot,
            pods,
            self._types,
            self._provider.well_known_labels,
            self._manages,
            self._policies,
            bins,
            self._provider.reservation_label,
        )

    def _types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            return self._provider.instance_types(pool)
        except Exception as error:
            _log.warning("instance types unknown, the pool is left out", nodepool=pool.metadata.name, error=str(error))
            return ()

    def _manages(self, pool: NodePool) -> bool:
        reference = pool.node_class_ref
        return (reference.group, reference.kind) in self._provider.node_class_kinds()

    # ------------------------------------------------------------------ act

    def _act(self, snapshot: Snapshot, result: Result) -> None:
        nodes = {node.key: node for node in snapshot.nodes}
        for key, pods in result.existing.items():  # first: that room is there for others to take
            self._keep_room(nodes[key], pods)
        for planned in result.claims:
            self._announce(planned)
        self._complain(snapshot, result)

    def _complain(self, snapshot: Snapshot, result: Result) -> None:
        """Say of every pod without a place why, and of every pool without instance types that it has none."""
        texts: dict[int, str] = {}  # by identity: equal pods share their reasons
        empty: dict[str, str] = {}
        complaints: list[tuple[Pod, str]] = []
        idle = telling.not_ready(
            view.pool for view in snapshot.pools if self._manages(view.pool) and not is_usable(view.pool)
        )
        for unplaced in result.unplaced:
            text = texts.get(id(unplaced.reasons))
            if text is None:
                text = texts[id(unplaced.reasons)] = telling.sentence(unplaced.reasons, idle)
                empty |= telling.pools_without_types(unplaced.reasons)
            complaints.append((unplaced.pod, text))
        for pod, text in self._told.due(complaints, self._clock.monotonic()):
            self._recorder.publish(pod_reference(pod), "Warning", "FailedScheduling", text, ttl=0)
        for pool, text in sorted(empty.items()):
            reference = ObjectReference(api_version=claims.API_VERSION, kind="NodePool", name=pool)
            self._recorder.publish(reference, "Warning", "NoCompatibleInstanceTypes", text, ttl=60.0)

    def _announce(self, planned: PlannedClaim) -> None:
        pool = planned.template
        if not isinstance(pool, NodePool):
            raise TypeError("a planned claim carries its NodePool")
        name = f"{pool.metadata.name}-{''.join(self._chance.choices(_NAME_LETTERS, k=5))}"
        body = claims.claim_body(planned, pool, name)
        self._cluster.claim_written(claims.as_claim(body))
        self._workers.submit(lambda: self._create(planned, name, body))

    def _create(self, planned: PlannedClaim, name: str, body: dict[str, object]) -> None:
        try:
            claim = self._client.create(resources.NODECLAIMS, body, retry=True)
        except AlreadyExists:
            # our own retried create, or a name that was taken: the plan written on it tells
            claim = self._client.get(resources.NODECLAIMS, name)
            plan = claim.metadata.annotations.get(names.PLAN_ANNOTATION, "")
            if plan != claims.plan_text(planned.pods):
                self._failed(name, "name taken")
                return
        except ApiError as error:
            self._failed(name, str(error))
            return
        self._cluster.claim_written(claim)
        if len(self._cluster.promised(name)) > len(planned.pods):  # a later batch came before the claim was there
            self._plans.changed(name)
        self._metrics.claim_created(planned.pool, min_values_relaxed=planned.min_values_relaxed)
        self._created(claim)
        self._nominate(f"nodeclaim/{name}", planned.pods)

    def _failed(self, name: str, why: str) -> None:
        _log.warning("could not create a NodeClaim, its pods are planned again", nodeclaim=name, error=why)
        self._cluster.claim_failed(name)
        self._retry(f"failed/{name}")

    def _keep_room(self, node: NodeView, pods: tuple[Pod, ...]) -> None:
        """Room for pods on a machine of now, written into its plan."""
        claim = node.claim
        self._cluster.promise(node.key, pods, EXISTING_TTL if claim is None or node.initialized else None)
        self._plans.changed(node.key)
        target = f"nodeclaim/{claim.metadata.name}" if claim is not None else ""
        self._nominate(", ".join(part for part in (target, f"node/{node.name}" if node.name else "") if part), pods)

    def _nominate(self, target: str, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self._recorder.publish(pod_reference(pod), "Normal", "Nominated", f"Pod should schedule on: {target}")


def opted_out(pod: Pod) -> bool:
    """Whether the pod demands a node that is not ours, by a NodePool label that does not exist. Source: core spec 3.3."""
    affinity = pod.shape.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return False
    terms = affinity.node_affinity.required.node_selector_terms
    return bool(terms) and all(
        any(one.key == names.NODEPOOL_LABEL and one.operator == "DoesNotExist" for one in term.match_expressions)
        for term in terms
    )
