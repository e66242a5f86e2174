"""The ObjectReference that events about an object carry (`involvedObject`)."""

from collections.abc import Iterable

from provisioner.apis.core import Node, ObjectReference
from provisioner.apis.pods import Pod
from provisioner.kube.events import Recorder
from provisioner.runtime.conditioned import ClusterScopedObject
from provisioner.state.cluster import Cluster
from provisioner.values.message import EventMessage


def reference_of(about: ClusterScopedObject) -> ObjectReference:
    """An object of Karpenter's API."""
    meta = about.metadata
    return ObjectReference(
        api_version=about.api_version, kind=about.kind, name=meta.name, namespace=meta.namespace, uid=meta.uid
    )


def node_reference(node: Node) -> ObjectReference:
    """A Node; in lists they do not say what they are."""
    return ObjectReference(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)


def pod_reference(pod: Pod) -> ObjectReference:
    """A pod."""
    return ObjectReference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)


def publish(
    recorder: Recorder, cluster: Cluster, claims: Iterable[str], message: EventMessage, *, ttl: float | None = None
) -> None:
    """One event about each of these NodeClaims that the state knows, by name, and about its Node where it has one."""
    for claim in filter(None, map(cluster.claim, claims)):
        node = cluster.node_of(claim)
        for reference in (reference_of(claim), *((node_reference(node),) if node is not None else ())):
            recorder.publish(reference, *message, ttl=ttl)
