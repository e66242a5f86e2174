"""Resource vectors in whole numbers: cpu in millicores, everything else in units (bytes, counts)."""

import functools
import operator
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from typing import Final

from provisioner.values.quantity import Format, Quantity, QuantityError

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"
PLENTIFUL: Final = frozenset({CPU, MEMORY, PODS, EPHEMERAL_STORAGE})
"""Of which every node has some; the others are those for which a type is chosen."""
HUGEPAGES_PREFIX = "hugepages-"
_NANOS_PER_MILLI = 10**6
_NANOS_PER_UNIT = 10**9
_Join = Callable[[int, int], int]


class Resources(Mapping[str, int]):
    """An immutable vector of integer amounts by resource name, iterated in order of name.

    An entry of 0 is kept as it was given, so `Resources.of({"cpu": 0}) != EMPTY`; in sums and in `fits` it counts like an
    absent one. Amounts may be negative (an overcommitted node has negative room).
    """

    __slots__ = ("_amounts", "_hash", "_names")

    _names: tuple[str, ...]
    _amounts: tuple[int, ...]
    _hash: int | None

    def __init__(self) -> None:
        raise TypeError("use Resources.of or Resources.parse")

    @classmethod
    def parse(cls, wire: Mapping[str, str | int | float]) -> "Resources":
        """Read a Kubernetes resource list; fractions of a millicore, byte or count are rounded up.

        Raises:
            QuantityError: one amount cannot be read; its text and the resource are named.
        """
        names = tuple(sorted(wire))
        return _resources(names, tuple(_amount(name, wire[name]) for name in names))

    @classmethod
    def of(cls, amounts: Mapping[str, int]) -> "Resources":
        """Build from amounts that are already in millicores (cpu) and whole units (the rest)."""
        names = tuple(sorted(amounts))
        return _resources(names, tuple(amounts[name] for name in names))

    @classmethod
    def in_order(cls, names: tuple[str, ...], amounts: tuple[int, ...]) -> "Resources":
        """Build from names that are sorted already, and their amounts."""
        return _resources(names, amounts)

    @classmethod
    def total(cls, parts: Iterable["Resources"]) -> "Resources":
        """The sum of all, as `+` makes it; of hundreds it takes a tenth of the time."""
        amounts: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
        for part in parts:
            amounts.setdefault(part._names, []).append(part._amounts)
        sums = [_resources(names, tuple(map(sum, zip(*each, strict=True)))) for names, each in amounts.items()]
        return functools.reduce(operator.add, sums) if sums else EMPTY

    def __getitem__(self, name: str) -> int:
        try:
            return self._amounts[self._names.index(name)]
        except ValueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def items(self) -> ItemsView[str, int]:
        """Names and amounts, in order of name; the mixin's would look each of them up."""
        return self.to_dict().items()

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def amount(self, name: str) -> int:
        """The amount of `name`, 0 where it is absent."""
        return self._amounts[self._names.index(name)] if name in self._names else 0

    def amounts_of(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """The amounts of `names` in their order, 0 where one is absent."""
        if names == self._names:
            return self._amounts
        mine = dict(zip(self._names, self._amounts, strict=True))
        return tuple([mine.get(name, 0) for name in names])

    def to_dict(self) -> dict[str, int]:
        """The amounts by name, in order of name."""
        return dict(zip(self._names, self._amounts, strict=True))

    @property
    def wanted(self) -> tuple[str, ...]:
        """The names of which there is more than 0."""
        amounts = self._amounts
        if not amounts or min(amounts) > 0:
            return self._names
        return tuple([name for name, amount in zip(self._names, amounts, strict=True) if amount > 0])

    @property
    def negative(self) -> bool:
        """Whether any amount is below 0, as of a node that is overcommitted."""
        return bool(self._amounts) and min(self._amounts) < 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Resources):
            return NotImplemented
        return self._amounts == other._amounts and self._names == other._names

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self._names, self._amounts)))
        return self._hash  # type: ignore[return-value]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Resources cannot be changed: {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return _resources, (self._names, self._amounts)

    def __repr__(self) -> str:
        return f"Resources({', '.join(f'{name}={text}' for name, text in self.to_wire().items())})"

    def __add__(self, other: "Resources") -> "Resources":
        return self._combined(other, operator.add)

    def __sub__(self, other: "Resources") -> "Resources":
        """Difference over the names of both; may be negative."""
        return self._combined(other, operator.sub)

    def maximum(self, other: "Resources") -> "Resources":
        """The larger amount of each name of either, an absent one counting 0."""
        return self._combined(other, max)

    def minimum(self, other: "Resources") -> "Resources":
        """The smaller amount of each name of either, an absent one counting 0."""
        return self._combined(other, min)

    def scaled(self, n: int) -> "Resources":
        """Every amount n times."""
        return _resources(self._names, tuple(amount * n for amount in self._amounts))

    def fits(self, room: "Resources") -> bool:
        """Whether all of this can be taken from `room`.

        A name that is absent from `room` has room for nothing; amounts of 0 or less ask for nothing. A room with any negative
        amount takes nothing at all, because its node is already overcommitted.
        """
        names, amounts = room._names, room._amounts
        if amounts and min(amounts) < 0:
            return False
        if self._names == names:
            return all(map(operator.le, self._amounts, amounts))
        for name, amount in zip(self._names, self._amounts, strict=True):
            if amount > 0 and (name not in names or amount > amounts[names.index(name)]):
                return False
        return True

    def to_wire(self) -> dict[str, str]:
        """The canonical quantity of each name, as Kubernetes prints it: cpu "15900m" or "16", memory "60Gi"."""
        return {name: _text(name, amount) for name, amount in zip(self._names, self._amounts, strict=True)}

    def _combined(self, other: "Resources", join: _Join) -> "Resources":
        if self._names == other._names:
            return _resources(self._names, tuple(map(join, self._amounts, other._amounts)))
        mine = dict(zip(self._names, self._amounts, strict=True))
        theirs = dict(zip(other._names, other._amounts, strict=True))
        names = self._names if theirs.keys() <= mine.keys() else tuple(sorted(mine.keys() | theirs.keys()))
        return _resources(names, tuple([join(mine.get(name, 0), theirs.get(name, 0)) for name in names]))


def _resources(names: tuple[str, ...], amounts: tuple[int, ...]) -> Resources:
    vector = _new(Resources)
    _set_names(vector, names)
    _set_amounts(vector, amounts)
    _set_hash(vector, None)
    return vector


# what object.__setattr__ looks up anew with each call
_new: Final = object.__new__
_set_names: Final = Resources.__dict__["_names"].__set__
_set_amounts: Final = Resources.__dict__["_amounts"].__set__
_set_hash: Final = Resources.__dict__["_hash"].__set__


@functools.lru_cache(maxsize=8192)  # a cluster writes the same few texts a hundred thousand times
def _parsed(text: str) -> Quantity:
    return Quantity.parse(text)


def _amount(name: str, text: str | float) -> int:
    try:
        quantity = _parsed(text) if isinstance(text, str) else Quantity.parse(text)
    except QuantityError as error:
        raise QuantityError(error.text, f"{error.problem} (resource {name})") from None
    return quantity.millis() if name == CPU else quantity.units()


def _text(name: str, amount: int) -> str:
    if name == CPU:
        return str(Quantity(amount * _NANOS_PER_MILLI))
    binary = name in {MEMORY, EPHEMERAL_STORAGE} or name.startswith(HUGEPAGES_PREFIX)
    return str(Quantity(amount * _NANOS_PER_UNIT, Format.BINARY_SI if binary else Format.DECIMAL_SI))


EMPTY = Resources.of({})
