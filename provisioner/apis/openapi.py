"""What the API server says about an object of ours, all at once: unknown fields, the schema, and the CEL rules of its definition. Pure.

The source is the CustomResourceDefinition itself (`apis.crds`), so nothing is said twice. Defaults are filled in first, as the API server
does. Rules about a change (`oldSelf`) are left out: there is no older object.

Differs: the API server stops at the schema before it asks the rules, and names at most some of the violations; here all are told.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from provisioner.apis import cel
from provisioner.apis.crds import DEFINITIONS, QUANTITY, Definition
from provisioner.apis.karpenter import (
    CRON,
    CRON_WINDOW,
    DURATION,
    DURATION_OR_NEVER,
    LABEL_VALUE,
    NODE_COUNT,
    QUALIFIED_NAME,
)
from provisioner.apis.overlay import PRICE, PRICE_ADJUSTMENT
from provisioner.values.duration import DurationError, parse_duration
from provisioner.values.message import Said
from provisioner.values.spelling import closest

Document = Mapping[str, Any]

_BOUNDS: Final = {"int32": 2**31, "int64": 2**63}
_METADATA: Final = frozenset(
    {
        *("annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"),
        *("generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"),
        *("resourceVersion", "selfLink", "uid"),
    }
)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST_NAME: Final = 253
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_SHOWN: Final = 60
_MAX_HINTS: Final = 100
"""How many unknown fields of an object are compared with the known ones, which is slow."""
_DURATION: Final = "a duration such as 30s"
_QUANTITY: Final = "a quantity (a string or an integer)"
MISSING: Final = Said("is required")
"""The message about a field that is not there."""
_WANTED: Final[Mapping[str, str]] = {
    QUANTITY["pattern"]: "a quantity such as 500m, 2 or 4Gi",
    DURATION: "a duration such as 30s, 10m or 1h30m",
    DURATION_OR_NEVER: "a duration such as 30s, 10m or 1h30m, or Never",
    CRON: "a cron schedule such as '0 9 * * mon-fri', or @daily",
    CRON_WINDOW: "hours and minutes such as 8h, 30m or 1h30m",
    NODE_COUNT: "a number of nodes such as 5, or a percentage from 0% to 100%",
    LABEL_VALUE: "the value of a label (letters, digits, '-', '_' and '.')",
    QUALIFIED_NAME: "a qualified name such as example.com/team",
    PRICE: "a price in US dollars such as 0.25",
    PRICE_ADJUSTMENT: "an amount with its sign such as +0.5, or a percentage such as -10%",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong, or that will surprise.

    Attributes:
        path: of the field, such as `spec.template.spec.requirements[0].key`; "" for the whole object.
        message: what is wrong, and what to do.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@functools.cache
def definition_of(api_version: str, kind: str) -> Definition | None:
    """The definition of a kind of ours, None for any other."""
    return next((one for one in DEFINITIONS if (one.api_version, one.kind) == (api_version, kind)), None)


@functools.cache
def _schema(definition: Definition) -> dict[str, Any]:
    root: dict[str, Any] = definition.document()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return root


def defaulted(definition: Definition, document: Document) -> dict[str, Any]:
    """A copy as the API server would keep it: without status and null fields, with the defaults of the definition."""
    kept = {name: value for name, value in document.items() if name != "status"}
    filled: dict[str, Any] = _filled(_schema(definition), kept)
    return filled


def violations(definition: Definition, document: Document) -> list[Violation]:
    """Everything for which the API server refuses to create this object, in the order of its fields.

    Unknown fields are among it, which it only warns of unless it is asked to be strict, as kubectl does.

    Args:
        definition: of its kind.
        document: as `defaulted` returns it.
    """
    schema = _schema(definition)
    rest = {name: value for name, value in document.items() if name != "metadata"}
    body = {**schema, "properties": {name: one for name, one in schema["properties"].items() if name != "metadata"}}
    return [*_metadata(document.get("metadata")), *_Check(_places(definition)).value(body, rest, "")]


def unknown_fields(definition: Definition, document: Document) -> list[Violation]:
    """The fields of an object's spec that its definition does not have, of any document; cheap, since no rule is asked."""
    schema = _schema(definition)["properties"]["spec"]
    return list(_Check(_places(definition), only_unknown=True).value(schema, document.get("spec"), "spec"))


