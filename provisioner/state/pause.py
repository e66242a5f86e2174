"""What of which NodePools is paused, by a user or because Karpenter itself leads: drift, consolidation, expiration, repair, launches.

Differs: Karpenter has no pause; budgets of 0 do not stop what has begun.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import condition
from provisioner.values.message import Said
from provisioner.values.printable import one_line

PAUSED: Final = "paused"
"""The key of the ConfigMap."""
_MOST_SHOWN: Final = 60


class Activity(enum.StrEnum):
    """What can be paused; the words of the value.

    Attributes:
        CONSOLIDATION: of nodes that are empty or underutilized, surplus nodes of static NodePools, and moves for on-demand shares.
    """

    DRIFT = "drift"
    CONSOLIDATION = "consolidation"
    EXPIRATION = "expiration"
    REPAIR = "repair"
    LAUNCH = "launch"


DISRUPTION: Final = frozenset(Activity) - {Activity.LAUNCH}
"""What `true` pauses."""
_SUBJECTS: Final = {
    Activity.DRIFT: "drift",
    Activity.CONSOLIDATION: "consolidation",
    Activity.EXPIRATION: "expiration",
    Activity.REPAIR: "node repair",
    Activity.LAUNCH: "launching nodes",
}
_ENDED: Final = {
    "expired": (Activity.EXPIRATION,),
    "unhealthy": (Activity.REPAIR,),
    "scaled-down": (Activity.CONSOLIDATION,),
}
_ACTIVITIES: Final = {names.REASON_DRIFTED: Activity.DRIFT, names.REASON_UNHEALTHY: Activity.REPAIR}
_COMMANDS: Final = (Activity.DRIFT, Activity.CONSOLIDATION, Activity.REPAIR)


def activity_of(reason: str) -> Activity:
    """What disrupts nodes for this reason, one of `names.BUDGET_REASONS`."""
    return _ACTIVITIES.get(reason, Activity.CONSOLIDATION)


@dataclass(frozen=True, slots=True)
class PauseValue:
    """What the value of one key or annotation says.

    Attributes:
        activities: that are paused.
        unknown: words that nobody understands, as they are shown.
    """

    activities: frozenset[Activity] = frozenset()
    unknown: tuple[str, ...] = ()

    def why(self, by: str, activity: Activity) -> str:
        """That `by` pauses an activity, as users read it; "" where it does not."""
        if activity not in self.activities:
            return ""
        every = activity in DISRUPTION and self.activities >= DISRUPTION
        subject = "disruption" if every else _SUBJECTS[activity]
        return Said(f"{subject.capitalize()} is paused by {by}{self._remedy()}")

    def summary(self, by: str) -> str:
        """Everything that `by` pauses, as users read it; "" for nothing."""
        if not self.activities:
            return ""
        left = self.activities - DISRUPTION if self.activities >= DISRUPTION else self.activities
        *others, last = [
            *(["disruption"] if left != self.activities else []),
            *(_SUBJECTS[one] for one in Activity if one in left),
        ]
        text = f"{', '.join(others)} and {last} are" if others else f"{last} is"
        return Said(f"{text.capitalize()} paused by {by}{self._remedy()}")

    def _remedy(self) -> str:
        if not self.unknown:
            return ""
        return Said(
            f" (the value contains {', '.join(self.unknown)}, which is not known and pauses everything except launching nodes; use true, or "
            f"a list of {', '.join(Activity)})"
        )


_NO_VALUE: Final = PauseValue()
_ALL: Final = PauseValue(DISRUPTION)


@dataclass(frozen=True, slots=True)
class Pause:
    """What is paused at one instant.

    Attributes:
        everywhere: of all NodePools.
        pools: of single NodePools, by name; those of which nothing is are left out.
        unread: disruption is paused everywhere, because nobody knows what the ConfigMap says.
        beside: likewise, because another Karpenter leads: this says so. Drains that have begun go on.
    """

    everywhere: PauseValue = _NO_VALUE
    pools: Mapping[str, PauseValue] = field(default_factory=dict)
    unread: bool = False
    beside: str = ""

    def covers_all(self, activity: Activity) -> bool:
        """Whether an activity is paused in every NodePool."""
        return bool(self.beside and activity in DISRUPTION) or activity in self.everywhere.activities

    def why(self, pool: str, activity: Activity) -> str:
        """What pauses an activity in a NodePool, as users read it; "" where nothing does."""
        if self.beside and activity in DISRUPTION:
            return Said(f"Disruption is suspended because {self.beside}")
        return self.why_drains(pool, (activity,))

    def why_drains(self, pool: str, activities: Iterable[Activity]) -> str:
        """What pauses drains for one of these activities of a NodePool's nodes, as users read it; "" where nothing does."""
        if self.unread and not DISRUPTION.isdisjoint(activities := tuple(activities)):
            return self._unread()
        return next(
            filter(None, (value.why(by, one) for one in activities for value, by in self._said_of(pool))),
            "",
        )

    def summary(self, pool: str) -> str:
        """Everything that is paused in a NodePool, as users read it; "" for nothing."""
        if self.beside:
            return Said(f"Disruption is suspended because {self.beside}")
        if self.unread:
            return self._unread()
        return "; ".join(filter(None, (value.summary(by) for value, by in self._said_of(pool))))

    def _unread(self) -> str:
        unread = Said(f'the provisioner has not read ConfigMap "{names.SETTINGS_CONFIGMAP}" yet')
        return Said(f"Disruption is suspended because {unread}; its Role must allow listing and watching it")

    def _said_of(self, pool: str) -> Iterable[tuple[PauseValue, str]]:
        """What holds for a NodePool, and where that is written."""
        yield self.everywhere, f'the key "{PAUSED}" of ConfigMap "{names.SETTINGS_CONFIGMAP}"'
        if (own := self.pools.get(pool)) is not None:
            yield own, _annotation(pool)


