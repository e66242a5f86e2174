"""The controllers of this room: which nodes that still work are ended, by command and by force, and what is said of drift."""

from collections.abc import Callable, Sequence

from provisioner.apis.command import CommandRecord
from provisioner.buffers.virtual_pods import RoomKeeper
from provisioner.disruption import deletion_cost_controller
from provisioner.disruption.autoscaler_discovery import autoscaler_controllers
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.commands.queue import CommandQueue
from provisioner.disruption.controller import CONSOLIDATIONS, METHODS, DisruptionController, Method, settings_of
from provisioner.disruption.deletion_cost_controller import DeletionCosts
from provisioner.disruption.deletion_ranks import node_order
from provisioner.disruption.drift_controller import DriftController
from provisioner.disruption.forceful.controller import ForcefulDisruption
from provisioner.disruption.loop_detector import LoopDetector
from provisioner.disruption.node_health import NodeHealth, repair_policies_of, share_of
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.reboots.controller import Reboots
from provisioner.disruption.rebuilding_planner import Rebuilding
from provisioner.nodeclaims.creator import ClaimCreator
from provisioner.nodeclaims.writers import Writers
from provisioner.provisioning.worlds import Worlds
from provisioner.runtime.base import Base
from provisioner.runtime.changes import NodeChanged, NodeClaimChanged, NodeClassChanged, NodePoolChanged
from provisioner.runtime.controller import Controller
from provisioner.termination.ends import Ends
from provisioner.termination.rebooting_taint import RebootingTaints

#: Threads that look for drift.
DRIFT_WORKERS = 4


def disruptions(
    base: Base,
    writing: Writers,
    ending: Ends,
    creator: ClaimCreator,
    ledger: BudgetLedger,
    loops: LoopDetector,
    buffers: RoomKeeper,
    rebuilding: Rebuilding,
    begun: Callable[[CommandRecord, Proposal], None] = lambda _record, _proposal: None,
    *,
    instead: Sequence[Method] | None = None,
) -> tuple[CommandQueue, DisruptionController, ForcefulDisruption, Reboots]:
    """Who ends nodes that still work: by command, as is decided by the second, and by force; and who reboots them.

    `instead`: methods that are asked in place of all of ours, consolidation included.
    """
    caches, cluster, options, clock = base.caches, base.cluster, base.options, base.clock
    legacy = options.legacy_node_repair
    health = NodeHealth(cluster, clock, repair_policies_of(options, base.provider.repair_policies(legacy=legacy)))
    commands = CommandQueue(
        cluster,
        base.client,
        writing.claims,
        creator,
        writing.plans,
        base.recorder,
        ending.taints,
        ending.terminator,
        clock,
        stale=caches.disruption_is_stale,
        timeout=options.timeouts.command,
        pause=caches.pause,
        loops=loops,
        postponed=ending.live.postponed,
        is_broken=health.is_broken,
        begun=begun,
        chance=base.chance(),
    )
    reboots = Reboots(
        cluster,
        base.provider_for("nodeclaim.reboot"),
        writing.claims,
        RebootingTaints(base.client, told=writing.claims.node_written),
        ending.evictions,
        ledger,
        base.recorder,
        clock,
        is_broken=health.is_broken,
        stale=caches.disruption_is_stale,
        pause=caches.pause,
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
        ill=(lambda _: {}) if legacy else health.at,
        buffers=buffers,
        methods=METHODS if instead is None else instead,
        consolidations=CONSOLIDATIONS if instead is None else (),
        rebuilding=rebuilding if instead is None else None,
        reboots=reboots,
        precedence=base.precedence,
    )
    forceful = ForcefulDisruption(
        cluster,
        writing.claims,
        base.recorder,
        ledger,
        clock,
        health=health,
        breaker=share_of(options),
        legacy=legacy,
        stale=caches.disruption_is_stale,
        pause=caches.pause,
        postponed=ending.live.postponed,
    )
    return commands, voluntary, forceful, reboots


def controllers(
    base: Base,
    writing: Writers,
    commands: CommandQueue,
    voluntary: DisruptionController,
    forceful: ForcefulDisruption,
    reboots: Reboots,
) -> list[Controller]:
    """Those that decide, and those that carry out, which come last: a pass that ends may still hand them work."""
    cluster = base.cluster
    drift = DriftController(
        cluster, base.provider_for("nodeclaim.disruption"), writing.claims, base.clock, pool=base.caches.pools.store.get
    )
    costs = DeletionCosts(
        cluster,
        base.client,
        base.clock,
        lambda snapshot: node_order(voluntary.view(snapshot, first=frozenset(), expired=lambda: False)),
        enabled=base.options.feature_gates.pod_deletion_cost_management,
        stale=base.caches.disruption_is_stale,
        beside=base.caches.beside,
        most=deletion_cost_controller.MOST_WRITES,
    )
    deciding, consolidating = voluntary.pollers
    return [
        Controller(
            name="nodeclaim.disruption",
            reconcile=drift.reconcile,
            workers=DRIFT_WORKERS,
            watches=dict.fromkeys((NodeClaimChanged, NodePoolChanged, NodeClassChanged), drift.heard),
            initial=lambda: [claim.name for claim in cluster.claims()],
        ),
        Controller(runner=voluntary.tells, last=True),
        Controller(
            runner=commands.queue,
            watches={NodeClaimChanged: lambda change: commands.heard(change.latest)},
            initial=commands.written,
            last=True,
        ),
        Controller(runner=commands.heals, last=True),
        Controller(
            runner=reboots.queue,
            watches={
                NodeClaimChanged: lambda change: reboots.claim_heard(change.latest),
                NodeChanged: lambda change: reboots.node_heard(change.latest),
            },
            initial=reboots.initial,
            last=True,
        ),
        Controller(runner=deciding, closing=voluntary.close),
        Controller(runner=consolidating),
        Controller(runner=forceful.queue),
        Controller(runner=forceful.poller),
        Controller(name=deletion_cost_controller.CONTROLLER, poll=costs.poll, closing=costs.close),
        *autoscaler_controllers(base),
    ]
