"""One pass over all classes of a problem, from nothing placed to everything placed that can be."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.names import HOSTNAME_LABEL
from provisioner.scheduling.bins import Bins, Tally
from provisioner.scheduling.classes import PodClass
from provisioner.scheduling.demands import Count, Demand, Relations
from provisioner.scheduling.filters import NodeFilter
from provisioner.scheduling.offers import Daemon, Offer
from provisioner.scheduling.places import Account, Place, Reservations
from provisioner.scheduling.placing import Placing
from provisioner.scheduling.plans import Counter, Plan, Run, run_of
from provisioner.scheduling.ports import Ports
from provisioner.scheduling.problem import MinValuesPolicy, Problem
from provisioner.scheduling.topology import ALL, Axis, Topology, above, uneven
from provisioner.scheduling.vectors import Need
from provisioner.scheduling.volumes import attachments_of, claim_keys


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What all attempts at one problem share.

    Attributes:
        classes: in the order in which they are tried.
        needs: of each class, what one pod takes.
        offers: of the pools, in their order.
        tallies: by bin, the pods on it.
    """

    problem: Problem
    classes: Sequence[PodClass]
    needs: Mapping[PodClass, Need]
    offers: Sequence[Offer]
    bins: Bins
    tallies: Sequence[Tally]
    daemons: Sequence[Daemon]


