"""Instances and claims, dealt to each other."""

from typing import Any

import pytest

from provisioner.apis import ec2, names
from provisioner.apis.karpenter import NodeClaim
from provisioner.ec2.instances.instances import Ec2Instance
from provisioner.ec2.instances.orphans import sort_out
from provisioner.ec2.launch.launch_marks import BATCH_TAG
from tests.support.cluster import claim


def instance(number: int, *, state: str = "running", **tags: str) -> Ec2Instance:
    keys = {"claim": ec2.NODECLAIM_TAG, "batch": BATCH_TAG}
    return Ec2Instance(
        id=f"i-{number:017x}",
        state=state,
        instance_type="m5.large",
        zone="us-east-1a",
        capacity_type="spot",
        tags={keys[key]: value for key, value in tags.items()},
    )


def owner(number: int, name: str = "a") -> NodeClaim:
    return claim(name, provider_id=instance(number).provider_id)


def launching(name: str, mark: str = "", **metadata: Any) -> NodeClaim:
    return claim(name, annotations={names.LAUNCH_ANNOTATION: mark} if mark else {}, **metadata)


CASES: dict[str, tuple[list[Ec2Instance], list[NodeClaim], list[str], list[int]]] = {
    "nothing": ([], [], [], []),
    "an instance with its claim": ([instance(1)], [owner(1)], [], []),
    "an instance without any": ([instance(1)], [], [], [1]),
    "an instance whose claim is gone": ([instance(1, claim="gone")], [owner(2)], [], [1]),
    "that ends already": ([instance(1, state="shutting-down"), instance(2, state="terminated")], [], [], []),
    "that is stopped": ([instance(1, state="stopped")], [], [], [1]),
    "whose claim has not heard of it": ([instance(1, claim="a")], [launching("a")], ["a"], []),
    "whose claim is going, and has not heard of it": (
        [instance(1, claim="a")],
        [launching("a", deletionTimestamp="2026-11-21T12:00:00Z")],
        ["a"],
        [],
    ),
    "whose claim has another": ([instance(1, claim="a"), instance(2, claim="a")], [owner(2)], [], [1]),
    "of a launch that is still dealt": (
        [instance(1, batch="x/1"), instance(2, batch="x/1")],
        [owner(2), launching("b", "x/1/1"), launching("c", "x/1/2"), launching("d", "y/1/0")],
        ["b", "c"],
        [],
    ),
    "of an earlier attempt": ([instance(1, batch="x/1")], [launching("b", "x/2/0")], [], [1]),
    "of a launch all of whose claims have instances": ([instance(1, batch="x/1")], [owner(2)], [], [1]),
    "dealt to a claim that is gone": (
        [instance(1, batch="x/1", claim="gone")],
        [launching("b", "x/1/1")],
        [],
        [1],
    ),
    "beside a claim whose mark cannot be read": ([instance(1, batch="")], [launching("b", "x")], [], [1]),
    "several, in order": ([instance(3), instance(1)], [owner(2)], [], [1, 3]),
}


@pytest.mark.parametrize(("instances", "claims", "awaited", "orphans"), CASES.values(), ids=CASES)
def test_sorting_out(
    instances: list[Ec2Instance], claims: list[NodeClaim], awaited: list[str], orphans: list[int]
) -> None:
    found = sort_out(instances, claims)
    assert list(found.awaited) == awaited
    assert [one.id for one in found.orphans] == [instance(number).id for number in orphans]
