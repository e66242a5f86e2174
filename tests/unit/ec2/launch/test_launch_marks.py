from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.ec2.launch import launch_marks
from provisioner.ec2.launch.launch_marks import Mark, MarkError
from tests.support.clock import NOON
from tests.support.cluster import claim

MARK = Mark("3f2a", 1, 7)


def test_marks_read_as_they_are_written() -> None:
    assert str(MARK) == "3f2a/1/7"
    assert Mark.parse("3f2a/1/7") == MARK
    assert MARK.tag == "3f2a/1"


@pytest.mark.parametrize("text", ["", "a", "a/1", "a/1/2/3", "/1/2", "a/x/2", "a/1/-2", "a/0/2", "a/1/", "a/\u0661/2"])
def test_what_is_no_mark(text: str) -> None:
    with pytest.raises(MarkError):
        Mark.parse(text)


def test_the_token_is_of_the_attempt() -> None:
    assert MARK.token == Mark("3f2a", 1, 0).token
    assert MARK.token != Mark("3f2a", 2, 7).token
    assert MARK.token != Mark("3f2", 1, 7).token
    assert len(MARK.token) <= 64
    assert MARK.token.isascii()


def test_a_batch_is_named_by_what_it_is() -> None:
    named = launch_marks.batch_of({"Type": "instant", "a": [1]}, ["uid-2", "uid-1"])
    assert named == launch_marks.batch_of({"a": [1], "Type": "instant"}, ["uid-1", "uid-2"])
    assert named != launch_marks.batch_of({"Type": "instant", "a": [2]}, ["uid-1", "uid-2"])
    assert named != launch_marks.batch_of({"Type": "instant", "a": [1]}, ["uid-1"])
    assert "/" not in named


def marks(*ordinals: int) -> list[Mark]:
    return [Mark("b", 1, ordinal) for ordinal in ordinals]


def test_instances_in_order_belong_to_ordinals_in_order() -> None:
    zero, one, two = marks(0, 1, 2)
    assert launch_marks.dealt([two, zero, one], ["i-c", "i-a", "i-b"]) == {zero: "i-a", one: "i-b", two: "i-c"}


def test_too_few_instances_leave_the_last_without() -> None:
    zero, one = marks(0, 1)
    assert launch_marks.dealt([zero, one], ["i-a"]) == {zero: "i-a"}


def test_a_claim_that_is_gone_keeps_its_place() -> None:
    (two,) = marks(2)
    assert launch_marks.dealt([two], ["i-a", "i-b", "i-c"]) == {two: "i-c"}


def test_two_claims_of_one_ordinal_are_refused() -> None:
    with pytest.raises(ValueError, match="two claims are marked b/1/1"):
        launch_marks.dealt(marks(1, 1), ["i-a"])


def test_claims_of_two_attempts_are_refused() -> None:
    with pytest.raises(ValueError, match="another attempt"):
        launch_marks.dealt([Mark("b", 1, 0), Mark("b", 2, 1)], ["i-a"])


@given(st.sets(st.integers(0, 40)), st.sets(st.text("abc", min_size=1), max_size=40), st.randoms())
def test_dealing_again_with_fewer_claims_gives_the_same(ordinals: set[int], instances: set[str], rng: object) -> None:
    everybody = launch_marks.dealt(marks(*ordinals), sorted(instances))
    some = [mark for mark in marks(*ordinals) if rng.random() < 0.5]  # type: ignore[attr-defined]
    assert launch_marks.dealt(some, sorted(instances, reverse=True)) == {
        m: everybody[m] for m in some if m in everybody
    }
    assert len(set(everybody.values())) == len(everybody)


def marked(name: str, text: str = "") -> NodeClaim:
    return claim(name, annotations={names.LAUNCH_ANNOTATION: text} if text else {})


TEXTS = {
    "a mark": ("b/2/7", Mark("b", 2, 7)),
    "none": ("", None),
    "something else": ("b/2", None),
    "attempt 0": ("b/0/1", None),
}


@pytest.mark.parametrize(("text", "want"), TEXTS.values(), ids=TEXTS)
def test_the_mark_of_a_claim(text: str, want: Mark | None) -> None:
    assert launch_marks.mark_of(marked("c", text)) == want


def test_members_of_an_attempt() -> None:
    first, second, other, later = (
        marked("x", "b/1/0"),
        marked("y", "b/1/1"),
        marked("z", "c/1/0"),
        marked("w", "b/2/0"),
    )
    found = launch_marks.members([later, other, second, first], "b/1")
    assert {str(mark): one.metadata.name for mark, one in found.items()} == {"b/1/0": "x", "b/1/1": "y"}


def test_a_copied_claim_is_no_member() -> None:
    found = launch_marks.members([marked("copy", "b/1/0"), marked("a-original", "b/1/0")], "b/1")
    assert [one.metadata.name for one in found.values()] == ["a-original"]


def test_the_oldest_comes_first() -> None:
    young = claim("a", creationTimestamp=(NOON + timedelta(seconds=1)).isoformat())
    old = claim("b")
    twin = claim("c")
    assert [one.metadata.name for one in sorted([young, twin, old], key=launch_marks.age)] == ["b", "c", "a"]


MARKS = {
    "claims that were never marked": (("", ""), ["n/1/0", "n/1/1"]),
    "an attempt that none has seen": (("b/3/0", ""), ["n/4/0", "n/4/1"]),
    "also of another batch": (("b/1/0", "c/2/5"), ["n/3/0", "n/3/1"]),
}


@pytest.mark.parametrize(("given", "want"), MARKS.values(), ids=MARKS)
def test_first_marks(given: tuple[str, ...], want: list[str]) -> None:
    claims = [marked(f"c{number}", text) for number, text in enumerate(given)]
    assert list(map(str, launch_marks.first_marks(claims, "n"))) == want


GAPS = {
    "nothing failed": ((0, 1, 2), (), []),
    "the last failed": ((0, 1), (2,), []),
    "the first failed": ((1, 2), (0,), [(2, 0)]),
    "two in the middle": ((0, 3, 4), (1, 2), [(3, 1), (4, 2)]),
    "all but the last": ((4,), (0, 1, 2, 3), [(4, 0)]),
    "everything failed": ((), (0, 1), []),
}


@pytest.mark.parametrize(("written", "failed", "want"), GAPS.values(), ids=GAPS)
def test_gaps_are_closed(written: tuple[int, ...], failed: tuple[int, ...], want: list[tuple[int, int]]) -> None:
    claims = {ordinal: marked(f"c{ordinal}") for ordinal in written}
    moves = launch_marks.moves(claims, failed)
    assert moves == want
    moved = dict(moves)
    assert sorted(moved.get(ordinal, ordinal) for ordinal in written) == list(range(len(written)))
