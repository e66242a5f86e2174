"""What a pod needs and what a node has: containers, ports, pods, extended resources, daemons; one sentence a row."""

from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import Container, ContainerPort, PodResourceClaim, PodSpec, ResourceRequirements
from provisioner.apis.pods import Pod, PodShape
from provisioner.apis.shapes import shape_of
from provisioner.scheduling.problem import DevicePolicy
from provisioner.values.taints import Taint, Toleration
from tests.support.golden import Row, check, row
from tests.support.problems import ARM, LARGE, MEDIUM, SMALL, instance_type, node, pod, pods, pool, problem, shape, term

ARCH, TYPE = names.ARCH_LABEL, names.INSTANCE_TYPE_LABEL
ONE, ALL = pool(types=(SMALL,)), pool(types=(SMALL, MEDIUM, LARGE))
PAGED = instance_type("paged", "4", "8Gi", 3.0, more={"hugepages-2Mi": "2Gi"})
CROWDED = instance_type("crowded", "8", "16Gi", max_pods=3)
GPU = instance_type("gpu", "8", "32Gi", 20.0, more={"example.com/gpu": "2"})
DEDICATED = Taint(key="dedicated", effect="NoSchedule")


def container(cpu: str, memory: str = "1Mi", *, name: str = "main", sidecar: bool = False, **more: Any) -> Container:
    requests: dict[str, str | int | float] = {"cpu": cpu, "memory": memory}
    return Container(
        name=name,
        resources=ResourceRequirements(requests=requests),
        restart_policy="Always" if sidecar else "",
        **more,
    )


def made(*containers: Container, init: tuple[Container, ...] = (), **spec: object) -> PodShape:
    return shape_of(PodSpec(containers=containers, init_containers=init, **spec), namespace="default", labels={})  # type: ignore[arg-type]


def on_port(
    number: int, *, protocol: str = "TCP", address: str = "", name: str = "p", host: bool = False, **spec: Any
) -> Pod:
    port = ContainerPort(container_port=number, host_port=0 if host else number, protocol=protocol, host_ip=address)
    return pod(name, made(container("100m", ports=(port,)), host_network=host, **spec))


