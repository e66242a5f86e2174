"""Batch windows from the moments at which pods appeared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.lab.harness.timing import claims_after_window, last_window_end, latencies

CASES = {
    "one pod waits for the idle second": ([5.0], 6.0),
    "pods within the idle second share a window": ([0.0, 0.5, 1.2], 2.2),
    "a pause longer than that starts another": ([0.0, 2.0], 3.0),
    "a steady stream is cut after ten seconds": ([0.5 * step for step in range(20)], 10.0),
    "and what comes afterwards is in another": ([0.5 * step for step in range(24)], 12.5),
    "order of the input does not matter": ([1.2, 0.0, 0.5], 2.2),
}


@pytest.mark.parametrize(("added", "want"), CASES.values(), ids=CASES)
def test_the_end_of_the_last_window(added: list[float], want: float) -> None:
    assert last_window_end(added) == want


@given(added=st.lists(st.floats(0, 100, allow_nan=False), min_size=1, max_size=60))
def test_the_last_window_ends_at_most_a_second_after_the_last_pod(added: list[float]) -> None:
    assert max(added) < last_window_end(added) <= max(added) + 1.0


def test_last_claim_is_measured_from_the_end_of_the_last_window() -> None:
    assert claims_after_window([0.0, 0.5], [1.9, 1.6]) == pytest.approx(0.4)


def test_without_claims_nothing_is_measured() -> None:
    assert claims_after_window([0.0], []) is None
    assert claims_after_window([], [1.0]) is None


def test_latency_is_of_pods_that_have_a_claim() -> None:
    assert latencies({"a": 1.0, "b": 1.5, "c": 2.0}, {"a": 3.0, "b": 2.5, "z": 9.0}) == (1.0, 2.0)
