"""What holds of the deletion costs of pods, whatever the fleet: order of the nodes, stability, few writes, and nobody else's word."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.deletion_cost import LEAST, deletion_cost, has_foreign_cost, own_cost
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod
from provisioner.disruption.deletion_ranks import (
    CostWrite,
    NodeOrder,
    ascending,
    deletion_ranks,
    node_order,
    withdrawals,
)
from provisioner.disruption.methods.drift import has_drifted, in_order
from provisioner.disruption.methods.moves import Consolidation
from provisioner.state.snapshot import NodeView
from tests.property.test_disruption_laws import fleets
from tests.support.fleets import Fleet, running

NODES = tuple(f"n{number}" for number in range(6))
OWNERS = ("web", "db")
MANY = 1000


class Town(NamedTuple):
    """Nodes, and the order in which they go."""

    order: NodeOrder
    nodes: tuple[NodeView, ...]


def owned(name: str, owner: str, annotations: dict[str, str], kind: str = "ReplicaSet", group: str = "apps/v1") -> Pod:
    by = OwnerReference(api_version=group, kind=kind, name=owner, uid=f"uid-{owner}", controller=True)
    return running(name, annotations=annotations, owner=by)


def ours(value: int) -> dict[str, str]:
    return {names.POD_DELETION_COST: str(value), names.OWN_DELETION_COST: str(value)}


def told() -> st.SearchStrategy[dict[str, str]]:
    """What pods may say when the pass begins: nothing, what an earlier pass wrote, what a user wrote, also over it, and what was deleted by halves."""
    value = st.sampled_from((LEAST, LEAST + 1, -5000, -3, -2, -1))
    return st.one_of(
        st.just({}),
        st.builds(ours, value),
        st.builds(lambda one: {names.POD_DELETION_COST: str(one)}, st.sampled_from((-7, 0, 9))),
        st.just({names.POD_DELETION_COST: "9", names.OWN_DELETION_COST: "-5"}),
        st.just({names.OWN_DELETION_COST: "-5"}),
    )


@st.composite
def towns(draw: st.DrawFn, *, said: bool = True) -> Town:
    fleet, number = Fleet(), 0
    for name in NODES:
        pods = []
        for owner in draw(st.lists(st.sampled_from(OWNERS), max_size=4)):
            pods.append(owned(f"{owner}-{number}", owner, draw(told()) if said else {}))
            number += 1
        fleet.node(name, pods)
    hosts = draw(st.permutations([one.name for one in fleet.nodes]))
    cuts = sorted(draw(st.lists(st.integers(0, len(hosts)), min_size=3, max_size=3)))
    going, turns, kept = hosts[: cuts[0]], hosts[cuts[0] : cuts[1]], hosts[cuts[1] : cuts[2]]
    if not said:
        going, kept, turns = [], [], hosts
    return Town(NodeOrder(frozenset(going), tuple(turns), frozenset(kept)), tuple(fleet.nodes))


def written(nodes: Sequence[NodeView], writes: Sequence[CostWrite]) -> tuple[NodeView, ...]:
    """The same nodes when all of that has been done."""
    values = {one.pod.uid: one.value for one in writes}

    def after(pod: Pod) -> Pod:
        if pod.uid not in values:
            return pod
        kept = {key: value for key, value in pod.annotations.items() if key != names.OWN_DELETION_COST}
        if own_cost(pod) is not None:
            kept.pop(names.POD_DELETION_COST)
        value = values[pod.uid]
        return changed(pod, annotations=kept if value is None else {**kept, **ours(value)})

    return tuple(_with(one, tuple(map(after, one.pods))) for one in nodes)


def _with(node: NodeView, pods: tuple[Pod, ...]) -> NodeView:
    return replace(node, pods=pods)


def by_owner(nodes: Sequence[NodeView]) -> dict[str, list[tuple[str, Pod]]]:
    found: dict[str, list[tuple[str, Pod]]] = {}
    for node in nodes:
        for pod in node.pods:
            assert pod.owner is not None
            found.setdefault(pod.owner.uid, []).append((node.name, pod))
    return found


@given(towns())
def test_pods_go_in_the_order_of_their_nodes(town: Town) -> None:
    order = town.order
    after = written(town.nodes, deletion_ranks(order, town.nodes, MANY).writes)
    rank = {name: 1 + number for number, name in enumerate(order.turns)} | dict.fromkeys(order.going, 0)
    for pods in by_owner(after).values():
        if len({name for name, _ in pods}) < 2:
            continue
        mine = [
            (rank.get(name, 1 + len(rank)), deletion_cost(pod))
            for name, pod in pods
            if not has_foreign_cost(pod) and name not in order.kept
        ]
        for place, cost in mine:
            assert LEAST <= cost <= 0
            for other, its in mine:
                assert (cost < its) is (place < other), mine


@given(towns())
def test_nobody_else_s_word_is_touched(town: Town) -> None:
    done = deletion_ranks(town.order, town.nodes, MANY).writes
    assert not [one for one in done if has_foreign_cost(one.pod)]
    before = {pod.uid: pod for node in town.nodes for pod in node.pods}
    for node in written(town.nodes, done):
        for pod in node.pods:
            if has_foreign_cost(before[pod.uid]) or node.name in town.order.kept:
                assert pod == before[pod.uid]


@given(towns())
def test_where_the_order_stays_nothing_is_written(town: Town) -> None:
    first = deletion_ranks(town.order, town.nodes, MANY)
    again = deletion_ranks(town.order, written(town.nodes, first.writes), MANY)
    assert (again.writes, dict(again.pending)) == ((), {})


@given(towns(), st.integers(1, 4))
def test_a_few_writes_a_pass_come_to_the_same_end(town: Town, most: int) -> None:
    nodes, after = town.nodes, ""
    everything = sum(len(node.pods) for node in nodes)
    for _ in range(2 * everything + 1):
        found = deletion_ranks(town.order, nodes, most, after)
        assert len(found.writes) <= most
        assert bool(found.writes) is bool(found.pending)
        if not found.writes:
            break
        nodes, after = written(nodes, found.writes), found.after
    assert not deletion_ranks(town.order, nodes, MANY).writes


@given(towns(said=False), st.integers(0, 5), st.integers(0, 5))
def test_a_node_that_changes_its_place_costs_the_writes_of_its_own_pods(town: Town, at: int, to: int) -> None:
    nodes = written(town.nodes, deletion_ranks(town.order, town.nodes, MANY).writes)
    turns = list(town.order.turns)
    turns.insert(to, turns.pop(at))
    writes = deletion_ranks(NodeOrder(frozenset(), tuple(turns)), nodes, MANY).writes
    moved = {one.pod.node_name for one in writes}
    owners = {one.pod.owner.uid for one in writes if one.pod.owner is not None}
    assert len(moved) <= max(1, len(owners)), "of each owner those of one node"


@given(towns(said=False))
def test_a_pod_that_joins_costs_its_own_write(town: Town) -> None:
    nodes = written(town.nodes, deletion_ranks(town.order, town.nodes, MANY).writes)
    known = {pod.owner.uid for node in nodes[1:] for pod in node.pods if pod.owner is not None and own_cost(pod)}
    new = changed(owned("new", "web", {}), node_name=nodes[0].name)
    grown = (_with(nodes[0], (*nodes[0].pods, new)), *nodes[1:])
    writes = deletion_ranks(town.order, grown, MANY).writes
    assert {one.pod.uid for one in writes} <= {new.uid} or "uid-web" not in known


@given(towns())
def test_what_is_withdrawn_leaves_what_users_wrote(town: Town) -> None:
    after = written(town.nodes, withdrawals(town.nodes, MANY))
    for node, now in zip(town.nodes, after, strict=True):
        for pod, later in zip(node.pods, now.pods, strict=True):
            assert names.OWN_DELETION_COST not in later.annotations
            assert deletion_cost(later) == (deletion_cost(pod) if has_foreign_cost(pod) else 0)
    assert not withdrawals(after, MANY)


@given(st.lists(st.one_of(st.none(), st.integers(LEAST, 3)), max_size=12))
def test_numbers_ascend_and_as_many_stay_as_can(known: list[int | None]) -> None:
    found = ascending(known)
    assert len(found) == len(known)
    assert all(LEAST < one < 0 for one in found)
    assert all(one < other for one, other in itertools.pairwise(found))
    assert ascending(found) == found


def test_numbers_without_a_gap_are_all_new() -> None:
    assert ascending([-3, None, -2]) == ascending([None, None, None])
    assert ascending([-1000, None, -10])[::2] == [-1000, -10]
    assert ascending([-5, -900, -3, -2])[1:] == [-900, -3, -2]


@given(fleets())
def test_the_order_is_that_of_disruption(fleet: Fleet) -> None:
    """Drift takes those that have drifted, the longest first; consolidation looks at the others in its own order."""
    view = fleet.view()
    assert view.prepared is not None
    turns = list(node_order(view).turns)
    judged = Consolidation(view, view.prepared).order
    drifted = in_order([one for one in judged if has_drifted(one.claim)])
    order: Callable[[str], int] = turns.index
    others = [order(one.node.name) for one in judged if not has_drifted(one.claim)]
    assert others == sorted(others)
    assert [order(one.node.name) for one in drifted] == sorted(order(one.node.name) for one in drifted)
    assert not others or all(order(one.node.name) < min(others) for one in drifted)
