"""The controllers of a term as a whole: started and stopped as one, and told what the caches hear.

`wiring` puts them together, `caches` runs in every replica. Two things are decided here: which part looks again after which event, and
which part carries out what the state wants done.
"""

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from provisioner import clouds
from provisioner.apis.core import Node, ObjectReference
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import key_of
from provisioner.apis.pods import Pod
from provisioner.apis.reports import PodReport
from provisioner.cloudprovider.overlays import overlaid
from provisioner.clouds import Cloud
from provisioner.kube.client import Client
from provisioner.kube.errors import Conflict
from provisioner.kube.events import Recorder
from provisioner.kube.resources import DAEMONSETS, ObjectIdentity, Resource
from provisioner.operator import certificates, wiring
from provisioner.options import Options
from provisioner.provisioning.provisioner import policies_of
from provisioner.provisioning.retry_triggers import concerns_placement
from provisioner.runtime import metrics
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import (
    CapacityBufferChanged,
    Change,
    NodeChanged,
    NodeClaimChanged,
    NodeClassChanged,
    NodeOverlayChanged,
    NodePoolChanged,
    PodChanged,
    SurroundingChanged,
)
from provisioner.state.effects import (
    ABSORBED,
    PLANNED,
    REPLANNED,
    ClaimUnneeded,
    DaemonSetUnreadable,
    Effect,
    NominationLost,
    PlanOutdated,
    PodMissed,
    PodSettled,
)
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.ending import stop_all
from provisioner.support.poller import Poller
from provisioner.support.workers import KeyedQueue
from provisioner.why.leader import LeaderInstant

#: What a stop waits for at most; together with the last writes well below the 30 s that Kubernetes gives (`main.STOP_SECONDS`).
STOP_SECONDS = 5.0
WRITERS_STOP_SECONDS = 2.0
HOUSEKEEPING_PATIENCE_SECONDS = 300.0
EXPIRE_SECONDS = 1.0
POOL_DELAY_SECONDS = 1.0
_log = logs.get_logger(__name__)
DAEMONSET_IGNORED: Final = "DaemonSet cannot be read and is ignored until it is corrected"


