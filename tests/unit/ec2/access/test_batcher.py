import threading
from collections.abc import Mapping, Sequence

import pytest

from provisioner.ec2.access import batcher
from provisioner.ec2.access.batcher import Gatherer
from provisioner.support.clock import SystemClock
from provisioner.support.metrics import REGISTRY
from provisioner.support.workers import pool, run_parallel

CLOCK = SystemClock()


class Runs:
    """Answers with the length of the key, and remembers how often it was asked."""

    def __init__(self, **errors: Exception) -> None:
        self.seen: list[Sequence[str]] = []
        self.errors: Mapping[str, Exception] = errors

    def __call__(self, keys: Sequence[str]) -> dict[str, int | Exception]:
        self.seen.append(keys)
        return {key: self.errors.get(key) or len(key) for key in keys}


def asked(gatherer: Gatherer[str, int], *keys: str) -> list[int | str]:
    with pool(len(keys)) as threads:
        outcomes = run_parallel(threads, gatherer.ask, keys)
    return [repr(one.error) if one.value is None else one.value for one in outcomes]


def test_callers_at_the_same_time_share_a_call() -> None:
    runs = Runs()
    assert asked(Gatherer(CLOCK, runs, idle=0.2), "a", "bb", "ccc", "bb") == [1, 2, 3, 2]
    assert [sorted(keys) for keys in runs.seen] == [["a", "bb", "ccc"]]


def test_an_error_of_one_key_is_that_caller_s() -> None:
    runs = Runs(bb=ValueError("no"))
    assert asked(Gatherer(CLOCK, runs, idle=0.2), "a", "bb") == [1, "ValueError('no')"]


def test_an_error_of_the_call_is_everybody_s() -> None:
    def broken(keys: Sequence[str]) -> dict[str, int | Exception]:
        raise OSError(len(keys))

    assert asked(Gatherer(CLOCK, broken, idle=0.2), "a", "b") == ["OSError(2)", "OSError(2)"]


def test_a_key_that_the_call_forgot() -> None:
    with pytest.raises(KeyError):
        Gatherer[str, int](CLOCK, lambda _: {}, idle=0.0).ask("a")


def limited(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(batcher, "LONGEST_SECONDS", 60.0)
    monkeypatch.setattr(batcher, "MOST_KEYS", most)


def test_a_full_window_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 2)
    runs = Runs()
    assert asked(Gatherer(CLOCK, runs, idle=30.0), "a", "bb") == [1, 2]
    assert len(runs.seen) == 1


def test_a_window_that_runs_takes_no_more() -> None:
    entered, leave = threading.Event(), threading.Event()
    seen: list[Sequence[str]] = []

    def slow(keys: Sequence[str]) -> dict[str, int | Exception]:
        seen.append(keys)
        if keys == ("first",):
            entered.set()
            leave.wait(5)
        return dict.fromkeys(keys, 1)

    gatherer = Gatherer(CLOCK, slow, idle=0.0)
    thread = threading.Thread(target=gatherer.ask, args=("first",))
    thread.start()
    assert entered.wait(5)
    assert gatherer.ask("second") == 1
    leave.set()
    thread.join(5)
    assert seen == [("first",), ("second",)]


def test_the_size_of_a_batch_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 3)
    asked(Gatherer(CLOCK, Runs(), idle=30.0, batcher="measured"), "a", "bb", "ccc")
    name, labels = "karpenter_cloudprovider_batcher_batch_size_sum", {"batcher": "measured"}
    assert REGISTRY.get_sample_value(name, labels) == 3
