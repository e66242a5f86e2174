"""Whether a NodeClaim that takes the place of another one may be launched: `gate_of`. Pure.

It is written before its place is free, so that the place is nobody else's. What it waits for is written on it, and nothing is written when that is gone
but that it waits no more; so whoever leads next goes on with it.
"""

import enum

from provisioner.apis import names
from provisioner.apis.command import awaited_by, is_gated
from provisioner.apis.karpenter import NodeClaim
from provisioner.state.disruption_commands import Command


class LaunchGate(enum.Enum):
    """What becomes of the launch."""

    OPEN = "open"
    """It waits for nothing."""
    FREED = "freed"
    """What it waited for is gone: its mark is taken off, and it is launched."""
    HELD = "held"
    """Its place is not free yet."""
    RELEASED = "released"
    """The other one stays: it is not needed, and gives the place up."""


def gate_of(claim: NodeClaim, other: NodeClaim | None, command: Command | None) -> LaunchGate:
    """What becomes of the launch of a claim now.

    Args:
        claim: that is not launched.
        other: the NodeClaim of the name that it waits for, whichever it is now; None for none.
        command: the disruption command that has it as a replacement; None for none.
    """
    if not is_gated(claim):
        return LaunchGate.OPEN
    awaited = awaited_by(claim)
    if awaited is None:
        return LaunchGate.RELEASED  # nobody can tell what it waits for
    if other is None or other.metadata.uid != awaited.uid:
        return LaunchGate.FREED
    if other.metadata.deletion_timestamp is not None:
        return LaunchGate.HELD
    meant = command is not None and command.record.id == claim.metadata.annotations.get(names.REPLACES_ANNOTATION)
    return LaunchGate.HELD if meant else LaunchGate.RELEASED
