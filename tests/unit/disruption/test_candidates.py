"""Which nodes may be disrupted, and why each other one may not: core spec 6.2, rows 91-94."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.meta import OwnerReference
from provisioner.disruption.candidates import Candidate, Obstacle, candidates
from provisioner.disruption.view import DisruptionView
from provisioner.state.pause import Activity
from provisioner.state.predictions import PodPredictions
from provisioner.values.resources import Resources
from tests.support.clock import NOON
from tests.support.cluster import pod_budget
from tests.support.fleets import ABC, LARGE, SMALL, Fleet, budget, pool, running, several
from tests.support.problems import instance_type, shape

WEB = shape(labels={"app": "web"})
PROTECTED = {"annotations": {names.DO_NOT_DISRUPT: "true"}}


def web(**more: Any) -> Callable[[Fleet], object]:
    return lambda fleet: fleet.node("n", [running("w", WEB, **more)])


def with_budgets(*allowed: int, pod: dict[str, Any] | None = None, **spec: Any) -> Callable[[Fleet], None]:
    def made(fleet: Fleet) -> None:
        fleet.node("n", [running("w", WEB, **(pod or {}))])
        fleet.budgets = [budget(f"pdb-{number}", "web", each, **spec) for number, each in enumerate(allowed)]

    return made


def counted(
    healthy: int, *, allowed: int = 0, generation: int = 1, pod: dict[str, Any] | None = None
) -> Callable[[Fleet], None]:
    """One budget that demands three healthy pods."""

    def made(fleet: Fleet) -> None:
        fleet.node("n", [running("w", WEB, **(pod or {}))])
        one = pod_budget("pdb", healthy=healthy, required=3, allowed=allowed, selector={}, minAvailable=3)
        metadata = msgspec.structs.replace(one.metadata, generation=generation)
        fleet.budgets = [msgspec.structs.replace(one, metadata=metadata)]

    return made


def seen(**more: Any) -> Callable[[Fleet], object]:
    return lambda fleet: fleet.node("n", [running("w")], **more)


def preempting(fleet: Fleet) -> None:
    fleet.node("n", [running("victim", deleted=NOON)])
    fleet.pending = [running("w", nominated_node_name="node-n")]


def without_pool(fleet: Fleet) -> None:
    fleet.node("n")
    fleet.pools = []


DAEMON = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", uid="d", controller=True)
ANNOTATED = 'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/w)'
CASES: dict[str, tuple[Callable[[Fleet], object], Obstacle | None, str]] = {
    "a node like any other": (seen(), None, ""),
    "no NodeClaim": (seen(claim=None), Obstacle.UNMANAGED, "Node isn't managed by karpenter"),
    "no Node": (seen(name=""), Obstacle.NO_NODE, "Nodeclaim does not have an associated node"),
    "not initialized": (seen(initialized=False), Obstacle.NOT_INITIALIZED, "Node isn't initialized"),
    "deleting": (seen(deleting=True), Obstacle.DELETING, "Node is deleting or marked for deletion"),
    "nominated": (seen(nominated=True), Obstacle.NOMINATED, "Node is nominated for a pending pod"),
    "nominated by kube-scheduler": (preempting, Obstacle.NOMINATED, "Node is nominated for a pending pod"),
    "row 92: protected itself": (
        seen(do_not_disrupt=True),
        Obstacle.NODE_PROTECTED,
        'Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation',
    ),
    "two of one provider ID": (
        seen(ambiguous=True),
        Obstacle.AMBIGUOUS,
        "Several Nodes or NodeClaims have the same provider ID",
    ),
    "no pool label": (seen(pool=""), Obstacle.NO_POOL_LABEL, 'Node does not have label "karpenter.sh/nodepool"'),
    "no pool": (without_pool, Obstacle.NO_POOL, "NodePool not found (NodePool=general)"),
    "row 91: a protected pod": (web(**PROTECTED), Obstacle.POD_PROTECTED, ANNOTATED),
    "row 91: a protected daemon": (web(**PROTECTED, owner=DAEMON), Obstacle.POD_PROTECTED, ANNOTATED),
    "row 91: a protected pod that ends": (web(**PROTECTED, deleted=NOON), None, ""),
    "row 91: protected for another hour": (
        web(annotations={names.DO_NOT_DISRUPT: "1h"}, start_time=NOON - timedelta(minutes=5)),
        Obstacle.POD_PROTECTED,
        ANNOTATED,
    ),
    "row 91: protected until a minute ago": (
        web(annotations={names.DO_NOT_DISRUPT: "4m"}, start_time=NOON - timedelta(minutes=5)),
        None,
        "",
    ),
    "row 91: an annotation that nobody can read": (web(annotations={names.DO_NOT_DISRUPT: "soon"}), None, ""),
    "row 93: a budget that allows one": (with_budgets(1), None, ""),
    "row 93: a budget that allows none": (
        with_budgets(0),
        Obstacle.POD_BUDGET,
        "Pdb prevents pod evictions (PodDisruptionBudget=default/pdb-0)",
    ),
    "row 93: several budgets": (
        with_budgets(1, 1),
        Obstacle.SEVERAL_POD_BUDGETS,
        "Eviction does not support multiple PDBs",
    ),
    "row 93: AlwaysAllow lets a pod go that is not ready": (
        with_budgets(0, pod={"ready": False}, unhealthyPodEvictionPolicy="AlwaysAllow"),
        None,
        "",
    ),
    "row 93: AlwaysAllow holds a ready pod": (
        with_budgets(0, unhealthyPodEvictionPolicy="AlwaysAllow"),
        Obstacle.POD_BUDGET,
        "Pdb prevents pod evictions (PodDisruptionBudget=default/pdb-0)",
    ),
    "row 93: IfHealthyBudget lets a pod go that is not ready while the others are enough": (
        counted(3, pod={"ready": False}),
        None,
        "",
    ),
    "row 93: IfHealthyBudget holds it while they are not": (
        counted(2, pod={"ready": False}),
        Obstacle.POD_BUDGET,
        "Pdb prevents pod evictions (PodDisruptionBudget=default/pdb)",
    ),
    "row 93: a changed budget allows nothing before it is counted anew": (
        counted(3, allowed=1, generation=2),
        Obstacle.POD_BUDGET,
        "Pdb prevents pod evictions (PodDisruptionBudget=default/pdb)",
    ),
    "row 93: a budget holds no pod that is ending": (with_budgets(0, pod={"deleted": NOON}), None, ""),
}


@pytest.mark.parametrize(("build", "obstacle", "message"), CASES.values(), ids=CASES)
def test_who_may_be_disrupted(build: Callable[[Fleet], object], obstacle: Obstacle | None, message: str) -> None:
    fleet = Fleet()
    build(fleet)
    found = candidates(fleet.view(), Activity.CONSOLIDATION)
    assert [one.key for one in found.eligible] == ([] if obstacle else ["n"])
    assert [(one.obstacle, str(one)) for one in found.refused] == ([(obstacle, message)] if obstacle else [])


def test_a_node_whose_disruption_has_begun_is_left_out_without_a_word() -> None:
    fleet = Fleet()
    fleet.node("n")
    found = candidates(fleet.view(under_way=["n"]), Activity.CONSOLIDATION)
    assert (found.eligible, found.blocked) == ((), ())
    assert found.refused[0].obstacle is Obstacle.UNDER_WAY


@pytest.mark.parametrize(("period", "eventual", "may"), [("1h", True, True), ("1h", False, False), (None, True, False)])
def test_row_94_drift_of_a_claim_with_a_grace_period_asks_no_pod(period: str | None, eventual: bool, may: bool) -> None:
    fleet = Fleet()
    fleet.node("n", [running("w", WEB, **PROTECTED)], claim_spec={"terminationGracePeriod": period})
    fleet.node("o", [running("x", WEB)], claim_spec={"terminationGracePeriod": period})
    fleet.node("p", [running("y")], claim_spec={"terminationGracePeriod": period}, do_not_disrupt=True)
    fleet.budgets = [budget("pdb", "web", 0)]
    found = candidates(fleet.view(), Activity.DRIFT if eventual else Activity.CONSOLIDATION)
    assert [one.key for one in found.eligible] == (["n", "o"] if may else [])


def test_protection_that_ends_by_the_clock_says_when() -> None:
    fleet = Fleet()
    fleet.node("n", [running("w", annotations={names.DO_NOT_DISRUPT: "1h"}, start_time=NOON)])
    found = candidates(fleet.view(), Activity.CONSOLIDATION)
    assert found.recheck_at == NOON + timedelta(hours=1)


def test_a_budget_that_selects_by_a_pods_own_label_holds_only_that_pod() -> None:
    """The first pod of a StatefulSet has a budget of its own, though all pods are of one class."""
    fleet = Fleet()
    for number in range(2):
        labels = {"app": "db", names.POD_INDEX_LABEL: str(number)}
        fleet.node(f"n{number}", [running(f"db-{number}", shape(labels={"app": "db"}), labels=labels)])
    one = budget("first", "db", 0, selector={"matchLabels": {"app": "db", names.POD_INDEX_LABEL: "0"}})
    fleet.budgets = [one]
    found = candidates(fleet.view(), Activity.CONSOLIDATION)
    assert [each.key for each in found.eligible] == ["n1"]


def test_a_candidate_knows_its_price_and_its_pods() -> None:
    fleet = Fleet()
    fleet.node("n", [running("w"), running("d", owner=DAEMON)])
    (one,) = candidates(fleet.view(), Activity.CONSOLIDATION).eligible
    assert ([pod.name for pod in one.pods], one.usd_per_hour, one.cost) == (["w"], 0.2, 2.0)


def test_a_node_is_the_same_candidate_until_anything_of_it_changes() -> None:
    fleet = Fleet()
    node = fleet.node("a", several(2, "w"))

    def found(view: DisruptionView) -> Candidate:
        (one,) = candidates(view, Activity.CONSOLIDATION).eligible
        return one

    first = found(fleet.view())
    assert found(fleet.view()) is first
    assert first.requests == Resources.total(one.shape.requests for one in node.pods)
    dearer = instance_type("medium", "4", "8Gi", 0.7, zones=ABC, capacity_types=("on-demand",))
    fleet.types = (SMALL, dearer, LARGE)
    assert found(fleet.view()).usd_per_hour == 0.7
    fleet.pools = [pool(weight=7)]
    assert found(fleet.view()).pool.spec.weight == 7
    fleet.predictions = PodPredictions({})
    assert found(fleet.view()) is not first
    fleet.nodes = [replace(node, pods=node.pods[:1])]
    assert found(fleet.view()).evictions == 1.0
