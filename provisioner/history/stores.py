"""Segments that outlive the process: `StoredSegments` keeps them in a folder, within bounds, and goes on where an earlier process has ended."""

import os
import re
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from provisioner.history.keeper import HistoryBounds
from provisioner.history.segments import Segment, SegmentError, SegmentHead, read_segment
from provisioner.support import logs, metrics
from provisioner.values.printable import counted

SUFFIX: Final = ".history"
MOST_SEGMENT: Final = 256 << 20
"""Bytes of a file that is read."""
OVERLAP_SECONDS: Final = 5.0
"""So much earlier than the last one ended may a segment begin that does not follow it: clocks are set."""
_NAME: Final = re.compile(r"([0-9]{13})-([0-9]{13})-([0-9a-f]{16})\.history")
_MOST_UNWRITTEN: Final = 16 << 20
_UNWRITTEN = metrics.gauge(
    "dovetail_record_unwritten_bytes", "Segments that could not be written yet; the oldest are dropped above 16 MiB."
)
_log = logs.get_logger(__name__)


class FolderError(Exception):
    """A folder cannot be read or written now."""


class SegmentFolder(Protocol):
    """Where files are. Each method may raise FolderError."""

    def sizes(self) -> Mapping[str, int]:
        """Bytes of each file, by name."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """A file, all of it or nothing."""
        ...

    def remove(self, name: str) -> None:
        """A file that is there; nothing happens where it is not."""
        ...


class DirectoryFolder:
    """A directory of this machine.

    Raises:
        FolderError: it is not there, and cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            for left in path.glob(f".*{SUFFIX}"):  # half a file, of a process that was ended
                left.unlink(missing_ok=True)
        except OSError as error:
            raise FolderError(f"{path}: {error.strerror or error}") from None

    def sizes(self) -> Mapping[str, int]:
        try:
            return {one.name: one.stat().st_size for one in os.scandir(self._path) if one.is_file()}
        except OSError as error:
            raise FolderError(f"{self._path}: {error.strerror or error}") from None

    def write(self, name: str, data: bytes) -> None:
        half = self._path / f".{name}"
        try:
            with half.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            half.replace(self._path / name)
        except OSError as error:
            half.unlink(missing_ok=True)
            raise FolderError(f"{self._path / name}: {error.strerror or error}") from None

    def remove(self, name: str) -> None:
        try:
            (self._path / name).unlink(missing_ok=True)
        except OSError as error:
            raise FolderError(f"{self._path / name}: {error.strerror or error}") from None


class _Unwritten(NamedTuple):
    name: str
    data: bytes


class StoredSegments:
    """See the module. One thread.

    Raises:
        FolderError: the folder cannot be read.
    """

    def __init__(self, folder: SegmentFolder, bounds: HistoryBounds) -> None:
        self._folder, self._bounds = folder, bounds
        # other files are nobody's business
        self._kept = {name: size for name, size in sorted(folder.sizes().items()) if _NAME.fullmatch(name)}
        self._unwritten: deque[_Unwritten] = deque()

    def keep(self, segment: bytes, began: float, ended: float) -> None:
        name = f"{round(began * 1000):013d}-{round(ended * 1000):013d}-{read_segment(segment).head.id}{SUFFIX}"
        self._unwritten.append(_Unwritten(name, segment))
        self._write()

    def trim(self, now: float, reserved: int) -> int:
        self._write()
        size = sum(self._kept.values())
        for name in list(self._kept):
            old = int(name[14:27]) / 1000 < now - self._bounds.seconds
            if not old and size + reserved <= self._bounds.most_bytes:
                break
            try:
                self._folder.remove(name)
            except FolderError as error:
                _log.warning("Failed to remove an old segment; retrying", error=str(error))
                break
            size -= self._kept.pop(name)
        return size

    def since(self, default: float) -> float:
        return next((int(name[:13]) / 1000 for name in self._kept), default)

    def _write(self) -> None:
        while self._unwritten:
            one = self._unwritten[0]
            try:
                self._folder.write(one.name, one.data)
            except FolderError as error:
                _log.warning("Failed to write a segment; retrying", error=str(error))
                break
            self._unwritten.popleft()
            self._kept[one.name] = len(one.data)
        while sum(len(one.data) for one in self._unwritten) > _MOST_UNWRITTEN:
            self._unwritten.popleft()
        _UNWRITTEN.set(sum(len(one.data) for one in self._unwritten))


