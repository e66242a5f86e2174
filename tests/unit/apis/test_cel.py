"""The CEL that our rules are written in."""

from typing import Any

import pytest

from provisioner.apis import cel
from provisioner.apis.cel import CelError, CelSyntaxError, CelTypeError, compiled
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
    "text",
    ["", "self ==", "(self", "self.replace('a')", "has(self)", "self ? 1", "1 +", "max(1, 2)", "'a\\'b'", "self.1"],
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


M5_LARGE = {
    "vcpus": 2,
    "memory_mib": 8192,
    "default_enis": 3,
    "ips_per_eni": 10,
    "max_pods": 29,
    "instance_type": "m5.large",
}
FORMULAS: dict[str, tuple[str, int]] = {
    "addresses": ("default_enis * (ips_per_eni - 1) + 2", 29),
    "the smaller": ("min(110, default_enis * (ips_per_eni - 1) * 16 + 2)", 110),
    "steps": ("vcpus <= 1 ? 60 : vcpus <= 2 ? 70 : 80", 70),
    "the greater of an int and a double": ("max(3, 7.9)", 7),
    "the smaller of a double and an int": ("min(3.9, 7)", 3),
    "two doubles": ("max(3.9, 7.9)", 7),
    "a double loses its fraction": ("double(memory_mib) * 0.0125", 102),
    "a negative double, too": ("-2.9", -2),
    "a quotient of integers is one": ("memory_mib / 100", 81),
    "it is cut towards zero": ("-7 / 2", -3),
    "a remainder has the sign of the dividend": ("-7 % 2", -1),
    "products before sums": ("1 + 2 * 3", 7),
    "from the left": ("10 - 3 - 2", 5),
    "a type": ('instance_type.startsWith("m5.") ? 1 : 2', 1),
    "a part of its name": ('instance_type.contains("metal") ? 1 : 2', 2),
    "a pattern": ('instance_type.matches("^m[0-9]+[.]") ? 1 : 2', 1),
    "one of some": ('instance_type in ["m5.large", "c5.large"] ? 1 : 2', 1),
    "both must hold": ("vcpus > 1 && max_pods != 110 ? 1 : 2", 1),
    "names in the middle of strings": ('size("a" + instance_type)', 9),
    "an exponent": ("1e2 / 4.0", 25),
    "the least integer": ("-9223372036854775807 - 1", -(1 << 63)),
}


@pytest.mark.parametrize(("text", "want"), FORMULAS.values(), ids=FORMULAS)
def test_a_formula(text: str, want: int) -> None:
    assert cel.number(cel.formula(text, frozenset(M5_LARGE)), M5_LARGE) == want


NO_FORMULAS: dict[str, tuple[str, str]] = {
    "nothing": ("", "is not expected"),
    "blanks": ("  ", "is not expected"),
    "no end": ("1 +", "is not expected"),
    "two": ("1 2", "expected 'the end'"),
    "a variable of nobody": ("cpus * 2", "'cpus' is not known; the variables are default_enis, instance_type"),
    "a function of nobody": ("round(1.5)", "'round' is not known"),
    "a macro": ("[1].all(x, true) ? 1 : 2", "all is not known here"),
    "an argument too many": ("max(1, 2, 3)", "takes 2 and not 3 arguments"),
    "no integer of 64 bits": ("9223372036854775808", "not a 64-bit integer"),
    "a ternary without its end": ("true ? 1", "expected ':'"),
    "parentheses without end": ("(" * 200 + "1" + ")" * 200, "nested too deeply"),
    "signs without end": ("-" * 900 + "1", "nested too deeply"),
    "too long": ("1" + " + 1" * 400, "at most 1024 are read"),
}


@pytest.mark.parametrize(("text", "want"), NO_FORMULAS.values(), ids=NO_FORMULAS)
def test_what_is_no_formula_is_told(text: str, want: str) -> None:
    with pytest.raises(CelSyntaxError) as caught:
        cel.formula(text, frozenset(M5_LARGE))
    assert want in str(caught.value)


NO_NUMBERS: dict[str, tuple[str, type[CelError]]] = {
    "a boolean": ("vcpus > 1", CelTypeError),
    "a string": ("instance_type", CelTypeError),
    "an int and a double": ("memory_mib * 0.01", CelTypeError),
    "a boolean as a number": ("true + 1", CelTypeError),
    "min of a string": ("min(instance_type, 1)", CelTypeError),
    "a negative string": ("-instance_type", CelTypeError),
    "a remainder of doubles": ("1.0 % 2.0", CelTypeError),
    "a number as a condition": ("vcpus ? 1 : 2", CelTypeError),
    "division by zero": ("1 / (vcpus - 2)", CelError),
    "a remainder of zero": ("1 % 0", CelError),
    "no finite double": ("1.0 / 0.0", CelError),
    "not a number": ("0.0 / 0.0", CelError),
    "more than 64 bits": ("9223372036854775807 + vcpus", CelError),
    "the negative of the least integer": ("-(-9223372036854775807 - 1)", CelError),
    "an int of what is not finite": ("int(1.0 / 0.0)", CelError),
    "a pattern that takes for ever": ('instance_type.matches("(m+)+$") ? 1 : 2', CelError),
    "a pattern with too many ways": ('instance_type.matches("a*a*a*a*b") ? 1 : 2', CelError),
    "a text that is too long": ("'" + "a" * 65 + "'.matches('a') ? 1 : 2", CelError),
    "a pattern that is none": ('instance_type.matches("(") ? 1 : 2', CelError),
}


@pytest.mark.parametrize(("text", "error"), NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_what_is_no_number_is_told(text: str, error: type[CelError]) -> None:
    program = cel.formula(text, frozenset(M5_LARGE))
    with pytest.raises(CelError) as caught:
        cel.number(program, M5_LARGE)
    assert type(caught.value) is error


def test_a_formula_as_long_and_as_deep_as_it_may_be_is_evaluated() -> None:
    long = "1" + "+1" * 511
    deep = "(" * 46 + "1" + ")" * 46
    chain = "".join(f"vcpus > {n} ? {n} : " for n in range(20, -1, -1)) + "0"
    for text, want in ((long, 512), (deep, 1), (chain, 1)):
        assert cel.number(cel.formula(text, frozenset(M5_LARGE)), M5_LARGE) == want
