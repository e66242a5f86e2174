"""What a page tells of a history: in bounds, whatever happens, and what keeps nodes without anybody's name."""

from dataclasses import fields

import pytest

from provisioner.history.causes import cause_of
from provisioner.history.digest import BLOCKED_SECONDS, MOST_DECISIONS, MOST_FIGURES, HistoryDigest
from provisioner.history.entries import (
    BatchPlanned,
    ClaimSeen,
    CommandSeen,
    CommandTurn,
    EventTold,
    FleetCost,
    Gap,
    HistoryEntry,
    InstanceInterrupted,
    NodeGone,
    NodeSeen,
    OfferingTurned,
    PlannedNodes,
)
from provisioner.history.segments import SegmentHead, SegmentWriter, read_segment

NEW = (PlannedNodes("general", "m5.large", "a", "spot", 0.1, 2, 9),)


def batch(id: str = "b", *, new: tuple[PlannedNodes, ...] = NEW, unplaced: int = 0) -> BatchPlanned:  # noqa: A002 - the entry's word
    why = (("no room", unplaced),) if unplaced else ()
    return BatchPlanned(id, 9, new, 0, why, 0.2, 0.3, 0.1, "improved", 5)


def command(turn: CommandTurn, *, new: tuple[PlannedNodes, ...] = ()) -> CommandSeen:
    known = {"usd_before": 1.0, "usd_after": 0.2, "pods": 3} if new else {}
    return CommandSeen("c", turn, "Underutilized", "single", ("claim-1", "claim-2"), new, **known)  # type: ignore[arg-type]


def blocked(name: str, message: str, kind: str = "Node") -> EventTold:
    return EventTold(kind, name, "DisruptionBlocked", message)


def claim(name: str, node: str) -> ClaimSeen:
    return ClaimSeen(name, "general", "m5.large", "a", "spot", node, 1)


def digest(*told: tuple[float, HistoryEntry]) -> HistoryDigest:
    found = HistoryDigest()
    for at, one in told:
        found.add(at, (one,))
    return found


def test_a_command_is_one_decision_from_its_start_to_its_end() -> None:
    found = digest(
        (1, claim("claim-1", "n-1")),
        (10, command(CommandTurn.BEGUN, new=NEW)),
        (20, command(CommandTurn.DRAINING)),
        (25, claim("claim-1", "")),
        (30, command(CommandTurn.DONE)),
        (40, command(CommandTurn.CALLED_OFF)),
    )
    (one,) = found.told().decisions
    assert isinstance(one.entry, CommandSeen)
    assert (one.at, one.ended, one.nodes) == (10, 30, ("n-1", ""))
    assert (one.entry.turn, one.entry.usd_before, one.entry.new) == (CommandTurn.DONE, 1.0, NEW)


def test_pods_that_wait_for_the_same_reason_are_one_decision() -> None:
    told = [(float(at), batch(str(at), new=(), unplaced=3)) for at in range(50)]
    assert len(digest(*told).told().decisions) == 1
    assert len(digest(*told, (60, batch("x")), (61, batch("y", new=(), unplaced=3))).told().decisions) == 3


CAUSES = {
    "Pdb prevents pod evictions (PodDisruptionBudget=a/b)": "PodDisruptionBudgets",
    'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=a/b)': "do-not-disrupt",
    "No allowed disruptions for disruption reason Underutilized due to blocking budget": "budgets",
    "Node is nominated for a pending pod": "young nodes",
    'NodePool "secret" has consolidation policy WhenEmpty, but node is not empty': "consolidation policy",
    "Can't replace with a cheaper node": "nothing cheaper",
    "whatever secret": "DisruptionBlocked",
}


@pytest.mark.parametrize(("message", "cause"), CAUSES.items(), ids=CAUSES.values())
def test_what_keeps_a_node_is_told_without_names(message: str, cause: str) -> None:
    assert cause_of(blocked("n", message)) == cause


def test_a_decision_tells_what_blocked_the_others_then() -> None:
    pdb, _, _, young, *_ = CAUSES
    found = digest(
        (0, blocked("old", pdb)),
        (BLOCKED_SECONDS, NodeSeen(1, "gone", 1, 1)),
        (BLOCKED_SECONDS, blocked("gone", pdb)),
        (BLOCKED_SECONDS + 1, NodeGone(1)),
        (BLOCKED_SECONDS + 1, blocked("a", pdb)),
        (BLOCKED_SECONDS + 1, blocked("claim-a", pdb, "NodeClaim")),
        (BLOCKED_SECONDS + 1, blocked("b", pdb)),
        (BLOCKED_SECONDS + 2, blocked("c", young)),
        (BLOCKED_SECONDS + 3, batch()),
        (BLOCKED_SECONDS + 4, blocked("d", young)),
    )
    (one,) = found.told().decisions
    assert one.blocked == (("PodDisruptionBudgets", 2), ("young nodes", 1))


