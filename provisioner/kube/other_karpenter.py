"""Whether Karpenter itself runs in this cluster, by its Lease at the API server."""

from datetime import datetime

from provisioner.apis.conversion.ownership import KARPENTER_LEASE, karpenter_beside
from provisioner.kube import messages
from provisioner.kube.client import Client
from provisioner.kube.resources import LEASES


def karpenter_runs(client: Client, namespace: str, now: datetime) -> str:
    """Where another Karpenter leads, as a sentence with the remedy; "" for nowhere.

    Args:
        client: RBAC: list Leases of its name.
        namespace: our own.
        now: of our clock.

    Raises:
        ApiError: the server refused.
    """
    leases = client.list(LEASES, field_selector=f"metadata.name={KARPENTER_LEASE}")
    where = karpenter_beside(leases, namespace, now)
    return messages.karpenter_runs(where) if where else ""
