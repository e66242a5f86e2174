"""All or nothing: groups of which too few pods have places get none, and cost nobody else anything.

First comes the answer without any group: what single pods have there is theirs, however little time there is for more. Then groups are asked about
together with all of that, first all, later fewer at once; an answer counts only if every group in it has what it needs. So a group that fails is as
if nobody had ever asked about it, and nothing has to be undone.

A group with a topology key is asked about in one domain (`group_domains`), and in another one where it fails there.
"""

import functools
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter, itemgetter, ne
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from provisioner.apis.gangs import group_of, minimum_of
from provisioner.apis.names import normalized_label
from provisioner.apis.pods import Pod
from provisioner.scheduling.constraints.classes import NOTHING_AVOIDED, PodClass, sort_key
from provisioner.scheduling.constraints.filters import NEW_NODE_OF, TRIVIAL, FilterTerm
from provisioner.scheduling.group_domains import Domain, DomainChoice, others_of, spanning
from provisioner.scheduling.judging import Design, Fault
from provisioner.scheduling.reasons import NOT_TRIED, GroupTooLarge, NoDomainHolds, NoPoolMakesLabel, Reason
from provisioner.scheduling.result import Later, Result, Unplaced
from provisioner.values.message import Said

_uid = attrgetter("uid")
_MOST_ANSWERS: Final = 10
"""Times that one question is answered with groups."""
_SPLITS: Final = 3
"""Times that groups that fail together are asked about again without some of them, before each is asked about by itself."""
_MOST_ALONE: Final = 64
"""Groups of a question that are asked about without any other pod."""
_MOST_RANKED: Final = 64
"""Likewise groups with a topology key, each in one of its domains, to find the best of these."""
_MOST_DOMAINS: Final = 12
"""Of one group are compared."""
_MOST_TRIED: Final = 6
"""In so many of them a group is asked about with all others."""
_MOST_SEATINGS: Final = 5
"""Times that the groups of a question that took each other's room on new nodes are given some for themselves."""
_MOST_SEATS: Final = 200
"""Such nodes in a question: to every pod each is of another kind, which costs time and memory by their square."""
_LOOK_STEPS: Final = 2_000_000
"""Steps to find domains after which the groups that have theirs are asked about before others are looked at; about three seconds."""


@dataclass(frozen=True, slots=True)
class GroupsAsked:
    """The groups of a question that could be cut: of which two pods or more are needed at once.

    Attributes:
        of: by UID of a pod of the question, the key of its group.
        needed: by key, how many of these pods must have places, or none of them.
        labels: by key of a group whose pods must all run in one domain, its topology key by its stable name; of such a group, one pod may be all that
            is needed.
        pins: of these, what keeps its pods in the domain in which it is asked about.
        sizes: by key, how many of these pods there are.
    """

    of: Mapping[str, str] = field(default_factory=dict)
    needed: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, FilterTerm] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def placed(self, result: Result) -> Counter[str]:
        """How many pods of each group have places."""
        return Counter([key for key in map(self.of.get, map(_uid, result.placed)) if key is not None])


NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
NO_GROUPS: Final = GroupsAsked()


def groups_asked(
    pods: Sequence[Pod],
    minima: Mapping[str, int],
    elsewhere: Mapping[str, Collection[str]],
    at_least: int = 2,
    topology: Mapping[str, str] = NO_LABELS,
) -> GroupsAsked:
    """The groups of a question, of which several pods are needed at once unless told otherwise.

    Args:
        pods: of the question.
        minima: by key of a group, how many of its pods must have places.
        elsewhere: likewise, UIDs of those that have one in the world; pods of the question do not count among them.
        at_least: groups that need fewer are left out.
        topology: by key of a group with a topology key, this label; none of these is left out.

    Cost: O(pods).
    """
    keys = [*map(group_of, pods)]
    found = Counter(keys)
    sizes = {key: size for key, size in found.items() if key in minima or key in topology}
    moving: Mapping[str, int] = {}
    if elsewhere and sizes:
        moving = Counter(
            [key for key, pod in zip(keys, pods, strict=True) if key in elsewhere and pod.uid in elsewhere[key]]
        )
    needed = {}
    for key in sizes:
        there, moves = elsewhere.get(key), moving.get(key, 0)
        least = minima.get(key, 1) - (len(there) - moves if there else 0)
        if there and moves and minimum_of(key) is not None:
            least = min(least, moves)  # kube-scheduler binds these without those that never had a place
        if least >= at_least or key in topology:
            needed[key] = max(least, 1)
    if not needed:
        return NO_GROUPS
    listed = zip(map(_uid, pods), keys, strict=True)
    of = dict(listed) if len(needed) == len(found) else {uid: key for uid, key in listed if key in needed}
    labels = {key: normalized_label(topology[key]) for key in needed if key in topology} if topology else NO_LABELS
    return GroupsAsked(of, needed, labels, sizes=sizes)


