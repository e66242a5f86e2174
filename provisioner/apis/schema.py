"""Markers that say what a field admits; the CRD generator reads them, decoding ignores them on purpose.

An object that broke a rule which its cluster did not have yet must still decode, or one old object would end a
watch. So the rules stand beside the types as `Annotated[..., Schema(...)]` of our own, not as msgspec constraints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule: `self` is the value (and `old_self` its former one) that `expression` must hold for."""

    expression: str
    message: str
    reason: str = ""
    field_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=False)
class Schema:
    """What one field, or one element of it, admits.

    Attributes:
        description: for `kubectl explain`.
        required: must be present in the parent object.
        default: what the API server writes when it is absent.
        items: rules of a list's elements or a map's values.
        keys: CEL rules and bounds cannot stand on a map's keys; rules over them go to `rules` of the map.
        list_type: atomic, set or map (with `list_map_keys`).
        integer_or_string: quantities.
        cel: for the whole value; placed beside the type's own rules.
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
    min_items: int | None = None
    max_items: int | None = None
    max_properties: int | None = None
    format: str = ""
    list_type: Literal["", "atomic", "set", "map"] = ""
    list_map_keys: tuple[str, ...] = ()
    map_type: Literal["", "atomic", "granular"] = ""
    items: "Schema | None" = None
    rules: tuple[Rule, ...] = ()
    quantity: bool = False
    replace: Mapping[str, Any] | None = None
