"""Claims that cannot be made: who is told, and when they are tried again."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from provisioner.apis import names
from tests.support.batches import Batches
from tests.support.cluster import pod, pool
from tests.support.kube import FakeAnswer, refusal


def batch(answer: FakeAnswer, annotations: Mapping[str, str] = MappingProxyType({}), **spec: Any) -> Batches:
    """One batch of one pod, with a pool of this spec, whose claim gets this answer."""
    batches, only = Batches(pod("p")), pool(**spec)
    batches.server.intercept = lambda _: answer
    only.metadata.annotations.update(annotations)
    batches.world.cluster.pool_changed(None, only)
    batches.run()
    return batches


REFUSALS = {
    "admission": refusal(403, "Forbidden", "claims need the label team"),
    "an admission policy": refusal(422, "Invalid", "claims need the label team"),
    "the schema": refusal(400, "BadRequest", "claims need the label team"),
}


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS.keys())
def test_who_waits_for_a_claim_that_is_refused_is_told_and_it_is_not_asked_for_again_at_once(
    answer: FakeAnswer,
) -> None:
    found = batch(answer)
    told, again, world = found.told, found.again, found.world
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
    told = batch(refusal(500), requirements=(arch,)).told
    assert ("NodePool", "general", "Warning", "NoCompatibleInstanceTypes") in told.events
    assert "uid-general" in told.uids
    assert any("kubernetes.io/arch In [riscv]" in message for message in told.messages)


def test_a_pool_whose_instance_types_the_provider_cannot_tell_says_why_to_the_pod() -> None:
    batches = Batches(pod("p"))

    def denied() -> None:
        raise OSError("ec2:DescribeInstanceTypes: denied")

    batches.provider.meanwhile = denied
    batches.run()
    why = "its instance types are not known: ec2:DescribeInstanceTypes: denied"
    assert batches.told.events == [
        ("Pod", "p", "Warning", "FailedScheduling"),
        ("NodePool", "general", "Warning", "NoCompatibleInstanceTypes"),
    ]
    assert batches.told.messages == [f'Failed to schedule pod, NodePool "general": {why}', why]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (names.PACKING, "'tight' is neither 'cost' nor 'greedy'"),
        (names.HOSTNAME_DOMAINS, "'tight' is not a whole number"),
    ],
)
def test_a_pool_is_told_of_an_annotation_that_is_ignored_and_still_gets_its_nodes(key: str, says: str) -> None:
    told = batch(refusal(403, "Forbidden", "claims need the label team"), {key: "tight"}).told
    assert ("NodePool", "general", "Warning", "InvalidAnnotation") in told.events
    (text,) = [message for message in told.messages if says in message]
    assert text.startswith(f"metadata.annotations[{key}]: ")
    assert text.endswith(". The default applies until the value is corrected or removed")
    assert ("NodePool", "general", "Warning", "FailedCreate") in told.events  # one was planned


def test_a_server_that_is_overloaded_is_asked_again_at_once() -> None:
    found = batch(refusal(429, "TooManyRequests", retry_after=0))
    assert found.told.events == []
    assert len(found.again) == 1
    assert not found.world.cluster.is_planned("p")
