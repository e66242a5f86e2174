from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from provisioner.kube import resources
from provisioner.kube.client import CALL_SECONDS, MAX_TRIES, MAY_LAND_SECONDS, Client
from provisioner.kube.config import TOTAL_TIMEOUT_SECONDS
from provisioner.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ConnectionFailed,
    DecodeError,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from provisioner.kube.lease import LostLease
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi, Script, Sent, deep, ok, page, refusal, thing

MAPS = resources.CONFIGMAPS
REFUSED = ConnectionFailed("refused", maybe_applied=False)
BROKEN = ConnectionFailed("reset", maybe_applied=True)


def client(*answers: Script) -> tuple[Client, FakeApi, FakeClock]:
    clock = FakeClock()
    api = FakeApi(*answers, clock=clock)
    return Client(api, clock), api, clock


def test_get_reads_one_object() -> None:
    kube, api, _ = client(ok(thing("a", 7, namespace="ns")))
    got = kube.get(MAPS, "a", "ns")
    assert (got.metadata.name, got.metadata.resource_version) == ("a", "7")
    assert [(sent.method, sent.path) for sent in api.sent] == [("GET", "/api/v1/namespaces/ns/configmaps/a")]


def test_a_list_follows_its_pages_and_keeps_its_selectors() -> None:
    kube, api, _ = client(page(5, thing("a"), token="next"), page(5, thing("b")))
    got = kube.list(MAPS, label_selector="x=y", field_selector="metadata.name!=c", limit=1)
    assert [item.metadata.name for item in got] == ["a", "b"]
    selectors = {"labelSelector": "x=y", "fieldSelector": "metadata.name!=c", "limit": "1"}
    assert [sent.query for sent in api.sent] == [selectors, {**selectors, "continue": "next"}]


def test_a_list_without_items_is_empty() -> None:
    kube, _, _ = client(ok({"metadata": {"resourceVersion": "1"}, "items": None}))
    assert kube.list(MAPS) == []


def test_an_object_of_another_form_is_an_error_that_names_the_kind() -> None:
    kube, _, _ = client(ok({"metadata": {"name": 5}}))
    with pytest.raises(DecodeError, match="configmaps: Expected `str`"):
        kube.get(MAPS, "a", "ns")


def test_fields_nested_too_deeply_are_left_out_of_what_is_read() -> None:
    sound = ok(thing("evil", 7, namespace="ns"))
    listed = page(5, thing("a"), thing("evil"))
    kube, _, _ = client(FakeAnswer(data=deep(sound.data)), FakeAnswer(data=deep(listed.data)))
    assert kube.get(MAPS, "evil", "ns").metadata.resource_version == "7"
    assert [item.metadata.name for item in kube.list(MAPS)] == ["a", "evil"]


BAD_ANSWERS = {
    "no JSON": b"<html>",
    "half an object": b'{"metadata": {"name": "a"',
    "no UTF-8": b'{"metadata": {"name": "\xff"}}',
    "nothing but depth": b"[" * 5000,
}


