"""What is said of a course, and its picture."""

from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.lab.harness.chart import chart
from provisioner.lab.harness.course import Moment, changes, dollars, steps, too_fast

SVG = "{http://www.w3.org/2000/svg}"


def course(*wanted: int, every: float = 10.0) -> list[Moment]:
    return [Moment(every * place, 0.5, count, count, -(-count // 3), 0.25) for place, count in enumerate(wanted)]


def test_steps_are_the_changes_of_the_replicas() -> None:
    assert steps(course(1, 1, 4, 10, 10, 7, 7, 4, 1)) == [(0, 1), (20, 4), (30, 10), (50, 7), (70, 4), (80, 1)]
    assert steps([]) == []


FAST = {
    "thirty percent a minute, rounded to fewer replicas": ((10, 7, 4, 2, 1), 60.0, []),
    "in two steps of one minute": ((6, 6, 5, 4, 4), 30.0, []),
    "more at once": ((10, 6), 60.0, [6]),
    "allowed each time, but not together": ((10, 10, 7, 4, 4), 30.0, [4]),
    "growing is not falling": ((1, 10, 10), 60.0, []),
    "one look": ((3,), 60.0, []),
}


@pytest.mark.parametrize(("wanted", "every", "found"), FAST.values(), ids=FAST)
def test_an_hpa_that_takes_more_than_it_may_is_told(wanted: tuple[int, ...], every: float, found: list[int]) -> None:
    assert [moment.wanted for moment in too_fast(course(*wanted, every=every), 30, 60.0)] == found


def test_money_is_the_sum_of_what_each_moment_costs_until_the_next() -> None:
    assert dollars([Moment(0, 0, 1, 1, 1, 2.0), Moment(1800, 0, 1, 1, 1, 4.0), Moment(3600, 0, 1, 1, 0, 0.0)]) == 3.0
    assert dollars(course(1)) == 0


def test_of_equal_moments_the_first_and_the_last_are_kept() -> None:
    assert changes(course(1, 1, 1, 2, 2)) == [course(1)[0], *course(1, 1, 1, 2, 2)[3:]]


@given(wanted=st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_the_picture_ends_where_the_course_ends(wanted: list[int]) -> None:
    seen = course(*wanted)
    root = fromstring(chart("load & pods", seen))
    assert root.findtext(f"{SVG}text") == "load & pods"
    lines = [points(one) for one in root.iter(f"{SVG}polyline")]
    assert len(lines) == 5, "load, replicas wanted, pods running, nodes, dollars"
    for line in lines:
        assert [place for place, _ in line] == sorted(place for place, _ in line)
        assert line[0][0] == 90
        assert line[-1][0] == (940 if len(seen) > 1 else 90)
    highest = {y for _, y in lines[2]}
    assert len(highest) == len(set(wanted)), "a height of its own for every number of pods"


def points(line: Element) -> list[tuple[float, float]]:
    pairs = [point.split(",") for point in (line.get("points") or "").split()]
    return [(float(x), float(y)) for x, y in pairs]
