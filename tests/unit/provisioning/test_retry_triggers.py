"""Which events make waiting pods be tried again at once."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import (
    CoschedulingGroup,
    CSIDriver,
    CSINode,
    LabelledNamespace,
    LimitRange,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolcanoGroup,
)
from provisioner.provisioning.retry_triggers import concerns_placement
from provisioner.runtime.changes import SurroundingChanged

KINDS = {
    "volumeclaim": PersistentVolumeClaim,
    "volume": PersistentVolume,
    "storageclass": StorageClass,
    "namespace": LabelledNamespace,
    "limitrange": LimitRange,
    "csinode": CSINode,
    "csidriver": CSIDriver,
    "volcano": VolcanoGroup,
    "coscheduling": CoschedulingGroup,
}


def made(what: str, body: dict[str, Any] | None) -> Any:
    if body is None:
        return None
    return msgspec.convert({**body, "metadata": {"name": "x", "uid": "u", **body.get("metadata", {})}}, KINDS[what])


CASES: dict[str, tuple[str, dict[str, Any] | None, dict[str, Any] | None, bool]] = {
    "a claim appears": ("volumeclaim", None, {}, True),
    "a claim goes": ("volumeclaim", {}, None, True),
    "a claim is bound": (
        "volumeclaim",
        {"status": {"phase": "Pending"}},
        {"status": {"phase": "Bound"}, "spec": {"volumeName": "v"}},
        True,
    ),
    "a claim's binding is completed": (
        "volumeclaim",
        {"spec": {"volumeName": "v"}},
        {"spec": {"volumeName": "v"}, "metadata": {"annotations": {names.BIND_COMPLETED: "yes"}}},
        True,
    ),
    "a claim begins to go": ("volumeclaim", {}, {"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}}, True),
    "a claim is made anew": ("volumeclaim", {}, {"metadata": {"uid": "other"}}, True),
    "a claim only has a new version": ("volumeclaim", {}, {"metadata": {"resourceVersion": "2"}}, False),
    "a volume appears": ("volume", None, {}, True),
    "a volume becomes available": ("volume", {}, {"status": {"phase": "Available"}}, True),
    "a volume gets a zone": ("volume", {}, {"metadata": {"labels": {names.ZONE_LABEL: "a"}}}, True),
    "a volume only has a new version": ("volume", {}, {"metadata": {"resourceVersion": "2"}}, False),
    "a class appears": ("storageclass", None, {}, True),
    "a class is made anew with another mode": (
        "storageclass",
        {},
        {"volumeBindingMode": "WaitForFirstConsumer"},
        True,
    ),
    "a namespace is labelled": ("namespace", {}, {"metadata": {"labels": {"team": "a"}}}, True),
    "a namespace only has a new version": ("namespace", {}, {"metadata": {"resourceVersion": "2"}}, False),
    "a limit range changes": ("limitrange", {}, {"spec": {"limits": [{"type": "Container"}]}}, True),
    "a driver may be missing from now on": (
        "csidriver",
        {"spec": {"preventPodSchedulingIfMissing": True}},
        {"spec": {"preventPodSchedulingIfMissing": False}},
        True,
    ),
    "a PodGroup of Volcano is admitted": (
        "volcano",
        {"status": {"phase": "Pending"}},
        {"status": {"phase": "Inqueue"}},
        True,
    ),
    "an admitted one runs": ("volcano", {"status": {"phase": "Inqueue"}}, {"status": {"phase": "Running"}}, False),
    "a PodGroup needs fewer pods": ("coscheduling", {"spec": {"minMember": 3}}, {"spec": {"minMember": 2}}, True),
    "a PodGroup only has a new version": ("coscheduling", {}, {"metadata": {"resourceVersion": "2"}}, False),
    "a driver tells its limit": (
        "csinode",
        {},
        {"spec": {"drivers": [{"name": "disk", "nodeID": "x", "allocatable": {"count": 3}}]}},
        True,
    ),
}


@pytest.mark.parametrize(("what", "old", "new", "concerns"), CASES.values(), ids=CASES.keys())
def test_pods_are_tried_again_when(
    what: str, old: dict[str, Any] | None, new: dict[str, Any] | None, concerns: bool
) -> None:
    assert concerns_placement(SurroundingChanged(made(what, old), made(what, new))) is concerns
