"""Whether the definitions of a cluster are ours to change, and whether Karpenter runs beside us. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from provisioner.apis.core import Lease
from provisioner.apis.reports import LEASE_NAME

KARPENTER_LEASE: Final = LEASE_NAME
KARPENTER_NAMESPACES: Final = frozenset({"karpenter", "kube-system"})
"""Where its chart and its documentation put Karpenter. A Lease of its name anywhere else proves nothing: whoever owns a namespace may
make one there."""
KARPENTER_SILENT: Final = timedelta(minutes=5)
"""After so long without a renewal of its Lease Karpenter has gone; it renews every two seconds."""

_HELM: Final = "app.kubernetes.io/managed-by"
_KEYS: Final[Mapping[str, str]] = {
    "meta.helm.sh/release-name": "Helm",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}


class Owner(NamedTuple):
    """Who keeps an object as it is, and undoes what others write.

    Attributes:
        name: such as "Helm".
        key: the label or annotation that says so.
    """

    name: str
    key: str


def owner_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Owner | None:
    """Who keeps an object as it is; None for nobody."""
    if labels.get(_HELM) == "Helm":
        return Owner("Helm", _HELM)
    return next((Owner(name, key) for key, name in _KEYS.items() if key in labels or key in annotations), None)


def karpenter_beside(leases: Iterable[Lease], namespace: str, now: datetime) -> str:
    """Where a Karpenter other than us leads, as namespace; "" for nowhere, and for namespaces that it is not known to use.

    Args:
        leases: those named `KARPENTER_LEASE`, of all namespaces.
        namespace: our own; its Lease is the one that we use.
        now: compared with what another clock wrote, so minutes count only.
    """
    for lease in leases:
        spec = lease.spec
        where = lease.metadata.namespace
        if where == namespace or where not in KARPENTER_NAMESPACES or not spec.holder_identity or not spec.renew_time:
            continue
        try:
            renewed = datetime.fromisoformat(spec.renew_time)
        except ValueError:
            return where  # somebody holds it
        if renewed.tzinfo is None or now - renewed < KARPENTER_SILENT:
            return where
    return ""
