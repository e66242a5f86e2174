"""What is told of gangs: how many are how far, what those cost that wait, and which lack pods."""

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.gangs import GroupSource
from provisioner.apis.names import GANG, GANG_MINIMUM
from provisioner.lifecycle.gang_decisions import HOLD_SECONDS, usd_at_risk
from provisioner.observability.gangs import INCOMPLETE_SECONDS, MOST_TOLD, GangObserver, counts, in_turn, usd_waiting
from provisioner.state.gang_places import ComingGang, ComingNode, GangStanding, GangState
from provisioner.state.groups import Group
from provisioner.state.knowledge import KindKnowledge
from provisioner.support.metrics import REGISTRY
from tests.support.cluster import TYPES, bound, claim, pod
from tests.support.worldserver import Told, WorldServer
from tests.unit.state.test_gang_places import KEY, coming, complete
from tests.unit.state.test_groups import Grouped, group, member

TYPE = "c-4x-amd64-linux"


def node(name: str, *, launched: bool) -> ComingNode:
    labels = {
        "node.kubernetes.io/instance-type": TYPE,
        "topology.kubernetes.io/zone": "test-zone-a",
        "karpenter.sh/capacity-type": "on-demand",
    }
    made = claim(name, provider_id=f"kwok://{name}" if launched else "", labels=labels)
    return ComingNode(made, 1, launched, ready=False, shared=False)


NODES = st.lists(
    st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.booleans()), max_size=4, unique_by=lambda row: row[0]
)
KEYS = st.sampled_from(["n/a", "n/gang/b/job/2", "n/c"])
STATES = st.dictionaries(KEYS, st.sampled_from(GangState))


def standing(key: str, state: GangState) -> GangStanding:
    return GangStanding(Group(key, 2, 2, 0), state, 0)


def gang(key: str, rows: list[tuple[str, bool]]) -> ComingGang:
    return ComingGang(key, 2, 0, 2, False, tuple(node(name, launched=yes) for name, yes in rows))


@given(STATES)
def test_every_gang_is_counted_once(states: dict[str, GangState]) -> None:
    found = counts(standing(key, state) for key, state in states.items())
    assert sum(found.values()) == len(states)
    assert {source for source, _ in found} <= {one.value for one in GroupSource}
    by_state: Counter[str] = Counter()
    for (_, state), count in found.items():
        by_state[state] += count
    assert by_state == Counter(one.value for one in states.values())


@given(STATES, st.dictionaries(KEYS, NODES))
def test_what_waits_is_what_was_launched_for_gangs_that_do_not_run(
    states: dict[str, GangState], nodes: dict[str, list[tuple[str, bool]]]
) -> None:
    gangs = [gang(key, rows) for key, rows in nodes.items()]
    standings = [standing(key, state) for key, state in states.items()]
    price = usd_waiting([gang("n/x", [("n0", True)])], [], lambda _: TYPES)
    assert price > 0
    found = usd_waiting(gangs, standings, lambda _: TYPES)
    waiting = [key for key in nodes if states.get(key) is not GangState.RUNNING]
    launched = {name for key in waiting for name, yes in nodes[key] if yes}
    assert abs(found - len(launched) * price) < 1e-9
    everything_runs = [standing(key, GangState.RUNNING) for key in nodes]
    assert usd_waiting(gangs, everything_runs, lambda _: TYPES) == 0


@given(st.lists(st.floats(0.0, 100.0), max_size=5))
def test_money_at_risk_is_what_all_nodes_but_one_cost_while_they_are_held(prices: list[float]) -> None:
    risk = usd_at_risk(prices)
    each = [(sum(prices) - one) * HOLD_SECONDS / 3600 for one in prices]
    assert risk == max(each, default=0.0)
    assert len(prices) > 1 or risk == 0.0


class Observed:
    """An observer of a world of its own; `before` has the same API server."""

    def __init__(self, world: Grouped, **changes: Any) -> None:
        self.world = world
        server = WorldServer(world)
        self.told: Told = server.recorder
        self.observer = GangObserver(world.cluster, self.told, world.clock, lambda _: TYPES, **changes)
        self.observer.begin()

    def go_on(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.observer.poll()

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(kind, name) for kind, name, _, reason in self.told.events if reason == "GangIncomplete"]


def incomplete() -> Grouped:
    world = Grouped()
    world.cluster.pod_group_changed(None, group())
    world.add(member("a", created=world.clock.now()))
    return world


def test_a_gang_that_lacks_pods_for_five_minutes_is_told_once_on_its_group_and_one_pod() -> None:
    one = Observed(incomplete())
    one.observer.poll()
    one.go_on(INCOMPLETE_SECONDS - 1)
    assert one.said == []
    one.go_on(1)
    assert one.said == [("PodGroup", "train"), ("Pod", "a")]
    assert one.told.messages[-1] == (
        "No node is launched for the pods of PodGroup default/train, because it has 1 of the 2 pods that it needs (finished pods do not count)"
    )
    one.go_on(1000)
    assert len(one.said) == 2


