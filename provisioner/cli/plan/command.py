"""`dovetail plan`: which nodes pods would get, what they would cost, and what they cost at least."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from provisioner.apis.karpenter import NodePool
from provisioner.cli import flags
from provisioner.cli.documents import InputError
from provisioner.cli.files import write_file
from provisioner.cli.plan import live
from provisioner.cli.plan.catalogues import PlanCatalogue, catalogues_named, chosen
from provisioner.cli.plan.objects import DEFAULT_NAMESPACE, InputProblem, PlanObjects
from provisioner.cli.plan.page import page_of_plan
from provisioner.cli.plan.picture import picture
from provisioner.cli.plan.planning import PlanSettings, plan
from provisioner.cli.plan.questions import current_of, pods_in, question_of
from provisioner.cli.plan.texts import PlannedRow, PlanReport, as_json, as_text
from provisioner.cli.plan.workloads import workload_of
from provisioner.packing.protocol import ROUNDS, SEED
from provisioner.support import logs
from provisioner.support.clock import Clock, SystemClock
from provisioner.ui.document import alone
from provisioner.ui.page import MOST_BYTES, encoded
from provisioner.values.errors import ExitStatus, UserError

_MAX_SECONDS = 600.0
_MAX_ROUNDS = 100_000


@click.command(
    name="plan",
    help="""Plan nodes for pods and show what they cost, without changing anything.

    FILES are Kubernetes objects in YAML or JSON, also Lists as `kubectl get -o yaml` writes them; "-" is standard input. Deployments,
    ReplicaSets, StatefulSets, Jobs and pods are planned; DaemonSets, nodes, NodePools, EC2NodeClasses and what volumes need are taken
    into account. With --kubeconfig or --context, the objects of a live cluster are read; read permissions are sufficient.

    The exit status is 0 if everything was read, 1 if the condition of --fail-on is met, 2 if a file cannot be read, and 3 if objects were left out or
    the cluster could not be read; what was left out is listed at the end.
    """,
)
@flags.files(required=False)
@flags.cluster
@flags.namespace
@click.option(
    "--catalogue",
    default="auto",
    show_default=True,
    shell_complete=catalogues_named,
    help="Instance types and prices: kwok, kwok:FILE (as in INSTANCE_TYPES_FILE_PATH), or ec2:REGION. auto follows the NodePools and nodes in the input.",
)
@click.option("--current", is_flag=True, help="Plan all pods from scratch and compare the cost with the current nodes.")
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path),
    help="Two files of NodePools and EC2NodeClasses; plan with each of them instead of the NodePools in the input.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, _MAX_SECONDS),
    default=3.0,
    show_default=True,
    help="Maximum time to search for a plan that is cheaper than the greedy one.",
)
@click.option(
    "--solve-deadline",
    type=click.FloatRange(0.1, _MAX_SECONDS),
    default=10.0,
    show_default=True,
    help="Maximum time for the greedy plan in seconds, like the provisioner's flag of this name; the remaining pods are not planned.",
)
@click.option(
    "--rounds",
    type=click.IntRange(0, _MAX_ROUNDS),
    default=ROUNDS,
    show_default=True,
    help="Maximum number of improvement rounds; up to ten times that number for fewer than 300 pods, whose rounds are shorter. "
    "If they finish within --seconds, the same input gives the same plan.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=SEED, show_default=True, help="Seed of the random choices."
)
@click.option("--greedy", is_flag=True, help="Print the greedy plan without improving it.")
@flags.output("table")
@flags.fail_on("nothing", "unschedulable", default="nothing", meaning="if a pod cannot be placed")
@click.option(
    "--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture of the nodes to this file."
)
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page of the nodes and pods to this file."
)
def command(
    files: tuple[Path, ...],
    kubeconfig: str,
    context: str,
    namespace: str,
    catalogue: str,
    *,
    current: bool,
    compare: tuple[Path, Path] | None,
    seconds: float,
    solve_deadline: float,
    rounds: int,
    seed: int,
    greedy: bool,
    output: str,
    fail_on: str,
    svg: Path | None,
    html: Path | None,
) -> None:
    """See `dovetail plan --help`."""
    if not files and not kubeconfig and not context:
        raise click.UsageError("No input. Specify files, or a live cluster with --kubeconfig or --context.")
    if (svg is not None or html is not None) and compare:
        raise click.UsageError(
            "--svg and --html cannot be combined with --compare. Specify one of the two files as input instead."
        )
    logs.configure("error")  # what keeps the planning process from answering is told with the plan
    clock = SystemClock()
    objects = PlanObjects(default_namespace=namespace or DEFAULT_NAMESPACE)
    objects.read(*files)
    if not objects.count and objects.problems and not (kubeconfig or context):
        raise InputError(objects.problems[0].file, objects.problems[0].text)
    if kubeconfig or context:
        live.read(objects, kubeconfig, context, clock)
    settings = PlanSettings(seconds, rounds, seed, improve=not greedy, solve_seconds=solve_deadline)
    report = reported(objects, catalogue, compare or (), settings, clock, current=current)
    if output == flags.JSON:
        click.echo(json.dumps(as_json(report), indent=2))
    else:
        click.echo(as_text(report))
    if svg is not None:
        drawn = picture(_title(report), report.plans[0].answer.result.claims, workload_of)
        write_file(svg, drawn.encode(), "--svg")
    if html is not None:
        one = report.plans[0]
        page = page_of_plan(_title(report), one.answer.result, one.fleet, clock.now(), _sign(report))
        write_file(html, alone(encoded(page, MOST_BYTES)), "--html")
    _end(report.problems)
    if fail_on != "nothing" and any(one.fleet.left for one in report.plans):
        click.get_current_context().exit(ExitStatus.FOUND)


def _end(problems: Sequence[InputProblem]) -> None:
    """Tell the problems, and end the command where there are any."""
    if not problems:
        return
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    count = len(problems)
    what = "1 problem; this object is not" if count == 1 else f"{count} problems; these objects are not"
    click.echo(f"{what} part of the plan", err=True)
    unread = any(one.is_unread for one in problems)
    click.get_current_context().exit(ExitStatus.USAGE if unread else ExitStatus.UNDETERMINED)


def reported(
    objects: PlanObjects,
    catalogue: str,
    compare: Sequence[Path],
    settings: PlanSettings,
    clock: Clock,
    *,
    current: bool = False,
) -> PlanReport:
    """Plan what was read, once or for each file of NodePools.

    Raises:
        UserError: there is no such catalogue, or nothing to compare with.
    """
    if current and not objects.nodes:
        raise UserError("--current needs nodes, but the input has none. Add the output of `kubectl get nodes -o yaml`")
    pods = pods_in(objects)
    variants: list[tuple[str, PlanObjects, list[NodePool]]] = [("", objects, objects.pools)]
    if compare:
        variants = []
        for path in compare:
            own = PlanObjects(default_namespace=objects.default_namespace)
            own.read(path)
            if not own.pools:
                own.complain(
                    InputProblem(str(path), "", "", "has no usable NodePool to compare; give a file with at least one")
                )
            objects.problems += own.problems
            objects.notes += [f"{_short(path, compare)}: {note}" for note in own.notes]
            merged = replace(objects, pools=own.pools, classes={**objects.classes, **own.classes})
            variants.append((_short(path, compare), merged, own.pools))
        variants = [one for one in variants if one[2]]
    plans: list[PlannedRow] = []
    table: PlanCatalogue | None = None
    for name, some, pools in variants:
        table = chosen(catalogue, some)
        question = question_of(some, pods, pools, table, clock, anew=current)
        answer = plan(question, settings)
        plans.append(
            PlannedRow.of(name, len(question.pods) + question.refusing, answer, question.notes, question.refusing)
        )
    table = table or chosen(catalogue, objects)
    now = current_of(objects, table, clock) if current else None
    return PlanReport(table, tuple(plans), now, tuple(objects.problems), objects.ignored, tuple(objects.notes))


def _short(path: Path, others: Sequence[Path]) -> str:
    return path.name if len({one.name for one in others}) == len(others) else str(path)


def _title(report: PlanReport) -> str:
    one = report.plans[0].fleet
    return f"{one.nodes:,} nodes for {one.pods:,} pods: {one.usd_per_hour:.4f} {report.table.currency} per hour"


def _sign(report: PlanReport) -> str:
    """What stands before a price."""
    return "$" if report.table.currency == "USD" else f"{report.table.currency} "
