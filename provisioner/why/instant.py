"""What an answer is made from: one instant of a cluster, of a dump or of the leader's memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodePool
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.forceful.repair import RepairDecision
from provisioner.disruption.view import DisruptionView, MethodAnswer
from provisioner.scheduling.prepared import Prepared
from provisioner.state.gang_places import GangStanding
from provisioner.state.pause import Pause
from provisioner.state.snapshot import Snapshot
from provisioner.values.errors import ExitStatus, UserError


class NoSuchObjectError(UserError):
    """The pod, Node or NodeClaim that is asked about is not there."""

    exit_status = ExitStatus.FOUND


class InstantTypes(Protocol):
    """Instance types of NodePools, as far as they are known."""

    @property
    def well_known_labels(self) -> frozenset[str]:
        """Labels that nodes have although no NodePool says so."""
        ...

    def types_of(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """Those of one pool; none where they are not known."""
        ...

    def manages(self, pool: NodePool) -> bool: ...

    def why_not_served(self, pool: NodePool) -> str:
        """Why no provisioner makes a NodePool Ready, for the kind of its node class; "" where that is not known, or not so."""
        ...


@dataclass(frozen=True, slots=True)
class Memory:
    """What only the provisioner that leads remembers.

    Attributes:
        leads: whether this is the leader's; a dump has no memory.
        behind: what keeps all disruption waiting, in words; "" for nothing.
        answers: what the last pass of each method made of the nodes, by reason.
        refused: pods that take no room in simulations, since their scheduler refuses them although the Node of this name has a place for them.
        postponed: why the end of a node waits, by NodeClaim.
        failed_groups: that had no places in the last batch, and come after others of their priority in the next one.
        held: by UID of a pod that takes the room of a ProvisioningRequest, the request, and what it says of the room.
    """

    leads: bool = False
    behind: str = ""
    answers: Mapping[str, MethodAnswer] = field(default_factory=dict)
    refused: tuple[tuple[Pod, str], ...] = ()
    postponed: Mapping[str, str] = field(default_factory=dict)
    failed_groups: Sequence[str] = ()
    held: Mapping[str, tuple[str, str]] = field(default_factory=dict)


NO_MEMORY = Memory()


class Instant(Protocol):
    """One instant of a cluster, ready for questions."""

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def types(self) -> InstantTypes: ...

    @property
    def prepared(self) -> Prepared: ...

    @property
    def pause(self) -> Pause: ...

    @property
    def memory(self) -> Memory:
        """What the leader remembers; nothing elsewhere."""
        ...

    @property
    def missing(self) -> tuple[str, ...]:
        """What the answer leaves out, in sentences."""
        ...

    @property
    def seconds(self) -> float:
        """Longest time of one plan, and of one pass of all methods."""
        ...

    def view(self, key: str) -> DisruptionView:
        """What the methods of disruption look at; the NodeClaim `key` is judged first. Not for an instant of which the time is up."""
        ...

    def budgets(self) -> AllowanceLedger:
        """What disruption budgets leave."""
        ...

    @property
    def repairs(self) -> RepairDecision:
        """What is to be done about broken nodes; nothing where that is not known."""
        ...

    def pod(self, namespace: str, name: str) -> Pod | None: ...

    def node(self, name: str) -> Node | None: ...

    def gang(self, key: str) -> GangStanding | None:
        """How far a gang is; None where there is none of this key."""
        ...

    def attached(self, node: str) -> tuple[str, ...]:
        """Names of the volumes that are attached to a Node, sorted; none where that is not known."""
        ...

    def held_back(self, prices: Sequence[float]) -> Sequence[str]:
        """Of nodes of these prices that would be launched one after another: why not now, in words; "" for those that may, or where nobody knows."""
        ...

    @property
    def usd_left(self) -> float:
        """What further nodes may cost now, in USD per hour; infinite where nothing limits that, or nobody knows."""
        ...


def namespaces_at(snapshot: Snapshot) -> set[str]:
    """Every namespace that there is, as far as is known. Cost: O(pods)."""
    pods = (pod.namespace for node in snapshot.nodes for pod in (*node.pods, *node.assigned))
    waiting = (pod.namespace for pod in (*snapshot.pending, *snapshot.leaving))
    return {*snapshot.around.namespaces, *snapshot.pod_budgets, *pods, *waiting}
