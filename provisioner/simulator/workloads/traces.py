"""What loaders of published traces have in common: rows within bounds, what is wrong with one, and which part of a trace is a day. Pure.

A row that cannot be used is told, with its file, line, column and remedy, and left out; the others count.
"""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from provisioner.simulator.workload import MOST_PODS_OF_DAY, MOST_SECONDS, Arrival, Change, Day, End
from provisioner.simulator.workloads.errors import WorkloadError

MOST_ROWS: Final = 5_000_000
"""Of a file; the rest is not read."""
MOST_LINE: Final = 4096
"""Characters of a row."""
MOST_PROBLEMS: Final = 100
"""That are told one by one."""
MOST_OF_ONE: Final = 100_000
"""Pods of one row."""
LEAST_SECONDS: Final = 1.0


class TraceProblem(NamedTuple):
    """What is wrong with a row, or with what a day can hold; `str` is a sentence.

    Attributes:
        line: from 1.
        column: the name of the field; "" where the row as a whole is the matter.
        problem: with its remedy.
    """

    file: str
    line: int
    column: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: line {self.line}: {f'{self.column}: ' if self.column else ''}{self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWindow:
    """Which part of a trace is the day.

    Attributes:
        start: seconds, as the trace counts them.
        seconds: how long it is, of the trace.
        speed: so many seconds of the trace pass in one of the day; lifetimes are shortened likewise.
        standing: what began before and still runs at the start arrives with the day, for the rest of its time.
    """

    start: float = 0.0
    seconds: float = 86_400.0
    speed: float = 1.0
    standing: bool = True

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("speed", self.speed)):
            if not (math.isfinite(value) and value > 0):
                raise WorkloadError(f"{name} of a trace is {value:g}; use a number greater than 0")
        if not math.isfinite(self.start):
            raise WorkloadError(f"start of a trace is {self.start:g}; use a number of seconds")
        if self.seconds / self.speed > MOST_SECONDS:
            raise WorkloadError(
                f"{self.seconds:g} s of a trace at a speed of {self.speed:g} are more than 31 days; use fewer seconds or "
                "a greater speed"
            )


@dataclass(frozen=True, slots=True)
class LoadedTrace:
    """A day of a trace.

    Attributes:
        problems: the first `MOST_PROBLEMS`, in order.
        left_out: rows that could not be used, those of `problems` among them.
        outside: rows that are no part of the window.
    """

    day: Day
    problems: tuple[TraceProblem, ...] = ()
    left_out: int = 0
    outside: int = 0


