"""How long one look at what the fleet could cost may take."""

from datetime import timedelta
from typing import cast

from provisioner.apis import names
from provisioner.cloudprovider.types import CloudProvider
from provisioner.history.causes import PDB, PROTECTED, YOUNG
from provisioner.history.entries import BoundCauses, FleetBound
from provisioner.history.fleet_pricing import MOST_CAUSES_SECONDS, MOST_SECONDS, FleetPricing
from provisioner.history.holds import counts_of, holds_of
from provisioner.packing.process import PlannerProcess
from provisioner.packing.protocol import PackingReply
from provisioner.provisioning.worlds import Worlds
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import World, claim, node, pod, pod_budget, pool
from tests.support.disrupting import FakeCloud

WORLDS = Worlds(cast(CloudProvider, FakeCloud()))


class SlowProcess:
    """Every answer comes at the last moment, by a clock that nobody else moves. All pods have a place."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def price(self, _world: object, _pods: object, counts: tuple[int, ...], *, until: float) -> PackingReply:
        self._clock.advance(until - self._clock.monotonic())
        return PackingReply(1, 0.1, usd_greedy=0.2, placed=sum(counts))


def kept_for_three_causes() -> World:
    """Each of three nodes is kept by another cause alone."""
    found = World()
    found.cluster.pool_changed(None, pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "10%"}]}))
    for name in "ab":
        found.existing_node(name, age=60.0)
    young = claim(
        "c", provider_id="kwok://c", true=(names.LAUNCHED, names.REGISTERED), since=NOON - timedelta(seconds=60)
    )
    found.cluster.claim_changed(None, young)
    found.cluster.node_changed(None, node("c", labels={names.NODEPOOL_LABEL: "general"}))
    found.add(pod("p-a", node="a", cpu="100m", annotations={names.DO_NOT_DISRUPT: "true"}))
    found.add(pod("p-b", node="b", cpu="200m", labels={"app": "b"}))
    found.add(pod("p-c", node="c", cpu="300m"))
    selector = {"matchLabels": {"app": "b"}}
    found.cluster.budget_changed(None, pod_budget(allowed=0, healthy=1, required=2, selector=selector))
    return found


def test_a_slow_process_is_not_asked_about_every_cause() -> None:
    """Seven answers of a minute each, and the making of the questions, come near the time after which a thread counts as hanging."""
    found, clock, told = kept_for_three_causes(), FakeClock(), list[FleetBound | BoundCauses]()
    assert counts_of(holds_of(found.cluster.snapshot(), WORLDS.types_of)) == {PDB: 1, PROTECTED: 1, YOUNG: 1}
    began = clock.monotonic()
    process = cast(PlannerProcess, SlowProcess(clock))
    FleetPricing(found.cluster.snapshot, WORLDS, process, clock, told.append).poll()
    assert [type(one) for one in told] == [FleetBound]
    assert clock.monotonic() - began == MOST_SECONDS + MOST_CAUSES_SECONDS
