"""Whose objects may be written, who waits, and what is told."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from provisioner.apis.conversion import alpha
from provisioner.apis.conversion.alpha_types import OldObject
from provisioner.ec2.translation_controller import (
    TRANSLATED_FROM,
    TRANSLATED_HASH,
    TranslationStep,
    Translator,
    spec_hash,
    step,
    waits,
)
from provisioner.simulator.api_server import Wire
from tests.support.cluster import World
from tests.support.kube import Sent
from tests.support.worldserver import WorldServer

ORIGIN = "Provisioner/p/u"
POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "p"},
    "spec": {
        "template": {
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "p"},
            }
        }
    },
}


def stored(origin: str = ORIGIN, hashed: str = "", **spec: Any) -> dict[str, Any]:
    annotations = {TRANSLATED_FROM: origin, TRANSLATED_HASH: hashed or spec_hash(POOL)}
    metadata = {"name": "p", "annotations": annotations, "resourceVersion": "7"}
    return {**POOL, "metadata": metadata, "spec": {**POOL["spec"], **spec}}


def test_what_is_not_there_is_created() -> None:
    assert step(POOL, None, ORIGIN).create


def test_what_is_as_it_was_written_stays() -> None:
    found = step(POOL, stored(), ORIGIN)
    assert found == TranslationStep()


@pytest.mark.parametrize(
    "found",
    [{**POOL}, stored("Provisioner/p/another"), stored("AWSNodeTemplate/p/u")],
    ids=["a user's", "a former one's", "another's"],
)
def test_what_exists_is_never_adopted(found: dict[str, Any]) -> None:
    refusal = step(POOL, found, ORIGIN).refusal
    assert refusal is not None
    assert refusal.reason == "NodePoolExists"


def test_a_change_of_the_old_object_reaches_the_new_one() -> None:
    wanted = {**POOL, "spec": {**POOL["spec"], "weight": 7}}
    assert step(wanted, stored(), ORIGIN).update


def test_what_was_edited_since_is_left_alone() -> None:
    wanted = {**POOL, "spec": {**POOL["spec"], "weight": 7}}
    refusal = step(wanted, stored(weight=3), ORIGIN).refusal
    assert refusal is not None
    assert refusal.reason == "NodePoolEdited"


SINCE = datetime(2026, 1, 2, tzinfo=UTC)


def old(created: datetime = SINCE, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {
        "name": "p",
        "uid": "u",
        "generation": 1,
        "creationTimestamp": created.isoformat().replace("+00:00", "Z"),
    }
    provider = {"instanceProfile": "n", "subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}}
    return {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Provisioner",
        "metadata": {**metadata, "annotations": annotations or {}},
        "spec": {"provider": provider, **spec},
    }


def test_who_is_older_than_the_component_waits_for_an_annotation() -> None:
    before = datetime(2026, 1, 1, tzinfo=UTC)
    assert waits(msgspec.convert(old(before), OldObject, strict=False), SINCE)
    assert not waits(msgspec.convert(old(), OldObject, strict=False), SINCE)
    asked = old(before, {"dovetail.dev/translate": "true"})
    assert not waits(msgspec.convert(asked, OldObject, strict=False), SINCE)


class Server(WorldServer):
    """With one Provisioner and whatever is created."""

    def __init__(self, provisioner: Wire, beside: str = "", *, component: bool = True, **there: Wire) -> None:
        super().__init__(World())
        marker = {"name": "dovetail-conversion", "namespace": "dovetail-system"}
        if component:
            self.store("configmaps", {"metadata": {**marker, "creationTimestamp": "2026-01-02T00:00:00Z"}})
        for plural, wire in {"provisioners": provisioner, **there}.items():
            self.store(plural, wire)
        clock = self.world.clock
        self.translator = Translator(self.client, self.recorder, clock, "dovetail-system", "blue", lambda: beside)

    def writes(self) -> list[tuple[str, str]]:
        return [(sent.method, sent.path.rpartition("/")[2]) for sent in self.api.sent if sent.method != "GET"]

    @property
    def said(self) -> list[tuple[str, str]]:
        return [event[2:] for event in self.recorder.events]

    @property
    def pool(self) -> Wire:
        return self.objects["nodepools"]["p"]

    @property
    def condition(self) -> Wire:
        (found,) = self.objects["provisioners"]["p"]["status"]["conditions"]
        assert isinstance(found, dict)
        return found

    def edit(self, **patch: Any) -> None:
        """Somebody writes the Provisioner."""
        self.change("provisioners", "p", patch)


def test_a_provisioner_becomes_two_objects_and_is_told_once() -> None:
    server = Server(old())
    server.translator.poll()
    assert server.writes() == [("POST", "ec2nodeclasses"), ("POST", "nodepools"), ("PATCH", "status")]
    assert server.pool["metadata"]["annotations"][TRANSLATED_FROM] == "Provisioner/p/u"
    assert (server.condition["status"], server.said) == ("True", [("Normal", "Translated")])
    before = len(server.writes())
    server.translator.poll()
    assert server.writes()[before:] == []
    assert len(server.said) == 1


def test_a_crash_between_the_two_is_made_good() -> None:
    server = Server(old())
    server.translator.poll()
    server.drop("nodepools", "p")
    server.translator.poll()
    assert [one for one in server.writes() if one[0] == "POST"][-1] == ("POST", "nodepools")


def test_nothing_is_created_beside_a_pool_that_exists() -> None:
    server = Server(old(), nodepools={**POOL})
    server.translator.poll()
    assert server.writes() == [("PATCH", "status")]
    assert (server.condition["status"], server.condition["reason"]) == ("False", "NodePoolExists")


def test_one_that_has_no_equivalent_says_the_field() -> None:
    server = Server(old(labels={"a": "b c"}))
    server.translator.poll()
    assert server.writes() == [("PATCH", "status")]
    assert server.condition["reason"] == "Unsupported"
    assert "spec.template.metadata.labels" in server.condition["message"]


@pytest.mark.parametrize("status", [400, 403, 422])
def test_what_the_api_server_does_not_admit_is_told_and_tried_again(status: int) -> None:
    """Such as a webhook, for what no rule of the definition says."""
    server = Server(old())
    said = "denied the request: spec.kubelet.evictionHard[memory.avail]: the signal must be one of memory.available"
    server.refuse_creates, server.refusal = status, said
    server.translator.poll()
    assert server.writes() == [("POST", "ec2nodeclasses"), ("PATCH", "status")], (
        "no NodePool for a class that is not there"
    )
    assert (server.condition["status"], server.condition["reason"]) == ("False", "Rejected")
    assert server.condition["message"] == f"EC2NodeClass p was rejected: {said}"
    assert server.said == [("Warning", "Rejected")]
    server.refuse_creates = 0
    server.translator.poll()
    assert server.condition["status"] == "True"


def test_an_update_that_somebody_was_faster_than_is_no_refusal_and_is_made_the_next_time() -> None:
    """A patch whose test fails is answered with 422, like one of an object that breaks its schema."""
    server = Server(old())
    server.translator.poll()
    server.edit(spec={"weight": 7})

    def overtake(sent: Sent) -> None:
        """By a write to the status, as nodes come and go."""
        if sent.path.endswith("/nodepools/p") and sent.method == "PATCH":
            server.intercept = lambda _: None
            server.change("nodepools", "p", {"status": {"nodes": 1}})

    server.intercept = overtake
    server.translator.poll()
    assert server.condition["reason"] == "Translated"
    assert "weight" not in server.pool["spec"]
    server.translator.poll()
    assert server.pool["spec"]["weight"] == 7
    assert server.said == [("Normal", "Translated")] * 2, "once for each generation of the Provisioner"


def test_a_server_that_fails_is_no_refusal() -> None:
    server = Server(old())
    server.refuse_creates = 500
    server.translator.poll()
    assert "status" not in server.objects["provisioners"]["p"]


def test_one_that_is_older_waits_and_one_that_was_translated_goes_on() -> None:
    server = Server(old(datetime(2026, 1, 1, tzinfo=UTC)))
    server.translator.poll()
    assert (server.writes(), server.condition["reason"]) == ([("PATCH", "status")], "WaitingForAnnotation")
    server.edit(metadata={"annotations": {"dovetail.dev/translate": "true"}})
    server.translator.poll()
    server.edit(metadata={"annotations": {"dovetail.dev/translate": None}})
    server.translator.poll()
    assert server.condition["status"] == "True"


def test_nothing_is_translated_while_karpenter_leads_elsewhere() -> None:
    server = Server(old(), "Karpenter runs")
    server.translator.poll()
    assert (server.writes(), server.condition["reason"]) == ([("PATCH", "status")], "KarpenterRuns")


def test_without_the_component_nothing_is_looked_at() -> None:
    server = Server(old(), component=False)
    server.translator.poll()
    assert server.writes() == []


def test_one_object_keeps_no_other_from_its_translation(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(old())
    server.store("provisioners", {**old(), "metadata": {**old()["metadata"], "name": "another", "uid": "v"}})
    real = alpha.provisioner

    def strange(document: Any, templates: Any, cluster: str) -> alpha.Translation:
        if document["metadata"]["name"] == "another":
            raise TypeError
        return real(document, templates, cluster)

    monkeypatch.setattr(alpha, "provisioner", strange)
    server.translator.poll()
    assert server.condition["status"] == "True"
