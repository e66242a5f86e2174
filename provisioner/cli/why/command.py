"""`dovetail why`: why a pod has no node, and why a node is not disrupted or does not drain."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import click
from msgspec.structs import replace

from provisioner.cli import flags
from provisioner.cli.completion import nodes_named, pods_named
from provisioner.cli.why import gathering, leader
from provisioner.cli.why.text import node_text, pod_text
from provisioner.cli.why.world import Local, local
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection, connect
from provisioner.options import Options, WithSettings
from provisioner.support.clock import Clock, SystemClock
from provisioner.values.errors import ExitStatus, UndeterminedError
from provisioner.why.answers import NodeAnswer, PodAnswer, as_json
from provisioner.why.nodes import why_node
from provisioner.why.pods import why_pod

A = TypeVar("A", PodAnswer, NodeAnswer)

OF_WHERE: Final = frozenset(
    {"kubeconfig", "leader_election_name", "leader_election_namespace", "system_namespace", "why_port"}
)
"""Flags that say where the cluster is; all others change decisions, and the leader has its own."""
_TYPES: Final = {
    "pod": frozenset({"po", "pod", "pods"}),
    "node": frozenset(
        {"no", "node", "nodes", "nodeclaim", "nodeclaims", "nodeclaims.karpenter.sh", "nodeclaim.karpenter.sh"}
    ),
}
"""What kubectl writes before a name and a slash, by what is asked about."""


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
        flags.cluster,
        flags.output("text"),
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
    kubeconfig: str
    context: str

    def check(self) -> None:
        """Refuse what contradicts itself, before anybody is asked.

        Raises:
            UsageError: it does.
        """
        if self.files and (self.url or self.through == "leader"):
            raise click.UsageError("--from reads a dump instead of asking a leader; omit --leader and --through")
        if self.through == "own" and self.url:
            raise click.UsageError("--leader names the leader to ask, and --through=own asks none; omit one of them")

    def connection(self) -> ApiConnection:
        """To the cluster that is meant.

        Raises:
            ConfigError: the kubeconfig cannot be used.
        """
        return connect(
            self.kubeconfig or flags.settings(self.settings).kubeconfig or None,
            user_agent="dovetail-why",
            context=self.context,
        )


@command.command(
    cls=WithSettings,
    context_settings={"ignore_unknown_options": True},
    help="""Show why pod NAME has no node; NAME may be NAMESPACE/NAME.

    SETTINGS are flags of the provisioner that change its decisions (--preference-policy, --instance-types-file-path, ...).

    The exit status is 0 if there is an answer, 1 if there is no such pod, and 3 if the answer could not be determined or leaves out what could not be
    read.
    """,
)
@click.argument("name", shell_complete=pods_named)
@flags.namespace
@_common
def pod(name: str, namespace: str, output: str, **given: Any) -> None:
    """See `dovetail why pod --help`."""
    way = Way(**given)
    way.check()
    if name.partition("/")[0] != namespace:  # one that is called so
        _check_no_type("pod", name)
    first, slash, own = name.rpartition("/")
    if slash and namespace not in ("", first):
        raise click.UsageError(f"pod {name} is not in namespace {namespace}; specify only one of the two")
    where = first if slash else namespace or _usual_namespace(way)
    found = _answer(way, ("pod", where, own), PodAnswer, lambda local: why_pod(local, where, own))
    _tell(found, as_json(found.answer) if output == flags.JSON else pod_text(found.answer))


@command.command(
    cls=WithSettings,
    context_settings={"ignore_unknown_options": True},
    help="""Show why node NAME (a Node or a NodeClaim) is not disrupted, or what blocks its drain.

    SETTINGS are flags of the provisioner that change its decisions (--feature-gates, --instance-types-file-path, ...).

    The exit status is 0 if there is an answer, 1 if there is no such node, and 3 if the answer could not be determined or leaves out what could not
    be read.
    """,
)
@click.argument("name", shell_complete=nodes_named)
@_common
def node(name: str, output: str, **given: Any) -> None:
    """See `dovetail why node --help`."""
    way = Way(**given)
    way.check()
    _check_no_type("node", name)
    found = _answer(way, ("node", name), NodeAnswer, lambda local: why_node(local, name))
    _tell(found, as_json(found.answer) if output == flags.JSON else node_text(found.answer))


def _check_no_type(kind: str, name: str) -> None:
    """Refuse TYPE/NAME, as `kubectl get -o name` writes it.

    Raises:
        UsageError: it is that.
    """
    given, _, rest = name.partition("/")
    if given in _TYPES[kind] and leader.is_name(rest):
        raise click.UsageError(f'"{name}" is not a {kind} name; use "{rest}"')


@dataclass(frozen=True, slots=True)
class Answered(Generic[A]):
    """An answer, and whether it leaves out what is there and could not be read."""

    answer: A
    leaves_out: bool = False


def _tell(found: Answered[Any], text: str) -> None:
    click.echo(text)
    if found.leaves_out:
        click.get_current_context().exit(ExitStatus.UNDETERMINED)


def _usual_namespace(way: Way) -> str:
    """That of the kubeconfig's context; of a dump nobody knows which it was made with."""
    if way.files:
        return "default"
    with closing(way.connection()) as connection:
        return connection.namespace


