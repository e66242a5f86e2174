"""Machines of now and claims while they are being filled: what room is left on each, and what a claim may still become."""

from collections.abc import Sequence
from typing import Final

from provisioner.scheduling.bins import Bins
from provisioner.scheduling.classes import PodClass
from provisioner.scheduling.limits import Charge, Ledger, Slack
from provisioner.scheduling.offers import Offer, State
from provisioner.scheduling.vectors import Need, Vector, most
from provisioner.scheduling.volumes import Attachment

Part = tuple[PodClass, int, int]
"""(class, from, to): numbers of pods in their class."""


class Account:
    """One NodePool in one attempt: its claims, and how much of its limits they take.

    Attributes:
        claims: the places that are claims of this pool.
        exact: limits or minValues have to be looked at for every pod; else they are so far away that all pods of the
            problem cannot reach them.
    """

    __slots__ = ("_load", "_names", "_pods", "_slack", "claims", "exact", "ledger", "number", "offer")

    def __init__(self, number: int, offer: Offer, pods: int, load: Sequence[int]) -> None:
        """For a problem of so many pods that take `load` together."""
        self.number: Final = number
        self.offer: Final = offer
        self.claims = 0
        self.ledger: Ledger | None = None
        self._slack: Slack | None = None
        self._names: tuple[str, ...] = ()
        self._pods: Final = pods
        self._load: Final = load
        remaining = offer.pool.remaining
        self.exact = bool(offer.min_values)
        if remaining is not None:
            self.ledger = Ledger(remaining, offer.catalogue)
            self._names = tuple(remaining)
            self._slack = Slack(remaining)
            self.exact = self.learn(offer.base) or self.exact

    def learn(self, state: State) -> bool:
        """Some claim is about to be in this state; whether limits have to be looked at from now on, and were not so far."""
        slack = self._slack
        if slack is None or self.exact or slack.knows(state.number):
            return False
        catalogue = self.offer.catalogue
        largest = {name: catalogue.largest(name) for name in self._names}
        slack.learn(state.number, self.offer.stairs(state, self._names), largest)
        return not slack.covers(self._pods, self._load)


class Place:
    """One machine.

    Attributes:
        account: its pool; None for a machine of now.
        state: what its pods have narrowed it to; None for a machine of now.
        head: by dimension, what is left, where that is one vector; then `heads` is empty.
        heads: what is left by frontier point that still fits.
        used: by dimension, what its pods take; only kept where there is no `head`.
        placed: its pods.
        charge: what its pool's ledger counts it with; only where limits are near.
        attached: volumes that are attached; None where nobody asked.
    """

    __slots__ = ("account", "attached", "charge", "head", "heads", "placed", "state", "used")

    def __init__(self, account: Account | None, state: State | None, head: list[int] | None) -> None:
        self.account: Final = account
        self.state = state
        self.head = head
        self.heads: tuple[Vector, ...] = ()
        self.used: list[int] = []
        self.placed: Final[list[Part]] = []
        self.charge: Charge = {}
        self.attached: set[Attachment] | None = None

    def load(self) -> Sequence[int]:
        """By dimension, what the pods of a claim take."""
        if self.head is None or self.state is None:
            return self.used
        return [have - left for have, left in zip(self.state.points[0], self.head, strict=True)]


def opened(account: Account, state: State) -> Place:
    """A claim without pods."""
    if account.exact or len(state.points) != 1:
        place = Place(account, state, None)
        place.heads = state.points
        place.used = [0] * len(account.offer.dimensions.names)
        return place
    return Place(account, state, list(state.points[0]))


def machines_of_now(bins: Bins) -> list[Place]:
    """A place for every bin."""
    return [Place(None, None, list(room)) for room in bins.rooms]


def make_exact(account: Account, claims: Sequence[Place]) -> None:
    """From now on limits are looked at for every pod: every claim of the pool is charged with what it is planned as."""
    account.exact = True
    ledger = account.ledger
    for place in claims:
        state = place.state
        if state is None:
            continue
        if place.head is not None:
            place.used = list(place.load())
            place.heads = (tuple(place.head),)
            place.head = None
        if ledger is not None:
            _charge(account, place, state)


def _charge(account: Account, place: Place, state: State) -> None:
    ledger = account.ledger
    if ledger is None:
        return
    rows = state.rows & ledger.allowed(place.charge)
    charge = ledger.charge_of(account.offer.planned(state, rows, place.used))
    ledger.replace(place.charge, charge)
    place.charge = charge


def fitting(place: Place, state: State, need: Need, limit: int) -> int:
    """How many more such pods a claim takes in `state`, which is its own or a narrower one; at most `limit`."""
    account = place.account
    if account is None or not account.exact:
        if place.head is not None and place.state is not None and state.points is place.state.points:
            return most(place.head, need, limit)
        heads = place.heads if state is place.state and place.head is None else left_of(state.points, place.load())
        return _most_of(heads, need, limit)
    offer, ledger = account.offer, account.ledger
    if ledger is None:
        heads = place.heads if state is place.state else left_of(state.points, place.used)
    else:
        heads = left_of(offer.frontier(state.rows & ledger.allowed(place.charge)), place.used)
    count = _most_of(heads, need, limit)
    if count and offer.min_values:
        return _most_with_values(place, account, state, need, count)
    return count


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


def _most_with_values(place: Place, account: Account, state: State, need: Need, limit: int) -> int:
    """The most pods, at most `limit`, after which the types left still serve the pool's minValues."""
    offer = account.offer
    rows = state.rows if account.ledger is None else state.rows & account.ledger.allowed(place.charge)
    low, high = 0, limit  # more pods leave fewer types, so the answer is found by halving
    while low < high:
        middle = (low + high + 1) // 2
        used = list(place.used)
        for d, amount in need:
            used[d] += amount * middle
        if offer.enough_values(state, offer.fitting(rows, used)):
            low = middle
        else:
            high = middle - 1
    return low


def take(place: Place, state: State, need: Need, count: int) -> None:
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
        place.used = list(place.load())
        place.head = None
    for d, amount in need:
        place.used[d] += amount * count
    place.state = state
    if account.exact:
        place.heads = left_of(state.points, place.used)
        _charge(account, place, state)
    elif len(state.points) == 1:
        place.head = [have - want for have, want in zip(state.points[0], place.used, strict=True)]
        place.heads = ()
    else:
        place.heads = left_of(state.points, place.used)


def types_left(place: Place) -> int:
    """The types that a claim may become: all its pods fit, and the pool's limits allow them."""
    account, state = place.account, place.state
    if account is None or state is None:
        return 0
    rows = state.rows
    if account.exact and account.ledger is not None:
        rows &= account.ledger.allowed(place.charge)
    return account.offer.fitting(rows, place.load())
