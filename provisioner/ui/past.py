"""What a page shows of a history, for whoever sees so much."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from provisioner.history.causes import MEANINGS
from provisioner.history.digest import DecisionTold, HistoryTold
from provisioner.history.entries import (
    BatchPlanned,
    BoundCauses,
    CommandSeen,
    CommandTurn,
    EventTold,
    FleetBound,
    InstanceInterrupted,
    PlannedNodes,
)
from provisioner.ui.page import (
    PageBound,
    PageCause,
    PageDecision,
    PageHistory,
    PageMoment,
    PagePastInterruption,
    PagePastShortage,
)
from provisioner.ui.sight import Sight
from provisioner.values.printable import counted

MOST_MOMENTS: Final = 720
MOST_DECISIONS: Final = 300
_MOST_ROWS: Final = 200
_MOST_NAMES: Final = 5
_MOST_KINDS: Final = 4
_MOST_REASONS: Final = 3
_LONGEST: Final = 600
PROVISIONING: Final = "Provisioning"
_TURNS: Final = {
    CommandTurn.BEGUN: "begun",
    CommandTurn.COMMITTED: "replacements ready",
    CommandTurn.DRAINING: "draining",
    CommandTurn.DELETING: "deleting",
    CommandTurn.DONE: "done",
    CommandTurn.CALLED_OFF: "called off",
}


def history_of(told: HistoryTold, since: float, sight: Sight) -> PageHistory | None:
    """What a viewer may see of it; None for nothing.

    Args:
        told: what is known.
        since: when it begins, in seconds since 1970.
        sight: of the viewer. Prices, decisions and interruptions are about nodes; shortages are seen by whoever sees NodePools.

    Cost: O(what is known).
    """
    if not (sight.nodes or sight.pools):
        return None
    shortages = [
        PagePastShortage(
            zone=zone,
            type=kind,
            capacity_type=capacity_type,
            times=one.times,
            seconds=round(one.seconds),
            last=int(one.since),
            lasts=one.lasts,
        )
        for (zone, capacity_type, kind), one in told.shortages
    ]
    shortages.sort(key=lambda one: (not one.lasts, -one.times, -one.last))
    past = PageHistory(since=int(since), shortages=tuple(shortages[:_MOST_ROWS]) if sight.pools else ())
    if not sight.nodes:
        return past
    return PageHistory(
        since=past.since,
        shortages=past.shortages,
        moments=_moments(told),
        decisions=tuple([_decision(one, sight) for one in told.decisions[-MOST_DECISIONS:]]),
        bound=_bound(told.bounds[-1], told.causes) if told.bounds else None,
        interruptions=_interruptions(told.interrupted),
        dropped=told.dropped,
    )


def _moments(told: HistoryTold) -> tuple[PageMoment, ...]:
    every = max(1, -(-len(told.costs) // MOST_MOMENTS))
    costs = told.costs[::-1][::every][::-1]  # the latest is always one of them
    found, turn, bounds = [], 0, told.bounds
    for at, one in costs:
        while turn < len(bounds) and bounds[turn].asked <= at:
            turn += 1
        known = bounds[turn - 1] if turn else None
        found.append(
            PageMoment(
                at=int(at),
                usd=round(one.usd_per_hour, 4),
                greedy=round(known.usd_greedy, 4) if known is not None else None,
                bound=round(known.usd_at_least, 4) if known is not None else None,
            )
        )
    return tuple(found)


def _decision(told: DecisionTold, sight: Sight) -> PageDecision:
    at, entry = int(told.at), told.entry
    blocked = tuple([f"{cause}: {counted(nodes, 'node')}" for cause, nodes in told.blocked])
    match entry:
        case BatchPlanned():
            priced = bool(entry.new)
            return PageDecision(
                at=at,
                reason=PROVISIONING,
                text=_batch(entry, sight)[:_LONGEST],
                after=entry.usd_per_hour if priced else None,
                saved=round(entry.usd_greedy - entry.usd_per_hour, 6) if priced else None,
                blocked=blocked,
            )
        case CommandSeen():
            known = entry.usd_before > 0 and entry.turn is not CommandTurn.CALLED_OFF
            return PageDecision(
                at=at,
                reason=entry.reason,
                text=_command(told, entry, sight)[:_LONGEST],
                state=_TURNS[entry.turn],
                before=entry.usd_before or None,
                after=entry.usd_after if entry.usd_before > 0 else None,
                saved=round(entry.usd_before - entry.usd_after, 6) if known else None,
                blocked=blocked,
            )
        case EventTold():
            return PageDecision(at=at, reason=entry.reason, text=_event(entry, sight)[:_LONGEST], blocked=blocked)


def _batch(entry: BatchPlanned, sight: Sight) -> str:
    parts = [counted(entry.pods, "pod")]
    if entry.new:
        parts.append(_kinds(entry.new))
    if entry.existing:
        parts.append(f"{counted(entry.existing, 'pod')} on nodes that exist")
    if unplaced := sum(count for _, count in entry.unplaced):
        parts.append(f"{counted(unplaced, 'pod')} without a place")
    text = ", ".join(parts)
    if entry.unplaced and sight.namespaces is None:  # what is said of pods may name others
        text += ": " + "; ".join(f"{reason} ({count})" for reason, count in entry.unplaced[:_MOST_REASONS])
    return text


def _command(told: DecisionTold, entry: CommandSeen, sight: Sight) -> str:
    nodes = told.nodes or ("",) * len(entry.candidates)
    shown = [node or (claim if sight.claims else "") for node, claim in zip(nodes, entry.candidates, strict=False)]
    some = [one for one in shown if one][:_MOST_NAMES]
    more = len(entry.candidates) - len(some)
    names = ", ".join((*some, *((f"{counted(more, 'node' if not some else 'other node')}",) if more else ())))
    into = _kinds(entry.new) if entry.new else "no new node"
    pods = f", {counted(entry.pods, 'pod')} move" if entry.pods else ""
    return f"{names} → {into}{pods}"


def _event(entry: EventTold, sight: Sight) -> str:
    if sight.namespaces is not None or not (sight.claims or entry.kind == "Node"):
        return ""  # its words may name what is not to be seen
    return f"{entry.kind} {entry.name}: {entry.message}"


def _kinds(new: Sequence[PlannedNodes]) -> str:
    shown = [
        f"{one.nodes} x {' '.join(part for part in (one.instance_type, one.capacity_type, one.zone) if part)}"
        for one in new[:_MOST_KINDS]
    ]
    more = sum(one.nodes for one in new[_MOST_KINDS:])
    return ", ".join((*shown, *((counted(more, "other new node"),) if more else ())))


def _bound(found: FleetBound, causes: BoundCauses | None) -> PageBound:
    bound = PageBound(
        at=int(found.asked),
        usd=found.usd_now,
        greedy=found.usd_greedy,
        bound=found.usd_at_least,
        pods=found.pods,
        unplaced=found.unplaced,
    )
    if causes is None:
        return bound
    return PageBound(
        at=bound.at,
        usd=bound.usd,
        greedy=bound.greedy,
        bound=bound.bound,
        pods=bound.pods,
        unplaced=bound.unplaced,
        kept_at=int(causes.asked),
        kept=causes.usd_kept,
        causes=tuple(
            [
                PageCause(cause=one.cause, nodes=one.nodes, usd=one.usd, meaning=MEANINGS.get(one.cause, ""))
                for one in causes.causes
            ]
        ),
        together=round(causes.usd_kept - causes.usd_at_least, 6),
        rest=round(causes.usd_now - causes.usd_kept, 6),
    )


def _interruptions(told: Iterable[tuple[float, InstanceInterrupted]]) -> tuple[PagePastInterruption, ...]:
    def kind(each: tuple[float, InstanceInterrupted]) -> tuple[str, str, str, str]:
        one = each[1]
        return one.zone, one.instance_type, one.capacity_type, one.reason

    found = []
    for (zone, instance_type, capacity_type, reason), each in groupby(sorted(told, key=kind), kind):
        times = [at for at, _ in each]
        found.append(
            PagePastInterruption(
                zone=zone,
                type=instance_type,
                capacity_type=capacity_type,
                reason=reason[:_LONGEST],
                count=len(times),
                last=int(max(times)),
            )
        )
    found.sort(key=lambda one: (-one.count, -one.last))
    return tuple(found[:_MOST_ROWS])
