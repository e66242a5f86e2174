"""Flags that the webhook and the extender share, as decorators of their click commands."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from provisioner.support import logs
from provisioner.support.addresses import AddressParameter

Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)

kubeconfig: Final = click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Default: in-cluster, $KUBECONFIG, ~/.kube/config."
)
log_level: Final = click.option(
    "--log-level",
    type=click.Choice(list(logs.LEVELS)),
    default="info",
    envvar="LOG_LEVEL",
    help="Minimum level of messages that are logged.",
)
log_format: Final = click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default="text",
    envvar="DOVETAIL_LOG_FORMAT",
    help="Format of log lines.",
)


def probes(metrics_bind: str) -> Callable[[Command], Command]:
    """--metrics-bind, with this default, and --health-bind."""

    def decorate(command: Command) -> Command:
        health = click.option(
            "--health-bind",
            type=AddressParameter(),
            help="Separate address for /healthz and /readyz, so that only the kubelet needs to reach it.",
        )
        metrics = click.option(
            "--metrics-bind",
            type=AddressParameter(),
            default=metrics_bind,
            help="Address of /metrics, /healthz and /readyz, over plain HTTP.",
        )
        return metrics(health(command))

    return decorate
