"""One pass over all classes of a problem, from nothing placed to everything placed that can be."""

import functools
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import msgspec

from provisioner.apis.names import ZONE_LABEL
from provisioner.scheduling.attempts.binding_order import Stuck, none_waits, stuck
from provisioner.scheduling.attempts.finishing import finish
from provisioner.scheduling.attempts.placing import Placing
from provisioner.scheduling.attempts.setting import LOOKED_UP_A_STEP, Setting, Work
from provisioner.scheduling.capacity.nodes import Bins
from provisioner.scheduling.capacity.offers import Daemon, PreparedPool
from provisioner.scheduling.capacity.places import Place, PoolAccount, Reservations, take_off
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.demands import Count, Demand, Relations
from provisioner.scheduling.constraints.filters import TRIVIAL, FilterTerm
from provisioner.scheduling.constraints.vectors import Need
from provisioner.scheduling.constraints.volumes import NO_VOLUMES, terms_left
from provisioner.scheduling.problem import MinValuesPolicy
from provisioner.scheduling.topology.census import Census
from provisioner.scheduling.topology.company import guards_of
from provisioner.scheduling.topology.counters import Axis, DomainScope, HostCounter, Topology, above, axes_of, uneven
from provisioner.scheduling.topology.relations import PodRun, Question, TopologyPlan, run_of
from provisioner.values.requirement import Operator, Requirement, Requirements

_NO_ZONE: Final = FilterTerm(Requirements.of((Requirement.of(ZONE_LABEL, Operator.DOES_NOT_EXIST),)))
"""Whoever shares a volume with a pod on a node without a zone has to be on such a node, too."""
_MANY_COUNTS: Final = 1_000
_FEW_PODS: Final = 100
"""Of so many, an order of binding is looked for wherever two spreads wait for each other; of more, a judged design alone pays it."""
_LOOKS_OF_AN_ATTEMPT: Final = 5_000
"""So many looks may be spent on further orders of binding in one attempt; there is another attempt where none is found."""
_SEVERAL: Final = 2
_MOST_WISHED: Final = 1 << 17
"""Counts that wishes of all pods may need together."""

NO_CEILINGS: Final[Mapping[Count, int]] = MappingProxyType({})


