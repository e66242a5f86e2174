"""Nodes that go are replaced by what their pods will be once they are admitted again, where VerticalPodAutoscalers say so."""

from datetime import timedelta
from typing import Any

import pytest

from provisioner.disruption.candidates import candidates
from provisioner.disruption.methods import consolidation, drift
from provisioner.disruption.simulation.simulator import Simulation
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.pause import Activity
from provisioner.state.predictions import NO_PREDICTIONS, AutoscalerKeeper, PodPredictions
from tests.support.autoscalers import autoscaler, sized_pod
from tests.support.clock import NOON
from tests.support.fleets import LARGE, MEDIUM, SMALL, Fleet, gist, gone

SINCE = NOON - timedelta(hours=1)


def predicted(cpu: str = "900m", **more: Any) -> PodPredictions:
    keeper = AutoscalerKeeper()
    keeper.know(KindKnowledge.READ)
    keeper.changed(None, autoscaler(app={"cpu": cpu}, **more))
    return keeper.frozen()


def webs(count: int) -> list[Any]:
    """Pods of 100m each."""
    return [sized_pod(f"w{number}", node="there") for number in range(count)]


SIZES = {"as they are": (NO_PREDICTIONS, ["small"]), "as they will be": (predicted(), ["medium"])}


@pytest.mark.parametrize(("made", "want"), SIZES.values(), ids=SIZES)
def test_a_drifted_node_is_replaced_by_one_that_takes_its_pods(made: PodPredictions, want: list[str]) -> None:
    """Four of 900m fit on no node with two CPUs."""
    fleet = Fleet(predictions=made)
    fleet.node("a", webs(4), drifted=SINCE)
    (one,) = drift.propose(fleet.view()).proposals
    assert gist(one) == (("a",), want, {})


def test_pods_that_stay_take_the_room_that_they_take_now() -> None:
    """The other node of web keeps its free room for the one pod that moves there."""
    fleet = Fleet(predictions=predicted())
    fleet.node("a", webs(1), kind=SMALL, drifted=SINCE)
    fleet.node("b", [sized_pod(f"x{number}", node="there") for number in range(9)], kind=SMALL)
    (one,) = drift.propose(fleet.view()).proposals
    assert gist(one) == (("a",), [], {"b": 1})
    assert [pod.shape.requests["cpu"] for pods in one.placements.values() for pod in pods] == [900]


def test_consolidation_does_not_buy_a_node_that_its_pods_would_outgrow() -> None:
    """As they are, all four fit on a small node, which costs half."""
    found = []
    for made in (NO_PREDICTIONS, predicted("1900m")):
        fleet = Fleet(predictions=made)
        fleet.node("a", webs(4), kind=LARGE)
        found.append(gone(consolidation.propose(fleet.view())))
    assert found == [[("a",)], []]


def test_pods_of_a_command_that_begins_in_the_same_pass_are_sized_alike() -> None:
    """A command under way leaves its pods to the world of the next question: their room is nobody else's."""
    left = []
    for made in (NO_PREDICTIONS, predicted("1500m")):
        fleet = Fleet(predictions=made)
        fleet.node("a", webs(1), drifted=SINCE)
        fleet.node("b", [], kind=SMALL)
        view = fleet.view(under_way=["a"])
        assert view.prepared is not None
        simulation = Simulation(view, view.prepared)
        left.append({one.name: one.room["cpu"] for one in simulation.prepared.world.bins}["b"])
    assert left[0] - left[1] == 1400


def test_whoever_is_a_candidate_has_its_pods_as_they_will_be() -> None:
    fleet = Fleet(predictions=predicted())
    fleet.node("a", webs(2), kind=MEDIUM)
    (one,) = candidates(fleet.view(), Activity.CONSOLIDATION).eligible
    assert [pod.shape.requests["cpu"] for pod in one.pods] == [900, 900]
    assert [pod.shape.requests["cpu"] for pod in one.node.pods] == [100, 100]
