from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.errors import InsufficientCapacityError
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.ec2 import labels
from provisioner.ec2.launch import selection
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.resources import Resources

Sold = tuple[str, str, float]  # capacity type, zone, price
ANY: Mapping[str, str] = {}
REQUESTS = Resources.of({"cpu": 1000})


def offering(
    kind: str,
    zone: str,
    price: float,
    *,
    available: bool = True,
    reservation: str = "",
    block: bool = False,
    interruptible: bool = False,
    left: int = 0,
) -> Offering:
    place = {names.CAPACITY_TYPE_LABEL: kind, names.ZONE_LABEL: zone}
    if reservation:
        place[labels.RESERVATION_ID] = reservation
        place[labels.RESERVATION_TYPE] = "capacity-block" if block else "default"
        place[labels.RESERVATION_INTERRUPTIBLE] = "true" if interruptible else "false"
    return Offering(Requirements.from_labels(place), price, available, left)


def kind(name: str, *offerings: Offering, cpu: int = 2000, devices: Mapping[str, int] = ANY) -> InstanceType:  # type: ignore[assignment]
    own = Requirements.from_labels(
        {names.INSTANCE_TYPE_LABEL: name, labels.SIZE: name.partition(".")[2], labels.FAMILY: name.partition(".")[0]}
    )
    return InstanceType(name, own, Resources.of({"cpu": cpu, **devices}), offerings=offerings)


def asked(**wanted: list[str]) -> Requirements:
    keys = {"type": names.INSTANCE_TYPE_LABEL, "kind": names.CAPACITY_TYPE_LABEL, "zone": names.ZONE_LABEL}
    return Requirements.of(Requirement.of(keys[key], "In", values) for key, values in wanted.items())


OD, SPOT = offering("on-demand", "a", 0.1), offering("spot", "a", 0.03)


def chosen(
    types: Sequence[InstanceType], requirements: Requirements | None = None, requests: Resources = REQUESTS
) -> tuple[str, list[tuple[str, str, str]]]:
    """Capacity type, and (type, zone, reservation) of everything that may be taken, in order."""
    found = selection.select("c-1", types, requirements or asked(), requests)
    return found.capacity_type, [
        (one.name, sold.zone, sold.requirements.requirement(labels.RESERVATION_ID).single_value or "")
        for one in found.types
        for sold in found.offerings(one)
    ]


@dataclass(frozen=True)
class Case:
    types: tuple[InstanceType, ...]
    kind: str
    want: list[tuple[str, str, str]]
    requirements: Requirements = field(default_factory=asked)


