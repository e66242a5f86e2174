"""When somebody renews a Lease, by what was seen of it."""

from provisioner.apis.core import Lease, LeaseSpec
from provisioner.apis.leases import SeenLease


def lease(renewed: str = "1", holder: str = "a", lasts: int | None = 40) -> Lease:
    return Lease(spec=LeaseSpec(holder_identity=holder, renew_time=renewed, lease_duration_seconds=lasts))


def told(seen: SeenLease, now: float) -> str:
    """The one answer of three that holds."""
    answers = {
        "renewed": seen.is_renewed(now),
        "silent": seen.is_silent(now),
        "doubtful": seen.is_doubtful(now),
    }
    (answer,) = (name for name, holds in answers.items() if holds)
    return answer


def test_the_first_sight_is_doubtful_and_each_later_renewal_counts_as_long_as_the_lease_says() -> None:
    seen = SeenLease().after(lease(), 100.0)
    assert (told(seen, 140.0), told(seen, 140.1)) == ("doubtful", "silent")
    assert seen.after(lease(), 130.0) is seen, "nobody renewed it"
    seen = seen.after(lease("2"), 130.0)
    assert (told(seen, 170.0), told(seen, 170.1)) == ("renewed", "silent")


def test_a_lease_that_says_nothing_lasts_fifteen_seconds() -> None:
    seen = SeenLease().after(lease(lasts=None), 0.0)
    assert (told(seen, 15.0), told(seen, 15.1)) == ("doubtful", "silent")


def test_whoever_takes_it_before_our_eyes_runs() -> None:
    """Whether it was held by nobody, was not there or had another holder."""
    for before in (lease(holder=""), None, lease(holder="b")):
        assert told(SeenLease().after(before, 0.0).after(lease(), 1.0), 1.0) == "renewed"


def test_given_back_or_deleted_it_is_silent_at_once() -> None:
    for now in (lease(holder=""), None):
        assert told(SeenLease().after(lease(), 0.0).after(now, 1.0), 1.0) == "silent"
