"""The page of a plan: the nodes that it would launch, what would run there, and the pods that no node takes. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from provisioner.apis.pods import Pod
from provisioner.cli.plan.fleet_summary import FleetSummary, zone_of
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.ui.classes import PageClasses, apart, system_of
from provisioner.ui.page import LONGEST, NAMES_OF_ROW, Page, PageNode, PageSums, PageWaiting, seconds
from provisioner.values.resources import CPU, MEMORY, PODS, Resources

NO_HISTORY = "No history: this is a plan."


def page_of_plan(title: str, result: Result, fleet: FleetSummary, at: datetime, currency: str) -> Page:
    """The page of a result.

    Args:
        title: of the page.
        result: the plan.
        fleet: what it comes to.
        at: when it was made.
        currency: of prices, as it is written before them.
    """
    pods = [pod for claim in result.claims for pod in claim.pods]
    left = [pod for one in fleet.left for pod in one.pods]
    classes = PageClasses([*pods, *left])
    nodes = tuple(_node(claim, number, classes) for number, claim in enumerate(result.claims, 1))
    waiting = tuple(row for one in fleet.left for row in _waiting(one.pods, "; ".join(one.reasons), classes))
    existing = sum(count for _, count in fleet.existing)
    return Page(
        at=seconds(at),
        title=title,
        source="dovetail plan",
        currency=currency,
        sums=_sums(result.claims, pods),
        classes=tuple(classes.all),
        nodes=nodes,
        waiting=waiting,
        no_history=NO_HISTORY,
        missing=(f"{existing} pods fit on nodes that exist, which are not shown",) if existing else (),
    )


def _node(claim: PlannedClaim, number: int, classes: PageClasses) -> PageNode:
    rows, _, rest = classes.rows(claim.pods)
    daemons = claim.requests - Resources.total(pod.shape.requests for pod in claim.pods)
    cpu, memory = max(0, daemons.amount(CPU)), max(0, daemons.amount(MEMORY))
    capacity = claim.capacity
    return PageNode(
        name=f"node {number}",
        pool=claim.pool,
        type=claim.planned_type,
        zone=zone_of(claim),
        capacity_type=claim.planned_capacity_type,
        usd=claim.usd_per_hour,
        state="planned",
        text=str(claim.reason)[:LONGEST] if claim.reason is not None else "",
        cpu=capacity.amount(CPU),
        memory=capacity.amount(MEMORY),
        slots=capacity.amount(PODS),
        system=system_of(capacity, claim.allocatable),
        daemons=apart([Resources.of({CPU: cpu, MEMORY: memory})]) if cpu or memory else apart([]),
        planned=rows,
        planned_hidden=rest,
    )


def _waiting(pods: Sequence[Pod], text: str, classes: PageClasses) -> list[PageWaiting]:
    found: defaultdict[int, list[str]] = defaultdict(list)
    for pod in pods:
        if (index := classes.index(pod)) is not None:
            found[index].append(pod.name)
    return [
        PageWaiting(
            of=index, pods=len(those), names=tuple(those[:NAMES_OF_ROW]), state="Unschedulable", text=text[:LONGEST]
        )
        for index, those in found.items()
    ]


def _sums(claims: Sequence[PlannedClaim], pods: Sequence[Pod]) -> PageSums:
    room = Resources.total(one.allocatable for one in claims)
    asked = Resources.total(one.requests for one in claims)
    return PageSums(
        nodes=len(claims),
        planned=len(pods),
        usd=round(sum(one.usd_per_hour for one in claims), 4),
        cpu=room.amount(CPU),
        memory=room.amount(MEMORY),
        used_cpu=asked.amount(CPU),
        used_memory=asked.amount(MEMORY),
        planned_cpu=asked.amount(CPU),
        planned_memory=asked.amount(MEMORY),
    )
