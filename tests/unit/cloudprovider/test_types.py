import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.types import (
    InstanceType,
    MinValuesVerdict,
    Offering,
    RepairPolicy,
    by_price,
    cheapest_first,
    cheapest_offering,
    compatible_offerings,
    expected_price,
    launch_price,
    min_values_served,
    offering_price,
    worst_launch_price,
)
from provisioner.ec2.market.prices import LAST_RESORT_USD_PER_HOUR
from provisioner.values.requirement import NONE, Requirement, Requirements
from provisioner.values.resources import Resources


def offer(zone: str, kind: str, price: float, *, available: bool = True, left: int = 0) -> Offering:
    labels = {names.ZONE_LABEL: zone, names.CAPACITY_TYPE_LABEL: kind}
    return Offering(Requirements.from_labels(labels), price, available, reservation_capacity=left)


def kind_of(name: str, *offerings: Offering, **labels: str) -> InstanceType:
    requirements = Requirements.from_labels({names.INSTANCE_TYPE_LABEL: name, **labels})
    return InstanceType(name, requirements, Resources.parse({"cpu": 4, "memory": "8Gi"}), offerings=offerings)


def wants(key: str, operator: str, *values: str, least: int | None = None) -> Requirements:
    return Requirements.of([Requirement.of(key, operator, values, least)])


ALLOCATABLE = {
    "capacity less overhead": (
        {"cpu": "4", "memory": "8Gi"},
        {"cpu": "100m", "memory": "1Gi"},
        {"cpu": "3900m", "memory": "7Gi"},
    ),
    "huge pages are taken off the memory and stay": (
        {"memory": "8Gi", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "2Gi"},
        {"memory": "1Gi"},
        {"memory": "4Gi", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "2Gi"},
    ),
    "memory is never less than nothing": (
        {"memory": "1Gi", "hugepages-1Gi": "2Gi"},
        {},
        {"memory": "0", "hugepages-1Gi": "2Gi"},
    ),
    "another resource may be": ({"cpu": "1"}, {"cpu": "2"}, {"cpu": "-1"}),
}


@pytest.mark.parametrize(("capacity", "overhead", "want"), ALLOCATABLE.values(), ids=ALLOCATABLE)
def test_allocatable(capacity: dict[str, str], overhead: dict[str, str], want: dict[str, str]) -> None:
    one = InstanceType("a", NONE, Resources.parse(capacity), Resources.parse(overhead))
    assert one.allocatable == Resources.parse(want)


def test_an_offering_knows_its_zone_and_capacity_type() -> None:
    assert (offer("a", "spot", 1).zone, offer("a", "spot", 1).capacity_type) == ("a", "spot")
    several = Offering(wants(names.ZONE_LABEL, "In", "a", "b"), 1.0)
    assert (several.zone, several.capacity_type) == ("", "")


CATALOGUE = (
    kind_of("big", offer("a", "on-demand", 4.0), offer("b", "spot", 1.0)),
    kind_of(
        "small", offer("b", "on-demand", 1.0), offer("a", "on-demand", 1.0), offer("a", "spot", 0.5, available=False)
    ),
    kind_of("sold-out", offer("a", "on-demand", 0.1, available=False)),
)


def ways(requirements: Requirements = NONE) -> list[tuple[str, str, str]]:
    types = list(CATALOGUE)
    random.Random(7).shuffle(types)
    return [(one.name, offering.zone, offering.capacity_type) for one, offering in by_price(types, requirements)]


def test_by_price_is_cheapest_first_and_ties_go_by_name_zone_and_capacity_type() -> None:
    assert ways() == [
        ("big", "b", "spot"),
        ("small", "a", "on-demand"),
        ("small", "b", "on-demand"),
        ("big", "a", "on-demand"),
    ]


