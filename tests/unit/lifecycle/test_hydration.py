"""The label of the NodeClass on what was made before there was one."""

from collections.abc import Iterator
from typing import cast

import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import CloudProvider
from provisioner.lifecycle.hydration import SETTLE_SECONDS, Hydration
from provisioner.support.workers import KeyedQueue
from tests.support.cluster import World, claim, node
from tests.support.eventually import eventually
from tests.support.keys import hand_over
from tests.support.worldserver import WorldServer

LABEL = "karpenter.kwok.sh/kwoknodeclass"
ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


class Provider:
    def __init__(self, kind: str = "KWOKNodeClass") -> None:
        self.kind = kind

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        return frozenset({("karpenter.kwok.sh", self.kind)})


class Stage:
    def __init__(self, kind: str = "KWOKNodeClass") -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        provider = cast(CloudProvider, Provider(kind))
        self.hydration = Hydration(
            self.world.cluster,
            provider,
            self.server.writer,
            self.server.recorder,
            self.world.clock,
        )
        self.queue = KeyedQueue("nodeclaim.hydration", self.hydration.reconcile, self.world.clock)
        self.queue.start()

    def seen(self, claim: NodeClaim) -> None:
        """As a watch tells of it."""
        hand_over(self.queue, self.hydration.seen(claim))


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.queue.stop()


def test_a_claim_and_its_node_get_the_label_once(stage: Stage) -> None:
    stage.server.put(
        claim("a", provider_id="kwok://a", true=ALL_TRUE), node("a", labels={names.REGISTERED_LABEL: "true"})
    )
    stage.seen(stage.server.claim("a"))
    eventually(lambda: len(stage.server.done) == 2, "both are written")
    assert stage.server.claim("a").metadata.labels[LABEL] == "default"
    assert stage.server.node("a").metadata.labels[LABEL] == "default"
    stage.seen(stage.server.claim("a"))
    assert len(stage.queue) == 0


def test_a_node_that_is_not_registered_gets_it_then(stage: Stage) -> None:
    stage.server.put(claim("a", provider_id="kwok://a", labels={LABEL: "default"}), node("a"))
    stage.seen(stage.server.claim("a"))
    assert len(stage.queue) == 0


def test_a_label_that_is_there_stays_as_it_is(stage: Stage) -> None:
    stage.server.put(claim("a", labels={LABEL: "other"}))
    stage.seen(stage.server.claim("a"))
    assert len(stage.queue) == 0


def test_claims_of_another_provider_are_not_ours_to_label() -> None:
    stage = Stage("Other")
    stage.server.put(claim("a"))
    stage.seen(stage.server.claim("a"))
    assert len(stage.queue) == 0
    stage.queue.stop()


def relabelled(stage: Stage, **labels: str) -> None:
    """A registered node whose kubelet wrote these labels."""
    made = claim(
        "a",
        provider_id="kwok://a",
        true=ALL_TRUE,
        labels={names.NODEPOOL_LABEL: "general", names.CAPACITY_TYPE_LABEL: "spot", LABEL: "default", "team": "users"},
    )
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "a", "uid": made.metadata.uid}
    present = {**made.metadata.labels, names.REGISTERED_LABEL: "true", **labels}
    stage.server.put(made, node("a", labels=present, ownerReferences=[owner]))


def restored(stage: Stage) -> list[str]:
    """Look once, and once more when the labels have settled; what was told of the Node."""
    stage.seen(stage.server.claim("a"))
    stage.world.clock.advance(SETTLE_SECONDS)
    stage.hydration.reconcile("a")
    return stage.server.recorder.said("NodeLabelsRestored", "Node")


def test_labels_that_the_claim_decides_are_put_back_and_others_stay() -> None:
    stage = Stage()
    stage.queue.stop()
    relabelled(stage, **{names.NODEPOOL_LABEL: "privileged", names.CAPACITY_TYPE_LABEL: "on-demand", "team": "admins"})
    (text,) = restored(stage)
    assert text.endswith(f"{names.CAPACITY_TYPE_LABEL}, {names.NODEPOOL_LABEL}")
    labels = stage.server.node("a").metadata.labels
    assert (labels[names.NODEPOOL_LABEL], labels[names.CAPACITY_TYPE_LABEL], labels["team"]) == (
        "general",
        "spot",
        "admins",
    )
    assert len(restored(stage)) == 1, "nothing is left to do"


def test_a_kubelet_that_writes_them_again_and_again_costs_one_write_a_pause() -> None:
    stage = Stage()
    stage.queue.stop()
    told: list[str] = []
    for round_ in range(20):
        relabelled(stage, **{names.NODEPOOL_LABEL: "privileged"})
        told = restored(stage)
        assert len(told) <= 1 + round_
        stage.world.clock.advance(5.0)
    # 140 seconds: at once, and after pauses of 10, 20, 40 and 80 seconds at most
    assert 3 <= len(told) <= 5


def test_what_the_state_says_of_a_node_follows_its_claim() -> None:
    stage = Stage()
    stage.queue.stop()
    relabelled(stage, **{names.NODEPOOL_LABEL: "privileged", names.CAPACITY_TYPE_LABEL: "on-demand", "team": "admins"})
    (view,) = stage.world.cluster.snapshot().nodes
    seen = view.pool, view.labels[names.NODEPOOL_LABEL], view.labels[names.CAPACITY_TYPE_LABEL], view.labels["team"]
    assert seen == ("general", "general", "spot", "admins")


def test_a_node_that_did_not_register_for_the_claim_is_left_alone() -> None:
    stage = Stage()
    stage.queue.stop()
    made = claim("a", provider_id="kwok://a", true=(names.LAUNCHED,), labels={LABEL: "default"})
    stage.server.put(made, node("a", labels={names.NODEPOOL_LABEL: "privileged", LABEL: "default"}))
    assert restored(stage) == []
    assert stage.server.done == []
