"""What holds of a history, whatever happens: it is within bounds, it says what happened, and what is damaged is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.history.entries import (
    ClassSeen,
    Gap,
    HistoryEntry,
    NodeSeen,
    PodsArrived,
    PodsBound,
    PodsEnded,
    PodsStanding,
)
from provisioner.history.keeper import HistoryBounds
from provisioner.history.segments import SegmentError, SegmentHead, SegmentWriter, read_segment
from tests.support.histories import STEPS, RecordedCluster, Step, entries_of, replayed


def names_of(data: bytes) -> dict[tuple[int, int], tuple[str, str]]:
    """Of numbers of classes and nodes, what they stand for in one segment."""
    seen = [one for _, one in entries_of([data])]
    classes = {one.number: one.pod_class.key for one in seen if isinstance(one, ClassSeen)}
    nodes = {one.number: one.name for one in seen if isinstance(one, NodeSeen)} | {0: ""}
    return {(kind, place): (classes[kind], nodes.get(place, "?")) for kind in classes for place in (*nodes, *range(9))}


@given(STEPS)
def test_each_segment_alone_ends_with_the_pods_that_are_there(steps: list[Step]) -> None:
    cluster = RecordedCluster(HistoryBounds(960.0, 1 << 20))  # a segment ends after a minute
    cluster.keeper.flush()
    for step in steps:
        cluster.step(*step)
    cluster.keeper.flush()
    last = cluster.segments()[-1]
    told = names_of(last)
    found: dict[tuple[str, str], int] = {}
    for key, count in replayed(last).items():
        kind, place = told.get(key, ("?", "?"))
        found[kind, place] = found.get((kind, place), 0) + count
    wanted: dict[tuple[str, str], int] = {}
    for (kind, place), count in cluster.standing().items():
        # a Node that nobody has shown, or that is gone from under its pods, has no name in this segment
        named = place if not place or place in {name for _, name in told.values()} else "?"
        wanted[kind, named] = wanted.get((kind, named), 0) + count
    assert found == wanted


@given(STEPS)
def test_no_entry_counts_below_nothing_and_each_number_is_introduced_first(steps: list[Step]) -> None:
    cluster = RecordedCluster(HistoryBounds(960.0, 1 << 20))
    cluster.keeper.flush()
    for step in steps:
        cluster.step(*step)
    cluster.keeper.flush()
    for data in cluster.segments():
        classes: set[int] = set()
        before = 0.0
        for at, one in entries_of([data]):
            assert at >= before
            before = at
            if isinstance(one, ClassSeen):
                classes.add(one.number)
            elif isinstance(one, PodsStanding | PodsArrived | PodsBound | PodsEnded):
                assert one.pod_class in classes
        assert all(count > 0 for count in replayed(data).values())


@given(steps=STEPS, most=st.sampled_from((1 << 14, 1 << 16, 1 << 20)), seconds=st.sampled_from((60.0, 600.0, 86400.0)))
def test_a_history_stays_within_its_bounds(steps: list[Step], most: int, seconds: float) -> None:
    cluster = RecordedCluster(HistoryBounds(seconds, most))
    for step in steps:
        cluster.step(*step)
        cluster.keeper.flush()
        assert sum(map(len, cluster.segments())) <= most
        kept = [read_segment(one).head for one in cluster.store.segments()]
        now = cluster.clock.now().timestamp()
        assert all(head.ended >= now - seconds for head in kept)
        assert cluster.keeper.since == (kept[0].began if kept else read_segment(cluster.segments()[-1]).head.began)


@given(STEPS)
def test_what_is_read_is_what_was_written(steps: list[Step]) -> None:
    told: list[HistoryEntry] = []
    cluster = RecordedCluster(wrote=lambda _, entries: told.extend(entries))
    cluster.keeper.flush()
    for step in steps:
        cluster.step(*step)
    cluster.keeper.flush()
    assert len(cluster.segments()) > 1 or told == [one for _, one in entries_of(cluster.segments())]
    segment = read_segment(cluster.keeper.open_segment())
    assert segment.head.entries == len(segment.opening) + len(list(segment))
    again = SegmentWriter(SegmentHead("again", "leader", segment.head.began, segment.head.began, 0), segment.opening)
    for at, one in segment:
        again.add(at, [one])
    copied = read_segment(again.to_bytes())
    assert (copied.opening, list(copied)) == (segment.opening, list(segment))


@given(steps=STEPS, cut=st.integers(0, 1 << 16), bit=st.integers(0, 1 << 19))
def test_a_damaged_segment_is_refused(steps: list[Step], cut: int, bit: int) -> None:
    cluster = RecordedCluster()
    cluster.keeper.flush()
    for step in steps:
        cluster.step(*step)
    cluster.keeper.flush()
    whole = cluster.keeper.open_segment()
    with pytest.raises(SegmentError):
        read_segment(whole[: cut % len(whole)])
    changed = bytearray(whole)
    changed[bit // 8 % len(whole)] ^= 1 << bit % 8
    with pytest.raises(SegmentError):
        read_segment(bytes(changed))


@given(st.binary(max_size=400))
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(SegmentError):
        read_segment(b"DOVEHIS1" + data)


@given(steps=STEPS, most=st.integers(0, 5))
def test_a_full_queue_holds_up_nobody_and_the_history_is_right_afterwards(steps: list[Step], most: int) -> None:
    cluster = RecordedCluster(most_waiting=most)
    cluster.keeper.flush()
    for step in steps:
        cluster.step(*step)
    cluster.keeper.flush()
    assert sum(replayed(cluster.segments()[-1]).values()) == sum(cluster.standing().values())
    dropped = sum(one.dropped for _, one in entries_of(cluster.segments()) if isinstance(one, Gap))
    assert dropped <= sum(1 for what, _, _ in steps if what != "wait")
