"""Readings of SSM parameters: kept, renewed, and not given up."""

from datetime import datetime, timedelta

import pytest

from provisioner.ec2.access.errors import Failure, classify
from provisioner.ec2.nodeclass.parameters import KEEP_OWN, Parameters, Reading
from tests.support.clock import NOON

MISSING, SLOW, DENIED = (
    classify(code) for code in ("ParameterNotFound", "ThrottlingException", "AccessDeniedException")
)
MINUTES = 60.0
HOURS = 60 * MINUTES


class Ssm:
    """Answers in order; the last one again and again."""

    def __init__(self, *answers: str | Failure) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self, name: str) -> str | Failure:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def read_at(ssm: Ssm, *times: float) -> Reading:
    parameters = Parameters(ssm)
    reading = parameters.read(["/p"], at(times[0]))["/p"]
    for time in times[1:]:
        reading = parameters.read(["/p"], at(time))["/p"]
    return reading


CASES: dict[str, tuple[tuple[str | Failure, ...], tuple[float, ...], str, int]] = {
    "a value": (("ami-1",), (0,), "ami-1", 1),
    "a value is kept for a day": (("ami-1", "ami-2"), (0, 23 * HOURS), "ami-1", 1),
    "and then read again": (("ami-1", "ami-2"), (0, 24 * HOURS), "ami-2", 2),
    "a value outlives throttling": (("ami-1", SLOW), (0, 24 * HOURS, 25 * HOURS, 90 * HOURS), "ami-1", 4),
    "and a permission that was taken away": (("ami-1", DENIED), (0, 24 * HOURS), "ami-1", 2),
    "after a failure it is not read for a minute": (("ami-1", SLOW), (0, 24 * HOURS, 24 * HOURS + 59), "ami-1", 2),
    "not found once is not gone": (("ami-1", MISSING), (0, 24 * HOURS), "ami-1", 2),
    "not found twice is not gone": (("ami-1", MISSING), (0, 24 * HOURS, 24 * HOURS + 60), "ami-1", 3),
    "not found three times is gone": (("ami-1", MISSING), (0, 24 * HOURS, 25 * HOURS, 26 * HOURS), "", 4),
    "found in between, the count begins anew": (
        ("ami-1", MISSING, MISSING, "ami-1", MISSING),
        (0, 24 * HOURS, 25 * HOURS, 26 * HOURS, 51 * HOURS, 52 * HOURS),
        "ami-1",
        6,
    ),
    "what is missing is not asked for again for five minutes": ((MISSING,), (0, 4 * MINUTES), "", 1),
    "and then it is": ((MISSING, "ami-1"), (0, 5 * MINUTES), "ami-1", 2),
    "a failure without a value": ((SLOW,), (0,), "", 1),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_readings(case: tuple[tuple[str | Failure, ...], tuple[float, ...], str, int]) -> None:
    answers, times, value, asked = case
    ssm = Ssm(*answers)
    assert read_at(ssm, *times).value == value
    assert ssm.asked == asked


def test_missing_and_failed_differ() -> None:
    assert read_at(Ssm(MISSING), 0).missing
    assert not read_at(Ssm(SLOW), 0).missing
    assert read_at(Ssm(SLOW), 0).failure == SLOW


def test_parameters_of_users_are_kept_for_five_minutes() -> None:
    ssm = Ssm("ami-1", "ami-2")
    parameters = Parameters(ssm)
    for seconds, want in ((0, "ami-1"), (299, "ami-1"), (300, "ami-2")):
        assert parameters.read(["/p"], at(seconds), KEEP_OWN)["/p"].value == want


def test_doubt_brings_a_reading_forward_but_not_again_and_again() -> None:
    ssm = Ssm("ami-1", "ami-2", "ami-3")
    parameters = Parameters(ssm)
    parameters.read(["/p"], at(0))
    parameters.doubt("/p", at(0))
    parameters.doubt("/p", at(29 * MINUTES))
    assert parameters.read(["/p"], at(29 * MINUTES))["/p"].value == "ami-1"
    assert parameters.read(["/p"], at(30 * MINUTES))["/p"].value == "ami-2"
    assert parameters.read(["/p"], at(10 * HOURS))["/p"].value == "ami-2"
