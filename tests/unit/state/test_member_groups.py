"""Which pods of PodGroups of Volcano and of the coscheduling plugin wait for a node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import AnyPodGroup, CoschedulingGroup, VolcanoGroup
from provisioner.apis.gangs import GroupSource, group_of
from provisioner.apis.pods import Pod
from provisioner.kube.resources import GROUP_KINDS
from provisioner.state.checking import CheckedCluster
from provisioner.state.groups import GroupLack
from provisioner.state.knowledge import KindKnowledge
from tests.support.cluster import TYPES, World, pod
from tests.support.podgroups import MEMBERS, grouped, left, object_of
from tests.unit.state.test_groups import GRACE, LATER

VOLCANO, COSCHEDULING = MEMBERS


class Served(World):
    """A world with the PodGroups of all sources."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = CheckedCluster(lambda _: TYPES, self.clock, grace=GRACE)
        self.cluster.settle()
        self.all_are(KindKnowledge.READ)

    def all_are(self, known: KindKnowledge) -> None:
        for source in GROUP_KINDS:
            self.cluster.pod_groups_known(known, source)

    def tell(self, one: AnyPodGroup | None) -> None:
        self.cluster.pod_group_changed(None, one)

    def later(self) -> list[str]:
        self.clock.advance(LATER)
        return [one.name for one in self.cluster.snapshot().waiting]

    def lack(self, source: GroupSource) -> GroupLack | None:
        found = self.cluster.snapshot().groups.get(group_of(member("x", source)))
        return found.lacks if found is not None else None


def member(name: str, source: GroupSource, reason: str = names.UNSCHEDULABLE, **changes: Any) -> Pod:
    one = grouped(pod(name, **changes), source)
    return left(one, reason) if reason and not one.node_name else one


@dataclass(frozen=True)
class Row:
    """What a group of a source lacks, and who waits; pods are made for each source."""

    lacks: GroupLack | None
    waiting: tuple[str, ...]
    pods: Callable[[GroupSource], tuple[Pod, ...]]
    minimum: int = 2


ROWS = {
    "complete": Row(None, ("a", "b"), lambda source: (member("a", source), member("b", source))),
    "of which one is missing": Row(GroupLack.INCOMPLETE, (), lambda source: (member("a", source),)),
    "of which one runs": Row(None, ("b",), lambda source: (member("a", source, node="n"), member("b", source))),
    "of which one runs and one is missing": Row(
        GroupLack.INCOMPLETE, (), lambda source: (member("a", source, node="n"), member("b", source)), minimum=3
    ),
    "of which one that is needed has gates": Row(
        GroupLack.GATED, (), lambda source: (member("a", source), member("b", source, gated=True))
    ),
    "of which one more has gates": Row(
        None,
        ("a", "b"),
        lambda source: (member("a", source), member("b", source), member("c", source, gated=True)),
    ),
    "whose priorities differ": Row(
        None, ("a", "b"), lambda source: (member("a", source), member("b", source, priority=5))
    ),
    "of no pods": Row(None, ("a",), lambda source: (member("a", source),), minimum=0),
    "of less than none": Row(None, ("a",), lambda source: (member("a", source),), minimum=-(2**31)),
    "of more pods than there can be": Row(
        GroupLack.INCOMPLETE, (), lambda source: (member("a", source), member("b", source)), minimum=2**63 - 1
    ),
}


@pytest.mark.parametrize("source", MEMBERS)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_who_waits_of_a_group(row: Row, source: GroupSource) -> None:
    world = Served()
    world.tell(object_of(source, minimum=row.minimum))
    world.add(*row.pods(source))
    assert world.later() == list(row.waiting)
    assert world.lack(source) is row.lacks


@pytest.mark.parametrize("source", MEMBERS)
def test_a_group_without_an_object_waits_for_it(source: GroupSource) -> None:
    world = Served()
    world.add(member("a", source), member("b", source))
    assert (world.later(), world.lack(source)) == ([], GroupLack.UNKNOWN)
    world.tell(object_of(source))
    assert world.later() == ["a", "b"]


PHASES = {"": False, "Pending": False, "Inqueue": True, "Running": True, "Unknown": True, "Completed": True}


@pytest.mark.parametrize(("phase", "tried"), PHASES.items())
@pytest.mark.parametrize("reason", ["Unschedulable", "Undetermined"])
def test_a_group_that_volcano_has_not_admitted_waits_for_no_node(phase: str, tried: bool, reason: str) -> None:
    """Whatever Volcano says of its pods."""
    world = Served()
    world.tell(object_of(VOLCANO, phase=phase))
    world.add(*(member(name, VOLCANO, reason) for name in "ab"))
    assert world.later() == (["a", "b"] if tried else [])
    assert world.lack(VOLCANO) is (None if tried else GroupLack.QUEUED)


def test_an_admitted_group_waits_and_one_that_goes_back_into_its_queue_does_not() -> None:
    world = Served()
    pending, admitted = (object_of(VOLCANO, phase=phase) for phase in ("Pending", "Inqueue"))
    world.tell(pending)
    world.add(*(member(name, VOLCANO) for name in "ab"))
    assert world.later() == []
    world.cluster.pod_group_changed(pending, admitted)
    assert world.later() == ["a", "b"]
    world.cluster.pod_group_changed(admitted, pending)
    assert world.later() == []


def test_volcano_counts_pods_that_have_succeeded_and_the_coscheduling_plugin_does_not() -> None:
    for source, waiting in ((VOLCANO, ["b"]), (COSCHEDULING, [])):
        world = Served()
        world.tell(object_of(source))
        done = member("a", source, phase="Succeeded", reason="", node="n")
        world.add(done, member("b", source))
        assert world.later() == waiting
        world.cluster.pod_changed(done, None)
        assert world.later() == []


