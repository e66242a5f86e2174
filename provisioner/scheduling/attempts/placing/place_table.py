"""The places of one attempt while they are filled: existing nodes and claims, and what counts the pods on them."""

from collections.abc import Sequence
from typing import Final

from provisioner.apis.attachments import Attachment
from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.capacity.offers import OfferState
from provisioner.scheduling.capacity.places import Place, PoolAccount, make_exact
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.demands import Eligibility
from provisioner.scheduling.constraints.filters import NodeFilter
from provisioner.scheduling.constraints.ports import TakenPorts
from provisioner.scheduling.constraints.vectors import ATTACHABLE, Need
from provisioner.scheduling.constraints.workload_limits import Crowds
from provisioner.scheduling.topology.counters import ALL, Axis, HostCounter, Topology
from provisioner.scheduling.topology.relations import PodRun

Pin = tuple[Axis, int]
"""(axis, domain); the domain -1 stands for nodes without the label."""


class PlaceTable:
    """Every place, and which of them are in what.

    Attributes:
        places: existing nodes, then claims; None for a node that nobody looked at yet. `now` is the number of the former.
        usable: places that take pods and stay, as a set.
        attached: by volume, the places that have it attached.
        said, saying: by label that no type knows, the claims that have settled on a value, and by each value.
    """

    def __init__(self, setting: Setting, accounts: Sequence[PoolAccount], topology: Topology) -> None:
        self.setting: Final = setting
        self.accounts: Final = accounts
        self.topology: Final = topology
        self.places: Final[list[Place | None]] = [None] * len(setting.bins.bins)
        self._looked_at: Final[list[int]] = []
        self.now: Final = len(setting.bins.bins)
        self.axes: Final = list(topology.axes.values())
        self.usable = setting.bins.staying
        self.ports: Final = TakenPorts(setting.ports)
        self.crowds: Final = None if setting.crowding is None else Crowds(setting.crowding)
        self.attached: Final[dict[Attachment, int]] = {}
        self.said: Final[dict[str, dict[str, int]]] = {}
        self.saying: Final[dict[str, int]] = {}
        self._entered: Final[dict[tuple[Axis, OfferState], tuple[int, ...]]] = {}

    @property
    def domains(self) -> int:
        """The places that make domains of any label but the hostname; those that leave do so until they are gone, and are not counted then.

        By hostname they are none: their Nodes lose that label before their first pod is evicted (decision 44).
        """
        return self.usable | self.setting.lingering

    def enter(self, account: PoolAccount, state: OfferState, new: int) -> None:
        """New claims may be in so many domains, and may count."""
        account.claims |= new
        if self.crowds is not None:
            self.crowds.enter(account.offer.pool.name, members(new))
        if state.said:
            self._say(state, new)
        self.usable |= new
        for axis in self.axes:
            axis.enter(new, self.domains_of(account, state, axis))
        for picky in self.topology.picky:
            if self.counts(picky.eligibility, account, state):
                picky.places |= new

    def place_at(self, i: int) -> Place:
        """A place by its number; that of an existing node is made once somebody looks at it."""
        place = self.places[i]
        if place is None:
            place = self.places[i] = self._existing(i)
            self._looked_at.append(i)
        return place

    def known(self) -> list[tuple[int, Place]]:
        """The existing nodes that somebody looked at, by number: no other has a pod of the question. Of many, a question looks at few."""
        return [(i, place) for i in sorted(self._looked_at) if (place := self.places[i]) is not None]

    def all_known(self) -> list[tuple[int, Place]]:
        """These, then the claims."""
        return [*self.known(), *enumerate(self.claims(), self.now)]

    def _existing(self, i: int) -> Place:
        place = Place(None, None, list(self.setting.bins.rooms[i]), [])
        attached = self.setting.attached(i)
        if attached is not None:
            place.attached = set(attached)
            drivers = {driver: d for d, driver in self._drivers()}
            for volume in attached:
                self.attached[volume] = self.attached.get(volume, 0) | 1 << i
            for driver, _ in attached:
                # more may be attached than there may be: room is never negative
                if place.head is not None and driver in drivers and place.head[drivers[driver]]:
                    place.head[drivers[driver]] -= 1
        return place

    def claims(self) -> list[Place]:
        """The places that are claims, in the order they were opened."""
        return self.places[self.now :]  # type: ignore[return-value]  # every claim was made

    def _drivers(self) -> list[tuple[int, str]]:
        names = enumerate(self.setting.bins.dimensions.names)
        return [(d, name.removeprefix(ATTACHABLE)) for d, name in names if name.startswith(ATTACHABLE)]

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

    def attach(self, run: PodRun, place: Place, low: int) -> None:
        """The volumes of a class to a place."""
        if place.attached is None:
            place.attached = set()
        place.attached.update(run.volumes)
        for volume in run.volumes:
            self.attached[volume] = self.attached.get(volume, 0) | low

    def learn(self, account: PoolAccount, state: OfferState) -> None:
        """Some claim is about to be in this state: limits that have to be looked at for every pod of its pool are, from now on."""
        if account.learn(state):
            make_exact(account, [self.place_at(i) for i in members(account.claims)])

    def narrowed(self, account: PoolAccount, low: int, state: OfferState, pins: tuple[Pin, ...]) -> None:
        """A claim has become less: it may have lost domains, or its claim to be counted."""
        if state.said:
            self._say(state, low)
        for axis, domain in pins:
            axis.settle(low, domain)
        for axis in self.axes:
            if axis.fixed & low:
                continue
            left = self.domains_of(account, state, axis)
            if len(left) == 1:
                axis.settle(low, left[0])
            else:
                for domain, could in enumerate(axis.could):
                    if could & low and domain not in left:
                        axis.could[domain] = could & ~low
        for picky in self.topology.picky:
            if picky.places & low and not self.counts(picky.eligibility, account, state):
                picky.places &= ~low

    def _say(self, state: OfferState, places: int) -> None:
        """Claims have settled on values of labels, so pods that want others need not look at them."""
        for key, value in state.said:
            self.saying[key] = self.saying.get(key, 0) | places
            by_value = self.said.setdefault(key, {})
            by_value[value] = by_value.get(value, 0) | places

    def domains_of(self, account: PoolAccount, state: OfferState, axis: Axis) -> tuple[int, ...]:
        """The domains to which a claim may come."""
        key = (axis, state)
        found = self._entered.get(key)
        if found is None:
            found = self._entered[key] = tuple(
                axis.index[value] for value in account.offer.domains(state, axis.key) if value in axis.index
            )
        return found

    def counts(self, eligibility: Eligibility | None, account: PoolAccount, state: OfferState) -> bool:
        """Whether a claim may be one of the nodes that count."""
        if eligibility is None:
            return True
        offer = account.offer
        if eligibility.tolerations is not None and not offer.tolerated(NodeFilter((), eligibility.tolerations)):
            return False
        if any(not self.domains_of(account, state, self.topology.axes[key]) for key in eligibility.keys):
            return False
        return eligibility.terms is None or any(offer.narrowed(state, term) is not None for term in eligibility.terms)

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

    def is_too_empty(self, run: PodRun, account: PoolAccount, state: OfferState) -> bool:
        """Whether a new node with one pod of the class would break a hostname spread of pods that have a place."""
        for host in self.topology.hosts.values():
            if host.held and self.counts(host.count.eligibility, account, state):
                brought = 1 if host in run.plan.adds else 0
                if any(held & host.with_at_least(skew + brought + 1) for (skew, _), held in host.held.items()):
                    return True
        return False

    def account_for(self, run: PodRun, touched: int, count: int, pins: tuple[Pin, ...]) -> None:
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
