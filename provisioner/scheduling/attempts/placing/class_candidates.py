"""The places, pools and domains that may take one more pod of a class, as far as is known without looking at each."""

from collections.abc import Collection, Iterable
from typing import Final

from provisioner.scheduling.attempts.placing.companions import Companions
from provisioner.scheduling.capacity.offers import OfferState, pin
from provisioner.scheduling.capacity.places import Place, PoolAccount, fitting
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.demands import Count
from provisioner.scheduling.constraints.filters import NodeFilter
from provisioner.scheduling.constraints.vectors import Need, Vector, most
from provisioner.scheduling.topology.company import Brought
from provisioner.scheduling.topology.counters import ALL, Axis, DomainCounter
from provisioner.scheduling.topology.relations import AxisPlan, PodRun

MUCH: Final = 1 << 40
_LEVEL_BITS: Final = 5
_MANY_SIZES: Final = 500  # hardly two pods are of one size


def _level(amount: int) -> int:
    """Amounts of about one size have one level; never less for more."""
    shift = amount.bit_length() - _LEVEL_BITS
    return amount if shift <= 0 else (shift << _LEVEL_BITS) + (amount >> shift)


class ClassCandidates:
    """What is remembered of classes that ask the same.

    Attributes:
        cautious: spreads that see no node that is not there yet.
        reach: by question and axis, the domains in which a new claim would take such a pod.
        full: by dimension and level, claims with less left; None where pods have few sizes.
    """

    def __init__(self, companions: Companions, cautious: Collection[Count]) -> None:
        table = companions.table
        self.table: Final = table
        self.companions: Final = companions
        self.cautious: Final = cautious
        self.reach: Final[dict[tuple[int, Axis], frozenset[int]]] = {}
        self.full: Final[list[dict[int, int]] | None] = (
            [{} for _ in table.setting.bins.dimensions.names] if table.setting.sizes > _MANY_SIZES else None
        )
        self._base: Final[dict[NodeFilter, tuple[int, list[PoolAccount]]]] = {}
        self._grounds: Final[dict[int, tuple[int, list[PoolAccount]]]] = {}
        self._roomy: Final[dict[int, int]] = {}
        self._groups: Final[dict[NodeFilter, list[tuple[list[Vector], list[int]]]]] = {}
        self._taking: Final[dict[int, list[PoolAccount]]] = {}
        self._split: Final[dict[tuple[NodeFilter, Axis], list[tuple[tuple[Vector, ...], list[int]]]]] = {}

    def ground(self, node_filter: NodeFilter) -> tuple[int, list[PoolAccount]]:
        """Bins that admit pods with this filter, and pools that may."""
        found = self._base.get(node_filter)
        if found is None:
            willing = [account for account in self.table.accounts if account.offer.admits(node_filter)]
            found = self._base[node_filter] = (self.table.setting.bins.admitting(node_filter), willing)
        return found

    def takers(self, run: PodRun) -> list[PoolAccount]:
        """Pools that have nodes on which a pod of the class fits; those that have the same are looked at once."""
        found = self._taking.get(run.question)
        if found is None:
            number = run.filter
            groups = self._groups.get(number)
            if groups is None:
                by_points: dict[tuple[tuple[Vector, ...], ...], list[int]] = {}
                willing = self.ground(number)[1]
                for place, account in enumerate(willing):
                    points = tuple([state.points for state in account.offer.starts(number)])
                    by_points.setdefault(points, []).append(place)
                groups = self._groups[number] = [
                    ([point for some in points for point in some], places) for points, places in by_points.items()
                ]
            willing = self.ground(number)[1]
            need = run.need
            takers = [places for points, places in groups if any(most(point, need, 1) for point in points)]
            if sum(map(len, takers)) == len(willing):
                found = willing
            else:
                found = [willing[place] for place in sorted(place for places in takers for place in places)]
            self._taking[run.question] = found
        return found

    def of(self, run: PodRun, *, together: bool = True, evenly: bool = True) -> int:  # noqa: C901 - the hot loop: a call costs more than a branch
        """Places that may take one more pod of the class, as far as is known without looking at each; hostname spread is heeded where `evenly`."""
        number = run.question
        table = self.table
        known = self._grounds.get(number)
        if known is None:
            known = self._grounds[number] = self.ground(run.filter)
            bins = table.setting.bins
            full = bins.everything & ~bins.roomy(run.need) if known[0] else 0
            self._roomy[number] = ~full
        mask, willing = known
        if len(table.places) > table.now:
            for account in willing:
                mask |= account.claims
        roomy = self._roomy[number]
        if run.volumes:
            for volume in run.volumes:  # what has it attached already is full for others only
                roomy |= table.attached.get(volume, 0)
        mask &= roomy
        if self.full is not None:
            for d, amount in run.need:
                mask &= ~self.full[d].get(_level(amount), 0)
        if table.saying and not run.filter.easy and len(run.filter.terms) == 1:
            for key, one in run.filter.terms[0].requirements.items():
                if key in table.saying and not one.complement:
                    same = 0
                    for value in one.values:
                        same |= table.said[key].get(value, 0)
                    mask &= same | ~table.saying[key]
        if run.crowd is not None:
            mask &= ~run.crowd.full
        plan = run.plan
        if self.companions.followers and mask:
            mask &= ~self.companions.shut_to(run)
        if plan.hostless and not run.ports:
            return mask
        for host in plan.blocked:
            mask &= ~host.with_at_least(1)
        for host in plan.apart:
            mask &= ~host.with_at_least(1)
        if plan.spreads and evenly:
            for (host, _, own, _), top in zip(plan.spreads, run.tops, strict=True):
                mask &= ~host.with_at_least(top if own else top + 1)
        if together:
            for host in plan.together:
                mask &= host.with_at_least(1)
        if run.soft:
            for host, _ in plan.guarded:
                for held in host.held.values():
                    mask &= ~held
        return mask & ~table.ports.clashing(run.ports) if run.ports else mask

    def close(self, run: PodRun, places: int) -> None:
        """These places take no more pods of such a class."""
        self._roomy[run.question] = self._roomy.get(run.question, ALL) & ~places

    def is_full(self, place: Place, low: int, need: Need) -> bool:
        """Whether a claim has too little left of something; remembered for all needs of about that size."""
        if place.held:
            return place.too_small(need)
        tops = place.tops()
        if not tops:
            return True
        for d, amount in need:
            if tops[d] < amount:
                level = _level(amount)
                if self.full is not None and _level(tops[d]) < level:
                    self.full[d][level] = self.full[d].get(level, 0) | low
                return True
        return False

    def _reachable(self, node_filter: NodeFilter, number: int, need: Need, axis: Axis) -> frozenset[int]:
        """The domains in which a new claim would take such a pod; `number` stands for filter and need."""
        key = (number, axis)
        found = self.reach.get(key)
        if found is None:
            found = self.reach[key] = frozenset(
                domain
                for points, domains in self._split_by(node_filter, axis)
                if any(most(point, need, 1) for point in points)
                for domain in domains
            )
        return found

    def _split_by(self, node_filter: NodeFilter, axis: Axis) -> list[tuple[tuple[Vector, ...], list[int]]]:
        """What new nodes have room for, and the domains in which they do; those that have the same are one."""
        key = (node_filter, axis)
        found = self._split.get(key)
        if found is None:
            by_points: dict[tuple[Vector, ...], list[int]] = {}
            for account in self.ground(node_filter)[1]:
                offer = account.offer
                if axis.key not in offer.well_known and not offer.domains(offer.base, axis.key):
                    continue  # no pod can make its nodes have that label
                for state in offer.starts(node_filter):
                    for value in offer.domains(state, axis.key):
                        narrower = offer.narrowed(state, pin(axis.key, value)) if value in axis.index else None
                        if narrower is not None:
                            by_points.setdefault(narrower.points, []).append(axis.index[value])
            found = self._split[key] = [*by_points.items()]
        return found

    def openable(self, run: PodRun, axis: Axis) -> frozenset[int]:
        """The domains in which a new claim would take a pod of the class now, by its wishes too."""
        return self._reachable(run.filter, run.question, run.need, axis)

    def universe(self, run: PodRun, counter: DomainCounter) -> frozenset[int]:
        """The domains of eligible nodes, and those in which the class itself may have a new one.

        A domain where the class fits nothing may still come to exist by another class: see `Filler`.
        """
        reach = self.reach.get((run.widest, counter.axis))
        if reach is None:
            reach = self._reachable(run.required, run.widest, run.need, counter.axis)
        if len(reach) == len(counter.axis.values):
            return reach
        counter.blind = True
        return reach.union(counter.existing(self.table.domains))

    def most_alone(self, run: PodRun, ap: AxisPlan) -> int:
        """In how many domains a pod of the class could be, if there were no other pods than those that run."""
        axis = ap.axis
        known = self.table.topology.scope.axes[axis.key].could
        reach = self._reachable(run.required, run.widest, run.need, axis)
        admitting = self.table.setting.bins.admitting(run.required)
        closed = [self.table.topology.scope.sums(one.count) for one in (*ap.apart, *ap.blocked)]
        return sum(
            (domain in reach or bool(known[domain] & admitting))
            and not any(sums is not None and sums[domain] for sums in closed)
            for domain in axis.numbers
        )

    def enough(
        self, universe: Collection[int], counter: DomainCounter, min_domains: int, filled: Collection[int] = ()
    ) -> bool:
        """Whether there are as many domains as a spread constraint wants before it looks at the emptiest one; a node comes to those that are `filled`."""
        if min_domains > 1 and counter.count in self.cautious:  # some that can be had were not
            return len({*counter.existing(self.table.usable), *filled}) >= min_domains
        lingering = self.table.setting.lingering
        if min_domains > 1 and lingering:  # what leaves is a domain no more once it is gone
            left = {*counter.existing(lingering)}.difference(counter.existing(self.table.usable))
            return len(universe) - len(left.difference(filled)) >= min_domains
        return len(universe) >= min_domains

    def least(self, run: PodRun, counter: DomainCounter, min_domains: int) -> int:
        """The number in the emptiest domain that counts."""
        counts = counter.counts
        universe = self.universe(run, counter)
        if not self.enough(universe, counter, min_domains):
            return 0
        if len(universe) == len(counts):
            return min(counts)
        least = min((counts[domain] for domain in universe), default=0)
        return min(least, counter.at_best(self.table.usable, least)) if counter.count in self.cautious else least

    def at_best(self, counter: DomainCounter, skew: int, ceiling: int | None) -> int | None:
        """The ceiling of a cautious spread, which also looks at nodes that are not settled yet."""
        if counter.count not in self.cautious:
            return ceiling
        top = counter.at_best(self.table.usable, MUCH) + skew
        return top if ceiling is None else min(ceiling, top)

    def legal(self, run: PodRun, ap: AxisPlan, even: DomainCounter | None = None, *, together: bool) -> list[int]:
        """The domains that take one more pod of the class, as far as counts other than `even` go."""
        domains: Iterable[int] = range(len(ap.axis.values))
        for other in (*ap.blocked, *ap.apart):
            domains = [domain for domain in domains if not other.counts[domain]]
        if together:
            for other in ap.together:
                come = self._coming(run, other) if self.companions.company else ()
                domains = [domain for domain in domains if other.counts[domain] or domain in come]
        for counter, skew, own, least in ap.spreads:
            if counter is even:
                continue
            top = self.least(run, counter, least) + skew - (1 if own else 0)
            domains = [domain for domain in domains if counter.counts[domain] <= top]
        return list(domains)

    def beside(self, run: PodRun, account: PoolAccount, state: OfferState, brought: Brought, cap: int) -> int:
        """How many pods spread allows beside the daemons of a new node, there and in its domains."""
        for (host, _, own, _), top in zip(run.plan.spreads, run.tops, strict=True):
            left = top - brought.hosts.get(host, 0)
            if own:
                cap = min(cap, left)
            elif left < 0:
                return 0
        for ap in run.plan.axes if brought.domains else ():
            domains = self.table.domains_of(account, state, ap.axis)
            for counter, skew, own, least in ap.spreads if len(domains) == 1 else ():
                universe, lowest = self.universe(run, counter), 0
                if self.enough(universe, counter, least, domains):
                    # a domain that takes pods may get daemons, too: hoped for, until an attempt was judged not to hold it
                    hoped = () if counter.count in self.cautious else self.legal(run, ap, counter, together=False)
                    others = universe.difference(hoped, domains)
                    if not others:
                        continue
                    lowest = min([counter.counts[one] for one in others])
                left = lowest + skew - counter.counts[domains[0]] - brought.domains.get(counter, 0)
                if own:
                    cap = min(cap, left)
                elif left < 0:
                    return 0
        return cap

    def _coming(self, run: PodRun, counter: DomainCounter) -> Collection[int]:
        """The domains to which a new node for the class may bring daemons that a counter counts."""
        found: set[int] = set()
        for account in self.takers(run):
            for state in account.offer.starts(run.filter):
                for one in self.companions.company:
                    for way in one.filter.terms if account.offer.tolerated(one.filter) else ():
                        there = account.offer.narrowed(state, way)
                        if there is not None and counter in self.companions.brought_with(account, there).domains:
                            found.update(self.table.domains_of(account, there, counter.axis))
        return found

    def holds(self, run: PodRun, places: int, pods: int) -> bool:
        """Whether some of these places, looked at one after another, surely take so many pods of the class."""
        if not run.easy:
            return False
        need, caps, known, crowd = run.need, run.caps, self.table.places, run.crowd
        single = run.plan.single
        while places:
            low = places & -places
            i = low.bit_length() - 1
            places ^= low
            head = (known[i] or self.table.place_at(i)).head
            if head is None:
                continue
            cap = 1 if single else pods
            for counter, top in caps:
                rest = top - counter.counts.get(i, 0)
                if rest < cap:  # noqa: PLR1730 - min() is a call
                    cap = rest
            if crowd is not None:
                cap = min(cap, crowd.rest(i))
            if cap > 0:
                pods -= most(head, need, cap)
                if pods <= 0:
                    return True
        return False

    def room(self, run: PodRun, places: int, limit: int) -> int:
        """How many pods of the class the places take as far as room goes, at most `limit`."""
        total = 0
        crowd = run.crowd
        for i in members(places):
            place = self.table.place_at(i)
            here = limit if crowd is None else max(0, min(limit, crowd.rest(i)))
            if place.state is None:
                total += max(0, most(place.head, run.need, here)) if place.head is not None else 0
            else:
                total += fitting(place, place.state, run.need, here)
            if total >= limit:
                return limit
        return total

    def largest_new(self, run: PodRun) -> int:
        """The most pods of the class that one new claim takes."""
        best = 0
        for account in self.ground(run.filter)[1]:
            limit = run.left
            if run.crowd is not None and self.table.crowds is not None:
                limit = min(limit, self.table.crowds.top(account.offer.pool.name))
            for state in account.offer.starts(run.filter):
                for point in state.points:
                    best = max(best, most(point, run.need, limit))
        return best

    def _ask_again(self, claims: int) -> None:
        for key in self._roomy:
            self._roomy[key] |= claims

    def forget(self) -> bool:
        """Whether a limit was loosened since the last call; if so, claims of limited pools are asked again."""
        loosened = 0
        for account in self.table.accounts:
            ledger = account.ledger
            if ledger is not None and ledger.loosened:
                ledger.loosened = False
                loosened |= account.claims
        if loosened:
            self._ask_again(loosened)
        return bool(loosened)

    def give_reservations_up(self) -> None:
        """From now on a claim may become a node that is bought, where that takes more pods."""
        for account in self.table.accounts:
            if account.reservations is not None:
                account.reservations.kept = False
                self._ask_again(account.claims)
