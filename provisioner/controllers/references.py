"""The ObjectReference that events about an object carry (`involvedObject`)."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from provisioner.apis.core import Node, ObjectReference
from provisioner.apis.meta import ObjectMeta
from provisioner.apis.pods import Pod
from provisioner.state.cluster import Cluster


class Named(Protocol):
    """A cluster-wide object that says what it is: a NodeClaim, a NodePool, a NodeClass."""

    @property
    def api_version(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def metadata(self) -> ObjectMeta: ...


def reference_of(about: Named) -> ObjectReference:
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


def references_of(cluster: Cluster, claims: Iterable[str]) -> Iterator[ObjectReference]:
    """Each of these NodeClaims that the state knows, by name, followed by its Node where it has one."""
    for name in claims:
        claim = cluster.claim(name)
        if claim is None:
            continue
        yield reference_of(claim)
        node = cluster.node_of(claim)
        if node is not None:
            yield node_reference(node)
