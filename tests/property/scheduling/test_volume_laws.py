"""Laws of attach limits: no plan gives a node more volumes than nodes of its kind are known to take, in whatever order its objects come."""

from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import CSINode, PersistentVolume, PersistentVolumeClaim
from provisioner.apis.pods import Pod
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.world import world_of
from provisioner.state.keys import NodeKey
from tests.support.cluster import TYPES, World, bound, claim, node, pod, pool
from tests.support.problems import shape, uses

pytestmark = pytest.mark.timeout(3600 if settings().max_examples > 1000 else 600)
KIND = "c-8x-amd64-linux"
DISK = "disk.example.com"
OWN = {names.NODEPOOL_LABEL: "general", names.INSTANCE_TYPE_LABEL: KIND}


def csi_node(name: str, counts: dict[str, int]) -> CSINode:
    drivers = [{"name": one, "nodeID": name, "allocatable": {"count": count}} for one, count in counts.items()]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": drivers}}, CSINode)


class Planner:
    """Plans pods that have a volume each, batch after batch, and makes true what was planned step by step.

    Args:
        limit: of volumes of every node; a node of the kind, which is full, says so.
        sayings: what else the CSINode of a new node says, and after how many of its steps.
        remembers: whether each batch is planned with what the one before has prepared.
    """

    def __init__(self, limit: int, sayings: Sequence[tuple[int, dict[str, int]]], *, remembers: bool) -> None:
        self.world, self._sayings, self._remembers = World(), sayings, remembers
        self._before: Prepared | None = None
        self._made = 0
        self._steps: dict[str, list[Callable[[], object]]] = {}
        self.world.cluster.pool_changed(None, pool())
        self.world.existing_node("full", planned=KIND, labels=OWN)
        self.world.add(*[bound(self._pod(), "full") for _ in range(limit)])
        self.world.cluster.csi_node_changed(None, csi_node("full", {DISK: limit}))

    def _pod(self) -> Pod:
        """A pod with a volume that is there."""
        self._made += 1
        volume, data = f"v{self._made}", f"c{self._made}"
        spec = {"csi": {"driver": DISK, "volumeHandle": volume}}
        there = msgspec.convert({"metadata": {"name": volume}, "spec": spec}, PersistentVolume)
        meta = {"name": data, "namespace": "default", "annotations": {names.BIND_COMPLETED: "yes"}}
        claimed = {"metadata": meta, "spec": {"volumeName": volume}, "status": {"phase": "Bound"}}
        asked = msgspec.convert(claimed, PersistentVolumeClaim)
        self.world.cluster.surrounding_changed(lambda keeper: keeper.volume_changed(None, there))
        self.world.cluster.surrounding_changed(lambda keeper: keeper.claim_changed(None, asked))
        return pod(f"p{self._made}", owner="", shape=shape("100m", volumes=uses(data)))

    def batch(self, count: int) -> None:
        """So many more pods wait, and are planned."""
        pods = [self._pod() for _ in range(count)]
        self.world.add(*pods)
        asked = world_of(self.world.cluster.snapshot(), lambda _: (TYPES[KIND],), frozenset(), lambda _: True)
        prepared = prepare(asked.world, self._before)
        self._before = prepared if self._remembers else None
        result = prepared.solve(pods)
        assert not result.unplaced
        for name, those in result.existing.items():
            self.world.cluster.assign(NodeKey(name), tuple(those))
        for one in result.claims:
            name = f"new{len(self._steps)}"
            made = claim(name, planned=KIND, pods=tuple(one.pods))
            self.world.cluster.claim_changed(None, made)
            self._steps[name] = self._life(name)

    def _life(self, name: str) -> list[Callable[[], object]]:
        registered = (names.LAUNCHED, names.REGISTERED)
        steps: list[Callable[[], object]] = [
            lambda: self._becomes(name, (names.LAUNCHED,)),
            lambda: self.world.cluster.node_changed(None, node(name, kind=KIND)),
            lambda: self._becomes(name, registered),
            lambda: self._becomes(name, (*registered, names.INITIALIZED)),
            lambda: self._bind(name),
        ]
        for after, counts in self._sayings:
            said = csi_node(name, counts)
            steps.insert(after, lambda said=said: self.world.cluster.csi_node_changed(None, said))  # type: ignore[misc]
        return steps

    def goes_on(self, number: int) -> None:
        """The next thing happens to one of the new nodes."""
        steps = list(self._steps.values())
        if steps and (left := steps[number % len(steps)]):
            left.pop(0)()

    def _becomes(self, name: str, true: tuple[str, ...]) -> None:
        old = self.world.view(name).claim
        assert old is not None
        notes = old.metadata.annotations
        new = claim(name, planned=KIND, provider_id=f"kwok://{name}", true=true, labels=OWN, annotations=notes)
        self.world.cluster.claim_changed(old, new)

    def _bind(self, name: str) -> None:
        for one in self.world.view(name).assigned:
            self.world.cluster.pod_changed(one, bound(one, name))

    def volumes(self) -> dict[str, int]:
        """By node, how many volumes it has or is to have."""
        nodes = self.world.cluster.snapshot().nodes
        return {one.key.name: len({each.name for each in (*one.pods, *one.assigned)}) for one in nodes}


@st.composite
def planners(draw: st.DrawFn) -> tuple[Planner, int]:
    limit = draw(st.integers(1, 3))
    said = st.sampled_from(({}, {"other.example.com": 1}, {DISK: limit}))
    sayings = draw(st.lists(st.tuples(st.integers(0, 5), said), max_size=3))
    return Planner(limit, sayings, remembers=draw(st.booleans())), limit


@given(planners(), st.lists(st.one_of(st.just(None), st.integers(0, 5)), max_size=20), st.integers(1, 3))
def test_no_node_is_planned_with_more_volumes_than_its_kind_takes(
    made: tuple[Planner, int], steps: list[int | None], size: int
) -> None:
    """A step is a batch of so many pods, or the next thing that happens to one of the new nodes."""
    planner, limit = made
    for step in (None, *steps, None):
        if step is None:
            planner.batch(size)
            assert max(planner.volumes().values()) <= limit
        else:
            planner.goes_on(step)
    total, volumes = planner._made, planner.volumes()
    assert sum(volumes.values()) == total
    assert len(volumes) == -(-total // limit) or size % limit
