"""NodeOverlays: other prices and more resources for the instance types of any provider. Source: core spec 1.3.

`Overlay` to `changed_type` are pure; `Overlays` keeps what is in force and remembers what it made, so that equal inputs give the
same objects and the solver's caches hold.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.overlay import PRICE, PRICE_ADJUSTMENT, NodeOverlay
from provisioner.apis.overlay_conflicts import PRICE_SUBJECT, subjects
from provisioner.apis.verdicts import overlays_conflict
from provisioner.cloudprovider.types import MOST_USD_PER_HOUR, CloudProvider, InstanceType, LaunchedInstance, Offering
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.values.quantity import QuantityError
from provisioner.values.requirement import Requirement, RequirementError, Requirements
from provisioner.values.resources import EMPTY, Resources

#: Instance types that a provider has now and had not before may bring overlays into conflict.
RECHECK_SECONDS: Final = 10.0
_RESTRICTED: Final = (names.CPU, names.MEMORY, names.EPHEMERAL_STORAGE, names.PODS)
_PRICE, _ADJUSTMENT = re.compile(PRICE, re.ASCII), re.compile(PRICE_ADJUSTMENT, re.ASCII)
_ENTRIES: Final = 2
_log = logs.get_logger(__name__)

P = TypeVar("P", bound=CloudProvider)


class OverlayError(ValueError):
    """A NodeOverlay that cannot be read: which field, and why."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field, self.problem = field, problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


@dataclass(frozen=True, slots=True)
class PriceChange:
    """What becomes of a price: `factor` times the price, plus `usd`; never below 0."""

    factor: float
    usd: float

    def of(self, price: float) -> float:
        """The new price, in USD per hour."""
        kept = price * self.factor if self.factor else 0.0  # a price that nobody knows may be infinite
        return max(0.0, kept + self.usd)


@dataclass(frozen=True, slots=True)
class Overlay:
    """A NodeOverlay that can be read.

    Attributes:
        weight: where overlays contradict, the one of higher weight counts.
        requirements: which instance types and offerings are meant.
        subjects: what it changes, as of `apis.overlay_conflicts`.
        price: None where it leaves prices alone.
        capacity: resources that the types have besides what the provider tells.
    """

    name: str
    weight: int
    requirements: Requirements
    subjects: frozenset[str]
    price: PriceChange | None = None
    capacity: Resources = EMPTY


@dataclass(frozen=True, slots=True)
class Change:
    """What overlays make of one instance type.

    Attributes:
        prices: by offering, in the type's order; None leaves one alone.
        capacity: what is put over the type's own.
    """

    prices: tuple[PriceChange | None, ...] = ()
    capacity: Resources = EMPTY

    def __bool__(self) -> bool:
        return bool(self.capacity) or any(one is not None for one in self.prices)


@dataclass(frozen=True, slots=True)
class OverlayProblem:
    """Why an overlay is not in force; the reason is RuntimeValidation or Conflict."""

    reason: str
    message: str


def read(overlay: NodeOverlay) -> Overlay:
    """The overlay as a value.

    Raises:
        OverlayError: a field cannot be read.
    """
    spec = overlay.spec
    try:
        requirements = Requirements.of(one.requirement() for one in spec.requirements)
    except RequirementError as error:
        raise OverlayError("spec.requirements", str(error)) from error
    if spec.price is not None and spec.price_adjustment is not None:
        raise OverlayError("spec", "cannot set both 'price' and 'priceAdjustment'")
    restricted = next((name for name in _RESTRICTED if name in spec.capacity), None)
    if restricted is not None:
        raise OverlayError("spec.capacity", f"{restricted} is set by the provider and cannot be changed")
    try:
        capacity = Resources.parse(spec.capacity)
    except QuantityError as error:
        raise OverlayError("spec.capacity", str(error)) from error
    return Overlay(overlay.metadata.name, spec.weight, requirements, subjects(overlay), _price(overlay), capacity)


