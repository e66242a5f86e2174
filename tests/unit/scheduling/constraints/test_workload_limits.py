"""`dovetail.dev/max-pods-per-workload`: no more pods of one owner on a node than its NodePool says, whoever plans them."""

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod, PodShape
from provisioner.apis.pool_limits import PoolLimitError, most_of_one
from provisioner.scheduling.judging import Design, DesignedNode, design_of
from provisioner.scheduling.prepared import changes_between, prepare
from provisioner.scheduling.result import Result
from tests.support import cluster
from tests.support.improving import improve
from tests.support.problems import (
    apart,
    app,
    instance_type,
    near,
    node,
    of_app,
    pods,
    pool,
    problem,
    shape,
    spread,
)
from tests.support.question import Problem

SMALL = shape("100m", "100Mi")


def owned(count: int, owner: str, of: PodShape = SMALL) -> tuple[Pod, ...]:
    reference = OwnerReference(
        api_version="apps/v1", kind="ReplicaSet", name=owner, uid=f"uid-{owner}", controller=True
    )
    return tuple([msgspec.structs.replace(one, owner=reference) for one in pods(count, of, owner)])


def capped(asked: Problem, **most: int) -> Problem:
    return replace(asked, most_of_one=most)


def crowds(result: Result, asked: Problem) -> list[int]:
    """By node of a NodePool, existing ones first, the most pods of one owner on it."""
    there = {one.name: one.pods for one in asked.bins}
    loads = [(*there[name], *some) for name, some in result.existing.items()]
    loads += [claim.pods for claim in result.claims]
    return [max(Counter(pod.owner.uid for pod in some if pod.owner).values(), default=0) for some in loads]


def solved(asked: Problem) -> Result:
    prepared = prepare(asked)
    result = prepared.solve(asked.pods)
    assert prepared.judge(design_of(result)).legal
    return result


def test_no_new_node_has_more_pods_of_one_owner() -> None:
    asked = capped(problem(owned(5, "a") + owned(3, "b"), pool()), default=2)
    result = solved(asked)
    assert not result.unplaced
    assert sorted(crowds(result, asked)) == [1, 2, 2]  # the owners share nodes


def test_pods_without_an_owner_and_other_node_pools_know_no_limit() -> None:
    assert len(solved(capped(problem(pods(9, SMALL), pool()), default=2)).claims) == 1
    assert len(solved(capped(problem(owned(9, "a"), pool()), other=2)).claims) == 1


def test_a_pool_that_has_no_limit_takes_the_rest_only_where_the_other_one_may_not() -> None:
    asked = capped(problem(owned(9, "a"), pool("first", weight=10, limits={"nodes": "2"}), pool("rest")), first=2)
    result = solved(asked)
    assert sorted((claim.pool, len(claim.pods)) for claim in result.claims) == [("first", 2), ("first", 2), ("rest", 5)]


def test_pods_that_run_count_and_those_that_are_deleted_do_not() -> None:
    running = owned(3, "a")
    gone = msgspec.structs.replace(running[2], deleted=datetime(2026, 1, 1, tzinfo=UTC))
    there = replace(node("n", "64", "64Gi"), pool="default", pods=(*running[:2], gone))
    new = owned(4, "a", shape("200m", "100Mi"))
    new = tuple([msgspec.structs.replace(one, uid=f"new-{one.uid}", name=f"new-{one.name}") for one in new])
    asked = capped(problem(new, pool(), bins=[there]), default=3)
    result = solved(asked)
    assert [len(some) for some in result.existing.values()] == [1]
    assert [len(claim.pods) for claim in result.claims] == [3]


def test_nodes_of_a_pool_that_makes_none_now_are_no_more_crowded() -> None:
    there = replace(node("n", "64", "64Gi"), pool="static")
    result = solved(capped(problem(owned(5, "a"), pool(), bins=[there]), static=2))
    assert [len(some) for some in result.existing.values()] == [2]
    assert [len(claim.pods) for claim in result.claims] == [3]


def test_a_pod_that_moves_makes_room_for_itself() -> None:
    running = owned(2, "a")
    bound = tuple([msgspec.structs.replace(one, node_name="n") for one in running])
    there = replace(node("n", "64", "64Gi"), pool="default", pods=bound)
    asked = capped(problem((), pool(), bins=[there]), default=2)
    result = prepare(asked).solve(bound)
    assert {name: len(some) for name, some in result.existing.items()} == {"n": 2}
    result = prepare(asked).solve(bound, gone=["n"])
    assert [len(claim.pods) for claim in result.claims] == [2]


def test_what_runs_where_is_kept_up_with() -> None:
    there = replace(node("n", "64", "64Gi"), pool="default")
    asked = capped(problem(owned(4, "b"), pool(), bins=[there]), default=2)
    prepared = prepare(asked)
    assert [len(some) for some in prepared.solve(asked.pods).existing.values()] == [2]
    full = replace(asked, bins=(replace(there, pods=owned(2, "b", shape("1", "1Gi"))),))
    changes = changes_between(asked, full)
    assert changes is not None
    new = tuple([msgspec.structs.replace(one, uid=f"new-{one.uid}") for one in asked.pods])
    assert not prepared.updated(changes).solve(new).existing
    assert changes_between(asked, capped(asked, default=3)) is None


