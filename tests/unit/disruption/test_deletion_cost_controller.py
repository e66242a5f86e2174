"""Who writes deletion costs, and takes them back."""

import itertools
from dataclasses import dataclass, field

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.deletion_cost import LEAST, deletion_cost, own_cost
from provisioner.apis.pods import Pod
from provisioner.disruption.deletion_cost_controller import (
    FRESH_SECONDS,
    MANAGER,
    MOST_REFUSED_SECONDS,
    MOST_WRITES,
    PASS_SECONDS,
    REST_SECONDS,
    DeletionCosts,
)
from provisioner.disruption.deletion_ranks import NodeOrder
from provisioner.kube.errors import ApiError
from provisioner.simulator.api_server import Wire
from provisioner.support.metrics import REGISTRY
from tests.support.cluster import World, pod
from tests.support.kube import FakeAnswer, Sent, refusal
from tests.support.worldserver import ServerDied, WorldServer

FORWARD = NodeOrder(frozenset(), ("a", "b"))
COST, MARK = names.POD_DELETION_COST, names.OWN_DELETION_COST


@dataclass
class Town:
    """Two nodes with pods of one ReplicaSet each, and who writes their costs."""

    pods: tuple[Pod, ...] = (pod("a", node="a"), pod("b", node="b"))
    enabled: bool = True
    stale: str = ""
    beside: str = ""
    most: int = MOST_WRITES
    order: NodeOrder = FORWARD
    before: WorldServer | None = None
    orders: list[NodeOrder] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World()
        for name in ("a", "b"):
            self.world.existing_node(name)
        self.server = WorldServer(self.world, self.before)
        if self.before is None:
            self.server.add(*self.pods)
        else:
            self.world.add(*map(self.now, self.pods))
        self.costs = self.another()

    def another(self) -> DeletionCosts:
        """The next leader's."""

        def order(_: object) -> NodeOrder:
            self.orders.append(self.order)
            return self.order

        return DeletionCosts(
            self.world.cluster,
            self.server.client,
            self.world.clock,
            order,
            enabled=self.enabled,
            stale=lambda: self.stale,
            beside=lambda: self.beside,
            most=self.most,
        )

    def wire(self, name: str) -> Wire:
        found = self.server.get("pods", name, "default")
        assert found is not None
        return found

    def now(self, one: Pod) -> Pod:
        told = self.wire(one.name)["metadata"]
        return msgspec.structs.replace(
            one, annotations=told.get("annotations", {}), resource_version=told["resourceVersion"]
        )

    def said(self) -> dict[str, dict[str, str]]:
        """The annotations of each pod on the server."""
        return {one["metadata"]["name"]: one["metadata"].get("annotations", {}) for one in self.server.all("pods")}

    def annotate(self, name: str, **values: str | None) -> None:
        """A user does."""
        keys = {"cost": COST, "mark": MARK}
        patch = {"metadata": {"annotations": {keys[key]: value for key, value in values.items()}}}
        self.server.change("pods", name, patch, "default")

    def hear(self) -> None:
        """The watch tells what pods say."""
        for one in self.pods:
            known = self.world.cluster.pod(one.uid)
            assert known is not None
            self.world.cluster.pod_changed(known, self.now(known))


def count(result: str) -> float:
    name = "karpenter_pod_deletion_cost_pod_annotation_writes_total"
    return REGISTRY.get_sample_value(name, {"result": result}) or 0.0


def test_pods_are_written_once_in_the_order_of_their_nodes_and_not_again() -> None:
    town = Town()
    before = count("updated"), count("skipped_unchanged")
    assert town.costs.poll() == PASS_SECONDS
    said = town.said()
    assert int(said["a"][COST]) < int(said["b"][COST]) < 0
    assert all(one[COST] == one[MARK] for one in said.values())
    for _ in range(3):
        town.costs.poll()
    assert town.server.done == ["PATCH pods/a", "PATCH pods/b"]
    assert (count("updated"), count("skipped_unchanged")) == (before[0] + 2, before[1] + 2)


def test_what_is_written_is_applied_to_the_status_by_a_manager_of_its_own_without_force() -> None:
    town = Town()
    sent: list[Sent] = []
    town.server.intercept = lambda one: sent.append(one) if one.method == "PATCH" else None
    town.costs.poll()
    assert {one.path for one in sent} == {f"/api/v1/namespaces/default/pods/{name}/status" for name in "ab"}
    assert all(one.query == {"fieldManager": MANAGER, "force": "false"} for one in sent)
    assert [one.body["metadata"]["uid"] for one in sent] == ["a", "b"]


