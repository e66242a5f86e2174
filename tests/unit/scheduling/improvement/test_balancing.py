"""Plans on which kube-scheduler would leave pods, and nodes of the same price on which it would not."""

import functools
from dataclasses import dataclass, replace

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Affinity, PodAffinity, WeightedPodAffinityTerm
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.improvement import balancing, mending
from provisioner.scheduling.improvement.balancing import balanced, spoiled
from provisioner.scheduling.improvement.granted import Granted, granted
from provisioner.scheduling.improvement.mending import mended
from provisioner.scheduling.judging import Design, DesignedNode, design_of
from provisioner.scheduling.nomination.unaided import Running
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import Packing, SchedulingPool
from provisioner.scheduling.result import Result
from tests.support import problems
from tests.support.problems import app, meant, of_app, pods, pool, problem, spread

instance_type = functools.partial(problems.instance_type, zones=("a", "b", "c"), capacity_types=("on-demand",))
TYPES = tuple(instance_type(f"of-{cpus}", str(cpus), f"{4 * cpus}Gi", 0.1 * cpus) for cpus in (2, 4, 8, 12, 16))
PLAIN = of_app("plain", "500m", "100Mi")
BY_ZONE = of_app("zonal", "500m", "100Mi", topology_spread_constraints=(spread(names.ZONE_LABEL, app("zonal")),))
BY_HOST = of_app("even", "500m", "100Mi", topology_spread_constraints=(spread(names.HOSTNAME_LABEL, app("even")),))
WISH = WeightedPodAffinityTerm(weight=1, pod_affinity_term=meant(names.HOSTNAME_LABEL, app("wishing")))
WISHING = of_app("wishing", "500m", "100Mi", affinity=Affinity(pod_anti_affinity=PodAffinity(preferred=(WISH,))))
PINNED = of_app("pinned", "500m", "100Mi", selector={names.ZONE_LABEL: "a"})

Planned = tuple[str, str, dict[PodShape, int]]
"""Type, zone, and pods by class."""
UNEVEN: tuple[Planned, ...] = (
    ("of-16", "a", {BY_ZONE: 4, PLAIN: 24}),
    ("of-4", "b", {BY_ZONE: 4, PLAIN: 2}),
    ("of-4", "c", {BY_ZONE: 4, PLAIN: 2}),
)
FULL: tuple[Planned, ...] = (
    ("of-16", "a", {BY_ZONE: 4, PLAIN: 28}),
    *(("of-4", zone, {BY_ZONE: 4, PLAIN: 4}) for zone in "bc"),
)


@dataclass
class Case:
    """Nodes as somebody planned them, and types and zones of those that take their place; none where they stay."""

    nodes: tuple[Planned, ...]
    want: str = ""
    pools: tuple[SchedulingPool, ...] = (pool("general", types=TYPES),)


CASES = {
    "a large zone and two small ones become equal": Case(UNEVEN, "of-8/a of-8/b of-8/c"),
    "what equal nodes have no room for is on one more": Case(
        (
            ("of-16", "a", {BY_ZONE: 4, PLAIN: 26}),
            ("of-8", "b", {BY_ZONE: 4, PLAIN: 10}),
            ("of-4", "c", {BY_ZONE: 4, PLAIN: 2}),
        ),
        "of-2/a of-8/a of-8/b of-8/c",
    ),
    "nodes that leave nobody stay": Case(
        tuple(("of-8", zone, {BY_ZONE: 4, PLAIN: 8}) for zone in "abc"),
    ),
    "unequal zones without a hard spread stay": Case((("of-16", "a", {PLAIN: 28}), ("of-4", "b", {PLAIN: 6}))),
    "equal nodes that cost more are not taken": Case(
        UNEVEN, pools=(pool("general", types=tuple(one for one in TYPES if one.name in ("of-4", "of-16"))),)
    ),
    "pods that may run in one zone only keep it large": Case(
        (
            ("of-16", "a", {BY_ZONE: 4, PINNED: 24}),
            ("of-4", "b", {BY_ZONE: 4, PLAIN: 2}),
            ("of-4", "c", {BY_ZONE: 4, PLAIN: 2}),
        ),
    ),
    "with pods that prefer something nodes stay": Case(
        (("of-16", "a", {BY_ZONE: 4, PLAIN: 23, WISHING: 1}), *UNEVEN[1:])
    ),
    "a NodePool that is packed greedily keeps its nodes": Case(
        UNEVEN, pools=(replace(pool("general", types=TYPES), packing=Packing.GREEDY),)
    ),
    "a limit that equal nodes keep too": Case(
        UNEVEN, "of-8/a of-8/b of-8/c", (pool("general", types=TYPES, limits={"cpu": "24"}),)
    ),
    "hosts of unequal size": Case(
        (("of-16", "a", {BY_HOST: 4, PLAIN: 24}), *((("of-4", "a", {BY_HOST: 4, PLAIN: 2}),) * 2)),
        "of-8/a of-8/a of-8/a",
    ),
}


