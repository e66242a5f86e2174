"""What the leader writes at every scrape: series of single nodes, pods, NodePools and conditions.

--disable-cluster-state-observability leaves them out; the metrics of the state itself stay.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from provisioner import __version__
from provisioner.apis.buffer import CapacityBuffer
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType
from provisioner.observability.conditions import condition_lines
from provisioner.observability.nodes import cost_lines, node_lines
from provisioner.observability.pods import PodTimes, state_lines
from provisioner.runtime.changes import Change, PodChanged
from provisioner.state.snapshot import Snapshot
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter, gauge, written_by

_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}

_BUILD: Final = gauge(
    "karpenter_build_info",
    "Version of the program, version of Python (in goversion) and architecture; the value is always 1.",
    ("version", "goversion", "goarch", "commit"),
)
_COST_ERRORS: Final = counter(
    "karpenter_nodepools_cost_tracker_errors_total",
    "Nodes that were left out of the price of their NodePool because their own price is unknown.",
)


def announce_build(commit: str = "") -> None:
    """Set karpenter_build_info; once a process. `commit` is "" where the image does not say."""
    machine = _MACHINES.get(platform.machine(), platform.machine())
    _BUILD.labels(__version__, f"python{platform.python_version()}", machine, commit).set(1)


class MetricsObserver:
    """The series of single objects, for as long as this process leads.

    Args:
        snapshot: the state at this instant.
        nodes: every Node that the caches hold.
        pods: every pod that the caches hold.
        claims, pools: likewise.
        types_of: instance types of a NodePool, by name.
        well_known: the provider's well-known labels; they become labels of the node families.
        buffers: every CapacityBuffer that the caches hold.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        nodes: Callable[[], Iterable[Node]],
        pods: Callable[[], Iterable[Pod]],
        claims: Callable[[], Iterable[NodeClaim]],
        pools: Callable[[], Iterable[NodePool]],
        types_of: Callable[[str], Mapping[str, InstanceType]],
        well_known: frozenset[str],
        clock: Clock,
        *,
        buffers: Callable[[], Iterable[CapacityBuffer]] = lambda: (),
    ) -> None:
        self._buffers = buffers
        self._snapshot, self._nodes, self._pods = snapshot, nodes, pods
        self._claims, self._pools, self._types_of = claims, pools, types_of
        self._well_known, self._clock = well_known, clock
        self.times: Final = PodTimes(clock)
        self._unpriced: frozenset[str] = frozenset()
        self._remove: Callable[[], None] | None = None

    def start(self) -> None:
        """Write from the next scrape on."""
        self._remove = written_by(self._lines)

    def stop(self) -> None:
        """Write no more."""
        if self._remove is not None:
            self._remove()

    def heard(self, change: Change) -> None:
        """One event of a watch."""
        match change:
            case PodChanged(old=old, new=new):
                self.times.heard(old, new)
            case _:
                return

    def _lines(self) -> Iterator[str]:
        snapshot, now = self._snapshot(), self._clock.now()
        nodes = {node.metadata.name: node for node in self._nodes()}
        yield from node_lines(snapshot.nodes, nodes.get, self._well_known, now)
        costs, unpriced = cost_lines(
            snapshot.nodes, [view.pool.metadata.name for view in snapshot.pools], self._types_of
        )
        _COST_ERRORS.inc(len(unpriced - self._unpriced))
        self._unpriced = unpriced
        yield from costs
        yield from condition_lines([*self._claims(), *self._pools(), *nodes.values(), *self._buffers()], now)
        pods = list(self._pods())
        yield from self.times.lines(pods)
        views = {view.name: view for view in snapshot.nodes if view.name}
        yield from state_lines(pods, views.get)
