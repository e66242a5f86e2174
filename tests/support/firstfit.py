"""First fit by decreasing size in the way of Karpenter, for comparison: the emptiest node first, by pods; price is looked at last.

A node takes pods as long as one type holds them all, and becomes the cheapest type that does.
Source: karpenter `pkg/controllers/provisioning/scheduling` at 226646810: queue by cpu, then memory; claims by number of pods.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from provisioner.cloudprovider.types import InstanceType
from tests.support.priced_fleets import DAEMONS, ZONES, Deployment

_NAMES = ("cpu", "memory", "pods")
_MIB = 2**20


def usd_per_hour(types: Sequence[InstanceType], workload: Iterable[Deployment]) -> float:
    """What the nodes cost; Deployments that are spread over zones are dealt to them evenly."""
    taken = [sum(one.requests.amount(name) for one in DAEMONS) for name in _NAMES]
    room = np.array(
        [[one.allocatable.amount(n) - t for n, t in zip(_NAMES, taken, strict=True)] for one in types], float
    )
    prices = np.array([one.offerings[0].price for one in types])
    front = room[[not ((room >= own).all(1) & (room > own).any(1)).any() for own in room]]
    used = np.zeros((0, 3))
    zones: list[int] = []
    owners: list[set[int]] = []
    for number, one in sorted(enumerate(workload), key=lambda entry: (-entry[1].cpu, -entry[1].memory)):
        need = np.array([one.cpu, one.memory * _MIB, 1.0])
        for turn in range(one.replicas):
            zone = (turn + number) % len(ZONES) if one.zonal else -1
            used = _placed(used, front, need, zones, zone, owners, number if one.apart else -1)
    order = np.argsort(prices, kind="stable")
    return float(sum(prices[order[(room[order] >= own).all(1).argmax()]] for own in used))


def _placed(
    used: NDArray[np.float64],
    front: NDArray[np.float64],
    need: NDArray[np.float64],
    zones: list[int],
    zone: int,
    owners: list[set[int]],
    owner: int,
) -> NDArray[np.float64]:
    for node in np.argsort(used[:, 2], kind="stable").tolist():
        if zone >= 0 and zones[node] not in (-1, zone):
            continue
        if owner >= 0 and owner in owners[node]:
            continue
        if (front >= used[node] + need).all(1).any():
            used[node] += need
            break
    else:
        used = np.vstack([used, need])
        zones.append(-1)
        owners.append(set())
        node = len(used) - 1
    if zone >= 0:
        zones[node] = zone
    if owner >= 0:
        owners[node].add(owner)
    return used
