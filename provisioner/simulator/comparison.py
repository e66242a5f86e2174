"""What is told of several simulations of the same days, side by side: one line for each variant and policy; as a table for people, and as JSON."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeAlias

from provisioner.simulator.ledger import Figures
from provisioner.simulator.report import SimulationReport, as_columns, as_json, median_text

_Column: TypeAlias = tuple[str, Callable[[Figures], float], str]
_COLUMNS: Final = (
    ("cost", "usd", "{:,.2f}"),
    ("node-hours", "node_hours", "{:,.1f}"),
    ("launches", "launches", "{:,.0f}"),
    ("waited p50", "wait_p50", "{:,.1f} s"),
    ("p99", "wait_p99", "{:,.1f} s"),
    ("no node", "unbound", "{:,.0f}"),
)


@dataclass(frozen=True, slots=True)
class ComparedCase:
    """One variant under one policy.

    Attributes:
        variant: its name; "" where there is one only.
        settings: that it changes, as they were given.
    """

    variant: str
    settings: tuple[str, ...]
    policy: str
    report: SimulationReport

    @property
    def title(self) -> str:
        """Tells it from the others."""
        return f"{self.variant}, {self.policy}" if self.variant else self.policy


def compared_json(cases: Sequence[ComparedCase]) -> dict[str, Any]:
    """In the form that docs/guides/simulate.md says."""
    return {
        "cases": [
            {"variant": one.variant, "policy": one.policy, "settings": list(one.settings), **as_json(one.report)}
            for one in cases
        ]
    }


def compared_text(cases: Sequence[ComparedCase]) -> str:
    """For people. Medians, with the lowest and the highest where there are several seeds."""
    first = cases[0].report
    seeds = "1 seed" if len(first.runs) == 1 else f"{len(first.runs)} seeds: median (lowest to highest)"
    reasons = sorted({reason for one in cases for run in one.report.runs for reason in run.evictions})
    columns: list[_Column] = [(name, attrgetter(field), form) for name, field, form in _COLUMNS]
    columns[3:3] = [(f"evicted: {one}", partial(_evicted, one), "{:,.0f}") for one in reasons]
    if any(run.interrupted_pods for one in cases for run in one.report.runs):
        columns.append(("again in time", attrgetter("share_in_time"), "{:.0%}"))
    named = any(one.variant for one in cases)
    rows = [(*(("variant",) if named else ()), "policy", *(name for name, _, _ in columns))]
    for one in cases:
        cells = [median_text([value(run) for run in one.report.runs], form) for _, value, form in columns]
        rows.append((*((one.variant,) if named else ()), one.policy, *cells))
    lines = [f"{first.duration_seconds / 3600:g} hours, {seeds}, cost in {first.currency}", "", *as_columns(rows)]
    if first.pass_interval:
        lines += ["", first.coarsened]
    notes = list(dict.fromkeys(note for one in cases for note in one.report.notes))
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _evicted(reason: str, run: Figures) -> float:
    return run.evictions.get(reason, 0)
