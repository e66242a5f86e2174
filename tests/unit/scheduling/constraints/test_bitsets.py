"""Sets as integers, whichever way they are taken apart."""

import random

import pytest

from provisioner.scheduling.constraints.bitsets import mask_of, members


@pytest.mark.parametrize("largest", [1, 63, 64, 2047, 2048, 2049, 9000])
@pytest.mark.parametrize("count", [1, 64, 65, 700])
def test_members_come_back_in_order(largest: int, count: int) -> None:
    chance = random.Random(largest)
    chosen = sorted({largest, *(chance.randint(0, largest) for _ in range(count - 1))})
    assert list(members(mask_of(chosen))) == chosen


def test_an_empty_set_has_no_members() -> None:
    assert list(members(0)) == []
