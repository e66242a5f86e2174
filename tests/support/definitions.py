"""CustomResourceDefinitions as the API server has them, versions and all."""

import json
from typing import Any

from provisioner.kube.client import Client
from provisioner.kube.resources import CRDS


def definition(client: Client, name: str) -> dict[str, Any]:
    """The whole document."""
    found: dict[str, Any] = json.loads(client.raw("GET", CRDS.path("", name)))
    return found


def stored_versions(client: Client, name: str) -> list[str]:
    """In which versions objects were ever stored."""
    versions: list[str] = definition(client, name)["status"]["storedVersions"]
    return versions