ROWS: dict[str, Row] = {
    # --- what a pod needs ---
    "containers add up": row(
        problem([pod("p", made(container("1"), container("1500m", name="b")))], ALL), "p on new medium"),
    "the largest init container is the floor": row(
        problem([pod("p", made(container("1"), init=(container("3", name="i"), container("2", name="j"))))], ALL), "p on new medium"),
    "an init container smaller than the rest costs nothing": row(
        problem([pod("p", made(container("2"), init=(container("1", name="i"),)))], ALL), "p on new small"),
    "a sidecar counts beside the containers": row(
        problem([pod("p", made(container("1500m"), init=(container("1", name="s", sidecar=True),)))], ALL), "p on new medium"),
    "a sidecar counts beside the init containers after it": row(
        problem([pod("p", made(container("100m"), init=(container("1", name="s", sidecar=True), container("1500m", name="i"))))], ALL), "p on new medium"),
    "a sidecar does not count beside the init containers before it": row(
        problem([pod("p", made(container("100m"), init=(container("1500m", name="i"), container("1", name="s", sidecar=True))))], ALL), "p on new small"),
    "overhead comes on top": row(
        problem([pod("p", made(container("1900m"), overhead={"cpu": "200m"}))], ALL), "p on new medium"),
    "the pod's own request replaces its containers'": row(
        problem([pod("p", made(container("1"), resources=ResourceRequirements(requests={"cpu": "3"})))], ALL), "p on new medium"),
    "the pod's own request of cpu leaves the memory of its containers": row(
        problem([pod("p", made(container("1", "6Gi"), resources=ResourceRequirements(requests={"cpu": "1"})))], ALL), "p on new medium"),
    "fractions of a core are rounded up once": row(
        problem(pods(2, made(*(container("333.4m", name=f"c{n}") for n in range(3))), "p"), pool(types=(instance_type("two", "2001m", "4Gi"),))),
        "2 nodes"),
    # --- what a node has ---
    "huge pages are a resource of their own": row(
        problem([pod("p", shape("1", more={"hugepages-2Mi": "512Mi"}))], pool(types=(SMALL, PAGED))), "p on new paged"),
    "huge pages are taken off the memory": row(
        problem([pod("p", shape("1", "7Gi"))], pool(types=(PAGED, MEDIUM))), "p on new medium"),
    "pods that no node can hold together need more nodes": row(
        problem(pods(4, shape("100m", "1Mi"), "p"), pool(types=(CROWDED,))), "2 nodes"),
    "a daemon takes one of the pods": row(
        problem(pods(3, shape("100m", "1Mi"), "p"), pool(types=(CROWDED,)), daemons=[shape("1m", "1Mi")]), "2 nodes"),
    "an extended resource that is asked for as zero needs no special node": row(
        problem([pod("p", shape(more={"example.com/gpu": "0"}))], pool(types=(SMALL, GPU))), "p on new small"),
    "an extended resource decides how many share a node": row(
        problem(pods(3, shape("1", more={"example.com/gpu": "1"}), "p"), pool(types=(GPU,))), "2 nodes"),
    "pods without the extended resource share its node once it is there": row(
        problem([pod("g", shape("1", more={"example.com/gpu": "1"})), pod("p", shape("500m"))], pool(types=(SMALL, GPU))), "g p together"),
    "ephemeral storage is a resource": row(
        problem([pod("p", shape("1", more={"ephemeral-storage": "30Gi"}))],
                pool(types=(SMALL, instance_type("disk", "2", "4Gi", 5.0, more={"ephemeral-storage": "50Gi"})))),
        "p on new disk"),
    "an existing node with an extended resource is used": row(
        problem([pod("p", shape(more={"example.com/gpu": "1"}))], pool(types=(GPU,)), bins=[node("n", more={"example.com/gpu": "1"})]), "p on n"),
    "a negative request leaves only that pod": row(
        problem([pod("bad", shape("-1")), pod("q")], ONE), "bad left: ", "q on new small"),
    # --- ports of the host ---
    "the same port twice needs two nodes": row(
        problem([on_port(80), on_port(80, name="q")], ALL), "2 nodes", "p q apart"),
    "different ports share a node": row(problem([on_port(80), on_port(81, name="q")], ALL), "1 node"),
    "different protocols share a node": row(problem([on_port(53), on_port(53, protocol="UDP", name="q")], ALL), "1 node"),
    "different addresses share a node": row(
        problem([on_port(80, address="10.0.0.1"), on_port(80, address="10.0.0.2", name="q")], ALL), "1 node"),
    "the same address conflicts": row(
        problem([on_port(80, address="10.0.0.1"), on_port(80, address="10.0.0.1", name="q")], ALL), "p q apart"),
    "no address means all of them": row(problem([on_port(80, address="10.0.0.1"), on_port(80, name="q")], ALL), "p q apart"),
    "0.0.0.0 means all of them": row(
        problem([on_port(80, address="10.0.0.1"), on_port(80, address="0.0.0.0", name="q")], ALL), "p q apart"),
    "on the host's network every port is the host's": row(
        problem([on_port(80, host=True), on_port(80, name="q")], ALL), "p q apart"),
    "a port taken on an existing node sends the pod elsewhere": row(
        problem([on_port(80)], ALL, bins=[node("n", running=[on_port(80, name="old")]), node("m")]), "p on m"),
    "a port that a daemon will take is taken on every new node": row(
        problem([on_port(80)], ALL, daemons=[on_port(80).shape]), "p left: port"),
    "a port of a daemon that does not run there is free": row(
        problem([on_port(80)], pool(types=(SMALL,)),
                daemons=[made(container("100m", ports=(ContainerPort(container_port=80, host_port=80),)), node_selector={ARCH: "arm64"})]),
        "p on new small"),
    "a port of a daemon decides the type": row(
        problem([on_port(80)], pool(types=(ARM, MEDIUM)),
                daemons=[made(container("100m", ports=(ContainerPort(container_port=80, host_port=80),)), node_selector={ARCH: "arm64"})]),
        "p on new medium"),
    "a node whose daemon has the port takes pods without ports": row(
        problem([pod("q", made(container("100m"), priority=2)), on_port(80, priority=1), pod("w", made(container("100m")))], pool(types=(MEDIUM,)), daemons=[on_port(80).shape]),
        "1 node", "q w together", "p left: port"),
    # --- daemons ---
    "a daemon that tolerates everything counts (Karpenter once counted none)": row(
        problem([pod("p", shape("2"))], ALL, daemons=[shape("100m", "1Mi", tolerations=[Toleration(operator="Exists")])]), "p on new medium"),
    "a daemon that selects ready nodes counts": row(
        problem([pod("p", shape("2"))], ALL, daemons=[shape("100m", "1Mi", selector={names.INITIALIZED_LABEL: "true"})]), "p on new medium"),
    "a daemon that selects one type counts on that type": row(
        problem([pod("p", shape("2"))], ALL, daemons=[shape("100m", "1Mi", selector={TYPE: "small"})]), "p on new medium"),
    "a daemon that selects another type does not count": row(
        problem([pod("p", shape("2"))], ALL, daemons=[shape("100m", "1Mi", selector={TYPE: "large"})]), "p on new small"),
    "a daemon's preferences do not count": row(
        problem([pod("p", shape("2"))], ALL, daemons=[shape("100m", "1Mi", terms=[term((TYPE, "In", ["large"]))])]), "p on new small"),
    "daemons add up": row(
        problem([pod("p", shape("1500m"))], ALL, daemons=[shape("300m", "1Mi"), shape("300m", "2Mi")]), "p on new medium"),
    "a startup taint does not keep daemons off": row(
        problem([pod("p", shape("2"))], pool(types=(SMALL, MEDIUM)), daemons=[shape("100m", "1Mi")]), "p on new medium"),
    # --- devices ---
    "a pod with resource claims is refused with the reason": row(
        problem([pod("p", shape(resource_claims=(PodResourceClaim(name="r"),))), pod("q")], ONE), "p left: r", "q on new small"),
    "a pod with resource claims is placed where they are ignored": row(
        problem([pod("p", shape(resource_claims=(PodResourceClaim(name="r"),)))], ONE, devices=DevicePolicy.IGNORE), "p on new small"),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_row(case: Row) -> None:
    check(case)
