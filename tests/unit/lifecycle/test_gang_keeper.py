"""Gangs whose nodes do not all come: what is decided, and what becomes of what was launched."""

import contextlib
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launches import is_launched
from provisioner.lifecycle.gang_decisions import HOLD_SECONDS, SET_PATIENCE, GangDecision, GangTurn, decide, given_up
from provisioner.state.gang_places import ComingGang, ComingNode
from provisioner.state.groups import REST_SECONDS
from provisioner.state.keys import NodeKey
from provisioner.support.metrics import REGISTRY
from tests.support.cluster import claim, pod, pool
from tests.support.gangs import MEMBERS, Process
from tests.support.kube import refusal
from tests.support.worldserver import ServerDied

PATIENCE, HOLD, REST = int(SET_PATIENCE), int(HOLD_SECONDS), int(REST_SECONDS[0])
GRACE = 30
"""Seconds after the hold for which a part of a gang may still be there."""


def awaited(name: str, launched: bool, ready: bool, shared: bool, members: int) -> ComingNode:
    made = claim(name, provider_id=f"kwok://{name}" if launched else "")
    return ComingNode(made, members, launched, launched and ready, shared)


BOOLS = st.booleans()
NODES = st.lists(st.tuples(BOOLS, BOOLS, BOOLS, st.integers(1, 3)), min_size=1, max_size=5).map(
    lambda rows: tuple(awaited(f"n{number}", *row) for number, row in enumerate(rows))
)
GANGS = st.builds(
    lambda nodes, minimum, bound, more, rests: ComingGang(
        "n/g", minimum, bound, bound + more + sum(one.members for one in nodes), rests, nodes
    ),
    NODES,
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(0, 3),
    st.booleans(),
)


@given(GANGS, st.sets(st.sampled_from(["n0", "n1", "n2"])), st.sampled_from([0.0, HOLD - 1.0, HOLD + 1.0]), BOOLS)
def test_what_is_decided(gang: ComingGang, short: set[str], held: float, replaced: bool) -> None:
    turn, claims = decide(gang, short, held, replaced=replaced)
    by_name = {one.claim.name: one for one in gang.nodes}
    mine = [by_name[name] for name in claims]
    if turn in (GangTurn.DROP, GangTurn.ASK):
        assert mine
        assert not any(one.claim.status.provider_id for one in mine)
        enough = gang.placed - sum(one.members for one in mine) >= gang.minimum or gang.bound >= gang.minimum
        assert (turn is GangTurn.DROP) is enough
    if turn in (GangTurn.REPLACE, GangTurn.GIVE_UP):
        assert gang.bound < gang.minimum
        assert held > HOLD_SECONDS or gang.rests
    if turn is GangTurn.REPLACE:
        assert not replaced
        assert not any(one.ready for one in mine)
        assert all(one.claim.status.provider_id for one in gang.nodes)
    if turn is GangTurn.GIVE_UP:
        assert all(one.begun and one.shared for one in gang.nodes if one not in mine)
        assert not any(one.begun and one.shared for one in mine)
    if turn is GangTurn.WAIT and not gang.rests and held > HOLD_SECONDS and gang.bound < gang.minimum <= gang.placed:
        assert all(one.ready for one in gang.nodes)


def launched(one: Process) -> int:
    return sum(map(is_launched, one.there()))


def half(one: Process) -> bool:
    """Whether instances are there, and fewer than the gang needs."""
    return 0 < launched(one) < len(MEMBERS)


def refusing(one: Process, number: int = 0) -> None:
    """Nothing can be had for the claim of this number, as long as this process has it."""

    def refuses(asked: NodeClaim) -> bool:
        return asked.name == sorted(one.claims)[number]

    one.refuses = refuses
    one.keeper._elsewhere = lambda *_: False  # its provider says that there is none of that type


