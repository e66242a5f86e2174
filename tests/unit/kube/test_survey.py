"""Lists past every cache: whole or an error, with what cannot be decoded named."""

import threading
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from provisioner.kube.client import PAGE_SIZE, Client
from provisioner.kube.errors import ApiError, DecodeError, Gone
from provisioner.kube.resources import PODS
from provisioner.kube.survey import Shared, Unreadable, survey, surveyed
from tests.support.eventually import eventually
from tests.support.kube import FakeAnswer, FakeApi, Sent, ok, page, refusal
from tests.support.pods import wire_pod

DEPTH = 3000
DEEP = b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
NODE = "spec.nodeName=n"


def deep_pod(name: str) -> bytes:
    """As the API server writes it, with managedFields that no decoder takes."""
    return (
        b'{"metadata":{"name":"'
        + name.encode()
        + b'","generateName":"w-","namespace":"shop","uid":"u-'
        + name.encode()
        + b'","managedFields":['
        + DEEP
        + b'],"continue":"a trap"},"spec":{"nodeName":"n"}}'
    )


class Server:
    """An API server with a list of encoded pods, in pages as long as it is asked for."""

    def __init__(self, *items: bytes) -> None:
        self.items = items
        self.api = FakeApi(respond=self._answer)
        self.client = Client(self.api, self.api.clock)

    def _answer(self, sent: Sent) -> FakeAnswer:
        start, size = int(sent.query.get("continue", "0")), int(sent.query["limit"])
        following = f'"continue":"{start + size}",' if start + size < len(self.items) else ""
        head = (
            b'{"kind":"PodList","apiVersion":"v1","metadata":{'
            + following.encode()
            + b'"resourceVersion":"7"},"items":['
        )
        return FakeAnswer(data=head + b",".join(self.items[start : start + size]) + b"]}")


def pods(count: int) -> list[bytes]:
    return [msgspec.json.encode(wire_pod(number)) for number in range(count)]


def names_of(server: Server, **options: Any) -> tuple[list[str], list[str]]:
    found = list(surveyed(server.client, PODS, decode=PODS.decode, field_selector=NODE, **options))
    unreadable = [str(one) for one in found if isinstance(one, Unreadable)]
    return [one.name[-5:] for one in found if not isinstance(one, Unreadable)], unreadable


def test_it_is_a_quorum_read_of_what_the_selector_picks() -> None:
    server = Server(*pods(1))
    assert names_of(server) == (["00000"], [])
    sent = server.api.sent[0]
    assert (sent.path, dict(sent.query)) == ("/api/v1/pods", {"fieldSelector": NODE, "limit": str(PAGE_SIZE)})


def test_every_page_is_read() -> None:
    found, _ = names_of(Server(*pods(7)), page=3)
    assert found == [f"{number:05d}" for number in range(7)]


@pytest.mark.parametrize("at", range(7))
def test_an_object_nested_too_deeply_is_read_without_what_is_too_deep(at: int) -> None:
    items = pods(7)
    items[at] = deep_pod("99999")
    found, unreadable = names_of(Server(*items), page=4)
    assert found == ["99999" if number == at else f"{number:05d}" for number in range(7)]
    assert unreadable == []


def test_objects_nested_too_deeply_cost_no_request_more() -> None:
    server = Server(*(deep_pod(f"{number:05d}") for number in range(200)))
    found, unreadable = names_of(server)
    assert (len(found), unreadable, len(server.api.sent)) == (200, [], 1)


BAD: Mapping[str, tuple[bytes, str]] = {
    "a field of another type": (b'{"metadata":{"name":"odd","namespace":"shop"},"spec":{"nodeName":7}}', "shop/odd"),
    "no metadata": (b'{"spec":{}}', "an object whose name cannot be read"),
    "a number": (b"7", "an object whose name cannot be read"),
    "depth, and a field of another type": (
        deep_pod("odd").replace(b'"nodeName":"n"', b'"nodeName":7'),
        "shop/odd",
    ),
}


@pytest.mark.parametrize(("item", "name"), BAD.values(), ids=BAD)
def test_an_object_of_another_form_is_unreadable(item: bytes, name: str) -> None:
    found, unreadable = names_of(Server(*pods(1), item))
    assert (len(found), unreadable) == (1, [name])


FAILURES: Mapping[str, tuple[FakeAnswer, type[ApiError]]] = {
    "a snapshot that the server has dropped": (refusal(410, "Expired"), Gone),
    "a refusal": (refusal(403), ApiError),
    "something that is no list": (FakeAnswer(data=b"<html>"), DecodeError),
}


@pytest.mark.parametrize(("answer", "error"), FAILURES.values(), ids=FAILURES)
def test_half_a_list_is_an_error(answer: FakeAnswer, error: type[ApiError]) -> None:
    api = FakeApi(page(7, wire_pod(1), token="more"), *([answer] * 12))
    with pytest.raises(error):
        survey(Client(api, api.clock), PODS, decode=PODS.decode)


# ------------------------------------------------------------------ shared


class Counting:
    """A call that the test lets go, one by one."""

    def __init__(self) -> None:
        self.begun, self.may = 0, threading.Semaphore(0)

    def __call__(self) -> int:
        self.begun += 1
        mine = self.begun
        assert self.may.acquire(timeout=10)
        if mine == 3:
            raise ApiError(500, "", "third")
        return mine


def test_each_caller_gets_an_answer_that_was_begun_after_it_asked() -> None:
    call = Counting()
    shared = Shared(call)
    answers: list[int | str] = []

    def ask() -> None:
        try:
            answers.append(shared.get())
        except ApiError as error:
            answers.append(error.message)

    first = threading.Thread(target=ask)
    first.start()
    eventually(lambda: call.begun == 1, "the first call is under way")
    later = [threading.Thread(target=ask) for _ in range(5)]
    for one in later:
        one.start()
    eventually(lambda: all(one.is_alive() for one in later) and call.begun == 1, "they wait")
    call.may.release()
    first.join(10)
    eventually(lambda: call.begun == 2, "one call for all of them")
    call.may.release()
    for one in later:
        one.join(10)
    assert answers == [1, 2, 2, 2, 2, 2]


def test_a_failure_is_everybody_s_and_the_next_call_is_tried() -> None:
    call = Counting()
    for _ in range(4):
        call.may.release()
    shared = Shared(call)
    assert (shared.get(), shared.get()) == (1, 2)
    with pytest.raises(ApiError, match="third"):
        shared.get()
    assert shared.get() == 4


def test_an_empty_cluster() -> None:
    api = FakeApi(ok({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": None}))
    assert survey(Client(api, api.clock), PODS, decode=PODS.decode).objects == ()
