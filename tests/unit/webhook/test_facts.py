"""When a scheduler counts as alive."""

from datetime import datetime, timedelta

from provisioner.apis.core import Lease, LeaseSpec
from provisioner.kube.watch import EventKind
from tests.support.clock import NOON, FakeClock
from webhook.facts import Heartbeat

START = NOON


def lease(renewed: datetime | None, holder: str = "s1", duration: int | None = 15) -> Lease:
    text = renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if renewed else None
    return Lease(spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=duration, renew_time=text))


def test_no_lease_is_not_alive() -> None:
    assert not Heartbeat(FakeClock()).alive()


def test_alive_for_its_duration_after_each_renewal() -> None:
    clock = FakeClock()
    beat = Heartbeat(clock)
    first, second = lease(START), lease(START + timedelta(seconds=10))
    beat.on_event(EventKind.ADDED, None, first)
    clock.advance(14)
    assert beat.alive()
    beat.on_event(EventKind.MODIFIED, first, second)
    clock.advance(14.9)
    assert beat.alive()
    clock.advance(0.2)
    assert not beat.alive()


def test_a_change_without_renewal_does_not_prolong() -> None:
    clock = FakeClock()
    beat = Heartbeat(clock)
    beat.on_event(EventKind.ADDED, None, lease(START))
    clock.advance(16)
    beat.on_event(EventKind.MODIFIED, lease(START), lease(START))
    assert not beat.alive()


def test_a_leftover_from_before_our_start_is_judged_by_its_text() -> None:
    beat = Heartbeat(FakeClock())
    beat.on_event(EventKind.ADDED, None, lease(START - timedelta(seconds=20)))
    assert not beat.alive()


def test_a_clock_ahead_of_ours_is_no_matter() -> None:
    clock = FakeClock()
    beat = Heartbeat(clock)
    beat.on_event(EventKind.ADDED, None, lease(START + timedelta(hours=1)))
    assert beat.alive()
    clock.advance(15.1)
    assert not beat.alive()


def test_a_clock_behind_ours_matters_only_once() -> None:
    beat = Heartbeat(FakeClock())
    old, new = lease(START - timedelta(hours=1)), lease(START - timedelta(minutes=59))
    beat.on_event(EventKind.ADDED, None, old)
    assert not beat.alive()
    beat.on_event(EventKind.MODIFIED, old, new)
    assert beat.alive()


def test_given_back_or_deleted_is_not_alive() -> None:
    for kind, new in ((EventKind.MODIFIED, lease(START, holder="")), (EventKind.DELETED, None)):
        beat = Heartbeat(FakeClock())
        beat.on_event(EventKind.ADDED, None, lease(START))
        beat.on_event(kind, lease(START), new)
        assert not beat.alive()


def test_without_a_readable_time_it_is_not_alive() -> None:
    beat = Heartbeat(FakeClock())
    beat.on_event(EventKind.ADDED, None, lease(None))
    assert not beat.alive()