def test_where_one_node_cannot_be_had_all_are_given_up_and_the_gang_comes_back_later() -> None:
    one = Process(*MEMBERS)
    refusing(one)
    one.go_on(PATIENCE)
    assert launched(one) == len(MEMBERS) - 1
    one.go_on(5)
    assert not one.there()
    (text,) = one.server.recorder.said("GangGivenUp")
    assert text.startswith("Not all nodes for gang default/train could be launched: 4 NodeClaims are deleted")
    one.refuses = lambda _: False
    one.go_on(REST - 10)
    assert not one.there()
    assert "no nodes are launched for it for 60 s" in one.server.recorder.said("FailedScheduling")[0]
    one.go_on(20)
    one.assert_whole()


def test_a_gang_is_told_once_that_it_is_planned_and_once_that_all_of_its_nodes_are_launched() -> None:
    one = Process(*MEMBERS)
    one.hangs = lambda claim: claim.name == min(one.claims)
    one.go_on(5)
    assert not one.server.recorder.said("GangLaunched")
    one.hangs = lambda _: False
    one.go_on(20)
    (planned,) = one.server.recorder.said("GangPlanned")
    assert planned.startswith("Planned 4 new nodes for 4 pods of gang default/train, for $")
    assert "If one of them cannot be launched, the others cost up to $" in planned
    assert one.server.recorder.said("GangLaunched") == [
        "Launched all nodes for gang default/train (4); its pods can run there when all of them are ready"
    ]
    assert {each for each in one.server.recorder.events if each[3].startswith("Gang")} == {
        ("Pod", "a", "Normal", "GangPlanned"),
        ("Pod", "a", "Normal", "GangLaunched"),
    }
    other = Process(*MEMBERS, before=one)
    other.go_on(20)
    assert not [each for each in other.server.recorder.events if each[3].startswith("Gang")]


def test_why_a_gang_was_given_up_is_counted() -> None:
    def count(reason: str) -> float:
        return REGISTRY.get_sample_value("dovetail_gang_given_up_total", {"reason": reason}) or 0.0

    before = {reason: count(reason) for reason in ("insufficient_capacity", "hold_expired")}
    one = Process(*MEMBERS)
    refusing(one)
    one.go_on(PATIENCE + 5)
    assert count("insufficient_capacity") == before["insufficient_capacity"] + 1
    other = Process(*MEMBERS)
    other.hangs = lambda claim: claim.name == min(other.claims)
    other.go_on(HOLD + 20, 10)
    assert count("hold_expired") == before["hold_expired"] + 1
    assert count("insufficient_capacity") == before["insufficient_capacity"] + 1


def test_a_gang_that_is_given_up_again_waits_longer() -> None:
    one, given = Process(*MEMBERS), list[float]()
    refusing(one)
    for second in range(0, 350, 2):
        before = len(one.server.recorder.said("GangGivenUp"))
        one.go_on(2, 2)
        if len(one.server.recorder.said("GangGivenUp")) > before:
            given.append(second)
    assert [later - earlier for earlier, later in pairwise(given)] == pytest.approx(
        [REST + PATIENCE + 1, 2 * REST + PATIENCE + 1], abs=5
    )


def test_a_launched_node_with_pods_of_others_stays() -> None:
    one = Process(*MEMBERS)
    refusing(one)
    one.go_on(2)
    kept = next(each.name for each in one.there() if is_launched(each))
    stranger = pod("stranger", cpu="100m")
    one.world.add(stranger)

    assert not one.world.cluster.assign(NodeKey(kept), [stranger])
    one.go_on(PATIENCE + 5)
    assert [each.name for each in one.there()] == [kept]
    one.go_on(20)
    assert len(one.server.recorder.said("GangGivenUp")) == 1
    one.refuses = lambda _: False
    rest = max(one.world.cluster.group_rests("default/gang/train/job/4") for _ in range(3))
    assert rest > HOLD
    one.go_on(int(rest) + 40, 10)  # what was launched long ago takes nothing of the time of what comes later
    assert launched(one) == len(MEMBERS)
    assert kept in one.claims
    assert len(one.server.recorder.said("GangGivenUp")) == 1


