"""A cluster with EC2 instances that Karpenter launched is taken over, the command killed at every write, and given back: none ends, none is doubled.

What stands for Karpenter is a program of ours that leads under Karpenter's Lease; what it wrote that Karpenter would not is removed when it has stopped.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

from provisioner.apis import names
from provisioner.kube.client import Client
from provisioner.kube.resources import CONFIGMAPS, DEPLOYMENTS, NODECLAIMS, NODEPOOLS, NODES, Resource
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.progress import progress_for
from tests.support.awscluster import NAMESPACE, AwsCluster, aws_cluster
from tests.support.commands import stops_when_scaled
from tests.support.dying import KILLED

pytestmark = [pytest.mark.plane, pytest.mark.package, pytest.mark.timeout(1200)]

SPACE: Final = "dovetail-system"
OWN: Final = "dovetail.dev/"


def deployed(name: str, namespace: str, image: str, app: str) -> dict[str, Any]:
    """A Deployment of which no ReplicaSet is made: its program runs beside the cluster."""
    labels = {"app.kubernetes.io/name": app, "app.kubernetes.io/component": "provisioner"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            "paused": True,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "controller", "image": image}]},
            },
        },
    }


KARPENTER: Final = deployed("karpenter", "kube-system", "public.ecr.aws/karpenter/controller:1.14.0", "karpenter")
DOVETAIL: Final = deployed("dovetail-provisioner", SPACE, "dovetail:0.1.0", "dovetail")


@pytest.fixture
def aws() -> Iterator[AwsCluster]:
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        with aws_cluster(cluster, clock_factor=10.0) as made:
            yield made
    finally:
        cluster.down()


def takeover(plane: DevCluster, *arguments: str, dying: bool = True) -> "subprocess.Popen[str]":
    """A run of the command; one that is dying kills itself right after its first write."""
    program = ["tests.support.dying", "1", "after", "any"] if dying else ["provisioner.cli.main"]
    command = [sys.executable, "-m", *program, "takeover", *arguments, "--kubeconfig", str(plane.kubeconfig)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ))


def ended(run: "subprocess.Popen[str]") -> str:
    """What a run printed; it ended well or killed itself."""
    output, _ = run.communicate(timeout=300)
    assert run.returncode in (0, -signal.SIGKILL), output
    return output


def until_said(run: "subprocess.Popen[str]", text: str) -> str:
    """What a run prints until it says this."""
    assert run.stdout is not None
    lines = ""
    for line in run.stdout:
        lines += line
        if text in line:
            return lines
    raise AssertionError(f"it ended without {text!r}: {lines}")


def until_done(plane: DevCluster, *arguments: str) -> tuple[str, int]:
    """Runs that are killed at each write, until one has nothing more to write; what that printed, and how many were killed."""
    for killed in range(40):
        output = ended(takeover(plane, *arguments))
        if KILLED not in output:
            return output, killed
    raise AssertionError("it never comes to its end")


def machines(client: Client) -> dict[str, tuple[str, str, str]]:
    """Every NodeClaim with its instance and its Node, both by what no other has."""
    nodes = {one.metadata.name: one.metadata.uid for one in client.list(NODES)}
    return {
        one.name: (one.metadata.uid, one.status.provider_id, nodes.get(one.status.node_name, ""))
        for one in client.list(NODECLAIMS)
    }


def alive(aws: AwsCluster) -> frozenset[str]:
    """IDs of the instances that run."""
    return frozenset(one["id"] for one in aws.ec2.alive())


def own_keys(client: Client) -> set[str]:
    """Of NodeClaims and Nodes, what only Dovetail reads."""
    kinds: tuple[Resource[Any], ...] = (NODECLAIMS, NODES)
    found = [one.metadata for kind in kinds for one in client.list(kind)]
    return {key for one in found for key in (*one.annotations, *one.labels) if key.startswith(OWN)}


def phase(client: Client) -> str:
    """How far the takeover is."""
    found = client.find(CONFIGMAPS, names.TAKEOVER_CONFIGMAP, SPACE)
    return found.data["phase"] if found is not None else ""


def as_karpenter_left_them(client: Client) -> None:
    """Without what only Dovetail writes, and hashed by another version of Karpenter."""
    stamp = {names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: "v2"}
    kinds: tuple[Resource[Any], ...] = (NODEPOOLS, NODECLAIMS, NODES)
    for kind in kinds:
        for one in client.list(kind):
            own: dict[str, Any] = {key: None for key in one.metadata.annotations if key.startswith(OWN)}
            hashed = stamp if kind is not NODES else {}
            client.patch(kind, one.metadata.name, {"metadata": {"annotations": {**own, **hashed}}})


def deploy(aws: AwsCluster, pods: int) -> None:
    """Pods of which each has a node of its own."""
    others = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [others]}}
    aws.deploy("web", pods, affinity=affinity, nodeSelector={names.NODEPOOL_LABEL: "general"})


def await_nodes(aws: AwsCluster, count: int) -> None:
    """Until each of so many pods runs on a node that is ready."""
    aws.await_running(count, 120.0)
    aws.eventually(lambda: len(aws.initialized()) == count, f"{count} nodes are ready", 120.0)


def test_there_and_back_no_instance_ends_and_none_is_doubled(aws: AwsCluster) -> None:
    client, plane = aws.client, aws.cluster
    client.create(DEPLOYMENTS, KARPENTER, "kube-system")
    aws.start("--system-namespace=kube-system")
    aws.node_class()
    aws.pool()
    deploy(aws, 4)
    await_nodes(aws, 4)
    before, instances = machines(client), alive(aws)

    killed = 0
    while phase(client) != "paused":
        assert KILLED in ended(takeover(plane, "start"))
        killed += 1
    assert killed == 3, "written down, held, and that it is held"
    run = takeover(plane, "start")
    assert "waiting until Karpenter no longer holds its Lease" in until_said(
        run, "kubectl -n kube-system scale deployment karpenter --replicas=0"
    )
    settings = client.get(CONFIGMAPS, names.SETTINGS_CONFIGMAP, SPACE)
    assert settings.data["paused"] == "drift,consolidation,expiration,repair,launch"
    aws.stop_provisioner()
    as_karpenter_left_them(client)
    aws.start()
    assert KILLED in ended(run)
    assert machines(client) == before

    client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 5}}, NAMESPACE)
    released = [settings.data["paused"]]
    while released[-1]:
        ended(takeover(plane, "start"))
        held = client.get(CONFIGMAPS, names.SETTINGS_CONFIGMAP, SPACE).data.get("paused", "")
        assert held == released[-1] or released[-1].startswith(held)
        released += [held] if held != released[-1] else []
        if "launch" in held:
            assert machines(client) == before
            assert alive(aws) == instances
    assert [len(one.split(",")) for one in released] == [5, 4, 3, 2, 1, 1]
    output, _ = until_done(plane, "start")
    assert "The takeover is complete; nothing is held." in output
    await_nodes(aws, 5)
    after = machines(client)
    assert {name: one for name, one in after.items() if name in before} == before
    assert instances < alive(aws)
    assert len(alive(aws)) == 5
    told = takeover(plane, "status", dying=False)
    assert "4 of 4 NodeClaims from the start still exist, 1 new, 0 doubled" in ended(told)
    assert client.get(DEPLOYMENTS, "karpenter", "kube-system").spec.replicas == 1, "nobody touched it"

    given, instances = after, alive(aws)
    client.create(DEPLOYMENTS, DOVETAIL, SPACE)
    kubelet = stops_when_scaled(client, SPACE, aws.stop_provisioner)
    output, killed = until_done(plane, "back")
    kubelet.join(60)
    assert killed > len(given), "scaled, what Dovetail wrote on each NodeClaim, and that it is over"
    assert "scale deployment karpenter --replicas" in output
    assert phase(client) == "back"
    assert machines(client) == given
    assert own_keys(client) == set()
    aws.start("--system-namespace=kube-system")
    client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 6}}, NAMESPACE)
    await_nodes(aws, 6)
    assert machines(client).items() >= given.items()
    assert instances < alive(aws)
    assert len(alive(aws)) == 6

    assert KILLED in ended(takeover(plane, "start"))
    assert phase(client) == "begun", "another takeover begins anew"
