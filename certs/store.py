"""The Secret that holds the serving certificate: the one truth that all replicas follow.

It has the three keys of every TLS Secret in Kubernetes, `tls.crt`, `tls.key` and `ca.crt`. The CA's own key is in none of
them: a CA signs one leaf and its key is forgotten, so there is nothing to steal, and every renewal is a new CA. That is
safe because `certs.rotation` lets old and new be trusted side by side for a while.
"""

import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from certs.authority import Authority, CertificateError, parse_certificate
from provisioner.apis.core import Secret
from provisioner.apis.meta import ObjectMeta
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, Conflict, Forbidden
from provisioner.kube.resources import SECRETS

CERT_KEY = "tls.crt"
PRIVATE_KEY = "tls.key"
CA_KEY = "ca.crt"
SECRET_TYPE = "kubernetes.io/tls"

CERT_MANAGER_ANNOTATION = "cert-manager.io/certificate-name"
"""On every Secret that cert-manager issues for a Certificate.

Source: cert-manager `pkg/controller/certificates/issuing/internal/secret.go` setValues at 0c3dfbfe9.
"""

LEAF_DAYS = 90
RENEW_AFTER = 2 / 3
"""Part of a leaf's life after which it is renewed."""
RENEW_JITTER = 0.05
"""Up to this part of the life earlier, by the certificate's own fingerprint: clusters do not renew all at once."""
ANOTHER_WRITER_WAS_FASTER: Final = "Another writer was faster; reading again"


@dataclass(frozen=True)
class SecretNames:
    """What clients call the server: the SANs of its certificate."""

    dns: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    @classmethod
    def of_service(cls, service: str, namespace: str, addresses: Sequence[str] = (), dns: Sequence[str] = ()) -> Self:
        """The names of a Service, and what it is called outside of the cluster."""
        base = f"{service}.{namespace}"
        return cls((f"{base}.svc", f"{base}.svc.cluster.local", base, service, *dns), tuple(addresses))


