"""Letting a Node in: one JSON patch, and why a Node is not initialised yet."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import OwnerReference
from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.lifecycle.registration import missing, registration_patch
from provisioner.runtime.node_patch import appended, merged, patch_node
from provisioner.simulator import json_patch
from provisioner.state.lacking import Lacking
from provisioner.termination.disrupted_taint import disruption_patch
from tests.support.clock import FakeClock
from tests.support.cluster import claim, node
from tests.support.kube import FakeApi, ok, refusal

UNREGISTERED = {"key": names.UNREGISTERED_TAINT.key, "effect": "NoExecute"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
STARTUP = {"key": "example.com/cni", "value": "x", "effect": "NoSchedule"}
DEDICATED = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


def a_claim(*, spec: dict[str, Any] | None = None, **metadata: Any) -> NodeClaim:
    body = msgspec.to_builtins(claim("c", provider_id="kwok://n", true=(names.LAUNCHED,), **metadata))
    body["spec"] |= spec or {}
    return msgspec.convert(body, NodeClaim, strict=False)


def wire(joined: Node) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(joined))
    return document


def after(of: NodeClaim, joined: Node) -> dict[str, Any]:
    """The Node as the API server has it once the patch was applied; its guards hold."""
    document = wire(joined)
    for key in ("annotations", "finalizers", "ownerReferences", "labels"):
        if not document["metadata"].get(key):
            document["metadata"].pop(key, None)
    patched: dict[str, Any] = json_patch.apply(document, registration_patch(of, joined).operations)
    return patched


def test_a_ready_node_is_registered_and_initialised_by_one_write() -> None:
    joined = node("n", taints=(UNREGISTERED,), labels={"kubernetes.io/hostname": "n"})
    patch = registration_patch(a_claim(labels={names.NODEPOOL_LABEL: "general", "team": "a"}), joined)
    assert patch.initialized
    metadata = after(a_claim(labels={names.NODEPOOL_LABEL: "general", "team": "a"}), joined)["metadata"]
    assert metadata["labels"] == {
        "kubernetes.io/hostname": "n",
        names.NODEPOOL_LABEL: "general",
        "team": "a",
        names.REGISTERED_LABEL: "true",
        names.INITIALIZED_LABEL: "true",
    }
    assert metadata["finalizers"] == [names.TERMINATION_FINALIZER]
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "name": "c",
            "uid": "uid-c",
            "blockOwnerDeletion": True,
        }
    ]


def test_the_unregistered_taint_falls_and_the_claims_taints_come() -> None:
    spec = {"taints": [DEDICATED], "startupTaints": [STARTUP]}
    patched = after(a_claim(spec=spec), node("n", taints=(NOT_READY, UNREGISTERED)))
    assert patched["spec"]["taints"] == [NOT_READY, DEDICATED, STARTUP]


def test_a_taint_that_the_node_has_already_is_not_added_again() -> None:
    patched = after(a_claim(spec={"taints": [DEDICATED]}), node("n", taints=(UNREGISTERED, DEDICATED)))
    assert patched["spec"]["taints"] == [DEDICATED]


def test_a_taint_of_the_claim_counts_with_its_own_value() -> None:
    """A kubelet may write another, and would join a dedicated pool as a Node of somebody else's."""
    spec = {"taints": [DEDICATED], "startupTaints": [STARTUP]}
    foreign = (DEDICATED | {"value": "web"}, STARTUP | {"value": "y"}, DEDICATED | {"effect": "NoExecute"})
    patch = registration_patch(a_claim(spec=spec), node("n", taints=(UNREGISTERED, *foreign)))
    assert not patch.initialized, "the startup taint is there"
    patched = after(a_claim(spec=spec), node("n", taints=(UNREGISTERED, *foreign)))
    assert patched["spec"]["taints"] == [DEDICATED, STARTUP, DEDICATED | {"effect": "NoExecute"}]


def test_a_value_that_was_changed_after_the_registration_stays() -> None:
    changed = DEDICATED | {"value": "web"}
    patched = after(a_claim(spec={"taints": [DEDICATED]}), registered_for("uid-c", changed))
    assert patched["spec"]["taints"] == [changed]


def test_do_not_sync_taints_leaves_all_taints_but_ours_alone() -> None:
    labels = {names.NODEPOOL_LABEL: "general", names.DO_NOT_SYNC_TAINTS_LABEL: "true"}
    patched = after(a_claim(spec={"taints": [DEDICATED]}, labels=labels), node("n", taints=(UNREGISTERED, NOT_READY)))
    assert patched["spec"]["taints"] == [NOT_READY]


