"""What a history comes to as a day, and what is inferred."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import PodSpec
from provisioner.apis.shapes import PodShape, shape_of
from provisioner.history.entries import (
    ClassSeen,
    Gap,
    HistoryEntry,
    HistoryPodClass,
    PodEnd,
    PodsArrived,
    PodsEnded,
    PodsStanding,
    PoolSeen,
)
from provisioner.history.pod_classes import class_of
from provisioner.history.segments import Segment, SegmentHead, SegmentWriter, read_segment
from provisioner.simulator.workload import Apply, Arrival, Scale
from provisioner.simulator.workloads.errors import WorkloadError
from provisioner.simulator.workloads.records import RecordedDay, day_of_segments
from tests.support.cluster import pod
from tests.support.histories import RecordedCluster
from tests.support.problems import apart, app, shape, spread, term, uses
from tests.support.problems import pod as waiting

BEGAN = 1_000_000.0


def seen(number: int = 1, kind: str = "ReplicaSet", **more: Any) -> ClassSeen:
    """A class of pods of one CPU."""
    own = {"requests": {"cpu": 1000, "pods": 1}, "constraints": {}, **more}
    return ClassSeen(number, HistoryPodClass(f"key-{number}", "default", kind, 0, **own))


def segment(*entries: tuple[float, HistoryEntry], opening: Sequence[HistoryEntry] = (), **head: Any) -> Segment:
    """An hour from `BEGAN` on, unless `head` says otherwise; times are seconds from its beginning."""
    whole = {"id": "s", "source": "record", "began": BEGAN, "ended": 0.0, "entries": 0, **head}
    writer = SegmentWriter(SegmentHead(**whole), [*opening])
    for at, one in entries:
        writer.add(whole["began"] + at, [one])
    writer.add(whole["began"] + 3600.0, [])
    return read_segment(writer.to_bytes())


def day(*entries: tuple[float, HistoryEntry], opening: Sequence[HistoryEntry] = ()) -> RecordedDay:
    return day_of_segments([segment(*entries, opening=opening)])


def counts(found: RecordedDay) -> list[tuple[float, int]]:
    return [(one.at, one.count) for one in found.day.changes if isinstance(one, Arrival | Scale)]


MANY = {
    "_MOST_CLASSES": "more than 2 classes of pods",
    "_MOST_POOLS": "NodePools change more than 2 times",
    "_MOST_RECKONED": "too many gaps and classes",
}


@pytest.mark.parametrize(("bound", "said"), MANY.items(), ids=MANY)
def test_a_record_that_would_take_long_is_refused(bound: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pools = [(600.0, PoolSeen("general", {"weight": number})) for number in range(3)]
    gaps = [segment(opening=[seen(number)], id=f"s{number}", began=BEGAN + 3600 * number) for number in range(3)]
    segments = [segment(*pools), *gaps]
    day_of_segments(segments)
    monkeypatch.setattr(f"provisioner.simulator.workloads.records.{bound}", 2)
    with pytest.raises(WorkloadError, match=said):
        day_of_segments(segments)


def test_pods_of_a_class_are_a_deployment_that_is_scaled() -> None:
    ends = PodsEnded(1, 1, PodEnd.DELETED, (9, 9))
    found = day((600, PodsArrived(1, 4)), (1200, ends), opening=[seen(), PodsStanding(1, 1, 2), PodsStanding(1, 0, 1)])
    assert counts(found) == [(0, 3), (600, 7), (1200, 5)]
    assert {one.kind for one in found.day.changes if isinstance(one, Arrival)} == {"Deployment"}
    assert (found.day.duration_seconds, found.began, found.problems) == (3600, BEGAN, ())


@pytest.mark.parametrize(("after", "scales"), [(5, 0), (59, 0), (61, 2)])
def test_a_pod_that_comes_soon_after_one_was_deleted_replaces_it(after: float, scales: int) -> None:
    """A drain of the recorded cluster is no change of the workload."""
    ends = PodsEnded(1, 1, PodEnd.DELETED, (9, 9))
    found = day((600, ends), (600 + after, PodsArrived(1, 2)), opening=[seen(), PodsStanding(1, 1, 3)])
    assert len(counts(found)) == 1 + scales


def test_pods_of_jobs_that_came_together_are_a_job_with_the_lifetimes_that_are_told() -> None:
    entries = [
        (10.0, PodsArrived(1, 3)),
        (200.0, PodsEnded(1, 1, PodEnd.SUCCEEDED, (60, 120))),
        (400.0, PodsArrived(1, 1)),
        (900.0, PodsEnded(1, 1, PodEnd.FAILED, (300,))),
    ]
    found = day(*entries, opening=[seen(kind="Job")])
    jobs = [one for one in found.day.changes if isinstance(one, Arrival)]
    assert [(one.at, one.kind, one.count, one.lifetimes) for one in jobs] == [
        (10, "Job", 3, (60, 120, 300)),
        (400, "Job", 1, None),
    ]


def test_a_job_that_ran_before_has_the_rest_of_its_life() -> None:
    found = day((100, PodsEnded(1, 1, PodEnd.SUCCEEDED, (5000,))), opening=[seen(kind=""), PodsStanding(1, 1, 1)])
    (one,) = found.day.changes
    assert isinstance(one, Arrival)
    assert (one.at, one.kind, one.lifetimes) == (0, "Pod", (100,))


def test_an_evicted_pod_of_a_job_is_one_with_its_successor() -> None:
    entries = [
        (10.0, PodsArrived(1, 1)),
        (100.0, PodsEnded(1, 1, PodEnd.DELETED, (80,))),
        (102.0, PodsArrived(1, 1)),
        (900.0, PodsEnded(1, 2, PodEnd.SUCCEEDED, (700,))),
    ]
    (one,) = day(*entries, opening=[seen(kind="Job")]).day.changes
    assert isinstance(one, Arrival)
    assert (one.at, one.count, one.lifetimes) == (10, 1, (700,))


def test_daemons_are_daemon_sets_and_mirror_pods_are_left_out() -> None:
    found = day(opening=[seen(1, "DaemonSet"), seen(2, "Node"), PodsStanding(1, 1, 9), PodsStanding(2, 1, 9)])
    (one,) = found.day.changes
    assert isinstance(one, Apply)
    assert (one.object["kind"], one.at) == ("DaemonSet", 0)


def test_a_segment_that_follows_says_nothing_twice_and_has_numbers_of_its_own() -> None:
    first = segment(opening=[seen(1), PodsStanding(1, 1, 2)], id="first")
    again = [ClassSeen(7, seen(1).pod_class), PodsStanding(7, 1, 2)]
    second = segment((60, PodsArrived(7, 1)), opening=again, id="second", follows="first", began=BEGAN + 3600)
    assert counts(day_of_segments([first, second])) == [(0, 2), (3660, 3)]


def test_a_pod_is_replaced_over_the_end_of_a_segment() -> None:
    ends = PodsEnded(1, 1, PodEnd.DELETED, (9,))
    first = segment((3590, ends), opening=[seen(1), PodsStanding(1, 1, 2)], id="first")
    again = [seen(1), PodsStanding(1, 1, 1)]
    second = segment((5, PodsArrived(1, 1)), opening=again, id="second", follows="first", began=BEGAN + 3600)
    assert counts(day_of_segments([first, second])) == [(0, 2)]


def test_a_number_of_another_segment_means_nothing() -> None:
    first = segment(opening=[seen(1), PodsStanding(1, 1, 2)], id="first")
    second = segment((60, PodsArrived(1, 5)), id="second", follows="first", began=BEGAN + 3600)
    assert counts(day_of_segments([first, second])) == [(0, 2)]


def test_what_a_gap_has_hidden_comes_and_goes_at_its_end() -> None:
    first = segment(opening=[seen(1), seen(2), PodsStanding(1, 1, 2), PodsStanding(2, 1, 5)], id="first")
    later = segment(opening=[seen(1), seen(2), PodsStanding(1, 1, 6), PodsStanding(2, 1, 1)], began=BEGAN + 9000)
    assert sorted(counts(day_of_segments([first, later]))) == [(0, 2), (0, 5), (9000, 1), (9000, 6)]


def test_changes_that_were_dropped_are_told() -> None:
    assert "dropped" in day((5, Gap(3)), opening=[seen()]).problems[0]


def test_node_pools_stand_beside_the_day() -> None:
    found = day((60, PoolSeen("general", {"weight": 5})), opening=[PoolSeen("general", {"weight": 1})])
    assert [(one.at, one.object["kind"], one.object["spec"]) for one in found.pools] == [
        (0, "NodePool", {"weight": 1}),
        (60, "NodePool", {"weight": 5}),
    ]
    assert found.day.changes == ()


SHAPES = {
    "plain": shape("250m", "300Mi", labels={"app": "a"}),
    "tied": shape(
        labels={"app": "a"},
        affinity=apart(names.HOSTNAME_LABEL, app("a")),
        topology_spread_constraints=(spread(names.ZONE_LABEL, app("a")),),
        priority=7,
    ),
    "choosy": shape(selector={"team": "x"}, terms=[term(("zone", "In", ["a", "b"]))], more={"nvidia.com/gpu": "1"}),
}


@pytest.mark.parametrize("of", SHAPES.values(), ids=SHAPES)
def test_a_template_makes_pods_of_the_same_class(of: PodShape) -> None:
    entry = ClassSeen(1, class_of(waiting("p", of)))
    (one,) = day(opening=[entry, PodsStanding(1, 1, 1)]).day.changes
    assert isinstance(one, Arrival)
    spec = msgspec.convert(one.template["spec"], PodSpec)
    again = shape_of(spec, namespace="default", labels=one.template["metadata"]["labels"])
    fields = ("requests", "node_selector", "affinity", "tolerations", "spread", "priority", "labels")
    assert [getattr(again, name) for name in fields] == [getattr(of, name) for name in fields]


def test_volumes_are_left_out_and_told() -> None:
    of = shape(volumes=uses("data"))
    entry = ClassSeen(1, class_of(waiting("p", of)))
    found = day(opening=[entry, PodsStanding(1, 1, 1)])
    assert (len(found.day.changes), found.problems) == (1, ("volumes of pods are left out",))


def test_protection_and_grace_are_kept() -> None:
    (one,) = day(opening=[seen(do_not_disrupt="true", grace_seconds=90), PodsStanding(1, 1, 1)]).day.changes
    assert isinstance(one, Arrival)
    assert one.template["metadata"]["annotations"] == {names.DO_NOT_DISRUPT: "true"}
    assert one.template["spec"]["terminationGracePeriodSeconds"] == 90


def test_a_class_of_a_later_version_is_left_out_and_told() -> None:
    found = day(opening=[seen(constraints={"affinity": 3}), PodsStanding(1, 1, 1)])
    assert (found.day.changes, len(found.problems)) == ((), 1)


def test_what_a_keeper_has_written_is_read() -> None:
    cluster = RecordedCluster()
    cluster.put_pod(pod("web-1", uid="1", shape=SHAPES["plain"], created=cluster.clock.now()))
    cluster.clock.advance(600)
    cluster.keeper.flush()
    cluster.put_pod(pod("web-2", uid="2", shape=SHAPES["plain"], created=cluster.clock.now()))
    cluster.clock.advance(600)
    cluster.keeper.flush()
    found = day_of_segments([read_segment(one) for one in cluster.segments()])
    assert [count for _, count in counts(found)] == [1, 2]
    assert {one.kind for one in found.day.changes if isinstance(one, Arrival)} == {"Deployment"}


@pytest.mark.parametrize("segments", [[], [segment(began=BEGAN), segment(began=BEGAN + 40 * 86_400)]])
def test_a_record_of_nothing_or_too_much_is_refused(segments: list[Segment]) -> None:
    with pytest.raises(WorkloadError, match=r"segment"):
        day_of_segments(segments)
