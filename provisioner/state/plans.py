"""The live plans: how assignments begin, pass on and end. Not thread-safe: the owner serialises calls.

A plan is written on a NodeClaim; what it still means is an assignment for each of its pods. An assignment ends when its pod
is bound, when its node or claim goes, when others took the room, when kube-scheduler refused the pod, and with its time.
Durations are measured by our own monotonic clock from what this process saw, never by other clocks' timestamps.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launches import is_launched
from provisioner.apis.meta import is_true
from provisioner.apis.plan import Plan, PlanEntry, PlanError, decode_plan
from provisioner.apis.pods import Pod, read_architectures
from provisioner.state import effects
from provisioner.state.assignments import Assignment, Assignments
from provisioner.state.claim_plans import ClaimPlan, ClaimPlans
from provisioner.state.disruption_commands import Commands
from provisioner.state.effects import Effect, NominationLost, PlanOutdated, PodMissed, PodSettled
from provisioner.state.expected_node import is_planned
from provisioner.state.joining import Joining
from provisioner.state.keys import NodeKey
from provisioner.state.lacking import AbsentDrivers
from provisioner.state.misses import Misses, cause_of
from provisioner.state.open_nodes import OpenNodes
from provisioner.state.pod_index import PodIndex
from provisioner.state.promises import PodFamily, ends_at, is_over, taken
from provisioner.state.snapshot import NodeView
from provisioner.state.staying import StayingNodes
from provisioner.state.surroundings import SurroundingsKeeper

_AS_THEY_ARE: Final[Mapping[str, Pod]] = {}


class Plans:
    """See the module.

    Args:
        commands: the disruption commands under way.
        around: which CSI drivers pods need, and nodes have.
        absent: which of them nodes are not expected to get.
        changed: told of the node and the pod ("" for none) whenever an assignment begins, ends or changes.
        hold_ttl: how long a node that is initialised keeps room for a planned pod at most, where its claim's plan does not say otherwise.
        plan_ttl: how long a node that is not keeps it.
        is_held: whether a Node that goes waits for pods of which none may leave.
        wall: the time of day, only ever written.

    Attributes:
        assignments: every place that is kept.
        misses: which of them kube-scheduler did not fill.
        claims: the NodeClaims that plans are on.
        open_nodes: which nodes take their planned pods.
    """

    def __init__(
        self,
        joining: Joining,
        pods: PodIndex,
        commands: Commands,
        around: SurroundingsKeeper,
        absent: AbsentDrivers,
        changed: Callable[[NodeKey, str], None],
        *,
        hold_ttl: timedelta,
        plan_ttl: timedelta,
        is_held: Callable[[NodeKey], bool],
        wall: Callable[[], datetime],
    ) -> None:
        self._joining, self._pods, self._commands, self._changed = joining, pods, commands, changed
        self._hold_seconds, self._plan_seconds = hold_ttl.total_seconds(), plan_ttl.total_seconds()
        self._wall = wall
        self.assignments, self.misses, self._staying = Assignments(), Misses(), StayingNodes(joining, commands)
        self.claims = ClaimPlans(joining, pods, commands, self.assignments)
        self.open_nodes = OpenNodes(
            joining, pods, commands, self.assignments, self.claims, self._staying, around, absent, is_held
        )

    # ------------------------------------------------------------------ claims

    def announce(self, new: Sequence[tuple[NodeClaim, Sequence[Pod]]], now: float) -> bool:
        """Claims are about to be created, each for its pods; False, and nothing changes, where none of the pods of one needs it any more. Without pods it is
        needed.
        """
        wanted: list[tuple[NodeClaim, Sequence[Pod], list[Pod]]] = []
        for claim, pods in new:
            found = [pod for one in pods if (pod := self._pods.get(one.uid)) is not None and self._needs_place(pod)]
            if pods and not found and self._commands.for_which(claim.metadata.name) is None:
                return False
            wanted.append((claim, pods, found))
        for claim, pods, found in wanted:
            self.claims.announce(claim, self._hold_seconds, for_pods=bool(pods))
            self._enter(NodeKey(claim.metadata.name), found, now, as_planned={one.uid: one for one in pods})
        if any(is_over(pod) for *_, found in wanted for pod in found):
            # evicted while they were planned; successors that came meanwhile have been told already
            for pod in self._pods.waiting():
                if self.assignments.of_pod(pod.uid) is None:
                    self._take_over(pod, now)
        return True

    def claim_changed(self, claim: NodeClaim, now: float) -> list[Effect]:
        """A claim is there, or is another one now; call after it was joined."""
        name, key = claim.metadata.name, NodeKey(claim.metadata.name)
        known = self.claims.of(key)
        one = known if known is not None else self.claims.renew(name)
        done: list[Effect] = []
        text = claim.metadata.annotations.get(names.PLAN_ANNOTATION, "")
        if one.announced and claim.metadata.uid:
            # somebody else's claim has the name: its plan is not ours
            if text != one.text or (one.for_pods and not text):
                one = self.claims.renew(name)  # before its ends are reviewed: it was not made for our pods
                done += self.end_all(key, effects.LOST)
            one.announced = False
        if is_true(claim.status.conditions, names.INITIALIZED):
            one.initialized_at = now if one.initialized_at is None else one.initialized_at
        if is_launched(claim):
            one.for_pods = False
        if claim.metadata.deletion_timestamp is None and text != one.text:
            done += self._adopt(claim, one, text, now)
            if known is None and one.initialized_at is not None and self.assignments.has(key):
                one.dated(self._wall())  # by our clock its time begins now; who reads the plan is to know
                done.append(PlanOutdated(key))
        done += self.node_changed(key, now)
        if self.claims.lacks_company(name):
            done += self.end_all(key, effects.LOST)  # all pods of the set are planned again together
        return done + self.claims.review(key)

    def claim_gone(self, name: str) -> list[Effect]:
        """A claim does not exist any more, or never came to be."""
        done = self.end_all(NodeKey(name), effects.LOST)
        self.claims.gone(name)
        return done

    def replan(self, now: float, claims: Mapping[str, Collection[str]]) -> list[Effect] | None:
        """Take the pods of held claims back, all or none (None), where one of these claims may have been launched since, or has other pods.

        Args:
            now: see the module.
            claims: by name, the UIDs of the pods that were planned again.
        """
        if not self.claims.replan(now, claims):
            return None
        return [effect for name in claims for effect in self.end_all(NodeKey(name), effects.REPLANNED)]

    def moved(self, key: NodeKey, plan: Plan) -> set[NodeKey]:
        """Where pods that a former plan of this node names have their places now: brothers' places that they got in exchange, which only it told of."""
        found = (self.assignments.of_pod(uid) for entry in plan.pods for uid in entry.uids)
        return {one.key for one in found if one is not None} - {key}

    def plan_of(self, key: NodeKey) -> Plan:
        """What the annotation of a claim should say.

        Pods of a family are counted together, those that are bound there already and those to come: that is how readers tell
        which of its places are taken. Families of which nobody is to come are left out. O(pods of the node).
        """
        here = self._pods.on(self._node_name(key))
        counts: dict[PodFamily, int] = {}
        uids: dict[PodFamily, set[str]] = {}
        for one in self.assignments.on(key):
            counts[one.family] = counts.get(one.family, 0) + 1
            uids.setdefault(one.family, set()).update({one.uid} - {""})
        for pod in here:
            family = PodFamily.of(pod)
            if family in counts and pod.uid not in uids[family]:
                counts[family] += 1
                uids[family].add(pod.uid)
        entries = tuple(
            PlanEntry(owner=family.owner, klass=family.klass, count=counts[family], uids=tuple(sorted(uids[family])))
            for family in sorted(counts)
        )
        known = self.claims.of(key) if entries else None
        return Plan.of(entries, self._hold_seconds, known.at if known is not None else msgspec.UNSET)

    # ------------------------------------------------------------------ nodes

    def assign(self, now: float, key: NodeKey, pods: Iterable[Pod]) -> list[Pod]:
        """Keep room on a node for pods that have none yet; the pods that are refused, since the node is unknown or going."""
        wanted = list(pods)
        if not self._staying.takes(key):
            return wanted
        found = [pod for one in wanted if (pod := self._pods.get(one.uid)) is not None]
        free = [pod for pod in found if self.assignments.of_pod(pod.uid) is None]
        self._enter(key, free, now, as_planned={one.uid: one for one in wanted})
        self.claims.planned(key, self._wall())
        return []

    def node_changed(self, key: NodeKey, now: float) -> list[Effect]:
        """Something about a node is different: does it still take its planned pods, and does it take them yet?"""
        if not self.assignments.has(key):
            self.open_nodes.forget(key)
            return []
        if not self._staying.keeps(key):
            return self.end_all(key, effects.LOST)
        self.open_nodes.note(key, now)
        return [effect for one in self.open_nodes.shut_out(key) for effect in self._end(one, effects.LOST)]

    def end_all(self, key: NodeKey, outcome: str) -> list[Effect]:
        """End every assignment of a node."""
        return [effect for one in self.assignments.on(key) for effect in self._end(one, outcome)]

    def stays(self, key: NodeKey, now: float) -> list[Effect]:
        """A node that was a candidate of a command is none any more: where it stays its pods need no other place. O(its pods)."""
        done: list[Effect] = []
        for pod in self._pods.on(self._node_name(key)):
            one = self.assignments.of_pod(pod.uid)
            if one is not None and self._staying.found_place(pod):
                done += self._close(one, pod, now)
        return done

    def displace(self, view: NodeView) -> list[Effect]:
        """End assignments of a node on which others have taken the room: their pods must be planned again."""
        done: list[Effect] = []
        lacking = {resource: -amount for resource, amount in view.room.items() if amount < 0}
        for one in self.assignments.first_to_go(view.key):
            given = one.requests
            if not any(given.get(resource, 0) > 0 for resource in lacking):
                continue
            done += self._end(one, effects.DISPLACED)
            lacking = {
                resource: amount - given.get(resource, 0)
                for resource, amount in lacking.items()
                if amount > given.get(resource, 0)
            }
        return done

    # ------------------------------------------------------------------ pods

    def pod_changed(self, known: Pod | None, pod: Pod, now: float, *, alive: bool) -> list[Effect]:
        """A pod is another one now; call after it was entered into the index."""
        came = bool(pod.node_name) and known is not None and not known.node_name
        judged = known is not None and known.scheduled_message != pod.scheduled_message
        if alive and (came or judged):
            self.open_nodes.acted(pod.shape.scheduler_name, now)
        if not alive or pod.node_name:
            self.misses.gone(pod.uid)
            self.claims.settled(pod.uid)
        one = self.assignments.of_pod(pod.uid)
        if came and self._took_equal_place(pod, now):
            self.misses.landed(pod.shape.key)  # the plan was followed, with another pod: each node still takes one
        if one is None:
            if not self.assignments.any_open or not alive or pod.deleted is not None or (pod.node_name and not came):
                return []
            where = self._joining.key_of_name(pod.node_name) if came else None
            if one := self._take_over(pod, now, where, is_new=known is None):
                return self._close(one, pod, now) if came else []
            gone = self.assignments.outgrown(pod.owner.uid) if pod.owner is not None and not came else None
            return self._end(gone, effects.EXPIRED) if gone is not None else []
        if not alive or is_over(pod):
            return self._leave(one, pod, now)
        one.shape = pod.shape
        _note_nomination(one, pod)
        self._changed(one.key, pod.uid)
        if (
            not pod.node_name
            and known is not None
            and _learned_of_images(known, pod)
            and not self._staying.runs_images(one.key, pod)
        ):
            return self._end(one, effects.DISPLACED)  # the place was chosen without knowing where its images run
        if came:
            self.open_nodes.progress.note(one.made_at, now)
        if pod.node_name and (came or (pod.node_name in self._joining.nodes and self._staying.found_place(pod))):
            return self._close(one, pod, now)
        if not pod.node_name and one.open_since is not None:
            cause = self.open_nodes.missed(one, pod, now, hear=True)
            if cause is not None:
                return self._miss(one, pod, cause, now)
        if not pod.node_name and known is not None and known.nominated_node_name and not pod.nominated_node_name:
            return [NominationLost(one.key.name, pod)] if one.key.of_claim else []
        return []

    def surges(self, uid: str) -> tuple[NodeKey | None, list[Effect]]:
        """A pod needs no other place: the node that keeps no room for it any more, and what follows."""
        one = self.assignments.of_pod(uid)
        return (one.key, self._end(one, effects.ABSORBED)) if one is not None else (None, [])

    def assigned_pods(self, key: NodeKey) -> tuple[Pod, ...]:
        """The pods that a node keeps room for, less those whose successor is still to come."""
        mine = (self._pods.get(one.uid) for one in self.assignments.on(key) if one.uid)
        return tuple(sorted((pod for pod in mine if pod is not None), key=lambda pod: (pod.key, pod.uid)))

    def assigned(self, key: NodeKey) -> tuple[Pod, ...]:
        """The unbound pods that a node still keeps room for, by name."""
        return tuple(pod for pod in self.assigned_pods(key) if self._pods.is_waiting(pod.uid))

    # ------------------------------------------------------------------ time

    def expire(self, now: float) -> list[Effect]:
        """End what is over. Cost: nodes with assignments, and the assignments of those that are open."""
        done: list[Effect] = []
        self.open_nodes.end_waits(now)
        for one in self.assignments.overdue(now):
            done += self._end(one, effects.EXPIRED)
        for key in self.assignments.keys:
            claim = self.claims.of(key)
            ready = claim.initialized_at if claim is not None else None
            coming = key.of_claim and ready is None
            hold_seconds = self._hold_seconds if claim is None else claim.hold_seconds
            for one in self.assignments.on(key):
                if one.vacant_since is not None:
                    continue  # has a time of its own
                since = one.made_at if coming else max(one.made_at, one.taken_at)
                if now >= ends_at(since, ready if key.of_claim else since, hold_seconds, self._plan_seconds):
                    pod = self._pods.get(one.uid)
                    if pod is not None and self._staying.is_candidate(pod.node_name):
                        continue  # a command may wait long for its other replacements, or for a budget
                    done += self._overdue(one, pod, now)
                elif one.open_since is not None and (pod := self._pods.get(one.uid)) is not None:
                    cause = self.open_nodes.missed(one, pod, now) if not pod.node_name else None
                    done += self._miss(one, pod, cause, now) if cause is not None else []
                elif coming and not self.open_nodes.is_open(key):
                    break  # those after it are younger
        self.misses.forget_old(now)
        self.open_nodes.progress.forget_old(now)
        return done

    # ------------------------------------------------------------------ helpers

    def _adopt(self, claim: NodeClaim, one: ClaimPlan, text: str, now: float) -> list[Effect]:
        """Read a plan that somebody else wrote: another leader, or this process before it was started again."""
        done: list[Effect] = []
        key, first = NodeKey(claim.metadata.name), not one.text
        one.text = text
        try:
            plan = decode_plan(text) if text else Plan()
        except PlanError:
            return []  # not ours: the claim works without a plan
        one.hold_seconds = plan.hold_seconds
        one.at = one.stated = plan.at if plan.at is msgspec.UNSET else min(plan.at, self._wall())
        # pods that are planned onto a user's claim, or a static NodePool's, do not make it theirs
        if plan.total and is_planned(claim) and not is_launched(claim):
            one.for_pods = True
        waits = not is_true(claim.status.conditions, names.INITIALIZED)
        listed = {uid for entry in plan.pods for uid in entry.uids}
        for entry in plan.pods:
            family = PodFamily(entry.owner, entry.klass)
            for uid in entry.uids:
                if uid in one.uids:
                    continue
                pod = self._pods.get(uid)
                if pod is None or (pod.deleted is not None and not pod.node_name):
                    if waits and family.has_brothers:
                        self.assignments.reserve(key, family, now)
                        self.open_nodes.recount()
                        self._changed(key, "")
                    continue
                before = self.assignments.of_pod(uid)
                if before is not None and self.claims.is_superseded(before.key, claim):
                    done += self._end(before, effects.REPLANNED)
                runs_here = pod.node_name and self._joining.key_of_name(pod.node_name) == key
                if not runs_here and self._needs_place(pod):
                    self._enter(key, [pod], now, family)
            if first and waits and entry.count > len(entry.uids):
                self._enter(key, self._of_family(family, entry.count - len(entry.uids)), now)
        one.uids = listed | {other.uid for other in self.assignments.on(key)}
        return done

    def _of_family(self, family: PodFamily, count: int) -> list[Pod]:
        """Waiting pods without a place. Cost: the waiting pods; only for plans that were too large for UIDs."""
        mine = (pod for pod in self._pods.waiting() if PodFamily.of(pod) == family and self._needs_place(pod))
        return sorted(mine, key=lambda pod: (pod.created, pod.uid))[:count]

    def _needs_place(self, pod: Pod) -> bool:
        return self.assignments.of_pod(pod.uid) is None and not self._staying.found_place(pod)

    def _enter(
        self,
        key: NodeKey,
        pods: Iterable[Pod],
        now: float,
        family: PodFamily | None = None,
        as_planned: Mapping[str, Pod] = _AS_THEY_ARE,
    ) -> None:
        """Pods are planned onto a node, as of their own families where a plan does not say otherwise.

        One that is to leave its node may be planned as what it will be (`as_planned`, by UID): of that family is its successor.
        """
        self.open_nodes.recount()
        for pod in pods:
            again = as_planned.get(pod.uid, pod) if pod.node_name else pod
            one = self.assignments.assign(key, pod, now, family or PodFamily.of(again))
            one.successor = again.shape if again.shape != pod.shape else None
            _note_nomination(one, pod)
            self.claims.entered(key, pod.uid)
            self._changed(key, pod.uid)
            if is_over(pod) and one.family.has_brothers:  # evicted while it was planned: its successor comes first
                self._leave(one, pod, now)
        if self.assignments.has(key):
            self.open_nodes.note(key, now)

    def _take_over(
        self, pod: Pod, now: float, where: NodeKey | None = None, *, is_new: bool = False
    ) -> Assignment | None:
        """A pod without a place has one that somebody of its family left, if there is one."""
        one = self.assignments.take_over(pod, now, where)
        if one is not None:
            self.open_nodes.took_over(one, pod, now, is_new=is_new)
            self.claims.entered(one.key, pod.uid)
            self._changed(one.key, pod.uid)
        return one

    def _leave(self, one: Assignment, pod: Pod, now: float) -> list[Effect]:
        """A pod is gone, or is over: its successor may have its place."""
        self.assignments.vacate(one, pod.node_name, now)
        self._changed(one.key, pod.uid)
        return [] if one.family.has_brothers else self._end(one, effects.EXPIRED)

    def _miss(self, one: Assignment, pod: Pod, cause: str, now: float) -> list[Effect]:
        stop = self.misses.missed(
            pod.uid, pod.shape.key, self._node_name(one.key), pod.scheduled_message, one.made_at, now
        )
        return [PodMissed(one.key, pod, cause, stop), *self._end(one, effects.MISSED)]

    def _overdue(self, one: Assignment, pod: Pod | None, now: float) -> list[Effect]:
        """The time of a place is over. A pod that waits for what its node lacks avoids that node: planned there again, it might wait for ever."""
        if pod is None or pod.node_name or not one.lacks:
            return self._end(one, effects.EXPIRED)
        return self._miss(one, pod, cause_of("", pod.scheduled_message), now)

    def _close(self, one: Assignment, pod: Pod, now: float) -> list[Effect]:
        """The pod runs somewhere: give the room back, or see it used."""
        filled = self._swapped(one, pod, now)
        here = self._node_name(filled.key) == pod.node_name
        if here:
            self.misses.landed(pod.shape.key)
        done = self._end(filled, effects.PLANNED if here else effects.ABSORBED)
        leaver = self._pods.get(one.uid) if filled is not one else None
        if leaver is not None and leaver.node_name and self._node_name(one.key) == leaver.node_name:
            done += self._end(one, effects.DISPLACED)  # what it got in exchange is the node that it leaves
        return done

    def _node_name(self, key: NodeKey) -> str:
        """Of the Node behind a key, "" where none has come."""
        node, _ = self._joining.pair(key) or (None, None)
        return node.metadata.name if node is not None else ""

    def _took_equal_place(self, pod: Pod, now: float) -> bool:
        """Whether a pod runs on a node that is planned for one like it, or was until a moment ago, while plans for such pods fail. O(pods planned there).

        kube-scheduler binds beside its next cycle: that the planned pod was refused may be seen before who took its room is seen to be bound.
        """
        klass = pod.shape.key
        if not self.misses.counts(klass):
            return False
        places = self.assignments.on(self._joining.key_of_name(pod.node_name))
        planned = any(one.shape is not None and one.shape.key == klass for one in places)
        return planned or self.misses.just_missed(klass, pod.node_name, now)

    def _swapped(self, one: Assignment, pod: Pod, now: float) -> Assignment:
        """The assignment that a bound pod fills: an equal's of its owner where it took that one's place, who gets its own instead."""
        key = self._joining.key_of_name(pod.node_name)
        if key == one.key or not one.family.has_brothers:
            return one
        other = taken(each for each in self.assignments.on(key) if each.family == one.family)
        if other is None:
            return one
        self.assignments.swap(one, other)
        self.claims.planned(one.key, self._wall())
        for each in (one, other):
            each.open_since = None  # another pod: what was said of the one before says nothing of it
            self._changed(each.key, each.uid)
            self.open_nodes.note(each.key, now)
        return other

    def _end(self, one: Assignment, outcome: str) -> list[Effect]:
        uid = one.uid
        self.assignments.end(one)
        if not self.assignments.has(one.key):
            self.open_nodes.forget(one.key)
        elif one.lacks or one.made_at not in self.assignments.made_at(one.key):
            self.open_nodes.recount()
        self._changed(one.key, uid)
        told: list[Effect] = [PodSettled(one.key, uid, outcome) if uid else PlanOutdated(one.key)]
        return told + self.claims.review(one.key)


def _learned_of_images(known: Pod, pod: Pod) -> bool:
    """Whether it became known for which architectures the pod's images were built."""
    return read_architectures(known.annotations) != read_architectures(pod.annotations)


def _note_nomination(one: Assignment, pod: Pod) -> None:
    """Remember where the pod was nominated to; a failed cycle clears that."""
    if pod.nominated_node_name:
        one.nominated = pod.uid, pod.nominated_node_name
