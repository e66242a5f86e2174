"""Objects, what they stand beside, and what is said about them: one table for `dovetail lint` and for the validating webhook."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

Document = dict[str, Any]
_USER_DATA: Final = Path(__file__).parents[1] / "data" / "userdata"

CLASS: Document = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {
        "role": "nodes",
        "amiSelectorTerms": [{"alias": "al2023@v20250715"}],
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    },
}


def need(key: str, operator: str, *values: str, **more: Any) -> Document:
    """A requirement."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {}), **more}


def pool(
    *requirements: Document, name: str = "general", template: Document | None = None, meta: Any = None, **spec: Any
) -> Document:
    """A NodePool over `CLASS`, with fields of its template's spec and of its spec in place of the usual ones."""
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    inner = {"nodeClassRef": reference, "requirements": list(requirements), **(template or {})}
    whole: Document = {"template": {"spec": inner}, "disruption": {"consolidateAfter": "30s"}}
    if meta is not None:
        whole["template"]["metadata"] = meta
    whole |= spec
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": whole}


def referring(**reference: str) -> Document:
    """A NodePool with parts of its reference replaced."""
    made = pool()
    made["spec"]["template"]["spec"]["nodeClassRef"] |= reference
    return made


def claim(*requirements: Document, **reference: str) -> Document:
    """A NodeClaim of nobody's."""
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default", **reference}
    spec = {"nodeClassRef": ref, "requirements": list(requirements)}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "alone"}, "spec": spec}


def overlay(*requirements: Document, name: str = "cheaper", **spec: Any) -> Document:
    """A NodeOverlay."""
    whole = {"requirements": list(requirements), **spec}
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": whole,
    }


def node_class(alias: str = "al2023@v20250715", **spec: Any) -> Document:
    """`CLASS` with another image and fields."""
    made = copy.deepcopy(CLASS)
    made["spec"] |= {"amiSelectorTerms": [{"alias": alias}], **spec}
    return made


def budgets(*entries: Document, after: str = "30s") -> Document:
    """A NodePool with these budgets."""
    return pool(disruption={"consolidateAfter": after, "budgets": list(entries)})


