"""What EC2 sells in a region: types, where they are offered, and what they cost."""

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.ec2.market import static_data
from tests.support import ec2pages
from tests.support.ec2.filters import next_token, paged, selected
from tests.support.ec2.protocol import AwsError, ec2_answer, ec2_item, ec2_page, stamp

Offering = tuple[str, str, str]
"""Instance type, zone, capacity type."""

ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"
_SMALL: Final = frozenset(
    {"t3", "t4g", "m5", "m5d", "m6i", "m6g", "m7g", "c5", "c6i", "c6g", "c7g", "r5", "r6i", "r6g", "g4dn", "inf2", "a1"}
)
_ZONE_NUMBERS: Final = {"a": 2, "b": 1, "c": 3, "d": 4, "e": 5, "f": 6}
_SPOT_PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_USD_PER_VCPU: Final = 0.0625
_EUROS: Final = 1.1
"""The European Sovereign Cloud has prices in EUR of its own; that they are these times those of us-east-1 is made up."""
_UNPUBLISHED: Final = ("us-gov-", "eusc-", "us-iso", "eu-iso")
"""Regions of which moto has no offerings: they sell what us-east-1 sells, in zones a to c."""
_TYPE_FACTS: Final = (
    "supported-virtualization-type",
    "processor-info.supported-architecture",
    "instance-type",
    "hypervisor",
    "bare-metal",
    "current-generation",
    "supported-usage-class",
)


