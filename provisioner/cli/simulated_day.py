"""What `dovetail simulate` simulates: a day that a file has, that a seed makes of settings, or that a record tells."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from provisioner.cli.documents import InputError, inputs, is_shallow
from provisioner.cli.pod_fields import MOST_TOLD, ignored_fields
from provisioner.history.segments import Segment, SegmentError
from provisioner.history.stores import SUFFIX, FolderError, is_bucket, read_directory
from provisioner.simulator.workload import Apply, Arrival, Day, day_of
from provisioner.simulator.workloads.generator import generate, settings_of
from provisioner.simulator.workloads.learned import LearnedMarket, MarketLesson
from provisioner.simulator.workloads.records import day_of_segments
from provisioner.values.errors import UserError
from provisioner.values.yamltext import TOO_DEEP


@dataclass(frozen=True, slots=True)
class DayInput:
    """What the user named.

    Attributes:
        of_seed: the day of a seed.
        applied: objects that appear in it, each with its place in the input.
        pools: NodePools of a record, at their time.
        notes: what to know of it, as sentences.
        learned: what a record says of boots, interruptions and shortages.
    """

    of_seed: Callable[[int], Day]
    applied: tuple[tuple[str, dict[str, Any]], ...] = ()
    pools: tuple[Apply, ...] = ()
    notes: tuple[str, ...] = ()
    learned: LearnedMarket | None = None


def read_day(
    path: Path, since: datetime | None, until: datetime | None, objects: Sequence[Mapping[str, Any]] = ()
) -> DayInput:
    """The day of a file, or of a record's directory or file.

    Args:
        path: of it.
        since: segments of a record that end before are left out.
        until: such as begin after.
        objects: that are there when the day begins.

    Raises:
        UserError: it is none.
    """
    if _is_record(path):
        return _recorded(path, since, until)
    if since is not None or until is not None:
        raise UserError(f"--since and --until choose a part of a record, and {path} is none")
    file = next(iter(inputs([path])))
    found = list(file.documents())
    if len(found) != 1:
        raise InputError(file.name, "must contain exactly one document, the day")
    if not is_shallow(found[0]):
        raise InputError(file.name, TOO_DEEP)
    if isinstance(found[0], dict) and {"changes", "durationSeconds"} & found[0].keys():
        day = day_of(found[0], file.name, objects)
        return DayInput(lambda _: day, _applied(day, file.name), notes=_strange_fields(day, file.name))
    return DayInput(partial(generate, settings_of(found[0], file.name)))


def _is_record(path: Path) -> bool:
    try:
        return path.suffix == SUFFIX or is_bucket(path) or path.is_dir()
    except OSError:
        return False  # whoever reads it says why it cannot be read


def _recorded(path: Path, since: datetime | None, until: datetime | None) -> DayInput:
    try:
        found = read_directory(path)
        if not found.segments:
            raise UserError(
                "; ".join((f"{path} has no file of `dovetail record`; give its directory, or a day", *found.problems))
            )
        some = [one for one in found.segments if _overlaps(one, since, until)]
        if not some:
            first, last = found.segments[0].head.began, max(one.head.ended for one in found.segments)
            raise UserError(
                f"{path}: there is nothing between --since and --until; the record is from {_stamp(first)} to {_stamp(last)}"
            )
        lesson = MarketLesson(some[0].head.began, max(one.head.ended for one in some))
        recorded = day_of_segments(some, lesson.take)
    except (FolderError, SegmentError) as error:
        raise UserError(str(error)) from None
    except (LookupError, OverflowError) as error:
        raise UserError(f"{path} is not as `dovetail record` writes it: {error!r}") from None
    day, name = recorded.day, str(path)
    notes = (
        f"The record is from {_stamp(recorded.began)} to {_stamp(recorded.began + day.duration_seconds)}.",
        *(f"Of the record: {one}." for one in (*found.problems, *recorded.problems)),
    )
    return DayInput(lambda _: day, _applied(day, name), recorded.pools, notes, lesson.learned())


def _overlaps(one: Segment, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or one.head.ended > since.timestamp()) and (
        until is None or one.head.began < until.timestamp()
    )


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _strange_fields(day: Day, name: str) -> tuple[str, ...]:
    """What the user has written in pod templates and nobody reads; once for equal templates."""
    seen, found = set[bytes](), list[str]()
    for number, change in enumerate(day.changes):
        if isinstance(change, Arrival) and (text := msgspec.json.encode(change.template)) not in seen:
            seen.add(text)
            found += ignored_fields(change.template, f"{name}: changes[{number}].template")
            if len(found) > MOST_TOLD:
                return (*found[:MOST_TOLD], f"{name}: more fields of pod templates are ignored.")
    return tuple(found)


def _applied(day: Day, name: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    return tuple(
        (f"{name}: changes[{number}].object", change.object)
        for number, change in enumerate(day.changes)
        if isinstance(change, Apply)
    )
