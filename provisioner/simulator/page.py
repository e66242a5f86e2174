"""The page of simulated days: tables of their figures, and charts of every run. Pure; `ui.document` makes one file of it."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from provisioner.simulator.ledger import Figures
from provisioner.simulator.report import SimulationReport, figures_compared, figures_of
from provisioner.ui.page import PageValue

SCRIPT: Final = "simulation.js"
"""Of `ui.document`."""
MOST_CURVES: Final = 8
"""Of one chart; where there are more runs, the mean of their seeds is drawn."""
_LONGEST: Final = 200
_MOST_NOTES: Final = 50


class PageTable(PageValue, frozen=True, kw_only=True):
    """Cells as text; the first column names its row."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class PageRun(PageValue, frozen=True, kw_only=True):
    """A curve of each chart: price per hour, nodes and waiting pods at the points of time of the page."""

    name: str
    usd: tuple[float, ...]
    nodes: tuple[float, ...]
    waiting: tuple[float, ...]


class SimulationPage(PageValue, frozen=True, kw_only=True):
    """Everything that is shown.

    Attributes:
        hours: of the day.
        at: seconds from its start.
    """

    title: str
    hours: float
    catalogue: str
    currency: str
    at: tuple[float, ...]
    tables: tuple[PageTable, ...]
    runs: tuple[PageRun, ...]
    notes: tuple[str, ...] = ()


def simulation_page(title: str, cases: Sequence[tuple[str, SimulationReport]]) -> bytes:
    """The page as JSON.

    Args:
        title: what was simulated.
        cases: at least one; their names tell them apart, and may be empty where there is one.
    """
    first = cases[0][1]
    drawn = [(name, [one]) for name, one in _named_runs(cases)]
    notes = list(dict.fromkeys(note for _, report in cases for note in report.notes))[:_MOST_NOTES]
    if len(drawn) > MOST_CURVES:
        drawn = [(name[:_LONGEST] or "all seeds", list(report.runs)) for name, report in cases[:MOST_CURVES]]
        notes.append("A curve is the mean of all seeds.")
        if len(cases) > MOST_CURVES:
            notes.append(f"The charts show the first {MOST_CURVES} of {len(cases)} cases.")
    if first.pass_interval:
        notes.append(first.coarsened)
    heads, *rows = figures_of(first) if len(cases) == 1 else figures_compared(cases)
    page = SimulationPage(
        title=title[:_LONGEST],
        hours=round(first.duration_seconds / 3600, 3),
        catalogue=first.catalogue,
        currency=first.currency,
        at=tuple(one.at for one in first.runs[0].samples),
        tables=(
            PageTable(
                title="Figures", heads=(heads[0] or "Figure", *heads[1:]), rows=tuple(tuple(row) for row in rows)
            ),
        ),
        runs=tuple(_curve(name, runs) for name, runs in drawn),
        notes=tuple(notes),
    )
    return msgspec.json.encode(page)


def _named_runs(cases: Sequence[tuple[str, SimulationReport]]) -> list[tuple[str, Figures]]:
    return [
        (f"{name[:_LONGEST]}, seed {run.seed}" if name else f"seed {run.seed}", run)
        for name, report in cases
        for run in report.runs
    ]


def _curve(name: str, runs: Sequence[Figures]) -> PageRun:
    """The mean of runs, whose points are of the same times."""
    count = len(runs)
    points = list(zip(*(run.samples for run in runs), strict=True))

    def means(values: Sequence[Sequence[float]]) -> tuple[float, ...]:
        return tuple(round(math.fsum(some) / count, 4) for some in values)

    return PageRun(
        name=name,
        usd=means([[one.usd_per_hour for one in some] for some in points]),
        nodes=means([[one.nodes for one in some] for some in points]),
        waiting=means([[float(one.waiting) for one in some] for some in points]),
    )
