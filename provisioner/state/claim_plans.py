"""The NodeClaims with a plan: what is remembered of each, which of them anybody needs, and which may be launched. Not thread-safe.

A claim is idle from its announcement until somebody asks to launch it, and again once its provider said that there is none: it certainly has no instance,
so its pods may be planned again. Only claims that this process announced are ever idle: what another leader began for the others, nobody here knows.
Times are monotonic seconds.
"""

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.gangs import group_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import sets_of
from provisioner.apis.launches import may_have_begun
from provisioner.apis.plan import HOLD_SECONDS
from provisioner.state.assignments import Assignments
from provisioner.state.disruption_commands import Commands
from provisioner.state.effects import ClaimUnneeded, Effect
from provisioner.state.joining import Joining
from provisioner.state.keys import NodeKey
from provisioner.state.pod_index import PodIndex
from provisioner.values.bounded import forget_oldest

MOST_TIMES: Final = 3
"""So often the pods of a claim are planned again before a launch of theirs is tried to its end."""
_MOST_PODS: Final = 200_000


class Launch(enum.Enum):
    """Whether a claim may be launched now."""

    BEGIN = "begin"
    HELD = "held"
    """Its pods are being planned again, or others of its launch set are not written, or are to be launched first: ask a little later."""
    UNNEEDED = "unneeded"
    """Nobody needs it any more."""


