"""The routes, and that every failure admits the pod."""

import base64
import json
from typing import Any

import pytest
from flask.testing import FlaskClient

from provisioner.apis.shares import Seat, Share, ShareOwner, Side
from provisioner.apis.stamping import Images, ImagesAsked, StampFacts
from provisioner.support import metrics
from tests.support.clock import FakeClock
from tests.support.kube import deep
from tests.unit.webhook.test_review import body
from webhook.app import MAX_VALUES, AdmissionHandler, create_app
from webhook.conversion import Conversion
from webhook.review import MAX_BODY_BYTES
from webhook.validation import Validation, ValidationContext


class Source:
    """Facts from a dict; None is an unknown namespace, an exception is raised."""

    def __init__(self, namespaces: dict[str, StampFacts | Exception]) -> None:
        self._namespaces = namespaces
        self.asked: list[tuple[ShareOwner, Share, str, bool]] = []
        self.looked_up: list[tuple[ImagesAsked, bool]] = []

    def of(self, namespace: str) -> StampFacts | None:
        found = self._namespaces.get(namespace)
        if isinstance(found, Exception):
            raise found
        return found

    def seat(self, owner: ShareOwner, share: Share, review: str, *, keep: bool) -> Seat | None:
        self.asked.append((owner, share, review, keep))
        return Seat(Side.SPOT, 7, 7)

    def images(self, asked: ImagesAsked, *, keep: bool) -> Images | None:
        self.looked_up.append((asked, keep))
        return Images({image: frozenset({("linux", "arm64")}) for image in asked.images})


ARM64 = {"dovetail.dev/arch": "arm64", "dovetail.dev/scheduler": "enabled"}
SOURCE = Source(
    {
        "shop": StampFacts("shop", ARM64, scheduler_alive=True),
        "held": StampFacts("held", ARM64, scheduler_alive=False),
        "wrong": StampFacts("wrong", {"dovetail.dev/arch": "vax"}),
        "shared": StampFacts("shared", {"dovetail.dev/on-demand": "30pct"}),
        "imaged": StampFacts("imaged", {"dovetail.dev/image-arch": "stamp"}),
        "broken": RuntimeError("cache is broken"),
    }
)


def client(problem: str = "") -> FlaskClient:
    validation = Validation(ValidationContext, FakeClock())
    return create_app(
        AdmissionHandler(SOURCE, FakeClock()), validation, Conversion(FakeClock()), lambda: problem
    ).test_client()


def counted(outcome: str) -> float:
    return metrics.REGISTRY.get_sample_value("dovetail_webhook_reviews_total", {"outcome": outcome}) or 0.0


def post(data: bytes) -> tuple[int, dict[str, Any]]:
    answer = client().post("/mutate", data=data, content_type="application/json")
    return answer.status_code, json.loads(answer.data) if answer.is_json else {}


def test_a_pod_is_stamped() -> None:
    before = counted("stamped")
    status, reply = post(body())
    response = reply["response"]
    assert (status, response["uid"], response["allowed"]) == (200, "u1", True)
    assert [operation["path"] for operation in json.loads(base64.b64decode(response["patch"]))] == [
        "/spec/affinity",
        "/spec/schedulerName",
        "/metadata/annotations",
    ]
    assert response["auditAnnotations"] == {"stamped": "arch,schedulerName"}
    assert counted("stamped") == before + 1


def test_a_dry_run_gets_the_same_answer() -> None:
    assert post(body(dryRun=True)) == post(body())


def test_every_failure_admits_the_pod() -> None:
    cases = {
        "namespace-unknown": body(namespace="new"),
        "bad-pod": body(object={"spec": []}),
        "error": body(namespace="broken"),
        "other-kind": body(operation="UPDATE"),
        "exempt": body(object={"spec": {"nodeName": "n"}}),
    }
    for outcome, data in cases.items():
        before = counted(outcome)
        assert post(data) == (200, json.loads(_allowed("u1"))), outcome
        assert counted(outcome) == before + 1, outcome


def test_a_pod_nested_too_deeply_is_stamped_like_any_other() -> None:
    before = counted("stamped")
    status, reply = post(deep(body(object={"metadata": {"name": "evil", "namespace": "shop"}, "spec": {}})))
    assert (status, reply["response"]["allowed"], "patch" in reply["response"]) == (200, True, True)
    assert counted("stamped") == before + 1


def test_a_review_of_which_only_the_uid_can_be_read_is_admitted() -> None:
    before = counted("bad-review")
    assert post(body(namespace=5)) == (200, json.loads(_allowed("u1")))
    assert post(body().replace(b'"dryRun"', b"dryRun")) == (200, json.loads(_allowed("u1")))
    assert counted("bad-review") == before + 2


def _allowed(uid: str) -> bytes:
    response = {"uid": uid, "allowed": True}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode()


def test_a_warning_reaches_the_creator() -> None:
    _, reply = post(body(namespace="wrong"))
    assert "'vax'" in reply["response"]["warnings"][0]
    assert "patch" not in reply["response"]


