"""Catalogue, selection, fleet and the table of shortages together, when the cheapest 90 % of offerings have no capacity for half an hour.

EC2 is a rule here: a dead offering refuses, the cheapest living one gives everything. The launcher is the simplest that keeps the rules: it asks the
trusted offerings for all instances, or, where there are none, the doubted ones for what they are granted, one call every 0.6 s.
"""

import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from provisioner.apis import ec2, names
from provisioner.cloudprovider.errors import InsufficientCapacityError
from provisioner.ec2 import labels
from provisioner.ec2.access import wire
from provisioner.ec2.launch import fleet, selection
from provisioner.ec2.launch.fleet import Override
from provisioner.ec2.launch.selection import Selection
from provisioner.ec2.market import instance_types
from provisioner.ec2.market.catalogue import EC2Catalogue, Region
from provisioner.ec2.market.offerings import market_of
from provisioner.ec2.market.prices import PriceBook
from provisioner.ec2.market.unavailable_offerings import OfferingKey, OfferingStanding, Shortages
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.resources import Resources
from tests.support import ec2pages
from tests.support.clock import NOON

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
WANTED = Requirements.of(
    [Requirement.of(labels.CATEGORY, "In", ["c", "m", "r"]), Requirement.of(names.ARCH_LABEL, "In", ["amd64"])]
)
ROOM = Resources.of({"cpu": 7000, "memory": 14 * 2**30})  # eight pods of 0.85 CPU
INSTANCES = 125
CALL = timedelta(seconds=0.6)
BACK = NOON + timedelta(minutes=30)


class World:
    """The region, what is dead of it, and the launcher."""

    def __init__(self, seed: int) -> None:
        offered = [(row["InstanceType"], row["Location"]) for row in ec2pages.offered_zones("us-east-1")]
        infos = [
            info
            for page in ec2pages.type_pages(
                described for name, described in ec2pages.described_types().items() if name[0] in "cmr"
            )
            for info in wire.instance_types(page)[0]
        ]
        rng = random.Random(seed)
        self.catalogue = EC2Catalogue(instance_types.MarketSettings("us-east-1"))
        self.catalogue.load(Region.of(infos, offered))
        self.book = PriceBook("us-east-1")
        listed = self.book.current().on_demand
        self.book.take_spot(
            wire.SpotRow(name, zone, listed[name] * rng.uniform(0.25, 0.6), NOON)
            for name, zone in offered
            if name in listed
        )
        self.shape = instance_types.Shape(ec2.AL2023, tuple((zone, f"{zone}-id") for zone in ZONES))
        self.table = Shortages()
        self.now = NOON
        self.calls: list[datetime] = []
        every = sorted(
            (offering.price, OfferingKey(offering.capacity_type, one.name, offering.zone))
            for one in self.types()
            if ROOM.fits(one.allocatable) and one.requirements.conflict(WANTED) is None
            for offering in one.offerings
            if offering.available
        )
        self.dead = {offer for _, offer in every[: len(every) * 9 // 10]}

    def types(self) -> tuple[Any, ...]:
        market, version = market_of(self.book.current(), None, self.table, self.now, {})
        return self.catalogue.types(self.shape, market, version)

    def answer(self, overrides: list[Override], count: int) -> dict[str, Any]:
        """What EC2 says."""
        errors = []
        for one in sorted(overrides, key=lambda override: override.price):
            place = {
                "InstanceType": one.offer.instance_type,
                "AvailabilityZone": one.offer.zone,
                "SubnetId": one.subnet,
            }
            echo = {"LaunchTemplateAndOverrides": {"Overrides": place}}
            if one.offer in self.dead and self.now < BACK:
                errors.append({"ErrorCode": "InsufficientInstanceCapacity", **echo})
                continue
            ids = [f"i-{len(self.calls)}-{number}" for number in range(count)]
            return {"Errors": errors, "Instances": [{"InstanceIds": ids, **echo}]}
        return {"Errors": errors}

    def choice(self, found: Selection, wanted: int) -> tuple[list[Override], int]:
        """Which offerings to name, and for how many instances."""
        prices: Mapping[OfferingKey, float] = {
            OfferingKey(offering.capacity_type, one.name, offering.zone): offering.price
            for one in found.types
            for offering in found.offerings(one)
        }
        standings = {offer: self.table.standing(offer, self.now) for offer in prices}
        trusted = [offer for offer, standing in standings.items() if standing is OfferingStanding.OPEN]
        if trusted:
            return [Override("lt", offer, offer.zone, "ami", prices[offer]) for offer in trusted], wanted
        open_to_us = [offer for offer, standing in standings.items() if standing.available]
        granted = {offer: self.table.grant(offer, wanted, self.now) for offer in open_to_us}
        lent = {offer: count for offer, count in granted.items() if count}
        return [Override("lt", offer, offer.zone, "ami", prices[offer]) for offer in lent], min(
            lent.values(), default=0
        )

    def launch(self, instances: int) -> tuple[timedelta, int]:
        """Launch so many; how long it took, and how many calls."""
        began, before = self.now, len(self.calls)
        while instances > 0:
            try:
                found = selection.select("c-1", self.types(), WANTED, ROOM)
            except InsufficientCapacityError:
                self.now += timedelta(seconds=1)
                continue
            overrides, count = self.choice(found, instances)
            if overrides:
                self.calls.append(self.now)
                told = fleet.outcome(self.answer(overrides, count), overrides, found.capacity_type)
                fleet.note(told, overrides, self.table, self.now)
                for one in overrides:
                    self.table.release(one.offer, count, self.now)
                instances -= len(told.launched)
            self.now += CALL
        return self.now - began, len(self.calls) - before


@pytest.mark.timeout(300)
def test_scarcity_costs_few_calls_and_little_time() -> None:
    """Once from knowing nothing, then again when what was learned has grown old; then capacity is back."""
    made = World(seed=1)
    assert 1000 < len(made.dead) < 10_000
    for pause in (0, 4, 20):
        made.now += timedelta(minutes=pause)
        took, calls = made.launch(INSTANCES)
        print(f"{INSTANCES} instances after {pause} min: {calls} calls in {took.total_seconds():.0f} s")
        assert calls <= 1.5 * INSTANCES
        assert took <= timedelta(minutes=2)
    made.now = max(made.now, BACK)
    took, calls = made.launch(INSTANCES)
    print(f"{INSTANCES} instances once capacity is back: {calls} calls in {took.total_seconds():.0f} s")
    assert took <= timedelta(minutes=5)
    assert calls <= 1.5 * INSTANCES
    assert len(made.table.to_config(made.now)["shortage.json"]) <= 900 * 1024
