"""Pods of one class into places, as many at a time as the class allows.

What a class does not use costs it nothing: without relations to other pods it is filled into the first places that take
it; with them, domains are chosen first (emptiest first for spread), then the places in them.

A claim on which a pod of some count is put gets its domain settled, so what is counted is also what will be. Hostname
spread takes the emptiest node as empty until `late` looks at the true number, once all other claims are open.
"""

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from provisioner.apis.names import HOSTNAME_LABEL
from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.capacity.offers import Daemon, OfferState, PreparedPool, pin
from provisioner.scheduling.capacity.places import (
    Place,
    PoolAccount,
    fitting,
    make_exact,
    opened,
    take,
)
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.demands import Count, Eligibility
from provisioner.scheduling.constraints.filters import FilterTerm, NodeFilter
from provisioner.scheduling.constraints.ports import TakenPorts
from provisioner.scheduling.constraints.vectors import ATTACHABLE, Need, Vector, most
from provisioner.scheduling.constraints.volumes import Attachment
from provisioner.scheduling.constraints.workload_limits import Crowds
from provisioner.scheduling.topology.company import NOTHING, Brought, Follower, brought_by, choosy_terms, come
from provisioner.scheduling.topology.counters import (
    ALL,
    Axis,
    DomainCounter,
    HostCounter,
    Topology,
    uneven,
    water_fill,
)
from provisioner.scheduling.topology.relations import AxisPlan, HostSpread, PodRun, TopologyPlan
from provisioner.values.requirement import Operator, Requirement, Requirements

T = TypeVar("T")
Lead = tuple[DomainCounter, int, int, bool]
"""(counter, max_skew, min_domains, whether it is the class's own spread)"""
Pin = tuple[Axis, int]
"""(axis, domain); the domain -1 stands for nodes without the label."""


@dataclass(frozen=True, slots=True)
class _Filled:
    """Places that are there, and pods of one count.

    Attributes:
        lowest: pods on the emptiest once all of them are as full as can be.
        pods: of those that take more, (how many there are, how many there could be).
    """

    lowest: int
    pods: Sequence[tuple[int, int]]

    def capped(self, top: int) -> int:
        """How many more there may be, with at most `top` on each."""
        return sum([min(most_pods, top) - has for has, most_pods in self.pods if has < top])


_LEVEL_BITS: Final = 5


def _level(amount: int) -> int:
    """Amounts of about one size have one level; never less for more."""
    shift = amount.bit_length() - _LEVEL_BITS
    return amount if shift <= 0 else (shift << _LEVEL_BITS) + (amount >> shift)


NONE_THERE: Final = "?"
"""No DaemonSet brings what the class wants to be with."""
_DEAREST: Final = float("inf")
_MUCH: Final = 1 << 40
_MANY_SIZES: Final = 500  # hardly two pods are of one size
_DEEP: Final = 2
"""From so many axes on, what leads to no place costs steps, too: there are as many ways as domains of all of them, multiplied."""
_MOST_WAYS: Final = 8
"""Sides of spreads over some nodes only that are tried for one claim."""
_MOST_FILLED: Final = 512
_NONE_THERE: Final = _Filled(_MUCH, ())


