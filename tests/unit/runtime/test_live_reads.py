"""What is read once more before something ends: what counts as a difference, for how long it postpones the end, and who asks."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.kube.client import Client
from provisioner.runtime import live_reads
from provisioner.runtime.live_reads import (
    CHOSEN_SECONDS,
    DECIDED_SECONDS,
    INTERRUPTED_SECONDS,
    READ_SECONDS,
    LiveReads,
)
from provisioner.support.metrics import REGISTRY
from tests.support.cluster import World, claim, node, pod
from tests.support.kube import FakeAnswer, FakeApi, Sent, ok, refusal
from tests.support.rooms import controllers
from tests.support.worldserver import Told


class Live:
    """A node with a pod that the caches know, and an API server that has the same until the test says otherwise."""

    def __init__(self) -> None:
        self.world = World()
        self.claim = claim("a", provider_id="kwok://a", version=10, true=(names.LAUNCHED, names.REGISTERED))
        self.node = node("a", resourceVersion="11")
        self.pod = pod("p", node="a", resource_version="12")
        self.world.cluster.claim_changed(None, self.claim)
        self.world.cluster.node_changed(None, self.node)
        self.world.add(self.pod)
        self.there: dict[str, dict[str, dict[str, str]]] = {
            "nodeclaims": {"a": _identity("a", self.claim.metadata.uid, 10)},
            "nodes": {"a": _identity("a", self.node.metadata.uid, 11)},
            "pods": {"p": _identity("p", "p", 12) | {"namespace": "default"}},
        }
        self.version, self.status = 100, 200
        self.api = FakeApi(respond=self._respond, clock=self.world.clock)
        client = Client(self.api, self.world.clock)
        self.told = Told(client, self.world.clock)
        self.reads = LiveReads(self.world.cluster, client, self.told, self.world.clock)

    def _respond(self, sent: Sent) -> FakeAnswer:
        if self.status != 200:
            return refusal(self.status)
        kind, _, name = sent.path.removeprefix("/apis/karpenter.sh/v1/").removeprefix("/api/v1/").partition("/")
        if not name:
            assert sent.query == {"fieldSelector": "spec.nodeName=a,status.phase!=Succeeded,status.phase!=Failed"}
            items = [{"metadata": one} for one in self.there[kind].values()]
            return ok({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        found = self.there[kind].get(name)
        return ok({"metadata": found}) if found is not None else refusal(404, "NotFound")

    def ask(self, **more: float) -> str:
        return self.reads.postponed(self.claim, self.world.cluster.node_of(self.claim), **more)


def _identity(name: str, uid: str, version: int) -> dict[str, str]:
    return {"name": name, "uid": uid, "resourceVersion": str(version)}


def change(kind: str, name: str, **fields: str) -> Callable[[Live], object]:
    return lambda live: live.there[kind][name].update(fields)


def later(**fields: Any) -> Callable[[Live], object]:
    return lambda live: live.world.add(msgspec.structs.replace(live.pod, **fields))


def both(*some: Callable[[Live], object]) -> Callable[[Live], object]:
    return lambda live: [one(live) for one in some]


CASES: dict[str, tuple[Callable[[Live], object], str]] = {
    "nothing has changed": (lambda _: None, ""),
    "the NodeClaim has changed": (change("nodeclaims", "a", resourceVersion="13"), "NodeClaim a"),
    "another NodeClaim has the name": (change("nodeclaims", "a", uid="other"), "NodeClaim a"),
    "the NodeClaim is gone": (lambda live: live.there["nodeclaims"].clear(), "NodeClaim a"),
    "the Node has changed": (change("nodes", "a", resourceVersion="13"), "Node a"),
    "another Node has the name": (change("nodes", "a", uid="other"), "Node a"),
    "the Node is gone": (lambda live: live.there["nodes"].clear(), "Node a"),
    "a pod has changed": (change("pods", "p", resourceVersion="13"), "Pod default/p"),
    "a pod was made anew": (change("pods", "p", uid="other"), "Pod default/p"),
    "a pod came": (
        lambda live: live.there["pods"].update(q=_identity("q", "q", 13) | {"namespace": "default"}),
        "Pod default/q",
    ),
    "a pod is gone, or has finished": (lambda live: live.there["pods"].clear(), "Pod default/p"),
    "the caches know a pod as it is by now": (
        both(change("pods", "p", resourceVersion="13"), later(resource_version="14")),
        "",
    ),
    "a pod was bound after the list, and the caches know it": (
        lambda live: live.world.add(pod("late", node="a", resource_version="101")),
        "",
    ),
}


@pytest.mark.parametrize(("changed", "says"), CASES.values(), ids=CASES)
def test_an_end_is_postponed_while_the_caches_do_not_show_what_is_there(
    changed: Callable[[Live], object], says: str
) -> None:
    live = Live()
    changed(live)
    assert live.ask() == (f"the cache does not have the current version of {says} yet" if says else "")
    assert live.reads.waiting() == ({"a": live.ask()} if says else {})
    assert [sent.method for sent in live.api.sent] == ["GET"] * 3, "three reads, however often it asks"


def test_what_arrives_is_compared_with_what_was_read_and_costs_no_read() -> None:
    live = Live()
    live.there["pods"]["p"]["resourceVersion"] = "13"
    assert live.ask()
    live.there["pods"]["p"]["resourceVersion"] = "14"  # it changes all the time
    live.world.add(msgspec.structs.replace(live.pod, resource_version="13"))
    assert live.ask() == ""
    assert len(live.api.sent) == 3
    assert live.ask(), "the next end asks for itself"
    live.world.clock.advance(READ_SECONDS)
    live.ask()
    assert len(live.api.sent) == 9


@pytest.mark.parametrize("patience", [INTERRUPTED_SECONDS, DECIDED_SECONDS, CHOSEN_SECONDS])
@pytest.mark.parametrize("status", [200, 500])
def test_no_end_is_postponed_for_ever(patience: float, status: int) -> None:
    live = Live()
    live.there["pods"]["p"]["resourceVersion"], live.status = "13", status
    waited = 0.0
    while live.ask(patience=patience):
        live.world.clock.advance(0.5)
        waited = live.world.clock.monotonic()
        assert waited < 2 * patience
    assert waited >= patience


def test_what_cannot_be_read_postpones_and_is_told_after_a_while() -> None:
    live = Live()
    live.status = 500
    assert live.ask().startswith("its objects could not be read from the API server: ")
    assert live.told.messages == []
    live.world.clock.advance(live_reads.TELL_SECONDS)
    assert live.ask()
    assert [(kind, reason) for kind, _, _, reason in live.told.events] == [("NodeClaim", "DisruptionBlocked")]
    live.status = 200
    live.world.clock.advance(live_reads.FAILED_SECONDS)
    assert live.ask() == ""
    assert live.reads.waiting() == {}


def test_what_is_not_asked_for_any_more_does_not_wait() -> None:
    live = Live()
    live.there["nodes"].clear()
    before = REGISTRY.get_sample_value("dovetail_ends_postponed_total", {"cause": "differs"}) or 0.0
    assert live.ask()
    assert REGISTRY.get_sample_value("dovetail_nodes_end_postponed") == 1
    assert REGISTRY.get_sample_value("dovetail_ends_postponed_total", {"cause": "differs"}) == before + 1
    live.world.clock.advance(live_reads.FORGET_SECONDS + 1)
    assert live.reads.waiting() == {}


def test_a_claim_without_a_node_and_a_node_without_a_claim() -> None:
    live = Live()
    alone = claim("b", version=20)
    live.world.cluster.claim_changed(None, alone)
    live.there["nodeclaims"]["b"] = _identity("b", "uid-b", 20)
    assert live.reads.postponed(alone) == ""
    assert [sent.path for sent in live.api.sent] == ["/apis/karpenter.sh/v1/nodeclaims/b"]
    live.there["pods"].clear()
    assert "Pod default/p" in live.reads.postponed(None, live.node)


# ---------------------------------------------------------------- who asks

_PRODUCT = Path("provisioner")
_ENDINGS = {
    ("_writer", "delete"),
    ("_writer", "delete_unneeded"),
    ("_writer", "end"),
    ("_writer", "delete_node"),
    ("claims", "delete"),
    ("claims", "delete_unneeded"),
    ("_client", "delete"),
    ("_client", "evict"),
    ("_taints", "close"),
    ("_evictions", "add"),
    ("_evictions", "force"),
}
#: Where something ends without `postponed` in the same function, and why.
STATED = {
    ("nodeclaims/writer.py", "delete"): "carries out what its caller has asked about",
    ("nodeclaims/writer.py", "end"): "carries out what its caller has asked about, at a version",
    ("nodeclaims/writer.py", "delete_node"): "carries out what its caller has decided",
    ("disruption/commands/queue.py", "_delete"): "validated and sealed: asked by _validated",
    ("disruption/commands/queue.py", "_mark"): "asked by _go_on",
    ("disruption/commands/inspector.py", "_sighted"): "closed before, and opened by somebody since",
    ("termination/eviction_queue.py", "_evict"): "asked by who adds, at most GIVEN_SECONDS before",
    ("termination/eviction_queue.py", "_delete"): "at the deadline of the Node nothing is waited for",
    ("lifecycle/garbage_collection.py", "_end"): "its instance was ended by Terminator, which lists at the API server",
    ("lifecycle/controller.py", "_finalize"): "the NodeClaim is being deleted: nothing takes that back",
    ("lifecycle/controller.py", "_finalize_rival"): "the NodeClaim is being deleted: nothing takes that back",
    ("lifecycle/controller.py", "_gated"): "nothing was launched; deleted at the version that was decided from",
    ("disruption/reboots/controller.py", "_take"): "asked by _go_on",
    ("disruption/reboots/controller.py", "_drain"): "asked by _go_on",
    ("termination/terminator.py", "evict"): "its commands have asked, and its pods are listed at the API server",
    ("lifecycle/controller.py", "_launch"): "nothing was launched; deleted at the version that was decided from",
    ("provisioning/scheduler_liveness.py", "_recreate"): "a pod without a Node, at the version that was decided from",
    ("shares/controller.py", "_evict"): "asked by _read",
    ("termination/terminator.py", "drained"): "the Node is being deleted, and its pods are listed at the API server",
    ("termination/terminator.py", "_look"): "the instance is being ended, and its pods are listed at the API server",
    ("termination/terminator.py", "_evict"): "decided from a list of the API server",
    ("requests/controller.py", "reconcile"): "a ProvisioningRequest that has been over for a week",
    ("operator/effects.py", "_drop"): "nothing was launched; deleted at the version that was decided from",
}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))


def _calls(function: ast.AST) -> Iterator[tuple[str, str]]:
    for one in ast.walk(function):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
            owner = one.func.value
            yield (owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")), one.func.attr


def test_whoever_ends_something_asks_first_or_says_why_not() -> None:
    silent: set[tuple[str, str]] = set()
    for path in controllers():
        for function in _functions(ast.parse(path.read_text())):
            calls = set(_calls(function))
            if calls & _ENDINGS and not any(name in ("_postponed", "_why_postponed") for _, name in calls):
                silent.add((str(path.relative_to(_PRODUCT)), function.name))
    assert silent == set(STATED)