def _decided(way: Way, decide: Callable[[Local], A]) -> Answered[A]:
    local = gathered(way)
    answer = decide(local)
    return Answered(answer, leaves_out=not set(answer.missing) <= set(local.objects.absent))


def in_words(way: Way, kind: str, name: str) -> str:
    """Why pod NAMESPACE/NAME has no node, or why node NAME stays; for whoever shows it elsewhere.

    Raises:
        UserError: there is no answer.
    """
    if kind == "node":
        return node_text(_answer(way, ("node", name), NodeAnswer, lambda local: why_node(local, name)).answer)
    where, _, own = name.partition("/")
    return pod_text(_answer(way, ("pod", where, own), PodAnswer, lambda local: why_pod(local, where, own)).answer)


def _answer(way: Way, about: tuple[str, ...], kind: type[A], decide: Callable[[Local], A]) -> Answered[A]:
    """The answer, of the leader where it can be asked.

    Raises:
        UserError: there is none.
    """
    if not all(leader.is_name(part) for part in about[1:]):
        raise click.UsageError(f'"{"/".join(about[1:])}" is not a {about[0]} name')
    if way.files:
        return _decided(way, decide)
    try:
        why_not = "of --through=own"
        if way.through != "own":
            return Answered(_asked(way, about, kind))
    except leader.NotAnsweredError as error:
        why_not = str(error)
        if way.through == "leader" or way.url:
            raise UndeterminedError(f"the leader could not be asked: {error}") from None
    try:
        found = _decided(way, decide)
    except UndeterminedError as error:
        if way.through == "own":
            raise
        raise UndeterminedError(f"{error}. The leader could not be asked either: {why_not}") from None
    joined = "because" if way.through == "own" else "because the leader could not be asked:"
    return Answered(
        replace(found.answer, source=f"your own permissions, {joined} {why_not}"), leaves_out=found.leaves_out
    )


def _asked(way: Way, about: tuple[str, ...], kind: type[A]) -> A:
    _check_asked(way)
    with closing(way.connection()) as connection:
        return leader.ask(lambda: leader_of(way, connection, SystemClock()), f"/why/{'/'.join(about)}", kind)


def leader_of(
    way: Way, connection: ApiConnection, clock: Clock, bounds: leader.StreamBounds = leader.QUESTION
) -> leader.Leader:
    """The leader that is to be asked.

    Raises:
        NotAnsweredError: nobody leads, the user has no token, or the leader decides by other flags.
        UserError: its URL cannot be used.
    """
    options = _check_asked(way)
    if way.url:
        return leader.at(way.url, connection, clock, bounds)
    return leader.through(connection, options.leader_election_name, options.lease_namespace, clock, bounds)


def _check_asked(way: Way) -> Options:
    """The flags that say where the leader is.

    Raises:
        NotAnsweredError: no leader would decide as it is to be decided.
    """
    if way.at:
        raise leader.NotAnsweredError("it only decides for the present, and --at is specified")
    options = flags.settings(way.settings)
    plain = flags.settings(())
    changed = [one.name for one in fields(options) if getattr(options, one.name) != getattr(plain, one.name)]
    if others := sorted(set(changed) - OF_WHERE):
        shown = ", ".join(f"--{one.replace('_', '-')}" for one in others)
        raise leader.NotAnsweredError(f"it decides by its own flags, and {shown} is specified")
    return options


def gathered(way: Way) -> Local:
    """The cluster that is asked about.

    Raises:
        UsageError: settings or time cannot be used.
        UserError: files or the cluster cannot be read.
    """
    options = flags.settings(way.settings)
    try:
        when = datetime.fromisoformat(way.at) if way.at else SystemClock().now()
    except ValueError:
        raise click.UsageError(f"--at {way.at} is not a time; write it as 2026-01-31T12:00:00Z") from None
    if when.tzinfo is None:
        raise click.UsageError(f"--at {way.at} has no time zone; write it as 2026-01-31T12:00:00Z")
    if way.files:
        return local(gathering.from_files(way.files), options, when)
    with closing(way.connection()) as connection:
        client = Client(connection, SystemClock())
        found = gathering.from_cluster(client, options.system_namespace, predictions=options.vpa_predictions)
        return local(found, options, when)
