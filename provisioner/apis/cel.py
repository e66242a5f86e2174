"""The part of CEL that the rules of our CustomResourceDefinitions are written in, so that one text serves API server and programs. Pure.

Strings, integers, doubles, booleans, lists, `?:`, `||`, `&&`, `!`, comparisons, `in`, arithmetic, fields, indices, `has`, `int`, `double`,
`size`, the macros `all`, `exists`, `exists_one` and `filter`, and the string functions that stand in `_METHODS`. A rule that needs more
fails when it is compiled; a unit test compiles them all.

Formulas are what users write, for numbers: with `min` and `max`, without macros, and bounded.

Source: cel-spec doc/langdef.md; `find`, `split` and `lowerAscii` as in the libraries of kube-apiserver.
Differs: types are checked while a text is evaluated, so a branch that is never taken may be wrong; integers and doubles compare.
"""

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from provisioner.values.requirement import parse_int

Scope: TypeAlias = Mapping[str, Any]
Program: TypeAlias = Callable[[Scope], Any]

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>'[^'\\]*'|"[^"\\]*")|(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<sign>\|\||&&|==|!=|<=|>=|[<>!().,\[\]?:+*/%-]))""",
    re.ASCII,
)
_END: Final = ("end", "")
_MACROS: Final = frozenset({"all", "exists", "exists_one", "filter"})
_INT64: Final = range(-(1 << 63), 1 << 63)
FORMULA_CHARACTERS: Final = 1024
"""The longest formula; so it is evaluated in some 10 us to 100 us, and neither deeply nested."""
_NESTED: Final = 48
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")
_QUANTIFIER: Final = re.compile(r"[*+?{]")
_MOST_QUANTIFIERS: Final = 3
_LONGEST_TEXT: Final = 64
"""Characters that are searched: with `_MOST_QUANTIFIERS`, some hundred thousand steps at the most."""
"""Of a pattern: Python may try for ever where RE2 does not."""


class CelSyntaxError(ValueError):
    """A text that is no CEL, or more of it than is understood here; of a rule a mistake of ours, of a formula its user's."""


class CelError(Exception):
    """A rule that cannot be evaluated over this value, such as for a field that is absent; the API server refuses the object then."""


class CelTypeError(CelError):
    """No such operation on values of these types."""


@functools.cache
def compiled(text: str) -> Program:
    """The rule as a function of its variables (`self`); kept, as rules are few.

    The function raises `CelError`.

    Raises:
        CelSyntaxError: the text is not understood.
    """
    return _Parser(text).whole()


@functools.lru_cache(maxsize=256)
def formula(text: str, variables: frozenset[str]) -> Program:
    """A user's text as a function of these variables; the function raises `CelError`.

    Raises:
        CelSyntaxError: it is not understood, names another variable, or is too long or too deeply nested.
    """
    if len(text) > FORMULA_CHARACTERS:
        raise CelSyntaxError(f"it has {len(text)} characters, and at most {FORMULA_CHARACTERS} are read")
    return _Parser(text, variables).whole()


def number(program: Program, scope: Scope) -> int:
    """What a formula comes to, a double without its fraction.

    Raises:
        CelTypeError: it is no number.
        CelError: it cannot be computed for these values, or is not finite.
    """
    try:
        found = program(scope)
    except RecursionError:
        raise CelError("it is nested too deeply") from None
    if type(found) not in (int, float):
        raise CelTypeError(f"it must be an int or a double, not {found!r}")
    if not math.isfinite(found):
        raise CelError(f"it is not finite ({found})")
    return int(found)


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise CelSyntaxError(f"{text!r}: not understood at {text[at : at + 10]!r}")
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return [*found, _END]