def together(classes: Iterable[PodClass], groups: GroupsAsked) -> list[PodClass]:
    """The classes such that pods of a group get their places one after the other, after single pods of their priority.

    A class is split into its groups only where these have pods of several classes; else its pods are sorted by group, the oldest first. A group
    comes where its largest pods come.
    """
    if groups.pins:
        classes = _pinned(classes, groups)
    listed: list[tuple[PodClass, list[str | None], dict[str | None, None]]] = []
    seen: dict[str | None, int] = {None: 0}
    several: set[str | None] = set()
    for number, one in enumerate(classes):
        keys = [*map(groups.of.get, map(_uid, one.pods))]
        distinct = dict.fromkeys(keys)
        several.update([key for key in distinct if seen.setdefault(key, number) != number])
        listed.append((one, keys, distinct))
    several.discard(None)
    found: list[tuple[int, bool, int, int, PodClass]] = []
    turns: dict[str | None, int] = {}
    for number, (one, keys, distinct) in enumerate(listed):
        priority, alone = one.facts.order[0], None in distinct
        apart = [key for key in distinct if key in several] if several else []
        if len(distinct) == 1 or not (alone or apart or sum(map(ne, keys, keys[1:])) >= len(distinct)):
            turn = turns.setdefault(apart[0], len(turns) + 1) if apart else 0
            found.append((priority, not alone, seen[apart[0]] if apart else number, turn, one))
            continue
        parts: dict[str | None, list[Pod]] = {key: [] for key in distinct}
        for key, pod in zip(keys, one.pods, strict=True):
            parts[key].append(pod)
        singles = parts.pop(None, [])
        for key in apart:
            turn = turns.setdefault(key, len(turns) + 1)
            found.append((priority, True, seen[key], turn, _with_pods(one, parts.pop(key))))
        if parts:
            found.append((priority, True, number, 0, _with_pods(one, [*chain.from_iterable(parts.values())])))
        if singles:
            found.append((priority, False, number, 0, _with_pods(one, singles)))
    found.sort(key=itemgetter(0, 1, 2, 3))
    return [one for *_, one in found]


def _pinned(classes: Iterable[PodClass], groups: GroupsAsked) -> Iterable[PodClass]:
    """The classes, those of groups that are asked about in one domain apart and kept off all others; these count for their spread all the same."""
    others = others_of(groups.pins.values())
    for one in classes:
        parts: dict[str, list[Pod]] = {}
        for pod in one.pods:
            key = groups.of.get(pod.uid, "")
            parts.setdefault(key if key in groups.pins else "", []).append(pod)
        for key, pods in parts.items():
            mine = one if len(parts) == 1 else _with_pods(one, pods)
            pinned = groups.pins.get(key, TRIVIAL)
            if NEW_NODE_OF not in pinned.requirements:
                pinned = pinned.joined(others)
            yield mine if pinned.trivial else msgspec.structs.replace(mine, elsewhere=one.elsewhere.joined(pinned))


def _with_pods(one: PodClass, pods: Sequence[Pod]) -> PodClass:
    return msgspec.structs.replace(one, pods=pods)


class _Turn(NamedTuple):
    """Groups that are asked about together with those that have places.

    Attributes:
        some: of these groups.
        less: groups of lower priority that have places and give way.
        failures: how often it was asked about more.
        doubted: it is one of those that failed together: if it has no places in an empty question either, the others come first.
    """

    some: frozenset[str]
    less: frozenset[str] = frozenset()
    failures: int = 0
    doubted: bool = False


