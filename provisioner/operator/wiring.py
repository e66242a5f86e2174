"""How the controllers of a term are put together: one function a part, in the order in which they are made.

Each function takes what parts before it made and answers with what parts after it need. Where two parts need each other, the earlier one
is given a `LateCall` of `Calls`, which is connected when the later one exists. Nothing here acts: `program.Controllers` starts and stops.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from provisioner.apis.karpenter import NodeClaim
from provisioner.buffers.controller import CapacityBuffers
from provisioner.cloudprovider.types import manages
from provisioner.clouds import Base, Calls, Ends, Writers
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.commands.queue import CommandQueue
from provisioner.disruption.controller import DisruptionController, settings_of
from provisioner.disruption.drift_controller import DriftController
from provisioner.disruption.forceful.controller import ForcefulDisruption, repair_policies_of
from provisioner.disruption.loop_detector import LoopDetector
from provisioner.disruption.rebuilding_planner import PATIENT, Rebuilding
from provisioner.lifecycle.consistency import Consistency
from provisioner.lifecycle.controller import Lifecycle, timeouts_of
from provisioner.lifecycle.garbage_collection import ClaimCollector
from provisioner.lifecycle.hydration import Hydration
from provisioner.lifecycle.nominations import Nominations
from provisioner.lifecycle.registration import Registrar
from provisioner.lifecycle.steering import Steering
from provisioner.nodeclaims.creator import ClaimCreator
from provisioner.nodeclaims.growth_ledger import GrowthLedger, limits_of
from provisioner.nodeclaims.plan_writer import NodePlanRemover, PlanWriter
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.nodepools.controller import PoolController, PoolHealth
from provisioner.nodepools.overlay_controller import OverlayStatus
from provisioner.observability.collector import MetricsObserver
from provisioner.observability.transitions import Transitions
from provisioner.packing.planner import Planner
from provisioner.packing.process import PlannerProcess
from provisioner.provisioning.batcher import Intake
from provisioner.provisioning.provisioner import ProvisioningController
from provisioner.provisioning.scheduler_liveness import SchedulerLiveness
from provisioner.provisioning.worlds import Worlds
from provisioner.runtime.caches import store_of
from provisioner.runtime.live_reads import LiveReads
from provisioner.runtime.poller import ApiPoller
from provisioner.scheduling.problem import Packing
from provisioner.shares.controller import ShareRepair
from provisioner.static.controller import StaticCapacity
from provisioner.support.workers import KeyedQueue, WorkerPool
from provisioner.termination.controller import Termination
from provisioner.termination.disrupted_taint import DisruptedTaints
from provisioner.termination.eviction_queue import Evictions
from provisioner.termination.surge import Surges
from provisioner.termination.terminator import Terminator
from provisioner.why.leader import LeaderMemory

#: Threads that write at once, for creations and for everything else; on two cores more only wait for each other.
WRITERS = 12
#: A plan that waits behind a hundred creations is too late: its room is taken before the extender hears of it.
PLAN_WRITERS = 4


def writers(base: Base, calls: Calls) -> Writers:
    """The writing of NodeClaims, and of the plans on them."""
    notes = WorkerPool(PLAN_WRITERS, "plans")
    claims = ClaimWriter(base.client, base.cluster, calls.carry_out)
    return Writers(
        WorkerPool(WRITERS, "creates"),
        notes,
        claims,
        PlanWriter(base.cluster, claims, notes),
        NodePlanRemover(base.client, base.clock),
    )


def ends(base: Base, writing: Writers, uncertain: Callable[[NodeClaim], bool]) -> Ends:
    """The end of Nodes and instances; the terminator alone ends instances, for everybody.

    The garbage collector leaves the NodeClaims alone of which `uncertain` says that nobody knows now whether their instance is there.
    """
    options, clock, cluster, client = base.options, base.clock, base.cluster, base.client
    evictions = Evictions(
        cluster,
        client,
        base.recorder,
        clock,
        workers=options.workers(10, 100),
        pause=base.caches.pause,
        holds=Surges(cluster, client, writing.claims, writing.plans, base.recorder, clock).holds,
    )
    taints = DisruptedTaints(client, clock, told=writing.claims.node_written)
    terminator = Terminator(
        base.provider,
        client,
        cluster.claims,
        evictions,
        taints,
        base.recorder,
        clock,
        volume_of=cluster.volume_of,
    )
    live = LiveReads(cluster, client, base.recorder, clock)
    termination = Termination(
        cluster,
        client,
        base.provider_for("node.termination"),
        writing.claims,
        evictions,
        taints,
        terminator,
        base.recorder,
        clock,
        pods_are_stale=base.caches.pods_are_stale,
        postponed=live.postponed,
    )
    nodes = KeyedQueue("node-termination", termination.reconcile, clock, workers=options.workers(10, 100))
    garbage = ClaimCollector(
        cluster,
        base.provider_for("nodeclaim.garbagecollection"),
        writing.claims,
        uncertain=uncertain,
        postponed=live.postponed,
    )
    return Ends(evictions, taints, terminator, live, nodes, ApiPoller("nodeclaim-garbage", garbage.poll))


@dataclass(frozen=True)
class JoiningParts:
    """What brings a NodeClaim from its launch to a Node that takes pods, and what is known of NodePools by it."""

    threads: WorkerPool
    steering: Steering
    nominations: Nominations
    registrar: Registrar
    claims: KeyedQueue
    pools: KeyedQueue
    consistency: Consistency
    hydration: Hydration


def joining(base: Base, calls: Calls, writing: Writers, ending: Ends) -> JoiningParts:
    """Launch, registration, nomination, and the status of NodePools. Connects `claim_again` and `register`."""
    caches, cluster, client, clock = base.caches, base.cluster, base.client, base.clock
    health = PoolHealth(calls.pool_again)
    lifecycle = Lifecycle(
        cluster,
        client,
        base.provider_for("nodeclaim.lifecycle"),
        ending.terminator,
        writing.claims,
        base.recorder,
        clock,
        register=calls.register,
        health=health.note,
        nodes_are_stale=caches.nodes_are_stale,
        elsewhere=calls.fits_elsewhere,
        beside=caches.beside,
        timeouts=timeouts_of(base.options),
        postponed=ending.live.postponed,
    )
    queue = KeyedQueue("nodeclaim", lifecycle.reconcile, clock, workers=base.options.workers(10, 100))
    calls.claim_again.connect(queue.add)
    threads = WorkerPool(WRITERS, "registration")
    steering = Steering(base.options.nominate, clock)
    nominations = Nominations(
        cluster,
        client,
        threads,
        clock,
        pods=caches.pods.store.list,
        steering=steering,
        defaults=base.policies.spread,
    )
    registrar = Registrar(
        cluster,
        client,
        writing.claims,
        base.recorder,
        threads,
        clock,
        nominations=nominations,
        again=queue.add,
        health=health.note,
    )
    calls.register.connect(registrar.offer)

    pools = PoolController(
        cluster,
        client,
        base.provider_for("nodepool"),
        writing.claims,
        clock,
        pool=caches.pools.store.get,
        class_generation=caches.class_generation,
        recorder=base.recorder,
        health=health,
        ready=lambda: calls.plan_again("pools"),
    )
    return JoiningParts(
        threads,
        steering,
        nominations,
        registrar,
        queue,
        KeyedQueue("nodepool", pools.reconcile, clock),
        Consistency(cluster, writing.claims, base.recorder, clock, chance=random.Random()),
        Hydration(cluster, base.provider, writing.claims, base.recorder, clock),
    )


@dataclass(frozen=True)
class Observability:
    """What only tells: metrics of single objects (None where they are switched off), events of conditions, silent schedulers."""

    observer: MetricsObserver | None
    transitions: Transitions
    scheduler_liveness: SchedulerLiveness
    overlays: OverlayStatus

    def decided(self, placed: Iterable[str], left: Iterable[str]) -> None:
        """Provisioning has decided about these pods, by UID."""
        if self.observer is not None:
            self.observer.times.decided(placed, left)


def observability(base: Base) -> Observability:
    """What looks at the cluster and changes nothing but status and events."""
    caches, cluster, clock = base.caches, base.cluster, base.clock
    observer = None
    if not base.options.disable_cluster_state_observability:
        observer = MetricsObserver(
            cluster.snapshot,
            caches.nodes.store.list,
            caches.pods.store.list,
            cluster.claims,
            caches.pools.store.list,
            caches.types_of,
            base.provider.well_known_labels,
            clock,
            buffers=caches.buffer_objects.store.list if caches.buffer_objects is not None else lambda: (),
        )
    return Observability(
        observer,
        Transitions(base.recorder, clock),
        SchedulerLiveness(cluster.waiting, base.recorder, clock, base.client, cluster.is_unanswered),
        OverlayStatus(base.client, caches.overlays, clock, store_of(caches.overlay_objects)),
    )


def share_repair(base: Base, ending: Ends) -> ApiPoller:
    """What evicts pods so that owners keep their share on demand, where they ask for it."""
    caches, cluster = base.caches, base.cluster
    repair = ShareRepair(
        caches.pods.store.list,
        cluster.node,
        cluster.pod_budgets,
        base.client,
        base.recorder,
        base.clock,
        stale=caches.disruption_is_stale,
        pause=caches.pause,
        postponed=ending.live.postponed,
    )
    return ApiPoller("on-demand-repair", repair.poll)


@dataclass(frozen=True)
class Provisioning:
    """What makes NodeClaims: for pods that wait, and for static NodePools, which tell the ledger of budgets what they give up."""

    creator: ClaimCreator
    growth: GrowthLedger
    planner: Planner
    intake: Intake
    static: StaticCapacity
    ledger: BudgetLedger
    loops: LoopDetector
    buffers: CapacityBuffers


def provisioning(
    base: Base, calls: Calls, writing: Writers, ending: Ends, observing: Observability, steering: Steering
) -> Provisioning:
    """From waiting pods to NodeClaims. Connects `fits_elsewhere`, `time_left`, `plan_again` and `plan_later`."""
    caches, cluster, options, clock = base.caches, base.cluster, base.options, base.clock

    growth = GrowthLedger(cluster, limits_of(options), caches.types_of, clock, caches.beside)
    creator = ClaimCreator(
        base.client,
        cluster,
        writing.plans,
        effects=calls.carry_out,
        created=lambda claim: calls.claim_again(claim.name),
        chance=random.Random(),
        growth=growth,
    )
    loops = LoopDetector(base.recorder, clock)
    buffers = CapacityBuffers(
        base.client,
        clock,
        store_of(caches.buffer_objects),
        admission=caches.admission,
        facts=caches.stamping_facts,
        plan_again=calls.plan_again,
    )
    planner = Planner(PlannerProcess(clock), clock, steers=steering.steers, wanted=options.packing == Packing.COST)
    provisioner = ProvisioningController(
        cluster,
        creator,
        base.provider_for("provisioner"),
        base.recorder,
        writing.creates,
        clock,
        retry=calls.plan_again,
        chance=random.Random(),
        plans=writing.plans,
        policies=base.policies,
        deadline=options.timeouts.solve,
        retry_after=calls.plan_later,
        marks=loops.marks,
        buffers=buffers,
        decided=observing.decided,
        improve=lambda prepared, result: planner.planned(prepared, result, calls.time_left()),
        # what is taken back counts against growth limits until it is gone: its pods might be held back
        taken_back=calls.carry_out if limits_of(options).none else None,
    )
    calls.fits_elsewhere.connect(provisioner.fits_elsewhere)
    intake = Intake(
        provisioner.run,
        cluster,
        clock,
        idle=options.batch_idle_duration,
        longest=options.batch_max_duration,
        gathering=planner.expect,
    )
    calls.time_left.connect(intake.remaining)
    calls.plan_again.connect(intake.trigger)
    calls.plan_later.connect(intake.trigger_after)
    ledger = BudgetLedger(cluster, most=options.max_disrupting_nodes)
    static = StaticCapacity(
        cluster,
        base.client,
        creator,
        writing.claims,
        base.recorder,
        writing.creates,
        clock,
        enabled=options.feature_gates.static_capacity,
        pool=caches.pools.store.get,
        manages=lambda pool: manages(base.provider, pool.node_class_ref),
        stale=caches.static_pools_are_stale,
        chance=random.Random(),
        ledger=ledger,
        pause=caches.pause,
        postponed=ending.live.postponed,
    )
    return Provisioning(creator, growth, planner, intake, static, ledger, loops, buffers)


@dataclass(frozen=True)
class Disruptions:
    """What ends nodes that still work: by command, by force, and the verdicts of drift."""

    commands: CommandQueue
    voluntary: DisruptionController
    forceful: ForcefulDisruption
    drift: DriftController


def disruptions(base: Base, writing: Writers, ending: Ends, making: Provisioning, steering: Steering) -> Disruptions:
    """Which nodes are disrupted, and how."""
    caches, cluster, options, clock = base.caches, base.cluster, base.options, base.clock
    ledger = making.ledger
    commands = CommandQueue(
        cluster,
        base.client,
        writing.claims,
        making.creator,
        writing.plans,
        base.recorder,
        ending.taints,
        ending.terminator,
        clock,
        stale=caches.disruption_is_stale,
        timeout=options.timeouts.command,
        pause=caches.pause,
        loops=making.loops,
        postponed=ending.live.postponed,
    )
    voluntary = DisruptionController(
        cluster,
        writing.claims,
        base.recorder,
        commands,
        ledger,
        clock,
        stale=caches.disruption_is_stale,
        worlds=Worlds(base.provider_for("disruption"), base.policies),
        settings=settings_of(options),
        pause=caches.pause,
        buffers=making.buffers,
        rebuilding=Rebuilding(Planner(PlannerProcess(clock), clock, PATIENT, steers=steering.steers), clock),
    )
    forceful = ForcefulDisruption(
        cluster,
        writing.claims,
        base.recorder,
        ledger,
        clock,
        policies=repair_policies_of(options, base.provider.repair_policies()),
        stale=caches.disruption_is_stale,
        pause=caches.pause,
        postponed=ending.live.postponed,
    )
    drift = DriftController(
        cluster,
        base.provider_for("nodeclaim.disruption"),
        writing.claims,
        clock,
        pool=caches.pools.store.get,
    )
    return Disruptions(commands, voluntary, forceful, drift)


def known(base: Base, ends: Ends, making: Provisioning, ending: Disruptions) -> LeaderMemory:
    """What the leader answers from where it is asked why."""
    return LeaderMemory(
        base.caches,
        ending.voluntary,
        ending.forceful,
        making.ledger,
        making.growth,
        ends.live.waiting,
        Worlds(base.provider_for("why"), base.policies),
        base.clock,
    )
