"""Events about running pods whose karpenter.sh/do-not-disrupt has a value other than "true". Source: core spec 6.2, 8.2."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.pods import Guard, Pod, is_active, read_do_not_disrupt

INVALID, UNTIL, ELAPSED = "InvalidDoNotDisruptAnnotation", "DoNotDisruptUntil", "DoNotDisruptGracePeriodElapsed"
RECENTLY: Final = timedelta(minutes=10)
"""The end of a protection is said of pods of which it came no longer ago; whoever begins to look later has nothing new to say."""
_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class DoNotDisruptNotice:
    """One event about a pod.

    Attributes:
        reason: the event's.
        value: the annotation's, cut.
        end: of the protection; None where the annotation is invalid.
    """

    pod: Pod
    reason: str
    value: str
    end: datetime | None = None


def protections(pods: Iterable[Pod], now: datetime) -> tuple[DoNotDisruptNotice, ...]:
    """What holds of these pods now. Cost: O(pods), little for those without the annotation."""
    told = (_told(pod, now) for pod in pods if names.DO_NOT_DISRUPT in pod.annotations and is_active(pod))
    return tuple(one for one in told if one is not None)


def _told(pod: Pod, now: datetime) -> DoNotDisruptNotice | None:
    guard, end = read_do_not_disrupt(pod)
    value = pod.annotations[names.DO_NOT_DISRUPT][:_MOST]
    if guard is Guard.INVALID:
        return DoNotDisruptNotice(pod, INVALID, value)
    if end is None:
        return None  # for good, or not started: then the end is known
    if now < end:
        return DoNotDisruptNotice(pod, UNTIL, value, end)
    return DoNotDisruptNotice(pod, ELAPSED, value, end) if now - end < RECENTLY else None
