"""Existing nodes and claims while they are being filled: what room is left on each, and what a claim may still become."""

from collections.abc import Iterable, Mapping, Sequence
from operator import sub
from types import MappingProxyType
from typing import Final

import msgspec

from provisioner.apis.attachments import Attachment
from provisioner.apis.names import CAPACITY_RESERVED, CAPACITY_TYPE_LABEL, ZONE_LABEL
from provisioner.scheduling.capacity.catalogue import Reservation
from provisioner.scheduling.capacity.offers import OfferState, PreparedPool, pin
from provisioner.scheduling.capacity.pool_limits import Charge, LimitLedger, Slack
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.filters import FilterTerm
from provisioner.scheduling.constraints.vectors import Need, Thresholds, Vector, most
from provisioner.values.requirement import Operator, Requirement, Requirements

Part = tuple[PodClass, int, int]
"""(class, from, to): numbers of pods in their class."""


class ClaimOptions:
    """Reservations that would do for a claim, cheapest first, and what it would be then; those with room are found at once."""

    def __init__(self, every: Sequence[tuple[Reservation, OfferState]]) -> None:
        self.every: Final = every
        points = [(number, point) for number, (_, state) in enumerate(every) for point in state.points]
        self._of: Final = [number for number, _ in points]
        self._tops: Final[dict[tuple[int, Reservation], Sequence[int]]] = {}
        self._thresholds: Final = Thresholds([point for _, point in points])

    def holding(self, used: Sequence[int]) -> list[tuple[Reservation, OfferState]]:
        """Those on which `used` fits, in the same order."""
        every, of = self.every, self._of
        return [every[number] for number in dict.fromkeys(of[i] for i in members(self._thresholds.exceeding(used)))]

    def tops(self, reservations: "Reservations", held: Reservation) -> Sequence[int]:
        """By dimension, the most of any that has a node left, or that is held already; nothing where there is none."""
        key = reservations.version, held
        found = self._tops.get(key)
        if found is None:
            if len(self._tops) > _MOST_TOPS:
                self._tops.clear()
            left = reservations.left
            points = [point for one, state in self.every if left[one] > 0 or one == held for point in state.points]
            found = self._tops[key] = tuple(map(max, *points)) if len(points) > 1 else points[0] if points else ()
        return found


_MOST_TOPS: Final = 1_000


class Reservations:
    """How many nodes are left of every reservation; claims hold one each.

    Attributes:
        kept: whether a claim keeps what it holds rather than become a node that takes more pods: what is reserved is paid for.
        version: grows with each change of which reservations have a node left.
    """

    def __init__(self, label: str) -> None:
        self.label: Final = label
        self.kept = True
        self.version = 0
        self.left: Final[dict[Reservation, int]] = {}
        self._options: Final[dict[OfferState, ClaimOptions]] = {}
        self._bought: Final[dict[OfferState, OfferState | None]] = {}

    def options(self, offer: PreparedPool, state: OfferState) -> "ClaimOptions":
        """The reservations that would do for a claim in `state`, cheapest first, and what it would be then."""
        found = self._options.get(state)
        if found is None:
            some = []
            for one, left, asked in offer.catalogue.reservations(state.requirements, self.label):
                self.left.setdefault(one, left)
                narrower = offer.narrowed(state, FilterTerm(asked))
                if narrower is not None:
                    some.append((one, narrower))
            found = self._options[state] = ClaimOptions(some)
        return found

    def bought(self, offer: PreparedPool, state: OfferState) -> OfferState | None:
        """`state` without reserved capacity; None where nothing else would do."""
        if state not in self._bought:
            self._bought[state] = offer.narrowed(state, BOUGHT)
        return self._bought[state]


BOUGHT: Final = FilterTerm(
    Requirements.of((Requirement.of(CAPACITY_TYPE_LABEL, Operator.NOT_IN, (CAPACITY_RESERVED,)),))
)
"""What is bought, not reserved."""


