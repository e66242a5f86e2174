"""`dovetail why`: why a pod has no node, and why a node is not disrupted or does not drain."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, TypeVar

import click
from msgspec.structs import replace

from provisioner.cli.why import gathering, leader
from provisioner.cli.why.text import node_text, pod_text
from provisioner.cli.why.world import Local, local
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.options import HelpRequested, Options, OptionsError
from provisioner.support.clock import SystemClock
from provisioner.support.errors import UserError
from provisioner.why.answers import NodeAnswer, PodAnswer, as_json
from provisioner.why.nodes import why_node
from provisioner.why.pods import why_pod

A = TypeVar("A", PodAnswer, NodeAnswer)

OF_WHERE: Final = frozenset(
    {"kubeconfig", "leader_election_name", "leader_election_namespace", "system_namespace", "why_port"}
)
"""Flags that say where the cluster is; all others change decisions, and the leader has its own."""


@click.group(
    help="""Show why a pod has no node, or why a node is not disrupted or does not drain.

    The command asks the leading provisioner through a port-forward, with your token; the leader answers about pods and nodes that you may get,
    and also uses what only it remembers. If that is not possible, or if flags of the provisioner are given, the command reads the objects of the
    cluster with your own permissions and decides what the provisioner would decide now. The answer says which of the two was used. With --from,
    the command reads a dump. It writes nothing.
    """
)
def command() -> None:
    """See `dovetail why --help`."""


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
        click.option(
            "--through",
            type=click.Choice(["auto", "leader", "own"]),
            default="auto",
            show_default=True,
            help="Ask the leader (leader), read the cluster with your own permissions (own), or the first of them that works (auto).",
        ),
        click.option(
            "--leader",
            "url",
            default="",
            metavar="URL",
            help="http://127.0.0.1:PORT, where a port-forward to the leader is open already.",
        ),
        click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True),
        click.argument("settings", nargs=-1, type=click.UNPROCESSED),
    )
    for one in reversed(options):
        function = one(function)
    return function


@dataclass(frozen=True, slots=True)
class Way:
    """Where an answer is to come from; fields are the flags."""

    files: tuple[str, ...]
    at: str
    through: str
    url: str
    settings: tuple[str, ...]


@command.command(
    context_settings={"ignore_unknown_options": True},
    help="""Show why pod NAME (NAMESPACE/NAME) has no node.

    SETTINGS are flags of the provisioner that change its decisions (--preference-policy, --instance-types-file-path, ...), and --kubeconfig.
    """,
)
@click.argument("name")
@_common
def pod(name: str, output: str, **way: Any) -> None:
    """See `dovetail why pod --help`."""
    first, slash, own = name.rpartition("/")
    namespace = first if slash else "default"
    found = _answer(Way(**way), ("pod", namespace, own), PodAnswer, lambda local: why_pod(local, namespace, own))
    click.echo(as_json(found) if output == "json" else pod_text(found))


@command.command(
    context_settings={"ignore_unknown_options": True},
    help="""Show why node NAME (a Node or a NodeClaim) is not disrupted, or what blocks its drain.

    SETTINGS are flags of the provisioner that change its decisions (--feature-gates, --instance-types-file-path, ...), and --kubeconfig.
    """,
)
@click.argument("name")
@_common
def node(name: str, output: str, **way: Any) -> None:
    """See `dovetail why node --help`."""
    found = _answer(Way(**way), ("node", name), NodeAnswer, lambda local: why_node(local, name))
    click.echo(as_json(found) if output == "json" else node_text(found))


def _answer(way: Way, about: tuple[str, ...], kind: type[A], decide: Callable[[Local], A]) -> A:
    """The answer, of the leader where it can be asked.

    Raises:
        UserError: there is none.
    """
    if way.files:
        if way.url or way.through == "leader":
            raise UserError("--from reads a dump, which no leader is asked about; leave out --leader and --through")
        return decide(gathered(way.files, way.at, way.settings))
    if way.through == "own" and way.url:
        raise UserError("--leader names a leader to ask, and --through=own asks none; leave one of them out")
    try:
        why_not = "of --through=own"
        if way.through != "own":
            return _asked(way, about, kind)
    except leader.NotAnsweredError as error:
        why_not = str(error)
        if way.through == "leader" or way.url:
            raise UserError(f"the leader could not be asked: {error}") from None
    try:
        found = decide(gathered((), way.at, way.settings))
    except UserError as error:
        if way.through == "own":
            raise
        raise UserError(f"{error}. The leader could not be asked either: {why_not}") from None
    joined = "because" if way.through == "own" else "because the leader could not be asked:"
    return replace(found, source=f"your own permissions, {joined} {why_not}")


def _asked(way: Way, about: tuple[str, ...], kind: type[A]) -> A:
    if way.at:
        raise leader.NotAnsweredError("it decides for the present, and --at is given")
    if not all(leader.is_name(part) for part in about[1:]):
        raise UserError(f"{'/'.join(about[1:])} is no name of a {about[0]}")
    options = parsed(way.settings)
    plain = parsed(())
    changed = [one.name for one in fields(options) if getattr(options, one.name) != getattr(plain, one.name)]
    if others := sorted(set(changed) - OF_WHERE):
        shown = ", ".join(f"--{one.replace('_', '-')}" for one in others)
        raise leader.NotAnsweredError(f"it decides by its own flags, and {shown} is given")
    clock = SystemClock()
    with closing(connect(options.kubeconfig or None, user_agent="dovetail-why")) as connection:

        def find() -> leader.Leader:
            if way.url:
                return leader.at(way.url, connection, clock)
            return leader.through(connection, options.leader_election_name, options.lease_namespace, clock)

        return leader.ask(find, f"/why/{'/'.join(about)}", kind)


def parsed(settings: Sequence[str]) -> Options:
    """Flags and variables of the provisioner.

    Raises:
        UserError: one cannot be used.
    """
    try:
        return Options.parse(settings, os.environ)
    except (HelpRequested, OptionsError) as text:
        raise UserError(str(text)) from None


def gathered(files: Sequence[str], at: str, settings: Sequence[str]) -> Local:
    """The cluster that is asked about.

    Raises:
        UserError: settings, time, files or the cluster cannot be used.
    """
    options = parsed(settings)
    try:
        when = datetime.fromisoformat(at) if at else SystemClock().now()
    except ValueError as error:
        raise UserError(str(error)) from None
    if when.tzinfo is None:
        raise UserError(f"--at {at} has no time zone; write it as 2026-01-31T12:00:00Z")
    return local(gathering.from_files(files) if files else _from_cluster(options), options, when)


def _from_cluster(options: Options) -> gathering.WhyObjects:
    with closing(connect(options.kubeconfig or None, user_agent="dovetail-why")) as connection:
        return gathering.from_cluster(Client(connection, SystemClock()), options.system_namespace)