class Attempt:
    """Where everything is put.

    Args:
        cautious: spread constraints that see no node that is not there yet.
        ceilings: most pods on a node, by hostname spread, so that all of them can be filled evenly.
        wary: of these, those for which a node never comes to a domain that is too empty, not even with the pod that fills it.
        nodes_wanted: over so many nodes at least, pods that hostname spread is about are shared out.
        classes: in the order in which they are tried.

    Attributes:
        waiting: classes of which pods are left, and the number of the first of them.
        delayed: classes that had to wait until the others were placed.
        in_use: volume claims for one pod only that some pod uses.
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
        self.waiting: dict[PodClass, int] = {}
        self.unfinished = False
        self.refused: Final[set[PodClass]] = set()
        self.before_late = 0
        self._setting: Final = setting
        self._work: Final = setting.terms.work
        self._plans: Final[dict[object, TopologyPlan]] = {}
        self._numbers: Final[dict[Question, int]] = {}
        world = setting.world
        self._reservations: Final = Reservations(world.reservation_label)
        best_effort = world.min_values is MinValuesPolicy.BEST_EFFORT
        accounts = [
            PoolAccount(offer, setting.pods, setting.load, self._reservations, best_effort=best_effort)
            for offer in setting.offers
        ]
        self.placing: Final = self._placing_with(setting, accounts, Topology(setting.scope, cautious))
        self.placing.ceilings = ceilings
        self.placing.wary = wary
        self.placing.nodes_wanted = nodes_wanted
        self.in_use: Final = set(setting.in_use)
        self._unsettled: Final[set[Count]] = set()
        self._doubtful: Final[set[Count]] = set()
        self._known_to: Final[dict[HostCounter, int]] = {}
        self._decided: Final[dict[str, tuple[FilterTerm, ...]]] = {}
        self._taken: Final[set[str]] = set()

    def _placing_with(self, setting: Setting, accounts: Sequence[PoolAccount], topology: Topology) -> Placing:
        return Placing(setting, accounts, topology, self.cautious)

    def claims_without(self, dropped: Collection[PodClass]) -> list[Place]:
        """The same at the end of everything, without the pods of some classes, and without those that were made for them alone."""
        claims = self.placing.claims()
        if not dropped:
            return claims
        for claim in claims:
            for one, start, end in claim.placed:
                if one in dropped:
                    take_off(claim, self._setting.needs[one], end - start)
            claim.placed = [part for part in claim.placed if part[0] not in dropped]
        return [claim for claim in claims if claim.placed]

    @property
    def size(self) -> int:
        """How many places there are."""
        return len(self.placing.places)

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
        self.placing.scattering = scattering
        later: list[tuple[PodClass, int]] = []
        changed = False
        bands = [list(band) for _, band in itertools.groupby(self.classes, _priority)]
        for band in bands:
            if sparing_below is not None and band[0].shape.priority < sparing_below:
                self.placing.sparing = True
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
        if self.waiting and self.placing.cautious:
            self.placing.closing = True  # no node comes any more, so the true numbers are safe
            self._turns(self.classes)
        if self.waiting and self._reservations.left:
            self.placing.give_reservations_up()
            self._turns(self.classes)
        self._unsettled.update(self.placing.settle())

    def tied(self) -> set[PodClass]:
        """The classes with pods without a place that have to do with other pods: in another order they may find one."""
        if self.placing.topology.empty or not self.waiting:
            return set()
        return {
            one
            for one in self.waiting
            if not self.plan_for(one).plain and self._fits_somewhere(one) and not self._exhausted(one)
        }

    def _exhausted(self, one: PodClass) -> bool:
        """Whether as many pods of the class have a place as there could ever be: of those that cannot share a domain, one in each."""
        run = self.run_for(one, one.ladder[-1], 0)
        return any(self.waiting[one] >= self.placing.most_alone(run, ap) for ap in run.plan.axes if ap.alone)

    def _fits_somewhere(self, one: PodClass) -> bool:
        """Whether a pod of the class has a place as long as no other pod of the problem has one."""
        setting, required, need = self._setting, one.filter, self._setting.needs[one]
        bins = setting.bins
        if bins.admitting(required) & bins.roomy(need):
            return True
        return setting.buys(required, need) and not self._kept_away(one)

    def _kept_away(self, one: PodClass) -> bool:
        """Whether daemons keep a class from every new node that it could have."""
        placing = self.placing
        if not placing.company:
            return False
        run = self.run_for(one, one.ladder[-1], 0)
        takers = [account for account in placing.accounts if account.offer.takes(run.required, run.need)]
        return all(placing.keeps_away(run, account) for account in takers)

    @property
    def opened_late(self) -> bool:
        """Whether hostname spread opened claims of its own."""
        return bool(self.delayed) and len(self.placing.places) - self.placing.now > self.before_late

    def usd_per_hour(self) -> float:
        """The price of all claims."""
        return sum([claim.usd_per_hour for claim in finish(self.placing.claims())])

    def usd_at_lowest(self) -> float:
        """The least that all claims can come to cost: what `usd_apart` and bounds are compared with."""
        return sum([claim.prices[0] for claim in finish(self.placing.claims())])

    def usd_apart(self) -> float:
        """About what there would be to pay with a node for every maxSkew pods that hostname spread is about."""
        total = sum([self._usd_without(claim, self.delayed) for claim in self.placing.claims()[: self.before_late]])
        for one in self.delayed:
            run = self.run_for(one, one.ladder[-1], 0)
            skew = min((skew for _, skew, own, _ in run.plan.spreads if own), default=run.left)
            nodes = -(-run.left // skew)
            total += nodes * self.placing.cheapest(run, min(skew, run.left))
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
        ends = [self.run_for(one, one.ladder[-1], 0) for one in classes]
        most_of_any = max((-(-run.left // max(1, self.placing.largest_new(run))) for run in ends), default=0)
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

    def broken(self) -> set[Count]:
        """The spread constraints that what was placed first holds no longer, because of what was placed later."""
        placing = self.placing
        usable, topology = placing.usable, placing.topology
        hosts = {count for count, host in topology.hosts.items() if host.held and _is_above(host, placing)}
        return (
            hosts
            | self._unsettled
            | self.unordered
            | {count for count, one in topology.domains.items() if uneven(one, usable, placing.lingering)}
        )

    @functools.cached_property
    def unordered(self) -> set[Count]:
        """The spread constraints that hold once all is bound, for which no order was found in which it can be.

        Asked once everything is placed. Only where a domain came that pods did not reckon with, because they cannot go there; for
        pods that are spread and had to be the first of those that they must be with; and for those whose hostname spread waits for pods
        placed later, where they look at other domains as well: what makes room for them may take it there.
        """
        placing, scope = self.placing, self._setting.scope
        before = (1 << placing.now) - 1
        late = {
            count
            for count, one in placing.topology.domains.items()
            if one.blind
            and one.surprised(placing.usable, placing.usable & before, scope.sums(count) or [0] * len(one.counts))
        } | self._doubtful.union(
            host.count for host, size in self._known_to.items() if host.surprised(placing.usable >> size << size)
        )
        few = self._setting.pods <= _FEW_PODS
        if not (late or few) or none_waits(placing, self.plan_for):
            return set()
        if few:
            late |= self.waiting_for_each_other(self._placed())
        return late if late and self.stuck(late, _LOOKS_OF_AN_ATTEMPT) else set()

    def waiting_for_each_other(self, classes: Iterable[PodClass]) -> set[Count]:
        """Of these classes, the spreads that hold only once pods are in all domains, and of which several count the pods of one class."""
        ladders, usable, topology = ladders_of(classes), self.placing.usable, self.placing.topology
        spreads = {(one.count, one.max_skew) for ladder in ladders for one in ladder[-1].relations.spreads}
        waiting = {
            count
            for count, skew in spreads
            if (
                topology.host(count).with_at_least(skew + 1) & usable
                if count.on_hosts
                else max(topology.domain(count).counts, default=0) > skew
            )
        }
        several = [waiting & self._setting.scope.about(one) for one in ladders] if len(waiting) > 1 else ()
        return set[Count]().union(*[both for both in several if len(both) > 1])

    def stuck(self, counts: Collection[Count], most: int) -> list[Stuck]:
        """The pods that have to do with these counts and are left in the best order that `binding_order.stuck` found."""
        return stuck(self.placing, self.freed(counts), self._plans_over, most)

    def _plans_over(self, topology: Topology, classes: Iterable[PodClass]) -> dict[PodClass, TopologyPlan]:
        """What classes ask, over other counters; those that ask the same share it."""
        mine = {one: id(self.plan_for(one)) for one in classes}
        kinds = {key: one for one, key in mine.items()}
        plans = {key: self._new_plan(one, one.ladder[-1].relations, topology) for key, one in kinds.items()}
        return {one: plans[key] for one, key in mine.items()}

    def evenly(self, broken: Collection[Count]) -> dict[Count, int]:
        """Of broken hostname spreads, the most pods on a node with which the emptiest one would do."""
        placing, skews = self.placing, self._setting.skews
        return {
            count: host.emptiest(host.eligible & placing.usable) + skews.get(count, 1)
            for count, host in placing.topology.hosts.items()
            if count in broken
        }

    def freed(self, broken: Collection[Count]) -> set[PodClass]:
        """The classes without which nothing is broken: all that must have to do with what is, directly or by others, and have places."""
        counted, placed, about = set(broken), self._placed(), self._setting.scope.about
        left = {ladder[-1].relations: about(ladder[-1:]) for ladder in ladders_of(placed)}
        while more := [relations for relations, own in left.items() if not counted.isdisjoint(own)]:
            counted.update(*map(left.pop, more))
        return {one for one in placed if one.ladder[-1].relations not in left}

    def _placed(self) -> list[PodClass]:
        """The classes of which pods have places."""
        return [one for one in self.classes if self.waiting.get(one, 1)]

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
            alone = self.placing.topology.empty
            self.refused.update(one for one in self.waiting if alone or not self._fits_somewhere(one))
            self.unfinished = bool(self.refused)
        return self.unfinished

    def _leave(self, later: Iterable[tuple[PodClass, int]]) -> None:
        """Whoever was not tried has no place."""
        tried = {one for place in self.placing.places if place is not None for one, _, _ in place.placed}
        self.waiting.update(later)
        for one in self.classes:
            if one not in tried:
                self.waiting.setdefault(one, 0)

    def _late(self, later: Iterable[tuple[PodClass, int]]) -> None:
        """Settle hostname spread."""
        if not self.delayed:
            self.before_late = len(self.placing.places) - self.placing.now
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
        placing = self.placing
        touched, placing.touched = placing.touched, False
        return placing.forget() or (touched and not placing.topology.empty)

    def _ladder(self, one: PodClass) -> Sequence[Demand]:
        """What is tried for a class, in this order."""
        return one.ladder

    def _place_first(self, one: PodClass, start: int, *, late: bool) -> int:
        """Place one pod whose place decides where volumes are; the number of the first pod without a place."""
        after = start
        for zone in self._zones_for(one, start, late=late):
            after = self._place(one, start, late=late, end=start + 1, zone=zone)
            if after > start:
                self.decide(one, start, after)
                break
        return after

    def _undecided(self, one: PodClass) -> bool:
        """Whether the class's next pod decides where the volume of a claim is, and that matters to others."""
        users = self._setting.users
        return any(
            unbound.claim not in self._decided and (unbound.volumes is not None or users[unbound.claim] > 1)
            for unbound in one.volumes.unbound
        )

    def _zones_for(self, one: PodClass, start: int, *, late: bool) -> Sequence[FilterTerm | None]:
        """Zones for the first pod of a claim that others use too: those first where all have room, then the cheapest.

        At last none, as there are nodes without a zone; but not before the pods may have new nodes in zones that are possible.
        """
        setting, placing = self._setting, self.placing
        pods = max(setting.users[unbound.claim] for unbound in one.volumes.unbound)
        if pods < _SEVERAL:
            return (None,)
        need = setting.needs[one]
        ranked = []
        for number, zone in enumerate(setting.zones):
            run = self.run_for(one, one.ladder[-1], start, zone)
            room = placing.room(run, pods)
            enough, buys = room >= pods, setting.buys(run.required, need)
            ranked.append(
                (not (enough or buys), not enough, placing.cheapest(run, 1) if not enough else 0.0, -room, number)
            )
        found: list[FilterTerm | None] = [setting.zones[number] for *_, number in sorted(ranked)]
        if late or all(impossible for impossible, *_ in ranked):
            found.append(None)
        return found

    def decide(self, one: PodClass, start: int, end: int) -> None:
        """Pods `start` to `end` of a class have a place, which decides what volumes its claims get."""
        if start == end or not self._undecided(one):
            return
        for number, place in enumerate(self.placing.places):
            if place is not None and any(pods is one and first <= start < last for pods, first, last in place.placed):
                self._decide_by(one, number, place)
                return

    def _decide_by(self, one: PodClass, number: int, place: Place) -> None:
        account, state = place.account, place.state
        existing = None if account is not None else self._setting.bins.bins[number]

        def reaches(terms: Sequence[FilterTerm]) -> bool:
            if existing is not None:
                return any(term.matches(existing.labels, existing.node_name) for term in terms)
            return (
                account is not None
                and state is not None
                and any(account.offer.narrowed(state, t) is state for t in terms)
            )

        for unbound in one.volumes.unbound:
            if unbound.claim in self._decided:
                continue
            if unbound.volumes is None:
                zone = next(
                    (zone for zone in self._setting.zones if reaches((zone,))),
                    TRIVIAL if existing is None else _NO_ZONE,
                )
                self._decided[unbound.claim] = (zone,)
                continue
            for name, terms in unbound.volumes:
                if name not in self._taken and reaches(terms):
                    self._taken.add(name)
                    self._decided[unbound.claim] = terms
                    break

    def without_volume(self, one: PodClass) -> str:
        """A claim of the class for which no volume is left, because other pods got them; "" for none."""
        left = terms_left(one.volumes, self._taken, self._decided) if one.volumes.unbound else ()
        return left if isinstance(left, str) else ""

    def _place(self, one: PodClass, start: int, late: bool, end: int = 0, zone: FilterTerm | None = None) -> int:
        """Place pods of a class, from `start` up to `end` or all, in one zone where that is said; the first without a place."""
        limit = end or len(one.pods)
        volumes = one.volumes
        if volumes is not NO_VOLUMES and volumes.unbound and not end and self._undecided(one):
            before, start = start, self._place_first(one, start, late=late)
            if start in (before, limit):
                return start
        if self._work.limited and not self._work.step():
            self.unfinished = True
            return start
        exclusive: tuple[str, ...] = ()
        if volumes is not NO_VOLUMES:
            exclusive = volumes.exclusive
            if exclusive and (start or any(claim in self.in_use for claim in exclusive)):
                return start
            if volumes.unbound and self.without_volume(one):
                return start
        placing = self.placing
        paid = 1
        for demand in self._ladder(one):
            run = self.run_for(one, demand, start, zone)
            if self._work.limited and run.cost > paid and not self._work.step(run.cost - paid):
                break
            paid = 0
            if exclusive:
                run.end = 1
            elif end:
                run.end = end
            if not run.plan.spreads:
                placing.place(run, True)
            elif late:
                placing.late(run)
            else:
                placing.place(run, False)
                start = run.start
                break
            if run.plan.bootstraps and run.start > start:
                self._doubtful.update(counter.count for ap in run.plan.axes for counter, _ in ap.holds)
            if late and run.plan.axes and run.start > start:
                self._known_to.update((host, self.size) for host, *_ in run.plan.spreads)
                self._doubtful.update(host.count for host, *_ in run.plan.spreads if _is_above(host, placing))
            start = run.start
            if start == limit or (exclusive and start):
                break
        if exclusive and start:
            self.in_use.update(exclusive)
        if start < limit and self._work.over:
            self.unfinished = True
        return start

    def run_for(self, one: PodClass, demand: Demand, start: int, zone: FilterTerm | None = None) -> PodRun:
        """A class with one of its demands, in one zone only where that is said."""
        relations, setting = demand.relations, self._setting
        # by identity, which is quicker; equal ones that are not the same would only have equal plans
        plan = self._plans.get(id(relations)) or self._plan(one, relations)
        crowd = None
        if one.owner and self.placing.crowds is not None:
            crowd = self.placing.crowds.of(one.owner)
        if one.volumes is NO_VOLUMES:
            return run_of(one, demand, plan, setting.needs[one], self._numbers, start, (), crowd)
        reached: tuple[FilterTerm, ...] = ()
        unbound = one.volumes.unbound
        if unbound and (self._decided or zone is not None or len(unbound) > 1):
            left = terms_left(one.volumes, self._taken, self._decided)
            reached = one.volumes.alternatives if isinstance(left, str) else left
            if zone is not None:
                reached = tuple([term.joined(zone) for term in reached])
        return run_of(one, demand, plan, setting.needs[one], self._numbers, start, reached, crowd)

    def plan_for(self, one: PodClass) -> TopologyPlan:
        """What a class requires."""
        relations = one.ladder[-1].relations
        return self._plans.get(id(relations)) or self._plan(one, relations)

    def _plan(self, one: PodClass, relations: Relations) -> TopologyPlan:
        setting = self._setting
        varies = relations.on_hosts and setting.domains_vary
        key: object = (relations, setting.hostname_domains(one.filter)) if varies else id(relations)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._new_plan(one, relations, self.placing.topology)
        return plan

    def _new_plan(self, one: PodClass, relations: Relations, topology: Topology) -> TopologyPlan:
        setting = self._setting
        domains = setting.hostname_domains(one.filter) if relations.on_hosts else 1
        return TopologyPlan(relations, topology, setting.skews, lambda spread: setting.least(spread, domains))


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


def ladders_of(classes: Iterable[PodClass]) -> list[Sequence[Demand]]:
    """The different ones of all classes."""
    return [*{id(one.ladder): one.ladder for one in classes}.values()]


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


def _is_above(host: HostCounter, placing: Placing) -> bool:
    return above(host, placing.usable, placing.node_count(host))


_priority: Final = attrgetter("shape.priority")