class _Parser:
    """Recursive descent, one method a level of precedence; each returns a function of the variables.

    Args:
        variables: of a formula; None for a rule.
    """

    def __init__(self, text: str, variables: frozenset[str] | None = None) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = self._depth = 0
        self._variables = variables

    def whole(self) -> Program:
        program = self._choice()
        self.expect("")
        return program

    def _next(self) -> tuple[str, str]:
        token = self._tokens[self._at]
        self._at += token != _END
        return token

    def _takes(self, *signs: str) -> str:
        kind, text = self._tokens[self._at]
        if text in signs and (kind == "sign" or text == "in"):
            self._at += 1
            return text
        return ""

    def expect(self, sign: str) -> None:
        if (token := self._next())[1] != sign:
            raise CelSyntaxError(f"{self._text!r}: expected {sign or 'the end'!r}, found {token[1]!r}")

    def _choice(self) -> Program:
        self._nest()
        condition = self._either()
        if self._takes("?"):
            then = self._either()
            self.expect(":")
            condition = functools.partial(_choose, condition, then, self._choice())
        self._depth -= 1
        return condition

    def _nest(self) -> None:
        self._depth += 1
        if self._variables is not None and self._depth > _NESTED:
            raise CelSyntaxError(f"{self._text!r}: nested too deeply")

    def _either(self) -> Program:
        left = self._both()
        while self._takes("||"):
            left = functools.partial(_decide, left, self._both(), True)
        return left

    def _both(self) -> Program:
        left = self._relation()
        while self._takes("&&"):
            left = functools.partial(_decide, left, self._relation(), False)
        return left

    def _relation(self) -> Program:
        left = self._sum()
        while sign := self._takes("==", "!=", "<", "<=", ">", ">=", "in"):
            left = functools.partial(_relate, _RELATIONS[sign], left, self._sum())
        return left

    def _sum(self) -> Program:
        left = self._product()
        while sign := self._takes("+", "-"):
            left = functools.partial(_compute, sign, left, self._product())
        return left

    def _product(self) -> Program:
        left = self._unary()
        while sign := self._takes("*", "/", "%"):
            left = functools.partial(_compute, sign, left, self._unary())
        return left

    def _unary(self) -> Program:
        if sign := self._takes("!", "-"):
            self._nest()
            inner = self._unary()
            self._depth -= 1
            return (lambda scope: not _boolean(inner(scope))) if sign == "!" else functools.partial(_negate, inner)
        return self._postfix()

    def _postfix(self) -> Program:
        value = self._primary()
        while sign := self._takes(".", "["):
            if sign == "[":
                value = functools.partial(_index, value, self._choice())
                self.expect("]")
                continue
            kind, name = self._next()
            if kind != "name":
                raise CelSyntaxError(f"{self._text!r}: {name!r} is not a field")
            value = self._method(value, name) if self._takes("(") else functools.partial(_field, value, name)
        return value

    def _method(self, value: Program, name: str) -> Program:
        if name in _MACROS and self._variables is None:
            kind, variable = self._next()
            if kind != "name":
                raise CelSyntaxError(f"{self._text!r}: {variable!r} is not a variable")
            self.expect(",")
            body = self._choice()
            self.expect(")")
            return functools.partial(_macro, name, value, variable, body)
        if name not in _METHODS:
            raise CelSyntaxError(f"{self._text!r}: the function {name} is not known here")
        function = _matches if name == "matches" and self._variables is not None else _METHODS[name]
        return functools.partial(_call, function, value, self._arguments(")"))

    def _arguments(self, end: str) -> tuple[Program, ...]:
        found: list[Program] = []
        while not self._takes(end):
            if found:
                self.expect(",")
            found.append(self._choice())
        return tuple(found)

    def _primary(self) -> Program:
        kind, text = self._next()
        match kind, text:
            case "string", _:
                literal = text[1:-1]
                return lambda _: literal
            case "number", _:
                number = int(text) if text.isdecimal() else float(text)
                if isinstance(number, int) and number not in _INT64:
                    raise CelSyntaxError(f"{self._text!r}: {text} is not a 64-bit integer")
                return lambda _: number
            case "name", "true" | "false":
                truth = text == "true"
                return lambda _: truth
            case "name", "has" if self._takes("("):
                member = self._postfix()
                self.expect(")")
                if not isinstance(member, functools.partial) or member.func is not _field:
                    raise CelSyntaxError(f"{self._text!r}: has() takes a field")
                return functools.partial(_has, *member.args)
            case "name", "size" | "int" | "double" if self._takes("("):
                return self._function(_FUNCTIONS[text], 1)
            case "name", "min" | "max" if self._variables is not None and self._takes("("):
                return self._function(functools.partial(_extreme, text == "max"), 2)
            case "name", _:
                if self._variables is not None and text not in self._variables:
                    raise CelSyntaxError(
                        f"{text!r} is not known; the variables are {', '.join(sorted(self._variables))}"
                    )
                return functools.partial(_variable, text)
            case "sign", "(":
                inner = self._choice()
                self.expect(")")
                return inner
            case "sign", "[":
                items = self._arguments("]")
                return lambda scope: [item(scope) for item in items]
            case _:
                raise CelSyntaxError(f"{self._text!r}: {text or 'the end'!r} is not expected")

    def _function(self, function: Callable[..., Any], takes: int) -> Program:
        arguments = self._arguments(")")
        if len(arguments) != takes:
            raise CelSyntaxError(f"{self._text!r}: a function takes {takes} and not {len(arguments)} arguments")
        return functools.partial(_call, function, arguments[0], arguments[1:])


# --- evaluation -----------------------------------------------------------------------------------------------------


def _decide(left: Program, right: Program, decisive: bool, scope: Scope) -> bool:
    """`||` and `&&`: whichever side decides, the other's error does not matter."""
    try:
        if _boolean(left(scope)) is decisive:
            return decisive
    except CelError:
        if _boolean(right(scope)) is decisive:
            return decisive
        raise
    return _boolean(right(scope))


def _macro(name: str, value: Program, variable: str, body: Program, scope: Scope) -> Any:
    elements = value(scope)
    if not isinstance(elements, Mapping | list):
        raise CelError(f"{elements!r} has no elements")

    def holds(element: Any) -> bool:
        return _boolean(body({**scope, variable: element}))

    if name == "filter":
        return [element for element in elements if holds(element)]
    if name == "exists_one":
        return sum(map(holds, elements)) == 1
    error: CelError | None = None
    for element in elements:
        try:
            if holds(element) is (name == "exists"):
                return name == "exists"
        except CelError as problem:
            error = problem
    if error is not None:
        raise error
    return name == "all"


