"""Secrets as cert-manager writes them: an RSA key in PKCS #1, a chain, the root in ca.crt, and its annotations.

Source: cert-manager `pkg/controller/certificates/issuing/internal/secret.go` and `internal/controller/certificates/certificates.go`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LABELS = {"controller.cert-manager.io/fao": "true"}


def annotations(certificate: str, dns: Sequence[str], issuer: str) -> dict[str, str]:
    """What cert-manager says of a Secret that it issued."""
    return {
        "cert-manager.io/alt-names": ",".join(dns),
        "cert-manager.io/certificate-name": certificate,
        "cert-manager.io/common-name": dns[0],
        "cert-manager.io/ip-sans": "",
        "cert-manager.io/issuer-group": "cert-manager.io",
        "cert-manager.io/issuer-kind": "ClusterIssuer",
        "cert-manager.io/issuer-name": issuer,
        "cert-manager.io/uri-sans": "",
    }


class Issuer:
    """A root, and an intermediate that signs leaves; both live ten years from `now`."""

    def __init__(self, now: datetime, name: str = "corporate") -> None:
        self._root_key, self._key = _key(), _key()
        life = timedelta(days=3650)
        root, middle = _name(f"{name} root"), _name(f"{name} intermediate")
        self._root = _signed(root, root, self._root_key, self._root_key, now, life, ca=True)
        self._middle = _signed(middle, root, self._key, self._root_key, now, life, ca=True)
        self._name = middle

    def issue(self, dns: Sequence[str], now: datetime, life: timedelta = timedelta(days=90)) -> dict[str, bytes]:
        """The `data` of a Secret: tls.crt is leaf and intermediate, ca.crt the root."""
        key = _key()
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in dns])
        leaf = _signed(_name(dns[0]), self._name, key, self._key, now, life, ca=False, names=alternatives)
        return {
            "tls.crt": _pem(leaf) + _pem(self._middle),
            "tls.key": key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            ),
            "ca.crt": _pem(self._root),
        }


def secret(name: str, data: dict[str, bytes], dns: Sequence[str]) -> dict[str, Any]:
    """The whole object, as cert-manager applies it."""
    metadata = {"name": name, "labels": LABELS, "annotations": annotations(name, dns, "corporate")}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: rsa.RSAPrivateKey,
    signer: rsa.RSAPrivateKey,
    now: datetime,
    life: timedelta,
    *,
    ca: bool,
    names: x509.SubjectAlternativeName | None = None,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signer, hashes.SHA256())