Answer = Callable[[Sequence[Pod], GroupsAsked], Result]
"""To the question about some of its pods; in it groups may be cut."""


class GroupAnswers(NamedTuple):
    """Who answers what is asked about groups.

    Attributes:
        whole: the question about some of its pods.
        trial: the same within little work, all trials together; what is late then is not told.
        domains: of a group with a topology key, by its key and pods, where it could be.
        homes: of such a group, the domains of its pods that run and stay.
        never: of some pods, the UIDs of those that have no place in any answer, whatever becomes of others.
        over: whether there is no time for more.
        avoided: by UID of a pod, names of the nodes that it keeps off.
    """

    whole: Answer
    trial: Answer
    domains: Callable[[str, Sequence[Pod]], DomainChoice]
    homes: Callable[[str], Collection[str | None]]
    never: Callable[[Sequence[Pod]], Collection[str]]
    over: Callable[[], bool]
    avoided: Mapping[str, frozenset[str]] = NOTHING_AVOIDED


def all_or_nothing(
    pods: Sequence[Pod],
    groups: GroupsAsked,
    answers: GroupAnswers,
    last: Sequence[str] = (),
    *,
    stop: bool = False,
) -> Result:
    """An answer in which no group is cut, and no single pod is without the place that it has without groups, but for one of higher priority.

    Args:
        pods: of the question.
        groups: of the question.
        answers: who is asked.
        last: keys of groups that are asked about when the others have places, in this order.
        stop: a pod without a place is answer enough.

    Cost: that of the answer without groups, of at most `_MOST_ANSWERS` with them, of trials, and O(pods).
    """
    asked = _Asked(pods, groups, answers, _DomainTurns(groups, answers))
    if stop and not groups.labels:
        result = answers.whole(pods, groups)
        if not result.unplaced and all(asked.sizes[key] >= least for key, least in groups.needed.items()):
            return result
        asked.fail(frozenset(groups.needed), result)
    asked.begin(last)
    left = 0 if stop and not groups.labels else _MOST_ANSWERS
    while left and not answers.over() and (turn := asked.next()) is not None:
        if not asked.postponed(turn):
            asked.ask(turn)
            left -= 1
    return asked.whole()