def test_nothing_is_computed_while_nothing_changes_but_prices_may() -> None:
    town = Town()
    for _ in range(4):
        town.costs.poll()
    asked = len(town.orders)
    town.costs.poll()
    assert len(town.orders) == asked
    town.world.clock.advance(FRESH_SECONDS + 1)
    town.costs.poll()
    assert len(town.orders) == asked + 1


def test_nodes_that_go_come_first_and_a_turned_order_is_written() -> None:
    town = Town()
    town.costs.poll()
    town.order = NodeOrder(frozenset({"b"}), ("a",))
    town.world.clock.advance(FRESH_SECONDS + 1)
    town.costs.poll()
    assert town.said()["b"][COST] == str(LEAST)


@pytest.mark.parametrize("told", [True, False], ids=["as the cache knows", "as only the server knows"])
def test_a_value_of_a_user_stays(told: bool) -> None:
    town = Town()
    town.annotate("b", cost="7")
    if told:
        town.hear()
    town.costs.poll()
    assert town.said()["b"] == {COST: "7"}
    assert (count("skipped_conflict") > 0) or told


def test_a_value_that_a_user_writes_over_ours_stays_and_outlives_our_own() -> None:
    town = Town()
    town.costs.poll()
    town.annotate("b", cost="7")
    town.order = NodeOrder(frozenset(), ("b", "a"))
    for _ in range(2):
        town.world.clock.advance(FRESH_SECONDS + 1)
        town.costs.poll()
        town.hear()
    assert town.said()["b"][COST] == "7"
    off = Town(pods=town.pods, enabled=False, before=town.server)
    off.costs.poll()
    assert off.said() == {"a": {}, "b": {COST: "7"}}


def test_a_pod_whose_cost_somebody_else_owns_is_tried_less_and_less_often_and_keeps_no_other_from_its_turn() -> None:
    """As where another manager has applied both annotations, so that the pod looks like one of ours whatever is tried."""
    town = Town(most=1)
    tries: list[float] = []
    began = town.world.clock.monotonic()

    def conflict(sent: Sent) -> FakeAnswer | None:
        if sent.method != "PATCH" or "/pods/a/" not in sent.path:
            return None
        tries.append(town.world.clock.monotonic() - began)
        return refusal(409, "Conflict", "conflict with another manager")

    town.server.intercept = conflict
    for _ in range(3 * 360):
        town.costs.poll()
        town.world.clock.advance(PASS_SECONDS)
    gaps = [round(later - former, -2) for former, later in itertools.pairwise(tries)]
    assert gaps[:4] == [300.0, 600.0, 1200.0, 2400.0]
    assert town.server.done.count("PATCH pods/b") == 1
    town.server.intercept = lambda _: None
    town.world.clock.advance(MOST_REFUSED_SECONDS)
    town.costs.poll()
    assert town.costs._refused == {}


def test_what_is_remembered_of_refusals_goes_with_the_pods() -> None:
    town = Town()
    town.server.intercept = lambda one: refusal(409, "Conflict", "no") if one.method == "PATCH" else None
    town.costs.poll()
    assert set(town.costs._refused) == {"a", "b"}
    for one in town.pods:
        town.world.cluster.pod_changed(one, None)
    town.costs.poll()
    assert town.costs._refused == {}


def test_with_the_gate_off_what_was_written_is_withdrawn_and_then_all_rests() -> None:
    town = Town()
    town.costs.poll()
    off = Town(pods=town.pods, enabled=False, before=town.server)
    assert off.costs.poll() == PASS_SECONDS
    assert off.said() == {"a": {}, "b": {}}
    assert off.costs.poll() == REST_SECONDS
    assert off.server.done == ["PATCH pods/a", "PATCH pods/b"]
    assert not off.orders


def test_a_mark_that_a_user_writes_is_removed_once_and_keeps_nobody_elses_cost() -> None:
    town = Town()
    town.costs.poll()
    town.annotate("a", mark="1", cost="1")
    off = Town(pods=town.pods, enabled=False, before=town.server, most=1)
    for _ in range(3):
        off.costs.poll()
        off.hear()
    assert (off.costs.poll(), off.said()) == (REST_SECONDS, {"a": {}, "b": {}})


