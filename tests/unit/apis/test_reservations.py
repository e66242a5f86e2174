"""The annotation of reserved room."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.reservations import (
    MAX_BYTES,
    MOST_ROOMS,
    ReservationError,
    ReservedRoom,
    decode_reservations,
    encode_reservations,
)

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
ROOMS = st.lists(
    st.builds(
        ReservedRoom,
        request=st.text("abc/-", min_size=1, max_size=20),
        requests=st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.sampled_from(["1", "1500m", "2Gi"])),
        priority=st.integers(-5, 5),
    ),
    max_size=8,
    unique_by=lambda one: (one.request, one.priority),
)


@given(rooms=ROOMS)
def test_what_is_written_is_read(rooms: list[ReservedRoom]) -> None:
    text = encode_reservations(rooms, NOON)
    assert bool(text) is bool(rooms)
    if text:
        found = decode_reservations(text)
        assert found.until == NOON
        assert sorted(map(repr, found.rooms)) == sorted(map(repr, rooms))
        assert encode_reservations(reversed(found.rooms), NOON) == encode_reservations(found.rooms, NOON)


def test_what_is_too_much_is_cut_and_still_read() -> None:
    many = [ReservedRoom(request=f"n/{n:04}", requests={"cpu": "1"}) for n in range(2 * MOST_ROOMS)]
    assert len(decode_reservations(encode_reservations(many, NOON)).rooms) == MOST_ROOMS
    long = [ReservedRoom(request=f"n/{n:03}" + "x" * 400, requests={"cpu": "1"}) for n in range(MOST_ROOMS)]
    text = encode_reservations(long, NOON)
    assert len(text) <= MAX_BYTES
    assert 0 < len(decode_reservations(text).rooms) < MOST_ROOMS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        '{"v":1}',
        '{"v":1,"until":"2026-11-29T12:00:00"}',
        '{"v":1,"until":"2026-11-29T12:00:00Z","rooms":[{}]}',
    ],
)
def test_what_cannot_be_read_says_so(text: str) -> None:
    with pytest.raises(ReservationError):
        decode_reservations(text)
