"""What volumes demand of a node, and what keeps them from being had."""

import pytest

from provisioner.apis.attachments import VolumeError, attachments_of
from provisioner.apis.core import (
    CSIVolumeSource,
    EphemeralVolumeSource,
    LabelledMeta,
    NodeSelector,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSource,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeClaimTemplate,
    PersistentVolumeSpec,
    StorageClass,
    StorageClassMeta,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    Volume,
    VolumeClaimMeta,
    VolumeNodeAffinity,
)
from provisioner.apis.names import BIND_COMPLETED, ZONE_LABEL
from provisioner.apis.pods import Pod
from provisioner.scheduling.constraints.volumes import NO_VOLUMES, volume_demand
from provisioner.scheduling.problem import Storage
from tests.support import checker, problems
from tests.support.problems import EPOCH, pod, requirements, shape, term
from tests.support.question import solve

DRIVER = "csi.example.com"
LATE = "WaitForFirstConsumer"


def using(*claims: str) -> Pod:
    volumes = tuple(
        Volume(name=claim, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=claim)) for claim in claims
    )
    return pod("p", shape(volumes=volumes))


def claim(name: str, *, volume: str = "", kind: str | None = None, phase: str = "", bound: bool = True, gone: bool = False, modes: tuple[str, ...] = ()) -> PersistentVolumeClaim:  # fmt: skip
    return PersistentVolumeClaim(
        metadata=VolumeClaimMeta(
            name=name,
            annotations={BIND_COMPLETED: "yes"} if volume and bound else {},
            deletion_timestamp=EPOCH if gone else None,
        ),
        spec=PersistentVolumeClaimSpec(volume_name=volume, storage_class_name=kind, access_modes=modes),
        status=PersistentVolumeClaimStatus(phase=phase),
    )


def volume(name: str, *zones: str, labels: dict[str, str] | None = None, gone: bool = False) -> PersistentVolume:
    terms = tuple(term((ZONE_LABEL, "In", [zone])) for zone in zones)
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms)) if terms else None
    return PersistentVolume(
        metadata=LabelledMeta(name=name, labels=labels or {}, deletion_timestamp=EPOCH if gone else None),
        spec=PersistentVolumeSpec(
            node_affinity=affinity, csi=CSIVolumeSource(driver=DRIVER, volume_handle=f"h-{name}")
        ),
    )


def kind(name: str, *zones: str, mode: str = LATE, provisioner: str = DRIVER) -> StorageClass:
    allowed = tuple(
        TopologySelectorTerm(
            match_label_expressions=(TopologySelectorLabelRequirement(key=ZONE_LABEL, values=(zone,)),)
        )
        for zone in zones
    )
    return StorageClass(
        metadata=StorageClassMeta(name=name),
        provisioner=provisioner,
        volume_binding_mode=mode,
        allowed_topologies=allowed,
    )


def storage(*parts: PersistentVolumeClaim | PersistentVolume | StorageClass) -> Storage:
    return Storage(
        claims={f"default/{one.metadata.name}": one for one in parts if isinstance(one, PersistentVolumeClaim)},
        volumes={one.metadata.name: one for one in parts if isinstance(one, PersistentVolume)},
        classes={one.metadata.name: one for one in parts if isinstance(one, StorageClass)},
    )


def test_a_pod_without_claims_demands_nothing() -> None:
    assert volume_demand(pod("p"), Storage()) is NO_VOLUMES


def test_volumes_of_several_zones_leave_the_zones_that_all_can_reach() -> None:
    known = storage(claim("c", volume="v"), volume("v", "a", "b"), claim("d", volume="w"), volume("w", "b", "c"))
    demand = volume_demand(using("c", "d"), known)
    assert [one.requirements for one in demand.alternatives] == [requirements((ZONE_LABEL, "In", ["b"]))]
    assert demand.attachments == ((DRIVER, "h-v"), (DRIVER, "h-w"))


def test_the_zone_label_of_a_volume_counts() -> None:
    demand = volume_demand(using("c"), storage(claim("c", volume="v"), volume("v", labels={ZONE_LABEL: "a__b"})))
    assert [one.requirements for one in demand.alternatives] == [requirements((ZONE_LABEL, "In", ["a", "b"]))]


