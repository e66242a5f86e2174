"""Durations and recurring windows, law by law."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from provisioner.values.duration import parse_duration
from provisioner.values.schedule import is_open, next_change
from tests.support.strategies import durations, times

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Cron:
    """A schedule as sets of numbers; None is a star. Its own reading of what cron means, minute by minute."""

    minutes: frozenset[int]
    hours: frozenset[int] | None
    days: frozenset[int] | None
    weekdays: frozenset[int] | None

    def __str__(self) -> str:
        fields = (self.minutes, self.hours, self.days, None, self.weekdays)
        return " ".join("*" if field is None else ",".join(map(str, sorted(field))) for field in fields)

    def starts_at(self, when: datetime) -> bool:
        weekday = when.isoweekday() % 7
        by_day = self.days is None or when.day in self.days
        by_weekday = self.weekdays is None or weekday in self.weekdays
        either = self.days is not None and self.weekdays is not None
        return (
            when.minute in self.minutes
            and (self.hours is None or when.hour in self.hours)
            and ((by_day or by_weekday) if either else (by_day and by_weekday))
        )


def subset(low: int, high: int) -> st.SearchStrategy[frozenset[int]]:
    return st.frozensets(st.integers(low, high), min_size=1, max_size=4)


crons = st.builds(Cron, subset(0, 59), st.none() | subset(0, 23), st.none() | subset(1, 31), st.none() | subset(0, 6))
windows = st.integers(1, 300).map(lambda minutes: timedelta(minutes=minutes))


@given(durations)
def test_a_duration_is_the_sum_of_its_units(duration: timedelta) -> None:
    """Split as Go prints it: hours, minutes, seconds with a fraction."""
    sign, rest = ("-", -duration) if duration < timedelta(0) else ("", duration)
    hours, rest = divmod(rest, timedelta(hours=1))
    minutes, rest = divmod(rest, MINUTE)
    assert parse_duration(f"{sign}{hours}h{minutes}m{rest.seconds}.{rest.microseconds:06}s") == duration


@given(crons, windows, times)
def test_a_window_is_open_exactly_while_one_of_its_starts_is_recent(
    cron: Cron, window: timedelta, now: datetime
) -> None:
    minute = now.replace(second=0, microsecond=0)
    recent = (minute - n * MINUTE for n in range(window // MINUTE + 1))
    expected = any(cron.starts_at(start) for start in recent if now - window < start <= now)
    assert is_open(str(cron), window, now) == expected


@given(crons, windows, windows, times)
def test_a_longer_window_is_open_whenever_a_shorter_one_is(
    cron: Cron, window: timedelta, more: timedelta, now: datetime
) -> None:
    assert not is_open(str(cron), window, now) or is_open(str(cron), window + more, now)


@given(crons, windows, times, st.floats(0, 0.999))
def test_nothing_changes_before_the_next_change_and_then_it_does(
    cron: Cron, window: timedelta, now: datetime, share: float
) -> None:
    change = next_change(str(cron), window, now)
    assert change is not None
    assert change > now
    state = is_open(str(cron), window, now)
    assert is_open(str(cron), window, now + (change - now) * share) == state
    assert is_open(str(cron), window, change) != state or change - now > timedelta(days=1)
