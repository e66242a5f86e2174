"""The machine's clock, and the offset that chaos tests put on its wall."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from provisioner.support.clock import OFFSET_FILE, SystemClock

SECOND = timedelta(seconds=1)


def off() -> timedelta:
    """How far the program's wall clock is from the machine's."""
    return SystemClock().now() - datetime.now(UTC)


def test_the_wall_clock_is_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OFFSET_FILE, raising=False)
    assert abs(off()) < SECOND


def test_the_wall_clock_is_shifted_by_what_a_file_says_and_moves_when_it_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "offset"
    monkeypatch.setenv(OFFSET_FILE, str(path))
    clock = SystemClock()
    before = clock.monotonic(), time.time()
    for text, want in (("3600", 3600.0), ("-90.5\n", -90.5), ("0", 0.0)):
        path.write_text(text)
        assert abs(clock.now() - datetime.now(UTC) - timedelta(seconds=want)) < SECOND
    passed = clock.monotonic() - before[0]
    assert abs(passed - (time.time() - before[1])) < 1, "durations know nothing of it"


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "1e300", "1e12", None])
def test_a_file_that_says_nothing_shifts_nothing(
    text: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "offset"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv(OFFSET_FILE, str(path))
    assert abs(off()) < SECOND


def test_time_that_the_machine_slept_has_passed() -> None:
    booted = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert abs(SystemClock().monotonic() - booted) < 1
