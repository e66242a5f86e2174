"""The offerings of one instance type for one class: where and how it can be bought, for what, and whether now. Pure.

Source: spec/karpenter-aws.md 4.8.
Differs: an offering without a price is offered last instead of never, but for spot once the market is known; shortages of a partition
    of a placement group count.
"""

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from provisioner.apis import names
from provisioner.apis.ec2 import CapacityReservation
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.ec2 import labels
from provisioner.ec2.market.discounts import LedgerPrices
from provisioner.ec2.market.instance_types import Shape
from provisioner.ec2.market.prices import LAST_RESORT_USD_PER_HOUR, PriceList
from provisioner.ec2.market.structural_caps import FullCapacity
from provisioner.ec2.market.unavailable_offerings import OfferingKey, Shortages
from provisioner.values.requirement import Operator, Requirement, Requirements

_BUYABLE: Final = (names.CAPACITY_ON_DEMAND, names.CAPACITY_SPOT)
_SPOT_ALTERNATIVES: Final = 15
"""A fleet's strategy for spot, price-capacity-optimized, asks the pools with most spare capacity for the lowest of their prices. Source:
EC2 User Guide, "Use allocation strategies to determine how EC2 Fleet or Spot Fleet fulfills Spot and On-Demand capacity"; the number is
that of Karpenter's rule for moving spot to spot. Until the spot market was read, spot costs what on-demand does, and there is nothing to mix."""


@dataclass(frozen=True)
class OfferingMarket:
    """What decides about offerings, at one instant.

    Attributes:
        price: of (type, zone, capacity type), as decisions take it; None where there is none.
        open: whether an offering is not known to be short.
        reserved: how many instances are left, by reservation id.
        reservation_open: whether a reservation, by its id, is not known to be short, whatever is left of it.
        spot_known: whether the spot market was read: then a type that it does not list is not sold as spot.
        shifted: ids of zones that traffic is shifted away from.
        full: what admits no further instance.
        adjusted: whether decisions take another price than EC2's for (type, zone, capacity type).
    """

    price: Callable[[str, str, str], float | None]
    open: Callable[[OfferingKey], bool] = field(default=lambda _: True)
    reserved: Mapping[str, int] = field(default_factory=dict)
    reservation_open: Callable[[str], bool] = field(default=lambda _: True)
    spot_known: bool = False
    shifted: frozenset[str] = frozenset()
    full: FullCapacity = field(default_factory=FullCapacity)
    adjusted: Callable[[str, str, str], bool] = lambda name, zone, kind: False  # noqa: ARG005 - the seam has it


def offerings_of(
    body: InstanceType, zones: Iterable[str], shape: Shape, market: OfferingMarket, *, fit: bool
) -> tuple[Offering, ...]:
    """Every offering of the type, launchable or not, in order of zone, capacity type, partition, reservation.

    Args:
        body: the type as `instance_types.type_of` made it.
        zones: every zone of the region that sells anything.
        shape: of the class.
        market: prices, shortages and reservations.
        fit: whether the class can use the type (`instance_types.unfit`).
    """
    own = body.requirements.requirement(names.ZONE_LABEL)
    kinds = [kind for kind in _BUYABLE if body.requirements.requirement(names.CAPACITY_TYPE_LABEL).has(kind)]
    group = shape.group
    partitions = ("",) if group is None or not group.partitions else tuple(map(str, range(1, group.partitions + 1)))
    found = []
    for zone in sorted(zones):
        zone_id = shape.zone_id(zone)
        here = fit and own.has(zone) and zone_id not in market.shifted
        for kind in kinds:
            price = market.price(body.name, zone, kind)
            sold = here and (price is not None or kind != names.CAPACITY_SPOT or not market.spot_known)
            usd = LAST_RESORT_USD_PER_HOUR if price is None else price
            for partition in partitions:
                offer = OfferingKey(kind, body.name, zone, "" if group is None else group.id, partition)
                full = market.full.of(offer, shape)
                found.append(
                    Offering(
                        _buyable(kind, zone, zone_id, partition),
                        usd,
                        sold and (full is not None or market.open(offer)),  # what is full explains a launch that failed
                        alternatives=_SPOT_ALTERNATIVES if kind == names.CAPACITY_SPOT and market.spot_known else 1,
                        full=full,
                    )
                )
    found.extend(
        Offering(
            _reserved(one, shape.zone_id(one.availability_zone), partition),
            market.price(body.name, one.availability_zone, names.CAPACITY_RESERVED) or 0.0,
            fit
            and market.reservation_open(one.id)
            and own.has(one.availability_zone)
            and one.state != "expiring"
            and shape.zone_id(one.availability_zone) not in market.shifted,
            reservation_capacity=market.reserved.get(one.id, 0),
            full=market.full.of_reservation(
                one.id,
                OfferingKey(
                    names.CAPACITY_RESERVED,
                    body.name,
                    one.availability_zone,
                    "" if group is None else group.id,
                    partition,
                ),
                shape,
            ),
        )
        for one in shape.reservations_of(body.name)
        for partition in partitions
    )
    return tuple(found)


