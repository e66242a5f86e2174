from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import CapacityReservation, NetworkInterface
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import Offering, by_price
from provisioner.disruption.pool_drift import type_drift
from provisioner.ec2 import labels
from provisioner.ec2.access import wire
from provisioner.ec2.access.wire import SpotRow
from provisioner.ec2.market.catalogue import FEW_SHAPES, IDLE_SECONDS, EC2Catalogue, Region
from provisioner.ec2.market.discounts import Discount, DiscountTable, LedgerPrices
from provisioner.ec2.market.instance_types import MarketSettings, PlacementGroup, Shape, type_of
from provisioner.ec2.market.offerings import OfferingMarket, market_of, offerings_of
from provisioner.ec2.market.prices import LAST_RESORT_USD_PER_HOUR, PriceBook
from provisioner.ec2.market.unavailable_offerings import OfferingKey, Shortages
from provisioner.values.requirement import Operator, Requirements
from tests.support import ec2pages
from tests.support.clock import NOON

SETTINGS = MarketSettings("us-east-1")
SHAPE = Shape(ec2.AL2023, (("a", "id-a"), ("b", "id-b")))
NAMES = ("c5.large", "m5.large", "p5.48xlarge", "a1.large")
Price = Callable[[str, str, str], float | None]


def infos() -> list[wire.TypeInfo]:
    return wire.instance_types(ec2pages.type_pages([ec2pages.described_types()[name] for name in NAMES])[0])[0]


REGION = Region.of(
    infos(), [(name, zone) for name in NAMES for zone in ("a", "b", "c") if (name, zone) != ("c5.large", "b")]
)


def price(name: str, zone: str, kind: str) -> float | None:
    return {"on-demand": 0.1, "spot": 0.03, "reserved": 1e-8}[kind]


def offered(
    shape: Shape = SHAPE, market: OfferingMarket | None = None, name: str = "m5.large", *, fit: bool = True
) -> dict[tuple[str, str, str], Offering]:
    """Offerings by (zone, capacity type, partition or reservation)."""
    info = next(info for info in REGION.infos if info.name == name)
    body = type_of(info, REGION.zones[name], shape, SETTINGS)
    found = offerings_of(body, ("a", "b", "c"), shape, market or OfferingMarket(price), fit=fit)
    return {
        (
            one.zone,
            one.capacity_type,
            single(one, labels.PLACEMENT_GROUP_PARTITION) + single(one, labels.RESERVATION_ID),
        ): one
        for one in found
    }


def single(offering: Offering, key: str) -> str:
    return (offering.requirements[key].single_value or "") if key in offering.requirements else ""


def open_ones(found: Mapping[tuple[str, str, str], Offering]) -> list[str]:
    return sorted(" ".join(part for part in key if part) for key, one in found.items() if one.available)


@pytest.mark.parametrize(("known", "want"), [(True, 15), (False, 1)])
def test_a_launch_of_spot_takes_one_of_15_types_once_their_prices_are_known(known: bool, want: int) -> None:
    found = offered(market=OfferingMarket(price, spot_known=known))
    assert {key[1]: way.alternatives for key, way in found.items()} == {"on-demand": 1, "spot": want}


def test_every_zone_and_capacity_type_is_listed_those_of_the_class_are_available() -> None:
    found = offered()
    assert len(found) == 6
    assert open_ones(found) == ["a on-demand", "a spot", "b on-demand", "b spot"]
    one = found["a", "spot", ""]
    assert one.price == 0.03
    assert one.requirements[labels.ZONE_ID].single_value == "id-a"
    assert labels.ZONE_ID not in found["c", "spot", ""].requirements
    assert one.requirements[labels.RESERVATION_ID].operator is Operator.DOES_NOT_EXIST


def unpriced(*without: str) -> Price:
    return lambda name, zone, kind: None if kind in without else 0.1


