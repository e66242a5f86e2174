"""`dovetail uninstall`: take away what Dovetail does in a cluster, and keep or drain its nodes."""

from collections.abc import Sequence
from contextlib import closing

import click

from provisioner.cli import flags
from provisioner.cli.uninstall.drain import Drainage
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.leaving.belongings import Keep
from provisioner.leaving.departure import Departure
from provisioner.leaving.gathering import CloudTags
from provisioner.support.clock import SystemClock
from provisioner.values import printable
from provisioner.values.errors import ExitStatus


@click.command(
    name="uninstall",
    help="""Leave the cluster without losing pods or nodes. Run it before you delete the manifests, or after.

    Without further flags, pods are no longer stamped: the webhook configurations are deleted, scheduling gates of Dovetail are removed from
    pods, and pending pods that only the scheduler of Dovetail would bind are deleted, so that their controllers create them again. Pods
    without a controller are listed, and the exit status is 1.

    With --keep-nodes, the provisioner is stopped, too, and its nodes continue to run: managed by Karpenter (--for karpenter), or without
    an autoscaler (--for nobody). With --drain, the running provisioner drains and terminates all nodes. The command can be interrupted at any time;
    run it again to continue.

    The exit status is 0 if everything was done, 1 if something remains for you to do or was refused, 2 for wrong usage, and 3 if the cluster or AWS did
    not answer or denied access.
    """,
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--keep-nodes", is_flag=True, help="Stop the provisioner, and keep its nodes running; requires --for.")
@click.option(
    "--for",
    "keep",
    type=click.Choice([one.value for one in Keep]),
    help="Who manages the nodes that are kept. karpenter: NodeClaims, finalizers and tags stay. nobody: they are removed.",
)
@click.option(
    "--drain", is_flag=True, help="Drain and terminate all nodes, within disruption budgets and PodDisruptionBudgets."
)
@click.option(
    "--leave-pending", is_flag=True, help="Drain nodes even if pods do not fit on other nodes; these pods stay pending."
)
@flags.own_namespace
@flags.cluster
def command(
    *,
    dry_run: bool,
    keep_nodes: bool,
    keep: str | None,
    drain: bool,
    leave_pending: bool,
    namespace: str,
    kubeconfig: str,
    context: str,
) -> int:
    """See `dovetail uninstall --help`."""
    if keep_nodes != (keep is not None):
        raise click.UsageError("--keep-nodes requires --for karpenter or --for nobody, and --for requires --keep-nodes")
    if keep_nodes and drain:
        raise click.UsageError("--keep-nodes keeps the nodes that --drain would terminate; use one of them")
    if leave_pending and not drain:
        raise click.UsageError("--leave-pending only applies to --drain")
    clock = SystemClock()
    with closing(
        connect(kubeconfig or None, user_agent="dovetail-uninstall", clock=clock, context=context)
    ) as connection:
        client = Client(connection, clock)
        departure = Departure(
            client, clock, namespace, _say, tags=_tags() if keep == Keep.FOR_NOBODY else None, dry_run=dry_run
        )
        drainage = Drainage(client, clock, namespace, _say, dry_run=dry_run) if drain else None
        if drainage is not None:
            drainage.check(leave_pending=leave_pending)
        problems = departure.stop_stamping()
        if keep is not None:
            problems += departure.keep_nodes(Keep(keep))
        if drainage is not None:
            drainage.run()
    return _end(problems, _what_next(keep_nodes=keep_nodes, drain=drain), dry_run=dry_run)


def _tags() -> CloudTags:
    from provisioner.cli.uninstall.collector_tags import CollectorTags  # noqa: PLC0415 - boto3 is big, other ways need none of it

    return CollectorTags()


def _say(text: str) -> None:
    click.echo(printable.one_line(text))


def _what_next(*, keep_nodes: bool, drain: bool) -> str:
    if keep_nodes:
        return "The nodes continue to run without Dovetail. Delete its manifests now."
    if drain:
        return (
            "All nodes of Dovetail are gone; launches stay paused. Delete NodePools and node classes, wait until they are gone, and then "
            "delete the manifests."
        )
    return (
        "Pods are no longer stamped. The provisioner still manages its nodes: run this command again with --keep-nodes or --drain before you "
        "delete the manifests."
    )


def _end(problems: Sequence[str], following: str, *, dry_run: bool) -> int:
    if problems:
        click.echo("To do:", err=True)
        for one in problems:
            click.echo(printable.one_line(f"- {one}"), err=True)
        return ExitStatus.FOUND
    _say("Nothing was changed." if dry_run else following)
    return ExitStatus.DONE
