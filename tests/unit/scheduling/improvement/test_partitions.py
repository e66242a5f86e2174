"""The cheapest nodes for a few pods: what greedy packing pays too much for, and what the search must leave as scheduling decided."""

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import Affinity, NodeAffinity, NodeSelectorTerm, PreferredSchedulingTerm
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.improvement.partitions import cheapest
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import Packing, SchedulingPool
from tests.support import problems
from tests.support.problems import apart, app, expressions, node, of_app, pods, pool, problem, shape, spread, term
from tests.support.work import Lines

instance_type = functools.partial(problems.instance_type, capacity_types=("on-demand",), zones=("a",))
ONE_GPU = instance_type("one", "4", "16Gi", 0.8048, more={"example.com/gpu": "1"})
FOUR_GPUS = instance_type("four", "48", "192Gi", 4.6016, more={"example.com/gpu": "4"})
SMALL = instance_type("small", "2", "4Gi", 1.0)
LARGE = instance_type("large", "8", "16Gi", 5.0)
BULK = instance_type("bulk", "8", "16Gi", 3.0)
ARM = instance_type("arm", "2", "4Gi", 0.5, arch="arm64")


def gpu(memory: str = "8Gi") -> PodShape:
    return shape("2", memory, more={"example.com/gpu": "1"})


def preferring(key: str, value: str, cpu: str = "1") -> PodShape:
    term = NodeSelectorTerm(match_expressions=expressions([(key, "In", [value])]))
    preferred = (PreferredSchedulingTerm(weight=1, preference=term),)
    return shape(cpu, "1Gi", affinity=Affinity(node_affinity=NodeAffinity(preferred=preferred)))


def a_pool(name: str, *types: InstanceType, **more: Any) -> SchedulingPool:
    return pool(name, types=types, **more)


@dataclass(frozen=True)
class Row:
    """What is asked, and what is bought: by type, how many nodes."""

    pods: tuple[Pod, ...]
    pools: tuple[SchedulingPool, ...]
    greedy: dict[str, int]
    bought: dict[str, int]
    more: dict[str, Any] = field(default_factory=dict)


