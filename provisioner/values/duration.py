"""Durations in the grammar of Go, as Kubernetes objects carry them: "720h", "1h30m", "1.5s", "100ms"."""

import functools
import re
from datetime import timedelta
from fractions import Fraction

from provisioner.values.message import Said

_NANOS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_TERM = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MAX_NANOS = 2**63 - 1
_MAX_TEXT = 128


class DurationError(ValueError):
    """A text that is no duration; says which text, and what one looks like."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        shown = repr(self.text) if len(self.text) <= 60 else repr(self.text[:57] + "...")
        return Said(f"{shown} is not a duration; use a value such as 720h, 1h30m, 90s, 1.5s or 100ms, under 292 years")


@functools.lru_cache(maxsize=1024)  # a pass reads the few of its NodePools twice for each node
def parse_duration(text: str) -> timedelta:
    """Read a duration; a leading sign and a bare "0" are allowed, as in Go.

    Raises:
        DurationError: no number, no unit, an unknown unit, or beyond 2**63 nanoseconds.

    Source: Go `time.ParseDuration`.
    Differs: what is finer than a microsecond is rounded to one.
    """
    body = text[1:] if text[:1] in {"+", "-"} else text
    if body == "0":
        return timedelta(0)
    if not body or len(body) > _MAX_TEXT:
        raise DurationError(text)
    nanos = Fraction(0)
    position = 0
    while position < len(body):
        term = _TERM.match(body, position)
        if term is None or not (term[1] or term[2]):
            raise DurationError(text)
        part = term[2] or ""
        nanos += Fraction(int((term[1] or "0") + part), 10 ** len(part)) * _NANOS[term[3]]
        position = term.end()
    if nanos > _MAX_NANOS:
        raise DurationError(text)
    micros = round(nanos / 1000)
    return timedelta(microseconds=-micros if text[0] == "-" else micros)
