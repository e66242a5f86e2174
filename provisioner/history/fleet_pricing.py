"""What new nodes for all pods would cost, by first fit and at the least, asked of a planning process now and then: `FleetPricing`."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from provisioner.apis.pods import Pod, is_active, is_daemon, is_mirror
from provisioner.history.entries import FleetBound
from provisioner.packing.process import PackingRefusal, PlannerProcess
from provisioner.provisioning.worlds import Worlds
from provisioner.scheduling.problem import World
from provisioner.state.snapshot import Snapshot
from provisioner.support import metrics
from provisioner.support.clock import Clock
from provisioner.support.poller import Poller
from provisioner.values.resources import EMPTY

SHARE: Final = 0.02
"""Of a core, that all of it takes at the most, as measured each time."""
FIRST_SECONDS: Final = 30.0
LEAST_REST_SECONDS: Final = 60.0
MOST_SECONDS: Final = 60.0
"""Of one answer: a fleet of which it takes longer has none."""
_REFUSED_SECONDS: Final = 600.0
_GREEDY = metrics.gauge(
    "dovetail_fleet_greedy_usd_per_hour", "Price of new nodes for all pods on nodes of NodePools if packed greedily."
)
_LEAST = metrics.gauge(
    "dovetail_fleet_lower_bound_usd_per_hour", "Proved lower bound of the price of new nodes for these pods."
)
_ASKED = metrics.gauge(
    "dovetail_fleet_priced_timestamp_seconds", "Time for which the greedy price and the lower bound hold."
)


class FleetQuestion(NamedTuple):
    """What is asked.

    Attributes:
        world: without nodes.
        pods: one of each class.
        counts: of each.
    """

    world: World
    pods: tuple[Pod, ...]
    counts: tuple[int, ...]


def fleet_question(snapshot: Snapshot, worlds: Worlds) -> FleetQuestion:
    """All pods on nodes of dynamic NodePools, and those that wait, as if there were no node. Cost: O(pods)."""
    static = {view.pool.name for view in snapshot.pools if view.pool.is_static}
    counts: dict[tuple[str, str], int] = {}
    classes: dict[tuple[str, str], Pod] = {}
    running = (
        pod for node in snapshot.nodes if node.claim is not None and node.pool not in static for pod in node.pods
    )
    for pod in (*running, *snapshot.waiting):
        if is_active(pod) and not is_daemon(pod) and not is_mirror(pod):
            key = pod.shape.key, pod.group
            counts[key] = counts.get(key, 0) + 1
            classes.setdefault(key, pod)
    pods = tuple(
        [
            msgspec.structs.replace(one, node_name="", nominated_node_name="", phase="Pending")
            for one in classes.values()
        ]
    )
    pools = tuple([replace(view, used=EMPTY, nodes=0) for view in snapshot.pools])
    bare = replace(snapshot, nodes=(), pools=pools, pending=(), waiting=(), leaving=())
    return FleetQuestion(worlds.of(bare).world, pods, tuple(counts.values()))


class FleetPricing:
    """Asks again as soon as the last answer has become a fiftieth of the time since.

    Args:
        snapshot: this moment.
        told: hears of each answer.

    Attributes:
        poller: its thread.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        worlds: Worlds,
        process: PlannerProcess,
        clock: Clock,
        told: Callable[[FleetBound], None],
    ) -> None:
        self._snapshot, self._worlds, self._process, self._clock, self._told = snapshot, worlds, process, clock, told
        self.poller = Poller(
            "fleet-pricing", self.poll, _REFUSED_SECONDS, first=FIRST_SECONDS, patience=_REFUSED_SECONDS
        )

    def poll(self) -> float:
        """Ask once; seconds until it should be asked again."""
        began, asked = time.thread_time(), self._clock.now().timestamp()
        question = fleet_question(self._snapshot(), self._worlds)
        if not question.pods or not question.world.pools:
            self._process.tidy()
            return LEAST_REST_SECONDS
        reply = self._process.price(*question, until=self._clock.monotonic() + MOST_SECONDS)
        own = time.thread_time() - began
        if isinstance(reply, PackingRefusal):
            return max(_REFUSED_SECONDS, own / SHARE)
        cost = own + reply.cpu_seconds
        unplaced = sum(question.counts) - reply.placed
        found = FleetBound(
            round(reply.usd_greedy, 6), round(reply.usd_at_least, 6), asked, reply.placed, unplaced, round(cost, 3)
        )
        _GREEDY.set(found.usd_greedy)
        _LEAST.set(found.usd_at_least)
        _ASKED.set(asked)
        self._told(found)
        return max(LEAST_REST_SECONDS, cost / SHARE)
