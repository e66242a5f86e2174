"""One pass over all classes of a problem, from nothing placed to everything placed that can be."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import msgspec

from provisioner.scheduling.attempts.breaches import Breaches
from provisioner.scheduling.attempts.class_plans import ClassPlans
from provisioner.scheduling.attempts.finishing import finish
from provisioner.scheduling.attempts.placing.class_candidates import ClassCandidates
from provisioner.scheduling.attempts.placing.companions import Companions
from provisioner.scheduling.attempts.placing.domain_spreading import DomainSpreading
from provisioner.scheduling.attempts.placing.filler import Filler
from provisioner.scheduling.attempts.placing.hostname_spreading import HostnameSpreading
from provisioner.scheduling.attempts.placing.place_table import PlaceTable
from provisioner.scheduling.attempts.setting import LOOKED_UP_A_STEP, Setting, Work
from provisioner.scheduling.capacity.nodes import Bins
from provisioner.scheduling.capacity.offers import PreparedPool
from provisioner.scheduling.capacity.places import Place, PoolAccount, Reservations, take_off
from provisioner.scheduling.capacity.prepared_types import Daemon
from provisioner.scheduling.constraints.classes import PodClass, ladders_of
from provisioner.scheduling.constraints.demands import Count, Demand
from provisioner.scheduling.constraints.filters import FilterTerm
from provisioner.scheduling.constraints.vectors import Need
from provisioner.scheduling.constraints.volumes import NO_VOLUMES
from provisioner.scheduling.problem import MinValuesPolicy
from provisioner.scheduling.topology.census import Census
from provisioner.scheduling.topology.company import guards_of
from provisioner.scheduling.topology.counters import Axis, DomainScope, Topology, axes_of
from provisioner.scheduling.topology.relations import PodRun

_MANY_COUNTS: Final = 1_000
_SEVERAL: Final = 2
_MOST_WISHED: Final = 1 << 17
"""Counts that wishes of all pods may need together."""

NO_CEILINGS: Final[Mapping[Count, int]] = MappingProxyType({})


class Attempt:
    """Where everything is put. Its parts, each the owner of one state, are asked themselves.

    Args:
        cautious: spread constraints that see no node that is not there yet.
        ceilings: most pods on a node, by hostname spread, so that all of them can be filled evenly.
        wary: of these, those for which a node never comes to a domain that is too empty, not even with the pod that fills it.
        nodes_wanted: over so many nodes at least, pods that hostname spread is about are shared out.
        classes: in the order in which they are tried.

    Attributes:
        waiting: classes of which pods are left, and the number of the first of them.
        delayed: classes that had to wait until the others were placed.
        before_late: how many claims there were before hostname spread was settled.
        unfinished: it ended before every class had been tried.
        refused: classes that were tried and whose pods without a place ended it; nothing that was still to come could have helped them.
    """

    def __init__(
        self,
        setting: Setting,
        cautious: Collection[Count],
        classes: Sequence[PodClass],
        ceilings: Mapping[Count, int] = NO_CEILINGS,
        nodes_wanted: int = 0,
        wary: Collection[Count] = (),
    ) -> None:
        self.cautious: Final = cautious
        self.wary: Final = wary
        self.classes: Final = classes
        self.delayed: Final[set[PodClass]] = set()
        self.waiting: Final[dict[PodClass, int]] = {}
        self.unfinished = False
        self.refused: Final[set[PodClass]] = set()
        self.before_late = 0
        self._setting: Final = setting
        self._work: Final = setting.terms.work
        world = setting.world
        self._reservations: Final = Reservations(world.reservation_label)
        best_effort = world.min_values is MinValuesPolicy.BEST_EFFORT
        accounts = [
            PoolAccount(offer, setting.pods, setting.load, self._reservations, best_effort=best_effort)
            for offer in setting.offers
        ]
        self.table: Final = PlaceTable(setting, accounts, Topology(setting.scope, cautious))
        self.candidates: Final = ClassCandidates(Companions(self.table), cautious)
        self.spreading: Final = self._spreading()
        self.filler: Final = self.spreading.filler
        self.hostnames: Final = HostnameSpreading(self.spreading, ceilings, nodes_wanted)
        self.plans: Final = ClassPlans(self.table)
        self.breaches: Final = Breaches(self.candidates.companions, self.plans, classes, self.waiting)

    def _spreading(self) -> DomainSpreading:
        return DomainSpreading(Filler(self.candidates, self.wary))

    def claims_without(self, dropped: Collection[PodClass]) -> list[Place]:
        """The same at the end of everything, without the pods of some classes, and without those that were made for them alone."""
        claims = self.table.claims()
        if not dropped:
            return claims
        for claim in claims:
            for one, start, end in claim.placed:
                if one in dropped:
                    take_off(claim, self._setting.needs[one], end - start)
            claim.placed = [part for part in claim.placed if part[0] not in dropped]
        return [claim for claim in claims if claim.placed]

    def legal_domains(self, one: PodClass) -> tuple[PodRun, list[tuple[str, frozenset[str]]]]:
        """By label that matters to a class, the domains that take one more pod of it by now, as far as counts go."""
        run = self.plans.run_for(one, one.ladder[-1], 0)
        run.soft = False
        legal = [
            (ap.axis.key, frozenset(map(ap.axis.values.__getitem__, self.candidates.legal(run, ap, together=False))))
            for ap in run.plan.axes
        ]
        return run, legal

    @property
    def size(self) -> int:
        """How many places there are."""
        return len(self.table.places)

    def run(
        self, *, by_priority: bool, scattering: bool, hurried: Collection[PodClass], sparing_below: int | None = None
    ) -> None:
        """Place everything.

        Args:
            scattering: pods that are counted and may choose go where few are counted, not to the first place.
            by_priority: finish each priority before the next; else hostname spread waits until all else is placed.
            hurried: do not let these wait for hostname spread.
            sparing_below: pods of lower priority get no new nodes that would break the hostname spread of those before them.
        """
        self.filler.scattering = scattering
        later: list[tuple[PodClass, int]] = []
        changed = False
        bands = [list(band) for _, band in itertools.groupby(self.classes, _priority)]
        for band in bands:
            if sparing_below is not None and band[0].shape.priority < sparing_below:
                self.filler.sparing = True
            later += self._band(band, hurried)
            if self._stopped():
                break
            if by_priority:
                self._late(later)
                later = []
            if self._changed():
                changed = True
                self._turns(band)
        if self.unfinished:
            self._leave(later)
            return
        self._late(later)
        if self._changed() or (changed and len(bands) > 1):
            self._turns(self.classes)
        if self.waiting and self.cautious:
            self.spreading.closing = True  # no node comes any more, so the true numbers are safe
            self._turns(self.classes)
        if self.waiting and self._reservations.left:
            self.candidates.give_reservations_up()
            self._turns(self.classes)
        self.breaches.unsettled.update(self.filler.settle())

    def tied(self) -> set[PodClass]:
        """The classes with pods without a place that have to do with other pods: in another order they may find one."""
        if self.table.topology.empty or not self.waiting:
            return set()
        return {
            one
            for one in self.waiting
            if not self.plans.plan_for(one).plain and self._fits_somewhere(one) and not self._exhausted(one)
        }

    def _exhausted(self, one: PodClass) -> bool:
        """Whether as many pods of the class have a place as there could ever be: of those that cannot share a domain, one in each."""
        run = self.plans.run_for(one, one.ladder[-1], 0)
        return any(self.waiting[one] >= self.candidates.most_alone(run, ap) for ap in run.plan.axes if ap.alone)

    def _fits_somewhere(self, one: PodClass) -> bool:
        """Whether a pod of the class has a place as long as no other pod of the problem has one."""
        setting = self._setting
        return setting.has_room(one) or (setting.takes(one) and not self._kept_away(one))

    def _kept_away(self, one: PodClass) -> bool:
        """Whether daemons keep a class from every new node that it could have."""
        if not self.candidates.companions.company:
            return False
        run = self.plans.run_for(one, one.ladder[-1], 0)
        takers = [account for account in self.table.accounts if account.offer.takes(run.required, run.need)]
        return all(self.filler.keeps_away(run, account) for account in takers)

    @property
    def opened_late(self) -> bool:
        """Whether hostname spread opened claims of its own."""
        return bool(self.delayed) and len(self.table.places) - self.table.now > self.before_late

    def usd_per_hour(self) -> float:
        """The price of all claims."""
        return sum([claim.usd_per_hour for claim in finish(self.table.claims())])

    def usd_at_lowest(self) -> float:
        """The least that all claims can come to cost: what `usd_apart` and bounds are compared with."""
        return sum([claim.prices[0] for claim in finish(self.table.claims())])

    def usd_apart(self) -> float:
        """About what there would be to pay with a node for every maxSkew pods that hostname spread is about."""
        total = sum([self._usd_without(claim, self.delayed) for claim in self.table.claims()[: self.before_late]])
        for one in self.delayed:
            run = self.plans.run_for(one, one.ladder[-1], 0)
            skew = min((skew for _, skew, own, _ in run.plan.spreads if own), default=run.left)
            nodes = -(-run.left // skew)
            total += nodes * self.spreading.prices.cheapest(run, min(skew, run.left))
        return total

    def _usd_without(self, claim: Place, classes: Collection[PodClass]) -> float:
        """The least price of a claim without the pods of some classes."""
        account, state = claim.account, claim.settled or claim.state
        used = list(claim.load())
        left = False
        for one, start, end in claim.placed:
            if one in classes:
                for d, amount in self._setting.needs[one]:
                    used[d] -= amount * (end - start)
            else:
                left = True
        if account is None or state is None or not left:
            return 0.0
        usd = account.offer.price(state, used)
        return usd if usd < float("inf") else 0.0

    def spread_counts(self) -> set[Count]:
        """The hostname spreads of classes that had to wait for it."""
        demands = (one.ladder[-1] for one in self.delayed)
        return {spread.count for demand in demands for spread in demand.relations.spreads if spread.count.on_hosts}

    def nodes_for(self, classes: Collection[PodClass]) -> int:
        """How many claims there would be, if those of `classes` shared them evenly with all others."""
        ends = [self.plans.run_for(one, one.ladder[-1], 0) for one in classes]
        most_of_any = max((-(-run.left // max(1, self.candidates.largest_new(run))) for run in ends), default=0)
        return self.before_late + most_of_any

    def related(self, to: Collection[PodClass]) -> set[PodClass]:
        """The classes that are counted together with some of these."""
        about = self._setting.scope.about
        counted = set[Count]().union(*[about(one.ladder) for one in to])
        return {one for one in self.classes if not counted.isdisjoint(about(one.ladder))}

    def left_by_priority(self) -> list[int]:
        """Of each priority, highest first, the pods without a place; less is better."""
        left = dict.fromkeys(map(_priority, self.classes), 0)
        for one, start in self.waiting.items():
            left[_priority(one)] += len(one.pods) - start
        return [left[priority] for priority in sorted(left, reverse=True)]

    def _band(self, classes: Sequence[PodClass], hurried: Collection[PodClass]) -> list[tuple[PodClass, int]]:
        """Try each class once; those that hostname spread makes wait, and the number of the first pod without a place."""
        later = []
        for one in classes:
            start = self._place(one, 0, one in hurried)  # by position, which is quicker; so below
            if start < len(one.pods):
                if one.ladder[0].relations.on_hosts and one not in hurried:
                    later.append((one, start))
                else:
                    self.waiting[one] = start
                    if self._stopped():
                        break
        return later

    def _stopped(self) -> bool:
        """Whether a pod without a place ends the attempt: no turn that is still to come could help it."""
        if not self._setting.terms.stop or not self.waiting:
            return False
        if not self.unfinished:  # else time was up, and the last class may not have been tried
            alone = self.table.topology.empty
            self.refused.update(one for one in self.waiting if alone or not self._fits_somewhere(one))
            self.unfinished = bool(self.refused)
        return self.unfinished

    def _leave(self, later: Iterable[tuple[PodClass, int]]) -> None:
        """Whoever was not tried has no place."""
        tried = {one for _, place in self.table.all_known() for one, _, _ in place.placed}
        self.waiting.update(later)
        for one in self.classes:
            if one not in tried:
                self.waiting.setdefault(one, 0)

    def _late(self, later: Iterable[tuple[PodClass, int]]) -> None:
        """Settle hostname spread."""
        if not self.delayed:
            self.before_late = len(self.table.places) - self.table.now
        for one, start in later:
            self.delayed.add(one)
            left = self._place(one, start, late=True)
            if left < len(one.pods):
                self.waiting[one] = left

    def _turns(self, classes: Sequence[PodClass]) -> None:
        """Ask those of `classes` once more that have pods without a place, as long as that changes anything."""
        changed = not self._work.over
        while changed and not self._work.over:
            for one in [one for one in classes if one in self.waiting]:
                left = self._place(one, self.waiting[one], late=True)
                if left == len(one.pods):
                    del self.waiting[one]
                else:
                    self.waiting[one] = left
            changed = self._changed()

    def _changed(self) -> bool:
        """Whether anything happened since the last call by which a pod without a place may have one."""
        touched, self.filler.touched = self.filler.touched, False
        return self.candidates.forget() or (touched and not self.table.topology.empty)

    def _ladder(self, one: PodClass) -> Sequence[Demand]:
        """What is tried for a class, in this order."""
        return one.ladder

    def _place_first(self, one: PodClass, start: int, *, late: bool) -> int:
        """Place one pod whose place decides where volumes are; the number of the first pod without a place."""
        after = start
        for zone in self._zones_for(one, start, late=late):
            after = self._place(one, start, late=late, end=start + 1, zone=zone)
            if after > start:
                self.plans.volumes.decide(one, start, after)
                break
        return after

    def _zones_for(self, one: PodClass, start: int, *, late: bool) -> Sequence[FilterTerm | None]:
        """Zones for the first pod of a claim that others use too: those first where all have room, then the cheapest.

        At last none, as there are nodes without a zone; but not before the pods may have new nodes in zones that are possible.
        """
        setting, candidates, prices = self._setting, self.candidates, self.spreading.prices
        pods = max(setting.users[unbound.claim] for unbound in one.volumes.unbound)
        if pods < _SEVERAL:
            return (None,)
        need = setting.needs[one]
        ranked = []
        for number, zone in enumerate(setting.zones):
            run = self.plans.run_for(one, one.ladder[-1], start, zone)
            room = candidates.room(run, candidates.of(run), pods)
            enough, buys = room >= pods, setting.buys(run.required, need)
            usd = 0.0 if enough else prices.cheapest(run, 1)
            ranked.append((not (enough or buys), not enough, usd, -room, number))
        found: list[FilterTerm | None] = [setting.zones[number] for *_, number in sorted(ranked)]
        if late or all(impossible for impossible, *_ in ranked):
            found.append(None)
        return found

    def _place(self, one: PodClass, start: int, late: bool, end: int = 0, zone: FilterTerm | None = None) -> int:
        """Place pods of a class, from `start` up to `end` or all, in one zone where that is said; the first without a place."""
        limit = end or len(one.pods)
        volumes = one.volumes
        if volumes is not NO_VOLUMES and volumes.unbound and not end and self.plans.volumes.undecided(one):
            before, start = start, self._place_first(one, start, late=late)
            if start in (before, limit):
                return start
        if self._work.limited and not self._work.step():
            self.unfinished = True
            return start
        exclusive: tuple[str, ...] = ()
        if volumes is not NO_VOLUMES:
            exclusive = volumes.exclusive
            if exclusive and (start or any(claim in self.plans.volumes.in_use for claim in exclusive)):
                return start
            if volumes.unbound and self.plans.volumes.missing(one):
                return start
        paid = 1
        for demand in self._ladder(one):
            run = self.plans.run_for(one, demand, start, zone)
            if self._work.limited and run.cost > paid and not self._work.step(run.cost - paid):
                break
            paid = 0
            if exclusive:
                run.end = 1
            elif end:
                run.end = end
            if not run.plan.spreads:
                self.spreading.place(run, True)
            elif late:
                self.hostnames.late(run)
            else:
                self.spreading.place(run, False)
                start = run.start
                break
            if (late or run.plan.bootstraps) and run.start > start:
                self.breaches.note(run, late=late)
            start = run.start
            if start == limit or (exclusive and start):
                break
        if exclusive and start:
            self.plans.volumes.in_use.update(exclusive)
        if start < limit and self._work.over:
            self.unfinished = True
        return start


def whole(classes: Iterable[PodClass], need_of: Mapping[int, Need], dimensions: int) -> tuple[int, list[int]]:
    """How many pods there are, and what they take together; `need_of` is by identity of what they request."""
    counts = dict.fromkeys(need_of, 0)
    for one in classes:
        counts[id(one.facts.requests)] += len(one.pods)
    load = [0] * dimensions
    for requests, count in counts.items():
        for d, amount in need_of[requests]:
            load[d] += amount * count
    return sum(counts.values()), load


def affordable(classes: list[PodClass]) -> tuple[list[PodClass], list[Sequence[Demand]]]:
    """The same and their ladders, where they wish so much together that it would take all memory, without the wishes of those who wish most."""
    ladders = ladders_of(classes)
    sizes = {id(one): sum([len(step.relations.counts) for step in one[:-1]]) for one in ladders if len(one) > 1}
    left = _MOST_WISHED
    if sum(sizes.values()) <= left:
        return classes, ladders
    for key, size in sorted(sizes.items(), key=lambda entry: entry[1]):
        left -= size
        if left >= 0:
            del sizes[key]
    classes = [
        msgspec.structs.replace(one, ladder=one.ladder[-1:]) if id(one.ladder) in sizes else one for one in classes
    ]
    return classes, ladders_of(classes)


def scope_of(
    namespaces: Mapping[str, Mapping[str, str]],
    classes: Iterable[PodClass],
    ladders: Sequence[Sequence[Demand]],
    offers: Sequence[PreparedPool],
    bins: Bins,
    census: Census,
    work: Work,
    lingering: int = 0,
    company: Sequence[Daemon] = (),
) -> DomainScope:
    """Everything that has to be counted for these classes, whose different ladders are `ladders`, and what keeps them from daemons."""
    counts = dict.fromkeys(count for ladder in ladders for demand in ladder for count in demand.relations.counts)
    if census.guards.numbers:
        kinds = {id(one.facts.pod): one.facts.pod for one in classes}
        for pod in kinds.values():
            counts.update(dict.fromkeys(census.guarded(pod, namespaces)))
    for one in company:
        if one.near:  # whoever runs already may keep it out
            counts.update(
                dict.fromkeys([*one.near, *one.relations.apart, *census.guarded(one.relations.pod, namespaces)])
            )
    if company:
        counts.update(guards_of(company, {id(one.facts.pod): one.facts.pod for one in classes}.values(), namespaces))
    keys = axes_of(counts)
    scope = DomainScope(bins, census, namespaces, counts, lingering)
    named = _named_values(ladders, keys)
    for key in sorted(keys):
        places = bins.by_label(key)
        values = {value for value in places if value is not None}
        for offer in offers:
            values.update(offer.domains(offer.base, key))
        values.update(named[key])
        even = {offer.even(key) for offer in offers}
        axis = scope.axes[key] = Axis(key, values, uneven=len(even) > 1 or None in even)
        axis.settle_in(places)
    for number, count in enumerate(counts):  # of a few, once somebody looks
        if number and not number % LOOKED_UP_A_STEP and not work.step():
            break
        if len(counts) > _MANY_COUNTS:
            (scope.spots if count.on_hosts else scope.sums)(count)
    return scope


def _named_values(ladders: Iterable[Sequence[Demand]], keys: Collection[str]) -> dict[str, set[str]]:
    """By label, the values of it that a class names; a pool may let its nodes have any."""
    found: dict[str, set[str]] = {key: set() for key in keys}
    filters = {id(demand.filter): demand.filter for ladder in ladders for demand in ladder if not demand.filter.easy}
    for node_filter in filters.values() if found else ():
        for term in node_filter.terms:
            for key, asked in term.requirements.items():
                if key in found and not asked.complement:
                    found[key].update(asked.values)
    return found


def skews_of(ladders: Iterable[Sequence[Demand]]) -> dict[Count, int]:
    """By what pods with these ladders are spread by, and its least maxSkew."""
    skews: dict[Count, int] = {}
    for ladder in ladders:
        for spread in ladder[-1].relations.spreads:
            skews[spread.count] = min(spread.max_skew, skews.get(spread.count, spread.max_skew))
    return skews


_priority: Final = attrgetter("shape.priority")
