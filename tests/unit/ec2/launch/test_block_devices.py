"""Volumes of a class as launch templates carry them."""

from typing import Any

import msgspec
import pytest

from provisioner.apis.ec2 import FAMILIES, EC2NodeClass
from provisioner.ec2.launch.block_devices import block_devices


def of(mappings: Any, family: str = "AL2023") -> list[dict[str, Any]]:
    spec = {"amiFamily": family} | ({} if mappings is None else {"blockDeviceMappings": mappings})
    return block_devices(msgspec.convert({"spec": spec}, EC2NodeClass))


DEFAULTS = {
    "AL2": [("/dev/xvda", 20)],
    "AL2023": [("/dev/xvda", 20)],
    "Bottlerocket": [("/dev/xvda", 6), ("/dev/xvdb", 20)],
    "Windows2019": [("/dev/sda1", 50)],
    "Windows2022": [("/dev/sda1", 50)],
    "Windows2025": [("/dev/sda1", 50)],
    "Custom": [],
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mappings", [None, []])
def test_a_family_s_own_are_encrypted_gp3(family: str, mappings: Any) -> None:
    assert of(mappings, family) == [
        {"DeviceName": name, "Ebs": {"Encrypted": True, "VolumeSize": size, "VolumeType": "gp3"}}
        for name, size in DEFAULTS[family]
    ]


def test_the_class_s_own_replace_all_of_the_family_s() -> None:
    assert of([{"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "100Gi"}}], "Bottlerocket") == [
        {"DeviceName": "/dev/xvdb", "Ebs": {"VolumeSize": 100}}
    ]


def test_every_field() -> None:
    ebs = {
        "deleteOnTermination": False,
        "encrypted": False,
        "iops": 3000,
        "kmsKeyID": "alias/k",
        "snapshotID": "snap-1",
        "throughput": 125,
        "volumeInitializationRate": 100,
        "volumeSize": "20Gi",
        "volumeType": "io2",
    }
    assert of([{"deviceName": "/dev/xvda", "rootVolume": True, "ebs": ebs}]) == [
        {
            "DeviceName": "/dev/xvda",
            "Ebs": {
                "DeleteOnTermination": False,
                "Encrypted": False,
                "Iops": 3000,
                "KmsKeyId": "alias/k",
                "SnapshotId": "snap-1",
                "Throughput": 125,
                "VolumeInitializationRate": 100,
                "VolumeSize": 20,
                "VolumeType": "io2",
            },
        }
    ]


@pytest.mark.parametrize(
    ("size", "gib"), [("1Gi", 1), ("1G", 1), ("100G", 94), ("1T", 932), ("1Ti", 1024), ("58Ti", 59392)]
)
def test_sizes_are_whole_gib_rounded_up(size: str, gib: int) -> None:
    assert of([{"ebs": {"volumeSize": size}}])[0]["Ebs"]["VolumeSize"] == gib


def test_zero_iops_and_throughput_are_left_out() -> None:
    assert of([{"ebs": {"volumeSize": "1Gi", "iops": 0, "throughput": 0}}]) == [{"Ebs": {"VolumeSize": 1}}]


def test_a_mapping_without_volume_or_name_breaks_nothing() -> None:
    assert of([{"deviceName": "/dev/xvda"}, {}]) == [{"DeviceName": "/dev/xvda"}, {}]
