"""Which pods wait for their PodGroup, and not for a node."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis.core import PodGroup
from provisioner.apis.pods import Pod
from provisioner.state.checking import CheckedCluster
from provisioner.state.groups import Group, GroupLack
from provisioner.state.knowledge import KindKnowledge
from tests.support.clock import NOON
from tests.support.cluster import TYPES, World, bound, pod, refused
from tests.support.problems import shape

GRACE = timedelta(milliseconds=300)
LATER = 60.0


def group(name: str = "train", *, minimum: int | None = 2, priority: int | None = 0) -> PodGroup:
    policy: dict[str, Any] = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulingPolicy": policy, "priority": priority},
    }
    return msgspec.convert(body, PodGroup)


def test_which_groups_are_disrupted_all_at_once() -> None:
    """Known as soon as PodGroups are read, and no longer when they cannot be."""
    at = Grouped()
    wholes = {
        mode: msgspec.convert(
            {"metadata": {"name": mode, "namespace": "default"}, "spec": {"disruptionMode": {mode: {}}}}, PodGroup
        )
        for mode in ("all", "single")
    }
    for one in (*wholes.values(), group()):
        at.cluster.pod_group_changed(None, one)
    found = at.cluster.snapshot().together
    assert found == {"default/all"}
    at.cluster.pod_group_changed(group(), group(minimum=3))
    assert at.cluster.snapshot().together is found
    notes = {"dovetail.dev/gang-consolidation": "allow", "example.com/other": "x" * 100}
    for mode, allowed in (("single", frozenset()), ("all", {"default/all"})):
        body = {
            "metadata": {"name": mode, "namespace": "default", "annotations": notes},
            "spec": {"disruptionMode": {mode: {}}},
        }
        at.cluster.pod_group_changed(wholes[mode], msgspec.convert(body, PodGroup))
        assert at.cluster.snapshot().consolidated == allowed
    at.cluster.pod_groups_known(KindKnowledge.UNREADABLE)
    assert not at.cluster.snapshot().together
    assert not at.cluster.snapshot().consolidated
    at.cluster.pod_groups_known(KindKnowledge.READ)
    assert at.cluster.snapshot().together == found
    at.cluster.pod_group_changed(wholes["all"], None)
    assert not at.cluster.snapshot().together


def test_which_groups_must_run_in_one_domain() -> None:
    """Known as soon as PodGroups are read, and no longer when they cannot be; also of one that needs one pod."""
    at = Grouped()
    spec = {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}
    racks = msgspec.convert({"metadata": {"name": "racks", "namespace": "default"}, "spec": spec}, PodGroup)
    for one in (racks, group()):
        at.cluster.pod_group_changed(None, one)
    found = at.cluster.snapshot().topology
    assert found == {"default/racks": "example.com/rack"}
    at.cluster.pod_group_changed(group(), group(minimum=3))
    assert at.cluster.snapshot().topology is found
    at.cluster.pod_groups_known(KindKnowledge.UNREADABLE)
    assert not at.cluster.snapshot().topology
    at.cluster.pod_groups_known(KindKnowledge.READ)
    assert at.cluster.snapshot().topology == found
    at.cluster.pod_group_changed(racks, None)
    assert not at.cluster.snapshot().topology


def member(name: str, **changes: Any) -> Pod:
    return pod(name, group="train", **changes)


class Grouped(World):
    """A world in which kube-scheduler is given a while, and has PodGroups."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = CheckedCluster(lambda _: TYPES, self.clock, grace=GRACE)
        self.cluster.settle()
        self.cluster.pod_groups_known(KindKnowledge.READ)

    def waiting(self) -> list[str]:
        return [one.name for one in self.cluster.snapshot().waiting]

    def later(self) -> list[str]:
        """Who waits in a minute."""
        self.clock.advance(LATER)
        return self.waiting()


@dataclass(frozen=True)
class Row:
    """A group, its pods, and what it lacks."""

    lacks: GroupLack | None
    pods: tuple[Pod, ...]
    objects: tuple[PodGroup, ...] = (group(),)
    waiting: tuple[str, ...] = field(default=())


