"""Whether pods that move are sized by VerticalPodAutoscalers: only where that is wanted, the API server serves them, and their watch is current."""

from typing import Final

from provisioner.kube.client import Client
from provisioner.kube.discovery import serves
from provisioner.kube.resources import AUTOSCALERS
from provisioner.runtime.caches import Caches
from provisioner.runtime.controller import Controller
from provisioner.runtime.freshness import stale
from provisioner.runtime.poller import ApiPoller
from provisioner.support import logs
from provisioner.values.message import Said

AGAIN_SECONDS: Final = 60.0
"""Between two questions whether they are served."""
LOOK_SECONDS: Final = 5.0
"""Between two looks at their watch."""
NOT_SERVED: Final = Said("the API server does not serve verticalpodautoscalers of autoscaling.k8s.io/v1")
_log = logs.get_logger(__name__)


class AutoscalerDiscovery:
    """Asks until they are served, then looks whether their watch is current; says what changed. Nothing is done where it is not `wanted`."""

    def __init__(self, caches: Caches, client: Client, *, wanted: bool) -> None:
        self._caches, self._client, self._wanted = caches, client, wanted
        self._unused: str | None = None
        self.poller = ApiPoller("vpa.prediction", self._poll, expected=(ValueError,))

    def controller(self) -> Controller:
        """Its row in the list of controllers."""
        return Controller(runner=self.poller)

    def _poll(self) -> float | None:
        if not self._wanted:
            return None
        autoscalers = self._caches.autoscalers
        if autoscalers not in self._caches.all:
            if not serves(self._client, AUTOSCALERS):
                self._use(NOT_SERVED)
                return AGAIN_SECONDS
            self._caches.watch(autoscalers)
            return LOOK_SECONDS
        self._use(stale((autoscalers,)))
        return LOOK_SECONDS

    def _use(self, problem: str) -> None:
        """Predict from now on, or not where there is a problem."""
        self._caches.cluster.use_predictions(used=not problem)
        if self._unused is not None and bool(self._unused) == bool(problem):
            return
        self._unused = problem
        if problem:
            _log.warning("Pods that move are sized by their requests, not by VerticalPodAutoscalers", reason=problem)
        else:
            _log.info("Pods that move are sized by VerticalPodAutoscalers")
