"""What instances cost: the price list, the spot market, and what stands in for them.

Readers take a `PriceList`, a frozen value; `PriceBook` holds the current one and swaps it whole, so nobody waits for a network call.
Prices are in the currency of the partition, as Karpenter's; nothing is ever compared across partitions. What a region's own list lacks is
estimated from a list that is shipped, at the ratio of the prices that both have.

Source: spec/karpenter-aws.md 4.9.
Differs: spot prices are minutes old, not hours; small moves of the spot market are not followed, so that noise replaces no node;
    estimates are marked, and scaled to the region's own prices; partitions beyond AWS's public ones ask their own Pricing API; a type without
    any price is offered last instead of never.
"""

import functools
import math
import statistics
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.ec2.access.wire import SpotRow
from provisioner.ec2.market import static_data
from provisioner.values import jsontext

LAST_RESORT_USD_PER_HOUR: Final = 100_000.0
"""What an offering without a price is taken to cost: more than any other, so it is offered last."""

RESERVED_DIVISOR: Final = 10_000_000
"""A reservation is paid for already: it costs this fraction of on-demand, so that it goes first and ties are still told apart."""

HYSTERESIS: Final = 0.05

_REFERENCE: Final = "us-east-1"
"""The region with most instance types, and with the Pricing API of those that have none of their own nearby."""
_CURRENCIES: Final = {"aws-cn": "CNY", "aws-eusc": "EUR"}
SPOT_PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")


