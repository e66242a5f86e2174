"""Figures about EC2 that no API gives, or not everywhere: shipped beside this module, read once.

Sources: AWS VPC resource limits (2026-08-06, Apache-2.0), AWS documentation of network bandwidth, the public price list (2026-07-20); Karpenter's
published reference of instance types (Apache-2.0).
"""

import csv
import functools
from collections.abc import Mapping
from importlib import resources

import msgspec


class EniLimits(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Network interfaces of one type; `branches` are those of pods with security groups, meaningful where `trunking`."""

    interfaces: int
    ipv4_per_interface: int
    trunking: bool
    branches: int


class PriceTable(msgspec.Struct, frozen=True):
    """Linux on-demand prices of one region: type to `currency` per hour."""

    currency: str
    prices: dict[str, float]


@functools.cache
def eni_limits() -> Mapping[str, EniLimits]:
    """Type to its limits; about 1,400 types."""
    return msgspec.json.decode(_read("eni_limits.json"), type=dict[str, EniLimits])


@functools.cache
def network_mbps() -> Mapping[str, int]:
    """Type to its documented baseline network bandwidth, in Mbit/s."""
    return msgspec.json.decode(_read("network_bandwidth.json"), type=dict[str, int])


@functools.cache
def on_demand_prices() -> Mapping[str, PriceTable]:
    """Region to its price table, for the few regions that are shipped."""
    return msgspec.json.decode(_read("on_demand_prices.json"), type=dict[str, PriceTable])


@functools.cache
def published_types() -> tuple[Mapping[str, str], ...]:
    """A row for each instance type of EC2: its labels, and what pods may use of it (AL2023, default settings); "" for what it lacks."""
    return tuple(csv.DictReader(_read("published_types.csv").decode().splitlines()))


def _read(name: str) -> bytes:
    return resources.files("provisioner.ec2.market").joinpath("data", name).read_bytes()
