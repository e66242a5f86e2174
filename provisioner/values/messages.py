"""Texts that `values` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure."""

from typing import Final

# duration.py


def not_a_duration(shown: str) -> str:
    return f"{shown} is not a duration; use a value such as 720h, 1h30m, 90s, 1.5s or 100ms, under 292 years"


# jsontext.py
TEXT_NESTED_TOO_DEEPLY: Final = "the text is nested too deeply"

# quantity.py


def not_a_quantity(shown: str, problem: str) -> str:
    return f"{shown} is not a quantity: {problem}; use a number such as 2, 1.5, 100m, 512Mi, 10G or 12e6"


QUANTITY_IS_EMPTY: Final = "it is empty"


def longer_than(most: int) -> str:
    return f"it is longer than {most} characters"


UNKNOWN_SUFFIX: Final = "the number or its suffix is unknown"
NO_DIGITS: Final = "it has no digits"
IS_A_BOOLEAN: Final = "it is a boolean"

# requirement.py


def matches_nothing(key: str) -> str:
    return f"{key} matches nothing"


def requirements_conflict(left: object, right: object) -> str:
    return f"{left} conflicts with {right}"


def label_without_values(key: str) -> str:
    return f"label {key} has no known values"


def operator_needs_one_integer(operator: str, count: int) -> str:
    return f"operator {operator} needs exactly one integer, got {count} values"


def operator_needs_64_bits(operator: str, value: str) -> str:
    return f"operator {operator} needs one 64-bit integer, got {value!r}"


IS_EMPTY: Final = "is empty"


def min_values_too_small(min_values: int) -> str:
    return f"is {min_values}, must be at least 1"


def unknown_operator(operator: str, known: str) -> str:
    return f"{operator!r} is unknown; use one of {known}"


def operator_needs_values(operator: str) -> str:
    return f"operator {operator} needs at least one"


def operator_takes_no_values(operator: str, values: str) -> str:
    return f"operator {operator} takes none, got {values}"


# schedule.py


def not_a_schedule(shown: str, problem: str) -> str:
    return (
        f"schedule {shown}: {problem}; use five fields in UTC such as '0 9 * * mon-fri', or @hourly, @daily, @weekly..."
    )


DATE_NEVER_COMES: Final = "the date never occurs"


def number_of_fields(count: int) -> str:
    return f"it has {count} fields"


def out_of_bounds(value: str, unit: str, low: int, high: int) -> str:
    return f"{value!r} is not a valid {unit} ({low}-{high})"


NAME_IS_UNKNOWN: Final = "this name is unknown"


def not_a_unit(term: str, unit: str) -> str:
    return f"{term!r} is not a valid {unit}"


def step_of_zero(term: str) -> str:
    return f"{term!r} has a step of 0"


def ends_before_it_begins(term: str) -> str:
    return f"{term!r} ends before it begins"


# yamltext.py


def nested_deeper(most: int) -> str:
    return f"is nested deeper than {most} levels; no Kubernetes object is"


def no_yaml(problem: str) -> str:
    return f"is no YAML: {problem}; correct it there"


def unknown_alias(name: str) -> str:
    return f"*{name} stands for nothing that ends before it; define it with &{name} above"


def unfolds_to_too_much(most: int) -> str:
    return f"its aliases unfold to more than {most:,} values; write them out, in several files"


def more_values(most: int) -> str:
    return f"has more than {most:,} values; split the file"


SEVERAL_DOCUMENTS: Final = "has several documents; keep one of them"
KEY_IS_NO_TEXT: Final = "a key must be a text, not empty, a list or a mapping"
MERGES_NO_MAPPING: Final = "has a merge key (<<) for something that is no mapping"


def key_stands_twice(key: str, *, outermost: bool) -> str:
    """What `DocumentError` says; `outermost` is where objects that should be apart come together."""
    remedy = "separate objects with a line of ---" if outermost else "remove one of them"
    return f"the key {key} stands twice in one mapping; {remedy}"
