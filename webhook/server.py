"""`dovetail webhook`: the application under gunicorn, TLS with certificates that rotate, metrics on a port of their own.

One master and one worker with eight threads. Scale by replicas: every worker keeps caches of its own, so a second worker
costs what a replica costs and survives less. All threads and connections are made in the worker, after the fork.
"""

import gc
import ipaddress
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from certs.authority import CertificateError
from certs.rotation import Rotation, Settings
from certs.serving import ServingContext
from certs.store import Names
from provisioner.apis import names
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ConfigError
from provisioner.support import health, logs
from provisioner.support.clock import SystemClock
from provisioner.support.http_worker import PatientWorker
from webhook.app import Admission, create_app
from webhook.facts import ClusterFacts
from webhook.registration import CONFIGURATION_NAME, RegistrationError, url_client, webhook_configuration

THREADS = 8
KEEPALIVE_SECONDS = 120
"""Longer than the 90 s after which the API server's client closes an idle connection: the server must not be first."""
DEFAULT_NAMESPACE = "dovetail-system"
DEFAULT_SECRET = "dovetail-webhook-tls"
DEFAULT_SERVICE = "dovetail-webhook"
USER_AGENT = "dovetail-webhook"

_log = logs.get_logger(__name__)
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Config:
    """The command line, checked."""

    kubeconfig: str | None
    bind: tuple[str, int]
    metrics_bind: tuple[str, int]
    namespace: str
    cert_dir: Path
    secret: str
    existing_secret: bool
    service: str
    configuration: str
    register_url: str
    scheduler_lease: tuple[str, str]
    scheduler_name: str
    identity: str

    @property
    def names(self) -> Names | None:
        """What the certificate must be valid for; None where somebody else makes it."""
        if self.existing_secret:
            return None
        host = urlsplit(self.register_url).hostname if self.register_url else None
        if host is None:
            return Names.of_service(self.service, self.namespace)
        try:
            return Names.of_service(self.service, self.namespace, addresses=[str(ipaddress.ip_address(host))])
        except ValueError:
            return Names.of_service(self.service, self.namespace, dns=[host])

    def rotation(self) -> Settings:
        """What `certs.rotation` shall keep."""
        document = None
        if self.register_url:
            document = webhook_configuration(url_client(self.register_url), self.namespace, self.configuration)
        return Settings(self.namespace, self.secret, self.configuration, self.names, register=document)


class Program:
    """What lives in the worker: caches, certificates, metrics, and the application over them."""

    def __init__(self, config: Config) -> None:
        clock = SystemClock()
        connection = connect(config.kubeconfig, user_agent=USER_AGENT, pool_size=4, qps=20, burst=40, clock=clock)
        self._config = config
        self.facts = ClusterFacts(connection, clock, config.namespace, config.scheduler_lease, config.scheduler_name)
        self.rotation = Rotation(
            Client(connection, clock), connection, clock, config.rotation(), config.cert_dir, config.identity
        )
        self.app: Flask = create_app(Admission(self.facts, clock), self.reasons_not_ready)
        self._health: health.HealthServer | None = None

    def reasons_not_ready(self) -> list[str]:
        """Why this replica should get no calls; empty when it should."""
        return [*self.facts.reasons_not_ready(), *self.rotation.reasons_not_ready()]

    def start(self) -> None:
        """Start all threads."""
        self.facts.start()
        self.rotation.start()
        host, port = self._config.metrics_bind
        try:
            self._health = health.serve(port, host, {"webhook": lambda: "; ".join(self.reasons_not_ready())})
        except OSError as error:
            _log.error("no metrics: reviews are answered all the same", error=str(error))

    def stop(self) -> None:
        """Stop all threads and give up the Leases."""
        if self._health is not None:
            self._health.stop()
        self.facts.stop()
        self.rotation.stop(timeout=2.0)


class _Log(Logger):  # type: ignore[misc]
    """gunicorn's own messages in our format; a peer that went silent is no news."""

    def setup(self, cfg: Any) -> None:  # noqa: ARG002
        self.error_log = logs.get_logger("gunicorn").logger
        self.access_log = logs.get_logger("gunicorn.access").logger

    def exception(self, msg: str, *args: Any, **kwargs: Any) -> None:
        if isinstance(sys.exc_info()[1], TimeoutError):
            self.error_log.debug("a connection was silent for too long")
            return
        super().exception(msg, *args, **kwargs)


