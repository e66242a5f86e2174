"""Who keeps an object as it is, whether the definitions of a cluster are ours to change, and whether another autoscaler runs beside us. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from provisioner.apis.core import Lease
from provisioner.apis.leases import SeenLease
from provisioner.apis.reports import LEASE_NAME

KARPENTER_LEASE: Final = LEASE_NAME
_KARPENTER_NAMESPACES: Final = frozenset({"karpenter", "kube-system"})
"""Where its chart and its documentation put Karpenter. A Lease of its name anywhere else proves nothing: a tenant may make one in any namespace of theirs."""
SILENT_SECONDS: Final = 60.0
"""After so long without a renewal of its Lease, Karpenter has gone: its Lease lasts 15 seconds and is renewed every two."""

CLUSTER_AUTOSCALER_LEASE: Final = "cluster-autoscaler"
CLUSTER_AUTOSCALER_NAMESPACE: Final = "kube-system"
"""Where its documentation puts Cluster Autoscaler and its Lease."""
KEEP: Final = "helm.sh/resource-policy"
"""The annotation whose value `keep` tells Helm to leave an object when its release is removed."""
RELEASE_NAME: Final = "meta.helm.sh/release-name"
RELEASE_NAMESPACE: Final = "meta.helm.sh/release-namespace"

_HELM: Final = "app.kubernetes.io/managed-by"
_CHART: Final = "helm.sh/chart"
_OUR_CHART: Final = "dovetail-crd-"
"""How that label begins on what our own chart of definitions installed: it says nothing of the caBundle, so nobody undoes what the webhook writes."""
_KEYS: Final[Mapping[str, str]] = {
    RELEASE_NAME: "Helm",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}


class DefinitionsOwner(NamedTuple):
    """Who keeps an object as it is, and undoes what others write.

    Attributes:
        name: such as "Helm".
        key: the label or annotation that says so.
    """

    name: str
    key: str


def owner_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> DefinitionsOwner | None:
    """Who keeps an object as it is; None for nobody."""
    if labels.get(_CHART, "").startswith(_OUR_CHART):
        labels, annotations = (
            {k: v for k, v in one.items() if k not in (_HELM, RELEASE_NAME)} for one in (labels, annotations)
        )
    if labels.get(_HELM) == "Helm":
        return DefinitionsOwner("Helm", _HELM)
    return next(
        (DefinitionsOwner(name, key) for key, name in _KEYS.items() if key in labels or key in annotations), None
    )


def reconciler_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> DefinitionsOwner | None:
    """Who writes an object again by itself, a minute after somebody changed it: Argo CD or Flux; None for nobody. Helm writes at an upgrade only."""
    found = (DefinitionsOwner(name, key) for key, name in _KEYS.items() if key in labels or key in annotations)
    return next((one for one in found if one.name != "Helm"), None)


class SeenLeases:
    """What was seen of another program's Leases, and when. Not thread-safe.

    A new process takes a Lease that nobody renews any more for a program that runs until `SILENT_SECONDS` have passed.

    Attributes:
        name: of the Leases.
        namespaces: in which a Lease counts, sorted.
        renewed: whether one was seen to be renewed, so that the program runs for certain.
    """

    def __init__(self, name: str, namespaces: Iterable[str]) -> None:
        self.name: Final = name
        self.renewed = False
        self.namespaces: Final = tuple(sorted(set(namespaces)))
        self._seen = dict.fromkeys(self.namespaces, SeenLease())

    def beside(self, leases: Iterable[Lease], now: float) -> str:
        """The namespace in which the other program leads; "" for none.

        Args:
            leases: those of `name` in `namespaces`, as they are now.
            now: monotonic seconds.
        """
        found = {lease.metadata.namespace: lease for lease in leases}
        self._seen = {where: one.after(found.get(where), now) for where, one in self._seen.items()}
        self.renewed = any(one.is_renewed(now) for one in self._seen.values())
        return next((where for where, one in self._seen.items() if one.silent_for(now) < SILENT_SECONDS), "")


class KarpenterLeases(SeenLeases):
    """Those of Karpenter; the one owner of whether Karpenter runs beside us.

    Args:
        own: namespace of our own Lease, which has the same name.
        namespace: of a Karpenter that runs elsewhere than usual; "" for none.
    """

    def __init__(self, own: str, namespace: str = "") -> None:
        super().__init__(KARPENTER_LEASE, (_KARPENTER_NAMESPACES | {namespace}) - {own, ""})


class ClusterAutoscalerLeases(SeenLeases):
    """Those of Cluster Autoscaler.

    Args:
        namespace: of one that runs elsewhere than usual; "" for none.
    """

    def __init__(self, namespace: str = "") -> None:
        super().__init__(CLUSTER_AUTOSCALER_LEASE, {CLUSTER_AUTOSCALER_NAMESPACE, namespace} - {""})
