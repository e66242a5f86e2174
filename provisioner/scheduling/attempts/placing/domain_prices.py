"""What new nodes for a class cost, and in which domains."""

from collections.abc import Sequence
from math import inf
from typing import Final

from provisioner.scheduling.attempts.placing.class_candidates import ClassCandidates
from provisioner.scheduling.capacity.offers import OfferState, PreparedPool, pin
from provisioner.scheduling.capacity.places import PoolAccount
from provisioner.scheduling.constraints.filters import FilterTerm, NodeFilter
from provisioner.scheduling.constraints.vectors import Need, most
from provisioner.scheduling.topology.counters import Axis
from provisioner.scheduling.topology.relations import PodRun


class DomainPrices:
    """Prices as of now, limits and reservations aside.

    Attributes:
        flats: as of `flat`, filled as asked.
    """

    def __init__(self, candidates: ClassCandidates) -> None:
        self._candidates: Final = candidates
        self.flats: Final[dict[tuple[NodeFilter, Axis], bool]] = {}
        self._usd: Final[dict[tuple[int, Axis, int], list[float]]] = {}

    def flat(self, run: PodRun, axis: Axis) -> bool:
        """Whether nodes for the class can be had in every domain, at the same prices whatever it needs."""
        key = run.filter, axis
        found = self.flats.get(key)
        if found is None:  # as of now, limits and reservations aside
            offered = [
                (account.offer, state)
                for account in self._candidates.ground(run.filter)[1]
                for state in account.offer.starts(run.filter)
            ]
            found = self.flats[key] = bool(offered) and all(
                set(axis.values) <= set(offer.domains(state, axis.key)) and offer.level(state, axis.key)
                for offer, state in offered
            )
        return found

    def of(self, run: PodRun, axis: Axis, pods: int) -> Sequence[float]:
        """By domain, about what nodes for so many pods of the class cost in USD per hour; infinite where none can be had."""
        key = run.question, axis, pods
        found = self._usd.get(key)
        if found is None:
            found = self._usd[key] = [inf] * len(axis.values)
            for term in run.filter.terms if axis.uneven else ():
                for account in self._candidates.takers(run):  # in the order in which they are asked for a node
                    state = account.offer.narrowed(account.offer.base, term)
                    for value in account.offer.domains(state, axis.key) if state is not None else ():
                        domain = axis.index.get(value, -1)
                        if domain >= 0 and found[domain] == inf:
                            found[domain] = self._price(account, state, pin(axis.key, value), run.need, pods)
        return found

    def _price(self, account: PoolAccount, state: OfferState | None, term: FilterTerm, need: Need, pods: int) -> float:
        """The least price of nodes for so many pods, on as few as they fit or one on each; infinite where none fits."""
        offer = account.offer
        narrower = None if state is None else offer.narrowed(state, term)
        most_on_one = 0 if narrower is None else max((most(point, need, pods) for point in narrower.points), default=0)
        if narrower is None or not most_on_one:
            return inf
        numbers = {-(-pods // most_on_one), pods}
        return min([number * _price_with(offer, narrower, need, -(-pods // number)) for number in numbers])

    def in_order(self, run: PodRun, axis: Axis, domains: Sequence[int], pods: int) -> list[int]:
        """Domains by the price of nodes for so many pods of the class, shared out evenly."""
        return sorted(domains, key=self.of(run, axis, -(-pods // max(1, len(domains)))).__getitem__)

    def cheapest(self, run: PodRun, pods: int) -> float:
        """The least price of a node for so many pods of the class, in USD per hour; infinite where there is none."""
        return min(
            [
                _price_with(account.offer, state, run.need, pods)
                for account in self._candidates.ground(run.filter)[1]
                for state in account.offer.starts(run.filter)
            ],
            default=inf,
        )


def _price_with(offer: PreparedPool, state: OfferState, need: Need, pods: int) -> float:
    """The least price of a node on which so many pods fit."""
    used = [0] * len(offer.dimensions.names)
    for d, amount in need:
        used[d] = amount * pods
    return offer.price(state, used)
