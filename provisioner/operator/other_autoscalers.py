"""Whether another autoscaler acts in this cluster: Karpenter on the same objects, or Cluster Autoscaler beside us.

While Karpenter leads, nothing is launched and no disruption begins; drains that have begun are finished, and so are those that the interruption queue
asks for, because a message that we took from the queue nobody else gets. Cluster Autoscaler acts on nodes of its own; it is only told.
"""

from typing import Final

from provisioner.apis.conversion.ownership import ClusterAutoscalerLeases
from provisioner.kube.client import Client
from provisioner.kube.errors import Forbidden
from provisioner.kube.other_karpenter import OtherKarpenter
from provisioner.kube.resources import LEASES
from provisioner.options import Options
from provisioner.support import logs, metrics
from provisioner.support.clock import Clock
from provisioner.values.message import Said

LOOK_SECONDS: Final = 5.0

RUNNING = metrics.gauge(
    "dovetail_other_autoscaler_running",
    "Whether another autoscaler holds its Lease: 1 or 0. While Karpenter does, Dovetail launches nothing and starts no disruption.",
    ("autoscaler",),
)
_log = logs.get_logger(__name__)
KARPENTER_NOT_LOOKED_FOR: Final = Said("it is not known yet whether Karpenter runs in this cluster")


class OtherAutoscalers:
    """Looks every few seconds, in every replica, so that a new leader knows; an `ApiPoller` calls `poll`.

    Attributes:
        problem: why nothing may be launched or disrupted, as a sentence; "" where no other Karpenter leads. Before the first answer it is
            that nobody knows; where we are not allowed to ask, nothing is held up.
    """

    def __init__(self, client: Client, clock: Clock, options: Options) -> None:
        self._client, self._clock = client, clock
        self._autoscalers = ClusterAutoscalerLeases()
        self._karpenter = OtherKarpenter(client, clock, options.lease_namespace, options.karpenter_namespace)
        self.problem: str = KARPENTER_NOT_LOOKED_FOR
        self._forbidden = self._autoscaler = False

    def poll(self) -> float:
        """Look once; seconds until the next look.

        Raises:
            ApiError: the API server did not answer; what was known last holds.
        """
        found, autoscaler = "", False
        try:
            found = self._karpenter.look()
            autoscaler = self._cluster_autoscaler()
        except Forbidden as error:
            if not self._forbidden:
                _log.warning(
                    "Could not determine whether another autoscaler runs; apply the ClusterRole of this version, which "
                    "allows getting its Lease",
                    error=str(error),
                )
            self._forbidden = True
        if found and found != self.problem:
            _log.warning("Karpenter runs in this cluster; launching nothing and starting no disruption", reason=found)
        elif self.problem and not found:
            _log.info("No other Karpenter leads in this cluster")
        if autoscaler and not self._autoscaler:
            _log.warning(
                "Cluster Autoscaler runs in this cluster; make sure that its node groups and the NodePools serve "
                "different pods"
            )
        self.problem, self._autoscaler = found, autoscaler
        RUNNING.labels("karpenter").set(bool(found))
        RUNNING.labels("cluster-autoscaler").set(autoscaler)
        return LOOK_SECONDS

    def _cluster_autoscaler(self) -> bool:
        seen = self._autoscalers
        found = (self._client.find(LEASES, seen.name, namespace) for namespace in seen.namespaces)
        return bool(seen.beside(filter(None, found), self._clock.monotonic()))
