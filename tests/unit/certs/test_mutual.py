"""Certificates of both ends of a connection: what is decided, and whole rotations with TLS handshakes after every write."""

import base64
import hashlib
import logging
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from certs.mutual import NEXT_CERT, SETTLE_SECONDS, Act, MutualPeers, MutualRotation, Peer, decide
from certs.store import CA_KEY, CERT_KEY, PRIVATE_KEY, SecretNames, mint
from provisioner.apis import names as api_names
from provisioner.apis.core import Secret
from provisioner.apis.meta import ObjectMeta
from provisioner.kube.client import Client
from provisioner.simulator.api_server import ApiServer, Wire
from provisioner.support.clock import SystemClock
from tests.support.clock import NOON, FakeClock
from tests.support.kube import FakeAnswer, FakeApi, Sent, refusal

DUE_DAYS = 61
SERVER_NAME = "dovetail-provisioner.dovetail-system.svc"
ENDS = MutualPeers(
    Peer("server", SecretNames((SERVER_NAME,))),
    Peer("client", SecretNames(("dovetail-scheduler",))),
    "dovetail-test-ca",
)
CERT_MANAGER = {
    "cert-manager.io/alt-names": SERVER_NAME,
    "cert-manager.io/certificate-name": "dovetail-report-server",
    "cert-manager.io/common-name": SERVER_NAME,
    "cert-manager.io/ip-sans": "",
    "cert-manager.io/issuer-group": "",
    "cert-manager.io/issuer-kind": "Issuer",
    "cert-manager.io/issuer-name": "dovetail-report-ca",
    "cert-manager.io/uri-sans": "",
}


def _nothing() -> None: ...


