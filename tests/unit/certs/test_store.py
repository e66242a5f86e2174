"""Material: minting, reading back, what is wrong with it, when it is due."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from certs.authority import Authority, CertificateError, Pair
from certs.store import LEAF_DAYS, Material, SecretNames, fault, mint, renew_at
from provisioner.apis.core import Secret
from tests.support.certmanager import Issuer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = SecretNames.of_service("hook", "dv", ["127.0.0.1"])
GOOD = mint(NAMES, NOW)
OTHER = mint(NAMES, NOW)


def test_the_names_of_a_service() -> None:
    assert SecretNames.of_service("hook", "dv", ["::1"], ["dev.local"]) == SecretNames(
        ("hook.dv.svc", "hook.dv.svc.cluster.local", "hook.dv", "hook", "dev.local"), ("::1",)
    )


def test_every_mint_has_a_ca_of_its_own() -> None:
    assert GOOD.ca_pem != OTHER.ca_pem
    assert GOOD.fingerprint != OTHER.fingerprint
    assert b"PRIVATE" not in GOOD.ca_pem + GOOD.cert_pem


def test_a_serving_file_reads_back() -> None:
    assert Material.parse(GOOD.pem()) == GOOD
    without_ca = Material(GOOD.cert_pem, GOOD.key_pem, b"")
    assert Material.parse(without_ca.pem()) == without_ca


def test_a_chain_reads_back() -> None:
    chain = Material(GOOD.cert_pem + OTHER.cert_pem, GOOD.key_pem, GOOD.ca_pem)
    assert Material.parse(chain.pem()) == chain


def test_a_chain_of_cert_managers_reads_back() -> None:
    data = Issuer(NOW).issue(["hook.dv.svc"], NOW)
    material = Material.of_secret(Secret(data=data))
    assert fault(material, None, NOW) == ""
    assert Material.parse(material.pem()) == material
    assert material.cert_pem.count(b"BEGIN") == 2


def test_ipv6_addresses_are_the_same_however_they_are_written() -> None:
    """A leaf for ::1 was minted anew in every round where the name was written as 0:0:0:0:0:0:0:1."""
    made = mint(SecretNames((), ("fd00:0:0:0:0:0:0:7",)), NOW)
    assert fault(made, SecretNames((), ("FD00::7",)), NOW) == ""
    assert fault(made, SecretNames((), ("fd00:0:0:0:0:0:0:7",)), NOW) == ""
    assert fault(made, SecretNames((), ("fd00::8",)), NOW) == "it lacks the name fd00::8"


UNREADABLE = {
    "nothing": b"",
    "a certificate without a key": GOOD.cert_pem,
    "a key without a certificate": GOOD.key_pem,
    "damage": GOOD.pem().replace(b"MII", b"XXX"),
}


@pytest.mark.parametrize("pem", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unusable_serving_file_is_an_error(pem: bytes) -> None:
    with pytest.raises(CertificateError, match="serving file"):
        Material.parse(pem)


def test_a_secret_reads_back_and_names_what_it_lacks() -> None:
    assert Material.of_secret(Secret(data=GOOD.data())) == GOOD
    with pytest.raises(CertificateError, match=r"has no tls\.key"):
        Material.of_secret(Secret(data={"tls.crt": GOOD.cert_pem}))


def test_no_repr_shows_a_key() -> None:
    secret_part = GOOD.key_pem.splitlines()[1].decode()
    assert secret_part not in repr(GOOD)
    assert secret_part not in repr(Secret(data=GOOD.data()))


def _swap(**parts: bytes) -> Material:
    whole = {"cert_pem": GOOD.cert_pem, "key_pem": GOOD.key_pem, "ca_pem": GOOD.ca_pem}
    return Material(**{**whole, **parts})


def _client_pair() -> Material:
    authority = Authority.create("ca", NOW, 10)
    pair: Pair = authority.issue_client("someone", (), NOW, 9)
    return Material(pair.cert_pem, pair.key_pem, authority.certificate_pem)


FAULTS: dict[str, tuple[Callable[[], Material], datetime, str]] = {
    "good material": (lambda: GOOD, NOW, ""),
    "good until its end": (lambda: GOOD, NOW + timedelta(days=LEAF_DAYS, seconds=-1), ""),
    "ended": (lambda: GOOD, NOW + timedelta(days=LEAF_DAYS), "it ended at"),
    "good for a clock that is a little behind": (lambda: GOOD, NOW - timedelta(minutes=59), ""),
    "not begun": (lambda: GOOD, NOW - timedelta(minutes=61), "it begins only at"),
    "a key of another certificate": (lambda: _swap(key_pem=OTHER.key_pem), NOW, "belongs to another certificate"),
    "a CA that did not sign it": (lambda: _swap(ca_pem=OTHER.ca_pem), NOW, "did not sign it"),
    "no CA": (lambda: _swap(ca_pem=b""), NOW, "has no ca.crt"),
    "garbage": (lambda: _swap(key_pem=b"garbage"), NOW, "cannot be read"),
    "a missing name": (
        lambda: mint(SecretNames(("hook.dv.svc",)), NOW),
        NOW,
        "lacks the name hook.dv.svc.cluster.local",
    ),
    "a missing address": (lambda: mint(SecretNames(NAMES.dns), NOW), NOW, "lacks the name 127.0.0.1"),
    "no names at all": (_client_pair, NOW, "lacks the name hook.dv.svc"),
}


@pytest.mark.parametrize(("make", "now", "text"), FAULTS.values(), ids=FAULTS)
def test_fault(make: Callable[[], Material], now: datetime, text: str) -> None:
    found = fault(make(), NAMES, now)
    assert found == "" if not text else text in found


LENIENT: dict[str, tuple[dict[str, Any], str]] = {
    "another CA": ({"ca_pem": OTHER.ca_pem}, ""),
    "no CA": ({"ca_pem": b""}, ""),
    "another key": ({"key_pem": OTHER.key_pem}, "another certificate"),
}


@pytest.mark.parametrize(("parts", "text"), LENIENT.values(), ids=LENIENT)
def test_material_of_somebody_else_need_only_fit_together(parts: dict[str, bytes], text: str) -> None:
    assert text in fault(_swap(**parts), None, NOW)
    assert bool(fault(_swap(**parts), None, NOW)) is bool(text)


def test_due_at_two_thirds_less_a_jitter_that_all_compute_alike() -> None:
    due = {renew_at(mint(NAMES, NOW)) for _ in range(20)}
    assert NOW + timedelta(days=55) < min(due) <= max(due) <= NOW + timedelta(days=60)
    assert len(due) == 20
    assert renew_at(GOOD) == renew_at(Material.parse(GOOD.pem()))
