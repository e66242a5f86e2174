import pytest

from provisioner.kube.limits import TokenBucket
from tests.support.clock import FakeClock


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    bucket = TokenBucket(10, 3, FakeClock())
    assert [bucket.reserve() for _ in range(6)] == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_who_comes_later_waits_longer_even_if_time_passed_meanwhile() -> None:
    clock = FakeClock()
    bucket = TokenBucket(10, 1, clock)
    waits = [bucket.reserve() for _ in range(3)]
    clock.advance(0.05)
    assert [*waits, bucket.reserve()] == pytest.approx([0, 0.1, 0.2, 0.25])


def test_an_idle_bucket_fills_up_to_the_burst_and_no_further() -> None:
    clock = FakeClock()
    bucket = TokenBucket(10, 2, clock)
    for _ in range(2):
        bucket.take()
    clock.advance(100)
    assert [bucket.reserve() for _ in range(3)] == pytest.approx([0, 0, 0.1])


def test_over_a_long_time_the_rate_is_kept() -> None:
    clock = FakeClock()
    bucket = TokenBucket(200, 300, clock)
    for _ in range(2300):
        bucket.take()
    assert clock.monotonic() == pytest.approx(10.0, abs=0.01)


def test_no_rate_is_no_limit() -> None:
    bucket = TokenBucket(0, 1, FakeClock())
    assert sum(bucket.take() for _ in range(1000)) == 0


def test_a_bucket_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="burst must be at least 1, not 0"):
        TokenBucket(5, 0, FakeClock())
