"""Dovetail leaves a cluster of emulated EC2 instances in each documented way, the command killed at every write, and comes again with its collectors:
no instance ends that should not, and no pod goes.
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from provisioner.apis import names
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import CONFIGMAPS, CRDS, DEPLOYMENTS, MUTATINGWEBHOOKS, NODECLAIMS, NODES, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness import applying
from provisioner.lab.harness.workload import deployment, manifests
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.support import inventory
from tests.support.awscluster import NAMESPACE, AwsCluster, aws_cluster
from tests.support.commands import Death, dovetail, killed_at_every_write, stops_when_scaled
from tests.support.eventually import eventually
from tests.support.hook import Hook
from tests.support.provisioner import prepare

pytestmark = [pytest.mark.plane, pytest.mark.package, pytest.mark.timeout(2400)]

SPACE: Final = "dovetail-system"
DEFINITIONS: Final = manifests() / "crds"
ORPHAN_SECONDS: Final = 330.0
"""After which a collector ends an instance without a NodeClaim, and a while more."""
LOOK_SECONDS: Final = 20.0
PROVISIONER: Final = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "dovetail-provisioner",
        "namespace": SPACE,
        "labels": {"app.kubernetes.io/name": "dovetail", "app.kubernetes.io/component": "provisioner"},
    },
    "spec": {
        "replicas": 1,
        "paused": True,  # no ReplicaSet is made of it: the program runs beside the cluster
        "selector": {"matchLabels": {"app": "dovetail"}},
        "template": {
            "metadata": {"labels": {"app": "dovetail"}},
            "spec": {"containers": [{"name": "provisioner", "image": "dovetail:0.1.0"}]},
        },
    },
}
WEBHOOK: Final = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "dovetail-webhook", "labels": {"app.kubernetes.io/name": "dovetail"}},
    "webhooks": [],
}
KEPT: Final = frozenset({"Node", "CSINode", "Lease", "Deployment", "ReplicaSet", "Namespace"})
"""Kinds of which workloads, Nodes and Kubernetes itself make objects."""


class Leaving:
    """The cluster that is left, again and again."""

    def __init__(self, aws: AwsCluster) -> None:
        self.aws, self.client, self.cluster = aws, aws.client, aws.cluster

    # ------------------------------------------------------------------ coming

    def install(self) -> None:
        """Everything that the manifests have, and the program."""
        prepare(self.client)
        applying.apply(self.client, [PROVISIONER])
        self.client.apply(MUTATINGWEBHOOKS, "dovetail-webhook", WEBHOOK, "dovetail-test")
        self.aws.start()

    def bring(self, app: str, pods: int) -> frozenset[str]:
        """Pods that run on nodes of their own; the IDs of the new instances."""
        before = self.alive()
        self.aws.node_class()
        self.aws.pool()
        others = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [others]}}
        self.aws.deploy(app, pods, affinity=affinity, nodeSelector={names.NODEPOOL_LABEL: "general"})
        self.aws.eventually(lambda: len(self.running(app)) == pods, f"{pods} pods of {app} run", 120.0)
        self.aws.eventually(lambda: len(self.aws.initialized()) == len(self.aws.claims()), "every node is ready", 120.0)
        return self.alive() - before

    # ------------------------------------------------------------------ going

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            self.aws.stop_provisioner()

    def stops_when_scaled(self) -> threading.Thread:
        return stops_when_scaled(self.client, SPACE, self.stop)

    def uninstall(self, *arguments: str, dying: Death = "") -> tuple[int, str]:
        return dovetail(self.cluster, "uninstall", *arguments, environment=self.aws.ec2.environment(), dying=dying)

    def until_done(self, *arguments: str) -> int:
        """Runs that are killed at each write, until one has nothing more to write; how many writes there were."""
        return killed_at_every_write(lambda when: self.uninstall(*arguments, dying=when))

    def delete_manifests(self) -> None:
        """As `kubectl delete -k` does, which does not wait here: programs, what they need, and the definitions."""
        for kind, name, namespace in (
            (DEPLOYMENTS, "dovetail-provisioner", SPACE),
            (CONFIGMAPS, names.INSTALLATION_CONFIGMAP, SPACE),
        ):
            with contextlib.suppress(NotFound):
                self.client.delete(kind, name, namespace)
        self.cluster.kubectl("delete", "mutatingwebhookconfiguration", "dovetail-webhook", "--ignore-not-found")
        self.delete_definitions()

    def delete_definitions(self) -> None:
        for one in self.definitions():
            self.client.delete(CRDS, one)

    def await_definitions_gone(self) -> None:
        eventually(lambda: not self.definitions(), lambda: f"gone: {self.definitions()}", 120.0)

    def definitions(self) -> list[str]:
        """Ours, of all that there are."""
        ours = {
            path.stem.partition("_")[2] + "." + path.stem.partition("_")[0] for path in DEFINITIONS.glob("*_*.yaml")
        }
        return [one.metadata.name for one in self.client.list(CRDS) if one.metadata.name in ours]

    # ------------------------------------------------------------------ looking

    def alive(self) -> frozenset[str]:
        return frozenset(one["id"] for one in self.aws.ec2.alive())

    def running(self, app: str = "") -> frozenset[str]:
        """UIDs of the pods that run."""
        found = self.client.list(PODS, NAMESPACE, label_selector=f"app={app}" if app else "")
        return frozenset(one.uid for one in found if one.phase == "Running" and one.deleted is None)

    def nodes(self) -> dict[str, str]:
        return {one.metadata.name: one.metadata.uid for one in self.client.list(NODES)}

    def inventory(self) -> frozenset[str]:
        """Every object of every kind, cluster-wide, but those of `KEPT`."""
        return frozenset(one for one in inventory.objects(self.cluster) if one.partition(" ")[0] not in KEPT)


@pytest.fixture(scope="module")
def leaving() -> Iterator[Leaving]:
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        with aws_cluster(cluster, clock_factor=8.0) as aws:
            made = Leaving(aws)
            made.delete_definitions()
            made.await_definitions_gone()
            yield made
    finally:
        cluster.down()


def test_in_every_documented_way_no_instance_ends_and_no_pod_goes(leaving: Leaving) -> None:
    before = leaving.inventory()

    # kept for nobody, the command first and killed at every write; then everything is deleted
    leaving.install()
    kept = leaving.bring("first", 2)
    first, nodes = leaving.running(), leaving.nodes()
    status, output = leaving.uninstall("--keep-nodes", "--for", "nobody", "--dry-run")
    assert (status, "finalizer" in output) == (0, True), output
    kubelet = leaving.stops_when_scaled()
    assert leaving.until_done("--keep-nodes", "--for", "nobody") >= 8
    kubelet.join(30)
    leaving.delete_manifests()
    leaving.await_definitions_gone()
    assert leaving.inventory() - before <= {f"ConfigMap {SPACE}/{names.SETTINGS_CONFIGMAP}"}
    assert (leaving.alive(), leaving.running(), leaving.nodes()) == (kept, first, nodes)

    # everything is deleted first; what comes again ends nothing, and the command repairs it
    leaving.install()
    kept |= leaving.bring("second", 2)
    pods, nodes = leaving.running(), leaving.nodes()
    leaving.stop()
    leaving.delete_manifests()
    leaving.aws.eventually(
        lambda: all(one.metadata.deletion_timestamp for one in leaving.client.list(NODECLAIMS)), "they are deleted"
    )
    SystemClock().sleep(1.5)  # the second in which they were deleted is over
    leaving.install()

    def waiting() -> int:
        return sum(names.AWAITS_CONFIRMATION in one.metadata.annotations for one in leaving.client.list(NODECLAIMS))

    leaving.aws.eventually(lambda: waiting() == 2, "both wait")
    SystemClock().sleep(LOOK_SECONDS)
    assert (leaving.alive(), leaving.running(), leaving.nodes()) == (kept, pods, nodes)
    kubelet = leaving.stops_when_scaled()
    assert leaving.until_done("--keep-nodes", "--for", "nobody") >= 5
    kubelet.join(30)
    leaving.delete_manifests()
    leaving.await_definitions_gone()
    assert (leaving.alive(), leaving.running(), leaving.nodes()) == (kept, pods, nodes)

    # drained: nodes of ours end, those that are nobody's do not
    leaving.install()
    drained = leaving.bring("third", 2)
    status, output = leaving.uninstall("--drain")
    assert status == 1, output
    assert "2 pods do not fit" in output
    assert leaving.alive() == kept | drained
    assert leaving.until_done("--drain", "--leave-pending") >= 6
    leaving.aws.eventually(lambda: leaving.alive() == kept, "only their instances end", 120.0)
    assert pods <= leaving.running()

    def third() -> list[tuple[str, str]]:
        found = leaving.client.list(PODS, NAMESPACE, label_selector="app=third")
        return [(one.phase, one.node_name) for one in found]

    eventually(lambda: third() == [("Pending", "")] * 2, third)
    leaving.client.delete(DEPLOYMENTS, "third", NAMESPACE)
    leaving.client.delete(CONFIGMAPS, names.SETTINGS_CONFIGMAP, SPACE)

    # for Karpenter, which is played by the next installation
    kept |= leaving.bring("fourth", 2)
    pods = leaving.running()
    machines = {one.name: (one.metadata.uid, one.status.provider_id) for one in leaving.client.list(NODECLAIMS)}
    kubelet = leaving.stops_when_scaled()
    assert leaving.until_done("--keep-nodes", "--for", "karpenter") >= 5
    kubelet.join(30)
    for claim in leaving.client.list(NODECLAIMS):
        assert not [key for key in claim.metadata.annotations if key.startswith("dovetail.dev/")]
        assert names.TERMINATION_FINALIZER in claim.metadata.finalizers
    leaving.install()
    SystemClock().sleep(ORPHAN_SECONDS)
    assert {one.name: (one.metadata.uid, one.status.provider_id) for one in leaving.client.list(NODECLAIMS)} == machines
    assert (leaving.alive(), leaving.running()) == (kept, pods)


def test_pods_that_wait_for_our_scheduler_are_made_anew(leaving: Leaving, tmp_path: Path) -> None:
    """The command killed at every write; no pod is lost, and none waits any more for a scheduler that is gone."""
    hook = Hook(leaving.cluster, tmp_path)
    hook.start()
    try:
        namespace = hook.namespace(scheduler="enabled")
        applying.apply(leaving.client, [deployment("queued", namespace, 3, {"cpu": "1000"})])
        schedulers = functools.partial(_schedulers, leaving, namespace)
        eventually(lambda: schedulers() == [names.SCHEDULER_NAME] * 3, lambda: f"stamped: {schedulers()}")
    finally:
        leaving.cluster.stop(hook.program)  # outside of a cluster it registers itself again
    assert killed_at_every_write(lambda when: leaving.uninstall(dying=when)) >= 5
    eventually(lambda: schedulers() == [names.DEFAULT_SCHEDULER_NAME] * 3, lambda: f"made anew: {schedulers()}")
    assert not leaving.client.list(MUTATINGWEBHOOKS)


def _schedulers(leaving: Leaving, namespace: str) -> list[str]:
    """Of each pod there."""
    return leaving.cluster.kubectl(
        *("-n", namespace, "get", "pods", "-o", "jsonpath={.items[*].spec.schedulerName}")
    ).split()