def test_what_cannot_be_deleted_now_is_deleted_later_and_the_gang_waits_no_longer_for_that() -> None:
    one = Process(*MEMBERS)
    refusing(one)
    one.server.postpone = "a pod was bound there"
    one.keeper._postponed = one.server.postponed
    one.go_on(PATIENCE + 10)
    assert half(one)
    assert len(one.server.recorder.said("GangGivenUp")) == 1
    assert {each.seconds for each in one.world.cluster.snapshot().resting.values()} == {float(REST)}
    one.server.postpone = ""
    one.go_on(5)
    assert not one.there()


def test_where_the_pods_fit_elsewhere_only_what_cannot_be_had_is_replaced() -> None:
    one = Process(*MEMBERS)
    refusing(one)
    one.keeper._elsewhere = one.controller.planning.fits_elsewhere
    one.go_on(2)
    first = {each.name for each in one.there() if is_launched(each)}
    two = ({"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-4x-amd64-linux", "c-8x-amd64-linux"]},)
    one.world.cluster.pool_changed(None, pool(requirements=two))
    one.refuses = lambda asked: asked.name not in first and "c-4x-amd64-linux" in str(asked.spec.requirements)
    one.provider.types = tuple(
        replace(kind, offerings=tuple(replace(each, available=False) for each in kind.offerings))
        if kind.name == "c-4x-amd64-linux"
        else kind
        for kind in one.provider.types
        if kind.name in ("c-4x-amd64-linux", "c-8x-amd64-linux")
    )
    one.go_on(PATIENCE + 10)
    assert launched(one) == len(MEMBERS)
    assert first < {each.name for each in one.there()}
    assert not one.server.recorder.said("GangGivenUp")


@pytest.mark.parametrize(("factor", "fits"), [(1.9, True), (2.1, False)])
def test_what_costs_much_more_is_no_place_elsewhere(factor: float, fits: bool) -> None:
    """One of four nodes costs so many times as much: a quarter of the whole more, or less."""
    one = Process(*MEMBERS)
    one.controller.run()
    first, *_ = every = [*one.claims]
    kinds = {kind.name: kind for kind in one.provider.types}
    own = kinds["c-4x-amd64-linux"]
    other = replace(own, name="other", requirements=kinds["c-8x-amd64-linux"].requirements)
    prices = tuple(replace(each, price=each.price * factor) for each in own.offerings)
    gone = replace(own, offerings=tuple(replace(each, available=False) for each in own.offerings))
    two = ({"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": [own.name, "c-8x-amd64-linux"]},)
    one.world.cluster.pool_changed(None, pool(requirements=two))
    one.provider.types = (gone, replace(other, name="c-8x-amd64-linux", offerings=prices))
    assert one.controller.planning.fits_elsewhere([first])
    assert one.controller.planning.fits_elsewhere([first], every) is fits


def test_what_is_launched_waits_for_the_rest_until_the_hold_is_over() -> None:
    one = Process(*MEMBERS)
    one.hangs = lambda asked: asked.name == min(one.claims)
    one.go_on(HOLD - 10, 10)
    assert half(one)
    one.go_on(GRACE, 10)
    assert not one.there()


def test_a_node_that_does_not_come_is_replaced_alone_and_once() -> None:
    one = Process(*MEMBERS)
    one.go_on(2)
    late, *others = sorted(one.claims)
    one.joins(*others)
    one.go_on(HOLD + 20, 10)
    assert late not in one.claims
    assert set(others) < one.claims.keys()
    assert launched(one) == len(MEMBERS)
    one.go_on(HOLD + 20, 10)
    assert not half(one)
    assert one.server.recorder.said("GangGivenUp")


@pytest.mark.parametrize("write", range(9))
def test_killed_at_every_write_while_a_gang_is_given_up_no_part_of_it_stays(write: int) -> None:
    one = Process(*MEMBERS)
    refusing(one)
    one.go_on(PATIENCE - 1)
    assert half(one)
    one.server.dies_after = len(one.server.done) + write
    with contextlib.suppress(ServerDied):
        one.go_on(30, 5)
    then = Process(*MEMBERS, before=one)
    refusing(then)
    then.world.clock.advance(one.world.clock.monotonic())
    parts = 0
    for _ in range(0, HOLD + 2 * GRACE, 10):
        then.go_on(10, 10)
        parts = parts + 10 if half(then) else 0
        assert parts <= HOLD + GRACE
    then.refuses = lambda _: False
    for _ in range(20):
        then.go_on(int(REST_SECONDS[0]), int(REST_SECONDS[0]))
        then.joins(*[each.name for each in then.there() if is_launched(each)])
    then.broken += one.broken
    then.assert_whole()


