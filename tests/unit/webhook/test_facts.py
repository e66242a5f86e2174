"""When a scheduler counts as alive; what is known of NodePools."""

import contextlib
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from provisioner.apis.core import Lease, LeaseSpec
from provisioner.kube.lag import BEHIND_SECONDS
from provisioner.support.clock import SystemClock
from provisioner.values.taints import Taint
from tests.support.clock import NOON, FakeClock
from tests.support.eventually import eventually
from tests.support.kube import FakeAnswer, FakeApi, Sent, bookmark, event, ok, refusal, thing
from webhook.facts import Heartbeat, NamespaceFacts

START = NOON


def lease(renewed: datetime | None, holder: str = "s1", duration: int | None = 15) -> Lease:
    text = renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if renewed else None
    return Lease(spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=duration, renew_time=text))


def test_no_lease_is_not_alive() -> None:
    assert not Heartbeat(FakeClock()).alive()


def heard(beat: Heartbeat, *leases: Lease) -> None:
    """The first of them is there when we start; the others are its changes."""
    before: Lease | None = None
    for one in leases:
        beat.changed(before, one)
        if before is None:
            beat.listed()
        before = one


def test_alive_for_its_duration_after_each_renewal() -> None:
    clock = FakeClock()
    beat = Heartbeat(clock)
    heard(beat, lease(START), lease(START + timedelta(seconds=2)))
    clock.advance(14.9)
    assert beat.alive()
    beat.changed(lease(START + timedelta(seconds=2)), lease(START + timedelta(seconds=4)))
    clock.advance(14.9)
    assert beat.alive()
    clock.advance(0.2)
    assert not beat.alive()


def test_a_change_without_renewal_does_not_prolong() -> None:
    clock = FakeClock()
    beat = Heartbeat(clock)
    heard(beat, lease(START), lease(START + timedelta(seconds=2)))
    clock.advance(16)
    renewed = lease(START + timedelta(seconds=2))
    beat.changed(renewed, renewed)
    assert not beat.alive()


@pytest.mark.parametrize("ahead", [-3600, -20, 0, 3600, 10 * 365 * 86400])
def test_what_its_text_says_of_the_time_does_not_matter(ahead: float) -> None:
    """Clocks differ: a leftover of a clock that is ahead looked alive, a living one that is behind looked dead."""
    clock = FakeClock()
    beat = Heartbeat(clock)
    first = lease(START + timedelta(seconds=ahead))
    heard(beat, first)
    assert not beat.alive(), "nobody has renewed it before our eyes"
    assert beat.in_doubt()
    beat.changed(first, lease(START + timedelta(seconds=ahead + 2)))
    assert beat.alive()
    assert not beat.in_doubt()
    clock.advance(15.1)
    assert not beat.alive()
    assert not beat.in_doubt(), "whether it lived was to be seen only once"


def test_a_leftover_is_in_doubt_for_its_duration_and_no_longer() -> None:
    """Or the death of the scheduler would keep the webhook from getting ready."""
    clock = FakeClock()
    beat = Heartbeat(clock)
    heard(beat, lease(START))
    clock.advance(14.9)
    assert beat.in_doubt()
    clock.advance(0.2)
    assert not beat.in_doubt()
    assert not beat.alive()


def test_a_lease_that_is_made_before_our_eyes_is_alive() -> None:
    beat = Heartbeat(FakeClock())
    beat.listed()
    beat.changed(None, lease(START))
    assert beat.alive()


def test_a_new_holder_is_alive() -> None:
    beat = Heartbeat(FakeClock())
    heard(beat, lease(START, holder=""), lease(START, holder="s2"))
    assert beat.alive()


def test_given_back_or_deleted_is_not_alive() -> None:
    for new in (lease(START, holder=""), None):
        beat = Heartbeat(FakeClock())
        heard(beat, lease(START), lease(START + timedelta(seconds=2)))
        assert beat.alive()
        beat.changed(lease(START), new)
        assert not beat.alive()
        assert not beat.in_doubt()


def test_a_lease_that_nobody_holds_is_no_doubt() -> None:
    beat = Heartbeat(FakeClock())
    heard(beat, lease(START, holder=""))
    assert not beat.in_doubt()


