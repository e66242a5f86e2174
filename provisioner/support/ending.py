"""How this process ends itself when it must do nothing more: at once, or by the kernel at a time that nobody can miss."""

import os
import signal
import sys
import threading
from typing import Protocol

from provisioner.support import logs

_log = logs.get_logger(__name__)
_FLUSH_SECONDS = 0.5


class Process(Protocol):
    """The process as whoever must end it sees it."""

    def end(self, why: str) -> None:
        """End now, with status 1, whatever other threads do; nothing is cleaned up."""
        ...

    def end_in(self, seconds: float) -> None:
        """Have it ended after so many seconds, unless this is called again before; 0 calls it off."""
        ...


class ThisProcess:
    """This very process; made in its main thread.

    `end_in` is an interval timer of the kernel, whose signal kills: it needs no thread of ours, no lock and no interpreter. It runs on while the
    process is stopped (SIGSTOP, a debugger, a frozen cgroup), and what is due then is delivered before anything else of the process runs.
    """

    def __init__(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a parent may have had it ignored
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})

    def end(self, why: str) -> None:
        """See `Process.end`."""
        say = threading.Thread(target=_say, args=(why,), name="last-words", daemon=True)
        say.start()
        say.join(_FLUSH_SECONDS)  # whoever reads our log may have stopped reading
        os._exit(1)

    def end_in(self, seconds: float) -> None:
        """See `Process.end_in`."""
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _say(why: str) -> None:
    _log.critical("this process ends now", why=why)
    sys.stdout.flush()
    sys.stderr.flush()
