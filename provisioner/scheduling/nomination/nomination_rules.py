"""Which pods may be nominated to the nodes that they are planned on (design §3.7): of those that a hard spread counts, who is alone on the node.

kube-scheduler judges a node as if the pods nominated to *that node* ran there already, and forgets those nominated to
other nodes (RunFilterPluginsWithNominatedPods). What it then sees is part of the plan only:

- A required anti-affinity, a host port, a volume or the room of a node that allow the whole plan allow every part of it.
- A required affinity may fail on a part, but then only for as long as the pod that it needs is not bound; that pod does
  not wait for it.
- A topology spread with DoNotSchedule does not: every planned domain looks fuller than all others by what is nominated
  there, for every pod that the constraint is on. Where several are planned on a node they wait for each other, for ever.

So of the pods that are planned on one node, those go without a nomination that share a constraint with another of them: both have it, or one
has it and it counts the other, or it counts both. Who shares none finds its node as if nobody was nominated, and is bound as soon as it
could be without. In doubt a pod is withheld: without a nomination it is scheduled as anywhere else.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from typing import Final

from provisioner.apis.core import TopologySpreadConstraint
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.constraints.demands import deduced_selector
from provisioner.scheduling.constraints.filters import FilterError
from provisioner.scheduling.constraints.selectors import Expressions, holds, label_set, read_selector
from provisioner.scheduling.problem import SpreadDefaults

MAX_TESTS: Final = 1024
"""Expressions of selectors that one class of pods is compared with; a pod that more of them may match is withheld unseen."""
MAX_SERVICES: Final = 256
"""Of a namespace whose pods are looked at for a selector that can be deduced; where there are more, each is said to have one."""

NO_DEFAULTS: Final = SpreadDefaults()
WITHDRAW_AFTER_SECONDS: Final = 10.0
"""How long a pod is left nominated to a node that is ready: kube-scheduler has tried it by then, or never will."""

_Numbered = tuple[Expressions, int]
_EVERYTHING: Final[Expressions] = ()
_DERIVED: Final = "nomination"


class Withheld(enum.StrEnum):
    """Why a pod is not nominated."""

    CARRIES_SPREAD = "carries_spread"
    """It has a hard topology spread constraint, of its own or by the cluster's default, that is about another pod of its node too."""
    COUNTED_BY_SPREAD = "counted_by_spread"
    """A hard constraint of another pod of its namespace counts it, and is about another pod of its node too."""
    NOT_NEEDED = "not_needed"
    """kube-scheduler finds places for all pods of the wave without it (`scheduling.nomination.unaided`)."""


class Withdrawal(enum.StrEnum):
    """Why a nomination that was written is taken back."""

    NOT_BOUND = "not_bound"
    """Its node has been ready for `WITHDRAW_AFTER_SECONDS`, and kube-scheduler did not follow."""
    NOT_PLANNED = "not_planned"
    """The pod is not planned there any more: it would only keep others from the room."""
    COUNTED_BY_SPREAD = "counted_by_spread"
    """Another pod that is nominated there shares a hard spread constraint with it by now."""


def withdrawal(*, planned: bool, ready_seconds: float | None, withheld: Withheld | None) -> Withdrawal | None:
    """Why the nomination of a pod that still waits is to be taken back; None for as long as it stands.

    Args:
        planned: the pod's live plan still names the node.
        ready_seconds: for how long the node has been ready; None while it is not.
        withheld: what the policy says of the pod now.
    """
    if not planned:
        return Withdrawal.NOT_PLANNED
    if ready_seconds is not None and ready_seconds >= WITHDRAW_AFTER_SECONDS:
        return Withdrawal.NOT_BOUND
    return Withdrawal.COUNTED_BY_SPREAD if withheld is not None else None


@dataclass(frozen=True, slots=True)
class _Tied:
    """What ties a pod to others.

    Attributes:
        why: it is not nominated where others share this; None for a pod that no hard constraint is about.
        selectors: numbers of those of the constraints that it has, or that count it; None where they are too many to be tried.
    """

    why: Withheld | None
    selectors: frozenset[int] | None


_FREE: Final = _Tied(None, frozenset())


