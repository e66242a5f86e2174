"""What the takeover commands print for people. Pure."""

import itertools
import textwrap
from collections.abc import Sequence

from provisioner.takeover.findings import TakeoverFinding, TakeoverReport, TakeoverVerdict
from provisioner.takeover.instructions import Instruction
from provisioner.values.printable import one_line

_WIDTH = max(len(verdict) for verdict in TakeoverVerdict)


def report_text(report: TakeoverReport) -> str:
    """The whole report; the same advice is given once for findings that follow each other."""
    return "\n".join(map(one_line, [*finding_lines(report.findings), report.summary()]))


def finding_lines(findings: Sequence[TakeoverFinding]) -> list[str]:
    """A heading for everything that findings are about, a line for each, and what to do."""
    lines: list[str] = []
    for about, inside in itertools.groupby(findings, lambda one: one.about):
        lines.append(about)
        for advice, group in itertools.groupby(inside, lambda one: one.advice):
            lines += [f"  {one.verdict:<{_WIDTH}}  {one.text}" for one in group]
            lines += [f"  {'':<{_WIDTH}}  -> {advice}"] if advice else []
    return lines


def instruction_lines(steps: Sequence[Instruction]) -> list[str]:
    """Numbered, with the commands of each below it."""
    lines: list[str] = []
    for number, step in enumerate(steps, 1):
        lines += textwrap.wrap(
            step.text, 110, initial_indent=f"{number:>2}. ", subsequent_indent="    ", break_on_hyphens=False
        )
        lines += [f"        {one}" for one in step.commands]
    return lines
