"""The solver as a whole: the mix that the product is measured by, what a claim says, and how much is tried."""

import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from types import FrameType
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import Affinity, PodAffinity, WeightedPodAffinityTerm
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.kwok.catalogue import generated
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.attempts import class_plans
from provisioner.scheduling.attempts import lower_bound as bounds
from provisioner.scheduling.attempts.attempt import Attempt
from provisioner.scheduling.capacity.prepared_types import PreparedTypes
from provisioner.scheduling.constraints import vectors
from provisioner.scheduling.constraints.demands import Relations
from provisioner.scheduling.problem import SchedulingPool
from provisioner.scheduling.result import MAX_INSTANCE_TYPES, PlannedClaim
from provisioner.scheduling.topology.relations import TopologyPlan
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint, Toleration
from tests.support import checker, loads
from tests.support.problems import (
    ARM,
    LARGE,
    MEDIUM,
    SMALL,
    TYPES,
    apart,
    app,
    instance_type,
    meant,
    node,
    of_app,
    pod,
    pods,
    pool,
    problem,
    requirements,
    shape,
    spread,
    storage,
    term,
    uses,
    volume,
    volume_claim,
)
from tests.support.question import Problem, solve
from tests.support.rich import replace_running

KWOK = generated()


def at_most_16_cpu() -> SchedulingPool:
    return pool(
        "general", (names.KWOK_INSTANCE_CPU_LABEL, "Lt", ["17"]), (names.OS_LABEL, "In", ["linux"]), types=KWOK.types
    )


def basic_mix() -> Problem:
    waiting = pods(500, shape("900m", "3100Mi"), "small") + pods(500, shape("3500m", "28Gi"), "big")
    return Problem(pods=waiting, pools=(at_most_16_cpu(),), well_known=KWOK.well_known_labels)


def used(claim: PlannedClaim, resource: str) -> float:
    return sum(one.shape.requests.amount(resource) for one in claim.pods) / claim.allocatable[resource]


def test_the_basic_mix_takes_at_most_145_nodes_that_are_well_used() -> None:
    asked = basic_mix()
    result = solve(asked)
    assert not result.unplaced
    assert len(result.claims) <= 145
    assert fmean(used(claim, "cpu") for claim in result.claims) >= 0.95
    assert fmean(used(claim, "memory") for claim in result.claims) >= 0.83
    assert checker.violations(asked, result) == []


def test_the_basic_mix_in_any_order_is_the_same() -> None:
    asked = basic_mix()
    chance = random.Random(3)
    shuffled = replace(asked, pods=tuple(chance.sample(asked.pods, len(asked.pods))))
    assert solve(shuffled) == solve(asked)


