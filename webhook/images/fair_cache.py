"""A bounded cache of what owners share: the least recently used goes, and of an owner with many entries its own."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FairCache(Generic[K, V]):
    """Not thread-safe. Every operation is O(1).

    Whoever adds an entry to a full cache loses its own least recently used one if it has more than a quarter of the cache; else the
    least recently used of all goes. So a flood by one owner pushes out at most a quarter of what others do not use any more,
    and an owner with many entries in steady use keeps them.

    Args:
        most: entries; asked at each use.
        owner_of: an entry's owner; "" for one that several share, which count as nobody's.
    """

    def __init__(self, most: Callable[[], int], owner_of: Callable[[V], str]) -> None:
        self._most, self._owner_of = most, owner_of
        self._all: OrderedDict[K, V] = OrderedDict()
        self._own: dict[str, OrderedDict[K, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: K) -> V | None:
        """The entry; it does not count as used."""
        return self._all.get(key)

    def drop(self, key: K) -> None:
        """Forget an entry, if it is there."""
        entry = self._all.pop(key, None)
        if entry is not None:
            self._disown(key, self._owner_of(entry))

    def use(self, key: K) -> None:
        """An entry that is there was used."""
        self._all.move_to_end(key)
        if owner := self._owner_of(self._all[key]):
            self._own[owner].move_to_end(key)

    def put(self, key: K, entry: V) -> None:
        """Keep an entry, instead of the one that was there, and make room for it."""
        self.drop(key)
        self._all[key] = entry
        owner = self._owner_of(entry)
        if owner:
            self._own.setdefault(owner, OrderedDict())[key] = None
        while len(self._all) > self._most():
            mine = self._own.get(owner, ())
            self.drop(next(iter(mine if len(mine) > self._most() // 4 else self._all)))

    def _disown(self, key: K, owner: str) -> None:
        if owner:
            mine = self._own[owner]
            del mine[key]
            if not mine:
                del self._own[owner]
