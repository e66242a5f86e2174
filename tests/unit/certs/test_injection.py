"""Bundles as sets of certificates, and the patch that changes nothing else."""

import base64
from datetime import UTC, datetime

from certs.injection import certificates, inject, injection, merge, trusted_by_all, trusted_by_any, trusts
from certs.store import SecretNames, mint
from provisioner.apis.core import (
    MutatingWebhook,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    WebhookClientConfig,
)
from provisioner.apis.meta import ObjectMeta
from provisioner.kube.client import Client
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A, B, C = (mint(SecretNames(("n",)), NOW).ca_pem for _ in range(3))


def configuration(*bundles: bytes | None) -> MutatingWebhookConfiguration:
    """One webhook a bundle."""
    hooks = tuple(
        MutatingWebhook(name=f"h{i}", client_config=WebhookClientConfig(ca_bundle=b)) for i, b in enumerate(bundles)
    )
    return MutatingWebhookConfiguration(metadata=ObjectMeta(name="c", resource_version="7"), webhooks=hooks)


def test_merging_is_a_union_in_a_fixed_order() -> None:
    assert merge([A, B]) == merge([B, A]) == merge([A + B, A, b""])
    assert certificates(merge([A, B])).keys() == certificates(A).keys() | certificates(B).keys()
    assert merge([]) == b""


def test_what_cannot_be_read_is_not_there() -> None:
    garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert certificates(b"hello" + garbage + A) == certificates(A)


def test_trust() -> None:
    assert trusts(A + B, B)
    assert not trusts(A, A + B)
    assert not trusts(A, b"")


def test_all_and_any() -> None:
    both = configuration(A + B, B + C)
    assert certificates(trusted_by_all(both)) == certificates(B)
    assert certificates(trusted_by_any(both)) == certificates(A + B + C)
    assert trusted_by_all(configuration(A, None)) == b""
    assert trusted_by_all(configuration()) == trusted_by_any(configuration()) == b""


def test_the_patch_tests_the_version_and_touches_only_what_differs() -> None:
    patch = injection(configuration(A, None), A)
    assert patch == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": base64.b64encode(A).decode()},
    ]


def test_no_patch_when_the_set_is_right() -> None:
    assert injection(configuration(A + B, B + A), merge([A, B])) == []
    assert injection(configuration(), A) == []


def test_a_validating_configuration_is_patched_as_its_own_kind() -> None:
    api = FakeApi(respond=lambda _: FakeAnswer(data=b"{}"))
    hooks = configuration(None).webhooks
    found = ValidatingWebhookConfiguration(metadata=ObjectMeta(name="c", resource_version="7"), webhooks=hooks)
    assert inject(Client(api, FakeClock()), found, A)
    (sent,) = api.sent
    assert (sent.method, sent.path) == (
        "PATCH",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/c",
    )
