"""Things that are looked at again and again: each poll says when its next turn is."""

from collections.abc import Callable, Mapping

from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, Result

Poll = Callable[[], float | None]
"""Looks once; seconds until the next look, None for never."""

FAILED_SECONDS = 10.0
_WORKERS = 3
_log = logs.get_logger(__name__)


class Polls:
    """Runs polls, a few at a time; one that fails is tried again after ten seconds and harms no other.

    Args:
        polls: by name, for logs and metrics.
        said: what an error means, for the log.
    """

    def __init__(self, polls: Mapping[str, Poll], clock: Clock, said: Callable[[BaseException], object] = str) -> None:
        self._polls, self._said = dict(polls), said
        self._queue = KeyedQueue("polls", self.reconcile, clock, workers=max(1, min(_WORKERS, len(self._polls))))

    def start(self) -> None:
        """Begin with all of them."""
        self._queue.start()
        self._queue.add_all(sorted(self._polls))

    def stop(self) -> None:
        """Finish those under way."""
        self._queue.stop(5.0)

    def now(self, name: str) -> None:
        """Let one of them look again at once."""
        self._queue.add(name)

    def reconcile(self, name: str) -> Result:
        """One turn of one poll."""
        try:
            seconds = self._polls[name]()
        except Exception as error:
            _log.warning("a poll failed, it is tried again", poll=name, error=str(self._said(error)))
            return Result(requeue_after=FAILED_SECONDS)
        return DONE if seconds is None else Result(requeue_after=seconds)
