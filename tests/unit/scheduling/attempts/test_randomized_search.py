"""A search over choices: what is drawn, what is found, what is taken back."""

from dataclasses import replace
from typing import Any, cast

import pytest

from provisioner.apis import names
from provisioner.scheduling.attempts.attempt import Attempt
from provisioner.scheduling.attempts.randomized_search import Badness, Choices, Choosing, Lots, search
from provisioner.scheduling.prepared import prepare
from tests.support import priced_fleets
from tests.support.problems import app, instance_type, node, of_app, pods, pool, problem, shape, spread


def test_lots_are_the_same_each_time_and_leave_no_option_out() -> None:
    lots, again = Lots(), Lots()
    drawn = [lots.draw(5) for _ in range(200)]
    assert drawn == [again.draw(5) for _ in range(200)]
    assert set(drawn) == set(range(5))
    assert drawn.count(0) < 140


def test_a_script_is_followed_to_its_end_and_then_the_first_is_taken() -> None:
    choices = Choices([2, 1])
    assert [choices.of(3), choices.of(2), choices.of(4)] == [2, 1, 0]
    assert choices.taken == [2, 1, 0]


def test_an_option_that_is_not_there_any_more_is_the_first() -> None:
    assert Choices([2]).of(2) == 0


def test_where_nothing_can_be_chosen_nothing_is_noted() -> None:
    choices = Choices([1, 1])
    assert choices.of(1) == choices.of(0) == 0
    choices.free = False
    assert choices.of(2) == 0
    choices.free = True
    assert choices.of(2) == 1
    assert choices.taken == [1]


class Puzzle:
    """Solved where the first of three choices is 2 and the last is 1; the second only makes it bigger."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.tries = 0

    def attempt_by(self, choices: Choices) -> Attempt:
        self.tries += 1
        first, second, third = choices.of(3), choices.of(2), choices.of(4)
        return _attempt(self.left - (first == 2 and third == 1), size=1 + second)


class _Fake:
    def __init__(self, left: int, size: int) -> None:
        self.left, self.size = left, size

    def tied(self) -> set[int]:
        return set(range(self.left))


def _attempt(left: int, size: int = 1) -> Attempt:
    return cast(Attempt, _Fake(left, size))


def _badness(attempt: Any) -> Badness:
    return False, [attempt.left]


def test_a_puzzle_is_solved_without_the_choices_that_make_no_difference() -> None:
    puzzle = Puzzle(1)
    found = search(puzzle.attempt_by, _attempt(1), _badness, 100)
    assert (_badness(found), found.size) == ((False, [0]), 1)
    assert puzzle.tries < 100


def test_a_puzzle_without_an_answer_is_given_up() -> None:
    puzzle, first = Puzzle(2), _attempt(1)
    assert search(puzzle.attempt_by, first, _badness, 30) is first
    assert puzzle.tries == 30


def test_a_better_attempt_is_kept_where_somebody_is_left_all_the_same() -> None:
    puzzle = Puzzle(2)
    found = search(puzzle.attempt_by, _attempt(2), _badness, 100)
    assert _badness(found) == (False, [1])
    assert puzzle.tries > 100


def test_no_lot_puts_a_pod_into_a_domain_that_is_too_full_for_it() -> None:
    """Found by a search over worlds: pods placed later made it legal at last, and nobody could be bound before them."""
    wide = of_app("web", topology_spread_constraints=(spread(names.ZONE_LABEL, app("web")),))
    there = [node(zone, "8", labels={names.ZONE_LABEL: zone}) for zone in ("a", "b")]
    types = (instance_type("small", "2", "4Gi", zones=("a", "b")),)
    asked = problem(pods(5, wide), pool(types=types), bins=there)
    setting, lots = prepare(asked).setting(asked.pods), Lots()
    for _ in range(50):
        attempt = Choosing(setting, {*setting.skews}, (), setting.classes, Choices((), lots), {*setting.classes})
        attempt.run(by_priority=False, scattering=False, hurried=())
        assert not attempt.breaches.broken()


@pytest.mark.parametrize("alternatives", [1, 15])
def test_hostname_spread_is_tried_on_no_more_nodes_where_only_the_price_that_is_expected_is_higher(
    alternatives: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = tuple(
        replace(one, offerings=tuple(replace(way, alternatives=alternatives) for way in one.offerings))
        for one in priced_fleets.ec2_types(capacity_type="spot")
    )
    web = of_app("web", "500m", topology_spread_constraints=(spread(names.HOSTNAME_LABEL, app("web")),))
    some = (
        *pods(40, web, "web"),
        *pods(3000, shape("1", "2Gi"), "one"),
        *pods(3000, shape("250m", "2Gi"), "other"),
    )
    runs: list[Attempt] = []
    run = Attempt.run

    def counted(self: Attempt, **how: Any) -> None:
        runs.append(self)
        run(self, **how)

    monkeypatch.setattr(Attempt, "run", counted)
    assert not prepare(priced_fleets.world_of(types)).solve(some).unplaced
    assert len(runs) == 2
