"""Objects out of files: what is taken, what is expanded, and how each mistake is told while the others count."""

from typing import Any

import msgspec
import pytest

from provisioner.apis.pods import Pod
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.questions import pods_in
from provisioner.cli.plan.workloads import workload_of
from tests.support.manifests import plan_objects

FILE = "some.json"


def read(*objects: dict[str, Any]) -> PlanObjects:
    return plan_objects(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(objects)}), FILE)


def template(cpu: object = "1", **labels: str) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container]}}


def workload(kind: str, name: str, count: int = 3, *, version: str = "apps/v1", **more: Any) -> dict[str, Any]:
    spec = {"replicas": count, "template": template(app=name)}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **more}, "spec": spec}


def owned(name: str, kind: str, owner: str, **labels: str) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels, "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template()["spec"]}


def names(pods: tuple[Pod, ...]) -> list[str]:
    return sorted(pod.name for pod in pods)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet"])
def test_replicas_become_pods(kind: str) -> None:
    pods = pods_in(read(workload(kind, "web")))
    assert names(pods) == ["web-0", "web-1", "web-2"]
    assert len({pod.uid for pod in pods}) == 3
    assert {workload_of(pod) for pod in pods} == {f"{kind} default/web"}
    assert all(pod.shape.requests["cpu"] == 1000 for pod in pods)


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 5}, 5),
        ({"parallelism": 5, "completions": 2}, 2),
        ({"parallelism": 5, "suspend": True}, 0),
    ],
)
def test_a_job_has_the_pods_that_run_at_once(spec: dict[str, Any], count: int) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {**spec, "template": template()},
    }
    assert len(pods_in(read(job))) == count


def test_a_finished_job_has_none() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template()}}
    assert not pods_in(read({**job, "status": {"completionTime": "2026-01-01T00:00:00Z"}}))


def test_limits_are_requests_where_there_are_none_as_the_api_server_does() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]},
    }
    (one,) = pods_in(read(pod))
    assert one.shape.requests["cpu"] == 2000


def test_pods_that_are_there_are_not_counted_again() -> None:
    replica_set = workload(
        "ReplicaSet", "web-abc", ownerReferences=[{"kind": "Deployment", "name": "web", "uid": "u", "controller": True}]
    )
    pods = [owned(f"web-abc-{n}", "ReplicaSet", "web-abc", **{"pod-template-hash": "abc"}) for n in range(2)]
    assert names(pods_in(read(workload("Deployment", "web"), replica_set, *pods))) == ["web-abc-0", "web-abc-1"]
    assert names(pods_in(read(workload("Deployment", "web"), *pods))) == ["web-abc-0", "web-abc-1"]
    assert len(pods_in(read(workload("Deployment", "web"), replica_set))) == 3
    assert len(pods_in(read(workload("Deployment", "other"), *pods))) == 5


def test_the_priority_of_a_class_counts() -> None:
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 7,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"priorityClassName": "urgent"}}
    (one,) = pods_in(read(urgent, pod))
    assert one.shape.priority == 7


def pool(**spec: Any) -> dict[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    inner = {"nodeClassRef": reference, "requirements": [], **spec}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "p"},
        "spec": {"template": {"spec": inner}},
    }


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a number where a text belongs": (
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": 1}}},
        "some.json: Pod p: metadata.labels[a]: Expected `str`, got `int`; write the value in quotes",
    ),
    "a truth where a text belongs, deep inside": (
        workload("Deployment", "w")
        | {
            "spec": {
                "template": {
                    "spec": {
                        "containers": [
                            {"name": "a"},
                            {"name": "b", "resources": {"limits": {"cpu": "1", "memory": True}}},
                        ]
                    }
                }
            }
        },
        "some.json: Deployment w: spec.template.spec.containers[1].resources.limits[memory]: Expected",
    ),
    "a text where a number belongs": (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "w", "namespace": "n"},
            "spec": {"replicas": "3"},
        },
        "some.json: Deployment n/w: spec.replicas: Expected `int | null`, got `str`; see `kubectl explain deployment.spec.replicas`",
    ),
    "too many replicas": (
        workload("Deployment", "w", 10**7),
        "some.json: Deployment w: spec.replicas: 10000000 is not between 0 and 100,000; see",
    ),
    "a quantity that is none": (
        {**workload("Deployment", "w"), "spec": {"template": template("many")}},
        "some.json: Deployment w: spec.template.spec.containers[0].resources.requests",
    ),
    "no name": (
        {"apiVersion": "v1", "kind": "Pod", "metadata": {}},
        "metadata.name: is missing; give the object a name",
    ),
    "no kind": ({"apiVersion": "v1", "metadata": {"name": "p"}}, "kind: is missing"),
    "no such version": (
        {**pool(), "apiVersion": "karpenter.sh/v1beta1"},
        "NodePool p: apiVersion: karpenter.sh/v1beta1 NodePool is not supported; use one of",
    ),
    "a requirement that nobody can read": (
        pool(requirements=[{"key": "kubernetes.io/arch", "operator": "Near", "values": ["x"]}]),
        "some.json: NodePool p: spec.template.spec.requirements[0]",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_and_stops_nothing_else(mistake: tuple[dict[str, Any], str]) -> None:
    bad, says = mistake
    found = read(bad, workload("Deployment", "good"))
    assert len(pods_in(found)) == 3
    (problem,) = found.problems
    assert says in str(problem)
    assert not found.pools


def test_an_unknown_field_of_a_pool_is_told_and_the_pool_is_planned_with() -> None:
    misspelt = pool(taintz=[{"key": "a", "effect": "NoSchedule"}])
    misspelt["spec"]["disruptoin"] = {"consolidateAfter": "1m"}
    found = read(misspelt, workload("Deployment", "good"))
    assert (len(found.pools), found.problems) == (1, [])
    assert found.notes == [
        "The plan ignores spec.template.spec.taintz of NodePool p: unknown field; did you mean taints?",
        "The plan ignores spec.disruptoin of NodePool p: unknown field; did you mean disruption?",
    ]


def test_notes_are_bounded() -> None:
    misspelt = pool(**{f"field{number}": 1 for number in range(50)})
    assert len(read(misspelt).notes) == 20


def test_a_dump_of_a_typed_list_is_read() -> None:
    items = [{"metadata": {"name": "a", "labels": {}}, "spec": {}, "status": {}}]
    found = plan_objects(msgspec.json.encode({"apiVersion": "v1", "kind": "NodeList", "items": items}), FILE)
    assert [node.metadata.name for node in found.nodes] == ["a"]


def test_what_a_plan_does_not_depend_on_is_counted() -> None:
    found = read({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": None})
    assert (found.ignored, found.problems) == ({"ConfigMap": 1}, [])


def test_pods_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.cli.plan.questions.MAX_PODS", 5)
    found = read(workload("Deployment", "a"), workload("Deployment", "b"), workload("Deployment", "c", 2))
    assert len(pods_in(found)) == 5
    assert [problem.object for problem in found.problems] == ["Deployment b"]


def test_objects_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.cli.plan.objects.MAX_OBJECTS", 2)
    found = read(*[workload("Deployment", name, 1) for name in "abc"])
    assert len(pods_in(found)) == 2
    assert "more than 2 objects" in str(found.problems[0])


def test_a_file_without_objects_and_one_of_something_else_are_told() -> None:
    found = plan_objects("# nothing\n", "empty.yaml")
    plan_objects("[1, 2]\n", "list.yaml", found)
    assert [str(one).partition(";")[0] for one in found.problems] == [
        "empty.yaml: contains no objects",
        "list.yaml: is not a Kubernetes object",
    ]
