"""The whole life of an installation on emulated EC2, with Helm and with kustomize: it comes as the version before, is upgraded, rolled back, left in each
documented way and comes again. No pod is lost, no instance ends that should not, and what is left each time is what docs/guides/leave.md says.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from provisioner.apis import names
from provisioner.kube.resources import CRDS, DEPLOYMENTS, NODECLAIMS, NODES, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.support import inventory
from tests.support.awscluster import CLUSTER, NAMESPACE, AwsCluster, aws_cluster
from tests.support.charts import MANIFESTS
from tests.support.commands import dovetail, stops_when_scaled
from tests.support.eventually import eventually
from tests.support.installing import Helm, Installation, Kustomize, Way
from tests.support.inventory import Account
from tests.support.oldversion import OldVersion

pytestmark = [pytest.mark.plane, pytest.mark.package, pytest.mark.timeout(2400)]

BEFORE: Final = "9982b13a"
"""The last commit whose overlays contained definitions and namespace; nothing guarded an installation."""
SPACE: Final = "dovetail-system"
PODS_AT_FIRST: Final = 100
SECONDS: Final = 180.0
LOOK_SECONDS: Final = 15.0
"""In which everything that looks every ten seconds has looked."""
SIZES: Final = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["8"]}
OF_NODES: Final = frozenset({"Node", "Lease kube-node-lease"})


def stays(namespace: str) -> set[str]:
    """What the definitions and the namespace are, with what Kubernetes makes of them, and NodePools and node classes."""
    made = {f"ConfigMap {namespace}/kube-root-ca.crt", f"ServiceAccount {namespace}/default"}
    return {"CustomResourceDefinition", "APIService", "Namespace", "NodePool", "EC2NodeClass", *made}


def overlay(manifests: Path, folder: Path, queue: str) -> Path:
    """A copy of the overlay for AWS beside it, with the names of cluster and queue, as docs/guides/install.md has it made."""
    shutil.copytree(manifests, folder / "manifests", dirs_exist_ok=True)
    mine = folder / "manifests" / "overlays" / "mine"
    shutil.copytree(folder / "manifests" / "overlays" / "aws", mine)
    text = (mine / "provisioner.yaml").read_text(encoding="utf-8")
    text = text.replace("CLUSTER_NAME, value: my-cluster", f"CLUSTER_NAME, value: {CLUSTER}")
    (mine / "provisioner.yaml").write_text(text.replace("value: my-cluster", f"value: {queue}"), encoding="utf-8")
    return mine


class Life:
    """The cluster, its pods, and what was there before Dovetail came."""

    def __init__(self, aws: AwsCluster, home: Path) -> None:
        self.aws, self.client, self.cluster = aws, aws.client, aws.cluster
        self.installation = Installation(
            aws.cluster, home, {"cluster-endpoint": aws.cluster.host}, aws.ec2.environment()
        )
        self.pods = PODS_AT_FIRST
        aws.deploy("web", self.pods, nodeSelector={names.NODEPOOL_LABEL: "general"})
        self.await_pods(lambda: self.running(), 0)
        self.cluster_before, self.account_before = inventory.objects(self.cluster), Account.of(aws.ec2)

    # ------------------------------------------------------------------ coming

    def starts(self, way: Way, version: OldVersion | None = None) -> None:
        """The programs begin that were applied."""
        self.installation.become(version)
        self.installation.sync(way.namespace)

    def buys(self, more: int = 0) -> None:
        """There is a class and a pool, and all pods run; `more` are added."""
        self.aws.node_class()
        self.aws.pool(requirements=(SIZES,))
        self.grows(more)

    def grows(self, more: int) -> None:
        """It works: pods that are added run."""
        self.pods += more
        self.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": self.pods}}, NAMESPACE)
        self.await_pods(lambda: self.running(), self.pods)
        self.aws.eventually(lambda: len(self.aws.initialized()) == len(self.aws.claims()), "every node is ready")

    def await_pods(self, found: Callable[[], frozenset[str]], count: int) -> None:
        self.aws.eventually(
            lambda: len(found()) == count and len(self.client.list(PODS, NAMESPACE)) == self.pods,
            f"{count} of {self.pods} pods\n{self.installation.log('provisioner')}",
            SECONDS,
        )

    # ------------------------------------------------------------------ going

    def uninstall(self, way: Way, *arguments: str) -> str:
        """The command ends well, and a provisioner that it scales to 0 with it; what it said."""
        kubelet = None
        if "--keep-nodes" in arguments and self.installation.started:
            kubelet = stops_when_scaled(self.client, way.namespace, lambda: self.installation.sync(way.namespace))
        status, output = dovetail(
            self.cluster, "uninstall", "-n", way.namespace, *arguments, environment=self.aws.ec2.environment()
        )
        assert status == 0, output
        if kubelet is not None:
            kubelet.join(60)
        return output

    def removed(self, way: Way) -> None:
        """The programs are removed, and end."""
        way.remove()
        self.installation.sync(way.namespace)
        assert self.installation.started == {}
        self.installation.ended()

    def remove_definitions(self, way: Way) -> None:
        way.remove_definitions()
        eventually(
            lambda: not any("karpenter" in one.metadata.name for one in self.client.list(CRDS)), "definitions are gone"
        )

    # ------------------------------------------------------------------ looking

    def running(self) -> frozenset[str]:
        """UID and node of each pod that runs."""
        found = self.client.list(PODS, NAMESPACE)
        return frozenset(
            f"{one.uid} {one.node_name}" for one in found if one.phase == "Running" and one.deleted is None
        )

    def machines(self) -> frozenset[str]:
        """Each Node with its UID and its instance."""
        return frozenset(
            f"{one.metadata.name} {one.metadata.uid} {one.spec.provider_id}"
            for one in self.client.list(NODES)
            if one.metadata.deletion_timestamp is None
        )

    def claims(self) -> frozenset[str]:
        """Each NodeClaim with its UID and its instance."""
        return frozenset(
            f"{one.name} {one.metadata.uid} {one.status.provider_id}"
            for one in self.client.list(NODECLAIMS)
            if one.metadata.deletion_timestamp is None
        )

    def fleet(self) -> tuple[frozenset[str], ...]:
        """What may neither end nor be doubled by a change of the installation."""
        return self.running(), self.machines(), self.claims(), Account.of(self.aws.ec2).instances

    def left(self) -> set[str]:
        """What is in the cluster and was not before: kinds of what has no namespace, and everything else by its name."""
        found = inventory.objects(self.cluster)
        assert found >= self.cluster_before, "something is gone that was there before"
        kinds = {one.partition(" /")[0] for one in found - self.cluster_before}
        return {"Lease kube-node-lease" if one.startswith("Lease kube-node-lease/") else one for one in kinds}


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        with aws_cluster(cluster, clock_factor=10.0) as aws:
            cluster.kubectl("delete", "-k", str(MANIFESTS / "crds"), timeout_seconds=400)
            cluster.kubectl("delete", "namespace", SPACE)
            yield Life(aws, tmp_path)
    finally:
        cluster.down()


@pytest.fixture(params=["helm", "kustomize"])
def way(request: pytest.FixtureRequest, life: Life, tmp_path: Path) -> Way:
    queue = life.aws.ec2.vpc.queue
    if request.param == "kustomize":
        return Kustomize(life.cluster, tmp_path / "overlays", overlay=overlay(MANIFESTS, tmp_path / "new", queue))
    values = (f"settings.clusterName={CLUSTER}", f"settings.interruptionQueue={queue}")
    return Helm(life.cluster, tmp_path / "helm", SPACE, values, ("--take-ownership", "--force-conflicts"))


def test_nothing_is_lost_and_nothing_is_left(life: Life, way: Way, tmp_path: Path) -> None:
    old = OldVersion(tmp_path / "old", BEFORE)
    old_overlay = str(overlay(old.folder / "manifests", tmp_path / "before", life.aws.ec2.vpc.queue))

    # the version before, with kustomize: it had no chart
    life.cluster.kubectl("apply", "-k", old_overlay)
    life.starts(way, old)
    life.buys()
    fleet = life.fleet()
    assert len(fleet[1]) > PODS_AT_FIRST // 8

    # upgraded
    way.definitions()
    way.apply(upgraded=False)
    life.starts(way)
    life.grows(5)
    for before, after in zip(fleet, life.fleet(), strict=True):
        assert before <= after
    life.installation.nothing_was_forbidden()

    # rolled back, and upgraded again
    fleet = life.fleet()
    if isinstance(way, Helm):
        life.removed(way)
    life.cluster.kubectl("apply", "-k", old_overlay)
    life.starts(way, old)
    SystemClock().sleep(LOOK_SECONDS)
    assert life.fleet() == fleet
    way.definitions()
    way.apply(upgraded=False)
    life.starts(way)
    assert life.fleet() == fleet

    # pods are no longer stamped; applied again they are
    said = inventory.objects(life.cluster)
    life.uninstall(way)
    gone = said - inventory.objects(life.cluster)
    assert {one.split(" ")[0] for one in gone} == {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
    way.apply(upgraded=False)
    assert gone <= inventory.objects(life.cluster)

    # for Karpenter, and back
    life.uninstall(way, "--keep-nodes", "--for", "karpenter")
    life.removed(way)
    assert life.fleet() == fleet
    assert life.left() == {*stays(way.namespace), *OF_NODES, "NodeClaim"}
    way.definitions()
    way.apply(upgraded=False)
    life.starts(way)
    SystemClock().sleep(LOOK_SECONDS)
    assert life.fleet() == fleet
    life.grows(5)
    life.installation.nothing_was_forbidden()

    # drained, and nothing is left
    life.uninstall(way, "--drain", "--leave-pending")
    life.await_pods(
        lambda: frozenset(one.uid for one in life.client.list(PODS, NAMESPACE) if not one.node_name), life.pods
    )
    for kind in ("nodepools", "ec2nodeclasses"):
        life.cluster.kubectl("delete", kind, "--all")
    life.removed(way)
    life.remove_definitions(way)
    assert inventory.objects(life.cluster) == life.cluster_before
    assert Account.of(life.aws.ec2) == life.account_before

    # for nobody, from a namespace of ours
    if isinstance(way, Helm):
        way = replace(way, namespace="autoscaling", taking=())
    way.definitions()
    way.apply(upgraded=False)
    life.starts(way)
    life.buys()
    running, machines, _, instances = life.fleet()
    account = Account.of(life.aws.ec2)
    life.uninstall(way, "--keep-nodes", "--for", "nobody")
    life.removed(way)
    assert life.left() == {*stays(way.namespace), *OF_NODES}
    life.remove_definitions(way)
    assert life.left() == OF_NODES
    assert Account.of(life.aws.ec2) == account
    assert (life.running(), life.machines()) == (running, machines)

    # removed alone, and repaired
    way.definitions()
    way.apply(upgraded=False)
    life.starts(way)
    life.buys(20)
    fleet, account = life.fleet(), Account.of(life.aws.ec2)
    assert running <= fleet[0]
    assert instances < account.instances
    life.removed(way)
    assert life.fleet() == fleet
    life.uninstall(way, "--keep-nodes", "--for", "nobody")
    life.remove_definitions(way)
    assert life.left() == OF_NODES
    assert Account.of(life.aws.ec2) == account
    assert (life.running(), life.machines()) == fleet[:2]

    # and again
    way.definitions()
    way.apply(upgraded=False)
    life.starts(way)
    life.buys()
    SystemClock().sleep(LOOK_SECONDS)
    assert life.fleet()[:2] == fleet[:2]
    now = Account.of(life.aws.ec2)
    assert now.instances == account.instances
    assert now.profiles > account.profiles, "those by which nodes that were kept get their credentials"
    life.installation.nothing_was_forbidden()
