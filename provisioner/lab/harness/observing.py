"""A cheap eye on the cluster: three raw watches, one clock, counters instead of copies."""

import random
from collections.abc import Callable
from typing import Any, TypeVar

from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod
from provisioner.kube.config import ApiConnection
from provisioner.kube.resources import NODECLAIMS, NODES, PODS, ObjectIdentity, Resource
from provisioner.kube.watch import Reflector
from provisioner.lab.harness.scoreboard import PriceOf, Scoreboard
from provisioner.lab.harness.turnover import Turnover
from provisioner.support.clock import Clock

T = TypeVar("T")


def as_deletions(act: Callable[[T, bool], None]) -> Callable[[T | None, T | None], None]:
    """What a watch tells, as the object and whether it is deleted."""

    def changed(old: T | None, new: T | None) -> None:
        item = new if new is not None else old
        if item is not None:
            act(item, new is None)

    return changed


class RunObserver(Scoreboard):
    """Watches pods, nodes and claims of the whole cluster into the scoreboard.

    Attributes:
        turnover: which nodes left, and what stayed up meanwhile.
    """

    def __init__(self, connection: ApiConnection, clock: Clock, price_of: PriceOf | None = None) -> None:
        super().__init__(price_of)
        self._clock = clock
        self.turnover = Turnover()
        rng = random.Random(0)
        watched: tuple[tuple[Resource[Any], Callable[[Any, Any], None]], ...] = (
            (PODS, as_deletions(self._on_pod)),
            (NODES, as_deletions(self._on_node)),
            (NODECLAIMS, as_deletions(self._on_claim)),
        )
        self._reflectors = tuple(
            Reflector(connection, resource, changed=changed, unreadable=self._on_bad, clock=clock, rng=rng)
            for resource, changed in watched
        )

    def start(self, seconds: float = 30.0) -> None:
        """Start the watches and wait for the first lists.

        Raises:
            TimeoutError: the API server did not answer in time.
        """
        for reflector in self._reflectors:
            reflector.start()
        for reflector in self._reflectors:
            if not reflector.synced.wait(seconds):
                raise TimeoutError(f"no first list from the API server within {seconds:g} s")

    def stop(self) -> None:
        """Stop the watches."""
        for reflector in self._reflectors:
            reflector.stop()

    def _on_pod(self, pod: Pod, deleted: bool) -> None:
        now = self._clock.monotonic()
        self.pod(pod, now, deleted=deleted)
        self.turnover.saw_pod(pod, now, deleted=deleted)

    def _on_node(self, node: Node, deleted: bool) -> None:
        now = self._clock.monotonic()
        self.node(node, now, deleted=deleted)
        self.turnover.saw_node(node, now, deleted=deleted)

    def _on_claim(self, claim: NodeClaim, deleted: bool) -> None:
        self.claim(claim, self._clock.monotonic(), deleted=deleted)

    def _on_bad(self, identity: ObjectIdentity, error: Exception) -> None:  # noqa: ARG002 - the seam has it
        self.undecodable += 1
