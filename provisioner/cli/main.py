"""The `dovetail` command. Each subcommand is imported when it is used: the webhook must not pay for the solver."""

import importlib
import importlib.util
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from provisioner import __version__
from provisioner.cli import completion, streams
from provisioner.cli.entry import main
from provisioner.cli.failures import CommandFailure, failure
from provisioner.values.errors import ExitStatus, UserError

COMMANDS: Final = {  # name -> (module:attribute, short help)
    "aws": ("provisioner.cli.aws:command", "Inspect AWS resources and permissions."),
    "bench-cluster": ("provisioner.lab.bench:command", "Run benchmarks on a separate control plane."),
    "completion": ("provisioner.cli.completion:command", "Print the completion script for a shell."),
    "convert": ("provisioner.cli.convert:command", "Rewrite manifests of old API versions."),
    "demo": ("provisioner.lab.demo:command", "Scale 1,000 pods up and down on a real control plane."),
    "dev": ("provisioner.lab.dev:command", "Manage a local Kubernetes control plane."),
    "extender": ("extender.server:command", "Run the scheduler extender."),
    "lint": ("provisioner.cli.lint:command", "Check manifests without a cluster."),
    "manifests": ("provisioner.lab.manifests:command", "Write the generated manifests."),
    "plan": ("provisioner.cli.plan.command:command", "Plan nodes for pods and show what they cost."),
    "provisioner": ("provisioner.operator.main:command", "Run the controllers."),
    "record": ("provisioner.cli.record:command", "Record what happens in a cluster, whatever scales it."),
    "reference": ("provisioner.lab.reference.command:command", "Write the generated reference pages."),
    "simulate": ("provisioner.cli.simulate:command", "Run a day of workloads in virtual time and show its cost."),
    "takeover": (
        "provisioner.cli.takeover.command:command",
        "Take a cluster over from Karpenter or Cluster Autoscaler.",
    ),
    "ui": ("provisioner.cli.ui.command:command", "Show the nodes of a cluster live in a browser."),
    "uninstall": (
        "provisioner.cli.uninstall.command:command",
        "Leave a cluster without losing pods or nodes.",
    ),
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click.

        Raises:
            NoSuchCommand: there is none of this name; it names those of the table that are like it.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands out of the table, without importing one, and options."""
        found = [
            CompletionItem(name, help=COMMANDS[name][1])
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what it raises becomes a text and an exit status, and an exit status that it returns is that of the program.

        Raises:
            CommandFailure: it failed.
            Exception: one of the three programs, or a tool of developers, failed otherwise: its trace says more than a sentence.
        """
        try:
            found = super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            ours = COMMANDS[ctx.invoked_subcommand or "plan"][0].startswith("provisioner.cli.")
            if ours or isinstance(error, UserError | PermissionError):
                raise failure(error) from error
            raise
        if isinstance(found, ExitStatus):
            ctx.exit(found)
        return found

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
    help="""Dovetail: a node autoscaler for Kubernetes.

    The exit status of every command is 0 if it is done and found nothing; 1 if it found what it looks for, such as an error in a manifest or
    something missing; 2 if the usage is wrong or input cannot be read; 3 if the answer could not be determined, because the cluster or AWS did not
    answer or refused, or because objects were left out; and 130 if it was interrupted.
    """,
)
@click.version_option(__version__)
def dovetail() -> None:
    """See `dovetail --help`."""


def run(arguments: Sequence[str]) -> int:
    """One run of the command; its exit status, with everything written.

    Args:
        arguments: the program's name, then its arguments.
    """
    logging.captureWarnings(capture=True)
    streams.guard()
    name = "kubectl dovetail" if arguments[0].rpartition("/")[2].startswith("kubectl-") else "dovetail"
    status = ended(lambda: _invoked(arguments[1:], name))
    return max(status, ended(streams.flush))


def _invoked(arguments: Sequence[str], name: str) -> int:
    found = dovetail.main(list(arguments), prog_name=name, complete_var=completion.VARIABLE, standalone_mode=False)
    return found if isinstance(found, int) else ExitStatus.DONE


def ended(step: Callable[[], int]) -> int:
    """The exit status of a step, whatever it raises; the error is told."""
    try:
        return step()
    except click.Abort as error:
        if isinstance(error.__context__, EOFError):
            click.echo("dovetail: standard input ended before the question was answered", err=True)
            return ExitStatus.USAGE
        return ExitStatus.INTERRUPTED
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    except CommandFailure as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return ExitStatus.USAGE
    except UserError as error:
        failure(error).show()
        return error.exit_status


if __name__ == "__main__":
    main()
