"""Values in order."""

from hypothesis import given
from hypothesis import strategies as st

from provisioner.state.ordered import Ordered

steps = st.lists(st.tuples(st.integers(0, 40), st.none() | st.integers(0, 5), st.booleans()), max_size=120)


@given(steps)
def test_what_is_read_is_what_a_dict_would_sort(changes: list[tuple[int, int | None, bool]]) -> None:
    ours: Ordered[int, str] = Ordered()
    plain: dict[int, tuple[int, int]] = {}
    for number, (key, rank, reads) in enumerate(changes):
        if rank is None:
            ours.drop(key)
            plain.pop(key, None)
        else:
            ours.put(key, (rank, key), f"{key}-{number}")
            plain[key] = (rank, number)
        if reads:
            assert ours.frozen() == tuple(
                f"{k}-{n}" for k, (_, n) in sorted(plain.items(), key=lambda e: (e[1][0], e[0]))
            )
    assert len(ours) == len(plain)
    assert [ours.get(key) is not None for key in range(41)] == [key in plain for key in range(41)]


def test_the_same_tuple_is_read_until_something_changes() -> None:
    ours: Ordered[str, str] = Ordered()
    ours.put("a", 1, "x")
    first = ours.frozen()
    ours.put("a", 1, first[0])
    ours.drop("unknown")
    assert ours.frozen() is first
    ours.put("b", 0, "y")
    assert (first, ours.frozen()) == (("x",), ("y", "x"))
