"""The CustomResourceDefinitions of our kinds, made from their types.

msgspec's own JSON Schema is not what Kubernetes calls structural, and it cannot carry CEL rules or defaults, so the
walk over the types is ours. The documents are plain dicts, in a fixed order: the same types give the same text.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from provisioner.apis import buffer, ec2, karpenter, kwok, overlay, provisioning_request
from provisioner.apis.schema import CelRule, Schema

Document = dict[str, Any]

QUANTITY: Final[Document] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    ),
    "x-kubernetes-int-or-string": True,
}
_SCALARS: Final[Mapping[type, Document]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
}
KEPT: Final[Mapping[str, str]] = {
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
    "helm.sh/resource-policy": "keep",
}
"""Annotations by which Argo CD, Flux and Helm leave an object where they prune or uninstall: with a definition go all of its objects, and their nodes."""

_PLAIN: Final = Schema()
_READY: Final = '.status.conditions[?(@.type=="Ready")].status'
_ABSENT: Final = (types.NoneType, msgspec.UnsetType)
_QUANTITY_TYPES: Final = frozenset({str, int, float})


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; `wide` ones only with `-o wide`."""

    name: str
    path: str
    type: Literal["string", "integer", "date"] = "string"
    wide: bool = False

    def document(self) -> Document:
        """As it stands in the definition."""
        document: Document = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return document | {"priority": 1} if self.wide else document


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class Definition:
    """One kind of ours and what its definition has beside the schema."""

    type: type[msgspec.Struct]
    api_version: str
    plural: str
    description: str
    columns: tuple[Column, ...]
    namespaced: bool = False
    categories: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    scale: bool = False
    older: tuple[str, ...] = ()  # versions that are served besides, with the same schema

    @property
    def group(self) -> str:
        """API group."""
        return self.api_version.partition("/")[0]

    @property
    def version(self) -> str:
        """The version that is stored."""
        return self.api_version.partition("/")[2]

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return self.type.__name__

    @property
    def filename(self) -> str:
        """Where the definition is written, e.g. `karpenter.sh_nodepools.yaml`."""
        return f"{self.group}_{self.plural}.yaml"

    def document(self) -> Document:
        """The whole CustomResourceDefinition."""
        names: Document = {
            "kind": self.kind,
            "listKind": f"{self.kind}List",
            "plural": self.plural,
            "singular": self.kind.lower(),
        }
        if self.categories:
            names["categories"] = list(self.categories)
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        subresources: Document = {"status": {}}
        if self.scale:
            subresources["scale"] = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{self.group}", "annotations": dict(KEPT)},
            "spec": {
                "group": self.group,
                "names": names,
                "scope": "Namespaced" if self.namespaced else "Cluster",
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": version == self.version,
                        "additionalPrinterColumns": [column.document() for column in self.columns],
                        "schema": {"openAPIV3Schema": self._root()},
                        "subresources": _plain(subresources),
                    }
                    for version in (self.version, *self.older)
                ],
            },
        }

    def _root(self) -> Document:
        root = _of_struct(self.type)
        properties = root["properties"]
        properties["apiVersion"]["description"] = "Group and version of this object's schema."
        properties["kind"]["description"] = "Kind of this object."
        properties["metadata"] = {"type": "object"}  # the API server knows it and admits nothing more here
        properties["status"].setdefault("description", f"Most recently observed status of the {self.kind}.")
        return root | {"description": self.description}


DEFINITIONS: Final = (
    Definition(
        type=karpenter.NodePool,
        api_version=karpenter.API_VERSION,
        plural="nodepools",
        description="A NodePool defines which nodes can be created for pending pods, and how these nodes are managed.",
        categories=("karpenter",),
        scale=True,
        columns=(
            Column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
            Column("Nodes", ".status.nodes"),
            Column("Ready", _READY),
            _AGE,
            Column("Weight", ".spec.weight", "integer", wide=True),
            Column("CPU", ".status.resources.cpu", wide=True),
            Column("Memory", ".status.resources.memory", wide=True),
        ),
    ),
    Definition(
        type=karpenter.NodeClaim,
        api_version=karpenter.API_VERSION,
        plural="nodeclaims",
        description="A NodeClaim requests one node and reports its status.",
        categories=("karpenter",),
        columns=(
            Column("Type", r".metadata.labels.node\.kubernetes\.io/instance-type"),
            Column("Capacity", r".metadata.labels.karpenter\.sh/capacity-type"),
            Column("Zone", r".metadata.labels.topology\.kubernetes\.io/zone"),
            Column("Node", ".status.nodeName"),
            Column("Ready", _READY),
            _AGE,
            Column("ImageID", ".status.imageID", wide=True),
            Column("ID", ".status.providerID", wide=True),
            Column("NodePool", r".metadata.labels.karpenter\.sh/nodepool", wide=True),
            Column("NodeClass", ".spec.nodeClassRef.name", wide=True),
            Column("Drifted", '.status.conditions[?(@.type=="Drifted")].status', wide=True),
        ),
    ),
    Definition(
        type=overlay.NodeOverlay,
        api_version=overlay.API_VERSION,
        plural="nodeoverlays",
        description="A NodeOverlay changes the price or adds resources of the instance types that it selects.",
        categories=("karpenter",),
        short_names=("overlays",),
        columns=(
            Column("Ready", _READY),
            _AGE,
            Column("Weight", ".spec.weight", "integer", wide=True),
        ),
    ),
    Definition(
        type=buffer.CapacityBuffer,
        api_version=buffer.API_VERSION,
        plural="capacitybuffers",
        description="A CapacityBuffer keeps spare capacity for pods with given resource requests.",
        namespaced=True,
        categories=("autoscaling",),
        short_names=("cb",),
        columns=(
            Column("Strategy", ".spec.provisioningStrategy"),
            Column("PodTemplate", ".status.podTemplateRef.name"),
            Column("Replicas", ".status.replicas", "integer"),
            Column("ConditionsType", ".status.conditions[*].type"),
            Column("ConditionsStatus", ".status.conditions[*].status"),
            Column("ConditionsReason", ".status.conditions[*].reason"),
            _AGE,
        ),
    ),
    Definition(
        type=ec2.EC2NodeClass,
        api_version=ec2.API_VERSION,
        plural="ec2nodeclasses",
        description="An EC2NodeClass defines how EC2 instances are launched.",
        categories=("karpenter",),
        short_names=("ec2nc", "ec2ncs"),
        columns=(Column("Ready", _READY), _AGE, Column("Role", ".spec.role", wide=True)),
    ),
    Definition(
        type=kwok.KWOKNodeClass,
        api_version=kwok.API_VERSION,
        plural="kwoknodeclasses",
        description="A KWOKNodeClass defines how simulated nodes are created.",
        categories=("karpenter",),
        columns=(Column("Ready", _READY), _AGE),
    ),
)


