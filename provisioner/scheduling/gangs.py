"""All or nothing: groups of which too few pods have places get none, and cost nobody else anything.

First comes the answer without any group: what single pods have there is theirs, however little time there is for more. Then groups are asked about
together with all of that, first all, later fewer at once; an answer counts only if every group in it has what it needs. So a group that fails is as
if nobody had ever asked about it, and nothing has to be undone.
"""

import functools
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter, itemgetter, ne
from typing import Final, NamedTuple

import msgspec

from provisioner.apis.gangs import group_of
from provisioner.apis.pods import Pod
from provisioner.scheduling.constraints.classes import PodClass, sort_key
from provisioner.scheduling.judging import Design, Fault
from provisioner.scheduling.reasons import NOT_TRIED, GroupTooLarge, Reason
from provisioner.scheduling.result import Later, Result, Unplaced
from provisioner.values.message import Said

_uid = attrgetter("uid")
_MOST_ANSWERS: Final = 10
"""Times that one question is answered with groups."""
_SPLITS: Final = 3
"""Times that groups that fail together are asked about again without some of them, before each is asked about by itself."""
_MOST_ALONE: Final = 64
"""Groups of a question that are asked about without any other pod."""


@dataclass(frozen=True, slots=True)
class GroupsAsked:
    """The groups of a question that could be cut: of which two pods or more are needed at once.

    Attributes:
        of: by UID of a pod of the question, the key of its group.
        needed: by key, how many of these pods must have places, or none of them.
    """

    of: Mapping[str, str] = field(default_factory=dict)
    needed: Mapping[str, int] = field(default_factory=dict)

    def placed(self, result: Result) -> Counter[str]:
        """How many pods of each group have places."""
        return Counter([key for key in map(self.of.get, map(_uid, result.placed)) if key is not None])


NO_GROUPS: Final = GroupsAsked()


def groups_asked(
    pods: Iterable[Pod], minima: Mapping[str, int], elsewhere: Mapping[str, Collection[str]]
) -> GroupsAsked:
    """The groups of a question.

    Args:
        pods: of the question.
        minima: by key of a group, how many of its pods must have places.
        elsewhere: likewise, UIDs of those that have one in the world; pods of the question do not count among them.

    Cost: O(pods).
    """
    of = {pod.uid: key for pod in pods if (key := group_of(pod)) in minima}
    needed, sizes = {}, Counter(of.values())
    moving = Counter([key for uid, key in of.items() if uid in elsewhere.get(key, ())]) if elsewhere else sizes
    for key in sizes:
        there = elsewhere.get(key)
        least = minima[key] - (len(there) - moving[key] if there else 0)
        if least > 1:
            needed[key] = least
    if len(needed) < len(sizes):
        of = {uid: key for uid, key in of.items() if key in needed}
    return GroupsAsked(of, needed) if needed else NO_GROUPS


def together(classes: Iterable[PodClass], groups: GroupsAsked) -> list[PodClass]:
    """The classes such that pods of a group get their places one after the other, after single pods of their priority.

    A class is split into its groups only where these have pods of several classes; else its pods are sorted by group, the oldest first. A group
    comes where its largest pods come.
    """
    listed = [(one, [*map(groups.of.get, map(_uid, one.pods))]) for one in classes]
    seen: dict[str | None, int] = {None: 0}
    several: set[str | None] = set()
    for number, (_, keys) in enumerate(listed):
        several.update([key for key in dict.fromkeys(keys) if seen.setdefault(key, number) != number])
    several.discard(None)
    found: list[tuple[int, bool, int, int, PodClass]] = []
    turns: dict[str | None, int] = {}
    for number, (one, keys) in enumerate(listed):
        priority, distinct = one.facts.order[0], dict.fromkeys(keys)
        alone, apart = None in distinct, [key for key in distinct if key in several]
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


def all_or_nothing(
    pods: Sequence[Pod],
    groups: GroupsAsked,
    answer: Callable[[Sequence[Pod]], Result],
    over: Callable[[], bool],
    last: Sequence[str] = (),
    *,
    stop: bool = False,
) -> Result:
    """An answer in which no group is cut, and no single pod is without the place that it has without groups, but for one of higher priority.

    Args:
        pods: of the question.
        groups: of the question.
        answer: to the question about some of its pods.
        over: whether there is no time for more.
        last: keys of groups that are asked about when the others have places, in this order.
        stop: a pod without a place is answer enough.

    Cost: that of the answer without groups, of at most `_MOST_ANSWERS` with them, and O(pods).
    """
    asked = _Asked(pods, groups, answer)
    if stop:
        result = answer(pods)
        if not result.unplaced:
            return result
        asked.fail(frozenset(groups.needed), result)
    asked.begin(last)
    answers = 0 if stop else _MOST_ANSWERS
    while answers and not over() and (turn := asked.next()) is not None:
        if not asked.postponed(turn):
            asked.ask(turn)
            answers -= 1
    return asked.whole()


