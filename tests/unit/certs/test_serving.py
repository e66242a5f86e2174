"""The TLS context follows its file and survives a bad one."""

import itertools
import socket
import ssl
import stat
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from certs.serving import ServingContext, write_atomically
from certs.store import Material, SecretNames, mint
from provisioner.support.clock import SystemClock

NAMES = SecretNames(("localhost",))


def new_material() -> Material:
    return mint(NAMES, SystemClock().now() - timedelta(minutes=1))


def served_certificate(context: ssl.SSLContext) -> bytes:
    """The leaf that a client is shown, PEM."""
    here, there = socket.socketpair()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    thread = threading.Thread(target=lambda: context.wrap_socket(here, server_side=True).close())
    thread.start()
    with client.wrap_socket(there, suppress_ragged_eofs=True) as connection:
        der = connection.getpeercert(binary_form=True)
    thread.join()
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der).encode()


def test_a_file_that_stays_is_loaded_once(tmp_path: Path) -> None:
    path = tmp_path / "tls.pem"
    write_atomically(path, new_material().pem())
    context = ServingContext(path)
    assert context.current() is context.current()


def test_a_new_file_is_served_from_the_next_connection_on(tmp_path: Path) -> None:
    path = tmp_path / "tls.pem"
    first, second = new_material(), new_material()
    write_atomically(path, first.pem())
    context = ServingContext(path)
    assert served_certificate(context.current()) == first.cert_pem
    write_atomically(path, second.pem())
    assert served_certificate(context.current()) == second.cert_pem


def test_a_bad_or_missing_file_leaves_the_former(tmp_path: Path) -> None:
    path = tmp_path / "tls.pem"
    material = new_material()
    write_atomically(path, material.pem())
    context = ServingContext(path)
    before = context.current()
    write_atomically(path, b"garbage")
    assert context.current() is before
    path.unlink()
    assert context.current() is before
    replacement = new_material()
    write_atomically(path, replacement.pem())
    assert served_certificate(context.current()) == replacement.cert_pem


def test_a_file_that_is_replaced_while_it_is_read_first_is_served(tmp_path: Path) -> None:
    """Certificate and key are read one after the other, and there is no former context yet."""
    path = tmp_path / "tls.pem"
    pems = [new_material().pem() for _ in range(2)]
    write_atomically(path, pems[0])
    ended = threading.Event()

    def replace() -> None:
        for pem in itertools.cycle(pems):
            if ended.is_set():
                return
            write_atomically(path, pem)

    failures = []
    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(200):
            try:
                ServingContext(path).current()
            except OSError as error:
                failures.append(error)
    finally:
        ended.set()
        writer.join()
    assert failures == []


def test_without_any_file_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ServingContext(tmp_path / "tls.pem").current()


def test_only_the_owner_can_read_it_and_nothing_is_left_beside(tmp_path: Path) -> None:
    path = tmp_path / "tls.pem"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_and_a_ca_in_files_of_their_own_are_followed_too(tmp_path: Path) -> None:
    """Files are replaced one after the other: a pair that does not match leaves the former context in place."""
    certificate, key, client_ca = (tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt"))
    first, second = new_material(), new_material()
    certificate.write_bytes(first.cert_pem)
    key.write_bytes(first.key_pem)
    client_ca.write_bytes(first.ca_pem)
    context = ServingContext(certificate, key, client_ca)
    before = context.current()
    assert before.verify_mode is ssl.CERT_REQUIRED
    certificate.write_bytes(second.cert_pem)
    assert context.current() is before
    key.write_bytes(second.key_pem)
    after = context.current()
    assert after is not before
    client_ca.write_bytes(second.ca_pem)
    assert context.current() is not after
    assert context.current().get_ca_certs(binary_form=True) != before.get_ca_certs(binary_form=True)


def test_a_bad_pair_is_tried_once_and_not_at_every_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tls.pem"
    write_atomically(path, new_material().pem())
    context = ServingContext(path)
    before = context.current()
    write_atomically(path, b"garbage")
    assert [context.current() for _ in range(3)] == [before] * 3
    assert caplog.text.count("Failed to reload the serving certificate") == 1
