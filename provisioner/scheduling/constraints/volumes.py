"""Where the volumes of a pod can be reached, and how many attachments they take.

Each claim leads to alternatives of node labels (the bound volume's node affinity, or what the StorageClass allows for one
that is still to be made); a pod's volumes together are the combinations that do not contradict each other. They narrow
the node side only: topology spread still counts by the pod's own node affinity. Source: core spec 3.3, 3.8.
Differs: Karpenter drops the hostname of local volumes; kube-scheduler does not, so such a pod runs on that node or nowhere.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import msgspec

from provisioner.apis.attachments import (
    NO_PROVISIONER,
    Attachment,
    VolumeError,
    attachment_of,
    claim_name,
    claim_of,
    class_of,
)
from provisioner.apis.core import PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, StorageClass
from provisioner.apis.meta import key_of
from provisioner.apis.names import BIND_COMPLETED, REGION_LABEL, SELECTED_NODE, ZONE_LABEL, normalized_label
from provisioner.apis.pods import Pod
from provisioner.scheduling.constraints.filters import NAME_FIELD, TRIVIAL, FilterError, FilterTerm, read_term
from provisioner.scheduling.constraints.selectors import Expressions, holds, read_selector
from provisioner.scheduling.problem import Storage
from provisioner.values.quantity import QuantityError
from provisioner.values.requirement import Operator, Requirement, RequirementError, Requirements
from provisioner.values.resources import Resources

READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
_FILESYSTEM: Final = "Filesystem"
_AVAILABLE: Final = "Available"
_MOST_ALTERNATIVES: Final = 256
NOTHING_SETTLED: Final[Mapping[str, FilterTerm]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Unbound:
    """A claim whose volume is decided by where its first pod runs.

    Attributes:
        claim: by "namespace/name".
        volumes: (name, terms of the node, any one of which must match) of those that would do, the one first that
            kube-scheduler takes first; None where the volume is made once the place is known.
    """

    claim: str
    volumes: tuple[tuple[str, tuple[FilterTerm, ...]], ...] | None = None


@dataclass(frozen=True, slots=True)
class VolumeDemand:
    """What the volumes of one pod demand.

    Attributes:
        alternatives: any one must match the node.
        fixed: the same, without what the volumes of `unbound` demand that are there already.
        unbound: claims without a volume, those that ask for less first.
        attachments: what the node must attach, sorted; a volume that it has attached already costs nothing.
        exclusive: claims that only one pod at a time may use, by "namespace/name".
    """

    alternatives: tuple[FilterTerm, ...] = (TRIVIAL,)
    fixed: tuple[FilterTerm, ...] = (TRIVIAL,)
    unbound: tuple[Unbound, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    exclusive: tuple[str, ...] = ()


NO_VOLUMES: Final = VolumeDemand()


def volume_demand(pod: Pod, storage: Storage, settled: Mapping[str, FilterTerm] = NOTHING_SETTLED) -> VolumeDemand:
    """What one pod's volumes demand.

    Args:
        pod: it.
        storage: what is known of volumes.
        settled: by unbound claim, what its volume will demand of a node, because a pod uses it already.

    Raises:
        VolumeError: one of them cannot be had.
    """
    if not pod.shape.volumes:
        return NO_VOLUMES
    fixed: tuple[FilterTerm, ...] = (TRIVIAL,)
    free: tuple[FilterTerm, ...] = (TRIVIAL,)
    unbound: dict[str, tuple[int, Unbound]] = {}
    attachments: set[Attachment] = set()
    exclusive: set[str] = set()
    for volume in pod.shape.volumes:
        key, claim, spec = claim_of(pod, volume, storage)
        terms, attachment, one = _reach(key, claim, spec, storage)
        if one is not None and key in settled:
            terms = _combined(terms, (settled[key],))
        if one is not None and key not in unbound:
            unbound[key] = _storage(spec.resources.requests), one
        if one is not None and one.volumes is not None:
            free = _combined(free, terms)
        else:
            fixed = _combined(fixed, terms)
        if attachment is not None:
            attachments.add(attachment)
        if READ_WRITE_ONCE_POD in spec.access_modes:
            exclusive.add(key)
    return VolumeDemand(
        _combined(fixed, free),
        fixed,
        tuple([unbound[key][1] for key in sorted(unbound, key=lambda key: (unbound[key][0], key))]),
        tuple(sorted(attachments)),
        tuple(sorted(exclusive)),
    )


def terms_left(
    demand: VolumeDemand, taken: Container[str], decided: Mapping[str, tuple[FilterTerm, ...]]
) -> tuple[FilterTerm, ...] | str:
    """What a pod's volumes demand while the volumes of some claims are decided; a claim for which no volume is left.

    Args:
        demand: of the pod.
        taken: volumes that other claims get.
        decided: by claim, the terms of its volume.
    """
    ways: list[tuple[frozenset[str], tuple[FilterTerm, ...]]] = [(frozenset(), demand.fixed)]
    for one in demand.unbound:
        if one.claim in decided:
            ways = [(names, _combined(terms, decided[one.claim])) for names, terms in ways]
        elif one.volumes is not None:
            ways = [
                (names | {name}, _combined(terms, more))
                for names, terms in ways
                for name, more in one.volumes
                if name not in taken and name not in names
            ][:_MOST_ALTERNATIVES]
            if not ways:
                return one.claim
    return tuple(dict.fromkeys(term for _, terms in ways for term in terms))[:_MOST_ALTERNATIVES]


def claim_keys(pod: Pod) -> list[str]:
    """The claims that a pod uses, by "namespace/name"."""
    return [f"{pod.namespace}/{claim_name(pod, volume)}" for volume in pod.shape.volumes]


def _reach(
    key: str, claim: PersistentVolumeClaim | None, spec: PersistentVolumeClaimSpec, storage: Storage
) -> tuple[tuple[FilterTerm, ...], Attachment | None, Unbound | None]:
    if claim is not None:
        if claim.metadata.deletion_timestamp is not None:
            raise VolumeError(f"PersistentVolumeClaim {key} is being deleted")
        if claim.status.phase == "Lost":
            raise VolumeError(f"PersistentVolumeClaim {key} has lost its PersistentVolume")
        if spec.volume_name:
            if BIND_COMPLETED not in claim.metadata.annotations:
                raise VolumeError(f"PersistentVolumeClaim {key} is not yet bound to its PersistentVolume")
            volume = storage.volumes.get(spec.volume_name)
            if volume is None:
                raise VolumeError(f"PersistentVolume {spec.volume_name} of PersistentVolumeClaim {key} does not exist")
            if volume.metadata.deletion_timestamp is not None:
                raise VolumeError(
                    f"PersistentVolume {spec.volume_name} of PersistentVolumeClaim {key} is being deleted"
                )
            terms = _combined(_bound_terms(volume), (_labelled(volume),))
            return terms, attachment_of(key, claim, spec, storage), None
    storage_class = class_of(key, spec, storage)
    if storage_class.volume_binding_mode != "WaitForFirstConsumer" and claim is not None:
        raise VolumeError(f"PersistentVolumeClaim {key} is waiting to be bound (immediate binding)")
    if storage_class.provisioner == NO_PROVISIONER:
        volumes = _free_volumes(key, claim, spec, storage_class, storage)
        return tuple(dict.fromkeys(term for _, terms in volumes for term in terms)), None, Unbound(key, volumes)
    terms = _combined(_allowed_terms(storage_class), (_selected(claim),))
    return terms, attachment_of(key, claim, spec, storage), Unbound(key)


def statically_bound(claims: Iterable[PersistentVolumeClaim], storage: Storage) -> list[PersistentVolumeClaim]:
    """The claims as the volume controller will have bound them to volumes that are there, whatever their pods do.

    Those that wait for their first pod, or for a volume that has yet to be made, stay as they are. Claims that name their volume come
    first. Cost: O(claims x volumes) at most.
    """
    taken: set[str] = set()
    found = []
    for claim in sorted(claims, key=lambda one: (not one.spec.volume_name, one.metadata.namespace, one.metadata.name)):
        key, spec, name = key_of(claim.metadata), claim.spec, claim.spec.volume_name
        if not name:
            known = storage.classes.get(spec.storage_class_name or "") or StorageClass()
            if spec.storage_class_name is not None and known.volume_binding_mode != "WaitForFirstConsumer":
                volumes = {one: storage.volumes[one] for one in storage.volumes if one not in taken}
                try:
                    name = _free_volumes(key, claim, spec, known, replace(storage, volumes=volumes))[0][0]
                except VolumeError:
                    name = ""
        if name and name not in taken:
            taken.add(name)
            claim = msgspec.structs.replace(  # noqa: PLW2901 - the claim as it will be
                claim,
                metadata=msgspec.structs.replace(
                    claim.metadata, annotations={**claim.metadata.annotations, BIND_COMPLETED: "yes"}
                ),
                spec=msgspec.structs.replace(spec, volume_name=name),
                status=msgspec.structs.replace(claim.status, phase="Bound"),
            )
        found.append(claim)
    return found


def _selected(claim: PersistentVolumeClaim | None) -> FilterTerm:
    """The Node for which a volume is being made already; its provisioner gives it up where that Node is gone.

    Source: kube-scheduler 1.36 plugins/volumebinding FindPodVolumes.
    """
    name = claim.metadata.annotations.get(SELECTED_NODE, "") if claim is not None else ""
    return FilterTerm(names=Requirement.of(NAME_FIELD, Operator.IN, (name,))) if name else TRIVIAL


def _bound_terms(volume: PersistentVolume) -> tuple[FilterTerm, ...]:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return (TRIVIAL,)
    terms = []
    for number, one in enumerate(affinity.required.node_selector_terms):
        if not one.match_expressions and not one.match_fields:
            continue
        where = f"PersistentVolume {volume.metadata.name}: nodeAffinity.nodeSelectorTerms[{number}]"
        try:
            term = read_term(one, where)
        except FilterError as error:
            raise VolumeError(str(error)) from None
        terms.append(term)
    return tuple(dict.fromkeys(terms))


def _labelled(volume: PersistentVolume) -> FilterTerm:
    """What the zone and region labels of a volume demand; "__" stands between several.

    Source: kube-scheduler 1.36 plugins/volumezone.
    """
    return FilterTerm(
        Requirements.of(
            Requirement.of(stable, Operator.IN, text.split("__"))
            for label, text in volume.metadata.labels.items()
            for stable in (normalized_label(label),)
            if stable in (ZONE_LABEL, REGION_LABEL) and text
        )
    )


def _allowed_terms(storage_class: StorageClass) -> tuple[FilterTerm, ...]:
    terms = []
    for topology in storage_class.allowed_topologies:
        try:
            requirements = Requirements.of(
                Requirement.of(normalized_label(one.key), Operator.IN, one.values)
                for one in topology.match_label_expressions
            )
        except RequirementError as error:
            raise VolumeError(f"StorageClass {storage_class.metadata.name}: allowedTopologies: {error}") from None
        terms.append(FilterTerm(requirements))
    return tuple(dict.fromkeys(terms)) or (TRIVIAL,)


def _free_volumes(
    key: str,
    claim: PersistentVolumeClaim | None,
    spec: PersistentVolumeClaimSpec,
    storage_class: StorageClass,
    storage: Storage,
) -> tuple[tuple[str, tuple[FilterTerm, ...]], ...]:
    """The volumes to one of which a claim of a class without a provisioner could be bound, the smallest first.

    Source: kube-scheduler 1.36 plugins/volumebinding, component-helpers storage/volume FindMatchingVolume.
    """
    wanted = _storage(spec.resources.requests)
    selector = _selector(key, spec)
    mine, free = [], []
    for name, one in sorted(storage.volumes.items()):
        volume, reference = one.spec, one.spec.claim_ref
        if (
            one.metadata.deletion_timestamp is not None
            or spec.volume_name not in ("", name)
            or volume.storage_class_name != storage_class.metadata.name
            or _storage(volume.capacity) < wanted
            or (volume.volume_mode or _FILESYSTEM) != (spec.volume_mode or _FILESYSTEM)
        ):
            continue
        if reference is not None:
            uid = "" if claim is None else claim.metadata.uid
            if f"{reference.namespace}/{reference.name}" == key and reference.uid in ("", uid):
                mine.append(one)
        elif (
            one.status.phase in ("", _AVAILABLE)
            and set(spec.access_modes) <= set(volume.access_modes)
            and (selector is None or holds(selector, one.metadata.labels))
        ):
            free.append(one)
    found = mine or sorted(free, key=lambda one: _storage(one.spec.capacity))
    if not found:
        raise VolumeError(
            f"no available PersistentVolume of StorageClass {storage_class.metadata.name} matches "
            f"PersistentVolumeClaim {key}"
        )
    return tuple([(one.metadata.name, _bound_terms(one)) for one in found])


def _selector(key: str, spec: PersistentVolumeClaimSpec) -> Expressions | None:
    try:
        return read_selector(spec.selector, "spec.selector")
    except FilterError as error:
        raise VolumeError(f"PersistentVolumeClaim {key}: {error}") from None


def _storage(amounts: Mapping[str, str | int | float]) -> int:
    """Bytes of storage; what cannot be read counts as none."""
    try:
        return Resources.parse({"storage": amounts["storage"]}).amount("storage") if "storage" in amounts else 0
    except QuantityError:
        return 0


def _combined(left: tuple[FilterTerm, ...], right: tuple[FilterTerm, ...]) -> tuple[FilterTerm, ...]:
    """Every pair that does not contradict itself; where all do, all, so that the reason can be told later."""
    pairs = tuple(dict.fromkeys(one.joined(other) for one in left for other in right))
    possible = tuple(one for one in pairs if not any(value.is_contradiction for value in one.requirements.values()))
    return (possible or pairs)[:_MOST_ALTERNATIVES]
