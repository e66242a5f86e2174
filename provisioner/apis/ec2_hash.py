"""The hashes of an EC2NodeClass, as they stand on the classes and claims of existing clusters.

A claim whose hash differs from its class's has drifted and is replaced, so one wrong bit replaces a fleet; 183 values
of the provider itself hold this module in place (tests/golden). Selectors, IP prefixes and the status are not in them.

Two versions: v6, which we write, and v5, which clusters of Karpenter 1.14 carry. They differ in the kubelet's fields only.
Source: AWS spec 1.5.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from msgspec import UnsetType

from provisioner.apis import ec2
from provisioner.apis.gojson import go_json
from provisioner.apis.structural import Fields, given, integer, mapping, record, string, strings, unordered
from provisioner.values.duration import DurationError, parse_duration
from provisioner.values.quantity import Quantity

HASH_VERSION: Final = "v6"
FORMER_VERSION: Final = "v5"

_INT32: Final = 4
_KUBELET_NUMBERS: Final = {"maxPods": "MaxPods", "podsPerCore": "PodsPerCore"}
_KUBELET_MAPS: Final = {
    "systemReserved": "SystemReserved",
    "kubeReserved": "KubeReserved",
    "evictionHard": "EvictionHard",
    "evictionSoft": "EvictionSoft",
}
_KUBELET_LATER_NUMBERS: Final = {
    "evictionMaxPodGracePeriod": "EvictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent": "ImageGCHighThresholdPercent",
    "imageGCLowThresholdPercent": "ImageGCLowThresholdPercent",
}
FORMER_KUBELET_FIELDS: Final = frozenset(
    {
        "clusterDNS",
        *_KUBELET_NUMBERS,
        *_KUBELET_MAPS,
        "evictionSoftGracePeriod",
        *_KUBELET_LATER_NUMBERS,
        "cpuCFSQuota",
    }
)
"""The fields that a class of Karpenter 1.14 could set on the kubelet."""


def nodeclass_hash(spec: ec2.EC2NodeClassSpec, ca_bundle: str = "") -> str:
    """The decimal text of `karpenter.k8s.aws/ec2nodeclass-hash` for `spec`, version `HASH_VERSION`.

    Args:
        spec: of the class.
        ca_bundle: base64 of the cluster's CA as nodes get it, "" when there is none.

    Raises:
        QuantityError: a volume size is no quantity; the API server admits no such class.

    Cost: 0.5 ms, and 0.35 ms for each KB of user data.
    """
    kubelet = "null" if isinstance(spec.kubelet, UnsetType) or not spec.kubelet else go_json(spec.kubelet)
    return str(unordered((_spec(spec, None), string(spec.family), string(ca_bundle), string(kubelet))))


def former_hash(spec: ec2.EC2NodeClassSpec, ca_bundle: str = "") -> str | None:
    """The hash of version `FORMER_VERSION`; None when the kubelet says what that version had no words for.

    Such a class cannot be what a claim with a hash of that version was made from.

    Raises:
        QuantityError: a volume size is no quantity; the API server admits no such class.
    """
    kubelet = None
    if not isinstance(spec.kubelet, UnsetType):
        kubelet = _former_kubelet(spec.kubelet)
        if kubelet is None:
            return None
    return str(unordered((_spec(spec, kubelet), string(spec.family), string(ca_bundle))))


# --- what the hashes are for -----------------------------------------------------------------------------------


def is_drifted(of_class: Mapping[str, str], of_claim: Mapping[str, str]) -> bool:
    """Whether a claim was made from another spec than its class has now.

    Args:
        of_class: annotations of the class.
        of_claim: annotations of the claim.

    Returns:
        False unless both have a hash, of one version: what cannot be compared has not drifted.
    """
    hashes = of_class.get(ec2.HASH_ANNOTATION), of_claim.get(ec2.HASH_ANNOTATION)
    versions = of_class.get(ec2.HASH_VERSION_ANNOTATION), of_claim.get(ec2.HASH_VERSION_ANNOTATION)
    if None in hashes or None in versions or versions[0] != versions[1]:
        return False
    return hashes[0] != hashes[1]


def class_stamp(spec: ec2.EC2NodeClassSpec, ca_bundle: str = "") -> dict[str, str]:
    """The annotations that tell a class's hash, and that a new claim of it gets.

    A class is stamped after its claims: a crash between leaves claims that are judged again, with the same result.
    """
    return {ec2.HASH_ANNOTATION: nodeclass_hash(spec, ca_bundle), ec2.HASH_VERSION_ANNOTATION: HASH_VERSION}


def claim_stamp(
    annotations: Mapping[str, str], spec: ec2.EC2NodeClassSpec, ca_bundle: str = "", *, drifted: bool
) -> dict[str, str]:
    """The annotations that an existing claim of the class must get, so that both are of `HASH_VERSION`.

    A claim of the former version whose hash is the class's in that version was made from what the class says now: it
    gets the class's hash. One with another hash was not: it keeps that, gets the version only and so has drifted. Of any
    other version nothing can be said; like the provider we take the claim to be as the class is, unless it has drifted.

    Going back to Karpenter 1.14 is safe once the condition Drifted is on such claims: it re-stamps all others.

    Args:
        annotations: of the claim.
        spec: of the class, as it is now.
        ca_bundle: as for `nodeclass_hash`.
        drifted: whether the claim has the condition Drifted.

    Returns:
        Empty when there is nothing to do, which holds for every claim that has no hash at all.
    """
    version = annotations.get(ec2.HASH_VERSION_ANNOTATION)
    found = annotations.get(ec2.HASH_ANNOTATION)
    if version == HASH_VERSION or found is None:
        return {}
    version_only = {ec2.HASH_VERSION_ANNOTATION: HASH_VERSION}
    other = found != former_hash(spec, ca_bundle) if version == FORMER_VERSION else drifted
    return version_only if other else class_stamp(spec, ca_bundle)


# --- the spec --------------------------------------------------------------------------------------------------


def _spec(spec: ec2.EC2NodeClassSpec, kubelet: int | None) -> int:
    return record(
        "EC2NodeClassSpec",
        (
            ("PlacementGroupSelector", _placement_group(spec.placement_group_selector)),
            ("AssociatePublicIPAddress", _flag(spec.associate_public_ip_address)),
            ("UserData", _text(spec.user_data)),
            ("Role", None if isinstance(spec.role, UnsetType) else given(spec.role)),
            ("InstanceProfile", _text(spec.instance_profile)),
            ("Tags", None if isinstance(spec.tags, UnsetType) else strings(spec.tags)),
            ("Kubelet", kubelet),
            ("BlockDeviceMappings", _block_devices(spec.block_device_mappings)),
            ("InstanceStorePolicy", _text(spec.instance_store_policy)),
            ("NetworkInterfaces", _network_interfaces(spec.network_interfaces)),
            ("DetailedMonitoring", _flag(spec.detailed_monitoring)),
            ("MetadataOptions", _metadata(spec.metadata_options)),
            ("ConnectionTracking", _connections(spec.connection_tracking)),
            ("Context", _text(spec.context)),
            ("CPUOptions", _cpu(spec.cpu_options)),
        ),
    )


def _placement_group(selector: ec2.PlacementGroupSelector | UnsetType) -> int | None:
    if isinstance(selector, UnsetType):
        return None
    return record("PlacementGroupSelector", (("Name", _text(selector.name)), ("ID", _text(selector.id))))


def _block_devices(mappings: tuple[ec2.BlockDeviceMapping, ...] | UnsetType) -> int | None:
    if isinstance(mappings, UnsetType):
        return None
    return unordered(
        record(
            "BlockDeviceMapping",
            (
                ("DeviceName", _text(one.device_name)),
                ("EBS", _block_device(one.ebs)),
                ("RootVolume", _flag(True) if one.root_volume else None),
            ),
        )
        for one in mappings
    )


def _block_device(device: ec2.BlockDevice | UnsetType) -> int | None:
    if isinstance(device, UnsetType):
        return None
    size = device.volume_size
    return record(
        "BlockDevice",
        (
            ("DeleteOnTermination", _flag(device.delete_on_termination)),
            ("Encrypted", _flag(device.encrypted)),
            ("IOPS", _number(device.iops)),
            ("KMSKeyID", _text(device.kms_key_id)),
            ("SnapshotID", _text(device.snapshot_id)),
            ("Throughput", _number(device.throughput)),
            ("VolumeInitializationRate", _number(device.volume_initialization_rate, _INT32)),
            ("VolumeSize", None if isinstance(size, UnsetType) else string(str(Quantity.parse(size)))),
            ("VolumeType", _text(device.volume_type)),
        ),
    )


def _network_interfaces(interfaces: tuple[ec2.NetworkInterface, ...] | UnsetType) -> int | None:
    if isinstance(interfaces, UnsetType):
        return None
    return unordered(
        record(
            "NetworkInterface",
            (
                ("NetworkCardIndex", integer(one.network_card_index, _INT32) if one.network_card_index else None),
                ("DeviceIndex", integer(one.device_index, _INT32) if one.device_index else None),
                ("InterfaceType", given(one.interface_type)),
            ),
        )
        for one in interfaces
    )


def _metadata(options: ec2.MetadataOptions | UnsetType) -> int | None:
    if isinstance(options, UnsetType):
        return None
    return record(
        "MetadataOptions",
        (
            ("HTTPEndpoint", _text(options.http_endpoint)),
            ("HTTPProtocolIPv6", _text(options.http_protocol_ipv6)),
            ("HTTPPutResponseHopLimit", _number(options.http_put_response_hop_limit)),
            ("HTTPTokens", _text(options.http_tokens)),
        ),
    )


def _connections(tracking: ec2.ConnectionTracking | UnsetType) -> int | None:
    if isinstance(tracking, UnsetType):
        return None
    return record(
        "ConnectionTracking",
        (
            ("TCPEstablishedTimeout", _number(tracking.tcp_established_timeout, _INT32)),
            ("UDPStreamTimeout", _number(tracking.udp_stream_timeout, _INT32)),
            ("UDPTimeout", _number(tracking.udp_timeout, _INT32)),
        ),
    )


def _cpu(options: ec2.CPUOptions | UnsetType) -> int | None:
    if isinstance(options, UnsetType):
        return None
    return record("CPUOptions", (("NestedVirtualization", _text(options.nested_virtualization)),))


# --- the kubelet of version 5 ----------------------------------------------------------------------------------


def _former_kubelet(kubelet: Mapping[str, Any]) -> int | None:
    """Of the typed fields; None when there are others, or values of other types."""
    if not kubelet.keys() <= FORMER_KUBELET_FIELDS:
        return None
    try:
        return record("KubeletConfiguration", _former_fields(kubelet))
    except (TypeError, AttributeError, OverflowError, DurationError):
        return None


def _former_fields(kubelet: Mapping[str, Any]) -> Fields:
    addresses = kubelet.get("clusterDNS")
    yield "ClusterDNS", None if addresses is None else unordered(string(one) for one in addresses)
    for key, name in _KUBELET_NUMBERS.items():
        yield name, _int32(kubelet.get(key))
    for key, name in _KUBELET_MAPS.items():
        entries = kubelet.get(key)
        yield name, None if entries is None else strings(entries)
    periods = kubelet.get("evictionSoftGracePeriod")
    yield (
        "EvictionSoftGracePeriod",
        None if periods is None else mapping({key: _duration(period) for key, period in periods.items()}),
    )
    for key, name in _KUBELET_LATER_NUMBERS.items():
        yield name, _int32(kubelet.get(key))
    quota = kubelet.get("cpuCFSQuota")
    if not isinstance(quota, bool | None):
        raise TypeError(f"cpuCFSQuota is {quota!r}")
    yield "CPUCFSQuota", None if quota is None else _flag(quota)


def _int32(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no integer")
    return integer(value, _INT32)


def _duration(period: str) -> int:
    nanos = parse_duration(period) // timedelta(microseconds=1) * 1000
    return record("Duration", (("Duration", integer(nanos) if nanos else None),))


# --- scalars behind a pointer: set, even when zero -------------------------------------------------------------


def _flag(value: bool | UnsetType) -> int | None:
    return None if isinstance(value, UnsetType) else integer(int(value), 1)


def _text(value: str | UnsetType) -> int | None:
    return None if isinstance(value, UnsetType) else string(value)


def _number(value: int | UnsetType, size: int = 8) -> int | None:
    return None if isinstance(value, UnsetType) else integer(value, size)
