"""How often somebody may ask."""

from provisioner.why.limits import MOST_KEYS, Quota
from tests.support.clock import FakeClock


def test_an_account_is_used_up_at_once_and_filled_again_with_time() -> None:
    clock = FakeClock()
    quota = Quota(0.5, 3.0, clock)
    assert [quota.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]
    assert quota.take("b") == 0.0, "everybody has an account of their own"
    clock.advance(2.0)
    assert quota.take("a") == 0.0
    assert quota.take("a") > 0
    clock.advance(3600.0)
    assert [quota.take("a") > 0 for _ in range(4)] == [False, False, False, True], "it holds no more than at first"


def test_what_is_charged_afterwards_has_to_be_waited_for() -> None:
    clock = FakeClock()
    quota = Quota(0.1, 10.0, clock)
    assert quota.wait("a") == 0.0
    quota.charge("a", 14.0)
    assert quota.wait("a") == 41.0
    clock.advance(41.0)
    assert quota.wait("a") == 0.0


def test_any_number_of_users_takes_bounded_memory() -> None:
    quota = Quota(1.0, 1.0, FakeClock())
    for number in range(3 * MOST_KEYS):
        quota.take(str(number))
    assert len(quota) == MOST_KEYS