def chance(*parts: object) -> float:
    """A number in [0, 1) that depends on nothing but the parts."""
    digest = hashlib.blake2b("|".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


class Market:
    """One region's types, offerings and prices.

    Args:
        region: its name.
        seed: of spot prices and of how deep pools are.
        data: "full" for every type, "small" for some 170 of well-known families.
    """

    def __init__(self, region: str, seed: int, data: str) -> None:
        self.region, self.seed = region, seed
        keep = _SMALL.__contains__ if data == "small" else lambda _: True
        self.types: Mapping[str, Mapping[str, Any]] = {
            name: one for name, one in ec2pages.described_types().items() if keep(name.partition(".")[0])
        }
        self.offered: list[tuple[str, str]] = sorted(
            (name, zone) for name, zone in _offered_in(region) if name in self.types
        )
        self._offered = frozenset(self.offered)
        self.zones = sorted({zone for _, zone in self.offered})
        shipped = static_data.on_demand_prices()
        cn = region.startswith("cn-")
        table = shipped.get(region) or shipped["cn-north-1" if cn else "us-east-1"]
        euros = region.startswith("eusc-")
        self.currency: str = "EUR" if euros else table.currency
        self.listed: Mapping[str, float] = {
            name: price * (_EUROS if euros else 1.0) for name, price in table.prices.items() if name in self.types
        }
        self._items: dict[str, str] = {}

    def zone_id(self, zone: str) -> str:
        """The zone's id: the same physical place in every account."""
        return f"{_short(self.region)}-az{_ZONE_NUMBERS[zone[-1]]}"

    def is_offered(self, instance_type: str, zone: str) -> bool:
        """Whether instances of the type are sold there at all."""
        return (instance_type, zone) in self._offered

    def usage_classes(self, instance_type: str) -> Sequence[str]:
        """on-demand, spot, capacity-block."""
        found: Sequence[str] = self.types[instance_type]["SupportedUsageClasses"]
        return found

    def on_demand(self, instance_type: str) -> float:
        """USD (or CNY) per hour; where the list has none, by vCPUs."""
        known = self.listed.get(instance_type)
        return (
            known if known is not None else float(self.types[instance_type]["VCpuInfo"]["DefaultVCpus"]) * _USD_PER_VCPU
        )

    def spot(self, instance_type: str, zone: str, when: datetime) -> float:
        """The spot price of that hour: 0.25 to 0.6 of on-demand."""
        usual = chance(self.seed, "spot", instance_type, zone)
        hourly = chance(self.seed, "spot", instance_type, zone, when.strftime("%Y-%m-%dT%H"))
        share = 0.25 + 0.35 * (0.8 * usual + 0.2 * hourly)
        return float(f"{self.on_demand(instance_type) * share:.6f}")

    def depth(self, instance_type: str, zone: str) -> float:
        """How much spot capacity there is, from 0 to 1: what capacity-optimized strategies go by."""
        return chance(self.seed, "depth", instance_type, zone)

    def price(self, instance_type: str, zone: str, capacity_type: str, when: datetime) -> float:
        """Of one offering."""
        return self.spot(instance_type, zone, when) if capacity_type == SPOT else self.on_demand(instance_type)

    def cheapest(self, share: float, zones: Iterable[str], when: datetime) -> frozenset[Offering]:
        """That share of all offerings in these zones, by price."""
        wanted = frozenset(zones)
        priced = sorted(
            (self.price(name, zone, capacity_type, when), name, zone, capacity_type)
            for name, zone in self.offered
            if zone in wanted
            for capacity_type in (ON_DEMAND, SPOT)
            if capacity_type in self.usage_classes(name)
        )
        return frozenset((name, zone, kind) for _, name, zone, kind in priced[: round(len(priced) * share)])

    # ------------------------------------------------------------------ actions

    def describe_types(self, request: Mapping[str, Any]) -> bytes:
        """DescribeInstanceTypes."""
        names = request.get("InstanceTypes")
        if names:
            unknown = sorted(set(names) - self.types.keys())
            if unknown:
                raise AwsError(
                    "InvalidInstanceType", f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
                )
            if request.get("MaxResults"):
                raise AwsError(
                    "InvalidParameterCombination",
                    "The parameter instancetypes cannot be used with the parameter maxResults",
                )
        chosen = [self.types[name] for name in (sorted(set(names)) if names else self.types)]
        chosen = selected(chosen, request.get("Filters"), _type_facts, lambda _: {})
        page, token = paged(chosen, request, most=100)
        inside = "".join(self._type_item(one) for one in page)
        following = f"<nextToken>{token}</nextToken>" if token else ""
        return ec2_page("DescribeInstanceTypes", f"<instanceTypeSet>{inside}</instanceTypeSet>{following}")

    def _type_item(self, described: Mapping[str, Any]) -> str:
        name = described["InstanceType"]
        known = self._items.get(name)
        if known is None:
            known = self._items[name] = ec2_item("DescribeInstanceTypes", "InstanceTypes", described)
        return known

    def describe_offerings(self, request: Mapping[str, Any]) -> bytes:
        """DescribeInstanceTypeOfferings."""
        kind = request.get("LocationType", "region")
        if kind == "region":
            rows = [(name, self.region) for name in sorted({name for name, _ in self.offered})]
        elif kind == "availability-zone-id":
            rows = [(name, self.zone_id(zone)) for name, zone in self.offered]
        else:
            rows = self.offered
        rows = selected(
            rows, request.get("Filters"), lambda row: {"instance-type": (row[0],), "location": (row[1],)}, lambda _: {}
        )
        page, token = paged(rows, request)
        inside = "".join(
            f"<item><instanceType>{name}</instanceType><locationType>{kind}</locationType><location>{where}</location></item>"
            for name, where in page
        )
        following = f"<nextToken>{token}</nextToken>" if token else ""
        return ec2_page(
            "DescribeInstanceTypeOfferings", f"<instanceTypeOfferingSet>{inside}</instanceTypeOfferingSet>{following}"
        )

    def describe_spot(self, request: Mapping[str, Any], now: datetime) -> bytes:
        """DescribeSpotPriceHistory: newest first, back to the price that held at StartTime."""
        start = _instant(request.get("StartTime"), now - timedelta(days=90))
        hours = [now.replace(minute=0, second=0, microsecond=0)]
        while hours[-1] > start and len(hours) < 24 * 90:
            hours.append(hours[-1] - timedelta(hours=1))
        products = [one for one in request.get("ProductDescriptions") or _SPOT_PRODUCTS if one in _SPOT_PRODUCTS]
        types = frozenset(request.get("InstanceTypes") or ())
        rows = [
            (name, zone, product, hour)
            for hour in hours
            for name, zone in self.offered
            if SPOT in self.usage_classes(name) and (not types or name in types)
            for product in products[:1]
        ]
        if zone := request.get("AvailabilityZone"):
            rows = [row for row in rows if row[1] == zone]
        rows = selected(
            rows,
            request.get("Filters"),
            lambda row: {
                "instance-type": (row[0],),
                "availability-zone": (row[1],),
                "product-description": _SPOT_PRODUCTS,
            },
            lambda _: {},
        )
        page, token = paged(rows, request, least=1, most=100_000)
        inside = "".join(
            f"<item><instanceType>{name}</instanceType><productDescription>{product}</productDescription>"
            f"<spotPrice>{self.spot(name, zone, hour):.6f}</spotPrice><timestamp>{stamp(hour)}</timestamp>"
            f"<availabilityZone>{zone}</availabilityZone><availabilityZoneId>{self.zone_id(zone)}</availabilityZoneId></item>"
            for name, zone, product, hour in page
        )
        return ec2_page(
            "DescribeSpotPriceHistory",
            f"<spotPriceHistorySet>{inside}</spotPriceHistorySet><nextToken>{token}</nextToken>",
        )

    def describe_zones(self, request: Mapping[str, Any]) -> bytes:
        """DescribeAvailabilityZones."""
        wanted = request.get("ZoneNames") or self.zones
        rows = [
            {
                "ZoneName": zone,
                "ZoneId": self.zone_id(zone),
                "RegionName": self.region,
                "State": "available",
                "OptInStatus": "opt-in-not-required",
                "ZoneType": "availability-zone",
                "GroupName": f"{self.region}-zg-1",
                "NetworkBorderGroup": self.region,
            }
            for zone in self.zones
            if zone in wanted
        ]
        return ec2_answer("DescribeAvailabilityZones", {"AvailabilityZones": rows})

    def products(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """GetProducts of the Pricing API, for Amazon EC2: Linux, on demand."""
        if request.get("ServiceCode") != "AmazonEC2":
            return {"FormatVersion": "aws_v1", "PriceList": []}
        wanted = {one["Field"]: one["Value"] for one in request.get("Filters", ())}
        documents = [text for attributes, text in self._products() if _has(attributes, wanted)]
        page, token = paged(documents, request, least=1, most=100)
        return {"FormatVersion": "aws_v1", "PriceList": page, **next_token(token)}

    @functools.cached_property
    def _product_list(self) -> list[tuple[dict[str, str], str]]:
        found = []
        for name, price in sorted(self.listed.items()):
            metal = bool(self.types[name]["BareMetal"])
            attributes = {
                "instanceType": name,
                "regionCode": self.region,
                "servicecode": "AmazonEC2",
                "serviceCode": "AmazonEC2",
                "preInstalledSw": "NA",
                "operatingSystem": "Linux",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
                "tenancy": "Dedicated" if metal else "Shared",
            }
            family = "Compute Instance (bare metal)" if metal else "Compute Instance"
            sku = hashlib.blake2b(name.encode(), digest_size=8).hexdigest().upper()
            dimension = {"unit": "Hrs", "pricePerUnit": {self.currency: f"{price:.10f}"}}
            term = {"offerTermCode": "JRTCKXETXF", "priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": dimension}}
            document = {
                "product": {"productFamily": family, "attributes": attributes, "sku": sku},
                "serviceCode": "AmazonEC2",
                "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
            }
            found.append(({**attributes, "productFamily": family}, json.dumps(document)))
        return found

    def _products(self) -> list[tuple[dict[str, str], str]]:
        return self._product_list


def _offered_in(region: str) -> Iterable[tuple[str, str]]:
    if not region.startswith(_UNPUBLISHED):
        return [(row["InstanceType"], row["Location"]) for row in ec2pages.offered_zones(region)]
    rows = [(row["InstanceType"], row["Location"][-1]) for row in ec2pages.offered_zones("us-east-1")]
    return [(name, f"{region}{letter}") for name, letter in rows if letter in "abc"]


def _has(attributes: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(attributes.get(name) == value for name, value in wanted.items())


def _type_facts(described: Mapping[str, Any]) -> Mapping[str, Iterable[str]]:
    values = (
        described.get("SupportedVirtualizationTypes", ()),
        described["ProcessorInfo"].get("SupportedArchitectures", ()),
        (described["InstanceType"],),
        (described.get("Hypervisor", ""),),
        (str(described.get("BareMetal", False)).lower(),),
        (str(described.get("CurrentGeneration", False)).lower(),),
        described.get("SupportedUsageClasses", ()),
    )
    return dict(zip(_TYPE_FACTS, values, strict=True))


def _instant(text: Any, otherwise: datetime) -> datetime:
    if not text:
        return otherwise
    return datetime.fromisoformat(str(text))


def _short(region: str) -> str:
    """us-west-2 is usw2, ap-southeast-1 is apse1."""
    first, *middle, number = region.split("-")
    words = re.findall("north|south|east|west|central|gov|iso", "-".join(middle))
    return first + "".join(word[0] for word in words) + number
