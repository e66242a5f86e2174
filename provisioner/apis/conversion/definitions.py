"""The old versions as definitions: v1beta1 derived from v1's own, v1alpha5 Provisioner and v1alpha1 AWSNodeTemplate from their types. Pure.

v1beta1 of NodePool, NodeClaim and EC2NodeClass is v1 with the fields that have another name, place or default there. Every object that it
admits becomes one that v1 admits, so nothing is stored that v1 would have refused.

Source: karpenter v0.32 to v1.0 (v1beta1), v0.31 (v1alpha5, v1alpha1).
Differs: members of lists that came with v1 (`reasons` of a budget, the operators Gte and Lte, `ssmParameter`, `volumeInitializationRate`) are
    known to v1beta1 too; the AMI family Ubuntu is not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from provisioner.apis import ec2, karpenter, kwok
from provisioner.apis.conversion.alpha_types import COLUMNS, AWSNodeTemplate, Provisioner
from provisioner.apis.crds import DEFINITIONS, QUANTITY, Definition, Document

CORE_BETA: Final = "karpenter.sh/v1beta1"
EC2_BETA: Final = "karpenter.k8s.aws/v1beta1"
PROVISIONER_API_VERSION: Final = "karpenter.sh/v1alpha5"
TEMPLATE_API_VERSION: Final = "karpenter.k8s.aws/v1alpha1"
CONVERT_PATH: Final = "/convert"

NODE_POOL_LATER: Final = (("spec", "replicas"), ("spec", "template", "spec", "terminationGracePeriod"))
NODE_POOL_BEFORE: Final = (("spec", "template", "spec", "resources"),)
"""A field that v1 dropped."""
NODE_CLAIM_LATER: Final = (("spec", "terminationGracePeriod"), ("spec", "expireAfter"))
NODE_CLASS_LATER: Final = tuple(
    ("spec", name)
    for name in (
        *("capacityReservationSelectorTerms", "placementGroupSelector", "ipPrefixCount", "kubelet"),
        *("networkInterfaces", "connectionTracking", "cpuOptions", "enclaveOptions"),
    )
)
"""Fields that came with v1 or later."""

_QUANTITIES: Final[Document] = {"type": "object", "additionalProperties": QUANTITY}
_TEXTS: Final[Document] = {"type": "object", "additionalProperties": {"type": "string"}}
_PERCENT: Final[Document] = {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100}
_COUNT: Final[Document] = {"type": "integer", "format": "int32", "minimum": 0}
KUBELET: Final[Document] = {
    "type": "object",
    "description": "Settings of the nodes' kubelet; kept in an annotation of the v1 object, and applied from there.",
    "properties": {
        "clusterDNS": {"type": "array", "items": {"type": "string"}},
        "cpuCFSQuota": {"type": "boolean"},
        "evictionHard": _TEXTS,
        "evictionMaxPodGracePeriod": {"type": "integer", "format": "int32"},
        "evictionSoft": _TEXTS,
        "evictionSoftGracePeriod": _TEXTS,
        "imageGCHighThresholdPercent": _PERCENT,
        "imageGCLowThresholdPercent": _PERCENT,
        "kubeReserved": _QUANTITIES,
        "maxPods": _COUNT,
        "podsPerCore": _COUNT,
        "systemReserved": _QUANTITIES,
    },
}

_KIND: Final = f"(has({{0}}.kind) ? {{0}}.kind : '{ec2.KIND}')"
_GROUP: Final = (
    "(has({0}.apiVersion) ? {0}.apiVersion.split('/')[0] : "
    f"has({{0}}.kind) && {{0}}.kind == '{kwok.KWOKNodeClass.__name__}' ? '{kwok.API_VERSION.partition('/')[0]}' : '{ec2.GROUP}')"
)


def _reference(*, immutable: bool) -> Document:
    reference: Document = {
        "type": "object",
        "description": f"The node class that instances are launched with; without kind it is an {ec2.KIND}.",
        "required": ["name"],
        "properties": {
            "apiVersion": {
                "type": "string",
                "description": "API group of the node class, and any version of it.",
                "pattern": "^[^/]+(/[^/]+)?$",
                "maxLength": 316,
            },
            "kind": {"type": "string", "description": "Kind of the node class.", "minLength": 1},
            "name": {"type": "string", "description": "Name of the node class.", "minLength": 1},
        },
    }
    if immutable:
        reference["x-kubernetes-validations"] = [
            {
                "rule": f"{part.format('self')} == {part.format('oldSelf')}",
                "message": f"nodeClassRef.{name} is immutable",
            }
            for part, name in ((_GROUP, "apiVersion"), (_KIND, "kind"))
        ]
    return reference


def _without_rules(schema: Document, *words: str) -> None:
    """Drop the rules in which one of these words stands."""
    left = [one for one in schema.pop("x-kubernetes-validations", []) if not any(word in one["rule"] for word in words)]
    if left:
        schema["x-kubernetes-validations"] = left


def _remove(root: Document, path: tuple[str, ...]) -> None:
    schema = root
    for name in path[:-1]:
        schema = schema["properties"][name]
    del schema["properties"][path[-1]]
    if path[-1] in schema.get("required", ()):
        schema["required"].remove(path[-1])


def _node_pool(root: Document) -> None:
    for path in (*NODE_POOL_LATER, ("spec", "template", "spec", "expireAfter")):
        _remove(root, path)
    spec = root["properties"]["spec"]
    _without_rules(spec, "replicas")
    template = spec["properties"]["template"]["properties"]["spec"]
    template["properties"] |= {
        "kubelet": KUBELET,
        "nodeClassRef": _reference(immutable=True),
        "resources": {
            "type": "object",
            "description": "Always empty; Karpenter wrote it into NodePools.",
            "maxProperties": 0,
        },
    }
    disruption = spec["properties"]["disruption"]
    disruption["default"] = {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"}
    disruption.pop("required", None)
    fields = disruption["properties"]
    fields["consolidationPolicy"] |= {"default": "WhenUnderutilized", "enum": ["WhenEmpty", "WhenUnderutilized"]}
    fields["consolidateAfter"].pop("default")
    fields["consolidateAfter"]["description"] = (
        "How long a node must have been empty before it is removed; Never turns that off. It goes with WhenEmpty."
    )
    fields["expireAfter"] = {
        "type": "string",
        "description": "The age at which a node is deleted; Never turns expiry off.",
        "default": "720h",
        "pattern": karpenter.DURATION_OR_NEVER,
    }
    disruption["x-kubernetes-validations"] = [
        {
            "rule": "!has(self.consolidateAfter) || self.consolidationPolicy == 'WhenEmpty'",
            "message": "consolidateAfter cannot be combined with consolidationPolicy=WhenUnderutilized",
        },
        {
            "rule": "has(self.consolidateAfter) || self.consolidationPolicy != 'WhenEmpty'",
            "message": "consolidateAfter must be set with consolidationPolicy=WhenEmpty",
        },
    ]


def _node_claim(root: Document) -> None:
    for path in NODE_CLAIM_LATER:
        _remove(root, path)
    root["properties"]["spec"]["properties"] |= {"kubelet": KUBELET, "nodeClassRef": _reference(immutable=False)}


def _node_class(root: Document) -> None:
    for path in NODE_CLASS_LATER:
        _remove(root, path)
    spec = root["properties"]["spec"]
    _without_rules(spec, "amiFamily")
    spec["x-kubernetes-validations"].append(
        {
            "rule": "self.amiFamily != 'Custom' || (has(self.amiSelectorTerms) && self.amiSelectorTerms.size() != 0)",
            "message": "amiSelectorTerms is required with amiFamily Custom",
        }
    )
    spec["required"] = ["amiFamily", "securityGroupSelectorTerms", "subnetSelectorTerms"]
    spec["properties"]["amiFamily"]["description"] = (
        "AMI family of the nodes; without amiSelectorTerms they run its latest image."
    )
    options = spec["properties"]["metadataOptions"]
    options["default"] = {**options["default"], "httpPutResponseHopLimit": 2}
    options["properties"]["httpPutResponseHopLimit"]["default"] = 2
    terms = spec["properties"]["amiSelectorTerms"]
    terms["x-kubernetes-validations"] = [
        {
            "rule": "!self.exists(t, has(t.id) && (has(t.tags) || has(t.name) || has(t.owner)))",
            "message": "'id' cannot be combined with 'tags', 'name' or 'owner'",
        }
    ]
    del terms["items"]["properties"]["alias"]
    terms["items"]["x-kubernetes-validations"] = [
        {
            "rule": "has(self.tags) || has(self.id) || has(self.name) || has(self.ssmParameter)",
            "message": "expected at least one of 'tags', 'id', 'name' and 'ssmParameter'",
        }
    ]


_CHANGES: Final[dict[str, tuple[str, Callable[[Document], None]]]] = {
    "NodePool": (CORE_BETA, _node_pool),
    "NodeClaim": (CORE_BETA, _node_claim),
    "EC2NodeClass": (EC2_BETA, _node_class),
}


@dataclass(frozen=True, slots=True)
class BetaDefinition(Definition):
    """A kind of ours at v1beta1: its schema is that of v1, with what was different then."""

    def _root(self) -> Document:
        root = Definition._root(self)  # noqa: SLF001 - a base class's; super() does not work in a dataclass with slots
        _CHANGES[self.kind][1](root)
        return root


V1: Final[dict[str, Definition]] = {one.kind: one for one in DEFINITIONS if one.kind in _CHANGES}
BETA: Final[dict[str, Definition]] = {
    kind: BetaDefinition(
        type=one.type,
        api_version=_CHANGES[kind][0],
        plural=one.plural,
        description=one.description,
        columns=one.columns,
        categories=one.categories,
        short_names=one.short_names,
    )
    for kind, one in V1.items()
}
"""The kinds that have two versions, by kind: as they are stored, and as they were before."""


@dataclass(frozen=True, slots=True)
class AlphaDefinition(Definition):
    """A kind before v1beta1; a manifest that was read from a cluster has Karpenter's status, which is let pass."""

    def _root(self) -> Document:
        root = Definition._root(self)  # noqa: SLF001 - as in `BetaDefinition`
        status = root["properties"]["status"]
        for schema in (status, status["properties"]["conditions"]["items"]):
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return root