@dataclass(frozen=True)
class Material:
    """A leaf (with intermediates, where there are any), its key, and the CA that clients must trust; all PEM."""

    cert_pem: bytes
    key_pem: bytes
    ca_pem: bytes
    """Empty where the Secret of somebody else has none (a publicly trusted issuer)."""

    def __repr__(self) -> str:
        return f"Material({self.fingerprint[:12]}, key hidden)"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the leaf, lower case hex: which certificate this is, without telling any secret."""
        try:
            certificate = parse_certificate(self.cert_pem)
        except CertificateError:
            return hashlib.sha256(self.cert_pem).hexdigest()
        return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()

    def pem(self) -> bytes:
        """One PEM text for a server: key, leaf, CA, in this order; `parse` reads it back."""
        return b"".join(part.rstrip(b"\n") + b"\n" for part in (self.key_pem, self.cert_pem, self.ca_pem) if part)

    @classmethod
    def parse(cls, pem: bytes) -> Self:
        """What `pem` wrote.

        Raises:
            CertificateError: no key or no certificate in it.
        """
        start = pem.find(b"-----BEGIN CERTIFICATE-----")
        key = pem[:start] if start > 0 else b""
        if b"PRIVATE KEY-----" not in key:
            raise CertificateError("the serving file does not contain a private key followed by a certificate")
        try:
            certificates = x509.load_pem_x509_certificates(pem[start:])
        except ValueError as error:
            raise CertificateError(f"the serving file does not contain a usable certificate: {error}") from error
        encoded = [certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates]
        last = certificates[-1]
        ca = encoded.pop() if len(certificates) > 1 and last.issuer == last.subject else b""
        return cls(b"".join(encoded), key, ca)

    @classmethod
    def of_secret(cls, secret: Secret) -> Self:
        """The material in a Secret.

        Raises:
            CertificateError: a key is missing; the text names it, never a value.
        """
        for key in (CERT_KEY, PRIVATE_KEY):
            if not secret.data.get(key):
                raise CertificateError(f"Secret {secret.metadata.namespace}/{secret.metadata.name} has no {key}")
        return cls(secret.data[CERT_KEY], secret.data[PRIVATE_KEY], secret.data.get(CA_KEY, b""))

    def data(self) -> dict[str, bytes]:
        return {CERT_KEY: self.cert_pem, PRIVATE_KEY: self.key_pem, CA_KEY: self.ca_pem}


def is_kept_by_cert_manager(secret: Secret) -> bool:
    """Whether cert-manager issued what a Secret holds, and so renews it; two writers would undo each other for ever."""
    return CERT_MANAGER_ANNOTATION in secret.metadata.annotations


def mint(names: SecretNames, now: datetime, days: int = LEAF_DAYS) -> Material:
    """A new leaf of a new CA, whose key is forgotten here.

    Raises:
        CertificateError: no name at all, or bad times.
    """
    authority = Authority.create("dovetail-webhook-ca", now, days + 1)
    pair = authority.issue_server(names.dns, names.addresses, now, days)
    return Material(pair.cert_pem, pair.key_pem, authority.certificate_pem)


def fault(material: Material, names: SecretNames | None, now: datetime) -> str:
    """Why this material cannot be served, as a sentence, or "" when it can.

    Args:
        material: what a Secret or a file holds.
        names: all of them must be in the certificate; None (a Secret of somebody else) asks for no name, and
            for no direct signature of the CA (there may be intermediates that we do not have).
        now: aware.
    """
    try:
        leaf = parse_certificate(material.cert_pem)
        ca = parse_certificate(material.ca_pem) if material.ca_pem else None
        key = serialization.load_pem_private_key(material.key_pem, password=None)
    except (CertificateError, ValueError, TypeError) as error:
        return f"it cannot be read: {type(error).__name__}"  # the library's text could quote what it read
    if leaf.public_key() != key.public_key():
        return "the private key belongs to another certificate"
    if now >= leaf.not_valid_after_utc:
        return f"it ended at {leaf.not_valid_after_utc.isoformat()}"
    if now < leaf.not_valid_before_utc:
        return f"it begins only at {leaf.not_valid_before_utc.isoformat()}"
    if names is None:
        return ""
    if ca is None:
        return f"it has no {CA_KEY}"
    try:
        leaf.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return f"its {CA_KEY} did not sign it"
    missing = _missing_names(leaf, names)
    return f"it lacks the name {missing[0]}" if missing else ""


def _missing_names(leaf: x509.Certificate, names: SecretNames) -> list[str]:
    try:
        has = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [*names.dns, *names.addresses]
    dns = set(has.get_values_for_type(x509.DNSName))
    addresses = set(has.get_values_for_type(x509.IPAddress))
    return [name for name in names.dns if name not in dns] + [
        text
        for text in names.addresses
        if ipaddress.ip_address(text) not in addresses  # IPv6 is written in many ways
    ]


def renew_at(material: Material) -> datetime:
    """When a leaf is due: at two thirds of its life, less a jitter of its own that every replica computes alike.

    Raises:
        CertificateError: no certificate in it.
    """
    leaf = parse_certificate(material.cert_pem)
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    jitter = int(material.fingerprint[:8], 16) / 0x1_0000_0000 * RENEW_JITTER
    return leaf.not_valid_before_utc + timedelta(seconds=life.total_seconds() * (RENEW_AFTER - jitter))


class SecretStore:
    """Reads and writes the one Secret; every write is guarded, so two writers never undo each other."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self.namespace, self.name = namespace, name

    def get(self) -> Secret | None:
        """The Secret as it is on the server, or None."""
        return self._client.find(SECRETS, self.name, self.namespace)

    def create_or_adopt(self, material: Material) -> Secret:
        """Creates the Secret, outside of a cluster; where another replica was faster, its Secret is the answer.

        In a cluster the manifests make it, empty: whoever may create Secrets can make a token of any ServiceAccount.

        Raises:
            ApiError: the server refused (NotFound: the namespace is not there).
            CertificateError: this account may not create it.
        """
        body = Secret(
            metadata=ObjectMeta(
                name=self.name, namespace=self.namespace, labels={"app.kubernetes.io/name": "dovetail"}
            ),
            type=SECRET_TYPE,
            data=material.data(),
        )
        try:
            return self._client.create(SECRETS, body, self.namespace, retry=True)
        except AlreadyExists:
            return self._client.get(SECRETS, self.name, self.namespace)
        except Forbidden as error:
            raise CertificateError(
                f"Secret {self.namespace}/{self.name} does not exist, and this ServiceAccount may not create it; "
                "apply the manifests again"
            ) from error

    def replace(self, old: Secret, material: Material) -> Secret:
        """Puts new material in, if the Secret is still what was read; otherwise what it is now is the answer.

        What cert-manager issued before is ours from then on; where cert-manager still keeps it, it says so again.

        Raises:
            ApiError: the server refused.
        """
        metadata: dict[str, object] = {"resourceVersion": old.metadata.resource_version}
        if is_kept_by_cert_manager(old):
            metadata["annotations"] = {CERT_MANAGER_ANNOTATION: None}
        body = {"metadata": metadata, "data": material.data()}
        try:
            return self._client.patch(SECRETS, self.name, body, self.namespace)
        except Conflict:
            return self._client.get(SECRETS, self.name, self.namespace)
