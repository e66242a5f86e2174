"""Static NodePools are brought to their replicas, once, whatever the caches know."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.kube.resources import NODECLAIMS
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.runtime.changes import Change, NodeClaimChanged, NodePoolChanged, PodChanged
from provisioner.state.pause import DISRUPTION, NOTHING, Pause, PauseValue
from provisioner.static import controller as static_capacity
from provisioner.static.controller import StaticCapacity
from provisioner.support.workers import DONE, ReconcileResult, WorkerPool
from tests.support.batches import claim_creator
from tests.support.cluster import World, claim, node, pod, pool
from tests.support.kube import Sent
from tests.support.worldserver import WorldServer

READY = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


class Stage:
    """A static pool named "general" on an API server in memory; passes run in the test's thread."""

    def __init__(self, replicas: int | None, *, enabled: bool = True, **spec: Any) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.behind = ""
        self.pause, self.ledger = NOTHING, BudgetLedger(self.world.cluster)
        self.workers, self.plans = WorkerPool(4, "creates"), WorkerPool(1, "plans")
        plans = PlanWriter(self.world.cluster, self.server.writer, self.plans)
        creator = claim_creator(self.server.client, self.world.cluster, plans)
        self.pool: NodePool | None = None
        self.static = StaticCapacity(
            self.world.cluster,
            self.server.client,
            creator,
            self.server.writer,
            self.server.recorder,
            self.workers,
            self.world.clock,
            enabled=enabled,
            pool=lambda _: self.pool,
            manages=lambda one: one.node_class_ref.kind == "KWOKNodeClass",
            stale=lambda: self.behind,
            chance=random.Random(1),
            ledger=self.ledger,
            pause=lambda: self.pause,
            postponed=self.server.postponed,
        )
        self.scale(replicas, **spec)

    def scale(self, replicas: int | None, **spec: Any) -> None:
        if replicas is not None:
            spec["replicas"] = replicas
        old, self.pool = self.pool, pool(**spec)
        self.world.cluster.pool_changed(old, self.pool)

    def run(self) -> ReconcileResult:
        return self.static.reconcile("general")

    def claims(self) -> list[str]:
        """As the server has them, those that are going left out."""
        return sorted(name for name in self.server.objects["nodeclaims"] if self.server.has("nodeclaims", name))

    def lose(self, name: str) -> None:
        """The claim is gone, and the watch has told it."""
        gone = self.server.claim(name)
        self.server.drop("nodeclaims", name)
        self.static.claim_heard(NodeClaimChanged(gone, None))

    @property
    def events(self) -> list[str]:
        return [reason for _, _, _, reason in self.server.recorder.events]


@pytest.fixture
def stages() -> Iterator[list[Stage]]:
    made: list[Stage] = []
    yield made
    for one in made:
        one.workers.close()
        one.plans.close()


@pytest.fixture
def two(stages: list[Stage]) -> Stage:
    """Two replicas, none there."""
    stages.append(Stage(2))
    return stages[0]


def test_missing_nodes_are_created_from_the_template_and_once(two: Stage) -> None:
    two.run()
    two.run()
    assert len(two.claims()) == 2
    (one, _) = (two.server.claim(name) for name in two.claims())
    assert one.metadata.labels[names.NODEPOOL_LABEL] == "general"
    assert [owner.name for owner in one.metadata.owner_references] == ["general"]
    assert names.PLAN_ANNOTATION not in one.metadata.annotations
    assert names.INSTANCE_TYPE_LABEL not in {requirement.key for requirement in one.spec.requirements}


def test_a_cache_that_knows_nothing_of_what_is_there_creates_nothing(two: Stage) -> None:
    """A new leader's watch may be behind what the leader before it created."""
    two.server.tell = False
    two.server.put(claim("a"), claim("b"))
    two.server.tell = True
    assert two.world.cluster.claims() == []
    assert two.run() == ReconcileResult(requeue_after=static_capacity.STALE_SECONDS)
    assert two.server.done == []
    for name in ("a", "b"):
        two.world.cluster.claim_changed(None, two.server.claim(name))
    two.run()
    assert two.claims() == ["a", "b"]


