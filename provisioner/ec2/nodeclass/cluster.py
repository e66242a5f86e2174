"""The cluster that instances join: name, endpoint, authority, version, Services and DNS.

Asked for in the background and kept when asking fails; nobody waits for it. Source: spec/karpenter-aws.md 3.7.
Differs: the CIDR of Services comes from the API server where EKS does not know the cluster, so AL2023 works on other control planes; a failure
    at the start is tried again instead of ending the process.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from provisioner.cloudprovider.errors import CloudError
from provisioner.ec2.access.client import Clients
from provisioner.ec2.access.errors import classify_exception
from provisioner.ec2.launch.userdata.inputs import JoinedCluster, has_ipv6
from provisioner.ec2.settings import AwsSettings
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.server_version import minor_of, server_minor
from provisioner.support import logs
from provisioner.support.poller import Poller
from provisioner.values import jsontext
from provisioner.values.message import Said

REFRESH_SECONDS: Final = 300.0
RETRY_SECONDS: Final = 5.0
_DNS: Final = ("kube-dns", "kube-system")
_SERVICE_CIDR: Final = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
_log = logs.get_logger(__name__)
_decode = jsontext.decoder(dict)
_FAMILY_NOT_KNOWN: Final = Said(
    "whether its pods have IPv4 or IPv6 addresses (allow eks:DescribeCluster, or reading Service kube-system/kube-dns)"
)


class NotKnownYet(CloudError):  # noqa: N818  (a state, not a fault)
    """Something of the cluster that every instance needs is not known yet; it is asked for again in the background."""

    def __init__(self, missing: tuple[str, ...]) -> None:
        super().__init__(missing)
        self.missing = missing

    def __str__(self) -> str:
        return Said(f"not yet known about the cluster: {', '.join(self.missing)}")


@dataclass(frozen=True, slots=True)
class EksCluster:
    """What EKS says of the cluster.

    Attributes:
        cidr: of its Services, IPv4 or IPv6.
    """

    arn: str
    endpoint: str
    ca_bundle: str
    minor: int
    cidr: str
    vpc: str

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "EksCluster":
        """From the answer of DescribeCluster."""
        found: Mapping[str, Any] = answer.get("cluster", {})
        network: Mapping[str, Any] = found.get("kubernetesNetworkConfig") or {}
        return cls(
            found.get("arn", ""),
            found.get("endpoint", ""),
            (found.get("certificateAuthority") or {}).get("data", ""),
            minor_of(found.get("version", "")),
            next((cidr for key in _cidrs(network) if (cidr := network.get(key))), ""),
            (found.get("resourcesVpcConfig") or {}).get("vpcId", ""),
        )


@dataclass(frozen=True, slots=True)
class Sources:
    """What is known from where; the defaults mean: not (yet).

    Attributes:
        eks: of DescribeCluster.
        server_minor: the API server's own word.
        dns: address of the Service kube-dns; "" where there is none, None where nobody could say.
        cidr: of Services, from the API server; likewise.
        authority: the PEM file that we ourselves trust the API server by.
    """

    eks: EksCluster | None = None
    server_minor: int = 0
    dns: str | None = ""
    cidr: str | None = ""
    authority: bytes = b""


def decide(settings: AwsSettings, sources: Sources) -> JoinedCluster:
    """The cluster, as far as it is known; settings win over what was discovered.

    Raises:
        NotKnownYet: the endpoint, the authority or the version is missing, or whether pods have IPv4 or IPv6 addresses.
    """
    eks = sources.eks or EksCluster("", "", "", 0, "", "")
    endpoint = settings.cluster_endpoint or eks.endpoint
    own = base64.b64encode(sources.authority).decode()
    bundle = settings.cluster_ca_bundle or own or eks.ca_bundle
    minor = (eks.minor if settings.eks_control_plane else 0) or sources.server_minor
    dns, cidr = sources.dns or "", eks.cidr or sources.cidr or ""
    family = bool(dns or cidr) or None not in {sources.dns, sources.cidr}  # with neither of them it is IPv4's
    known = {
        Said("its endpoint (set CLUSTER_ENDPOINT, or allow eks:DescribeCluster)"): endpoint,
        Said("its certificate authority (set CLUSTER_CA_BUNDLE)"): bundle,
        Said("its version"): minor,
        _FAMILY_NOT_KNOWN: family,
    }
    missing = tuple(what for what, value in known.items() if not value)
    if missing:
        raise NotKnownYet(missing)
    return JoinedCluster(settings.cluster_name, endpoint, bundle, minor, cidr, dns)


def _cidrs(network: Mapping[str, Any]) -> tuple[str, str]:
    """Where the CIDR of Services stands, the cluster's own family first."""
    both = ("serviceIpv4Cidr", "serviceIpv6Cidr")
    return both[::-1] if network.get("ipFamily") == "ipv6" else both