class RowError(Exception):
    """A row cannot be used."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(column, problem)
        self.column, self.problem = column, problem


@dataclass(frozen=True, slots=True)
class TracePods:
    """What a row says: pods of one kind, in seconds of the trace.

    Attributes:
        ended: when they were gone, whether or not they ran; None where the trace does not tell.
        started: since when they ran; None for never.
    """

    name: str
    template: Mapping[str, object]
    created: float
    started: float | None
    ended: float | None
    count: int = 1


@dataclass(slots=True)
class TraceReader:
    """Reads one file.

    Args:
        file: its name, for people.
        window: which part of it is the day.
        columns: in their order; the first row names them where `header`.
        row: what one row says.
    """

    file: str
    window: TraceWindow
    columns: Sequence[str]
    header: bool
    row: Callable[["TraceRow"], TracePods]
    _problems: list[TraceProblem] = field(default_factory=list)
    _left_out: int = 0

    def day(self, lines: Iterable[str]) -> LoadedTrace:
        """The day. Raises WorkloadError where the file is none of this kind. Cost: O(rows)."""
        changes: list[Change] = []
        outside = pods = 0
        names = dict[str, int]()
        for number, cells in self._cells(lines):
            try:
                found = self.row(TraceRow(self.columns, cells))
                made = self._changes(found, names)
                if made and pods + found.count > MOST_PODS_OF_DAY:
                    raise RowError(
                        "", f"the day has {MOST_PODS_OF_DAY:,} pods already; take fewer seconds of the trace"
                    )
            except RowError as error:
                self._note(number, error.column, error.problem)
                continue
            outside += not made
            pods += found.count if made else 0
            changes += made
        changes.sort(key=lambda one: (one.at, getattr(one, "name", "")))
        seconds = self.window.seconds / self.window.speed
        return LoadedTrace(
            Day(duration_seconds=seconds, changes=tuple(changes)), tuple(self._problems), self._left_out, outside
        )

    def _cells(self, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
        first = self.header
        for number, line in enumerate(lines, 1):
            if number > MOST_ROWS:
                self._note(number, "", f"the file has more than {MOST_ROWS:,} lines; the rest is not read")
                return
            text = line.rstrip("\r\n")
            if not text:
                continue
            if len(text) > MOST_LINE:
                self._note(number, "", f"the row has {len(text):,} characters; at most {MOST_LINE:,} are read")
                continue
            try:
                cells = next(csv.reader([text], strict=True))
            except csv.Error as error:
                self._note(number, "", f"the row is no CSV ({error}); quote fields that contain commas or quotes")
                continue
            if first:
                first = False
                if [cell.strip().lstrip("\ufeff") for cell in cells] != list(self.columns):
                    raise WorkloadError(
                        f"{self.file}: line 1: the columns are not {','.join(self.columns)}; give the original file"
                    )
                continue
            if len(cells) != len(self.columns):
                self._note(
                    number, "", f"the row has {len(cells)} fields instead of {len(self.columns)}; repair or delete it"
                )
                continue
            yield number, cells

    def _note(self, line: int, column: str, problem: str) -> None:
        self._left_out += 1
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(TraceProblem(self.file, line, column, problem))

    def _changes(self, found: TracePods, names: dict[str, int]) -> list[Change]:
        window = self.window
        end = window.start + window.seconds
        gone = math.inf if found.ended is None else found.ended
        before = found.created < window.start
        if found.created >= end or gone <= window.start or (before and not window.standing):
            return []
        at = max(0.0, (found.created - window.start) / window.speed)
        name = _unused(found.name, names)
        lifetimes: tuple[float, ...] | None = None
        if found.started is not None and found.ended is not None:
            life = (found.ended - max(found.started, window.start)) / window.speed
            lifetimes = (round(min(MOST_SECONDS, max(LEAST_SECONDS, life)), 3),)
        arrival = Arrival(
            at=round(at, 3),
            name=name,
            kind="Job",
            template=dict(found.template),
            count=found.count,
            lifetimes=lifetimes,
        )
        if arrival.at >= window.seconds / window.speed:
            return []
        if found.started is not None or gone >= end:
            return [arrival]
        return [arrival, End(at=round(max(at, (gone - window.start) / window.speed), 3), name=name)]


class TraceRow:
    """One row, by column."""

    def __init__(self, columns: Sequence[str], cells: Sequence[str]) -> None:
        self._cells: Final = dict(zip(columns, cells, strict=True))

    def text(self, column: str) -> str:
        """What stands there."""
        return self._cells[column].strip()

    def number(self, column: str, *, least: float = 0.0, most: float = math.inf) -> float:
        """A number within bounds."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (least <= value <= most and math.isfinite(value)):
            bound = f"from {least:g} to {most:g}" if math.isfinite(most) else f"of {least:g} or more"
            raise RowError(column, f"{text[:40]!r} is not a number {bound}; repair or delete the row")
        return value

    def maybe(self, column: str) -> float | None:
        """A number; None where there is none."""
        return None if self.text(column).lower() in ("", "nan") else self.number(column)


def object_name(prefix: str, text: str) -> str:
    """A name of Kubernetes that follows from any text."""
    kept = "".join(one if one.isascii() and one.isalnum() else "-" for one in text.lower()).strip("-")[:50].strip("-")
    return f"{prefix}-{kept}" if kept else prefix


def _unused(name: str, names: dict[str, int]) -> str:
    """The name, with a number where it is taken."""
    found = name
    while found in names:
        names[name] += 1
        found = f"{name}-{names[name]}"
    names[found] = 1
    return found
