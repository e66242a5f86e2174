"""What is said of pods whose karpenter.sh/do-not-disrupt is neither absent nor "true". Pure. Source: core spec 6.2, 8.2."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.values.duration import DurationError, parse_duration

INVALID, UNTIL, ELAPSED = "InvalidDoNotDisruptAnnotation", "DoNotDisruptUntil", "DoNotDisruptGracePeriodElapsed"
RECENTLY: Final = timedelta(minutes=10)
"""The end of a protection is said of pods of which it came no longer ago; whoever begins to look later has nothing new to say."""
_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class Protection:
    """One event about a pod.

    Attributes:
        pod: it.
        reason: the event's.
        message: the event's.
    """

    pod: Pod
    reason: str
    message: str


def protections(pods: Iterable[Pod], now: datetime) -> tuple[Protection, ...]:
    """What holds of these pods now. Cost: O(pods), little for those without the annotation."""
    found = []
    for pod in pods:
        text = pod.annotations.get(names.DO_NOT_DISRUPT)
        if text is not None and text != "true" and (told := _told(pod, text, now)) is not None:
            found.append(told)
    return tuple(found)


def _told(pod: Pod, text: str, now: datetime) -> Protection | None:
    shown = f'annotation "{names.DO_NOT_DISRUPT}" is {text[:_MOST]!r}'
    try:
        protected = parse_duration(text)
        if protected > timedelta(0):
            end = pod.start_time + protected if pod.start_time is not None else None
        else:
            return Protection(pod, INVALID, _invalid(shown))
    except DurationError:
        return Protection(pod, INVALID, _invalid(shown))
    except OverflowError:
        return None  # for good, as "true"
    if end is None:
        return None  # it has not started; then the end is known
    if now < end:
        return Protection(
            pod,
            UNTIL,
            f"Voluntary disruption of its node is blocked until {end:%Y-%m-%dT%H:%M:%SZ}, because its {shown}",
        )
    if now - end < RECENTLY:
        return Protection(
            pod, ELAPSED, f"The pod no longer blocks the disruption of its node: its {shown}, and it has run for longer"
        )
    return None


def _invalid(shown: str) -> str:
    return f'The {shown}, which is ignored; set it to "true", or to a duration above 0 such as "4h"'