@dataclass(frozen=True)
class PriceList:
    """Prices of one instant, per hour.

    Attributes:
        on_demand: by type, of the region's own list.
        estimates: likewise, of types that this list lacks.
        estimated_from: the region whose prices the estimates are made of; "" without any.
        spot: by (type, zone); only types that the market listed.
        spot_known: whether the spot market was ever read; before that, spot is taken to cost as much as on-demand.
        on_demand_at: when the price list was read; None where it is the shipped table.
        version: differs whenever a price does.
    """

    currency: str = "USD"
    on_demand: Mapping[str, float] = field(default_factory=dict)
    estimates: Mapping[str, float] = field(default_factory=dict)
    estimated_from: str = ""
    spot: Mapping[tuple[str, str], float] = field(default_factory=dict)
    spot_known: bool = False
    on_demand_at: datetime | None = None
    version: int = 0

    def is_estimated(self, instance_type: str) -> bool:
        """Whether what the type costs on demand is an estimate."""
        return instance_type not in self.on_demand and instance_type in self.estimates

    def price(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        """The list price of one offering, or its estimate; None where there is neither."""
        on_demand = self.on_demand.get(instance_type, self.estimates.get(instance_type))
        match capacity_type:
            case names.CAPACITY_SPOT:
                return self.spot.get((instance_type, zone)) if self.spot_known else on_demand
            case names.CAPACITY_RESERVED:
                return 0.0 if on_demand is None else on_demand / RESERVED_DIVISOR
            case _:
                return on_demand


def static_prices(region: str) -> PriceList:
    """The shipped table of a region; else the estimates of another's: of its partition, and so of its currency, if one is shipped."""
    shipped = static_data.on_demand_prices()
    near = _near(region)
    table = shipped[near]
    if near == region:
        return PriceList(currency=table.currency, on_demand=table.prices)
    return PriceList(currency=table.currency, estimates=table.prices, estimated_from=near)


def _near(region: str) -> str:
    shipped = static_data.on_demand_prices()
    of_partition = sorted(name for name in shipped if partition(name) == partition(region))
    return region if region in shipped else next(iter(of_partition), _REFERENCE)


def _with_estimates(prices: PriceList, region: str) -> PriceList:
    """The same, with an estimate of each type that the region's list lacks and a shipped one has."""
    shipped = static_data.on_demand_prices()
    near = shipped[_near(region)].prices
    known = {**_scaled(shipped[_REFERENCE].prices, near), **near}
    lacking = {name: usd for name, usd in _scaled(known, prices.on_demand).items() if name not in prices.on_demand}
    source = prices.estimated_from or (_REFERENCE if lacking else "")
    return replace(prices, estimates=lacking, estimated_from=source)


def _scaled(prices: Mapping[str, float], like: Mapping[str, float]) -> Mapping[str, float]:
    """Prices times the median of how many times as much the same types cost in another list; as they are where it has none of them."""
    ratios = [like[name] / usd for name, usd in prices.items() if name in like and usd > 0]
    ratio = statistics.median(ratios) if ratios else 1.0
    return {name: usd * ratio for name, usd in prices.items()}


def partition(region: str) -> str:
    """The partition that a region belongs to."""
    for prefix, name in (
        ("cn-", "aws-cn"),
        ("us-gov-", "aws-us-gov"),
        ("us-isob-", "aws-iso-b"),
        ("us-isof-", "aws-iso-f"),
        ("eu-isoe-", "aws-iso-e"),
        ("us-iso-", "aws-iso"),
        ("eusc-", "aws-eusc"),
    ):
        if region.startswith(prefix):
            return name
    return "aws"


def currency(region: str) -> str:
    """The currency that AWS charges in there."""
    return _CURRENCIES.get(partition(region), "USD")


def has_pricing_api(region: str, *, isolated_vpc: bool = False) -> bool:
    """Whether the price list can be asked for a region at all."""
    return not isolated_vpc and bool(pricing_region(region))


def pricing_region(region: str) -> str:
    """Where the Pricing API for a region is: in its own partition, as near as its name tells; "" where there is none.

    Credentials of one partition are no good in another (https://github.com/aws/karpenter-provider-aws/pull/9437). Cost: 0.1 s once a partition.
    """
    there = _pricing_regions(partition(region))
    near = (one for one in there if one.partition("-")[0] == region.partition("-")[0])
    return region if region in there else next(near, _REFERENCE if _REFERENCE in there else "")


@functools.cache
def _pricing_regions(partition_name: str) -> tuple[str, ...]:
    import botocore.session  # noqa: PLC0415 - `dovetail plan` asks for no Pricing API

    found: list[str] = botocore.session.Session().get_available_regions("pricing", partition_name)
    return tuple(sorted(found))


def product_queries(region: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two GetProducts requests that together list the on-demand prices of a region: virtual machines and bare metal."""
    common = {
        "regionCode": region,
        "serviceCode": "AmazonEC2",
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    kinds = (
        {"tenancy": "Shared", "productFamily": "Compute Instance"},
        {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"},
    )
    virtual, metal = (
        {
            "ServiceCode": "AmazonEC2",
            "MaxResults": 100,
            "Filters": [
                {"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in {**common, **kind}.items()
            ],
        }
        for kind in kinds
    )
    return virtual, metal


class _Attributes(msgspec.Struct, rename="camel"):
    instance_type: str = ""


class _Product(msgspec.Struct):
    attributes: _Attributes = msgspec.field(default_factory=_Attributes)


class _Dimension(msgspec.Struct, rename="camel"):
    price_per_unit: dict[str, str] = msgspec.field(default_factory=dict)


class _Term(msgspec.Struct, rename="camel"):
    price_dimensions: dict[str, _Dimension] = msgspec.field(default_factory=dict)


class _Terms(msgspec.Struct):
    on_demand: dict[str, _Term] = msgspec.field(default_factory=dict, name="OnDemand")


class _Entry(msgspec.Struct):
    product: _Product = msgspec.field(default_factory=_Product)
    terms: _Terms = msgspec.field(default_factory=_Terms)


_decode_entry: Final = jsontext.decoder(_Entry)


def parse_products(entries: Iterable[str | bytes], currency: str) -> dict[str, float]:
    """On-demand prices by type from the PriceList of GetProducts: JSON documents, one a product.

    Products without a type, without a price in `currency`, or priced at 0 are left out, and so is what cannot be read.
    Of several prices of a type the last one stands, as in Karpenter.
    """
    prices: dict[str, float] = {}
    for text in entries:
        try:
            entry = _decode_entry(text)
        except msgspec.DecodeError:
            continue
        name = entry.product.attributes.instance_type
        for term in entry.terms.on_demand.values():
            for dimension in term.price_dimensions.values():
                price = _positive(dimension.price_per_unit.get(currency, ""))
                if name and price is not None:
                    prices[name] = price
    return prices


def latest_spot(rows: Iterable[SpotRow]) -> dict[tuple[str, str], float]:
    """The newest price of each (type, zone); of equally new ones the lower. The history's order does not matter."""
    newest: dict[tuple[str, str], SpotRow] = {}
    for row in rows:
        key = row.instance_type, row.zone
        known = newest.get(key)
        if known is None or (row.since, -row.usd_per_hour) > (known.since, -known.usd_per_hour):
            newest[key] = row
    return {key: row.usd_per_hour for key, row in newest.items()}


def followed(
    before: Mapping[tuple[str, str], float], market: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str], float]:
    """The spot prices to go by: the market's, but the former one where it moved by no more than `HYSTERESIS` of it.

    The former price is the one gone by, not the one last seen, so a slow drift is followed once it adds up. What the market
    no longer lists is gone.
    """
    return {
        key: before[key] if key in before and abs(price - before[key]) <= HYSTERESIS * before[key] else price
        for key, price in market.items()
    }


class PriceBook:
    """The current prices of a region, replaced whole by whoever reads AWS; `current` never blocks. The shipped table is what it starts with."""

    def __init__(self, region: str) -> None:
        self.region = region
        self._list = _with_estimates(static_prices(region), region)
        self._swap = threading.Lock()  # writers only
        self._named: set[str] = set()

    def current(self) -> PriceList:
        """The prices as they are now; the same object until one changes or is confirmed."""
        return self._list

    def take_spot(self, rows: Iterable[SpotRow]) -> bool:
        """Take over the spot market. One without a single price is a fault of the reader's: then False, and nothing changes."""
        market = latest_spot(rows)
        if market:
            with self._swap:
                before = self._list
                spot = followed(before.spot, market)
                if spot != before.spot or not before.spot_known:
                    self._list = replace(before, spot=spot, spot_known=True, version=before.version + 1)
        return bool(market)

    def take_on_demand(self, halves: Sequence[Mapping[str, float]], now: datetime) -> bool:
        """Take over the prices of the two `product_queries`; where either is empty, AWS answered only half: then False, and nothing changes."""
        if not halves or not all(halves):
            return False
        with self._swap:
            before = self._list
            merged = dict(before.on_demand)
            for half in halves:
                merged.update(half)
            moved = merged != before.on_demand
            after = replace(before, on_demand_at=now, version=before.version + moved)
            self._list = _with_estimates(replace(after, on_demand=merged), self.region) if moved else after
        return True

    def newly_unpriced(self, instance_types: Iterable[str]) -> tuple[str, ...]:
        """Those without any price that were not named before, in order: what a log should say once."""
        prices = self._list
        priced = prices.on_demand.keys() | prices.estimates.keys() | {name for name, _ in prices.spot}
        with self._swap:
            news = sorted(set(instance_types) - priced - self._named)
            self._named.update(news)
        return tuple(news)


def _positive(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < math.inf else None
