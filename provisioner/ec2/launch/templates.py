"""Launch templates: what is in one, what it is called, and when it may go. Pure; `TemplateUses` is thread-safe.

A template is named by its content, so equal ones are one, whoever makes them, and nobody has to look before he makes one: "it exists" is as good
as "made". Nothing of a claim is inside. It goes 24 hours after its last use, with its class, or, the oldest first, when the
account's quota of templates is nearly used up.

Source: spec/karpenter-aws.md 5.5.
Differs: a day instead of a minute, so that launches rarely make one; names of our own, so that we never touch one of Karpenter's.
"""

import hashlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass, NetworkInterface
from provisioner.ec2 import labels
from provisioner.ec2.launch.block_devices import block_devices
from provisioner.values import jsontext

NAME_PREFIX: Final = "dovetail.dev/"
KEEP: Final = timedelta(hours=24)
CONFIG_MAP: Final = "dovetail-aws-templates"
CONFIG_KEY: Final = "templates.json"
MAX_USES: Final = 8192
QUOTA: Final = 5000
"""Launch templates of an account in one region, whoever made them. Source: Amazon EC2 User Guide, launch-template-restrictions."""

WARN_AT, EVICT_AT, EVICT_TO = 0.7, 0.9, 0.8
"""Shares of the quota: from where on a warning is logged, and our oldest are deleted, until so many are left."""

IN_USE: Final = timedelta(minutes=10)
"""For so long after its use a template is not deleted for the quota's sake."""

_NO_METADATA_IPV6: Final = frozenset(
    {"us-iso-east-1", "us-iso-west-1", "us-isob-east-1", "us-isob-west-1", "us-isof-south-1", "us-isof-east-1"}
)
_METADATA_DEFAULTS: Final = {
    "HttpEndpoint": "enabled",
    "HttpProtocolIpv6": "disabled",
    "HttpPutResponseHopLimit": 1,
    "HttpTokens": "required",
}


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """What tells the templates of one class and pool apart.

    Attributes:
        user_data: base64, as the template carries it.
        profile: instance profile.
        security_groups: ids.
        group: id of the placement group, "" for none.
        partition: of the placement group, 0 lets EC2 choose.
        interfaces: in place of a usual one: those of the class, or for EFA where a pod asks for it.
        ipv6: whether the cluster's pods have IPv6 addresses.
        reservation: id of the capacity reservation that it launches into, "" for none.
        block: whether that is a capacity block.
        interruptible: whether its owner may take it back.
    """

    image: str
    user_data: str
    profile: str
    security_groups: tuple[str, ...]
    capacity_type: str
    tenancy: str = labels.DEFAULT_TENANCY
    group: str = ""
    partition: int = 0
    interfaces: tuple[NetworkInterface, ...] = ()
    ipv6: bool = False
    reservation: str = ""
    block: bool = False
    interruptible: bool = False


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """A template as CreateLaunchTemplate takes it.

    Attributes:
        name: made of everything else.
        data: LaunchTemplateData.
        tags: of the template itself.
    """

    name: str
    data: dict[str, Any]
    tags: dict[str, str]

    def request(self) -> dict[str, Any]:
        """The parameters of CreateLaunchTemplate.

        No client token: the name does its work, and a token would answer with the template of before, once that is deleted.
        """
        return {
            "LaunchTemplateName": self.name,
            "LaunchTemplateData": self.data,
            "TagSpecifications": [{"ResourceType": "launch-template", "Tags": _tags(self.tags)}],
        }

    def __repr__(self) -> str:
        return f"<Template {self.name}>"  # its data holds user data


