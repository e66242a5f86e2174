"""What the state expects of a NodeClaim that nobody planned: a user's own, or one of a static NodePool."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.state.effects import ClaimUnneeded
from provisioner.state.promises import VACANT_SECONDS
from tests.support.cluster import TYPES, World, claim, plan_text, pod

_MEBI = 2**20
AMD64 = {"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]}
LINUX = {"key": names.OS_LABEL, "operator": "In", "values": ["linux"]}
C_FAMILY = {"key": names.KWOK_INSTANCE_FAMILY_LABEL, "operator": "In", "values": ["c"]}


def cpus(*values: str) -> Mapping[str, Any]:
    return {"key": names.KWOK_INSTANCE_CPU_LABEL, "operator": "In", "values": list(values)}


def alone(
    *requirements: Mapping[str, Any], requests: Mapping[str, str] | None = None, pool: str = "", **fields: Any
) -> NodeClaim:
    """A NodeClaim as a user writes it: without a plan, and without a NodePool unless one is named."""
    labels = {names.NODEPOOL_LABEL: pool} if pool else {}
    body = msgspec.to_builtins(claim("a", labels=labels, annotations={}, **fields))
    body["spec"] |= {"requirements": list(requirements), "resources": {"requests": dict(requests or {})}}
    return msgspec.convert(body, NodeClaim, strict=False)


# what it asks for: (cpu of its room, MiB of its room, some of its labels)
CASES: Mapping[str, tuple[NodeClaim, tuple[int, int], Mapping[str, str | None]]] = {
    "of several types the least of each resource counts": (
        alone(cpus("4"), AMD64, LINUX),
        (3900, 8182),
        {names.KWOK_INSTANCE_CPU_LABEL: "4", names.KWOK_INSTANCE_FAMILY_LABEL: None, names.INSTANCE_TYPE_LABEL: None},
    ),
    "of types of several sizes too": (
        alone(cpus("4", "8"), C_FAMILY, AMD64, LINUX),
        (3900, 8182),
        {names.KWOK_INSTANCE_FAMILY_LABEL: "c", names.KWOK_INSTANCE_CPU_LABEL: None},
    ),
    "those that its requests do not fit do not count": (
        alone(cpus("4", "8"), C_FAMILY, AMD64, LINUX, requests={"cpu": "5"}),
        (7900, 16374),
        {names.INSTANCE_TYPE_LABEL: "c-8x-amd64-linux", names.KWOK_INSTANCE_CPU_LABEL: "8"},
    ),
    "zone and capacity type are known where there is one": (
        alone(
            cpus("4"),
            {"key": names.ZONE_LABEL, "operator": "NotIn", "values": ["test-zone-b", "test-zone-c", "test-zone-d"]},
            {"key": names.CAPACITY_TYPE_LABEL, "operator": "NotIn", "values": ["spot"]},
        ),
        (3900, 8182),
        {names.ZONE_LABEL: "test-zone-a", names.CAPACITY_TYPE_LABEL: "on-demand", names.ARCH_LABEL: None},
    ),
    "and not where there are several": (
        alone(cpus("4"), AMD64, LINUX),
        (3900, 8182),
        {names.ZONE_LABEL: None, names.CAPACITY_TYPE_LABEL: None, names.ARCH_LABEL: "amd64"},
    ),
    "one named type is that type": (
        alone({"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["m-4x-amd64-linux"]}),
        (3900, 32758),
        {names.ARCH_LABEL: "amd64", names.KWOK_INSTANCE_FAMILY_LABEL: "m", names.ZONE_LABEL: None},
    ),
    "a claim of a static NodePool is like one without": (
        alone(cpus("4"), AMD64, LINUX, pool="general"),
        (3900, 8182),
        {names.KWOK_INSTANCE_CPU_LABEL: "4", names.NODEPOOL_LABEL: "general"},
    ),
    "requests that fit no type leave no room": (alone(cpus("4"), requests={"cpu": "5"}), (0, 0), {}),
    "so do requirements that no type meets": (alone(cpus("5")), (0, 0), {}),
    "and those that nobody can read": (
        alone(cpus("4"), {"key": names.ARCH_LABEL, "operator": "Nonsense", "values": ["amd64"]}),
        (0, 0),
        {},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_claim_that_nobody_planned_has_room_for(
    case: tuple[NodeClaim, tuple[int, int], Mapping[str, str | None]],
) -> None:
    asked, room, labels = case
    world = World()
    world.cluster.claim_changed(None, asked)
    view = world.view("a")
    assert (view.room.amount("cpu"), view.room.amount("memory") // _MEBI) == room
    assert {key: view.labels.get(key) for key in labels} == labels


def test_a_launched_claim_says_itself_what_it_is() -> None:
    world = World()
    asked = alone(cpus("4", "8"), C_FAMILY, AMD64, LINUX)
    world.cluster.claim_changed(None, asked)
    launched = alone(
        cpus("4", "8"), C_FAMILY, AMD64, LINUX, planned="c-8x-amd64-linux", provider_id="kwok://a", true=("Launched",)
    )
    world.cluster.claim_changed(asked, launched)
    assert world.view("a").room["cpu"] == 7900


def test_types_that_come_later_give_room() -> None:
    world = World()
    world.types = {}
    world.cluster.claim_changed(None, alone(cpus("4"), AMD64, LINUX))
    assert world.view("a").room.amount("cpu") == 0
    world.types = TYPES
    assert world.view("a").room.amount("cpu") == 3900
    world.types = {name: kind for name, kind in TYPES.items() if name != "c-4x-amd64-linux"}
    assert world.view("a").room.amount("memory") // _MEBI > 8182


def test_a_claim_that_a_user_made_stays_needed_though_the_pods_that_were_to_join_it_are_gone() -> None:
    world, one = World(), pod("one")
    world.add(one)
    made = alone(cpus("4"), AMD64, LINUX)
    world.cluster.claim_changed(None, made)
    assert world.cluster.assign(world.view("a").key, (one,)) == []
    planned = msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(
            made.metadata, resource_version="1000000", annotations={names.PLAN_ANNOTATION: plan_text((one,))}
        ),
    )
    world.cluster.claim_changed(made, planned)  # the plan is written on it
    world.cluster.pod_changed(one, None)
    world.clock.advance(VACANT_SECONDS + 1)  # so long the room is kept for its successor
    assert ClaimUnneeded("a") not in world.cluster.expire()
    assert world.assigned("a") == []
    assert not world.cluster.is_unneeded("a")


def test_pods_that_join_a_static_claim_before_it_is_created_stay_with_it() -> None:
    world, one = World(), pod("one")
    world.add(one)
    made = alone(cpus("4"), AMD64, LINUX, pool="general")
    announced = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=""))
    assert world.cluster.announce(announced, ()) is True
    assert world.cluster.assign(world.view("a").key, (one,)) == []
    assert world.cluster.claim_written(made) == []
    assert world.assigned("a") == ["one"]
