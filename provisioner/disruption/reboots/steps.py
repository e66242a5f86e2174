"""What a reboot does next. Pure: `next_reboot_step` looks at the record and at facts of one instant, and at nothing else.

    requested ─▶ announced ─▶ closed ─▶ drained ─▶ intent written ─▶ cloud called ─▶ another boot ID ─▶ open ─▶ Ready
        └───────────┴───────────┴──────────┴─▶ called off    └──────────────┴───────────┴─▶ failed, then replaced

An intent that this process has not written is never called for: whoever wrote it may have called. The node has 20 minutes to come back, and is replaced.

Source: Karpenter 1.15 spec 4. Differs: there the call is repeated by whoever finds no answer, and a leader forgets what was rebooted before it.
"""

import enum
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.reboot import RebootEnd, RebootEpisode, RebootIntent, RebootRecord
from provisioner.values.message import Said

SHORTEST_DRAIN: Final = timedelta(seconds=5)
"""From the request to the call, however soon the pods are gone."""
CALLING: Final = timedelta(minutes=5)
"""For so long after the first call another one is made where the cloud did not do it; so long the Node may be missing before."""
RECOVERY: Final = timedelta(minutes=20)
"""From the call to a Node that is Ready with another boot ID."""
LOOK: Final = timedelta(seconds=15)
"""After so long the node is looked at again, whatever is heard."""
DRAIN_LOOK: Final = timedelta(seconds=1)
MOST_ATTEMPTS: Final = 10
_FIRST_PAUSE: Final = timedelta(seconds=2)
_LONGEST_PAUSE: Final = timedelta(seconds=60)


class RebootStep(enum.Enum):
    """What to do."""

    NOTHING = "nothing"
    CLEAR = "clear"
    """Take back marks of a reboot of which nothing is written: condition, taint, annotations."""
    ADOPT = "adopt"
    """Write what Karpenter has begun, and may have called for."""
    ANNOUNCE = "announce"
    """Say on the NodeClaim that its node is rebooted."""
    CLOSE = "close"
    """Give the Node the taint."""
    DRAIN = "drain"
    """Ask pods to leave; look again."""
    INTEND = "intend"
    """Write the intent of a call."""
    CALL = "call"
    """Make the call of the intent, which this process has written a moment ago."""
    ISSUED = "issued"
    """Say that the node is away: Initialized is Unknown, its label is gone."""
    OPEN = "open"
    """Take the taint off."""
    AWAIT = "await"
    END = "end"
    """Write how it ended."""
    CONCLUDE = "conclude"
    """Say on the NodeClaim how it ended."""
    DROP = "drop"
    """Keep of the record what later reboots have to know."""


