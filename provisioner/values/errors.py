"""What a command ends with: its exit status, and the errors that a person in front of it can cure."""

import enum
from typing import ClassVar


class ExitStatus(enum.IntEnum):
    """The one table of exit statuses: of every command, and of the three programs where they do not start."""

    DONE = 0
    """Done, and nothing was found."""
    FOUND = 1
    """What the command looks for was found: an error in a manifest, something missing; or something has to be done first."""
    USAGE = 2
    """Wrong usage, or input that cannot be read."""
    UNDETERMINED = 3
    """Not determined: the cluster or AWS did not answer or refused, or objects were left out."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""


def in_words(error: OSError) -> str:
    """What the operating system says, without its number, behind the file that it names."""
    named = f"{error.filename}: " if error.filename else ""
    return f"{named}{error.strerror or error}"


class UserError(Exception):
    """Something that the user can cure; the message is one sentence, and the command line prints it.

    Attributes:
        exit_status: what the command ends with.
    """

    exit_status: ClassVar[ExitStatus] = ExitStatus.USAGE


class RefusedError(UserError):
    """The command did not do, or finish, what it was asked for; the message says what has to be done first."""

    exit_status = ExitStatus.FOUND


class UndeterminedError(UserError):
    """The cluster or AWS did not answer, or refused, so that there is no result."""

    exit_status = ExitStatus.UNDETERMINED