@pytest.mark.parametrize(
    "own",
    [
        of_app("web", "100m", "100Mi", topology_spread_constraints=(spread(names.ZONE_LABEL, app("web")),)),
        of_app("web", "100m", "100Mi", topology_spread_constraints=(spread(names.HOSTNAME_LABEL, app("web"), 5),)),
        of_app("web", "100m", "100Mi", affinity=near(names.ZONE_LABEL, app("web"))),
        of_app("web", "100m", "100Mi", affinity=apart(names.HOSTNAME_LABEL, app("other"))),
    ],
    ids=["zone spread", "hostname spread", "zone affinity", "anti-affinity"],
)
def test_it_holds_beside_every_other_constraint(own: PodShape) -> None:
    asked = capped(
        problem(owned(14, "a", own) + owned(9, "b"), pool(), bins=[replace(node("n"), pool="default")]), default=3
    )
    result = solved(asked)
    assert not result.unplaced
    assert max(crowds(result, asked)) <= 3


def test_a_design_that_breaks_it_is_refused() -> None:
    some = owned(3, "a")
    prepared = prepare(capped(problem(some, pool()), default=2))
    row = prepared.solve(some).claims[0]
    one = DesignedNode("default", row.planned_type, row.planned_zone, row.planned_capacity_type, some)
    (fault,) = prepared.judge(Design((one,))).faults
    assert fault.problem == "the NodePool allows no more pods of this owner on one node"


def test_a_pod_is_told_which_nodes_are_crowded() -> None:
    there = replace(node("n", "64", "64Gi"), pool="default", pods=owned(2, "a"))
    (new,) = owned(1, "a", shape("1", "1Gi"))
    new = msgspec.structs.replace(new, uid="new")
    result = prepare(capped(problem((new,), pool(limits={"cpu": "0"}), bins=[there]), default=2)).solve((new,))
    assert "0/1 existing nodes: 1 already had the maximum number of pods of this owner" in str(
        result.unplaced[0].reasons[0]
    )


def test_owners_are_told_apart_only_where_a_pool_asks_for_it() -> None:
    some = owned(2, "a") + owned(2, "b")
    plain, asking = problem(some, pool()), capped(problem(some, pool()), default=2)
    assert len(prepare(plain).setting(some).classes) == 1
    assert len(prepare(asking).setting(some).classes) == 2


def test_the_planner_keeps_it() -> None:
    lean = instance_type("lean", "4", "8Gi", 0.5, capacity_types=("on-demand",))
    wide = instance_type("wide", "8", "64Gi", 4.0, capacity_types=("on-demand",))
    some = owned(6, "a", shape("1", "1Gi")) + owned(6, "b", shape("1", "1Gi"))
    asked = capped(problem(some, pool(types=(lean, wide))), default=2)
    prepared = prepare(asked)
    result = prepared.solve(some)
    plan = improve(prepared, some, result)
    assert not plan.refused
    assert plan.usd_per_hour <= result.usd_per_hour
    assert [one.planned_type for one in plan.result.claims] == ["lean"] * 3
    assert max(crowds(plan.result, asked)) == 2


@pytest.mark.parametrize("seed", range(12))
def test_the_planner_is_not_refused_for_it(seed: int) -> None:
    chance = random.Random(seed)
    types = tuple(
        instance_type(f"t{n}", str(chance.randint(4, 32)), f"{chance.randint(8, 128)}Gi", chance.randint(10, 400) / 100)
        for n in range(8)
    )
    some: tuple[Pod, ...] = ()
    for number in range(6):
        for size in range(chance.randint(1, 2)):  # of two sizes, as while a workload is resized
            of = shape(f"{chance.randint(1, 20) * 100}m", f"{chance.randint(1, 6)}Gi")
            made = owned(chance.randint(1, 9), f"o{number}", of)
            some += tuple(
                [msgspec.structs.replace(one, uid=f"{one.uid}-{size}", name=f"{one.name}-{size}") for one in made]
            )
    asked = capped(problem(some, pool("one", types=types), pool("two", types=types[::2])), one=chance.randint(1, 4))
    prepared = prepare(asked)
    result = prepared.solve(some)
    plan = improve(prepared, some, result, iterations=5)
    assert not plan.refused
    for claim in plan.result.claims:
        if claim.pool == "one":
            most = max(Counter(pod.owner.uid for pod in claim.pods if pod.owner).values())
            assert most <= asked.most_of_one["one"]


def annotated(text: str | None) -> NodePool:
    one = cluster.pool()
    if text is not None:
        one.metadata.annotations[names.MAX_PODS_PER_WORKLOAD] = text
    return one


@pytest.mark.parametrize(("text", "most"), [(None, None), ("1", 1), ("25", 25), ("9999", 9999)])
def test_the_annotation_is_a_number(text: str | None, most: int | None) -> None:
    assert most_of_one(annotated(text)) == most


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "10%", "10000", "٣", " 1"])
def test_anything_else_is_refused_with_its_path(text: str) -> None:
    with pytest.raises(
        PoolLimitError, match=r"metadata\.annotations\[dovetail\.dev/max-pods-per-workload\].*from 1 to 9999"
    ):
        most_of_one(annotated(text))
