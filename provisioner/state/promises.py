"""What a plan promises, to whom and for how long: the rules of the state, which makes plans, and of the extender, which reads them. Pure.

A plan keeps room on one node for its pods. Room is owed to a pod as long as it has found no place that stays; pods of one owner and class
are brothers, and who takes a brother's place leaves its own in exchange. Times are seconds of one monotonic clock.
"""

import enum
from collections.abc import Callable
from typing import Final, NamedTuple

from provisioner.apis.pods import Pod, is_reschedulable, is_terminal

VACANT_SECONDS: Final = 30.0
"""How long the place of a pod that is gone waits for the pod's successor."""

PLAN_SECONDS: Final = 900.0
"""How long a node that is not initialized keeps room."""


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


class Fate(enum.Enum):
    """What became of a planned pod."""

    WAITS = enum.auto()
    LEAVES = enum.auto()
    """It runs on a node that goes: its place is for whoever comes after it."""
    FOUND = enum.auto()
    """It runs on a node that stays."""
    GONE = enum.auto()


def is_over(pod: Pod) -> bool:
    """Whether a pod needs no place itself any more, and its successor may have it.

    An evicted pod's successor comes at once, long before the old one is gone; a StatefulSet's only afterwards.
    """
    return is_terminal(pod) or (pod.deleted is not None and (not pod.node_name or not is_reschedulable(pod)))


def fate_of(node: str, stays: Callable[[str], bool], *, over: bool) -> Fate:
    """What became of a pod.

    Args:
        node: where it is bound, "" for nowhere.
        stays: whether a node does; only asked where the pod is bound.
        over: see `is_over`.
    """
    if over:
        return Fate.GONE
    if not node:
        return Fate.WAITS
    return Fate.FOUND if stays(node) else Fate.LEAVES


def first_seen(before: bool, stated: float | None, now: float) -> float:
    """When something became true by our own clock: now, where this process knows that it was not before; else as the object says, and not later than now."""
    return now if before or stated is None else min(stated, now)


def ends_at(
    planned_at: float, initialized_at: float | None, hold_seconds: float, plan_seconds: float = PLAN_SECONDS
) -> float:
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
