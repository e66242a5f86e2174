"""`dovetail extender`: the application under gunicorn, beside kube-scheduler, metrics on a port of their own.

One master and one worker: kube-scheduler asks one question at a time, so latency counts and more workers do not help.
All threads and connections are made in the worker, after the fork.
"""

import gc
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from extender.answering import Answerer
from extender.app import create_app
from extender.board import Board, Feed
from extender.facts import decode_member
from extender.plan import Member
from extender.releasing import Releaser
from extender.reports import Identity, Reporter, is_loopback
from provisioner.apis.reports import LEASE_NAME
from provisioner.kube.client import Client
from provisioner.kube.config import Connection, connect
from provisioner.kube.errors import ConfigError
from provisioner.kube.resources import LEASES, NODECLAIMS, NODES, PODS, Resource, itself
from provisioner.kube.watch import Reflector
from provisioner.support import health, logs
from provisioner.support.clock import SystemClock
from provisioner.support.http_worker import PatientWorker

THREADS: Final = 4
KEEPALIVE_SECONDS: Final = 120
"""Longer than the 90 s after which kube-scheduler closes an idle connection: the server must not be first."""
SWITCH_SECONDS: Final = 0.0005
"""How long a watch thread may keep the interpreter while a question waits; Python's 5 ms are more than its budget."""
DEFAULT_NAMESPACE: Final = "dovetail-system"
DEFAULT_HOLD_SECONDS: Final = 120.0
USER_AGENT: Final = "dovetail-extender"

MEMBERS: Final[Resource[Member]] = Resource(
    PODS.group, PODS.version, PODS.plural, PODS.kind, namespaced=True, decode=decode_member, identity=itself
)
"""Pods, of which only what the plan table needs is kept: a few hundred bytes each."""

_log = logs.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The command line, checked.

    Attributes:
        kubeconfig: path, None for the default places.
        bind: host and port for kube-scheduler.
        metrics_bind: host and port of /metrics, /healthz and /readyz, plain.
        prefix: path in front of the verbs.
        namespace: where the provisioner's Lease is.
        hold_seconds: how long after its node is ready a plan holds room.
        tls_cert: serving certificate in PEM form, "" for plain HTTP.
        tls_key: its key.
        tls_client_ca: whom clients have to have a certificate from, "" for nobody.
        reports: for https to the provisioner.
    """

    kubeconfig: str | None = None
    bind: tuple[str, int] = ("127.0.0.1", 8090)
    metrics_bind: tuple[str, int] = ("127.0.0.1", 8091)
    prefix: str = ""
    namespace: str = DEFAULT_NAMESPACE
    hold_seconds: float = DEFAULT_HOLD_SECONDS
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    reports: Identity = field(default_factory=Identity)

    def check(self) -> None:
        """Refuse combinations that are unsafe or cannot work.

        Raises:
            ValueError: says which flag to change.
        """
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("--tls-cert and --tls-key belong together")
        if self.tls_client_ca and not self.tls_cert:
            raise ValueError("--tls-client-ca needs --tls-cert and --tls-key")
        if not self.tls_cert and not is_loopback(self.bind[0]):
            raise ValueError(
                f"--bind {self.bind[0]} is not loopback and there is no TLS: bind 127.0.0.1, or give --tls-cert, "
                "--tls-key and --tls-client-ca"
            )
        if bool(self.reports.cert_file) != bool(self.reports.key_file):
            raise ValueError("--reports-cert and --reports-key belong together")
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise ValueError(f"--prefix {self.prefix!r} has to begin with / and not to end in it")
        if self.hold_seconds < 0:
            raise ValueError("--hold-ttl cannot be negative")
        if self.tls_cert:
            _context(self)  # says now, not at the first connection, that a file is unusable


class Program:
    """What lives in the worker: watches, plan table, releases, reports, and the application over them."""

    def __init__(self, config: Config) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        clock = SystemClock()
        connection = connect(config.kubeconfig, user_agent=USER_AGENT, pool_size=4, qps=20, burst=40, clock=clock)
        self._config = config
        self.board = Board(config.hold_seconds, clock)
        self.reporter = Reporter(config.reports, clock, lambda: not self.board.complaint())
        self.releaser = Releaser(self.board, Client(connection, clock))
        self._watched = _reflectors(connection, self.board)
        self._lease: Reflector[Any] = Reflector(
            connection,
            LEASES,
            namespace=config.namespace,
            field_selector=f"metadata.name={LEASE_NAME}",
            handlers=[Feed(self.reporter.lease_changed)],
        )
        self.board.depend_on(self._watched)  # not on the Lease: without a leader planned pods are steered all the same
        self.app: Flask = create_app(Answerer(self.board, self.reporter), self.board.complaint, config.prefix)
        self._health: health.HealthServer | None = None

    def start(self) -> None:
        """Start all threads."""
        for reflector in (*self._watched, self._lease):
            reflector.start()
        self.reporter.start()
        self.releaser.start()
        threading.Thread(target=self._freeze, name="freeze", daemon=True).start()
        host, port = self._config.metrics_bind
        try:
            self._health = health.serve(port, host, {"extender": self.board.complaint})
        except OSError as error:
            _log.error("no metrics: questions are answered all the same", error=str(error))

    def stop(self) -> None:
        """Stop all threads."""
        if self._health is not None:
            self._health.stop()
        self.releaser.stop()
        self.reporter.stop()
        for reflector in (*self._watched, self._lease):
            reflector.stop(timeout=1.0)

    def _freeze(self) -> None:
        """What the first sync brought stays: the collector need not look at it again and again."""
        for reflector in self._watched:
            reflector.synced.wait()
        gc.collect()
        gc.freeze()
        with self.board.lock:
            _log.info("ready", table=repr(self.board.table))


def _reflectors(connection: Connection, board: Board) -> tuple[Reflector[Any], ...]:
    return (
        Reflector(connection, NODES, handlers=[Feed(board.node_changed)]),
        Reflector(connection, NODECLAIMS, handlers=[Feed(board.claim_changed)]),
        Reflector(connection, MEMBERS, handlers=[Feed(board.pod_changed)]),
    )


# --- gunicorn -------------------------------------------------------------------------------------------------------


class _Log(Logger):  # type: ignore[misc]
    """gunicorn's own messages in our format."""

    def setup(self, cfg: Any) -> None:  # noqa: ARG002
        self.error_log = logs.get_logger("gunicorn").logger
        self.access_log = logs.get_logger("gunicorn.access").logger


