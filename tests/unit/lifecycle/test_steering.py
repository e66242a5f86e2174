"""When planned pods are nominated."""

import pytest

from provisioner.lifecycle.steering import (
    HEARD_SECONDS,
    LONGEST_PAUSE_SECONDS,
    LOOKED_AT,
    MISLED,
    MOST_SCHEDULERS,
    PAUSE_SECONDS,
    WATCHED,
    Steering,
)
from tests.support.clock import FakeClock

OURS, DEFAULT = "dovetail-scheduler", "default-scheduler"


class Auto:
    """Steering that decides by itself, on a clock that stands still, with an extender that goes on reporting."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.steering = Steering("auto", self.clock)
        self.steering.heard()

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.steering.heard()

    def landed(self, count: int, outcome: str = "absorbed", scheduler: str = OURS) -> None:
        """So many pods, let in without a nomination, were bound."""
        uids = [f"pod-{number}" for number in range(count)]
        self.steering.left(scheduler, uids)
        for uid in uids:
            self.steering.settled(uid, outcome)

    @property
    def nominates(self) -> bool:
        return self.steering.nominates(OURS)


@pytest.fixture
def auto() -> Auto:
    return Auto()


def test_without_an_extender_pods_are_nominated() -> None:
    assert Steering("auto", FakeClock()).nominates(OURS)


def test_an_extender_that_was_just_heard_of_needs_no_nominations(auto: Auto) -> None:
    assert not auto.nominates
    auto.clock.advance(HEARD_SECONDS)
    assert not auto.nominates


def test_an_extender_that_fell_silent_is_not_waited_for(auto: Auto) -> None:
    auto.clock.advance(HEARD_SECONDS + 0.1)
    assert auto.nominates


def test_plans_rely_on_an_extender_as_long_as_nominations_do(auto: Auto) -> None:
    assert auto.steering.steers(OURS)
    auto.clock.advance(HEARD_SECONDS + 0.1)
    assert not auto.steering.steers(OURS)


def test_an_extender_that_no_scheduler_asks_is_not_relied_on(auto: Auto) -> None:
    auto.landed(MISLED - 1)
    assert not auto.nominates
    auto.landed(1)
    assert auto.nominates


def test_an_extender_that_was_misjudged_gets_another_chance(auto: Auto) -> None:
    """While it nominates nobody lands by the extender alone, so nothing could ever speak for it again."""
    auto.landed(MISLED)
    auto.later(PAUSE_SECONDS - 1)
    assert auto.nominates
    auto.later(1)
    assert not auto.nominates
    auto.landed(LOOKED_AT, "planned")
    assert not auto.nominates


def test_one_that_fails_again_is_left_alone_for_twice_as_long_each_time_up_to_a_limit(auto: Auto) -> None:
    pauses = []
    for _ in range(7):
        auto.landed(MISLED)
        pauses.append(0.0)
        while auto.nominates:
            auto.later(1)
            pauses[-1] += 1
    assert pauses == [60, 120, 240, 480, 960, 960, 960]
    assert LONGEST_PAUSE_SECONDS == 960


def test_one_that_steers_again_begins_anew(auto: Auto) -> None:
    for _ in range(3):
        auto.landed(MISLED)
        auto.later(LONGEST_PAUSE_SECONDS)
    auto.landed(LOOKED_AT, "planned")
    auto.landed(LOOKED_AT)
    auto.later(PAUSE_SECONDS)
    assert not auto.nominates


def test_what_was_seen_before_a_pause_does_not_count_after_it(auto: Auto) -> None:
    auto.steering.left(OURS, [f"old-{number}" for number in range(MISLED)])
    auto.landed(MISLED)
    auto.later(PAUSE_SECONDS)
    for number in range(MISLED):
        auto.steering.settled(f"old-{number}", "absorbed")
    assert not auto.nominates


def test_one_pod_in_twenty_may_land_elsewhere(auto: Auto) -> None:
    auto.landed(LOOKED_AT // 20)
    auto.landed(LOOKED_AT, "planned")
    auto.landed(LOOKED_AT // 20)
    assert not auto.nominates


def test_pods_that_were_nominated_or_withheld_tell_nothing_about_the_extender(auto: Auto) -> None:
    for number in range(LOOKED_AT):
        auto.steering.settled(f"pod-{number}", "absorbed")
    assert not auto.nominates


@pytest.mark.parametrize("outcome", ["expired", "displaced"])
def test_plans_that_ended_otherwise_tell_nothing_about_the_extender(auto: Auto, outcome: str) -> None:
    auto.landed(LOOKED_AT, outcome)
    assert not auto.nominates


def test_pods_of_a_scheduler_without_the_extender_are_nominated_however_well_it_steers_those_of_another(
    auto: Auto,
) -> None:
    """Where a namespace opts in to our scheduler, the default one has the others; a few of those among many of ours were never nominated."""
    for _ in range(MISLED):
        auto.landed(LOOKED_AT, "planned")
        auto.landed(1, scheduler=DEFAULT)
    assert auto.steering.nominates(DEFAULT)
    assert not auto.nominates
    assert auto.steering.nominates_any()
    auto.later(PAUSE_SECONDS)
    assert not auto.steering.nominates_any()


def test_a_pause_of_one_scheduler_forgets_nobody_of_another(auto: Auto) -> None:
    auto.steering.left(OURS, [f"mine-{number}" for number in range(MISLED)])
    auto.landed(MISLED, scheduler=DEFAULT)
    for number in range(MISLED):
        auto.steering.settled(f"mine-{number}", "absorbed")
    assert auto.nominates


def test_only_so_many_schedulers_are_remembered(auto: Auto) -> None:
    for number in range(2 * MOST_SCHEDULERS):
        auto.landed(MISLED, scheduler=f"scheduler-{number}")
    assert len(auto.steering._judged) == MOST_SCHEDULERS
    assert auto.steering.nominates(f"scheduler-{2 * MOST_SCHEDULERS - 1}")


def test_only_so_many_pods_are_remembered(auto: Auto) -> None:
    auto.steering.left(OURS, (f"pod-{number}" for number in range(2 * WATCHED)))
    assert len(auto.steering._watched) == WATCHED


@pytest.mark.parametrize(("mode", "answer"), [("true", True), ("false", False)])
def test_a_fixed_answer_stays(mode: str, answer: bool) -> None:
    steering = Steering(mode, FakeClock())
    assert steering.nominates(OURS) is answer
    steering.heard()
    assert steering.nominates(OURS) is answer
    assert steering.nominates_any() is answer
    assert not steering.learns
    assert not steering.steers(OURS), "nobody would learn that it does not"
