"""`dovetail webhook`: the application under gunicorn, TLS with certificates that rotate, metrics on a port of their own.

One master and one worker with eight threads. Scale by replicas: every worker keeps caches of its own, so a second worker
costs what a replica costs and survives less. All threads and connections are made in the worker, after the fork.
"""

import ipaddress
import os
import re
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from flask import Flask

from certs import expiry
from certs.authority import CertificateError
from certs.rotation import SERVING_FILE, Rotation, RotationSettings
from certs.serving import ServingContext
from certs.store import SecretNames
from provisioner.apis import names
from provisioner.apis.conversion.definitions import BETA
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ConfigError
from provisioner.support import health, logs
from provisioner.support.addresses import Address, AddressParameter
from provisioner.support.clock import Clock, SystemClock
from provisioner.support.http import flags, gunicorn_server
from provisioner.support.http.server import HttpServer
from provisioner.support.http.values import Limits, Prompt
from webhook.app import AdmissionHandler, create_app
from webhook.conversion import Conversion
from webhook.facts import NamespaceFacts
from webhook.registration import (
    CONFIGURATION_NAME,
    VALIDATE_PATH,
    RegistrationError,
    url_client,
    validating_configuration,
    webhook_configuration,
)
from webhook.review import MAX_BODY_BYTES
from webhook.validation import Validation

if TYPE_CHECKING:
    from webhook.images.service import ImageService, ImageSettings

THREADS = 8
LIMITS = Limits(
    answer_seconds=2.0,  # the API server asks with `timeoutSeconds: 2`: later nobody listens
    body_bytes=MAX_BODY_BYTES,
    idle_seconds=gunicorn_server.KEEPALIVE_SECONDS,
)
DEFAULT_SECRET = "dovetail-webhook-tls"
DEFAULT_SERVICE = "dovetail-webhook"
USER_AGENT = "dovetail-webhook"
DEFINITIONS = tuple(f"{one.plural}.{one.group}" for one in BETA.values())
"""What `--conversion` looks after."""

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class WebhookConfig:
    """The command line, checked; its options have the names of the fields."""

    kubeconfig: str | None
    bind: Address
    metrics_bind: Address
    health_bind: Address | None
    namespace: str
    cert_dir: Path
    secret: str
    existing_secret: bool
    existing_bundle: bool
    service: str
    configuration: str
    register_url: str
    scheduler_lease: tuple[str, str]
    scheduler_name: str
    identity: str
    conversion: bool = False
    karpenter_namespace: str = ""
    on_demand_shares: bool = False
    images: "ImageSettings | None" = None

    @property
    def names(self) -> SecretNames | None:
        """What the certificate must be valid for; None where somebody else makes it."""
        if self.existing_secret:
            return None
        host = urlsplit(self.register_url).hostname if self.register_url else None
        if host is None:
            return SecretNames.of_service(self.service, self.namespace)
        try:
            return SecretNames.of_service(self.service, self.namespace, addresses=[str(ipaddress.ip_address(host))])
        except ValueError:
            return SecretNames.of_service(self.service, self.namespace, dns=[host])

    def rotation(self) -> RotationSettings:
        """What `certs.rotation` shall keep."""
        documents: tuple[dict[str, Any], ...] = ()
        if self.register_url:
            documents = (
                webhook_configuration(url_client(self.register_url), self.namespace, self.configuration),
                validating_configuration(url_client(self.register_url, VALIDATE_PATH), self.configuration),
            )
        return RotationSettings(
            self.namespace,
            self.secret,
            self.configuration,
            self.names,
            inject=not self.existing_bundle,
            register=documents,
            definitions=DEFINITIONS if self.conversion else (),
            karpenter_namespace=self.karpenter_namespace,
        )


