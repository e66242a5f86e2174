from collections.abc import Callable

import pytest

from provisioner.cloudprovider.aws.launch.pace import GAP, LONGEST_HOLD, SHORT, Pacing
from provisioner.cloudprovider.errors import CreateError

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
