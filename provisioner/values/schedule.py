"""Recurring windows: a cron schedule in UTC says when each opens, a duration how long it stays open."""

import functools
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import cronsim

from provisioner.values.message import Said
from provisioner.values.quantity import longer_than

_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
_TERM = re.compile(
    r"(?:(?P<any>[*?])|(?P<first>[0-9]{1,2}|[A-Z]{3})(?:-(?P<last>[0-9]{1,2}|[A-Z]{3}))?)(?:/(?P<step>[0-9]{1,2}))?",
    re.ASCII,
)
_MAX_TEXT = 256
_MAX_STARTS = 1000
_MOST_OPENINGS = 1024
_openings: dict[tuple[str, timedelta], tuple[datetime, datetime]] = {}
"""Budgets are asked every second, and for every node: by schedule and duration, an instant and the first opening after it."""
_DATE_NEVER_COMES: Final = "the date never occurs"


class ScheduleError(ValueError):
    """A cron schedule that cannot be read or never comes; says which, and why."""

    def __init__(self, schedule: str, problem: str) -> None:
        super().__init__(schedule, problem)
        self.schedule, self.problem = schedule, problem

    def __str__(self) -> str:
        shown = repr(self.schedule) if len(self.schedule) <= 60 else repr(self.schedule[:57] + "...")
        return Said(
            f"schedule {shown}: {self.problem}; use five fields in UTC such as '0 9 * * mon-fri', or @hourly, @daily, "
            "@weekly..."
        )


def is_open(schedule: str, duration: timedelta, now: datetime) -> bool:
    """Whether a window that opened at a time of `schedule` is still open; its first instant counts, its last does not.

    Args:
        schedule: five cron fields (minute, hour, day of month, month, day of week), or one of @yearly, @annually, @monthly,
            @weekly, @daily, @midnight, @hourly; in UTC. Where both day fields are restricted, either one suffices.
        duration: how long each window lasts; none is ever open where it is not positive.
        now: an aware time.

    Raises:
        ScheduleError: the schedule cannot be read, or names a date that never comes. A budget then allows nothing.

    Source: karpenter `pkg/apis/v1/nodepool.go` Budget.IsActive and robfig/cron v3.
    Differs: day 7 is Sunday too; a date that never comes is an error (there it is a window that is always open).
    """
    after, key = _utc(now - duration), (schedule, duration)
    asked, start = _openings.get(key, (after, after))
    if not asked <= after < start:
        start = next(_starts(schedule, after))
        if len(_openings) >= _MOST_OPENINGS:
            _openings.clear()
        _openings[key] = after, start
    return start <= _utc(now)


def next_change(schedule: str, duration: timedelta, now: datetime) -> datetime | None:
    """When to look again: nothing opens or closes between `now` and then.

    That is the next opening or closing, except where windows overlap for more than 1,000 starts in a row (then the
    end of what was looked at). None where `duration` is not positive, as nothing ever opens.

    Raises:
        ScheduleError: as `is_open`.
    """
    starts = _starts(schedule, now - duration)
    if duration <= timedelta(0):
        return None
    now = _utc(now)
    start = next(starts)
    if start > now:
        return start
    end = start + duration
    for _ in range(_MAX_STARTS):
        following = next(starts)
        if following > end:
            break
        end = following + duration
    return end


def _starts(schedule: str, after: datetime) -> Iterator[datetime]:
    """Every opening after `after`, in order; the expression is read at once, not at the first `next`."""
    expression = _expression(schedule)
    try:
        times = cronsim.CronSim(expression, _utc(after))
    except cronsim.CronSimError:
        raise ScheduleError(schedule, _DATE_NEVER_COMES) from None
    return _forever(times, schedule)


def _forever(times: Iterator[datetime], schedule: str) -> Iterator[datetime]:
    yield from times
    raise ScheduleError(schedule, _DATE_NEVER_COMES)


def _utc(when: datetime) -> datetime:
    if when.tzinfo is None:
        raise ValueError(f"{when.isoformat()} has no time zone")
    return when.astimezone(UTC)


@functools.lru_cache(maxsize=1024)
def _expression(schedule: str) -> str:
    """The schedule as explicit lists of numbers, which leaves the dialect of the calendar library no say."""
    if len(schedule) > _MAX_TEXT:
        raise ScheduleError(schedule, longer_than(_MAX_TEXT))
    if schedule.startswith("@"):
        if schedule not in _DESCRIPTORS:
            raise ScheduleError(schedule, "this name is unknown")
        return _DESCRIPTORS[schedule]
    fields = schedule.upper().split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(schedule, f"it has {len(fields)} fields")
    return " ".join(_listed(schedule, text, *field) for text, field in zip(fields, _FIELDS, strict=True))


def _listed(schedule: str, text: str, title: str, low: int, high: int, names: tuple[str, ...]) -> str:
    chosen: set[int] = set()
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None:
            raise ScheduleError(schedule, f"{term!r} is not a valid {title}")
        step = int(match["step"] or 1)
        if step == 0:
            raise ScheduleError(schedule, f"{term!r} has a step of 0")
        if match["any"]:
            if step == 1:
                return "*"  # unrestricted, which the rule about the two day fields asks for
            first, last = low, high
        else:
            first = _number(schedule, match["first"], title, low, high, names)
            last = first
            if match["last"]:
                last = _number(schedule, match["last"], title, low, high, names)
            elif match["step"]:
                last = high
        if last < first:
            raise ScheduleError(schedule, f"{term!r} ends before it begins")
        chosen.update(range(first, last + 1, step))
    if names is _DAYS:
        chosen = {day % 7 for day in chosen}
    return ",".join(map(str, sorted(chosen)))


def _number(schedule: str, text: str, title: str, low: int, high: int, names: tuple[str, ...]) -> int:
    if text in names:
        return names.index(text) + low
    limit = high + (names is _DAYS)  # 7 is Sunday again
    if not text.isdigit() or not low <= int(text) <= limit:
        raise ScheduleError(schedule, f"{text!r} is not a valid {title} ({low}-{high})")
    return int(text)
