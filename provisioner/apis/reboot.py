"""The reboots of a node as they are written on its NodeClaim, in the annotation `dovetail.dev/reboot`. Pure.

The record counts, not what conditions, taints and labels say: they follow from it. That a node is to be rebooted is written first; the intent, with the
boot ID that must change, is written before the cloud is called.
"""

import enum
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.values import jsontext

VERSION: Final = 1
MOST_REBOOTS: Final = 2
"""Of one node within `HISTORY`; then it is replaced. Source: Karpenter 1.15."""
HISTORY: Final = timedelta(hours=24)
_MAX_BYTES: Final = 4096
_MOST_TIMES: Final = 8
_MOST_GRACE_SECONDS: Final = 10**9
BOOT_ID_LENGTH: Final = 256
"""Characters. A kubelet may say more than that; its Node is not rebooted."""
BootId = Annotated[str, msgspec.Meta(max_length=BOOT_ID_LENGTH)]


class RebootEnd(enum.StrEnum):
    """How a reboot ended; the value is the metrics' `result` where Karpenter has one."""

    SUCCEEDED = "succeeded"
    CALLED_OFF = "called_off"
    """Before the cloud was called, or after it was known not to have done it."""
    RECOVERED = "recovered"
    """It had failed, and the node works all the same."""
    PROVIDER_ERROR = "provider_error"
    RECOVERY_TIMEOUT = "recovery_timeout"

    @property
    def failed(self) -> bool:
        """Whether the node has to be replaced."""
        return self in (RebootEnd.PROVIDER_ERROR, RebootEnd.RECOVERY_TIMEOUT)


class RebootIntent(msgspec.Struct, frozen=True):
    """One call to the cloud, written before it is made.

    Attributes:
        boot_id: that the Node had; a reboot shows as another one.
        attempt: from 1; there is another one only where the cloud is known not to have done the one before.
        at: when it was written.
        by: the process that wrote it, which alone may call.
    """

    boot_id: BootId
    attempt: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    at: datetime
    by: Annotated[str, msgspec.Meta(max_length=64)] = ""


class RebootEpisode(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One reboot, from the decision to its end.

    Attributes:
        requested: when it was decided.
        condition: type of the Node condition for which.
        boot_id: of the Node then.
        grace_seconds: the longest time that pods are waited for; None for no end.
        intent: the last call, or None before the first.
        end: how it ended; None while it goes on.
    """

    requested: datetime
    condition: Annotated[str, msgspec.Meta(max_length=316)]
    boot_id: BootId
    grace_seconds: Annotated[int, msgspec.Meta(ge=0, le=_MOST_GRACE_SECONDS)] | None = None
    intent: RebootIntent | None = None
    end: RebootEnd | None = None


class RebootRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is known of the reboots of one node.

    Attributes:
        episode: the reboot that goes on, or has failed; None for neither.
        times: when the cloud was first called in each reboot, the latest last; no more than the last few.
    """

    v: int = VERSION
    episode: RebootEpisode | None = None
    times: Annotated[tuple[datetime, ...], msgspec.Meta(max_length=_MOST_TIMES)] = ()

    @property
    def under_way(self) -> bool:
        """Whether a reboot goes on."""
        return self.episode is not None and self.episode.end is None

    @property
    def failed(self) -> bool:
        """Whether the last reboot failed, so that the node waits for its replacement."""
        return self.episode is not None and self.episode.end is not None and self.episode.end.failed

    def may_begin(self, now: datetime) -> bool:
        """Whether the node may be rebooted once more, rather than replaced; a time that lies ahead counts."""
        return self.episode is None and sum(now - one < HISTORY for one in self.times) < MOST_REBOOTS

    def intended(self, intent: RebootIntent) -> "RebootRecord":
        """With the intent of another call; the first one of a reboot counts as a reboot from here on."""
        if self.episode is None:
            raise ValueError("there is no reboot in progress")
        times = self.times if self.episode.intent is not None else (*self.times, intent.at)[-_MOST_TIMES:]
        return RebootRecord(episode=msgspec.structs.replace(self.episode, intent=intent), times=times)

    def ended(self, end: RebootEnd) -> "RebootRecord":
        """With the end of the reboot."""
        if self.episode is None:
            raise ValueError("there is no reboot in progress")
        return RebootRecord(episode=msgspec.structs.replace(self.episode, end=end), times=self.times)

    def kept(self, now: datetime) -> "RebootRecord | None":
        """Without the episode: what later ones have to know; None for nothing."""
        times = tuple(one for one in self.times if now - one < HISTORY)
        return RebootRecord(times=times) if times else None


NO_REBOOTS: Final = RebootRecord()
_decode = jsontext.decoder(RebootRecord)
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


def is_rebooting(claim: NodeClaim) -> bool:
    """Whether its node is being rebooted: by its record, until that it is over has been told, or as Karpenter says where there is none."""
    record = reboots_of(claim)
    if record.episode is not None:
        return not record.failed
    return is_true(claim.status.conditions, names.REBOOTING)


def encode_reboots(record: RebootRecord) -> str:
    """The annotation's text."""
    return _ENCODER.encode(record).decode()


def reboots_of(claim: NodeClaim) -> RebootRecord:
    """The record of a claim; an empty one where it has none that can be read. Cost: of a claim that never was rebooted, a look-up."""
    text = claim.metadata.annotations.get(names.REBOOT_ANNOTATION, "")
    if not text or len(text) > _MAX_BYTES:
        return NO_REBOOTS
    try:
        found = _decode(text)
    except msgspec.DecodeError:
        return NO_REBOOTS
    episode = found.episode
    instants = [*found.times]
    if episode is not None:
        instants += [episode.requested, *([episode.intent.at] if episode.intent is not None else [])]
    if found.v != VERSION or any(one.tzinfo is None for one in instants):
        return NO_REBOOTS
    return found