@dataclass(slots=True)
class ClaimPlan:
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
        ours: this process announced it.
        idle_until: until when nobody may launch it; None while it is being launched, or was, or may have been by another leader.
        refused: its provider said that there is no instance, and nothing was begun since.
    """

    text: str = ""
    uids: set[str] = field(default_factory=set)
    announced: bool = False
    for_pods: bool = False
    initialized_at: float | None = None
    hold_seconds: float = HOLD_SECONDS
    at: datetime | msgspec.UnsetType = msgspec.UNSET
    stated: datetime | msgspec.UnsetType = msgspec.UNSET
    ours: bool = False
    idle_until: float | None = None
    refused: bool = False

    def dated(self, at: datetime) -> None:
        """Pods have their time from now on; two plans are never of one time."""
        self.at = at if self.at is msgspec.UNSET else max(at, self.at + timedelta(microseconds=1))

    def is_held(self, now: float) -> bool:
        """Whether nobody can have begun to launch it since it was held."""
        return self.idle_until is not None and self.idle_until > now


class ClaimPlans:
    """See the module."""

    def __init__(self, joining: Joining, pods: PodIndex, commands: Commands, assignments: Assignments) -> None:
        self._joining, self._pods, self._commands, self._assignments = joining, pods, commands, assignments
        self._known: dict[str, ClaimPlan] = {}
        self._times: dict[str, int] = {}  # pod UID -> how often it was planned again

    # ------------------------------------------------------------------ changes

    def announce(self, claim: NodeClaim, hold_seconds: float, *, for_pods: bool) -> None:
        """A claim is about to be created."""
        text = claim.metadata.annotations.get(names.PLAN_ANNOTATION, "")
        self._known[claim.metadata.name] = ClaimPlan(
            text=text, announced=True, for_pods=for_pods, hold_seconds=hold_seconds, ours=True, idle_until=0.0
        )

    def renew(self, name: str) -> ClaimPlan:
        """One of which nothing is known is there."""
        one = self._known[name] = ClaimPlan()
        return one

    def gone(self, name: str) -> None:
        """It does not exist any more, or never came to be."""
        self._known.pop(name, None)

    def entered(self, key: NodeKey, uid: str) -> None:
        """A pod has a place on a node."""
        if (one := self.of(key)) is not None:
            one.uids.add(uid)

    def planned(self, key: NodeKey, at: datetime) -> None:
        """Pods were planned onto a node, or exchanged there: once it is written, that counts more than what another plan said."""
        if (one := self.of(key)) is not None:
            one.dated(at)
            one.stated = one.at

    # ------------------------------------------------------------------ questions

    def of(self, key: NodeKey) -> ClaimPlan | None:
        """What is remembered of the claim of a node."""
        return self._known.get(key.name) if key.of_claim else None

    def is_unneeded(self, name: str) -> bool:
        """Whether a claim was made for pods none of which needs it any more, and is not launched; or others that are needed with it are missing.

        A command waits for its replacements whatever becomes of the pods. One with a launch mark may have an instance: it is needed until its
        provider said that there is none, or took the mark off; where there is one it is launched, and emptiness judges it.
        """
        one = self._known.get(name)
        if self.lacks_company(name):
            return True
        if one is None or not one.for_pods or self._assignments.has(NodeKey(name)):
            return False
        claim = self._joining.claims.get(name)
        marked = claim is not None and may_have_begun(claim.metadata.annotations)
        return (not marked or self.is_refused(name)) and self._commands.for_which(name) is None

    def lacks_company(self, name: str) -> bool:
        """Whether a claim is of a launch set that will never be whole, and no command waits for it."""
        return self._joining.sets.is_broken(name) and self._commands.for_which(name) is None

    def unneeded(self) -> list[Effect]:
        """`ClaimUnneeded` for every such claim that exists. Cost: claims."""
        mine = sorted(self._known)
        return [effect for name in mine for effect in self.review(NodeKey(name))]

    def review(self, key: NodeKey) -> list[Effect]:
        """The same for one node."""
        claim = self._joining.claims.get(key.name) if key.of_claim else None
        if claim is None or not claim.metadata.uid or claim.metadata.deletion_timestamp is not None:
            return []
        return [ClaimUnneeded(key.name)] if self.is_unneeded(key.name) else []

    def is_superseded(self, key: NodeKey, claim: NodeClaim) -> bool:
        """Whether a pod's place there counts no more once the plan on this claim names it: of two plans of other leaders the later one, then by name."""
        one = self.of(key)
        known = self._joining.claims.get(key.name) if key.of_claim and (one is None or not one.ours) else None
        return known is not None and self._stated(known) < self._stated(claim)

    def _stated(self, claim: NodeClaim) -> tuple[float, str]:
        """When the plan of a claim was made, as it says, and its name."""
        name, at = claim.metadata.name, claim.metadata.creation_timestamp
        if (one := self._known.get(name)) is not None and one.stated is not msgspec.UNSET:
            at = one.stated
        return at.timestamp() if at is not None else 0.0, name

    # ------------------------------------------------------------------ launches

    def launch_begins(self, now: float, name: str) -> Launch:
        """Whether a claim may be launched now; where it may, its pods stay with it from here on."""
        one = self._known.get(name)
        if self.is_unneeded(name):
            return Launch.UNNEEDED
        sets = self._joining.sets
        if sets.is_coming(name) or (one is not None and one.is_held(now)) or self._awaits_scarcer(now, name):
            return Launch.HELD
        if one is not None:
            one.idle_until, one.refused = None, False
        sets.begins(name, now)
        return Launch.BEGIN

    def _awaits_scarcer(self, now: float, name: str) -> bool:
        """Whether others of its launch sets are to be launched first; other pods that are to run there need the node whatever becomes of those. O(its pods)."""
        groups = self._joining.sets.awaits_scarcer(name, now)
        pods = (self._pods.get(one.uid) for one in self._assignments.on(NodeKey(name)) if groups and one.uid)
        return bool(groups) and all(pod is None or group_of(pod) in groups for pod in pods)

    def launch_refused(self, name: str) -> None:
        """There is no instance for a claim, and none comes before it is launched again."""
        self._joining.sets.refused(name)
        if (one := self._known.get(name)) is not None:
            one.refused = True
            one.idle_until = 0.0 if one.ours else None

    def is_refused(self, name: str) -> bool:
        """Whether its provider said that there is no instance, and nothing was begun since."""
        one = self._known.get(name)
        return one is not None and one.refused

    def hold_launches(self, now: float, seconds: float) -> tuple[str, ...]:
        """For so long nobody launches the claims whose pods may be planned again; their names.

        None of them has, or may have, an instance; all of their pods wait, and were not planned again too often; and no command waits for them.
        Cost: claims, and the pods of those that are not being launched.
        """
        idle = sorted(name for name, one in self._known.items() if one.idle_until is not None)
        found = tuple(filter(self._may_be_replanned, idle))
        self._hold(found, now + seconds)
        return found

    def release_launches(self, claims: Iterable[str]) -> None:
        """They may be launched."""
        self._hold(claims, 0.0)

    def replan(self, now: float, claims: Mapping[str, Collection[str]]) -> bool:
        """The pods of held claims are planned again, all or none (False): see `Plans.replan`."""
        for name, uids in claims.items():
            one, mine = self._known.get(name), {one.uid for one in self._assignments.on(NodeKey(name))}
            if mine != set(uids) or one is None or not one.is_held(now) or not self._may_be_replanned(name):
                return False
        for uid in (uid for uids in claims.values() for uid in uids):
            self._times[uid] = self._times.pop(uid, 0) + 1
        forget_oldest(self._times, _MOST_PODS)
        return True

    def settled(self, uid: str) -> None:
        """A pod is bound or gone."""
        self._times.pop(uid, None)

    def _hold(self, claims: Iterable[str], until: float) -> None:
        for name in claims:
            if (one := self._known.get(name)) is not None and one.idle_until is not None:
                one.idle_until = until

    def _may_be_replanned(self, name: str) -> bool:
        one, claim, key = self._known.get(name), self._joining.claims.get(name), NodeKey(name)
        if (
            one is None
            or claim is None
            or not one.for_pods
            or self._commands.for_which(name) is not None
            or claim.metadata.deletion_timestamp is not None
            or may_have_begun(claim.metadata.annotations)
            or any(each.nodes > 1 for each in sets_of(claim.metadata.annotations))  # the others of its sets stay
        ):
            return False
        pair, mine = self._joining.pair(key), self._assignments.on(key)
        waits = all(one.uid and self._pods.is_waiting(one.uid) for one in mine)
        return (
            bool(mine)
            and waits
            and pair is not None
            and pair[0] is None
            and all(self._times.get(one.uid, 0) < MOST_TIMES for one in mine)
        )
