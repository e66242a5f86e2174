"""Whether the API server has PodGroups, so that they are watched: by default it has none, and a watch of what is not there would fail for ever."""

from typing import Final

from provisioner.kube.client import Client
from provisioner.kube.discovery import serves
from provisioner.kube.resources import PODGROUPS
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import PodChanged
from provisioner.runtime.controller import Controller
from provisioner.runtime.poller import ApiPoller
from provisioner.support.clock import Clock

AGAIN_SECONDS: Final = 60.0
"""Between two questions, however many pods of groups are seen."""


class PodGroupDiscovery:
    """Asks at the start of a term, and again when a pod of a group is seen."""

    def __init__(self, caches: Caches, client: Client, clock: Clock) -> None:
        self._caches, self._client, self._clock = caches, client, clock
        self._asked = float("-inf")
        self.poller = ApiPoller("podgroups", self._poll, expected=(ValueError,))

    def controller(self) -> Controller:
        """Its row in the list of controllers."""
        return Controller(runner=self.poller, watches={PodChanged: self._heard})

    def _heard(self, change: PodChanged) -> None:
        if change.new is not None and change.new.group and not self._are_watched():
            self.poller.wake()

    def _poll(self) -> float | None:
        if self._are_watched():
            return None
        now = self._clock.monotonic()
        if now - self._asked < AGAIN_SECONDS:
            return self._asked + AGAIN_SECONDS - now
        served = serves(self._client, PODGROUPS)
        self._asked = now
        if served:
            self._caches.watch(self._caches.pod_groups)
        self._caches.cluster.serve_pod_groups(served=served)
        return None

    def _are_watched(self) -> bool:
        return self._caches.pod_groups in self._caches.all
