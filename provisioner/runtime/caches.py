"""The caches: one watch for each kind of object, which feed the state and tell the controllers. Every replica has them, so a new leader has full ones."""

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from provisioner.apis import names
from provisioner.apis.core import ConfigMap
from provisioner.apis.gangs import GroupSource
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.stamping import StampFacts
from provisioner.apis.templates import Admission, are_of_eks
from provisioner.cloudprovider.overlays import Overlays
from provisioner.cloudprovider.types import InstanceType
from provisioner.kube import resources
from provisioner.kube.config import ApiConnection
from provisioner.kube.errors import Forbidden
from provisioner.kube.lag import Prober
from provisioner.kube.resources import ObjectIdentity, Resource
from provisioner.kube.store import Store
from provisioner.kube.watch import PAGE_SIZE, Reflector, wait_for_sync
from provisioner.options import Options
from provisioner.runtime.changes import (
    CapacityBufferChanged,
    Change,
    Listener,
    NodeChanged,
    NodeClaimChanged,
    NodeClassChanged,
    NodeOverlayChanged,
    NodePoolChanged,
    PodChanged,
    ProvisioningRequestChanged,
    SurroundingChanged,
)
from provisioner.runtime.freshness import behind, refused, stale
from provisioner.state.checking import CheckedCluster
from provisioner.state.cluster import Cluster
from provisioner.state.effects import Effect
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.pause import Activity, Pause, pause_of
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.state.types_by_pool import TypesByPool
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.ending import stop_all
from provisioner.support.garbage import bulk_load
from provisioner.values.message import Said
from provisioner.values.printable import listed
from provisioner.values.taints import Taint

T = TypeVar("T")

STALE_AFTER_SECONDS = 120.0
SYNC_LOOK_SECONDS = 0.5  # between two looks at the signal to stop while caches fill
SYNC_TELL_SECONDS = 5.0
SETTINGS_SECONDS = 10.0
"""Who pauses launches before the first leader acts is heard; where the settings cannot be read, nodes are launched all the same."""
WATCHES_STOP_SECONDS = 2.0
BAD_OBJECTS_NAMED = 5
PODS_PAGE = 100
"""Pods a request, where they are not streamed: they may have 1.5 MB each."""
MOST_DRIFTS = 20
INTAKE_GRACE = timedelta(milliseconds=300)
"""After which a pod that fits on no node is planned, even if kube-scheduler has not marked it unschedulable; below a batch window nobody sees it."""
_log = logs.get_logger(__name__)


def _objects_unreadable(count: int, named: str) -> str:
    return Said(f"{count} objects cannot be read completely: {named}")


def _not_read_yet(resource: Resource[Any]) -> str:
    return Said(f"{resource} have not been read yet")


