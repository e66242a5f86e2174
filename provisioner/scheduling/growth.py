"""How fast, and how far, the fleet may grow: so many NodeClaims a minute, so many USD per hour. Pure.

Differs: Karpenter limits resources of one NodePool only; a fault that makes pods without end makes nodes without end there.
"""

import copy
import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, requirements_of
from provisioner.cloudprovider.types import NO_INSTANCES_PRICE, InstanceType, by_price, offering_price
from provisioner.values.requirement import RequirementError

WINDOW_SECONDS: Final = 60.0
_ROUNDING: Final = 1e-9  # USD per hour, of sums of prices
_PARTS: Final = 3


class Limit(enum.StrEnum):
    """Which limit binds; the name of its flag, if it has one."""

    CLAIMS = "max-claims-per-minute"
    USD = "max-usd-per-hour"
    NODE_POOL = "limits"
    """Of the NodePool itself: spec.limits, or the annotation dovetail.dev/max-usd-per-hour."""
    KARPENTER = "karpenter"
    """None of ours: another Karpenter leads."""


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
    """

    limit: Limit
    seconds: float | None = None
    resource: str = ""
    pool: str = ""
    unpriced: bool = False


class Growth:
    """What limits leave at one instant, of all NodePools or of one; `take` what is created. Not thread-safe.

    Invariant: what `refusal` allows and `take` takes never exceeds a limit, whatever the order.
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

    def refusal(self, usd_per_hour: float, elapsed: float = 0.0) -> HeldBack | None:
        """Why a NodeClaim of this price has to wait; None where it may be created.

        Args:
            usd_per_hour: its price.
            elapsed: seconds since the instant.
        """
        most = self._limits.claims_per_minute
        if most:
            young = [age + elapsed for age in self._ages if age + elapsed < WINDOW_SECONDS]
            if len(young) >= most:
                return HeldBack(Limit.CLAIMS, WINDOW_SECONDS - young[len(young) - most])
        if usd_per_hour > self.usd_left + _ROUNDING:
            return HeldBack(Limit.USD)
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


def usd_per_hour(claim: NodeClaim, types: Mapping[str, InstanceType]) -> float:
    """What the node of a NodeClaim costs: as launched, else as planned, else the least that it may come to be; 0 where nobody knows.

    Args:
        claim: it.
        types: of its NodePool, by name.
    """
    price = _usd_per_hour(claim, types)
    return 0.0 if price is None or price >= NO_INSTANCES_PRICE else price


def lacks_price(claim: NodeClaim, types: Mapping[str, InstanceType]) -> bool:
    """Whether no price is known of what it is or may come to be: limits count its node as free, so whoever limits has to be told."""
    price = _usd_per_hour(claim, types)
    return price is not None and price >= NO_INSTANCES_PRICE


def _usd_per_hour(claim: NodeClaim, types: Mapping[str, InstanceType]) -> float | None:
    """Infinite where its types are known and their prices are not; None where its types are not."""
    labels = claim.metadata.labels
    launched = [labels.get(key, "") for key in (names.INSTANCE_TYPE_LABEL, names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL)]
    planned = claim.metadata.annotations.get(names.PLANNED_OFFERING_ANNOTATION, "").split("/")
    for offering in (launched, planned):
        if len(offering) == _PARTS and all(offering) and (kind := types.get(offering[0])) is not None:
            price = offering_price(kind, offering[1], offering[2])
            if price is not None and price >= 0:  # not NaN
                return price
    if all(launched):
        return math.inf if launched[0] in types else None
    try:
        cheapest = by_price(types.values(), requirements_of(claim.spec.requirements))
    except RequirementError:
        return None
    return cheapest[0][1].price if cheapest else None
