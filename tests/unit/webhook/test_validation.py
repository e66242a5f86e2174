"""The validating webhook: what it denies, what it warns of, and that it admits whatever it does not understand."""

import copy
import json
import threading
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient

from provisioner.apis import advice
from provisioner.apis.karpenter import NodePool
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.overlay_conflicts import MAX_OVERLAYS
from provisioner.support import metrics
from provisioner.values.schedule import is_open
from tests.support.clock import FakeClock
from tests.support.kube import deep
from tests.support.verdict_cases import (
    CASES,
    CLASS,
    Case,
    Document,
    budgets,
    claim,
    need,
    overlay,
    pool,
    referring,
)
from tests.unit.webhook.test_app import SOURCE
from tests.unit.webhook.test_review import body
from webhook.app import AdmissionHandler, create_app
from webhook.conversion import Conversion
from webhook.review import MAX_WARNING_BYTES, MAX_WARNINGS
from webhook.validation import MAX_AT_ONCE, MAX_OBJECT_BYTES, Validation, ValidationContext, opinion

PLURALS = {
    "NodePool": "nodepools",
    "NodeClaim": "nodeclaims",
    "NodeOverlay": "nodeoverlays",
    "EC2NodeClass": "ec2nodeclasses",
}


class Beside:
    """Surroundings of a test."""

    def __init__(self, *documents: Document, known: bool = True) -> None:
        pools = [msgspec.convert(one, NodePool) for one in documents if one["kind"] == "NodePool"]
        classes = [one["metadata"]["name"] for one in documents if one["kind"] == "EC2NodeClass"]
        named = {("karpenter.k8s.aws", "EC2NodeClass"): classes} if known else {}
        overlays = [msgspec.convert(one, NodeOverlay) for one in documents if one["kind"] == "NodeOverlay"]
        self.found: ValidationContext | Exception = ValidationContext(pools, named, overlays)

    def surroundings(self) -> ValidationContext:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def client(beside: Beside) -> FlaskClient:
    return create_app(
        AdmissionHandler(SOURCE, FakeClock()),
        Validation(beside.surroundings, FakeClock()),
        Conversion(FakeClock()),
        str,
    ).test_client()


def review(document: Document, old: Document | None = None, **changes: Any) -> bytes:
    """A review of this object as the API server sends it."""
    group, _, version = document["apiVersion"].partition("/")
    resource = {"group": group, "version": version, "resource": PLURALS[document["kind"]]}
    operation = "CREATE" if old is None else "UPDATE"
    request = {"resource": resource, "namespace": "", "operation": operation, "object": document, "oldObject": old}
    return body(**request | changes)


def answered(data: bytes, beside: Beside | None = None) -> dict[str, Any]:
    """The response; the uid is that of the request."""
    answer = client(beside or Beside(CLASS)).post("/validate", data=data, content_type="application/json")
    assert answer.status_code == 200, answer.data
    response: dict[str, Any] = json.loads(answer.data)["response"]
    assert response.pop("uid") == "u1"
    assert "patch" not in response
    return response


def counted(outcome: str) -> float:
    return metrics.REGISTRY.get_sample_value("dovetail_webhook_validations_total", {"outcome": outcome}) or 0.0


ADMITTED = {"allowed": True}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_said_of(case: Case) -> None:
    response = answered(review(case.document), Beside(*case.beside))
    assert response["allowed"] is not bool(case.errors)
    if case.errors:
        assert (response["status"]["code"], response["status"]["reason"]) == (422, "Invalid")
        told = response["status"]["message"].split("; spec")
        for path, text in case.errors:
            assert any(path.removeprefix("spec") + ": " in one and text in one for one in told)
        assert "warnings" not in response
        return
    told = response.get("warnings", [])
    assert len(told) == len(case.warnings)
    for path, text in case.warnings:
        assert any(one.startswith(f"{path}: ") and text in one for one in told)
    for one in told:
        assert len(one.encode()) <= MAX_WARNING_BYTES
        assert not one.endswith("..."), "the remedy is not cut off"


def test_who_shadows_hears_it_too() -> None:
    beside = Beside(CLASS, *(pool(name=f"low{position}", weight=1) for position in range(4)))
    (told,) = answered(review(pool(weight=50)), beside)["warnings"]
    assert told == (
        "spec.weight: tried before NodePools low0, low1 and 2 more, and accepts every pod that each of them accepts; "
        "lower this weight, or give this NodePool limits, taints or requirements"
    )


def test_a_pool_is_not_compared_with_what_it_was() -> None:
    before = pool(weight=50)
    assert answered(review(pool(weight=1), before), Beside(CLASS, before)) == ADMITTED


def test_hundreds_of_pools_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def fleet_advice(*found: object, **_: object) -> dict[str, object]:
        asked.append(found)
        return {}

    monkeypatch.setattr(advice, "fleet_advice", fleet_advice)
    assert answered(review(pool(weight=1)), Beside(CLASS, *(pool(name=f"p{n}") for n in range(300)))) == ADMITTED
    assert asked == []


