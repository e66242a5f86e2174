"""The catalogue of a region: what EC2 describes, turned into instance types for each class and kept until something changes.

Reading AWS is the caller's; `Catalogue` takes the answers, and hands out the same tuple for as long as nothing in it changed, so that
whoever solves with it can keep what it derived.
"""

import operator
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from provisioner.cloudprovider.aws import types
from provisioner.cloudprovider.aws.offerings import Market, offerings_of
from provisioner.cloudprovider.aws.types import LearnedMemory, Settings, Shape
from provisioner.cloudprovider.aws.wire import TypeInfo
from provisioner.cloudprovider.types import InstanceType

MAX_SHAPES: Final = 64


@dataclass(frozen=True)
class Region:
    """What EC2 sells in a region.

    Attributes:
        infos: the types that Kubernetes can run on, in order of name.
        zones: type to the zones where it is offered.
    """

    infos: tuple[TypeInfo, ...] = ()
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, infos: Iterable[TypeInfo], offered: Iterable[tuple[str, str]]) -> "Region":
        """From the rows of DescribeInstanceTypes and DescribeInstanceTypeOfferings, any order."""
        zones: dict[str, set[str]] = {}
        for name, zone in offered:
            zones.setdefault(name, set()).add(zone)
        usable = {info.name: info for info in infos if types.usable(info)}
        return cls(
            tuple(usable[name] for name in sorted(usable)),
            {name: tuple(sorted(there)) for name, there in sorted(zones.items()) if name in usable},
        )


@dataclass(slots=True)
class _Built:
    """What was made for one shape, and from what."""

    learned_version: int
    bodies: tuple[InstanceType, ...]
    market_version: object
    types: tuple[InstanceType, ...]


class Catalogue:
    """Instance types by class. Thread-safe; two classes of equal shape share everything."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._region = Region()
        self._infos: dict[str, TypeInfo] = {}
        self._all_zones: tuple[str, ...] = ()
        self._built: dict[Shape, _Built] = {}

    @property
    def ready(self) -> bool:
        """Whether there is anything to sell."""
        return bool(self._region.infos) and bool(self._region.zones)

    @property
    def settings(self) -> Settings:
        """The settings that types are made with."""
        return self._settings

    def info(self, instance_type: str) -> TypeInfo | None:
        """What EC2 says of one type."""
        return self._infos.get(instance_type)

    def load(self, region: Region) -> bool:
        """Take over what EC2 describes now; whether anything differs from before."""
        with self._lock:
            if region == self._region:
                return False
            self._region = region
            self._infos = {info.name: info for info in region.infos}
            self._all_zones = tuple(sorted({zone for zones in region.zones.values() for zone in zones}))
            self._built.clear()
            return True

    def configure(self, settings: Settings) -> bool:
        """Take over other settings (aws-node's prefix delegation was switched); whether anything differs."""
        with self._lock:
            if settings == self._settings:
                return False
            self._settings = settings
            self._built.clear()
            return True

    def known(self, shape: Shape) -> tuple[InstanceType, ...] | None:
        """The answer that `types` last gave for the shape, whatever changed since; None where it was never asked. Costs nothing."""
        built = self._built.get(shape)
        return None if built is None else built.types

    def types(
        self,
        shape: Shape,
        market: Market,
        market_version: object,
        learned: LearnedMemory | None = None,
        learned_version: int = 0,
    ) -> tuple[InstanceType, ...]:
        """What machines of the class can be, in order of name; the same tuple while nothing changed.

        Args:
            shape: what the class makes of a type.
            market: prices, shortages, reservations, as they are now.
            market_version: equal while `market` says the same; the market is not looked at then.
            learned: memory that nodes turned out to have.
            learned_version: equal while `learned` does.

        Cost: nothing where the versions are those of the last call; else about 0.1 s for the 1,400 types of a region, and 0.3 s more for
            a new shape or new figures.
        """
        with self._lock:
            region, infos, zones, settings = self._region, self._infos, self._all_zones, self._settings
            built = self._built.get(shape)
        if built is not None and (built.market_version, built.learned_version) == (market_version, learned_version):
            return built.types
        if built is not None and built.learned_version == learned_version:
            bodies = built.bodies
        else:
            bodies = tuple(
                types.type_of(info, region.zones.get(info.name, ()), shape, settings, learned) for info in region.infos
            )
        before = {} if built is None else {one.name: one for one in built.types}
        made = tuple(
            _sold(body, before.get(body.name), zones, shape, market, fit=not types.unfit(infos[body.name], shape))
            for body in bodies
        )
        if built is not None and len(made) == len(built.types) and all(map(operator.is_, made, built.types)):
            made = built.types
        with self._lock:
            if region is self._region and settings is self._settings:
                self._built.pop(shape, None)
                self._built[shape] = _Built(learned_version, bodies, market_version, made)
                while len(self._built) > MAX_SHAPES:
                    del self._built[next(iter(self._built))]
        return made


def _sold(
    body: InstanceType, before: InstanceType | None, zones: tuple[str, ...], shape: Shape, market: Market, *, fit: bool
) -> InstanceType:
    """`body` with its offerings; the former object where it is equal."""
    offered = offerings_of(body, zones, shape, market, fit=fit)
    if (
        before is not None
        and before.offerings == offered
        and before.capacity == body.capacity
        and before.overhead == body.overhead
        and before.requirements == body.requirements
    ):
        return before
    return replace(body, offerings=offered)
