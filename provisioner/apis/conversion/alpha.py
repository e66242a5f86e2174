"""Provisioner (v1alpha5) and AWSNodeTemplate (v1alpha1) into NodePool and EC2NodeClass: what becomes what, and what has no equivalent. Pure.

The way leads one direction only, and says every decision. What that version did by default is written out, so that nodes are as they were.

Source: karpenter v0.31 `pkg/apis/v1alpha5/provisioner.go` (defaults of the AWS provider), `pkg/apis/v1alpha1`.
Differs: a Provisioner without subnetSelector or securityGroupSelector gets the tag kubernetes.io/cluster/<name>, as in v0.5 and before.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.apis import ec2, karpenter, names
from provisioner.apis.conversion.definitions import NODE_TEMPLATE, PROVISIONER, V1
from provisioner.apis.crds import Definition
from provisioner.apis.openapi import Violation, defaulted, name_of, violations
from provisioner.values.message import Said
from provisioner.values.quantity import Quantity, QuantityError

Document = dict[str, Any]

CATEGORY: Final = "karpenter.k8s.aws/instance-category"
FAMILY: Final = "karpenter.k8s.aws/instance-family"
GENERATION: Final = "karpenter.k8s.aws/instance-generation"
MAX_TERMS: Final = 30
LONGEST_NAME: Final = 63
"""Of a NodePool or node class, as its nodes have a label with it."""

_IDS: Final = ("aws-ids", "aws::ids")
_AMI_NAME, _AMI_OWNERS = "aws::name", "aws::owners"
_FAMILIES: Final = frozenset(ec2.FAMILIES)
_COPIED: Final = ("context", "detailedMonitoring", "instanceProfile", "userData", "tags")
_METADATA: Final = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 2,
    "httpTokens": "required",
}
_METADATA_PARTIAL: Final = {**_METADATA, "httpPutResponseHopLimit": 1, "httpTokens": "optional"}
_GIB: Final = 2**30
_PROFILE: Final = Said(
    "is required: Karpenter's setting aws.defaultInstanceProfile has no equivalent; name the instance profile of the "
    "nodes"
)


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of one object.

    Attributes:
        objects: at v1, node classes first; empty where there are errors.
        decisions: what became what, by the path in the old object.
        errors: what cannot be translated, by the path in the old object.
    """

    objects: tuple[Document, ...] = ()
    decisions: tuple[Violation, ...] = ()
    errors: tuple[Violation, ...] = ()


@dataclass(slots=True)
class _Notes:
    """Decisions and errors of one translation."""

    decisions: list[Violation] = field(default_factory=list)
    errors: list[Violation] = field(default_factory=list)

    def decided(self, path: str, text: str) -> None:
        self.decisions.append(Violation(path, text))

    def refused(self, path: str, text: str) -> None:
        self.errors.append(Violation(path, text))


def template(document: Mapping[str, Any], cluster: str = "") -> Translation:
    """The EC2NodeClass of an AWSNodeTemplate, by the same name.

    Args:
        document: as the API server has it.
        cluster: name of the cluster; "" where it is not known, an error where it is needed.
    """
    whole, wrong = _checked(NODE_TEMPLATE, document)
    if wrong:
        return Translation(errors=tuple(wrong))
    notes = _Notes()
    made = _node_class(name_of(document), whole["spec"], None, cluster, notes, "spec")
    return _finished(notes, made)


def provisioner(
    document: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]], cluster: str = ""
) -> Translation:
    """The NodePool of a Provisioner, and its EC2NodeClass where no AWSNodeTemplate stands for that.

    Args:
        document: as the API server has it.
        templates: every AWSNodeTemplate by name, as they stand there.
        cluster: as for `template`.
    """
    whole, wrong = _checked(PROVISIONER, document)
    if wrong:
        return Translation(errors=tuple(wrong))
    notes = _Notes()
    name, spec = name_of(document), whole["spec"]
    made = []
    kubelet = _kubelet(spec.get("kubeletConfiguration"), notes)
    if "provider" in spec:
        path, class_name = "spec.provider", name
        fields = {key: one for key, one in spec["provider"].items() if key not in ("apiVersion", "kind")}
        inside, wrong = _checked(NODE_TEMPLATE, {"metadata": {"name": name}, "spec": fields})
        notes.errors += [Violation(one.path.replace("spec", path, 1), one.message) for one in wrong]
        if not wrong:
            notes.decided(path, Said(f"became EC2NodeClass {class_name}"))
            made.append(_node_class(class_name, inside["spec"], kubelet, cluster, notes, path))
    else:
        of = spec["providerRef"]["name"]
        class_name = of if kubelet is None else f"{of}-{name}"
        notes.decided("spec.providerRef", Said(f"became nodeClassRef to EC2NodeClass {class_name}"))
        if kubelet is not None and of in templates:
            inside, wrong = _checked(NODE_TEMPLATE, {**templates[of], "metadata": {"name": of}})
            inner = _Notes(errors=wrong)
            if not wrong:
                made.append(_node_class(class_name, inside["spec"], kubelet, cluster, inner, "spec"))
            notes.errors += [Violation("spec.providerRef", f"AWSNodeTemplate {of}: {one}") for one in inner.errors]
        elif kubelet is not None:
            notes.refused(
                "spec.providerRef.name",
                Said(f'AWSNodeTemplate "{of}" does not exist; kubeletConfiguration needs a copy of it'),
            )
    if kubelet is not None:
        notes.decided(
            "spec.kubeletConfiguration",
            Said(f"became spec.kubelet of EC2NodeClass {class_name}, which only this NodePool uses"),
        )
    made.append(_node_pool(name, class_name, spec, notes))
    return _finished(notes, *made)


