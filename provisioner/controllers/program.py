"""The provisioner as a whole: caches, state and controllers, wired; started and stopped as one.

Caches run in every replica, so a new leader begins with full ones; controllers run in the leader only.
"""

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from provisioner.apis import names
from provisioner.apis.core import CSINode, DaemonSet, LimitRange, Node, ObjectReference
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.pods import Pod
from provisioner.apis.reports import Report
from provisioner.cloudprovider.metering import metered
from provisioner.cloudprovider.overlays import Overlays, overlaid
from provisioner.cloudprovider.types import InstanceType
from provisioner.controllers.clouds import Cloud, Parts, TypesByPool
from provisioner.controllers.core.budget_ledger import BudgetLedger
from provisioner.controllers.core.claim_creator import ClaimCreator
from provisioner.controllers.core.claim_writer import ClaimWriter
from provisioner.controllers.core.commands import CommandQueue
from provisioner.controllers.core.consistency import Consistency
from provisioner.controllers.core.disrupted_taint import DisruptedTaints
from provisioner.controllers.core.disruption import Disruption, settings_of
from provisioner.controllers.core.drain import Evictions
from provisioner.controllers.core.drift import DriftController
from provisioner.controllers.core.forceful import ForcefulDisruption
from provisioner.controllers.core.hydration import Hydration
from provisioner.controllers.core.intake import Intake
from provisioner.controllers.core.lifecycle import Lifecycle, timeouts_of
from provisioner.controllers.core.nodepool import Health, PoolController
from provisioner.controllers.core.nomination_policy import Steering
from provisioner.controllers.core.nominations import Nominations
from provisioner.controllers.core.overlay_status import OverlayStatus
from provisioner.controllers.core.planner import Planner
from provisioner.controllers.core.planner_process import PlannerProcess
from provisioner.controllers.core.plans import NodePlanRemover, PlanWriter
from provisioner.controllers.core.provisioning import Provisioner, policies_of
from provisioner.controllers.core.registration import Registrar
from provisioner.controllers.core.retry_triggers import concerns_placement, id_of
from provisioner.controllers.core.scheduler_liveness import SchedulerLiveness
from provisioner.controllers.core.static_capacity import StaticCapacity
from provisioner.controllers.core.termination import Termination
from provisioner.controllers.core.terminator import Terminator
from provisioner.controllers.core.transitions import Transitions
from provisioner.controllers.core.worlds import Worlds
from provisioner.controllers.freshness import behind, stale
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.observability.collector import Observer
from provisioner.disruption.pause import Pause, pause_of
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import Connection
from provisioner.kube.events import Recorder
from provisioner.kube.resources import Identity, Resource
from provisioner.kube.watch import EventKind, Reflector, wait_for_sync
from provisioner.options import Options
from provisioner.state.checking import CheckedCluster
from provisioner.state.cluster import Cluster
from provisioner.state.effects import (
    ABSORBED,
    PLANNED,
    ClaimUnneeded,
    Effect,
    NominationLost,
    PodMissed,
    PodSettled,
)
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.support import heartbeat, logs
from provisioner.support.clock import Clock
from provisioner.support.ending import stop_all
from provisioner.support.garbage import bulk_load
from provisioner.support.workers import KeyedQueue, Pool

T = TypeVar("T")

#: Threads that write at once, for creations and for everything else; on two cores more only wait for each other.
WRITERS = 12
#: A plan that waits behind a hundred creations is too late: its room is taken before the extender hears of it.
PLAN_WRITERS = 4
STALE_AFTER_SECONDS = 120.0
SYNC_LOOK_SECONDS = 0.5  # between two looks at the signal to stop while caches fill
SYNC_TELL_SECONDS = 5.0
#: What a stop waits for at most; together with the last writes well below the 30 s that Kubernetes gives (`main.STOP_SECONDS`).
STOP_SECONDS = 5.0
WRITERS_STOP_SECONDS = 2.0
WATCHES_STOP_SECONDS = 2.0
BAD_OBJECTS_NAMED = 5
UNREADABLE = "UnreadableObject"
HOUSEKEEPING_PATIENCE_SECONDS = 300.0
EXPIRE_SECONDS = 1.0
POOL_DELAY_SECONDS = 1.0
MOST_DRIFTS = 20
_log = logs.get_logger(__name__)


