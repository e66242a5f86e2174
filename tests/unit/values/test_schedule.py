from datetime import UTC, datetime, timedelta, timezone

import pytest

from provisioner.values.schedule import ScheduleError, is_open, next_change

HOUR = timedelta(hours=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# 2026-03-02 is a Monday.
OPEN: dict[str, tuple[str, timedelta, str, bool]] = {
    "at the instant it opens": ("0 9 * * *", HOUR, "2026-03-02 09:00:00", True),
    "before it opens": ("0 9 * * *", HOUR, "2026-03-02 08:59:59", False),
    "just before it closes": ("0 9 * * *", HOUR, "2026-03-02 09:59:59", True),
    "at the instant it closes": ("0 9 * * *", HOUR, "2026-03-02 10:00:00", False),
    "over midnight": ("0 22 * * *", 8 * HOUR, "2026-03-03 05:59:00", True),
    "over the end of the year": ("0 0 31 12 *", 48 * HOUR, "2027-01-01 12:00:00", True),
    "on a working day": ("0 9 * * mon-fri", HOUR, "2026-03-02 09:30:00", True),
    "not on a Sunday": ("0 9 * * MON-FRI", HOUR, "2026-03-01 09:30:00", False),
    "Sunday is 0": ("0 9 * * 0", HOUR, "2026-03-01 09:30:00", True),
    "Sunday is 7": ("0 9 * * 7", HOUR, "2026-03-01 09:30:00", True),
    "from Friday over Sunday": ("0 9 * * 5-7", HOUR, "2026-03-01 09:30:00", True),
    "every second weekday from Monday is no Sunday": ("0 9 * * 1/2", HOUR, "2026-03-01 09:30:00", False),
    "steps": ("*/15 * * * *", timedelta(minutes=5), "2026-03-02 09:47:00", True),
    "between steps": ("*/15 * * * *", timedelta(minutes=5), "2026-03-02 09:52:00", False),
    "steps from a start": ("5/30 * * * *", timedelta(minutes=1), "2026-03-02 09:35:30", True),
    "steps in a range": ("0 8-12/2 * * *", timedelta(minutes=1), "2026-03-02 10:00:30", True),
    "a list": ("0 8,10 * * *", timedelta(minutes=1), "2026-03-02 10:00:30", True),
    "a month by name": ("0 0 1 MAR *", 48 * HOUR, "2026-03-02 10:00:00", True),
    "a question mark is a star": ("0 9 ? * ?", HOUR, "2026-03-02 09:30:00", True),
    "either day field suffices": ("0 9 13 * mon", HOUR, "2026-03-02 09:30:00", True),
    "a stepped star restricts, so either suffices": ("0 9 */30 * mon", HOUR, "2026-03-02 09:30:00", True),
    "both are needed beside a star": ("0 9 * * tue", HOUR, "2026-03-02 09:30:00", False),
    "@hourly": ("@hourly", timedelta(minutes=31), "2026-03-02 09:30:00", True),
    "@daily": ("@daily", HOUR, "2026-03-02 00:30:00", True),
    "@midnight": ("@midnight", HOUR, "2026-03-02 00:30:00", True),
    "@weekly": ("@weekly", 24 * HOUR, "2026-03-01 12:00:00", True),
    "@monthly": ("@monthly", 24 * HOUR, "2026-03-01 12:00:00", True),
    "@yearly": ("@yearly", 24 * HOUR, "2026-01-01 12:00:00", True),
    "@annually": ("@annually", 24 * HOUR, "2026-03-02 12:00:00", False),
    "a window of no length": ("* * * * *", timedelta(0), "2026-03-02 12:00:00", False),
    "the twenty-ninth of February, years away": ("0 0 29 2 *", 24 * HOUR, "2026-03-02 12:00:00", False),
}


@pytest.mark.parametrize(("schedule", "duration", "now", "want"), OPEN.values(), ids=OPEN)
def test_is_open(schedule: str, duration: timedelta, now: str, *, want: bool) -> None:
    assert is_open(schedule, duration, at(now)) == want


def test_what_was_asked_before_changes_no_answer() -> None:
    """In whatever order instants are asked about, for windows of several lengths."""
    first = at("2026-03-02 07:30:00")
    minutes = [0, 30, 90, 95, 89, 149, 150, 151, 100, 1440, 1530, 1590, 90, 20_000, 91]
    for minute in minutes:
        since_nine = (minute - 90) % 1440
        now = first + timedelta(minutes=minute)
        for duration in (HOUR, HOUR / 2, 2 * HOUR):
            assert is_open("0 9 * * *", duration, now) == (timedelta(minutes=since_nine) < duration), minute


def test_the_schedule_is_in_utc_wherever_now_is() -> None:
    now = at("2026-03-02 09:30:00").astimezone(timezone(timedelta(hours=5)))
    assert is_open("0 9 * * *", HOUR, now)


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        is_open("@daily", HOUR, at("2026-03-02 09:30:00").replace(tzinfo=None))


CHANGES: dict[str, tuple[str, timedelta, str, str]] = {
    "the opening while closed": ("0 9 * * *", HOUR, "2026-03-02 08:00:00", "2026-03-02 09:00:00"),
    "the closing while open": ("0 9 * * *", HOUR, "2026-03-02 09:30:00", "2026-03-02 10:00:00"),
    "the closing of the last of windows that touch": (
        "0 9,10,11 * * *",
        HOUR,
        "2026-03-02 09:30:00",
        "2026-03-02 12:00:00",
    ),
    "the closing of the last of windows that overlap": (
        "*/5 9 * * *",
        HOUR,
        "2026-03-02 09:30:00",
        "2026-03-02 10:55:00",
    ),
    "the next opening at the instant of closing": ("0 9 * * *", HOUR, "2026-03-02 10:00:00", "2026-03-03 09:00:00"),
}


@pytest.mark.parametrize(("schedule", "duration", "now", "want"), CHANGES.values(), ids=CHANGES)
def test_next_change(schedule: str, duration: timedelta, now: str, want: str) -> None:
    assert next_change(schedule, duration, at(now)) == at(want)


def test_a_window_that_never_closes_is_looked_at_again_later() -> None:
    now = at("2026-03-02 09:30:00")
    change = next_change("@hourly", 2 * HOUR, now)
    assert change is not None
    assert change > now + 30 * 24 * HOUR


def test_nothing_ever_changes_without_a_duration() -> None:
    assert next_change("@hourly", timedelta(0), at("2026-03-02 09:30:00")) is None


REFUSED = {
    "four fields": ("* * * *", "it has 4 fields"),
    "six fields": ("0 * * * * *", "it has 6 fields"),
    "nothing": ("", "it has 0 fields"),
    "an unknown name": ("@every 1h", "this name is unknown"),
    "a minute too many": ("60 * * * *", "'60' is not a valid minute (0-59)"),
    "an hour too many": ("0 24 * * *", "'24' is not a valid hour (0-23)"),
    "a day of zero": ("0 0 0 * *", "'0' is not a valid day of month (1-31)"),
    "a month too many": ("0 0 1 13 *", "'13' is not a valid month (1-12)"),
    "a weekday too many": ("0 0 * * 8", "'8' is not a valid day of week (0-6)"),
    "a name of no day": ("0 0 * * foo", "'FOO' is not a valid day of week"),
    "a weekday as month": ("0 0 1 MON *", "'MON' is not a valid month"),
    "a step of zero": ("*/0 * * * *", "'*/0' has a step of 0"),
    "a range that runs back": ("0 9-8 * * *", "'9-8' ends before it begins"),
    "the last day of the month": ("0 0 L * *", "'L' is not a valid day of month"),
    "the second Monday": ("0 0 * * 1#2", "'1#2' is not a valid day of week"),
    "an empty term": ("0,,5 * * * *", "'' is not a valid minute"),
    "a time zone": ("TZ=UTC 0 9 * * *", "it has 6 fields"),
    "a date that never comes": ("0 0 31 2 *", "the date never occurs"),
    "no end": ("1," * 200 + "1 * * * *", "longer than 256"),
}


@pytest.mark.parametrize(("schedule", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_with_its_field(schedule: str, problem: str) -> None:
    for ask in (is_open, next_change):
        with pytest.raises(ScheduleError) as caught:
            ask(schedule, HOUR, at("2026-03-02 09:30:00"))
        assert problem in str(caught.value)
