"""Which unbound pods wait for a node of ours: the one answer for provisioning, disruption and whoever explains them.

Source: core spec 3.3; design 3b.5.
"""

from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from math import inf
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.pods import Pod, is_pending, opted_out

IMAGES_SECONDS: Final = 5.0
"""For so long at most a pod whose images are being looked up does not wait for a node, from the moment at which it was seen."""
_PROMPT: Final = (names.DEFAULT_SCHEDULER_NAME, names.SCHEDULER_NAME)


class PodSight(msgspec.Struct, frozen=True, gc=False):
    """What is known of an unbound pod beside its object; times are of the monotonic clock.

    Attributes:
        since: when it was first seen without scheduling gates; infinity while it has some.
        reported: the extender said that kube-scheduler left it without a node.
        deferred_until: when its images will have been looked up for long enough.
    """

    since: float = inf
    reported: bool = False
    deferred_until: float = -inf


NOT_SEEN: Final = PodSight()


def waits_from(pod: Pod, sight: PodSight, grace: timedelta) -> float:
    """The moment from which a pod waits for a node of ours: in the past for one that does, infinity where only an event can make it wait.

    A pod waits once a scheduler, whichever it is, has refused it or the extender has reported it. Of kube-scheduler's pods, those that are unbound
    for the grace period wait, too: it takes every pod at once. Another scheduler may hold pods back on purpose, or not be there at all, so its
    verdict is waited for. Gated, daemon and deferred pods do not wait, nor do those that demand a node that is not ours.
    """
    return _of_pending(pod, sight, grace.total_seconds()) if is_pending(pod) else inf


def _of_pending(pod: Pod, sight: PodSight, grace_seconds: float) -> float:
    if opted_out(pod):
        return inf
    deferred = sight.deferred_until if awaits_images(pod) else -inf
    if pod.unschedulable or sight.reported:
        return deferred
    return max(deferred, sight.since + grace_seconds) if pod.shape.scheduler_name in _PROMPT else inf


def awaits_images(pod: Pod) -> bool:
    """Whether the webhook still looks up for which architectures the images of a pod were built."""
    return names.IMAGE_ARCH_PENDING in pod.labels


class Sights:
    """What was seen of every unbound pod. Memory: one entry a pod; every event is O(1). Not thread-safe."""

    def __init__(self, grace: timedelta) -> None:
        self.grace: Final = grace
        self._grace_seconds = grace.total_seconds()
        self._known: dict[str, PodSight] = {}
        # both ascend: all pods of one are given equally long
        self._graces: deque[tuple[float, str]] = deque()
        self._deferrals: deque[tuple[float, str]] = deque()

    def seen(self, pod: Pod, now: float) -> None:
        """An unbound pod was added or changed."""
        known = self._known.get(pod.uid, NOT_SEEN)
        since, deferred_until = known.since, known.deferred_until
        if not awaits_images(pod):
            deferred_until = -inf
        elif deferred_until == -inf:
            deferred_until = now + IMAGES_SECONDS
            self._deferrals.append((deferred_until, pod.uid))
        if since == inf and not pod.gated:
            since = now
            if self._grace_seconds:
                self._graces.append((now + self._grace_seconds, pod.uid))
        self._known[pod.uid] = PodSight(since, known.reported, deferred_until)

    def gone(self, uid: str) -> bool:
        """A pod was bound or removed; whether it was seen."""
        return self._known.pop(uid, None) is not None

    def report(self, uid: str) -> bool:
        """The extender left this pod without a node; whether the pod is known."""
        known = self._known.get(uid)
        if known is not None:
            self._known[uid] = msgspec.structs.replace(known, reported=True)
        return known is not None

    def waits_from(self, pod: Pod) -> float:
        """`waits_from`, with what is known of the pod."""
        return waits_from(pod, self._known.get(pod.uid, NOT_SEEN), self.grace)

    def of_pending(self, pod: Pod) -> float:
        """The same of one that `is_pending`."""
        return _of_pending(pod, self._known.get(pod.uid, NOT_SEEN), self._grace_seconds)

    def due(self, now: float) -> Iterator[str]:
        """Each unbound pod whose time came since this was last asked: it may wait from now on."""
        for some in (self._graces, self._deferrals):
            while some and some[0][0] <= now:
                if (uid := some.popleft()[1]) in self._known:
                    yield uid

    def early(self) -> Iterator[str]:
        """Each pod whose grace period was not over when `due` was last asked."""
        return (uid for _, uid in self._graces if uid in self._known)
