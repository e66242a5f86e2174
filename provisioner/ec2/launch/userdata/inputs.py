"""What user data is made from, and what of it every family treats alike. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.apis import ec2, names
from provisioner.values.taints import Taint

_NOT_FOR_KUBELETS: Final = ("kubernetes.io", "k8s.io", "node-restriction.kubernetes.io")


class UserDataError(ValueError):
    """User data that cannot be written, because of what the user gave or of what is not known; one sentence."""


@dataclass(frozen=True, slots=True)
class JoinedCluster:
    """The cluster that nodes join.

    Attributes:
        name: of the cluster, as EKS knows it.
        endpoint: URL of its API server.
        ca_bundle: base64 of the certificates that its API server is trusted by.
        minor: of its version, e.g. 33 for 1.33.
        cidr: of its Services; "" while not known.
        dns: address of its DNS Service; "" while not known.
    """

    name: str
    endpoint: str
    ca_bundle: str
    minor: int
    cidr: str = ""
    dns: str = ""

    @property
    def ipv6(self) -> bool:
        """Whether its Services, and so its pods, have IPv6 addresses."""
        return ":" in (self.dns or self.cidr)


@dataclass(frozen=True, slots=True)
class NodeInput:
    """One sort of node: everything of equal inputs is launched with the same user data.

    Attributes:
        family: AMI family.
        cluster: that it joins.
        max_pods: for the instance type; always written, whatever the user gave.
        kubelet: the class's fields; validated.
        labels: as `node_labels` gives them.
        taints: as `node_taints` gives them.
        user_data: the user's own.
        raid0: whether the local disks become the node's ephemeral storage.
        bottlerocket_version: as `bottlerocket.version_of` gives it.
    """

    family: str
    cluster: JoinedCluster
    max_pods: int
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    user_data: str = ""
    raid0: bool = False
    bottlerocket_version: str = ""

    @property
    def cluster_dns(self) -> tuple[str, ...]:
        """DNS servers of pods: the user's, else the cluster's; empty when not known."""
        wanted = tuple(self.kubelet.get("clusterDNS") or ())
        return wanted or ((self.cluster.dns,) if self.cluster.dns else ())

    @property
    def ipv6(self) -> bool:
        """Whether it and its pods have IPv6 addresses."""
        return has_ipv6(self.kubelet, self.cluster)


def has_ipv6(kubelet: Mapping[str, Any], cluster: JoinedCluster | None) -> bool:
    """Whether nodes, and so their pods, have IPv6 addresses: the kubelet's first DNS server tells, else what is known of the cluster."""
    servers = kubelet.get("clusterDNS")
    if isinstance(servers, list) and servers:
        return ":" in str(servers[0])
    return cluster is not None and cluster.ipv6


def node_labels(labels: Mapping[str, str], capacity_type: str, family: str) -> dict[str, str]:
    """The labels that a kubelet may set on its own Node, sorted.

    Args:
        labels: of the claim.
        capacity_type: that the instance is launched as.
        family: a Custom image may register its taints late, so they are synchronised there; nowhere else.
    """
    wanted = {**labels, names.CAPACITY_TYPE_LABEL: capacity_type}
    if family != ec2.CUSTOM:
        wanted[names.DO_NOT_SYNC_TAINTS_LABEL] = "true"
    return {key: wanted[key] for key in sorted(wanted) if _allowed(key)}


def _allowed(key: str) -> bool:
    domain = names.label_domain(key)
    return not any(domain == one or domain.endswith(f".{one}") for one in _NOT_FOR_KUBELETS)


def node_taints(taints: Iterable[Taint], startup_taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints that a node registers with: its own, those of its start, and the one that registration takes away."""
    wanted = (*taints, *startup_taints)
    unregistered = names.UNREGISTERED_TAINT
    if any((one.key, one.effect) == (unregistered.key, unregistered.effect) for one in wanted):
        return wanted
    return (*wanted, unregistered)
