"""A collection that stays sorted by rank and hands out its values as a tuple. Not thread-safe."""

from bisect import bisect_left
from collections.abc import Hashable
from operator import itemgetter
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_SORT_ALL_FROM = 8  # one in so many changed: sorting everything is cheaper than that many insertions


class Ordered(Generic[K, V]):
    """A map whose values are read in order; what was read stays as it was.

    `put` and `drop` are O(1); `frozen` costs what changed since it was last asked, plus copying a pointer for each value.
    """

    __slots__ = ("_changed", "_entries", "_frozen", "_ranks", "_values")

    def __init__(self) -> None:
        self._entries: dict[K, tuple[Any, V]] = {}
        self._ranks: list[Any] = []
        self._values: list[V] = []
        self._changed: dict[K, Any] = {}  # key -> the rank under which `_ranks` has it; None where it has not
        self._frozen: tuple[V, ...] | None = ()

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return entry[1] if entry is not None else None

    def put(self, key: K, rank: Any, value: V) -> None:
        """Set the value of a key; ranks are comparable with each other and no two keys have the same."""
        known = self._entries.get(key)
        if known is not None and known[1] is value and known[0] == rank:
            return
        self._changed.setdefault(key, known[0] if known is not None else None)
        self._entries[key] = (rank, value)
        self._frozen = None

    def drop(self, key: K) -> None:
        """Remove a key; nothing happens where it is unknown."""
        known = self._entries.pop(key, None)
        if known is not None:
            self._changed.setdefault(key, known[0])
            self._frozen = None

    def frozen(self) -> tuple[V, ...]:
        """The values in order; the same tuple while nothing changes."""
        if self._frozen is None:
            if len(self._changed) * _SORT_ALL_FROM > len(self._ranks):
                pairs = sorted(self._entries.values(), key=itemgetter(0))
                self._ranks, self._values = [rank for rank, _ in pairs], [value for _, value in pairs]
            else:
                for key, old in self._changed.items():
                    self._apply(old, self._entries.get(key))
            self._changed.clear()
            self._frozen = tuple(self._values)
        return self._frozen

    def _apply(self, old: Any, entry: tuple[Any, V] | None) -> None:
        if old is not None:
            at = bisect_left(self._ranks, old)
            if entry is not None and entry[0] == old:
                self._values[at] = entry[1]
                return
            del self._ranks[at], self._values[at]
        if entry is not None:
            at = bisect_left(self._ranks, entry[0])
            self._ranks.insert(at, entry[0])
            self._values.insert(at, entry[1])
