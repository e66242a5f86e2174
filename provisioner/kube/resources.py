"""The kinds that we read and write, each with its place in the API and its decoder.

`Resource` values are what clients and reflectors are pointed at; a kind that is missing here costs one line.
"""

import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec

from provisioner.apis import core, meta
from provisioner.apis.buffer import CapacityBuffer
from provisioner.apis.conversion.alpha_types import OldObject
from provisioner.apis.ec2 import EC2NodeClass, NewerEC2NodeClass
from provisioner.apis.footprint import OBJECT_BYTES, check_kept, footprint, keeps_little
from provisioner.apis.gangs import GroupSource
from provisioner.apis.karpenter import NewerNodePool, NodeClaim, NodePool
from provisioner.apis.kwok import KWOKNodeClass
from provisioner.apis.openapi import definition_of, unknown_fields
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.pods import Pod, decode_pod
from provisioner.apis.provisioning_request import OLD_VERSION, ProvisioningRequest
from provisioner.apis.shares import SeatedPod, decode_seated
from provisioner.apis.volumes import decode_volume, decode_volume_claim
from provisioner.apis.vpa import VerticalPodAutoscaler
from provisioner.values import jsontext

T = TypeVar("T")

MOST_UNKNOWN: Final = 16
"""Fields that are named of an object that has some which this version does not know."""


class ObjectIdentity(meta.Named, Protocol):
    """What tells one object and its version from others; ObjectMeta and the compact Pod both have it."""

    @property
    def uid(self) -> str: ...

    @property
    def resource_version(self) -> str: ...


