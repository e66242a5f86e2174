"""Karpenter's loop over time: core spec 6.1, 6.5, 6.13."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.disruption.loops import LoopHolds
from provisioner.disruption.view import DisruptionView
from provisioner.simulator.karpenter.loop import KarpenterLoop
from tests.support.clock import NOON
from tests.support.fleets import SMALL, Fleet, pool, several


class Asked:
    """A loop that is asked so many seconds after noon."""

    def __init__(self, fleet: Fleet, interval: float = 0) -> None:
        self.fleet, self.loop, self._view = fleet, KarpenterLoop(timedelta(seconds=interval)), fleet.view()

    def changed(self, **how: Any) -> None:
        self._view = replace(self.fleet.view(), **how)

    def view(self, seconds: float) -> DisruptionView:
        at = NOON + timedelta(seconds=seconds)
        return replace(self._view, snapshot=replace(self._view.snapshot, at=at))

    def at(self, seconds: float) -> list[tuple[str, tuple[str, ...]]]:
        return [(one.method, one.candidates) for one in self.loop.ask(self.view(seconds)).proposals]

    @property
    def due(self) -> float:
        assert self.loop.due is not None
        return (self.loop.due - NOON).total_seconds()


def empties(*named: str, **of_pool: Any) -> Fleet:
    fleet = Fleet([pool(**of_pool)])
    for one in named:
        fleet.node(one)
    return fleet


def test_a_command_is_carried_out_15_s_after_it_was_found() -> None:
    asked = Asked(empties("a", "b"))
    assert (asked.at(0), asked.due) == ([], 15)
    assert asked.at(14) == []
    assert asked.at(15) == [("empty", ("a", "b"))]
    assert asked.due == 15, "the next pass follows at once"


def test_what_does_not_hold_any_more_makes_room_for_the_methods_behind_it() -> None:
    fleet = empties("none")
    asked = Asked(fleet)
    assert asked.at(0) == []
    fleet.nodes.clear()
    fleet.node("used", several(1, "p"), drifted=NOON)
    asked.changed()
    assert asked.at(15) == [("drift", ("used",))], "drift waits for nothing"


def test_a_pass_that_found_nothing_is_followed_by_10_s_of_rest_or_the_interval() -> None:
    fleet = empties("a", disruption={"budgets": [{"nodes": "0"}]})
    for interval, rest in ((0, 10), (60, 60)):
        asked = Asked(fleet, interval)
        assert (asked.at(0), asked.due) == ([], rest)


def test_while_nothing_changes_nothing_is_looked_for_until_five_minutes_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(empties("a", disruption={"consolidateAfter": "100h"}))
    found = list[float]()
    for seconds in range(0, 620, 10):
        before = asked.loop._settled
        asked.at(seconds)
        if asked.loop._settled is not before:
            found.append(seconds)
    assert found == [0, 300, 600]
    asked.changed()
    asked.at(620)
    assert asked.loop._settled is not None
    assert asked.loop._settled[1] == NOON + timedelta(seconds=620)


def test_consolidation_waits_too_and_knows_nothing_of_loops() -> None:
    fleet = Fleet([pool()])
    fleet.node("whole", several(3, "f"))
    fleet.node("slack", several(1, "s"), kind=SMALL)
    asked = Asked(fleet)
    held = LoopHolds({"web": NOON + timedelta(hours=1)}, {"slack": "web"})
    asked.changed(loops=held)
    assert asked.at(0) == []
    assert asked.at(15) == [("single", ("slack",))]
