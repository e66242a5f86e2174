"""When ProvisioningRequests are watched: once the API server serves them, in the newest version that it has."""

import pytest

from provisioner.kube.errors import error_from
from provisioner.kube.resources import OLD_PROVISIONINGREQUESTS, PROVISIONINGREQUESTS
from provisioner.requests.discovery import request_watch
from provisioner.runtime.late_watch import AGAIN_SECONDS
from tests.support.kube import FakeAnswer, refusal
from tests.support.latewatches import NOT_FOUND, LateKind, served

SERVED = served(PROVISIONINGREQUESTS)


class Discovery(LateKind):
    """What is found of them."""

    def __init__(self, *answers: FakeAnswer) -> None:
        super().__init__(PROVISIONINGREQUESTS, *answers, older=(OLD_PROVISIONINGREQUESTS,))
        self.late = request_watch(self.base)


def test_the_newest_version_is_watched_and_known_with_its_first_answer() -> None:
    one = Discovery(SERVED)
    one.late.poller.once()
    assert one.caches.all == one.watches[:1]
    assert one.late.found() is None
    one.watches[0].synced.set()
    assert one.late.found() == (one.watches[0].store, PROVISIONINGREQUESTS)
    one.late.poller.once()
    assert one.asked == 1, "it is asked no more"


def test_an_old_version_does() -> None:
    one = Discovery(NOT_FOUND, SERVED)
    one.late.poller.once()
    one.watches[1].synced.set()
    assert one.late.found() == (one.watches[1].store, OLD_PROVISIONINGREQUESTS)


def test_a_version_that_goes_is_followed_by_the_other_one() -> None:
    one = Discovery(SERVED, NOT_FOUND, SERVED)
    one.late.poller.once()
    one.watches[0].synced.set()
    one.watches[0].error = error_from(404, b"")
    assert one.late.found() is None
    one.clock.advance(AGAIN_SECONDS)
    one.late.poller.once()
    one.watches[1].synced.set()
    assert one.late.found() == (one.watches[1].store, OLD_PROVISIONINGREQUESTS)


def test_what_is_known_of_them_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dovetail")
    one = Discovery(NOT_FOUND, NOT_FOUND, refusal(403, "Forbidden"), SERVED)
    for _ in range(3):
        one.late.poller.once()
        one.clock.advance(AGAIN_SECONDS)
    one.watches[0].synced.set()
    one.late.poller.once()
    one.late.poller.once()
    expected = ("does not serve ProvisioningRequests", "Could not read ProvisioningRequests", "are watched")
    assert [text in line for text, line in zip(expected, caplog.messages, strict=True)] == [True] * 3
