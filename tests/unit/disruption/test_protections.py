"""What pods are told of their do-not-disrupt: core spec 6.2, row 91."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.disruption.controller import do_not_disrupt
from provisioner.disruption.protections import ELAPSED, INVALID, RECENTLY, UNTIL, protections
from tests.support.clock import NOON
from tests.support.fleets import running

STARTED = NOON - timedelta(hours=1)
CASES: dict[str, tuple[str | None, datetime | None, str]] = {
    "no annotation": (None, STARTED, ""),
    "for good": ("true", STARTED, ""),
    "for another hour": ("2h", STARTED, UNTIL),
    "for an hour, which ends now": ("1h", STARTED, ELAPSED),
    "until a while ago": ("51m", STARTED, ELAPSED),
    "until long ago": ("50m", NOON - RECENTLY - timedelta(minutes=50), ""),
    "for two hundred years": ("2000000h", STARTED, UNTIL),
    "not started yet": ("2h", None, ""),
    "false": ("false", STARTED, INVALID),
    "nothing": ("", STARTED, INVALID),
    "no time at all": ("0s", STARTED, INVALID),
    "a negative time": ("-1h", None, INVALID),
    "no duration": ("tomorrow", None, INVALID),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_said_of_a_pod(case: tuple[str | None, datetime | None, str]) -> None:
    text, start, want = case
    one = running("w", annotations={} if text is None else {names.DO_NOT_DISRUPT: text}, start_time=start)
    told = protections([one], NOON)
    assert [found.reason for found in told] == [want] * bool(want)
    assert [do_not_disrupt(found).reason for found in told] == [want] * bool(want)


def test_the_end_is_named() -> None:
    (found,) = protections([running("w", annotations={names.DO_NOT_DISRUPT: "2h"}, start_time=STARTED)], NOON)
    assert "blocked until 2026-11-21T13:00:00Z" in do_not_disrupt(found).text


def test_what_is_told_is_short_however_long_the_annotation_is() -> None:
    (found,) = protections([running("w", annotations={names.DO_NOT_DISRUPT: "x" * 200_000})], NOON)
    assert len(do_not_disrupt(found).text) < 300


@pytest.mark.parametrize("over", [{"phase": "Succeeded"}, {"phase": "Failed"}, {"deleted": NOON}], ids=str)
@pytest.mark.parametrize("text", ["2h", "1h", "tomorrow"])
def test_nothing_is_said_of_a_pod_that_is_over(over: dict[str, Any], text: str) -> None:
    one = running("w", annotations={names.DO_NOT_DISRUPT: text}, start_time=STARTED, **over)
    assert protections([one], NOON) == ()
