"""Quantities and resource vectors, law by law."""

import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.values.quantity import Quantity
from provisioner.values.resources import EMPTY, Resources
from tests.support.strategies import SUFFIXES, quantities, resources, signed_resources

SCALES = dict(
    zip(SUFFIXES, [Fraction(1000) ** p for p in range(-3, 7)] + [Fraction(1024) ** p for p in range(1, 7)], strict=True)
)
LIMIT = Fraction(2**63 - 1)


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(whole=st.integers(0, 10**12), digits=st.text("0123456789", max_size=12), negative=st.booleans())
def test_parsing_is_exact_to_the_nano_and_rounds_away_from_zero(
    suffix: str, whole: int, digits: str, *, negative: bool
) -> None:
    exact = min(LIMIT, Fraction(int(f"{whole}{digits}"), 10 ** len(digits)) * SCALES[suffix])
    nanos = -(-exact * 10**9 // 1)
    text = f"{'-' if negative else ''}{whole}.{digits}{suffix}"
    assert Quantity.parse(text).nanos == (-nanos if negative else nanos)


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(amount=st.integers(-(10**12), 10**12))
def test_exact_round_trip_for_every_suffix(suffix: str, amount: int) -> None:
    quantity = Quantity.parse(f"{amount}{suffix}")
    assert Quantity.parse(str(quantity)) == quantity


@given(quantities)
def test_the_canonical_form_is_a_fixed_point(quantity: Quantity) -> None:
    assert Quantity.parse(str(quantity)) == quantity
    assert str(Quantity.parse(str(quantity))) == str(quantity)


@given(quantities, quantities)
def test_order_equality_and_hash_follow_the_amount(a: Quantity, b: Quantity) -> None:
    assert (a < b, a == b) == (a.nanos < b.nanos, a.nanos == b.nanos)
    assert a != b or hash(a) == hash(b)


@given(quantities)
def test_units_and_millis_are_the_least_that_suffice(quantity: Quantity) -> None:
    assert 0 <= quantity.units() * 10**9 - quantity.nanos < 10**9
    assert 0 <= quantity.millis() * 10**6 - quantity.nanos < 10**6


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_number_and_its_text_are_the_same_quantity(whole: int, thousandths: int) -> None:
    assert Quantity.parse(whole) == Quantity.parse(str(whole))
    number = thousandths / 1000
    assert Quantity.parse(number) == Quantity.parse(f"{thousandths}m")


@given(signed_resources, signed_resources)
def test_sum_commutativity(a: Resources, b: Resources) -> None:
    assert a + b == b + a
    assert hash(a + b) == hash(b + a)


@given(signed_resources, signed_resources, signed_resources)
def test_sum_associativity(a: Resources, b: Resources, c: Resources) -> None:
    assert (a + b) + c == a + (b + c)


@given(signed_resources)
def test_sum_identity(a: Resources) -> None:
    assert a + EMPTY == a == a - EMPTY


@given(signed_resources, signed_resources)
def test_difference_undoes_the_sum(a: Resources, b: Resources) -> None:
    back = (a + b) - b
    assert all(back.amount(name) == a.amount(name) for name in {*a, *b})


@given(signed_resources, st.integers(0, 5))
def test_scaling_is_repeated_addition(a: Resources, n: int) -> None:
    total = a.scaled(0)
    for _ in range(n):
        total += a
    assert a.scaled(n) == total


@given(signed_resources, signed_resources)
def test_maximum_and_minimum_split_the_sum(a: Resources, b: Resources) -> None:
    assert a.maximum(b) + a.minimum(b) == a + b
    assert a.maximum(b) == b.maximum(a)
    assert a.minimum(b) == b.minimum(a)


@given(resources, resources)
def test_what_fits_leaves_nothing_negative(a: Resources, room: Resources) -> None:
    assert a.fits(room) == all(amount >= 0 for amount in (room - a).values())


@given(resources, resources, resources)
def test_what_fits_still_fits_with_more_room(a: Resources, room: Resources, more: Resources) -> None:
    assert not a.fits(room) or a.fits(room + more)


@given(resources, signed_resources)
def test_a_room_with_a_negative_amount_takes_nothing(a: Resources, room: Resources) -> None:
    assert not a.fits(room) or min(room.values(), default=0) >= 0


@given(signed_resources)
def test_round_trip_of_to_wire(a: Resources) -> None:
    assert Resources.parse(a.to_wire()) == a
    assert pickle.loads(pickle.dumps(a)) == a
