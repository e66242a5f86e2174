"""Launch sets: NodeClaims that one gang needs together, written on each of them. Pure.

A NodeClaim may be of several sets, since nodes are shared, and may have pods of no gang besides.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.values import jsontext

MAX_BYTES: Final = 64 * 1024
MOST_SETS: Final = 256
"""Of which one NodeClaim may be; a gang beyond is launched like single pods."""
MOST_NODES: Final = 10_000
VERSION: Final = 1
_ID: Final = re.compile(r"[a-z0-9]{1,32}", re.ASCII)


class LaunchSetError(ValueError):
    """The annotation's text names no sets that this version reads; says what is wrong with it."""


class LaunchSet(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A set.

    Attributes:
        id: of the decision for this gang; another decision for the same gang is another set.
        group: key of the gang (`apis.gangs`).
        nodes: how many NodeClaims the set has, this one among them.
    """

    id: str
    group: str
    nodes: int


class _Sets(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    v: int = VERSION
    sets: tuple[LaunchSet, ...] = ()


_decode = jsontext.decoder(_Sets)
_ENCODER: Final = msgspec.json.Encoder()


def encode_sets(sets: Iterable[LaunchSet]) -> str:
    """The annotation's text: equal sets give equal text. Whoever makes sets sees to it that it can be read."""
    return _ENCODER.encode(_Sets(sets=tuple(sorted(sets, key=lambda one: one.id)))).decode()


def decode_sets(text: str) -> tuple[LaunchSet, ...]:
    """The sets that `text` names.

    Raises:
        LaunchSetError: not JSON, not of this shape, of another version, too many, twice the same, or with an id or a number that none can have.
    """
    if len(text) > MAX_BYTES:
        raise LaunchSetError(f"the launch sets have {len(text)} bytes; the maximum is {MAX_BYTES}")
    try:
        found = _decode(text)
    except msgspec.DecodeError as error:
        raise LaunchSetError(f"not launch sets: {error}") from error
    if found.v != VERSION:
        raise LaunchSetError(f"the launch sets have version {found.v}; this program reads version {VERSION}")
    if len(found.sets) > MOST_SETS:
        raise LaunchSetError(f"{len(found.sets)} launch sets; the maximum is {MOST_SETS}")
    for position, one in enumerate(found.sets):
        if not _ID.fullmatch(one.id):
            raise LaunchSetError(f"sets[{position}].id: {one.id[:32]!r} is not 1 to 32 lower case letters and digits")
        if not 1 <= one.nodes <= MOST_NODES:
            raise LaunchSetError(f"sets[{position}].nodes: {one.nodes} is not from 1 to {MOST_NODES}")
    if len({one.id for one in found.sets}) < len(found.sets):
        raise LaunchSetError("one launch set is named twice")
    return found.sets


def sets_of(annotations: Mapping[str, str]) -> tuple[LaunchSet, ...]:
    """The sets that a NodeClaim is of; none where the annotation is absent or cannot be read."""
    text = annotations.get(names.LAUNCH_SET)
    return () if text is None else _known(text)


@lru_cache(maxsize=256)  # the NodeClaims of a set have one text
def _known(text: str) -> tuple[LaunchSet, ...]:
    try:
        return decode_sets(text)
    except LaunchSetError:
        return ()
