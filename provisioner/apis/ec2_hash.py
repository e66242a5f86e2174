"""The hashes of an EC2NodeClass, as they stand on the classes and claims of existing clusters.

A claim whose hash differs from its class's has drifted and is replaced, so one wrong bit replaces a fleet; 196 values
of the provider itself hold this module in place (tests/golden). Selectors, IP prefixes and the status are not in them.

Two versions: v6, which we write, and v5, which clusters of Karpenter 1.14 carry. They differ in the kubelet's fields only.
Source: AWS spec 1.5.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from provisioner.apis import ec2
from provisioner.apis.gojson import go_json
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.structural import Fields, integer, mapping, record, string, strings, unordered
from provisioner.values.duration import DurationError, parse_duration
from provisioner.values.quantity import Quantity

HASH_VERSION: Final = "v6"
FORMER_VERSION: Final = "v5"
NODE_CLASS: Final = "NodeClassDrift"

_INT32: Final = 4
_SIZE: Final = "VolumeSize"
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


def static_drift(claim: NodeClaim, node_class: ec2.EC2NodeClass) -> str:
    """What the hashes say, without asking EC2: NodeClassDrift, or ""; nothing of a class with fields that this version does not know."""
    drifted = not node_class.unknown_fields and is_drifted(node_class.metadata.annotations, claim.metadata.annotations)
    return NODE_CLASS if drifted else ""


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

_SPEC: Final = {
    "placement_group_selector": "PlacementGroupSelector",
    "associate_public_ip_address": "AssociatePublicIPAddress",
    "user_data": "UserData",
    "role": "Role",
    "instance_profile": "InstanceProfile",
    "tags": "Tags",
    "kubelet": "Kubelet",
    "block_device_mappings": "BlockDeviceMappings",
    "instance_store_policy": "InstanceStorePolicy",
    "network_interfaces": "NetworkInterfaces",
    "detailed_monitoring": "DetailedMonitoring",
    "metadata_options": "MetadataOptions",
    "enclave_options": "EnclaveOptions",
    "connection_tracking": "ConnectionTracking",
    "context": "Context",
    "cpu_options": "CPUOptions",
}
"""The fields that count and their names in Go, in the order in which Go declares them."""
_PARTS: Final[Mapping[type[msgspec.Struct], tuple[str, ...]]] = {
    ec2.PlacementGroupSelector: ("Name", "ID"),
    ec2.BlockDeviceMapping: ("DeviceName", "EBS", "RootVolume"),
    ec2.BlockDevice: (
        *("DeleteOnTermination", "Encrypted", "IOPS", "KMSKeyID", "SnapshotID", "Throughput"),
        *("VolumeInitializationRate", _SIZE, "VolumeType"),
    ),
    ec2.NetworkInterface: ("NetworkCardIndex", "DeviceIndex", "InterfaceType"),
    ec2.MetadataOptions: ("HTTPEndpoint", "HTTPProtocolIPv6", "HTTPPutResponseHopLimit", "HTTPTokens"),
    ec2.ConnectionTracking: ("TCPEstablishedTimeout", "UDPStreamTimeout", "UDPTimeout"),
    ec2.EnclaveOptions: ("Enabled",),
    ec2.CPUOptions: ("NestedVirtualization",),
}
"""Likewise of what is within it: all fields, in our order."""
_SMALL: Final = frozenset({"VolumeInitializationRate", *_PARTS[ec2.ConnectionTracking]})
"""Integers of 32 bits; others have 64."""
_NO_POINTERS: Final = frozenset({"Role", "RootVolume", *_PARTS[ec2.EnclaveOptions], *_PARTS[ec2.NetworkInterface]})
"""Skipped where they are zero; others are set even then. Their integers have 32 bits, too."""


def _spec(spec: ec2.EC2NodeClassSpec, kubelet: int | None) -> int:
    fields = ((name, kubelet if name == "Kubelet" else _value(name, getattr(spec, own))) for own, name in _SPEC.items())
    return record("EC2NodeClassSpec", fields)


def _value(name: str, value: Any) -> int | None:
    if isinstance(value, UnsetType) or (name in _NO_POINTERS and not value):
        return None
    match value:
        case bool():
            return integer(int(value), 1)
        case int():
            return integer(value, _INT32 if name in _SMALL or name in _NO_POINTERS else 8)
        case _ if name == _SIZE:
            return string(str(Quantity.parse(value)))
        case str():
            return string(value)
        case dict():
            return strings(value)
        case tuple():
            return unordered(map(_part, value))
        case _:
            return _part(value)


def _part(value: msgspec.Struct) -> int:
    named = zip(_PARTS[type(value)], value.__struct_fields__, strict=True)
    return record(type(value).__name__, ((name, _value(name, getattr(value, own))) for name, own in named))


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
    yield "CPUCFSQuota", None if quota is None else integer(int(quota), 1)


def _int32(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not an integer")
    return integer(value, _INT32)


def _duration(period: str) -> int:
    nanos = parse_duration(period) // timedelta(microseconds=1) * 1000
    return record("Duration", (("Duration", integer(nanos) if nanos else None),))
