"""A cluster with nodes that Karpenter made is taken over, the command killed at every write, and given back: no instance ends, none is doubled.

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
from tests.support.dying import KILLED
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, Plot, runs, start_child

pytestmark = [pytest.mark.plane, pytest.mark.package, pytest.mark.timeout(1200)]

KARPENTER: Final = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "karpenter", "namespace": "kube-system", "labels": {"app.kubernetes.io/name": "karpenter"}},
    "spec": {
        "replicas": 1,
        "paused": True,  # no ReplicaSet is made of it: the program runs beside the cluster
        "selector": {"matchLabels": {"app": "karpenter"}},
        "template": {
            "metadata": {"labels": {"app": "karpenter"}},
            "spec": {"containers": [{"name": "controller", "image": "public.ecr.aws/karpenter/controller:1.14.0"}]},
        },
    },
}
OWN: Final = "dovetail.dev/"


@pytest.fixture
def plot(plane: DevCluster, client: Client) -> Iterator[Plot]:
    made = Plot(client)
    yield made
    if runs(plane, "karpenter"):
        plane.stop("karpenter")
    for name in (names.SETTINGS_CONFIGMAP, names.TAKEOVER_CONFIGMAP):
        if client.find(CONFIGMAPS, name, "dovetail-system") is not None:
            client.delete(CONFIGMAPS, name, "dovetail-system")
    client.delete(DEPLOYMENTS, "karpenter", "kube-system")
    if not runs(plane, "dovetail"):
        start_child(plane, "dovetail", "--provider=kwok")
    made.clear()
    plane.stop("dovetail")


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


def phase(client: Client) -> str:
    """How far the takeover is."""
    found = client.find(CONFIGMAPS, names.TAKEOVER_CONFIGMAP, "dovetail-system")
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


def test_there_and_back_no_instance_ends_and_none_is_doubled(plane: DevCluster, client: Client, plot: Plot) -> None:
    client.create(DEPLOYMENTS, KARPENTER, "kube-system")
    start_child(plane, "karpenter", "--system-namespace=kube-system", "--provider=kwok")
    plot.pool()
    plot.deploy("web", 4)
    plot.await_running(4)
    eventually(lambda: len(plot.initialized()) == 4, "four nodes are there", SECONDS)
    before = machines(client)

    killed = 0
    while phase(client) != "paused":
        assert KILLED in ended(takeover(plane, "start"))
        killed += 1
    assert killed == 3, "written down, held, and that it is held"
    run = takeover(plane, "start")
    assert "waiting until Karpenter no longer holds its Lease" in until_said(
        run, "kubectl -n kube-system scale deployment karpenter --replicas=0"
    )
    settings = client.get(CONFIGMAPS, names.SETTINGS_CONFIGMAP, "dovetail-system")
    assert settings.data["paused"] == "drift,consolidation,expiration,repair,launch"
    plane.stop("karpenter")
    as_karpenter_left_them(client)
    start_child(plane, "dovetail", "--provider=kwok")
    assert KILLED in ended(run)
    assert machines(client) == before

    plot.scale("web", 5)
    released = [settings.data["paused"]]
    while released[-1]:
        ended(takeover(plane, "start"))
        held = client.get(CONFIGMAPS, names.SETTINGS_CONFIGMAP, "dovetail-system").data.get("paused", "")
        assert held == released[-1] or released[-1].startswith(held)
        released += [held] if held != released[-1] else []
        if "launch" in held:
            assert machines(client) == before
    assert [len(one.split(",")) for one in released] == [5, 4, 3, 2, 1, 1]
    output, _ = until_done(plane, "start")
    assert "The takeover is complete; nothing is held." in output
    plot.await_running(5)
    eventually(lambda: len(plot.initialized()) == 5, "the fifth node is there", SECONDS)
    after = machines(client)
    assert {name: one for name, one in after.items() if name in before} == before
    told = takeover(plane, "status", dying=False)
    assert "4 of 4 NodeClaims from the start still exist, 1 new, 0 doubled" in ended(told)
    assert client.get(DEPLOYMENTS, "karpenter", "kube-system").spec.replicas == 1, "nobody touched it"
