"""LimitRanges, RuntimeClasses and PriorityClasses: what admission makes of a template. Not thread-safe: the owner serialises calls."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from provisioner.apis.core import LimitRange, PriorityClass, RuntimeClass
from provisioner.apis.templates import Admission

Admitting: TypeAlias = LimitRange | RuntimeClass | PriorityClass
"""One of the objects that decide what a template becomes."""


class AdmissionKeeper:
    """They, as the watches tell them."""

    def __init__(self) -> None:
        self._ranges: dict[str, dict[str, LimitRange]] = {}  # namespace -> name -> LimitRange
        self._runtimes: dict[str, RuntimeClass] = {}
        self._priorities: dict[str, PriorityClass] = {}
        self._frozen: Admission | None = Admission()

    def changed(self, old: Admitting | None, new: Admitting | None) -> None:
        """One was added, changed or removed."""
        match new or old:
            case LimitRange(metadata=meta):
                mine = self._ranges.setdefault(meta.namespace, {})
                _put(mine, meta.name, new)
                if not mine:
                    del self._ranges[meta.namespace]
            case RuntimeClass(metadata=meta):
                _put(self._runtimes, meta.name, new)
            case PriorityClass(metadata=meta):
                _put(self._priorities, meta.name, new)
            case None:
                return
        self._frozen = None

    def of(self, namespace: str) -> Admission:
        """What counts in one namespace, for now. Cost: O(its LimitRanges)."""
        ranges = {namespace: tuple(self._ranges.get(namespace, {}).values())}
        return Admission(ranges, self._runtimes, self._priorities)

    def frozen(self) -> Admission:
        """What counts everywhere; the same object while nothing changes."""
        if self._frozen is None:
            ranges = {namespace: tuple(some.values()) for namespace, some in self._ranges.items()}
            self._frozen = Admission(ranges, dict(self._runtimes), dict(self._priorities))
        return self._frozen


def admission_of(objects: Iterable[Admitting]) -> Admission:
    """What these objects make of templates."""
    keeper = AdmissionKeeper()
    for one in objects:
        keeper.changed(None, one)
    return keeper.frozen()


def _put(kept: dict[str, Any], name: str, new: Admitting | None) -> None:
    if new is None:
        kept.pop(name, None)
    else:
        kept[name] = new