class PartialIdentity(msgspec.Struct, frozen=True):
    """What is known of an object that cannot be decoded; "" where even that cannot be read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Identified(msgspec.Struct, frozen=True):
    metadata: PartialIdentity = PartialIdentity()


_decode_identified = msgspec.json.Decoder(_Identified).decode
_IDENTITY = ("name", "namespace", "uid", "resourceVersion")


def identity_in(data: bytes, *within: str) -> PartialIdentity:
    """Which object this is, as far as that can be read: decoded without the rest, else looked for in the bytes.

    Args:
        data: the object, or what holds it; may be damaged anywhere.
        within: the keys under which it stands, where it does not stand alone.
    """
    if not within:
        try:
            return jsontext.decode_trimmed(_decode_identified, data)[0].metadata
        except Exception:  # noqa: S110, BLE001 - then it is read field by field
            pass
    paths = [(*within, "metadata", name) for name in _IDENTITY]
    found = jsontext.strings_at(data, paths)
    return PartialIdentity(*(found.get(path, "") for path in paths))


class Bare(meta.Object, frozen=True, kw_only=True):
    """Any object of which only the metadata is read."""

    metadata: meta.ObjectMeta = msgspec.field(default_factory=meta.ObjectMeta)


def metadata_of(obj: Any) -> ObjectIdentity:
    """The identity of an object that has `metadata`."""
    return cast("ObjectIdentity", obj.metadata)


def itself(obj: Any) -> ObjectIdentity:
    """The identity of an object that carries its name on itself, as the compact Pod does."""
    return cast("ObjectIdentity", obj)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One kind of object in the API.

    Attributes:
        group: "" for the core group.
        plural: the name in paths, e.g. "nodeclaims".
        kind: the name in bodies, e.g. "NodeClaim".
        decode: JSON of one object to the value that we keep; raises msgspec.MsgspecError or ValueError.
        identity: name, namespace, uid and version of a decoded object.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    decode: Callable[[bytes], T]
    identity: Callable[[T], ObjectIdentity] = metadata_of

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """As in bodies: "v1" or "karpenter.sh/v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of its subresource; "" as namespace is all of them.

        Raises:
            ValueError: a namespaced object is named without its namespace.
        """
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        parts = ["", "apis", self.group, self.version] if self.group else ["", "api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts if _plain(name) else [urllib.parse.quote(part, safe="") for part in parts])

    def key(self, obj: T) -> str:
        """The key of one object in stores."""
        return meta.key_of(self.identity(obj))


def _plain(name: str) -> bool:
    return name.replace("-", "").replace(".", "").isalnum() or not name


def _as_it_is(obj: T) -> T:
    return obj


def _without(*fields: str) -> Callable[[Any], Any]:
    """The object without parts of its metadata, which only people and other programs read."""

    def slim(obj: Any) -> Any:
        empty = {field: type(getattr(obj.metadata, field))() for field in fields}
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **empty))

    return slim


_unannotated = _without("annotations", "finalizers", "owner_references")
_unlabelled = _without("labels", "annotations", "finalizers", "owner_references")


def _of_all_pods(budget: core.PodDisruptionBudget) -> core.PodDisruptionBudget:
    """A budget that takes too long to say whose it is may be that of any pod of its namespace."""
    slim: core.PodDisruptionBudget = _unlabelled(budget)
    if footprint(slim.spec, OBJECT_BYTES) <= OBJECT_BYTES:
        return slim
    return msgspec.structs.replace(slim, spec=msgspec.structs.replace(slim.spec, selector=meta.LabelSelector()))


def _kind(
    type_: type[T],
    plural: str,
    *,
    namespaced: bool,
    kept: Callable[[T], T] | None = None,
    api_version: str = "",
    kind: str = "",
) -> Resource[T]:
    """A kind by the type that it is decoded to, which says what `api_version` and `kind` do not.

    `kept`: of a kind that tenants write and programs keep, the object without what nobody reads; asked of long ones alone.
    """
    said = {one.name: one.default_factory for one in msgspec.structs.fields(cast("Any", type_))}
    group, _, version = (api_version or said["api_version"]()).rpartition("/")
    decoder = msgspec.json.Decoder(type_).decode

    def bounded(data: bytes) -> T:
        obj = decoder(data)
        if kept is not None and not keeps_little(data, obj):
            obj = kept(obj)
            check_kept(data, obj)
        return obj

    return Resource(group, version, plural, kind or type_.__name__, namespaced, decoder if kept is None else bounded)


def _noting_unknown(type_: type[T], newer: Callable[..., T]) -> Callable[[bytes], T]:
    """A decoder that makes a `newer` of an object whose spec has fields that the type lacks. Cost: the object is decoded twice."""
    decode = msgspec.json.Decoder(type_).decode

    def read(data: bytes) -> T:
        found = decode(data)
        definition = definition_of(found.api_version, found.kind)  # type: ignore[attr-defined]
        strange = unknown_fields(definition, msgspec.json.decode(data)) if definition is not None else []
        if not strange:
            return found
        known = {name: getattr(found, name) for name in type_.__struct_fields__}  # type: ignore[attr-defined]
        return newer(**known, unread=tuple(sorted(one.path for one in strange))[:MOST_UNKNOWN])

    return read


PODS: Resource[Pod] = Resource("", "v1", "pods", "Pod", namespaced=True, decode=decode_pod, identity=itself)
AMOUNTS_OF_PODS = replace(PODS, decode=partial(decode_pod, amounts=True))
"""Pods with what each container asks for by itself."""
SEATED_PODS: Resource[SeatedPod] = Resource(
    "", "v1", "pods", "Pod", namespaced=True, decode=decode_seated, identity=lambda seated: seated.pod
)
NODES = _kind(core.Node, "nodes", namespaced=False)
NAMESPACES = _kind(core.Namespace, "namespaces", namespaced=False, kept=_unannotated)
CONFIGMAPS = _kind(core.ConfigMap, "configmaps", namespaced=True)
SECRETS = _kind(core.Secret, "secrets", namespaced=True)
SERVICES = _kind(core.Service, "services", namespaced=True)
SERVICEACCOUNTS = _kind(Bare, "serviceaccounts", namespaced=True, api_version="v1", kind="ServiceAccount")
EVENTS = _kind(core.Event, "events", namespaced=True)
PVCS: Resource[core.PersistentVolumeClaim] = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True, decode=decode_volume_claim
)
PVS: Resource[core.PersistentVolume] = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, decode=decode_volume
)
PODTEMPLATES = _kind(core.PodTemplate, "podtemplates", namespaced=True)
LIMITRANGES = _kind(core.LimitRange, "limitranges", namespaced=True, kept=_as_it_is, api_version="v1")
DAEMONSETS = _kind(core.DaemonSet, "daemonsets", namespaced=True, kept=_unlabelled)
DEPLOYMENTS = _kind(core.Deployment, "deployments", namespaced=True)
REPLICASETS = _kind(core.ReplicaSet, "replicasets", namespaced=True)
STATEFULSETS = _kind(core.StatefulSet, "statefulsets", namespaced=True)
WORKLOADS = cast(
    "Mapping[str, Resource[core.Deployment | core.StatefulSet | core.ReplicaSet]]",
    {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFULSETS, "ReplicaSet": REPLICASETS},
)
PDBS = _kind(core.PodDisruptionBudget, "poddisruptionbudgets", namespaced=True, kept=_of_all_pods)
LEASES = _kind(core.Lease, "leases", namespaced=True)
STORAGECLASSES = _kind(core.StorageClass, "storageclasses", namespaced=False, api_version="storage.k8s.io/v1")
CSIDRIVERS = _kind(core.CSIDriver, "csidrivers", namespaced=False, api_version="storage.k8s.io/v1")
CSINODES = _kind(core.CSINode, "csinodes", namespaced=False, api_version="storage.k8s.io/v1")
VOLUMEATTACHMENTS = _kind(core.VolumeAttachment, "volumeattachments", namespaced=False)
RUNTIMECLASSES = _kind(core.RuntimeClass, "runtimeclasses", namespaced=False, api_version="node.k8s.io/v1")
PRIORITYCLASSES = _kind(core.PriorityClass, "priorityclasses", namespaced=False, api_version="scheduling.k8s.io/v1")
PODGROUPS = _kind(core.PodGroup, "podgroups", namespaced=True, kept=_as_it_is, api_version="scheduling.k8s.io/v1beta1")
VOLCANO_GROUPS = _kind(
    core.VolcanoGroup,
    "podgroups",
    namespaced=True,
    kept=_as_it_is,
    api_version="scheduling.volcano.sh/v1beta1",
    kind="PodGroup",
)
COSCHEDULING_GROUPS = _kind(
    core.CoschedulingGroup,
    "podgroups",
    namespaced=True,
    kept=_as_it_is,
    api_version="scheduling.x-k8s.io/v1alpha1",
    kind="PodGroup",
)
GROUP_KINDS: Mapping[GroupSource, Resource[Any]] = {
    GroupSource.POD_GROUP: PODGROUPS,
    GroupSource.VOLCANO: VOLCANO_GROUPS,
    GroupSource.COSCHEDULING: COSCHEDULING_GROUPS,
}
"""The objects that groups of pods are read from; not every API server has them."""
JOBS = _kind(core.Job, "jobs", namespaced=True, kept=_as_it_is, api_version="batch/v1")
AUTOSCALERS = _kind(
    VerticalPodAutoscaler,
    "verticalpodautoscalers",
    namespaced=True,
    kept=_as_it_is,
    api_version="autoscaling.k8s.io/v1",
)
NAMESPACE_LABELS = _kind(
    core.LabelledNamespace, "namespaces", namespaced=False, kept=_as_it_is, api_version="v1", kind="Namespace"
)
# their selectors alone, for default spread constraints: the rest is most of such an object
REPLICASET_SELECTORS = _kind(
    core.PodSelecting, "replicasets", namespaced=True, kept=_as_it_is, api_version="apps/v1", kind="ReplicaSet"
)
STATEFULSET_SELECTORS = _kind(
    core.PodSelecting, "statefulsets", namespaced=True, kept=_as_it_is, api_version="apps/v1", kind="StatefulSet"
)
SERVICE_SELECTORS = _kind(
    core.PodLabelling, "services", namespaced=True, kept=_as_it_is, api_version="v1", kind="Service"
)
REPLICATIONCONTROLLER_SELECTORS = _kind(
    core.PodLabelling,
    "replicationcontrollers",
    namespaced=True,
    kept=_as_it_is,
    api_version="v1",
    kind="ReplicationController",
)
MUTATINGWEBHOOKS = _kind(core.MutatingWebhookConfiguration, "mutatingwebhookconfigurations", namespaced=False)
VALIDATINGWEBHOOKS = _kind(core.ValidatingWebhookConfiguration, "validatingwebhookconfigurations", namespaced=False)
CRDS = _kind(core.CustomResourceDefinition, "customresourcedefinitions", namespaced=False)
NODEPOOLS: Resource[NodePool] = Resource(
    "karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False, decode=_noting_unknown(NodePool, NewerNodePool)
)
NODECLAIMS = _kind(NodeClaim, "nodeclaims", namespaced=False)
NODEOVERLAYS = _kind(NodeOverlay, "nodeoverlays", namespaced=False)
CAPACITYBUFFERS = _kind(CapacityBuffer, "capacitybuffers", namespaced=True, kept=_unlabelled)
PROVISIONINGREQUESTS = _kind(ProvisioningRequest, "provisioningrequests", namespaced=True, kept=_unlabelled)
OLD_PROVISIONINGREQUESTS = replace(PROVISIONINGREQUESTS, version=OLD_VERSION)
"""For a Cluster Autoscaler before 1.31, whose definition has no other version."""
KWOKNODECLASSES = _kind(KWOKNodeClass, "kwoknodeclasses", namespaced=False)
EC2NODECLASSES: Resource[EC2NodeClass] = Resource(
    "karpenter.k8s.aws",
    "v1",
    "ec2nodeclasses",
    "EC2NodeClass",
    namespaced=False,
    decode=_noting_unknown(EC2NodeClass, NewerEC2NodeClass),
)
PROVISIONERS = _kind(
    OldObject, "provisioners", namespaced=False, api_version="karpenter.sh/v1alpha5", kind="Provisioner"
)
AWSNODETEMPLATES = _kind(
    OldObject, "awsnodetemplates", namespaced=False, api_version="karpenter.k8s.aws/v1alpha1", kind="AWSNodeTemplate"
)
