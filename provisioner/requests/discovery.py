"""In which version the API server has ProvisioningRequests, if it has any: their definition is Cluster Autoscaler's, may be missing, and may come late."""

from provisioner.apis.provisioning_request import ProvisioningRequest
from provisioner.runtime.base import Base
from provisioner.runtime.late_watch import LateWatch
from provisioner.state.knowledge import KindKnowledge
from provisioner.support import logs

_log = logs.get_logger(__name__)


def request_watch(base: Base) -> LateWatch[ProvisioningRequest]:
    """Has them watched, in the newest version that is served, and tells the log what is known of them."""

    def told(known: KindKnowledge, problem: str) -> None:
        if problem:
            _log.warning(
                "Could not read ProvisioningRequests; new and changed ones take effect once they can be read",
                error=problem,
            )
        elif known is KindKnowledge.NOT_SERVED:
            _log.warning(
                "The API server does not serve ProvisioningRequests; create their CustomResourceDefinition, or remove --provisioning-classes"
            )
        elif (found := watch.found()) is not None:
            _log.info("ProvisioningRequests are watched", version=found[1].version)

    watch = LateWatch("provisioningrequest.discovery", base.caches, base.client, base.clock, base.caches.requests, told)
    return watch
