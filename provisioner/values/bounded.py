"""Memory that does not grow."""

from collections.abc import MutableMapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def forget_oldest(known: MutableMapping[Any, Any], most: int) -> None:
    """Drop what was put into a dict first until at most `most` entries are left."""
    while len(known) > most:
        del known[next(iter(known))]


def put_newest(known: MutableMapping[K, V], key: K, value: V, most: int) -> None:
    """Put an entry into a dict as the newest, and drop what was put there first until at most `most` are left."""
    known.pop(key, None)
    known[key] = value
    forget_oldest(known, most)
