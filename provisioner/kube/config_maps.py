"""Writes single keys of our own ConfigMaps; done twice, it is the same."""

from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Final

from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, ApiError, Conflict, NotFound

_TRIES: Final = 10
DataChange = Callable[[Mapping[str, str]], Mapping[str, str | None]]
"""What to set, by the data that are there; None removes a key."""


def ensure_namespace(client: Client, name: str) -> None:
    """Create a namespace, if it is not there."""
    if client.find(resources.NAMESPACES, name) is None:
        try:
            client.create(
                resources.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, retry=True
            )
        except AlreadyExists:
            return


def server_time(client: Client, namespace: str) -> datetime | None:
    """The time by the API server's clock, as in creationTimestamp: from a ConfigMap that is not kept; None where a webhook forbids such dry runs.

    Raises:
        ApiError: the server did not answer, or denied it.
    """
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dovetail-clock"}}
    try:
        answer = client.raw("POST", resources.CONFIGMAPS.path(namespace), body, {"dryRun": "All"}, retry=True)
    except ApiError as error:
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        return None
    return resources.CONFIGMAPS.decode(answer).metadata.creation_timestamp


def change_config_map(
    client: Client, name: str, namespace: str, change: DataChange, *, dry_run: bool = False
) -> Mapping[str, str | None]:
    """Set some keys, and keep the others; which were set. Asks again what to set where somebody else wrote at the same moment. In a dry run nothing is written.

    Raises:
        ApiError: the server did not answer, or denied it; NotFound where the namespace is not there, Conflict where somebody was faster ten times.
    """
    tries = _TRIES
    while True:
        tries -= 1
        known = client.find(resources.CONFIGMAPS, name, namespace)
        before = known.data if known is not None else {}
        data = {key: value for key, value in change(before).items() if value != before.get(key)}
        if dry_run or not data:
            return data
        metadata = {"name": name, "resourceVersion": known.metadata.resource_version if known is not None else None}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        try:
            if known is None:
                client.create(resources.CONFIGMAPS, body, namespace, retry=True)
            else:
                client.patch(resources.CONFIGMAPS, name, body, namespace)
        except (Conflict, NotFound) as error:
            if not tries or (known is None and isinstance(error, NotFound)):
                raise
        else:
            return data
