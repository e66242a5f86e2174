"""Who writes NodeClaims and plans, for everybody."""

from dataclasses import dataclass
from typing import Final

from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime.base import Base
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
    notes, claims = base.pool(PLAN_WRITERS, "plans"), ClaimWriter(base.client, base.cluster, base.caches.carry_out)
    return Writers(base.pool(WRITERS, "creates"), notes, claims, PlanWriter(base.cluster, claims, notes))
