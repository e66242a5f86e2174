"""One day in virtual time: everything is put together, and time moves on whenever nobody has anything left to do."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.interruption import interruption_of
from provisioner.apis.meta import condition
from provisioner.apis.reports import PodReport
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.kube.lease import Fence, LeaseTerm
from provisioner.kube.resources import Resource
from provisioner.kube.watch import Reflector
from provisioner.operator.machinery import Machinery
from provisioner.operator.term import Term
from provisioner.options import Options
from provisioner.runtime.caches import Caches
from provisioner.simulator import workload as workloads
from provisioner.simulator.api_server import ApiServer, ServerChange
from provisioner.simulator.attended import AttendedManager, InlinePool
from provisioner.simulator.cloud import Offer, SimulatedCloud, SimulatedStock
from provisioner.simulator.connection import MemoryConnection
from provisioner.simulator.errors import SimulationError
from provisioner.simulator.extending import SimulatedExtender
from provisioner.simulator.interruptions import Replacing, SpotInterruptions
from provisioner.simulator.kube_scheduler import KubeScheduler
from provisioner.simulator.kubelets import Budgets, Kubelets
from provisioner.simulator.ledger import Figures, Ledger
from provisioner.simulator.market import Market, Supply
from provisioner.simulator.owners import Owners
from provisioner.simulator.planning import PatientPlanner
from provisioner.simulator.policies import Policy, PolicyRules
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from provisioner.simulator.workload import Apply, Arrival, Day, End, Scale, Shortage
from provisioner.simulator.workloads.chance import Chance
from provisioner.support.clock import Clock

QUIET_SECONDS: Final = 60.0
"""After so long without a change a watch is heard all the same, as by a bookmark."""
MOST_TURNS: Final = 100_000
"""Things that are done at one instant; whoever never comes to rest would go on for ever."""
_INTERRUPTED: Final = "Interrupted"
_PREEMPTED: Final = "Preempted"
LEFT_OUT: Final = frozenset({"extender-certificates", "deletion-guards"})
RESOURCES: Final[Mapping[tuple[str, str], Resource[Any]]] = {
    (one.api_version, one.kind): one for one in vars(resources).values() if isinstance(one, Resource)
}


@dataclass(frozen=True)
class SimulationSetting:
    """What is simulated, apart from chance.

    Attributes:
        day: what happens.
        objects: what is there when it begins, as in manifests: NodePools, NodeClasses, DaemonSets, PodDisruptionBudgets, priorities.
        offer: what nodes can be had.
        options: of the provisioner.
        boot_seconds: see `SimulatedCloud`.
        pass_interval: see `AttendedManager`.
        policy: by whose rules nodes are launched and disrupted.
        extender: whether the scheduler extender is installed.
        market: None where every launch succeeds and no instance is interrupted; then the day has no shortages either.
    """

    day: Day
    objects: tuple[dict[str, Any], ...]
    offer: Offer
    options: Options
    boot_seconds: tuple[float, ...]
    pass_interval: float = 0.0
    policy: Policy = Policy.DOVETAIL
    market: Market | None = None
    extender: bool = False


class _Silent(Recorder):
    """Publishes nothing."""

    def publish(self, *_: object, **__: object) -> None:
        """Nobody reads it."""


def simulated(setting: SimulationSetting, seed: int) -> Figures:
    """Run the day once. The same setting and seed give the same figures, on any machine.

    Raises:
        SimulationError: it cannot be simulated.
    """
    run = _Run(setting, seed)
    try:
        return run.figures()
    finally:
        run.stop()


class _Run:
    def __init__(self, setting: SimulationSetting, seed: int) -> None:
        self._setting, self._seed = setting, seed
        self._chance = random.Random(seed)
        self._clock = VirtualClock()
        self._agenda = Agenda(self._clock)
        self.server = ApiServer(self._clock)
        self._ledger = Ledger()
        self._changed: dict[str, None] = {}
        self._requests = 0
        self._failed = ""
        self._heard: float = -inf
        self._planners: list[PatientPlanner] = []
        self._owners = Owners(self.server, self._clock, self._agenda)
        self._scheduler = KubeScheduler(self.server, self._clock, self._agenda, self._child())
        kubelets = Kubelets(self.server, self._clock, self._agenda, self._owners.lifetime, self._owners.finished)
        budgets = Budgets(self.server, self._agenda, self._owners.wanted)
        self._stock, self._spot = self._traded()
        self._listeners = [self._count, self._scheduler.heard, self._owners.heard, kubelets.heard, budgets.heard]
        if self._spot is not None:
            self._listeners.append(self._spot.heard)
        if setting.extender:
            extender = SimulatedExtender(self.server, self._clock, self._agenda, self._reported)
            self._listeners.append(extender.heard)
            self._scheduler.extender = extender
        self._scheduler.preempted = self._preempted
        self.server.told = self._told
        self.server.evicted = self._evicted
        self._clock.passing = self._pass
        for one in setting.objects:
            self._store(one)
        self._policy = PolicyRules(setting.policy, setting.pass_interval)
        self._manager = AttendedManager(
            self._clock,
            self._child(),
            interval=setting.pass_interval,
            left_out=LEFT_OUT,
            wanted=self._policy.due,
        )
        self._term = self._made()

    def _child(self) -> random.Random:
        """Chance of its own for somebody, so that nobody's draws depend on how often others draw."""
        return random.Random(self._chance.getrandbits(64))

    def _traded(self) -> tuple[SimulatedStock | None, SpotInterruptions | None]:
        """What may be short, and what may be interrupted."""
        setting = self._setting
        market, listed = setting.market, [one for one in setting.day.changes if isinstance(one, Shortage)]
        if market is None:
            if listed:
                raise SimulationError("the day has shortages, but nothing says how the cloud answers them")
            return None, None
        supply = Supply(self._seed, market.shortage_share, market.shortage_seconds, listed)
        spot = SpotInterruptions(
            self.server,
            self._clock,
            self._agenda,
            self._ledger,
            market.manners,
            market.interruptions_per_hour,
            Chance(self._seed, "interruptions"),
            Replacing(self._owners.place_of, self._owners.misses),
        )
        return SimulatedStock(self._clock, supply, market.manners), spot

    def _made(self) -> Term:
        clock, setting = self._clock, self._setting
        options = self._policy.options(setting.options)
        connection = MemoryConnection(self.server, clock, self)
        lease = LeaseTerm()
        client = Client(connection, clock, lease, self._child())
        self._caches = caches = Caches(connection, options, clock)  # type: ignore[arg-type]
        cloud = SimulatedCloud(
            self.server,
            clock,
            self._agenda,
            self._child(),
            setting.offer,
            self._ledger,
            pool_of=caches.pools.store.get,
            overlaid=caches.overlays.applied,
            boot_seconds=setting.boot_seconds,
            stock=self._stock,
            spot=self._spot,
        )
        caches.use_types(cloud.types)
        self._watches: list[Reflector[Any]] = list(caches.all)
        self._deliver(everything=True)
        caches.carry_out(caches.cluster.settle())
        lease.begin(Fence(clock, inf))
        machinery = Machinery(self._attend, InlinePool, self._planner, self._child, self._policy.rules)
        return Term(caches, client, cloud, _Silent(client, "simulator", clock), options, clock, machinery)

    def _attend(self, _: Clock) -> AttendedManager:
        return self._manager

    def _planner(self, _: Clock) -> PatientPlanner:
        self._planners.append(PatientPlanner())
        return self._planners[-1]

    # ------------------------------------------------------------------ running

    def figures(self) -> Figures:
        """Run to the end."""
        day = self._setting.day
        for number, change in enumerate(day.changes):
            self._agenda.after(change.at, partial(self._happen, number, change))
        self._term.start()
        while True:
            self._settle()
            failed = self._failed or next((one.failed for one in self._planners if one.failed), "")
            if failed:
                raise SimulationError(failed)
            following = min(self._agenda.next_time(), self._manager.next_time(), self._quiet_until)
            if following >= day.duration_seconds:
                break
            self._clock.seconds = max(self._clock.seconds, following)
        self._clock.seconds = day.duration_seconds
        searches = sum(one.searches for one in self._planners)
        found = self._ledger.figures(self._seed, day.duration_seconds, self._manager.rounds, self._requests, searches)
        return replace(found, notes=self._owners.notes)

    def stop(self) -> None:
        """End the term, whose metrics would keep the cluster, and the planning processes."""
        self._term.stop()
        for one in self._planners:
            one.stop()
            one.tidy()  # closes its pipes: no other thread reads them

    @property
    def _quiet_until(self) -> float:
        """When watches tell everything again; one sum for all who ask, since a difference may round to less for ever."""
        return self._heard + QUIET_SECONDS

    def _settle(self) -> None:
        """Everybody does what is due at this instant."""
        for _ in range(MOST_TURNS):
            self._world(self._clock.seconds)
            if not self._manager.turn():
                return
        raise SimulationError(
            f"the controllers do not come to rest at {self._clock.seconds:.3f} s; please report this with the input"
        )

    def _world(self, until: float) -> None:
        """What is around the controllers goes on until then, and they hear of it."""
        while True:
            if self._agenda.next_time() <= self._clock.seconds:
                self._agenda.turn(self._clock.seconds)
            elif self._changed:
                self._deliver()
            elif not self._agenda.turn(until):
                break
        if self._clock.seconds >= self._quiet_until:
            self._deliver(everything=True)

    def _pass(self, seconds: float) -> None:
        """A controller sleeps: kubelets and kube-scheduler do not."""
        until = self._clock.seconds + seconds
        self._world(until)
        self._clock.seconds = max(self._clock.seconds, until)

    def _deliver(self, *, everything: bool = False) -> None:
        """Watches tell what has changed."""
        if everything:
            self._heard = self._clock.seconds
        changed, self._changed = self._changed, {}
        for watch in self._watches:
            if everything or watch.resource.plural in changed:
                watch.step()
                if watch.error is not None:
                    raise SimulationError(f"the watch of {watch.resource} failed: {watch.error}")
        for plural in changed:
            if plural not in self._changed:
                self.server.forget(plural)

    # ------------------------------------------------------------------ what happens

    def _happen(self, number: int, change: workloads.Change) -> None:
        try:
            match change:
                case Arrival():
                    self._owners.arrive(change)
                case Scale():
                    self._owners.scale(change)
                case End():
                    self._owners.end(change)
                case Apply():
                    self._store(change.object)
                case Shortage():
                    pass  # `Supply` knows it since the beginning
        except SimulationError as error:
            self._failed = f"changes[{number}]: {error}"  # a controller that sleeps meanwhile would only log it
            raise SimulationError(self._failed) from None

    def _store(self, wire: dict[str, Any]) -> None:
        """An object of the user's, as the API server keeps it.

        Raises:
            SimulationError: nobody serves its kind.
        """
        kind = RESOURCES.get((wire.get("apiVersion", ""), wire.get("kind", "")))
        if kind is None:
            raise SimulationError(f"{wire.get('kind')} of {wire.get('apiVersion')} cannot be simulated; leave it out")
        meta = {**({"namespace": "default"} if kind.namespaced else {}), **wire["metadata"]}
        known = self.server.get(kind.plural, meta["name"], meta.get("namespace", ""))
        if known is not None:
            meta = {**known["metadata"], **meta}
        status = known.get("status", {}) if known is not None else wire.get("status", {})
        self.server.store(kind.plural, {**wire, "metadata": meta, "status": status})

    def _told(self, change: ServerChange) -> None:
        self._changed[change.plural] = None
        if change.by is self:
            self._requests += 1
        for listener in self._listeners:
            listener(change)

    def _count(self, change: ServerChange) -> None:
        if change.plural != "pods":
            return
        now = self._clock.seconds
        before, after = change.before, change.after
        if before is None and after is not None and not after["spec"].get("nodeName"):
            self._ledger.pod_created(after["metadata"]["uid"], now)
        elif after is None and before is not None:
            self._ledger.pod_gone(before["metadata"]["uid"], now)
        elif before is not None and after is not None and after["spec"].get("nodeName"):
            self._ledger.pod_bound(after["metadata"]["uid"], now)

    def _evicted(self, _: object, pod: dict[str, Any]) -> None:
        """Why: what the NodeClaim of its node says."""
        self._ledger.evictions[self._reason(pod["spec"].get("nodeName", ""))] += 1

    def _reported(self, reports: tuple[PodReport, ...]) -> None:
        """The extender tells the provisioner of pods that it left without a node."""
        self._term.reported(reports)

    def _preempted(self, _: object) -> None:
        """kube-scheduler deletes a pod for a more important one: no eviction to its API, but one to its owner."""
        self._ledger.evictions[_PREEMPTED] += 1

    def _reason(self, node_name: str) -> str:
        node = self._caches.cluster.node(node_name)
        claim = self._caches.cluster.claim_of(node) if node is not None else None
        found = condition(claim.status.conditions, names.DISRUPTION_REASON) if claim is not None else None
        if found is not None and found.reason:
            return found.reason
        return _INTERRUPTED if claim is not None and interruption_of(claim.metadata.annotations) else "Other"
