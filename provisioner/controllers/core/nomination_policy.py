"""Whether planned pods are nominated: not while an extender steers them to their nodes anyway.

A nomination is a write for each pod, and each is told to every watcher: a tenth of what it costs a control plane to get a
pod running. Measured, 1,000 pods on 2 cores: 20 s without, 24 s with nominations, all of them placed as planned either way.
"""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

from provisioner.support.clock import Clock

HEARD_SECONDS: Final = 10.0
"""How long after its last report an extender counts as there; it reports every three seconds."""
LOOKED_AT: Final = 100
MISLED: Final = 6
"""So many of the last `LOOKED_AT` pods that landed elsewhere tell that the extender does not steer."""
PAUSE_SECONDS: Final = 60.0
"""How long an extender that did not steer is not relied on, the first time; twice as long each time after that."""
LONGEST_PAUSE_SECONDS: Final = 960.0
WATCHED: Final = 10_000
"""Pods whose landing is waited for at once; it takes far fewer to judge."""


class Steering:
    """Judges by what is seen: an extender that is heard of but does not steer (no scheduler asks it) is not relied on.

    What is seen are the pods that were let in without a nomination though they might have had one. While all of them are
    nominated nothing is seen, so an extender that was misjudged, or has been mended, gets another chance after a pause.

    Args:
        mode: "true" and "false" fix the answer, "auto" asks for it.
    """

    def __init__(self, mode: str, clock: Clock) -> None:
        self._mode, self._clock = mode, clock
        self._lock = threading.Lock()
        self._heard_at: float | None = None
        self._watched: set[str] = set()
        self._landed: deque[bool] = deque(maxlen=LOOKED_AT)
        self._pause = PAUSE_SECONDS
        self._paused_until: float | None = None

    @property
    def learns(self) -> bool:
        """Whether it is worth telling what becomes of pods."""
        return self._mode == "auto"

    def heard(self) -> None:
        """An extender reported; an empty report is one too."""
        with self._lock:
            self._heard_at = self._clock.monotonic()

    def left(self, uids: Iterable[str]) -> None:
        """These planned pods are let in without a nomination, and nothing but the extender was in its way."""
        with self._lock:
            for uid in uids:
                if len(self._watched) >= WATCHED:
                    return
                self._watched.add(uid)

    def settled(self, uid: str, outcome: str) -> None:
        """A planned pod's wait ended (`PodSettled.outcome`); one that was bound tells whether the extender steers."""
        with self._lock:
            if uid not in self._watched:
                return
            self._watched.discard(uid)
            if outcome not in ("planned", "absorbed"):
                return
            self._landed.append(outcome == "planned")
            if self._landed.count(False) >= MISLED:
                self._paused_until = self._clock.monotonic() + self._pause
                self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
                self._landed.clear()
                self._watched.clear()
            elif len(self._landed) == LOOKED_AT:
                self._pause = PAUSE_SECONDS

    def nominates(self) -> bool:
        """Whether to nominate now."""
        if self._mode != "auto":
            return self._mode == "true"
        now = self._clock.monotonic()
        with self._lock:
            there = self._heard_at is not None and now - self._heard_at <= HEARD_SECONDS
            paused = self._paused_until is not None and now < self._paused_until
            return not there or paused
