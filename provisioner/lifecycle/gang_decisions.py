"""What becomes of the nodes that come for a gang, when some of them do not. Pure; times are seconds.

What is launched waits for the rest. Where something can be had for no member any more, its pods go elsewhere if there is room that costs little more;
else all nodes of the gang are given up in one step, so that no part of them is paid for in vain.
"""

import enum
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from provisioner.apis.gangs import group_of
from provisioner.scheduling.result import PlannedClaim
from provisioner.state.gang_places import ComingGang, ComingNode

SET_PATIENCE: Final = 20.0
"""For so long everything that a NodeClaim of a launch set allows was refused, again and again, before the set may give way."""
HOLD_SECONDS: Final = 300.0
"""For so long at most a launched node waits for the others of its set; a Node that did not come by then is replaced once."""


def usd_at_risk(prices: Sequence[float]) -> float:
    """What is paid at most for launched nodes that wait for one that does not come, in USD: all but the cheapest, for as long as nodes are held.

    Args:
        prices: of the new nodes that a gang needs together, in USD per hour.
    """
    return (sum(prices) - min(prices)) * HOLD_SECONDS / 3600 if prices else 0.0


class GangPurchase(NamedTuple):
    """New nodes that a gang needs together.

    Attributes:
        nodes: how many.
        pods: of the gang that are planned there.
        usd_per_hour: of all of them.
        usd_at_risk: as of the function.
    """

    nodes: int
    pods: int
    usd_per_hour: float
    usd_at_risk: float


def purchase(group: str, claims: Sequence[PlannedClaim]) -> GangPurchase:
    """What these new nodes of a gang come to. O(their pods)."""
    prices = [one.usd_per_hour for one in claims]
    pods = sum(group_of(pod) == group for one in claims for pod in one.pods)
    return GangPurchase(len(claims), pods, sum(prices), usd_at_risk(prices))


class GangTurn(enum.Enum):
    """What is to be done for a gang.

    WAIT: nothing.
    DROP: the named NodeClaims go, and the gang has what it needs without them.
    ASK: they go if there is room elsewhere for their pods; else everything is given up.
    REPLACE: their Nodes did not come; they go, and others take their place.
    GIVE_UP: all NodeClaims that the gang waits for go, as of `given_up`.
    """

    WAIT = enum.auto()
    DROP = enum.auto()
    ASK = enum.auto()
    REPLACE = enum.auto()
    GIVE_UP = enum.auto()


class GangDecision(NamedTuple):
    """What is to be done, and with which NodeClaims."""

    turn: GangTurn
    claims: tuple[str, ...] = ()


_WAIT: Final = GangDecision(GangTurn.WAIT)


def decide(gang: ComingGang, short: Collection[str], held: float, *, replaced: bool) -> GangDecision:
    """What is to be done now.

    Args:
        gang: where its pods have places.
        short: NodeClaims for which nothing can be had for long enough.
        held: for how long something that was launched for it has waited; 0 where nothing was.
        replaced: Nodes of it that did not come were replaced already.
    """
    if gang.rests and not gang.is_bound:
        left = given_up(gang)  # what could not be deleted at once
        return GangDecision(GangTurn.GIVE_UP, left) if left else _WAIT
    failing = [one for one in gang.nodes if one.claim.name in short and not one.launched]
    if failing:
        enough = gang.is_bound or gang.placed - sum(one.members for one in failing) >= gang.minimum
        turn = GangTurn.DROP if enough else GangTurn.ASK
        return GangDecision(turn, _names(failing))
    if held <= HOLD_SECONDS or gang.is_bound:
        return _WAIT
    late = [one for one in gang.nodes if not one.ready]
    if gang.has_places and not replaced and all(one.launched for one in gang.nodes):
        return GangDecision(GangTurn.REPLACE, _names(late)) if late else _WAIT
    claims = given_up(gang)
    return GangDecision(GangTurn.GIVE_UP, claims) if claims else _WAIT


def given_up(gang: ComingGang) -> tuple[str, ...]:
    """The NodeClaims that go where a gang is given up: those that have an instance, and pods of others, stay."""
    return _names([one for one in gang.nodes if not (one.begun and one.shared)])


def _names(nodes: Collection[ComingNode]) -> tuple[str, ...]:
    return tuple([one.claim.name for one in nodes])