CASES: dict[str, tuple[OfferingMarket, list[str]]] = {
    "a shifted zone": (OfferingMarket(price, shifted=frozenset({"id-a"})), ["b on-demand", "b spot"]),
    "a shortage": (
        OfferingMarket(price, open=lambda offer: offer != OfferingKey("spot", "m5.large", "a")),
        ["a on-demand", "b on-demand", "b spot"],
    ),
    "spot that the market does not list": (
        OfferingMarket(unpriced("spot"), spot_known=True),
        ["a on-demand", "b on-demand"],
    ),
    "spot before the market is known": (
        OfferingMarket(unpriced("spot", "on-demand")),
        ["a on-demand", "a spot", "b on-demand", "b spot"],
    ),
}


@pytest.mark.parametrize(("market", "want"), CASES.values(), ids=CASES)
def test_available(market: OfferingMarket, want: list[str]) -> None:
    assert open_ones(offered(market=market)) == want


def test_a_type_that_the_class_cannot_use_is_not_available() -> None:
    assert open_ones(offered(fit=False)) == []


def test_without_a_price_last() -> None:
    def half(name: str, zone: str, kind: str) -> float | None:
        return None if name == "c5.large" else 98.0

    catalogue = EC2Catalogue(SETTINGS)
    catalogue.load(REGION)
    ordered = by_price(
        catalogue.types(replace(SHAPE, zones=(("a", "id-a"),)), OfferingMarket(half), 1), Requirements.of()
    )
    assert [kind.name for kind, _ in ordered] == [
        "m5.large",
        "m5.large",
        "p5.48xlarge",
        "p5.48xlarge",
        "c5.large",
        "c5.large",
    ]
    assert ordered[-1][1].price == LAST_RESORT_USD_PER_HOUR


RESERVATION = CapacityReservation(id="cr-1", availability_zone="a", instance_type="m5.large")
RESERVATIONS: dict[str, tuple[dict[str, Any], int, dict[str, Any], tuple[bool, bool]]] = {
    "with instances left": ({}, 2, {}, (True, True)),
    "used up": ({}, 0, {}, (True, False)),
    "expiring": ({"state": "expiring"}, 2, {}, (False, False)),
    "in a zone without subnet": ({"availability_zone": "c"}, 2, {}, (False, False)),
    "in a shifted zone": ({}, 2, {"shifted": frozenset({"id-a"})}, (False, False)),
    "short": ({}, 2, {"reservation_open": lambda name: name != "cr-1"}, (False, False)),
    "where another one is short": ({}, 2, {"reservation_open": lambda name: name == "cr-1"}, (True, True)),
}


@pytest.mark.parametrize(("changes", "left", "market", "want"), RESERVATIONS.values(), ids=RESERVATIONS)
def test_reservations(changes: dict[str, Any], left: int, market: dict[str, Any], want: tuple[bool, bool]) -> None:
    """Whether one is available, and whether an instance of it can be launched."""
    own = msgspec.structs.replace(RESERVATION, **changes)
    found = offered(replace(SHAPE, reservations=(own,)), OfferingMarket(price, reserved={"cr-1": left}, **market))
    one = found[own.availability_zone, "reserved", "cr-1"]
    assert ((one.available, one.launchable), one.reservation_capacity, one.price) == (want, left, 1e-8)


def test_partitions_are_offerings_of_their_own() -> None:
    shape = replace(SHAPE, group=PlacementGroup("pg-1", "partition", 3))
    short = OfferingKey("spot", "m5.large", "a", "pg-1", "2")
    found = offered(shape, OfferingMarket(price, open=lambda offer: offer != short))
    assert len(found) == 18
    assert not found["a", "spot", "2"].available
    assert found["a", "spot", "1"].available
    assert found["a", "spot", "3"].available


@pytest.fixture
def catalogue() -> EC2Catalogue:
    made = EC2Catalogue(SETTINGS)
    assert made.load(REGION)
    return made


def test_in_order_of_name_with_all_that_ec2_sells(catalogue: EC2Catalogue) -> None:
    found = catalogue.types(SHAPE, OfferingMarket(price), 1)
    assert [one.name for one in found] == sorted(NAMES)
    assert not any(one.available for one in found[0].offerings)  # a1 does not run AL2023


ANEW: dict[str, dict[str, Any]] = {
    "public addresses and several interfaces": {
        "public": True,
        "interfaces": (
            NetworkInterface(interface_type="interface"),
            NetworkInterface(device_index=1, interface_type="interface"),
        ),
    },
    "EFA on a card that takes none": {
        "interfaces": (
            NetworkInterface(interface_type="interface"),
            NetworkInterface(device_index=1, interface_type="efa-only"),
        ),
    },
}


