"""Drifted nodes of dynamic pools: core spec 6.7, rows 94, 96-100."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSource, Volume
from provisioner.apis.pods import Pod, PodShape
from provisioner.disruption import candidates
from provisioner.disruption.candidates import Candidate
from provisioner.disruption.methods import drift, static_drift
from provisioner.disruption.simulation.simulator import Simulation, SimulationAnswer
from provisioner.scheduling.judging import Design, designed
from provisioner.scheduling.prepared import Prepared
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView, Surroundings
from tests.support.clock import NOON
from tests.support.fleets import ABC, LARGE, MEDIUM, SMALL, Fleet, budget, gist, gone, pool, running, several, told
from tests.support.problems import apart, app, instance_type, near, of_app, shape, spread

SINCE = NOON - timedelta(hours=1)
ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL


def drifted(fleet: Fleet, *some: tuple[str, Iterable[Pod]], **more: Any) -> Fleet:
    for age, (name, pods) in enumerate(some):
        fleet.node(name, pods, drifted=SINCE - timedelta(minutes=age), **more)
    return fleet


def test_row_100_a_drifted_node_gets_its_replacement_first() -> None:
    fleet = drifted(Fleet(), ("a", several(2, "w")))
    (one,) = drift.propose(fleet.view()).proposals
    assert (one.reason, one.method) == ("Drifted", "drift")
    assert gist(one) == (("a",), ["small"], {})
    assert {pod.name for pod in one.replacements[0].pods} == {"w-0", "w-1"}


def test_a_node_that_has_not_drifted_stays() -> None:
    fleet = Fleet()
    fleet.node("a", several(2, "w"))
    assert drift.propose(fleet.view()).proposals == ()


def test_row_100_empty_ones_go_first_then_the_longest_drifted() -> None:
    fleet = drifted(Fleet(), ("young", several(1, "y")), ("old", several(1, "o")), ("void", ()))
    assert gone(drift.propose(fleet.view())) == [("void",), ("old",), ("young",)]


def test_the_whole_budget_is_spent_in_one_pass() -> None:
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "2"}]})])
    drifted(fleet, *((f"n{number}", several(1, f"p{number}")) for number in range(5)))
    answer = drift.propose(fleet.view())
    assert gone(answer) == [("n4",), ("n3",)]
    assert answer.recheck_at == NOON + timedelta(seconds=10)


def test_a_whole_budget_of_300_nodes_is_spent_in_one_pass() -> None:
    fleet = drifted(Fleet(), *((f"n{number}", several(1, f"p{number}")) for number in range(300)))
    answer = drift.propose(fleet.view())
    assert (len(answer.proposals), answer.unreached) == (300, frozenset())


def test_a_node_that_is_away_already_takes_no_more_of_the_budget() -> None:
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "3"}]})])
    drifted(fleet, *((f"n{number}", several(1, f"p{number}")) for number in range(4)))
    fleet.node("n4", several(1, "p4"), drifted=SINCE - timedelta(minutes=9), ready=False)
    assert gone(drift.propose(fleet.view())) == [("n4",), ("n3",), ("n2",)]


def test_row_89_a_budget_of_none_is_said_of_the_pool() -> None:
    fleet = drifted(Fleet([pool(disruption={"budgets": [{"nodes": "0", "reasons": ["Drifted"]}]})]), ("a", ()))
    answer = drift.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer) == {"": "No allowed disruptions for disruption reason Drifted due to blocking budget"}


@pytest.mark.parametrize(("most", "want"), [(0, 4), (3, 3), (1, 1)])
def test_nodes_of_all_pools_together_keep_the_limit_over_them(most: int, want: int) -> None:
    fleet = Fleet([pool("general"), pool("other")])
    for number, of in enumerate(("general", "other") * 2):
        drifted(fleet, (f"n{number}", several(1, f"p{number}")), of=of)
    assert len(drift.propose(fleet.view(most=most)).proposals) == want


def test_pods_do_not_move_to_another_drifted_node() -> None:
    fleet = drifted(Fleet(), ("a", several(1, "w")), ("b", several(1, "x")))
    found = drift.propose(fleet.view()).proposals
    assert [gist(one) for one in found] == [(("b",), ["small"], {}), (("a",), ["small"], {})]


def test_new_nodes_of_static_pools_are_hosts_already() -> None:
    """Two of four pods may join the other two as long as there is no other host; in the same pass, a static NodePool gets one."""
    over_hosts = of_app("web", cpu="250m", topology_spread_constraints=(spread(HOST, app("web"), skew=2),))
    fleet = Fleet([pool(), pool("static", replicas=1)])
    fleet.node("kept", [running(f"k{number}", over_hosts) for number in range(2)])
    drifted(fleet, ("a", [running(f"w{number}", over_hosts) for number in range(2)]))
    drifted(fleet, ("s", ()), of="static")
    view = fleet.view(under_way=["s"])
    (new,) = static_drift.propose(fleet.view()).proposals
    assert [gist(one) for one in drift.propose(view).proposals] == [(("a",), [], {"kept": 2})]
    (one,) = drift.propose(replace(view, begun=(new,))).proposals
    assert gist(one) == (("a",), ["small"], {})


HASHED = {names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: "v3"}


def in_waves(reason: str = "NodePoolDrifted", *, since: timedelta, pool_hash: str = "2") -> Fleet:
    """Node `a` was found drifted a moment ago; `b` was made from the same template, and nothing is said of it."""
    general = pool()
    metadata = {"annotations": {**HASHED, names.NODEPOOL_HASH: pool_hash}}
    fleet = Fleet([msgspec.structs.replace(general, metadata=msgspec.structs.replace(general.metadata, **metadata))])
    found = {
        "type": names.DRIFTED,
        "status": "True",
        "reason": reason,
        "lastTransitionTime": (NOON - since).isoformat(),
    }
    fleet.node("a", several(3, "w"), annotations=HASHED, conditions=[found])
    fleet.node("b", several(2, "x"), annotations=HASHED)
    return fleet


def test_nodes_that_drift_together_begin_together() -> None:
    """Else a pod of the first would go to the second, which takes pods until it is found drifted too, and be evicted twice."""
    answer = drift.propose(in_waves(since=timedelta(seconds=1)).view())
    assert (answer.proposals, answer.recheck_at) == ((), NOON + timedelta(seconds=2))
    late = drift.propose(in_waves(since=drift.WAVE).view())
    assert gone(late) == [("a",)], "nobody waits for a verdict that does not come"


def test_where_everybody_is_judged_nobody_waits() -> None:
    answer = drift.propose(in_waves(since=timedelta(seconds=1), pool_hash="1").view())
    assert gone(answer) == [("a",)]


@pytest.mark.parametrize(("seconds", "begins"), [(0, False), (1, False), (2, True)])
def test_verdicts_that_no_object_foretells_are_waited_for_until_they_cease(seconds: int, begins: bool) -> None:
    fleet = in_waves("NodeClassDrifted", since=timedelta(seconds=seconds), pool_hash="1")
    assert bool(drift.propose(fleet.view()).proposals) is begins


def test_pods_move_to_a_drifted_node_where_the_limits_leave_nothing_else() -> None:
    """As where somebody lowered the limit: with one node gone there are still as many as it admits."""
    fleet = drifted(Fleet([pool(limits={"nodes": "1"})]), ("a", several(1, "w")), ("b", several(1, "x")))
    found = drift.propose(fleet.view()).proposals
    assert [gist(one) for one in found] == [(("b",), [], {"a": 1})]


def test_the_room_of_others_is_used_once() -> None:
    """Two nodes of two pods each, and room for two: only one of them goes without a new node."""
    fleet = drifted(Fleet(), ("a", several(2, "w")), ("b", several(2, "x")))
    fleet.node("c", several(2, "y"))
    found = drift.propose(fleet.view()).proposals
    assert [gist(one) for one in found] == [(("b",), [], {"c": 2}), (("a",), ["small"], {})]


# three nodes of 4 CPUs that cost 0.2 USD per hour each: the limits, what the pool may cost, how many go
LIMITS = {
    "a pool at its limit of nodes": ({"nodes": "3"}, "", 3),
    "at its limit of CPUs": ({"cpu": "12"}, "", 3),
    "at its limit of money": ({}, "0.6", 3),
    "near it": ({"cpu": "15"}, "", 3),
    "far from it": ({"cpu": "40"}, "", 3),
    "a node above it": ({"nodes": "2"}, "", 0),
    "a CPU above it": ({"cpu": "11"}, "", 0),
    "a cent above what it may cost": ({}, "0.59", 0),
}


@pytest.mark.parametrize(("limits", "usd", "going"), LIMITS.values(), ids=LIMITS)
def test_a_node_that_goes_makes_room_for_its_replacement(limits: dict[str, str], usd: str, going: int) -> None:
    """From the moment its command is written it counts no more; whatever the replacements become, together they keep the limits."""
    own = pool(limits=limits)
    if usd:
        own.metadata.annotations[names.MAX_USD_PER_HOUR] = usd
    fleet = drifted(Fleet([own]), *((f"n{n}", several(4, f"p{n}")) for n in range(3)))
    answer = drift.propose(fleet.view())
    assert len(answer.proposals) == going
    assert all("limit on" in text for text in told(answer).values())
    assert len(told(answer)) == 3 - going
    cpus = {"small": 2, "medium": 4, "large": 8}
    new = [max(cpus[kind] for kind in claim.instance_types) for one in answer.proposals for claim in one.replacements]
    assert 4 * (3 - going) + sum(new) <= int(limits.get("cpu", "40")) or not going


def test_pending_pods_keep_the_room_that_they_will_take() -> None:
    fleet = drifted(Fleet([pool(limits={"nodes": "1"})]), ("a", several(2, "w")), kind=SMALL)
    fleet.node("c", several(2, "y"))
    fleet.pending = [running(f"new-{n}", phase="Pending", scheduled=False, unschedulable=True) for n in range(2)]
    answer = drift.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer)["a"].startswith("not all pods would schedule, default/w-")


def with_volume(key: str, value: str) -> Fleet:
    """A drifted node in zone b with a pod whose volume demands `value` of a node's label `key`; zone a has room."""
    claim = {
        "metadata": {"name": "d", "namespace": "default", "annotations": {names.BIND_COMPLETED: "yes"}},
        "spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]},
        "status": {"phase": "Bound"},
    }
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    volume = {
        "metadata": {"name": "v"},
        "spec": {
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }
    source = PersistentVolumeClaimSource(claim_name="d")
    db = running("db", shape(volumes=(Volume(name="d", persistent_volume_claim=source),)))
    fleet = Fleet()
    fleet.around = Surroundings(
        claims={"default/d": msgspec.convert(claim, PersistentVolumeClaim)},
        volumes={"v": msgspec.convert(volume, PersistentVolume)},
    )
    fleet.node("n", [db], zone="b", drifted=SINCE)
    fleet.node("other", several(1, "o"), zone="a")
    return fleet


@pytest.mark.parametrize("key", [names.ZONE_LABEL, "topology.ebs.csi.aws.com/zone"])
def test_a_pod_moves_within_the_zone_of_its_volume(key: str) -> None:
    (one,) = drift.propose(with_volume(key, "b").view()).proposals
    assert [claim.planned_zone for claim in one.replacements] == ["b"]
    assert [claim.requirements.requirement(names.ZONE_LABEL).single_value for claim in one.replacements] == ["b"]


@pytest.mark.parametrize(("key", "value"), [(names.HOSTNAME_LABEL, "node-n"), (names.ZONE_LABEL, "gone")])
def test_a_pod_whose_volume_is_nowhere_else_keeps_its_node(key: str, value: str) -> None:
    answer = drift.propose(with_volume(key, value).view())
    assert answer.proposals == ()
    assert "the pod's volumes are not accessible" in told(answer)["n"]


def test_a_pod_that_nothing_can_hold_keeps_its_node_and_says_why() -> None:
    fleet = drifted(Fleet(), ("a", several(1, "w", shape(selector={"gpu": "yes"}))), labels={"gpu": "yes"})
    answer = drift.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer)["a"].startswith("not all pods would schedule, default/w-0 => ")


