"""The provisioner as a whole: caches, state and controllers, wired; started and stopped as one.

Caches run in every replica, so a new leader begins with full ones; controllers run in the leader only.
"""

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from provisioner.apis.core import CSINode, DaemonSet, LimitRange, Node
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.pods import Pod
from provisioner.apis.reports import Report
from provisioner.cloudprovider.metering import metered
from provisioner.cloudprovider.types import InstanceType
from provisioner.controllers.clouds import Cloud, Parts
from provisioner.controllers.disruption import Disruption
from provisioner.controllers.intake import Intake
from provisioner.controllers.lifecycle import Lifecycle
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.nodepool import Health, PoolController
from provisioner.controllers.plans import PlanWriter
from provisioner.controllers.provisioning import Policies, Provisioner
from provisioner.controllers.registration import Registrar
from provisioner.controllers.retrying import concerns_placement, id_of
from provisioner.controllers.steering import Steering
from provisioner.controllers.store import ClaimWriter
from provisioner.controllers.termination import Evictions, Termination
from provisioner.controllers.transitions import Transitions
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import Connection
from provisioner.kube.events import Recorder
from provisioner.kube.resources import Resource
from provisioner.kube.watch import EventKind, Reflector, wait_for_sync
from provisioner.options import Options
from provisioner.state.cluster import ClaimUnneeded, Cluster, Effect, NominationLost, PodSettled
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.garbage import bulk_load
from provisioner.support.workers import KeyedQueue, Pool

T = TypeVar("T")

#: Threads that write at once, for creations and for everything else; on two cores more only wait for each other.
WRITERS = 12
#: A plan that waits behind a hundred creations is too late: its room is taken before the extender hears of it.
PLAN_WRITERS = 4
STALE_AFTER_SECONDS = 120.0
EXPIRE_SECONDS = 1.0
POOL_DELAY_SECONDS = 1.0
_log = logs.get_logger(__name__)


class _Feed(Generic[T]):
    """Hands every event of one watch to a function."""

    def __init__(self, on_event: Callable[[T | None, T | None], None]) -> None:
        self._on_event = on_event

    def on_event(self, kind: EventKind, old: T | None, new: T | None) -> None:  # noqa: ARG002
        """One change; `kind` follows from which of the two is there."""
        self._on_event(old, new)

    def on_sync(self) -> None:
        """A list is complete; nothing depends on when."""