def bought(offer: PreparedPool, zone: str = "", capacity_type: str = "") -> OfferState | None:
    """What a node of a pool may be before it has pods, where zone and capacity type are as said; what is reserved is left to those who have it."""
    term = BOUGHT if offer.catalogue.reserved else FilterTerm()
    for key, value in ((ZONE_LABEL, zone), (CAPACITY_TYPE_LABEL, capacity_type)):
        if value:
            term = term.joined(pin(key, value))
    return offer.narrowed(offer.base, term)


class PoolAccount:
    """One NodePool in one attempt: its claims, and how much of its limits they take.

    Attributes:
        claims: the places that are claims of this pool.
        reservation_label: names the reservation of an offering.
        exact: limits or minValues have to be looked at for every pod; else they are so far away that all pods of the
            problem cannot reach them.
    """

    def __init__(
        self,
        offer: PreparedPool,
        pods: int,
        load: Sequence[int],
        reservations: Reservations,
        *,
        best_effort: bool,
    ) -> None:
        """For a problem of so many pods that take `load` together."""
        self.best_effort: Final = best_effort
        self.reservations: Final = reservations if offer.catalogue.reserved else None
        self.reservation_label: Final = reservations.label
        self.offer: Final = offer
        self.claims = 0
        self.ledger: LimitLedger | None = None
        self._slack: Slack | None = None
        self._names: tuple[str, ...] = ()
        self._pods: Final = pods
        self._load: Final = load
        remaining = offer.pool.remaining
        self.exact = bool(offer.min_values) or self.reservations is not None
        if remaining is not None:
            self.ledger = LimitLedger(remaining, offer.catalogue)
            self._names = tuple(remaining)
            self._slack = Slack(remaining)
            self.exact = self.learn(offer.base) or self.exact

    def learn(self, state: OfferState) -> bool:
        """Some claim is about to be in this state; whether limits have to be looked at from now on, and were not so far."""
        slack = self._slack
        if slack is None or self.exact or slack.knows(state):
            return False
        catalogue = self.offer.catalogue
        largest = {name: catalogue.largest(name) for name in self._names}
        slack.learn(state, self.offer.stairs(state, self._names), largest)
        return not slack.covers(self._pods, self._load)

    def rows(self, state: OfferState, charge: Charge) -> int:
        """The types that a claim in `state` may become, which is charged with so much already."""
        rows = state.rows
        if self.ledger is not None:
            rows &= self.ledger.allowed(charge)
        return rows


_NOTHING: Final[Charge] = MappingProxyType({})


class Place(msgspec.Struct, eq=False, gc=False):
    """One node.

    Attributes:
        account: its pool; None for an existing node.
        state: what its pods have narrowed it to; None for an existing node.
        head: by dimension, what is left, where that is one vector; then `heads` is empty.
        heads: what is left by frontier point that still fits.
        used: by dimension, what its pods take; only kept where there is no `head`.
        charge: what its pool's ledger counts it with; only where limits are near.
        attached: volumes that are attached; None where nobody asked.
        held: the reservation that it draws from.
        settled: `state`, narrowed to that, or to what is no reservation; None where there are no reservations.
        min_values: what its pool's minValues were lowered to; None where they are kept.
    """

    account: PoolAccount | None
    state: OfferState | None
    head: list[int] | None
    placed: list[Part]
    heads: tuple[Vector, ...] = ()
    used: Sequence[int] = ()
    charge: Charge = _NOTHING
    attached: set[Attachment] | None = None
    held: Reservation = ""
    settled: OfferState | None = None
    min_values: Mapping[str, int] | None = None
    _tops: Sequence[int] = ()
    _tops_of: Sequence[Vector] = ()
    _rest: Sequence[int] = ()
    _rest_of: Sequence[int] | None = None
    _rest_version: int = -1

    def tops(self) -> Sequence[int]:
        """By dimension, the most that is left at any point; nothing where there is no point."""
        heads = self.heads
        if self._tops_of is not heads:
            self._tops = tuple(map(max, *heads)) if len(heads) > 1 else heads[0] if heads else ()
            self._tops_of = heads
        return self._tops

    def too_small(self, need: Need) -> bool:
        """Whether what a claim may draw from, as long as it keeps to reservations, surely has too little left of something."""
        account, state = self.account, self.state
        if account is None or state is None or not self.held:
            return False
        reservations = account.reservations
        if reservations is None or not reservations.kept:
            return False
        used = self.used
        if self._rest_of is not used or self._rest_version != reservations.version:
            tops = reservations.options(account.offer, state).tops(reservations, self.held)
            self._rest = tuple(map(sub, tops, used))
            self._rest_of, self._rest_version = used, reservations.version
        rest = self._rest
        if not rest:
            return True
        for d, amount in need:  # noqa: SIM110 - any() is three times as slow here
            if rest[d] < amount:
                return True
        return False

    def load(self) -> Sequence[int]:
        """By dimension, what the pods of a claim take."""
        if self.head is None or self.state is None:
            return self.used
        return tuple(map(sub, self.state.points[0], self.head))


