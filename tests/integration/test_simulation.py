"""A simulation comes to the same nodes as a real control plane with the real kube-scheduler and kwok, and to the same price within 2 %."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.cloudprovider.kwok.catalogue import generated
from provisioner.cloudprovider.types import offering_price
from provisioner.kube.client import Client
from provisioner.kube.resources import DEPLOYMENTS, PODS, PRIORITYCLASSES
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.options import Options
from provisioner.simulator.ledger import Figures
from provisioner.simulator.simulation import SimulationSetting, simulated
from provisioner.simulator.workload import Arrival, Change, Day, Scale
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, TEAM, InProcess, Plot
from tests.unit.simulator.days import offer

pytestmark = pytest.mark.plane

ON_DEMAND = [{"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]}]
URGENT = "urgent-in-a-simulation"
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": URGENT},
    "value": 1000,
}
QUIET_LOOKS = 25
"""Looks in a row, 0.2 s apart, at which nothing has changed: the fleet has come to rest."""
CATALOGUE = generated()
TYPES = {one.name: one for one in CATALOGUE.types}
WITHIN = 0.02


@dataclass(frozen=True)
class Case:
    """Workloads, (name, pods, cpu, more of the pod's spec); then, where it is said, one of them is scaled, and so many pods are preempted."""

    workloads: tuple[tuple[str, int, str, dict[str, Any]], ...]
    scaled: tuple[str, int] | None = None
    preempts: int = 0

    @property
    def disruption(self) -> dict[str, Any]:
        """Empty nodes go where something is scaled; else all stay as they were launched."""
        return {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s" if self.scaled else "Never"}


def spread(key: str, app: str) -> dict[str, Any]:
    one = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**one, "labelSelector": {"matchLabels": {"app": app}}}]}


def apart(app: str) -> dict[str, Any]:
    term = {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


CASES = {
    "equal pods": Case((("web", 23, "900m", {}),)),
    "sizes": Case((("large", 3, "5", {}), ("middle", 7, "1700m", {}), ("small", 19, "300m", {}))),
    "zones": Case((("web", 10, "1500m", spread(names.ZONE_LABEL, "web")),)),
    "a node each": Case((("web", 5, "700m", apart("web")), ("rest", 9, "600m", {}))),
    "preempted": Case(
        (("low", 3, "3", {}), ("urgent", 0, "3", {"priorityClassName": URGENT})), scaled=("urgent", 2), preempts=2
    ),
    "emptied": Case((("large", 6, "3", {}), ("small", 6, "500m", {})), scaled=("large", 0)),
}


@pytest.fixture(scope="module")
def program(plane: DevCluster, client: Client) -> Iterator[InProcess]:
    client.create(PRIORITYCLASSES, PRIORITY)  # the CRDs are there
    with InProcess(str(plane.kubeconfig)) as one:
        yield one
    client.delete(PRIORITYCLASSES, URGENT)


@pytest.fixture
def plot(program: InProcess, client: Client) -> Iterator[Plot]:
    del program  # it runs
    one = Plot(client)
    yield one
    one.clear()


def at_rest(plot: Plot, pods: int) -> list[tuple[str, str]]:
    """The nodes, as (instance type, zone), once all pods run and nothing has changed for a while."""
    seen: list[object] = []

    def look() -> bool:
        claims = plot.claims()
        now = [(one.name, one.metadata.deletion_timestamp, one.status.node_name) for one in claims]
        if plot.running() != pods or len(plot.initialized()) != len(claims) or (seen and seen[-1] != now):
            seen.clear()
        seen.append(now)
        return len(seen) > QUIET_LOOKS

    eventually(look, "the fleet comes to rest", 3 * SECONDS, 0.2)
    return [
        (one.metadata.labels[names.INSTANCE_TYPE_LABEL], one.metadata.labels[names.ZONE_LABEL]) for one in plot.claims()
    ]


def simulation(plot: Plot, case: Case, templates: dict[str, Any]) -> Figures:
    """The same in virtual time, with the objects as the API server has them."""
    pools = [PRIORITY, *(msgspec.to_builtins(plot.node_pool(name)) for name in plot.pool_names)]
    changes: list[Change] = [
        Arrival(at=1.0, name=name, namespace=plot.name, template=templates[name], count=count)
        for name, count, _, _ in case.workloads
    ]
    if case.scaled is not None:
        changes.append(Scale(at=300.0, name=case.scaled[0], namespace=plot.name, count=case.scaled[1]))
    options = Options.parse(["--history-duration=0s"], {})
    return simulated(
        SimulationSetting(Day(duration_seconds=900.0, changes=tuple(changes)), tuple(pools), offer(), options, (5.0,)),
        1,
    )


def urgent_on(plot: Plot) -> set[str]:
    """The nodes of pods that preempt others."""
    found = plot.client.list(PODS, plot.name)
    return {one.node_name for one in found if one.shape.priority_class_name == URGENT}


@pytest.mark.parametrize("name", CASES)
def test_a_simulation_comes_to_the_same_nodes(plot: Plot, name: str) -> None:
    case = CASES[name]
    plot.pool(cpu=(2, 4, 8, 16), requirements=ON_DEMAND, delay="5s", disruption=case.disruption)
    for workload, count, cpu, spec in case.workloads:
        plot.deploy(workload, count, cpu=cpu, **{"nodeSelector": {TEAM: plot.name}, **spec})
    templates = {
        one.metadata.name: msgspec.to_builtins(one.spec.template) for one in plot.client.list(DEPLOYMENTS, plot.name)
    }
    pods = {workload: count for workload, count, _, _ in case.workloads}
    real = at_rest(plot, sum(pods.values()))
    before = {one.status.node_name for one in plot.claims()}
    if case.scaled is not None:
        plot.scale(*case.scaled)
        pods |= dict([case.scaled])
        real = at_rest(plot, sum(pods.values()))
    found = simulation(plot, case, templates)
    last = found.samples[-1]
    usd = sum(offering_price(TYPES[kind], zone, names.CAPACITY_ON_DEMAND) or 0.0 for kind, zone in real)
    assert found.unbound == 0
    assert found.evictions.get("Preempted", 0) == case.preempts
    assert not case.preempts or urgent_on(plot) <= before, "who is urgent runs where others ran"
    assert last.nodes == len(real), (found.launched, real)
    assert last.usd_per_hour == pytest.approx(usd, rel=WITHIN), (found.launched, real)
