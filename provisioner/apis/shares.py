"""The share of an owner's pods that must run on demand (`dovetail.dev/on-demand`), and what is written on pods about it. Pure.

The webhook gives pods their sides by it (`webhook.shares`), the provisioner repairs what became wrong later (`shares.repair`).
"""

import enum
import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from provisioner.apis import names
from provisioner.apis.meta import Object, ObjectMeta
from provisioner.apis.pods import Pod, decode_pod

MAX_COUNT: Final = 1_000_000
LONGEST_RECORD: Final = 512
"""Of an `ShareAttempt`, in characters; whoever owns the pod may write anything."""
_MOST_ATTEMPTS: Final = 1_000

_PERCENT: Final = re.compile(r"([0-9]{1,3})(?:%|pct)", re.ASCII)
_COUNT: Final = re.compile(r"[0-9]{1,7}", re.ASCII)


class Side(enum.StrEnum):
    """What a pod of an owner with a share is for; the value of the label."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


@dataclass(frozen=True, slots=True)
class Share:
    """How many pods of one owner must run on demand.

    Attributes:
        percent: of all its pods, rounded up; None where `count` says how many.
        count: pods.
    """

    percent: int | None = None
    count: int = 0

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent is not None else str(self.count)

    def of(self, pods: int) -> int:
        """How many of so many pods must run on demand."""
        return min(pods, self.count) if self.percent is None else math.ceil(pods * self.percent / 100)

    def rank(self, side: Side, place: int) -> int:
        """The number of pods at which an owner that only grows gets its `place`th pod (from 1) of a side."""
        if self.percent is None:
            return place if side is Side.ON_DEMAND else self.count + place
        part = self.percent if side is Side.ON_DEMAND else 100 - self.percent
        if part == 0:
            return place
        return (place - 1) * 100 // part + 1 if side is Side.ON_DEMAND else -(-place * 100 // part)


def parse(text: str) -> Share:
    """A share: "30%" (in labels "30pct"), or a number of pods.

    Raises:
        ValueError: anything else.
    """
    if found := _PERCENT.fullmatch(text):
        percent = int(found[1])
        if percent <= 100:
            return Share(percent=percent)
    elif _COUNT.fullmatch(text) and int(text) <= MAX_COUNT:
        return Share(count=int(text))
    raise ValueError(f"{text!r} is neither a percentage from 0% to 100% nor a number of pods")


def gave(owner: str, ticket: str) -> bool:
    """Whether a pod with this ticket was decided on as a pod of the owner with this UID.

    Copied into a template, a ticket is another owner's and worth nothing.
    """
    return ticket.startswith(f"{owner}.")


@dataclass(frozen=True, slots=True)
class ShareOwner:
    """The controller of pods; a name in an owner reference of another namespace is another owner."""

    namespace: str
    uid: str

    def ticket(self, seat: "Seat", review: str) -> str:
        """What the pod is told of its admission; copied into a template, it is another owner's and worth nothing.

        Args:
            seat: that the pod was given.
            review: uid of the admission review, which is another one when the API server asks again.
        """
        return f"{self.uid}.{seat.place}.{review}"


@dataclass(frozen=True, slots=True)
class Seat:
    """What one pod is for.

    Attributes:
        side: on demand, or spot where there is some.
        place: among the pods of its side, from 1; the lowest that was free, so that a successor takes the place of its predecessor.
        rank: the higher, the sooner the pod should go when its owner shrinks.
    """

    side: Side
    place: int
    rank: int


# --- repair ----------------------------------------------------------------------------------------------------

REPAIR_BY_EVICTION: Final = "evict"
"""The value of `dovetail.dev/on-demand-repair` that asks for repair."""


class SeatedPod(NamedTuple):
    """A pod with the annotation that the caches do not keep.

    Attributes:
        ticket: of its admission; "" for a pod that came without the webhook.
    """

    pod: Pod
    ticket: str


class _Annotated(Object, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


_ANNOTATED: Final = msgspec.json.Decoder(_Annotated)


def decode_seated(data: bytes) -> SeatedPod:
    """The pod in the JSON that the API server sent.

    Raises:
        msgspec.MsgspecError: as `decode_pod`.
    """
    return SeatedPod(decode_pod(data), _ANNOTATED.decode(data).metadata.annotations.get(names.ON_DEMAND_TICKET, ""))


class ShareAttempt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last eviction that was to repair an owner's share; a brother of the evicted pod has it as an annotation.

    Attributes:
        attempts: evictions in a row after which no pod came to the side that lacked some, this one included.
        toward: the side that lacked pods.
        newest: when the newest pod of that moment was created: what is newer came after the eviction. By the API server's clock.
        at: when, by the clock of whoever led.
        share: that was to be kept, in words.
        pod: UID of the pod to evict; "" for none. One that is there long after was not evicted, and the attempt does not count.
    """

    attempts: int
    toward: Side
    newest: datetime
    at: datetime
    share: str
    pod: str = ""


_ATTEMPT: Final = msgspec.json.Decoder(ShareAttempt)
_TEXT: Final = msgspec.json.Encoder()


def attempt_text(attempt: ShareAttempt) -> str:
    """As the annotation has it."""
    return _TEXT.encode(attempt).decode()


def read_attempt(pod: Pod) -> ShareAttempt | None:
    """What a pod says of the last attempt; None where it says nothing that can be read."""
    text = pod.annotations.get(names.ON_DEMAND_REPAIRED, "")
    if not text or len(text) > LONGEST_RECORD:
        return None
    try:
        found = _ATTEMPT.decode(text)
    except msgspec.MsgspecError:
        return None
    aware = found.newest.tzinfo is not None and found.at.tzinfo is not None
    return found if aware and 0 < found.attempts <= _MOST_ATTEMPTS else None
