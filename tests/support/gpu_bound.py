"""A bound for fleets with few, whole GPUs, of which the product's rates say little: an integer program, too slow for the product.

Each way to put pods with GPUs onto a node of a type is a column, and nodes are bought whole; all other pods are one sum of cpu, memory
and number, that fills what is left of these nodes and fractions of others. What the solver proves of that holds for every fleet.
"""

from collections.abc import Sequence
from typing import Final

import highspy
import numpy as np
from numpy.typing import NDArray

from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType
from provisioner.packing.dual_prices import quiet
from provisioner.values.resources import Resources
from tests.support.priced_fleets import DAEMONS, GPU

_NAMES: Final = ("cpu", "memory", "pods", GPU)
_WIDTH: Final = 3  # without GPUs
_SECONDS: Final = 20.0
_GAP: Final = 0.002
Matrix = NDArray[np.float64]


def usd_at_least(types: Sequence[InstanceType], pods: Sequence[Pod]) -> float:
    """No fleet for these pods costs less, in USD per hour, as far as doubles go."""
    needs = np.array([_amounts(pod.shape.requests) for pod in pods])
    whole = needs[:, _WIDTH] > 0
    kinds, counts = np.unique(needs[whole], axis=0, return_counts=True)
    daemons = np.array([_amounts(one.requests) for one in DAEMONS]).sum(0)
    rooms = np.array([_amounts(one.allocatable) for one in types]) - daemons
    prices = np.array([min(offering.price for offering in one.offerings) for one in types])
    unit = np.maximum(rooms.max(0), 1)
    kinds, rest, rooms = kinds / unit, needs[~whole].sum(0) / unit, rooms / unit
    solver = quiet()
    solver.setOptionValue("time_limit", _SECONDS)
    solver.setOptionValue("mip_rel_gap", _GAP)
    low = np.concatenate([rest[:_WIDTH], counts.astype(float)])
    endless = highspy.kHighsInf
    none = np.zeros(0, np.int32)
    solver.addRows(len(low), low, np.full(len(low), endless), 0, np.zeros(len(low), np.int32), none, np.zeros(0))
    columns = 0
    for room, price in zip(rooms, prices.tolist(), strict=True):
        if ((prices < price) & (rooms >= room).all(1)).any():
            continue  # another type has all of it for less
        for way in _ways(room, kinds, counts):
            column = np.concatenate([np.maximum(0, room[:_WIDTH] - way @ kinds[:, :_WIDTH]), way])
            (used,) = np.nonzero(column)
            solver.addCol(price, 0, endless, len(used), used.astype(np.int32), column[used])
            if way.any():
                solver.changeColIntegrality(columns, highspy.HighsVarType.kInteger)
            columns += 1
    solver.run()
    return float(solver.getInfo().mip_dual_bound)


def _amounts(some: Resources) -> list[float]:
    return [float(some.amount(name)) for name in _NAMES]


def _ways(room: Matrix, kinds: Matrix, counts: NDArray[np.int64]) -> Matrix:
    """Every number of pods of each kind that fits, one row each."""
    found = [[0] * len(kinds)]
    if room[_WIDTH] > 0:
        for kind, need in enumerate(kinds):
            more = []
            for load in found:
                left = room - np.array(load) @ kinds + 1e-9
                for number in range(1, int(counts[kind]) + 1):
                    if (need * number > left).any():
                        break
                    more.append([*load[:kind], number, *load[kind + 1 :]])
            found += more
    return np.array(found, dtype=float)
