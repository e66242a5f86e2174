"""The examples as the issue asks for them, and the builder of shorter runs."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.lab.harness.workload import (
    Document,
    ExampleError,
    deployment,
    example,
    load,
    of_kind,
    pods_of,
    renamed,
    scaled,
    spread_workload,
)


def named(documents: list[Document], kind: str, name: str) -> Document:
    (found,) = [document for document in of_kind(documents, kind) if document["metadata"]["name"] == name]
    return found


def test_the_demo_workload_is_1000_pods_in_12_deployments_and_a_daemonset() -> None:
    workload = example("workload.yaml")
    assert len(of_kind(workload, "Deployment")) == 12
    assert pods_of(workload) == 1000
    assert len(of_kind(workload, "DaemonSet")) == 1


def test_every_namespace_that_the_workload_uses_comes_before_its_users() -> None:
    known: set[str] = set()
    for document in example("workload.yaml"):
        if document["kind"] == "Namespace":
            known.add(document["metadata"]["name"])
        else:
            assert document["metadata"]["namespace"] in known


def spread_over(document: Document) -> tuple[str, ...]:
    """The keys that a Deployment is spread over with DoNotSchedule, by a selector that counts all of its own pods."""
    template = document["spec"]["template"]
    constraints = template["spec"].get("topologySpreadConstraints", ())
    for one in constraints:
        assert one["whenUnsatisfiable"] == "DoNotSchedule"
        assert one["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    return tuple(sorted(one["topologyKey"] for one in constraints))


BY_ZONE, BY_NODE = (names.ZONE_LABEL,), (names.HOSTNAME_LABEL,)
BY_BOTH = (*BY_NODE, *BY_ZONE)


def test_two_deployments_of_the_demo_spread_by_zone_one_by_hostname_and_one_by_both() -> None:
    kinds = Counter(spread_over(document) for document in of_kind(example("workload.yaml"), "Deployment"))
    assert kinds == {BY_ZONE: 2, BY_NODE: 1, BY_BOTH: 1, (): 8}


def test_the_spread_benchmark_is_600_pods_half_by_zone_a_quarter_by_hostname_a_quarter_by_both() -> None:
    namespace, *deployments = spread_workload(600)
    assert namespace["kind"] == "Namespace"
    pods = Counter[tuple[str, ...]]()
    for document in deployments:
        assert document["metadata"]["namespace"] == namespace["metadata"]["name"]
        pods[spread_over(document)] += document["spec"]["replicas"]
    assert len(deployments) == 12
    assert pods == {BY_ZONE: 300, BY_NODE: 150, BY_BOTH: 150}


def test_one_deployment_asks_for_arm64_by_the_pod_annotation() -> None:
    annotated = [
        document["metadata"]["name"]
        for document in of_kind(example("workload.yaml"), "Deployment")
        if document["spec"]["template"]["metadata"].get("annotations", {}).get("dovetail.dev/arch") == "arm64"
    ]
    assert annotated == ["thumbnails"]


def test_one_namespace_asks_for_spot_by_its_label() -> None:
    labelled = [
        document["metadata"]["name"]
        for document in of_kind(example("workload.yaml"), "Namespace")
        if document["metadata"].get("labels", {}).get("dovetail.dev/capacity-type") == "spot"
    ]
    assert labelled == ["batch"]


def test_one_deployment_tolerates_the_taint_of_the_tainted_pool() -> None:
    pools = of_kind(example("nodepools.yaml"), "NodePool")
    assert [pool["metadata"]["name"] for pool in pools] == ["general", "dedicated"]
    (taint,) = named(pools, "NodePool", "dedicated")["spec"]["template"]["spec"]["taints"]
    tolerating = {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]["tolerations"]
        for document in of_kind(example("workload.yaml"), "Deployment")
        if document["spec"]["template"]["spec"].get("tolerations")
    }
    assert tolerating == {"ledger": [{"operator": "Equal", **taint}]}


@pytest.mark.parametrize("name", ["general", "dedicated"])
def test_pools_are_at_most_16_cpu_with_the_whole_budget_and_no_delay(name: str) -> None:
    pool = named(example("nodepools.yaml"), "NodePool", name)
    cpu = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["17"]}
    assert cpu in pool["spec"]["template"]["spec"]["requirements"]
    assert pool["spec"]["disruption"]["budgets"] == [{"nodes": "100%"}]
    assert pool["spec"]["disruption"]["consolidateAfter"] == "0s"


def test_every_selector_matches_its_own_template() -> None:
    for name in ("workload.yaml", "bench-basic.yaml"):
        for document in of_kind(example(name), "Deployment", "DaemonSet"):
            labels = document["spec"]["template"]["metadata"]["labels"]
            assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_basic_case_is_500_small_and_500_large_pods() -> None:
    requests = {
        document["metadata"]["name"]: (
            document["spec"]["replicas"],
            document["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"],
        )
        for document in of_kind(example("bench-basic.yaml"), "Deployment")
    }
    assert requests == {
        "small": (500, {"cpu": "900m", "memory": "3100Mi"}),
        "large": (500, {"cpu": "3500m", "memory": "28Gi"}),
    }


def test_scaling_changes_nothing_but_replicas_and_leaves_the_input_alone() -> None:
    workload = example("workload.yaml")
    small = scaled(workload, 100)
    assert pods_of(small) == 100
    assert pods_of(workload) == 1000
    for document in of_kind(small, "Deployment"):
        document["spec"]["replicas"] = named(workload, "Deployment", document["metadata"]["name"])["spec"]["replicas"]
    assert small == workload


@pytest.fixture(scope="module")
def workload() -> list[Document]:
    """The demo's workload, read once."""
    return example("workload.yaml")


@settings(deadline=None)
@given(pods=st.integers(12, 3000))
def test_a_scaled_workload_has_exactly_the_pods_asked_for(workload: list[Document], pods: int) -> None:
    deployments = of_kind(scaled(workload, pods), "Deployment")
    assert pods_of(deployments) == pods
    assert min(document["spec"]["replicas"] for document in deployments) >= 1


def test_fewer_pods_than_deployments_is_refused() -> None:
    with pytest.raises(ValueError, match="11 pods for 12 Deployments"):
        scaled(example("workload.yaml"), 11)


def test_a_built_deployment_counts_its_pods() -> None:
    assert pods_of([deployment("burst", "latency", 50, {"cpu": "1"})]) == 50


BAD = {
    "broken YAML names the file": ("a: [", "cannot be read"),
    "a document that is no object": ("- 1\n- 2\n", "without kind and apiVersion"),
    "an object without kind": ("apiVersion: v1\n", "without kind and apiVersion"),
}


@pytest.mark.parametrize(("text", "want"), BAD.values(), ids=BAD)
def test_bad_files_give_a_sentence(tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ExampleError, match=want) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_says_how_to_get_it_back(tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match="git checkout"):
        load(tmp_path / "gone.yaml")


def test_values_are_renamed_wherever_they_stand_and_keys_are_not() -> None:
    before: Document = {"kind": "a", "a": ["a", {"b": "a"}, 1, "aa"]}
    assert renamed([before], {"a": "z"}) == [{"kind": "z", "a": ["z", {"b": "z"}, 1, "aa"]}]
