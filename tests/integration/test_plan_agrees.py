"""`dovetail plan` on the manifests of a cluster and the provisioner in that cluster buy the same.

Each row is applied to a real control plane, and the classes of its NodePools last and together, so that all pods and NodePools are there before the
first pod could get a node: they are one batch, however slow the machine is. No Node registers, so nothing is bound, and what was bought is what is
compared. The same documents are given to the command. Both look for as many rounds from the same seed, and have time for all of them.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, requirements_of
from provisioner.apis.plan import decode_plan
from provisioner.cli.plan.command import command as plan_command
from provisioner.kube.client import Client
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness import applying
from provisioner.lab.harness.workload import Document, deployment
from provisioner.options import TimeLimits
from provisioner.packing.planner import Patience, Planner
from provisioner.packing.process import PlannerProcess
from provisioner.support.clock import Clock
from tests.support.at_once import write_types_of
from tests.support.eventually import eventually
from tests.support.problems import instance_type
from tests.support.provisioner import SECONDS, TEAM, InProcess, Plot

pytestmark = pytest.mark.plane

ZONES = ("test-zone-a", "test-zone-b", "test-zone-c")
GPU = "nvidia.com/gpu"
TYPES = (
    *(
        instance_type(
            f"{family}-{cpus}x", str(cpus), f"{cpus * memory}Gi", round(cpus * price * slope, 5), zones=ZONES, arch=arch
        )
        for family, memory, price, arch in (
            ("c", 2, 0.04, "amd64"),
            ("m", 4, 0.048, "amd64"),
            ("r", 8, 0.063, "amd64"),
            ("a", 4, 0.038, "arm64"),
        )
        for cpus, slope in ((2, 1.0), (4, 0.98), (8, 1.01), (16, 0.97), (32, 1.0))
    ),
    instance_type("g-1", "4", "16Gi", 0.8048, zones=ZONES[:1], capacity_types=("on-demand",), more={GPU: "1"}),
    instance_type("g-4", "48", "192Gi", 4.6016, zones=ZONES[:1], capacity_types=("on-demand",), more={GPU: "4"}),
)
ON_DEMAND = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]}
SPOT = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot"]}
ANY = {"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64", "arm64"]}
AMD = {"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]}


@dataclass(frozen=True)
class Pods:
    """A Deployment: `spec` are fields of its pods."""

    count: int
    cpu: str = "1"
    memory: str = "1Gi"
    gpus: int = 0
    spec: Any = None
    spread: str = ""
    daemon: bool = False


@dataclass(frozen=True)
class Row:
    """NodePools by suffix, each with its requirements and fields of its spec, and pods.

    `within`: of many pods, the price alone is compared, as a share; 0 for the same nodes.
    """

    pods: tuple[Pods, ...]
    pools: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (("", (ON_DEMAND, AMD), {}),)
    quick: bool = False
    within: float = 0.0


def preferring(key: str, value: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
        }
    }


TWO: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (("-a", (SPOT, AMD), {}), ("-z", (ON_DEMAND, AMD), {}))
ROWS = {
    "one pod": Row((Pods(1, "700m", "3Gi"),)),
    "one pod and two NodePools of equal weight": Row((Pods(1),), TWO, quick=True),
    "two pods and a NodePool of higher weight": Row(
        (Pods(2),), (("-a", (SPOT, AMD), {}), ("-z", (ON_DEMAND, AMD), {"weight": 10}))
    ),
    "two pods with GPUs": Row((Pods(2, "2", "8Gi", 1),), quick=True),
    "two pods that prefer an architecture": Row(
        (Pods(2, "1500m", spec=preferring(names.ARCH_LABEL, "amd64")),), (("", (ON_DEMAND, ANY), {}),)
    ),
    "three pods of different sizes": Row((Pods(1, "3"), Pods(1, "500m", "14Gi"), Pods(1, "1", "2Gi"))),
    "three pods that are spread over zones": Row((Pods(3, spread=names.ZONE_LABEL),)),
    "three pods on nodes of their own": Row((Pods(3, "500m", spread=names.HOSTNAME_LABEL),)),
    "nine pods of three sizes": Row(
        (Pods(3, "1900m", "2Gi"), Pods(3, "200m", "7Gi"), Pods(3, "900m", "1Gi")), quick=True
    ),
    "nine pods beside a DaemonSet, in a NodePool with limits": Row(
        (Pods(9, "800m", "2Gi"), Pods(0, "300m", "1Gi", daemon=True)),
        (("", (ON_DEMAND, ANY), {"limits": {"cpu": 24}}),),
    ),
    "nine pods with GPUs": Row((Pods(9, "2", "8Gi", 1),)),
    "ten pods of two sizes": Row((Pods(5, "1900m", "2Gi"), Pods(5, "200m", "7Gi")), quick=True),
    "ten pods and two NodePools of equal weight": Row((Pods(10, "1700m", "3Gi"),), TWO),
    "ten pods with GPUs": Row((Pods(10, "2", "8Gi", 1),)),
    "a thousand pods of four sizes": Row(
        (Pods(400, "300m", "700Mi"), Pods(300, "1", "2Gi"), Pods(200, "700m", "5Gi"), Pods(100, "3", "4Gi")),
        within=0.005,
    ),
    "a thousand pods, some of them spread over zones, and two NodePools of equal weight": Row(
        (Pods(300, "500m", "1Gi", spread=names.ZONE_LABEL), Pods(500, "900m", "3Gi"), Pods(200, "250m", "2Gi")),
        TWO,
        within=0.005,
    ),
}
UNHURRIED = Patience(least=120.0, most=120.0, grace=60.0)


def _unhurried(
    process: PlannerProcess, clock: Clock, _: object = None, *, steers: Callable[[str], bool], wanted: bool = True
) -> Planner:
    return Planner(process, clock, UNHURRIED, steers=steers, wanted=wanted)


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("types") / "types.json"
    write_types_of(path, TYPES)
    return path


@pytest.fixture(scope="module")
def provisioner(plane: DevCluster, client: Client, types: Path) -> Iterator[InProcess]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("provisioner.operator.term.Planner", _unhurried)
        made = InProcess(
            str(plane.kubeconfig),
            instance_types_file_path=str(types),
            batch_idle_duration=timedelta(seconds=4),
            batch_max_duration=timedelta(seconds=600),
            timeouts=TimeLimits(solve=timedelta(seconds=300)),
        )
    with made:
        yield made


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def patience(pods: int) -> float:
    return SECONDS * (3 + pods / 200)


def applied(plot: Plot, row: Row, monkeypatch: pytest.MonkeyPatch) -> list[Document]:
    """Apply a row, and what lets its NodePools launch once all pods are there; what was applied."""
    documents: list[Document] = []
    real = applying.apply

    def apply(client: Client, some: Any, *more: Any, **others: Any) -> Any:
        documents.extend(some)
        return real(client, some, *more, **others)

    monkeypatch.setattr(applying, "apply", apply)
    for suffix, requirements, spec in row.pools:
        plot.pool(
            suffix,
            cpu=(2, 4, 8, 16, 32, 48),
            ready=False,
            node_class=False,
            template={"requirements": list(requirements)},
            disruption={"consolidateAfter": "Never"},
            **spec,
        )
    apply(plot.client, [_workload(plot, f"w{number}", one) for number, one in enumerate(row.pods)])
    count = sum(one.count for one in row.pods)
    eventually(lambda: len(plot.pods()) == count, "every pod is there", patience(count), 0.5)
    apply(plot.client, [_class(name) for name in plot.pool_names])
    return documents


def _class(name: str) -> Document:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": name},
        "spec": {"nodeRegistrationDelay": "1h"},
    }


def _workload(plot: Plot, name: str, one: Pods) -> Document:
    document = deployment(name, plot.name, one.count, {"cpu": one.cpu, "memory": one.memory})
    template = document["spec"]["template"]
    spec = template["spec"] = {**template["spec"], **(one.spec or {})}
    if one.gpus:
        spec["containers"][0]["resources"]["limits"] = {GPU: str(one.gpus)}
    if one.spread:
        labels = document["spec"]["selector"]
        own = {"topologyKey": one.spread, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": labels}
        spec["topologySpreadConstraints"] = [own]
    spec["tolerations"] = [{"key": TEAM, "operator": "Exists"}]
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    mine = [{"key": TEAM, "operator": "In", "values": plot.pool_names}]
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [{"matchExpressions": mine}]}
    if one.daemon:
        document["kind"] = "DaemonSet"
        del document["spec"]["replicas"]
    return document


def planned(documents: list[Document], types: Path, tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    arguments = [str(path), "--catalogue", f"kwok:{types}", "--seconds", "120", "-o", "json"]
    result = CliRunner().invoke(plan_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (one,) = json.loads(result.stdout)["plans"]
    assert not one["pods"]["withoutNode"], one["unplaced"]
    assert one["fallback"] == "", one
    found: dict[str, Any] = one
    return found


def bought(claims: Iterable[NodeClaim]) -> Counter[tuple[str, str, str, str]]:
    """By NodePool, planned type, zone and capacity type; where a NodeClaim leaves its zone open, as `plan` says it."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    for claim in claims:
        kind, zone, capacity_type = claim.metadata.annotations[names.PLANNED_OFFERING_ANNOTATION].split("/")
        zones = requirements_of(claim.spec.requirements).requirement(names.ZONE_LABEL)
        found[claim.pool, kind, zone if zones.single_value else "any", capacity_type] += 1
    return found