class Controllers:
    """What the leader runs; made anew for every term."""

    def __init__(
        self,
        caches: Caches,
        client: Client,
        cloud: Cloud,
        recorder: Recorder,
        options: Options,
        clock: Clock,
    ) -> None:
        provider = overlaid(cloud.provider, caches.overlays)
        base = clouds.Base(caches, client, provider, recorder, options, policies_of(options), clock)
        calls = clouds.Calls()
        calls.carry_out.connect(self._carry_out)
        calls.pool_again.connect(self._pool_changed)
        self._caches, self._cluster, self._provider = caches, caches.cluster, provider
        self._recorder = recorder
        self._writers = wiring.writers(base, calls)
        self._ends = wiring.ends(base, self._writers, uncertain=cloud.is_uncertain)
        self._joining = wiring.joining(base, calls, self._writers, self._ends)
        self._observability = wiring.observability(base)
        self._certificates = certificates.rotations(base)
        self._share_repair = wiring.share_repair(base, self._ends)
        steering = self._joining.steering
        self._provisioning = wiring.provisioning(base, calls, self._writers, self._ends, self._observability, steering)
        self._disruptions = wiring.disruptions(base, self._writers, self._ends, self._provisioning, steering)
        self._known = wiring.known(base, self._ends, self._provisioning, self._disruptions)
        calls.check()
        self._own = cloud.lead(base, calls, self._writers, self._ends, self._provisioning.ledger)
        self._housekeeper = Poller(
            "housekeeping",
            self._keep_house,
            EXPIRE_SECONDS,
            first=EXPIRE_SECONDS,
            patience=HOUSEKEEPING_PATIENCE_SECONDS,
        )

    def start(self) -> None:
        """Begin to act on everything that the caches hold."""
        self._caches.effects = self._carry_out
        self._caches.unreadable = self._tell_unreadable
        for one in self._caches.all:
            for bad in tuple(one.bad.values()):
                if bad.left_out:
                    self._tell_unreadable(one.resource, bad.identity, bad.problem)
        self._carry_out(self._cluster.unreadable_daemon_sets())
        observability, disruptions = self._observability, self._disruptions
        for listener in (
            self._heard,
            observability.transitions.heard,
            disruptions.drift.heard,
            self._provisioning.static.heard,
            self._provisioning.buffers.heard,
            observability.overlays.heard,
            observability.scheduler_liveness.heard,
        ):
            self._caches.listen(listener)
        if observability.observer is not None:
            self._caches.listen(observability.observer.heard)
            observability.observer.start()
        self._provider.listen(self._joining.claims.add)
        self._caches.listen(self._own.heard)
        self._own.start()
        self._provider.resume(self._cluster.claims())
        for queue in self._queues:
            queue.start()
        self._joining.nominations.begin()
        self._joining.registrar.start()
        self._begin_with_all()
        self._carry_out(self._cluster.unneeded())  # nobody carried out what a standby was told
        self._provisioning.intake.start()
        disruptions.drift.start()
        self._provisioning.static.start(self._caches.pools.store.list())
        self._provisioning.buffers.start()
        observability.overlays.start()
        disruptions.voluntary.start()
        disruptions.forceful.start()
        self._ends.garbage.start()
        self._share_repair.start()
        for rotation in self._certificates:
            rotation.start()
        self._housekeeper.start()

    def _begin_with_all(self) -> None:
        joining = self._joining
        joining.pools.add_all(pool.name for pool in self._caches.pools.store.list())
        for claim in self._cluster.claims():
            joining.claims.add(claim.name)
            joining.consistency.seen(claim, at_start=True)
            joining.hydration.seen(claim)
        for node in self._caches.nodes.store.list():
            self._ends.nodes.add(node.metadata.name)
            self._writers.node_plans.seen(node)

    def stop(self) -> None:
        """Finish what is under way and act no more."""
        self._housekeeper.stop(0.0)
        if self._observability.observer is not None:
            self._observability.observer.stop()
        stops: tuple[Callable[[], object], ...] = (
            self._provisioning.planner.stop,
            self._provisioning.intake.stop,
            self._disruptions.voluntary.stop,
            self._disruptions.forceful.stop,
            self._disruptions.drift.stop,
            self._provisioning.static.stop,
            self._provisioning.buffers.stop,
            self._observability.overlays.stop,
            self._own.stop,
            self._ends.garbage.stop,
            self._joining.registrar.stop,
            self._share_repair.stop,
            *(rotation.stop for rotation in self._certificates),
            *(queue.stop for queue in self._queues),
        )
        ended = stop_all(stops, STOP_SECONDS)
        threads = (self._writers.creates, self._writers.notes, self._joining.threads)
        ended &= stop_all((pool.close for pool in threads), WRITERS_STOP_SECONDS)
        if not ended:
            _log.warning("Stopped before all work had finished; the next leader continues it")

    def instant(self) -> LeaderInstant:
        """Now, with everything that this term remembers; for whoever asks why. Cost: what changed since somebody looked last."""
        return self._known.now()

    def reported(self, reports: tuple[PodReport, ...]) -> None:
        """The extender left these pods without a node."""
        self._joining.steering.heard()
        metrics.REPORTED_PODS.inc(len(reports))
        self._provisioning.intake.report([report.uid for report in reports])

    @property
    def _queues(self) -> tuple[KeyedQueue, ...]:
        return (
            self._joining.claims,
            self._ends.nodes,
            self._joining.pools,
            self._ends.evictions.queue,
            self._writers.node_plans.queue,
            self._joining.consistency.queue,
            self._joining.hydration.queue,
        )

    # ------------------------------------------------------------------ events to work

    def _heard(self, change: Change) -> None:
        if self._housekeeper.stopped:
            return
        match change:
            case PodChanged(old=old, new=new):
                if new is not None:
                    self._ends.evictions.departures.saw(new)
                self._pod_heard(old, new)
            case NodeChanged(latest=node):
                self._node_heard(node, gone=change.new is None)
            case NodeClaimChanged(latest=claim):
                self._claim_heard(claim, gone=change.new is None)
            case NodePoolChanged():
                self._pool_heard(change)
            case NodeClassChanged(latest=node_class):
                self._joining.pools.add_all(pool.name for pool in self._caches.pools.store.list())
                self._plan_again(f"class/{node_class.metadata.name}")
            case NodeOverlayChanged(latest=overlay):
                self._plan_again(f"overlay/{overlay.metadata.name}")
            case CapacityBufferChanged():
                pass  # `CapacityBuffers` asks for a run once it is resolved
            case SurroundingChanged(latest=thing):
                if concerns_placement(change):
                    self._plan_again(f"{type(thing).__name__}/{key_of(thing.metadata)}")

    def _pod_heard(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and not new.node_name and new.deleted is None:
            self._provisioning.intake.pod_seen(new)
            return
        gone = new or old
        if gone is not None and gone.node_name and gone.deleted is not None:
            self._drain_on(gone.node_name)

    def _drain_on(self, node_name: str) -> None:
        node = self._cluster.node(node_name)
        if node is not None and node.metadata.deletion_timestamp is not None:
            self._ends.nodes.add(node_name)

    def _claim_heard(self, claim: NodeClaim, *, gone: bool) -> None:
        self._joining.claims.add(claim.name)
        self._pool_changed(claim.pool)
        self._disruptions.commands.heard(claim)
        if gone:
            self._plan_again(f"claim/{claim.name}")
        else:
            self._joining.consistency.seen(claim)
            self._joining.hydration.seen(claim)

    def _pool_heard(self, change: NodePoolChanged) -> None:
        old, new, pool = change.old, change.new, change.latest
        self._joining.pools.add(pool.name)
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            self._plan_again(f"pool/{pool.name}/{pool.metadata.generation}")

    def _node_heard(self, node: Node, *, gone: bool) -> None:
        if gone:
            self._writers.node_plans.gone(node.metadata.name)
        else:
            self._writers.node_plans.seen(node)
        for one in self._cluster.claims_with(node.spec.provider_id):  # a Node that is gone joins no claim any more
            self._joining.claims.add(one.name)
            if gone:
                self._pool_changed(one.pool)
        claim = self._cluster.claim_of(node)
        if claim is not None:
            self._joining.hydration.seen(claim)
        if node.metadata.deletion_timestamp is not None:
            self._ends.nodes.add(node.metadata.name)
            if not gone and claim is not None and self._cluster.bound_to(node.metadata.name):
                self._plan_again(f"node/{node.metadata.name}")

    def _plan_again(self, why: str) -> None:
        self._provisioning.intake.trigger(why)

    def _pool_changed(self, pool: str) -> None:
        if pool:
            self._joining.pools.add_after(pool, POOL_DELAY_SECONDS)

    def _tell_unreadable(self, resource: Resource[Any], identity: ObjectIdentity, problem: str) -> None:
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
                "UnreadableObject",
                f"This {resource.kind} cannot be read and is ignored until it is corrected: {problem}",
            )

    # ------------------------------------------------------------------ effects

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case PodSettled():
                    self._settled(effect)
                case PlanOutdated(key=key):
                    self._writers.plans.changed(key)
                case PodMissed():
                    self._missed(effect)
                case NominationLost(pod=pod, claim=claim):
                    self._joining.nominations.lost(pod, claim)
                case ClaimUnneeded(claim=claim):
                    self._writers.creates.submit(partial(self._drop, claim))
                case DaemonSetUnreadable(daemon_set=one, problem=problem):
                    meta = one.metadata
                    _log.warning(DAEMONSET_IGNORED, daemonset=meta.key, problem=problem)
                    self._tell_unreadable(DAEMONSETS, meta, problem)

    def _settled(self, effect: PodSettled) -> None:
        metrics.PLAN_PODS.labels(effect.outcome).inc()
        self._joining.steering.settled(effect.uid, effect.outcome)
        if effect.outcome not in (PLANNED, ABSORBED, REPLANNED):
            self._writers.plans.changed(effect.key)
            self._plan_again(effect.uid)

    def _missed(self, effect: PodMissed) -> None:
        metrics.PLAN_MISSES.labels(effect.cause).inc()
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
        if (
            claim is not None
            and claim.metadata.uid
            and not claim.status.provider_id
            and not self._caches.beside()
            and self._cluster.is_unneeded(name)
        ):
            with contextlib.suppress(Conflict):  # it has changed; the launch asks once more whether it is needed
                self._writers.claims.delete_unneeded(claim)

    def _keep_house(self) -> float:
        self._carry_out(self._cluster.expire())
        self._joining.nominations.review()
        self._observability.scheduler_liveness.look()
        metrics.state(self._cluster.snapshot())
        return EXPIRE_SECONDS