class _DomainTurns:
    """In which domains groups with a topology key are asked about. Empty where no group has one."""

    def __init__(self, groups: GroupsAsked, answers: GroupAnswers) -> None:
        self.groups: Final = groups
        self.answers: Final = answers
        self.found: Final[dict[str, DomainChoice]] = {}  # by key of a group
        self.at: Final[dict[str, int]] = {}  # likewise, which of them is its turn
        self.most: Final[dict[str, tuple[int, str]]] = {}  # likewise, the most pods that had places in one, and where
        self.like: Final[dict[object, DomainChoice]] = {}  # by kind of a group
        self.seats: Final[dict[str, str]] = {}  # likewise, of those that have a new node for themselves, its name
        self.alone: Final[set[str]] = set()  # of them, those that share it with nobody
        self.seat = self.seatings = 0
        self.ranked = 0
        self.steps = 0  # since groups were last asked about

    def learn(self, key: str, pods: Sequence[Pod], kind: object) -> bool:
        """Find the domains of a group, unless time is up; those of its kind have the same. Whether there are any."""
        if (found := self.like.get(kind)) is None:
            if self.answers.over():
                return False
            found = self.answers.domains(key, pods)
            if self.answers.over():  # some may be missing
                return False
            some, others = found.best[:_MOST_DOMAINS], found.best[_MOST_DOMAINS:]
            found = self.like[kind] = found._replace(best=[*self._in_order(key, pods, some), *others])
            self.steps += found.steps
        self.found[key] = found
        if found.best:
            self.at[key] = 0
        return bool(found.best)

    def _in_order(self, key: str, pods: Sequence[Pod], some: Sequence[Domain]) -> Sequence[Domain]:
        """Those first in which existing nodes take all that are needed, then those in which they take some; there by price."""
        if len(some) < 2:
            return some
        ranks: list[tuple[tuple[int, int, float], Domain]] = []
        for one in some:
            if self.ranked >= _MOST_RANKED or self.answers.over():
                break
            self.ranked += 1
            result = self.answers.trial(pods, replace(self.groups, pins={key: one.term()}))
            if result.is_late:
                self.ranked = _MOST_RANKED
                break
            on_nodes, placed = sum(map(len, result.existing.values())), self.placed_together(key, one, result)
            self.note(key, one, placed)
            least = self.groups.needed[key]
            tier = 3 if placed < least else 0 if on_nodes >= least else 1 if on_nodes else 2
            ranks.append(((tier, -placed, result.usd_per_hour), one))
        ranks.sort(key=itemgetter(0))
        return [*(one for _, one in ranks), *some[len(ranks) :]]

    def pins(self, some: Iterable[str]) -> GroupsAsked:
        """The groups, some of which are asked about where it is their turn."""
        if not self.at:
            return self.groups
        pins = {key: self.now(key).term(self.seats.get(key, "")) for key in some if key in self.at}
        return replace(self.groups, pins=pins)

    def now(self, key: str) -> Domain:
        """Where it is asked about now."""
        return self.found[key].best[self.at[key]]

    def told_apart(self, some: Iterable[str]) -> Iterable[object]:
        """The groups, with the domains in which they are asked about."""
        return [(key, self.at[key]) if key in self.at else key for key in some] if self.at else some

    def next(self, key: str) -> bool:
        """Ask about it in the next domain from now on; whether there is one."""
        if key not in self.at or self.at[key] + 1 >= min(len(self.found[key].best), _MOST_TRIED):
            return False
        self.at[key] += 1
        return True

    def moved_on(self, some: Iterable[str], fitting: int) -> frozenset[str]:
        """Ask about these groups in other domains from now on, so many in each; those for which there are any."""
        moved: list[str] = []
        for key in some:
            if self.next(key):
                found, at = self.found[key], self.at[key]
                further = at + len(moved) // max(1, fitting) % (len(found.best) - at)
                best = [*found.best[:at], *found.best[further:], *found.best[at:further]]
                self.found[key] = found._replace(best=best)
                moved.append(key)
        return frozenset(moved)

    def seated(self, some: Iterable[str], result: Result) -> bool:
        """Give groups that are to have one new node each, and took the room on it from each other, some for themselves; whether that changes the question.

        Those that have one keep it, with those beside them; the others share what is left, and are alone where that does not help either.
        """
        mine = {key for key in some if key in self.at and self.now(key).is_new_node}
        split = self.scattered(mine, result)
        apart = [key for key in split if key not in self.alone]
        if not apart or self.seatings == _MOST_SEATINGS:
            return False
        self.seatings += 1
        whole = mine - split.keys() - self.seats.keys()
        on_claims = [{self.groups.of.get(pod.uid, "") for pod in one.pods} & whole for one in result.claims if whole]
        shared = [keys for keys in on_claims if keys]
        last = not shared or self.seatings == _MOST_SEATINGS
        lonely = [key for key in apart if last or key in self.seats]
        found = [*shared, *({key} for key in lonely)][: _MOST_SEATS - self.seat]
        for number, keys in enumerate(found, self.seat):
            self.seats.update(dict.fromkeys(keys, str(number)))
        self.seat += len(found)
        self.alone.update([key for keys in found[len(shared) :] for key in keys])
        return bool(found)

    def unseated(self, some: Iterable[str]) -> set[str]:
        """Where all such nodes are given away, the groups that have none: where they fit depends on all others."""
        if self.seat < _MOST_SEATS:
            return set()
        return {key for key in some if key in self.at and key not in self.seats and self.now(key).is_new_node}

    def scattered(self, some: Iterable[str], result: Result) -> dict[str, list[Pod]]:
        """The groups that are to have one new node and have several, each with the pods on the one that has most of them. O(groups + pods on new nodes)."""
        mine = {key for key in some if key in self.at and self.now(key).is_new_node}
        nodes: dict[str, list[list[Pod]]] = {}
        for claim in result.claims if mine else ():
            here: dict[str, list[Pod]] = {}
            for pod in claim.pods:
                if (key := self.groups.of.get(pod.uid, "")) in mine:
                    here.setdefault(key, []).append(pod)
            for key, pods in here.items():
                nodes.setdefault(key, []).append(pods)
        return {key: max(pods, key=len) for key, pods in nodes.items() if len(pods) > 1}

    def placed_together(self, key: str, one: Domain, result: Result) -> int:
        """How many pods of a group have places in the answer about it alone, as far as they are in one domain."""
        if one.is_new_node:
            return max([len(claim.pods) for claim in result.claims], default=0)
        return self.groups.placed(result)[key]

    def note(self, key: str, one: Domain, placed: int) -> None:
        """So many of its pods had places in a domain."""
        if placed > self.most.get(key, (0, ""))[0]:
            self.most[key] = placed, one.value

    def why(self, key: str) -> tuple[Reason, ...]:
        """What is to be said of a group that has no places, besides how many it needs."""
        if (found := self.found.get(key)) is None:
            return ()
        placed, value = self.most.get(key, (0, ""))
        return (NoDomainHolds(found.label, value, placed) if found.made else NoPoolMakesLabel(found.label),)


