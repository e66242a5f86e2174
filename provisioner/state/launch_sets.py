"""The NodeClaims of launch sets: how many of a set are there, and whether a launch of any has begun. Not thread-safe: the owner serialises calls.

None of a set is launched before all are written, nor before all are of other sets that have NodeClaims in common with it, directly or through others: where
one of these never comes to be, the NodeClaim in common goes. Where one never comes to be, or goes before a launch has begun, none of the others is needed:
their pods are planned again together. After that the others stay, whatever becomes of one: instances may be there. All of this follows from the NodeClaims, so
whoever leads next comes to the same.

The scarcest of a set (`scarcity_of`) are launched first, so that nothing is paid for where they cannot be had. The others follow once all of these are
launched, or have had no answer for `HEAD_START`; not while one of these is refused. Whoever leads next gives them as long once more.
"""

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.gangs import of_request
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import LaunchSet, sets_of
from provisioner.apis.launches import is_launched, may_have_instance
from provisioner.apis.meta import is_true
from provisioner.values.requirement import Operator

HEAD_START: Final = 2.0
"""For so many seconds the others of a set wait for an answer to the launch of its scarcest."""

Scarcity = tuple[bool, int]
"""Less is scarcer."""


class SetProgress(enum.Enum):
    """How far a set is.

    COMING: some of its NodeClaims are announced and not written yet.
    WHOLE: all are written, or a launch has begun.
    BROKEN: one is missing, and no launch has begun.
    """

    COMING = enum.auto()
    WHOLE = enum.auto()
    BROKEN = enum.auto()


class _Standing(NamedTuple):
    """What is known of one NodeClaim.

    Attributes:
        begun: it has an instance, or may have one.
        registered: its Node was let in.
        launched: it has an instance.
        refused: its last launch was refused.
    """

    sets: tuple[LaunchSet, ...]
    written: bool
    begun: bool
    going: bool
    registered: bool = False
    launched: bool = False
    refused: bool = False
    scarcity: Scarcity = (False, 0)

    @property
    def awaited(self) -> Collection[str]:
        """The groups of pods that wait for it."""
        return () if self.going or self.registered else {one.group for one in self.sets if not of_request(one.group)}


_MANY: Final = 1000
_GONE: Final = _Standing((), written=False, begun=False, going=True)


class _Tally(NamedTuple):
    """How many NodeClaims of one scarcity a set has, without those that go; how many of these have no instance, and how many are refused."""

    there: int = 0
    left: int = 0
    refused: int = 0


