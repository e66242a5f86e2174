"""Karpenter's provisioning: core spec 3.4-3.9."""

from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import Container, ContainerPort, PodSpec, ResourceRequirements
from provisioner.apis.shapes import shape_of
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import World
from provisioner.scheduling.result import Result
from provisioner.simulator.karpenter.provisioning import provision
from provisioner.values.taints import NO_SCHEDULE, Taint
from tests.support.problems import (
    LARGE,
    MEDIUM,
    SMALL,
    apart,
    app,
    instance_type,
    near,
    node,
    of_app,
    pod,
    pods,
    pool,
    problem,
    required,
    shape,
    spread,
    term,
)
from tests.support.question import Problem

ZONE = names.ZONE_LABEL


def answer(asked: Problem, **how: Any) -> Result:
    return provision(prepare(asked), asked.pods, **how)


def claims(result: Result) -> list[tuple[str, int]]:
    return [(one.planned_type, len(one.pods)) for one in result.claims]


def test_a_claim_takes_pods_as_long_as_one_type_holds_them_and_becomes_the_cheapest() -> None:
    """Eight CPUs are the most: nine pods of a CPU come to a full large node and a small one, whatever two mediums cost."""
    assert claims(answer(problem(pods(9), pool(types=(SMALL, MEDIUM, LARGE))))) == [("large", 8), ("small", 1)]


def test_pods_go_by_cpu_then_memory_whatever_their_priority() -> None:
    """The urgent small pods come last, and find no room beside the large ones."""
    urgent = pods(2, shape("1", priority=1000), "urgent")
    large = pods(2, shape("3500m"), "large")
    found = answer(problem([*urgent, *large], pool(types=(LARGE,))))
    assert [[one.name for one in claim.pods] for claim in found.claims] == [
        ["large-00000", "large-00001", "urgent-00000"],
        ["urgent-00001"],
    ]


def test_of_open_claims_the_one_with_fewest_pods_comes_first() -> None:
    """Three pods on the first claim, one on the second: the small one goes to the second, though the first has room."""
    three = pods(3, shape("2", selector={ZONE: "a"}), "three")
    alone, late = pod("alone", shape("1500m", selector={ZONE: "b"})), pod("late", shape("100m"))
    full, emptier = answer(problem([*three, alone, late], pool())).claims
    assert (len(full.pods), [one.name for one in emptier.pods]) == (3, ["alone", "late"])


def test_existing_nodes_come_first_in_their_order() -> None:
    bins = (node("tight", "1"), node("wide", "4"))
    found = answer(problem(pods(3), pool(), bins=bins))
    assert {name: len(some) for name, some in found.existing.items()} == {"tight": 1, "wide": 2}
    assert not found.claims


def test_a_node_that_is_shut_for_a_pod_does_not_take_it() -> None:
    asked = problem(pods(2), pool(types=(SMALL,)), bins=[node("near")])
    first = asked.pods[0]
    found = answer(asked, shut={first.uid: frozenset({"near"})})
    assert ([one.uid for one in found.claims[0].pods], len(found.existing["near"])) == ([first.uid], 1)


def test_leaving_nodes_take_no_pod() -> None:
    found = answer(problem(pods(1), pool(types=(SMALL,)), bins=[node("going")]), leaving={"going"})
    assert (claims(found), dict(found.existing)) == ([("small", 1)], {})


@pytest.mark.parametrize(
    ("weights", "taken"),
    [((1, 9), "light"), ((9, 1), "heavy"), ((0, 0), "light")],
    ids=["the heavier", "the other", "of equals the last by name"],
)
def test_the_pool_of_the_greatest_weight_that_takes_the_pod_makes_the_node(
    weights: tuple[int, int], taken: str
) -> None:
    """Prices do not matter."""
    heavy = pool("heavy", weight=weights[0], types=(instance_type("cheap", "2", "4Gi", 0.1),))
    light = pool("light", weight=weights[1], types=(SMALL,))
    assert [one.pool for one in answer(problem(pods(1), heavy, light)).claims] == [taken]


def test_pods_that_the_heavier_pool_does_not_take_come_to_the_next() -> None:
    closed = pool("closed", weight=50, taints=[Taint("team", NO_SCHEDULE)])
    assert [one.pool for one in answer(problem(pods(1), closed, pool("open"))).claims] == ["open"]


def test_a_claim_takes_the_most_it_could_become_from_the_limits() -> None:
    """Ten CPUs: the first claim may become a large node of eight, so the next one has two, though both are small."""
    few = pool(types=(SMALL, LARGE), limits={"cpu": "10"})
    tied = of_app("a", affinity=apart(names.HOSTNAME_LABEL, app("a")))
    found = answer(problem(pods(4, tied), few))
    assert claims(found) == [("small", 1), ("small", 1)]
    assert found.claims[0].charge.amount("cpu") == 8_000
    assert found.claims[1].instance_types == ("small",)
    assert len(found.unplaced) == 2


def test_a_limit_on_nodes_holds() -> None:
    tied = of_app("a", affinity=apart(names.HOSTNAME_LABEL, app("a")))
    found = answer(problem(pods(3, tied), pool(limits={"nodes": "1"})))
    assert (len(found.claims), len(found.unplaced)) == (1, 2)


