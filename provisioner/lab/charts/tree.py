"""What kustomize would make of manifests: objects by file, and what each component adds, changes and takes away."""

import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml

Document = dict[str, Any]

CONDITIONS: Final = {
    "kwok": 'eq .Values.provider "kwok"',
    "aws": 'eq .Values.provider "aws"',
    "surge": ".Values.surge.enabled",
    "vpa-predictions": ".Values.vpaPredictions.enabled",
    "conversion": ".Values.conversion.enabled",
    "on-demand-shares": ".Values.webhook.onDemandShares.enabled",
    "image-architectures": ".Values.webhook.imageArchitectures.enabled",
    "admission-policy": ".Values.admissionPolicy.enabled",
    "webhook-read-only": "or .Values.webhook.readOnly .Values.webhook.certManager.enabled",
    "cert-manager": ".Values.webhook.certManager.enabled",
    "without-webhook": "not .Values.webhook.enabled",
    "scheduler-before-1.35": ".Values.scheduler.before135",
}
"""When a component is part of the installation, by its name; the order is that in which their changes are applied."""

MONITORING: Final = "monitoring"
"""The component each of whose kinds has a switch of its own."""

_SWITCHES: Final = {
    "ConfigMap": ".Values.dashboards.enabled",
    "PodMonitor": ".Values.serviceMonitor.enabled",
    "PrometheusRule": ".Values.prometheusRule.enabled",
    "Service": ".Values.serviceMonitor.enabled",  # which a ServiceMonitor selects
    "ServiceMonitor": ".Values.serviceMonitor.enabled",
}

NOT_IN_THE_CHART: Final = frozenset({"namespace"})
"""Components that Helm does without: it says in which namespace it installs."""


class ObjectKey(NamedTuple):
    """Which object."""

    kind: str
    name: str


def key_of(document: Document) -> ObjectKey:
    """Which object it is."""
    return ObjectKey(document["kind"], document["metadata"]["name"])


@dataclass
class Source:
    """One object of one file, and how components change it.

    Attributes:
        path: below manifests.
        conditions: all of them hold where the object is part of the installation.
        added: arguments for the first container, each with its condition.
        removed: arguments of the first container's command that are not there under a condition, by place.
        replaced: fields below `path` of the field, each with its condition and its value then.
        annotations: with their condition.
    """

    path: pathlib.Path
    document: Document
    conditions: list[str] = field(default_factory=list)
    added: list[tuple[str, str]] = field(default_factory=list)
    removed: dict[int, str] = field(default_factory=dict)
    replaced: dict[str, tuple[str, Any]] = field(default_factory=dict)
    annotations: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def key(self) -> ObjectKey:
        """Which object it is."""
        return key_of(self.document)


class ComponentError(Exception):
    """A component changes something in a way that the charts have no place for."""


class Tree:
    """The files of manifests.

    Args:
        root: manifests.
        made: texts that are about to be written there, by path below it.
    """

    def __init__(self, root: pathlib.Path, made: Mapping[pathlib.Path, str]) -> None:
        self.root: Final = root
        self._made = made

    def text(self, path: pathlib.Path) -> str:
        """What one file holds."""
        return self._made[path] if path in self._made else (self.root / path).read_text(encoding="utf-8")

    def documents(self, path: pathlib.Path) -> list[Any]:
        """The documents of one file, which nobody else holds."""
        return list(yaml.safe_load_all(self.text(path)))

    def kustomization(self, directory: pathlib.Path) -> Document:
        """That of a directory."""
        found: Document = self.documents(directory / "kustomization.yaml")[0]
        return found