def template(
    node_class: EC2NodeClass, instance: InstanceSpec, tags: Mapping[str, str], region: str, *, reservations: bool = True
) -> LaunchTemplate:
    """The template for instances of a class.

    Args:
        node_class: what is the same for all of its instances.
        instance: what is not.
        tags: of the template and of what its instances bring along (interfaces, spot requests); they name cluster, pool and class, so
            that clusters of one account never share a template.
        region: some know no IPv6 metadata endpoint.
        reservations: whether the feature gate ReservedCapacity is on; then no open reservation is used by accident.

    Raises:
        QuantityError: a volume size of the class is no quantity; the API server admits no such class.
    """
    spec = node_class.spec
    data: dict[str, Any] = {
        "ImageId": instance.image,
        "IamInstanceProfile": {"Name": instance.profile},
        "Monitoring": {"Enabled": spec.detailed_monitoring is True},
        "MetadataOptions": metadata_options(node_class, region),
        "NetworkInterfaces": _interfaces(node_class, instance),
        "Placement": _placement(instance),
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": _tags(tags)}
            for kind in (
                "network-interface",
                *(("spot-instances-request",) if instance.capacity_type == names.CAPACITY_SPOT else ()),
            )
        ],
    }
    if instance.user_data:
        data["UserData"] = instance.user_data
    devices = block_devices(node_class)
    if devices:
        data["BlockDeviceMappings"] = devices
    if isinstance(spec.cpu_options, ec2.CPUOptions) and isinstance(spec.cpu_options.nested_virtualization, str):
        data["CpuOptions"] = {"NestedVirtualization": spec.cpu_options.nested_virtualization}
    if node_class.enclaves:
        data["EnclaveOptions"] = {"Enabled": True}
    if reservations:
        data["CapacityReservationSpecification"] = _reservation(instance)
    if instance.reservation and (instance.block or instance.interruptible):
        kind = "capacity-block" if instance.block else "interruptible-capacity-reservation"
        data["InstanceMarketOptions"] = {"MarketType": kind}
    content = msgspec.json.encode([data, dict(tags)], order="deterministic")
    return LaunchTemplate(NAME_PREFIX + hashlib.blake2b(content, digest_size=20).hexdigest(), data, dict(tags))


def ours(name: str, tags: Mapping[str, str], cluster: str) -> bool:
    """Whether a template is one that we made for this cluster; never true of Karpenter's."""
    return name.startswith(NAME_PREFIX) and tags.get(ec2.CLUSTER_NAME_TAG) == cluster


class _Kept(msgspec.Struct, frozen=True):
    v: int
    uses: dict[str, int]


def surplus(total: int, quota: int = QUOTA) -> int:
    """How many of `total` templates have to go, so that the quota does not stop launches."""
    return max(0, total - int(EVICT_TO * quota)) if total > EVICT_AT * quota else 0