def test_one_that_cannot_be_replaced_keeps_nobody_back() -> None:
    """Karpenter begins every pass with the same node."""
    fleet = drifted(Fleet(), ("new", several(1, "w")))
    drifted(fleet, ("stuck", several(1, "s", shape(selector={"gpu": "yes"}))), labels={"gpu": "yes"})
    assert gone(drift.propose(fleet.view())) == [("new",)]


def test_row_93_a_blocking_budget_of_pods_is_said() -> None:
    fleet = drifted(Fleet(), ("a", several(1, "w", of_app("web"))))
    fleet.budgets = [budget("pdb", "web", 0)]
    answer = drift.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer) == {"a": "Pdb prevents pod evictions (PodDisruptionBudget=default/pdb)"}


def test_row_94_a_grace_period_overrides_it() -> None:
    fleet = drifted(Fleet(), ("a", several(1, "w", of_app("web"))), claim_spec={"terminationGracePeriod": "1h"})
    fleet.budgets = [budget("pdb", "web", 0)]
    assert gone(drift.propose(fleet.view())) == [("a",)]


def test_static_pools_are_not_its_business() -> None:
    fleet = drifted(Fleet([pool(replicas=1)]), ("a", several(1, "w")))
    assert drift.propose(fleet.view()).proposals == ()


