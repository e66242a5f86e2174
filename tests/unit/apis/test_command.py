"""The record of a disruption command, as text and back."""

import base64
import random
import zlib
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.command import (
    MAX_BYTES,
    MOST_CANDIDATES,
    CandidateRecord,
    CommandPhase,
    CommandRecord,
    CommandTooLargeError,
    Replacement,
    command_on,
    encode_command,
)
from tests.support.cluster import claim

RECORD = CommandRecord(
    id="id",
    reason="Drifted",
    method="drift",
    candidates=(CandidateRecord("a", "uid-a"), CandidateRecord("b", "uid-b")),
    replacements=(Replacement("new", {"spec": {"taints": []}}),),
    phase=CommandPhase.DELETING,
)


def on(name: str, text: str) -> CommandRecord | None:
    return command_on(claim(name, annotations={names.COMMAND_ANNOTATION: text}))


def test_what_is_written_is_read_again() -> None:
    assert on("a", encode_command(RECORD)) == RECORD
    assert encode_command(RECORD) == encode_command(RECORD)


def altered(**changes: Any) -> str:
    return msgspec.json.encode(msgspec.to_builtins(RECORD) | changes).decode()


LEGIBLE = altered()
FOREIGN: dict[str, tuple[str, str]] = {
    "on another claim": ("b", LEGIBLE),
    "of a claim that is not the first": (
        "b",
        altered(candidates=[{"name": "b", "uid": "uid-b"}, {"name": "a", "uid": ""}]),
    ),
    "of a claim of the same name": ("a", altered(candidates=[{"name": "a", "uid": "another"}])),
    "with a candidate twice": ("a", altered(candidates=[{"name": "a", "uid": "uid-a"}, {"name": "a", "uid": "uid-a"}])),
    "without candidates": ("a", altered(candidates=[])),
    "without an ID": ("a", altered(id="")),
    "of another version": ("a", altered(v=2)),
    "of an unknown phase": ("a", altered(phase="Thinking")),
    "that is no JSON": ("a", "a command"),
    "that is too long": ("a", altered(reason="x" * MAX_BYTES)),
}


@pytest.mark.parametrize(("name", "text"), FOREIGN.values(), ids=FOREIGN)
def test_a_record_is_none(name: str, text: str) -> None:
    assert on("a", LEGIBLE) is not None
    assert on(name, text) is None


def test_bodies_that_do_not_fit_are_packed() -> None:
    """Sixty new nodes of sixty types each, as many nodes at once are built anew."""
    types = [f"m{number}i.{size}xlarge" for number in range(12) for size in (2, 4, 8, 16, 32)]
    bodies = tuple(Replacement(f"new-{number}", {"spec": {"in": types, "pods": number}}) for number in range(150))
    large = msgspec.structs.replace(RECORD, replacements=bodies)
    text = encode_command(large)
    assert len(text) < MAX_BYTES < len(str(bodies))
    assert on("a", text) == large


def test_bodies_that_do_not_fit_even_so_are_left_out() -> None:
    noise = random.Random(1).randbytes(MAX_BYTES).hex()
    large = msgspec.structs.replace(RECORD, replacements=(Replacement("new", {"spec": noise}),))
    found = on("a", encode_command(large))
    assert found is not None
    assert found.replacements == (Replacement("new"),)


@pytest.mark.parametrize(
    "packed",
    [
        "!",
        base64.b64encode(b"no zlib").decode(),
        *(
            base64.b64encode(zlib.compress(one)).decode()
            for one in (b"[]", b'["text"]', b"[null,null]", b"[" + b" " * 2**23)
        ),
    ],
)
def test_bodies_that_nobody_can_unpack_are_as_good_as_left_out(packed: str) -> None:
    bare = msgspec.structs.replace(RECORD, replacements=(Replacement("new"),))
    found = on("a", msgspec.json.encode(msgspec.structs.replace(bare, packed=packed)).decode())
    assert found == bare


def test_a_command_over_too_many_is_refused() -> None:
    many = tuple(CandidateRecord(f"a{number:04}", "") for number in range(MOST_CANDIDATES + 1))
    with pytest.raises(CommandTooLargeError):
        encode_command(msgspec.structs.replace(RECORD, candidates=many))