def test_a_cache_that_does_not_know_of_a_deletion_deletes_no_second_one(two: Stage) -> None:
    two.server.put(claim("a"), claim("b"), claim("c"))
    two.server.tell = False
    two.server.client.delete(NODECLAIMS, "b")
    two.server.tell = True
    two.run()
    assert two.claims() == ["a", "c"]


def test_a_cache_that_has_a_claim_that_is_gone_deletes_no_second_one(two: Stage) -> None:
    two.server.put(claim("a"), claim("b"), claim("c"))
    del two.server.objects["nodeclaims"]["b"]
    assert two.run() == ReconcileResult(requeue_after=static_capacity.STALE_SECONDS)
    assert two.claims() == ["a", "c"]


def test_too_many_nodes_are_deleted_and_said(two: Stage) -> None:
    two.run()
    two.scale(0)
    two.run()
    two.run()
    assert two.claims() == []
    assert two.events == ["DisruptionTerminating"] * 2


def test_a_node_that_the_caches_do_not_show_as_it_is_stays_and_is_looked_at_soon(two: Stage) -> None:
    two.run()
    two.scale(0)
    two.server.postpone = "the cache does not have the current version of Node a yet"
    assert two.run() == ReconcileResult(requeue_after=static_capacity.STALE_SECONDS)
    assert len(two.claims()) == 2
    two.server.postpone = ""
    two.run()
    assert two.claims() == []


def test_those_that_go_say_why(two: Stage) -> None:
    two.run()
    those = two.claims()
    for name in those:
        two.server.objects["nodeclaims"][name]["metadata"]["finalizers"] = [names.TERMINATION_FINALIZER]
    two.scale(0)
    two.run()
    claims = [two.server.claim(name) for name in those]
    assert len(claims) == 2
    assert {one.metadata.annotations[names.ENDED_FOR] for one in claims} == {"scaled-down"}


def test_the_limit_is_kept_and_told(stages: list[Stage]) -> None:
    stage = Stage(3, limits={"nodes": "2"})
    stages.append(stage)
    stage.run()
    assert stage.run() == ReconcileResult(requeue_after=static_capacity.LIMITED_RECHECK_SECONDS)
    assert len(stage.claims()) == 2
    assert set(stage.events) == {"NodeLimitReached"}
    assert "limits.nodes is 2" in stage.server.recorder.messages[-1]


def test_without_the_gate_a_static_pool_is_told_so(stages: list[Stage]) -> None:
    stage = Stage(3, enabled=False)
    stages.append(stage)
    stage.run()
    assert stage.claims() == []
    assert stage.server.recorder.events == [("NodePool", "general", "Warning", "StaticCapacityDisabled")]
    assert "StaticCapacity=true" in stage.server.recorder.messages[0]


NOT_READY = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
FOREIGN = {"template": {"nodeClassRef": {"group": "x", "kind": "Other", "name": "y"}}}
UNTOUCHED: dict[str, tuple[int | None, dict[str, Any], str]] = {
    "dynamic": (None, {}, ""),
    "not Ready": (2, NOT_READY, ""),
    "of another provider": (2, FOREIGN, ""),
    "known from a watch that is behind": (2, {}, "nodeclaims are behind"),
}


@pytest.mark.parametrize(("replicas", "spec", "behind"), UNTOUCHED.values(), ids=UNTOUCHED)
def test_nothing_is_created_for_a_pool_that_is(
    stages: list[Stage], replicas: int | None, spec: dict[str, Any], behind: str
) -> None:
    stage = Stage(replicas, **spec)
    stages.append(stage)
    stage.behind = behind
    stage.run()
    assert stage.claims() == []
    assert stage.events == []


def test_a_refused_creation_is_told_and_tried_again_later(two: Stage) -> None:
    two.server.refuse_creates = 403
    assert two.run() == ReconcileResult(requeue_after=static_capacity.REFUSED_SECONDS)
    assert two.events == ["FailedCreate"]
    two.server.refuse_creates = 0
    two.run()
    assert len(two.claims()) == 2


