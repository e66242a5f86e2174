"""The cluster as the watches and our own writes tell it, and the frozen instants that decisions are made from.

One lock, no I/O: an event changes state and returns effects for the caller to carry out. Objects are the decoded Structs
that the watch stores hold; nothing is copied. The facts are kept in rooms of their own (joining, pods, plans, DaemonSets,
volumes, budgets); what is derived from several of them, a view of each node, is made anew only for nodes about which
something changed. So a snapshot costs what changed since the last one.
"""

import functools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from math import inf
from operator import attrgetter
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from provisioner.apis import names
from provisioner.apis.command import CommandRecord
from provisioner.apis.core import CSINode, DaemonSet, Node, PodDisruptionBudget
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import is_true
from provisioner.apis.plan import HOLD_SECONDS
from provisioner.apis.pods import STUCK_AFTER, Pod, is_active, is_daemon, is_mirror, is_pending, is_terminal
from provisioner.apis.templates import Admission
from provisioner.cloudprovider.types import InstanceType
from provisioner.state.admission import Admitting
from provisioner.state.assignments import Assignments
from provisioner.state.claim_plans import ClaimPlans, Launch
from provisioner.state.daemon_sets import DaemonSets
from provisioner.state.disruption_commands import Commands
from provisioner.state.effects import DaemonSetUnreadable, Effect
from provisioner.state.expected_node import Expected, expected_of, is_planned
from provisioner.state.joining import Joining, Rivals
from provisioner.state.keys import NodeKey
from provisioner.state.leaving import Leaving
from provisioner.state.misses import Stop
from provisioner.state.node_views import Inputs, charge_of, is_disrupted, most_of, view_of
from provisioner.state.open_nodes import OpenNodes
from provisioner.state.ordered import Ordered
from provisioner.state.plans import Plans
from provisioner.state.pod_index import PodIndex
from provisioner.state.pod_protection import PodProtection
from provisioner.state.pool_usage import PoolUsage
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.state.waiting import Sights
from provisioner.support.clock import Clock
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import EMPTY, Resources
from provisioner.values.taints import Taint

HOLD_TTL: Final = timedelta(seconds=HOLD_SECONDS)
"""How long a node that is initialised keeps room for its planned pods at most."""
PLAN_TTL: Final = timedelta(minutes=15)
"""How long one that is not initialised does."""
_MOST_REMEMBERED: Final = 256

P = ParamSpec("P")
R = TypeVar("R")
TypesOf = Callable[[NodeClaim], Mapping[str, InstanceType]]
"""Instance types by name of a claim's NodePool, or of its NodeClass where it has no pool.

The same mapping while nothing changes; empty where the pool, the class or the types are unknown.
"""


