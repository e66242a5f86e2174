import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.cloudprovider.aws import batches
from provisioner.cloudprovider.aws.batches import Mark, MarkError

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
    named = batches.batch_of({"Type": "instant", "a": [1]}, ["uid-2", "uid-1"])
    assert named == batches.batch_of({"a": [1], "Type": "instant"}, ["uid-1", "uid-2"])
    assert named != batches.batch_of({"Type": "instant", "a": [2]}, ["uid-1", "uid-2"])
    assert named != batches.batch_of({"Type": "instant", "a": [1]}, ["uid-1"])
    assert "/" not in named


def marks(*ordinals: int) -> list[Mark]:
    return [Mark("b", 1, ordinal) for ordinal in ordinals]


def test_machines_in_order_belong_to_ordinals_in_order() -> None:
    zero, one, two = marks(0, 1, 2)
    assert batches.dealt([two, zero, one], ["i-c", "i-a", "i-b"]) == {zero: "i-a", one: "i-b", two: "i-c"}


def test_too_few_machines_leave_the_last_without() -> None:
    zero, one = marks(0, 1)
    assert batches.dealt([zero, one], ["i-a"]) == {zero: "i-a"}


def test_a_claim_that_is_gone_keeps_its_place() -> None:
    (two,) = marks(2)
    assert batches.dealt([two], ["i-a", "i-b", "i-c"]) == {two: "i-c"}


def test_two_claims_of_one_ordinal_are_refused() -> None:
    with pytest.raises(ValueError, match="two claims are marked b/1/1"):
        batches.dealt(marks(1, 1), ["i-a"])


def test_claims_of_two_attempts_are_refused() -> None:
    with pytest.raises(ValueError, match="another attempt"):
        batches.dealt([Mark("b", 1, 0), Mark("b", 2, 1)], ["i-a"])


@given(st.sets(st.integers(0, 40)), st.sets(st.text("abc", min_size=1), max_size=40), st.randoms())
def test_dealing_again_with_fewer_claims_gives_the_same(ordinals: set[int], machines: set[str], rng: object) -> None:
    everybody = batches.dealt(marks(*ordinals), sorted(machines))
    some = [mark for mark in marks(*ordinals) if rng.random() < 0.5]  # type: ignore[attr-defined]
    assert batches.dealt(some, sorted(machines, reverse=True)) == {m: everybody[m] for m in some if m in everybody}
    assert len(set(everybody.values())) == len(everybody)