class Server(BaseApplication):  # type: ignore[misc]
    """gunicorn, configured in code: no file, no environment and no command line of its own."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._program: Program | None = None
        super().__init__()

    def load_config(self) -> None:
        """Called by the base class; every setting that differs from gunicorn's default."""
        config = self._config
        serving = ServingContext(config.cert_dir / "tls.pem")
        settings: dict[str, Any] = {
            "bind": _bind_text(config.bind),
            "proc_name": "dovetail-webhook",
            "worker_class": PatientWorker,
            "workers": 1,
            "threads": THREADS,
            "keepalive": KEEPALIVE_SECONDS,
            "timeout": 30,
            "graceful_timeout": 20,
            "max_requests": 0,
            "preload_app": False,
            "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,  # noqa: S108
            "control_socket_disable": True,
            "accesslog": None,
            "logger_class": _Log,
            "certfile": str(config.cert_dir / "tls.pem"),
            "ssl_context": lambda _conf, _default: serving.current(),
            "pre_fork": lambda _arbiter, _worker: _freeze(),
            "post_worker_init": lambda _worker: self._started(),
            "worker_exit": lambda _arbiter, _worker: self._stopped(),
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


def _freeze() -> None:
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
            self.fail(f"{value!r} is not HOST:PORT, e.g. 127.0.0.1:8443 or [::]:8443", param, ctx)
        host = host.removeprefix("[").removesuffix("]")
        return (host or "0.0.0.0", int(port))


class _NamespacedName(click.ParamType[tuple[str, str]]):
    name = "namespace/name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        namespace, _, name = str(value).partition("/")
        if not _OBJECT_NAME.fullmatch(namespace) or not _OBJECT_NAME.fullmatch(name):
            self.fail(f"{value!r} is not NAMESPACE/NAME, e.g. kube-system/dovetail-scheduler", param, ctx)
        return (namespace, name)


class _ObjectName(click.ParamType[str]):
    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _OBJECT_NAME.fullmatch(str(value)):
            self.fail(f"{value!r} is not a name of a Kubernetes object", param, ctx)
        return str(value)


@click.command(name="webhook", context_settings={"show_default": True})
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Default: in-cluster, $KUBECONFIG, ~/.kube/config.")
@click.option("--bind", type=_Address(), default="0.0.0.0:8443", help="Where the API server calls us, over TLS.")
@click.option(
    "--metrics-bind",
    type=_Address(),
    default="127.0.0.1:8444",
    help="Plain HTTP: /metrics, /healthz, /readyz.",
)
@click.option(
    "--namespace",
    type=_ObjectName(),
    default=DEFAULT_NAMESPACE,
    envvar="POD_NAMESPACE",
    help="Where Dovetail runs: its Secret, Leases and the ConfigMap dovetail-defaults. Its pods are never stamped.",
)
@click.option(
    "--cert-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of this replica alone for the serving certificate (an emptyDir). Default: a temporary one.",
)
@click.option("--secret", type=_ObjectName(), default=DEFAULT_SECRET, help="Secret with the serving certificate.")
@click.option(
    "--existing-secret",
    is_flag=True,
    help="The Secret is made and renewed by somebody else (cert-manager); it is only read.",
)
@click.option("--service", type=_ObjectName(), default=DEFAULT_SERVICE, help="Service in front of the webhook.")
@click.option(
    "--configuration",
    type=_ObjectName(),
    default=CONFIGURATION_NAME,
    help="MutatingWebhookConfiguration to look after.",
)
@click.option(
    "--register-url",
    default="",
    metavar="https://HOST:PORT",
    help="Outside of a cluster: create the namespace and the MutatingWebhookConfiguration, for this address.",
)
@click.option(
    "--scheduler-lease",
    type=_NamespacedName(),
    default="kube-system/dovetail-scheduler",
    help="Lease of our scheduler; while it is not renewed no pod is given to it.",
)
@click.option("--scheduler-name", type=_ObjectName(), default=names.SCHEDULER_NAME, help="schedulerName to stamp.")
@click.option(
    "--identity",
    type=_ObjectName(),
    envvar="POD_NAME",
    help="Name of this replica, unique among them. Default: host name and port.",
)
@click.option("--log-level", type=click.Choice(list(logs.LEVELS)), default="info", envvar="LOG_LEVEL")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
def command(
    kubeconfig: str | None,
    bind: tuple[str, int],
    metrics_bind: tuple[str, int],
    namespace: str,
    cert_dir: Path | None,
    secret: str,
    existing_secret: bool,
    service: str,
    configuration: str,
    register_url: str,
    scheduler_lease: tuple[str, str],
    scheduler_name: str,
    identity: str | None,
    log_level: str,
    log_format: logs.Format,
) -> None:
    """Run the admission webhook: stamps label requirements on new pods, by opt-in, and fails open."""
    logs.configure(log_level, log_format)
    temporary = cert_dir is None
    try:
        if register_url:
            url_client(register_url)
        connect(kubeconfig).close()  # says now, not in the worker, that there is no usable configuration
        directory = Path(tempfile.mkdtemp(prefix="dovetail-webhook-")) if cert_dir is None else cert_dir
        config = Config(
            kubeconfig=kubeconfig,
            bind=bind,
            metrics_bind=metrics_bind,
            namespace=namespace,
            cert_dir=directory.absolute(),
            secret=secret,
            existing_secret=existing_secret,
            service=service,
            configuration=configuration,
            register_url=register_url,
            scheduler_lease=scheduler_lease,
            scheduler_name=scheduler_name,
            identity=identity or f"{socket.gethostname().lower()}-{bind[1]}",
        )
        prepare(config)
    except (RegistrationError, ConfigError, CertificateError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot use --cert-dir {cert_dir}: {error.strerror or error}") from error
    master = os.getpid()
    try:
        Server(config).run()
    finally:
        if temporary and os.getpid() == master:  # the worker leaves through here too
            shutil.rmtree(directory, ignore_errors=True)


def prepare(config: Config) -> None:
    """Puts a serving file in place, because gunicorn looks for it before it forks; no network, no thread.

    Raises:
        OSError: the directory cannot be written.
        CertificateError: the names make no certificate.
    """
    Rotation.prepare(config.cert_dir, config.names, config.secret, SystemClock().now())
