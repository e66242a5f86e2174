"""Pods of one class into places, as many at a time as the class allows.

What a class does not use costs it nothing: without relations to other pods it is filled into the first places that take
it; with them, domains are chosen first (emptiest first for spread), then the places in them.

A claim on which a pod of some count is put gets its domain settled, so what is counted is also what will be. Hostname
spread takes the emptiest machine as empty until `late` looks at the true number, once all other claims are open.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from provisioner.scheduling.bins import Bins, Tally
from provisioner.scheduling.bits import members
from provisioner.scheduling.classes import PodClass
from provisioner.scheduling.demands import Count, Demand, Relations
from provisioner.scheduling.filters import NodeFilter, Term
from provisioner.scheduling.offers import State, pin
from provisioner.scheduling.places import (
    Account,
    Place,
    fitting,
    machines_of_now,
    make_exact,
    opened,
    take,
)
from provisioner.scheduling.ports import Port, Ports, clash
from provisioner.scheduling.topology import (
    ALL,
    Axis,
    DomainCounter,
    Effects,
    HostCounter,
    Topology,
    water_fill,
)
from provisioner.scheduling.vectors import ATTACHABLE, Dimensions, Need, most
from provisioner.scheduling.volumes import NO_VOLUMES, Attachment

Pin = tuple[Axis, int]
"""(axis, domain); the domain -1 stands for machines without the label."""
_HostSpread = tuple[HostCounter, int, bool, int]
"""(counter, max_skew, whether the pod counts itself, min_domains)"""
_DomainSpread = tuple[DomainCounter, int, bool, int]


class AxisPlan:
    """What the relations of a class mean on one axis.

    Attributes:
        spreads: its own constraints.
        wanted: counters that count it and by which other pods are spread, with the least skew of these.
        together, apart: its affinity and anti-affinity.
        blocked: where pods are that keep it away.
        adds: counters that count it, or what it guards.
        strict: whether a machine without the label is out of the question.
        alone: two such pods cannot share a domain.
        lead: (counter, max_skew, min_domains) of the only counter that the pods raise and that has to stay even; only
            set where it decides alone.
    """

    __slots__ = ("adds", "alone", "apart", "axis", "blocked", "lead", "spreads", "strict", "together", "wanted")

    def __init__(self, axis: Axis) -> None:
        self.axis: Final = axis
        self.spreads: list[_DomainSpread] = []
        self.wanted: list[tuple[DomainCounter, int]] = []
        self.together: list[DomainCounter] = []
        self.apart: list[DomainCounter] = []
        self.blocked: list[DomainCounter] = []
        self.adds: list[DomainCounter] = []
        self.strict = False
        self.alone = False
        self.lead: tuple[DomainCounter, int, int]


class Plan:
    """What the relations of a class mean in one attempt; attributes as of `AxisPlan`, places in place of domains.

    Attributes:
        plain: nothing at all.
        single: two such pods cannot share a place.
        guarded: counters that count it, and by which pods that are placed already are spread over hosts.
        caps: (counter, max_skew) of hostname spreads by which the pods count themselves.
        ties: whether anything besides hosts has to know where its pods are.
    """

    __slots__ = (
        "adds",
        "apart",
        "axes",
        "blocked",
        "bootstraps",
        "caps",
        "even",
        "guarded",
        "plain",
        "single",
        "spreads",
        "ties",
        "together",
    )

    def __init__(self, relations: Relations, topology: Topology, skews: dict[Count, int]) -> None:
        effects: Effects = topology.effects(relations.pod)
        self.spreads: list[_HostSpread] = []
        self.together: list[HostCounter] = []
        self.apart: list[HostCounter] = []
        self.blocked: Final = effects.blocked
        self.adds: Final = list(effects.hosts)
        axes: dict[Axis, AxisPlan] = {}

        def on(axis: Axis) -> AxisPlan:
            if axis not in axes:
                axes[axis] = AxisPlan(axis)
            return axes[axis]

        for axis, some in effects.axes.items():
            plan = on(axis)
            plan.adds += some.adds
            plan.blocked += some.blocked
        for spread in relations.spreads:
            own = topology.includes(spread.count, relations)
            if spread.count.on_hosts:
                self.spreads.append((topology.hosts[spread.count], spread.max_skew, own, spread.min_domains))
            else:
                counter = topology.domains[spread.count]
                on(counter.axis).spreads.append((counter, spread.max_skew, own, spread.min_domains))
        for counts, host_list, name in (
            (relations.together, self.together, "together"),
            (relations.apart, self.apart, "apart"),
        ):
            for count in counts:
                if count.on_hosts:
                    host_list.append(topology.hosts[count])
                else:
                    counter = topology.domains[count]
                    getattr(on(counter.axis), name).append(counter)
        for count in relations.guards:
            if count.on_hosts:
                self.adds.append(topology.hosts[count])
            else:
                on(topology.domains[count].axis).adds.append(topology.domains[count])
        spread_by = {spread.count for spread in relations.spreads}
        self.guarded: Final = [
            (host, skews[host.count]) for host in effects.hosts if host.count in skews and host.count not in spread_by
        ]
        for plan in axes.values():
            plan.strict = bool(plan.spreads or plan.together)
            plan.alone = any(topology.includes(one.count, relations) for one in plan.apart)
            plan.wanted = [
                (one, skews[one.count]) for one in plan.adds if one.count in skews and one.count not in spread_by
            ]
        self.axes: Final = [axes[axis] for axis in sorted(axes, key=lambda one: one.key)]
        self.single: Final = any(topology.includes(host.count, relations) for host in self.apart)
        self.bootstraps: Final = bool(relations.together) and all(
            topology.includes(count, relations) for count in relations.together
        )
        self.even: Final = self._even()
        self.caps: Final = [(counter, skew) for counter, skew, own, _ in self.spreads if own]
        self.ties: Final = bool(self.axes or self.guarded)
        self.plain: Final = not (
            self.axes or self.spreads or self.together or self.apart or self.blocked or self.adds or self.guarded
        )

    def _even(self) -> AxisPlan | None:
        """The only axis, where shares by one counter settle everything."""
        if len(self.axes) != 1:
            return None
        (ap,) = self.axes
        if ap.together or ap.apart or ap.blocked:
            return None
        leads = [(counter, skew, least) for counter, skew, own, least in ap.spreads if own]
        leads += [(counter, skew, 1) for counter, skew in ap.wanted]
        if len(leads) != 1:
            return None
        (ap.lead,) = leads
        return ap


class Run:
    """One class with one demand, while its pods are being placed.

    Attributes:
        pods: the class.
        demand: its own node filter, by which nodes count for its spread.
        filter: that and what its volumes demand.
        start: number of its first pod without a place.
        end: number after the last pod to be placed.
        caps, ties: of the plan; ports are ties too.
        easy: no term, port or volume has to be looked at on a claim.
        soft: whether to leave room for the spread of other pods.
    """

    __slots__ = (
        "caps",
        "closed",
        "demand",
        "easy",
        "end",
        "filter",
        "need",
        "plan",
        "pods",
        "ports",
        "soft",
        "start",
        "ties",
        "volumes",
    )

    def __init__(
        self,
        pods: PodClass,
        demand: NodeFilter,
        node_filter: NodeFilter,
        plan: Plan,
        need: Need,
        closed: int,
        start: int,
    ) -> None:
        self.pods: Final = pods
        self.demand: Final = demand
        self.filter: Final = node_filter
        self.plan: Final = plan
        self.need: Final = need
        self.closed: Final = closed
        self.start = start
        self.end = len(pods.pods)
        self.ports: Final[Ports] = pods.facts.ports
        self.volumes: Final[tuple[Attachment, ...]] = pods.volumes.attachments
        self.caps: Final = plan.caps
        self.easy: Final = node_filter.easy and not self.ports
        self.soft = True
        self.ties: Final = plan.ties or bool(self.ports)

    @property
    def left(self) -> int:
        """Pods without a place."""
        return self.end - self.start


class Placing:
    """Everything that changes in one attempt."""

    def __init__(
        self, bins: Bins, accounts: Sequence[Account], dimensions: Dimensions, topology: Topology, cautious: set[Count]
    ) -> None:
        self.bins: Final = bins
        self.accounts: Final = accounts
        self.dimensions: Final = dimensions
        self.topology: Final = topology
        self.cautious: Final = cautious
        self.places: Final[list[Place]] = machines_of_now(bins)
        self.axes: Final = list(topology.axes.values())
        self.usable = bins.staying
        self.touched = False
        self.scattering = False
        self._closed: Final[dict[int, int]] = {}
        self._base: Final[dict[NodeFilter, tuple[int, list[Account]]]] = {}
        self._joined: Final[dict[tuple[NodeFilter, tuple[Pin, ...]], tuple[Term, ...]]] = {}
        self._offers: Final[dict[tuple[NodeFilter, Axis], frozenset[int]]] = {}
        self._reach: Final[dict[tuple[int, Axis], frozenset[int]]] = {}
        self._entered: Final[dict[tuple[Axis, State], tuple[int, ...]]] = {}
        self.ports: Final[dict[Port, int]] = {}
        self._in_use: Final[set[str]] = set()

    # ------------------------------------------------------------------ the ground

    def settle_in(self, tallies: Sequence[Tally], due_ports: Sequence[Ports]) -> None:
        """Count what is on machines of now already."""
        topology = self.topology
        for axis in self.axes:
            for value, places in self.bins.by_label(axis.key).items():
                if value is None:
                    axis.absent |= places
                else:
                    axis.could[axis.index[value]] |= places
                axis.fixed |= places
        where: dict[Axis, list[int]] = {}
        for axis in self.axes:
            numbers = where[axis] = [-1] * len(self.bins.bins)
            for value, places in self.bins.by_label(axis.key).items():
                if value is not None:
                    domain = axis.index[value]
                    for i in members(places):
                        numbers[i] = domain
        for i, tally in enumerate(tallies):
            low = 1 << i
            for port in (*tally.ports, *due_ports[i]):
                self.ports[port] = self.ports.get(port, 0) | low
            if topology.empty:
                continue
            for labels, staying, dying in tally.pods:
                effects = topology.effects(labels)
                for host in effects.hosts:
                    pods = staying if host.count.spread else staying + dying
                    if pods:
                        host.add(i, low, pods)
                for axis, some in effects.axes.items():
                    domain = where[axis][i]
                    if domain >= 0:
                        for counter in some.adds:
                            pods = staying if counter.count.spread else staying + dying
                            if pods and (counter.eligible == ALL or counter.eligible & low):
                                counter.add(domain, pods)
            for relations, pods in tally.guarding:
                for count in relations.guards:
                    if count.on_hosts:
                        topology.hosts[count].add(i, low, pods)
                    else:
                        domain = where[topology.axes[count.key]][i]
                        if domain >= 0:
                            topology.domains[count].add(domain, pods)

    def attach(self, attached: Sequence[set[Attachment]]) -> None:
        """Say what machines of now have attached; their room for volumes is what this leaves."""
        drivers = {driver: d for d, driver in self._drivers()}
        for place, volumes in zip(self.places, attached, strict=True):
            place.attached = set(volumes)
            if place.head is not None:
                for driver, _ in volumes:
                    # more may be attached than there may be: room is never negative
                    if driver in drivers and place.head[drivers[driver]]:
                        place.head[drivers[driver]] -= 1

    def _drivers(self) -> list[tuple[int, str]]:
        names = enumerate(self.dimensions.names)
        return [(d, name.removeprefix(ATTACHABLE)) for d, name in names if name.startswith(ATTACHABLE)]

    # ------------------------------------------------------------------ one class

    def place(self, run: Run, *, opening: bool) -> None:
        """Put as many pods of a run as find a place, on new claims too where `opening`."""
        if not run.left:
            return
        even = run.plan.even
        if even is not None and self._evenly(run, even):
            return
        if not (opening and self.scattering and (run.plan.axes or run.plan.adds)):
            self._spread(run, opening=False)
        if not opening or not run.left:
            return
        self._spread(run, opening=True)
        if run.left and run.soft and (run.plan.guarded or any(one.wanted for one in run.plan.axes)):
            run.soft = False  # nobody has a right to be left an empty domain
            self._spread(run, opening=True)
            run.soft = True

    def _evenly(self, run: Run, ap: AxisPlan) -> bool:
        """The common case: one axis, one counter that the pods raise, room for all; whether that was so."""
        axis = ap.axis
        counter, skew, least = ap.lead
        counts = counter.counts
        universe = self._universe(run, counter)
        if len(universe) < least:
            return False
        total = len(universe)
        domains: Sequence[int] = axis.numbers if total == len(counts) else sorted(universe)
        for other, other_skew, own, other_least in ap.spreads:
            if not own:
                top = self.least(run, other, other_least) + other_skew
                domains = [domain for domain in domains if other.counts[domain] <= top]
        ceiling: int | None = None
        if len(domains) < total:
            outside = min(counts[domain] for domain in universe if domain not in domains)
            ceiling = outside + skew
        candidates = self._candidates(run)
        if not candidates:
            return False
        shares = water_fill(counts, domains, run.left, ceiling)
        if len(shares) > 1:
            safe = (
                min([counts[domain] for domain in universe]) + skew
            )  # so far a domain may be filled even if no other is
            for domain, share in shares:
                if counts[domain] + share > safe:
                    break
            else:
                safe = 0
            if safe:
                surely = candidates & axis.fixed
                for domain, share in shares:
                    if not self._holds(run, surely & axis.could[domain], share):
                        return False
        for domain, share in shares:
            places = candidates & axis.could[domain]
            if not places or self._fill(run, places, share, axis.pins[domain]) < share:
                return False
        return not run.left

    def _holds(self, run: Run, places: int, pods: int) -> bool:
        """Whether some of these places, looked at one after another, surely take so many pods of the class."""
        if not run.easy or run.volumes:
            return False
        need, caps = run.need, run.caps
        single = run.plan.single
        while places:
            low = places & -places
            i = low.bit_length() - 1
            places ^= low
            place = self.places[i]
            if place.head is None:
                continue
            cap = 1 if single else pods
            for counter, skew in caps:
                cap = min(cap, skew + counter.floor - counter.counts.get(i, 0))
            pods -= most(place.head, need, cap) if cap > 0 else 0
            if pods <= 0:
                return True
        return False

    def _spread(self, run: Run, *, opening: bool) -> None:
        plan = run.plan
        if plan.bootstraps and not self.anywhere(plan):
            self._bootstrap(run, opening=opening)
            if not run.left or not self.anywhere(plan):
                return
        if plan.axes:
            self._over_axes(run, 0, ALL, run.left, (), opening=opening)
        else:
            self._put(run, ALL, run.left, (), opening=opening)

    def anywhere(self, plan: Plan) -> bool:
        """Whether any pod is counted that the class wants to be with."""
        return any(one.total for one in plan.together) or any(one.total for ap in plan.axes for one in ap.together)

    def _bootstrap(self, run: Run, *, opening: bool) -> None:
        """The first of pods that want to be together: where most of them find room, on machines of now by preference."""
        plan = run.plan
        axes = [ap for ap in plan.axes if ap.together]
        if not axes:
            self._first_host(run, opening=opening)
            return
        ap = axes[0]
        axis = ap.axis
        candidates = self._candidates(run, together=False)
        room = {domain: self._room(run, candidates & could, run.left) for domain, could in enumerate(axis.could)}
        reach = self._reachable(run, axis)
        if not opening and reach and max(room.values(), default=0) < run.left:
            return  # rather all of them where a new machine can be had too
        order = sorted(
            (domain for domain in room if room[domain] or domain in reach),
            key=lambda domain: (
                room[domain] < run.left,
                domain not in reach,
                -room[domain],
                axis.loads[domain],
                domain,
            ),
        )
        for domain in order:
            before = run.start
            others = tuple(one for one in plan.axes if one is not ap)
            self._within(run, ap, domain, others, opening=opening)
            if run.start > before:
                axis.loads[domain] += run.start - before
                return

    def _within(self, run: Run, ap: AxisPlan, domain: int, others: Sequence[AxisPlan], *, opening: bool) -> None:
        if domain not in self._legal(run, ap, together=False):
            return
        limit = run.left
        if any(own for _, _, own, _ in ap.spreads) or ap.apart or run.plan.together:
            limit = 1
        self._over(run, others, 0, ap.axis.could[domain], limit, ((ap.axis, domain),), opening=opening, together=False)

    def _first_host(self, run: Run, *, opening: bool) -> None:
        candidates = self._candidates(run, together=False)
        best, most_pods = 0, 0
        for i in members(candidates):
            pods = self._room(run, 1 << i, run.left)
            if pods > most_pods:
                best, most_pods = 1 << i, pods
                if pods >= run.left:
                    break
        new = self._largest_new(run)
        if not opening and most_pods < min(new, run.left):
            return
        if best and most_pods >= min(new, run.left):
            self._over(run, run.plan.axes, 0, best, 1, (), opening=False, together=False)
        elif opening:
            self._over(run, run.plan.axes, 0, 0, 1, (), opening=True, together=False)
        if best and not self.anywhere(run.plan):
            self._over(run, run.plan.axes, 0, candidates, 1, (), opening=False, together=False)

    def _room(self, run: Run, places: int, limit: int) -> int:
        """How many pods of the class the places take as far as room goes, at most `limit`."""
        total = 0
        for i in members(places):
            place = self.places[i]
            if place.state is None:
                total += most(place.head, run.need, limit) if place.head is not None else 0
            else:
                total += fitting(place, place.state, run.need, limit)
            if total >= limit:
                return limit
        return total

    def _largest_new(self, run: Run) -> int:
        """The most pods of the class that one new claim takes."""
        best = 0
        for account in self._ground(run.filter)[1]:
            for term in run.filter.terms:
                state = account.offer.narrowed(account.offer.base, term)
                if state is not None:
                    for point in state.points:
                        best = max(best, most(point, run.need, run.left))
        return best

    # ------------------------------------------------------------------ domains

    def _over_axes(self, run: Run, depth: int, mask: int, limit: int, pins: tuple[Pin, ...], *, opening: bool) -> int:
        return self._over(run, run.plan.axes, depth, mask, limit, pins, opening=opening, together=True)

    def _over(
        self,
        run: Run,
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
        if depth == len(axes):
            return self._put(run, mask, limit, pins, opening=opening, together=together)
        ap = axes[depth]
        axis = ap.axis
        placed = 0
        dead: set[int] = set()
        while placed < limit:
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
            cautious = len(leads) == 1 and len(shares) > 1 and not (opening and self._surely_opens(run, axis, shares))
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

    def _surely_opens(self, run: Run, axis: Axis, shares: Sequence[tuple[int, int]]) -> bool:
        """Whether new claims can be had in every domain, as many as need be."""
        reach = self._reachable(run, axis)
        return all(domain in reach for domain, _ in shares) and not any(
            account.exact for account in self._ground(run.filter)[1]
        )

    def _leads(self, run: Run, ap: AxisPlan) -> list[tuple[DomainCounter, int, int, bool]]:
        """(counter, max_skew, min_domains, hard) of what the pods themselves raise."""
        leads = [(counter, skew, least, True) for counter, skew, own, least in ap.spreads if own]
        if run.soft:
            leads += [(counter, skew, 1, False) for counter, skew in ap.wanted]
        return leads

    def _legal(self, run: Run, ap: AxisPlan, even: DomainCounter | None = None, *, together: bool) -> list[int]:
        """The domains that take one more pod of the class, as far as counts other than `even` go."""
        domains: Iterable[int] = range(len(ap.axis.values))
        for other in ap.blocked:
            domains = [domain for domain in domains if not other.counts[domain]]
        for other in ap.apart:
            domains = [domain for domain in domains if not other.counts[domain]]
        if together:
            for other in ap.together:
                domains = [domain for domain in domains if other.counts[domain]]
        for counter, skew, own, least in ap.spreads:
            if counter is even:
                continue
            top = self.least(run, counter, least) + skew - (1 if own else 0)
            domains = [domain for domain in domains if counter.counts[domain] <= top]
        return list(domains)

    def least(self, run: Run, counter: DomainCounter, min_domains: int) -> int:
        """The number in the emptiest domain that counts."""
        counts = counter.counts
        universe = self._universe(run, counter)
        if len(universe) < min_domains:
            return 0
        if len(universe) == len(counts):
            return min(counts)
        return min((counts[domain] for domain in universe), default=0)

    def _universe(self, run: Run, counter: DomainCounter) -> frozenset[int]:
        """The domains of eligible machines, and those in which the class itself may have a new one.

        A domain where the class fits nothing may still come to exist by another class; where that has broken what was
        placed before, every domain that is offered counts from the start.
        """
        reach = self._reachable(run, counter.axis)
        if counter.count in self.cautious:
            reach = reach | self._offered(run, counter.axis)
        if len(reach) == len(counter.axis.values):
            return reach
        return reach.union(counter.existing(self.usable))

    def _shares(
        self,
        run: Run,
        ap: AxisPlan,
        leads: Sequence[tuple[DomainCounter, int, int, bool]],
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
        if len(leads) > 1:
            return self._one_by_one(run, leads, legal)
        counter, skew, least, hard = leads[0]
        outside = [domain for domain in self._universe(run, counter) if domain not in legal]
        ceiling: int | None = None
        if outside:
            ceiling = min(counter.counts[domain] for domain in outside) + skew
        if hard and len(self._universe(run, counter)) < least:
            ceiling = skew
        return water_fill(counter.counts, legal, pods, ceiling)

    def _one_by_one(
        self, run: Run, leads: Sequence[tuple[DomainCounter, int, int, bool]], legal: list[int]
    ) -> list[tuple[int, int]]:
        """One pod for the domain that all counters together like best."""
        kind = [
            domain
            for domain in legal
            if all(
                hard or counter.counts[domain] < self.least(run, counter, least) + skew
                for counter, skew, least, hard in leads
            )
        ]
        order = sorted(kind or legal, key=lambda domain: (sum(counter.counts[domain] for counter, *_ in leads), domain))
        return [(domain, 1) for domain in order]

    def _preferred(self, run: Run, ap: AxisPlan, legal: list[int], *, opening: bool) -> list[int]:
        """Domains in the order in which places would have it: the one of the first place that may do, first."""
        axis = ap.axis
        if len(legal) == 1:
            return legal
        candidates = self._candidates(run)
        reach = self._reachable(run, axis) if opening else frozenset()

        def first(domain: int) -> tuple[int, int, bool, int, int]:
            places = candidates & axis.could[domain]
            low = (places & -places).bit_length() if places else len(self.places) + 1
            crowd = sum(counter.counts[domain] for counter in ap.adds) if self.scattering else 0
            return crowd, low, domain not in reach, axis.loads[domain], domain

        return sorted(legal, key=first)

    def _reachable(self, run: Run, axis: Axis) -> frozenset[int]:
        """The domains in which a new claim would take a pod of the class."""
        key = (run.closed, axis)
        found = self._reach.get(key)
        if found is None:
            found = self._reach[key] = frozenset(
                axis.index[value]
                for account in self._ground(run.filter)[1]
                for term in run.filter.terms
                for state in (account.offer.narrowed(account.offer.base, term),)
                if state is not None
                for value in account.offer.domains(state, axis.key)
                if value in axis.index
                for narrower in (account.offer.narrowed(state, pin(axis.key, value)),)
                if narrower is not None and any(most(point, run.need, 1) for point in narrower.points)
            )
        return found

    def _offered(self, run: Run, axis: Axis) -> frozenset[int]:
        """The domains of available offerings that the pods' own node filter admits, however small the machines are."""
        own = run.demand
        key = (own, axis)
        found = self._offers.get(key)
        if found is None:
            found = self._offers[key] = frozenset(
                axis.index[value]
                for account in self._ground(own)[1]
                for term in own.terms
                for state in (account.offer.narrowed(account.offer.base, term),)
                if state is not None
                for value in account.offer.domains(state, axis.key)
                if value in axis.index
            )
        return found

    # ------------------------------------------------------------------ places

    def _ground(self, node_filter: NodeFilter) -> tuple[int, list[Account]]:
        """Bins that admit pods with this filter, and pools that may."""
        found = self._base.get(node_filter)
        if found is None:
            willing = [account for account in self.accounts if account.offer.admits(node_filter)]
            found = self._base[node_filter] = (self.bins.admitting(node_filter), willing)
        return found

    def _candidates(self, run: Run, *, together: bool = True) -> int:
        """Places that may take one more pod of the class, as far as is known without looking at each."""
        mask, willing = self._ground(run.filter)
        for account in willing:
            mask |= account.claims
        closed = self._closed.get(run.closed)
        if closed is None:
            closed = self._closed[run.closed] = self.bins.everything & ~self.bins.roomy(run.need) if mask else 0
        mask &= ~closed
        plan = run.plan
        if plan.plain and not run.ports:
            return mask
        for host in plan.blocked:
            mask &= ~host.at_least[1] if len(host.at_least) > 1 else ALL
        for host in plan.apart:
            mask &= ~host.at_least[1] if len(host.at_least) > 1 else ALL
        for host, skew, own, _ in plan.spreads:
            level = host.floor + skew + (0 if own else 1)
            if level < len(host.at_least):
                mask &= ~host.at_least[level]
        if together:
            for host in plan.together:
                mask &= host.with_at_least(1)
        if run.soft:
            for host, _ in plan.guarded:
                for held in host.held.values():
                    mask &= ~held
        for port in run.ports:
            for taken, places in self.ports.items():
                if clash(port, taken):
                    mask &= ~places
        return mask

    def _put(
        self, run: Run, mask: int, limit: int, pins: tuple[Pin, ...], *, opening: bool, together: bool = True
    ) -> int:
        """Pods into places of one domain each axis, first those that are there, then new ones; how many."""
        placed = 0
        may_open = opening and not (together and run.plan.together)
        if may_open and self.scattering and not run.plan.spreads:
            placed = self._open(run, limit, pins)
        if mask and placed < limit:
            candidates = self._candidates(run, together=together) & mask
            if candidates:
                placed += self._fill(run, candidates, limit - placed, pins)
        if may_open and placed < limit:
            placed += self._open(run, limit - placed, pins)
        return placed

    def _fill(self, run: Run, candidates: int, limit: int, pins: tuple[Pin, ...]) -> int:
        """Pods into these places, the first first; how many. The innermost loop of all."""
        need, places, plan, caps = run.need, self.places, run.plan, run.caps
        single = plan.single or bool(run.ports)
        easy = run.easy and not run.volumes
        fixed = ALL  # places whose domain need not be settled first
        for axis, _ in pins:
            fixed &= axis.fixed
        adds, spreads = plan.adds, plan.spreads
        start = first = run.start
        end = start + limit
        touched = closed = 0
        while candidates:
            low = candidates & -candidates
            i = low.bit_length() - 1
            candidates ^= low
            cap = 1 if single else end - start
            for counter, skew in caps:
                rest = skew + counter.floor - counter.counts.get(i, 0)
                if rest < cap:  # noqa: PLR1730 - min() is a call
                    cap = rest
            if cap <= 0:
                continue
            place = places[i]
            head = place.head
            account = place.account
            if head is not None and (
                not run.volumes if account is None else easy and fixed & low and not account.exact
            ):
                for d, amount in need:
                    times = head[d] // amount
                    if times < cap:  # noqa: PLR1730 - min() is a call
                        cap = times
                if cap <= 0:
                    closed |= low
                    continue
                for d, amount in need:
                    head[d] -= amount * cap
            else:
                run.start = start
                cap = self._take(run, place, low, cap, pins)
                if cap <= 0:
                    if cap < 0:
                        closed |= low
                    continue
            place.placed.append((run.pods, start, start + cap))
            start += cap
            touched |= low
            for host in adds:
                host.add(i, low, cap)
            if start >= end:
                break
        run.start = start
        if closed:
            self._closed[run.closed] |= closed
        if touched:
            self.touched = True
            for host, skew, _, least in spreads:
                host.held[skew, least] = host.held.get((skew, least), 0) | touched
            if run.ties:
                self._account_for(run, touched, start - first, pins)
        return start - first

    def _account_for(self, run: Run, touched: int, count: int, pins: tuple[Pin, ...]) -> None:
        """Everything that counts the pods of one fill counts them; hosts have done so already."""
        plan = run.plan
        if not run.soft:
            for host, _ in plan.guarded:
                host.raised = True
        for port in run.ports:
            self.ports[port] = self.ports.get(port, 0) | touched
        for ap in plan.axes:
            if len(pins) == 1 and pins[0][0] is ap.axis:
                domain = pins[0][1]
            else:
                domain = next((domain for axis, domain in pins if axis is ap.axis), -1)
            if domain < 0:
                continue
            for counter in ap.adds:
                if counter.eligible == ALL or not touched & ~counter.eligible:
                    counter.add(domain, count)
                else:
                    counter.add(domain, self._eligible_pods(run, touched & counter.eligible, count))
            for counter, skew, _, least in ap.spreads:
                counter.held.setdefault((skew, least), set()).add(domain)
            if not run.soft:
                for counter, _ in ap.wanted:
                    counter.raised = True

    def _eligible_pods(self, run: Run, places: int, count: int) -> int:
        """Of the last `count` pods of a run, those that were put on `places`."""
        first = run.start - count
        return sum(
            end - start
            for i in members(places)
            for pods, start, end in self.places[i].placed
            if pods is run.pods and start >= first
        )

    def _make_exact(self, account: Account) -> None:
        make_exact(account, [self.places[i] for i in members(account.claims)])

    def _take(self, run: Run, place: Place, low: int, cap: int, pins: tuple[Pin, ...]) -> int:
        """Put pods on a place that has to be looked at closely; how many, -1 if there is no room whatever the domain."""
        first = self.first_need(run, place)
        if place.state is None:
            return self._take_bin(run, place, first, cap)
        account = place.account
        if account is None:
            return 0
        offer = account.offer
        open_pins = tuple((axis, domain) for axis, domain in pins if domain >= 0 and not axis.fixed & low)
        for term in self._terms(run.filter, open_pins):
            state = offer.narrowed(place.state, term)
            if state is not None and run.ports:
                state = offer.without(state, offer.clashing(run.ports))
            if state is None:
                continue
            before = place.state
            count = self._load(run, place, state, first, cap)
            if not count:
                continue
            if state is not before:
                self._narrowed(place, low, state, open_pins)
            if account.learn(state):
                self._make_exact(account)
            return count
        if not open_pins or not fitting(place, place.state, run.need, 1):
            return -1
        return 0

    def _take_bin(self, run: Run, place: Place, first: Need, cap: int) -> int:
        head = place.head
        if head is None or not most(head, first, 1):
            return -1
        for d, amount in first:
            head[d] -= amount
        self._remember(run, place)
        count = 1 + (most(head, run.need, cap - 1) if cap > 1 else 0)
        for d, amount in run.need:
            head[d] -= amount * (count - 1)
        return count

    def first_need(self, run: Run, place: Place | None = None) -> Need:
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

    def _load(self, run: Run, place: Place, state: State, first: Need, cap: int) -> int:
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
        self._remember(run, place)
        more = fitting(place, state, need, cap - 1) if cap > 1 else 0
        if more:
            take(place, state, need, more)
        return 1 + more

    @staticmethod
    def _remember(run: Run, place: Place) -> None:
        if place.attached is None:
            place.attached = set()
        place.attached.update(run.volumes)

    def _terms(self, node_filter: NodeFilter, pins: tuple[Pin, ...]) -> tuple[Term, ...]:
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

    def _narrowed(self, place: Place, low: int, state: State, pins: tuple[Pin, ...]) -> None:
        """A claim has become less: it may have lost domains, or its claim to be counted."""
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
        for counter in self.topology.picky:
            if counter.eligible & low and not self._counts(counter.count, account, state):
                counter.eligible &= ~low

    def _domains_of(self, account: Account, state: State, axis: Axis) -> tuple[int, ...]:
        key = (axis, state)
        found = self._entered.get(key)
        if found is None:
            found = self._entered[key] = tuple(
                axis.index[value] for value in account.offer.domains(state, axis.key) if value in axis.index
            )
        return found

    def _counts(self, count: Count, account: Account, state: State) -> bool:
        """Whether a claim may be one of the machines that count."""
        eligibility = count.eligibility
        if eligibility is None:
            return True
        offer = account.offer
        if eligibility.tolerations is not None and not offer.tolerated(NodeFilter((), eligibility.tolerations)):
            return False
        if any(not self._domains_of(account, state, self.topology.axes[key]) for key in eligibility.keys):
            return False
        return eligibility.terms is None or any(offer.narrowed(state, term) is not None for term in eligibility.terms)

    def _open(self, run: Run, limit: int, pins: tuple[Pin, ...]) -> int:
        """Pods into new claims; how many."""
        placed = 0
        fixed = tuple(one for one in pins if one[1] >= 0)
        absent = [axis for axis, domain in pins if domain < 0]
        cap_all = 1 if run.plan.single or run.ports else limit
        for counter, skew in run.caps:
            cap_all = min(cap_all, skew + counter.floor)
        if cap_all <= 0:
            return 0
        for term in self._terms(run.filter, fixed):
            for account in self._ground(run.filter)[1]:
                offer = account.offer
                if absent and any(offer.domains(offer.base, axis.key) for axis in absent):
                    continue
                state = offer.narrowed(offer.base, term)
                if state is not None and run.ports:
                    state = offer.without(state, offer.clashing(run.ports))
                if state is None:
                    continue
                placed += self._open_in(run, account, state, limit - placed, cap_all, pins)
                if placed >= limit:
                    return placed
        return placed

    def _open_in(
        self, run: Run, account: Account, state: State, limit: int, cap_all: int, pins: tuple[Pin, ...]
    ) -> int:
        if account.learn(state):
            self._make_exact(account)
        plan, places = run.plan, self.places
        first = self.first_need(run)
        plain = first is run.need and not account.exact and len(state.points) == 1
        start = begin = run.start
        end = start + limit
        touched = 0
        while start < end:
            cap = min(cap_all, end - start)
            if plain:
                point = state.points[0]
                cap = most(point, run.need, cap)
                if not cap:
                    break
                head = list(point)
                for d, amount in run.need:
                    head[d] -= amount * cap
                place = Place(account, state, head)
            else:
                place = opened(account, state)
                cap = self._load(run, place, state, first, cap)
                if not cap:
                    break
            i = len(places)
            low = 1 << i
            places.append(place)
            place.placed.append((run.pods, start, start + cap))
            start += cap
            touched |= low
            for host in plan.adds:
                if host.eligible == ALL or self._counts(host.count, account, state):
                    host.eligible |= low
                    host.add(i, low, cap)
        if not touched:
            return 0
        run.start = start
        self.touched = True
        account.claims |= touched
        self.usable |= touched
        for axis in self.axes:
            axis.enter(touched, self._domains_of(account, state, axis))
        for counter in self.topology.picky:
            if self._counts(counter.count, account, state):
                counter.eligible |= touched
        for host, skew, _, least in plan.spreads:
            host.held[skew, least] = host.held.get((skew, least), 0) | touched
        if run.ties:
            self._account_for(run, touched, start - begin, pins)
        return start - begin

    # ------------------------------------------------------------------ hostname spread, once the rest is placed

    def late(self, run: Run) -> None:
        """Hostname spread by the true number on the emptiest machine; then on as few new claims as even numbers allow.

        Source: kube-scheduler 1.36, design 3b.9.
        """
        spreads = [(host, skew, least) for host, skew, _, least in run.plan.spreads]
        while run.left:
            before = run.start
            for host, _, least in spreads:
                host.floor = self._emptiest(host, least)
            self.place(run, opening=False)
            if run.start == before:
                break
        if run.left:
            new = self._largest_new(run)
            for host, skew, least in spreads:
                ceiling = host.floor + skew if host.eligible & self.usable else new
                if host.count in self.cautious or least > 1:
                    ceiling = min(ceiling, skew)
                tallest = max(1, min(new, ceiling))
                machines = -(-run.left // tallest)
                host.floor = -(-run.left // machines) - skew
            self.place(run, opening=True)
        for host, _, _ in spreads:
            host.floor = 0

    def _emptiest(self, host: HostCounter, min_domains: int) -> int:
        if host.count in self.cautious:
            return 0
        places = host.eligible & self.usable
        if places.bit_count() < min_domains:
            return 0
        return host.emptiest(places)

    def forget(self) -> bool:
        """Whether a limit was loosened since the last call; if so, claims of limited pools are asked again."""
        loosened = 0
        for account in self.accounts:
            ledger = account.ledger
            if ledger is not None and ledger.loosened:
                ledger.loosened = False
                loosened |= account.claims
        if loosened:
            for key in self._closed:
                self._closed[key] &= ~loosened
        return bool(loosened)


def run_of(
    pods: PodClass, demand: Demand, plan: Plan, need: Need, numbers: dict[tuple[NodeFilter, Need], int], start: int
) -> Run:
    """The run of one class with one of its demands; `numbers` tells equal questions apart."""
    node_filter = demand.filter
    if pods.volumes is not NO_VOLUMES:
        node_filter = node_filter.narrowed(pods.volumes.alternatives)
    key = (node_filter, need)
    number = numbers.get(key)
    if number is None:
        number = numbers[key] = len(numbers)
    return Run(pods, demand.filter, node_filter, plan, need, number, start)
