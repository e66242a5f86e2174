"""`dovetail takeover`: check, plan, start, status and back."""

import json
from pathlib import Path

import click

from provisioner.cli import flags
from provisioner.cli.plan import live
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.planning import PlanSettings
from provisioner.cli.takeover.back import give_back
from provisioner.cli.takeover.groups import drain_groups, groups_back, groups_in, groups_of, groups_status, plan_groups
from provisioner.cli.takeover.inputs import (
    KARPENTER,
    contents_of,
    gathered,
    say,
    takeover_of,
    with_cluster,
    with_groups,
    with_source,
)
from provisioner.cli.takeover.saving import saving_of
from provisioner.cli.takeover.texts import (
    finding_lines,
    instruction_lines,
    report_text,
    status_for_programs,
    status_lines,
    text_of,
)
from provisioner.leaving.departure import Departure
from provisioner.support import logs
from provisioner.support.clock import SystemClock
from provisioner.takeover.checking import report_on
from provisioner.takeover.findings import exit_status_of
from provisioner.takeover.instructions import backward, forward
from provisioner.takeover.progress import StepKind, TakeoverPhase
from provisioner.takeover.takeover_input import ProgramKind
from provisioner.values.errors import ExitStatus, RefusedError, UserError


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
    help="""Show what would prevent a takeover, without changing anything.

    The check shows which other autoscalers run and what would start them again, who owns the CRDs, which settings and fields Dovetail does
    not know, how many NodeClaims would drift and why, webhooks, IAM roles and queues that are in use, and pods without a
    PodDisruptionBudget.

    FILES are objects as `kubectl get -o yaml` writes them; "-" is standard input. Without files, the cluster of the kubeconfig is read.
    """,
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@with_cluster
@flags.output("text")
def check(
    files: tuple[Path, ...], kubeconfig: str, context: str, namespace: str, other_namespace: str, output: str
) -> int:
    """See `dovetail takeover check --help`."""
    report = report_on(gathered(contents_of(files), kubeconfig, context, namespace, other_namespace))
    click.echo(json.dumps(report.for_programs(), indent=2) if output == "json" else report_text(report))
    return report.exit_status