def _choose(condition: Program, then: Program, otherwise: Program, scope: Scope) -> Any:
    return then(scope) if _boolean(condition(scope)) else otherwise(scope)


def _negate(value: Program, scope: Scope) -> int | float:
    found = value(scope)
    if type(found) is int:
        return _within(-found)
    if type(found) is float:
        return -found
    raise CelTypeError(f"{found!r} is not a number")


def _compute(sign: str, left: Program, right: Program, scope: Scope) -> Any:
    """Of two integers or of two doubles; both do not mix. `+` joins strings too."""
    one, other = left(scope), right(scope)
    kinds = {type(one), type(other)}
    if kinds == {str} and sign == "+":
        return one + other
    if kinds == {int}:
        return _whole(sign, one, other)
    if kinds == {float} and sign != "%":
        if sign == "/" and other == 0:
            return math.nan if one == 0 or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1, other)
        return _DOUBLES[sign](one, other)
    raise CelTypeError(f"there is no {one!r} {sign} {other!r}; int() and double() convert")


def _whole(sign: str, one: int, other: int) -> int:
    if sign in _INTEGERS:
        return _within(_INTEGERS[sign](one, other))
    if other == 0:
        raise CelError("division by zero" if sign == "/" else "modulus by zero")
    quotient = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    return _within(quotient) if sign == "/" else one - quotient * other


def _within(number: int) -> int:
    if number not in _INT64:
        raise CelError("integer overflow")
    return number


def _extreme(greatest: bool, one: Any, other: Any) -> int | float:
    kinds = {type(one), type(other)}
    if not kinds <= {int, float}:
        raise CelTypeError(f"{one!r} and {other!r} are not two numbers")
    found: int | float = max(one, other) if greatest else min(one, other)
    return found if len(kinds) == 1 else float(found)


_INTEGERS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_DOUBLES: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def _relate(relation: Callable[[Any, Any], bool], left: Program, right: Program, scope: Scope) -> bool:
    try:
        return relation(left(scope), right(scope))
    except TypeError as error:
        raise CelTypeError(str(error)) from error


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


_RELATIONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
    "in": lambda left, right: left in right,
}


def _variable(name: str, scope: Scope) -> Any:
    if name not in scope:
        raise CelError(f"{name} is not known")
    return scope[name]


def _field(value: Program, name: str, scope: Scope) -> Any:
    found = value(scope)
    if not isinstance(found, Mapping):
        raise CelTypeError(f"{found!r} has no fields")
    if name not in found:
        raise CelError(f"no such key: {name}")
    return found[name]


def _has(value: Program, name: str, scope: Scope) -> bool:
    found = value(scope)
    if not isinstance(found, Mapping):
        raise CelError(f"{found!r} has no fields")
    return name in found


def _index(value: Program, at: Program, scope: Scope) -> Any:
    found, position = value(scope), at(scope)
    try:
        return found[position]
    except (KeyError, IndexError, TypeError) as error:
        raise CelError(f"nothing at {position!r}") from error


def _call(function: Callable[..., Any], value: Program, arguments: tuple[Program, ...], scope: Scope) -> Any:
    try:
        return function(value(scope), *(argument(scope) for argument in arguments))
    except (TypeError, AttributeError) as error:
        raise CelTypeError(str(error)) from error
    except (ValueError, OverflowError, re.error) as error:
        raise CelError(str(error)) from error


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelTypeError(f"{value!r} is not a boolean")
    return value


def _integer(value: Any) -> int:
    number = parse_int(value) if isinstance(value, str) else int(value)
    if number is None:
        raise CelError(f"{value!r} is not an integer")
    return _within(number)


@functools.lru_cache(maxsize=512)
def expression(pattern: str) -> "re.Pattern[str]":
    """A pattern of a definition as Python reads it: `$` is the very end, classes are ASCII's, as in RE2."""
    return re.compile(pattern.replace("$", r"\Z"), re.ASCII)


def _find(text: str, pattern: str) -> str:
    match = expression(pattern).search(text)
    return match[0] if match else ""


def _matches(text: str, pattern: str) -> bool:
    if _REPEATED_GROUP.search(pattern):
        raise CelError(f"{pattern!r} repeats a group, which is not supported")
    if len(_QUANTIFIER.findall(pattern)) > _MOST_QUANTIFIERS:
        raise CelError(f"{pattern!r} has more than {_MOST_QUANTIFIERS} quantifiers, which is not supported")
    if len(text) > _LONGEST_TEXT:
        raise CelError(f"matches() supports texts of up to {_LONGEST_TEXT} characters")
    return expression(pattern).search(text) is not None


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"size": len, "int": _integer, "double": float}
_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "size": len,
    "matches": lambda text, pattern: expression(pattern).search(text) is not None,
    "contains": lambda text, part: part in text,
    "find": _find,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "split": str.split,
    "lowerAscii": lambda text: "".join(one.lower() if one.isascii() else one for one in text),
}
