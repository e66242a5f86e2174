"""The bundle of definitions: what is patched, and whose definitions are left alone."""

import base64
import json
from typing import Any

import msgspec
import pytest

from certs.definitions import DefinitionInjector, refusal
from provisioner.apis.core import CustomResourceDefinition
from provisioner.kube.client import Client
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi, Sent
from tests.unit.certs.test_injection import A, B

NAME = "nodepools.karpenter.sh"
HOOK: dict[str, Any] = {
    "strategy": "Webhook",
    "webhook": {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]},
}


def definition(conversion: dict[str, Any] | None = None, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": NAME, "resourceVersion": "7", "labels": labels or {}},
        "spec": {"conversion": HOOK if conversion is None else conversion},
    }


def lease(namespace: str) -> dict[str, Any]:
    spec = {"holderIdentity": "karpenter-0", "renewTime": "2026-01-01T00:00:00Z"}
    return {"metadata": {"name": "karpenter-leader-election", "namespace": namespace}, "spec": spec}


def injected(found: dict[str, Any] | None, leases: list[dict[str, Any]] | None = None, bundle: bytes = A) -> list[Any]:
    """The patches that are sent."""

    def respond(sent: Sent) -> FakeAnswer:
        if "/leases" in sent.path:
            there = [one for one in leases or [] if f"/{one['metadata']['namespace']}/" in sent.path]
            return FakeAnswer(data=json.dumps(there[0]).encode()) if there else FakeAnswer(status=404, data=b"{}")
        if found is None:
            return FakeAnswer(status=404, data=b"{}")
        return FakeAnswer(data=json.dumps(found).encode())

    api = FakeApi(respond=respond)
    DefinitionInjector(Client(api, FakeClock()), FakeClock(), (NAME,), "dovetail-system").inject(bundle)
    return [sent.body for sent in api.sent if sent.method == "PATCH"]


def test_the_bundle_is_put_into_the_version_that_was_read() -> None:
    (patch,) = injected(definition())
    assert [one["op"] for one in patch] == ["test", "add"]
    assert patch[0]["value"] == "7"
    assert patch[1]["path"] == "/spec/conversion/webhook/clientConfig/caBundle"


def test_nothing_is_written_into_a_definition_that_is_gone_or_converts_nothing() -> None:
    assert injected(None) == []
    assert injected(definition({"strategy": "None"})) == []


@pytest.mark.parametrize("label", ["app.kubernetes.io/managed-by=Helm", "kustomize.toolkit.fluxcd.io/name=x"])
def test_a_definition_that_others_keep_is_left_alone(label: str) -> None:
    key, _, value = label.partition("=")
    assert injected(definition(labels={key: value})) == []


def test_whoever_reads_the_refusal_learns_what_to_remove() -> None:
    kept = definition(labels={"kustomize.toolkit.fluxcd.io/name": "karpenter"})
    assert refusal(msgspec.convert(kept, CustomResourceDefinition)) == (
        "CustomResourceDefinition nodepools.karpenter.sh is managed by Flux (kustomize.toolkit.fluxcd.io/name), which would undo the change; "
        "remove the component conversion, or end the management by Flux and remove kustomize.toolkit.fluxcd.io/name from the definition"
    )


def test_nothing_is_written_while_karpenter_leads_in_another_namespace() -> None:
    assert injected(definition(), [lease("kube-system")]) == []
    assert injected(definition(), [lease("karpenter")]) == []
    assert injected(definition(), [lease("dovetail-system")])  # our own
    assert injected(definition(), [lease("tenant")])  # anybody may make one there


def test_a_bundle_that_is_there_is_not_written_again() -> None:
    conversion = {
        **HOOK,
        "webhook": {**HOOK["webhook"], "clientConfig": {"url": "https://x", "caBundle": base64.b64encode(A).decode()}},
    }
    assert injected(definition(conversion)) == []
    assert injected(definition(conversion), bundle=A + B)
