"""Whether the API server has PodGroups, so that they are watched: by default it has none, and a watch of what is not there would fail for ever."""

import json
from typing import Final

from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import PODGROUPS
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import PodChanged
from provisioner.runtime.controller import Controller
from provisioner.runtime.poller import ApiPoller
from provisioner.support.clock import Clock

AGAIN_SECONDS: Final = 60.0
"""Between two questions, however many pods of groups are seen."""
_PATH: Final = f"/apis/{PODGROUPS.api_version}"


def are_served(client: Client) -> bool:
    """Whether there are PodGroups, by one request.

    Raises:
        ApiError: the API server did not answer, or refused.
        ValueError: it answered something else than a list of resources.
    """
    try:
        answer = json.loads(client.raw("GET", _PATH))
    except NotFound:
        return False
    listed = answer.get("resources") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise ValueError(f"{_PATH} is not a list of resources")  # noqa: TRY004 - as of a text that is no JSON
    return any(isinstance(one, dict) and one.get("name") == PODGROUPS.plural for one in listed)


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
        if change.new is not None and change.new.group and not self._caches.knows_pod_groups:
            self.poller.wake()

    def _poll(self) -> float | None:
        if self._caches.knows_pod_groups:
            return None
        now = self._clock.monotonic()
        if now - self._asked < AGAIN_SECONDS:
            return self._asked + AGAIN_SECONDS - now
        served = are_served(self._client)
        self._asked = now
        if served:
            self._caches.watch_pod_groups()
        self._caches.cluster.serve_pod_groups(served=served)
        return None