def test_nodes_that_are_not_initialized_take_no_pod() -> None:
    fleet = drifted(Fleet(), ("a", several(1, "w")))
    fleet.node("coming", initialized=False)
    (one,) = drift.propose(fleet.view()).proposals
    assert gist(one) == (("a",), ["small"], {})


def test_anti_affinity_holds_between_the_replacements_of_one_pass() -> None:
    """300 pods apart by hostname in the issue's figure; here 30."""
    alone = of_app("db", cpu="1500m", affinity=apart(HOST, app("db")))
    fleet = drifted(Fleet(), *((f"n{number:02d}", several(1, f"p{number}", alone)) for number in range(30)))
    found = drift.propose(fleet.view()).proposals
    assert len(found) == 30
    assert all(gist(one)[1:] == (["small"], {}) for one in found)


# --- spread while a node drains (issue 11, part 5) ---


def web(key: str, **more: Any) -> PodShape:
    return of_app("web", cpu="500m", memory="512Mi", topology_spread_constraints=(spread(key, app("web"), **more),))


def three(of: PodShape, *, zones: str = "abc", drift: bool = True, allowed: int | None = 1) -> Fleet:
    """12 pods on three nodes, each in a zone of its own, under a PodDisruptionBudget of maxUnavailable 1."""
    fleet = Fleet(types=(SMALL, MEDIUM, LARGE))
    for name, zone in zip("xyz", zones, strict=True):
        pods = several(4, f"w{name}", of)
        fleet.node(name, pods, kind=LARGE, zone=zone, drifted=SINCE if drift else None)
    fleet.budgets = [budget("pdb", "web", allowed, maxUnavailable=1)] if allowed is not None else []
    return fleet


