"""The label of the NodeClass on what was made before there was one."""

from collections.abc import Iterator
from typing import cast

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.types import CloudProvider
from provisioner.controllers.core.hydration import Hydration
from tests.support.cluster import World, claim, node
from tests.support.eventually import eventually
from tests.support.tinyserver import TinyServer

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
        self.server = TinyServer(self.world)
        provider = cast(CloudProvider, Provider(kind))
        self.hydration = Hydration(
            self.world.cluster, self.server.client, provider, self.server.writer, self.world.clock
        )
        self.hydration.queue.start()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.hydration.queue.stop()


def test_a_claim_and_its_node_get_the_label_once(stage: Stage) -> None:
    stage.server.put(
        claim("a", provider_id="kwok://a", true=ALL_TRUE), node("a", labels={names.REGISTERED_LABEL: "true"})
    )
    stage.hydration.seen(stage.server.claim("a"))
    eventually(lambda: len(stage.server.done) == 2, "both are written")
    assert stage.server.claim("a").metadata.labels[LABEL] == "default"
    assert stage.server.node("a").metadata.labels[LABEL] == "default"
    stage.hydration.seen(stage.server.claim("a"))
    assert len(stage.hydration.queue) == 0


def test_a_node_that_is_not_registered_gets_it_then(stage: Stage) -> None:
    stage.server.put(claim("a", provider_id="kwok://a", labels={LABEL: "default"}), node("a"))
    stage.hydration.seen(stage.server.claim("a"))
    assert len(stage.hydration.queue) == 0


def test_a_label_that_is_there_stays_as_it_is(stage: Stage) -> None:
    stage.server.put(claim("a", labels={LABEL: "other"}))
    stage.hydration.seen(stage.server.claim("a"))
    assert len(stage.hydration.queue) == 0


def test_claims_of_another_provider_are_not_ours_to_label() -> None:
    stage = Stage("Other")
    stage.server.put(claim("a"))
    stage.hydration.seen(stage.server.claim("a"))
    assert len(stage.hydration.queue) == 0
    stage.hydration.queue.stop()