def take_off(place: Place, need: Need, count: int) -> None:
    """Pods of a claim that nothing more is put on were taken off again; what is left of its types is not worked out anew."""
    if place.head is not None:
        for d, amount in need:
            place.head[d] += amount * count
    else:
        used = list(place.used)
        for d, amount in need:
            used[d] -= amount * count
        place.used = used


def opened(account: PoolAccount, state: OfferState) -> Place:
    """A claim without pods."""
    if account.exact or len(state.points) != 1:
        return Place(account, state, None, [], state.points, (0,) * len(account.offer.dimensions.names))
    return Place(account, state, list(state.points[0]), [])


def make_exact(account: PoolAccount, claims: Sequence[Place]) -> None:
    """From now on limits are looked at for every pod: every claim of the pool is charged with what it is planned as."""
    account.exact = True
    ledger = account.ledger
    for place in claims:
        state = place.state
        if state is None:
            continue
        if place.head is not None:
            place.used = place.load()
            place.heads = (tuple(place.head),)
            place.head = None
        if ledger is not None:
            _charge(account, place, state)


def _charge(account: PoolAccount, place: Place, state: OfferState) -> None:
    if account.reservations is not None:
        state = _settle(account, account.reservations, place, state)
    ledger = account.ledger
    if ledger is None:
        return
    rows = account.rows(state, place.charge)
    charge = ledger.charge_of(account.offer.planned(state, rows, place.used))
    ledger.replace(place.charge, charge)
    place.charge = charge


def _settle(account: PoolAccount, reservations: Reservations, place: Place, state: OfferState) -> OfferState:
    """Hold a reservation while one would do: what is paid for already is used before anything is bought."""
    offer = account.offer
    options = reservations.options(offer, state)
    if place.held:
        reservations.left[place.held] += 1
        reservations.version += reservations.left[place.held] == 1
    holding = sorted(options.holding(place.used), key=lambda option: option[0] != place.held)
    place.held, place.settled = "", reservations.bought(offer, state)
    for one, narrower in holding:
        if reservations.left[one] > 0 and _holds(account, place, narrower):
            reservations.left[one] -= 1
            reservations.version += not reservations.left[one]
            place.held, place.settled = one, narrower
            break
    return place.settled or state


def _holds(account: PoolAccount, place: Place, state: OfferState) -> bool:
    return bool(left_of(_points(account, place, state), place.used))


def _points(account: PoolAccount, place: Place, state: OfferState) -> tuple[Vector, ...]:
    if account.ledger is None:
        return state.points
    return account.offer.types.frontier(account.rows(state, place.charge))


def fitting(place: Place, state: OfferState, need: Need, limit: int) -> int:
    """How many more such pods a claim takes in `state`, which is its own or a narrower one; at most `limit`."""
    account = place.account
    if account is None or not account.exact:
        if place.head is not None and place.state is not None and state.points is place.state.points:
            return most(place.head, need, limit)
        heads = place.heads if state is place.state and place.head is None else left_of(state.points, place.load())
        return _most_of(heads, need, limit)
    if account.reservations is not None:
        return _most_of_any(account, account.reservations, place, state, need, limit)
    return _most_exactly(account, place, state, need, limit)


