"""The one ledger of disruption budgets: whoever wants to take nodes away voluntarily asks here, and two never spend the same allowance."""

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from provisioner.disruption.budgets import AllowanceLedger
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import Snapshot

T = TypeVar("T")


class BudgetLedger:
    """Decides one after another, each on a fresh snapshot. Thread-safe.

    What commands have taken is in every snapshot; what others take counts from `take` until the snapshot shows it.

    Args:
        most: nodes of all pools together that may be disrupted at once; 0 for no such limit.
    """

    def __init__(self, cluster: Cluster, *, most: int = 0) -> None:
        self._cluster, self._most = cluster, most
        self._lock = threading.Lock()
        self._taken: set[str] = set()

    def at(self, snapshot: Snapshot) -> AllowanceLedger:
        """What budgets leave at an instant, for those who only plan; what they propose is admitted later."""
        with self._lock:
            return AllowanceLedger(snapshot, frozenset(self._taken), most=self._most)

    def admit(
        self,
        wanted: Iterable[T],
        claims: Callable[[T], Iterable[str]],
        reason: Callable[[T], str],
        begin: Callable[[T], bool],
        *,
        seized: Callable[[T], bool] = lambda _: False,
    ) -> list[T]:
        """Begin, in this order, whatever budgets allow.

        Args:
            wanted: what is proposed.
            claims: the NodeClaims that it takes, by name.
            reason: one of `names.BUDGET_REASONS`.
            begin: marks these NodeClaims in the state; False where it does not come to be. It makes no call and asks for no budget.
            seized: whether the state does not show yet that it has begun: its NodeClaims count as taken until they are released.

        Returns:
            Those that were begun.

        Cost: O(nodes), and O(budgets) for each.
        """
        items = list(wanted)
        if not items:
            return []
        begun = []
        with self._lock:
            ledger = self._fresh()
            for one in items:
                names = tuple(claims(one))
                if not ledger.refusal(names, reason(one)) and begin(one):
                    ledger.spend(names)
                    self._taken.update(names if seized(one) else ())
                    begun.append(one)
        return begun

    def take(self, claim: str, reason: str) -> bool:
        """Take one node away that no command is about; whether its budgets allow it. `release` it once the state shows it going.

        A pool that is gone has no budgets.
        """
        with self._lock:
            ledger = self._fresh()
            refused = ledger.refusal((claim,), reason)
            if refused and ledger.knows(refused):
                return False
            self._taken.add(claim)
            return True

    def seize(self, claim: str) -> None:
        """Take one node away that no budget can keep; those who ask count it from now on. `release` it once the state shows it going."""
        with self._lock:
            self._taken.add(claim)

    def release(self, claim: str) -> None:
        """The state shows what became of it."""
        with self._lock:
            self._taken.discard(claim)

    def _fresh(self) -> AllowanceLedger:
        return AllowanceLedger(self._cluster.snapshot(), self._taken, most=self._most)
