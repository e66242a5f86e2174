"""`dovetail dev`: a control plane on this machine, for trying things out."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from provisioner.lab.devcluster.binaries import VARIABLE, BinarySource, find
from provisioner.lab.devcluster.building import GoBuild
from provisioner.lab.devcluster.cluster import DevCluster, list_clusters
from provisioner.lab.devcluster.components import COMPONENTS, Gates
from provisioner.lab.devcluster.downloading import Download
from provisioner.lab.devcluster.errors import NoSuchClusterError, StateError
from provisioner.lab.devcluster.versions import ARTIFACTS, METRICS_SERVER, TOOLS, chosen
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from provisioner.values.printable import one_line


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--name",
        default="default",
        show_default=True,
        help="Name of the cluster; several clusters can run side by side.",
    )(function)


def _sourced(function: Callable[..., Any]) -> Callable[..., Any]:
    download = click.option(
        "--download", is_flag=True, help="Download the official releases instead of building missing programs."
    )
    base_url = click.option(
        "--base-url", default="", help="With --download: URL of a mirror with the paths of dl.k8s.io and github.com."
    )
    return download(base_url(function))


@click.group(
    help="""A Kubernetes control plane on this machine: etcd, API server, controllers, scheduler, kwok.

    Everything listens on loopback ports of the cluster's own and needs no root. Programs are found in
    $DOVETAIL_DEV_BIN, then in this user's cache, and are built from source where missing.
    $DOVETAIL_KUBERNETES chooses a minor of Kubernetes: 1.35, 1.36 or 1.37, the default.
    """
)
def command() -> None:
    """See `dovetail dev --help`."""


@command.command(help="Start a cluster and leave it running; build what is missing first.")
@_named
@click.option("--fresh", is_flag=True, help="Delete the data of the previous run first.")
@click.option("--new-ports", is_flag=True, help="Choose new ports instead of those of the previous run.")
@click.option(
    "--extender/--no-extender",
    default=None,
    help="Whether kube-scheduler calls the extender at its reserved port. Default: as in the previous run, or yes in the first run.",
)
@click.option(
    "--metrics/--no-metrics",
    default=None,
    help="Whether metrics-server runs, for HorizontalPodAutoscalers and `kubectl top`; it is built first. "
    "Default: as in the previous run, or no in the first run.",
)
@click.option(
    "--gates",
    type=click.Choice(["default", "gangs"]),
    help="Feature gates: as Kubernetes has them, or with PodGroups (Kubernetes 1.37). Default: as in the previous run, or default in the first run.",
)
@_sourced
def up(
    *,
    name: str,
    fresh: bool,
    new_ports: bool,
    extender: bool | None,
    metrics: bool | None,
    gates: Gates | None,
    download: bool,
    base_url: str,
) -> None:
    """See `dovetail dev up --help`."""
    clock = SystemClock()
    began = clock.monotonic()
    source = _source(download=download, base_url=base_url)
    cluster = DevCluster(name, extender=extender, metrics=metrics, gates=gates, source=source, progress=progress_for())
    if not cluster.up(fresh=fresh, new_ports=new_ports):
        click.echo(f"cluster {name} is up already: {cluster.host}")
        return
    click.echo(f"cluster {name} is up after {clock.monotonic() - began:.1f} s: {cluster.host}")
    suffix = "" if name == "default" else f" --name {name}"
    click.echo(f'for kubectl in this shell: eval "$(dovetail dev env{suffix})"')


@command.command(help="Find or build the programs and start nothing; `up` would do it too.")
@click.option("--metrics", is_flag=True, help="metrics-server too.")
@click.option(
    "--tools", is_flag=True, help="Instead: what only tests need: helm, helm-unittest, kubeconform and promtool."
)
@_sourced
def build(*, metrics: bool, tools: bool, download: bool, base_url: str) -> None:
    """See `dovetail dev build --help`."""
    if tools:
        if download:
            raise click.UsageError("--tools cannot be combined with --download")
        source: BinarySource = GoBuild(os.environ, tools=True)
        names = tuple(one.name for one in TOOLS)
    else:
        source = _source(download=download, base_url=base_url)
        names = (*ARTIFACTS, METRICS_SERVER) if metrics else ARTIFACTS
    for path in find(source, os.environ, progress_for(), names).paths.values():
        click.echo(str(path))


@command.command(help="Stop a cluster; its data stays for the next `up`.")
@_named
@click.option("--delete", is_flag=True, help="Remove its data, certificates, logs and ports too.")
@click.option("--all", "everything", is_flag=True, help="All clusters of this user, except those of running programs.")
@click.option("--yes", is_flag=True, help="With --all: do not ask for confirmation.")
def down(*, name: str, delete: bool, everything: bool, yes: bool) -> None:
    """See `dovetail dev down --help`."""
    names = [name]
    if everything:
        names = [each for each in list_clusters(os.environ) if not DevCluster(each).is_owned]
        verb = "stop and delete" if delete else "stop"
        if names and not yes:
            click.confirm(f"{verb} {', '.join(names)}?", abort=True)
    for each in names:
        cluster = DevCluster(each)
        existed = cluster.dir.exists()
        cluster.down(delete=delete)
        if not existed:
            click.echo(f"cluster {each} does not exist")
        else:
            click.echo(f"cluster {each} is {'deleted' if delete else 'stopped'}")


@command.command(help="Show what runs; exit status 1 unless every component does.")
@_named
@click.option("--all", "everything", is_flag=True, help="All clusters of this user.")
def status(*, name: str, everything: bool) -> None:
    """See `dovetail dev status --help`."""
    healthy = True
    for each in list_clusters(os.environ) if everything else [name]:
        cluster = _existing(each)
        up_now = cluster.is_up
        healthy = healthy and up_now
        click.echo(f"cluster {each}: {'up' if up_now else 'not up'}, {cluster.host}, {cluster.dir}")
        for entry in cluster.status():
            numbers = ",".join(map(str, entry.ports)) or "-"
            size = f"{entry.memory_bytes / 1e6:.0f} MB" if entry.pid else "-"
            click.echo(f"  {entry.name:<24} {entry.state:<8} pid {entry.pid or '-':<8} port {numbers:<12} {size}")
    sys.exit(0 if healthy else 1)


@command.command(help='Print what a shell needs for kubectl: eval "$(dovetail dev env)".')
@_named
def env(*, name: str) -> None:
    """See `dovetail dev env --help`."""
    for key, value in _existing(name).environment().items():
        click.echo(f"export {key}={shlex.quote(value)}")


@command.command(help="Print the end of a component's log, or name the log files.")
@_named
@click.argument("component", required=False)
@click.option("--lines", "-n", default=50, show_default=True, help="Number of lines to show from the end of the log.")
def logs(*, name: str, component: str | None, lines: int) -> None:
    """See `dovetail dev logs --help`."""
    cluster = _existing(name)
    found = {path.stem: path for path in sorted((cluster.dir / "logs").glob("*.log"))}
    if component is None:
        for path in found.values():
            click.echo(str(path))
        return
    if component not in found:
        raise StateError(
            f"cluster {name} has no log of {component!r}",
            f"Choose one of {', '.join(found) or ', '.join(COMPONENTS)}",
        )
    for line in _tail(found[component], lines):
        click.echo(one_line(line.expandtabs()))


def _source(*, download: bool, base_url: str) -> BinarySource:
    if base_url and not download:
        raise click.UsageError("--base-url requires --download")
    return Download(base_url, chosen(os.environ)) if download else GoBuild(dict(os.environ))


def _existing(name: str) -> DevCluster:
    cluster = DevCluster(name)
    if not cluster.ports:
        raise NoSuchClusterError(
            f"cluster {name} does not exist",
            f"Start it with `dovetail dev up --name {name}` (programs from ${VARIABLE}, the cache, or a build)",
        )
    return cluster


def _tail(path: Path, lines: int) -> list[str]:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 400 * lines))  # a generous line; a log may be large
        return file.read().decode(errors="replace").splitlines()[-lines:]
