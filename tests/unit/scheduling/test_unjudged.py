"""A pod that says more than is kept of one: it gets no new node, and may match whatever others look for."""

from collections.abc import Callable
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, decode_pod
from provisioner.disruption.candidates import Obstacle, candidates
from provisioner.scheduling.drainability import follows
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import Changes
from provisioner.scheduling.topology.ties import any_ties, kinds
from provisioner.state.pause import Activity
from tests.support.cluster import pod_budget
from tests.support.fleets import Fleet, budget, running
from tests.support.pods import wire_bytes, wire_pod
from tests.support.problems import apart, app, near, node, pod, pool, problem, shape, spread
from tests.support.question import solve

HOST = names.HOSTNAME_LABEL
ZONE = names.ZONE_LABEL
LABELS = {"app": "web", **{f"label-{number}": "x" for number in range(1000)}}
TERM = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}


def unjudged(namespace: str = "default", where: str = "n", /, **more: Any) -> Pod:
    """With the label app=web, which is not kept."""
    own = {"metadata__labels": LABELS, "metadata__namespace": namespace, "spec__nodeName": where}
    return decode_pod(wire_bytes(wire_pod(7, **(own | more))))


def test_what_is_kept_of_it() -> None:
    stays = {"key": "karpenter.sh/disrupted", "operator": "Exists"}
    one = unjudged(spec__tolerations=[{"key": "a", "operator": "Exists"}, stays])
    assert one.labels == one.shape.labels == {}
    assert (one.owner is not None, one.node_name, one.name) == (True, "n", "web-5d4f8c7b9-00007")
    assert dict(one.shape.requests) == {"cpu": 250, "memory": 512 * 2**20, "pods": 1}
    assert {toleration.key for toleration in one.shape.tolerations} == {"a", "karpenter.sh/disrupted"}
    assert "exceed the limit of 16 KiB" in one.shape.error


def test_a_change_of_labels_that_are_not_kept_is_no_other_class() -> None:
    """The tenant may change them as often as he likes: whatever was planned for the pod stays."""
    one = unjudged()
    assert unjudged(metadata__labels=LABELS | {"app": "db"}, metadata__uid="other").shape is one.shape


def test_a_pod_with_as_many_labels_as_people_write_is_judged() -> None:
    labels = {f"example.com/label-{number}": f"value-{number}" for number in range(30)}
    one = decode_pod(wire_bytes(wire_pod(metadata__labels=labels)))
    assert (one.shape.error, one.labels) == ("", labels)


