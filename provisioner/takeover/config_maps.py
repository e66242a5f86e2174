"""Writes single keys of our own ConfigMaps; done twice, it is the same."""

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, ApiError


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


def write_config_map(client: Client, name: str, namespace: str, data: Mapping[str, str | None]) -> None:
    """Set some keys, and keep the others; None removes a key."""
    if client.find(resources.CONFIGMAPS, name, namespace) is None:
        given = {key: value for key, value in data.items() if value is not None}
        metadata = {"name": name, "namespace": namespace}
        whole: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": given}
        try:
            client.create(resources.CONFIGMAPS, whole, namespace, retry=True)
        except AlreadyExists:
            pass  # somebody else made it meanwhile
        else:
            return
    client.patch(resources.CONFIGMAPS, name, {"data": data}, namespace)