class NominationPolicy:
    """Decides for pods of one instant; make a new one for another.

    Args:
        pods: every pod that waits or runs, in any order: the constraints of all of them count, because equals of a pod that
            runs may come at any time.
        defaults: the cluster's default constraints.

    Cost: 0.1 us for each of `pods`, and for each class that carries a hard constraint 20 us the first time and 7 us after
    that. A decision is a lookup for each label of the first pod of a class and at most `MAX_TESTS` comparisons; then a lookup for
    every pod, and a count for each class on the node and selector that ties it. 100,000 pods of 1,000 Deployments: 10 ms; each with a selector
    of its own: 2.2 s, then 0.7 s (`tests/bench/bench_nomination.py`).
    """

    def __init__(self, pods: Iterable[Pod], defaults: SpreadDefaults = NO_DEFAULTS) -> None:
        self._defaults = defaults
        self._by_default: Final = any(map(is_hard, defaults.constraints))
        shapes: dict[int, PodShape] = {}
        unspread: dict[tuple[str, str], None] = {}  # (namespace, UID of the controller) of pods that the default is for
        for pod in pods:
            shape = pod.shape
            if shape.spread:
                shapes[id(shape)] = shape
            elif self._by_default:
                unspread[shape.namespace, pod.owner.uid if pod.owner is not None else ""] = None
        selectors: defaultdict[str, set[Expressions]] = defaultdict(set)
        for shape in shapes.values():
            selectors[shape.namespace].update(_selectors_of(shape))
        for namespace, owner in unspread:
            selectors[namespace].update(self._default_selectors(namespace, owner))
        self._numbers: Final = count()
        self._index: Final = {
            namespace: _Index(found, self._numbers) for namespace, found in selectors.items() if found
        }
        self._known: Final[dict[object, _Tied]] = {}
        self._kept: Final[list[PodShape]] = []  # an id is worth something only while its object lives

    def withheld(self, planned: Iterable[Pod]) -> dict[str, Withheld]:
        """Of all the pods that are planned on one node, those that must not be nominated to it, by UID, and why."""
        found = [(pod, self._tied(pod)) for pod in planned]
        alike = {id(tied): tied for _, tied in found if tied.why is not None}
        pods = Counter(id(tied) for _, tied in found)
        together: Counter[int] = Counter()
        for number, tied in alike.items():
            for selector in tied.selectors or ():
                together[selector] += pods[number]
        shared = {
            number
            for number, tied in alike.items()
            if tied.selectors is None or any(together[selector] > 1 for selector in tied.selectors)
        }
        return {pod.uid: tied.why for pod, tied in found if tied.why is not None and id(tied) in shared}

    def is_tied(self, pod: Pod) -> bool:
        """Whether a hard constraint is about a pod: where it is bound depends on others, whoever steers."""
        return self._tied(pod).why is not None

    def _tied(self, pod: Pod) -> _Tied:
        shape = pod.shape
        owner = pod.owner.uid if self._by_default and pod.owner is not None else ""
        key: object = (id(shape), owner)
        if pod.labels is not shape.labels and pod.labels != shape.labels:  # its own, which a selector may look at
            index = self._index.get(pod.namespace)
            read = frozenset(pod.labels) if self._by_default else index.keys if index is not None else frozenset[str]()
            key = (id(shape), owner, tuple(sorted([(name, pod.labels[name]) for name in read & pod.labels.keys()])))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._judge(pod)
            self._kept.append(shape)
        return found

    def _judge(self, pod: Pod) -> _Tied:
        index = self._index.get(pod.namespace)
        counting = index.counting(pod.labels) if index is not None else frozenset()
        if any(map(is_hard, pod.shape.spread)):
            if index is None:  # it came after the policy was made
                index = self._index[pod.namespace] = _Index((), self._numbers)
            own = frozenset([index.number(one) for one in _selectors_of(pod.shape)])
            return _Tied(Withheld.CARRIES_SPREAD, None if counting is None else counting | own)
        if self._by_default and self._spread_by_default(pod):
            return _Tied(Withheld.CARRIES_SPREAD, counting or None)
        return _FREE if counting == frozenset() else _Tied(Withheld.COUNTED_BY_SPREAD, counting)

    def _spread_by_default(self, pod: Pod) -> bool:
        """Whether kube-scheduler puts the default constraints on this pod: it has none, and a selector can be deduced."""
        if pod.shape.spread:
            return False
        services = self._defaults.services.get(pod.namespace, ())
        if len(services) > MAX_SERVICES:
            return True
        controller = self._defaults.controllers.get(pod.owner.uid) if pod.owner is not None else None
        return deduced_selector(label_set(pod.namespace, pod.labels), services, controller) is not None

    def _default_selectors(self, namespace: str, owner: str) -> Iterable[Expressions]:
        """What the deduced selectors of such pods select at most: each is one of these, narrowed."""
        controller = self._defaults.controllers.get(owner)
        if controller is not None:
            return (_read(controller),)
        services = self._defaults.services.get(namespace, ())
        return [
            tuple((key, "In", frozenset((value,))) for key, value in sorted(one.items())) for one in services if one
        ]


