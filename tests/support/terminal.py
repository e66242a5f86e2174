"""An interactive shell in a terminal: lines are typed one after the other, as a person would, and Ctrl-C is a key."""

import contextlib
import os
import pty
import re
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_MARK: Final = "done-7f3a"
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
INTERRUPT: Final = b"\x03"


class Terminal:
    """bash, without anybody's start-up files."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._pid, self._file = pty.fork()
        if self._pid == 0:  # pragma: no cover - the child becomes bash
            os.chdir(directory)
            arguments = ["bash", "--noprofile", "--norc", "--noediting", "-i"]
            os.execve("/bin/bash", arguments, {**environment, "PS1": "", "PS2": "", "TERM": "dumb", "COLUMNS": "200"})
        self.type("stty -echo", 20.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGHUP)  # bash passes it on to its jobs
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        os.close(self._file)

    def type(self, line: str, seconds: float, *, interrupt_after: str = "") -> tuple[int, str]:
        """Type one line and wait for its end.

        Args:
            line: a command.
            seconds: to wait at most.
            interrupt_after: press Ctrl-C once this has been printed.

        Returns:
            Its exit status, and what was printed meanwhile.

        Raises:
            TimeoutError: it has not ended; the message has what was printed.
        """
        os.write(self._file, f"{line}\n".encode())
        if not interrupt_after:
            os.write(self._file, f"echo {_MARK} $?\n".encode())
        printed, deadline = "", time.monotonic() + seconds
        while True:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{line} has not ended after {seconds:.0f} s: {printed[-2000:]}")
            if select.select([self._file], [], [], 0.2)[0]:
                printed += _CONTROL.sub("", os.read(self._file, 65536).decode(errors="replace"))
            if interrupt_after and interrupt_after in printed:
                interrupt_after = ""
                os.write(self._file, INTERRUPT)
                os.write(self._file, f"echo {_MARK} $?\n".encode())
            if found := re.search(rf"^(.*)^{_MARK} (\d+)$", printed, re.DOTALL | re.MULTILINE):
                return int(found[2]), found[1]