def test_pods_kept_from_a_dead_scheduler_are_counted() -> None:
    name = "dovetail_webhook_scheduler_held_back_total"
    before = metrics.REGISTRY.get_sample_value(name) or 0.0
    post(body(namespace="held"))
    assert metrics.REGISTRY.get_sample_value(name) == before + 1


def test_garbage_is_a_bad_request() -> None:
    before = counted("bad-review")
    answer = client().post("/mutate", data=b"{}")
    assert answer.status_code == 400
    assert b"AdmissionReview" in answer.data
    assert counted("bad-review") == before + 1


def test_a_body_over_the_bound_is_refused() -> None:
    assert client().post("/mutate", data=b" " * (MAX_BODY_BYTES + 1)).status_code == 413


def test_other_methods_and_paths() -> None:
    assert client().get("/mutate").status_code == 405
    assert client().get("/").status_code == 404


def test_health_and_readiness() -> None:
    assert client("cache: cold").get("/healthz").status_code == 200
    assert client().get("/readyz").status_code == 200
    answer = client("cache: cold; certificate: none").get("/readyz")
    assert (answer.status_code, answer.data) == (503, b"cache: cold; certificate: none\n")


@pytest.mark.parametrize("dry", [True, False])
def test_a_pod_of_an_owner_with_a_share_is_counted_unless_it_will_not_be_made(dry: bool) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": True}
    pod = {"metadata": {"ownerReferences": [owner]}, "spec": {"containers": []}}
    SOURCE.asked.clear()
    _, reply = post(body(namespace="shared", object=pod, dryRun=dry))
    assert SOURCE.asked == [(ShareOwner("shared", "r"), Share(percent=30), "u1", not dry)]
    assert "/metadata/labels" in [one["path"] for one in json.loads(base64.b64decode(reply["response"]["patch"]))]


@pytest.mark.parametrize("dry", [False, True], ids=["made", "dry run"])
def test_images_are_asked_for_and_a_dry_run_looks_nothing_up(dry: bool) -> None:
    SOURCE.looked_up.clear()
    pod = {"metadata": {}, "spec": {"containers": [{"image": "web"}], "imagePullSecrets": [{"name": "pull"}]}}
    _, reply = post(body(namespace="imaged", object=pod, dryRun=dry))
    assert SOURCE.looked_up == [(ImagesAsked("imaged", ("web",), ("pull",)), not dry)]
    (first, *_) = json.loads(base64.b64decode(reply["response"]["patch"]))
    assert first["path"] == "/spec/affinity"
    post(body())
    assert len(SOURCE.looked_up) == 1, "nobody is asked for pods without the setting"


def with_terms(count: int, annotations: dict[str, str]) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * count
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {"containers": [], "affinity": {"nodeAffinity": required}}
    return {"metadata": {"generateName": "web-", "annotations": annotations}, "spec": spec}


def test_a_huge_pod_gets_a_small_answer() -> None:
    """It asked for 14 MB, by its own annotations."""
    asked = {"dovetail.dev/arch": "amd64", "dovetail.dev/os": "linux", "dovetail.dev/capacity-type": "spot"}
    admission = AdmissionHandler(SOURCE, FakeClock())
    reply = admission.answer(body(object=with_terms(9_000, asked)))
    response = json.loads(reply)["response"]
    assert response["allowed"] is True
    assert "patch" not in response
    assert "has 9000 required node selector terms; only pods with at most 256 are planned" in response["warnings"][0]
    assert len(reply) < 1_000
    patch = json.loads(admission.answer(body(object=with_terms(256, asked))))["response"]["patch"]
    assert len(json.loads(base64.b64decode(patch))) > 3 * 256


@pytest.mark.parametrize("many", ["tolerations", "nodeSelector"])
def test_a_pod_of_so_many_values_that_they_would_take_all_memory_is_not_decoded(many: str) -> None:
    values = {"tolerations": [{}] * (MAX_VALUES // 2), "nodeSelector": dict.fromkeys(map(str, range(MAX_VALUES)), "")}
    before, unchanged = counted("bad-pod"), counted("unchanged")
    assert post(body(object={"spec": {many: values[many]}})) == (200, json.loads(_allowed("u1")))
    assert (counted("bad-pod"), counted("unchanged")) == (before + 1, unchanged)


def test_a_pod_that_would_get_too_large_a_patch_is_admitted_unchanged() -> None:
    pools = ",".join(f"{number}{'x' * 60}" for number in range(10, 74))
    before, stamped = counted("unchanged"), counted("stamped")
    reply = AdmissionHandler(SOURCE, FakeClock()).answer(body(object=with_terms(256, {"dovetail.dev/nodepool": pools})))
    response = json.loads(reply)["response"]
    assert (response["allowed"], "patch" in response, "auditAnnotations" in response) == (True, False, False)
    assert response["warnings"][0].startswith("dovetail: the changes to the pod are too large")
    assert (counted("unchanged"), counted("stamped")) == (before + 1, stamped)
