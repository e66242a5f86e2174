"""The real programs (processes) against kube-scheduler, all pods created at once: every planned pod is bound within 15 s, in every mode.

The 15 s are those of a quiet machine (tests/support/pace.py). What only `make judge` runs is marked `judge`; the others are in `make test` too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.lab.harness import applying
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.running import scale_in, watch
from provisioner.lab.harness.session import Session, Setup, session
from provisioner.lab.harness.workload import Document, deployment, pods_of
from tests.support.eventually import PATIENCE
from tests.support.pace import Pace
from tests.support.pod_waits import pod_waits

pytestmark = pytest.mark.plane

BOUND_SECONDS = 15.0
RUN_SECONDS = 90.0 * PATIENCE
ZONE, HOSTNAME = names.ZONE_LABEL, names.HOSTNAME_LABEL
ZONES = ("test-zone-a", "test-zone-b", "test-zone-c")
NAMESPACE = "at-once"


@dataclass(frozen=True)
class Scene:
    """Deployments that are created at once, and the sizes (CPUs) of the nodes that there are."""

    cpus: tuple[str, ...]
    deployments: tuple[Document, ...]


def deployed(
    name: str, replicas: int, *, cpu: str = "1", labels: dict[str, str] | None = None, **spec: Any
) -> Document:
    document = deployment(name, NAMESPACE, replicas, {"cpu": cpu, "memory": "64Mi"})
    template = document["spec"]["template"]
    template["metadata"]["labels"].update(labels or {})
    template["spec"].update(spec)
    return document


def even(key: str, **labels: str) -> Document:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }


def tied(kind: str, key: str, **labels: str) -> Document:
    """`kind` is podAffinity or podAntiAffinity."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def mixed(number: int) -> Document:
    """One of ten Deployments of a hundred pods, three of which are spread over zones."""
    name = f"mixed-{number}"
    cpu = ("500m", "1", "750m")[number % 3]
    if number >= 3:
        return deployed(name, 100, cpu=cpu)
    return deployed(name, 100, cpu=cpu, topologySpreadConstraints=[even(ZONE, app=name)])


GROUP = {"group": "g"}
SCENES = {
    "61 pods spread over zones": Scene(
        ("32",), (deployed("web", 61, topologySpreadConstraints=[even(ZONE, app="web")]),)
    ),
    "30 pods spread over zones and nodes": Scene(
        ("16",),
        (deployed("web", 30, topologySpreadConstraints=[even(ZONE, app="web"), even(HOSTNAME, app="web")]),),
    ),
    "60 pods spread over zones, a node each": Scene(
        ("8",), (deployed("web", 60, cpu="5", topologySpreadConstraints=[even(ZONE, app="web")]),)
    ),
    "70 pods of two Deployments that one spread counts together": Scene(
        ("32",),
        tuple(
            deployed(name, 35, labels=GROUP, topologySpreadConstraints=[even(ZONE, **GROUP)]) for name in ("one", "two")
        ),
    ),
    "70 pods of which half are only counted": Scene(
        ("32",),
        (
            deployed("one", 35, labels=GROUP, topologySpreadConstraints=[even(ZONE, **GROUP)]),
            deployed("two", 35, labels=GROUP),
        ),
    ),
    "affinity to pods that are nominated to other nodes of the zone": Scene(
        ("8",), (deployed("herd", 30, affinity=tied("podAffinity", ZONE, app="herd")),)
    ),
    "a zone each beside other nominated pods": Scene(
        ("8",),
        (deployed("lone", 3, affinity=tied("podAntiAffinity", ZONE, app="lone")), deployed("plain", 40)),
    ),
    "a node each beside other nominated pods": Scene(
        ("8",),
        (deployed("lone", 12, affinity=tied("podAntiAffinity", HOSTNAME, app="lone")), deployed("plain", 40)),
    ),
}
LARGE = {"1,000 pods of which some are spread over zones": Scene(("8", "16"), tuple(map(mixed, range(10))))}


def pool(cpus: tuple[str, ...]) -> list[Document]:
    requirements = {
        "karpenter.kwok.sh/instance-cpu": list(cpus),
        names.OS_LABEL: ["linux"],
        names.ARCH_LABEL: ["amd64"],
        names.CAPACITY_TYPE_LABEL: ["spot"],
        ZONE: list(ZONES),
    }
    template = {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "expireAfter": "Never",
        "requirements": [{"key": key, "operator": "In", "values": values} for key, values in requirements.items()],
    }
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    return [
        {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": "default"},
            "spec": {},
        },
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "general"},
            "spec": {"template": {"spec": template}, "disruption": disruption},
        },
    ]


@pytest.fixture(scope="module", params=list(Mode), ids=[mode.words for mode in Mode])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    mode: Mode = request.param
    logs = tmp_path_factory.mktemp("logs") / mode.value
    with session(Setup(f"nomination-{mode}", mode.programs, mode.flags, logs=logs), print) as found:
        applying.apply(found.client, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        yield found


@pytest.mark.parametrize(
    "scene",
    [*SCENES.values(), *(pytest.param(one, marks=pytest.mark.judge) for one in LARGE.values())],
    ids=[*SCENES, *LARGE],
)
def test_every_planned_pod_is_bound_in_time(run: Session, scene: Scene) -> None:
    run.apply_pools(pool(scene.cpus))
    wanted = pods_of(scene.deployments)
    documents, pace = list(scene.deployments), Pace(run)
    applying.apply(run.client, documents)
    try:

        def all_bound(_: object) -> bool:
            waits = pod_waits(run.observer, {NAMESPACE})
            return len(waits) == wanted and all(one.bound is not None for one in waits.values())

        watch(run, lambda _seconds, _counts: None, all_bound, run.clock.monotonic(), RUN_SECONDS)
        waits = pod_waits(run.observer, {NAMESPACE})
        assert len(waits) == wanted
        bound = pace.stretched(BOUND_SECONDS, max(one.seconds for one in waits.values()))
        late = {key: round(one.seconds, 1) for key, one in waits.items() if one.seconds > bound}
        assert late == {}, f"{len(late)} of {wanted} pods were not bound within {bound:.1f} s of their plan"
    finally:
        scale_in(run, documents, lambda _seconds, _counts: None)