def test_drift_of_three_nodes_spread_over_hosts_does_not_wedge() -> None:
    """A node that drains is no host to spread over, so each takes one new node."""
    found = drift.propose(three(web(HOST)).view()).proposals
    assert [one.candidates for one in found] == [("x",), ("y",), ("z",)]
    assert [[len(claim.pods) for claim in one.replacements] for one in found] == [[4]] * 3


@pytest.mark.parametrize("counts", [(4, 4, 4), (6, 3, 3), (8, 2, 2)], ids=str)
def test_drift_of_a_zone_that_has_too_many_pods_begins_with_those_that_go_elsewhere(
    counts: tuple[int, int, int],
) -> None:
    """kube-scheduler leaves a spread uneven where one zone's node was there first; the drain evens it out, one eviction after another."""
    fleet = Fleet(types=(SMALL, MEDIUM, LARGE))
    fleet.budgets = [budget("pdb", "web", 1, maxUnavailable=1)]
    for name, count in zip("abc", counts, strict=True):
        pods = several(count, f"w{name}", web(ZONE))
        fleet.node(name, pods, kind=LARGE, zone=name, drifted=SINCE if name == "a" else None)
    (one,) = drift.propose(fleet.view()).proposals
    assert one.candidates == ("a",)
    assert [len(claim.pods) for claim in one.replacements] == [4]


def crowded(*, price: float) -> Fleet:
    """A drifted node of four pods for $0.40, and nothing to be had but nodes for one of them."""
    lone = instance_type("lone", "1", "2Gi", price, zones=ABC, capacity_types=("on-demand",))
    wants = {"key": "provider.example/cpu", "operator": "In", "values": ["1"]}
    fleet = Fleet([pool(requirements=[wants])], types=(lone, LARGE))
    fleet.node("x", several(4, "w", of_app("web", cpu="600m")), kind=LARGE, drifted=SINCE)
    return fleet


