"""The wire: reviews in, replies out, JSON pointers."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import podpatch
from provisioner.apis.podpatch import Operation
from provisioner.simulator import json_patch
from tests.support.kube import deep
from webhook import review
from webhook.review import (
    MAX_PATCH_BYTES,
    MAX_WARNING_BYTES,
    PatchTooLargeError,
    ReviewError,
    decode_pod,
    decode_review,
    encode_reply,
)


def body(**changes: Any) -> bytes:
    """A review of a pod's creation, as the API server sends it, with changes to its request."""
    request = {
        "uid": "u1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "a"},
        "object": {"metadata": {"generateName": "web-"}, "spec": {"containers": []}},
        "oldObject": None,
        "dryRun": False,
    }
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, **changes}}
    return json.dumps(document).encode()


def test_a_request_is_read() -> None:
    request = decode_review(body())
    assert (request.uid, request.namespace, request.creates_pod) == ("u1", "shop", True)
    assert decode_pod(request.object).spec.scheduler_name == ""


NOT_A_CREATION = {
    "an update": {"operation": "UPDATE"},
    "a subresource": {"subResource": "eviction"},
    "another kind": {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
    "another version": {"resource": {"group": "", "version": "v2", "resource": "pods"}},
}


@pytest.mark.parametrize("changes", NOT_A_CREATION.values(), ids=NOT_A_CREATION)
def test_only_the_creation_of_a_pod_counts(changes: dict[str, Any]) -> None:
    assert not decode_review(body(**changes)).creates_pod


UNANSWERABLE = {
    "nothing": (b"", "not an AdmissionReview"),
    "no JSON": (b"{", "not an AdmissionReview"),
    "no UTF-8": (b'{"kind": "\xff"}', "not an AdmissionReview"),
    "a list": (b"[]", "not an AdmissionReview"),
    "another kind": (b'{"kind": "Pod", "apiVersion": "v1"}', "got v1 Pod"),
    "an old version": (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}', "v1beta1"),
    "no request": (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "no request"),
    "an empty uid": (body(uid=""), "no request with a uid"),
}


@pytest.mark.parametrize(("data", "text"), UNANSWERABLE.values(), ids=UNANSWERABLE)
def test_what_cannot_be_answered_is_an_error(data: bytes, text: str) -> None:
    with pytest.raises(ReviewError, match=text):
        decode_review(data)


@pytest.mark.parametrize("levels", [1000, 10_000])
def test_a_pod_with_fields_nested_too_deeply_is_read_without_them(levels: int) -> None:
    pod = {"metadata": {"name": "evil", "labels": {"a": "b"}}, "spec": {"schedulerName": "mine"}}
    request = decode_review(deep(body(object=pod), levels))
    found = decode_pod(request.object)
    assert (found.metadata.labels, found.spec.scheduler_name) == ({"a": "b"}, "mine")


@pytest.mark.parametrize("levels", [930, 960, 980, 990, 995, 999])
def test_the_edge_of_what_the_decoder_takes_is_no_edge_for_us(levels: int) -> None:
    pod = {"metadata": {"name": "evil", "namespace": "shop"}, "spec": {"schedulerName": "mine"}}
    assert decode_pod(decode_review(deep(body(object=pod), levels)).object).spec.scheduler_name == "mine"


def test_the_uid_of_a_review_that_is_no_json_is_read_from_its_bytes() -> None:
    fake = {"a": '"request":{"uid":"fake"}'}
    damaged = body(object={"metadata": {"annotations": fake}}).replace(b'"dryRun"', b'"dryRun",')
    with pytest.raises(ReviewError, match="not an AdmissionReview") as error:
        decode_review(damaged)
    assert error.value.uid == "u1"


def test_a_damaged_pod_leaves_the_request_readable() -> None:
    request = decode_review(body(object={"spec": {"nodeSelector": [1]}}))
    assert request.uid == "u1"
    with pytest.raises(ReviewError, match="not a pod"):
        decode_pod(request.object)


def test_an_empty_reply_has_no_patch() -> None:
    assert json.loads(encode_reply("u1")) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u1", "allowed": True},
    }


def test_a_full_reply() -> None:
    operations = [podpatch.add("spec", "nodeSelector", "kubernetes.io/arch", value="arm64"), podpatch.remove("a")]
    response = json.loads(encode_reply("u1", operations, ["careful"], {"stamped": "arch"}))["response"]
    assert json.loads(base64.b64decode(response.pop("patch"))) == [
        {"op": "add", "path": "/spec/nodeSelector/kubernetes.io~1arch", "value": "arm64"},
        {"op": "remove", "path": "/a"},
    ]
    assert response == {
        "uid": "u1",
        "allowed": True,
        "patchType": "JSONPatch",
        "warnings": ["careful"],
        "auditAnnotations": {"stamped": "arch"},
    }


def test_a_long_warning_is_cut_visibly() -> None:
    (warning,) = json.loads(encode_reply("u", (), ["x" * 1000]))["response"]["warnings"]
    assert len(warning) == MAX_WARNING_BYTES
    assert warning.endswith("...")


def test_a_false_value_is_written() -> None:
    assert json.loads(msgspec.json.encode(podpatch.add("a", value=None))) == {"op": "add", "path": "/a", "value": None}


@given(st.lists(st.text(alphabet="~/01a-", min_size=1), min_size=1, max_size=4), st.integers())
def test_a_pointer_finds_what_it_was_made_from(parts: list[str], value: int) -> None:
    document: dict[str, Any] = {}
    level = document
    for part in parts[:-1]:
        level = level.setdefault(part, {})
    assert _dig(json_patch.apply(document, [podpatch.add(*parts, value=value)]), parts) == value


def _dig(document: Any, parts: list[str]) -> Any:
    for part in parts:
        document = document[part]
    return document


def test_texts_are_cut_by_bytes_and_stay_text() -> None:
    assert review.cut("é" * 125, 250) == "é" * 125
    assert review.cut("é" * 126, 250) == "é" * 123 + "..."
    assert review.cut("€" * 100, 250) == "€" * 82 + "..."


def test_a_patch_is_bounded_by_the_size_of_its_object() -> None:
    made = 0

    def endless() -> Iterator[Operation]:
        nonlocal made
        for made in range(10**9):  # noqa: B007
            yield podpatch.add("metadata", "labels", "a", value="x" * 1000)

    with pytest.raises(PatchTooLargeError):
        encode_reply("u1", endless(), object_bytes=500_000)  # type: ignore[arg-type]  # seen only as far as it is read
    assert 1_400 < made < 1_600
    small = [podpatch.add("metadata", "labels", "a", value="x" * MAX_PATCH_BYTES)]
    assert len(encode_reply("u1", small, object_bytes=100)) > MAX_PATCH_BYTES
    with pytest.raises(PatchTooLargeError):
        encode_reply("u1", small)
