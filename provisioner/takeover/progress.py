"""Where a takeover from Karpenter stands, and which step is next. Pure; `starting` carries the step out.

Everything that is remembered is in two ConfigMaps: what is held, where the provisioner reads it, and what was there when the takeover began. A step is one
write; a command that is killed between two of them finds the same step again.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.state.pause import PAUSED, Activity, value_of
from provisioner.takeover.claim_drift import DriftVerdict
from provisioner.values.printable import counted, listed

EVERYTHING: Final = ",".join(Activity)
_NAMED: Final = 5
_NO_DRIFT: Final = DriftVerdict(0, (), ())
MOST_BYTES: Final = 900_000
"""Of the names of NodeClaims that a ConfigMap holds; the API server takes one MiB."""


class TakeoverPhase(enum.StrEnum):
    """How far a takeover is, as its ConfigMap says."""

    BEGUN = "begun"
    """The pause may be set."""
    PAUSED = "paused"
    """It was set, and is set again where somebody takes it away."""
    ADOPTED = "adopted"
    """Dovetail leads and has taken the NodeClaims over: activities may be released; what the settings say now is held."""
    DONE = "done"
    BACK = names.TAKEOVER_BACK
    """Given back."""


@dataclass(frozen=True, slots=True)
class TakeoverRecord:
    """What is remembered.

    Attributes:
        started: RFC 3339.
        former_pause: what a user had paused before.
        claims: provider ID by name, of the NodeClaims that were there.
    """

    phase: TakeoverPhase
    started: str = ""
    former_pause: str = ""
    claims: Mapping[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, str]:
        """As the data of a ConfigMap."""
        lines = "\n".join(f"{name} {provider}".rstrip() for name, provider in sorted(self.claims.items()))
        return {
            "from": "karpenter",
            names.TAKEOVER_PHASE: str(self.phase),
            "started": self.started,
            "formerPause": self.former_pause,
            "nodeClaims": lines if len(lines) <= MOST_BYTES else "",
        }

    @classmethod
    def of(cls, data: Mapping[str, str]) -> "TakeoverRecord":
        """From the data of a ConfigMap; what cannot be read has begun, so that everything is paused again."""
        known = {str(one): one for one in TakeoverPhase}
        pairs = (line.partition(" ") for line in data.get("nodeClaims", "").splitlines() if line)
        return cls(
            known.get(data.get(names.TAKEOVER_PHASE, ""), TakeoverPhase.BEGUN),
            data.get("started", ""),
            data.get("formerPause", ""),
            {name: provider for name, _, provider in pairs},
        )

    @classmethod
    def begun(
        cls,
        claims: Iterable[NodeClaim],
        settings: Mapping[str, str],
        now: datetime,
        before: "TakeoverRecord | None" = None,
    ) -> "TakeoverRecord":
        """What is remembered of a cluster as it is, and of a takeover that was given back."""
        there = {one.name: one.status.provider_id for one in claims if one.metadata.deletion_timestamp is None}
        former = settings.get(PAUSED, "")
        if set(Activity) <= value_of(former).activities:
            former = before.former_pause if before is not None else ""  # set by a takeover: nobody else holds launches
        return cls(TakeoverPhase.BEGUN, now.isoformat(timespec="seconds"), former, there)

    def at(self, phase: TakeoverPhase) -> "TakeoverRecord":
        """The same in another phase."""
        return replace(self, phase=phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverFacts:
    """What a step is chosen by.

    Attributes:
        record: None where no takeover has begun.
        settings: data of the ConfigMap that the provisioner reads; empty where there is none.
        leads: the namespace in which Karpenter leads; "" for none.
        holder: who holds Dovetail's Lease; "" for nobody.
        renews: whether the holder was seen to renew it: one that died holds it, too.
        installed: whether Dovetail's Deployment is there.
        claims: NodeClaims now.
        drift: what becomes of them.
        unstamped: NodePools and EC2NodeClasses that Dovetail has not stamped with its hash yet.
    """

    record: TakeoverRecord | None
    settings: Mapping[str, str]
    leads: str = ""
    holder: str = ""
    renews: bool = True
    installed: bool = True
    claims: tuple[NodeClaim, ...] = ()
    drift: DriftVerdict = _NO_DRIFT
    unstamped: tuple[str, ...] = ()

    @property
    def held(self) -> tuple[Activity, ...]:
        """What the takeover holds, the next to be released last; what the user had paused before is the user's."""
        now = value_of(self.settings.get(PAUSED, "")).activities
        former = value_of(self.record.former_pause).activities if self.record is not None else frozenset()
        return tuple(one for one in Activity if one in now and one not in former)

    @property
    def standing(self) -> "ClaimStanding":
        return standing_of(self.record.claims if self.record is not None else {}, self.claims)


@dataclass(frozen=True, slots=True)
class ClaimStanding:
    """What became of the NodeClaims of the beginning.

    Attributes:
        recorded: how many there were.
        gone: names of those that are not there any more, or are being deleted.
        new: names of those that came later.
        doubled: provider IDs that more than one NodeClaim has.
    """

    recorded: int
    gone: tuple[str, ...]
    new: tuple[str, ...]
    doubled: tuple[str, ...]

    def summary(self) -> str:
        """For people."""
        kept = self.recorded - len(self.gone)
        text = f"{kept:,} of {counted(self.recorded, 'NodeClaim')} from the start still exist{'s' if kept == 1 else ''}"
        ended = f", {len(self.gone)} ended ({listed(self.gone, _NAMED)})" if self.gone else ""
        return f"{text}{ended}, {len(self.new)} new, {len(self.doubled)} doubled"

    def for_programs(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "recorded": self.recorded,
            "ended": list(self.gone),
            "new": list(self.new),
            "doubled": list(self.doubled),
        }


