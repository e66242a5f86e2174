"""Whether a fleet that somebody proposes may take the place of scheduling's answer; loads no numpy, so every program may ask it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.improvement.granted import granted
from provisioner.scheduling.judging import Design, DesignedNode, Fault, designed
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import PlannedClaim, Result

NEAR: Final = 1.005
"""Scheduling's answer is good enough at so much of the least price that scheduling itself can prove."""
EPSILON_USD: Final = 1e-9
"""USD per hour: by less than this no fleet is cheaper than another."""


def is_near(result: Result) -> bool:
    """Whether scheduling's answer is so near its own bound that nobody looks for a cheaper one. Cost: that of the bound."""
    least = result.usd_at_least
    return least is not None and result.usd_per_hour <= least * NEAR


def taken(
    prepared: Prepared,
    result: Result,
    kept: Sequence[PlannedClaim],
    nodes: Sequence[DesignedNode],
) -> tuple[Result, tuple[Fault, ...]]:
    """The cheaper of two answers to one question, where the other one is legal.

    Args:
        prepared: the world that `result` is about.
        result: scheduling's.
        kept: claims of it that stay as they are.
        nodes: instead of all the others; as a whole they are judged by scheduling, with what stays beside them, and
            with the wishes that `result` granted as demands.

    Returns:
        The fleet as a result, or `result` itself: where the fleet is not legal (with the faults), costs more, or is worth no less with the
        NodePools' penalties for nodes. Never dearer than `result`.

    Cost: about what solving cost.
    """
    own = granted(prepared, prepared.setting(result.placed), result)
    found, faults = settled(prepared, None if own is None else own.setting, result, kept, nodes)
    return (found if found is not None and is_cheaper(prepared, found, result) else result), faults


def settled(
    prepared: Prepared,
    setting: Setting | None,
    result: Result,
    kept: Sequence[PlannedClaim],
    nodes: Iterable[DesignedNode],
) -> tuple[Result | None, tuple[Fault, ...]]:
    """The answer with these nodes instead of all claims but `kept`; None, and the faults, where it is not legal under the demands of `setting`."""
    verdict, claims = prepared.settle(Design((*designed(kept), *nodes), result.existing), setting)
    if not verdict.legal:
        return None, verdict.faults
    return replace(result, claims=(*kept, *claims[len(kept) :])), ()


def is_cheaper(prepared: Prepared, found: Result, than: Result) -> bool:
    """Whether an answer is worth less with the NodePools' penalties for nodes, and no dearer without."""
    better = weighed(prepared, found.claims) < weighed(prepared, than.claims) - EPSILON_USD
    return better and found.usd_per_hour <= than.usd_per_hour


def weighed(prepared: Prepared, claims: Iterable[PlannedClaim]) -> float:
    """What nodes cost, in USD per hour, with the penalty of their NodePools for each."""
    penalties = {pool.name: pool.node_penalty for pool in prepared.world.pools}
    return sum(one.usd_per_hour + penalties[one.pool] for one in claims)
