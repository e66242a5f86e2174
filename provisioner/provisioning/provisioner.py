"""Pods that wait become NodeClaims: gather a snapshot, solve, create. Source: core spec 3, 4; design 3.5, 3b.3-3b.6."""

import functools
import random
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import msgspec

from provisioner.apis.core import TopologySpreadConstraint
from provisioner.apis.karpenter import NodePool
from provisioner.apis.pods import Pod
from provisioner.buffers.controller import CapacityBuffers
from provisioner.buffers.virtual_pods import is_virtual, kept
from provisioner.cloudprovider.types import CloudProvider
from provisioner.kube.errors import ApiError
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.creator import REFUSALS, ClaimCreator, NoFreeNameError, claim_refused
from provisioner.nodeclaims.growth_ledger import KARPENTER_SECONDS, HeldBackError, pool_held_back
from provisioner.nodeclaims.growth_limits import GrowthLimit
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.options import Options
from provisioner.packing.planner import PackingOutcome, as_scheduled
from provisioner.provisioning import failed_scheduling as events
from provisioner.provisioning.replanning import Replanning
from provisioner.provisioning.worlds import Worlds
from provisioner.provisioning.zones import pending_by_zone
from provisioner.runtime import metrics
from provisioner.runtime.object_reference import pod_reference, reference_of
from provisioner.scheduling.drainability import staying, too_early
from provisioner.scheduling.gangs import failed_groups
from provisioner.scheduling.judging import design_of, part_of
from provisioner.scheduling.node_claims import NewClaim, planned_claim
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import DevicePolicy, MinValuesPolicy, Packing, PreferencePolicy
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.scheduling.topology.ties import topology_keys
from provisioner.scheduling.world import DEFAULTS, BinCache, Policies, as_they_run, successors, without
from provisioner.state.cluster import Cluster
from provisioner.state.effects import Effect
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import WorkerPool
from provisioner.values.message import EventMessage, Said

_log = logs.get_logger(__name__)
REACHED_SOLVE_DEADLINE: Final = "Reached the solve deadline (--timeouts=solve) before every pod was planned; planning the remaining pods in the next batch"
_MOST_LOOKED_AT: Final = 200
"""Classes of pods in one pass for which the NodePools that they might go to are told apart from others."""
PLANNED_PENDING_PODS: Final = Said("Planned pending pods")


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
                max_skew=one.max_skew,
                topology_key=one.topology_key,
                when_unsatisfiable=one.when_unsatisfiable,
                min_domains=one.min_domains,
                node_affinity_policy=one.node_affinity_policy or "",
                node_taints_policy=one.node_taints_policy or "",
            )
            for one in options.scheduler_config
        ),
        reserves=options.feature_gates.reserved_capacity,
        packing=Packing(options.packing),
        fake_nodes=options.provider == "kwok",
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """What one run did, for logs, metrics and tests."""

    pods: int
    claims: int
    existing: int
    unplaced: int
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class _HeldBack:
    """A planned NodeClaim that a growth limit does not allow now."""

    planned: PlannedClaim
    error: HeldBackError

    @property
    def is_dear(self) -> bool:
        """A cheaper one would be allowed, if there is one."""
        return self.error.held.limit is GrowthLimit.USD and not self.error.held.unpriced

    def without(self, uids: Collection[str]) -> "_HeldBack | None":
        """The same for its other pods; None where it was for these alone."""
        rest = self.planned.without(uids)
        return None if rest is None else replace(self, planned=rest)


def _of_real_pods(result: Result) -> tuple[Result, frozenset[int]]:
    """A result without virtual pods, and the numbers of the claims that had some.

    Claims for virtual pods alone stay, planned for no pod by name; virtual pods without a place are not told.
    """
    claims = tuple(
        msgspec.structs.replace(one, pods=tuple(pod for pod in one.pods if not is_virtual(pod)))
        for one in result.claims
    )
    for_buffers = frozenset(
        number for number, one in enumerate(claims) if len(one.pods) < len(result.claims[number].pods)
    )
    existing = {
        name: real for name, pods in result.existing.items() if (real := tuple(p for p in pods if not is_virtual(p)))
    }
    unplaced = tuple(one for one in result.unplaced if not is_virtual(one.pod))
    return replace(result, claims=claims, existing=existing, unplaced=unplaced), for_buffers


