"""What a command says when it fails, and its exit status: in words, never with the name of a class or a traceback."""

import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import click

from provisioner.values import printable
from provisioner.values.errors import ExitStatus, UserError, in_words

_CACHES: Final = "Change its permissions, or set XDG_CACHE_HOME and XDG_STATE_HOME to directories that you own"


class CommandFailure(click.ClickException):
    """A command failed: the text for the user, without the name of the program, and the exit status."""

    def __init__(self, status: ExitStatus, text: str) -> None:
        super().__init__(text)
        self.exit_code = status  # type: ignore[misc]  # click asks the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it to standard error, as lines that a terminal shows as they are."""
        click.echo(printable.lines(f"dovetail: {self.message}"), file=file, err=True)


def failure(error: Exception) -> CommandFailure:
    """What an error is for the user."""
    match error:
        case UserError():
            return CommandFailure(error.exit_status, str(error))
        case PermissionError():
            text = f"{error.filename or error} is not accessible to this user. {_CACHES}."
            return CommandFailure(ExitStatus.USAGE, text)
        case OSError():
            return CommandFailure(ExitStatus.USAGE, in_words(error))
        case MemoryError():
            text = "there is not enough memory; specify fewer objects at a time"
            return CommandFailure(ExitStatus.UNDETERMINED, text)
        case _:
            pass
    if of := _answered_by(error):
        return CommandFailure(ExitStatus.UNDETERMINED, f"{of}: {error}")
    place = _place(error.__traceback__)
    text = f"internal error at {place}: {error}. Please report it with this line"
    return CommandFailure(ExitStatus.UNDETERMINED, text)


def _answered_by(error: Exception) -> str:
    """Who answered so, or did not answer; "" for any other error. What raises it is loaded already."""
    families = (
        ("provisioner.kube.errors", "ApiError", "the cluster could not be read or written"),
        ("botocore.exceptions", "BotoCoreError", "AWS"),
        ("botocore.exceptions", "ClientError", "AWS"),
    )
    for module, name, text in families:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(error, kind):
            return text
    return ""


def _place(trace: TracebackType | None) -> str:
    """Where it was raised, in our own code if it passed through that."""
    here = Path(__file__).parents[2]
    found = "?"
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if path.is_relative_to(here) or found == "?":
            shown = path.relative_to(here) if path.is_relative_to(here) else path.name
            found = f"{shown}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