@dataclass(frozen=True, slots=True)
class RebootNode:
    """A Node, as far as it concerns a reboot.

    Attributes:
        boot_id: as its kubelet says; "" where it does not.
        ready: likewise.
        closed: it has the taint.
        initialized: it has the label.
    """

    boot_id: str
    ready: bool
    closed: bool = False
    initialized: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The cloud is known not to have done the last call.

    Attributes:
        final: another call would be in vain.
        attempt: which one it was.
        at: when it was heard.
    """

    final: bool
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True)
class RebootFacts:
    """One instant of a NodeClaim.

    Attributes:
        by: the process that asks.
        told: the reason of the condition Rebooting where it is True, else "".
        pre_boot_id: what Karpenter's annotation says.
        marked: whether any annotation of Karpenter's about a reboot is there.
        away: Initialized is Unknown since the node is rebooted.
        node: None where it has none.
        ill: a condition of the Node says that it is broken.
        held: why nothing may begin, since it is paused; "" where it is not.
        left: pods that the drain still waits for.
        called: by this process, for the intent that is written.
        refusal: of that call.
        watched: for how long this process has seen the reboot where it is.
    """

    now: datetime
    by: str
    record: RebootRecord
    deleting: bool = False
    told: str = ""
    pre_boot_id: str = ""
    marked: bool = False
    away: bool = False
    node: RebootNode | None = None
    ill: bool = True
    held: str = ""
    left: int = 0
    called: bool = False
    refusal: Refusal | None = None
    watched: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class NextReboot:
    """A step.

    Attributes:
        until: when to look again, where nothing is heard.
        attempt: of the intent to write.
        end: how it ends.
        why: for events and logs.
    """

    step: RebootStep
    until: datetime | None = None
    attempt: int = 0
    end: RebootEnd | None = None
    why: str = field(default="", compare=False)


def next_reboot_step(facts: RebootFacts) -> NextReboot:
    """What a reboot does next."""
    if facts.deleting:
        return NextReboot(RebootStep.NOTHING)  # termination does the rest
    episode = facts.record.episode
    if episode is None:
        return _without(facts)
    if episode.end is not None:
        return _ended(facts, episode.end)
    returned = facts.node is not None and facts.node.boot_id not in ("", old_boot_id(episode))
    if returned and facts.node is not None:
        return _returned(facts, episode, facts.node)
    if episode.intent is None:
        return _requested(facts, episode)
    return _issued(facts, facts.record, episode.intent)


def old_boot_id(episode: RebootEpisode) -> str:
    """The boot ID that has to change."""
    return episode.intent.boot_id if episode.intent is not None else episode.boot_id


def elapsed(facts: RebootFacts, since: datetime) -> timedelta:
    """How long something lasts, at least as long as this process has watched it: the time may be of a clock that is fast."""
    return max(facts.now - since, facts.watched)


def _without(facts: RebootFacts) -> NextReboot:
    if facts.told and facts.pre_boot_id:
        return NextReboot(RebootStep.ADOPT)
    closed = facts.node is not None and facts.node.closed
    if facts.told or facts.marked or closed:
        return NextReboot(RebootStep.CLEAR)
    return NextReboot(RebootStep.NOTHING)


def _requested(facts: RebootFacts, episode: RebootEpisode) -> NextReboot:
    """Nothing has happened yet that could not be taken back."""
    if why := _why_not(facts):
        return NextReboot(RebootStep.END, end=RebootEnd.CALLED_OFF, why=why)
    node = facts.node
    if node is None:
        if elapsed(facts, episode.requested) >= CALLING:
            return NextReboot(RebootStep.END, end=RebootEnd.CALLED_OFF, why=Said("its Node no longer exists"))
        return _await(facts, episode.requested + CALLING)
    if not facts.told:
        return NextReboot(RebootStep.ANNOUNCE)
    if not node.closed:
        return NextReboot(RebootStep.CLOSE)
    passed = elapsed(facts, episode.requested)
    grace = None if episode.grace_seconds is None else timedelta(seconds=episode.grace_seconds)
    drains = grace is None or (grace > timedelta(0) and passed < max(grace, SHORTEST_DRAIN))
    if facts.left and drains:
        return NextReboot(RebootStep.DRAIN, until=facts.now + DRAIN_LOOK)
    if passed < SHORTEST_DRAIN:
        return _await(facts, facts.now + SHORTEST_DRAIN - passed)
    return NextReboot(RebootStep.INTEND, attempt=1)


def _why_not(facts: RebootFacts) -> str:
    if facts.held:
        return facts.held
    if not facts.ill:
        return Said("its Node is healthy again")
    if facts.node is not None and not facts.node.boot_id:
        return Said("its Node does not report a boot ID")
    return ""


def _issued(facts: RebootFacts, record: RebootRecord, intent: RebootIntent) -> NextReboot:
    """The cloud was called, or may have been; the boot ID is the old one, or there is no Node."""
    if (refused := facts.refusal) is not None and refused.attempt == intent.attempt:
        return _refused(facts, record, intent, refused)
    if intent.by == facts.by and not facts.called and elapsed(facts, intent.at) < CALLING:
        return NextReboot(RebootStep.CALL, attempt=intent.attempt)
    if elapsed(facts, intent.at) >= RECOVERY:
        return _failed(RebootEnd.RECOVERY_TIMEOUT, Said("the Node did not report another boot ID within 20 minutes"))
    if told := _untold(facts):
        return told
    if facts.node is not None and not facts.node.closed:
        return NextReboot(RebootStep.CLOSE)
    return _await(facts, intent.at + RECOVERY)


def _refused(facts: RebootFacts, record: RebootRecord, intent: RebootIntent, refused: Refusal) -> NextReboot:
    first = record.times[-1] if record.times else intent.at
    if why := _why_not(facts):
        return NextReboot(RebootStep.END, end=RebootEnd.CALLED_OFF, why=why)
    if refused.final:
        return _failed(RebootEnd.PROVIDER_ERROR, Said("the cloud provider refused to reboot the instance"))
    if facts.now - first >= CALLING or intent.attempt >= MOST_ATTEMPTS:
        return _failed(RebootEnd.PROVIDER_ERROR, Said("the cloud provider did not accept the reboot within 5 minutes"))
    if facts.node is not None and not facts.node.closed:
        return NextReboot(RebootStep.CLOSE)
    again = refused.at + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (intent.attempt - 1))
    if facts.now < again or facts.node is None:
        return _await(facts, again)
    return NextReboot(RebootStep.INTEND, attempt=intent.attempt + 1)


def _returned(facts: RebootFacts, episode: RebootEpisode, node: RebootNode) -> NextReboot:
    """The boot ID is another one: by our call, or before it."""
    since = episode.intent.at if episode.intent is not None else episode.requested
    if not node.ready and elapsed(facts, since) >= RECOVERY:
        return _failed(RebootEnd.RECOVERY_TIMEOUT, Said("the Node did not become Ready within 20 minutes"))
    if episode.intent is not None and (told := _untold(facts)):
        return told
    if node.closed:
        return NextReboot(RebootStep.OPEN)
    if not node.ready:
        return _await(facts, since + RECOVERY)
    if episode.intent is None:  # nor does it count among the reboots of a day
        return NextReboot(
            RebootStep.END, end=RebootEnd.CALLED_OFF, why=Said("the Node rebooted before it was asked to")
        )
    return NextReboot(RebootStep.END, end=RebootEnd.SUCCEEDED)


def _untold(facts: RebootFacts) -> NextReboot | None:
    labelled = facts.node is not None and facts.node.initialized
    if facts.told != names.REBOOT_ISSUED or not facts.away or labelled:
        return NextReboot(RebootStep.ISSUED)
    return None


def _ended(facts: RebootFacts, end: RebootEnd) -> NextReboot:
    if end.failed:
        if facts.told:
            return NextReboot(RebootStep.CONCLUDE, end=end)
        if facts.node is not None and facts.node.ready and not facts.ill:
            return NextReboot(RebootStep.END, end=RebootEnd.RECOVERED)
        return NextReboot(RebootStep.NOTHING)  # repair replaces it
    if facts.node is not None and facts.node.closed:
        return NextReboot(RebootStep.OPEN)
    if facts.told:
        return NextReboot(RebootStep.CONCLUDE, end=end)
    return NextReboot(RebootStep.DROP)


def _failed(end: RebootEnd, why: str) -> NextReboot:
    return NextReboot(RebootStep.END, end=end, why=why)


def _await(facts: RebootFacts, until: datetime) -> NextReboot:
    return NextReboot(RebootStep.AWAIT, until=min(until, facts.now + LOOK) if until > facts.now else facts.now + LOOK)
