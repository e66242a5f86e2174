"""The algebra of label requirements: what values one key may have, and what two sides agree on.

A `Requirement` is a set of states of one label: present with one of some values, or absent. Intersections are exact.

Source: karpenter `pkg/scheduling/requirement.go` and `requirements.go` (1.14), and kube-scheduler's node affinity.
Differs: absence is part of the set, so "Exists and NotIn [a]", "NotIn [a] and Gt 5" and a plain contradiction stay what they are; there they
    become NotIn, a bound alone and DoesNotExist. `any_value` respects exclusions and is deterministic.
"""

import dataclasses
import enum
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from provisioner.values.message import Said
from provisioner.values.spelling import closest, meant

INT_MAX: Final = 2**63 - 1
_SHOWN: Final = 5
INT_MIN: Final = -(2**63)
_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})", re.ASCII)
_NOTHING: Final[frozenset[str]] = frozenset()
_Pick = Callable[[int, int], int]


class _Excluding(int):
    """A bound that was written with Gt or Lt, as the nearest integer inside: the same number, which is told as it was written."""

    __slots__ = ()


class Operator(enum.StrEnum):
    """How a requirement is written; Gt and Lt exclude their bound, Gte and Lte include it."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"
    GTE = "Gte"
    LTE = "Lte"


class RequirementError(ValueError):
    """A requirement that cannot be read: which field is wrong, and why."""

    def __init__(self, key: str, field: str, problem: str) -> None:
        super().__init__(key, field, problem)
        self.key, self.field, self.problem = key, field, problem

    def __str__(self) -> str:
        return f"requirement {self.key!r}: {self.field}: {self.problem}"


class Requirement(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """Which states one label may be in: equal when written from the same parts in any order. Made by `of`, not by its own constructor.

    Attributes:
        key: the label.
        complement: whether `values` are the excluded ones instead of the allowed ones.
        values: allowed values, or excluded ones; those out of bounds anyway are left out.
        gte: the least integer allowed, None where unbounded; only with `complement`.
        lte: the greatest integer allowed, likewise. Under a bound only 64-bit integers are allowed, as Go's ParseInt reads them ("7", "07", "+7").
        present: whether the label must be there; False also admits its absence.
        min_values: how many distinct values a set of instance types must offer; the larger one wins, never part of `has`.
    """

    key: str
    complement: bool
    values: frozenset[str]
    gte: int | None
    lte: int | None
    present: bool
    min_values: int | None

    @classmethod
    def of(
        cls, key: str, operator: Operator | str, values: Iterable[str] = (), min_values: int | None = None
    ) -> "Requirement":
        """Read one requirement as it is written in a NodePool, a NodeClaim or a node selector term.

        Raises:
            RequirementError: unknown operator, values that do not fit it, or a `min_values` under 1.
        """
        listed = tuple(values)
        if not key:
            raise RequirementError(key, "key", "is empty")
        if min_values is not None and min_values < 1:
            raise RequirementError(key, "minValues", f"is {min_values}, must be at least 1")
        try:
            operator = Operator(operator)
        except ValueError:
            known = ", ".join(Operator)
            raise RequirementError(key, "operator", f"{operator!r} is unknown; use one of {known}") from None
        match operator:
            case Operator.IN | Operator.NOT_IN:
                if not listed:
                    raise RequirementError(key, "values", f"operator {operator} needs at least one")
                inside = operator is Operator.IN
                return _canonical(key, not inside, frozenset(listed), None, None, inside, min_values)
            case Operator.EXISTS | Operator.DOES_NOT_EXIST:
                if listed:
                    raise RequirementError(key, "values", f"operator {operator} takes none, got {', '.join(listed)}")
                exists = operator is Operator.EXISTS
                return _canonical(key, exists, _NOTHING, None, None, exists, min_values)
            case _:
                bound = _bound(key, operator, listed)
                gte = _Excluding(bound + 1) if operator is Operator.GT else bound if operator is Operator.GTE else None
                lte = _Excluding(bound - 1) if operator is Operator.LT else bound if operator is Operator.LTE else None
                return _canonical(key, True, _NOTHING, gte, lte, True, min_values)

    @property
    def operator(self) -> Operator:
        """The nearest single operator: In, NotIn, Exists (bounds too) or DoesNotExist (a contradiction too)."""
        if self.complement:
            return Operator.NOT_IN if self.values else Operator.EXISTS
        return Operator.IN if self.values else Operator.DOES_NOT_EXIST

    @property
    def is_contradiction(self) -> bool:
        """Whether nothing satisfies this, neither a value nor absence."""
        return self.present and not self.complement and not self.values

    @property
    def single_value(self) -> str | None:
        """The only value allowed; None where there are more, none, or absence will do too."""
        if self.complement or len(self.values) != 1 or not self.present:
            return None
        (value,) = self.values
        return value

    def admits(self, value: str | None) -> bool:
        """Whether an object with this value of the label satisfies this; None for one without the label."""
        return not self.present if value is None else self.has(value)

    def has(self, value: str) -> bool:
        """Whether the label may have this value."""
        if not self.complement:
            return value in self.values
        return value not in self.values and _within(value, self.gte, self.lte)

    def any_value(self) -> str:
        """One allowed value, always the same: the least of a list, the integer nearest 0 of a range; "" where there is none."""
        if not self.complement:
            return min(self.values, default="")
        low = INT_MIN if self.gte is None else self.gte
        high = INT_MAX if self.lte is None else self.lte
        for zeros in itertools.count():  # a number that is excluded may be written otherwise
            nearest_first = itertools.chain(range(max(low, 0), high + 1), range(min(high, -1), low - 1, -1))
            for number in nearest_first:
                text = f"{'-' * (number < 0)}{'0' * zeros}{abs(number)}"
                if text not in self.values:
                    return text
        raise AssertionError("unreachable")

    def intersection(self, other: "Requirement") -> "Requirement":
        """What satisfies both; the key is this one's, the larger `min_values` wins."""
        if self is other:
            return self
        gte, lte = _tighter(self.gte, other.gte, max), _tighter(self.lte, other.lte, min)
        min_values = _tighter(self.min_values, other.min_values, max)
        present = self.present or other.present
        if self.complement and other.complement:
            return _canonical(self.key, True, self.values | other.values, gte, lte, present, min_values)
        if self.complement:
            values = frozenset(value for value in other.values if self.has(value))
        elif other.complement:
            values = frozenset(value for value in self.values if other.has(value))
        else:
            values = self.values & other.values
        return _canonical(self.key, False, values, None, None, present, min_values)

    def implies(self, wide: "Requirement") -> bool:
        """Whether whatever satisfies this one satisfies `wide`; minValues do not count."""
        return msgspec.structs.replace(self.intersection(wide), min_values=self.min_values) == self

    def intersects(self, other: "Requirement") -> bool:
        """Whether a value, or absence, satisfies both; the same as `not intersection(other).is_contradiction`."""
        if not (self.present or other.present):
            return True
        if self.complement and other.complement:
            gte, lte = _tighter(self.gte, other.gte, max), _tighter(self.lte, other.lte, min)
            return _leaves_any(gte, lte)
        if self.complement:
            return any(map(self.has, other.values))
        if other.complement:
            return any(map(other.has, self.values))
        return not self.values.isdisjoint(other.values)

    def to_wire(self) -> list[dict[str, object]]:
        """The entries that say the same, values sorted; reading them back and intersecting gives this again.

        One entry for what one operator can say; more for two bounds, bounds with exclusions, "Exists and NotIn", and
        a contradiction (Exists and DoesNotExist).
        """
        entries: list[dict[str, object]] = []
        if self.complement:
            if self.values:
                entries.append(self._entry(Operator.NOT_IN, sorted(self.values)))
            if self.gte is not None:
                entries.append(self._entry(Operator.GTE, [str(self.gte)]))
            if self.lte is not None:
                entries.append(self._entry(Operator.LTE, [str(self.lte)]))
            if self.present and self.gte is None and self.lte is None:
                entries.append(self._entry(Operator.EXISTS, []))
            return entries
        if self.values:
            return [self._entry(Operator.IN, sorted(self.values))]
        if self.present:
            entries.append(self._entry(Operator.EXISTS, []))
        return [*entries, self._entry(Operator.DOES_NOT_EXIST, [])]

    def _entry(self, operator: Operator, values: list[str]) -> dict[str, object]:
        entry: dict[str, object] = {"key": self.key, "operator": str(operator)}
        if values:
            entry["values"] = values
        if self.min_values is not None:
            entry["minValues"] = self.min_values
        return entry

    def __repr__(self) -> str:
        return f"Requirement({self})"

    def __str__(self) -> str:
        """The requirement in words as it is written in manifests, long lists cut: "zone In [a b c and 4 others]", "cpu Gte 4 and Lt 17"."""
        if self.is_contradiction:
            return Said(f"{self.key} matches nothing")
        parts = []
        for entry in self.to_wire():
            values = entry.get("values", [])
            if not isinstance(values, list) or not values:
                parts.append(str(entry["operator"]))
            elif entry["operator"] in {"In", "NotIn"}:
                parts.append(f"{entry['operator']} [{_shortened(values)}]")
            elif entry["operator"] == Operator.GTE:
                parts.append(f"Gt {self.gte - 1}" if isinstance(self.gte, _Excluding) else f"Gte {self.gte}")
            else:
                parts.append(f"Lt {self.lte + 1}" if isinstance(self.lte, _Excluding) else f"Lte {self.lte}")
        return f"{self.key} {' and '.join(parts)}" + (f" minValues {self.min_values}" if self.min_values else "")


