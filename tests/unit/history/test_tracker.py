"""What changes of objects come to."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandPhase, CommandRecord, encode_command
from provisioner.apis.interruption import Interruption
from provisioner.history.entries import (
    ClaimGone,
    ClaimSeen,
    ClassSeen,
    CommandSeen,
    CommandTurn,
    EventTold,
    FleetCost,
    HistoryEntry,
    InstanceInterrupted,
    KindSeen,
    NodeGone,
    NodeSeen,
    OfferingTurned,
    PodEnd,
    PodsArrived,
    PodsBound,
    PodsEnded,
    PoolSeen,
)
from provisioner.history.pod_classes import shape_of_class
from provisioner.history.tracker import ObjectTracker
from tests.support.clock import NOON
from tests.support.cluster import bound, claim, node, pod, pool
from tests.support.problems import apart, app, shape, spread

AT = NOON.timestamp()


def tracker(prices: Mapping[str, float] | None = None) -> ObjectTracker:
    known = prices or {}
    return ObjectTracker(lambda labels, _: known.get(labels.get(names.INSTANCE_TYPE_LABEL, ""), 0.0))


def of(kind: type[HistoryEntry], entries: list[HistoryEntry]) -> list[HistoryEntry]:
    return [one for one in entries if isinstance(one, kind)]


def test_a_pod_arrives_is_bound_and_ends_and_pods_of_one_moment_are_counted() -> None:
    told = tracker()
    first, second = pod("a"), pod("b")
    told.pod(first, AT)
    told.pod(second, AT)
    told.pod(first, AT)
    seen, arrived = told.take()
    assert isinstance(seen, ClassSeen)
    assert seen.pod_class.requests == first.shape.requests.to_dict()
    assert (seen.pod_class.owner_kind, seen.pod_class.namespace) == ("ReplicaSet", "default")
    assert arrived == PodsArrived(seen.number, 2)
    told.pod(bound(first, "n"), AT + 2.5)
    told.pod(bound(second, "n"), AT + 2.5)
    (binding,) = told.take()
    assert isinstance(binding, PodsBound)
    assert binding.waited_ms == (2500, 2500)
    told.pod(msgspec.structs.replace(bound(first, "n"), phase="Succeeded"), AT + 12.5)
    told.pod_gone(first, AT + 13)
    told.pod_gone(bound(second, "n"), AT + 22.5)
    assert told.take() == [
        PodsEnded(binding.pod_class, binding.node, PodEnd.SUCCEEDED, (10,)),
        PodsEnded(binding.pod_class, binding.node, PodEnd.DELETED, (20,)),
    ]
    told.pod_gone(first, AT + 30)
    assert told.take() == []


def test_a_class_makes_the_same_shape_again() -> None:
    labels = {"app": "web"}
    one = shape(
        cpu="250m",
        memory="300Mi",
        labels=labels,
        priority=7,
        selector={"disk": "ssd"},
        affinity=apart(names.HOSTNAME_LABEL, app("web")),
        topology_spread_constraints=(spread(names.ZONE_LABEL, app("web")),),
    )
    told = tracker()
    told.pod(pod("a", shape=one), AT)
    (seen,) = of(ClassSeen, told.take())
    assert isinstance(seen, ClassSeen)
    assert seen.pod_class.priority == 7
    again = shape_of_class(seen.pod_class)
    fields = [name for name in type(one).__struct_fields__ if name not in ("key", "limits")]
    assert [getattr(again, name) for name in fields] == [getattr(one, name) for name in fields]


@pytest.mark.parametrize(
    ("labels", "group", "capacity_type"),
    [
        ({names.NODEPOOL_LABEL: "general", names.CAPACITY_TYPE_LABEL: "spot"}, "general", "spot"),
        ({"eks.amazonaws.com/nodegroup": "blue", "eks.amazonaws.com/capacityType": "ON_DEMAND"}, "blue", "on-demand"),
        ({"alpha.eksctl.io/nodegroup-name": "old"}, "old", ""),
        ({}, "", ""),
    ],
    ids=("Karpenter's", "a node group of EKS", "one of eksctl", "one that stands alone"),
)
def test_a_node_is_told_with_its_kind(labels: dict[str, str], group: str, capacity_type: str) -> None:
    told = tracker({"m5.large": 0.096})
    where = {names.INSTANCE_TYPE_LABEL: "m5.large", names.ZONE_LABEL: "a", names.HOSTNAME_LABEL: "n"}
    told.node(node("n", labels={**labels, **where}))
    told.node(node("m", labels={**labels, **where, names.HOSTNAME_LABEL: "m"}))
    kind, first, second = told.take()
    assert isinstance(kind, KindSeen)
    assert isinstance(first, NodeSeen)
    assert isinstance(second, NodeSeen)
    assert (kind.kind.group, kind.kind.capacity_type, kind.kind.instance_type) == (group, capacity_type, "m5.large")
    assert names.HOSTNAME_LABEL not in kind.kind.labels
    assert (first.kind, first.usd_per_hour, first.ready) == (second.kind, 0.096, int(AT))
    told.node(node("n", labels={**labels, **where}))
    assert told.take() == []
    told.node_gone("n")
    assert told.take() == [NodeGone(first.number)]


def test_a_node_claim_is_told_with_the_times_of_its_conditions() -> None:
    told = tracker()
    told.claim(claim("c"))
    told.claim(claim("c", true=("Launched",), since=NOON + timedelta(seconds=3), provider_id="i"))
    told.claim(claim("c", true=("Launched", "Registered"), since=NOON + timedelta(seconds=40), provider_id="i"))
    seen = told.take()
    assert [(one.launched, one.registered) for one in seen if isinstance(one, ClaimSeen)] == [
        (0, 0),
        (int(AT) + 3, 0),
        (int(AT) + 40, int(AT) + 40),
    ]
    told.claim_gone("c")
    assert told.take() == [ClaimGone("c")]


def test_an_interruption_is_told_once() -> None:
    told = tracker()
    mark = {names.INTERRUPTION_ANNOTATION: str(Interruption("spot_interrupted", ends=NOON + timedelta(minutes=2)))}
    labels = {names.INSTANCE_TYPE_LABEL: "m5.large", names.ZONE_LABEL: "a", names.CAPACITY_TYPE_LABEL: "spot"}
    for _ in range(2):
        told.claim(claim("c", annotations=mark, labels=labels))
    assert of(InstanceInterrupted, told.take()) == [
        InstanceInterrupted("c", "m5.large", "a", "spot", "spot_interrupted", int(AT) + 120)
    ]


def test_a_command_is_followed_by_what_is_written_on_its_first_candidate() -> None:
    told = tracker()
    record = CommandRecord(id="x", reason="Empty", method="empty", candidates=(CandidateRecord("c", "uid-c"),))
    written = {names.COMMAND_ANNOTATION: encode_command(record)}
    begun = CommandSeen("x", CommandTurn.BEGUN, "Empty", "empty", ("c",), usd_before=1.0)
    told.command(begun)
    told.claim(claim("c"))  # not written yet
    told.claim(claim("c", annotations=written))
    going = msgspec.structs.replace(record, phase=CommandPhase.DELETING)
    told.claim(claim("c", annotations={names.COMMAND_ANNOTATION: encode_command(going)}))
    told.claim_gone("c")
    seen = [one for one in told.take() if isinstance(one, CommandSeen)]
    assert [one.turn for one in seen] == [
        CommandTurn.BEGUN,
        CommandTurn.COMMITTED,
        CommandTurn.DELETING,
        CommandTurn.DONE,
    ]
    assert {one.usd_before for one in seen} == {1.0}


def test_a_command_whose_record_is_taken_off_was_called_off() -> None:
    told = tracker()
    record = CommandRecord(id="x", reason="Empty", method="empty", candidates=(CandidateRecord("c", "uid-c"),))
    told.claim(claim("c", annotations={names.COMMAND_ANNOTATION: encode_command(record)}))
    told.claim(claim("c"))
    turns = [one.turn for one in told.take() if isinstance(one, CommandSeen)]
    assert turns == [CommandTurn.COMMITTED, CommandTurn.CALLED_OFF]


def test_what_was_said_is_told_once_in_a_while_and_nothing_of_pods() -> None:
    told = tracker()
    told.said("Node", "n", "Unconsolidatable", "x" * 400, AT)
    told.said("Node", "n", "Unconsolidatable", "x" * 400, AT + 60)
    told.said("Pod", "p", "Nominated", "somewhere", AT)
    told.said("Node", "n", "Unconsolidatable", "x" * 400, AT + 1000)
    assert told.take() == [EventTold("Node", "n", "Unconsolidatable", "x" * 300)] * 2


def test_offerings_and_pools_are_told_when_they_turn() -> None:
    told = tracker()
    told.closed(frozenset({("m5.large", "a", "spot")}))
    told.closed(frozenset({("m5.large", "a", "spot"), ("c5.large", "a", "spot")}))
    told.closed(frozenset({("c5.large", "a", "spot")}))
    told.pool(pool("general"))
    told.pool(pool("general"))
    told.pool_gone("general")
    entries = told.take()
    assert of(OfferingTurned, entries) == [
        OfferingTurned("m5.large", "a", "spot", available=False),
        OfferingTurned("c5.large", "a", "spot", available=False),
        OfferingTurned("m5.large", "a", "spot", available=True),
    ]
    assert [one.spec is None for one in entries if isinstance(one, PoolSeen)] == [False, True]


def test_what_the_fleet_costs_follows_prices() -> None:
    prices = {"m5.large": 0.1}
    told = tracker(prices)
    told.node(node("n", labels={names.INSTANCE_TYPE_LABEL: "m5.large"}))
    told.node(node("m", labels={names.INSTANCE_TYPE_LABEL: "unknown"}))
    told.pod(pod("a", node="n"), AT)
    told.pod(pod("b"), AT)
    assert told.cost() == FleetCost(0.1, 2, 1, 1, 1)
    told.take()
    prices["m5.large"] = 0.2
    assert told.cost().usd_per_hour == 0.2
    (changed,) = told.take()
    assert isinstance(changed, NodeSeen)
    assert changed.usd_per_hour == 0.2
