"""One candidacy of this process: it leads at most once, and when its term ends in any other way than by `stop`, so does the process.

Three things end it when the fence falls, each without the others: the election, when it notices; a thread that watches the fence, also while the
election hangs in a call; and the kernel, when no thread of ours runs. The kernel's timer is due half-way between the fall of the fence and the first
moment at which another may lead, so a process that was stopped for longer sends nothing when it goes on.
"""

import threading
from collections.abc import Callable

from provisioner.kube.client import Client
from provisioner.kube.lease import Fence, LeaderElector, LeaseTerm, LostLease, TermEnding
from provisioner.support import heartbeat, logs
from provisioner.support.clock import Clock
from provisioner.support.ending import Process
from provisioner.values.message import Said

WATCH_SECONDS = 1.0
LAST_WRITES_SECONDS = 3.0
_log = logs.get_logger(__name__)


class Leadership:
    """Stands for election, leads, and ends the process with its term.

    Args:
        term: begins when we lead; every writer asks it.
        client: what writes under this term.
        begin: starts the work of the leader; where it raises, the process ends.
        clock: for the wait for the last writes.
    """

    def __init__(
        self,
        elector: LeaderElector,
        term: LeaseTerm,
        client: Client,
        begin: Callable[[], None],
        process: Process,
        clock: Clock,
    ) -> None:
        self._elector, self._term, self._client, self._begin = elector, term, client, begin
        self._process, self._clock = process, clock
        self._stopping = threading.Event()
        self._margin = (elector.lease_duration - elector.renew_deadline) / 2
        self._thread = threading.Thread(target=self._elect, name="election", daemon=True)

    def start(self) -> None:
        """Stand for election from now on; once."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no write, wait for what is under way, cut off what is left, and give the Lease back; what the leader does has been ended before.

        A Lease is kept to its end when a write has not returned, or ended without an answer: the next leader shall not find it coming after its own.
        """
        self._stopping.set()
        self._process.end_in(0)
        self._term.close()
        deadline = self._clock.monotonic() + LAST_WRITES_SECONDS
        while self._client.writing and self._clock.monotonic() < deadline:
            self._clock.sleep(0.05)
        writing = self._client.writing  # asked first: a write that ends between the two is seen by one of them
        unanswered = self._client.unanswered
        if writing or unanswered:
            _log.warning(
                "A write is still in flight or got no answer; letting the Lease expire instead of releasing it",
                writes=writing,
                unanswered=unanswered,
            )
        self._term.end()
        self._elector.stop(release=not writing and not unanswered)
        self._thread.join(5.0)

    def _elect(self) -> None:
        try:
            ending = self._elector.run(self._started)
        except BaseException as error:  # noqa: BLE001 - whatever ends the election ends the term
            _log.exception("Leader election failed")
            self._end(Said(f"leader election failed: {error}"))
            return
        match ending:
            case TermEnding.LOST:
                self._end(Said("the leader election Lease was lost, and two replicas must never act at the same time"))
            case TermEnding.FAILED:
                self._end(Said("failed to start the controllers"))
            case TermEnding.STOPPED:
                self._end(Said("leader election has ended"))

    def _started(self, fence: Fence) -> None:
        fence.check()
        threading.Thread(target=self._watch, args=(fence,), name="fence", daemon=True).start()
        self._term.begin(fence)
        try:
            self._begin()
        except LostLease as error:
            self._end(str(error))
        except Exception as error:  # noqa: BLE001 - whatever ends the election ends the term
            fence.fall()
            _log.exception("Failed to start the controllers")
            self._end(Said(f"failed to start the controllers: {error}"))

    def _watch(self, fence: Fence) -> None:
        pulse = heartbeat.pulse("fence")
        while not self._stopping.is_set():
            pulse.beat()
            left = fence.left()
            if left <= 0:
                self._end(
                    Said(
                        "the leader election Lease was not renewed in time, and two replicas must never act at the "
                        "same time"
                    )
                )
                return
            self._process.end_in(left + self._margin)
            self._stopping.wait(min(left, WATCH_SECONDS))
        self._process.end_in(0)

    def _end(self, why: str) -> None:
        if not self._stopping.is_set():
            self._process.end(why)
