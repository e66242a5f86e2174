"""What a NodePool may still buy while claims are being planned."""

from collections.abc import Mapping, Sequence
from typing import Final

from provisioner.scheduling.capacity.catalogue import Catalogue
from provisioner.values.resources import Resources

Charge = Mapping[str, int]
"""Amounts by limited resource; what one claim is counted with."""


class LimitLedger:
    """The limits of one pool, less everything that was charged.

    Invariant: what remains of a resource is never below 0 after a charge that `allowed` admitted.

    Differs: Karpenter charges the largest capacity of all types that a claim may become, and so needs several rounds
    to use a limit up. Here a claim is charged with what it is planned to be, and its list is cut to that and its share of
    what remains (`shares`). Source: design.md 3b.10.
    """

    def __init__(self, remaining: Resources, catalogue: Catalogue) -> None:
        self.remaining: Final[dict[str, int]] = dict(remaining)
        self.loosened = False
        self._catalogue: Final = catalogue

    def within(self, name: str, amount: int) -> int:
        """Types with at most `amount` of one limited resource."""
        return self._catalogue.within(name, amount)

    def allowed(self, charge: Charge) -> int:
        """Types that a claim may become which is charged with `charge` already ({} for one to be opened)."""
        mask = self._catalogue.everything
        for name, remaining in self.remaining.items():
            mask &= self.within(name, remaining + charge.get(name, 0))
        return mask

    def charge_of(self, rows: Sequence[int]) -> dict[str, int]:
        """The charge that covers every type in `rows`: the largest amount of each limited resource."""
        return {name: max(self._catalogue.amount(row, name) for row in rows) for name in self.remaining}

    def replace(self, old: Charge, new: Charge) -> None:
        """Take one claim's charge back and put another in its place."""
        for name in self.remaining:
            change = new.get(name, 0) - old.get(name, 0)
            self.remaining[name] -= change
            if change < 0:
                self.loosened = True

    def smallest(self, name: str, rows: Sequence[int]) -> int:
        """The least amount of one limited resource that any of `rows` needs."""
        return min(self._catalogue.amount(row, name) for row in rows)


def shares(remaining: Mapping[str, int], claims: int) -> dict[str, int]:
    """How much more than its charge each claim may come to be, by limited resource.

    Together at most half of what remains: whatever types are launched, the limits are kept, and until they are launched
    the next plan finds something left.
    """
    return {name: max(0, amount) // (2 * claims) for name, amount in remaining.items()}


class Slack:
    """Whether limits are so far away that nobody has to look at them.

    What a claim will be charged is bounded from what its pods take: it is planned as the cheapest type that fits, and
    the cheapest type that fits little is little. So, along types of rising price, each at least as large as the one before,
    a charge is at most `base` and so much for each unit of what its pods take. Types that break the order make the
    bound the largest type's amount. Room for one of the largest must be left, so that no list of types has to be cut.
    """

    def __init__(self, remaining: Mapping[str, int]) -> None:
        self._remaining: Final = dict(remaining)
        self._base: Final = dict.fromkeys(remaining, 0)
        self._slopes: Final[dict[str, tuple[float, ...]]] = {}
        self._largest: Final = dict.fromkeys(remaining, 0)
        self._known: Final[set[object]] = set()
        self._linear = True

    def knows(self, state: object) -> bool:
        """Whether a state was learnt."""
        return state in self._known

    def learn(self, state: object, stairs: "Stairs | None", largest: Mapping[str, int]) -> None:
        """Claims may come to be in one more state, whose bound this is; None where there is no linear one."""
        self._known.add(state)
        for name in self._remaining:
            self._largest[name] = max(self._largest[name], largest[name])
        if stairs is None:
            self._linear = False
            return
        for name in self._remaining:
            base, slopes = stairs[name]
            self._base[name] = max(self._base[name], base)
            known = self._slopes.get(name)
            self._slopes[name] = slopes if known is None else tuple(map(max, known, slopes))

    def covers(self, claims: int, used: Sequence[int]) -> bool:
        """Whether no limit can bind while there are at most so many claims whose pods take `used` together."""
        for name, remaining in self._remaining.items():
            if claims * self._largest[name] <= remaining:
                continue
            if not self._linear or name not in self._slopes:
                return False
            bound = claims * self._base[name] + sum(map(float.__mul__, self._slopes[name], map(float, used)))
            # any one of them may come to be the largest type; an infinite slope times nothing is no number
            if not bound + self._largest[name] <= remaining:
                return False
        return True


Stairs = Mapping[str, tuple[int, tuple[float, ...]]]
"""By limited resource: the base of a claim's charge, and by dimension the most that a unit adds to it."""


def stairs_of(
    names: Sequence[str], rooms: Sequence[Sequence[int]], charges: Sequence[Mapping[str, int]]
) -> Stairs | None:
    """The bound of `Slack` from types in order of price; None where the largest type is not the last stair.

    Args:
        names: the limited resources.
        rooms: what each type has for pods.
        charges: what each type is charged with.
    """
    chain: list[int] = []
    for number, room in enumerate(rooms):
        if not chain or all(map(int.__ge__, room, rooms[chain[-1]])):
            chain.append(number)
    if not chain or any(any(a > b for a, b in zip(room, rooms[chain[-1]], strict=True)) for room in rooms):
        return None
    stairs = {}
    for name in names:
        highest, tops = 0, []
        for number, charge in enumerate(charges):
            highest = max(highest, charge[name])
            if number in chain:
                tops.append(highest)
        slopes = [0.0] * len(rooms[0])
        for step, number in enumerate(chain[:-1]):
            for d, amount in enumerate(rooms[number]):
                rise = tops[step + 1] - tops[0]
                if rise > 0:
                    if amount <= 0:
                        slopes[d] = float("inf")
                    else:
                        slopes[d] = max(slopes[d], rise / amount)
        stairs[name] = (tops[0], tuple(slopes))
    return stairs
