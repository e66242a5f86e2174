"""The instance types of the kwok provider: 144 generated ones, or a list of the user's own from a JSON file."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from provisioner.apis import names, openapi
from provisioner.apis.karpenter import LABEL_VALUE, QUALIFIED_NAME
from provisioner.cloudprovider.types import MOST_USD_PER_HOUR, InstanceType, Offering
from provisioner.values import jsontext
from provisioner.values.errors import UserError
from provisioner.values.message import Said
from provisioner.values.quantity import QuantityError
from provisioner.values.requirement import Operator, Requirement, RequirementError, Requirements
from provisioner.values.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources

ZONES = ("test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d")
OVERHEAD = Resources.parse({CPU: "100m", MEMORY: "10Mi"})
INSTANCE_LABELS = frozenset(
    {
        names.KWOK_INSTANCE_SIZE_LABEL,
        names.KWOK_INSTANCE_FAMILY_LABEL,
        names.KWOK_INSTANCE_CPU_LABEL,
        names.KWOK_INSTANCE_MEMORY_LABEL,
    }
)
_CPUS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
_GIB_PER_CPU = {"c": 2, "s": 4, "m": 8}
_SYSTEMS = ("linux", "windows")
_ARCHITECTURES = ("amd64", "arm64")
_SPOT_SHARE = 0.7
_DEFAULT_PODS = "110"
_EC2_NAME = re.compile(r"\w+\.(nano|micro|small|medium|large|[0-9]*xlarge|metal(?:-\w+)?)", re.ASCII)
_VALUE: Mapping[str, Any] = {"type": "string", "pattern": LABEL_VALUE, "minLength": 1, "maxLength": 63}
_OFFERING: Mapping[str, Any] = {
    "type": "object",
    "required": ["price", "requirements"],
    "properties": {
        "price": {"type": "number", "minimum": 0, "maximum": MOST_USD_PER_HOUR},
        "available": {"type": "boolean"},
        "requirements": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["key"],
                "properties": {
                    "key": {"type": "string", "pattern": QUALIFIED_NAME, "maxLength": 317},
                    "operator": {"type": "string"},
                    "values": {"type": "array", "items": _VALUE},
                },
            },
        },
    },
}
_ENTRY: Mapping[str, Any] = {
    "type": "object",
    "required": ["name", "architecture", "operatingsystems", "resources", "offerings"],
    "properties": {
        "name": _VALUE,
        "architecture": _VALUE,
        "operatingsystems": {"type": "array", "items": _VALUE},
        "resources": {"type": "object", "required": [CPU, MEMORY]},
        "offerings": {"type": "array", "items": _OFFERING},
    },
}


class CatalogueError(UserError):
    """A catalogue file from which nothing can be launched: missing, no JSON list, or without one good entry."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return Said(f"instance types file {self.path}: {self.problem}")


@dataclasses.dataclass(frozen=True, slots=True)
class BadEntry:
    """Why one entry of a catalogue file was left out.

    Attributes:
        path: of the file.
        entry: its index in the list, from 0.
        name: of the instance type, "" where it has none.
        field: path inside the entry, like "offerings[1].Price"; "" for the entry itself.
        problem: what is wrong and what to write instead.
    """

    path: str
    entry: int
    name: str
    field: str
    problem: str

    def __str__(self) -> str:
        named = f" ({self.name})" if self.name else ""
        field = f"{self.field}: " if self.field else ""
        return Said(f"instance types file {self.path}: entry [{self.entry}]{named} is ignored: {field}{self.problem}")


@dataclasses.dataclass(frozen=True)
class KwokCatalogue:
    """What can be launched.

    Attributes:
        types: in order of name, each name once.
        left_out: the entries that were not good enough to be used.
    """

    types: tuple[InstanceType, ...]
    left_out: tuple[BadEntry, ...] = ()

    @functools.cached_property
    def well_known_labels(self) -> frozenset[str]:
        """The provider's own labels, and every key that some offering speaks of."""
        offered = {key for one in self.types for offering in one.offerings for key in offering.requirements}
        return INSTANCE_LABELS | offered


