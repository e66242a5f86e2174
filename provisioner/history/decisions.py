"""Decisions as entries: what a batch is planned to become, and what a disruption command does. Pure."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from provisioner.apis.command import CommandRecord
from provisioner.disruption.proposal import Proposal
from provisioner.history.entries import BatchPlanned, CommandSeen, CommandTurn, PlannedNodes
from provisioner.scheduling.result import PlannedClaim, Result, Unplaced

_MOST_REASONS: Final = 20
_MOST_REASON: Final = 300


def batch_planned(
    id: str,  # noqa: A002 - the entry's word
    pods: int,
    result: Result,
    *,
    usd_saved: float,
    usd_at_least: float | None,
    outcome: str,
    seconds: float,
) -> BatchPlanned:
    """A batch, once it is known what is launched of it.

    Args:
        id: of the run.
        pods: that were asked about.
        result: of all questions of the run.
        usd_saved: what the greedy answer would have cost more, per hour.
        usd_at_least: what any would cost; None where nothing is known.
        outcome: of the planner.
        seconds: that it took.
    """
    return BatchPlanned(
        id,
        pods,
        planned_nodes(result.claims),
        sum(map(len, result.existing.values())),
        _reasons(result.unplaced),
        round(result.usd_per_hour, 6),
        round(result.usd_per_hour + usd_saved, 6),
        usd_at_least,
        outcome,
        round(seconds * 1000),
    )


def command_begun(record: CommandRecord, proposal: Proposal, usd_before: float) -> CommandSeen:
    """A command that begins; `usd_before` is what its candidates cost per hour."""
    new = planned_nodes(proposal.replacements)
    return CommandSeen(
        record.id,
        CommandTurn.BEGUN,
        record.reason,
        record.method,
        record.candidate_names,
        new,
        round(usd_before, 6),
        round(sum(one.usd_per_hour * one.nodes for one in new), 6),
        sum(1 for _ in proposal.pods),
    )


def planned_nodes(claims: Iterable[PlannedClaim]) -> tuple[PlannedNodes, ...]:
    """The nodes of a plan, equal ones together."""
    nodes, pods = Counter[tuple[str, str, str, str, float]](), Counter[tuple[str, str, str, str, float]]()
    for one in claims:
        usd = round(one.usd_per_hour, 6)
        key = one.pool, one.planned_type, one.planned_zone, one.planned_capacity_type, usd
        nodes[key] += 1
        pods[key] += len(one.pods)
    return tuple([PlannedNodes(*key, count, pods[key]) for key, count in nodes.items()])


def _reasons(unplaced: Iterable[Unplaced]) -> tuple[tuple[str, int], ...]:
    """The sentences that most pods have in common; equal pods share theirs."""
    counts = Counter[int]()
    shared: dict[int, Unplaced] = {}
    for one in unplaced:
        counts[id(one.why)] += 1
        shared[id(one.why)] = one
    found = Counter[str]()
    for key, pods in counts.most_common(_MOST_REASONS):
        found[str(shared[key])[:_MOST_REASON]] += pods
    return tuple(found.most_common())
