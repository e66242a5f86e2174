"""In which domains pods of a class are placed, and how many in each."""

from collections.abc import Collection, Sequence
from typing import Final

from provisioner.scheduling.attempts.placing.domain_prices import DomainPrices
from provisioner.scheduling.attempts.placing.filler import Filler
from provisioner.scheduling.attempts.placing.place_table import Pin
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.topology.counters import ALL, DomainCounter, water_fill
from provisioner.scheduling.topology.relations import AxisPlan, PodRun

Lead = tuple[DomainCounter, int, int, bool]
"""(counter, max_skew, min_domains, whether it is the class's own spread)"""
_DEEP: Final = 2
"""From so many axes on, what leads to no place costs steps, too: there are as many ways as domains of all of them, multiplied."""


class DomainSpreading:
    """Chooses the domains of one axis after another.

    Attributes:
        closing: no node comes any more, so the true numbers are safe.
    """

    def __init__(self, filler: Filler) -> None:
        self.filler: Final = filler
        self.candidates: Final = filler.candidates
        self.prices: Final = DomainPrices(filler.candidates)
        self.closing = False

    def place(self, run: PodRun, opening: bool) -> None:
        """Put as many pods of a run as find a place, on new claims too where `opening`."""
        if run.start >= run.end:
            return
        opening = opening and not self.closing
        even = run.plan.even
        if even is not None and self._evenly(run, even):
            return
        if not (opening and self.only_opens(run)):
            self._spread(run, opening=False)
        if not opening or not run.left:
            return
        self._spread(run, opening=True)
        if run.left and run.plan.considerate:
            self.inconsiderately(run, opening=True)

    def only_opens(self, run: PodRun) -> bool:
        """Whether places that are there are looked at together with new ones, not before."""
        plan = run.plan
        return self.filler.scattering and not self.closing and bool(plan.axes or plan.adds or plan.spreads)

    def inconsiderately(self, run: PodRun, *, opening: bool) -> None:
        """Put pods where they break the spread of others: nobody has a right to be left an empty domain."""
        run.soft = False
        self._spread(run, opening=opening)
        run.soft = True

    def _evenly(self, run: PodRun, ap: AxisPlan) -> bool:
        """The common case: one axis, one counter that the pods raise, room for all; whether that was so."""
        axis = ap.axis
        counter, skew, least = ap.lead
        counts = counter.counts
        domains: Sequence[int] = axis.numbers
        universe: Collection[int] | None = self.candidates.reach.get((run.widest, axis))
        full = universe is not None and len(universe) == len(counts)
        if not full:
            universe = domains = sorted(self.candidates.universe(run, counter))
        if not universe or (least > 1 and not self.candidates.enough(universe, counter, least)):
            return False
        for other, other_skew, other_least in ap.others:
            lowest = min(other.counts) if full and other_least <= 1 else self.candidates.least(run, other, other_least)
            if max(other.counts) > lowest + other_skew:
                domains = [domain for domain in domains if other.counts[domain] <= lowest + other_skew]
        ceiling: int | None = None
        if len(domains) < len(universe):
            ceiling = min([counts[domain] for domain in universe if domain not in domains]) + skew
        if self.candidates.cautious:
            ceiling = self.candidates.at_best(counter, skew, ceiling)
        candidates = self.candidates.of(run)
        if not candidates:
            return False
        left = run.end - run.start
        if axis.uneven and not (self.prices.flats.get((run.filter, axis)) or self.prices.flat(run, axis)):
            domains = self.prices.in_order(run, axis, domains, left)
        shares = water_fill(counts, domains, left, ceiling)
        if len(shares) > 1:
            # so far a domain may be filled even if no other is
            safe = (min(counts) if full else min([counts[domain] for domain in universe])) + skew
            if max([counts[domain] + share for domain, share in shares]) > safe:
                surely = candidates & axis.fixed
                for domain, share in shares[1:]:  # before the first is filled, nothing is broken
                    if not self.candidates.holds(run, surely & axis.could[domain], share):
                        return False
        could, pins = axis.could, axis.pins
        for domain, share in shares:
            places = candidates & could[domain]
            if not places or self.filler.fill(run, places, share, pins[domain]) < share:
                return False
        return run.start >= run.end

    def _spread(self, run: PodRun, *, opening: bool) -> None:
        plan, run.opening = run.plan, opening
        if plan.bootstraps and not plan.anywhere:
            run.together = False
            self._bootstrap(run)
            run.together = True
            if not run.left or not plan.anywhere:
                return
        self._over(run, plan.axes, 0, ALL, run.left, ())

    def _bootstrap(self, run: PodRun) -> None:
        """The first of pods that want to be together: where most of them find room, on existing nodes by preference."""
        plan = run.plan
        axes = [ap for ap in plan.axes if ap.together]
        if not axes:
            self._first_host(run)
            return
        ap = axes[0]
        axis = ap.axis
        candidates = self.candidates.of(run, together=False)
        room_on = self.candidates.room
        room = {domain: room_on(run, candidates & could, run.left) for domain, could in enumerate(axis.could)}
        reach = self.candidates.openable(run, axis)
        if not run.opening and reach and max(room.values(), default=0) < run.left:
            return  # rather all of them where a new node can be had too
        prices = self.prices.of(run, axis, run.left) if axis.uneven else ()

        def rank(domain: int) -> tuple[bool, bool, float, int, int, int]:
            left = run.left - room[domain]
            usd = prices[domain] * left if prices and left else 0.0
            return left > 0, domain not in reach, usd, -room[domain], axis.loads[domain], domain

        order = sorted((domain for domain in room if room[domain] or domain in reach), key=rank)
        for domain in self.filler.in_turn(order):
            before = run.start
            others = tuple(one for one in plan.axes if one is not ap)
            self._within(run, ap, domain, others)
            if run.start > before:
                axis.loads[domain] += run.start - before
                return

    def _within(self, run: PodRun, ap: AxisPlan, domain: int, others: Sequence[AxisPlan]) -> None:
        if domain not in self.candidates.legal(run, ap, together=False):
            return
        alone = others or ap.spreads or ap.apart or run.plan.together
        limit = 1 if alone else run.left  # all at once only where nothing else has a say
        self._over(run, others, 0, ap.axis.could[domain], limit, ((ap.axis, domain),))

    def _first_host(self, run: PodRun) -> None:
        opening = run.opening
        candidates = self.candidates.of(run, together=False)
        best, most_pods = 0, 0
        for i in members(candidates):
            pods = self.candidates.room(run, 1 << i, run.left)
            if pods > most_pods:
                best, most_pods = 1 << i, pods
                if pods >= run.left:
                    break
        new = self.candidates.largest_new(run)
        if not opening and most_pods < min(new, run.left):
            return
        ways = [(best if most_pods >= min(new, run.left) else 0, False), (0, opening), (candidates, False)]
        for places, run.opening in self.filler.in_turn(ways):
            self._over(run, run.plan.axes, 0, places, 1, ())
            if run.plan.anywhere:
                break
        run.opening = opening

    def _over(
        self, run: PodRun, axes: Sequence[AxisPlan], depth: int, mask: int, limit: int, pins: tuple[Pin, ...]
    ) -> int:
        """Share pods out over the domains of one axis after another; how many were placed."""
        last = depth == len(axes)
        work = self.filler.work
        if work.limited and (last or depth >= _DEEP) and not work.step(run.cost if last else 1):
            return 0
        if last:
            return self.filler.put(run, mask, limit, pins)
        ap = axes[depth]
        axis = ap.axis
        placed = 0
        dead: set[int] = set()
        while placed < limit and not work.over:
            leads = self._leads(run, ap)
            # a single counter that the pods raise themselves is kept even by the shares
            even = leads[0][0] if len(leads) == 1 and leads[0][3] and not ap.alone else None
            legal = [
                domain for domain in self.candidates.legal(run, ap, even, together=run.together) if domain not in dead
            ]
            if leads:  # domains that are none of the class's own must not take a share
                universe = self.candidates.universe(run, leads[0][0])
                legal = [domain for domain in legal if domain in universe]
            shares = self._shares(run, ap, leads, legal, limit - placed)
            if not shares:
                break
            died = False
            before = placed
            cautious = (
                len(leads) == 1 and len(shares) > 1 and not (run.opening and self._surely_opens(run, leads[0], shares))
            )
            for domain, share in shares:
                wanted = min(share, limit - placed)
                if cautious:  # no further than is right even if the next domain takes none
                    counter, skew, least, _ = leads[0]
                    wanted = min(wanted, self.candidates.least(run, counter, least) + skew - counter.counts[domain])
                if wanted <= 0:
                    continue
                got = self._over(run, axes, depth + 1, mask & axis.could[domain], wanted, (*pins, (axis, domain)))
                placed += got
                if got < wanted:
                    dead.add(domain)
                    died = True
                    if len(shares) > 1 and ap.spreads:
                        break  # the others may go no further than this one lets them
            if not died and placed == before:
                break
        if placed < limit and not ap.strict:
            absent = mask & axis.absent
            placed += self._over(run, axes, depth + 1, absent, limit - placed, (*pins, (axis, -1)))
        return placed

    def _surely_opens(self, run: PodRun, lead: Lead, shares: Sequence[tuple[int, int]]) -> bool:
        """Whether new claims can be had in every domain, as many as need be."""
        counter = lead[0]
        if run.plan.together or counter.count in self.candidates.cautious:
            return False
        reach = self.candidates.openable(run, counter.axis)
        return all(domain in reach for domain, _ in shares) and not any(
            account.exact for account in self.candidates.ground(run.filter)[1]
        )

    def _leads(self, run: PodRun, ap: AxisPlan) -> list[Lead]:
        """What the pods themselves raise."""
        leads = [(counter, skew, least, True) for counter, skew, own, least in ap.spreads if own]
        if run.soft:
            leads += [(counter, skew, 1, False) for counter, skew in ap.wanted]
        return leads

    def _shares(
        self, run: PodRun, ap: AxisPlan, leads: Sequence[Lead], legal: list[int], pods: int
    ) -> list[tuple[int, int]]:
        """How many pods to put in which domain next."""
        if not legal:
            return []
        if ap.alone:
            return [(domain, 1) for domain in self._preferred(run, ap, legal)][:pods]
        if not leads:
            return [(domain, pods) for domain in self._preferred(run, ap, legal)]
        if ap.axis.uneven and not self.prices.flat(run, ap.axis):
            legal = self.prices.in_order(run, ap.axis, legal, 1 if len(leads) > 1 else pods)
        if len(leads) > 1:
            return self._one_by_one(run, leads, legal)
        counter, skew, least, hard = leads[0]
        universe = self.candidates.universe(run, counter)
        outside = [domain for domain in universe if domain not in legal]
        ceiling: int | None = None
        if outside:
            ceiling = min(counter.counts[domain] for domain in outside) + skew
        if hard:
            ceiling = self.candidates.at_best(counter, skew, ceiling)
        if hard and not self.candidates.enough(universe, counter, least):
            ceiling = skew
        return water_fill(counter.counts, legal, pods, ceiling)

    def _one_by_one(self, run: PodRun, leads: Sequence[Lead], legal: Sequence[int]) -> list[tuple[int, int]]:
        """One pod for the domain that all counters together like best; of equals the first."""
        kind = [
            domain
            for domain in legal
            if all(
                hard or counter.counts[domain] < self.candidates.least(run, counter, least) + skew
                for counter, skew, least, hard in leads
            )
        ]
        order = sorted(kind or legal, key=lambda domain: sum(counter.counts[domain] for counter, *_ in leads))
        return [(domain, 1) for domain in order]

    def _preferred(self, run: PodRun, ap: AxisPlan, legal: list[int]) -> list[int]:
        """Domains in the order in which places would have it: the one of the first place that may do, first."""
        axis = ap.axis
        if len(legal) == 1:
            return legal
        candidates = self.candidates.of(run)
        reach = self.candidates.openable(run, axis) if run.opening else frozenset()
        prices = self.prices.of(run, axis, 1 if ap.alone else run.left) if run.opening and axis.uneven else ()

        def first(domain: int) -> tuple[int, int, bool, float, int, int]:
            places = candidates & axis.could[domain]
            low = (places & -places).bit_length() if places else len(self.candidates.table.places) + 1
            crowd = sum(counter.counts[domain] for counter in ap.adds) if self.filler.scattering else 0
            usd = prices[domain] if prices else 0.0
            return crowd, low, domain not in reach, usd, axis.loads[domain], domain

        return sorted(legal, key=first)
