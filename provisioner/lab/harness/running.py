"""The course of one run: a workload applied and watched until it runs, scaled away and watched until nothing is left."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from provisioner.lab.harness import applying
from provisioner.lab.harness.placement import Placement
from provisioner.lab.harness.scoreboard import RunCounts
from provisioner.lab.harness.session import Session
from provisioner.lab.harness.table import Show
from provisioner.lab.harness.timing import claims_after_window
from provisioner.lab.harness.workload import Document, of_kind, pods_of

POLL_SECONDS = 0.2
REDRAW_SECONDS = 1.0
RUN_SECONDS = 150.0
EMPTY_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class DemoRun:
    """What was seen until every pod ran (or the time was up); seconds since the first Deployment was applied."""

    pods: int
    counts: RunCounts
    placement: Placement
    nominations: Placement
    first_running_seconds: float
    all_running_seconds: float
    bound_per_second: float
    last_claim_after_window_seconds: float
    cpu_utilisation: float
    memory_utilisation: float
    memory_megabytes: dict[str, float]
    cpu_seconds: dict[str, float]


def scale_out(session: Session, documents: list[Document], show: Show) -> DemoRun:
    """Apply namespaces and DaemonSets, then the Deployments, and watch until all of their pods run.

    Raises:
        ProgramError: one of our programs ended by itself.
    """
    deployments = of_kind(documents, "Deployment")
    applying.apply(session.client, [document for document in documents if document["kind"] != "Deployment"])
    session.clock.sleep(POLL_SECONDS)
    cpu_before = session.cpu_seconds()
    began = session.clock.monotonic()
    applying.apply(session.client, deployments)
    pods = pods_of(deployments)

    counts = watch(session, show, lambda counts: counts.running >= pods, began, RUN_SECONDS)
    observer = session.observer
    running, bound = observer.running_moments(), observer.bound_moments()
    after = claims_after_window(observer.added_moments().values(), observer.claim_moments())
    return DemoRun(
        pods=pods,
        counts=counts,
        placement=observer.placement(),
        nominations=observer.nominations(),
        first_running_seconds=running[0] - began if running else math.nan,
        all_running_seconds=running[pods - 1] - began if len(running) >= pods else math.nan,
        bound_per_second=(len(bound) - 1) / (bound[-1] - bound[0])
        if len(bound) > 1 and bound[-1] > bound[0]
        else math.nan,
        last_claim_after_window_seconds=math.nan if after is None else after,
        cpu_utilisation=observer.utilisation("cpu"),
        memory_utilisation=observer.utilisation("memory"),
        memory_megabytes=session.memory_megabytes(),
        cpu_seconds={name: used - cpu_before[name] for name, used in session.cpu_seconds().items()},
    )


def scale_in(session: Session, documents: list[Document], show: Show, seconds: float = EMPTY_SECONDS) -> RunCounts:
    """Scale every Deployment to 0 and watch until no pod, claim and node of ours is left, or the time is up."""
    began = session.clock.monotonic()
    applying.scale(session.client, documents, 0)
    return watch(
        session,
        show,
        lambda counts: counts.nodes == 0 and counts.claims == 0 and counts.pods == 0,
        began,
        seconds,
    )


def watch(session: Session, show: Show, done: Callable[[RunCounts], bool], began: float, seconds: float) -> RunCounts:
    """Look five times a second until `done`, or `seconds` after `began`; returns the last counts.

    Raises:
        ProgramError: one of our programs ended by itself.
    """
    next_show = began
    while True:
        counts = session.observer.counts()
        session.programs.check()
        now = session.clock.monotonic()
        finished = done(counts)
        if now >= next_show or finished:
            show(now - began, counts)
            next_show = now + REDRAW_SECONDS
        if finished or now - began > seconds:
            return counts
        session.clock.sleep(POLL_SECONDS)
