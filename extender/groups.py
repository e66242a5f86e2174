"""Groups of pods whose nodes are launched together, and the passes that their members got. Not thread-safe.

A launch set (`apis.launch_sets`) is on every NodeClaim that one group needs. Until the nodes of a set all take pods no member of its group passes,
and from then on for a while each passes its planned node alone. Otherwise members that find room elsewhere would leave their nodes empty,
and those that come late would find theirs taken.

kube-scheduler 1.37 tries a PodGroup in one cycle: it asks about each member, as if those before were bound already, and binds them all or none;
in the dry run of preemption it asks again. So a pass of a member is no more than a part of an experiment until its binding shows.
"""

import enum
from collections.abc import Iterable
from typing import Final

from extender.facts import ClaimFacts, FamilyMember
from extender.nodes import JoinedNodes
from extender.places import PlaceKeeper
from provisioner.apis.launch_sets import LaunchSet
from provisioner.apis.meta import version_number
from provisioner.state.promises import PLAN_SECONDS

WRITTEN_SECONDS: Final = 10.0
"""How long NodeClaims of a set may be missing that were never seen: they are written one after the other."""
PASS_SECONDS: Final = 5.0
"""How long a member that passed one node counts as bound there: kube-scheduler says nothing of a cycle that fails as the one before."""
OPEN_SECONDS: Final = 30.0
"""For how long each member passes its planned node alone, from when the last node of its set takes pods."""


class GroupPhase(enum.Enum):
    """What the launch sets of a group demand of its members now."""

    WAITS = enum.auto()
    """Nodes of a set are still to come: nobody passes anywhere."""
    OPEN = enum.auto()
    """All are there: each passes its planned node alone."""


class _SteeredSet:
    """What is known of one set; `phase` is None once it is over, and it stays so.

    Of its claims, `closed` ones take no pods, and `unplanned` ones have no plan in effect, as far as they are not `stale`.
    """

    __slots__ = (
        "claims",
        "closed",
        "group",
        "nodes",
        "opened_at",
        "phase",
        "since",
        "stale",
        "unplanned",
        "until",
        "whole",
    )

    def __init__(self, one: LaunchSet, since: float) -> None:
        self.group, self.nodes, self.since = one.group, one.nodes, since
        self.claims: set[str] = set()
        self.stale, self.closed, self.unplanned = set[str](), set[str](), set[str]()
        self.whole = False
        self.phase: GroupPhase | None = GroupPhase.WAITS
        self.until = self.opened_at = float("inf")