def test_a_node_that_only_several_can_replace_goes_when_its_pool_is_at_rest() -> None:
    fleet = crowded(price=0.1)
    (one,) = drift.propose(fleet.view()).proposals
    assert [len(claim.pods) for claim in one.replacements] == [1, 1, 1, 1]
    fleet.node("coming", initialized=False)
    assert told(drift.propose(fleet.view()))["x"].startswith("Replacing this node takes 4 nodes; waiting")


def test_what_replaces_a_drifted_node_may_cost_more() -> None:
    """As in Karpenter: a NodePool that was changed to dearer nodes gets them."""
    (one,) = drift.propose(crowded(price=0.4).view()).proposals
    assert [len(claim.pods) for claim in one.replacements] == [1, 1, 1, 1]


def by_rack(*, allowed: int | None) -> Fleet:
    """12 pods over three racks of a node each, of which one has drifted; new nodes are in no rack."""
    rack = "example.com/rack"
    fleet = Fleet(types=(SMALL, MEDIUM, LARGE))
    for name in "xyz":
        pods = several(4, f"w{name}", web(rack))
        fleet.node(name, pods, kind=LARGE, labels={rack: name}, drifted=SINCE if name == "x" else None)
    fleet.budgets = [budget("pdb", "web", allowed, maxUnavailable=1)] if allowed is not None else []
    return fleet


def test_drift_of_three_nodes_spread_over_zones_goes_on_within_each_zone() -> None:
    found = drift.propose(three(web(ZONE)).view()).proposals
    assert [one.candidates for one in found] == [("x",), ("y",), ("z",)]
    assert [one.replacements[0].planned_zone for one in found] == ["a", "b", "c"]


def test_who_honours_taints_does_not_count_a_draining_node() -> None:
    found = drift.propose(three(web(HOST, node_taints_policy="Honor")).view()).proposals
    assert len(found) == 3


@pytest.mark.parametrize(("allowed", "may"), [(None, True), (4, True), (3, False)])
def test_pods_that_can_all_be_evicted_at_once_find_their_places_when_the_node_is_gone(
    allowed: int | None, may: bool
) -> None:
    """Until then its rack is a domain: no other may have two more."""
    answer = drift.propose(by_rack(allowed=allowed).view())
    assert [gist(one) for one in answer.proposals] == ([(("x",), [], {"y": 2, "z": 2})] if may else [])
    if not may:
        said = told(answer)["x"]
        assert said.startswith("not all pods would schedule, default/wx-0 => 0/3 existing nodes: 1 being removed, ")
        assert "2 didn't match pod topology spread constraints (example.com/rack)" in said


def test_friends_of_one_host_under_a_budget_cannot_be_moved_one_by_one() -> None:
    """All at once they would be the first of their kind on the new node; the first alone must follow those that are still there."""
    together = of_app("db", cpu="500m", memory="512Mi", affinity=near(HOST, app("db")))
    fleet = drifted(Fleet(), ("a", several(3, "db", together)))
    fleet.budgets = [budget("pdb", "db", 1)]
    answer = drift.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer)["a"].startswith(
        'Evicting pod default/db-0 from Node "node-a" would leave its replacement without a node while the Node drains, '
        "because a draining node remains a topology domain: 0/2 existing nodes: "
    )
    fleet.budgets = []
    assert gone(drift.propose(fleet.view())) == [("a",)]


# --- what it costs, and whom it leaves alone ---


def counted(monkeypatch: pytest.MonkeyPatch, *, real: bool = True) -> list[tuple[str, ...]]:
    """The nodes of each question to a simulation from now on; unless `real`, each is answered with a refusal."""
    asked: list[tuple[str, ...]] = []
    ask = Simulation.ask

    def count(self: Simulation, some: Sequence[Candidate], **terms: Any) -> SimulationAnswer:
        asked.append(tuple(one.key for one in some))
        return ask(self, some, **terms) if real else SimulationAnswer(None, "no")

    monkeypatch.setattr(Simulation, "ask", count)
    return asked


