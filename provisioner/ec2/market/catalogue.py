"""The catalogue of a region: what EC2 describes, turned into instance types for each class and kept until something changes.

Reading AWS is the caller's; `EC2Catalogue` takes the answers, and hands out the same tuple for as long as nothing in it changed, so that
whoever solves with it can keep what it derived.
"""

import operator
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2.access.wire import TypeInfo
from provisioner.ec2.market import instance_types
from provisioner.ec2.market.instance_types import LearnedMemory, MarketSettings, Shape
from provisioner.ec2.market.offerings import OfferingMarket, offerings_of
from provisioner.values.bounded import forget_oldest

FEW_SHAPES: Final = 64
"""So many shapes are kept, however long nobody asked for them: 4 MB each in a big region."""

MAX_SHAPES: Final = 1024
IDLE_SECONDS: Final = 900.0
"""Beyond those few, a shape is kept for so long after somebody asked for it. Plans ask for every class's again and again: fewer than there are
classes would be worked out anew every time."""


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
        usable = {info.name: info for info in infos if instance_types.usable(info)}
        return cls(
            tuple(usable[name] for name in sorted(usable)),
            {name: tuple(sorted(there)) for name, there in sorted(zones.items()) if name in usable},
        )


@dataclass(frozen=True, slots=True)
class _Built:
    """What was made for one shape, and from what; the tuples are parallel to the region's types.

    Attributes:
        guessed: the types with the memory that they are guessed to have, without offerings.
        images: ids of the images that they boot; "" without one.
        fits: whether they can be launched for the class, but for images.
        memory: bytes that were learned; None where nothing was.
        bodies: `guessed` with `memory`.
        types: `bodies` with offerings.
    """

    guessed: tuple[InstanceType, ...]
    images: tuple[str, ...]
    fits: tuple[bool, ...]
    learned_version: int
    memory: tuple[int | None, ...]
    bodies: tuple[InstanceType, ...]
    market_version: object
    types: tuple[InstanceType, ...]


class EC2Catalogue:
    """Instance types by class. Thread-safe; two classes of equal shape share everything."""

    def __init__(self, settings: MarketSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._building = threading.Lock()
        self._region = Region()
        self._infos: dict[str, TypeInfo] = {}
        self._all_zones: tuple[str, ...] = ()
        self._built: dict[Shape, _Built] = {}
        self._asked: dict[Shape, float] = {}

    @property
    def settings(self) -> MarketSettings:
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

    def configure(self, settings: MarketSettings) -> bool:
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
        market: OfferingMarket,
        market_version: object,
        learned: LearnedMemory | None = None,
        learned_version: int = 0,
        *,
        at: float = 0.0,
    ) -> tuple[InstanceType, ...]:
        """What instances of the class can be, in order of name; the same tuple while nothing changed.

        Args:
            shape: what the class makes of a type.
            market: prices, shortages, reservations, as they are now.
            market_version: equal while `market` says the same; the market is not looked at then.
            learned: memory that nodes turned out to have.
            learned_version: equal while `learned` does.
            at: monotonic seconds, for what nobody asks for any more.

        Cost: nothing where the versions are those of the last call; else about 0.05 s for the 1,400 types of a region, 0.3 s for a new
            shape, and for new figures what the types cost that they are about.
        """
        self._asked[shape] = at
        built = self._built.get(shape)
        if built is not None and (built.market_version, built.learned_version) == (market_version, learned_version):
            return built.types
        with self._building:  # whoever needs the same waits for it, instead of working it out as well
            return self._build(shape, market, market_version, learned, learned_version)

    def _build(
        self,
        shape: Shape,
        market: OfferingMarket,
        market_version: object,
        learned: LearnedMemory | None,
        learned_version: int,
    ) -> tuple[InstanceType, ...]:
        with self._lock:
            region, zones, settings = self._region, self._all_zones, self._settings
            before = self._built.get(shape)
        if before is not None and (before.market_version, before.learned_version) == (market_version, learned_version):
            return before.types
        built = before or _first(region, shape, settings)
        if built.learned_version != learned_version or before is None:
            built = _with_memory(built, learned, learned_version)
        same_market = before is not None and before.market_version == market_version
        known: Sequence[InstanceType | None] = before.types if before is not None else (None,) * len(built.bodies)
        bodies: Sequence[InstanceType | None] = before.bodies if before is not None else known
        made = tuple(
            one
            if one is not None and same_market and body is former
            else _sold(
                body,
                one,
                zones,
                shape,
                market,
                fit=fits and _boots(shape, image),
            )
            for body, one, former, image, fits in zip(
                built.bodies, known, bodies, built.images, built.fits, strict=True
            )
        )
        if before is not None and all(map(operator.is_, made, before.types)):
            made = before.types
        built = replace(built, market_version=market_version, types=made)
        with self._lock:
            if region is self._region and settings is self._settings:
                self._built.pop(shape, None)
                self._built[shape] = built
                self._forget_idle(self._asked.get(shape, 0.0) - IDLE_SECONDS)
        return made

    def _forget_idle(self, before: float) -> None:
        """Drop what nobody asked for since then, beyond a few; the shape that was put in last stays."""
        for shape in list(self._built)[:-1]:
            if len(self._built) <= FEW_SHAPES:
                break
            if self._asked.get(shape, before) < before:
                del self._built[shape]
        forget_oldest(self._built, MAX_SHAPES)
        if len(self._asked) > 2 * len(self._built) + FEW_SHAPES:
            self._asked = {shape: self._asked[shape] for shape in self._built if shape in self._asked}


def _first(region: Region, shape: Shape, settings: MarketSettings) -> _Built:
    """Everything of a shape that neither the market nor what is learned changes."""
    guessed = tuple(
        instance_types.type_of(info, region.zones.get(info.name, ()), shape, settings) for info in region.infos
    )
    images = tuple(
        "" if (image := instance_types.image_for(one.requirements, shape.amis)) is None else image.id for one in guessed
    )
    fits = tuple(
        not (instance_types.unfit(one, shape) or instance_types.formula_problem(one, shape, settings))
        for one in region.infos
    )
    return _Built(guessed, images, fits, 0, (None,) * len(guessed), guessed, None, ())


def _boots(shape: Shape, image: str) -> bool:
    """Whether one of the class's images boots on a type; while the class has none, nobody can tell."""
    return bool(image) or not shape.amis


def _with_memory(built: _Built, learned: LearnedMemory | None, version: int) -> _Built:
    """The same with what is learned now; bodies whose memory is as before stay the same objects."""
    memory = tuple(
        learned(one.name, image) if learned is not None and image else None
        for one, image in zip(built.guessed, built.images, strict=True)
    )
    bodies = tuple(
        body if amount == former else guess if amount is None else instance_types.with_memory(guess, amount)
        for guess, body, amount, former in zip(built.guessed, built.bodies, memory, built.memory, strict=True)
    )
    return replace(built, learned_version=version, memory=memory, bodies=bodies)


def _sold(
    body: InstanceType,
    before: InstanceType | None,
    zones: tuple[str, ...],
    shape: Shape,
    market: OfferingMarket,
    *,
    fit: bool,
) -> InstanceType:
    """`body` with its offerings; the former object where it is equal."""
    sold = replace(body, offerings=offerings_of(body, zones, shape, market, fit=fit))
    return before if before is not None and before == sold else sold