def planned(case: Case) -> tuple[Prepared, Result]:
    """The nodes as a plan."""
    nodes = [
        DesignedNode(
            case.pools[0].name,
            kind,
            zone,
            "on-demand",
            tuple(one for of, count in load.items() for one in pods(count, of, f"{of.labels['app']}-{number}")),
        )
        for number, (kind, zone, load) in enumerate(case.nodes)
    ]
    prepared = prepare(problem([one for each in nodes for one in each.pods], *case.pools))
    verdict, claims = prepared.settle(Design(tuple(nodes)))
    assert verdict.legal, verdict.faults
    return prepared, Result(claims, {}, ())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nodes_that_take_the_place_of_a_plan(case: Case) -> None:
    prepared, result = planned(case)
    found = balanced(prepared, result)
    if not case.want:
        assert found is result
        return
    assert " ".join(sorted(f"{one.planned_type}/{one.planned_zone}" for one in found.claims)) == case.want
    assert sorted(one.uid for one in found.placed) == sorted(one.uid for one in result.placed)
    assert prepared.judge(design_of(found)).legal
    assert found.usd_per_hour <= result.usd_per_hour + 1e-9
    assert balanced(prepared, found) is found


def test_a_plan_is_balanced_when_it_is_mended_and_mended_again_if_that_saves_more() -> None:
    prepared, result = planned(CASES["what equal nodes have no room for is on one more"])
    found = mended(prepared, result)
    assert found.usd_per_hour <= balanced(prepared, result).usd_per_hour
    assert balanced(prepared, found) is found


def test_a_plan_whose_pods_are_led_to_their_nodes_is_not_balanced() -> None:
    prepared, result = planned(Case(FULL))
    assert mended(prepared, result, steered=True) is result
    assert [one.planned_type for one in mended(prepared, result).claims] == ["of-8"] * 3


def test_more_nodes_for_a_little_less_are_bought_where_pods_are_led_to_them_alone() -> None:
    types = (TYPES[0], instance_type("of-4", "4", "16Gi", 0.415))
    nodes = tuple(("of-4", zone, {BY_ZONE: 4, PLAIN: 4}) for zone in "abcabcabc")
    prepared, result = planned(Case(nodes, pools=(pool("general", types=types),)))
    assert [one.planned_type for one in mended(prepared, result, steered=True).claims] == ["of-2"] * 18
    assert mended(prepared, result) is result


def test_what_a_plan_granted_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, result = planned(Case(FULL, pools=CASES["equal nodes that cost more are not taken"].pools))
    asked: list[Result] = []

    def counted(prepared: Prepared, setting: Setting, result: Result) -> Granted | None:
        asked.append(result)
        return granted(prepared, setting, result)

    for module in (mending, balancing):
        monkeypatch.setattr(module, "granted", counted)
    assert mended(prepared, result) is result
    assert asked == [result]


def test_where_pods_are_left_whoever_is_nominated_nodes_are_bought_on_which_fewer_are() -> None:
    """Pods of two spreads share the nodes of a zone, and none of them may be nominated: small ones take the room of large ones."""
    workloads = (("zonal-2", 20), ("zonal-1", 6), ("plain-2", 20), ("plain-700m", 6))
    batch: list[Pod] = []
    for name, count in workloads:
        by_zone = (spread(names.ZONE_LABEL, app(name)),) if "zonal" in name else ()
        batch += pods(count, of_app(name, name.partition("-")[2], "100Mi", topology_spread_constraints=by_zone))
    mingled = [msgspec.structs.replace(one, uid=f"{37 * number % 101:03}") for number, one in enumerate(batch)]
    prepared = prepare(problem(mingled, pool("general", types=TYPES)))
    result = prepared.solve(mingled)
    assert spoiled(result.claims, Running())[0]
    found = balanced(prepared, result)
    assert not spoiled(found.claims, Running())[0]
    assert found.usd_per_hour <= result.usd_per_hour
