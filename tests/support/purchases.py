"""The cheapest purchase for one batch by trying everything: every way to share pods among the nodes that there are and new ones. For plain pods of few kinds."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType
from provisioner.state.snapshot import NodeView

_Load = tuple[int, ...]
"""Of each kind, how many pods."""


def least_usd(nodes: Iterable[NodeView], pods: Sequence[Pod], types: Mapping[InstanceType, float]) -> float:
    """The least that the new nodes for a batch cost, where pods that run stay where they are, and these ask for nothing but resources.

    Args:
        nodes: with room.
        types: what a node of each costs.

    Cost: for each node, the square of the ways to leave out some of the pods.
    """
    kinds: dict[str, list[Pod]] = {}
    for pod in pods:
        kinds.setdefault(pod.shape.key, []).append(pod)
    needs = [some[0].shape.requests for some in kinds.values()]
    priced = sorted(types.items(), key=lambda entry: entry[1])

    def fits(load: _Load, room: Mapping[str, int]) -> bool:
        return all(
            sum(count * need.amount(name) for count, need in zip(load, needs, strict=True)) <= most
            for name, most in room.items()
        )

    @functools.cache
    def of_one(load: _Load) -> float:
        return next((usd for kind, usd in priced if fits(load, kind.allocatable)), float("inf"))

    @functools.cache
    def of_all(load: _Load) -> float:
        if not any(load):
            return 0.0
        first = next(number for number, count in enumerate(load) if count)
        return min(of_one(part) + of_all(_less(load, part)) for part in _parts(load) if part[first])

    left = {tuple(map(len, kinds.values()))}
    for node in nodes:
        left = {_less(load, part) for load in left for part in _parts(load) if not any(part) or fits(part, node.room)}
    return min(map(of_all, left))


def _parts(load: _Load) -> Iterator[_Load]:
    return itertools.product(*[range(count + 1) for count in load])


def _less(load: _Load, part: _Load) -> _Load:
    return tuple([count - own for count, own in zip(load, part, strict=True)])
