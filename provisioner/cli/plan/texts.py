"""Answers for people (a table) and for programs (JSON whose fields stay)."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from provisioner.cli.plan.catalogues import PlanCatalogue
from provisioner.cli.plan.fleet_summary import HOURS_A_MONTH, FleetSummary, Left, fleet_of
from provisioner.cli.plan.gangs import PlannedGang
from provisioner.cli.plan.objects import InputProblem
from provisioner.cli.plan.planning import GREEDY, MENDED, PlanAnswer
from provisioner.cli.plan.questions import Current
from provisioner.cli.plan.relaxation import PricedConstraint
from provisioner.cli.plan.unnominated import Unnominated
from provisioner.values.printable import counted, listed, one_line
from provisioner.values.resources import CPU, MEMORY

VERSION: Final = 1
"""Of the JSON; fields may be added to it, never changed or removed."""
_WIDTH: Final = 120
_MOST_GROUPS: Final = 40
_NAMED: Final = 3
_MOST_GANGS: Final = 12
_MOST_LEFT: Final = 12
_MOST_REASONS: Final = 4
_LITTLE: Final = 0.005
"""Constraints that cost less of the fleet than this are not told in the table; likewise what nominations save."""


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """One plan with its name ("" where there is one only)."""

    name: str
    asked: int
    answer: PlanAnswer
    notes: tuple[str, ...]
    fleet: FleetSummary
    refusing: int = 0

    @classmethod
    def of(cls, name: str, asked: int, answer: PlanAnswer, notes: Sequence[str], refusing: int = 0) -> "PlannedRow":
        return cls(name, asked, answer, tuple(notes), fleet_of(answer.result), refusing)


@dataclass(frozen=True, slots=True)
class PlanReport:
    """Everything that is told."""

    table: PlanCatalogue
    plans: tuple[PlannedRow, ...]
    current: Current | None
    problems: tuple[InputProblem, ...]
    ignored: Mapping[str, int]
    notes: tuple[str, ...] = ()


# --- for programs ------------------------------------------------------------------------------------------------


def as_json(report: PlanReport) -> dict[str, Any]:
    """The report for programs: amounts in `currency` an hour, or a month of 730 hours."""
    return {
        "version": VERSION,
        "catalogue": report.table.name,
        "currency": report.table.currency,
        "pricesEstimated": report.table.estimated,
        "plans": [_plan_json(one, report.current) for one in report.plans],
        "current": _current_json(report.current),
        "notes": list(_notes(report)),
        "problems": [
            {"file": one.file, "object": one.object, "field": one.field, "problem": one.text} for one in report.problems
        ],
        "ignored": dict(sorted(report.ignored.items())),
    }


def _plan_json(one: PlannedRow, current: Current | None) -> dict[str, Any]:
    answer, fleet = one.answer, one.fleet
    hour = fleet.usd_per_hour
    gap = answer.result.gap(answer.usd_at_least)
    return {
        "name": one.name,
        "perHour": _money(hour),
        "perMonth": _money(hour * HOURS_A_MONTH),
        "perHourAtLeast": None if answer.usd_at_least is None else _money(answer.usd_at_least),
        "gap": None if gap is None else round(gap, 6),
        "stage": answer.stage,
        "greedyPerHour": _money(answer.greedy_usd_per_hour),
        "fallback": answer.fallback,
        "complete": answer.in_time,
        "pods": {
            "asked": one.asked,
            "onNewNodes": fleet.pods,
            "onExistingNodes": sum(count for _, count in fleet.existing),
            "withoutNode": sum(len(left.pods) for left in fleet.left),
            "refusingNodePools": one.refusing,
        },
        "nodes": fleet.nodes,
        "nodeGroups": [
            {
                "nodePool": group.pool,
                "instanceType": group.instance_type,
                "zone": group.zone,
                "capacityType": group.capacity_type,
                "count": group.count,
                "perHourEach": _money(group.usd_per_hour),
                "pods": group.pods,
                "cpuRequested": round(group.share(CPU), 4),
                "memoryRequested": round(group.share(MEMORY), 4),
                "reason": group.reason,
            }
            for group in fleet.groups
        ],
        "existingNodes": [{"node": name.removeprefix("node/"), "pods": count} for name, count in fleet.existing],
        "unplaced": [
            {"count": len(left.pods), "pods": [pod.key for pod in left.pods[:10]], "reasons": list(left.reasons)}
            for left in fleet.left
        ],
        "gangs": [
            {
                "gang": gang.name,
                "pods": gang.pods,
                "needed": gang.needed,
                "placed": gang.placed,
                "newNodes": gang.nodes,
                "existingNodes": gang.existing,
                "perHour": _money(gang.usd_per_hour),
                "atRisk": _money(gang.usd_at_risk),
                "topologyKey": gang.key,
                "domains": list(gang.domains),
                "reasons": list(gang.reasons),
            }
            for gang in answer.gangs
        ],
        "constraints": [
            {
                "constraint": priced.name,
                "perHourWithout": None if priced.usd_per_hour is None else _money(priced.usd_per_hour),
                "morePodsWithout": priced.more_pods,
            }
            for priced in answer.priced
        ],
        "withoutNominations": _unnominated_json(answer.unnominated),
        "savingPerMonth": _money(saving(current, fleet) * HOURS_A_MONTH)
        if current is not None and current.is_known
        else None,
    }


def _unnominated_json(one: Unnominated | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "nodes": one.nodes,
        "perHour": _money(one.usd_per_hour),
        "podsLeft": one.left,
        "podsWithoutNode": one.without_node,
        "podsAssumed": one.assumed,
    }


def _current_json(current: Current | None) -> dict[str, Any] | None:
    if current is None:
        return None
    return {
        "perHour": _money(current.usd_per_hour),
        "perMonth": _money(current.usd_per_hour * HOURS_A_MONTH),
        "nodes": current.nodes,
        "nodeGroups": [
            {"instanceType": name, "zone": zone, "capacityType": kind, "count": count, "perHourEach": _money(price)}
            for name, zone, kind, count, price in current.groups
        ],
        "unpriced": dict(current.unpriced),
    }


def saving(current: Current, fleet: FleetSummary) -> float:
    """An hour; negative where the plan is dearer."""
    return current.usd_per_hour - fleet.usd_per_hour


def _money(amount: float) -> float:
    return round(amount, 6)


# --- for people --------------------------------------------------------------------------------------------------


def as_text(report: PlanReport) -> str:
    """The report as a table."""
    currency = report.table.currency
    lines: list[str] = []
    for one in report.plans:
        if one.name:
            lines += [f"== {one.name}", ""]
        lines += [*_plan_lines(one, currency, estimated=report.table.estimated), ""]
    if len(report.plans) > 1:
        lines += [*_compared(report.plans, currency), ""]
    if report.current is not None:
        lines += [*_current_lines(report.current, report.plans, currency), ""]
    lines += [line for note in _notes(report) for line in _wrapped(note, "Note: ")]
    return "\n".join(map(one_line, lines)).rstrip()


def _plan_lines(one: PlannedRow, currency: str, *, estimated: bool) -> list[str]:
    fleet, answer = one.fleet, one.answer
    existing = sum(count for _, count in fleet.existing)
    lines = []
    if fleet.groups:
        rows = [
            (
                "COUNT",
                "INSTANCE TYPE",
                "ZONE",
                "CAPACITY",
                "NODEPOOL",
                f"{currency}/H EACH",
                f"{currency}/H",
                "PODS",
                "CPU",
                "MEMORY",
            )
        ]
        rows += [
            (
                str(group.count),
                group.instance_type,
                group.zone,
                group.capacity_type,
                group.pool,
                f"{group.usd_per_hour:.4f}",
                f"{group.count * group.usd_per_hour:.4f}",
                str(group.pods),
                f"{100 * group.share(CPU):.0f} %",
                f"{100 * group.share(MEMORY):.0f} %",
            )
            for group in fleet.groups[:_MOST_GROUPS]
        ]
        lines += _columns(rows, right={0, 5, 6, 7, 8, 9})
        if len(fleet.groups) > _MOST_GROUPS:
            rest = fleet.groups[_MOST_GROUPS:]
            usd = sum(group.count * group.usd_per_hour for group in rest)
            others = counted(sum(group.count for group in rest), "node")
            lines.append(
                f"and {others} of {counted(len(rest), 'more kind')} for {usd:.4f} {currency}/h (-o json shows all)"
            )
        lines.append("")
    on_existing = f", {existing:,} on {counted(len(fleet.existing), 'existing node')}" if existing else ""
    left = sum(len(some.pods) for some in fleet.left)
    without = f", {left:,} cannot be placed" if left else ""
    refusing = f", {one.refusing:,} exclude{'s' if one.refusing == 1 else ''} every NodePool" if one.refusing else ""
    nodes = counted(fleet.nodes, "new node")
    lines.append(f"{counted(one.asked, 'pod')}: {fleet.pods:,} on {nodes}{on_existing}{without}{refusing}")
    lines.append(f"Cost: {_price(fleet.usd_per_hour, currency)}{' at estimated prices' if estimated else ''}")
    if answer.usd_at_least is not None and fleet.groups:
        over = answer.result.gap(answer.usd_at_least)
        gap = "" if over is None else f"; this plan is within {100 * over:.1f} % of that"
        lines.append(f"Proved: no plan for these pods costs less than {answer.usd_at_least:.4f} {currency}/h{gap}")
    if answer.fallback:
        mended = ", with single nodes replaced by cheaper ones" if answer.stage == MENDED else ""
        lines += _wrapped(f"This is the greedy plan{mended}: {answer.fallback}.", "")
    elif answer.stage != GREEDY and answer.greedy_usd_per_hour > fleet.usd_per_hour:
        saved = 100 * (1 - fleet.usd_per_hour / answer.greedy_usd_per_hour)
        lines.append(
            f"The greedy plan would cost {answer.greedy_usd_per_hour:.4f} {currency}/h; this one is {saved:.1f} % cheaper"
        )
    lines += _unnominated(answer.unnominated, fleet, currency)
    lines += _gangs(answer.gangs, currency)
    lines += _constraints(answer.priced, fleet, currency)
    if fleet.groups:
        dearest = fleet.groups[0]
        if dearest.reason:
            lines += _wrapped(f"{dearest.instance_type} in {dearest.pool}: {dearest.reason}.", "Why: ")
    for some in fleet.left[:_MOST_LEFT]:
        lines += _left(some)
    if len(fleet.left) > _MOST_LEFT:
        count = sum(len(some.pods) for some in fleet.left[_MOST_LEFT:])
        lines.append(f"and {counted(count, 'pod')} without a node for other reasons (-o json shows all)")
    for fault in answer.faults:
        lines += _wrapped(f"The plan violates a scheduling rule; please report this as a bug: {fault}", "")
    return lines


def _unnominated(one: Unnominated | None, fleet: FleetSummary, currency: str) -> list[str]:
    """What more there is to pay without nominations, where there is."""
    if one is None:
        return []
    dear = one.usd_per_hour - fleet.usd_per_hour
    if dear <= _LITTLE * fleet.usd_per_hour and not one.without_node:
        return []
    share = f" ({100 * dear / fleet.usd_per_hour:.0f} % more)" if fleet.usd_per_hour > 0 else ""
    waiting = f"{counted(one.left, 'pod')} may have to wait for other nodes"
    text = f"Without nominations: about {counted(one.nodes, 'node')}, {one.usd_per_hour:.2f} {currency}/h{share}; {waiting}"
    if one.without_node:
        text += f", of which {one.without_node:,} cannot be placed"
    if one.assumed:
        text += f"; {counted(one.assumed, 'pod')} {'is' if one.assumed == 1 else 'are'} assumed to run as planned"
    return _wrapped(f"{text}.", "")


def _constraints(priced: Sequence[PricedConstraint], fleet: FleetSummary, currency: str) -> list[str]:
    told = []
    for one in priced:
        if one.usd_per_hour is None:
            continue
        if one.more_pods > 0:
            told.append(
                (
                    float("inf"),
                    f"without the {one.name}, {counted(one.more_pods, 'more pod')} would have a node",
                )
            )
            continue
        dear = fleet.usd_per_hour - one.usd_per_hour
        if one.more_pods == 0 and dear > _LITTLE * fleet.usd_per_hour:
            share = 100 * dear / fleet.usd_per_hour
            told.append(
                (
                    dear,
                    f"without the {one.name}, the fleet would cost {one.usd_per_hour:.4f} {currency}/h or less (-{share:.1f} %)",
                )
            )
    lines = [f"  {text}" for _, text in sorted(told, key=lambda entry: -entry[0])]
    late = [one.name for one in priced if one.usd_per_hour is None]
    if late:
        lines += _wrapped(f"not examined within the time limit: {', '.join(late)}; increase --seconds", "  ")
    return ["What constraints cost:", *lines] if lines else []


def _gangs(gangs: Sequence[PlannedGang], currency: str) -> list[str]:
    """A block for each group of pods; those without places first."""
    lines: list[str] = []
    for one in sorted(gangs, key=lambda gang: bool(gang.placed))[:_MOST_GANGS]:
        lines.append(f"{one.name}: {counted(one.pods, 'pod')}, {one.needed:,} needed at the same time")
        if not one.placed:
            lines += _wrapped(f"no pod is placed: {(*one.reasons, 'not known')[0]}", "  ")
            continue
        where = [counted(one.nodes, "new node")] if one.nodes else []
        where += [counted(one.existing, "existing node")] if one.existing else []
        domain = f", {one.key}: {', '.join(one.domains) or 'one new node'}" if one.key else ""
        price = f", {one.usd_per_hour:.4f} {currency}/h" if one.nodes else ""
        lines += _wrapped(f"{one.placed:,} placed on {' and '.join(where)}{price}{domain}", "  ")
        if one.usd_at_risk:
            text = f"money at risk: {one.usd_at_risk:.4f} {currency}, if one of the new nodes cannot be launched and the others are given up"
            lines += _wrapped(text, "  ")
    if len(gangs) > _MOST_GANGS:
        lines.append(f"and {counted(len(gangs) - _MOST_GANGS, 'more group')} of pods (-o json shows all)")
    return lines


def _left(left: Left) -> list[str]:
    lines = [f"No node for {listed((pod.key for pod in left.pods), _NAMED)}:"]
    for reason in left.reasons[:_MOST_REASONS]:
        lines += _wrapped(reason, "  - ")
    if len(left.reasons) > _MOST_REASONS:
        lines.append(f"  - and {counted(len(left.reasons) - _MOST_REASONS, 'more reason')} (-o json)")
    return lines


def _compared(plans: Sequence[PlannedRow], currency: str) -> list[str]:
    rows = [("", *(one.name for one in plans), "DIFFERENCE")]
    first, second = plans[0].fleet, plans[-1].fleet

    def row(name: str, values: Sequence[float], form: str) -> tuple[str, ...]:
        return (
            name,
            *(form.format(one) for one in values),
            ("+" if values[-1] > values[0] else "") + form.format(values[-1] - values[0]),
        )

    rows.append(row(f"{currency}/h", (first.usd_per_hour, second.usd_per_hour), "{:.4f}"))
    rows.append(
        row(f"{currency}/month", (first.usd_per_hour * HOURS_A_MONTH, second.usd_per_hour * HOURS_A_MONTH), "{:,.2f}")
    )
    rows.append(row("new nodes", (first.nodes, second.nodes), "{:,}"))
    rows.append(
        row(
            "pods that cannot be placed",
            tuple(sum(len(some.pods) for some in one.left) for one in (first, second)),
            "{:,}",
        )
    )
    return _columns(rows, right=set(range(1, len(rows[0]))))


def _current_lines(current: Current, plans: Sequence[PlannedRow], currency: str) -> list[str]:
    lines = []
    if current.is_known:
        what = counted(current.nodes, "current node")
        price = "with a price " if current.unpriced else ""
        cost = "costs" if current.nodes == 1 else "cost"
        lines.append(f"The {what} {price}{cost} {_price(current.usd_per_hour, currency)}:")
    rows = [
        (f"  {count}", name, zone, kind, f"{count * price:.4f}")
        for name, zone, kind, count, price in current.groups[:_MOST_GROUPS]
    ]
    if rows:
        lines += _columns([("  COUNT", "INSTANCE TYPE", "ZONE", "CAPACITY", f"{currency}/H"), *rows], right={0, 4})
    if len(current.groups) > _MOST_GROUPS:
        lines.append(f"  and {counted(len(current.groups) - _MOST_GROUPS, 'more kind')} (-o json)")
    if current.unpriced:
        total = sum(count for _, count in current.unpriced)
        named = ", ".join(f"{name} ({count})" for name, count in current.unpriced[:_NAMED])
        have = f"{counted(total, 'current node')} {'has' if total == 1 else 'have'} no price in the catalogue"
        lines += _wrapped(f"{have} and count{'s' if total == 1 else ''} as 0: {named}.", "  ")
    if not current.is_known:
        return [*lines, "The saving is not known."]
    for one in plans:
        saved = saving(current, one.fleet)
        month = round(saved * HOURS_A_MONTH, 2)
        left = sum(len(some.pods) for some in one.fleet.left)
        what = f"The plan of {one.name}" if one.name else "This plan"
        if month > 0:
            share = 100 * saved / current.usd_per_hour
            least = "at least " if current.unpriced else ""
            text = f"{what} saves {least}{month:,.2f} {currency} per month ({share:.0f} %)"
        elif current.unpriced:
            more = f"{-month:,.2f} {currency} more per month than the nodes with a price"
            text = f"The saving is not known: {what[:1].lower()}{what[1:]} costs {more}"
        elif month < 0:
            text = f"{what} costs {-month:,.2f} {currency} more per month"
        else:
            text = f"{what} costs the same as the current nodes"
        if left:
            text += f", but leaves {counted(left, 'pod')} without a node"
        lines.append(f"{text}.")
    return lines


def _notes(report: PlanReport) -> list[str]:
    notes = [*report.notes, *(note for one in report.plans for note in one.notes), *report.table.notes]
    if report.ignored:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.ignored.items())[:8])
        notes.append(f"These objects do not affect the plan: {kinds}.")
    if any(not one.answer.in_time and not one.answer.fallback for one in report.plans):
        notes.append(
            "The time limit ended the search early, so another run may give a different plan. Increase --seconds to avoid this."
        )
    return list(dict.fromkeys(notes))


def _price(hour: float, currency: str) -> str:
    return f"{hour:.4f} {currency}/h, {hour * HOURS_A_MONTH:,.2f} {currency} per month"


def _wrapped(text: str, first: str) -> list[str]:
    return textwrap.wrap(
        one_line(text[:4000]), _WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )


def _columns(rows: Sequence[Sequence[str]], right: "set[int]") -> list[str]:
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
