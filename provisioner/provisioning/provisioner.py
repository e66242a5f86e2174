"""Pods that wait become NodeClaims: gather a question, decide, launch what limits allow. Source: core spec 3, 4; design 3.5, 3b.3-3b.6."""

import functools
import random
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.core import TopologySpreadConstraint
from provisioner.apis.gangs import group_of
from provisioner.apis.launch_sets import LaunchSet, encode_sets, sets_of
from provisioner.apis.launches import is_launched
from provisioner.apis.pods import Pod
from provisioner.buffers.controller import CapacityBuffers
from provisioner.buffers.virtual_pods import kept
from provisioner.cloudprovider.types import CloudProvider
from provisioner.kube.errors import ApiError
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.creator import REFUSALS, ClaimCreator, NoFreeNameError
from provisioner.nodeclaims.growth_ledger import KARPENTER_SECONDS
from provisioner.nodeclaims.growth_limits import HeldBackError
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.options import Options
from provisioner.packing.planner import PackingOutcome, as_scheduled
from provisioner.provisioning.outcomes import Batch, BatchOutcome, ClaimHeldBack, of_real_pods
from provisioner.provisioning.planning import BatchPlan, BatchPlanning, Solve
from provisioner.provisioning.questions import BatchQuestion, assigned_pods, pods_of, spoilt_pods
from provisioner.provisioning.replanning import Replanning
from provisioner.provisioning.telling import BatchTelling
from provisioner.provisioning.worlds import Worlds
from provisioner.provisioning.zones import pending_by_zone
from provisioner.requests.bookings import KeptPlaces, checked, rooms_found
from provisioner.requests.controller import ProvisioningRequests
from provisioner.runtime import metrics
from provisioner.scheduling.gangs import failed_groups
from provisioner.scheduling.launch_sets import LaunchTurns, launch_sets, together
from provisioner.scheduling.node_claims import NewClaim, planned_claim
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import DevicePolicy, MinValuesPolicy, Packing, PreferencePolicy
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.scheduling.world import DEFAULTS, Policies, successors
from provisioner.state.cluster import Cluster
from provisioner.state.effects import Effect
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import WorkerPool
from provisioner.values.message import Said

_log = logs.get_logger(__name__)
REACHED_SOLVE_DEADLINE: Final = "Reached the solve deadline (--timeouts=solve) before every pod was planned; planning the remaining pods in the next batch"
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


class _ToLaunch(NamedTuple):
    """An answer that is to be carried out.

    Attributes:
        snapshot: the instant that it is about.
        result: without virtual pods.
        annotations: what its NodeClaims say of the plan.
        sets: of each of its claims.
        first: UIDs of the pods whose nodes are created before others.
        for_virtual: numbers of its claims that keep room for virtual pods.
    """

    snapshot: Snapshot
    result: Result
    annotations: Mapping[str, str]
    sets: tuple[tuple[LaunchSet, ...], ...]
    first: Collection[str]
    for_virtual: frozenset[int] = frozenset()


