"""When an instance that EC2 does not describe counts as gone. Pure but for its memory.

What EC2 describes lags behind what there is, by minutes at worst, and an answer may lack what an earlier one had. So one answer without an instance
says nothing: it must be missing from several complete answers in a row, over minutes. That EC2 shows it as terminated is another matter, and
needs no patience.

Source: Amazon EC2 Developer Guide, eventual-consistency ("InvalidInstanceID.NotFound" does not mean that there is none; up to five minutes).
Differs: Karpenter takes the first answer for it, in its garbage collection (`List`) and its termination (`Get`).
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from provisioner.values.bounded import forget_oldest

ABSENT_SECONDS: Final = 300.0
"""An instance must have been missing for so long, without a break."""

LEAST_ANSWERS: Final = 3
"""And from so many answers."""

_MAX_KEPT: Final = 16_384


@dataclass(slots=True)
class _Missing:
    """Since when an instance is missing, and when that was last counted."""

    since: float
    counted: float
    answers: int = 1


class Absences:
    """What was missing from EC2's answers lately; thread-safe.

    A new process knows nothing, and begins to count anew.

    Args:
        patience: seconds, see `ABSENT_SECONDS`; answers that follow each other within a tenth of it count once.
    """

    def __init__(self, patience: float = ABSENT_SECONDS) -> None:
        self.patience = patience
        self._lock = threading.Lock()
        self._missing: dict[str, _Missing] = {}

    def seen(self, ids: Iterable[str]) -> None:
        """EC2 describes these."""
        with self._lock:
            for one in ids if self._missing else ():
                self._missing.pop(one, None)

    def missed(self, instance_id: str, now: float) -> bool:
        """A complete answer lacks this one; whether it counts as gone.

        Args:
            instance_id: that was asked for.
            now: when it was asked for, on the monotonic clock.
        """
        with self._lock:
            known = self._missing.setdefault(instance_id, _Missing(now, now))
            if now - known.counted >= self.patience / 10:
                known.answers += 1
                known.counted = now
            forget_oldest(self._missing, _MAX_KEPT)
            return known.answers >= LEAST_ANSWERS and now - known.since >= self.patience
