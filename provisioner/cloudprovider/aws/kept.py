"""Tables as they are kept in ConfigMaps: rows behind a version, at most 900 KiB a text; a row that cannot be read costs itself only. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from provisioner.values import jsontext

MAX_BYTES: Final = 900 * 1024
_ENVELOPE: Final = 64
_VERSION: Final = 1

Row = TypeVar("Row", bound=msgspec.Struct)


class _Kept(msgspec.Struct, frozen=True):
    v: int
    rows: list[msgspec.Raw]


_decode_kept = jsontext.decoder(_Kept)


def write(rows: Iterable[msgspec.Struct]) -> Iterator[str]:
    """As many texts as the rows take, in their order, each at most `MAX_BYTES`; one where there are none. Lazy."""
    part: list[msgspec.Raw] = []
    size = _ENVELOPE
    for row in rows:
        text = msgspec.json.encode(row)
        if size + len(text) + 1 > MAX_BYTES:
            yield _text(part)
            part, size = [], _ENVELOPE
        part.append(msgspec.Raw(text))
        size += len(text) + 1
    yield _text(part)


def read(text: str, row_type: type[Row]) -> tuple[list[Row], int]:
    """The rows of one text, and how many could not be read; a text that is no table at all counts as one."""
    try:
        kept = _decode_kept(text)
    except msgspec.DecodeError:
        return [], 1
    if kept.v != _VERSION:
        return [], len(kept.rows)
    rows = []
    decode_row = jsontext.decoder(row_type)
    for raw in kept.rows:
        try:
            rows.append(decode_row(raw))
        except msgspec.DecodeError:
            continue
    return rows, len(kept.rows) - len(rows)


def _text(part: list[msgspec.Raw]) -> str:
    return msgspec.json.encode(_Kept(_VERSION, part)).decode()
