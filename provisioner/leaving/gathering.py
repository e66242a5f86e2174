"""Reads what of Dovetail is in a cluster, past every cache. Kinds that the cluster does not have are left out."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Deployment
from provisioner.apis.meta import ObjectMeta
from provisioner.apis.reports import LEASE_NAME
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import Bare, Resource
from provisioner.leaving.belongings import Belongings, HeldClaim, HeldNode, QueuedJob, QueuedPod

T = TypeVar("T")

_OURS: Final = "app.kubernetes.io/name=dovetail"
_PROVISIONER: Final = f"{_OURS},app.kubernetes.io/component=provisioner"
_KEPT_MAPS: Final = "dovetail-aws-"
_AWS: Final = "aws://"
_WEBHOOK: Final = "dovetail-webhook"


def _decoded(resource: Resource[Any], type_: type[T]) -> Resource[T]:
    """The kind, of which only what `type_` has is read."""
    where = (resource.group, resource.version, resource.plural, resource.kind)
    return Resource(*where, namespaced=resource.namespaced, decode=msgspec.json.Decoder(type_).decode)


def _metadata(resource: Resource[Any]) -> Resource[Bare]:
    return _decoded(resource, Bare)


def _admission(version: str, plural: str, kind: str) -> Resource[Bare]:
    decode = msgspec.json.Decoder(Bare).decode
    return Resource("admissionregistration.k8s.io", version, plural, kind, namespaced=False, decode=decode)


_QUEUED: Final = Resource("", "v1", "pods", "Pod", namespaced=True, decode=msgspec.json.Decoder(QueuedPod).decode)
_JOBS: Final = Resource("batch", "v1", "jobs", "Job", namespaced=True, decode=msgspec.json.Decoder(QueuedJob).decode)
_CLAIMS: Final = _decoded(resources.NODECLAIMS, HeldClaim)
_NODES: Final = _decoded(resources.NODES, HeldNode)
_STAMPING: Final = (
    _metadata(resources.MUTATINGWEBHOOKS),
    _metadata(resources.VALIDATINGWEBHOOKS),
    *(
        _admission(version, f"mutatingadmissionpolic{end}", f"MutatingAdmissionPolicy{kind}")
        for version in ("v1", "v1beta1")
        for end, kind in (("ybindings", "Binding"), ("ies", ""))
    ),
)
_CLASSES: Final = (_metadata(resources.EC2NODECLASSES), _metadata(resources.KWOKNODECLASSES))
_PLAIN: Final[tuple[Resource[Any], ...]] = (
    resources.PODS,
    resources.DEPLOYMENTS,
    resources.NODEPOOLS,
    resources.CRDS,
    resources.CONFIGMAPS,
)
_KINDS: Final[tuple[Resource[Any], ...]] = (*_STAMPING, *_CLASSES, _NODES, _CLAIMS, *map(_metadata, _PLAIN))


def _key(resource: Resource[Any]) -> str:
    """Its plural name, with the version where that is not the one to expect: a policy is served at one of two."""
    return f"{resource.plural}.{resource.version}.{resource.group}" if "beta" in resource.version else resource.plural


WRITTEN: Final[Mapping[str, Resource[Any]]] = {_key(one): one for one in _KINDS}
"""Where steps write, by `LeaveStep.kind`."""


class CloudTags(Protocol):
    """Tags of a cloud's instances."""

    def found(self, provider_ids: Iterable[str]) -> tuple[str, ...]:
        """IDs of the instances that a collector would find: these, and others of their clusters, as far as they carry such tags.

        Raises:
            UndeterminedError: the cloud cannot be asked.
        """
        ...

    def remove(self, instances: Iterable[str]) -> None:
        """Remove these tags.

        Raises:
            UndeterminedError: they could not be removed.
        """
        ...