def test_claims_that_never_register_are_made_again_at_a_growing_pace(two: Stage) -> None:
    pauses = []
    for _ in range(12):
        two.run()
        assert len(two.claims()) == 2
        for name in two.claims():
            two.lose(name)
        wait = two.run().requeue_after or 0.0
        assert two.claims() == []
        pauses.append(wait)
        two.world.clock.advance(wait)
    assert 0.5 < pauses[0] <= 1.0
    assert pauses[1] > 1.5
    assert 200 < pauses[-1] <= static_capacity.BACKOFF_CAP_SECONDS

    two.run()
    for name in two.claims():
        before = two.server.claim(name)
        after = claim(name, true=(names.REGISTERED,))
        two.static.claim_heard(NodeClaimChanged(before, after))
    two.lose(two.claims()[0])  # it failed: but the others came up
    assert (two.run().requeue_after or 0.0) <= 1.0


def test_what_a_scale_down_deletes_has_not_failed(two: Stage) -> None:
    two.run()
    two.scale(0)
    gone = two.claims()
    two.run()
    for name in gone:
        two.lose(name)
    two.scale(1)
    two.run()
    assert len(two.claims()) == 1


def test_a_big_pool_comes_in_steps(stages: list[Stage]) -> None:
    stage = Stage(static_capacity.MOST_A_PASS + 3)
    stages.append(stage)
    assert stage.run() == ReconcileResult(requeue_after=0.0)
    assert len(stage.claims()) == static_capacity.MOST_A_PASS
    stage.run()
    assert len(stage.claims()) == static_capacity.MOST_A_PASS + 3


def test_a_pool_that_is_gone_is_done(two: Stage) -> None:
    two.pool = None
    assert two.run() == DONE


def test_events_bring_the_pool_back(two: Stage) -> None:
    watches = {NodePoolChanged: two.static.pool_heard, NodeClaimChanged: two.static.claim_heard}
    mine = claim("a")
    changes: dict[str, tuple[Change, bool]] = {
        "a new pool": (NodePoolChanged(None, two.pool), True),
        "an equal pool": (NodePoolChanged(two.pool, two.pool), False),
        "another scale": (NodePoolChanged(two.pool, pool(replicas=5)), True),
        "a dynamic pool": (NodePoolChanged(None, pool()), False),
        "a new claim": (NodeClaimChanged(None, mine), True),
        "a claim that is gone": (NodeClaimChanged(mine, None), True),
        "the same claim": (NodeClaimChanged(mine, mine), False),
        "a status alone": (
            NodeClaimChanged(mine, msgspec.structs.replace(mine, status=claim("a", true=("Launched",)).status)),
            False,
        ),
        "a pod": (PodChanged(None, pod("p")), False),
    }
    for what, (change, wanted) in changes.items():
        assert list(watches.get(type(change), lambda _: ())(change)) == (["general"] if wanted else []), what  # type: ignore[operator]


PAUSES = {"its pool": Pause(pools={"general": PauseValue(DISRUPTION)}), "everything": Pause(PauseValue(DISRUPTION))}


@pytest.mark.parametrize("pause", PAUSES.values(), ids=PAUSES)
def test_a_pool_that_is_paused_loses_no_node_and_gets_those_that_it_lacks(two: Stage, pause: Pause) -> None:
    two.pause = pause
    two.run()
    assert len(two.claims()) == 2, "what is missing is created"
    two.scale(1)
    assert two.run() == ReconcileResult(requeue_after=static_capacity.PAUSED_SECONDS)
    assert len(two.claims()) == 2
    assert pause.summary("general") in two.server.recorder.messages
    two.pause = NOTHING
    two.run()
    assert len(two.claims()) == 1


def test_budgets_count_a_node_from_the_moment_at_which_it_is_given_up(stages: list[Stage]) -> None:
    stages.append(Stage(1, disruption={"budgets": [{"nodes": "1"}]}))
    (stage,) = stages
    for name in ("a", "b"):
        stage.server.put(claim(name, provider_id=f"kwok://{name}", true=READY), node(name))
    counted: list[int] = []

    def look(sent: Sent) -> None:
        if sent.method == "DELETE":
            ledger = stage.ledger.at(stage.world.cluster.snapshot())
            counted.append(ledger.allowed("general", names.REASON_DRIFTED))

    stage.server.intercept = look
    stage.run()
    assert counted == [0]
