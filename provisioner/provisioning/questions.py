"""What one run of provisioning is asked about, in which order, and what comes after all others. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from provisioner.apis.gangs import group_of
from provisioner.apis.pods import Pod
from provisioner.requests.bookings import RequestsAsked
from provisioner.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class BatchQuestion:
    """What one run plans.

    Attributes:
        id: of the run, in logs.
        snapshot: the instant.
        pods: real ones; see `pods_of`.
        buffers: virtual pods of CapacityBuffers.
        requests: what is asked for ProvisioningRequests.
        first: UIDs of the pods whose nodes are created before others.
        last: groups that failed in the last run; they are asked about after all others of their priority, in this order.
        spoilt: UIDs of those of `pods` that are planned after all others, on nodes of their own; see `spoilt_pods`.
    """

    id: str
    snapshot: Snapshot
    pods: tuple[Pod, ...]
    buffers: tuple[Pod, ...]
    requests: RequestsAsked
    first: frozenset[str]
    last: Sequence[str]
    spoilt: frozenset[str]

    @property
    def together(self) -> tuple[Pod, ...]:
        """The real pods that are planned at the same time."""
        return tuple([pod for pod in self.pods if pod.uid not in self.spoilt]) if self.spoilt else self.pods

    @property
    def waiting(self) -> tuple[Pod, ...]:
        """Those of them that do not run yet."""
        others = self.requests.held | self.spoilt
        return tuple([pod for pod in self.snapshot.waiting if pod.uid not in others])

    @property
    def running(self) -> frozenset[str]:
        """UIDs of the pods that still run, on nodes that go."""
        return frozenset([pod.uid for pod in self.pods if pod.node_name])


def pods_of(snapshot: Snapshot, held: Collection[str]) -> tuple[Pod, ...]:
    """The real pods that a run plans: those that wait, then those that still run on nodes that go.

    Without those for which nothing is launched for a while, and those whose places a ProvisioningRequest has: `held`, by UID.
    """
    leaving = tuple([pod for pod in snapshot.leaving if pod.shape.key not in snapshot.stopped])
    pods = snapshot.waiting + leaving
    return tuple([pod for pod in pods if pod.uid not in held]) if held else pods


def assigned_pods(snapshot: Snapshot) -> frozenset[str]:
    """UIDs of the pods that have a place on a node and are to come. O(nodes + such pods)."""
    return frozenset([pod.uid for node in snapshot.nodes for pod in node.assigned])


def spoilt_pods(groups: Collection[str], snapshot: Snapshot, pods: Sequence[Pod]) -> frozenset[str]:
    """UIDs of the pods of groups of which a NodeClaim could not be created: others whose nodes they shared lost these with it.

    None where there are no other pods, and none of a group that still has pods on nodes that go: these have company on their way.
    """
    if not groups:
        return frozenset()
    alone = set(groups).difference(map(group_of, snapshot.leaving))
    found = frozenset([pod.uid for pod in pods if group_of(pod) in alone])
    return found if len(found) < len(pods) else frozenset()
