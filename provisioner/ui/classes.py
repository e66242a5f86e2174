"""The classes of pods on a page: what is told of many pods is said once. Not thread-safe."""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from provisioner.apis.pods import Pod
from provisioner.apis.vpa import made_by
from provisioner.ui.page import NO_PODS, PageClass, PodRow, PodsApart
from provisioner.values.resources import CPU, MEMORY, PLENTIFUL, Resources

MOST_CLASSES: Final = 5000
"""Of pods on one page; the commonest are told apart."""


class _Key(NamedTuple):
    """Pods with the same key are of one class of the page."""

    namespace: str
    owner: str
    requests: Resources


def _key(pod: Pod) -> _Key:
    return _Key(pod.namespace, pod.owner.name if pod.owner is not None else f"/{pod.name}", pod.shape.requests)


class PageClasses:
    """The classes of a page, by order of first use; the rarest have none where there are too many.

    Another page may go on with them: then what comes new has a class while there is room, and those that are used no more stay.

    Args:
        pods: all that the page shows.
        sees: whether the pods of a namespace may be told apart.

    Attributes:
        all: the classes that have been used.
    """

    def __init__(self, pods: Iterable[Pod], sees: Callable[[str], bool] = lambda _: True) -> None:
        self.all: list[PageClass] = []
        self._sees = functools.cache(sees)
        counts: Counter[_Key] = Counter(_key(pod) for pod in pods if self._sees(pod.namespace))
        self._kept = {key for key, _ in counts.most_common(MOST_CLASSES)}
        self._index: dict[_Key, int] = {}

    def index(self, pod: Pod) -> int | None:
        """Where the class of a pod is; None for one that has none."""
        key = _key(pod)
        found = self._index.get(key)
        if found is None:
            if key not in self._kept:
                if len(self._kept) >= MOST_CLASSES:
                    return None
                self._kept.add(key)
            found = self._index[key] = len(self.all)
            self.all.append(_class(pod))
        return found

    def rows(self, pods: Iterable[Pod]) -> tuple[tuple[PodRow, ...], PodsApart, PodsApart]:
        """Pods by class with their names, those that are hidden, and those without a class."""
        rows: defaultdict[int, list[str]] = defaultdict(list)
        hidden, rest = [], []
        for pod in pods:
            if not self._sees(pod.namespace):
                hidden.append(pod.shape.requests)
            elif (index := self.index(pod)) is None:
                rest.append(pod.shape.requests)
            else:
                prefix = self.all[index].prefix
                rows[index].append(
                    pod.name[len(prefix) :] if prefix and pod.name.startswith(prefix) else f"/{pod.name}"
                )
        found: tuple[PodRow, ...] = tuple((index, len(those), *sorted(those)) for index, those in sorted(rows.items()))
        return found, apart(hidden), apart(rest)


def _class(pod: Pod) -> PageClass:
    made, asked = made_by(pod), pod.shape.requests
    others = {name: text for name, text in asked.to_wire().items() if name not in PLENTIFUL}
    return PageClass(
        namespace=pod.namespace,
        kind=made.kind,
        name=made.name,
        prefix=f"{pod.owner.name}-" if pod.owner is not None else "",
        cpu=asked.amount(CPU),
        memory=asked.amount(MEMORY),
        more=", ".join(f"{name} {text}" for name, text in others.items()),
    )


def system_of(capacity: Resources, allocatable: Resources) -> tuple[int, int]:
    """CPU and memory of a node that no pod gets."""
    cpu, memory = (max(0, capacity.amount(one) - allocatable.amount(one)) for one in (CPU, MEMORY))
    return cpu, memory


def apart(requests: Sequence[Resources]) -> PodsApart:
    """Pods that are only counted, by what they ask for."""
    if not requests:
        return NO_PODS
    return PodsApart(
        pods=len(requests),
        cpu=sum(one.amount(CPU) for one in requests),
        memory=sum(one.amount(MEMORY) for one in requests),
    )
