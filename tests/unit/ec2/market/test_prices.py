import json
from collections.abc import Mapping
from datetime import datetime, timedelta

import botocore.session
import pytest

from provisioner.ec2.access.wire import SpotRow
from provisioner.ec2.market import prices, static_data
from provisioner.ec2.market.prices import PriceBook, PriceList
from tests.support.clock import NOON

A = ("m5.large", "a")


def row(price: float, since: datetime = NOON, name: str = "m5.large", zone: str = "a") -> SpotRow:
    return SpotRow(name, zone, price, since)


def product(name: str, amounts: Mapping[str, str], **attributes: str) -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": dict(amounts)}
    terms = {"OnDemand": {"T.1": {"priceDimensions": {"T.1.D": dimension}, "sku": "T"}}, "Reserved": {"x": {"a": 1}}}
    return json.dumps({"product": {"attributes": {"instanceType": name, **attributes}, "sku": "S"}, "terms": terms})


PRODUCTS = {
    "one price": ([product("m5.large", {"USD": "0.0960000000"})], "USD", {"m5.large": 0.096}),
    "bytes do too": ([product("m5.large", {"USD": "0.096"}).encode()], "USD", {"m5.large": 0.096}),
    "in another currency only": ([product("m5.large", {"CNY": "1"})], "USD", {}),
    "in China": ([product("m5.large", {"CNY": "1.5"})], "CNY", {"m5.large": 1.5}),
    "for nothing": ([product("m5.large", {"USD": "0.0000000000"})], "USD", {}),
    "not a number": ([product("m5.large", {"USD": "NaN"})], "USD", {}),
    "without a type": ([json.dumps({"product": {"attributes": {}}, "terms": {}})], "USD", {}),
    "without terms": ([json.dumps({"product": {"attributes": {"instanceType": "m5.large"}}})], "USD", {}),
    "one that cannot be read costs itself only": (
        ["{", product("c5.large", {"USD": "0.085"})],
        "USD",
        {"c5.large": 0.085},
    ),
}


@pytest.mark.parametrize(("entries", "currency", "want"), PRODUCTS.values(), ids=PRODUCTS)
def test_products(entries: list[str | bytes], currency: str, want: Mapping[str, float]) -> None:
    assert prices.parse_products(entries, currency) == want


REGIONS = {
    "us-east-1": ("aws", "USD", "us-east-1"),
    "us-west-2": ("aws", "USD", "us-east-1"),
    "sa-east-1": ("aws", "USD", "us-east-1"),
    "ap-southeast-2": ("aws", "USD", "ap-south-1"),
    "eu-west-1": ("aws", "USD", "eu-central-1"),
    "cn-north-1": ("aws-cn", "CNY", "cn-northwest-1"),
    "us-gov-west-1": ("aws-us-gov", "USD", ""),
    "us-iso-west-1": ("aws-iso", "USD", "us-iso-east-1"),
    "us-isob-east-1": ("aws-iso-b", "USD", "us-isob-east-1"),
    "us-isof-east-1": ("aws-iso-f", "USD", "us-isof-south-1"),
    "eu-isoe-west-1": ("aws-iso-e", "USD", "eu-isoe-west-1"),
    "eusc-de-east-1": ("aws-eusc", "EUR", "eusc-de-east-1"),
}


@pytest.mark.parametrize(("region", "want"), REGIONS.items(), ids=REGIONS)
def test_regions(region: str, want: tuple[str, str, str]) -> None:
    facts = (prices.partition(region), prices.currency(region), prices.pricing_region(region))
    assert facts == want
    assert prices.has_pricing_api(region) is bool(want[2])
    assert not prices.has_pricing_api(region, isolated_vpc=True)


def test_a_region_is_of_the_partition_that_botocore_names() -> None:
    session = botocore.session.get_session()
    named = {
        one: name for name in session.get_available_partitions() for one in session.get_available_regions("ec2", name)
    }
    assert {region: prices.partition(region) for region in named} == named


STATIC = {
    "a region that is shipped": ("us-east-1", "USD", 0.096, ""),
    "another of the same partition": ("eu-west-3", "USD", 0.096, "us-east-1"),
    "the second region of China": ("cn-northwest-1", "CNY", 1.013, "cn-north-1"),
    "government": ("us-gov-east-1", "USD", 0.121, ""),
    "a partition without a table": ("us-iso-east-1", "USD", 0.096, "us-east-1"),
    "one with another currency": ("eusc-de-east-1", "USD", 0.096, "us-east-1"),
}


@pytest.mark.parametrize(("region", "currency", "want", "source"), STATIC.values(), ids=STATIC)
def test_another_regions_prices_are_estimates(region: str, currency: str, want: float, source: str) -> None:
    table = prices.static_prices(region)
    assert (table.currency, table.estimated_from) == (currency, source)
    assert table.price("m5.large", "a", "on-demand") == want
    assert table.is_estimated("m5.large") is bool(source)


@pytest.mark.parametrize("region", REGIONS)
def test_no_type_that_any_shipped_table_knows_is_without_a_price(region: str) -> None:
    """At the ratios of another region: so many times its price as other types cost, whatever the currency."""
    book = PriceBook(region)
    known = book.current()
    for name, usd in static_data.on_demand_prices()["us-east-1"].prices.items():
        price = known.price(name, "a", "on-demand")
        assert price is not None
        assert 0.5 * usd < price < 25 * usd, name


