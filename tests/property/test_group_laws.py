"""Laws of PodGroups in the state: who waits depends on what there is, not on the order in which it was told."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import AnyPodGroup, PodGroup
from provisioner.apis.gangs import GroupSource, group_of
from provisioner.apis.pods import Pod
from provisioner.cli.plan.catalogues import chosen, default_pool
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.planning import PlanSettings, plan
from provisioner.cli.plan.questions import pods_in, question_of
from provisioner.state.checking import CheckedCluster
from provisioner.state.cluster import Cluster
from provisioner.state.gang_places import GangState
from provisioner.state.knowledge import KindKnowledge
from provisioner.support.clock import SystemClock
from tests.support.clock import FakeClock
from tests.support.cluster import TYPES, pod
from tests.support.podgroups import MEMBERS, grouped, object_of
from tests.support.work import Lines

GRACE = timedelta(milliseconds=300)
NAMES, GROUPS = ("a", "b", "c", "d"), ("x", "y")
GANGS = {"@2": 2, "@3": 3}
"""Of annotations, with their minima."""

facts = st.fixed_dictionaries(
    {
        "group": st.sampled_from(("", *GROUPS, GROUPS[0], *GANGS)),
        "gated": st.sampled_from((False, False, False, True)),
        "node_name": st.sampled_from(("", "", "n")),
        "phase": st.sampled_from(("Pending", "Pending", "Pending", "Succeeded")),
        "priority": st.sampled_from((0, 0, 0, 5)),
        "unschedulable": st.booleans(),
    }
)
pods = st.dictionaries(st.sampled_from(NAMES), facts)
minima = st.dictionaries(st.sampled_from(GROUPS), st.integers(1, 3))


def made(name: str, said: dict[str, Any]) -> Pod:
    given = {key: value for key, value in said.items() if key != "node_name"}
    if said["group"] in GANGS:
        given |= {"group": "", "annotations": {names.GANG: "g", names.GANG_MINIMUM: str(GANGS[said["group"]])}}
    return pod(name, node=said["node_name"], **given)


def pod_group(name: str, minimum: int) -> PodGroup:
    found = object_of(GroupSource.POD_GROUP, name, minimum)
    assert isinstance(found, PodGroup)
    return found


def expected(there: dict[str, dict[str, Any]], minimum: dict[str, int]) -> list[str]:
    """Who waits in the end, by the letter of the rule: all pods are looked at, nothing is counted."""

    def all_of(name: str) -> list[dict[str, Any]]:
        return [one for one in there.values() if one["group"] == name]

    def is_tried(name: str) -> bool:
        mine = [one for one in all_of(name) if one["phase"] == "Pending"]
        if name in GANGS:
            begun = any(one["node_name"] or one["phase"] == "Succeeded" for one in all_of(name))
            return sum(not one["gated"] for one in mine) >= GANGS[name] or begun
        agree = all(one["priority"] == 0 for one in mine)
        return name in minimum and len(mine) >= minimum[name] and agree and not any(one["gated"] for one in mine)

    return sorted(
        name
        for name, one in there.items()
        if one["phase"] == "Pending" and not one["node_name"] and not one["gated"]
        if not one["group"] or is_tried(one["group"])
    )


@given(before=pods, after=pods, smaller=minima, minimum=minima, data=st.data())
def test_who_waits_follows_from_what_there_is_in_every_order_of_events(
    before: dict[str, Any], after: dict[str, Any], smaller: dict[str, int], minimum: dict[str, int], data: st.DataObject
) -> None:
    clock = FakeClock()
    cluster = Cluster(lambda _: TYPES, clock, grace=GRACE)
    cluster.settle()
    cluster.pod_groups_known(KindKnowledge.READ)
    told: dict[str, Pod] = {}
    known: dict[str, PodGroup] = {}

    def tell_pod(name: str, said: dict[str, Any] | None) -> None:
        old = told.pop(name, None)
        if said is not None:
            told[name] = made(name, said)
        cluster.pod_changed(old, told.get(name))

    def tell_group(name: str, count: int | None) -> None:
        old = known.pop(name, None)
        if count is not None:
            known[name] = pod_group(name, count)
        cluster.pod_group_changed(old, known.get(name))

    for there, counts in ((before, smaller), (after, minimum)):
        events: list[Callable[[], None]] = [
            *(partial(tell_pod, name, there.get(name)) for name in NAMES),
            *(partial(tell_group, name, counts.get(name)) for name in GROUPS),
        ]
        for event in data.draw(st.permutations(events)):
            event()
            clock.advance(data.draw(st.sampled_from((0.0, 0.1, 1.0))))
            cluster.snapshot()
    clock.advance(1.0)
    waiting = cluster.snapshot().waiting
    assert sorted(one.name for one in waiting) == expected(after, minimum)
    states = {one.group.key: one.state for one in cluster.gang_standings()}
    assert len(states) == len(cluster.gang_standings())
    assert states.keys() == {group_of(one) for one in told.values() if one.phase == "Pending"} - {""}
    assert {states[key] for one in waiting if (key := group_of(one))} <= {GangState.WAITING, GangState.RUNNING}
    tried = {group_of(one) for one in told.values() if not one.node_name and cluster.waits_from(one.uid) < inf}
    assert not [key for key, state in states.items() if state is GangState.WAITING and key not in tried]


@given(there=pods, minimum=minima)
def test_no_pod_of_a_group_that_kube_scheduler_does_not_try_ever_waits(
    there: dict[str, dict[str, Any]], minimum: dict[str, int]
) -> None:
    """At no moment between the events: a node for a part of a group would be of no use."""
    clock = FakeClock()
    cluster = Cluster(lambda _: TYPES, clock, grace=GRACE)
    cluster.settle()
    cluster.pod_groups_known(KindKnowledge.READ)
    for name, count in minimum.items():
        cluster.pod_group_changed(None, pod_group(name, count))
    now: dict[str, dict[str, Any]] = {}
    for name, said in there.items():
        now[name] = said
        cluster.pod_changed(None, made(name, said))
        clock.advance(60.0)
        assert sorted(one.name for one in cluster.snapshot().waiting) == expected(now, minimum)


def stream(count: int, turn: Callable[[Cluster, int], None], *, minimum: int) -> int:
    """Lines that so many events of a group with as many members take, and one look at who waits after them."""
    cluster = Cluster(lambda _: TYPES, FakeClock(), grace=GRACE)
    cluster.settle()
    cluster.pod_groups_known(KindKnowledge.READ)
    cluster.pod_group_changed(None, pod_group("x", minimum or count))
    for number in range(count):
        cluster.pod_changed(None, pod(f"p{number}", group="x"))
    cluster.snapshot()
    with Lines() as lines:
        for number in range(count):
            turn(cluster, number)
        cluster.snapshot()
    return lines.count


def comes_and_goes(cluster: Cluster, number: int) -> None:
    last = pod("p0", group="x")
    cluster.pod_changed(*((last, None) if number % 2 == 0 else (None, last)))


def gates_and_ungates(cluster: Cluster, number: int) -> None:
    cluster.pod_changed(None, pod("gated", group="x", gated=number % 2 == 0))


def asks_for_more_and_less(cluster: Cluster, number: int) -> None:
    cluster.pod_group_changed(None, pod_group("x", 1 if number % 2 else 100_000))


def is_known_and_not(cluster: Cluster, number: int) -> None:
    cluster.pod_groups_known(KindKnowledge.NOT_SERVED if number % 2 == 0 else KindKnowledge.READ)


def is_told_of_each(cluster: Cluster, number: int) -> None:
    cluster.pod_changed(None, pod(f"p{number}", group="x", priority=number))


STREAMS = {
    "a member comes and goes": (comes_and_goes, 0),
    "a member has gates and has not": (gates_and_ungates, 1),
    "the minimum rises and falls": (asks_for_more_and_less, 1),
    "there are PodGroups and there are not": (is_known_and_not, 0),
    "members differ more and more": (is_told_of_each, 1),
}


@pytest.mark.parametrize(("turn", "minimum"), STREAMS.values(), ids=STREAMS)
def test_events_of_a_group_cost_as_much_as_there_are(turn: Callable[[Cluster, int], None], minimum: int) -> None:
    """Each turns whether the group is tried, and the whole group is looked at once, by whoever asks who waits."""
    assert stream(400, turn, minimum=minimum) <= 2.5 * stream(200, turn, minimum=minimum)


def is_admitted_and_not(cluster: Cluster, number: int) -> None:
    phase = "Inqueue" if number % 2 == 0 else "Pending"
    cluster.pod_group_changed(None, object_of(GroupSource.VOLCANO, "x", 1, phase=phase))


def one_more_object(cluster: Cluster, number: int) -> None:
    cluster.pod_group_changed(None, object_of(GroupSource.VOLCANO, f"of-nobody-{number}", 2**31 - 1))


def one_more_has_succeeded(cluster: Cluster, number: int) -> None:
    cluster.pod_changed(None, grouped(pod(f"p{number}", phase="Succeeded", node="n"), GroupSource.VOLCANO, "x"))


def one_more_group(cluster: Cluster, number: int) -> None:
    cluster.pod_changed(None, grouped(pod("p0"), GroupSource.VOLCANO, f"other-{number}"))


@pytest.mark.parametrize("turn", [is_admitted_and_not, one_more_object, one_more_has_succeeded, one_more_group])
def test_events_of_groups_of_volcano_cost_as_much_as_there_are(turn: Callable[[Cluster, int], None]) -> None:
    def lines_of(count: int) -> int:
        cluster = Cluster(lambda _: TYPES, FakeClock(), grace=GRACE)
        cluster.settle()
        cluster.pod_groups_known(KindKnowledge.READ, GroupSource.VOLCANO)
        cluster.pod_group_changed(None, object_of(GroupSource.VOLCANO, "x", count))
        for number in range(count):
            cluster.pod_changed(None, grouped(pod(f"p{number}"), GroupSource.VOLCANO, "x"))
        cluster.snapshot()
        with Lines() as lines:
            for number in range(count):
                turn(cluster, number)
            cluster.snapshot()
        return lines.count

    assert lines_of(400) <= 2.5 * lines_of(200)


# --- one world, said in every way ---

amounts = st.lists(st.sampled_from(("1", "2", "3")), max_size=4)


@st.composite
def group_worlds(draw: st.DrawFn) -> tuple[dict[str, tuple[int, list[str]]], list[str], int]:
    """Groups with their minima and the CPUs of their pods, CPUs of single pods, and the CPUs that may be launched."""
    groups = {name: (draw(st.integers(1, 4)), draw(amounts)) for name in GROUPS}
    return groups, draw(amounts), draw(st.sampled_from((4, 8, 12, 100)))


def decision(source: GroupSource, world: tuple[dict[str, tuple[int, list[str]]], list[str], int]) -> object:
    """What is launched for whom, and who gets nothing."""
    groups, singles, most = world
    objects = PlanObjects(pods=[pod(f"single-{at}", cpu=cpu) for at, cpu in enumerate(singles)])
    for name, (minimum, cpus) in groups.items():
        objects.pods += [grouped(pod(f"{name}-{at}", cpu=cpu), source, name, minimum) for at, cpu in enumerate(cpus)]
        if (found := object_of(source, name, minimum)) is not None:
            objects.pod_groups.append(found)
    table = chosen("kwok", objects)
    pool = default_pool(table)
    objects.pools.append(msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, limits={"cpu": most})))
    question = question_of(objects, pods_in(objects), objects.pools, table, SystemClock(), anew=False)
    result = plan(question, PlanSettings(improve=False)).result
    launched = sorted((sorted(one.name for one in claim.pods), claim.usd_per_hour) for claim in result.claims)
    left = {one.pod.name for one in result.unplaced} | {one.name for one in objects.pods} - {
        one.name for one in question.pods
    }
    return launched, sorted(left)


@given(world=group_worlds())
def test_the_same_groups_get_the_same_nodes_whatever_says_that_they_are_groups(
    world: tuple[dict[str, tuple[int, list[str]]], list[str], int],
) -> None:
    first, *others = [decision(source, world) for source in GroupSource]
    assert others == [first] * len(others)


member_facts = st.fixed_dictionaries(
    {
        "group": st.sampled_from((*GROUPS, GROUPS[0], "")),
        "gated": st.sampled_from((False, False, False, True)),
        "node_name": st.sampled_from(("", "", "n")),
        "phase": st.sampled_from(("Pending", "Pending", "Pending", "Succeeded")),
        "scheduled_reason": st.sampled_from(("", "Unschedulable", "Schedulable", "Undetermined")),
    }
)
phases = st.dictionaries(
    st.sampled_from(GROUPS), st.tuples(st.integers(-1, 3), st.sampled_from(("Pending", "Inqueue")))
)


def member_of(source: GroupSource, name: str, said: dict[str, Any]) -> Pod:
    given = {key: said[key] for key in ("gated", "phase", "scheduled_reason")}
    one = pod(name, node=said["node_name"], **given, unschedulable=said["scheduled_reason"] == "Unschedulable")
    return grouped(one, source, said["group"]) if said["group"] else one


def expected_members(
    source: GroupSource, there: dict[str, dict[str, Any]], told: dict[str, tuple[int, str]]
) -> list[str]:
    """Likewise of groups of members, by the letter: who waits, all of a group that can be planned with the one that its scheduler left."""

    def of(name: str, phase: str) -> list[dict[str, Any]]:
        return [one for one in there.values() if one["group"] == name and one["phase"] == phase]

    def least(name: str) -> int:
        return told[name][0] - (len(of(name, "Succeeded")) if source is GroupSource.VOLCANO else 0)

    def is_tried(name: str) -> bool:
        if name not in told or (source is GroupSource.VOLCANO and told[name][1] == "Pending"):
            return False
        return sum(not one["gated"] for one in of(name, "Pending")) >= least(name)

    ready = {
        name: one
        for name, one in there.items()
        if one["phase"] == "Pending" and not one["node_name"] and not one["gated"]
        if not one["group"] or is_tried(one["group"])
    }
    prompt = source is not GroupSource.VOLCANO  # kube-scheduler takes its pods at once
    begin = {name for name, one in ready.items() if prompt or not one["group"] or one["scheduled_reason"]}
    whole = {ready[name]["group"] for name in begin if ready[name]["group"] and least(ready[name]["group"]) > 1}
    return sorted(name for name, one in ready.items() if name in begin or one["group"] in whole)


@pytest.mark.parametrize("source", MEMBERS)
@given(
    before=st.dictionaries(st.sampled_from(NAMES), member_facts),
    after=st.dictionaries(st.sampled_from(NAMES), member_facts),
    first=phases,
    second=phases,
    data=st.data(),
)
def test_who_waits_of_groups_of_members_follows_from_what_there_is_in_every_order_of_events(
    source: GroupSource, before: Any, after: Any, first: Any, second: Any, data: st.DataObject
) -> None:
    clock = FakeClock()
    cluster = CheckedCluster(lambda _: TYPES, clock, grace=GRACE)
    cluster.settle()
    told: dict[str, Pod] = {}
    known: dict[str, AnyPodGroup] = {}

    def tell_pod(name: str, said: dict[str, Any] | None) -> None:
        old = told.pop(name, None)
        if said is not None:
            told[name] = member_of(source, name, said)
        cluster.pod_changed(old, told.get(name))

    def tell_group(name: str, said: tuple[int, str] | None) -> None:
        old = known.pop(name, None)
        if said is not None and (found := object_of(source, name, said[0], phase=said[1])) is not None:
            known[name] = found
        cluster.pod_group_changed(old, known.get(name))

    for there, groups in ((before, first), (after, second)):
        events: list[Callable[[], object]] = [
            *(partial(tell_pod, name, there.get(name)) for name in NAMES),
            *(partial(tell_group, name, groups.get(name)) for name in GROUPS),
            partial(cluster.pod_groups_known, data.draw(st.sampled_from(KindKnowledge)), source),
        ]
        for event in data.draw(st.permutations(events)):
            event()
            clock.advance(data.draw(st.sampled_from((0.0, 0.1, 1.0))))
            cluster.snapshot()
    cluster.pod_groups_known(KindKnowledge.READ, source)
    clock.advance(1.0)
    assert sorted(one.name for one in cluster.snapshot().waiting) == expected_members(source, after, second)
