"""From objects to the question: what counts as running, what is planned, and what the fleet of now costs."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import (
    AnyPodGroup,
    GangPolicy,
    Node,
    NodeSpec,
    NodeStatus,
    PodGroup,
    PodGroupMeta,
    PodGroupPolicy,
    PodGroupSpec,
)
from provisioner.apis.gangs import GroupSource
from provisioner.apis.meta import ObjectMeta, OwnerReference
from provisioner.apis.pods import Pod
from provisioner.cli.plan.catalogues import PlanCatalogue, chosen, default_pool
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.questions import PlanQuestion, current_of, pods_in, question_of
from provisioner.cli.plan.workloads import Workload, decode_workload
from provisioner.support.clock import SystemClock
from provisioner.values.errors import UserError
from tests.support import cluster
from tests.support.podgroups import object_of
from tests.support.problems import shape

TYPE = "m5.large"


def node(name: str, instance_type: str = TYPE, **more: str) -> Node:
    own = {
        names.INSTANCE_TYPE_LABEL: instance_type,
        names.ZONE_LABEL: "us-east-1a",
        names.REGION_LABEL: "us-east-1",
        names.HOSTNAME_LABEL: name,
        **{key.replace("__", "/").replace("_", "-"): value for key, value in more.items()},
    }
    amounts: dict[str, str | int | float] = {"cpu": "2", "memory": "8Gi", "pods": "29"}
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels=own),
        spec=NodeSpec(provider_id=f"aws:///us-east-1a/{name}"),
        status=NodeStatus(capacity=amounts, allocatable=amounts),
    )


def pod(name: str, node_name: str = "", owner: OwnerReference | None = None, cpu: str = "500m") -> Pod:
    return Pod(name=name, namespace="default", uid=name, shape=shape(cpu, "1Gi"), node_name=node_name, owner=owner)


def table_of(objects: PlanObjects) -> PlanCatalogue:
    return chosen("auto", objects)


def asked(objects: PlanObjects, *, anew: bool = False) -> PlanQuestion:
    table = table_of(objects)
    return question_of(objects, pods_in(objects), objects.pools, table, SystemClock(), anew=anew)


def test_pods_on_nodes_stay_and_the_others_are_planned() -> None:
    found = asked(PlanObjects(nodes=[node("a")], pods=[pod("here", "a"), pod("waits")]))
    assert [one.uid for one in found.pods] == ["waits"]
    (there,) = found.world.bins
    assert there.room["cpu"] == 1500


def test_planned_anew_no_worker_is_there() -> None:
    own = {"node_role.kubernetes.io__control_plane": ""}
    plane = node("plane", **own)
    objects = PlanObjects(nodes=[node("a"), plane], pods=[pod("here", "a"), pod("etcd", "plane"), pod("waits")])
    found = asked(objects, anew=True)
    assert sorted(one.uid for one in found.pods) == ["here", "waits"]
    assert [one.node_name for one in found.world.bins] == ["plane"]
    assert all(not one.node_name for one in found.pods)


def test_without_nodes_in_the_input_every_pod_is_planned() -> None:
    assert [one.uid for one in asked(PlanObjects(pods=[pod("here", "a")])).pods] == ["here"]


def test_finished_and_mirror_pods_are_not_planned() -> None:
    static = OwnerReference(api_version="v1", kind="Node", name="a", uid="a", controller=True)
    done = msgspec.structs.replace(pod("done", "a"), phase="Succeeded")
    found = asked(PlanObjects(nodes=[node("a")], pods=[done, pod("static", "a", static), pod("own", "a")]), anew=True)
    assert [one.uid for one in found.pods] == ["own"]


def test_daemons_without_their_daemon_set_take_their_room() -> None:
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="agent", uid="u", controller=True)
    found = asked(
        PlanObjects(nodes=[node("a")], pods=[pod("agent-1", "a", owner, "200m"), pod("agent-2", "b", owner, "200m")]),
        anew=True,
    )
    assert found.pods == ()
    (daemon,) = found.world.daemons
    assert daemon.requests["cpu"] == 200


def test_without_a_node_pool_there_is_a_default_one_and_it_is_said() -> None:
    found = asked(PlanObjects(pods=[pod("p")]))
    (only,) = found.world.pools
    assert only.name == "default"
    assert 'uses a NodePool "default"' in found.notes[0]
    categories = only.requirements["karpenter.k8s.aws/instance-category"].values
    assert categories == {"c", "m", "r"}


def test_nodes_of_a_static_node_pool_stay_and_cost_nothing_more() -> None:
    static = cluster.pool("fixed", replicas=1)
    there = [node("a"), node("b", **{"karpenter.sh__nodepool": "fixed"})]
    objects = PlanObjects(nodes=there, pools=[static], pods=[pod("one", "a"), pod("two", "b")])
    found = asked(objects, anew=True)
    assert [one.node_name for one in found.world.bins] == ["b"]
    assert [one.uid for one in found.pods] == ["one"]
    assert current_of(objects, chosen("ec2:us-east-1", objects), SystemClock()).nodes == 1
    assert "Nodes of static NodePools stay unchanged, and their cost is not shown." in found.notes


def test_the_fleet_of_now_has_the_prices_of_the_catalogue() -> None:
    spot = {"eks.amazonaws.com__capacityType": "SPOT"}
    nodes = [node("a"), node("b"), node("c", "unheard.of"), node("f", eks__amazonaws="x")]
    nodes.append(node("plane", **{"node_role.kubernetes.io__control_plane": ""}))
    nodes.append(node("s", **spot))
    objects = PlanObjects(nodes=nodes)
    now = current_of(objects, table_of(objects), SystemClock())
    assert now.groups == (
        (TYPE, "us-east-1a", "on-demand", 3, 0.096),
        (TYPE, "us-east-1a", "spot", 1, 0.096),
    )
    assert now.unpriced == (("unheard.of", 1),)
    assert now.usd_per_hour == pytest.approx(0.384)


def test_the_catalogue_follows_the_input() -> None:
    assert table_of(PlanObjects()).name == "ec2:us-east-1"
    assert (
        table_of(PlanObjects(nodes=[node("a", **{"topology.kubernetes.io__region": "eu-west-1"})])).name
        == "ec2:eu-west-1"
    )
    kwok = default_pool(chosen("kwok", PlanObjects()))
    assert table_of(PlanObjects(pools=[kwok])).name == "kwok"


@pytest.mark.parametrize("name", ["gcp", "ec2", "ec2:", "ec2:../..", "ec2:US-EAST-1"])
def test_another_catalogue_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="Use --catalogue kwok, kwok:FILE, or ec2:REGION"):
        chosen(name, PlanObjects())


def test_a_file_of_instance_types_is_a_catalogue(tmp_path: Path) -> None:
    offering = {
        "Price": 0.5,
        "Available": True,
        "Requirements": [
            {"key": names.ZONE_LABEL, "operator": "In", "values": ["a"]},
            {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot"]},
        ],
    }
    good = {"name": "own.4x", "architecture": "arm64", "operatingSystems": ["linux"], "offerings": [offering]}
    path = tmp_path / "types.json"
    path.write_text(json.dumps([{**good, "resources": {"cpu": "4", "memory": "8Gi"}}, {**good, "name": "bad"}]))
    table = chosen(f"kwok:{path}", PlanObjects())
    assert [one.name for one in table.types_of(default_pool(table))] == ["own.4x"]
    assert [one for one in table.notes if "(bad) is ignored: resources" in one]
    with pytest.raises(UserError, match="no-such-file: cannot be read"):
        chosen(f"kwok:{tmp_path}/no-such-file", PlanObjects())


ESTIMATED = {"ec2:eu-west-1": "us-east-1", "ec2:us-iso-east-1": "us-east-1", "ec2:cn-northwest-1": "cn-north-1"}


@pytest.mark.parametrize(("catalogue", "source"), ESTIMATED.items())
def test_a_region_without_prices_has_estimates_and_says_so(catalogue: str, source: str) -> None:
    table = chosen(catalogue, PlanObjects())
    assert table.estimated
    assert any(f"estimated from those of {source}" in one for one in table.notes)
    assert table.currency == ("CNY" if source == "cn-north-1" else "USD")
    assert not chosen("ec2:us-east-1", PlanObjects()).estimated


IN_VOLCANO: dict[str, Any] = {
    "metadata": {"annotations": {"scheduling.k8s.io/group-name": "train"}},
    "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "image": "x"}]},
}
IN_PLUGIN: dict[str, Any] = {
    "metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "train"}},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}
GROUP = PodGroup(
    metadata=PodGroupMeta(name="g", namespace="default"),
    spec=PodGroupSpec(scheduling_policy=PodGroupPolicy(gang=GangPolicy(min_count=2))),
)


def workload(kind: str, annotations: dict[str, str] | None = None, **spec: Any) -> Workload:
    template = {
        "metadata": {"annotations": annotations or {}},
        "spec": {"containers": [{"name": "c", "image": "x"}], **spec},
    }
    body = {"metadata": {"name": "w"}, "spec": {"replicas": 2, "parallelism": 2, "template": template}}
    return decode_workload("f", f"{kind} w", kind, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("objects", "minima"),
    [
        (PlanObjects(workloads=[workload("Job", {names.GANG: "train"})]), [2]),
        (PlanObjects(workloads=[workload("Job", {names.GANG: "train", names.GANG_MINIMUM: "3"})]), []),
        (PlanObjects(workloads=[workload("StatefulSet", {names.GANG: "train"})]), []),
        (PlanObjects(workloads=[workload("StatefulSet", {names.GANG: "train", names.GANG_MINIMUM: "2"})]), [2]),
        (PlanObjects(workloads=[workload("Job", schedulingGroup={"podGroupName": "g"})], pod_groups=[GROUP]), [2]),
        (PlanObjects(workloads=[workload("Job", schedulingGroup={"podGroupName": "g"})]), []),
    ],
    ids=["a Job", "more than it has", "none said", "said", "a PodGroup", "a PodGroup that is not there"],
)
def test_pods_of_a_gang_are_planned_together(objects: PlanObjects, minima: list[int]) -> None:
    found = asked(objects)
    assert list(found.world.groups.values()) == minima
    held = any(note.startswith("Pods are not planned, because") for note in found.notes)
    assert held is not bool(found.pods)


MEMBER_GROUPS: dict[str, tuple[AnyPodGroup | None, dict[str, Any], list[int], str]] = {
    "of Volcano, as it is written": (object_of(GroupSource.VOLCANO, phase=""), IN_VOLCANO, [2], ""),
    "of Volcano, admitted": (object_of(GroupSource.VOLCANO), IN_VOLCANO, [2], ""),
    "of Volcano, in its queue": (object_of(GroupSource.VOLCANO, phase="Pending"), IN_VOLCANO, [], "waits in a queue"),
    "of Volcano, that needs more": (
        object_of(GroupSource.VOLCANO, minimum=3),
        IN_VOLCANO,
        [],
        "has 2 of the 3 pods that it needs.",
    ),
    "of Volcano, of no object": (None, IN_VOLCANO, [], ""),
    "of the plugin": (object_of(GroupSource.COSCHEDULING), IN_PLUGIN, [2], ""),
}


@pytest.mark.parametrize(("group", "template", "minima", "note"), MEMBER_GROUPS.values(), ids=MEMBER_GROUPS)
def test_pods_of_another_scheduler_are_planned_with_their_group(
    group: AnyPodGroup | None, template: dict[str, Any], minima: list[int], note: str
) -> None:
    body = {"metadata": {"name": "w"}, "spec": {"replicas": 2, "template": template}}
    one = decode_workload("f", "Deployment w", "Deployment", json.dumps(body).encode())
    found = asked(PlanObjects(workloads=[one], pod_groups=[group] if group is not None else []))
    assert list(found.world.groups.values()) == minima
    assert len(found.pods) == (0 if note else 2)
    assert any(note in one for one in found.notes)


def test_a_job_that_is_not_there_is_told_and_its_pods_are_single() -> None:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="u", controller=True)
    one = msgspec.structs.replace(pod("a", owner=owner), annotations={names.GANG: "train"})
    found = asked(PlanObjects(pods=[one]))
    assert ([each.name for each in found.pods], found.world.groups) == (["a"], {})
    assert any("has no Job default/train," in note for note in found.notes)