def test_a_claim_of_no_set_is_not_decided_here() -> None:
    one = Process(pod("alone", cpu="3"))
    one.controller.run()
    (name,) = one.claims
    assert not one.keeper.short(name, ever=False)
    one.go_on(PATIENCE + 5)
    assert name in one.claims


def test_while_another_karpenter_leads_nothing_is_given_up() -> None:
    one = Process(*MEMBERS)
    refusing(one)
    one.keeper._beside = lambda: "Karpenter runs"
    one.go_on(HOLD + GRACE, 10)
    assert half(one)


def test_members_beyond_the_minimum_are_dropped_alone() -> None:
    gang = ComingGang("n/g", 2, 0, 3, False, tuple(awaited(name, name != "c", True, False, 1) for name in "abc"))
    assert decide(gang, {"c"}, 0.0, replaced=False) == GangDecision(GangTurn.DROP, ("c",))
    assert given_up(gang) == ("a", "b", "c")


def with_strangers(one: Process, *claims: str) -> None:
    """A pod that is of no gang is planned on the node of each."""
    for name in claims:
        stranger = pod(f"stranger-{name}", cpu="100m")
        one.world.add(stranger)
        assert not one.world.cluster.assign(NodeKey(name), [stranger])


def test_a_gang_of_which_nothing_can_be_given_up_does_not_rest_for_longer_and_longer() -> None:
    one = Process(*MEMBERS)
    one.go_on(2)
    with_strangers(one, *one.claims)
    one.keeper._replaced.add("default/gang/train/job/4")
    one.go_on(HOLD + REST, 10)
    assert launched(one) == len(MEMBERS)
    assert not one.server.recorder.said("GangGivenUp")
    assert not one.world.cluster.snapshot().resting


def test_what_stays_of_a_gang_that_was_given_up_does_not_end_its_next_attempt() -> None:
    one = Process(*MEMBERS)
    refusing(one)
    one.go_on(2)
    kept = next(each.name for each in one.there() if is_launched(each))
    with_strangers(one, kept)
    one.go_on(PATIENCE + 2)
    assert [each.name for each in one.there()] == [kept]
    one.refuses = lambda asked: asked.name != kept
    one.go_on(HOLD + PATIENCE, 5)
    one.refuses = lambda _: False
    for _ in range(0, 2 * int(REST_SECONDS[1]), 5):
        one.go_on(5, 5)
        if launched(one) == len(MEMBERS):
            break
    there = {each.name for each in one.there()}
    one.go_on(60, 5)
    assert len(there) == len(MEMBERS)
    assert there == {each.name for each in one.there()}


def test_what_cannot_be_had_goes_with_the_pods_of_others_that_wait_for_it() -> None:
    one = Process(*MEMBERS)
    refusing(one)
    one.go_on(2)
    (short,) = [each for each in one.there() if not is_launched(each)]
    with_strangers(one, short.name)
    marked = {**short.metadata.annotations, names.LAUNCH_ANNOTATION: "{}"}
    one.server.put(msgspec.structs.replace(short, metadata=msgspec.structs.replace(short.metadata, annotations=marked)))
    one.go_on(PATIENCE + 5)
    assert short.name not in one.claims


def test_where_a_deletion_fails_a_gang_rests_no_longer_and_it_is_tried_again() -> None:
    one = Process(*MEMBERS)
    refusing(one)
    one.server.intercept = lambda sent: refusal(500) if sent.method == "DELETE" else None
    one.go_on(PATIENCE + 5)
    assert len(one.there()) == len(MEMBERS)
    one.server.intercept = lambda _: None
    one.go_on(2)
    assert not one.there()
    assert {each.seconds for each in one.world.cluster.snapshot().resting.values()} == {REST}