class WebhookProgram:
    """What lives in the worker: caches, certificates, metrics, and the application over them."""

    def __init__(self, config: WebhookConfig) -> None:
        clock = SystemClock()
        connection = connect(config.kubeconfig, user_agent=USER_AGENT, pool_size=4, qps=20, burst=40, clock=clock)
        self._config = config
        self.facts = NamespaceFacts(
            connection, clock, config.namespace, config.scheduler_lease, config.scheduler_name,
            count_pods=config.on_demand_shares,
        )  # fmt: skip
        self._images = _image_service(config, self.facts, clock)
        self.rotation = Rotation(
            Client(connection, clock), connection, clock, config.rotation(), config.cert_dir, config.identity
        )
        self.app: Flask = create_app(
            AdmissionHandler(self.facts, clock),
            Validation(self.facts.surroundings, clock),
            Conversion(clock),
            self.problem,
        )
        expiry.watch("webhook", config.cert_dir / SERVING_FILE)
        self.prompt: Prompt | None = None  # a review may wait for a namespace
        self._probes: list[health.HealthServer] = []

    def problem(self) -> str:
        """Why this replica should get no calls; "" when it should."""
        return "; ".join(filter(None, (self.facts.problem(), self.rotation.problem())))

    def start(self, server: HttpServer) -> None:
        self.facts.start()
        self.rotation.start()
        if self._images is not None:
            self._images.start()
        config = self._config
        self._probes = health.serve_all(
            config.metrics_bind,
            config.health_bind,
            checks={"webhook": self.problem},
            live_checks=health.live_checks(server, "reviews"),  # as the API server asks for them
        )

    def stop(self) -> None:
        for probe in self._probes:
            probe.stop()
        if self._images is not None:
            self._images.stop()
        self.facts.stop()
        self.rotation.stop(timeout=2.0)


def _image_service(config: WebhookConfig, facts: NamespaceFacts, clock: Clock) -> "ImageService | None":
    """What looks up images; nothing of it is loaded unless it is switched on."""
    if config.images is None:
        return None
    from webhook.images.service import ImageService  # noqa: PLC0415 - loaded only with --image-registries

    service = ImageService(config.images, config.kubeconfig, facts.of, clock)
    facts.look_up_images(service)
    return service


def _image_settings(registries: str, networks: str, accounts: str, ca: str | None) -> "ImageSettings | None":
    if not registries.strip() and not accounts.strip():
        return None
    from webhook.images.service import settings_of  # noqa: PLC0415 - loaded only with --image-registries
    from webhook.images.trust import TrustError  # noqa: PLC0415 - loaded only with --image-registries

    try:
        return settings_of(registries, networks, accounts, ca)
    except TrustError as error:
        raise click.UsageError(str(error)) from error


def server(config: WebhookConfig) -> gunicorn_server.Server:
    """The program under gunicorn."""
    serving = ServingContext(config.cert_dir / SERVING_FILE)
    return gunicorn_server.Server(
        "webhook",
        config.bind,
        lambda: WebhookProgram(config),
        limits=LIMITS,
        threads=THREADS,
        graceful_seconds=20,
        context=serving.current,
    )


# --- the command line -----------------------------------------------------------------------------------------------


class _NamespacedName(click.ParamType[tuple[str, str]]):
    name = "namespace/name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        namespace, _, name = str(value).partition("/")
        if not _OBJECT_NAME.fullmatch(namespace) or not _OBJECT_NAME.fullmatch(name):
            self.fail(f"{value!r} is not NAMESPACE/NAME, e.g. dovetail-system/dovetail-scheduler", param, ctx)
        return (namespace, name)


class _ObjectName(click.ParamType[str]):
    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _OBJECT_NAME.fullmatch(str(value)):
            self.fail(f"{value!r} is not a valid name of a Kubernetes object", param, ctx)
        return str(value)


