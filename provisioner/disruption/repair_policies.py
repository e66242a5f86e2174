"""Which Nodes are broken, since when, and what is to be done about each. Source: Karpenter 1.15 spec 3.1.

What a kubelet writes on its Node is its own word: of each type one condition counts, of its reason the first `MOST_REASON` characters, and no time that lies
ahead. Only the regexes of our own policies are compiled.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition
from provisioner.apis.reboot import reboots_of
from provisioner.cloudprovider.types import RepairAction, RepairPolicy

SEEN: Final = timedelta(seconds=60)
"""A condition is to be seen for so long at least, however old it says it is: a kubelet whose clock is slow may have begun anew."""
MOST_REASON: Final = 1024
"""Characters of a condition's reason that are looked at."""
_MOST_PRIORITY: Final = 100
_STATUSES: Final = frozenset({"True", "False", "Unknown"})
_RANK_TIME: Final = timedelta(minutes=30)
"""A node that has waited for so long has caught up with one of the next priority."""

Sighted: TypeAlias = tuple[Condition, datetime]
"""A condition of a Node, and when it was first seen as it is."""


@dataclass(frozen=True, slots=True)
class RepairMatch:
    """A condition that a policy finds.

    Attributes:
        kind: the condition's type; the fallback finds those of other policies.
        status: the condition's.
        rank: of the policy's priority among those of its set, from 0.
        eligible_at: when it is tolerated no longer.
    """

    kind: str
    status: str
    policy: RepairPolicy
    rank: int
    eligible_at: datetime

    @property
    def order(self) -> tuple[bool, int, datetime, str, str]:
        """Of two that are due, the first says what is done."""
        policy = self.policy
        return (
            policy.action is not RepairAction.REPLACE,
            -policy.priority,
            self.eligible_at,
            self.kind,
            policy.reason_regex,
        )


@dataclass(frozen=True, slots=True)
class RepairChoice:
    """What is to be done about a node now.

    Attributes:
        match: the one that counts.
        grace: the shortest drain that any policy allows whose condition is due; None where none sets one.
        score: whoever has more goes first.
    """

    match: RepairMatch
    grace: timedelta | None
    score: float


@dataclass(frozen=True, slots=True)
class Illness:
    """Why a node is broken.

    Attributes:
        matches: never empty, in a fixed order.
        may_reboot: whether a reboot would do where a policy asks for one; else the node is replaced.
    """

    matches: tuple[RepairMatch, ...]
    may_reboot: bool = False

    @property
    def due_at(self) -> datetime:
        """When the first of its conditions is tolerated no longer."""
        return min(one.eligible_at for one in self.matches)

    def choice(self, now: datetime) -> RepairChoice | None:
        """What is to be done; None while all of its conditions are tolerated. Cost: O(matches)."""
        due = [one for one in self.matches if one.eligible_at <= now]
        if not due:
            return None
        graces = [one.policy.termination_grace_period for one in due]
        return RepairChoice(
            match=min(due, key=lambda one: one.order),
            grace=min((one for one in graces if one is not None), default=None),
            score=max(one.rank + (now - one.eligible_at) / _RANK_TIME for one in due),
        )


def after_reboot(claim: NodeClaim) -> RepairMatch | None:
    """What is to be done about a node whose reboot failed: it is replaced, however its conditions are; None for others."""
    record = reboots_of(claim)
    if not record.failed or (episode := record.episode) is None:
        return None
    grace = None if episode.grace_seconds is None else timedelta(seconds=episode.grace_seconds)
    policy = RepairPolicy(names.REBOOTING, names.FALSE, timedelta(0), termination_grace_period=grace)
    since = episode.intent.at if episode.intent is not None else episode.requested
    return RepairMatch(episode.condition or names.REBOOTING, names.FALSE, policy, 0, since)


Illnesses: TypeAlias = Mapping[str, Illness]
"""Of the nodes that are broken, by name of the NodeClaim."""


class RepairPolicySet:
    """Finds what policies say of a Node.

    Args:
        policies: at most one of them with an empty regex: it is for conditions that another policy names by type and status, and whose reason none finds.

    Raises:
        ValueError: they contradict each other, or themselves.
    """

    def __init__(self, policies: Sequence[RepairPolicy]) -> None:
        if wrong := [f"{one}: {why}" for one in policies for why in _faults(one)]:
            raise ValueError("; ".join(wrong))
        ranks = {priority: rank for rank, priority in enumerate(sorted({one.priority for one in policies}))}
        fallbacks = [one for one in policies if not one.reason_regex]
        if len(fallbacks) > 1 or any(one.action is not RepairAction.REPLACE for one in fallbacks):
            raise ValueError(f"one policy without a regex may be the fallback, and it replaces nodes: {fallbacks}")
        self._fallback: Final = (fallbacks[0], ranks[fallbacks[0].priority]) if fallbacks else None
        self._found: Final[dict[tuple[str, str], list[tuple[re.Pattern[str], RepairPolicy, int]]]] = {}
        for one in policies:
            known = self._found.setdefault((one.condition_type, one.condition_status), [])
            if one.reason_regex:
                known.append((re.compile(one.reason_regex), one, ranks[one.priority]))
        self.kinds: Final = frozenset(one.condition_type for one in policies)
        """Types of the conditions that matter."""

    def illness(
        self, conditions: Iterable[Sighted], created: datetime | None, rebooted: datetime | None = None
    ) -> Illness | None:
        """What is wrong with a Node; None for a healthy one.

        A condition lasts since it says so, or since it was first seen, and no longer than its Node exists. Differs: it has to be seen for a minute, too.

        Args:
            conditions: of the Node; of several of one type the first counts.
            created: when the Node was.
            rebooted: when its last reboot ended; what it said before is tolerated anew.

        Cost: O(conditions + policies), the regexes apart, which look at no more than `MOST_REASON` characters.
        """
        first: dict[str, Sighted] = {}
        for one, seen in conditions:
            if one.type in self.kinds:
                first.setdefault(one.type, (one, seen))
        matches = []
        for kind, (one, seen) in sorted(first.items()):
            start = _start(one, seen, created)
            if rebooted is not None and rebooted.tzinfo is not None:
                start = max(start, rebooted)
            for policy, rank in self._matching(one):
                least = seen + min(policy.toleration, SEEN)
                matches.append(RepairMatch(kind, one.status, policy, rank, max(start + policy.toleration, least)))
        return Illness(tuple(matches)) if matches else None

    def _matching(self, one: Condition) -> list[tuple[RepairPolicy, int]]:
        known = self._found.get((one.type, one.status))
        if known is None:
            return []
        reason = one.reason[:MOST_REASON]
        found = [(policy, rank) for regex, policy, rank in known if regex.search(reason)]
        return found or ([self._fallback] if self._fallback is not None else [])


def _start(one: Condition, seen: datetime, created: datetime | None) -> datetime:
    said = one.last_transition_time
    since = seen if said is None or said.tzinfo is None else min(said, seen)
    return since if created is None or created.tzinfo is None else max(since, min(created, seen))


def _faults(one: RepairPolicy) -> list[str]:
    faults = {
        "the condition has no type": not one.condition_type,
        "the status is none": one.condition_status not in _STATUSES,
        "the toleration is negative": one.toleration < timedelta(0),
        "the grace period is negative": (one.termination_grace_period or timedelta(0)) < timedelta(0),
        "the priority is not from 0 to 100": not 0 <= one.priority <= _MOST_PRIORITY,
    }
    return [why for why, is_so in faults.items() if is_so]
