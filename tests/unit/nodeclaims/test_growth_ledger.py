"""Growth limits where NodeClaims come to be: pods, static NodePools and replacements, and after a restart."""

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.nodeclaims.growth_ledger import FRESH_SECONDS, KARPENTER_SECONDS, GrowthLedger, limits_of
from provisioner.nodeclaims.growth_limits import GrowthLimit, GrowthLimits, HeldBackError
from provisioner.options import Options
from provisioner.packing.planner import PackingOutcome, as_scheduled
from provisioner.provisioning import worlds as spending_worlds
from provisioner.provisioning.provisioner import PLANNED_PENDING_PODS, REACHED_SOLVE_DEADLINE, ProvisioningController
from provisioner.scheduling import world as scheduling_world
from provisioner.scheduling.capacity.spending import PricedTypes, within
from provisioner.scheduling.node_claims import static_claim
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Bin
from provisioner.scheduling.problem import World as Plane
from provisioner.scheduling.reasons import NOT_TRIED
from provisioner.scheduling.result import Result, Unplaced
from provisioner.state.snapshot import NodeView
from provisioner.static.controller import StaticCapacity
from provisioner.support.metrics import REGISTRY
from provisioner.support.workers import WorkerPool
from tests.support.batches import Batches
from tests.support.cluster import claim, pod, pool
from tests.support.disrupting import DisruptedNodes, Make

ONE_TYPE = ({"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-4x-amd64-linux"]},)
USD = 0.1
"""More than one and less than two nodes of that type on spot cost; see `test_the_price_of_this_type`."""


def fills(count: int) -> tuple[Pod, ...]:
    """Pods of which each needs a node."""
    return tuple(pod(f"p{number}", cpu="3") for number in range(count))


class Growing(Batches):
    """A NodePool of one instance type, and what creates NodeClaims from it; `restart` forgets what is in memory."""

    def __init__(self, limits: GrowthLimits, *pods: Pod) -> None:
        super().__init__(*pods, requirements=ONE_TYPE)
        self.limits, self.waits, self.beside, self.paused = limits, list[float](), "", dict[str, str]()
        self.restart()

    def restart(self) -> None:
        """Another process leads."""
        self.growth = GrowthLedger(
            self.world.cluster,
            self.limits,
            lambda _: self.world.types,
            self.world.clock,
            lambda: self.beside,
            lambda pool: self.paused.get(pool, ""),
        )

    def provisioner(self, workers: WorkerPool, **options: Any) -> ProvisioningController:
        return super().provisioner(workers, **{"retry_after": self.waits.append, **options})

    @property
    def claims(self) -> int:
        return len(self.server.objects["nodeclaims"])

    def said(self, kind: str, reason: str) -> list[str]:
        return self.told.said(reason, kind)


def test_flags_become_limits() -> None:
    options = Options.parse(["--max-claims-per-minute=7", "--max-usd-per-hour=12.5"], {})
    assert limits_of(options) == GrowthLimits(7, 12.5)
    assert limits_of(Options.parse([], {})).none


def held_back(limit: GrowthLimit) -> float | None:
    return REGISTRY.get_sample_value("dovetail_nodeclaims_held_back", {"nodepool": "general", "limit": limit})


def test_a_wave_is_as_large_as_the_limit_allows_and_the_rest_follows_when_the_minute_is_over() -> None:
    one = Growing(GrowthLimits(claims_per_minute=2), *fills(5))
    one.run()
    assert one.claims == 2
    assert held_back(GrowthLimit.CLAIMS) == 3
    (text,) = one.said("NodePool", "GrowthLimited")
    assert text.startswith("3 nodes wait: no more NodeClaims are created for now, because --max-claims-per-minute is 2")
    assert len(one.said("Pod", "FailedScheduling")) == 3
    assert "--max-claims-per-minute is 2" in one.growth.problems([0.1])[0]
    assert Growing(GrowthLimits()).growth.problems([0.1]) == [""]
    assert one.waits == [60.0]
    one.world.clock.advance(59.0)
    one.run()
    assert one.claims == 2
    one.world.clock.advance(1.0)
    one.run()
    assert one.claims == 4
    one.world.clock.advance(60.0)
    one.run()
    assert one.claims == 5
    assert held_back(GrowthLimit.CLAIMS) is None


