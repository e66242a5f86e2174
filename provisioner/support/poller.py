"""Calls a function again and again at an interval, in a thread of its own."""

import threading
from collections.abc import Callable
from typing import ClassVar, Final

from provisioner.support import heartbeat, logs
from provisioner.support.clock import SystemClock
from provisioner.support.reconciles import Rounds

_log = logs.get_logger(__name__)
_POLLING_FAILED: Final = "A periodic task failed; retrying"


class Poller:
    """One thread that calls a function until it is stopped.

    Attributes:
        EXPECTED: what every `poll` may raise without its trace being of use to anybody.
        first: seconds before the first round.

    Args:
        name: of the thread, and in the log.
        poll: does the work; seconds until it should be done again, None for not before it is woken.
        retry: seconds after a failure.
        expected: what this `poll` may raise besides.
        first: seconds before the first round.
        patience: see `heartbeat.Pulse`.
    """

    EXPECTED: ClassVar[tuple[type[Exception], ...]] = ()

    def __init__(
        self,
        name: str,
        poll: Callable[[], float | None],
        retry: float = 10.0,
        *,
        expected: tuple[type[Exception], ...] = (),
        first: float = 0.0,
        patience: float = heartbeat.PATIENCE_SECONDS,
    ) -> None:
        self.name, self._poll, self._retry, self.first = name, poll, retry, first
        self._expected, self._patience = (*self.EXPECTED, *expected), patience
        self._rounds, self._clock = Rounds(name, 1), SystemClock()
        self._wake = threading.Event()
        self.stopped = False
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Begin the next round at once."""
        self._wake.set()

    def stop(self, patience: float = 5.0) -> bool:
        """Begin no other round; the one under way is given so many seconds. Whether it has ended, but for one that calls this itself."""
        self.stopped = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(patience)
            return not self._thread.is_alive()
        return True

    def awake(self) -> bool:
        """Whether it was woken since this was asked last; only where it has not been started."""
        woken = self._wake.is_set()
        self._wake.clear()
        return woken

    def once(self) -> float | None:
        """One round; seconds until the next one, whatever happened."""
        begun, failed, wait = self._clock.monotonic(), False, None
        try:
            with self._rounds.running():
                wait = self._poll()
        except self._expected as error:
            failed = True
            _log.warning(_POLLING_FAILED, what=self.name, error=str(error))
        except Exception:  # noqa: BLE001 - the thread outlives a pass that fails
            failed = True
            _log.exception(_POLLING_FAILED, what=self.name)
        self._rounds.ended(self._clock.monotonic() - begun, failed=failed, later=wait is not None)
        return self._retry if failed else wait

    def _loop(self) -> None:
        wait: float | None = self.first
        pulse = heartbeat.pulse(self.name, self._patience)
        pulse.rest()
        while True:
            self._wake.wait(wait)
            self._wake.clear()
            if self.stopped:
                return
            pulse.beat()
            wait = self.once()
            pulse.rest()