class Server(BaseApplication):  # type: ignore[misc]
    """gunicorn, configured in code: no file, no environment and no command line of its own."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._program: Program | None = None
        self._tls = _CachedContext(config) if config.tls_cert else None
        super().__init__()

    def load_config(self) -> None:
        """Called by the base class; every setting that differs from gunicorn's default."""
        config = self._config
        settings: dict[str, Any] = {
            "bind": _bind_text(config.bind),
            "proc_name": "dovetail-extender",
            "worker_class": PatientWorker,
            "workers": 1,
            "threads": THREADS,
            "keepalive": KEEPALIVE_SECONDS,
            "timeout": 30,
            "graceful_timeout": 5,
            "max_requests": 0,
            "preload_app": False,
            "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,  # noqa: S108
            "control_socket_disable": True,
            "accesslog": None,
            "logger_class": _Log,
            "pre_fork": lambda _arbiter, _worker: _share(),
            "post_worker_init": lambda _worker: self._started(),
            "worker_exit": lambda _arbiter, _worker: self._stopped(),
        }
        tls = self._tls
        if tls is not None:
            settings |= {
                "certfile": config.tls_cert,
                "keyfile": config.tls_key,
                "ssl_context": lambda _conf, _default: tls.current(),
            }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Callable[..., Any]:
        """Called by gunicorn in the worker."""
        self._program = Program(self._config)
        return self._program.app

    def _started(self) -> None:
        if self._program is not None:
            self._program.start()

    def _stopped(self) -> None:
        if self._program is not None:
            self._program.stop()


