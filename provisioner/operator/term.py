"""One term of the leader: its controllers as one list, made of the lists of all rooms, and what is told beside them.

The rooms are lent here what they share. Which controllers there are, and what each looks at after which change, is said in the function `controllers` of
each room.
"""

from collections.abc import Iterable

from provisioner.apis.reports import PodReport
from provisioner.buffers import controller as buffers
from provisioner.cloudprovider.overlays import overlaid
from provisioner.clouds import Cloud
from provisioner.disruption import controllers as disruption
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.loop_detector import LoopDetector
from provisioner.disruption.rebuilding_planner import PATIENT, Rebuilding
from provisioner.history.leader import LeaderHistory
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.lifecycle import controllers as lifecycle
from provisioner.lifecycle.nominations import Nominations
from provisioner.lifecycle.steering import Steering
from provisioner.nodeclaims import controllers as nodeclaims
from provisioner.nodeclaims.creator import ClaimCreator
from provisioner.nodeclaims.growth_ledger import GrowthLedger, limits_of
from provisioner.nodeclaims.writers import WRITERS, writers
from provisioner.nodepools import controllers as nodepools
from provisioner.nodepools.controller import PoolHealth
from provisioner.observability import gangs
from provisioner.observability.collector import MetricsObserver
from provisioner.observability.transitions import Transitions
from provisioner.operator import certificates
from provisioner.operator.effects import TermEffects
from provisioner.operator.machinery import Machinery
from provisioner.options import Options
from provisioner.packing.planner import Planner
from provisioner.provisioning import controllers as provisioning
from provisioner.provisioning.batcher import Intake
from provisioner.provisioning.expected_pods import ExpectedPods
from provisioner.provisioning.provisioner import ProvisioningController, policies_of
from provisioner.provisioning.scheduler_liveness import SchedulerLiveness
from provisioner.provisioning.worlds import Worlds
from provisioner.requests import controller as requests
from provisioner.requests.discovery import request_watch
from provisioner.requests.reserving import ReservationWriter
from provisioner.runtime import metrics
from provisioner.runtime.base import Base
from provisioner.runtime.caches import Caches, store_of
from provisioner.runtime.controller import Controller
from provisioner.scheduling.problem import Packing
from provisioner.shares import controller as shares
from provisioner.static import controller as static
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.poller import Poller
from provisioner.support.precedence import Precedence
from provisioner.termination import controllers as termination
from provisioner.termination.ends import ends
from provisioner.why.leader import LeaderInstant, LeaderMemory

#: What a stop waits for at most; together with the last writes well below the 30 s that Kubernetes gives (`main.STOP_SECONDS`).
STOP_SECONDS = 5.0
WRITERS_STOP_SECONDS = 2.0
HOUSEKEEPING_PATIENCE_SECONDS = 300.0
EXPIRE_SECONDS = 1.0
_log = logs.get_logger(__name__)


