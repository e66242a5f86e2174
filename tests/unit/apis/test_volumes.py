"""Volumes and claims as they are decoded and kept."""

import json
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import PersistentVolume, PersistentVolumeClaim
from provisioner.apis.volumes import decode_volume, decode_volume_claim

ZONAL = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": names.ZONE_LABEL, "operator": "In", "values": ["test-zone-a"]}]}
        ]
    }
}


def claim(name: str = "data", **spec: Any) -> PersistentVolumeClaim:
    return decode_volume_claim(
        json.dumps(
            {
                "metadata": {
                    "name": name,
                    "namespace": "shop",
                    "annotations": {
                        names.BIND_COMPLETED: "yes",
                        names.SELECTED_NODE: "n1",
                        "kubectl.kubernetes.io/last-applied-configuration": "{}" * 1000,
                    },
                    "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u", "controller": True}],
                },
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
                "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
            }
        ).encode()
    )


def volume(name: str = "v", **spec: Any) -> PersistentVolume:
    return decode_volume(
        json.dumps(
            {
                "metadata": {"name": name, "labels": {names.ZONE_LABEL: "test-zone-a"}},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "1Gi"},
                    "csi": {"driver": "disk.example.com", "volumeHandle": name},
                    "nodeAffinity": ZONAL,
                    **spec,
                },
                "status": {"phase": "Bound"},
            }
        ).encode()
    )


def test_a_claim_keeps_the_binders_annotations_and_no_other() -> None:
    assert claim().metadata.annotations == {names.BIND_COMPLETED: "yes", names.SELECTED_NODE: "n1"}


def test_a_claim_tells_what_it_asks_for_and_whose_it_is() -> None:
    one = claim(storageClassName="fast", volumeName="v")
    assert (one.spec.storage_class_name, one.spec.volume_name, one.status.phase) == ("fast", "v", "Bound")
    assert one.spec.access_modes == ("ReadWriteOnce",)
    assert one.spec.resources.requests == {"storage": "1Gi"}
    assert [owner.uid for owner in one.metadata.owner_references] == ["u"]


@pytest.mark.parametrize(
    ("given", "kept"), [({}, None), ({"storageClassName": ""}, ""), ({"storageClassName": "a"}, "a")]
)
def test_an_absent_class_is_not_the_empty_one(given: dict[str, str], kept: str | None) -> None:
    assert claim(**given).spec.storage_class_name == kept


def test_a_volume_tells_where_it_can_be_reached_and_by_which_driver() -> None:
    one = volume(claimRef={"namespace": "shop", "name": "data", "uid": "u"})
    assert one.spec.csi is not None
    assert (one.spec.csi.driver, one.spec.csi.volume_handle) == ("disk.example.com", "v")
    assert one.spec.node_affinity is not None
    assert one.spec.node_affinity.required is not None
    (term,) = one.spec.node_affinity.required.node_selector_terms
    assert term.match_expressions[0].values == ("test-zone-a",)
    assert one.metadata.labels == {names.ZONE_LABEL: "test-zone-a"}
    assert one.spec.claim_ref is not None
    assert one.spec.claim_ref.uid == "u"


def test_what_many_volumes_have_in_common_is_one_object() -> None:
    left, right = volume("left"), volume("right")
    assert left.spec.node_affinity is right.spec.node_affinity
    assert left.spec.capacity is right.spec.capacity
    assert left.metadata.labels is right.metadata.labels
    assert claim("left").metadata.annotations is claim("right").metadata.annotations


def test_a_local_volume_and_one_of_the_tree_are_told_apart() -> None:
    assert volume(csi=None, local={"path": "/mnt"}).spec.local is not None
    old = volume(csi=None, awsElasticBlockStore={"volumeID": "vol-1"})
    assert old.spec.aws_elastic_block_store is not None
    assert old.spec.aws_elastic_block_store.volume_id == "vol-1"