class _Asked:
    """Which groups have places, and which are still to be asked about."""

    def __init__(self, pods: Sequence[Pod], groups: GroupsAsked, answers: GroupAnswers, domains: _DomainTurns) -> None:
        self.pods: Final = pods
        self.groups: Final = groups
        self.answers: Final = answers
        self.domains: Final = domains
        self.sizes: Final = groups.sizes
        self.hopeless: set[object] = set()  # kinds of which one alone has no place beside `kept`
        self.failed: Final[dict[str, tuple[int, Unplaced | None]]] = {}  # key -> pods that had places, first without
        self.known: Final[set[frozenset[object]]] = set()  # that have no places together
        self.kept: frozenset[str] = frozenset()
        self.turns: Final[deque[_Turn]] = deque()
        self.ranks: dict[str, int] = {}
        self.alone = _MOST_ALONE
        self.lonely: Final[set[object]] = set()  # kinds of which one has no places by itself
        self.unlearned: frozenset[str] = frozenset()  # groups with a topology key whose domains are not known yet
        self.later: frozenset[str] = frozenset()  # those of them that are looked at when the others have been asked

    @functools.cached_property
    def members(self) -> Mapping[str, Sequence[Pod]]:
        """The pods of each group."""
        found: dict[str, list[Pod]] = {key: [] for key in self.groups.needed}
        for pod in self.pods:
            if (key := self.groups.of.get(pod.uid)) is not None:
                found[key].append(pod)
        return found

    @functools.cached_property
    def priorities(self) -> Mapping[str, int]:
        """The lowest priority in each group."""
        return {key: min([pod.shape.priority for pod in some]) for key, some in self.members.items()}

    @functools.cached_property
    def kinds(self) -> Mapping[str, object]:
        """Equal for groups of which one has no places where the other has none."""
        avoided = self.answers.avoided
        pods = {
            key: [(id(pod if pod.shape.volumes else pod.shape), avoided.get(pod.uid)) for pod in some]
            for key, some in self.members.items()
        }
        return {key: (self.groups.needed[key], frozenset(Counter(some).items())) for key, some in pods.items()}

    def begin(self, last: Sequence[str]) -> None:
        """The answer without groups, and what is asked next."""
        single = _without(self.pods, self.groups, self.groups.needed)
        self.best = self.answers.whole(single, self.groups) if single else Result((), {}, (), 0.0)
        self.ranks = {key: number for number, key in enumerate(last, 1)}
        possible = frozenset([key for key, least in self.groups.needed.items() if self.sizes[key] >= least])
        self.failed.update({key: (0, None) for key in self.groups.needed if key not in possible})
        later, keyed = possible & self.ranks.keys(), possible & self.groups.labels.keys()
        self.unlearned = keyed
        self.turns.extend([_Turn(some) for some in (possible - later - keyed, keyed - later, later) if some])

    def with_domains(self, keyed: Collection[str]) -> tuple[set[str], frozenset[str]]:
        """Those of some groups with topology keys that have a domain to be asked about in, and those that are to be looked at after these.

        Of each priority, namespaces take turns; of each, small groups come first, which take less time.
        """
        found, turns, order = set[str](), Counter[tuple[int, str]](), []
        for size, key in sorted([(self.sizes[key], key) for key in keyed]):
            turns[mine := (-self.priorities[key], key.partition("/")[0])] += 1
            order.append((mine[0], turns[mine], size, key))
        keys = [key for *_, key in sorted(order)]
        self.domains.steps = 0
        for number, key in enumerate(keys):
            if self.domains.steps >= _LOOK_STEPS:
                return found, frozenset(keys[number:])
            kind = self.kinds[key], self.groups.labels[key], self.answers.homes(key)
            if self.domains.learn(key, self.members[key], kind):
                found.add(key)
            elif key in self.domains.found:
                self.failed[key] = self.domains.most.get(key, (0, ""))[0], None
        return found, frozenset()

    def next(self) -> _Turn | None:
        """What is to be asked next; None where nothing is left of which the answer is not known."""
        while self.turns or self.later:
            if self.later and (not self.turns or self.turns[0].doubted):
                turn, self.later = _Turn(self.later), frozenset()
            else:
                turn = self.turns.popleft()
            if new := self.unlearned & turn.some:  # whoever has no topology key need not wait for this
                found, later = self.with_domains(new)
                self.unlearned = self.unlearned - new | later
                self.later |= later
                turn = turn._replace(some=turn.some - new | found)
                if not turn.some:
                    continue
            if len(turn.some) > 1 or not (self.hopeless or self.known):
                return turn
            kinds = {self.kind(key) for key in turn.some}
            if not (kinds <= self.hopeless or self.told_apart(self.mine(turn)) in self.known):
                return turn
            self.hopeless |= kinds
            if all(map(self.domains.next, turn.some)):
                self.turns.appendleft(turn)
        return None

    def kind(self, key: str) -> object:
        """Likewise as `kinds`, in the domain in which a group is asked about."""
        return (self.kinds[key], self.domains.now(key)) if key in self.domains.at else self.kinds[key]

    def told_apart(self, some: Iterable[str]) -> frozenset[object]:
        """These groups where they are asked about."""
        return frozenset(self.domains.told_apart(some))

    def mine(self, turn: _Turn) -> frozenset[str]:
        """All groups of a turn."""
        return self.kept - turn.less | turn.some

    def postponed(self, turn: _Turn) -> bool:
        """Whether a group that has no places by itself waits until the others were asked about."""
        if not turn.doubted or not self.turns:
            return False
        kinds = {self.kind(key) for key in turn.some}
        if not kinds <= self.lonely:
            if not self.alone:
                return False
            self.alone -= 1
            mine = [pod for key in turn.some for pod in self.members[key]]
            result = self.answers.trial(mine, self.domains.pins(turn.some))
            if result.is_late:
                self.alone = 0
                return False
            if not self.fail(turn.some, result):
                return False
            self.lonely.update(kinds)
        self.turns.append(turn._replace(doubted=False))
        return True

    def ask(self, turn: _Turn) -> None:
        """One answer more."""
        mine = self.mine(turn)
        result = self.answered(mine)
        short = self.fail(mine, result)
        if short or self.costs(turn.some, result):
            self.known.add(self.told_apart(mine))
            if not result.is_late:
                for key in turn.some:
                    self.failed.setdefault(key, (self.sizes[key], None))
            if never := self.never_placed(turn, short, result):
                rest = turn.some - never
                self.turns.extendleft([turn._replace(some=rest)] if rest else [])
            else:
                self.split(turn, short)
        else:
            self.kept, self.best = mine, result
            self.one_by_one(turn.less)

    def never_placed(self, turn: _Turn, short: Collection[str], result: Result) -> set[str]:
        """Of several groups that failed together, those of which too few pods could have a place whatever became of all others."""
        if len(turn.some) < 2 or turn.failures:
            return set()
        of = self.groups.of
        tried = [one.pod for one in result.unplaced if of.get(one.pod.uid) in short and one.is_tried]
        never = Counter([of[uid] for uid in self.answers.never(tried)])
        return {key for key in turn.some & never.keys() if self.sizes[key] - never[key] < self.groups.needed[key]}

    def answered(self, mine: frozenset[str]) -> Result:
        """The answer about these groups and all single pods; of a group that is to be on one node, without those that this one does not take."""
        some, groups = _without(self.pods, self.groups, self.groups.needed.keys() - mine), self.domains.pins(mine)
        result = self.answers.whole(some, groups)
        while groups.pins and self.domains.seated(mine, result) and not self.answers.over():
            groups = self.domains.pins(mine)
            result = self.answers.whole(some, groups)
        stay = self.domains.scattered(mine, result) if groups.pins else {}
        extra = {pod.uid for key in stay for pod in self.members[key]} - {
            pod.uid for pods in stay.values() for pod in pods
        }
        if not extra:
            return result
        again = self.answers.whole([pod for pod in some if pod.uid not in extra], groups)
        more = [Unplaced(pod, self.domains.why(key)) for key in stay for pod in self.members[key] if pod.uid in extra]
        return replace(again, unplaced=(*again.unplaced, *more))

    def fail(self, mine: Collection[str], result: Result) -> dict[str, int]:
        """Those of some groups of which too few pods have places, with how many."""
        scattered = self.domains.scattered(mine, result) if self.domains.at else {}
        if not result.unplaced and not scattered:
            return {}
        placed, needed = self.groups.placed(result), self.groups.needed
        for key in mine if self.domains.at else ():
            if key in self.domains.at:
                self.domains.note(key, self.domains.now(key), len(scattered.get(key, ())) or placed[key])
        placed.update({key: -placed[key] for key in scattered})
        short = {key: placed[key] for key in mine if placed[key] < needed[key]}
        first: dict[str, Unplaced] = {}
        for one in result.unplaced:
            if (key := self.groups.of.get(one.pod.uid, "")) in short:
                first.setdefault(key, one)
        self.failed.update({key: (n, first.get(key)) for key, n in short.items()})
        return short

    def costs(self, some: Iterable[str], result: Result) -> bool:
        """Whether a single pod of no lower priority than all of these groups has lost its place."""
        if not result.unplaced:
            return False
        above, theirs = (
            max([self.priorities[key] for key in some]),
            {*map(_uid, self.best.placed)} - self.groups.of.keys(),
        )
        return any(one.pod.shape.priority >= above and one.pod.uid in theirs for one in result.unplaced)

    def split(self, turn: _Turn, short: Mapping[str, int]) -> None:
        """What is asked instead about groups that failed together; those first that may fit into what others held."""
        some, less, failures, _ = turn
        own, others = short.keys() & some, short.keys() - some
        own |= self.domains.unseated(some) if own else set()
        least = min([self.priorities[key] for key in some])
        if not own and others and all(self.priorities[key] < least for key in others):
            self.turns.appendleft(_Turn(some, less | others, failures))
            return
        if len(some) == 1:
            self.hopeless.update([self.kind(key) for key in some])
            if all(map(self.domains.next, some)):
                self.turns.appendleft(turn)
            return
        if (
            len(own) > 1 and failures < _SPLITS and own <= self.domains.at.keys()
        ):  # what is full holds about as many elsewhere
            in_turn = sorted(own, key=lambda key: (-self.priorities[key], key))
            moved = self.domains.moved_on(in_turn, len(some) - len(own))
            self.turns.extendleft([_Turn(kept, less, failures) for kept in (some - own,) if kept])
            self.turns.extend([_Turn(some, less, failures + 1) for some in (moved,) if some])
            self.one_by_one(own - moved)
            return
        out: Collection[str] = own if failures < _SPLITS else some
        if own and not failures:
            holding = {self.kinds[key] for key in own if short[key]}
            out = [key for key in own if self.kinds[key] in holding] or own
        elif own and failures == _SPLITS - 1:  # whoever wants to be with a group that fails may fail after it
            spaces = {key.partition("/")[0] for key in own}
            out = [key for key in some if key.partition("/")[0] in spaces]
        if rest := some.difference(out or some):
            self.turns.appendleft(_Turn(rest, less, failures + 1))
        self.one_by_one(out or some)

    def one_by_one(self, some: Iterable[str]) -> None:
        """Ask about these groups when nothing else is left to ask."""
        turns = sorted(some, key=lambda key: (-self.priorities[key], self.ranks.get(key, 0), key))
        self.turns.extend([_Turn(frozenset((key,)), doubted=True) for key in turns])

    def whole(self) -> Result:
        """The best answer, and the pods of the other groups with what is wrong."""
        dropped: list[Unplaced] = []
        for key in self.groups.needed:
            if key in self.kept:
                continue
            members, why = self.members[key], self.failed.get(key)
            reasons = (NOT_TRIED,) if why is None else _why(self.lack(key, why[0]), why[1])
            dropped += [Unplaced(pod, reasons) for pod in members]
        if not dropped:
            return self.best
        unplaced = [*self.best.unplaced, *dropped]
        orders = {id(one): sort_key(one) for one in {id(one.pod.shape): one.pod.shape for one in unplaced}.values()}
        unplaced.sort(key=lambda one: (orders[id(one.pod.shape)], one.pod.created, one.pod.uid))
        return replace(self.best, unplaced=tuple(unplaced))

    def lack(self, key: str, placed: int) -> tuple[Reason, ...]:
        """What is wrong with a group that has no places."""
        needed, size, why = self.groups.needed[key], self.sizes[key], self.domains.why(key)
        return why if why and needed == 1 else (GroupTooLarge(key, placed, needed, size), *why)


