"""The debug mode of the state: after every event it is made anew from the facts, and compared.

What the state keeps by increments (joins, sums, orders, views, who waits) must be what a state would come to that is told
the same facts at once. Slow: O(cluster) an event. For tests, and for hunting a defect with `--check-state`.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from provisioner.apis.command import command_on
from provisioner.state.cluster import Cluster
from provisioner.state.daemon_sets import DaemonSets
from provisioner.state.keys import NodeKey

_PARTS = (
    *("nodes", "pools", "daemons", "pending", "waiting", "leaving"),
    *("around", "avoided", "stopped", "pod_budgets", "commands", "groups", "minima", "topology", "together"),
)

_EVENTS = (
    *("settle", "pod_changed", "node_changed", "node_written", "node_deleted"),
    *("claim_changed", "claim_written", "claim_deleted", "announce_all", "claim_failed"),
    *("command_begun", "command_dropped", "pool_changed", "daemonset_changed", "admission_changed"),
    *("csi_node_changed", "budget_changed", "surrounding_changed", "assign", "expire", "snapshot"),
    *(
        "csi_driver_changed",
        "pod_group_changed",
        "pod_groups_known",
        "gang_job_read",
        "autoscaler_changed",
        "predictions_known",
    ),
)
"""Methods of a `Cluster` after which it is compared."""

R = TypeVar("R")


class StateDriftError(AssertionError):
    """What the state keeps is not what follows from the facts; says where. A defect of ours."""


def rebuilt(cluster: Cluster, now: float) -> Cluster:
    """Another state that was told the facts of this one at once, at one moment of the monotonic clock. Call under its lock.

    What no object tells is taken over: which pods are assigned where, which launches were refused, samples of DaemonSets, when pods were seen, came
    and went, since when CSI drivers are missing.
    """
    fresh = Cluster(cluster._views._types_of, cluster._clock, grace=cluster._pending.grace)
    fresh._joining.sets = cluster._joining.sets
    for node in cluster._joining.nodes.values():
        fresh._views.touch(*fresh._joining.put_node(node, 0.0) or ())
    for claim in cluster._joining.claims.values():
        fresh._views.touch(*fresh._joining.put_claim(claim, 0.0) or ())
    groups, known = fresh._pending.groups, cluster._pending.groups
    groups.known = known.known
    groups._succeeded_of, groups._succeeded = known._succeeded_of, known._succeeded
    for group in known._objects.values():
        groups.changed(now, None, group)
    for pod in cluster._pods.all():
        fresh._pods.put(pod)
        groups.pod_changed(now, pod, alive=True)
    for key, minimum in known._of_jobs.items():
        groups.job_read(now, key, minimum)
    groups._rests = dict(known._rests)
    groups._tried = {key: known._tried.get(key, at) for key, at in groups._tried.items()}
    _take_over(cluster._daemons, fresh._daemons)
    fresh._around = fresh._views._around = cluster._around
    fresh._protection = fresh._leaving._protection = cluster._protection
    fresh._pending._seen = dict(cluster._pending._seen)
    fresh._pending._preempting = dict(cluster._pending._preempting)
    fresh._views._absent = cluster._views._absent
    fresh._views.pod_event_at = dict(cluster._views.pod_event_at)
    for pool in cluster._usage.frozen():
        fresh._usage.pool_changed(None, pool.pool)
    for command in cluster._commands.frozen():  # of two that name one candidate the first one known counts
        fresh._commands._put(command)
    fresh._plans.claims._known, fresh._plans.misses = cluster._plans.claims._known, cluster._plans.misses
    fresh._leaving._surging = cluster._leaving._surging
    fresh._autoscalers.know(cluster._autoscalers.known)
    fresh._autoscalers._ranges = cluster._autoscalers._ranges
    for some in cluster._autoscalers._objects.values():
        for autoscaler in some.values():
            fresh._autoscalers.changed(None, autoscaler)
    for one in cluster._plans.assignments:
        fresh._plans.assignments.add(one)
    for pod in fresh._pods.all():
        fresh._pending.refresh(pod.uid, now)
    return fresh


def differences(cluster: Cluster) -> Iterator[str]:
    """Where a state is not what follows from its facts, in words; nothing where it is sound."""
    with cluster._lock:
        at, now = cluster._clock.now(), cluster._clock.monotonic()  # once: to make a state anew takes a while
        fresh = rebuilt(cluster, now)
        ours, theirs = cluster._snapshot(at, now), fresh._snapshot(at, now)
        for part in _PARTS:
            yield from _compared(f"snapshot.{part}", getattr(ours, part), getattr(theirs, part))
        for part in ("by_target", "bounds"):
            yield from _compared(part, getattr(ours.predictions, part), getattr(theirs.predictions, part))
        for claim in cluster._joining.claims.values():
            name = claim.metadata.name
            yield from _compared(f"node of {name}", cluster.node_of(claim), fresh.node_of(claim))
            yield from _compared(f"rivals of {name}", cluster.rivals(claim), fresh.rivals(claim))
            yield from _compared(f"plan of {name}", cluster.plan_of(NodeKey(name)), fresh.plan_of(NodeKey(name)))
            held, written = cluster.command_held_by(name), command_on(claim)
            if held is not None and held.written:
                yield from _compared(f"command on {name}", held.record, written)
            elif held is None and written is not None and not cluster._commands.is_refused(written):
                yield f"command {written.id} on {name} is not known"
        for node in cluster._joining.nodes.values():
            name = node.metadata.name
            yield from _compared(f"claim of {name}", cluster.claim_of(node), fresh.claim_of(node))
        for name in cluster._pods.node_names | fresh._pods.node_names:
            yield from _compared(f"pods on {name}", cluster.bound_to(name), fresh.bound_to(name))
        waiting = ({pod.uid for pod in one.waiting()} for one in (cluster, fresh))
        yield from _compared("waiting pods", *waiting)
        yield from _compared("living pods of controllers", *(one._pods._living for one in (cluster, fresh)))
        taints = (dict(one._joining._tainted) for one in (cluster, fresh))
        yield from _compared("Nodes by taints", *taints)
        kept, again = cluster._plans.assignments, fresh._plans.assignments
        yield from _compared("assigned pods", set(kept._by_uid), set(again._by_uid))
        yield from _compared("vacant assignments", set(kept.vacant()), set(again.vacant()))
        for one in kept:
            pair = cluster._joining.pair(one.key)
            if pair is None:
                yield f"{one.uid or 'a successor'} is assigned to {one.key}, which is unknown"


def _compared(what: str, ours: object, theirs: object) -> Iterator[str]:
    if ours != theirs:
        yield f"{what}: kept {ours!r}, made anew {theirs!r}"


def _take_over(kept: DaemonSets, fresh: DaemonSets) -> None:
    fresh.admission, fresh._samples = kept.admission, kept._samples
    for owner, daemon in kept._sets.items():
        fresh._sets[owner] = daemon
        fresh._reshape(owner)


class CheckedCluster(Cluster):
    """A `Cluster` that compares itself after every event.

    Args:
        given, settings: as of a `Cluster`.
        drifted: told of every difference; by default it is raised.

    Raises:
        StateDriftError: any event, where there is a difference and `drifted` is not given.
    """

    def __init__(self, *given: Any, drifted: Callable[[str], None] | None = None, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._drifted = drifted

    def check(self) -> None:
        """Compare now; nothing before the state is settled."""
        with self._lock:
            found = list(differences(self)) if self._settled else []
            if found:  # instance types are not told but read, and may have changed in between
                found = list(differences(self))
        for text in found:
            if self._drifted is None:
                raise StateDriftError(text)
            self._drifted(text)


def _checked(event: Callable[..., R]) -> Callable[..., R]:
    @functools.wraps(event)
    def then_compared(self: CheckedCluster, *args: object, **kwargs: object) -> R:
        answer = event(self, *args, **kwargs)
        self.check()
        return answer

    return then_compared


for _event in _EVENTS:
    setattr(CheckedCluster, _event, _checked(getattr(Cluster, _event)))