class Caches:
    """The watches of the provisioner and the state that they feed; the same in every replica.

    Attributes:
        drifts: the last differences that `--check-state` found.
        overlays: the NodeOverlays in force; none while the feature gate NodeOverlay is off.
    """

    def __init__(self, connection: ApiConnection, options: Options, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._chance = random.Random()
        self._listeners: list[Listener] = []
        self._types = TypesByPool(lambda _: None, lambda _: ())  # until `use_types`
        self.options = options
        self.drifts: list[str] = []
        self.cluster = self._state(options)
        self.effects: Callable[[Iterable[Effect]], None] = _ignored
        self.unreadable: Callable[[Resource[Any], ObjectIdentity, str], None] = _ignored
        #: That another Karpenter leads, as a sentence; set before anything is started.
        self.beside: Callable[[], str] = str
        self.nodes = self._reflect(resources.NODES, self._carried(self.cluster.node_changed), NodeChanged)
        self.pools = self._reflect(resources.NODEPOOLS, self._pool, NodePoolChanged)
        self.overlays = Overlays(self.pools.store.list, clock)
        self.claims = self._reflect(resources.NODECLAIMS, self._carried(self.cluster.claim_changed), NodeClaimChanged)
        self.daemons = self._reflect(resources.DAEMONSETS, self._carried(self.cluster.daemonset_changed))
        pod_changed = self._carried(self.cluster.pod_changed)
        self.pods = (
            self._reflect(resources.AMOUNTS_OF_PODS, pod_changed, PodChanged, page=PODS_PAGE)
            if options.vpa_predictions
            else self._reflect(resources.PODS, pod_changed, PodChanged, page=PODS_PAGE)
        )
        #: Only the provider's own kind: the CRDs of the other may be missing.
        self.classes: Reflector[Any] = (
            self._reflect(resources.EC2NODECLASSES, _ignored, NodeClassChanged)
            if options.provider == "aws"
            else self._reflect(resources.KWOKNODECLASSES, _ignored, NodeClassChanged)
        )
        self._settings_key = f"{options.system_namespace}/{names.SETTINGS_CONFIGMAP}"
        self.settings = self._reflect(
            resources.CONFIGMAPS,
            _ignored,
            namespace=options.system_namespace,
            field_selector=f"metadata.name={names.SETTINGS_CONFIGMAP}",
        )
        self._installation_key = f"{options.system_namespace}/{names.INSTALLATION_CONFIGMAP}"
        self.installations = self._reflect(
            resources.CONFIGMAPS,
            _ignored,
            namespace=options.system_namespace,
            field_selector=f"metadata.name={names.INSTALLATION_CONFIGMAP}",
        )
        self.namespaces = self._reflect(
            resources.NAMESPACE_LABELS, self._around(SurroundingsKeeper.namespace_changed), SurroundingChanged
        )
        self.overlay_objects = self._overlay_objects(options)
        #: None where the feature gate is off. The CRD belongs to others: nobody waits for it where it is missing.
        self.buffer_objects = (
            self._reflect(resources.CAPACITYBUFFERS, _ignored, CapacityBufferChanged)
            if options.feature_gates.capacity_buffer
            else None
        )
        budgets = self._reflect(resources.PDBS, self.cluster.budget_changed)
        machinery: tuple[Reflector[Any], ...] = (self.nodes, self.pools, self.claims, self.daemons, self.pods)
        #: What the program waits for, and is not ready without. Without the settings it only disrupts nothing.
        self.awaited: tuple[Reflector[Any], ...] = (
            *machinery,
            self.classes,
            *self._surroundings(),
            budgets,
            *self._selectors(options),
            *([self.overlay_objects] if self.overlay_objects is not None else ()),
        )
        buffers = () if self.buffer_objects is None else (self.buffer_objects,)
        #: Known late, or never where they may not be read: templates are taken as if there were none.
        admission: tuple[Reflector[Any], ...] = (
            self._reflect(resources.RUNTIMECLASSES, self.cluster.admission_changed, SurroundingChanged),
            self._reflect(resources.PRIORITYCLASSES, self.cluster.admission_changed, SurroundingChanged),
        )
        self.all: tuple[Reflector[Any], ...] = (*self.awaited, self.settings, self.installations, *buffers, *admission)
        #: The versions in which ProvisioningRequests may be served, the newest first.
        self.requests = tuple(
            self._reflect(one, _ignored, ProvisioningRequestChanged)
            for one in (resources.PROVISIONINGREQUESTS, resources.OLD_PROVISIONINGREQUESTS)
        )
        #: These and those below not every API server has: they are watched once it is found to serve them (`watch`).
        group_changed = self.cluster.pod_group_changed
        self.pod_groups: Mapping[GroupSource, Reflector[Any]] = {
            GroupSource.POD_GROUP: self._reflect(resources.PODGROUPS, group_changed, SurroundingChanged),
            GroupSource.VOLCANO: self._reflect(resources.VOLCANO_GROUPS, group_changed, SurroundingChanged),
            GroupSource.COSCHEDULING: self._reflect(resources.COSCHEDULING_GROUPS, group_changed, SurroundingChanged),
        }
        self.autoscalers = self._reflect(resources.AUTOSCALERS, self.cluster.autoscaler_changed)
        self._prober = Prober(self.all, clock)
        #: What voluntary disruption is decided from.
        self.behind_disruption: tuple[Reflector[Any], ...] = (*machinery, budgets, self.settings)

    # ------------------------------------------------------------------ the watches

    def _overlay_objects(self, options: Options) -> Reflector[NodeOverlay] | None:
        """None where the feature gate is off: the CRD may be missing then."""
        if not options.feature_gates.node_overlay:
            return None
        return self._reflect(resources.NODEOVERLAYS, self.overlays.changed, NodeOverlayChanged)

    def _surroundings(self) -> tuple[Reflector[Any], ...]:
        """What decides beside Nodes and pods where a pod may run."""
        keeper, changed = SurroundingsKeeper, SurroundingChanged
        return (
            self._reflect(resources.LIMITRANGES, self.cluster.admission_changed, changed),
            self._reflect(resources.CSIDRIVERS, self.cluster.csi_driver_changed, changed),
            self._reflect(resources.CSINODES, self.cluster.csi_node_changed, changed),
            self.namespaces,
            self._reflect(resources.STORAGECLASSES, self._around(keeper.class_changed), changed),
            self._reflect(resources.PVS, self._around(keeper.volume_changed), changed),
            self._reflect(resources.PVCS, self._around(keeper.claim_changed), changed),
        )

    def _selectors(self, options: Options) -> tuple[Reflector[Any], ...]:
        """Whose pods a selector means: only default spread constraints ask that."""
        if not options.scheduler_config:
            return ()
        keeper = SurroundingsKeeper
        return (
            self._reflect(resources.SERVICE_SELECTORS, self._around(keeper.service_changed)),
            self._reflect(resources.REPLICASET_SELECTORS, self._around(keeper.controller_changed)),
            self._reflect(resources.STATEFULSET_SELECTORS, self._around(keeper.controller_changed)),
            self._reflect(
                resources.REPLICATIONCONTROLLER_SELECTORS, self._around(keeper.replication_controller_changed)
            ),
        )

    def _state(self, options: Options) -> Cluster:
        def types_of(claim: NodeClaim) -> Mapping[str, InstanceType]:
            return self._types.of_claim(claim)

        ttls = {"hold_ttl": options.timeouts.hold, "plan_ttl": options.timeouts.plan, "grace": INTAKE_GRACE}
        if options.check_state:
            return CheckedCluster(types_of, self._clock, drifted=self._drifted, **ttls)
        return Cluster(types_of, self._clock, **ttls)

    def _drifted(self, difference: str) -> None:
        self.drifts.append(difference)
        del self.drifts[:-MOST_DRIFTS]
        _log.error("The cluster state differs from the watched objects; please report this bug", difference=difference)

    def pause(self) -> Pause:
        """What is paused for now. Cost: O(pools)."""
        return pause_of(self.pools.store.list(), _said_in(self.settings, self._settings_key), self.beside())

    def launch_paused(self, pool: str) -> str:
        """What pauses launches of a NodePool, or of all of them (""), as users read it; "" where nothing does."""
        own = self.pools.store.get(pool)
        return pause_of(() if own is None else (own,), _said_in(self.settings, self._settings_key)).why(
            pool, Activity.LAUNCH
        )

    def installation(self) -> ConfigMap | None:
        """The ConfigMap that says since when Dovetail is installed; None where there is none, or it is not known."""
        return self.installations.store.get(self._installation_key)

    def admission(self) -> Admission:
        """What built-in admission makes of templates."""
        return replace(self.cluster.admission(), extended=are_of_eks(self.nodes.store.list()))

    def stamping_facts(self, namespace: str) -> StampFacts:
        """What the webhook goes by in a namespace, as far as watches tell: the cluster's defaults, shares and images are left out."""
        there = self.namespaces.store.get(namespace)
        return StampFacts(
            namespace,
            {} if there is None else there.metadata.labels,
            own_namespace=self.options.system_namespace,
            taints_of=partial(_taints_of, self.pools.store),
        )

    def class_generation(self, name: str) -> int | None:
        """The generation of the provider's NodeClass of that name; None where there is none."""
        found = self.classes.store.get(name)
        return found.metadata.generation if found is not None else None

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Have whoever leads do what the state wants done."""
        self.effects(effects)

    def listen(self, listener: Listener) -> None:
        """Be told of every change of the kinds in `changes`, after the state has taken it in."""
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
            self._prober.poller.start()
            told_at = self._clock.monotonic()
            while waiting := wait_for_sync(self.awaited, SYNC_LOOK_SECONDS):
                if stopping.is_set():
                    return False
                if self._clock.monotonic() - told_at >= SYNC_TELL_SECONDS:
                    told_at = self._clock.monotonic()
                    missing = ", ".join(str(one.resource) for one in waiting)
                    _log.info("Waiting for caches to sync", missing=missing, problem=self.problem())
        _await_settings((self.settings, self.installations), self._clock, stopping)
        self.effects(self.cluster.settle())
        return not stopping.is_set()

    def watch(self, late: Reflector[Any]) -> None:
        """Watch `autoscalers` or one of `pod_groups` or `requests` from now on; call once, when the API server serves them."""
        self.all = (*self.all, late)
        self._prober.add(late)
        late.start()

    def stop(self) -> None:
        """End every watch, all at once."""
        self._prober.poller.stop(0.0)
        stop_all((reflector.stop for reflector in self.all), WATCHES_STOP_SECONDS)

    def problem(self) -> str:
        """What is wrong with the caches, "" when nothing is."""
        return behind(self.awaited, silent=STALE_AFTER_SECONDS, failing=STALE_AFTER_SECONDS)

    def optional_problem(self) -> str:
        """Which of the watches that nobody waits for are refused, and what to do; "" for none."""
        return refused(one for one in self.all if one not in self.awaited)

    def disruption_is_stale(self) -> str:
        """Which watch that voluntary disruption is decided from is behind, or not known to be needed yet, in words; "" where none is."""
        unknown = self.options.vpa_predictions and self.cluster.prediction_knowledge() is KindKnowledge.NOT_YET
        return stale(self.behind_disruption) or (_not_read_yet(self.autoscalers.resource) if unknown else "")

    def static_pools_are_stale(self) -> str:
        """Likewise for what static NodePools are scaled by."""
        return stale((self.pools, self.claims, self.pods))

    def nodes_are_stale(self) -> bool:
        """Whether the watch of Nodes is behind."""
        return bool(stale([self.nodes]))

    def pods_are_stale(self) -> bool:
        """Whether the watch of pods is behind."""
        return bool(stale([self.pods]))

    def bad_objects(self) -> str:
        """The objects that cannot be read as they are, for people; "" when there is none. The others are served all the same."""
        bad = [
            f"{one.resource.kind} {key or '(unknown)'}: {bad.problem}"
            for one in self.all
            for key, bad in tuple(one.bad.items())
        ]
        return _objects_unreadable(len(bad), listed(bad, BAD_OBJECTS_NAMED, "; ")) if bad else ""

    # ------------------------------------------------------------------ from a watch to the state, and to who listens

    def _reflect(
        self,
        resource: Resource[T],
        take: Callable[[T | None, T | None], object],
        change: Callable[[T | None, T | None], Change] | None = None,
        *,
        namespace: str = "",
        field_selector: str = "",
        page: int = PAGE_SIZE,
    ) -> Reflector[T]:
        """A watch whose events go to `take` and then, as a `change`, to everybody who listens; without one to nobody else."""

        def changed(old: T | None, new: T | None) -> None:
            take(old, new)
            if change is not None:
                told = change(old, new)
                for listener in self._listeners:
                    listener(told)

        def unreadable(identity: ObjectIdentity, error: Exception) -> None:
            self.unreadable(resource, identity, str(error))

        return Reflector(
            self._connection,
            resource,
            changed=changed,
            unreadable=unreadable,
            clock=self._clock,
            rng=self._chance,
            namespace=namespace,
            field_selector=field_selector,
            page=page,
        )

    def _around(
        self, take: Callable[[SurroundingsKeeper, T | None, T | None], None]
    ) -> Callable[[T | None, T | None], None]:
        """A handler that enters events of one kind into the state's surroundings."""

        def enter(old: T | None, new: T | None) -> None:
            self.cluster.surrounding_changed(lambda keeper: take(keeper, old, new))

        return enter

    def _carried(self, take: Callable[[T | None, T | None], Iterable[Effect]]) -> Callable[[T | None, T | None], None]:
        """A handler that enters events of one kind into the state, and has carried out what follows."""
        return lambda old, new: self.effects(take(old, new))

    def _pool(self, old: NodePool | None, new: NodePool | None) -> None:
        self.overlays.pool_changed(old, new)
        self.effects(self.cluster.pool_changed(old, new))


def store_of(watch: Reflector[T] | None) -> Store[T] | None:
    """What a watch has found; None where there is none."""
    return None if watch is None else watch.store


def _ignored(*_: object) -> None:
    """Nothing is done about it, or nobody leads who would do it."""


def _await_settings(both: Sequence[Reflector[ConfigMap]], clock: Clock, stopping: threading.Event) -> None:
    end = clock.monotonic() + SETTINGS_SECONDS
    while (waiting := wait_for_sync(both, SYNC_LOOK_SECONDS)) and not stopping.is_set():
        if clock.monotonic() >= end or all(isinstance(one.error, Forbidden) for one in waiting):
            return


def _said_in(settings: Reflector[ConfigMap], key: str) -> Mapping[str, str] | None:
    found = settings.store.get(key)
    nothing: dict[str, str] | None = {} if settings.synced.is_set() else None
    return found.data if found is not None else nothing


def _taints_of(pools: Store[NodePool], pool: str) -> tuple[Taint, ...] | None:
    found = pools.get(pool)
    return None if found is None else found.taints
