"""When a scheduler counts as alive."""

from datetime import datetime, timedelta

import pytest

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


def heard(beat: Heartbeat, *leases: Lease) -> None:
    """The first of them is there when we start; the others are its changes."""
    before: Lease | None = None
    for one in leases:
        beat.on_event(EventKind.ADDED if before is None else EventKind.MODIFIED, before, one)
        if before is None:
            beat.on_sync()
        before = one


def test_alive_for_its_duration_after_each_renewal() -> None:
    clock = FakeClock()
    beat = Heartbeat(clock)
    heard(beat, lease(START), lease(START + timedelta(seconds=2)))
    clock.advance(14.9)
    assert beat.alive()
    beat.on_event(EventKind.MODIFIED, lease(START + timedelta(seconds=2)), lease(START + timedelta(seconds=4)))
    clock.advance(14.9)
    assert beat.alive()
    clock.advance(0.2)
    assert not beat.alive()


def test_a_change_without_renewal_does_not_prolong() -> None:
    clock = FakeClock()
    beat = Heartbeat(clock)
    heard(beat, lease(START), lease(START + timedelta(seconds=2)))
    clock.advance(16)
    beat.on_event(EventKind.MODIFIED, lease(START), lease(START))
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
    beat.on_event(EventKind.MODIFIED, first, lease(START + timedelta(seconds=ahead + 2)))
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
    beat.on_sync()
    beat.on_event(EventKind.ADDED, None, lease(START))
    assert beat.alive()


def test_a_new_holder_is_alive() -> None:
    beat = Heartbeat(FakeClock())
    heard(beat, lease(START, holder=""), lease(START, holder="s2"))
    assert beat.alive()


def test_given_back_or_deleted_is_not_alive() -> None:
    for kind, new in ((EventKind.MODIFIED, lease(START, holder="")), (EventKind.DELETED, None)):
        beat = Heartbeat(FakeClock())
        heard(beat, lease(START), lease(START + timedelta(seconds=2)))
        assert beat.alive()
        beat.on_event(kind, lease(START), new)
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
