"""A pass brings no less than the better one of two orders does."""

from dataclasses import replace

import pytest

from provisioner.disruption.consolidation import Consolidation, by_price, in_turns
from provisioner.disruption.methods import consolidation
from provisioner.disruption.view import Acceptance, Settings, View
from tests.support.economy import scaled_down

KINDS = [("batch", seed) for seed in range(1, 7)] + [("micro", 1), ("micro", 2)]


def view_of(kind: str, seed: int, nodes: int = 30) -> View:
    start = scaled_down(kind, nodes, seed)
    start.fleet = replace(start.fleet, settings=Settings(acceptance=Acceptance.KARPENTER))  # what pays is what is saved
    return start.view()


def saved(view: View) -> float:
    return sum(one.saving_usd_per_hour for one in consolidation.propose(view).proposals)


@pytest.fixture
def one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolidation, "SMALL", 0)


@pytest.mark.parametrize(("kind", "seed"), KINDS)
def test_neither_order_alone_saves_more(kind: str, seed: int) -> None:
    view = view_of(kind, seed)
    assert view.prepared is not None
    alone = []
    for order in (in_turns, by_price):
        work = Consolidation(view, view.prepared, order)
        for one in work.order:
            if work.free(one) and not isinstance(found := work.judge((one,), max_new=0), str):
                work.accept(found, "single")
        alone.append(sum(one.saving_usd_per_hour for one in work.proposals))
    assert saved(view) >= max(alone) - 1e-9


def test_karpenters_order_is_taken_where_it_saves_more() -> None:
    assert saved(view_of("batch", 4)) > 5.5


@pytest.mark.usefixtures("one_order")
def test_where_fleets_are_large_there_is_one_order() -> None:
    assert saved(view_of("batch", 4)) < 5.3


def test_what_karpenter_does_of_several_nodes_at_once_comes_first_where_that_saves_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = view_of("batch", 3, nodes=450)
    found = saved(view)
    monkeypatch.setattr(consolidation, "_prefixes", lambda _work: None)
    assert found > saved(view)
