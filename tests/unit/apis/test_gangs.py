"""Which group a pod is of, by all that may name one."""

import json
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.gangs import (
    REQUEST_PREFIX,
    GroupSource,
    bound_by_volcano,
    group_of,
    key_of_object,
    minimum_of,
    source_of,
    told,
)
from provisioner.apis.pods import decode_pod
from provisioner.buffers.virtual_pods import is_virtual
from tests.support.cluster import pod
from tests.support.podgroups import grouped, object_of

KEYS = {
    GroupSource.POD_GROUP: "default/train",
    GroupSource.ANNOTATIONS: "default/gang/train/rs/2",
    GroupSource.VOLCANO: "default/volcano/train",
    GroupSource.COSCHEDULING: "default/coscheduling/train",
}
TOLD = {
    GroupSource.POD_GROUP: "PodGroup default/train",
    GroupSource.ANNOTATIONS: "gang default/train",
    GroupSource.VOLCANO: "PodGroup default/train of Volcano",
    GroupSource.COSCHEDULING: "PodGroup default/train of the coscheduling plugin",
}


@pytest.mark.parametrize("source", GroupSource)
def test_a_key_tells_its_source_and_minimum(source: GroupSource) -> None:
    key = group_of(grouped(pod("a"), source))
    assert (key, source_of(key), told(key)) == (KEYS[source], source, TOLD[source])
    assert minimum_of(key) == (2 if source is GroupSource.ANNOTATIONS else None)


@pytest.mark.parametrize("source", GroupSource)
def test_an_object_has_the_key_of_the_pods_that_name_it(source: GroupSource) -> None:
    found = object_of(source)
    assert found is None or key_of_object(found) == KEYS[source]


@pytest.mark.parametrize("second", GroupSource)
@pytest.mark.parametrize("first", GroupSource)
def test_a_pod_that_names_two_groups_is_of_the_first_in_order(first: GroupSource, second: GroupSource) -> None:
    both = grouped(grouped(pod("a"), first, "train"), second, "train")
    assert group_of(both) == KEYS[min(first, second, key=list(GroupSource).index)]


def wire(annotations: dict[str, str], scheduler: str = "volcano", **labels: str) -> Any:
    body = {
        "metadata": {"name": "a", "namespace": "default", "annotations": annotations, "labels": labels},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c"}]},
    }
    return decode_pod(json.dumps(body).encode())


def test_no_pod_that_exists_is_of_a_provisioning_request_or_stands_for_room() -> None:
    notes = {
        names.GANG: f"{REQUEST_PREFIX}uid",
        names.GANG_MINIMUM: "2",
        names.BUFFER_FAKE_POD: "true",
        names.BUFFER_NAME: "b",
    }
    one = wire(notes)
    assert not is_virtual(one)
    assert not group_of(one)


HERE, THERE = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"
NAMED = {
    "by the annotation": (wire({HERE: "train"}), "default/volcano/train"),
    "by the other annotation": (wire({THERE: "train"}), "default/volcano/train"),
    "by both": (wire({HERE: "train", THERE: "other"}), "default/volcano/train"),
    "by an empty one and the other": (wire({HERE: "", THERE: "train"}), "default/volcano/train"),
    "beside many annotations": (
        wire({**{f"dovetail.dev/{number}": "x" * 500 for number in range(9)}, HERE: "train"}),
        "default/volcano/train",
    ),
    "while kube-scheduler binds the pod": (wire({HERE: "train"}, "default-scheduler"), ""),
    "while our scheduler binds the pod": (wire({HERE: "train"}, "dovetail-scheduler"), ""),
    "with a name that no object has": (wire({HERE: "gang/train//5"}), ""),
    "with a name of any length": (wire({HERE: "a" * 254}), ""),
}


@pytest.mark.parametrize(("one", "key"), NAMED.values(), ids=NAMED)
def test_what_names_a_pod_group_of_volcano(one: Any, key: str) -> None:
    assert (group_of(one), bound_by_volcano(one)) == (key, bool(key))


def test_a_label_that_no_object_can_have_as_its_name_names_no_group() -> None:
    assert group_of(grouped(pod("a"), GroupSource.COSCHEDULING, "Train_1")) == ""


def test_volcano_binds_a_pod_also_if_annotations_of_ours_say_its_group() -> None:
    both = grouped(grouped(pod("a"), GroupSource.VOLCANO), GroupSource.ANNOTATIONS)
    assert source_of(group_of(both)) is GroupSource.ANNOTATIONS
    assert bound_by_volcano(both)
