"""What a page tells of a history: figures, decisions, interruptions and shortages, of a bounded number each; `HistoryDigest`. Pure.

Entries are told once, in order; those of pods are passed over. What a history forgets is left out when somebody asks.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from provisioner.history.causes import cause_of
from provisioner.history.entries import (
    BatchPlanned,
    BoundCauses,
    ClaimGone,
    ClaimSeen,
    CommandSeen,
    CommandTurn,
    EventTold,
    FleetBound,
    FleetCost,
    Gap,
    HistoryEntry,
    InstanceInterrupted,
    NodeGone,
    NodeSeen,
    OfferingTurned,
)
from provisioner.values.bounded import forget_oldest, put_newest

MOST_FIGURES: Final = 4096
"""Moments; of more, every second one of the older half is forgotten."""
MOST_DECISIONS: Final = 1000
_MOST_INTERRUPTED: Final = 5000
_MOST_OFFERINGS: Final = 5000
_MOST_BLOCKED: Final = 20_000
_MOST_NAMES: Final = 20_000
"""Of nodes and of NodeClaims, each: a record with gaps tells of some that they came, and never that they went."""
BLOCKED_SECONDS: Final = 1800.0
"""After which a statement counts no more: what holds is said every quarter of an hour."""
_MOST_CAUSES: Final = 8
_BLOCKED_KINDS: Final = frozenset({"Node", "NodeClaim", "NodePool"})
_SAYS_BLOCKED: Final = frozenset(
    {
        "DisruptionBlocked",
        "Unconsolidatable",
        "DisruptionLoop",
        "NodeRepairBlocked",
        "ScaleDownFailed",
        "ConsolidationRejected",
    }
)
_DECIDES: Final = frozenset(
    {
        "DisruptionTerminating",
        "DisruptionLaunching",
        "ScaleDown",
        "ScaleDownEmpty",
        "ScaledUpGroup",
        "FailedToScaleUpGroup",
    }
)
"""Reasons of events by which an autoscaler tells what it does; of a cluster whose commands are told, they are passed over."""

T = TypeVar("T")
Offering = tuple[str, str, str]
"""Zone, capacity type, instance type."""


@dataclass(frozen=True, slots=True)
class DecisionTold:
    """Something that was decided.

    Attributes:
        at: when it began.
        entry: what is known of it now.
        ended: when a command was done or called off; 0 before.
        nodes: names of the Nodes of its candidates, "" where none is known.
        blocked: causes that kept other nodes then, and how many, most first.
    """

    at: float
    entry: BatchPlanned | CommandSeen | EventTold
    ended: float = 0.0
    nodes: tuple[str, ...] = ()
    blocked: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ShortageTold:
    """An offering that could not be had: how often, for how many seconds in all, when that began last, and whether it lasts."""

    times: int = 0
    seconds: float = 0.0
    since: float = 0.0
    lasts: bool = False


@dataclass(frozen=True, slots=True)
class HistoryTold:
    """What is known now; everything in the order of time."""

    costs: tuple[tuple[float, FleetCost], ...] = ()
    bounds: tuple[FleetBound, ...] = ()
    causes: BoundCauses | None = None
    decisions: tuple[DecisionTold, ...] = ()
    interrupted: tuple[tuple[float, InstanceInterrupted], ...] = ()
    shortages: tuple[tuple[Offering, ShortageTold], ...] = ()
    dropped: int = 0


@dataclass(slots=True)
class HistoryDigest:
    """See the module. Not thread-safe."""

    _costs: list[tuple[float, FleetCost]] = field(default_factory=list)
    _bounds: list[tuple[float, FleetBound]] = field(default_factory=list)
    _causes: BoundCauses | None = None
    _decisions: dict[str, DecisionTold] = field(default_factory=dict)
    _events: dict[str, DecisionTold] = field(default_factory=dict)
    _interrupted: dict[tuple[str, str], tuple[float, InstanceInterrupted]] = field(default_factory=dict)
    _shortages: dict[Offering, ShortageTold] = field(default_factory=dict)
    _blocked: OrderedDict[tuple[str, str], tuple[float, str]] = field(default_factory=OrderedDict)
    _node_of: dict[str, str] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _gaps: list[tuple[float, Gap]] = field(default_factory=list)
    _blocked_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _fruitless: tuple[tuple[str, int], ...] | None = None

    def add(self, at: float, entries: Iterable[HistoryEntry]) -> None:
        """What happened at a time, not before the last. Cost: a microsecond for each entry of a pod."""
        for one in entries:
            self._add(at, one)

    def told(self, since: float = 0.0) -> HistoryTold:
        """What is known from a time on. Cost: O(what is kept)."""
        decisions = [*(self._decisions or self._events).values()]  # only Dovetail's are told otherwise than in events
        bounds = _after(self._bounds, since)
        return HistoryTold(
            _after(self._costs, since),
            tuple([one for _, one in bounds]),
            self._causes if self._causes is not None and self._causes.asked >= since else None,
            tuple(sorted([one for one in decisions if max(one.at, one.ended) >= since], key=lambda one: one.at)),
            _after(self._interrupted.values(), since),
            tuple([(key, one) for key, one in sorted(self._shortages.items()) if one.lasts or one.since >= since]),
            sum(one.dropped for _, one in _after(self._gaps, since)),
        )

    def _add(self, at: float, one: HistoryEntry) -> None:
        match one:
            case FleetCost():
                _append(self._costs, at, one)
            case FleetBound():
                _append(self._bounds, at, one)
            case BoundCauses():
                self._causes = one
            case BatchPlanned():
                self._batch(at, one)
            case CommandSeen():
                self._command(at, one)
            case EventTold():
                self._said(at, one)
            case ClaimSeen():
                put_newest(self._node_of, one.name, one.node, _MOST_NAMES)
            case ClaimGone():
                self._node_of.pop(one.name, None)
                self._unblock(("NodeClaim", one.name))
            case NodeSeen():
                put_newest(self._names, one.number, one.name, _MOST_NAMES)
            case NodeGone():
                self._unblock(("Node", self._names.pop(one.node, "")))
            case InstanceInterrupted():
                key = one.claim, one.reason
                put_newest(self._interrupted, key, (self._interrupted.get(key, (at, one))[0], one), _MOST_INTERRUPTED)
            case OfferingTurned():
                self._turned(at, one)
            case Gap():
                _append(self._gaps, at, one)
            case _:
                pass

    def _decide(self, key: str, decision: DecisionTold) -> None:
        self._decisions[key] = decision  # what is known already keeps its turn
        forget_oldest(self._decisions, MOST_DECISIONS)

    def _batch(self, at: float, one: BatchPlanned) -> None:
        came_to = one.unplaced if not (one.new or one.existing) else None
        if came_to is None or came_to != self._fruitless:  # the same pods wait, and are planned again and again
            self._decide(one.id, DecisionTold(at, one, blocked=self._blocking(at)))
        self._fruitless = came_to

    def _command(self, at: float, one: CommandSeen) -> None:
        known = self._decisions.get(one.id)
        ended = at if one.turn in (CommandTurn.DONE, CommandTurn.CALLED_OFF) else 0.0
        if known is None or not isinstance(known.entry, CommandSeen):
            nodes = tuple(self._node_of.get(name, "") for name in one.candidates)
            self._decide(one.id, DecisionTold(at, one, ended, nodes, self._blocking(at)))
        elif not known.ended:
            before = known.entry
            if not one.new and before.new:  # only where it began, all of it is known
                one = CommandSeen(
                    one.id, one.turn, one.reason, one.method, one.candidates, before.new, before.usd_before, before.usd_after, before.pods
                )  # fmt: skip
            self._decide(one.id, replace(known, entry=one, ended=ended))

    def _said(self, at: float, one: EventTold) -> None:
        if one.reason in _SAYS_BLOCKED and one.kind in _BLOCKED_KINDS:
            self._block(at, one)
        elif one.reason in _DECIDES:
            key = f"{one.kind}/{one.name} {one.reason} {at:.1f}"
            put_newest(self._events, key, DecisionTold(at, one, at, blocked=self._blocking(at)), MOST_DECISIONS)

    def _block(self, at: float, one: EventTold) -> None:
        key = one.kind, one.name
        self._unblock(key)
        self._blocked[key] = at, cause_of(one)
        self._blocked_counts[one.kind, self._blocked[key][1]] += 1
        if len(self._blocked) > _MOST_BLOCKED:
            self._unblock(next(iter(self._blocked)))

    def _unblock(self, key: tuple[str, str]) -> None:
        known = self._blocked.pop(key, None)
        if known is not None:
            self._blocked_counts[key[0], known[1]] -= 1

    def _blocking(self, at: float) -> tuple[tuple[str, int], ...]:
        """What keeps nodes now. Both a Node and its NodeClaim may be told of. Cost: O(1), with what has become too old."""
        while self._blocked and self._blocked[key := next(iter(self._blocked))][0] < at - BLOCKED_SECONDS:
            self._unblock(key)
        most: dict[str, int] = {}
        for (_, cause), count in self._blocked_counts.items():
            if count:
                most[cause] = max(most.get(cause, 0), count)
        return tuple(sorted(most.items(), key=lambda each: (-each[1], each[0]))[:_MOST_CAUSES])

    def _turned(self, at: float, one: OfferingTurned) -> None:
        key = one.zone, one.capacity_type, one.instance_type
        known = self._shortages.get(key, ShortageTold())
        if not one.available and not known.lasts:
            put_newest(self._shortages, key, ShortageTold(known.times + 1, known.seconds, at, True), _MOST_OFFERINGS)
        elif one.available and known.lasts:
            self._shortages[key] = ShortageTold(known.times, known.seconds + at - known.since, at, False)


def _append(figures: list[tuple[float, T]], at: float, one: T) -> None:
    figures.append((at, one))
    if len(figures) > MOST_FIGURES:
        half = MOST_FIGURES // 2
        figures[:half] = figures[:half:2]


def _after(figures: Iterable[tuple[float, T]], since: float) -> tuple[tuple[float, T], ...]:
    return tuple([one for one in figures if one[0] >= since])