def judged(schema: Document, value: Document) -> tuple[tuple[Violation, ...], tuple[Violation, ...]]:
    """What is wrong with an object that no definition of ours is for, as Go's decoder sees it (null is absence), and its unknown fields."""
    kept = _filled(schema, value)
    unknown = tuple(_Check({}, only_unknown=True).value(schema, kept, ""))
    strange = {one.path for one in unknown}
    return tuple(one for one in _Check({}).value(schema, kept, "") if one.path not in strange), unknown


def duration_problem(text: str) -> str:
    """Why a text is no duration as Go reads it; "" where it is one."""
    try:
        parse_duration(text)
    except DurationError as error:
        return str(error)
    return ""


def name_of(document: Document) -> str:
    """The name of an object that nobody has judged yet; "" where it has none."""
    metadata = document.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """A question that ends a sentence, "" where nothing known is close."""
    by_folded = {one.casefold(): one for one in sorted(known, reverse=True)}
    close = closest(text.casefold(), by_folded)
    return f"; did you mean {by_folded[close]}?" if close else ""


def child(path: str, name: str) -> str:
    """The path of a field."""
    return f"{path}.{name}" if path else name


def shown(value: object) -> str:
    """A value within a sentence, cut where it is long."""
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


# --- defaults -------------------------------------------------------------------------------------------------------


def _filled(schema: Document, value: Any) -> Any:
    if isinstance(value, Mapping):
        properties: Mapping[str, Any] = schema.get("properties", {})
        others = schema.get("additionalProperties")
        filled = {}
        for name, one in value.items():
            own = properties.get(name, others)
            if one is None and isinstance(own, Mapping):
                continue  # null is absence
            filled[name] = _filled(own, one) if isinstance(own, Mapping) else one
        for name, own in properties.items():
            if name not in filled and "default" in own:
                filled[name] = _filled(own, own["default"])
        return filled
    if isinstance(value, list):
        items = schema.get("items")
        return [_filled(items, one) for one in value] if isinstance(items, Mapping) else value
    whole = schema.get("type") == "integer" or schema.get("x-kubernetes-int-or-string")
    if whole and isinstance(value, float) and value.is_integer():
        return int(value)  # JSON knows one kind of number
    return value


# --- the schema -----------------------------------------------------------------------------------------------------


@functools.cache
def _places(definition: Definition) -> dict[str, list[str]]:
    """Where fields of a name stand in a definition's spec, nearest to the root first; for fields that were put elsewhere."""
    found: dict[str, list[str]] = {}

    def walk(one: Document, path: str) -> None:
        for name, own in one.get("properties", {}).items():
            found.setdefault(name, []).append(child(path, name))
            walk(own, child(path, name))

    walk(_schema(definition)["properties"]["spec"], "spec")
    return {name: sorted(paths, key=lambda path: (path.count("."), path)) for name, paths in found.items()}


def _unknown_field(hint: str) -> str:
    """`hint` suggests a field, or is empty."""
    return Said(f"unknown field{hint}")


