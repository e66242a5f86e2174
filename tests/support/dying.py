"""`dovetail` in a process that kills itself, as kill -9 would, right before one of its writes is sent or right after it was answered.

    python -m tests.support.dying NUMBER before|after command|launch|any provisioner --flags…

Writes count from the first one that writes the record of a disruption command, or that creates a NodeClaim, or from any: that is number 1. Events and
Leases do not count. The last line on standard error tells which write it was, so that whoever waits for the end can tell a kill from a crash.
"""

import os
import signal
import sys
import threading
from typing import Any

from provisioner.apis import names
from provisioner.cli.entry import main
from provisioner.kube.client import Client

_UNCOUNTED = ("/events", "/leases")


KILLED = "killed itself"
"""How the last line of a process begins that ended as it should."""


def _begins(what: str, method: str, path: str, body: bytes | None) -> bool:
    """Whether writes count from this one on."""
    if what == "any":
        return True
    if what == "launch" and method == "POST" and path.endswith("/nodeclaims"):
        return True
    return names.COMMAND_ANNOTATION.encode() in (body or b"")


def die_at(number: int, when: str, what: str) -> None:
    """Wrap the one way to the API server."""
    send, lock = Client._send, threading.Lock()
    count = 0

    def turn(method: str, path: str, body: bytes | None) -> int:
        nonlocal count
        if method == "GET" or any(one in path for one in _UNCOUNTED):
            return 0
        with lock:
            if count or _begins(what, method, path, body):
                count += 1
                return count
        return 0

    def dying(self: Client, method: str, path: str, body: bytes | None = None, *args: Any, **kwargs: Any) -> bytes:
        mine = turn(method, path, body) == number
        if mine and when == "before":
            end(method, path)
        answer = send(self, method, path, body, *args, **kwargs)
        if mine:
            end(method, path)
        return answer

    def end(method: str, path: str) -> None:
        os.write(sys.stderr.fileno(), f"{KILLED} {when} write {number}: {method} {path}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)

    Client._send = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    die_at(int(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1))
    main()
