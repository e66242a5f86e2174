"""Disruption commands on a real control plane: replacement first, within budgets, resumed after a crash, rolled back where they fail."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from provisioner.kube.client import Client
from provisioner.kube.resources import KWOKNODECLASSES, NODEPOOLS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.options import TimeLimits
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, TEAM, InProcess, Plot

pytestmark = pytest.mark.plane

BUSY = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}


@pytest.fixture
def program(plane: DevCluster, client: Client) -> Iterator[InProcess]:
    with InProcess(str(plane.kubeconfig), timeouts=TimeLimits(command=timedelta(seconds=20))) as one:
        yield one


@pytest.fixture
def plot(program: InProcess, client: Client) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def relabel(plot: Plot, pool: str, value: str) -> None:
    """Change a label of a pool's template: every node of it is drifted then."""
    body = {"spec": {"template": {"metadata": {"labels": {TEAM: pool, "dovetail.example/generation": value}}}}}
    plot.client.patch(NODEPOOLS, pool, body)


def generation(claim: NodeClaim) -> str:
    return claim.metadata.labels.get("dovetail.example/generation", "")


def is_renewed(plot: Plot, pool: str, value: str, nodes: int) -> bool:
    claims = plot.claims(pool)
    return len(claims) == nodes and all(
        generation(one) == value and one.metadata.deletion_timestamp is None for one in claims
    )


def test_a_pool_whose_template_changes_is_replaced_replacement_first(plot: Plot) -> None:
    pool = plot.pool(disruption={**BUSY, "budgets": [{"nodes": "2"}]})
    plot.deploy("web", 5)
    plot.await_running(5)
    eventually(lambda: len(plot.initialized()) == 5, "five nodes are initialized", SECONDS)
    plot.protect("web", minAvailable=4)
    old = {one.name for one in plot.claims()}
    relabel(plot, pool, "two")
    fewest, most_away = 5, 0

    def renewed() -> bool:
        nonlocal fewest, most_away
        fewest = min(fewest, plot.running("web"))
        claims = plot.claims()
        nodes = {node.metadata.name for node in plot.nodes()}  # afterwards: whose Node is gone counts no more
        away = [
            one
            for one in claims
            if one.name in old
            and one.status.node_name in nodes
            and condition(one.status.conditions, names.DISRUPTION_REASON) is not None
            and condition(one.status.conditions, names.INSTANCE_TERMINATING) is None
        ]
        most_away = max(most_away, len(away))
        return is_renewed(plot, pool, "two", 5)

    eventually(renewed, "every node is of the new template", 2 * SECONDS, 0.1)
    plot.await_running(5)
    assert fewest >= 4, "a pod was evicted before its successor ran"
    assert most_away <= 2, "more nodes were disrupted at once than the budget allows"

    def told() -> set[str]:
        return {one.involved_object.name for one in plot.events("DisruptionTerminating", "NodeClaim", old)}

    eventually(lambda: told() == old, told)


def test_a_replacement_that_never_registers_is_given_up_and_its_node_takes_pods_again(plot: Plot) -> None:
    pool = plot.pool(disruption=BUSY)
    plot.deploy("web", 1)
    plot.await_running(1)
    (old,) = eventually(plot.initialized, "the node is initialized", SECONDS)
    plot.client.patch(KWOKNODECLASSES, pool, {"spec": {"nodeRegistrationDelay": "1h"}})
    relabel(plot, pool, "two")
    eventually(lambda: len(plot.claims()) == 2, "a replacement is made", SECONDS)
    node = next(one for one in plot.nodes() if one.metadata.name == old.status.node_name)
    assert [taint.key for taint in node.spec.taints if taint == names.DISRUPTED_TAINT]

    def rolled_back() -> bool:
        (node,) = plot.nodes()
        claim = next(one for one in plot.claims() if one.name == old.name)
        told = condition(claim.status.conditions, names.DISRUPTION_REASON)
        marked = names.COMMAND_ANNOTATION in claim.metadata.annotations
        return names.DISRUPTED_TAINT not in node.spec.taints and told is None and not marked

    eventually(rolled_back, "the node takes pods again", SECONDS, 0.2)

    def blocked() -> list[str]:
        return [one.message for one in plot.events("DisruptionBlocked", "NodeClaim", [old.name])]

    eventually(lambda: any("no progress" in one for one in blocked()), blocked)
    assert sum("no progress" in one for one in blocked()) == 1, blocked()
    assert plot.running() == 1
    assert plot.events("Evicted", "Pod") == []
    plot.client.patch(KWOKNODECLASSES, pool, {"spec": {"nodeRegistrationDelay": None}})


def test_two_pools_with_a_budget_of_one_each_are_renewed_side_by_side(plot: Plot) -> None:
    one_at_a_time = {**BUSY, "budgets": [{"nodes": "1"}]}
    pools = [plot.pool(suffix, disruption=one_at_a_time) for suffix in ("-a", "-b")]
    for pool in pools:
        plot.deploy(pool.rpartition("-")[2], 2, pool=pool)
    plot.await_running(4)
    eventually(lambda: len(plot.initialized()) == 4, "four nodes are initialized", SECONDS)
    old = {one.name for one in plot.claims()}
    for pool in pools:
        relabel(plot, pool, "two")
    most: Counter[str] = Counter()
    both = False

    def renewed() -> bool:
        nonlocal both
        claims = plot.claims()
        nodes = {node.metadata.name for node in plot.nodes()}  # afterwards: whose Node is gone counts no more
        away = Counter(
            one.pool
            for one in claims
            if one.name in old
            and one.status.node_name in nodes
            and names.COMMAND_ANNOTATION in one.metadata.annotations
            and not is_true(one.status.conditions, names.INSTANCE_TERMINATING)
        )
        both = both or len(away) == 2
        for pool, count in away.items():
            most[pool] = max(most[pool], count)
        return all(is_renewed(plot, pool, "two", 2) for pool in pools)

    eventually(renewed, "every node is of the new template", 2 * SECONDS, 0.05)
    assert dict(most) == dict.fromkeys(pools, 1)
    assert both, "one pool waited for the other"
