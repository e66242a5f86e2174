"""Defects in what launches the nodes of a gang together: each is caught by what is played here, and without any nothing is."""

import contextlib
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from provisioner.apis.launches import is_launched
from provisioner.lifecycle import gang_decisions, gang_keeper
from provisioner.lifecycle.gang_decisions import HOLD_SECONDS, SET_PATIENCE, GangDecision, GangTurn
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.nodeclaims.growth_limits import Growth, GrowthLimits
from provisioner.provisioning import provisioner
from provisioner.state.claim_plans import ClaimPlans
from provisioner.state.cluster import Cluster
from provisioner.state.groups import REST_SECONDS
from provisioner.state.keys import NodeKey
from provisioner.state.launch_sets import LaunchSets, SetProgress
from tests.support.cluster import pod
from tests.support.gangs import MEMBERS, Process
from tests.support.worldserver import ServerDied


def killed(write: int) -> None:
    """The process ends before a write of the creations or the launches."""
    first = Process(*MEMBERS)
    first.server.dies_after = write
    with contextlib.suppress(ServerDied):
        first.go_on()
    then = Process(*MEMBERS, before=first)
    then.go_on()
    then.broken += first.broken
    then.assert_whole()


def refusing() -> Process:
    """One of four can never be had."""
    one = Process(*MEMBERS)
    one.refuses = lambda asked: asked.name == min(one.claims)
    one.keeper._elsewhere = lambda *_: False
    return one


def given_up() -> None:
    one = refusing()
    one.go_on(int(SET_PATIENCE) + 4)
    assert not one.there()
    one.go_on(int(REST_SECONDS[0]) - 10, 10)
    assert not one.there()
    one.refuses = lambda _: False
    one.go_on(60, 10)
    one.assert_whole()


def held() -> None:
    """A launch that has no end."""
    one = Process(*MEMBERS)
    one.hangs = lambda asked: asked.name == min(one.claims)
    one.go_on(int(HOLD_SECONDS) + 30, 10)
    assert not one.there()


def shared() -> None:
    """Another pod is to run on one of them."""
    one = refusing()
    one.go_on(2)
    kept = next(each.name for each in one.there() if is_launched(each))
    stranger = pod("stranger", cpu="100m")
    one.world.add(stranger)
    one.world.cluster.assign(NodeKey(kept), [stranger])
    one.go_on(int(SET_PATIENCE) + 4)
    assert [each.name for each in one.there()] == [kept]


def limited() -> None:
    """A minute allows fewer nodes than are needed, and some were made."""
    one = Process(pod("single", cpu="3"))
    cluster, clock = one.world.cluster, one.world.clock
    one.controller._creator.growth = GrowthLedger(cluster, GrowthLimits(3), lambda _: {}, clock)
    one.controller.run()
    one.world.add(*MEMBERS)
    one.controller.run()
    assert len(one.claims) == 1
    clock.advance(60.0)
    one.controller.run()
    assert len(one.claims) == 1 + len(MEMBERS)


PLAYS: tuple[Callable[[], None], ...] = (
    *(lambda write=write: killed(write) for write in (2, 4, 6)),
    given_up,
    held,
    shared,
    limited,
)

_decide, _progress = gang_decisions.decide, LaunchSets._progress


def _never(progress: SetProgress) -> Callable[[LaunchSets, Any], SetProgress]:
    def known(self: LaunchSets, one: Any) -> SetProgress:
        found = _progress(self, one)
        return SetProgress.WHOLE if found is progress else found

    return known


def _dropping(*asked: Any, **more: Any) -> GangDecision:
    found = _decide(*asked, **more)
    return GangDecision(GangTurn.DROP, found.claims) if found.turn is GangTurn.ASK else found


def _one_fewer(self: Growth, usd: float, elapsed: float = 0.0, claims: int = 1) -> Any:
    return _refusal(self, usd, elapsed)


_refusal = Growth.refusal
MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "a part of a set is launched": (LaunchSets, "_progress", _never(SetProgress.BROKEN)),
    "nobody waits for what is not written": (LaunchSets, "_progress", _never(SetProgress.COMING)),
    "a part of a set is needed": (ClaimPlans, "lacks_company", lambda *_: False),
    "each of a set is admitted by itself": (
        provisioner,
        "together",
        lambda _sets, order, _first: [[one] for one in order],
    ),
    "a set counts as one": (Growth, "refusal", _one_fewer),
    "nothing goes where all is given up": (gang_keeper.GangKeeper, "_give_up", gang_keeper.GangKeeper._let_rest),
    "what others use goes too": (
        gang_keeper,
        "given_up",
        lambda gang: tuple(one.claim.name for one in gang.nodes),
    ),
    "what is launched waits for ever": (gang_decisions, "HOLD_SECONDS", inf),
    "a refusal is never for good": (gang_keeper, "SET_PATIENCE", inf),
    "only what cannot be had goes": (gang_keeper, "decide", _dropping),
    "a gang that was given up does not wait": (Cluster, "group_rests", lambda *_: 60.0),
    "the groups that wait are not known": (Cluster, "gangs_coming", lambda *_: ()),
    "nodes of a set do not say so": (provisioner, "launch_sets", lambda claims, *_: ((),) * len(claims)),
}
"""Here the mark or the status of the first one tells the same before anybody looks again."""


def fails() -> bool:
    for play in PLAYS:
        try:
            play()
        except Exception:  # noqa: BLE001 - whatever a defect leads to
            return True
    return False


def test_without_a_defect_nothing_fails() -> None:
    assert not fails()


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_defect_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, value = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, value)
    assert fails()
