"""The `caBundle` of a webhook configuration: what it should hold, and the patch that puts it there.

Only `caBundle` is ever touched, by a JSON Patch that first tests that the object is the one that was read: it never
creates a configuration that somebody deleted, and never undoes another change.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from provisioner.apis.core import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from provisioner.apis.meta import ObjectMeta
from provisioner.kube.client import Client
from provisioner.kube.resources import MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS

Configuration: TypeAlias = MutatingWebhookConfiguration | ValidatingWebhookConfiguration


def certificates(bundle: bytes) -> dict[str, bytes]:
    """The certificates of a PEM bundle by SHA-256 fingerprint; what cannot be read counts as not there."""
    found: dict[str, bytes] = {}
    for block in bundle.split(b"-----BEGIN CERTIFICATE-----")[1:]:
        try:
            certificate = x509.load_pem_x509_certificate(b"-----BEGIN CERTIFICATE-----" + block)
        except ValueError:
            continue
        der = certificate.public_bytes(serialization.Encoding.DER)
        found[hashlib.sha256(der).hexdigest()] = certificate.public_bytes(serialization.Encoding.PEM)
    return found


def merge(bundles: Iterable[bytes]) -> bytes:
    """One PEM bundle with every certificate once, in the order of fingerprints: equal sets give equal bytes."""
    union: dict[str, bytes] = {}
    for bundle in bundles:
        union.update(certificates(bundle))
    return b"".join(union[key] for key in sorted(union))


def trusts(bundle: bytes, ca_pem: bytes) -> bool:
    """Whether every certificate of `ca_pem` is in the bundle; False for an empty `ca_pem`."""
    wanted = certificates(ca_pem)
    return bool(wanted) and wanted.keys() <= certificates(bundle).keys()


def trusted_by_all(configuration: Configuration) -> bytes:
    """The certificates that every webhook of the configuration trusts, as a bundle; empty without webhooks."""
    sets = [certificates(hook.client_config.ca_bundle or b"") for hook in configuration.webhooks]
    if not sets:
        return b""
    common = set(sets[0]).intersection(*sets[1:])
    return b"".join(sets[0][key] for key in sorted(common))


def trusted_by_any(configuration: Configuration) -> bytes:
    """The certificates that at least one webhook of the configuration trusts, as a bundle."""
    return merge(hook.client_config.ca_bundle or b"" for hook in configuration.webhooks)


def injection(configuration: Configuration, bundle: bytes) -> list[dict[str, object]]:
    """The JSON Patch that gives every webhook this bundle; empty where all have it (in any order) already."""
    there = {
        f"/webhooks/{index}/clientConfig/caBundle": hook.client_config.ca_bundle
        for index, hook in enumerate(configuration.webhooks)
    }
    return bundle_patch(configuration.metadata, there, bundle)


def bundle_patch(metadata: ObjectMeta, there: Mapping[str, bytes | None], bundle: bytes) -> list[dict[str, object]]:
    """The JSON Patch that puts a bundle wherever an object has another; `there`: what it has now, by path."""
    wanted = certificates(bundle).keys()
    text = base64.b64encode(bundle).decode("ascii")
    changes: list[dict[str, object]] = [
        {"op": "add", "path": path, "value": text}
        for path, known in there.items()
        if certificates(known or b"").keys() != wanted
    ]
    guard: dict[str, object] = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": metadata.resource_version,
    }
    return [guard, *changes] if changes else []


def inject(client: Client, configuration: Configuration, bundle: bytes) -> bool:
    """Makes all webhooks of one configuration trust exactly this bundle; whether anything was written.

    Raises:
        Invalid: the configuration is no longer the one that was read; read again.
        ApiError: the server refused otherwise.
    """
    patch = injection(configuration, bundle)
    if not patch:
        return False
    if isinstance(configuration, ValidatingWebhookConfiguration):
        client.patch(VALIDATINGWEBHOOKS, configuration.metadata.name, patch, kind="json")
    else:
        client.patch(MUTATINGWEBHOOKS, configuration.metadata.name, patch, kind="json")
    return True
