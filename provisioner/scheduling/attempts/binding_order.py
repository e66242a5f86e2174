"""Whether kube-scheduler can bind pods where an attempt has put them, one after another, in some order.

An attempt puts pods into places before it knows every domain that there will be. A spread constraint that held then may hold
in the end as well, and yet not at the moment at which its pod is bound, because those that it waits for wait themselves for others.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from provisioner.scheduling.attempts.placing.companions import Companions
from provisioner.scheduling.attempts.placing.place_table import PlaceTable
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.topology.company import come
from provisioner.scheduling.topology.counters import ALL, DomainCounter, Topology
from provisioner.scheduling.topology.relations import Counter, TopologyPlan
from provisioner.values.message import Said

_ALWAYS: Final = 1 << 40
_TURNS: Final = ((False, False), (False, True), (True, False), (True, True))
"""(whether they take room that a spread leaves to others, whether they ask nothing), first to last."""
_MOST_LOOKS: Final = 100_000
"""Pods and places that are looked at in one order, in steps (`TopologyPlan.cost`), before it counts as not found."""


class _Alike:
    """Pods that ask the same of places that are the same to them.

    Attributes:
        number: theirs, the same in every order of the same pods.
        one: the class of one of them.
        plan: what they ask, over counters of the order.
        low: the place of one of them, as a set.
        place: its number.
        domains: by axis of the plan, where they are; -1 for nowhere.
        left: how many are not bound yet.
        asks: whether anything but room is asked.
        kind: what is the same of those of whom it makes no difference which is the first.
        heeds: (counter, domain or place) that must not grow too much before they are bound.
        raises: (counter, domain or place) that grow by them.
    """

    __slots__ = ("asks", "domains", "heeds", "kind", "left", "low", "number", "one", "place", "plan", "raises")

    def __init__(
        self, number: int, one: PodClass, plan: TopologyPlan, place: int, domains: Sequence[int], pods: int
    ) -> None:
        self.number: Final = number
        self.one: Final = one
        self.plan: Final = plan
        self.place: Final = place
        self.low: Final = 1 << place
        self.domains: Final = domains
        self.left = pods
        self.kind: Final = one, domains, place if plan.together else -1
        axes = [*zip(plan.axes, domains, strict=True)]
        self.heeds: Final[set[tuple[Counter, int]]] = {(host, place) for host, *_ in plan.spreads}
        self.heeds.update((counter, domain) for ap, domain in axes for counter, *_ in ap.spreads)
        self.raises: Final[set[tuple[Counter, int]]] = {(host, place) for host in plan.adds}
        self.raises.update((counter, domain) for ap, domain in axes for counter in ap.adds)
        self.asks: Final = bool(
            plan.spreads
            or plan.together
            or plan.apart
            or plan.blocked
            or any(ap.spreads or ap.together or ap.apart or ap.blocked for ap in plan.axes)
        )


Existing = dict[DomainCounter, tuple[Sequence[int], int]]
"""The domains that there are, and how many of them stay."""
PlansOver = Callable[[Topology, Collection[PodClass]], Mapping[PodClass, TopologyPlan]]
"""What each of these classes asks, over other counters."""
_Waiting = list[tuple[list[tuple[Counter, int]], list[tuple[Counter, int]], int]]
"""Pods, by [what has more than max_skew where they are, by how many], [what counts them, in which domain], and how many they are."""
Stuck = tuple[PodClass, int, str]
"""(class, place, what keeps its pods from being bound there)"""


def stuck(companions: Companions, classes: Collection[PodClass], plans_over: PlansOver, most: int) -> list[Stuck]:
    """The pods of these classes that are left in the best order that was found, with every node there from the start.

    Each turn is of the first pod that may, of those that look at others before those that do not, and of either kind those last who take
    room that a spread leaves to others. Where some are left, others are the first of those who want to be together, until so many looks as
    `most` were spent, or time is over. Some are left wherever there is no order; where there is one, it may not be found.

    Cost: O(kinds of pods and domains) a pod and an order.
    """
    firsts: list[int] = []
    order = _Order(companions, classes, plans_over)
    left = order.left(firsts)
    spent = 0
    tried: set[tuple[object, ...]] = set()
    better = True
    while left and better:
        better = False
        for some in left:
            if not some.plan.bootstraps or some.kind in tried:
                continue
            if spent > most or companions.table.setting.terms.work.look():
                break
            tried.add(some.kind)
            other = _Order(companions, classes, plans_over)
            found = other.left([some.number, *firsts])
            spent += other.cost
            if len(found) < len(left):
                firsts.insert(0, some.number)
                order, left, better = other, found, True
                tried.clear()
                break
    return [
        (one.one, one.place, order.refusal(one) or Said("no order was found in which the pods can be bound"))
        for one in left
    ]


def none_waits(table: PlaceTable, plan_of: Callable[[PodClass], TopologyPlan]) -> bool:
    """Whether in no order pods are left waiting for others. Told without looking for one, so not of all of which it is true.

    A spread leaves no pod waiting where in the end no more are with it than `max_skew` above what each domain has by then at least: all that
    go there but those that another spread may leave waiting. Affinity leaves none where all friends are in one domain.
    """
    waiting: _Waiting = []
    for place, there in table.all_known():
        for part, start, end in there.placed:
            relations, low = part.ladder[-1].relations, 1 << place
            if not relations.spreads and not relations.together:
                continue
            plan = plan_of(part)
            if relations.together:
                peopled = [len(one.counts) - one.counts.count(0) for ap in plan.axes for one in ap.together]
                if peopled != [1] or plan.together or not plan.bootstraps:
                    return False
            above: list[tuple[Counter, int]] = []
            for host, skew, _, least in plan.spreads:
                if host.counts.get(place, 0) > skew:
                    above.append((host, host.counts[place] - skew if table.node_count(host) >= least else _ALWAYS))
            for ap in plan.axes:
                domain = ap.axis.domain_of(low) if ap.spreads and ap.axis.fixed & low else -1
                for one, skew, _, least in ap.spreads if domain >= 0 else ():
                    if one.counts[domain] > skew:
                        above.append((one, one.counts[domain] - skew if least <= 1 else _ALWAYS))
            if above:
                adds: list[tuple[Counter, int]] = [(host, place) for host in plan.adds if host.eligible & low]
                for ap, domain in zip(plan.axes, plan.domains_of(low), strict=True):
                    adds += [(one, domain) for one in ap.adds if domain >= 0 and one.eligible & low]
                waiting.append((above, adds, end - start))
    return not table.setting.due and _none_of(waiting, table.domains)  # daemons that are due count late


def _none_of(waiting: _Waiting, domains: int) -> bool:
    ends = {one: one.emptiest(one.eligible & domains) for above, _, _ in waiting for one, _ in above}
    known = -1
    while waiting and len(waiting) != known:
        known, least = len(waiting), ends.copy()
        missing: defaultdict[tuple[Counter, int], int] = defaultdict(int)
        for above, adds, pods in waiting:
            for key in adds:
                if key[0] in ends and any(one is not key[0] for one, _ in above):
                    missing[key] += pods
        for (one, domain), pods in missing.items():
            least[one] = min(least[one], one.counts[domain] - pods)
        waiting = [held for held in waiting if any(pods > least[one] for one, pods in held[0])]
    return not waiting


def _anti_affinity_over(key: str) -> str:
    """Of a pod there; `key` is the topology key."""
    return Said(f"required pod anti-affinity on {key} would be violated")


def spread_over(key: str) -> str:
    """What is wrong with a design: a pod at a place."""
    return Said(f"the topology spread constraint across {key} would be violated")


def _affinity_over(key: str) -> str:
    return Said(f"required pod affinity on {key} would not be met")


def domain_not_settled(key: str) -> str:
    """Likewise: the design leaves the label `key` of a new node open."""
    return Said(f"the node's {key} is not decided yet")


def fault(
    table: PlaceTable,
    plan: TopologyPlan,
    place: int,
    domains: Sequence[int],
    existing: Existing,
    mine: Callable[[Counter], int] | None = None,
) -> str:
    """What forbids a pod its place, in words; "" for nothing.

    Args:
        table: the nodes.
        plan: what the pod asks.
        place: number of its place.
        domains: where that is, by axis of the plan; -1 for nowhere.
        existing: filled as asked.
        mine: how often a counter counts the pod itself, once all are bound; None for a pod that is yet to be bound, whom others must be near.
    """
    low = 1 << place
    for host in (*plan.apart, *plan.blocked):
        if host.counts.get(place, 0) > (mine(host) if mine else 0):
            return _anti_affinity_over(host.count.key)
    for host, skew, own, least in plan.spreads:
        if mine and host.eligible != ALL and not host.eligible & low:
            return Said(f"the node is not counted by the topology spread constraint across {host.count.key}")
        lowest = host.emptiest(host.eligible & table.usable) if table.node_count(host) >= least else 0
        if host.counts.get(place, 0) + (0 if mine else own) > lowest + skew:
            return spread_over(host.count.key)
    alone = mine is not None or (plan.bootstraps and not plan.anywhere)
    for host in () if alone else plan.together:
        if not host.with_at_least(1) & low:
            return _affinity_over(host.count.key)
    for ap, domain in zip(plan.axes, domains, strict=True):
        if domain < 0:
            if mine and ap.strict:
                return domain_not_settled(ap.axis.key)
            continue
        if any(one.counts[domain] > (mine(one) if mine else 0) for one in (*ap.apart, *ap.blocked)):
            return _anti_affinity_over(ap.axis.key)
        if not alone and not all(one.counts[domain] for one in ap.together):
            return _affinity_over(ap.axis.key)
        for counter, skew, own, least in ap.spreads:
            if counter not in existing:
                existing[counter] = counter.existing(table.domains), len(counter.existing(table.usable))
            there, staying = existing[counter]
            lowest = min((counter.counts[one] for one in there), default=0) if staying >= least else 0
            if counter.counts[domain] + (0 if mine else own) > lowest + skew:
                return spread_over(ap.axis.key)
    return ""


class _Order:
    def __init__(self, companions: Companions, classes: Collection[PodClass], plans_over: PlansOver) -> None:
        self._table: Final = companions.table
        self._topology: Final = companions.table.topology.emptied()
        self._followers: Final = companions.bring_along(self._topology)
        self._existing: Final[Existing] = {}
        self._looks = 0
        alike: dict[tuple[int, Sequence[int], int], _Alike] = {}
        plans = plans_over(self._topology, classes)
        for place, one in companions.table.all_known():
            for part, start, end in one.placed:
                if part not in classes:
                    continue
                plan = plans[part]
                low = 1 << place
                domains = plan.domains_of(low)
                on_hosts = plan.spreads or plan.together or plan.apart or plan.blocked or plan.adds
                key = id(plan), domains, place if on_hosts else -1
                known = alike.get(key)
                if known is None:
                    alike[key] = _Alike(len(alike), part, plan, place, domains, end - start)
                else:
                    known.left += end - start
        self._alike: Final = [*alike.values()]

    @property
    def cost(self) -> int:
        """What it took to look for it, in looks."""
        return self._looks + len(self._alike)

    def left(self, firsts: Sequence[int]) -> list[_Alike]:
        """Those of whom pods are left once all are bound who can be; the numbered ones, one of each, before all others."""
        for number in firsts:
            if self._alike[number].left and not self.refusal(self._alike[number]):
                self._bind(self._alike[number])
        heeded = set[tuple[Counter, int]]().union(*[some.heeds for some in self._alike])
        rough = {some for some in self._alike if not heeded.isdisjoint(some.raises - some.heeds)}
        turns = [[some for some in self._alike if (some in rough, not some.asks) == turn] for turn in _TURNS]
        asking = [some for some in self._alike if some.asks]
        while (asking := [some for some in asking if some.left]) and self._looks <= _MOST_LOOKS:
            if not any(self._bound_of(turn, rough=takes) for (takes, _), turn in zip(_TURNS, turns, strict=True)):
                break
        return asking

    def _bound_of(self, turn: list[_Alike], *, rough: bool) -> bool:
        """Bind one of each that may; of those that ask nothing all, or one where they are `rough`; whether any was."""
        turn[:] = [some for some in turn if some.left]
        bound = False
        for number, some in enumerate(turn):
            if not (some.asks and self.refusal(some)):
                self._bind(some, 1 if some.asks or rough else some.left)
                bound = True
                if rough and not some.asks:
                    turn.append(turn.pop(number))
                    break
        return bound

    def refusal(self, some: _Alike) -> str:
        """What keeps one more of them from being bound now; "" for nothing."""
        self._looks += some.plan.cost
        return fault(self._table, some.plan, some.place, some.domains, self._existing)

    def _bind(self, some: _Alike, pods: int = 1) -> None:
        some.left -= pods
        for host in some.plan.adds:
            host.add(some.place, some.low, pods)
        for ap, domain in zip(some.plan.axes, some.domains, strict=True):
            for counter in ap.adds if domain >= 0 else ():
                if counter.eligible == ALL or counter.eligible & some.low:
                    counter.add(domain, pods)
        come(self._followers)
