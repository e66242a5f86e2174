from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import ec2
from provisioner.ec2.access.errors import classify
from provisioner.ec2.instances.instances import Ec2Instance
from provisioner.ec2.launch import recovery
from provisioner.ec2.launch.fleet import FleetAnswer, FleetRefused, Launched
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.launch.recovery import (
    PATIENCE_SECONDS,
    REPEAT_SECONDS,
    TOKEN_SECONDS,
    Evidence,
    RecoveryStep,
)
from provisioner.ec2.market.unavailable_offerings import OfferingKey

ALL = frozenset(range(4))


@dataclass(frozen=True)
class Case:
    known: Evidence
    want: RecoveryStep


STEPS = {
    "nothing is seen of a whole launch": Case(Evidence(ALL), RecoveryStep.REPEAT),
    "all is seen": Case(Evidence(ALL, seen=4), RecoveryStep.DEAL),
    "all of a launch of which claims are gone": Case(Evidence(frozenset({0, 3}), seen=4), RecoveryStep.DEAL),
    "silence is no answer after ten seconds": Case(
        Evidence(ALL, quiet_seconds=11, searched_seconds=11), RecoveryStep.REPEAT
    ),
    "nor after a minute, but the call is not repeated any more": Case(
        Evidence(ALL, quiet_seconds=61, searched_seconds=REPEAT_SECONDS), RecoveryStep.WAIT
    ),
    "silence for minutes is one": Case(Evidence(ALL, quiet_seconds=PATIENCE_SECONDS), RecoveryStep.DEAL),
    "a part for minutes is all there is": Case(
        Evidence(ALL, seen=2, quiet_seconds=PATIENCE_SECONDS), RecoveryStep.DEAL
    ),
    "a part may be repeated": Case(Evidence(ALL, seen=2, youngest_seconds=20), RecoveryStep.REPEAT),
    "not where its token may have expired": Case(
        Evidence(ALL, seen=2, youngest_seconds=TOKEN_SECONDS), RecoveryStep.WAIT
    ),
    "a repetition that did not tell is not tried again": Case(Evidence(ALL, told=True), RecoveryStep.WAIT),
    "a launch of which claims are gone cannot be repeated": Case(Evidence(frozenset({0, 2})), RecoveryStep.WAIT),
    "unless this process knows the call": Case(Evidence(frozenset({0, 2}), ordered=3), RecoveryStep.REPEAT),
    "a launch that was never committed is not repeated": Case(Evidence(frozenset({1, 2})), RecoveryStep.WAIT),
    "and not waited for for long": Case(Evidence(frozenset({1, 2}), quiet_seconds=10), RecoveryStep.DEAL),
    "unless something of it is seen": Case(Evidence(frozenset({1, 2}), seen=1, quiet_seconds=10), RecoveryStep.WAIT),
    "nobody carries its mark": Case(Evidence(frozenset()), RecoveryStep.DEAL),
}


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
def test_next_step(case: Case) -> None:
    assert recovery.next_step(case.known) is case.want


@given(
    st.sets(st.integers(0, 9), min_size=1),
    st.integers(0, 9),
    st.floats(0, 400),
    st.floats(0, 400),
    st.booleans(),
)
def test_nothing_that_may_have_been_sent_is_launched_anew_before_minutes_of_silence(
    ordinals: set[int], seen: int, quiet: float, searched: float, told: bool
) -> None:
    known = Evidence(frozenset({0, *ordinals}), 0, seen, quiet, searched, told=told)
    if seen < known.total and quiet < PATIENCE_SECONDS:
        assert recovery.next_step(known) is not RecoveryStep.DEAL


def launched(count: int) -> tuple[Launched, ...]:
    return tuple(Launched(f"i-{number}", "m5.large", "a", "s", "ami", "spot") for number in range(count))


WHY = (FleetRefused(classify("InsufficientInstanceCapacity"), OfferingKey("spot", "m5.large", "a")),)
TELLING = {
    "the first answer, with nothing in it": (FleetAnswer((), ()), False, True),
    "a repeated one with nothing in it": (FleetAnswer((), ()), True, False),
    "a repeated one with all": (FleetAnswer(launched(3), ()), True, True),
    "a repeated one with a part": (FleetAnswer(launched(2), ()), True, False),
    "a repeated one with a part, and why": (FleetAnswer(launched(2), WHY), True, True),
    "a repeated one that says why there is nothing": (FleetAnswer((), WHY), True, True),
}


@pytest.mark.parametrize(("found", "repeated", "want"), TELLING.values(), ids=TELLING)
def test_which_answers_tell(found: FleetAnswer, repeated: bool, want: bool) -> None:
    assert recovery.tells(found, 3, repeated=repeated) is want


def instance(name: str, owner: str = "") -> Ec2Instance:
    return Ec2Instance(name, "running", "m5.large", "a", "spot", tags={ec2.NODECLAIM_TAG: owner} if owner else {})


def test_what_is_written_down_outweighs_a_tag() -> None:
    held = recovery.held_by([("a", "i-1"), ("b", "")], [instance("i-1", "b"), instance("i-2", "b"), instance("i-3")])
    assert held == {"i-1": "a", "i-2": "b"}


MARKS = {Mark("b", 1, 0): "a", Mark("b", 1, 1): "b", Mark("b", 1, 2): "c"}


@dataclass(frozen=True)
class Dealt:
    seen: str
    held: dict[str, str]
    want: dict[str, str]


SHARES = {
    "by ordinal": Dealt("1 2 3", {}, {"a": "i-1", "b": "i-2", "c": "i-3"}),
    "what a claim of the launch has is its own": Dealt("1 2 3", {"i-3": "a"}, {"a": "i-3", "b": "i-2"}),
    "what a claim outside has is nobody else's": Dealt("1 2 3", {"i-2": "other"}, {"a": "i-1", "c": "i-3"}),
    "one that EC2 has forgotten moves the others; tags put them right": Dealt(
        "1 3", {"i-1": "a", "i-3": "c"}, {"a": "i-1", "c": "i-3"}
    ),
    "one that is gone, the others written down": Dealt("1 3", {"i-3": "c"}, {"a": "i-1", "c": "i-3"}),
    "a claim whose instance is of another launch": Dealt("1 2 3", {"i-9": "b"}, {"a": "i-1", "b": "i-2", "c": "i-3"}),
}


@pytest.mark.parametrize("case", SHARES.values(), ids=SHARES)
def test_shares(case: Dealt) -> None:
    found = recovery.shares(MARKS, [f"i-{one}" for one in case.seen.split()], case.held)
    assert {MARKS[mark]: one for mark, one in found.items()} == case.want


@given(
    st.sets(st.sampled_from([f"i-{number}" for number in range(6)])),
    st.dictionaries(st.sampled_from([f"i-{number}" for number in range(6)]), st.sampled_from(["a", "b", "c", "other"])),
)
def test_no_instance_goes_to_two_claims_nor_from_one_to_another(seen: set[str], held: dict[str, str]) -> None:
    found = recovery.shares(MARKS, seen, held)
    assert len(set(found.values())) == len(found)
    assert set(found.values()) <= seen
    assert all(held.get(one, MARKS[mark]) == MARKS[mark] for mark, one in found.items())
