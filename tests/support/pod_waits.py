"""How long pods wait from their first plan until they are bound, as a scoreboard saw it."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from provisioner.lab.harness.scoreboard import Scoreboard


@dataclass(frozen=True, slots=True)
class Wait:
    """Of one pod; None for what has not happened. A pod that found room by itself was never planned."""

    planned: float | None
    bound: float | None
    node: str

    @property
    def seconds(self) -> float:
        """From the first plan that named the pod until it was bound; infinite while it is not."""
        if self.bound is None:
            return math.inf
        return max(0.0, self.bound - self.planned) if self.planned is not None else 0.0


def pod_waits(board: Scoreboard, namespaces: Collection[str]) -> dict[str, Wait]:
    """By namespace and name, how long each pod of these namespaces waits; daemons and deleted pods left out."""
    with board._lock:
        return {
            pod.key: Wait(pod.planned, pod.bound, pod.node)
            for pod in board._workload()
            if pod.key.partition("/")[0] in namespaces
        }
