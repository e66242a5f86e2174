"""Room that is reserved on a node for pods that do not exist yet, written on its NodeClaim for the extender. Pure.

A plan names pods; of the pods of a ProvisioningRequest there is only what they take together. A pod that names the request may use it.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from provisioner.apis.core import Amounts
from provisioner.values import jsontext

MAX_BYTES: Final = 64 * 1024
MOST_ROOMS: Final = 256
"""On one node; pods of further requests have no room that the extender keeps."""
VERSION: Final = 1


class ReservationError(ValueError):
    """The annotation's text names no room that this version reads; says what is wrong with it."""


class ReservedRoom(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Room for the pods of one request.

    Attributes:
        request: "namespace/name" of the ProvisioningRequest.
        requests: what these pods take together, `pods` included.
        priority: of the pods.
    """

    request: str
    requests: Amounts
    priority: int = 0


class RequestReservations(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is reserved on one node.

    Attributes:
        until: when nothing is reserved any longer, whatever becomes of who wrote this.
    """

    v: int = VERSION
    until: datetime
    rooms: tuple[ReservedRoom, ...] = ()


_decode = jsontext.decoder(RequestReservations)
_ENCODER: Final = msgspec.json.Encoder()


def encode_reservations(rooms: Iterable[ReservedRoom], until: datetime) -> str:
    """The annotation's text: equal rooms give equal text; of more than fit, the first by request. "" for none."""
    listed = sorted(rooms, key=lambda one: (one.request, one.priority))[:MOST_ROOMS]
    while listed:
        text = _ENCODER.encode(RequestReservations(until=until, rooms=tuple(listed)))
        if len(text) <= MAX_BYTES:
            return text.decode()
        listed = listed[: len(listed) // 2]
    return ""


def decode_reservations(text: str) -> RequestReservations:
    """What `text` reserves.

    Raises:
        ReservationError: not JSON, not of this shape, of another version, without a time zone, or too much.
    """
    if len(text) > MAX_BYTES:
        raise ReservationError(f"the reservations have {len(text)} bytes; the maximum is {MAX_BYTES}")
    try:
        found = _decode(text)
    except msgspec.DecodeError as error:
        raise ReservationError(f"not reservations: {error}") from error
    if found.v != VERSION:
        raise ReservationError(f"the reservations have version {found.v}; this program reads version {VERSION}")
    if found.until.tzinfo is None:
        raise ReservationError(f"until is {found.until.isoformat()}, without a time zone")
    if len(found.rooms) > MOST_ROOMS:
        raise ReservationError(f"{len(found.rooms)} reservations; the maximum is {MOST_ROOMS}")
    return found
