"""SSM parameters that hold ids of images: read one by one, kept, and not given up because a reading failed.

Source: spec/karpenter-aws.md 3.3.
Differs: a value outlives failed readings, because a list of images that shrinks replaces every node of the image that is missing; what does not
    exist is remembered too.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.ec2.access.errors import Failure, FailureKind
from provisioner.values.bounded import put_newest

KEEP: Final = timedelta(hours=24)
KEEP_OWN: Final = timedelta(minutes=5)
"""Of parameters that users name; they may change at any time."""

RETRY: Final = timedelta(minutes=1)
MISSING: Final = timedelta(minutes=5)
GONE_AFTER: Final = 3
"""A parameter that had a value is gone when it is not found so many times in a row."""

MAX_PARAMETERS: Final = 2048


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of one parameter.

    Attributes:
        value: "" when there is none.
        failure: why the last reading gave none; None when it did, or when there is no such parameter.
        due: when it is to be read again.
        misses: times in a row that it was not found.
    """

    value: str
    due: datetime
    failure: Failure | None = None
    misses: int = 0

    @property
    def missing(self) -> bool:
        """Whether there is no such parameter."""
        return not self.value and self.failure is None


def after_value(value: str, keep: timedelta, now: datetime) -> Reading:
    """The reading when SSM gave a value."""
    return Reading(value, now + keep)


def after_failure(before: Reading | None, failure: Failure, now: datetime) -> Reading:
    """The reading when SSM did not."""
    known = before or Reading("", now)
    if failure.kind is not FailureKind.NOT_FOUND:
        return replace(known, due=now + RETRY, failure=failure)
    misses = known.misses + 1
    if known.value and misses < GONE_AFTER:
        return replace(known, due=now + RETRY, failure=failure, misses=misses)
    return Reading("", now + MISSING, misses=misses)


class Parameters:
    """Readings by name. Thread-safe; no lock is held while SSM is asked.

    Args:
        ask: reads one parameter, or says why not.
    """

    def __init__(self, ask: Callable[[str], str | Failure]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._readings: dict[str, Reading] = {}

    def read(self, names: Iterable[str], now: datetime, keep: timedelta = KEEP) -> dict[str, Reading]:
        """The readings of these parameters; those that are due are read now."""
        found: dict[str, Reading] = {}
        for name in dict.fromkeys(names):
            with self._lock:
                known = self._readings.get(name)
            if known is None or now >= known.due:
                answer = self._ask(name)
                known = (
                    after_failure(known, answer, now) if isinstance(answer, Failure) else after_value(answer, keep, now)
                )
                with self._lock:
                    put_newest(self._readings, name, known, MAX_PARAMETERS)
            found[name] = known
        return found

    def doubt(self, name: str, now: datetime) -> None:
        """The image behind it is deprecated or gone: read it again soon, but not more often than every 30 minutes."""
        with self._lock:
            known = self._readings.get(name)
            if known is not None:
                self._readings[name] = replace(known, due=min(known.due, now + timedelta(minutes=30)))
