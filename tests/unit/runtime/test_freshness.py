"""When a cache counts as behind."""

import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from provisioner.kube.errors import ApiError, Forbidden, NotFound
from provisioner.kube.watch import READ_TIMEOUT_SECONDS
from provisioner.runtime.freshness import FAILING_SECONDS, SILENT_SECONDS, behind, refused, stale


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
DENIED = Forbidden(403, "Forbidden", 'pods is forbidden: User "me" cannot list resource "pods" at the cluster scope')
ALLOW = f"{DENIED.message}; allow the verbs list and watch on pods in the role of this program, as the manifests of this version do"
INSTALL = "the API server does not serve pods; install its CustomResourceDefinition, which is in manifests/crds if it belongs to Dovetail"
GONE = NotFound(404, "NotFound", "the server could not find the requested resource")
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
    "one that is denied": (
        Watch(FAILING_SECONDS + 1, DENIED),
        f"the watch of pods received nothing for 11 s: {ALLOW}",
    ),
    "one of a kind that is gone": (
        Watch(FAILING_SECONDS + 1, GONE),
        f"the watch of pods received nothing for 11 s: {INSTALL}",
    ),
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


@pytest.mark.parametrize(("error", "why"), [(DENIED, ALLOW), (GONE, INSTALL)], ids=["denied", "gone"])
def test_a_watch_that_is_refused_says_what_to_do_and_is_given_no_time(error: ApiError, why: str) -> None:
    first = cast(Any, Watch(error=error))
    assert stale([first]) == f"the cache of pods is not synced: {why}"
    assert refused([cast(Any, Watch()), cast(Any, Watch(error=BROKEN)), first]) == f"the watch of pods: {why}"
    first.synced.set()
    assert behind([first], silent=120.0, failing=120.0) == ""
    first.age = FAILING_SECONDS + 1
    assert behind([first], silent=120.0, failing=120.0).endswith(why)
    first.error = BROKEN
    assert behind([first], silent=120.0, failing=120.0) == ""
