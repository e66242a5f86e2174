"""What is wrong with the kubelet's fields of a class, judged as the kubelet of the cluster's version would. Pure.

The fields and their types come from the published module k8s.io/kubelet, one table for each minor; of later minors than
we have, an unknown field is a warning only. Source: AWS spec 1.3, steps 1 to 8.
Differs: the provider checks against the one version that it is compiled with, so a field that the cluster's kubelet
    does not know yet passes there and is dropped on the node.
"""

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import resources
from typing import Any, Final

import msgspec

from provisioner.apis import ec2, openapi
from provisioner.apis.crds import QUANTITY
from provisioner.apis.ec2_hash import FORMER_KUBELET_FIELDS
from provisioner.ec2.market.kubelet_formulas import is_formula, syntax_problem
from provisioner.values.duration import parse_duration
from provisioner.values.message import Said
from provisioner.values.quantity import Quantity, QuantityError

MANAGED_FIELDS: Final = FORMER_KUBELET_FIELDS
"""What every family but Custom writes into its own form of user data."""

MANY_FIELDS: Final = frozenset({ec2.AL2023, ec2.CUSTOM})
"""Families that take every field."""

EVICTION_SIGNALS: Final = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
RESERVED_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "pid")
ANY: Final = -1
"""Instead of a minor version: the cluster's is not known."""

