"""What comes and goes on a fleet that was bought already: nodes that leave, when they are gone, and how many pods stay up meanwhile."""

import threading
from collections.abc import Iterable

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.pods import Pod, is_daemon

ROUND_SECONDS = 5.0


class Turnover:
    """Fed with watch events; moments are on the caller's monotonic clock, in seconds. Thread-safe.

    A node leaves from the taint `karpenter.sh/disrupted` or its deletion on, whichever is seen first. A pod is up while it is Ready, has a node and
    is not being deleted: less than a PodDisruptionBudget counts as healthy, never more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: set[str] = set()
        self._began: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        self._up: dict[str, dict[str, float]] = {}  # namespace -> uid -> since when
        self._least: dict[str, int] = {}
        self._nodes_of: dict[str, str] = {}  # uid -> node, of pods of workloads that are not gone
        self._left: dict[str, float] = {}  # node -> when a pod of a workload left it last

    def saw_node(self, node: Node, now: float, *, deleted: bool = False) -> None:
        """A Node as it is at a moment; `deleted` when this is its last state."""
        name = node.metadata.name
        tainted = any(taint.key == names.DISRUPTED_TAINT.key for taint in node.spec.taints)
        with self._lock:
            self._there.add(name)
            if deleted:
                self._there.discard(name)
                self._began.setdefault(name, now)
                self._gone[name] = now
            elif tainted or node.metadata.deletion_timestamp is not None:
                self._began.setdefault(name, now)
            elif name not in self._gone:
                self._began.pop(name, None)  # its command was called off

    def saw_pod(self, pod: Pod, now: float, *, deleted: bool = False) -> None:
        """A pod as it is at a moment; `deleted` when this is its last state."""
        if is_daemon(pod):
            return
        with self._lock:
            up = self._up.setdefault(pod.namespace, {})
            if pod.ready and pod.node_name and pod.deleted is None and not deleted:
                up.setdefault(pod.uid, now)
            elif up.pop(pod.uid, None) is not None and pod.namespace in self._least:
                self._least[pod.namespace] = min(self._least[pod.namespace], len(up))
            if deleted:
                node = self._nodes_of.pop(pod.uid, pod.node_name)
                if node:
                    self._left[node] = now
            elif pod.node_name:
                self._nodes_of[pod.uid] = pod.node_name

    def up(self, namespace: str) -> dict[str, float]:
        """Since when each pod of a namespace has been up, by uid."""
        with self._lock:
            return dict(self._up.get(namespace, {}))

    def note_least(self, namespace: str) -> None:
        """From now on remember the fewest pods of this namespace that were up at a time."""
        with self._lock:
            self._least[namespace] = len(self._up.get(namespace, {}))

    def least(self, namespace: str) -> int:
        """The fewest since `note_least`."""
        with self._lock:
            return self._least[namespace]

    def nodes(self) -> frozenset[str]:
        """Names of the nodes that are there, leaving or not."""
        with self._lock:
            return frozenset(self._there)

    def leaving(self) -> int:
        """Nodes that leave at the moment."""
        with self._lock:
            return len(self._began.keys() - self._gone.keys())

    def began(self) -> dict[str, float]:
        """When each node that leaves, or is gone, was first seen to leave."""
        with self._lock:
            return dict(self._began)

    def gone(self) -> dict[str, float]:
        """When each node was gone."""
        with self._lock:
            return dict(self._gone)

    def emptied(self) -> dict[str, float]:
        """When a pod of a workload last left each node."""
        with self._lock:
            return dict(self._left)

    def last(self) -> float | None:
        """When a node began or ended to leave last; None where none did."""
        with self._lock:
            return max((*self._began.values(), *self._gone.values()), default=None)


def rounds(moments: Iterable[float]) -> int:
    """How many groups there are with more than `ROUND_SECONDS` between them."""
    ordered = sorted(moments)
    return sum(
        1
        for before, one in zip([None, *ordered], ordered, strict=False)
        if before is None or one - before > ROUND_SECONDS
    )