class Term:
    """What the leader runs; made anew for every term.

    Attributes:
        history: what has happened since the term began.
    """

    def __init__(
        self,
        caches: Caches,
        client: Client,
        cloud: Cloud,
        recorder: Recorder,
        options: Options,
        clock: Clock,
        machinery: Machinery = Machinery(),  # noqa: B008  (frozen)
    ) -> None:
        self.manager, self._steering = machinery.manager(clock), Steering(options.nominate, clock)
        steers = self._steering.steers
        rules = machinery.rules
        wanted = options.packing == Packing.COST and rules is None
        planner = Planner(machinery.planner(clock), clock, steers=steers, wanted=wanted)
        precedence = Precedence(clock)
        self._intake = Intake(
            caches.cluster,
            clock,
            idle=options.batch_idle_duration,
            longest=options.batch_max_duration,
            gathering=planner.expect,
            expected=ExpectedPods(caches.cluster, client, clock)
            if options.batch_idle_duration == Options().batch_idle_duration and rules is None
            else None,
            precedence=precedence,
        )
        self._base = base = Base(
            caches,
            client,
            overlaid(cloud.provider, caches.overlays),
            recorder,
            options,
            policies_of(options),
            clock,
            self.manager,
            self._intake.trigger,
            precedence,
            machinery.pool,
            machinery.chance,
        )
        writing = writers(base)
        ending = ends(base, writing)
        threads = base.pool(WRITERS, "registration")
        self._nominations = Nominations(
            caches.cluster,
            client,
            threads,
            clock,
            pods=caches.pods.store.list,
            steering=self._steering,
            defaults=base.policies.spread,
        )
        self._effects = TermEffects(base, writing, self._nominations, self._steering)
        self._observer = observer_of(base)
        self._transitions = Transitions(recorder, clock)
        self._scheduler_liveness = SchedulerLiveness(
            caches.cluster.waiting, recorder, clock, client, caches.cluster.is_unanswered
        )
        growth = GrowthLedger(
            caches.cluster, limits_of(options), caches.types_of, clock, caches.beside, caches.launch_paused
        )
        creator = ClaimCreator(
            client,
            caches.cluster,
            writing.plans,
            effects=caches.carry_out,
            created=lambda claim: base.claim_again(claim.name),
            chance=base.chance(),
            growth=growth,
        )
        self.history = LeaderHistory(base)
        ledger, loops = BudgetLedger(caches.cluster, most=options.max_disrupting_nodes), LoopDetector(recorder, clock)
        capacity_buffers = buffers.CapacityBuffers(
            client,
            clock,
            store_of(caches.buffer_objects),
            admission=caches.admission,
            facts=caches.stamping_facts,
            plan_again=base.plan_again,
        )
        request_objects = request_watch(base)
        reservations = ReservationWriter(caches.cluster.claims, caches.cluster.claim, writing.claims, clock)
        self._requests = requests.ProvisioningRequests(
            client,
            recorder,
            clock,
            request_objects.found,
            options.provisioning_classes,
            admission=caches.admission,
            facts=capacity_buffers.stamping,
            plan_again=base.plan_again,
            reserve=reservations.reserve,
        )
        provisioner = ProvisioningController(
            caches.cluster,
            creator,
            base.provider_for("provisioner"),
            recorder,
            writing.creates,
            clock,
            retry=base.plan_again,
            chance=base.chance(),
            plans=writing.plans,
            policies=base.policies,
            deadline=options.timeouts.solve,
            retry_after=self._intake.trigger_after,
            marks=loops.marks,
            buffers=capacity_buffers,
            requests=self._requests,
            decided=self._decided,
            improve=lambda prepared, result: planner.planned(prepared, result, self._intake.remaining()),
            # what is taken back counts against growth limits until it is gone: its pods might be held back
            taken_back=caches.carry_out if limits_of(options).none and rules is None else None,
            solve=rules.solve if rules is not None else None,
            reported=self.history.planned,
        )
        rebuilding = Rebuilding(Planner(machinery.planner(clock), clock, PATIENT, steers=steers), clock)
        commands, voluntary, forceful, reboots = disruption.disruptions(
            base,
            writing,
            ending,
            creator,
            ledger,
            loops,
            requests.VirtualPods(capacity_buffers, self._requests),
            rebuilding,
            self.history.begun,
            instead=rules.methods if rules is not None else None,
        )
        self._known = LeaderMemory(
            caches,
            voluntary,
            forceful,
            ledger,
            growth,
            ending.live.waiting,
            lambda: provisioner.failed_groups,
            self._requests.held,
            Worlds(base.provider_for("why"), base.policies),
            clock,
        )
        health = PoolHealth(base.pool_again)
        housekeeping = Poller(
            "housekeeping",
            self._keep_house,
            EXPIRE_SECONDS,
            first=EXPIRE_SECONDS,
            patience=HOUSEKEEPING_PATIENCE_SECONDS,
        )
        for rows in (
            termination.guarding(ending),
            # before the launches of an earlier process are gone on with, which may wait for EC2: an interruption does not
            cloud.controllers(base, writing, ending, ledger),
            lifecycle.controllers(
                base,
                writing,
                ending,
                self._nominations,
                threads,
                health,
                fits_elsewhere=provisioner.planning.fits_elsewhere,
                uncertain=cloud.is_uncertain,
            ),
            nodeclaims.controllers(base, writing),
            termination.controllers(base, writing, ending),
            nodepools.controllers(base, writing, health),
            provisioning.controllers(base, self._intake, planner, provisioner),
            static.controllers(base, writing, ending, creator, ledger),
            buffers.controllers(base, capacity_buffers),
            requests.controllers(base, self._requests, reservations, request_objects),
            disruption.controllers(base, writing, commands, voluntary, forceful, reboots),
            shares.controllers(base, ending),
            gangs.controllers(base),
            self.history.controllers(),
            certificates.controllers(base),
            [Controller(runner=housekeeping, waited=False)],
        ):
            self.manager.take(rows)

    def start(self) -> None:
        """Begin to act on everything that the caches hold."""
        caches, effects = self._base.caches, self._effects
        caches.effects, caches.unreadable = effects.carry_out, effects.tell_unreadable
        for one in caches.all:
            for bad in tuple(one.bad.values()):
                if bad.left_out:
                    effects.tell_unreadable(one.resource, bad.identity, bad.problem)
        effects.carry_out(self._base.cluster.unreadable_daemon_sets())
        for listener in (
            self.manager.heard,
            self._transitions.heard,
            self._scheduler_liveness.heard,
            self.history.heard,
        ):
            caches.listen(listener)
        self._base.recorder.heard = self.history.said
        if self._observer is not None:
            caches.listen(self._observer.heard)
            self._observer.start()
        self.manager.start()
        effects.carry_out(self._base.cluster.unneeded())  # nobody carried out what a standby was told

    def stop(self) -> None:
        """Finish what is under way and act no more."""
        if self._observer is not None:
            self._observer.stop()
        if hang := self.manager.stop(STOP_SECONDS, WRITERS_STOP_SECONDS):
            _log.warning("Stopped before all work had finished; the next leader continues it", unfinished=hang)

    def instant(self) -> LeaderInstant:
        """Now, with everything that this term remembers; for whoever asks why. Cost: what changed since somebody looked last."""
        return self._known.now()

    def reported(self, reports: tuple[PodReport, ...]) -> None:
        """The extender left these pods without a node."""
        self._steering.heard()
        metrics.REPORTED_PODS.inc(len(reports))
        self._intake.report([report.uid for report in reports])

    def _decided(self, placed: Iterable[str], left: Iterable[str]) -> None:
        if self._observer is not None:
            self._observer.times.decided(placed, left)

    def _keep_house(self) -> float:
        self._effects.carry_out(self._base.cluster.expire())
        self._nominations.review()
        self._scheduler_liveness.look()
        metrics.state(self._base.cluster.snapshot())
        return EXPIRE_SECONDS


def observer_of(base: Base) -> MetricsObserver | None:
    """Who writes the metrics of single objects; None where they are switched off."""
    caches, cluster = base.caches, base.cluster
    if base.options.disable_cluster_state_observability:
        return None
    return MetricsObserver(
        cluster.snapshot,
        caches.nodes.store.list,
        caches.pods.store.list,
        cluster.claims,
        caches.pools.store.list,
        caches.types_of,
        base.provider.well_known_labels,
        base.clock,
        buffers=caches.buffer_objects.store.list if caches.buffer_objects is not None else lambda: (),
        classes=caches.classes.store.list,
    )