def _newer(now: str | None, before: str | None) -> str | None:
    """What was known stays where there is nothing newer."""
    return now or before or (now if now is not None else before)


class EksFacts:
    """What is known of the cluster, kept fresh by its `poller`: at once and then every five minutes. Thread-safe.

    Args:
        authority: content of the CA file that the API server is trusted by, as it is: the hash of classes depends on every byte.
    """

    def __init__(self, aws: Clients, client: Client, settings: AwsSettings, authority: bytes = b"") -> None:
        self._aws, self._client, self._settings = aws, client, settings
        self._sources = Sources(dns=None, cidr=None, authority=authority)
        self._failures: dict[str, str] = {}
        self.poller = Poller("cluster-facts", self._poll, RETRY_SECONDS)

    def __repr__(self) -> str:
        return f"<ClusterFacts {self._settings.cluster_name} from {self._sources!r}>"

    def cluster(self) -> JoinedCluster:
        """The cluster as last seen. Raises `NotKnownYet`."""
        return decide(self._settings, self._sources)

    def ipv6(self, kubelet: Mapping[str, Any]) -> bool:
        """Whether nodes of that kubelet have IPv6 addresses, as far as is known; while nothing is, none is launched."""
        try:
            return has_ipv6(kubelet, self.cluster())
        except NotKnownYet:
            return has_ipv6(kubelet, None)

    @property
    def eks(self) -> EksCluster | None:
        """What EKS said last; None where it was not asked, or has not answered."""
        return self._sources.eks

    def refresh(self) -> bool:
        """Ask every source that has news; whether everything that instances need is known."""
        before = self._sources
        minor, dns = self._server_minor(), self._dns()
        eks = self._ask_eks() if self._wants_eks() else None
        found = Sources(
            eks or before.eks, minor or before.server_minor, _newer(dns, before.dns), before.cidr, before.authority
        )
        if not (found.eks and found.eks.cidr) and not found.cidr:
            found = replace(found, cidr=_newer(self._service_cidr(), before.cidr))
        self._sources = found
        try:
            known = self.cluster()
        except NotKnownYet:
            return False
        if before != found:
            _log.info(
                "Discovered the cluster",
                endpoint=known.endpoint,
                version=f"1.{known.minor}",
                cidr=known.cidr,
                dns=known.dns,
            )
        return True

    def _poll(self) -> float:
        return REFRESH_SECONDS if self.refresh() else RETRY_SECONDS

    def _wants_eks(self) -> bool:
        """Its version may change, everything else of it does not."""
        return self._sources.eks is None or self._settings.eks_control_plane

    def _ask_eks(self) -> EksCluster | None:
        try:
            answer = self._aws.client("eks").describe_cluster(name=self._settings.cluster_name)
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            self._failed("eks:DescribeCluster", str(classify_exception(error)))
            return None
        self._failures.pop("eks:DescribeCluster", None)
        return EksCluster.of(answer)

    def _server_minor(self) -> int:
        try:
            return server_minor(self._client)
        except (ApiError, ValueError) as error:
            self._failed("/version", str(error))
            return 0

    def _dns(self) -> str | None:
        """The address of the Service; "" where there is none, None where nobody says."""
        try:
            return self._client.get(resources.SERVICES, *_DNS).spec.cluster_ip
        except ApiError as error:
            self._failed("Service kube-system/kube-dns", str(error))
            return "" if isinstance(error, NotFound) else None

    def _service_cidr(self) -> str | None:
        """The CIDR of Services, likewise."""
        try:
            found = jsontext.decode_trimmed(_decode, self._client.raw("GET", _SERVICE_CIDR))[0]
            return str(found["spec"]["cidrs"][0])
        except (ApiError, ValueError, LookupError, TypeError) as error:
            self._failed("ServiceCIDR kubernetes", str(error))
            return "" if isinstance(error, NotFound) else None

    def _failed(self, what: str, why: str) -> None:
        """Log each failure once, until it changes."""
        if self._failures.get(what) != why:
            self._failures[what] = why
            _log.warning("Failed to discover the cluster; retrying", what=what, error=why)
