"""One instant as the provisioner that leads knows it: its caches, its provider's instance types, and what it remembers of this term."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.core import Node
from provisioner.apis.pods import Pod
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.controller import DisruptionController
from provisioner.disruption.forceful.controller import ForcefulDisruption
from provisioner.disruption.forceful.repair import RepairDecision
from provisioner.disruption.view import DisruptionView
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.provisioning.worlds import Worlds
from provisioner.runtime.caches import Caches
from provisioner.scheduling.prepared import Prepared
from provisioner.state.gang_places import GangStanding
from provisioner.state.pause import Pause
from provisioner.state.snapshot import Snapshot
from provisioner.support.clock import Clock
from provisioner.why.instant import Memory

SECONDS: Final = 4.0
"""Longest time of one plan and of one pass: the leader has other work."""


@dataclass(frozen=True)
class LeaderMemory:
    """The parts of a term that are asked."""

    caches: Caches
    disruption: DisruptionController
    forceful: ForcefulDisruption
    ledger: BudgetLedger
    growth: GrowthLedger
    postponed: Callable[[], Mapping[str, str]]
    failed_groups: Callable[[], Sequence[str]]
    held: Callable[[], Mapping[str, tuple[str, str]]]
    worlds: Worlds
    clock: Clock

    def now(self) -> "LeaderInstant":
        return LeaderInstant(self, self.caches.cluster.snapshot())


@dataclass(frozen=True)
class LeaderInstant:
    """A `why.instant.Instant`; its questions may be a moment apart."""

    known: LeaderMemory
    snapshot: Snapshot

    @property
    def types(self) -> Worlds:
        """Instance types as the provider has them now, with what it learnt, what was refused to it, discounts and reservations."""
        return self.known.worlds

    @functools.cached_property
    def prepared(self) -> Prepared:
        """Its world, which is the one of disruption."""
        return self.known.disruption.worlds.at(self.snapshot)

    @property
    def pause(self) -> Pause:
        return self.known.caches.pause()

    @functools.cached_property
    def memory(self) -> Memory:
        """What this term remembers."""
        why = self.known.caches.disruption_is_stale()
        names = {str(one.key): one.name for one in self.snapshot.nodes}
        return Memory(
            leads=True,
            behind=f"nothing is disrupted while {why}" if why else "",
            answers=self.known.disruption.answers(),
            refused=tuple((pod, names.get(node, "")) for pod, node in self.known.disruption.worlds.refused()),
            postponed=self.known.postponed(),
            failed_groups=self.known.failed_groups(),
            held=self.known.held(),
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """NodePools of which the provider knows nothing."""
        return tuple(
            f"The instance types of NodePool {one.pool.name} are another provider's, so the answer leaves out its new nodes"
            for one in self.snapshot.pools
            if not self.types.manages(one.pool)
        )

    @property
    def seconds(self) -> float:
        return SECONDS

    def view(self, key: str) -> DisruptionView:
        """What the next pass would look at."""
        end = self.known.clock.monotonic() + SECONDS
        return self.known.disruption.view(
            self.snapshot, first=frozenset({key}), expired=lambda: self.known.clock.monotonic() >= end
        )

    def budgets(self) -> AllowanceLedger:
        return self.known.ledger.at(self.snapshot)

    @functools.cached_property
    def repairs(self) -> RepairDecision:
        return self.known.forceful.decide_repairs(self.snapshot)

    def pod(self, namespace: str, name: str) -> Pod | None:
        return self.known.caches.pods.store.get(f"{namespace}/{name}")

    def node(self, name: str) -> Node | None:
        return self.known.caches.nodes.store.get(name)

    def gang(self, key: str) -> GangStanding | None:
        return self.known.caches.cluster.gang_standing(key)

    def attached(self, node: str) -> tuple[str, ...]:  # noqa: ARG002 - the protocol's argument
        """Nobody watches VolumeAttachments; the condition VolumesDetached tells."""
        return ()

    def held_back(self, prices: Sequence[float]) -> Sequence[str]:
        """What --max-claims-per-minute and --max-usd-per-hour leave."""
        return self.known.growth.problems(prices)

    @property
    def usd_left(self) -> float:
        """What --max-usd-per-hour leaves."""
        return self.known.growth.usd_left()
