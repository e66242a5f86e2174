"""`dovetail demo`: 1,000 pending pods get nodes on a real control plane, which are removed again."""

import sys
from pathlib import Path

import click
from rich.console import Console

from provisioner.kube.errors import ApiError
from provisioner.lab.devcluster.errors import DevClusterError
from provisioner.lab.devcluster.progress import StepProgress
from provisioner.lab.harness import aws, results
from provisioner.lab.harness.figures import calls, read
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.outcome import DemoResult
from provisioner.lab.harness.programs import ProgramError
from provisioner.lab.harness.results import Figure, at_least, at_most
from provisioner.lab.harness.running import DemoRun, scale_in, scale_out
from provisioner.lab.harness.scoreboard import RunCounts
from provisioner.lab.harness.session import (
    ALL_PROGRAMS,
    AWS,
    PLANNER,
    PROVISIONER,
    Interrupted,
    Setup,
    interruptible,
    session,
)
from provisioner.lab.harness.table import live, teller
from provisioner.lab.harness.workload import REPOSITORY, ExampleError, example, pods_of, renamed, scaled
from provisioner.lab.hpa import run_hpa
from provisioner.lab.progress import progress_for
from provisioner.values import printable

DEFAULT_PODS = 1000
ALL_RUNNING_GOAL_SECONDS = 25.0
CLAIMS_GOAL_SECONDS = 1.0
PLANNING_SECONDS = 1.0
"""The planning process may take so much longer for a thousand pods."""
PROVISIONER_GOAL_MEGABYTES = 150.0
AWS_PROVISIONER_GOAL_MEGABYTES = 200.0
PLANNER_GOAL_MEGABYTES = 300.0
TOTAL_GOAL_MEGABYTES = 350.0
ERRORS = (DevClusterError, ExampleError, ProgramError, ApiError, Interrupted, TimeoutError, OSError)


@click.command(
    "demo",
    help="""Create 1,000 pending pods on a real control plane, wait for their nodes, and remove both again.

    Four of the twelve Deployments spread across zones or nodes with DoNotSchedule. Needs nothing but this checkout: a separate dev cluster is built or found,
    started, and taken down at the end.
    """,
)
@click.option("--pods", type=click.IntRange(min=12), default=DEFAULT_PODS, show_default=True, help="Number of pods.")
@click.option(
    "--cloud",
    type=click.Choice(["kwok", "aws"]),
    default="kwok",
    show_default=True,
    help="Where nodes come from: kwok simulates them, or boto3 launches instances in an EC2 emulator.",
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.EVERYTHING_ON.value,
    show_default=True,
    help="What carries the plan into kube-scheduler: webhook and extender, the provisioner's nominations, or nothing.",
)
@click.option(
    "--packing",
    type=click.Choice(["cost", "greedy"]),
    default="cost",
    show_default=True,
    help="How nodes are chosen: by the cost planner, or by decreasing size of the pods.",
)
@click.option(
    "--hpa",
    is_flag=True,
    help="Instead: a HorizontalPodAutoscaler takes a Deployment from 1 to 10 replicas and back while its load rises and falls. "
    "About seven minutes; builds metrics-server first.",
)
@click.option(
    "--results",
    "results_directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=REPOSITORY / "results",
    help="Where demo.json, or hpa.json and the picture hpa.svg, are written.",
)
def command(pods: int, cloud: str, mode: str, packing: str, hpa: bool, results_directory: Path) -> None:
    """See `dovetail demo --help`."""
    if hpa and (cloud == AWS or pods != DEFAULT_PODS):
        raise click.UsageError("--hpa runs one workload on kwok; leave out --cloud and --pods")
    console = Console(highlight=False)
    try:
        with interruptible():
            if hpa:
                sys.exit(_hpa(console, results_directory, Mode(mode), packing))
            outcome = run_demo(console, pods, results_directory, progress_for(sys.stdout), cloud, Mode(mode), packing)
    except ERRORS as error:
        teller(console)(printable.lines(f"demo failed: {error}"))
        sys.exit(130 if isinstance(error, Interrupted) else 1)
    teller(console)(outcome.line())
    sys.exit(outcome.exit_code)


def _hpa(console: Console, results_directory: Path, mode: Mode, packing: str) -> int:
    say = teller(console)
    figures = run_hpa(say, lambda: live(console), results_directory, progress_for(sys.stdout), mode, packing)
    for figure in figures:
        say(figure.line())
    missed = [figure.name for figure in figures if figure.met is False]
    say(f"demo failed: {', '.join(missed)}" if missed else "demo ok")
    return 1 if missed else 0


