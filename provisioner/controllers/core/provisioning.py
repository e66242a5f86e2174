"""Pods that wait become NodeClaims: gather a snapshot, solve, create. Source: core spec 3, 4; design 3.5, 3b.3-3b.6."""

import random
import string
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from provisioner.apis import names
from provisioner.apis.core import TopologySpreadConstraint
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.pods import Pod
from provisioner.apis.shapes import away_from
from provisioner.cloudprovider.types import CloudProvider, InstanceType
from provisioner.controllers import claims
from provisioner.controllers.core import events
from provisioner.controllers.core.intake import counts_by_time
from provisioner.controllers.core.plans import PlanWriter
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.references import pod_reference, reference_of
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, NotFound
from provisioner.kube.events import Recorder
from provisioner.options import Options
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import DevicePolicy, MinValuesPolicy, PreferencePolicy
from provisioner.scheduling.reasons import NOT_TRIED
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.scheduling.world import DEFAULTS, Gathered, Machines, Policies, without, world_of
from provisioner.scheduling.zones import pending_by_zone
from provisioner.state.cluster import Cluster
from provisioner.state.effects import Effect
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import Pool as Workers

_NAME_TRIES = 20
_NAME_LETTERS = string.ascii_lowercase + string.digits
_REFUSALS = (BadRequest, Forbidden, Invalid, NotFound)
"""What a create call meets until somebody changes something: admission, the role, the schema, a CRD that is missing."""
_log = logs.get_logger(__name__)


