"""Pods of managed node groups move under budgets, group by group, killed at every write."""

from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.takeover.group_draining import GroupDrain, GroupOutcome
from provisioner.takeover.group_moves import GroupFacts, MoveKind, next_move, reduction_command
from provisioner.takeover.node_groups import GROUP_LABEL, ManagedNodeGroup, ScalingConfig, group_of
from tests.support import takeover
from tests.support.clock import NOON
from tests.support.cluster import World
from tests.support.kube import Sent
from tests.support.takeover import Wire
from tests.support.worldserver import ServerDied, WorldServer
from tests.unit.takeover.test_node_groups import GROUP

READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": NOON.isoformat()}


def node(name: str, group: str = "web", **spec: Any) -> Wire:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {GROUP_LABEL: group}},
        "spec": {"providerID": f"aws:///a/i-{name}", **spec},
        "status": {},
    }


class Kubelets:
    """While the command waits, pods that were evicted end, and their controller makes them anew on a node of a NodePool."""

    def __init__(self, server: WorldServer, *, places: bool = True) -> None:
        self.server, self.places, self.made, self.at_once = server, places, 0, set[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.server.world.clock, name)

    def sleep(self, seconds: float) -> None:
        self.server.world.clock.sleep(max(1.0, seconds))
        ending = [one for one in self.server.all("pods") if "deletionTimestamp" in one["metadata"]]
        self.at_once.add(len({one["spec"]["nodeName"] for one in ending}))
        for one in ending:
            self.server.drop("pods", one["metadata"]["name"], "default")
            self.made += 1
            again = takeover.pod(f"new-{self.made}", "pool-1" if self.places else "")
            again["metadata"]["creationTimestamp"] = self.server.stamp()
            again["status"] = {"phase": "Running" if self.places else "Pending"}
            self.server.store("pods", again)
        for one in self.server.all("poddisruptionbudgets"):
            self.server.change(
                "poddisruptionbudgets", one["metadata"]["name"], {"status": {"disruptionsAllowed": 1}}, "default"
            )


@pytest.fixture
def server() -> WorldServer:
    server = WorldServer(World())
    server.tell, server.ends_at_once = False, False
    for name in ("n1", "n2", "n3"):
        server.store("nodes", node(name))
        for number in (1, 2):
            server.store("pods", takeover.pod(f"{name}-{number}", name))
    server.store("nodes", node("other", "db"))
    server.store("pods", takeover.pod("db-1", "other"))
    pool = {**takeover.node_pool("web"), "status": {"conditions": [READY]}}
    server.store("nodepools", pool)
    return server


def group(**changes: Any) -> ManagedNodeGroup:
    found = group_of({**GROUP, **changes})
    assert found is not None
    return found


class Aws:
    """Groups as AWS has them."""

    def __init__(self, *groups: ManagedNodeGroup) -> None:
        self.groups = {one.name: one for one in groups}
        self.sizes: list[tuple[str, int]] = []

    def describe(self, name: str) -> ManagedNodeGroup:
        return self.groups[name]

    def reduce(self, group: ManagedNodeGroup, size: int) -> None:
        self.sizes.append((group.name, size))


def run(server: WorldServer, kubelets: Kubelets, said: list[str] | None = None, **changes: Any) -> GroupOutcome:
    say = said.append if said is not None else lambda _: None
    return GroupDrain(server.client, kubelets, say, names.OWN_NAMESPACE, **changes).run(group())


def left(server: WorldServer) -> list[str]:
    return [one["metadata"]["name"] for one in server.all("pods") if one["spec"]["nodeName"] in ("n1", "n2", "n3")]


def test_one_node_after_the_other_is_emptied_and_the_reduction_is_printed(server: WorldServer) -> None:
    kubelets = Kubelets(server)
    outcome = run(server, kubelets)
    assert outcome.move.kind is MoveKind.REDUCE
    assert outcome.command == (
        "aws eks update-nodegroup-config --cluster-name prod --nodegroup-name web "
        "--scaling-config minSize=1,maxSize=10,desiredSize=1"
    )
    assert (left(server), kubelets.made) == ([], 6)
    assert kubelets.at_once == {0, 1}
    cordoned = [one["metadata"]["name"] for one in server.all("nodes") if one["spec"].get("unschedulable")]
    assert cordoned == ["n1", "n2", "n3"], "another group is left alone"
    verbs = {one.split("/")[0] for one in server.done}
    assert verbs == {"POST namespaces", "POST configmaps", "PATCH nodes", "POST evictions"}, (
        "no pod and no node is deleted"
    )