class _Asked:
    """Which groups have places, and which are still to be asked about."""

    def __init__(self, pods: Sequence[Pod], groups: GroupsAsked, answer: Callable[[Sequence[Pod]], Result]) -> None:
        self.pods: Final = pods
        self.groups: Final = groups
        self.answer: Final = answer
        self.sizes: Final = Counter(groups.of.values())
        self.hopeless: set[object] = set()  # kinds of which one alone has no place beside `kept`
        self.failed: Final[dict[str, tuple[int, Unplaced | None]]] = {}  # key -> pods that had places, first without
        self.known: Final[set[frozenset[str]]] = set()  # that have no places together
        self.kept: frozenset[str] = frozenset()
        self.turns: Final[deque[_Turn]] = deque()
        self.ranks: dict[str, int] = {}
        self.alone = _MOST_ALONE

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
        shapes = {k: [id(pod if pod.shape.volumes else pod.shape) for pod in v] for k, v in self.members.items()}
        return {key: (self.groups.needed[key], frozenset(Counter(some).items())) for key, some in shapes.items()}

    def begin(self, last: Sequence[str]) -> None:
        """The answer without groups, and what is asked next."""
        self.best = self.answer(_without(self.pods, self.groups, self.groups.needed))
        self.ranks = {key: number for number, key in enumerate(last, 1)}
        possible = frozenset([key for key, least in self.groups.needed.items() if self.sizes[key] >= least])
        self.failed.update({key: (0, None) for key in self.groups.needed if key not in possible})
        later = possible & self.ranks.keys()
        self.turns.extend([_Turn(some) for some in (possible - later, later) if some])

    def next(self) -> _Turn | None:
        """What is to be asked next; None where nothing is left of which the answer is not known."""
        while self.turns:
            turn = self.turns.popleft()
            if len(turn.some) > 1:
                return turn
            kinds = {self.kinds[key] for key in turn.some}
            if not (kinds <= self.hopeless or self.mine(turn) in self.known):
                return turn
            self.hopeless |= kinds
        return None

    def mine(self, turn: _Turn) -> frozenset[str]:
        """All groups of a turn."""
        return self.kept - turn.less | turn.some

    def postponed(self, turn: _Turn) -> bool:
        """Whether a group that has no places by itself waits until the others were asked about."""
        if not turn.doubted or not self.turns or not self.alone:
            return False
        self.alone -= 1
        result = self.answer([pod for key in turn.some for pod in self.members[key]])
        short = self.fail(turn.some, result)
        if short:
            self.turns.append(turn._replace(doubted=False))
        return bool(short)

    def ask(self, turn: _Turn) -> None:
        """One answer more."""
        mine = self.mine(turn)
        result = self.answer(_without(self.pods, self.groups, self.groups.needed.keys() - mine))
        short = self.fail(mine, result)
        if short or self.costs(turn.some, result):
            self.known.add(mine)
            if not result.is_late:
                for key in turn.some:
                    self.failed.setdefault(key, (self.sizes[key], None))
            self.split(turn, short)
        else:
            self.kept, self.best = mine, result
            self.one_by_one(turn.less)

    def fail(self, mine: Collection[str], result: Result) -> dict[str, int]:
        """Those of some groups of which too few pods have places, with how many."""
        if not result.unplaced:
            return {}
        placed, needed = self.groups.placed(result), self.groups.needed
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
        least = min([self.priorities[key] for key in some])
        if not own and others and all(self.priorities[key] < least for key in others):
            self.turns.appendleft(_Turn(some, less | others, failures))
            return
        if len(some) == 1:
            self.hopeless.update([self.kinds[key] for key in some])
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
            reasons = (
                (NOT_TRIED,)
                if why is None
                else _why(GroupTooLarge(key, why[0], self.groups.needed[key], len(members)), why[1])
            )
            dropped += [Unplaced(pod, reasons) for pod in members]
        if not dropped:
            return self.best
        unplaced = sorted(
            (*self.best.unplaced, *dropped), key=lambda one: (sort_key(one.pod.shape), one.pod.created, one.pod.uid)
        )
        return replace(self.best, unplaced=tuple(unplaced))


def _without(pods: Sequence[Pod], groups: GroupsAsked, some: Collection[str]) -> Sequence[Pod]:
    return [pod for pod in pods if groups.of.get(pod.uid) not in some] if some else pods


def _why(group: GroupTooLarge, first: Unplaced | None) -> Later[tuple[Reason, ...]] | tuple[Reason, ...]:
    if first is None:
        return (group,)
    if not first.is_tried:
        return (NOT_TRIED,)
    why = first.why
    return (group, *why) if isinstance(why, tuple) else Later(lambda: (group, *why.value))


def failed_groups(result: Result) -> list[str]:
    """The keys of the groups that were asked about in vain and explained, in the order of their pods."""
    whys = (one.why for one in result.unplaced if isinstance(one.why, tuple))
    return list(dict.fromkeys(why[0].group for why in whys if why and isinstance(why[0], GroupTooLarge)))


def cut_groups(design: Design, groups: GroupsAsked) -> tuple[Fault, ...]:
    """The groups of which a design has too few pods."""
    count: Counter[str] = Counter()
    where: dict[str, tuple[int | str, Pod]] = {}
    spots: list[tuple[int | str, Sequence[Pod]]] = [(n, one.pods) for n, one in enumerate(design.nodes)]
    for spot, pods in (*spots, *design.existing.items()):
        for pod in pods:
            if (key := groups.of.get(pod.uid)) is not None:
                count[key] += 1
                where.setdefault(key, (spot, pod))
    return tuple(
        Fault(*where[key], Said(f"{count[key]} pods of group {key} are planned, of which {least} are needed at once"))
        for key, least in groups.needed.items()
        if count[key] < least
    )
