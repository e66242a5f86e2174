"""Karpenter's metrics about instance types and their offerings, written when somebody asks for them.

They are tens of thousands of series, so none of them is kept. Prices are list prices, or estimates, which a metric of ours marks; decisions go
by what will be paid.

Source: spec/karpenter-aws.md 6.7.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final

from provisioner.apis import names
from provisioner.apis.ec2 import CapacityReservation
from provisioner.ec2.market.catalogue import Region
from provisioner.ec2.market.prices import PriceList
from provisioner.ec2.market.unavailable_offerings import OfferingKey, Shortages

_PREFIX: Final = "karpenter_cloudprovider_instance_type"
_UNLISTED: Final = "dovetail_instance_type_price_unlisted"
_UNLISTED_DOC: Final = "1 for instance types whose on-demand price is in no price list of the Region: estimated from another Region's prices, or unknown."


def lines(
    region: Region,
    prices: PriceList,
    shortages: Shortages,
    now: datetime,
    reservations: Iterable[CapacityReservation] = (),
    left: Callable[[str], int] = lambda _: 0,
) -> Iterator[str]:
    """The metrics in Prometheus' text format."""
    yield _head(f"{_PREFIX}_cpu_cores", "Number of vCPUs of an instance type.")
    for info in region.infos:
        yield f'{_PREFIX}_cpu_cores{{instance_type="{info.name}"}} {info.vcpus}\n'
    yield _head(f"{_PREFIX}_memory_bytes", "Memory of an instance type in bytes.")
    for info in region.infos:
        yield f'{_PREFIX}_memory_bytes{{instance_type="{info.name}"}} {info.memory_mib * 2**20}\n'
    yield from _unlisted(region, prices)
    offers = list(_offers(region))
    reserved = sorted({(one.instance_type, one.availability_zone, left(one.id) > 0) for one in reservations})
    yield _head(f"{_PREFIX}_offering_price_estimate", "Estimated price of an offering in USD per hour.")
    for kind, name, zone in offers:
        price = prices.price(name, zone, kind)
        if price is not None:
            yield _line("offering_price_estimate", name, kind, zone, price)
    for name, zone, _ in reserved:
        yield _line(
            "offering_price_estimate",
            name,
            names.CAPACITY_RESERVED,
            zone,
            prices.price(name, zone, names.CAPACITY_RESERVED) or 0.0,
        )
    yield _head(
        f"{_PREFIX}_offering_available", "Whether an offering is available for launches: 1 if it is, otherwise 0."
    )
    for kind, name, zone in offers:
        open_now = (
            prices.price(name, zone, kind) is not None
            and shortages.standing(OfferingKey(kind, name, zone), now).available
        )
        yield _line("offering_available", name, kind, zone, float(open_now))
    for name, zone, some in reserved:
        yield _line("offering_available", name, names.CAPACITY_RESERVED, zone, float(some))


def _unlisted(region: Region, prices: PriceList) -> Iterator[str]:
    """Types whose price is in no list of the region, and what stands in for it."""
    yield _head(_UNLISTED, _UNLISTED_DOC)
    for info in region.infos:
        if info.name not in prices.on_demand:
            price = "estimated" if prices.is_estimated(info.name) else "unknown"
            yield f'{_UNLISTED}{{instance_type="{info.name}",price="{price}"}} 1\n'


def _offers(region: Region) -> Iterator[tuple[str, str, str]]:
    for info in region.infos:
        kinds = [kind for kind in (names.CAPACITY_ON_DEMAND, names.CAPACITY_SPOT) if kind in info.usage_classes]
        for zone in region.zones.get(info.name, ()):
            for kind in kinds:
                yield kind, info.name, zone


def _head(name: str, doc: str) -> str:
    return f"# HELP {name} {doc}\n# TYPE {name} gauge\n"


def _line(name: str, instance_type: str, kind: str, zone: str, value: float) -> str:
    labels = f'capacity_type="{kind}",instance_type="{instance_type}",zone="{zone}"'
    return f"{_PREFIX}_{name}{{{labels}}} {value!r}\n"