class Requirements(Mapping[str, Requirement]):
    """An immutable, hashable set of requirements, one a key; iterated in order of key."""

    __slots__ = ("_by_key", "_hash")

    _by_key: dict[str, Requirement]
    _hash: int | None

    def __init__(self) -> None:
        raise TypeError("use Requirements.of or Requirements.from_labels")

    @classmethod
    def of(cls, requirements: Iterable[Requirement] = ()) -> "Requirements":
        """All of `requirements` at once; those with the same key are intersected."""
        by_key: dict[str, Requirement] = {}
        for requirement in requirements:
            known = by_key.get(requirement.key)
            by_key[requirement.key] = requirement if known is None else known.intersection(requirement)
        return _requirements(by_key)

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> "Requirements":
        """Each label In exactly its value."""
        return _requirements(
            {key: _canonical(key, False, frozenset((value,)), None, None, True, None) for key, value in labels.items()}
        )

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def merged(self, other: "Requirements") -> "Requirements":
        """Both at once: the union of keys, intersected where both have one; contradictions are kept, not raised."""
        if self is other or not other._by_key:
            return self
        if not self._by_key:
            return other
        by_key = dict(self._by_key)
        for key, requirement in other._by_key.items():
            known = by_key.get(key)
            by_key[key] = requirement if known is None else known.intersection(requirement)
        return _requirements(by_key)

    def requirement(self, key: str) -> Requirement:
        """What is required of `key`: Exists where nothing is said, as a node that has any value would do."""
        known = self._by_key.get(key)
        return Requirement.of(key, Operator.EXISTS) if known is None else known

    def conflict(self, other: "Requirements") -> "RequirementConflict | None":
        """The first key, in order, that both speak of and on which nothing satisfies both; None where they agree.

        A label that may be absent for both is no conflict. Keys of one side only are not looked at.
        """
        theirs = other._by_key
        shared = (
            self._by_key if len(self._by_key) <= len(theirs) else theirs
        )  # walk the shorter, both are in order of key
        for key in shared:
            left, right = self._by_key.get(key), theirs.get(key)
            if left is not None and right is not None and not left.intersects(right):
                return RequirementConflict(key, left, right)
        return None

    def incompatibility(
        self, other: "Requirements", allow_undefined: frozenset[str] = frozenset()
    ) -> "RequirementConflict | None":
        """Why a node side (this) cannot serve a pod side (`other`); None where it can.

        A key of the pod side must be known here, unless it is in `allow_undefined` (the well-known labels, for nodes that are not made
        yet) or its absence satisfies the pod side. Then the two must not conflict.
        """
        for key, right in other._by_key.items():
            if key not in self._by_key and right.present and key not in allow_undefined:
                return RequirementConflict(key, None, right, undefined=True, known=(allow_undefined, self))
        return self.conflict(other)

    def conflicts(self, other: "Requirements", allow_undefined: frozenset[str] = frozenset()) -> int:
        """On how many keys a node side (this) cannot serve a pod side (`other`): 0 where `incompatibility` finds nothing."""
        undefined = sum(
            key not in self._by_key and right.present and key not in allow_undefined
            for key, right in other._by_key.items()
        )
        return undefined + sum(
            not left.intersects(other._by_key[key]) for key, left in self._by_key.items() if key in other._by_key
        )

    def implies(self, wide: "Requirements") -> bool:
        """Whether whatever satisfies these satisfies `wide`; minValues do not count."""
        return all(key in self and self[key].implies(one) for key, one in wide.items())

    def to_wire(self) -> list[dict[str, object]]:
        """The entries of every requirement, in order of key."""
        return [entry for requirement in self._by_key.values() for entry in requirement.to_wire()]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Requirements):
            return NotImplemented
        return self._by_key == other._by_key

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(tuple(self._by_key.values())))
        return self._hash  # type: ignore[return-value]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Requirements cannot be changed: {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return _requirements, (self._by_key,)

    def __repr__(self) -> str:
        return f"Requirements({self})"

    def __str__(self) -> str:
        return ", ".join(map(str, self._by_key.values()))


