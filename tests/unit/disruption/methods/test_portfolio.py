"""A pass is made with two beginnings more where that may save more; which one counts is decided by where it leads."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.disruption import acceptance
from provisioner.disruption.acceptance import EVICTION_USD, HORIZON, OVERLAP
from provisioner.disruption.candidates import Candidate
from provisioner.disruption.methods import consolidation
from provisioner.disruption.simulation.foresight import saved_by
from provisioner.disruption.simulation.simulator import Simulation, SimulationAnswer
from provisioner.disruption.view import Acceptance, DisruptionSettings, DisruptionView
from provisioner.scheduling.prepared import Prepared
from tests.support.economy import Economy, scaled_down

KINDS = [("batch", seed) for seed in range(1, 7)] + [("micro", 3), ("micro", 5)]


def economy_of(kind: str, seed: int, nodes: int = 30, acceptance: Acceptance = Acceptance.SAVING) -> Economy:
    start = scaled_down(kind, nodes, seed)
    start.fleet = replace(start.fleet, settings=DisruptionSettings(acceptance=acceptance))
    return start


def saved(view: DisruptionView) -> float:
    return sum(one.saving_usd_per_hour for one in consolidation.propose(view).proposals)


def brought(view: DisruptionView) -> float:
    """What is saved within the horizon less what the moves cost."""
    hour = timedelta(hours=1)
    horizon, overlap = HORIZON / hour, OVERLAP / hour
    return sum(
        one.saving_usd_per_hour * horizon
        - EVICTION_USD * len(list(one.pods))
        - overlap * sum(new.usd_per_hour for new in one.replacements)
        for one in consolidation.propose(view).proposals
    )


def to_the_end(economy: Economy) -> Iterator[tuple[int, float]]:
    yield 0, 0.0
    while proposals := consolidation.propose(economy.view()).proposals:
        for one in proposals:
            economy.carry_out(one)
            yield economy.evictions, economy.saved


@pytest.fixture
def unplayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass counts that brings most by itself."""
    monkeypatch.setattr(consolidation, "_ahead", lambda _view, _world, found: max(found, key=lambda one: one[0].gain))


@pytest.fixture
def one_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolidation, "SMALL", 0)


@pytest.mark.usefixtures("unplayed")
@pytest.mark.parametrize(("kind", "seed"), KINDS)
def test_a_pass_brings_no_less_than_our_order_alone(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    view = economy_of(kind, seed).view()
    found = brought(view)
    monkeypatch.setattr(consolidation, "SMALL", 0)
    assert found >= brought(view) - 1e-9


@pytest.mark.usefixtures("unplayed")
def test_karpenters_sequence_comes_first_where_that_saves_more() -> None:
    assert saved(economy_of("batch", 7, nodes=60).view()) > 9.5


@pytest.mark.usefixtures("one_beginning")
def test_where_fleets_are_large_there_is_one_beginning() -> None:
    assert saved(economy_of("batch", 7, nodes=60).view()) < 9


@pytest.mark.parametrize("seed", [2, 14])
def test_a_pass_that_saves_less_is_taken_where_more_follows_it(seed: int, request: pytest.FixtureRequest) -> None:
    view, played = economy_of("micro", seed, nodes=60).view(), list(to_the_end(economy_of("micro", seed, nodes=60)))
    at_once = saved(view)
    request.getfixturevalue("unplayed")
    assert saved(view) > at_once
    unplayed = list(to_the_end(economy_of("micro", seed, nodes=60)))
    evictions = min(played[-1][0], unplayed[-1][0])
    assert saved_by(played, evictions) > saved_by(unplayed, evictions)


@pytest.mark.parametrize(("seed", "played"), [(2, [3]), (6, [2]), (3, [])])
def test_only_passes_that_are_near_the_best_are_played(
    seed: int, played: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ahead = [], consolidation._ahead

    def counted(view: DisruptionView, prepared: Prepared, found: Sequence[Any]) -> Any:
        asked.append(len(found))
        return ahead(view, prepared, found)

    monkeypatch.setattr(consolidation, "_ahead", counted)
    consolidation.propose(economy_of("batch", seed, nodes=60).view())
    assert asked == played


def test_nodes_that_budgets_hold_back_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = [], Simulation.ask

    def counted(self: Simulation, some: Sequence[Candidate], **more: Any) -> SimulationAnswer:
        asked.append([one.key for one in some])
        return ask(self, some, **more)

    monkeypatch.setattr(Simulation, "ask", counted)
    view = replace(economy_of("micro", 1, nodes=30).view(), allowed=lambda *_: 4)
    found = consolidation.propose(view)
    assert (len(found.proposals), found.eligible) == (4, 32)
    assert len(asked) < 20


@pytest.mark.usefixtures("one_beginning")
def test_where_any_saving_pays_what_brings_more_than_it_costs_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "EVICTION_USD", 10 * EVICTION_USD)
    economy = economy_of("micro", 1, nodes=60)
    for one in consolidation.propose(economy.view()).proposals:
        economy.carry_out(one)
    careful = consolidation.propose(economy.view()).proposals
    economy.fleet.settings = DisruptionSettings(acceptance=Acceptance.KARPENTER)
    every = consolidation.propose(economy.view())
    assert every.proposals[: len(careful)] == careful
    assert len(every.proposals) > len(careful) > 0
    told = [one.key for one in every.blocked]
    assert len(told) == len(set(told)), "though it was asked about twice"
