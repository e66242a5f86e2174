from datetime import timedelta

import pytest

from provisioner.values.duration import DurationError, parse_duration

READ = {
    "hours": ("720h", timedelta(days=30)),
    "several units": ("1h30m", timedelta(minutes=90)),
    "a fraction": ("1.5s", timedelta(milliseconds=1500)),
    "a fraction of an hour": ("1.25h", timedelta(minutes=75)),
    "milliseconds": ("100ms", timedelta(milliseconds=100)),
    "microseconds with either sign of micro": ("1µs1μs1us", timedelta(microseconds=3)),
    "nanoseconds are rounded to a microsecond": ("1600ns", timedelta(microseconds=2)),
    "a bare zero": ("0", timedelta(0)),
    "a sign": ("-2m", timedelta(minutes=-2)),
    "a plus": ("+2m", timedelta(minutes=2)),
    "units in any order and more than once": ("1s1h1s", timedelta(hours=1, seconds=2)),
    "a point without digits after it": ("1.h", timedelta(hours=1)),
    "a fraction of a millisecond": ("1.5ms", timedelta(microseconds=1500)),
}


@pytest.mark.parametrize(("text", "want"), READ.values(), ids=READ)
def test_durations(text: str, want: timedelta) -> None:
    assert parse_duration(text) == want


REFUSED = {
    "nothing": "",
    "a sign alone": "-",
    "a number without unit": "10",
    "a unit without number": "h",
    "a point alone": ".h",
    "an unknown unit": "3d",
    "a space": "1h 30m",
    "a word": "Never",
    "three centuries": "2600000h",
    "a text without end": "1h" * 100,
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(DurationError, match="use a value such as 720h") as caught:
        parse_duration(text)
    assert repr(text)[:40] in str(caught.value)
