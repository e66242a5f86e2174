"""Schemas for kubeconform, offline: of the API server's own kinds from its OpenAPI, and of our kinds from our definitions. Fields that no schema has are refused."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.charts import run, tools

Document = dict[str, Any]

LOCATION: Final = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
WITHOUT: Final = ("Certificate", "Issuer", "PodMonitor", "PrometheusRule", "ServiceMonitor")
"""Kinds of others, whose schemas are not at hand."""

_LOOSE: Final[Document] = {  # what OpenAPI of version 2 cannot say
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
}


def write(folder: Path, openapi: str, definitions: Iterable[Document]) -> None:
    """One file for each kind, by the names of `LOCATION`.

    Args:
        openapi: what the API server answers at /openapi/v2.
        definitions: CustomResourceDefinitions.
    """
    kinds = json.loads(openapi)["definitions"]
    strict = {name: _LOOSE.get(name, _strict(schema)) for name, schema in kinds.items()}
    (folder / "all.json").write_text(json.dumps({"definitions": strict}), encoding="utf-8")
    for name, schema in kinds.items():
        for one in schema.get("x-kubernetes-group-version-kind", ()):
            path = folder / _name(one["kind"], one["group"], one["version"])
            path.write_text(json.dumps({"$ref": f"all.json#/definitions/{name}"}), encoding="utf-8")
    for one in definitions:
        spec = one["spec"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            known = {name: {"type": "string"} for name in ("apiVersion", "kind")}
            whole = {**schema, "properties": {**known, **schema["properties"]}}
            path = folder / _name(spec["names"]["kind"], spec["group"], version["name"])
            path.write_text(json.dumps(_strict(whole)), encoding="utf-8")


def conform(folder: Path, documents: Iterable[Document]) -> None:
    """kubeconform has nothing to say of these objects, and knows the kind of each."""
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    location = f"{folder}/{LOCATION}"
    run(tools()["kubeconform"], "-strict", "-skip", ",".join(WITHOUT), "-schema-location", location, file)


def _name(kind: str, group: str, version: str) -> str:
    suffix = [*([group.partition(".")[0]] if group else []), version]
    return f"{kind.lower()}-{'-'.join(suffix)}.json"


def _strict(schema: Document) -> Document:
    """The same, with no other fields than those of `properties`, in any depth."""
    found = dict(schema)
    if "$ref" in found:
        found["$ref"] = found["$ref"].replace("#/definitions/", "all.json#/definitions/")
    for key in ("items", "additionalProperties", "not"):
        if isinstance(found.get(key), dict):
            found[key] = _strict(found[key])
    for key in ("allOf", "anyOf", "oneOf"):
        if key in found:
            found[key] = [one if "properties" in one else _strict(one) for one in found[key]]
    if "properties" in found:
        found["properties"] = {name: _strict(one) for name, one in found["properties"].items()}
        if "x-kubernetes-preserve-unknown-fields" not in found:
            found.setdefault("additionalProperties", False)
    return found
