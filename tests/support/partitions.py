"""The cheapest nodes for a few pods by trying everything: all partitions, each node of any type and pool, judged by scheduling as a whole."""

from collections.abc import Iterator, Sequence

from provisioner.apis.pods import Pod
from provisioner.scheduling.improvement.acceptance import weighed
from provisioner.scheduling.judging import Design, DesignedNode
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import SchedulingPool
from provisioner.values.resources import EMPTY


def partitions(pods: Sequence[Pod]) -> Iterator[list[list[Pod]]]:
    """Every way to part pods into groups; equal pods are told apart."""
    if not pods:
        yield []
        return
    first, *rest = pods
    for groups in partitions(rest):
        yield [[first], *groups]
        for number, group in enumerate(groups):
            yield [*groups[:number], [first, *group], *groups[number + 1 :]]


def usd_of_groups(
    prepared: Prepared, pods: Sequence[Pod], pools: Sequence[SchedulingPool], *, spot: bool = False
) -> float:
    """The least price of legal nodes for these pods with the NodePools' penalties, where pods ask for resources, instance types' labels and hosts alone.

    `spot`: a node is priced as scheduling prices it by itself, since what spot costs is expected of several instance types.
    """
    best = float("inf")
    known: dict[tuple[str, ...], tuple[float, DesignedNode | None]] = {}
    for groups in partitions(pods):
        for group in groups:
            key = tuple(pod.uid for pod in group)
            if key not in known:
                known[key] = _expected(prepared, group, pools) if spot else _cheapest(group, pools)
        nodes = [known[tuple(pod.uid for pod in group)] for group in groups]
        usd = sum(price for price, _ in nodes)
        if usd < best - 1e-9:
            design = Design(tuple(node for _, node in nodes if node is not None))
            if prepared.settle(design)[0].legal:
                best = usd
    return best


def _expected(
    prepared: Prepared, group: Sequence[Pod], pools: Sequence[SchedulingPool]
) -> tuple[float, DesignedNode | None]:
    best: tuple[float, DesignedNode | None] = float("inf"), None
    for pool in pools:
        _, node = _cheapest(group, (pool,))
        claims = prepared.settle(Design((node,)))[1] if node is not None else ()
        if claims and weighed(prepared, claims) < best[0]:
            best = weighed(prepared, claims), node
    return best


def _cheapest(group: Sequence[Pod], pools: Sequence[SchedulingPool]) -> tuple[float, DesignedNode | None]:
    wanted = EMPTY
    for pod in group:
        wanted += pod.shape.requests
    found = [
        (one.price + pool.node_penalty, pool.name, kind.name, one.zone, one.capacity_type)
        for pool in pools
        for kind in pool.instance_types
        if all(kind.allocatable.amount(name) >= amount for name, amount in wanted.items())
        and len(group) <= kind.allocatable.amount("pods")
        and all(
            kind.requirements.requirement(key).admits(value)
            for pod in group
            for key, value in pod.shape.node_selector.items()
        )
        for one in kind.offerings
        if one.available
    ]
    if not found:
        return float("inf"), None
    price, pool_name, kind_name, _, _ = min(found)
    return price, DesignedNode(pool_name, kind_name, "", "", tuple(group))
