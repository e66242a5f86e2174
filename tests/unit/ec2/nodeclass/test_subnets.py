"""Subnets: what is asked, what is found, and the book of free addresses."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import ec2
from provisioner.ec2.nodeclass.queries import Query
from provisioner.ec2.nodeclass.subnets import (
    ENDLESS,
    Subnet,
    SubnetBook,
    addresses_of,
    found,
    queries,
    to_status,
)
from tests.support.clock import NOON

Term = ec2.SubnetSelectorTerm


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def asked(*filters: tuple[str, tuple[str, ...]]) -> Query:
    return Query("describe_subnets", "Subnets", filters)


QUERIES: dict[str, tuple[tuple[Term, ...], tuple[Query, ...]]] = {
    "no terms": ((), ()),
    "tags of one term are asked together, in order": (
        (Term(tags={"b": "1", "a": "x*"}),),
        (asked(("tag:a", ("x*",)), ("tag:b", ("1",))),),
    ),
    "any value": ((Term(tags={"a": "*"}),), (asked(("tag-key", ("a",))),)),
    "ids are asked once": (
        (Term(id="subnet-2"), Term(id="subnet-1"), Term(id="subnet-2")),
        (asked(("subnet-id", ("subnet-1", "subnet-2"))),),
    ),
    "an id wins over tags": ((Term(id="subnet-1", tags={"a": "b"}),), (asked(("subnet-id", ("subnet-1",))),)),
    "equal terms are one": ((Term(tags={"a": "b"}), Term(tags={"a": "b"})), (asked(("tag:a", ("b",))),)),
    "terms are alternatives": (
        (Term(tags={"a": "b"}), Term(id="subnet-1")),
        (asked(("tag:a", ("b",))), asked(("subnet-id", ("subnet-1",)))),
    ),
}


@pytest.mark.parametrize("case", QUERIES.values(), ids=QUERIES)
def test_what_is_asked(case: tuple[tuple[Term, ...], tuple[Query, ...]]) -> None:
    terms, want = case
    assert queries(terms) == want


def test_a_query_as_boto3_takes_it() -> None:
    query = Query("describe_x", "Xs", (("a", ("1", "2")),), (("Owners", ("self",)), ("IncludeDeprecated", True)))
    assert query.parameters() == {
        "Filters": [{"Name": "a", "Values": ["1", "2"]}],
        "Owners": ["self"],
        "IncludeDeprecated": True,
        "MaxResults": 500,
    }
    assert Query("describe_x", "Xs", page=0).parameters() == {}


def row(name: str, free: int, zone: str = "a", **more: Any) -> dict[str, Any]:
    return {
        "SubnetId": name,
        "AvailabilityZone": f"us-east-1{zone}",
        "AvailabilityZoneId": f"use1-{zone}",
        "AvailableIpAddressCount": free,
        "State": "available",
        "VpcId": "vpc-1",
        **more,
    }


def test_subnets_are_found_once_those_with_most_addresses_first() -> None:
    rows = [row("subnet-b", 5), row("subnet-c", 9), row("subnet-a", 5), row("subnet-c", 9)]
    assert [one.id for one in found(rows)] == ["subnet-c", "subnet-a", "subnet-b"]
    assert to_status(found(rows[:1])) == (ec2.SubnetStatus(id="subnet-b", zone="us-east-1a", zone_id="use1-a"),)


def test_a_subnet_that_is_being_made_is_not_found() -> None:
    assert found([row("subnet-a", 5, State="pending")]) == ()


def test_a_subnet_with_ipv6_alone_has_addresses_without_end() -> None:
    assert found([row("subnet-a", 0, Ipv6Native=True)])[0].free_ips == ENDLESS


# --- the book


def class_with(*subnets: str) -> ec2.EC2NodeClass:
    """Of subnets written like "a1": zone a, subnet-a1."""
    listed = [{"id": f"subnet-{one}", "zone": one[0], "zoneID": f"id-{one[0]}"} for one in subnets]
    return msgspec.convert({"status": {"subnets": listed}}, ec2.EC2NodeClass)


def read(book: SubnetBook, at: float, **free: int) -> None:
    book.note([Subnet(f"subnet-{name}", name[0], "", count) for name, count in free.items()], later(at))


def of_zones(book: SubnetBook, *subnets: str, at: float = 100) -> dict[str, tuple[str, int]]:
    chosen = book.by_zone(class_with(*subnets), later(at))
    return {zone: (one.id.removeprefix("subnet-"), one.free_ips) for zone, one in chosen.items()}


Step = Callable[[SubnetBook], None]
BOOK: dict[str, tuple[list[Step], dict[str, tuple[str, int]]]] = {
    "nothing is known: the first of the status": ([], {"a": ("a1", 0), "b": ("b1", 0)}),
    "most addresses win": ([lambda book: read(book, 0, a1=5, a2=9, b1=1)], {"a": ("a2", 9), "b": ("b1", 1)}),
    "of equal ones the first of the status": (
        [lambda book: read(book, 0, a1=5, a2=5, b1=1)],
        {"a": ("a1", 5), "b": ("b1", 1)},
    ),
    "a launch under way counts": (
        [lambda book: read(book, 0, a1=5, a2=9, b1=1), lambda book: book.reserve("subnet-a2", 6)],
        {"a": ("a1", 5), "b": ("b1", 1)},
    ),
    "a launch under way outlives a reading": (
        [
            lambda book: book.reserve("subnet-a2", 6),
            lambda book: read(book, 2, a1=5, a2=9, b1=1),
        ],
        {"a": ("a1", 5), "b": ("b1", 1)},
    ),
    "what was not launched is given back": (
        [
            lambda book: read(book, 0, a1=5, a2=9, b1=1),
            lambda book: book.reserve("subnet-a2", 6),
            lambda book: book.settle("subnet-a2", 6, 1, later(2)),
        ],
        {"a": ("a2", 8), "b": ("b1", 1)},
    ),
    "what was launched counts until a later reading": (
        [
            lambda book: read(book, 0, a1=5, a2=9, b1=1),
            lambda book: book.reserve("subnet-a2", 6),
            lambda book: book.settle("subnet-a2", 6, 6, later(2)),
        ],
        {"a": ("a1", 5), "b": ("b1", 1)},
    ),
    "a reading that began after the launch knows it": (
        [
            lambda book: read(book, 0, a1=5, a2=9, b1=1),
            lambda book: book.reserve("subnet-a2", 6),
            lambda book: book.settle("subnet-a2", 6, 6, later(2)),
            lambda book: read(book, 3, a1=1, a2=3),
        ],
        {"a": ("a2", 3), "b": ("b1", 1)},
    ),
    "a reading that began before the launch ended does not": (
        [
            lambda book: book.reserve("subnet-a2", 6),
            lambda book: book.settle("subnet-a2", 6, 6, later(4)),
            lambda book: read(book, 3, a1=4, a2=9, b1=1),
        ],
        {"a": ("a1", 4), "b": ("b1", 1)},
    ),
    "an older reading that comes late is dropped": (
        [lambda book: read(book, 5, a1=7, a2=2, b1=1), lambda book: read(book, 3, a1=1, a2=9)],
        {"a": ("a1", 7), "b": ("b1", 1)},
    ),
    "a full subnet is not chosen": ([lambda book: read(book, 0, a1=0, a2=1, b1=0)], {"a": ("a2", 1)}),
    "a subnet that refused is full until it is read again": (
        [lambda book: read(book, 0, a1=5, a2=9, b1=1), lambda book: book.exhausted("subnet-a2", later(1))],
        {"a": ("a1", 5), "b": ("b1", 1)},
    ),
    "and then it is not": (
        [
            lambda book: read(book, 0, a1=5, a2=9, b1=1),
            lambda book: book.exhausted("subnet-a2", later(1)),
            lambda book: read(book, 2, a2=9),
        ],
        {"a": ("a2", 9), "b": ("b1", 1)},
    ),
    "so is one that was not read before": (
        [lambda book: book.exhausted("subnet-a1", later(1)), lambda book: read(book, 0, a1=5, b1=1)],
        {"a": ("a2", 0), "b": ("b1", 1)},
    ),
    "what was launched counts before the first reading, too": (
        [lambda book: book.reserve("subnet-a1", 6), lambda book: book.settle("subnet-a1", 6, 6, later(1))],
        {"a": ("a2", 0), "b": ("b1", 0)},
    ),
    "what was launched may be gone again: only EC2 says that a subnet is full": (
        [
            lambda book: read(book, 0, a1=5, a2=9, b1=1),
            lambda book: book.reserve("subnet-b1", 1),
            lambda book: book.settle("subnet-b1", 1, 1, later(1)),
        ],
        {"a": ("a2", 9), "b": ("b1", 0)},
    ),
    "more under way than there are addresses: still the best there is": (
        [lambda book: read(book, 0, a1=5, a2=1, b1=1), lambda book: book.reserve("subnet-b1", 3)],
        {"a": ("a1", 5), "b": ("b1", -2)},
    ),
}


@pytest.mark.parametrize("case", BOOK.values(), ids=BOOK)
def test_the_subnet_of_each_zone(case: tuple[list[Step], dict[str, tuple[str, int]]]) -> None:
    steps, want = case
    book = SubnetBook()
    for step in steps:
        step(book)
    assert of_zones(book, "a1", "a2", "b1") == want


def test_a_launch_that_ends_is_never_counted_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may look in between."""
    book, seen = SubnetBook(), list[int]()
    read(book, 0, a1=9)
    book.reserve("subnet-a1", 6)
    monkeypatch.setattr(book._counts, "change", lambda *_: seen.append(book.free("subnet-a1")))
    book.settle("subnet-a1", 6, 6, later(1))
    assert seen == [3]