@dataclass(frozen=True)
class Case:
    """An object that the API server admits.

    Attributes:
        document: it.
        errors: the path and a part of every error, in the order of paths.
        warnings: the same of every warning; none where there are errors.
        beside: the other objects that are there; node classes, NodePools and NodeOverlays.
    """

    document: Document
    errors: tuple[tuple[str, str], ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    beside: tuple[Document, ...] = (CLASS,)


USER_DATA: dict[str, tuple[Literal["errors", "warnings"], str]] = {
    "al2023-cloud-config": (
        "errors",
        "must be a NodeConfig of node.eks.aws/v1alpha1, or nodes would not join; found neither",
    ),
    "al2023-wrong-kind": ("errors", 'found apiVersion "node.eks.aws/v1", kind "NodeConfigs"'),
    "al2023-trailing-document": ("warnings", "nodeadm reads only the first YAML document"),
    "al2023-two-documents": ("warnings", "nodeadm reads only the first YAML document"),
    "al2023-no-shebang": ("warnings", "is not run, because it does not begin with #!"),
    "al2-nodeconfig": ("warnings", "the YAML is run as a shell script; use NodeConfigs with AL2023 only"),
    "bottlerocket-outside-settings": ("warnings", "ignores these: grpc, plugins, version"),
    "windows-tags": ("warnings", "run with the same tags (<powershell>, <persist>)"),
}
"""EC2NodeClasses of tests/data/userdata, and what is said of their user data."""


def user_data_case(name: str) -> Document:
    """One of `USER_DATA`."""
    document: Document = yaml.safe_load((_USER_DATA / f"{name}.yaml").read_text())
    return document


CAPACITY, ARCH, OS = "karpenter.sh/capacity-type", "kubernetes.io/arch", "kubernetes.io/os"
ZONE, FAMILY = "topology.kubernetes.io/zone", "karpenter.k8s.aws/instance-family"
REQUIREMENTS = "spec.template.spec.requirements"
REFERENCE = "spec.template.spec.nodeClassRef"
BUDGETS = "spec.disruption.budgets"

CASES = {
    "a pool as they come": Case(pool(need(ARCH, "In", "amd64"))),
    "a class as they come": Case(CLASS, beside=()),
    "a claim as they come": Case(claim(need(ARCH, "In", "amd64"))),
    "an overlay as they come": Case(overlay(need(ARCH, "In", "amd64"), price="0.1")),
    # errors
    "a class of another group": Case(
        referring(group="karpenter.sh"), errors=((f"{REFERENCE}.group", "did you mean karpenter.k8s.aws?"),)
    ),
    "a class of an unknown kind": Case(
        referring(kind="EC2NodeClas"), errors=((f"{REFERENCE}.kind", "did you mean EC2NodeClass?"),)
    ),
    "a claim with a class of another group": Case(
        claim(group="karpenter.kwok.sh"), errors=(("spec.nodeClassRef.group", "did you mean karpenter.k8s.aws?"),)
    ),
    "a taint that is given twice": Case(
        pool(template={"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}),
        errors=(("spec.template.spec", "taint a:NoSchedule is listed twice"),),
    ),
    "no capacity type that exists": Case(
        pool(need(CAPACITY, "In", "SPOT")), errors=((f"{REQUIREMENTS}[0].values", '"SPOT" is not a capacity type'),)
    ),
    "a schedule of a date that never comes": Case(
        budgets({"nodes": "1", "schedule": "0 0 30 2 *", "duration": "1h"}),
        errors=((f"{BUDGETS}[0].schedule", "schedule '0 0 30 2 *'"),),
    ),
    "an overlay that selects what another of its weight selects": Case(
        overlay(need(ARCH, "In", "amd64"), price="0.1"),
        errors=(("spec.weight", 'NodeOverlay "other" of the same weight changes the same instance types'),),
        beside=(overlay(need(ARCH, "In", "amd64"), name="other", priceAdjustment="-10%"),),
    ),
    "an overlay that selects a part of what another of its weight selects": Case(
        overlay(need(ARCH, "In", "amd64"), need(FAMILY, "In", "m5"), capacity={"a/b": "1"}),
        errors=(("spec.weight", 'NodeOverlay "other"'),),
        beside=(overlay(need(FAMILY, "In", "m5", "m6i"), name="other", capacity={"a/b": "2"}),),
    ),
    # two overlays that are right
    "an overlay that selects the same at another weight": Case(
        overlay(price="0.1", weight=2), beside=(overlay(name="other", price="0.2", weight=1),)
    ),
    "an overlay that selects the same and changes something else": Case(
        overlay(price="0.1"), beside=(overlay(name="other", capacity={"a/b": "1"}),)
    ),
    "an overlay that selects other instance types": Case(
        overlay(need(FAMILY, "In", "m5"), price="0.1"),
        beside=(overlay(need(FAMILY, "In", "m6i"), name="other", price="0.2"),),
    ),
    "an overlay that selects other offerings": Case(
        overlay(need(CAPACITY, "In", "spot"), price="0.1"),
        beside=(overlay(need(CAPACITY, "In", "on-demand"), name="other", price="0.2"),),
    ),
    "an overlay that selects the same as one that selects nothing": Case(
        overlay(price="0.1"),
        beside=(overlay(need("a/b", "Exists"), need("a/b", "DoesNotExist"), name="other", price="1"),),
    ),
    # warnings
    "an overlay that may select what another of its weight selects": Case(
        overlay(need(FAMILY, "In", "m5"), price="0.1"),
        warnings=(
            ("spec.weight", 'NodeOverlay "other" of the same weight changes every instance type that both select'),
        ),
        beside=(overlay(need(ARCH, "In", "amd64"), name="other", price="0.2"),),
    ),
    "overlays of resources, which an instance type has in every zone": Case(
        overlay(need(ZONE, "In", "a"), capacity={"a/b": "1"}),
        warnings=(("spec.weight", 'NodeOverlay "other"'),),
        beside=(overlay(need(ZONE, "In", "b"), name="other", capacity={"a/b": "2"}),),
    ),
    "overlays for two operating systems, which one instance type has": Case(
        overlay(need(OS, "In", "linux"), price="1"),
        warnings=(("spec.weight", 'NodeOverlay "other"'),),
        beside=(overlay(need(OS, "In", "windows"), name="other", price="2"),),
    ),
    "a class that is not there": Case(
        referring(name="defualt"),
        warnings=((f"{REFERENCE}.name", 'EC2NodeClass "defualt"'),),
    ),
    "a claim whose class is not there": Case(
        claim(name="other"), warnings=(("spec.nodeClassRef.name", 'EC2NodeClass "other"'),)
    ),
    "a pool of another program": Case(
        referring(group="eks.amazonaws.com", kind="NodeClass"),
        warnings=((f"{REFERENCE}.kind", "is not a node class of Dovetail"),),
    ),
    "a pool that no pod can reach": Case(
        pool(need(ARCH, "In", "x86_64")), warnings=((REQUIREMENTS, "did you mean amd64?"),)
    ),
    "requirements that contradict each other": Case(
        pool(need("a/b", "In", "x"), need("a/b", "NotIn", "x")), warnings=((REQUIREMENTS, "contradict each other"),)
    ),
    "a claim that nothing meets": Case(
        claim(need("a/b", "In", "x"), need("a/b", "NotIn", "x")),
        warnings=(("spec.requirements", "no instance can be launched"),),
    ),
    "an overlay that selects nothing": Case(
        overlay(need("a/b", "In", "x"), need("a/b", "NotIn", "x"), price="1"),
        warnings=(("spec.requirements", "selects no instance type"),),
    ),
    "an overlay that changes nothing": Case(overlay(), warnings=(("spec", "has no effect"),)),
    "a pool that is shadowed by weight": Case(
        pool(weight=1),
        warnings=(("spec.weight", "NodePool high (weight 50) is tried first"),),
        beside=(CLASS, pool(name="high", weight=50)),
    ),
    "a pool beside one with a limit": Case(
        pool(weight=1), beside=(CLASS, pool(name="high", weight=50, limits={"cpu": "100"}))
    ),
    "a budget that never opens": Case(
        budgets({"nodes": "1"}, {"nodes": "0", "schedule": "@daily", "duration": "0h"}),
        warnings=((f"{BUDGETS}[1].duration", "never"),),
    ),
    "taints that are the controllers' own": Case(
        pool(
            template={
                "taints": [
                    {"key": "dovetail.dev/x", "effect": "NoExecute"},
                    {"key": "team.dev/x", "effect": "NoSchedule"},
                ],
                "startupTaints": [
                    {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"},
                    {"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"},
                    {"key": "karpenter.sh/unregistered", "effect": "NoSchedule"},
                ],
            }
        ),
        errors=(
            ("spec.template.spec.taints[0].key", "dovetail.dev/x is reserved"),
            ("spec.template.spec.startupTaints[2].key", "karpenter.sh/unregistered is reserved"),
        ),
    ),
    "no budget for drift": Case(
        budgets({"nodes": "1", "reasons": ["Empty", "Underutilized"]}),
        warnings=((BUDGETS, "no budget applies to Drifted at any time"),),
    ),
    "consolidation with budgets of 0": Case(
        budgets({"nodes": "0"}),
        warnings=(
            (BUDGETS, "consolidation is enabled (consolidateAfter 30s)"),
            (BUDGETS, "for Drifted"),
            (BUDGETS, "for Unhealthy"),
        ),
    ),
    "minValues that cannot be met": Case(
        pool(need(CAPACITY, "Exists", minValues=4)), warnings=((f"{REQUIREMENTS}[0].minValues", "allow only 3"),)
    ),
    "limits under one node": Case(
        pool(need("karpenter.k8s.aws/instance-cpu", "Gt", "15"), limits={"cpu": "8"}),
        warnings=(("spec.limits.cpu", "smaller than its smallest node (16 CPU)"),),
    ),
    "the latest image": Case(
        node_class("al2023@latest"), warnings=(("spec.amiSelectorTerms[0].alias", "pin a version"),), beside=()
    ),
    "what no kubelet takes": Case(
        node_class(
            kubelet={
                "maxPods": -1,
                "evictionSoft": {"memory.available": "5%"},
                "kubeReserved": {"gpu": "1"},
                "podsPerCore": "a",
            }
        ),
        errors=(
            ("spec.kubelet.maxPods", "is negative"),
            ("spec.kubelet.evictionSoft[memory.available]", "no grace period"),
            ("spec.kubelet.kubeReserved[gpu]", "can be reserved"),
            ("spec.kubelet.podsPerCore", "must be an integer"),
        ),
        beside=(),
    ),
    "a field of kubelets to come": Case(
        node_class(kubelet={"brandNew": 1}), warnings=(("spec.kubelet.brandNew", "unknown to the kubelet"),), beside=()
    ),
    "tags that are not for users": Case(
        node_class(tags={"aws:x": "y", "a": "b" * 300}),
        errors=(("spec.tags[aws:x]", "reserved by AWS"), ("spec.tags[a]", "longer than AWS allows")),
        beside=(),
    ),
    "user data that is longer than EC2 takes is not read": Case(
        node_class("bottlerocket@v1.30.0", userData=f"[settings{'#' * 16384}"),
        warnings=(("spec.userData", "exceeds the EC2 limit of 16384 bytes"),),
        beside=(),
    ),
    **{
        f"user data: {name}": Case(user_data_case(name), **{kind: (("spec.userData", words),)}, beside=())
        for name, (kind, words) in USER_DATA.items()
    },
    "user data that cannot be read": Case(
        node_class("bottlerocket@v1.30.0", userData="[settings"), errors=(("spec.userData", "TOML"),), beside=()
    ),
}
