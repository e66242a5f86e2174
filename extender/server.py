"""`dovetail extender`: the application under gunicorn, beside kube-scheduler, metrics on a port of their own.

One master and one worker: kube-scheduler asks one question at a time, so latency counts and more workers do not help.
All threads and connections are made in the worker, after the fork.
"""

import gc
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import click
import msgspec
from flask import Flask

from certs import expiry
from certs.serving import ServingContext
from extender.answering import Answerer
from extender.app import create_app, prompt
from extender.board import Board
from extender.facts import ClaimFacts, ExtenderNode, FamilyMember, claim_facts, decode_member, node_facts
from extender.protocol import MAX_BODY_BYTES
from extender.releasing import Releaser
from extender.reports import ClientIdentity, Reporter
from provisioner.apis import names
from provisioner.apis.reports import LEASE_NAME
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection, connect
from provisioner.kube.errors import ConfigError
from provisioner.kube.lag import Prober
from provisioner.kube.resources import LEASES, NODECLAIMS, NODES, PODS, Resource, itself
from provisioner.kube.watch import Reflector
from provisioner.support import garbage, health, logs, memory
from provisioner.support.addresses import Address, AddressParameter, host_and_port, is_loopback
from provisioner.support.clock import SystemClock
from provisioner.support.http import flags, gunicorn_server
from provisioner.support.http.server import HttpServer
from provisioner.support.http.values import Limits, Prompt
from provisioner.values.duration import DurationError, parse_duration
from provisioner.values.errors import in_words

THREADS: Final = 4
LIMITS: Final = Limits(
    connections=128,
    answer_seconds=0.8,  # kube-scheduler waits for 1 s (`httpTimeout`); told 503 it goes on without us
    body_bytes=MAX_BODY_BYTES,
    idle_seconds=gunicorn_server.KEEPALIVE_SECONDS,
    waiting=32,
)
SWITCH_SECONDS: Final = 0.0001
"""How long a watch thread may keep the interpreter while a question waits; Python's 5 ms are more than its budget."""
PODS_PAGE: Final = 50
"""Pods a request, where they are not streamed: they may have 1.5 MB each."""
USER_AGENT: Final = "dovetail-extender"

MEMBERS: Final[Resource[FamilyMember]] = Resource(
    PODS.group, PODS.version, PODS.plural, PODS.kind, namespaced=True, decode=decode_member, identity=itself
)
"""Pods, of which only what the plan table needs is kept: a few hundred bytes each."""

T = TypeVar("T")
F = TypeVar("F", ExtenderNode, ClaimFacts)

_log = logs.get_logger(__name__)


class KnownPods(msgspec.Struct, Generic[F], frozen=True, gc=False):
    """A Node or NodeClaim by what the plan table needs of it: a tenth of the object.

    Attributes:
        name: of the object.
        namespace: of the object.
        uid: of the object.
        resource_version: of the object that these facts are from.
        facts: about it.
    """

    name: str
    namespace: str
    uid: str
    resource_version: str
    facts: F


def known(resource: Resource[T], facts: Callable[[T], F]) -> Resource[KnownPods[F]]:
    """A kind of which only the facts are kept."""

    def decode(data: bytes) -> KnownPods[F]:
        obj = resource.decode(data)
        its = resource.identity(obj)
        return KnownPods(its.name, its.namespace, its.uid, its.resource_version, facts(obj))

    return Resource(
        resource.group, resource.version, resource.plural, resource.kind, resource.namespaced, decode, itself
    )


def _by_facts(
    changed: Callable[[F | None, F | None], None],
) -> Callable[[KnownPods[F] | None, KnownPods[F] | None], None]:
    def told(old: KnownPods[F] | None, new: KnownPods[F] | None) -> None:
        changed(None if old is None else old.facts, None if new is None else new.facts)

    return told


