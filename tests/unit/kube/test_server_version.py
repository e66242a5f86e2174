"""The API server's version: what is read of it, what is said of one that is not tested, and that the page says the same."""

import json
import re
from pathlib import Path

import pytest

from provisioner.kube.client import Client
from provisioner.kube.server_version import PAGE, TESTED_MINORS, minor_of, warn_if_not_tested
from provisioner.lab.devcluster import versions
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "minor"), [("1.33", 33), ("33", 33), ("33+", 33), ("1.33+", 33), ("", 0), ("latest", 0)]
)
def test_minors(text: str, minor: int) -> None:
    assert minor_of(text) == minor


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, {"major": "1", "minor": "32"}, ["WARNING: This version of Kubernetes is older than those"]),
        (200, {"major": "1", "minor": "38+"}, ["WARNING: This version of Kubernetes is newer than those"]),
        *((200, {"major": "1", "minor": str(minor)}, []) for minor in TESTED_MINORS),
        (200, {"major": "1", "minor": "none"}, []),
        (200, {"major": "1"}, ["INFO: Could not read the version of the API server"]),
        (200, [], ["INFO: Could not read the version of the API server"]),
        (403, {"reason": "Forbidden", "message": "no"}, ["INFO: Could not read the version of the API server"]),
    ],
)
def test_a_version_that_is_not_tested_is_told_and_nothing_is_refused(
    status: int, body: object, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    clock = FakeClock()
    client = Client(FakeApi(FakeAnswer(status, json.dumps(body).encode()), clock=clock), clock)
    warn_if_not_tested(client)
    found = [f"{record.levelname}: {record.message}" for record in caplog.records]
    assert len(found) == len(said)
    assert all(one.startswith(begin) for one, begin in zip(found, said, strict=True)), found
    for record in caplog.records:
        if record.levelname == "WARNING":
            assert record.fields["tested"] == "1.33 to 1.37"  # type: ignore[attr-defined]
            assert record.fields["page"] == PAGE  # type: ignore[attr-defined]


def test_the_page_and_the_control_planes_that_are_built_are_of_the_same_minors() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| 1\.(\d+) \| (v1\.\d+\.\d+) \|", text, re.MULTILINE))
    releases = (*versions.OLDER, *(plane.kubernetes for plane in versions.PLANES.values()))
    built = {str(minor_of(one.rpartition(".")[0])): one for one in releases}
    assert rows == built
    assert sorted(map(int, built)) == list(TESTED_MINORS)
