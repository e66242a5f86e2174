"""What pods cost at the least, and so what a move can save at the most.

Rates are prices per resource at which no instance type is worth more than it costs: pods at these rates cost no more than they do on any
nodes whatever, so what a node costs above its pods is the most that can be saved by giving them other new nodes.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.apis import names
from provisioner.apis.pods import Pod, is_daemon, is_mirror
from provisioner.cloudprovider.types import InstanceType, cheapest_offering
from provisioner.disruption import costs
from provisioner.disruption.candidates import CandidateTypes
from provisioner.disruption.view import DisruptionView
from provisioner.scheduling.prepared import Prepared, derived
from provisioner.values.resources import PLENTIFUL, Resources

_ANGLES: Final = 33
_MOST_PAIRED: Final = 128
"""Kinds of nodes of which every two are looked at together."""
_Point = tuple[int, int]
"""CPU in thousandths, memory in bytes."""
_Step = tuple[float, int, int]
"""USD per hour, and as much CPU and memory at the most."""


@dataclass(frozen=True, slots=True)
class UnitRate:
    """Prices per resource, USD per hour: for a thousandth of a CPU, and for a byte of memory."""

    cpu: float = 0.0
    memory: float = 0.0

    def of(self, amounts: Resources) -> float:
        """What so much is worth, USD per hour."""
        return self.of_size(_size(amounts))

    def of_size(self, size: _Point) -> float:
        """Likewise."""
        return self.cpu * size[0] + self.memory * size[1]


@dataclass(frozen=True, slots=True)
class Rates:
    """Price bounds that hold for every set of new nodes.

    Attributes:
        pairs: each is a bound of its own.
        cheapest: (USD per hour, most CPU, most memory) of the types, cheapest first, only those that hold more than all before them in
            something.
        extended: USD per hour for each unit of every other resource; a bound of its own, too.
        twos: as `cheapest`, of any two nodes together; None where there are too many kinds to pair them all.
    """

    pairs: tuple[UnitRate, ...]
    cheapest: tuple[_Step, ...]
    extended: Mapping[str, float] = field(default_factory=dict)
    twos: tuple[_Step, ...] | None = None

    @classmethod
    def in_world(cls, prepared: Prepared) -> "Rates":
        """Of what the NodePools of a world can buy; made once while their instance types stay the same objects."""
        return derived(prepared, "rates", lambda pools: cls.of(kind for pool in pools for kind in pool.instance_types))

    @classmethod
    def of(cls, types: Iterable[InstanceType]) -> "Rates":
        """Of all that can be bought now. Cost: O(types), and a few dozen multiplications each."""
        priced: dict[tuple[int, int], float] = {}
        extended: dict[str, float] = {}
        for one in types:
            offering = cheapest_offering(one)
            if offering is None:
                continue
            size, price = _size(one.allocatable), max(0.0, offering.price)
            priced[size] = min(priced.get(size, math.inf), price)
            for name, amount in one.allocatable.items():
                if name not in PLENTIFUL and amount > 0:
                    extended[name] = min(extended.get(name, math.inf), price / amount)
        cheapest = _staircase((price, *size) for size, price in priced.items())
        return cls(_pairs(priced), cheapest, extended, _twos(cheapest))

    def at_least(self, pods: Sequence[Pod], most: int | None = None) -> float:
        """USD per hour that new nodes for these pods cost, whatever they are; infinity where nothing holds one of them.

        Args:
            pods: any.
            most: how many new nodes there may be; None for any number. Of one or two the least price is known, not only a rate.
        """
        if not pods:
            return 0.0
        sizes = [_size(pod.shape.requests) for pod in pods]
        whole = _sum(sizes)
        together = max(
            (rate.of_size(whole) for rate in self.pairs), default=0.0
        )  # without any, all is free, or nothing is there
        if most == 1:
            together = max(together, _first(self.cheapest, whole))
        elif most == 2 and self.twos is not None:
            together = max(together, min(_first(self.cheapest, whole), _first(self.twos, whole)))
        return max(together, *(_first(self.cheapest, size) for size in set(sizes)))

    def of_extended(self, asked: Resources) -> float:
        """The least for what pods ask for besides CPU and memory, USD per hour; infinity where no type has some of it."""
        wanted = ((name, amount) for name, amount in asked.items() if name not in PLENTIFUL and amount > 0)
        return max((self.extended.get(name, math.inf) * amount for name, amount in wanted), default=0.0)

    def for_load(self, asked: Iterable[Resources]) -> UnitRate:
        """The prices by which pods that ask for so much cost most together."""
        whole = _sum([_size(one) for one in asked])
        return max(self.pairs, key=lambda rate: rate.of_size(whole), default=UnitRate())


def potential_usd_per_hour(view: DisruptionView) -> float:
    """What all nodes of ours together cost above the least that their pods can cost; the proved most that consolidation could save.

    0 where nothing can be said. Cost: O(pods).
    """
    if view.prepared is None:
        return 0.0
    kinds = CandidateTypes(view)
    rates = Rates.in_world(view.prepared)
    spent, pods = 0.0, []
    for node in view.snapshot.nodes:
        kind = kinds.of(node)
        if node.claim is None or kind is None:
            continue
        spent += costs.price_of(node.labels, kind)
        pods += [pod for pod in node.pods if not (is_daemon(pod) or is_mirror(pod))]
    least = rates.at_least(pods)
    return max(0.0, spent - least) if math.isfinite(least) else 0.0


def _size(amounts: Resources) -> _Point:
    return amounts.amount(names.CPU), amounts.amount(names.MEMORY)


def _sum(sizes: Sequence[_Point]) -> _Point:
    return sum(size[0] for size in sizes), sum(size[1] for size in sizes)


def _pairs(priced: dict[_Point, float]) -> tuple[UnitRate, ...]:
    """For each of some directions, the largest rates at which no type is worth more than its price."""
    sizes = [(cpu, memory, price) for (cpu, memory), price in priced.items() if cpu > 0 or memory > 0]
    if not sizes:
        return ()
    scale_cpu = max(1, *(cpu for cpu, _, _ in sizes))
    scale_memory = max(1, *(memory for _, memory, _ in sizes))
    found = []
    for step in range(_ANGLES):
        angle = step / (_ANGLES - 1) * math.pi / 2
        a, b = math.cos(angle) / scale_cpu, math.sin(angle) / scale_memory
        worth = [(a * cpu + b * memory, price) for cpu, memory, price in sizes]
        rate = min((price / value for value, price in worth if value > 1e-12), default=0.0)
        if rate > 0:
            found.append(UnitRate(a * rate, b * rate))
    return tuple(found)


def _staircase(priced: Iterable[_Step]) -> tuple[_Step, ...]:
    """Those that hold more than all that cost less in something, cheapest first. Cost: O(n log n), as a rule."""
    steps: list[_Step] = []
    cpus: list[int] = []  # of those that no other holds as much as, ascending, so that their memory descends
    memories: list[int] = []
    for price, cpu, memory in sorted(priced):
        at = bisect.bisect_left(cpus, cpu)
        if at < len(cpus) and memories[at] >= memory:
            continue
        high = low = bisect.bisect_right(cpus, cpu)
        while low and memories[low - 1] <= memory:
            low -= 1
        cpus[low:high], memories[low:high] = [cpu], [memory]
        steps.append((price, cpu, memory))
    return tuple(steps)


def _twos(ones: Sequence[_Step]) -> tuple[_Step, ...] | None:
    """What any two of these hold together."""
    if len(ones) > _MOST_PAIRED:
        return None
    both = itertools.combinations_with_replacement(ones, 2)
    return _staircase((one[0] + two[0], one[1] + two[1], one[2] + two[2]) for one, two in both)


def _first(steps: Iterable[_Step], size: _Point) -> float:
    """The price of the first that holds so much; infinity where none does."""
    return next((price for price, cpu, memory in steps if cpu >= size[0] and memory >= size[1]), math.inf)