@functools.cache
def generated() -> KwokCatalogue:
    """The 144 types of Karpenter's kwok provider: 12 sizes of 3 families for 2 systems and 2 architectures, 8 offerings each.

    Source: karpenter 1.14 `kwok/tools/gen_instance_types.go`: names, prices, room, labels.
    """
    types = [
        _generated(family, cpu, architecture, system)
        for family, cpu, architecture, system in itertools.product(_GIB_PER_CPU, _CPUS, _ARCHITECTURES, _SYSTEMS)
    ]
    return KwokCatalogue(tuple(sorted(types, key=lambda one: one.name)))


def load(path: str) -> KwokCatalogue:
    """Read a file of instance types in the form of Karpenter's kwok provider (INSTANCE_TYPES_FILE_PATH).

    It is a JSON list of {name, architecture, operatingSystems, resources, offerings: [{Price, Available, Requirements: [{key,
    operator, values}]}]}; case does not matter in the names of fields, unknown ones are skipped. `resources` are the capacity, of
    which 100m of cpu and 10Mi of memory are kept as overhead; `pods` is 110 where it is not given.

    Entries that cannot be used are listed in `Catalogue.left_out`; the others work.

    Raises:
        CatalogueError: the file cannot be read, is no JSON list, or has no good entry.

    Differs: `Available: false` is honoured, absent means true; there every offering is available.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise CatalogueError(path, f"cannot be read: {error.strerror}; check INSTANCE_TYPES_FILE_PATH") from error
    try:
        entries = jsontext.decoder(object)(text)
    except msgspec.DecodeError as error:
        raise CatalogueError(path, f"is not JSON: {error}") from error
    if not isinstance(entries, list):
        raise CatalogueError(path, "must be a JSON list of instance types")
    types: dict[str, InstanceType] = {}
    left_out: list[BadEntry] = []
    for index, entry in enumerate(entries):
        try:
            one = _read(entry)
            if one.name in types:
                raise _FieldError("name", "another entry has the same name; use a unique name for each instance type")
        except _FieldError as error:
            fields = _lowered(entry)
            name = fields.get("name") if isinstance(fields, dict) else None
            name = name[:63] if isinstance(name, str) else ""
            left_out.append(BadEntry(path, index, name, error.field, error.problem))
        else:
            types[one.name] = one
    if not types:
        first = f"; the first: {left_out[0]}" if left_out else ""
        raise CatalogueError(path, f"has no usable instance type among {len(entries)} entries{first}")
    return KwokCatalogue(tuple(types[name] for name in sorted(types)), tuple(left_out))


class _FieldError(Exception):
    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field, self.problem = field, problem


def _generated(family: str, cpu: int, architecture: str, system: str) -> InstanceType:
    gib = cpu * _GIB_PER_CPU[family]
    capacity = Resources.parse({CPU: cpu, MEMORY: f"{gib}Gi", EPHEMERAL_STORAGE: "20Gi", PODS: min(16 * cpu, 1024)})
    price = 0.025 * cpu + 0.001 * capacity[MEMORY] / 1e9
    offerings = tuple(
        Offering(
            _shared(Requirements.from_labels({names.ZONE_LABEL: zone, names.CAPACITY_TYPE_LABEL: kind})), price * share
        )
        for zone in ZONES
        for kind, share in ((names.CAPACITY_ON_DEMAND, 1.0), (names.CAPACITY_SPOT, _SPOT_SHARE))
    )
    return _instance_type(f"{family}-{cpu}x-{architecture}-{system}", architecture, [system], capacity, offerings)


@functools.lru_cache(1024)
def _shared(requirements: Requirements) -> Requirements:
    """The first of all equal ones: a catalogue has thousands of offerings in a few places, and each would keep its own."""
    return requirements


def _instance_type(
    name: str, architecture: str, systems: Iterable[str], capacity: Resources, offerings: tuple[Offering, ...]
) -> InstanceType:
    wire = capacity.to_wire()
    ec2 = _EC2_NAME.fullmatch(name)
    labels = {
        names.INSTANCE_TYPE_LABEL: name,
        names.ARCH_LABEL: architecture,
        names.KWOK_INSTANCE_SIZE_LABEL: ec2[1] if ec2 else wire[CPU],
        names.KWOK_INSTANCE_FAMILY_LABEL: _family(name),
        names.KWOK_INSTANCE_CPU_LABEL: wire[CPU],
        names.KWOK_INSTANCE_MEMORY_LABEL: wire[MEMORY],
    }
    open_to_us = [offering for offering in offerings if offering.available] or offerings
    sets = (
        Requirement.of(names.OS_LABEL, Operator.IN, systems),
        Requirement.of(names.ZONE_LABEL, Operator.IN, {offering.zone for offering in open_to_us}),
        Requirement.of(names.CAPACITY_TYPE_LABEL, Operator.IN, {offering.capacity_type for offering in open_to_us}),
    )
    requirements = Requirements.from_labels(labels).merged(Requirements.of(sets))
    return InstanceType(name, requirements, capacity, OVERHEAD, offerings)


def _family(name: str) -> str:
    """What stands before the first dot or dash, as the clouds name their types; else the first character."""
    head = re.split(r"[.-]", name, maxsplit=1)[0]
    return head if head != name else name[0]


# --- reading one entry ------------------------------------------------------------------------------------------


def _read(entry: object) -> InstanceType:
    fields = _lowered(entry)
    wrong, _ = openapi.judged(_ENTRY, fields)
    if wrong:
        raise _FieldError(wrong[0].path, wrong[0].message)
    if not fields["operatingsystems"]:
        raise _FieldError("operatingsystems", "must be a list with at least one operating system, such as linux")
    if not fields["offerings"]:
        raise _FieldError("offerings", "must be a list with at least one offering")
    offerings = tuple(_offering(f"offerings[{index}]", offer) for index, offer in enumerate(fields["offerings"]))
    capacity = _capacity(fields["resources"])
    return _instance_type(fields["name"], fields["architecture"], fields["operatingsystems"], capacity, offerings)


def _lowered(value: Any) -> Any:
    """With names of fields in lower case, but for those of resources and what stands in labels."""
    match value:
        case dict():
            return {
                key: inner if key == "resources" else _lowered(inner)
                for key, inner in ((name.lower(), inner) for name, inner in value.items())
            }
        case list():
            return [*map(_lowered, value)]
        case _:
            return value


def _capacity(amounts: Mapping[str, Any]) -> Resources:
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, str | int | float):
            raise _FieldError(f"resources.{name}", f"must be a quantity like 4 or 16Gi, is {openapi.shown(amount)}")
    try:
        capacity = Resources.parse({PODS: _DEFAULT_PODS, **amounts})
    except QuantityError as error:
        raise _FieldError("resources", str(error)) from error
    for name, amount in capacity.items():
        if amount < 0 or (amount == 0 and name in (CPU, MEMORY)):
            raise _FieldError(f"resources.{name}", f"is {amounts[name]}, must be more than 0")
    return capacity


def _offering(field: str, offer: Mapping[str, Any]) -> Offering:
    where = f"{field}.requirements"
    requirements = Requirements.of(
        _requirement(f"{where}[{index}]", one) for index, one in enumerate(offer["requirements"])
    )
    for key in (names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL):
        if requirements.requirement(key).single_value is None:
            raise _FieldError(where, f"must fix {key} to one value with operator In")
    offering = Offering(_shared(requirements), float(offer["price"]), offer.get("available") is not False)
    if offering.capacity_type not in names.CAPACITY_TYPES:
        known = ", ".join(sorted(names.CAPACITY_TYPES))
        raise _FieldError(where, f"{names.CAPACITY_TYPE_LABEL} must be one of {known}, is {offering.capacity_type}")
    return offering


def _requirement(field: str, one: Mapping[str, Any]) -> Requirement:
    try:
        return Requirement.of(
            names.normalized_label(one["key"]), one.get("operator") or Operator.IN, one.get("values") or ()
        )
    except RequirementError as error:
        raise _FieldError(f"{field}.{error.field}", error.problem) from error
