"""Charts and overlays, rendered, so that they can be compared: helm and kubectl as they come, and what neither means.

helm, helm-unittest and kubeconform are built once (`dovetail dev build --tools`). Where that is impossible, because the network is not there, tests that need
them are skipped and named; in CI they fail (tests/support/skips.py).
"""

import functools
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from provisioner.lab.devcluster.binaries import find
from provisioner.lab.devcluster.building import GoBuild, chart_tools
from provisioner.lab.harness.workload import REPOSITORY
from tests.support.skips import built

Document = dict[str, Any]

MANIFESTS: Final = REPOSITORY / "manifests"
CHART: Final = MANIFESTS / "charts" / "dovetail"
DEFINITIONS: Final = MANIFESTS / "charts" / "dovetail-crd"
NAMESPACE: Final = "dovetail-system"

_HELMS_LABELS: Final = (
    "helm.sh/chart",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
)


def tools() -> Mapping[str, Path]:
    """helm, helm-unittest and kubeconform by name; the test is skipped where they cannot be built."""
    return built(_tools)


def _tools() -> Mapping[str, Path]:
    return chart_tools(dict(os.environ)).paths


@functools.cache
def kubectl() -> Path:
    """That of the control plane."""
    environment = dict(os.environ)
    return find(GoBuild(environment), environment, names=["kubectl"]).paths["kubectl"]


def run(program: Path, *arguments: str | Path, folder: Path = REPOSITORY, env: Mapping[str, str] | None = None) -> str:
    """The output of a program that succeeds."""
    done = subprocess.run(
        [program, *map(str, arguments)], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, (
        f"{program.name} {' '.join(map(str, arguments))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    )
    return done.stdout


def template(chart: Path, *sets: str, namespace: str = NAMESPACE, release: str = "dovetail") -> list[Document]:
    """What `helm install` would create of a chart, as it stands after `normal`.

    Args:
        sets: values, as `--set` and `--set-json` take them; those with a colon after the equals sign's key are JSON.
    """
    return normal(_parsed(_rendered(chart, sets, namespace, release)))


@functools.cache
def _rendered(chart: Path, sets: tuple[str, ...], namespace: str, release: str) -> str:
    given = [word for one in sets for word in ("--set", one)]
    return run(tools()["helm"], "template", release, chart, "--namespace", namespace, *given)


def _parsed(text: str) -> Iterable[Document | None]:
    return yaml.load_all(text, Loader=yaml.CSafeLoader)


def kustomize(
    folder: Path, resources: Sequence[str], components: Sequence[str] = (), namespace: str = NAMESPACE
) -> list[Document]:
    """What `kubectl apply -k` would create of an overlay with these parts of manifests, as it stands after `normal`."""
    folder.mkdir(exist_ok=True)
    parts = {
        key: [os.path.relpath(MANIFESTS / name, folder.resolve()) for name in names]
        for key, names in (("resources", resources), ("components", components))
    }
    if namespace != NAMESPACE:
        metadata = {"name": "dovetail-namespace", "annotations": {"config.kubernetes.io/local-config": "true"}}
        chosen = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"namespace": namespace}}
        (folder / "namespace.yaml").write_text(yaml.safe_dump(chosen), encoding="utf-8")
        parts["resources"].append("namespace.yaml")
        parts["components"].append(os.path.relpath(MANIFESTS / "components" / "namespace", folder.resolve()))
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(parts), encoding="utf-8")
    return normal(_parsed(run(kubectl(), "kustomize", folder)))


def normal(documents: Iterable[Document | None]) -> list[Document]:
    """The objects without what means nothing: Helm's labels, the order of objects and variables, and the hash in a name."""
    found = [_normal(one) for one in documents if one]
    return sorted(found, key=lambda one: (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]))


def _normal(document: Document) -> Document:
    metadata = document["metadata"]
    labels = {key: value for key, value in metadata.get("labels", {}).items() if key not in _HELMS_LABELS}
    metadata = {key: value for key, value in metadata.items() if key != "labels"} | (
        {"labels": labels} if labels else {}
    )
    document = document | {"metadata": metadata}
    if document["kind"] == "ConfigMap":
        metadata["name"] = _unhashed(metadata["name"])
    if document["kind"] == "Deployment":
        pod = document["spec"]["template"]["spec"]
        for container in pod["containers"]:
            container["env"].sort(key=lambda variable: variable["name"])
        for volume in pod["volumes"]:
            if "configMap" in volume:
                volume["configMap"]["name"] = _unhashed(volume["configMap"]["name"])
    return document


def _unhashed(name: str) -> str:
    """Without what kustomize and the chart append so that a change makes new Pods."""
    return re.sub("-[0-9a-z]{10}$", "", name)