class ProvisioningController:
    """Runs one batch after another; creating the claims of one never holds up the next.

    The state learns of a claim before it is written, so the next batch plans around it at once; a create that
    fails takes that back and the pods are planned again.

    Args:
        taken_back: carries out what follows where NodeClaims that are not being launched yet are planned again with a batch; None: they never are.
        solve: see `BatchPlanning`.
        reported: is told of each run, with what it saved over the greedy answer in USD per hour, and the seconds that it took.

    Attributes:
        planning: what it decides with.
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
        requests: ProvisioningRequests,
        policies: Policies = DEFAULTS,
        deadline: timedelta = timedelta(seconds=10),
        retry_after: Callable[[float], None] = lambda _seconds: None,
        marks: Callable[[Iterable[Pod]], Mapping[str, str]] = lambda _pods: {},
        decided: Callable[[Iterable[str], Iterable[str]], None] = lambda _placed, _left: None,
        improve: Callable[[Prepared, Result], PackingOutcome] = as_scheduled,
        taken_back: Callable[[Iterable[Effect]], None] | None = None,
        solve: Solve | None = None,
        reported: Callable[[BatchPlan, BatchOutcome, float, float], None] = lambda _plan, _outcome, _saved, _seconds: (
            None
        ),
    ) -> None:
        self._decided, self._retry_after, self._marks, self._reported = decided, retry_after, marks, reported
        self._buffers, self._requests = buffers, requests
        self._deadline = deadline.total_seconds()
        worlds = Worlds(provider, policies)
        replanning = (
            Replanning(cluster, worlds, improve, taken_back, 3 * self._deadline) if taken_back is not None else None
        )
        self.planning = BatchPlanning(
            cluster,
            worlds,
            clock,
            improve=improve,
            replanning=replanning,
            deadline=self._deadline,
            solve=solve,
        )
        self._telling = BatchTelling(cluster, recorder, worlds, clock, retry_after)
        self._closed_to: tuple[Pod, ...] = ()  # of the last batch, if another Karpenter or a pause held it back
        self._failed_groups: list[str] = []  # of the last batch
        self._spoilt_groups = set[str]()  # of which a NodeClaim could not be created since the last batch
        self._turns = LaunchTurns()  # others would take again and again what limits leave
        self._cluster, self._creator, self._plans = cluster, creator, plans
        self._workers, self._clock, self._retry, self._chance = workers, clock, retry, chance

    @property
    def failed_groups(self) -> Sequence[str]:
        """The groups that had no places in the last run: in the next one they are asked about after others of their priority. In any thread."""
        return tuple(self._failed_groups)

    def run(self) -> Batch | None:
        """Plan every pod that waits; None when there is none."""
        question = self._gather()
        if question is None:
            return None
        started = self._clock.monotonic()
        with metrics.scheduling(question.id, len(question.pods), self._clock.monotonic):
            plan = self.planning.plan(question)
        self._failed_groups = failed_groups(plan.greedy)
        self._note_buffers(question.buffers, question.snapshot, plan.planned.result.existing)
        self._telling.unreadable(plan.gathered.unreadable)
        launch = self._to_launch(plan)
        held = self._act(launch)
        at_first = BatchOutcome(launch.result, held, launch.result.is_late)
        outcome = self._settle_rest(plan, at_first)
        batch = self._report(plan, at_first, outcome, self._clock.monotonic() - started)
        waits = {id(one.planned) for one in held}
        made = [mine for one, mine in zip(launch.result.claims, launch.sets, strict=True) if id(one) not in waits]
        self._turns.note(made, [one.sets for one in outcome.held], self._clock.monotonic())
        unpriced = [one for one in outcome.held if one.error.held.unpriced]
        self._spoilt_groups.update([one.group for each in unpriced for one in each.sets])
        self._telling.outcome(question.snapshot, outcome)
        self._closed_to = question.pods if outcome.held and self._creator.growth.is_closed else ()
        unserved = outcome.unserved
        self._decided([pod.uid for pod in question.pods if pod.uid not in unserved], unserved)
        metrics.pending_by_zone(pending_by_zone(plan.gathered.world, question.pods))  # last: claims wait for nothing
        return batch

    # ------------------------------------------------------------------ gather

    def _gather(self) -> BatchQuestion | None:
        """What is to be planned; None where nothing is, or nothing could be launched."""
        snapshot = self._cluster.snapshot()
        if snapshot.early:
            self._retry("early")
        metrics.IGNORED_PODS.set(len(snapshot.pending) - len(snapshot.waiting))
        buffers = self._buffers.pods()
        requests = self._requests.asked(lambda: {pod.uid for pod in snapshot.waiting}, lambda: assigned_pods(snapshot))
        pods = pods_of(snapshot, requests.held)
        if not buffers and not requests.asked:
            if not pods:
                self._note_idle(snapshot)
                return None
            if pods == self._closed_to and self._creator.growth.is_closed:
                self._retry_after(KARPENTER_SECONDS)  # they were told; what they would get is not asked again meanwhile
                return None
        spoilt, self._spoilt_groups = self._spoilt_groups, set()
        run = str(uuid.UUID(int=self._chance.getrandbits(128)))
        last = [*self._failed_groups]
        self._chance.shuffle(last)  # each has its turn to be asked about before others
        return BatchQuestion(
            run, snapshot, pods, buffers, requests, successors(snapshot), last, spoilt_pods(spoilt, snapshot, pods)
        )

    def _note_idle(self, snapshot: Snapshot) -> None:
        self._note_buffers((), snapshot, {})
        metrics.UNSCHEDULABLE_PODS.labels("provisioner").set(0)
        metrics.pending_by_zone({})
        self._telling.outcome(snapshot, BatchOutcome(Result((), {}, ())))

    def _note_buffers(
        self, virtual: tuple[Pod, ...], snapshot: Snapshot, existing: Mapping[str, tuple[Pod, ...]]
    ) -> None:
        self._buffers.placed(kept(virtual, existing, (str(one.key) for one in snapshot.nodes if one.initialized)))

    # ------------------------------------------------------------------ decide

    def _to_launch(self, plan: BatchPlan) -> _ToLaunch:
        """The answer about all pods that are planned together, after the requests among them have theirs."""
        question, found = plan.question, plan.planned.result
        result, for_virtual = of_real_pods(found) if plan.virtual else (found, frozenset[int]())
        if plan.kept is not None:
            self._answer_requests(question.snapshot, plan.kept, found)
            result = result.joined(Result((), plan.kept.real, ()))
        sets = self._sets(plan.prepared, found)  # requests have some, too
        return _ToLaunch(question.snapshot, result, plan.planned.annotations, sets, question.first, for_virtual)

    def _answer_requests(self, snapshot: Snapshot, places: KeptPlaces, result: Result) -> None:
        """Look for room for the requests that make no nodes, and tell what was found for all."""
        checks = checked(places, result, self.planning.expired())
        nodes = {str(one.key): one for one in snapshot.nodes}

        def has_instance(name: str) -> bool:
            claim = nodes[name].claim
            return claim is None or is_launched(claim)

        found = rooms_found(places, result, checks, has_instance, lambda name: nodes[name].initialized, str)
        self._requests.answered(found)

    def _sets(self, prepared: Prepared, result: Result) -> tuple[tuple[LaunchSet, ...], ...]:
        """The launch sets of each new node of an answer."""
        groups = prepared.groups((*result.placed, *(one.pod for one in result.unplaced)), at_least=1)
        decision = f"{self._chance.getrandbits(64):x}" if groups.needed else ""
        return launch_sets(result.claims, groups, decision)

    def _settle_rest(self, plan: BatchPlan, outcome: BatchOutcome) -> BatchOutcome:
        """Plan and launch for what the first answer left open: pods that are postponed, then spoilt ones, then what costs too much.

        What money holds back is planned with what is left of it: the pods that wait, then those that still run on nodes that go. What waits may
        hold up a drain, so it depends on no room that others would like to have beside it.
        """
        expired = self.planning.expired()  # for all of them together
        outcome = outcome.then(self._again(plan, plan.postponed, expired, runs=True))
        outcome = outcome.then(self._again(plan, plan.question.spoilt, expired, runs=False))
        dear = outcome.dear_pods
        for runs in (False, True):
            outcome = outcome.then(self._again(plan, dear, expired, runs=runs, within_limits=True))
        return outcome

    def _again(
        self,
        plan: BatchPlan,
        uids: Collection[str],
        expired: Callable[[], bool],
        *,
        runs: bool,
        within_limits: bool = False,
    ) -> BatchOutcome | None:
        """Ask about some pods once more, and launch what that gives; within what money limits leave, if so said. None where nothing is asked."""
        usd = self._creator.growth.usd_left() if uids and within_limits else None
        answer = self.planning.again(plan, uids, expired, runs=runs, usd=usd) if uids else None
        if answer is None:
            return None
        result, annotations = answer.planned.result, answer.planned.annotations
        sets = self._sets(answer.prepared, result)
        held = self._act(_ToLaunch(answer.snapshot, result, annotations, sets, plan.question.first))
        return BatchOutcome(result, held, result.is_late)

    # ------------------------------------------------------------------ act

    def _act(self, launch: _ToLaunch) -> tuple[ClaimHeldBack, ...]:
        """Carry an answer out as far as limits allow, in the order of its nodes; what they hold back is planned again.

        Groups that get new nodes, too, keep room on nodes that are there when these are not held back.
        """
        result, sets = launch.result, launch.sets
        groups = {one.group for mine in sets for one in mine}
        self._keep_all(launch, lambda pod: not groups or group_of(pod) not in groups)  # others may take it
        held: list[ClaimHeldBack] = []
        closed: HeldBackError | None = None
        order = [number for number, _ in result.in_order(launch.first)]
        urgent = {number for number in order if any(pod.uid in launch.first for pod in result.claims[number].pods)}
        turns = self._turns
        for numbers in together(sets, order, turns.first, urgent=urgent, overdue=turns.overdue):
            company = [(result.claims[number], sets[number]) for number in numbers]
            try:
                if closed is not None:
                    raise closed
                made = self._announce(company, launch.annotations)
                self._telling.gangs(company if made else ())
                for number, new in zip(numbers, made, strict=False):
                    if number in launch.for_virtual:
                        self._buffers.bought(str(NodeKey(new.name)))
                        self._requests.bought(str(NodeKey(new.name)))
            except HeldBackError as error:
                held += [ClaimHeldBack(planned, error, mine) for planned, mine in company]
                if error.held.is_for_all:
                    closed = error  # none of any size may follow
        if whole := groups.difference([one.group for each in held for one in each.sets]):
            self._keep_all(launch, lambda pod: group_of(pod) in whole)
        return tuple(held)

    def _announce(
        self, company: Sequence[tuple[PlannedClaim, tuple[LaunchSet, ...]]], annotations: Mapping[str, str]
    ) -> Sequence[NewClaim]:
        """The NodeClaims that are being created for these, in their order: all or none."""

        def maker(planned: PlannedClaim, sets: tuple[LaunchSet, ...]) -> Callable[[str], NewClaim]:
            own = {names.LAUNCH_SET: encode_sets(sets)} if sets else {}
            marks = {**annotations, **self._marks(planned.pods), **own}
            return lambda name: planned_claim(planned, name, marks, self._cluster.hold_seconds)

        try:
            new = self._creator.announce_all([(planned.pool, maker(planned, sets)) for planned, sets in company])
        except NoFreeNameError as error:
            _log.error(
                "Failed to find an unused name for a NodeClaim; planning its pods again",
                nodepool=error.pool,
                error=str(error),
            )
            self._retry(f"names/{error.pool}")
            return ()
        if not new:
            pool = company[0][0].pool
            _log.info("Skipped a NodeClaim because its pods were scheduled while it was planned", nodepool=pool)
            if len(company) > 1:
                self._retry(f"stale/{pool}")  # pods that wait need the others
        for (planned, _), one in zip(company, new, strict=False):
            self._workers.submit(functools.partial(self._create, planned, one))
        return new

    def _create(self, planned: PlannedClaim, new: NewClaim) -> None:
        try:
            claim = self._creator.create(new)
        except REFUSALS as error:  # asked again with the pods that still wait, every ten seconds
            groups = [one.group for one in sets_of(new.claim.metadata.annotations)]
            self._spoilt_groups.update(groups)
            self._requests.refused(groups, error.message)
            self._telling.refused(planned, error)
        except ApiError:
            self._retry(f"failed/{new.name}")
        else:
            if claim is not None:
                self._telling.nominated(f"nodeclaim/{new.name}", planned.pods)

    def _keep_all(self, launch: _ToLaunch, mine: Callable[[Pod], bool]) -> None:
        """Room on nodes that are there, for those pods of an answer that are meant."""
        existing = launch.result.existing
        nodes = {str(node.key): node for node in launch.snapshot.nodes} if existing else {}
        for name, pods in existing.items():
            if meant := tuple(filter(mine, pods)):
                self._keep_room(nodes[name], meant)

    def _keep_room(self, node: NodeView, pods: tuple[Pod, ...]) -> None:
        """Room for pods on an existing or in-flight node, written into the plan of its claim."""
        claim = node.claim
        if self._cluster.assign(node.key, pods):
            _log.info("A node was removed while pods were planned for it; planning them again", node=str(node.key))
            self._retry(f"refused/{node.key}")
            return
        self._plans.changed(node.key)
        target = f"nodeclaim/{claim.metadata.name}" if claim is not None else ""
        places = (target, f"node/{node.name}" if node.name else "")
        self._telling.nominated(", ".join(part for part in places if part), pods)

    # ------------------------------------------------------------------ report

    def _report(self, plan: BatchPlan, at_first: BatchOutcome, outcome: BatchOutcome, seconds: float) -> Batch:
        """What operators see of a run: its log line and its metrics. Pods without time are planned again."""
        question, result = plan.question, outcome.result
        if outcome.is_late:
            _log.warning(REACHED_SOLVE_DEADLINE, scheduling_id=question.id, solve_deadline_seconds=self._deadline)
            self._retry("deadline")
        metrics.UNSCHEDULABLE_PODS.labels("provisioner").set(len(result.unplaced))
        if result.claims:
            at_least = plan.planned.usd_at_least if result is at_first.result else None
            metrics.plan(plan.planned.outcome, result.usd_per_hour, at_least, result.gap(at_least))
        batch = outcome.batch(len(question.pods))
        saved = plan.greedy.usd_per_hour - at_first.result.usd_per_hour
        tell = (
            _log.info if question.pods or result.claims else _log.debug
        )  # buffers alone are looked at every ten seconds
        tell(
            PLANNED_PENDING_PODS,
            scheduling_id=question.id,
            pods=batch.pods,
            claims=batch.claims,
            existing=batch.existing,
            unplaced=batch.unplaced,
            usd_per_hour=round(batch.usd_per_hour, 4),
            usd_per_hour_greedy=round(batch.usd_per_hour + saved, 4),
            planner=plan.planned.outcome,
            milliseconds=round(seconds * 1000, 1),
        )
        if question.pods or result.claims:
            self._reported(plan, outcome, saved, seconds)
        return batch