class _CachedContext:
    """The TLS context of the files as they are; gunicorn asks at every connection, building one takes milliseconds."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._known: tuple[tuple[int, ...], ssl.SSLContext] = (self._version(), _context(config))

    def current(self) -> ssl.SSLContext:
        """Built anew after a file changed; files that cannot be used leave the former context in place."""
        with self._lock:
            try:
                version = self._version()
                if version != self._known[0]:
                    self._known = (version, _context(self._config))
            except (OSError, ValueError) as error:
                _log.warning("the serving certificate cannot be read anew", error=str(error))
            return self._known[1]

    def _version(self) -> tuple[int, ...]:
        paths = (self._config.tls_cert, self._config.tls_key, self._config.tls_client_ca)
        return tuple(Path(path).stat().st_mtime_ns for path in paths if path)


def _context(config: Config) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except OSError as error:
        raise ValueError(f"--tls-cert {config.tls_cert} and --tls-key {config.tls_key}: {error}") from error
    if config.tls_client_ca:
        try:
            context.load_verify_locations(config.tls_client_ca)
        except OSError as error:
            raise ValueError(f"--tls-client-ca {config.tls_client_ca}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _share() -> None:
    """Keeps the collector from touching what master and worker share, so that it stays shared."""
    gc.collect()
    gc.freeze()


def _bind_text(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# --- the command line -----------------------------------------------------------------------------------------------


class _Address(click.ParamType[tuple[str, int]]):
    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, separator, port = str(value).rpartition(":")
        if not separator or not port.isdigit() or not 0 <= int(port) <= 65535:
            self.fail(f"{value!r} is not HOST:PORT, e.g. 127.0.0.1:8090 or [::1]:8090", param, ctx)
        host = host.removeprefix("[").removesuffix("]")
        return (host or "0.0.0.0", int(port))


_FILE = click.Path(dir_okay=False)


@click.command(name="extender", context_settings={"show_default": True})
@click.option("--kubeconfig", type=_FILE, help="Default: in-cluster, $KUBECONFIG, ~/.kube/config.")
@click.option("--bind", type=_Address(), default="127.0.0.1:8090", help="Where kube-scheduler asks us.")
@click.option(
    "--metrics-bind", type=_Address(), default="127.0.0.1:8091", help="Plain HTTP: /metrics, /healthz, /readyz."
)
@click.option("--prefix", default="", help="Path in front of the verbs, as in the extender's urlPrefix.")
@click.option(
    "--namespace", default=DEFAULT_NAMESPACE, envvar="POD_NAMESPACE", help="Where the provisioner's Lease is."
)
@click.option(
    "--hold-ttl",
    type=float,
    default=DEFAULT_HOLD_SECONDS,
    metavar="SECONDS",
    help="How long after its node is ready a plan holds room.",
)
@click.option("--tls-cert", type=_FILE, default="", help="Serving certificate; without one, plain HTTP on loopback.")
@click.option("--tls-key", type=_FILE, default="", help="Its key.")
@click.option("--tls-client-ca", type=_FILE, default="", help="Ask clients for a certificate of this CA.")
@click.option("--reports-ca", type=_FILE, default="", help="CA of the provisioner's address for reports.")
@click.option("--reports-cert", type=_FILE, default="", help="Client certificate for it.")
@click.option("--reports-key", type=_FILE, default="", help="Its key.")
@click.option("--reports-server-name", default="", help="Name in its certificate, where it is not the URL's host.")
@click.option("--log-level", type=click.Choice(list(logs.LEVELS)), default="info", envvar="LOG_LEVEL")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
def command(
    kubeconfig: str | None,
    bind: tuple[str, int],
    metrics_bind: tuple[str, int],
    prefix: str,
    namespace: str,
    hold_ttl: float,
    tls_cert: str,
    tls_key: str,
    tls_client_ca: str,
    reports_ca: str,
    reports_cert: str,
    reports_key: str,
    reports_server_name: str,
    log_level: str,
    log_format: logs.Format,
) -> None:
    """Run the scheduler extender: brings planned pods to their nodes and holds their room."""
    logs.configure(log_level, log_format)
    config = Config(
        kubeconfig=kubeconfig,
        bind=bind,
        metrics_bind=metrics_bind,
        prefix=prefix,
        namespace=namespace,
        hold_seconds=hold_ttl,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        reports=Identity(reports_ca, reports_cert, reports_key, reports_server_name),
    )
    try:
        config.check()
        if config.reports.is_absent:
            _log.warning("no reports over https until the certificates are there", ca=reports_ca)
        else:
            config.reports.version()
        connect(kubeconfig).close()  # says now, not in the worker, that there is no usable configuration
    except (ValueError, ConfigError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    Server(config).run()