class Attempt:
    """Where everything is put.

    Args:
        cautious: spread constraints that see no machine that is not there yet.

    Attributes:
        placing: the places.
        waiting: classes of which pods are left, and the number of the first of them.
        delayed: classes that had to wait until the others were placed.
        in_use: volume claims for one pod only that some pod uses.
    """

    def __init__(self, setting: Setting, cautious: Collection[Count]) -> None:
        self.cautious: Final = cautious
        self.problem: Final = setting.problem
        self.classes: Final = setting.classes
        self.delayed: Final[set[PodClass]] = set()
        self.waiting: dict[PodClass, int] = {}
        self._setting: Final = setting
        self._plans: Final[dict[Relations, Plan]] = {}
        self._numbers: Final[dict[tuple[NodeFilter, int], int]] = {}
        bins, problem, classes = setting.bins, setting.problem, setting.classes
        pods, load = _whole(classes, setting.needs, len(bins.dimensions.names))
        self._reservations: Final = Reservations(problem.reservation_label)
        best_effort = problem.min_values is MinValuesPolicy.BEST_EFFORT
        accounts = [
            Account(number, offer, pods, load, self._reservations, best_effort=best_effort)
            for number, offer in enumerate(setting.offers)
        ]
        topology = _topology(problem, classes, accounts, bins, setting.tallies)
        self._skews: Final = _skews(classes)
        self.placing: Final = self._placing_with(bins, accounts, topology)
        self.placing.settle_in(setting.tallies, _due_ports(bins, setting.daemons))
        if bins.dimensions.drivers:
            moving = {pod.uid for pod in problem.pods}
            self.placing.attach(
                [
                    attachments_of((pod for pod in one.pods if pod.uid not in moving), problem.storage)
                    for one in bins.bins
                ]
            )
        self.in_use: Final = _in_use(problem, classes)
        self._unsettled: Final[set[Count]] = set()

    def _placing_with(self, bins: Bins, accounts: Sequence[Account], topology: Topology) -> Placing:
        return Placing(bins, accounts, topology, self.cautious)

    def claims(self) -> Iterable[Place]:
        """The places that are claims, in the order they were opened."""
        return self.placing.places[len(self.problem.bins) :]

    @property
    def size(self) -> int:
        """How many places there are."""
        return len(self.placing.places)

    def run(self, *, by_priority: bool, scattering: bool, hurried: Collection[PodClass]) -> None:
        """Place everything.

        Args:
            scattering: pods that are counted and may choose go where few are counted, not to the first place.
            by_priority: finish each priority before the next; else hostname spread waits until all else is placed.
            hurried: do not let these wait for hostname spread.
        """
        self.placing.scattering = scattering
        later: list[tuple[PodClass, int]] = []
        changed = False
        bands = [list(band) for _, band in itertools.groupby(self.classes, _priority)]
        for band in bands:
            later += self._band(band, hurried)
            if by_priority:
                self._late(later)
                later = []
            if self._changed():
                changed = True
                self._turns(band)
        self._late(later)
        if self._changed() or (changed and len(bands) > 1):
            self._turns(self.classes)
        if self.waiting and self.placing.cautious:
            self.placing.closing = True  # no machine comes any more, so the true numbers are safe
            self._turns(self.classes)
        if self.waiting and self._reservations.left:
            self.placing.give_reservations_up()
            self._turns(self.classes)
        self._unsettled.update(self.placing.settle())

    def tied(self) -> set[PodClass]:
        """The classes with pods without a place that have to do with other pods: in another order they may find one."""
        if self.placing.topology.empty:
            return set()
        return {
            one
            for one in self.waiting
            if not self.run_for(one, one.ladder[-1], 0).plan.plain and self._fits_somewhere(one)
        }

    def _fits_somewhere(self, one: PodClass) -> bool:
        """Whether a pod of the class has a place as long as no other pod of the problem has one."""
        setting, required, need = self._setting, one.filter, self._setting.needs[one]
        bins = setting.bins
        return bool(bins.admitting(required) & bins.roomy(need)) or any(
            offer.takes(required, need) for offer in setting.offers
        )

    def related(self, to: Collection[PodClass]) -> set[PodClass]:
        """The classes that are counted together with some of these."""
        counted = {counter for one in to for counter in self._counters(one)}
        return {one for one in self.classes if not counted.isdisjoint(self._counters(one))}

    def _counters(self, one: PodClass) -> set[Counter]:
        return {counter for demand in one.ladder for counter in self.run_for(one, demand, 0).plan.counters()}

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
        hosts = {
            count for count, host in topology.hosts.items() if host.held and above(host, usable, placing.machines(host))
        }
        return hosts | self._unsettled | {count for count, one in topology.domains.items() if uneven(one, usable)}

    def _band(self, classes: Sequence[PodClass], hurried: Collection[PodClass]) -> list[tuple[PodClass, int]]:
        """Try each class once; those that hostname spread makes wait, and the number of the first pod without a place."""
        later = []
        for one in classes:
            start = self._place(one, 0, late=one in hurried)
            if start < len(one.pods):
                if self._spread_over_hosts(one) and one not in hurried:
                    later.append((one, start))
                else:
                    self.waiting[one] = start
        return later

    def _late(self, later: Iterable[tuple[PodClass, int]]) -> None:
        """Settle hostname spread."""
        for one, start in later:
            self.delayed.add(one)
            left = self._place(one, start, late=True)
            if left < len(one.pods):
                self.waiting[one] = left

    def _turns(self, classes: Sequence[PodClass]) -> None:
        """Ask those of `classes` once more that have pods without a place, as long as that changes anything."""
        changed = True
        while changed:
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

    def _spread_over_hosts(self, one: PodClass) -> bool:
        return any(spread.count.key == HOSTNAME_LABEL for spread in one.ladder[0].relations.spreads)

    def _ladder(self, one: PodClass) -> Sequence[Demand]:
        """What is tried for a class, in this order."""
        return one.ladder

    def _place(self, one: PodClass, start: int, *, late: bool) -> int:
        limit = len(one.pods)
        exclusive = one.volumes.exclusive
        if exclusive and (start or any(claim in self.in_use for claim in exclusive)):
            return start
        placing = self.placing
        for demand in self._ladder(one):
            run = self.run_for(one, demand, start)
            if exclusive:
                run.end = 1
            if not run.plan.spreads:
                placing.place(run, opening=True)
            elif late:
                placing.late(run)
            else:
                placing.place(run, opening=False)
                start = run.start
                break
            start = run.start
            if start == limit or (exclusive and start):
                break
        if exclusive and start:
            self.in_use.update(exclusive)
        return start

    def run_for(self, one: PodClass, demand: Demand, start: int) -> Run:
        """A class with one of its demands."""
        relations = demand.relations
        plan = self._plans.get(relations)
        if plan is None:
            plan = self._plans[relations] = Plan(relations, self.placing.topology, self._skews)
        return run_of(one, demand, plan, self._setting.needs[one], self._numbers, start)


