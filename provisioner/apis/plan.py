"""The plan annotation: which pods a NodeClaim was planned for.

Equal pods of one owner are interchangeable, so an entry counts pods of one class and owner; the uids say which pods
were meant when the plan was made. The text is deterministic: equal plans give equal text.
"""

import math
from datetime import MAXYEAR, datetime
from typing import Final

import msgspec

from provisioner.values import jsontext

MAX_BYTES: Final = 64 * 1024
VERSION: Final = 1
HOLD_SECONDS: Final = 120.0
"""For how long a plan that does not say otherwise keeps room on a node that is ready."""


class PlanError(ValueError):
    """The annotation's text is no plan of a version that we read; says what is wrong with it."""


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`count` pods of class `klass` that belong to the owner with uid `owner` ("" for pods of their own)."""

    klass: str = msgspec.field(name="class")
    count: int
    owner: str = ""
    uids: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All pods planned for one node."""

    v: int = VERSION
    pods: tuple[PlanEntry, ...] = ()
    #: Written only where it is not `HOLD_SECONDS`, so that a plan's text is the same as before there was such a field.
    hold: float | msgspec.UnsetType = msgspec.field(name="holdSeconds", default=msgspec.UNSET)

    #: When pods were planned last; absent where that was when the NodeClaim was created. It differs from plan to plan.
    at: datetime | msgspec.UnsetType = msgspec.field(name="plannedAt", default=msgspec.UNSET)

    @classmethod
    def of(
        cls, pods: tuple[PlanEntry, ...], hold_seconds: float, at: datetime | msgspec.UnsetType = msgspec.UNSET
    ) -> "Plan":
        """A plan for these pods, whose room is kept for so long once its node is ready."""
        return cls(pods=pods, hold=msgspec.UNSET if hold_seconds == HOLD_SECONDS else hold_seconds, at=at)

    @property
    def hold_seconds(self) -> float:
        """For how long room is kept on a node that is ready."""
        return HOLD_SECONDS if self.hold is msgspec.UNSET else self.hold

    @property
    def total(self) -> int:
        """Number of planned pods."""
        return sum(entry.count for entry in self.pods)


_decode = jsontext.decoder(Plan)
_ENCODER = msgspec.json.Encoder()


def encode_plan(plan: Plan) -> str:
    """The annotation's text, however long; entries by owner and class, uids sorted."""
    entries = sorted(plan.pods, key=lambda entry: (entry.owner, entry.klass, entry.uids))
    ordered = (msgspec.structs.replace(entry, uids=tuple(sorted(entry.uids))) for entry in entries)
    return _ENCODER.encode(msgspec.structs.replace(plan, pods=tuple(ordered))).decode()


def fitting_text(plan: Plan) -> str:
    """The annotation's text; where it would be too large without the uids, "" where even that is too large."""
    nameless = (PlanEntry(owner=entry.owner, klass=entry.klass, count=entry.count) for entry in plan.pods)
    for attempt in (plan, msgspec.structs.replace(plan, pods=tuple(nameless))):
        text = encode_plan(attempt)
        if len(text.encode()) <= MAX_BYTES:
            return text
    return ""


def decode_plan(text: str) -> Plan:
    """The plan that `text` holds.

    Raises:
        PlanError: not JSON, not of this shape, of another version, with a time that is none, or with a count that its uids contradict.
    """
    if len(text) > MAX_BYTES:
        raise PlanError(f"the plan has {len(text)} bytes; the maximum is {MAX_BYTES}")
    try:
        plan = _decode(text)
    except msgspec.DecodeError as error:
        raise PlanError(f"not a plan: {error}") from error
    if plan.v != VERSION:
        raise PlanError(f"the plan has version {plan.v}; this program reads version {VERSION}")
    if not (math.isfinite(plan.hold_seconds) and plan.hold_seconds >= 0):
        raise PlanError(f"holdSeconds is {plan.hold_seconds:g}; it must be a finite number of seconds, 0 or more")
    if plan.at is not msgspec.UNSET and plan.at.tzinfo is None:
        raise PlanError(f"plannedAt is {plan.at.isoformat()}, without a time zone")
    if plan.at is not msgspec.UNSET and plan.at.year == MAXYEAR:
        raise PlanError(f"plannedAt is {plan.at.isoformat()}, too late: no plan could be made after it")
    for position, entry in enumerate(plan.pods):
        if entry.count < 1 or len(entry.uids) > entry.count:
            raise PlanError(f"pods[{position}]: count {entry.count} with {len(entry.uids)} uids")
    return plan
