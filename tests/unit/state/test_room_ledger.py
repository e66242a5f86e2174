"""The node ledger: tables and laws."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.state.room_ledger import RoomLedger
from provisioner.values.resources import EMPTY, Resources

ONE = Resources.of({"cpu": 1000, "pods": 1})
TWO = Resources.of({"cpu": 2000, "memory": 64, "pods": 1})


def test_room_is_allocatable_less_what_is_bound() -> None:
    ledger = RoomLedger()
    ledger.set_node("n", Resources.of({"cpu": 4000, "memory": 100, "pods": 10}))
    ledger.bind("a", "n", ONE)
    ledger.bind("d", "n", TWO, daemon=True)
    assert ledger.room("n") == Resources.of({"cpu": 1000, "memory": 36, "pods": 8})
    assert ledger.daemons("n") == TWO


def test_a_pod_that_moves_is_counted_once() -> None:
    ledger = RoomLedger()
    ledger.bind("a", "n", ONE)
    ledger.bind("a", "m", TWO, daemon=True)
    assert (ledger.used("n"), ledger.used("m"), ledger.daemons("m")) == (EMPTY, TWO, TWO)


def test_a_pod_may_come_before_its_node() -> None:
    ledger = RoomLedger()
    ledger.bind("a", "n", ONE)
    assert "n" not in ledger
    assert ledger.room("n") == Resources.of({"cpu": -1000, "pods": -1})
    ledger.set_node("n", Resources.of({"cpu": 4000, "pods": 10}))
    assert ledger.room("n") == Resources.of({"cpu": 3000, "pods": 9})


def test_releasing_an_unknown_pod_does_nothing() -> None:
    ledger = RoomLedger()
    ledger.bind("a", "n", ONE)
    ledger.release("b")
    assert ledger.used("n") == ONE


def test_what_is_known_shows_in_the_text() -> None:
    ledger = RoomLedger()
    ledger.set_node("n", ONE)
    ledger.bind("a", "n", ONE)
    assert repr(ledger) == "Ledger(1 nodes, 1 pods)"


@pytest.mark.parametrize("requests", [EMPTY, Resources.of({"cpu": 0})])
def test_pods_that_ask_for_nothing_can_leave(requests: Resources) -> None:
    ledger = RoomLedger()
    ledger.bind("a", "n", requests)
    ledger.bind("b", "n", requests)
    ledger.release("a")
    ledger.release("b")
    assert ledger.used("n") == EMPTY


Event = tuple[Literal["bind", "release", "node", "gone"], str, str, Resources, bool]

resources = st.builds(
    lambda cpu, memory: Resources.of({"cpu": cpu, "memory": memory, "pods": 1}), st.integers(0, 4), st.integers(0, 4)
)
events = st.tuples(
    st.sampled_from(["bind", "release", "node", "gone"]),
    st.sampled_from("abcd"),
    st.sampled_from("nm"),
    resources,
    st.booleans(),
)


def apply(ledger: RoomLedger, event: Event) -> None:
    kind, pod, node, amounts, daemon = event
    match kind:
        case "bind":
            ledger.bind(pod, node, amounts, daemon=daemon)
        case "release":
            ledger.release(pod)
        case "node":
            ledger.set_node(node, amounts)
        case "gone":
            ledger.drop_node(node)


def amounts_of(resources: Resources) -> dict[str, int]:
    return {name: amount for name, amount in resources.items() if amount}


@given(st.lists(events, max_size=30))
def test_sums_equal_those_of_the_pods_that_are_bound(history: list[Event]) -> None:
    ledger = RoomLedger()
    bound: dict[str, tuple[str, Resources, bool]] = {}
    for event in history:
        apply(ledger, event)
        if event[0] == "bind":
            bound[event[1]] = (event[2], event[3], event[4])
        elif event[0] == "release":
            bound.pop(event[1], None)
    for node in "nm":
        there = [(requests, daemon) for where, requests, daemon in bound.values() if where == node]
        assert amounts_of(ledger.used(node)) == amounts_of(sum((one for one, _ in there), EMPTY))
        assert amounts_of(ledger.daemons(node)) == amounts_of(sum((one for one, daemon in there if daemon), EMPTY))
        assert amounts_of(ledger.room(node) + ledger.used(node)) == amounts_of(ledger.allocatable(node))


@given(st.lists(events, max_size=20), st.sampled_from("nm"), resources, st.booleans())
def test_binding_and_releasing_a_new_pod_changes_nothing(
    history: list[Event], node: str, requests: Resources, daemon: bool
) -> None:
    ledger = RoomLedger()
    for event in history:
        apply(ledger, event)
    before = {name: (amounts_of(ledger.room(name)), amounts_of(ledger.daemons(name))) for name in "nm"}
    ledger.bind("new", node, requests, daemon=daemon)
    ledger.release("new")
    assert {name: (amounts_of(ledger.room(name)), amounts_of(ledger.daemons(name))) for name in "nm"} == before
