"""JSON text as Go's encoding/json writes it: what hashes of free-form fields are taken over.

Compact, keys sorted at every level, non-ASCII as it is, and <, >, &, U+2028 and U+2029 escaped. Numbers are written as the
API server sends them, since Go copies their text: whole ones with all their digits, others as the shortest text of a double.
"""

import json
import math
from decimal import Decimal
from typing import Any, Final

_ESCAPED: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def go_json(value: Any) -> str:
    """The text of `value`, made of dicts, lists, strings, numbers, booleans and None.

    Raises:
        TypeError: anything else within, or a number that JSON has no text for.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _double(value)
        case str():
            return _string(value)
        case list() | tuple():
            return f"[{','.join(go_json(one) for one in value)}]"
        case dict():
            entries = sorted(value.items(), key=lambda entry: entry[0].encode())
            return f"{{{','.join(f'{_string(key)}:{go_json(one)}' for key, one in entries)}}}"
        case _:
            raise TypeError(f"{value!r} has no JSON")


def _string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).translate(_ESCAPED)


def _double(value: float) -> str:
    if not math.isfinite(value):
        raise TypeError(f"{value!r} has no JSON")
    if value.is_integer() and abs(value) < 1e21:
        return repr(value)  # from the API server this would have come as a whole number; so it is a text like -0.0
    exact = Decimal(repr(value))
    return format(exact.normalize(), "e") if not 1e-6 <= abs(value) < 1e21 else format(exact, "f")
