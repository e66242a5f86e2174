"""Pods and what becomes of them, for webhook and admission policy alike."""

from dataclasses import dataclass, field
from typing import Any

ARCH = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod as the API server sends it: empty parts are absent."""
    metadata: dict[str, Any] = {"generateName": "web-"}
    if annotations is not None:
        metadata["annotations"] = annotations
    if labels is not None:
        metadata["labels"] = labels
    return {"metadata": metadata, "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}], **spec}}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def expressions(*items: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(items)}


@dataclass(frozen=True)
class Source:
    """Where settings stand, and the arch values that must come out; None: nothing is stamped."""

    want: list[str] | None
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    namespace: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)


ARCH_KEY, STAMP_KEY = "dovetail.dev/arch", "dovetail.dev/stamp"
SOURCES = {
    "no opt-in stamps nothing": Source(None),
    "the pod's annotation stamps": Source(["arm64"], annotations={ARCH_KEY: "arm64"}),
    "the namespace's label stamps": Source(["arm64"], namespace={ARCH_KEY: "arm64"}),
    "the cluster's default stamps": Source(["amd64"], defaults={"arch": "amd64"}),
    "a default is named without prefix": Source(None, defaults={ARCH_KEY: "amd64"}),
    "a label of the pod is no opt-in": Source(None, labels={ARCH_KEY: "arm64"}),
    "an annotation beats the namespace": Source(["arm64"], {ARCH_KEY: "arm64"}, namespace={ARCH_KEY: "amd64"}),
    "a namespace beats the default": Source(["arm64"], namespace={ARCH_KEY: "arm64"}, defaults={"arch": "amd64"}),
    "an empty annotation switches the namespace's setting off": Source(
        None, annotations={ARCH_KEY: ""}, namespace={ARCH_KEY: "amd64"}
    ),
    "a comma list is sorted and spaces do not matter": Source(["amd64", "arm64"], {ARCH_KEY: " arm64 , amd64,"}),
    "an underscore separates where commas are illegal": Source(["amd64", "arm64"], namespace={ARCH_KEY: "arm64_amd64"}),
    "a repeated value counts once": Source(["arm64"], {ARCH_KEY: "arm64,arm64"}),
    "an unknown value stamps nothing": Source(None, {ARCH_KEY: "sparc"}),
    "one unknown value spoils the list": Source(None, {ARCH_KEY: "arm64,sparc"}),
    "an unknown value does not fall back to the namespace": Source(
        None, {ARCH_KEY: "sparc"}, namespace={ARCH_KEY: "arm64"}
    ),
    "values are case sensitive": Source(None, {ARCH_KEY: "ARM64"}),
    "opting out by annotation wins over an annotation": Source(None, {ARCH_KEY: "arm64", STAMP_KEY: "disabled"}),
    "opting out by a label of the pod wins": Source(None, {ARCH_KEY: "arm64"}, labels={STAMP_KEY: "disabled"}),
    "opting out by namespace wins over the pod": Source(None, {ARCH_KEY: "arm64"}, namespace={STAMP_KEY: "disabled"}),
    "opting out for the cluster wins over the pod": Source(None, {ARCH_KEY: "arm64"}, defaults={"stamp": "disabled"}),
    "a pod cannot opt in again": Source(
        None, {ARCH_KEY: "arm64", STAMP_KEY: "enabled"}, namespace={STAMP_KEY: "disabled"}
    ),
    "stamp enabled alone changes nothing": Source(["arm64"], {ARCH_KEY: "arm64", STAMP_KEY: "enabled"}),
    "a misspelt opt-out stamps nothing": Source(None, {ARCH_KEY: "arm64", STAMP_KEY: "false"}),
}


ZONE = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
OWN_ARCH = {"key": "kubernetes.io/arch", "operator": "NotIn", "values": ["arm64"]}
OLD_ARCH = {"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
FIELD = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ZONED = {"matchExpressions": [ZONE]}
HANDS_OFF: dict[str, dict[str, Any]] = {
    "the key in nodeSelector": {"nodeSelector": {"kubernetes.io/arch": "amd64"}},
    "its deprecated name in nodeSelector": {"nodeSelector": {"beta.kubernetes.io/arch": "amd64"}},
    "the key in the only term, whatever the operator": {"affinity": required(expressions(OWN_ARCH))},
    "its deprecated name in the only term": {"affinity": required(expressions(OLD_ARCH))},
    "the key in every term": {"affinity": required(expressions(OWN_ARCH), expressions(ZONE, OLD_ARCH))},
    "a term that matches nothing, beside one with the key": {"affinity": required({}, expressions(OWN_ARCH))},
    "only terms that match nothing": {"affinity": required({}, expressions())},
    "the one node that the pod is for": {"affinity": required({"matchFields": [FIELD]})},
    "one node in every term": {"affinity": required({"matchFields": [FIELD]}, {"matchFields": [FIELD], **ZONED})},
}


@dataclass(frozen=True)
class Into:
    """An affinity and the required terms that must come out."""

    affinity: dict[str, Any]
    want: list[dict[str, Any]]


PREFERENCE = [{"weight": 1, "preference": expressions(OWN_ARCH)}]
NOT_FIELD = {**FIELD, "operator": "NotIn"}
WINDOWS_LABEL = {"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}
INTO = {
    "an empty affinity": Into({}, [expressions(ARCH)]),
    "an affinity between pods only": Into({"podAffinity": {"x": 1}}, [expressions(ARCH)]),
    "an empty node affinity": Into({"nodeAffinity": {}}, [expressions(ARCH)]),
    "a preference for the key is no requirement": Into({"nodeAffinity": {PREFERRED: PREFERENCE}}, [expressions(ARCH)]),
    "a null where the parent should be": Into({"nodeAffinity": None}, [expressions(ARCH)]),
    "one term without the key": Into(required(expressions(ZONE)), [expressions(ZONE, ARCH)]),
    "each of two terms without the key": Into(
        required(expressions(ZONE), expressions(ZONE)), [expressions(ZONE, ARCH), expressions(ZONE, ARCH)]
    ),
    "only the term that lacks it": Into(
        required(expressions(OWN_ARCH), expressions(ZONE)), [expressions(OWN_ARCH), expressions(ZONE, ARCH)]
    ),
    "a term that keeps off a node": Into(
        required({"matchFields": [NOT_FIELD]}), [{"matchFields": [NOT_FIELD], "matchExpressions": [ARCH]}]
    ),
    "only the term that names no node": Into(
        required({"matchFields": [FIELD]}, expressions(ZONE)), [{"matchFields": [FIELD]}, expressions(ZONE, ARCH)]
    ),
    "only the term that may be Linux": Into(
        required(expressions(WINDOWS_LABEL), expressions(ZONE)), [expressions(WINDOWS_LABEL), expressions(ZONE, ARCH)]
    ),
    "never a term that matches nothing": Into(required({}, expressions(ZONE)), [{}, expressions(ZONE, ARCH)]),
}


EXEMPT = {
    "a mirror pod": (pod({"kubernetes.io/config.mirror": "x"}), "shop"),
    "a pod with a node": (pod(nodeName="n1"), "shop"),
    "a pod of a DaemonSet": (pod(), "shop"),
    "a pod of another scheduler": (pod(schedulerName="volcano"), "shop"),
    "kube-system": (pod(), "kube-system"),
    "kube-node-lease": (pod(), "kube-node-lease"),
    "our own namespace": (pod(), "dovetail-system"),
}
DAEMONSET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "controller": True}
PINNED = required({"matchFields": [FIELD]})
EXEMPT["a pod of a DaemonSet"][0]["metadata"]["ownerReferences"] = [DAEMONSET]
EXEMPT["a pod of a DaemonSet"][0]["spec"]["affinity"] = PINNED


WINDOWS_PODS: dict[str, dict[str, Any]] = {
    "by its field": {"os": {"name": "windows"}},
    "by an option of the pod": {"hostNetwork": True, "securityContext": {"windowsOptions": {"hostProcess": True}}},
    "by an option of a container": {
        "containers": [{"name": "c", "securityContext": {"windowsOptions": {"runAsUserName": "x"}}}]
    },
    "by an option of an init container": {
        "initContainers": [{"name": "i", "securityContext": {"windowsOptions": {"runAsUserName": "x"}}}]
    },
    "by a label that only its nodes have": {"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}},
}