def market_of(
    prices: PriceList,
    ledger: LedgerPrices | None,
    shortages: Shortages,
    now: datetime,
    reserved: Mapping[str, int],
    shifted: frozenset[str] = frozenset(),
    full: FullCapacity = FullCapacity(),  # noqa: B008  (frozen)
) -> tuple[OfferingMarket, Hashable]:
    """The market at `now`, and a version that is equal for as long as nothing in it changes: for `Catalogue.types`.

    Args:
        prices: the list of this moment.
        ledger: what is paid instead of list prices; decisions go by it, metrics that carry Karpenter's names by the list.
        shortages: the table.
        now: aware.
        reserved: instances left, by reservation id.
        shifted: ids of zones that traffic is shifted away from.
        full: what admits no further instance.
    """

    def paid(name: str, zone: str, kind: str) -> float | None:
        price = prices.price(name, zone, kind)
        return price if price is None or ledger is None else ledger.adjusted(name, zone, kind, price)

    market = OfferingMarket(
        price=paid,
        adjusted=lambda name, zone, kind: (
            ledger is not None and paid(name, zone, kind) != prices.price(name, zone, kind)
        ),
        open=lambda offer: shortages.standing(offer, now).available,
        reserved=dict(reserved),
        reservation_open=lambda name: shortages.reservation_open(name, now),
        spot_known=prices.spot_known,
        shifted=shifted,
        full=full,
    )
    version = (
        *(prices.version, prices.spot_known, None if ledger is None else ledger.version),
        *(shortages.version(now), tuple(sorted(reserved.items())), shifted),
        *(full.reservations, full.groups, full.subnets),
    )
    return market, version


@functools.lru_cache(maxsize=4096)  # the same few in every type
def _buyable(kind: str, zone: str, zone_id: str, partition: str) -> Requirements:
    absent = (Requirement.of(key, Operator.DOES_NOT_EXIST) for key in labels.RESERVATION_LABELS)
    return Requirements.from_labels(_place(kind, zone, zone_id, partition)).merged(Requirements.of(absent))


@functools.lru_cache(maxsize=4096)
def _reserved(one: CapacityReservation, zone_id: str, partition: str) -> Requirements:
    return Requirements.from_labels(
        {
            **_place(names.CAPACITY_RESERVED, one.availability_zone, zone_id, partition),
            labels.RESERVATION_ID: one.id,
            labels.RESERVATION_TYPE: one.reservation_type,
            labels.RESERVATION_INTERRUPTIBLE: "true" if one.interruptible else "false",
        }
    )


def _place(kind: str, zone: str, zone_id: str, partition: str) -> dict[str, str]:
    place = {names.CAPACITY_TYPE_LABEL: kind, names.ZONE_LABEL: zone}
    if zone_id:
        place[labels.ZONE_ID] = zone_id
    if partition:
        place[labels.PLACEMENT_GROUP_PARTITION] = partition
    return place