@pytest.mark.parametrize("reason", ["Schedulable", "Undetermined"])
@pytest.mark.parametrize("source", MEMBERS)
def test_a_pod_that_was_left_because_of_its_group_counts_as_unschedulable(source: GroupSource, reason: str) -> None:
    """And the others of the group with it, of which nothing is said yet."""
    world = Served()
    world.tell(object_of(source))
    silent, judged = member("a", source, ""), member("b", source, reason)
    world.add(silent, judged)
    assert [one.name for one in world.cluster.snapshot().waiting] == ["a", "b"]
    world.cluster.pod_changed(judged, member("b", source, ""))
    assert [one.name for one in world.cluster.snapshot().waiting] == []


@pytest.mark.parametrize("reason", ["Schedulable", "Undetermined"])
@pytest.mark.parametrize("known", [KindKnowledge.UNREADABLE, KindKnowledge.NOT_SERVED, KindKnowledge.NOT_YET])
def test_these_reasons_count_only_while_the_group_is_known(known: KindKnowledge, reason: str) -> None:
    """They are also said of pods whose queue has no room."""
    world = Served()
    world.tell(object_of(VOLCANO))
    world.add(*(member(name, VOLCANO, reason) for name in "ab"))
    world.all_are(known)
    assert world.later() == []


@pytest.mark.parametrize("reason", ["Schedulable", "Undetermined"])
def test_of_a_single_pod_of_another_scheduler_they_do_not_count(reason: str) -> None:
    world = Served()
    alone = msgspec.structs.replace(member("a", VOLCANO, reason), annotations={})
    world.add(alone)
    assert world.later() == []


KNOWN = {
    KindKnowledge.NOT_YET: ([], GroupLack.UNREAD),
    KindKnowledge.UNREADABLE: (["a"], GroupLack.UNREAD),
    KindKnowledge.READ: ([], GroupLack.INCOMPLETE),
    KindKnowledge.NOT_SERVED: (["a"], None),
}


@pytest.mark.parametrize("known", KindKnowledge)
@pytest.mark.parametrize("source", MEMBERS)
def test_where_groups_cannot_be_read_a_pod_that_was_refused_waits_by_itself(
    source: GroupSource, known: KindKnowledge
) -> None:
    world = Served()
    world.tell(object_of(source, minimum=3))
    world.add(member("a", source))
    world.cluster.pod_groups_known(known, source)
    waiting, lacks = KNOWN[known]
    assert (world.later(), world.lack(source)) == (waiting, lacks)


@pytest.mark.parametrize("source", GROUP_KINDS)
def test_what_is_known_of_one_source_says_nothing_of_another(source: GroupSource) -> None:
    world = Served()
    for other in GROUP_KINDS:
        world.tell(object_of(other, f"of-{other.name.lower()}"))
        world.add(*(left(grouped(pod(f"{other.name}-{n}"), other, f"of-{other.name.lower()}"), "") for n in "ab"))
    world.cluster.pod_groups_known(KindKnowledge.UNREADABLE, source)
    world.later()
    unread = {group.key for group in world.cluster.snapshot().groups.values() if group.lacks is GroupLack.UNREAD}
    names_of = f"of-{source.name.lower()}"
    assert [key.rpartition("/")[2] for key in unread] == [names_of]
    assert not any(names_of in key for key in world.cluster.snapshot().minima)
    assert len(world.cluster.snapshot().minima) == 2


def test_an_object_that_cannot_be_read_is_as_one_that_is_not_there() -> None:
    """As the watch leaves it out, and tells of it."""
    for text in (
        b'{"metadata":{"name":"x"},"spec":{"minMember":1e30}}',
        b'{"metadata":{"name":"x"},"spec":{"minMember":"2"}}',
    ):
        for source in MEMBERS:
            with pytest.raises(msgspec.ValidationError):
                GROUP_KINDS[source].decode(text)


def test_nothing_is_kept_of_groups_whose_pods_and_objects_are_gone() -> None:
    world = Served()
    for number in range(50):
        for source in MEMBERS:
            one = grouped(pod(f"p{number}"), source, f"g{number}")
            done = msgspec.structs.replace(one, uid="done", phase="Succeeded")
            told = object_of(source, f"g{number}")
            world.cluster.pod_group_changed(None, told)
            world.add(one, done)
            for each in (one, done):
                world.cluster.pod_changed(each, None)
            world.cluster.pod_group_changed(told, None)
    groups = world.cluster._pending.groups
    kept = (groups._objects, groups._tallies, groups._held, groups._tried, groups._succeeded_of, groups._minima)
    assert (kept, dict(groups._succeeded), groups.turned) == (({},) * 6, {}, set())


def test_what_is_decoded_of_them() -> None:
    body = b'{"metadata":{"name":"g","namespace":"ns"},"spec":{"minMember":4,"queue":"q"},"status":{"phase":"Pending"}}'
    volcano, coscheduling = (GROUP_KINDS[source].decode(body) for source in MEMBERS)
    assert isinstance(volcano, VolcanoGroup)
    assert isinstance(coscheduling, CoschedulingGroup)
    assert (volcano.minimum, volcano.queued, coscheduling.minimum) == (4, True, 4)
    empty = GROUP_KINDS[VOLCANO].decode(b'{"metadata":{"name":"g"}}')
    assert (empty.minimum, empty.queued) == (1, True)
