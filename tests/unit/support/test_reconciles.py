"""Reconciliations as controller-runtime counts them, of queues and of periodic tasks."""

import threading

import pytest

from provisioner.support.metrics import REGISTRY
from provisioner.support.poller import Poller
from provisioner.support.workers import KeyedQueue, ReconcileResult
from tests.support.clock import FakeClock
from tests.support.eventually import eventually


def value(series: str, /, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(series, labels)


def test_a_key_is_followed_from_the_queue_to_its_end() -> None:
    clock, begun, go = FakeClock(), threading.Event(), threading.Event()

    def reconcile(key: str) -> ReconcileResult:
        begun.set()
        assert go.wait(10)
        clock.advance(3)
        return ReconcileResult(requeue_after=100)

    queue = KeyedQueue("followed", reconcile, clock, workers=2)
    queue.add("a")
    clock.advance(2)
    queue.start()
    assert begun.wait(10)
    of = {"name": "followed", "controller": "followed"}
    clock.advance(5)
    assert value("controller_runtime_max_concurrent_reconciles", controller="followed") == 2
    assert value("controller_runtime_active_workers", controller="followed") == 1
    assert (
        value("workqueue_unfinished_work_seconds", **of)
        == value("workqueue_longest_running_processor_seconds", **of)
        == 5
    )
    go.set()
    eventually(
        lambda: value("controller_runtime_reconcile_total", controller="followed", result="requeue_after") == 1,
        "counted",
    )
    assert queue.stop()
    assert value("controller_runtime_active_workers", controller="followed") == 0
    assert value("controller_runtime_reconcile_time_seconds_sum", controller="followed") == 8
    assert (value("workqueue_adds_total", **of), value("workqueue_retries_total", **of)) == (1, 0)
    assert (
        value("workqueue_queue_duration_seconds_sum", **of),
        value("workqueue_work_duration_seconds_sum", **of),
    ) == (2, 8)
    assert value("workqueue_unfinished_work_seconds", **of) == 0


RESULTS = {
    "that is done": (None, "success"),
    "that wants another round": (5.0, "requeue_after"),
    "that failed": (OSError("no"), "error"),
}


@pytest.mark.parametrize("case", RESULTS.values(), ids=RESULTS.keys())
def test_a_periodic_task_counts_as_a_controller(case: tuple[float | OSError | None, str]) -> None:
    """Karpenter's performance dashboard begins with the controller `disruption`, which is one here."""
    answer, result = case

    def poll() -> float | None:
        if isinstance(answer, OSError):
            raise answer
        return answer

    Poller(result, poll, expected=(OSError,)).once()
    assert value("controller_runtime_reconcile_total", controller=result, result=result) == 1
    assert value("controller_runtime_reconcile_time_seconds_count", controller=result) == 1
    assert (value("controller_runtime_reconcile_errors_total", controller=result) or 0) == (result == "error")
