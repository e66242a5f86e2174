"""Effective requests as kube-scheduler computes them (the larger of 1.36 and 1.37 for a pod in resize), and host ports."""

from typing import Any

import msgspec
import pytest

from provisioner.apis.core import PodSpec
from provisioner.apis.pods import decode_pod
from provisioner.apis.shapes import PodShape, ResizeStatus, shape_of
from tests.support.pods import Wire

MI = 2**20


def box(name: str = "a", cpu: str | float = "100m", memory: str | None = None, **more: Any) -> Wire:
    requests: Wire = {"cpu": cpu} | ({"memory": memory} if memory else {})
    return {"name": name, "resources": {"requests": requests}} | more


def sidecar(name: str, cpu: str) -> Wire:
    return box(name, cpu, restartPolicy="Always")


def given(name: str, allocated: Wire, in_use: Wire | None = None) -> Wire:
    return {"name": name, "allocatedResources": allocated, "resources": {"requests": in_use or {}}}


def shaped(spec: Wire, status: Wire | None = None, *, infeasible: bool = False) -> PodShape:
    return shape_of(
        msgspec.convert(spec, PodSpec),
        namespace="default",
        labels={},
        status=None if status is None else msgspec.convert(status, ResizeStatus),
        resize_infeasible=infeasible,
    )