def gathered(client: Client, namespace: str, tags: CloudTags | None = None) -> Belongings:
    """Everything, now.

    Args:
        client: RBAC: an administrator's.
        namespace: of the programs.
        tags: asked where nodes run in its cloud; None where tags stay.

    Raises:
        ApiError: something could not be read.
        UndeterminedError: likewise, of the cloud.
    """
    pods = tuple(pod for pod in client.list(_QUEUED, field_selector="spec.nodeName=") if not pod.spec.node_name)
    ours = client.list(_QUEUED, field_selector=f"spec.schedulerName={names.SCHEDULER_NAME}")
    claims, nodes = tuple(_listed(client, _CLAIMS)), tuple(client.list(_NODES))
    mine = [one.spec.provider_id for one in nodes if _is_managed(one.metadata)]
    instances = {one for one in (*mine, *(claim.status.provider_id for claim in claims)) if one.startswith(_AWS)}
    maps = _listed(client, _metadata(resources.CONFIGMAPS), namespace)
    takeover = client.find(resources.CONFIGMAPS, names.TAKEOVER_CONFIGMAP, namespace)
    return Belongings(
        namespace,
        admission=tuple(_stampers(client)),
        deployments=tuple(map(_sized, client.list(resources.DEPLOYMENTS, label_selector=_PROVISIONER))),
        lease=client.find(resources.LEASES, LEASE_NAME, namespace),
        pods=pods,
        bound=tuple(pod for pod in ours if pod.spec.node_name),
        jobs=_jobs(client, pods),
        claims=claims,
        nodes=nodes,
        classes=tuple((kind.plural, one.metadata) for kind in _CLASSES for one in _listed(client, kind)),
        pools=tuple(one.metadata for one in _listed(client, _metadata(resources.NODEPOOLS))),
        definitions=tuple(_listed(client, resources.CRDS)),
        instances=tags.found(sorted(instances)) if tags is not None and instances else (),
        config_maps=tuple(
            name
            for one in maps
            if (name := one.metadata.name) == names.INSTALLATION_CONFIGMAP or name.startswith(_KEPT_MAPS)
        ),
        takeover=takeover.data.get(names.TAKEOVER_PHASE, "") if takeover is not None else "",
    )


def marked_pods(client: Client) -> tuple[ObjectMeta, ...]:
    """The pods to which the provisioner gave a deletion cost; one page of all pods is in memory at a time."""
    decode = WRITTEN["pods"].decode
    found = (decode(item).metadata for item in client.items(resources.PODS))
    return tuple(one for one in found if names.OWN_DELETION_COST in one.annotations)


def _listed(client: Client, resource: Resource[T], namespace: str = "") -> list[T]:
    try:
        return client.list(resource, namespace)
    except NotFound:
        return []


def _stampers(client: Client) -> Iterable[tuple[str, ObjectMeta]]:
    """Webhook configurations and policies of ours, by label or by name; a policy is served at one version of two."""
    seen: set[str] = set()
    for kind in _STAMPING:
        for one in _listed(client, kind):
            meta = one.metadata
            ours = meta.labels.get("app.kubernetes.io/name") == "dovetail" or meta.name == _WEBHOOK
            if ours and meta.uid not in seen:
                seen.add(meta.uid)
                yield _key(kind), meta


def _sized(deployment: Deployment) -> tuple[ObjectMeta, int]:
    return deployment.metadata, deployment.spec.wanted


def _is_managed(meta: ObjectMeta) -> bool:
    return names.NODEPOOL_LABEL in meta.labels


def _jobs(client: Client, pods: Iterable[QueuedPod]) -> dict[str, QueuedJob]:
    """Of those pods that may have to be made anew."""
    wanted = {
        (pod.metadata.namespace, owner.name)
        for pod in pods
        if (owner := pod.controller) is not None
        and owner.kind == "Job"
        and names.STAMPED_ANNOTATION in pod.metadata.annotations
    }
    found = (client.find(_JOBS, name, namespace) for namespace, name in sorted(wanted))
    return {one.metadata.uid: one for one in found if one is not None}