# --- parts ----------------------------------------------------------------------------------------------------------


def _finished(notes: _Notes, *made: Document) -> Translation:
    """What was made, once v1 admits it."""
    objects = []
    for one in made:
        definition = V1[one["kind"]]
        whole = defaulted(definition, one)
        if not notes.errors:
            notes.errors += [
                Violation("", f"{one['kind']} {one['metadata']['name']}: {bad}")
                for bad in violations(definition, whole)
            ]
        objects.append(one)
    if notes.errors:
        return Translation(decisions=tuple(notes.decisions), errors=tuple(notes.errors))
    return Translation(tuple(objects), tuple(notes.decisions))


def _checked(definition: Definition, document: Mapping[str, Any]) -> tuple[Document, list[Violation]]:
    """An object as the API server keeps it, which is without nulls, and what is wrong with it."""
    given = {name: one for name, one in document.items() if name != "status"}
    given.setdefault("apiVersion", definition.api_version)
    given.setdefault("kind", definition.kind)
    whole = defaulted(definition, given)
    found = violations(definition, whole)
    name = name_of(document)
    if not found and len(name) > LONGEST_NAME:
        found.append(
            Violation(
                "metadata.name",
                Said(f"has {len(name)} characters; the maximum is {LONGEST_NAME}, as nodes have a label with it"),
            )
        )
    return whole, found


def _object(definition: Definition, name: str, spec: Document) -> Document:
    return {"apiVersion": definition.api_version, "kind": definition.kind, "metadata": {"name": name}, "spec": spec}


def _node_pool(name: str, class_name: str, spec: Mapping[str, Any], notes: _Notes) -> Document:
    inner: Document = {
        "requirements": list(_requirements(spec.get("requirements", ()), notes)),
        "nodeClassRef": {"group": ec2.GROUP, "kind": ec2.KIND, "name": class_name},
    }
    for key in ("taints", "startupTaints"):
        if spec.get(key):
            inner[key] = spec[key]
    inner["expireAfter"] = _expiry(spec.get("ttlSecondsUntilExpired"), notes)
    metadata = {"labels": spec.get("labels"), "annotations": _annotations(spec.get("annotations") or {}, notes)}
    metadata = {key: one for key, one in metadata.items() if one}
    made: Document = {
        "template": {**({"metadata": metadata} if metadata else {}), "spec": inner},
        "disruption": {
            **_consolidation(spec, notes),
            "budgets": [{"nodes": "10%"}, {"nodes": "0", "reasons": [names.REASON_DRIFTED]}],
        },
    }
    notes.decided(
        "spec",
        Said(
            "that version did not replace drifted nodes, so the budget for the reason Drifted is 0; for the other "
            "reasons it is 10%"
        ),
    )
    if limits := spec.get("limits", {}).get("resources"):
        made["limits"] = limits
        notes.decided("spec.limits.resources", Said("became spec.limits"))
    if "weight" in spec:
        made["weight"] = spec["weight"]
    pool = _object(V1["NodePool"], name, made)
    pool["metadata"]["annotations"] = {names.PROVISIONER_NAME: name}  # its nodes get it as a label
    return pool


def _annotations(given: Mapping[str, str], notes: _Notes) -> Mapping[str, str]:
    """Those of the nodes, with the one that keeps them as v1 writes it."""
    if given.get(names.DO_NOT_CONSOLIDATE) != "true":
        return given
    notes.decided(f"spec.annotations[{names.DO_NOT_CONSOLIDATE}]", Said(f"became {names.DO_NOT_DISRUPT}"))
    rest = {key: one for key, one in given.items() if key != names.DO_NOT_CONSOLIDATE}
    return {names.DO_NOT_DISRUPT: "true", **rest}