@pytest.mark.parametrize("limits", [GrowthLimits(), GrowthLimits(claims_per_minute=2)])
def test_while_another_karpenter_leads_nothing_is_bought_and_pods_are_told(limits: GrowthLimits) -> None:
    one = Growing(limits, *fills(5))
    one.beside = "Karpenter runs in namespace karpenter"
    one.run()
    assert one.claims == 0
    assert held_back(GrowthLimit.KARPENTER) == 5
    assert set(one.said("Pod", "FailedScheduling")) == {f'Failed to schedule pod, NodePool "general": {one.beside}'}
    assert one.growth.problems([0.1]) == [one.beside]
    assert one.waits == [KARPENTER_SECONDS]
    one.beside = ""
    one.run()
    assert one.claims == (limits.claims_per_minute or 5)


def test_while_launches_are_paused_nothing_is_bought_and_pods_are_told() -> None:
    one = Growing(GrowthLimits(), *fills(5))
    one.paused[""] = "Launching nodes is paused by a user"
    one.run()
    assert (one.claims, held_back(GrowthLimit.PAUSED)) == (0, 5)
    assert set(one.said("Pod", "FailedScheduling")) == {f'Failed to schedule pod, NodePool "general": {one.paused[""]}'}
    assert one.growth.problems([0.1]) == [one.paused[""]]
    assert one.growth.is_closed
    assert one.waits == [KARPENTER_SECONDS]
    one.paused = {"general": "its NodePool pauses them"}
    one.run()
    assert (one.claims, one.growth.is_closed) == (0, False)
    one.paused = {}
    one.run()
    assert one.claims == 5


def test_what_waits_while_another_karpenter_leads_is_planned_once_until_something_waits_that_did_not() -> None:
    one, planned, workers = Growing(GrowthLimits(), *fills(2)), list[int](), WorkerPool(1)
    one.beside = "Karpenter runs in namespace karpenter"

    def noted(prepared: Prepared, result: Result) -> PackingOutcome:
        planned.append(sum(len(claim.pods) for claim in result.claims))
        return as_scheduled(prepared, result)

    provisioner = one.provisioner(workers, improve=noted)
    for _ in range(3):
        provisioner.run()
    assert (planned, one.waits) == ([2], [KARPENTER_SECONDS] * 3)
    one.world.add(pod("more", cpu="3"))
    provisioner.run()
    one.beside = ""
    provisioner.run()
    assert planned == [2, 3, 3]
    workers.close()
    assert one.claims == 3


def test_what_is_planned_again_for_less_money_looks_at_no_node_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods may wait at the limit for days, and each batch asks twice."""
    one, made, workers = Growing(GrowthLimits(usd_per_hour=3 * USD), *fills(1)), list[str](), WorkerPool(1)
    for number in range(3):
        one.world.existing_node(f"n{number}", pods=(pod(f"r{number}", cpu="3"),))
        one.world.add(pod(f"r{number}", cpu="3", node_name=f"n{number}"))
    asked = list[float]()
    make = scheduling_world._made

    def noted_bin(view: NodeView) -> Bin:
        made.append(view.name)
        return make(view)

    def noted_usd(world: Plane, usd: float, priced: PricedTypes) -> Plane:
        asked.append(usd)
        return within(world, usd, priced)

    monkeypatch.setattr(scheduling_world, "_made", noted_bin)
    monkeypatch.setattr(spending_worlds, "within", noted_usd)
    provisioner = one.provisioner(workers)
    for _ in range(2):
        provisioner.run()
    workers.close()
    assert len(asked) == 2, "each batch"
    assert sorted(made) == ["n0", "n1", "n2"]


def test_all_that_is_planned_again_for_less_money_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that wait, and those that still run on nodes that go; either could take as long as the batch itself."""
    one, until = Growing(GrowthLimits(usd_per_hour=USD), *fills(2)), list[object]()
    goes(one, "3")
    solve = Prepared.solve

    def noted(prepared: Prepared, pods: tuple[Pod, ...], **options: Any) -> Result:
        until.append(options["expired"])
        return solve(prepared, pods, **options)

    monkeypatch.setattr(Prepared, "solve", noted)
    one.run()
    assert len(until) == 3, "the batch, who waits, and who runs"
    assert until[1] is until[2] is not until[0]


