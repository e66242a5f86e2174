"""JSON text that a decoder refuses: which error that is, and what can be read of it all the same; and JSON pointers. Pure.

msgspec's decoder is recursive, also where it only skips: text nested about as deep as Python's recursion limit (1,000 levels, less what the
caller's stack takes) raises RecursionError. Whoever may create a pod can send such text: the API server keeps `managedFields` 10,000 levels
deep. Nothing that we read is nested deeper than some twenty levels, so `trim` takes out what is, and the rest decodes as ever.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

MAX_DEPTH: Final = 128
"""Levels that `trim` leaves: more than the deepest schema in a CRD, far less than what a decoder can take."""

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'  # an unfinished one goes to the end, so a search is linear
_BRACKETS: Final = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_TOKENS: Final = re.compile(_STRING + rb"|[{}\[\]:,]", re.DOTALL)
_QUOTE, _OPEN, _OPEN_LIST, _CLOSE_LIST, _COLON, _COMMA = b'"{[]:,'
_PAST: Final = re.compile(rb'"(?:0000|-[0-9]{3,})-[0-9]{2}-[0-9]{2}T[0-9:.]{8,}Z"')
_FUTURE: Final = re.compile(rb'"[0-9]{5,}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,}Z"')
_text: Final = msgspec.json.Decoder(str).decode

Path = tuple[str, ...]


class TooDeepError(msgspec.DecodeError, RecursionError):
    """The text is nested too deeply to be decoded."""


def decoder(type_: type[T]) -> Callable[[bytes | str], T]:
    """The decoder of one type, which raises nothing but msgspec.DecodeError, whatever it is given.

    `TooDeepError` is one; so is what msgspec leaves to Python: text that is not UTF-8, and lone surrogates.
    """
    decode = msgspec.json.Decoder(type_).decode

    def checked(data: bytes | str) -> T:
        try:
            return decode(data)
        except msgspec.DecodeError:
            raise
        except RecursionError as error:
            raise TooDeepError("the text is nested too deeply") from error
        except ValueError as error:
            raise msgspec.DecodeError(str(error)) from error

    return checked


def decode_trimmed(decode: Callable[[bytes], T], data: bytes) -> tuple[T, bool]:
    """What `decode` makes of the text, and whether parts of it had to be taken out because they are nested too deeply.

    Times outside the years 1 to 9999 are read as the nearest that Python has: the API server takes them from every kubelet, about its Node and pods.

    Raises:
        Exception: whatever `decode` raises, RecursionError only where the text is not too deep.
    """
    try:
        return _decode_dated(decode, data), False
    except RecursionError:
        return _decode_dated(decode, trim(data, MAX_DEPTH)), True


def _decode_dated(decode: Callable[[bytes], T], data: bytes) -> T:
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        if "RFC3339" not in str(error):
            raise
    return decode(_FUTURE.sub(b'"9999-12-31T00:00:00Z"', _PAST.sub(b'"0001-01-01T00:00:00Z"', bytes(data))))


def trim(data: bytes, depth: int) -> bytes:
    """The text with null in place of every object and list that lies deeper than `depth` levels.

    Text that is no JSON stays as much of it as it is. O(bytes): 0.2 us a bracket or string.
    """
    pieces: list[bytes] = []
    level = taken = begun = 0
    view = bytes(data)
    for match in _BRACKETS.finditer(view):
        first = view[match.start()]
        if first == _QUOTE:
            continue
        if first in (_OPEN, _OPEN_LIST):
            level += 1
            if level == depth + 1:
                begun = match.start()
        else:
            if level == depth + 1:
                pieces += (view[taken:begun], b"null")
                taken = match.end()
            level -= 1
    if level > depth:  # never closed
        return b"".join((*pieces, view[taken:begun], b"null"))
    return b"".join((*pieces, view[taken:]))


def most_values(data: bytes) -> int:
    """More values than the text can hold, counted without decoding it: decoded, each takes some 100 to 200 bytes.

    Commas and brackets in strings count too. Cost: 2 ms a MB of brackets, a tenth of that for usual text.
    """
    return data.count(b",") + data.count(b"{") + data.count(b"[") + 1


def strings_at(data: bytes, paths: Collection[Path]) -> Mapping[Path, str]:
    """The strings at these paths of object keys, as far as they can be found in text that may be damaged anywhere.

    Only keys at exactly that place count, so that nothing inside a string, and no object of the same name elsewhere, is mistaken for it; of
    equal keys the first counts. It stops where everything is found, or at the first bracket that does not fit. O(bytes).
    """
    wanted = set(paths)
    longest = max(map(len, wanted), default=0)
    found: dict[Path, str] = {}
    keys: list[str | None] = []  # the key under way on each level, None inside a list
    level = 0
    pending: bytes | None = None  # a string that may be a key
    valued = False  # whether what comes is the value of the last key
    view = bytes(data)
    for match in _TOKENS.finditer(view):
        first = view[match.start()]
        if first == _QUOTE:
            if valued and level == len(keys) and tuple(keys) in wanted:
                path = tuple(key for key in keys if key is not None)
                text = _string(match.group())
                if text is not None and path not in found:
                    found[path] = text
                    if len(found) == len(wanted):
                        break
            pending = None if valued else match.group()
        elif first == _COLON:
            if pending is not None and 0 < level == len(keys) and level <= longest:
                keys[-1] = _string(pending)
            pending, valued = None, True
        elif first in (_OPEN, _OPEN_LIST):
            if level < longest and level == len(keys):
                keys.append("" if first == _OPEN else None)
            level += 1
            pending, valued = None, False
        elif first == _COMMA:
            pending, valued = None, False
        else:
            level -= 1
            if level <= 0:
                break
            if level < len(keys):
                keys.pop()
            pending, valued = None, False
    return found


def elements(data: bytes, key: str) -> list[bytes] | None:
    """The texts of the elements of the list that stands under `key` at the top, told apart by brackets and commas alone.

    An element may be damaged as long as its brackets match; one that is empty is left out. None where there is no such list, or where
    brackets do not match, for then its end is not known. O(bytes).
    """
    found: list[bytes] = []
    opened = bytearray()
    last: bytes | None = None
    begun, ended = -1, False  # where the element under way begins, -1 outside the list; whether the list is over
    view = bytes(data)
    for match in _TOKENS.finditer(view):
        first = view[match.start()]
        if first == _QUOTE:
            if len(opened) == 1:
                last = match.group()
        elif first in (_OPEN, _OPEN_LIST):
            opened.append(first)
            is_list = len(opened) == 2 and first == _OPEN_LIST and last is not None and _string(last) == key
            if is_list and not ended and begun < 0:
                begun = match.end()
        elif first == _COMMA:
            if len(opened) == 2 and begun >= 0:
                found.append(view[begun : match.start()])
                begun = match.end()
            elif len(opened) == 1:
                last = None
        elif first != _COLON:
            if not opened or (opened.pop() == _OPEN_LIST) is not (first == _CLOSE_LIST):
                return None
            if len(opened) == 1 and begun >= 0:
                found.append(view[begun : match.start()])
                begun, ended = -1, True
    return [text for text in found if text.strip()] if ended and not opened else None


def _string(token: bytes) -> str | None:
    try:
        return _text(token)
    except (msgspec.DecodeError, ValueError):
        return None


def pointer(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901) from its unescaped parts; `-` as the last part appends to an array."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
