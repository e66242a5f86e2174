"""Whatever a tenant may post costs linear work, and every loop of the solver asks whether time is up."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.meta import LabelSelector
from provisioner.scheduling.attempts.solution import EFFORT
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.reasons import NOT_TRIED
from provisioner.scheduling.result import Result
from provisioner.values.taints import Toleration
from tests.support import maxima
from tests.support.problems import instance_type, pods, pool, problem, shape, spread
from tests.support.question import Problem
from tests.support.work import Lines

ELEMENTS = 16
"""Of each list; twice as many are compared with them."""
MOST_TIMES = 2.5
MOST_BETWEEN = 1_000_000
"""Lines between two looks at the clock, and after time is up: some 0.3 s."""
FITS, TOO_LARGE = "1m", "99"


class Looks:
    """A clock by which time is up at the look after so many."""

    def __init__(self, lines: Lines, looks: int) -> None:
        self.count = self.most = self.last = 0
        self._lines, self._looks = lines, looks

    def expired(self) -> bool:
        """As of `Prepared.solve`."""
        up = self.count >= self._looks
        if self.count <= self._looks:
            self.count += 1
            self.most, self.last = max(self.most, self._lines.count - self.last), self._lines.count
        return up


def solved(asked: Problem, looks: int = sys.maxsize, effort: int = 0) -> tuple[Lines, Looks, Result]:
    lines = Lines()
    clock = Looks(lines, looks)
    with lines:
        result = prepare(asked).solve(asked.pods, expired=clock.expired, effort=effort)
        assert result.usd_at_least is not None
    assert len(result.placed) + len(result.unplaced) == len(asked.pods)
    return lines, clock, result


@pytest.mark.parametrize("cpu", [FITS, TOO_LARGE])
@pytest.mark.parametrize("kind", maxima.KINDS)
def test_twice_as_much_of_one_list_takes_at_most_two_and_a_half_times_the_work(kind: str, cpu: str) -> None:
    (lines, clock, _), (more, later, _) = (
        solved(maxima.asked([kind], count, pods=2, nodes=4, cpu=cpu)) for count in (64, 128)
    )
    assert more.count <= MOST_TIMES * lines.count
    assert later.count <= MOST_TIMES * clock.count + 2


@given(
    kinds=st.lists(st.sampled_from([*maxima.KINDS, "owners"]), min_size=1, max_size=5, unique=True),
    pods=st.integers(1, 2),
    cpu=st.sampled_from([FITS, TOO_LARGE]),
)
def test_twice_as_much_of_several_lists_takes_at_most_two_and_a_half_times_the_work(
    kinds: list[str], pods: int, cpu: str
) -> None:
    (once, *_), (twice, *_) = (solved(maxima.asked(kinds, count, pods, 4, cpu)) for count in (ELEMENTS, 2 * ELEMENTS))
    assert twice.count <= MOST_TIMES * once.count


@pytest.mark.parametrize("cpu", [FITS, TOO_LARGE])
@pytest.mark.parametrize("kinds", [*([kind] for kind in maxima.KINDS), maxima.TOGETHER], ids=" ".join)
def test_every_loop_asks_whether_time_is_up(kinds: list[str], cpu: str) -> None:
    asked = maxima.asked(kinds, 200 if len(kinds) == 1 else 40, pods=5, nodes=20, cpu=cpu)
    assert max(solved(asked)[1].most, 1) <= MOST_BETWEEN


@pytest.mark.parametrize("looks", [0, 1, 5])
@pytest.mark.parametrize("kinds", [*([kind] for kind in maxima.KINDS), maxima.TOGETHER], ids=" ".join)
def test_a_question_ends_soon_after_its_time(kinds: list[str], looks: int) -> None:
    asked = maxima.asked(kinds, 200 if len(kinds) == 1 else 40, pods=5, nodes=20)
    lines, clock, result = solved(asked, looks, effort=EFFORT)
    assert lines.count - clock.last <= MOST_BETWEEN
    left = [one for one in result.unplaced if one.reasons == (NOT_TRIED,)]
    assert clock.count <= looks or left or result.placed


def one_at_a_time(nodes: int) -> Problem:
    """Pods for a node each, where a spread that counts a DaemonSet lets no two zones differ by more than two."""
    part = {"part": "x"}
    daemon = shape("1m", "0", labels=part, tolerations=[Toleration(operator="Exists")])
    even = spread(names.ZONE_LABEL, LabelSelector(match_labels=part), 2)
    first = shape("1", labels=part, priority=10, topology_spread_constraints=(even,))
    types = (instance_type("tiny", "1101m", "4Gi", zones="abc"),)
    return problem([*pods(3, first), *pods(nodes, shape("1"), "other")], pool(types=types), daemons=[daemon])


def test_nodes_that_are_opened_one_at_a_time_ask_whether_time_is_up() -> None:
    lines, clock, result = solved(one_at_a_time(400), effort=EFFORT)
    assert not result.unplaced
    assert clock.most <= lines.count / 4


def test_the_law_sees_work_that_grows_with_the_square() -> None:
    """The counter itself: two nested loops are four times the work."""

    def square(size: int) -> None:
        for _ in range(size):
            for _ in range(size):
                pass

    counts = []
    for size in (10, 20):
        with Lines() as lines:
            square(size)
        counts.append(lines.count)
    assert counts[1] > MOST_TIMES * counts[0]
