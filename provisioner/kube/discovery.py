"""Whether the API server serves a kind that not every cluster has."""

import json
from typing import Any

from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import Resource


def serves(client: Client, resource: Resource[Any]) -> bool:
    """Whether a kind of an API group is served in its version, by one request.

    Raises:
        ApiError: the API server did not answer, or refused.
        ValueError: it answered something else than a list of resources.
    """
    path = f"/apis/{resource.api_version}"
    try:
        answer = json.loads(client.raw("GET", path))
    except NotFound:
        return False
    listed = answer.get("resources") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise ValueError(f"{path} is not a list of resources")  # noqa: TRY004 - as of a text that is no JSON
    return any(isinstance(one, dict) and one.get("name") == resource.plural for one in listed)