def _requirements(given: Iterable[Mapping[str, Any]], notes: _Notes) -> Iterator[Document]:
    """Those of the Provisioner, then what the version required by default."""
    keys = set()
    for one in given:
        key = names.normalized_label(one["key"])
        keys.add(key)
        yield {name: value for name, value in {**one, "key": key}.items() if value != []}
    defaults = [
        (names.OS_LABEL, "linux"),
        (names.ARCH_LABEL, "amd64"),
        (names.CAPACITY_TYPE_LABEL, names.CAPACITY_ON_DEMAND),
    ]
    for key, value in defaults:
        if key not in keys:
            notes.decided("spec.requirements", Said(f"{key} In [{value}] was that version's default"))
            yield {"key": key, "operator": "In", "values": [value]}
    if not keys & {names.INSTANCE_TYPE_LABEL, FAMILY, CATEGORY, GENERATION}:
        notes.decided(
            "spec.requirements", Said(f"{CATEGORY} In [c, m, r] and {GENERATION} Gt 2 were that version's defaults")
        )
        yield {"key": CATEGORY, "operator": "In", "values": ["c", "m", "r"]}
        yield {"key": GENERATION, "operator": "Gt", "values": ["2"]}


def _expiry(seconds: int | None, notes: _Notes) -> str:
    path = "spec.ttlSecondsUntilExpired"
    if seconds is None:
        notes.decided(path, Said("is absent: expireAfter Never"))
        return karpenter.NEVER
    notes.decided(
        path, Said(f"became expireAfter {seconds}s; expired nodes are drained regardless of budgets and do-not-disrupt")
    )
    return f"{seconds}s"