BOTH = (member("a"), member("b"))
ROWS = {
    "a complete group": Row(None, BOTH, waiting=("a", "b")),
    "a group that is larger than it must be": Row(None, (*BOTH, member("c")), waiting=("a", "b", "c")),
    "no PodGroup of that name": Row(GroupLack.UNKNOWN, BOTH, (group("other"),)),
    "a member is missing": Row(GroupLack.INCOMPLETE, (member("a"),)),
    "a member that is bound is there": Row(None, (member("a"), member("b", node="n")), waiting=("a",)),
    "a member that terminates is there": Row(None, (member("a"), member("b", deleted=NOON)), waiting=("a",)),
    "a member that has finished is not": Row(GroupLack.INCOMPLETE, (member("a"), member("b", phase="Succeeded"))),
    "a member of another namespace is not": Row(
        GroupLack.INCOMPLETE, (member("a"), msgspec.structs.replace(member("b"), namespace="other"))
    ),
    "a single pod is no member": Row(GroupLack.INCOMPLETE, (member("a"), pod("b")), waiting=("b",)),
    "a member has gates": Row(GroupLack.GATED, (*BOTH, member("c", gated=True))),
    "a basic group of one": Row(None, (member("a"),), (group(minimum=None),), ("a",)),
    "a basic group with a gated member": Row(
        GroupLack.GATED, (member("a"), member("b", gated=True)), (group(minimum=None),)
    ),
    "priorities differ": Row(GroupLack.CONTRADICTION, (member("a"), member("b", priority=5))),
    "one that is bound differs": Row(GroupLack.CONTRADICTION, (*BOTH, member("c", node="n", priority=5))),
    "the priority of the group is another": Row(GroupLack.CONTRADICTION, BOTH, (group(priority=7),)),
    "a group whose priority is not resolved": Row(None, BOTH, (group(priority=None),), ("a", "b")),
    "schedulers differ": Row(
        GroupLack.CONTRADICTION, (member("a"), member("b", shape=shape(cpu="1", scheduler_name="dovetail-scheduler")))
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_members_wait_for_a_node_once_their_group_is_complete(row: Row) -> None:
    world = Grouped()
    for one in row.objects:
        world.cluster.pod_group_changed(None, one)
    world.add(*row.pods)
    assert world.later() == sorted(row.waiting)
    found = world.cluster.snapshot().groups.get("default/train")
    assert (found.lacks if found is not None else None) == row.lacks


@pytest.mark.parametrize("row", [one for one in ROWS.values() if one.lacks], ids=lambda one: one.lacks.name)
def test_whatever_is_said_of_a_member_it_waits_for_its_group(row: Row) -> None:
    world = Grouped()
    for one in row.objects:
        world.cluster.pod_group_changed(None, one)
    world.add(*(refused(one, "no") if one.group else one for one in row.pods))
    world.cluster.reported([one.uid for one in row.pods if one.group])
    assert world.later() == sorted(row.waiting)
    assert all(world.cluster.waits_from(one.uid) == float("inf") for one in row.pods if one.group)


COMPLETIONS = {
    "the PodGroup": ((), BOTH, lambda world: world.cluster.pod_group_changed(None, group())),
    "the last member": ((group(),), BOTH[:1], lambda world: world.add(BOTH[1])),
    "a smaller minimum": (
        (group(minimum=3),),
        BOTH,
        lambda world: world.cluster.pod_group_changed(group(minimum=3), group()),
    ),
    "a gate that is removed": ((group(),), (BOTH[0], member("b", gated=True)), lambda world: world.add(BOTH[1])),
    "a member that is gone": (
        (group(),),
        (*BOTH, member("c", priority=5)),
        lambda world: world.cluster.pod_changed(member("c", priority=5), None),
    ),
    "an API server without PodGroups": (
        (),
        BOTH,
        lambda world: world.cluster.pod_groups_known(KindKnowledge.NOT_SERVED),
    ),
}


@pytest.mark.parametrize("row", COMPLETIONS.values(), ids=COMPLETIONS)
def test_the_grace_period_begins_when_the_group_is_complete(row: Any) -> None:
    objects, pods, complete = row
    world = Grouped()
    for one in objects:
        world.cluster.pod_group_changed(None, one)
    world.add(*pods)
    assert world.later() == []
    complete(world)
    assert (world.waiting(), world.cluster.snapshot().early) == ([], True)
    world.clock.advance(0.3)
    assert world.waiting() == ["a", "b"]
    assert world.cluster.snapshot().groups == {}


def test_a_group_that_lost_a_member_waits_for_the_next_one_with_a_grace_period_of_its_own() -> None:
    world = Grouped()
    world.cluster.pod_group_changed(None, group())
    world.add(*BOTH)
    assert world.later() == ["a", "b"]
    world.cluster.pod_changed(BOTH[1], None)
    assert world.later() == []
    world.add(member("c"))
    assert world.waiting() == []
    world.clock.advance(0.3)
    assert world.waiting() == ["a", "c"]


@dataclass(frozen=True)
class Knowledge:
    """Who waits for a node, by what is known of PodGroups: of the members that kube-scheduler has refused, of the others."""

    refused: bool
    others: bool
    lacks: GroupLack | None = GroupLack.UNREAD


KNOWLEDGE = {
    KindKnowledge.NOT_YET: Knowledge(False, False),
    KindKnowledge.UNREADABLE: Knowledge(True, False),
    KindKnowledge.READ: Knowledge(False, False, GroupLack.INCOMPLETE),
    KindKnowledge.NOT_SERVED: Knowledge(True, True, None),
}


@pytest.mark.parametrize("before", KindKnowledge)
@pytest.mark.parametrize("known", KindKnowledge)
def test_where_groups_cannot_be_read_only_the_verdict_of_kube_scheduler_counts(
    before: KindKnowledge, known: KindKnowledge
) -> None:
    """In every order, and for groups that are complete or not: nobody knows that."""
    world = Grouped()
    world.cluster.pod_groups_known(before)
    world.cluster.pod_group_changed(None, group(minimum=3))
    world.add(refused(member("a"), "no"), member("b"), pod("single"))
    world.cluster.reported(["b"] if known is KindKnowledge.UNREADABLE else [])
    world.later()
    world.cluster.pod_groups_known(known)
    want = KNOWLEDGE[known]
    assert world.later() == [*["a"] * want.refused, *["b"] * want.others, "single"]
    found = world.cluster.snapshot().groups.get("default/train")
    assert (found.lacks if found is not None else None) is want.lacks


def test_a_member_that_is_refused_while_groups_cannot_be_read_waits_at_once() -> None:
    world = Grouped()
    world.cluster.pod_groups_known(KindKnowledge.UNREADABLE)
    world.add(*BOTH)
    assert world.later() == []
    world.add(refused(BOTH[0], "no"))
    assert world.waiting() == ["a"]
    world.cluster.pod_groups_known(KindKnowledge.READ)
    assert world.later() == []


def test_a_pod_that_joins_a_group_which_is_complete_by_it_waits_after_the_grace_period() -> None:
    world, single = Grouped(), pod("a")
    world.cluster.pod_group_changed(None, group(minimum=1))
    world.add(single)
    assert world.later() == ["a"]
    world.cluster.pod_changed(single, msgspec.structs.replace(single, group="train"))
    assert world.later() == ["a"]


def test_nothing_is_kept_of_groups_whose_pods_are_gone() -> None:
    world = Grouped()
    for number in range(100):
        one = msgspec.structs.replace(member(f"p{number}"), group=f"g{number}")
        world.add(one)
        world.cluster.pod_changed(one, None)
    groups = world.cluster._pending.groups
    assert (groups._tallies, groups._held, groups._tried, groups.turned) == ({}, {}, {}, set())


def test_a_group_says_how_many_of_it_are_there() -> None:
    world = Grouped()
    world.cluster.pod_group_changed(None, group(minimum=4))
    world.add(member("a"), bound(member("b"), "n"))
    want = Group("default/train", minimum=4, members=2, scheduled=1)
    assert world.cluster.snapshot().groups == {"default/train": want}
