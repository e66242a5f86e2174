"""A history of a made-up cluster: streams of changes, and what they come to."""

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.pods import Pod
from provisioner.history.entries import AnyHistoryEntry, PodsArrived, PodsBound, PodsEnded, PodsStanding
from provisioner.history.keeper import HistoryBounds, HistoryKeeper, HistorySources, MemorySegments
from provisioner.history.segments import read_segment
from provisioner.runtime.changes import NodeChanged, NodeClaimChanged, NodePoolChanged, PodChanged
from tests.support.clock import FakeClock
from tests.support.cluster import claim, node, pod, pool
from tests.support.problems import shape

NODES = tuple(f"node-{number}" for number in range(4))
SHAPES = tuple(shape(cpu=str(1 + number), labels={"app": f"app-{number}"}) for number in range(3))

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("add", "bind", "succeed", "delete", "node", "no-node", "claim", "no-claim", "pool", "wait")),
        st.integers(0, 11),
        st.integers(0, 3),
    ),
    max_size=80,
)


class RecordedCluster:
    """Objects that change, and whoever keeps their history."""

    def __init__(self, bounds: HistoryBounds | None = None, **given: Any) -> None:
        self.clock = FakeClock()
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.claims: dict[str, NodeClaim] = {}
        self.pools: dict[str, NodePool] = {}
        self.sources = HistorySources(
            lambda: tuple(self.pods.values()),
            lambda: tuple(self.nodes.values()),
            lambda: tuple(self.claims.values()),
            lambda: tuple(self.pools.values()),
            lambda labels, _: float(labels.get("price", "0")),
        )
        self.bounds = bounds or HistoryBounds(3600.0, 1 << 20)
        self.store = MemorySegments(self.bounds)
        self.keeper = HistoryKeeper(
            self.sources, self.store, self.bounds, self.clock, **{"source": "leader", "changed": None, **given}
        )
        self._number = 0

    def step(self, what: str, number: int, other: int) -> None:
        """One change; where it makes no sense, none."""
        name = f"pod-{number}"
        known = self.pods.get(name)
        match what:
            case "add" if known is None:
                self._number += 1
                self.put_pod(pod(name, uid=f"{name}/{self._number}", shape=SHAPES[other % 3], created=self.clock.now()))
            case "bind" if known is not None and not known.node_name:
                self.put_pod(msgspec.structs.replace(known, node_name=NODES[other]))
            case "succeed" if known is not None:
                self.put_pod(msgspec.structs.replace(known, phase="Succeeded"))
            case "delete" if known is not None:
                del self.pods[name]
                self.keeper.heard(PodChanged(known, None))
            case "node":
                self.put_node(node(NODES[other], labels={"price": str(number)}))
            case "no-node" if (gone := self.nodes.pop(NODES[other], None)) is not None:
                self.keeper.heard(NodeChanged(gone, None))
            case "claim":
                self.put_claim(claim(f"claim-{other}", true=("Launched", "Registered")[: number % 3]))
            case "no-claim" if (without := self.claims.pop(f"claim-{other}", None)) is not None:
                self.keeper.heard(NodeClaimChanged(without, None))
            case "pool":
                self.put_pool(pool(f"pool-{other}", weight=number + 1))
            case "wait":
                self.clock.advance(10.0 ** (other - 1))
                self.keeper.flush()
            case _:
                pass

    def put_pod(self, one: Pod) -> None:
        old, self.pods[one.name] = self.pods.get(one.name), one
        self.keeper.heard(PodChanged(old, one))

    def put_node(self, one: Node) -> None:
        old, self.nodes[one.metadata.name] = self.nodes.get(one.metadata.name), one
        self.keeper.heard(NodeChanged(old, one))

    def put_claim(self, one: NodeClaim) -> None:
        old, self.claims[one.name] = self.claims.get(one.name), one
        self.keeper.heard(NodeClaimChanged(old, one))

    def put_pool(self, one: NodePool) -> None:
        old, self.pools[one.name] = self.pools.get(one.name), one
        self.keeper.heard(NodePoolChanged(old, one))

    def segments(self) -> list[bytes]:
        return [*self.store.segments(), self.keeper.open_segment()]

    def standing(self) -> dict[tuple[str, str], int]:
        """How many pods of each class are on each node now, by key of the shape and name."""
        counts: dict[tuple[str, str], int] = {}
        for one in self.pods.values():
            if one.phase != "Succeeded":
                key = one.shape.key, one.node_name
                counts[key] = counts.get(key, 0) + 1
        return counts


def entries_of(segments: list[bytes]) -> Iterator[tuple[float, AnyHistoryEntry]]:
    """Everything in them, openings included."""
    for data in segments:
        found = read_segment(data)
        yield from ((found.head.began, one) for one in found.opening)
        yield from found


def replayed(data: bytes) -> dict[tuple[int, int], int]:
    """Pods by numbers of class and node, as one segment alone tells that they stand at its end."""
    counts: dict[tuple[int, int], int] = {}

    def add(key: tuple[int, int], count: int) -> None:
        counts[key] = counts.get(key, 0) + count

    for _, one in entries_of([data]):
        match one:
            case PodsStanding():
                add((one.pod_class, one.node), one.count)
            case PodsArrived():
                add((one.pod_class, 0), one.count)
            case PodsBound():
                add((one.pod_class, 0), -len(one.waited_ms))
                add((one.pod_class, one.node), len(one.waited_ms))
            case PodsEnded():
                add((one.pod_class, one.node), -len(one.seconds))
            case _:
                pass
    return {key: count for key, count in counts.items() if count}