@dataclass(frozen=True, kw_only=True)
class ExtenderConfig:
    """The command line, checked; its options have the names of the fields, but for those of `reports`."""

    kubeconfig: str | None = None
    bind: Address = ("127.0.0.1", 8090)
    metrics_bind: Address = ("127.0.0.1", 8091)
    health_bind: Address | None = None
    prefix: str = ""
    namespace: str = names.OWN_NAMESPACE
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    reports: ClientIdentity = field(default_factory=ClientIdentity)

    def check(self) -> None:
        """Refuse combinations that are unsafe or cannot work.

        Raises:
            ValueError: says which flag to change.
        """
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("--tls-cert and --tls-key must be set together")
        if self.tls_client_ca and not self.tls_cert:
            raise ValueError("--tls-client-ca requires --tls-cert and --tls-key")
        if not is_loopback(self.bind[0]) and not (self.tls_cert and self.tls_client_ca):
            raise ValueError(
                f"--bind {host_and_port(*self.bind)} is not loopback, so any client could read the plans and delay "
                "kube-scheduler; bind to 127.0.0.1, or set --tls-cert, --tls-key and --tls-client-ca"
            )
        if bool(self.reports.cert_file) != bool(self.reports.key_file):
            raise ValueError("--reports-cert and --reports-key must be set together")
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise ValueError(f"--prefix {self.prefix!r} must begin with / and must not end with /")
        serving = self.serving
        if serving is not None:
            try:
                serving.current()  # says now, not at the first connection, that a file is unusable
            except OSError as error:
                given = (("cert", self.tls_cert), ("key", self.tls_key), ("client-ca", self.tls_client_ca))
                files = ", ".join(f"--tls-{name} {path}" for name, path in given if path)
                raise ValueError(f"{files}: {error}") from error

    @property
    def serving(self) -> ServingContext | None:
        """The TLS context that follows the files; None without TLS."""
        if not self.tls_cert:
            return None
        client_ca = Path(self.tls_client_ca) if self.tls_client_ca else None
        return ServingContext(Path(self.tls_cert), Path(self.tls_key), client_ca)


class ExtenderProgram:
    """What lives in the worker: watches, plan table, releases, reports, and the application over them."""

    def __init__(self, config: ExtenderConfig) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        memory.few_arenas()  # each watch fills its caches in a thread of its own
        clock = SystemClock()
        connection = connect(config.kubeconfig, user_agent=USER_AGENT, pool_size=4, qps=20, burst=40, clock=clock)
        self._config = config
        self.board = Board(clock)
        self.reporter = Reporter(config.reports, clock, lambda: not self.board.problem())
        self.releaser = Releaser(self.board, Client(connection, clock))
        self._watched = _reflectors(connection, self.board)
        self._lease: Reflector[Any] = Reflector(
            connection,
            LEASES,
            namespace=config.namespace,
            field_selector=f"metadata.name={LEASE_NAME}",
            changed=self.reporter.lease_changed,
        )
        self._prober = Prober(self._watched, clock)
        self.board.depend_on(self._watched)  # not on the Lease: without a leader planned pods are steered all the same
        answerer = Answerer(self.board, self.reporter)
        self.app: Flask = create_app(answerer, self.board.problem, config.prefix)
        for certificate, file in (("extender", config.tls_cert), ("reports-client", config.reports.cert_file)):
            if file:
                expiry.watch(certificate, Path(file))
        self.prompt: Prompt | None = prompt(answerer, config.prefix)
        self._probes: list[health.HealthServer] = []

    def start(self, server: HttpServer) -> None:
        """Start all threads."""
        for reflector in (*self._watched, self._lease):
            reflector.start()
        self._prober.poller.start()
        self.reporter.start()
        self.releaser.poller.start()
        threading.Thread(target=self._synced, name="synced", daemon=True).start()
        config = self._config
        self._probes = health.serve_all(
            config.metrics_bind,
            config.health_bind,
            checks={"extender": self.board.problem},
            live_checks=health.live_checks(server, "questions"),  # as kube-scheduler asks them
        )

    def stop(self) -> None:
        """Stop all threads."""
        for probe in self._probes:
            probe.stop()
        self._prober.poller.stop(0.0)
        self.releaser.poller.stop()
        self.reporter.stop()
        for reflector in (*self._watched, self._lease):
            reflector.stop(timeout=1.0)

    def _synced(self) -> None:
        """What the first sync brought was there before us, and stays: the collector need not look at it again and again."""
        for reflector in self._watched:
            reflector.synced.wait()
        with self.board.lock:
            self.board.table.caught_up = True
            self.board.vetoes.begin(self.board.table.live_plans)
        garbage.give_back()
        gc.freeze()
        with self.board.lock:
            _log.info("Ready", table=repr(self.board.table))