def registered_for(uid: str, *taints: dict[str, str]) -> Node:
    """A Node with our label, owned by the claim with this UID."""
    joined = node("n", labels={names.REGISTERED_LABEL: "true"}, taints=taints)
    owner = OwnerReference(api_version="karpenter.sh/v1", kind="NodeClaim", name="c", uid=uid)
    return msgspec.structs.replace(joined, metadata=msgspec.structs.replace(joined.metadata, owner_references=(owner,)))


def test_a_startup_taint_that_has_fallen_does_not_come_back() -> None:
    assert not after(a_claim(spec={"startupTaints": [STARTUP]}), registered_for("uid-c"))["spec"].get("taints")


@pytest.mark.parametrize("owner", ["", "uid-of-another"])
def test_a_node_that_calls_itself_registered_gets_the_taints_of_its_claim(owner: str) -> None:
    """A kubelet may set that label, and would join a dedicated pool open to everybody."""
    joined = registered_for(owner, UNREGISTERED) if owner else node("n", labels={names.REGISTERED_LABEL: "true"})
    spec = {"taints": [DEDICATED], "startupTaints": [STARTUP]}
    assert after(a_claim(spec=spec), joined)["spec"]["taints"] == [DEDICATED, STARTUP]


def test_a_startup_taint_keeps_the_node_uninitialised() -> None:
    spec = {"startupTaints": [STARTUP]}
    patch = registration_patch(a_claim(spec=spec), node("n", taints=(UNREGISTERED,)))
    assert not patch.initialized
    assert (
        names.INITIALIZED_LABEL
        not in after(a_claim(spec=spec), node("n", taints=(UNREGISTERED,)))["metadata"]["labels"]
    )


def test_our_own_annotations_stay_on_the_claim_and_others_go_to_the_node() -> None:
    annotations = {names.PLAN_ANNOTATION: "{}", names.PLANNED_OFFERING_ANNOTATION: "a/b/c", "team": "a"}
    patched = after(a_claim(annotations=annotations), node("n", taints=(UNREGISTERED,)))
    assert patched["metadata"]["annotations"] == {"team": "a"}


def test_a_registered_node_needs_no_operation_but_its_guard() -> None:
    joined = node("n", taints=(UNREGISTERED, DEDICATED))
    document = after(a_claim(), joined)
    again = registration_patch(a_claim(), msgspec.convert(document, Node, strict=False))
    assert [operation["op"] for operation in again.operations] == ["test"]
    assert again.initialized


def test_the_patch_fails_where_the_taints_changed_meanwhile() -> None:
    joined = node("n", taints=(UNREGISTERED,))
    document = wire(node("n", taints=(UNREGISTERED, NOT_READY)))
    with pytest.raises(json_patch.PatchError, match="test failed"):
        json_patch.apply(document, registration_patch(a_claim(), joined).operations)


MISSING: dict[str, tuple[Node, dict[str, Any], tuple[str, str] | None]] = {
    "a ready node lacks nothing": (node("n"), {}, None),
    "a node that is not ready": (node("n", ready=False), {}, ("NodeNotReady", "NotReady")),
    "a startup taint of the claim": (
        node("n", taints=(STARTUP,)),
        {"startupTaints": [STARTUP]},
        ("StartupTaintsExist", "example.com/cni=x:NoSchedule"),
    ),
    "a taint like a startup taint with another value": (
        node("n", taints=(STARTUP | {"value": "y"},)),
        {"startupTaints": [STARTUP]},
        None,
    ),
    "a taint that falls by itself": (
        node("n", taints=(NOT_READY,)),
        {},
        ("KnownEphemeralTaintsExist", "node.kubernetes.io/not-ready:NoSchedule"),
    ),
    "our own taint": (
        node("n", taints=(UNREGISTERED,)),
        {},
        ("KnownEphemeralTaintsExist", "karpenter.sh/unregistered"),
    ),
    "a taint of the pool": (node("n", taints=(DEDICATED,)), {}, None),
    "a requested resource that no plugin told yet": (
        node("n"),
        {"resources": {"requests": {"example.com/gpu": "1"}}},
        ("ResourceNotRegistered", "example.com/gpu"),
    ),
    "a resource of which none is requested": (node("n"), {"resources": {"requests": {"example.com/gpu": "0"}}}, None),
    "readiness is said before taints": (
        node("n", ready=False, taints=(NOT_READY,)),
        {},
        ("NodeNotReady", "NotReady"),
    ),
}