def _most_exactly(account: PoolAccount, place: Place, state: OfferState, need: Need, limit: int) -> int:
    count = _most_of(left_of(_points(account, place, state), place.used), need, limit)
    if not count or not account.offer.min_values:
        return count
    enough = _most_with_values(place, account, state, need, count)
    if not enough and account.best_effort and not place.placed:
        place.min_values = _had_with(place, account, state, need)
        enough = _most_with_values(place, account, state, need, count)
    return enough


def _had_with(place: Place, account: PoolAccount, state: OfferState, need: Need) -> dict[str, int]:
    """The minValues that can be kept with one such pod on a new claim."""
    offer = account.offer
    used = list(place.used)
    for d, amount in need:
        used[d] += amount
    rows = offer.types.fitting(account.rows(state, place.charge), used)
    return {
        key: min(wanted, offer.catalogue.distinct_values(state.requirements[key], rows))
        for key, wanted in offer.min_values.items()
    }


def _most_of_any(
    account: PoolAccount, reservations: Reservations, place: Place, state: OfferState, need: Need, limit: int
) -> int:
    """The most pods that a reservation with a node left holds; where none holds any, that what can be bought does.

    Source: Karpenter core spec 3.10, strict mode. Differs: pods that find no other place may have the node bought after all.
    """
    count = 0
    least = list(place.used)
    for d, amount in need:
        least[d] += amount
    for one, narrower in reservations.options(account.offer, state).holding(least):
        if count < limit and (reservations.left[one] > 0 or one == place.held):
            count = max(count, _most_exactly(account, place, narrower, need, limit))
    if reservations.kept and (count or place.held):
        return count
    bought = reservations.bought(account.offer, state)
    if bought is None or count == limit:
        return count
    return max(count, _most_exactly(account, place, bought, need, limit))


def _most_of(heads: Sequence[Sequence[int]], need: Need, limit: int) -> int:
    count = 0
    for head in heads:
        times = most(head, need, limit)
        if times > count:
            count = times
            if count == limit:
                break
    return count


def left_of(points: Sequence[Vector], used: Sequence[int]) -> tuple[Vector, ...]:
    """What is left at each point that still holds `used`."""
    heads = []
    for point in points:
        head = tuple([have - want for have, want in zip(point, used, strict=True)])
        if min(head, default=0) >= 0:
            heads.append(head)
    return tuple(heads)


def _less(heads: Iterable[Vector], need: Need, count: int) -> tuple[Vector, ...]:
    """What is left at each of these once more is taken; those that do not hold it are gone."""
    found = []
    for head in heads:
        left = list(head)
        for d, amount in need:
            left[d] -= amount * count
            if left[d] < 0:
                break
        else:
            found.append(tuple(left))
    return tuple(found)


def _most_with_values(place: Place, account: PoolAccount, state: OfferState, need: Need, limit: int) -> int:
    """The most pods, at most `limit`, after which the types left still serve the pool's minValues."""
    offer = account.offer
    rows = account.rows(state, place.charge)
    low, high = 0, limit  # more pods leave fewer types, so the answer is found by halving
    while low < high:
        middle = (low + high + 1) // 2
        used = list(place.used)
        for d, amount in need:
            used[d] += amount * middle
        if offer.enough_values(state, offer.types.fitting(rows, used), place.min_values):
            low = middle
        else:
            high = middle - 1
    return low


def take(place: Place, state: OfferState, need: Need, count: int) -> None:
    """Put pods on a claim that comes to be in `state` by them; they must fit."""
    account, own = place.account, place.state
    if account is None or own is None:
        raise ValueError("only claims narrow")
    if place.head is not None and not account.exact:
        if state.points is own.points:
            for d, amount in need:
                place.head[d] -= amount * count
            place.state = state
            return
        place.used = place.load()
        place.head = None
    used = list(place.used)
    for d, amount in need:
        used[d] += amount * count
    place.used = used
    place.state = state
    if account.exact:
        place.heads = left_of(state.points, place.used)
        _charge(account, place, state)
    elif state.points is own.points and place.head is None:
        place.heads = _less(place.heads, need, count)
    elif len(state.points) == 1:
        place.head = [have - want for have, want in zip(state.points[0], place.used, strict=True)]
        place.heads = ()
    else:
        place.heads = left_of(state.points, place.used)