def types(*names_of: str) -> tuple[dict[str, Any], ...]:
    return ({"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": [f"{one}-amd64-linux" for one in names_of]},)


def sample(name: str) -> float | None:
    return REGISTRY.get_sample_value(name)


def goes(one: Growing, cpu: str) -> None:
    """Two pods run on a node that is deleted."""
    one.world.existing_node("goes")
    one.world.add(*(pod(f"r{number}", cpu=cpu, node_name="goes") for number in range(2)))
    known = next(each for each in one.world.cluster.claims() if each.name == "goes")
    going = msgspec.structs.replace(known.metadata, deletion_timestamp=one.world.clock.now())
    one.world.cluster.claim_changed(known, msgspec.structs.replace(known, metadata=going))


def a_drain_for_less_money() -> Growing:
    """A pod waits and two still run on a node that goes: together they need one node of 2 CPUs, and the money is enough for one CPU."""
    one = Growing(GrowthLimits(usd_per_hour=0.03), pod("waits", cpu="600m"))
    one.world.cluster.pool_changed(one.pool, pool(requirements=types("c-1x", "c-2x")))
    goes(one, "600m")
    return one


def test_what_is_planned_again_for_less_money_is_in_the_batch_its_log_and_its_metrics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = a_drain_for_less_money()
    with caplog.at_level("INFO"):
        batch = one.run()
    assert batch is not None
    assert one.claims == 1
    assert held_back(GrowthLimit.USD) == 1
    usd = sum(min(way.price for way in one.world.types[f"{kind}-amd64-linux"].offerings) for kind in ("c-1x", "c-2x"))
    assert (batch.pods, batch.claims, batch.unplaced) == (3, 2, 0), (
        "one for the pod that waits, and one that is held back"
    )
    assert batch.usd_per_hour == pytest.approx(usd)
    assert sample("dovetail_plan_cost") == pytest.approx(usd)
    told = [record for record in caplog.records if record.message == PLANNED_PENDING_PODS]
    assert [vars(record)["fields"]["claims"] for record in told] == [2]


def test_what_is_planned_again_for_less_money_and_is_held_back_in_its_turn_comes_back_when_that_limit_allows_it() -> (
    None
):
    """Five pods of one node that is too dear: of the small ones that are left one may be created in a minute."""
    one = Growing(
        GrowthLimits(claims_per_minute=1, usd_per_hour=0.06), *(pod(f"p{number}", cpu="700m") for number in range(5))
    )
    one.world.cluster.pool_changed(one.pool, pool(requirements=types("c-1x", "c-4x")))
    one.run()
    assert one.claims == 1
    assert one.waits == [60.0]


def test_where_time_is_up_for_what_is_planned_again_for_less_money_that_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, solve, asked = a_drain_for_less_money(), Prepared.solve, list[int]()

    def late(prepared: Prepared, pods: tuple[Pod, ...], **options: Any) -> Result:
        asked.append(len(pods))
        if len(asked) == 1:
            return solve(prepared, pods, **options)
        return Result((), {}, tuple(Unplaced(one, (NOT_TRIED,)) for one in pods))

    monkeypatch.setattr(Prepared, "solve", late)
    one.run()
    assert one.claims == 0
    assert [record.message for record in caplog.records].count(REACHED_SOLVE_DEADLINE) == 1
    assert one.again == ["deadline"]


def test_a_restart_in_the_middle_of_the_minute_changes_nothing() -> None:
    one = Growing(GrowthLimits(claims_per_minute=2), *fills(5))
    one.run()
    one.world.clock.advance(30.0)
    one.restart()
    one.run()
    assert one.claims == 2
    assert one.waits[-1] == 30.0


def test_node_claims_that_are_gone_count_until_their_minute_is_over() -> None:
    one = Growing(GrowthLimits(claims_per_minute=2), *fills(2))
    one.run()
    for name in list(one.server.objects["nodeclaims"]):
        one.server.drop("nodeclaims", name)
    one.world.clock.advance(FRESH_SECONDS)
    one.run()
    assert one.claims == 0
    one.world.clock.advance(60.0)
    one.run()
    assert one.claims == 2


