"""Volumes of instances, as launch templates carry them. Pure. Source: AWS spec 2.1 and 5.5, Karpenter 1.15 for Bottlerocket."""

from typing import Any, Final

from msgspec import UNSET, UnsetType

from provisioner.apis import ec2
from provisioner.values.quantity import Quantity

_GIB: Final = 2**30

DEFAULT_DEVICES: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    ec2.AL2: (("/dev/xvda", 20),),
    ec2.AL2023: (("/dev/xvda", 20),),
    ec2.BOTTLEROCKET: (("/dev/xvda", 6), ("/dev/xvdb", 20)),
    **dict.fromkeys(ec2.WINDOWS_FAMILIES, (("/dev/sda1", 50),)),
    ec2.CUSTOM: (),
}
"""Device and GiB by family, that with the ephemeral storage last; a Custom image brings its own."""


def block_devices(node_class: ec2.EC2NodeClass) -> list[dict[str, Any]]:
    """BlockDeviceMappings of a launch template: the class's, or when it has none the family's, which are encrypted gp3.

    Returns:
        In the class's order. Empty when the image's own are used.

    Raises:
        QuantityError: a size is no quantity; the API server admits no such class.
    """
    if wanted := node_class.block_device_mappings:
        return [_mapping(one) for one in wanted]
    return [
        {"DeviceName": name, "Ebs": {"Encrypted": True, "VolumeSize": gib, "VolumeType": "gp3"}}
        for name, gib in DEFAULT_DEVICES[node_class.family]
    ]


def _mapping(one: ec2.BlockDeviceMapping) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    if not isinstance(one.device_name, UnsetType):
        mapping["DeviceName"] = one.device_name
    if not isinstance(one.ebs, UnsetType):
        mapping["Ebs"] = _ebs(one.ebs)
    return mapping


def _ebs(device: ec2.BlockDevice) -> dict[str, Any]:
    wanted = {
        "DeleteOnTermination": device.delete_on_termination,
        "Encrypted": device.encrypted,
        "Iops": device.iops or UNSET,
        "KmsKeyId": device.kms_key_id,
        "SnapshotId": device.snapshot_id,
        "Throughput": device.throughput or UNSET,
        "VolumeInitializationRate": device.volume_initialization_rate,
        "VolumeSize": device.volume_size if isinstance(device.volume_size, UnsetType) else _gib(device.volume_size),
        "VolumeType": device.volume_type,
    }
    return {name: value for name, value in wanted.items() if not isinstance(value, UnsetType)}


def _gib(size: str) -> int:
    return -(-Quantity.parse(size).units() // _GIB)
