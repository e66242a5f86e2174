"""Where so many nodes are broken that it is not the nodes: these are held, and not repaired. Source: Karpenter 1.15 spec 3.4."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from provisioner.apis import names
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.message import Said

SHARE: Final = Fraction(1, 5)
LEAST_NODES: Final = 5
"""A zone, image or instance type with fewer initialized nodes is never held."""
LEAST_UNHEALTHY: Final = 3
"""Likewise one with fewer unhealthy nodes."""
TIMES: Final = 3
"""Its share of unhealthy nodes must be so many times that of all other nodes."""


def _zone(node: NodeView) -> str:
    return node.labels.get(names.ZONE_LABEL, "")


def _instance_type(node: NodeView) -> str:
    return node.labels.get(names.INSTANCE_TYPE_LABEL, "")


def _image(node: NodeView) -> str:
    return node.claim.status.image_id if node.claim is not None else ""


_DOMAINS: Final[Mapping[str, Callable[[NodeView], str]]] = {
    "in zone": _zone,
    "with image": _image,
    "of instance type": _instance_type,
}


@dataclass(frozen=True, slots=True)
class RepairBreaker:
    """What is held at one instant.

    Attributes:
        pools: names of NodePools, each with why; "" stands for all nodes, and holds those without a NodePool.
        domains: likewise by the word for a zone, image or instance type, and its value.
    """

    pools: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def why(self, node: NodeView) -> str:
        """Why a broken node is not repaired, as users read it; "" where nothing is against it."""
        if (found := self.pools.get(node.pool)) is not None:
            return found
        if not self.domains:
            return ""
        mine = (self.domains.get((word, value(node)), "") for word, value in _DOMAINS.items())
        return next(filter(None, mine), "")


NOT_TRIPPED: Final = RepairBreaker()


def repair_breaker(
    snapshot: Snapshot, broken: Container[str], share: Fraction = SHARE, *, domains: bool = True
) -> RepairBreaker:
    """What has tripped at an instant; nothing is remembered.

    A NodePool trips where more of its nodes are unhealthy than this share of them, rounded up, whatever becomes of them. A zone, image or instance type
    does where that is true of its initialized nodes, at least `LEAST_UNHEALTHY` of `LEAST_NODES` or more, and `TIMES` the share of all other nodes:
    where there are no others, nothing says that it is to blame. Nodes that go for another reason are no evidence: their kubelets stop.

    Args:
        snapshot: the instant.
        broken: names of NodeClaims of unhealthy nodes, those that are tolerated for now among them.
        share: from 0 to 1.
        domains: whether zones, images and instance types are looked at. Differs: Karpenter looks at NodePools alone.

    Cost: O(nodes).
    """
    nodes = [one for one in snapshot.nodes if one.claim is not None and one.name and not one.ambiguous]
    sick = [one for one in nodes if one.key.name in broken]
    if not sick:
        return NOT_TRIPPED
    percent = f"{float(share) * 100:g}%"
    whole, unhealthy = Counter(one.pool for one in nodes), Counter(one.pool for one in sick)
    pools = {
        pool: _of_pool(percent, pool) for pool, count in unhealthy.items() if pool and count > _most(whole[pool], share)
    }
    if len(sick) > _most(len(nodes), share):
        pools[""] = _of_pool(percent, "")
    return RepairBreaker(pools, _tripped(_evidence(snapshot, nodes), broken, share, percent) if domains else {})


def _evidence(snapshot: Snapshot, nodes: Iterable[NodeView]) -> list[NodeView]:
    """Initialized nodes, without those that go for another reason than a repair."""
    repaired = {
        name
        for command in snapshot.commands
        if command.record.reason == names.REASON_UNHEALTHY
        for name in command.record.candidate_names
    }
    return [one for one in nodes if one.initialized and (not one.deleting or one.key.name in repaired)]


def _tripped(
    nodes: list[NodeView], broken: Container[str], share: Fraction, percent: str
) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    sick = [one for one in nodes if one.key.name in broken]
    for word, value in _DOMAINS.items():
        whole, unhealthy = Counter(map(value, nodes)), Counter(map(value, sick))
        for name, count in sorted(unhealthy.items()):
            inside, outside = whole[name], len(nodes) - whole[name]
            enough = inside >= LEAST_NODES and count >= LEAST_UNHEALTHY and count > _most(inside, share)
            if name and enough and outside and count * outside >= TIMES * (len(sick) - count) * inside:
                found[word, name] = _of_domain(percent, word, name)
    return found


def _most(nodes: int, share: Fraction) -> int:
    """How many of so many nodes may be unhealthy."""
    return -(-nodes * share.numerator // share.denominator)


def _of_pool(percent: str, pool: str) -> str:
    where = f'of NodePool "{pool}"' if pool else "of the cluster"
    return Said(f"More than {percent} of the nodes {where} are unhealthy")


def _of_domain(percent: str, word: str, value: str) -> str:
    return Said(
        f'More than {percent} of the nodes {word} "{value}" are unhealthy, at least {TIMES} times the share of the other nodes'
    )
