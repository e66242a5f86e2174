"""What a controller's rounds are counted as: controller-runtime's metrics and those of its work queues, so that dashboards carry over.

Differs: a periodic task counts as a controller of one worker without a queue, and no error is terminal: whatever fails is tried again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from provisioner.support import metrics

_CONTROLLER: Final = ("controller",)
_QUEUE: Final = ("name", "controller")

_RECONCILES: Final = metrics.counter("controller_runtime_reconcile_total", "Reconciliations.", ("controller", "result"))
_ERRORS: Final = metrics.counter(
    "controller_runtime_reconcile_errors_total", "Reconciliations that failed.", _CONTROLLER
)
_SECONDS: Final = metrics.histogram(
    "controller_runtime_reconcile_time_seconds", "Duration of reconciliations.", _CONTROLLER
)
_WORKERS: Final = metrics.gauge(
    "controller_runtime_max_concurrent_reconciles",
    "Reconciliations of a controller that may run at the same time.",
    _CONTROLLER,
)
_ACTIVE: Final = metrics.gauge(
    "controller_runtime_active_workers", "Reconciliations of a controller that are running.", _CONTROLLER
)
_DEPTH: Final = metrics.gauge(
    "workqueue_depth", "Keys that are due and are waiting for a thread.", (*_QUEUE, "priority")
)
_ADDS: Final = metrics.counter("workqueue_adds_total", "Keys that were added to the queue.", _QUEUE)
_RETRIES: Final = metrics.counter("workqueue_retries_total", "Keys that are retried after a failure.", _QUEUE)
_WAITED: Final = metrics.histogram(
    "workqueue_queue_duration_seconds", "Time that a key that was due waited for a thread.", _QUEUE
)
_WORKED: Final = metrics.histogram("workqueue_work_duration_seconds", "Time that a key took.", _QUEUE)
_UNFINISHED: Final = metrics.gauge(
    "workqueue_unfinished_work_seconds", "Time that the keys in progress have taken so far, in total.", _QUEUE
)
_LONGEST: Final = metrics.gauge(
    "workqueue_longest_running_processor_seconds", "Time that the longest key in progress has taken so far.", _QUEUE
)


class Rounds:
    """The counts of one controller.

    Args:
        name: the controller's, the same wherever it is told.
        workers: the most rounds at once.
    """

    def __init__(self, name: str, workers: int) -> None:
        self._name = name
        _WORKERS.labels(name).set(workers)
        self._active = _ACTIVE.labels(name)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around one round."""
        self._active.inc()
        try:
            yield
        finally:
            self._active.dec()

    def ended(self, seconds: float, *, failed: bool, later: bool) -> None:
        """One round is over.

        Args:
            seconds: that it took.
            failed: it is tried again.
            later: it asked for another one by itself.
        """
        _RECONCILES.labels(self._name, "error" if failed else "requeue_after" if later else "success").inc()
        _SECONDS.labels(self._name).observe(seconds)
        if failed:
            _ERRORS.labels(self._name).inc()


class QueueCounts:
    """The counts of a controller's work queue, which has no priorities: the label is always 0."""

    def __init__(self, name: str) -> None:
        self._labels = (name, name)
        self._adds, self._retries = _ADDS.labels(*self._labels), _RETRIES.labels(*self._labels)
        self._waited, self._worked = _WAITED.labels(*self._labels), _WORKED.labels(*self._labels)

    def watch(self, depth: Callable[[], float], running: Callable[[], list[float]]) -> None:
        """How to find out how many keys wait, and for how many seconds each one in progress has run; asked at every scrape."""
        _DEPTH.labels(*self._labels, "0").set_function(depth)
        _UNFINISHED.labels(*self._labels).set_function(lambda: sum(running()))
        _LONGEST.labels(*self._labels).set_function(lambda: max(running(), default=0.0))

    def added(self, keys: int = 1) -> None:
        """So many keys were added."""
        self._adds.inc(keys)

    def taken(self, waited: float) -> None:
        """A key that was due for so many seconds has begun."""
        self._waited.observe(max(0.0, waited))

    def worked(self, seconds: float, *, failed: bool) -> None:
        """A key took so many seconds."""
        self._worked.observe(seconds)
        if failed:
            self._retries.inc()
