"""What an operator does with an installation, with Helm and with kustomize, on a real control plane: it is installed, upgraded, rolled back, removed and
installed again, and neither a definition nor a NodePool, node or pod is lost by it.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.errors import StateError
from provisioner.lab.progress import progress_for
from tests.support.charts import CHART, DEFINITIONS, MANIFESTS
from tests.support.eventually import eventually
from tests.support.installing import PODS, SECONDS, Document, Helm, Installation, Kustomize, Way, is_deleted
from tests.support.oldversion import OldVersion

pytestmark = [pytest.mark.package, pytest.mark.plane, pytest.mark.timeout(1200)]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        yield Installation(cluster, tmp_path)
    finally:
        cluster.down()


@pytest.fixture(params=["helm", "helm in a namespace of ours", "kustomize"])
def way(request: pytest.FixtureRequest, installation: Installation, tmp_path: Path) -> Way:
    if request.param == "kustomize":
        return Kustomize(installation.cluster, tmp_path / "overlays")
    namespace = "dovetail-system" if request.param == "helm" else "autoscaling"
    return Helm(installation.cluster, tmp_path / "helm", namespace)


def test_nothing_is_lost_by_upgrade_rollback_removal_and_a_second_installation(
    installation: Installation, way: Way
) -> None:
    way.definitions()
    way.apply(upgraded=False)
    installation.sync(way.namespace)
    bundle = eventually(
        lambda: {""} != installation.bundles() and installation.bundles(),
        lambda: f"caBundle\n{installation.log('webhook')}",
        SECONDS,
    )
    installation.work()
    before = installation.census()
    assert len([key for key in before if key[0] == "nodes"]) > 1
    first = installation.started["dovetail-provisioner"]

    way.apply(upgraded=True)
    installation.sync(way.namespace)
    assert installation.started["dovetail-provisioner"] != first
    installation.scale(PODS + 20)  # it works
    later = installation.census()
    assert before.items() <= later.items()
    assert installation.bundles() == bundle, "an upgrade keeps what the webhook wrote"

    way.back()
    installation.sync(way.namespace)
    assert installation.started["dovetail-provisioner"] == first
    assert installation.census() == later
    assert installation.bundles() == bundle

    installation.nothing_was_forbidden()
    way.remove()
    installation.sync(way.namespace)
    installation.ended()
    assert installation.started == {}
    assert installation.census() == later
    assert installation.items("clusterroles", "-l", "app.kubernetes.io/name=dovetail") == []

    if isinstance(way, Helm):  # the definitions are kept, and are no release's any more
        way.helm("install", "dovetail-crd", DEFINITIONS, "--take-ownership")
    way.apply(upgraded=False)
    installation.sync(way.namespace)
    installation.scale(PODS + 30)
    assert later.items() <= installation.census().items()
    installation.nothing_was_forbidden()


def test_the_notes_of_the_chart_warn_of_what_is_missing_and_of_who_else_is_there(
    installation: Installation, tmp_path: Path
) -> None:
    cluster, charts = installation.cluster, Helm(installation.cluster, tmp_path / "helm", "dovetail-system")
    dry = ("install", "dovetail", CHART, "--set", "provider=kwok", "--dry-run=server")
    told = charts.helm(*dry)
    assert "WARNING: the definition nodepools.karpenter.sh does not exist" in told
    assert "WARNING: Karpenter has a Lease" not in told
    charts.definitions()
    lease: Document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    lease |= {
        "metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
        "spec": {"holderIdentity": "k"},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(lease))
    told = charts.helm(*dry)
    assert "nodepools.karpenter.sh does not exist" not in told
    assert "WARNING: Karpenter has a Lease in the namespace kube-system" in told
    assert "dovetail uninstall --namespace dovetail-system --dry-run" in told
    told = charts.helm(*dry, "--set", "scheduler.enabled=true", "--set", "scheduler.image.tag=v1.99.0")
    assert "WARNING: scheduler.image.tag v1.99.0 is newer than the API server" in told


def test_helm_takes_over_what_kustomize_applied(installation: Installation, tmp_path: Path) -> None:
    cluster = installation.cluster
    by_hand, charts = Kustomize(cluster, tmp_path / "overlays"), Helm(cluster, tmp_path / "helm", "dovetail-system")
    by_hand.definitions()
    by_hand.apply(upgraded=False)
    installation.sync("dovetail-system")
    installation.work(20)
    before, running = installation.census(), dict(installation.started)
    taking = ("--take-ownership", "--force-conflicts")
    charts.helm("install", "dovetail-crd", DEFINITIONS, *taking)
    charts.helm("install", "dovetail", CHART, "--set", "provider=kwok", *taking)
    installation.sync("dovetail-system")
    assert installation.census() == before
    assert installation.started.keys() == running.keys()
    values = ("--set", "provider=kwok", "--set", "webhook.replicas=3")
    with pytest.raises(AssertionError, match="kubectl-client-side-apply"):  # what kubectl applied stays its own, too
        charts.helm("upgrade", "dovetail", CHART, *values)
    charts.helm("upgrade", "dovetail", CHART, *values, "--force-conflicts")
    installation.sync("dovetail-system")
    assert installation.census() == before
    charts.remove()
    installation.sync("dovetail-system")
    assert installation.census() == before


BEFORE: Final = "9982b13a"
"""The last commit but one whose overlays contained definitions and namespace without a word to pruners."""
SELECTED: Final = ("--prune", "-l", "app.kubernetes.io/name=dovetail")
ALLOWED: Final = (
    "--prune-allowlist=apiextensions.k8s.io/v1/CustomResourceDefinition",
    "--prune-allowlist=core/v1/Namespace",
    "--prune-allowlist=core/v1/ConfigMap",
)


@pytest.mark.parametrize("prepared", [True, False], ids=["as the page says", "without the first step"])
def test_pruning_after_an_upgrade_takes_no_definition_nodepool_or_node(
    installation: Installation, tmp_path: Path, *, prepared: bool
) -> None:
    """Without the first step of docs/guides/upgrade.md the namespace goes, and with it the programs; the second time they are back."""
    cluster, old = installation.cluster, OldVersion(tmp_path / "old", BEFORE)
    overlay = str(MANIFESTS / "overlays" / "kwok")
    cluster.kubectl("apply", "-k", str(old.folder / "manifests" / "overlays" / "kwok"))
    installation.become(old)
    installation.sync("dovetail-system")
    installation.work(20)
    before = installation.census()
    (namespace,) = (one for one in installation.items("namespaces") if one["metadata"]["name"] == "dovetail-system")
    if prepared:
        for name in ("crds", "namespace"):
            cluster.kubectl("apply", "-k", str(MANIFESTS / name))
    for allowed in ((), ALLOWED):
        try:
            cluster.kubectl("apply", *SELECTED, *allowed, "-k", overlay)
        except StateError:
            if prepared:
                raise
    found = [one for one in installation.items("namespaces") if one["metadata"]["uid"] == namespace["metadata"]["uid"]]
    assert bool(found and not is_deleted(found[0])) == prepared
    installation.become(None)
    if not prepared:
        eventually(
            lambda: "dovetail-system" not in {one["metadata"]["name"] for one in installation.items("namespaces")},
            "the namespace is gone",
            SECONDS,
            0.5,
        )
        for name in ("crds", "namespace", "overlays/kwok"):
            cluster.kubectl("apply", "-k", str(MANIFESTS / name))
    installation.sync("dovetail-system")
    installation.scale(30)
    assert before.items() <= installation.census().items()
    later = installation.census()
    cluster.kubectl("delete", "-k", overlay)
    installation.sync("dovetail-system")
    assert installation.census() == later
    assert "dovetail-system" in {one["metadata"]["name"] for one in installation.items("namespaces")}