class Server:
    """Two Secrets behind the API, and what kubelets made of them: files that follow only when asked to."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock(SystemClock().now() - timedelta(days=DUE_DAYS))  # handshakes go by OpenSSL's
        self.behind = ApiServer(self.clock)
        for name in ("server", "client"):
            of: Wire = {"name": name, "namespace": "ns", "annotations": {}}
            self.behind.store("secrets", {"metadata": of, "data": {}})
        self.api = FakeApi(respond=self.respond, clock=self.clock)
        self.rotation = self.next_leader()
        self.directory = directory
        self.writes = 0
        self.fail_after: int | None = None
        self.after_write: Callable[[], None] = _nothing

    def next_leader(self) -> MutualRotation:
        self.rotation = MutualRotation(Client(self.api, self.clock), self.clock, "ns", ENDS)
        return self.rotation

    def respond(self, sent: Sent) -> FakeAnswer:
        if sent.method == "PATCH":
            if self.fail_after is not None and self.writes >= self.fail_after:
                return refusal(500, "InternalError")
            assert "resourceVersion" in sent.body["metadata"]
        answer = self.behind.answer(sent, self)
        if sent.method == "PATCH" and answer.status == 200:
            self.writes += 1
            self.after_write()
        return answer

    def data(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.secret(name)["data"].items()}

    def secret(self, name: str) -> Wire:
        return self.behind.objects["secrets"][f"ns/{name}"]

    def deliver(self, *names: str) -> None:
        """What a kubelet does for one pod: another directory takes the place of the former in one step."""
        for name in names or ("server", "client"):
            made = Path(tempfile.mkdtemp(dir=self.directory))
            for key, value in self.data(name).items():
                (made / key).write_bytes(value)
            link = made.with_suffix(".link")
            link.symlink_to(made)
            link.replace(self.directory / name)

    def shake_hands(self) -> None:
        """One connection with what is in the files; raises where an end refuses the other."""
        server, client = self.directory / "server", self.directory / "client"
        answers = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        answers.load_cert_chain(server / CERT_KEY, server / PRIVATE_KEY)
        answers.load_verify_locations(server / CA_KEY)
        answers.verify_mode = ssl.CERT_REQUIRED
        asks = ssl.create_default_context(cafile=str(client / CA_KEY))
        asks.load_cert_chain(client / CERT_KEY, client / PRIVATE_KEY)
        here, there = socket.socketpair()
        problems: list[Exception] = []

        def answer() -> None:
            try:
                with answers.wrap_socket(here, server_side=True) as connection:
                    connection.sendall(b"x")
            except ssl.SSLError as error:
                problems.append(error)

        thread = threading.Thread(target=answer)
        thread.start()
        with asks.wrap_socket(there, server_hostname=SERVER_NAME) as connection:
            assert connection.recv(1) == b"x"
        thread.join(10)
        assert not problems

    def round(self) -> float:
        seconds = self.rotation.poll()
        self.clock.advance(seconds)
        return seconds


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def leaf(server: Server, name: str) -> bytes:
    return server.data(name)[CERT_KEY]


def test_empty_secrets_are_filled_and_belong_together(server: Server) -> None:
    server.round()
    server.deliver()
    server.shake_hands()
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(leaf(server, "server").decode())).hexdigest()
    assert server.secret("server")["metadata"]["annotations"] == {api_names.ROTATED_ANNOTATION: fingerprint}
    assert sorted(server.data("server")) == sorted(server.data("client")) == [CA_KEY, CERT_KEY, PRIVATE_KEY]
    before = server.writes
    server.round()
    assert server.writes == before, "nothing more to do"


@pytest.mark.parametrize("leaders", [1, 20], ids=["one leader", "twenty leaders"])
def test_a_renewal_never_refuses_a_connection_whatever_a_kubelet_has_brought(server: Server, leaders: int) -> None:
    """Each pod has the files of before or after the last write, in every combination."""
    server.round()
    server.deliver()
    old = leaf(server, "server")
    server.clock.advance(DUE_DAYS * 86400)
    hands = 0

    def shake() -> None:
        nonlocal hands
        server.shake_hands()
        hands += 1

    def each_way() -> None:
        shake()  # neither pod has what was written
        server.deliver("server")
        shake()
        server.deliver("client")
        shake()

    server.after_write = each_way
    for number in range(200):
        if number % 3 == 0 and number < 3 * (leaders - 1):
            server.next_leader()
        server.round()
    assert leaf(server, "server") != old
    assert server.data("server")[CA_KEY].count(b"BEGIN") == 1
    assert server.data("server").keys() == {CA_KEY, CERT_KEY, PRIVATE_KEY}
    assert hands >= 15, "three writes to each"


@pytest.mark.parametrize("crash", range(8))
def test_a_leader_that_ends_between_two_writes_leaves_what_the_next_one_completes(server: Server, crash: int) -> None:
    server.round()
    server.deliver()
    server.clock.advance(DUE_DAYS * 86400)
    old = leaf(server, "client")
    server.writes, server.fail_after = 0, crash

    def deliver() -> None:
        server.deliver()
        server.shake_hands()

    server.after_write = deliver
    for _ in range(100):
        try:
            server.round()
        except Exception:  # noqa: BLE001 - the leader ends
            server.fail_after = None
            server.next_leader()
    assert server.data("server")[CA_KEY] == server.data("client")[CA_KEY]
    assert server.data("client")[CA_KEY].count(b"BEGIN") == 1
    assert leaf(server, "client") != old


def test_the_clock_jumps_a_year_and_all_is_made_anew_at_once(server: Server) -> None:
    server.round()
    old = leaf(server, "server")
    server.clock.advance(365 * 86400)
    server.round()
    assert leaf(server, "server") != old
    assert server.data("server")[CA_KEY] == server.data("client")[CA_KEY]


def test_nothing_moves_before_kubelets_had_their_time(server: Server) -> None:
    server.round()
    server.clock.advance(DUE_DAYS * 86400)
    old = leaf(server, "server")
    server.round()
    assert NEXT_CERT in server.data("server")
    staged_at = server.clock.monotonic()
    while leaf(server, "server") == old:
        server.round()
    assert server.clock.monotonic() - staged_at >= SETTLE_SECONDS


def test_an_end_that_reads_the_ca_only_when_it_starts_has_days_to_be_restarted(server: Server) -> None:
    server.rotation._ends = replace(ENDS, staged_for=timedelta(days=15))
    server.round()
    server.clock.advance(DUE_DAYS * 86400)
    old = leaf(server, "server")
    server.round()
    assert NEXT_CERT in server.data("server")
    server.clock.advance(14 * 86400)
    for _ in range(30):
        server.round()
    assert leaf(server, "server") == old, "what it has trusted since it started is served still"
    server.clock.advance(86400)
    for _ in range(30):
        server.round()
    assert leaf(server, "server") != old
    assert NEXT_CERT not in server.data("server")


def secret(data: Mapping[str, bytes], annotations: Mapping[str, str] | None = None) -> Secret:
    return Secret(metadata=ObjectMeta(name="server", annotations=dict(annotations or {})), data=dict(data))


FOREIGN = {
    "cert-manager's": secret(mint(SecretNames((SERVER_NAME,)), NOON).data(), CERT_MANAGER),
    "cert-manager's, issued over ours": secret(
        mint(SecretNames((SERVER_NAME,)), NOON).data(), {**CERT_MANAGER, api_names.ROTATED_ANNOTATION: "true"}
    ),
    "expired ones of cert-manager's": secret(
        mint(SecretNames((SERVER_NAME,)), NOON - timedelta(days=100)).data(), CERT_MANAGER
    ),
    "made by hand": secret(mint(SecretNames((SERVER_NAME,)), NOON).data()),
    "made by hand, incomplete": secret({CERT_KEY: b"x"}),
}


@pytest.mark.parametrize("found", FOREIGN.values(), ids=FOREIGN)
def test_what_others_made_is_never_written(found: Secret) -> None:
    assert decide(ENDS, found, Secret(), NOON, 1e6).act is Act.REST
    assert decide(ENDS, Secret(), found, NOON, 1e6).act is Act.REST
    assert decide(ENDS, Secret(), Secret(), NOON, 1e6).act is Act.MINT


@pytest.mark.parametrize("name", ["server", "client"])
def test_a_secret_that_is_not_there_is_not_made(server: Server, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Reports are optional; no role of ours may create a Secret. Who forgot one of the two is told so, once."""
    caplog.set_level(logging.INFO)
    server.behind.drop("secrets", name, "ns")
    server.round()
    server.round()
    other = {"server": "client", "client": "server"}[name]
    said = [str(getattr(record, "fields", {})) for record in caplog.records]
    assert [f"Secret ns/{name} does not exist, so Secret {other} gets no certificate" in one for one in said] == [True]
    server.behind.drop("secrets", other, "ns")
    caplog.clear()
    server.round()
    assert not caplog.records
    assert not server.writes


