"""LimitRanges, RuntimeClasses and PriorityClasses: what admission makes of a template. Not thread-safe: the owner serialises calls."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from provisioner.apis.core import LimitRange, PriorityClass, RuntimeClass
from provisioner.apis.templates import Admission, ContainerDefaults, container_defaults

Admitting: TypeAlias = LimitRange | RuntimeClass | PriorityClass
"""One of the objects that decide what a template becomes."""


class AdmissionKeeper:
    """They, as the watches tell them."""

    def __init__(self) -> None:
        self._ranges: dict[str, dict[str, LimitRange]] = {}  # namespace -> name -> LimitRange
        self._defaults: dict[str, ContainerDefaults] = {}  # of them together, by namespace
        self._runtimes: dict[str, RuntimeClass] = {}
        self._priorities: dict[str, PriorityClass] = {}
        self._frozen: Admission | None = Admission()

    def changed(self, old: Admitting | None, new: Admitting | None) -> bool:
        """One was added, changed or removed; whether any template may be something else now. Cost: O(the LimitRanges of its namespace)."""
        match new or old:
            case LimitRange(metadata=meta):
                mine = self._ranges.setdefault(meta.namespace, {})
                _put(mine, meta.name, new)
                before, now = self._defaults.get(meta.namespace), container_defaults(mine.values()) if mine else None
                if now is None:
                    del self._ranges[meta.namespace]
                if now == before:
                    return False
                _put(self._defaults, meta.namespace, now)
            case RuntimeClass(metadata=meta):
                _put(self._runtimes, meta.name, new)
            case PriorityClass(metadata=meta):
                _put(self._priorities, meta.name, new)
            case None:
                return False
        self._frozen = None
        return True

    def now(self) -> Admission:
        """What counts; it changes with the next call of `changed`."""
        return Admission(self._defaults, self._runtimes, self._priorities)

    def frozen(self) -> Admission:
        """What counts everywhere; the same object while nothing changes."""
        if self._frozen is None:
            self._frozen = Admission(dict(self._defaults), dict(self._runtimes), dict(self._priorities))
        return self._frozen


def admission_of(objects: Iterable[Admitting]) -> Admission:
    """What these objects make of templates."""
    keeper = AdmissionKeeper()
    for one in objects:
        keeper.changed(None, one)
    return keeper.frozen()


def _put(kept: dict[str, Any], name: str, new: object) -> None:
    if new is None:
        kept.pop(name, None)
    else:
        kept[name] = new
