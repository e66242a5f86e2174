"""A disruption command as it is written on NodeClaims: nodes that go together, and the NodeClaims that replace them. Pure.

The whole record is the annotation `dovetail.dev/command` of the first candidate by name; the other candidates only name it
(`dovetail.dev/command-member`), and so do the replacements (`dovetail.dev/replaces`). A command counts from the moment at which
its record is written: what belongs to no record is taken back.
"""

import base64
import binascii
import enum
import math
import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Self

import msgspec

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.values import jsontext

MAX_BYTES: Final = 96 * 1024
"""Of a record with the bodies of its replacements; an object's annotations may have 256 KiB together."""
MOST_CANDIDATES: Final = 200
VERSION: Final = 1
_MOST_GRACE_SECONDS: Final = 10**9
_MOST_UNPACKED: Final = 4 * 1024 * 1024
"""Bytes of all bodies together; a tenth of this is much."""


class CommandTooLargeError(ValueError):
    """A command whose record would not fit into an annotation even without bodies; propose fewer candidates."""


class CommandPhase(enum.StrEnum):
    """How far a command has come, as far as it must be written; everything else follows from the objects."""

    COMMITTED = "Committed"
    """It may still be called off."""
    DRAINING = "Draining"
    """Its pods are asked to leave though their node stays, until a time; then it is called off."""
    DELETING = "Deleting"
    """It was found valid: every candidate goes, whatever happens."""


class CandidateRecord(msgspec.Struct, frozen=True):
    """One NodeClaim to disrupt; another one of the same name is not meant."""

    name: str
    uid: str


class Replacement(msgspec.Struct, frozen=True, omit_defaults=True):
    """One NodeClaim that is created first.

    Attributes:
        name: of the NodeClaim.
        body: what is sent to create it; None where the record would be too large with it, even packed.
    """

    name: str
    body: dict[str, Any] | None = None


