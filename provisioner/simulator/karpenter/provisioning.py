"""Which nodes Karpenter makes for pods that wait: first fit by decreasing size, price looked at last. Pure.

A claim takes pods as long as one instance type holds them all, and becomes the cheapest type that does.
Source: karpenter `pkg/controllers/provisioning/scheduling/{scheduler,queue,existingnode,nodeclaim}.go` at 226646810.
"""

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Final, TypeAlias

from msgspec.structs import replace as changed

from provisioner.apis.names import HOSTNAME_LABEL
from provisioner.apis.pods import Pod
from provisioner.scheduling.attempts.finishing import finish
from provisioner.scheduling.capacity.offers import OfferState, PreparedPool
from provisioner.scheduling.capacity.places import Place, PoolAccount, Reservations, bought
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.classes import NOTHING_AVOIDED, PodClass
from provisioner.scheduling.constraints.demands import Count, Demand
from provisioner.scheduling.constraints.filters import NodeFilter, label_value
from provisioner.scheduling.constraints.ports import Ports, TakenPorts
from provisioner.scheduling.constraints.vectors import Need
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.reasons import NOT_TRIED, Reason
from provisioner.scheduling.result import Later, PlannedClaim, Result, Unplaced
from provisioner.simulator.karpenter.topology import KarpenterTopology
from provisioner.values.resources import CPU, MEMORY, Resources

_Step: TypeAlias = tuple[PodClass, Demand]


def provision(
    prepared: Prepared,
    pods: Iterable[Pod],
    *,
    leaving: Collection[str] = (),
    shut: Mapping[str, frozenset[str]] = NOTHING_AVOIDED,
    max_new: float = math.inf,
    below: float = math.inf,
) -> Result:
    """What Karpenter plans for pods: places on existing nodes, in their order; on claims, that with fewest pods first; on a new one at last.

    Pods go by CPU, then memory, both descending, then age. New claims come from the NodePool of the greatest weight that takes the pod, equal
    weights by name, descending. A claim that is opened takes the most that it could become from its NodePool's limits, so one round may not use
    them up. What a pod wishes is demanded first, and given up step by step.

    Args:
        prepared: the world.
        pods: that need places; any order.
        leaving: names of nodes that take no pod.
        shut: by UID of a pod, names of nodes that do not take it.
        max_new: once there are more claims, nothing more is placed: nobody asks for the answer.
        below: likewise once a claim costs so much, in USD per hour.

    Returns:
        As `Prepared.solve`; a claim names at most 600 types, and is charged with the largest of them.

    Cost: O(pods x (nodes with room for such a pod + claims)) in the worst case; what has no room for one pod of a class is not asked again.
    Source: 3.4-3.9.
    Differs: PodGroups are left to chance as there. Alternatives of a required node affinity are tried in their order at each step. Reserved capacity is
    not bought. minValues are kept (Strict). How many volumes an existing node takes is not looked at.
    """
    asked = tuple(pods)
    return _Provisioning(prepared, asked, leaving, shut, max_new, below).result()


class _Claim:
    """A node to come.

    Attributes:
        rows: the types that neither limits nor ports rule out.
        used: by dimension, what its pods take.
        pods: in the order in which they came, each with its class and number there.
    """

    __slots__ = ("host", "offer", "pods", "ports", "rows", "state", "used")

    def __init__(self, offer: PreparedPool, state: OfferState, rows: int, number: int) -> None:
        self.offer: Final = offer
        self.state = state
        self.rows = rows
        self.used: Sequence[int] = (0,) * len(offer.dimensions.names)
        self.ports = TakenPorts({})
        self.pods: Final[list[tuple[PodClass, int]]] = []
        self.host: Final = f"claim {number}/"  # no hostname has a slash

    def domains(self, key: str) -> Sequence[str]:
        return (self.host,) if key == HOSTNAME_LABEL else self.offer.domains(self.state, key)

    def counts(self, count: Count) -> bool:
        """Whether its pods count where nodes have to be eligible."""
        found, offer = count.eligibility, self.offer
        if found is None:
            return True
        if found.tolerations is not None and not offer.tolerated(NodeFilter(tolerations=found.tolerations)):
            return False
        return found.terms is None or any(offer.narrowed(self.state, one) is not None for one in found.terms)


