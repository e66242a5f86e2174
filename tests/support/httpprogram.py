"""A program behind the server of webhook and extender, as a process of its own: `python -m tests.support.httpprogram`.

Its pages: /mutate answers a review of 3 KB as the webhook does, /big has 4 MB, /hang never ends, /die ends
a thread with an error.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from flask import Flask, Response, request

from certs.serving import ServingContext
from provisioner.apis.stamping import StampFacts, decide
from provisioner.support import health, heartbeat, logs
from provisioner.support.http.gunicorn_server import Server
from provisioner.support.http.server import HttpServer
from provisioner.support.http.values import Limits
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.rawhttp import Address, get
from webhook.review import decode_pod, decode_review, encode_reply

FACTS = StampFacts("n", {"dovetail.dev/arch": "amd64_arm64", "dovetail.dev/capacity-type": "spot"})
LIMITS = Limits(answer_seconds=2.0, body_bytes=3 * 1024 * 1024)
THREADS = 8


class StampingProgram:
    """See the module."""

    def __init__(self, health_port: int) -> None:
        self._health_port = health_port
        self._health: list[health.HealthServer] = []
        self.app = Flask("program", static_folder=None)
        self.prompt = None
        self.app.add_url_rule("/healthz", "healthz", lambda: "ok")
        self.app.add_url_rule("/big", "big", lambda: Response(b"x" * 4_000_000))
        self.app.add_url_rule("/hang", "hang", self._hang)
        self.app.add_url_rule("/die", "die", self._die)
        self.app.add_url_rule("/mutate", "mutate", self._mutate, methods=["POST"])

    def _die(self) -> str:
        def fail() -> None:
            raise RecursionError("too deep")

        threading.Thread(target=fail, name="watch-pods").start()
        return "gone"

    def _hang(self) -> str:
        threading.Event().wait()
        return "never"

    def _mutate(self) -> Response:
        review = decode_review(request.get_data(cache=False))
        reply = encode_reply(review.uid, decide(decode_pod(review.object), FACTS).operations)
        return Response(reply, mimetype="application/json")

    def start(self, server: HttpServer) -> None:
        self._health = health.serve_all(
            ("127.0.0.1", self._health_port),
            None,
            checks={},
            live_checks={"through": health.through(server, "/healthz", 1.0), "threads": heartbeat.problem},
        )

    def stop(self) -> None:
        for each in self._health:
            each.stop()


def main(port: int, health_port: int, pem: str, descriptors: int) -> None:
    """Serve until a signal."""
    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    logs.configure("error", "text")
    context = ServingContext(Path(pem)).current if pem else None
    Server(
        "program",
        ("127.0.0.1", port),
        lambda: StampingProgram(health_port),
        limits=LIMITS,
        threads=THREADS,
        graceful_seconds=2,
        context=context,
    ).run()


class Running:
    """The process, and where it answers."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: Address, health_address: Address) -> None:
        self.process, self.address, self.health = process, address, health_address

    def is_alive(self) -> bool:
        """What a kubelet is told."""
        return self.health.ask(get("/healthz")).status == 200


@contextlib.contextmanager
def running(pem: Path | None = None, descriptors: int = 0) -> Iterator[Running]:
    """The program in a process of its own.

    Args:
        pem: key and certificate; None is plain HTTP.
        descriptors: that the process may have; 0 is as many as we.
    """
    port, health_port = free_port(), free_port()
    line = [sys.executable, "-m", __name__, str(port), str(health_port), str(pem or ""), str(descriptors)]
    process = subprocess.Popen(line, start_new_session=True)
    program = Running(process, Address(port, tls=pem is not None), Address(health_port))

    def serves() -> bool:
        with contextlib.suppress(OSError):
            return program.is_alive() and program.address.ask(get("/healthz")).status == 200
        return False

    try:
        eventually(serves, "the program serves", seconds=60)
        yield program
    finally:
        program.address.leave()
        program.health.leave()
        with contextlib.suppress(ProcessLookupError):  # a test ended it
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
