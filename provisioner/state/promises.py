"""What a plan promises, to whom and for how long: rules of the state, which makes plans. Pure.

A plan keeps room on one node for its pods. Room is owed to a pod as long as it has found no place that stays; pods of one owner and class
are brothers, and who takes a brother's place leaves its own in exchange. Times are seconds of one monotonic clock.
"""

from typing import Final, NamedTuple

from provisioner.apis.pods import Pod, is_reschedulable, is_terminal

VACANT_SECONDS: Final = 30.0
"""How long the place of a pod that is gone waits for the pod's successor."""


class Family(NamedTuple):
    """Pods that are interchangeable: of one owner (UID, "" for none) and one class (`PodShape.key`)."""

    owner: str
    klass: str

    @classmethod
    def of(cls, pod: Pod) -> "Family":
        """A pod's."""
        return cls(pod.owner.uid if pod.owner is not None else "", pod.shape.key)

    @property
    def has_brothers(self) -> bool:
        """Whether a pod of it may take another one's place; pods without an owner are equal, but nobody creates one again."""
        return bool(self.owner)


def is_over(pod: Pod) -> bool:
    """Whether a pod needs no place itself any more, and its successor may have it.

    An evicted pod's successor comes at once, long before the old one is gone; a StatefulSet's only afterwards.
    """
    return is_terminal(pod) or (pod.deleted is not None and (not pod.node_name or not is_reschedulable(pod)))


def ends_at(planned_at: float, initialized_at: float | None, hold_seconds: float, plan_seconds: float) -> float:
    """When room is not kept any longer for a pod that waits.

    Args:
        planned_at: when it was planned, or its plan grew last.
        initialized_at: when the node was; None while it is not.
        hold_seconds: as the plan says (`Plan.hold_seconds`).
        plan_seconds: how long a node that is not initialized keeps room.
    """
    if initialized_at is None:
        return planned_at + plan_seconds
    return max(planned_at, initialized_at) + hold_seconds
