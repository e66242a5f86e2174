"""What is left to remove after a random scale-down, with the extender's `prioritize` and without; keeps results/packing.json.

A hundred nodes are filled as a plan fills them. Then half of the pods go, at random, while a twentieth of the rest is rolled out again in each
of twenty rounds: kube-scheduler chooses their nodes by its scores (LeastAllocated, BalancedAllocation, the default spread over hosts), here as
formulas, and by the extender's own `fullness`. What consolidation could remove then is counted by first fit into nodes that stay.
"""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from extender.holds import fullness
from extender.protocol import MAX_SCORE
from provisioner.lab.devcluster.kubescheduler import PRIORITIZE_WEIGHT
from provisioner.lab.harness.results import Figure, at_least, at_most, write
from provisioner.values.resources import EMPTY, Resources

pytestmark = pytest.mark.bench

RESULTS = Path(__file__).parents[2] / "results"
NODES: Final = 100
OWNERS: Final = 60
ROUNDS: Final = 20
SEEDS: Final = range(6)
FEW_EVICTIONS: Final = 100
SIZES: Final = ((8, 32), (16, 64), (16, 128), (32, 64))  # cores, GiB
MAX_NODE_SCORE: Final = 100


def of(cores: float, gib: float) -> Resources:
    return Resources.of({"cpu": round(1000 * cores), "memory": round(gib * 2**30)})


@dataclass
class Host:
    """A node; pods by UID with their owner's number."""

    offered: Resources
    used: Resources = EMPTY
    pods: dict[int, int] = field(default_factory=dict)


class Left(NamedTuple):
    """What consolidation finds."""

    empty: int
    movable: int
    evictions: int
    removed_with_few: int


class Town:
    """See the module.

    Args:
        weight: of the extender in kube-scheduler's configuration; 0 is without it.
        seed: of all that is random.
    """

    def __init__(self, weight: int, seed: int) -> None:
        self._weight, self._rng = weight, random.Random(seed)
        rng = self._rng
        self._requests = []
        for _ in range(OWNERS):
            cores = rng.choice([0.25, 0.5, 1, 2, 4])
            self._requests.append(of(cores, cores * rng.choice([1, 2, 4, 8])))
        self.hosts = [Host(of(*rng.choice(SIZES))) for _ in range(NODES)]
        self._where: dict[int, Host] = {}
        self._made = 0
        for host in self.hosts:
            misses = 0
            while misses < 15:
                owner = rng.randrange(OWNERS)
                if self._fits(owner, host):
                    self._bind(owner, host)
                else:
                    misses += 1

    def shrink(self) -> None:
        """Half of the pods go at random, over rounds with a rollout each."""
        begun = len(self._where)
        for _ in range(ROUNDS):
            self._drop(self._rng.sample(sorted(self._where), begun // (2 * ROUNDS)))
            rolled = self._rng.sample(sorted(self._where), len(self._where) // 20)
            for owner in self._drop(rolled):
                self._schedule(owner)

    def left(self) -> Left:
        """Removes what it can, nodes with the fewest pods first."""
        empty = sum(not host.pods for host in self.hosts)
        stay = [host for host in self.hosts if host.pods]
        evicted: list[int] = []
        for host in sorted(stay, key=lambda one: len(one.pods)):
            others = [other for other in stay if other is not host]
            moved = self._moved(host, others)
            if moved is not None:
                stay = others
                evicted.append(moved)
        within = sum(sum(evicted[: n + 1]) <= FEW_EVICTIONS for n in range(len(evicted)))
        return Left(empty, len(evicted), sum(evicted), empty + within)

    def _moved(self, host: Host, others: Sequence[Host]) -> int | None:
        """How many pods were moved off the host; None where they do not fit, and nothing was moved."""
        before = [(other, other.used) for other in others]
        places = []
        for uid, owner in sorted(host.pods.items(), key=lambda pod: -self._requests[pod[1]].amount("cpu")):
            for other in sorted(others, key=lambda one: -one.used.amount("cpu") / one.offered.amount("cpu")):
                if self._fits(owner, other):
                    other.used += self._requests[owner]
                    places.append((uid, owner, other))
                    break
            else:
                for other, used in before:
                    other.used = used
                return None
        for uid, owner, other in places:
            other.pods[uid] = owner
        return len(places)

    def _fits(self, owner: int, host: Host) -> bool:
        return self._requests[owner].fits(host.offered - host.used)

    def _bind(self, owner: int, host: Host) -> None:
        self._made += 1
        host.pods[self._made] = owner
        host.used += self._requests[owner]
        self._where[self._made] = host

    def _drop(self, uids: Sequence[int]) -> list[int]:
        owners = []
        for uid in uids:
            host = self._where.pop(uid)
            owner = host.pods.pop(uid)
            host.used -= self._requests[owner]
            owners.append(owner)
        return owners

    def _schedule(self, owner: int) -> None:
        feasible = [host for host in self.hosts if self._fits(owner, host)]
        if not feasible:
            return
        beside = [sum(other == owner for other in host.pods.values()) for host in feasible]
        best = max(
            zip(feasible, beside, strict=True),
            key=lambda one: self._score(owner, one[0], one[1], beside) + self._rng.random(),
        )
        self._bind(owner, best[0])

    def _score(self, owner: int, host: Host, beside: int, all_beside: Sequence[int]) -> float:
        wanted = host.used + self._requests[owner]
        shares = [wanted.amount(name) / host.offered.amount(name) for name in ("cpu", "memory")]
        least = sum(MAX_NODE_SCORE * (1 - share) for share in shares) / 2
        balanced = MAX_NODE_SCORE * (1 - abs(shares[0] - shares[1]) / 2)
        most, fewest = max(all_beside), min(all_beside)
        spread = MAX_NODE_SCORE * (most + fewest - beside) / most if most else MAX_NODE_SCORE
        extender = fullness(host.offered, host.used, EMPTY) * MAX_NODE_SCORE / MAX_SCORE
        return least + balanced + 2 * spread + self._weight * extender


def measured(weight: int) -> list[float]:
    """The means over all seeds, in the order of `Left`."""
    found = []
    for seed in SEEDS:
        town = Town(weight, seed)
        town.shrink()
        found.append(town.left())
    return [statistics.fmean(column) for column in zip(*found, strict=True)]


def test_what_a_scale_down_leaves() -> None:
    without, with_it = measured(0), measured(PRIORITIZE_WEIGHT)
    figures = []
    for name, values, goals in (("without prioritize", without, None), ("with prioritize", with_it, without)):
        figures += [
            Figure(f"{name}: empty nodes of {NODES}", values[0], "", at_least(goals[0] + 1) if goals else None),
            Figure(f"{name}: nodes that consolidation can remove beside these", values[1], ""),
            Figure(f"{name}: evictions that this takes", values[2], "", at_most(0.7 * goals[2]) if goals else None),
            Figure(
                f"{name}: nodes removed with {FEW_EVICTIONS} evictions",
                values[3],
                "",
                at_least(1.3 * goals[3]) if goals else None,
            ),
        ]
    for weight in (1, 3, 10):
        values = measured(weight)
        figures.append(Figure(f"at weight {weight}: nodes removed with {FEW_EVICTIONS} evictions", values[3], ""))
    for figure in figures:
        print(figure.line())
    write(RESULTS, "packing", figures)
    assert with_it[3] > without[3]
    assert with_it[0] + with_it[1] >= without[0] + without[1] - 2, "no fewer nodes in the end"
