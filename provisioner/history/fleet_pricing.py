"""What new nodes for all pods would cost, by first fit and at the least, asked of a planning process now and then: `FleetPricing`.

And what keeps the fleet from that: the bound while some nodes stay as they are is their price, and no less than new nodes for the pods of the others.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from provisioner.apis.pods import Pod, is_active, is_daemon, is_mirror
from provisioner.history.causes import MEANINGS
from provisioner.history.entries import BoundCause, BoundCauses, FleetBound
from provisioner.history.holds import NodeHold, counts_of, holds_of, kept_by
from provisioner.packing.process import PackingRefusal, PlannerProcess
from provisioner.packing.protocol import PackingReply
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
CAUSES_SECONDS: Final = 600.0
"""Between two looks at what keeps the fleet from the bound, at least: each takes a question for every cause."""
MOST_CAUSES_SECONDS: Final = 120.0
"""Of such a look: no other question is asked after so long, and nothing is told, as the thread must not seem to hang."""
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


def fleet_question(snapshot: Snapshot, worlds: Worlds, kept: Iterable[NodeHold] = ()) -> FleetQuestion:
    """All pods on nodes of dynamic NodePools, those that are planned there, and those that wait, as if there were no node but those that are kept with
    their pods. Cost: O(pods).
    """
    staying = [one.node for one in kept]
    names = {one.key for one in staying}
    static = {view.pool.name for view in snapshot.pools if view.pool.is_static}
    counts: dict[tuple[str, str], int] = {}
    classes: dict[tuple[str, str], Pod] = {}
    running = (
        pod
        for node in snapshot.nodes
        if node.claim is not None and node.pool not in static and node.key not in names
        for pod in (*node.pods, *[one for one in node.assigned if not one.node_name])
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
    bare = replace(snapshot, nodes=tuple(staying), pools=pools, pending=(), waiting=(), leaving=())
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
        told: Callable[[FleetBound | BoundCauses], None],
    ) -> None:
        self._snapshot, self._worlds, self._process, self._clock, self._told = snapshot, worlds, process, clock, told
        self._causes_due = 0.0
        self.poller = Poller(
            "fleet-pricing", self.poll, _REFUSED_SECONDS, first=FIRST_SECONDS, patience=_REFUSED_SECONDS
        )

    def poll(self) -> float:
        """Ask once; seconds until it should be asked again."""
        began, asked = time.thread_time(), self._clock.now().timestamp()
        snapshot = self._snapshot()
        question = fleet_question(snapshot, self._worlds)
        if not question.pods or not question.world.pools:
            self._process.tidy()
            return LEAST_REST_SECONDS
        reply, waited = self._priced(question)
        if isinstance(reply, PackingRefusal):
            return max(_REFUSED_SECONDS, (time.thread_time() - began + waited) / SHARE)
        holds = holds_of(snapshot, self._worlds.types_of)
        cost = time.thread_time() - began + reply.cpu_seconds
        usd_now = round(sum(one.usd for one in holds), 6)
        unplaced = sum(question.counts) - reply.placed
        found = FleetBound(
            round(reply.usd_greedy, 6), round(reply.usd_at_least, 6), asked, reply.placed, unplaced, round(cost, 3), usd_now
        )  # fmt: skip
        _GREEDY.set(found.usd_greedy)
        _LEAST.set(found.usd_at_least)
        _ASKED.set(asked)
        self._told(found)
        if self._clock.monotonic() >= self._causes_due:
            cost += self._ask_causes(snapshot, holds, found, reply.cpu_seconds)
            self._causes_due = self._clock.monotonic() + CAUSES_SECONDS
        return max(LEAST_REST_SECONDS, cost / SHARE)

    def _priced(self, question: FleetQuestion) -> tuple[PackingReply | PackingRefusal, float]:
        """The answer, and for how many seconds it was awaited: a process that refuses does not tell what it took, and cannot have taken more."""
        asked = self._clock.monotonic()
        return self._process.price(*question, until=asked + MOST_SECONDS), self._clock.monotonic() - asked

    def _ask_causes(self, snapshot: Snapshot, holds: tuple[NodeHold, ...], found: FleetBound, spent: float) -> float:
        """Tell what keeps the fleet from the bound, unless the process refuses or is slow; CPU seconds that it took. `spent`: what the process took before."""
        began, every, latest = time.thread_time(), frozenset(MEANINGS), spent
        end = self._clock.monotonic() + MOST_CAUSES_SECONDS

        def bound(causes: frozenset[str]) -> float | None:
            """While these causes hold."""
            nonlocal latest
            if self._clock.monotonic() >= end:
                return None
            kept = kept_by(holds, causes)
            usd = sum(one.usd for one in kept)
            question = fleet_question(snapshot, self._worlds, kept)
            if not question.pods:
                return usd
            reply, waited = self._priced(question)
            if isinstance(reply, PackingRefusal):
                latest += waited
                return None
            latest = reply.cpu_seconds
            if sum(question.counts) - reply.placed > found.unplaced:
                return None  # a bound for fewer pods is lower for that reason alone
            return usd + reply.usd_at_least

        counts = counts_of(holds)
        usd_kept = bound(every) if counts else found.usd_at_least
        causes = []
        for cause, nodes in counts.items():
            alone = any(one.causes == {cause} for one in holds)
            lifted = bound(every - {cause}) if alone and usd_kept is not None else usd_kept
            if usd_kept is None or lifted is None:
                return time.thread_time() - began + latest - spent
            causes.append((cause, nodes, lifted))
        usd_now = found.usd_now or 0.0
        kept = max(found.usd_at_least, min(usd_kept or 0.0, usd_now))
        cost = time.thread_time() - began + latest - spent
        falls = tuple([BoundCause(cause, nodes, round(max(0.0, kept - lifted), 6)) for cause, nodes, lifted in causes])
        self._told(BoundCauses(found.asked, usd_now, round(kept, 6), found.usd_at_least, falls, round(cost, 3)))
        return cost
