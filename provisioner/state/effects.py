"""What has to be done because of an event: the state returns effects, and the caller carries them out after the lock is released."""

from dataclasses import dataclass

from provisioner.apis.core import DaemonSet
from provisioner.apis.pods import Pod
from provisioner.state.keys import NodeKey
from provisioner.state.misses import Stop

PLANNED = "planned"
ABSORBED = "absorbed"
DISPLACED = "displaced"
EXPIRED = "expired"
LOST = "lost"
MISSED = "missed"
REPLANNED = "replanned"


@dataclass(frozen=True, slots=True)
class ClaimUnneeded:
    """Every pod of this claim's plan found another place, or is planned again, before the claim was launched: it can go. By name."""

    claim: str


@dataclass(frozen=True, slots=True)
class LaunchSetTurned:
    """A launch set of this claim is whole, or never will be: look at its launch again. By name."""

    claim: str


@dataclass(frozen=True, slots=True)
class PodSettled:
    """A pod's assignment ended.

    Attributes:
        key: the node that it was planned on.
        outcome: PLANNED (it runs there), ABSORBED (it runs elsewhere), DISPLACED (others took its room, or its images do not run there), EXPIRED (its time
            is over), LOST (its node or claim went), MISSED (kube-scheduler did not bind it there, see `PodMissed`) or REPLANNED (a later batch
            has a place for it).
    """

    key: NodeKey
    uid: str
    outcome: str


@dataclass(frozen=True, slots=True)
class PlanOutdated:
    """Room that the plan of a claim promises is given back, and who reads the plan cannot tell that from pods."""

    key: NodeKey


@dataclass(frozen=True, slots=True)
class PodMissed:
    """kube-scheduler did not follow the plan of a pod; told beside its `PodSettled`.

    Attributes:
        key: the node that it was planned on.
        pod: as it is now; it carries what kube-scheduler said.
        cause: one of `misses.CAUSES`.
        stop: no new nodes for the pod's class from now on; None while it may be planned again at once.
    """

    key: NodeKey
    pod: Pod
    cause: str
    stop: Stop | None = None


@dataclass(frozen=True, slots=True)
class NominationLost:
    """kube-scheduler cleared the nomination of a pod that is still assigned to this claim: nominate it again."""

    claim: str
    pod: Pod


@dataclass(frozen=True, slots=True)
class DaemonSetUnreadable:
    """The pods of a DaemonSet cannot be judged and count for no node; told when that begins.

    Attributes:
        daemon_set: as it is now.
        problem: what is wrong with it, and where in it.
    """

    daemon_set: DaemonSet
    problem: str


Effect = ClaimUnneeded | LaunchSetTurned | PodSettled | PlanOutdated | PodMissed | NominationLost | DaemonSetUnreadable