class RecordBounds(NamedTuple):
    """Of a record that is read whole, so that reading ends soon: the oldest files are left out.

    Attributes:
        files: how many.
        file_bytes: of all together; the latest is read even if it has more.
        unpacked_bytes: of all of them, unpacked.
        entries: in all of them. A reader takes about a microsecond for one of pods, and up to five for others.
    """

    files: int = 20_000
    file_bytes: int = 64 << 20
    unpacked_bytes: int = 256 << 20
    entries: int = 20_000_000

    def __str__(self) -> str:
        sizes = f"{self.file_bytes >> 20} MiB, or {self.unpacked_bytes >> 20} MiB unpacked"
        return f"{self.files:,} files, {sizes}, or {self.entries:,} entries"


RECORD: Final = RecordBounds()
"""64 MiB that a recorder wrote unpack to 150 MiB, with 18 million entries."""


class ReadDirectory(NamedTuple):
    """What is in a directory.

    Attributes:
        segments: in the order of time; no two of them tell of the same time.
        problems: what could not be read, a sentence each.
    """

    segments: tuple[Segment, ...]
    problems: tuple[str, ...]


def read_directory(path: Path, bounds: RecordBounds = RECORD) -> ReadDirectory:
    """The segments of a directory, or that of one file. Those that are damaged are left out, and so are copies, and what a second recorder wrote at the same
    time; that is told.

    Args:
        path: of the directory or the file.
        bounds: of all files together.

    Raises:
        FolderError: there is no such directory or file, or it is in a bucket.

    Cost: O(bytes), unpacked once without being decoded.
    """
    if is_bucket(path):
        raise FolderError(
            f"s3://{'/'.join(path.parts[1:])} is in a bucket: copy its latest files to a directory, for example with `aws s3 cp --recursive`; "
            f"at most {bounds.file_bytes >> 20} MiB of them are read"
        )
    try:
        path.stat()
        files = sorted(path.glob(f"[!.]*{SUFFIX}")) if path.is_dir() else [path]
        segments, problems = [], list[str]()
        older = _older_than_fit(files, bounds)
        unpacked, entries = bounds.unpacked_bytes, bounds.entries
        for number in reversed(range(older, len(files))):
            file = files[number]
            try:
                if not file.is_file():  # a device has no end, and of a pipe nobody may write the other
                    raise SegmentError("it is not a regular file")
                if file.stat().st_size > MOST_SEGMENT:
                    raise SegmentError(f"it is larger than {MOST_SEGMENT >> 20} MiB")
                one = read_segment(file.read_bytes())
                entries -= one.head.entries
                unpacked -= one.unpacked_bytes(unpacked)
            except SegmentError as error:
                problems.append(f"{file} is left out: {error}")
                continue
            if entries < 0 or unpacked < 0:
                older = number + 1
                break
            segments.append(one)
    except OSError as error:
        raise FolderError(f"{path}: {error.strerror or error}") from None
    found, others = _one_recorder(segments)
    if others:
        problems.append(f"{counted(others, 'file')} left out: others tell of the same time, as of a second recorder")
    if older:
        problems.append(f"{counted(older, 'file')} left out, the oldest: all together are more than {bounds}")
    return ReadDirectory(found, tuple(reversed(problems)))


def is_bucket(path: Path) -> bool:
    """Whether somebody means a place in S3 (s3://BUCKET/PREFIX), from which no record is read."""
    return path.parts[:1] == ("s3:",)


def _one_recorder(segments: Iterable[Segment]) -> tuple[tuple[Segment, ...], int]:
    """Those of which each begins where the last one has ended, or later; and how many others there are."""
    found, others = dict[str, Segment](), 0
    last: SegmentHead | None = None
    for one in sorted(segments, key=lambda one: one.head.began):
        head = one.head
        goes_on = last is None or head.follows == last.id or head.began >= last.ended - OVERLAP_SECONDS
        if goes_on and head.id not in found:
            found[head.id], last = one, head
        else:
            others += 1
    return tuple(found.values()), others


def _older_than_fit(files: list[Path], bounds: RecordBounds) -> int:
    """How many of the files, the oldest first, must be left out before they are read."""
    older = max(0, len(files) - bounds.files)
    sizes = [one.stat().st_size if one.is_file() else 0 for one in files[older:]]
    whole = sum(sizes)
    while whole > bounds.file_bytes and older < len(files) - 1:
        whole -= sizes[older - len(files)]
        older += 1
    return older
