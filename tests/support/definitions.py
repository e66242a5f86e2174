"""A real API server that has our definitions, and objects for it that differ from a base in a few places."""

import copy
import json
import pathlib
from typing import Any, Final

import msgspec

from provisioner.apis.crds import DEFINITIONS
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock

Body = dict[str, Any]
CRDS: Final = pathlib.Path(__file__).parents[2] / "manifests" / "crds"
GONE: Final = object()
"""As a value of `changed`: the field is taken away."""


def with_definitions(plane: DevCluster) -> Client:
    """A client of `plane` once it serves every kind of ours."""
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    plane.await_definitions(*(f"{definition.plural}.{definition.group}" for definition in DEFINITIONS))
    return Client(connect(str(plane.kubeconfig), user_agent="dovetail-tests"), SystemClock())


def changed(base: Body, changes: dict[str, Any]) -> Body:
    """A copy of `base` with other values at some dotted paths."""
    body = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split(".")
        at = body
        for name in parents:
            at = at.setdefault(name, {})
        if value is GONE:
            at.pop(last, None)
        else:
            at[last] = value
    return body


def send(client: Client, method: str, path: str, body: Body, *, dry: bool = True) -> Body:
    """What the API server answers; ApiError when it refuses."""
    query = {"dryRun": "All"} if dry else {}
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer: Body = msgspec.json.decode(client.raw(method, path, body, query, content_type=kind))
    return answer


def definition(client: Client, name: str) -> dict[str, Any]:
    """The whole document, as the API server has it."""
    found: dict[str, Any] = json.loads(client.raw("GET", resources.CRDS.path("", name)))
    return found


def stored_versions(client: Client, name: str) -> list[str]:
    """In which versions objects were ever stored."""
    versions: list[str] = definition(client, name)["status"]["storedVersions"]
    return versions