def _priority(one: PodClass) -> int:
    return one.shape.priority


def _whole(classes: Sequence[PodClass], needs: Mapping[PodClass, Need], dimensions: int) -> tuple[int, list[int]]:
    """How many pods there are, and what they take together."""
    by_need: defaultdict[Need, int] = defaultdict(int)
    for one in classes:
        by_need[needs[one]] += len(one.pods)
    load = [0] * dimensions
    for need, count in by_need.items():
        for d, amount in need:
            load[d] += amount * count
    return sum(by_need.values()), load


def _topology(
    problem: Problem, classes: Sequence[PodClass], accounts: Sequence[Account], bins: Bins, tallies: Sequence[Tally]
) -> Topology:
    """Everything that has to be counted, at 0."""
    topology = Topology(problem.namespaces)
    counts: dict[Count, None] = {}
    ladders = [*{id(one.ladder): one.ladder for one in classes}.values()]
    for ladder in ladders:
        for demand in ladder:
            counts.update(dict.fromkeys(demand.relations.counts))
    for tally in tallies:
        for relations, _ in tally.guarding:
            counts.update(dict.fromkeys(relations.guards))
    keys: dict[str, None] = {}
    for count in counts:
        if not count.on_hosts:
            keys[count.key] = None
        if count.eligibility is not None:
            keys.update(dict.fromkeys(count.eligibility.keys))
    for key in sorted(keys):
        values = {value for value in bins.by_label(key) if value is not None}
        for account in accounts:
            values.update(account.offer.domains(account.offer.base, key))
        for ladder in ladders:
            values.update(_named_values(ladder, key))
        topology.axes[key] = Axis(key, values)
    for count in counts:
        topology.watch(count, ALL if count.eligibility is None else bins.eligible(count.eligibility))
    return topology


def _named_values(ladder: Sequence[Demand], key: str) -> Iterable[str]:
    """Values of a label that a class names; a pool may let its machines have any."""
    for demand in ladder:
        for term in demand.filter.terms:
            asked = term.requirements.get(key)
            if asked is not None and not asked.complement:
                yield from asked.values


def _skews(classes: Sequence[PodClass]) -> dict[Count, int]:
    """By what pods of the problem are spread by, and its least maxSkew."""
    skews: dict[Count, int] = {}
    for demand in {id(one.ladder): one.ladder[-1] for one in classes}.values():
        for spread in demand.relations.spreads:
            skews[spread.count] = min(spread.max_skew, skews.get(spread.count, spread.max_skew))
    return skews


def _due_ports(bins: Bins, daemons: Sequence[Daemon]) -> list[Ports]:
    """By bin, the ports that daemons will take there."""
    due: list[Ports] = [()] * len(bins.bins)
    for daemon in daemons:
        if daemon.ports:
            places = bins.admitting(daemon.filter)
            for i in range(len(due)):
                if places >> i & 1:
                    due[i] = (*due[i], *daemon.ports)
    return due


def _in_use(problem: Problem, classes: Sequence[PodClass]) -> set[str]:
    """Claims that only one pod may use at a time, and that a pod on a machine of now does use."""
    exclusive = {claim for one in classes for claim in one.volumes.exclusive}
    if not exclusive:
        return set()
    moving = {pod.uid for pod in problem.pods}
    return {
        claim
        for one in problem.bins
        for pod in one.pods
        if pod.uid not in moving
        for claim in claim_keys(pod)
        if claim in exclusive
    }
