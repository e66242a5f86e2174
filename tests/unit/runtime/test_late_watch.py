"""A kind that not every API server has is watched once it is served, and what is known of it is told whenever that changes."""

import pytest

from provisioner.kube.errors import error_from
from provisioner.kube.resources import PODGROUPS
from provisioner.runtime.late_watch import AGAIN_SECONDS, FIRST_SECONDS, LOOK_SECONDS, LateWatch
from provisioner.state.knowledge import KindKnowledge
from tests.support.kube import FakeAnswer, ok, refusal
from tests.support.latewatches import NOT_FOUND, NOT_SERVED, READ, UNREADABLE, LateKind, served

GROUPS = served(PODGROUPS)


class Asked(LateKind):
    """One that asks, and what it tells.

    Attributes:
        told: what is known, and whether a problem was named.
    """

    def __init__(self, *answers: FakeAnswer) -> None:
        super().__init__(PODGROUPS, *answers)
        self.told: list[tuple[KindKnowledge, bool]] = []
        self.poller = LateWatch("podgroups", self.caches, self.client, self.clock, (self.watch,), self._tell).poller

    def _tell(self, known: KindKnowledge, problem: str) -> None:
        self.told.append((known, bool(problem)))


def test_where_they_are_served_they_are_watched_and_known_with_the_first_answer_of_the_watch() -> None:
    one = Asked(GROUPS)
    assert (one.poller.once(), one.poller.once()) == (FIRST_SECONDS, FIRST_SECONDS)
    assert (one.told, one.is_watched, one.asked) == ([], True, 1)
    one.watch.synced.set()
    assert (one.poller.once(), one.poller.once()) == (LOOK_SECONDS, LOOK_SECONDS)
    assert (one.told, one.asked) == ([(READ, False)], 1)


def test_where_they_are_not_it_is_asked_again_every_minute() -> None:
    one = Asked(NOT_FOUND, GROUPS)
    assert one.poller.once() == AGAIN_SECONDS
    one.clock.advance(AGAIN_SECONDS - 20)
    assert (one.poller.once(), one.told) == (20.0, [(NOT_SERVED, False)])
    one.clock.advance(20.0)
    assert (one.poller.once(), one.is_watched, one.asked) == (FIRST_SECONDS, True, 2)


def test_when_the_minute_is_over_it_is_asked_whatever_the_difference_rounds_to() -> None:
    one, asked = Asked(NOT_FOUND, NOT_FOUND), 76.3815566421069
    assert asked + AGAIN_SECONDS - asked < AGAIN_SECONDS
    one.clock.advance(asked - one.clock.monotonic())
    one.poller.once()
    one.clock.advance(AGAIN_SECONDS)
    assert (one.poller.once(), one.asked) == (AGAIN_SECONDS, 2)


def test_one_that_an_earlier_term_began_to_watch_is_only_looked_at() -> None:
    one = Asked()
    one.caches.watch(one.watch)
    one.watch.synced.set()
    assert (one.poller.once(), one.told, one.asked) == (LOOK_SECONDS, [(READ, False)], 0)


def test_who_may_not_ask_is_told_so_once_and_asks_again_every_minute() -> None:
    one = Asked(*[refusal(403, "Forbidden")] * 3, NOT_FOUND)
    for asked in (1, 2, 3):
        assert (one.poller.once(), one.asked) == (AGAIN_SECONDS, asked)
        one.clock.advance(AGAIN_SECONDS)
    assert one.told == [(UNREADABLE, True)]
    one.poller.once()
    assert one.told == [(UNREADABLE, True), (NOT_SERVED, False)]


def test_while_nobody_answers_it_is_asked_again_soon() -> None:
    one = Asked(refusal(500), ok([]), NOT_FOUND)
    assert (one.poller.once(), one.poller.once()) == (10.0, 10.0)
    assert one.told == [(UNREADABLE, True)]
    one.poller.once()
    assert (one.told[1:], one.asked) == ([(NOT_SERVED, False)], 3)


@pytest.mark.parametrize("synced", [False, True], ids=["before the first answer", "later"])
def test_while_their_watch_fails_they_are_not_known(synced: bool) -> None:
    one = Asked(GROUPS)
    one.poller.once()
    if synced:
        one.watch.synced.set()
        one.poller.once()
    one.watch.error = error_from(403, b"")
    assert (one.poller.once(), one.poller.once()) == (LOOK_SECONDS, LOOK_SECONDS)
    assert one.told == [*[(READ, False)] * synced, (UNREADABLE, True)]
    one.watch.error = None
    one.watch.synced.set()
    one.poller.once()
    assert (one.told[-1], one.asked) == ((READ, False), 1)


def test_where_they_are_served_no_more_there_are_none_until_they_are_again() -> None:
    one = Asked(GROUPS, NOT_FOUND, GROUPS)
    one.watch.synced.set()
    one.poller.once()
    one.clock.advance(AGAIN_SECONDS)
    one.watch.error = error_from(404, b"")
    assert one.poller.once() == AGAIN_SECONDS
    assert (one.poller.once(), one.told) == (LOOK_SECONDS, [(READ, False), (NOT_SERVED, False)])
    one.watch.error = None  # the watch has tried again
    one.poller.once()
    assert (one.told[-1], one.asked) == ((READ, False), 2)
