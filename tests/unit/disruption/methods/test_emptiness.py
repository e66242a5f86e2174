"""Which nodes are empty enough to go."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import PersistentVolumeClaim, PersistentVolumeClaimSource, Volume
from provisioner.apis.pods import Pod
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.methods.emptiness import emptiness
from provisioner.disruption.view import DisruptionView, MethodAnswer
from provisioner.state.keys import NodeKey
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.values.taints import Toleration
from tests.support.clock import NOON
from tests.support.cluster import World, node, pod, pod_budget, pool
from tests.support.problems import shape

CHOSEN = msgspec.convert(
    {
        "metadata": {"name": "d", "namespace": "default", "annotations": {names.SELECTED_NODE: "a"}},
        "spec": {"storageClassName": "standard"},
    },
    PersistentVolumeClaim,
)
"""A claim whose volume is being made for node a."""
VALIDATION = timedelta(seconds=5)
LONG = timedelta(hours=1)


@dataclass(frozen=True)
class Decision(MethodAnswer):
    """With the ledger that it was made by."""

    ledger: AllowanceLedger | None = None

    @property
    def delete(self) -> tuple[str, ...]:
        """The nodes that go, each by a command of its own."""
        assert all(len(one.candidates) == 1 and not one.replacements for one in self.proposals)
        return tuple(one.candidates[0] for one in self.proposals)


def decide(
    world: World, empty_for: dict[str, timedelta] | None = None, under_way: str = "", *, most: int = 0
) -> Decision:
    seen = dict.fromkeys("abc", LONG) if empty_for is None else empty_for
    snapshot, away = world.cluster.snapshot(), frozenset(under_way)
    ledger = AllowanceLedger(snapshot, taken=away, most=most)
    view = DisruptionView(
        snapshot,
        None,
        ledger.allowed,
        ceiling=ledger.ceiling(),
        empty_for=seen,
        validation=VALIDATION,
        under_way=away,
    )
    answer = emptiness(view)
    return Decision(answer.proposals, answer.blocked, answer.recheck_at, ledger=ledger)


def a_world(*nodes: str, **spec: Any) -> World:
    world = World()
    disruption = {"budgets": [{"nodes": "100%"}], **spec.pop("disruption", {})}
    world.cluster.pool_changed(None, pool(disruption=disruption, **spec))
    for name in nodes or ("a",):
        world.existing_node(name, age=3600)
    return world


def test_a_node_that_is_away_already_takes_no_more_of_the_budget() -> None:
    world = a_world("a", "b", "c", disruption={"budgets": [{"nodes": "2"}]})
    world.cluster.node_changed(None, node("a", labels={names.NODEPOOL_LABEL: "general"}, ready=False))
    assert decide(world).delete == ("a", "b")


def test_an_empty_node_goes() -> None:
    assert decide(a_world()).delete == ("a",)


def test_nodes_go_in_a_fixed_order_and_within_the_budget() -> None:
    world = a_world("c", "a", "b", disruption={"budgets": [{"nodes": "2"}]})
    decision = decide(world)
    assert decision.delete == ("a", "b")
    assert decision.ledger is not None
    assert decision.ledger.allowed("general", "Empty") == 2


@pytest.mark.parametrize(("most", "want"), [(0, ("a", "b")), (2, ("a", "b")), (1, ("a",))])
def test_nodes_of_all_pools_together_keep_the_limit_over_them(most: int, want: tuple[str, ...]) -> None:
    world = a_world("a")
    everything = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}
    world.cluster.pool_changed(None, pool("other", disruption=everything))
    world.existing_node("b", age=3600, labels={names.NODEPOOL_LABEL: "other"})
    decision = decide(world, most=most)
    assert (decision.delete, decision.blocked) == (want, ())


def test_a_closed_budget_is_said_on_the_pool() -> None:
    decision = decide(a_world(disruption={"budgets": [{"nodes": "0"}]}))
    assert decision.delete == ()
    assert [str(blocked) for blocked in decision.blocked] == [
        "No allowed disruptions for disruption reason Empty due to blocking budget"
    ]


def test_a_node_with_a_pod_stays() -> None:
    world = a_world()
    world.add(pod("one", node="a"))
    assert decide(world).delete == ()


def test_an_empty_node_whose_daemons_a_pod_budget_keeps_stays() -> None:
    """Else it would be closed, found to be kept, and opened again, every half minute."""
    world = a_world()
    world.add(pod("agent", kind="DaemonSet", node="a", ready=True))
    world.cluster.budget_changed(None, pod_budget(allowed=0))
    decision = decide(world)
    assert decision.delete == ()
    assert [str(one) for one in decision.blocked] == ["Pdb prevents pod evictions (PodDisruptionBudget=default/guard)"]
    world.cluster.budget_changed(pod_budget(allowed=0), pod_budget(allowed=1))
    assert decide(world).delete == ("a",)


def test_a_node_that_a_preempting_pod_waits_for_is_not_empty() -> None:
    """Its victims end, perhaps for minutes, and kube-scheduler keeps their room."""
    world = a_world("a", "b")
    world.add(
        pod("victim", node="a", deleted=NOON + timedelta(minutes=10)),
        pod("urgent", nominated_node_name="a", unschedulable=True),
    )
    assert decide(world).delete == ("b",)


def test_a_node_for_which_a_volume_is_being_made_is_not_empty() -> None:
    """kube-scheduler has decided, and binds the pod once its volume is there."""
    world = a_world("a", "b")
    world.cluster.surrounding_changed(lambda keeper: keeper.claim_changed(None, CHOSEN))
    assert decide(world).delete == ("a", "b"), "nobody waits for that volume"
    world.add(
        pod(
            "db",
            shape=shape(
                volumes=(Volume(name="d", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="d")),)
            ),
        )
    )
    assert decide(world).delete == ("b",)


def selecting(*nodes: str) -> Callable[[SurroundingsKeeper], None]:
    """Claims v0, v1, ... whose volumes are to be made for these nodes."""

    def take(keeper: SurroundingsKeeper) -> None:
        for number, name in enumerate(nodes):
            meta = {"name": f"v{number}", "namespace": "default", "annotations": {names.SELECTED_NODE: name}}
            keeper.claim_changed(None, msgspec.convert({"metadata": meta}, PersistentVolumeClaim))

    return take


def using(*numbers: int, created: datetime = NOON, **more: Any) -> Pod:
    """A pod with these claims."""
    volumes = tuple(
        Volume(name=f"v{number}", persistent_volume_claim=PersistentVolumeClaimSource(claim_name=f"v{number}"))
        for number in numbers
    )
    return pod("db", shape=shape(volumes=volumes, **more), created=created)


DEDICATED = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
BELIEVED: dict[str, tuple[tuple[dict[str, str], ...], Pod, tuple[str, ...]]] = {
    "both claims name a": ((), using(0, 1), ("b",)),
    "the claims name two nodes": ((), using(0, 2), ("a", "b")),
    "the pod selects other nodes": ((), using(0, selector={"pool": "x"}), ("a", "b")),
    "the pod selects it": ((), using(0, selector={names.NODEPOOL_LABEL: "general"}), ("b",)),
    "the pod does not tolerate it": ((DEDICATED,), using(0), ("a", "b")),
    "the pod tolerates it": ((DEDICATED,), using(0, tolerations=(Toleration(operator="Exists"),)), ("b",)),
    "it was cordoned after it was chosen": ((CORDONED,), using(0), ("b",)),
    "the pod has been pending for long": ((), using(0, created=NOON - timedelta(days=1)), ("b",)),
}


@pytest.mark.parametrize(("taints", "waiting", "gone"), BELIEVED.values(), ids=BELIEVED)
def test_a_claim_keeps_one_node_where_its_pod_may_run(
    taints: tuple[dict[str, str], ...], waiting: Pod, gone: tuple[str, ...]
) -> None:
    """Whoever may create pods and claims would keep every node of the cluster otherwise."""
    world = a_world("a", "b")
    world.cluster.node_changed(None, node("a", labels={names.NODEPOOL_LABEL: "general"}, taints=taints))
    world.cluster.surrounding_changed(selecting("a", "a", "b"))
    world.add(waiting)
    assert decide(world).delete == gone


def test_a_claim_keeps_a_node_no_longer_than_kube_scheduler_waits_for_its_volume() -> None:
    world = a_world("a", "b")
    world.cluster.surrounding_changed(selecting("a"))
    world.add(using(0))
    world.clock.advance(599)
    assert decide(world).delete == ("b",)
    world.clock.advance(1)
    assert decide(world).delete == ("a", "b")
    world.cluster.surrounding_changed(selecting("b"))
    assert decide(world).delete == ("a",), "kube-scheduler has chosen anew"


def test_a_node_with_only_daemons_goes() -> None:
    world = a_world()
    world.add(pod("agent", kind="DaemonSet", node="a"))
    assert decide(world).delete == ("a",)


def test_a_node_that_pods_are_planned_on_stays() -> None:
    world, one = a_world(), pod("one")
    world.add(one)
    assert world.cluster.assign(NodeKey("a"), (one,)) == []
    assert decide(world).delete == ()


@pytest.mark.parametrize("value", ["true"])
def test_do_not_disrupt_on_the_claim_keeps_it_and_is_said(value: str) -> None:
    world = World()
    world.cluster.pool_changed(None, pool(disruption={"budgets": [{"nodes": "100%"}]}))
    world.existing_node("a", age=3600, annotations={names.DO_NOT_DISRUPT: value})
    decision = decide(world)
    assert decision.delete == ()
    assert "karpenter.sh/do-not-disrupt" in str(decision.blocked[0])


def test_consolidate_after_counts_from_initialisation() -> None:
    world = World()
    world.cluster.pool_changed(None, pool(disruption={"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}))
    world.existing_node("a", age=20)
    decision = decide(world)
    assert (decision.delete, decision.recheck_at) == ((), NOON + timedelta(seconds=10))


def test_never_keeps_empty_nodes() -> None:
    assert decide(a_world(disruption={"consolidateAfter": "Never"})).delete == ()


def test_a_node_empty_for_a_moment_only_is_looked_at_again() -> None:
    decision = decide(a_world(), empty_for={"a": timedelta(seconds=3)})
    assert (decision.delete, decision.recheck_at) == ((), NOON + timedelta(seconds=2))


def test_a_node_that_leaves_already_counts_against_the_budget() -> None:
    world = a_world("a", "b", disruption={"budgets": [{"nodes": "1"}]})
    world.existing_node("c", age=3600, deletionTimestamp=NOON.isoformat())
    assert decide(world).delete == ()


def test_static_pools_keep_their_nodes() -> None:
    assert decide(a_world(replicas=1)).delete == ()


def test_a_node_of_a_pool_that_is_gone_is_left_alone_and_said() -> None:
    world = World()
    world.existing_node("a", age=3600)
    decision = decide(world)
    assert decision.delete == ()
    assert str(decision.blocked[0]) == "NodePool not found (NodePool=general)"


PROTECTING: dict[str, tuple[str, str, bool]] = {
    "for good": ("true", "DaemonSet", True),
    "for another minute": ("1h", "DaemonSet", True),
    "a mirror pod's": ("true", "Node", True),
    "that is over": ("58m", "DaemonSet", False),
    "that nobody can read": ("soon", "DaemonSet", False),
    "of no time": ("0s", "DaemonSet", False),
}


@pytest.mark.parametrize(("value", "kind", "holds"), PROTECTING.values(), ids=PROTECTING)
def test_protection_of_a_daemon(value: str, kind: str, holds: bool) -> None:
    world = a_world()
    started = NOON - timedelta(minutes=59)
    world.add(pod("agent", kind=kind, node="a", annotations={names.DO_NOT_DISRUPT: value}, start_time=started))
    decision = decide(world)
    assert decision.delete == (() if holds else ("a",))
    assert [str(one) for one in decision.blocked] == (
        ['Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/agent)'] if holds else []
    )
    assert (decision.recheck_at is not None) is holds, "protection ends by the clock"


def test_a_daemon_that_ends_protects_nothing() -> None:
    world = a_world()
    world.add(pod("agent", kind="DaemonSet", node="a", annotations={names.DO_NOT_DISRUPT: "true"}, deleted=NOON))
    assert decide(world).delete == ("a",)


def test_a_duration_on_the_node_itself_means_nothing() -> None:
    world = World()
    world.cluster.pool_changed(None, pool(disruption={"budgets": [{"nodes": "100%"}]}))
    world.existing_node("a", age=3600, annotations={names.DO_NOT_DISRUPT: "1h"})
    assert decide(world).delete == ("a",)


def test_a_node_whose_disruption_has_begun_counts_and_is_not_chosen_again() -> None:
    world = a_world("a", "b", disruption={"budgets": [{"nodes": "1"}]})
    assert decide(world, under_way="b").delete == ()
    ledger = decide(world, under_way="b").ledger
    assert ledger is not None
    assert ledger.budget("general", "Empty").consuming == 1
    assert decide(a_world("a", "b"), under_way="a").delete == ("b",)