class Placing:
    """Everything that changes in one attempt.

    Attributes:
        places: existing nodes, then claims; None for a node that nobody looked at yet. `now` is the number of the former.
        usable: places that take pods and stay, as a set.
        lingering: existing nodes that leave; domains until they are gone.
        cautious: spreads that see no node that is not there yet.
        wary: of these, those for which no node comes to a domain that is too empty, not even with the pod that fills it.
        ceilings: most pods on a node, by hostname spread.
        nodes_wanted: pods that hostname spread is about are shared out over so many nodes at least.
        scattering: pods that are counted and may choose go where few are counted, not to the first place.
        sparing: no new node that would break the hostname spread of pods that have a place.
        closing: no node comes any more, so the true numbers are safe.
        forced: hostname spread opened more nodes than room alone needs.
        touched: something happened by which a pod without a place may have one.
    """

    def __init__(
        self,
        ground: Setting,
        accounts: Sequence[PoolAccount],
        topology: Topology,
        cautious: Collection[Count],
    ) -> None:
        bins = ground.bins
        self.bins: Final = bins
        self.standing: Final = ground
        self.work: Final = ground.terms.work
        self.most_new: Final = ground.terms.max_new
        self.accounts: Final = accounts
        self.dimensions: Final = bins.dimensions
        self.topology: Final = topology
        self.cautious: Final = cautious
        self._kept: Final = topology.kept
        self.places: Final[list[Place | None]] = [None] * len(bins.bins)
        self.now: Final = len(bins.bins)
        self.axes: Final = list(topology.axes.values())
        self.usable = bins.staying
        self.lingering: Final = ground.lingering
        self.touched = False
        self.scattering = False
        self.sparing = False
        self.closing = False
        self.forced = False
        self.nodes_wanted = 0
        self.ceilings: Mapping[Count, int] = {}
        self.wary: Collection[Count] = ()
        self._roomy: Final[dict[int, int]] = {}
        self._grounds: Final[dict[int, tuple[int, list[PoolAccount]]]] = {}
        self._groups: Final[dict[NodeFilter, list[tuple[list[Vector], list[int]]]]] = {}
        self._taking: Final[dict[int, list[PoolAccount]]] = {}
        self._base: Final[dict[NodeFilter, tuple[int, list[PoolAccount]]]] = {}
        self._joined: Final[dict[tuple[NodeFilter, tuple[Pin, ...]], tuple[FilterTerm, ...]]] = {}
        self._reach: Final[dict[tuple[int, Axis], frozenset[int]]] = {}
        self._flats: Final[dict[tuple[NodeFilter, Axis], bool]] = {}
        self._split: Final[dict[tuple[NodeFilter, Axis], list[tuple[tuple[Vector, ...], list[int]]]]] = {}
        self._usd: Final[dict[tuple[int, Axis, int], list[float]]] = {}
        self._entered: Final[dict[tuple[Axis, OfferState], tuple[int, ...]]] = {}
        self._full: Final[list[dict[int, int]] | None] = (
            [{} for _ in bins.dimensions.names] if ground.sizes > _MANY_SIZES else None
        )
        self._said: Final[dict[str, dict[str, int]]] = {}
        self._saying: Final[dict[str, int]] = {}
        self.ports: Final = TakenPorts(ground.ports)
        self.crowds: Final = None if ground.crowding is None else Crowds(ground.crowding)
        self._attached: Final[dict[Attachment, int]] = {}
        self.company: Final = ground.company
        self._brought: Final[dict[tuple[PoolAccount, OfferState, tuple[Daemon, ...]], Brought]] = {}
        self._awaiting: Final[dict[Axis, int]] = {}  # claims whose daemons are in no domain yet
        self._followers: Final = [Follower(one, topology, places) for one, places in ground.due.items()]
        come(self._followers, self.accompany)

    # ------------------------------------------------------------------ the ground

    @property
    def domains(self) -> int:
        """The places that make domains of any label but the hostname; those that leave do so until they are gone, and are not counted then.

        By hostname they are none: their Nodes lose that label before their first pod is evicted (decision 44).
        """
        return self.usable | self.lingering

    def open_empty(self, account: PoolAccount, state: OfferState) -> int:
        """A claim without pods; its number."""
        if account.learn(state):
            self._make_exact(account)
        number = len(self.places)
        self.places.append(opened(account, state))
        self._enter(account, state, 1 << number)
        come(self._followers, self.accompany)
        return number

    def _enter(self, account: PoolAccount, state: OfferState, new: int) -> None:
        """New claims may be in so many domains, and may count."""
        account.claims |= new
        if self.crowds is not None:
            self.crowds.enter(account.offer.pool.name, members(new))
        if state.said:
            self._say(state, new)
        self.usable |= new
        for axis in self.axes:
            axis.enter(new, self._domains_of(account, state, axis))
        for picky in self.topology.picky:
            if self._counts(picky.eligibility, account, state):
                picky.places |= new
        if self.company:
            for i in members(new):
                for axis in self.accompany(self.brought(account, state), i):
                    self._awaiting[axis] = self._awaiting.get(axis, 0) | 1 << i
            for one in self._followers:
                if account.offer.hosts(one.daemon, state):
                    one.places |= new

    def brought(self, account: PoolAccount, state: OfferState, more: tuple[Daemon, ...] = ()) -> Brought:
        """What the daemons of a claim of this state are to others, of those that wait for nobody, and `more`."""
        if not self.company:
            return NOTHING
        key = account, state, more
        found = self._brought.get(key)
        if found is None:
            daemons = [one for one in self.company if not one.near and account.offer.hosts(one, state)]
            found = self._brought[key] = brought_by((*daemons, *more), self.topology)
        return found

    def _brought_with(self, account: PoolAccount, state: OfferState, run: PodRun | None = None) -> Brought:
        """The same with those that find whom they must be near, on a claim without pods or with one of `run`."""
        found = self.brought(account, state)
        more: tuple[Daemon, ...] = ()
        waiting = [one for one in self._followers if account.offer.hosts(one.daemon, state)]
        plan = None if run is None else run.plan
        domains = functools.partial(self._domains_of, account, state)
        while due := [one for one in waiting if one.daemon not in more and one.is_due(plan, found, domains)]:
            more = (*more, *(one.daemon for one in due))
            found = self.brought(account, state, more)
        return found

    def accompany(self, brought: Brought, place: int, only: Axis | None = None) -> set[Axis]:
        """Count the daemons of a claim, on its host and in its domains (or on one axis alone); the axes on which it has no domain yet."""
        low = 1 << place
        for host, pods in brought.hosts.items() if only is None else ():
            host.add(place, low, pods)
        waiting = set()
        for counter, pods in brought.domains.items():
            axis = counter.axis
            if only is not None and axis is not only:
                continue
            if not axis.fixed & low:
                waiting.add(axis)
            elif counter.under.places & low and (domain := axis.domain_of(low)) >= 0:
                counter.add(domain, pods)
                for held in counter.held.values():  # daemons wait for nobody: they may be there before any pod
                    if domain in held:
                        held[domain] += pods
        return waiting

    def bring_along(self, topology: Topology) -> list[Follower]:
        """Count the daemons of every claim by other counters; those that wait for others, by these."""
        for i, place in enumerate(self.claims(), self.now) if self.company else ():
            if place.account is not None and place.state is not None:
                offer, state = place.account.offer, place.state
                daemons = [one for one in self.company if not one.near and offer.hosts(one, state)]
                self.accompany(brought_by(daemons, topology), i)
        found = [Follower(one.daemon, topology, one.places) for one in self._followers]
        come(found, self.accompany)
        return found

    def shut_to(self, run: PodRun) -> int:
        """The places from which daemons that the class would bring keep it, or pods that keep these out."""
        found = 0
        for one in self._followers:
            found |= one.shut_by(run.plan)
        return found

    def _unwelcome(
        self, run: PodRun, account: PoolAccount, state: OfferState, pins: tuple[Pin, ...], *, together: bool
    ) -> str:
        """The DaemonSet whose pods keep the class from a new node that has these daemons, or that it misses there; "" where it may open one."""
        plan, brought = run.plan, self._brought_with(account, state)
        for host in (*plan.apart, *plan.blocked):
            if host in brought.hosts:
                return brought.names[host]
        for each in plan.axes:
            for counter in (*each.apart, *each.blocked):
                if counter in brought.domains and account.offer.domains(state, counter.axis.key):
                    return brought.names[counter]
        if not together or (plan.bootstraps and not self.anywhere(plan)):
            return ""
        for host in plan.together:
            if host not in brought.hosts:
                return NONE_THERE
        for axis, domain in pins:
            ap = plan.by_axis.get(axis)
            for counter in ap.together if ap is not None and domain >= 0 else ():
                if counter not in brought.domains and not counter.counts[domain]:
                    return NONE_THERE
        return ""

    def place_at(self, i: int) -> Place:
        """A place by its number; that of an existing node is made once somebody looks at it."""
        place = self.places[i]
        if place is None:
            place = self.places[i] = self._existing(i)
        return place

    def _existing(self, i: int) -> Place:
        place = Place(None, None, list(self.bins.rooms[i]), [])
        attached = self.standing.attached(i)
        if attached is not None:
            place.attached = set(attached)
            drivers = {driver: d for d, driver in self._drivers()}
            for volume in attached:
                self._attached[volume] = self._attached.get(volume, 0) | 1 << i
            for driver, _ in attached:
                # more may be attached than there may be: room is never negative
                if place.head is not None and driver in drivers and place.head[drivers[driver]]:
                    place.head[drivers[driver]] -= 1
        return place

    def claims(self) -> list[Place]:
        """The places that are claims, in the order they were opened."""
        return self.places[self.now :]  # type: ignore[return-value]  # every claim was made

    def _drivers(self) -> list[tuple[int, str]]:
        names = enumerate(self.dimensions.names)
        return [(d, name.removeprefix(ATTACHABLE)) for d, name in names if name.startswith(ATTACHABLE)]

    # ------------------------------------------------------------------ one class

    def place(self, run: PodRun, opening: bool) -> None:
        """Put as many pods of a run as find a place, on new claims too where `opening`."""
        if run.start >= run.end:
            return
        opening = opening and not self.closing
        even = run.plan.even
        if even is not None and self._evenly(run, even):
            return
        if not (opening and self._only_opens(run)):
            self._spread(run, opening=False)
        if not opening or not run.left:
            return
        self._spread(run, opening=True)
        if run.left and run.plan.considerate:
            self._inconsiderately(run, opening=True)

    def _only_opens(self, run: PodRun) -> bool:
        """Whether places that are there are looked at together with new ones, not before."""
        plan = run.plan
        return self.scattering and not self.closing and bool(plan.axes or plan.adds or plan.spreads)

    def _inconsiderately(self, run: PodRun, *, opening: bool) -> None:
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
        universe: Collection[int] | None = self._reach.get((run.widest, axis))
        full = universe is not None and len(universe) == len(counts)
        if not full:
            universe = domains = sorted(self._universe(run, counter))
        if not universe or (least > 1 and not self._enough(universe, counter, least)):
            return False
        for other, other_skew, other_least in ap.others:
            lowest = min(other.counts) if full and other_least <= 1 else self.least(run, other, other_least)
            if max(other.counts) > lowest + other_skew:
                domains = [domain for domain in domains if other.counts[domain] <= lowest + other_skew]
        ceiling: int | None = None
        if len(domains) < len(universe):
            ceiling = min([counts[domain] for domain in universe if domain not in domains]) + skew
        if self.cautious:
            ceiling = self._at_best(counter, skew, ceiling)
        candidates = self._candidates(run)
        if not candidates:
            return False
        left = run.end - run.start
        if axis.uneven and not (self._flats.get((run.filter, axis)) or self._flat(run, axis)):
            domains = self._cheapest_first(run, axis, domains, left)
        shares = water_fill(counts, domains, left, ceiling)
        if len(shares) > 1:
            # so far a domain may be filled even if no other is
            safe = (min(counts) if full else min([counts[domain] for domain in universe])) + skew
            if max([counts[domain] + share for domain, share in shares]) > safe:
                surely = candidates & axis.fixed
                for domain, share in shares[1:]:  # before the first is filled, nothing is broken
                    if not self._holds(run, surely & axis.could[domain], share):
                        return False
        could, pins = axis.could, axis.pins
        for domain, share in shares:
            places = candidates & could[domain]
            if not places or self.fill(run, places, share, pins[domain]) < share:
                return False
        return run.start >= run.end

    def _holds(self, run: PodRun, places: int, pods: int) -> bool:
        """Whether some of these places, looked at one after another, surely take so many pods of the class."""
        if not run.easy:
            return False
        need, caps, known, crowd = run.need, run.caps, self.places, run.crowd
        single = run.plan.single
        while places:
            low = places & -places
            i = low.bit_length() - 1
            places ^= low
            head = (known[i] or self.place_at(i)).head
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

    def _spread(self, run: PodRun, *, opening: bool) -> None:
        plan = run.plan
        if plan.bootstraps and not self.anywhere(plan):
            self._bootstrap(run, opening=opening)
            if not run.left or not self.anywhere(plan):
                return
        self._over(run, plan.axes, 0, ALL, run.left, (), opening=opening, together=True)

    def anywhere(self, plan: TopologyPlan) -> bool:
        """Whether any pod is counted that the class wants to be with."""
        return any(one.anywhere for one in plan.together) or any(
            one.anywhere for ap in plan.axes for one in ap.together
        )

    def _bootstrap(self, run: PodRun, *, opening: bool) -> None:
        """The first of pods that want to be together: where most of them find room, on existing nodes by preference."""
        plan = run.plan
        axes = [ap for ap in plan.axes if ap.together]
        if not axes:
            self._first_host(run, opening=opening)
            return
        ap = axes[0]
        axis = ap.axis
        candidates = self._candidates(run, together=False)
        room = {domain: self._room(run, candidates & could, run.left) for domain, could in enumerate(axis.could)}
        reach = self._openable(run, axis)
        if not opening and reach and max(room.values(), default=0) < run.left:
            return  # rather all of them where a new node can be had too
        prices = self._prices(run, axis, run.left) if axis.uneven else ()

        def rank(domain: int) -> tuple[bool, bool, float, int, int, int]:
            left = run.left - room[domain]
            usd = prices[domain] * left if prices and left else 0.0
            return left > 0, domain not in reach, usd, -room[domain], axis.loads[domain], domain

        order = sorted((domain for domain in room if room[domain] or domain in reach), key=rank)
        for domain in self._in_turn(order):
            before = run.start
            others = tuple(one for one in plan.axes if one is not ap)
            self._within(run, ap, domain, others, opening=opening)
            if run.start > before:
                axis.loads[domain] += run.start - before
                return

    def _in_turn(self, choices: list[T]) -> list[T]:
        """What can be tried, in the order in which it is."""
        return choices

    def _within(self, run: PodRun, ap: AxisPlan, domain: int, others: Sequence[AxisPlan], *, opening: bool) -> None:
        if domain not in self._legal(run, ap, together=False):
            return
        alone = others or ap.spreads or ap.apart or run.plan.together
        limit = 1 if alone else run.left  # all at once only where nothing else has a say
        self._over(run, others, 0, ap.axis.could[domain], limit, ((ap.axis, domain),), opening=opening, together=False)

    def _first_host(self, run: PodRun, *, opening: bool) -> None:
        candidates = self._candidates(run, together=False)
        best, most_pods = 0, 0
        for i in members(candidates):
            pods = self._room(run, 1 << i, run.left)
            if pods > most_pods:
                best, most_pods = 1 << i, pods
                if pods >= run.left:
                    break
        new = self.largest_new(run)
        if not opening and most_pods < min(new, run.left):
            return
        ways = [(best if most_pods >= min(new, run.left) else 0, False), (0, opening), (candidates, False)]
        for places, open_one in self._in_turn(ways):
            self._over(run, run.plan.axes, 0, places, 1, (), opening=open_one, together=False)
            if self.anywhere(run.plan):
                break

    def room(self, run: PodRun, limit: int) -> int:
        """How many pods of the class the places that are there take as far as room goes, at most `limit`."""
        return self._room(run, self._candidates(run), limit)

    def _room(self, run: PodRun, places: int, limit: int) -> int:
        """How many pods of the class the places take as far as room goes, at most `limit`."""
        total = 0
        crowd = run.crowd
        for i in members(places):
            place = self.place_at(i)
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
        for account in self._ground(run.filter)[1]:
            limit = run.left
            if run.crowd is not None and self.crowds is not None:
                limit = min(limit, self.crowds.top(account.offer.pool.name))
            for state in account.offer.starts(run.filter):
                for point in state.points:
                    best = max(best, most(point, run.need, limit))
        return best

    def cheapest(self, run: PodRun, pods: int) -> float:
        """The least price of a node for so many pods of the class, in USD per hour; infinite where there is none."""
        used = [0] * len(self.dimensions.names)
        for d, amount in run.need:
            used[d] = amount * pods
        best = float("inf")
        for account in self._ground(run.filter)[1]:
            for state in account.offer.starts(run.filter):
                best = min(best, account.offer.price(state, used))
        return best

    # ------------------------------------------------------------------ domains

    def _over(
        self,
        run: PodRun,
        axes: Sequence[AxisPlan],
        depth: int,
        mask: int,
        limit: int,
        pins: tuple[Pin, ...],
        *,
        opening: bool,
        together: bool,
    ) -> int:
        """Share pods out over the domains of one axis after another; how many were placed."""
        last = depth == len(axes)
        if self.work.limited and (last or depth >= _DEEP) and not self.work.step(run.cost if last else 1):
            return 0
        if last:
            return self._put(run, mask, limit, pins, opening=opening, together=together)
        ap = axes[depth]
        axis = ap.axis
        placed = 0
        dead: set[int] = set()
        while placed < limit and not self.work.over:
            leads = self._leads(run, ap)
            # a single counter that the pods raise themselves is kept even by the shares
            even = leads[0][0] if len(leads) == 1 and leads[0][3] and not ap.alone else None
            legal = [domain for domain in self._legal(run, ap, even, together=together) if domain not in dead]
            if leads:  # domains that are none of the class's own must not take a share
                universe = self._universe(run, leads[0][0])
                legal = [domain for domain in legal if domain in universe]
            shares = self._shares(run, ap, leads, legal, limit - placed, opening=opening)
            if not shares:
                break
            died = False
            before = placed
            cautious = (
                len(leads) == 1 and len(shares) > 1 and not (opening and self._surely_opens(run, leads[0], shares))
            )
            for domain, share in shares:
                wanted = min(share, limit - placed)
                if cautious:  # no further than is right even if the next domain takes none
                    counter, skew, least, _ = leads[0]
                    wanted = min(wanted, self.least(run, counter, least) + skew - counter.counts[domain])
                if wanted <= 0:
                    continue
                got = self._over(
                    run,
                    axes,
                    depth + 1,
                    mask & axis.could[domain],
                    wanted,
                    (*pins, (axis, domain)),
                    opening=opening,
                    together=together,
                )
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
            placed += self._over(
                run, axes, depth + 1, absent, limit - placed, (*pins, (axis, -1)), opening=opening, together=together
            )
        return placed

    def _surely_opens(self, run: PodRun, lead: Lead, shares: Sequence[tuple[int, int]]) -> bool:
        """Whether new claims can be had in every domain, as many as need be."""
        counter = lead[0]
        if run.plan.together or counter.count in self.cautious:
            return False
        reach = self._openable(run, counter.axis)
        return all(domain in reach for domain, _ in shares) and not any(
            account.exact for account in self._ground(run.filter)[1]
        )

    def _leads(self, run: PodRun, ap: AxisPlan) -> list[Lead]:
        """What the pods themselves raise."""
        leads = [(counter, skew, least, True) for counter, skew, own, least in ap.spreads if own]
        if run.soft:
            leads += [(counter, skew, 1, False) for counter, skew in ap.wanted]
        return leads

    def _legal(self, run: PodRun, ap: AxisPlan, even: DomainCounter | None = None, *, together: bool) -> list[int]:
        """The domains that take one more pod of the class, as far as counts other than `even` go."""
        domains: Iterable[int] = range(len(ap.axis.values))
        for other in (*ap.blocked, *ap.apart):
            domains = [domain for domain in domains if not other.counts[domain]]
        if together:
            for other in ap.together:
                come = self._coming(run, other) if self.company else ()
                domains = [domain for domain in domains if other.counts[domain] or domain in come]
        for counter, skew, own, least in ap.spreads:
            if counter is even:
                continue
            top = self.least(run, counter, least) + skew - (1 if own else 0)
            domains = [domain for domain in domains if counter.counts[domain] <= top]
        return list(domains)

    def _coming(self, run: PodRun, counter: DomainCounter) -> Collection[int]:
        """The domains to which a new node for the class may bring daemons that a counter counts."""
        found: set[int] = set()
        for account in self._takers(run):
            for state in account.offer.starts(run.filter):
                for one in self.company:
                    for way in one.filter.terms if account.offer.tolerated(one.filter) else ():
                        there = account.offer.narrowed(state, way)
                        if there is not None and counter in self._brought_with(account, there).domains:
                            found.update(self._domains_of(account, there, counter.axis))
        return found

    def least(self, run: PodRun, counter: DomainCounter, min_domains: int) -> int:
        """The number in the emptiest domain that counts."""
        counts = counter.counts
        universe = self._universe(run, counter)
        if not self._enough(universe, counter, min_domains):
            return 0
        if len(universe) == len(counts):
            return min(counts)
        least = min((counts[domain] for domain in universe), default=0)
        return min(least, counter.at_best(self.usable, least)) if counter.count in self.cautious else least

    def _at_best(self, counter: DomainCounter, skew: int, ceiling: int | None) -> int | None:
        """The ceiling of a cautious spread, which also looks at nodes that are not settled yet."""
        if counter.count not in self.cautious:
            return ceiling
        top = counter.at_best(self.usable, _MUCH) + skew
        return top if ceiling is None else min(ceiling, top)

    def _universe(self, run: PodRun, counter: DomainCounter) -> frozenset[int]:
        """The domains of eligible nodes, and those in which the class itself may have a new one.

        A domain where the class fits nothing may still come to exist by another class: see `_harmless`.
        """
        reach = self._reach.get((run.widest, counter.axis))
        if reach is None:
            reach = self._reachable(run.required, run.widest, run.need, counter.axis)
        if len(reach) == len(counter.axis.values):
            return reach
        counter.blind = True
        return reach.union(counter.existing(self.domains))

    def _enough(self, universe: Collection[int], counter: DomainCounter, min_domains: int) -> bool:
        """Whether there are as many domains as a spread constraint wants before it looks at the emptiest one."""
        if min_domains > 1 and counter.count in self.cautious:  # some that can be had were not
            return len(counter.existing(self.usable)) >= min_domains
        if min_domains > 1 and self.lingering:  # what leaves is a domain no more once it is gone
            left = {*counter.existing(self.lingering)}.difference(counter.existing(self.usable))
            return len(universe) - len(left) >= min_domains
        return len(universe) >= min_domains

    def _shares(
        self,
        run: PodRun,
        ap: AxisPlan,
        leads: Sequence[Lead],
        legal: list[int],
        pods: int,
        *,
        opening: bool,
    ) -> list[tuple[int, int]]:
        """How many pods to put in which domain next."""
        if not legal:
            return []
        if ap.alone:
            return [(domain, 1) for domain in self._preferred(run, ap, legal, opening=opening)][:pods]
        if not leads:
            return [(domain, pods) for domain in self._preferred(run, ap, legal, opening=opening)]
        if ap.axis.uneven and not self._flat(run, ap.axis):
            legal = self._cheapest_first(run, ap.axis, legal, 1 if len(leads) > 1 else pods)
        if len(leads) > 1:
            return self._one_by_one(run, leads, legal)
        counter, skew, least, hard = leads[0]
        universe = self._universe(run, counter)
        outside = [domain for domain in universe if domain not in legal]
        ceiling: int | None = None
        if outside:
            ceiling = min(counter.counts[domain] for domain in outside) + skew
        if hard:
            ceiling = self._at_best(counter, skew, ceiling)
        if hard and not self._enough(universe, counter, least):
            ceiling = skew
        return water_fill(counter.counts, legal, pods, ceiling)

    def _one_by_one(self, run: PodRun, leads: Sequence[Lead], legal: Sequence[int]) -> list[tuple[int, int]]:
        """One pod for the domain that all counters together like best; of equals the first."""
        kind = [
            domain
            for domain in legal
            if all(
                hard or counter.counts[domain] < self.least(run, counter, least) + skew
                for counter, skew, least, hard in leads
            )
        ]
        order = sorted(kind or legal, key=lambda domain: sum(counter.counts[domain] for counter, *_ in leads))
        return [(domain, 1) for domain in order]

    def _preferred(self, run: PodRun, ap: AxisPlan, legal: list[int], *, opening: bool) -> list[int]:
        """Domains in the order in which places would have it: the one of the first place that may do, first."""
        axis = ap.axis
        if len(legal) == 1:
            return legal
        candidates = self._candidates(run)
        reach = self._openable(run, axis) if opening else frozenset()
        prices = self._prices(run, axis, 1 if ap.alone else run.left) if opening and axis.uneven else ()

        def first(domain: int) -> tuple[int, int, bool, float, int, int]:
            places = candidates & axis.could[domain]
            low = (places & -places).bit_length() if places else len(self.places) + 1
            crowd = sum(counter.counts[domain] for counter in ap.adds) if self.scattering else 0
            usd = prices[domain] if prices else 0.0
            return crowd, low, domain not in reach, usd, axis.loads[domain], domain

        return sorted(legal, key=first)

    def _cheapest_first(self, run: PodRun, axis: Axis, domains: Sequence[int], pods: int) -> list[int]:
        """Domains by the price of nodes for so many pods of the class, shared out evenly."""
        return sorted(domains, key=self._prices(run, axis, -(-pods // max(1, len(domains)))).__getitem__)

    def _flat(self, run: PodRun, axis: Axis) -> bool:
        """Whether nodes for the class can be had in every domain, at the same prices whatever it needs."""
        key = run.filter, axis
        found = self._flats.get(key)
        if found is None:  # as of now, limits and reservations aside
            offered = [
                (account.offer, state)
                for account in self._ground(run.filter)[1]
                for state in account.offer.starts(run.filter)
            ]
            found = self._flats[key] = bool(offered) and all(
                set(axis.values) <= set(offer.domains(state, axis.key)) and offer.level(state, axis.key)
                for offer, state in offered
            )
        return found

    def _prices(self, run: PodRun, axis: Axis, pods: int) -> Sequence[float]:
        """By domain, about what nodes for so many pods of the class cost in USD per hour; infinite where none can be had."""
        key = run.question, axis, pods
        found = self._usd.get(key)
        if found is None:
            found = self._usd[key] = [_DEAREST] * len(axis.values)
            for term in run.filter.terms if axis.uneven else ():
                for account in self._takers(run):  # in the order in which they are asked for a node
                    state = account.offer.narrowed(account.offer.base, term)
                    for value in account.offer.domains(state, axis.key) if state is not None else ():
                        domain = axis.index.get(value, -1)
                        if domain >= 0 and found[domain] == _DEAREST:
                            found[domain] = self._price(account, state, pin(axis.key, value), run.need, pods)
        return found

    def _price(self, account: PoolAccount, state: OfferState | None, term: FilterTerm, need: Need, pods: int) -> float:
        """The least price of nodes for so many pods, on as few as they fit or one on each; infinite where none fits."""
        offer = account.offer
        narrower = None if state is None else offer.narrowed(state, term)
        most_on_one = 0 if narrower is None else max((most(point, need, pods) for point in narrower.points), default=0)
        if narrower is None or not most_on_one:
            return _DEAREST
        prices = []
        for number in {-(-pods // most_on_one), pods}:
            used = [0] * len(self.dimensions.names)
            for d, amount in need:
                used[d] = amount * -(-pods // number)
            prices.append(number * offer.price(narrower, used))
        return min(prices)

    def _reachable(self, node_filter: NodeFilter, number: int, need: Need, axis: Axis) -> frozenset[int]:
        """The domains in which a new claim would take such a pod; `number` stands for filter and need."""
        key = (number, axis)
        found = self._reach.get(key)
        if found is None:
            found = self._reach[key] = frozenset(
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
            for account in self._ground(node_filter)[1]:
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

    def most_alone(self, run: PodRun, ap: AxisPlan) -> int:
        """In how many domains a pod of the class could be, if there were no other pods than those that run."""
        axis = ap.axis
        known = self.topology.scope.axes[axis.key].could
        reach = self._reachable(run.required, run.widest, run.need, axis)
        admitting = self.bins.admitting(run.required)
        closed = [self.topology.scope.sums(one.count) for one in (*ap.apart, *ap.blocked)]
        return sum(
            (domain in reach or bool(known[domain] & admitting))
            and not any(sums is not None and sums[domain] for sums in closed)
            for domain in axis.numbers
        )

    def _openable(self, run: PodRun, axis: Axis) -> frozenset[int]:
        """The domains in which a new claim would take a pod of the class now, by its wishes too."""
        return self._reachable(run.filter, run.question, run.need, axis)

    # ------------------------------------------------------------------ places

    def _ground(self, node_filter: NodeFilter) -> tuple[int, list[PoolAccount]]:
        """Bins that admit pods with this filter, and pools that may."""
        found = self._base.get(node_filter)
        if found is None:
            willing = [account for account in self.accounts if account.offer.admits(node_filter)]
            found = self._base[node_filter] = (self.bins.admitting(node_filter), willing)
        return found

    def _takers(self, run: PodRun) -> list[PoolAccount]:
        """Pools that have nodes on which a pod of the class fits; those that have the same are looked at once."""
        found = self._taking.get(run.question)
        if found is None:
            number = run.filter
            groups = self._groups.get(number)
            if groups is None:
                by_points: dict[tuple[tuple[Vector, ...], ...], list[int]] = {}
                willing = self._ground(number)[1]
                for place, account in enumerate(willing):
                    points = tuple([state.points for state in account.offer.starts(number)])
                    by_points.setdefault(points, []).append(place)
                groups = self._groups[number] = [
                    ([point for some in points for point in some], places) for points, places in by_points.items()
                ]
            willing = self._ground(number)[1]
            need = run.need
            takers = [places for points, places in groups if any(most(point, need, 1) for point in points)]
            if sum(map(len, takers)) == len(willing):
                found = willing
            else:
                found = [willing[place] for place in sorted(place for places in takers for place in places)]
            self._taking[run.question] = found
        return found

    def _candidates(self, run: PodRun, together: bool = True) -> int:  # noqa: C901 - the hot loop: a call costs more than a branch
        """Places that may take one more pod of the class, as far as is known without looking at each."""
        number = run.question
        known = self._grounds.get(number)
        if known is None:
            known = self._grounds[number] = self._ground(run.filter)
            full = self.bins.everything & ~self.bins.roomy(run.need) if known[0] else 0
            self._roomy[number] = ~full
        mask, willing = known
        if len(self.places) > self.now:
            for account in willing:
                mask |= account.claims
        roomy = self._roomy[number]
        if run.volumes:
            for volume in run.volumes:  # what has it attached already is full for others only
                roomy |= self._attached.get(volume, 0)
        mask &= roomy
        if self._full is not None:
            for d, amount in run.need:
                mask &= ~self._full[d].get(_level(amount), 0)
        if self._saying and not run.filter.easy and len(run.filter.terms) == 1:
            for key, one in run.filter.terms[0].requirements.items():
                if key in self._saying and not one.complement:
                    same = 0
                    for value in one.values:
                        same |= self._said[key].get(value, 0)
                    mask &= same | ~self._saying[key]
        if run.crowd is not None:
            mask &= ~run.crowd.full
        plan = run.plan
        if self._followers and mask:
            mask &= ~self.shut_to(run)
        if plan.hostless and not run.ports:
            return mask
        for host in plan.blocked:
            mask &= ~host.with_at_least(1)
        for host in plan.apart:
            mask &= ~host.with_at_least(1)
        if plan.spreads:
            for (host, _, own, _), top in zip(plan.spreads, run.tops, strict=True):
                mask &= ~host.with_at_least(top if own else top + 1)
        if together:
            for host in plan.together:
                mask &= host.with_at_least(1)
        if run.soft:
            for host, _ in plan.guarded:
                for held in host.held.values():
                    mask &= ~held
        return mask & ~self.ports.clashing(run.ports) if run.ports else mask

    def _put(
        self, run: PodRun, mask: int, limit: int, pins: tuple[Pin, ...], *, opening: bool, together: bool = True
    ) -> int:
        """Pods into places of one domain each axis, first those that are there, then new ones; how many."""
        placed = 0
        may_open = opening and self.may_open(run, together)
        if may_open and self.scattering:
            placed = self._open(run, limit, pins, together)
        if (
            self.company
            and together
            and any(
                not counter.counts[domain]
                for axis, domain in pins
                if domain >= 0 and axis in run.plan.by_axis
                for counter in run.plan.by_axis[axis].together
            )
        ):
            mask = 0  # only a node to come brings to this domain what the class wants to be with
        if mask and placed < limit:
            candidates = self._candidates(run, together=together) & mask
            if candidates:
                placed += self.fill(run, candidates, limit - placed, pins)
        opened = int(may_open)
        while opened and placed < limit:
            opened = self._open(run, limit - placed, pins, together)
            placed += opened
            if not (self._kept and self.company) or (self.work.limited and not self.work.step(run.cost)):
                break
        return placed

    def may_open(self, run: PodRun, together: bool) -> bool:
        """Whether a new node may be one where the class is with those that it wants to be with: only daemons are there from the start."""
        return not (together and run.plan.together) or bool(self.company)

    def fill(self, run: PodRun, candidates: int, limit: int, pins: tuple[Pin, ...]) -> int:  # noqa: C901 - the hot loop: a call costs more than a branch
        """Pods into these places, the first first; how many. The innermost loop of all."""
        need, places, plan, caps, pods = run.need, self.places, run.plan, run.caps, run.pods
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
            place = places[i] or self.place_at(i)
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
                if head is None and self._full is not None and self._is_full(place, low, need):
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
            self._roomy[run.question] = self._roomy.get(run.question, ALL) & ~closed
        if touched:
            self.touched = True
            for host, key in plan.holds:
                host.held[key] = host.held.get(key, 0) | touched
            if run.ties:
                self._account_for(run, touched, start - first, pins)
            if self._followers:
                come(self._followers, self.accompany)
        return start - first

    def _is_full(self, place: Place, low: int, need: Need) -> bool:
        """Whether a claim has too little left of something; remembered for all needs of about that size."""
        if place.held:
            return place.too_small(need)
        tops = place.tops()
        if not tops:
            return True
        for d, amount in need:
            if tops[d] < amount:
                level = _level(amount)
                if self._full is not None and _level(tops[d]) < level:
                    self._full[d][level] = self._full[d].get(level, 0) | low
                return True
        return False

    def _account_for(self, run: PodRun, touched: int, count: int, pins: tuple[Pin, ...]) -> None:
        """Everything that counts the pods of one fill counts them; hosts have done so already."""
        plan = run.plan
        if not run.soft and plan.guarded:
            self._raise(run, touched, count)
        if run.ports:
            self.ports.take(run.ports, touched)
        for axis, domain in pins:
            ap = plan.by_axis.get(axis)
            if ap is None or domain < 0:
                continue
            for counter in ap.adds:
                eligible = counter.under.places
                if eligible == ALL or not touched & ~eligible:
                    counter.counts[domain] += count
                else:
                    counter.counts[domain] += self._counted_pods(run, touched & eligible, count)
            for counter, key in ap.holds:
                counter.held.setdefault(key, {})[domain] = counter.counts[domain]

    def _raise(self, run: PodRun, touched: int, count: int) -> None:
        """The last `count` pods came to places against the spread of pods that are there already."""
        for host, _ in run.plan.guarded:
            for i in members(touched):
                if any(held >> i & 1 for held in host.held.values()):
                    host.raised[i] = host.raised.get(i, 0) + self._counted_pods(run, 1 << i, count)

    def _counted_pods(self, run: PodRun, places: int, count: int) -> int:
        """Of the last `count` pods of a run, those that were put on `places`."""
        first = run.start - count
        return sum(
            end - start
            for i in members(places)
            for pods, start, end in self.place_at(i).placed
            if pods is run.pods and start >= first
        )

    def _make_exact(self, account: PoolAccount) -> None:
        make_exact(account, [self.place_at(i) for i in members(account.claims)])

    def _take(self, run: PodRun, place: Place, low: int, cap: int, pins: tuple[Pin, ...]) -> int:
        """Put pods on a place that has to be looked at closely; how many, -1 if there is no room whatever the domain."""
        first = self.first_need(run, place)
        if place.state is None:
            return self._take_bin(run, place, low, first, cap)
        account = place.account
        if account is None:
            return 0
        open_pins = tuple((axis, domain) for axis, domain in pins if domain >= 0 and not axis.fixed & low)
        before = place.state
        for term in self._terms(run.filter, open_pins):
            for state in self._harmless_ways(run, account, before, term, first, place, low):
                count = self._load(run, place, low, state, first, cap)
                if not count:
                    continue
                if state is not before:
                    self._narrowed(place, low, state, open_pins)
                if account.learn(state):
                    self._make_exact(account)
                return count
        if not fitting(place, place.state, run.need, 1):
            return -1
        # what a spread that is kept refuses now it may admit later
        kept = self._kept and any(account.offer.narrowed(place.state, term) is not None for term in run.filter.terms)
        return 0 if open_pins or kept else -1

    def _harmless_ways(
        self,
        run: PodRun,
        account: PoolAccount,
        state: OfferState,
        term: FilterTerm,
        first: Need,
        place: Place | None = None,
        low: int = 0,
    ) -> Iterable[OfferState]:
        """Of `_ways` those that break no spread that is kept; as a rule the first will do. `low`: the claim as a set, 0 for a new one."""
        ways = self._ways(run, account, state, term, first, place)
        if not self._kept:
            return ways
        harmless = (self._harmless(account, one, self._kept, run, low) for one in ways)
        return (one for one in harmless if one is not None)

    def _ways(
        self,
        run: PodRun,
        account: PoolAccount,
        state: OfferState,
        term: FilterTerm,
        first: Need,
        place: Place | None = None,
    ) -> Sequence[OfferState]:
        """What `state` may come to be once pods of the class are on the claim by this term, best first; nothing where they must not be.

        `first`: what the first of the pods takes. `place`: the claim; None for a new one.
        """
        offer = account.offer
        found = offer.narrowed(state, term)
        if found is not None and run.ports:
            found = offer.without(found, offer.clashing(run.ports))
        if found is None:
            return ()
        ways: Sequence[OfferState] = (found,)
        choosy = run.plan.choosy
        accompanied = place is None and bool(self.company)
        if accompanied:
            choosy = (*choosy, *choosy_terms(self.company))
        if choosy or accompanied:
            used = [0] * len(self.dimensions.names) if place is None else list(place.load())
            for d, amount in first:
                used[d] += amount
            for terms in choosy:
                ways = [side for one in ways for side in sides_of(offer, one, terms, used)][:_MOST_WAYS]
            if accompanied:
                ways = self._settled_ways(account, ways, used)
        return ways

    def _settled_ways(
        self, account: PoolAccount, ways: Sequence[OfferState], used: Sequence[int]
    ) -> Sequence[OfferState]:
        """These states, each in every domain in which its daemons are counted: what is counted must be somewhere. Cheapest first."""
        offer = account.offer
        for _ in self.axes:
            found: list[OfferState] = []
            for one in ways:
                late = [each for each in self._followers if offer.hosts(each.daemon, one)]
                brought = self.brought(account, one, tuple([each.daemon for each in late]))
                axes = [counter.axis for counter in (*brought.domains, *brought.kept_out)]
                axes += [axis for each in late for axis in each.axes]
                axis = next((each for each in axes if len(self._domains_of(account, one, each)) > 1), None)
                if axis is None:
                    found.append(one)
                    continue
                pinned = [
                    offer.narrowed(one, pin(axis.key, axis.values[domain]))
                    for domain in self._domains_of(account, one, axis)
                ]
                found += [state for state in pinned if state is not None]
            if found == ways:
                break
            prices = {state: offer.price(state, used) for state in found}
            ways = sorted((state for state in prices if prices[state] < _DEAREST), key=prices.__getitem__)
        return ways

    def _take_bin(self, run: PodRun, place: Place, low: int, first: Need, cap: int) -> int:
        head = place.head
        if head is None or most(head, first, 1) <= 0:
            return -1
        for d, amount in first:
            head[d] -= amount
        self._remember(run, place, low)
        count = 1 + (most(head, run.need, cap - 1) if cap > 1 else 0)
        for d, amount in run.need:
            head[d] -= amount * (count - 1)
        return count

    def first_need(self, run: PodRun, place: Place | None = None) -> Need:
        """What the first pod of a class takes of a place (a new one): its volumes are attached with it."""
        if not run.volumes:
            return run.need
        attached = place.attached if place is not None and place.attached is not None else frozenset()
        amounts = dict(run.need)
        for d, driver in self._drivers():
            new = sum(1 for volume in run.volumes if volume[0] == driver and volume not in attached)
            if new:
                amounts[d] = amounts.get(d, 0) + new
        return tuple(sorted(amounts.items()))

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
        self._remember(run, place, low)
        more = fitting(place, state, need, cap - 1) if cap > 1 else 0
        if more:
            take(place, state, need, more)
        return 1 + more

    def _remember(self, run: PodRun, place: Place, low: int) -> None:
        if place.attached is None:
            place.attached = set()
        place.attached.update(run.volumes)
        for volume in run.volumes:
            self._attached[volume] = self._attached.get(volume, 0) | low

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
        for counter in counters:
            axis = counter.axis
            fills = run is not None and counter.count not in self.wary
            daemons = 0 if axis.fixed & low else self.brought(account, state).domains.get(counter, 0)
            brought = 1 if run is not None and fills and any(counter in ap.adds for ap in run.plan.axes) else 0
            scarce = counter.scarce(self.usable, daemons + brought)
            if not (scarce or daemons) or not self._counts(counter.count.eligibility, account, state):
                continue
            harmful = [
                axis.values[domain]
                for domain in self._domains_of(account, state, axis)
                if domain in scarce or (daemons and uneven(counter, self.usable, self.lingering, {domain: daemons}))
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
        need, base = self.first_need(run), account.offer.base
        ways = [one for term in run.filter.terms for one in self._ways(run, account, base, term, need)]
        for counter in self._kept:
            ways = [less for one in ways if (less := self._harmless(account, one, [counter], run)) is not None]
            if not any(most(point, need, 1) for one in ways for point in one.points):
                return counter.axis.key
        if self.sparing and all(self._is_too_empty(run, account, one) for one in account.offer.starts(run.filter)):
            return HOSTNAME_LABEL
        return None

    def settle(self) -> set[Count]:
        """Keep claims that may come to be in several domains out of those that break a spread; what that fails for."""
        failed = set()
        for count, counter in self.topology.domain_counters():
            axis = counter.axis
            open_ones = 0
            for domain in counter.scarce(self.usable):
                open_ones |= axis.could[domain] & ~axis.fixed
            for i in members(open_ones & counter.eligible & self.usable):
                place = self.place_at(i)
                if place.account is None or place.state is None:
                    continue
                state = self._harmless(place.account, place.state, [counter])
                if state is None or not fitting(place, state, (), 1):
                    failed.add(count)
                elif state is not place.state:
                    take(place, state, (), 0)
                    self._narrowed(place, 1 << i, state, ())
        return failed

    def _narrowed(self, place: Place, low: int, state: OfferState, pins: tuple[Pin, ...]) -> None:
        """A claim has become less: it may have lost domains, or its claim to be counted."""
        if state.said:
            self._say(state, low)
        for axis, domain in pins:
            axis.settle(low, domain)
        account = place.account
        if account is None:
            return
        for axis in self.axes:
            if axis.fixed & low:
                continue
            left = self._domains_of(account, state, axis)
            if len(left) == 1:
                axis.settle(low, left[0])
            else:
                for domain, could in enumerate(axis.could):
                    if could & low and domain not in left:
                        axis.could[domain] = could & ~low
        for picky in self.topology.picky:
            if picky.places & low and not self._counts(picky.eligibility, account, state):
                picky.places &= ~low
        for axis, waiting in self._awaiting.items():
            if waiting & low & axis.fixed:
                self._awaiting[axis] = waiting & ~low
                self.accompany(self.brought(account, state), low.bit_length() - 1, axis)

    def _say(self, state: OfferState, places: int) -> None:
        """Claims have settled on values of labels, so pods that want others need not look at them."""
        for key, value in state.said:
            self._saying[key] = self._saying.get(key, 0) | places
            by_value = self._said.setdefault(key, {})
            by_value[value] = by_value.get(value, 0) | places

    def _domains_of(self, account: PoolAccount, state: OfferState, axis: Axis) -> tuple[int, ...]:
        key = (axis, state)
        found = self._entered.get(key)
        if found is None:
            found = self._entered[key] = tuple(
                axis.index[value] for value in account.offer.domains(state, axis.key) if value in axis.index
            )
        return found

    def _counts(self, eligibility: Eligibility | None, account: PoolAccount, state: OfferState) -> bool:
        """Whether a claim may be one of the nodes that count."""
        if eligibility is None:
            return True
        offer = account.offer
        if eligibility.tolerations is not None and not offer.tolerated(NodeFilter((), eligibility.tolerations)):
            return False
        if any(not self._domains_of(account, state, self.topology.axes[key]) for key in eligibility.keys):
            return False
        return eligibility.terms is None or any(offer.narrowed(state, term) is not None for term in eligibility.terms)

    def _open(self, run: PodRun, limit: int, pins: tuple[Pin, ...], together: bool = True) -> int:
        """Pods into new claims; how many."""
        placed = 0
        fixed = tuple(one for one in pins if one[1] >= 0)
        absent = [axis for axis, domain in pins if domain < 0]
        cap_all = 1 if run.plan.single or run.ports else limit
        for _, top in run.caps:
            cap_all = min(cap_all, top)
        if cap_all <= 0:
            return 0
        takers = self._takers(run) if len(self.accounts) > 1 else self._ground(run.filter)[1]
        for term in self._terms(run.filter, fixed) if takers else ():
            for account in self._in_turn(takers):
                offer = account.offer
                if absent and any(offer.domains(offer.base, axis.key) for axis in absent):
                    continue
                for state in self._harmless_ways(run, account, offer.base, term, self.first_need(run)):
                    brought = NOTHING
                    if self.sparing and self._is_too_empty(run, account, state):
                        continue
                    cap = cap_all
                    if self.company:
                        if self._unwelcome(run, account, state, pins, together=together) or self._keeps_out(
                            account, state, run
                        ):
                            continue
                        brought = self._brought_with(account, state, run)
                        cap = self._beside(run, account, state, brought, cap)
                        if cap <= 0:
                            continue
                        if brought.domains:  # each node brings more: what is right is asked anew for the next
                            limit = min(limit, placed + cap)
                    alone = bool(self._kept and brought.domains)
                    placed += self._open_in(run, account, state, limit - placed, cap, pins, alone=alone)
                    come(self._followers, self.accompany)
                    if placed >= limit or (placed and alone):
                        return placed
        return placed

    def keeps_away(self, run: PodRun, account: PoolAccount) -> str:
        """The DaemonSet whose pods, on each new node that a pool may have for the class, keep it away; "" for none."""
        found = [
            self._unwelcome(run, account, state, (), together=False)
            for term in (run.filter.terms if self.company else ())
            for state in self._ways(run, account, account.offer.base, term, self.first_need(run))
        ]
        return found[0] if found and all(found) else ""

    def _keeps_out(self, account: PoolAccount, state: OfferState, run: PodRun) -> bool:
        """Whether the pods that are in the domain of a new node would keep its daemons out, or those away that the class brings."""
        if any(
            counter.counts[domain]
            for counter in self._brought_with(account, state).kept_out
            for domain in self._domains_of(account, state, counter.axis)
        ):
            return True
        return any(
            one.shut_out(run.plan, functools.partial(self._domains_of, account, state)) for one in self._followers
        )

    def _beside(self, run: PodRun, account: PoolAccount, state: OfferState, brought: Brought, cap: int) -> int:
        """How many pods spread allows beside the daemons of a new node, there and in its domains."""
        for (host, _, own, _), top in zip(run.plan.spreads, run.tops, strict=True):
            left = top - brought.hosts.get(host, 0)
            if own:
                cap = min(cap, left)
            elif left < 0:
                return 0
        for ap in run.plan.axes if brought.domains else ():
            domains = self._domains_of(account, state, ap.axis)
            for counter, skew, own, least in ap.spreads if len(domains) == 1 else ():
                universe, lowest = self._universe(run, counter), 0
                if self._enough(universe, counter, least):
                    # a domain that takes pods may get daemons, too: hoped for, until an attempt was judged not to hold it
                    hoped = () if counter.count in self.cautious else self._legal(run, ap, counter, together=False)
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

    def _is_too_empty(self, run: PodRun, account: PoolAccount, state: OfferState) -> bool:
        """Whether a new node with one pod of the class would break a hostname spread of pods that have a place."""
        for host in self.topology.hosts.values():
            if host.held and self._counts(host.count.eligibility, account, state):
                brought = 1 if host in run.plan.adds else 0
                if any(held & host.with_at_least(skew + brought + 1) for (skew, _), held in host.held.items()):
                    return True
        return False

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
        if account.learn(state):
            self._make_exact(account)
        if run.crowd is not None and self.crowds is not None:
            cap_all = min(cap_all, self.crowds.top(account.offer.pool.name))
        plan, places, pods = run.plan, self.places, run.pods
        first = self.first_need(run)
        plain = first is run.need and not account.exact and len(state.points) == 1
        counting = [
            host for host in plan.adds if host.eligible == ALL or self._counts(host.count.eligibility, account, state)
        ]
        start = begin = run.start
        end = start + limit
        known = len(places)
        loads: list[int] = []  # pods on each new node
        most_new = self.most_new
        rest: list[int] = []  # of a node with `full` pods
        full = 0
        number = 0  # of nodes over which the pods are shared evenly
        if run.over[1]:
            whole, over = run.over
            number = max(-(-limit // cap_all), min(limit, (2 * over * limit + whole) // (2 * whole)))
        while start < end and not (alone and loads):
            if most_new is not None and len(places) - self.now >= most_new:
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
        self._enter(account, state, touched)
        if run.crowd is not None:
            for place_number, load in enumerate(loads, known):
                run.crowd.add(place_number, load)
        for host, key in plan.holds:
            host.held[key] = host.held.get(key, 0) | touched
        if run.ties:
            self._account_for(run, touched, start - begin, pins)
        return start - begin

    # ------------------------------------------------------------------ hostname spread, once the rest is placed

    def late(self, run: PodRun) -> None:
        """Hostname spread by the true number on the emptiest node; then on as few new claims as even numbers allow.

        Source: kube-scheduler 1.36, design 3b.9.
        """
        may_open = not self.closing
        if may_open and run.left and not self._room_for_all(run):
            self._on_new_ones(run)
            may_open = False
        while run.left and not (may_open and self._only_opens(run)):
            before = run.start
            run.allow(self._emptiest(run.plan.spreads))
            self.place(run, opening=False)
            if run.start == before:
                break
        if run.left and may_open:
            self._on_new_ones(run)
        if run.left and run.plan.considerate:
            run.allow(self._emptiest(run.plan.spreads))
            self._inconsiderately(run, opening=False)

    def _room_for_all(self, run: PodRun) -> bool:
        """Whether the places that are there have room for the pods of the class, whatever hostname spread says."""
        return not self.nodes_wanted and self._room(run, self._candidates_at_all(run), run.left) >= run.left

    def _on_new_ones(self, run: PodRun) -> None:
        """On as few new claims as even numbers allow, and those that are there filled as far as even numbers are."""
        beside = self._least_beside(run) if self.company else 0  # daemons that count on each new node
        new = self.largest_new(run) + beside
        highest, number = new, self.nodes_wanted
        there = _NONE_THERE
        for host, skew, _, least in run.plan.spreads:
            known = self.node_count(host)
            there = self._filled(run, host)
            ceiling = there.lowest + skew if host.eligible & self.usable else new
            if host.count in self.cautious:
                ceiling = min(ceiling, skew + (beside if known >= least else 0))  # some that can be had were not
            if least - known > run.left:
                ceiling = min(ceiling, skew)
            highest = min(highest, ceiling, self.ceilings.get(host.count, highest))
            number = max(number, least if least - known <= run.left else 0) - known
        if beside and highest <= beside:
            return  # the daemons alone are as many as a node may have
        highest = max(1, highest)
        fewest = max(1, number)
        if there.capped(highest) + fewest * (highest - beside) < run.left:
            fewest = -(-(run.left - there.capped(highest)) // (highest - beside))
        if highest < new and fewest > max(1, number, -(-run.left // max(1, new - beside))):
            self.forced = True
        for ap in run.plan.axes:
            if ap.spreads and fewest > 1:  # as many in each domain
                domains = max(1, len(self._openable(run, ap.axis)))
                fewest = -(-fewest // domains) * domains
        fewest = min(fewest, run.left)
        even = highest  # the least on each with which there is room for all
        low = 1 + beside
        while low < even:
            middle = (low + even) // 2
            if there.capped(middle) + fewest * (middle - beside) >= run.left:
                even = middle
            else:
                low = middle + 1
        for top, opening in ((even - 1, False), (even, True), (even, False)):
            if run.left and top > 0:
                run.allow([top - skew for _, skew, _, _ in run.plan.spreads])
                end = run.end
                if opening:
                    run.end = min(end, run.start + fewest * (even - beside))
                    run.over = run.left, fewest
                if opening or there.pods:
                    self.place(run, opening=opening)
                run.end, run.over = end, (0, 0)

    def _least_beside(self, run: PodRun) -> int:
        """How many daemons count at least on each new node, by the hostname spread of the class that counts most."""
        found = [
            self._brought_with(account, state, run)
            for account in self._takers(run)
            for term in run.filter.terms
            for base in (account.offer.narrowed(account.offer.base, term),)
            if base is not None
            for state in self._harmless_ways(run, account, account.offer.base, term, self.first_need(run))
        ]
        return max(
            (min((one.hosts.get(host, 0) for one in found), default=0) for host, *_ in run.plan.spreads), default=0
        )

    def _filled(self, run: PodRun, host: HostCounter) -> "_Filled":
        """What the places that are there already have of the pods of one count, and could have."""
        places = host.eligible & self.usable
        candidates = self._candidates_at_all(run) & places
        full = places & ~candidates
        lowest = host.emptiest(full) if full else _MUCH
        holds: list[tuple[int, int]] = []
        for i in members(candidates):
            has = host.counts.get(i, 0)
            if len(holds) >= _MOST_FILLED:  # the others are taken as they are
                lowest = min(lowest, has)
                continue
            most_pods = has + self._room(run, 1 << i, run.left)
            holds.append((has, most_pods))
            lowest = min(lowest, most_pods)
        return _Filled(lowest, holds)

    def _candidates_at_all(self, run: PodRun) -> int:
        """As `_candidates`, whatever hostname spread says now."""
        tops, run.tops = run.tops, [_MUCH] * len(run.tops)
        try:
            return self._candidates(run)
        finally:
            run.tops = tops

    def _emptiest(self, spreads: Sequence[HostSpread]) -> list[int]:
        """By spread, the number of pods on the emptiest node."""
        floors = []
        for host, _, _, min_domains in spreads:
            careful = host.count in self.cautious and not self.closing
            few = min_domains > 1 and self.node_count(host) < min_domains
            floors.append(0 if careful or few else host.emptiest(host.eligible & self.usable))
        return floors

    def node_count(self, host: HostCounter) -> int:
        """How many nodes count for sure, whatever those to come turn out to be."""
        places = host.eligible & self.usable
        eligibility = host.count.eligibility
        if eligibility is None or eligibility.terms is None:
            return places.bit_count()
        terms = eligibility.terms
        number = 0
        for i in members(places):
            place = self.places[i]
            account, state = (None, None) if place is None else (place.account, place.state)
            if account is None or state is None:
                number += 1
            else:
                number += any(account.offer.narrowed(state, term) is state for term in terms)
        return number

    def give_reservations_up(self) -> None:
        """From now on a claim may become a node that is bought, where that takes more pods."""
        for account in self.accounts:
            if account.reservations is not None:
                account.reservations.kept = False
                self._ask_again(account.claims)

    def _ask_again(self, claims: int) -> None:
        for key in self._roomy:
            self._roomy[key] |= claims

    def forget(self) -> bool:
        """Whether a limit was loosened since the last call; if so, claims of limited pools are asked again."""
        loosened = 0
        for account in self.accounts:
            ledger = account.ledger
            if ledger is not None and ledger.loosened:
                ledger.loosened = False
                loosened |= account.claims
        if loosened:
            self._ask_again(loosened)
        return bool(loosened)


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
    return sorted((side for side in prices if prices[side] < _DEAREST), key=prices.__getitem__)  # of equals the first
