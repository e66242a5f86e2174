"""When planned pods are nominated."""

import pytest

from provisioner.controllers.steering import ENOUGH, HEARD_SECONDS, Steering
from tests.support.clock import FakeClock


def auto() -> tuple[Steering, FakeClock]:
    clock = FakeClock()
    return Steering("auto", clock), clock


def test_without_an_extender_pods_are_nominated() -> None:
    assert auto()[0].nominates()


def test_an_extender_that_was_just_heard_of_needs_no_nominations() -> None:
    steering, clock = auto()
    steering.heard()
    assert not steering.nominates()
    clock.advance(HEARD_SECONDS)
    assert not steering.nominates()


def test_an_extender_that_fell_silent_is_not_waited_for() -> None:
    steering, clock = auto()
    steering.heard()
    clock.advance(HEARD_SECONDS + 0.1)
    assert steering.nominates()


def test_an_extender_that_no_scheduler_asks_is_not_relied_on() -> None:
    steering, _ = auto()
    steering.heard()
    for _ in range(ENOUGH - 1):
        steering.settled("absorbed")
    assert not steering.nominates()
    steering.settled("absorbed")
    assert steering.nominates()


def test_pods_that_were_nominated_tell_nothing_about_the_extender() -> None:
    steering, _ = auto()
    for _ in range(ENOUGH):
        steering.settled("absorbed")
    steering.heard()
    assert not steering.nominates()


def test_promises_that_ran_out_tell_nothing_about_the_extender() -> None:
    steering, _ = auto()
    steering.heard()
    for outcome in ("expired", "displaced"):
        for _ in range(ENOUGH):
            steering.settled(outcome)
    assert not steering.nominates()


@pytest.mark.parametrize(("mode", "answer"), [("true", True), ("false", False)])
def test_a_fixed_answer_stays(mode: str, answer: bool) -> None:
    steering = Steering(mode, FakeClock())
    assert steering.nominates() is answer
    steering.heard()
    assert steering.nominates() is answer