@pytest.mark.parametrize("changes", ANEW.values(), ids=ANEW)
def test_nodes_of_classes_that_an_upgrade_judges_anew_have_not_drifted(
    catalogue: EC2Catalogue, changes: dict[str, Any]
) -> None:
    """Nothing more is launched of a type that turns out not to fit the class, and what runs of it is left alone."""
    found = catalogue.types(replace(SHAPE, **changes), OfferingMarket(price), 1)
    (mine,) = (one for one in found if one.name == "m5.large")
    assert not any(one.available for one in mine.offerings)
    bought = {names.INSTANCE_TYPE_LABEL: "m5.large", names.ZONE_LABEL: "a", names.CAPACITY_TYPE_LABEL: "on-demand"}
    reference = {"group": ec2.GROUP, "kind": ec2.KIND, "name": "default"}
    meta = {"name": "c", "creationTimestamp": NOON - timedelta(days=1), "labels": bought}
    there = msgspec.convert({"metadata": meta, "spec": {"nodeClassRef": reference}}, NodeClaim)
    assert type_drift(there, found, NOON) == ""


def test_the_same_tuple_while_nothing_changes(catalogue: EC2Catalogue) -> None:
    first = catalogue.types(SHAPE, OfferingMarket(price), 1)
    assert catalogue.types(SHAPE, OfferingMarket(price), 1) is first
    assert catalogue.types(SHAPE, OfferingMarket(price), 2) is first  # another market that says the same
    assert not catalogue.load(Region.of(infos(), [(n, z) for n, zs in REGION.zones.items() for z in zs]))
    assert catalogue.types(SHAPE, OfferingMarket(price), 2) is first
    assert catalogue.types(replace(SHAPE), OfferingMarket(price), 2) is first


def test_only_what_changed_is_new(catalogue: EC2Catalogue) -> None:
    first = catalogue.types(SHAPE, OfferingMarket(price), 1)
    table = Shortages()
    table.failed(OfferingKey("spot", "m5.large", "a"), NOON)
    market = OfferingMarket(price, open=lambda offer: table.standing(offer, NOON).available)
    second = catalogue.types(SHAPE, market, 2)
    assert [left is right for left, right in zip(first, second, strict=True)] == [True, True, False, True]
    later = NOON + timedelta(minutes=31)
    third = catalogue.types(SHAPE, OfferingMarket(price, open=lambda offer: table.standing(offer, later).available), 3)
    assert third == first


def shapes(count: int, start: int = 0) -> list[Shape]:
    return [replace(SHAPE, amis=(ec2.AMI(id=f"ami-{number}"),)) for number in range(start, start + count)]


def test_as_many_classes_as_there_are_cost_nothing_the_second_time(catalogue: EC2Catalogue) -> None:
    many = shapes(FEW_SHAPES + 6)
    first = [catalogue.types(shape, OfferingMarket(price), 1, at=float(number)) for number, shape in enumerate(many)]
    again = [catalogue.types(shape, OfferingMarket(price), 1, at=100.0 + number) for number, shape in enumerate(many)]
    assert all(one is other for one, other in zip(first, again, strict=True))


def test_classes_that_nobody_asks_for_are_forgotten_beyond_a_few(catalogue: EC2Catalogue) -> None:
    old, new = shapes(FEW_SHAPES + 6), shapes(3, start=1000)
    for shape in (*old, *new):
        catalogue.types(shape, OfferingMarket(price), 1, at=0.0 if shape in old else IDLE_SECONDS + 1)
    kept = [shape for shape in (*old, *new) if catalogue.known(shape) is not None]
    assert kept == [*old[9:], *new]


def test_a_type_that_no_image_boots_is_not_available(catalogue: EC2Catalogue) -> None:
    def available(arch: str) -> bool:
        wanted = ec2.AMIRequirement(key=names.ARCH_LABEL, operator="In", values=(arch,))
        shape = replace(SHAPE, amis=(ec2.AMI(id="ami-1", requirements=(wanted,)),))
        found = {one.name: one for one in catalogue.types(shape, OfferingMarket(price), 1)}
        return any(offering.available for offering in found["m5.large"].offerings)

    assert available("amd64")
    assert not available("arm64")