def test_budgets_are_respected(server: WorldServer) -> None:
    server.store("poddisruptionbudgets", takeover.budget("web", 1))
    kubelets = Kubelets(server)
    assert run(server, kubelets, at_once=3).move.kind is MoveKind.REDUCE
    assert kubelets.at_once == {0, 1}
    assert left(server) == []


def test_a_look_at_a_large_group_asks_for_the_pods_of_few_nodes(server: WorldServer) -> None:
    for number in range(4, 30):
        server.store("nodes", node(f"n{number}"))
        server.store("pods", takeover.pod(f"n{number}-1", f"n{number}"))
    asked: list[str] = []
    server.intercept = lambda sent: (
        asked.append(sent.path) if sent.query.get("fieldSelector", "").startswith("spec.nodeName=n") else None
    )
    assert run(server, Kubelets(server)).move.kind is MoveKind.REDUCE
    assert len(asked) < 6 * 29, "not every node at every look"


def test_while_pods_find_no_node_nothing_more_is_evicted(server: WorldServer) -> None:
    kubelets = Kubelets(server, places=False)
    outcome = run(server, kubelets, patience=30.0)
    assert outcome.is_late
    assert "waiting until 2 pods found a node" in outcome.move.text
    assert len(left(server)) == 4


def test_a_node_that_goes_before_it_is_cordoned_is_passed_over(server: WorldServer) -> None:
    def gone(sent: Sent) -> None:
        if sent.method == "PATCH" and sent.path.endswith("/nodes/n2"):
            server.drop("nodes", "n2")

    server.intercept = gone
    assert run(server, Kubelets(server)).move.kind is MoveKind.REDUCE
    assert all(one["spec"].get("unschedulable") for one in server.all("nodes") if one["metadata"]["name"] != "other")


@pytest.mark.parametrize("hours", [1, -1])
def test_when_it_began_is_told_by_the_clock_of_the_api_server(server: WorldServer, hours: int) -> None:
    """Ahead, no pod would have come since, and everything would be evicted; behind, pods that waited before would hold it."""
    waited = takeover.pod("before", "")
    waited["status"] = {"phase": "Pending"}
    server.store("pods", waited)
    server.world.clock.advance(60)
    kubelets = Kubelets(server, places=False)
    kubelets.now = lambda: server.world.clock.now() + timedelta(hours=hours)  # type: ignore[attr-defined]
    outcome = run(server, kubelets, patience=30.0)
    assert "waiting until 2 pods found a node" in outcome.move.text
    assert len(left(server)) == 4


def test_killed_at_every_write_no_pod_is_evicted_twice(server: WorldServer) -> None:
    kubelets, runs = Kubelets(server), 0
    while True:
        runs += 1
        server.dies_after = len(server.done) + 1
        try:
            outcome = run(server, kubelets, at_once=2)
        except ServerDied:
            assert runs < 100
            continue
        break
    assert outcome.move.kind is MoveKind.REDUCE
    evicted = [one for one in server.done if "evictions" in one]
    assert sorted(evicted) == sorted(set(evicted))
    assert (len(evicted), kubelets.made, left(server)) == (6, 6, [])


def lease(renewed: str) -> Wire:
    return takeover.lease("ca-1", name="cluster-autoscaler", renewed=renewed)


def test_it_refuses_while_cluster_autoscaler_scales_the_group(server: WorldServer) -> None:
    server.store("leases", lease("1"))
    kubelets = Kubelets(server)
    renewals = iter(range(2, 100))
    kubelets.sleep = lambda _: server.store("leases", lease(str(next(renewals))))  # type: ignore[method-assign,assignment]
    status = {
        "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
        "data": {"status": "Name: eks-web-123"},
    }
    server.store("configmaps", status)
    outcome = run(server, kubelets)
    assert outcome.move.kind is MoveKind.REFUSE
    assert (
        "scales eks-web-123. Stop it: kubectl -n kube-system scale deployment cluster-autoscaler --replicas=0"
        in outcome.move.text
    )
    assert not [one for one in server.done if "nodes" in one or "evictions" in one]


