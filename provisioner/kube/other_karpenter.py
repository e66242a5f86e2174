"""Whether Karpenter itself runs in this cluster, by its Lease at the API server."""

from provisioner.apis.conversion.ownership import KARPENTER_LEASE, KarpenterLeases
from provisioner.kube.client import Client
from provisioner.kube.errors import Forbidden
from provisioner.kube.resources import LEASES
from provisioner.support.clock import Clock
from provisioner.values.message import Said


class OtherKarpenter:
    """Asks again and again, because only a Lease that is renewed between two looks is held for certain. Not thread-safe.

    Args:
        client: RBAC: get Leases of Karpenter's name.
        clock: by which a Lease is fresh.
        own: namespace of our own Lease.
        namespace: where Karpenter runs, if that is unusual.
    """

    def __init__(self, client: Client, clock: Clock, own: str, namespace: str = "") -> None:
        self._client, self._clock = client, clock
        self._leases = KarpenterLeases(own, namespace)

    def look(self) -> str:
        """Where another Karpenter leads, as a sentence with the remedy; "" for nowhere. Cost: a call for each of two or three namespaces.

        Raises:
            Forbidden: a Lease may not be read, and no other shows that Karpenter leads.
            ApiError: the server did not answer.
        """
        found, forbidden = [], None
        for namespace in self._leases.namespaces:
            try:
                found.append(self._client.find(LEASES, KARPENTER_LEASE, namespace))
            except Forbidden as error:
                forbidden = error
        where = self._leases.beside(filter(None, found), self._clock.monotonic())
        if not where and forbidden is not None:
            raise forbidden
        return Said(f"Karpenter runs in namespace {where}; scale its Deployment to 0, or uninstall it") if where else ""
