"""The ObjectReference that events about an object carry (`involvedObject`)."""

from collections.abc import Iterable

from provisioner.apis.core import AnyPodGroup, Node, ObjectReference
from provisioner.apis.gangs import key_of_object, source_of
from provisioner.apis.pods import Pod
from provisioner.kube.events import Recorder
from provisioner.kube.resources import GROUP_KINDS
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


def group_reference(group: AnyPodGroup) -> ObjectReference:
    """A PodGroup; in lists they do not say what they are."""
    meta, kind = group.metadata, GROUP_KINDS[source_of(key_of_object(group))]
    return ObjectReference(
        api_version=kind.api_version, kind=kind.kind, name=meta.name, namespace=meta.namespace, uid=meta.uid
    )


def tell_gang(recorder: Recorder, cluster: Cluster, key: str, message: EventMessage) -> None:
    """One event about the PodGroup of a gang, where there is one, and one about the first of its pods: it may have thousands."""
    group, pod = cluster.gang_told_of(key)
    if group is not None:
        recorder.publish(group_reference(group), *message)
    if pod is not None:
        recorder.publish(pod_reference(pod), *message)


def publish(
    recorder: Recorder, cluster: Cluster, claims: Iterable[str], message: EventMessage, *, ttl: float | None = None
) -> None:
    """One event about each of these NodeClaims that the state knows, by name, and about its Node where it has one."""
    for claim in filter(None, map(cluster.claim, claims)):
        node = cluster.node_of(claim)
        for reference in (reference_of(claim), *((node_reference(node),) if node is not None else ())):
            recorder.publish(reference, *message, ttl=ttl)
