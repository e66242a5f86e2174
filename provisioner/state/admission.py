"""LimitRanges, RuntimeClasses and PriorityClasses: what admission makes of a template. Not thread-safe: the owner serialises calls."""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from provisioner.apis.core import LimitRange, PriorityClass, RuntimeClass
from provisioner.apis.templates import Admission, ContainerDefaults, container_defaults

Admitting: TypeAlias = LimitRange | RuntimeClass | PriorityClass
"""One of the objects that decide what a template becomes."""
EVERYWHERE: Final = ""


class AdmissionKeeper:
    """They, as the watches tell them. They are read when somebody asks, however many events came meanwhile."""

    def __init__(self) -> None:
        self._ranges: dict[str, dict[str, LimitRange]] = {}  # namespace -> name -> LimitRange
        self._defaults: dict[str, ContainerDefaults] = {}  # of them together, by namespace
        self._runtimes: dict[str, RuntimeClass] = {}
        self._priorities: dict[str, PriorityClass] = {}
        self._now = Admission(self._defaults, self._runtimes, self._priorities)
        self._unread: set[str] = set()  # namespaces
        self._changed: set[str] = set()
        self._frozen: Admission | None = Admission()

    def changed(self, old: Admitting | None, new: Admitting | None) -> None:
        """One was added, changed or removed. Cost: O(1)."""
        match new or old:
            case LimitRange(metadata=meta):
                _put(self._ranges.setdefault(meta.namespace, {}), meta.name, new)
                self._unread.add(meta.namespace)
                return
            case RuntimeClass(metadata=meta):
                _put(self._runtimes, meta.name, new)
            case PriorityClass(metadata=meta):
                _put(self._priorities, meta.name, new)
            case None:
                return
        self._changed.add(EVERYWHERE)
        self._frozen = None

    def now(self) -> Admission:
        """What counts; it changes as `changed` is called. Cost: O(the LimitRanges of namespaces where one changed)."""
        for namespace in self._unread:
            mine = self._ranges[namespace]
            now = container_defaults(mine.values()) if mine else None
            if now is None:
                del self._ranges[namespace]
            if now != self._defaults.get(namespace):
                _put(self._defaults, namespace, now)
                self._changed.add(namespace)
                self._frozen = None
        self._unread.clear()
        return self._now

    def frozen(self) -> Admission:
        """What counts everywhere; the same object while nothing changes."""
        now = self.now()
        if self._frozen is None:
            self._frozen = Admission(dict(now.defaults), dict(now.runtime_classes), dict(now.priority_classes))
        return self._frozen

    def take_changed(self) -> set[str]:
        """The namespaces whose templates may be something else than when this was asked last; `EVERYWHERE` for all."""
        self.now()
        found, self._changed = self._changed, set()
        return found


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
