"""What EventBridge puts into the interruption queue, read into `Notice` values. Pure.

Source: spec/karpenter-aws.md 6.5.
Differs: events of AWS Health that are closed, completed or cancelled say nothing, and their start counts.
"""

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from provisioner.apis.interruption import INSTANCE_TERMINATED
from provisioner.values import jsontext


class MessageError(ValueError):
    """A message that is not of EventBridge's form, or lacks what its kind must say."""


class NoticeKind(enum.StrEnum):
    """What a message is about; the values are those of Karpenter's metric label."""

    SPOT_INTERRUPTED = "spot_interrupted"
    REBALANCE = "rebalance_recommendation"
    STOPPED = "instance_stopped"
    TERMINATED = INSTANCE_TERMINATED
    SCHEDULED_CHANGE = "scheduled_change"
    RESERVATION_INTERRUPTED = "capacity_reservation_interrupted"
    NO_OP = "no_op"


@dataclass(frozen=True, slots=True)
class Notice:
    """One message.

    Attributes:
        kind: NO_OP where there is nothing to do.
        instances: ids of the instances it names, sorted.
        at: when AWS said it; None where it does not say.
        starts: of a scheduled change; None where unknown.
        why: of a NO_OP, for the log.
    """

    kind: NoticeKind
    instances: tuple[str, ...] = ()
    at: datetime | None = None
    starts: datetime | None = None
    why: str = ""


def parse(body: str) -> Notice:
    """Read one message.

    Raises:
        MessageError: it is malformed; what is well-formed and unknown is a NO_OP.
    """
    if not body.strip():
        return _nothing("the message is empty")
    try:
        envelope = _decode_envelope(body)
    except msgspec.DecodeError as error:
        raise MessageError(f"not an EventBridge event: {error}") from None
    reader = _READERS.get((envelope.version, envelope.source, envelope.detail_type))
    if reader is None:
        return _nothing(
            f"{envelope.source or 'nobody'} says {envelope.detail_type or 'nothing'!r}, which is not handled"
        )
    try:
        return reader(envelope, iso_time(envelope.time))
    except msgspec.DecodeError as error:
        raise MessageError(f"the detail of {envelope.detail_type!r} cannot be read: {error}") from None


def is_over(description: str) -> bool:
    """Whether the text of a scheduled event says that it was completed or cancelled. Source: EC2 and AWS Health alike."""
    return description.lstrip().lower().startswith(_OVER)


def iso_time(text: str) -> datetime | None:
    """RFC 3339, or the form of HTTP dates that AWS Health uses; None for anything else, and at the ends of the calendar, where nobody can reckon."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            found = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
    if not MINYEAR < found.year < MAXYEAR:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


class _Envelope(msgspec.Struct, frozen=True):
    version: str = ""
    source: str = ""
    detail_type: str = msgspec.field(default="", name="detail-type")
    time: str = ""
    detail: msgspec.Raw = msgspec.Raw(b"{}")


class _OfInstance(msgspec.Struct, frozen=True):
    instance: str = msgspec.field(name="instance-id")
    state: str = ""


class _Entity(msgspec.Struct, frozen=True, rename="camel"):
    entity_value: str = ""
    status: str = ""


class _Description(msgspec.Struct, frozen=True, rename="camel"):
    latest_description: str = ""


class _Health(msgspec.Struct, frozen=True, rename="camel"):
    service: str = ""
    event_type_category: str = ""
    event_type_code: str = ""
    status_code: str = ""
    start_time: str = ""
    event_description: tuple[_Description, ...] = ()
    affected_entities: tuple[_Entity, ...] = ()


_decode_envelope = jsontext.decoder(_Envelope)
_decode_of_instance = jsontext.decoder(_OfInstance)
_decode_health = jsontext.decoder(_Health)


def _of_instance(kind: NoticeKind) -> "_Reader":
    def read(envelope: _Envelope, at: datetime | None) -> Notice:
        detail = _decode_of_instance(envelope.detail)
        return Notice(kind, _instances([detail.instance], strict=True), at)

    return read


def _state_change(envelope: _Envelope, at: datetime | None) -> Notice:
    detail = _decode_of_instance(envelope.detail)
    kind = _STATES.get(detail.state.lower())
    if kind is None:
        return _nothing(f"the instance state is {detail.state or 'missing'}")
    return Notice(kind, _instances([detail.instance], strict=True), at)


def _health(envelope: _Envelope, at: datetime | None) -> Notice:
    detail = _decode_health(envelope.detail)
    if (detail.service, detail.event_type_category) != ("EC2", "scheduledChange"):
        return _nothing(f"AWS Health says {detail.event_type_category or 'nothing'} of {detail.service or 'nobody'}")
    if detail.status_code == "closed" or any(is_over(one.latest_description) for one in detail.event_description):
        return _nothing(f"{detail.event_type_code} has ended")
    concerned = [one.entity_value for one in detail.affected_entities if one.status not in _RESOLVED]
    instances = _instances(concerned, strict=False)
    if not instances:
        return _nothing(f"{detail.event_type_code} contains no instance ID")
    return Notice(NoticeKind.SCHEDULED_CHANGE, instances, at, iso_time(detail.start_time))


def _instances(given: list[str], *, strict: bool) -> tuple[str, ...]:
    found = {name for one in given if _INSTANCE.fullmatch(name := one.rpartition("/")[2])}
    if strict and not found:
        raise MessageError(f"{given} is not an instance ID")
    return tuple(sorted(found))


def _nothing(why: str) -> Notice:
    return Notice(NoticeKind.NO_OP, why=why)


_Reader = Callable[[_Envelope, datetime | None], Notice]
_READERS: Final[Mapping[tuple[str, str, str], _Reader]] = {
    ("0", "aws.ec2", "EC2 Spot Instance Interruption Warning"): _of_instance(NoticeKind.SPOT_INTERRUPTED),
    ("0", "aws.ec2", "EC2 Instance Rebalance Recommendation"): _of_instance(NoticeKind.REBALANCE),
    ("0", "aws.ec2", "EC2 Instance State-change Notification"): _state_change,
    ("0", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"): _of_instance(
        NoticeKind.RESERVATION_INTERRUPTED
    ),
    ("0", "aws.health", "AWS Health Event"): _health,
}
_STATES: Final[Mapping[str, NoticeKind]] = {
    "stopping": NoticeKind.STOPPED,
    "stopped": NoticeKind.STOPPED,
    "shutting-down": NoticeKind.TERMINATED,
    "terminated": NoticeKind.TERMINATED,
}
_RESOLVED: Final = frozenset({"RESOLVED", "UNIMPAIRED"})
_OVER: Final = ("[completed]", "[canceled]", "[cancelled]")
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}")