def _price(overlay: NodeOverlay) -> PriceChange | None:
    price, adjustment = overlay.spec.price, overlay.spec.price_adjustment
    if price is not None:
        if not _PRICE.fullmatch(price) or float(price) > MOST_USD_PER_HOUR:
            raise OverlayError(
                "spec.price", f"{price!r} is not an amount in USD per hour, such as 0.25, of at most a billion"
            )
        return PriceChange(0.0, float(price))
    if adjustment is None:
        return None
    if not _ADJUSTMENT.fullmatch(adjustment) or abs(float(adjustment.rstrip("%"))) > MOST_USD_PER_HOUR:
        raise OverlayError(
            "spec.priceAdjustment",
            f"{adjustment!r} is neither an amount with its sign (+0.5) nor a percentage (-10%), or more than a billion",
        )
    if adjustment.endswith("%"):
        return PriceChange(1.0 + float(adjustment[:-1]) / 100, 0.0)
    return PriceChange(1.0, float(adjustment))


def in_order(overlays: Iterable[Overlay]) -> tuple[Overlay, ...]:
    """In the order in which they count: by weight, the heaviest first, then by name, the last first."""
    by_name = sorted(overlays, key=lambda one: one.name, reverse=True)
    return tuple(sorted(by_name, key=lambda one: -one.weight))


def meant(overlay: Overlay, kind: InstanceType, labels: Mapping[str, str]) -> tuple[int, ...]:
    """Which offerings of an instance type the overlay is about, by index; none where it is not about the type.

    Args:
        overlay: it.
        kind: as the provider has it.
        labels: what every node of the NodePool is labelled with, the pool's name among them.
    """
    for key, wanted in overlay.requirements.items():
        known = kind.requirements.get(key)
        if key in labels:
            label = Requirement.of(key, "In", (labels[key],))
            known = label if known is None else known.intersection(label)
        if wanted.present if known is None else not known.intersects(wanted):
            return ()
    return tuple(
        index
        for index, offering in enumerate(kind.offerings)
        if overlay.requirements.conflict(offering.requirements) is None
    )


Matcher = Callable[[Overlay, InstanceType, Mapping[str, str]], tuple[int, ...]]


def conflicts(
    overlays: Sequence[Overlay],
    pools: Iterable[tuple[Mapping[str, str], tuple[InstanceType, ...]]],
    matcher: Matcher = meant,
) -> dict[str, str]:
    """The overlays that contradict another one of the same weight, each with the name of that one; they are in force nowhere.

    Of two that contradict each other, the one that comes first in order stays.

    Args:
        overlays: in order.
        pools: of every NodePool the labels of its nodes, and its instance types.
        matcher: `meant`, perhaps remembered.

    Cost: O(overlays that share their weight x pools x types).
    """
    by_weight: dict[int, list[Overlay]] = {}
    for one in overlays:
        by_weight.setdefault(one.weight, []).append(one)
    listed = list(pools)
    found: dict[str, str] = {}
    for equals in by_weight.values():
        taken: dict[tuple[object, ...], str] = {}
        for one in equals if len(equals) > 1 else ():
            touched = _touched(one, listed, matcher)
            other = next((taken[what] for what in touched if what in taken), None)
            if other is None:
                taken |= dict.fromkeys(touched, one.name)
            else:
                found[one.name] = other
    return found


def _touched(
    overlay: Overlay, pools: Sequence[tuple[Mapping[str, str], tuple[InstanceType, ...]]], matcher: Matcher
) -> list[tuple[object, ...]]:
    """Everything that an overlay says something about: prices of offerings, resources of types."""
    found: list[tuple[object, ...]] = []
    subjects = sorted(overlay.subjects)
    for number, (labels, types) in enumerate(pools):
        for kind in types:
            indexes = matcher(overlay, kind, labels)
            for subject in subjects:
                places = indexes if subject == PRICE_SUBJECT else indexes[:1] and (None,)
                found += [(number, kind.name, subject, place) for place in places]
    return found