class _Index:
    """The selectors of one namespace, each filed under what a pod must have to match it.

    Args:
        selectors: each once.
        numbers: those that no selector has yet; a long selector takes long to hash, a number does not.
    """

    def __init__(self, selectors: Iterable[Expressions], numbers: Iterator[int]) -> None:
        self._more: Final = numbers
        self._numbered: Final[list[_Numbered]] = list(zip(selectors, numbers, strict=False))
        frequency = Counter(
            (key, value) for one, _ in self._numbered for key, operator, values in one for value in values
        )
        self._filed: Final[defaultdict[tuple[str, ...], list[_Numbered]]] = defaultdict(list)
        """By a label and its value, by a label alone, or by nothing."""
        for one in self._numbered:
            self._filed[_demanded(one[0], frequency)].append(one)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Every label that a selector reads."""
        return frozenset(key for one, _ in self._numbered for key, *_ in one)

    @cached_property
    def _by_selector(self) -> dict[Expressions, int]:
        return dict(self._numbered)

    def number(self, selector: Expressions) -> int:
        """The number of a selector, which gets one where it has none."""
        found = self._by_selector.get(selector)
        if found is None:
            found = self._by_selector[selector] = next(self._more)
        return found

    def counting(self, labels: Mapping[str, str]) -> frozenset[int] | None:
        """Numbers of the selectors that match; None where too many would have to be tried."""
        candidates = [self._filed.get((), [])]
        for key, value in labels.items():
            candidates += [self._filed.get((key, value), []), self._filed.get((key,), [])]
        if sum(map(len, candidates)) > MAX_TESTS:
            return None
        left, found = MAX_TESTS, []
        for selector, number in chain.from_iterable(candidates):
            left -= max(1, len(selector))
            if left < 0:
                return None
            if holds(selector, labels):
                found.append(number)
        return frozenset(found)


def _demanded(selector: Expressions, frequency: Mapping[tuple[str, str], int]) -> tuple[str, ...]:
    """What a pod must have to match: the rarest label with its value, else a label, else nothing."""
    pairs = [
        (key, value) for key, operator, values in selector if operator == "In" for value in values if len(values) == 1
    ]
    keys = sorted(key for key, operator, _ in selector if operator in ("In", "Exists"))
    return min(pairs, key=lambda pair: (frequency[pair], pair), default=tuple(keys[:1]))


def is_hard(constraint: TopologySpreadConstraint) -> bool:
    """Whether no pod may be bound against it."""
    return constraint.when_unsatisfiable != "ScheduleAnyway"


def _selectors_of(shape: PodShape) -> frozenset[Expressions]:
    """Whom the hard constraints of a class count; concluded once a class and kept with it."""
    kept = shape.derived
    found = kept.get(_DERIVED)
    if found is None:
        found = kept[_DERIVED] = frozenset(
            selector
            for one in shape.spread
            if is_hard(one) and (selector := selector_of(one, shape.labels)) is not None
        )
    return found  # type: ignore[return-value]


def selector_of(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Expressions | None:
    """The selector with the pod's own values of matchLabelKeys; None for one that counts nobody."""
    if constraint.label_selector is None:
        return None
    selector = _read(constraint.label_selector)
    own = ((key, "In", frozenset((labels[key],))) for key in constraint.match_label_keys if key in labels)
    return tuple(dict.fromkeys((*selector, *own)))


def _read(selector: LabelSelector) -> Expressions:
    try:
        return read_selector(selector, "") or _EVERYTHING
    except FilterError:
        return _EVERYTHING  # whom it counts is not known