LIMITED = {
    "by zone": (wants(names.ZONE_LABEL, "In", "b"), [("big", "b", "spot"), ("small", "b", "on-demand")]),
    "by capacity type": (wants(names.CAPACITY_TYPE_LABEL, "In", "spot"), [("big", "b", "spot")]),
    "by name": (
        wants(names.INSTANCE_TYPE_LABEL, "In", "small", "sold-out"),
        [("small", "a", "on-demand"), ("small", "b", "on-demand")],
    ),
    "by a label that offerings do not have": (wants("team", "In", "x"), ways()),
    "by something that nothing has": (wants(names.ZONE_LABEL, "In", "z"), []),
}


@pytest.mark.parametrize(("requirements", "want"), LIMITED.values(), ids=LIMITED)
def test_by_price_within_requirements(requirements: Requirements, want: list[tuple[str, str, str]]) -> None:
    assert ways(requirements) == want


def test_prices_that_differ_by_less_than_a_millionth_dollar_are_equal() -> None:
    types = [kind_of("b", offer("a", "spot", 0.1)), kind_of("a", offer("a", "spot", 0.1 + 1e-9))]
    assert [one.name for one, _ in by_price(types)] == ["a", "b"]


def test_each_type_comes_once_by_its_cheapest_offering() -> None:
    assert [one.name for one in cheapest_first(CATALOGUE)] == ["big", "small"]
    on_demand = wants(names.CAPACITY_TYPE_LABEL, "In", "on-demand")
    assert [one.name for one in cheapest_first(CATALOGUE, on_demand)] == ["small", "big"]


def test_cheapest_offering() -> None:
    big, _, sold_out = CATALOGUE
    assert cheapest_offering(big) == offer("b", "spot", 1.0)
    assert cheapest_offering(big, wants(names.ZONE_LABEL, "NotIn", "b")) == offer("a", "on-demand", 4.0)
    assert cheapest_offering(sold_out) is None
    assert compatible_offerings(big, NONE) == (offer("b", "spot", 1.0), offer("a", "on-demand", 4.0))


def test_the_price_of_an_offering_is_known_though_it_is_sold_out() -> None:
    _, _, sold_out = CATALOGUE
    assert offering_price(sold_out, "a", "on-demand") == 0.1
    assert offering_price(sold_out, "b", "on-demand") is None


def test_an_instance_whose_price_vanished_costs_what_its_type_does_on_demand() -> None:
    """The spot market lists its type no more, and the instance runs on."""
    gone = offer("a", "spot", LAST_RESORT_USD_PER_HOUR, available=False)
    assert offering_price(kind_of("t", gone, offer("a", "on-demand", 0.3)), "a", "spot") == 0.3
    unpriced = offer("a", "on-demand", LAST_RESORT_USD_PER_HOUR)
    assert offering_price(kind_of("t", gone, unpriced), "a", "spot") is None
    assert offering_price(kind_of("t", gone), "a", "spot") is None


LAUNCHABLE = {
    "on-demand": (offer("a", "on-demand", 1), True),
    "spot that is short": (offer("a", "spot", 1, available=False), False),
    "a reservation with an instance left": (offer("a", "reserved", 1, left=1), True),
    "a full reservation, which is no less available": (offer("a", "reserved", 1), False),
    "a reservation that expires": (offer("a", "reserved", 1, available=False, left=1), False),
}


@pytest.mark.parametrize(("one", "want"), LAUNCHABLE.values(), ids=LAUNCHABLE)
def test_health_and_capacity_are_two_things(one: Offering, want: bool) -> None:
    assert one.launchable is want


WORST = {
    "nothing is for sale": ((), math.inf),
    "the dearest on-demand": ((offer("a", "on-demand", 1), offer("b", "on-demand", 2)), 2),
    "spot comes before on-demand": (
        (offer("a", "spot", 0.5), offer("b", "spot", 0.7), offer("b", "on-demand", 2)),
        0.7,
    ),
    "a reservation comes before spot": ((offer("a", "reserved", 0.1, left=1), offer("b", "spot", 0.7)), 0.1),
    "a full reservation does not count": ((offer("a", "reserved", 0.1), offer("b", "spot", 0.7)), 0.7),
    "what is sold out does not count": ((offer("a", "spot", 0.5, available=False), offer("b", "on-demand", 2)), 2),
}