class _Check:
    """One walk over schema and value together; with `only_unknown` nothing is told but the fields that the schema does not have."""

    def __init__(self, places: Mapping[str, list[str]], *, only_unknown: bool = False) -> None:
        self._places, self._hints, self._only_unknown = places, 0, only_unknown

    def value(self, schema: Document, value: Any, path: str) -> Iterator[Violation]:
        if not self._only_unknown:
            if problem := _mistyped(schema, value):
                yield Violation(path, problem)
                return
            yield from (Violation(path, problem) for problem in _restrictions(schema, value))
        if isinstance(value, list) and len(value) > schema.get("maxItems", len(value)):
            return  # what is too long is not looked into
        if isinstance(value, Mapping):
            yield from self._fields(schema, value, path)
        elif isinstance(value, list):
            for position, one in enumerate(value):
                yield from self.value(schema.get("items", {}), one, f"{path}[{position}]")
        if not self._only_unknown:
            yield from _rules(schema, value, path)

    def _fields(self, schema: Document, value: Document, path: str) -> Iterator[Violation]:
        for name in schema.get("required", ()):
            if name not in value and not self._only_unknown:
                yield Violation(child(path, name), MISSING)
        for name, one, own, where in _parts(schema, value, path):
            if own is not None:
                yield from self.value(own, one, where)
            else:
                yield Violation(where, _unknown_field(self._hint(name, schema["properties"])))

    def _hint(self, name: str, properties: Mapping[str, Any]) -> str:
        self._hints += 1
        if self._hints <= _MAX_HINTS and (close := did_you_mean(name, properties)):
            return close
        elsewhere = self._places.get(name)
        return f"; did you mean {elsewhere[0]}?" if elsewhere else ""


