"""Images and the SSM parameters that name them, of every family and Kubernetes version.

Source of the parameters: https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.support.ec2.filters import next_token, paged, selected, tag_list
from tests.support.ec2.protocol import AwsError

AMAZON: Final = "602401143452"
_GIB: Final = 2**30
_RELEASED: Final = datetime(2026, 8, 3, tzinfo=UTC)
_MINORS: Final = range(28, 38)
_AL2_LAST: Final = 32
_BOTTLEROCKET: Final = ("1.44.0", "1.46.0", "1.50.0", "1.52.0")
_WINDOWS: Final = {"2019": 28, "2022": 28, "2025": 35}


@dataclass
class Image:
    """An AMI.

    Attributes:
        family: which user data its instances read: al2, al2023, bottlerocket, windows, custom.
        variant: standard, nvidia, neuron.
        boot_mode: "" where the image does not say. Source: Amazon EC2 User Guide, ami-boot.
        ena: whether it is enabled for ENA.
    """

    id: str
    name: str
    owner: str
    arch: str
    created: datetime
    family: str
    variant: str = "standard"
    tags: dict[str, str] = field(default_factory=dict)
    deprecated: datetime | None = None
    state: str = "available"
    boot_mode: str = ""
    ena: bool = True

    @property
    def devices(self) -> list[dict[str, Any]]:
        """Its block device mappings; Bottlerocket's snapshots have grown beyond the 4 GiB that Karpenter 1.14 launches them with."""
        sizes = {"bottlerocket": (("/dev/xvda", 6), ("/dev/xvdb", 20)), "windows": (("/dev/sda1", 50),)}
        return [
            {
                "DeviceName": name,
                "Ebs": {
                    "VolumeSize": gib,
                    "VolumeType": "gp3",
                    "DeleteOnTermination": True,
                    "Encrypted": False,
                    "SnapshotId": f"snap-{self.id[4:]}",
                },
            }
            for name, gib in sizes.get(self.family, (("/dev/xvda", 20),))
        ]


