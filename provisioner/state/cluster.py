"""The cluster as the watches and our own writes tell it, and the frozen instants that decisions are made from.

One lock, no I/O: an event changes state and returns effects for the caller to carry out. Objects are the decoded Structs
that the watch stores hold; nothing is copied. The facts are kept in parts of their own (joining, pods, plans, DaemonSets,
volumes, budgets); what is derived from several of them, a view of each node, is made anew only for nodes about which
something changed. So a snapshot costs what changed since the last one.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Concatenate, Final, ParamSpec, TypeVar

from provisioner.apis.command import CommandRecord
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.plan import HOLD_SECONDS
from provisioner.apis.pods import Pod, is_terminal
from provisioner.state.admission import AdmissionKeeper, Admitting
from provisioner.state.assignments import Assignments
from provisioner.state.claim_plans import ClaimPlans
from provisioner.state.daemon_sets import DaemonSets
from provisioner.state.disruption_commands import Commands
from provisioner.state.effects import Effect, LaunchSetTurned
from provisioner.state.gang_places import GangPlaces
from provisioner.state.groups import PodGroups
from provisioner.state.joining import Joining
from provisioner.state.keys import NodeKey
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.lacking import ABSENT_SECONDS, AbsentDrivers
from provisioner.state.launch_sets import LaunchSets
from provisioner.state.leaving import Leaving
from provisioner.state.node_views import is_disrupted
from provisioner.state.open_nodes import OpenNodes
from provisioner.state.plans import Plans
from provisioner.state.pod_index import PodIndex
from provisioner.state.pod_protection import PodProtection
from provisioner.state.pool_usage import PoolUsage
from provisioner.state.predictions import AutoscalerKeeper
from provisioner.state.snapshot import Snapshot
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.state.view_keeper import TypesOf, ViewKeeper
from provisioner.state.waiting import PendingPods
from provisioner.support.clock import Clock

HOLD_TTL: Final = timedelta(seconds=HOLD_SECONDS)
"""How long a node that is initialised keeps room for its planned pods at most."""
PLAN_TTL: Final = timedelta(minutes=15)
"""How long one that is not initialised does."""

P = ParamSpec("P")
R = TypeVar("R")
Part = TypeVar("Part")


def _of(
    part: "Callable[[Cluster], Part]", answer: Callable[Concatenate[Part, P], R]
) -> "Callable[Concatenate[Cluster, P], R]":
    """What one part of the state answers, or does when it is told, under the lock."""

    @functools.wraps(answer)
    def asked(self: "Cluster", /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return answer(part(self), *args, **kwargs)

    return asked


def _now(
    part: "Callable[[Cluster], Part]", answer: Callable[Concatenate[Part, float, P], R]
) -> "Callable[Concatenate[Cluster, P], R]":
    """Likewise where the answer is one of this moment."""

    @functools.wraps(answer)
    def asked(self: "Cluster", /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return answer(part(self), self._clock.monotonic(), *args, **kwargs)

    return asked


class Cluster:
    """See the module. Thread-safe; every method is short (no method waits).

    Args:
        types_of: where the instance types are found that a claim may become.
        clock: the wall clock for the instants of snapshots and pod events, the monotonic one for every duration.
        hold_ttl, plan_ttl: see `HOLD_TTL`, `PLAN_TTL`.
        grace: after which kube-scheduler's pods wait for a node though nobody said so; see `state.waiting`.
        driver_grace: for which a CSI driver that an initialized node lacks is expected to come; 0 where one instant is all that is known.
    """

    def __init__(
        self,
        types_of: TypesOf,
        clock: Clock,
        *,
        hold_ttl: timedelta = HOLD_TTL,
        plan_ttl: timedelta = PLAN_TTL,
        grace: timedelta = timedelta(0),
        driver_grace: timedelta = timedelta(seconds=ABSENT_SECONDS),
    ) -> None:
        self._clock = clock
        self.hold_seconds: Final = hold_ttl.total_seconds()
        self._lock = threading.RLock()
        self._settled = False
        self._joining, self._pods, self._commands = Joining(), PodIndex(), Commands()
        self._around, self._protection = SurroundingsKeeper(clock.now), PodProtection()
        absent = AbsentDrivers(driver_grace.total_seconds())
        self._plans = Plans(
            self._joining,
            self._pods,
            self._commands,
            self._around,
            absent,
            self._assignment_changed,
            hold_ttl=hold_ttl,
            plan_ttl=plan_ttl,
            is_held=lambda key: self._leaving.is_held(key, clock.now()),
            wall=clock.now,
        )
        self._daemons, self._usage = DaemonSets(), PoolUsage()
        self._leaving = Leaving(self._protection, self._plans.assignments)
        self._autoscalers = AutoscalerKeeper()
        self._pending = PendingPods(self._pods, self._plans.assignments, grace)
        self._gangs = GangPlaces(self._joining, self._pods, self._plans.assignments, self._pending.groups)
        self._views = ViewKeeper(
            types_of,
            self._joining,
            self._pods,
            self._commands,
            self._plans,
            self._daemons,
            self._around,
            self._usage,
            self._leaving,
            absent,
        )

    # ------------------------------------------------------------------ events

    def settle(self) -> list[Effect]:
        """The watches have told everything once: read the plans against it. Call once, before the first snapshot."""
        with self._lock:
            self._settled = True
            now, effects = self._clock.monotonic(), list[Effect]()
            # where two plans name one pod the newer one counts
            for claim in sorted(self._joining.claims.values(), key=_newest_first):
                effects += self._plans.claim_changed(claim, now)
            return effects

    def pod_changed(self, old: Pod | None, new: Pod | None) -> list[Effect]:
        """A pod was added, changed or removed (`new` is None)."""
        pod = new or old
        if pod is None:
            return []
        with self._lock:
            alive = new is not None and not is_terminal(new)
            known = self._pods.put(pod) if alive else self._pods.drop(pod.uid)
            if pod.node_name:
                self._views.touch(self._joining.key_of_name(pod.node_name))
                if self._settled:  # not what a first listing tells
                    self._views.note_pod(known, pod, self._clock.now, alive=alive)
                (self._daemons.pod_changed if alive else self._daemons.pod_gone)(pod)
            if known is not None and known.node_name not in ("", pod.node_name):
                self._views.touch(self._joining.key_of_name(known.node_name))
            now = self._clock.monotonic()
            effects = self._plans.pod_changed(known, pod, now, alive=alive) if self._settled else []
            if not alive:
                self._leaving.surges_no_more(pod.uid)
            self._pending.pod_changed(pod, now, alive=alive, there=new is not None)
            return effects

    def node_changed(self, old: Node | None, new: Node | None) -> list[Effect]:
        """A Node was added, changed or removed."""
        node = new or old
        if node is None:
            return []
        with self._lock:
            if new is None:
                self._views.pod_event_at.pop(node.metadata.name, None)
                return self._touch(self._joining.drop_node(node.metadata.name))
            return self._put_node(new, own=False)

    def node_written(self, node: Node) -> list[Effect]:
        """The API server's answer to a write of ours to a Node: seen before the watch tells it."""
        with self._lock:
            return self._put_node(node, own=True)

    def node_deleted(self, node: Node) -> list[Effect]:
        """The API server took our request to delete a Node."""
        with self._lock:
            meta, now = node.metadata, self._clock.monotonic()
            return self._touch(self._joining.delete_node(meta.name, meta.uid, self._clock.now(), now))

    def claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> list[Effect]:
        """A NodeClaim was added, changed or removed by somebody, or by a write of our own (see `claim_written`)."""
        claim = new or old
        if claim is None:
            return []
        with self._lock:
            return self._drop_claim(claim.metadata.name) if new is None else self._put_claim(new, own=False)

    def claim_written(self, claim: NodeClaim) -> list[Effect]:
        """The API server's answer to a write of ours: seen before the watch tells it. One about a claim that is gone is not."""
        with self._lock:
            return self._put_claim(claim, own=True)

    def claim_deleted(self, claim: NodeClaim) -> list[Effect]:
        """The API server took our request to delete a claim: it is going before the watch tells it."""
        with self._lock:
            meta, now = claim.metadata, self._clock.monotonic()
            touched = self._joining.delete_claim(meta.name, meta.uid, self._clock.now(), now)
            return self._touch(touched)

    def announce(self, claim: NodeClaim, pods: Iterable[Pod]) -> bool | None:
        """One claim, as of `announce_all`."""
        return self.announce_all([(claim, tuple(pods))])

    def announce_all(self, new: Sequence[tuple[NodeClaim, Sequence[Pod]]]) -> bool | None:
        """Claims are about to be created, each for its pods: later batches plan around all of them at once.

        Returns:
            True where they are entered; False where a name is taken, and nothing changes; None where none of the pods of one needs it
            any more, and nothing changes.
        """
        with self._lock:
            now = self._clock.monotonic()
            if any(claim.metadata.name in self._joining.claims for claim, _ in new):
                return False
            touched = [self._joining.put_claim(claim, now) or frozenset() for claim, _ in new]
            if not self._plans.announce(new, now):
                for claim, _ in new:
                    self._joining.drop_claim(claim.metadata.name)
                return None
            self._touch(frozenset().union(*touched))
            return True

    def claim_failed(self, name: str) -> list[Effect]:
        """A claim that was announced never came to be. Nothing happens where one of this name exists meanwhile."""
        with self._lock:
            claim = self._joining.claims.get(name)
            return self._drop_claim(name) if claim is not None and not claim.metadata.uid else []

    def launch_refused(self, claim: str) -> None:
        """The provider said that it has no instance for a claim, and that none will come of what was asked."""
        with self._lock:
            self._plans.claims.launch_refused(claim)
            self._views.touch(NodeKey(claim))  # where nobody needs it, it counts no more

    def command_begun(self, record: CommandRecord) -> bool:
        """A disruption command is about to be written, or one that is not written yet got its replacements.

        From now on its candidates take no pods, count against budgets and belong to it. Told again with the same ID, what was
        told before is replaced.

        Returns:
            False, and nothing changes, where a candidate is not there, belongs to another command, is going, or keeps room for
            pods.
        """
        with self._lock:
            known = self._commands.held_by(record.holder)
            if known is None or known.record.id != record.id:
                self._views.refresh(self._clock.monotonic())
                views = [self._views.views.get(NodeKey(name)) for name in record.candidate_names]
                if any(view is None or view.deleting or view.nominated or view.claim is None for view in views):
                    return False
            marked = self._commands.begin(record)
            self._views.touch(*map(NodeKey, (*marked, *record.replacement_names)))
            return bool(marked)

    def command_dropped(self, record: CommandRecord) -> list[Effect]:
        """A command that was begun came to nothing; what is written on claims is told by these."""
        with self._lock:
            return self._command_over(record, self._commands.drop(record))

    def surges(self, pod: Pod) -> tuple[NodeKey | None, list[Effect]]:
        """A pod of a node that goes needs no other place, since its successor comes while it still runs, and is planned by itself: its room is free for that.

        Returns:
            The node that keeps no room for it any more, and what follows.
        """
        with self._lock:
            self._leaving.surges(pod.uid)
            found = self._plans.surges(pod.uid)
            self._leaving.assignment_changed(self._joining.key_of_name(pod.node_name))
            return found

    def surges_no_more(self, pod: Pod) -> None:
        """It is evicted like any other."""
        with self._lock:
            if self._leaving.surges_no_more(pod.uid):
                self._leaving.assignment_changed(self._joining.key_of_name(pod.node_name))

    def admission_changed(self, old: Admitting | None, new: Admitting | None) -> None:
        """What decides what admission makes of templates, and how large it lets containers be, was added, changed or removed."""
        with self._lock:
            self._daemons.admission.changed(old, new)
            self._autoscalers.admission_changed(old, new)

    def predictions_known(self, known: KindKnowledge) -> None:
        """What is known of VerticalPodAutoscalers; plans that were read before keep the room again that they were made with."""
        with self._lock:
            self._autoscalers.know(known)
            for one in self._plans.assignments.expect(self._autoscalers.frozen(), self._pods.get):
                self._assignment_changed(one.key, one.uid)

    def expire(self) -> list[Effect]:
        """End the assignments whose time is over, whose pods were missed, and whose room others took; call every second."""
        with self._lock:
            now = self._clock.monotonic()
            self._views.refresh(now)
            effects = self._plans.expire(now)
            self._views.refresh(now)
            for view in self._views.take_crowded():
                effects += self._plans.displace(view)
            self._views.forget_nodes()
            return effects

    # ------------------------------------------------------------------ told or asked of one part, which says more

    assign = _now(lambda self: self._plans, Plans.assign)
    autoscaler_changed = _of(lambda self: self._autoscalers, AutoscalerKeeper.changed)
    budget_changed = _of(lambda self: self._leaving, Leaving.budget_changed)
    csi_driver_changed = _now(lambda self: self._views, ViewKeeper.csi_driver_changed)
    csi_node_changed = _now(lambda self: self._views, ViewKeeper.csi_node_changed)
    daemonset_changed = _of(lambda self: self._daemons, DaemonSets.changed)
    group_rests = _now(lambda self: self._pending.groups, PodGroups.rest)
    hold_launches = _now(lambda self: self._plans.claims, ClaimPlans.hold_launches)
    has_all = _now(lambda self: self._pending, PendingPods.has_all)
    launch_begins = _now(lambda self: self._plans.claims, ClaimPlans.launch_begins)
    pod_group_changed = _now(lambda self: self._pending, PendingPods.pod_group_changed)
    pod_groups_known = _now(lambda self: self._pending, PendingPods.pod_groups_known)
    gang_job_read = _now(lambda self: self._pending, PendingPods.gang_job_read)
    pool_changed = _of(lambda self: self._views, ViewKeeper.pool_changed)
    surrounding_changed = _of(lambda self: self._around, SurroundingsKeeper.told)
    release_launches = _of(lambda self: self._plans.claims, ClaimPlans.release_launches)
    replan = _now(lambda self: self._plans, Plans.replan)
    reported = _now(lambda self: self._pending, PendingPods.reported)

    admission = _of(lambda self: self._daemons.admission, AdmissionKeeper.frozen)
    asked_of_limits = _now(lambda self: self._views, ViewKeeper.asked_of_limits)
    assigned = _of(lambda self: self._plans, Plans.assigned)
    bound_to = _of(lambda self: self._pods, PodIndex.on)
    claim = _of(lambda self: self._joining, Joining.claim)
    gang_jobs = _of(lambda self: self._pending.groups, PodGroups.jobs)
    claim_of = _of(lambda self: self._joining, Joining.claim_of)
    claims = _of(lambda self: self._joining, Joining.all_claims)
    claims_with = _of(lambda self: self._joining, Joining.claims_with)
    command_held_by = _of(lambda self: self._commands, Commands.held_by)
    command_of = _of(lambda self: self._commands, Commands.of)
    command_waiting_for = _of(lambda self: self._commands, Commands.for_which)
    commands = _of(lambda self: self._commands, Commands.frozen)
    companions_coming = _of(lambda self: self._plans.open_nodes, OpenNodes.companions_coming)
    ending_nodes = _of(lambda self: self._joining, Joining.ending_nodes)
    gang_launched_with = _of(lambda self: self._gangs, GangPlaces.launched_with)
    gang_standing = _now(lambda self: self._gangs, GangPlaces.standing)
    gang_standings = _now(lambda self: self._gangs, GangPlaces.standings)
    gang_told_of = _of(lambda self: self._gangs, GangPlaces.told_of)
    gangs_coming = _now(lambda self: self._gangs, GangPlaces.coming)
    gangs_scheduled = _of(lambda self: self._pending.groups, PodGroups.take_scheduled)
    groups_awaiting = _of(lambda self: self._joining.sets, LaunchSets.awaits)
    is_limited_in_money = _of(lambda self: self._usage, PoolUsage.is_limited_in_money)
    is_planned = _of(lambda self: self._plans.assignments, Assignments.is_planned)
    is_unanswered = _now(lambda self: self._plans.open_nodes, OpenNodes.is_unanswered)
    is_unneeded = _of(lambda self: self._plans.claims, ClaimPlans.is_unneeded)
    lacking = _of(lambda self: self._plans.open_nodes, OpenNodes.lacking)
    last_pod_event = _of(lambda self: self._views, ViewKeeper.last_pod_event)
    moved = _of(lambda self: self._plans, Plans.moved)
    node = _of(lambda self: self._joining, Joining.node)
    node_of = _of(lambda self: self._joining, Joining.node_of)
    plan_of = _of(lambda self: self._plans, Plans.plan_of)
    planned_at = _of(lambda self: self._plans.assignments, Assignments.planned_at)
    pod = _of(lambda self: self._pods, PodIndex.get)
    pod_budgets = _of(lambda self: self._protection, PodProtection.frozen)
    prediction_knowledge = _of(lambda self: self._autoscalers, AutoscalerKeeper.knowledge)
    rivals = _of(lambda self: self._joining, Joining.rivals_of)
    unneeded = _of(lambda self: self._plans.claims, ClaimPlans.unneeded)
    unreadable_daemon_sets = _of(lambda self: self._daemons, DaemonSets.unreadable)
    volume_of = _of(lambda self: self._around, SurroundingsKeeper.volume_of)
    waiting = _of(lambda self: self._pods, PodIndex.waiting)
    seen_since = _of(lambda self: self._pending, PendingPods.seen_since)
    waits_from = _of(lambda self: self._pending, PendingPods.waits_from)

    # ------------------------------------------------------------------ questions

    def pods_of(self, claim: NodeClaim) -> tuple[Pod, ...]:
        """The pods on the Node of a NodeClaim; none where that is not known."""
        node = self.node_of(claim)
        return self.bound_to(node.metadata.name) if node is not None else ()

    def snapshot(self) -> Snapshot:
        """One frozen instant. Cost: what changed since the last one, and copying a pointer for each node and pending pod."""
        with self._lock:
            return self._snapshot(self._clock.now(), self._clock.monotonic())

    def _snapshot(self, at: datetime, now: float) -> Snapshot:
        """The instant that both clocks tell; everything in it that time alone changes is of this one."""
        self._views.refresh(now)
        self._pending.time_passed(now)
        stopped = self._plans.misses.stopped(now)
        return Snapshot(
            at=at,
            nodes=self._views.views.frozen(),
            pools=self._usage.frozen(),
            daemons=self._daemons.shapes(),
            pending=self._pending.pending.frozen(),
            waiting=self._pending.waiting_less(stopped, now),
            leaving=self._autoscalers.readmitted(self._leaving.pods(at)),
            around=self._around.frozen(),
            avoided=self._plans.misses.avoided(now),
            stopped=stopped,
            pod_budgets=self._protection.frozen(),
            commands=self._commands.frozen(),
            early=self._pending.any_early,
            groups=self._pending.groups.frozen(),
            minima=self._pending.groups.minima(),
            topology=self._pending.groups.topology(),
            together=self._pending.groups.together(),
            consolidated=self._pending.groups.consolidated(),
            resting=self._pending.groups.resting(now),
            predictions=self._autoscalers.frozen(),
        )

    # ------------------------------------------------------------------ entering

    def _put_node(self, node: Node, *, own: bool) -> list[Effect]:
        before = self._joining.nodes.get(node.metadata.name)
        touched = self._joining.put_node(node, self._clock.monotonic(), own=own)
        if touched is None:
            return []
        effects = self._touch(touched)
        if self._settled and is_disrupted(before) and not is_disrupted(node):
            effects += self._plans.stays(self._joining.key_of(node), self._clock.monotonic())
        return effects

    def _put_claim(self, claim: NodeClaim, *, own: bool) -> list[Effect]:
        now = self._clock.monotonic()
        touched = self._joining.put_claim(claim, now, own=own)
        if touched is None:
            return []
        effects = self._commands_changed(claim)  # first: whose pods are going is asked of the plans
        if self._settled:
            effects += self._plans.claim_changed(claim, now)
        return effects + self._touch(touched)

    def _drop_claim(self, name: str) -> list[Effect]:
        touched, known = self._joining.drop_claim(name), self._commands.held_by(name)
        over = self._commands.claim_gone(name)
        effects = self._command_over(known.record, over) if known is not None else []
        return effects + self._plans.claim_gone(name) + self._touch(touched)

    def _commands_changed(self, claim: NodeClaim) -> list[Effect]:
        """What is written on a claim about commands may be other than before."""
        known = self._commands.held_by(claim.metadata.name)
        changed = self._commands.claim_changed(claim)
        self._views.touch(*map(NodeKey, changed))
        now = self._commands.held_by(claim.metadata.name)
        if known is None or not changed or (now is not None and now.record.id == known.record.id):
            return []
        return self._command_over(known.record, changed)

    def _command_over(self, record: CommandRecord, candidates: Iterable[str]) -> list[Effect]:
        """A command does not count any more: pods of candidates that stay need no other place, replacements may be unneeded, or never come to be."""
        keys = sorted(map(NodeKey, candidates))
        self._views.touch(*keys, *map(NodeKey, record.replacement_names))
        if not self._settled or not keys:
            return []
        now = self._clock.monotonic()
        effects = [effect for key in keys for effect in self._plans.stays(key, now)]
        for name in record.replacement_names:
            claim = self._joining.claims.get(name)
            if claim is not None and not claim.metadata.uid:  # nobody creates it any more, so it keeps no room for pods
                effects += self._drop_claim(name)
            else:
                effects += self._plans.claims.review(NodeKey(name))
        return effects

    def _touch(self, keys: Iterable[NodeKey]) -> list[Effect]:
        """Nodes are others now: look at them again before the next snapshot, and at who is planned there at once.

        With them those of launch sets that turned out to be whole, or never to be.
        """
        turned = self._joining.sets.take_turned()
        self._views.touch(*keys, *map(NodeKey, turned))
        if not self._settled:
            return []
        now = self._clock.monotonic()
        done = [effect for key in sorted(keys) for effect in self._plans.node_changed(key, now)]
        for claim in [self._joining.claims[name] for name in turned]:
            done += self._plans.claim_changed(claim, now)
            done.append(LaunchSetTurned(claim.metadata.name))
        return done

    def _assignment_changed(self, key: NodeKey, uid: str) -> None:
        self._views.touch(key)
        if uid:
            self._pending.refresh(uid, self._clock.monotonic())
            pod = self._pods.get(uid)
            if pod is not None and pod.node_name:
                self._leaving.assignment_changed(self._joining.key_of_name(pod.node_name))


def _newest_first(claim: NodeClaim) -> tuple[float, str]:
    created = claim.metadata.creation_timestamp
    return (-created.timestamp() if created is not None else 0.0, claim.metadata.name)
