"""Which NodeClaims certainly have no instance and are not being launched, so that their pods may be planned again. Not thread-safe.

A claim is idle from its announcement until somebody asks to launch it, and again once its provider said that there is none. Only claims that this
process announced are ever idle: what another leader began for the others, nobody here knows. Times are monotonic seconds.
"""

import enum
from collections.abc import Iterable
from typing import Final

from provisioner.values.bounded import forget_oldest

MOST_TIMES: Final = 3
"""So often the pods of a claim are planned again before a launch of theirs is tried to its end."""
_MOST_PODS: Final = 200_000


class Launch(enum.Enum):
    """Whether a claim may be launched now."""

    BEGIN = "begin"
    HELD = "held"
    """Its pods are being planned again: ask a little later."""
    UNNEEDED = "unneeded"
    """Nobody needs it any more."""


class Launches:
    """See the module."""

    def __init__(self) -> None:
        self._idle: dict[str, float] = {}  # until when nobody may launch it
        self._announced: set[str] = set()
        self._refused: set[str] = set()  # nothing was begun since
        self._times: dict[str, int] = {}  # pod UID -> how often it was planned again

    def announced(self, claim: str) -> None:
        """It is about to be created."""
        self._announced.add(claim)
        self._idle[claim] = 0.0

    def begins(self, claim: str, now: float) -> bool:
        """Whether it may be launched; then it is not idle any more."""
        if self._idle.get(claim, 0.0) > now:
            return False
        self._idle.pop(claim, None)
        self._refused.discard(claim)
        return True

    def refused(self, claim: str) -> None:
        """The provider said that it has no instance for it, and that none will come of what was asked."""
        self._refused.add(claim)
        if claim in self._announced:
            self._idle[claim] = 0.0

    def gone(self, claim: str) -> None:
        """It does not exist any more, or somebody else's has its name."""
        self._idle.pop(claim, None)
        self._announced.discard(claim)
        self._refused.discard(claim)

    def is_ours(self, claim: str) -> bool:
        """Whether this process announced it."""
        return claim in self._announced

    def is_refused(self, claim: str) -> bool:
        """Whether its provider said that there is no instance, and nothing was begun since."""
        return claim in self._refused

    def idle(self) -> list[str]:
        """By name."""
        return sorted(self._idle)

    def hold(self, claims: Iterable[str], until: float) -> None:
        """Nobody launches these before; 0 lets them go."""
        for claim in claims:
            if claim in self._idle:
                self._idle[claim] = until

    def is_held(self, claim: str, now: float) -> bool:
        """Whether nobody can have begun to launch it since it was held."""
        return self._idle.get(claim, 0.0) > now

    def may_move(self, uids: Iterable[str]) -> bool:
        """Whether none of these pods was planned again too often."""
        return all(self._times.get(uid, 0) < MOST_TIMES for uid in uids)

    def moved(self, uids: Iterable[str]) -> None:
        """These pods are planned again."""
        for uid in uids:
            self._times[uid] = self._times.pop(uid, 0) + 1
        forget_oldest(self._times, _MOST_PODS)

    def settled(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._times.pop(uid, None)
