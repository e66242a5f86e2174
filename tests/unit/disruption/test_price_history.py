"""What offerings were like when a node was bought: issue 11, part 6 (prices and availability)."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.disruption.price_history import LEARNING, NO_PRICE_HISTORY, PriceHistory
from provisioner.values.requirement import NONE
from tests.support.clock import NOON
from tests.support.problems import instance_type, offering

HOUR = timedelta(hours=1)
BEGAN = NOON - 2 * HOUR
UNKNOWN = 100_000.0
SHUT = offering("a", 1.0, available=False)


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def sold(*offerings: Offering) -> InstanceType:
    return instance_type("kind", "4", "8Gi", offerings=offerings)


def seen(*looks: tuple[datetime, tuple[InstanceType, ...]], pool: str = "general") -> PriceHistory:
    """After a first look long ago at the first of these, and then at each."""
    history = NO_PRICE_HISTORY.noted({pool: looks[0][1]}, BEGAN, HOUR)
    for at, types in looks:
        history = history.noted({pool: types}, at, HOUR)
    return history


def one_by_one(states: Iterable[Offering | None]) -> tuple[PriceHistory, InstanceType]:
    """One state of an offering a minute; None where the type has no offering."""
    kinds = [sold(*([one] if one is not None else [])) for one in states]
    return seen(*((minutes(number), (kind,)) for number, kind in enumerate(kinds))), kinds[-1]


def usd(price: float) -> Offering:
    return offering("a", price)


FALLEN: dict[str, tuple[list[Offering | None], float, bool]] = {
    "nothing changed": ([usd(1), usd(1)], 0.5, False),
    "it became cheaper": ([usd(1), usd(0.9)], 0.5, True),
    "it became cheaper before": ([usd(1), usd(0.9)], 1.5, False),
    "it became cheaper in that instant": ([usd(1), usd(0.9)], 1, False),
    "it became hardly cheaper": ([usd(1), usd(0.96)], 0.5, False),
    "it became cheaper little by little": ([usd(1), usd(0.97), usd(0.94)], 0.5, True),
    "it became cheaper once more": ([usd(1), usd(0.9), usd(0.8)], 1.5, True),
    "it became dearer": ([usd(1), usd(2)], 0.5, False),
    "it became dearer and is as it was": ([usd(1), usd(2), usd(1)], 0.5, False),
    "it was bought while it was dearer": ([usd(1), usd(2), usd(1)], 1.5, True),
    "it became available": ([SHUT, usd(1)], 0.5, True),
    "it was closed for a moment": ([usd(1), SHUT, usd(1)], 0.5, False),
    "it was bought while it was closed": ([usd(1), SHUT, usd(1)], 1.5, True),
    "it is new": ([None, usd(1)], 0.5, True),
    "it is new, and not available": ([None, SHUT], 0.5, False),
    "it is new, and available later": ([None, SHUT, usd(1)], 0.5, True),
    "it became cheaper but cannot be had": ([usd(1), offering("a", 0.1, available=False)], 0.5, False),
    "its price was not known": ([usd(UNKNOWN), usd(1)], 0.5, False),
    "its price was not known for a moment": ([usd(1), usd(UNKNOWN), usd(1)], 0.5, False),
}


@pytest.mark.parametrize(("states", "bought", "fallen"), FALLEN.values(), ids=FALLEN)
def test_what_can_be_had_for_less_than_then(states: list[Offering | None], bought: float, fallen: bool) -> None:
    history, kind = one_by_one(states)
    assert history.has_fallen("general", kind, NONE, minutes(bought)) is fallen
    last = history.last_fall("general", kind, NONE)
    assert not fallen or (last is not None and minutes(bought) < last)


RISEN: dict[str, tuple[list[Offering | None], float, bool]] = {
    "nothing changed": ([usd(1), usd(1)], 0.5, False),
    "it became dearer": ([usd(1), usd(2)], 0.5, True),
    "it became dearer before": ([usd(1), usd(2)], 1.5, False),
    "it became hardly dearer": ([usd(1), usd(1.04)], 0.5, False),
    "it became cheaper": ([usd(1), usd(0.5)], 0.5, False),
    "it became dearer, and cannot be had": ([usd(1), offering("a", 2.0, available=False)], 0.5, True),
    "it was closed": ([usd(1), SHUT], 0.5, False),
    "it is new": ([None, usd(1)], 0.5, False),
    "its price is no longer known": ([usd(1), usd(UNKNOWN)], 0.5, False),
    "its price was not known": ([usd(UNKNOWN), usd(1)], 0.5, False),
}


@pytest.mark.parametrize(("states", "bought", "risen"), RISEN.values(), ids=RISEN)
def test_what_costs_more_than_then(states: list[Offering | None], bought: float, risen: bool) -> None:
    history, kind = one_by_one(states)
    assert history.has_risen("general", kind, "a", "on-demand", minutes(bought)) is risen
    assert not history.has_risen("general", kind, "b", "on-demand", minutes(bought))


def test_only_what_is_asked_for_counts_and_where_one_place_opens_another_that_was_as_cheap_is_no_news() -> None:
    a, b = usd(1), offering("b", 1.0)
    before, after = sold(replace(a, available=False), b), sold(a, b)
    history = seen((NOON, (before,)), (minutes(1), (after,)))
    zone = {key: one.requirements for key, one in (("a", a), ("b", b))}
    assert history.has_fallen("general", after, zone["a"], NOON)
    assert not history.has_fallen("general", after, zone["b"], NOON)
    assert not history.has_fallen("general", after, NONE, NOON)
    assert not history.has_fallen("other", after, zone["a"], NOON)
    told = [history.last_fall("general", after, asked) for asked in (zone["a"], zone["b"], NONE)]
    assert told == [minutes(1), None, minutes(1)], "of a part of what is asked for it may be news"
    assert history.last_fall("other", after, NONE) is None


def test_a_new_leader_knows_no_change_nor_what_it_learns_at_first() -> None:
    shut, dear, cheap = sold(SHUT), sold(usd(1)), sold(usd(0.5))
    history = NO_PRICE_HISTORY.noted({"general": (shut,)}, NOON, HOUR)
    assert not history.has_fallen("general", shut, NONE, BEGAN)
    late = NOON + LEARNING
    history = history.noted({"general": (dear,)}, late - timedelta(seconds=1), HOUR)
    assert not history.has_fallen("general", dear, NONE, BEGAN)
    history = history.noted({"general": (cheap,)}, late, HOUR)
    assert history.has_fallen("general", cheap, NONE, BEGAN)
    history = history.noted({"general": (cheap,), "later": (cheap,)}, minutes(5), HOUR)
    assert not history.has_fallen("later", cheap, NONE, BEGAN), "of a NodePool nothing is known before its first look"


def test_a_catalogue_that_nobody_could_tell_says_nothing() -> None:
    kinds = (sold(usd(1)),)
    history = seen((NOON, kinds), (minutes(1), ()), (minutes(2), kinds))
    assert not history.has_fallen("general", kinds[0], NONE, NOON)


def test_nothing_is_made_anew_while_nothing_changes_and_pools_of_one_catalogue_share_what_changed() -> None:
    before, after = (sold(usd(1)),), (sold(usd(0.5)),)
    history = NO_PRICE_HISTORY.noted({"one": before, "two": before}, BEGAN, HOUR)
    assert history.noted({"one": before, "two": before}, NOON, HOUR) is history
    history = history.noted({"one": after, "two": after}, NOON, HOUR)
    assert history.former["one"] is history.former["two"]
    again = (sold(usd(0.4)),)
    history = history.noted({"one": again, "two": again}, minutes(1), HOUR)
    assert history.former["one"] is history.former["two"]


def test_no_more_is_remembered_than_an_hour_of_the_catalogue() -> None:
    other = instance_type("other", "1", "1Gi")
    history = seen((NOON, (sold(usd(1)), other)), (minutes(1), (sold(usd(0.5)), other)))
    gone = history.noted({"general": (other,)}, minutes(2), HOUR)
    assert not gone.former, "the type is gone"
    assert gone.catalogues == {"general": (other,)}
    assert not history.noted({"general": (sold(usd(0.5)), SMALLER)}, minutes(62), HOUR).former, "that was too long ago"
    assert not history.noted({}, minutes(2), HOUR).catalogues, "the NodePool is gone"


SMALLER = instance_type("smaller", "1", "1Gi", unavailable=[(z, k) for z in "ab" for k in ("on-demand", "spot")])


def test_of_an_offering_that_changes_all_the_time_little_is_kept_and_less_counts_as_news() -> None:
    history, kind = one_by_one([usd(1), usd(3), usd(1), usd(3), usd(1), usd(3), usd(2)])
    (past,) = history.former["general"]["kind"].values()
    assert len(past) == 4
    assert not history.has_fallen("general", kind, NONE, minutes(1.5)), "it cost 3, but nobody knows any more"
    assert history.has_fallen("general", kind, NONE, minutes(5.5))
    assert history.has_risen("general", kind, "a", names.CAPACITY_ON_DEMAND, minutes(4.5))
