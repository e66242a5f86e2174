"""What is told of a simulated day: the figures of every seed, and how far they lie apart; as a table for people, and as JSON."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from provisioner.simulator.ledger import Figures

_LINES: Final = 24
"""Of the curve in the table; JSON has all points."""
_Row = tuple[str, str, str]
"""What it is called, the field of `Figures`, and how it is written."""
_ROWS: Final[tuple[_Row, ...]] = (
    ("cost", "usd", "{:,.2f} {currency}"),
    ("node-hours", "node_hours", "{:,.1f}"),
    ("most nodes at a time", "most_nodes", "{:,.0f}"),
    ("launches", "launches", "{:,.0f}"),
    ("pods", "pods", "{:,.0f}"),
    ("pods without a node at the end", "unbound", "{:,.0f}"),
    ("pods waited, p50", "wait_p50", "{:,.1f} s"),
    ("pods waited, p99", "wait_p99", "{:,.1f} s"),
)
_ROWS_OF_MARKET: Final[tuple[_Row, ...]] = (
    ("offerings refused", "refused", "{:,.0f}"),
    ("instances interrupted", "interruptions", "{:,.0f}"),
    ("pods on them", "interrupted_pods", "{:,.0f}"),
    ("pods that ran again in time", "again_in_time", "{:,.0f}"),
    ("share that ran again in time", "share_in_time", "{:.1%}"),
)
"""Shown where anything of this happened."""


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """One figure over all seeds. `deviation`: standard deviation of a sample; 0 of one seed."""

    mean: float
    median: float
    lowest: float
    highest: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "SeedSpread":
        """Of at least one."""
        mean = math.fsum(values) / len(values)
        deviation = 0.0
        if len(values) > 1:
            deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in values) / (len(values) - 1))
        return cls(round(mean, 4), round(statistics.median(values), 4), min(values), max(values), round(deviation, 4))


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What was simulated, and what came of it.

    Attributes:
        runs: one of each seed, at least one.
        notes: what to know about input and prices, as sentences.
    """

    duration_seconds: float
    catalogue: str
    currency: str
    pass_interval: float
    runs: tuple[Figures, ...]
    notes: tuple[str, ...]

    @property
    def coarsened(self) -> str:
        """What `pass_interval` means for whoever reads the figures."""
        said = f"All nodes were looked at for disruption every {self.pass_interval:g} s at most (--pass-interval), not every second."
        return f"{said} Nodes may go later than in reality."


def as_json(report: SimulationReport) -> dict[str, Any]:
    """In the form that docs/guides/simulate.md says."""
    return {
        "durationSeconds": report.duration_seconds,
        "catalogue": report.catalogue,
        "currency": report.currency,
        "passInterval": report.pass_interval,
        "spread": {
            **{_camel(field): asdict(_spread(report.runs, field)) for _, field, _ in (*_ROWS, *_ROWS_OF_MARKET)},
            "evictions": {reason: asdict(_evictions(report.runs, reason)) for reason in _reasons_of([report])},
        },
        "runs": [_run(one) for one in report.runs],
        "notes": list(report.notes),
    }


def as_text(report: SimulationReport) -> str:
    """For people."""
    hours = report.duration_seconds / 3600
    seeds = "1 seed" if len(report.runs) == 1 else f"{len(report.runs)} seeds"
    head = f"{hours:g} hours, {seeds}, catalogue {report.catalogue}"
    curve = [("until hour", f"{report.currency} per hour", "nodes", "pods waiting")]
    curve += [
        (f"{at / 3600:.2f}", f"{usd:.2f}", f"{nodes:.1f}", f"{waiting:.1f}")
        for at, usd, nodes, waiting in _curve(report)
    ]
    lines = [head, "", *as_columns(figures_of(report)), "", *as_columns(curve)]
    if report.pass_interval:
        lines += ["", report.coarsened]
    return "\n".join([*lines, *(["", *report.notes] if report.notes else [])])


def figures_of(report: SimulationReport) -> list[Sequence[str]]:
    """The table of one report: the head, and a row for each figure."""
    rows: list[Sequence[str]] = [("", "mean", "lowest", "highest")]
    rows += [
        (name, *_texts(_spread(report.runs, field), form.replace("{currency}", report.currency)))
        for name, field, form in _rows_of([report])
    ]
    rows += [
        (f"evictions, {reason}", *_texts(_evictions(report.runs, reason), "{:,.0f}"))
        for reason in _reasons_of([report])
    ]
    return rows


def figures_compared(cases: Sequence[tuple[str, SimulationReport]]) -> list[Sequence[str]]:
    """The table of several reports by name: the head, and a row for each figure with its `median_text` in each."""
    reports = [report for _, report in cases]
    rows: list[Sequence[str]] = [("", *(name for name, _ in cases))]
    rows += [
        (
            name,
            *(
                median_text([getattr(run, field) for run in one.runs], form.replace("{currency}", one.currency))
                for one in reports
            ),
        )
        for name, field, form in _rows_of(reports)
    ]
    rows += [
        (
            f"evictions, {reason}",
            *(median_text([run.evictions.get(reason, 0) for run in one.runs], "{:,.0f}") for one in reports),
        )
        for reason in _reasons_of(reports)
    ]
    return rows


def median_text(values: Sequence[float], form: str) -> str:
    """The median, with the lowest and the highest where there are several; a unit, which follows the number in `form`, is said once."""
    spread = SeedSpread.of(values)
    median = form.format(spread.median)
    if len(values) == 1:
        return median
    number = form[: form.index("}") + 1]
    return f"{median} ({number.format(spread.lowest)} to {number.format(spread.highest)})"


def _rows_of(reports: Sequence[SimulationReport]) -> tuple[_Row, ...]:
    traded = any(run.refused or run.interruptions for one in reports for run in one.runs)
    return (*_ROWS, *(_ROWS_OF_MARKET if traded else ()))


def _reasons_of(reports: Sequence[SimulationReport]) -> list[str]:
    return sorted({reason for one in reports for run in one.runs for reason in run.evictions})


def _run(figures: Figures) -> dict[str, Any]:
    found = {_camel(key): value for key, value in asdict(figures).items()}
    found["samples"] = [{_camel(key): value for key, value in one.items()} for one in found["samples"]]
    return found


def _spread(runs: Iterable[Figures], field: str) -> SeedSpread:
    return SeedSpread.of([getattr(one, field) for one in runs])


def _evictions(runs: Iterable[Figures], reason: str) -> SeedSpread:
    return SeedSpread.of([one.evictions.get(reason, 0) for one in runs])


def _texts(spread: SeedSpread, form: str) -> tuple[str, str, str]:
    return form.format(spread.mean), form.format(spread.lowest), form.format(spread.highest)


def _curve(report: SimulationReport) -> list[tuple[float, float, float, float]]:
    """Means over all seeds, of as many points as a line stands for."""
    points = len(report.runs[0].samples)
    width = max(1, points // _LINES)
    found = []
    for first in range(0, points, width):
        some = [one for run in report.runs for one in run.samples[first : first + width]]
        last = report.runs[0].samples[min(points, first + width) - 1]
        usd, nodes, waiting = (
            math.fsum(values) / len(some)
            for values in zip(*((one.usd_per_hour, one.nodes, float(one.waiting)) for one in some), strict=True)
        )
        found.append((last.at, usd, nodes, waiting))
    return found


def as_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text; all columns but the first are aligned to the right."""
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if not number else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(one.capitalize() for one in rest)
