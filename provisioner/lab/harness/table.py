"""The live table of a run: rich on a terminal, plain lines elsewhere."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from provisioner.lab.harness.scoreboard import RunCounts

Show = Callable[[float, RunCounts], None]


def plain(seconds: float, counts: RunCounts) -> str:
    """One line: `12.0 s  pending 400 ...`."""
    return (
        f"{seconds:6.1f} s  pending {counts.pending}  planned {counts.planned}  claims {counts.claims}  "
        f"nodes {counts.nodes}  running {counts.running}  stamped {counts.stamped}  {counts.usd_per_hour:.2f} $/h"
    )


def grid(seconds: float, counts: RunCounts) -> Table:
    """The same as a table of one row."""
    table = Table(title=f"{seconds:.1f} s")
    for column in ("pending", "planned", "claims", "nodes", "running", "stamped", "$/h"):
        table.add_column(column, justify="right", min_width=8)
    numbers = (counts.pending, counts.planned, counts.claims, counts.nodes, counts.running, counts.stamped)
    table.add_row(*map(str, numbers), f"{counts.usd_per_hour:.2f}")
    return table


def teller(console: Console) -> Callable[[str], None]:
    """Prints texts as they are, however long and whatever stands in brackets."""
    return functools.partial(console.print, markup=False, soft_wrap=True)


@contextmanager
def live(console: Console) -> Iterator[Show]:
    """Show counts until the end of the block; without a terminal a line is printed when something changed."""
    if not console.is_terminal:
        last: list[RunCounts] = []

        def line(seconds: float, counts: RunCounts) -> None:
            if last != [counts]:
                last[:] = [counts]
                console.print(plain(seconds, counts), highlight=False, soft_wrap=True)

        yield line
        return
    with Live(console=console, auto_refresh=False) as view:

        def redraw(seconds: float, counts: RunCounts) -> None:
            view.update(grid(seconds, counts), refresh=True)

        yield redraw
