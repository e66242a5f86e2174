"""What the status of a ProvisioningRequest says: the table of conditions, and laws of every sequence of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.meta import ObjectMeta, condition, is_true
from provisioner.apis.provisioning_request import (
    ATOMIC,
    BEST_EFFORT_ATOMIC,
    CHECK_CAPACITY,
    CLASSES,
    MOST_PODS,
    ProvisioningRequest,
    ProvisioningRequestSpec,
    RequestedPods,
    RequestedTemplate,
    beyond_bounds,
    valid_for,
)
from provisioner.requests.decisions import (
    BOOKED_FOR,
    EXPIRES_AFTER,
    LOST_AFTER,
    SCHEDULABLE,
    TEMPLATES_WITHIN,
    RequestFacts,
    RequestPhase,
    RoomFound,
    TemplateProblem,
    counts_of,
    decide,
    phase_of,
)

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def request(
    klass: str = CHECK_CAPACITY, counts: tuple[int, ...] = (2, 3), parameters: Mapping[str, str] | None = None
) -> ProvisioningRequest:
    sets = tuple(
        RequestedPods(pod_template_ref=RequestedTemplate(name=f"t{n}"), count=count) for n, count in enumerate(counts)
    )
    return ProvisioningRequest(
        metadata=ObjectMeta(name="r", namespace="a", uid="u", creation_timestamp=NOON, generation=1),
        spec=ProvisioningRequestSpec(pod_sets=sets, provisioning_class_name=klass, parameters=dict(parameters or {})),
    )


def after(one: ProvisioningRequest, facts: RequestFacts, now: datetime = NOON) -> ProvisioningRequest:
    decision = decide(one, facts, now)
    status = msgspec.structs.replace(
        one.status, conditions=decision.conditions, provisioning_class_details=dict(decision.details)
    )
    return msgspec.structs.replace(one, status=status)


ROOM = RequestFacts(found=RoomFound(places=(2, 3), nodes=frozenset({"x", "y"})))
LESS = RequestFacts(found=RoomFound(places=(2, 0), why="no node fits"))
NONE = RequestFacts(found=RoomFound(places=(0, 0), why="no node fits"))
MISSING = RequestFacts(problem=TemplateProblem.MISSING, explanation="PodTemplate t0 does not exist")
INVALID = RequestFacts(problem=TemplateProblem.INVALID, explanation="refused")


@dataclass(frozen=True)
class Row:
    """One row: what is asked, what is known, and the condition that follows (its reason), with its status; "" for none but Accepted."""

    facts: RequestFacts
    want: tuple[str, str, str] | None
    klass: str = CHECK_CAPACITY
    parameters: tuple[tuple[str, str], ...] = ()
    age: timedelta = timedelta()


ROWS = {
    "nothing known yet": Row(RequestFacts(), None),
    "there is room": Row(ROOM, ("Provisioned", "True", "CapacityIsFound")),
    "there is too little room": Row(LESS, ("Provisioned", "False", "CapacityIsNotFound")),
    "there is too little room, once": Row(
        LESS, ("Failed", "True", "CapacityIsNotFound"), parameters=(("noRetry", "true"),)
    ),
    "noRetry says something else": Row(
        LESS, ("Provisioned", "False", "CapacityIsNotFound"), parameters=(("noRetry", "yes"),)
    ),
    "part of it is booked": Row(
        LESS, ("Provisioned", "True", "PartialCapacityIsFound"), parameters=(("partialCapacityCheck", "bookPartial"),)
    ),
    "part of it is told": Row(
        LESS, ("Provisioned", "False", "PartialCapacityIsFound"), parameters=(("partialCapacityCheck", "checkOnly"),)
    ),
    "an unknown mode is none": Row(
        LESS, ("Provisioned", "False", "CapacityIsNotFound"), parameters=(("partialCapacityCheck", "some"),)
    ),
    "no part fits": Row(
        NONE, ("Provisioned", "False", "CapacityIsNotFound"), parameters=(("partialCapacityCheck", "bookPartial"),)
    ),
    "no part fits, once": Row(
        NONE,
        ("Failed", "True", "CapacityIsNotFound"),
        parameters=(("partialCapacityCheck", "bookPartial"), ("noRetry", "true")),
    ),
    "there was no time": Row(
        RequestFacts(found=RoomFound(late=True)), ("Provisioned", "False", "FailedToCheckCapacity")
    ),
    "a bound of ours": Row(
        RequestFacts(found=RoomFound(limited="too many")), ("Provisioned", "False", "FailedToCheckCapacity")
    ),
    "there was no time, and noRetry": Row(
        RequestFacts(found=RoomFound(late=True)),
        ("Provisioned", "False", "FailedToCheckCapacity"),
        parameters=(("noRetry", "true"),),
    ),
    "a template is to come": Row(MISSING, None),
    "a template does not come": Row(MISSING, ("Failed", "True", "FailedToCreatePods"), age=TEMPLATES_WITHIN),
    "a template makes no pods": Row(INVALID, ("Failed", "True", "FailedToCreatePods")),
    "a week is over": Row(NONE, ("Failed", "True", "Expired"), age=EXPIRES_AFTER),
    "ValidUntilSeconds is over": Row(
        NONE,
        ("Failed", "True", "Expired"),
        BEST_EFFORT_ATOMIC,
        (("ValidUntilSeconds", "30"),),
        timedelta(seconds=30),
    ),
    "ValidUntilSeconds is not over": Row(
        NONE,
        ("Provisioned", "False", "CapacityIsNotFound"),
        ATOMIC,
        (("ValidUntilSeconds", "30"),),
        timedelta(seconds=29),
    ),
    "a check knows no ValidUntilSeconds": Row(
        NONE,
        ("Provisioned", "False", "CapacityIsNotFound"),
        parameters=(("ValidUntilSeconds", "30"),),
        age=timedelta(seconds=30),
    ),
    "nodes are still to be launched": Row(
        RequestFacts(found=RoomFound((2, 3), frozenset("xyz"), coming=1, unready=2)),
        ("Provisioned", "False", "CapacityIsComing"),
        BEST_EFFORT_ATOMIC,
    ),
    "all nodes are launched": Row(
        RequestFacts(found=RoomFound((2, 3), frozenset("xyz"), coming=0, unready=2)),
        ("Provisioned", "True", "CapacityIsProvisioned"),
        BEST_EFFORT_ATOMIC,
    ),
    "all nodes are launched, not ready": Row(
        RequestFacts(found=RoomFound((2, 3), frozenset("xyz"), coming=0, unready=2)),
        ("Provisioned", "False", "CapacityIsComing"),
        ATOMIC,
    ),
    "all nodes are ready": Row(
        RequestFacts(found=RoomFound((2, 3), frozenset("xyz"))),
        ("Provisioned", "True", "CapacityIsProvisioned"),
        ATOMIC,
    ),
    "no nodes can be had": Row(NONE, ("Provisioned", "False", "CapacityIsNotFound"), BEST_EFFORT_ATOMIC),
    "noRetry is of the other class": Row(
        NONE, ("Provisioned", "False", "CapacityIsNotFound"), BEST_EFFORT_ATOMIC, (("noRetry", "true"),)
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_an_open_request(row: Row) -> None:
    one = after(request(row.klass, parameters=dict(row.parameters)), row.facts, NOON + row.age)
    found = {(c.type, c.status, c.reason) for c in one.status.conditions}
    assert found == {("Accepted", "True", "Accepted"), *([row.want] if row.want else [])}
    assert decide(one, row.facts, NOON + row.age).conditions == one.status.conditions


BOOKED = after(request(), ROOM)
ENDS = {
    "it runs on": (RequestFacts(bound=4), timedelta(), None),
    "its pods run": (RequestFacts(bound=5), timedelta(), ("BookingExpired", "CapacityBookingConsumed")),
    "ten minutes are over": (RequestFacts(bound=4), BOOKED_FOR, ("BookingExpired", "CapacityReservationTimeExpired")),
    "not quite": (RequestFacts(bound=4), BOOKED_FOR - timedelta(seconds=1), None),
    "its room is lost": (
        RequestFacts(lost=LOST_AFTER),
        timedelta(),
        ("BookingExpired", "CapacityReservationTimeExpired"),
    ),
    "for a moment": (RequestFacts(lost=LOST_AFTER - timedelta(seconds=1)), timedelta(), None),
    "no pods can be made": (INVALID, timedelta(), ("Failed", "FailedToBookCapacity")),
}


@pytest.mark.parametrize(("facts", "age", "want"), ENDS.values(), ids=ENDS)
def test_a_booking_ends(facts: RequestFacts, age: timedelta, want: tuple[str, str] | None) -> None:
    found = after(BOOKED, facts, NOON + age)
    over = [(c.type, c.reason) for c in found.status.conditions if c.type not in {"Accepted", "Provisioned"}]
    assert over == ([want] if want else [])
    assert is_true(found.status.conditions, names.PROVISIONED)
    assert phase_of(found) is (RequestPhase.OVER if want else RequestPhase.BOOKED)


def test_what_is_over_is_deleted_after_a_week() -> None:
    over = after(BOOKED, RequestFacts(bound=5), NOON + timedelta(hours=1))
    assert not decide(over, ROOM, NOON + EXPIRES_AFTER).delete
    found = decide(over, ROOM, NOON + timedelta(hours=1) + EXPIRES_AFTER)
    assert found.delete
    assert found.conditions is over.status.conditions


def test_a_part_that_is_booked_is_all_that_room_is_kept_for() -> None:
    one = after(request(parameters={"partialCapacityCheck": "bookPartial"}), LESS)
    assert one.status.provisioning_class_details == {SCHEDULABLE: '["t0"]'}
    assert counts_of(one) == (2, 0)
    assert phase_of(after(one, RequestFacts(bound=2))) is RequestPhase.OVER


def test_a_part_is_forgotten_when_it_is_gone() -> None:
    one = after(request(parameters={"partialCapacityCheck": "checkOnly"}), LESS)
    assert SCHEDULABLE in one.status.provisioning_class_details
    assert after(one, NONE).status.provisioning_class_details == {}


@pytest.mark.parametrize("counts", [(), (0,), (1,) * 33, (MOST_PODS, 1), (-5,)])
def test_bounds(counts: tuple[int, ...]) -> None:
    one = request(counts=counts)
    assert beyond_bounds(one)
    found = condition(after(one, ROOM).status.conditions, names.FAILED)
    assert found is not None
    assert found.reason == "FailedToCreatePods"


def test_bounds_of_parameters() -> None:
    assert not beyond_bounds(request(parameters={f"p{n}": "x" * 255 for n in range(100)}))
    assert beyond_bounds(request(parameters={f"p{n}": "" for n in range(101)}))
    assert beyond_bounds(request(parameters={"p": "x" * 256}))


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "1" * 10, "٣"])
def test_a_time_that_cannot_be_read_is_none(text: str) -> None:
    assert valid_for({"ValidUntilSeconds": text}) is None


FACTS = st.builds(
    RequestFacts,
    problem=st.sampled_from([None, *TemplateProblem]),
    explanation=st.just("x"),
    found=st.none()
    | st.builds(
        RoomFound,
        places=st.sampled_from([(0, 0), (2, 0), (0, 3), (2, 3)]),
        nodes=st.just(frozenset("xy")),
        coming=st.integers(0, 2),
        unready=st.integers(0, 2),
        late=st.booleans(),
        limited=st.sampled_from(["", "", "x"]),
    ),
    bound=st.integers(0, 5),
    lost=st.none() | st.just(LOST_AFTER),
)
STEPS = st.lists(st.tuples(FACTS, st.sampled_from([1, 60, 600, 86400 * 7])), max_size=6)
PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "noRetry": st.sampled_from(["true", "false"]),
        "partialCapacityCheck": st.sampled_from(["bookPartial", "checkOnly"]),
        "ValidUntilSeconds": st.sampled_from(["1", "3600"]),
    },
)


@given(klass=st.sampled_from(CLASSES), parameters=PARAMETERS, steps=STEPS)
def test_laws(klass: str, parameters: dict[str, str], steps: list[tuple[RequestFacts, int]]) -> None:
    """Conditions are never taken back: what is True stays, what is over stays so, and BookingExpired comes after Provisioned alone."""
    one, now = request(klass, parameters=parameters), NOON
    for facts, seconds in steps:
        before, now = one, now + timedelta(seconds=seconds)
        one = after(before, facts, now)
        true = {c.type for c in one.status.conditions if c.status == "True"}
        assert {c.type for c in before.status.conditions if c.status == "True"} <= true
        assert "Accepted" in true
        assert "CapacityRevoked" not in true
        assert "BookingExpired" not in true or "Provisioned" in true
        if phase_of(before) is RequestPhase.OVER:
            assert one.status == before.status
        again = decide(one, replace(facts), now)
        assert phase_of(before) is not phase_of(one) or again.conditions == one.status.conditions