def planned_for(claims: Iterable[NodeClaim]) -> int:
    """Pods for which NodeClaims were made."""
    plans = [decode_plan(one.metadata.annotations[names.PLAN_ANNOTATION]) for one in claims]
    return sum(entry.count for plan in plans for entry in plan.pods)


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=name, marks=() if row.quick else pytest.mark.bench) for name, row in ROWS.items()],
)
def test_plan_and_provisioner_buy_the_same(
    plot: Plot, row: Row, types: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = applied(plot, row, monkeypatch)
    count = sum(one.count for one in row.pods)
    claims: list[NodeClaim] = []

    def are_planned() -> bool:
        claims[:] = plot.claims()
        return planned_for(claims) == count

    eventually(are_planned, "every pod is in the plan of a NodeClaim", patience(count), 0.5)
    costs = {one.metadata.annotations[names.PLAN_COST] for one in claims}
    assert len(costs) == 1, "all pods are in one batch"
    said = planned(documents, types, tmp_path)
    assert said["pods"]["asked"] == count
    if row.within:
        assert float(costs.pop()) == pytest.approx(said["perHour"], rel=row.within)
        return
    wanted = Counter(
        {
            (one["nodePool"], one["instanceType"], one["zone"], one["capacityType"]): one["count"]
            for one in said["nodeGroups"]
        }
    )
    assert bought(claims) == wanted
