"""The authority in memory: what it issues, what it refuses, what survives PEM."""

import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from certs.authority import (
    Authority,
    CertificateError,
    Pair,
    parse_certificate,
    parse_key,
    signing_keys,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def authority(days: int = 100) -> Authority:
    return Authority.create("test ca", NOW, days)


def verify_server(ca: Authority, pair: Pair, name: str, when: datetime) -> None:
    verifier = PolicyBuilder().store(Store([ca.certificate])).time(when).build_server_verifier(subject(name))
    verifier.verify(parse_certificate(pair.cert_pem), [])


def subject(name: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@pytest.mark.parametrize("name", ["webhook.dovetail.svc", "127.0.0.1", "::1"])
def test_a_server_leaf_verifies_for_each_name_and_address_it_was_issued_for(name: str) -> None:
    ca = authority()
    pair = ca.issue_server(["webhook.dovetail.svc"], ["127.0.0.1", "::1"], NOW, 10)
    verify_server(ca, pair, name, NOW)


@pytest.mark.parametrize(
    ("name", "when"),
    [
        pytest.param("other.dovetail.svc", NOW, id="another name"),
        pytest.param("127.0.0.2", NOW, id="another address"),
        pytest.param("webhook.dovetail.svc", NOW + timedelta(days=11), id="after its end"),
        pytest.param("webhook.dovetail.svc", NOW - timedelta(hours=2), id="before its beginning"),
    ],
)
def test_a_server_leaf_does_not_verify(name: str, when: datetime) -> None:
    ca = authority()
    pair = ca.issue_server(["webhook.dovetail.svc"], ["127.0.0.1"], NOW, 10)
    with pytest.raises(VerificationError):
        verify_server(ca, pair, name, when)


def test_a_leaf_of_one_authority_does_not_verify_with_another_of_the_same_name() -> None:
    pair = authority().issue_server(["a"], [], NOW, 10)
    with pytest.raises(VerificationError):
        verify_server(authority(), pair, "a", NOW)


def test_a_client_leaf_carries_user_and_groups_and_is_no_server_certificate() -> None:
    ca = authority()
    pair = ca.issue_client("jane", ["dev", "ops"], NOW, 10)
    certificate = parse_certificate(pair.cert_pem)
    name = certificate.subject
    assert [entry.value for entry in name.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["jane"]
    groups = name.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [entry.value for entry in groups] == ["dev", "ops"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate.verify_directly_issued_by(ca.certificate)


def test_a_leaf_never_outlives_its_authority() -> None:
    pair = authority(days=5).issue_server(["a"], [], NOW, 365)
    assert parse_certificate(pair.cert_pem).not_valid_after_utc == NOW + timedelta(days=5)


def test_the_key_of_a_pair_belongs_to_its_certificate_and_is_p256() -> None:
    pair = authority().issue_client("jane", [], NOW, 10)
    key = parse_key(pair.key_pem)
    assert isinstance(key.curve, ec.SECP256R1)
    assert parse_certificate(pair.cert_pem).public_key() == key.public_key()


def test_an_authority_read_back_from_pem_issues_what_the_first_one_verifies() -> None:
    first = authority()
    second = Authority.load(first.certificate_pem, first.key_pem)
    assert second.certificate_pem == first.certificate_pem
    verify_server(first, second.issue_server(["a"], [], NOW, 1), "a", NOW)


def test_signing_keys_belong_together() -> None:
    keys = signing_keys()
    public = serialization.load_pem_public_key(keys.public_pem)
    assert public == parse_key(keys.private_pem).public_key()


def test_secrets_are_not_in_a_repr() -> None:
    ca = authority()
    pair = ca.issue_client("jane", [], NOW, 10)
    assert "PRIVATE KEY" not in repr(pair) + repr(signing_keys()) + repr(ca)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a time without a zone": (lambda: Authority.create("ca", datetime(2026, 1, 1), 1), "time zone"),  # noqa: DTZ001
    "no lifetime at all": (lambda: Authority.create("ca", NOW, 0), "at least 1 day"),
    "a name that is too long for X.509": (lambda: Authority.create("x" * 65, NOW, 1), "subject"),
    "a serving certificate for nobody": (
        lambda: authority().issue_server([], [], NOW, 1),
        "DNS name or an IP address",
    ),
    "an address that is none": (
        lambda: authority().issue_server([], ["localhost"], NOW, 1),
        "'localhost' is not an IP address",
    ),
    "an authority that has ended": (
        lambda: authority(days=1).issue_client("a", [], NOW + timedelta(days=2), 1),
        "the CA expired",
    ),
    "a certificate that is no PEM": (lambda: parse_certificate(b"hello"), "not a PEM certificate"),
    "a key that is no PEM": (lambda: parse_key(b"hello"), "not a readable PEM private key"),
    "the key of another authority": (
        lambda: Authority.load(authority().certificate_pem, authority().key_pem),
        "does not belong",
    ),
    "a leaf in place of an authority": (
        lambda: _load_pair(authority().issue_client("a", [], NOW, 1)),
        "not a CA certificate",
    ),
}


def _load_pair(pair: Pair) -> Authority:
    return Authority.load(pair.cert_pem, pair.key_pem)


@pytest.mark.parametrize(("act", "says"), REFUSED.values(), ids=REFUSED)
def test_refused(act: Callable[[], object], says: str) -> None:
    with pytest.raises(CertificateError, match=says):
        act()


def test_a_name_longer_than_64_characters_is_still_served_by_its_alternative_name() -> None:
    ca = authority()
    name = "a-very-long-service-name.in-a-very-long-namespace-name.svc.cluster.local"
    verify_server(ca, ca.issue_server([name], [], NOW, 1), name, NOW)