def test_what_never_came_to_be_does_not_count() -> None:
    one = Growing(GrowthLimits(claims_per_minute=2), *fills(2))
    one.server.refuse_creates = 403
    one.run()
    one.server.refuse_creates = 0
    one.world.clock.advance(FRESH_SECONDS)
    one.run()
    assert one.claims == 2


def test_creation_times_of_a_clock_that_is_ahead_hold_nothing_up_for_longer_than_a_minute() -> None:
    one = Growing(GrowthLimits(claims_per_minute=1))
    one.world.cluster.claim_changed(None, claim("ahead", creationTimestamp="2040-01-01T00:00:00Z"))
    one.restart()
    with pytest.raises(HeldBackError):
        one.growth.admit([claim("new")], lambda: True)
    one.world.clock.advance(60.0)
    assert one.growth.admit([claim("new")], lambda: True)


def test_the_price_of_this_type() -> None:
    one = Growing(GrowthLimits(), *fills(1))
    batch = one.run()
    assert batch is not None
    assert batch.usd_per_hour < USD < 2 * batch.usd_per_hour


def test_nodes_together_cost_no_more_than_allowed_and_a_node_that_goes_makes_room() -> None:
    one = Growing(GrowthLimits(usd_per_hour=USD), *fills(3))
    one.run()
    assert one.claims == 1
    assert held_back(GrowthLimit.USD) == 2
    assert one.waits == [], "only a node that goes makes room"
    (text,) = one.said("NodePool", "GrowthLimited")
    assert f"all nodes together may cost ${USD:g} per hour (--max-usd-per-hour)" in text
    one.restart()
    one.world.clock.advance(3600.0)
    one.run()
    assert one.claims == 1
    one.server.drop("nodeclaims", *one.server.objects["nodeclaims"])
    one.world.clock.advance(FRESH_SECONDS)
    one.run()
    assert one.claims == 1


@pytest.mark.parametrize("own", [False, True])
def test_where_money_is_limited_nothing_without_a_price_is_bought_and_that_is_told(own: bool) -> None:
    one = Growing(GrowthLimits(usd_per_hour=0.0 if own else 1e6), *fills(1))
    one.world.types = {
        name: replace(kind, offerings=tuple([replace(way, price=100_000.0) for way in kind.offerings]))
        for name, kind in one.world.types.items()
    }
    if own:
        one.pool.metadata.annotations[names.MAX_USD_PER_HOUR] = "999999"
        one.world.cluster.pool_changed(None, one.pool)
    one.run()
    assert one.claims == 0
    (text,) = one.said("NodePool", "GrowthLimited")
    assert "without a known price" in text


def test_a_node_pool_says_how_much_its_own_nodes_may_cost_and_is_told_what_waits() -> None:
    one = Growing(GrowthLimits(), *fills(3))
    limited = msgspec.structs.replace(
        one.pool,
        metadata=msgspec.structs.replace(one.pool.metadata, annotations={names.MAX_USD_PER_HOUR: "0.25"}),
    )
    one.world.cluster.pool_changed(one.pool, limited)
    one.run()
    assert one.claims == 2, "a node of this type may come to cost $0.1086, on demand"
    (text,) = one.said("NodePool", "GrowthLimited")
    assert text == (
        "1 pod waits because of the annotation dovetail.dev/max-usd-per-hour: limit on USD per hour: 0.03282 left, "
        "the smallest instance type that fits needs 0.10859; raise it, or remove workloads"
    )
    one.restart()
    one.world.clock.advance(3600.0)
    one.run()
    assert one.claims == 2, "what is planned already costs"
    one.world.cluster.pool_changed(limited, one.pool)
    one.run()
    assert one.claims == 3


def test_static_node_pools_grow_no_faster_either() -> None:
    one = Growing(GrowthLimits(claims_per_minute=2))
    fixed, workers = pool(replicas=3, requirements=ONE_TYPE), WorkerPool(2)
    one.world.cluster.pool_changed(one.pool, fixed)
    static = StaticCapacity(
        one.world.cluster,
        one.server.client,
        one.creator(workers),
        one.server.writer,
        one.server.recorder,
        workers,
        one.world.clock,
        enabled=True,
        pool=lambda _: fixed,
        manages=lambda _: True,
        stale=lambda: "",
        chance=random.Random(1),
        ledger=BudgetLedger(one.world.cluster),
    )
    assert static.reconcile("general").requeue_after == 60.0
    assert one.claims == 2
    assert one.said("NodePool", "GrowthLimited")[0].startswith("1 node waits: ")
    one.world.clock.advance(60.0)
    static.reconcile("general")
    assert one.claims == 3
    workers.close()