def policies_of(options: Options) -> Policies:
    """How pods are judged, as the program was started.

    --ignore-dra-requests, on by default, means as in Karpenter that devices are not planned for, so pods with resource claims
    are refused. Switched off, such pods get places and their claims are no constraint, as long as there is no allocator.
    """
    return Policies(
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
        hostname_domains=options.hostname_spread_domains,
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
        effects: Callable[[Iterable[Effect]], None],
        policies: Policies = DEFAULTS,
        deadline: timedelta = timedelta(seconds=10),
        decided: Callable[[Iterable[str], Iterable[str]], None] = lambda _placed, _left: None,
    ) -> None:
        self._decided = decided
        self._policies, self._machines, self._told = policies, Machines(), events.Told()
        self._prepared: Prepared | None = None
        self._deadline = deadline.total_seconds()
        self._plans, self._effects = plans, effects
        self._cluster, self._client, self._provider = cluster, client, provider
        self._recorder, self._metrics, self._workers, self._clock = recorder, metrics, workers, clock
        self._counts, self._retry, self._created, self._chance = counts, retry, created, chance

    def run(self) -> Batch | None:
        """Plan every pod that waits and counts; None when there is none."""
        snapshot = self._cluster.snapshot()
        waiting = tuple(
            pod for pod in snapshot.pending if self._may_plan(pod) and pod.shape.key not in snapshot.stopped
        )
        if any(counts_by_time(pod) and not self._counts(pod) for pod in snapshot.pending):
            self._retry("early")
        pods = waiting + tuple(pod for pod in snapshot.leaving if pod.shape.key not in snapshot.stopped)
        self._metrics.ignored_pods(len(snapshot.pending) - len(waiting))
        if not pods:
            self._metrics.unschedulable_pods(0)
            self._metrics.pending_by_zone({})
            self._complain(snapshot, Result((), {}, ()))
            return None
        decision, started = str(uuid.UUID(int=self._chance.getrandbits(128))), self._clock.monotonic()
        with self._metrics.scheduling(decision, len(pods), self._clock.monotonic):
            gathered = self._gathered(snapshot, self._machines)
            prepared = self._prepared = prepare(gathered.world, self._prepared)
            result = with_own_pods(prepared.solve(avoiding(pods, snapshot.avoided), expired=self._expired()), pods)
        seconds = self._clock.monotonic() - started
        if any(NOT_TRIED in one.reasons for one in result.unplaced):
            _log.warning(
                "the solve deadline passed before every pod was planned; the rest is planned next",
                scheduling_id=decision,
                solve_deadline_seconds=self._deadline,
            )
            self._retry("deadline")
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
        unplaced = {one.pod.uid for one in result.unplaced}
        self._decided([pod.uid for pod in pods if pod.uid not in unplaced], unplaced)
        self._metrics.pending_by_zone(pending_by_zone(gathered.world, pods))  # last: claims wait for nothing
        return batch

    def fits_elsewhere(self, claim_name: str) -> bool:
        """Whether every pod that waits for a claim would find another place now, on machines of today or others that can be had."""
        snapshot, pods = without(self._cluster.snapshot(), claim_name)
        if not pods:
            return False
        prepared = prepare(self._gathered(snapshot).world, self._prepared)
        return not prepared.solve(pods, expired=self._expired(), explain=False).unplaced

    def _expired(self) -> Callable[[], bool]:
        """Says when the time of a question that begins now is up."""
        end = self._clock.monotonic() + self._deadline
        return lambda: self._clock.monotonic() >= end

    def _may_plan(self, pod: Pod) -> bool:
        if pod.nominated_node_name and any(
            victim.deleted is not None for victim in self._cluster.bound_to(pod.nominated_node_name)
        ):
            return False  # kube-scheduler is making room for it by preemption
        return self._counts(pod) and not opted_out(pod)

    def _gathered(self, snapshot: Snapshot, machines: Machines | None = None) -> Gathered:
        gathered = world_of(
            snapshot,
            self._types,
            self._provider.well_known_labels,
            self._manages,
            self._policies,
            machines,
            self._provider.reservation_label,
        )
        for one in gathered.unreadable:
            text = "NodePool cannot be read and is left out" if one.left_out else "NodePool has a field that is ignored"
            _log.warning(text, nodepool=one.pool.metadata.name, error=one.error)
        return gathered

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
        nodes = {str(node.key): node for node in snapshot.nodes}
        for name, pods in result.existing.items():  # first: that room is there for others to take
            self._keep_room(nodes[name], pods)
        for planned in result.claims:
            self._announce(planned)
        self._complain(snapshot, result)

    def _complain(self, snapshot: Snapshot, result: Result) -> None:
        """Say of every pod without a place why, and of every pool without instance types that it has none."""
        texts: dict[int, str] = {}  # by identity: equal pods share their reasons
        empty: dict[str, str] = {}
        complaints: list[tuple[Pod, str]] = []
        unready = events.unready(view.pool for view in snapshot.pools if self._manages(view.pool))
        for unplaced in result.unplaced:
            text = texts.get(id(unplaced.reasons))
            if text is None:
                text = texts[id(unplaced.reasons)] = events.sentence(unplaced.reasons, unready)
                empty |= events.pools_without_types(unplaced.reasons)
            complaints.append((unplaced.pod, text))
        complaints += [
            (pod, events.stopped(stop))
            for pod in snapshot.pending
            if (stop := snapshot.stopped.get(pod.shape.key)) is not None
        ]
        for pod, text in self._told.due(complaints, self._clock.monotonic()):
            self._recorder.publish(pod_reference(pod), "Warning", "FailedScheduling", text, ttl=0)
        for view in snapshot.pools:
            if (about := empty.get(view.pool.name)) is not None:
                self._recorder.publish(reference_of(view.pool), "Warning", "NoCompatibleInstanceTypes", about, ttl=60.0)

    def _announce(self, planned: PlannedClaim) -> None:
        pool = planned.template
        if not isinstance(pool, NodePool):
            raise TypeError("a planned claim carries its NodePool")
        for _ in range(_NAME_TRIES):
            name = f"{pool.metadata.name}-{''.join(self._chance.choices(_NAME_LETTERS, k=5))}"
            body = claims.claim_body(planned, pool, name)
            entered = self._cluster.announce(claims.as_claim(body), planned.pods)
            if entered is not False:
                break
        else:
            _log.error("could not find a free name for a NodeClaim, its pods are planned again", nodepool=pool.name)
            self._retry(f"names/{pool.name}")
            return
        if entered:
            self._workers.submit(lambda: self._create(planned, pool, name, body))
        else:
            _log.info("no NodeClaim is needed, its pods found nodes while they were planned", nodepool=pool.name)

    def _create(self, planned: PlannedClaim, pool: NodePool, name: str, body: dict[str, object]) -> None:
        if self._cluster.is_unneeded(name):
            _log.info("nodeclaim is not created, its pods found other nodes", nodeclaim=name)
            self._cluster.claim_failed(name)
            return
        try:
            claim = self._client.create(resources.NODECLAIMS, body, retry=True)
        except AlreadyExists:
            # our own retried create, or a name that was taken: the plan written on it tells
            claim = self._client.get(resources.NODECLAIMS, name)
            plan = claim.metadata.annotations.get(names.PLAN_ANNOTATION, "")
            if not plan or plan != claims.plan_text(planned.pods):
                self._failed(name, "name taken")
                self._retry(f"failed/{name}")
                return
        except _REFUSALS as error:  # asked again with the pods that still wait, every ten seconds
            self._failed(name, str(error))
            self._say_refused(pool, planned.pods, error)
            return
        except ApiError as error:  # it may have come to be all the same: then its watch event finds its pods planned
            self._failed(name, str(error))
            self._retry(f"failed/{name}")
            return
        self._effects(self._cluster.claim_written(claim))
        if len(self._cluster.assigned(NodeKey(name))) > len(
            planned.pods
        ):  # a later batch came before the claim was there
            self._plans.changed(NodeKey(name))
        self._metrics.claim_created(planned.pool, min_values_relaxed=planned.min_values_relaxed)
        self._created(claim)
        self._nominate(f"nodeclaim/{name}", planned.pods)

    def _failed(self, name: str, why: str) -> None:
        _log.warning("could not create a NodeClaim, its pods are planned again", nodeclaim=name, error=why)
        self._cluster.claim_failed(name)

    def _say_refused(self, pool: NodePool, pods: Iterable[Pod], error: ApiError) -> None:
        text = f"could not create a NodeClaim: {error.message}"
        dedupe = (pool.name,)  # the message names the claim
        self._recorder.publish(reference_of(pool), "Warning", "FailedCreate", text, dedupe, ttl=60.0)
        for pod in pods:
            why = f'Failed to schedule pod, NodePool "{pool.name}": {text}'
            self._recorder.publish(pod_reference(pod), "Warning", "FailedScheduling", why, (pod.uid,), ttl=300.0)

    def _keep_room(self, node: NodeView, pods: tuple[Pod, ...]) -> None:
        """Room for pods on an existing or in-flight node, written into the plan of its claim."""
        claim = node.claim
        if self._cluster.assign(node.key, pods):
            _log.info("a node went while pods were planned onto it, they are planned again", node=str(node.key))
            self._retry(f"refused/{node.key}")
            return
        self._plans.changed(node.key)
        target = f"nodeclaim/{claim.metadata.name}" if claim is not None else ""
        self._nominate(", ".join(part for part in (target, f"node/{node.name}" if node.name else "") if part), pods)

    def _nominate(self, target: str, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self._recorder.publish(pod_reference(pod), "Normal", "Nominated", f"Pod should schedule on: {target}")


def avoiding(pods: tuple[Pod, ...], avoided: Mapping[str, frozenset[str]]) -> tuple[Pod, ...]:
    """The pods to ask for: those that kube-scheduler did not bind somewhere as planned keep off these nodes."""
    if not avoided:
        return pods
    return tuple(
        msgspec.structs.replace(pod, shape=away_from(pod.shape, nodes)) if (nodes := avoided.get(pod.uid)) else pod
        for pod in pods
    )


def with_own_pods(result: Result, pods: tuple[Pod, ...]) -> Result:
    """The answer with the pods as they are, not as they were asked for."""
    own = {pod.uid: pod for pod in pods}

    def real(found: tuple[Pod, ...]) -> tuple[Pod, ...]:
        return tuple(own.get(pod.uid, pod) for pod in found)

    if all(own[pod.uid] is pod for claim in result.claims for pod in claim.pods) and all(
        own[pod.uid] is pod
        for found in (*result.existing.values(), [one.pod for one in result.unplaced])
        for pod in found
    ):
        return result
    return Result(
        claims=tuple(msgspec.structs.replace(claim, pods=real(claim.pods)) for claim in result.claims),
        existing={name: real(found) for name, found in result.existing.items()},
        unplaced=tuple(msgspec.structs.replace(one, pod=own.get(one.pod.uid, one.pod)) for one in result.unplaced),
    )


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