def _reflectors(connection: ApiConnection, board: Board) -> tuple[Reflector[Any], ...]:
    at = board.timeline
    return (
        Reflector(connection, known(NODES, node_facts), changed=_by_facts(board.node_changed)),
        Reflector(
            connection, known(NODECLAIMS, lambda one: claim_facts(one, at)), changed=_by_facts(board.claim_changed)
        ),
        Reflector(connection, MEMBERS, changed=board.pod_changed, page=PODS_PAGE),
    )


def server(config: ExtenderConfig, make: Callable[[], gunicorn_server.Program] | None = None) -> gunicorn_server.Server:
    """The program under gunicorn; `make` is for a program of another kind behind the same server."""
    serving = config.serving
    return gunicorn_server.Server(
        "extender",
        config.bind,
        make or (lambda: ExtenderProgram(config)),
        limits=LIMITS,
        threads=THREADS,
        graceful_seconds=5,
        context=serving.current if serving is not None else None,
    )


# --- the command line -----------------------------------------------------------------------------------------------


_FILE = click.Path(dir_okay=False)


class SecondsParameter(click.ParamType[float]):
    """A duration ("120s", "2m") or a number of seconds for click; its value is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        try:
            seconds = float(text)
        except ValueError:
            try:
                return parse_duration(text).total_seconds()
            except DurationError as error:
                self.fail(str(error), param, ctx)
        if not math.isfinite(seconds):
            self.fail(str(DurationError(text)), param, ctx)
        return seconds


@click.command(
    name="extender",
    context_settings={"show_default": True},
    help="Run the scheduler extender: it brings planned pods to their nodes and holds room for them.",
)
@flags.kubeconfig
@click.option(
    "--bind",
    type=AddressParameter(),
    default="127.0.0.1:8090",
    help="Address that kube-scheduler sends its requests to.",
)
@flags.probes(metrics_bind="127.0.0.1:8091")
@click.option(
    "--prefix", default="", help="Path prefix of the verbs, as in the urlPrefix of the extender configuration."
)
@click.option(
    "--namespace", default=names.OWN_NAMESPACE, envvar="POD_NAMESPACE", help="Namespace of the provisioner's Lease."
)
@click.option(
    "--hold-ttl",
    type=SecondsParameter(),
    default=None,
    metavar="DURATION",
    help="Deprecated and ignored: each plan says for how long room is held, as --timeouts of the provisioner does.",
)
@click.option(
    "--tls-cert",
    type=_FILE,
    default="",
    help="Serving certificate; without it, the extender serves plain HTTP on loopback.",
)
@click.option("--tls-key", type=_FILE, default="", help="Private key of --tls-cert.")
@click.option("--tls-client-ca", type=_FILE, default="", help="Require client certificates that are signed by this CA.")
@click.option(
    "--reports-ca",
    type=_FILE,
    default="",
    help="CA that signed the certificate of the provisioner's address for reports.",
)
@click.option("--reports-cert", type=_FILE, default="", help="Client certificate for that address.")
@click.option("--reports-key", type=_FILE, default="", help="Private key of --reports-cert.")
@click.option(
    "--reports-server-name", default="", help="Name in that certificate, if it differs from the host of the URL."
)
@flags.log_level
@flags.log_format
def command(
    hold_ttl: float | None,
    reports_ca: str,
    reports_cert: str,
    reports_key: str,
    reports_server_name: str,
    log_level: str,
    log_format: logs.Format,
    **others: Any,
) -> None:
    """See `dovetail extender --help`."""
    logs.configure(log_level, log_format)
    config = ExtenderConfig(
        reports=ClientIdentity(reports_ca, reports_cert, reports_key, reports_server_name), **others
    )
    if hold_ttl is not None:
        _log.warning(
            "--hold-ttl is deprecated and ignored, because plans say for how long room is held; set "
            "--timeouts=hold=... of the provisioner, and leave this flag out"
        )
    try:
        config.check()
        if config.reports.is_absent:
            _log.warning("Reports over HTTPS are disabled until the certificates exist", ca=reports_ca)
        else:
            config.reports.version()
        connect(config.kubeconfig).close()  # says now, not in the worker, that there is no usable configuration
    except (ValueError, ConfigError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(in_words(error)) from error
    server(config).run()
