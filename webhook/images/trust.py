"""Whom a lookup may talk to, and who may hear a password. Pure.

Whoever creates a pod names the host that is asked. So nothing is asked but registries that an operator listed, and the addresses behind their names are
judged too: a name that leads into the cluster, to the machine itself or to a cloud's metadata is refused.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.images.references import DOCKER_HUB, Host, UnusableReferenceError, parse_host

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NEVER: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",  # metadata of most clouds, credentials of EKS Pod Identity
        "100.100.100.200/32",  # metadata of Alibaba Cloud
        "168.63.129.16/32",  # the agent of Azure
        "192.0.0.0/24",  # for protocols; metadata of Oracle Cloud
        "224.0.0.0/3",  # multicast, reserved, broadcast
        "::/96",  # addresses of IPv4 in an old form, and the machine itself
        "::ffff:0:0:0/96",  # addresses of IPv4, translated (SIIT)
        "64:ff9b:1::/48",  # the same, translated by a NAT64 of the network itself, at a place that only it knows
        "fe80::/10",
        "fec0::/10",  # of a site, in an old form
        "fd00:ec2::/32",  # metadata of EC2, credentials of EKS Pod Identity
        "ff00::/8",
    )
)
"""Addresses that no operator can allow."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_ECR: Final = re.compile(
    r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z]{2}(?:-[a-z]+)+-[0-9])\.(?:amazonaws\.com(?:\.cn)?|on\.aws)",
    re.ASCII,
)

_ENDPOINTS: Final[Mapping[str, str]] = {DOCKER_HUB: "registry-1.docker.io"}
"""Registries that answer under another name than the one in references."""
_TOKENS: Final[Mapping[str, tuple[str, ...]]] = {
    DOCKER_HUB: ("auth.docker.io",),
    "registry.gitlab.com": ("gitlab.com",),
}
"""Where registries have their tokens made, where that is another host."""
_STORES: Final[Mapping[str, tuple[str, ...]]] = {
    DOCKER_HUB: ("production.cloudflare.docker.com", "production.cloudfront.docker.com", "*.r2.cloudflarestorage.com"),
    "public.ecr.aws": ("*.cloudfront.net",),
    "quay.io": ("*.quay.io",),
    "ghcr.io": ("pkg-containers.githubusercontent.com",),
    "registry.k8s.io": ("*.pkg.dev", "*.amazonaws.com", "storage.googleapis.com"),
    "*.gcr.io": ("storage.googleapis.com",),
    "gcr.io": ("storage.googleapis.com",),
    "*.pkg.dev": ("storage.googleapis.com",),
    "mcr.microsoft.com": ("*.data.mcr.microsoft.com",),
    "*.azurecr.io": ("*.blob.core.windows.net",),
    "registry.gitlab.com": ("storage.googleapis.com", "cdn.registry.gitlab-static.net"),
}
"""Where registries redirect to; what comes from there without a token is checked by its digest."""


class TrustError(ValueError):
    """A flag that cannot be used; the message is the rest of a sentence."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A host, or every host below a domain.

    Attributes:
        host: the host; of a pattern the domain.
        below: hosts below it are meant, and not it.
    """

    host: Host
    below: bool = False

    def matches(self, host: Host) -> bool:
        """Whether a host is meant; the port is part of it."""
        if host.port != self.host.port:
            return False
        return host.name.endswith(f".{self.host.name}") if self.below else host.name == self.host.name


@dataclass(frozen=True, slots=True)
class ListedImage:
    """A registry that may be asked, and hosts that it may send us to, for tokens too."""

    registry: Pattern
    companions: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True)
