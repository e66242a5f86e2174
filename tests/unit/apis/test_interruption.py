"""The annotation that tells an interruption, and two of them at once."""

from datetime import timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.interruption import Interruption, interruption_of, merged
from tests.support.clock import NOON

SPOT = Interruption("spot_interrupted", replaced=True, evicts=NOON, ends=NOON + timedelta(seconds=75))
CHANGE = Interruption(
    "scheduled_change",
    begins=NOON + timedelta(hours=1),
    budgeted=True,
    replaced=True,
    evicts=NOON + timedelta(hours=23),
    ends=NOON + timedelta(hours=24),
)
REBALANCE = Interruption("rebalance_recommendation", replaced=True)
BROKEN = Interruption("instance_status", ends=NOON)
ALL = {one.reason: one for one in (SPOT, CHANGE, REBALANCE, BROKEN)}


@pytest.mark.parametrize("one", ALL.values(), ids=ALL)
def test_what_is_written_is_read_again(one: Interruption) -> None:
    assert interruption_of({names.INTERRUPTION_ANNOTATION: str(one)}) == one


UNREADABLE = {
    "no annotation": "",
    "no JSON": "yes",
    "no reason": "{}",
    "a time without a zone": '{"reason": "x", "ends": "2026-11-21T12:00:00"}',
    "a time that is none": '{"reason": "x", "ends": "noon"}',
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_no_interruption(text: str) -> None:
    assert interruption_of({names.INTERRUPTION_ANNOTATION: text}) is None


@pytest.mark.parametrize("one", ALL.values(), ids=ALL)
def test_told_twice_nothing_changes(one: Interruption) -> None:
    assert merged(None, one) == one
    assert merged(one, one) == one


MERGES: dict[str, tuple[Interruption, Interruption, Interruption]] = {
    "a spot notice ends the patience of a scheduled change": (
        CHANGE,
        SPOT,
        Interruption("spot_interrupted", replaced=True, evicts=SPOT.evicts, ends=SPOT.ends),
    ),
    "a rebalance recommendation is forgotten over a spot notice": (REBALANCE, SPOT, SPOT),
    "a broken node is not waited for": (SPOT, BROKEN, Interruption("instance_status", evicts=NOON, ends=NOON)),
}


@pytest.mark.parametrize(("known", "new", "want"), MERGES.values(), ids=MERGES)
def test_of_two_the_more_pressing_counts(known: Interruption, new: Interruption, want: Interruption) -> None:
    assert merged(known, new) == want
    assert merged(new, known) == want
