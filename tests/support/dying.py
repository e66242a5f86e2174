"""`dovetail` in a process that kills itself, as kill -9 would, right after one of its writes was answered.

    python dying.py NUMBER provisioner --flags…

Writes count from the first one that writes the record of a disruption command, which is number 1. Events and Leases do not count.
"""

import os
import signal
import sys
import threading
from typing import Any

from provisioner.apis import names
from provisioner.cli.main import main
from provisioner.kube.client import Client

_UNCOUNTED = ("/events", "/leases")


def die_after(number: int) -> None:
    """Wrap the one way to the API server."""
    send, lock = Client._send, threading.Lock()
    count = 0

    def dying(self: Client, method: str, path: str, body: bytes | None = None, *args: Any, **kwargs: Any) -> bytes:
        nonlocal count
        answer = send(self, method, path, body, *args, **kwargs)
        counts = method != "GET" and not any(one in path for one in _UNCOUNTED)
        with lock:
            if counts and (count or names.COMMAND_ANNOTATION.encode() in (body or b"")):
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
        return answer

    Client._send = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    die_after(int(sys.argv.pop(1)))
    main()
