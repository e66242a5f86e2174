"""The pods of DaemonSets that a node to come will have, as other pods see them: whom they keep away, and who wants to be with them or to be counted with them.

Only those take part that have to do with pods of the question; without any, nothing here costs anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.scheduling.census import SelectorIndex, Tally
from provisioner.scheduling.demands import Count
from provisioner.scheduling.filters import Term
from provisioner.scheduling.offers import Daemon
from provisioner.scheduling.selecting import LabelSet
from provisioner.scheduling.topology import DomainCounter, HostCounter, Topology

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
    """The daemons that some of these counts mean, or whose own anti-affinity means one of these pods. Cost: O(daemons x counts) at most."""
    index = SelectorIndex(counts)
    every = list(pods)
    return tuple(
        one
        for one in daemons
        if (index.numbers and index.including(one.relations.pod, namespaces))
        or any(count.include(pod, namespaces) for count in one.relations.guards for pod in every)
    )


def guards_of(daemons: Iterable[Daemon], pods: Iterable[LabelSet], namespaces: Namespaces) -> dict[Count, None]:
    """What anti-affinity of these daemons keeps some of these pods away by, from either side."""
    every = list(pods)
    return {
        count: None
        for one in daemons
        for count in (*one.relations.guards, *(each for each in one.relations.apart if not each.on_hosts))
        if any(count.include(pod, namespaces) for pod in every)
    }


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


def choosy_terms(daemons: Iterable[Daemon]) -> tuple[tuple[Term, ...], ...]:
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
    return Tally(
        tally.uids,
        tally.strays,
        (*tally.pods, *own),
        (*tally.guarding, *guarding),
        tally.ports,
        tally.claims,
        tally.named,
    )