def test_a_volume_to_come_goes_where_its_class_allows() -> None:
    demand = volume_demand(using("c"), storage(claim("c", kind="k"), kind("k", "a", "b")))
    assert len(demand.alternatives) == 2
    assert demand.attachments == ((DRIVER, "default/c"),)


def test_an_ephemeral_volume_is_judged_by_its_template_until_its_claim_is_made() -> None:
    template = PersistentVolumeClaimTemplate(spec=PersistentVolumeClaimSpec(storage_class_name="k"))
    scratch = Volume(name="s", ephemeral=EphemeralVolumeSource(volume_claim_template=template))
    demand = volume_demand(pod("p", shape(volumes=(scratch,))), storage(kind("k", "a")))
    assert demand.attachments == ((DRIVER, "default/p-s"),)


def test_an_in_tree_provisioner_counts_as_its_driver() -> None:
    known = storage(claim("c", kind="k"), kind("k", provisioner="kubernetes.io/aws-ebs"))
    assert volume_demand(using("c"), known).attachments == (("ebs.csi.aws.com", "default/c"),)


def test_a_claim_for_one_pod_is_told() -> None:
    known = storage(claim("c", volume="v", modes=("ReadWriteOncePod",)), volume("v"))
    assert volume_demand(using("c"), known).exclusive == ("default/c",)


BAD: dict[str, tuple[Storage, str]] = {
    "a claim that does not exist": (Storage(), "does not exist"),
    "a claim that is going": (storage(claim("c", volume="v", gone=True), volume("v")), "is being deleted"),
    "a claim that lost its volume": (storage(claim("c", volume="v", phase="Lost"), volume("v")), "has lost its PersistentVolume"),
    "a claim whose binding is not complete": (storage(claim("c", volume="v", bound=False), volume("v")), "not yet bound"),
    "a volume that does not exist": (storage(claim("c", volume="v")), "PersistentVolume v of PersistentVolumeClaim default/c does not"),
    "a volume that is going": (storage(claim("c", volume="v"), volume("v", gone=True)), "is being deleted"),
    "no class and no volume": (storage(claim("c")), "has no StorageClass"),
    "an unknown class": (storage(claim("c", kind="k")), "StorageClass k"),
    "immediate binding that has not happened": (storage(claim("c", kind="k"), kind("k", mode="Immediate")), "immediate"),
    "no free local volume": (storage(claim("c", kind="k"), kind("k", provisioner="kubernetes.io/no-provisioner")), "no available PersistentVolume"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_what_keeps_a_volume_from_being_had_is_told(case: tuple[Storage, str]) -> None:
    known, want = case
    with pytest.raises(VolumeError, match=want):
        volume_demand(using("c"), known)


def test_what_a_node_has_attached_counts_each_volume_once() -> None:
    known = storage(claim("c", volume="v"), volume("v"))
    assert attachments_of([using("c"), using("c"), using("unknown")], known) == {(DRIVER, "h-v")}


@pytest.mark.parametrize(("room", "where"), [("4", {"b": 1}), ("500m", {})])
def test_a_volume_that_is_being_made_for_a_node_keeps_its_pod_there(room: str, where: dict[str, int]) -> None:
    """kube-scheduler lets the pod run there or nowhere until the provisioner gives that node up; a new node would stay empty."""
    asked = problems.problem(
        [pod("p", shape(volumes=problems.uses("c")))],
        problems.pool(),
        bins=[problems.node("a"), problems.node("b", cpu=room)],
        storage=problems.storage(problems.volume_claim("c", chosen="b")),
    )
    result = solve(asked)
    assert {name: len(pods) for name, pods in result.existing.items()} == where
    assert result.claims == ()
    assert checker.violations(asked, result) == []


def test_a_volume_of_another_class_does_not_do_even_for_the_claim_that_it_names() -> None:
    """kube-scheduler looks among the volumes of the class only."""
    reference = ObjectReference(namespace="default", name="c")
    lists = [
        problems.storage(
            problems.storage_class("local", provisioner="kubernetes.io/no-provisioner"),
            problems.volume_claim("c", "local"),
            problems.volume("v", storage_class_name=name, claim_ref=reference),
        )
        for name in ("local", "other")
    ]
    (one,) = volume_demand(using("c"), lists[0]).unbound
    assert one.volumes is not None
    with pytest.raises(VolumeError, match="no available PersistentVolume"):
        volume_demand(using("c"), lists[1])
