"""What a page shows of a history, and of it to whom."""

import itertools

import msgspec
import pytest

from provisioner.history.digest import HistoryDigest
from provisioner.history.entries import (
    BatchPlanned,
    BoundCause,
    BoundCauses,
    ClaimSeen,
    CommandSeen,
    CommandTurn,
    EventTold,
    FleetBound,
    FleetCost,
    InstanceInterrupted,
    OfferingTurned,
    PlannedNodes,
)
from provisioner.ui.page import PageHistory
from provisioner.ui.past import MOST_DECISIONS, MOST_MOMENTS, history_of
from provisioner.ui.sight import ALL, Sight

NEW = (PlannedNodes("general", "m5.large", "a", "spot", 0.1, 2, 9), *[PlannedNodes("general", f"c{n}", "b", "spot", 0.1, 1, 1) for n in range(6)])  # fmt: skip
WHY = "pod theirs/planted-pod does not fit"


def told() -> HistoryDigest:
    found = HistoryDigest()
    found.add(1, [ClaimSeen("planted-claim", "general", "m5.large", "a", "spot", "node-1", 1)])
    found.add(2, [FleetCost(2.0, 3, 0, 9, 0), FleetBound(2.5, 1.0, 2, 9, 1, 0.1, 1.9)])
    found.add(3, [EventTold("Node", "node-2", "DisruptionBlocked", "Pdb prevents pod evictions (theirs/planted-pdb)")])
    found.add(4, [BatchPlanned("b", 30, NEW, 4, ((WHY, 5),), 0.8, 1.0, 0.5, "improved", 5)])
    command = CommandSeen("c", CommandTurn.BEGUN, "Underutilized", "single", ("planted-claim", "planted-other"), NEW[:1], 1.0, 0.2, 3)  # fmt: skip
    found.add(5, [command, msgspec.structs.replace(command, id="d", turn=CommandTurn.CALLED_OFF)])
    found.add(6, [InstanceInterrupted("planted-claim", "m5.large", "a", "spot", "spot_interrupted")])
    found.add(7, [InstanceInterrupted("planted-two", "m5.large", "a", "spot", "spot_interrupted")])
    found.add(8, [OfferingTurned("m5.large", "a", "spot", available=False), FleetCost(1.5, 3, 0, 9, 0)])
    found.add(9, [BoundCauses(9, 1.9, 1.6, 1.0, (BoundCause("PodDisruptionBudgets", 2, 0.25),), 0.5)])
    return found


def seen(sight: Sight = ALL) -> PageHistory:
    found = history_of(told().told(), 1, sight)
    assert found is not None
    return found


def test_figures_decisions_interruptions_and_shortages_are_shown() -> None:
    found = seen()
    assert found.since == 1
    assert [(one.at, one.usd, one.greedy, one.bound) for one in found.moments] == [(2, 2.0, 2.5, 1.0), (8, 1.5, 2.5, 1.0)]  # fmt: skip
    batch, command, other = found.decisions
    assert batch.text == (
        "30 pods, 2 x m5.large spot a, 1 x c0 spot b, 1 x c1 spot b, 1 x c2 spot b, 3 other new nodes, 4 pods on nodes that exist, "
        f"5 pods without a place: {WHY} (5)"
    )
    assert (batch.before, batch.after) == (None, 0.8)
    assert batch.saved == pytest.approx(0.2)
    assert batch.blocked == ("PodDisruptionBudgets: 1 node",)
    assert command.text == "node-1, planted-other → 2 x m5.large spot a, 3 pods move"
    assert (command.state, command.before, command.after, command.saved) == ("begun", 1.0, 0.2, 0.8)
    assert (other.state, other.saved) == ("called off", None), "nothing was saved"
    (row,) = found.interruptions
    assert (row.zone, row.type, row.count, row.last) == ("a", "m5.large", 2, 7)
    (short,) = found.shortages
    assert (short.type, short.times, short.last, short.lasts) == ("m5.large", 1, 8, True)


def test_the_bound_is_shown_with_what_keeps_the_fleet_from_it() -> None:
    bound = seen().bound
    assert bound is not None
    assert (bound.usd, bound.greedy, bound.bound, bound.kept) == (1.9, 2.5, 1.0, 1.6)
    assert [(one.cause, one.nodes, one.usd) for one in bound.causes] == [("PodDisruptionBudgets", 2, 0.25)]
    assert [one.meaning for one in bound.causes] == ["a PodDisruptionBudget allows no eviction"]
    assert bound.together == pytest.approx(0.6)
    assert bound.rest == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("nodes", "claims", "pools", "every"),
    list(itertools.product((True, False), repeat=4)),
    ids=lambda one: str(int(one)),
)
def test_a_viewer_sees_of_the_past_what_it_may_see_of_the_present(
    nodes: bool, claims: bool, pools: bool, every: bool
) -> None:
    found = history_of(told().told(), 1, Sight(nodes, claims, pools, None if every else frozenset({"mine"})))
    if found is None:
        assert not nodes
        assert not pools
        return
    text = msgspec.json.encode(found).decode()
    assert bool(found.moments or found.decisions or found.interruptions or found.bound) is nodes
    assert bool(found.shortages) is pools
    assert ("planted-other" in text) is (nodes and claims)
    assert ("planted-pod" in text) is (nodes and every)
    assert "planted-pdb" not in text


def test_what_others_said_is_shown_to_whom_nothing_is_hidden() -> None:
    found = HistoryDigest()
    found.add(1, [EventTold("ConfigMap", "status", "ScaledUpGroup", "planted"), EventTold("Node", "n", "ScaleDown", "planted")])  # fmt: skip

    def shown(sight: Sight) -> list[str]:
        past = history_of(found.told(), 1, sight)
        assert past is not None
        return [one.text for one in past.decisions]

    assert shown(ALL) == ["ConfigMap status: planted", "Node n: planted"]
    assert shown(Sight(claims=False)) == ["", "Node n: planted"]
    assert shown(Sight(namespaces=frozenset({"mine"}))) == ["", ""]


def test_a_long_past_takes_little_of_a_page() -> None:
    found = HistoryDigest()
    for at in range(4000):
        found.add(at, [FleetCost(1.0, 1, 0, 1, 0), BatchPlanned(str(at), 1, NEW, 0, (("x" * 300, 1),) * 20, 1.0, 1.0, 1.0, "", 1)])  # fmt: skip
    past = history_of(found.told(), 1, ALL)
    assert past is not None
    assert MOST_MOMENTS // 2 < len(past.moments) <= MOST_MOMENTS
    assert past.moments[-1].at == 3999
    assert len(past.decisions) == MOST_DECISIONS
    assert past.decisions[-1].at == 3999
    assert len(msgspec.json.encode(past)) < 350_000