def standing_of(recorded: Mapping[str, str], claims: Iterable[NodeClaim]) -> ClaimStanding:
    """What became of them. Cost: O(claims)."""
    there, providers, doubled = set[str](), set[str](), set[str]()
    every = set[str]()
    for one in claims:
        every.add(one.name)
        provider = one.status.provider_id
        if provider in providers:
            doubled.add(provider)
        if provider:
            providers.add(provider)
        if one.metadata.deletion_timestamp is None:
            there.add(one.name)
    gone = sorted(recorded.keys() - there)
    return ClaimStanding(len(recorded), tuple(gone), tuple(sorted(every - recorded.keys())), tuple(sorted(doubled)))


class StepKind(enum.StrEnum):
    """What is done next."""

    RECORD = "record"
    PAUSE = "pause"
    MARK_PAUSED = "mark-paused"
    MARK_ADOPTED = "mark-adopted"
    AWAIT_STOP = "await-stop"
    AWAIT_LEADER = "await-leader"
    AWAIT_ADOPTION = "await-adoption"
    RELEASE = "release"
    REFUSE = "refuse"
    FINISH = "finish"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class TakeoverStep:
    """The next step; `text` is for people, `activity` what is released."""

    kind: StepKind
    text: str = ""
    activity: Activity | None = None

    @property
    def waits(self) -> bool:
        """Whether nothing is to be written, and the facts are to be read again."""
        return self.kind in (StepKind.AWAIT_STOP, StepKind.AWAIT_LEADER, StepKind.AWAIT_ADOPTION)


def next_step(facts: TakeoverFacts) -> TakeoverStep:
    """The one step that is due."""
    record = facts.record
    if record is None or record.phase is TakeoverPhase.BACK:
        return TakeoverStep(StepKind.RECORD, "recording which NodeClaims exist")
    if record.phase is TakeoverPhase.DONE:
        return TakeoverStep(StepKind.DONE, "the takeover is complete; nothing is held")
    if record.phase is not TakeoverPhase.ADOPTED:  # whoever takes the pause away, the first leader does not act
        if not set(Activity) <= value_of(facts.settings.get(PAUSED, "")).activities:
            return TakeoverStep(StepKind.PAUSE, f"holding {', '.join(Activity)}")
        if record.phase is TakeoverPhase.BEGUN:
            return TakeoverStep(StepKind.MARK_PAUSED)
    if facts.leads:
        return TakeoverStep(
            StepKind.AWAIT_STOP, f'waiting until Karpenter no longer holds its Lease in namespace "{facts.leads}"'
        )
    if not facts.holder or not facts.renews:
        where = "waiting until Dovetail leads" if facts.installed else "waiting until Dovetail is installed and leads"
        return TakeoverStep(StepKind.AWAIT_LEADER, where)
    if facts.unstamped:
        named = listed(facts.unstamped, _NAMED)
        return TakeoverStep(StepKind.AWAIT_ADOPTION, f"waiting until Dovetail has taken over {named}")
    if facts.standing.doubled:
        named = listed(facts.standing.doubled, _NAMED)
        return TakeoverStep(
            StepKind.REFUSE,
            f"more than one NodeClaim has the instance {named}; delete the finalizers and then the NodeClaim that is wrong",
        )
    if record.phase is TakeoverPhase.PAUSED:
        return TakeoverStep(StepKind.MARK_ADOPTED, f"Dovetail leads ({facts.holder}); {facts.standing.summary()}")
    return _release(facts)


def _release(facts: TakeoverFacts) -> TakeoverStep:
    if not facts.held:
        return TakeoverStep(StepKind.FINISH, "nothing is held any more")
    activity = facts.held[-1]
    drifting, unknown = facts.drift.only_here, facts.drift.undetermined
    if activity is Activity.DRIFT and unknown:
        return TakeoverStep(
            StepKind.REFUSE,
            f"it could not be determined whether {listed((name for name, _ in unknown), _NAMED)} would drift: {unknown[0][1]}",
        )
    if activity is Activity.DRIFT and drifting:
        named = listed((f"{one.claim} ({one.reason})" for one in drifting), _NAMED)
        return TakeoverStep(
            StepKind.REFUSE,
            f"{counted(len(drifting), 'NodeClaim')} would be replaced that Karpenter would keep: {named}; set their NodePools and "
            f'EC2NodeClasses as they were, or remove the key "{PAUSED}" yourself to replace them',
        )
    return TakeoverStep(StepKind.RELEASE, f"releasing {activity}", activity)


def settings_after(facts: TakeoverFacts, released: Activity | None) -> str | None:
    """The value of the pause once an activity is released; None for no such key. What the user had paused stays."""
    former = facts.record.former_pause if facts.record is not None else ""
    held = [one for one in facts.held if one is not released]
    if not held:
        return former or None
    kept = value_of(former).activities
    return ",".join(one for one in Activity if one in held or one in kept)
