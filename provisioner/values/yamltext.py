"""YAML to plain values, as kubectl and Go's programs read it: bounded in depth, and in what aliases may unfold to. Pure.

Source: sigs.k8s.io/yaml, which contains go-yaml v2.
"""

import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from provisioner.values.message import Said

MAX_DEPTH: Final = 64
MAX_UNFOLDED: Final = 1_000_000
"""Values that all aliases of a file stand for together; a text counts again for every `_TEXT` characters."""
_TEXT: Final = 100
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXT: Final = "tag:yaml.org,2002:str"
_TEXTS: Final = frozenset({TEXT, "!", "tag:yaml.org,2002:binary", "tag:yaml.org,2002:timestamp"})
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NUMERIC: Final = frozenset("+-.0123456789")
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*|0[oO]?[0-7]+|0[xX][0-9a-fA-F]+|0[bB][01]+)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_BASES: Final = {"0x": 16, "0o": 8, "0b": 2}
_LONGEST: Final = 70
"""Characters of an integer of 64 bits, in base 2, and more."""
_INT64, _UINT64 = -(2**63), 2**64
_AS_INTEGER: Final = 1e21
"""From here on Go writes floating-point numbers with an exponent."""
_MERGE: Final = "<<"
_MOST_REMEMBERED: Final = 64
"""Characters of a scalar that is remembered."""
TOO_DEEP: Final = Said(f"is nested deeper than {MAX_DEPTH} levels, the limit for a Kubernetes object")


class YamlDocumentError(Exception):
    """A text, or the rest of it, that cannot be read: where, what is wrong, and what to do.

    Attributes:
        problem: without the place.
        line: from 1; 0 where the text as a whole is the matter.
    """

    def __init__(self, problem: str = "", line: int = 0) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.problem, self.line = problem, line


class UnboundedError(YamlDocumentError):
    """It is nested deeper, or unfolds to more, than what is read."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A document, and where everything in it stands.

    Attributes:
        value: the document.
        lines: from 1, by the path of a value, such as `spec.taints[0].key`; "" is the document's own. What an alias repeats has no line of its own.
        repeated: paths of keys that stand twice in their mapping.
    """

    value: object
    lines: Mapping[str, int]
    repeated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class First:
    """The first document of a text.

    Attributes:
        value: None where it is empty.
        more: whether another document begins behind it, readable or not.
    """

    value: object
    more: bool


def documents(data: bytes) -> Iterator[object]:
    """Every document of a text in order, as dicts, lists, texts and numbers; empty ones are left out.

    Timestamps stay text. Values that aliases repeat are the same object; nobody may change it.

    Raises:
        YamlDocumentError: at the point from which nothing can be read; what came before is good.

    Cost: about 10 s a million lines.
    """
    yield from (reader.value for reader in _read(data, MAX_UNFOLDED))


def only(data: bytes) -> object:
    """The one document of a text; None where it is empty.

    Raises:
        YamlDocumentError: it cannot be read, or there is another one.
    """
    found = list(itertools.islice(documents(data), 2))
    if len(found) > 1:
        raise YamlDocumentError("contains several documents; keep one of them")
    return next(iter(found), None)


def placed(data: bytes, most: int) -> "Iterator[Placed]":
    """As `documents`, with the places; of keys that stand twice the last counts.

    Args:
        data: the text.
        most: values that a document may have, and that all aliases may stand for together.

    Raises:
        YamlDocumentError: at the point from which nothing can be read; what came before is good.
    """
    for reader in _read(data, most, placing=True):
        yield Placed(reader.value, reader.lines, tuple(reader.repeated))


def _read(data: bytes, most: int, *, placing: bool = False) -> "Iterator[_Reader]":
    reader = _Reader(most, twice=placing, placing=placing)
    try:
        for event in yaml.parse(data, Loader=_Loader):
            if isinstance(event, yaml.DocumentStartEvent):
                reader = _Reader(most, reader.unfolded, twice=placing, placing=placing)
            elif isinstance(event, yaml.DocumentEndEvent):
                if reader.value is not None:
                    yield reader
            else:
                reader.take(event)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _no_yaml(error) from None