class _Feed(Generic[T]):
    """Hands every event of one watch to a function, and what cannot be read to another."""

    def __init__(
        self, on_event: Callable[[T | None, T | None], None], on_bad: Callable[[Identity, Exception], None]
    ) -> None:
        self._on_event, self._on_bad = on_event, on_bad

    def bad(self, identity: Identity, error: Exception) -> None:
        """One object that is left out."""
        self._on_bad(identity, error)

    def on_event(self, kind: EventKind, old: T | None, new: T | None) -> None:  # noqa: ARG002
        """One change; `kind` follows from which of the two is there."""
        self._on_event(old, new)

    def on_sync(self) -> None:
        """A list is complete; nothing depends on when."""


class Caches:
    """The watches of the provisioner and the state that they feed; the same in every replica.

    Attributes:
        drifts: the last differences that `--check-state` found.
        overlays: the NodeOverlays in force; none while the feature gate NodeOverlay is off.
    """

    def __init__(self, connection: Connection, options: Options, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._chance = random.Random()
        self._listeners: list[Callable[[str, object, object], None]] = []
        self._types: Callable[[str], Mapping[str, InstanceType]] = lambda _: {}
        self.drifts: list[str] = []
        self.cluster = self._state(options)
        self.effects: Callable[[Iterable[Effect]], None] = lambda _: None
        self.unreadable: Callable[[Resource[Any], Identity, str], None] = lambda _resource, _identity, _problem: None
        self.nodes = self._reflect(resources.NODES, "node", self._node)
        self.pools = self._reflect(resources.NODEPOOLS, "pool", self._pool)
        self.overlays = Overlays(self.pools.store.list, clock)
        self.claims = self._reflect(resources.NODECLAIMS, "claim", self._claim)
        self.daemons = self._reflect(resources.DAEMONSETS, "daemonset", self._daemonset)
        self.pods = self._reflect(resources.PODS, "pod", self._pod)
        # only the provider's own kind: the CRDs of the other may be missing
        self.classes: Reflector[Any] = (
            self._reflect(resources.EC2NODECLASSES, "class", lambda _old, _new: None)
            if options.provider == "aws"
            else self._reflect(resources.KWOKNODECLASSES, "class", lambda _old, _new: None)
        )
        keeper = SurroundingsKeeper
        budgets = self._reflect(resources.PDBS, "budget", self.cluster.budget_changed)
        around: list[Reflector[Any]] = [
            self._reflect(resources.LIMITRANGES, "limitrange", self._limit_range),
            self._reflect(resources.CSINODES, "csinode", self._csi_node),
            budgets,
            self._reflect(resources.NAMESPACE_LABELS, "namespace", self._around(keeper.namespace_changed)),
            self._reflect(resources.STORAGECLASSES, "storageclass", self._around(keeper.class_changed)),
            self._reflect(resources.PVS, "volume", self._around(keeper.volume_changed)),
            self._reflect(resources.PVCS, "volumeclaim", self._around(keeper.claim_changed)),
        ]
        if options.scheduler_config:  # only default spread constraints ask whose pods a selector means
            around += [
                self._reflect(resources.SERVICE_SELECTORS, "service", self._around(keeper.service_changed)),
                self._reflect(resources.REPLICASET_SELECTORS, "replicaset", self._around(keeper.controller_changed)),
                self._reflect(resources.STATEFULSET_SELECTORS, "statefulset", self._around(keeper.controller_changed)),
                self._reflect(
                    resources.REPLICATIONCONTROLLER_SELECTORS,
                    "replicationcontroller",
                    self._around(keeper.replication_controller_changed),
                ),
            ]
        self._settings_key = f"{options.system_namespace}/{names.SETTINGS_CONFIGMAP}"
        self.settings = self._reflect(
            resources.CONFIGMAPS,
            "settings",
            lambda _old, _new: None,
            namespace=options.system_namespace,
            field_selector=f"metadata.name={names.SETTINGS_CONFIGMAP}",
        )
        self.overlay_objects: Reflector[NodeOverlay] | None = None
        if options.feature_gates.node_overlay:  # the CRD may be missing where it is off
            self.overlay_objects = self._reflect(resources.NODEOVERLAYS, "overlay", self.overlays.changed)
            around.append(self.overlay_objects)
        #: What the program waits for, and is not ready without. Without the settings it only disrupts nothing.
        self.awaited: tuple[Reflector[Any], ...] = (
            self.nodes,
            self.pools,
            self.claims,
            self.daemons,
            self.pods,
            self.classes,
            *around,
        )
        self.all: tuple[Reflector[Any], ...] = (*self.awaited, self.settings)
        #: What voluntary disruption is decided from.
        self.behind_disruption = (
            self.nodes,
            self.pools,
            self.claims,
            self.daemons,
            self.pods,
            budgets,
            self.settings,
        )
        self.options = options

    def _state(self, options: Options) -> Cluster:
        def types_of(pool: str) -> Mapping[str, InstanceType]:
            return self._types(pool)

        ttls = {"hold_ttl": options.hold_ttl, "plan_ttl": options.plan_ttl}
        if options.check_state:
            return CheckedCluster(types_of, self._clock, drifted=self._drifted, **ttls)
        return Cluster(types_of, self._clock, **ttls)

    def _drifted(self, difference: str) -> None:
        self.drifts.append(difference)
        del self.drifts[:-MOST_DRIFTS]
        _log.error("The cluster state differs from the watched objects; please report this bug", difference=difference)

    def pause(self) -> Pause:
        """Which NodePools nobody disrupts for now. Cost: O(pools)."""
        settings = self.settings.store.get(self._settings_key)
        nothing: dict[str, str] | None = {} if self.settings.synced.is_set() else None
        return pause_of(self.pools.store.list(), settings.data if settings is not None else nothing)

    def class_generation(self, name: str) -> int | None:
        """The generation of the provider's NodeClass of that name; None where there is none."""
        found = self.classes.store.get(name)
        return found.metadata.generation if found is not None else None

    def listen(self, listener: Callable[[str, object, object], None]) -> None:
        """Be told (what, old, new) of every event, after the state has taken it in."""
        self._listeners.append(listener)

    def types_of(self, pool: str) -> Mapping[str, InstanceType]:
        """Instance types of one NodePool by name; empty where it or they are unknown."""
        return self._types(pool)

    def use_types(self, types: Callable[[NodePool], tuple[InstanceType, ...]]) -> None:
        """Where the state finds the instance types of a pool, which NodeOverlays change; never waits."""
        self._types = TypesByPool(self.pools.store.get, self.overlays.over(types))

    def start(self, stopping: threading.Event) -> bool:
        """Fill the caches; False when stopped before that was done."""
        with bulk_load():
            for reflector in self.all:
                reflector.start()
            told_at = self._clock.monotonic()
            while waiting := wait_for_sync(self.awaited, SYNC_LOOK_SECONDS):
                if stopping.is_set():
                    return False
                if self._clock.monotonic() - told_at >= SYNC_TELL_SECONDS:
                    told_at = self._clock.monotonic()
                    _log.info("Waiting for caches to sync", missing=", ".join(str(one.resource) for one in waiting))
        self.effects(self.cluster.settle())
        return True

    def stop(self) -> None:
        """End every watch, all at once."""
        stop_all((reflector.stop for reflector in self.all), WATCHES_STOP_SECONDS)

    def problem(self) -> str:
        """What is wrong with the caches, "" when nothing is."""
        return behind(self.awaited, silent=STALE_AFTER_SECONDS, failing=STALE_AFTER_SECONDS)

    def bad_objects(self) -> str:
        """The objects that cannot be read as they are, for people; "" when there is none. The others are served all the same."""
        bad = [(one.resource.kind, key, bad.problem) for one in self.all for key, bad in tuple(one.bad.items())]
        named = "; ".join(f"{kind} {key or '(unknown)'}: {problem}" for kind, key, problem in bad[:BAD_OBJECTS_NAMED])
        more = f"; and {len(bad) - BAD_OBJECTS_NAMED} more" if len(bad) > BAD_OBJECTS_NAMED else ""
        return f"{len(bad)} objects cannot be read completely: {named}{more}" if bad else ""

    def _reflect(
        self,
        resource: Resource[T],
        what: str,
        take: Callable[[T | None, T | None], None],
        *,
        namespace: str = "",
        field_selector: str = "",
    ) -> Reflector[T]:
        def on_event(old: T | None, new: T | None) -> None:
            take(old, new)
            for listener in self._listeners:
                listener(what, old, new)

        feed = _Feed(on_event, lambda identity, error: self.unreadable(resource, identity, str(error)))
        return Reflector(
            self._connection,
            resource,
            handlers=[feed],
            clock=self._clock,
            rng=self._chance,
            namespace=namespace,
            field_selector=field_selector,
        )

    def _around(
        self, take: Callable[[SurroundingsKeeper, T | None, T | None], None]
    ) -> Callable[[T | None, T | None], None]:
        """A handler that enters events of one kind into the state's surroundings."""
        return lambda old, new: self.cluster.surrounding_changed(lambda keeper: take(keeper, old, new))

    def _limit_range(self, old: LimitRange | None, new: LimitRange | None) -> None:
        self.cluster.limit_range_changed(old, new)

    def _csi_node(self, old: CSINode | None, new: CSINode | None) -> None:
        self.cluster.csi_node_changed(old, new)

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        self.effects(self.cluster.pod_changed(old, new))

    def _node(self, old: Node | None, new: Node | None) -> None:
        self.effects(self.cluster.node_changed(old, new))

    def _claim(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        self.effects(self.cluster.claim_changed(old, new))

    def _pool(self, old: NodePool | None, new: NodePool | None) -> None:
        self.overlays.pool_changed(old, new)
        self.effects(self.cluster.pool_changed(old, new))

    def _daemonset(self, old: DaemonSet | None, new: DaemonSet | None) -> None:
        self.effects(self.cluster.daemonset_changed(old, new))


class Controllers:
    """What the leader runs; made anew for every term."""

    def __init__(
        self,
        caches: Caches,
        client: Client,
        cloud: Cloud,
        recorder: Recorder,
        metrics: Metrics,
        options: Options,
        clock: Clock,
    ) -> None:
        provider = overlaid(cloud.provider, caches.overlays)
        self._caches, self._cluster, self._provider, self._metrics = caches, caches.cluster, provider, metrics
        self._stop = threading.Event()
        cluster = caches.cluster
        self._workers = Pool(WRITERS, "registration")
        self._creates = Pool(WRITERS, "creates")
        self._recorder = recorder
        policies = policies_of(options)
        self._steering = Steering(options.nominate, clock)
        self._notes = Pool(PLAN_WRITERS, "plans")
        self._writer = ClaimWriter(client, cluster, self._carry_out)
        self._plans = PlanWriter(cluster, self._writer, self._notes)
        self._node_plans = NodePlanRemover(client, clock)
        self._health = Health(self._pool_changed)
        self._evictions = Evictions(
            cluster, client, recorder, metrics, clock, workers=options.workers(10, 100), pause=caches.pause
        )
        taints = DisruptedTaints(client, clock, told=self._writer.node_written)
        terminator = Terminator(
            provider,
            client,
            cluster.claims,
            self._evictions,
            taints,
            recorder,
            clock,
            volume_of=cluster.volume_of,
        )
        self._lifecycle = Lifecycle(
            cluster,
            client,
            metered(provider, "nodeclaim.lifecycle", clock),
            terminator,
            self._writer,
            recorder,
            metrics,
            clock,
            register=lambda name: self._registrar.offer(name),
            health=self._health.note,
            nodes_are_stale=lambda: bool(stale([caches.nodes])),
            elsewhere=lambda name: self._provisioner.fits_elsewhere(name),
            timeouts=timeouts_of(options),
        )
        self._claims = KeyedQueue("nodeclaim", self._lifecycle.reconcile, clock, workers=options.workers(10, 100))
        self._nominations = Nominations(
            cluster,
            client,
            metrics,
            self._workers,
            clock,
            pods=caches.pods.store.list,
            steering=self._steering,
            defaults=policies.spread,
        )
        self._registrar = Registrar(
            cluster,
            client,
            self._writer,
            recorder,
            metrics,
            self._workers,
            clock,
            nominations=self._nominations,
            again=self._claims.add,
            health=self._health.note,
        )
        self._termination = Termination(
            cluster,
            client,
            metered(provider, "node.termination", clock),
            self._writer,
            self._evictions,
            taints,
            terminator,
            recorder,
            metrics,
            clock,
            pods_are_stale=lambda: bool(stale([caches.pods])),
        )
        self._nodes = KeyedQueue(
            "node-termination", self._termination.reconcile, clock, workers=options.workers(10, 100)
        )
        self._pools = KeyedQueue(
            "nodepool",
            PoolController(
                cluster,
                client,
                metered(provider, "nodepool", clock),
                self._writer,
                metrics,
                clock,
                pool=caches.pools.store.get,
                class_generation=caches.class_generation,
                health=self._health,
                ready=lambda: self._intake.trigger("pools"),
            ).reconcile,
            clock,
        )
        self._observer: Observer | None = None
        if not options.disable_cluster_state_observability:
            self._observer = Observer(
                cluster.snapshot,
                caches.nodes.store.list,
                caches.pods.store.list,
                cluster.claims,
                caches.pools.store.list,
                caches.types_of,
                provider.well_known_labels,
                clock,
            )
        creator = ClaimCreator(
            client,
            cluster,
            metrics,
            self._plans,
            effects=self._carry_out,
            created=lambda claim: self._claims.add(claim.name),
            chance=random.Random(),
        )
        self._planner = Planner(PlannerProcess(clock), clock)
        self._provisioner = Provisioner(
            cluster,
            creator,
            metered(provider, "provisioner", clock),
            recorder,
            metrics,
            self._creates,
            clock,
            counts=lambda pod: self._intake.counts(pod),
            retry=lambda why: self._intake.trigger(why),
            chance=random.Random(),
            plans=self._plans,
            policies=policies,
            deadline=options.solve_deadline,
            decided=self._observer.times.decided if self._observer is not None else lambda _placed, _left: None,
            improve=lambda prepared, result: self._planner.planned(prepared, result, self._intake.remaining()),
        )
        self._intake = Intake(
            lambda: self._provisioner.run(),
            cluster.waiting,
            cluster.is_planned,
            clock,
            idle=options.batch_idle_duration,
            longest=options.batch_max_duration,
            grace=options.intake_grace,
            gathering=self._planner.expect,
        )
        self._commands = CommandQueue(
            cluster,
            client,
            self._writer,
            creator,
            self._plans,
            recorder,
            metrics,
            taints,
            terminator,
            clock,
            stale=lambda: stale(caches.behind_disruption),
            timeout=options.command_timeout,
            pause=caches.pause,
        )
        ledger = BudgetLedger(cluster, most=options.max_disrupting_nodes)
        self._disruption = Disruption(
            cluster,
            self._writer,
            recorder,
            metrics,
            self._commands,
            ledger,
            clock,
            stale=lambda: stale(caches.behind_disruption),
            worlds=Worlds(metered(provider, "disruption", clock), policies),
            settings=settings_of(options),
            pause=caches.pause,
        )
        self._forceful = ForcefulDisruption(
            cluster,
            self._writer,
            recorder,
            metrics,
            ledger,
            clock,
            policies=provider.repair_policies() if options.feature_gates.node_repair else (),
            stale=lambda: stale(caches.behind_disruption),
            pause=caches.pause,
        )
        self._drift = DriftController(
            cluster,
            metered(provider, "nodeclaim.disruption", clock),
            self._writer,
            clock,
            pool=caches.pools.store.get,
        )
        self._static = StaticCapacity(
            cluster,
            client,
            creator,
            self._writer,
            recorder,
            metrics,
            self._creates,
            clock,
            enabled=options.feature_gates.static_capacity,
            pool=caches.pools.store.get,
            manages=lambda pool: (pool.node_class_ref.group, pool.node_class_ref.kind) in provider.node_class_kinds(),
            stale=lambda: stale((caches.pools, caches.claims, caches.pods)),
            chance=random.Random(),
        )
        self._overlays = OverlayStatus(client, caches.overlays, clock, caches.overlay_objects)
        self._transitions = Transitions(recorder, clock)
        self._scheduler_liveness = SchedulerLiveness(cluster.waiting, recorder, clock)
        self._own = cloud.lead(
            Parts(
                cluster=cluster,
                client=client,
                writer=self._writer,
                recorder=recorder,
                metrics=metrics,
                clock=clock,
                claim_again=self._claims.add,
                pool_again=self._pool_changed,
                plan_again=self._intake.trigger,
                taints=taints,
                terminator=terminator,
                ledger=ledger,
            )
        )
        self._housekeeper = threading.Thread(target=self._keep_house, name="housekeeping", daemon=True)
        self._consistency = Consistency(cluster, self._writer, recorder, clock, chance=random.Random())
        self._hydration = Hydration(cluster, client, provider, self._writer, clock)
        self._queues = (
            self._claims,
            self._nodes,
            self._pools,
            self._evictions.queue,
            self._node_plans.queue,
            self._consistency.queue,
            self._hydration.queue,
        )

    def start(self) -> None:
        """Begin to act on everything that the caches hold."""
        self._caches.effects = self._carry_out
        self._caches.unreadable = self._tell_unreadable
        for one in self._caches.all:
            for bad in tuple(one.bad.values()):
                if bad.left_out:
                    self._tell_unreadable(one.resource, bad.identity, bad.problem)
        self._caches.listen(self._heard)
        self._caches.listen(self._transitions.heard)
        self._caches.listen(self._drift.heard)
        self._caches.listen(self._static.heard)
        self._caches.listen(self._overlays.heard)
        self._caches.listen(self._scheduler_liveness.heard)
        if self._observer is not None:
            self._caches.listen(self._observer.heard)
            self._observer.start()
        self._provider.listen(self._claims.add)
        self._caches.listen(self._own.heard)
        self._own.start()
        self._provider.resume(self._cluster.claims())
        for queue in self._queues:
            queue.start()
        self._nominations.begin()
        self._registrar.start()
        self._pools.add_all(pool.name for pool in self._caches.pools.store.list())
        for claim in self._cluster.claims():
            self._claims.add(claim.name)
            self._consistency.seen(claim, at_start=True)
            self._hydration.seen(claim)
        for node in self._caches.nodes.store.list():
            self._nodes.add(node.metadata.name)
            self._node_plans.seen(node)
        self._carry_out(self._cluster.unneeded())  # nobody carried out what a standby was told
        self._intake.start()
        self._drift.start()
        self._static.start(self._caches.pools.store.list())
        self._overlays.start()
        self._disruption.start()
        self._forceful.start()
        self._housekeeper.start()

    def stop(self) -> None:
        """Finish what is under way and act no more."""
        self._stop.set()
        if self._observer is not None:
            self._observer.stop()
        parts = (
            self._planner,
            self._intake,
            self._disruption,
            self._forceful,
            self._drift,
            self._static,
            self._overlays,
            self._own,
            self._registrar,
            *self._queues,
        )
        ended = stop_all((part.stop for part in parts), STOP_SECONDS)
        ended &= stop_all((pool.close for pool in (self._creates, self._notes, self._workers)), WRITERS_STOP_SECONDS)
        if not ended:
            _log.warning("Stopped before all work had finished; the next leader continues it")

    def reported(self, reports: tuple[Report, ...]) -> None:
        """The extender left these pods without a node."""
        self._steering.heard()
        self._metrics.reported(len(reports))
        self._intake.report([report.uid for report in reports])

    # ------------------------------------------------------------------ events to work

    def _heard(self, what: str, old: object, new: object) -> None:
        if self._stop.is_set():
            return
        if isinstance(new, Pod) or isinstance(old, Pod):
            self._pod_heard(old if isinstance(old, Pod) else None, new if isinstance(new, Pod) else None)
        elif isinstance(new, Node) or isinstance(old, Node):
            self._node_heard(new if isinstance(new, Node) else old, gone=new is None)
        elif what == "claim":
            claim = new or old
            if isinstance(claim, NodeClaim):
                self._claims.add(claim.name)
                self._pool_changed(claim.pool)
                self._commands.heard(claim)
                if new is not None:
                    self._consistency.seen(claim)
                    self._hydration.seen(claim)
                if new is None:
                    self._intake.trigger(f"claim/{claim.name}")
        elif what == "pool":
            pool = new or old
            if isinstance(pool, NodePool):
                self._pools.add(pool.name)
                if new is None or not isinstance(old, NodePool) or pool.metadata.generation != old.metadata.generation:
                    self._intake.trigger(f"pool/{pool.name}/{pool.metadata.generation}")
        elif what == "overlay" or concerns_placement(what, old, new):
            self._intake.trigger(f"{what}/{id_of(new or old)}")
        elif what == "class":
            self._pools.add_all(pool.name for pool in self._caches.pools.store.list())
            self._intake.trigger(f"class/{id_of(new or old)}")

    def _pod_heard(self, old: Pod | None, new: Pod | None) -> None:
        if new is None or new.node_name or new.deleted is not None:
            gone = new or old
            if gone is not None:
                self._intake.pod_gone(gone.uid)
                if gone.node_name and gone.deleted is not None:
                    self._drain_on(gone.node_name)
            return
        if old is None or not self._cluster.is_planned(new.uid):
            self._intake.pod_seen(new)

    def _drain_on(self, node_name: str) -> None:
        node = self._cluster.node(node_name)
        if node is not None and node.metadata.deletion_timestamp is not None:
            self._nodes.add(node_name)

    def _node_heard(self, node: object, *, gone: bool) -> None:
        if not isinstance(node, Node):
            return
        if gone:
            self._node_plans.gone(node.metadata.name)
        else:
            self._node_plans.seen(node)
        for one in self._cluster.claims_with(node.spec.provider_id):  # a Node that is gone joins no claim any more
            self._claims.add(one.name)
            if gone:
                self._pool_changed(one.pool)
        claim = self._cluster.claim_of(node)
        if claim is not None:
            self._hydration.seen(claim)
        if node.metadata.deletion_timestamp is not None:
            self._nodes.add(node.metadata.name)
            if not gone and claim is not None and self._cluster.bound_to(node.metadata.name):
                self._intake.trigger(f"node/{node.metadata.name}")

    def _pool_changed(self, pool: str) -> None:
        if pool:
            self._pools.add_after(pool, POOL_DELAY_SECONDS)

    def _tell_unreadable(self, resource: Resource[Any], identity: Identity, problem: str) -> None:
        """Say on the object itself that it is left out, where its name could be read."""
        if identity.name:
            self._recorder.publish(
                ObjectReference(
                    api_version=resource.api_version,
                    kind=resource.kind,
                    name=identity.name,
                    namespace=identity.namespace,
                    uid=identity.uid,
                ),
                "Warning",
                UNREADABLE,
                f"This {resource.kind} cannot be read and is ignored until it is corrected: {problem}",
            )

    # ------------------------------------------------------------------ effects

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, PodSettled):
                self._metrics.plan_pod(effect.outcome)
                self._steering.settled(effect.uid, effect.outcome)
                if effect.outcome not in (PLANNED, ABSORBED):
                    self._plans.changed(effect.key)
                    self._intake.trigger(effect.uid)
            elif isinstance(effect, PodMissed):
                self._missed(effect)
            elif isinstance(effect, NominationLost):
                self._nominations.lost(effect.pod, effect.claim)
            elif isinstance(effect, ClaimUnneeded):
                self._creates.submit(lambda name=effect.claim: self._drop(name))  # type: ignore[misc]

    def _missed(self, effect: PodMissed) -> None:
        self._metrics.plan_miss(effect.cause)
        pod, stop = effect.pod, effect.stop
        said = pod.scheduled_message or "nothing"
        _log.info(
            "Pod was not bound to its planned node", pod=pod.key, node=str(effect.key), cause=effect.cause, said=said
        )
        if stop is not None:
            _log.warning(
                "Paused launching nodes for pods that kube-scheduler repeatedly did not bind as planned",
                pod=pod.key,
                misses=stop.misses,
                seconds=stop.seconds,
                said=said,
            )

    def _drop(self, name: str) -> None:
        claim = self._cluster.claim(name)
        if claim is not None and claim.metadata.uid and not claim.status.provider_id:
            _log.info("Deleting NodeClaim because its pods were scheduled to other nodes", nodeclaim=name)
            self._writer.delete(claim)

    def _keep_house(self) -> None:
        pulse = heartbeat.pulse("housekeeping", HOUSEKEEPING_PATIENCE_SECONDS)
        while not self._stop.wait(EXPIRE_SECONDS):
            pulse.beat()
            try:
                self._carry_out(self._cluster.expire())
                self._nominations.review()
                self._scheduler_liveness.look()
                self._metrics.state(self._cluster.snapshot())
            except Exception:
                _log.exception("Housekeeping failed; retrying")
