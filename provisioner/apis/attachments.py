"""Which volumes pods attach, and by which CSI driver: what pods, PersistentVolumeClaims, volumes and StorageClasses say together. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from provisioner.apis.core import (
    EBS_DRIVER,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    StorageClass,
    Volume,
)
from provisioner.apis.pods import Pod

DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_IN_TREE: Final = {
    "kubernetes.io/aws-ebs": EBS_DRIVER,
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}

Attachment = tuple[str, str]
"""(CSI driver, identity of the volume)"""


class VolumeObjects(Protocol):
    """What is known of volumes.

    Attributes:
        claims: PersistentVolumeClaims by "namespace/name".
        volumes: PersistentVolumes by name.
        classes: StorageClasses by name.
    """

    @property
    def claims(self) -> Mapping[str, PersistentVolumeClaim]: ...
    @property
    def volumes(self) -> Mapping[str, PersistentVolume]: ...
    @property
    def classes(self) -> Mapping[str, StorageClass]: ...


class VolumeError(ValueError):
    """A volume keeps its pod from running anywhere; says which and why."""


def attachments_of(pods: Iterable[Pod], storage: VolumeObjects) -> set[Attachment]:
    """What pods on one node have attached; volumes that cannot be resolved count nothing."""
    found: set[Attachment] = set()
    for pod in pods:
        for volume in pod.shape.volumes:
            try:
                key, claim, spec = claim_of(pod, volume, storage)
                attachment = attachment_of(key, claim, spec, storage)
            except VolumeError:
                continue
            if attachment is not None:
                found.add(attachment)
    return found


def claim_name(pod: Pod, volume: Volume) -> str:
    """Name of the PersistentVolumeClaim of one of a pod's volumes."""
    source = volume.persistent_volume_claim
    return source.claim_name if source is not None else f"{pod.name}-{volume.name}"


def claim_of(
    pod: Pod, volume: Volume, storage: VolumeObjects
) -> tuple[str, PersistentVolumeClaim | None, PersistentVolumeClaimSpec]:
    """Key ("namespace/name"), claim (None while the ephemeral one is not made yet) and its spec.

    Raises:
        VolumeError: there is none.
    """
    key = f"{pod.namespace}/{claim_name(pod, volume)}"
    claim = storage.claims.get(key)
    if claim is not None:
        owners = claim.metadata.owner_references
        if volume.ephemeral is not None and pod.uid and not any(one.uid == pod.uid for one in owners):
            raise VolumeError(
                f"PersistentVolumeClaim {key} was not created for this pod's ephemeral volume {volume.name}"
            )
        return key, claim, claim.spec
    if volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None:
        return key, None, volume.ephemeral.volume_claim_template.spec
    raise VolumeError(f"PersistentVolumeClaim {key} does not exist")


def class_of(key: str, spec: PersistentVolumeClaimSpec, storage: VolumeObjects) -> StorageClass:
    """The StorageClass of a claim, by "namespace/name", that is not bound.

    Raises:
        VolumeError: there is none.
    """
    name = spec.storage_class_name
    if name is None:
        defaults = sorted(
            (one for one in storage.classes.values() if one.metadata.annotations.get(DEFAULT_CLASS) == "true"),
            key=lambda one: one.metadata.name,
        )
        if defaults:
            return defaults[-1]
        name = ""
    if not name:
        raise VolumeError(f"PersistentVolumeClaim {key} is not bound and has no StorageClass")
    found = storage.classes.get(name)
    if found is None:
        raise VolumeError(f"StorageClass {name} of PersistentVolumeClaim {key} does not exist")
    return found


def attachment_of(
    key: str, claim: PersistentVolumeClaim | None, spec: PersistentVolumeClaimSpec, storage: VolumeObjects
) -> Attachment | None:
    """The driver and the identity of a volume; None where no CSI driver is known."""
    if claim is not None and spec.volume_name:
        volume = storage.volumes.get(spec.volume_name)
        if volume is not None:
            if volume.spec.csi is not None:
                return volume.spec.csi.driver, volume.spec.csi.volume_handle or spec.volume_name
            if volume.spec.aws_elastic_block_store is not None:
                return EBS_DRIVER, volume.spec.aws_elastic_block_store.volume_id
            return None
    try:
        storage_class = class_of(key, spec, storage)
    except VolumeError:
        return None
    if not storage_class.provisioner or storage_class.provisioner == NO_PROVISIONER:
        return None
    return _IN_TREE.get(storage_class.provisioner, storage_class.provisioner), f"{key}"
