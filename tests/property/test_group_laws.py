"""Laws of PodGroups in the state: who waits depends on what there is, not on the order in which it was told."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import PodGroup
from provisioner.apis.pods import Pod
from provisioner.state.cluster import Cluster
from provisioner.state.groups import GroupKnowledge
from tests.support.clock import FakeClock
from tests.support.cluster import TYPES, pod
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


def object_of(name: str, minimum: int) -> PodGroup:
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}, "priority": 0}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, PodGroup)


def expected(there: dict[str, dict[str, Any]], minimum: dict[str, int]) -> list[str]:
    """Who waits in the end, by the letter of the rule: all pods are looked at, nothing is counted."""

    def is_tried(name: str) -> bool:
        mine = [one for one in there.values() if one["group"] == name and one["phase"] == "Pending"]
        if name in GANGS:
            return sum(not one["gated"] for one in mine) >= GANGS[name] or any(one["node_name"] for one in mine)
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
    cluster.pod_groups_known(GroupKnowledge.READ)
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
            known[name] = object_of(name, count)
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
    assert sorted(one.name for one in cluster.snapshot().waiting) == expected(after, minimum)


@given(there=pods, minimum=minima)
def test_no_pod_of_a_group_that_kube_scheduler_does_not_try_ever_waits(
    there: dict[str, dict[str, Any]], minimum: dict[str, int]
) -> None:
    """At no moment between the events: a node for a part of a group would be of no use."""
    clock = FakeClock()
    cluster = Cluster(lambda _: TYPES, clock, grace=GRACE)
    cluster.settle()
    cluster.pod_groups_known(GroupKnowledge.READ)
    for name, count in minimum.items():
        cluster.pod_group_changed(None, object_of(name, count))
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
    cluster.pod_groups_known(GroupKnowledge.READ)
    cluster.pod_group_changed(None, object_of("x", minimum or count))
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
    cluster.pod_group_changed(None, object_of("x", 1 if number % 2 else 100_000))


def is_known_and_not(cluster: Cluster, number: int) -> None:
    cluster.pod_groups_known(GroupKnowledge.NOT_SERVED if number % 2 == 0 else GroupKnowledge.READ)


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
