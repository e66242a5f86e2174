"""The metric of a certificate's end follows its file."""

import math
from datetime import timedelta
from pathlib import Path

from certs import expiry
from certs.serving import write_atomically
from certs.store import Material, SecretNames, mint
from provisioner.support.metrics import REGISTRY
from tests.support.clock import NOON


def told() -> float:
    found = REGISTRY.get_sample_value("dovetail_certificate_expiration_timestamp_seconds", {"certificate": "tested"})
    assert found is not None
    return found


def material(days: int) -> Material:
    return mint(SecretNames(("localhost",)), NOON, days=days)


def test_the_end_of_a_certificate_follows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "tls.pem"
    expiry.watch("tested", path)
    assert math.isnan(told())
    write_atomically(path, material(1).pem())
    assert told() == (NOON + timedelta(days=1)).timestamp()
    write_atomically(path, material(90).pem())
    assert told() == (NOON + timedelta(days=90)).timestamp()


def test_a_file_that_is_damaged_or_gone_counts_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "tls.pem"
    write_atomically(path, material(90).pem())
    expiry.watch("tested", path)
    before = told()
    write_atomically(path, b"-----BEGIN CERTIFICATE-----\nAAAA\n")
    assert told() == before
    path.unlink()
    assert told() == before
