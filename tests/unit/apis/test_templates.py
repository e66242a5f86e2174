"""What the API server and its admission make of a template; tests/integration/test_templates.py asks a real one about the same rows."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.templates import Admission, Admitted, admitted, admitted_pods, are_of_eks
from provisioner.values.taints import Toleration
from tests.support.admissions import NAMESPACE, ROWS, Row

NAMES = {"runtime": "kata", "priority": "important", "pool": "team"}
KATA = Toleration(key="sandbox", value="kata", effect="NoSchedule")


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_template_asks_for_what_its_pod_will(row: Row) -> None:
    made = row.made(NAMES)
    assert (made.refusal, made.unknown) == ("", ())
    assert dict(made.shape(NAMESPACE).requests) == row.want
    record = made.template.metadata.annotations.get(names.STAMPED_ANNOTATION, "")
    assert {entry.partition("=")[0] for entry in record.split("; ") if entry} == row.stamps


def test_a_runtime_class_selects_nodes() -> None:
    row = ROWS["a RuntimeClass with overhead, selector and tolerations"]
    shape = row.made(NAMES).shape(NAMESPACE)
    assert shape.node_selector == {"tier": "gold", "sandbox": "kata"}
    assert KATA in shape.tolerations


def test_a_priority_class_gives_its_value_and_policy() -> None:
    row = ROWS["a PriorityClass"]
    shape = row.made(NAMES).shape(NAMESPACE)
    assert (shape.priority, shape.preemption_policy) == (1000, "Never")


UNKNOWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "a RuntimeClass": ("a RuntimeClass with overhead, selector and tolerations", ("RuntimeClass kata",)),
    "a PriorityClass": ("a PriorityClass", ("PriorityClass important",)),
    "both": ("all at once", ("PriorityClass important", "RuntimeClass kata")),
}


@pytest.mark.parametrize(("row", "unknown"), UNKNOWN.values(), ids=UNKNOWN)
def test_classes_that_nobody_knows_are_named_and_the_rest_counts(row: str, unknown: tuple[str, ...]) -> None:
    made = admitted(ROWS[row].template(NAMES), NAMESPACE, Admission())
    assert made.unknown == unknown
    assert made.shape(NAMESPACE).requests["cpu"] > 0


REFUSED: dict[str, tuple[Row, str]] = {
    "another overhead than the RuntimeClass's": (
        Row(
            {"containers": [], "runtimeClassName": "{runtime}", "overhead": {"cpu": "1"}},
            {},
            runtime={"overhead": {"podFixed": {"cpu": "2"}}},
        ),
        "spec.overhead differs from that of RuntimeClass kata",
    ),
    "an overhead without a RuntimeClass": (
        Row({"containers": [], "overhead": {"cpu": "1"}}, {}),
        "spec.overhead is set, but no RuntimeClass of the pod defines one",
    ),
    "an overhead that the RuntimeClass does not have": (
        Row(
            {"containers": [], "runtimeClassName": "{runtime}", "overhead": {"cpu": "1"}},
            {},
            runtime={"scheduling": {"nodeSelector": {"a": "b"}}},
        ),
        "spec.overhead is set, but no RuntimeClass of the pod defines one",
    ),
    "another selector than the RuntimeClass's": (
        Row(
            {"containers": [], "runtimeClassName": "{runtime}", "nodeSelector": {"a": "b"}},
            {},
            runtime={"scheduling": {"nodeSelector": {"a": "c"}}},
        ),
        "RuntimeClass kata selects nodes with a=c, but spec.nodeSelector has a=b",
    ),
}


@pytest.mark.parametrize(("row", "why"), REFUSED.values(), ids=REFUSED)
def test_what_the_api_server_refuses_is_said(row: Row, why: str) -> None:
    assert why in row.made(NAMES).refusal


def test_the_same_overhead_in_other_words_is_no_other() -> None:
    spec = {"containers": [], "runtimeClassName": "{runtime}", "overhead": {"cpu": "1000m"}}
    row = Row(spec, {}, runtime={"overhead": {"podFixed": {"cpu": "1"}}})
    assert not row.made(NAMES).refusal


SHARES: dict[str, tuple[int, int, list[tuple[int, str]]]] = {
    "the first": (1, 0, [(1, "on-demand")]),
    "all of ten": (10, 0, [(3, "on-demand"), (7, "spot")]),
    "the next after ten": (4, 10, [(2, "on-demand"), (2, "spot")]),
    "none on demand for the next": (2, 4, [(2, "spot")]),
    "none at all": (0, 0, [(0, "")]),
}


@pytest.mark.parametrize(("count", "standing", "want"), SHARES.values(), ids=SHARES)
def test_the_pods_of_an_owner_are_on_both_sides_of_its_share(
    count: int, standing: int, want: list[tuple[int, str]]
) -> None:
    row = ROWS["the first pod of a share on demand"]
    made = admitted_pods(row.template(NAMES), Admission(), row.facts(NAMES), count, standing)
    assert [(some, one.template.metadata.labels.get(names.ON_DEMAND_SHARE_LABEL, "")) for some, one in made] == want


TOLERATED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a GPU": ({"limits": {"nvidia.com/gpu": "1"}}, ["nvidia.com/gpu"]),
    "what is Kubernetes' own": ({"requests": {"cpu": "1", "kubernetes.io/batch-cpu": "1", "hugepages-2Mi": "2Mi"}}, []),
}


@pytest.mark.parametrize(("resources", "want"), TOLERATED.values(), ids=TOLERATED)
def test_on_eks_a_pod_tolerates_the_taints_of_its_resources(resources: dict[str, Any], want: list[str]) -> None:
    row = Row({"containers": [{"name": "c", "resources": resources}]}, {})
    tolerated = {
        extended: keys_of(admitted(row.template(NAMES), NAMESPACE, Admission(extended=extended)))
        for extended in (True, False)
    }
    assert sorted(tolerated[True] - tolerated[False]) == want


def keys_of(made: Admitted) -> set[str]:
    return {one.key for one in made.template.spec.tolerations if one.effect == "NoSchedule"}


def test_a_kubelet_of_eks_says_where_the_cluster_is() -> None:
    def node(version: str) -> Node:
        return msgspec.convert({"status": {"nodeInfo": {"kubeletVersion": version}}}, Node)

    assert are_of_eks([node("v1.36.1"), node("v1.36.1-eks-1a2b3c4")])
    assert not are_of_eks([node("v1.36.1"), node("")])
