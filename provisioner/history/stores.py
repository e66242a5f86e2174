"""Segments that outlive the process: `StoredSegments` keeps them in a folder, within bounds, and goes on where an earlier process has ended."""

import os
import re
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from provisioner.history.keeper import HistoryBounds
from provisioner.history.segments import Segment, SegmentError, read_segment
from provisioner.support import logs, metrics

SUFFIX: Final = ".history"
MOST_SEGMENT: Final = 256 << 20
"""Bytes of a file that is read."""
RECORD_BYTES: Final = 64 << 20
"""Of all files of a record together, for whoever reads it whole."""
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


class ReadDirectory(NamedTuple):
    """What is in a directory.

    Attributes:
        segments: in the order of time.
        problems: what could not be read, a sentence each.
    """

    segments: tuple[Segment, ...]
    problems: tuple[str, ...]


def read_directory(path: Path, *, most_bytes: int | None = None) -> ReadDirectory:
    """Every segment of a directory, or that of one file; those that are damaged are named and left out.

    Args:
        path: of the directory or the file.
        most_bytes: of all files together; the oldest are left out, but never the latest.

    Raises:
        FolderError: there is no such directory or file.
    """
    try:
        path.stat()
        files = sorted(path.glob(f"[!.]*{SUFFIX}")) if path.is_dir() else [path]
        segments, problems = [], []
        if most_bytes is not None and (older := _older_than_fit(files, most_bytes)):
            problems.append(
                f"the {older} oldest files are left out, because all together exceed {most_bytes >> 20} MiB"
            )
            files = files[older:]
        for file in files:
            try:
                if not file.is_file():  # a device has no end, and of a pipe nobody may write the other
                    raise SegmentError("it is not a regular file")
                if file.stat().st_size > MOST_SEGMENT:
                    raise SegmentError(f"it is larger than {MOST_SEGMENT >> 20} MiB")
                segments.append(read_segment(file.read_bytes()))
            except SegmentError as error:
                problems.append(f"{file} is left out: {error}")
    except OSError as error:
        raise FolderError(f"{path}: {error.strerror or error}") from None
    return ReadDirectory(tuple(sorted(segments, key=lambda one: one.head.began)), tuple(problems))


def _older_than_fit(files: list[Path], most: int) -> int:
    """How many of the files, the oldest first, must be left out."""
    sizes = [one.stat().st_size if one.is_file() else 0 for one in files]
    older, whole = 0, sum(sizes)
    while whole > most and older < len(files) - 1:
        whole -= sizes[older]
        older += 1
    return older
