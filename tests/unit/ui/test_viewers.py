"""Who may look at the leader's page, how many at once, for how long, and what it costs the leader."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from provisioner.cli.why.world import Local
from provisioner.history.digest import HistoryDigest, HistoryTold
from provisioner.history.entries import CommandSeen, CommandTurn, FleetCost
from provisioner.kube.client import Client
from provisioner.support.http.values import Feed, HttpRequest, Response
from provisioner.ui.events import KEEPALIVE_SECONDS
from provisioner.ui.viewers import (
    ANSWERS_SHARE,
    MOST_NAMESPACES,
    MOST_VIEWERS,
    PAGE_SECONDS,
    SHARE,
    STREAM_SECONDS,
    Viewers,
)
from provisioner.why.access import Access, AccessError, Right, User
from provisioner.why.instant import Instant
from provisioner.why.server import WhyServer
from tests.support.clock import FakeClock
from tests.support.dumps import dumped, existing_node, wire_pod
from tests.support.kube import FakeApi


class ByName(Access):
    """Tokens are names of users: `admin` may everything, `nobody` nothing, others list the pods of the namespace of their name."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(Client(FakeApi(), clock), clock)
        self.asked: list[Right] = []

    def user(self, authorization: str | None) -> User:
        return User((authorization or "").removeprefix("Bearer "))

    def may(self, user: User, right: Right) -> bool:
        self.asked.append(right)
        return user.name == "admin" or right == Right("list", "pods", namespace=user.name)