def calls_of(function: Callable[..., object], run: Callable[[], object]) -> int:
    """How often `run` calls `function`."""
    count = 0

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is function.__code__

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("copies", [400, 4000])
def test_equal_pods_are_placed_together(copies: int) -> None:
    """Effort: one look at each claim, whatever the number of pods, and one that finds no claim open."""
    asked = problem(pods(copies, shape("10m", "1Mi")), pool(types=(LARGE,)))
    nodes = -(-copies // 110)
    assert len(solve(asked).claims) == nodes
    assert calls_of(vectors.most, lambda: solve(asked)) == nodes


def test_a_claim_without_room_is_not_asked_again() -> None:
    """Effort: three classes of one size open a claim each; the full one before is looked at once by all of them."""
    asked = problem(
        [one for app in "abc" for one in pods(110, shape("10m", "1Mi", labels={"app": app}), app)], pool(types=(LARGE,))
    )
    assert len(solve(asked).claims) == 3
    assert calls_of(vectors.most, lambda: solve(asked)) == 3  # three that open


def test_a_claim_says_what_was_asked_and_what_is_left() -> None:
    asked = problem(
        [pod("a", shape("1", selector={names.ZONE_LABEL: "a"})), pod("b", shape("500m"))],
        pool("default", ("team", "In", ["x", "y"]), ("tier", "Exists", []), types=(SMALL, MEDIUM, ARM)),
        daemons=[shape("100m", "64Mi"), shape("200m", "32Mi", selector={names.ARCH_LABEL: "arm64"})],
    )
    (claim,) = solve(asked).claims
    assert claim.requirements == requirements(
        (names.ZONE_LABEL, "In", ["a"]),
        ("team", "In", ["x", "y"]),
        ("tier", "Exists", []),
        (names.NODEPOOL_LABEL, "In", ["default"]),
        (names.INSTANCE_TYPE_LABEL, "In", ["small", "medium", "arm"]),
        (names.CAPACITY_TYPE_LABEL, "In", ["on-demand", "spot"]),
    )
    assert claim.labels == {"team": "x", "tier": "0"}
    assert claim.instance_types == ("small", "arm", "medium")
    assert (claim.planned_type, claim.planned_zone, claim.planned_capacity_type) == ("small", "a", "spot")
    assert claim.usd_per_hour == 0.5
    assert claim.requests == Resources.parse({"cpu": "1600m", "memory": str((2 * 1024 + 64) * 2**20), "pods": "3"})
    assert claim.template == "template of default"
    assert claim.capacity == SMALL.capacity
    assert claim.charge == Resources.of({})


def test_a_claim_names_only_capacity_types_that_can_be_had() -> None:
    spotless = instance_type("spotless", "2", "4Gi", unavailable=[("a", "spot"), ("b", "spot")])
    (claim,) = solve(problem([pod("p")], pool(types=(spotless,)))).claims
    assert claim.requirements[names.CAPACITY_TYPE_LABEL].values == {"on-demand"}
    assert claim.planned_capacity_type == "on-demand"


def test_of_equal_prices_the_first_name_zone_and_capacity_type_win() -> None:
    twins = tuple(
        instance_type(name, "2", "4Gi", zones=("b", "a"), capacity_types=("on-demand",))
        for name in ("twin-b", "twin-a")
    )
    (claim,) = solve(problem([pod("p")], pool(types=twins))).claims
    assert claim.instance_types == ("twin-a", "twin-b")
    assert (claim.planned_type, claim.planned_zone) == ("twin-a", "a")


def many_types(count: int) -> tuple[PlannedClaim, ...]:
    types = tuple(
        instance_type(f"type-{number:04d}", "4", "8Gi", 1 + number / 100, labels={"provider.example/family": family})
        for number in range(count)
        for family in (f"family-{number // 200}",)
    )
    wanted = pool(types=types, min_values={"provider.example/family": 5})
    asked = Problem(
        pods=(pod("p"),), pools=(wanted,), well_known=frozenset({"provider.example/family", "provider.example/cpu"})
    )
    result = solve(asked)
    assert checker.violations(asked, result) == []
    return result.claims


def test_no_more_than_600_types_are_named_the_cheapest() -> None:
    (claim,) = many_types(1000)
    named = claim.requirements[names.INSTANCE_TYPE_LABEL].values
    assert len(claim.instance_types) == 1000
    assert len(named) == MAX_INSTANCE_TYPES
    assert set(claim.instance_types[:590]) <= named


def test_types_that_min_values_want_are_named_though_they_are_dear() -> None:
    (claim,) = many_types(1000)
    families = {int(name.removeprefix("type-")) // 200 for name in claim.requirements[names.INSTANCE_TYPE_LABEL].values}
    assert families == {0, 1, 2, 3, 4}


def test_existing_nodes_are_used_before_new_ones_for_every_pod() -> None:
    bins = [node(f"n{number}", "2") for number in range(3)]
    result = solve(problem(pods(8, shape("1", "1Gi")), pool(types=(SMALL,)), bins=bins))
    assert {name: len(placed) for name, placed in result.existing.items()} == {"n0": 2, "n1": 2, "n2": 2}
    assert [len(claim.pods) for claim in result.claims] == [2]


def test_the_well_known_labels_of_kubernetes_need_not_be_told() -> None:
    asked = Problem(pods=(pod("p", shape(selector={names.ZONE_LABEL: "b"})),), pools=(pool(),))
    assert [claim.planned_zone for claim in solve(asked).claims] == ["b"]


def test_a_changed_tuple_of_types_is_seen() -> None:
    first = problem([pod("p")], pool(types=(SMALL,)))
    second = problem([pod("p")], pool(types=(MEDIUM,)))
    assert [solve(one).claims[0].planned_type for one in (first, second, first)] == ["small", "medium", "small"]


def test_a_limit_that_a_dear_but_small_type_loosens_is_used_up() -> None:
    """A claim that grows may get a type with less of a limited resource; who waited for that is tried again."""
    big_cpu = instance_type("big-cpu", "16", "4Gi", 1.0)
    big_memory = instance_type("big-memory", "8", "32Gi", 1.2)
    first = pod("first", shape("6", "2Gi"))  # big-cpu is planned, and the limit is used up
    waits = pod("waits", shape("5", "3Gi"))  # too much memory to join it, too large a claim for the limit
    grows = pod("grows", shape("1", "20Gi"))  # makes the claim a big-memory
    asked = problem([first, waits, grows], pool(types=(big_cpu, big_memory), limits={"cpu": "16"}))
    result = solve(asked)
    assert checker.violations(asked, result) == []
    assert [[one.name for one in claim.pods] for claim in result.claims] == [["first", "grows"], ["waits"]]


def test_a_type_that_a_loosened_limit_would_allow_again_was_not_charged_and_is_not_named() -> None:
    cheap = instance_type("cheap", "16", "4Gi", 1.0)
    dear = instance_type("dear", "8", "32Gi", 1.2)
    first, second = (
        pod("first", shape("6", "2Gi")),
        pod("second", shape("5", "3Gi")),
    )  # cheap, then dear for what is left
    grows = pod("grows", shape("1", "20Gi"))  # makes the first a dear one: the limit would now allow two cheap ones
    asked = problem([first, second, grows], pool(types=(cheap, dear), limits={"cpu": "24"}))
    result = solve(asked)
    assert [(claim.planned_type, claim.instance_types) for claim in result.claims] == [
        ("dear", ("dear",)),
        ("dear", ("dear",)),
    ]
    assert checker.violations(asked, result) == []


def worst(claims: Sequence[PlannedClaim], types: Mapping[str, InstanceType]) -> int:
    """CPU of the largest types that all these claims may become."""
    return sum(max(types[name].capacity["cpu"] for name in claim.instance_types) for claim in claims)


@pytest.mark.parametrize("count", [1, 2, 6, 7, 8])
@pytest.mark.parametrize("limit", ["64", "65", "80", "300", "1k"])
def test_whatever_types_are_launched_the_limits_of_a_pool_are_kept(count: int, limit: str) -> None:
    sizes = {f"t{cpu}": instance_type(f"t{cpu}", str(cpu), f"{4 * cpu}Gi", 0.1 * cpu) for cpu in (8, 12, 16, 32, 96)}
    one = of_app("db", "7", affinity=apart(names.HOSTNAME_LABEL, app("db")))
    asked = problem(pods(count, one), pool(types=tuple(sizes.values()), limits={"cpu": limit}))
    result = solve(asked)
    assert len(result.claims) == count
    total = Resources.parse({"cpu": limit})["cpu"]
    assert worst(result.claims, sizes) <= total
    assert checker.violations(asked, result) == []


def test_a_pool_far_from_its_limits_names_every_type() -> None:
    (claim,) = solve(problem([pod("p")], pool(types=TYPES, limits={"cpu": "10k"}))).claims
    (free,) = solve(problem([pod("p")], pool(types=TYPES))).claims
    assert claim.instance_types == free.instance_types


def test_pods_of_one_class_without_room_are_all_listed_with_the_same_reasons() -> None:
    result = solve(problem(pods(3, shape("64")), pool()))
    assert [one.pod.name for one in result.unplaced] == ["pod-00000", "pod-00001", "pod-00002"]
    assert len({id(one.reasons) for one in result.unplaced}) == 1


def test_repr_tells_the_outcome() -> None:
    result = solve(problem([*pods(2), pod("huge", shape("64"))], pool(types=TYPES), bins=[node("n1", "1")]))
    assert repr(result) == "<1 claims, 1 pods on existing nodes, 1 unplaced>"
    assert repr(result.claims[0]) == "<claim of default: 1 pods on small in a (spot), 0.5 $/h, 6 types>"
    assert result.usd_per_hour == 0.5


def test_the_age_of_equal_pods_decides_who_is_left_out() -> None:
    waiting: list[Pod] = [pod(f"p{age}", shape("2"), age=age) for age in range(5)]
    result = solve(problem(waiting, pool(types=(SMALL,), limits={"nodes": "2"})))
    assert [claim.pods[0].name for claim in result.claims] == ["p4", "p3"]
    assert [one.pod.name for one in result.unplaced] == ["p2", "p1", "p0"]


def test_a_claim_gives_the_labels_that_neither_type_nor_offering_has() -> None:
    asked = problem(
        [pod("p")],
        pool(
            "default", (names.REGION_LABEL, "In", ["moon"]), (names.ARCH_LABEL, "In", ["amd64"]), labels={"team": "x"}
        ),
    )
    (claim,) = solve(asked).claims
    assert claim.labels == {names.REGION_LABEL: "moon", "team": "x"}


# --- kinds of nodes that a spread counts, and orders of binding ---


def test_of_the_nodes_that_a_spread_may_count_or_not_the_one_is_planned_on_which_the_pod_fits() -> None:
    """A spread over nodes of zone c counts the pod there only, so its node is settled: not outside of c, where all are too small."""
    tiny = instance_type("tiny", "1", "2Gi", 0.6, zones=("a", "b", "c"))
    small = instance_type("small", "2", "4Gi", 1.0, zones=("c",))
    over = (spread(names.HOSTNAME_LABEL, app("x"), 2),)
    there = shape("2", labels={"app": "x"}, selector={names.ZONE_LABEL: "c"}, topology_spread_constraints=over)
    asked = problem([pod("there", there), pod("anywhere", shape("2", labels={"app": "x"}))], pool(types=(tiny, small)))
    result = solve(asked)
    assert not result.unplaced
    assert checker.violations(asked, result) == []


def waiting_for_each_other() -> Problem:
    """R must be there before P, as zone a is too empty; Q before R, as its spread counts R; and P before Q, as Q fills zone b."""
    zone, kind = names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL
    team = {"team": "t"}
    running = replace_running(pod("old", shape("1", labels={**team, "app": "r"})), "old")
    old = node("old", "0", labels={zone: "b", kind: "on-demand"}, running=(running,))
    known = storage(volume("v", "b"), volume_claim("c", volume="v"))
    over_zones = (spread(zone, LabelSelector(match_labels=team)),)
    p = shape("1", labels=team, priority=9, volumes=uses("c"), topology_spread_constraints=over_zones)
    over_kinds = (spread(kind, app("r"), min_domains=2, node_affinity_policy="Ignore"),)
    q = shape("1", labels=team, selector={zone: "b"}, priority=5, topology_spread_constraints=over_kinds)
    r = shape("1", labels={**team, "app": "r"}, selector={zone: "a"})
    bought = instance_type("bought", "2", "4Gi", capacity_types=("on-demand",))
    return problem([pod("p", p), pod("q", q), pod("r", r)], pool(types=(bought,)), bins=(old,), storage=known)


def test_pods_that_wait_for_each_other_are_not_all_planned() -> None:
    asked = waiting_for_each_other()
    result = solve(asked)
    assert checker.violations(asked, result) == []
    assert [one.pod.name for one in result.unplaced] == ["r"]


def test_two_of_three_pods_that_wait_for_each_other_are_planned() -> None:
    asked = waiting_for_each_other()
    for gone in ("p", "q"):
        less = replace(asked, pods=tuple(one for one in asked.pods if one.name != gone))
        result = solve(less)
        assert not result.unplaced
        assert checker.violations(less, result) == []


def test_pods_whose_volumes_are_in_zones_of_their_own_spread_over_them() -> None:
    """None of them sees the zones of the others before these come; there is an order of binding, so all are planned."""
    zones = ("a", "b", "c")
    known = storage(
        *(volume(f"v-{number}", zones[number // 4]) for number in range(12)),
        *(volume_claim(f"c-{number}", volume=f"v-{number}") for number in range(12)),
    )
    small, large = (
        instance_type(name, cpu, "16Gi", price, zones=zones) for name, cpu, price in (("s", "2", 1), ("l", "8", 4))
    )
    over = (spread(names.ZONE_LABEL, app("db")),)
    waiting = [
        pod(f"db-{number}", shape(labels={"app": "db"}, volumes=uses(f"c-{number}"), topology_spread_constraints=over))
        for number in range(12)
    ]
    asked = problem(waiting, pool(types=(small, large)), storage=known)
    result = solve(asked)
    assert not result.unplaced
    assert checker.violations(asked, result) == []


def test_what_hostname_spreads_need_on_an_empty_cluster_is_planned_in_one_attempt() -> None:
    """Effort: the first Deployments are not filled onto three nodes, and tried again once there are 30."""
    waiting = [
        one
        for name in (f"web-{number:02d}" for number in range(20))
        for one in pods(10, of_app(name, topology_spread_constraints=(spread(names.HOSTNAME_LABEL, app(name)),)), name)
    ]
    asked = problem(waiting, pool(types=(SMALL, MEDIUM, LARGE)), hostname_domains=3)
    result = solve(asked)
    assert not result.unplaced
    assert len(result.claims) == 30
    assert calls_of(Attempt.run, lambda: solve(asked)) == 1


@pytest.mark.parametrize(("plain", "tied"), [(100, 200), (50, 500), (300, 300), (200, 2_000)])
def test_pods_spread_over_hosts_share_nodes_evenly_with_plain_ones_where_a_node_for_each_is_dearer(
    plain: int, tied: int
) -> None:
    waiting = loads.plain_and_spread(plain, tied)
    pools = (loads.ec2_pool(),)
    asked = Problem(pods=waiting, pools=pools, hostname_domains=3)
    result = solve(asked)
    alone, one = (solve(replace(asked, pods=some)) for some in (waiting[:plain], waiting[-1:]))
    assert not result.unplaced
    assert result.usd_at_least is not None
    assert result.usd_per_hour < alone.usd_per_hour + tied * one.usd_per_hour
    assert result.usd_per_hour <= 1.15 * result.usd_at_least
    on_each = [sum(pod.labels.get("app") == "web" for pod in claim.pods) for claim in result.claims]
    assert max(on_each) - min(on_each) <= 1


def test_whether_pods_can_be_bound_is_asked_of_what_they_require_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hard spreads wait for each other, so an order is looked for; what each of eight wishes would count is nobody's question."""
    wishes = tuple(
        WeightedPodAffinityTerm(weight=9, pod_affinity_term=meant(names.HOSTNAME_LABEL, app(f"nobody-{n}")))
        for n in range(8)
    )
    of = shape(
        "1",
        labels={"app": "x"},
        topology_spread_constraints=(spread(names.ZONE_LABEL, app("x")), spread(names.HOSTNAME_LABEL, app("x"))),
        affinity=Affinity(pod_anti_affinity=PodAffinity(preferred=wishes)),
    )
    made: list[Relations] = []

    class Counted(TopologyPlan):
        def __init__(self, relations: Relations, *rest: Any) -> None:
            made.append(relations)
            super().__init__(relations, *rest)

    monkeypatch.setattr(class_plans, "TopologyPlan", Counted)
    big = instance_type("big", "8", "32Gi", 1.0, zones=("a", "b", "c"))
    result = solve(problem(pods(12, of), pool(types=(big,))))
    assert not result.unplaced
    tried, required = Counter(made).most_common()[-1], Counter(made).most_common()[0]
    assert (tried[1], required[1]) == (1, 2), "in the attempt, and once more for the order"
    assert len(made) == 3


def test_pods_that_existing_nodes_take_do_not_make_a_node_for_each_pod_that_is_spread_look_cheap() -> None:
    own = Taint(key="own", value="", effect="NoSchedule")
    over = spread(names.HOSTNAME_LABEL, app("web"), node_taints_policy="Honor")
    beside = shape("4", "8Gi", selector={"own": "yes"}, tolerations=(Toleration(key="own", operator="Exists"),))
    asked = problem(
        (
            *pods(300, shape("1", "1Gi"), "plain"),
            *pods(300, shape("2", "2Gi", labels={"app": "web"}, topology_spread_constraints=(over,)), "web"),
            *pods(300, beside, "beside"),
        ),
        loads.ec2_pool(),
        bins=[node(f"there-{number}", "400", "1600Gi", labels={"own": "yes"}, taints=(own,)) for number in range(4)],
        hostname_domains=3,
    )
    result = solve(asked)
    alone = solve(replace(asked, pods=asked.pods[:600]))
    assert not result.unplaced
    assert result.usd_per_hour <= alone.usd_per_hour
    assert len(result.claims) <= len(alone.claims)


def test_of_many_filters_no_more_kinds_of_nodes_are_looked_at_for_the_least_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = [shape(terms=[term((names.ZONE_LABEL, "NotIn", [f"none-{number}"]))]) for number in range(50)]
    asked = problem([pod(f"pod-{number}", of) for number, of in enumerate(own)], loads.ec2_pool())
    least = solve(asked).usd_at_least
    monkeypatch.setattr(bounds, "_MOST_NODES", 1_000)
    result = solve(asked)
    assert calls_of(PreparedTypes.kinds, lambda: result.usd_at_least) <= 10
    assert result.usd_at_least == least, "each of them may have any node"


def test_what_keeps_a_pod_from_the_pool_that_it_asks_for_is_named_before_other_pools() -> None:
    """An event holds 1,024 characters: with twenty NodePools the last ones are cut off."""
    others = [pool(f"other-{number}", labels={"team": f"t{number}"}, weight=50) for number in range(20)]
    tainted = pool("tainted", labels={"team": "mine"}, taints=(Taint("own", "NoSchedule"),), weight=50)
    mine = pool("mine", labels={"team": "mine"}, limits={"cpu": "1"})
    (left,) = solve(problem(pods(1, of_app("web", "2", selector={"team": "mine"})), *others, tainted, mine)).unplaced
    told = [str(one) for one in left.reasons]
    assert told[0].startswith('NodePool "mine": ')
    assert len(told) == 22
