"""First fit by decreasing size in the way of Karpenter, for comparison: the emptiest node first, by pods; price is looked at last.

A node takes pods as long as one type holds them all, and becomes the cheapest type that does. Nodes that there are take pods before
others are made, in their order.
Source: karpenter `pkg/controllers/provisioning/scheduling` at 226646810: queue by cpu, then memory; claims by number of pods.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from provisioner.apis import names
from provisioner.cloudprovider.types import InstanceType, expected_price
from tests.support.priced_fleets import DAEMONS, GPU, ZONES, Deployment

Matrix = NDArray[np.float64]
_NAMES: Final = ("cpu", "memory", "pods", GPU)
_PODS: Final = _NAMES.index("pods")
_MIB: Final = 2**20


def usd_per_hour(types: Sequence[InstanceType], workload: Iterable[Deployment]) -> float:
    """What the nodes are expected to cost; Deployments that are spread over zones are dealt to them evenly."""
    fleet = FirstFit(types)
    fleet.place(workload)
    return fleet.usd_per_hour


@dataclass
class _Node:
    """A node, with the only architecture that its pods leave ("" for any), its zone, and of each Deployment its pods."""

    used: Matrix
    arch: str = ""
    zone: int = -1
    owners: Counter[int] = field(default_factory=Counter)
    row: int = -1  # of the instance type, once it is launched


class FirstFit:
    """A fleet that grows batch by batch."""

    def __init__(self, types: Sequence[InstanceType]) -> None:
        """`types`: of one NodePool that has no limits."""
        taken = [sum(one.requests.amount(name) for one in DAEMONS) for name in _NAMES]
        priced = sorted(types, key=lambda one: one.offerings[0].price)
        rooms = [[one.allocatable.amount(n) - t for n, t in zip(_NAMES, taken, strict=True)] for one in priced]
        self._rooms: Final = np.array(rooms, float)
        self._offerings: Final = [one.offerings[0] for one in priced]
        arch = np.array([one.requirements.requirement(names.ARCH_LABEL).single_value for one in priced])
        self._of: Final = {name: (arch == name) | (name == "") for name in ("", *set(arch.tolist()))}
        self._fronts: Final = {name: _front(self._rooms[rows]) for name, rows in self._of.items()}
        self.launched: Final[list[_Node]] = []
        self.usd_per_hour = 0.0

    def place(self, workload: Iterable[Deployment]) -> None:
        """One batch, and what is made for it launched; pods that no type holds are left. A Deployment is known by its place in every batch."""
        new: list[_Node] = []
        for number, one in sorted(enumerate(workload), key=lambda entry: (-entry[1].cpu, -entry[1].memory)):
            need = np.array([one.cpu, one.memory * _MIB, 1.0, one.gpus])
            if not (self._fronts.get(one.arch, self._rooms[:0]) >= need).all(1).any():
                continue
            most = 1 if one.apart else one.skew
            places = [*self.launched, *new]
            for turn in range(one.replicas):
                zone = (turn + number) % len(ZONES) if one.zonal else -1
                node = self._first(places, need, one.arch, zone, number, most)
                if node is None:
                    node = _Node(np.zeros(len(_NAMES)))
                    new.append(node)
                    places.append(node)
                node.used += need
                node.arch = node.arch or one.arch
                node.zone = max(node.zone, zone)
                node.owners[number] += 1
        for node in new:
            rows = np.flatnonzero(self._of[node.arch] & (self._rooms >= node.used).all(1)).tolist()
            node.row, node.zone = rows[0], node.zone if node.zone >= 0 else len(self.launched) % len(ZONES)
            self.usd_per_hour += expected_price([self._offerings[row] for row in rows])
            self.launched.append(node)

    def _first(self, places: list[_Node], need: Matrix, arch: str, zone: int, owner: int, most: int) -> _Node | None:
        """The first of the nodes that takes such a pod; those that are too small, for the next one like it, too, are left out of the list."""
        small = set[int]()
        found = None
        for node in sorted(places, key=lambda one: -1 if one.row >= 0 else one.used[_PODS]):
            if (zone >= 0 and node.zone not in (-1, zone)) or (most and node.owners[owner] >= most):
                continue
            if self._holds(node, need, arch):
                found = node
                break
            small.add(id(node))
        if small:
            places[:] = [one for one in places if id(one) not in small]
        return found

    def _holds(self, node: _Node, need: Matrix, arch: str) -> bool:
        if node.row >= 0:
            return bool((not arch or self._of[arch][node.row]) and (self._rooms[node.row] >= node.used + need).all())
        if arch and node.arch not in ("", arch):
            return False
        return bool((self._fronts[arch or node.arch] >= node.used + need).all(1).any())


def _front(rooms: Matrix) -> Matrix:
    """Those that no other one has the room of."""
    return rooms[[not ((rooms >= own).all(1) & (rooms > own).any(1)).any() for own in rooms]]
