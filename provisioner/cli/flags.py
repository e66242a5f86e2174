"""Options and arguments that several commands have, one decorator each, so that they mean and say the same everywhere."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from provisioner.apis import names
from provisioner.cli.completion import contexts_named, namespaces_named
from provisioner.options import HelpRequested, Options, OptionsError

Command = TypeVar("Command", bound=Callable[..., Any])

JSON: Final = "json"


def cluster(function: Command) -> Command:
    """--kubeconfig and --context: the cluster that is read."""
    context = click.option(
        "--context",
        default="",
        metavar="NAME",
        help="Context of the kubeconfig. Default: its current context.",
        shell_complete=contexts_named,
    )
    kubeconfig = click.option(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="Path of a kubeconfig file. Default: $KUBECONFIG, ~/.kube/config, or the service account in a pod.",
        type=click.Path(),
    )
    return kubeconfig(context(function))


namespace: Final = click.option(
    "--namespace",
    "-n",
    default="",
    metavar="NAMESPACE",
    help="Namespace of objects that do not specify one. Default: the namespace of the context in the kubeconfig, or default.",
    shell_complete=namespaces_named,
)
"""-n/--namespace."""

own_namespace: Final = click.option(
    "--namespace", "-n", default=names.OWN_NAMESPACE, show_default=True, help="Namespace of Dovetail."
)
"""-n/--namespace, of the programs."""


def output(plain: str) -> Callable[[Command], Command]:
    """-o/--output: `plain` for people, or JSON, whose shape is in docs/guides/command.md."""
    return click.option(
        "--output",
        "-o",
        type=click.Choice([plain, JSON]),
        default=plain,
        show_default=True,
        help="Output format.",
    )


def files(*, required: bool) -> Callable[[Command], Command]:
    """FILE...: files and directories that are read as `documents.inputs` reads them."""
    return click.argument(
        "files",
        metavar="FILE...",
        nargs=-1,
        required=required,
        type=click.Path(path_type=Path, allow_dash=True),
    )


def fail_on(*what: str, default: str, meaning: str) -> Callable[[Command], Command]:
    """--fail-on: which finding makes the exit status 1."""
    return click.option(
        "--fail-on", type=click.Choice(what), default=default, show_default=True, help=f"Exit with status 1 {meaning}."
    )


def settings(given: Sequence[str]) -> Options:
    """The provisioner's settings out of the flags among a command's arguments, and out of the environment.

    Raises:
        UsageError: one cannot be used.
    """
    try:
        return Options.parse(given, os.environ)
    except (HelpRequested, OptionsError) as error:
        raise click.UsageError(str(error)) from None