class SteeredGroups:
    """The launch sets that NodeClaims name. A set is over when its time is, or once a claim of it is gone or has no plan in effect.

    Memory: an entry for each set and claim. Times are seconds of one monotonic clock.
    """

    def __init__(self, nodes: JoinedNodes, places: PlaceKeeper) -> None:
        self._nodes, self._places = nodes, places
        self._sets: dict[str, _SteeredSet] = {}
        self._of_group: dict[str, set[str]] = {}
        self._of_claim: dict[str, tuple[str, ...]] = {}

    def set_claim(self, claim: ClaimFacts, since: float) -> None:
        """A NodeClaim is of these sets; one that was not known yet is there since then."""
        mine = tuple([one.id for one in claim.sets])
        if not mine and claim.name not in self._of_claim:
            return
        self._leave(claim.name, set(self._of_claim.get(claim.name, ())).difference(mine))
        self._of_claim[claim.name] = mine
        for one in claim.sets:
            known = self._sets.get(one.id)
            if known is None:
                known = self._sets[one.id] = _SteeredSet(one, since)
                self._of_group.setdefault(one.group, set()).add(one.id)
            known.claims.add(claim.name)
            known.whole = known.whole or len(known.claims) >= known.nodes
        self.changed(claim.name)

    def drop_claim(self, name: str) -> None:
        """A NodeClaim is gone."""
        self._leave(name, self._of_claim.pop(name, ()))

    def changed(self, claim: str) -> None:
        """The node or the plan of a NodeClaim changed."""
        for each in self._of_claim.get(claim, ()):
            self._sets[each].stale.add(claim)

    def phase(self, group: str, now: float) -> GroupPhase | None:
        """What is demanded of the members of a group; None for nothing. O(its sets that are not over, and what changed of their nodes)."""
        found = None
        for each in tuple(self._of_group.get(group, ())):
            one = self._sets[each]
            if one.stale or now >= one.until:
                self._judge(one, now)
                if one.phase is None:
                    self._end(each)
            if one.phase is GroupPhase.WAITS:
                return one.phase
            found = one.phase or found
        return found

    def _judge(self, one: _SteeredSet, now: float) -> None:
        for claim in one.stale:
            (one.closed.add if self._opened_at(claim) is None else one.closed.discard)(claim)
            (one.unplanned.discard if self._is_planned(claim) else one.unplanned.add)(claim)
        one.stale.clear()
        is_whole = len(one.claims) >= one.nodes
        one.until = one.since + (PLAN_SECONDS if one.whole else WRITTEN_SECONDS)
        is_open = is_whole and not one.closed
        if is_open and one.opened_at > now:  # nodes that open again do so later
            one.opened_at = max(at for at in map(self._opened_at, one.claims) if at is not None)
        if one.opened_at <= now:
            one.until = one.opened_at + OPEN_SECONDS
        if now >= one.until or (one.whole and not is_whole) or one.unplanned:
            one.phase, one.until = None, float("inf")
        else:
            one.phase = GroupPhase.OPEN if is_open else GroupPhase.WAITS

    def _opened_at(self, claim: str) -> float | None:
        """Since when the node of a claim takes pods, as far as was seen; None while it does not."""
        site = self._places.sites.get(claim)
        return self._nodes.schedulable_since(site.node) if site is not None else None

    def _is_planned(self, claim: str) -> bool:
        site = self._places.sites.get(claim)
        return site is not None and site.live

    def _leave(self, claim: str, sets: Iterable[str]) -> None:
        for each in sets:
            one = self._sets[each]
            for some in (one.claims, one.closed, one.unplanned):
                some.discard(claim)
            one.stale.discard(claim)
            one.until = float("-inf")
            if not one.claims:
                self._end(each)
                del self._sets[each]

    def _end(self, each: str) -> None:
        """A set is over, or gone: it demands nothing more."""
        group = self._sets[each].group
        there = self._of_group.get(group, set())
        there.discard(each)
        if not there:
            self._of_group.pop(group, None)


class GroupPasses:
    """Members that passed, until it shows that they are bound, or their group is said to have no room, or `PASS_SECONDS` are over. O(each answer)."""

    def __init__(self) -> None:
        self._passed: dict[str, tuple[float, str]] = {}  # by UID: until when, and of which group; the oldest first
        self._of_group: dict[str, dict[str, None]] = {}
        self._version: dict[str, int] = {}  # by group: of the newest member that kube-scheduler asked about

    def add(self, member: FamilyMember, now: float, version: int) -> float:
        """A member passed, whose pod kube-scheduler knows in this version; until when that counts."""
        self.drop(member.uid)
        until = now + PASS_SECONDS
        self._passed[member.uid] = until, member.group
        self._of_group.setdefault(member.group, {})[member.uid] = None
        self._version[member.group] = max(version, self._version.get(member.group, 0))
        return until

    def drop(self, uid: str) -> None:
        """It counts no longer."""
        if (found := self._passed.pop(uid, None)) is None:
            return
        mine = self._of_group[found[1]]
        del mine[uid]
        if not mine:
            del self._of_group[found[1]], self._version[found[1]]

    def overdue(self, now: float) -> list[str]:
        """UIDs of members whose time is over."""
        over = []
        for uid, (until, _) in self._passed.items():
            if now < until:
                break
            over.append(uid)
        return over

    def failed(self, group: str, version: str) -> tuple[str, ...]:
        """UIDs of the members whose cycle has failed, as a member of this version is said to have no room; none where that is of an earlier cycle."""
        mine = self._of_group.get(group)
        return tuple(mine) if mine and version_number(version) > self._version[group] else ()
