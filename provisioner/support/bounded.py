"""Memory that does not grow."""

from collections.abc import MutableMapping
from typing import Any


def forget_oldest(known: MutableMapping[Any, Any], most: int) -> None:
    """Drop what was put into a dict first until at most `most` entries are left."""
    while len(known) > most:
        del known[next(iter(known))]