REQUESTS: dict[str, tuple[Wire, dict[str, int]]] = {
    "containers are added up": (
        {"containers": [box(cpu="100m"), box("b", "1", "64Mi")]},
        {"cpu": 1100, "memory": 64 * MI},
    ),
    "a container without requests": ({"containers": [{"name": "a"}]}, {}),
    "an init container is a floor": ({"containers": [box(cpu="1")], "initContainers": [box("i", "3")]}, {"cpu": 3000}),
    "a small init container is for nothing": (
        {"containers": [box(cpu="1")], "initContainers": [box("i", "500m"), box("j", "600m")]},
        {"cpu": 1000},
    ),
    "a sidecar is added to the containers": (
        {"containers": [box(cpu="1")], "initContainers": [sidecar("s", "200m")]},
        {"cpu": 1200},
    ),
    "an init container runs beside the sidecars before it": (
        {"containers": [box(cpu="100m")], "initContainers": [sidecar("s", "200m"), box("i", "2"), sidecar("t", "1")]},
        {"cpu": 2200},
    ),
    "sidecars after an init container do not run beside it": (
        {"containers": [box(cpu="100m")], "initContainers": [box("i", "2"), sidecar("s", "200m")]},
        {"cpu": 2000},
    ),
    "each resource on its own": (
        {"containers": [box(cpu="2", memory="10Mi")], "initContainers": [box("i", "1", "20Mi")]},
        {"cpu": 2000, "memory": 20 * MI},
    ),
    "overhead comes on top": (
        {"containers": [box(cpu="1")], "initContainers": [box("i", "3")], "overhead": {"cpu": "250m", "memory": "1Mi"}},
        {"cpu": 3250, "memory": MI},
    ),
    "requests of the pod replace the sums": (
        {
            "containers": [box(cpu="4", memory="10Mi")],
            "resources": {"requests": {"cpu": "1", "hugepages-2Mi": "4Mi"}},
            "overhead": {"cpu": "100m"},
        },
        {"cpu": 1100, "memory": 10 * MI, "hugepages-2Mi": 4 * MI},
    ),
    "other resources of the pod are left out": (
        {"containers": [box(cpu="1")], "resources": {"requests": {"cpu": "2", "example.com/gpu": "1"}}},
        {"cpu": 2000},
    ),
    "fractions are rounded up once": ({"containers": [box(cpu="0.4m"), box("b", "0.4m")]}, {"cpu": 1}),
    "extended resources": (
        {"containers": [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": "2"}}}]},
        {"nvidia.com/gpu": 2},
    ),
    "a request of zero is kept": ({"containers": [box(cpu="0")]}, {"cpu": 0}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(name: str) -> None:
    spec, want = REQUESTS[name]
    assert dict(shaped(spec).requests) == want | {"pods": 1}


RESIZES: dict[str, tuple[Wire, Wire, int, int]] = {
    "a kubelet that says nothing of resources": (
        {"containers": [box(cpu="1")]},
        {"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "4"}}]},
        4000,  # 1.36: 1000
        4000,
    ),
    "growing": (
        {"containers": [box(cpu="2")]},
        {"containerStatuses": [given("a", {"cpu": "1"}, {"cpu": "1"})]},
        2000,
        1000,
    ),
    "shrinking": (
        {"containers": [box(cpu="1")]},
        {"containerStatuses": [given("a", {"cpu": "1"}, {"cpu": "3"})]},
        3000,
        3000,
    ),
    "allocated more than asked": (
        {"containers": [box(cpu="1")]},
        {"containerStatuses": [given("a", {"cpu": "2"})]},
        2000,
        2000,
    ),
    "a sidecar grows": (
        {"containers": [box(cpu="1")], "initContainers": [sidecar("s", "1")]},
        {"initContainerStatuses": [given("s", {"cpu": "2"})]},
        3000,
        3000,
    ),
    "an init container grows": (
        {"containers": [box(cpu="1")], "initContainers": [box("i", "500m")]},
        {"initContainerStatuses": [given("i", {"cpu": "9"})]},
        9000,  # 1.36: 1000
        9000,
    ),
    "two containers trade": (
        {"containers": [box(cpu="3"), box("b", "1")]},
        {"containerStatuses": [given("a", {"cpu": "1"}, {"cpu": "1"}), given("b", {"cpu": "3"}, {"cpu": "3"})]},
        6000,  # 1.37: 4000
        4000,
    ),
    "what the kubelet tells of the pod as a whole": (
        {"containers": [box(cpu="1")]},
        {"allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "2"}}},
        3000,  # 1.36: 1000
        3000,
    ),
    "the pod's own": (
        {"containers": [box(cpu="1")], "resources": {"requests": {"cpu": "2"}}},
        {"allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "1"}}},
        3000,
        3000,
    ),
    "the pod's own grows": (
        {"containers": [box(cpu="1")], "resources": {"requests": {"cpu": "4"}}},
        {"allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "1"}}},
        4000,
        3000,
    ),
}


@pytest.mark.parametrize("name", RESIZES)
def test_while_a_resize_is_under_way(name: str) -> None:
    spec, status, want, refused = RESIZES[name]
    assert shaped(spec, status).requests["cpu"] == want
    assert shaped(spec, status, infeasible=True).requests["cpu"] == refused


def limited(name: str, cpu: str) -> Wire:
    return {"name": name, "resources": {"limits": {"cpu": cpu}}}


LIMITS: dict[str, tuple[Wire, dict[str, int]]] = {
    "containers are added up": ({"containers": [limited("a", "1"), limited("b", "2")]}, {"cpu": 3000}),
    "an init container is a floor": (
        {"containers": [limited("a", "1")], "initContainers": [limited("i", "4")]},
        {"cpu": 4000},
    ),
    "overhead only where there is a limit": (
        {"containers": [limited("a", "1")], "overhead": {"cpu": "100m", "memory": "1Mi"}},
        {"cpu": 1100},
    ),
    "limits of the pod": ({"containers": [limited("a", "1")], "resources": {"limits": {"cpu": "3"}}}, {"cpu": 3000}),
    "none": ({"containers": [box()]}, {}),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    spec, want = LIMITS[name]
    assert dict(shaped(spec).limits) == want


def ports(*given: Wire, **more: Any) -> list[tuple[int, str, str]]:
    found = shaped({"containers": [{"name": "a", "ports": list(given)}]} | more).host_ports
    return [(port.host_port, port.protocol, port.host_ip) for port in found]


def test_only_ports_of_the_host_are_kept_sorted_and_once() -> None:
    web, dns = (
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
    )
    assert ports(web, {"containerPort": 9}, dns, web) == [(53, "UDP", "10.0.0.1"), (8080, "TCP", "")]


def test_on_the_hosts_network_every_port_is_one_of_the_host() -> None:
    assert ports({"containerPort": 80}, hostNetwork=True) == [(80, "TCP", "")]


def test_ports_of_sidecars_count_and_of_init_containers_do_not() -> None:
    port = [{"containerPort": 1, "hostPort": 1}]
    assert ports(initContainers=[{"name": "s", "ports": port, "restartPolicy": "Always"}]) == [(1, "TCP", "")]
    assert ports(initContainers=[{"name": "i", "ports": port}]) == []


def test_a_shape_that_cannot_be_judged_says_where() -> None:
    broken = shaped({"containers": [box()], "initContainers": [box("i", "1x")]})
    assert broken.error.startswith("spec.initContainers[0].resources.requests[cpu]: ")
    assert dict(broken.requests) == {}
    assert "1x" in repr(broken)


def test_shapes_are_equal_by_their_key() -> None:
    one, other = shaped({"containers": [box()]}), shaped({"containers": [box(cpu="2")]})
    copied = msgspec.structs.replace(one)
    assert copied is not one
    assert copied == one
    assert hash(copied) == hash(one)
    assert one != other
    assert one != one.key


RESTARTS = {"restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]}
FEATURES: dict[str, tuple[Wire, tuple[str, ...]]] = {
    "none": ({"containers": [box(restartPolicyRules=[{"action": "Restart"}])]}, ()),
    "a container that restarts all": ({"containers": [box() | RESTARTS]}, ("RestartAllContainersOnContainerExits",)),
    "an init container that restarts all": (
        {"containers": [box()], "initContainers": [box("i") | RESTARTS]},
        ("RestartAllContainersOnContainerExits",),
    ),
    "users of its own on the host's network": (
        {"containers": [box()], "hostNetwork": True, "hostUsers": False},
        ("UserNamespacesHostNetworkSupport",),
    ),
    "users of the host": ({"containers": [box()], "hostNetwork": True, "hostUsers": True}, ()),
    "users where nobody says": ({"containers": [box()], "hostNetwork": True}, ()),
    "users of its own on a network of its own": ({"containers": [box()], "hostUsers": False}, ()),
    "options of a mount": (
        {"containers": [box(volumeMounts=[{"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}])]},
        ("VolumeBindMountOptions",),
    ),
    "a mount": ({"containers": [box(volumeMounts=[{"name": "v", "mountPath": "/v"}])]}, ()),
}


@pytest.mark.parametrize("name", FEATURES)
def test_what_a_pod_needs_of_a_kubelet(name: str) -> None:
    spec, want = FEATURES[name]
    assert shaped(spec).features == want
    known = decode_pod(msgspec.json.encode({"metadata": {"name": "p"}, "spec": {"containers": [box()]}}))
    found = decode_pod(msgspec.json.encode({"metadata": {"name": "p"}, "spec": spec}))
    assert found.shape.features == want
    assert (found.shape.key == known.shape.key) is (not want and "initContainers" not in spec)


def test_the_keys_of_pods_that_need_nothing_are_those_of_older_versions() -> None:
    """Plans name classes by key."""
    assert shaped({"containers": [box()]}).key == "6b88a46c43abd0ed"
