import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.support.backoff import DecorrelatedJitter, doubling


@given(seed=st.integers(), tries=st.integers(1, 60))
def test_every_wait_is_between_base_and_cap_and_at_most_thrice_the_last(seed: int, tries: int) -> None:
    jitter = DecorrelatedJitter(1.0, 15.0, random.Random(seed))
    last = 1.0
    for _ in range(tries):
        wait = jitter.next()
        assert 1.0 <= wait <= min(15.0, max(1.0, last * 3))
        last = wait


def test_waits_grow_to_the_cap() -> None:
    jitter = DecorrelatedJitter(1.0, 15.0, random.Random(1))
    assert max(jitter.next() for _ in range(30)) == 15.0


def test_a_reset_begins_again() -> None:
    jitter = DecorrelatedJitter(1.0, 100.0, random.Random(1))
    for _ in range(20):
        jitter.next()
    jitter.reset()
    assert jitter.next() <= 3.0


def test_impossible_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="need 0 < base <= cap, not base 5 and cap 1"):
        DecorrelatedJitter(5, 1, random.Random())


@given(attempt=st.integers(1, 10_000), seed=st.integers())
def test_doubling_stays_within_a_fifth_below_its_value_and_under_the_cap(attempt: int, seed: int) -> None:
    full = min(10.0, 0.1 * 2 ** min(attempt - 1, 20))
    assert 0.8 * full <= doubling(attempt, base=0.1, cap=10.0, chance=random.Random(seed)) <= full
