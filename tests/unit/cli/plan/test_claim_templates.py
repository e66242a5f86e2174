"""StatefulSets with volumeClaimTemplates: every pod has claims of its own, made where their StorageClass allows."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.apis import names
from provisioner.apis.shapes import PodShape, altered_shape
from provisioner.cli.plan import workloads
from provisioner.cli.plan.catalogues import chosen
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.questions import PlanQuestion, pods_in, question_of
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.result import Result
from provisioner.support.clock import SystemClock
from tests.support.manifests import plan_objects

ZONES = ("us-east-1a", "us-east-1b")


def stateful(replicas: int = 2, storage_class: str | None = "disk", size: str = "10Gi", **spec: Any) -> dict[str, Any]:
    claim: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        claim["storageClassName"] = storage_class
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "db", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
            **spec,
        },
    }


def kind(name: str = "disk", zone: str = "", provisioner: str = "ebs.csi.aws.com", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, **more},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    if zone:
        term = {"matchLabelExpressions": [{"key": names.ZONE_LABEL, "values": [zone]}]}
        found["allowedTopologies"] = [term]
    return found


def bound(claim: str, zone: str) -> list[dict[str, Any]]:
    """A claim that exists, and its volume, which is in a zone."""
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    where = {"matchExpressions": [{"key": names.ZONE_LABEL, "operator": "In", "values": [zone]}]}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": "shop", "annotations": done},
            "spec": {"storageClassName": "disk", "volumeName": f"pv-{claim}"},
            "status": {"phase": "Bound"},
        },
        volume(f"pv-{claim}", where, "100Gi", "disk"),
    ]


def volume(name: str, where: dict[str, Any], size: str, storage_class: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [where]}},
        },
    }


def asked(tmp_path: Path, *documents: dict[str, Any]) -> tuple[PlanQuestion, PlanObjects]:
    path, objects = tmp_path / "objects.yaml", PlanObjects()
    path.write_text(yaml.safe_dump_all(documents))
    objects.read(path)
    table = chosen("ec2:us-east-1", objects)
    return question_of(objects, pods_in(objects), objects.pools, table, SystemClock(), anew=False), objects


def solved(question: PlanQuestion) -> Result:
    return prepare(question.world).solve(question.pods)


def zones(result: Result) -> dict[str, set[str]]:
    """By pod, the zones in which its node may be."""
    return {
        pod.name: set(claim.requirements[names.ZONE_LABEL].values) if names.ZONE_LABEL in claim.requirements else set()
        for claim in result.claims
        for pod in claim.pods
    }


@pytest.mark.parametrize("zone", ZONES)
def test_pods_go_where_the_storage_class_makes_volumes(tmp_path: Path, zone: str) -> None:
    question, objects = asked(tmp_path, stateful(), kind(zone=zone))
    assert not objects.problems
    assert zones(solved(question)) == {"db-0": {zone}, "db-1": {zone}}
    assert "The cost of 2 volumes yet to be created is not included." in question.notes
    assert not any("StorageClass" in note for note in question.notes)


def test_without_a_class_that_is_the_clusters_default_the_default_one_counts(tmp_path: Path) -> None:
    default: dict[str, Any] = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    question, _ = asked(tmp_path, stateful(1, None), kind("usual", ZONES[1], **default), kind("other", ZONES[0]))
    assert zones(solved(question)) == {"db-0": {ZONES[1]}}


def test_a_claim_that_exists_keeps_its_pod_in_the_zone_of_its_volume(tmp_path: Path) -> None:
    question, _ = asked(
        tmp_path, stateful(3, ordinals={"start": 4}), kind(zone=ZONES[0]), *bound("data-db-5", ZONES[1])
    )
    assert zones(solved(question)) == {"db-4": {ZONES[0]}, "db-5": {ZONES[1]}, "db-6": {ZONES[0]}}


@pytest.mark.parametrize(("storage_class", "said"), [("fast", "StorageClass fast,"), (None, "StorageClass (default),")])
def test_a_class_that_the_input_lacks_makes_volumes_anywhere_and_it_is_said(
    tmp_path: Path, storage_class: str | None, said: str
) -> None:
    question, _ = asked(tmp_path, stateful(2, storage_class), kind())
    result = solved(question)
    assert not result.unplaced
    assert sum(len(claim.pods) for claim in result.claims) == 2
    assert any(said in note for note in question.notes)


def test_volumes_of_a_class_without_a_provisioner_are_given_by_size_each_to_one_pod(tmp_path: Path) -> None:
    where = {"matchExpressions": [{"key": names.ZONE_LABEL, "operator": "In", "values": [ZONES[0]]}]}
    disks = [
        volume("small", where, "5Gi", "local"),
        volume("one", where, "10Gi", "local"),
        volume("two", where, "20Gi", "local"),
    ]
    local = kind("local", provisioner="kubernetes.io/no-provisioner")
    question, _ = asked(tmp_path, stateful(3, "local"), local, *disks)
    result = solved(question)
    assert sum(len(claim.pods) for claim in result.claims) == 2
    assert len(result.unplaced) == 1


def test_a_template_goes_before_a_volume_of_its_name(tmp_path: Path) -> None:
    one = stateful(1)
    one["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
    question, _ = asked(tmp_path, one, kind())
    assert not solved(question).unplaced


def test_a_template_without_a_name_is_named_with_its_field(tmp_path: Path) -> None:
    one = stateful()
    one["spec"]["volumeClaimTemplates"].append({"spec": {}})
    _, objects = asked(tmp_path, one)
    (problem,) = objects.problems
    assert problem.field == "spec.volumeClaimTemplates[1].metadata.name"
    assert problem.text.startswith("a name is missing;")


def test_only_a_stateful_set_has_claim_templates(tmp_path: Path) -> None:
    one = stateful() | {"kind": "Deployment"}
    question, _ = asked(tmp_path, one)
    assert all(not pod.shape.volumes for pod in question.pods)
    assert len(question.pods) == 2


def many(templates: int, replicas: int) -> dict[str, Any]:
    one = stateful(replicas)
    (template,) = one["spec"]["volumeClaimTemplates"]
    one["spec"]["volumeClaimTemplates"] = [{**template, "metadata": {"name": f"d{each}"}} for each in range(templates)]
    return one


def read(*documents: dict[str, Any]) -> PlanObjects:
    return plan_objects(json.dumps({"kind": "List", "items": documents}), "objects.json")


def test_pods_whose_claims_are_yet_to_be_made_cost_no_shape_each(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[PodShape] = []

    def noted(shape: PodShape, **fields: Any) -> PodShape:
        made.append(altered_shape(shape, **fields))
        return made[-1]

    monkeypatch.setattr(workloads, "altered_shape", noted)
    objects = read(many(20, 50), *bound("d3-db-7", ZONES[0]))
    shapes = {pod.name: pod.shape for pod in pods_in(objects)}
    assert len(made) == 2, "of a pod with a claim that exists, and of all others"
    assert {name for name, shape in shapes.items() if shape is not shapes["db-0"]} == {"db-7"}


def test_more_claims_than_can_be_planned_are_refused_by_name() -> None:
    objects = read(many(3_000, 1_000), stateful(2))
    assert [pod.name for pod in pods_in(objects)] == ["db-0", "db-1"]
    (problem,) = objects.problems
    assert problem.field == "spec.volumeClaimTemplates"
    assert "3,000 templates times 1,000 replicas would make more than 200,000" in problem.text