PROVISIONER: Final = AlphaDefinition(
    type=Provisioner,
    api_version=PROVISIONER_API_VERSION,
    plural="provisioners",
    description="A Provisioner of Karpenter before v1beta1; it is translated into a NodePool and an EC2NodeClass.",
    categories=("karpenter",),
    columns=COLUMNS,
)
NODE_TEMPLATE: Final = AlphaDefinition(
    type=AWSNodeTemplate,
    api_version=TEMPLATE_API_VERSION,
    plural="awsnodetemplates",
    description="An AWSNodeTemplate of Karpenter before v1beta1; it is translated into an EC2NodeClass.",
    categories=("karpenter",),
    columns=COLUMNS,
)
OLD_KINDS: Final = (PROVISIONER, NODE_TEMPLATE)


def two_versions(kind: str, client_config: dict[str, Any]) -> Document:
    """The definition of a kind that serves v1beta1 beside v1, and stores v1.

    Args:
        kind: of `BETA`.
        client_config: where the API server asks for conversions; without `caBundle`, which the program puts in.
    """
    document, beta = V1[kind].document(), BETA[kind].document()["spec"]["versions"][0]
    older = {
        **beta,
        "storage": False,
        "deprecated": True,
        "deprecationWarning": f"{BETA[kind].api_version} {kind} is deprecated; use {V1[kind].api_version}"
        " (`dovetail convert` rewrites manifests)",
    }
    document["spec"]["versions"].append(older)
    document["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": client_config, "conversionReviewVersions": ["v1"]},
    }
    return document


def documents(client_config: dict[str, Any]) -> dict[str, Document]:
    """What the component adds to a cluster, by file name; made anew at each call."""
    changed = {V1[kind].filename: two_versions(kind, client_config) for kind in _CHANGES}
    return changed | {one.filename: one.document() for one in OLD_KINDS}
