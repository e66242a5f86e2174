"""The reads that fill catalogue and price book, over HTTP."""

import json
from collections.abc import Mapping
from typing import Any

from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.market import prices, reads
from tests.support import awshttp, ec2pages
from tests.support.clock import NOON, FakeClock


def clients(url: str, clock: FakeClock, region: str = "us-east-1") -> AwsClients:
    return AwsClients(CallPolicy(region), clock, awshttp.session(url))


def test_a_region() -> None:
    described = ec2pages.described_types()
    types = ec2pages.type_pages([described[name] for name in ("m5.large", "mac1.metal", "c5.large")], size=2)
    offered = ec2pages.offering_pages([{"InstanceType": "m5.large", "Location": zone} for zone in ("b", "a")], size=1)

    def respond(action: str, form: Mapping[str, Any]) -> awshttp.Answer:
        token = int(form.get("NextToken", "0"))
        return 200, types[token // 2] if action == "DescribeInstanceTypes" else offered[token]

    with awshttp.serving(respond) as server:
        aws = clients(server.url, FakeClock())
        region = reads.read_region(aws)
        aws.close()
    assert [info.name for info in region.infos] == ["c5.large", "m5.large"]
    assert region.zones == {"m5.large": ("a", "b")}
    first = server.calls[0]
    assert first["Filter.1.Name"] == "supported-virtualization-type"
    assert [first["Filter.2.Value.1"], first["Filter.2.Value.2"]] == ["x86_64", "arm64"]
    assert server.calls[2]["LocationType"] == "availability-zone"


def test_the_spot_market() -> None:
    row = {
        "InstanceType": "m5.large",
        "AvailabilityZone": "a",
        "SpotPrice": "0.0350",
        "Timestamp": "2026-11-21T10:00:00Z",
    }
    page = ec2pages.page("DescribeSpotPriceHistory", {"SpotPriceHistory": [row]})
    with awshttp.serving(lambda action, form: (200, page)) as server:
        clock = FakeClock()
        aws = clients(server.url, clock)
        book = prices.PriceBook("us-east-1")
        assert book.take_spot(reads.read_spot(aws, clock))
        aws.close()
    assert book.current().price("m5.large", "a", "spot") == 0.035
    (call,) = server.calls
    assert call["StartTime"] == "2026-11-21T12:00:00Z"
    assert [call["ProductDescription.1"], call["ProductDescription.2"]] == ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]


def product(name: str, price: str) -> str:
    terms = {"OnDemand": {"t": {"priceDimensions": {"d": {"pricePerUnit": {"USD": price}}}}}}
    return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": terms})


def test_the_price_list() -> None:
    def respond(action: str, form: Mapping[str, Any]) -> awshttp.Answer:
        tenancy = {entry["Field"]: entry["Value"] for entry in form["Filters"]}["tenancy"]
        if tenancy == "Dedicated":
            answer: dict[str, Any] = {"PriceList": [product("m5.metal", "4.6")]}
        elif "NextToken" not in form:
            answer = {"PriceList": [product("m5.large", "0.2")], "NextToken": "more"}
        else:
            answer = {"PriceList": [product("c5.large", "0.1")]}
        return 200, json.dumps(answer).encode()

    with awshttp.serving(respond) as server:
        aws = clients(server.url, FakeClock(), "eu-west-1")
        halves = reads.read_on_demand(aws, "eu-west-1")
        assert aws.client("pricing", "eu-central-1").meta.region_name == "eu-central-1"
        aws.close()
    assert halves == [{"m5.large": 0.2, "c5.large": 0.1}, {"m5.metal": 4.6}]
    assert [call["Action"] for call in server.calls] == ["GetProducts"] * 3
    assert all("/eu-central-1/pricing/" in headers["Authorization"] for headers in server.headers)
    book = prices.PriceBook("eu-west-1")
    assert book.take_on_demand(halves, NOON)
    assert book.current().on_demand["m5.large"] == 0.2