def test_overlays_in_conflict_may_be_changed_but_not_brought_into_another() -> None:
    first, second = overlay(price="1"), overlay(name="second", price="2")
    third = overlay(name="third", price="3", weight=3)
    beside = Beside(first, second, third)
    (told,) = answered(review(overlay(price="4"), first), beside)["warnings"]
    assert told.startswith('still invalid: spec.weight: NodeOverlay "second" of the same weight')
    response = answered(review(overlay(price="1", weight=3), first), beside)
    assert not response["allowed"]
    assert 'NodeOverlay "third"' in response["status"]["message"]
    assert answered(review(overlay(price="1", weight=7), first), beside) == ADMITTED


def test_hundreds_of_overlays_of_one_weight_are_not_compared() -> None:
    others = [overlay(name=f"o{number}", price="1") for number in range(MAX_OVERLAYS + 1)]
    assert not answered(review(overlay(price="1")), Beside(*others[1:]))["allowed"]
    assert answered(review(overlay(price="1")), Beside(*others)) == ADMITTED


BAD = pool(need("karpenter.sh/capacity-type", "In", "SPOT"))
WORSE = pool(need("karpenter.sh/capacity-type", "In", "SPOT"), need("karpenter.sh/capacity-type", "In", "ODD"))


def test_a_pool_keeps_reserved_taints_but_gains_none() -> None:
    kept = {"key": "karpenter.sh/unregistered", "effect": "NoSchedule"}
    before = pool(template={"startupTaints": [kept]})
    response = answered(review(pool(template={"startupTaints": [kept]}, weight=3), before))
    assert response["allowed"]
    assert response["warnings"][0].startswith("still invalid: spec.template.spec.startupTaints[0].key: karpenter.sh/")
    more = [kept, {"key": "dovetail.dev/own", "effect": "NoSchedule"}]
    response = answered(review(pool(template={"startupTaints": more}), before))
    assert not response["allowed"]
    assert "startupTaints[1].key: dovetail.dev/own is reserved" in response["status"]["message"]
    assert "unregistered" not in response["status"]["message"]


def test_what_is_bad_already_may_be_changed_but_not_for_the_worse() -> None:
    changed = copy.deepcopy(BAD)
    changed["spec"]["weight"] = 7
    (told,) = answered(review(changed, BAD))["warnings"]
    assert told.startswith('still invalid: spec.template.spec.requirements[0].values: "SPOT" is not')
    response = answered(review(WORSE, BAD))
    assert not response["allowed"]
    assert "ODD" in response["status"]["message"]
    assert "SPOT" not in response["status"]["message"], "what was there before is not what is denied"
    assert answered(review(pool(), WORSE)) == ADMITTED


def _bad_class(user_data: str, **spec: Any) -> Document:
    kind = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}}
    return {**kind, "spec": {"amiSelectorTerms": [{"alias": "al2023@v1"}], "userData": user_data, **spec}}


def test_a_field_that_is_bad_may_stay_and_not_be_changed_for_one_as_bad() -> None:
    """The same is wrong with both, but what was accepted was the former: the class would lose Ready."""
    before = _bad_class("#cloud-config\npackages: [jq]\n")
    response = answered(review(_bad_class("#cloud-config\npackages: [jq]\n", detailedMonitoring=True), before))
    assert response["allowed"]
    assert response["warnings"][0].startswith("still invalid: spec.userData: ")
    response = answered(review(_bad_class("#cloud-config\npackages: [curl]\n"), before))
    assert not response["allowed"]
    assert "spec.userData" in response["status"]["message"]


def test_a_bad_entry_may_move_and_not_be_doubled() -> None:
    first, second = need("kubernetes.io/os", "In", "linux"), need("karpenter.sh/capacity-type", "In", "SPOT")
    assert answered(review(pool(second, first), pool(first, second)))["allowed"]
    assert not answered(review(pool(second, second), pool(first, second)))["allowed"]


def _meta(document: Document, **metadata: Any) -> Document:
    return {**document, "metadata": {**document["metadata"], **metadata}}


UNCHANGED = {
    "a label": (_meta(BAD, labels={"a": "b"}), BAD),
    "a finalizer": (BAD, _meta(BAD, finalizers=["karpenter.sh/termination"])),
    "the status": ({**BAD, "status": {"resources": {"cpu": "1"}}}, BAD),
    "an object that is being deleted": (_meta(WORSE, deletionTimestamp="2026-01-01T00:00:00Z"), BAD),
}


@pytest.mark.parametrize(("new", "old"), UNCHANGED.values(), ids=UNCHANGED)
def test_nothing_is_said_of_a_change_of(new: Document, old: Document) -> None:
    before = counted("unchanged")
    assert answered(review(new, old)) == ADMITTED
    assert counted("unchanged") == before + 1


def test_a_money_limit_that_nobody_can_read_is_denied_and_another_annotation_is_nobodys_business() -> None:
    before = pool()
    limited = _meta(before, annotations={"dovetail.dev/max-usd-per-hour": "$100"})
    for response in (answered(review(limited)), answered(review(limited, before))):
        assert not response["allowed"]
        assert "'$100' is not a decimal number above 0, such as 12.5" in response["status"]["message"]
    assert answered(review(_meta(limited, labels={"a": "b"}), limited)) == ADMITTED
    assert answered(review(before, limited)) == ADMITTED
    assert answered(review(_meta(before, annotations={"dovetail.dev/max-usd-per-hour": "100"}), before)) == ADMITTED


