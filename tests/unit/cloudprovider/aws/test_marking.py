from datetime import timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.aws import marking
from provisioner.cloudprovider.aws.batches import Mark
from tests.support.clock import NOON
from tests.support.cluster import claim


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
    assert marking.mark_of(marked("c", text)) == want


def test_members_of_an_attempt() -> None:
    first, second, other, later = (
        marked("x", "b/1/0"),
        marked("y", "b/1/1"),
        marked("z", "c/1/0"),
        marked("w", "b/2/0"),
    )
    found = marking.members([later, other, second, first], "b/1")
    assert {str(mark): one.metadata.name for mark, one in found.items()} == {"b/1/0": "x", "b/1/1": "y"}


def test_a_copied_claim_is_no_member() -> None:
    found = marking.members([marked("copy", "b/1/0"), marked("a-original", "b/1/0")], "b/1")
    assert [one.metadata.name for one in found.values()] == ["a-original"]


def test_the_oldest_comes_first() -> None:
    young = claim("a", creationTimestamp=(NOON + timedelta(seconds=1)).isoformat())
    old = claim("b")
    twin = claim("c")
    assert [one.metadata.name for one in sorted([young, twin, old], key=marking.age)] == ["b", "c", "a"]


MARKS = {
    "claims that were never marked": (("", ""), ["n/1/0", "n/1/1"]),
    "an attempt that none has seen": (("b/3/0", ""), ["n/4/0", "n/4/1"]),
    "also of another batch": (("b/1/0", "c/2/5"), ["n/3/0", "n/3/1"]),
}


@pytest.mark.parametrize(("given", "want"), MARKS.values(), ids=MARKS)
def test_first_marks(given: tuple[str, ...], want: list[str]) -> None:
    claims = [marked(f"c{number}", text) for number, text in enumerate(given)]
    assert list(map(str, marking.first_marks(claims, "n"))) == want


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
    moves = marking.moves(claims, failed)
    assert moves == want
    moved = dict(moves)
    assert sorted(moved.get(ordinal, ordinal) for ordinal in written) == list(range(len(written)))
