"""The way back to Karpenter: what `dovetail uninstall --keep-nodes --for karpenter` does, and that the takeover is over."""

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from provisioner.cli.takeover.inputs import TakeoverStop, say
from provisioner.kube.client import Client
from provisioner.support.clock import Clock
from provisioner.support.errors import UserError
from provisioner.takeover.findings import EXIT_FINDINGS, EXIT_FINE
from provisioner.takeover.starting import Takeover


class ClusterDeparture(Protocol):
    """`provisioner.leaving.departure.Departure`, as far as it is used here."""

    def stop_stamping(self) -> tuple[str, ...]:
        """Stop stamping pods; what is left to the user, in sentences."""
        ...

    def keep_nodes(self, keep: Any) -> tuple[str, ...]:
        """Stop the provisioner, and leave its nodes; what is left to the user, in sentences."""
        ...


def departure(
    client: Client, clock: Clock, namespace: str, told: Callable[[str], object], *, dry_run: bool
) -> tuple[ClusterDeparture, Any]:
    """Whoever leaves a cluster, and the word by which it keeps nodes for Karpenter.

    Raises:
        TakeoverStop: it is not part of this build.
    """
    try:
        room = importlib.import_module("provisioner.leaving.departure")
    except ModuleNotFoundError:
        raise TakeoverStop(
            EXIT_FINDINGS, "this build of Dovetail has no `dovetail uninstall`, which the way back needs"
        ) from None
    made: ClusterDeparture = room.Departure(client, clock, namespace, told, dry_run=dry_run)
    return made, room.Keep.FOR_KARPENTER


def give_back(takeover: Takeover, leaving: ClusterDeparture, keep: object, *, dry_run: bool) -> int:
    """Stop Dovetail, and leave its nodes to Karpenter; the exit status.

    Raises:
        TakeoverStop: something has to be done first.
        ApiError: the server did not answer.
    """
    try:
        problems = (*leaving.stop_stamping(), *leaving.keep_nodes(keep))
    except UserError as error:
        raise TakeoverStop(EXIT_FINDINGS, str(error)) from None
    if not dry_run:
        takeover.mark_back()
    for one in problems:
        say(f"Left to you: {one}")
    return EXIT_FINDINGS if problems else EXIT_FINE
