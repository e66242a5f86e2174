"""Node repair from the first sight of a condition to the end of the node, in the times of AWS: the specs of Karpenter 1.15, under a clock that is ours."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.command import RepairTerms, command_on
from provisioner.apis.core import NodeStatus
from provisioner.apis.meta import Condition, condition
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import RepairPolicy
from provisioner.disruption.commands.book import SPARED_SECONDS
from provisioner.disruption.controller import METHODS
from provisioner.disruption.node_health import NodeHealth, repair_policies_of
from provisioner.disruption.repair_policies import Illnesses
from provisioner.ec2.provider import _REPAIRS
from provisioner.options import Options
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import Snapshot
from provisioner.support.metrics import REGISTRY
from provisioner.termination.eviction_queue import deadline_of
from tests.support.clock import NOON
from tests.support.cluster import node, pod, pool
from tests.support.disrupting import DisruptedNodes
from tests.support.disrupting import Make as Staged
from tests.support.eventually import eventually
from tests.support.worldserver import ServerDied

REPAIR = tuple(one for one in METHODS if one.name == "repair")
GPU = "AcceleratedHardwareReady"
PROTECTED = {names.DO_NOT_DISRUPT: "true"}
OLD = (NOON - timedelta(days=1)).isoformat()


def web(name: str, **more: Any) -> Pod:
    """So large that it has a node of its own."""
    return pod(f"web-{name}", cpu="3", ready=True, labels={"app": "web"}, **more)


Make = Callable[..., DisruptedNodes]


@pytest.fixture
def five(stages: Staged) -> Make:
    """Five nodes with a pod each."""

    def make(*, annotations: Any = None, **options: Any) -> DisruptedNodes:
        found = stages(
            *"abcde",
            **{"methods": REPAIR, "consolidations": (), "policies": _REPAIRS, "after": "Never", **options},
        )
        for name in "abcde":
            says(found, name)
            found.bind(web(name, annotations=annotations or {}), name)
        return found

    return make


def says(
    stage: DisruptedNodes,
    name: str,
    kind: str = "",
    status: str = "False",
    reason: str = "",
    since: datetime | None = None,
    **meta: Any,
) -> None:
    """A condition of a Node, as its kubelet writes it now; a healthy Node without one."""
    made = node(name, labels={names.NODEPOOL_LABEL: "general"}, creationTimestamp=OLD, **meta)
    conditions = {one.type: one for one in made.status.conditions}
    if kind:
        at = since or stage.world.clock.now()
        conditions[kind] = Condition(type=kind, status=status, reason=reason, last_transition_time=at)
    status_: NodeStatus = changed(made.status, conditions=tuple(conditions.values()))
    stage.server.put(changed(made, status=status_))


def turn(stage: DisruptedNodes, seconds: float = 0) -> None:
    """So much later, a pass, and what comes of it."""
    stage.world.clock.advance(seconds)
    stage.disruption.run_once()
    stage.settle()


def begun(stage: DisruptedNodes, *those: str) -> bool:
    """Whether the repair of exactly these nodes has begun."""
    return [name for name in "abcde" if not stage.goes(name) and command_on(stage.server.claim(name))] == list(those)


def end_of(stage: DisruptedNodes, name: str) -> str:
    found: str = stage.server.claim(name).metadata.annotations.get(names.TERMINATION_TIMESTAMP, "")
    return found


CASES = {
    "not ready": (names.READY, "False", "KubeletNotReady", 30, 10),
    "unknown": (names.READY, "Unknown", "NodeStatusUnknown", 30, 10),
    "a GPU error of which a reboot is said to help": (GPU, "False", "NvidiaXID46Error", 10, 5),
    "a fatal GPU error": (GPU, "False", "NvidiaXID79Error", 10, 5),
    "a GPU error that nobody lists": (GPU, "False", "NvidiaDoubleBitError", 30, 10),
    "storage": ("StorageReady", "False", "EBSVolumeStuck", 30, 10),
}


@pytest.mark.parametrize(("kind", "status", "reason", "tolerated", "grace"), CASES.values(), ids=CASES)
def test_a_broken_node_is_replaced_first_and_drained_within_a_bound(
    five: Make, kind: str, status: str, reason: str, tolerated: int, grace: int
) -> None:
    """One of five; the deadline is written when the replacement is ready, and not before."""
    stage = five()
    stage.server.ends_at_once = False
    stage.server.objects["nodeclaims"]["b"]["metadata"]["finalizers"] = [names.TERMINATION_FINALIZER]
    says(stage, "b", kind, status, reason)
    turn(stage)
    turn(stage, tolerated * 60 - 1)
    assert begun(stage)
    turn(stage, 1)
    assert begun(stage, "b")
    assert end_of(stage, "b") == ""
    record = command_on(stage.server.claim("b"))
    assert record is not None
    assert record.repair == RepairTerms(kind, grace * 60)
    found = condition(stage.server.claim("b").status.conditions, names.DISRUPTION_REASON)
    assert found is not None
    assert found.reason == "Unhealthy"
    assert stage.taints("b") == [names.DISRUPTED_TAINT.key]
    turn(stage, 100)
    assert stage.server.claim("b").metadata.deletion_timestamp is None
    assert end_of(stage, "b") == "", "neither deadline nor deletion before the replacement is there"
    stage.initialize(*stage.replacements())
    stage.settle()
    claim = stage.server.claim("b")
    assert claim.metadata.deletion_timestamp is not None
    assert deadline_of(claim) == stage.world.clock.now().replace(microsecond=0) + timedelta(minutes=grace)


def test_two_of_five_are_too_many_until_one_is_well_again(five: Make) -> None:
    stage = five()
    for name in "ab":
        says(stage, name, names.READY)
    turn(stage)
    for _ in range(3):
        turn(stage, 1800)
        assert begun(stage)
    told = {event[0]: event[2] for event in stage.server.recorder.events if event[3] == "NodeRepairBlocked"}
    assert set(told) == {"Node", "NodeClaim", "NodePool"}
    says(stage, "b")
    turn(stage)
    assert begun(stage, "a")


def test_a_budget_of_none_stops_it_until_there_is_one(five: Make) -> None:
    stage = five(budget="0")
    says(stage, "a", names.READY)
    turn(stage)
    turn(stage, 3600)
    assert begun(stage)
    stage.world.cluster.pool_changed(None, pool(disruption={"budgets": [{"nodes": "100%"}]}))
    turn(stage, 10)
    assert begun(stage, "a")


def test_do_not_repair_is_a_veto_for_as_long_as_it_is_there(five: Make) -> None:
    stage = five()
    says(stage, "a", names.READY)
    turn(stage)
    since = stage.world.clock.now()
    says(stage, "a", names.READY, since=since, annotations={names.DO_NOT_REPAIR: "true"})
    turn(stage, 3600)
    assert begun(stage)
    assert 'Repair is blocked through the "karpenter.sh/do-not-repair" annotation' in stage.server.recorder.messages
    says(stage, "a", names.READY, since=since, annotations={names.DO_NOT_REPAIR: "yes"})
    turn(stage, 10)
    assert begun(stage, "a"), "any other value is ignored"


@pytest.mark.parametrize("of", ["node", "pods"])
def test_do_not_disrupt_keeps_no_broken_node(five: Make, of: str) -> None:
    stage = five(annotations=PROTECTED if of == "pods" else {})
    says(stage, "a", names.READY, annotations=PROTECTED if of == "node" else {})
    turn(stage)
    turn(stage, 1800)
    assert begun(stage, "a")
    stage.initialize(*stage.replacements())
    stage.settle()
    assert stage.goes("a")


def test_pods_hold_a_node_where_nothing_bounds_its_drain(five: Make) -> None:
    stage = five(annotations=PROTECTED, policies=(RepairPolicy(names.READY, "False", timedelta(minutes=30)),))
    says(stage, "a", names.READY)
    turn(stage)
    turn(stage, 1800)
    assert begun(stage)
    assert any("Repair requires a termination grace period" in text for text in stage.server.recorder.messages)


HEALED: dict[str, Callable[[DisruptedNodes], None]] = {
    "it is well again": lambda stage: says(stage, "a"),
    "somebody forbids it": lambda stage: says(stage, "a", names.READY, annotations={names.DO_NOT_REPAIR: "true"}),
}


@pytest.mark.parametrize("change", HEALED.values(), ids=HEALED)
def test_a_node_that_is_not_to_be_repaired_any_more_is_spared_at_the_last_look(
    five: Make, change: Callable[[DisruptedNodes], None]
) -> None:
    stage = five()
    says(stage, "a", names.READY)
    turn(stage)
    turn(stage, 1800)
    change(stage)
    stage.initialize(*stage.replacements())
    stage.settle()
    turn(stage, 1)
    assert stage.is_open("a")
    assert end_of(stage, "a") == ""
    assert any("Canceled the disruption (Unhealthy)" in text for text in stage.server.recorder.messages)
    turn(stage, SPARED_SECONDS)
    assert begun(stage)


def test_a_deadline_that_somebody_else_wrote_stays_when_a_repair_is_called_off(five: Make) -> None:
    """As of an interruption, whose instance ends then whatever becomes of the repair."""
    stage = five()
    says(stage, "a", names.READY)
    turn(stage)
    turn(stage, 1800)
    later = {names.TERMINATION_TIMESTAMP: "2099-01-01T00:00:00Z"}
    stage.server.writer.metadata(stage.server.claim("a"), annotations=later)
    says(stage, "a")
    stage.initialize(*stage.replacements())
    stage.settle()
    turn(stage, 1)
    assert (stage.is_open("a"), end_of(stage, "a")) == (True, later[names.TERMINATION_TIMESTAMP])


@pytest.mark.parametrize("other", ["", "2026-11-21T12:05:00Z"], ids=["its own", "one that came between"])
@pytest.mark.parametrize("restarted", [False, True], ids=["by who wrote it", "by the next leader"])
def test_a_repair_whose_node_cannot_be_deleted_takes_back_its_own_deadline_alone(
    five: Make, other: str, restarted: bool
) -> None:
    stage = five()
    says(stage, "a", names.READY)
    turn(stage)
    turn(stage, 1800)
    stage.server.refuse["DELETE"] = 403
    stage.initialize(*stage.replacements())
    stage.settle()
    assert end_of(stage, "a")
    if other:
        stage.server.writer.metadata(stage.server.claim("a"), annotations={names.TERMINATION_TIMESTAMP: other})
    says(stage, "a")
    if restarted:
        stage.restart()
    stage.world.clock.advance(601)
    stage.commands.queue.add("a")
    eventually(lambda: command_on(stage.server.claim("a")) is None, "it is called off", 5.0, 0.01)
    assert end_of(stage, "a") == other


def test_a_replacement_that_never_comes_up_leaves_neither_deadline_nor_deletion(five: Make) -> None:
    stage = five()
    says(stage, "a", names.READY)
    turn(stage)
    turn(stage, 1800)
    turn(stage, 601)
    turn(stage, 1)
    assert stage.is_open("a")
    assert end_of(stage, "a") == ""


@pytest.mark.parametrize("writes", range(6))
def test_a_repair_is_resumed_or_rolled_back_after_every_write(five: Make, writes: int) -> None:
    """Record, taint, reason, replacement, deadline, deletion: it ends once, with one replacement and one deadline."""
    stage = five()
    says(stage, "a", names.READY)
    turn(stage)
    died, reconcile = False, stage.commands.reconcile

    def dying(holder: str) -> Any:
        nonlocal died
        try:
            return reconcile(holder)
        except ServerDied:
            died = True
            return None

    def carry_on() -> None:
        for name in stage.replacements():
            if not stage.server.has("nodes", name):
                stage.initialize(name)
        stage.settle()

    stage.commands.queue._reconcile = dying
    turn(stage, 1799)  # what else is told of nodes is told by then
    stage.server.dies_after = len(stage.server.done) + writes
    turn(stage, 1)
    try:
        carry_on()
    except ServerDied:
        died = True
    assert died
    stage.restart()
    stage.settle()
    for _ in range(0 if writes else 2):  # a new leader sees the condition for the first time
        turn(stage, 1800)
    carry_on()
    assert stage.goes("a")
    assert len(stage.replacements()) == 1
    assert stage.server.done.count("DELETE nodeclaims/a") == 1


def test_what_a_repair_is_counted_as(five: Make) -> None:
    labels = {"nodepool": "general", "capacity_type": "", "termination_mode": "eventual"}
    unhealthy = {"condition": "accelerated_hardware_ready", "image_id": "", **labels}
    disrupted = {"reason": "unhealthy", "consolidation_policy": "", **labels}
    decided = {"decision": "replace", "reason": "unhealthy", "consolidation_type": ""}
    series: dict[str, dict[str, str]] = {
        "karpenter_nodeclaims_unhealthy_disrupted_total": unhealthy,
        "karpenter_nodeclaims_disrupted_total": disrupted,
        "karpenter_pods_disruption_initiated_total": disrupted,
        "karpenter_voluntary_disruption_decisions_total": decided,
    }

    def counted() -> list[float]:
        return [REGISTRY.get_sample_value(name, some) or 0.0 for name, some in series.items()]

    before, stage = counted(), five()
    says(stage, "a", GPU, reason="NvidiaXID79Error")
    turn(stage)
    turn(stage, 600)
    assert REGISTRY.get_sample_value("karpenter_voluntary_disruption_eligible_nodes", {"reason": "unhealthy"}) == 1
    stage.initialize(*stage.replacements())
    stage.settle()
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1, 1, 1]
    allowed = {"nodepool": "general", "reason": "unhealthy"}
    assert REGISTRY.get_sample_value("karpenter_nodepools_allowed_disruptions", allowed) is not None


def test_a_timeout_overrides_all_tolerations(five: Make) -> None:
    options = Options.parse(["--feature-gates=NodeRepair=true", "--repair-timeout=6s"], {})
    stage = five(policies=repair_policies_of(options, _REPAIRS))
    says(stage, "a", "StorageReady")
    turn(stage)
    turn(stage, 6)
    assert begun(stage, "a")


class _Unasked(Cluster):
    """A state that must not be asked for Nodes."""

    def __init__(self) -> None:
        """Nothing of a state is needed."""


def test_without_policies_no_node_is_looked_at(five: Make) -> None:
    stage = five()
    idle = NodeHealth(_Unasked(), stage.world.clock, ())
    assert idle.at(stage.world.cluster.snapshot()) == {}


def test_health_that_cannot_be_judged_ends_no_other_method(stages: Staged, caplog: pytest.LogCaptureFixture) -> None:
    stage = stages("a", "b", after="0s")

    def unjudged(_snapshot: Snapshot) -> Illnesses:
        raise ArithmeticError

    stage.disruption._ill = unjudged
    for _ in range(3):
        turn(stage, 20)
    assert not stage.server.has("nodeclaims", "a") or begun(stage, "a")
    assert "The health of nodes could not be judged" in caplog.text