def run_demo(
    console: Console,
    pods: int,
    results_directory: Path,
    progress: StepProgress,
    cloud: str = "kwok",
    mode: Mode = Mode.EVERYTHING_ON,
    packing: str = "cost",
) -> DemoResult:
    """The whole demo but its last line; everything is taken down again when this returns or raises.

    Raises:
        DevClusterError, ExampleError, ProgramError, ApiError, Interrupted: what failed, with what to do.
    """
    on_aws = cloud == AWS
    pools = example("aws/nodepools.yaml" if on_aws else "nodepools.yaml")
    workload = renamed(scaled(example("workload.yaml"), pods), aws.ZONES if on_aws else {})

    say = teller(console)
    name = f"demo-{cloud}" if on_aws else "demo"
    name += "" if mode is Mode.EVERYTHING_ON else f"-{mode}"
    setup = Setup(
        name, mode.programs, (*mode.flags, f"--packing={packing}"), logs=results_directory / f"{name}-logs", cloud=cloud
    )
    with session(setup, say, progress) as run:
        run.apply_pools(pools)
        say(f"applying {pods_of(workload)} pods in 12 Deployments and a DaemonSet; pools general and dedicated")
        with live(console) as show:
            out = scale_out(run, workload, show)
        figures = figures_of(out, on_aws=on_aws, mode=mode)
        for (kind, capacity_type), count in run.observer.kinds().items() if on_aws else ():
            say(f"{count:4d} x {kind} {capacity_type}")
        for figure in figures:
            say(figure.line())
        say("scaling every Deployment to 0")
        with live(console) as show:
            left = scale_in(run, workload, show)
        outcome = judge(out, left, mode)
        if on_aws:
            for action, count in sorted(calls(read(run.metrics_url)).items()):
                say(f"{count:4d} calls of {action}")
        if outcome.problems():
            run.keep_logs(say)
    figures = [*figures, Figure("nodes left", left.nodes, "nodes", at_most(0))]
    path = results.write(results_directory, name, figures)
    say(f"figures: {path}")
    return outcome


def judge(out: DemoRun, left: RunCounts, mode: Mode = Mode.EVERYTHING_ON) -> DemoResult:
    """The figures of the last line; `left` are the counts after everything was scaled to 0."""
    return DemoResult(out, max(left.nodes, left.claims), mode.placement_goal, mode.nomination_goal)


def placement_figures(out: DemoRun, mode: Mode, prefix: str = "", *, steered: bool = True) -> list[Figure]:
    """How many pods run where they were planned, and of those that were nominated; with the mode's goals.

    Args:
        out: what was seen.
        mode: what carried the plan.
        prefix: of the figures' names.
        steered: whether a nomination decides where a pod is bound; of pods with a hard spread some take each other's nodes, as zones fill.
    """
    planned, nominated = out.placement, out.nominations
    goal = None if mode.placement_goal is None else at_least(mode.placement_goal)
    figures = [
        Figure(f"{prefix}planned placement", planned.percent, "%", goal),
        Figure(f"{prefix}pods with a plan", planned.planned, "pods"),
        Figure(f"{prefix}planned pods absorbed elsewhere", planned.absorbed, "pods"),
    ]
    if mode.nomination_goal is not None:
        least = at_least(mode.nomination_goal) if steered else None
        figures.append(Figure(f"{prefix}placement of the nominated pods", nominated.percent, "%", least))
        figures.append(Figure(f"{prefix}pods nominated", nominated.planned, "pods"))
    return figures


def figures_of(out: DemoRun, *, on_aws: bool = False, mode: Mode = Mode.EVERYTHING_ON) -> list[Figure]:
    """Everything that is measured, with the goals of the project; instances that boot have no goal of time."""
    memory = {name: megabytes for name, megabytes in out.memory_megabytes.items() if name in ALL_PROGRAMS}
    planner = out.memory_megabytes.get(PLANNER)
    of_provisioner = AWS_PROVISIONER_GOAL_MEGABYTES if on_aws else PROVISIONER_GOAL_MEGABYTES
    return [
        Figure("workload running", out.counts.running, "pods", at_least(out.pods)),
        Figure("nodes", out.counts.nodes, "nodes"),
        Figure("cost", out.counts.usd_per_hour, "$/h"),
        *placement_figures(out, mode),
        Figure("pods stamped", out.counts.stamped, "pods"),
        Figure("first pod running", out.first_running_seconds, "s"),
        Figure("all pods running", out.all_running_seconds, "s", None if on_aws else at_most(ALL_RUNNING_GOAL_SECONDS)),
        Figure(
            "last claim after the window",
            out.last_claim_after_window_seconds,
            "s",
            None if on_aws else at_most(CLAIMS_GOAL_SECONDS + (PLANNING_SECONDS if planner else 0.0)),
        ),
        Figure("pods bound per second", out.bound_per_second, "1/s"),
        *(
            Figure(
                f"memory of the {name}",
                megabytes,
                "MB PSS",
                at_most(of_provisioner) if name == PROVISIONER else None,
            )
            for name, megabytes in sorted(memory.items())
        ),
        *(
            [Figure("memory of the planning process", planner, "MB PSS", at_most(PLANNER_GOAL_MEGABYTES))]
            if planner is not None
            else []
        ),
        Figure(
            "memory of all programs",
            sum(memory.values()),
            "MB PSS",
            at_most(TOTAL_GOAL_MEGABYTES + of_provisioner - PROVISIONER_GOAL_MEGABYTES),
        ),
        *(Figure(f"CPU time, {name}", seconds, "s") for name, seconds in sorted(out.cpu_seconds.items())),
    ]
