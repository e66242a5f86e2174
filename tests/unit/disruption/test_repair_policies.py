"""Which conditions mean a broken node, since when, and what is done about it: Karpenter 1.15 spec 3.1."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.meta import Condition
from provisioner.cloudprovider.kwok.provider import _REPAIRS as KWOK
from provisioner.cloudprovider.types import RepairAction, RepairPolicy
from provisioner.disruption.repair_policies import MOST_REASON, SEEN, Illness, RepairPolicySet
from provisioner.ec2.provider import _LEGACY_REPAIRS, _REPAIRS
from tests.support.clock import NOON

GPU = "AcceleratedHardwareReady"
AWS = RepairPolicySet(_REPAIRS)
OLD = NOON - timedelta(days=1)
MINUTE, HALF = timedelta(minutes=1), timedelta(minutes=30)


def said(kind: str, status: str = "False", reason: str = "", *, minutes: float = 60) -> Condition:
    at = NOON - timedelta(minutes=minutes)
    return Condition(type=kind, status=status, reason=reason, last_transition_time=at)


def illness(*conditions: Condition, of: RepairPolicySet = AWS, created: datetime = OLD) -> Illness | None:
    return of.illness([(one, NOON - timedelta(hours=2)) for one in conditions], created)


@pytest.mark.parametrize("policies", [_REPAIRS, KWOK], ids=["aws", "kwok"])
def test_the_policies_of_a_provider_are_a_set_with_a_fallback(policies: tuple[RepairPolicy, ...]) -> None:
    RepairPolicySet(policies)
    (fallback,) = (one for one in policies if not one.reason_regex)
    assert fallback.action is RepairAction.REPLACE
    assert all(one.termination_grace_period is not None for one in policies), "every drain is bounded"


def test_legacy_policies_know_no_reasons() -> None:
    RepairPolicySet(_LEGACY_REPAIRS)
    assert {one.reason_regex for one in _LEGACY_REPAIRS} == {".*"}
    assert len(_LEGACY_REPAIRS) == 7


REASONS: dict[str, tuple[Condition, tuple[float, float] | None]] = {
    "not ready": (said(names.READY), (30, 10)),
    "unknown": (said(names.READY, "Unknown"), (30, 10)),
    "ready": (said(names.READY, "True"), None),
    "a GPU error that a reboot may help": (said(GPU, reason="NvidiaXID46Error"), (10, 5)),
    "a fatal GPU error": (said(GPU, reason="NvidiaXID79Error"), (10, 5)),
    "a GPU error that nobody lists": (said(GPU, reason="NvidiaXID31Error"), (30, 10)),
    "one whose number only begins so": (said(GPU, reason="NvidiaXID460Error"), (30, 10)),
    "no reason": (said(GPU), (30, 10)),
    "storage": (said("StorageReady"), (30, 10)),
    "a condition that nobody knows": (said("OddReady"), None),
    "another status": (said("StorageReady", "Unknown"), None),
    "a reason beyond what is looked at": (said(GPU, reason="x" * MOST_REASON + "XID79"), (30, 10)),
}


@pytest.mark.parametrize(("condition", "want"), REASONS.values(), ids=REASONS)
def test_aws_policies(condition: Condition, want: tuple[float, float] | None) -> None:
    found = illness(condition)
    if want is None:
        assert found is None
        return
    assert found is not None
    (one,) = found.matches
    minutes = (one.policy.toleration / MINUTE, (one.policy.termination_grace_period or timedelta(0)) / MINUTE)
    assert minutes == want
    assert (one.kind, one.status) == (condition.type, condition.status)


def test_the_fallback_is_for_every_condition_that_a_policy_names() -> None:
    """Whatever key it was declared for."""
    policies = (
        RepairPolicy("A", "False", MINUTE, "x"),
        RepairPolicy("B", "False", HALF, ""),
    )
    found = illness(said("A", reason="y"), of=RepairPolicySet(policies))
    assert found is not None
    assert [(one.kind, one.policy.condition_type) for one in found.matches] == [("A", "B")]


def test_a_policy_that_tolerates_still_leaves_nothing_to_the_fallback() -> None:
    policies = (RepairPolicy("A", "False", 5 * HALF, "x"), RepairPolicy("A", "False", MINUTE, ""))
    found = illness(said("A", reason="x"), of=RepairPolicySet(policies))
    assert found is not None
    assert found.choice(NOON) is None


WRONG = {
    "no type": RepairPolicy("", "False", MINUTE),
    "no status": RepairPolicy("A", "Maybe", MINUTE),
    "a negative toleration": RepairPolicy("A", "False", -MINUTE),
    "a negative grace period": RepairPolicy("A", "False", MINUTE, termination_grace_period=-MINUTE),
    "too high a priority": RepairPolicy("A", "False", MINUTE, priority=101),
    "a fallback that reboots": RepairPolicy("A", "False", MINUTE, "", action=RepairAction.REBOOT),
}


@pytest.mark.parametrize("policy", WRONG.values(), ids=WRONG)
def test_a_set_that_contradicts_itself_is_refused(policy: RepairPolicy) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        RepairPolicySet((policy,))


def test_two_fallbacks_are_refused() -> None:
    with pytest.raises(ValueError, match="fallback"):
        RepairPolicySet((RepairPolicy("A", "False", MINUTE, ""), RepairPolicy("B", "False", MINUTE, "")))


TIMES: dict[str, tuple[datetime | None, timedelta, timedelta]] = {
    "as it says": (NOON - 3 * MINUTE, 10 * MINUTE, 27 * MINUTE),
    "no longer than the Node exists": (NOON - timedelta(days=9), 5 * MINUTE, 25 * MINUTE),
    "since it was seen, where it says nothing": (None, 10 * MINUTE, 28 * MINUTE),
    "since it was seen, where its time lies ahead": (NOON + timedelta(days=9), 10 * MINUTE, 28 * MINUTE),
    "of the first year": (datetime.min.replace(tzinfo=UTC), 5 * MINUTE, 25 * MINUTE),
    "of the last year": (datetime.max.replace(tzinfo=UTC), 10 * MINUTE, 28 * MINUTE),
    "of no zone": (datetime(2020, 1, 1), 10 * MINUTE, 28 * MINUTE),  # noqa: DTZ001 - what a kubelet may write
}


@pytest.mark.parametrize(("at", "age", "left"), TIMES.values(), ids=TIMES)
def test_since_when(at: datetime | None, age: timedelta, left: timedelta) -> None:
    """The condition was first seen two minutes ago."""
    one = Condition(type=names.READY, status="False", last_transition_time=at)
    found = AWS.illness([(one, NOON - 2 * MINUTE)], NOON - age)
    assert found is not None
    assert found.due_at == NOON + left


def test_of_many_conditions_of_one_type_the_first_counts() -> None:
    assert illness(said(names.READY, "True"), *[said(names.READY)] * 1000) is None


POLICIES = st.lists(
    st.builds(
        RepairPolicy,
        st.sampled_from("ABC"),
        st.sampled_from(("True", "False")),
        st.sampled_from((timedelta(0), MINUTE, HALF)),
        st.sampled_from((".*", "x", "y")),
        st.sampled_from((None, timedelta(0), MINUTE)),
        st.integers(0, 3),
        st.sampled_from(RepairAction),
    ),
    max_size=6,
)
MINUTES = st.sampled_from((-1e6, -60.0, 0.0, 0.5, 2.0, 31.0, 1e6))
CONDITIONS = st.lists(
    st.builds(
        said,
        st.sampled_from("ABC"),
        st.sampled_from(("True", "False")),
        st.sampled_from(("", "x", "y", "xy")),
        minutes=MINUTES,
    ),
    max_size=5,
)
SEEN_AGO = st.sampled_from((timedelta(0), MINUTE / 2, HALF, timedelta(days=1)))


@given(policies=POLICIES, conditions=CONDITIONS, ago=SEEN_AGO, created=MINUTES, fallback=st.booleans())
def test_one_match_is_chosen_and_no_other_of_those_that_are_due_comes_before_it(
    policies: list[RepairPolicy], conditions: list[Condition], ago: timedelta, created: float, fallback: bool
) -> None:
    every = [*policies, RepairPolicy("A", "False", MINUTE, "")] if fallback else policies
    seen = NOON - ago
    found = RepairPolicySet(every).illness([(one, seen) for one in conditions], NOON - timedelta(minutes=created))
    if found is None:
        return
    assert found.matches
    for one in found.matches:
        assert seen + min(one.policy.toleration, SEEN) <= one.eligible_at <= seen + one.policy.toleration
    choice = found.choice(NOON)
    due = [one for one in found.matches if one.eligible_at <= NOON]
    assert (choice is None) is (not due) is (found.due_at > NOON)
    if choice is None:
        return
    assert choice.match in due
    for other in due:
        mine, others = choice.match.policy, other.policy
        assert not (mine.action is RepairAction.REBOOT and others.action is RepairAction.REPLACE)
        if mine.action is others.action:
            assert mine.priority >= others.priority
            if mine.priority == others.priority:
                assert choice.match.eligible_at <= other.eligible_at
        if others.termination_grace_period is not None:
            assert choice.grace is not None
            assert choice.grace <= others.termination_grace_period
    assert choice.score >= 0


@given(policies=POLICIES, conditions=CONDITIONS, order=st.randoms())
def test_the_order_of_policies_and_of_conditions_of_different_types_changes_no_choice(
    policies: list[RepairPolicy], conditions: list[Condition], order: object
) -> None:
    distinct = list({one.type: one for one in conditions}.values())
    found = illness(*distinct, of=RepairPolicySet(policies))
    mixed, other = list(policies), list(distinct)
    order.shuffle(mixed)  # type: ignore[attr-defined]
    order.shuffle(other)  # type: ignore[attr-defined]
    again = illness(*other, of=RepairPolicySet(mixed))
    assert (found is None) is (again is None)
    if found is None or again is None:
        return
    one, two = found.choice(NOON), again.choice(NOON)
    assert (one is None) is (two is None)
    if one is not None and two is not None:
        assert (one.match.order, one.grace, one.score) == (two.match.order, two.grace, two.score)


@given(policies=POLICIES, conditions=CONDITIONS, later=st.sampled_from((MINUTE, HALF)))
def test_who_is_due_stays_due_and_gains(
    policies: list[RepairPolicy], conditions: list[Condition], later: timedelta
) -> None:
    found = illness(*conditions, of=RepairPolicySet(policies))
    if found is None or (now := found.choice(NOON)) is None:
        return
    then = found.choice(NOON + later)
    assert then is not None
    assert then.score > now.score
