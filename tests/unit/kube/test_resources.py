import json

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