def test_shortages_are_counted_with_their_time() -> None:
    told = [(at, OfferingTurned("m5.large", "a", "spot", available)) for at, available in ((10, False), (11, False), (40, True), (50, False))]  # fmt: skip
    ((key, one),) = digest(*told).told().shortages
    assert key == ("a", "spot", "m5.large")
    assert (one.times, one.seconds, one.since, one.lasts) == (2, 30, 50, True)


def test_an_interruption_that_is_told_again_counts_once() -> None:
    one = InstanceInterrupted("c", "m5.large", "a", "spot", "spot_interrupted")
    assert [at for at, _ in digest((5, one), (9, one)).told().interrupted] == [5]


def test_what_the_history_forgot_is_not_told() -> None:
    cost = FleetCost(1.0, 1, 0, 1, 0)
    found = digest((5, cost), (6, batch("a")), (7, Gap(3)), (50, cost), (60, batch("b")))
    told = found.told(40)
    assert [at for at, _ in told.costs] == [50]
    assert [one.at for one in told.decisions] == [60]
    assert (told.dropped, found.told().dropped) == (0, 3)


def test_events_of_other_autoscalers_are_decisions_where_no_command_is_told() -> None:
    said = EventTold("Node", "n", "ScaleDown", "node removed by cluster autoscaler")
    assert [one.entry for one in digest((5, said)).told().decisions] == [said]
    assert [one.at for one in digest((5, said), (6, command(CommandTurn.BEGUN))).told().decisions] == [6]


def test_events_tell_no_decision_again_whose_command_was_forgotten() -> None:
    said = EventTold("Node", "n", "DisruptionTerminating", "Disrupting Node: Empty")
    found = digest((5, command(CommandTurn.BEGUN)), (5, said), *[(float(at), batch(str(at))) for at in range(6, 6 + MOST_DECISIONS)])  # fmt: skip
    assert {type(one.entry) for one in found.told().decisions} == {BatchPlanned}


def test_of_a_long_time_the_latest_is_kept_whole_and_all_of_it_is_bounded() -> None:
    found = HistoryDigest()
    for at in range(3 * MOST_FIGURES):
        found.add(at, (FleetCost(1.0, 1, 0, 1, 0), batch(str(at)), blocked(f"n-{at}", "x")))
        found.add(at, [claim(f"c-{at}-{number}", f"n-{at}") for number in range(2)])
        found.add(at, [NodeSeen(2 * at + number, f"n-{at}", 1, 1) for number in range(2)])
        found.add(at, (InstanceInterrupted(f"c-{at}", "t", "a", "spot", "r"), OfferingTurned(f"t-{at}", "a", "spot", False)))  # fmt: skip
    told = found.told()
    assert len(told.costs) <= MOST_FIGURES
    assert [at for at, _ in told.costs][-100:] == list(range(3 * MOST_FIGURES - 100, 3 * MOST_FIGURES))
    assert told.costs[0][0] < MOST_FIGURES / 2, "the beginning is not forgotten"
    assert len(told.decisions) == MOST_DECISIONS
    assert len(told.interrupted) == len(told.shortages) == 5000
    sizes = [len(kept) for one in fields(found) if isinstance(kept := getattr(found, one.name), dict | list)]
    assert max(sizes) <= 20_000, "nothing of it grows"


def test_what_keeps_the_fleet_survives_a_segment() -> None:
    entries = [batch(), command(CommandTurn.BEGUN, new=NEW)]
    writer = SegmentWriter(SegmentHead("a", "leader", 1.0, 1.0, 0), ())
    writer.add(2.0, entries)
    assert [one for _, one in read_segment(writer.to_bytes())] == entries


def test_causes_are_not_counted_anew_for_each_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the times of a record jump, a decision among many nodes that are kept costs as much as among few."""
    asked = 0

    class Counted(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal asked
            asked += 1
            return super().__hash__()

    monkeypatch.setattr("provisioner.history.digest.cause_of", lambda _: Counted("x"))
    work = []
    for nodes in (10, 2000):
        found = digest(*((5e3, blocked(f"n-{number}", "x")) for number in range(nodes)))
        asked = 0
        for at in range(50):
            found.add(5e3 + (-at if at % 2 else at), (batch(str(at)),))
        assert found.told().decisions[-1].blocked == (("x", nodes),)
        work.append(asked)
    assert work[0] == work[1]
