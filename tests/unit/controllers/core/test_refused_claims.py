"""Claims that cannot be made: who is told, and when they are tried again."""

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import CloudProvider
from provisioner.controllers.core.claim_creator import ClaimCreator
from provisioner.controllers.core.claim_writer import ClaimWriter
from provisioner.controllers.core.plans import PlanWriter
from provisioner.controllers.core.provisioning import Provisioner
from provisioner.controllers.metrics import Metrics
from provisioner.kube.client import Client
from provisioner.support.workers import Pool
from tests.support.cluster import World, pod, pool
from tests.support.kube import FakeAnswer, FakeApi, refusal
from tests.support.tinyserver import Told

METRICS = Metrics()


class Provider:
    """The generated types of kwok for every pool."""

    name = "kwok"
    well_known_labels = names.WELL_KNOWN_LABELS
    reservation_label = ""

    def instance_types(self, _: object) -> Any:
        return catalogue.generated().types

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        return frozenset({("karpenter.kwok.sh", "KWOKNodeClass")})


def batch(
    answer: FakeAnswer, annotations: Mapping[str, str] = MappingProxyType({}), **spec: Any
) -> tuple[Told, list[str], World]:
    """One batch of one pod, with a pool of this spec, whose claim gets this answer: events, what asked for another batch, and the state."""
    world, again, workers = World(), list[str](), Pool(1)
    only = pool(**spec)
    only.metadata.annotations.update(annotations)
    world.cluster.pool_changed(None, only)
    world.add(pod("p"))
    client = Client(FakeApi(respond=lambda _: answer, clock=world.clock), world.clock)
    told = Told(client, world.clock)
    plans = PlanWriter(world.cluster, ClaimWriter(client, world.cluster, lambda _: None), workers)
    chance = random.Random(1)
    creator = ClaimCreator(
        client,
        world.cluster,
        METRICS,
        plans,
        effects=lambda _: None,
        created=lambda _: None,
        chance=chance,
    )
    Provisioner(
        world.cluster,
        creator,
        cast(CloudProvider, Provider()),
        told,
        METRICS,
        workers,
        world.clock,
        counts=lambda _: True,
        retry=again.append,
        chance=chance,
        plans=plans,
    ).run()
    workers.close()
    return told, again, world


REFUSALS = {
    "admission": refusal(403, "Forbidden", "claims need the label team"),
    "an admission policy": refusal(422, "Invalid", "claims need the label team"),
    "the schema": refusal(400, "BadRequest", "claims need the label team"),
}


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS.keys())
def test_who_waits_for_a_claim_that_is_refused_is_told_and_it_is_not_asked_for_again_at_once(
    answer: FakeAnswer,
) -> None:
    told, again, world = batch(answer)
    assert told.events == [
        ("NodePool", "general", "Warning", "FailedCreate"),
        ("Pod", "p", "Warning", "FailedScheduling"),
    ]
    assert told.uids == ["uid-general", "p"]  # without it `kubectl describe` shows no event
    assert all("claims need the label team" in message for message in told.messages)
    assert again == []
    assert not world.cluster.is_planned("p")
    assert world.cluster.claims() == []


def test_a_pool_without_instance_types_is_told_so_where_describe_shows_it() -> None:
    arch = {"key": names.ARCH_LABEL, "operator": "In", "values": ["riscv"]}
    told, _, _ = batch(refusal(500), requirements=(arch,))
    assert ("NodePool", "general", "Warning", "NoCompatibleInstanceTypes") in told.events
    assert "uid-general" in told.uids
    assert any("kubernetes.io/arch In [riscv]" in message for message in told.messages)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (names.PACKING, "'tight' is neither 'cost' nor 'greedy'"),
        (names.HOSTNAME_DOMAINS, "'tight' is not a whole number"),
    ],
)
def test_a_pool_is_told_of_an_annotation_that_is_ignored_and_still_gets_its_nodes(key: str, says: str) -> None:
    told, _, _ = batch(refusal(403, "Forbidden", "claims need the label team"), {key: "tight"})
    assert ("NodePool", "general", "Warning", "InvalidAnnotation") in told.events
    (text,) = [message for message in told.messages if says in message]
    assert text.startswith(f"metadata.annotations[{key}]: ")
    assert text.endswith(". The default applies until the value is corrected or removed")
    assert ("NodePool", "general", "Warning", "FailedCreate") in told.events  # one was planned


def test_a_server_that_is_overloaded_is_asked_again_at_once() -> None:
    told, again, world = batch(refusal(429, "TooManyRequests", retry_after=0))
    assert told.events == []
    assert len(again) == 1
    assert not world.cluster.is_planned("p")
