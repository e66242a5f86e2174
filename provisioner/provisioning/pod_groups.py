"""Whether the API server has PodGroups, so that they are watched: by default it has none, and a watch of what is not there would fail for ever.

Where they may not be read, or their watch fails, nobody waits for them for ever: see `GroupKnowledge`.
"""

from typing import Final

from provisioner.kube.client import Client
from provisioner.kube.discovery import serves
from provisioner.kube.errors import ApiError, Forbidden, NotFound
from provisioner.kube.resources import PODGROUPS
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import PodChanged
from provisioner.runtime.controller import Controller
from provisioner.runtime.freshness import stale
from provisioner.runtime.poller import ApiPoller
from provisioner.state.groups import GroupKnowledge
from provisioner.support import logs
from provisioner.support.clock import Clock

AGAIN_SECONDS: Final = 60.0
"""Between two questions, however many pods of groups are seen."""
FIRST_SECONDS, LOOK_SECONDS = 1.0, 10.0
"""Between two looks at their watch, before and after its first answer."""
_log = logs.get_logger(__name__)


class PodGroupDiscovery:
    """Asks at the start of a term, and again when a pod of a group is seen; once they are watched, it says whether the watch can be believed."""

    def __init__(self, caches: Caches, client: Client, clock: Clock) -> None:
        self._caches, self._client, self._clock = caches, client, clock
        self._asked = float("-inf")
        self._known: GroupKnowledge | None = None
        self.poller = ApiPoller("podgroups", self._poll, expected=(ValueError,))

    def controller(self) -> Controller:
        """Its row in the list of controllers."""
        return Controller(runner=self.poller, watches={PodChanged: self._heard})

    def _heard(self, change: PodChanged) -> None:
        if change.new is not None and change.new.group and not self._are_watched():
            self.poller.wake()

    def _poll(self) -> float | None:
        is_watched = self._are_watched()
        if is_watched and not isinstance(self._caches.pod_groups.error, NotFound):
            return self._look()
        now = self._clock.monotonic()
        if now - self._asked < AGAIN_SECONDS:
            wait = self._asked + AGAIN_SECONDS - now
            return min(wait, LOOK_SECONDS) if is_watched else wait
        try:
            is_served = serves(self._client, PODGROUPS)
        except Forbidden as error:
            self._asked = now
            self._know(GroupKnowledge.UNREADABLE, str(error))
            return AGAIN_SECONDS
        except (ApiError, ValueError) as error:
            self._know(GroupKnowledge.UNREADABLE, str(error))
            raise
        self._asked = now
        if not is_served:
            self._know(GroupKnowledge.NOT_SERVED)
            return AGAIN_SECONDS if is_watched else None
        if not is_watched:
            self._caches.watch(self._caches.pod_groups)
        return self._look()

    def _look(self) -> float:
        """Whether the watch has what there is; before its first answer nobody knows."""
        watch = self._caches.pod_groups
        if not watch.synced.is_set() and watch.error is None:
            return FIRST_SECONDS
        problem = stale((watch,))
        self._know(GroupKnowledge.UNREADABLE if problem else GroupKnowledge.READ, problem)
        return LOOK_SECONDS

    def _know(self, known: GroupKnowledge, problem: str = "") -> None:
        if known is self._known:
            return
        if problem:
            _log.warning(
                "Could not read PodGroups; until they can be read, nodes are launched only for those of their pods that kube-scheduler "
                "has reported as unschedulable",
                error=problem,
            )
        elif self._known is GroupKnowledge.UNREADABLE:
            _log.info("PodGroups are known again")
        self._known = known
        self._caches.cluster.pod_groups_known(known)

    def _are_watched(self) -> bool:
        return self._caches.pod_groups in self._caches.all