def test_a_pod_that_lists_all_instance_types_is_judged() -> None:
    types = [f"c{number}gn.metal-24xl"[:13] for number in range(1000)]
    terms = [{"matchExpressions": [{"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": types}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert decode_pod(wire_bytes(wire_pod(spec__affinity=affinity))).shape.error == ""


@pytest.mark.parametrize(
    ("kept_first", "many"),
    [
        ({names.DO_NOT_DISRUPT: "true"}, {f"dovetail.dev/a{number}": "x" for number in range(1000)}),
        ({names.POD_DELETION_COST: "7"}, {"karpenter.sh/a": "x" * 100_000}),
        ({names.DISRUPTION_COST: "7"}, {f"karpenter.sh/a{number}": "x" for number in range(1000)}),
    ],
    ids=["many", "long", "cost"],
)
def test_annotations_that_decide_are_kept_before_others(kept_first: dict[str, str], many: dict[str, str]) -> None:
    one = decode_pod(wire_bytes(wire_pod(metadata__annotations=many | kept_first)))
    assert kept_first.items() <= one.annotations.items()
    assert len(one.annotations) < 20


NEAR = shape(labels={"app": "db"}, affinity=near(HOST, app("web")))
AWAY = shape(labels={"app": "db"}, affinity=apart(HOST, app("web")))
PLACES: dict[str, tuple[Pod, Pod, bool]] = {
    "a pod that minds nobody goes to its node": (unjudged(), pod("p"), True),
    "one with anti-affinity does not": (unjudged(), pod("p", AWAY), False),
    "one with anti-affinity in another namespace does": (unjudged("other"), pod("p", AWAY), True),
    "one with anti-affinity to nothing does": (unjudged(), pod("p", shape(affinity=apart(HOST, None))), True),
    "one that must be near such a pod does not: it may be another": (unjudged(), pod("p", NEAR), False),
    "nobody goes where it may have to be alone": (unjudged(spec__affinity=APART), pod("p"), False),
    "nor from another namespace": (unjudged("other", spec__affinity=APART), pod("p"), False),
}


@pytest.mark.parametrize("name", PLACES)
def test_who_is_planned_onto_its_node(name: str) -> None:
    there, wanting, goes = PLACES[name]
    asked = problem([wanting], bins=[node("n", running=[there])])
    assert (solve(asked).existing == {"n": (wanting,)}) is goes
    emptied = prepare(problem([], bins=[node("n")]))
    later = emptied.updated(Changes(bins={"n": node("n", running=[there])}))
    assert (later.solve([wanting]).existing == {"n": (wanting,)}) is goes, "as if it came later"


def test_it_counts_for_a_spread() -> None:
    even = shape(labels={"app": "web"}, topology_spread_constraints=(spread(HOST, app("web")),))
    nodes = [node("m"), node("n", running=[unjudged(), unjudged(metadata__uid="2")])]
    assert solve(problem([pod("p", even)], bins=nodes)).existing.keys() == {"m"}


def test_it_gets_no_new_node_and_the_reason_is_told() -> None:
    result = solve(problem([unjudged("default", ""), pod("other")], pool()))
    (left,) = result.unplaced
    assert left.pod.name == "web-5d4f8c7b9-00007"
    assert "exceed the limit of 16 KiB for a pod" in str(left)
    assert [one.name for claim in result.claims for one in claim.pods] == ["other"]


def test_it_is_tied_to_pods_of_its_namespace_and_to_no_others() -> None:
    """Else a tenant could hold the drains of everybody."""
    mine, theirs, db, plain = kinds([unjudged()], [unjudged("other")], [pod("p", AWAY)], [pod("q")])
    assert any_ties(mine, db, {})
    assert any_ties(mine, plain, {})
    assert any_ties(theirs, theirs, {})
    assert not any_ties(theirs, plain, {})
    assert not any_ties(theirs, db, {})


def test_a_pod_that_must_be_near_others_of_its_namespace_may_follow_it() -> None:
    moved = {namespace: {"shape": unjudged(namespace)} for namespace in ("default", "other")}
    assert follows([pod("p", NEAR)], moved["default"])
    assert not follows([pod("p", NEAR)], moved["other"])
    assert not follows([pod("p", AWAY)], moved["default"])


def test_every_budget_of_its_namespace_may_be_its() -> None:
    budgets = (pod_budget("a"), pod_budget("b", selector={"matchLabels": {"app": "db"}}, minAvailable=1))
    none = PodDisruptionBudget(metadata=budgets[0].metadata)
    asked = PodBudgets({"default": (*budgets, none), "other": budgets[:1]})
    assert [one.metadata.name for one in asked.of(unjudged())] == ["a", "b"]
    assert [one.metadata.name for one in asked.of(unjudged("other"))] == ["a"]
    assert none.spec.selector is None != LabelSelector()


def on_a_node(there: Pod) -> Callable[[], Fleet]:
    def made() -> Fleet:
        fleet = Fleet()
        fleet.node("n", [there])
        return fleet

    return made


def test_its_node_is_not_consolidated() -> None:
    fleet = on_a_node(unjudged())()
    found = candidates(fleet.view(), Activity.CONSOLIDATION)
    assert [one.obstacle for one in found.refused] == [Obstacle.POD_UNJUDGED]
    assert "shop/web" not in str(found.refused[0])
    assert "default/web-5d4f8c7b9-00007" in str(found.refused[0])
    assert not candidates(fleet.view(), Activity.DRIFT).refused


def test_a_budget_that_allows_nothing_holds_its_node() -> None:
    fleet = on_a_node(unjudged())()
    fleet.budgets = [budget("pdb", "db", 0)]
    found = candidates(fleet.view(), Activity.DRIFT)
    assert [one.obstacle for one in found.refused] == [Obstacle.POD_BUDGET]
    fleet = on_a_node(running("w", shape(labels={"app": "web"})))()
    fleet.budgets = [budget("pdb", "db", 0)]
    assert not candidates(fleet.view(), Activity.DRIFT).refused