@pytest.mark.parametrize("data", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_an_answer_that_cannot_be_read_is_an_error_of_ours(data: bytes) -> None:
    kube, _, _ = client(FakeAnswer(data=data), FakeAnswer(data=data + b"]"))
    with pytest.raises(DecodeError):
        kube.get(MAPS, "a", "ns")
    with pytest.raises(DecodeError):
        kube.list(MAPS)


def test_a_list_with_an_item_that_is_no_json_is_whole_or_an_error() -> None:
    broken = page(5, thing("a"), thing("x", 2), thing("b"))
    kube, _, _ = client(FakeAnswer(data=broken.data.replace(b'"2"', b'"2",,')))
    with pytest.raises(DecodeError, match="GET /api/v1/configmaps"):
        kube.list(MAPS)


class Leave:
    """Permission that ends after so many questions."""

    def __init__(self, questions: int) -> None:
        self.questions = questions

    def check(self) -> None:
        self.questions -= 1
        if self.questions < 0:
            raise LostLease("no leave")

    def left(self) -> float:
        return float("inf")


WRITES: dict[str, Callable[[Client], object]] = {
    "create": lambda kube: kube.create(MAPS, thing("a"), "ns"),
    "replace": lambda kube: kube.replace(MAPS, "a", thing("a"), "ns"),
    "patch": lambda kube: kube.patch(MAPS, "a", {}, "ns"),
    "apply": lambda kube: kube.apply(MAPS, "a", thing("a"), "me", "ns"),
    "delete": lambda kube: kube.delete(MAPS, "a", "ns"),
    "evict": lambda kube: kube.evict("a", "ns", "u"),
    "raw": lambda kube: kube.raw("PATCH", "/api/v1/x", {}),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_no_write_goes_out_without_leave(write: Callable[[Client], object]) -> None:
    kube, api, _ = client()
    with pytest.raises(LostLease):
        write(kube.under(Leave(0)))
    assert api.sent == []


def test_leave_is_asked_for_again_before_every_try() -> None:
    kube, api, clock = client(refusal(429), refusal(429), refusal(429), ok(thing("a")))
    with pytest.raises(LostLease):
        kube.under(Leave(4)).create(MAPS, thing("a"), "ns")  # each try asks twice: here, and where its bytes go out
    assert len(api.sent) == 2
    assert len(clock.slept) == 2


def test_reading_needs_no_leave() -> None:
    kube, _, _ = client(ok(thing("a")), page(1, thing("a")))
    allowed = kube.under(Leave(0))
    allowed.get(MAPS, "a", "ns")
    assert len(allowed.list(MAPS)) == 1


def test_a_call_ends_in_two_minutes_however_often_it_may_be_tried() -> None:
    clock = FakeClock()

    def slow(sent: Sent) -> Script:
        clock.advance(TOTAL_TIMEOUT_SECONDS)
        return ConnectionFailed("no whole answer", maybe_applied=True)

    api = FakeApi(respond=slow, clock=clock)
    with pytest.raises(ConnectionFailed):
        Client(api, clock).get(MAPS, "a", "ns")
    assert len(api.sent) == 2
    assert clock.monotonic() < CALL_SECONDS + TOTAL_TIMEOUT_SECONDS


def test_writes_under_way_are_counted() -> None:
    during: list[int] = []

    def respond(sent: Sent) -> Script:
        during.append(kube.writing)
        return ok(thing("a")) if sent.method == "GET" else ConnectionFailed("cut", maybe_applied=True)

    clock = FakeClock()
    kube = Client(FakeApi(respond=respond, clock=clock), clock)
    kube.get(MAPS, "a", "ns")
    with pytest.raises(ConnectionFailed):
        kube.create(MAPS, thing("a"), "ns")
    assert (during, kube.writing) == ([0, 1], 0)


def test_a_write_without_an_answer_may_come_for_a_minute() -> None:
    lost = ConnectionFailed("cut", maybe_applied=True)
    clock = FakeClock()
    kube = Client(FakeApi(lost, refusal(409), refusal(504), lost, ok(thing("a")), clock=clock), clock)
    for _ in range(3):
        with pytest.raises(ApiError):
            kube.create(MAPS, thing("a"), "ns")
    assert kube.unanswered == 2
    kube.get(MAPS, "a", "ns")
    assert kube.unanswered == 2, "a read changes nothing"
    clock.advance(MAY_LAND_SECONDS)
    assert kube.unanswered == 0


def test_the_first_try_of_a_write_may_come_though_the_second_succeeded() -> None:
    clock = FakeClock()
    lost = ConnectionFailed("cut", maybe_applied=True)
    kube = Client(FakeApi(lost, ok(thing("a")), clock=clock), clock)
    kube.patch(MAPS, "a", {}, "ns")
    assert (kube.writing, kube.unanswered) == (0, 1)


def test_every_write_has_its_verb_its_media_type_and_is_counted() -> None:
    answers = [
        ok(thing("a"), 201),
        *[ok(thing("a")) for _ in range(5)],
        ok({"status": "Success"}),
        ok({"status": "Success"}, 201),
    ]
    kube, api, _ = client(*answers)
    kube.create(MAPS, thing("a"), "ns")
    kube.replace(resources.NODES, "n", thing("n"), subresource="status")
    kube.patch(resources.NODES, "n", {"metadata": {"labels": {"x": None}}})
    kube.patch(resources.NODES, "n", [{"op": "add", "path": "/spec/taints/-", "value": {}}], kind="json")
    kube.patch(MAPS, "a", {"data": {}}, "ns", kind="strategic")
    kube.apply(MAPS, "a", thing("a"), "dovetail", "ns")
    kube.delete(MAPS, "a", "ns", uid="u", resource_version="3", grace_seconds=0)
    kube.evict("p", "ns", "u")
    assert [(sent.method, sent.content_type.removeprefix("application/")) for sent in api.sent] == [
        ("POST", "json"),
        ("PUT", "json"),
        ("PATCH", "merge-patch+json"),
        ("PATCH", "json-patch+json"),
        ("PATCH", "strategic-merge-patch+json"),
        ("PATCH", "apply-patch+yaml"),
        ("DELETE", "json"),
        ("POST", "json"),
    ]
    assert api.sent[1].path == "/api/v1/nodes/n/status"
    assert api.sent[2].body == {"metadata": {"labels": {"x": None}}}
    assert api.sent[5].query == {"fieldManager": "dovetail", "force": "true"}
    assert api.sent[6].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "3"},
        "gracePeriodSeconds": 0,
    }
    assert api.sent[7].path == "/api/v1/namespaces/ns/pods/p/eviction"
    assert api.sent[7].body["deleteOptions"] == {"preconditions": {"uid": "u"}}
    assert kube.writes == Counter(
        {
            ("create", "configmaps"): 1,
            ("update", "nodes/status"): 1,
            ("patch", "nodes"): 2,
            ("patch", "configmaps"): 1,
            ("apply", "configmaps"): 1,
            ("delete", "configmaps"): 1,
            ("create", "pods/eviction"): 1,
        }
    )


