"""Claims while they are being planned: each stays every type on which its pods still fit, until the end."""

from typing import Final

from provisioner.scheduling.classes import PodClass
from provisioner.scheduling.filters import NodeFilter, Term
from provisioner.scheduling.limits import Charge
from provisioner.scheduling.offers import Offer, State
from provisioner.scheduling.vectors import Need, Vector, most
from provisioner.values.taints import first_untolerated


class OpenClaim:
    """A machine to be.

    Attributes:
        offer: its pool.
        state: what its pods have narrowed it to.
        used: by dimension, what its pods take.
        heads: by frontier point of the state that still fits: what is left. Not kept up to date under limits.
        placed: (class, from, to): numbers of its pods in their class.
        charge: what its pool's ledger counts it with.
    """

    __slots__ = ("charge", "heads", "offer", "placed", "state", "used")

    def __init__(self, offer: Offer) -> None:
        self.offer: Final = offer
        self.state = offer.base
        self.used: list[int] = [0] * len(offer.dimensions.names)
        self.heads: tuple[Vector, ...] = offer.base.points
        self.placed: Final[list[tuple[PodClass, int, int]]] = []
        self.charge: Charge = {}

    def take(self, pods: PodClass, need: Need, start: int) -> int:
        """Place as many pods of one class, from number `start` on, as fit; the number reached.

        The first term that admits any pod is taken, in the order in which the pod has them.
        """
        for term in pods.filter.terms:
            reached = self.take_by(term, pods, need, start)
            if reached > start:
                return reached
        return start

    def take_by(self, term: Term, pods: PodClass, need: Need, start: int) -> int:
        """As `take`, by one term of the class."""
        state = self.offer.narrowed(self.state, term)
        if state is None:
            return start
        count = self._most(state, need, len(pods.pods) - start)
        if count:
            self._put(state, need, count)
            self.placed.append((pods, start, start + count))
        return start + count

    def _most(self, state: State, need: Need, limit: int) -> int:
        offer = self.offer
        if offer.ledger is None:
            heads = self.heads if state is self.state else self._heads(state.points)
        else:
            heads = self._heads(offer.frontier(state.rows & offer.ledger.allowed(self.charge)))
        count = 0
        for head in heads:
            times = most(head, need, limit)
            if times > count:
                count = times
                if count == limit:
                    break
        if count and offer.min_values:
            return self._most_with_values(state, need, count)
        return count

    def _heads(self, points: tuple[Vector, ...]) -> tuple[Vector, ...]:
        used = self.used
        heads = []
        for point in points:
            head = tuple(have - want for have, want in zip(point, used, strict=True))
            if min(head, default=0) >= 0:
                heads.append(head)
        return tuple(heads)

    def _most_with_values(self, state: State, need: Need, limit: int) -> int:
        """The most pods, at most `limit`, after which the types left still serve the pool's minValues."""
        rows = self._allowed(state)
        low, high = 0, limit  # more pods leave fewer types, so the answer is found by halving
        while low < high:
            middle = (low + high + 1) // 2
            used = list(self.used)
            for d, amount in need:
                used[d] += amount * middle
            if self.offer.enough_values(state, self.offer.fitting(rows, used)):
                low = middle
            else:
                high = middle - 1
        return low

    def _put(self, state: State, need: Need, count: int) -> None:
        for d, amount in need:
            self.used[d] += amount * count
        if state is self.state and len(self.heads) == 1:  # the common case by far: one largest type
            head = list(self.heads[0])
            for d, amount in need:
                head[d] -= amount * count
            self.heads = (tuple(head),)
        else:
            self.state = state
            self.heads = self._heads(state.points)
        ledger = self.offer.ledger
        if ledger is not None:
            charge = ledger.charge_of(self.offer.planned(state, self._allowed(state), self.used))
            ledger.replace(self.charge, charge)
            self.charge = charge

    def _allowed(self, state: State) -> int:
        ledger = self.offer.ledger
        return state.rows if ledger is None else state.rows & ledger.allowed(self.charge)

    def fitting(self) -> int:
        """The types that this claim may become: all its pods fit, and the pool's limits allow them."""
        return self.offer.fitting(self._allowed(self.state), self.used)


class Claims:
    """All claims of one result, in the order they were opened, and which class was found not to fit where.

    Claims only fill and narrow, so one on which a class once did not fit is not asked again for it; `forget` says when
    a limit was loosened and this no longer holds.
    """

    def __init__(self, offers: list[Offer]) -> None:
        self.offers: Final = offers
        self.open: Final[list[OpenClaim]] = []
        self._of_pool: Final = [0] * len(offers)
        self._closed: Final[dict[tuple[NodeFilter, Need], int]] = {}
        self._willing: Final[dict[NodeFilter, tuple[int, ...]]] = {}

    def willing(self, node_filter: NodeFilter) -> tuple[int, ...]:
        """The numbers of pools whose taints are tolerated and whose template admits some term, in order of preference."""
        answer = self._willing.get(node_filter)
        if answer is None:
            answer = self._willing[node_filter] = tuple(
                number
                for number, offer in enumerate(self.offers)
                if first_untolerated(node_filter.tolerations, offer.pool.taints) is None
                and any(offer.narrowed(offer.base, term) is not None for term in node_filter.terms)
            )
        return answer

    def fill(self, pods: PodClass, need: Need, start: int) -> int:
        """Place pods of one class, from number `start` on, on open claims, first opened first; the number reached."""
        total = len(pods.pods)
        candidates = 0
        for number in self.willing(pods.filter):
            candidates |= self._of_pool[number]
        if not candidates:
            return start
        key = (pods.filter, need)
        closed = self._closed.get(key, 0)
        candidates &= ~closed
        while candidates and start < total:
            low = candidates & -candidates
            candidates ^= low
            start = self.open[low.bit_length() - 1].take(pods, need, start)
            if start < total:
                closed |= low
        self._closed[key] = closed
        return start

    def extend(self, pods: PodClass, need: Need, start: int) -> int:
        """Place pods of one class on new claims; the number reached.

        A pod's terms are tried in their order, for each the pools in theirs, as Karpenter does by relaxation.
        """
        total = len(pods.pods)
        for term in pods.filter.terms:
            for number in self.willing(pods.filter):
                while start < total:
                    claim = OpenClaim(self.offers[number])
                    reached = claim.take_by(term, pods, need, start)
                    if reached == start:
                        break
                    start = reached
                    self._of_pool[number] |= 1 << len(self.open)
                    self.open.append(claim)
        return start

    def forget(self) -> bool:
        """Whether a limit was loosened since the last call; if so, claims of limited pools are asked again."""
        loosened = 0
        for number, offer in enumerate(self.offers):
            if offer.ledger is not None and offer.ledger.loosened:
                offer.ledger.loosened = False
                loosened |= self._of_pool[number]
        if loosened:
            for key in self._closed:
                self._closed[key] &= ~loosened
        return bool(loosened)