@dataclasses.dataclass(frozen=True, slots=True)
class RequirementConflict:
    """Why two sets of requirements do not go together; a value, equal by key, sides and kind.

    Attributes:
        key: the label that decides.
        left: what the node side says of it; None where it says nothing.
        right: what the pod side says of it.
        undefined: True where the node side has no such label and the pod side needs one.
        known: the labels that could have been meant; searched only when somebody reads the sentence.
    """

    key: str
    left: Requirement | None
    right: Requirement | None
    undefined: bool = False
    known: tuple[Collection[str], ...] = dataclasses.field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        if not self.undefined:
            return Said(f"{self.left} conflicts with {self.right}")
        return Said(f'the NodePool does not set the label "{self.key}"{meant(self.hint())}')

    @property
    def of_all(self) -> str:
        """What to say instead where no NodePool has such a label."""
        return Said(f'no NodePool sets the label "{self.key}"{meant(self.hint())}')

    def hint(self) -> str:
        """The known label that was probably meant; "" where none is close."""
        names = sorted({name for group in self.known for name in group})
        suffix = self.key.rpartition("/")[2]
        same_name = [name for name in names if name.rpartition("/")[2] == suffix]
        return same_name[0] if same_name else closest(self.key, names, alike=0.85)


def _canonical(
    key: str,
    complement: bool,
    values: frozenset[str],
    gte: int | None,
    lte: int | None,
    present: bool,
    min_values: int | None,
) -> Requirement:
    """The one representation of a set of label states."""
    if complement and (gte is not None or lte is not None):
        if not _leaves_any(gte, lte):
            complement, values, gte, lte = False, _NOTHING, None, None
        elif values:
            values = frozenset(value for value in values if _within(value, gte, lte))
    return Requirement(key, complement, values, gte, lte, present, min_values)


