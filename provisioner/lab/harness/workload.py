"""Example manifests as documents: reading them, counting their pods, and shrinking a workload for a shorter run."""

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from provisioner.apis import names

Document = dict[str, Any]

SPREAD_NAMESPACE = "spread"
_OVER_ZONES, _OVER_NODES = (names.ZONE_LABEL,), (names.HOSTNAME_LABEL,)
_SPREAD_REQUESTS = ({"cpu": "500m", "memory": "1Gi"}, {"cpu": "250m", "memory": "1Gi"}, {"cpu": "1", "memory": "2Gi"})

REPOSITORY = Path(__file__).resolve().parents[3]


class ExampleError(Exception):
    """A manifest of the repository that the command needs is missing or unreadable; says what to do."""


def manifests() -> Path:
    """The repository's `manifests` directory.

    Raises:
        ExampleError: the package was installed without its repository.
    """
    directory = REPOSITORY / "manifests"
    if not directory.is_dir():
        message = (
            f"{directory} does not exist: the demo and the benchmarks apply the manifests of the repository; "
            "run them from a checkout installed with `make install` (or `pip install -e .`)"
        )
        raise ExampleError(message)
    return directory


def load(path: Path) -> list[Document]:
    """Every document of a YAML file, in order.

    Raises:
        ExampleError: the file is missing, is no YAML, or holds something that is no Kubernetes object.
    """
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
    except FileNotFoundError:
        raise ExampleError(f"{path} does not exist: restore it with `git checkout -- {path}`") from None
    except (OSError, yaml.YAMLError) as error:
        raise ExampleError(f"{path} cannot be read: {error}") from error
    for document in documents:
        if not (isinstance(document, dict) and document.get("kind") and document.get("apiVersion")):
            raise ExampleError(f"{path} holds a document without kind and apiVersion: {str(document)[:80]}")
    return documents


def example(name: str) -> list[Document]:
    """Documents of `manifests/examples/NAME`."""
    return load(manifests() / "examples" / name)


def of_kind(documents: Iterable[Document], *kinds: str) -> list[Document]:
    """The documents of these kinds, order kept."""
    return [document for document in documents if document["kind"] in kinds]


def pods_of(documents: Iterable[Document]) -> int:
    """How many pods the Deployments ask for; a DaemonSet's depend on the nodes and are not counted."""
    return sum(int(document["spec"].get("replicas", 1)) for document in of_kind(documents, "Deployment"))


def scaled(documents: Iterable[Document], pods: int) -> list[Document]:
    """The same workload with `pods` pods in all, every Deployment in proportion and at least one pod each.

    Largest remainders first, ties by name, so the sum is exact and the same every time.

    Raises:
        ValueError: fewer pods than Deployments.
    """
    copies = [copy.deepcopy(document) for document in documents]
    deployments = sorted(of_kind(copies, "Deployment"), key=lambda document: str(document["metadata"]["name"]))
    total = pods_of(deployments)
    if pods == total:
        return copies
    if pods < len(deployments):
        raise ValueError(f"{pods} pods for {len(deployments)} Deployments: ask for at least one pod each")
    spare = pods - len(deployments)
    shares = [spare * int(document["spec"].get("replicas", 1)) for document in deployments]
    counts = [1 + share // total for share in shares]
    remainders = sorted(range(len(deployments)), key=lambda index: -(shares[index] % total))
    for index in remainders[: pods - sum(counts)]:
        counts[index] += 1
    for document, count in zip(deployments, counts, strict=True):
        document["spec"]["replicas"] = count
    return copies


def renamed(documents: Iterable[Document], names: Mapping[str, str]) -> list[Document]:
    """The same documents with other words for some values, wherever they stand: the zones of another cloud."""

    def read(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: read(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [read(inner) for inner in value]
        return names.get(value, value) if isinstance(value, str) else value

    return [read(document) for document in documents]


def namespace(name: str) -> Document:
    """A namespace without labels."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def deployment(name: str, namespace: str, replicas: int, requests: Mapping[str, str]) -> Document:
    """A plain Deployment of pods that differ in nothing but their requests."""
    labels = {"app": name}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": dict(requests)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"automountServiceAccountToken": False, "containers": [container]},
            },
        },
    }


def spread(document: Document, *keys: str) -> Document:
    """The same Deployment, spread over each of these with DoNotSchedule and maxSkew 1."""
    labels = document["spec"]["selector"]["matchLabels"]
    document["spec"]["template"]["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
        for key in keys
    ]
    return document


def spread_workload(pods: int) -> list[Document]:
    """Twelve equal Deployments, each spread with DoNotSchedule and maxSkew 1: six over zones, three over nodes, three over both.

    Sizes differ, so that nodes are shared. The namespace comes first.
    """
    found = [namespace(SPREAD_NAMESPACE)]
    kinds = (_OVER_ZONES,) * 6 + (_OVER_NODES,) * 3 + ((*_OVER_ZONES, *_OVER_NODES),) * 3
    for number, keys in enumerate(kinds):
        name = f"spread-{number:02}"
        requests = _SPREAD_REQUESTS[number % len(_SPREAD_REQUESTS)]
        found.append(spread(deployment(name, SPREAD_NAMESPACE, pods // len(kinds), requests), *keys))
    return found
