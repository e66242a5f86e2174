"""The reads of AWS that fill catalogue and price book. Each is one question; when to ask is the caller's."""

from collections.abc import Mapping
from typing import Any

from provisioner.ec2.access import wire
from provisioner.ec2.access.client import AwsClients, pages
from provisioner.ec2.access.wire import SpotRow
from provisioner.ec2.market import prices
from provisioner.ec2.market.catalogue import Region
from provisioner.support.clock import Clock

_TYPE_FILTERS = (
    {"Name": "supported-virtualization-type", "Values": ["hvm"]},
    {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
)


def read_region(aws: AwsClients) -> Region:
    """Every type that Kubernetes runs on, and the zones where EC2 offers it.

    Cost: about 25 calls; half a second of CPU.
    """
    infos = [
        *aws.rows("ec2", "DescribeInstanceTypes", wire.instance_types, Filters=list(_TYPE_FILTERS), MaxResults=100)
    ]
    offered = aws.rows(
        "ec2", "DescribeInstanceTypeOfferings", wire.offered, LocationType="availability-zone", MaxResults=1000
    )
    return Region.of(infos, offered)


def read_spot(aws: AwsClients, clock: Clock) -> list[SpotRow]:
    """The spot prices of this moment, by type and zone: for `PriceBook.take_spot`."""
    rows = aws.rows(
        "ec2",
        "DescribeSpotPriceHistory",
        wire.spot_prices,
        StartTime=clock.now(),
        ProductDescriptions=list(prices.SPOT_PRODUCTS),
        MaxResults=1000,
    )
    return list(rows)


def read_on_demand(aws: AwsClients, region: str) -> list[dict[str, float]]:
    """The on-demand prices of a region, virtual machines and bare metal: for `PriceBook.take_on_demand`.

    Ask `prices.has_pricing_api` first.
    """
    client = aws.client("pricing", prices.pricing_region(region))
    currency = prices.currency(region)
    return [_products(client, query, currency) for query in prices.product_queries(region)]


def _products(client: Any, query: Mapping[str, Any], currency: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for page in pages(client.get_products, **query):
        found.update(prices.parse_products(page.get("PriceList", ()), currency))
    return found
