"""What each notice of AWS means for an instance: when it is closed, when it is drained, when it is gone. Pure.

Source: spec/karpenter-aws.md 6.5 and 6.6, where each of them drains at once.
Differs: the time that AWS leaves is used: a replacement comes first, and scheduled changes wait for budgets.
"""

from datetime import datetime, timedelta
from typing import Final

from provisioner.apis.interruption import Interruption
from provisioner.ec2.interruption.messages import Notice, NoticeKind
from provisioner.ec2.settings import AwsSettings
from provisioner.values.message import EventMessage

NOTICE: Final = timedelta(seconds=120)
"""What EC2 leaves between a warning and the end of an instance."""

FORCED_GRACE: Final = timedelta(minutes=2)
"""What pods get that budgets or do-not-disrupt have held until a scheduled change is near."""

BLOCK_RECLAIMED: Final = timedelta(minutes=30)
"""EC2 takes the instances of a capacity block back so long before its end."""

BLOCK_LEAD: Final = timedelta(minutes=5)
"""Before that, evictions wait no longer for replacements."""
MAINTENANCE: Final = EventMessage(
    "Warning", "InstanceUnhealthy", "AWS has scheduled maintenance that interrupts this instance"
)


EVENTS: Final = {
    NoticeKind.SPOT_INTERRUPTED: EventMessage(
        "Warning", "SpotInterrupted", "EC2 is about to reclaim this Spot Instance"
    ),
    NoticeKind.REBALANCE: EventMessage(
        "Normal", "SpotRebalanceRecommendation", "EC2 reports an elevated risk that it will reclaim this Spot Instance"
    ),
    NoticeKind.STOPPED: EventMessage("Warning", "InstanceStopping", "The instance is stopping"),
    NoticeKind.TERMINATED: EventMessage("Warning", "InstanceTerminating", "The instance is terminating"),
    NoticeKind.SCHEDULED_CHANGE: MAINTENANCE,
    NoticeKind.RESERVATION_INTERRUPTED: EventMessage(
        "Warning",
        "CapacityReservationInstanceInterrupted",
        "The owner of the capacity reservation is about to reclaim this instance",
    ),
}
"""The event that a kind of notice publishes. Source: spec/karpenter-aws.md 6.5, the reasons are Karpenter's."""


def interruption(notice: Notice, settings: AwsSettings, now: datetime) -> Interruption | None:
    """What becomes of the instances of `notice`; None for nothing."""
    match notice.kind:
        case NoticeKind.SPOT_INTERRUPTED | NoticeKind.RESERVATION_INTERRUPTED:
            ends = (notice.at or now) + NOTICE
            return Interruption(str(notice.kind), replaced=True, evicts=ends - settings.spot_lead, ends=ends)
        case NoticeKind.REBALANCE:
            if settings.rebalance == "ignore":
                return None
            return Interruption(str(notice.kind), replaced=settings.rebalance == "replace")
        case NoticeKind.STOPPED | NoticeKind.TERMINATED:
            return Interruption(str(notice.kind))
        case NoticeKind.SCHEDULED_CHANGE:
            return scheduled(str(notice.kind), notice.starts, settings, now)
        case _:
            return None


def scheduled(reason: str, starts: datetime | None, settings: AwsSettings, now: datetime) -> Interruption:
    """Drained within budgets from a day before on, regardless of them when it is near.

    Args:
        reason: for metrics.
        starts: None, where AWS does not say, is taken for: as soon as the instance may be drained from now.
        settings: how long before.
        now: UTC.
    """
    starts = starts if starts is not None else now + settings.scheduled_drain
    near = starts - settings.scheduled_force
    return Interruption(
        reason,
        begins=starts - settings.scheduled_drain,
        budgeted=True,
        replaced=True,
        evicts=near,
        ends=max(near, now) + FORCED_GRACE,
    )


def impaired(reason: str, now: datetime) -> Interruption:
    """An instance that does not work: its pods are deleted, nothing is waited for."""
    return Interruption(reason, ends=now)


def block_ends(end: datetime) -> Interruption:
    """An instance of a capacity block that ends then: replaced before EC2 takes it back."""
    reclaimed = end - BLOCK_RECLAIMED
    return Interruption("capacity_block_expiring", replaced=True, evicts=reclaimed - BLOCK_LEAD, ends=reclaimed)
