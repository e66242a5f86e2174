"""The page's server on this machine answers the page that the command opened, once, and no other."""

import http.client
import json
from collections.abc import Iterator

import pytest

from provisioner.cli.ui.server import UiServer
from provisioner.support.clock import SystemClock
from provisioner.support.http.values import HttpRequest, Response
from provisioner.ui.document import SERVED_POLICY
from provisioner.ui.events import EventBoard
from provisioner.values.errors import UserError


def why(kind: str, name: str) -> str:
    if name == "gone":
        raise UserError("there is no such node")
    return f"{kind} {name} stays"


class Ui:
    """A server, as a browser sees it."""

    def __init__(self) -> None:
        self.board = EventBoard()
        self.server = UiServer(0, self.board, why, SystemClock())
        self.host, _, self.secret = self.server.url.removeprefix("http://").partition("/#")

    def ask(self, target: str, method: str = "GET", body: str = "", **headers: str) -> Response:
        given = {"host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        wire = [(name.encode(), value.encode()) for name, value in given.items() if value]
        return self.server.handle(HttpRequest(method, target, wire, body.encode()))

    def session(self) -> str:
        answer = self.ask("/session", "POST", self.secret)
        assert answer.status == 200
        return answer.body.decode()


@pytest.fixture
def ui() -> Iterator[Ui]:
    one = Ui()
    yield one
    one.server.stop()


def test_the_secret_of_the_address_is_good_once(ui: Ui) -> None:
    assert len(ui.secret) >= 32
    key = ui.session()
    assert key not in (ui.secret, "")
    assert ui.ask("/session", "POST", ui.secret).status == 403
    assert ui.ask("/events", x_dovetail_session=key).feed is not None
    assert ui.ask("/why/node/n", x_dovetail_session=key).body == b'{"text":"node n stays"}'


def test_a_wrong_secret_does_not_use_up_the_right_one(ui: Ui) -> None:
    assert ui.ask("/session", "POST", "guess").status == 403
    assert ui.session()


@pytest.mark.parametrize("target", ["/events", "/why/node/n", "/why/pod/a/b"])
@pytest.mark.parametrize("key", ["", "wrong", "é"])
def test_nothing_of_the_cluster_is_told_without_the_key(ui: Ui, target: str, key: str) -> None:
    ui.session()
    answer = ui.ask(target, x_dovetail_session=key)
    assert (answer.status, answer.feed) == (401, None)


def test_the_secret_is_no_key(ui: Ui) -> None:
    ui.session()
    assert ui.ask("/events", x_dovetail_session=ui.secret).status == 401


STRANGERS: dict[str, dict[str, str]] = {
    "another name that leads here": {"host": "evil.example:80"},
    "no name": {"host": ""},
    "another port": {"host": "127.0.0.1:1"},
    "another page": {"origin": "https://evil.example"},
    "a page of a file": {"origin": "null"},
    "another page, as the browser says": {"sec_fetch_site": "cross-site"},
    "a page of this machine": {"sec_fetch_site": "same-site"},
}


@pytest.mark.parametrize("headers", STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize("target", ["/", "/events", "/session"])
def test_other_pages_are_refused(ui: Ui, headers: dict[str, str], target: str) -> None:
    method = "POST" if target == "/session" else "GET"
    assert ui.ask(target, method, ui.secret, **headers).status == 403
    assert ui.session(), "and use up nothing"


def test_the_page_itself_may_be_had_and_says_what_it_may_do(ui: Ui) -> None:
    answer = ui.ask("/", origin=f"http://{ui.host}", sec_fetch_site="none")
    headers = dict(answer.headers)
    assert answer.status == 200
    assert headers["content-security-policy"] == SERVED_POLICY
    assert headers["cache-control"] == "no-store"
    assert ui.secret.encode() not in answer.body


@pytest.mark.parametrize("target", ["/page.py", "/../page.js", "/vendor/", "//page.js", "/why/node/../x", "/page.js?x"])
def test_nothing_else_is_there(ui: Ui, target: str) -> None:
    assert ui.ask(target, x_dovetail_session=ui.session()).status == 404


def test_what_cannot_be_answered_is_said(ui: Ui) -> None:
    answer = ui.ask("/why/node/gone", x_dovetail_session=ui.session())
    assert (answer.status, json.loads(answer.body)) == (502, {"error": "there is no such node"})


def test_events_come_as_they_are_put() -> None:
    ui = Ui()
    ui.server.start()
    try:
        key = ui.session()
        ui.board.put("page", b'{"at":1}')
        connection = http.client.HTTPConnection(ui.host, timeout=20)
        connection.request("GET", "/events", headers={"X-Dovetail-Session": key})
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "text/event-stream"
        assert [answer.readline() for _ in range(4)] == [b"event: page\n", b"id: 1\n", b'data: {"at":1}\n', b"\n"]
        ui.board.put("problem", b'{"text":"x"}')
        assert answer.readline() == b"event: problem\n"
        connection.close()
    finally:
        ui.server.stop()


def test_a_port_that_is_taken_is_said_so(ui: Ui) -> None:
    port = int(ui.host.rpartition(":")[2])
    with pytest.raises(UserError, match="--port"):
        UiServer(port, EventBoard(), why, SystemClock())