def _parts(schema: Document, value: Document, path: str) -> Iterator[tuple[str, Any, Document | None, str]]:
    """Every field of an object that the schema says something of: name, value, its own schema (None where it is unknown), and path."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name, one in value.items():
        if name in properties:
            yield name, one, properties[name], child(path, name)
        elif isinstance(others, Mapping):
            yield name, one, others, child(path, name) if _PLAIN_KEY.fullmatch(name) else f"{path}[{name}]"
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and "properties" in schema:
            yield name, one, None, child(path, name)


def _not_of_type(accepted: str, got: str, quotes: str) -> str:
    """`accepted` and `got` are types; `quotes` is advice about quotation marks, or empty."""
    return Said(f"must be {accepted}, not {got}{quotes}")


def _mistyped(schema: Document, value: Any) -> str:
    a_duration = schema.get("format") == "duration"
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, str | int) and not isinstance(value, bool)
        return "" if fits else _not_of_type(_DURATION if a_duration else _QUANTITY, _kind(value), "")
    want = schema.get("type", "")
    got = _kind(value)
    accepted = {
        "object": ("an object",),
        "array": ("a list",),
        "string": ("a string",),
        "integer": ("an integer",),
        "number": ("an integer", "a number"),
        "boolean": ("a boolean",),
    }.get(want, (got,))
    if got in accepted:
        return ""
    if a_duration:
        return _not_of_type(_DURATION, got, "")
    quotes = (
        f'; write "{value}" in quotes' if want == "string" and got in ("an integer", "a number", "a boolean") else ""
    )
    return _not_of_type(accepted[-1], got, quotes)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "an integer" if value.is_integer() else "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


def _too_many_entries(count: int, most: str) -> str:
    """`most` is the maximum."""
    return Said(f"has {count} entries; the maximum is {most}")


def _restrictions(schema: Document, value: Any) -> Iterator[str]:
    """What is wrong with a value of the right type."""
    if "enum" in schema and value not in schema["enum"]:
        known = list(map(str, schema["enum"]))
        yield Said(f"{shown(value)} is not supported; use one of {', '.join(known)}{did_you_mean(str(value), known)}")
    match value:
        case str():
            if "pattern" in schema and cel.expression(schema["pattern"]).search(value) is None:
                wanted = _WANTED.get(schema["pattern"])
                yield (
                    Said(f"{shown(value)} is not {wanted}")
                    if wanted
                    else Said(f"{shown(value)} does not match {schema['pattern']}")
                )
            if len(value) > schema.get("maxLength", len(value)):
                yield Said(f"has {len(value)} characters; the maximum is {schema['maxLength']}")
            if len(value) < schema.get("minLength", 0):
                yield Said("must not be empty")
            if schema.get("format") == "duration" and (problem := duration_problem(value)):
                yield problem
            if schema.get("format") == "date-time" and not _is_time(value):
                yield Said(f"{shown(value)} is not an RFC 3339 time such as 2026-01-31T12:00:00Z")
        case bool():
            pass
        case int() | float():
            if value < schema.get("minimum", value):
                yield Said(f"{value} is less than the minimum {schema['minimum']}")
            if value > schema.get("maximum", value):
                yield Said(f"{value} is more than the maximum {schema['maximum']}")
            bound = _BOUNDS.get(schema.get("format", ""), 2**63)
            if not -bound <= value < bound:
                yield Said(f"{value} is out of range for {schema.get('format') or 'int64'}")
        case list():
            if len(value) > schema.get("maxItems", len(value)):
                yield _too_many_entries(len(value), schema["maxItems"])
            else:
                yield from _repeated(schema, value)
        case Mapping() if len(value) > schema.get("maxProperties", len(value)):
            yield _too_many_entries(len(value), schema["maxProperties"])


def _repeated(schema: Document, value: list[Any]) -> Iterator[str]:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            keys = list(map(repr, value))
        case "map":
            names = schema["x-kubernetes-list-map-keys"]
            keys = [repr([one.get(name) for name in names]) for one in value if isinstance(one, Mapping)]
        case _:
            return
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        yield Said(f"{', '.join(twice)} must not be repeated")


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _rules(schema: Document, value: Any, path: str) -> Iterator[Violation]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" in rule["rule"]:
            continue
        try:
            if cel.compiled(rule["rule"])({"self": value}) is not True:
                yield Violation(path, rule["message"])
        except cel.CelError:
            pass  # a field that the schema demands is not there, or is of another type: that was said already


# --- metadata -------------------------------------------------------------------------------------------------------


def _not_an_object(kind: str) -> str:
    """`kind` is the type of the value."""
    return Said(f"must be an object, not {kind}")


def _not_a_string(kind: str, value: str) -> str:
    """`kind` is the type of the value."""
    return Said(f'must be a string, not {kind}; write "{value}" in quotes')


def _metadata(metadata: Any) -> Iterator[Violation]:
    """What every object's metadata must be like, as far as users write it."""
    if not isinstance(metadata, Mapping):
        yield Violation("metadata", MISSING if metadata is None else _not_an_object(_kind(metadata)))
        return
    for at, name in enumerate(sorted(map(str, metadata.keys() - _METADATA))):
        yield Violation(f"metadata.{name}", _unknown_field(did_you_mean(name, _METADATA) if at < _MAX_HINTS else ""))
    given = metadata.get("name") or metadata.get("generateName")
    if not given:
        yield Violation("metadata.name", MISSING)
    elif not isinstance(given, str):
        yield Violation("metadata.name", _not_a_string(_kind(given), given))
    elif metadata.get("name") and not (len(given) <= _LONGEST_NAME and _NAME.fullmatch(given)):
        rest = f"at most {_LONGEST_NAME} lower case letters, digits, '-' and '.', beginning and ending with a letter or digit"
        yield Violation("metadata.name", Said(f"{shown(given)} is not a name; use {rest}"))
    for field in ("labels", "annotations"):
        yield from _strings(metadata.get(field), f"metadata.{field}", labels=field == "labels")


def _strings(found: Any, path: str, *, labels: bool) -> Iterator[Violation]:
    if found is None:
        return
    if not isinstance(found, Mapping):
        yield Violation(path, _not_an_object(_kind(found)))
        return
    for key, value in found.items():
        where = f"{path}[{key}]"
        if not cel.expression(QUALIFIED_NAME).search(str(key)):
            yield Violation(where, Said("the key is not a qualified name such as example.com/team"))
        if not isinstance(value, str):
            yield Violation(where, _not_a_string(_kind(value), value))
        elif labels and (len(value) > 63 or not cel.expression(LABEL_VALUE).search(value)):
            yield Violation(where, Said(f"{shown(value)} is not a valid label value"))
