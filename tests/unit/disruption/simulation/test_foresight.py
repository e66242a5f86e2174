"""What becomes of a fleet when proposals are carried out."""

from typing import Any

import pytest

from provisioner.apis import names
from provisioner.disruption.methods import consolidation
from provisioner.disruption.methods.moves import Consolidation
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.simulation.foresight import Play, ahead, saved_by
from provisioner.disruption.view import DisruptionView
from tests.support.economy import scaled_down
from tests.support.fleets import LARGE, Fleet, gist, pool, running, several
from tests.support.problems import of_app


def begun(view: DisruptionView) -> Play:
    assert view.prepared is not None
    return Play(view, view.prepared)


def a_fleet(**more: Any) -> Fleet:
    """One node too many, and one that is too large."""
    fleet = Fleet(**more)
    fleet.node("a", [running("a-0", of_app("web", cpu="1"))])
    fleet.node("b", [running("b-0", of_app("web", cpu="1"))])
    fleet.node("c", several(5, "c", of_app("web", cpu="500m")), kind=LARGE)
    return fleet


def test_nodes_go_and_their_pods_are_where_they_were_placed() -> None:
    view = a_fleet().view()
    play = begun(view)
    pods = view.snapshot.nodes[0].pods
    play.carry_out([Proposal("Underutilized", "single", ("a",), (), {"b": pods}, saving_usd_per_hour=0.2)])
    (b, c) = play.view.snapshot.nodes
    assert (b.key.name, [pod.name for pod in b.pods], c) == ("b", ["b-0", "a-0"], view.snapshot.nodes[2])
    assert {pod.node_name for pod in b.pods} == {"node-b"}
    assert (b.used.amount("cpu"), b.room.amount("cpu")) == (2_000, 2_000)
    (first, second) = play.prepared.world.bins
    assert (first.name, first.room, len(first.pods), second.name) == ("b", b.room, 2, "c")
    assert play.curve == [(0.0, 0.0), (1.0, 0.2)]
    assert view.snapshot.nodes[1].room.amount("cpu") == 3_000, "what was asked about stays as it is"


def test_new_nodes_take_pods_and_can_go_like_any_other() -> None:
    view = a_fleet().view()
    assert view.prepared is not None
    work = Consolidation(view, view.prepared)
    largest = next(one for one in work.order if one.key == "c")
    world = view.prepared.solve(largest.pods, leaving={"a", "b", "c"})
    play = begun(view)
    play.carry_out([Proposal("Underutilized", "single", ("c",), world.claims, {})])
    (new,) = (node for node in play.view.snapshot.nodes if node.key.name not in {"a", "b", "c"})
    assert (new.labels[names.INSTANCE_TYPE_LABEL], new.room.amount("cpu"), len(new.pods)) == ("medium", 1_500, 5)
    then = Consolidation(play.view, play.prepared)
    assert new.key.name in {one.key for one in then.order}
    placed = play.prepared.solve([running("later", of_app("web", cpu="1"))], leaving={"a", "b"})
    assert list(placed.existing) == [new.key.name]


def test_limits_get_back_what_goes() -> None:
    view = a_fleet(pools=[pool(limits={"cpu": "16"})]).view()
    play = begun(view)
    play.carry_out([Proposal("Underutilized", "single", ("a",), (), {"b": view.snapshot.nodes[0].pods})])
    (before,), (after,) = (
        (one.remaining for one in world.world.pools) for world in (view.prepared, play.prepared) if world
    )
    assert before is not None
    assert after is not None
    assert (before.amount("cpu"), after.amount("cpu")) == (0, 4_000)


def test_budgets_hold_nobody_back_but_where_they_leave_nothing() -> None:
    view = a_fleet().view(allowed=lambda pool, _reason: 1 if pool == "general" else 0)
    play = begun(view)
    assert [play.view.allowed(name, "Underutilized") for name in ("general", "other")] == [3, 0]


@pytest.mark.parametrize(("kind", "seed"), [("batch", 1), ("batch", 4), ("micro", 1)])
def test_a_fleet_is_foreseen_as_it_will_be(kind: str, seed: int) -> None:
    economy = scaled_down(kind, 30, seed)
    play = begun(economy.view())
    for _ in range(3):
        proposals, theirs = (consolidation.propose(view).proposals for view in (play.view, economy.view()))
        assert [gist(one)[1:] for one in theirs] == [
            (sorted(claim.planned_type for claim in one.replacements), placed_by(one)) for one in proposals
        ]
        play.carry_out(proposals)
        for one in theirs:
            economy.carry_out(one)
        assert play.curve[-1] == pytest.approx((economy.evictions, economy.saved))


def placed_by(one: Proposal) -> dict[str, int]:
    """As `gist` has it, with the names that the economy gives to new nodes."""
    return {name.replace("~0", "r"): len(pods) for name, pods in sorted(one.placements.items())}


def test_who_saves_most_by_as_many_evictions_is_ahead() -> None:
    slow, quick = [(0.0, 0.0), (10.0, 1.0), (20.0, 5.0)], [(0.0, 0.0), (12.0, 2.0)]
    assert saved_by(slow, 19.9) == 1.0
    assert ahead([("slow", slow), ("quick", quick)]) == "quick"
    assert ahead([("quick", quick), ("longer", [*quick, (14.0, 2.5)])]) == "longer"
    assert ahead([("first", quick), ("second", quick)]) == "first"
