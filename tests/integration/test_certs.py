"""Certificates of two replicas against a real API server: first mint, renewals under load, drift, and foreign Secrets.

Each replica is a `Rotation` with a small TLS server over its file. The client of these tests does what an API server
does: it trusts exactly the `caBundle` of the configuration at that moment, and opens a new connection for each call.
"""

import contextlib
import http.client
import ssl
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from certs.injection import certificates
from certs.mutual import NEXT_CERT, NEXT_KEY, MutualPeers, MutualRotation, Peer
from certs.replicas import FORGET_AFTER, PREFIX, RECORDS_LEASE, Records
from certs.rotation import Rotation, RotationSettings
from certs.serving import ServingContext
from certs.store import CA_KEY, CERT_KEY, PRIVATE_KEY, Material, SecretNames, SecretStore, mint
from provisioner.apis.core import Secret
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.resources import LEASES, MUTATINGWEBHOOKS, NAMESPACES, SECRETS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from tests.support import certmanager
from tests.support.certmanager import Issuer
from tests.support.clock import FakeClock
from tests.support.eventually import PATIENCE, eventually
from webhook.registration import url_client, webhook_configuration

pytestmark = pytest.mark.plane

NAMES = SecretNames(("localhost",), ("127.0.0.1",))


class ShiftedClock(SystemClock):
    """The real time, some days away; shared by all replicas of a test."""

    def __init__(self) -> None:
        super().__init__()
        self.days = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(days=self.days)


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class TlsServer(ThreadingHTTPServer):
    """Serves the present certificate of one file to each new connection."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self._context = ServingContext(path)
        super().__init__(("127.0.0.1", 0), _Answer)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def finish_request(self, request: object, client_address: object) -> None:
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            wrapped = self._context.current().wrap_socket(request, server_side=True)  # type: ignore[arg-type]
            with wrapped:
                super().finish_request(wrapped, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class Fleet:
    """Replicas over one Secret and one configuration, in a namespace of their own."""

    def __init__(self, plane: DevCluster, directory: Path) -> None:
        self.clock = ShiftedClock()
        self.connection = connect(str(plane.kubeconfig), user_agent="test", clock=self.clock)
        self.client = Client(self.connection, self.clock)
        self.directory = directory
        name = f"certs-{uuid.uuid4().hex[:8]}"
        # Nothing listens there, and the namespaces it selects do not exist: other tests never notice it.
        document = webhook_configuration(url_client("https://127.0.0.1:1"), name, name)
        document["webhooks"][0]["namespaceSelector"] = {"matchLabels": {"of": name}}
        self.client.create(MUTATINGWEBHOOKS, document)
        self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.settings = RotationSettings(
            name, "tls", name, NAMES, settle=1.0 * PATIENCE, overlap=1.0 * PATIENCE, lease_seconds=8 * PATIENCE
        )
        self.replicas: dict[str, tuple[Rotation, TlsServer]] = {}

    def prepare(self, identity: str) -> Rotation:
        """A replica that serves what its directory holds, and has asked nobody yet."""
        directory = self.directory / identity
        Rotation.prepare(directory, self.settings.names, self.settings.secret, self.clock.now())
        rotation = Rotation(self.client, self.connection, self.clock, self.settings, directory, identity)
        self.replicas[identity] = (rotation, TlsServer(rotation.path))
        return rotation

    def start(self, identity: str) -> Rotation:
        rotation = self.prepare(identity)
        rotation.start()
        return rotation

    def stop(self, identity: str) -> None:
        rotation, server = self.replicas.pop(identity)
        server.shutdown()
        server.server_close()
        rotation.stop()

    def close(self) -> None:
        for identity in list(self.replicas):
            self.stop(identity)
        self.client.delete(MUTATINGWEBHOOKS, self.settings.configuration)
        self.client.delete(NAMESPACES, self.settings.namespace)
        self.connection.close()

    def bundle(self) -> bytes:
        found = self.client.get(MUTATINGWEBHOOKS, self.settings.configuration)
        return found.webhooks[0].client_config.ca_bundle or b""

    def material(self) -> Material:
        return Material.of_secret(self.client.get(SECRETS, self.settings.secret, self.settings.namespace))

    def call(self, identity: str, bundle: bytes, host: str = "127.0.0.1") -> str:
        """One call as an API server makes it; the fingerprint of who answered."""
        context = ssl.create_default_context(cadata=bundle.decode())
        _, server = self.replicas[identity]
        connection = http.client.HTTPSConnection(host, server.server_address[1], context=context, timeout=5 * PATIENCE)
        try:
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            der = connection.sock.getpeercert(binary_form=True)
            connection.request("GET", "/")
            assert connection.getresponse().status == 204
        finally:
            connection.close()
        return Material(ssl.DER_cert_to_PEM_cert(der or b"").encode(), b"", b"").fingerprint

    def settled(self) -> bool:
        """Whether all is done: one CA trusted, one leaf served by all."""
        secret = self.client.get(SECRETS, self.settings.secret, self.settings.namespace)
        wanted = Material.of_secret(secret)
        if certificates(self.bundle()).keys() != certificates(wanted.ca_pem).keys():
            return False
        return all(
            rotation.served is not None and rotation.served.fingerprint == wanted.fingerprint
            for rotation, _ in self.replicas.values()
        )


@pytest.fixture
def fleet(plane: DevCluster, tmp_path: Path) -> Iterator[Fleet]:
    """No replica yet; all that a test makes is gone afterwards."""
    fleet = Fleet(plane, tmp_path)
    try:
        yield fleet
    finally:
        fleet.close()


def ready(*rotations: Rotation) -> bool:
    return all(not rotation.problem() for rotation in rotations)


def follow(fleet: Fleet, old: str, host: str = "127.0.0.1") -> set[str]:
    """Calls all replicas until everything is settled on another leaf than `old`; every call must succeed.

    Each replica is called at least once while both CAs are trusted, which lasts seconds (`settle` and `overlap`), and once after the last step.
    """
    seen: set[str] = set()
    first = frozenset(certificates(fleet.bundle()))
    trusted: dict[str, set[frozenset[str]]] = {identity: set() for identity in fleet.replicas}

    def call_all() -> None:
        for identity, bundles in trusted.items():
            bundle = fleet.bundle()
            seen.add(fleet.call(identity, bundle, host))
            bundles.add(frozenset(certificates(bundle)))

    def done() -> bool:
        call_all()
        return fleet.material().fingerprint != old and fleet.settled()

    eventually(done, "settled on the new certificate", seconds=40, pause=0.01)
    call_all()
    last = frozenset(certificates(fleet.bundle()))
    assert all({first | last, last} <= bundles for bundles in trusted.values()), (first, last, trusted)
    return seen


def test_the_first_certificate(fleet: Fleet) -> None:
    first, second = fleet.start("one"), fleet.start("two")
    eventually(lambda: ready(first, second) and fleet.bundle(), "both ready, bundle injected")
    wanted = fleet.material().fingerprint
    bundle = fleet.bundle()
    assert {fleet.call("one", bundle), fleet.call("two", bundle)} == {wanted}
    secret = fleet.client.get(SECRETS, "tls", fleet.settings.namespace)
    assert sorted(secret.data) == ["ca.crt", "tls.crt", "tls.key"], "the key of the CA is nowhere"
    assert first.leads != second.leads


def test_a_due_certificate_is_renewed_without_a_failed_call(fleet: Fleet) -> None:
    fleet.clock.days = -61  # its leaf is valid today and due today
    rotations = [fleet.start("one"), fleet.start("two")]
    eventually(lambda: ready(*rotations) and fleet.bundle(), "ready")
    old = fleet.material().fingerprint
    fleet.clock.days = 0
    for rotation in rotations:
        rotation.tick()
    seen = follow(fleet, old)
    assert seen == {old, fleet.material().fingerprint}
    assert len(certificates(fleet.bundle())) == 1, "the old CA is trusted no more"


def test_old_trust_stays_while_a_live_replica_lags(fleet: Fleet) -> None:
    rotations = [fleet.start("one"), fleet.start("two")]
    eventually(lambda: ready(*rotations) and fleet.settled(), "ready")
    old = fleet.material()
    third = Records(fleet.client, fleet.clock, fleet.settings.namespace, "three", fleet.settings.lease_seconds)
    third.publish(old.fingerprint)
    fleet.client.delete(SECRETS, "tls", fleet.settings.namespace)
    eventually(
        lambda: all(r.served and r.served.fingerprint != old.fingerprint for r, _ in fleet.replicas.values()), "moved"
    )
    assert certificates(old.ca_pem).keys() <= certificates(fleet.bundle()).keys()
    eventually(fleet.settled, "the third's record ran out, its CA is pruned", seconds=30)


def test_the_next_leader_ends_what_the_former_began(fleet: Fleet) -> None:
    rotations = {name: fleet.start(name) for name in ("one", "two")}
    eventually(lambda: ready(*rotations.values()) and fleet.settled(), "ready")
    leader = next(name for name, rotation in rotations.items() if rotation.leads)
    old = fleet.material().fingerprint
    fleet.client.delete(SECRETS, "tls", fleet.settings.namespace)
    eventually(lambda: len(certificates(fleet.bundle())) == 2, "the overlap has begun")
    fleet.stop(leader)
    assert follow(fleet, old)
    (rest,) = fleet.replicas
    assert fleet.replicas[rest][0].leads


def test_a_damaged_secret_is_made_anew(fleet: Fleet) -> None:
    rotation = fleet.start("one")
    eventually(lambda: ready(rotation) and fleet.settled(), "ready")
    old = fleet.material().fingerprint
    fleet.client.patch(SECRETS, "tls", {"data": {"tls.key": b"garbage"}}, fleet.settings.namespace)
    assert follow(fleet, old)


def test_two_writers_adopt_one_secret(fleet: Fleet) -> None:
    store = SecretStore(fleet.client, fleet.settings.namespace, "tls")
    now = fleet.clock.now()
    first = store.create_or_adopt(mint(NAMES, now))
    assert store.create_or_adopt(mint(NAMES, now)) == first
    second = store.replace(first, mint(NAMES, now))
    assert store.replace(first, mint(NAMES, now)) == second, "a stale writer gets what is there"


def test_a_restart_takes_up_what_was_served(fleet: Fleet) -> None:
    rotation = fleet.start("one")
    eventually(lambda: ready(rotation) and fleet.settled(), "ready")
    before = rotation.path.read_bytes()
    fleet.stop("one")
    again = fleet.prepare("one")
    assert again.path.read_bytes() == before
    assert not ready(again), "not before the Secret was seen"
    again.start()
    eventually(lambda: ready(again), "ready again")
    assert again.path.read_bytes() == before


def test_a_secret_of_somebody_else_is_only_read(fleet: Fleet) -> None:
    fleet.settings = replace(fleet.settings, names=None)
    rotation = fleet.start("one")
    eventually(lambda: rotation.leads, "leading")
    assert rotation.problem()
    foreign = mint(NAMES, fleet.clock.now())
    store = SecretStore(fleet.client, fleet.settings.namespace, "tls")
    store.create_or_adopt(foreign)
    eventually(lambda: ready(rotation) and fleet.settled(), "served and trusted")
    renewed = mint(NAMES, fleet.clock.now())
    current: Secret | None = store.get()
    assert current is not None
    store.replace(current, renewed)
    assert follow(fleet, foreign.fingerprint) == {foreign.fingerprint, renewed.fingerprint}
    assert fleet.material() == renewed


@pytest.mark.parametrize("told", [True, False], ids=["told so", "found so"])
def test_a_secret_of_cert_managers_is_adopted_and_followed_without_a_failed_call(fleet: Fleet, told: bool) -> None:
    """It renews through the same intermediate, then from another root; we write caBundle only, also where nobody told us whose it is."""
    if told:
        fleet.settings = replace(fleet.settings, names=None)
    now = fleet.clock.now()
    first = Issuer(now - timedelta(days=100))
    dns = ["localhost", f"tls.{fleet.settings.namespace}.svc"]

    def apply(data: dict[str, bytes]) -> None:
        made = certmanager.secret("tls", data, dns)
        fleet.client.apply(SECRETS, "tls", made, "cert-manager-certificates-issuing", fleet.settings.namespace)

    def follow_to(data: dict[str, bytes]) -> None:
        old = fleet.material().fingerprint
        apply(data)
        new = Material(data["tls.crt"], b"", b"").fingerprint
        assert new in follow(fleet, old, host="localhost") <= {old, new}

    apply(first.issue(dns, now - timedelta(days=61)))  # due by our own rule
    rotations = [fleet.start("one"), fleet.start("two")]
    eventually(lambda: ready(*rotations) and fleet.settled(), "served and trusted")
    follow_to(first.issue(dns, now - timedelta(minutes=1)))
    follow_to(Issuer(now - timedelta(days=1), "another").issue(dns, now - timedelta(minutes=1)))
    found = fleet.client.get(SECRETS, "tls", fleet.settings.namespace)
    assert found.metadata.annotations == certmanager.annotations("tls", dns, "corporate"), "nobody else wrote it"


def test_what_cert_manager_let_end_is_taken_over(fleet: Fleet) -> None:
    now = fleet.clock.now()
    data = Issuer(now - timedelta(days=200)).issue(["localhost"], now - timedelta(days=91))
    made = certmanager.secret("tls", data, ["localhost"])
    fleet.client.apply(SECRETS, "tls", made, "cert-manager-certificates-issuing", fleet.settings.namespace)
    rotation = fleet.start("one")
    eventually(lambda: ready(rotation) and fleet.settled(), "ready")
    found = fleet.client.get(SECRETS, "tls", fleet.settings.namespace)
    assert "cert-manager.io/certificate-name" not in found.metadata.annotations
    fleet.call("one", fleet.bundle())


def test_a_jump_of_one_year_is_answered_by_a_new_certificate_for_all(fleet: Fleet) -> None:
    """Everything ended at once, so there is nothing to overlap with: every replica moves as soon as the new CA is there."""
    fleet.clock.days = -365
    rotations = [fleet.start("one"), fleet.start("two")]
    eventually(lambda: ready(*rotations) and fleet.settled(), "ready")
    old = fleet.material().fingerprint
    fleet.clock.days = 0
    assert all("it ended at" in rotation.problem() for rotation in rotations)
    eventually(lambda: fleet.material().fingerprint != old and fleet.settled(), "a new certificate", 30.0)
    eventually(lambda: ready(*rotations), "ready")
    bundle = fleet.bundle()
    assert {fleet.call(name, bundle) for name in fleet.replicas} == {fleet.material().fingerprint}


def test_both_replicas_restart_at_once(fleet: Fleet) -> None:
    for name in ("one", "two"):
        fleet.start(name)
    eventually(lambda: ready(*(rotation for rotation, _ in fleet.replicas.values())) and fleet.settled(), "ready")
    old, bundle = fleet.material().fingerprint, fleet.bundle()
    for name in ("one", "two"):
        fleet.stop(name)
    again = [fleet.start(name) for name in ("one", "two")]
    assert {fleet.call(name, bundle) for name in fleet.replicas} == {old}, "served before anything was read"
    eventually(lambda: ready(*again) and fleet.settled(), "ready again")
    assert fleet.material().fingerprint == old
    assert fleet.bundle() == bundle


def test_a_bundle_that_cert_manager_keeps_is_left_alone(fleet: Fleet) -> None:
    patch = {"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "a/b"}}}
    fleet.client.patch(MUTATINGWEBHOOKS, fleet.settings.configuration, patch)
    rotation = fleet.start("one")
    eventually(lambda: ready(rotation), "ready")
    eventually(lambda: rotation.leads, "leading")
    rotation.tick()
    assert fleet.bundle() == b""


def test_nothing_is_written_where_secret_and_bundle_are_somebody_elses(fleet: Fleet) -> None:
    fleet.settings = replace(fleet.settings, names=None, inject=False)
    foreign = mint(NAMES, fleet.clock.now())
    SecretStore(fleet.client, fleet.settings.namespace, "tls").create_or_adopt(foreign)
    reader = Client(fleet.connection, fleet.clock)
    path = fleet.directory / "reader"
    Rotation.prepare(path, None, "tls", fleet.clock.now())
    rotation = Rotation(reader, fleet.connection, fleet.clock, fleet.settings, path, "reader")
    rotation.start()
    try:
        eventually(lambda: ready(rotation), "ready")
        rotation.tick()
        assert rotation.served == foreign
        assert not reader.writes
        assert fleet.bundle() == b""
    finally:
        rotation.stop()
    assert not reader.writes


def test_an_empty_secret_that_is_there_already_is_filled(fleet: Fleet) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}}
    made = fleet.client.create(SECRETS, body, fleet.settings.namespace)
    rotation = fleet.start("one")
    eventually(lambda: ready(rotation) and fleet.settled(), "ready")
    assert fleet.client.get(SECRETS, "tls", fleet.settings.namespace).metadata.uid == made.metadata.uid


def records(fleet: Fleet) -> dict[str, str]:
    found = fleet.client.get(LEASES, RECORDS_LEASE, fleet.settings.namespace).metadata.annotations
    return {key.removeprefix(PREFIX): text for key, text in found.items() if key.startswith(PREFIX)}


def test_records_of_replicas_come_and_go(fleet: Fleet) -> None:
    fleet.settings = replace(fleet.settings, lease_seconds=PATIENCE)
    left = Records(fleet.client, fleet.clock, fleet.settings.namespace, "killed", PATIENCE)
    left.publish("f")
    rotations = [fleet.start("one"), fleet.start("two")]
    eventually(lambda: ready(*rotations) and fleet.settled(), "ready")
    eventually(lambda: records(fleet).keys() == {"killed", "one", "two"}, lambda: records(fleet))
    eventually(lambda: records(fleet).keys() == {"one", "two"}, "the killed one is forgotten", FORGET_AFTER + 20)
    fleet.stop("two")
    assert records(fleet).keys() == {"one"}


def test_both_ends_of_a_connection_are_staged_moved_and_pruned(plane: DevCluster) -> None:
    """`MutualRotation` by patches that take keys out of Secrets; each stage is what the API server has kept."""
    clock = FakeClock(SystemClock().now())
    client = Client(connect(str(plane.kubeconfig), user_agent="test"), SystemClock())
    namespace, ends = (
        f"certs-{uuid.uuid4().hex[:8]}",
        MutualPeers(Peer("server", NAMES), Peer("client", SecretNames(("c",))), "test-ca"),
    )
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for name in ("server", "client"):
        client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}, namespace)
    rotation = MutualRotation(client, clock, namespace, ends)

    def stored() -> list[Mapping[str, bytes]]:
        return [client.get(SECRETS, name, namespace).data for name in ("server", "client")]

    def polled() -> list[Mapping[str, bytes]]:
        """What the next write leaves."""
        before = stored()
        for _ in range(40):
            clock.advance(rotation.poll())
            if (now := stored()) != before:
                return now
        raise AssertionError("nothing is written")

    in_use, staging = {CA_KEY, CERT_KEY, PRIVATE_KEY}, {NEXT_CERT, NEXT_KEY}
    minted = polled()
    clock.advance(61 * 86400)
    staged, moved, pruned = polled(), polled(), polled()
    for before, beside, after, end in zip(minted, staged, moved, pruned, strict=True):
        assert before.keys() == after.keys() == end.keys() == in_use
        assert beside.keys() == in_use | staging
        assert beside[CERT_KEY] == before[CERT_KEY]
        assert (after[CERT_KEY], after[PRIVATE_KEY]) == (beside[NEXT_CERT], beside[NEXT_KEY])
        assert [len(certificates(one[CA_KEY])) for one in (before, beside, after, end)] == [1, 2, 2, 1]
        assert end[CERT_KEY] == after[CERT_KEY]
    quiet = stored()
    for _ in range(40):
        clock.advance(rotation.poll())
    assert stored() == quiet