def read(tree: Tree) -> list[Source]:
    """Every object of the installation but definitions and the namespace, with what components change.

    Raises:
        ComponentError: the charts cannot say what a component does.
    """
    found = list(_resources(tree, pathlib.Path("base"), []))
    found += _resources(tree, pathlib.Path("scheduler"), [".Values.scheduler.enabled"])
    there = {path.parent.name for path in (tree.root / "components").glob("*/kustomization.yaml")}
    if unknown := (there ^ (CONDITIONS.keys() | NOT_IN_THE_CHART)) - {MONITORING}:
        raise ComponentError(f"components without a value: {', '.join(sorted(unknown))}")
    for name, condition in CONDITIONS.items():
        directory = pathlib.Path("components", name)
        by_key = {one.key: one for one in found}
        found += _resources(tree, directory, [condition])
        for patch in tree.kustomization(directory).get("patches", ()):
            documents = (
                list(yaml.safe_load_all(patch["patch"]))
                if "patch" in patch
                else tree.documents(directory / patch["path"])
            )
            _apply(patch.get("target", {}), documents, by_key, condition)
    if MONITORING in there:
        found += _resources(tree, pathlib.Path("components", MONITORING), [])
    _refer(found)
    for one in found:
        if one.path.parts[0] == MONITORING:
            one.conditions.append(_SWITCHES[one.key.kind])
        if one.path.parts[0] in (MONITORING, "components") and (needed := _PROGRAMS.get(_component(one.document))):
            one.conditions.append(needed)
    return found


_PROGRAMS: Final = {"webhook": ".Values.webhook.enabled", "scheduler": ".Values.scheduler.enabled"}
"""When a program is there that a component adds something to."""


def _component(document: Document) -> str:
    return str(document["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""))


def _resources(tree: Tree, directory: pathlib.Path, conditions: list[str]) -> Iterator[Source]:
    kustomization = tree.kustomization(directory)
    for name in kustomization.get("resources", ()):
        path = pathlib.Path(os.path.normpath(directory / name))
        if path.suffix:
            yield from (Source(path, document, list(conditions)) for document in tree.documents(path))
        else:
            yield from _resources(tree, path, conditions)
    for one in kustomization.get("configMapGenerator", ()):
        data = {pathlib.Path(name).name: tree.text(directory / name) for name in one["files"]}
        options = one["options"]
        name = one["name"] if options.get("disableNameSuffixHash") else _hashed(one["name"], data)
        metadata = {"name": name, "namespace": one["namespace"], "labels": dict(options["labels"])}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        yield Source(directory / f"{one['name']}.yaml", document, list(conditions))


def _hashed(name: str, data: dict[str, str]) -> str:
    """As kustomize does, though with another hash: what reads the data is started anew when it changes."""
    return f"{name}-{hashlib.sha256(json.dumps(data).encode()).hexdigest()[:10]}"


def _refer(found: list[Source]) -> None:
    """Deployments mount ConfigMaps by the names that these were given."""
    maps = {
        one.key.name.rpartition("-")[0]: one.key.name
        for one in found
        if one.document.get("data") and one.key.kind == "ConfigMap"
    }
    for one in found:
        if one.key.kind == "Deployment":
            for volume in one.document["spec"]["template"]["spec"]["volumes"]:
                if "configMap" in volume:
                    volume["configMap"]["name"] = maps[volume["configMap"]["name"]]


def _apply(target: Document, documents: list[Any], by_key: dict[ObjectKey, Source], condition: str) -> None:
    for changed in documents:
        if isinstance(changed, list):
            for operation in changed:
                _operate(operation, by_key[ObjectKey(target["kind"], target["name"])], condition)
        else:
            _merge(changed, by_key[key_of(changed)], condition)


_ARGUMENT: Final = "/spec/template/spec/containers/0/args/-"
_COMMAND: Final = "/spec/template/spec/containers/0/command/"


def _operate(operation: Document, target: Source, condition: str) -> None:
    path = operation["path"]
    if (operation["op"], path) == ("add", _ARGUMENT):
        target.added.append((condition, operation["value"]))
    elif operation["op"] == "remove" and path.startswith(_COMMAND):
        target.removed[int(path.removeprefix(_COMMAND))] = condition
    elif operation["op"] != "test":
        raise ComponentError(f"the charts have no place for {operation['op']} of {path}")


def _merge(changed: Document, target: Source, condition: str) -> None:
    if changed.pop("$patch", "") == "delete":
        target.conditions.append(
            f"not ({condition})" if not condition.startswith("not ") else condition.removeprefix("not ")
        )
        return
    metadata = changed.pop("metadata")
    if annotations := metadata.get("annotations"):
        target.annotations.append((condition, annotations))
    for name in changed.keys() - {"apiVersion", "kind"}:
        target.replaced[name] = (condition, changed[name])
