"""Markers that say what a field admits; the CRD generator reads them, decoding ignores them on purpose.

An object that broke a rule which its cluster did not have yet must still decode, or one old object would end a
watch. So the rules stand beside the types as `Annotated[..., Schema(...)]` of our own, not as msgspec constraints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class CelRule:
    """One CEL rule: `self` is the value, `oldSelf` its former one, in the words of CEL."""

    expression: str
    message: str


@dataclass(frozen=True, slots=True)
class Schema:
    """What one field, or one element of it, admits.

    Attributes:
        description: for `kubectl explain`.
        required: must be present in the parent object.
        default: what the API server writes when it is absent.
        list_type: atomic, set or map (by `list_map_keys`).
        items: rules of a list's elements or a map's values.
        fields: rules that a Struct's fields have here beyond those of its type, by wire name.
        rules: CEL rules over the whole value.
        like: generate from this type instead of the field's own.
        replace: the finished schema, instead of a generated one.
    """

    description: str = ""
    required: bool = False
    default: Any = None
    pattern: str = ""
    enum: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    max_items: int | None = None
    max_properties: int | None = None
    format: str = ""
    list_type: Literal["", "atomic", "set", "map"] = ""
    list_map_keys: tuple[str, ...] = ()
    items: "Schema | None" = None
    fields: Mapping[str, "Schema"] | None = None
    rules: tuple[CelRule, ...] = ()
    like: type | None = None
    replace: Mapping[str, Any] | None = None