class _Provisioning:
    """One question."""

    def __init__(
        self,
        prepared: Prepared,
        asked: Sequence[Pod],
        leaving: Collection[str],
        shut: Mapping[str, frozenset[str]],
        max_new: float,
        below: float,
    ) -> None:
        self._prepared: Final = prepared
        self._asked: Final = asked
        self._shut: Final = shut
        self._max_new: Final = max_new
        self._below: Final = below
        self._setting: Final = prepared.setting(asked, leaving)
        self._topology: Final = KarpenterTopology(self._setting)
        self._left: Final = {
            offer.pool.name: dict(offer.pool.remaining)
            for offer in self._setting.offers
            if offer.pool.remaining is not None
        }
        self._rooms: Final[dict[int, list[int]]] = {}
        self._ports: Final = TakenPorts(self._setting.ports)
        self._existing: Final[dict[int, list[Pod]]] = {}
        self._claims: Final[list[_Claim]] = []
        self._turns: list[_Claim] = []  # those with fewest pods first, of equals that opened first
        self._open: Final[dict[_Step, int]] = {}  # existing nodes that may still take such a pod
        self._full: Final[dict[_Step, set[_Claim]]] = {}  # claims that never will
        self._barred: Final[set[_Step]] = set()  # for which no claim can be opened any more
        self._filters: Final[dict[_Step, NodeFilter]] = {}
        self._over = False

    def result(self) -> Result:
        """The answer."""
        queue = self._queue()
        failed: dict[PodClass, int] = {}
        pushed: dict[str, int] = {}
        placed = 0
        while queue and not self._over:
            one, number = queue[0]
            pod = one.pods[number]
            if pushed.get(pod.uid) == len(queue):
                break  # a whole turn without a place
            queue.popleft()
            if failed.get(one) != placed and self._place(one, number):
                placed += 1
                self._over = self._is_enough()
            else:
                failed[one] = placed
                queue.append((one, number))
                pushed[pod.uid] = len(queue)
        left = [one.pods[number] for one, number in queue]
        return Result(self._planned(), self._on_existing(), self._unplaced(left))

    def _queue(self) -> deque[tuple[PodClass, int]]:
        entries = [
            ((-shape.requests.amount(CPU), -shape.requests.amount(MEMORY), pod.created, pod.uid), one, number)
            for one in self._setting.classes
            for shape in (one.shape,)
            for number, pod in enumerate(one.pods)
        ]
        entries.sort(key=itemgetter(0))
        return deque([(one, number) for _, one, number in entries])

    def _is_enough(self) -> bool:
        """Whether nobody asks for more of the answer."""
        if len(self._claims) > self._max_new:
            return True
        return self._below < math.inf and any(
            one.offer.price(one.state, one.used) >= self._below for one in self._claims
        )

    def _place(self, one: PodClass, number: int) -> bool:
        return any(
            self._on_node(one, number, demand)
            or self._on_claim(one, number, demand)
            or self._on_new(one, number, demand)
            for demand in one.ladder
        )

    def _filter(self, step: _Step) -> NodeFilter:
        found = self._filters.get(step)
        if found is None:
            found = self._filters[step] = step[0].narrowed(step[1].filter)
        return found

    # ------------------------------------------------------------------ existing nodes

    def _on_node(self, one: PodClass, number: int, demand: Demand) -> bool:
        bins, need, step = self._setting.bins, self._setting.needs[one], (one, demand)
        places = self._open.get(step)
        if places is None:
            places = bins.admitting(self._filter(step)) & bins.roomy(need)
        ports, pod, ties = one.facts.ports, one.pods[number], self._topology.of(demand.relations)
        avoided = self._shut.get(pod.uid, frozenset())
        found = None
        for place in members(places):
            name = bins.bins[place].name
            room = self._rooms.get(place)
            domain_of = partial(self._domain_of, place)
            if (
                (room is not None and not _holds(room, need))
                or (ports and self._ports.clashing(ports) >> place & 1)
                or any(counts.counts.get(domain_of(HOSTNAME_LABEL) or "") for counts in ties.lasting)
            ):
                places &= ~(1 << place)
            elif name not in avoided and (
                ties.free or self._topology.admits(ties, domain_of, self._filter(step).terms)
            ):
                found = place
                break
        self._open[step] = places
        if found is None:
            return False
        room = self._rooms.setdefault(found, list(bins.rooms[found]))
        for d, amount in need:
            room[d] -= amount
        if ports:
            self._ports.take(ports, 1 << found)
        self._existing.setdefault(found, []).append(pod)
        if ties.adds:
            low = 1 << found
            self._topology.placed(
                ties,
                lambda key: [value] if (value := self._domain_of(found, key)) is not None else [],
                lambda count: count.eligibility is None or bool(bins.eligible(count.eligibility) & low),
            )
        return True

    def _domain_of(self, place: int, key: str) -> str | None:
        one = self._setting.bins.bins[place]
        value = label_value(one.labels, key)
        return one.node_name or one.name if value is None and key == HOSTNAME_LABEL else value

    # ------------------------------------------------------------------ claims

    def _on_claim(self, one: PodClass, number: int, demand: Demand) -> bool:
        full = self._full.setdefault((one, demand), set())
        for claim in self._turns:
            if claim not in full and self._joins(claim, one, number, demand, full):
                self._turns.sort(key=_pods_of)
                return True
        return False

    def _on_new(self, one: PodClass, number: int, demand: Demand) -> bool:
        step = one, demand
        if step in self._barred:
            return False
        for offer in self._setting.offers:
            base = bought(offer)
            if base is None or not offer.tolerated(self._filter(step)):
                continue
            left = self._left.get(offer.pool.name)
            rows = base.rows
            for name, amount in (left or {}).items():
                rows &= offer.catalogue.within(name, amount)
            claim = _Claim(offer, base, rows, len(self._claims))
            if rows and self._joins(claim, one, number, demand, set()):
                self._claims.append(claim)
                self._turns.insert(0, claim)
                self._turns.sort(key=_pods_of)
                for name in left or {}:
                    options = members(offer.types.fitting(claim.state.rows & claim.rows, claim.used))
                    self._left[offer.pool.name][name] -= max(offer.catalogue.amount(row, name) for row in options)
                return True
        if self._topology.of(demand.relations).free:
            self._barred.add(step)
        return False

    def _joins(self, claim: _Claim, one: PodClass, number: int, demand: Demand, full: set[_Claim]) -> bool:
        """Put a pod on a claim that takes it; one that never will is noted in `full`."""
        offer, need, ports = claim.offer, self._setting.needs[one], one.facts.ports
        ties = self._topology.of(demand.relations)
        wanted = self._filter((one, demand))
        if not offer.tolerated(wanted) or any(counts.counts.get(claim.host) for counts in ties.lasting):
            full.add(claim)
            return False
        used = list(claim.used)
        for d, amount in need:
            used[d] += amount
        rows = claim.rows & ~self._clashing(claim, ports)
        could = False
        for term in wanted.terms:
            state = offer.narrowed(claim.state, term)
            if state is None or not self._fits(offer, state, rows, used):
                continue
            could = True
            if not ties.free:
                state = self._topology.narrowed(ties, offer, state, claim.host, term)
                if state is None or not self._fits(offer, state, rows, used):
                    continue
            claim.state, claim.rows, claim.used = state, rows, used
            claim.pods.append((one, number))
            if ports:
                claim.ports.take(ports, 1)
            if ties.adds:
                self._topology.placed(ties, claim.domains, claim.counts)
            return True
        if not could:
            full.add(claim)
        return False

    @staticmethod
    def _clashing(claim: _Claim, ports: Ports) -> int:
        """The types that a claim cannot be with these ports too."""
        if not ports:
            return 0
        return -1 if claim.ports.clashing(ports) else claim.offer.types.clashing(ports)

    @staticmethod
    def _fits(offer: PreparedPool, state: OfferState, rows: int, used: Sequence[int]) -> bool:
        left = offer.types.fitting(state.rows & rows, used)
        return bool(left) and (not offer.min_values or offer.enough_values(state, left))

    # ------------------------------------------------------------------ the answer

    def _planned(self) -> tuple[PlannedClaim, ...]:
        setting = self._setting
        label = setting.world.reservation_label
        accounts: dict[str, PoolAccount] = {}
        places = []
        for claim in self._claims:
            offer = claim.offer
            account = accounts.get(offer.pool.name)
            if account is None:  # limits were looked at; their charge is another one here
                free = offer.with_pool(replace(offer.pool, remaining=None))
                account = PoolAccount(free, setting.pods, setting.load, Reservations(label), best_effort=False)
                accounts[offer.pool.name] = account
            state = offer.without(claim.state, claim.state.rows & ~claim.rows)
            parts = [(one, number, number + 1) for one, number in claim.pods]
            places.append(Place(account, state, None, parts, used=claim.used))
        return tuple([self._charged(claim, one) for claim, one in zip(self._claims, finish(places), strict=True)])

    @staticmethod
    def _charged(claim: _Claim, planned: PlannedClaim) -> PlannedClaim:
        remaining = claim.offer.pool.remaining
        if remaining is None:
            return planned
        catalogue = claim.offer.catalogue
        rows = [row for name in planned.instance_types if (row := catalogue.row_of(name)) is not None]
        most = {name: max(catalogue.amount(row, name) for row in rows) for name in remaining}
        return changed(planned, charge=Resources.of(most))

    def _on_existing(self) -> dict[str, tuple[Pod, ...]]:
        bins = self._setting.bins.bins
        return {bins[place].name: tuple(pods) for place, pods in sorted(self._existing.items())}

    def _unplaced(self, left: Sequence[Pod]) -> tuple[Unplaced, ...]:
        known = {pod.uid for one in self._setting.classes for pod in one.pods}
        never = [pod for pod in self._asked if pod.uid not in known]
        found = list(self._prepared.solve(never, effort=0).unplaced) if never else []
        why: Later[tuple[Reason, ...]] | tuple[Reason, ...]
        for pod in left:
            why = (NOT_TRIED,) if self._over else Later(partial(_reasons, self._prepared, pod))
            found.append(Unplaced(pod, why))
        return tuple(found)


def _pods_of(claim: _Claim) -> int:
    return len(claim.pods)


def _holds(room: Sequence[int], need: Need) -> bool:
    return all(room[d] >= amount for d, amount in need)


def _reasons(prepared: Prepared, pod: Pod) -> tuple[Reason, ...]:
    """Why scheduling would leave a pod by itself; none where it would not."""
    found = prepared.solve((pod,), effort=0).unplaced
    return found[0].reasons if found else ()
