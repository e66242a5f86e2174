from collections.abc import Callable

import pytest

from provisioner.cloudprovider.errors import CreateError
from provisioner.ec2.launch.pace import FIRST_PAUSE, GAP, LONGEST_HOLD, LONGEST_PAUSE, SHORT, Pacing

LANE = ("class", "pool")
ERROR = CreateError("Unauthorized", "no")


def after(*steps: tuple[int, int]) -> Pacing:
    """A pacing that saw these (wanted, launched) at time 0."""
    made = Pacing()
    for wanted, launched in steps:
        made.answered(LANE, wanted, launched, 0.0)
    return made


SIZES = {
    "any number at first": ((), 500),
    "any number after a success": (((10, 10),), 500),
    "one after nothing": (((500, 0),), 1),
    "as many as came of a part": (((500, 7),), 7),
    "four times as many after a success": (((500, 0), (1, 1)), 4),
    "and again": (((500, 0), (1, 1), (4, 4)), 16),
    "one again after nothing": (((500, 0), (1, 1), (4, 0)), 1),
    "trusted in the end": (((500, 0), (1, 1), (4, 4), (16, 16), (64, 64)), 500),
}


@pytest.mark.parametrize(("steps", "want"), SIZES.values(), ids=SIZES)
def test_how_many_at_once(steps: tuple[tuple[int, int], ...], want: int) -> None:
    made = after(*steps)
    assert made.size(LANE, 500) == want
    assert made.size(("class", "other"), 500) == 500


def test_an_order_for_all_or_none_is_a_trial_by_itself() -> None:
    made = after((500, 0))
    assert made.size(LANE, 8, all_or_none=True) == 8
    made.ended(LANE, ERROR, 0.0)
    assert made.size(LANE, 8, all_or_none=True) == 1, "that EC2 says yes proves nothing there"


def test_that_not_all_were_to_be_had_says_nothing_of_smaller_orders() -> None:
    made = Pacing()
    made.answered(LANE, 8, 0, 0.0, all_or_none=True)
    assert made.size(LANE, 500) == 500
    assert made.short(LANE, 0.0), "EC2 is asked no more often than otherwise"
    assert made.wait(LANE, 0.0) > 0


def test_no_more_than_wanted() -> None:
    assert after((9, 9)).size(LANE, 3) == 3


OTHER = ("class", "other")


def test_fleets_are_not_spaced_while_all_is_well() -> None:
    made = after((5, 5))
    made.sent(LANE, 0.0)
    assert made.wait(LANE, 0.0) == 0.0
    assert not made.short(LANE, 0.0)


def test_a_lane_is_not_slowed_by_one_that_is_short() -> None:
    made = after((5, 0))
    made.sent(LANE, 0.0)
    assert made.wait(OTHER, 0.0) == 0.0
    for _ in range(500):
        made.sent(OTHER, 0.0)
    assert made.wait(LANE, 0.0) <= 2 * GAP


def test_short_lanes_share_one_pace() -> None:
    made = after((5, 0))
    made.answered(OTHER, 5, 0, 0.0)
    assert made.wait(LANE, 0.0) == made.wait(OTHER, 0.0) == pytest.approx(GAP)
    sent, now = list[float](), 0.0
    while now < 30:
        lane = (LANE, OTHER)[len(sent) % 2]
        now += made.wait(lane, now)
        made.sent(lane, now)
        sent.append(now)
    assert max(sum(start <= other < start + 10 for other in sent) for start in sent) <= 17


def test_shortness_is_forgotten() -> None:
    made = after((5, 0))
    assert made.short(LANE, SHORT - 0.1)
    assert not made.short(LANE, SHORT)
    assert made.wait(LANE, SHORT) == 0.0


def test_a_lane_that_fails_is_held_longer_each_time() -> None:
    made = Pacing()
    waits = [made.failed(LANE, ERROR, 0.0) for _ in range(7)]
    assert waits == [1, 2, 4, 8, 16, LONGEST_HOLD, LONGEST_HOLD]
    assert made.held(LANE, 29.0) == (1.0, ERROR)
    assert made.held(LANE, 30.0) is None
    assert made.held(("class", "other"), 0.0) is None


AGAIN: dict[str, Callable[[Pacing], object]] = {
    "a full answer": lambda made: made.answered(LANE, 1, 1, 0.0),
    "an answer without instances": lambda made: made.answered(LANE, 1, 0, 0.0),
}


@pytest.mark.parametrize("answer", AGAIN.values(), ids=AGAIN)
def test_an_answer_ends_the_hold(answer: Callable[[Pacing], object]) -> None:
    made = Pacing()
    made.failed(LANE, ERROR, 0.0)
    answer(made)
    assert made.held(LANE, 0.0) is None
    assert made.failed(LANE, ERROR, 0.0) == 1.0


def bought(made: Pacing, seconds: float) -> list[float]:
    """When instances are ordered in a lane whose every instance EC2 ends two seconds after it said yes."""
    now, ends, orders = 0.0, list[float](), list[float]()
    while now < seconds:
        if ends and now >= ends[0]:
            ends.pop(0)
            made.ended(LANE, ERROR, now)
        elif made.held(LANE, now) is None:
            count = made.size(LANE, 10)
            made.sent(LANE, now)
            made.answered(LANE, count, count, now)
            orders.extend([now] * count)
            ends.append(now + 2.0)
        now += 0.5
    return orders


def test_a_lane_whose_instances_are_ended_at_launch_tries_one_at_a_time_and_less_and_less_often() -> None:
    """EC2 says yes each time: without the pauses there were a thousand instances in an hour."""
    orders = bought(Pacing(), 3600.0)
    assert len(orders) < 60
    assert len([one for one in orders if one > 1800]) <= 1800 / LONGEST_PAUSE + 1
    late = [one for one in orders if one > 60]
    assert len(late) == len(set(late)), "one at a time"


def test_instances_of_one_order_that_end_together_count_once() -> None:
    made = Pacing()
    for moment in range(10):
        made.ended(LANE, ERROR, float(moment))
    assert made.held(LANE, 9.0) == (FIRST_PAUSE - 9.0, ERROR)
    assert made.held(OTHER, 9.0) is None


def test_a_yes_of_ec2_ends_no_pause_and_a_node_does() -> None:
    made = Pacing()
    made.ended(LANE, ERROR, 0.0)
    made.answered(LANE, 1, 1, 1.0)
    assert made.held(LANE, 1.0) is not None
    assert made.size(LANE, 10) == 1
    made.came_up(LANE)
    assert made.held(LANE, 1.0) is None
    made.answered(LANE, 1, 1, 2.0)
    assert made.size(LANE, 10) == 4