class House:
    """The leader's server with its viewers."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.access = ByName(self.clock)
        self.instant: Local | None = dumped(
            *existing_node("n"), wire_pod("web", on="n"), wire_pod("spy", on="n", metadata__namespace="theirs")
        )
        self.seconds = 0.0
        self.looks = 0
        self.past: tuple[HistoryTold, float] | None = None
        self.viewers = Viewers(self.present, self.access, self.clock, lambda: self.past)
        self.server = WhyServer(
            0, lambda: self.instant, lambda: "b", self.access, self.clock, {"/page": self.viewers.attend}
        )

    def present(self) -> Instant | None:
        self.looks += 1
        self.clock.advance(self.seconds)
        return self.instant

    def ask(self, user: str = "admin", target: str = "/page") -> Response:
        return self.server.handle(HttpRequest("GET", target, [(b"authorization", f"Bearer {user}".encode())]))

    def feed(self, user: str = "admin", target: str = "/page") -> Feed:
        answer = self.ask(user, target)
        assert answer.status == 200, answer.body
        assert answer.feed is not None
        return answer.feed


@pytest.fixture
def house() -> Iterator[House]:
    one = House()
    yield one
    one.server.stop()


def page_in(event: bytes | None) -> dict[str, Any]:
    assert event is not None
    kind, number, data, *_ = event.split(b"\n")
    assert kind == b"event: page"
    assert number.startswith(b"id: ")
    found: dict[str, Any] = json.loads(data.removeprefix(b"data: "))
    return found


def test_a_viewer_gets_each_page_once(house: House) -> None:
    feed = house.feed()
    assert feed.take() == b""
    house.viewers.make()
    assert page_in(feed.take())["nodes"][0]["name"] == "n"
    assert feed.take() == b""
    house.clock.advance(PAGE_SECONDS)
    house.viewers.make()
    assert page_in(feed.take())["source"] == "the leader"


def test_a_slow_viewer_gets_the_latest_page_only(house: House) -> None:
    feed = house.feed()
    for _ in range(5):
        house.viewers.make()
        house.clock.advance(PAGE_SECONDS)
    event = feed.take()
    assert event is not None
    assert b"\nid: 5\n" in event
    assert feed.take() == b""


def test_those_with_equal_rights_share_a_page_and_others_get_their_own(house: House) -> None:
    first, second, tenant = house.feed(), house.feed(), house.feed("default")
    house.viewers.make()
    assert house.looks == 1
    assert first.take() is second.take()
    found = page_in(tenant.take())
    assert "nodes" not in found
    assert "spy" not in json.dumps(found)


def test_a_viewer_too_many_is_refused_until_one_leaves(house: House) -> None:
    feeds = [house.feed() for _ in range(MOST_VIEWERS)]
    assert house.ask().status == 429
    feeds[0].close()
    feeds[0].close()
    assert house.ask().status == 200


def test_a_stream_ends_and_whoever_looks_on_is_reviewed_again(house: House) -> None:
    feed = [house.feed() for _ in range(MOST_VIEWERS)][-1]
    house.clock.advance(STREAM_SECONDS)
    assert feed.take() is None
    house.access.asked.clear()
    house.feed()
    assert Right("list", "nodes") in house.access.asked


def test_somebody_who_may_see_nothing_is_refused(house: House) -> None:
    assert house.ask("nobody").status == 403


def test_namespaces_that_are_named_are_asked_about_first_and_few_at_all(house: House) -> None:
    pods = [wire_pod("web", on="n", metadata__namespace=f"a{one}", metadata__uid=str(one)) for one in range(200)]
    house.instant = dumped(*existing_node("n"), *pods)
    house.feed("zzz", "/page?namespace=zzz&namespace=NOT/ONE")
    asked = [one.namespace for one in house.access.asked if one.namespace]
    assert asked[0] == "zzz"
    assert len(asked) == MOST_NAMESPACES
    assert "NOT/ONE" not in asked


def test_nothing_is_made_while_nobody_looks(house: House) -> None:
    assert house.viewers.make() > 0
    feed = house.feed()
    feed.close()
    house.viewers.make()
    assert house.looks == 0


def test_pages_take_a_small_share_of_the_time(house: House) -> None:
    house.seconds = 3.0
    house.feed()
    assert house.viewers.make() == pytest.approx(3.0 / SHARE)
    house.feed()
    house.viewers.make()
    assert house.looks == 1, "one that comes later has the page that is there"


def test_long_pages_come_less_often(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.ui.viewers.BYTES_A_SECOND", 10)
    feed = house.feed()
    rest = house.viewers.make()
    event = feed.take()
    assert event is not None
    assert rest == pytest.approx(len(event.partition(b"data: ")[2].strip()) / 10)
    assert rest > PAGE_SECONDS


def test_why_pods_wait_has_a_share_of_its_own(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answers(*_: object) -> list[object]:
        house.clock.advance(6.0)
        asked.append(house.clock.monotonic())
        return []

    monkeypatch.setattr("provisioner.ui.viewers.why_pods", answers)
    house.feed()
    assert house.viewers.make() == PAGE_SECONDS, "the next page does not wait for it"
    house.clock.advance(6.0 / ANSWERS_SHARE - 1)
    house.feed()
    house.viewers.make()
    assert len(asked) == 1
    house.clock.advance(PAGE_SECONDS)
    house.viewers.make()
    assert len(asked) == 2


def test_who_sees_something_else_needs_not_wait_for_the_next_round(house: House) -> None:
    house.feed()
    house.viewers.make()
    tenant = house.feed("default")
    house.viewers.make()
    assert page_in(tenant.take())


def test_streams_end_with_the_leadership(house: House) -> None:
    feed = house.feed()
    house.instant = None
    house.viewers.make()
    assert feed.take() is None
    assert house.ask().status == 503


def test_a_silent_stream_is_kept_alive(house: House) -> None:
    feed = house.feed()
    house.clock.advance(KEEPALIVE_SECONDS)
    assert feed.take() == b": alive\n\n"
    assert feed.take() == b""


def test_who_asks_too_often_is_told_so(house: House) -> None:
    answers = [house.ask("nobody").status for _ in range(30)]
    assert answers[0] == 403
    assert answers[-1] == 429


def refusing(text: str) -> Callable[[User, Right], bool]:
    def may(_user: User, _right: Right) -> bool:
        raise AccessError(503, text)  # type: ignore[arg-type]

    return may


def test_where_rights_cannot_be_found_out_nothing_is_shown(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house.access, "may", refusing("cannot be asked"))
    assert house.ask().status == 503


def test_the_history_is_shown_to_those_who_may_list_nodes(house: House) -> None:
    digest = HistoryDigest()
    digest.add(5, [FleetCost(2.0, 1, 0, 1, 0), CommandSeen("c", CommandTurn.BEGUN, "Drifted", "drift", ("planted",))])
    house.past = digest.told(), 4.0
    admin, tenant = house.feed(), house.feed("default")
    house.viewers.make()
    found, hidden = page_in(admin.take()), page_in(tenant.take())
    assert (found["history"]["since"], len(found["history"]["decisions"])) == (4, 1)
    assert "planted" in json.dumps(found)
    assert "history" not in hidden
    assert "planted" not in json.dumps(hidden)
    assert "may not list" in hidden["noHistory"]


def test_a_leader_without_a_history_says_so(house: House) -> None:
    feed = house.feed()
    house.viewers.make()
    assert "--history-duration is 0" in page_in(feed.take())["noHistory"]
