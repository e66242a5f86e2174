"""How many of something EC2 has left, by id: what it said last, and what has changed since. Knows no clock and does no I/O."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from provisioner.values.bounded import put_newest

MOST_KEPT: Final = 4096


@dataclass(slots=True)
class _Entry:
    """One id; of changes only those count that the reading cannot know of. `refused`: a launch said that nothing is left, and nobody has read since."""

    count: int = 0
    read_at: datetime | None = None
    refused: bool = False
    changes: list[tuple[datetime, int]] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.count + sum(by for _, by in self.changes)


class Counts:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(f'{name}: {left}' for name, left in sorted(self.counts().items()))}>"

    def note(self, counts: Mapping[str, int], asked: datetime) -> None:
        """Take over what EC2 says; `asked` is when it was asked, not when it answered, so that what happened in between still counts."""
        with self._lock:
            for name, count in counts.items():
                entry = self._entry(name)
                if entry.read_at is None or asked > entry.read_at:
                    entry.count, entry.read_at, entry.refused = count, asked, False
                    entry.changes = [pair for pair in entry.changes if pair[0] >= asked]

    def change(self, name: str, by: int, now: datetime) -> None:
        """So many more are left, or fewer."""
        with self._lock:
            self._entry(name).changes.append((now, by))

    def exhausted(self, name: str, now: datetime) -> None:
        """EC2 says that nothing is left."""
        with self._lock:
            entry = self._entry(name)
            entry.count, entry.read_at, entry.changes, entry.refused = 0, max(now, entry.read_at or now), [], True

    def said(self) -> dict[str, int]:
        """What EC2 said last of everything, whatever has changed since."""
        with self._lock:
            return {name: entry.count for name, entry in self._entries.items() if entry.read_at is not None}

    def spent(self) -> frozenset[str]:
        """Ids of which nothing is left as it was read; the word of a launch that failed is not enough."""
        with self._lock:
            known = ((name, one) for name, one in self._entries.items() if one.read_at is not None)
            return frozenset(name for name, one in known if one.left <= 0 and not one.refused)

    def counts(self) -> dict[str, int]:
        """What is left of everything that was ever read; may be negative."""
        with self._lock:
            return {name: entry.left for name, entry in self._entries.items() if entry.read_at is not None}

    def left(self, name: str) -> int:
        """The same of one id; of what was never read, what has changed."""
        with self._lock:
            return entry.left if (entry := self._entries.get(name)) is not None else 0

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.get(name) or _Entry()
        put_newest(self._entries, name, entry, MOST_KEPT)
        return entry
