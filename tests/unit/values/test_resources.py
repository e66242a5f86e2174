import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.values.quantity import QuantityError
from provisioner.values.resources import EMPTY, Resources

GIB = 1024**3


def test_cpu_is_in_millicores_and_the_rest_in_units() -> None:
    parsed = Resources.parse({"cpu": "1.5", "memory": "2Gi", "pods": 110, "nvidia.com/gpu": "1"})
    assert dict(parsed) == {"cpu": 1500, "memory": 2 * GIB, "nvidia.com/gpu": 1, "pods": 110}


def test_names_come_in_order() -> None:
    assert list(Resources.of({"pods": 1, "cpu": 2, "memory": 3})) == ["cpu", "memory", "pods"]


def test_a_bad_amount_names_its_resource_and_its_text() -> None:
    with pytest.raises(QuantityError, match=r"'4cores'.*resource cpu"):
        Resources.parse({"memory": "1Gi", "cpu": "4cores"})


def test_an_entry_of_zero_is_kept_and_changes_no_sum() -> None:
    zero = Resources.of({"cpu": 0})
    assert list(zero) == ["cpu"]
    assert zero != EMPTY
    assert zero + Resources.of({"cpu": 5}) == Resources.of({"cpu": 5})


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "gpu"]), st.integers(-5, 5))


@given(st.lists(AMOUNTS.map(Resources.of), max_size=6))
def test_a_total_is_what_one_after_another_adds_up_to(parts: list[Resources]) -> None:
    assert Resources.total(parts) == sum(parts, EMPTY)


WIRE = {
    "cpu in cores where it is whole": ({"cpu": 16000}, {"cpu": "16"}),
    "cpu in millicores where it is not": ({"cpu": 15900}, {"cpu": "15900m"}),
    "memory in the largest binary suffix that is exact": ({"memory": 60 * GIB}, {"memory": "60Gi"}),
    "memory that nothing divides in bytes": ({"memory": 12345}, {"memory": "12345"}),
    "storage like memory": ({"ephemeral-storage": 20 * GIB}, {"ephemeral-storage": "20Gi"}),
    "huge pages like memory": ({"hugepages-2Mi": 4 * 1024**2}, {"hugepages-2Mi": "4Mi"}),
    "counts as decimals": ({"pods": 2000}, {"pods": "2k"}),
    "nothing as nothing": ({}, {}),
}


@pytest.mark.parametrize(("amounts", "want"), WIRE.values(), ids=WIRE)
def test_to_wire_is_what_kubernetes_prints(amounts: dict[str, int], want: dict[str, str]) -> None:
    assert Resources.of(amounts).to_wire() == want


FITS = {
    "nothing fits into nothing": ({}, {}, True),
    "what is exactly there fits": ({"cpu": 5}, {"cpu": 5}, True),
    "one more does not": ({"cpu": 6}, {"cpu": 5}, False),
    "what the room lacks does not": ({"gpu": 1}, {"cpu": 5}, False),
    "none of what the room lacks does": ({"gpu": 0}, {"cpu": 5}, True),
    "a room with a negative amount takes not even nothing": ({}, {"memory": -1}, False),
    "a negative amount of the same names takes nothing": ({"cpu": 0}, {"cpu": -1}, False),
}


@pytest.mark.parametrize(("wanted", "room", "want"), FITS.values(), ids=FITS)
def test_fits(wanted: dict[str, int], room: dict[str, int], *, want: bool) -> None:
    assert Resources.of(wanted).fits(Resources.of(room)) == want


def test_a_vector_cannot_be_changed_nor_made_without_its_readers() -> None:
    with pytest.raises(AttributeError):
        EMPTY.cpu = 1
    with pytest.raises(TypeError, match=r"Resources\.of"):
        Resources()


def test_amount_is_zero_where_there_is_none() -> None:
    assert (Resources.of({"cpu": 7}).amount("cpu"), EMPTY.amount("cpu")) == (7, 0)
    with pytest.raises(KeyError):
        EMPTY["cpu"]


def test_a_vector_shows_its_quantities() -> None:
    assert repr(Resources.of({"cpu": 1500, "memory": GIB})) == "Resources(cpu=1500m, memory=1Gi)"
