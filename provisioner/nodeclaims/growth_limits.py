"""How fast, and how far, the fleet may grow: so many NodeClaims a minute, so many USD per hour.

Differs: Karpenter limits resources of one NodePool only; a fault that makes pods without end makes nodes without end there.
"""

import copy
import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from provisioner.values.message import Said

WINDOW_SECONDS: Final = 60.0
_ROUNDING: Final = 1e-9  # USD per hour, of sums of prices


class GrowthLimit(enum.StrEnum):
    """Which limit binds; the name of its flag, if it has one."""

    CLAIMS = "max-claims-per-minute"
    USD = "max-usd-per-hour"
    NODE_POOL = "limits"
    """Of the NodePool itself: spec.limits, or the annotation dovetail.dev/max-usd-per-hour."""
    KARPENTER = "karpenter"
    """None of ours: another Karpenter leads."""
    PAUSED = "paused"
    """Launches are paused."""


@dataclass(frozen=True, slots=True)
class GrowthLimits:
    """What a set of nodes may grow to; 0 limits nothing.

    Attributes:
        claims_per_minute: NodeClaims created in any 60 seconds.
        usd_per_hour: price of all nodes together.
    """

    claims_per_minute: int = 0
    usd_per_hour: float = 0.0

    @property
    def none(self) -> bool:
        """Whether nothing is limited."""
        return not self.claims_per_minute and not self.usd_per_hour


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Why one more NodeClaim has to wait.

    Attributes:
        limit: which limit binds.
        seconds: until it allows one more, if nothing else is created; None where only a node that goes makes room.
        resource: of which a NodePool has too little left; "" for the other limits.
        unpriced: whether it has to wait because nobody knows its price.
        nodes: how many NodeClaims were asked for as one.
    """

    limit: GrowthLimit
    seconds: float | None = None
    resource: str = ""
    pool: str = ""
    unpriced: bool = False
    nodes: int = 1

    @property
    def is_for_all(self) -> bool:
        """Whether no other NodeClaim, of any price or NodePool, may be created either."""
        paused = self.limit is GrowthLimit.PAUSED and not self.pool
        return paused or self.limit in (GrowthLimit.CLAIMS, GrowthLimit.KARPENTER)


class HeldBackError(Exception):
    """A NodeClaim may not be created now; `held` says for how long, `closed` that another Karpenter leads or what pauses launches."""

    def __init__(self, held: HeldBack, limits: GrowthLimits, closed: str = "") -> None:
        super().__init__(held, limits, closed)
        self.held, self.limits, self.closed = held, limits, closed

    def __str__(self) -> str:
        if self.closed:
            return self.closed
        if self.held.limit is GrowthLimit.CLAIMS:
            return Said(
                "no more NodeClaims are created for now, because --max-claims-per-minute is "
                f"{self.limits.claims_per_minute}; it is planned again as soon as the limit allows it"
            )
        if self.held.limit is GrowthLimit.NODE_POOL:
            return Said(
                f"other NodeClaims used up the limit on {self.held.resource} of NodePool {self.held.pool} in the "
                "meantime; it is planned again"
            )
        if self.held.unpriced:
            return Said(
                f"no NodeClaim of NodePool {self.held.pool} is created for instance types without a known price, "
                "because the price of nodes is limited (--max-usd-per-hour, or dovetail.dev/max-usd-per-hour on the "
                "NodePool); allow other instance types, or remove the limit"
            )
        return Said(
            "no NodeClaim of this price is created, because all nodes together may cost "
            f"${self.limits.usd_per_hour:g} per hour (--max-usd-per-hour); raise the flag, or remove workloads"
        )


class Growth:
    """What limits leave at one instant, of all NodePools or of one; `take` what is created. Not thread-safe.

    Invariant: what `refusal` allows and `take` takes never exceeds a limit, whatever the order, but for NodeClaims that are needed together: of more
    than may be created in a minute, those beyond count for the minutes that follow.
    """

    def __init__(self, limits: GrowthLimits, ages: Iterable[float], usd_per_hour: float) -> None:
        """Of an instant.

        Args:
            limits: that hold.
            ages: seconds since each NodeClaim was created; negative ones (another clock) count as 0.
            usd_per_hour: what all nodes that count cost, those to come included.
        """
        self._limits: Final = limits
        self._ages: Final = sorted((max(0.0, age) for age in ages if age < WINDOW_SECONDS), reverse=True)
        self._usd = usd_per_hour

    def refusal(self, usd_per_hour: float, elapsed: float = 0.0, claims: int = 1) -> HeldBack | None:
        """Why NodeClaims of this price have to wait; None where they may be created as one.

        More than may be created in a minute wait until none was.

        Args:
            usd_per_hour: their price together.
            elapsed: seconds since the instant.
            claims: how many.
        """
        most = self._limits.claims_per_minute
        if most:
            young = [age + elapsed for age in self._ages if age + elapsed < WINDOW_SECONDS]
            over = len(young) - max(0, most - claims)
            if over > 0:
                return HeldBack(GrowthLimit.CLAIMS, WINDOW_SECONDS - young[over - 1])
        if usd_per_hour > self.usd_left + _ROUNDING:
            return HeldBack(GrowthLimit.USD)
        return None

    def refusals(self, prices: Iterable[float], elapsed: float = 0.0) -> list[HeldBack | None]:
        """As `refusal`, of NodeClaims of these prices that are created one after another where they may be; nothing is taken."""
        then, found = copy.deepcopy(self), []
        for price in prices:
            found.append(then.refusal(price, elapsed))
            if found[-1] is None:
                then.take(price, elapsed)
        return found

    @property
    def usd_left(self) -> float:
        """What further nodes may cost, in USD per hour; infinite without such a limit."""
        return self._limits.usd_per_hour - self._usd if self._limits.usd_per_hour else math.inf

    def free(self, usd_per_hour: float) -> None:
        """A node of this price counts no more."""
        self._usd -= usd_per_hour

    def take(self, usd_per_hour: float, elapsed: float = 0.0) -> None:
        """One NodeClaim of this price is created, so many seconds after the instant."""
        self._ages.append(-elapsed)
        self._usd += usd_per_hour

    def counted_after(self, number: int) -> float:
        """Seconds after its creation from which a NodeClaim counts, of many that are created as one: more than may be in a minute take those that follow."""
        most = self._limits.claims_per_minute
        return WINDOW_SECONDS * (number // most) if most else 0.0
