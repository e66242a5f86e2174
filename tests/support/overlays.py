"""Short ways to write NodeOverlays, and a small catalogue for them."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.overlay import NodeOverlay
from provisioner.cloudprovider.overlays import Overlays
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.resources import Resources
from tests.support.clock import FakeClock
from tests.support.cluster import pool

ZONES = ("a", "b")
KINDS = ("on-demand", "spot")


def overlay(name: str, *requirements: tuple[str, str, Iterable[str]], **spec: Any) -> NodeOverlay:
    """One NodeOverlay; `requirements` are (key, operator, values), `spec` is by wire name."""
    said = [{"key": key, "operator": operator, "values": list(values)} for key, operator, values in requirements]
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1},
        "spec": {"requirements": said, **spec},
    }
    return msgspec.convert(body, NodeOverlay, strict=False)


def kind(name: str, price: float, arch: str = "amd64", **capacity: str) -> InstanceType:
    """An instance type in two zones, on demand and, at half the price, as spot."""
    offerings = tuple(
        Offering(
            Requirements.from_labels({names.ZONE_LABEL: zone, names.CAPACITY_TYPE_LABEL: how}),
            price / (2 if how == "spot" else 1),
        )
        for zone in ZONES
        for how in KINDS
    )
    requirements = Requirements.from_labels({names.INSTANCE_TYPE_LABEL: name, names.ARCH_LABEL: arch}).merged(
        Requirements.of(
            [
                Requirement.of(names.ZONE_LABEL, "In", ZONES),
                Requirement.of(names.CAPACITY_TYPE_LABEL, "In", KINDS),
            ]
        )
    )
    return InstanceType(
        name, requirements, Resources.parse({"cpu": "4", "memory": "16Gi", **capacity}), offerings=offerings
    )


def catalogue() -> tuple[InstanceType, ...]:
    """Three types, made anew with every call."""
    return kind("arm", 0.8, "arm64"), kind("big", 2.0), kind("small", 1.0)


class OverlayFleet:
    """Overlays over the small catalogue, for pools "general" and "team"; the second one's nodes are labelled team=red."""

    def __init__(self, *overlays: NodeOverlay) -> None:
        self.clock, self.types = FakeClock(), catalogue()
        self.pools = [pool(), pool("team", template={"requirements": []})]
        labelled = msgspec.structs.replace(
            self.pools[1].spec.template,
            metadata=msgspec.convert({"labels": {"team": "red"}}, type(self.pools[1].spec.template.metadata)),
        )
        self.pools[1] = msgspec.structs.replace(
            self.pools[1], spec=msgspec.structs.replace(self.pools[1].spec, template=labelled)
        )
        self.overlays = Overlays(lambda: self.pools, self.clock)
        self.asked = self.overlays.over(lambda _: self.types)
        for one in overlays:
            self.overlays.changed(None, one)

    def of(self, name: str = "general") -> tuple[InstanceType, ...]:
        """What a pool has, the catalogue's tuple being asked for anew."""
        return self.overlays.applied(name, self.types)

    def prices(self, name: str = "general") -> Mapping[str, float]:
        """Of each offering, as "type/zone/how"."""
        return {
            f"{one.name}/{offering.zone}/{offering.capacity_type}": round(offering.price, 6)
            for one in self.of(name)
            for offering in one.offerings
        }