def _requirements(by_key: Mapping[str, Requirement]) -> Requirements:
    requirements = object.__new__(Requirements)
    object.__setattr__(requirements, "_by_key", {key: by_key[key] for key in sorted(by_key)})
    object.__setattr__(requirements, "_hash", None)
    return requirements


def _bound(key: str, operator: Operator, values: tuple[str, ...]) -> int:
    if len(values) != 1:
        raise RequirementError(
            key, "values", f"operator {operator} needs exactly one integer, got {len(values)} values"
        )
    number = parse_int(values[0])
    if number is None:
        raise RequirementError(key, "values", f"operator {operator} needs one 64-bit integer, got {values[0]!r}")
    return number


def parse_int(text: str) -> int | None:
    """A 64-bit integer as Go's strconv.ParseInt(text, 10, 64) reads it, and so kube-scheduler; None where that is an error."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = -int(match[2]) if match[1] == "-" else int(match[2])
    return number if INT_MIN <= number <= INT_MAX else None


def _within(value: str, gte: int | None, lte: int | None) -> bool:
    if gte is None and lte is None:
        return True
    number = parse_int(value)
    return number is not None and (gte is None or number >= gte) and (lte is None or number <= lte)


def _leaves_any(gte: int | None, lte: int | None) -> bool:
    """Whether there is an integer within bounds; each can be written in ways without end, so exclusions leave one."""
    return (INT_MIN if gte is None else gte) <= (INT_MAX if lte is None else lte)


def _tighter(left: int | None, right: int | None, pick: _Pick) -> int | None:
    if left is None:
        return right
    return left if right is None else pick(left, right)


def _shortened(values: list[str]) -> str:
    if len(values) <= _SHOWN + 1:
        return " ".join(values)
    return f"{' '.join(values[:_SHOWN])} and {len(values) - _SHOWN} others"


NONE: Final = Requirements.of()
