"""Pods of groups on a real control plane without the extender: nominated when all their nodes are there, and not before."""

from collections.abc import Iterator
from typing import Self

import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.kube.client import Client
from provisioner.kube.resources import PODS
from provisioner.kube.watch import Reflector
from provisioner.lab.devcluster.cluster import DevCluster
from tests.integration.test_gang_steering import (
    GANG,
    NEVER,
    Begin,
    all_bound,
    bound,
    of_annotations,
    of_podgroup,
    put_group,
    put_pod,
)
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane


@pytest.fixture(scope="module")
def provisioner(gang_plane: DevCluster, gang_client: Client) -> Iterator[InProcess]:
    """It nominates everybody it may, so that each pod is bound to the very node that was planned for it."""
    with InProcess(str(gang_plane.kubeconfig), nominate="true") as one:
        yield one


@pytest.fixture
def plot(gang_client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(gang_client)
    yield one
    one.clear()


class Sight:
    """What stood in `status.nominatedNodeName` at any time, while it is entered; how many Nodes of the plot there were then."""

    def __init__(self, plot: Plot) -> None:
        self._plot = plot
        self._watch = Reflector(plot.client.connection, PODS, changed=self._look, namespace=plot.name)
        self.seen: set[tuple[str, str, int]] = set()

    def __enter__(self) -> Self:
        self._watch.start()
        assert self._watch.synced.wait(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.stop()

    def _look(self, _: Pod | None, pod: Pod | None) -> None:
        if pod is not None and pod.nominated_node_name:
            self.seen.add((pod.name, pod.nominated_node_name, len(self._plot.nodes())))  # there are never fewer


@pytest.mark.parametrize("begin", [of_podgroup, of_annotations], ids=["of a PodGroup", "of annotations"])
def test_each_of_a_group_is_nominated_to_its_planned_node_and_all_run_on_nodes_of_their_own(
    plot: Plot, begin: Begin
) -> None:
    """A nomination is a hint: kube-scheduler may see two Nodes open before it sees whom they are for, and let their pods change places.

    Then the plan of a claim may be empty, because its pod took another place and the one that came instead is bound.
    """
    pool = plot.pool(**NEVER)
    more = begin(plot)
    with Sight(plot) as sight:
        for number, name in enumerate(GANG):
            put_pod(plot, name, [pool], cpu=f"{3000 - number}m", **more)
        eventually(lambda: all_bound(plot, *GANG), "all are bound", SECONDS)
    eventually(lambda: all(one.status.node_name for one in plot.claims()), "each claim names its node", SECONDS)
    own = sorted(one.status.node_name for one in plot.claims())
    assert sorted(bound(plot, *GANG).values()) == own
    told = {(name, node) for name, node, _ in sight.seen}
    assert {node for _, node in told} <= set(own)
    assert len(told) == len({name for name, _ in told}) == len({node for _, node in told})
    assert {nodes for *_, nodes in sight.seen} == {4}
    eventually(lambda: not [one for one in plot.pods() if one.nominated_node_name], "nobody is nominated any more")


def test_members_of_a_group_that_is_given_up_keep_no_nomination(plot: Plot) -> None:
    """A limit leaves room for one node, which one member of three runs on; nobody else is nominated to it."""
    pool = plot.pool(limits={"cpu": "4"}, **NEVER)
    put_group(plot, 3)
    with Sight(plot) as sight:
        for name in ("a", "b", "c"):
            put_pod(plot, name, [pool])
        put_pod(plot, "single", [pool], group="")
        eventually(lambda: all_bound(plot, "single"), "the single pod runs", SECONDS)
    assert not [name for name, *_ in sight.seen if name != "single"]
    assert not any(bound(plot, "a", "b", "c").values())
    assert names.PLAN_ANNOTATION in plot.claims()[0].metadata.annotations
