"""Segments in a directory: what is kept, what goes, and what a reader makes of damaged files."""

import os
import random
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from provisioner.history.entries import FleetCost, PodsStanding
from provisioner.history.keeper import HistoryBounds
from provisioner.history.segments import LENGTH_BYTES, Segment, SegmentError, SegmentHead, SegmentWriter, read_segment
from provisioner.history.stores import DirectoryFolder, FolderError, RecordBounds, StoredSegments, read_directory

BOUNDS = HistoryBounds(1000.0, 1 << 20)


def segment(began: float, pods: int = 1) -> bytes:
    writer = SegmentWriter(SegmentHead(f"{round(began):016x}", "record", began, began, 0), ())
    writer.add(began + 1, [FleetCost(1.0, 1, 0, pods, 0)])
    return writer.to_bytes()


class BrokenFolder:
    """Writes nothing until it is mended."""

    def __init__(self) -> None:
        self.broken = True
        self.files: dict[str, bytes] = {}

    def sizes(self) -> Mapping[str, int]:
        return {name: len(data) for name, data in self.files.items()}

    def write(self, name: str, data: bytes) -> None:
        if self.broken:
            raise FolderError("the disk is full")
        self.files[name] = data

    def remove(self, name: str) -> None:
        del self.files[name]


def test_a_restart_goes_on_in_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".half.history").write_text("left by a process that was killed")
    StoredSegments(DirectoryFolder(tmp_path), BOUNDS).keep(segment(1000.0), 1000.0, 1100.0)
    store = StoredSegments(DirectoryFolder(tmp_path), BOUNDS)
    store.keep(segment(1100.0), 1100.0, 1200.0)
    assert store.since(5000.0) == 1000.0
    found = read_directory(tmp_path)
    assert [one.head.began for one in found.segments] == [1000.0, 1100.0]
    assert found.problems == ()
    assert len(list(tmp_path.iterdir())) == 3
    store.trim(2150.0, 0)  # the first ended more than 1,000 s before
    assert [one.head.began for one in read_directory(tmp_path).segments] == [1100.0]
    assert (tmp_path / "notes.txt").exists()


def test_the_oldest_go_where_all_are_too_large(tmp_path: Path) -> None:
    size = len(segment(1000.0))
    store = StoredSegments(DirectoryFolder(tmp_path), HistoryBounds(1e6, 3 * size + 10))
    for number in range(5):
        store.keep(segment(1000.0 + number), 1000.0 + number, 1001.0 + number)
        assert store.trim(1010.0, size) <= 2 * size + 10
    assert [one.head.began for one in read_directory(tmp_path).segments] == [1003.0, 1004.0]


def test_damaged_files_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    store = StoredSegments(DirectoryFolder(tmp_path), BOUNDS)
    for number in range(4):
        store.keep(segment(1000.0 + number), 1000.0 + number, 1001.0 + number)
    files = sorted(tmp_path.iterdir())
    files[0].write_bytes(files[0].read_bytes()[:-7])
    files[1].write_bytes(b"something else")
    changed = bytearray(files[2].read_bytes())
    changed[40] ^= 1
    files[2].write_bytes(changed)
    found = read_directory(tmp_path)
    assert [one.head.began for one in found.segments] == [1003.0]
    assert [problem.split(" is left out: ")[0] for problem in found.problems] == [str(one) for one in files[:3]]
    assert "truncated" in found.problems[0]
    assert "not a segment" in found.problems[1]
    assert "corrupted" in found.problems[2]


def test_what_is_no_file_is_named_and_not_read(tmp_path: Path) -> None:
    store = StoredSegments(DirectoryFolder(tmp_path), BOUNDS)
    store.keep(segment(1000.0), 1000.0, 1001.0)
    os.mkfifo(tmp_path / "a.history")  # nobody writes the other end
    (tmp_path / "b.history").symlink_to("/dev/zero")
    (tmp_path / "c.history").symlink_to(tmp_path / "nowhere")
    (tmp_path / "d.history").mkdir()
    found = read_directory(tmp_path)
    assert [one.head.began for one in found.segments] == [1000.0]
    assert [problem.rpartition("/")[2] for problem in found.problems] == [f"{name}.history is left out: it is not a regular file" for name in "abcd"]  # fmt: skip


BOUNDED = {
    "files": (RecordBounds(files=2), [1002.0, 1003.0]),
    "bytes": (RecordBounds(file_bytes=3 * len(segment(1000.0)) + 1), [1001.0, 1002.0, 1003.0]),
    "entries": (RecordBounds(entries=3), [1001.0, 1002.0, 1003.0]),
    "bytes when unpacked": (RecordBounds(unpacked_bytes=60), [1002.0, 1003.0]),
    "nothing fits": (RecordBounds(entries=0), []),
}


@pytest.mark.parametrize(("bounds", "read"), BOUNDED.values(), ids=BOUNDED)
def test_of_a_record_that_is_too_large_the_latest_files_are_read(
    bounds: RecordBounds, read: list[float], tmp_path: Path
) -> None:
    store = StoredSegments(DirectoryFolder(tmp_path), BOUNDS)
    for number in range(4):
        store.keep(segment(1000.0 + number), 1000.0 + number, 1001.0 + number)
    found = read_directory(tmp_path, bounds)
    assert [one.head.began for one in found.segments] == read
    (problem,) = found.problems
    assert problem.startswith(f"{4 - len(read)} file")
    assert "the oldest: all together are more than" in problem


