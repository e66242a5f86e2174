"""What the takeover commands print for people. Pure."""

import itertools
import textwrap
from collections.abc import Iterable, Sequence

from provisioner.takeover.findings import TakeoverFinding, TakeoverReport, TakeoverVerdict
from provisioner.takeover.instructions import Instruction
from provisioner.takeover.progress import StepKind, TakeoverFacts, TakeoverPhase, next_step
from provisioner.values.printable import one_line

_WIDTH = max(len(verdict) for verdict in TakeoverVerdict)


def report_text(report: TakeoverReport) -> str:
    """The whole report; the same advice is given once for findings that follow each other."""
    return text_of([*finding_lines(report.findings), report.summary()])


def text_of(lines: Iterable[str]) -> str:
    """What a terminal shows of lines: what objects say in them begins no line of its own."""
    return "\n".join(map(one_line, lines))


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


def status_lines(facts: TakeoverFacts) -> list[str]:
    """Where a takeover stands."""
    record = facts.record
    if record is None:
        return ["No takeover has begun."]
    held = ", ".join(facts.held) or "nothing"
    drift = f"{len(facts.drift.drifts)} of {facts.drift.judged:,} would drift ({len(facts.drift.only_here)} only with Dovetail)"
    following = next_step(facts)
    holder = f"its Lease is held by {facts.holder}{'' if facts.renews else ', which does not renew it'}"
    ended = following.kind is StepKind.DONE or record.phase is TakeoverPhase.BACK
    return [
        f"Phase:       {record.phase}, started {record.started}",
        f"Held:        {held}",
        f"Karpenter:   {f'holds its Lease in namespace {facts.leads}' if facts.leads else 'does not hold its Lease'}",
        f"Dovetail:    {holder if facts.holder else 'no one holds its Lease'}",
        f"NodeClaims:  {facts.standing.summary()}",
        f"Drift:       {drift}",
        *([f"Next:        {following.text}"] if following.text and not ended else []),
    ]


def status_for_programs(facts: TakeoverFacts) -> dict[str, object]:
    """The same as JSON."""
    record = facts.record
    return {
        "version": 1,
        "phase": str(record.phase) if record is not None else "",
        "started": record.started if record is not None else "",
        "held": [str(one) for one in facts.held],
        "karpenterLeads": facts.leads,
        "dovetailLeader": facts.holder,
        "nodeClaims": facts.standing.for_programs(),
        "drift": {
            "judged": facts.drift.judged,
            "claims": [
                {"name": one.claim, "reason": one.reason, "alsoKarpenter": one.also_karpenter}
                for one in facts.drift.drifts
            ],
        },
        "next": next_step(facts).text,
    }
