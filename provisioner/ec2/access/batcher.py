"""Many callers, one call: questions that come at about the same time are answered together."""

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from provisioner.support.clock import Clock
from provisioner.support.metrics import histogram

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
LONGEST_SECONDS: Final = 1.0
"""For which a window is open."""
MOST_KEYS: Final = 500
"""Of one window."""

_SECONDS: Final = histogram(
    "karpenter_cloudprovider_batcher_batch_time_seconds",
    "Time that requests were collected before one batched call.",
    ("batcher",),
)
_SIZES: Final = histogram(
    "karpenter_cloudprovider_batcher_batch_size",
    "Requests that one batched call served.",
    ("batcher",),
    buckets=(1, 2, 4, *range(5, 31, 5), 40, *range(50, 301, 25), *range(350, 501, 50)),
)


def batched(batcher: str, seconds: float, size: int) -> None:
    """One batch was sent: `size` callers after `seconds`."""
    _SECONDS.labels(batcher).observe(seconds)
    _SIZES.labels(batcher).observe(size)


Run = Callable[[Sequence[K]], Mapping[K, V | Exception]]


@dataclass(slots=True)
class _Window(Generic[K, V]):
    """One call to come. `keys` keeps order and drops repetitions."""

    opened: float
    keys: dict[K, None] = field(default_factory=dict)
    closed: bool = False
    done: bool = False
    answers: Mapping[K, "V | Exception"] = field(default_factory=dict)
    error: Exception | None = None


class Gatherer(Generic[K, V]):
    """Collects keys for a moment and runs them together; thread-safe, without threads of its own.

    The first caller of a window waits until nobody joined for `idle` seconds, a second at most, and then runs it for all. Windows may run at the
    same time. Source: spec/karpenter-aws.md 5.7.

    Args:
        clock: measures how long a window is open.
        run: answers all keys; a value that is an exception is raised for those who asked that key, and what it raises itself for everybody.
        idle: seconds.
        batcher: its name in metrics.
    """

    def __init__(
        self,
        clock: Clock,
        run: Run[K, V],
        *,
        idle: float = 0.1,
        batcher: str = "",
    ) -> None:
        self._clock, self._run, self._batcher = clock, run, batcher
        self._idle = idle
        self._changed = threading.Condition()
        self._open: _Window[K, V] | None = None

    def ask(self, key: K) -> V:
        """The answer for `key`; blocks until its window has run.

        Raises:
            KeyError: `run` did not say anything about `key`.
        """
        with self._changed:
            window = self._open
            leads = window is None
            if window is None:
                window = self._open = _Window(self._clock.monotonic())
            window.keys[key] = None
            if len(window.keys) >= MOST_KEYS:
                self._close(window)
            self._changed.notify_all()
            if leads:
                self._wait_for_others(window)
            else:
                self._changed.wait_for(lambda: window.done)
        if leads:
            self._answer(window)
        if window.error is not None:
            raise window.error
        answer = window.answers[key]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _wait_for_others(self, window: _Window[K, V]) -> None:
        end = self._clock.monotonic() + LONGEST_SECONDS
        known = 0
        while not window.closed and known < len(window.keys) and (left := end - self._clock.monotonic()) > 0:
            known = len(window.keys)
            self._changed.wait_for(lambda: _grew(window, known), min(self._idle, left))  # noqa: B023  (called before `known` changes)
        self._close(window)

    def _close(self, window: _Window[K, V]) -> None:
        window.closed = True
        if self._open is window:
            self._open = None

    def _answer(self, window: _Window[K, V]) -> None:
        batched(self._batcher, self._clock.monotonic() - window.opened, len(window.keys))
        try:
            window.answers = self._run(tuple(window.keys))
        except Exception as error:  # noqa: BLE001 - whoever waits for the answers gets the error
            window.error = error
        with self._changed:
            window.done = True
            self._changed.notify_all()


def _grew(window: _Window[K, V], known: int) -> bool:
    return window.closed or len(window.keys) > known


def parts(items: tuple[K, ...], most: int) -> Iterator[tuple[K, ...]]:
    """The items, in order, at most so many at a time."""
    return (items[start : start + most] for start in range(0, len(items), most))