NOTHING: Final = Pause()


def _annotation(pool: str) -> str:
    return f'the annotation "{names.PAUSED}" of NodePool "{pool}"'


def pause_of(pools: Iterable[NodePool], settings: Mapping[str, str] | None, beside: str = "") -> Pause:
    """What is paused.

    Args:
        pools: every NodePool that is asked about.
        settings: `data` of the ConfigMap; empty where there is none, None while that is not known.
        beside: that another Karpenter leads, as a sentence; "" where none does.
    """
    said = {one.name: value_of(one.metadata.annotations.get(names.PAUSED, "")) for one in pools}
    everywhere = _ALL if settings is None else value_of(settings.get(PAUSED, ""))
    return Pause(everywhere, {name: one for name, one in said.items() if one != _NO_VALUE}, settings is None, beside)


def why_not_launched(pool: NodePool) -> str:
    """What a NodePool itself says against launching nodes of it, as users read it; "" for nothing."""
    return value_of(pool.metadata.annotations.get(names.PAUSED, "")).why(_annotation(pool.name), Activity.LAUNCH)


def activities_behind(claim: NodeClaim) -> tuple[Activity, ...]:
    """What ended a NodeClaim, so that pausing one of these holds its drain; every kind of command where it does not say which."""
    if (ended := _ENDED.get(claim.metadata.annotations.get(names.ENDED_FOR, ""))) is not None:
        return ended
    reason = condition(claim.status.conditions, names.DISRUPTION_REASON)
    return _COMMANDS if reason is None else (activity_of(reason.reason),)


def value_of(text: str) -> PauseValue:
    """What a value says: `true`, `false`, or a list of activities. A word that nobody understands pauses all but launches: whoever wrote it wants
    something to stop.
    """
    words = [word for word in (part.strip() for part in text.split(",")) if word]
    found, unknown = set[Activity](), list[str]()
    for word in words:
        if word.lower() in tuple(Activity):
            found.add(Activity(word.lower()))
        elif word.lower() != "false":
            found |= DISRUPTION
            if word.lower() != "true":
                unknown.append(f'"{one_line(word)[:_MOST_SHOWN]}"')
    return PauseValue(frozenset(found), tuple(unknown[:3]))
