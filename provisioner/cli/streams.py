"""The standard streams of a command: a reader that went away ends no command, and output that cannot be written is an error in one line."""

import contextlib
import errno
import io
import os
import sys
from typing import Final, TextIO

from provisioner.values.errors import UserError

_OUTPUT: Final = 1
_ERRORS: Final = 2


class OutputError(UserError):
    """Standard output cannot be written, as when it is closed or its disk is full."""


class _Descriptor(io.RawIOBase):
    """A descriptor of this process that stays open.

    What nobody reads any more, as behind `| head`, is dropped: the command goes on to its end, and to the exit status that it would have had.
    """

    def __init__(self, number: int) -> None:
        self._number, self._lost = number, False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def write(self, data: "memoryview[int] | bytes | bytearray", /) -> int:  # type: ignore[override]  # buffers are handed on
        if self._lost:
            return len(data)
        try:
            return os.write(self._number, data)
        except OSError as error:
            self._lost = True
            if error.errno != errno.EPIPE and self._number == _OUTPUT:
                raise OutputError(f"standard output cannot be written: {error.strerror}") from None
            return len(data)


def guard() -> None:
    """Put such streams in the place of the interpreter's own."""
    sys.stdout = _guarded(_OUTPUT, sys.stdout)
    sys.stderr = _guarded(_ERRORS, sys.stderr)


def _guarded(number: int, given: TextIO | None) -> TextIO:
    if given is not None:
        given.flush()
    interactive = given is not None and given.isatty()
    encoding, errors = (given.encoding, given.errors) if given is not None else ("utf-8", "backslashreplace")
    lenient = "backslashreplace" if number == _ERRORS else errors
    buffered = io.BufferedWriter(_Descriptor(number))  # type: ignore[type-var]  # a RawIOBase all the same
    return io.TextIOWrapper(buffered, encoding, lenient, line_buffering=interactive or number == _ERRORS, newline="\n")


def flush() -> int:
    """Write what is still held back; 0.

    Raises:
        OutputError: it cannot be written.
    """
    for one in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError):  # a command may have closed it
            one.flush()
    return 0
