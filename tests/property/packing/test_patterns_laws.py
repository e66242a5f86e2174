"""What `fill` puts on nodes: no more than there is room for, and nothing is left out that still fits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from provisioner.packing.patterns import fill

SEEDS = st.integers(0, 1 << 32)
SHARES = st.sampled_from([(1.0,), (1.0, 0.5), (0.3,)])


@given(SEEDS, st.integers(1, 40), st.integers(1, 12), st.integers(1, 5), SHARES)
def test_rows_are_filled_as_far_as_they_go(
    seed: int, rows: int, items: int, width: int, shares: tuple[float, ...]
) -> None:
    chance = np.random.default_rng(seed)
    need = (chance.integers(0, 9, (items, width)) * chance.integers(1, 2000, width)).astype(np.float32)
    need[:, 0] = np.maximum(need[:, 0], 1)  # every pod needs something
    worth = chance.random((rows, items), dtype=np.float32) + np.float32(0.01)
    room = (chance.integers(0, 60, (rows, width)) * chance.integers(1, 2000, width)).astype(np.float32)
    allowed = chance.random((rows, items)) < 0.7
    most = chance.integers(0, 30, items).astype(np.int32)
    weights = chance.random((rows, width), dtype=np.float32) + np.float32(0.1)
    share = chance.choice(np.array(shares, dtype=np.float32), rows)
    before = [one.copy() for one in (need, worth, room, allowed, most, weights, share)]

    counts = fill(need, worth, room, allowed, most, weights, share)

    assert all(map(np.array_equal, before, (need, worth, room, allowed, most, weights, share))), (
        "inputs are not changed"
    )
    left = room - counts @ need
    assert (left >= 0).all()
    assert (counts >= 0).all()
    assert (counts <= np.where(allowed, most, 0)).all()
    fits = (need[None, :, :] <= left[:, None, :]).all(2) & allowed & (counts < most)
    assert not fits.any(), "what still fits is put there"


def test_the_densest_item_comes_first() -> None:
    """Worth for the weighted share of what is left: the small one, until memory is what is scarce."""
    need = np.array([[1, 1], [4, 1]], dtype=np.float32)
    counts = fill(
        need,
        np.array([1.0, 2.0], dtype=np.float32),
        np.array([[8, 8], [8, 2], [0.5, 8]], dtype=np.float32),
        np.ones((3, 2), dtype=bool),
        np.array([8, 8], dtype=np.int32),
        np.ones((3, 2), dtype=np.float32),
        np.ones(3, dtype=np.float32),
    )
    assert counts.tolist() == [[8, 0], [0, 2], [0, 0]]
