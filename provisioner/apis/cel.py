"""The part of CEL that the rules of our CustomResourceDefinitions are written in, so that one text serves API server and programs. Pure.

Strings, integers, booleans, lists, `||`, `&&`, `!`, comparisons, `in`, fields, indices, `has`, `int`, `size`, the macros `all`, `exists`,
`exists_one` and `filter`, and the string functions that stand in `_METHODS`. A rule that needs more fails when it is compiled; a unit
test compiles them all.

Source: cel-spec doc/langdef.md; `find`, `split` and `lowerAscii` as in the libraries of kube-apiserver.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from provisioner.values.requirement import parse_int

Scope: TypeAlias = Mapping[str, Any]
Program: TypeAlias = Callable[[Scope], Any]

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>'[^'\\]*'|"[^"\\]*")|(?P<number>[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<sign>\|\||&&|==|!=|<=|>=|[<>!().,\[\]]))""",
    re.ASCII,
)
_END: Final = ("end", "")
_MACROS: Final = frozenset({"all", "exists", "exists_one", "filter"})


class CelSyntaxError(ValueError):
    """A text that is no CEL, or more of it than is understood here; a mistake of ours, not of a user."""


class CelError(Exception):
    """A rule that cannot be evaluated over this value, such as for a field that is absent; the API server refuses the object then."""


@functools.cache
def compiled(text: str) -> Program:
    """The rule as a function of its variables (`self`); kept, as rules are few.

    The function raises `CelError`.

    Raises:
        CelSyntaxError: the text is not understood.
    """
    parser = _Parser(text)
    program = parser.either()
    parser.expect("")
    return program


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
    """Recursive descent, one method a level of precedence; each returns a function of the variables."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0

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

    def either(self) -> Program:
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
        left = self._unary()
        while sign := self._takes("==", "!=", "<", "<=", ">", ">=", "in"):
            left = functools.partial(_relate, _RELATIONS[sign], left, self._unary())
        return left

    def _unary(self) -> Program:
        if self._takes("!"):
            inner = self._unary()
            return lambda scope: not _boolean(inner(scope))
        return self._postfix()

    def _postfix(self) -> Program:
        value = self._primary()
        while sign := self._takes(".", "["):
            if sign == "[":
                value = functools.partial(_index, value, self.either())
                self.expect("]")
                continue
            kind, name = self._next()
            if kind != "name":
                raise CelSyntaxError(f"{self._text!r}: {name!r} is not a field")
            value = self._method(value, name) if self._takes("(") else functools.partial(_field, value, name)
        return value

    def _method(self, value: Program, name: str) -> Program:
        if name in _MACROS:
            kind, variable = self._next()
            if kind != "name":
                raise CelSyntaxError(f"{self._text!r}: {variable!r} is not a variable")
            self.expect(",")
            body = self.either()
            self.expect(")")
            return functools.partial(_macro, name, value, variable, body)
        if name not in _METHODS:
            raise CelSyntaxError(f"{self._text!r}: the function {name} is not known here")
        return functools.partial(_call, _METHODS[name], value, self._arguments(")"))

    def _arguments(self, end: str) -> tuple[Program, ...]:
        found: list[Program] = []
        while not self._takes(end):
            if found:
                self.expect(",")
            found.append(self.either())
        return tuple(found)

    def _primary(self) -> Program:
        kind, text = self._next()
        match kind, text:
            case "string", _:
                literal = text[1:-1]
                return lambda _: literal
            case "number", _:
                number = int(text)
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
            case "name", "size" | "int" if self._takes("("):
                (inner,) = self._arguments(")")
                return functools.partial(_call, _METHODS["size"] if text == "size" else _integer, inner, ())
            case "name", _:
                return functools.partial(_variable, text)
            case "sign", "(":
                inner = self.either()
                self.expect(")")
                return inner
            case "sign", "[":
                items = self._arguments("]")
                return lambda scope: [item(scope) for item in items]
            case _:
                raise CelSyntaxError(f"{self._text!r}: {text or 'the end'!r} is not expected")


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


def _relate(relation: Callable[[Any, Any], bool], left: Program, right: Program, scope: Scope) -> bool:
    try:
        return relation(left(scope), right(scope))
    except TypeError as error:
        raise CelError(str(error)) from error


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
    if not isinstance(found, Mapping) or name not in found:
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
    except (TypeError, ValueError, AttributeError) as error:
        raise CelError(str(error)) from error


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"{value!r} is not a boolean")
    return value


def _integer(value: Any) -> int:
    number = parse_int(value) if isinstance(value, str) else int(value)
    if number is None:
        raise CelError(f"{value!r} is not an integer")
    return number


@functools.cache
def expression(pattern: str) -> "re.Pattern[str]":
    """A pattern of a definition as Python reads it: `$` is the very end, classes are ASCII's, as in RE2."""
    return re.compile(pattern.replace("$", r"\Z"), re.ASCII)


def _find(text: str, pattern: str) -> str:
    match = expression(pattern).search(text)
    return match[0] if match else ""


_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "size": len,
    "matches": lambda text, pattern: expression(pattern).search(text) is not None,
    "find": _find,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "split": str.split,
    "lowerAscii": lambda text: "".join(one.lower() if one.isascii() else one for one in text),
}
