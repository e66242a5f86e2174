"""Nodes of a plan that are given up before they are bought, and those that are not."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    NodeAffinity,
    PodAffinity,
    PreferredSchedulingTerm,
    WeightedPodAffinityTerm,
)
from provisioner.apis.pods import Pod
from provisioner.scheduling.improvement import mending
from provisioner.scheduling.improvement.granted import granted
from provisioner.scheduling.improvement.mending import mended
from provisioner.scheduling.judging import Design, DesignedNode, design_of
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import Bin, Packing, SchedulingPool
from provisioner.scheduling.result import PlannedClaim, Result
from tests.support import problems
from tests.support.problems import app, meant, node, of_app, pod, pool, problem, spread, term

instance_type = functools.partial(problems.instance_type, zones=("a", "b", "c"))
TYPES = (instance_type("two", "2", "8Gi", 0.2), instance_type("four", "4", "16Gi", 0.4))
ON_DEMAND = (names.CAPACITY_TYPE_LABEL, "In", ("on-demand",))
WISHES_ON_DEMAND = {
    "affinity": Affinity(
        node_affinity=NodeAffinity(preferred=(PreferredSchedulingTerm(weight=9, preference=term(ON_DEMAND)),))
    )
}
WISHES_APART = {
    "affinity": Affinity(
        pod_anti_affinity=PodAffinity(
            preferred=(WeightedPodAffinityTerm(weight=9, pod_affinity_term=meant(names.ZONE_LABEL, app("web"))),)
        )
    )
}
SOFTLY = {"topology_spread_constraints": (spread(names.ZONE_LABEL, app("web"), when_unsatisfiable="ScheduleAnyway"),)}


@dataclass
class Case:
    """Nodes as somebody planned them: (NodePool, type, zone, capacity type, CPUs of its pods), and those that are left."""

    nodes: tuple[tuple[str, str, str, str, tuple[str, ...]], ...]
    want: tuple[str, ...]
    pools: tuple[SchedulingPool, ...] = (pool("general", types=TYPES),)
    more: dict[str, Any] = field(default_factory=dict)
    bins: tuple[Bin, ...] = ()


IN_B = {names.ZONE_LABEL: "b"}
WIDE = instance_type("wide", "4", "8Gi", 0.3)


def spot(kind: str, *cpus: str, zone: str = "a", of: str = "general") -> tuple[str, str, str, str, tuple[str, ...]]:
    return of, kind, zone, "spot", cpus


def on_demand(kind: str, *cpus: str, of: str = "general") -> tuple[str, str, str, str, tuple[str, ...]]:
    return of, kind, "a", "on-demand", cpus


CASES = {
    "a pod that fits beside others goes there": Case((spot("four", "2500m"), spot("two", "1")), ("four/spot",)),
    "a node that is there was asked before": Case(
        (spot("two", "1500m"), spot("two", "1500m")), ("four/spot",), bins=(node("n", "1600m", "8Gi", labels=IN_B),)
    ),
    "two become one that costs less": Case(
        (spot("two", "1800m"), spot("two", "1800m")), ("wide/spot",), (pool("general", types=(*TYPES, WIDE)),)
    ),
    "a wish that was granted is kept": Case(
        (spot("four", "2500m"), on_demand("two", "1")), ("four/on-demand",), more=WISHES_ON_DEMAND
    ),
    "a wish about nodes is kept by pods that are not spread as they wish": Case(
        (spot("four", "2500m", zone="b"), on_demand("two", "1"), on_demand("two", "1"), on_demand("two", "1")),
        ("four/spot", "four/on-demand"),
        more=WISHES_ON_DEMAND | SOFTLY,
    ),
    "a spread stays as even as it was": Case(
        (spot("two", "1"), spot("two", "1", zone="b"), spot("two", "1", zone="c")), ("two/spot",) * 3, more=SOFTLY
    ),
    "a spread allows what leaves it as even": Case(
        (spot("two", "1"), spot("two", "1", zone="b"), spot("two", "1", zone="c"), spot("two", "1")),
        ("two/spot",) * 3,
        more=SOFTLY,
    ),
    "nothing comes to a NodePool of less weight": Case(
        (spot("four", "3500m", of="heavy"), spot("two", "1", of="heavy")),
        ("four/spot", "two/spot"),
        (pool("heavy", types=TYPES, weight=9), pool("light", types=(instance_type("cheap", "2", "8Gi", 0.01),))),
    ),
    "a limit is kept": Case(
        (spot("two", "1800m"), spot("two", "1800m")),
        ("four/spot",),
        (pool("general", types=(*TYPES, instance_type("eight", "8", "8Gi", 0.1)), limits={"cpu": "4"}),),
    ),
    "a NodePool that is packed greedily keeps its nodes": Case(
        (spot("two", "500m"), spot("two", "1")),
        ("two/spot", "two/spot"),
        (replace(pool("general", types=TYPES), packing=Packing.GREEDY),),
    ),
    "of more pods than are partitioned a node goes, too": Case(
        (spot("two", *[f"{n}0m" for n in range(1, 6)]), spot("two", *[f"{n}0m" for n in range(6, 11)])), ("two/spot",)
    ),
}


def planned(case: Case) -> tuple[Prepared, Result]:
    """The nodes as a plan."""
    nodes: list[DesignedNode] = []
    all_pods: list[Pod] = []
    for number, (of, kind, zone, capacity_type, cpus) in enumerate(case.nodes):
        mine = tuple(pod(f"p{number}-{n}", of_app("web", cpu, "100Mi", **case.more)) for n, cpu in enumerate(cpus))
        all_pods += mine
        nodes.append(DesignedNode(of, kind, zone, capacity_type, mine))
    prepared = prepare(problem(all_pods, *case.pools, bins=case.bins))
    verdict, claims = prepared.settle(Design(tuple(nodes)))
    assert verdict.legal, verdict.faults
    return prepared, Result(claims, {}, ())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_left_of_a_plan(case: Case) -> None:
    prepared, result = planned(case)
    found = mended(prepared, result)
    assert sorted(f"{one.planned_type}/{one.planned_capacity_type}" for one in found.claims) == sorted(case.want)
    assert sorted(one.uid for one in found.placed) == sorted(one.uid for one in result.placed)
    assert prepared.judge(design_of(found)).legal
    assert found.usd_per_hour <= result.usd_per_hour


def test_nothing_is_given_up_once_time_is_up() -> None:
    prepared, result = planned(CASES["of more pods than are partitioned a node goes, too"])
    assert mended(prepared, result, expired=lambda: True) is result


def test_pairs_of_claims_are_looked_at_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the clock between pairs that are not tried, and a thousand claims are half a million pairs."""
    _, result = planned(CASES["of more pods than are partitioned a node goes, too"])
    looked = 0

    def never(_pods: Iterable[Pod]) -> bool:
        nonlocal looked
        looked += 1
        return False

    monkeypatch.setattr(mending, "split_little", never)
    assert len(list(mending._choices(result.claims * 200))) == 400, "each by itself"
    assert looked == mending._MOST_PAIRS < 400 * 399 // 2


def test_of_claims_that_are_alike_one_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself and each two: a plan of a thousand pods asked the same question thirty times."""
    full = spot("two", "900m", "900m")
    prepared, result = planned(Case((full,) * 12, (), (pool("general", types=TYPES[:1]),)))
    asked: list[int] = []
    without = mending._Mending._without

    def counted(self: Any, world: Prepared, some: Sequence[PlannedClaim], *rest: Any) -> Result | None:
        asked.append(len(some))
        return without(self, world, some, *rest)

    monkeypatch.setattr(mending._Mending, "_without", counted)
    assert mended(prepared, result) is result
    assert asked == [1, 2]


def test_a_wish_that_none_of_the_pods_has_ties_them_to_no_zone() -> None:
    """They need not be counted for it, so whoever looks for cheaper nodes may ask for them anywhere."""
    together = (spot("two", "800m", "800m"), spot("two", "800m", "800m", zone="b"))
    prepared, result = planned(Case(together, (), more=WISHES_APART))
    grants = granted(prepared, prepared.setting(result.placed), result)
    assert grants is not None
    assert not any(grants.counted(one) for one in result.placed)