def test_a_node_whose_planned_pods_need_a_driver_is_let_in_but_not_initialised() -> None:
    patch = registration_patch(a_claim(), node("n", taints=(UNREGISTERED,)), Lacking(drivers=("csi.example.com",)))
    assert not patch.initialized
    written = [one["value"] for one in patch.operations if one["path"] == "/metadata/labels"]
    assert written == [{names.NODEPOOL_LABEL: "general", names.REGISTERED_LABEL: "true"}]
    found = missing(a_claim(), node("n"), Lacking(drivers=("csi.example.com",)))
    assert found is not None
    assert (found.reason, '"csi.example.com"' in found.text) == ("CSIDriverNotRegistered", True)


@pytest.mark.parametrize(("joined", "spec", "problem"), MISSING.values(), ids=MISSING.keys())
def test_what_a_node_lacks(joined: Node, spec: dict[str, Any], problem: tuple[str, str] | None) -> None:
    found = missing(a_claim(spec=spec), joined)
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert found.reason == problem[0]
        assert problem[1] in found.text


def test_keys_are_escaped_in_patch_paths() -> None:
    assert merged("/metadata/labels", {"x": "1"}, {"a.b/c~d": "2"}) == [
        {"op": "add", "path": "/metadata/labels/a.b~1c~0d", "value": "2"}
    ]


def test_an_absent_map_is_made_whole() -> None:
    assert merged("/metadata/labels", {}, {"b/x": "2", "a": "1"}) == [
        {"op": "add", "path": "/metadata/labels", "value": {"a": "1", "b/x": "2"}}
    ]


def test_keys_that_have_their_value_cost_nothing() -> None:
    assert merged("/m", {"a": "1"}, {"a": "1"}) == []
    assert merged("/m", {}, {}) == []


def test_an_item_is_appended_once() -> None:
    assert appended("/l", [], "a", "a") == [{"op": "add", "path": "/l", "value": ["a"]}]
    assert appended("/l", ["b"], "a", "a") == [{"op": "add", "path": "/l/-", "value": "a"}]
    assert appended("/l", ["a", "b"], "a", "a") == []


BARE = {"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {}, "status": {}}
TAINTED = {"metadata": {"name": "n", "resourceVersion": "8"}, "spec": {"taints": [DEDICATED]}, "status": {}}


def test_a_list_made_whole_is_guarded_by_the_version_it_was_decided_from() -> None:
    api = FakeApi(ok(BARE))
    patch_node(Client(api, FakeClock()), msgspec.convert(BARE, Node), disruption_patch)
    (sent,) = api.sent
    assert sent.body[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}


def test_a_node_that_changed_meanwhile_is_read_and_decided_again() -> None:
    api = FakeApi(refusal(422, "Invalid"), ok(TAINTED), ok(TAINTED))
    patch_node(Client(api, FakeClock()), msgspec.convert(BARE, Node), disruption_patch)
    assert [sent.method for sent in api.sent] == ["PATCH", "GET", "PATCH"]
    assert api.sent[2].body == [
        {"op": "test", "path": "/spec/taints", "value": [DEDICATED]},
        {
            "op": "add",
            "path": "/spec/taints",
            "value": [DEDICATED, {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}],
        },
    ]


def test_a_node_of_the_same_name_is_left_alone() -> None:
    """Names come back with IP addresses: one that was deleted and the one that came after it may look the same."""
    known, other = ({**BARE, "metadata": {"name": "n", "resourceVersion": "7", "uid": uid}} for uid in ("old", "new"))
    api = FakeApi(refusal(422, "Invalid"), ok(other))
    with pytest.raises(NotFound, match="Node n was deleted, and a new Node has its name"):
        patch_node(Client(api, FakeClock()), msgspec.convert(known, Node), disruption_patch)
    assert [sent.method for sent in api.sent] == ["PATCH", "GET"]
    assert {"op": "test", "path": "/metadata/uid", "value": "old"} in api.sent[0].body


def test_a_patch_that_would_change_nothing_is_not_sent() -> None:
    api = FakeApi()
    patch_node(Client(api, FakeClock()), msgspec.convert(TAINTED, Node), lambda _: [{"op": "test", "path": "/x"}])
    assert api.sent == []