@pytest.mark.parametrize(("offerings", "want"), WORST.values(), ids=WORST)
def test_worst_launch_price(offerings: tuple[Offering, ...], want: float) -> None:
    assert worst_launch_price(offerings) == want


def test_worst_launch_price_within_requirements() -> None:
    offerings = (offer("a", "spot", 0.5), offer("b", "on-demand", 2))
    assert worst_launch_price(offerings, wants(names.ZONE_LABEL, "In", "b")) == 2


def spot(*prices: float, alternatives: int = 3) -> list[Offering]:
    return [replace(offer("a", "spot", price), alternatives=alternatives) for price in prices]


EXPECTED = {
    "the cloud takes the cheapest": ([offer("a", "on-demand", 1), offer("a", "on-demand", 5)], 1),
    "any of the three cheapest": (spot(2, 3, 4, 4), 3),
    "what costs over twice as much hardly comes": (spot(1, 2, 3, 50), 1.5),
    "any of the two that there are": (spot(2, 4), 3),
    "on-demand is no alternative of spot": ([*spot(3, 4), offer("a", "on-demand", 4.5), *spot(5)], 4),
    "what costs nothing": (spot(0, 1), 0),
}


@pytest.mark.parametrize(("offerings", "want"), EXPECTED.values(), ids=EXPECTED)
def test_expected_price(offerings: Sequence[Offering], want: float) -> None:
    assert expected_price(offerings) == want


def test_spot_that_is_dearer_than_on_demand_does_not_come_where_a_launch_may_be_both() -> None:
    types = [
        kind_of(name, *spot(price), offer("a", "on-demand", 1.2 * price))
        for name, price in (("c", 5), ("m", 6), ("r", 7))
    ]
    assert launch_price(types, NONE) == 5.5
    assert launch_price(types, wants(names.CAPACITY_TYPE_LABEL, "In", "spot")) == 6
    assert launch_price(types, wants("family", "Exists", least=1)) == 6, "what asks for minValues is not cut"


def test_each_type_counts_once_in_what_a_launch_is_expected_to_cost() -> None:
    types = [kind_of("cheap", *spot(4, 5)), kind_of("dear", *spot(8)), kind_of("gone")]
    assert launch_price(types, NONE) == 6
    assert launch_price(types, wants(names.INSTANCE_TYPE_LABEL, "In", "dear", "gone")) == 8
    assert launch_price(types, wants(names.INSTANCE_TYPE_LABEL, "In", "gone")) is None


FAMILIES = tuple(kind_of(f"{family}-{size}", family=family) for family, size in ("c1", "c2", "m1", "r1", "m2"))

SERVED = {
    "nothing is asked": (NONE, MinValuesVerdict(0, {})),
    "one value is there at once": (wants("family", "Exists", least=1), MinValuesVerdict(1, {})),
    "the third is the fourth type": (wants("family", "Exists", least=3), MinValuesVerdict(4, {})),
    "more than there are": (wants("family", "Exists", least=4), MinValuesVerdict(0, {"family": 3})),
    "only allowed values count": (wants("family", "NotIn", "c", least=3), MinValuesVerdict(0, {"family": 2})),
    "no type has the label": (wants("colour", "Exists", least=1), MinValuesVerdict(0, {"colour": 0})),
    "the slowest key decides": (
        wants("family", "Exists", least=2).merged(wants(names.INSTANCE_TYPE_LABEL, "Exists", least=5)),
        MinValuesVerdict(5, {}),
    ),
}


@pytest.mark.parametrize(("requirements", "want"), SERVED.values(), ids=SERVED)
def test_min_values(requirements: Requirements, want: MinValuesVerdict) -> None:
    assert min_values_served(FAMILIES, requirements) == want


def test_values_of_the_seam_are_values() -> None:
    assert kind_of("a") == kind_of("a") != kind_of("b")
    assert hash(kind_of("a")) == hash(kind_of("a"))
    assert RepairPolicy("Ready", "False", timedelta(1)) == RepairPolicy("Ready", "False", timedelta(1))
