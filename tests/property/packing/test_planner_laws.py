"""Laws of the planner: its answer is legal for the independent checker, complete, never dearer than scheduling's, and over its bound."""

import random
from collections import Counter
from collections.abc import Iterable

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.packing.optimizer import SCHEDULING
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.result import Result
from tests.support import checker
from tests.support.improving import Plan, improve
from tests.support.problems import apart, app, instance_type, near, node, of_app, pods, pool, problem, shape, spread
from tests.support.question import Problem
from tests.support.rich import Stock
from tests.support.telling import told

EXAMPLES = settings(max_examples=max(40, settings().max_examples), phases=[Phase.explicit, Phase.generate])
"""Not shrunk: a smaller problem is one where the planner finds nothing."""
EVERYTHING = Stock(20261122).problems()
ZONES = ("a", "b", "c")
GPU = "example.com/gpu"


def planned(asked: Problem, seed: int = 0) -> tuple[Result, Plan]:
    prepared = prepare(asked)
    result = prepared.solve(asked.pods)
    return result, improve(prepared, asked.pods, result, iterations=6, seed=seed)


def uids(some: Iterable[Iterable[Pod]]) -> Counter[str]:
    return Counter(pod.uid for pods in some for pod in pods)


def holds(asked: Problem) -> Plan:
    result, plan = planned(asked)
    found = plan.result
    wrong = checker.violations(asked, found)
    assert not wrong, "\n".join([*wrong, told(asked, result), "planned", told(asked, found)])
    assert plan.usd_per_hour <= result.usd_per_hour + 1e-9
    assert plan.usd_at_least <= plan.usd_per_hour + 1e-9
    assert uids(one.pods for one in found.claims) == uids(one.pods for one in result.claims)
    assert found.existing == result.existing
    assert found.unplaced == result.unplaced
    if plan.stage == SCHEDULING:
        assert found is result
    else:
        assert (plan.usd_per_hour, len(found.claims)) < (result.usd_per_hour, len(result.claims))
        assert prepare(asked).judge(design_of(found)).legal
    return plan


@EXAMPLES
@given(EVERYTHING)
def test_a_plan_for_anything_is_legal_complete_and_never_dearer(asked: Problem) -> None:
    holds(asked)


@EXAMPLES
@given(st.integers(0, 2**32))
def test_so_is_one_for_many_pods(number: int) -> None:
    holds(many(random.Random(number)))


def test_it_often_finds_something_cheaper() -> None:
    plans = [planned(many(random.Random(number)))[1] for number in range(30)]
    assert sum(plan.stage != SCHEDULING for plan in plans) > 8


@settings(EXAMPLES, max_examples=10)
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_the_same_question_has_the_same_plan(number: int, seed: int) -> None:
    asked = many(random.Random(number))
    first, second = planned(asked, seed)[1], planned(asked, seed)[1]
    assert first == second


def many(chance: random.Random) -> Problem:
    """A dozen Deployments, pools of some twenty types with prices of their own, perhaps limits, taints, nodes and daemons."""
    types = tuple(_type(chance, number) for number in range(chance.randint(6, 20)))
    pools = [pool("main", types=types, limits=_limits(chance))]
    if chance.random() < 0.3:
        pools.append(pool("other", types=types[: len(types) // 2], weight=chance.choice((0, 0, 5))))
    made = [pods(chance.randint(1, 12), _shape(chance, f"d{n}"), f"d{n}") for n in range(chance.randint(2, 12))]
    bins = [node(f"n{n}", labels={names.ZONE_LABEL: chance.choice(ZONES)}) for n in range(chance.choice((0, 0, 2)))]
    daemons = [shape("100m", "200Mi")] if chance.random() < 0.5 else []
    return problem([one for some in made for one in some], *pools, bins=bins, daemons=daemons)


def _limits(chance: random.Random) -> dict[str, str] | None:
    return {"cpu": str(chance.choice((40, 100, 1000)))} if chance.random() < 0.3 else None


def _type(chance: random.Random, number: int) -> InstanceType:
    cpus = chance.choice((2, 4, 8, 16, 32))
    memory = cpus * chance.choice((2, 4, 8))
    gpus = chance.choice((1, 4)) if chance.random() < 0.1 else 0
    price = round((0.03 * cpus + 0.004 * memory + 0.9 * gpus) * chance.uniform(0.8, 1.4), 4)
    return instance_type(
        f"type-{number}",
        str(cpus),
        f"{memory}Gi",
        price,
        arch=chance.choice(("amd64", "amd64", "arm64")),
        zones=ZONES if chance.random() < 0.8 else ZONES[:2],
        capacity_types=chance.choice((("on-demand",), ("on-demand",), ("on-demand", "spot"))),
        more={GPU: str(gpus)} if gpus else None,
        max_pods=chance.choice((29, 58, 110)),
    )


def _shape(chance: random.Random, name: str) -> PodShape:
    cpu = chance.choice(("0", "50m", "100m", "250m", "500m", "1", "1500m", "2", "3"))
    memory = chance.choice(("0", "64Mi", "128Mi", "512Mi", "1Gi", "2Gi", "6Gi"))
    own = app(name)
    kind = chance.randrange(16)
    if kind == 0:
        return of_app(name, cpu, memory, topology_spread_constraints=(spread(names.ZONE_LABEL, own),))
    if kind == 1:
        return of_app(name, cpu, memory, topology_spread_constraints=(spread(names.HOSTNAME_LABEL, own, 2),))
    if kind == 2:
        return of_app(name, cpu, memory, affinity=apart(names.HOSTNAME_LABEL, own))
    if kind == 3:
        return of_app(name, cpu, memory, affinity=apart(names.HOSTNAME_LABEL, app("d0")))
    if kind == 4:
        return of_app(name, cpu, memory, affinity=near(names.ZONE_LABEL, own))
    if kind == 5:
        return of_app(name, cpu, memory, affinity=near(names.HOSTNAME_LABEL, own))
    if kind == 6:
        return of_app(name, cpu, memory, selector={names.ARCH_LABEL: "arm64"})
    if kind == 7:
        return of_app(name, cpu, memory, selector={names.ZONE_LABEL: "b"})
    if kind == 8:
        return of_app(name, cpu, memory, selector={names.CAPACITY_TYPE_LABEL: "on-demand"})
    if kind == 9:
        soft = spread(names.ZONE_LABEL, own, when_unsatisfiable="ScheduleAnyway")
        return of_app(name, cpu, memory, topology_spread_constraints=(soft,))
    if kind == 10:
        return of_app(name, cpu, memory, more={GPU: "1"})
    return of_app(name, cpu, memory)
