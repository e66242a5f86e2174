"""What the takeover commands are given: a cluster, or files that hold its objects."""

import functools
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
from provisioner.kube.errors import ApiError
from provisioner.support import logs
from provisioner.support.clock import Clock, SystemClock
from provisioner.support.errors import ExitStatus, UserError
from provisioner.takeover.checking import report_on
from provisioner.takeover.findings import NotDeterminedError, TakeoverReport
from provisioner.takeover.gathering import InputBuilder, read_cluster, take_document
from provisioner.takeover.starting import NEEDED, Takeover
from provisioner.takeover.takeover_input import OWN_NAMESPACE, TakeoverInput
from provisioner.values import printable

F = TypeVar("F", bound=Callable[..., Any])

CLUSTER_OPTIONS = (
    flags.cluster,
    click.option("--namespace", "-n", default=OWN_NAMESPACE, show_default=True, help="Namespace of Dovetail."),
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


class TakeoverStop(Exception):  # noqa: N818 - a command that ends, which need not be an error
    """The command ends with this exit status, after this text on the standard error."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(status, text)
        self.status, self.text = status, text


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


def ending(command: F) -> F:
    """Ends a command with the exit status of its kind: one place for all of them."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            status, text = command(*args, **kwargs), ""
        except TakeoverStop as stop:
            status, text = stop.status, stop.text
        except KeyboardInterrupt:
            status, text = ExitStatus.INTERRUPTED, "interrupted; run the same command again to continue"
        except (ApiError, NotDeterminedError) as error:
            status, text = ExitStatus.UNDETERMINED, f"the cluster could not be read: {error}"
        except UserError as error:
            status, text = error.exit_status, str(error)
        if text:
            click.echo(printable.lines(f"dovetail takeover: {text}"), err=True)
        click.get_current_context().exit(status)

    return run  # type: ignore[return-value]


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
        TakeoverStop: the files hold nothing, or a cluster is named too.
        ConfigError: no cluster is configured.
        ApiError: the cluster cannot be reached.
    """
    clock = SystemClock()
    if files and (kubeconfig or context):
        raise TakeoverStop(ExitStatus.USAGE, "specify either files or a cluster, not both")
    if files:
        builder = InputBuilder("files", namespace, other_namespace)
        for documents in files.values():
            for document in documents:
                take_document(builder, document)
        if not builder.found:
            raise TakeoverStop(ExitStatus.USAGE, "the files contain no objects that the check looks at")
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