def _consolidation(spec: Mapping[str, Any], notes: _Notes) -> Document:
    seconds = spec.get("ttlSecondsAfterEmpty")
    if spec.get("consolidation", {}).get("enabled"):
        notes.decided(
            "spec.consolidation.enabled",
            Said("became consolidationPolicy WhenEmptyOrUnderutilized, consolidateAfter 0s"),
        )
        return {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    if seconds is not None:
        notes.decided(
            "spec.ttlSecondsAfterEmpty", Said(f"became consolidationPolicy WhenEmpty, consolidateAfter {seconds}s")
        )
        return {"consolidationPolicy": "WhenEmpty", "consolidateAfter": f"{seconds}s"}
    notes.decided("spec", Said("neither ttlSecondsAfterEmpty nor consolidation: consolidateAfter Never"))
    return {"consolidationPolicy": "WhenEmpty", "consolidateAfter": karpenter.NEVER}


def _kubelet(given: Mapping[str, Any] | None, notes: _Notes) -> Document | None:
    if not given:
        return None
    runtime = given.get("containerRuntime")
    path = "spec.kubeletConfiguration.containerRuntime"
    if runtime == "containerd":
        notes.decided(path, Said("has no equivalent: every node runs containerd"))
    elif runtime is not None:
        notes.refused(path, Said(f'"{runtime}" has no equivalent; remove it, every node runs containerd'))
    return {key: one for key, one in given.items() if key != "containerRuntime"} or None


def _node_class(
    name: str, given: Mapping[str, Any], kubelet: Document | None, cluster: str, notes: _Notes, path: str
) -> Document:
    spec: Document = {key: given[key] for key in _COPIED if given.get(key) not in (None, {})}
    if "launchTemplate" in given:
        notes.refused(
            f"{path}.launchTemplate", Said("has no equivalent; set its contents in the fields of an EC2NodeClass")
        )
    elif "instanceProfile" not in spec:
        notes.refused(f"{path}.instanceProfile", _PROFILE)
    _images(spec, given, notes, path)
    for key, terms, what in (
        ("subnetSelector", "subnetSelectorTerms", "subnets"),
        ("securityGroupSelector", "securityGroupSelectorTerms", "security groups"),
    ):
        selector = given.get(key)
        if selector:
            spec[terms] = _terms(selector, notes, f"{path}.{key}")
            notes.decided(f"{path}.{key}", f"became {terms}")
        elif cluster:
            tag = f"{ec2.CLUSTER_TAG_PREFIX}{cluster}"
            spec[terms] = [{"tags": {tag: "*"}}]
            notes.decided(f"{path}.{key}", Said(f"is absent: {what} with the tag {tag}"))
        else:
            notes.refused(
                f"{path}.{key}",
                Said(
                    f"is absent and selects the {what} with the tag {ec2.CLUSTER_TAG_PREFIX}<name>; name the cluster "
                    "with --cluster-name"
                ),
            )
    options = given.get("metadataOptions")
    spec["metadataOptions"] = _METADATA if options is None else {**_METADATA_PARTIAL, **options}
    notes.decided(f"{path}.metadataOptions", Said("written out with that version's defaults"))
    if mappings := given.get("blockDeviceMappings"):
        spec["blockDeviceMappings"] = [
            _mapping(one, notes, f"{path}.blockDeviceMappings[{index}]") for index, one in enumerate(mappings)
        ]
    if kubelet is not None:
        spec["kubelet"] = kubelet
    return _object(V1["EC2NodeClass"], name, spec)


def _images(spec: Document, given: Mapping[str, Any], notes: _Notes, path: str) -> None:
    family = given.get("amiFamily")
    if family is None:
        notes.decided(
            f"{path}.amiFamily",
            Said("AL2 was that version's default; there are no AL2 images for Kubernetes 1.33 and later"),
        )
        family = ec2.AL2
    if family not in _FAMILIES:
        notes.refused(f"{path}.amiFamily", Said(f'"{family}" has no equivalent; use one of {", ".join(ec2.FAMILIES)}'))
        return
    spec["amiFamily"] = family
    selector = given.get("amiSelector")
    if selector:
        spec["amiSelectorTerms"] = _image_terms(selector, notes, f"{path}.amiSelector")
        notes.decided(f"{path}.amiSelector", Said("became amiSelectorTerms"))
    elif family == ec2.CUSTOM:
        notes.refused(f"{path}.amiSelector", Said("is required with amiFamily Custom"))
    else:
        alias = f"{family.lower()}@latest"
        spec["amiSelectorTerms"] = [{"alias": alias}]
        notes.decided(f"{path}.amiFamily", Said(f"became amiSelectorTerms with the alias {alias}"))


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _too_many_terms(count: int, most: int) -> str:
    """Of a selector whose values are lists."""
    return Said(f"its values separated by commas make {count} terms; the maximum is {most}")


def _terms(selector: Mapping[str, str], notes: _Notes, path: str) -> list[Document]:
    """Terms that are ORed; values of a tag that are separated by commas were, and IDs were ANDed with tags."""
    ids = [one for key in _IDS for one in _listed(selector.get(key, ""))]
    tags = {key: _listed(value) for key, value in selector.items() if key not in _IDS}
    if ids and tags:
        notes.refused(path, Said("IDs cannot be combined with tags; use one of them"))
        return []
    if ids:
        return [{"id": one} for one in ids]
    for key, values in tags.items():
        if not values:
            notes.refused(f"{path}[{key}]", Said('must not be empty; "*" means any value'))
    count = 1
    for values in tags.values():
        count *= len(values)
    if count > MAX_TERMS:
        notes.refused(path, _too_many_terms(count, MAX_TERMS))
        return []
    return [{"tags": dict(zip(tags, chosen, strict=True))} for chosen in itertools.product(*tags.values())]


def _image_terms(selector: Mapping[str, str], notes: _Notes, path: str) -> list[Document]:
    owners, image_names = _listed(selector.get(_AMI_OWNERS, "")), _listed(selector.get(_AMI_NAME, ""))
    rest = {key: value for key, value in selector.items() if key not in (_AMI_OWNERS, _AMI_NAME)}
    terms = _terms(rest, notes, path) if rest else [{}]
    if terms and "id" in terms[0]:
        if owners or image_names:
            notes.refused(path, Said("IDs cannot be combined with names or owners; use one of them"))
        return terms
    count = len(terms) * max(1, len(image_names)) * max(1, len(owners))
    if count > MAX_TERMS:
        notes.refused(path, _too_many_terms(count, MAX_TERMS))
        return []
    for values, key in ((image_names, "name"), (owners, "owner")):
        terms = [{**term, key: one} for term in terms for one in values] if values else terms
    return terms


def _mapping(given: Mapping[str, Any], notes: _Notes, path: str) -> Document:
    volume = given.get("ebs")
    if not isinstance(volume, Mapping) or "volumeSize" not in volume:
        return dict(given)
    size = str(volume["volumeSize"])
    wanted = size
    if not size.endswith(("Gi", "G", "Ti", "T")) or not size[:-1].rstrip("i").rstrip("GT").isdigit():
        try:
            gib = -(-Quantity.parse(size).units() // _GIB)
        except QuantityError as error:
            notes.refused(f"{path}.ebs.volumeSize", str(error))
            return dict(given)
        wanted = f"{max(1, gib)}Gi"
        notes.decided(f"{path}.ebs.volumeSize", f"{size} became {wanted}")
    return {**given, "ebs": {**volume, "volumeSize": wanted}}
