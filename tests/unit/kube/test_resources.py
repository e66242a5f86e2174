import json
from typing import Any

import msgspec
import pytest

from provisioner.kube import resources

PATHS = {
    "all pods": (resources.PODS, ("", "", ""), "/api/v1/pods"),
    "pods of a namespace": (resources.PODS, ("ns", "", ""), "/api/v1/namespaces/ns/pods"),
    "one pod": (resources.PODS, ("ns", "p", ""), "/api/v1/namespaces/ns/pods/p"),
    "a subresource": (resources.PODS, ("ns", "p", "eviction"), "/api/v1/namespaces/ns/pods/p/eviction"),
    "a kind of a group": (resources.NODECLAIMS, ("", "c", "status"), "/apis/karpenter.sh/v1/nodeclaims/c/status"),
    "a kind without namespaces ignores one": (resources.NODES, ("ns", "n", ""), "/api/v1/nodes/n"),
    "a name that needs quoting": (resources.NODES, ("", "a/../b?c", ""), "/api/v1/nodes/a%2F..%2Fb%3Fc"),
}


@pytest.mark.parametrize(("resource", "where", "want"), PATHS.values(), ids=PATHS)
def test_paths(resource: resources.Resource[object], where: tuple[str, str, str], want: str) -> None:
    assert resource.path(*where) == want


def test_a_namespaced_object_without_namespace_is_refused() -> None:
    with pytest.raises(ValueError, match="Pod 'p' needs a namespace"):
        resources.PODS.path("", "p")


CLASS = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []}
WRITTEN = {
    "a class of a newer version": (
        resources.EC2NODECLASSES,
        {"newOptions": {"enabled": True}, "kubelet": {"any": 1}, "metadataOptions": {"new": 1}},
        ("spec.metadataOptions.new", "spec.newOptions"),
    ),
    "a pool of a newer version": (
        resources.NODEPOOLS,
        {"template": {"spec": {**CLASS, "requirements": [{"key": "a", "operator": "Exists", "weight": 1}]}}, "new": []},
        ("spec.new", "spec.template.spec.requirements[0].weight"),
    ),
    "a class of ours": (resources.EC2NODECLASSES, {"kubelet": {"maxPods": 10}, "tags": {"any": "key"}}, ()),
    "a pool of ours": (resources.NODEPOOLS, {"template": {"metadata": {"labels": {"any": "key"}}, "spec": CLASS}}, ()),
}


@pytest.mark.parametrize(("resource", "spec", "unknown"), WRITTEN.values(), ids=WRITTEN)
def test_fields_that_this_version_does_not_know_are_told(
    resource: resources.Resource[Any], spec: dict[str, Any], unknown: tuple[str, ...]
) -> None:
    wire = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}, "spec": spec}
    found = resource.decode(json.dumps(wire).encode())
    assert found.unknown_fields == unknown
    forged = json.dumps({**wire, "unread": ["spec.forged"]}).encode()
    assert resource.decode(forged).unknown_fields == unknown
    assert found == msgspec.structs.replace(found)


def test_keys() -> None:
    pod = resources.PODS.decode(
        b'{"metadata":{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1"},"spec":{"containers":[]}}'
    )
    node = resources.NODES.decode(b'{"metadata":{"name":"n"}}')
    assert (resources.PODS.key(pod), resources.NODES.key(node)) == ("ns/p", "n")


def test_names_in_bodies() -> None:
    assert (resources.NODES.api_version, resources.NODECLAIMS.api_version) == ("v1", "karpenter.sh/v1")
    assert (str(resources.NODES), str(resources.NODECLAIMS)) == ("nodes", "nodeclaims.karpenter.sh")


EVERY = {str(value): value for value in vars(resources).values() if isinstance(value, resources.Resource)}


CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
SPECS: dict[str, object] = {
    "Pod": {"containers": []},
    "NodePool": {"template": {"spec": {"nodeClassRef": CLASS, "requirements": []}}},
    "NodeClaim": {"nodeClassRef": CLASS, "requirements": []},
    "NodeOverlay": {"requirements": []},
    "CapacityBuffer": {},
}


@pytest.mark.parametrize("resource", EVERY.values(), ids=EVERY)
def test_every_kind_decodes_a_name_and_a_version(resource: resources.Resource[object]) -> None:
    body = {"metadata": {"name": "x", "resourceVersion": "3"}}
    if resource.kind in SPECS:
        body["spec"] = SPECS[resource.kind]  # type: ignore[assignment]
    identity = resource.identity(resource.decode(json.dumps(body).encode()))
    assert (identity.name, identity.resource_version) == ("x", "3")
