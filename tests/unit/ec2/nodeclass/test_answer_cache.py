"""Answers that are kept: how long, how many, and that equal questions at once are asked once."""

import threading
from datetime import timedelta

import pytest

from provisioner.apis.ec2 import SecurityGroupSelectorTerm as Term
from provisioner.ec2.nodeclass import answer_cache
from provisioner.ec2.nodeclass.answer_cache import Remembered
from provisioner.ec2.nodeclass.groups import found, queries
from provisioner.ec2.nodeclass.queries import Query
from tests.support.clock import NOON, FakeClock

MINUTE = timedelta(minutes=1)


def test_an_answer_is_kept_for_as_long_as_it_may_be_old() -> None:
    clock, asked = FakeClock(), iter(range(9))
    remembered: Remembered[int] = Remembered(clock.now)
    assert remembered.get("a", MINUTE, lambda: next(asked)).value == 0
    clock.advance(59)
    assert remembered.get("a", MINUTE, lambda: next(asked)).value == 0
    assert remembered.get("a", MINUTE / 2, lambda: next(asked)).value == 1
    assert remembered.get("b", MINUTE, lambda: next(asked)).value == 2
    remembered.forget("a")
    assert remembered.get("a", MINUTE, lambda: next(asked)).value == 3


def test_the_time_of_an_answer_is_that_of_the_question() -> None:
    clock = FakeClock()
    remembered: Remembered[str] = Remembered(clock.now)

    def slow() -> str:
        clock.advance(5)
        return "x"

    assert remembered.get("a", MINUTE, slow).asked == NOON


def test_a_failure_is_not_kept() -> None:
    remembered: Remembered[str] = Remembered(FakeClock().now)

    def fails() -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        remembered.get("a", MINUTE, fails)
    assert remembered.get("a", MINUTE, lambda: "x").value == "x"


def test_old_answers_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "MOST_ANSWERS", 2)
    remembered: Remembered[int] = Remembered(FakeClock().now)
    for number in range(3):
        remembered.put(number, number)
    assert [remembered.peek(number, MINUTE) for number in range(3)] == [None, 1, 2]


def test_equal_questions_at_once_are_asked_once() -> None:
    remembered: Remembered[int] = Remembered(FakeClock().now)
    begun, go, asked, got = threading.Event(), threading.Event(), [0], []

    def ask() -> int:
        begun.set()
        assert go.wait(10)
        asked[0] += 1
        return asked[0]

    threads = [threading.Thread(target=lambda: got.append(remembered.get("a", MINUTE, ask).value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    assert remembered.get("b", MINUTE, lambda: 9).value == 9  # another question is not held up
    go.set()
    for thread in threads:
        thread.join(10)
    assert got == [1] * 4


# --- security groups

GROUPS: dict[str, tuple[tuple[Term, ...], list[tuple[str, tuple[str, ...]]]]] = {
    "by tags": ((Term(tags={"a": "b"}),), [("tag:a", ("b",))]),
    "by ids, together": ((Term(id="sg-2"), Term(id="sg-1")), [("group-id", ("sg-1", "sg-2"))]),
    "by names, together": ((Term(name="b"), Term(name="a*")), [("group-name", ("a*", "b"))]),
    "an id wins over a name": ((Term(id="sg-1", name="a"),), [("group-id", ("sg-1",))]),
    "a name wins over tags": ((Term(name="a", tags={"a": "b"}),), [("group-name", ("a",))]),
}


@pytest.mark.parametrize("case", GROUPS.values(), ids=GROUPS)
def test_what_is_asked_for_security_groups(case: tuple[tuple[Term, ...], list[tuple[str, tuple[str, ...]]]]) -> None:
    terms, want = case
    assert queries(terms) == tuple(Query("describe_security_groups", "SecurityGroups", (one,)) for one in want)


def test_security_groups_are_found_once_by_id() -> None:
    rows = [{"GroupId": name, "GroupName": name, "VpcId": "vpc-1"} for name in ("sg-2", "sg-1", "sg-2")]
    assert [one.id for one in found(rows)] == ["sg-1", "sg-2"]
