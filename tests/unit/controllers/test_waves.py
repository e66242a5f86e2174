"""One wave of registrations: what is sent, and for whom nothing is sent."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.registration import NOMINATING_ROUNDS, Registrar
from provisioner.controllers.store import ClaimWriter
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.support.workers import Pool, pool
from tests.support.cluster import World, claim, node, pod
from tests.support.kube import FakeAnswer, FakeApi, Sent, ok, refusal

UNREGISTERED = {"key": names.UNREGISTERED_TAINT.key, "effect": "NoExecute"}


class Stage:
    """A registrar over a world and an API server that takes everything; called in this thread, wave by wave."""

    def __init__(self, workers: Pool, *, nominate: bool = True) -> None:
        self.world = World()
        self.api = FakeApi(respond=self._answer)
        self.again: list[str] = []
        self.healthy: list[tuple[str, bool]] = []
        self.broken: set[str] = set()
        self.ending: tuple[str, ...] = ()  # claims that are deleted while pods are nominated
        self.watched = True  # whether nominations come back by the watch
        self._objects: dict[tuple[str, str], Any] = {}
        client = Client(self.api, self.world.clock)
        self.registrar = Registrar(
            self.world.cluster,
            client,
            ClaimWriter(client, self.world.cluster, lambda _: None),
            Recorder(client, "test", self.world.clock),
            Metrics(),
            workers,
            self.world.clock,
            nominates=lambda: nominate,
            again=self.again.append,
            health=lambda name, good: self.healthy.append((name, good)),
        )

    def joined(self, name: str, *, ready: bool = True) -> None:
        """A launched machine whose Node, still with our taint, is planned for a pod named after it."""
        one = pod(f"pod-of-{name}")
        self.world.add(one)
        self._put(claim(name, provider_id=f"kwok://{name}", true=(names.LAUNCHED,), pods=(one,), version=1))
        self._put(node(name, taints=(UNREGISTERED,), ready=ready))

    def wave(self, *claims: str) -> list[str]:
        """What a wave of these claims sends, as "METHOD path"."""
        before = len(self.api.sent)
        self.registrar._do(list(claims))
        return [f"{sent.method} {sent.path}" for sent in self.api.sent[before:]]

    def delete(self, name: str) -> None:
        """Somebody begins the end of a claim."""
        known = self._objects[name, "NodeClaim"]
        gone = msgspec.structs.replace(known.metadata, deletion_timestamp=self.world.clock.now())
        self.world.cluster.claim_changed(known, msgspec.structs.replace(known, metadata=gone))

    def _nominated(self, name: str, node_name: str) -> None:
        known = self.world.cluster.pod(name)
        assert known is not None
        self.world.cluster.pod_changed(known, msgspec.structs.replace(known, nominated_node_name=node_name))

    def _put(self, thing: NodeClaim | Node) -> None:
        self._objects[thing.metadata.name, type(thing).__name__] = thing
        if isinstance(thing, Node):
            self.world.cluster.node_changed(None, thing)
        else:
            self.world.cluster.claim_changed(None, thing)

    def _answer(self, sent: Sent) -> FakeAnswer:
        name = sent.path.split("/")[5 if sent.path.startswith("/apis") else 4]
        if name in self.broken:
            return refusal(403, "Forbidden")
        if "/pods/" in sent.path:
            for claim_name in self.ending:
                self.delete(claim_name)
            if self.watched:
                self._nominated(sent.path.split("/")[-2], sent.body["status"]["nominatedNodeName"])
            return ok({"metadata": {"name": "x", "namespace": "default", "uid": "x"}, "spec": {}, "status": {}})
        if "/nodes/" in sent.path:
            return ok(msgspec.to_builtins(self._objects[name, "Node"]))
        known = self._objects[name, "NodeClaim"]
        wire = msgspec.json.decode(msgspec.json.encode(known))
        wire["status"] |= sent.body["status"]
        wire["metadata"]["resourceVersion"] = "2"
        return ok(wire)


@pytest.fixture
def workers() -> Iterator[Pool]:
    with pool(1) as threads:
        yield threads


def test_all_pods_are_nominated_before_the_first_taint_falls(workers: Pool) -> None:
    stage = Stage(workers)
    stage.joined("a")
    stage.joined("b")
    assert stage.wave("a", "b") == [
        "PATCH /api/v1/namespaces/default/pods/pod-of-a/status",
        "PATCH /api/v1/namespaces/default/pods/pod-of-b/status",
        "PATCH /api/v1/nodes/a",
        "PATCH /apis/karpenter.sh/v1/nodeclaims/a/status",
        "PATCH /api/v1/nodes/b",
        "PATCH /apis/karpenter.sh/v1/nodeclaims/b/status",
    ]
    assert stage.healthy == [("general", True), ("general", True)]


def test_a_nomination_that_a_failed_cycle_cleared_is_given_again_before_the_taint_falls(workers: Pool) -> None:
    stage = Stage(workers)
    stage.joined("a")
    stage.watched = False
    sent = stage.wave("a")
    assert [line for line in sent if "/pods/" in line] == sent[:NOMINATING_ROUNDS]


def test_a_pod_is_nominated_to_the_node_of_its_claim(workers: Pool) -> None:
    stage = Stage(workers)
    stage.joined("a")
    stage.wave("a")
    assert stage.api.sent[0].body == {"metadata": {"uid": "pod-of-a"}, "status": {"nominatedNodeName": "a"}}


def test_nobody_is_nominated_where_that_is_turned_off(workers: Pool) -> None:
    stage = Stage(workers, nominate=False)
    stage.joined("a")
    assert [line for line in stage.wave("a") if "pods" in line] == []


def test_a_claim_that_is_offered_twice_is_let_in_once(workers: Pool) -> None:
    stage = Stage(workers)
    stage.joined("a")
    assert stage.wave("a") != []
    assert stage.wave("a") == []


def test_a_claim_that_is_deleted_while_its_pods_are_nominated_is_not_let_in(workers: Pool) -> None:
    stage = Stage(workers)
    stage.joined("a")
    stage.joined("b")
    stage.ending = ("a",)
    assert [line for line in stage.wave("a", "b") if "pods" not in line] == [
        "PATCH /api/v1/nodes/b",
        "PATCH /apis/karpenter.sh/v1/nodeclaims/b/status",
    ]


def test_a_claim_or_node_that_is_gone_costs_nothing(workers: Pool) -> None:
    stage = Stage(workers)
    stage.world.cluster.claim_changed(None, claim("alone", provider_id="kwok://alone", true=(names.LAUNCHED,)))
    assert stage.wave("alone", "unknown") == []


def test_one_that_fails_is_looked_at_again_and_holds_up_no_other(workers: Pool) -> None:
    stage = Stage(workers, nominate=False)
    stage.joined("a")
    stage.joined("b")
    stage.broken.add("a")
    assert "PATCH /apis/karpenter.sh/v1/nodeclaims/b/status" in stage.wave("a", "b")
    assert sorted(stage.again) == ["a", "b"]
    assert stage.healthy == [("general", True)]


@pytest.mark.parametrize(("ready", "kinds"), [(True, {"Registered", "Initialized"}), (False, {"Registered"})])
def test_the_status_says_how_far_the_node_has_come(workers: Pool, ready: bool, kinds: set[str]) -> None:
    stage = Stage(workers, nominate=False)
    stage.joined("a", ready=ready)
    stage.wave("a")
    status = stage.api.sent[-1].body["status"]
    told = {one["type"] for one in status["conditions"] if one["status"] == "True"}
    assert told & {"Registered", "Initialized"} == kinds
    assert status["nodeName"] == "a"
