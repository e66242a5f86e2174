"""The judge of what may run where: a problem in, a result out, nothing else read or changed.

Equal pods are one class; classes get places by priority, then size. A class takes machines of now first, then open
claims, then new ones; a claim stays every type on which its pods still fit, and is settled on the cheapest at the end.
What is tried once and fails is not tried again: room only shrinks, claims only narrow. So the cost is that of classes
times machines touched, not of pods.

Source: core spec 3.4-3.7, planner spec 2. Differs from Karpenter: priorities count; equal pods are placed together, on
the claim opened first rather than the one with fewest pods; limits are charged by the planned type, not the largest.
"""

from collections.abc import Mapping
from typing import Final

from provisioner.apis.names import WELL_KNOWN_LABELS
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.bins import Bins
from provisioner.scheduling.catalogue import Catalogue
from provisioner.scheduling.claims import Claims
from provisioner.scheduling.classes import PodClass, classify, sort_key
from provisioner.scheduling.explaining import explain
from provisioner.scheduling.filters import FilterError, NodeFilter, node_filter
from provisioner.scheduling.finishing import finish
from provisioner.scheduling.offers import Offer
from provisioner.scheduling.problem import Pool, Problem
from provisioner.scheduling.reasons import NoPools, PoolRefuses, Reason
from provisioner.scheduling.result import Result, Unplaced
from provisioner.scheduling.vectors import Dimensions, Need
from provisioner.values.resources import Resources

_SPARE_CATALOGUES: Final = 4
"""Kept beside those of the problem at hand, for callers that ask about other pools in turn."""
_catalogues: Final[dict[int, tuple[tuple[InstanceType, ...], Catalogue]]] = {}
"""By identity of the tuple, which is held so that the identity stays its own; the last used is last. What is kept is
derived from the tuple alone, so it changes no answer, only the time it takes."""


def solve(problem: Problem) -> Result:
    """Give every pod a place, or the reasons why it has none.

    The result depends on the problem's values only: not on the order of pods, pools, daemons and types. The order of
    bins is an order of preference.

    Cost: O(pods) to group, then O(classes x (bins + claims touched)), and O(claims x types) once at the end.
    """
    return _Solution(problem).result()


class _Solution:
    """One problem while it is being solved."""

    def __init__(self, problem: Problem) -> None:
        self.problem: Final = problem
        self.well_known: Final = WELL_KNOWN_LABELS | problem.well_known
        self.classes, self.left_out = classify(problem.pods)
        daemons = _daemons(problem)
        dimensions = Dimensions.of([*(one.requests for one in self.classes), *(requests for _, requests in daemons)])
        self.needs: Final[dict[PodClass, Need]] = {one: dimensions.need(one.requests) for one in self.classes}
        keep = len(problem.pools) + _SPARE_CATALOGUES
        self.bins: Final = Bins(problem.bins, dimensions)
        self.claims: Final = Claims(
            [
                Offer(pool, _catalogue(pool.instance_types, keep), daemons, dimensions, self.well_known)
                for pool in _in_order(problem.pools)
            ]
        )

    def result(self) -> Result:
        """Place, settle, explain."""
        waiting = self._place(dict.fromkeys(self.classes, 0))
        while waiting and self.claims.forget():  # a limit was loosened: those without a place may have one now
            before = dict(waiting)
            waiting = self._place(waiting)
            if waiting == before:
                break
        return Result(
            claims=finish(self.claims.open),
            existing=self._existing(),
            unplaced=self._unplaced(waiting),
        )

    def _place(self, waiting: Mapping[PodClass, int]) -> dict[PodClass, int]:
        """One pass over classes and the number of each class's first pod without a place; what is left after it."""
        left = {}
        for one, start in waiting.items():
            need = self.needs[one]
            reached = self.bins.fill(one, need, start)
            if reached < len(one.pods):
                reached = self.claims.fill(one, need, reached)
            if reached < len(one.pods):
                reached = self.claims.extend(one, need, reached)
            if reached < len(one.pods):
                left[one] = reached
        return left

    def _existing(self) -> dict[str, tuple[Pod, ...]]:
        return {
            one.name: tuple(pod for pods, start, end in placed for pod in pods.pods[start:end])
            for one, placed in zip(self.bins.bins, self.bins.placed, strict=True)
            if placed
        }

    def _unplaced(self, waiting: Mapping[PodClass, int]) -> tuple[Unplaced, ...]:
        why: dict[tuple[NodeFilter, Need], tuple[Reason, ...]] = {}
        found: list[tuple[PodShape, tuple[Pod, ...], tuple[Reason, ...]]] = [
            (one.shape, one.pods, (one.reason,)) for one in self.left_out
        ]
        for one, start in waiting.items():
            question = (one.filter, self.needs[one])
            reasons = why.get(question)
            if reasons is None:
                reasons = why[question] = self._reasons(one.filter, self.needs[one])
            found.append((one.shape, one.pods[start:], reasons))
        found.sort(key=lambda entry: sort_key(entry[0]))
        return tuple(Unplaced(pod, reasons) for _, pods, reasons in found for pod in pods)

    def _reasons(self, node_filter: NodeFilter, need: Need) -> tuple[Reason, ...]:
        reasons: list[Reason] = []
        refusal = self.bins.refusal(node_filter, need)
        if refusal is not None:
            reasons.append(refusal)
        if not self.claims.offers:
            reasons.append(NoPools())
        reasons.extend(PoolRefuses(offer.pool.name, explain(offer, node_filter, need)) for offer in self.claims.offers)
        return tuple(reasons)


def _in_order(pools: tuple[Pool, ...]) -> list[Pool]:
    """By weight, then name, both descending. Source: core spec 3.4."""
    return sorted(sorted(pools, key=lambda pool: pool.name, reverse=True), key=lambda pool: -pool.weight)


def _daemons(problem: Problem) -> list[tuple[NodeFilter, Resources]]:
    """Filter and requests of every daemon that can be judged.

    One that cannot be read runs nowhere as far as anybody can tell, so it takes nothing.
    """
    readable = []
    for shape in problem.daemons:
        if shape.error:
            continue
        try:
            readable.append((node_filter(shape), shape.requests))
        except FilterError:
            continue
    return readable


def _catalogue(instance_types: tuple[InstanceType, ...], keep: int) -> Catalogue:
    """The index of these types; of the others, the `keep` used last are kept."""
    entry = _catalogues.pop(id(instance_types), None) or (instance_types, Catalogue(instance_types))
    for oldest in list(_catalogues)[: max(0, len(_catalogues) - keep)]:
        _catalogues.pop(oldest, None)  # another thread may have taken it
    _catalogues[id(instance_types)] = entry
    return entry[1]
