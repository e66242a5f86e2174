"""Records of what replicas serve: their keys, and who counts as live."""

import re

import pytest

from certs.replicas import FORGET_AFTER, PREFIX, Replica, Roll, record_key

LIFETIME = 120.0
KEY = re.compile(r"[a-z.]+/([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)")


@pytest.mark.parametrize(
    "identity",
    ["dovetail-webhook-6d8f7c9b5d-abcde", "host.local-8443", "a" * 63, "a" * 64, "x" * 253, "_", "", "a/b c"],
)
def test_every_identity_makes_a_legal_key(identity: str) -> None:
    assert KEY.fullmatch(record_key(identity))


def test_long_identities_stay_different() -> None:
    assert record_key("a" * 100 + "-1") != record_key("a" * 100 + "-2")


def annotations(**records: str) -> dict[str, str]:
    return {f"{PREFIX}{name}": text for name, text in records.items()}


def test_a_replica_is_live_while_its_record_changes() -> None:
    roll = Roll(LIFETIME)
    assert roll.look(annotations(a="f 1", b="f 1"), 0.0) == [Replica("a", "f", live=True), Replica("b", "f", live=True)]
    roll.look(annotations(a="f 2", b="f 1"), 100.0)
    assert roll.look(annotations(a="f 2", b="f 1"), 121.0) == [
        Replica("a", "f", live=True),
        Replica("b", "f", live=False),
    ]
    assert roll.look(annotations(a="f 2", b="g 9"), 122.0)[1] == Replica("b", "g", live=True)


@pytest.mark.parametrize("clock", ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", "yesterday", ""])
def test_what_another_clock_says_is_not_believed(clock: str) -> None:
    roll = Roll(LIFETIME)
    assert roll.look(annotations(a=f"f {clock}"), 0.0)[0].live
    assert not roll.look(annotations(a=f"f {clock}"), LIFETIME + 1)[0].live


def test_other_annotations_are_no_replicas() -> None:
    assert Roll(LIFETIME).look({"dovetail.dev/other": "f 1", "serving": "f 1"}, 0.0) == []


def test_records_that_nobody_renews_are_left_behind_after_long() -> None:
    roll = Roll(LIFETIME)
    roll.look(annotations(a="f 1", b="f 1"), 0.0)
    roll.look(annotations(a="f 1", b="f 2"), FORGET_AFTER * LIFETIME)
    assert roll.left_behind(FORGET_AFTER * LIFETIME) == []
    assert roll.left_behind(FORGET_AFTER * LIFETIME + 1) == [f"{PREFIX}a"]
    roll.look(annotations(b="f 2"), FORGET_AFTER * LIFETIME + 2)
    assert roll.left_behind(FORGET_AFTER * LIFETIME + 2) == []
