"""Asking the leader: whom the token is given to, what an answer means, and which way was gone."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from click.testing import CliRunner

from provisioner.apis import names
from provisioner.cli.main import dovetail
from provisioner.cli.why import leader
from provisioner.cli.why.text import node_text, pod_text
from provisioner.kube.config import ApiConnection
from provisioner.kube.errors import ConnectionFailed
from provisioner.support.clock import SystemClock
from provisioner.values.errors import UserError
from provisioner.why.answers import Drain, NodeAnswer, PodAnswer, Told, WhyPlace, as_json
from tests.support.clock import NOON, FakeClock
from tests.support.kube import FakeAnswer, FakeApi, ok, refusal

ANSWER = PodAnswer(pod="default/web", at=NOON, state="Bound", summary="Pod default/web is bound.")


class Wire:
    """A connection to a leader that answers so."""

    def __init__(self, status: int, body: bytes, *, cut: bool = False, head: str = "") -> None:
        first = f"HTTP/1.1 {status} X\r\n{head}content-length: {len(body)}\r\n\r\n".encode()
        whole = first + body
        self.pieces = [whole[:20], whole[20 : len(whole) // 2 if cut else len(whole)]]
        self.sent, self.closed = b"", False

    def send(self, data: bytes) -> None:
        self.sent += data

    def receive(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    def close(self) -> None:
        self.closed = True


def led(*wires: Wire | Exception, clock: FakeClock | None = None) -> Callable[[], leader.Leader]:
    rest = list(wires)

    def opens() -> leader.PortStream:
        first = rest.pop(0)
        if isinstance(first, Exception):
            raise first
        return first

    return lambda: leader.Leader("the leader (pod a/b)", opens, "Bearer t", clock or FakeClock())


def said(status: int, **body: str) -> Wire:
    return Wire(status, json.dumps(body).encode())


def refused(retry_after: str) -> Wire:
    head = f"Retry-After: {retry_after}\r\n" if retry_after else ""
    return Wire(429, b'{"error": "too many requests"}', head=head)


def test_an_answer_names_its_source_and_the_token_is_sent_as_a_header() -> None:
    wire = Wire(200, msgspec.json.encode(ANSWER))
    found = leader.ask(led(wire), "/why/pod/default/web", PodAnswer)
    assert found == msgspec.structs.replace(ANSWER, source="the leader (pod a/b)")
    assert wire.sent.startswith(b"GET /why/pod/default/web HTTP/1.1\r\n")
    assert b"authorization: Bearer t\r\n" in wire.sent.lower().replace(b"bearer", b"Bearer")
    assert wire.closed


def test_a_leader_that_leads_no_more_is_asked_once_again() -> None:
    wires = said(503, error="this replica does not lead", leader="c_1"), Wire(200, msgspec.json.encode(ANSWER))
    assert leader.ask(led(*wires), "/x", PodAnswer).pod == "default/web"
    again = said(503, error="this replica does not lead", leader="c_1")
    with pytest.raises(leader.NotAnsweredError, match="does not lead; c_1 leads"):
        leader.ask(led(again, said(503, error="this replica does not lead", leader="c_1")), "/x", PodAnswer)


@pytest.mark.parametrize(("says", "seconds"), [("2", 2.0), ("5", 5.0), ("0", 1.0), ("soon", 1.0), ("", 1.0)])
def test_a_leader_that_was_asked_too_often_is_asked_again_when_it_says(says: str, seconds: float) -> None:
    clock = FakeClock()
    find = led(refused(says), Wire(200, msgspec.json.encode(ANSWER)), clock=clock)
    assert leader.ask(find, "/x", PodAnswer).pod == "default/web"
    assert clock.slept == [seconds]
    with pytest.raises(leader.NotAnsweredError, match="too many requests; ask again in 2 s"):
        leader.ask(led(refused("1"), refused("2")), "/x", PodAnswer)


@pytest.mark.parametrize("status", [403, 404])
def test_what_the_leader_refuses_is_final(status: int) -> None:
    with pytest.raises(UserError, match=r"jane may not \(says the leader"):
        leader.ask(led(said(status, error="jane may not")), "/x", PodAnswer)


NO_ANSWER: dict[str, tuple[Wire | Exception, str]] = {
    "a token that is not accepted": (said(401, error="not accepted"), "not accepted"),
    "too many requests": (refused("60"), "too many requests; ask again in 60 s"),
    "no HTTP": (Wire(200, b""), "another version"),
    "half an answer": (Wire(200, msgspec.json.encode(ANSWER), cut=True), "did not answer"),
    "another version": (Wire(200, b'{"pod": 7}'), "another version"),
    "no JSON": (Wire(500, b"what"), "status 500"),
    "a port-forward that fails": (ConnectionFailed("refused"), "refused"),
}


@pytest.mark.parametrize(("wire", "says"), NO_ANSWER.values(), ids=NO_ANSWER)
def test_what_is_no_answer_is_said(wire: Wire | Exception, says: str) -> None:
    with pytest.raises(leader.NotAnsweredError, match=says):
        leader.ask(led(wire), "/x", PodAnswer)


class Connected(FakeApi):
    """A connection with a token, or without."""

    def __init__(self, *answers: FakeAnswer, token: str = "Bearer t") -> None:
        super().__init__(*answers)
        self.token = token

    def authorization(self) -> dict[str, str]:
        return {"authorization": self.token} if self.token else {}


def through(*answers: FakeAnswer, token: str = "Bearer t") -> leader.Leader:
    connection = cast("ApiConnection", Connected(*answers, token=token))
    return leader.through(connection, "karpenter-leader-election", "dovetail-system", FakeClock())


def lease(holder: str = "pod-a_3f", port: str = "8445") -> FakeAnswer:
    annotations = {names.WHY_PORT_ANNOTATION: port} if port else {}
    return ok({"metadata": {"name": "l", "annotations": annotations}, "spec": {"holderIdentity": holder}})


def test_the_leader_is_the_pod_that_holds_the_lease() -> None:
    found = through(lease())
    assert (found.source, found.authorization) == ("the leader (pod dovetail-system/pod-a)", "Bearer t")


NOBODY: dict[str, tuple[tuple[FakeAnswer, ...], dict[str, str], str]] = {
    "a client certificate": ((), {"token": ""}, "your credentials have no token"),
    "a password": ((), {"token": "Basic x"}, "your credentials have no token"),
    "no right to read the Lease": ((refusal(403, "Forbidden"),), {}, "you may not get Lease dovetail-system/karpenter"),
    "no Lease": ((refusal(404, "NotFound"),), {}, "no provisioner runs"),
    "a Lease that was given back": ((lease(""),), {}, "no provisioner leads now"),
    "a leader without the flag": ((lease(port=""),), {}, "without --why-port"),
    "a port that is none": ((lease(port="8445/../../x"),), {}, "without --why-port"),
    "a holder that is no name": ((lease("../../nodes/n_1"),), {}, "does not run in a pod"),
}


@pytest.mark.parametrize(("answers", "more", "says"), NOBODY.values(), ids=NOBODY)
def test_why_the_leader_cannot_be_asked(answers: tuple[FakeAnswer, ...], more: dict[str, str], says: str) -> None:
    with pytest.raises(leader.NotAnsweredError, match=says):
        through(*answers, **more)


URLS = (
    *(
        "http://10.0.0.1:8445",
        "http://example.com:8445",
        "https://127.0.0.1:8445",
        "127.0.0.1:8445",
        "http://127.0.0.1",
    ),
    *(
        "http://127.0.0.1:99999",
        "http://127.0.0.1.example.com:80",
        "http://127.0.0.1@example.com:80",
        "http://127.0.0.1:80/x",
    ),
)


@pytest.mark.parametrize("url", URLS)
def test_the_token_leaves_this_machine_through_the_api_server_only(url: str) -> None:
    with pytest.raises(UserError, match="the local end of a port-forward"):
        leader.at(url, cast("ApiConnection", Connected()), FakeClock())


def test_an_open_port_forward_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        leader.at("http://localhost:8445", cast("ApiConnection", Connected()), FakeClock()).source
        == "the leader at http://localhost:8445"
    )


WRONG = {
    "a dump and the leader": (("--from", "x", "--through=leader"), "reads a dump"),
    "a dump and a URL": (("--from", "x", "--leader", "http://127.0.0.1:1"), "reads a dump"),
    "a URL and nobody": (("--through=own", "--leader", "http://127.0.0.1:1"), "asks none"),
    "a time": (("--through=leader", "--at", "2026-11-21T13:00:00Z"), "it only decides for the present"),
    "other flags": (
        ("--through=leader", "--consolidation=karpenter"),
        "its own flags, and --consolidation is specified",
    ),
}


@pytest.mark.parametrize(("arguments", "says"), WRONG.values(), ids=WRONG)
def test_what_the_leader_cannot_be_asked_is_said(arguments: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(dovetail, ["why", "pod", "default/web", *arguments])
    assert result.exit_code == (3 if "--through=leader" in arguments and "--from" not in arguments else 2)
    assert says in " ".join(result.stderr.split())


@pytest.mark.parametrize("name", ["a/../b", "a%2fb", "A", "a b", "a\r\nx: y", ""])
def test_what_is_no_name_is_asked_of_nobody(name: str) -> None:
    result = CliRunner().invoke(dovetail, ["why", "node", name, "--through=leader"])
    assert result.exit_code == 2
    assert "is not a node name" in result.stderr


TYPED = [("node", "node/x"), ("node", "nodeclaim.karpenter.sh/x"), ("pod", "pod/x"), ("pod", "pods/x"), ("pod", "po/x")]


@pytest.mark.parametrize("way", ["--through=leader", "--through=own", "--from=-"])
@pytest.mark.parametrize(("kind", "name"), TYPED)
def test_the_name_that_was_meant_is_said_whichever_way_is_asked(kind: str, name: str, way: str) -> None:
    result = CliRunner().invoke(dovetail, ["why", kind, name, way])
    assert result.exit_code == 2
    assert f'"{name}" is not a {kind} name; use "x"' in result.stderr


def test_a_namespace_that_is_called_pod_is_one_where_it_is_named() -> None:
    result = CliRunner().invoke(dovetail, ["why", "pod", "pod/x", "--namespace=pod", "--from=-"], input="")
    assert "is not a pod name" not in result.stderr


def test_people_read_which_way_was_gone() -> None:
    mine: dict[str, Any] = {"node": "n", "node_claim": "", "node_pool": "", "at": NOON, "state": "s", "summary": "S."}
    node = NodeAnswer(**mine, place=WhyPlace(), pods=("a/b",), pods_elsewhere=3, source="the leader (pod a/b)")
    text = node_text(node)
    assert "4 pods that would need another node (3 in other namespaces)" in text
    assert text.endswith("Answered by the leader (pod a/b).")
    own = msgspec.structs.replace(ANSWER, source="your own permissions, because of --through=own")
    assert pod_text(own).endswith("Note: this was read with your own permissions, because of --through=own.")
    assert pod_text(ANSWER).endswith("is bound.")


def test_what_comes_from_the_leader_cannot_write_to_the_terminal() -> None:
    condition = Told(type="Drained", status="False", message="\x1b[2J")
    odd = NodeAnswer(
        node="n",
        node_claim="",
        node_pool="",
        at=NOON,
        state="s",
        summary="S\x9b.",
        place=WhyPlace(),
        drain=Drain(conditions=(condition,), finalizers=("a\x1b/b",)),
        source="the leader (pod a/b\x1b)",
    )
    assert all(line.isprintable() for line in node_text(odd).split("\n"))
    assert all(line.isprintable() for line in as_json(odd).split("\n"))


@pytest.mark.parametrize(
    ("piece", "seconds", "says"),
    [pytest.param(b"a", 0.5, "took too long", id="slow"), pytest.param(bytes(65536), 20.0, "sent too much", id="much")],
)
def test_a_port_of_this_machine_that_lies_takes_no_more_than_a_leader(piece: bytes, seconds: float, says: str) -> None:
    bounds = leader.StreamBounds(seconds, 1 << 20)
    listener, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with listener, peer, contextlib.suppress(OSError):
            peer.sendall(b"HTTP/1.1 200 X\r\n\r\n")
            while not over.wait(0.05 if seconds < 1 else 0):
                peer.sendall(piece)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    threading.Timer(4.0, over.set).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(leader.NotAnsweredError, match=says):
        leader.ask(lambda: leader.at(url, cast("ApiConnection", Connected()), SystemClock(), bounds), "/x", PodAnswer)
    over.set()
    thread.join()