def first(text: str) -> First:
    """The first document of a text, which is all that `yaml.Unmarshal` of Go reads; of keys that stand twice the last counts.

    Raises:
        UnboundedError: it is nested deeper, or unfolds to more, than what is read.
        YamlDocumentError: it cannot be read.
    """
    reader = _Reader(MAX_UNFOLDED, twice=True)
    events = yaml.parse(text, Loader=_Loader)
    try:
        for event in events:
            if isinstance(event, yaml.DocumentEndEvent):
                break
            reader.take(event)
    except yaml.YAMLError as error:
        raise _no_yaml(error) from None
    try:
        return First(reader.value, isinstance(next(events, None), yaml.DocumentStartEvent))
    except yaml.YAMLError:
        return First(reader.value, more=True)


def _says_no_yaml(problem: str) -> str:
    return Said(f"is not valid YAML: {problem}")


def _no_yaml(error: Exception) -> YamlDocumentError:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or not problem:
        return YamlDocumentError(_says_no_yaml(" ".join(str(error).split())[:200]))
    return YamlDocumentError(_says_no_yaml(f"{problem} (column {mark.column + 1})"), mark.line + 1)


class _Open:
    """A list or mapping that is being read."""

    __slots__ = ("anchor", "height", "key", "merged", "merges", "path", "size", "value", "waits")

    def __init__(self, value: dict[str, object] | list[object], anchor: str | None, path: str) -> None:
        self.value, self.anchor, self.size, self.height = value, anchor, 1, 1
        self.key, self.waits, self.merges = "", False, False
        self.merged = set[str]()  # keys that `<<` brought, and the mapping itself may replace
        self.path = path

    def inner(self) -> str:
        """The path of what comes next."""
        if isinstance(self.value, list):
            return f"{self.path}[{len(self.value)}]"
        return f"{self.path}.{self.key}" if self.path else self.key


def _key_stands_twice(key: str, *, outermost: bool) -> str:
    """What `YamlDocumentError` says; `outermost` is where objects that should be apart come together."""
    remedy = "separate objects with a line of ---" if outermost else "remove one of them"
    return Said(f"the key {key} is repeated in a mapping; {remedy}")