def test_estimates_follow_the_price_list_and_end_with_it() -> None:
    book = PriceBook("eusc-de-east-1")
    assert book.current().is_estimated("m5.large")
    book.take_on_demand([{"m5.large": 0.192, "c5.large": 0.17}, {"m5.metal": 9.216}], NOON)
    known = book.current()
    assert [known.is_estimated(name) for name in ("m5.large", "m5.metal", "m5.xlarge", "q1.large")] == [
        False,
        False,
        True,
        False,
    ]
    assert known.price("m5.xlarge", "a", "on-demand") == pytest.approx(2 * 0.192)


def test_the_two_queries() -> None:
    virtual, metal = prices.product_queries("eu-west-1")
    filters = [{entry["Field"]: entry["Value"] for entry in query["Filters"]} for query in (virtual, metal)]
    assert filters[0] | {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"} == filters[1]
    assert filters[0] == {
        "regionCode": "eu-west-1",
        "serviceCode": "AmazonEC2",
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": "Shared",
        "productFamily": "Compute Instance",
    }
    assert {entry["Type"] for entry in virtual["Filters"]} == {"TERM_MATCH"}


def test_the_newest_spot_price_of_each_offering_whatever_the_order() -> None:
    rows = [
        row(0.03, NOON - timedelta(hours=1)),
        row(0.05),
        row(0.04),
        row(0.02, zone="b"),
        row(0.9, NOON - timedelta(days=9)),
    ]
    want = {A: 0.04, ("m5.large", "b"): 0.02}
    assert prices.latest_spot(rows) == want
    assert prices.latest_spot(reversed(rows)) == want


FOLLOWED = {
    "noise is not": (0.100, 0.104, 0.100),
    "noise downwards is not": (0.100, 0.096, 0.100),
    "the edge is not": (0.100, 0.105, 0.100),
    "a rise is": (0.100, 0.106, 0.106),
    "a fall is": (0.100, 0.094, 0.094),
}


@pytest.mark.parametrize(("before", "market", "want"), FOLLOWED.values(), ids=FOLLOWED)
def test_followed(before: float, market: float, want: float) -> None:
    assert prices.followed({A: before}, {A: market}) == {A: want}


def test_a_slow_drift_is_followed_once_it_adds_up() -> None:
    current, moves = {A: 0.1}, 0
    for step in range(1, 41):
        after = prices.followed(current, {A: 0.1 + step * 0.001})
        moves += after != current
        current = after
    assert abs(current[A] - 0.14) <= 0.05 * current[A]
    assert 4 <= moves <= 8


def test_new_ones_come_and_old_ones_go() -> None:
    assert prices.followed({A: 0.1}, {("c5.large", "a"): 0.2}) == {("c5.large", "a"): 0.2}


KNOWN = PriceList(on_demand={"m5.large": 0.1}, spot={A: 0.03, ("x9.large", "a"): 0.5}, spot_known=True)
LOOKUPS = {
    "on-demand": (KNOWN, "m5.large", "a", "on-demand", 0.1),
    "spot": (KNOWN, "m5.large", "a", "spot", 0.03),
    "spot in a zone that the market does not list": (KNOWN, "m5.large", "b", "spot", None),
    "spot before the market was read": (PriceList(on_demand={"m5.large": 0.1}), "m5.large", "b", "spot", 0.1),
    "reserved is nearly free": (KNOWN, "m5.large", "a", "reserved", 1e-8),
    "reserved without a price": (KNOWN, "c5.large", "a", "reserved", 0.0),
    "on-demand without a price": (KNOWN, "x9.large", "a", "on-demand", None),
}


@pytest.mark.parametrize(("table", "name", "zone", "kind", "want"), LOOKUPS.values(), ids=LOOKUPS)
def test_price(table: PriceList, name: str, zone: str, kind: str, want: float | None) -> None:
    assert table.price(name, zone, kind) == (want if want is None else pytest.approx(want))


def test_an_empty_market_is_a_fault_not_news() -> None:
    book = PriceBook("us-east-1")
    assert not book.take_spot([])
    assert not book.current().spot_known


def test_versions_change_with_prices_only() -> None:
    book = PriceBook("us-east-1")
    book.take_spot([row(0.03)])
    first = book.current()
    assert book.take_spot([row(0.0301)])
    second = book.current()
    assert (second.version, second.spot) == (first.version, first.spot)
    book.take_spot([row(0.05)])
    assert book.current().version != second.version


def test_the_price_list_is_merged_over_the_shipped_table() -> None:
    book = PriceBook("us-east-1")
    assert book.take_on_demand([{"m5.large": 0.2}, {"m5.metal": 9.0}], NOON)
    now = book.current()
    assert (now.on_demand["m5.large"], now.on_demand["m5.metal"], now.on_demand["c5.large"]) == (0.2, 9.0, 0.085)
    assert now.on_demand_at == NOON


def test_half_a_price_list_is_none() -> None:
    book = PriceBook("us-east-1")
    assert not book.take_on_demand([{"m5.large": 0.2}, {}], NOON)
    assert book.current().on_demand["m5.large"] == 0.096


def test_types_without_a_price_are_named_once() -> None:
    book = PriceBook("us-east-1")
    book.take_spot([row(0.03, name="q1.large")])
    assert book.newly_unpriced(["m5.large", "q3.large", "q2.large", "q1.large"]) == ("q2.large", "q3.large")
    assert book.newly_unpriced(["q2.large", "q4.large"]) == ("q4.large",)
