"""What becomes of a node that a reason for disruption concerns: in a command, proposed, blocked, not due, or not reached; always exactly one.

A pass of a method answers for every node that concerns it (`MethodAnswer`), expiration, repair and interruption by their decisions. `dovetail why` and
whoever else wants to know reads the verdict here.
"""

from collections.abc import Iterator, Mapping

from provisioner.apis import names
from provisioner.apis.interruption import Interruption
from provisioner.disruption.candidates import ALREADY_DISRUPTED
from provisioner.disruption.costs import time_left
from provisioner.disruption.forceful.repair import RepairDecision
from provisioner.disruption.methods.repair import TOLERATED
from provisioner.disruption.proposal import InterruptionDecision
from provisioner.disruption.view import DisruptionStanding, DisruptionVerdict, MethodAnswer
from provisioner.state.pause import Activity, Pause
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.message import Said

EXPIRED, UNHEALTHY, INTERRUPTED = "Expired", names.REASON_UNHEALTHY, "Interrupted"
UNDER_WAY = DisruptionVerdict(DisruptionStanding.UNDER_WAY, ALREADY_DISRUPTED)


def of_method(answer: MethodAnswer, node: NodeView) -> DisruptionVerdict | None:
    """What a method made of a node in one pass; None where the node does not concern it."""
    key = node.key.name
    if node.deleting or node.command:
        return UNDER_WAY
    if any(key in one.candidates for one in answer.proposals):
        return DisruptionVerdict(DisruptionStanding.PROPOSED)
    if (quiet := answer.quiet.get(key)) is not None:
        return quiet
    return next(
        (
            DisruptionVerdict(DisruptionStanding.BLOCKED, one.message, one.until)
            for one in answer.blocked
            if one.key == key
        ),
        None,
    )


def forced(
    node: NodeView,
    snapshot: Snapshot,
    pause: Pause,
    repairs: RepairDecision,
    marks: Mapping[str, Interruption],
    interruptions: InterruptionDecision,
) -> Iterator[tuple[str, DisruptionVerdict]]:
    """What becomes of a node that expires, is unhealthy and no command's business, or is interrupted: a verdict for each of these that concerns it.

    Args:
        node: of `snapshot`.
        snapshot: the instant.
        pause: holds nodes that expire or are unhealthy; an interruption is their cloud's.
        repairs: the decision about that instant; empty where nobody knows.
        marks: interruptions by name of the NodeClaim.
        interruptions: the decision about these.
    """
    claim, key, at = node.claim, node.key.name, snapshot.at
    if claim is None:
        return
    going = claim.metadata.deletion_timestamp is not None
    left = time_left(claim, at)
    if left is not None and going:
        yield EXPIRED, UNDER_WAY
    elif left is not None and left.total_seconds() > 0:
        try:
            yield (
                EXPIRED,
                DisruptionVerdict(
                    DisruptionStanding.NOT_DUE,
                    Said(f"expireAfter ({claim.spec.expire_after}) has not passed"),
                    at + left,
                ),
            )
        except OverflowError:
            pass  # beyond the last date: it never expires
    elif left is not None:
        paused = pause.why(node.pool, Activity.EXPIRATION)
        yield (
            EXPIRED,
            DisruptionVerdict(DisruptionStanding.BLOCKED, paused)
            if paused
            else DisruptionVerdict(
                DisruptionStanding.PROPOSED, Said("expireAfter has passed, so the node is deleted next")
            ),
        )
    blocked = {one.key: one.message for one in (*repairs.blocked, *interruptions.blocked)}
    if any(one.key == key for one in repairs.repair):
        if going:
            yield UNHEALTHY, UNDER_WAY
        else:
            paused = pause.why(node.pool, Activity.REPAIR)
            yield (
                UNHEALTHY,
                DisruptionVerdict(DisruptionStanding.BLOCKED, paused)
                if paused
                else DisruptionVerdict(
                    DisruptionStanding.PROPOSED,
                    Said("a condition of the node has lasted too long, so the node is deleted next"),
                ),
            )
    elif (due := repairs.not_due.get(key)) is not None:
        yield (
            UNHEALTHY,
            DisruptionVerdict(
                DisruptionStanding.NOT_DUE,
                TOLERATED,
                due,
            ),
        )
    elif key in repairs.ending:
        yield UNHEALTHY, UNDER_WAY
    elif any(one.key == key for one in repairs.blocked):
        yield UNHEALTHY, DisruptionVerdict(DisruptionStanding.BLOCKED, blocked[key])
    if (mark := marks.get(key)) is None:
        return
    if going or key in interruptions.plan or (node.deleting and key not in interruptions.evict):
        yield INTERRUPTED, UNDER_WAY
    elif not mark.has_begun(at):
        yield (
            INTERRUPTED,
            DisruptionVerdict(
                DisruptionStanding.NOT_DUE,
                Said("the interruption of the instance has been announced for later"),
                mark.begins,
            ),
        )
    elif any(one.key == key for one in interruptions.blocked):
        yield INTERRUPTED, DisruptionVerdict(DisruptionStanding.BLOCKED, blocked[key])
    else:
        yield (
            INTERRUPTED,
            DisruptionVerdict(
                DisruptionStanding.PROPOSED, Said("the instance is interrupted, so the node is drained next")
            ),
        )
