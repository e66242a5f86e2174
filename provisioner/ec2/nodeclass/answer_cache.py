"""Answers that are kept for a while, each asked for by one thread at a time."""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from provisioner.values.bounded import put_newest

V = TypeVar("V")
MOST_ANSWERS: Final = 1024
"""That are kept; the oldest go first."""


@dataclass(frozen=True, slots=True)
class CachedAnswer(Generic[V]):
    """What was answered, and when the question was asked."""

    asked: datetime
    value: V


class Remembered(Generic[V]):
    """Answers by question; failures are not kept. Thread-safe."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._answers: dict[Hashable, CachedAnswer[V]] = {}
        self._asking: dict[Hashable, threading.Lock] = {}

    def get(self, question: Hashable, keep: timedelta, ask: Callable[[], V]) -> CachedAnswer[V]:
        """The answer, at most `keep` old; whatever `ask` raises."""
        with self._lock:
            turn = self._asking.setdefault(question, threading.Lock())
        try:
            with turn:  # who waits finds the answer of who asked
                with self._lock:
                    known = self._answers.get(question)
                now = self._now()
                if known is not None and now - known.asked < keep:
                    return known
                answer = CachedAnswer(now, ask())
                with self._lock:
                    put_newest(self._answers, question, answer, MOST_ANSWERS)
                return answer
        finally:
            with self._lock:
                if not turn.locked():
                    self._asking.pop(question, None)

    def peek(self, question: Hashable, keep: timedelta) -> V | None:
        """The answer where there is one that is at most `keep` old."""
        with self._lock:
            known = self._answers.get(question)
        return known.value if known is not None and self._now() - known.asked < keep else None

    def put(self, question: Hashable, value: V) -> None:
        """Know an answer without having asked."""
        with self._lock:
            put_newest(self._answers, question, CachedAnswer(self._now(), value), MOST_ANSWERS)

    def forget(self, question: Hashable) -> None:
        """Ask again the next time."""
        with self._lock:
            self._answers.pop(question, None)