def change_of(
    overlays: Sequence[Overlay], kind: InstanceType, labels: Mapping[str, str], matcher: Matcher = meant
) -> Change:
    """What overlays, in order, make of one instance type: of each price and each resource the first that speaks of it counts."""
    prices: list[PriceChange | None] = [None] * len(kind.offerings)
    capacity: dict[str, int] = {}
    for one in overlays:
        indexes = matcher(one, kind, labels)
        if not indexes:
            continue
        for index in indexes:
            if prices[index] is None:
                prices[index] = one.price
        capacity = {**one.capacity, **capacity}
    return Change(tuple(prices), Resources.of(capacity))


def changed_type(kind: InstanceType, change: Change) -> InstanceType:
    """The instance type under a change; itself where nothing changes. A price that is overlaid already stays."""
    if not change:
        return kind
    return replace(
        kind,
        offerings=tuple(map(_changed_offering, kind.offerings, change.prices)),
        capacity=Resources.of({**kind.capacity, **change.capacity}),
        overlaid=bool(change.capacity),
    )


def _changed_offering(offering: Offering, price: PriceChange | None) -> Offering:
    return (
        offering
        if price is None or offering.overlaid
        else replace(offering, price=price.of(offering.price), overlaid=True)
    )


# --- what is in force -------------------------------------------------------------------------------------------


class _Matches:
    """`meant`, remembered for as long as a type's requirements and those of its offerings stay the same. Not thread-safe."""

    def __init__(self, overlays: Sequence[Overlay]) -> None:
        self._keys = {one.name: tuple(one.requirements) for one in overlays}
        self._known: dict[tuple[object, ...], tuple[Requirements, tuple[Requirements, ...], tuple[int, ...]]] = {}

    def __call__(self, overlay: Overlay, kind: InstanceType, labels: Mapping[str, str]) -> tuple[int, ...]:
        said = tuple(labels.get(key) for key in self._keys[overlay.name])
        key, offered = (overlay.name, kind.name, said), tuple(one.requirements for one in kind.offerings)
        known = self._known.get(key)
        if known is None or known[0] is not kind.requirements or known[1] != offered:
            known = self._known[key] = (kind.requirements, offered, meant(overlay, kind, labels))
        return known[2]


@dataclass(frozen=True)
class _Force:
    """The overlays that are in force, and those that are not.

    Attributes:
        version: of the objects that it was made from.
        at: when, by the monotonic clock.
        accepted: in order.
        conflicting: as of `conflicts`.
        matches: of the accepted and the others.
        keys: the labels that the accepted speak of.
    """

    version: int
    at: float
    accepted: tuple[Overlay, ...]
    conflicting: Mapping[str, str]
    matches: _Matches
    keys: frozenset[str]


@dataclass(frozen=True)
class _Entry:
    """Instance types with what became of them."""

    labels: tuple[tuple[str, str], ...]
    base: tuple[InstanceType, ...]
    accepted: tuple[Overlay, ...]
    result: tuple[InstanceType, ...]
    kinds: Mapping[str, tuple[InstanceType, Change, InstanceType]]


