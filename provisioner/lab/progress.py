"""Showing long steps: a live line with rich where there is a terminal, plain lines where there is none.

Both say what is done, which of how many, and the seconds so far.
"""

import sys
import threading
from typing import TextIO

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from provisioner.lab.devcluster.progress import StepProgress
from provisioner.support.clock import Clock, SystemClock

PLAIN_INTERVAL_SECONDS = 10.0


class PlainProgress(StepProgress):
    """One line when a step begins and when it ends, and one every ten seconds between."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._label = ""
        self._detail = ""
        self._began = self._begun_all = clock.monotonic()
        self._ticker: threading.Thread | None = None
        self._ended = threading.Event()

    def begin(self, index: int, total: int, what: str) -> None:
        """Say that a step begins, and go on saying that it is at it."""
        if index == 1:
            self._begun_all = self._clock.monotonic()
        self._began = self._clock.monotonic()
        self._label, self._detail = f"[{index}/{total}] {what}", ""
        self._ended = threading.Event()
        self._say(f"{self._label} ...")
        self._ticker = threading.Thread(target=self._tick, args=(self._ended,), daemon=True)
        self._ticker.start()

    def detail(self, text: str) -> None:
        """Remember what it does just now, for the next line."""
        self._detail = text

    def done(self) -> None:
        """Say how long the step took, and all so far."""
        self._stop()
        now = self._clock.monotonic()
        taken, total = now - self._began, now - self._begun_all
        self._say(f"{self._label}: {taken:.0f} s ({total:.0f} s so far)")

    def failed(self) -> None:
        """Say after how long it was given up."""
        self._stop()
        self._say(f"{self._label}: failed after {self._clock.monotonic() - self._began:.0f} s")

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(PLAIN_INTERVAL_SECONDS):
            seconds = self._clock.monotonic() - self._began
            self._say(f"{self._label}: {seconds:.0f} s, {self._detail or 'starting'}")

    def _stop(self) -> None:
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()

    def _say(self, text: str) -> None:
        with self._lock:
            print(text, file=self._stream, flush=True)


class RichProgress(StepProgress):
    """One live line a step, with a spinner and the time; finished steps stay above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._label = ""

    def begin(self, index: int, total: int, what: str) -> None:
        """Show a step."""
        self._label = f"[{index}/{total}] {what}"
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[detail]}", markup=False, style="dim"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(self._label, total=None, detail="")
        self._bar.start()

    def detail(self, text: str) -> None:
        """Show what it does just now."""
        if self._bar is not None:
            self._bar.update(self._task, detail=text[:60])

    def done(self) -> None:
        """Leave a line with the time that the step took."""
        self._console.print(f"{self._label}: {self._stop():.0f} s", markup=False, highlight=False)

    def failed(self) -> None:
        """Leave a line that says so."""
        seconds = self._stop()
        self._console.print(f"{self._label}: failed after {seconds:.0f} s", markup=False, highlight=False)

    def _stop(self) -> float:
        if self._bar is None:
            return 0.0
        self._bar.stop()
        elapsed = self._bar.tasks[0].elapsed or 0.0
        self._bar = None
        return elapsed


def progress_for(stream: TextIO | None = None) -> StepProgress:
    """The right way to show progress on a stream, standard error by default."""
    chosen = sys.stderr if stream is None else stream
    if chosen.isatty():
        return RichProgress(Console(file=chosen))
    return PlainProgress(chosen, SystemClock())
