"""Static NodePools, law by law: whatever there is, one pass brings a pool to its replicas, and a second one finds nothing to do."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.static.scaling import decide
from tests.support.clock import NOON
from tests.support.cluster import World, claim, pod, pool

STATES = st.sampled_from(
    ["announced", "unlaunched", "launched", "empty", "used", "protected", "deleted", "interrupted"]
)


def put(world: World, name: str, state: str) -> None:
    """One node of the pool in that state."""
    metadata: dict[str, Any] = {}
    if state == "deleted":
        metadata["deletionTimestamp"] = NOON.isoformat()
    if state in ("interrupted", "protected"):
        key = names.INTERRUPTION_ANNOTATION if state == "interrupted" else names.DO_NOT_DISRUPT
        metadata["annotations"] = {key: "true"}
    if state == "announced":
        assert world.cluster.announce(claim(name, uid="", resourceVersion=""), ())
    elif state in ("unlaunched", "launched"):
        world.cluster.claim_changed(None, claim(name, provider_id=f"kwok://{name}" if state == "launched" else ""))
    else:
        world.existing_node(name, **metadata)
        if state == "used":
            world.add(pod(f"on-{name}", node=name))


def carried_out(world: World, one: NodePool, created: str) -> tuple[int, tuple[str, ...]]:
    """What one pass did: how many it created, and which it deleted."""
    decision = decide(world.cluster.snapshot(), one)
    assert not (decision.create and decision.delete)
    for number in range(decision.create):
        put(world, f"{created}{number}", "announced")
    for name in decision.delete:
        known = world.cluster.claim(name)
        assert known is not None
        if known.metadata.uid:
            world.cluster.claim_deleted(known)
        else:
            world.cluster.claim_failed(name)
    return decision.create, decision.delete


@given(st.lists(STATES, max_size=6), st.integers(0, 7), st.none() | st.integers(0, 7))
def test_one_pass_is_enough_and_keeps_the_limit(states: list[str], replicas: int, limit: int | None) -> None:
    world = World()
    for number, state in enumerate(states):
        put(world, f"n{number}", state)
    one = pool(replicas=replicas, limits={} if limit is None else {"nodes": str(limit)})
    there = sum(state not in ("deleted", "interrupted") for state in states)
    created, deleted = carried_out(world, one, "a")
    assert len(deleted) == max(0, there - replicas)
    room = max(0, limit - len(states)) if limit is not None else replicas
    assert created == min(max(0, replicas - there), room)
    assert carried_out(world, one, "b") == (0, ())


@given(st.lists(STATES, min_size=1, max_size=6), st.integers(0, 5))
def test_a_protected_node_goes_after_all_others(states: list[str], replicas: int) -> None:
    world = World()
    for number, state in enumerate(states):
        put(world, f"n{number}", state)
    deleted = [states[int(name[1:])] for name in decide(world.cluster.snapshot(), pool(replicas=replicas)).delete]
    assert deleted == sorted(deleted, key=lambda state: state == "protected")
    if "protected" in deleted:
        assert set(states) - {"deleted", "interrupted", "protected"} <= set(deleted)
