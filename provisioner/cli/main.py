"""The `dovetail` command. Each subcommand is imported when it is used: the webhook must not pay for the solver."""

import importlib
import importlib.util
import logging
import sys
from typing import Final

import click

from provisioner import __version__
from provisioner.support.errors import UserError
from provisioner.values import printable

COMMANDS: Final = {  # name -> (module:attribute, short help)
    "aws": ("provisioner.cli.aws:command", "Check AWS resources and permissions."),
    "bench-cluster": ("provisioner.lab.bench:command", "Run benchmarks on a separate control plane."),
    "convert": ("provisioner.cli.convert:command", "Rewrite manifests of old API versions."),
    "demo": ("provisioner.lab.demo:command", "Scale 1,000 pods up and down on a real control plane."),
    "dev": ("provisioner.lab.dev:command", "Manage a local Kubernetes control plane."),
    "extender": ("extender.server:command", "Run the scheduler extender."),
    "lint": ("provisioner.cli.lint:command", "Check manifests without a cluster."),
    "manifests": ("provisioner.lab.manifests:command", "Write the generated manifests."),
    "plan": ("provisioner.cli.plan.command:command", "Plan nodes for pods and show what they cost."),
    "provisioner": ("provisioner.operator.main:command", "Run the controllers."),
    "reference": ("provisioner.lab.reference.command:command", "Write the generated reference pages."),
    "why": ("provisioner.cli.why.command:command", "Show why a pod has no node, or a node is not disrupted."),
    "webhook": ("webhook.server:command", "Run the admission webhook."),
}


class LazyGroup(click.Group):
    """A group whose commands are named in a table and imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names in the table, sorted, less those whose module is not installed: the image has no dev cluster."""
        return sorted(name for name in COMMANDS if _is_installed(name))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        """Import one command; None for a name that is not in the table, or not installed.

        Raises:
            TypeError: the table names something that is no command.
        """
        if cmd_name not in COMMANDS or not _is_installed(cmd_name):
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands out of the table, without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name in self.list_commands(ctx) for text in COMMANDS[name][1:]])


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(COMMANDS[name][0].partition(":")[0]) is not None
    except ModuleNotFoundError:  # of the package above it
        return False


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Dovetail: a node autoscaler for Kubernetes.",
)
@click.version_option(__version__)
def dovetail() -> None:
    """See `dovetail --help`."""


def main() -> None:
    """Entry point: errors that a user can cure are one line and exit status 1, never a traceback."""
    logging.captureWarnings(capture=True)
    try:
        dovetail.main(prog_name="dovetail", standalone_mode=True)
    except UserError as error:
        click.echo(printable.lines(f"dovetail: {error}"), err=True)
        sys.exit(1)
    except PermissionError as error:
        fix = "Change its permissions, or set XDG_CACHE_HOME and XDG_STATE_HOME to directories that you own"
        click.echo(f"dovetail: {error.filename or error} is not accessible for this user. {fix}.", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