def _of(part: str, answer: Callable[Concatenate[Any, P], R]) -> "Callable[Concatenate[Cluster, P], R]":
    """What one part of the state answers, asked under the lock."""
    find = attrgetter(part)

    @functools.wraps(answer)
    def asked(self: "Cluster", /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return answer(find(self), *args, **kwargs)

    return asked


class Cluster:
    """See the module. Thread-safe; every method is short (no method waits).

    Args:
        types_of: where the instance types are found that a claim may become.
        clock: the wall clock for the instants of snapshots and pod events, the monotonic one for every duration.
        hold_ttl, plan_ttl: see `HOLD_TTL`, `PLAN_TTL`.
        grace: after which kube-scheduler's pods wait for a node though nobody said so; see `state.waiting`.
    """

    def __init__(
        self,
        types_of: TypesOf,
        clock: Clock,
        *,
        hold_ttl: timedelta = HOLD_TTL,
        plan_ttl: timedelta = PLAN_TTL,
        grace: timedelta = timedelta(0),
    ) -> None:
        self._types_of, self._clock = types_of, clock
        self.hold_seconds: Final = hold_ttl.total_seconds()
        self._lock = threading.RLock()
        self._settled = False
        self._joining, self._pods = Joining(), PodIndex()
        self._commands = Commands()
        self._plans = Plans(
            self._joining,
            self._pods,
            self._commands,
            self._assignment_changed,
            hold_ttl=hold_ttl,
            plan_ttl=plan_ttl,
            is_held=lambda key: self._leaving.is_held(key, clock.now()),
            wall=clock.now,
        )
        self._daemons = DaemonSets()
        self._daemons_seen = 0  # the version that the views are of
        self._around = SurroundingsKeeper(clock.now)
        self._protection = PodProtection()
        self._pod_event_at: dict[str, datetime] = {}  # node name -> instant
        # what is derived: made anew for the keys in `_dirty`
        self._dirty: set[NodeKey] = set()
        self._views: Ordered[NodeKey, NodeView] = Ordered()
        self._pending: Ordered[str, Pod] = Ordered()
        self._sights = Sights(grace)
        self._waiting: Ordered[str, Pod] = Ordered()
        # of those that wait, by UID: the node that is nominated, since when
        self._preempting: dict[str, tuple[str, float]] = {}
        self._less: tuple[tuple[Pod, ...], frozenset[str], tuple[Pod, ...]] = (), frozenset(), ()
        self._usage = PoolUsage()
        self._leaving = Leaving(self._protection, self._plans.assignments)
        self._crowded: set[NodeKey] = set()  # nodes with less room than they keep
        self._due: dict[NodeKey, tuple[Mapping[str, str], tuple[Taint, ...], int, Resources]] = {}
        # claim and types that a view was made with
        self._typed: dict[NodeKey, tuple[NodeClaim, Mapping[str, InstanceType]]] = {}
        self._expected: dict[object, tuple[Mapping[str, InstanceType], Expected | None]] = {}
        self._peaks: dict[tuple[object, ...], tuple[Mapping[str, InstanceType], Resources | None]] = {}

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
                self._dirty.add(self._joining.key_of_name(pod.node_name))
                self._note_pod_event(known, pod, alive=alive)
                (self._daemons.pod_changed if alive else self._daemons.pod_gone)(pod)
            if known is not None and known.node_name not in ("", pod.node_name):
                self._dirty.add(self._joining.key_of_name(known.node_name))
            now = self._clock.monotonic()
            effects = self._plans.pod_changed(known, pod, now, alive=alive) if self._settled else []
            if not alive:
                self._leaving.surges_no_more(pod.uid)
            if alive and not pod.node_name and pod.deleted is None:
                self._sights.seen(pod, now)
            elif self._sights.gone(pod.uid):
                self._time_passed(now)  # here, too: of a standby nobody takes a snapshot, and its pods come and go
            self._refresh_pending(pod.uid, now)
            return effects

    def reported(self, uids: Iterable[str]) -> None:
        """The extender says that kube-scheduler left these pods without a node."""
        with self._lock:
            now = self._clock.monotonic()
            for uid in uids:
                if self._sights.report(uid):
                    self._refresh_pending(uid, now)

    def node_changed(self, old: Node | None, new: Node | None) -> list[Effect]:
        """A Node was added, changed or removed."""
        node = new or old
        if node is None:
            return []
        with self._lock:
            if new is None:
                self._pod_event_at.pop(node.metadata.name, None)
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
        """A claim is about to be created for these pods: later batches plan around it at once.

        Returns:
            True where it is entered; False where its name is taken, and nothing changes; None where none of the pods needs it
            any more, and nothing changes.
        """
        with self._lock:
            name, now = claim.metadata.name, self._clock.monotonic()
            if name in self._joining.claims:
                return False
            touched = self._joining.put_claim(claim, now)
            if not self._plans.announce(claim, pods, now):
                self._joining.drop_claim(name)
                return None
            self._touch(touched or frozenset())
            return True

    def claim_failed(self, name: str) -> list[Effect]:
        """A claim that was announced never came to be. Nothing happens where one of this name exists meanwhile."""
        with self._lock:
            claim = self._joining.claims.get(name)
            return self._drop_claim(name) if claim is not None and not claim.metadata.uid else []

    def launch_begins(self, claim: str) -> Launch:
        """Ask right before a claim is launched: where the answer is BEGIN, its pods stay with it from here on."""
        with self._lock:
            return self._plans.claims.launch_begins(self._clock.monotonic(), claim)

    def launch_refused(self, claim: str) -> None:
        """The provider said that it has no instance for a claim, and that none will come of what was asked."""
        with self._lock:
            self._plans.claims.launch_refused(claim)
            self._dirty.add(NodeKey(claim))  # where nobody needs it, it counts no more

    def hold_launches(self, seconds: float) -> tuple[str, ...]:
        """For so long nobody launches the claims whose pods may be planned again; their names. See `ClaimPlans.hold_launches`."""
        with self._lock:
            return self._plans.claims.hold_launches(self._clock.monotonic(), seconds)

    def replan(self, claims: Mapping[str, Collection[str]]) -> list[Effect] | None:
        """Pods (UIDs) of claims that were held are planned anew, and the claims are needed no more; None, and nothing changes, where that may not be."""
        with self._lock:
            return self._plans.replan(self._clock.monotonic(), claims)

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
                self._refresh()
                views = [self._views.get(NodeKey(name)) for name in record.candidate_names]
                if any(view is None or view.deleting or view.nominated or view.claim is None for view in views):
                    return False
            marked = self._commands.begin(record)
            self._dirty.update(map(NodeKey, (*marked, *record.replacement_names)))
            return bool(marked)

    def command_dropped(self, record: CommandRecord) -> list[Effect]:
        """A command that was begun came to nothing; what is written on claims is told by these."""
        with self._lock:
            return self._command_over(record, self._commands.drop(record))

    def pool_changed(self, old: NodePool | None, new: NodePool | None) -> list[Effect]:
        """A NodePool was added, changed or removed."""
        pool = new or old
        if pool is None:
            return []
        with self._lock:
            self._usage.pool_changed(old, new)
            # what claims are charged with depends on the limits
            if old is None or new is None or old.spec.limits != new.spec.limits:
                self._dirty.update(view.key for view in self._views.frozen() if view.pool == pool.metadata.name)
            return []

    def daemonset_changed(self, old: DaemonSet | None, new: DaemonSet | None) -> list[Effect]:
        """A DaemonSet was added, changed or removed: every node's due daemons may change."""
        with self._lock:
            problem = self._daemons.changed(old, new)
            return [] if new is None or not problem else [_unreadable(new, problem)]

    def admission_changed(self, old: Admitting | None, new: Admitting | None) -> None:
        """A LimitRange, RuntimeClass or PriorityClass was added, changed or removed."""
        with self._lock:
            self._daemons.admission.changed(old, new)

    def admission(self) -> Admission:
        """What the API server's admission makes of templates; the same object while nothing changes."""
        with self._lock:
            return self._daemons.admission.frozen()

    def csi_node_changed(self, old: CSINode | None, new: CSINode | None) -> bool:
        """A CSINode was added, changed or removed; whether its Node takes other numbers of volumes now."""
        one = new or old
        if one is None:
            return False
        with self._lock:
            changed = self._around.csi_node_changed(old, new)
            if changed:
                self._dirty.add(self._joining.key_of_name(one.metadata.name))
            return changed

    def budget_changed(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        """A PodDisruptionBudget was added, changed or removed."""
        with self._lock:
            if self._protection.budget_changed(old, new):
                self._leaving.budgets_changed()

    def surrounding_changed(self, take: Callable[[SurroundingsKeeper], None]) -> None:
        """Let `take` enter an event about volumes, namespaces or selectors; under the lock of this state."""
        with self._lock:
            take(self._around)

    def assign(self, key: NodeKey, pods: Iterable[Pod]) -> list[Pod]:
        """Keep room on an existing or in-flight node for pods that are planned there.

        Returns:
            The pods that are refused, since the node is unknown or going: they must be planned again.
        """
        with self._lock:
            return self._plans.assign(self._clock.monotonic(), key, pods)

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

    def expire(self) -> list[Effect]:
        """End the assignments whose time is over, whose pods were missed, and whose room others took; call every second."""
        with self._lock:
            self._refresh()
            effects = self._plans.expire(self._clock.monotonic())
            self._refresh()
            for key in sorted(self._crowded):
                view = self._views.get(key)
                if view is not None and view.initialized and view.room.negative:
                    effects += self._plans.displace(view)
            self._crowded.clear()
            if len(self._pod_event_at) > len(self._joining.nodes):
                self._pod_event_at = {
                    name: at for name, at in self._pod_event_at.items() if name in self._joining.nodes
                }
            return effects

    # ------------------------------------------------------------------ questions to one part, which says more

    node_of = _of("_joining", Joining.node_of)
    claim_of = _of("_joining", Joining.claim_of)
    claims_with = _of("_joining", Joining.claims_with)
    command_held_by = _of("_commands", Commands.held_by)
    command_of = _of("_commands", Commands.of)
    command_waiting_for = _of("_commands", Commands.for_which)
    commands = _of("_commands", Commands.frozen)
    bound_to = _of("_pods", PodIndex.on)
    waiting = _of("_pods", PodIndex.waiting)
    pod = _of("_pods", PodIndex.get)
    is_unneeded = _of("_plans.claims", ClaimPlans.is_unneeded)
    unneeded = _of("_plans.claims", ClaimPlans.unneeded)
    companions_coming = _of("_plans.open_nodes", OpenNodes.companions_coming)
    planned_at = _of("_plans.assignments", Assignments.planned_at)
    is_planned = _of("_plans.assignments", Assignments.is_planned)
    plan_of = _of("_plans", Plans.plan_of)
    moved = _of("_plans", Plans.moved)
    release_launches = _of("_plans.claims", ClaimPlans.release_launches)
    pod_budgets = _of("_protection", PodProtection.frozen)
    volume_of = _of("_around", SurroundingsKeeper.volume_of)

    # ------------------------------------------------------------------ questions

    def claim(self, name: str) -> NodeClaim | None:
        """The newest known state of one claim, own writes included."""
        with self._lock:
            return self._joining.claims.get(name)

    def claims(self) -> list[NodeClaim]:
        """Every known claim, by name."""
        with self._lock:
            return [claim for _, claim in sorted(self._joining.claims.items())]

    def node(self, name: str) -> Node | None:
        """The newest known state of one Node."""
        with self._lock:
            return self._joining.nodes.get(name)

    def rivals(self, claim: NodeClaim) -> Rivals | None:
        """Who else has the claim's provider ID; None where the claim and its Node are alone. Nothing may be done to rivals."""
        with self._lock:
            return self._joining.rivals(claim.status.provider_id)

    def is_limited_in_money(self, pool: str) -> bool:
        """Whether a NodePool says what its nodes may cost."""
        with self._lock:
            known = self._usage.pool(pool)
            return known is not None and names.MAX_USD_PER_HOUR in known.metadata.annotations

    def asked_of_limits(self, claim: NodeClaim) -> tuple[Resources, Resources] | None:
        """What the limits of its NodePool leave, and what they would be charged with for a claim that is not there yet.

        None where nothing that can be read limits the NodePool. Cost: what changed since the last snapshot.
        """
        with self._lock:
            pool = self._usage.pool(claim.pool)
            if pool is None or not pool.spec.limits:
                return None
            self._refresh()
            try:
                left = self._usage.view(claim.pool).left
            except QuantityError:
                return None
            types = self._types_of(claim)
            expected = self._expectation(claim, types) if types else None
            capacity = expected.capacity if expected is not None else EMPTY
            charge = charge_of(claim, capacity, lambda one: self._peak(claim.pool, one, types))
            return None if left is None else (left, charge)

    def unreadable_daemon_sets(self) -> list[Effect]:
        """What tells of every DaemonSet whose pods cannot be judged; for who begins to carry out effects."""
        with self._lock:
            self._daemons.settle()
            return [_unreadable(one, problem) for one, problem in self._daemons.unreadable()]

    def pods_of(self, claim: NodeClaim) -> tuple[Pod, ...]:
        """Likewise on the Node of a NodeClaim; none where that is not known."""
        node = self.node_of(claim)
        return self.bound_to(node.metadata.name) if node is not None else ()

    def waits_from(self, uid: str) -> float:
        """`state.waiting.waits_from` of one unfinished pod, by the monotonic clock; infinity where it is not known."""
        with self._lock:
            pod = self._pods.get(uid)
            return self._sights.waits_from(pod) if pod is not None else inf

    def is_unanswered(self, uid: str) -> bool:
        """Whether the node that came for this pod is open to it, and its scheduler has neither bound it nor refused it there since."""
        with self._lock:
            return self._plans.open_nodes.is_unanswered(self._clock.monotonic(), uid)

    def assigned(self, key: NodeKey) -> tuple[Pod, ...]:
        """The unbound pods that a node still keeps room for, by name."""
        with self._lock:
            return tuple(pod for pod in self._assigned_pods(key) if self._pods.is_waiting(pod.uid))

    def last_pod_event(self, node_name: str) -> datetime | None:
        """The last bind or end of a pod that is no daemon, as this process saw it."""
        with self._lock:
            return self._pod_event_at.get(node_name)

    def snapshot(self) -> Snapshot:
        """One frozen instant. Cost: what changed since the last one, and copying a pointer for each node and pending pod."""
        with self._lock:
            return self._snapshot(self._clock.now(), self._clock.monotonic())

    def _snapshot(self, at: datetime, now: float) -> Snapshot:
        """The instant that both clocks tell; everything in it that time alone changes is of this one."""
        self._refresh()
        self._time_passed(now)
        stopped = self._plans.misses.stopped(now)
        return Snapshot(
            at=at,
            nodes=self._views.frozen(),
            pools=self._usage.frozen(),
            daemons=self._daemons.shapes(),
            pending=self._pending.frozen(),
            waiting=self._waiting_less(stopped, now),
            leaving=self._leaving.pods(at),
            around=self._around.frozen(),
            avoided=self._plans.misses.avoided(now),
            stopped=stopped,
            pod_budgets=self._protection.frozen(),
            commands=self._commands.frozen(),
            early=len(self._waiting) < len(self._pending)
            and any(uid in self._pending and uid not in self._waiting for uid in self._sights.early()),
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
        self._dirty.update(map(NodeKey, changed))
        now = self._commands.held_by(claim.metadata.name)
        if known is None or not changed or (now is not None and now.record.id == known.record.id):
            return []
        return self._command_over(known.record, changed)

    def _command_over(self, record: CommandRecord, candidates: Iterable[str]) -> list[Effect]:
        """A command does not count any more: pods of candidates that stay need no other place, replacements may be unneeded, or never come to be."""
        keys = sorted(map(NodeKey, candidates))
        self._dirty.update((*keys, *map(NodeKey, record.replacement_names)))
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
        """Nodes are others now: look at them again before the next snapshot, and at who is planned there at once."""
        self._dirty.update(keys)
        if not self._settled:
            return []
        now = self._clock.monotonic()
        return [effect for key in sorted(keys) for effect in self._plans.node_changed(key, now)]

    def _note_pod_event(self, known: Pod | None, pod: Pod, *, alive: bool) -> None:
        """Remember when a bound pod that is no daemon was bound here or ended. Not what a first listing tells."""
        if not self._settled or is_daemon(pod) or is_mirror(pod):
            return
        bound = alive and pod.deleted is None and (known is None or not known.node_name)
        ended = known is not None and is_active(known) and (not alive or pod.deleted is not None)
        if bound or ended:
            self._pod_event_at[pod.node_name] = self._clock.now()

    def _learn_limits(self, view: NodeView) -> None:
        """What one node takes, nodes of its type will take. Its type is what we wrote on its NodeClaim: a kubelet labels its own Node."""
        kind = view.claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "") if view.claim is not None else ""
        if kind and view.attach_limits:
            self._around.learn(kind, view.name, view.attach_limits)

    # ------------------------------------------------------------------ deriving

    def _assignment_changed(self, key: NodeKey, uid: str) -> None:
        self._dirty.add(key)
        if uid:
            self._refresh_pending(uid, self._clock.monotonic())
            pod = self._pods.get(uid)
            if pod is not None and pod.node_name:
                self._leaving.assignment_changed(self._joining.key_of_name(pod.node_name))

    def _time_passed(self, now: float) -> None:
        """Pods that wait with nothing but time wait from their moment on."""
        for uid in self._sights.due(now):
            self._refresh_pending(uid, now)

    def _refresh_pending(self, uid: str, now: float) -> None:
        pod = self._pods.get(uid)
        if pod is None or not is_pending(pod) or self._plans.assignments.is_planned(uid):
            self._pending.drop(uid)
            self._waiting.drop(uid)
            self._preempting.pop(uid, None)
            return
        rank = pod.created, uid
        self._pending.put(uid, rank, pod)
        if self._sights.of_pending(pod) > now:
            self._waiting.drop(uid)
            self._preempting.pop(uid, None)
            return
        self._waiting.put(uid, rank, pod)
        node = pod.nominated_node_name
        if not node:
            self._preempting.pop(uid, None)
        elif self._preempting.get(uid, ("", 0.0))[0] != node:
            self._preempting[uid] = node, now

    def _waiting_less(self, stopped: Mapping[str, Stop], now: float) -> tuple[Pod, ...]:
        """The pods that wait, less those that get room by preemption, and stopped classes; the same tuple while nothing changes.

        A pod that ends keeps nobody from waiting once its kubelet has had its time, and a minute more.

        Cost: the pods that have a nominated node, and while a class is stopped, all of them.
        """
        every = self._waiting.frozen()
        if not self._preempting and not stopped:
            return every
        less = {
            uid
            for uid, (node, since) in self._preempting.items()
            if any(
                victim.deleted is not None and now - since <= victim.ends_in + STUCK_AFTER.total_seconds()
                for victim in self._pods.on(node)
            )
        }
        if stopped:
            less |= {one.uid for one in every if one.shape.key in stopped}
        if not less:
            return every
        if self._less[0] is not every or self._less[1] != less:
            self._less = every, frozenset(less), tuple(one for one in every if one.uid not in less)
        return self._less[2]

    def _refresh(self) -> None:
        """Make the views anew of which something changed; one that comes out equal stays the same object."""
        self._types_looked_at()
        self._daemons.settle()
        if self._daemons.version != self._daemons_seen:
            self._daemons_seen = self._daemons.version
            self._dirty.update(view.key for view in self._views.frozen())
        for key in self._dirty:
            view, known = self._view(key), self._views.get(key)
            if view is not None:
                self._learn_limits(view)
            if view == known and view is not None:
                continue
            if view is None:
                self._views.drop(key)
                self._due.pop(key, None)
                self._typed.pop(key, None)
            else:
                self._views.put(key, (not view.initialized, key), view)
            self._usage.node_changed(key, view)
            self._leaving.node_changed(key, view)
            if view is not None and view.nominated and view.room.negative:
                self._crowded.add(key)
        self._dirty.clear()

    def _view(self, key: NodeKey) -> NodeView | None:
        pair = self._joining.pair(key)
        if pair is None:
            return None
        node, claim = pair
        name = node.metadata.name if node is not None else ""
        pool = claim.pool if claim is not None else ""
        types = self._types_for(key, claim)
        command = self._commands.of(key.name) if key.of_claim else None
        provider_id = (
            claim.status.provider_id if claim is not None else node.spec.provider_id if node is not None else ""
        )
        return view_of(
            Inputs(
                key=key,
                node=node,
                claim=claim,
                ambiguous=self._joining.rivals(provider_id) is not None,
                pods=self._pods.on(name),
                used=self._pods.used(name),
                kept=self._plans.assignments.kept(key),
                assigned=self._assigned_pods(key),
                nominated=self._plans.assignments.has(key),
                last_pod_event=self._pod_event_at.get(name),
                attach_limits=self._around.limits_of(name),
                expected=self._expectation(claim, types) if claim is not None and types else None,
                due=lambda labels, taints, pods: self._daemons_due(key, labels, taints, pods),
                most=lambda claim: self._peak(pool, claim, types),
                command=command.record.id if command is not None else "",
                unneeded=key.of_claim and self._plans.claims.is_unneeded(key.name),
            )
        )

    def _types_for(self, key: NodeKey, claim: NodeClaim | None) -> Mapping[str, InstanceType]:
        """The types of the claim where the view depends on them: until the claim says itself what it is."""
        if claim is None or (claim.status.capacity and is_true(claim.status.conditions, names.REGISTERED)):
            self._typed.pop(key, None)
            return {}
        types = self._types_of(claim)
        self._typed[key] = claim, types
        return types

    def _types_looked_at(self) -> None:
        """No event tells that the types of a pool or a class are others: the catalogue changed, or it is gone. O(claims without a Node)."""
        found: dict[object, Mapping[str, InstanceType]] = {}
        for key, (claim, types) in self._typed.items():
            origin = claim.pool or claim.spec.node_class_ref
            now = found.get(origin)
            if now is None:
                now = found[origin] = self._types_of(claim)
            if now is not types and (now or types):
                self._dirty.add(key)

    def _expectation(self, claim: NodeClaim, types: Mapping[str, InstanceType]) -> Expected | None:
        """`expected_of`; remembered where no plan says it, since claims of one static NodePool ask for the same."""
        if is_planned(claim):
            return expected_of(claim, types)
        named = claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "")
        asked = claim.spec.requirements, named, tuple(sorted(claim.spec.resources.requests.items()))
        known = self._expected.get(asked)
        if known is None or known[0] is not types:
            if len(self._expected) >= _MOST_REMEMBERED:
                self._expected.clear()
            known = self._expected[asked] = (types, expected_of(claim, types))
        return known[1]

    def _assigned_pods(self, key: NodeKey) -> tuple[Pod, ...]:
        """The pods that a node keeps room for, less those whose successor is still to come."""
        mine = (self._pods.get(one.uid) for one in self._plans.assignments.on(key) if one.uid)
        return tuple(sorted((pod for pod in mine if pod is not None), key=lambda pod: (pod.key, pod.uid)))

    def _daemons_due(
        self, key: NodeKey, labels: Mapping[str, str], taints: tuple[Taint, ...], pods: tuple[Pod, ...]
    ) -> Resources:
        """What DaemonSets will still take: what all of them want of the node, less what their pods on it have."""
        known, version = self._due.get(key), self._daemons.version
        if known is not None and known[2] == version and known[0] == labels and known[1] == taints:
            expected = known[3]
        else:
            expected = self._daemons.expected(labels, taints)
            self._due[key] = (labels, taints, version, expected)
        if not expected:
            return EMPTY
        present = EMPTY
        for pod in pods:
            if is_daemon(pod) and self._daemons.owns(pod):
                present += pod.shape.requests
        return (expected - present).maximum(EMPTY) if present else expected

    def _peak(self, pool_name: str, claim: NodeClaim, types: Mapping[str, InstanceType]) -> Resources | None:
        """`most_of`, remembered: claims of one batch have the same list."""
        pool = self._usage.pool(pool_name)
        if pool is None or not pool.spec.limits:
            return None
        limited = tuple(sorted(pool.spec.limits))
        named = next((tuple(one.values) for one in claim.spec.requirements if one.key == names.INSTANCE_TYPE_LABEL), ())
        known = self._peaks.get((limited, named))
        if known is None or known[0] is not types:
            if len(self._peaks) >= _MOST_REMEMBERED:
                self._peaks.clear()
            known = self._peaks[limited, named] = (types, most_of(claim, types, limited))
        return known[1]


def _newest_first(claim: NodeClaim) -> tuple[float, str]:
    created = claim.metadata.creation_timestamp
    return (-created.timestamp() if created is not None else 0.0, claim.metadata.name)


def _unreadable(daemon_set: DaemonSet, problem: str) -> DaemonSetUnreadable:
    return DaemonSetUnreadable(daemon_set, f"spec.template.{problem}")