def by_type(claims: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in claims:
        found[one.planned_type] = found.get(one.planned_type, 0) + 1
    return found


GPUS = a_pool("gpu", ONE_GPU, FOUR_GPUS)
ROWS = {
    "two GPU pods get the two small nodes that cost a third of the large one": Row(
        pods(2, gpu()), (GPUS,), {"four": 1}, {"one": 2}
    ),
    "nine GPU pods get nine small nodes": Row(pods(9, gpu()), (GPUS,), {"four": 2, "one": 1}, {"one": 9}),
    "so do thirty equal ones": Row(pods(30, gpu()), (GPUS,), {"four": 8}, {"one": 30}),
    "ten different pods are for the planner": Row(
        tuple(one for n in range(10) for one in pods(1, gpu(memory=f"{n + 1}Gi"), f"p{n}")),
        (GPUS,),
        {"four": 3},
        {"four": 3},
    ),
    "of pods of several sizes those share a node that cost less together": Row(
        (*pods(2, shape("2", "1Gi"), "a"), *pods(3, shape("1", "1Gi"), "b")),
        (a_pool("p", SMALL, LARGE),),
        {"large": 1},
        {"small": 4},
    ),
    "one large node is bought where it is cheaper": Row(
        pods(8, shape("1", "1Gi")), (a_pool("p", SMALL, BULK),), {"bulk": 1}, {"bulk": 1}
    ),
    "of two NodePools of equal weight the cheaper one is used, whatever it is called": Row(
        pods(1, shape("1", "1Gi")), (a_pool("a", SMALL), a_pool("z", LARGE)), {"large": 1}, {"small": 1}
    ),
    "a NodePool of higher weight is kept though it is dearer": Row(
        pods(2, shape("1", "1Gi")), (a_pool("a", SMALL), a_pool("z", LARGE, weight=10)), {"large": 1}, {"large": 1}
    ),
    "a wish that was granted is kept though others cost less": Row(
        pods(2, preferring(names.ARCH_LABEL, "amd64", "2")),
        (a_pool("p", SMALL, LARGE, ARM),),
        {"large": 1},
        {"small": 2},
    ),
    "a wish that nobody can grant holds nothing back": Row(
        pods(2, preferring(names.ARCH_LABEL, "s390x", "2")), (a_pool("p", SMALL, LARGE),), {"large": 1}, {"small": 2}
    ),
    "a limit on nodes is kept": Row(
        pods(2, shape("2", "1Gi")), (a_pool("p", SMALL, LARGE, limits={"nodes": "1"}),), {"large": 1}, {"large": 1}
    ),
    "what a limit does not allow is bought of another NodePool": Row(
        pods(2, shape("2", "1Gi")),
        (a_pool("a", SMALL), a_pool("z", SMALL, LARGE, limits={"nodes": "1"})),
        {"large": 1},
        {"small": 2},
    ),
    "pods that keep apart stay apart": Row(
        pods(2, of_app("x", affinity=apart(names.HOSTNAME_LABEL, app("x")))),
        (a_pool("p", replace(SMALL, offerings=LARGE.offerings), BULK),),
        {"bulk": 2},
        {"bulk": 2},
    ),
    "a hostname spread is kept": Row(
        pods(6, of_app("x", topology_spread_constraints=(spread(names.HOSTNAME_LABEL, app("x")),))),
        (a_pool("p", instance_type("tiny", "2", "4Gi", 2.0), BULK),),
        {"bulk": 1},
        {"bulk": 1},
        {},
    ),
    "pods go to the node that is there, as before": Row(
        pods(3, shape("2", "1Gi")), (a_pool("p", SMALL, LARGE),), {"large": 1}, {"small": 2}, {"bins": [node("n", "2")]}
    ),
    "what daemons take is room for nobody": Row(
        pods(2, shape("1500m", "1Gi")),
        (a_pool("p", SMALL, LARGE),),
        {"large": 1},
        {"large": 1},
        {"daemons": [shape("1", "1Gi")]},
    ),
    "a NodePool that is packed greedily stays as it is": Row(
        pods(2, gpu()), (replace(GPUS, packing=Packing.GREEDY),), {"four": 1}, {"four": 1}
    ),
    "minValues are kept": Row(
        pods(2, shape("2", "1Gi")),
        (a_pool("p", SMALL, LARGE, BULK, min_values={names.INSTANCE_TYPE_LABEL: 3}),),
        {"small": 2},
        {"small": 2},
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_few_pods_get_the_cheapest_nodes(row: Row) -> None:
    prepared = prepare(problem(row.pods, *row.pools, **row.more))
    greedy = prepared.solve(row.pods)
    assert by_type(greedy.claims) == row.greedy
    found = cheapest(prepared, greedy)
    assert by_type(found.claims) == row.bought
    assert (found is greedy) is (row.greedy == row.bought)
    assert prepared.judge(design_of(found)).legal
    assert found.existing == greedy.existing
    assert sorted(one.uid for one in found.placed) == sorted(one.uid for one in row.pods)
    assert cheapest(prepared, found) is found


def test_what_pods_leave_of_instance_types_is_work_too() -> None:
    types = tuple(
        instance_type(f"t{number}", str(1 + number % 37), f"{2 + number * 7 % 100}Gi", 0.05 * (1 + number % 37))
        for number in range(60)
    )
    some = tuple(
        pods(
            1,
            shape(
                f"{1000 + number * 713}m",
                f"{1 + number * 2}Gi",
                terms=[term((names.INSTANCE_TYPE_LABEL, "NotIn", [f"t{number * 6}", f"t{number * 6 + 1}"]))],
            ),
            f"p{number}",
        )[0]
        for number in range(9)
    )
    prepared = prepare(problem(some, *[a_pool(f"p{number}", *types) for number in range(12)]))
    greedy = prepared.solve(some)
    with Lines() as lines:
        cheapest(prepared, greedy)
    assert lines.count <= 2_000_000
