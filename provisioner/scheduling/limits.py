"""What a NodePool may still buy while claims are being planned."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from provisioner.apis.names import NODES
from provisioner.cloudprovider.types import InstanceType
from provisioner.values.resources import Resources

Charge = Mapping[str, int]
"""Amounts by limited resource; what one claim is counted with."""


class Ledger:
    """The limits of one pool, less everything that was charged.

    Invariant: what remains of a resource is never below 0 after a charge that `allowed` admitted.

    Differs: Karpenter charges the largest capacity of all types that a claim may become, and so needs several rounds
    to use a limit up. Here a claim is charged with what it is planned to be, and types beyond the limit are struck
    from its list. Source: design.md 3b.10.
    """

    def __init__(self, remaining: Resources, instance_types: Sequence[InstanceType]) -> None:
        self.remaining: Final[dict[str, int]] = dict(remaining)
        self.loosened = False
        self._types: Final = instance_types
        self._steps: Final = {name: self._step(name) for name in self.remaining}

    def _amount(self, row: int, name: str) -> int:
        return 1 if name == NODES else self._types[row].capacity.amount(name)

    def _step(self, name: str) -> tuple[list[int], list[int]]:
        """Distinct capacities, ascending, and for each the types with at most that much."""
        by_amount: dict[int, int] = {}
        for row in range(len(self._types)):
            amount = self._amount(row, name)
            by_amount[amount] = by_amount.get(amount, 0) | 1 << row
        amounts = sorted(by_amount)
        masks, mask = [], 0
        for amount in amounts:
            mask |= by_amount[amount]
            masks.append(mask)
        return amounts, masks

    def within(self, name: str, amount: int) -> int:
        """Types with at most `amount` of one limited resource."""
        amounts, masks = self._steps[name]
        position = bisect_right(amounts, amount)
        return masks[position - 1] if position else 0

    def allowed(self, charge: Charge) -> int:
        """Types that a claim may become which is charged with `charge` already ({} for one to be opened)."""
        mask = (1 << len(self._types)) - 1
        for name, remaining in self.remaining.items():
            mask &= self.within(name, remaining + charge.get(name, 0))
        return mask

    def charge_of(self, rows: Sequence[int]) -> dict[str, int]:
        """The charge that covers every type in `rows`: the largest amount of each limited resource."""
        return {name: max(self._amount(row, name) for row in rows) for name in self.remaining}

    def replace(self, old: Charge, new: Charge) -> None:
        """Take one claim's charge back and put another in its place."""
        for name in self.remaining:
            change = new.get(name, 0) - old.get(name, 0)
            self.remaining[name] -= change
            if change < 0:
                self.loosened = True

    def smallest(self, name: str, rows: Sequence[int]) -> int:
        """The least amount of one limited resource that any of `rows` needs."""
        return min(self._amount(row, name) for row in rows)
