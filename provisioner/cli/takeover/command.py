"""`dovetail takeover`: check, plan, start, status and back."""

import json
from pathlib import Path

import click

from provisioner.cli.takeover.inputs import ending, gathered, with_cluster
from provisioner.cli.takeover.texts import report_text
from provisioner.takeover.checking import report_on


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
