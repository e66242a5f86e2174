"""A live cluster: what is read of it, with which rights, and what may be missing."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli.plan.live import take
from provisioner.cli.plan.objects import PlanObjects
from provisioner.kube.client import Client
from provisioner.values.errors import UserError
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi, Sent, page, refusal

POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": []}}
NODE = {"metadata": {"name": "a", "uid": "a"}}


def cluster(answers: Mapping[str, FakeAnswer]) -> FakeApi:
    def respond(sent: Sent) -> FakeAnswer:
        name = sent.path.rpartition("/")[2]
        if f"{name}?{sent.query.get('continue', '')}" in answers:
            return answers[f"{name}?{sent.query.get('continue', '')}"]
        return answers.get(name, refusal(404, "NotFound"))

    return FakeApi(respond=respond)


def taken(answers: Mapping[str, FakeAnswer]) -> tuple[PlanObjects, FakeApi]:
    objects, api = PlanObjects(), cluster(answers)
    take(objects, Client(api, FakeClock()), "cluster c")
    return objects, api


def test_it_only_reads() -> None:
    objects, api = taken({"pods": page(1, POD), "nodes": page(1, NODE)})
    assert {sent.method for sent in api.sent} == {"GET"}
    assert [pod.name for pod in objects.pods] == ["p"]
    assert [node.metadata.name for node in objects.nodes] == ["a"]
    assert objects.problems == []


def test_the_dump_that_the_guide_makes_has_every_kind_that_is_read() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "guides" / "plan" / "README.md").read_text(encoding="utf-8")
    (kinds,) = re.findall(r"kubectl get (\S+) -A -o yaml > dump.yaml", guide)
    short = {"pvc": "persistentvolumeclaims", "pv": "persistentvolumes"}
    _, api = taken({"pods": page(1), "nodes": page(1)})
    plurals = {kind.partition(".")[0] for kind in kinds.split(",")}
    assert {short.get(one, one) for one in plurals} == {sent.path.rpartition("/")[2] for sent in api.sent}


def test_every_page_is_read() -> None:
    other: dict[str, Any] = {**POD, "metadata": {"name": "q", "namespace": "n", "uid": "v"}}
    objects, _ = taken({"pods": page(1, POD, token="more"), "pods?more": page(1, other), "nodes": page(1)})
    assert [pod.name for pod in objects.pods] == ["p", "q"]


def test_what_may_not_be_read_is_told_and_the_rest_counts() -> None:
    objects, _ = taken({"pods": page(1, POD), "nodes": page(1), "persistentvolumes": refusal(403, "Forbidden")})
    assert [str(one) for one in objects.problems] == [
        "cluster c: PersistentVolume: may not be read; grant this user the verb list on persistentvolumes"
    ]


@pytest.mark.parametrize("kind", ["pods", "nodes"])
def test_without_pods_or_nodes_there_is_no_plan(kind: str) -> None:
    answers = {"pods": page(1), "nodes": page(1), kind: refusal(403, "Forbidden")}
    with pytest.raises(UserError, match=f"{kind} may not be read in cluster c. Grant this user"):
        taken(answers)


def test_one_bad_object_stops_no_other() -> None:
    bad = {"metadata": {"name": "bad", "labels": 3}}
    objects, _ = taken({"pods": page(1, POD), "nodes": page(1, bad, NODE)})
    assert [node.metadata.name for node in objects.nodes] == ["a"]
    (problem,) = objects.problems
    assert (problem.object, problem.field) == ("Node bad", "metadata.labels")


def test_objects_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.cli.plan.live.MAX_OBJECTS", 1)
    with pytest.raises(UserError, match="exceeds the limit of 1 objects"):
        taken({"pods": page(1, POD, POD), "nodes": page(1)})
