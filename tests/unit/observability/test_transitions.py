"""Conditions that change, as they are told."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.buffer import CapacityBuffer, CapacityBufferStatus
from provisioner.apis.core import Node
from provisioner.apis.meta import Condition, ObjectMeta
from provisioner.observability import conditions
from provisioner.observability.conditions import condition_lines
from provisioner.observability.transitions import Transition, Transitions, transitions
from provisioner.runtime.changes import CapacityBufferChanged, NodeChanged
from provisioner.runtime.object_reference import reference_of
from provisioner.support import metrics
from tests.support.cluster import World, node
from tests.support.worldserver import Told, WorldServer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def launched(status: str, reason: str = "Launched", message: str = "", after: float = 0.0) -> Condition:
    when = NOON + timedelta(seconds=after)
    return Condition(type="Launched", status=status, reason=reason, message=message, last_transition_time=when)


STEPS: dict[str, tuple[tuple[Condition, ...], tuple[Condition, ...], list[Transition]]] = {
    "nothing new": ((launched("True"),), (launched("True"),), []),
    "another reason only": ((launched("Unknown"),), (launched("Unknown", "LaunchFailed"),), []),
    "a condition that begins unknown": ((), (launched("Unknown"),), []),
    "a condition that begins true": ((), (launched("True"),), [Transition("Unknown", launched("True"))]),
    "a change": (
        (launched("Unknown"),),
        (launched("True", after=2.5),),
        [Transition("Unknown", launched("True", after=2.5), 2.5)],
    ),
    "a condition that is gone": ((launched("True"),), (), []),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_it_is_told_of(step: tuple[tuple[Condition, ...], tuple[Condition, ...], list[Transition]]) -> None:
    old, new, told = step
    assert list(transitions(old, new)) == told


SENTENCES = {
    "without a message": (
        Transition("Unknown", launched("True")),
        "Status condition transitioned, Type: Launched, Status: Unknown -> True, Reason: Launched",
    ),
    "with a message that says more": (
        Transition("True", launched("False", "Gone", "it ended")),
        "Status condition transitioned, Type: Launched, Status: True -> False, Reason: Gone, Message: it ended",
    ),
    "with a message that only repeats the reason": (
        Transition("Unknown", launched("True", message="Launched")),
        "Status condition transitioned, Type: Launched, Status: Unknown -> True, Reason: Launched",
    ),
}


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES.keys())
def test_the_sentence(sentence: tuple[Transition, str]) -> None:
    transition, text = sentence
    assert str(transition) == text


def test_a_capacity_buffer_is_told_of_in_its_namespace_and_counted() -> None:
    """Source: core spec 8.1, operator_capacitybuffer_*."""

    def buffer(status: str) -> CapacityBuffer:
        condition = Condition(type="Provisioning", status=status, reason="FitsOnNodes", last_transition_time=NOON)
        metadata = ObjectMeta(name="room", namespace="shop", uid="u")
        return CapacityBuffer(metadata=metadata, status=CapacityBufferStatus(conditions=(condition,)))

    world = World()
    recorder = Told(WorldServer(world).client, world.clock)
    told = Transitions(recorder, world.clock)
    told.heard(CapacityBufferChanged(buffer("False"), buffer("True")))
    assert recorder.events == [("CapacityBuffer", "room", "Normal", "Provisioning")]
    assert reference_of(buffer("True")).namespace == "shop"
    lines = [*condition_lines([buffer("True")], NOON)]
    labels = '{namespace="shop",name="room",type="Provisioning",status="True",reason="FitsOnNodes"} 1'
    assert any(one.startswith(f"operator_capacitybuffer_status_condition_count{labels}") for one in lines)
    rendered = b"".join(metrics.chunks()).decode()
    assert "operator_capacitybuffer_status_condition_transitions_total{" in rendered


def test_a_kubelet_makes_no_series_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "_MOST_OF_NODES", 100)
    monkeypatch.setattr(conditions, "_of_nodes", set())
    made = node("liar")

    def written(number: int, status: str) -> Node:
        names_of = [f"{number}-{at}" for at in range(50)]
        those = tuple(Condition(type=one, status=status, reason=one, last_transition_time=NOON) for one in names_of)
        meta = msgspec.structs.replace(made.metadata, labels={names.NODEPOOL_LABEL: f"pool-{number}"})
        return msgspec.structs.replace(
            made, metadata=meta, status=msgspec.structs.replace(made.status, conditions=those)
        )

    def series() -> int:
        found = (len(one.samples) for one in metrics.REGISTRY.collect() if one.name.startswith("operator_"))
        return sum(found)

    world = World()
    heard = Transitions(Told(WorldServer(world).client, world.clock), world.clock).heard
    counts = []
    for number in range(8):
        heard(NodeChanged(written(number, f"made up {number}"), written(number, "True")))
        counts.append(series())
    assert counts[0] < counts[1]
    assert counts[3:] == [counts[3]] * 5
