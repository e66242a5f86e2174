"""Metrics that come and go."""

from provisioner.controllers.metrics import Metrics
from provisioner.support.metrics import REGISTRY

METRICS = Metrics()
DECISION = {"controller": "provisioner", "scheduling_id": "one"}


def value(name: str, labels: dict[str, str]) -> float | None:
    return REGISTRY.get_sample_value(f"karpenter_scheduler_{name}", labels)


def test_a_decision_shows_its_size_and_age_only_while_it_is_made() -> None:
    times = iter([10.0, 12.5, 13.0])
    before = value("scheduling_duration_seconds_sum", {"controller": "provisioner"}) or 0.0
    with METRICS.scheduling("one", 7, lambda: next(times)):
        assert value("queue_depth", DECISION) == 7
        assert value("unfinished_work_seconds", DECISION) == 2.5
    assert value("queue_depth", DECISION) is None
    assert value("unfinished_work_seconds", DECISION) is None
    assert value("scheduling_duration_seconds_sum", {"controller": "provisioner"}) == before + 3.0


def test_a_zone_that_no_pod_waits_for_any_more_is_forgotten() -> None:
    METRICS.pending_by_zone({"a": 2, "flexible": 1})
    METRICS.pending_by_zone({"flexible": 4})
    labels = {"controller": "provisioner"}
    assert value("pending_pods_by_effective_zone_count", {**labels, "zone": "a"}) is None
    assert value("pending_pods_by_effective_zone_count", {**labels, "zone": "flexible"}) == 4
