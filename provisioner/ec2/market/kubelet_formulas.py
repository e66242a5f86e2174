"""What the expressions of a class's kubelet come to for an instance type (AWS gate NodeClassCEL). Pure.

Source: pkg/cel and pkg/providers/instancetype of the AWS provider 1.15.2.
"""

from collections.abc import Iterable
from typing import Any, Final

from provisioner.apis import cel
from provisioner.values.message import Said
from provisioner.values.quantity import Quantity, QuantityError
from provisioner.values.resources import CPU, EPHEMERAL_STORAGE, MEMORY

VARIABLES: Final = frozenset({"vcpus", "memory_mib", "default_enis", "ips_per_eni", "max_pods", "instance_type"})
_SAMPLE: Final = {
    "vcpus": 2,
    "memory_mib": 8192,
    "default_enis": 3,
    "ips_per_eni": 10,
    "max_pods": 29,
    "instance_type": "m5.large",
}
_MOST_PODS: Final = (1 << 31) - 1
_UNITS: Final = {CPU: ("m", 10), MEMORY: ("Mi", 16), EPHEMERAL_STORAGE: ("Gi", 1)}
"""By resource: the unit of what an expression comes to, and what that is rounded up to; fewer user data differ so."""

Pairs = tuple[tuple[str, str], ...]


class FormulaError(ValueError):
    """An expression has no usable value for an instance type; the message is a clause."""


def is_formula(amount: str) -> bool:
    """Whether what is to be reserved is no quantity, and so an expression."""
    try:
        Quantity.parse(amount)
    except QuantityError:
        return True
    return False


def syntax_problem(text: str) -> str:
    """What is wrong with an expression whatever the instance type is; "" for nothing."""
    try:
        cel.number(cel.formula(text, VARIABLES), _SAMPLE)
    except (cel.CelSyntaxError, cel.CelTypeError) as error:
        return str(error)
    except cel.CelError:
        return ""  # for these values
    return ""


def pods(text: str, scope: cel.Scope) -> int:
    """Pods that a node may have, of an expression for maxPods. Raises `FormulaError`."""
    found = _number(text, scope)
    if not 0 <= found <= _MOST_PODS:
        raise FormulaError(f'"{text}" is {found} for {scope["instance_type"]}, which is not from 0 to {_MOST_PODS}')
    return found


def reserved(pairs: Iterable[tuple[str, str]], scope: cel.Scope) -> Pairs:
    """What is to be reserved, with quantities in place of expressions. Raises `FormulaError`."""
    return tuple((name, _amount(name, text, scope) if is_formula(text) else text) for name, text in pairs)


def _amount(resource: str, text: str, scope: cel.Scope) -> str:
    found = _number(text, scope)
    if found < 0:
        raise FormulaError(f'"{text}" is {found} for {scope["instance_type"]}, which is negative')
    unit, step = _UNITS.get(resource, ("", 1))
    return f"{-(-found // step) * step}{unit}"


def _number(text: str, scope: dict[str, Any] | cel.Scope) -> int:
    try:
        return cel.number(cel.formula(text, VARIABLES), scope)
    except (cel.CelSyntaxError, cel.CelError) as error:
        raise FormulaError(Said(f'"{text}" cannot be evaluated for {scope["instance_type"]}: {error}')) from None
