"""CapacityBuffers as virtual pods: core spec 1.4, 3.12, rows 18-20."""

import dataclasses
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.buffer import CapacityBuffer
from provisioner.apis.core import PersistentVolumeClaimTemplate as ClaimTemplate
from provisioner.apis.core import PodTemplateSpec, RuntimeClass, StorageClass
from provisioner.apis.pods import Pod
from provisioner.apis.templates import Admission
from provisioner.buffers.virtual_pods import (
    LEAST_PRIORITY,
    MOST_UNITS,
    BufferTemplate,
    ResolutionError,
    buffer_of,
    is_ours,
    is_virtual,
    kept,
    virtual_pods,
)
from provisioner.scheduling.constraints.volumes import claim_keys, volume_demand
from provisioner.scheduling.problem import Storage
from tests.support.cluster import pod

META = {"name": "room", "namespace": "default", "uid": "u"}
CONTAINER = {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}


def buffer(**spec: Any) -> CapacityBuffer:
    return msgspec.convert({"metadata": META, "spec": spec}, CapacityBuffer, strict=False)


def template(replicas: int | None = None, **spec: Any) -> BufferTemplate:
    body = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER], **spec}}
    return BufferTemplate(msgspec.convert(body, PodTemplateSpec, strict=False), replicas=replicas)


def units(one: CapacityBuffer, of: BufferTemplate) -> tuple[Pod, ...]:
    return virtual_pods(one, of)[0]


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
    assert len(units(buffer(**spec), template(replicas))) == want


def test_a_virtual_pod_is_like_its_template_and_comes_last() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "a"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
    ]
    one, two = units(buffer(replicas=2), template(nodeSelector={"a": "b"}, volumes=volumes, priority=10, nodeName="n"))
    assert (one.name, one.uid, two.uid) == ("capacity-buffer-room-0", "u-0", "u-1")
    assert one.shape is two.shape
    assert one.shape.requests["cpu"] == 500
    assert one.shape.priority == LEAST_PRIORITY
    assert not one.node_name
    assert [volume.name for volume in one.shape.volumes] == ["a", "b"]
    assert dict(one.labels) == {"app": "web"}
    assert is_virtual(one)
    assert buffer_of(one) == "default/room"
    assert not is_virtual(pod("p"))


def test_units_are_the_same_pods_whenever_they_are_made() -> None:
    assert units(buffer(replicas=2), template()) == units(buffer(replicas=2), template())


BAD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "limits": ({"replicas": 1, "limits": {"cpu": "many"}}, {}),
    "requests": ({"replicas": 1}, {"containers": [{"name": "c", "resources": {"requests": {"cpu": "many"}}}]}),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_said(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    spec, pod_spec = case
    with pytest.raises(ResolutionError, match="many") as error:
        units(buffer(**spec), template(**pod_spec))
    assert error.value.reason == "ResolutionFailed"


def test_buffers_of_other_strategies_and_those_that_go_are_left_alone() -> None:
    assert is_ours(buffer())
    assert is_ours(buffer(provisioningStrategy="buffer.x-k8s.io/active-capacity"))
    assert not is_ours(buffer(provisioningStrategy="example.com/cold"))
    going = msgspec.convert({"metadata": {**META, "deletionTimestamp": "2026-11-21T12:00:00Z"}}, CapacityBuffer)
    assert not is_ours(going)


def test_room_counts_on_nodes_that_are_ready_and_nodes_to_come_keep_it() -> None:
    one, two, three = units(buffer(replicas=3), template())
    existing = {"a": (pod("real"), one), "b": (two,), "c": (pod("other"),)}
    found = kept((one, two, three), existing, ["a", "c"])
    assert found.nodes == {"a", "b"}
    assert (dict(found.ready), dict(found.units)) == ({"default/room": 1}, {"default/room": 3})
    assert not found.has_room("default/room")
    assert kept((one,), {"a": (one,)}, ["a"]).has_room("default/room")


def test_the_annotations_are_those_of_karpenter() -> None:
    (one,) = units(buffer(replicas=1), template())
    assert dict(one.annotations) == {
        names.BUFFER_FAKE_POD: "true",
        names.BUFFER_NAME: "room",
        names.BUFFER_NAMESPACE: "default",
    }


def test_a_template_with_limits_alone_asks_for_them() -> None:
    gpu = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pods = units(buffer(limits={"nvidia.com/gpu": "3"}), template(containers=[gpu]))
    assert [one.shape.requests["nvidia.com/gpu"] for one in pods] == [1, 1, 1]


def test_what_admission_adds_counts_and_what_is_not_known_is_named() -> None:
    kata = msgspec.convert({"metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "1"}}}, RuntimeClass)
    (one,), unknown = virtual_pods(
        buffer(replicas=1), template(runtimeClassName="kata"), Admission(runtime_classes={"kata": kata})
    )
    assert (one.shape.requests["cpu"], unknown) == (1500, ())
    (one,), unknown = virtual_pods(buffer(replicas=1), template(runtimeClassName="kata"))
    assert (one.shape.requests["cpu"], unknown) == (500, ("RuntimeClass kata",))


TOO_LARGE = {
    "tolerations": {"tolerations": [{"key": f"key-{number}"} for number in range(10_000)]},
    "amounts": {"containers": [{"name": "c", "resources": {"requests": {f"a.io/{n}": "1" for n in range(10_000)}}}]},
}


@pytest.mark.parametrize("spec", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_a_template_that_would_keep_too_much_is_no_room(spec: dict[str, Any]) -> None:
    with pytest.raises(ResolutionError, match="needs more than 64 KiB of memory"):
        units(buffer(replicas=1), template(**spec))


def test_claims_of_a_stateful_set_that_would_keep_too_much_are_no_room() -> None:
    body = {"metadata": {"name": "data"}, "spec": {"storageClassName": "x" * 100}}
    claims = tuple(msgspec.convert(body, ClaimTemplate) for _ in range(1000))
    with pytest.raises(ResolutionError, match="needs more than 64 KiB of memory"):
        units(buffer(replicas=1), dataclasses.replace(template(), claims=claims))


def test_each_unit_of_a_stateful_set_has_claims_of_its_own() -> None:
    claim = msgspec.convert({"metadata": {"name": "data"}, "spec": {"storageClassName": "zonal"}}, ClaimTemplate)
    of = dataclasses.replace(template(), claims=(claim,))
    one, two = units(buffer(replicas=2), of)
    assert claim_keys(one) == ["default/capacity-buffer-room-0-data"]
    assert claim_keys(two) == ["default/capacity-buffer-room-1-data"]
    assert one.shape is two.shape


def test_a_buffer_keeps_room_where_its_volumes_can_be() -> None:
    source = {"volumeClaimTemplate": {"spec": {"storageClassName": "only-b"}}}
    of = template(volumes=[{"name": "d", "ephemeral": source}])
    topology = {"matchLabelExpressions": [{"key": names.ZONE_LABEL, "values": ["zone-b"]}]}
    storage_class = msgspec.convert(
        {
            "metadata": {"name": "only-b"},
            "provisioner": "ebs.csi.aws.com",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [topology],
        },
        StorageClass,
    )
    demand = volume_demand(units(buffer(replicas=1), of)[0], Storage(classes={"only-b": storage_class}))
    assert [term.requirements[names.ZONE_LABEL].values for term in demand.alternatives] == [frozenset({"zone-b"})]
    assert [driver for driver, _ in demand.attachments] == ["ebs.csi.aws.com"]