def test_of_two_recorders_one_is_read_and_of_copies_one(tmp_path: Path) -> None:
    heads = [
        SegmentHead("a1", "record", 1000.0, 1600.0, 0),
        SegmentHead("b1", "record", 1300.0, 1900.0, 0),
        SegmentHead("a2", "record", 1590.0, 2200.0, 0, follows="a1"),  # the clock was set back
        SegmentHead("b2", "record", 1900.0, 2500.0, 0, follows="b1"),
        SegmentHead("a1", "record", 1000.0, 1600.0, 0),
        SegmentHead("b3", "record", 2500.0, 2800.0, 0, follows="b2"),  # the first recorder has ended
    ]
    for number, head in enumerate(heads):
        writer = SegmentWriter(head, ())
        writer.add(head.ended, [FleetCost(1.0, 1, 0, 1, 0)])
        (tmp_path / f"{number}.history").write_bytes(writer.to_bytes())
    found = read_directory(tmp_path)
    assert [one.head.id for one in found.segments] == ["a1", "a2", "b3"]
    assert found.problems == ("3 files left out: others tell of the same time, as of a second recorder",)


def lying(entries: int, frames: Sequence[tuple[int, Sequence[FleetCost]]]) -> Segment:
    packed = [msgspec.msgpack.encode(one) for one in ((0, ()), *frames)]
    body = zlib.compress(b"".join(len(one).to_bytes(LENGTH_BYTES, "little") + one for one in packed))
    return Segment(SegmentHead("a", "record", 1000.0, 1010.0, entries), body)


COST = (FleetCost(1.0, 1, 0, 1, 0),)


@pytest.mark.parametrize(
    ("segment", "said"),
    [
        (lying(2, [(1, COST)] * 3), "more entries than its head tells"),
        (lying(2, [(0, ())] * 9), "more entries than its head tells"),
        (lying(2, [(5, COST), (-1, COST)]), "a time that it does not cover"),
        (lying(2, [(5000, COST)]), "a time that it does not cover"),
    ],
    ids=("more entries", "empty frames without an end", "time goes back", "time goes on after its end"),
)
def test_what_the_head_tells_holds_for_the_rest(segment: Segment, said: str) -> None:
    with pytest.raises(SegmentError, match=said):
        sum(1 for _ in segment)


def test_a_count_is_no_negative_number() -> None:
    found = SegmentWriter(SegmentHead("a", "record", 1000.0, 1000.0, 0), [PodsStanding(1, 0, -5)])
    with pytest.raises(SegmentError, match="cannot be decoded"):
        read_segment(found.to_bytes()).opening  # noqa: B018 - it is read


def test_unpacking_copies_little() -> None:
    """What is not unpacked yet is not copied for each piece of what is: of a large file that took minutes."""
    found = read_segment(SegmentWriter(SegmentHead("a", "record", 1000.0, 1000.0, 0), ()).to_bytes())
    copied = 0

    class Body(bytes):
        def __getitem__(self, key: Any) -> Any:
            nonlocal copied
            part = super().__getitem__(key)
            copied += len(part)
            return part

    body = Body(zlib.compress(random.Random(1).randbytes(4 << 20)))
    assert Segment(found.head, body).unpacked_bytes(1 << 30) == 4 << 20
    assert copied == len(body)


def test_a_segment_that_unpacks_to_far_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(SegmentHead("a", "record", 1000.0, 1000.0, 0), ())
    for at in range(20_000):
        writer.add(1000.0 + at, [FleetCost(1.0, 1, 0, 1, 0)])
    found = read_segment(writer.to_bytes())
    assert sum(1 for _ in found) == 20_000
    monkeypatch.setattr("provisioner.history.segments._MOST_INFLATED", 1 << 17)
    with pytest.raises(SegmentError, match="more than"):
        sum(1 for _ in found)


@pytest.mark.parametrize("began", [-1.0, 1e18])
def test_a_segment_of_no_time_that_can_be_is_refused(began: float) -> None:
    with pytest.raises(SegmentError, match="impossible times"):
        read_segment(SegmentWriter(SegmentHead("a", "record", began, began, 0), ()).to_bytes())


def test_one_file_can_be_read_alone(tmp_path: Path) -> None:
    StoredSegments(DirectoryFolder(tmp_path), BOUNDS).keep(segment(1000.0), 1000.0, 1001.0)
    (file,) = tmp_path.iterdir()
    (found,) = read_directory(file).segments
    assert [entry for _, entry in found] == [FleetCost(1.0, 1, 0, 1, 0)]
    with pytest.raises(FolderError):
        read_directory(tmp_path / "nowhere")


def test_what_cannot_be_written_now_is_written_later() -> None:
    folder = BrokenFolder()
    store = StoredSegments(folder, BOUNDS)
    store.keep(segment(1000.0), 1000.0, 1001.0)
    assert store.trim(1002.0, 0) == 0
    folder.broken = False
    assert store.trim(1003.0, 0) == len(segment(1000.0))
    assert list(folder.files) == ["0000001000000-0000001001000-00000000000003e8.history"]


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError):
        DirectoryFolder(tmp_path / "file" / "below")
