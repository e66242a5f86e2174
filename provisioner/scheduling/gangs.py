"""All or nothing: groups of which too few pods have places get none, and the others are asked about again without them.

A group that fails is dropped whole and the rest is answered anew, as if the group's pods had never been asked about; so whatever a group held is
there for others, and nothing has to be undone. Where groups still fail after `_MOST_ANSWERS`, or there is no time, they are taken out of the answer.
"""

from collections import Counter
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
_MOST_ANSWERS: Final = 3
"""Times that one question is answered, groups that fail left out."""


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
    """The classes such that pods of a group get their places one after the other, before single pods of their priority.

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
            found.append((priority, alone, seen[apart[0]] if apart else number, turn, one))
            continue
        parts: dict[str | None, list[Pod]] = {key: [] for key in distinct}
        for key, pod in zip(keys, one.pods, strict=True):
            parts[key].append(pod)
        singles = parts.pop(None, [])
        for key in apart:
            turn = turns.setdefault(key, len(turns) + 1)
            found.append((priority, False, seen[key], turn, _with_pods(one, parts.pop(key))))
        if parts:
            found.append((priority, False, number, 0, _with_pods(one, [*chain.from_iterable(parts.values())])))
        if singles:
            found.append((priority, True, number, 0, _with_pods(one, singles)))
    found.sort(key=itemgetter(0, 1, 2, 3))
    return [one for *_, one in found]


def _with_pods(one: PodClass, pods: Sequence[Pod]) -> PodClass:
    return msgspec.structs.replace(one, pods=pods)


def all_or_nothing(
    pods: Sequence[Pod],
    groups: GroupsAsked,
    answer: Callable[[Sequence[Pod]], Result],
    is_last: Callable[[], bool],
    unsafe: Callable[[Result], Collection[str]],
) -> Result:
    """An answer in which no group is cut.

    Args:
        pods: of the question.
        groups: of the question.
        answer: to the question about some of its pods.
        is_last: whether the last answer must do, because there is no time, or nobody would look at a better one.
        unsafe: UIDs of the pods that might not be legal in an answer out of which others were taken.

    Cost: that of at most three answers, and O(pods).
    """
    sizes = Counter(groups.of.values())
    short = {key: 0 for key, least in groups.needed.items() if sizes[key] < least}
    dropped, gone, rest = _left(pods, groups, short, ()), set(short), _without(pods, groups, short)
    tried: list[_Answer] = []
    for number in range(1, _MOST_ANSWERS + 1):
        result = answer(rest)
        short = {}
        if result.unplaced:
            placed = groups.placed(result)
            short = {k: placed[k] for k, least in groups.needed.items() if k not in gone and placed[k] < least}
        tried.append(_Answer(result, short, dropped))
        if not short or number == _MOST_ANSWERS or is_last():
            break
        some = short if number == _MOST_ANSWERS - 1 else _given_up(rest, groups, short, sizes)
        dropped = [*dropped, *_left(rest, groups, some, result.unplaced)]
        gone |= some.keys()
        rest = _without(rest, groups, some)
    best = tried if tried[-1].result.is_late else tried[-1:]  # there may have been more time for an earlier one
    return max([one.whole(groups, unsafe) for one in reversed(best)], key=_placed_by_priority)


class _Answer(NamedTuple):
    """An answer, and what of it cannot stay.

    Attributes:
        short: by key of a group that failed in it, how many of its pods have places.
        dropped: pods that it was not asked about.
    """

    result: Result
    short: Mapping[str, int]
    dropped: Sequence[Unplaced]

    def whole(self, groups: GroupsAsked, unsafe: Callable[[Result], Collection[str]]) -> Result:
        """Without the pods of groups that failed, and without any that might not be legal then."""
        result, short, dropped = self
        if any(short.values()):
            out = {pod.uid for pod in result.placed if groups.of.get(pod.uid) in short}
            if more := unsafe(_rest_of(result, out)):
                out.update(more)
                left = groups.placed(_rest_of(result, out))
                short = {**short, **{key: left[key] for key, least in groups.needed.items() if left[key] < least}}
                out.update(pod.uid for pod in result.placed if groups.of.get(pod.uid) in short)
            taken = [pod for pod in result.placed if pod.uid in out]
            others = [Unplaced(pod, (NOT_TRIED,)) for pod in taken if groups.of.get(pod.uid) not in short]
            dropped = [*dropped, *_left(taken, groups, short, result.unplaced), *others]
            result = _rest_of(result, out)
        if not dropped:
            return result
        unplaced = sorted((*result.unplaced, *dropped), key=lambda one: sort_key(one.pod.shape))
        return replace(result, unplaced=tuple(unplaced))


def _rest_of(result: Result, out: Collection[str]) -> Result:
    """An answer without some pods, and without the new nodes that were made for them alone."""
    kept = {name: tuple([pod for pod in pods if pod.uid not in out]) for name, pods in result.existing.items()}
    return replace(
        result,
        claims=tuple([rest for one in result.claims if (rest := one.without(out)) is not None]),
        existing={name: pods for name, pods in kept.items() if pods},
        bound=None,
    )


def _placed_by_priority(result: Result) -> list[tuple[int, int]]:
    """How many pods have places, by priority; more is better."""
    return sorted(Counter([pod.shape.priority for pod in result.placed]).items(), reverse=True)


def _without(pods: Sequence[Pod], groups: GroupsAsked, some: Collection[str]) -> Sequence[Pod]:
    return [pod for pod in pods if groups.of.get(pod.uid) not in some] if some else pods


def _given_up(
    pods: Iterable[Pod], groups: GroupsAsked, short: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Of groups that failed, those that held places, and those that need no less: the others may fit into what these held."""
    kinds: dict[str, set[int]] = {key: set() for key in short}
    for pod in pods:
        key = groups.of.get(pod.uid)
        if key in kinds:
            kinds[key].add(id(pod.shape))
    smallest: dict[frozenset[int], int] = {}
    for key, placed in short.items():
        if placed:
            kind = frozenset(kinds[key])
            smallest[kind] = min(sizes[key], smallest.get(kind, sizes[key]))
    if not smallest:
        return dict(short)
    never = max(smallest.values()) + max(sizes.values()) + 1
    return {key: n for key, n in short.items() if n or sizes[key] >= smallest.get(frozenset(kinds[key]), never)}


def _left(
    pods: Iterable[Pod], groups: GroupsAsked, short: Mapping[str, int], unplaced: Iterable[Unplaced]
) -> list[Unplaced]:
    """The pods of these groups without places, with what is wrong with the group and with the first of them."""
    if not short:
        return []
    first: dict[str, Unplaced] = {}
    for one in unplaced:
        if (key := groups.of.get(one.pod.uid, "")) in short:
            first.setdefault(key, one)
    sizes = Counter(groups.of.values())
    whys = {
        key: _why(GroupTooLarge(key, n, groups.needed[key], sizes[key]), first.get(key)) for key, n in short.items()
    }
    return [Unplaced(pod, whys[key]) for pod in pods if (key := groups.of.get(pod.uid, "")) in whys]


def _why(group: GroupTooLarge, first: Unplaced | None) -> Later[tuple[Reason, ...]] | tuple[Reason, ...]:
    if first is None:
        return (group,)
    if not first.is_tried:
        return (NOT_TRIED,)
    why = first.why
    return (group, *why) if isinstance(why, tuple) else Later(lambda: (group, *why.value))


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