def test_a_struct_is_a_body_too() -> None:
    class Thing(msgspec.Struct, rename="camel"):
        api_version: str = "v1"

    kube, api, _ = client(ok(thing("a")))
    kube.create(MAPS, Thing(), "ns")
    assert api.sent[0].body == {"apiVersion": "v1"}


def get(kube: Client) -> object:
    return kube.get(MAPS, "a", "ns")


def create(kube: Client) -> object:
    return kube.create(MAPS, thing("a"), "ns")


def create_again(kube: Client) -> object:
    return kube.create(MAPS, thing("a"), "ns", retry=True)


def merge(kube: Client) -> object:
    return kube.patch(MAPS, "a", {}, "ns")


def json_patch(kube: Client) -> object:
    return kube.patch(MAPS, "a", [], "ns", kind="json")


GOOD = ok(thing("a"))
RETRIED = {
    "a read after a broken connection": (get, BROKEN),
    "a read after 503": (get, refusal(503)),
    "a read after 500 that says when to come back": (get, refusal(500, retry_after=1)),
    "a create that was refused for load": (create, refusal(429)),
    "a create whose connection was refused": (create, REFUSED),
    "a create that may have arrived, where the caller said so": (create_again, BROKEN),
    "a merge patch after a broken connection": (merge, BROKEN),
    "a create after 401, with fresh credentials": (create, refusal(401)),
}


@pytest.mark.parametrize(("call", "failure"), RETRIED.values(), ids=RETRIED)
def test_what_is_tried_again(call: Callable[[Client], object], failure: Script) -> None:
    kube, api, _ = client(failure, GOOD)
    call(kube)
    assert len(api.sent) == 2


NOT_RETRIED = {
    "a create that may have arrived": (create, BROKEN, ConnectionFailed),
    "a create after 503": (create, refusal(503), ServerError),
    "a JSON patch that may have arrived": (json_patch, BROKEN, ConnectionFailed),
    "a read after a plain 500": (get, refusal(500), ServerError),
    "a conflict": (merge, refusal(409, "Conflict"), Conflict),
    "an object that is there already": (create, refusal(409, "AlreadyExists"), AlreadyExists),
    "an object that is not there": (get, refusal(404), NotFound),
    "a missing rule": (get, refusal(403), Forbidden),
    "an eviction that a budget forbids": (
        lambda kube: kube.evict("p", "ns", "u"),
        refusal(429, retry_after=10),
        TooManyRequests,
    ),
}


@pytest.mark.parametrize(("call", "failure", "kind"), NOT_RETRIED.values(), ids=NOT_RETRIED)
def test_what_is_not_tried_again(call: Callable[[Client], object], failure: Script, kind: type[ApiError]) -> None:
    kube, api, clock = client(failure)
    with pytest.raises(kind):
        call(kube)
    assert (len(api.sent), clock.slept) == (1, [])


def test_the_time_that_the_server_names_is_kept_up_to_a_bound() -> None:
    kube, api, clock = client(refusal(429, retry_after=3), refusal(429, retry_after=600), GOOD)
    get(kube)
    assert [sent.at for sent in api.sent] == pytest.approx([0, 3, 13])
    assert clock.slept == [3.0, 10.0]


def test_it_gives_up_after_four_tries() -> None:
    kube, api, _ = client(*[refusal(429)] * 10)
    with pytest.raises(TooManyRequests):
        get(kube)
    assert len(api.sent) == MAX_TRIES == 4


def test_401_is_final_when_the_credentials_are_the_newest() -> None:
    kube, api, _ = client(refusal(401))
    api.refresh_works = False
    with pytest.raises(Unauthorized):
        get(kube)
    assert (len(api.sent), api.refreshed) == (1, 1)


def test_a_retried_write_counts_each_time() -> None:
    kube, _, _ = client(refusal(429), GOOD)
    create(kube)
    assert kube.writes["create", "configmaps"] == 2
