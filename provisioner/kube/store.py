"""The cache of one kind of object: what a reflector fills and everybody reads."""

import builtins
import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Store(Generic[T]):
    """Objects by key; thread-safe.

    Objects are immutable, so what is returned stays as it was while the store moves on. A key is "namespace/name",
    or "name" for kinds without namespaces.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __repr__(self) -> str:
        return f"<Store {len(self)} objects>"

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

    def put(self, key: str, obj: T) -> T | None:
        """Add or replace; the former object."""
        with self._lock:
            old = self._objects.get(key)
            self._objects[key] = obj
            return old

    def remove(self, key: str) -> T | None:
        """Take out; the object that was there."""
        with self._lock:
            return self._objects.pop(key, None)
