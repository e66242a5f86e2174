"""Metrics that come and go."""

import threading
from typing import Any, cast

import msgspec
import pytest

from provisioner.runtime import metrics
from provisioner.runtime.freshness import SILENT_SECONDS, stale
from provisioner.support.metrics import REGISTRY
from tests.support.cluster import World, claim

DECISION = {"controller": "provisioner", "scheduling_id": "one"}


def value(name: str, labels: dict[str, str]) -> float | None:
    return REGISTRY.get_sample_value(f"karpenter_scheduler_{name}", labels)


def test_a_decision_shows_its_size_and_age_only_while_it_is_made() -> None:
    times = iter([10.0, 12.5, 13.0])
    before = value("scheduling_duration_seconds_sum", {"controller": "provisioner"}) or 0.0
    with metrics.scheduling("one", 7, lambda: next(times)):
        assert value("queue_depth", DECISION) == 7
        assert value("unfinished_work_seconds", DECISION) == 2.5
    assert value("queue_depth", DECISION) is None
    assert value("unfinished_work_seconds", DECISION) is None
    assert value("scheduling_duration_seconds_sum", {"controller": "provisioner"}) == before + 3.0


@pytest.mark.parametrize(("reason", "counts"), [("drifted", True), ("underutilized", True), ("empty", False)])
def test_methods_of_disruption_that_ask_for_places_count_as_scheduling(reason: str, counts: bool) -> None:
    times = iter([10.0, 12.5])
    labels = {"controller": "disruption"}
    before = value("scheduling_duration_seconds_sum", labels) or 0.0
    with metrics.evaluating(reason, "", lambda: next(times)):
        pass
    assert (value("scheduling_duration_seconds_sum", labels) or 0.0) - before == pytest.approx(2.5 if counts else 0.0)


def test_a_zone_that_no_pod_waits_for_any_more_is_forgotten() -> None:
    metrics.pending_by_zone({"a": 2, "flexible": 1})
    metrics.pending_by_zone({"flexible": 4})
    labels = {"controller": "provisioner"}
    assert value("pending_pods_by_effective_zone_count", {**labels, "zone": "a"}) is None
    assert value("pending_pods_by_effective_zone_count", {**labels, "zone": "flexible"}) == 4


def of_pool(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"karpenter_nodepools_{name}", labels)


def test_a_limit_that_is_taken_off_is_forgotten_and_with_the_pool_everything() -> None:
    metrics.pool("metrics", {"cpu": 8.0, "nodes": 2.0}, {"cpu": 4.0})
    metrics.pool("metrics", {"cpu": 9.0}, {"cpu": 4.0})
    assert of_pool("limit", nodepool="metrics", resource_type="cpu") == 9.0
    assert of_pool("limit", nodepool="metrics", resource_type="nodes") is None
    metrics.pool("metrics", {}, {})
    assert of_pool("limit", nodepool="metrics", resource_type="cpu") is None
    assert of_pool("usage", nodepool="metrics", resource_type="cpu") is None


def test_budgets_are_told_for_the_pools_of_now() -> None:
    metrics.budgets("Empty", {"one": (3, 1), "two": (0, 0)})
    metrics.budgets("Drifted", {"one": (7, 0)})
    metrics.budgets("Empty", {"two": (5, 0)})
    assert of_pool("allowed_disruptions", nodepool="one", reason="empty") is None
    assert of_pool("nodes_consuming_budgets", nodepool="one", reason="empty") is None
    assert of_pool("allowed_disruptions", nodepool="two", reason="empty") == 5
    assert of_pool("allowed_disruptions", nodepool="one", reason="drifted") == 7


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_passes_that_ran_out_of_time_are_counted_from_nought(kind: str) -> None:
    """An alert on the rate of a series that comes with its first event misses that event."""
    name = "karpenter_voluntary_disruption_consolidation_timeouts_total"
    assert REGISTRY.get_sample_value(name, {"consolidation_type": kind}) is not None


def test_the_cluster_state_is_synced_only_as_long_as_every_watch_is_heard() -> None:
    watch = Watch()
    metrics.sync(lambda: not stale([cast(Any, watch)]), lambda: 0.0)
    assert REGISTRY.get_sample_value("karpenter_cluster_state_synced") == 0.0
    watch.synced.set()
    assert REGISTRY.get_sample_value("karpenter_cluster_state_synced") == 1.0
    watch.age = SILENT_SECONDS + 1
    metrics.state(World().cluster.snapshot())
    assert REGISTRY.get_sample_value("karpenter_cluster_state_synced") == 0.0


def test_the_time_since_the_cluster_state_was_synced_ends_when_it_is() -> None:
    synced, now = [False], [10.0]
    metrics.sync(lambda: synced[0], lambda: now[0])
    now[0] = 14.0
    assert unsynced() == 4.0
    synced[0] = True
    assert unsynced() == 0.0
    synced[0], now[0] = False, 16.0
    assert unsynced() == 2.0


def unsynced() -> float | None:
    return REGISTRY.get_sample_value("karpenter_cluster_state_unsynced_time_seconds")


def test_the_size_of_the_cluster_state_counts_nodes_to_come() -> None:
    world = World()
    world.existing_node("a")
    world.cluster.claim_changed(None, claim("b"))
    metrics.state(world.cluster.snapshot())
    assert REGISTRY.get_sample_value("karpenter_cluster_state_node_count") == 2


class Watch:
    """A watch that was not complete yet."""

    resource, error, age = "pods", None, 1.0

    def __init__(self) -> None:
        self.synced = threading.Event()

    def staleness(self) -> float:
        return self.age

    def lag(self) -> float:
        return 0.0


def test_a_replica_tells_whether_it_leads() -> None:
    """Source: controller-runtime 0.24.1."""
    leads = [False]
    metrics.leading("a-lease", lambda: leads[0])
    labels = {"name": "a-lease"}
    assert REGISTRY.get_sample_value("leader_election_master_status", labels) == 0
    leads[0] = True
    assert REGISTRY.get_sample_value("leader_election_master_status", labels) == 1


MODES = {None: "graceful", "1h": "eventual", "1ms": "eventual", "0s": "forceful", "-5s": "forceful"}


@pytest.mark.parametrize(("period", "mode"), MODES.items(), ids=map(str, MODES))
def test_the_termination_mode_is_told_by_the_grace_period(period: str | None, mode: str) -> None:
    """Source: core spec 8.1."""
    made = claim("a", pool=f"mode-{period}")
    metrics.claim_disrupted(
        msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, termination_grace_period=period)),
        "drifted",
    )
    labels = {
        "reason": "drifted",
        "nodepool": f"mode-{period}",
        "capacity_type": "",
        "consolidation_policy": "",
        "termination_mode": mode,
    }
    assert REGISTRY.get_sample_value("karpenter_nodeclaims_disrupted_total", labels) == 1
