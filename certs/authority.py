"""A certificate authority in memory: it makes itself, issues leaves, and reads and writes PEM.

Everything is EC P-256 with SHA-256: a key takes under a millisecond, where RSA takes seconds. Nothing here reads
a clock or a file: `now` is an argument and PEM is bytes, so the callers decide where things are kept. This module
imports nothing of ours.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW = timedelta(hours=1)
"""How long before `now` a certificate is valid already: hosts disagree about the time."""


class CertificateError(ValueError):
    """PEM that cannot be used as asked; the text says what is wrong with it."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM (the key PKCS #8, not encrypted)."""

    cert_pem: bytes
    key_pem: bytes

    def __repr__(self) -> str:
        return f"Pair(cert_pem={len(self.cert_pem)} bytes, key_pem=hidden)"


@dataclass(frozen=True)
class KeyPair:
    """A bare key pair, both PEM (private PKCS #8, public SubjectPublicKeyInfo), for signing tokens."""

    private_pem: bytes
    public_pem: bytes

    def __repr__(self) -> str:
        return f"KeyPair(public_pem={len(self.public_pem)} bytes, private_pem=hidden)"


@dataclass(frozen=True)
class Authority:
    """A CA: its certificate and key. Immutable; issuing changes nothing in it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, common_name: str, now: datetime, days: int) -> Self:
        """A new self-signed CA that may sign leaves only (path length 0).

        Args:
            common_name: subject and issuer CN, for people; at most 64 characters.
            now: an aware time; the certificate is valid from an hour before it.
            days: how long after `now` it stays valid.

        Raises:
            CertificateError: naive `now`, `days` below 1, or a name that X.509 refuses.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(common_name, ())
        builder = (
            _builder(name, name, key.public_key(), now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> Self:
        """The CA of a certificate and key written by `certificate_pem` and `key_pem`.

        Raises:
            CertificateError: not PEM, not a CA, not EC, or a key of another certificate.
        """
        certificate = parse_certificate(certificate_pem)
        key = parse_key(key_pem)
        if certificate.public_key() != key.public_key():
            raise CertificateError("the CA key does not belong to the CA certificate")
        try:
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        except x509.ExtensionNotFound:
            constraints = None
        if constraints is None or not constraints.value.ca:
            raise CertificateError("the certificate is not a CA certificate")
        return cls(certificate, key)

    @property
    def certificate_pem(self) -> bytes:
        """The CA certificate, PEM: what clients trust (`caBundle`, `certificate-authority-data`)."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The CA's private key, PEM; a secret."""
        return _private_pem(self.key)

    def issue_server(
        self,
        dns_names: Sequence[str],
        ip_addresses: Sequence[str],
        now: datetime,
        days: int,
    ) -> Pair:
        """A new key with a serving certificate for these names and addresses.

        Args:
            dns_names: SAN DNS names; the first is also the CN, where it fits in 64 characters.
            ip_addresses: SAN addresses as text; needed where clients dial an address.
            now: an aware time; valid from an hour before it.
            days: lifetime after `now`; cut to the CA's own end.

        Raises:
            CertificateError: no name at all, a text that is no IP address, or bad times.
        """
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
        for text in ip_addresses:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(text)))
            except ValueError as error:
                raise CertificateError(f"{text!r} is not an IP address") from error
        if not names:
            raise CertificateError("a serving certificate needs a DNS name or an IP address")
        first = next(iter([*dns_names, *ip_addresses]))
        return self._issue(
            _name(first if len(first) <= 64 else "server", ()),
            ExtendedKeyUsageOID.SERVER_AUTH,
            now,
            days,
            x509.SubjectAlternativeName(names),
        )

    def issue_client(
        self,
        common_name: str,
        organizations: Iterable[str],
        now: datetime,
        days: int,
        dns_names: Sequence[str] = (),
    ) -> Pair:
        """A new key with a client certificate: for Kubernetes CN is the user, each O a group.

        Args:
            common_name: CN, at most 64 characters.
            organizations: O values, in this order.
            now: an aware time; valid from an hour before it.
            days: lifetime after `now`; cut to the CA's own end.
            dns_names: SAN DNS names, for servers that look there.

        Raises:
            CertificateError: a name that X.509 refuses, or bad times.
        """
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in dns_names]) if dns_names else None
        return self._issue(_name(common_name, organizations), ExtendedKeyUsageOID.CLIENT_AUTH, now, days, names)

    def _issue(
        self,
        subject: x509.Name,
        purpose: x509.ObjectIdentifier,
        now: datetime,
        days: int,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        end = self.certificate.not_valid_after_utc
        builder = (
            _builder(subject, self.certificate.subject, key.public_key(), now, days, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), _private_pem(key))


def signing_keys() -> KeyPair:
    """A new EC P-256 key pair in PEM, for service account tokens (ES256)."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(_private_pem(key), public)


def parse_certificate(pem: bytes) -> x509.Certificate:
    """The first certificate of a PEM text.

    Raises:
        CertificateError: no certificate in it, or a damaged one.
    """
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise CertificateError(f"not a PEM certificate: {error}") from error


def parse_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """The EC private key of a PEM text; the only kind made here.

    Raises:
        CertificateError: no key in it, a damaged or encrypted one, or not EC.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"not a readable PEM private key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the private key is not an elliptic curve key")
    return key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    days: int,
    end: datetime | None = None,
) -> x509.CertificateBuilder:
    if now.tzinfo is None:
        raise CertificateError(f"now must carry a time zone, got {now.isoformat()}")
    if days < 1:
        raise CertificateError(f"a certificate must live at least 1 day, got {days}")
    until = now + timedelta(days=days)
    if end is not None:
        if end <= now:
            raise CertificateError(f"the CA expired at {end.isoformat()}; create a new one")
        until = min(until, end)  # a leaf that outlives its CA fails verification only later
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(until)
    )


def _name(common_name: str, organizations: Iterable[str]) -> x509.Name:
    try:
        return x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
    except ValueError as error:
        raise CertificateError(f"not usable in a certificate subject: {error}") from error


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
