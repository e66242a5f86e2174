"""What no move for money gives up: wishes that pods have where they run, and the weights of NodePools."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import PodShape
from provisioner.apis.shapes import unreadable_shape
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.candidates import Candidate, CandidateTypes, candidates
from provisioner.disruption.methods import consolidation
from provisioner.disruption.replacement import NO_CHEAPER_NODE
from provisioner.disruption.simulation import wishes as wishes_of
from provisioner.disruption.simulation.simulator import Simulation
from provisioner.scheduling.problem import PreferencePolicy
from provisioner.scheduling.result import Result
from provisioner.scheduling.world import Policies
from provisioner.state.pause import Activity
from provisioner.values.resources import EMPTY
from provisioner.values.taints import Taint
from tests.support.clock import NOON
from tests.support.fleets import ABC, LARGE, MEDIUM, SMALL, Fleet, gist, gone, pool, running, several, told
from tests.support.problems import instance_type, shape, spread, term, uses
from tests.support.work import Lines

ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
SOFT = Taint(key="example.com/reserved", value="", effect="PreferNoSchedule")
CHEAP = instance_type("cheap", "2", "4Gi", 0.05, arch="arm64", zones=ABC, capacity_types=("on-demand",))
ARCH = ({"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]},)
WEB = LabelSelector(match_labels={"app": "web"})


def prefers(*wanted: tuple[str, str]) -> Affinity:
    listed = [PreferredSchedulingTerm(weight=10, preference=term((key, "In", (value,)))) for key, value in wanted]
    return Affinity(node_affinity=NodeAffinity(preferred=tuple(listed)))


def peers(key: str, name: str = "web") -> PodAffinity:
    one = PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels={"app": name}))
    return PodAffinity(preferred=(WeightedPodAffinityTerm(weight=10, pod_affinity_term=one),))


def softly(key: str, skew: int = 1) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=skew, topology_key=key, when_unsatisfiable="ScheduleAnyway", label_selector=WEB
    )


NEAR, APART = (
    {"affinity": Affinity(pod_affinity=peers(ZONE, "db"))},
    {"affinity": Affinity(pod_anti_affinity=peers(HOST))},
)


def leaving(wishes: dict[str, Any], respected: PreferencePolicy = PreferencePolicy.RESPECT) -> Fleet:
    """A small node in zone a, whose only pod fits on the larger one in zone b, beside a brother; a third one is in zone c."""
    web = shape("500m", "512Mi", labels={"app": "web"}, **wishes)
    fleet = Fleet(policies=Policies(hostname_domains=1, preferences=respected))
    fleet.node("from", [running("web-0", web)], kind=SMALL, zone="a")
    fleet.node("to", [running("web-1", web), *several(2, "other")], kind=MEDIUM, zone="b", do_not_disrupt=True)
    fleet.node("else", [running("web-2", web), *several(1, "third")], kind=SMALL, zone="c", do_not_disrupt=True)
    return fleet


def beside(fleet: Fleet) -> Fleet:
    """The same with a full node of another app in zone a."""
    full = shape("1900m", "512Mi", labels={"app": "db"})
    fleet.node("full", [running("db", full)], kind=SMALL, zone="a", do_not_disrupt=True)
    return fleet


LOST = {
    "a zone that it prefers": (
        {"affinity": prefers((ZONE, "a"))},
        "preferred node affinity (topology.kubernetes.io/zone",
    ),
    "the second thing that it prefers": (
        {"affinity": prefers((names.ARCH_LABEL, "amd64"), (ZONE, "a"))},
        "preferred node affinity (topology.kubernetes.io/zone",
    ),
    "a host of its own": (APART, "preferred pod anti-affinity on kubernetes.io/hostname"),
    "its spread over zones": (
        {"topology_spread_constraints": (softly(ZONE),)},
        "ScheduleAnyway) across topology.kubernetes.io/zone",
    ),
    "its spread over hosts": (
        {"topology_spread_constraints": (softly(HOST),)},
        "ScheduleAnyway) across kubernetes.io/hostname",
    ),
}


@pytest.mark.parametrize(("wishes", "text"), LOST.values(), ids=LOST.keys())
def test_a_pod_keeps(wishes: dict[str, Any], text: str) -> None:
    assert gone(consolidation.propose(leaving(wishes, PreferencePolicy.IGNORE).view())) == [("from",)]
    fleet = leaving(wishes)
    assert gone(consolidation.propose(fleet.view())) == []
    held = consolidation.held(fleet.view(), "from")
    assert text in held
    assert held.startswith("Moving its pods would save $0.10 per hour, but pod default/web-0 would lose its ")
    assert held.endswith("; to allow this, remove the preference or set --preference-policy=Ignore")


def test_a_pod_keeps_company() -> None:
    assert gone(consolidation.propose(leaving(NEAR).view())) == [("from",)]
    fleet = beside(leaving(NEAR))
    assert gone(consolidation.propose(fleet.view())) == []
    assert "preferred pod affinity on topology.kubernetes.io/zone" in consolidation.held(fleet.view(), "from")


NOT_LOST = {
    "for a zone where it is not": {"affinity": prefers((ZONE, "c"))},
    "for the zone where it is going": {"affinity": prefers((ZONE, "b"))},
    "for a spread over zones by a larger maxSkew": {"topology_spread_constraints": (softly(ZONE, 2),)},
}


@pytest.mark.parametrize("wishes", NOT_LOST.values(), ids=NOT_LOST.keys())
def test_a_pod_moves_that_wishes(wishes: dict[str, Any]) -> None:
    fleet = leaving(wishes)
    fleet.nodes = [replace(one, room=EMPTY) if one.key.name == "else" else one for one in fleet.nodes]
    assert gone(consolidation.propose(fleet.view())) == [("from",)]


ONE_OF_TWO = instance_type("small", "2", "4Gi", 0.068, zones=ABC, capacity_types=("on-demand",))
TWICE = instance_type("large", "5", "8Gi", 0.136, zones=ABC, capacity_types=("on-demand",))


def uneven(cpu: str, **counts: int) -> Fleet:
    """So many nodes in each zone, with a pod on each of a workload that is spread softly over zones."""
    web = shape(cpu, "512Mi", labels={"app": "web"}, topology_spread_constraints=(softly(ZONE),))
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "100%"}]})], types=(ONE_OF_TWO, TWICE))
    for zone, count in counts.items():
        for number in range(count):
            name = f"{zone}{number}"
            fleet.node(name, [running(name, web)], kind=ONE_OF_TWO, zone=zone)
    return fleet


def test_pods_that_are_uneven_already_find_the_places_that_make_them_no_more_uneven() -> None:
    """The cheapest place would make them more uneven, so it is not taken; the next one is."""
    fleet = uneven("1100m", a=4, b=6, c=6)
    fleet.nodes = [one if one.key.name[0] == "a" else replace(one, do_not_disrupt=True) for one in fleet.nodes]
    (one,) = consolidation.propose(fleet.view()).proposals
    assert sorted(one.candidates) == ["a0", "a1", "a2", "a3"]
    assert [(new.planned_type, new.planned_zone) for new in one.replacements] == [("large", "a")]


def test_places_that_make_uneven_pods_no_more_uneven_are_looked_for_where_others_make_them_so() -> None:
    """If the pod of zone a moves, there are none and four in another zone. Where that is too dear as it is, nothing else is looked for."""
    view = uneven("500m", a=1, b=3, c=3).view()
    assert view.prepared is not None
    simulation, types = Simulation(view, view.prepared), CandidateTypes(view)
    some = [one for one in candidates(view, Activity.CONSOLIDATION).eligible if one.key == "a0"]
    answers: list[Result] = []

    def dear(result: Result) -> str:
        answers.append(result)
        return "too dear"

    def more_uneven(result: Result) -> str:
        answers.append(result)
        return simulation.given_up(some, result, types)

    assert simulation.ask(some, for_money=True, pays=dear).result is None
    assert len(answers) == 1
    found = simulation.ask(some, for_money=True, pays=more_uneven).result
    assert len(answers) == 3
    assert found is not None
    assert [new.planned_zone for new in found.claims] == ["a"]


def test_a_zone_that_no_node_is_in_makes_pods_uneven() -> None:
    """New nodes may come there, so the solver counts it; what stays in zone a is no worse than it was."""
    assert sum(len(one.candidates) for one in consolidation.propose(uneven("900m", a=4).view()).proposals) >= 2


def test_uneven_pods_that_would_need_more_nodes_to_get_no_more_uneven_stay_in_their_zone() -> None:
    """The emptiest zones come first, a node in each; three pods of the fullest zone fit on one node there."""
    (one,) = consolidation.propose(uneven("1100m", a=5, b=1, c=1).view()).proposals
    assert {name[0] for name in one.candidates} == {"a"}
    assert [new.planned_zone for new in one.replacements] == ["a"]


@pytest.mark.parametrize(("respected", "zone"), [(PreferencePolicy.RESPECT, "a"), (PreferencePolicy.IGNORE, None)])
def test_a_new_node_comes_where_its_pods_get_no_more_uneven(respected: PreferencePolicy, zone: str | None) -> None:
    """One pod of each zone comes to a new node: three, none and three are no more uneven than one, one and four; none, none and six are."""
    fleet = uneven("1100m", a=1, b=1, c=4)
    fleet.policies = Policies(hostname_domains=1, preferences=respected)
    (one,) = consolidation.propose(fleet.view()).proposals
    (new,) = one.replacements
    assert new.requirements.requirement(ZONE).single_value == zone


def test_a_zone_without_pods_counts_for_their_spread() -> None:
    """Two, two and none are no more uneven than maxSkew; three, one and none are."""
    web = shape("500m", "512Mi", labels={"app": "web"}, topology_spread_constraints=(softly(ZONE, 2),))
    full = shape("1300m", "512Mi")
    fleet = Fleet([pool(limits={"cpu": "1"})])
    fleet.node("from", [running("web-0", web)], kind=SMALL, zone="b")
    fleet.node("stays", [running("web-1", web), running("x", full)], kind=SMALL, zone="b", do_not_disrupt=True)
    fleet.node("to", several(2, "web-a", web), kind=MEDIUM, zone="a", do_not_disrupt=True)
    assert gone(consolidation.propose(fleet.view())) == [("from",)]
    fleet.node("else", [running("y", full)], kind=SMALL, zone="c", room=EMPTY, do_not_disrupt=True)
    answer = consolidation.propose(fleet.view())
    assert gone(answer) == []
    assert "ScheduleAnyway) across topology.kubernetes.io/zone" in told(answer)["from"]


def test_pods_that_are_spread_over_racks_come_to_no_node_without_one() -> None:
    """Nobody counts them there."""
    rack = "example.com/rack"
    for labels, moves in (({rack: "r2"}, [("from",)]), ({}, [])):
        web = shape("500m", "512Mi", labels={"app": "web"}, topology_spread_constraints=(softly(rack),))
        fleet = Fleet()
        fleet.node("from", [running("web", web)], kind=SMALL, labels={rack: "r1"})
        fleet.node("to", several(1, "x"), kind=MEDIUM, labels=labels, do_not_disrupt=True)
        assert gone(consolidation.propose(fleet.view())) == moves


@pytest.mark.parametrize("wishes", [{}, {"affinity": prefers(("example.com/disk", "ssd"))}])
def test_a_wish_that_is_kept_changes_nothing_of_a_spread_that_must_hold(wishes: dict[str, Any]) -> None:
    """Two, two and one in zones a, b and c: one more in b is too many, also where only two nodes are as the pod prefers."""
    web = shape("500m", "512Mi", labels={"app": "web"}, topology_spread_constraints=(spread(ZONE, WEB),), **wishes)
    fleet = Fleet()
    fleet.node("from", [running("web-0", web)], kind=SMALL, labels={"example.com/disk": "ssd"})
    fleet.node("to", several(1, "x"), zone="b", labels={"example.com/disk": "ssd"}, do_not_disrupt=True)
    for name, zone, count in (("a", "a", 1), ("b", "b", 2), ("c", "c", 1)):
        fleet.node(name, several(count, name, web), kind=SMALL, zone=zone, room=EMPTY, do_not_disrupt=True)
    assert gone(consolidation.propose(fleet.view())) == []


@pytest.mark.parametrize("domains", [1, 3])
def test_nodes_of_pods_that_are_softly_spread_over_hosts_are_replaced_one_by_one(domains: int) -> None:
    """The room beside a brother costs nothing, but would be too much; a smaller node costs less than the one that goes."""
    web = shape("500m", "512Mi", labels={"app": "web"}, topology_spread_constraints=(softly(HOST),))
    fleet = Fleet(policies=Policies(hostname_domains=domains))
    for name in "abc":
        fleet.node(name, [running(name, web)], kind=LARGE)
    found = consolidation.propose(fleet.view()).proposals
    assert [gist(one) for one in found] == [((name,), ["small"], {}) for name in "abc"]


def test_a_node_without_a_taint_is_not_left_for_one_with_it() -> None:
    fleet = Fleet()
    fleet.node("from", several(1, "w"), kind=SMALL)
    fleet.node("to", several(2, "x"), taints=(SOFT,), do_not_disrupt=True)
    assert gone(consolidation.propose(fleet.view())) == []
    fleet.policies = replace(fleet.policies, preferences=PreferencePolicy.IGNORE)
    assert gone(consolidation.propose(fleet.view())) == [("from",)]


GPU = "example.com/gpu"
WHOLE, CHEAPER, PART = (
    instance_type(name, "2", "4Gi", price, zones=ABC, capacity_types=("on-demand",), more={GPU: "1"})
    for name, price in (("whole", 1.0), ("cheaper", 0.8), ("part", 0.2))
)
PART = replace(PART, partial=frozenset({GPU}))
DEVICES = {
    "a whole device is not given up for a part of one": ((WHOLE, PART), WHOLE, GPU, ""),
    "for a cheaper whole one it is": ((WHOLE, CHEAPER), WHOLE, GPU, "cheaper"),
    "a part for a part": ((replace(PART, name="dear", offerings=WHOLE.offerings), PART), None, GPU, "part"),
    "who asks for none has none to lose": ((WHOLE, PART), WHOLE, "", "part"),
}


@pytest.mark.parametrize(("types", "kind", "asks", "goal"), DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("preferences", [PreferencePolicy.RESPECT, PreferencePolicy.IGNORE])
def test_devices(
    types: tuple[InstanceType, ...], kind: InstanceType | None, asks: str, goal: str, preferences: PreferencePolicy
) -> None:
    fleet = Fleet(types=types, policies=Policies(hostname_domains=1, preferences=preferences))
    of = shape("1", "1Gi", more={asks: "1"} if asks else {})
    fleet.node("from", [running("one", of)], kind=kind or types[0])
    found = consolidation.propose(fleet.view()).proposals
    assert [gist(one) for one in found] == ([(("from",), [goal], {})] if goal else [])


UNPLANNABLE = {
    "that cannot be read": unreadable_shape("default", {"app": "web"}, "no quantity"),
    "with a volume that is not there": shape(
        "1m", labels={"app": "web"}, affinity=Affinity(pod_anti_affinity=peers(ZONE)), volumes=uses("gone")
    ),
    "with a claim that is not there, and a soft spread": shape(
        "1m", labels={"app": "web"}, topology_spread_constraints=(softly(ZONE),), volumes=uses("gone")
    ),
}


@pytest.mark.parametrize("of", UNPLANNABLE.values(), ids=UNPLANNABLE.keys())
def test_other_nodes_go_beside_that_of_a_pod(of: PodShape) -> None:
    fleet = Fleet()
    fleet.node("held", [running("odd", of)])
    fleet.node("full", several(2, "x"), do_not_disrupt=True)
    fleet.node("free", several(1, "y"), kind=SMALL)
    assert gone(consolidation.propose(fleet.view())) == [("free",)]


def wishing(pods: int) -> Fleet:
    """Each pod wishes to be apart from eight apps of its own, of which no other pod knows."""
    fleet = Fleet()
    for node in range(2):
        some = []
        for number in range(node, pods, 2):
            terms = [peers(HOST, f"app-{number}-{each}").preferred[0] for each in range(8)]
            affinity = Affinity(pod_anti_affinity=PodAffinity(preferred=tuple(terms)))
            some.append(running(f"w-{number}", shape("1m", "1Mi", labels={"app": f"w-{number}"}, affinity=affinity)))
        fleet.node(f"n{node}", some, kind=MEDIUM)
    return fleet


def test_twice_as_many_pods_with_wishes_take_at_most_two_and_a_half_times_the_work() -> None:
    counts = []
    for pods in (40, 80):
        view = wishing(pods).view()
        prepared = wishing(pods).prepared()
        bins = {one.name: one for one in prepared.world.bins}
        some = [
            Candidate(node, node.claim, pool(), node.pods, None, 0.0, 0.0) for node in view.snapshot.nodes if node.claim
        ]
        with Lines() as lines:
            assert wishes_of.kept(prepared, bins, some) == ({},)
        counts.append(lines.count)
    assert counts[1] <= 2.5 * counts[0]


def test_nothing_moves_for_money_where_wishes_are_too_many_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(gone(consolidation.propose(wishing(4).view()))) == 1
    monkeypatch.setattr(wishes_of, "_MOST_LOOKS", 2 * 8 * 2 - 1)  # of two pods, eight things each
    assert gone(consolidation.propose(wishing(4).view())) == []
    assert "too many preferences about other pods" in consolidation.held(wishing(4).view(), "n0")


def test_few_of_the_ways_to_have_wishes_are_remembered() -> None:
    one = shape(affinity=prefers(*[(f"k{number}", "v") for number in range(6)]))
    for number in range(64):
        has = tuple(bool(number >> each & 1) for each in range(6))
        found = wishes_of._narrowed(one, wishes_of._Has(has, (), (), (), ()))
        own = found.affinity.node_affinity if found.affinity is not None else None
        assert own is not None
        assert len(own.preferred) == any(has)
    kept = one.derived["kept"]
    assert isinstance(kept, dict)
    assert len(kept) <= 16


# --- weights ---


def weighted(weight: int = 50, **first: Any) -> Fleet:
    """A NodePool of amd64 with a weight, one with cheaper nodes of another architecture, and a node of the first."""
    fleet = Fleet([pool("amd", weight=weight, requirements=ARCH, **first), pool("any")], types=(SMALL, CHEAP))
    fleet.node("a", several(1, "w", shape("1500m", "1Gi")), kind=SMALL, of="amd")
    return fleet


def test_no_replacement_comes_to_a_pool_of_less_weight() -> None:
    fleet = weighted()
    answer = consolidation.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer)["a"] == NO_CHEAPER_NODE
    held = consolidation.held(fleet.view(), "a")
    assert held == (
        'Moving its pods would save $0.05 per hour, but they would leave NodePool "amd" for a new node of NodePool "any", whose weight is '
        "less than 50; to allow this, give both NodePools the same weight"
    )


def test_what_holds_nothing_is_not_told() -> None:
    fleet = Fleet()
    fleet.node("a", several(1, "w", shape("1500m", "1Gi")), kind=SMALL)
    assert consolidation.held(fleet.view(), "a") == ""
    assert consolidation.held(fleet.view(), "b") == ""


def test_of_pools_of_one_weight_the_other_one_may_be_taken() -> None:
    """The first by name in descending order, as in Karpenter."""
    (one,) = consolidation.propose(weighted(0).view()).proposals
    assert gist(one) == (("a",), ["cheap"], {})


@pytest.mark.parametrize("age", [timedelta(minutes=5), timedelta(hours=4, minutes=1), timedelta(days=1)])
def test_a_pool_with_a_weight_and_a_limit_is_not_left(age: timedelta) -> None:
    """As with Savings Plans: what the limit leaves is less than a node."""
    fleet = weighted(limits={"cpu": "2"})
    fleet.at = NOON + age
    assert consolidation.propose(fleet.view()).proposals == ()


def test_a_pool_whose_limit_is_exceeded_is_not_left() -> None:
    """Scheduling answers with the other NodePool."""
    answer = consolidation.propose(weighted(limits={"cpu": "1"}).view())
    assert answer.proposals == ()
    assert "whose weight is less than 50" in told(answer)["a"]


def test_an_existing_node_of_a_pool_of_less_weight_takes_pods() -> None:
    fleet = weighted()
    fleet.node("b", several(1, "x", shape("100m", "1Gi")), kind=CHEAP, of="any")
    fleet.nodes[0:1] = []
    fleet.node("a", several(1, "w", shape("500m", "1Gi")), kind=SMALL, of="amd")
    assert [gist(one) for one in consolidation.propose(fleet.view()).proposals] == [(("a",), [], {"b": 1})]
