"""`dovetail ui`: nodes, what runs on them and what waits, live in a browser."""

import threading
import webbrowser
from pathlib import Path
from typing import Final

import click

from provisioner.cli import flags
from provisioner.cli.completion import namespaces_named
from provisioner.cli.files import write_file
from provisioner.cli.ui.server import UiServer
from provisioner.cli.ui.upstream import Upstream, page_of_record
from provisioner.cli.why.command import Way, in_words
from provisioner.kube.errors import ApiError
from provisioner.options import WithSettings
from provisioner.support import logs
from provisioner.support.clock import SystemClock
from provisioner.ui.document import alone
from provisioner.ui.events import EventBoard
from provisioner.ui.recorded import NO_WHY
from provisioner.ui.viewers import PAGE
from provisioner.values.errors import UndeterminedError
from provisioner.values.printable import one_line

_DONE: Final = "Press Ctrl-C to end."


@click.command(
    cls=WithSettings,
    context_settings={"ignore_unknown_options": True},
    help="""Show the nodes of a cluster live in a browser: what runs on them, what they cost, what waits and why.

    The command serves the page on 127.0.0.1 and prints its address, which one browser can open. The page comes from the leading provisioner through a
    port-forward, with your token, and shows what you may list. If that is not possible, the command reads the objects of the cluster again and again
    with your own permissions; SETTINGS are flags of the provisioner that change what it would decide. It writes nothing to the cluster.

    The exit status is 0 if the page was shown or written, and 3 if the cluster could not be read.
    """,
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1. Default: any free port.")
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
@click.option(
    "--export",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the page of this moment to one HTML file, which needs no server, instead of serving it.",
)
@click.option(
    "--from",
    "-f",
    "files",
    multiple=True,
    metavar="FILE",
    help='Show a dump instead of the cluster, as "kubectl get -A -o yaml KINDS" writes it. Can be repeated.',
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Show the end of a record that `dovetail record` wrote, and its history, without a cluster: its directory, or one of its files.",
)
@click.option(
    "--through",
    type=click.Choice(["auto", "leader", "own"]),
    default="auto",
    show_default=True,
    help="Ask the leader (leader), read the cluster with your own permissions (own), or the first of them that works (auto).",
)
@click.option(
    "--leader",
    "url",
    default="",
    metavar="URL",
    help="http://127.0.0.1:PORT, where a port-forward to the leader is open already.",
)
@flags.cluster
@click.option(
    "--namespace",
    "-n",
    default="",
    metavar="NAMESPACE",
    help="A namespace whose pods you may list. The leader checks few others if you may not list the pods of all namespaces.",
    shell_complete=namespaces_named,
)
@click.argument("settings", nargs=-1, type=click.UNPROCESSED)
def command(
    *,
    port: int,
    no_browser: bool,
    export: Path | None,
    files: tuple[str, ...],
    record: Path | None,
    through: str,
    url: str,
    kubeconfig: str,
    context: str,
    namespace: str,
    settings: tuple[str, ...],
) -> None:
    """See `dovetail ui --help`."""
    way = Way(files, "", through, url, settings, kubeconfig, context)
    way.check()
    if record is not None and (files or url or through != "auto"):
        raise click.UsageError("--record shows a record instead of a cluster; omit --from, --leader and --through")
    logs.configure("error")
    clock, board = SystemClock(), EventBoard()
    title = str(record or "") or (files[0] if files else context or "the current context")
    upstream = Upstream(way, namespace, title, board, clock)
    try:
        page = page_of_record(record, title) if record is not None else upstream.first()
    except ApiError as error:
        raise UndeterminedError(f"the cluster could not be read: {error}") from None
    if upstream.why_not:
        click.echo(one_line(f"Note: the leader could not be asked: {upstream.why_not}"), err=True)
    if export is not None:
        write_file(export, alone(page), "--export")
        return
    board.put(PAGE, page)
    server = UiServer(
        port, board, _no_answer if record is not None else lambda kind, name: in_words(way, kind, name), clock
    )
    server.start()
    thread = threading.Thread(target=upstream.run, name="upstream", daemon=True)
    if not files and record is None:
        thread.start()
    click.echo(f"The page is at {server.url}\n{_DONE}")
    if not no_browser:
        webbrowser.open(server.url)
    try:
        threading.Event().wait()
    finally:
        upstream.stop()
        server.stop()


def _no_answer(_kind: str, _name: str) -> str:
    """A record tells what happened, not why something does not."""
    return NO_WHY
