"""Where the pages of `dovetail ui` come from: the leader's stream, or this command's own reads of the cluster."""

import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from provisioner.cli.why import leader
from provisioner.cli.why.command import Way, gathered, leader_of
from provisioner.history.segments import SegmentError
from provisioner.history.stores import RECORD, FolderError, read_directory
from provisioner.support.clock import Clock
from provisioner.ui.events import EventBoard
from provisioner.ui.fleet import asked_about, page_of
from provisioner.ui.page import MOST_BYTES, Page, encoded
from provisioner.ui.recorded import recorded_page
from provisioner.ui.viewers import MOST_ASKED, PAGE, PATH
from provisioner.values.errors import UndeterminedError, UserError
from provisioner.why.pods import why_pods

PROBLEM: Final = "problem"
"""The kind of an event that says why there is no newer page."""
BOUNDS: Final = leader.StreamBounds(90.0, 256 * 1024 * 1024)
"""Of one stream; the leader ends it after a minute."""
OWN_SECONDS: Final = 10.0
"""Between two reads of the whole cluster, at least."""
OWN_SHARE: Final = 0.1
"""Of the time, that is spent on reading."""
RETRY_SECONDS: Final = (2.0, 30.0)
_MOST_EVENT: Final = MOST_BYTES + 65536


def events_in(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The data of the events of a stream that have a page.

    Raises:
        NotAnsweredError: an event is longer than any of ours.
    """
    rest = b""
    for piece in pieces:
        *events, rest = (rest + piece).split(b"\n\n")
        if len(rest) > _MOST_EVENT:
            raise leader.NotAnsweredError("the leader sends too much")
        for event in events:
            lines = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
            if lines.get(b"event") == PAGE.encode() and b"data" in lines:
                yield lines[b"data"]


def own_page(way: Way, title: str) -> Page:
    """The page of the cluster, or of a dump, as this command reads it.

    Raises:
        UserError: it cannot be read.
    """
    instant = gathered(way)
    asked = asked_about(instant.snapshot.pending, MOST_ASKED)
    answers = dict(zip(asked, why_pods(instant, list(asked.values())), strict=True))
    source = "a dump" if way.files else "your own permissions"
    return page_of(instant, answers, source=source, title=title)


def page_of_record(path: Path, title: str) -> bytes:
    """The page of a record's end, with its history.

    Args:
        path: of its directory, or of one of its files.
        title: of the page.

    Raises:
        UserError: nothing of it can be read, or it is of no recorder's making.
    """
    try:
        found = read_directory(path, RECORD)
        if not found.segments:
            raise UserError("; ".join((f"{path} has no file of `dovetail record`", *found.problems)))
        page = encoded(recorded_page(found.segments, found.problems, title=title), MOST_BYTES)
    except (FolderError, SegmentError) as error:
        raise UserError(str(error)) from None
    except (LookupError, ValueError, OverflowError) as error:
        raise UserError(f"{path} is not as `dovetail record` writes it: {error!r}") from None
    if len(page) > MOST_BYTES:
        raise UserError(f"{path} is not as `dovetail record` writes it: its names are too long for a page")
    return page


class Upstream:
    """Puts pages on a board until it is stopped; `run` is for a thread of its own.

    Args:
        way: where they come from.
        namespace: whose pods the user is asked about first where they may not list all.
        title: of the page.
    """

    def __init__(self, way: Way, namespace: str, title: str, board: EventBoard, clock: Clock) -> None:
        self._way, self._title, self.board, self._clock = way, title, board, clock
        self._path = f"{PATH}?{urllib.parse.urlencode({'namespace': namespace})}" if namespace else PATH
        self._stopping = threading.Event()
        self.why_not = ""

    def stop(self) -> None:
        self._stopping.set()

    def first(self) -> bytes:
        """One page, of the leader where it can be asked.

        Raises:
            UserError: there is none.
        """
        if not self._way.files and self._way.through != "own":
            try:
                with closing(self._way.connection()) as connection:
                    _, pieces = leader.follow(lambda: leader_of(self._way, connection, self._clock, BOUNDS), self._path)
                    return self._titled(next(events_in(pieces)))
            except leader.NotAnsweredError as error:
                self.why_not = str(error)
            except StopIteration:
                self.why_not = "the leader ended the connection"
            if self._way.through == "leader" or self._way.url:
                raise UndeterminedError(f"the leader could not be asked: {self.why_not}")
        return encoded(own_page(self._way, self._title), MOST_BYTES)

    @property
    def _is_own(self) -> bool:
        return bool(self._way.files) or self._way.through == "own" or bool(self.why_not)

    def run(self) -> None:
        """Follow the leader, or read again and again."""
        wait = 0.0
        while not self._stopping.wait(wait):
            try:
                wait = self._read() if self._is_own else self._followed()
            except UserError as error:
                self._tell(str(error))
                wait = RETRY_SECONDS[1]
            except leader.NotAnsweredError as error:
                self._tell(f"The leader could not be asked: {error}")
                wait = min(RETRY_SECONDS[1], max(RETRY_SECONDS[0], 2 * wait))

    def _read(self) -> float:
        begun = self._clock.monotonic()
        self.board.put(PAGE, encoded(own_page(self._way, self._title), MOST_BYTES))
        return max(OWN_SECONDS, (self._clock.monotonic() - begun) / OWN_SHARE)

    def _followed(self) -> float:
        with closing(self._way.connection()) as connection:
            _, pieces = leader.follow(lambda: leader_of(self._way, connection, self._clock, BOUNDS), self._path)
            for page in events_in(pieces):
                self.board.put(PAGE, self._titled(page))
                if self._stopping.is_set():
                    break
        return 0.1

    def _titled(self, page: bytes) -> bytes:
        """The leader's page with the title that this command gives it.

        Raises:
            NotAnsweredError: the leader is of another version.
        """
        try:
            found = msgspec.json.decode(page, type=Page)
        except msgspec.MsgspecError as error:
            raise leader.NotAnsweredError(f"the leader is of another version ({error})") from None
        return msgspec.json.encode(msgspec.structs.replace(found, title=self._title))

    def _tell(self, text: str) -> None:
        self.board.put(PROBLEM, msgspec.json.encode({"text": text}))
