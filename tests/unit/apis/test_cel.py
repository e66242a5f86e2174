"""The CEL that our rules are written in."""

from typing import Any

import pytest

from provisioner.apis.cel import CelError, CelSyntaxError, compiled
from provisioner.apis.crds import documents

VALUES: dict[str, tuple[str, Any, object]] = {
    "equal": ("self == 'a'", "a", True),
    "a boolean is no number": ("self == 1", True, False),
    "not equal, of two types": ("self != 'a'", 1, True),
    "or": ("self == 1 || self == 2", 2, True),
    "and binds closer than or": ("true || false && false", None, True),
    "not binds closer than and": ("!false && false", None, False),
    "parentheses": ("(true || false) && false", None, False),
    "in a list": ("self in ['a', 'b']", "b", True),
    "a key is in a map": ("'a' in self", {"a": 1}, True),
    "has": ("has(self.a)", {"a": None}, True),
    "has not": ("has(self.a)", {}, False),
    "has, deeper": ("has(self.a.b)", {"a": {"b": 1}}, True),
    "or does not mind an error on its left": ("self.a == 1 || true", {}, True),
    "or does not mind an error on its right": ("true || self.a == 1", {}, True),
    "and does not mind an error where the other side decides": ("self.a == 1 && false", {}, False),
    "all": ("self.all(x, x > 1)", [2, 3], True),
    "all of nothing": ("self.all(x, x > 1)", [], True),
    "all does not mind an error beside a false": ("self.all(x, x.a == 1)", [{}, {"a": 2}], False),
    "all of a map are its keys": ("self.all(k, self[k] != '')", {"a": "b"}, True),
    "exists": ("self.exists(x, x == 2)", [1, 2], True),
    "exists_one": ("self.exists_one(x, x == 2)", [2, 2], False),
    "filter and a chained size": ("self.filter(x, x > 1).size() == 2", [1, 2, 3], True),
    "a macro within a macro": ("self.all(x, self.exists_one(y, x == y))", [1, 2], True),
    "size as a function": ("size(self) == 2", [1, 2], True),
    "int": ("int(self) >= 10", "12", True),
    "matches searches": ("self.matches('b')", "abc", True),
    "an end is the very end": ("self.matches('^a$')", "a\n", False),
    "find": ("self.find('^([^/]+)') == 'a.b'", "a.b/c", True),
    "find nothing": ("self.find('x') == ''", "a", True),
    "split, index and lower": ("self.split('@')[0].lowerAscii() == 'al2023'", "AL2023@latest", True),
    "starts and ends": ("self.startsWith('a') && self.endsWith('c')", "abc", True),
    "comparisons": ("1 < 2 && 2 <= 2 && 3 > 2 && 2 >= 2", None, True),
}


@pytest.mark.parametrize(("text", "value", "want"), VALUES.values(), ids=VALUES)
def test_a_value(text: str, value: Any, want: object) -> None:
    assert compiled(text)({"self": value}) is want


ERRORS: dict[str, tuple[str, Any]] = {
    "a field that is absent": ("self.a == 1", {}),
    "a field of no object": ("self.a == 1", "a"),
    "an index beyond the end": ("self[1] == 'a'", ["a"]),
    "types that do not compare": ("self < 1", "a"),
    "a function of another type": ("self.startsWith('a')", 1),
    "no boolean": ("self && true", 1),
    "a number that is none": ("int(self) > 1", "x"),
    "or, where the error decides": ("self.a == 1 || false", {}),
    "elements of no list": ("self.all(x, true)", 1),
    "a variable that is not given": ("oldSelf == 1", 1),
}


@pytest.mark.parametrize(("text", "value"), ERRORS.values(), ids=ERRORS)
def test_an_error(text: str, value: Any) -> None:
    with pytest.raises(CelError):
        compiled(text)({"self": value})


@pytest.mark.parametrize(
    "text", ["", "self ==", "(self", "self.replace('a')", "has(self)", "self ? 1 : 2", "1 + 1", "'a\\'b'", "self.1"]
)
def test_what_is_not_understood_is_refused_when_it_is_compiled(text: str) -> None:
    with pytest.raises(CelSyntaxError):
        compiled(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [("self.1", "'self.1': '1' is not a field"), ("self.all(1, true)", "'self.all(1, true)': '1' is not a variable")],
)
def test_what_stands_in_the_place_of_a_name_is_told(text: str, said: str) -> None:
    with pytest.raises(CelSyntaxError) as error:
        compiled(text)
    assert str(error.value) == said


def rules(schema: dict[str, Any]) -> list[str]:
    found = [rule["rule"] for rule in schema.get("x-kubernetes-validations", ())]
    for below in [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]:
        found += rules(below) if isinstance(below, dict) else []
    return found


def test_every_rule_of_our_definitions_is_understood() -> None:
    found = [
        rule
        for document in documents().values()
        for rule in rules(document["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    ]
    assert len(found) > 60
    for rule in found:
        compiled(rule)
