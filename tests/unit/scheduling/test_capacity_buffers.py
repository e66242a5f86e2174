"""CapacityBuffers as virtual pods: core spec 1.4, 3.12, rows 18-20."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.buffer import CapacityBuffer
from provisioner.apis.core import PodTemplateSpec
from provisioner.scheduling.capacity_buffers import (
    LEAST_PRIORITY,
    MOST_UNITS,
    ResolutionError,
    Template,
    buffer_of,
    is_ours,
    is_virtual,
    kept,
    virtual_pods,
)
from tests.support.cluster import pod

META = {"name": "room", "namespace": "default", "uid": "u"}
CONTAINER = {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}


def buffer(**spec: Any) -> CapacityBuffer:
    return msgspec.convert({"metadata": META, "spec": spec}, CapacityBuffer, strict=False)


def template(replicas: int | None = None, **spec: Any) -> Template:
    body = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER], **spec}}
    return Template(msgspec.convert(body, PodTemplateSpec, strict=False), replicas=replicas)


UNITS: dict[str, tuple[dict[str, Any], int | None, int]] = {
    "replicas": ({"replicas": 3}, None, 3),
    "none": ({"replicas": 0}, None, 0),
    "nothing says how many": ({}, None, 0),
    "a share of a workload, rounded up": ({"percentage": 10}, 25, 3),
    "a share of a workload without pods is one": ({"percentage": 10}, 0, 1),
    "a share of a PodTemplate is nothing": ({"percentage": 10}, None, 0),
    "the larger of both": ({"replicas": 2, "percentage": 50}, 8, 4),
    "limits cut": ({"replicas": 9, "limits": {"cpu": "2", "memory": "3Gi"}}, None, 3),
    "limits alone": ({"limits": {"cpu": "2"}}, None, 4),
    "limits of what the pod does not ask for": ({"replicas": 2, "limits": {"nvidia.com/gpu": "1"}}, None, 2),
    "limits alone of what the pod does not ask for": ({"limits": {"nvidia.com/gpu": "1"}}, None, 0),
    "limits below one unit": ({"replicas": 2, "limits": {"cpu": "100m"}}, None, 0),
    "a thousand at most": ({"replicas": 2**31 - 1}, None, MOST_UNITS),
}


@pytest.mark.parametrize("case", UNITS.values(), ids=UNITS)
def test_how_many_units_are_kept(case: tuple[dict[str, Any], int | None, int]) -> None:
    spec, replicas, want = case
    assert len(virtual_pods(buffer(**spec), template(replicas))) == want


def test_a_virtual_pod_is_like_its_template_comes_last_and_has_no_volumes_of_its_own() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "a"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
    ]
    one, two = virtual_pods(
        buffer(replicas=2), template(nodeSelector={"a": "b"}, volumes=volumes, priority=10, nodeName="n")
    )
    assert (one.name, one.uid, two.uid) == ("capacity-buffer-room-0", "u-0", "u-1")
    assert one.shape is two.shape
    assert one.shape.requests["cpu"] == 500
    assert one.shape.priority == LEAST_PRIORITY
    assert not one.node_name
    assert not one.shape.volumes
    assert dict(one.labels) == {"app": "web"}
    assert is_virtual(one)
    assert buffer_of(one) == "default/room"
    assert not is_virtual(pod("p"))


def test_units_are_the_same_pods_whenever_they_are_made() -> None:
    assert virtual_pods(buffer(replicas=2), template()) == virtual_pods(buffer(replicas=2), template())


BAD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "limits": ({"replicas": 1, "limits": {"cpu": "many"}}, {}),
    "requests": ({"replicas": 1}, {"containers": [{"name": "c", "resources": {"requests": {"cpu": "many"}}}]}),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_said(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    spec, pod_spec = case
    with pytest.raises(ResolutionError, match="many") as error:
        virtual_pods(buffer(**spec), template(**pod_spec))
    assert error.value.reason == "ResolutionFailed"


def test_buffers_of_other_strategies_and_those_that_go_are_left_alone() -> None:
    assert is_ours(buffer())
    assert is_ours(buffer(provisioningStrategy="buffer.x-k8s.io/active-capacity"))
    assert not is_ours(buffer(provisioningStrategy="example.com/cold"))
    going = msgspec.convert({"metadata": {**META, "deletionTimestamp": "2026-11-21T12:00:00Z"}}, CapacityBuffer)
    assert not is_ours(going)


def test_room_counts_on_nodes_that_are_ready_and_nodes_to_come_keep_it() -> None:
    one, two, three = virtual_pods(buffer(replicas=3), template())
    existing = {"a": (pod("real"), one), "b": (two,), "c": (pod("other"),)}
    found = kept((one, two, three), existing, ["a", "c"])
    assert found.nodes == {"a", "b"}
    assert (dict(found.ready), dict(found.units)) == ({"default/room": 1}, {"default/room": 3})
    assert not found.has_room("default/room")
    assert kept((one,), {"a": (one,)}, ["a"]).has_room("default/room")


def test_the_annotations_are_those_of_karpenter() -> None:
    (one,) = virtual_pods(buffer(replicas=1), template())
    assert dict(one.annotations) == {
        names.BUFFER_FAKE_POD: "true",
        names.BUFFER_NAME: "room",
        names.BUFFER_NAMESPACE: "default",
    }
