"""The instance types of the kwok provider: 144 generated ones, or a list of the user's own from a JSON file."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from provisioner.apis import names
from provisioner.cloudprovider.kwok import messages
from provisioner.cloudprovider.types import MOST_USD_PER_HOUR, InstanceType, Offering
from provisioner.values import jsontext
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
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_KEY = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)


class CatalogueError(Exception):
    """A catalogue file from which nothing can be launched: missing, no JSON list, or without one good entry."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return messages.instance_types_file(self.path, self.problem)


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
        return messages.entry_ignored(self.path, self.entry, named, field, self.problem)


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
        raise CatalogueError(path, messages.cannot_be_read(error.strerror)) from error
    try:
        entries = jsontext.decoder(object)(text)
    except msgspec.DecodeError as error:
        raise CatalogueError(path, messages.not_json(error)) from error
    if not isinstance(entries, list):
        raise CatalogueError(path, messages.not_a_list_of_types(_kind(entries)))
    types: dict[str, InstanceType] = {}
    left_out: list[BadEntry] = []
    for index, entry in enumerate(entries):
        try:
            one = _read(entry)
            if one.name in types:
                raise _FieldError("name", messages.NAME_USED_TWICE)
        except _FieldError as error:
            left_out.append(BadEntry(path, index, _name_of(entry), error.field, error.problem))
        else:
            types[one.name] = one
    if not types:
        first = f"; the first: {left_out[0]}" if left_out else ""
        raise CatalogueError(path, messages.no_usable_type(len(entries), first))
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
    fields = _object("", entry)
    name = _label_value("name", fields.get("name"), "the type's name")
    architecture = _label_value("architecture", fields.get("architecture"), 'an architecture such as "amd64"')
    systems = [
        _label_value(f"operatingSystems[{index}]", system, 'a system such as "linux"')
        for index, system in enumerate(_list("operatingSystems", fields.get("operatingsystems"), '["linux"]'))
    ]
    capacity = _capacity(fields.get("resources"))
    offers = _list("offerings", fields.get("offerings"), "at least one {Price, Available, Requirements}")
    offerings = tuple(_offering(f"offerings[{index}]", offer) for index, offer in enumerate(offers))
    return _instance_type(name, architecture, systems, capacity, offerings)


def _capacity(value: object) -> Resources:
    if not isinstance(value, dict):
        raise _FieldError("resources", messages.resources_are_no_object(_kind(value)))
    for name, amount in value.items():
        if isinstance(amount, bool) or not isinstance(amount, str | int | float):
            raise _FieldError(f"resources.{name}", messages.no_quantity(_kind(amount)))
    for name in (CPU, MEMORY):
        if name not in value:
            raise _FieldError(f"resources.{name}", messages.RESOURCE_IS_MISSING)
    try:
        capacity = Resources.parse({PODS: _DEFAULT_PODS, **value})
    except QuantityError as error:
        raise _FieldError("resources", str(error)) from error
    for name, amount in capacity.items():
        if amount < 0 or (amount == 0 and name in (CPU, MEMORY)):
            raise _FieldError(f"resources.{name}", messages.not_above_zero(value[name]))
    return capacity


def _offering(field: str, value: object) -> Offering:
    fields = _object(field, value)
    price = fields.get("price")
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price <= MOST_USD_PER_HOUR:
        shown = price if isinstance(price, int | float) and not isinstance(price, bool) else _kind(price)
        raise _FieldError(f"{field}.Price", messages.no_price(shown))
    available = fields.get("available", True)
    if not isinstance(available, bool):
        raise _FieldError(f"{field}.Available", messages.no_boolean(_kind(available)))
    where = f"{field}.Requirements"
    given = _list(where, fields.get("requirements"), "one of the zone and one of the capacity type")
    requirements = Requirements.of(_requirement(f"{where}[{index}]", one) for index, one in enumerate(given))
    for key in (names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL):
        if requirements.requirement(key).single_value is None:
            raise _FieldError(where, messages.not_fixed_to_one_value(key))
    offering = Offering(_shared(requirements), float(price), available)
    if offering.capacity_type not in names.CAPACITY_TYPES:
        known = ", ".join(sorted(names.CAPACITY_TYPES))
        raise _FieldError(
            where, messages.unknown_capacity_type(names.CAPACITY_TYPE_LABEL, known, offering.capacity_type)
        )
    return offering


def _requirement(field: str, value: object) -> Requirement:
    fields = _object(field, value)
    key = fields.get("key")
    if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
        raise _FieldError(f"{field}.key", messages.no_label_key(names.ZONE_LABEL, _kind(key)))
    operator = fields.get("operator", Operator.IN)
    if not isinstance(operator, str):
        raise _FieldError(f"{field}.operator", messages.no_operator(_kind(operator)))
    values = fields.get("values")
    if values is None:
        values = []
    if not isinstance(values, list):
        raise _FieldError(f"{field}.values", messages.no_label_values(_kind(values)))
    texts = [_label_value(f"{field}.values[{index}]", one, "a label value") for index, one in enumerate(values)]
    try:
        return Requirement.of(names.normalized_label(key), operator, texts)
    except RequirementError as error:
        raise _FieldError(f"{field}.{error.field}", error.problem) from error


def _object(field: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _FieldError(field, messages.no_json_object(_kind(value)))
    return {str(key).lower(): inner for key, inner in value.items()}


def _list(field: str, value: object, example: str) -> list[object]:
    if not isinstance(value, list) or not value:
        raise _FieldError(field, messages.no_list(example, _kind(value)))
    return value


def _label_value(field: str, value: object, what: str) -> str:
    if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
        rule = "letters, digits, '-', '_', '.', at most 63"
        raise _FieldError(field, messages.not_the_kind(what, rule, _kind(value)))
    return value


def _name_of(entry: object) -> str:
    if not isinstance(entry, dict):
        return ""
    name = {str(key).lower(): value for key, value in entry.items()}.get("name")
    return name[:63] if isinstance(name, str) else ""


def _kind(value: object) -> str:
    """What a JSON value is, in words, short enough for a message."""
    match value:
        case None:
            return "missing"
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= 70 else value[:67] + "...")
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return "an object"