def test_a_group_that_it_does_not_scale_is_taken_over_beside_it(server: WorldServer) -> None:
    server.store("leases", lease("1"))
    status = {
        "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
        "data": {"status": "Name: eks-db-9"},
    }
    server.store("configmaps", status)
    assert run(server, Kubelets(server)).move.kind is MoveKind.REDUCE


def test_a_lease_that_nobody_renews_is_waited_for(server: WorldServer) -> None:
    server.store("leases", lease("1"))
    assert run(server, Kubelets(server)).move.kind is MoveKind.REDUCE
    assert server.world.clock.monotonic() >= 60


PROTECTED: dict[str, tuple[Wire, str]] = {
    "do-not-disrupt": ({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}, "do-not-disrupt"),
    "safe-to-evict": (
        {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}},
        "safe-to-evict",
    ),
    "no controller": ({"metadata": {"ownerReferences": None}}, "no controller"),
    "a selector of the group": ({"spec": {"nodeSelector": {GROUP_LABEL: "web"}}}, "managed node group"),
}


@pytest.mark.parametrize("case", PROTECTED.values(), ids=PROTECTED)
def test_pods_that_must_stay_are_named_and_all_others_move(server: WorldServer, case: tuple[Wire, str]) -> None:
    patch, why = case
    server.change("pods", "n1-1", patch, "default")
    aws = Aws(group())
    outcome = run(server, Kubelets(server), cloud=aws)
    assert outcome.move.kind is MoveKind.REFUSE
    assert "default/n1-1" in outcome.move.text
    assert why in outcome.move.text
    assert (left(server), aws.sizes) == (["n1-1"], [])


def test_without_a_node_pool_nothing_is_touched(server: WorldServer) -> None:
    server.drop("nodepools", "web")
    outcome = run(server, Kubelets(server))
    assert 'NodePool "web" does not exist' in outcome.move.text
    assert [one for one in server.done if "nodes" in one] == []


def test_apply_aws_reduces_to_the_minimum_as_it_is_now(server: WorldServer) -> None:
    aws = Aws(group(scalingConfig={"minSize": 2, "maxSize": 10, "desiredSize": 3}))
    outcome = run(server, Kubelets(server), cloud=aws)
    assert (outcome.command, aws.sizes) == ("", [("web", 2)])


def test_never_below_the_minimum() -> None:
    small = group(scalingConfig={"minSize": 2, "maxSize": 3, "desiredSize": 2})
    assert next_move(GroupFacts(group=small, nodes=(), pods={}, now=NOON)).kind is MoveKind.DONE
    assert reduction_command(small, 0).endswith("minSize=2,maxSize=3,desiredSize=2")
    assert small.scaling_config == ScalingConfig(2, 3, 2)


def test_back_makes_only_those_schedulable_that_were_cordoned_here(server: WorldServer) -> None:
    server.change("nodes", "n3", {"spec": {"unschedulable": True}})
    run(server, Kubelets(server))
    drain = GroupDrain(server.client, server.world.clock, lambda _: None, names.OWN_NAMESPACE)
    assert drain.uncordon() == 2
    assert drain.uncordon() == 0
    still = [one["metadata"]["name"] for one in server.all("nodes") if one["spec"].get("unschedulable")]
    assert still == ["n3"], "cordoned by somebody else"
    assert not any(names.TAKEOVER_CORDONED in one["metadata"].get("annotations", {}) for one in server.all("nodes"))


def test_how_far_each_group_is(server: WorldServer) -> None:
    drain = GroupDrain(server.client, server.world.clock, lambda _: None, names.OWN_NAMESPACE)
    assert drain.standings() == ()
    server.change("pods", "n1-1", PROTECTED["do-not-disrupt"][0], "default")
    run(server, Kubelets(server))
    (found,) = drain.standings()
    assert (found.group, found.nodes, found.cordoned, found.occupied, found.pods) == ("web", 3, 3, 1, 1)
    assert found.kept == ("default/n1-1 is annotated karpenter.sh/do-not-disrupt",)


def test_a_dry_run_back_writes_nothing(server: WorldServer) -> None:
    run(server, Kubelets(server))
    before, said = len(server.done), list[str]()
    assert GroupDrain(server.client, server.world.clock, said.append, names.OWN_NAMESPACE).uncordon(dry_run=True) == 3
    assert len(server.done) == before
    assert said == [f"node n{number} would be made schedulable (dry run)" for number in (1, 2, 3)]