class _Reader:
    """One document out of the parser's events, without recursion: nesting and aliases cost what they are allowed to.

    Args:
        most: values that aliases may stand for; with `placing`, that the document may have, too.
        unfolded: values that aliases of earlier documents stand for.
        twice: whether a key may stand twice in a mapping.
        placing: whether `lines` and `repeated` are wanted.
    """

    def __init__(self, most: int, unfolded: int = 0, *, twice: bool = False, placing: bool = False) -> None:
        self.value: object = None
        self.unfolded, self._most, self._twice, self._placing = unfolded, most, twice, placing
        self.lines: dict[str, int] = {}
        self.repeated: dict[str, None] = {}
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[object, int, int]] = {}  # value, size, height

    def take(self, event: Any) -> None:
        match event:
            case yaml.ScalarEvent():
                value = scalar(event.value, event.tag or ("" if event.implicit[0] else TEXT))
                size = 1 + len(event.value) // _TEXT
                if event.anchor:
                    self._anchors[event.anchor] = value, size, 0
                self._stands(event)
                self._put(value, size, 0, event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(self._stack) >= MAX_DEPTH:
                    raise UnboundedError(TOO_DEEP, _line(event))
                path = self._stands(event)
                self._stack.append(_Open({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor, path))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._stack.pop()
                if done.anchor:
                    self._anchors[done.anchor] = done.value, done.size, done.height
                self._put(done.value, done.size, done.height, event)
            case yaml.AliasEvent():
                known = self._anchors.get(event.anchor or "")
                if known is None:
                    name = str(event.anchor)
                    raise YamlDocumentError(
                        f"*{name} refers to an anchor that is not defined before it; define &{name} above", _line(event)
                    )
                self.unfolded += known[1]
                if self.unfolded > self._most:
                    raise UnboundedError(
                        f"its aliases expand to more than {self._most:,} values; write them out, in several files",
                        _line(event),
                    )
                if len(self._stack) + known[2] > MAX_DEPTH:
                    raise UnboundedError(TOO_DEEP, _line(event))
                self._stands(event)
                self._put(*known, event)
            case _:
                return

    def _stands(self, event: Any) -> str:
        """The path of a value that begins here; "" where nobody asks, or where it is a key."""
        if not self._placing or (self._stack and isinstance(self._stack[-1].value, dict) and not self._stack[-1].waits):
            return ""
        path = self._stack[-1].inner() if self._stack else ""
        self.lines.setdefault(path, _line(event))  # a key's own line comes before its value's
        if len(self.lines) > self._most:
            raise UnboundedError(f"has more than {self._most:,} values; split the file", _line(event))
        return path

    def _put(self, value: object, size: int, height: int, event: Any) -> None:
        if not self._stack:
            self.value = value
            return
        above = self._stack[-1]
        above.size += size
        above.height = max(above.height, height + 1)
        if isinstance(above.value, list):
            above.value.append(value)
        elif above.waits:
            above.waits = False
            if above.merges:
                above.merged |= _merge(above.value, value, _line(event))
            else:
                above.merged.discard(above.key)
                above.value[above.key] = value
        elif value is None or isinstance(value, dict | list):
            raise YamlDocumentError("a key must be a string, not null, a list or a mapping", _line(event))
        else:
            above.key, above.waits = _key(value), True
            above.merges = above.key == _MERGE and getattr(event, "implicit", (False,))[0]  # else it was in quotes
            if above.key in above.value and above.key not in above.merged:
                if not self._twice:
                    told = _key_stands_twice(above.key[:_TEXT], outermost=len(self._stack) == 1)
                    raise YamlDocumentError(told, _line(event))
                if self._placing:
                    self.repeated[above.inner()] = None
            if self._placing:
                self.lines[above.inner()] = _line(event)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _key(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _merge(into: dict[str, object], value: object, line: int) -> set[str]:
    """The keys that came anew."""
    before = set(into)
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, dict):
            raise YamlDocumentError("has a merge key (<<) whose value is not a mapping", line)
        for key, inner in one.items():
            into.setdefault(key, inner)
    return into.keys() - before


def scalar(text: str, tag: str = "") -> object:
    """As kubectl reads it: null, true or false, a number, or text.

    Args:
        text: as it stands there, without quotes.
        tag: "" without one, `TEXT` where it is quoted.

    Source: `resolve` of go-yaml v2, which sigs.k8s.io/yaml contains; numbers as JSON has them.
    """
    return (_remembered if len(text) <= _MOST_REMEMBERED else _resolved)(text, tag)


def _resolved(text: str, tag: str) -> object:
    if tag in _TEXTS:
        return text
    if text in _WORDS:
        return _WORDS[text]
    digits = text.replace("_", "") if text[:1] in _NUMERIC else ""
    if _INTEGER.fullmatch(digits):
        base = _BASES.get(digits.lstrip("+-")[:2].lower(), 8 if digits.lstrip("+-").startswith("0") else 10)
        if len(digits) <= _LONGEST and _INT64 <= (whole := int(digits, base)) < _UINT64:
            return whole
    if not _FLOAT.fullmatch(digits) or math.isinf(number := float(digits)):
        return text
    return int(number) if number.is_integer() and abs(number) < _AS_INTEGER else number


_remembered = functools.lru_cache(maxsize=16384)(_resolved)  # the same few keys and values in every object