OFFERED: Final = Definition(
    type=provisioning_request.ProvisioningRequest,
    api_version=provisioning_request.API_VERSION,
    older=(provisioning_request.OLD_VERSION,),
    plural="provisioningrequests",
    description="A ProvisioningRequest asks for room for pods that do not exist yet.",
    namespaced=True,
    short_names=("provreq", "provreqs"),
    columns=(
        Column("Class", ".spec.provisioningClassName"),
        Column("Provisioned", '.status.conditions[?(@.type=="Provisioned")].status'),
        Column("Failed", '.status.conditions[?(@.type=="Failed")].status'),
        _AGE,
    ),
)
"""Of Cluster Autoscaler: for clusters in which nobody has defined it; never written over another's."""


def documents() -> dict[str, Document]:
    """Every definition, by the name of its file; made anew at each call."""
    return {definition.filename: definition.document() for definition in DEFINITIONS}


def schema_of(hint: Any) -> Document:
    """The structural schema of one annotated type.

    Args:
        hint: a scalar, a Struct, a tuple or dict of them, one of these or None, or any of it `Annotated` with `Schema`.

    Raises:
        TypeError: a type that has no structural schema.
    """
    marker = _PLAIN
    if typing.get_origin(hint) is Annotated:
        hint, *extras = typing.get_args(hint)
        marker = next((extra for extra in extras if isinstance(extra, Schema)), _PLAIN)
    return _schema(hint, marker)


def _schema(hint: Any, marker: Schema) -> Document:
    if marker.replace is not None:
        replaced: Document = _plain(marker.replace)
        return replaced
    hint = marker.like or _present(hint)
    schema = _of_type(hint, marker)
    for name, extra in (marker.fields or {}).items():
        _restrict(schema["properties"][name], extra)
    _restrict(schema, marker)
    return schema


def _of_type(hint: Any, marker: Schema) -> Document:
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    if _is_quantity(hint):
        quantity: Document = _plain(QUANTITY)
        return quantity
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and arguments[1:] == (...,):
        return {"type": "array", "items": _schema(arguments[0], marker.items or _PLAIN)}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema(arguments[1], marker.items or _PLAIN)}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _of_struct(hint)
    raise TypeError(f"{hint!r} has no structural schema")


def _of_struct(struct: type[msgspec.Struct]) -> Document:
    hints = typing.get_type_hints(struct, include_extras=True)
    properties: Document = {}
    required: list[str] = []
    for field in sorted(msgspec.structs.fields(struct), key=lambda field: field.encode_name):
        hint = hints[field.name]
        properties[field.encode_name] = schema_of(hint)
        if any(isinstance(extra, Schema) and extra.required for extra in typing.get_args(hint)[1:]):
            required.append(field.encode_name)
    schema: Document = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    own = getattr(struct, "schema", None)
    if isinstance(own, Schema):
        _restrict(schema, own)
    return schema


def _restrict(schema: Document, marker: Schema) -> None:
    """Write what `marker` demands into `schema`; its rules come after those that are there."""
    wire: Mapping[str, Any] = {
        "description": marker.description or None,
        "pattern": marker.pattern or None,
        "enum": list(marker.enum) or None,
        "minimum": marker.minimum,
        "maximum": marker.maximum,
        "minLength": marker.min_length,
        "maxLength": marker.max_length,
        "maxItems": marker.max_items,
        "maxProperties": marker.max_properties,
        "format": marker.format or None,
        "x-kubernetes-list-type": marker.list_type or None,
        "x-kubernetes-list-map-keys": list(marker.list_map_keys) or None,
        "default": _plain(marker.default),
    }
    schema |= {name: value for name, value in wire.items() if value is not None}
    if marker.rules:
        schema["x-kubernetes-validations"] = [
            *schema.get("x-kubernetes-validations", []),
            *(_rule(rule) for rule in marker.rules),
        ]


def _rule(rule: CelRule) -> Document:
    return {"rule": rule.expression, "message": rule.message}


def _present(hint: Any) -> Any:
    """The type of a value that is there: without None and UNSET."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    left = [one for one in typing.get_args(hint) if one not in _ABSENT]
    return left[0] if len(left) == 1 else typing.Union[tuple(left)]  # noqa: UP007 - made from a list


def _is_quantity(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType) and set(typing.get_args(hint)) == _QUANTITY_TYPES


def _plain(value: Any) -> Any:
    """A copy of dicts and lists only, so that no two documents share a part."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
