"""Segments in a directory: what is kept, what goes, and what a reader makes of damaged files."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from provisioner.history.entries import FleetCost
from provisioner.history.keeper import HistoryBounds
from provisioner.history.segments import SegmentError, SegmentHead, SegmentWriter, read_segment
from provisioner.history.stores import DirectoryFolder, FolderError, StoredSegments, read_directory

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
    for found in (read_directory(tmp_path), read_directory(tmp_path, most_bytes=1 << 20)):
        assert [one.head.began for one in found.segments] == [1000.0]
        assert [problem.rpartition("/")[2] for problem in found.problems] == [f"{name}.history is left out: it is not a regular file" for name in "abcd"]  # fmt: skip


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
