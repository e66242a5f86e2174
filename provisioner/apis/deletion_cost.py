"""What annotations of pods say of the cost of their end, and whose word it is.

`controller.kubernetes.io/pod-deletion-cost` orders the pods of a ReplicaSet that shrinks: the least goes first, a pod without one counts as 0. Users
write it, the webhook where a share is asked for, and the provisioner where it ranks pods by their nodes; what the last wrote stands in a
second annotation of ours, too. A value that differs from that is somebody else's.
Source: Kubernetes documentation, ReplicaSet, "Pod deletion cost".
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import field

from provisioner.apis import names
from provisioner.apis.meta import Object
from provisioner.apis.pods import Pod

LEAST: Final = -(2**31)
_MOST: Final = 2**31 - 1
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_KARPENTER: Final = "karpenter"
"""The field manager of Karpenter: the first word of its User-Agent."""


def read_int32(text: str) -> int | None:
    """A number from -2147483648 to 2147483647 in decimal digits; None for anything else."""
    if not _WHOLE.fullmatch(text):
        return None
    value = int(text)
    return value if LEAST <= value <= _MOST else None


def own_cost(pod: Pod) -> int | None:
    """The deletion cost that the provisioner gave the pod; None where it has none, or somebody else's."""
    text = pod.annotations.get(names.POD_DELETION_COST)
    return read_int32(text) if text is not None and text == pod.annotations.get(names.OWN_DELETION_COST) else None


def has_foreign_cost(pod: Pod) -> bool:
    """Whether the pod has a deletion cost that is not the provisioner's."""
    return names.POD_DELETION_COST in pod.annotations and own_cost(pod) is None


def withdrawn(annotations: Mapping[str, str]) -> dict[str, None]:
    """Which annotations go where the provisioner's deletion cost is taken back; that of somebody else stays."""
    mark = annotations.get(names.OWN_DELETION_COST)
    if mark is None:
        return {}
    ours = {names.OWN_DELETION_COST: None}
    return {**ours, names.POD_DELETION_COST: None} if annotations.get(names.POD_DELETION_COST) == mark else ours


def is_marked(pod: Pod) -> bool:
    """Whether the provisioner gave the pod a deletion cost, whatever became of it since."""
    return names.OWN_DELETION_COST in pod.annotations


def deletion_cost(pod: Pod) -> int:
    """What the controller of the pod goes by, whoever wrote it; 0 where nothing is said, or nothing that can be read."""
    return read_int32(pod.annotations.get(names.POD_DELETION_COST, "")) or 0


def disruption_cost(pod: Pod) -> int:
    """What users say that the eviction of the pod costs, in units of which 2**27 are one ordinary pod; 0 where they say nothing that can be read.

    `karpenter.sh/disruption-cost`; only without that, the deletion cost.
    Differs: Karpenter leaves deletion costs out altogether while it writes them; here only those that the provisioner wrote.
    """
    text = pod.annotations.get(names.DISRUPTION_COST)
    if text is not None:
        return read_int32(text) or 0
    return deletion_cost(pod) if has_foreign_cost(pod) else 0


class FieldOwner(Object, frozen=True, kw_only=True):
    """An entry of `managedFields`: who wrote which fields."""

    manager: str = ""
    fields: dict[str, Any] = field(default_factory=dict, name="fieldsV1")


class ManagedMeta(Object, frozen=True, kw_only=True):
    """Metadata with `managedFields`, which the caches leave out."""

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    managed_fields: tuple[FieldOwner, ...] = ()


class ManagedPod(Object, frozen=True, kw_only=True):
    """A pod, as far as it matters who wrote its annotations."""

    metadata: ManagedMeta


def is_ranked(pod: Pod) -> bool:
    """Whether deletion costs of the pod are of use: a ReplicaSet of Kubernetes' own API group controls it."""
    owner = pod.owner
    return owner is not None and owner.kind == "ReplicaSet" and owner.api_version.partition("/")[0] == "apps"


def may_be_karpenters(pod: Pod) -> bool:
    """Whether Karpenter 1.15 may have written its deletion cost (PodDeletionCostManagement): all of its values are below 0."""
    seated = names.ON_DEMAND_SHARE_LABEL in pod.labels  # the webhook wrote it
    return is_ranked(pod) and has_foreign_cost(pod) and deletion_cost(pod) < 0 and not seated


def karpenter_wrote(pod: ManagedPod) -> bool:
    """Whether the deletion cost of a pod is Karpenter's, and nobody else's."""
    key = f"f:{names.POD_DELETION_COST}"
    owners = {one.manager for one in pod.metadata.managed_fields if key in _annotations_of(one)}
    return (read_int32(pod.metadata.annotations.get(names.POD_DELETION_COST, "")) or 0) < 0 and owners == {_KARPENTER}


def _annotations_of(owner: FieldOwner) -> Any:
    metadata = owner.fields.get("f:metadata")
    found = metadata.get("f:annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}