# --- replacements -----------------------------------------------------------------------------------------------------


def drifted(stages: Make, limits: GrowthLimits) -> DisruptedNodes:
    stage = stages("other", growth=limits, after="Never")
    for name in ("a", "b"):
        stage.cloud.there.add(f"kwok://{name}")
        stage.drifted(name, pod(f"web-{name}", cpu="3", ready=True))
    stage.bind(pod("fills", cpu="3", ready=True), "other")
    stage.world.clock.advance(120.0)
    return stage


def test_replacements_count_and_wait_and_nothing_is_simulated_again_until_the_minute_is_over(stages: Make) -> None:
    stage = drifted(stages, GrowthLimits(claims_per_minute=1))
    for _ in range(3):
        stage.disruption.run_once()
        stage.settle()
        stage.world.clock.advance(1.0)
    (first,) = stage.replacements()
    blocked = stage.server.recorder.said("DisruptionBlocked", "NodeClaim")
    assert len(blocked) == 1
    assert blocked[0].startswith("Cannot launch a replacement (Drifted): no more NodeClaims are created for now")
    stage.world.clock.advance(60.0)
    stage.disruption.run_once()
    stage.settle()
    assert len(stage.replacements()) == 2
    assert first in stage.replacements()


def test_a_replacement_that_is_written_in_a_command_counts_before_it_is_created(stages: Make) -> None:
    stage = drifted(stages, GrowthLimits(claims_per_minute=1))
    stage.server.refuse_creates = 500
    stage.disruption.run_once()
    stage.commands.queue.stop(5.0)
    assert stage.replacements() == []
    (command,) = stage.world.cluster.commands()
    for name in command.record.replacement_names:
        stage.world.cluster.claim_failed(name)  # as after a restart: only the record tells of it
    growth = GrowthLedger(stage.world.cluster, stage.growth, lambda _: stage.world.types, stage.world.clock)
    with pytest.raises(HeldBackError):
        growth.admit([static_claim(pool(), "new").claim], lambda: True)


def limited(stage: DisruptedNodes, usd: str) -> DisruptedNodes:
    """The same, where the NodePool says what its nodes may cost."""
    known = stage._pool
    metadata = msgspec.structs.replace(known.metadata, annotations={names.MAX_USD_PER_HOUR: usd})
    stage.world.cluster.pool_changed(known, msgspec.structs.replace(known, metadata=metadata))
    return stage


ALL_NODES = "all nodes together may cost ${} per hour (--max-usd-per-hour)"
OWN_NODES = 'NodePool "general": limit on USD per hour: '
# of three nodes that cost $0.228 together and of which two have drifted: (all nodes may cost, those of the NodePool, new ones, the limit)
WAVES = {
    "no limit": (0.0, "", 2, ""),
    "the flag allows what is there": (0.229, "", 2, ""),
    "the flag was lowered": (0.2, "", 0, ALL_NODES.format(0.2)),
    "the annotation allows what is there, if both come to be on demand": (0.0, "0.33", 2, ""),
    "the annotation was lowered": (0.0, "0.1", 0, OWN_NODES),
}


@pytest.mark.parametrize(("usd", "own", "new", "text"), WAVES.values(), ids=WAVES)
def test_a_wave_is_as_large_as_dollars_allow_and_an_event_on_who_stays_names_the_limit(
    stages: Make, usd: float, own: str, new: int, text: str
) -> None:
    stage = drifted(stages, GrowthLimits(usd_per_hour=usd))
    if own:
        limited(stage, own)
    for _ in range(3):
        stage.disruption.run_once()
        stage.settle()
        stage.world.clock.advance(1.0)
    assert len(stage.replacements()) == new
    told = zip(stage.server.recorder.events, stage.server.recorder.messages, strict=True)
    blocked = [
        (event[1], message) for event, message in told if event[0] == "NodeClaim" and event[3] == "DisruptionBlocked"
    ]
    assert {name for name, _ in blocked} == set(("a", "b")[new:])
    assert all(text in message for _, message in blocked)
