"""kube-scheduler judges what the solver makes of PodGroups: what it places a cycle of the group binds, and what it leaves no cycle binds."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pytest

from provisioner.apis import names
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from tests.support import judge
from tests.support.eventually import PATIENCE
from tests.support.judge import Document, Scenario, Verdict, node, several, stem
from tests.support.problems import pool
from tests.support.scenarios import LARGE, MEDIUM, SMALL, ZONES, apart, app

pytestmark = pytest.mark.plane
AT_ONCE: Final = 6
SEEDS: Final = range(200)
SOME: Final = range(0, 200, 10)
"""Of which `make test` asks; `make judge` asks of all."""


def scenario(seed: int) -> Scenario:
    """Up to three groups, some nodes of now and NodePools with limits; a group with a topology key is alone."""
    chance = random.Random(seed)
    nodes = [
        node(f"@-{number}", chance.choice(("2", "4", "8")), zone=chance.choice(ZONES))
        for number in range(chance.randint(0, 4))
    ]
    keyed = chance.random() < 0.25
    pods: list[Document] = []
    groups: dict[str, int] = {}
    for number in range(1 if keyed else chance.randint(1, 3)):
        name, size = f"g{number}", chance.randint(2, 6)
        groups[name] = chance.randint(max(1, size - 2), size)
        terms: dict[str, Any] = {"schedulingGroup": {"podGroupName": name}}
        if chance.random() < 0.25:
            terms["affinity"] = apart(names.HOSTNAME_LABEL, app(name))
        pods += several(size, name, chance.choice(("500m", "1", "1500m", "3", "7", "9")), app=name, **terms)
    limits = {} if chance.random() < 0.4 else {"cpu": str(chance.randint(0, 20))}
    return Scenario(
        tuple(pods),
        (pool(types=tuple(chance.sample((SMALL, MEDIUM, LARGE), chance.randint(1, 3))), limits=limits),),
        tuple(nodes),
        free=True,
        groups=groups,
        topology={"g0": names.ZONE_LABEL} if keyed else {},
    )


SCENARIOS: Final = {seed: scenario(seed) for seed in SEEDS}


@pytest.fixture(scope="module")
def court(gang_plane: DevCluster, request: pytest.FixtureRequest) -> Iterator[Mapping[int, Future[Verdict]]]:
    """The verdicts of all scenarios that are asked for, as they come."""
    items = [one for one in request.session.items if isinstance(one, pytest.Function) and one.path == request.path]
    wanted = sorted({int(str(one.callspec.params["seed"])) for one in items if hasattr(one, "callspec")})
    clock = SystemClock()
    connection = connect(
        str(gang_plane.kubeconfig), user_agent="dovetail-judge", clock=clock, qps=2000, burst=2000, pool_size=32
    )
    bench, threads = judge.Bench(Client(connection, clock), extender=False), ThreadPoolExecutor(AT_ONCE)
    try:
        yield {seed: threads.submit(bench.judge, f"g{seed:03}", SCENARIOS[seed]) for seed in wanted}
    finally:
        threads.shutdown(cancel_futures=True)
        bench.close()
        connection.close()


def agrees(scenario: Scenario, verdict: Verdict) -> str:
    """What is wrong with a verdict; which of the equal pods of a group have places is nobody's business.

    Nor is which groups have places where they take room from each other: kube-scheduler tries groups of one priority as they come, and these are created at once.
    """
    if verdict.error:
        return verdict.error
    planned = Counter(map(stem, verdict.planned))
    bound = Counter(stem(name) for name, where in verdict.bound.items() if where)
    halves = {name for name, least in scenario.groups.items() if 0 < planned[name] < least}
    if halves:
        return f"of {halves} a part is planned"
    competes = bool(planned - bound) and bool(bound - planned)
    fair = competes and all(count >= scenario.groups[name] for name, count in bound.items())
    return "" if planned == bound or fair else f"planned are {dict(planned)}, and bound {dict(bound)}"


def test_the_scenarios_are_about_many_groups_and_some_topology_keys() -> None:
    assert sum(len(one.groups) for one in SCENARIOS.values()) > 300
    assert sum(bool(one.topology) for one in SCENARIOS.values()) > 30


@pytest.mark.parametrize("seed", SOME)
def test_kube_scheduler_binds_groups_as_they_are_planned(court: Mapping[int, Future[Verdict]], seed: int) -> None:
    assert agrees(SCENARIOS[seed], court[seed].result(timeout=600 * PATIENCE)) == ""


@pytest.mark.judge
@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed not in SOME])
def test_kube_scheduler_binds_all_groups_as_they_are_planned(court: Mapping[int, Future[Verdict]], seed: int) -> None:
    assert agrees(SCENARIOS[seed], court[seed].result(timeout=600 * PATIENCE)) == ""