_RESERVED: Final = ("kubeReserved", "systemReserved")
_THRESHOLDS: Final = ("evictionHard", "evictionSoft", "evictionMinimumReclaim")
_SOFT: Final = ("evictionSoft", "evictionSoftGracePeriod")
_PERCENTS: Final = ("imageGCHighThresholdPercent", "imageGCLowThresholdPercent")
_NOT_NEGATIVE: Final = ("podsPerCore", "evictionMaxPodGracePeriod", "maxPods")
_OWNED: Final = "registerWithTaints"
_TYPE_META: Final = {"apiVersion": "string", "kind": "string"}
_END_OF_FIELD: Final = re.compile(r"[.:[]")
_ROOT: Final = "KubeletConfiguration"
_MAP: Final = "map[string]"
_SCALARS: Final[Mapping[str, Mapping[str, Any]]] = {
    "bool": {"type": "boolean"},
    "string": {"type": "string"},
    "float64": {"type": "number"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "uint32": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    "metav1.Duration": {"type": "string", "format": "duration"},
    "period": {"x-kubernetes-int-or-string": True, "format": "duration"},
    "quantity": QUANTITY,
}
_FOREIGN: Final[Mapping[str, Mapping[str, str] | str]] = {
    "v1.Taint": {"key": "string", "value": "string", "effect": "string", "timeAdded": "string"},
    "v1.ResourceList": "map[string]quantity",
    "tracingapi.TracingConfiguration": {"endpoint": "*string", "samplingRatePerMillion": "*int32"},
    "logsapi.LoggingConfiguration": {
        "format": "string",
        "flushFrequency": "period",
        "verbosity": "uint32",
        "vmodule": "[]VModuleItem",
        "options": "FormatOptions",
    },
    "VModuleItem": {"filePattern": "string", "verbosity": "uint32"},
    "FormatOptions": {"text": "OutputOptions", "json": "OutputOptions"},
    "OutputOptions": {"splitStream": "bool", "infoBufferSize": "quantity"},
}
"""Types of other modules that fields have."""


class KubeletTable(msgspec.Struct, frozen=True):
    """The fields of KubeletConfiguration (v1beta1) in one minor: name to Go type, and the types within."""

    fields: dict[str, str]
    types: dict[str, dict[str, str] | str]


@functools.cache
def tables() -> Mapping[int, KubeletTable]:
    """Minor version to its table, oldest first."""
    read = resources.files("provisioner.ec2.nodeclass").joinpath("data", "kubelet_fields.json").read_bytes()
    found = msgspec.json.decode(read, type=dict[str, KubeletTable])
    return {minor: found[f"1.{minor}"] for minor in sorted(int(version.partition(".")[2]) for version in found)}


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found.

    Attributes:
        reason: of the condition ValidationSucceeded; "" when the fields can be used.
        problems: every one of that reason, each begins with its field.
        warnings: what does no harm, one sentence each, which begins with its field.
    """

    reason: str = ""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """All problems in one line."""
        return "; ".join(self.problems)


def check_kubelet(kubelet: Mapping[str, Any], family: str, minor: int = ANY, *, expressions: bool = False) -> Findings:
    """Judge the fields of one class.

    Args:
        kubelet: `spec.kubelet`, whatever stands in it.
        family: the class's AMI family.
        minor: of the cluster's version, e.g. 33 for 1.33; where it is not known, a field that no kubelet knows is a warning.
        expressions: whether the feature gate NodeClassCEL is on, or not known.
    """
    newest = max(tables())
    late = minor == ANY or minor > newest
    minor = newest if minor == ANY else minor
    # an expression for maxPods is judged below
    typed = {name: value for name, value in kubelet.items() if name != "maxPods" or not isinstance(value, str)}
    wrong, strange = openapi.judged(_schema(minor), dict(sorted(typed.items())))
    unknown = tuple(_stranger(one.path, minor) for one in strange)
    problems = [*(() if late else unknown), *map(str, wrong)]
    if _OWNED in kubelet:
        problems.append(
            Said(f"{_OWNED}: cannot be set because the provisioner sets the taints of nodes from their NodePool")
        )
    problems += _wrong_values(_readable(kubelet, problems))
    warnings = unknown if late else ()
    if problems:
        return Findings(ec2.INVALID_KUBELET_CONFIGURATION, tuple(problems), warnings)
    formulas = tuple(_expressions(kubelet))
    if formulas and not expressions:
        found = tuple(
            Said(f'{path}: "{text}" is an expression; use a value, or enable the AWS feature gate NodeClassCEL')
            for path, text in formulas
        )
        return Findings(ec2.KUBELET_EXPRESSIONS_DISABLED, found, warnings)
    if invalid := tuple(f"{path}: {why}" for path, text in formulas if (why := syntax_problem(text))):
        return Findings(ec2.KUBELET_EXPRESSION_INVALID, invalid, warnings)
    if unsupported := tuple(_unsupported(kubelet, family)):
        return Findings(ec2.UNSUPPORTED_KUBELET_CONFIGURATION, unsupported, warnings)
    return Findings(warnings=warnings)


@functools.cache
def _schema(minor: int) -> dict[str, Any]:
    """The schema of KubeletConfiguration in the nearest minor that there is a table of."""
    known = tables()
    table = known[max(min(known), min(minor, max(known)))]
    return _of_type(_ROOT, {**_FOREIGN, **table.types, _ROOT: {**table.fields, **_TYPE_META}})


def _of_type(kind: str, types: Mapping[str, Mapping[str, str] | str]) -> dict[str, Any]:
    kind = kind.removeprefix("*")
    if kind.startswith("[]"):
        return {"type": "array", "items": _of_type(kind.removeprefix("[]"), types)}
    if kind.startswith(_MAP):
        return {"type": "object", "additionalProperties": _of_type(kind.removeprefix(_MAP), types)}
    if kind in _SCALARS:
        return dict(_SCALARS[kind])
    named = types[kind]
    if isinstance(named, str):
        return _of_type(named, types)
    return {"type": "object", "properties": {name: _of_type(one, types) for name, one in named.items()}}


def _stranger(path: str, minor: int) -> str:
    """Of a field that the kubelet of this minor does not have."""
    since = next((one for one, other in tables().items() if path in other.fields), None)
    if since is not None and since > minor:
        return Said(f"{path}: unknown to the kubelet of Kubernetes 1.{minor} (available since 1.{since})")
    return Said(f"{path}: unknown to the kubelet of Kubernetes 1.{minor}")


# --- values; every type is right from here on ------------------------------------------------------------------


def _readable(kubelet: Mapping[str, Any], problems: Iterable[str]) -> dict[str, Any]:
    """Without fields that have problems, and those that are judged together with them."""
    wrong = {_END_OF_FIELD.split(one, maxsplit=1)[0] for one in problems}
    for pair in (_SOFT, _PERCENTS):
        wrong.update(pair if wrong.intersection(pair) else ())
    return {name: value for name, value in kubelet.items() if name not in wrong}


def _wrong_values(kubelet: Mapping[str, Any]) -> Iterator[str]:
    for field in _THRESHOLDS:
        for signal, text in sorted((kubelet.get(field) or {}).items()):
            yield from _wrong_signal(field, signal)
            if problem := _wrong_threshold(text):
                yield f"{field}[{signal}]: {problem}"
    periods = kubelet.get("evictionSoftGracePeriod") or {}
    for signal, text in sorted(periods.items()):
        yield from _wrong_signal("evictionSoftGracePeriod", signal)
        if problem := openapi.duration_problem(text):
            yield Said(f"evictionSoftGracePeriod[{signal}]: {problem}")
        elif parse_duration(text) < timedelta(0):
            yield Said(f"evictionSoftGracePeriod[{signal}]: {text} is negative")
    soft = (kubelet.get("evictionSoft") or {}).keys()
    for signal in sorted(soft - periods.keys()):
        yield Said(f"evictionSoft[{signal}]: evictionSoftGracePeriod has no grace period for this signal")
    for signal in sorted(periods.keys() - soft):
        yield Said(f"evictionSoftGracePeriod[{signal}]: evictionSoft has no threshold for this signal")
    for field in _RESERVED:
        for resource, amount in sorted((kubelet.get(field) or {}).items()):
            if resource not in RESERVED_RESOURCES:
                yield Said(f"{field}[{resource}]: only {', '.join(RESERVED_RESOURCES)} can be reserved")
            if amount is not None and amount.startswith("-"):
                yield Said(f"{field}[{resource}]: {amount} is negative")
    yield from _wrong_numbers(kubelet)


def _wrong_signal(field: str, signal: str) -> Iterator[str]:
    if signal not in EVICTION_SIGNALS:
        yield Said(f"{field}[{signal}]: the signal must be one of {', '.join(EVICTION_SIGNALS)}")


def _wrong_threshold(text: str | None) -> str:
    text = text or ""
    if not text.endswith("%"):
        try:
            negative = Quantity.parse(text).nanos < 0
        except QuantityError as error:
            return str(error)
        return Said(f"{text} is negative") if negative else ""
    try:
        percent = float(text[:-1])
    except ValueError:
        percent = math.nan
    return "" if 0 <= percent <= 100 else Said(f"{text} is not a percentage from 0% to 100%")


def _wrong_numbers(kubelet: Mapping[str, Any]) -> Iterator[str]:
    high, low = (kubelet.get(field) for field in _PERCENTS)
    for field, value in zip(_PERCENTS, (high, low), strict=True):
        if value is not None and not 0 <= value <= 100:
            yield Said(f"{field}: {value} is not between 0 and 100")
    if high is not None and low is not None and high <= low:
        yield Said(f"{_PERCENTS[0]}: {high} must be greater than {_PERCENTS[1]}, {low}")
    for field in _NOT_NEGATIVE:
        value = kubelet.get(field)
        if isinstance(value, int) and value < 0:
            yield Said(f"{field}: {value} is negative")


def _expressions(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path, text) of what only an evaluation could make a value of."""
    if isinstance(kubelet.get("maxPods"), str):
        yield "maxPods", kubelet["maxPods"]
    for field in _RESERVED:
        for resource, amount in sorted((kubelet.get(field) or {}).items()):
            if amount is not None and is_formula(amount):
                yield f"{field}[{resource}]", amount


def _unsupported(kubelet: Mapping[str, Any], family: str) -> Iterator[str]:
    if family in MANY_FIELDS:
        return
    for field in sorted(kubelet.keys() - MANAGED_FIELDS - _TYPE_META.keys()):
        yield Said(f"{field}: not supported with AMI family {family}; use AL2023, or userData")
    if family == ec2.BOTTLEROCKET and kubelet.get("podsPerCore") is not None:
        yield Said(f"podsPerCore: not supported with AMI family {family}; use maxPods")
    if len(kubelet.get("clusterDNS") or ()) > 1:
        yield Said(f"clusterDNS: AMI family {family} supports only one address")
