"""Counting: what instances cost, how long pods waited, and the curve of the day."""

import pytest

from provisioner.simulator.ledger import SAMPLES, InstanceTime, Ledger


def instance(usd: float, begin: float, end: float | None, pool: str = "general") -> InstanceTime:
    return InstanceTime("c-2x", "a", "on-demand", pool, usd, begin, end)


def test_an_instance_is_paid_for_from_its_launch_to_its_end_or_that_of_the_day() -> None:
    ledger = Ledger()
    ledger.instances |= {
        "a": instance(2.0, 0.0, 1800.0),
        "b": instance(1.0, 1800.0, None),
        "c": instance(4.0, 900.0, 1800.0, "other"),
    }
    found = ledger.figures(1, 3600.0, 0, 0, 0)
    assert found.usd == pytest.approx(1.0 + 0.5 + 1.0)
    assert found.node_hours == pytest.approx(0.5 + 0.5 + 0.25)
    assert found.by_pool == {"general": 1.5, "other": 1.0}
    assert (found.launches, found.most_nodes) == (3, 2), "one that begins as another ends is not one more"
    assert len(found.samples) == SAMPLES
    assert [one.usd_per_hour for one in found.samples][:: SAMPLES // 4] == [2.0, 6.0, 1.0, 1.0]
    assert sum(one.usd_per_hour for one in found.samples) / SAMPLES == pytest.approx(found.usd)


def test_waiting_is_from_the_creation_to_the_binding_and_who_is_left_counts() -> None:
    ledger = Ledger()
    for number in range(99):
        ledger.pod_created(f"p{number}", 10.0)
        ledger.pod_bound(f"p{number}", 11.0 + number)
    ledger.pod_created("gone", 10.0)
    ledger.pod_gone("gone", 500.0)
    ledger.pod_created("left", 0.0)
    found = ledger.figures(1, 1000.0, 0, 0, 0)
    assert (found.pods, found.unbound) == (101, 1)
    assert (found.wait_p50, found.wait_p99) == (50.0, 99.0)
    alone = Ledger()
    alone.pod_created("left", 100.0)
    assert alone.figures(1, 1000.0, 0, 0, 0).wait_p50 == 900.0


def test_the_curve_has_who_waits_at_its_instants() -> None:
    ledger = Ledger()
    ledger.pod_created("a", 1.0)
    ledger.pod_created("b", 30.0)
    ledger.pod_bound("a", 50.0)
    waiting = [one.waiting for one in ledger.figures(1, 96.0, 0, 0, 0).samples]
    assert [waiting[at - 1] for at in (1, 29, 30, 49, 50, 96)] == [1, 1, 2, 2, 1, 1]
