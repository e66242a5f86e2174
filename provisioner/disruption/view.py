"""What a disruption method is asked about, and what it answers."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final, NamedTuple, TypeAlias

from provisioner.apis.karpenter import NodePool
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.budgets import budget_spent
from provisioner.disruption.loops import NO_HOLDS, LoopHolds
from provisioner.disruption.price_history import NO_PRICE_HISTORY, PriceHistory
from provisioner.disruption.proposal import Blocked, Proposal, Score
from provisioner.disruption.repair_breaker import SHARE
from provisioner.disruption.repair_policies import Illnesses
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import Result
from provisioner.state.pause import NOTHING, Pause
from provisioner.state.snapshot import Snapshot
from provisioner.values.message import Said

VALIDATION: Final = timedelta(seconds=5)
"""How long a node must have been seen empty before it is disrupted for emptiness."""
Improved: TypeAlias = Callable[[Prepared, Result], Result]
"""A fleet that costs no more than that of an answer of scheduling's, for the same pods in the same world, and is as legal; see `packing`."""
TAKES_PODS: Final = Said("Pods of other nodes that are disrupted first will move to the node")
NOT_JUDGED: Final = Said("Node was not evaluated, because other nodes took up the time of the pass")


class Acceptance(enum.StrEnum):
    """When a consolidation pays: the flag `--consolidation`. Balanced pools keep their own rule."""

    SAVING = "saving"
    """What it saves within the horizon is more than what the move costs."""
    KARPENTER = "karpenter"
    """Any saving pays."""


@dataclass(frozen=True, slots=True)
class DisruptionSettings:
    """How nodes are disrupted, as the flags say.

    Attributes:
        spot_to_spot: the feature gate SpotToSpotConsolidation.
        acceptance: the flag `--consolidation`.
        repair_breaker: the flag `--repair-breaker`.
        first_for: reasons, of Drifted and Unhealthy, for which a node may go before its successor is launched: the feature gates TerminateFirstDrift and
            TerminateFirstRepair.
        drain_timeout: the flag `--drain-timeout`; None where NodeClaims without a terminationGracePeriod are drained for as long as it takes.
    """

    spot_to_spot: bool = False
    acceptance: Acceptance = Acceptance.SAVING
    repair_breaker: Fraction = SHARE
    drain_timeout: timedelta | None = None
    first_for: frozenset[str] = frozenset()


class DisruptionStanding(enum.StrEnum):
    """How a node stands with one reason for disruption that concerns it; exactly one of them is true."""

    UNDER_WAY = "UnderWay"
    """In a command, or already leaving."""
    PROPOSED = "Proposed"
    """To be disrupted now, if it still holds at the last look."""
    BLOCKED = "Blocked"
    NOT_DUE = "NotDue"
    NOT_REACHED = "NotReached"
    """The time of the pass was up before; it comes first in the next one."""


@dataclass(frozen=True, slots=True)
class DisruptionVerdict:
    """What becomes of a node.

    Attributes:
        standing: which of the five.
        message: why, as users read it.
        until: when the clock alone changes it; always told of what is not due.
    """

    standing: DisruptionStanding
    message: str = ""
    until: datetime | None = None


class Spared(NamedTuple):
    """Why a node is no candidate for now, whatever for.

    Attributes:
        kind: as of `candidates.Obstacle`.
        message: as users read it.
    """

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class DisruptionView:
    """What a method may look at, at one instant.

    Attributes:
        prepared: its world, ready for questions; None where none could be made, then only methods that ask nothing propose.
        allowed: by name of a pool and reason (`names.BUDGET_REASONS`), how many of its nodes may still be disrupted for it;
            a method takes off by itself what it proposes.
        why_none: likewise, what leaves none where that is 0, as users read it.
        ceiling: how many nodes of all pools together may still be disrupted; None for no such limit.
        empty_for: by NodeClaim, for how long each has been seen empty without a break, by a clock that does not jump.
        validation: how long that must have been.
        under_way: names of the NodeClaims whose disruption has begun, though the snapshot may not show it yet.
        begun: commands that have begun in the same pass; the snapshot does not show what they move, nor their new nodes yet.
        spared: by name, NodeClaims that are no candidates for now and stay: they replace others, their command was called off, or
            replacements of it failed.
        pause: what is paused, and where.
        restless: by name, NodeClaims that consolidation leaves alone for now, though they may take pods, and until when: a moment ago they were
            initialized, nominated or planned for, or a pod came or went.
        first: names of the NodeClaims that the last pass of the method did not come to; they are judged before all others.
        loops: whose nodes are left alone, since they were launched and removed again and again.
        ill: nodes that are broken, by NodeClaim; none where only commands of other reasons are asked for.
        buffered: whether a node, by its key, keeps room for a CapacityBuffer or ProvisioningRequest; it is not empty then.
        expired: says that the time of the pass is up; what was found until then is the answer.
        types_of: the provider's instance types of a pool that takes no new nodes (static, not Ready); those of the others are in `prepared`.
        prices: what offerings were like before they changed.
        improved: looks for a cheaper fleet; None where nobody does, or not now.
    """

    snapshot: Snapshot
    prepared: Prepared | None
    allowed: Callable[[str, str], int]
    why_none: Callable[[str, str], str] = lambda _, reason: budget_spent(reason)
    ceiling: int | None = None
    empty_for: Mapping[str, timedelta] = field(default_factory=dict)
    validation: timedelta = VALIDATION
    under_way: frozenset[str] = frozenset()
    begun: tuple[Proposal, ...] = ()
    spared: Mapping[str, Spared] = field(default_factory=dict)
    pause: Pause = NOTHING
    restless: Mapping[str, datetime] = field(default_factory=dict)
    first: frozenset[str] = frozenset()
    loops: LoopHolds = NO_HOLDS
    ill: Illnesses = field(default_factory=dict)
    buffered: Callable[[str], bool] = lambda _: False
    expired: Callable[[], bool] = lambda: False
    settings: DisruptionSettings = DisruptionSettings()
    types_of: Callable[[NodePool], tuple[InstanceType, ...]] = lambda _: ()
    prices: PriceHistory = NO_PRICE_HISTORY
    improved: Improved | None = None


@dataclass(frozen=True, slots=True)
class MethodAnswer:
    """What one method would do now.

    Attributes:
        proposals: in the order in which they are to be tried; together they keep every budget and are legal, each after those before it.
        blocked: nodes and pools that are left alone, each with its reason.
        recheck_at: when the clock alone may change this answer; None when only events can.
        eligible: how many nodes the method could disrupt, budgets left aside.
        unreached: names of the NodeClaims that the pass ended before; see `DisruptionView.first`.
        rejected: scores of the moves that a Balanced pool refused.
        quiet: by NodeClaim, what becomes of each node that concerns the method, but for those that are proposed or `blocked`: nobody is told by an event.
        judged: by UID, each waiting pod that its scheduler has refused, with the key of the initialized node that has a place for it all the same, ""
            for none; empty where nothing was simulated.
    """

    proposals: tuple[Proposal, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    recheck_at: datetime | None = None
    eligible: int = 0
    unreached: frozenset[str] = frozenset()
    rejected: tuple[Score, ...] = ()
    judged: Mapping[str, str] = field(default_factory=dict)
    quiet: Mapping[str, DisruptionVerdict] = field(default_factory=dict)
