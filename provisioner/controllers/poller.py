"""Calls a function again and again at an interval, in a thread of its own."""

import threading
from collections.abc import Callable

from provisioner.cloudprovider.errors import CloudError
from provisioner.controllers import messages
from provisioner.kube.errors import ApiError
from provisioner.support import heartbeat, logs

_log = logs.get_logger(__name__)


class Poller:
    """One thread that calls a function until it is stopped.

    Args:
        name: of the thread, and in the log.
        poll: does the work; seconds until it should be done again.
        retry: seconds after a failure.
        expected: what `poll` may raise besides ApiError and CloudError without its trace being of use to anybody.
        first: seconds before the first round.
    """

    def __init__(
        self,
        name: str,
        poll: Callable[[], float],
        retry: float = 10.0,
        *,
        expected: tuple[type[Exception], ...] = (),
        first: float = 0.0,
    ) -> None:
        self._name, self._poll, self._retry, self._first = name, poll, retry, first
        self._expected: tuple[type[Exception], ...] = (ApiError, CloudError, *expected)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin no other round; the one under way is given five seconds."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def once(self) -> float:
        """One round; seconds until the next one, whatever happened."""
        try:
            return self._poll()
        except self._expected as error:
            _log.warning(messages.POLLING_FAILED, what=self._name, error=str(error))
        except Exception:  # noqa: BLE001 - the thread outlives a pass that fails
            _log.exception(messages.POLLING_FAILED, what=self._name)
        return self._retry

    def _loop(self) -> None:
        wait = self._first
        pulse = heartbeat.pulse(self._name)
        pulse.rest()
        while not self._stop.wait(wait):
            pulse.beat()
            wait = self.once()
            pulse.rest()
