"""The decisions of a rotation; the loop itself is tested against a real API server."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from certs.injection import certificates, merge
from certs.rotation import Replica, lagging, may_serve, reason_to_mint, replica_of, wanted_bundle
from certs.store import Material, Names, mint, renew_at
from provisioner.apis.core import Lease, LeaseSpec, MutatingWebhookConfiguration, Secret
from provisioner.apis.meta import ObjectMeta
from tests.unit.certs.test_injection import configuration

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = Names(("hook.dv.svc",))
OLD, NEW = mint(NAMES, NOW), mint(NAMES, NOW)
PUBLIC = Material(NEW.cert_pem, NEW.key_pem, b"")


def test_when_to_mint() -> None:
    good = Secret(data=OLD.data())
    assert reason_to_mint(None, NAMES, NOW) == "there is no Secret"
    assert reason_to_mint(good, NAMES, NOW) == ""
    assert reason_to_mint(good, NAMES, renew_at(OLD) - timedelta(seconds=1)) == ""
    assert "it was due at" in reason_to_mint(good, NAMES, renew_at(OLD))
    assert "it ended at" in reason_to_mint(good, NAMES, NOW + timedelta(days=91))
    assert "lacks the name other" in reason_to_mint(good, Names(("other",)), NOW)
    assert "has no tls.crt" in reason_to_mint(Secret(), NAMES, NOW)


@dataclass(frozen=True)
class Move:
    """A replica that serves OLD (unless said otherwise) and a Secret that holds NEW."""

    want: bool
    bundle: bytes | None = None
    served: Material | None = OLD
    wanted: Material = NEW
    trusted_for: float = 10.0
    configured: bool = True


MOVES = {
    "the first certificate at once": Move(True, served=None),
    "the same certificate never": Move(False, served=NEW, bundle=NEW.ca_pem),
    "not before the new CA is trusted": Move(False, bundle=OLD.ca_pem),
    "not before the trust has settled": Move(False, bundle=OLD.ca_pem + NEW.ca_pem, trusted_for=4.9),
    "when both are trusted long enough": Move(True, bundle=OLD.ca_pem + NEW.ca_pem, trusted_for=5.0),
    "at once where nobody trusts what is served": Move(True, bundle=b"", trusted_for=0.0),
    "at once where only the new CA is trusted": Move(True, bundle=NEW.ca_pem, trusted_for=0.0),
    "at once where nobody calls": Move(True, configured=False, trusted_for=0.0),
    "at once where the Secret names no CA": Move(True, wanted=PUBLIC, bundle=OLD.ca_pem, trusted_for=0.0),
}


@pytest.mark.parametrize("case", MOVES.values(), ids=MOVES)
def test_when_a_replica_moves(case: Move) -> None:
    found: MutatingWebhookConfiguration | None = configuration(case.bundle) if case.configured else None
    assert may_serve(case.served, case.wanted, found, case.trusted_for, settle=5.0) is case.want


def test_every_webhook_must_trust_the_new_ca() -> None:
    found = configuration(OLD.ca_pem + NEW.ca_pem, OLD.ca_pem)
    assert not may_serve(OLD, NEW, found, 10.0, settle=5.0)


def test_the_bundle_overlaps_until_everyone_moved() -> None:
    present = configuration(OLD.ca_pem)
    assert wanted_bundle(NEW, present, OLD, everyone_moved=False) == merge([OLD.ca_pem, NEW.ca_pem])
    assert wanted_bundle(NEW, present, OLD, everyone_moved=True) == merge([NEW.ca_pem])


def test_an_emptied_bundle_gets_back_what_is_served() -> None:
    bundle = wanted_bundle(NEW, configuration(b""), OLD, everyone_moved=False)
    assert certificates(bundle).keys() == certificates(OLD.ca_pem + NEW.ca_pem).keys()


def test_without_a_ca_there_is_no_bundle() -> None:
    assert wanted_bundle(PUBLIC, configuration(OLD.ca_pem), OLD, everyone_moved=False) == b""


def test_who_lags() -> None:
    replicas = [Replica("a", "new", live=True), Replica("b", "old", live=True), Replica("c", "old", live=False)]
    assert lagging(replicas, "new", own="a") == ("b",)
    assert lagging(replicas[:1], "new", own="a") == ()
    assert lagging(replicas[:1], "new", own="z") == ("z",)
    assert lagging([], "new", own="a") == ("a",)


def lease(renewed: str | None, seconds: int | None = 120) -> Lease:
    metadata = ObjectMeta(name="r", annotations={"dovetail.dev/serving": "f"})
    return Lease(metadata=metadata, spec=LeaseSpec(renew_time=renewed, lease_duration_seconds=seconds))


LEASES = {
    "renewed in time": (lease("2025-12-31T23:58:00.000000Z"), True),
    "run out": (lease("2025-12-31T23:57:59.000000Z"), False),
    "without a time": (lease(None), False),
    "without a duration": (lease("2025-12-31T23:59:59.000000Z", None), False),
    "with a time that is none": (lease("yesterday"), False),
}


@pytest.mark.parametrize(("found", "live"), LEASES.values(), ids=LEASES)
def test_a_replica_is_live_while_its_lease_is(found: Lease, live: bool) -> None:
    assert replica_of(found, NOW) == Replica("r", "f", live)
