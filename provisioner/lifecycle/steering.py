"""Whether planned pods are nominated: not while an extender steers them to their nodes anyway.

A nomination is a write for each pod, and each is told to every watcher: a tenth of what it costs a control plane to get a
pod running. Measured, 1,000 pods on 2 cores: 20 s without, 24 s with nominations, all of them placed as planned either way.
"""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from provisioner.support.clock import Clock
from provisioner.values.bounded import forget_oldest

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
MOST_SCHEDULERS: Final = 16
"""Of which it is remembered how their pods landed, the latest; whoever creates a pod may name any."""


@dataclass(slots=True)
class _Judged:
    """What is known of one scheduler.

    Attributes:
        landed: whether its pods landed as planned without a nomination, the latest.
        pause: how long the extender is not relied on for it next time.
        paused_until: the extender is not relied on for it before.
    """

    landed: deque[bool] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))
    pause: float = PAUSE_SECONDS
    paused_until: float = float("-inf")


class Steering:
    """Judges by what is seen: an extender that is heard of but does not steer (the scheduler of the pods does not ask it) is not relied on.

    What is seen are the pods that were let in without a nomination though they might have had one, each scheduler's by themselves: where only some
    pods are given to the scheduler with the extender, those say nothing of the others. While all of a scheduler's pods are
    nominated nothing is seen, so an extender that was misjudged, or has been mended, gets another chance after a pause.

    Args:
        mode: "true" and "false" fix the answer, "auto" asks for it.
    """

    def __init__(self, mode: str, clock: Clock) -> None:
        self._mode, self._clock = mode, clock
        self._lock = threading.Lock()
        self._heard_at: float | None = None
        self._watched: dict[str, str] = {}  # UID -> name of its scheduler
        self._judged: dict[str, _Judged] = {}  # by scheduler, the one that was judged last at the end

    @property
    def learns(self) -> bool:
        """Whether it is worth telling what becomes of pods."""
        return self._mode == "auto"

    def heard(self) -> None:
        """An extender reported; an empty report is one too."""
        with self._lock:
            self._heard_at = self._clock.monotonic()

    def left(self, scheduler: str, uids: Iterable[str]) -> None:
        """These planned pods of a scheduler are let in without a nomination, and nothing but the extender was in its way."""
        with self._lock:
            for uid in uids:
                if len(self._watched) >= WATCHED:
                    return
                self._watched[uid] = scheduler

    def settled(self, uid: str, outcome: str) -> None:
        """A planned pod's wait ended (`PodSettled.outcome`); one that was bound tells whether the extender steers."""
        with self._lock:
            scheduler = self._watched.pop(uid, None)
            if scheduler is None or outcome not in ("planned", "absorbed"):
                return
            judged = self._judged[scheduler] = self._judged.pop(scheduler) if scheduler in self._judged else _Judged()
            forget_oldest(self._judged, MOST_SCHEDULERS)
            judged.landed.append(outcome == "planned")
            if judged.landed.count(False) >= MISLED:
                judged.paused_until = self._clock.monotonic() + judged.pause
                judged.pause = min(2 * judged.pause, LONGEST_PAUSE_SECONDS)
                judged.landed.clear()
                self._watched = {other: its for other, its in self._watched.items() if its != scheduler}
            elif len(judged.landed) == LOOKED_AT:
                judged.pause = PAUSE_SECONDS

    def steers(self, scheduler: str) -> bool:
        """Whether an extender leads the planned pods of a scheduler to their nodes now; where nobody learns that it does not, that is not relied on."""
        with self._lock:
            judged = self._judged.get(scheduler)
            return self._steers(() if judged is None else (judged,))

    def nominates(self, scheduler: str) -> bool:
        """Whether to nominate the pods of a scheduler now."""
        return self._mode != "false" and not self.steers(scheduler)

    def nominates_any(self) -> bool:
        """Whether to nominate the pods of some scheduler now."""
        with self._lock:
            return self._mode != "false" and not self._steers(self._judged.values())

    def _steers(self, judged: Iterable[_Judged]) -> bool:
        now = self._clock.monotonic()
        there = self.learns and self._heard_at is not None and now - self._heard_at <= HEARD_SECONDS
        return there and not any(now < one.paused_until for one in judged)
