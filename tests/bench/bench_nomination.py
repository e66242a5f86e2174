"""How long it takes to decide who may be nominated, in CPU time; `make bench` runs it and keeps results/nomination.json.

Each decision is for one wave of new Nodes: the policy is made of every pod of the cluster, and 10,000 pods are judged.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.core import Container, PodSpec, ResourceRequirements, TopologySpreadConstraint
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from provisioner.apis.pods import Pod, pod_of
from provisioner.lab.harness.results import Figure, at_most, write
from provisioner.scheduling.nomination.nomination_rules import NominationPolicy

pytestmark = pytest.mark.bench

RESULTS = Path(__file__).parents[2] / "results"
PODS, JUDGED = 100_000, 10_000
ROUNDS = 3
PODS_OF_A_NODE = 50
LONG = 20
CONTAINERS = (Container(name="main", resources=ResourceRequirements(requests={"cpu": "100m"})),)


def pod(number: int, klass: int, *selectors: LabelSelector, namespace: str = "default") -> Pod:
    metadata = ObjectMeta(
        name=f"p-{number}", namespace=namespace, uid=f"u-{number}", labels={"team": "shop", "app": f"app-{klass}"}
    )
    constraints = tuple(
        TopologySpreadConstraint(
            max_skew=1, topology_key=names.ZONE_LABEL, when_unsatisfiable="DoNotSchedule", label_selector=one
        )
        for one in selectors
    )
    return pod_of(metadata, PodSpec(containers=CONTAINERS, topology_spread_constraints=constraints))


def own(klass: int) -> LabelSelector:
    return LabelSelector(match_labels={"team": "shop", "app": f"app-{klass}"})


def never(number: int) -> LabelSelector:
    """Selects nothing here, which only a look at each of its labels tells; no label value leads to it."""
    return LabelSelector(
        match_expressions=(
            LabelSelectorRequirement(key="app", operator="Exists"),
            LabelSelectorRequirement(key=f"missing-{number}", operator="Exists"),
            LabelSelectorRequirement(key="team", operator="NotIn", values=("shop",)),
        )
    )


def ordinary() -> list[Pod]:
    """A thousand Deployments of a hundred pods, a fifth of them spread over zones."""
    return [pod(number, number % 1000, *([own(number % 1000)] if number % 5 == 0 else ())) for number in range(PODS)]


def each_its_own() -> list[Pod]:
    """Every pod is a class of its own and spread by a selector of its own."""
    return [pod(number, number, own(number)) for number in range(PODS)]


def evasive() -> list[Pod]:
    """As many selectors as pods in one namespace, none of which leads to the labels that it wants."""
    return [pod(number, number, never(number)) for number in range(PODS // 2)] + [
        pod(number, number) for number in range(PODS // 2, PODS)
    ]


def counted_by_all() -> list[Pod]:
    """A tenant's 250 pods, each with a long selector of its own that counts all pods, which have numbers as StatefulSets' have."""
    long = [LabelSelectorRequirement(key=f"missing-{number}", operator="DoesNotExist") for number in range(LONG)]
    counting = [
        pod(number, 0, LabelSelector(match_labels={"team": "shop"}, match_expressions=tuple(long[number % LONG :])))
        for number in range(250)
    ]
    judged = [pod(number, 1) for number in range(250, 250 + JUDGED)]
    return counting + [
        replace(one, labels={**one.labels, "apps.kubernetes.io/pod-index": str(number)})
        for number, one in enumerate(judged)
    ]


@dataclass(frozen=True)
class Case:
    """`first` is with classes never seen before, which decoding thousands of pods a second brings; `later` without."""

    pods: Callable[[], list[Pod]]
    first_seconds: float
    later_seconds: float


CASES = {
    "100,000 pods of 1,000 Deployments, a fifth spread": Case(ordinary, 0.15, 0.10),
    "100,000 pods, each with a selector of its own": Case(each_its_own, 4.0, 1.5),
    "50,000 selectors that no label leads to": Case(evasive, 2.5, 1.0),
    "10,000 pods with a label of their own, each counted by 250 long selectors": Case(counted_by_all, 1.0, 1.0),
}


def seconds(pods: list[Pod]) -> float:
    judged = pods[-JUDGED:]
    began = time.process_time()
    policy = NominationPolicy(pods)
    for start in range(0, len(judged), PODS_OF_A_NODE):
        policy.withheld(judged[start : start + PODS_OF_A_NODE])
    return time.process_time() - began


def test_nomination() -> None:
    figures = []
    for name, case in CASES.items():
        pods = case.pods()
        first = seconds(pods)
        later = min(seconds(pods) for _ in range(ROUNDS))
        figures += [
            Figure(f"{name}: first wave", first, "s", at_most(case.first_seconds)),
            Figure(f"{name}: each later wave", later, "s", at_most(case.later_seconds)),
        ]
    write(RESULTS, "nomination", figures)
    for figure in figures:
        print(figure.line())
    assert [figure.line() for figure in figures if figure.met is False] == []
