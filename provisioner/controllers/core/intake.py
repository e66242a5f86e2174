"""Which pods wait, since when, and when a batch of them is complete. Source: core spec 3.3, 4; design 3b.5."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.pods import Pod, is_daemon
from provisioner.controllers.core import messages
from provisioner.support import heartbeat, logs
from provisioner.support.clock import Clock

RECHECK_SECONDS = 10.0
IMAGES_SECONDS: Final = 5.0
"""How long a pod whose images are being looked up is kept out of batches at most, from the moment at which it was seen."""
_log = logs.get_logger(__name__)


class Window:
    """One batch window: closes after `idle` seconds without a new member, or `longest` seconds after it opened."""

    def __init__(self, idle: float, longest: float) -> None:
        self._idle, self._longest = idle, longest
        self._members: set[str] = set()
        self._opened = self._latest = 0.0

    def add(self, member: str, now: float) -> bool:
        """Whether `member` is new to this window; a known one does not keep it open."""
        if member in self._members:
            return False
        if not self._members:
            self._opened = now
        self._members.add(member)
        self._latest = now
        return True

    def closes_at(self, kept: float = 0.0) -> float | None:
        """The instant at which the window closes if nothing new comes; None while nothing has come.

        Args:
            kept: seconds of `longest` that planning needs, at most half of it.
        """
        if not self._members:
            return None
        return min(self._latest + self._idle, self._opened + self._longest - min(kept, self._longest / 2))

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


def counts_by_time(pod: Pod) -> bool:
    """Whether time alone makes such a pod count: kube-scheduler takes every pod at once.

    Another scheduler may hold pods back on purpose, or not be there at all, so its verdict is waited for.
    """
    return pod.shape.scheduler_name in (names.DEFAULT_SCHEDULER_NAME, names.SCHEDULER_NAME)


def awaits_images(pod: Pod) -> bool:
    """Whether the webhook still looks up for which architectures the images of a pod were built."""
    return names.IMAGE_ARCH_PENDING in pod.labels


class Intake:
    """Collects triggers and calls `run` in its own thread when a window closes.

    A pod opens the window when it is added; it counts once it is confirmed (Unschedulable, or a report of the
    extender) or, where nobody may be holding it back, has stayed unbound for the grace period. Pods that still wait are looked at again every 10 s.
    A pod whose images are being looked up is deferred: it opens no window and does not count before the answer, or for `IMAGES_SECONDS`.

    Args:
        gathering: is told how many members an open window has; says how many seconds their planning needs. It may take a while.
    """

    def __init__(
        self,
        run: Callable[[], object],
        waiting: Callable[[], Iterable[Pod]],
        is_planned: Callable[[str], bool],
        clock: Clock,
        *,
        idle: timedelta,
        longest: timedelta,
        grace: timedelta,
        gathering: Callable[[int], float] = lambda _members: 0.0,
    ) -> None:
        self._gathering, self._ends_at = gathering, 0.0
        self._run, self._waiting, self._is_planned, self._clock = run, waiting, is_planned, clock
        self._grace = grace.total_seconds()
        self._window = Window(idle.total_seconds(), longest.total_seconds())
        self._changed = threading.Condition()
        self._since: dict[str, float] = {}
        self._reported: set[str] = set()
        self._deferred_until: dict[str, float] = {}  # of the pods that await their images, also after that
        self._deferrals: deque[tuple[float, str]] = deque()  # ends ascend: all are deferred equally long
        self._stopping = False
        self._later: float | None = None
        self._thread = threading.Thread(target=self._loop, name="intake", daemon=True)
        self.window_closed_at: float | None = None

    def start(self) -> None:
        """Start the thread; pods that wait already open the first window."""
        for pod in self._waiting():
            self.pod_seen(pod)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the run that is under way."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(10)

    def pod_seen(self, pod: Pod) -> None:
        """An unbound pod was added or changed."""
        if is_daemon(pod) or pod.node_name:
            return
        with self._changed:
            self._note_images(pod)
            if pod.gated:
                return
            self._since.setdefault(pod.uid, self._clock.monotonic())
        if not self._is_deferred(pod) and not self._is_planned(pod.uid):
            self.trigger(pod.uid)

    def pod_gone(self, uid: str) -> None:
        """A pod was bound or removed."""
        with self._changed:
            self._since.pop(uid, None)
            self._deferred_until.pop(uid, None)
            self._reported.discard(uid)

    def report(self, uids: Iterable[str]) -> None:
        """The extender says that kube-scheduler left these pods without a node."""
        now = self._clock.monotonic()
        with self._changed:
            self._reported.update(uid for uid in uids if uid in self._since)
            free = [uid for uid in uids if self._deferred_until.get(uid, now) <= now]
        for uid in free:
            self.trigger(uid)

    def trigger(self, member: str) -> None:
        """Something asks for a run: a pod's UID, or a name such as `node/x` that stands for its pods."""
        with self._changed:
            if self._window.add(member, self._clock.monotonic()):
                self._changed.notify_all()

    def trigger_after(self, seconds: float) -> None:
        """Ask for a run in so many seconds; of several requests the soonest counts."""
        at = self._clock.monotonic() + seconds
        with self._changed:
            if self._later is None or at < self._later:
                self._later = at
                self._changed.notify_all()

    def counts(self, pod: Pod) -> bool:
        """Whether an unbound pod may cause a launch now."""
        with self._changed:
            since = self._since.get(pod.uid)
            reported = pod.uid in self._reported
        if self._is_deferred(pod):
            return False
        if pod.unschedulable or reported:
            return True
        return since is not None and counts_by_time(pod) and self._clock.monotonic() - since >= self._grace

    def is_early(self, pod: Pod) -> bool:
        """Whether an unbound pod does not count yet and will at the end of its grace period."""
        return counts_by_time(pod) and not self._is_deferred(pod) and not self.counts(pod)

    def remaining(self) -> float:
        """Seconds that are left to the batch that is planned now; never negative."""
        return max(0.0, self._ends_at - self._clock.monotonic())

    def _note_images(self, pod: Pod) -> None:
        """Defer a pod from the first time that it is seen to await its images; called under the lock."""
        if not awaits_images(pod):
            self._deferred_until.pop(pod.uid, None)
        elif pod.uid not in self._deferred_until:
            ends = self._deferred_until[pod.uid] = self._clock.monotonic() + IMAGES_SECONDS
            self._deferrals.append((ends, pod.uid))
            self._changed.notify_all()

    def _is_deferred(self, pod: Pod) -> bool:
        now = self._clock.monotonic()
        with self._changed:
            return awaits_images(pod) and self._deferred_until.get(pod.uid, now) > now

    def _wake(self, now: float) -> float | None:
        """Let the pods into the window that were deferred for long enough; when the next one was. Called under the lock."""
        while self._deferrals and self._deferrals[0][0] <= now:
            ends, uid = self._deferrals.popleft()
            # else it was answered, is gone or still gated
            if self._deferred_until.get(uid) == ends and uid in self._since:
                self._window.add(uid, now)
        return self._deferrals[0][0] if self._deferrals else None

    def _loop(self) -> None:
        recheck = self._clock.monotonic() + RECHECK_SECONDS
        pulse = heartbeat.pulse("intake")
        while True:
            pulse.beat()
            with self._changed:
                members = len(self._window)
            needed = self._gathering(members)  # without the lock: it may start a process, and watches tell us of pods
            with self._changed:
                if self._stopping:
                    return
                now = self._clock.monotonic()
                deferred = self._wake(now)
                closes = self._window.closes_at(needed)
                later = self._later is not None and self._later <= now
                if (closes is None or closes > now) and now < recheck and not later:
                    if len(self._window) != members:
                        continue
                    soonest = min(one for one in (closes, recheck, self._later, deferred) if one is not None)
                    self._changed.wait(max(0.001, soonest - now))
                    continue
                due = later or (closes is not None and closes <= now)
                if later:
                    self._later = None
                if due:
                    self._ends_at = self._window.ends_at()
                    self._window.close()
                    self.window_closed_at = now
            if now >= recheck:
                recheck = now + RECHECK_SECONDS
                for pod in self._waiting():
                    if not is_daemon(pod) and not self._is_deferred(pod) and not self._is_planned(pod.uid):
                        self.trigger(pod.uid)
            if due:
                try:
                    self._run()
                except Exception:  # noqa: BLE001 - the thread outlives a pass that fails
                    _log.exception(messages.PROVISIONING_FAILED, seconds=RECHECK_SECONDS)
