"""Durations and states of single pods."""

from collections.abc import Callable

import msgspec

from provisioner.apis.core import PodResourceClaim
from provisioner.apis.pods import Pod
from provisioner.observability.pods import PodTimes, state_lines
from provisioner.support import metrics
from tests.support.clock import FakeClock
from tests.support.cluster import World, bound, pod


def count_of(name: str, **labels: str) -> Callable[[], float]:
    """How many observations a duration has; the families live as long as the process."""
    return lambda: metrics.REGISTRY.get_sample_value(f"{name}_count", labels) or 0.0


def ready(one: Pod) -> Pod:
    return msgspec.structs.replace(one, phase="Running", ready=True)


def test_a_pod_is_timed_from_its_sight_to_its_start() -> None:
    bounds, decisions = (
        count_of("karpenter_pods_bound_duration_seconds", dynamic_resources="false"),
        count_of("karpenter_pods_scheduling_decision_duration_seconds"),
    )
    planned = count_of("karpenter_pods_provisioning_startup_duration_seconds")
    before = bounds(), decisions(), planned()
    clock = FakeClock()
    times, one = PodTimes(clock), pod("one")
    times.heard(None, one)
    clock.advance(2)
    assert any("undecided_time_seconds" in line and line.endswith(" 2.0\n") for line in times.lines([one]))
    times.decided([], ["one"])
    times.decided(["one"], [])
    clock.advance(3)
    assert any("provisioning_unbound_time_seconds{" in line and line.endswith(" 3.0\n") for line in times.lines([one]))
    assert any(
        line.startswith("karpenter_pods_unbound_time_seconds{") and " 5.0" in line for line in times.lines([one])
    )
    times.heard(one, bound(one, "n"))
    times.heard(bound(one, "n"), ready(bound(one, "n")))
    assert (bounds(), decisions(), planned()) == (before[0] + 1, before[1] + 1, before[2] + 1)
    assert not any("{" in line for line in times.lines([one]))


def test_a_pod_that_was_bound_before_has_no_durations() -> None:
    bounds = count_of("karpenter_pods_bound_duration_seconds", dynamic_resources="false")
    before, times = bounds(), PodTimes(FakeClock())
    times.heard(None, bound(pod("one"), "n"))
    times.heard(bound(pod("one"), "n"), ready(bound(pod("one"), "n")))
    assert bounds() == before


def test_a_pod_with_resource_claims_is_told_apart() -> None:
    """Source: Karpenter 1.15, label dynamic_resources."""
    bounds = count_of("karpenter_pods_bound_duration_seconds", dynamic_resources="true")
    before, times, plain = bounds(), PodTimes(FakeClock()), pod("one")
    shape = msgspec.structs.replace(plain.shape, resource_claims=(PodResourceClaim(name="gpu"),))
    one = msgspec.structs.replace(plain, shape=shape)
    times.heard(None, one)
    assert 'karpenter_pods_unbound_time_seconds{name="one",namespace="default",dynamic_resources="true"} 0.0\n' in list(
        times.lines([one])
    )
    times.heard(one, bound(one, "n"))
    assert bounds() == before + 1


def test_a_pod_that_goes_is_forgotten() -> None:
    times, one = PodTimes(FakeClock()), pod("one")
    times.heard(None, one)
    times.heard(one, None)
    assert not times._steps


def test_a_pod_created_in_our_future_has_waited_for_nothing() -> None:
    times, one = PodTimes(FakeClock()), pod("one", created=FakeClock().now().replace(year=2030))
    times.heard(None, one)
    assert any(
        line.endswith('unbound_time_seconds{name="one",namespace="default",dynamic_resources="false"} 0.0\n')
        for line in times.lines([one])
    )


def test_a_state_says_where_the_pod_is() -> None:
    world = World()
    world.existing_node("a")
    views = {view.name: view for view in world.cluster.snapshot().nodes}
    hostile = bound(pod('evil"\n', owner="x\\"), "a")
    _, line = state_lines([hostile], views.get)
    assert line.startswith('karpenter_pods_state{name="evil\\"\\n",namespace="default",owner="/apis/apps/v1/')
    assert 'node="a",nodepool="general"' in line
    assert line.count("\n") == 1
