"""Says of a run's outcome what users read: on pods that wait, on NodePools, and in series."""

import functools
from collections.abc import Callable, Iterable

from provisioner.apis.gangs import group_of, of_request, told
from provisioner.apis.karpenter import NodePool
from provisioner.apis.launch_sets import LaunchSet
from provisioner.apis.pods import Pod
from provisioner.kube.errors import ApiError
from provisioner.kube.events import Recorder
from provisioner.lifecycle.gang_decisions import purchase
from provisioner.nodeclaims.creator import claim_refused
from provisioner.nodeclaims.growth_ledger import pool_held_back
from provisioner.provisioning import failed_scheduling as events
from provisioner.provisioning.outcomes import BatchOutcome, ClaimHeldBack
from provisioner.provisioning.worlds import Worlds
from provisioner.runtime import metrics
from provisioner.runtime.object_reference import pod_reference, reference_of, tell_gang
from provisioner.scheduling.result import PlannedClaim
from provisioner.scheduling.world import UnreadablePool
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import Snapshot
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.values.message import EventMessage
from provisioner.values.printable import counted

_log = logs.get_logger(__name__)
_MOST_LOOKED_AT = 200
"""Classes of pods in one pass for which the NodePools that they might go to are told apart from others."""


class BatchTelling:
    """Tells of one run after another; `refused` and `nominated` may be called in any thread.

    Args:
        retry_after: is told in how many seconds limits allow more.
    """

    def __init__(
        self, cluster: Cluster, recorder: Recorder, worlds: Worlds, clock: Clock, retry_after: Callable[[float], None]
    ) -> None:
        self._cluster, self._recorder, self._worlds, self._clock = cluster, recorder, worlds, clock
        self._retry_after = retry_after
        self._told = events.ToldPods()

    def outcome(self, snapshot: Snapshot, outcome: BatchOutcome) -> None:
        """What is not launched, and which pods have no place."""
        self._held_back(outcome.held)
        self._complain(snapshot, outcome)

    def unreadable(self, pools: Iterable[UnreadablePool]) -> None:
        """Fields of NodePools that nobody understands, and that are ignored."""
        for one in pools:
            if not one.left_out:
                message = EventMessage(
                    "Warning",
                    "InvalidAnnotation",
                    f"{one.error}. The default applies until the value is corrected or removed",
                )
                self._recorder.publish(reference_of(one.pool), *message, ttl=600.0)

    def refused(self, planned: PlannedClaim, error: ApiError) -> None:
        """The API server did not take a NodeClaim."""
        dedupe = (planned.pool,)  # the message names the claim
        if isinstance(planned.template, NodePool):
            message = claim_refused(error.message)
            self._recorder.publish(reference_of(planned.template), *message, dedupe, ttl=60.0)
        message = EventMessage(
            "Warning",
            "FailedScheduling",
            f'Failed to schedule pod, NodePool "{planned.pool}": could not create a NodeClaim: {error.message}',
        )
        for pod in planned.pods:
            self._recorder.publish(pod_reference(pod), *message, (pod.uid,), ttl=300.0)

    def nominated(self, target: str, pods: Iterable[Pod]) -> None:
        """Where pods have a place."""
        for pod in pods:
            self._recorder.publish(pod_reference(pod), "Normal", "Nominated", f"Pod should schedule on: {target}")

    def gangs(self, company: Iterable[tuple[PlannedClaim, Iterable[LaunchSet]]]) -> None:
        """New nodes of gangs are being created."""
        nodes: dict[str, list[PlannedClaim]] = {}
        for planned, sets in company:
            for one in sets:
                nodes.setdefault(one.group, []).append(planned)
        for key, some in nodes.items():
            if of_request(key):
                continue  # its conditions tell
            count, pods, usd, usd_lost = purchase(key, some)
            at_risk = (
                f". If one of them cannot be launched, the others cost up to ${usd_lost:.4f} before they are given up"
                if count > 1
                else ""
            )
            tell_gang(
                self._recorder,
                self._cluster,
                key,
                EventMessage(
                    "Normal",
                    "GangPlanned",
                    f"Planned {counted(count, 'new node')} for {counted(pods, 'pod')} of {told(key)}, "
                    f"for ${usd:.4f} per hour{at_risk}",
                ),
            )

    def _held_back(self, held: Iterable[ClaimHeldBack]) -> None:
        """Say on NodePools what growth limits hold back, and come back when they allow more."""
        by_pool: dict[tuple[str, str], list[ClaimHeldBack]] = {}
        for one in held:
            by_pool.setdefault((one.planned.pool, one.error.held.limit), []).append(one)
        metrics.HELD_BACK.replace("all", ((key, len(some)) for key, some in by_pool.items()))
        for (pool, limit), some in by_pool.items():
            _log.info(
                "Created fewer NodeClaims than planned because of a growth limit; the remaining pods are planned again",
                nodepool=pool,
                limit=limit,
                nodeclaims=len(some),
            )
            template = some[0].planned.template
            if isinstance(template, NodePool):
                text = pool_held_back(len(some), str(some[0].error))
                dedupe = (template.metadata.uid, limit)  # the message counts
                self._recorder.publish(reference_of(template), *text, dedupe, ttl=60.0)
        if waits := [seconds for one in held if (seconds := one.error.held.seconds) is not None]:
            self._retry_after(min(waits))

    def _complain(self, snapshot: Snapshot, outcome: BatchOutcome) -> None:
        """Say of every pod without a place why, and of every pool without instance types that it has none."""
        complaints, empty = self._left(snapshot, outcome)
        complaints += [
            events.Complaint(pod, events.stopped(stop))
            for pod in snapshot.pending
            if (stop := snapshot.stopped.get(pod.shape.key)) is not None
        ]
        if snapshot.resting:
            complaints += [
                events.Complaint(pod, events.resting(group, snapshot.resting[group].seconds))
                for pod in snapshot.pending
                if (group := group_of(pod)) in snapshot.resting
            ]
        for one in outcome.held:
            text = one.why
            complaints += [events.Complaint(pod, text) for pod in one.planned.pods]
        for due in self._told.due(complaints, self._clock.monotonic()):
            self._recorder.publish(pod_reference(due.pod), "Warning", "FailedScheduling", due.text, ttl=0)
        for view in snapshot.pools:
            if (about := empty.get(view.pool.name)) is not None:
                self._recorder.publish(reference_of(view.pool), *about, ttl=60.0)

    def _left(
        self, snapshot: Snapshot, outcome: BatchOutcome
    ) -> tuple[list[events.Complaint], dict[str, EventMessage]]:
        """Why each pod has no place, and what is to be said of NodePools by name."""
        texts: dict[tuple[int, str], tuple[str, object]] = {}  # by identity: equal pods share their reasons
        empty: dict[str, EventMessage] = {}
        complaints: list[events.Complaint] = []
        pools = [view.pool for view in snapshot.pools]
        for unplaced in outcome.result.unplaced:
            shape = unplaced.pod.shape
            key = id(unplaced.reasons), shape.key if len(texts) < _MOST_LOOKED_AT else ""
            found = texts.get(key)
            if found is None:
                meant = functools.partial(self._worlds.might_take, shape) if key[1] else events.every
                parts = events.parts_of(unplaced.reasons, pools, self._worlds.manages, meant)
                found = texts[key] = events.sentence(parts), events.gist(parts)
                empty |= events.pools_without_types(unplaced.reasons)
            complaints.append(events.Complaint(unplaced.pod, *found))
        return complaints, empty | events.pools_out_of_money(outcome.result.unplaced)
