"""Interruptions and drift on a real control plane: nodes of kwok that are taken back while their pods run."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.interruption import Interruption
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.interruption.controller import Interruptions
from provisioner.kube.client import Client
from provisioner.kube.resources import NODECLAIMS, NODEPOOLS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.nodeclaims.writers import Writers
from provisioner.operator.kwok import KwokCloud
from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller
from provisioner.support.clock import SystemClock
from provisioner.support.workers import WorkerPool
from provisioner.termination.ends import Ends
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane


class InterruptibleCloud(KwokCloud):
    """kwok, with what AWS adds to the life of a node instead of its garbage collection."""

    interruptions: Interruptions

    def controllers(self, base: Base, writing: Writers, ending: Ends, ledger: BudgetLedger) -> list[Controller]:
        workers = WorkerPool(4, "interruption")
        self.interruptions = Interruptions(
            base.cluster,
            ending.taints,
            writing.claims,
            base.recorder,
            workers,
            base.clock,
            ledger=ledger,
            plan=base.plan_again,
        )
        return [Controller(runner=self.interruptions.poller, pools=(workers,))]


class Interruptible:
    """A provisioner and the means to interrupt its nodes."""

    def __init__(self, kubeconfig: str) -> None:
        clouds: list[InterruptibleCloud] = []

        def cloud(provider: object) -> InterruptibleCloud:
            clouds.append(InterruptibleCloud(provider))  # type: ignore[arg-type]
            return clouds[0]

        self.process = InProcess(kubeconfig, cloud=cloud, nominate=True)
        self.process.start()
        self.cloud = clouds[0]

    def interrupt(self, claim: NodeClaim, *, seconds: float = 120.0) -> datetime:
        """As a spot notice does; when evictions no longer wait."""
        now = SystemClock().now()
        ends = now + timedelta(seconds=seconds)
        evicts = ends - timedelta(seconds=75)
        mark = Interruption("spot_interrupted", replaced=True, evicts=evicts, ends=ends)
        assert self.cloud.interruptions.mark(claim, mark)
        return evicts


@pytest.fixture(scope="module")
def provisioner(plane: DevCluster, client: Client) -> Iterator[Interruptible]:
    one = Interruptible(str(plane.kubeconfig))
    yield one
    one.process.stop()


@pytest.fixture
def plot(client: Client, provisioner: Interruptible) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def others(claims: list[NodeClaim], old: NodeClaim) -> list[NodeClaim]:
    return [one for one in claims if one.name != old.name]


def test_the_replacement_is_ready_before_the_first_pod_is_evicted(plot: Plot, provisioner: Interruptible) -> None:
    plot.pool(delay="3s")
    plot.deploy("web", 1)
    plot.await_running(1)
    (old,) = eventually(plot.initialized, "the claim is initialised", SECONDS)
    provisioner.interrupt(plot.client.get(NODECLAIMS, old.name))

    def closed() -> bool:
        node = next(one for one in plot.nodes() if one.metadata.name == old.status.node_name)
        return any(taint.key == names.DISRUPTED_TAINT.key for taint in node.spec.taints)

    eventually(closed, "the node is closed", 5.0)
    before = {pod.uid for pod in plot.pods("web")}
    (replacement,) = eventually(lambda: others(plot.claims(), old), "a replacement", 10.0)
    while True:
        seen, runs = {pod.uid for pod in plot.pods("web")}, plot.running("web")
        if others(plot.initialized(), old):  # asked last: the eviction may follow at once
            break
        assert (seen, runs) == (before, 1), "the pod runs until its new place is ready"
    (replacement,) = others(plot.initialized(), old)
    eventually(
        lambda: {pod.node_name for pod in plot.pods("web")} == {replacement.status.node_name} and plot.running("web"),
        "the pod runs on the replacement",
        SECONDS,
    )
    eventually(lambda: [one.name for one in plot.claims()] == [replacement.name], "the old node is gone", SECONDS)
    eventually(lambda: plot.events("TerminatingOnInterruption", "NodeClaim", [old.name]), "it is told", SECONDS)


def test_when_no_replacement_comes_pods_are_evicted_by_the_deadline_and_deleted_at_the_end(
    plot: Plot, provisioner: Interruptible
) -> None:
    pool = plot.pool()
    plot.deploy("web", 1)
    plot.deploy("held", 1, terminationGracePeriodSeconds=70)
    plot.await_running(2)
    plot.protect("held")
    eventually(lambda: len(plot.initialized()) == 2, "both claims are initialised", SECONDS)
    claims = {one.status.node_name: one for one in plot.initialized()}
    plot.change_pool(pool, limits={"cpu": "1"})  # nodes that go count for nobody, and the smallest is larger
    pools = next(one.store for one in provisioner.process.caches.all if one.resource is NODEPOOLS)
    eventually(lambda: (known := pools.get(pool)) is not None and known.spec.limits, "the provisioner knows the limit")
    (web,), (held,) = plot.pods("web"), plot.pods("held")
    deadlines = [provisioner.interrupt(claims[pod.node_name], seconds=85) for pod in (web, held)]
    eventually(lambda: web.uid not in {pod.uid for pod in plot.pods("web")}, "the pod is evicted", SECONDS)
    assert SystemClock().now() >= deadlines[0]
    eventually(lambda: held.uid not in {pod.uid for pod in plot.pods("held")}, "the protected one is deleted", SECONDS)
    plot.unprotect("held")
    plot.change_pool(pool, limits=None)
    plot.await_running(2)


def test_a_claim_says_that_it_has_drifted_and_that_it_has_not(plot: Plot) -> None:
    pool = plot.pool(disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]})
    plot.deploy("web", 1)
    plot.await_running(1)

    def reason() -> str:
        (claim,) = plot.claims()
        found = condition(claim.status.conditions, names.DRIFTED)
        return found.reason if found is not None else ""

    assert reason() == ""
    plot.change_pool(pool, template={"metadata": {"labels": {"tier": "gold"}}})
    eventually(lambda: reason() == "NodePoolDrifted", "the claim has drifted", SECONDS)
    plot.change_pool(pool, template={"metadata": {"labels": {"tier": None}}})
    eventually(lambda: reason() == "", "the claim has drifted no more", SECONDS)