@click.command(
    name="webhook",
    context_settings={"show_default": True},
    help="Run the admission webhook: it stamps label requirements on new pods that opt in, validates NodePools and related objects, and fails open.",
)
@flags.kubeconfig
@click.option("--bind", type=AddressParameter(), default=":8443", help="Address that the API server calls, over TLS.")
@flags.probes(metrics_bind="127.0.0.1:8444")
@click.option(
    "--namespace",
    type=_ObjectName(),
    default=names.OWN_NAMESPACE,
    envvar="POD_NAMESPACE",
    help="Namespace that Dovetail runs in, with its Secret, its Leases and the ConfigMap dovetail-defaults. Pods in it are never stamped.",
)
@click.option(
    "--cert-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the serving certificate, not shared with other replicas (an emptyDir). Default: a temporary directory.",
)
@click.option("--secret", type=_ObjectName(), default=DEFAULT_SECRET, help="Secret with the serving certificate.")
@click.option(
    "--existing-secret",
    is_flag=True,
    help="Only read the Secret; another program such as cert-manager creates and renews it.",
)
@click.option(
    "--existing-bundle",
    is_flag=True,
    help="Only read the caBundle of the configuration; another program such as cert-manager or an installer sets it.",
)
@click.option("--service", type=_ObjectName(), default=DEFAULT_SERVICE, help="Service in front of the webhook.")
@click.option(
    "--configuration",
    type=_ObjectName(),
    default=CONFIGURATION_NAME,
    help="Name of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration to maintain.",
)
@click.option(
    "--register-url",
    default="",
    metavar="https://HOST:PORT",
    help="Outside a cluster: create the namespace and both webhook configurations for this URL.",
)
@click.option(
    "--scheduler-lease",
    type=_NamespacedName(),
    default=f"{names.OWN_NAMESPACE}/{names.SCHEDULER_NAME}",
    help="Lease of the Dovetail scheduler; while it is not renewed, no pods are assigned to that scheduler.",
)
@click.option(
    "--karpenter-namespace",
    default="",
    metavar="NAMESPACE",
    help="With --conversion: namespace of a Karpenter next to Dovetail, in addition to karpenter and kube-system.",
)
@click.option("--scheduler-name", type=_ObjectName(), default=names.SCHEDULER_NAME, help="schedulerName to stamp.")
@click.option(
    "--on-demand-shares",
    is_flag=True,
    help="Apply dovetail.dev/on-demand: count the pods of an owner, which requires the permissions to list and watch pods.",
)
@click.option(
    "--image-registries",
    default="",
    metavar="HOST,...",
    help="Container registries that are queried for the architectures of images (dovetail.dev/image-arch): HOST, HOST:PORT or *.DOMAIN,"
    " with =HOST for each other host that a registry may redirect to or that issues its tokens. Default: no registry is queried.",
)
@click.option(
    "--image-ecr-accounts",
    default="",
    metavar="ACCOUNT,...",
    help="AWS accounts whose private Amazon ECR registries are queried with the IAM role of the webhook.",
)
@click.option(
    "--image-registry-networks",
    default="",
    metavar="CIDR,...",
    help="Private networks that registries may be in. By default only registries with public addresses are queried.",
)
@click.option(
    "--image-registry-ca",
    type=click.Path(dir_okay=False),
    help="PEM file with additional certificate authorities to trust for registries.",
)
@click.option(
    "--identity",
    type=_ObjectName(),
    envvar="POD_NAME",
    help="Unique name of this replica. Default: host name and port.",
)
@click.option(
    "--conversion",
    is_flag=True,
    help="Maintain the caBundle of the CustomResourceDefinitions that serve v1beta1 in addition to v1 (component conversion).",
)
@flags.log_level
@flags.log_format
def command(
    kubeconfig: str | None,
    bind: Address,
    cert_dir: Path | None,
    register_url: str,
    image_registries: str,
    image_ecr_accounts: str,
    image_registry_networks: str,
    image_registry_ca: str | None,
    identity: str | None,
    log_level: str,
    log_format: logs.Format,
    **others: Any,
) -> None:
    """See `dovetail webhook --help`."""
    logs.configure(log_level, log_format)
    images = _image_settings(image_registries, image_registry_networks, image_ecr_accounts, image_registry_ca)
    temporary = cert_dir is None
    try:
        if register_url:
            url_client(register_url)
        connect(kubeconfig).close()  # says now, not in the worker, that there is no usable configuration
        directory = Path(tempfile.mkdtemp(prefix="dovetail-webhook-")) if cert_dir is None else cert_dir
        config = WebhookConfig(
            kubeconfig=kubeconfig,
            bind=bind,
            cert_dir=directory.absolute(),
            register_url=register_url,
            images=images,
            identity=identity or f"{socket.gethostname().lower()}-{bind[1]}",
            **others,
        )
        prepare(config)
    except (RegistrationError, ConfigError, CertificateError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot use --cert-dir {cert_dir}: {error.strerror or error}") from error
    master = os.getpid()
    try:
        server(config).run()
    finally:
        if temporary and os.getpid() == master:  # the worker leaves through here too
            shutil.rmtree(directory, ignore_errors=True)


def prepare(config: WebhookConfig) -> None:
    """Puts a serving file in place, because gunicorn looks for it before it forks; no network, no thread.

    Raises:
        OSError: the directory cannot be written.
        CertificateError: the names make no certificate.
    """
    Rotation.prepare(config.cert_dir, config.names, config.secret, SystemClock().now())
