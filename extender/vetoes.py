"""Preemptions that were put off, so that none is put off twice for the same reason. No I/O, no clock.

A veto is a guess that room will come another way. kube-scheduler tries the pod again at the next event that concerns it; if
the room has not come by then, the guess was wrong, and priorities are worth more than our plan. So a pod and its plan have one veto,
and one more once the planned Node has joined, which stands for `JOINED_SECONDS`: until the room is there, the Node loses its
startup taints one by one, and each change makes kube-scheduler try the pod again, within milliseconds since it empties its
backoff queue when it has nothing else to do (1.33). A pod that is planned anew again and again has `MAX_VETOES_OF_A_POD` in all.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

MAX_VETOES: Final = 10_000
MAX_VETOES_OF_A_POD: Final = 3
"""While it waits: both of its first plan, and one of a plan that took that one's place."""
JOINED_SECONDS: Final = 30.0
"""As long as a Node usually takes from joining to being ready."""
SETTLE_SECONDS: Final = 10.0
"""How long a veto is kept although no watch told of its pod: kube-scheduler's may be ahead of ours."""


class Veto(NamedTuple):
    """What may be put off once.

    Attributes:
        uid: of the pod that would preempt.
        plan: NodeClaim or Node that its place is on; "" where it has none and only held room speaks against it.
        joined: whether the planned Node is there.
    """

    uid: str
    plan: str
    joined: bool = False


class Vetoes:
    """Bounded, and failing open: beyond `MAX_VETOES`, beyond `MAX_VETOES_OF_A_POD`, and before `begin`, nothing is put off.

    Not thread-safe: the owner serialises calls, together with those of the plan table.
    """

    def __init__(self) -> None:
        self._spent: dict[Veto, float] = {}
        self._of_pod: Counter[str] = Counter()
        self._before_us: frozenset[str] | None = None

    def __len__(self) -> int:
        return len(self._spent)

    def __contains__(self, veto: object) -> bool:
        return veto in self._spent

    def begin(self, plans: Iterable[str]) -> None:
        """These plans were there before us: whoever answered then may have spent their vetoes. Only the first call counts."""
        if self._before_us is None:
            self._before_us = frozenset(plans)

    def spend(self, veto: Veto, now: float) -> bool:
        """Whether this preemption may be put off; asked again, it may not, unless its Node joined less than `JOINED_SECONDS` before.

        Args:
            veto: who asks, and what for.
            now: of the monotonic clock.
        """
        if self._before_us is None or veto.plan in self._before_us:
            return False
        if (spent := self._spent.get(veto)) is not None:
            return veto.joined and now - spent < JOINED_SECONDS
        if len(self._spent) >= MAX_VETOES or self._of_pod[veto.uid] >= MAX_VETOES_OF_A_POD:
            return False
        self._spent[veto] = now
        self._of_pod[veto.uid] += 1
        return True

    def forget(self, waits: Callable[[str], bool], now: float) -> None:
        """Forget the vetoes of pods, asked for by UID, that do not wait any longer: they will not come again."""
        self._spent = {
            veto: spent for veto, spent in self._spent.items() if waits(veto.uid) or now - spent < SETTLE_SECONDS
        }
        self._of_pod = Counter(veto.uid for veto in self._spent)