def test_a_number_of_pods_that_nobody_can_read_is_denied() -> None:
    before = pool()
    for text in ("many", "0"):
        response = answered(review(_meta(before, annotations={"dovetail.dev/max-pods-per-workload": text}), before))
        assert not response["allowed"]
        assert (
            f"metadata.annotations[dovetail.dev/max-pods-per-workload]: '{text}' is not a whole number from 1 to 9999"
            in response["status"]["message"]
        )
    assert answered(review(_meta(before, annotations={"dovetail.dev/max-pods-per-workload": "3"}), before)) == ADMITTED


def test_deletions_subresources_and_other_kinds_are_nobodys_business() -> None:
    before = counted("other-kind")
    assert answered(review(BAD, operation="DELETE")) == ADMITTED
    assert answered(review(BAD, BAD, subResource="status")) == ADMITTED
    assert answered(body()) == ADMITTED
    assert counted("other-kind") == before + 3


def test_where_nothing_is_known_nothing_is_said() -> None:
    assert answered(review(referring(name="other")), Beside(known=False)) == ADMITTED
    assert answered(review(claim(name="other")), Beside(known=False)) == ADMITTED
    broken = Beside()
    broken.found = RuntimeError("cache is broken")
    before = counted("error")
    assert answered(review(BAD), broken) == ADMITTED
    assert counted("error") == before + 1


def test_what_cannot_be_read_is_admitted() -> None:
    odd = {**pool(), "spec": {"weight": "heavy"}}
    before = counted("bad-object")
    assert answered(review(odd)) == ADMITTED
    assert answered(review(BAD, odd)) == ADMITTED, "nobody knows whether it became worse"
    assert counted("bad-object") == before + 2


def test_a_large_object_is_admitted_unread() -> None:
    before = counted("too-large")
    assert answered(review(_meta(BAD, annotations={"a": "x" * MAX_OBJECT_BYTES}))) == ADMITTED
    assert counted("too-large") == before + 1


def test_what_is_nested_too_deeply_does_not_hide_the_rest() -> None:
    evil = {**BAD, "metadata": {"name": "evil", "generation": 1}}
    assert not answered(deep(review(evil)))["allowed"]


def test_few_are_validated_at_a_time_and_the_others_admitted() -> None:
    entered, leave = threading.Semaphore(0), threading.Event()

    class Slow(Beside):
        def surroundings(self) -> ValidationContext:
            entered.release()
            assert leave.wait(30)
            return super().surroundings()

    validation = Validation(Slow(CLASS).surroundings, FakeClock())
    threads = [threading.Thread(target=validation.answer, args=(review(BAD),)) for _ in range(MAX_AT_ONCE)]
    for one in threads:
        one.start()
    try:
        for _ in threads:
            assert entered.acquire(timeout=30)
        before = counted("busy")
        assert json.loads(validation.answer(review(BAD)))["response"] == {"uid": "u1", "allowed": True}
        assert counted("busy") == before + 1
    finally:
        leave.set()
        for one in threads:
            one.join(30)
    assert not json.loads(validation.answer(review(BAD)))["response"]["allowed"], "the room is free again"


def test_garbage_is_a_bad_request_and_a_readable_uid_is_admitted() -> None:
    for data in (b"", b"{}", b"[", b"\xff", review(BAD).replace(b'"uid"', b'"u"')):
        assert client(Beside()).post("/validate", data=data).status_code == 400
    assert answered(body(namespace=5)) == ADMITTED


def test_many_warnings_and_errors_are_cut() -> None:
    many = pool(*(need(f"karpenter.k8s.aws/instance-{n}é", "In", "x") for n in range(40)))
    told = opinion(msgspec.convert(many, NodePool), None, ValidationContext())
    assert len(told.errors) == 40, "é makes no label"
    message = answered(review(many))["status"]["message"]
    assert message.endswith("and 30 more errors")
    assert len(message.encode()) <= 4096
    many = pool(*(need(f"karpenter.k8s.aws/instance-{n}{'x' * 200}", "In", "x") for n in range(40)))
    warnings = answered(review(many))["warnings"]
    assert len(warnings) == MAX_WARNINGS
    assert warnings[-1] == "and 31 more warnings"
    assert all(len(one.encode()) <= MAX_WARNING_BYTES for one in warnings)


def test_budgets_are_looked_at_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty windows that change every minute; they were looked at a hundred thousand times."""
    looks = 0

    def counting(*found: Any) -> bool:
        nonlocal looks
        looks += 1
        return is_open(*found)

    monkeypatch.setattr("provisioner.apis.advice.is_open", counting)
    entries = [{"nodes": "0", "schedule": f"{n}-59 * * * *", "duration": f"{n % 3 + 1}m"} for n in range(50)]
    assert answered(review(budgets(*entries)))["allowed"]
    assert 0 < looks <= 2000
