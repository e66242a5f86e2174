"""What the whole catalogue of a region costs, from HTTP pages to instance types with offerings, in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from provisioner.lab.harness.machine import calibration, slowness
from tests.support import awshttp, ec2pages

PROGRAM = """
import gc, json, sys, time, tracemalloc
from provisioner.ec2.access import client, wire
from provisioner.ec2.market import catalogue, prices, unavailable_offerings
from provisioner.ec2.market import instance_types as types
from provisioner.ec2.market.offerings import OfferingMarket
from provisioner.support.clock import SystemClock
from tests.support import awshttp

url, traced = sys.argv[1], sys.argv[2] == "memory"
clock = SystemClock()
aws = client.AwsClients(client.CallPolicy("us-east-1"), clock, awshttp.session(url))
aws.client("ec2")  # botocore's own model is there before
gc.collect()
if traced:
    tracemalloc.start()
began = time.process_time()
infos = list(aws.rows("ec2", "DescribeInstanceTypes", wire.instance_types, MaxResults=100))
offered = list(aws.rows("ec2", "DescribeInstanceTypeOfferings", wire.offered, LocationType="availability-zone", MaxResults=1000))
made = catalogue.EC2Catalogue(types.MarketSettings("us-east-1"))
made.load(catalogue.Region.of(infos, offered))
book, short, now = prices.PriceBook("us-east-1"), unavailable_offerings.Shortages(), clock.now()
market = OfferingMarket(book.current().price, lambda offer: short.standing(offer, now).available)
shape = types.Shape("AL2023", (("us-east-1a", "use1-az1"), ("us-east-1b", "use1-az2"), ("us-east-1c", "use1-az4")))
found = made.types(shape, market, 1)
cost = time.process_time() - began
peak = tracemalloc.get_traced_memory()[1] if traced else 0
print(json.dumps({"types": len(found), "offerings": sum(len(one.offerings) for one in found), "cpu": cost, "peak": peak}))
"""


@pytest.fixture(scope="module")
def pages() -> dict[str, list[bytes]]:
    return {
        "DescribeInstanceTypes": ec2pages.type_pages(ec2pages.described_types().values(), 100),
        "DescribeInstanceTypeOfferings": ec2pages.offering_pages(ec2pages.offered_zones("us-east-1"), 1000),
    }


def measured(pages: Mapping[str, list[bytes]], what: str) -> dict[str, Any]:
    def respond(action: str, form: Mapping[str, str]) -> awshttp.Answer:
        return 200, pages[action][int(form.get("NextToken", "0")) // int(form["MaxResults"])]

    with awshttp.serving(respond) as server:
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, server.url, what], check=True, capture_output=True, text=True, timeout=120
        )
    found: dict[str, Any] = json.loads(run.stdout)
    print(found)
    assert found["types"] > 1350
    assert found["offerings"] > 16_000
    return found


@pytest.mark.bench
def test_at_most_a_second_of_cpu(pages: Mapping[str, list[bytes]]) -> None:
    """On a machine whose calibration loop takes 0.069 s."""
    assert measured(pages, "cpu")["cpu"] <= 1.0 * slowness(calibration())


def test_at_most_25_mb(pages: Mapping[str, list[bytes]]) -> None:
    assert 2_000_000 < measured(pages, "memory")["peak"] <= 25_000_000
