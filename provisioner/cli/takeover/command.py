"""`dovetail takeover`: check, plan, start, status and back."""

import json
from pathlib import Path

import click

from provisioner.cli.documents import content
from provisioner.cli.plan import live
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.planning import PlanSettings
from provisioner.cli.takeover.inputs import ending, gathered, with_cluster
from provisioner.cli.takeover.saving import saving_of
from provisioner.cli.takeover.texts import instruction_lines, report_text
from provisioner.support import logs
from provisioner.support.clock import SystemClock
from provisioner.takeover.checking import report_on
from provisioner.takeover.findings import EXIT_FINDINGS
from provisioner.takeover.instructions import backward, forward
from provisioner.values.printable import lines


@click.group(
    help="""Take a cluster over from Karpenter 1.x, or from Cluster Autoscaler with managed node groups, and give it back.

    Each command can be interrupted and run again. The exit status is 0 if nothing was found or everything is done, 1 if there are findings
    or a step is not done, 2 if the usage is wrong or a file cannot be read, 3 if something could not be determined (the cluster cannot be
    reached, or a read was denied), and 130 if the command was interrupted.
    """
)
def command() -> None:
    """See `dovetail takeover --help`."""


@command.command(
    "check",
    help="""Show what stands in the way of a takeover, without changing anything.

    The check shows which other autoscalers run and what would start them again, who owns the CRDs, which settings and fields Dovetail does
    not know, how many NodeClaims would drift and why, webhooks, IAM roles and queues that are in use, and pods without a
    PodDisruptionBudget.

    FILES are objects as `kubectl get -o yaml` writes them; "-" is standard input. Without files, the cluster of the kubeconfig is read.
    """,
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@with_cluster
@click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@ending
def check(
    files: tuple[Path, ...], kubeconfig: str, context: str, namespace: str, other_namespace: str, output: str
) -> int:
    """See `dovetail takeover check --help`."""
    report = report_on(gathered(files, kubeconfig, context, namespace, other_namespace))
    click.echo(json.dumps(report.for_programs(), indent=2) if output == "json" else report_text(report))
    return report.exit_status


@command.command(
    "plan",
    help="""Show what a takeover from Karpenter would save, and its steps, without changing anything.

    The saving compares the same pods on both sides: those on nodes of which every pod fits a NodePool that can launch. What is left out is
    named. The steps include those for the CRDs, and those of the way back.

    FILES are as for check; without files, the cluster of the kubeconfig is read.
    """,
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@with_cluster
@click.option(
    "--catalogue", default="auto", show_default=True, help="Instance types and prices, as for `dovetail plan`."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=3.0,
    show_default=True,
    help="Maximum time to search for a plan that is cheaper than the greedy one.",
)
@click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@ending
def plan(
    files: tuple[Path, ...],
    kubeconfig: str,
    context: str,
    namespace: str,
    other_namespace: str,
    catalogue: str,
    seconds: float,
    output: str,
) -> int:
    """See `dovetail takeover plan --help`."""
    given = gathered(files, kubeconfig, context, namespace, other_namespace)
    report = report_on(given)
    logs.configure("error")
    clock, objects = SystemClock(), PlanObjects()
    for path in files:
        objects.read(path, content(path))
    if not files:
        live.read(objects, kubeconfig, context, clock)
    saved = saving_of(objects, catalogue, PlanSettings(seconds=seconds), clock)
    problems = tuple(dict.fromkeys(map(str, objects.problems)))
    there, back = forward(given), backward(given)
    if output == "json":
        body = {
            "version": 1,
            "saving": saved.for_programs(),
            "steps": [one.for_programs() for one in there],
            "back": [one.for_programs() for one in back],
            "problems": list(problems),
        }
        click.echo(json.dumps(body, indent=2))
    else:
        text = [*saved.lines(), "", "Steps:", *instruction_lines(there), "", "Back:", *instruction_lines(back)]
        click.echo(lines("\n".join(text)))
    for one in problems:
        click.echo(f"error: {one}", err=True)
    return report.exit_status if report.blocking else EXIT_FINDINGS if problems else 0