class Caches:
    """The watches of the provisioner and the state that they feed; the same in every replica."""

    def __init__(self, connection: Connection, options: Options, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._chance = random.Random()
        self._listeners: list[Callable[[str, object, object], None]] = []
        self._types: Callable[[str], Mapping[str, InstanceType]] = lambda _: {}
        self.cluster = Cluster(lambda pool: self._types(pool), clock.now, hold_ttl=options.hold_ttl)
        self.effects: Callable[[Iterable[Effect]], None] = lambda _: None
        self.nodes = self._reflect(resources.NODES, "node", self._node)
        self.pools = self._reflect(resources.NODEPOOLS, "pool", self._pool)
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
        around: list[Reflector[Any]] = [
            self._reflect(resources.LIMITRANGES, "limitrange", self._limit_range),
            self._reflect(resources.CSINODES, "csinode", self._csi_node),
            self._reflect(resources.PDBS, "budget", self.cluster.budget_changed),
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
        self.all: tuple[Reflector[Any], ...] = (
            self.nodes,
            self.pools,
            self.claims,
            self.daemons,
            self.pods,
            self.classes,
            *around,
        )
        self.options = options

    def listen(self, listener: Callable[[str, object, object], None]) -> None:
        """Be told (what, old, new) of every event, after the state has taken it in."""
        self._listeners.append(listener)

    def use_types(self, types: Callable[[str], Mapping[str, InstanceType]]) -> None:
        """Where the state finds the instance types of a pool."""
        self._types = types

    def start(self, stopping: threading.Event) -> bool:
        """Fill the caches; False when stopped before that was done."""
        with bulk_load():
            for reflector in self.all:
                reflector.start()
            while waiting := wait_for_sync(self.all, 5.0):
                if stopping.is_set():
                    return False
                _log.info("waiting for caches", missing=", ".join(str(one.resource) for one in waiting))
        self.effects(self.cluster.settle())
        return True

    def stop(self) -> None:
        """End every watch."""
        for reflector in self.all:
            reflector.stop()

    def problem(self) -> str:
        """What is wrong with the caches, "" when nothing is."""
        for reflector in self.all:
            if not reflector.synced.is_set():
                return f"{reflector.resource} are not synced"
            if reflector.staleness() > STALE_AFTER_SECONDS:
                return f"{reflector.resource} were last heard of {reflector.staleness():.0f} s ago"
        return ""

    def _reflect(self, resource: Resource[T], what: str, take: Callable[[T | None, T | None], None]) -> Reflector[T]:
        def on_event(old: T | None, new: T | None) -> None:
            take(old, new)
            for listener in self._listeners:
                listener(what, old, new)

        return Reflector(self._connection, resource, handlers=[_Feed(on_event)], clock=self._clock, rng=self._chance)

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
        provider = cloud.provider
        self._caches, self._cluster, self._provider, self._metrics = caches, caches.cluster, provider, metrics
        self._stop = threading.Event()
        cluster = caches.cluster
        self._workers = Pool(WRITERS, "writes")
        self._creates = Pool(WRITERS, "creates")
        self._steering = Steering(options.nominate, clock)
        self._notes = Pool(PLAN_WRITERS, "plans")
        self._plans = PlanWriter(cluster, client, self._notes)
        self._writer = ClaimWriter(client, cluster, self._carry_out)
        self._health = Health(self._pool_changed)
        self._lifecycle = Lifecycle(
            cluster,
            client,
            metered(provider, "nodeclaim.lifecycle", clock),
            self._writer,
            recorder,
            metrics,
            clock,
            register=lambda name: self._registrar.offer(name),
            health=self._health.note,
            elsewhere=lambda name: self._provisioner.fits_elsewhere(name),
        )
        self._claims = KeyedQueue("nodeclaim", self._lifecycle.reconcile, clock, workers=options.workers(10, 100))
        self._registrar = Registrar(
            cluster,
            client,
            self._writer,
            recorder,
            metrics,
            self._workers,
            clock,
            nominates=self._steering.nominates,
            again=self._claims.add,
            health=self._health.note,
        )
        self._evictions = Evictions(cluster, client, recorder, metrics, clock, workers=options.workers(10, 100))
        self._termination = Termination(
            cluster,
            client,
            metered(provider, "node.termination", clock),
            self._writer,
            self._evictions,
            recorder,
            metrics,
            clock,
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
                health=self._health,
                ready=lambda: self._intake.trigger("pools"),
            ).reconcile,
            clock,
        )
        self._provisioner = Provisioner(
            cluster,
            client,
            metered(provider, "provisioner", clock),
            recorder,
            metrics,
            self._creates,
            clock,
            counts=lambda pod: self._intake.counts(pod),
            retry=lambda why: self._intake.trigger(why),
            created=lambda claim: self._claims.add(claim.name),
            chance=random.Random(),
            plans=self._plans,
            policies=Policies.of(options),
        )
        self._intake = Intake(
            lambda: self._provisioner.run(),
            cluster.waiting,
            cluster.is_planned,
            clock,
            idle=options.batch_idle_duration,
            longest=options.batch_max_duration,
            grace=options.intake_grace,
        )
        self._disruption = Disruption(
            cluster, client, self._writer, recorder, metrics, self._workers, clock, tainted=self._termination.tainted
        )
        self._transitions = Transitions(recorder)
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
                evictions=self._evictions,
                workers=self._workers,
            )
        )
        self._housekeeper = threading.Thread(target=self._keep_house, name="housekeeping", daemon=True)

    def start(self) -> None:
        """Begin to act on everything that the caches hold."""
        self._caches.effects = self._carry_out
        self._caches.listen(self._heard)
        self._caches.listen(self._transitions.heard)
        self._provider.listen(self._claims.add)
        self._caches.listen(self._own.heard)
        self._own.start()
        self._provider.resume(self._cluster.claims())
        for queue in (self._claims, self._nodes, self._pools, self._evictions.queue):
            queue.start()
        self._registrar.start()
        self._pools.add_all(pool.name for pool in self._caches.pools.store.list())
        self._claims.add_all(claim.name for claim in self._cluster.claims())
        self._nodes.add_all(node.metadata.name for node in self._caches.nodes.store.list())
        self._intake.start()
        self._disruption.start()
        self._housekeeper.start()

    def stop(self) -> None:
        """Finish what is under way and act no more."""
        self._stop.set()
        self._intake.stop()
        self._disruption.stop()
        self._own.stop()
        self._registrar.stop()
        for queue in (self._claims, self._nodes, self._pools, self._evictions.queue):
            queue.stop(5.0)
        self._creates.close(5.0)
        self._notes.close(5.0)
        self._workers.close(5.0)

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
                if new is None:
                    self._intake.trigger(f"claim/{claim.name}")
        elif what == "pool":
            pool = new or old
            if isinstance(pool, NodePool):
                self._pools.add(pool.name)
                if new is None or not isinstance(old, NodePool) or pool.metadata.generation != old.metadata.generation:
                    self._intake.trigger(f"pool/{pool.name}/{pool.metadata.generation}")
        elif concerns_placement(what, old, new):
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
        claim = self._cluster.claim_of(node)
        if claim is not None:
            self._claims.add(claim.name)
            if gone:
                self._pool_changed(claim.pool)
        if node.metadata.deletion_timestamp is not None:
            self._nodes.add(node.metadata.name)
            if not gone and claim is not None and self._cluster.bound_to(node.metadata.name):
                self._intake.trigger(f"node/{node.metadata.name}")

    def _pool_changed(self, pool: str) -> None:
        if pool:
            self._pools.add_after(pool, POOL_DELAY_SECONDS)

    # ------------------------------------------------------------------ effects

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, PodSettled):
                self._metrics.plan_pod(effect.outcome)
                self._steering.settled(effect.outcome)
                if effect.outcome in ("displaced", "expired"):
                    self._intake.trigger(effect.uid)
            elif isinstance(effect, NominationLost):
                self._registrar.nominate_again(effect.pod, effect.claim)
            elif isinstance(effect, ClaimUnneeded):
                self._creates.submit(lambda name=effect.claim: self._drop(name))  # type: ignore[misc]

    def _drop(self, name: str) -> None:
        claim = self._cluster.claim(name)
        if claim is not None and claim.metadata.uid and not claim.status.provider_id:
            _log.info("deleting nodeclaim, its pods found other places", nodeclaim=name)
            self._writer.delete(claim)

    def _keep_house(self) -> None:
        while not self._stop.wait(EXPIRE_SECONDS):
            try:
                self._carry_out(self._cluster.expire())
                for key in self._cluster.finished_node_plans():
                    self._plans.changed(key)
                self._metrics.state(self._cluster.snapshot())
            except Exception:
                _log.exception("housekeeping failed, it goes on")