class LaunchSets:
    """See the module. Every call is O(sets of the NodeClaim), but where the progress of a set turns: then O(its NodeClaims)."""

    def __init__(self) -> None:
        self._claims: dict[str, _Standing] = {}
        self._members: dict[str, set[str]] = {}  # by id of the set; of those that go, too
        self._shared: dict[str, set[str]] = {}  # by id of the set, NodeClaims that stay and are of other sets, too
        self._there: dict[str, int] = {}
        self._unwritten: dict[str, int] = {}
        self._begun: dict[str, int] = {}
        self._tallies: dict[str, dict[Scarcity, _Tally]] = {}
        self._asked: dict[str, float] = {}  # since when the scarcest of a set are awaited
        self._turned: set[str] = set()
        self._awaited: dict[str, set[str]] = {}  # by group: NodeClaims whose Nodes are to come

    def put(self, claim: NodeClaim) -> None:
        """A NodeClaim is there, or is another one now."""
        meta, sets = claim.metadata, sets_of(claim.metadata.annotations)
        known = self._claims.get(meta.name)
        if known is None and not sets:
            return
        begun = may_have_instance(claim) or (known is not None and known.begun)
        registered = is_true(claim.status.conditions, names.REGISTERED)
        going, launched = meta.deletion_timestamp is not None, is_launched(claim)
        refused = known is not None and known.refused and not launched
        scarcity = known.scarcity if known is not None else scarcity_of(claim)
        self._enter(meta.name, _Standing(sets, bool(meta.uid), begun, going, registered, launched, refused, scarcity))

    def drop(self, name: str) -> None:
        """A NodeClaim does not exist any more, or never came to be."""
        if name in self._claims:
            self._enter(name, _GONE)

    def begins(self, name: str, now: float) -> None:
        """A NodeClaim is about to be launched."""
        if (known := self._claims.get(name)) is not None:
            if known.refused:  # the others wait for this answer, too
                self._asked |= {one.id: now for one in known.sets}
            self._enter(name, known._replace(begun=True, refused=False))

    def refused(self, name: str) -> None:
        """What was begun for a NodeClaim came to nothing."""
        if (known := self._claims.get(name)) is not None and not known.launched:
            self._enter(name, known._replace(refused=True))

    def awaits_scarcer(self, name: str, now: float) -> Collection[str]:
        """The groups for which the launch of a NodeClaim waits for the scarcest of its sets; one that may have begun goes on."""
        known = self._claims.get(name)
        if known is None or known.begun:
            return ()
        waits: list[str] = []
        for one in known.sets:
            scarcest, tally = self._scarcest(one.id)
            if tally.left and scarcest != known.scarcity:
                asked = self._asked.setdefault(one.id, now)
                if tally.refused or now - asked < HEAD_START:
                    waits.append(one.group)
        return waits

    def _scarcest(self, key: str) -> tuple[Scarcity, _Tally]:
        found = [(scarcity, tally) for scarcity, tally in self._tallies.get(key, {}).items() if tally.there]
        return min(found, default=(_GONE.scarcity, _Tally()))

    def take_turned(self) -> tuple[str, ...]:
        """The NodeClaims of sets whose progress has turned since they were last taken out, by name."""
        found = tuple(sorted(self._turned & self._claims.keys())) if self._turned else ()
        self._turned.clear()
        return found

    def awaited(self) -> Mapping[str, Collection[str]]:
        """By group that several NodeClaims were made for at a time, those whose Nodes were not let in yet, and that do not go. O(these)."""
        return {key: some for key, some in self._awaited.items() if self._has_company(key)}

    def _has_company(self, group: str) -> bool:
        """Whether several NodeClaims were made at a time for a group that awaits one; of these it may be the last."""
        some = self._awaited[group]
        return len(some) > 1 or any(
            one.group == group and one.nodes > 1 for name in some for one in self._claims[name].sets
        )

    def awaits(self, name: str) -> tuple[str, ...]:
        """The groups that wait for the Node of a NodeClaim beside others."""
        return tuple([group for group in self.groups_of(name) if self._has_company(group)])

    def groups_of(self, name: str) -> tuple[str, ...]:
        """The groups that wait for the Node of a NodeClaim, also alone."""
        known = self._claims.get(name)
        return tuple(known.awaited) if known is not None else ()

    def awaited_by(self, group: str) -> Collection[str]:
        """The NodeClaims whose Nodes a group waits for."""
        return self._awaited.get(group, ())

    def is_broken(self, name: str) -> bool:
        """Whether a NodeClaim is of a set that will never be whole."""
        known = self._claims.get(name)
        return known is not None and any(self._progress(one) is SetProgress.BROKEN for one in known.sets)

    def is_coming(self, name: str) -> bool:
        """Whether a NodeClaim is of a set of which some are not written yet, or of which some may still go, since they are of others that are not whole.

        Cost: the sets that have NodeClaims in common with its own, directly or through others, and these.
        """
        known = self._claims.get(name)
        return known is not None and any(
            progress is SetProgress.COMING or (progress is SetProgress.BROKEN and one not in known.sets)
            for one, progress in self._linked(known.sets)
        )

    def _linked(self, sets: Iterable[LaunchSet]) -> Iterator[tuple[LaunchSet, SetProgress]]:
        """These sets, those that have NodeClaims in common with them, and so on: not beyond what a launch has begun of. Each NodeClaim is looked at once."""
        reached = {one.id: one for one in sets}
        left, seen = [*reached.values()], set[str]()
        while left:
            one = left.pop()
            yield one, self._progress(one)
            names = set[str]() if self._begun.get(one.id) else self._shared.get(one.id, set()) - seen
            seen |= names
            for name in names:
                more = {other.id: other for other in self._claims[name].sets if other.id not in reached}
                reached |= more
                left += more.values()

    def _progress(self, one: LaunchSet) -> SetProgress:
        if self._begun.get(one.id):
            return SetProgress.WHOLE
        if self._there.get(one.id, 0) < one.nodes:
            return SetProgress.BROKEN
        return SetProgress.COMING if self._unwritten.get(one.id) else SetProgress.WHOLE

    def _enter(self, name: str, now: _Standing) -> None:
        known = self._claims.pop(name, _GONE)
        if now is not _GONE:
            self._claims[name] = now
        if now == known:
            return
        for group in known.awaited:
            self._awaited[group].discard(name)
            if not self._awaited[group]:
                del self._awaited[group]
        for group in now.awaited:
            self._awaited.setdefault(group, set()).add(name)
        sets = {one.id: one for one in (*known.sets, *now.sets)}
        before = {key: self._turn(one) for key, one in sets.items()}
        for standing, by in ((known, -1), (now, 1)):
            for one in standing.sets:
                self._count(name, one.id, standing, by)
        looked = set[str]()  # of sets with NodeClaims in common, each finds all of them
        for key, one in sets.items():
            if self._turn(one) == before[key]:
                continue
            self._turned |= self._members.get(key, set())
            if before[key][0] is SetProgress.COMING and key in self._shared and key not in looked:
                for other, progress in self._linked((one,)):  # that may have waited for it alone
                    looked.add(other.id)
                    if progress is SetProgress.COMING:
                        break
                    self._turned |= self._members.get(other.id, set())

    def _turn(self, one: LaunchSet) -> tuple[SetProgress, bool]:
        """How far a set is, and whether some of it wait for the scarcest."""
        mixed = len(self._tallies.get(one.id, ())) > 1
        return self._progress(one), mixed and self._scarcest(one.id)[1].left > 0

    def _count(self, name: str, key: str, standing: _Standing, by: int) -> None:
        members = self._members.setdefault(key, set())
        (members.add if by > 0 else members.discard)(name)
        if len(standing.sets) > 1 and not standing.going:
            shared = self._shared.setdefault(key, set())
            (shared.add if by > 0 else shared.discard)(name)
            if not shared:
                del self._shared[key]
        for counts, counted in (
            (self._there, not standing.going),
            (self._unwritten, not standing.written and not standing.going),
            (self._begun, standing.begun),
        ):
            if counted:
                counts[key] = counts.get(key, 0) + by
        self._tally(key, standing, by)
        if not members:
            for kept in (self._members, self._there, self._unwritten, self._begun, self._tallies, self._asked):
                kept.pop(key, None)

    def _tally(self, key: str, standing: _Standing, by: int) -> None:
        if standing.going:
            return
        tallies = self._tallies.setdefault(key, {})
        there, left, refused = tallies.get(standing.scarcity, _Tally())
        tally = _Tally(there + by, left + by * (not standing.launched), refused + by * standing.refused)
        if tally.there:
            tallies[standing.scarcity] = tally
        else:
            tallies.pop(standing.scarcity, None)


def scarcity_of(claim: NodeClaim) -> Scarcity:
    """How likely it cannot be had, as far as the NodeClaim tells: one that asks for accelerators rather than others, then one of fewer offerings.

    An offering is an instance type in a zone and capacity type; their number counts by powers of two. Reservations and Capacity Blocks are few offerings, and
    those that were refused lately are not in what a plan allows.
    """
    wanted = claim.spec.resources.requests
    offerings = 1
    for key in (names.INSTANCE_TYPE_LABEL, names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL):
        values = [len(one.values) for one in claim.spec.requirements if one.key == key and one.operator == Operator.IN]
        offerings *= min(values, default=_MANY)
    return not any("/" in name for name in wanted), offerings.bit_length()
