"""What is known of attempts: in whose hands each is, whether it is spent, and the search for one whose answer was lost."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.karpenter import NodeClaim
from provisioner.ec2.instances.instances import Ec2Instance
from provisioner.ec2.launch import recovery
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.launch.orders import Order
from provisioner.ec2.launch.recovery import Evidence, RecoveryStep
from provisioner.support.clock import Clock
from provisioner.values.bounded import forget_oldest, put_newest

_OFTEN_SECONDS, _RARELY = 20.0, 3.0
_MAX_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class SentOrder:
    """A call whose answer did not come, or did not tell."""

    order: Order
    count: int


@dataclass(slots=True)
class _Search:
    """The search for the instances of an attempt.

    Attributes:
        began: when it was first looked for.
        ids: what EC2 describes, and since when the same.
        told: whether the same call was sent again, and its answer did not tell.
    """

    began: float
    ids: tuple[str, ...]
    since: float
    told: bool = False


class MarkBook:
    """Attempts by their tags; thread-safe. `look` and patience are those of `Launcher`."""

    def __init__(self, clock: Clock, look: float, patience: float) -> None:
        self._clock, self.look, self._patience = clock, look, patience
        self._lock = threading.Lock()
        self._spent: dict[str, None] = {}
        self._busy: set[str] = set()  # somebody works on it
        self._sent: dict[str, SentOrder] = {}
        self._searches: dict[str, _Search] = {}

    def hold(self, tag: str) -> bool:
        """Take an attempt into one's hands; False where somebody else has it."""
        with self._lock:
            if tag in self._busy:
                return False
            self._busy.add(tag)
            return True

    def let_go(self, tag: str) -> None:
        """Give it out of one's hands."""
        with self._lock:
            self._busy.discard(tag)

    def is_spent(self, tag: str) -> bool:
        """Whether nothing more will come of it."""
        with self._lock:
            return tag in self._spent

    def spend(self, tag: str) -> None:
        """What became of this attempt is known: nobody has to ask for it again."""
        with self._lock:
            put_newest(self._spent, tag, None, _MAX_KEPT)
            self._sent.pop(tag, None)
            self._searches.pop(tag, None)

    def sent(self, tag: str, order: Order, count: int) -> None:
        """A call is sent whose answer may be lost."""
        with self._lock:
            put_newest(self._sent, tag, SentOrder(order, count), _MAX_KEPT)

    def has_told(self, tag: str) -> None:
        """The same call was sent again, and need not be sent once more."""
        with self._lock:
            search = self._searches.get(tag)
            if search is not None:
                search.told = True

    def next_step(
        self, tag: str, everybody: Mapping[Mark, NodeClaim], seen: Sequence[Ec2Instance]
    ) -> tuple[RecoveryStep, SentOrder | None, float]:
        """What to do about an attempt, the call of this process that it is about, and how soon to look again."""
        ids, now = tuple(one.id for one in seen), self._clock.monotonic()
        launched = [one.launched for one in seen if one.launched is not None]
        with self._lock:
            search = self._searches.get(tag)
            if search is None:
                search = self._searches[tag] = _Search(now, ids, now)
                forget_oldest(self._searches, _MAX_KEPT)
            elif search.ids != ids:
                search.ids, search.since = ids, now
            sent = self._sent.get(tag)
            known = Evidence(
                frozenset(mark.ordinal for mark in everybody),
                0 if sent is None else sent.count,
                len(seen),
                now - search.since,
                now - search.began,
                (self._clock.now() - max(launched)).total_seconds() if launched else 0.0,
                search.told,
            )
        soon = known.searched_seconds < _OFTEN_SECONDS
        return recovery.next_step(known, self._patience), sent, self.look if soon else _RARELY * self.look
