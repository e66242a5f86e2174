"""Nodes that have less than their claims were launched with."""

import random
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition
from provisioner.lifecycle.consistency import PERIOD_SECONDS, Consistency, shortfalls
from provisioner.support.workers import KeyedQueue
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node
from tests.support.eventually import eventually
from tests.support.keys import hand_over
from tests.support.worldserver import WorldServer

ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


def launched(**requests: str) -> NodeClaim:
    """A ready claim of 4 CPU and 8 GiB, made for these requests."""
    body: dict[str, Any] = msgspec.to_builtins(claim("a", provider_id="kwok://a", true=ALL_TRUE))
    body["spec"]["resources"] = {"requests": requests or {"cpu": "1"}}
    return msgspec.convert(body, NodeClaim, strict=False)


def having(**capacity: str) -> Node:
    one = node("a")
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, capacity=capacity))


FOUND: dict[str, tuple[dict[str, str], dict[str, str], tuple[str, ...]]] = {
    "everything is there": ({"cpu": "1"}, {"cpu": "4"}, ()),
    "ninety percent is enough": ({"cpu": "1"}, {"cpu": "3600m"}, ()),
    "less is not": ({"cpu": "1"}, {"cpu": "3599m"}, ("expected 4 of cpu, but the Node has 3599m (89%)",)),
    "a resource is missing": ({"cpu": "1"}, {}, ("expected 4 of cpu, but the Node has 0 (0%)",)),
    "what nobody asked for does not count": ({"cpu": "0"}, {}, ()),
    "nor what the instance was not said to have": ({"example.com/gpu": "1"}, {}, ()),
    "amounts that cannot be read are not judged": ({"cpu": "1"}, {"cpu": "four"}, ()),
}


@pytest.mark.parametrize(("requests", "capacity", "want"), FOUND.values(), ids=FOUND)
def test_shortfalls(requests: dict[str, str], capacity: dict[str, str], want: tuple[str, ...]) -> None:
    assert shortfalls(launched(**requests), having(**capacity)) == want


def test_a_claim_is_looked_at_every_ten_minutes_and_says_what_was_found() -> None:
    world = World()
    server = WorldServer(world)
    server.put(launched(), having(cpu="2"))
    checks = Consistency(world.cluster, server.writer, server.recorder, world.clock, chance=random.Random(1))
    queue = KeyedQueue("nodeclaim.consistency", checks.reconcile, world.clock)
    queue.start()
    try:
        for _ in range(3):  # every event of it
            hand_over(queue, checks.seen(server.claim("a")))
        assert server.done == []
        world.clock.advance(PERIOD_SECONDS)
        queue.add("other")  # wakes the queue, whose clock stands still
        eventually(lambda: server.recorder.events, "the check is written, then told")
        told = condition(server.claim("a").status.conditions, names.CONSISTENT_STATE_FOUND)
        assert told is not None
        assert (told.status, told.reason) == ("False", names.CONSISTENCY_CHECK_FAILED)
        assert "(50%)" in told.message
        assert server.recorder.events == [("NodeClaim", "a", "Warning", "FailedConsistencyCheck")]
        server.put(having(cpu="4"))
        world.clock.advance(PERIOD_SECONDS)
        queue.add("other")
        eventually(
            lambda: (
                (found := condition(server.claim("a").status.conditions, names.CONSISTENT_STATE_FOUND))
                and found.status == "True"
            ),
            "it is consistent again",
        )
    finally:
        queue.stop()


def test_claims_that_are_there_at_the_start_are_spread_over_the_period() -> None:
    world = World()
    server = WorldServer(world)
    checks = Consistency(world.cluster, server.writer, server.recorder, world.clock, chance=random.Random(1))
    queue = KeyedQueue("nodeclaim.consistency", checks.reconcile, world.clock)
    for number in range(100):
        hand_over(queue, checks.seen(claim(f"c{number}", provider_id="x", true=ALL_TRUE, since=NOON), at_start=True))
    assert len(queue) == 100
    assert queue.depth() < 10
    hand_over(queue, checks.seen(claim("young")))
    assert len(queue) == 100, "one that is not initialised has nothing to compare"
