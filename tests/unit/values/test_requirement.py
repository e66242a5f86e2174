import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from provisioner.values.requirement import (
    INT_MAX,
    INT_MIN,
    NONE,
    Operator,
    Requirement,
    RequirementConflict,
    RequirementError,
    Requirements,
)

ZONE = "topology.kubernetes.io/zone"
WELL_KNOWN = frozenset({ZONE, "kubernetes.io/arch"})


def needs(operator: str, *values: str, key: str = "size", least: int | None = None) -> Requirement:
    return Requirement.of(key, operator, values, least)


def all_of(*parts: Requirement) -> Requirement:
    (requirement,) = Requirements.of(parts).values()
    return requirement


HAS = {
    "In has its values": (needs("In", "a", "b"), ["a", "b"], ["c", ""]),
    "NotIn has all others": (needs("NotIn", "a"), ["b", "1"], ["a"]),
    "Exists has everything": (needs("Exists"), ["a", "1", ""], []),
    "DoesNotExist has nothing": (needs("DoesNotExist"), [], ["a", "1", ""]),
    "Gt leaves its bound out": (needs("Gt", "3"), ["4", "100"], ["3", "2", "-4"]),
    "Lt leaves its bound out": (needs("Lt", "3"), ["2", "0", "-7"], ["3", "4"]),
    "Gte takes its bound in": (needs("Gte", "3"), ["3", "4"], ["2"]),
    "Lte takes its bound in": (needs("Lte", "3"), ["3", "2"], ["4"]),
    "a bound has integers only": (needs("Gt", "3"), ["5"], ["a", "", "5.5", " 5", "0x5", "1_000", "\u0665"]),
    "a bound reads integers as ParseInt does": (needs("Gt", "03"), ["05", "+5", "0" * 60 + "5"], ["03", "-5", "-0"]),
    "a bound has 64 bits": (needs("Gt", "3"), [str(INT_MAX)], [str(INT_MAX + 1)]),
    "two bounds hold together": (all_of(needs("Gt", "3"), needs("Lt", "6")), ["4", "5"], ["3", "6"]),
    "of two lower bounds the higher holds": (all_of(needs("Gte", "3"), needs("Gte", "5")), ["5"], ["4", "3"]),
    "of two upper bounds the lower holds": (all_of(needs("Lte", "5"), needs("Lte", "3")), ["3"], ["4", "5"]),
    "bounds keep the exclusions": (all_of(needs("Gte", "3"), needs("NotIn", "4", "x")), ["3", "5"], ["4", "2", "x"]),
    "a list within bounds loses what is outside": (
        all_of(needs("In", "1", "5", "x"), needs("Gt", "3")),
        ["5"],
        ["1", "x"],
    ),
}


@pytest.mark.parametrize(("requirement", "inside", "outside"), HAS.values(), ids=HAS)
def test_has(requirement: Requirement, inside: list[str], outside: list[str]) -> None:
    assert [value for value in (*inside, *outside) if requirement.has(value)] == inside


CONTRADICTIONS = {
    "two lists without a common value": (needs("In", "a"), needs("In", "b")),
    "a list and the absence of the label": (needs("In", "a"), needs("DoesNotExist")),
    "a list that is excluded": (needs("In", "a"), needs("NotIn", "a", "b")),
    "bounds that cross": (needs("Gt", "5"), needs("Lt", "6")),
    "a list out of bounds": (needs("In", "1"), needs("Gt", "1")),
    "a word where a number is needed": (needs("In", "large"), needs("Gt", "1")),
    "a bound and the absence of the label": (needs("Gt", "1"), needs("DoesNotExist")),
    "existence and absence": (needs("Exists"), needs("DoesNotExist")),
    "more than the greatest integer": (needs("Gt", str(INT_MAX)), needs("Exists")),
    "less than the least integer": (needs("Lt", str(INT_MIN)), needs("Exists")),
}


