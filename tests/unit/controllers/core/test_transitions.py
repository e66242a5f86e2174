"""Conditions that change, as they are told."""

from datetime import UTC, datetime, timedelta

import pytest

from provisioner.apis.meta import Condition
from provisioner.controllers.core.transitions import Transition, transitions

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def launched(status: str, reason: str = "Launched", message: str = "", after: float = 0.0) -> Condition:
    when = NOON + timedelta(seconds=after)
    return Condition(type="Launched", status=status, reason=reason, message=message, last_transition_time=when)


STEPS: dict[str, tuple[tuple[Condition, ...], tuple[Condition, ...], list[Transition]]] = {
    "nothing new": ((launched("True"),), (launched("True"),), []),
    "another reason only": ((launched("Unknown"),), (launched("Unknown", "LaunchFailed"),), []),
    "a condition that begins unknown": ((), (launched("Unknown"),), []),
    "a condition that begins true": ((), (launched("True"),), [Transition("Unknown", launched("True"))]),
    "a change": (
        (launched("Unknown"),),
        (launched("True", after=2.5),),
        [Transition("Unknown", launched("True", after=2.5), 2.5)],
    ),
    "a condition that is gone": ((launched("True"),), (), []),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_it_is_told_of(step: tuple[tuple[Condition, ...], tuple[Condition, ...], list[Transition]]) -> None:
    old, new, told = step
    assert list(transitions(old, new)) == told


SENTENCES = {
    "without a message": (
        Transition("Unknown", launched("True")),
        "Status condition transitioned, Type: Launched, Status: Unknown -> True, Reason: Launched",
    ),
    "with a message that says more": (
        Transition("True", launched("False", "Gone", "it ended")),
        "Status condition transitioned, Type: Launched, Status: True -> False, Reason: Gone, Message: it ended",
    ),
    "with a message that only repeats the reason": (
        Transition("Unknown", launched("True", message="Launched")),
        "Status condition transitioned, Type: Launched, Status: Unknown -> True, Reason: Launched",
    ),
}


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES.keys())
def test_the_sentence(sentence: tuple[Transition, str]) -> None:
    transition, text = sentence
    assert str(transition) == text