def test_where_the_gate_was_never_on_nothing_is_written() -> None:
    town = Town(enabled=False)
    assert town.costs.poll() == REST_SECONDS
    assert (town.server.done, town.said()) == ([], {"a": {}, "b": {}})


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_the_next_leader_goes_on_where_one_ended_between_two_writes(writes: int) -> None:
    town = Town()
    town.server.dies_after = writes
    if writes < 2:
        with pytest.raises(ServerDied):
            town.costs.poll()
    else:
        town.costs.poll()
    done = Town(pods=town.pods, before=town.server)
    done.costs.poll()
    whole = Town()
    whole.costs.poll()
    assert done.said() == whole.said()
    assert len(done.server.done) == 2 - writes


def test_a_pass_writes_no_more_than_its_share_and_the_next_ones_the_rest() -> None:
    pods = tuple(pod(f"p{number:04}", node="ab"[number % 2]) for number in range(10))
    town = Town(pods=pods, most=4)
    town.costs.poll()
    assert len(town.server.done) == 4
    name = "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes"
    assert REGISTRY.get_sample_value(name, {"nodepool": "general"}) == 2
    for _ in range(3):
        town.costs.poll()
    assert len(town.server.done) == len(pods)
    assert REGISTRY.get_sample_value(name, {"nodepool": "general"}) is None


@pytest.mark.parametrize("kind", ["stale", "beside"])
def test_nothing_is_written_on_old_news_or_beside_another_karpenter(kind: str) -> None:
    town = Town(**{kind: "pods"})  # type: ignore[arg-type]
    assert town.costs.poll() == PASS_SECONDS
    assert town.server.done == []


def test_a_pod_that_is_gone_is_passed_over_and_a_failure_ends_the_pass() -> None:
    town = Town()
    town.server.drop("pods", "a", "default")
    gone = count("skipped_notfound")
    town.costs.poll()
    assert count("skipped_notfound") == gone + 1
    assert COST in town.said()["b"]
    denied = Town()
    denied.server.intercept = lambda one: refusal(403, "Forbidden", "no") if one.method == "PATCH" else None
    failed = count("error")
    with pytest.raises(ApiError):
        denied.costs.poll()
    assert count("error") == failed + 1


def managed(town: Town, name: str, cost: str, *managers: str) -> None:
    """A pod whose cost these field managers own."""
    fields: Wire = {"f:metadata": {"f:annotations": {".": {}, f"f:{COST}": {}}}}
    others = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}]
    owners = [{"manager": one, "operation": "Update", "fieldsV1": fields} for one in managers]
    meta = {"annotations": {COST: cost}, "managedFields": [*others, *owners]}
    town.server.change("pods", name, {"metadata": meta}, "default")


@pytest.mark.parametrize("enabled", [True, False])
def test_what_karpenter_left_is_removed_at_the_start_of_a_term(enabled: bool) -> None:
    town = Town(enabled=enabled)
    managed(town, "a", str(LEAST), "karpenter")
    managed(town, "b", "-12", "karpenter")
    town.hear()
    town.costs.poll()
    said = town.said()
    assert all(one.get(COST) == one.get(MARK) for one in said.values())
    assert (COST in said["b"]) is False or enabled


@pytest.mark.parametrize(
    ("cost", "managers"), [("-12", ("kubectl-annotate",)), ("-12", ("karpenter", "kubectl")), ("12", ("karpenter",))]
)
def test_what_is_not_karpenter_s_alone_stays(cost: str, managers: tuple[str, ...]) -> None:
    town = Town(enabled=False)
    managed(town, "a", cost, *managers)
    town.hear()
    town.costs.poll()
    assert town.said()["a"] == {COST: cost}
    assert town.server.done == []


def test_no_pods_are_listed_where_none_may_be_karpenter_s() -> None:
    town = Town()
    lists: list[Sent] = []
    town.server.intercept = lambda one: lists.append(one) if one.method == "GET" else None
    town.costs.poll()
    assert lists == []


def test_a_change_between_the_list_and_the_write_keeps_what_it_wrote() -> None:
    town = Town(enabled=False)
    managed(town, "a", "-12", "karpenter")
    town.hear()

    def user(sent: Sent) -> None:
        if sent.method == "PATCH":
            town.server.intercept = lambda _: None
            managed(town, "a", "5", "kubectl")

    town.server.intercept = user
    town.costs.poll()
    assert town.said()["a"] == {COST: "5"}


def test_a_cost_of_ours_is_told_from_others() -> None:
    mine = pod("a", annotations={COST: "-5", MARK: "-5"})
    theirs = pod("a", annotations={COST: "-5", MARK: "-6"})
    assert (own_cost(mine), own_cost(theirs), deletion_cost(theirs)) == (-5, None, -5)