def test_a_gang_that_is_complete_in_the_meantime_is_told_nothing_and_has_its_time_again() -> None:
    one = Observed(incomplete())
    one.observer.poll()
    one.go_on(INCOMPLETE_SECONDS - 1)
    one.world.add(member("b"))
    one.go_on(2)
    one.world.cluster.pod_changed(member("b"), None)
    one.go_on(INCOMPLETE_SECONDS - 1)
    one.go_on(INCOMPLETE_SECONDS - 1)
    assert one.said == []
    one.go_on(2)
    assert len(one.said) == 2


def test_many_gangs_that_lack_pods_are_all_told_whatever_the_limit_of_their_events_is() -> None:
    """Each look tells as many as have events left."""
    world = Grouped()
    for number in range(4 * MOST_TOLD):
        space = "quiet" if number == 0 else "busy"
        one = msgspec.structs.replace(
            member(f"m{number}", created=world.clock.now()), group=f"g{number}", namespace=space
        )
        world.add(one)
    observed = Observed(world)
    observed.observer.poll()
    observed.go_on(INCOMPLETE_SECONDS)
    assert len(observed.said) == MOST_TOLD
    assert ("Pod", "m0") in observed.said
    for _ in range(3):
        observed.go_on(1)
    assert {name for _, name in observed.said} == {f"m{number}" for number in range(4 * MOST_TOLD)}
    observed.go_on(INCOMPLETE_SECONDS)
    assert len(observed.said) == 4 * MOST_TOLD


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9)).map(lambda one: f"{one[0]}/{one[1]}"), st.floats(0, 9)
    ),
    st.dictionaries(st.sampled_from("abc"), st.floats(0, 9)),
)
def test_no_namespace_has_a_second_turn_before_another_has_its_first(
    due: dict[str, float], told_in: dict[str, float]
) -> None:
    order = in_turn(due, told_in)
    assert sorted(order) == sorted(due)
    left = Counter(key[0] for key in due)
    for number, space in enumerate(key[0] for key in order):
        before = Counter(key[0] for key in order[:number])
        assert all(before[other] >= min(before[space], left[other]) for other in left)
    if order:
        assert told_in.get(order[0][0], -1.0) == min(told_in.get(key[0], -1.0) for key in due)


def test_the_next_leader_tells_what_is_not_due_yet_and_repeats_nothing() -> None:
    world = incomplete()
    first = Observed(world)
    first.observer.poll()
    first.go_on(INCOMPLETE_SECONDS - 10)
    second = Observed(world)
    second.observer.poll()
    assert second.said == []
    second.go_on(10)
    assert len(second.said) == 2
    third = Observed(world)
    third.go_on(1)
    third.go_on(INCOMPLETE_SECONDS + 1)
    assert third.said == []


def test_the_next_leader_repeats_nothing_once_it_can_read_pod_groups() -> None:
    world = incomplete()
    world.cluster.pod_groups_known(KindKnowledge.NOT_YET)
    world.clock.advance(INCOMPLETE_SECONDS + 1)
    one = Observed(world)
    one.observer.poll()
    world.cluster.pod_groups_known(KindKnowledge.READ)
    one.go_on(1)
    one.go_on(INCOMPLETE_SECONDS + 1)
    assert one.said == []


def test_what_is_measured() -> None:
    world = complete()
    world.cluster.claim_changed(None, coming("x", launched=True))
    world.cluster.claim_changed(None, coming("y"))
    one = Observed(world)
    before = REGISTRY.get_sample_value("dovetail_gang_ready_seconds_count") or 0.0
    one.go_on(40.0)
    states = {"source": "podgroup", "state": "launching"}
    assert REGISTRY.get_sample_value("dovetail_gangs", states) == 1.0
    assert (REGISTRY.get_sample_value("dovetail_gang_usd_waiting") or 0.0) > 0
    world.add(bound(member("a"), "n"), bound(member("b"), "n"))
    one.go_on(1.0)
    assert REGISTRY.get_sample_value("dovetail_gangs", states) is None
    assert REGISTRY.get_sample_value("dovetail_gangs", {**states, "state": "running"}) == 1.0
    assert REGISTRY.get_sample_value("dovetail_gang_usd_waiting") == 0.0
    assert REGISTRY.get_sample_value("dovetail_gang_ready_seconds_count") == before + 1


def test_a_gang_of_annotations_is_told_on_one_pod() -> None:
    world = Grouped()
    world.add(pod("a", created=world.clock.now(), annotations={GANG: "g", GANG_MINIMUM: "2"}))
    one = Observed(world)
    one.observer.poll()
    one.go_on(INCOMPLETE_SECONDS)
    assert one.said == [("Pod", "a")]
    assert KEY not in one.told.messages[-1]