def test_a_spent_budget_costs_no_look_at_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 drifted nodes are asked about each second for hours while their replacements come up."""
    fleet = drifted(Fleet([pool(disruption={"budgets": [{"nodes": "0"}]})]), *((f"n{n}", ()) for n in range(20)))
    fleet.pending = [running("new", phase="Pending", scheduled=False, unschedulable=True)]
    view, solved = fleet.view(), []
    monkeypatch.setattr(Prepared, "solve", lambda *_, **__: solved.append("solve"))
    monkeypatch.setattr(Prepared, "updated", lambda *_, **__: solved.append("updated"))
    answer = drift.propose(view)
    assert (answer.proposals, answer.eligible, solved) == ((), 20, [])


def test_nodes_that_have_not_drifted_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = drifted(Fleet(), ("a", several(1, "w")))
    fleet.node("b", several(1, "x"))
    looked: list[str] = []
    look = candidates.refusal

    def count(node: NodeView, *rest: Any, **more: Any) -> candidates.RefusedNode | None:
        looked.append(node.key.name)
        return look(node, *rest, **more)

    monkeypatch.setattr(candidates, "refusal", count)
    assert gone(drift.propose(fleet.view())) == [("a",)]
    assert looked == ["a"]
    assert drift.concerns(fleet.snapshot())
    fleet.nodes.pop(0)
    assert not drift.concerns(fleet.snapshot())


@pytest.mark.parametrize("real", [True, False], ids=["nodes that go", "nodes that stay"])
def test_where_time_is_up_the_next_pass_begins_with_those_that_were_not_reached(
    monkeypatch: pytest.MonkeyPatch, real: bool
) -> None:
    names_of = [f"n{number:02d}" for number in range(12)]
    fleet = drifted(Fleet())
    for name in names_of:
        fleet.node(name, several(1, name), drifted=SINCE)
    asked = counted(monkeypatch, real=real)
    turns, left = [], frozenset[str]()
    for _ in range(4):
        asked.clear()
        view = fleet.view(first=left, expired=lambda: len({name for (name,) in asked}) >= 5)
        left = drift.propose(view).unreached
        turns.append(sorted({name for (name,) in asked}))
    assert turns[:2] == [names_of[:5], names_of[5:10]]
    assert turns[2] == [*names_of[:3], *names_of[10:]]
    assert turns[3] == names_of[3:8], "a new round goes on"


def test_drifted_nodes_are_opened_once_for_pods_that_find_no_other_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each node that another drifted one takes the pods of would cost a change of all of them."""
    fleet = Fleet([pool(limits={"nodes": "1"})])
    for number in range(12):
        fleet.node(f"n{number:02d}", several(1, f"p{number}"), drifted=SINCE)
    opened: list[int] = []
    reopen = Simulation.reopened

    def count(self: Simulation, closed: Collection[str]) -> Simulation:
        opened.append(len(closed))
        return reopen(self, closed)

    monkeypatch.setattr(Simulation, "reopened", count)
    answer = drift.propose(fleet.view())
    placed = [sum(len(pods) for pods in one.placements.values()) for one in answer.proposals]
    assert len(placed) > 3
    assert placed == [1] * len(placed)
    takers = {name for one in answer.proposals for name in one.placements}
    assert not takers & {name for (name,) in gone(answer)}
    assert opened == [12]


def test_nodes_that_are_left_alone_for_now_keep_their_pods() -> None:
    """Where a pool's replacements failed its nodes stay: their pods take no room, and the node takes pods of others."""
    fleet = Fleet([pool(limits={"nodes": "2"})])
    fleet.node("a", several(1, "w"), drifted=SINCE)
    fleet.node("b", several(2, "x"))
    (one,) = drift.propose(fleet.view(spared=["b"])).proposals
    assert gist(one) == (("a",), [], {"b": 1})
    assert drift.propose(fleet.view(spared=["a"])).proposals == ()
    assert told(drift.propose(fleet.view(spared=["a"]))) == {}


@pytest.mark.parametrize("zone", ["b", "c"])
def test_a_proposal_says_whether_its_places_are_legal_only_once_the_node_is_gone(zone: str) -> None:
    """While the last node of zone c drains, kube-scheduler counts the zone as empty, so that nobody may go to the others."""
    fleet = Fleet([pool(requirements=({"key": ZONE, "operator": "In", "values": ["a", "b"]},))])
    web = of_app("web", topology_spread_constraints=(spread(ZONE, app("web")),))
    for name in ABC:
        fleet.node(name, several(1, name, web), zone=name, drifted=SINCE if name == zone else None)
    (one,) = drift.propose(fleet.view()).proposals
    assert one.late is (zone == "c")
    design, names_ = Design(designed(one.replacements), one.placements), [str(NodeKey(name)) for name in one.candidates]
    world = fleet.prepared()
    assert world.judge(design, leaving=names_).legal is not one.late
    assert world.judge(design, gone=names_).legal
