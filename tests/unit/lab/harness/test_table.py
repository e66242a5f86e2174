"""The live table without a terminal."""

import io

from rich.console import Console

from provisioner.lab.harness.scoreboard import RunCounts
from provisioner.lab.harness.table import live

ROW = RunCounts(pods=3, pending=1, planned=2, claims=4, nodes=5, running=6, stamped=7, usd_per_hour=8.125)


def test_plain_lines_hold_every_column_and_repeat_nothing() -> None:
    output = io.StringIO()
    with live(Console(file=output, width=20)) as show:
        show(1.0, ROW)
        show(2.0, ROW)
        show(3.0, RunCounts())
    assert output.getvalue().splitlines() == [
        "   1.0 s  pending 1  planned 2  claims 4  nodes 5  running 6  stamped 7  8.12 $/h",
        "   3.0 s  pending 0  planned 0  claims 0  nodes 0  running 0  stamped 0  0.00 $/h",
    ]


def test_a_terminal_gets_the_same_numbers() -> None:
    output = io.StringIO()
    with live(Console(file=output, width=120, force_terminal=True)) as show:
        show(1.0, ROW)
    text = output.getvalue()
    for word in ("pending", "planned", "claims", "nodes", "running", "stamped", "$/h", "8.12"):
        assert word in text
