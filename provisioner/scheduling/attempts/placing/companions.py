"""The daemons of the nodes to come of one attempt: what each of them brings, where that keeps a class away, and what they wait for."""

import functools
from collections.abc import Sequence
from math import inf
from typing import Final

from provisioner.scheduling.attempts.placing.place_table import Pin, PlaceTable
from provisioner.scheduling.capacity.offers import OfferState, pin
from provisioner.scheduling.capacity.places import PoolAccount
from provisioner.scheduling.capacity.prepared_types import Daemon
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.topology.company import NOTHING, Brought, Follower, accompany, brought_by, come
from provisioner.scheduling.topology.counters import Axis, Topology
from provisioner.scheduling.topology.relations import PodRun

NONE_THERE: Final = "?"
"""No DaemonSet brings what the class wants to be with."""


class Companions:
    """The daemons of nodes to come that have to do with pods of the question (`company`), in one attempt."""

    def __init__(self, table: PlaceTable) -> None:
        self.table: Final = table
        self.company: Final = table.setting.company
        self._brought: Final[dict[tuple[PoolAccount, OfferState, tuple[Daemon, ...]], Brought]] = {}
        self._awaiting: Final[dict[Axis, int]] = {}  # claims whose daemons are in no domain yet
        self.followers: Final = [Follower(one, table.topology, places) for one, places in table.setting.due.items()]
        if self.followers:
            come(self.followers)

    def enter(self, account: PoolAccount, state: OfferState, new: int) -> None:
        """New claims, on their hosts and in their domains."""
        for i in members(new):
            for axis in accompany(self.brought(account, state), i):
                self._awaiting[axis] = self._awaiting.get(axis, 0) | 1 << i
        for one in self.followers:
            if account.offer.hosts(one.daemon, state):
                one.places |= new

    def narrowed(self, account: PoolAccount, low: int, state: OfferState) -> None:
        """A claim may have come to a domain."""
        for axis, waiting in self._awaiting.items():
            if waiting & low & axis.fixed:
                self._awaiting[axis] = waiting & ~low
                accompany(self.brought(account, state), low.bit_length() - 1, axis)

    def brought(self, account: PoolAccount, state: OfferState, more: tuple[Daemon, ...] = ()) -> Brought:
        """What the daemons of a claim of this state are to others, of those that wait for nobody, and `more`."""
        if not self.company:
            return NOTHING
        key = account, state, more
        found = self._brought.get(key)
        if found is None:
            daemons = [one for one in self.company if not one.near and account.offer.hosts(one, state)]
            found = self._brought[key] = brought_by((*daemons, *more), self.table.topology)
        return found

    def brought_with(self, account: PoolAccount, state: OfferState, run: PodRun | None = None) -> Brought:
        """The same with those that find whom they must be near, on a claim without pods or with one of `run`."""
        found = self.brought(account, state)
        more: tuple[Daemon, ...] = ()
        waiting = [one for one in self.followers if account.offer.hosts(one.daemon, state)]
        plan = None if run is None else run.plan
        domains = functools.partial(self.table.domains_of, account, state)
        while due := [one for one in waiting if one.daemon not in more and one.is_due(plan, found, domains)]:
            more = (*more, *(one.daemon for one in due))
            found = self.brought(account, state, more)
        return found

    def bring_along(self, topology: Topology) -> list[Follower]:
        """Count the daemons of every claim by other counters; those that wait for others, by these."""
        for i, place in enumerate(self.table.claims(), self.table.now) if self.company else ():
            if place.account is not None and place.state is not None:
                offer, state = place.account.offer, place.state
                daemons = [one for one in self.company if not one.near and offer.hosts(one, state)]
                accompany(brought_by(daemons, topology), i)
        found = [Follower(one.daemon, topology, one.places) for one in self.followers]
        come(found)
        return found

    def shut_to(self, run: PodRun) -> int:
        """The places from which daemons that the class would bring keep it, or pods that keep these out."""
        found = 0
        for one in self.followers:
            found |= one.shut_by(run.plan)
        return found

    def one_by_one(self, run: PodRun) -> bool:
        """Whether pods of the class on one node keep them from others in its domain, since a daemon that they bring there stays away from them."""
        return any(one.is_kept_off_by(run.plan) for one in self.followers)

    def unwelcome(
        self, run: PodRun, account: PoolAccount, state: OfferState, pins: tuple[Pin, ...], *, together: bool
    ) -> str:
        """The DaemonSet whose pods keep the class from a new node that has these daemons, or that it misses there; "" where it may open one."""
        plan, brought = run.plan, self.brought_with(account, state)
        for host in (*plan.apart, *plan.blocked):
            if host in brought.hosts:
                return brought.names[host]
        for each in plan.axes:
            for counter in (*each.apart, *each.blocked):
                if counter in brought.domains and account.offer.domains(state, counter.axis.key):
                    return brought.names[counter]
        if not together or (plan.bootstraps and not plan.anywhere):
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

    def keeps_out(self, account: PoolAccount, state: OfferState, run: PodRun) -> bool:
        """Whether the pods that are in the domain of a new node would keep its daemons out, or those away that the class brings."""
        if any(
            counter.counts[domain]
            for counter in self.brought_with(account, state).kept_out
            for domain in self.table.domains_of(account, state, counter.axis)
        ):
            return True
        return any(
            one.shut_out(run.plan, functools.partial(self.table.domains_of, account, state)) for one in self.followers
        )

    def settled_ways(
        self, account: PoolAccount, ways: Sequence[OfferState], used: Sequence[int]
    ) -> Sequence[OfferState]:
        """These states, each in every domain in which its daemons are counted: what is counted must be somewhere. Cheapest first."""
        offer = account.offer
        for _ in self.table.axes:
            found: list[OfferState] = []
            for one in ways:
                late = [each for each in self.followers if offer.hosts(each.daemon, one)]
                brought = self.brought(account, one, tuple([each.daemon for each in late]))
                axes = [counter.axis for counter in (*brought.domains, *brought.kept_out)]
                axes += [axis for each in late for axis in each.axes]
                axis = next((each for each in axes if len(self.table.domains_of(account, one, each)) > 1), None)
                if axis is None:
                    found.append(one)
                    continue
                pinned = [
                    offer.narrowed(one, pin(axis.key, axis.values[domain]))
                    for domain in self.table.domains_of(account, one, axis)
                ]
                found += [state for state in pinned if state is not None]
            if found == ways:
                break
            prices = {state: offer.price(state, used) for state in found}
            ways = sorted((state for state in prices if prices[state] < inf), key=prices.__getitem__)
        return ways