def _without(pods: Sequence[Pod], groups: GroupsAsked, some: Collection[str]) -> Sequence[Pod]:
    if len(some) == len(groups.needed):
        return [] if len(groups.of) == len(pods) else [pod for pod in pods if pod.uid not in groups.of]
    return [pod for pod in pods if groups.of.get(pod.uid) not in some] if some else pods


def _why(lack: tuple[Reason, ...], first: Unplaced | None) -> Later[tuple[Reason, ...]] | tuple[Reason, ...]:
    if first is None:
        return lack
    if not first.is_tried:
        return (NOT_TRIED,)
    why = first.why
    return (*lack, *why) if isinstance(why, tuple) else Later(lambda: (*lack, *why.value))


def failed_groups(result: Result) -> list[str]:
    """The keys of the groups that were asked about in vain and explained, in the order of their pods."""
    whys = (one.why for one in result.unplaced if isinstance(one.why, tuple))
    return list(dict.fromkeys(why[0].group for why in whys if why and isinstance(why[0], GroupTooLarge)))


def cut_groups(design: Design, groups: GroupsAsked) -> tuple[Fault, ...]:
    """The groups of which a design has too few pods."""
    count: Counter[str] = Counter()
    where: dict[str, tuple[int | str, Pod]] = {}
    for spot, pods in spots_of(design):
        for pod in pods:
            if (key := groups.of.get(pod.uid)) is not None:
                count[key] += 1
                where.setdefault(key, (spot, pod))
    return tuple(
        Fault(*where[key], Said(f"{count[key]} pods of group {key} are planned, of which {least} are needed at once"))
        for key, least in groups.needed.items()
        if count[key] < least
    )


def spots_of(design: Design) -> Sequence[tuple[int | str, Sequence[Pod]]]:
    """The numbers of the designed nodes, and the names of existing ones, with their pods."""
    return (*enumerate([one.pods for one in design.nodes]), *design.existing.items())


def spread_groups(
    design: Design,
    groups: GroupsAsked,
    value_on: Callable[[int | str, str], str | None],
    homes: Callable[[str], Iterable[str | None]],
) -> tuple[Fault, ...]:
    """The groups with a topology key of which a design does not put all pods into one domain; arguments as of `group_domains.spanning`."""
    found = spanning(spots_of(design), groups.labels, groups.of, value_on, homes)
    return tuple(
        Fault(
            *where, Said(f"pods of group {key} would run on nodes with different values for label {groups.labels[key]}")
        )
        for key, where in found.items()
    )