@pytest.mark.parametrize("parts", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_contradictions_are_found(parts: tuple[Requirement, ...]) -> None:
    both = all_of(*parts)
    assert both.is_contradiction
    assert not all_of(*parts[:-1]).intersects(parts[-1])
    assert not parts[-1].intersects(all_of(*parts[:-1]))
    assert both.operator is Operator.DOES_NOT_EXIST
    assert not both.admits(None)
    assert str(both) == "size matches nothing"


AGREEMENTS = {
    "two lower bounds": (needs("Gte", "3"), needs("Gte", "5")),
    "two upper bounds": (needs("Lte", "3"), needs("Lte", "5")),
    "bounds that meet in one integer": (needs("Gte", "5"), needs("Lte", "5")),
    "bounds with one integer left": (needs("Gte", "5"), needs("Lte", "6"), needs("NotIn", "5", "x")),
    "bounds whose every integer is excluded as it is mostly written": (
        needs("Gte", "5"),
        needs("Lte", "6"),
        needs("NotIn", "5", "6"),
    ),
    "two exclusions": (needs("NotIn", "a"), needs("NotIn", "b")),
    "an exclusion and absence": (needs("NotIn", "a"), needs("DoesNotExist")),
    "absence twice": (needs("DoesNotExist"), needs("DoesNotExist")),
    "existence and an exclusion": (needs("Exists"), needs("NotIn", "a")),
}


@pytest.mark.parametrize("parts", AGREEMENTS.values(), ids=AGREEMENTS)
def test_agreements_are_found(parts: tuple[Requirement, ...]) -> None:
    assert not all_of(*parts).is_contradiction
    assert all_of(*parts[:-1]).intersects(parts[-1])
    assert parts[-1].intersects(all_of(*parts[:-1]))


WIRE: dict[str, tuple[Requirement, list[tuple[str, list[str]]]]] = {
    "In sorts its values": (needs("In", "b", "a"), [("In", ["a", "b"])]),
    "NotIn sorts its values": (needs("NotIn", "b", "a"), [("NotIn", ["a", "b"])]),
    "Exists": (needs("Exists"), [("Exists", [])]),
    "DoesNotExist": (needs("DoesNotExist"), [("DoesNotExist", [])]),
    "Gt becomes the next Gte": (needs("Gt", "3"), [("Gte", ["4"])]),
    "a bound is written as it is mostly written": (needs("Gte", "007"), [("Gte", ["7"])]),
    "Lt becomes the next Lte": (needs("Lt", "3"), [("Lte", ["2"])]),
    "two bounds are two entries": (all_of(needs("Gt", "3"), needs("Lt", "9")), [("Gte", ["4"]), ("Lte", ["8"])]),
    "a bounded exclusion keeps both": (
        all_of(needs("Gt", "3"), needs("NotIn", "5")),
        [("NotIn", ["5"]), ("Gte", ["4"])],
    ),
    "an exclusion out of bounds says nothing": (all_of(needs("Gt", "3"), needs("NotIn", "2", "x")), [("Gte", ["4"])]),
    "existence beside an exclusion is kept": (
        all_of(needs("Exists"), needs("NotIn", "a")),
        [("NotIn", ["a"]), ("Exists", [])],
    ),
    "a contradiction stays one": (all_of(needs("In", "a"), needs("In", "b")), [("Exists", []), ("DoesNotExist", [])]),
}


@pytest.mark.parametrize(("requirement", "want"), WIRE.values(), ids=WIRE)
def test_to_wire(requirement: Requirement, want: list[tuple[str, list[str]]]) -> None:
    assert [(entry["operator"], entry.get("values", [])) for entry in requirement.to_wire()] == want
    assert {entry["key"] for entry in requirement.to_wire()} == {"size"}


def test_min_values_are_on_the_wire_and_the_larger_wins() -> None:
    both = all_of(needs("In", "a", "b", "c", least=2), needs("Exists", least=3))
    assert both.to_wire() == [{"key": "size", "operator": "In", "values": ["a", "b", "c"], "minValues": 3}]


REFUSED: dict[str, tuple[str, str, Iterable[str], int | None, str]] = {
    "an empty key": ("", "Exists", (), None, "key: is empty"),
    "an unknown operator": (
        "size",
        "Equals",
        ("a",),
        None,
        "operator: 'Equals' is unknown; use one of In, NotIn, Exists",
    ),
    "In without values": ("size", "In", (), None, "values: operator In needs at least one"),
    "NotIn without values": ("size", "NotIn", (), None, "values: operator NotIn needs at least one"),
    "Exists with values": ("size", "Exists", ("a",), None, "values: operator Exists takes none, got a"),
    "DoesNotExist with values": ("size", "DoesNotExist", ("a",), None, "values: operator DoesNotExist takes none"),
    "Gt without a value": ("size", "Gt", (), None, "values: operator Gt needs exactly one integer, got 0 values"),
    "Lt with two": ("size", "Lt", ("1", "2"), None, "values: operator Lt needs exactly one integer, got 2 values"),
    "Gte with a word": ("size", "Gte", ("big",), None, "values: operator Gte needs one 64-bit integer, got 'big'"),
    "Lte with too large a number": (
        "size",
        "Lte",
        (str(INT_MAX + 1),),
        None,
        "values: operator Lte needs one 64-bit integer",
    ),
    "minValues of zero": ("size", "In", ("a",), 0, "minValues: is 0, must be at least 1"),
}


@pytest.mark.parametrize(("key", "operator", "values", "least", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_with_its_field(
    key: str, operator: str, values: Iterable[str], least: int | None, problem: str
) -> None:
    with pytest.raises(RequirementError) as caught:
        Requirement.of(key, operator, values, least)
    assert problem in str(caught.value)


ANY = {
    "the least of a list": (needs("In", "b", "a"), "a"),
    "the least integer from zero": (needs("Exists"), "0"),
    "past what is excluded": (needs("NotIn", "0", "1"), "2"),
    "the lower bound": (needs("Gte", "7"), "7"),
    "past what is excluded at the bound": (all_of(needs("Gte", "7"), needs("NotIn", "7", "8")), "9"),
    "zero within bounds around it": (all_of(needs("Gte", "-7"), needs("Lte", "7")), "0"),
    "below zero where all above is excluded": (all_of(needs("Lte", "1"), needs("NotIn", "0", "1")), "-1"),
    "the upper bound where all is below zero": (needs("Lte", "-5"), "-5"),
    "nothing where nothing is allowed": (needs("DoesNotExist"), ""),
}


@pytest.mark.parametrize(("requirement", "want"), ANY.values(), ids=ANY)
def test_any_value(requirement: Requirement, want: str) -> None:
    assert requirement.any_value() == want


COMPATIBLE: dict[str, tuple[list[Requirement], list[Requirement]]] = {
    "nothing is asked": ([needs("In", "a")], []),
    "what is asked is there": ([needs("In", "a", "b")], [needs("In", "b")]),
    "a well-known label is not known yet": ([], [needs("In", "z1", key=ZONE)]),
    "a custom label must not have a value and is not there": ([], [needs("NotIn", "a")]),
    "a custom label must not be there and is not": ([], [needs("DoesNotExist")]),
    "both sides may lack the label": ([needs("DoesNotExist")], [needs("NotIn", "a")]),
    "any value will do": ([needs("In", "a")], [needs("Exists")]),
}


@pytest.mark.parametrize(("node", "pod"), COMPATIBLE.values(), ids=COMPATIBLE)
def test_compatible(node: list[Requirement], pod: list[Requirement]) -> None:
    assert Requirements.of(node).incompatibility(Requirements.of(pod), WELL_KNOWN) is None


INCOMPATIBLE: dict[str, tuple[list[Requirement], list[Requirement], bool]] = {
    "another value is there": ([needs("In", "a")], [needs("In", "b")], False),
    "a custom label is not there": ([], [needs("In", "a")], True),
    "a custom label must be there": ([], [needs("Exists")], True),
    "a custom label must be a number": ([], [needs("Gt", "1")], True),
    "a custom label must be there without one value": ([], [needs("Exists"), needs("NotIn", "a")], True),
    "a contradiction is not satisfied by absence": ([], [needs("In", "a"), needs("In", "b")], True),
    "the label is there and must not be": ([needs("In", "a")], [needs("DoesNotExist")], False),
}


@pytest.mark.parametrize(("node", "pod", "undefined"), INCOMPATIBLE.values(), ids=INCOMPATIBLE)
def test_incompatible(node: list[Requirement], pod: list[Requirement], *, undefined: bool) -> None:
    conflict = Requirements.of(node).incompatibility(Requirements.of(pod), WELL_KNOWN)
    assert conflict is not None
    assert (conflict.key, conflict.undefined) == ("size", undefined)


def test_on_a_node_that_exists_no_label_may_be_undefined() -> None:
    conflict = NONE.incompatibility(Requirements.of([needs("In", "z1", key=ZONE)]))
    assert conflict == RequirementConflict(ZONE, None, needs("In", "z1", key=ZONE), undefined=True)


SENTENCES = {
    "two sides are shown": (
        Requirements.from_labels({ZONE: "a"}).conflict(Requirements.from_labels({ZONE: "b"})),
        f"{ZONE} In [a] conflicts with {ZONE} In [b]",
    ),
    "a label of another domain is probably the known one": (
        NONE.incompatibility(Requirements.from_labels({"topology.k8s.io/zone": "a"}), WELL_KNOWN),
        f'the NodePool does not set the label "topology.k8s.io/zone" (did you mean "{ZONE}"?)',
    ),
    "a label with a slip is probably the one it is near to": (
        Requirements.from_labels({"example.com/team": "x"}).incompatibility(
            Requirements.from_labels({"exmaple.com/tem": "x"})
        ),
        'the NodePool does not set the label "exmaple.com/tem" (did you mean "example.com/team"?)',
    ),
    "a label like no other gets no hint": (
        NONE.incompatibility(Requirements.from_labels({"team": "x"}), WELL_KNOWN),
        'the NodePool does not set the label "team"',
    ),
}


@pytest.mark.parametrize(("conflict", "want"), SENTENCES.values(), ids=SENTENCES)
def test_a_conflict_is_a_sentence(conflict: RequirementConflict | None, want: str) -> None:
    assert str(conflict) == want


def test_long_lists_are_shown_cut() -> None:
    assert str(needs("In", *"abcdefgh")) == "size In [a b c d e and 3 others]"
    assert (
        str(all_of(needs("Gt", "1"), needs("NotIn", "7"), needs("Exists", least=2)))
        == "size NotIn [7] and Gt 1 minValues 2"
    )


WRITTEN = {
    "Gt": (needs("Gt", "4"), "size Gt 4"),
    "Gte": (needs("Gte", "5"), "size Gte 5"),
    "Lt": (needs("Lt", "17"), "size Lt 17"),
    "Lte": (needs("Lte", "16"), "size Lte 16"),
    "two bounds": (all_of(needs("Gte", "4"), needs("Lt", "17")), "size Gte 4 and Lt 17"),
    "the tighter of two": (all_of(needs("Lt", "17"), needs("Lt", "9"), needs("Lte", "30")), "size Lt 9"),
}


@pytest.mark.parametrize(("requirement", "want"), WRITTEN.values(), ids=WRITTEN)
def test_a_bound_is_told_as_it_is_written_and_compared_by_what_it_admits(requirement: Requirement, want: str) -> None:
    assert str(requirement) == want
    entries: list[Any] = requirement.to_wire()
    again = all_of(*(Requirement.of(one["key"], one["operator"], one["values"]) for one in entries))
    assert (again, hash(again)) == (requirement, hash(requirement))


def test_the_first_conflict_in_order_of_key_is_named() -> None:
    left = Requirements.from_labels({"a": "1", "b": "1", "c": "1"})
    conflict = left.conflict(Requirements.from_labels({"c": "2", "b": "2"}))
    assert conflict is not None
    assert conflict.key == "b"


def test_a_key_that_nobody_speaks_of_just_exists() -> None:
    assert NONE.requirement("size") == needs("Exists")


def test_values_cannot_be_changed_nor_made_without_their_readers() -> None:
    with pytest.raises(AttributeError):
        needs("Exists").values = frozenset("a")  # type: ignore[misc]
    with pytest.raises(AttributeError):
        NONE.other = 1
    with pytest.raises(TypeError, match=r"Requirements\.of"):
        Requirements()


GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "values" / "requirements.json").read_text())
"""What kube-scheduler's code says of odd operands and labels; an operand that it refuses matches no node, whatever its operator."""


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: f"{row['operator']} {row['operand']!r}")
def test_every_operator_matches_what_kube_scheduler_matches(row: dict[str, Any]) -> None:
    operand, labels = row["operand"], GOLDEN["labels"]
    try:
        requirement = needs(row["operator"], *([] if operand is None else [operand]))
    except RequirementError:
        assert row["error"]
        return
    if row["error"]:  # no API server admits such a value, for labels cannot have it
        assert not re.fullmatch("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", operand)
        return
    assert [label for label in labels if requirement.admits(label)] == row["matches"]
    if row["operator"] == "Gt":
        least, most = needs("Gte", operand), needs("Lte", operand)
        assert [label for label in ("6", "7", "8") if least.has(label)] == [
            label for label in ("6", "7", "8") if int(label) >= int(operand)
        ]
        assert [label for label in labels if label is not None and most.has(label) and requirement.has(label)] == []