class TemplateUses:
    """When each template was last used, kept over restarts.

    Args:
        keep: how long after its last use a template stays.
    """

    def __init__(self, keep: timedelta = KEEP) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._uses: dict[str, datetime] = {}

    def __len__(self) -> int:
        return len(self._uses)

    def used(self, name: str, now: datetime) -> None:
        """A launch named it."""
        with self._lock:
            self._uses[name] = max(now, self._uses.get(name, now))
            self._bound()

    def expired(self, existing: Iterable[str], now: datetime) -> tuple[str, ...]:
        """Those of the existing templates that were not used for as long as they are kept, in order.

        One that is seen for the first time counts as used now: its last use may have been forgotten. Those that no longer exist are
        forgotten.
        """
        with self._lock:
            seen = {name: self._uses.get(name, now) for name in existing}
            self._uses = seen
            self._bound()
            return tuple(sorted(name for name, last in seen.items() if now - last >= self._keep))

    def oldest(self, existing: Iterable[str], count: int, now: datetime) -> tuple[str, ...]:
        """The `count` templates that were not used for longest; those that were a moment ago, or may have been, are left out."""
        with self._lock:
            last = {name: self._uses.get(name, now) for name in existing}
        idle = (name for name, used in last.items() if now - used >= IN_USE)
        return tuple(sorted(idle, key=lambda name: (last[name], name))[:count])

    def to_config(self) -> dict[str, str]:
        """The data of the ConfigMap that keeps this; 80 bytes a template."""
        with self._lock:
            uses = {name: int(last.timestamp()) for name, last in sorted(self._uses.items())}
        return {CONFIG_KEY: msgspec.json.encode(_Kept(1, uses)).decode()}

    def restore(self, data: Mapping[str, str], now: datetime) -> bool:
        """Take over what an earlier process kept; whether it could be read. Uses in the future count as now."""
        text = data.get(CONFIG_KEY)
        if text is None:
            return True
        try:
            kept = jsontext.decoder(_Kept)(text)
            uses = {name: datetime.fromtimestamp(last, UTC) for name, last in kept.uses.items()}
        except (msgspec.DecodeError, ValueError, OverflowError, OSError):
            return False
        if kept.v != 1:
            return False
        with self._lock:
            for name, last in uses.items():
                cut = min(last, now)
                self._uses[name] = max(cut, self._uses.get(name, cut))
            self._bound()
        return True

    def _bound(self) -> None:
        if len(self._uses) > MAX_USES:  # forgetting a use keeps a template longer, never shorter
            newest = sorted(self._uses, key=lambda name: (self._uses[name], name), reverse=True)
            self._uses = {name: self._uses[name] for name in newest[: MAX_USES - MAX_USES // 16]}


def metadata_options(node_class: EC2NodeClass, region: str) -> dict[str, Any]:
    """How instances of a class reach their metadata service; policies may ask for it."""
    given = node_class.spec.metadata_options
    options: dict[str, Any] = dict(_METADATA_DEFAULTS)
    if isinstance(given, ec2.MetadataOptions):
        wanted = {
            "HttpEndpoint": given.http_endpoint,
            "HttpProtocolIpv6": given.http_protocol_ipv6,
            "HttpPutResponseHopLimit": given.http_put_response_hop_limit,
            "HttpTokens": given.http_tokens,
        }
        options |= {name: value for name, value in wanted.items() if not isinstance(value, UnsetType)}
    if region in _NO_METADATA_IPV6:
        del options["HttpProtocolIpv6"]
    options["InstanceMetadataTags"] = "disabled"
    return options


def _placement(instance: InstanceSpec) -> dict[str, Any]:
    placement: dict[str, Any] = {"Tenancy": instance.tenancy}
    if instance.group:
        placement["GroupId"] = instance.group
        if instance.partition:
            placement["PartitionNumber"] = instance.partition
    return placement


def _reservation(instance: InstanceSpec) -> dict[str, Any]:
    if not instance.reservation:
        return {"CapacityReservationPreference": "none"}
    return {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": instance.reservation},
    }


def _interfaces(node_class: EC2NodeClass, instance: InstanceSpec) -> list[dict[str, Any]]:
    """The network interfaces, always said: security groups belong to them then."""
    groups = {"Groups": list(instance.security_groups)}
    extras = _interface_extras(node_class, instance)
    if instance.interfaces:
        return [
            {
                "NetworkCardIndex": one.network_card_index,
                "DeviceIndex": one.device_index,
                "InterfaceType": one.interface_type,
                **groups,
                **({} if one.interface_type == ec2.EFA_ONLY else extras),
            }
            for one in instance.interfaces
        ]
    return [{"DeviceIndex": 0, **groups, **extras}]


def _interface_extras(node_class: EC2NodeClass, instance: InstanceSpec) -> dict[str, Any]:
    spec = node_class.spec
    extras: dict[str, Any] = {}
    if not isinstance(spec.associate_public_ip_address, UnsetType):
        extras["AssociatePublicIpAddress"] = spec.associate_public_ip_address
    if instance.ipv6:  # either prefixes or an address, which alone can be the primary one
        prefixes = spec.ip_prefix_count
        extras |= {"Ipv6PrefixCount": prefixes} if prefixes else {"PrimaryIpv6": True, "Ipv6AddressCount": 1}
    elif spec.ip_prefix_count is not None:
        extras["Ipv4PrefixCount"] = spec.ip_prefix_count
    tracking = spec.connection_tracking
    if isinstance(tracking, ec2.ConnectionTracking):
        wanted = {
            "TcpEstablishedTimeout": tracking.tcp_established_timeout,
            "UdpStreamTimeout": tracking.udp_stream_timeout,
            "UdpTimeout": tracking.udp_timeout,
        }
        extras["ConnectionTrackingSpecification"] = {
            name: value for name, value in wanted.items() if not isinstance(value, UnsetType)
        }
    return extras


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
