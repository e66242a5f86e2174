"""What the takeover commands are given: a cluster, or files that hold its objects."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from provisioner.cli import flags
from provisioner.cli.documents import inputs
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection, connect
from provisioner.support import logs
from provisioner.support.clock import Clock, SystemClock
from provisioner.takeover.checking import report_on
from provisioner.takeover.findings import TakeoverReport
from provisioner.takeover.gathering import InputBuilder, read_cluster, take_document
from provisioner.takeover.starting import NEEDED, Takeover
from provisioner.takeover.takeover_input import TakeoverInput
from provisioner.values import printable
from provisioner.values.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])

CLUSTER_OPTIONS = (
    flags.cluster,
    flags.own_namespace,
    click.option(
        "--other-namespace",
        default="",
        help="Namespace of Karpenter or Cluster Autoscaler, if it is not kube-system or karpenter.",
    ),
)


KARPENTER = "karpenter"
with_source = click.option(
    "--from",
    "source",
    type=click.Choice([KARPENTER, "cluster-autoscaler"]),
    default=KARPENTER,
    show_default=True,
    help="The autoscaler to take over from.",
)
GROUP_OPTIONS = (
    with_source,
    click.option("--cluster-name", default="", help="Name of the EKS cluster; read its managed node groups from AWS."),
    click.option(
        "--aws-region", default="", help="Region of the EKS cluster; if empty, that of your AWS configuration."
    ),
    click.option(
        "--group", multiple=True, help="Name of a managed node group; can be repeated. All of them if absent."
    ),
)


def with_cluster(command: F) -> F:
    """The options that say which cluster is meant."""
    for option in reversed(CLUSTER_OPTIONS):
        command = option(command)
    return command


def with_groups(command: F) -> F:
    """The options that say which node groups are meant."""
    for option in reversed(GROUP_OPTIONS):
        command = option(command)
    return command


@contextmanager
def cluster_of(kubeconfig: str, context: str, clock: Clock) -> Iterator[tuple[Client, ApiConnection]]:
    """A client of the cluster.

    Raises:
        ConfigError: no cluster is configured.
    """
    logs.configure("error")
    connection = connect(kubeconfig or None, user_agent="dovetail-takeover", clock=clock, context=context)
    with closing(connection):
        yield Client(connection, clock), connection


def gathered(
    files: Mapping[str, Sequence[object]], kubeconfig: str, context: str, namespace: str, other_namespace: str
) -> TakeoverInput:
    """What is known, from files where any are given, else from the cluster.

    Raises:
        UserError: the files hold nothing, or a cluster is named too.
        ConfigError: no cluster is configured.
        ApiError: the cluster cannot be reached.
    """
    clock = SystemClock()
    if files and (kubeconfig or context):
        raise UserError("specify either files or a cluster, not both")
    if files:
        builder = InputBuilder("files", namespace, other_namespace)
        for documents in files.values():
            for document in documents:
                take_document(builder, document)
        if not builder.found:
            raise UserError("the files contain no objects that the check looks at")
        return builder.built(clock.monotonic())
    with cluster_of(kubeconfig, context, clock) as (client, connection):
        builder = InputBuilder(f"cluster {connection.host}", namespace, other_namespace)
        read_cluster(builder, client, connection.authority)
        return builder.built(clock.monotonic())


@contextmanager
def takeover_of(
    kubeconfig: str, context: str, namespace: str, other_namespace: str
) -> Iterator[tuple[Takeover, TakeoverReport]]:
    """A takeover of a cluster from Karpenter, and what the check says of it as far as it matters for that.

    Raises:
        ConfigError: no cluster is configured.
        ApiError: the cluster cannot be reached.
    """
    clock = SystemClock()
    with cluster_of(kubeconfig, context, clock) as (client, connection):
        builder = InputBuilder(f"cluster {connection.host}", namespace, other_namespace)
        read_cluster(builder, client, connection.authority, NEEDED)
        given = builder.built(clock.monotonic())
        yield Takeover(client, clock, say, given, other_namespace), report_on(given)


def say(text: str) -> None:
    """A line for people, at once: whoever waits for it sees it."""
    click.echo(printable.lines(text))
    sys.stdout.flush()


def contents_of(files: Sequence[Path]) -> dict[str, list[object]]:
    """The objects that files hold, by name of the file, each read once.

    Raises:
        InputError: a file cannot be read.
    """
    return {file.name: list(file.objects()) for file in inputs(files)}
