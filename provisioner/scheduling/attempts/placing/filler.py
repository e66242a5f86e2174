"""Pods into places of one domain each axis: those that are there, then new claims."""

from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Final, TypeVar

from provisioner.apis.names import HOSTNAME_LABEL
from provisioner.scheduling.attempts.placing.class_candidates import ClassCandidates
from provisioner.scheduling.attempts.placing.place_table import Pin
from provisioner.scheduling.capacity.offers import OfferState, PreparedPool, pin
from provisioner.scheduling.capacity.places import Place, PoolAccount, fitting, opened, take
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.demands import Count
from provisioner.scheduling.constraints.filters import FilterTerm, NodeFilter
from provisioner.scheduling.constraints.vectors import Need, most
from provisioner.scheduling.topology.company import NOTHING, choosy_terms, come
from provisioner.scheduling.topology.counters import ALL, DomainCounter, uneven
from provisioner.scheduling.topology.relations import PodRun
from provisioner.values.requirement import Operator, Requirement, Requirements

T = TypeVar("T")
_MOST_WAYS: Final = 8
"""Sides of spreads over some nodes only that are tried for one claim."""


class Filler:
    """Puts pods on places, and opens claims.

    Attributes:
        wary: cautious spreads for which no node comes to a domain that is too empty, not even with the pod that fills it.
        scattering: pods that are counted and may choose go where few are counted, not to the first place.
        sparing: no new node that would break the hostname spread of pods that have a place.
        touched: something happened by which a pod without a place may have one.
    """

    def __init__(self, candidates: ClassCandidates, wary: Collection[Count]) -> None:
        self.candidates: Final = candidates
        self.companions: Final = candidates.companions
        self.table: Final = candidates.table
        self.work: Final = self.table.setting.terms.work
        self.wary: Final = wary
        self.scattering = False
        self.sparing = False
        self.touched = False
        self._kept: Final = self.table.topology.kept
        self._joined: Final[dict[tuple[NodeFilter, tuple[Pin, ...]], tuple[FilterTerm, ...]]] = {}

    def put(self, run: PodRun, mask: int, limit: int, pins: tuple[Pin, ...]) -> int:
        """Pods into places of one domain each axis, first those that are there, then new ones; how many."""
        placed = 0
        may_open = run.opening and self.may_open(run)
        if may_open and self.scattering:
            placed = self.open(run, limit, pins)
        if (
            self.companions.company
            and run.together
            and any(
                not counter.counts[domain]
                for axis, domain in pins
                if domain >= 0 and axis in run.plan.by_axis
                for counter in run.plan.by_axis[axis].together
            )
        ):
            mask = 0  # only a node to come brings to this domain what the class wants to be with
        if mask and placed < limit:
            candidates = self.candidates.of(run, together=run.together) & mask
            if candidates:
                placed += self.fill(run, candidates, limit - placed, pins)
        opened = int(may_open)
        while opened and placed < limit:
            opened = self.open(run, limit - placed, pins)
            placed += opened
            by_ones = (self._kept and self.companions.company) or self.companions.one_by_one(run)
            if not by_ones or (self.work.limited and not self.work.step(run.cost)):
                break
        return placed

    def may_open(self, run: PodRun) -> bool:
        """Whether a new node may be one where the class is with those that it wants to be with: only daemons are there from the start."""
        return not (run.together and run.plan.together) or bool(self.companions.company)

    def fill(self, run: PodRun, candidates: int, limit: int, pins: tuple[Pin, ...]) -> int:  # noqa: C901 - the hot loop: a call costs more than a branch
        """Pods into these places, the first first; how many. The innermost loop of all."""
        need, places, plan, caps, pods = run.need, self.table.places, run.plan, run.caps, run.pods
        crowd = run.crowd
        single = plan.single or run.ports
        easy = run.easy
        fixed = ALL  # places whose domain need not be settled first
        for axis, _ in pins:
            fixed &= axis.fixed
        adds = plan.adds
        start = first = run.start
        end = start + limit
        touched = closed = 0
        while candidates:
            low = candidates & -candidates
            i = low.bit_length() - 1
            candidates ^= low
            cap = 1 if single else end - start
            for counter, top in caps:
                rest = top - counter.counts.get(i, 0)
                if rest < cap:  # noqa: PLR1730 - min() is a call
                    cap = rest
            if crowd is not None:
                cap = min(cap, crowd.rest(i))
            if cap <= 0:
                continue
            place = places[i] or self.table.place_at(i)
            head = place.head
            account = place.account
            if head is not None and (
                not run.volumes if account is None else easy and fixed & low and not account.exact
            ):
                for d, amount in need:
                    if head[d] < amount * cap:
                        cap = head[d] // amount
                if cap <= 0:
                    closed |= low
                    continue
                if cap == 1:
                    for d, amount in need:
                        head[d] -= amount
                else:
                    for d, amount in need:
                        head[d] -= amount * cap
            else:
                if head is None and self.candidates.full is not None and self.candidates.is_full(place, low, need):
                    if not place.held:
                        closed |= low
                    continue
                run.start = start
                cap = self._take(run, place, low, cap, pins)
                if cap <= 0:
                    if cap < 0:
                        closed |= low
                    continue
            place.placed.append((pods, start, start + cap))
            start += cap
            touched |= low
            for host in adds:
                host.add(i, low, cap)
            if crowd is not None:
                crowd.add(i, cap)
            if start >= end:
                break
        run.start = start
        if closed:
            self.candidates.close(run, closed)
        if touched:
            self.touched = True
            for host, key in plan.holds:
                host.held[key] = host.held.get(key, 0) | touched
            if run.ties:
                self.table.account_for(run, touched, start - first, pins)
            if self.companions.followers:
                come(self.companions.followers)
        return start - first

    def _take(self, run: PodRun, place: Place, low: int, cap: int, pins: tuple[Pin, ...]) -> int:
        """Put pods on a place that has to be looked at closely; how many, -1 if there is no room whatever the domain."""
        first = self.table.first_need(run, place)
        if place.state is None:
            return self._take_bin(run, place, low, first, cap)
        account = place.account
        if account is None:
            return 0
        open_pins = tuple((axis, domain) for axis, domain in pins if domain >= 0 and not axis.fixed & low)
        before = place.state
        for term in self._terms(run.filter, open_pins):
            for state in self.harmless_ways(run, account, term, place, low):
                count = self._load(run, place, low, state, first, cap)
                if not count:
                    continue
                if state is not before:
                    self.table.narrowed(account, low, state, open_pins)
                    self.companions.narrowed(account, low, state)
                self.table.learn(account, state)
                return count
        if not fitting(place, place.state, run.need, 1):
            return -1
        # what a spread that is kept refuses now it may admit later
        kept = self._kept and any(account.offer.narrowed(place.state, term) is not None for term in run.filter.terms)
        return 0 if open_pins or kept else -1

    def _take_bin(self, run: PodRun, place: Place, low: int, first: Need, cap: int) -> int:
        head = place.head
        if head is None or most(head, first, 1) <= 0:
            return -1
        for d, amount in first:
            head[d] -= amount
        self.table.attach(run, place, low)
        count = 1 + (most(head, run.need, cap - 1) if cap > 1 else 0)
        for d, amount in run.need:
            head[d] -= amount * (count - 1)
        return count

    def _load(self, run: PodRun, place: Place, low: int, state: OfferState, first: Need, cap: int) -> int:
        """As many pods as fit on a claim that comes to be in `state`; their volumes are attached with the first."""
        need = run.need
        if first is need:
            count = fitting(place, state, need, cap)
            if count:
                take(place, state, need, count)
            return count
        if not fitting(place, state, first, 1):
            return 0
        take(place, state, first, 1)
        self.table.attach(run, place, low)
        more = fitting(place, state, need, cap - 1) if cap > 1 else 0
        if more:
            take(place, state, need, more)
        return 1 + more

    def _terms(self, node_filter: NodeFilter, pins: tuple[Pin, ...]) -> tuple[FilterTerm, ...]:
        if not pins:
            return node_filter.terms
        key = (node_filter, pins)
        found = self._joined.get(key)
        if found is None:
            terms = node_filter.terms
            for axis, domain in pins:
                terms = tuple(term.joined(pin(axis.key, axis.values[domain])) for term in terms)
            found = self._joined[key] = terms
        return found

    def harmless_ways(
        self, run: PodRun, account: PoolAccount, term: FilterTerm, place: Place | None = None, low: int = 0
    ) -> Iterable[OfferState]:
        """Of `_ways` those that break no spread that is kept; as a rule the first will do. `low`: the claim as a set, 0 for a new one."""
        ways = self._ways(run, account, term, place)
        if not self._kept:
            return ways
        harmless = (self._harmless(account, one, self._kept, run, low) for one in ways)
        return (one for one in harmless if one is not None)

    def _ways(
        self, run: PodRun, account: PoolAccount, term: FilterTerm, place: Place | None = None
    ) -> Sequence[OfferState]:
        """What a claim may come to be once pods of the class are on it by this term, best first; nothing where they must not be.

        `place`: the claim; None for a new one.
        """
        offer = account.offer
        found = offer.narrowed(offer.base if place is None or place.state is None else place.state, term)
        if found is not None and run.ports:
            found = offer.without(found, offer.types.clashing(run.ports))
        if found is None:
            return ()
        ways: Sequence[OfferState] = (found,)
        choosy = run.plan.choosy
        accompanied = place is None and bool(self.companions.company)
        if accompanied:
            choosy = (*choosy, *choosy_terms(self.companions.company))
        if choosy or accompanied:
            used = [0] * len(self.table.setting.bins.dimensions.names) if place is None else list(place.load())
            for d, amount in self.table.first_need(run, place):
                used[d] += amount
            for terms in choosy:
                ways = [side for one in ways for side in sides_of(offer, one, terms, used)][:_MOST_WAYS]
            if accompanied:
                ways = self.companions.settled_ways(account, ways, used)
        return ways

    def _harmless(
        self,
        account: PoolAccount,
        state: OfferState,
        counters: Iterable[DomainCounter],
        run: PodRun | None = None,
        low: int = 0,
    ) -> OfferState | None:
        """`state` less the domains to which a node must not come: a settled spread would find them too empty, or too full by the node's daemons.

        None where no domain is left. With `run`, a pod of it comes with the node. `low`: the claim that is there already, as a set.
        """
        table = self.table
        for counter in counters:
            axis = counter.axis
            fills = run is not None and counter.count not in self.wary
            daemons = 0 if axis.fixed & low else self.companions.brought(account, state).domains.get(counter, 0)
            brought = 1 if run is not None and fills and any(counter in ap.adds for ap in run.plan.axes) else 0
            scarce = counter.scarce(table.usable, daemons + brought)
            if not (scarce or daemons) or not table.counts(counter.count.eligibility, account, state):
                continue
            harmful = [
                axis.values[domain]
                for domain in table.domains_of(account, state, axis)
                if domain in scarce
                or (daemons and uneven(counter, table.usable, table.setting.lingering, {domain: daemons}))
            ]
            if harmful:
                others = Requirements.of((Requirement.of(axis.key, Operator.NOT_IN, harmful),))
                narrower = account.offer.narrowed(state, FilterTerm(others))
                if narrower is None:
                    return None
                state = narrower
        return state

    def unsettled(self, account: PoolAccount, run: PodRun) -> str | None:
        """The label over which any new node for the pods would break a spread that is kept, beside those before it; None for none."""
        need = self.table.first_need(run)
        ways = [one for term in run.filter.terms for one in self._ways(run, account, term)]
        for counter in self._kept:
            ways = [less for one in ways if (less := self._harmless(account, one, [counter], run)) is not None]
            if not any(most(point, need, 1) for one in ways for point in one.points):
                return counter.axis.key
        if self.sparing and all(self.table.is_too_empty(run, account, one) for one in account.offer.starts(run.filter)):
            return HOSTNAME_LABEL
        return None

    def settle(self) -> set[Count]:
        """Keep claims that may come to be in several domains out of those that break a spread; what that fails for."""
        failed: set[Count] = set()
        table = self.table
        for count, counter in table.topology.domain_counters():
            axis = counter.axis
            open_ones = 0
            for domain in counter.scarce(table.usable):
                open_ones |= axis.could[domain] & ~axis.fixed
            for i in members(open_ones & counter.eligible & table.usable):
                place = table.place_at(i)
                account = place.account
                if account is None or place.state is None:
                    continue
                state = self._harmless(account, place.state, [counter])
                if state is None or not fitting(place, state, (), 1):
                    failed.add(count)
                elif state is not place.state:
                    take(place, state, (), 0)
                    table.narrowed(account, 1 << i, state, ())
                    self.companions.narrowed(account, 1 << i, state)
        return failed

    def open_empty(self, account: PoolAccount, state: OfferState) -> int:
        """A claim without pods; its number."""
        self.table.learn(account, state)
        number = len(self.table.places)
        self.table.places.append(opened(account, state))
        self.table.enter(account, state, 1 << number)
        if self.companions.company:
            self.companions.enter(account, state, 1 << number)
            come(self.companions.followers)
        return number

    def open(self, run: PodRun, limit: int, pins: tuple[Pin, ...]) -> int:
        """Pods into new claims; how many."""
        placed = 0
        fixed = tuple([one for one in pins if one[1] >= 0])
        absent = [axis for axis, domain in pins if domain < 0]
        cap_all = 1 if run.plan.single or run.ports else limit
        for _, top in run.caps:
            cap_all = min(cap_all, top)
        if cap_all <= 0:
            return 0
        candidates, companions = self.candidates, self.companions
        takers = candidates.takers(run) if len(self.table.accounts) > 1 else candidates.ground(run.filter)[1]
        for term in self._terms(run.filter, fixed) if takers else ():
            for account in self.in_turn(takers):
                offer = account.offer
                if absent and any(offer.domains(offer.base, axis.key) for axis in absent):
                    continue
                for state in self.harmless_ways(run, account, term):
                    brought = NOTHING
                    if self.sparing and self.table.is_too_empty(run, account, state):
                        continue
                    cap = cap_all
                    if companions.company:
                        if companions.unwelcome(
                            run, account, state, pins, together=run.together
                        ) or companions.keeps_out(account, state, run):
                            continue
                        brought = companions.brought_with(account, state, run)
                        cap = candidates.beside(run, account, state, brought, cap)
                        if cap <= 0:
                            continue
                        if brought.domains:  # each node brings more: what is right is asked anew for the next
                            limit = min(limit, placed + cap)
                    alone = bool(self._kept and brought.domains) or companions.one_by_one(run)
                    placed += self._open_in(run, account, state, limit - placed, cap, pins, alone=alone)
                    if companions.followers:
                        come(companions.followers)
                    if placed >= limit or (placed and alone):
                        return placed
        return placed

    def _open_in(
        self,
        run: PodRun,
        account: PoolAccount,
        state: OfferState,
        limit: int,
        cap_all: int,
        pins: tuple[Pin, ...],
        *,
        alone: bool,
    ) -> int:
        self.table.learn(account, state)
        if run.crowd is not None and self.table.crowds is not None:
            cap_all = min(cap_all, self.table.crowds.top(account.offer.pool.name))
        plan, table, places, pods = run.plan, self.table, self.table.places, run.pods
        first = table.first_need(run)
        plain = first is run.need and not account.exact and len(state.points) == 1
        counting = [
            host for host in plan.adds if host.eligible == ALL or table.counts(host.count.eligibility, account, state)
        ]
        start = begin = run.start
        end = start + limit
        known = len(places)
        loads: list[int] = []  # pods on each new node
        most_new = table.setting.terms.max_new
        rest: list[int] = []  # of a node with `full` pods
        full = 0
        number = 0  # of nodes over which the pods are shared evenly
        if run.over[1]:
            whole, over = run.over
            number = max(-(-limit // cap_all), min(limit, (2 * over * limit + whole) // (2 * whole)))
        while start < end and not (alone and loads):
            if most_new is not None and len(places) - table.now >= most_new:
                break
            cap = min(cap_all, end - start)
            if number > 0:
                cap = min(cap, -(-(end - start) // number))
                number -= 1
            if plain:
                if cap != full:
                    cap = full = most(state.points[0], run.need, cap)
                    if not cap:
                        break
                    rest = list(state.points[0])
                    for d, amount in run.need:
                        rest[d] -= amount * cap
                place = Place(account, state, rest.copy(), [])
            else:
                place = opened(account, state)
                cap = self._load(run, place, 1 << len(places), state, first, cap)
                if not cap:
                    break
            places.append(place)
            place.placed.append((pods, start, start + cap))
            start += cap
            loads.append(cap)
        if not loads:
            return 0
        touched = ((1 << len(loads)) - 1) << known
        for host in counting:
            host.enter(known, loads)
        run.start = start
        self.touched = True
        table.enter(account, state, touched)
        if self.companions.company:
            self.companions.enter(account, state, touched)
        if run.crowd is not None:
            for place_number, load in enumerate(loads, known):
                run.crowd.add(place_number, load)
        for host, key in plan.holds:
            host.held[key] = host.held.get(key, 0) | touched
        if run.ties:
            table.account_for(run, touched, start - begin, pins)
        return start - begin

    def keeps_away(self, run: PodRun, account: PoolAccount) -> str:
        """The DaemonSet whose pods, on each new node that a pool may have for the class, keep it away; "" for none."""
        found = [
            self.companions.unwelcome(run, account, state, (), together=False)
            for term in (run.filter.terms if self.companions.company else ())
            for state in self._ways(run, account, term)
        ]
        return found[0] if found and all(found) else ""

    def keeps_daemons_away(self, run: PodRun, account: PoolAccount) -> bool:
        """Whether on each new node that a pool may have for the class some pods would be in the way of its daemons, or of those that it brings."""
        ways = (one for term in run.filter.terms for one in self._ways(run, account, term))
        return bool(self.companions.company) and all(self.companions.keeps_out(account, one, run) for one in ways)

    def in_turn(self, choices: list[T]) -> list[T]:
        """What can be tried, in the order in which it is."""
        return choices


def sides_of(
    offer: PreparedPool, state: OfferState, terms: tuple[FilterTerm, ...], used: Sequence[int]
) -> Sequence[OfferState]:
    """`state`, narrowed until it is certain whether its node is one that `terms` mean, each way on which `used` fits; cheapest first.

    What a spread over some nodes only counts must not depend on what a claim becomes.
    """
    inside = [found for term in terms if (found := offer.narrowed(state, term)) is not None]
    if not inside or any(found is state for found in inside):
        return (state,)
    outside: OfferState | None = state
    for term in terms:
        if outside is not None and offer.narrowed(outside, term) is not None:
            against = (offer.narrowed(outside, FilterTerm(Requirements.of((one,)))) for one in term.opposites)
            outside = next((found for found in against if found is not None), None)
    sides = inside if outside is None else [outside, *inside]
    prices = {side: offer.price(side, used) for side in sides}
    return sorted((side for side in prices if prices[side] < inf), key=prices.__getitem__)  # of equals the first
