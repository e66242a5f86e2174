"""Workloads whose nodes are launched and removed again and again: what counts as a cycle, for how long it holds, and what is remembered."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.disruption import loops
from provisioner.disruption.candidates import Obstacle, candidates
from provisioner.disruption.loops import CYCLES, NO_HOLDS, WINDOW, LoopHolds, Loops
from provisioner.disruption.methods.emptiness import emptiness
from provisioner.state.pause import Activity
from tests.support.clock import NOON
from tests.support.cluster import claim, pod
from tests.support.fleets import Fleet, running

WEB, OTHER = pod("web", owner="web"), pod("other", owner="other")


class History:
    """What happened, minute by minute."""

    def __init__(self) -> None:
        self.loops = Loops()
        self.minutes = 0.0
        self.told: list[str] = []

    @property
    def now(self) -> datetime:
        return NOON + timedelta(minutes=self.minutes)

    def wait(self, minutes: float) -> "History":
        self.minutes += minutes
        return self

    def buy(self, *those: str, pods: tuple[Pod, ...] = (WEB,), annotations: dict[str, str] | None = None) -> "History":
        for name in those:
            made = claim(name, pods=pods, creationTimestamp=self.now.isoformat())
            made.metadata.annotations.update(annotations or {})
            self.loops.saw(made, self.now)
        return self

    def remove(self, *those: str) -> "History":
        self.loops.decided(those, self.now)
        for name in those:
            self.told += self.loops.removed(name, self.now)
        return self

    def cycle(self, name: str) -> "History":
        return self.buy(name).wait(5).remove(name).wait(1)

    @property
    def held(self) -> set[str]:
        return set(self.loops.holds(self.now).owners)


def thrice() -> History:
    return History().cycle("a").cycle("b").cycle("c")


def test_three_cycles_within_an_hour_are_a_loop_told_once_until_the_first_is_an_hour_ago() -> None:
    history = thrice()
    assert history.told == ["web"]
    assert history.held == {"web"}
    history.wait(46.5)  # the first cycle ended in minute 5
    assert history.held == {"web"}
    history.wait(0.5)
    assert history.held == set()


def test_two_are_none() -> None:
    assert History().cycle("a").cycle("b").held == set()


def test_a_cycle_that_the_next_nodes_carry_counts_once() -> None:
    """A clock does not tick in whole seconds; marks do."""
    history = History().wait(0.01).cycle("a")
    for name in ("b", "c"):
        history.buy(name, annotations=dict(history.loops.marks((WEB,))))
    history.wait(5).remove("b", "c")
    assert history.held == set()


def test_nodes_that_a_workload_gives_up_together_are_one_cycle() -> None:
    history = History().buy(*"abcdefgh").wait(1)
    for name in "abcdefgh":
        history.remove(name).wait(1)
    assert history.held == set()


def test_the_replacement_of_a_replacement_is_the_next_cycle() -> None:
    """Replacements are launched before what they replace goes."""
    history = History().buy("a").wait(1)
    for old, new in ("ab", "bc", "cd"):
        history.loops.decided((old,), history.now)
        history.wait(1).buy(new).wait(1)
        history.told += history.loops.removed(old, history.now)
        history.wait(1)
    assert history.told == ["web"]


def test_nodes_that_were_there_for_an_hour_do_not_count() -> None:
    history = History()
    for name in "abc":
        history.buy(name)
    history.wait(60)
    for name in "abc":
        history.remove(name).wait(1)
    assert history.held == set()
    assert not history.loops._owners


def test_cycles_that_are_further_apart_than_an_hour_do_not_count_together() -> None:
    assert History().cycle("a").wait(25).cycle("b").wait(25).cycle("c").held == set()


def test_what_somebody_else_deletes_does_not_count() -> None:
    history = History().cycle("a").cycle("b").buy("c").wait(1)
    assert history.held == set()


def test_others_are_not_held() -> None:
    history = thrice().buy("d", pods=(OTHER,)).buy("e", pods=(WEB, OTHER))
    assert dict(history.loops.holds(history.now).claims) == {"e": "web"}


def test_after_a_restart_the_next_node_tells_what_was_before() -> None:
    before = History().cycle("a").cycle("b")
    marks = dict(before.loops.marks((WEB, OTHER)))
    assert list(marks) == [names.REMOVALS_ANNOTATION]
    assert before.loops.marks((OTHER,)) == {}
    after = History().wait(before.minutes).buy("c", annotations=marks)
    assert after.held == set()
    after.wait(5).remove("c")
    assert after.told == ["web"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"web": ["x"]}', '{"web": [9999999999999999]}', '{"web": 1}'])
def test_marks_that_nobody_can_read_are_none(text: str) -> None:
    assert History().buy("a", annotations={names.REMOVALS_ANNOTATION: text}).cycle("b").held == set()


def test_marks_of_times_to_come_are_none() -> None:
    marks = {names.REMOVALS_ANNOTATION: f'{{"web": [{int((NOON + WINDOW).timestamp())}, 1, 2]}}'}
    assert History().buy("a", annotations=marks).held == set()


def test_a_plan_that_cannot_be_read_names_nobody() -> None:
    assert not History().buy("a", annotations={names.PLAN_ANNOTATION: "{"}).loops._bought


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MOST_CLAIMS", 10)
    monkeypatch.setattr(loops, "MOST_OWNERS", 5)
    monkeypatch.setattr(loops, "MOST_OWNERS_OF_A_CLAIM", 3)
    history = History()
    pods: tuple[Pod, ...] = ()
    for number in range(40):
        pods = tuple(pod(f"{number}-{each}", owner=f"{number}-{each}") for each in range(6))
        history.buy(f"n{number}", pods=pods).remove(f"n{number}")
    assert len(history.loops._bought) == 10
    assert len(history.loops._owners) == 5
    assert max(len(one.owners) for one in history.buy("z", pods=pods).loops._bought.values()) == 3


def test_what_is_an_hour_old_is_forgotten() -> None:
    history = History().buy("a", "b").wait(60).buy("c")
    assert list(history.loops._bought) == ["c"]
    history.cycle("d").wait(60).loops.holds(history.now)
    assert not history.loops._owners


# --- held -----------------------------------------------------------------------------------------------------------------


UNTIL = NOON + timedelta(minutes=7)
HOLDS = LoopHolds({"web": UNTIL}, {"empty": "web"})


def refused(
    fleet: Fleet, holds: LoopHolds, activity: Activity = Activity.DRIFT
) -> dict[str, tuple[Obstacle, datetime | None]]:
    view = replace(fleet.view(), loops=holds)
    found = candidates(view, activity)
    return {one.node.key.name: (one.obstacle, one.until) for one in found.refused}


def test_nodes_with_pods_of_a_workload_in_a_loop_and_nodes_that_were_launched_for_it_are_no_candidates() -> None:
    fleet = Fleet()
    fleet.node("looping", [running("w", owner=WEB.owner)])
    fleet.node("quiet", [running("o", owner=OTHER.owner)])
    fleet.node("empty")
    assert refused(fleet, HOLDS) == dict.fromkeys(("empty", "looping"), (Obstacle.LOOP, UNTIL))
    assert refused(fleet, NO_HOLDS) == {}
    assert refused(fleet, HOLDS, Activity.REPAIR) == {}


def test_emptiness_leaves_them_alone_and_says_why() -> None:
    fleet = Fleet()
    fleet.node("empty")
    fleet.node("other")
    fleet.node("busy", [running("w", owner=WEB.owner)])
    view = replace(fleet.view(), loops=HOLDS, empty_for=dict.fromkeys(("empty", "other"), timedelta(hours=1)))
    answer = emptiness(view)
    assert [one.candidates for one in answer.proposals] == [("other",)]
    (blocked,) = answer.blocked
    assert (blocked.key, blocked.event) == ("empty", "DisruptionLoop")
    assert f"launched and removed {CYCLES} times within an hour" in str(blocked)
    assert answer.recheck_at == UNTIL


def test_empty_nodes_of_a_workload_that_has_no_pods_go() -> None:
    """After a Deployment had been scaled up and down for a minute and was deleted, five nodes stayed for an hour."""
    fleet = Fleet()
    fleet.node("empty")
    view = replace(fleet.view(), loops=HOLDS, empty_for={"empty": timedelta(hours=1)})
    assert [one.candidates for one in emptiness(view).proposals] == [("empty",)]
    assert emptiness(replace(view, snapshot=replace(view.snapshot, pending=(WEB,)))).proposals == ()