@command.command(
    "plan",
    help="""Show what a takeover would save, and its steps, without changing anything.

    With --from cluster-autoscaler, managed node groups become NodePools and EC2NodeClasses; -o yaml prints them. The groups are read from AWS
    (--cluster-name), or from files with the output of `aws eks describe-nodegroup`.

    The saving compares the same pods on both sides: the pods of nodes where every pod fits a NodePool that can launch nodes. The output
    names what is left out. The steps include those for the CRDs, and those to go back.

    FILES are as for check; without files, the cluster of the kubeconfig is read. With --kubeconfig or --context, files hold the node groups.
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
    "--output",
    "-o",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@with_groups
def plan(
    files: tuple[Path, ...],
    kubeconfig: str,
    context: str,
    namespace: str,
    other_namespace: str,
    catalogue: str,
    seconds: float,
    output: str,
    source: str,
    cluster_name: str,
    aws_region: str,
    group: tuple[str, ...],
) -> int:
    """See `dovetail takeover plan --help`."""
    if output == "yaml" and source == KARPENTER:
        raise UserError("-o yaml prints NodePools of node groups; use it with --from cluster-autoscaler")
    contents, is_live = contents_of(files), source != KARPENTER and bool(kubeconfig or context)
    given = gathered({} if is_live else contents, kubeconfig, context, namespace, other_namespace)
    report = report_on(given)
    logs.configure("error")
    clock, objects = SystemClock(), PlanObjects()
    if contents and not is_live:
        for name, documents in contents.items():
            for one in documents:
                objects.take(name, one)
    else:
        live.read(objects, kubeconfig, context, clock)
    if source != KARPENTER:
        groups = groups_of(groups_in(contents), cluster_name, aws_region, group)
        return plan_groups(given, groups, objects, catalogue, PlanSettings(seconds=seconds), clock, output)
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
        click.echo(text_of(text))
    for one in problems:
        click.echo(f"error: {one}", err=True)
    return report.exit_status if report.blocking else ExitStatus.FOUND if problems else ExitStatus.DONE


@command.command(
    "start",
    help="""Take the cluster over, step by step.

    From Karpenter, the first run holds drift, consolidation, expiration, repair and launches, and waits until Karpenter has stopped, Dovetail leads, and all
    NodeClaims are taken over. It never changes Karpenter's Deployment: it prints the command. Each further run releases one of the five,
    launches first and drift last.

    From Cluster Autoscaler, the nodes of a managed node group are cordoned, and their pods are evicted, group by group; budgets and the
    annotations that protect pods from disruption are respected. Cluster Autoscaler must be stopped, or must not scale the group. FILES hold the
    output of `aws eks describe-nodegroup`; without them, --cluster-name reads the groups from AWS.

    The command can be interrupted at any time; run it again to continue.
    """,
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@with_cluster
@click.option("--all", "every", is_flag=True, help="Release everything, one after the other, with 30 s in between.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400),
    default=600.0,
    show_default=True,
    help="Maximum time in seconds to wait for one thing: Karpenter to stop, Dovetail to lead, pods to find a node.",
)
@click.option(
    "--apply-aws",
    is_flag=True,
    help="Reduce node groups that are empty to their minimum, with your AWS credentials (eks:UpdateNodegroupConfig).",
)
@click.option(
    "--nodes-at-once",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Nodes of a node group whose pods are evicted at the same time.",
)
@with_groups
def start(
    files: tuple[Path, ...],
    kubeconfig: str,
    context: str,
    namespace: str,
    other_namespace: str,
    source: str,
    cluster_name: str,
    aws_region: str,
    group: tuple[str, ...],
    *,
    every: bool,
    timeout: float,
    apply_aws: bool,
    nodes_at_once: int,
) -> int:
    """See `dovetail takeover start --help`."""
    if source != KARPENTER:
        return drain_groups(
            contents_of(files),
            kubeconfig,
            context,
            namespace,
            other_namespace,
            cluster=cluster_name,
            region=aws_region,
            chosen=group,
            apply_aws=apply_aws,
            at_once=nodes_at_once,
            timeout=timeout,
        )
    if files:
        raise UserError("files describe node groups; use them with --from cluster-autoscaler")
    with takeover_of(kubeconfig, context, namespace, other_namespace) as (takeover, report):
        if report.blocking:
            click.echo(text_of(["The takeover does not start:", *finding_lines(report.blocking)]))
            return exit_status_of(report.blocking)
        takeover.every, takeover.patience = every, timeout
        outcome = takeover.run()
        step, facts = outcome.step, outcome.facts
        if outcome.is_late:
            raise RefusedError(f"gave up after {timeout:.0f} s {step.text}; run the command again to continue")
        if step.kind is StepKind.REFUSE:
            raise RefusedError(step.text)
        say(f"NodeClaims: {facts.standing.summary()}.")
        if step.kind is StepKind.RELEASE:
            say(f"Held: {', '.join(facts.held)}. Run the command again to release {step.activity}.")
        else:
            say("The takeover is complete; nothing is held.")
        return ExitStatus.DONE


@command.command(
    "status",
    help="""Show where the takeover stands: from Karpenter, what is held, who holds the Leases, and the state of the NodeClaims; from Cluster
    Autoscaler, which nodes are cordoned and which pods remain.

    The exit status is 1 if no takeover has begun, if two NodeClaims have the same instance, if Karpenter leads again, or if pods of a node
    group are not evicted.
    """,
)
@with_cluster
@flags.output("text")
@with_source
def status(kubeconfig: str, context: str, namespace: str, other_namespace: str, output: str, source: str) -> int:
    """See `dovetail takeover status --help`."""
    if source != KARPENTER:
        return groups_status(kubeconfig, context, namespace, other_namespace, output)
    with takeover_of(kubeconfig, context, namespace, other_namespace) as (takeover, _):
        facts = takeover.standing()
    click.echo(json.dumps(status_for_programs(facts), indent=2) if output == "json" else text_of(status_lines(facts)))
    runs = any(one.replicas for one in takeover.given.programs_of(ProgramKind.KARPENTER))
    taken = facts.record is not None and facts.record.phase in (TakeoverPhase.ADOPTED, TakeoverPhase.DONE)
    again = bool(facts.leads) and runs and taken
    return ExitStatus.FOUND if facts.record is None or facts.standing.doubled or again else ExitStatus.DONE


@command.command(
    "back",
    help="""Give the cluster back: to Karpenter, or the nodes of managed node groups to Cluster Autoscaler.

    For Karpenter, this is `dovetail uninstall --keep-nodes --for karpenter`: Dovetail is stopped, and what it added to objects is removed;
    NodeClaims, nodes and instances stay. For Cluster Autoscaler, nodes that a takeover cordoned become schedulable again. The next steps are
    printed; the other autoscaler is not changed. The command can be interrupted; run it again to continue.
    """,
)
@with_cluster
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@with_source
def back(kubeconfig: str, context: str, namespace: str, other_namespace: str, source: str, *, dry_run: bool) -> int:
    """See `dovetail takeover back --help`."""
    if source != KARPENTER:
        return groups_back(kubeconfig, context, namespace, dry_run=dry_run)
    with takeover_of(kubeconfig, context, namespace, other_namespace) as (takeover, _):
        leaving = Departure(takeover.client, takeover.clock, namespace, say, dry_run=dry_run)
        found = give_back(leaving)
        if steps := instruction_lines(backward(takeover.given)[1:]):
            click.echo(text_of(["Next:", *steps]))
        return found