class Trust:
    """What an operator allowed; by default nothing.

    Attributes:
        registries: those that may be asked.
        networks: private addresses that registries may have.
        accounts: AWS accounts whose ECR is asked with our own IAM role.
    """

    registries: tuple[ListedImage, ...] = ()
    networks: tuple[Network, ...] = ()
    accounts: frozenset[str] = field(default_factory=frozenset)

    def asks(self, registry: Host) -> bool:
        return self.region_of(registry) is not None or any(one.registry.matches(registry) for one in self.registries)

    def region_of(self, registry: Host) -> str | None:
        """The region of an ECR that our own role may be used for; None for every other registry."""
        found = _ECR.fullmatch(registry.name)
        if found is None or registry.port != 443 or found["account"] not in self.accounts:
            return None
        return found["region"]

    def follows(self, registry: Host, target: Host) -> bool:
        """Whether a registry may redirect us to a host, without any credentials."""
        stores = [*_known(_STORES, registry), *(("*.amazonaws.com", "*.amazonaws.com.cn") if _is_ecr(registry) else ())]
        return (
            target in (registry, endpoint(registry))
            or any(_pattern(text).matches(target) for text in stores)
            or self._listed(registry, target)
        )

    def makes_tokens(self, registry: Host, realm: Host) -> bool:
        """Whether a host makes the tokens of a registry, and so may hear the credentials for it."""
        return (
            realm in (registry, endpoint(registry))
            or any(_pattern(text).matches(realm) for text in _known(_TOKENS, registry))
            or self._listed(registry, realm)
        )

    def reaches(self, address: Address) -> bool:
        """Whether to connect to an address: a public one, or a private one that was listed."""
        real = _unwrapped(address)
        if any(real in network for network in _NEVER if network.version == real.version):
            return False
        if any(real in network for network in self.networks if network.version == real.version):
            return True
        return real.is_global and not real.is_multicast

    def _listed(self, registry: Host, target: Host) -> bool:
        return any(
            pattern.matches(target)
            for one in self.registries
            if one.registry.matches(registry)
            for pattern in one.companions
        )


def endpoint(registry: Host) -> Host:
    """Where a registry answers."""
    return Host(_ENDPOINTS.get(registry.name, registry.name), registry.port)


def _known(table: Mapping[str, tuple[str, ...]], registry: Host) -> tuple[str, ...]:
    return tuple(text for of, texts in table.items() if _pattern(of).matches(registry) for text in texts)


def _is_ecr(registry: Host) -> bool:
    return _ECR.fullmatch(registry.name) is not None


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 address leads to, the address itself where it leads to none."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _pattern(text: str) -> Pattern:
    return Pattern(parse_host(text.removeprefix("*.")), below=text.startswith("*."))


def parse_registries(text: str) -> tuple[ListedImage, ...]:
    """`docker.io,*.example.com,registry.corp.example:5000=tokens.corp.example`: registries, each with the hosts that it may send us to.

    Raises:
        TrustError: an entry is not a host.
    """
    found: list[ListedImage] = []
    for entry in _entries(text):
        try:
            registry, *companions = (_pattern(part.strip()) for part in entry.split("="))
        except UnusableReferenceError as error:
            raise TrustError(
                f"{error}; use HOST, HOST:PORT or *.DOMAIN, with =HOST for each host that it may redirect to"
            ) from error
        found.append(ListedImage(registry, tuple(companions)))
    return tuple(found)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Networks in CIDR notation.

    Raises:
        TrustError: an entry is none, or one that is never allowed.
    """
    found: list[Network] = []
    for entry in _entries(text):
        try:
            network = ipaddress.ip_network(entry)
        except ValueError as error:
            raise TrustError(f"{entry!r} is not a network such as 10.0.0.0/8") from error
        if any(network.version == one.version and network.subnet_of(one) for one in _NEVER):  # type: ignore[arg-type]
            raise TrustError(
                f"{entry!r} holds link-local, metadata, translated or multicast addresses, which are never used"
            )
        found.append(network)
    return tuple(found)


def parse_accounts(text: str) -> frozenset[str]:
    """AWS account IDs.

    Raises:
        TrustError: an entry is none.
    """
    found = frozenset(_entries(text))
    for entry in sorted(found):
        if not re.fullmatch(r"[0-9]{12}", entry, re.ASCII):
            raise TrustError(f"{entry!r} is not an AWS account ID of 12 digits")
    return found


def _entries(text: str) -> Iterable[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