class RepairTerms(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a broken node goes.

    Attributes:
        condition: type of the Node condition.
        grace_seconds: the longest time that its drain may take; None for no end.
        deadline: the end of that time as it was written on the NodeClaim, to be taken back if the command is called off; "" before.
    """

    condition: Annotated[str, msgspec.Meta(max_length=316)]
    grace_seconds: Annotated[int, msgspec.Meta(ge=0, le=_MOST_GRACE_SECONDS)] | None = None
    deadline: Annotated[str, msgspec.Meta(max_length=64)] = ""

    @classmethod
    def of(cls, condition: str, grace: timedelta | None) -> Self:
        """Whole seconds, rounded up; no more than can be written."""
        seconds = None if grace is None else min(_MOST_GRACE_SECONDS, math.ceil(max(0.0, grace.total_seconds())))
        return cls(condition, seconds)

    @property
    def grace(self) -> timedelta | None:
        """The longest time that its drain may take; None for no end."""
        return None if self.grace_seconds is None else timedelta(seconds=self.grace_seconds)


class TerminateFirst(msgspec.Struct, frozen=True, omit_defaults=True):
    """That the candidate goes before its successor is launched, since there is no room for both.

    Attributes:
        kind: of what is full; see `cloudprovider.types.CapKind`.
        name: likewise, which.
        bound_seconds: the longest time that its pods may take to leave before it is called off; None where its drain ends by force.
        until: the end of that time, once it has begun.
    """

    kind: Annotated[str, msgspec.Meta(max_length=64)]
    name: Annotated[str, msgspec.Meta(max_length=1024)]
    bound_seconds: Annotated[int, msgspec.Meta(ge=0, le=_MOST_GRACE_SECONDS)] | None = None
    until: datetime | None = None

    def begun(self, now: datetime) -> Self:
        """With the time at which its drain is called off."""
        seconds = self.bound_seconds or 0
        return msgspec.structs.replace(self, until=now.replace(microsecond=0) + timedelta(seconds=seconds))


class Awaited(msgspec.Struct, frozen=True):
    """What a successor waits for that is written before its place is free: the annotation `dovetail.dev/awaits`.

    Attributes:
        claim, uid: the NodeClaim that goes first.
        kind, name: what is full; as of `TerminateFirst`.
    """

    claim: str
    uid: str
    kind: str = ""
    name: str = ""

    def to_text(self) -> str:
        """As it is written."""
        return _ENCODER.encode(self).decode()


class CommandRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One command.

    Attributes:
        id: tells it from every other one.
        reason: Empty, Drifted, Underutilized or Unhealthy.
        method: that proposed it; see `disruption.proposal.Proposal`.
        candidates: by name; never empty.
        replacements: in the order in which the solver opened them.
        phase: how far it has come.
        repair: how a node goes that is Unhealthy; None for other reasons.
        first: that its only candidate goes before its only replacement is launched; None where the replacement comes first.
        packed: the bodies of all replacements, where they are too large as they are; only in writing.
    """

    v: int = VERSION
    id: str
    reason: str
    method: str
    candidates: tuple[CandidateRecord, ...]
    replacements: tuple[Replacement, ...] = ()
    phase: CommandPhase = CommandPhase.COMMITTED
    repair: RepairTerms | None = None
    first: TerminateFirst | None = None
    packed: str = ""

    @property
    def holder(self) -> str:
        """The name of the NodeClaim on which it is written."""
        return self.candidates[0].name

    @property
    def candidate_names(self) -> tuple[str, ...]:
        """Of its candidates, sorted."""
        return tuple(one.name for one in self.candidates)

    @property
    def replacement_names(self) -> tuple[str, ...]:
        """Of its replacements."""
        return tuple(one.name for one in self.replacements)


_decode = jsontext.decoder(CommandRecord)
_decode_awaited = jsontext.decoder(Awaited)
_MOST_AWAITED: Final = 4096
_decode_bodies = jsontext.decoder(tuple[dict[str, Any] | None, ...])
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


def encode_command(record: CommandRecord) -> str:
    """The annotation's text; the bodies of replacements are packed where it would be too large with them, and left out where it still is.

    Raises:
        CommandTooLargeError: it is too large even so, or has too many candidates.
    """
    size = 0
    if len(record.candidates) <= MOST_CANDIDATES:
        bare = msgspec.structs.replace(record, replacements=tuple(Replacement(one.name) for one in record.replacements))
        text = _ENCODER.encode(record)
        if len(text) > MAX_BYTES:
            text = _ENCODER.encode(msgspec.structs.replace(bare, packed=_packed(record)))
        if len(text) > MAX_BYTES:
            text = _ENCODER.encode(bare)
        size = len(text)
        if size <= MAX_BYTES:
            return text.decode()
    raise CommandTooLargeError(
        f"the record of the command has {size} bytes, more than the limit of {MAX_BYTES} for an annotation"
    )


def _packed(record: CommandRecord) -> str:
    """The bodies in little room: they have the names of the same instance types."""
    bodies = _ENCODER.encode([one.body for one in record.replacements])
    return base64.b64encode(zlib.compress(bodies)).decode() if len(bodies) <= _MOST_UNPACKED else ""


def _unpacked(record: CommandRecord) -> CommandRecord:
    """The record with its bodies where they were packed; without where nobody can read them, as one that had no room for them."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(base64.b64decode(record.packed, validate=True), _MOST_UNPACKED)
        bodies = _decode_bodies(text)
    except (binascii.Error, zlib.error, msgspec.DecodeError):
        bodies = ()
    if len(bodies) != len(record.replacements) or any(one.body is not None for one in record.replacements):
        return msgspec.structs.replace(record, packed="")
    pairs = zip(record.replacements, bodies, strict=True)
    return msgspec.structs.replace(
        record, packed="", replacements=tuple(Replacement(one.name, body) for one, body in pairs)
    )


def command_on(claim: NodeClaim) -> CommandRecord | None:
    """The command whose record a claim holds; None without one, or with a text that is none of this very claim's."""
    text = claim.metadata.annotations.get(names.COMMAND_ANNOTATION, "")
    if not text or len(text) > MAX_BYTES:
        return None
    try:
        found = _decode(text)
    except msgspec.DecodeError:
        return None
    if found.v != VERSION or not found.id or not found.candidates:
        return None
    first = found.candidates[0]
    if found.first is not None and (len(found.candidates), len(found.replacements)) != (1, 1):
        return None
    ordered = sorted(set(found.candidate_names))
    if (first.name, first.uid) != (claim.metadata.name, claim.metadata.uid) or list(found.candidate_names) != ordered:
        return None
    return _unpacked(found) if found.packed else found


def is_gated(claim: NodeClaim) -> bool:
    """Whether a claim takes the place of another one, and is not launched before that is gone."""
    return names.AWAITS_ANNOTATION in claim.metadata.annotations and not claim.status.provider_id


def awaited_by(claim: NodeClaim) -> Awaited | None:
    """What a gated claim waits for; None where it is not gated, or nobody can read it."""
    text = claim.metadata.annotations.get(names.AWAITS_ANNOTATION, "")
    if not is_gated(claim) or len(text) > _MOST_AWAITED:
        return None
    try:
        return _decode_awaited(text)
    except msgspec.DecodeError:
        return None


def is_marked(claim: NodeClaim) -> bool:
    """Whether the claim carries anything of a command of which it is a candidate, legible or not."""
    return not _CANDIDATE_MARKS.isdisjoint(claim.metadata.annotations)


def member_of(annotations: Mapping[str, str]) -> str:
    """The ID of the command that a candidate without the record names; "" for none."""
    return annotations.get(names.COMMAND_MEMBER_ANNOTATION, "")


_CANDIDATE_MARKS: Final = frozenset({names.COMMAND_ANNOTATION, names.COMMAND_MEMBER_ANNOTATION})
