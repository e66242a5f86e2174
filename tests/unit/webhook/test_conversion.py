"""Conversion reviews: all objects or none, never a 5xx, a message that names object and field."""

import json
import queue
import threading
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.conversion.definitions import BETA
from provisioner.apis.openapi import defaulted
from tests.support.clock import FakeClock
from tests.unit.webhook.test_app import SOURCE
from webhook.app import AdmissionHandler, create_app
from webhook.conversion import MAX_AT_ONCE, MAX_VALUES, MAX_WAITING, TOO_MANY_VALUES_TO_CONVERT, Conversion
from webhook.review import MAX_BODY_BYTES
from webhook.validation import Validation, ValidationContext

POOL = defaulted(
    BETA["NodePool"],
    {
        "apiVersion": "karpenter.sh/v1beta1",
        "kind": "NodePool",
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {"name": "c"}}}},
    },
)


def client(conversion: Conversion | None = None) -> FlaskClient:
    validation = Validation(ValidationContext, FakeClock())
    return create_app(
        AdmissionHandler(SOURCE, FakeClock()), validation, conversion or Conversion(FakeClock()), str
    ).test_client()


def review(*objects: Any, to: str = "karpenter.sh/v1") -> bytes:
    request = {"uid": "r", "desiredAPIVersion": to, "objects": objects}
    return json.dumps(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    ).encode()


def answer(body: bytes) -> tuple[int, dict[str, Any]]:
    found = client().post("/convert", data=body, content_type="application/json")
    return found.status_code, (found.get_json(silent=True) or {}).get("response", {})


def test_objects_come_back_in_order_at_the_wanted_version() -> None:
    code, response = answer(review(POOL, {**POOL, "metadata": {"name": "q"}}))
    assert (code, response["uid"], response["result"]) == (200, "r", {"status": "Success"})
    assert [(one["apiVersion"], one["metadata"]["name"]) for one in response["convertedObjects"]] == [
        ("karpenter.sh/v1", "p"),
        ("karpenter.sh/v1", "q"),
    ]
    assert response["convertedObjects"][0]["metadata"]["uid"] == "u"


def test_one_bad_object_fails_the_review_and_is_named() -> None:
    code, response = answer(review(POOL, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}))
    assert (code, response["convertedObjects"], response["result"]["status"]) == (200, [], "Failed")
    assert 'Pod "x"' in response["result"]["message"]


BAD = {
    "no JSON": (b"{", 400),
    "another kind": (b'{"apiVersion": "v1", "kind": "Pod", "request": {"uid": "r"}}', 400),
    "no uid": (b'{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {}}', 400),
    "objects that are none": (review(7, None, []), 200),
    "a damaged request with a uid": (b'{"request": {"uid": "r", "objects": 7}}', 200),
    "too deep": (b'{"request": {"uid": "r", "objects": [' + b'{"a":' * 100_000, 200),
    "too large": (b" " * (MAX_BODY_BYTES + 1), 413),
    "a spec of another type": (review({**POOL, "spec": 7}), 200),
    "a reference of another type": (review({**POOL, "spec": {"template": {"spec": {"nodeClassRef": [1]}}}}), 200),
}


@pytest.mark.parametrize(("body", "code"), BAD.values(), ids=BAD)
def test_a_bad_review_is_answered_and_never_a_5xx(body: bytes, code: int) -> None:
    assert answer(body)[0] == code


@given(data=st.data())
def test_a_mutated_review_is_never_a_5xx(data: st.DataObject) -> None:
    body = bytearray(review(POOL, to=data.draw(st.sampled_from(["karpenter.sh/v1", "karpenter.sh/v1beta1", "x"]))))
    for _ in range(data.draw(st.integers(1, 5))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    assert answer(bytes(body))[0] < 500


def test_objects_of_so_many_values_that_they_would_take_all_memory_are_not_decoded() -> None:
    code, response = answer(review({**POOL, "spec": [[]] * (MAX_VALUES // 2)}))
    assert (code, response["uid"], response["convertedObjects"]) == (200, "r", [])
    assert response["result"] == {"status": "Failed", "message": TOO_MANY_VALUES_TO_CONVERT}


def test_a_crowd_is_answered_so_that_it_asks_again() -> None:
    conversion = Conversion(FakeClock())
    for _ in range(MAX_AT_ONCE):
        conversion._places.acquire()
    found = client(conversion).post("/convert", data=review(POOL)).get_json()["response"]
    assert (found["uid"], found["result"]["status"]) == ("r", "Failed")
    assert "try again" in found["result"]["message"]


class Full:
    """Places that are all taken until it is set."""

    def __init__(self) -> None:
        self.free, self.waiting = threading.Event(), threading.Semaphore(0)

    def acquire(self, *, blocking: bool = True, timeout: float = 0.0) -> bool:
        if blocking:
            self.waiting.release()
            self.free.wait(10)
        return False


def test_only_a_few_wait_for_their_turn() -> None:
    conversion, full = Conversion(FakeClock()), Full()
    conversion._places = full  # type: ignore[assignment]
    answers: queue.Queue[bytes] = queue.Queue()
    threads = [
        threading.Thread(target=lambda: answers.put(conversion.answer(review(POOL)))) for _ in range(MAX_WAITING + 3)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(MAX_WAITING):
            full.waiting.acquire()
        refused = [answers.get(timeout=5) for _ in range(3)]
        assert all(b"try again" in one for one in refused)
    finally:
        full.free.set()
        for thread in threads:
            thread.join()
