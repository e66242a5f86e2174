"""Calls of a provider, timed and counted."""

from typing import cast

import pytest

from provisioner.apis.karpenter import NodeClaim, NodeClaimSpec, NodeClassReference
from provisioner.apis.meta import ObjectMeta
from provisioner.cloudprovider.errors import InsufficientCapacityError, LaunchUnderWayError
from provisioner.cloudprovider.metering import metered
from provisioner.cloudprovider.types import CloudProvider, LaunchedInstance
from provisioner.support.metrics import REGISTRY
from tests.support.clock import FakeClock

INSTANCE = LaunchedInstance("aws:///a/i-1", "m5.large", "a", "spot")


class Script:
    """A provider whose create does what is next in a list."""

    name = "scripted"

    def __init__(self, clock: FakeClock, *steps: LaunchedInstance | Exception) -> None:
        self.clock, self.steps = clock, list(steps)

    def create(self, claim: NodeClaim) -> LaunchedInstance:
        self.clock.advance(2.0)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


def claim(uid: str) -> NodeClaim:
    reference = NodeClassReference(group="g", kind="k", name="n")
    return NodeClaim(metadata=ObjectMeta(name=uid, uid=uid), spec=NodeClaimSpec(node_class_ref=reference))


def seconds(controller: str, suffix: str = "sum") -> float | None:
    labels = {"controller": controller, "method": "Create", "provider": "scripted"}
    return REGISTRY.get_sample_value(f"karpenter_cloudprovider_duration_seconds_{suffix}", labels)


def errors(controller: str, error: str) -> float | None:
    labels = {"controller": controller, "method": "Create", "provider": "scripted", "error": error, "nodepool": ""}
    return REGISTRY.get_sample_value("karpenter_cloudprovider_errors_total", labels)


def test_a_launch_takes_from_its_first_call_to_its_answer() -> None:
    clock = FakeClock()
    provider = metered(
        cast(CloudProvider, Script(clock, LaunchUnderWayError("c"), LaunchUnderWayError("c"), INSTANCE)), "one", clock
    )
    for _ in range(2):
        with pytest.raises(LaunchUnderWayError):
            provider.create(claim("c"))
    assert seconds("one", "count") is None
    assert provider.create(claim("c")) is INSTANCE
    assert (seconds("one"), seconds("one", "count")) == (6.0, 1.0)
    assert provider.name == "scripted"


def test_errors_have_karpenter_s_names() -> None:
    clock = FakeClock()
    script = Script(clock, InsufficientCapacityError("c", "none"), ValueError("other"))
    provider = metered(cast(CloudProvider, script), "two", clock)
    with pytest.raises(InsufficientCapacityError):
        provider.create(claim("c"))
    with pytest.raises(ValueError, match="other"):
        provider.create(claim("d"))
    assert (errors("two", "InsufficientCapacityError"), errors("two", "unknown")) == (1.0, 1.0)
    assert (seconds("two"), seconds("two", "count")) == (4.0, 2.0)
