"""The live plans: how assignments begin, pass on and end. Not thread-safe: the owner serialises calls.

A plan is written on a NodeClaim; what it still means is an assignment for each of its pods. An assignment ends when its pod
is bound, when its node or claim goes, when others took the room, when kube-scheduler refused the pod, and with its time.
Durations are measured by our own monotonic clock from what this process saw, never by other clocks' timestamps.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true, version_number
from provisioner.apis.plan import HOLD_SECONDS, Plan, PlanEntry, PlanError, decode_plan
from provisioner.apis.pods import Pod, read_architectures
from provisioner.state import effects
from provisioner.state.assignments import Assignment, Assignments
from provisioner.state.disruption_commands import Commands
from provisioner.state.effects import ClaimUnneeded, Effect, NominationLost, PlanOutdated, PodMissed, PodSettled
from provisioner.state.expected_node import is_planned
from provisioner.state.joining import Joining
from provisioner.state.keys import NodeKey
from provisioner.state.launches import Launch, Launches
from provisioner.state.misses import (
    TOGETHER_SECONDS,
    Look,
    Misses,
    PlanProgress,
    is_evidence,
    is_relative,
    verdict,
)
from provisioner.state.node_views import falling_taints, is_deleted, is_disrupted, is_going, is_lost
from provisioner.state.pod_index import PodIndex
from provisioner.state.promises import PodFamily, ends_at, is_over, taken
from provisioner.state.snapshot import NodeView
from provisioner.values.bounded import forget_oldest, put_newest
from provisioner.values.taints import first_untolerated

_MOST_SCHEDULERS: Final = 64
_MOST_SURGING: Final = 10_000


@dataclass(slots=True)
class _Openness:
    """Whether a node takes its planned pods.

    Attributes:
        open_since: since when; None while taints that will fall are on it, or no Node has come.
        version: of its Node when it was first seen open.
        joined: (Nodes with it, Nodes removed until then) when its Node came; None where that was before the first plan.
        empty: no Node has come.
    """

    open_since: float | None = None
    version: int = 0
    joined: tuple[int, int] | None = None
    empty: bool = False


@dataclass(slots=True)
class _Claim:
    """What is remembered of one claim's plan.

    Attributes:
        text: as it was read or made last.
        uids: of pods that were entered from it once; a text that is read again enters nobody twice.
        announced: it is not created yet.
        for_pods: it was made for pods, and is not launched.
        initialized_at: when this process first saw it initialised.
        hold_seconds: for how long its plan keeps room from then on, as it is written.
        at: when pods were planned there after it was created, see `Plan.at`.
        stated: the same, but as another leader said it where this one has only given them their time anew.
    """

    text: str = ""
    uids: set[str] = field(default_factory=set)
    announced: bool = False
    for_pods: bool = False
    initialized_at: float | None = None
    hold_seconds: float = HOLD_SECONDS
    at: datetime | msgspec.UnsetType = msgspec.UNSET
    stated: datetime | msgspec.UnsetType = msgspec.UNSET

    def dated(self, at: datetime) -> None:
        """Pods have their time from now on; two plans are never of one time."""
        self.at = at if self.at is msgspec.UNSET else max(at, self.at + timedelta(microseconds=1))

    def planned(self, at: datetime) -> None:
        """Pods were planned."""
        self.dated(at)
        self.stated = self.at


class Plans:
    """See the module.

    Args:
        commands: the disruption commands under way.
        changed: told of the node and the pod ("" for none) whenever an assignment begins, ends or changes.
        hold_ttl: how long a node that is initialised keeps room for a planned pod at most, where its claim's plan does not say otherwise.
        plan_ttl: how long a node that is not keeps it.
        is_held: whether a Node that goes waits for pods of which none may leave.
        wall: the time of day, only ever written.
    """

    def __init__(
        self,
        joining: Joining,
        pods: PodIndex,
        commands: Commands,
        changed: Callable[[NodeKey, str], None],
        *,
        hold_ttl: timedelta,
        plan_ttl: timedelta,
        is_held: Callable[[NodeKey], bool],
        wall: Callable[[], datetime],
    ) -> None:
        self.assignments = Assignments()
        self.misses = Misses()
        self._launches = Launches()
        self._joining, self._pods, self._commands, self._changed = joining, pods, commands, changed
        self._hold_seconds, self._plan_seconds = hold_ttl.total_seconds(), plan_ttl.total_seconds()
        self._wall, self._is_held = wall, is_held
        self._claims: dict[str, _Claim] = {}
        self._openness: dict[NodeKey, _Openness] = {}  # of nodes that have assignments
        # when the plans of nodes that are not open were made, ascending; None: to be counted
        self._coming: list[float] | None = None
        self._progress = PlanProgress()
        self._surging: dict[str, None] = {}  # UIDs, see `surges`
        self._acted_at: dict[str, float] = {}  # scheduler name -> when it last bound or judged a pod

    # ------------------------------------------------------------------ claims

    def announce(self, claim: NodeClaim, pods: Iterable[Pod], now: float) -> bool:
        """A claim is about to be created for these pods; False where none of them needs it any more. Without pods it is needed."""
        key, asked = NodeKey(claim.metadata.name), tuple(pods)
        found = [pod for one in asked if (pod := self._pods.get(one.uid)) is not None and self._needs_place(pod)]
        if asked and not found and self._commands.for_which(key.name) is None:
            return False
        self._claims[key.name] = _Claim(
            text=claim.metadata.annotations.get(names.PLAN_ANNOTATION, ""),
            announced=True,
            for_pods=bool(asked),
            hold_seconds=self._hold_seconds,
        )
        self._launches.announced(key.name)
        self._enter(key, found, now)
        return True

    def claim_changed(self, claim: NodeClaim, now: float) -> list[Effect]:
        """A claim is there, or is another one now; call after it was joined."""
        name, key = claim.metadata.name, NodeKey(claim.metadata.name)
        is_new = name not in self._claims
        one = self._claims.setdefault(name, _Claim())
        done: list[Effect] = []
        text = claim.metadata.annotations.get(names.PLAN_ANNOTATION, "")
        if one.announced and claim.metadata.uid:
            # somebody else's claim has the name: its plan is not ours
            if text != one.text or (one.for_pods and not text):
                one = self._claims[name] = _Claim()  # before its ends are reviewed: it was not made for our pods
                self._launches.gone(name)
                done += self.end_all(key, effects.LOST)
            one.announced = False
        if is_true(claim.status.conditions, names.INITIALIZED):
            one.initialized_at = now if one.initialized_at is None else one.initialized_at
        if is_launched(claim):
            one.for_pods = False
        if claim.metadata.deletion_timestamp is None and text != one.text:
            done += self._adopt(claim, one, text, now)
            if is_new and one.initialized_at is not None and self.assignments.has(key):
                one.dated(self._wall())  # by our clock its time begins now; who reads the plan is to know
                done.append(PlanOutdated(key))
        return done + self.node_changed(key, now) + self.review(key)

    def claim_gone(self, name: str) -> list[Effect]:
        """A claim does not exist any more, or never came to be."""
        done = self.end_all(NodeKey(name), effects.LOST)
        self._claims.pop(name, None)
        self._launches.gone(name)
        return done

    def is_unneeded(self, name: str) -> bool:
        """Whether a claim was made for pods none of which needs it any more, and is not launched.

        A command waits for its replacements whatever becomes of the pods. One with a launch mark may have an instance: it is needed until its
        provider said that there is none, or took the mark off; where there is one it is launched, and emptiness judges it.
        """
        one = self._claims.get(name)
        if one is None or not one.for_pods or self.assignments.has(NodeKey(name)):
            return False
        claim = self._joining.claims.get(name)
        marked = claim is not None and names.LAUNCH_ANNOTATION in claim.metadata.annotations
        return (not marked or self._launches.is_refused(name)) and self._commands.for_which(name) is None

    def unneeded(self) -> list[Effect]:
        """`ClaimUnneeded` for every such claim that exists. Cost: claims."""
        mine = sorted(name for name, one in self._claims.items() if one.for_pods)
        return [effect for name in mine for effect in self.review(NodeKey(name))]

    def review(self, key: NodeKey) -> list[Effect]:
        """The same for one node."""
        claim = self._joining.claims.get(key.name) if key.of_claim else None
        if claim is None or not claim.metadata.uid or claim.metadata.deletion_timestamp is not None:
            return []
        return [ClaimUnneeded(key.name)] if self.is_unneeded(key.name) else []

    # ------------------------------------------------------------------ launches

    def launch_begins(self, name: str, now: float) -> Launch:
        """Whether a claim may be launched now; where it may, its pods stay with it from here on."""
        if self.is_unneeded(name):
            return Launch.UNNEEDED
        return Launch.BEGIN if self._launches.begins(name, now) else Launch.HELD

    def launch_refused(self, name: str) -> None:
        """There is no instance for a claim, and none comes before it is launched again."""
        if name in self._claims:
            self._launches.refused(name)

    def hold_launches(self, until: float) -> tuple[str, ...]:
        """Nobody launches the claims before that whose pods may be planned again; their names.

        None of them has, or may have, an instance; all of their pods wait, and were not planned again too often; and no command waits for them.
        Cost: claims that are not being launched, and their pods.
        """
        found = tuple(name for name in self._launches.idle() if self._may_be_replanned(name))
        self._launches.hold(found, until)
        return found

    def release_launches(self, claims: Iterable[str]) -> None:
        """They may be launched."""
        self._launches.hold(claims, 0.0)

    def replan(self, claims: Mapping[str, Collection[str]], now: float) -> list[Effect] | None:
        """Take the pods of held claims back, all or none (None), where one of these claims may have been launched since, or has other pods.

        Args:
            claims: by name, the UIDs of the pods that were planned again.
            now: see the module.
        """
        for name, uids in claims.items():
            mine = {one.uid for one in self.assignments.on(NodeKey(name))}
            if mine != set(uids) or not self._launches.is_held(name, now) or not self._may_be_replanned(name):
                return None
        done: list[Effect] = []
        for name, uids in claims.items():
            self._launches.moved(uids)
            done += self.end_all(NodeKey(name), effects.REPLANNED)
        return done

    def _may_be_replanned(self, name: str) -> bool:
        one, claim, key = self._claims.get(name), self._joining.claims.get(name), NodeKey(name)
        if (
            one is None
            or claim is None
            or not one.for_pods
            or self._commands.for_which(name) is not None
            or claim.metadata.deletion_timestamp is not None
            or names.LAUNCH_ANNOTATION in claim.metadata.annotations  # an attempt of which not everything is known
        ):
            return False
        pair, mine = self._joining.pair(key), self.assignments.on(key)
        waits = all(one.uid and self._pods.is_waiting(one.uid) for one in mine)
        return (
            bool(mine)
            and waits
            and pair is not None
            and pair[0] is None
            and self._launches.may_move(one.uid for one in mine)
        )

    def moved(self, key: NodeKey, plan: Plan) -> set[NodeKey]:
        """Where pods that a former plan of this node names have their places now: brothers' places that they got in exchange, which only it told of."""
        found = (self.assignments.of_pod(uid) for entry in plan.pods for uid in entry.uids)
        return {one.key for one in found if one is not None} - {key}

    def plan_of(self, key: NodeKey) -> Plan:
        """What the annotation of a claim should say.

        Pods of a family are counted together, those that are bound there already and those to come: that is how readers tell
        which of its places are taken. Families of which nobody is to come are left out. O(pods of the node).
        """
        pair = self._joining.pair(key)
        node = pair[0] if pair is not None else None
        here = self._pods.on(node.metadata.name) if node is not None else ()
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
        known = self._claims.get(key.name) if key.of_claim and entries else None
        return Plan.of(entries, self._hold_seconds, known.at if known is not None else msgspec.UNSET)

    # ------------------------------------------------------------------ nodes

    def assign(self, key: NodeKey, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Keep room on a node for pods that have none yet; the pods that are refused, since the node is unknown or going."""
        wanted = list(pods)
        if not self._takes(key):
            return wanted
        found = [pod for one in wanted if (pod := self._pods.get(one.uid)) is not None]
        self._enter(key, [pod for pod in found if self.assignments.of_pod(pod.uid) is None], now)
        if key.of_claim and (one := self._claims.get(key.name)) is not None:
            one.planned(self._wall())
        return []

    def node_changed(self, key: NodeKey, now: float) -> list[Effect]:
        """Something about a node is different: does it still take its planned pods, and does it take them yet?"""
        if not self.assignments.has(key):
            self._forget_door(key)
            return []
        if not self._keeps(key):
            return self.end_all(key, effects.LOST)
        self._open_or_close(key, now)
        return self._shut_out(key)

    def end_all(self, key: NodeKey, outcome: str) -> list[Effect]:
        """End every assignment of a node."""
        return [effect for one in self.assignments.on(key) for effect in self._end(one, outcome)]

    def stays(self, key: NodeKey, now: float) -> list[Effect]:
        """A node that was a candidate of a command is none any more: where it stays its pods need no other place. O(its pods)."""
        pair = self._joining.pair(key)
        node = pair[0] if pair is not None else None
        done: list[Effect] = []
        for pod in self._pods.on(node.metadata.name) if node is not None else ():
            one = self.assignments.of_pod(pod.uid)
            if one is not None and self._found_place(pod):
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
            put_newest(self._acted_at, pod.shape.scheduler_name, now, _MOST_SCHEDULERS)
        if not alive or pod.node_name:
            self.misses.gone(pod.uid)
            self._launches.settled(pod.uid)
        if not alive:
            self.surges_no_more(pod.uid)
        one = self.assignments.of_pod(pod.uid)
        if came and self._took_equal_place(pod, now):
            self.misses.landed(pod.shape.key)  # the plan was followed, with another pod: each node still takes one
        if one is None:
            if not self.assignments.any_open or not alive or pod.deleted is not None or (pod.node_name and not came):
                return []
            where = self._joining.key_of_name(pod.node_name) if came else None
            if one := self.assignments.take_over(pod, now, where):
                one.open_since = None  # what was said, and how long it took, of the one before says nothing of this one
                self._open_or_close(one.key, now)
                # where the pods' watch lags, a pod that is seen for the first time may have been judged before the node opened
                seen_open = known is None and one.open_since is not None and not pod.unschedulable
                one.came_open = seen_open and not self._is_older(pod, one.key)
                self._entered(one.key, pod.uid)
                self._changed(one.key, pod.uid)
                return self._close(one, pod, now) if came else []
            gone = self.assignments.outgrown(pod.owner.uid) if pod.owner is not None and not came else None
            return self._end(gone, effects.EXPIRED) if gone is not None else []
        if not alive or is_over(pod):
            self.assignments.vacate(one, pod.node_name, now)
            self._changed(one.key, pod.uid)
            return [] if one.family.has_brothers else self._end(one, effects.EXPIRED)
        one.shape = pod.shape
        _note_nomination(one, pod)
        self._changed(one.key, pod.uid)
        if (
            not pod.node_name
            and known is not None
            and _learned_of_images(known, pod)
            and not self._runs_images(one.key, pod)
        ):
            return self._end(one, effects.DISPLACED)  # the place was chosen without knowing where its images run
        if came:
            self._progress.note(one.made_at, now)
        if pod.node_name and (came or (pod.node_name in self._joining.nodes and self._found_place(pod))):
            return self._close(one, pod, now)
        if not pod.node_name and one.open_since is not None:
            look = self._look(one, pod, now)
            if (cause := verdict(look)) is not None:
                return self._miss(one, pod, cause, now)
            if pod.scheduled_message != one.said and not is_evidence(look):
                one.said = pod.scheduled_message  # too early to tell: what is said from now on counts
        if not pod.node_name and known is not None and known.nominated_node_name and not pod.nominated_node_name:
            return [NominationLost(one.key.name, pod)] if one.key.of_claim else []
        return []

    def _runs_images(self, key: NodeKey, pod: Pod) -> bool:
        """Whether a node is known to be of an architecture that the pod's images were built for, as far as that is known."""
        wanted = {*read_architectures(pod.annotations)}
        node, claim = self._joining.pair(key) or (None, None)
        told = {
            one.metadata.labels[names.ARCH_LABEL]
            for one in (node, claim)
            if one is not None and names.ARCH_LABEL in one.metadata.labels
        }
        if not told and claim is not None:
            told.update(
                *(one.values for one in claim.spec.requirements if one.key == names.ARCH_LABEL and one.operator == "In")
            )
        return not wanted or (bool(told) and told <= wanted)

    # ------------------------------------------------------------------ surges

    def surges(self, pod: Pod) -> tuple[NodeKey | None, list[Effect]]:
        """A pod needs no other place, since its successor comes while it still runs, and is planned by itself: its room is free for that.

        Returns:
            The node that keeps no room for it any more, and what follows.
        """
        self._surging[pod.uid] = None
        forget_oldest(self._surging, _MOST_SURGING)
        one = self.assignments.of_pod(pod.uid)
        if one is None:
            return None, []
        return one.key, self._end(one, effects.ABSORBED)

    def surges_no_more(self, uid: str) -> bool:
        """It is evicted after all, or gone; whether it was one."""
        known = uid in self._surging
        self._surging.pop(uid, None)
        return known

    def needs_no_place(self, uid: str) -> bool:
        """Whether a pod of a node that goes has a place, or a successor that is planned by itself."""
        return uid in self._surging or self.assignments.of_pod(uid) is not None

    # ------------------------------------------------------------------ time

    def is_unanswered(self, uid: str, now: float) -> bool:
        """Whether the Node that came for this pod is open to it, and its scheduler has neither bound it nor refused it there since.

        Of a node that was open before it was planned there, a scheduler may have nothing new to say.
        """
        one, pod = self.assignments.of_pod(uid), self._pods.get(uid)
        openness = self._openness.get(one.key) if one is not None else None
        if one is None or pod is None or pod.node_name or openness is None or openness.joined is None:
            return False
        came = openness.open_since is not None and openness.open_since == one.open_since
        return came and not is_evidence(self._look(one, pod, now))

    def expire(self, now: float) -> list[Effect]:
        """End what is over. Cost: nodes with assignments, and the assignments of those that are open."""
        done: list[Effect] = []
        for one in self.assignments.overdue(now):
            done += self._end(one, effects.EXPIRED)
        for key in self.assignments.keys:
            claim = self._claims.get(key.name) if key.of_claim else None
            ready = claim.initialized_at if claim is not None else None
            coming = key.of_claim and ready is None
            openness = self._openness.get(key)
            is_open = openness is not None and openness.open_since is not None
            hold_seconds = self._hold_seconds if claim is None else claim.hold_seconds
            for one in self.assignments.on(key):
                if one.vacant_since is not None:
                    continue  # has a time of its own
                since = one.made_at if coming else max(one.made_at, one.taken_at)
                if now >= ends_at(since, ready if key.of_claim else since, hold_seconds, self._plan_seconds):
                    if self._is_on_candidate(one):
                        continue  # a command may wait long for its other replacements, or for a budget
                    done += self._end(one, effects.EXPIRED)
                elif is_open and one.open_since is not None and (pod := self._pods.get(one.uid)) is not None:
                    cause = verdict(self._look(one, pod, now)) if not pod.node_name else None
                    done += self._miss(one, pod, cause, now) if cause is not None else []
                elif coming:
                    break  # those after it are younger
        self.misses.forget_old(now)
        self._progress.forget_old(now)
        return done

    # ------------------------------------------------------------------ helpers

    def _is_on_candidate(self, one: Assignment) -> bool:
        """Whether the pod still runs on a candidate of a command, so that its place is kept as long as that lives."""
        pod = self._pods.get(one.uid)
        node = self._joining.nodes.get(pod.node_name) if pod is not None else None
        claim = self._joining.claim_of(node) if node is not None else None
        return claim is not None and self._commands.of(claim.metadata.name) is not None

    def _adopt(self, claim: NodeClaim, one: _Claim, text: str, now: float) -> list[Effect]:
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
                        self._coming = None
                        self._changed(key, "")
                    continue
                before = self.assignments.of_pod(uid)
                if before is not None and self._is_superseded(before.key, claim):
                    done += self._end(before, effects.REPLANNED)
                runs_here = pod.node_name and self._joining.key_of_name(pod.node_name) == key
                if not runs_here and self._needs_place(pod):
                    self._enter(key, [pod], now, family)
            if first and waits and entry.count > len(entry.uids):
                self._enter(key, self._of_family(family, entry.count - len(entry.uids)), now)
        one.uids = listed | {other.uid for other in self.assignments.on(key)}
        return done

    def _is_superseded(self, key: NodeKey, claim: NodeClaim) -> bool:
        """Whether a pod's place there counts no more once the plan on this claim names it: of two plans of other leaders the later one, then by name."""
        known = self._joining.claims.get(key.name) if key.of_claim and not self._launches.is_ours(key.name) else None
        return known is not None and self._stated(known) < self._stated(claim)

    def _stated(self, claim: NodeClaim) -> tuple[float, str]:
        """When the plan of a claim was made, as it says, and its name."""
        name, at = claim.metadata.name, claim.metadata.creation_timestamp
        if (one := self._claims.get(name)) is not None and one.stated is not msgspec.UNSET:
            at = one.stated
        return at.timestamp() if at is not None else 0.0, name

    def _of_family(self, family: PodFamily, count: int) -> list[Pod]:
        """Waiting pods without a place. Cost: the waiting pods; only for plans that were too large for UIDs."""
        mine = (pod for pod in self._pods.waiting() if PodFamily.of(pod) == family and self._needs_place(pod))
        return sorted(mine, key=lambda pod: (pod.created, pod.uid))[:count]

    def _needs_place(self, pod: Pod) -> bool:
        return self.assignments.of_pod(pod.uid) is None and not self._found_place(pod)

    def _enter(self, key: NodeKey, pods: Iterable[Pod], now: float, family: PodFamily | None = None) -> None:
        """Pods are planned onto a node, as of their own families where a plan does not say otherwise."""
        self._coming = None
        for pod in pods:
            one = self.assignments.assign(key, pod, now, family or PodFamily.of(pod))
            _note_nomination(one, pod)
            self._entered(key, pod.uid)
            self._changed(key, pod.uid)
            if is_over(pod) and one.family.has_brothers:  # evicted while it was planned: its successor comes first
                self.assignments.vacate(one, pod.node_name, now)
        if self.assignments.has(key):
            self._open_or_close(key, now)

    def _entered(self, key: NodeKey, uid: str) -> None:
        if key.of_claim and (one := self._claims.get(key.name)) is not None:
            one.uids.add(uid)

    def _found_place(self, pod: Pod) -> bool:
        """Bound to a node that stays."""
        return bool(pod.node_name) and self._stays(pod.node_name)

    def _stays(self, node_name: str) -> bool:
        node = self._joining.nodes.get(node_name)
        return node is None or not self._is_going(node, self._joining.claim_of(node))

    def _is_going(self, node: Node | None, claim: NodeClaim | None) -> bool:
        return is_going(node, claim) or (claim is not None and self._commands.of(claim.metadata.name) is not None)

    def _takes(self, key: NodeKey) -> bool:
        """Whether pods may be planned onto a node: it is known, stays, and is one."""
        pair = self._joining.pair(key)
        if pair is None or self._is_going(*pair) or is_lost(*pair):
            return False
        claim = pair[1]
        return claim is None or self._joining.rivals(claim.status.provider_id) is None

    def _keeps(self, key: NodeKey) -> bool:
        """Whether a node keeps the pods that are planned onto it.

        The taint of a disruption alone ends nothing: who wrote it looks at what is planned there, and may take it off again.
        """
        node, claim = self._joining.pair(key) or (None, None)
        if (node is None and claim is None) or is_deleted(node, claim):
            return False
        if claim is None:
            return True
        interrupted = is_disrupted(node) and names.INTERRUPTION_ANNOTATION in claim.metadata.annotations
        return not interrupted and self._joining.rivals(claim.status.provider_id) is None

    def _open_or_close(self, key: NodeKey, now: float) -> None:
        node, claim = self._joining.pair(key) or (None, None)
        if (openness := self._openness.get(key)) is None:
            openness = self._openness[key] = _Openness(empty=node is None)
            self._coming = None
        if node is not None and openness.empty:
            openness.joined, openness.empty = (len(self._joining.nodes), self._joining.nodes_removed), False
        if node is None or falling_taints(node, claim):
            self._coming = None if openness.open_since is not None else self._coming
            openness.open_since, openness.empty = None, node is None
            for one in self.assignments.on(key):
                one.open_since = None
            return
        if openness.open_since is None:
            openness.open_since, self._coming = now, None
            openness.version = version_number(node.metadata.resource_version)
            for one in self.assignments.on(key):
                self._progress.note(one.made_at, now)
        for one in self.assignments.on(key):
            if one.open_since is None:
                self._open(one, now)

    def _shut_out(self, key: NodeKey) -> list[Effect]:
        """End what is planned onto a Node that somebody cordons before it is open; of an open one kube-scheduler says so at once."""
        node, _ = self._joining.pair(key) or (None, None)
        openness = self._openness.get(key)
        if node is None or openness is None or openness.open_since is not None:
            return []
        cordon = [taint for taint in node.spec.taints if taint.key == names.CORDONED_TAINT_KEY]
        return [
            effect
            for one in (self.assignments.on(key) if cordon else ())
            if one.shape is None or first_untolerated(one.shape.tolerations, cordon) is not None
            for effect in self._end(one, effects.LOST)
        ]

    def _open(self, one: Assignment, now: float) -> None:
        """The node takes this pod from now on."""
        one.open_since, one.waiting, one.said, one.came_open = now, self._pods.waiting_count, "", False
        pod = self._pods.get(one.uid)
        if pod is None:
            return
        one.nodes, one.tainted = len(self._joining.nodes), self._joining.tainted_for(pod.shape.tolerations)
        # kube-scheduler may have been quicker than our watch of Nodes: then its verdict is there already
        one.said = "" if is_evidence(self._look(one, pod, now)) else pod.scheduled_message

    def _look(self, one: Assignment, pod: Pod, now: float) -> Look:
        openness = self._openness.get(one.key)
        since = one.open_since if one.open_since is not None else now
        opened = openness.open_since if openness is not None else None
        told = one.came_open or (opened is not None and opened >= one.made_at)
        joined = openness.joined if openness is not None and told else None
        leaving, is_relatively = self._is_left(one), is_relative(pod.scheduled_message)
        return Look(
            open_for=now - since,
            said_then=one.said,
            said=pod.scheduled_message,
            unschedulable=pod.unschedulable,
            least=max(1, joined[0] + joined[1] - self._joining.nodes_removed) if joined is not None else 0,
            nodes=len(self._joining.nodes),
            tainted=self._joining.tainted_for(pod.shape.tolerations),
            nodes_then=one.nodes,
            tainted_then=one.tainted,
            waiting=one.waiting,
            quiet_for=now - max(since, self._progress.last(one.made_at)),
            coming=is_relatively and self._is_coming(one.made_at),
            older=self._is_older(pod, one.key),
            came_open=one.came_open,
            leaving=leaving,
            held=leaving and is_relatively and self._is_held(self._joining.key_of_name(one.leaves)),
            nominated=one.nominated[0] == pod.uid and self._joining.key_of_name(one.nominated[1]) == one.key,
            alive=self._acted_at.get(pod.shape.scheduler_name, float("-inf")) > since,
        )

    def _is_older(self, pod: Pod, key: NodeKey) -> bool:
        """Whether the pod, as it is known, is from before the node opened."""
        openness = self._openness.get(key)
        return openness is not None and version_number(pod.resource_version) < openness.version

    def _is_left(self, one: Assignment) -> bool:
        """Whether a Node that goes, and that the pod leaves or its node replaces, is still there."""
        node = self._joining.nodes.get(one.leaves)
        goes = node is not None and self._is_going(node, self._joining.claim_of(node))
        return goes or (one.key.of_claim and self._commands.for_which(one.key.name) is not None)

    def _is_coming(self, made_at: float) -> bool:
        """Whether a node for which pods were planned then is still to open. O(log nodes), and O(nodes) after one of them opened or closed."""
        if self._coming is None:
            closed = (key for key, openness in self._openness.items() if openness.open_since is None)
            self._coming = sorted({at for key in closed for at in self.assignments.made_at(key)})
        at = bisect_left(self._coming, made_at - TOGETHER_SECONDS)
        return at < len(self._coming) and self._coming[at] <= made_at + TOGETHER_SECONDS

    def companions_coming(self, claims: Collection[str]) -> bool:
        """Whether a claim that was planned together with these, and is none of them, is still to be let in. O(nodes that are not open).

        One whose launch takes long counts, until its provider says that there is no instance.
        """
        times = [at for name in claims for at in self.assignments.made_at(NodeKey(name))]
        if not times:
            return False
        first, last = min(times) - TOGETHER_SECONDS, max(times) + TOGETHER_SECONDS
        return any(
            openness.open_since is None
            and key.name not in claims
            and any(first <= at <= last for at in self.assignments.made_at(key))
            and self._is_to_be_let_in(key)
            for key, openness in self._openness.items()
        )

    def planned_at(self, claim: str) -> float:
        """When the first of the pods that are planned on a claim were; 0 without any."""
        return min(self.assignments.made_at(NodeKey(claim)), default=0.0)

    def _is_to_be_let_in(self, key: NodeKey) -> bool:
        node, claim = self._joining.pair(key) or (None, None)
        joins = node is None or any(taint.key == names.UNREGISTERED_TAINT.key for taint in node.spec.taints)
        return joins and claim is not None and not self._launches.is_refused(key.name)

    def _forget_door(self, key: NodeKey) -> None:
        openness = self._openness.pop(key, None)
        if openness is not None and openness.open_since is None:
            self._coming = None

    def _miss(self, one: Assignment, pod: Pod, cause: str, now: float) -> list[Effect]:
        node, _ = self._joining.pair(one.key) or (None, None)
        name = node.metadata.name if node is not None else ""
        stop = self.misses.missed(pod.uid, pod.shape.key, name, pod.scheduled_message, one.made_at, now)
        return [PodMissed(one.key, pod, cause, stop), *self._end(one, effects.MISSED)]

    def _close(self, one: Assignment, pod: Pod, now: float) -> list[Effect]:
        """The pod runs somewhere: give the room back, or see it used."""
        filled = self._swapped(one, pod, now)
        here = self._is_on(filled, pod)
        if here:
            self.misses.landed(pod.shape.key)
        done = self._end(filled, effects.PLANNED if here else effects.ABSORBED)
        leaver = self._pods.get(one.uid) if filled is not one else None
        if leaver is not None and self._is_on(one, leaver):
            done += self._end(one, effects.DISPLACED)  # what it got in exchange is the node that it leaves
        return done

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

    def _is_on(self, one: Assignment, pod: Pod) -> bool:
        """Whether a pod runs on the node of a place."""
        node, _ = self._joining.pair(one.key) or (None, None)
        return node is not None and node.metadata.name == pod.node_name

    def _swapped(self, one: Assignment, pod: Pod, now: float) -> Assignment:
        """The assignment that a bound pod fills: an equal's of its owner where it took that one's place, who gets its own instead."""
        key = self._joining.key_of_name(pod.node_name)
        if key == one.key or not one.family.has_brothers:
            return one
        other = taken(each for each in self.assignments.on(key) if each.family == one.family)
        if other is None:
            return one
        self.assignments.swap(one, other)
        if one.key.of_claim and (kept := self._claims.get(one.key.name)) is not None:
            kept.planned(self._wall())  # once it is written, it counts more than what the other plan said
        for each in (one, other):
            each.open_since = None  # another pod: what was said of the one before says nothing of it
            self._changed(each.key, each.uid)
            self._open_or_close(each.key, now)
        return other

    def _end(self, one: Assignment, outcome: str) -> list[Effect]:
        uid = one.uid
        self.assignments.end(one)
        if not self.assignments.has(one.key):
            self._forget_door(one.key)
        elif one.made_at not in self.assignments.made_at(one.key):
            self._coming = None
        self._changed(one.key, uid)
        told: list[Effect] = [PodSettled(one.key, uid, outcome) if uid else PlanOutdated(one.key)]
        return told + self.review(one.key)


def _learned_of_images(known: Pod, pod: Pod) -> bool:
    """Whether it became known for which architectures the pod's images were built."""
    return read_architectures(known.annotations) != read_architectures(pod.annotations)


def is_launched(claim: NodeClaim) -> bool:
    """Whether the claim has an instance, as far as its status says."""
    return bool(claim.status.provider_id) or is_true(claim.status.conditions, names.LAUNCHED)


def _note_nomination(one: Assignment, pod: Pod) -> None:
    """Remember where the pod was nominated to; a failed cycle clears that."""
    if pod.nominated_node_name:
        one.nominated = pod.uid, pod.nominated_node_name
