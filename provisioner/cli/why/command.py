"""`dovetail why`: why a pod has no node, and why a node is not disrupted or does not drain."""

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import click

from provisioner.cli.why import gathering
from provisioner.cli.why.text import node_text, pod_text
from provisioner.cli.why.world import Local, local
from provisioner.cloudprovider.kwok.catalogue import CatalogueError
from provisioner.controllers.why.answers import as_json
from provisioner.controllers.why.nodes import why_node
from provisioner.controllers.why.pods import why_pod
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ConfigError
from provisioner.options import HelpRequested, Options, OptionsError
from provisioner.support.clock import SystemClock
from provisioner.support.errors import UserError


@click.group()
def command() -> None:
    """Why a pod has no node, and why a node is not disrupted or does not drain.

    The command reads the objects of the cluster with your own rights, or from a dump (--from), and decides in this process what the provisioner
    would decide of them now. It asks no running provisioner and writes nothing. What only the running provisioner knows is not part of the
    answer: launches that failed a moment ago, nodes that it leaves alone for a while after a change, pods that it has given up on.
    """


def _common(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option(
            "--from",
            "-f",
            "files",
            multiple=True,
            metavar="FILE",
            help='Read a dump instead of the cluster, as "kubectl get -A -o yaml KINDS" writes it; "-" is standard input. Can be repeated.',
        ),
        click.option(
            "--at", default="", metavar="TIME", help="The time to decide for, as 2026-01-31T12:00:00Z. By default now."
        ),
        click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True),
        click.argument("settings", nargs=-1, type=click.UNPROCESSED),
    )
    for one in reversed(options):
        function = one(function)
    return function


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@_common
def pod(name: str, files: tuple[str, ...], at: str, output: str, settings: tuple[str, ...]) -> None:
    """Say why pod NAME (NAMESPACE/NAME) has no node.

    SETTINGS are flags of the provisioner that change its decisions (--preference-policy, --instance-types-file-path, ...), and --kubeconfig.
    """
    namespace, slash, own = name.rpartition("/")
    found = why_pod(gathered(files, at, settings), namespace if slash else "default", own)
    click.echo(as_json(found) if output == "json" else pod_text(found))


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@_common
def node(name: str, files: tuple[str, ...], at: str, output: str, settings: tuple[str, ...]) -> None:
    """Say why node NAME (of a Node or a NodeClaim) is not disrupted, or what blocks its drain.

    SETTINGS are flags of the provisioner that change its decisions (--feature-gates, --instance-types-file-path, ...), and --kubeconfig.
    """
    found = why_node(gathered(files, at, settings), name)
    click.echo(as_json(found) if output == "json" else node_text(found))


def gathered(files: Sequence[str], at: str, settings: Sequence[str]) -> Local:
    """The cluster that is asked about.

    Raises:
        UserError: settings, time, files or the cluster cannot be used.
    """
    try:
        options = Options.parse(settings, os.environ)
        when = datetime.fromisoformat(at) if at else SystemClock().now()
    except HelpRequested as text:
        raise UserError(str(text)) from None
    except (OptionsError, ValueError) as error:
        raise UserError(str(error)) from None
    if when.tzinfo is None:
        raise UserError(f"--at {at} has no time zone; write it as 2026-01-31T12:00:00Z")
    try:
        return local(gathering.from_files(files) if files else _from_cluster(options), options, when)
    except CatalogueError as error:
        raise UserError(str(error)) from None


def _from_cluster(options: Options) -> gathering.Objects:
    try:
        connection = connect(options.kubeconfig or None, user_agent="dovetail-why")
    except ConfigError as error:
        raise UserError(str(error)) from None
    try:
        return gathering.from_cluster(Client(connection, SystemClock()), options.system_namespace)
    finally:
        connection.close()