class Images:
    """The images of a region, and the public SSM parameters."""

    def __init__(self, account: str, region: str) -> None:
        self._account, self._region = account, region
        self.images: dict[str, Image] = {}
        self.parameters: dict[str, str] = {}
        self.custom: dict[str, str] = {}
        self._releases: list[datetime] = []
        for weeks in (0, 6, 12):
            self._release(_RELEASED + timedelta(weeks=weeks), _BOTTLEROCKET[: 2 + weeks // 6])

    def image(self, image_id: str) -> Image:
        """By id.

        Raises:
            AwsError: there is none, or the id is none.
        """
        if not re.fullmatch(r"ami-[0-9a-z]+", image_id):
            raise AwsError("InvalidAMIID.Malformed", f'Invalid id: "{image_id}" (expecting "ami-...")')
        found = self.images.get(image_id)
        if found is None:
            raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
        return found

    def release(self, now: datetime) -> None:
        """A new version of every family's images comes out; the recommended ones are these now."""
        newest = max(now, self._releases[-1] + timedelta(days=1))
        number = len(self._releases)
        self._release(newest, (*_BOTTLEROCKET, f"1.{50 + 2 * number}.0"))

    def add(
        self,
        image_id: str,
        name: str,
        arch: str,
        tags: Mapping[str, str],
        family: str,
        now: datetime,
        *,
        boot_mode: str = "",
        ena: bool = True,
    ) -> Image:
        """An image of the account's own."""
        made = Image(image_id, name, self._account, arch, now, family, tags=dict(tags), boot_mode=boot_mode, ena=ena)
        self.images[image_id] = made
        return made

    def get_parameter(self, name: str, now: datetime) -> dict[str, Any]:
        """GetParameter's Parameter.

        Raises:
            AwsError: ParameterNotFound.
        """
        if name.startswith("arn:"):
            name = name.partition(":parameter")[2]
        value = self.parameters.get(name, self.custom.get(name))
        if value is None:
            raise AwsError("ParameterNotFound", "")
        public = name.startswith("/aws/service/")
        return {
            "Name": name,
            "Type": "String",
            "Value": value,
            "Version": 1,
            "LastModifiedDate": now.timestamp(),
            "ARN": f"arn:aws:ssm:{self._region}:{'' if public else self._account}:parameter{name}",
            "DataType": "text",
        }

    def describe(self, request: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """DescribeImages."""
        wanted = request.get("ImageIds")
        chosen = [self.image(one) for one in wanted] if wanted else list(self.images.values())
        owners = request.get("Owners")
        if owners:
            chosen = [one for one in chosen if self._owned(one, owners)]
        if not request.get("IncludeDeprecated") and not wanted and not owners:
            chosen = [one for one in chosen if one.deprecated is None or one.deprecated > now]
        chosen = selected(chosen, request.get("Filters"), _facts, lambda one: one.tags)
        page, token = paged(chosen, request)
        return {"Images": [_described(one) for one in page], **next_token(token)}

    def _owned(self, one: Image, owners: Iterable[str]) -> bool:
        names = {one.owner, "self" if one.owner == self._account else "amazon"}
        return any(owner in names for owner in owners)

    def _release(self, when: datetime, bottlerocket: tuple[str, ...]) -> None:
        self._releases.append(when)
        for paths, name, arch, family, variant in _family_images(when, bottlerocket[-1]):
            image_id = "ami-" + hashlib.blake2b(f"{self._region}/{name}".encode(), digest_size=9).hexdigest()[:17]
            boots = "uefi" if arch == "arm64" else "uefi-preferred" if family in {"al2023", "bottlerocket"} else ""
            self.images[image_id] = Image(image_id, name, AMAZON, arch, when, family, variant, boot_mode=boots)
            for path in paths:
                self.parameters[path] = image_id


def _family_images(when: datetime, bottlerocket: str) -> Iterator[tuple[tuple[str, ...], str, str, str, str]]:
    """(SSM paths, name, architecture, family, variant) of everything that one release brings."""
    version = when.strftime("v%Y%m%d")
    for minor in _MINORS:
        kubernetes = f"1.{minor}"
        root = f"/aws/service/eks/optimized-ami/{kubernetes}"
        for arch, variant in (
            ("x86_64", "standard"),
            ("x86_64", "nvidia"),
            ("x86_64", "neuron"),
            ("arm64", "standard"),
            ("arm64", "nvidia"),
        ):
            name = f"amazon-eks-node-al2023-{arch}-{variant}-{kubernetes}-{version}"
            folder = f"{root}/amazon-linux-2023/{arch}/{variant}"
            yield (f"{folder}/recommended/image_id", f"{folder}/{name}/image_id"), name, arch, "al2023", variant
        if minor <= _AL2_LAST:
            for suffix, word, arch, variant in (
                ("", "node", "x86_64", "standard"),
                ("-arm64", "arm64-node", "arm64", "standard"),
                ("-gpu", "gpu-node", "x86_64", "nvidia"),
            ):
                name = f"amazon-eks-{word}-{kubernetes}-{version}"
                folder = f"{root}/amazon-linux-2{suffix}"
                yield (f"{folder}/recommended/image_id", f"{folder}/{name}/image_id"), name, arch, "al2", variant
        for arch in ("x86_64", "arm64"):
            for flavour, variant in (("", "standard"), ("-nvidia", "nvidia")):
                name = f"bottlerocket-aws-k8s-{kubernetes}{flavour}-{arch}-v{bottlerocket}-{when:%m%d}abcd"
                folder = f"/aws/service/bottlerocket/aws-k8s-{kubernetes}{flavour}/{arch}"
                yield (
                    (f"{folder}/latest/image_id", f"{folder}/{bottlerocket}/image_id"),
                    name,
                    arch,
                    "bottlerocket",
                    variant,
                )
        for year, first in _WINDOWS.items():
            if minor >= first:
                name = f"Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}"
                path = f"/aws/service/ami-windows-latest/{name}/image_id"
                yield (path,), f"{name}-{when:%Y.%m.%d}", "x86_64", "windows", "standard"


def _described(one: Image) -> dict[str, Any]:
    return {
        "ImageId": one.id,
        "Name": one.name,
        "OwnerId": one.owner,
        "ImageOwnerAlias": "amazon" if one.owner == AMAZON else None,
        "Architecture": one.arch,
        "CreationDate": one.created.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "DeprecationTime": one.deprecated.strftime("%Y-%m-%dT%H:%M:%S.000Z") if one.deprecated else None,
        "State": one.state,
        "ImageType": "machine",
        "Public": one.owner == AMAZON,
        "Hypervisor": "xen",
        "VirtualizationType": "hvm",
        "BootMode": one.boot_mode or None,
        "EnaSupport": one.ena,
        "RootDeviceType": "ebs",
        "RootDeviceName": one.devices[0]["DeviceName"],
        "BlockDeviceMappings": one.devices,
        "PlatformDetails": "Windows" if one.family == "windows" else "Linux/UNIX",
        "Platform": "windows" if one.family == "windows" else None,
        "Tags": tag_list(one.tags),
    }


def _facts(one: Image) -> Mapping[str, Iterable[str]]:
    return {
        "image-id": (one.id,),
        "name": (one.name,),
        "state": (one.state,),
        "owner-id": (one.owner,),
        "owner-alias": ("amazon",) if one.owner == AMAZON else (),
        "architecture": (one.arch,),
        "is-public": ("true" if one.owner == AMAZON else "false",),
        "virtualization-type": ("hvm",),
        "root-device-type": ("ebs",),
        "platform": ("windows",) if one.family == "windows" else (),
    }
