"""Vectors and their frontier."""

from hypothesis import given
from hypothesis import strategies as st

from provisioner.scheduling.constraints.bitsets import mask_of, members
from provisioner.scheduling.constraints.vectors import Dimensions, Thresholds, frontier, most
from provisioner.values.resources import Resources

VECTORS = st.lists(st.tuples(*[st.integers(0, 6)] * 3), max_size=12)


def test_only_what_is_asked_for_is_a_dimension() -> None:
    asked = [Resources.of({"cpu": 5, "memory": 0}), Resources.of({"pods": 1})]
    assert Dimensions.of(asked).names == ("cpu", "pods")


def test_vector_need_and_back() -> None:
    dimensions = Dimensions(("cpu", "memory", "pods"))
    wanted = Resources.of({"memory": 7, "pods": 1, "example.com/gpu": 3})
    assert dimensions.vector(wanted) == (0, 7, 1)
    assert dimensions.need(wanted) == ((1, 7), (2, 1))
    assert dimensions.filled(dimensions.need(wanted)) == (0, 7, 1)


def test_most_is_bound_by_the_scarcest_and_by_the_limit() -> None:
    assert most((10, 7), ((0, 2), (1, 3)), 99) == 2
    assert most((10, 7), ((0, 2),), 3) == 3
    assert most((10, 7), (), 4) == 4


@given(VECTORS, st.tuples(*[st.integers(0, 6)] * 3))
def test_what_fits_any_vector_fits_one_of_the_frontier(vectors: list[tuple[int, ...]], wanted: tuple[int, ...]) -> None:
    def fits(have: tuple[int, ...]) -> bool:
        return all(want <= room for want, room in zip(wanted, have, strict=True))

    assert any(map(fits, vectors)) == any(map(fits, frontier(vectors)))


@given(VECTORS)
def test_no_vector_of_the_frontier_is_covered_by_another(vectors: list[tuple[int, ...]]) -> None:
    kept = frontier(vectors)
    assert set(kept) <= set(vectors)
    assert not any(
        left is not right and all(a <= b for a, b in zip(left, right, strict=True)) for left in kept for right in kept
    )


@given(st.sets(st.integers(0, 300)))
def test_a_mask_keeps_its_members_in_order(numbers: set[int]) -> None:
    assert list(members(mask_of(numbers))) == sorted(numbers)


def test_thresholds_find_every_vector_that_has_enough() -> None:
    found = Thresholds([(4, 1), (2, 8), (4, 8)])
    assert [found.with_at_least(0, amount) for amount in (0, 2, 3, 5)] == [0b111, 0b111, 0b101, 0]
    assert found.holding(((0, 3), (1, 2))) == 0b100
    assert found.exceeding((0, 8)) == 0b110
    assert found.exceeding((0, 0)) == 0b111
