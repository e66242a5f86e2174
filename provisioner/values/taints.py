"""Taints and tolerations, in the very shape in which they stand on Nodes and Pods."""

import re
from collections.abc import Collection, Iterable

import msgspec

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_INT64 = range(-(2**63), 2**63)


class Taint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What keeps pods off a node; `time_added` is RFC 3339 text and says nothing about who is kept off."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What a pod puts up with: empty key or effect means any; `toleration_seconds` bounds NoExecute only."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether this one covers `taint`, for however long.

        Source: k8s.io/api 1.36 `core/v1/toleration.go`. Lt and Gt compare the taint's value with this one's as integers; the API
        server admits them only where the feature TaintTolerationComparisonOperators is on, so they are always honoured here.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "" | "Equal":
                return self.value == taint.value
            case "Exists":
                return True
            case "Lt" | "Gt":
                return _compares(taint.value, self.operator, self.value)
            case _:
                return False


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any of `tolerations` covers `taint`."""
    return any(toleration.tolerates(taint) for toleration in tolerations)


def first_untolerated(
    tolerations: Collection[Toleration],
    taints: Iterable[Taint],
    effects: Collection[str] = (NO_SCHEDULE, NO_EXECUTE),
) -> Taint | None:
    """The first taint of one of `effects` that nothing tolerates, in the order given; None where the pod may go."""
    for taint in taints:
        if taint.effect in effects and not tolerates(tolerations, taint):
            return taint
    return None


def _compares(taint_value: str, operator: str, value: str) -> bool:
    if not (_INTEGER.fullmatch(taint_value) and _INTEGER.fullmatch(value)):
        return False
    left, right = int(taint_value), int(value)
    if left not in _INT64 or right not in _INT64:
        return False
    return left < right if operator == "Lt" else left > right
