"""When a batch of waiting pods is complete; which pods wait is `state.waiting`. Source: core spec 3.3, 4; design 3b.5."""

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from math import inf

from provisioner.apis.pods import Pod, is_pending
from provisioner.provisioning.expected_pods import QUIET_SECONDS, ExpectedPods
from provisioner.state.cluster import Cluster
from provisioner.state.waiting import awaits_images
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.poller import Poller
from provisioner.support.precedence import Precedence
from provisioner.support.workers import Schedule

RECHECK_SECONDS = 10.0
_log = logs.get_logger(__name__)


class Window:
    """One batch window: closes after `idle` seconds without a new member, or `longest` seconds after it opened."""

    def __init__(self, idle: float, longest: float) -> None:
        self._idle, self._longest = idle, longest
        self._members: set[str] = set()
        self._opened = self._latest = 0.0

    def add(self, member: str, now: float, *, extends: bool = True) -> bool:
        """Whether `member` is new to this window; a known one does not keep it open, and neither does one that may not extend it."""
        if member in self._members:
            return False
        if not self._members:
            self._opened = now
        if extends or not self._members:
            self._latest = now
        self._members.add(member)
        return True

    def closes_at(self, kept: float = 0.0) -> float | None:
        """The instant at which the window closes if nothing new comes; None while nothing has come.

        Args:
            kept: seconds of `longest` that planning needs, at most half of it.
        """
        if not self._members:
            return None
        return min(self._latest + self._idle, self._opened + self._longest - min(kept, self._longest / 2))

    def quiet_at(self) -> float:
        """The instant from which nothing new has come for `QUIET_SECONDS`."""
        return self._latest + QUIET_SECONDS

    def ends_at(self) -> float:
        """The instant at which the batch's time is over whatever comes; 0 while nothing has come."""
        return self._opened + self._longest if self._members else 0.0

    def __len__(self) -> int:
        return len(self._members)

    def close(self) -> int:
        """Empty the window for the next batch; how many members it had."""
        count = len(self._members)
        self._members.clear()
        return count


class Intake:
    """Collects triggers and has what waits planned, in the thread of `poller`, when a window closes.

    A pod opens the window when it is added. Pods that still wait are looked at again every 10 s. A pod whose images are being looked up opens no window
    before the answer, or before it has been looked up for long enough.

    Args:
        gathering: is told how many members an open window has; says how many seconds their planning needs. It may take a while.
        expected: tells when nothing more can come, so that a window closes early; None: it never does.
        precedence: planning goes before long work.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        idle: timedelta,
        longest: timedelta,
        gathering: Callable[[int], float] = lambda _members: 0.0,
        expected: ExpectedPods | None = None,
        precedence: Precedence | None = None,
    ) -> None:
        self._precedence = precedence or Precedence(clock)
        self._gathering, self._ends_at, self.expected = gathering, 0.0, expected
        self._cluster, self._clock = cluster, clock
        self._run: Callable[[], object] = lambda: None  # until `begin`
        self._window = Window(idle.total_seconds(), longest.total_seconds())
        self._lock = threading.RLock()
        self._deferrals = Schedule()  # of pods that await their images
        self._later: float | None = None
        self._recheck = clock.monotonic() + RECHECK_SECONDS
        self.poller = Poller("provisioner", self._poll)
        if expected is not None:
            expected.answered = self.poller.wake

    def begin(self, run: Callable[[], object]) -> None:
        """From now on `run` plans; pods that wait already open the first window."""
        self._run = run
        for pod in self._cluster.waiting():
            self.pod_seen(pod)

    def pod_seen(self, pod: Pod) -> None:
        """A pod that the state knows was added or changed."""
        if is_pending(pod) and not self._cluster.is_planned(pod.uid):
            self._let_in(pod)

    def report(self, uids: Iterable[str]) -> None:
        """The extender says that kube-scheduler left these pods without a node."""
        told = list(uids)
        self._cluster.reported(told)
        for uid in told:
            pod = self._cluster.pod(uid)
            if pod is not None:
                self._let_in(pod)
            else:
                self.trigger(uid)

    def trigger(self, member: str, *, extends: bool = True) -> None:
        """Something asks for a run: a pod's UID, or a name such as `node/x` that stands for its pods.

        Args:
            member: the UID or the name.
            extends: whether others that come are waited for.
        """
        self._add(member, None, extends=extends)

    def _add(self, member: str, pod: Pod | None, *, extends: bool) -> None:
        with self._lock:
            if self._window.add(member, self._clock.monotonic(), extends=extends):
                if self.expected is not None and pod is not None and extends:
                    self.expected.joined(pod)
                self.poller.wake()

    def trigger_after(self, seconds: float) -> None:
        """Ask for a run in so many seconds; of several requests the soonest counts."""
        at = self._clock.monotonic() + seconds
        with self._lock:
            if self._later is None or at < self._later:
                self._later = at
                self.poller.wake()

    def remaining(self) -> float:
        """Seconds that are left to the batch that is planned now; never negative."""
        return max(0.0, self._ends_at - self._clock.monotonic())

    def _let_in(self, pod: Pod) -> None:
        """A pod that may wait without another event asks for a run, once its images were looked up; one that cannot be planned makes no other wait."""
        at = self._cluster.waits_from(pod.uid)
        if at == inf:
            return
        if not awaits_images(pod) or at <= self._clock.monotonic():
            self._add(pod.uid, pod, extends=not pod.shape.error)
            return
        with self._lock:
            self._deferrals.add(pod.uid, at)
            self.poller.wake()

    def _wake(self, now: float) -> float | None:
        """Let the pods into the window that were deferred for long enough; when the next one was. Called under the lock."""
        while (uid := self._deferrals.pop(now)) is not None:
            self._deferrals.done(uid)
            pod = self._cluster.pod(uid)
            if pod is not None and awaits_images(pod):  # else it was answered, or is gone
                self._let_in(pod)
        return self._deferrals.next_time()

    def _closes_at(self, needed: float, now: float) -> float | None:
        """When the window is to be looked at again, and closes, if nothing new comes. Called under the lock."""
        closes = self._window.closes_at(needed)
        if closes is None or self.expected is None or not self.expected.may_be_known:
            return closes
        quiet = self._window.quiet_at()
        return min(closes, quiet) if now < quiet or self.expected.are_there() else min(closes, now + QUIET_SECONDS)

    def _poll(self) -> float:
        with self._lock:
            members = len(self._window)
        needed = self._gathering(members)  # without the lock: it may start a process, and watches tell us of pods
        with self._lock:
            if self.poller.stopped:
                return 0.0
            now = self._clock.monotonic()
            deferred = self._wake(now)
            closes = self._closes_at(needed, now)
            later = self._later is not None and self._later <= now
            due = later or (closes is not None and closes <= now)
            if not due and now < self._recheck:
                if len(self._window) != members:
                    return 0.0
                soonest = min(one for one in (closes, self._recheck, self._later, deferred) if one is not None)
                return max(0.001, soonest - now)
            if later:
                self._later = None
            if due:
                self._ends_at = self._window.ends_at()
                self._window.close()
                if self.expected is not None:
                    self.expected.over()
        if now >= self._recheck:
            self._recheck = now + RECHECK_SECONDS
            for pod in self._cluster.waiting():
                self.pod_seen(pod)
        if due:
            try:
                with self._precedence.short_work():
                    self._run()
            except Exception:  # noqa: BLE001 - the thread outlives a pass that fails
                _log.exception("Provisioning failed; retrying with the same pods", seconds=RECHECK_SECONDS)
        return 0.0