class Overlays:
    """The NodeOverlays of a cluster, and the instance types under them. Thread-safe.

    Args:
        pools: every NodePool.
        clock: for how long a verdict holds.

    Differs: Karpenter's controller judges them, and until it has, a NodePool is left out; here whoever asks for instance types judges them, at
        once, and every replica does.
    """

    def __init__(self, pools: Callable[[], Iterable[NodePool]], clock: Clock) -> None:
        self._pools, self._clock = pools, clock
        self._types: Callable[[NodePool], tuple[InstanceType, ...]] = lambda _: ()
        self._lock = threading.Lock()
        self._read: dict[str, Overlay] = {}
        self._unreadable: dict[str, OverlayProblem] = {}
        self._version = 0
        self._force: _Force | None = None
        self._entries: dict[str, tuple[_Entry, ...]] = {}

    def over(
        self, types: Callable[[NodePool], tuple[InstanceType, ...]]
    ) -> Callable[[NodePool], tuple[InstanceType, ...]]:
        """What a provider has for a pool, under the overlays; conflicts are looked for among the same. `types` must not wait."""
        self._types = types
        return lambda pool: self.applied(pool.name, types(pool))

    def changed(self, old: NodeOverlay | None, new: NodeOverlay | None) -> None:
        """A NodeOverlay was added, changed or removed."""
        one = new or old
        if one is None or (old is not None and new is not None and old.spec == new.spec):
            return
        name = one.metadata.name
        with self._lock:
            self._read.pop(name, None)
            self._unreadable.pop(name, None)
            if new is not None:
                try:
                    self._read[name] = read(new)
                except OverlayError as error:
                    self._unreadable[name] = OverlayProblem(names.RUNTIME_VALIDATION, str(error))
            self._version += 1

    def pool_changed(self, old: NodePool | None, new: NodePool | None) -> None:
        """A NodePool was added, changed or removed."""
        if old is None or new is None or _labels(old) != _labels(new):
            with self._lock:
                self._version += 1

    def problem(self, name: str) -> OverlayProblem | None:
        """Why the overlay of that name is not in force; None where it is."""
        force = self._in_force()
        with self._lock:
            if (unreadable := self._unreadable.get(name)) is not None:
                return unreadable
        other = force.conflicting.get(name)
        if other is None:
            return None
        return OverlayProblem(
            names.CONFLICT,
            overlays_conflict(other),
        )

    def applied(self, pool: str, types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
        """The instance types of a pool under the overlays; those that no overlay is about stay the same objects.

        The same tuple for as long as neither `types` nor what is in force for the pool changes. Without a pool of that name they
        stay as they are.
        """
        with self._lock:
            if not self._read:
                return types
        force = self._in_force()
        labels = next((_labels(one) for one in self._pools() if one.name == pool), None)
        if not force.accepted or labels is None:
            return types
        mine = tuple((key, value) for key, value in sorted(labels.items()) if key in force.keys)
        with self._lock:
            known = self._entries.get(pool, ())
            for one in (*known, *(entry for others in self._entries.values() for entry in others)):
                if one.base is types and one.accepted is force.accepted and one.labels == mine:
                    if all(one is not other for other in known):
                        self._entries[pool] = (one, *known)[:_ENTRIES]
                    return one.result
            made = _entry(force, mine, types, known)
            self._entries[pool] = (made, *known)[:_ENTRIES]
            return made.result

    def annotations(self, pool: str, instance: LaunchedInstance) -> dict[str, str]:
        """What a claim says whose instance was launched at an overlaid price, or has overlaid resources."""
        found = next((one for one in self._pools() if one.name == pool), None)
        types = self.applied(pool, self._types_of(found)) if found is not None else ()
        kind = next((one for one in types if one.name == instance.instance_type), None)
        if kind is None:
            return {}
        place = instance.zone, instance.capacity_type
        priced = any(one.overlaid for one in kind.offerings if (one.zone, one.capacity_type) == place)
        said = {names.PRICE_OVERLAY_APPLIED: priced, names.CAPACITY_OVERLAY_APPLIED: kind.overlaid}
        return {key: "true" for key, holds in said.items() if holds}

    def _in_force(self) -> _Force:
        """Judged anew when an overlay or a pool has changed, and from time to time, since instance types come and go."""
        now = self._clock.monotonic()
        with self._lock:
            force, version, overlays = self._force, self._version, in_order(self._read.values())
        if force is not None and force.version == version and now - force.at < RECHECK_SECONDS:
            return force
        pools = list(self._pools())  # without the lock: providers ask the state, and the state asks here
        offered = self._offered(overlays, pools) if _share(overlays) else ()
        with self._lock:
            matches = force.matches if force is not None and force.version == version else _Matches(overlays)
            conflicting = conflicts(overlays, offered, matches)
            accepted = tuple(one for one in overlays if one.name not in conflicting)
            if force is not None and accepted == force.accepted:
                accepted = force.accepted
            self._force = _Force(
                version,
                now,
                accepted,
                conflicting,
                matches,
                frozenset(key for one in accepted for key in one.requirements),
            )
            there = {one.name for one in pools}
            self._entries = {name: entries for name, entries in self._entries.items() if name in there}
            return self._force

    def _offered(
        self, overlays: Sequence[Overlay], pools: Iterable[NodePool]
    ) -> tuple[tuple[Mapping[str, str], tuple[InstanceType, ...]], ...]:
        """What `conflicts` looks at; pools that no overlay tells apart and that have the same types count once."""
        keys = {key for one in overlays for key in one.requirements}
        found: dict[tuple[object, ...], tuple[Mapping[str, str], tuple[InstanceType, ...]]] = {}
        for pool in pools:
            types = self._types_of(pool)
            labels = {key: value for key, value in _labels(pool).items() if key in keys}
            found.setdefault((id(types), *sorted(labels.items())), (labels, types))
        return tuple(found.values())

    def _types_of(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            return self._types(pool)
        except Exception as error:  # noqa: BLE001 - one NodePool without types stops no other
            _log.warning(
                "Failed to get the instance types of a NodePool; conflicts of NodeOverlays in it are not detected",
                nodepool=pool.name,
                error=str(error),
            )
            return ()


def _entry(
    force: _Force, labels: tuple[tuple[str, str], ...], types: tuple[InstanceType, ...], former: Sequence[_Entry]
) -> _Entry:
    """What became of `types`; what equals something in a former entry is the same object."""
    said, kinds = dict(labels), dict[str, tuple[InstanceType, Change, InstanceType]]()
    for kind in types:
        change = change_of(force.accepted, kind, said, force.matches)
        before = (one.kinds[kind.name] for one in former if kind.name in one.kinds)
        same = (one for one in before if one[1] == change and (one[0] is kind or one[0] == kind))
        kinds[kind.name] = next(same, None) or (kind, change, changed_type(kind, change))
    result = tuple(kinds[kind.name][2] for kind in types)
    others = (types, *(one.result for one in former))
    return _Entry(labels, types, force.accepted, next((one for one in others if _same(one, result)), result), kinds)


def _same(one: tuple[InstanceType, ...], other: tuple[InstanceType, ...]) -> bool:
    return len(one) == len(other) and all(left is right for left, right in zip(one, other, strict=True))


def _share(overlays: Sequence[Overlay]) -> bool:
    """Whether two of them have one weight, so that they may be in conflict."""
    return len({one.weight for one in overlays}) < len(overlays)


def _labels(pool: NodePool) -> dict[str, str]:
    return {**pool.labels, names.NODEPOOL_LABEL: pool.name}


# --- the provider -----------------------------------------------------------------------------------------------


def overlaid(provider: P, overlays: Overlays) -> P:
    """The provider as everybody sees it while there are overlays: with their prices and resources.

    What is launched is chosen by the provider itself; it asks `overlays` too.
    """
    return cast(P, _Overlaid(provider, overlays))


class _Overlaid:
    def __init__(self, provider: CloudProvider, overlays: Overlays) -> None:
        self._provider, self._overlays = provider, overlays

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        return self._overlays.applied(pool.name, self._provider.instance_types(pool))

    def create(self, claim: NodeClaim) -> LaunchedInstance:
        instance = self._provider.create(claim)
        said = self._overlays.annotations(claim.pool, instance)
        return replace(instance, annotations={**instance.annotations, **said}) if said else instance