def test_learned_memory_makes_other_types(catalogue: EC2Catalogue) -> None:
    shape = replace(SHAPE, amis=(ec2.AMI(id="ami-1"),))
    first = catalogue.types(shape, OfferingMarket(price), 1, lambda name, image: None, 1)
    second = catalogue.types(
        shape, OfferingMarket(price), 1, lambda name, image: 5 * 2**30 if name == "m5.large" else None, 2
    )
    assert [left is right for left, right in zip(first, second, strict=True)] == [True, True, False, True]
    assert second[2].capacity["memory"] == 5 * 2**30


def test_settings_and_descriptions_that_change(catalogue: EC2Catalogue) -> None:
    first = catalogue.types(SHAPE, OfferingMarket(price), 1)
    assert not catalogue.configure(SETTINGS)
    assert catalogue.configure(replace(SETTINGS, prefix_delegation=True))
    assert catalogue.types(SHAPE, OfferingMarket(price), 1)[2].capacity["pods"] == 110
    catalogue.configure(SETTINGS)
    assert catalogue.types(SHAPE, OfferingMarket(price), 1) == first
    catalogue.load(Region.of(infos()[:1], [("c5.large", "a")]))
    assert [one.name for one in catalogue.types(SHAPE, OfferingMarket(price), 1)] == ["c5.large"]
    assert catalogue.info("m5.large") is None


def test_a_type_that_is_sold_nowhere_can_be_launched_nowhere() -> None:
    catalogue = EC2Catalogue(SETTINGS)
    catalogue.load(Region.of(infos(), [("m5.large", "a")]))
    found = {one.name: one for one in catalogue.types(SHAPE, OfferingMarket(price), 1)}
    assert found["c5.large"].requirements[names.ZONE_LABEL].operator is Operator.DOES_NOT_EXIST
    assert not any(one.available for one in found["c5.large"].offerings)


def test_a_discount_changes_the_prices_that_it_is_about() -> None:
    ledger = DiscountTable((Discount(0.01, type="m5.large"),))
    book = PriceBook("us-east-1")
    paid = LedgerPrices(ledger, (), "us-east-1", NOON)
    market, _ = market_of(book.current(), paid, Shortages(), NOON, {})
    assert market.adjusted("m5.large", "us-east-1a", "on-demand")
    assert not market.adjusted("m5.large", "us-east-1a", "spot")
    assert not market.adjusted("c5.large", "us-east-1a", "on-demand")


def test_a_market_of_all_that_decides() -> None:
    book, table = PriceBook("us-east-1"), Shortages()
    ledger = LedgerPrices(DiscountTable((Discount(0.01, type="m5.large"),)), (0,), "us-east-1", NOON)
    table.failed(OfferingKey("on-demand", "c5.large", "a"), NOON)

    def now(**changes: Any) -> tuple[OfferingMarket, object]:
        facts: dict[str, Any] = {"ledger": ledger, "now": NOON, "reserved": {"cr-1": 1}, **changes}
        return market_of(book.current(), shortages=table, **facts)

    market, version = now()
    assert market.price("m5.large", "a", "on-demand") == 0.01
    assert market.price("c5.large", "a", "on-demand") == 0.085
    assert market.price("x9.large", "a", "on-demand") is None
    assert not market.open(OfferingKey("on-demand", "c5.large", "a"))
    assert market.open(OfferingKey("on-demand", "c5.large", "b"))
    assert now()[1] == version
    assert hash(version)
    others = [now(ledger=None), now(reserved={"cr-1": 0}), now(shifted=frozenset({"x"}))]
    table.failed(OfferingKey("spot", "c5.large", "a"), NOON)
    others.append(now())
    book.take_spot([SpotRow("m5.large", "a", 0.03, NOON)])
    others.append(now())
    others.append(now(now=NOON + timedelta(minutes=5)))
    versions = [version, *(one for _, one in others)]
    assert len(set(versions)) == len(versions)
