"""Batch windows as an observer can know them: from the times at which pods appeared."""

import math
from collections.abc import Iterable, Mapping

IDLE_SECONDS = 1.0
MAX_SECONDS = 10.0


def last_window_end(added: Iterable[float]) -> float:
    """When the last of the batch windows closes that pods appearing at these times, at least one, make.

    A window opens with a pod, closes once no other came for `IDLE_SECONDS`, and at the latest `MAX_SECONDS`
    after it opened (spec/karpenter-core.md §4).
    """
    start = end = -math.inf
    for moment in sorted(added):
        start = moment if moment >= end else start
        end = min(moment + IDLE_SECONDS, start + MAX_SECONDS)
    return end


def claims_after_window(pods: Iterable[float], claims: Iterable[float]) -> float | None:
    """Seconds from the end of the last window to the last claim, negative if it came before; None without either."""
    appeared, created = tuple(pods), sorted(claims)
    return created[-1] - last_window_end(appeared) if appeared and created else None


def latencies(added: Mapping[str, float], claimed: Mapping[str, float]) -> tuple[float, ...]:
    """Seconds from each pod's appearance to its claim's, for pods that have both; ascending."""
    return tuple(sorted(claimed[uid] - moment for uid, moment in added.items() if uid in claimed))
