"""Kubernetes quantities, exact: "100m", "1.5Gi", "12e6" as whole nanos, printed as Kubernetes prints them."""

import dataclasses
import enum
import re

from provisioner.values.message import Said

_NANO = 10**9
_MAX_UNITS = 2**63 - 1
_MAX_TEXT = 128
_MAX_EXPONENT = 64
_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<suffix>[numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]+)",
    re.ASCII,
)
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class QuantityError(ValueError):
    """A text that is no quantity; says which text, and what one looks like."""

    def __init__(self, text: object, problem: str) -> None:
        super().__init__(text, problem)
        self.text, self.problem = text, problem

    def __str__(self) -> str:
        shown = repr(self.text) if len(repr(self.text)) <= 60 else repr(self.text)[:57] + "..."
        return Said(f"{shown} is not a quantity: {self.problem}; use a number such as 2, 1.5, 100m, 512Mi, 10G or 12e6")


class Format(enum.Enum):
    """How a quantity was written, hence how it is printed; never part of its value."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount; equal, ordered and hashed by value, so "1" == "1000m".

    Attributes:
        nanos: the amount in billionths of one unit.
        format: how to print it.

    Source: apimachinery `pkg/api/resource/quantity.go` (1.36): what is finer than a nano is rounded away from zero, what is
        beyond 2**63-1 units is cut to that.
    Differs: texts over 128 characters are refused.
    """

    nanos: int
    format: Format = dataclasses.field(default=Format.DECIMAL_SI, compare=False)

    @classmethod
    def parse(cls, text: str | float) -> "Quantity":
        """Read a quantity as it stands in JSON or YAML: a string, or a bare number.

        Raises:
            QuantityError: empty, unknown suffix, not finite, or no number at all.
        """
        if isinstance(text, bool):
            raise QuantityError(text, "it is a boolean")
        if isinstance(text, int):
            return cls(_capped(text * _NANO))
        if isinstance(text, float):
            return cls(_parse(repr(text), text).nanos)
        return _parse(text.strip(), text)

    def __str__(self) -> str:
        """Canonical form: no fraction, the largest suffix that keeps it exact, the suffix family it was written in."""
        if self.nanos == 0:
            return "0"
        if self.format is Format.BINARY_SI and abs(self.nanos) >= 1024 * _NANO and self.nanos % _NANO == 0:
            return _print_binary(self.nanos // _NANO)
        return _print_decimal(self.nanos, self.format)

    def millis(self) -> int:
        """Thousandths of one unit (millicores for cpu), rounded up."""
        return -(-self.nanos // 10**6)

    def units(self) -> int:
        """Whole units (bytes, counts), rounded up."""
        return -(-self.nanos // _NANO)


def longer_than(most: int) -> str:
    """What is wrong with a text; in characters."""
    return Said(f"it is longer than {most} characters")


def _parse(text: str, original: object) -> Quantity:
    if not text:
        raise QuantityError(original, "it is empty")
    if len(text) > _MAX_TEXT:
        raise QuantityError(original, longer_than(_MAX_TEXT))
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise QuantityError(original, "the number or its suffix is unknown")
    whole, part, suffix = match["whole"], match["part"] or "", match["suffix"]
    if not whole and not part:
        raise QuantityError(original, "it has no digits")
    mantissa = int(whole + part)  # scaled by 10**len(part)
    if suffix in _BINARY_SUFFIXES[1:]:
        format_ = Format.BINARY_SI
        numerator, denominator = mantissa * 1024 ** _BINARY_SUFFIXES.index(suffix) * _NANO, 10 ** len(part)
        if numerator < denominator * _NANO:
            format_ = Format.DECIMAL_SI  # less than one unit has no binary form
    else:
        format_ = Format.DECIMAL_SI if suffix in _DECIMAL_EXPONENTS else Format.DECIMAL_EXPONENT
        exponent = _DECIMAL_EXPONENTS[suffix] if suffix in _DECIMAL_EXPONENTS else int(suffix[1:])
        # Beyond these exponents any mantissa is cut to the largest or rounded to the smallest amount anyway.
        exponent = max(-_MAX_EXPONENT - _MAX_TEXT, min(_MAX_EXPONENT + _MAX_TEXT, exponent)) + 9 - len(part)
        numerator, denominator = mantissa * 10 ** max(0, exponent), 10 ** max(0, -exponent)
    nanos = -(-numerator // denominator)  # away from zero: the sign comes after
    return Quantity(_capped(-nanos if match["sign"] == "-" else nanos), format_)


def _capped(nanos: int) -> int:
    return max(-_MAX_UNITS * _NANO, min(_MAX_UNITS * _NANO, nanos))


def _print_binary(units: int) -> str:
    power = 0
    while units % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIXES[power]}"


def _print_decimal(nanos: int, format_: Format) -> str:
    exponent = -9
    while nanos % 1000 == 0 and exponent < 18:
        nanos //= 1000
        exponent += 3
    if format_ is Format.DECIMAL_EXPONENT:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIXES[exponent]}"
