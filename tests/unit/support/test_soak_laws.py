"""How `make soak` tells what grows from what goes up and down."""

import math
import random
from collections.abc import Callable

import pytest

from tests.soak.laws import LAWS, Growth, Look, judged, law_of
from tests.soak.looking import series

HOUR = 3600.0


def looks(value: Callable[[float], float], name: str = "memory of provisioner", each: float = 15.0) -> list[Look]:
    return [Look(number * each, {name: value(number * each)}) for number in range(int(HOUR / each))]


def growth(made: list[Look], seconds: float = HOUR) -> Growth:
    (found,) = judged(made, seconds)
    return found


def sawtooth(at: float) -> float:
    """From 60 to 100 in five minutes, and down at once."""
    return 60 + 40 * (at % 300) / 300


def test_memory_that_grows_by_six_percent_has_grown() -> None:
    assert growth(looks(lambda at: 100 + 6 * at / (0.6 * HOUR))).grew
    assert not growth(looks(lambda at: 100 + 3 * at / HOUR)).grew


def test_what_goes_up_and_down_has_not_grown() -> None:
    assert not growth(looks(sawtooth)).grew
    chance = random.Random(1)
    assert not growth(looks(lambda _: chance.uniform(80, 120))).grew


def test_a_sawtooth_that_rises_has_grown() -> None:
    assert growth(looks(lambda at: sawtooth(at) + at / 200)).grew


def test_a_single_peak_at_the_end_is_no_growth() -> None:
    assert not growth(looks(lambda at: 500.0 if at > 0.99 * HOUR else 100.0)).grew


def test_what_grows_before_the_first_part_and_stays_has_not_grown() -> None:
    assert not growth(looks(lambda at: min(200.0, at))).grew


def test_the_parts_of_a_shorter_run_are_as_large_a_share_of_it() -> None:
    short = [Look(one.at / 6, one.values) for one in looks(lambda at: 100 + 10 * (at > HOUR / 2))]
    assert growth(short, HOUR / 6).grew
    assert growth(short, HOUR).grew, "nothing was read in the last sixth of an hour"


@pytest.mark.parametrize(
    ("name", "early", "late"),
    [
        ("threads of provisioner", 100, 103),
        ("watches of extender", 12, 14),
        ("descriptors of webhook", 40, 47),
        ("tasks", 10, 15),
        ("keys in heaps of queues", 100, 131),
        ("series, provisioner", 2000, 2201),
        ("series of provisioner: karpenter_pods_state", 10, 112),
    ],
)
def test_counts_may_differ_by_little(name: str, early: float, late: float) -> None:
    def then(at: float) -> float:
        return early if at < HOUR / 2 else late

    found = growth(looks(then, name))
    assert (found.early, found.late, found.grew) == (early, late, True)
    assert not growth(looks(lambda at: min(then(at), found.limit), name)).grew


def test_a_family_of_series_that_comes_late_had_none_before() -> None:
    made = looks(lambda _: 50, "series, provisioner")
    late = [
        Look(one.at, {**one.values, "series of provisioner: x": 140.0} if one.at > HOUR / 2 else one.values)
        for one in made
    ]
    found = judged(late, HOUR)[1]
    assert (found.early, found.late, found.grew) == (0, 140, True)


def test_series_and_keys_follow_the_fleet_and_memory_does_not() -> None:
    def grown(name: str, by: float) -> bool:
        made = [
            Look(at, {"nodes": 20.0 * (by if at > HOUR / 2 else 1), name: 1000.0 * (2.0 if at > HOUR / 2 else 1)})
            for at in range(0, int(HOUR), 15)
        ]
        return next(one for one in judged(made, HOUR) if one.name == name).grew

    assert not grown("series, provisioner", 2.0)
    assert not grown("keys of queues", 2.0)
    assert grown("series, provisioner", 1.5)
    assert grown("memory of provisioner", 2.0)
    assert grown("threads of provisioner", 2.0)
    assert grown("series, provisioner", 0.5)


def test_what_must_be_read_and_was_not_has_grown() -> None:
    made = looks(lambda _: 50)
    assert [one.name for one in judged(made, HOUR, ("watches of webhook",)) if one.grew] == ["watches of webhook"]
    assert growth(made[:2]).grew


def test_others_are_told_and_not_judged() -> None:
    found = growth(looks(lambda at: at, "objects of builtins.dict"))
    assert (math.isinf(found.limit), found.grew) == (True, False)
    assert not growth([one for one in looks(lambda at: at, "objects of builtins.dict") if one.at < HOUR / 2]).grew


def test_the_longest_prefix_counts() -> None:
    assert law_of("series of webhook: x") is LAWS["series of"]
    assert law_of("series, webhook") is LAWS["series"]


def test_series_are_counted_by_family() -> None:
    page = '# HELP a A.\n# TYPE a gauge\na{x="1"} 1\na{x="2"} 1\n# HELP b B.\n# TYPE b histogram\nb_bucket{le="+Inf"} 0\nb_sum 0\nb_count 0\n'
    found = series("webhook", page)
    assert found == {"series, webhook": 5, "series of webhook: a": 2, "series of webhook: b": 3}
