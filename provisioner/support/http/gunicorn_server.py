"""Our programs under gunicorn: it listens, forks, supervises and stops; `HttpServer` in its one worker answers.

gunicorn's own workers give a thread to whoever connects (gthread), or are stopped by what a handler does (tornado), or by
running out of descriptors (all of them): see docs/decisions/0015-one-http-server.md. What this module uses of
gunicorn beyond its settings is listed in tests/unit/support/http/test_gunicorn_server.py, which fails where a release changes it.
"""

import gc
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker

from provisioner.support import heartbeat, logs
from provisioner.support.addresses import Address, host_and_port
from provisioner.support.http import wsgi
from provisioner.support.http.server import HttpServer
from provisioner.support.http.values import Limits, Prompt

KEEPALIVE_SECONDS = 120.0
"""Longer than the 90 s after which Go's client closes an idle connection: the server must not be first."""
WORKER_SECONDS = 30
"""A worker whose loop has not turned for so long is killed, and another one started."""


class Program(Protocol):
    """What lives in the worker. It is made there, after the fork, because threads and connections do not survive one."""

    @property
    def app(self) -> wsgi.Application: ...

    @property
    def prompt(self) -> Prompt | None:
        """Answers what takes no time; None where nothing does, and the application is always asked."""
        ...

    def start(self, server: HttpServer) -> None:
        """Start all threads; `server` is the one that answers, for liveness."""
        ...

    def stop(self) -> None: ...


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """One program behind one address; `run` returns when a signal has ended it.

    Args:
        name: of the program, for the list of processes and the metrics.
        bind: where it listens.
        make: makes the program, in the worker.
        threads: how many requests are answered at once.
        graceful_seconds: for what is under way when a signal comes.
        context: gives the TLS context for a new connection; None is plain HTTP.
    """

    def __init__(
        self,
        name: str,
        bind: Address,
        make: Callable[[], Program],
        *,
        limits: Limits,
        threads: int,
        graceful_seconds: int,
        context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._name, self._bind, self._make = name, bind, make
        self._graceful_seconds = graceful_seconds
        self.limits, self.threads, self.context = limits, threads, context
        self._program: Program | None = None
        super().__init__()

    def load_config(self) -> None:
        """Called by the base class; every setting that differs from gunicorn's default."""
        settings: Mapping[str, Any] = {
            "bind": host_and_port(self._bind[0] or _everywhere(), self._bind[1]),
            "proc_name": f"dovetail-{self._name}",
            "worker_class": HttpWorker,
            "workers": 1,  # every worker keeps caches of its own: scale by replicas, which survive more
            "timeout": WORKER_SECONDS,
            "graceful_timeout": self._graceful_seconds,
            "max_requests": 0,
            "preload_app": False,
            "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,  # noqa: S108 - shared memory: a heartbeat must not wait for a disk
            "control_socket_disable": True,
            "accesslog": None,
            "logger_class": _Log,
            "pre_fork": lambda _arbiter, _worker: _share(),
            "post_worker_init": lambda worker: self._started(worker),  # noqa: PLW0108 - gunicorn counts arguments
            "worker_exit": lambda _arbiter, _worker: self._stopped(),
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> wsgi.Application:
        """Called by gunicorn in the worker."""
        self._program = self._make()
        return self._program.app

    @property
    def prompt(self) -> Prompt | None:
        """Of the program, once it is loaded."""
        return self._program.prompt if self._program is not None else None

    @property
    def name(self) -> str:
        return self._name

    def _started(self, worker: "HttpWorker") -> None:
        heartbeat.watch_threads()
        if self._program is not None:
            self._program.start(worker.server)

    def _stopped(self) -> None:
        if self._program is not None:
            self._program.stop()


class HttpWorker(Worker):  # type: ignore[misc]
    """gunicorn's worker around an `HttpServer`."""

    server: HttpServer

    def load_wsgi(self) -> None:
        """Called by the base class between the fork and `run`."""
        super().load_wsgi()
        application: Server = self.app
        self.server = HttpServer(
            application.name,
            [listener.sock for listener in self.sockets],
            wsgi.handler(self.wsgi),
            limits=application.limits,
            context=application.context,
            threads=application.threads,
            prompt=application.prompt,
        )

    def run(self) -> None:
        """Called by the base class: serve until a signal."""
        if self.alive:  # none came while the program was made
            self.server.run(self._beat)

    def handle_exit(self, sig: int, frame: object) -> None:  # noqa: ARG002 - gunicorn's signature
        """SIGTERM: finish what is under way."""
        self.alive = False
        if self.booted:
            self.server.stop(self.cfg.graceful_timeout)

    def _beat(self) -> None:
        self.notify()
        if self.alive and self.ppid != os.getppid():
            self.log.info("Parent changed, shutting down: %s", self)
            self.alive = False
            self.server.stop(self.cfg.graceful_timeout)


class _Log(Logger):  # type: ignore[misc]
    """gunicorn's own messages in our format."""

    def setup(self, cfg: Any) -> None:  # noqa: ARG002 - gunicorn's signature
        self.error_log = self.access_log = logs.get_logger("gunicorn").logger


def _everywhere() -> str:
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - asked for by an address without a host


def _share() -> None:
    """Keeps the collector from touching what master and worker share, so that it stays shared."""
    gc.collect()
    gc.freeze()
