"""Hypothesis strategies of the objects that a definition of ours admits, made from its schema."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from provisioner.apis.crds import Definition
from provisioner.apis.openapi import defaulted, violations

Document = dict[str, Any]

WORD = st.sampled_from(["a", "team", "x-1", "example"])
_TERMS = st.lists(
    st.fixed_dictionaries({"tags": st.dictionaries(WORD, WORD, min_size=1, max_size=2)})
    | st.fixed_dictionaries({"id": st.sampled_from(["{0}-1", "{0}-2"])}),
    min_size=1,
    max_size=3,
)
_AMI_TERM = (
    st.fixed_dictionaries({"tags": st.dictionaries(WORD, WORD, min_size=1, max_size=2)}, optional={"owner": WORD})
    | st.fixed_dictionaries({"id": st.sampled_from(["ami-1", "ami-2"])})
    | st.fixed_dictionaries({"name": WORD}, optional={"owner": WORD})
    | st.fixed_dictionaries({"ssmParameter": st.just("/a/b")})
)
_ALIASES = ["al2@latest", "al2023@latest", "al2023@v20260101", "bottlerocket@latest", "windows2022@latest"]
_REQUIREMENT = st.sampled_from(
    [
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"], "minValues": 2},
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
        {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gte", "values": ["4"]},
        {"key": "example.com/team", "operator": "Exists"},
    ]
)
_BY_NAME: Mapping[str, st.SearchStrategy[Any]] = {
    "requirements": st.lists(_REQUIREMENT, max_size=4),
    "subnetSelectorTerms": _TERMS.map(lambda found: _named(found, "subnet")),
    "securityGroupSelectorTerms": _TERMS.map(lambda found: _named(found, "sg")),
    "capacityReservationSelectorTerms": st.just([{"id": "cr-1"}]),
    "metadata": st.fixed_dictionaries(
        {"name": WORD}, optional={"annotations": st.dictionaries(WORD, WORD, min_size=1, max_size=2)}
    ),
    "kubelet": st.dictionaries(st.sampled_from(["maxPods", "podsPerCore"]), st.integers(0, 9)),
    "tags": st.dictionaries(WORD, WORD, max_size=2),
    "labels": st.dictionaries(WORD, WORD, max_size=2),
}
_PATTERNED: Mapping[str, list[str]] = {
    "apiVersion": ["karpenter.k8s.aws/v1beta1", "karpenter.kwok.sh/v1alpha1", "example.com/v1", "karpenter.k8s.aws"],
    "kind": ["EC2NodeClass", "KWOKNodeClass", "Other"],
    "group": ["karpenter.k8s.aws", "karpenter.kwok.sh", "example.com"],
    "consolidateAfter": ["0s", "30s", "1h30m", "Never"],
    "expireAfter": ["720h", "0s", "Never"],
    "terminationGracePeriod": ["30s", "2h"],
    "nodes": ["0", "10%", "100%"],
    "schedule": ["@daily", "0 9 * * mon-fri"],
    "duration": ["8h", "30m"],
    "volumeSize": ["20Gi", "1T"],
    "alias": _ALIASES,
    "id": ["pg-1"],
}
_WHOLE: Mapping[str, Mapping[str, Any]] = {"metadataOptions": {"httpEndpoint": "disabled"}}


def _named(found: list[Document], prefix: str) -> list[Document]:
    return [{key: value.format(prefix) if key == "id" else value for key, value in one.items()} for one in found]


def objects(definition: Definition) -> st.SearchStrategy[Document]:
    """Objects that the API server would keep: without status, defaulted, and without violations."""
    schema = definition.document()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = _of(schema["properties"]["spec"], "spec")
    given = st.fixed_dictionaries({"metadata": _BY_NAME["metadata"], "spec": spec})
    whole = given.map(
        lambda one: defaulted(
            definition, {"apiVersion": definition.api_version, "kind": definition.kind, **_mended(one, definition)}
        )
    )
    return whole.filter(lambda one: not violations(definition, one))


def _of(schema: Document, name: str) -> st.SearchStrategy[Any]:
    if name in _BY_NAME:
        return _BY_NAME[name]
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from(["1", 2, "500m", "4Gi"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string":
            return st.sampled_from(_PATTERNED[name]) if name in _PATTERNED else WORD
        case "integer":
            low = schema.get("minimum", 0)
            return st.integers(low, min(schema.get("maximum", low + 3), low + 3))
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(_of(schema["items"], ""), max_size=2, unique_by=str)
        case _ if "properties" in schema:
            must = set(schema.get("required", ()))
            fields = {key: _of(one, key) for key, one in schema["properties"].items()}
            return st.fixed_dictionaries(
                {key: one for key, one in fields.items() if key in must},
                optional={key: one for key, one in fields.items() if key not in must},
            )
        case _:
            return st.dictionaries(WORD, _of(schema.get("additionalProperties", {"type": "string"}), ""), max_size=2)


def _mended(one: Document, definition: Definition) -> Document:
    """What the CEL rules demand beyond the schema, so that few draws are thrown away."""
    spec = dict(one["spec"])
    beta = definition.version == "v1beta1"
    if definition.kind == "EC2NodeClass":
        spec.pop("instanceProfile" if "role" in spec else "", None)
        if "role" not in spec:
            spec.setdefault("instanceProfile", "nodes")
        _mend_images(spec, beta=beta)
        for name in ("blockDeviceMappings", "networkInterfaces", "connectionTracking", "placementGroupSelector"):
            spec.pop(name, None)
        if "context" in spec and not beta:
            spec |= {"placementGroupSelector": {"name": "a"}, "connectionTracking": {"udpTimeout": 30}}
    if definition.kind == "NodePool":
        disruption = dict(spec.get("disruption", {}))
        if beta and disruption.get("consolidationPolicy") == "WhenEmpty":
            disruption.setdefault("consolidateAfter", "30s")
        elif beta:
            disruption.pop("consolidateAfter", None)
        if "budgets" in disruption:
            disruption["budgets"] = [_window(budget) for budget in disruption["budgets"]]
        if disruption:
            spec["disruption"] = disruption
        if "replicas" in spec:
            spec.pop("weight", None)
            spec.pop("limits", None)
    return {**one, "spec": spec}


def _window(budget: Document) -> Document:
    if ("schedule" in budget) == ("duration" in budget):
        return budget
    return {key: value for key, value in budget.items() if key not in ("schedule", "duration")}


def _mend_images(spec: Document, *, beta: bool) -> None:
    terms = spec.get("amiSelectorTerms", [])
    by_alias = not beta and any("alias" in one for one in terms)
    if by_alias:
        (alias, *_) = (one["alias"] for one in terms if "alias" in one)
        spec["amiSelectorTerms"] = [{"alias": alias}]
        if spec.get("amiFamily", "Custom") != "Custom":
            names = {"al2": "AL2", "al2023": "AL2023", "bottlerocket": "Bottlerocket", "windows2022": "Windows2022"}
            spec["amiFamily"] = names[alias.partition("@")[0]]
        return
    mended = [
        {"id": "ami-1"} if "id" in one else {"name": "a", **{k: v for k, v in one.items() if k == "owner"}}
        for one in terms
    ]
    if mended or spec.get("amiFamily") == "Custom" or not beta:
        spec["amiSelectorTerms"] = mended or [{"ssmParameter": "/a"}]
        spec.setdefault("amiFamily", "AL2")