@pytest.mark.parametrize("renewals", [0, 1], ids=["after the mint", "after a renewal"])
@pytest.mark.parametrize("name", ["server", "client"])
def test_what_a_user_applies_over_ours_is_never_written(server: Server, name: str, renewals: int) -> None:
    """`kubectl apply` replaces the data and keeps our annotation."""
    server.round()
    for _ in range(renewals):
        server.clock.advance(DUE_DAYS * 86400)
        old = leaf(server, name)
        while leaf(server, name) == old:
            server.round()
    own = mint(SecretNames((SERVER_NAME,)), server.clock.now()).data()
    server.secret(name)["data"] |= {key: base64.b64encode(value).decode() for key, value in own.items()}
    before = server.writes
    for days in (0, DUE_DAYS, 365):
        server.clock.advance(days * 86400)
        server.next_leader()
        server.round()
    assert server.writes == before
    assert leaf(server, name) == own[CERT_KEY]
    server.secret(name)["data"].clear()
    server.round()
    assert leaf(server, name) != own[CERT_KEY], "emptied by hand: ours again"
    assert server.writes > before


@pytest.mark.parametrize("key", [CERT_KEY, PRIVATE_KEY, CA_KEY])
@pytest.mark.parametrize("name", ["server", "client"])
def test_damage_is_mended_at_once(server: Server, name: str, key: str) -> None:
    server.round()
    server.secret(name)["data"][key] = base64.b64encode(b"garbage").decode()
    server.round()
    server.deliver()
    server.shake_hands()
