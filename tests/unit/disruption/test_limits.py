"""Limits of NodePools and of money where nodes go: what goes counts for nobody, and what is charged is checked again where it is charged."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.interruption import Interruption
from provisioner.apis.karpenter import NodePool
from provisioner.disruption.controller import METHODS, Method
from provisioner.disruption.methods import drift
from provisioner.disruption.view import DisruptionView, MethodAnswer
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.nodeclaims.growth_limits import GrowthLimits
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.packing.planner import PackingOutcome, as_scheduled
from provisioner.provisioning.outcomes import Batch
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import Result
from provisioner.state.snapshot import NodeView
from provisioner.support.workers import WorkerPool
from tests.support.batches import claim_creator, provisioner_of
from tests.support.clock import NOON
from tests.support.cluster import claim, node, pod, pool
from tests.support.disrupting import ALL_TRUE, LONG_AGO, DisruptedNodes, Make
from tests.support.problems import shape

SMALL, LARGE = "c-4x-amd64-linux", "c-16x-amd64-linux"
SMALL_USD = 0.08
"""A little more than a node of the small type costs on spot."""


def of_type(kind: str, *, name: str = "general", usd: str = "", **spec: Any) -> NodePool:
    """A NodePool of one type, on spot, whose drifted nodes may all go."""
    made = pool(
        name,
        requirements=(
            {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": [kind]},
            {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot"]},
        ),
        disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]},
        **spec,
    )
    if usd:
        made.metadata.annotations[names.MAX_USD_PER_HOUR] = usd
    return made


class Cluster:
    """NodePools with one node `a` of the first one, and the pod `web` on it; `growth` says what all nodes may cost."""

    def __init__(
        self, stage: DisruptedNodes, *pools: NodePool, kind: str = SMALL, true: tuple[str, ...] = (), **meta: Any
    ) -> None:
        self.stage, self.cluster = stage, stage.world.cluster
        self.cluster.pool_changed(stage._pool, None)
        for one in pools:
            self.cluster.pool_changed(None, one)
        labels = self.labels = {
            names.NODEPOOL_LABEL: pools[0].name,
            names.INSTANCE_TYPE_LABEL: kind,
            names.ZONE_LABEL: "test-zone-a",
            names.CAPACITY_TYPE_LABEL: "spot",
            names.ARCH_LABEL: "amd64",
            names.OS_LABEL: "linux",
        }
        taints = meta.pop("taints", ())
        stage.server.put(
            claim(
                "a",
                provider_id="kwok://a",
                true=(*ALL_TRUE, *true),
                since=LONG_AGO,
                planned=kind,
                labels=labels,
                **meta,
            ),
            node("a", kind=kind, labels=labels, taints=taints),
        )

    def run(self, **options: Any) -> Batch | None:
        """One batch, its creates included."""
        workers = WorkerPool(1)
        creator = claim_creator(
            self.stage.server.client,
            self.cluster,
            PlanWriter(self.cluster, self.stage.server.writer, workers),
            chance=random.Random(7),
            growth=GrowthLedger(
                self.cluster, self.stage.growth, lambda _: self.stage.world.types, self.stage.world.clock
            ),
        )
        batch = provisioner_of(self.stage.server, creator, workers, **options).run()
        workers.close()
        return batch

    @property
    def new(self) -> list[NodeView]:
        return [one for one in self.cluster.snapshot().nodes if one.key.name != "a"]

    def said(self, reason: str) -> list[str]:
        return self.stage.server.recorder.said(reason)


# --- what goes counts for nobody -----------------------------------------------------------------------------------------

DISRUPTED = ({"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"},)
INTERRUPTED = str(
    Interruption(
        "spot_interrupted", replaced=True, evicts=NOON + timedelta(seconds=60), ends=NOON + timedelta(minutes=2)
    )
)


@dataclass(frozen=True)
class Limit:
    """What leaves no room beside one node of the small type."""

    spec: dict[str, Any]
    usd: str = ""
    all_usd: float = 0.0


LIMITS = {
    "cpu": Limit({"limits": {"cpu": "4"}}),
    "near the limit": Limit({"limits": {"cpu": "7"}}),
    "nodes": Limit({"limits": {"nodes": "1"}}),
    "what the NodePool may cost": Limit({}, usd=str(SMALL_USD)),
    "--max-usd-per-hour": Limit({}, all_usd=SMALL_USD),
}
GOING: dict[str, dict[str, Any]] = {
    "deleted": {"deletionTimestamp": NOON.isoformat()},
    "interrupted": {"taints": DISRUPTED, "annotations": {names.INTERRUPTION_ANNOTATION: INTERRUPTED}},
}
STAYING: dict[str, dict[str, Any]] = {
    "it stays": {},
    "only a taint says that it goes": {"taints": DISRUPTED},
    "its interruption has not begun": {"annotations": {names.INTERRUPTION_ANNOTATION: INTERRUPTED}},
}


def beside(stages: Make, limit: Limit, **meta: Any) -> Cluster:
    """A node at the limit, and a pod that needs another one."""
    stage = stages("other", growth=GrowthLimits(usd_per_hour=limit.all_usd))
    empty(stage)
    made = Cluster(stage, of_type(SMALL, usd=limit.usd, **limit.spec), **meta)
    made.stage.bind(pod("web", cpu="3", ready=True), "a")
    made.stage.world.add(pod("new", cpu="3"))
    return made


def empty(stage: DisruptedNodes) -> None:
    stage.server.objects.clear()
    cluster = stage.world.cluster
    cluster.node_changed(cluster.node("other"), None)
    cluster.claim_changed(cluster.claim("other"), None)
    stage.cloud.there.add("kwok://a")


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("meta", GOING.values(), ids=GOING)
def test_a_node_that_goes_leaves_its_share_of_a_limit_to_others(
    stages: Make, limit: Limit, meta: dict[str, Any]
) -> None:
    one = beside(stages, limit, **meta)
    one.run()
    assert len(one.new) == 1
    one.stage.world.clock.advance(60)
    one.stage.world.add(pod("more", cpu="3"))
    one.run()
    assert len(one.new) == 1, "to one"


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("meta", STAYING.values(), ids=STAYING)
def test_a_node_that_stays_keeps_its_share_of_a_limit(stages: Make, limit: Limit, meta: dict[str, Any]) -> None:
    one = beside(stages, limit, **meta)
    one.run()
    assert one.new == []


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_a_node_at_the_limit_that_drifts_is_replaced_in_its_own_node_pool(stages: Make, limit: Limit) -> None:
    stage = stages("other", growth=GrowthLimits(usd_per_hour=limit.all_usd))
    empty(stage)
    own = of_type(SMALL, usd=limit.usd, weight=50, **limit.spec)
    one = Cluster(stage, own, of_type(SMALL, name="spare"), true=(names.DRIFTED,))
    stage.bind(pod("web", cpu="3", ready=True), "a")
    stage.world.add(pod("waits", cpu="3", shape=shape(cpu="3", selector={names.NODEPOOL_LABEL: "general"})))
    stage.disruption.run_once()
    one.run()
    (new,) = one.new
    assert new.pool == "general"
    assert [pod.name for pod in new.assigned] == ["web"]


def test_a_command_that_is_taken_back_counts_again_and_blocks_launches(stages: Make) -> None:
    stage = stages("other")
    empty(stage)
    one = Cluster(stage, of_type(SMALL, limits={"cpu": "4"}), true=(names.DRIFTED,))
    stage.bind(pod("web", cpu="3", ready=True), "a")
    stage.disruption.run_once()
    stage.settle()
    (new,) = stage.replacements()
    failed = stage.server.claim(new)
    del stage.server.objects["nodeclaims"][new]
    stage.world.cluster.claim_changed(failed, None)
    stage.commands.queue.add("a")
    stage.settle()
    assert not stage.world.cluster.commands()
    stage.world.add(pod("new", cpu="3"))
    one.run()
    assert one.new == []
    assert not stage.goes()
    assert dict(stage.world.cluster.snapshot().pools[0].used)["cpu"] == 4000


def test_successors_of_pods_on_a_node_that_goes_get_what_a_limit_leaves(stages: Make) -> None:
    """A pod that waits longer, and one that is larger, wait on: who guards these successors would hold the drain for ever."""
    stage = stages("other", growth=GrowthLimits(usd_per_hour=SMALL_USD))
    empty(stage)
    one = Cluster(stage, of_type(SMALL, limits={"cpu": "4"}), deletionTimestamp=NOON.isoformat())
    stage.bind(pod("web-1", owner="web", ready=True), "a")
    strangers = [pod(f"stranger-{n}", owner="other", cpu="3", created=NOON - timedelta(hours=n)) for n in range(3)]
    equal = pod("equal", owner="third", created=NOON - timedelta(hours=9))
    stage.world.add(*strangers, equal, pod("web-2", owner="web", created=NOON + timedelta(seconds=1)))
    one.run()
    (new,) = one.new
    assert {"web-1", "web-2"} <= {pod.name for pod in new.assigned}


# --- two plans at a time -------------------------------------------------------------------------------------------------


def meanwhile(act: Callable[[], object]) -> Method:
    """Drift, while which something happens once."""
    done: list[object] = []

    def ask(view: DisruptionView) -> MethodAnswer:
        answer = drift.propose(view)
        if not done:
            done.append(act())
        return answer

    found = next(one for one in METHODS if one.name == drift.METHOD)
    return replace(found, ask=ask)


# a node of 4 CPUs that is to be replaced by one of 16: the limit has room for the replacement, or for the node of a waiting pod, not for both
ROOM_FOR_ONE = {
    "cpu": Limit({"limits": {"cpu": "20"}}),
    "what the NodePool may cost": Limit({}, usd="0.4"),
    "--max-usd-per-hour": Limit({}, all_usd=0.4),
}


def contended(stages: Make, limit: Limit, *methods: Method) -> Cluster:
    stage = stages("other", growth=GrowthLimits(usd_per_hour=limit.all_usd), methods=methods or METHODS)
    empty(stage)
    one = Cluster(stage, of_type(LARGE, usd=limit.usd, **limit.spec), true=(names.DRIFTED,))
    stage.bind(pod("web", cpu="3", ready=True), "a")
    return one


@pytest.mark.parametrize("limit", ROOM_FOR_ONE.values(), ids=ROOM_FOR_ONE)
def test_a_replacement_is_not_charged_beside_what_a_batch_took_meanwhile(stages: Make, limit: Limit) -> None:
    def batch() -> None:
        one.stage.world.add(pod("new", cpu="14"))
        one.run()

    one = contended(stages, limit, meanwhile(batch))
    one.stage.disruption.run_once()
    one.stage.settle()
    (new,) = one.new
    assert [each.name for each in new.assigned] == ["new"]
    assert not one.cluster.commands()
    assert one.stage.is_open()
    (text,) = set(one.said("DisruptionBlocked"))
    assert text.startswith("Cannot launch a replacement (Drifted): ")


@pytest.mark.parametrize("limit", ROOM_FOR_ONE.values(), ids=ROOM_FOR_ONE)
def test_a_batch_charges_nothing_beside_what_others_took_meanwhile(stages: Make, limit: Limit) -> None:
    one = contended(stages, limit)
    one.stage.world.add(pod("new", cpu="14"))

    def improve(prepared: Prepared, greedy: Result) -> PackingOutcome:
        theirs = one.labels | {names.INSTANCE_TYPE_LABEL: LARGE}
        made = claim("theirs", provider_id="kwok://t", true=ALL_TRUE, planned=LARGE, labels=theirs)
        one.cluster.claim_changed(None, made)
        return as_scheduled(prepared, greedy)

    one.run(improve=improve)
    assert [each.key.name for each in one.new] == ["theirs"]
    (text,) = one.said("FailedScheduling")
    assert text.startswith('Failed to schedule pod, NodePool "general": ')
    assert any(each.startswith("1 node waits: ") for each in one.said("GrowthLimited"))
