"""Batch windows from the moments at which pods appeared."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.cli.harness.timing import Window, claims_after_window, latencies, windows

CASES = {
    "nothing makes no window": ([], ()),
    "one pod waits for the idle second": ([5.0], (Window(5.0, 6.0),)),
    "pods within the idle second share a window": ([0.0, 0.5, 1.2], (Window(0.0, 2.2),)),
    "a pause longer than that starts another": ([0.0, 2.0], (Window(0.0, 1.0), Window(2.0, 3.0))),
    "a steady stream is cut after ten seconds": (
        [0.5 * step for step in range(24)],
        (Window(0.0, 10.0), Window(10.0, 12.5)),
    ),
    "order of the input does not matter": ([1.2, 0.0, 0.5], (Window(0.0, 2.2),)),
}


@pytest.mark.parametrize(("added", "want"), CASES.values(), ids=CASES)
def test_windows(added: list[float], want: tuple[Window, ...]) -> None:
    assert windows(added) == want


@given(added=st.lists(st.floats(0, 100, allow_nan=False), max_size=60))
def test_windows_hold_every_pod_and_do_not_overlap(added: list[float]) -> None:
    found = windows(added)
    assert all(any(window.start <= moment < window.end for window in found) for moment in added)
    assert all(before.end <= after.start for before, after in itertools.pairwise(found))
    lengths = [window.end - window.start for window in found]
    assert all(1.0 - 1e-9 < length < 10.0 + 1e-9 for length in lengths)


def test_last_claim_is_measured_from_the_end_of_the_last_window() -> None:
    assert claims_after_window([0.0, 0.5], [1.9, 1.6]) == pytest.approx(0.4)


def test_without_claims_nothing_is_measured() -> None:
    assert claims_after_window([0.0], []) is None
    assert claims_after_window([], [1.0]) is None


def test_latency_is_of_pods_that_have_a_claim() -> None:
    assert latencies({"a": 1.0, "b": 1.5, "c": 2.0}, {"a": 3.0, "b": 2.5, "z": 9.0}) == (1.0, 2.0)
