"""Progress on a terminal and without one."""

import io

from rich.console import Console

from provisioner.lab.progress import PlainProgress, RichProgress, progress_for
from provisioner.support.clock import Clock
from tests.support.clock import FakeClock


def test_without_a_terminal_there_are_plain_lines_with_what_how_far_and_how_long() -> None:
    stream, clock = io.StringIO(), FakeClock()
    progress = PlainProgress(stream, _checked(clock))
    progress.begin(1, 2, "building etcd")
    clock.advance(5)
    progress.done()
    progress.begin(2, 2, "building kwok")
    progress.detail("downloading x")
    clock.advance(7)
    progress.failed()
    assert stream.getvalue().splitlines() == [
        "[1/2] building etcd ...",
        "[1/2] building etcd: 5 s (5 s so far)",
        "[2/2] building kwok ...",
        "[2/2] building kwok: failed after 7 s",
    ]


def test_a_terminal_keeps_a_line_of_each_finished_step() -> None:
    stream = io.StringIO()
    progress = RichProgress(Console(file=stream, force_terminal=True, width=100))
    progress.begin(1, 1, "building [etcd]")
    progress.detail("downloading x")
    progress.done()
    assert "[1/1] building [etcd]: 0 s" in stream.getvalue()


def test_the_stream_decides() -> None:
    assert isinstance(progress_for(io.StringIO()), PlainProgress)


def _checked(clock: FakeClock) -> Clock:
    return clock
