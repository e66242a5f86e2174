"""Pods of a simulated day have what the API server and its admission add to their templates."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.kube.resources import PODS
from provisioner.simulator.admission import PodAdmission
from provisioner.simulator.errors import SimulationError
from provisioner.simulator.simulation import simulated
from provisioner.simulator.workload import Apply, Arrival, End, OwnerKind, Scale, day_of
from tests.support.admissions import NAMESPACE, ROWS, Row
from tests.unit.simulator.days import pool, setting, template
from tests.unit.simulator.test_owners import Cluster

RANGE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "small", "namespace": "default"},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1500m", "memory": "1Gi"}}]},
}
KATA: dict[str, Any] = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "500m"}},
    "scheduling": {"nodeSelector": {"sandbox": "kata"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]},
}
NAMES = {"runtime": "kata", "priority": "important", "pool": "team"}
OTHER_NODES: dict[str, Any] = {**KATA, "scheduling": {"nodeSelector": {"sandbox": "other"}}}


def containers(**resources: dict[str, str]) -> dict[str, Any]:
    """A template of one container with these."""
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "resources": resources}]}}


def pod(cluster: Cluster, made_of: dict[str, Any], name: str = "web") -> dict[str, Any]:
    cluster.owners.arrive(Arrival(at=0, name=name, template=made_of))
    spec: dict[str, Any] = cluster.pod(f"{name}-0")["spec"]
    return spec


def test_limits_are_requests() -> None:
    (main,) = pod(Cluster(), containers(limits={"cpu": "2", "memory": "2Gi"}))["containers"]
    assert main["resources"]["requests"] == {"cpu": "2", "memory": "2Gi"}


def test_limit_ranges_of_the_namespace_give_requests_as_long_as_they_are_there() -> None:
    cluster = Cluster()
    cluster.server.store("limitranges", RANGE)
    cluster.server.store("limitranges", {**RANGE, "metadata": {"name": "small", "namespace": "shop"}, "spec": {}})
    requests = [pod(cluster, containers(), "web")["containers"][0]["resources"]["requests"]]
    bigger = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "3"}}]}
    cluster.server.store("limitranges", {**RANGE, "spec": bigger})
    requests.append(pod(cluster, containers(), "other")["containers"][0]["resources"]["requests"])
    cluster.server.remove("limitranges", "small", "default")
    last = pod(cluster, containers(), "last")["containers"][0]
    assert requests == [{"cpu": "1500m", "memory": "1Gi"}, {"cpu": "3"}]
    assert not last["resources"]


def test_runtime_classes_give_overhead_selector_and_tolerations() -> None:
    cluster = Cluster()
    cluster.server.store("runtimeclasses", KATA)
    spec = pod(cluster, template("web", runtimeClassName="kata", nodeSelector={"disk": "fast"}))
    assert spec["overhead"] == {"cpu": "500m"}
    assert spec["nodeSelector"] == {"disk": "fast", "sandbox": "kata"}
    assert {"key": "sandbox", "operator": "Exists"} in spec["tolerations"]
    assert not cluster.owners.notes


def test_pods_of_daemons_are_admitted_too() -> None:
    cluster = Cluster()
    meta = {"name": "log", "namespace": "default"}
    wanted = {**containers(), "spec": {**containers()["spec"], "runtimeClassName": "kata"}}
    cluster.server.store("daemonsets", {"metadata": meta, "spec": {"selector": {}, "template": wanted}})
    for name, labels in (("a", {}), ("b", {"sandbox": "kata"}), ("c", {})):
        cluster.server.store("nodes", {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {}})
        if name == "a":
            assert cluster.pods() == ["log-a"]
            cluster.server.store("limitranges", RANGE)
            cluster.server.store("runtimeclasses", KATA)
    assert cluster.pods() == ["log-a", "log-b"], "since the class came, it selects nodes"
    spec = cluster.pod("log-b")["spec"]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi"}
    assert spec["overhead"] == {"cpu": "500m"}
    assert {"node.kubernetes.io/not-ready", "node.kubernetes.io/disk-pressure"} <= {
        one.get("key") for one in spec["tolerations"]
    }


@pytest.mark.parametrize(
    "row",
    [one for one in ROWS.values() if not one.settings],
    ids=[name for name, one in ROWS.items() if not one.settings],
)
def test_a_simulated_pod_is_what_admission_and_the_webhook_make_of_its_template(row: Row) -> None:
    """Settings of namespaces are left out: a day has no Namespaces."""
    cluster = Cluster()
    for path, body in row.objects(NAMES):
        cluster.server.store(path.rpartition("/")[2], body)
    template = {"metadata": {"annotations": row.marks(row.annotations, NAMES)}, "spec": row.body(NAMES)}
    template["metadata"]["labels"] = {"app": "web"}
    kind: OwnerKind = "Deployment" if row.workload else "Pod"
    cluster.owners.arrive(Arrival(at=0, name="web", namespace=NAMESPACE, kind=kind, template=template))
    found = cluster.server.get("pods", "web-0", NAMESPACE)
    assert found is not None
    made, admitted = PODS.decode(msgspec.json.encode(found)), row.made(NAMES)
    for field in ("requests", "node_selector", "tolerations", "affinity", "spread", "host_ports", "priority", "labels"):
        assert getattr(made.shape, field) == getattr(admitted.shape(NAMESPACE), field), field
    assert dict(made.shape.requests) == row.want
    annotations = found["metadata"].get("annotations", {})
    assert annotations == admitted.template.metadata.annotations
    record = annotations.get(names.STAMPED_ANNOTATION, "")
    assert {entry.partition("=")[0] for entry in record.split("; ") if entry} == row.stamps


def test_a_pod_that_replaces_another_is_on_its_side_of_a_share() -> None:
    cluster = Cluster()
    wanted = template("web")
    wanted["metadata"]["annotations"] = {names.STAMP_ON_DEMAND: "40%"}
    cluster.owners.arrive(Arrival(at=0, name="web", template=wanted, count=5))

    def sides() -> list[str]:
        pods = [cluster.pod(name) for name in cluster.pods()]
        return [one["metadata"]["labels"][names.ON_DEMAND_SHARE_LABEL] for one in pods]

    assert sorted(sides()) == ["on-demand"] * 2 + ["spot"] * 3
    for name, there in zip(cluster.pods(), sides(), strict=True):
        if there == "on-demand":
            cluster.server.remove("pods", name, "default")
    assert len(cluster.pods()) == 5
    assert sorted(sides()) == ["on-demand"] * 2 + ["spot"] * 3
    cluster.owners.scale(Scale(at=1, name="web", count=10))
    assert sorted(sides()) == ["on-demand"] * 4 + ["spot"] * 6
    for count in (1, 3):
        cluster.owners.scale(Scale(at=2, name="web", count=count))
        cluster.pods()
    assert sides().count("on-demand") == 2, "the places that are free again are taken from the first on"


def test_pods_tolerate_the_taints_that_their_nodepool_has_when_they_come() -> None:
    cluster = Cluster()
    wanted = template("web")
    wanted["metadata"]["annotations"] = {names.STAMP_NODEPOOL: "general"}
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}

    def tolerated(name: str) -> bool:
        return any(one.get("key") == "team" for one in pod(cluster, wanted, name)["tolerations"])

    plain = pool()
    tainted = {**plain, "spec": {"template": {"spec": {**plain["spec"]["template"]["spec"], "taints": [taint]}}}}
    seen = []
    for name, one in (("first", plain), ("second", tainted), ("third", {**tainted, "status": {"nodes": 1}})):
        cluster.server.store("nodepools", one)
        seen.append(tolerated(name))
    cluster.server.remove("nodepools", "general")
    assert [*seen, tolerated("last")] == [False, True, True, False]


def test_a_template_is_read_once_while_no_object_changes() -> None:
    admission = PodAdmission()
    first = admission.body(template("web"), "default")
    assert admission.body(template("web"), "default") is first
    assert not admission.applied(pool())
    assert admission.body(template("web"), "default") is first
    assert admission.body(template("web"), "shop") is not first
    assert admission.applied(RANGE)
    assert admission.body(template("web"), "default") is not first


def test_pods_share_nothing_that_could_be_changed() -> None:
    body = PodAdmission().body(template("web"), "default")
    one, other = body.pod("one", "default"), body.pod("other", "default")
    one["spec"]["containers"].clear()
    one["metadata"]["labels"].clear()
    assert other["spec"]["containers"]
    assert other["metadata"]["labels"] == {"app": "web"}


def test_who_is_refused_later_is_noted_and_made_when_it_may_be() -> None:
    cluster = Cluster()
    cluster.server.store("runtimeclasses", KATA)
    pod(cluster, template("web", runtimeClassName="kata", nodeSelector={"sandbox": "kata"}))
    cluster.clock.seconds = 60.0
    cluster.server.store("runtimeclasses", OTHER_NODES)
    cluster.owners.scale(Scale(at=60, name="web", count=2))
    cluster.clock.seconds = 70.0
    cluster.owners.scale(Scale(at=70, name="web", count=3))
    assert cluster.pods() == ["web-0"]
    (note,) = cluster.owners.notes
    assert note.startswith(
        "The API server refuses pods of Deployment default/web from 60 s on: RuntimeClass kata selects"
    )
    cluster.server.store("runtimeclasses", KATA)
    assert cluster.pods() == ["web-0", "web-1", "web-2"]


def test_who_was_refused_and_has_ended_is_not_made() -> None:
    cluster = Cluster()
    cluster.server.store("runtimeclasses", OTHER_NODES)
    cluster.owners.arrive(
        Arrival(at=0, name="web", template=template("web", runtimeClassName="kata", nodeSelector={"sandbox": "kata"}))
    )
    cluster.owners.end(End(at=1, name="web"))
    cluster.server.store("runtimeclasses", KATA)
    assert cluster.pods() == []


def test_classes_that_the_day_does_not_have_are_noted_once() -> None:
    cluster = Cluster()
    for name in ("web", "other"):
        pod(cluster, template("web", runtimeClassName="kata", priorityClassName="high"), name)
    assert cluster.owners.notes == (
        "The day has no PriorityClass high; its additions to pods are not included.",
        "The day has no RuntimeClass kata; its additions to pods are not included.",
    )


ARRIVAL: dict[str, Any] = {
    "type": "Arrival",
    "at": 5,
    "name": "web",
    "template": template("web", runtimeClassName="kata", nodeSelector={"sandbox": "kata"}),
}
APPLY: dict[str, Any] = {"type": "Apply", "at": 3, "object": OTHER_NODES}


def test_a_day_whose_template_is_refused_is_an_error_with_its_field() -> None:
    day: dict[str, Any] = {"durationSeconds": 60, "changes": [ARRIVAL]}
    refused = r"day.yaml: changes\[0\].template: the API server refuses its pods: RuntimeClass kata selects nodes"
    with pytest.raises(SimulationError, match=refused):
        day_of(day, "day.yaml", [OTHER_NODES])
    day_of(day, "day.yaml", [KATA])
    day_of({**day, "changes": [ARRIVAL, {**APPLY, "at": 6}]}, "day.yaml", [KATA])  # its pods are there before
    with pytest.raises(SimulationError, match=r"changes\[1\].template: the API server refuses"):
        day_of({**day, "changes": [APPLY, ARRIVAL]}, "day.yaml", [KATA])
    with pytest.raises(SimulationError, match=r"changes\[2\].template: the API server refuses"):
        day_of({**day, "changes": [{**ARRIVAL, "at": 1}, APPLY, {**ARRIVAL, "name": "other"}]}, "day.yaml", [KATA])
    with pytest.raises(SimulationError, match=r"changes\[0\].template: the API server refuses its pods: spec.overhead"):
        day_of({**day, "changes": [{**ARRIVAL, "template": template("web", overhead={"cpu": "1"})}]}, "day.yaml")


def test_objects_of_a_day_that_are_wrong_are_an_error_with_their_field() -> None:
    wrong = {**RANGE, "spec": {"limits": 3}}
    with pytest.raises(SimulationError, match=r"day.yaml: changes\[0\].object: .* at `\$.spec.limits`"):
        day_of({"durationSeconds": 60, "changes": [{**APPLY, "object": wrong}]}, "day.yaml")


def test_in_a_day_what_is_added_needs_nodes() -> None:
    """Without requests, all four pods are on one node of the smallest type; with 1.5 CPU each, two of them fill one of 4."""
    four = Arrival(at=5, name="web", template=containers(), count=4)
    fixed = pool(sizes=("4",), consolidateAfter="Never")
    assert simulated(setting(four, seconds=120, objects=(fixed,)), 1).launches == 1
    limited = simulated(setting(four, seconds=120, objects=(fixed, RANGE)), 1)
    assert (limited.unbound, limited.launches) == (0, 2)
    sandboxed = Arrival(at=5, name="web", template=template("web", runtimeClassName="kata"), count=4)
    labelled = pool(sizes=("4",), labels={"sandbox": "kata"}, consolidateAfter="Never")
    applied = Apply(at=3, object=KATA)
    assert simulated(setting(sandboxed, seconds=120, objects=(labelled,)), 1).notes
    found = simulated(setting(applied, sandboxed, seconds=120, objects=(labelled,)), 1)
    assert (found.unbound, found.launches, found.notes) == (0, 2, ())
    nowhere = simulated(setting(applied, sandboxed, seconds=120, objects=(fixed,)), 1)
    assert (nowhere.unbound, nowhere.launches) == (4, 0), "the NodePool has no nodes that the class selects"
