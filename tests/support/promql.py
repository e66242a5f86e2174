"""What a PromQL expression asks for: series with their matchers, the function around each, and the labels that it groups and makes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\$\{?\w+\}?|[A-Za-z_:][A-Za-z0-9_:]*|[0-9.]+[A-Za-z]*|[=!]~|!=|==|[<>]=?|\S')
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_GROUPING = {"by", "on", "without", "ignoring", "group_left", "group_right"}
_WORDS = _GROUPING | {"and", "or", "unless", "offset", "bool"}


@dataclass(frozen=True)
class Asked:
    """One selector.

    Attributes:
        function: the innermost function around it; "" without one.
        labels: of its matchers.
    """

    name: str
    function: str
    labels: frozenset[str]


@dataclass
class Query:
    """An expression.

    Attributes:
        grouped: labels of its by, on and their like.
        made: labels that label_replace makes.
    """

    asked: list[Asked] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)


def read(expr: str) -> Query:
    """What an expression asks for; knows the grammar as far as alerts and dashboards here use it."""
    found, tokens = Query(), _TOKEN.findall(re.sub(r"#.*", "", expr))
    functions: list[str] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        after = tokens[place + 1] if place + 1 < len(tokens) else ""
        if token in _GROUPING and after == "(":
            end = tokens.index(")", place)
            found.grouped.update(one for one in tokens[place + 2 : end] if _NAME.fullmatch(one))
            place = end
        elif token == "(":
            functions.append("")
        elif token == ")":
            functions.pop()
        elif token == "[":
            place = tokens.index("]", place)
        elif _NAME.fullmatch(token) and token not in _WORDS:
            if after == "(":
                functions.append(token)
                place += 1
            elif after in _GROUPING:  # sum by (...) (...)
                pass
            else:
                end = tokens.index("}", place) if after == "{" else place
                labels = frozenset(_matchers(tokens[place + 2 : end]))
                found.asked.append(Asked(token, functions[-1] if functions else "", labels))
                place = end
        elif token.startswith('"') and functions[-1:] == ["label_replace"] and not tokens[place - 2].startswith('"'):
            found.made.add(token.strip('"'))  # the first text of its arguments
        place += 1
    return found


def _matchers(tokens: list[str]) -> Iterator[str]:
    for token, after in pairwise(tokens):
        if _NAME.fullmatch(token) and after in {"=", "!=", "=~", "!~"}:
            yield token