def test_without_a_readable_time_a_change_of_it_counts() -> None:
    beat = Heartbeat(FakeClock())
    heard(beat, lease(None), lease(START))
    assert beat.alive()


class Open(FakeAnswer):
    """A stream that has told all and stays open until it is cut."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        super().__init__()
        self._lines = [*(event("ADDED", one) for one in objects), bookmark(1, end=True)]
        self._cut = threading.Event()

    def stream(self, amt: int | None = None) -> Iterator[bytes]:
        yield from self._lines
        self._cut.wait(60)

    def shutdown(self) -> None:
        self._cut.set()

    def close(self) -> None:
        self._cut.set()


POOL = {
    "metadata": {"name": "gpu", "uid": "u", "resourceVersion": "1"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
                "requirements": [],
                "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            }
        }
    },
}


@contextlib.contextmanager
def facts(pools: FakeAnswer, overlays: FakeAnswer | None = None) -> Iterator[NamespaceFacts]:
    """Of a cluster with one namespace, whose answers about NodePools and NodeOverlays are these."""

    def respond(sent: Sent) -> FakeAnswer:
        if sent.path.endswith("/nodepools"):
            return pools
        if sent.path.endswith("/nodeoverlays"):
            return overlays or Open()
        return Open(thing("shop")) if sent.path.endswith("/namespaces") else Open()

    made = NamespaceFacts(FakeApi(respond=respond), SystemClock(), "dovetail-system", ("kube-system", "s"))
    made.start()
    try:
        eventually(lambda: not made.problem(), "ready")
        yield made
    finally:
        made.stop()


def test_a_server_that_streams_no_lists_is_asked_for_few_pods_at_a_time() -> None:
    """A tenant who labels a hundred pods of 1.5 MB may not end the webhook at each start."""
    sizes: list[str] = []

    def respond(sent: Sent) -> FakeAnswer:
        if sent.path.endswith("/pods") and "limit" in sent.query:
            sizes.append(sent.query["limit"])
        return refusal(400, "BadRequest") if "sendInitialEvents" in sent.query else ok({"metadata": {}, "items": []})

    made = NamespaceFacts(
        FakeApi(respond=respond), SystemClock(), "dovetail-system", ("kube-system", "s"), count_pods=True
    )
    made.start()
    try:
        eventually(lambda: bool(sizes), "a page of pods")
    finally:
        made.stop()
    assert int(sizes[0]) * 2 * 1.5e6 < 100e6


def test_the_taints_of_a_nodepool_are_known_by_its_name() -> None:
    with facts(Open(POOL)) as known:
        found = known.of("shop")
        assert found is not None
        assert found.taints_of is not None
        assert found.taints_of("gpu") == (Taint(key="gpu", effect="NoSchedule"),)
        assert found.taints_of("other") is None


@pytest.mark.parametrize("status", [404, 403])
def test_a_cluster_whose_nodepools_cannot_be_read_is_served_without_them(status: int) -> None:
    with facts(refusal(status)) as known:
        found = known.of("shop")
        assert found is not None
        assert found.taints_of is None


def test_a_validated_overlay_stands_beside_the_others() -> None:
    cheap = {"metadata": {"name": "cheap", "resourceVersion": "5"}, "spec": {"requirements": [], "price": "1"}}
    with facts(Open(), Open(cheap)) as known:
        found = eventually(lambda: known.surroundings().overlays, "the NodeOverlay is known")
        assert [(one.metadata.name, one.spec.price) for one in found] == [("cheap", "1")]


def test_a_cluster_whose_overlays_cannot_be_read_is_served_without_them() -> None:
    with facts(Open(), refusal(403)) as known:
        assert known.surroundings().overlays == ()


def test_a_scheduler_of_which_only_old_renewals_come_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    with facts(Open()) as known:
        heard(known._heartbeat, lease(START), lease(START + timedelta(seconds=2)))
        found = known.of("shop")
        assert found is not None
        assert found.scheduler_alive
        monkeypatch.setattr(known._leases, "lag", lambda: BEHIND_SECONDS + 1)
        found = known.of("shop")
        assert found is not None
        assert not found.scheduler_alive
