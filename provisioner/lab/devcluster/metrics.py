"""Objects of a control plane with metrics-server: where its API is, and how much the pods use; pure.

kwok answers `/metrics/nodes/NODE/metrics/resource` for each of its nodes (`usage.yaml`), metrics-server scrapes that, and
the API server passes requests for metrics.k8s.io on to it. How much a container uses is what the ClusterResourceUsage of
kwok says.
"""

import base64
from typing import Any, Final

GROUP: Final = "kwok.x-k8s.io"
PLURAL: Final = "clusterresourceusages"
KIND: Final = "ClusterResourceUsage"
USAGE: Final = "usage"
"""The name of the one ClusterResourceUsage. Of two that select a pod, kwok takes any: change this one."""

API_SERVICE: Final = "v1beta1.metrics.k8s.io"
API_PATH: Final = "/apis/metrics.k8s.io/v1beta1"
NAMESPACE: Final = "kube-system"
SERVER_NAME: Final = f"metrics-server.{NAMESPACE}.svc"
"""What the API server expects in the certificate of metrics-server."""

CPU_ANNOTATION: Final = "kwok.x-k8s.io/usage-cpu"
MEMORY_ANNOTATION: Final = "kwok.x-k8s.io/usage-memory"

Document = dict[str, Any]


def api_documents(ca_pem: bytes, port: int) -> list[Document]:
    """The Service and the APIService by which the API server finds metrics-server on this machine."""
    service, _, _ = SERVER_NAME.partition(".")
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": service, "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},  # a cluster IP would need kube-proxy
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": API_SERVICE},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "service": {"name": service, "namespace": NAMESPACE, "port": port},
                "caBundle": base64.b64encode(ca_pem).decode(),
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]


def definition() -> Document:
    """The CustomResourceDefinition of ClusterResourceUsage, with what kwok 0.8 reads of it."""
    texts = {"type": "array", "items": {"type": "string"}}
    amount = {
        "type": "object",
        "properties": {
            "value": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
            "expression": {"type": "string"},
        },
    }
    usage = {
        "type": "object",
        "properties": {"containers": texts, "usage": {"type": "object", "additionalProperties": amount}},
    }
    selector = {"type": "object", "properties": {"matchNamespaces": texts, "matchNames": texts}}
    spec = {
        "type": "object",
        "properties": {"selector": selector, "usages": {"type": "array", "items": usage}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower()},
            "scope": "Cluster",
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }
            ],
        },
    }


def usage(cpu: str, memory: str) -> Document:
    """The ClusterResourceUsage.

    Args:
        cpu: a CEL expression of `pod`, `container` and `node` for what one container uses, in CPUs.
        memory: likewise, in bytes; metrics-server drops a container that uses none.
    """
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": KIND,
        "metadata": {"name": USAGE},
        "spec": {"usages": [{"usage": {"cpu": {"expression": cpu}, "memory": {"expression": memory}}}]},
    }


def default_usage() -> Document:
    """What every new cluster has: a container uses what annotations of its pod say, and next to nothing without them."""
    return usage(annotated(CPU_ANNOTATION, "1m"), annotated(MEMORY_ANNOTATION, "1Mi"))


def annotated(key: str, otherwise: str) -> str:
    """The expression for a quantity in an annotation of the pod."""
    return (
        f'"{key}" in pod.metadata.annotations ? Quantity(pod.metadata.annotations["{key}"]) : Quantity("{otherwise}")'
    )
