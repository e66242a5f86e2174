"""The decisions of a rotation; the loop itself is tested against a real API server."""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from certs.injection import certificates, inject, merge
from certs.replicas import Replica
from certs.rotation import (
    Rotation,
    RotationSettings,
    lagging,
    may_serve,
    reason_not_trusted,
    reason_to_mint,
    wanted_bundle,
)
from certs.store import Material, SecretNames, SecretStore, mint, renew_at
from provisioner.apis.core import MutatingWebhookConfiguration, Secret
from provisioner.apis.meta import ObjectMeta
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection
from provisioner.kube.lease import LostLease
from tests.support.certmanager import Issuer, annotations
from tests.support.clock import FakeClock
from tests.support.eventually import eventually
from tests.support.kube import FakeAnswer, FakeApi
from tests.unit.certs.test_injection import configuration
from tests.unit.kube.test_lease import LeaseServer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = SecretNames(("hook.dv.svc",))
OLD, NEW = mint(NAMES, NOW), mint(NAMES, NOW)
PUBLIC = Material(NEW.cert_pem, NEW.key_pem, b"")


def test_when_to_mint() -> None:
    good = Secret(data=OLD.data())
    assert reason_to_mint(None, NAMES, NOW) == "the Secret does not exist"
    assert reason_to_mint(good, NAMES, NOW) == ""
    assert reason_to_mint(good, NAMES, renew_at(OLD) - timedelta(seconds=1)) == ""
    assert "it was due at" in reason_to_mint(good, NAMES, renew_at(OLD))
    assert "it ended at" in reason_to_mint(good, NAMES, NOW + timedelta(days=91))
    assert "lacks the name other" in reason_to_mint(good, SecretNames(("other",)), NOW)
    assert "has no tls.crt" in reason_to_mint(Secret(), NAMES, NOW)


def issued(age: timedelta) -> Secret:
    """By cert-manager, that long ago, through an intermediate."""
    data = Issuer(NOW - timedelta(days=400)).issue(["hook.dv.svc"], NOW - age)
    return Secret(metadata=ObjectMeta(name="tls", annotations=annotations("tls", ["hook.dv.svc"], "c")), data=data)


@pytest.mark.parametrize("age", [timedelta(), timedelta(days=61), timedelta(days=89)], ids=str)
def test_what_cert_manager_issued_is_cert_managers_to_renew(age: timedelta) -> None:
    """Its ca.crt did not sign the leaf, an intermediate did; and two writers would undo each other for ever."""
    assert reason_to_mint(issued(age), NAMES, NOW) == ""


def test_what_cert_manager_let_end_is_made_anew() -> None:
    assert "it ended at" in reason_to_mint(issued(timedelta(days=91)), NAMES, NOW)
    gone = issued(timedelta())
    gone.data.pop("tls.key")
    assert "has no tls.key" in reason_to_mint(gone, NAMES, NOW)


def test_a_secret_that_is_taken_over_is_no_longer_cert_managers() -> None:
    api = FakeApi(respond=lambda _: FakeAnswer(data=b"{}"))
    store = SecretStore(Client(api, FakeClock()), "dv", "tls")
    store.replace(issued(timedelta(days=91)), NEW)
    store.replace(Secret(data=OLD.data()), NEW)
    taken, own = (cast("dict[str, dict[str, object]]", sent.body)["metadata"] for sent in api.sent)
    assert taken["annotations"] == {"cert-manager.io/certificate-name": None}
    assert "annotations" not in own


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


def test_a_leaf_that_the_bundle_does_not_hold_is_no_reason_to_send_calls_here() -> None:
    """It was ready all the same, and every call that came here failed."""
    both = merge([OLD.ca_pem, NEW.ca_pem])
    assert "does not contain the CA" in reason_not_trusted(OLD, configuration(NEW.ca_pem))
    assert "does not contain the CA" in reason_not_trusted(OLD, configuration(b""))
    assert reason_not_trusted(OLD, configuration(both)) == ""
    assert reason_not_trusted(OLD, None) == "", "nobody calls"
    assert reason_not_trusted(PUBLIC, configuration(b"")) == "", "the system's own CAs are trusted then"
    theirs = configuration(NEW.ca_pem)
    theirs.metadata.annotations["cert-manager.io/inject-ca-from"] = "n/c"
    assert reason_not_trusted(OLD, theirs) == ""


def test_a_replica_with_such_a_leaf_is_not_ready(tmp_path: Path) -> None:
    clock = FakeClock()
    api = FakeApi(clock=clock)
    settings = RotationSettings("dovetail-system", "tls", "hook", NAMES)
    rotation = Rotation(Client(api, clock), cast("ApiConnection", api), clock, settings, tmp_path, "replica-1")
    mine = mint(NAMES, clock.now())
    rotation._served, rotation._delivered, rotation._published = mine, True, ("", clock.monotonic())
    problems = []
    for trusted in ((NEW.ca_pem,), (NEW.ca_pem, mine.ca_pem)):
        rotation._configurations.store.put("hook", configuration(merge(list(trusted))))
        problems.append(rotation.problem())
    assert "does not contain the CA" in problems[0]
    assert problems[1] == ""


def test_every_webhook_has_to_trust_what_is_served() -> None:
    found = configuration(OLD.ca_pem, NEW.ca_pem)
    assert "does not contain the CA" in reason_not_trusted(OLD, found)


def test_who_lags() -> None:
    replicas = [Replica("a", "new", live=True), Replica("b", "old", live=True), Replica("c", "old", live=False)]
    assert lagging(replicas, "new", own="a") == ("b",)
    assert lagging(replicas[:1], "new", own="a") == ()
    assert lagging(replicas[:1], "new", own="z") == ("z",)
    assert lagging([], "new", own="a") == ("a",)


def test_what_belongs_to_others_needs_no_leader() -> None:
    assert RotationSettings("ns", "tls", "conf", NAMES).writes
    assert RotationSettings("ns", "tls", "conf", None).writes
    assert RotationSettings("ns", "tls", "conf", NAMES, inject=False).writes
    assert not RotationSettings("ns", "tls", "conf", None, inject=False).writes


def test_a_replica_that_lost_its_term_lives_on_and_stands_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Lease that cannot be decoded for longer than a term lasts; meanwhile the replica writes nothing as the leader."""
    monkeypatch.setattr("certs.rotation.STAND_AGAIN_SECONDS", 0.05)
    clock, server = FakeClock(), LeaseServer()
    garbled = threading.Event()
    api = FakeApi(
        respond=lambda sent: FakeAnswer(data=b"{]") if garbled.is_set() else server.respond(sent), clock=clock
    )
    settings = RotationSettings("dovetail-system", "tls", "hook", NAMES)
    rotation = Rotation(Client(api, clock), cast("ApiConnection", api), clock, settings, tmp_path, "replica-1")
    rotation._elector.retry_period = 0.05
    thread = threading.Thread(target=rotation._lead, daemon=True)
    thread.start()
    eventually(lambda: rotation.leads, "it leads")
    rotation._term.check()
    garbled.set()
    clock.advance(21)
    assert not rotation.leads
    for write in (
        lambda: rotation._store.create_or_adopt(NEW),
        lambda: inject(rotation._leading, configuration(OLD.ca_pem), NEW.ca_pem),
    ):
        with pytest.raises(LostLease):
            write()
    eventually(lambda: rotation._term._fence is None, "it knows that its term is over")
    garbled.clear()
    eventually(lambda: rotation.leads, "it leads again")
    assert thread.is_alive()
    rotation._stopping.set()
    rotation._elector.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert server.holder == ""
