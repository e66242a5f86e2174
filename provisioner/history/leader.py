"""The history that the leader keeps in memory: `LeaderHistory`. A new leader begins a new one."""

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from provisioner.apis import names
from provisioner.apis.command import CommandRecord
from provisioner.apis.core import ObjectReference
from provisioner.disruption.costs import price_of
from provisioner.disruption.proposal import Proposal
from provisioner.history.decisions import batch_planned, command_begun
from provisioner.history.digest import HistoryDigest, HistoryTold
from provisioner.history.entries import HistoryEntry
from provisioner.history.fleet_pricing import FleetPricing
from provisioner.history.keeper import HistoryBounds, HistoryKeeper, HistorySources, MemorySegments
from provisioner.history.tracker import ObjectTracker
from provisioner.packing.process import PlannerProcess
from provisioner.provisioning.outcomes import BatchOutcome
from provisioner.provisioning.planning import BatchPlan
from provisioner.provisioning.worlds import Worlds
from provisioner.runtime.base import Base
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import Change
from provisioner.runtime.controller import Controller


class LeaderHistory:
    """Nothing is kept, and nobody asked, where `--history-duration` is 0. Any thread may tell it something, and read."""

    def __init__(self, base: Base) -> None:
        options, caches = base.options, base.caches
        self._bounds: Final = HistoryBounds(options.history_duration.total_seconds(), options.history_bytes)
        self._kept = MemorySegments(self._bounds)
        self._keeper: HistoryKeeper | None = None
        self._pricing: FleetPricing | None = None
        self._digest, self._telling = HistoryDigest(), threading.Lock()
        if not options.history_duration:
            return
        self._keeper = HistoryKeeper(
            _sources(caches), self._kept, self._bounds, base.clock, source="leader", changed=None, wrote=self._wrote
        )
        self._process = PlannerProcess(base.clock)
        worlds = Worlds(base.provider_for("fleet-pricing"), base.policies)
        self._pricing = FleetPricing(base.cluster.snapshot, worlds, self._process, base.clock, self._priced)

    @property
    def since(self) -> float | None:
        """Since when it is known what happened, in seconds since 1970; None where nothing is kept."""
        return None if self._keeper is None else self._keeper.since

    def segments(self) -> tuple[bytes, ...]:
        """All of it, the oldest first; the last is still being written. For `segments.read_segment`. Cost: the last one's bytes are copied."""
        if self._keeper is None:
            return ()
        last = self._keeper.open_segment()
        return (*self._kept.segments(), *([last] if last else ()))

    def told(self) -> tuple[HistoryTold, float] | None:
        """What a page tells of it, and since when it is known; None where nothing is kept. Cost: O(what a page tells)."""
        since = self.since
        if since is None:
            return None
        with self._telling:
            return self._digest.told(since), since

    def _wrote(self, at: float, entries: Sequence[HistoryEntry]) -> None:
        with self._telling:
            self._digest.add(at, entries)

    # ------------------------------------------------------------------ telling; never waits

    def heard(self, change: Change) -> None:
        """An object changed."""
        if self._keeper is not None:
            self._keeper.heard(change)

    def said(self, reference: ObjectReference, reason: str, message: str) -> None:
        """An event was published."""
        if self._keeper is not None:
            self._keeper.said(reference.kind, reference.name, reason, message)

    def planned(self, plan: BatchPlan, outcome: BatchOutcome, usd_saved: float, seconds: float) -> None:
        """A batch was planned, and is being launched."""

        def note(tracker: ObjectTracker, _at: float) -> None:
            tracker.entry(
                batch_planned(
                    plan.question.id,
                    len(plan.question.pods),
                    outcome.result,
                    usd_saved=usd_saved,
                    usd_at_least=plan.planned.usd_at_least,
                    outcome=str(plan.planned.outcome),
                    seconds=seconds,
                )
            )

        if self._keeper is not None:
            self._keeper.tell(note)

    def begun(self, record: CommandRecord, proposal: Proposal) -> None:
        """A disruption command begins."""

        def begin(tracker: ObjectTracker, _at: float) -> None:
            tracker.command(command_begun(record, proposal, tracker.usd_of(record.candidate_names)))

        if self._keeper is not None:
            self._keeper.tell(begin)

    def _priced(self, found: HistoryEntry) -> None:
        if self._keeper is not None:
            self._keeper.tell(lambda tracker, _: tracker.entry(found))

    def controllers(self) -> list[Controller]:
        """The threads that write it, and that ask what the fleet might cost."""
        if self._keeper is None or self._pricing is None:
            return []
        return [
            Controller(runner=self._keeper.poller, waited=False),
            Controller(runner=self._pricing.poller, closing=self._process.stop, waited=False),
        ]


def _sources(caches: Caches) -> HistorySources:
    def usd(labels: Mapping[str, str], _annotations: Mapping[str, str]) -> float:
        types = caches.types_of(labels.get(names.NODEPOOL_LABEL, ""))
        return price_of(labels, types.get(labels.get(names.INSTANCE_TYPE_LABEL, "")))

    def closed() -> frozenset[tuple[str, str, str]]:
        types = {id(one): one for pool in caches.pools.store.list() for one in caches.types_of(pool.name).values()}
        return frozenset(
            [
                (one.name, offering.zone, offering.capacity_type)
                for one in types.values()
                for offering in one.offerings
                if not offering.available
            ]
        )

    return HistorySources(
        caches.pods.store.list, caches.nodes.store.list, caches.claims.store.list, caches.pools.store.list, usd, closed
    )
