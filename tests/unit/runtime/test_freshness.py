"""When a cache counts as behind."""

import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from provisioner.kube.watch import READ_TIMEOUT_SECONDS
from provisioner.runtime.freshness import FAILING_SECONDS, SILENT_SECONDS, stale


@dataclass
class Watch:
    age: float = 1.0
    error: Exception | None = None
    resource: str = "pods"
    behind: float = 0.0
    synced: threading.Event = field(default_factory=threading.Event)

    def staleness(self) -> float:
        return self.age

    def lag(self) -> float:
        return self.behind


BROKEN = ValueError("refused")
CASES = {
    "one that was just heard": (Watch(), ""),
    "one of a kind in which nothing happens": (Watch(READ_TIMEOUT_SECONDS + 4, behind=62), ""),
    "one that brings what happened long ago": (
        Watch(behind=100),
        "the watch of pods is at least 100 s behind the API server",
    ),
    "one that was cut without a word": (
        Watch(SILENT_SECONDS + 1),
        f"the watch of pods received nothing for {SILENT_SECONDS + 1:.0f} s",
    ),
    "one that failed a moment ago": (Watch(FAILING_SECONDS - 1, BROKEN), ""),
    "one that fails": (Watch(FAILING_SECONDS + 1, BROKEN), "the watch of pods received nothing for 11 s: refused"),
}


@pytest.mark.parametrize(("watch", "says"), CASES.values(), ids=CASES)
def test_a_watch(watch: Watch, says: str) -> None:
    watch.synced.set()
    assert stale([cast(Any, watch)]) == says
    fine = Watch()
    fine.synced.set()
    assert stale([cast(Any, fine), cast(Any, watch)]) == says


def test_a_watch_that_never_was_complete() -> None:
    assert stale([cast(Any, Watch())]) == "the cache of pods is not synced"
