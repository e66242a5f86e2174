"""What is used of gunicorn beyond its settings, so that a release which changes it fails here and not in a cluster."""

import inspect
import socket
from pathlib import Path

import pytest
from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.sock import create_sockets
from gunicorn.workers.base import Worker

from provisioner.support.http.gunicorn_server import HttpWorker, Server
from provisioner.support.http.server import HttpServer
from provisioner.support.http.values import Limits


class Nothing:
    """A program that does nothing."""

    def __init__(self) -> None:
        self.app = Flask("nothing", static_folder=None)
        self.prompt = None
        self.started_with: HttpServer | None = None

    def start(self, server: HttpServer) -> None:
        self.started_with = server

    def stop(self) -> None: ...


def server(host: str = "127.0.0.1") -> Server:
    return Server("test", (host, 0), Nothing, limits=Limits(connections=77), threads=3, graceful_seconds=5)


OWN = {"__init__", "load_wsgi", "run", "handle_exit", "init_process", "notify"}


def test_the_worker_is_made_and_driven_as_we_expect() -> None:
    wanted = ["self", "age", "ppid", "sockets", "app", "timeout", "cfg", "log"]
    assert list(inspect.signature(Worker.__init__).parameters) == wanted
    assert set(vars(Worker)) >= OWN
    for name in ("load_wsgi", "run", "notify", "init_process"):
        assert list(inspect.signature(getattr(Worker, name)).parameters) == ["self"], name
    assert list(inspect.signature(Worker.handle_exit).parameters) == ["self", "sig", "frame"]
    source = inspect.getsource(Worker.init_process)
    order = [source.index(text) for text in ("self.load_wsgi()", "self.cfg.post_worker_init(self)", "self.run()")]
    assert order == sorted(order), "the server is made before the program starts, which is before it runs"
    assert "self.wsgi = self.app.wsgi()" in inspect.getsource(Worker.load_wsgi)
    for name in (
        "self.ppid =",
        "self.sockets =",
        "self.alive =",
        "self.cfg =",
        "self.log =",
        "self.app =",
        "self.booted =",
    ):
        assert name in inspect.getsource(Worker.__init__)
    assert "self.worker_class(" in inspect.getsource(Arbiter.spawn_worker)
    assert list(inspect.signature(Logger.setup).parameters) == ["self", "cfg"]
    assert {"load_config", "load", "wsgi", "run"} <= set(vars(BaseApplication))


def test_listeners_give_their_socket() -> None:
    """The server polls it, which gunicorn's wrapper would hide."""
    made = server()
    (listener,) = create_sockets(made.cfg, made.cfg.logger_class(made.cfg))
    try:
        assert isinstance(listener.sock, socket.socket)
    finally:
        listener.close()


def test_a_worker_has_our_server_around_the_application() -> None:
    made = server()
    (listener,) = create_sockets(made.cfg, made.cfg.logger_class(made.cfg))
    worker = made.cfg.worker_class(1, 1, [listener], made, 15, made.cfg, made.cfg.logger_class(made.cfg))
    try:
        assert isinstance(worker, HttpWorker)
        worker.load_wsgi()
        assert worker.server.limits.connections == 77
        assert worker.server.port == listener.sock.getsockname()[1]
        assert made._program is not None
        made.cfg.post_worker_init(worker)
        assert isinstance(made._program, Nothing)
        assert made._program.started_with is worker.server
        worker.handle_exit(15, None)
        assert not worker.alive
        worker.run()  # it does not begin: the signal came before
        worker.server.stop()
    finally:
        worker.tmp.close()
        listener.close()


def test_its_settings() -> None:
    settings = server("::1").cfg
    assert settings.bind == ["[::1]:0"]
    assert settings.workers == 1
    assert settings.graceful_timeout == 5
    assert not settings.preload_app
    assert not settings.accesslog
    assert settings.worker_tmp_dir == ("/dev/shm" if Path("/dev/shm").is_dir() else None)


@pytest.mark.parametrize("has_ipv6", [socket.has_dualstack_ipv6()])
def test_no_host_is_every_address(has_ipv6: bool) -> None:
    assert server("").cfg.bind == ["[::]:0" if has_ipv6 else "0.0.0.0:0"]