def test_a_launch_that_ends_while_somebody_looks_is_never_counted_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: what it had reserved and what it took were read on either side of its end."""
    book = SubnetBook()
    read(book, 0, a1=9)
    book.reserve("subnet-a1", 6)
    left = book._counts.left

    def ending(name: str) -> int:
        found = left(name)
        monkeypatch.undo()
        book.settle("subnet-a1", 6, 6, later(1))
        return found

    monkeypatch.setattr(book._counts, "left", ending)
    assert book.free("subnet-a1") == 3
    assert book.free("subnet-a1") == 3


def test_closed_subnets_are_passed_over_and_a_zone_of_closed_ones_is_missing() -> None:
    book = SubnetBook(lambda name, _now, *, prefixes: prefixes or name not in {"subnet-a2", "subnet-b1"})
    read(book, 0, a1=1, a2=9, b1=9)
    assert of_zones(book, "a1", "a2", "b1") == {"a": ("a1", 1)}


TAKEN: dict[str, tuple[dict[str, object], bool, int]] = {
    "one interface": ({}, False, 1),
    "two prefixes": ({"ipPrefixCount": 2}, False, 33),
    "prefixes of IPv6 take no IPv4 addresses": ({"ipPrefixCount": 2}, True, 1),
    "every interface with addresses has the prefixes": (
        {
            "ipPrefixCount": 1,
            "networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
                {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
                {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "interface"},
            ],
        },
        False,
        34,
    ),
}


@pytest.mark.parametrize("case", TAKEN.values(), ids=TAKEN)
def test_addresses_that_an_instance_takes(case: tuple[dict[str, object], bool, int]) -> None:
    spec, ipv6, want = case
    assert addresses_of(msgspec.convert({"spec": spec}, ec2.EC2NodeClass), ipv6=ipv6) == want


def test_a_subnet_with_fewer_addresses_than_an_instance_takes_is_not_chosen() -> None:
    book = SubnetBook()
    read(book, 0, a1=16, a2=17, b1=16)
    chosen = book.by_zone(class_with("a1", "a2", "b1"), later(1), 17)
    assert {zone: one.id for zone, one in chosen.items()} == {"a": "subnet-a2"}


def test_a_subnet_is_spent_as_it_was_read_and_not_by_our_own_launches() -> None:
    book = SubnetBook()
    read(book, 0, a1=2, b1=0)
    book.reserve("subnet-a1", 40)
    book.settle("subnet-a1", 40, 40, later(1))
    assert of_zones(book, "a1", "b1") == {"a": ("a1", -38)}
    assert book.spent() == {"subnet-b1"}
    read(book, 3, a1=0)
    assert book.spent() == {"subnet-a1", "subnet-b1"}


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), max_size=20))
def test_what_is_reserved_and_settled_is_never_lost(launches: list[tuple[int, int]]) -> None:
    book = SubnetBook()
    read(book, 0, a1=1000)
    for count, (wanted, launched) in enumerate(launches):
        book.reserve("subnet-a1", wanted)
        book.settle("subnet-a1", wanted, min(wanted, launched), later(count + 1))
    assert book.free("subnet-a1") == 1000 - sum(min(pair) for pair in launches)


def test_whether_a_subnet_may_hold_so_many() -> None:
    book = SubnetBook()
    assert book.may_hold("subnet-a1", 100), "nobody has read it"
    read(book, 0, a1=5)
    assert [book.may_hold("subnet-a1", addresses) for addresses in (5, 6)] == [True, False]
    book.reserve("subnet-a1", 2)
    assert [book.may_hold("subnet-a1", addresses) for addresses in (3, 4)] == [True, False]
