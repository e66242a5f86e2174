"""TOML written from plain values; tomllib of the standard library reads only. Pure, sorted, TOML 1.0."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def write(document: Mapping[str, Any]) -> str:
    """The text of a document of tables, lists, strings, numbers, booleans and times.

    Lists of tables are written inline, so a table is followed by its own subtables only.

    Raises:
        TypeError: a value that TOML has no text for.
    """
    return "\n".join(_table(document, ())).lstrip("\n") + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    plain = sorted(table.keys() - inner.keys())
    if path and (plain or not inner):
        yield f"\n[{'.'.join(_key(name) for name in path)}]"
    for name in plain:
        yield f"{_key(name)} = {_value(table[name])}"
    for name in sorted(inner):
        yield from _table(inner[name], (*path, name))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _string(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            return f"[{', '.join(_value(one) for one in value)}]"
        case Mapping():
            return f"{{{', '.join(f'{_key(name)} = {_value(value[name])}' for name in sorted(value))}}}"
        case _:
            raise TypeError(f"{value!r} has no TOML")


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