def test_zonal_spread_takes_the_emptiest_zone_whatever_it_costs() -> None:
    dear = instance_type(
        "zonal", "2", "4Gi", offerings=(*SMALL.offerings[:1], *LARGE.offerings[2:3]), capacity_types=("on-demand",)
    )
    tied = of_app("a", topology_spread_constraints=(spread(ZONE, app("a")),))
    running = node("n", "0", labels={ZONE: "a"}, running=[pod("old", tied)])
    found = answer(problem(pods(1, tied), pool(types=(dear,)), bins=[running]))
    assert [one.planned_zone for one in found.claims] == ["b"]


def test_hostname_spread_makes_a_node_for_every_maxskew_pods() -> None:
    """A new node could always be made, so the emptiest has none, however many nodes there are."""
    tied = of_app("a", "100m", topology_spread_constraints=(spread(names.HOSTNAME_LABEL, app("a"), 2),))
    assert [count for _, count in claims(answer(problem(pods(5, tied), pool())))] == [2, 2, 1]


def test_min_domains_take_the_least_as_none() -> None:
    """In two of three zones that are wanted: no zone may hold more than maxSkew."""
    tied = of_app("a", "100m", topology_spread_constraints=(spread(ZONE, app("a"), 1, min_domains=3),))
    found = answer(problem(pods(4, tied), pool()))
    assert (sum(count for _, count in claims(found)), len(found.unplaced)) == (2, 2)


def test_affinity_follows_the_first_pod() -> None:
    tied = of_app("a", "1500m", affinity=near(ZONE, app("a")))
    found = answer(problem(pods(6, tied), pool(types=(SMALL,))))
    assert [one.requirements.requirement(ZONE).single_value for one in found.claims] == ["a"] * 6
    stranger = of_app("b", affinity=near(ZONE, app("nobody")))
    assert len(answer(problem(pods(1, stranger), pool())).unplaced) == 1


def test_anti_affinity_over_zones_blocks_every_zone_that_a_claim_may_come_to() -> None:
    """Nobody has chosen the zone of the first claim, so both are blocked, and the second pod has none: one round does not place all."""
    tied = of_app("a", affinity=apart(ZONE, app("a")))
    found = answer(problem(pods(2, tied), pool()))
    assert (len(found.claims), len(found.unplaced)) == (1, 1)


def test_anti_affinity_of_others_is_minded() -> None:
    guard = pod("guard", of_app("g", affinity=apart(names.HOSTNAME_LABEL, app("noisy"))))
    bins = [node("guarded", running=[guard]), node("free")]
    found = answer(problem(pods(2, of_app("noisy")), pool(), bins=bins))
    assert {name: len(some) for name, some in found.existing.items()} == {"free": 2}


def test_alternatives_of_an_affinity_are_tried_in_their_order() -> None:
    either = shape(affinity=required(term((ZONE, "In", ["nowhere"])), term((ZONE, "In", ["b"]))))
    assert [one.planned_zone for one in answer(problem(pods(1, either), pool())).claims] == ["b"]


def test_daemons_take_room_of_every_claim() -> None:
    found = answer(problem(pods(2), pool(types=(SMALL,)), daemons=[shape("500m")]))
    assert claims(found) == [("small", 1), ("small", 1)]


def test_host_ports_exclude_each_other() -> None:
    main = Container(
        name="main",
        resources=ResourceRequirements(requests={"cpu": "100m"}),
        ports=(ContainerPort(container_port=80, host_port=80),),
    )
    own = shape_of(PodSpec(containers=(main,)), namespace="default", labels={})
    found = answer(problem(pods(3, own), pool(), bins=[node("n")]))
    assert (len(found.claims), len(found.existing["n"])) == (2, 1)


def test_min_values_are_kept() -> None:
    """Two families must be left; with five pods only the large one is."""
    kinds = pool(types=(SMALL, LARGE), min_values={"provider.example/cpu": 2})
    assert [count for _, count in claims(answer(problem(pods(5), kinds)))] == [2, 2, 1]


def test_nothing_more_is_placed_once_nobody_asks_for_it() -> None:
    asked = problem(pods(40), pool(types=(SMALL,)))
    stopped = answer(asked, max_new=1)
    assert (len(stopped.claims), stopped.is_late) == (2, True)
    assert answer(asked, below=1.5).is_late is False  # spot costs half
    assert answer(asked, below=0.5).is_late


def test_pods_that_cannot_be_read_or_placed_say_why() -> None:
    odd = pod("odd", shape(terms=[term((ZONE, "Near", ["a"]))]))
    found = answer(problem([odd, pod("huge", shape("100"))], pool()))
    assert sorted(one.pod.name for one in found.unplaced) == ["huge", "odd"]
    assert all(str(one) for one in found.unplaced)


def test_a_pod_that_waits_for_another_is_tried_again() -> None:
    """The follower is larger, so its turn is first; the pod that it wants to be near comes later."""
    follower = pod("follower", of_app("f", "2", affinity=near(names.HOSTNAME_LABEL, app("leader"))))
    found = answer(problem([follower, pod("leader", of_app("leader", "1"))], pool(types=(LARGE,))))
    assert claims(found) == [("large", 2)]


def test_an_empty_world_leaves_all() -> None:
    found = provision(prepare(World()), pods(2))
    assert (len(found.unplaced), found.claims) == (2, ())
