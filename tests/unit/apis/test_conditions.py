"""Conditions: what kubectl shows after each step of an object's life."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.conditions import (
    AWAITING_MESSAGE,
    CLAIM_CONDITIONS,
    OVERLAY_CONDITIONS,
    POOL_CONDITIONS,
    ConditionChangedError,
    ConditionSet,
)
from provisioner.apis.meta import Condition, condition

CREATED = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
NEW = CLAIM_CONDITIONS.initialise((), generation=1, created=CREATED)


def test_a_message_is_no_longer_than_the_api_server_takes() -> None:
    found = condition(
        CLAIM_CONDITIONS.set(NEW, "Drained", "Unknown", "Draining", "x" * 32_769, generation=1, now=CREATED), "Drained"
    )
    assert found is not None
    assert found.message == "x" * 32_768


def later(seconds: float) -> datetime:
    return CREATED + timedelta(seconds=seconds)


def after(*steps: tuple[str, str], generation: int = 1) -> tuple[Condition, ...]:
    """A claim whose conditions were set one after the other, a second apart."""
    conditions = NEW
    for second, (kind, status) in enumerate(steps, start=1):
        conditions = CLAIM_CONDITIONS.set(conditions, kind, status, generation=generation, now=later(second))
    return conditions


def root(conditions: tuple[Condition, ...]) -> tuple[str, str, str]:
    ready = condition(conditions, "Ready")
    assert ready is not None
    return ready.status, ready.reason, ready.message


def test_a_new_claim_waits_for_everything() -> None:
    assert [one.type for one in NEW] == ["Launched", "Registered", "Initialized", "Ready"]
    for one in NEW[:3]:
        assert (one.status, one.reason, one.message) == ("Unknown", "AwaitingReconciliation", AWAITING_MESSAGE)
        assert (one.last_transition_time, one.observed_generation) == (CREATED, 1)
    assert root(NEW) == (
        "Unknown",
        "ReconcilingDependents",
        "Launched=Unknown, Registered=Unknown, Initialized=Unknown",
    )


def test_initialising_twice_changes_nothing() -> None:
    assert CLAIM_CONDITIONS.initialise(NEW, generation=2, created=later(9)) is NEW


def test_initialising_keeps_what_is_there() -> None:
    launched = Condition(type="Launched", status="True", reason="Launched", last_transition_time=later(5))
    conditions = CLAIM_CONDITIONS.initialise((launched,), generation=1, created=CREATED)
    assert condition(conditions, "Launched") == launched
    assert condition(conditions, "Registered") is not None


STEPS: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, str, str]]] = {
    "launched": (
        (("Launched", "True"),),
        ("Unknown", "ReconcilingDependents", "Registered=Unknown, Initialized=Unknown"),
    ),
    "all true": (
        (("Launched", "True"), ("Registered", "True"), ("Initialized", "True")),
        ("True", "Ready", ""),
    ),
    "one false, newest first": (
        (("Launched", "True"), ("Registered", "False")),
        ("False", "UnhealthyDependents", "Registered=False, Initialized=Unknown"),
    ),
    "false and healed": (
        (("Launched", "True"), ("Registered", "False"), ("Registered", "True"), ("Initialized", "True")),
        ("True", "Ready", ""),
    ),
    "an independent one has no say": (
        (("Launched", "True"), ("Registered", "True"), ("Initialized", "True"), ("Drifted", "False")),
        ("True", "Ready", ""),
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_root_follows(name: str) -> None:
    steps, want = STEPS[name]
    assert root(after(*steps)) == want


def test_a_true_condition_is_named_after_itself() -> None:
    launched = condition(after(("Launched", "True")), "Launched")
    assert launched is not None
    assert (launched.reason, launched.message) == ("Launched", "")


def test_the_root_is_last_and_the_others_stand_by_time() -> None:
    conditions = after(("Registered", "True"), ("Drifted", "True"), ("Launched", "True"))
    assert [one.type for one in conditions] == ["Initialized", "Registered", "Drifted", "Launched", "Ready"]


def test_the_same_status_keeps_its_time_and_takes_the_new_reason() -> None:
    first = CLAIM_CONDITIONS.set(NEW, "Drifted", "False", "A", "m", generation=1, now=later(1))
    second = CLAIM_CONDITIONS.set(first, "Drifted", "False", "B", "n", generation=2, now=later(9))
    drifted = condition(second, "Drifted")
    assert drifted == Condition(
        type="Drifted", status="False", reason="B", message="n", last_transition_time=later(1), observed_generation=2
    )


def test_setting_the_same_again_gives_the_same_tuple() -> None:
    conditions = after(("Launched", "True"))
    assert CLAIM_CONDITIONS.set(conditions, "Launched", "True", generation=1, now=later(60)) is conditions


def test_times_are_whole_seconds() -> None:
    conditions = CLAIM_CONDITIONS.set(NEW, "Drifted", "True", generation=1, now=later(1.75))
    drifted = condition(conditions, "Drifted")
    assert drifted is not None
    assert drifted.last_transition_time == later(1)


def test_what_was_true_of_an_older_generation_is_not_enough() -> None:
    done = after(("Launched", "True"), ("Registered", "True"), ("Initialized", "True"))
    conditions = CLAIM_CONDITIONS.set(done, "Launched", "True", generation=2, now=later(9))
    assert root(conditions) == ("Unknown", "ReconcilingDependents", "Initialized=True, Registered=True")


def test_what_was_false_of_an_older_generation_does_not_fail_the_root() -> None:
    failed = after(("Registered", "False"))
    conditions = CLAIM_CONDITIONS.set(failed, "Launched", "True", generation=2, now=later(9))
    assert root(conditions)[:2] == ("Unknown", "ReconcilingDependents")


def test_a_missing_dependent_counts_as_unknown() -> None:
    conditions = CLAIM_CONDITIONS.set((), "Launched", "True", generation=1, now=later(1))
    assert root(conditions) == ("Unknown", "ReconcilingDependents", "Registered=Unknown, Initialized=Unknown")


def test_an_independent_condition_is_cleared() -> None:
    conditions = CLAIM_CONDITIONS.clear(after(("Drifted", "True")), "Drifted")
    assert condition(conditions, "Drifted") is None
    assert CLAIM_CONDITIONS.clear(conditions, "Drifted") is conditions


@pytest.mark.parametrize("kind", ["Ready", "Launched"])
def test_the_root_and_its_dependents_are_not_cleared(kind: str) -> None:
    with pytest.raises(ValueError, match=kind):
        CLAIM_CONDITIONS.clear(NEW, kind)


def test_registration_health_does_not_gate_a_pool() -> None:
    conditions = POOL_CONDITIONS.initialise((), generation=1, created=CREATED)
    for kind, status in (
        ("ValidationSucceeded", "True"),
        ("NodeClassReady", "True"),
        ("NodeRegistrationHealthy", "False"),
    ):
        conditions = POOL_CONDITIONS.set(conditions, kind, status, generation=1, now=later(1))
    assert root(conditions) == ("True", "Ready", "")


def test_an_overlay_is_ready_when_it_is_valid() -> None:
    conditions = OVERLAY_CONDITIONS.set(
        (), "ValidationSucceeded", "False", "Conflict", "same weight", generation=1, now=later(1)
    )
    assert root(conditions) == ("False", "UnhealthyDependents", "ValidationSucceeded=False: same weight")


CLASS = ConditionSet("Ready", ("SubnetsReady", "GroupsReady", "ValidationSucceeded"))
LEAVES: dict[str, tuple[tuple[tuple[str, str, str, str], ...], tuple[str, str] | None]] = {
    "none where all is well": ((("SubnetsReady", "True", "", ""), ("GroupsReady", "True", "", "")), None),
    "the one that failed, not the one that waits for it": (
        (
            ("ValidationSucceeded", "False", "DependenciesNotReady", "waiting for SubnetsReady"),
            ("SubnetsReady", "False", "SubnetsNotFound", "no subnet"),
        ),
        ("SubnetsNotFound", "no subnet"),
    ),
    "every one that failed, in order of the set": (
        (
            ("GroupsReady", "False", "GroupsNotFound", "no group"),
            ("SubnetsReady", "False", "SubnetsNotFound", "no subnet"),
        ),
        ("SubnetsNotFound", "no subnet; no group"),
    ),
    "what failed before what is not known": (
        (("SubnetsReady", "Unknown", "Failed", "throttled"), ("GroupsReady", "False", "GroupsNotFound", "no group")),
        ("GroupsNotFound", "no group"),
    ),
    "what is not known where nothing failed": (
        (("SubnetsReady", "Unknown", "Failed", "throttled"),),
        ("Failed", "throttled"),
    ),
    "a reason where there are no words": ((("SubnetsReady", "False", "Broken", ""),), ("Broken", "Broken")),
    "nothing that nobody has looked at": ((), None),
}


@pytest.mark.parametrize(("set_to", "want"), LEAVES.values(), ids=LEAVES)
def test_an_object_that_is_not_ready_says_the_cause(
    set_to: tuple[tuple[str, str, str, str], ...], want: tuple[str, str] | None
) -> None:
    conditions = CLASS.initialise((), generation=1, created=CREATED)
    for second, one in enumerate(set_to):
        conditions = CLASS.set(conditions, *one, generation=1, now=later(second))
    leaf = CLASS.leaf(conditions, 1)
    assert (None if leaf is None else (leaf.reason, leaf.message)) == want
    assert root(conditions)[2].partition(": ")[2] == ("" if want is None else want[1])


def test_the_wire_form_has_every_field_that_the_api_demands() -> None:
    assert msgspec.to_builtins(NEW)[0] == {
        "type": "Launched",
        "status": "Unknown",
        "reason": "AwaitingReconciliation",
        "message": AWAITING_MESSAGE,
        "lastTransitionTime": "2026-11-21T10:00:00Z",
        "observedGeneration": 1,
    }


KINDS = ("Launched", "Registered", "Initialized", "Drifted", "Consolidatable", "DisruptionReason")
STATES = st.sampled_from([("True", "A"), ("True", "B"), ("Unknown", "C"), None])


@st.composite
def steps(draw: st.DrawFn) -> dict[str, tuple[str, str] | None]:
    """What one writer sets, or clears where that may be."""
    kinds = draw(st.sets(st.sampled_from(KINDS), max_size=4))
    return {kind: draw(STATES) or (None if kind not in KINDS[:3] else ("True", "A")) for kind in sorted(kinds)}


def changed(
    conditions: tuple[Condition, ...], wanted: dict[str, tuple[str, str] | None], at: float
) -> tuple[Condition, ...]:
    for kind, state in wanted.items():
        conditions = (
            CLAIM_CONDITIONS.clear(conditions, kind)
            if state is None
            else CLAIM_CONDITIONS.set(conditions, kind, *state, generation=1, now=later(at))
        )
    return conditions


def without_root(conditions: tuple[Condition, ...]) -> set[tuple[str, str, str]]:
    return {(one.type, one.status, one.reason) for one in conditions if one.type != "Ready"}


@given(before=steps(), ours=steps(), theirs=steps())
def test_two_writers_one_after_the_other_lose_nothing(
    before: dict[str, tuple[str, str] | None],
    ours: dict[str, tuple[str, str] | None],
    theirs: dict[str, tuple[str, str] | None],
) -> None:
    base = changed(NEW, before, 1)
    wanted, current = changed(base, ours, 5), changed(base, theirs, 3)
    touched = {kind for kind in ours if condition(base, kind) != condition(wanted, kind)}
    clash = {
        kind for kind in touched if condition(current, kind) not in (condition(base, kind), condition(wanted, kind))
    }
    if clash:
        with pytest.raises(ConditionChangedError) as caught:
            CLAIM_CONDITIONS.rebased(base, wanted, current, generation=1)
        assert caught.value.kind in clash
        return
    merged = CLAIM_CONDITIONS.rebased(base, wanted, current, generation=1)
    assert without_root(merged) == without_root(changed(current, {kind: ours[kind] for kind in touched}, 5))
    assert root(merged) == root(changed(merged, {"Drifted": None}, 9))
    assert [one.type for one in merged][-1] == "Ready"


def test_nothing_to_change_is_the_same_tuple() -> None:
    current = after(("Drifted", "True"))
    assert CLAIM_CONDITIONS.rebased(NEW, NEW, current, generation=1) is current