class ProvisioningController:
    """Runs one batch after another; creating the claims of one never holds up the next.

    The state learns of a claim before it is written, so the next batch plans around it at once; a create that
    fails takes that back and the pods are planned again.

    Args:
        taken_back: carries out what follows where NodeClaims that are not being launched yet are planned again with a batch; None: they never are.
    """

    def __init__(
        self,
        cluster: Cluster,
        creator: ClaimCreator,
        provider: CloudProvider,
        recorder: Recorder,
        workers: WorkerPool,
        clock: Clock,
        *,
        retry: Callable[[str], None],
        chance: random.Random,
        plans: PlanWriter,
        buffers: CapacityBuffers,
        policies: Policies = DEFAULTS,
        deadline: timedelta = timedelta(seconds=10),
        retry_after: Callable[[float], None] = lambda _seconds: None,
        marks: Callable[[Iterable[Pod]], Mapping[str, str]] = lambda _pods: {},
        decided: Callable[[Iterable[str], Iterable[str]], None] = lambda _placed, _left: None,
        improve: Callable[[Prepared, Result], PackingOutcome] = as_scheduled,
        taken_back: Callable[[Iterable[Effect]], None] | None = None,
    ) -> None:
        self._decided, self._retry_after, self._marks = decided, retry_after, marks
        self._buffers, self._improve = buffers, improve
        self._worlds, self._bins, self._told = Worlds(provider, policies), BinCache(), events.ToldPods()
        self._prepared: Prepared | None = None
        self._closed_to: tuple[
            Pod, ...
        ] = ()  # the pods of the last batch, where another Karpenter or a pause kept it from nodes
        self._failed_groups: list[str] = []  # of the last batch
        self._deadline = deadline.total_seconds()
        self._replanning = (
            Replanning(cluster, self._worlds, improve, taken_back, 3 * self._deadline)
            if taken_back is not None
            else None
        )
        self._cluster, self._creator, self._plans = cluster, creator, plans
        self._recorder, self._workers, self._clock = recorder, workers, clock
        self._retry, self._chance = retry, chance

    def run(self) -> Batch | None:
        """Plan every pod that waits; None when there is none."""
        snapshot = self._cluster.snapshot()
        if snapshot.early:
            self._retry("early")
        pods = snapshot.waiting + tuple(pod for pod in snapshot.leaving if pod.shape.key not in snapshot.stopped)
        metrics.IGNORED_PODS.set(len(snapshot.pending) - len(snapshot.waiting))
        virtual = self._buffers.pods()
        if pods and pods == self._closed_to and not virtual and self._creator.growth.is_closed:
            self._retry_after(KARPENTER_SECONDS)  # they were told; what they would get is not asked again meanwhile
            return None
        if not pods and not virtual:
            self._note_buffers(virtual, snapshot, {})
            metrics.UNSCHEDULABLE_PODS.labels("provisioner").set(0)
            metrics.pending_by_zone({})
            metrics.HELD_BACK.replace("all", ())
            self._complain(snapshot, Result((), {}, ()))
            return None
        decision, started = str(uuid.UUID(int=self._chance.getrandbits(128))), self._clock.monotonic()
        with metrics.scheduling(decision, len(pods), self._clock.monotonic):
            gathered = self._worlds.of(snapshot, self._bins)
            prepared = self._prepared = prepare(gathered.world, self._prepared)
            first = successors(snapshot)
            last = self._failed_groups
            self._chance.shuffle(last)  # each has its turn to be asked about before others
            greedy = prepared.solve(
                (*pods, *virtual), avoided=snapshot.avoided, first=first, last=last, expired=self._expired()
            )
            planned = self._improve(prepared, greedy)
            later: frozenset[str] = frozenset()
            if (before := self._before_others_left(snapshot, prepared, planned.result)) is not None:
                later = frozenset([pod.uid for pod in pods if pod.node_name])
                some = (*snapshot.waiting, *virtual)
                greedy = before.solve(some, avoided=snapshot.avoided, first=first, last=last, expired=self._expired())
                planned = self._improve(before, greedy)
            elif (other := self._one_after_another(snapshot, prepared, planned.result, self._expired())) is not None:
                planned = other
            elif self._replanning is not None and pods:
                planned = self._replanning.planned(snapshot, (*pods, *virtual), prepared, planned, self._expired)
        self._failed_groups = failed_groups(greedy)
        self._note_buffers(virtual, snapshot, planned.result.existing)
        result, for_buffers = _of_real_pods(planned.result) if virtual else (planned.result, frozenset[int]())
        for ignored in gathered.unreadable:
            if not ignored.left_out:
                message = EventMessage(
                    "Warning",
                    "InvalidAnnotation",
                    f"{ignored.error}. The default applies until the value is corrected or removed",
                )
                self._recorder.publish(reference_of(ignored.pool), *message, ttl=600.0)
        greedy_usd = greedy.usd_per_hour - result.usd_per_hour
        held = self._act(snapshot, result, planned.annotations, for_buffers, first)
        at_first, late, expired = result, result.is_late, self._expired()  # of all that is asked once more together
        if later:
            more, dear = self._also(later, first, expired, runs=True)
            result, held, late = result.joined(more), [*held, *dear], late or more.is_late
        if any(one.is_dear for one in held):
            result, held, more_late = self._affordable(result, held, first, expired)
            late = late or more_late
        seconds = self._clock.monotonic() - started
        if late:
            _log.warning(
                REACHED_SOLVE_DEADLINE,
                scheduling_id=decision,
                solve_deadline_seconds=self._deadline,
            )
            self._retry("deadline")
        metrics.UNSCHEDULABLE_PODS.labels("provisioner").set(len(result.unplaced))
        if result.claims:
            at_least = planned.usd_at_least if result is at_first else None
            metrics.plan(planned.outcome, result.usd_per_hour, at_least, result.gap(at_least))
        batch = Batch(
            len(pods),
            len(result.claims),
            sum(map(len, result.existing.values())),
            len(result.unplaced),
            result.usd_per_hour,
        )
        tell = _log.info if pods or result.claims else _log.debug  # buffers alone are looked at every ten seconds
        tell(
            PLANNED_PENDING_PODS,
            scheduling_id=decision,
            pods=batch.pods,
            claims=batch.claims,
            existing=batch.existing,
            unplaced=batch.unplaced,
            usd_per_hour=round(batch.usd_per_hour, 4),
            usd_per_hour_greedy=round(batch.usd_per_hour + greedy_usd, 4),
            planner=planned.outcome,
            milliseconds=round(seconds * 1000, 1),
        )
        self._note_held(held)
        self._complain(snapshot, result, held)
        self._closed_to = pods if held and self._creator.growth.is_closed else ()
        unplaced = {one.pod.uid for one in result.unplaced}.union(pod.uid for one in held for pod in one.planned.pods)
        self._decided([pod.uid for pod in pods if pod.uid not in unplaced], unplaced)
        metrics.pending_by_zone(pending_by_zone(gathered.world, pods))  # last: claims wait for nothing
        return batch

    def _before_others_left(self, snapshot: Snapshot, prepared: Prepared, result: Result) -> Prepared | None:
        """The world in which pods that are to leave count where they run, if what waits could not be bound there; else None.

        A PodDisruptionBudget may let no other go before it is bound.
        """
        now = as_they_run(snapshot)
        if (now is snapshot and not snapshot.leaving) or not topology_keys(snapshot.waiting):
            return None
        before = prepared if now is snapshot else prepare(self._worlds.of(now, self._bins).world, prepared)
        part = part_of(design_of(result), {pod.uid for pod in snapshot.waiting})
        return None if before.judge(part).legal else before

    def _one_after_another(
        self, snapshot: Snapshot, prepared: Prepared, result: Result, expired: Callable[[], bool]
    ) -> PackingOutcome | None:
        """A plan in which pods that still run, and that PodDisruptionBudgets let go one after another, have places that are legal before the others have left.

        None where those of `result` are, or none is found. What leaves counts as if it stayed as well, and the answer is judged without that.
        """
        tied = [pod for pod in snapshot.leaving if topology_keys((pod,))]
        if not tied or snapshot.pod_budgets.waves(tied) <= 1:
            return None
        early = too_early(prepared, result, tied)
        if not early:
            return None
        before = staying(prepared, [pod for pod in tied if pod.shape.key in early])
        pods = (*result.placed, *(one.pod for one in result.unplaced))
        again = before.solve(pods, avoided=snapshot.avoided, first=successors(snapshot), expired=expired)
        planned = self._improve(before, again)
        found = planned.result
        legal = prepared.judge(design_of(found)).legal and not too_early(prepared, found, tied)
        return planned if legal and len(found.unplaced) <= len(result.unplaced) else None

    def fits_elsewhere(self, claim_name: str) -> bool:
        """Whether every pod that waits for a claim would find another place now, on nodes of today or others that can be had."""
        snapshot, pods = without(self._cluster.snapshot(), claim_name)
        if not pods:
            return False
        world = replace(self._worlds.of(snapshot).world, groups={})  # what others of a group wait for is no matter here
        return not prepare(world, self._prepared).solve(pods, expired=self._expired(), explain=False).unplaced

    def _expired(self) -> Callable[[], bool]:
        """Says when the time of a question that begins now is up."""
        end = self._clock.monotonic() + self._deadline
        return lambda: self._clock.monotonic() >= end

    # ------------------------------------------------------------------ act

    def _act(
        self,
        snapshot: Snapshot,
        result: Result,
        annotations: Mapping[str, str],
        for_buffers: frozenset[int],
        first: Collection[str],
    ) -> list["_HeldBack"]:
        """Carry a result out as far as limits allow, nodes for pods of `first` before others; what they hold back is planned again."""
        nodes = {str(node.key): node for node in snapshot.nodes}
        for name, pods in result.existing.items():  # first: that room is there for others to take
            self._keep_room(nodes[name], pods)
        held: list[_HeldBack] = []
        closed: HeldBackError | None = None
        for number, planned in result.in_order(first):
            try:
                if closed is not None:
                    raise closed
                name = self._announce(planned, annotations)
                if name and number in for_buffers:
                    self._buffers.bought(str(NodeKey(name)))
            except HeldBackError as error:
                held.append(_HeldBack(planned, error))
                if error.held.is_for_all:
                    closed = error  # none of any size may follow
        return held

    def _affordable(
        self, result: Result, held: list[_HeldBack], first: Collection[str], expired: Callable[[], bool]
    ) -> tuple[Result, list[_HeldBack], bool]:
        """Plan what money holds back once more, with what is left of it: the pods that wait, then those that still run on nodes that go.

        What waits may hold up a drain, so it depends on no room that others would like to have beside it.

        Returns:
            The plan in which each pod has the place that it was given last, what of it is held back, and whether the time was too short.
        """
        short, late = {pod.uid for one in held if one.is_dear for pod in one.planned.pods}, False
        for runs in (False, True):
            more, dear = self._also(short, first, expired, runs=runs, usd=self._creator.growth.usd_left())
            placed = {pod.uid for pod in more.placed}
            result = result.joined(more)
            held = [rest for one in held if (rest := one.without(placed)) is not None] + dear
            late = late or more.is_late
        return result, held, late

    def _also(
        self,
        uids: Collection[str],
        first: Collection[str],
        expired: Callable[[], bool],
        *,
        runs: bool,
        usd: float | None = None,
    ) -> tuple[Result, list[_HeldBack]]:
        """Plan those of these pods that still run on nodes that go, or wait, and have no place yet; for so many USD per hour."""
        snapshot = self._cluster.snapshot()
        pods = tuple(one for one in (snapshot.leaving if runs else snapshot.waiting) if one.uid in uids)
        if not pods or (usd is not None and usd <= 0):
            return Result((), {}, ()), []
        world = self._worlds.of(snapshot if runs else as_they_run(snapshot), self._bins).world
        prepared = prepare(world if usd is None else self._worlds.within(world, usd), self._prepared)
        result = prepared.solve(pods, avoided=snapshot.avoided, first=first, expired=expired, explain=usd is None)
        planned = self._one_after_another(snapshot, prepared, result, expired) if runs else None
        planned = planned or as_scheduled(prepared, result)
        return planned.result, self._act(snapshot, planned.result, planned.annotations, frozenset(), first)

    def _note_buffers(
        self, virtual: tuple[Pod, ...], snapshot: Snapshot, existing: Mapping[str, tuple[Pod, ...]]
    ) -> None:
        self._buffers.placed(kept(virtual, existing, (str(one.key) for one in snapshot.nodes if one.initialized)))

    def _note_held(self, held: list["_HeldBack"]) -> None:
        """Say on NodePools what growth limits hold back, and come back when they allow more."""
        by_pool: dict[tuple[str, str], list[_HeldBack]] = {}
        for one in held:
            by_pool.setdefault((one.planned.pool, one.error.held.limit), []).append(one)
        metrics.HELD_BACK.replace("all", ((key, len(some)) for key, some in by_pool.items()))
        for (pool, limit), some in by_pool.items():
            _log.info(
                "Created fewer NodeClaims than planned because of a growth limit; the remaining pods are planned again",
                nodepool=pool,
                limit=limit,
                nodeclaims=len(some),
            )
            template = some[0].planned.template
            if isinstance(template, NodePool):
                text = pool_held_back(len(some), str(some[0].error))
                dedupe = (template.metadata.uid, limit)  # the message counts
                self._recorder.publish(reference_of(template), *text, dedupe, ttl=60.0)
        if waits := [seconds for one in held if (seconds := one.error.held.seconds) is not None]:
            self._retry_after(min(waits))

    def _complain(self, snapshot: Snapshot, result: Result, held: Iterable["_HeldBack"] = ()) -> None:
        """Say of every pod without a place why, and of every pool without instance types that it has none."""
        texts: dict[tuple[int, str], str] = {}  # by identity: equal pods share their reasons
        empty: dict[str, EventMessage] = {}
        complaints: list[tuple[Pod, str]] = []
        pools = [view.pool for view in snapshot.pools]
        for unplaced in result.unplaced:
            shape = unplaced.pod.shape
            key = id(unplaced.reasons), shape.key if len(texts) < _MOST_LOOKED_AT else ""
            text = texts.get(key)
            if text is None:
                meant = functools.partial(self._worlds.might_take, shape) if key[1] else events.every
                text = texts[key] = events.sentence(unplaced.reasons, pools, self._worlds.manages, meant)
                empty |= events.pools_without_types(unplaced.reasons)
            complaints.append((unplaced.pod, text))
        complaints += [
            (pod, events.stopped(stop))
            for pod in snapshot.pending
            if (stop := snapshot.stopped.get(pod.shape.key)) is not None
        ]
        for one in held:
            text = Said(f'Failed to schedule pod, NodePool "{one.planned.pool}": {one.error}')
            complaints += [(pod, text) for pod in one.planned.pods]
        empty |= events.pools_out_of_money(result.unplaced)
        for pod, text in self._told.due(complaints, self._clock.monotonic()):
            self._recorder.publish(pod_reference(pod), "Warning", "FailedScheduling", text, ttl=0)
        for view in snapshot.pools:
            if (about := empty.get(view.pool.name)) is not None:
                self._recorder.publish(reference_of(view.pool), *about, ttl=60.0)

    def _announce(self, planned: PlannedClaim, annotations: Mapping[str, str]) -> str:
        """The name of the NodeClaim that is being created; "" for none."""
        try:
            marks = {**annotations, **self._marks(planned.pods)}
            hold = self._cluster.hold_seconds
            new = self._creator.announce(planned.pool, lambda name: planned_claim(planned, name, marks, hold))
        except NoFreeNameError as error:
            _log.error(
                "Failed to find an unused name for a NodeClaim; planning its pods again",
                nodepool=planned.pool,
                error=str(error),
            )
            self._retry(f"names/{planned.pool}")
            return ""
        if new is None:
            _log.info("Skipped a NodeClaim because its pods were scheduled while it was planned", nodepool=planned.pool)
            return ""
        self._workers.submit(lambda: self._create(planned, new))
        return new.name

    def _create(self, planned: PlannedClaim, new: NewClaim) -> None:
        try:
            claim = self._creator.create(new)
        except REFUSALS as error:  # asked again with the pods that still wait, every ten seconds
            self._say_refused(planned, error)
        except ApiError:
            self._retry(f"failed/{new.name}")
        else:
            if claim is not None:
                self._nominate(f"nodeclaim/{new.name}", planned.pods)

    def _say_refused(self, planned: PlannedClaim, error: ApiError) -> None:
        dedupe = (planned.pool,)  # the message names the claim
        if isinstance(planned.template, NodePool):
            message = claim_refused(error.message)
            self._recorder.publish(reference_of(planned.template), *message, dedupe, ttl=60.0)
        message = EventMessage(
            "Warning",
            "FailedScheduling",
            f'Failed to schedule pod, NodePool "{planned.pool}": could not create a NodeClaim: {error.message}',
        )
        for pod in planned.pods:
            self._recorder.publish(pod_reference(pod), *message, (pod.uid,), ttl=300.0)

    def _keep_room(self, node: NodeView, pods: tuple[Pod, ...]) -> None:
        """Room for pods on an existing or in-flight node, written into the plan of its claim."""
        claim = node.claim
        if self._cluster.assign(node.key, pods):
            _log.info("A node was removed while pods were planned for it; planning them again", node=str(node.key))
            self._retry(f"refused/{node.key}")
            return
        self._plans.changed(node.key)
        target = f"nodeclaim/{claim.metadata.name}" if claim is not None else ""
        self._nominate(", ".join(part for part in (target, f"node/{node.name}" if node.name else "") if part), pods)

    def _nominate(self, target: str, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self._recorder.publish(pod_reference(pod), "Normal", "Nominated", f"Pod should schedule on: {target}")
