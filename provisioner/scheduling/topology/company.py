"""The pods of DaemonSets that a node to come will have, as other pods see them: whom they keep away, and who wants to be with them or to be counted with them.

Only those take part that have to do with pods of the question; without any, nothing here costs anything.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from provisioner.scheduling.capacity.prepared_types import Daemon
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.demands import Count
from provisioner.scheduling.constraints.filters import FilterTerm
from provisioner.scheduling.constraints.selectors import LabelSet
from provisioner.scheduling.topology.census import SelectorIndex, Tally
from provisioner.scheduling.topology.counters import Axis, DomainCounter, HostCounter, Topology
from provisioner.scheduling.topology.relations import TopologyPlan

Namespaces = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Brought:
    """What the daemons of one node are to others.

    Attributes:
        hosts: how many pods more a counter has by them.
        domains: the same of its domain.
        kept_out: the domains that hold pods which keep some of the daemons out, by what counts these pods.
        names: of the DaemonSets, by counter.
    """

    hosts: Mapping[HostCounter, int]
    domains: Mapping[DomainCounter, int]
    kept_out: Sequence[DomainCounter]
    names: Mapping[HostCounter | DomainCounter, str]


NOTHING: Final = Brought({}, {}, (), {})


def concerned(
    daemons: Sequence[Daemon], counts: Iterable[Count], pods: Iterable[LabelSet], namespaces: Namespaces
) -> tuple[Daemon, ...]:
    """The daemons that some of these counts mean, or whose own anti-affinity means one of these pods, and those whom these must be near.

    Cost: O(daemons x counts) at most, once more for each that must be near another.
    """
    wanted = dict.fromkeys(counts)
    every = list(pods)
    found: list[Daemon] = []
    known = -1
    while len(found) > known:
        known = len(found)
        index = SelectorIndex(wanted)
        found = [
            one
            for one in daemons
            if (wanted and index.including(one.relations.pod, namespaces))
            or any(count.include(pod, namespaces) for count in one.relations.guards for pod in every)
        ]
        wanted.update(dict.fromkeys(count for one in found for count in one.near))
    return tuple(found)


def guards_of(daemons: Iterable[Daemon], pods: Iterable[LabelSet], namespaces: Namespaces) -> dict[Count, None]:
    """What anti-affinity of these daemons keeps some of these pods away by, from either side."""
    every = list(pods)
    return {
        count: None
        for one in daemons
        for count in (*one.relations.guards, *(each for each in one.relations.apart if not each.on_hosts))
        if any(count.include(pod, namespaces) for pod in every)
    }


class Follower:
    """A daemon that must be near others, and comes once these are there.

    Attributes:
        daemon: it.
        brought: what it is to others.
        places: where it may come.
        here: where it is.
    """

    __slots__ = ("_near", "_near_in", "_off", "_off_in", "brought", "daemon", "here", "places")

    def __init__(self, daemon: Daemon, topology: Topology, places: int) -> None:
        self.daemon: Final = daemon
        self.brought: Final = brought_by((daemon,), topology)
        self._near, self._near_in = _counters(daemon.near, topology)
        apart, apart_in = _counters(daemon.relations.apart, topology)
        effects = topology.effects(daemon.relations.pod)
        self._off: Final = (*apart, *effects.blocked)
        self._off_in: Final = (*apart_in, *(one for some in effects.axes.values() for one in some.blocked))
        self.here = 0
        self.places = places & ~(self._wanted(places) & self.kept_out())  # where it is kept out already it stays out

    def kept_out(self) -> int:
        """The places where others keep it out."""
        found = 0
        for host in self._off:
            found |= host.with_at_least(1)
        for counter in self._off_in:
            found |= _peopled(counter)
        return found

    def _wanted(self, places: int) -> int:
        for host in self._near:
            places &= host.with_at_least(1)
        for counter in self._near_in:
            places &= _peopled(counter)
        return places

    def coming(self) -> int:
        """The places where those are whom it must be near, and to which it has not come yet."""
        found = self._wanted(self.places & ~self.here)
        return found & ~self.kept_out() if found else 0

    def follows(self, plan: TopologyPlan) -> bool:
        """Whether it may come by pods with this plan, which do not keep it out themselves; from their host alone they do so for none in the domain."""
        near = any(host in plan.adds for host in self._near) or self._counted(self._near_in, plan)
        off = self._counted(self._off_in, plan) or (not self._near_in and any(host in plan.adds for host in self._off))
        return near and not off

    def is_kept_off_by(self, plan: TopologyPlan) -> bool:
        """Whether pods with this plan bring it to their domain, but not to their host."""
        return any(host in plan.adds for host in self._off) and self.follows(plan)

    @staticmethod
    def _counted(counters: Iterable[DomainCounter], plan: TopologyPlan) -> bool:
        return any(one in ap.adds for one in counters for ap in plan.axes)

    def shut_by(self, plan: TopologyPlan) -> int:
        """The places from which its own anti-affinity, or theirs, keeps pods with this plan, as they would bring it."""
        if not self.follows(plan):
            return 0
        found = self.kept_out() & self.places & ~self.here
        alike = self.is_kept_off_by(plan)
        for counter in self._near_in if found else ():
            for could in counter.axis.could:
                if kept := could & counter.axis.fixed & found:
                    found |= could
                    if alike and not kept & (kept - 1):
                        found &= ~kept
        return found

    def is_due(self, plan: TopologyPlan | None, brought: Brought, domains: Callable[[Axis], Sequence[int]]) -> bool:
        """Whether it comes to a node with what is brought there, in one of these domains of each label, once a pod with this plan is there."""
        return all(host in brought.hosts or (plan is not None and host in plan.adds) for host in self._near) and all(
            one in brought.domains
            or all(one.counts[domain] for domain in domains(one.axis))
            or (plan is not None and self._counted((one,), plan))
            for one in self._near_in
        )

    def shut_out(self, plan: TopologyPlan, domains: Callable[[Axis], Sequence[int]]) -> bool:
        """Whether pods with this plan would bring it to a new node in these domains, or beside it, where others keep it out."""
        if not self.follows(plan):
            return False
        kept = self.kept_out() & self.places & ~self.here
        return any(one.counts[domain] for one in self._off_in for domain in domains(one.axis)) or any(
            kept & axis.could[domain] & axis.fixed for axis in self.axes for domain in domains(axis)
        )

    @property
    def axes(self) -> Sequence[Axis]:
        """The labels over which it must be near others."""
        return [one.axis for one in self._near_in]


def _counters(counts: Iterable[Count], topology: Topology) -> tuple[list[HostCounter], list[DomainCounter]]:
    every = list(counts)
    return (
        [topology.host(one) for one in every if one.on_hosts],
        [topology.domain(one) for one in every if not one.on_hosts],
    )


def _peopled(counter: DomainCounter) -> int:
    """The places of which the domain is known, and has some of the pods."""
    found = 0
    for pods, could in zip(counter.counts, counter.axis.could, strict=True):
        if pods:
            found |= could
    return found & counter.axis.fixed


def accompany(brought: Brought, place: int, only: Axis | None = None) -> set[Axis]:
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


def come(followers: Iterable[Follower]) -> None:
    """Count the daemons that come by now, and those that come by these. Cost: O(followers) where none comes."""
    more = True
    while more:
        more = False
        for one in followers:
            new = one.coming()
            one.here |= new
            for place in members(new):
                accompany(one.brought, place)
                more = True


def brought_by(daemons: Iterable[Daemon], topology: Topology) -> Brought:
    """What a node with these daemons brings to the counters."""
    hosts: dict[HostCounter, int] = {}
    domains: dict[DomainCounter, int] = {}
    kept_out: dict[DomainCounter, None] = {}
    found: dict[HostCounter | DomainCounter, str] = {}
    for one in daemons:
        effects = topology.effects(one.relations.pod)
        for host in effects.hosts:
            hosts[host] = hosts.get(host, 0) + 1
            found[host] = one.name
        for some in effects.axes.values():
            kept_out.update(dict.fromkeys(some.blocked))
            for counter in some.adds:
                domains[counter] = domains.get(counter, 0) + 1
                found[counter] = one.name
        known = topology.scope.index.numbers
        kept_out.update(
            (topology.domain(count), None) for count in one.relations.apart if count in known and not count.on_hosts
        )
        for count in one.relations.guards:
            if count not in known:
                continue
            if count.on_hosts:
                host = topology.host(count)
                hosts[host] = hosts.get(host, 0) + 1
                found[host] = one.name
            else:
                counter = topology.domain(count)
                domains[counter] = domains.get(counter, 0) + 1
                found[counter] = one.name
    return Brought(hosts, domains, tuple(kept_out), found) if found or kept_out else NOTHING


def choosy_terms(daemons: Iterable[Daemon]) -> tuple[tuple[FilterTerm, ...], ...]:
    """The terms of daemons that run on some nodes only."""
    return tuple(dict.fromkeys(one.filter.terms for one in daemons if not one.filter.unconditional))


def is_there(daemon: Daemon, tally: Tally) -> bool:
    """Whether a pod of the DaemonSet is on a node already: its template's labels are on one of the same namespace."""
    pod = daemon.relations.pod
    wanted = pod.labels.items()
    return any(labels.namespace == pod.namespace and wanted <= labels.labels.items() for labels, _, _ in tally.pods)


def with_daemons(tally: Tally, daemons: Sequence[Daemon]) -> Tally:
    """What is on a node once these daemons run there, too; their requests and ports are taken off already."""
    own = tuple((one.relations.pod, 1, 0) for one in daemons)
    guarding = tuple((one.relations, 1) for one in daemons if one.relations.guards)
    return replace(tally, pods=(*tally.pods, *own), guarding=(*tally.guarding, *guarding))
