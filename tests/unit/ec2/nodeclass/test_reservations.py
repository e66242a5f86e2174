"""Capacity reservations: what is asked, what is found, and the book of what is left."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from provisioner.apis.ec2 import CapacityReservationSelectorTerm
from provisioner.ec2.nodeclass.queries import Query
from provisioner.ec2.nodeclass.reservations import ReservationBook, found, queries
from tests.support.clock import NOON

Term = CapacityReservationSelectorTerm
ACTIVE = ("state", ("active",))


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def asked(*filters: tuple[str, tuple[str, ...]]) -> Query:
    return Query("describe_capacity_reservations", "CapacityReservations", (*filters, ACTIVE), page=1000)


QUERIES: dict[str, tuple[Term, Query]] = {
    "by id, which takes no page size": (
        Term(id="cr-1"),
        Query(
            "describe_capacity_reservations",
            "CapacityReservations",
            (ACTIVE,),
            (("CapacityReservationIds", ("cr-1",)),),
            page=0,
        ),
    ),
    "by tags": (Term(tags={"a": "b", "c": "*"}), asked(("tag:a", ("b",)), ("tag-key", ("c",)))),
    "by owner and tags": (
        Term(tags={"a": "b"}, owner_id="123456789012"),
        asked(("tag:a", ("b",)), ("owner-id", ("123456789012",))),
    ),
    "by match criteria": (Term(instance_match_criteria="open"), asked(("instance-match-criteria", ("open",)))),
}


@pytest.mark.parametrize("case", QUERIES.values(), ids=QUERIES)
def test_what_is_asked(case: tuple[Term, Query]) -> None:
    term, want = case
    assert queries([term, term]) == (want,)


def row(name: str, **more: Any) -> dict[str, Any]:
    return {
        "CapacityReservationId": name,
        "AvailabilityZone": "us-east-1a",
        "InstanceMatchCriteria": "targeted",
        "InstanceType": "m5.large",
        "OwnerId": "123456789012",
        "State": "active",
        "AvailableInstanceCount": 3,
        **more,
    }


FOUND: dict[str, tuple[dict[str, Any], str | None]] = {
    "a plain one": ({}, "active"),
    "one that ends later": ({"EndDate": later(60)}, "active"),
    "one that has ended": ({"EndDate": NOON}, None),
    "one that was cancelled": ({"State": "cancelled"}, None),
    "a block with 41 minutes": ({"ReservationType": "capacity-block", "EndDate": later(41 * 60)}, "active"),
    "a block with 40 minutes": ({"ReservationType": "capacity-block", "EndDate": later(40 * 60)}, "expiring"),
    "match criteria that we do not know": ({"InstanceMatchCriteria": "new"}, None),
    "a type that we do not know": ({"ReservationType": "new"}, None),
}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_what_is_found(case: tuple[dict[str, Any], str | None]) -> None:
    change, state = case
    result = found([row("cr-1", **change)], NOON)
    assert [one.state for one in result.reservations] == ([] if state is None else [state])
    assert result.left == ({} if state is None else {"cr-1": 3})


def test_what_is_not_understood_is_named() -> None:
    (sentence,) = found([row("cr-1", InstanceMatchCriteria="new")], NOON).strange
    assert "cr-1" in sentence
    assert "'new'" in sentence


def test_the_status_of_one() -> None:
    (one,) = found([row("cr-1", Interruptible=True, EndDate=later(9000))], NOON).reservations
    assert (one.id, one.instance_type, one.availability_zone, one.owner_id) == (
        "cr-1",
        "m5.large",
        "us-east-1a",
        "123456789012",
    )
    assert (one.interruptible, one.reservation_type, one.instance_match_criteria, one.end_time) == (
        True,
        "default",
        "targeted",
        later(9000),
    )


def test_when_something_changes_next() -> None:
    block = row("cr-2", ReservationType="capacity-block", EndDate=later(7200))
    result = found([row("cr-1", EndDate=later(6000)), block], NOON)
    assert result.next_change(NOON) == later(7200 - 2400)
    assert result.next_change(later(5000)) == later(6000)
    assert found([row("cr-1")], NOON).next_change(NOON) is None


# --- the book

Step = Callable[[ReservationBook], None]
BOOK: dict[str, tuple[list[Step], int]] = {
    "never read": ([], 0),
    "read": ([lambda book: book.note({"cr": 3}, later(0))], 3),
    "a launch takes one": (
        [lambda book: book.note({"cr": 3}, later(0)), lambda book: book.launched("cr", 1, later(1))],
        2,
    ),
    "an end gives it back": (
        [
            lambda book: book.note({"cr": 3}, later(0)),
            lambda book: book.launched("cr", 2, later(1)),
            lambda book: book.terminated("cr", later(2)),
        ],
        2,
    ),
    "a later reading knows the launch": (
        [
            lambda book: book.note({"cr": 3}, later(0)),
            lambda book: book.launched("cr", 1, later(1)),
            lambda book: book.note({"cr": 2}, later(2)),
        ],
        2,
    ),
    "a reading that was asked for before the launch does not": (
        [
            lambda book: book.note({"cr": 3}, later(0)),
            lambda book: book.launched("cr", 1, later(2)),
            lambda book: book.note({"cr": 3}, later(1)),
        ],
        2,
    ),
    "never below zero": (
        [lambda book: book.note({"cr": 1}, later(0)), lambda book: book.launched("cr", 5, later(1))],
        0,
    ),
    "used up by EC2's word": (
        [
            lambda book: book.note({"cr": 3}, later(0)),
            lambda book: book.exhausted("cr", later(1)),
            lambda book: book.note({"cr": 3}, later(1)),
        ],
        0,
    ),
    "and read again later": (
        [
            lambda book: book.note({"cr": 3}, later(0)),
            lambda book: book.exhausted("cr", later(1)),
            lambda book: book.note({"cr": 1}, later(2)),
        ],
        1,
    ),
}


@pytest.mark.parametrize("case", BOOK.values(), ids=BOOK)
def test_what_is_left(case: tuple[list[Step], int]) -> None:
    steps, want = case
    book = ReservationBook()
    for step in steps:
        step(book)
    assert book.available("cr") == want
    assert book.counts().get("cr", 0) == want


SPENT: dict[str, tuple[list[Step], bool]] = {
    "never read": ([], False),
    "read with some left": ([lambda book: book.note({"cr": 1}, later(0))], False),
    "read with none left": ([lambda book: book.note({"cr": 0}, later(0))], True),
    "taken by our own launch": (
        [lambda book: book.note({"cr": 1}, later(0)), lambda book: book.launched("cr", 1, later(1))],
        True,
    ),
    "given back": ([lambda book: book.note({"cr": 0}, later(0)), lambda book: book.terminated("cr", later(1))], False),
    "only a launch said so": (
        [lambda book: book.note({"cr": 1}, later(0)), lambda book: book.exhausted("cr", later(1))],
        False,
    ),
    "a launch said so, and it was read since": (
        [
            lambda book: book.note({"cr": 1}, later(0)),
            lambda book: book.exhausted("cr", later(1)),
            lambda book: book.note({"cr": 0}, later(2)),
        ],
        True,
    ),
    "a launch said so, and what is read is older": (
        [
            lambda book: book.exhausted("cr", later(1)),
            lambda book: book.note({"cr": 0}, later(0)),
        ],
        False,
    ),
}


@pytest.mark.parametrize(("steps", "want"), SPENT.values(), ids=SPENT)
def test_a_reservation_is_full_as_it_was_read(steps: list[Step], want: bool) -> None:
    book = ReservationBook()
    for step in steps:
        step(book)
    assert (book.spent() == {"cr"}) is want