DEAR_SPOT = offering("spot", "b", 0.2)
RESERVED = offering("reserved", "a", 1e-8, reservation="cr-1", left=3)
CASES = {
    "spot before on-demand": Case((kind("m5.large", OD, SPOT),), "spot", [("m5.large", "a", "")]),
    "on-demand where only that is allowed": Case(
        (kind("m5.large", OD, SPOT),), "on-demand", [("m5.large", "a", "")], asked(kind=["on-demand"])
    ),
    "cheapest first": Case(
        (
            kind("m5.large", offering("spot", "a", 0.05)),
            kind("c5.large", offering("spot", "a", 0.04), offering("spot", "b", 0.01)),
        ),
        "spot",
        [("c5.large", "b", ""), ("c5.large", "a", ""), ("m5.large", "a", "")],
    ),
    "closed offerings are not taken": Case(
        (kind("m5.large", OD, offering("spot", "a", 0.01, available=False)),), "on-demand", [("m5.large", "a", "")]
    ),
    "too small": Case((kind("t3.nano", SPOT, cpu=500), kind("m5.large", OD)), "on-demand", [("m5.large", "a", "")]),
    "another type": Case(
        (kind("c5.large", SPOT), kind("m5.large", SPOT)), "spot", [("m5.large", "a", "")], asked(type=["m5.large"])
    ),
    "labels of pool and class are no matter of the type": Case(
        (kind("m5.large", SPOT),),
        "spot",
        [("m5.large", "a", "")],
        Requirements.from_labels({"example.com/team": "a", "karpenter.k8s.aws/ec2nodeclass": "default"}),
    ),
    "spot dearer than on-demand is dropped": Case(
        (kind("m5.large", OD, SPOT, DEAR_SPOT),), "spot", [("m5.large", "a", "")]
    ),
    "all spot dearer than on-demand leaves on-demand": Case(
        (kind("m5.large", OD, DEAR_SPOT),), "on-demand", [("m5.large", "a", "")]
    ),
    "dear spot is kept where only spot is allowed": Case(
        (kind("m5.large", OD, DEAR_SPOT),), "spot", [("m5.large", "b", "")], asked(kind=["spot"])
    ),
    "no metal beside others": Case(
        (kind("m5.metal", SPOT), kind("m5.large", OD)), "on-demand", [("m5.large", "a", "")]
    ),
    "no GPUs beside others": Case(
        (kind("g5.large", SPOT, devices={labels.NVIDIA_GPU: 1}), kind("m5.large", OD)),
        "on-demand",
        [("m5.large", "a", "")],
    ),
    "metal where there is nothing else": Case((kind("m5.metal-24xl", SPOT),), "spot", [("m5.metal-24xl", "a", "")]),
    "reservations before all": Case((kind("m5.large", OD, SPOT, RESERVED),), "reserved", [("m5.large", "a", "cr-1")]),
    "reservations only where allowed": Case(
        (kind("m5.large", OD, RESERVED),), "on-demand", [("m5.large", "a", "")], asked(kind=["on-demand", "spot"])
    ),
    "one reservation a zone: that with most left": Case(
        (
            kind(
                "m5.large",
                RESERVED,
                offering("reserved", "a", 1e-8, reservation="cr-2", left=9),
                offering("reserved", "b", 1e-8, reservation="cr-3", left=1),
            ),
        ),
        "reserved",
        [("m5.large", "a", "cr-2"), ("m5.large", "b", "cr-3")],
    ),
    "types without reservation go": Case(
        (kind("m5.large", RESERVED), kind("c5.large", SPOT)), "reserved", [("m5.large", "a", "cr-1")]
    ),
    "reservations of demand before blocks of the same price": Case(
        (
            kind("m5.large", RESERVED),
            kind("p5.48xlarge", offering("reserved", "a", 1e-8, reservation="cr-b", block=True, left=1)),
        ),
        "reserved",
        [("m5.large", "a", "cr-1")],
    ),
    "the kind of reservation with the cheapest": Case(
        (
            kind("m5.large", RESERVED),
            kind("c5.large", offering("reserved", "a", 1e-9, reservation="cr-i", interruptible=True, left=1)),
        ),
        "reserved",
        [("c5.large", "a", "cr-i")],
    ),
    "one capacity block: the cheapest": Case(
        (
            kind("p5.48xlarge", offering("reserved", "a", 2e-8, reservation="cr-b", block=True, left=1)),
            kind("p4d.24xlarge", offering("reserved", "b", 1e-8, reservation="cr-c", block=True, left=1)),
        ),
        "reserved",
        [("p4d.24xlarge", "b", "cr-c")],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_taken(case: Case) -> None:
    assert chosen(case.types, case.requirements) == (case.kind, case.want)


NOTHING = {
    "nothing fits": (kind("m5.large", OD, cpu=500),),
    "nothing is open": (kind("m5.large", offering("spot", "a", 1, available=False)),),
    "nothing at all": (),
}


@pytest.mark.parametrize("types", NOTHING.values(), ids=NOTHING)
def test_nothing_left_names_the_filter(types: tuple[InstanceType, ...]) -> None:
    with pytest.raises(
        InsufficientCapacityError, match="c-1: no instance type remains after the filter compatible-launchable-filter"
    ):
        chosen(types)


MANY = [kind(f"m{number}.large", offering("spot", "a", 1 + number)) for number in range(100)]


def test_the_sixty_cheapest() -> None:
    found = selection.select("c-1", list(reversed(MANY)), asked(), REQUESTS)
    assert [one.name for one in found.types] == [f"m{number}.large" for number in range(60)]


def wide(count: int) -> Requirements:
    return Requirements.of([Requirement.of(labels.FAMILY, "Exists", (), count)])


def test_min_values_keep_exotic_and_dear_ones() -> None:
    types = [kind("m5.metal", OD, DEAR_SPOT), kind("c5.large", OD, SPOT)]
    found = selection.select("c-1", types, wide(2), REQUESTS)
    assert [one.name for one in found.types] == ["c5.large", "m5.metal"]


def test_min_values_that_sixty_types_cannot_give() -> None:
    with pytest.raises(
        InsufficientCapacityError, match=r"the 60 cheapest instance types do not meet minValues: .*family has 60"
    ):
        selection.select("c-1", MANY, wide(61), REQUESTS)
    assert len(selection.select("c-1", MANY, wide(61), REQUESTS, best_effort=True).types) == 60
    assert len(selection.select("c-1", MANY, wide(60), REQUESTS).types) == 60
