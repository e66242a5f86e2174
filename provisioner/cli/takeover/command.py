"""`dovetail takeover`: check, plan, start, status and back."""

import json
from pathlib import Path

import click

from provisioner.cli.plan import live
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.planning import PlanSettings
from provisioner.cli.takeover.inputs import TakeoverStop, ending, gathered, say, takeover_of, with_cluster
from provisioner.cli.takeover.saving import saving_of
from provisioner.cli.takeover.texts import (
    finding_lines,
    instruction_lines,
    report_text,
    status_for_programs,
    status_lines,
)
from provisioner.support import logs
from provisioner.support.clock import SystemClock
from provisioner.takeover.checking import report_on
from provisioner.takeover.findings import EXIT_FINDINGS, EXIT_FINE, exit_status_of
from provisioner.takeover.instructions import backward, forward
from provisioner.takeover.progress import StepKind, TakeoverPhase
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
    objects.read(*files)
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


@command.command(
    "start",
    help="""Take the cluster over from Karpenter, step by step.

    The first run holds drift, consolidation, expiration, repair and launches, and waits until Karpenter has stopped, Dovetail leads, and all
    NodeClaims are taken over. It never changes Karpenter's Deployment: it prints the command. Each further run releases one of the five,
    launches first and drift last.

    The command can be interrupted at any time; run it again to continue.
    """,
)
@with_cluster
@click.option("--all", "every", is_flag=True, help="Release everything, one after the other, with 30 s in between.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400),
    default=600.0,
    show_default=True,
    help="Maximum time in seconds to wait for Karpenter to stop, for Dovetail to lead, and for the NodeClaims.",
)
@ending
def start(kubeconfig: str, context: str, namespace: str, other_namespace: str, *, every: bool, timeout: float) -> int:
    """See `dovetail takeover start --help`."""
    with takeover_of(kubeconfig, context, namespace, other_namespace) as (takeover, report):
        if report.blocking:
            click.echo(lines("\n".join(["The takeover does not start:", *finding_lines(report.blocking)])))
            return exit_status_of(report.blocking)
        takeover.every, takeover.patience = every, timeout
        outcome = takeover.run()
        step, facts = outcome.step, outcome.facts
        if outcome.is_late:
            raise TakeoverStop(
                EXIT_FINDINGS, f"gave up after {timeout:.0f} s {step.text}; run the command again to continue"
            )
        if step.kind is StepKind.REFUSE:
            raise TakeoverStop(EXIT_FINDINGS, step.text)
        say(f"NodeClaims: {facts.standing.summary()}.")
        if step.kind is StepKind.RELEASE:
            say(f"Held: {', '.join(facts.held)}. Run the command again to release {step.activity}.")
        else:
            say("The takeover is complete; nothing is held.")
        return EXIT_FINE


@command.command(
    "status",
    help="""Show where the takeover from Karpenter stands: what is held, who holds the Leases, and what became of the NodeClaims.

    The exit status is 1 if no takeover has begun, if two NodeClaims have the same instance, or if Karpenter leads again.
    """,
)
@with_cluster
@click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@ending
def status(kubeconfig: str, context: str, namespace: str, other_namespace: str, output: str) -> int:
    """See `dovetail takeover status --help`."""
    with takeover_of(kubeconfig, context, namespace, other_namespace) as (takeover, _):
        facts = takeover.facts()
    click.echo(
        json.dumps(status_for_programs(facts), indent=2) if output == "json" else lines("\n".join(status_lines(facts)))
    )
    again = (
        facts.leads and facts.record is not None and facts.record.phase in (TakeoverPhase.ADOPTED, TakeoverPhase.DONE)
    )
    return EXIT_FINDINGS if facts.record is None or facts.standing.doubled or again else EXIT_FINE
