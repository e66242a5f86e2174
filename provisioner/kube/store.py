"""The cache of one kind of object, with indexes: what a reflector fills and everybody reads."""

import builtins
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")

Index = Callable[[T], Iterable[str]]  # the values under which one object shall be found


class Store(Generic[T]):
    """Objects by key, and by the values of named indexes; thread-safe.

    Objects are immutable, so what is returned stays as it was while the store moves on. A key is "namespace/name",
    or "name" for kinds without namespaces.

    Args:
        indexes: name to function. The function must depend on the object only; it is called again with the former
            object when that is replaced.
    """

    def __init__(self, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, T] = {}
        self._indexes: dict[str, Index[T]] = dict(indexes or {})
        self._found: dict[str, dict[str, dict[str, T]]] = {name: {} for name in self._indexes}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __repr__(self) -> str:
        return f"<Store {len(self)} objects, indexes {', '.join(sorted(self._indexes)) or 'none'}>"

    def get(self, key: str) -> T | None:
        """The object of this key. O(1)."""
        return self._objects.get(key)

    def list(self) -> builtins.list[T]:
        """Every object, in the order in which they came. O(n)."""
        with self._lock:
            return list(self._objects.values())

    def keys(self) -> builtins.list[str]:
        """Every key, in the order in which they came. O(n)."""
        with self._lock:
            return list(self._objects)

    def by_index(self, index_name: str, value: str) -> builtins.list[T]:
        """The objects that the index files under `value`. O(hits).

        Raises:
            KeyError: there is no such index.
        """
        with self._lock:
            found = self._found.get(index_name)
            if found is None:
                raise KeyError(f"no index {index_name!r}; there are: {', '.join(sorted(self._found)) or 'none'}")
            return list(found.get(value, {}).values())

    def index_values(self, index_name: str) -> builtins.list[str]:
        """The values under which at least one object is filed, unordered."""
        with self._lock:
            return list(self._found[index_name])

    def put(self, key: str, obj: T) -> T | None:
        """Add or replace; the former object."""
        filed = {name: set(values(obj)) for name, values in self._indexes.items()}
        with self._lock:
            old = self._objects.get(key)
            self._objects[key] = obj
            for name, new_values in filed.items():
                if old is not None:
                    self._unfile(name, key, set(self._indexes[name](old)) - new_values)
                found = self._found[name]
                for value in new_values:
                    found.setdefault(value, {})[key] = obj
            return old

    def remove(self, key: str) -> T | None:
        """Take out; the object that was there."""
        with self._lock:
            old = self._objects.pop(key, None)
            if old is not None:
                for name, values in self._indexes.items():
                    self._unfile(name, key, set(values(old)))
            return old

    def _unfile(self, index_name: str, key: str, values: "set[str]") -> None:
        found = self._found[index_name]
        for value in values:
            under = found.get(value)
            if under is not None:
                under.pop(key, None)
                if not under:
                    del found[value]
