"""The controllers of this room, and who writes NodeClaims for everybody."""

from dataclasses import dataclass
from itertools import chain
from typing import Final

from provisioner.nodeclaims.plan_writer import NodePlanRemover, PlanWriter
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime.base import Base
from provisioner.runtime.changes import NodeChanged
from provisioner.runtime.controller import Controller, Keys
from provisioner.support.workers import WorkerPool

#: Threads that write at once, for creations and for everything else; on two cores more only wait for each other.
WRITERS: Final = 12
#: A plan that waits behind a hundred creations is too late: its room is taken before the extender hears of it.
PLAN_WRITERS: Final = 4


@dataclass(frozen=True)
class Writers:
    """Who writes NodeClaims and plans, and in which threads."""

    creates: WorkerPool
    notes: WorkerPool
    claims: ClaimWriter
    plans: PlanWriter


def writers(base: Base) -> Writers:
    """The writing of NodeClaims, and of the plans on them."""
    notes, claims = WorkerPool(PLAN_WRITERS, "plans"), ClaimWriter(base.client, base.cluster, base.caches.carry_out)
    return Writers(WorkerPool(WRITERS, "creates"), notes, claims, PlanWriter(base.cluster, claims, notes))


def controllers(base: Base, writing: Writers) -> list[Controller]:
    """What removes the plans that earlier versions wrote on Nodes; the threads of all writers are closed with it."""
    remover = NodePlanRemover(base.client, base.clock)

    def node_heard(change: NodeChanged) -> Keys | None:
        if change.new is not None:
            return remover.seen(change.new)
        remover.gone(change.latest.metadata.name)
        return None

    return [
        Controller(
            name="node-plan",
            reconcile=remover.reconcile,
            watches={NodeChanged: node_heard},
            initial=lambda: chain.from_iterable(map(remover.seen, base.caches.nodes.store.list())),
            pools=(writing.creates, writing.notes),
        )
    ]
