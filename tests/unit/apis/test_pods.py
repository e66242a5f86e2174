"""The compact pod: what is kept, which pods are of one class, and the questions that are asked about one."""

import gc
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from provisioner.apis import pods
from provisioner.apis.footprint import POD_BYTES, footprint
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod, decode_pod
from provisioner.apis.shapes import PodShape, interned_shapes
from tests.support.pods import OWNER, Wire, wire_bytes, wire_pod

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BOUND = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T10:00:01Z"}
STAY = {"key": "karpenter.sh/disrupted", "operator": "Exists"}


def decoded(number: int = 0, /, **changes: Any) -> Pod:
    return decode_pod(wire_bytes(wire_pod(number, **changes)))


def shape(**changes: Any) -> PodShape:
    return decoded(**changes).shape


# --- decoding


def test_what_is_kept_of_a_pod() -> None:
    pod = decoded(7)
    assert pod.key == "shop/web-5d4f8c7b9-00007"
    assert pod.uid == "0b1c2d3e-0000-4000-8000-000000000007"
    assert pod.resource_version == "100007"
    assert pod.labels == {"app": "web", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "5d4f8c7b9"}
    assert pod.annotations == {"karpenter.sh/do-not-disrupt": "false"}
    assert pod.created == datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
    assert (pod.deleted, pod.grace_seconds, pod.start_time) == (None, 30, None)
    assert pod.owner == OwnerReference(
        api_version="apps/v1",
        kind="ReplicaSet",
        name="web-5d4f8c7b9",
        uid=OWNER,
        controller=True,
        block_owner_deletion=True,
    )
    assert (pod.node_name, pod.nominated_node_name, pod.phase) == ("", "", "Pending")
    assert (pod.scheduled, pod.unschedulable, pod.scheduled_reason) == (False, True, "Unschedulable")
    assert (pod.ready, pod.gated) == (False, False)
    assert dict(pod.shape.requests) == {"cpu": 250, "memory": 512 * 2**20, "pods": 1}
    assert dict(pod.shape.limits) == {"memory": 512 * 2**20}


def test_a_running_pod() -> None:
    pod = decoded(
        spec__nodeName="n1",
        status={
            "phase": "Running",
            "startTime": "2026-11-21T10:00:02Z",
            "conditions": [BOUND, {"type": "Ready", "status": "True"}],
        },
    )
    assert (pod.node_name, pod.phase, pod.scheduled, pod.unschedulable, pod.ready) == (
        "n1",
        "Running",
        True,
        False,
        True,
    )
    assert pod.start_time == datetime(2026, 11, 21, 10, 0, 2, tzinfo=UTC)


def test_a_gated_pod() -> None:
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    pod = decoded(spec__schedulingGates=[{"name": "a"}], status__conditions=[gated])
    assert (pod.gated, pod.unschedulable, pod.scheduled_reason) == (True, False, "SchedulingGated")


def test_a_pod_of_a_group_is_of_the_class_of_single_pods() -> None:
    """A thousand Jobs of one template are one class."""
    one = decoded(spec__schedulingGroup={"podGroupName": "train"})
    assert (one.group, decoded().group) == ("train", "")
    assert one.shape is decoded(1).shape


@pytest.mark.parametrize("written", [None, {}, [], "train", {"podGroupName": None}, {"podGroupName": 3}])
def test_a_group_that_cannot_be_read_is_none(written: object) -> None:
    assert decoded(spec__schedulingGroup=written).group == ""


def test_the_smallest_pod() -> None:
    pod = decode_pod(b'{"metadata":{"name":"a"},"spec":{"containers":[]}}')
    assert (pod.key, pod.owner, pod.shape.error) == ("default/a", None, "")
    assert dict(pod.shape.requests) == {"pods": 1}


def test_of_an_owner_no_more_is_kept_than_an_object_can_be_called() -> None:
    """The API server takes a name and a UID of a million letters, and nobody could write them into a condition or a plan."""
    long = dict.fromkeys(("apiVersion", "kind", "name", "uid"), "x" * 100_000)
    owner = decoded(metadata__ownerReferences=[{**long, "controller": True}]).owner
    assert owner is not None
    assert {len(text) for text in (owner.api_version, owner.kind, owner.name, owner.uid)} == {317}


def test_only_the_controller_is_the_owner() -> None:
    references = [
        {"kind": "NodeClaim", "name": "a", "uid": "1"},
        {"kind": "Job", "name": "b", "uid": "2", "controller": True},
    ]
    owner = decoded(metadata__ownerReferences=references).owner
    assert owner is not None
    assert (owner.kind, owner.name) == ("Job", "b")
    assert decoded(metadata__ownerReferences=references[:1]).owner is None


@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"metadata":{}}', b'{"metadata":{"name":7}}'])
def test_what_is_no_pod_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_pod(data)


UNJUDGED: dict[str, tuple[dict[str, Any], str]] = {
    "a request that is no quantity": (
        {"spec__containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "much"}}}]},
        "spec.containers[1].resources.requests[cpu]",
    ),
    "a limit that is no quantity": (
        {"spec__containers": [{"name": "a", "resources": {"limits": {"memory": "1GB"}}}]},
        "spec.containers[0].resources.limits[memory]",
    ),
    "an overhead that is no quantity": ({"spec__overhead": {"cpu": "x"}}, "spec.overhead[cpu]"),
    "a selector that is no map": ({"spec__nodeSelector": ["a"]}, "$.spec.nodeSelector"),
    "a toleration that is text": ({"spec__tolerations": ["a"]}, "$.spec.tolerations[0]"),
}


@pytest.mark.parametrize("name", UNJUDGED)
def test_a_pod_that_cannot_be_judged_still_decodes(name: str) -> None:
    changes, words = UNJUDGED[name]
    pod = decoded(**changes)
    assert words in pod.shape.error
    assert dict(pod.shape.requests) == {}
    assert pod.name == "web-5d4f8c7b9-00000"
    assert pod.shape is decoded(1, **changes).shape


# --- classes


def test_the_key_is_the_same_in_every_process() -> None:
    # A plan on a NodeClaim outlives the program that wrote it; a change of this value is a change of the plan's format.
    assert shape().key == "13e104d8ca9a57e2"


def test_brothers_share_one_shape_and_its_labels() -> None:
    first, second = decoded(1), decoded(2)
    assert first.shape is second.shape
    assert first.labels is second.labels is first.shape.labels
    assert first.owner is second.owner


def reordered(value: Any) -> Any:
    """The same JSON with every object's keys turned round."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(one) for one in value] if isinstance(value, list) else value


def test_the_order_of_keys_does_not_matter() -> None:
    pod = wire_pod(spec__nodeSelector={"b": "1", "a": "2"})
    assert decode_pod(wire_bytes(pod)).shape is decode_pod(wire_bytes(reordered(pod))).shape


def affinity_of(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


SAME: dict[str, dict[str, Any]] = {
    "another node": {"spec__nodeName": "n7"},
    "another image": {"spec__containers": [wire_pod()["spec"]["containers"][0] | {"image": "other"}]},
    "another way to write the amounts": {
        "spec__containers": [
            {
                "name": "web",
                "resources": {"requests": {"cpu": 0.25, "memory": "524288Ki"}, "limits": {"memory": 536870912}},
            }
        ]
    },
    "volumes without claims": {
        "spec__volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "c"}}]
    },
    "another phase": {"status": {"phase": "Running", "conditions": [BOUND]}},
    "annotations": {"metadata__annotations": {"karpenter.sh/do-not-disrupt": "true"}},
    "an index": {
        "metadata__labels": wire_pod()["metadata"]["labels"]
        | {"apps.kubernetes.io/pod-index": "3", "statefulset.kubernetes.io/pod-name": "web-3"}
    },
    "the topology of its node, which it is given when it is bound": {
        "metadata__labels": wire_pod()["metadata"]["labels"]
        | {"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"}
    },
    "the mark of images that are still unknown": {
        "metadata__labels": wire_pod()["metadata"]["labels"] | {"dovetail.dev/image-arch-pending": "true"}
    },
    "architectures that cannot be read": {
        "metadata__annotations": {"dovetail.dev/image-architectures": "amd64, arm64"}
    },
    "the room that the kubelet gave": {
        "status__containerStatuses": [
            {
                "name": "web",
                "allocatedResources": {"cpu": "250m", "memory": "512Mi"},
                "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}},
            }
        ]
    },
}


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_make_another_class(name: str) -> None:
    assert shape(**SAME[name]) is shape()


def mounting(*options: str) -> dict[str, Any]:
    """The container with a volume."""
    mount = {"name": "v", "mountPath": "/v", **({"bindMountOptions": list(options)} if options else {})}
    return {**wire_pod()["spec"]["containers"][0], "volumeMounts": [mount]}


LOOKALIKES: dict[str, dict[str, Any]] = {
    "an annotation of that name": {"metadata__annotations": {"bindMountOptions": "noexec"}},
    "a path of that name": {"spec__volumes": [{"name": "v", "hostPath": {"path": "bindMountOptions"}}]},
    "an ephemeral container that has some": {"spec__ephemeralContainers": [mounting("noexec")]},
}


@pytest.mark.parametrize("lookalike", LOOKALIKES.values(), ids=LOOKALIKES)
@pytest.mark.parametrize("first", [False, True], ids=["the other first", "it first"])
def test_only_a_pod_that_mounts_with_options_needs_a_kubelet_that_knows_them(
    lookalike: dict[str, Any], first: bool
) -> None:
    """Whichever of two pods that differ in nothing else is seen first."""
    decoded(spec__containers=[mounting(*["noexec"] * first)], **lookalike)
    found = [decoded(spec__containers=[mounting(*["noexec"] * given)], **lookalike) for given in (False, True)]
    assert [one.shape.features for one in found] == [(), ("VolumeBindMountOptions",)]


CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}
SPREAD = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
OTHER: dict[str, dict[str, Any]] = {
    "namespace": {"metadata__namespace": "bank"},
    "labels": {"metadata__labels": {"app": "web"}},
    "no labels": {"metadata__labels": {}},
    "requests": {"spec__containers": [{"name": "web", "resources": {"requests": {"cpu": "251m", "memory": "512Mi"}}}]},
    "overhead": {"spec__overhead": {"cpu": "10m"}},
    "node selector": {"spec__nodeSelector": {"kubernetes.io/arch": "arm64"}},
    "affinity": {"spec__affinity": {}},
    "tolerations": {"spec__tolerations": []},
    "spread": {"spec__topologySpreadConstraints": [SPREAD]},
    "a claim": {"spec__volumes": [CLAIM]},
    "another claim": {"spec__volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-1"}}]},
    "a claim that goes with the pod": {
        "spec__volumes": [
            {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}}
        ]
    },
    "a port of the node": {
        "spec__containers": [wire_pod()["spec"]["containers"][0] | {"ports": [{"containerPort": 80, "hostPort": 80}]}]
    },
    "priority": {"spec__priority": 1000},
    "priority class": {"spec__priorityClassName": "high"},
    "scheduler": {"spec__schedulerName": "dovetail-scheduler"},
    "preemption policy": {"spec__preemptionPolicy": "Never"},
    "runtime class": {"spec__runtimeClassName": "gvisor"},
    "architectures of images": {"metadata__annotations": {"dovetail.dev/image-architectures": "amd64"}},
    "device claims": {"spec__resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]},
    "options of a mount": {"spec__containers": [mounting("noexec")]},
    "options of a mount of an init container": {
        "spec__initContainers": [mounting("noexec")],
        "metadata__labels": {"app": "init"},
    },
}


@pytest.mark.parametrize("name", OTHER)
def test_what_makes_another_class(name: str) -> None:
    assert shape(**OTHER[name]).key != shape().key


def test_no_two_of_these_classes_are_one() -> None:
    assert len({shape(**changes).key for changes in OTHER.values()}) == len(OTHER)


def test_a_label_of_its_own_counts_when_the_pods_terms_name_it() -> None:
    def indexed(index: str) -> PodShape:
        spread = SPREAD | {"matchLabelKeys": ["apps.kubernetes.io/pod-index"]}
        labels = {"app": "web", "apps.kubernetes.io/pod-index": index}
        return shape(metadata__labels=labels, spec__topologySpreadConstraints=[spread])

    assert indexed("1").key != indexed("2").key
    assert indexed("1").labels["apps.kubernetes.io/pod-index"] == "1"


ZONE = "topology.kubernetes.io/zone"
WEB = {"matchLabels": {"app": "web"}}
NEAR = {"topologyKey": ZONE, "labelSelector": WEB}
TERMS: dict[str, dict[str, Any]] = {
    "a spread over zones": {"spec__topologySpreadConstraints": [SPREAD | {"labelSelector": WEB}]},
    "affinity in a zone": {
        "spec__affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR]}}
    },
    "wished anti-affinity in a zone": {
        "spec__affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": NEAR}]
            }
        }
    },
    "nodes of a zone": {
        "spec__affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]
                }
            }
        }
    },
}


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_a_pod_is_of_the_same_class_before_and_after_it_is_bound(terms: dict[str, Any]) -> None:
    """Since 1.35 the API server copies the Node's zone and region to a pod that is bound."""
    before = decoded(metadata__labels={"app": "web"}, **terms)
    after = decoded(metadata__labels={"app": "web", ZONE: "a", "topology.kubernetes.io/region": "r"}, **terms)
    assert after.shape is before.shape
    assert after.labels[ZONE] == "a"


@pytest.mark.parametrize(
    "selector", [{"matchLabels": {ZONE: "a"}}, {"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}]
)
def test_a_zone_that_the_pods_terms_select_by_counts(selector: dict[str, Any]) -> None:
    def of(zone: str) -> PodShape:
        labels = {"app": "web", ZONE: zone}
        return shape(metadata__labels=labels, spec__topologySpreadConstraints=[SPREAD | {"labelSelector": selector}])

    assert of("a").key != of("b").key


def test_bound_brothers_of_one_zone_share_their_labels() -> None:
    one, two = (decoded(metadata__uid=uid, metadata__labels={"app": "web", ZONE: "a"}) for uid in ("1", "2"))
    assert one.labels is two.labels


def test_a_pod_keeps_the_labels_that_its_shape_leaves_out() -> None:
    pod = decoded(metadata__labels={"app": "web", "apps.kubernetes.io/pod-index": "3"})
    assert pod.labels == {"app": "web", "apps.kubernetes.io/pod-index": "3"}
    assert pod.shape.labels == {"app": "web"}


def daemon(node: str, *expressions: Wire) -> Pod:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    term = {"matchFields": [field]} | ({"matchExpressions": list(expressions)} if expressions else {})
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": True}
    return decoded(
        metadata__ownerReferences=[owner],
        spec__affinity={
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        },
    )


def test_daemons_of_all_nodes_are_one_class() -> None:
    assert daemon("n1").shape is daemon("n2").shape
    assert daemon("n1").shape.affinity is None


def test_a_daemons_own_affinity_stays() -> None:
    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    affinity = daemon("n1", linux).shape.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    assert affinity.node_affinity.required is not None
    (term,) = affinity.node_affinity.required.node_selector_terms
    assert (term.match_fields, [one.key for one in term.match_expressions]) == ((), ["kubernetes.io/os"])
    assert daemon("n2", linux).shape is daemon("n1", linux).shape


def test_a_pod_that_is_no_daemon_keeps_its_node() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}
        }
    }
    found = shape(spec__affinity=affinity).affinity
    assert found is not None
    assert msgspec.json.decode(msgspec.json.encode(found)) == affinity


def test_a_shape_that_no_pod_uses_is_given_back() -> None:
    gc.collect()
    before = interned_shapes()
    kept = [decoded(spec__priority=100_000 + number) for number in range(50)]
    assert interned_shapes() == before + 50
    del kept
    gc.collect()
    assert interned_shapes() == before


def test_texts_of_one_class_do_not_pile_up() -> None:
    pod = decoded()
    limit = max(1000, 8 * interned_shapes())
    for number in range(limit + 50):  # another text each time, the same class
        container = wire_pod()["spec"]["containers"][0] | {"ports": [{"name": f"p{number}", "containerPort": 80}]}
        assert decoded(spec__containers=[container]).shape is pod.shape
    assert len(pods._by_text) <= limit + 1


# --- what kube-scheduler says

NO_ROOM = "0/3 nodes are available: 3 Insufficient cpu."


def verdict(**condition: Any) -> dict[str, Any]:
    found = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_ROOM, **condition}
    return {"status__conditions": [found]}


SAID: dict[str, tuple[dict[str, Any], str]] = {
    "of a pod that it found no node for": (verdict(), NO_ROOM),
    "of a pod that waits for its gates": (verdict(reason="SchedulingGated", message="waiting"), "waiting"),
    "of a bound pod": (verdict(status="True", message="old"), ""),
    "nothing yet": ({"status__conditions": []}, ""),
    "no text": (verdict(message=""), ""),
    "more than anybody reads": (verdict(message="ä" * 100_000), "ä" * 1024),
    "a control character": (verdict(message="a\x00b"), "a\x00b"),
}


@pytest.mark.parametrize("name", SAID)
def test_kube_scheduler_says(name: str) -> None:
    changes, want = SAID[name]
    assert decoded(**changes).scheduled_message == want


@pytest.mark.parametrize("phase", ["Running", "x" * 1_000_000], ids=len)
@pytest.mark.parametrize("reason", ["Unschedulable", "y" * 1_000_000], ids=len)
def test_little_is_kept_of_what_a_kubelet_may_make_up(phase: str, reason: str) -> None:
    pod = decoded(**verdict(reason=reason), status__phase=phase)
    assert phase.startswith(pod.phase)
    assert reason.startswith(pod.scheduled_reason)
    assert min(len(pod.phase), len(pod.scheduled_reason)) > 0
    assert footprint(pod, 1 << 20) <= POD_BYTES


# --- questions

GROUPS = {"DaemonSet": "apps/v1", "Node": "v1", "StatefulSet": "apps/v1"}
OWNED = {
    kind: [{"apiVersion": group, "kind": kind, "name": "a", "uid": kind, "controller": True}]
    for kind, group in GROUPS.items()
}
KRUISE = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "DaemonSet", "name": "a", "uid": "k", "controller": True}
DELETED = {"metadata__deletionTimestamp": "2026-11-21T11:59:30Z"}
LONG_DELETED = {"metadata__deletionTimestamp": "2026-11-21T11:58:59Z"}
DONE = {"status__phase": "Succeeded"}
FAILED = {"status__phase": "Failed"}
MIRROR = {"metadata__annotations": {"kubernetes.io/config.mirror": "x"}}
KEEP = {"metadata__annotations": {"karpenter.sh/do-not-disrupt": "true"}}
TOLERANT = {"spec__tolerations": [STAY]}


def owned(kind: str) -> dict[str, Any]:
    return {"metadata__ownerReferences": OWNED[kind]}


# by name: what changes, and active, daemon, mirror, reschedulable, drainable, waiting, evictable
FACTS: dict[str, tuple[dict[str, Any], str]] = {
    "a usual pod": ({}, "active reschedulable drainable waiting evictable"),
    "a pod that is done": (DONE, "drainable"),
    "a pod that has failed": (FAILED, "drainable"),
    "a pod that is going": (DELETED, "drainable waiting"),
    "a pod that should be gone": (LONG_DELETED, ""),
    "a pod of a StatefulSet": (owned("StatefulSet"), "active reschedulable drainable waiting evictable"),
    "a pod of a StatefulSet that is going": (owned("StatefulSet") | DELETED, "reschedulable drainable waiting"),
    "a daemon": (owned("DaemonSet"), "active daemon drainable waiting evictable"),
    "a pod of another API group's DaemonSet": (
        {"metadata__ownerReferences": [KRUISE]},
        "active reschedulable drainable waiting evictable",
    ),
    "a static pod": (owned("Node"), "active mirror"),
    "a pod marked as mirror": (MIRROR, "active mirror"),
    "a pod that tolerates the taint": (TOLERANT, "active reschedulable"),
    "a pod that must not be disrupted": (KEEP, "active reschedulable drainable waiting"),
}


@pytest.mark.parametrize("name", FACTS)
def test_what_a_drain_does_with(name: str) -> None:
    changes, want = FACTS[name]
    pod = decoded(**changes)
    facts = {
        "active": pods.is_active(pod),
        "daemon": pods.is_daemon(pod),
        "mirror": pods.is_mirror(pod),
        "reschedulable": pods.is_reschedulable(pod),
        "drainable": pods.is_drainable(pod, NOON),
        "waiting": pods.is_waiting_for_eviction(pod, NOON),
        "evictable": pods.is_evictable(pod, NOON),
    }
    assert [fact for fact, holds in facts.items() if holds] == want.split()


INTAKE: dict[str, tuple[dict[str, Any], bool]] = {
    "an unschedulable pod": ({}, True),
    "a pod that nobody has looked at": ({"status__conditions": []}, True),
    "a pod that waits for preemption": ({"status__nominatedNodeName": "n1"}, True),
    "a bound pod": ({"spec__nodeName": "n1"}, False),
    "a gated pod": ({"spec__schedulingGates": [{"name": "a"}]}, False),
    "a daemon": (owned("DaemonSet"), False),
    "a static pod": (owned("Node"), False),
    "a pod that is going": (DELETED, False),
    "a pod that is done": (DONE, False),
}


@pytest.mark.parametrize("name", INTAKE)
def test_intake(name: str) -> None:
    changes, pending = INTAKE[name]
    assert pods.is_pending(decoded(**changes)) is pending


STARTED: dict[str, Any] = {"status__startTime": "2026-11-21T11:00:00Z"}
PROTECTION: dict[str, tuple[str | None, dict[str, Any], bool]] = {
    "no annotation": (None, STARTED, False),
    "true": ("true", STARTED, True),
    "false": ("false", STARTED, False),
    "empty": ("", STARTED, False),
    "longer than it runs": ("1h30m", STARTED, True),
    "shorter than it runs": ("30m", STARTED, False),
    "exactly as long as it runs": ("1h", STARTED, False),
    "not started yet": ("1s", {}, True),
    "no time at all": ("0s", {}, False),
    "a negative time": ("-1h", {}, False),
    "a number without unit": ("30", {}, False),
}


@pytest.mark.parametrize("name", PROTECTION)
def test_do_not_disrupt(name: str) -> None:
    value, changes, want = PROTECTION[name]
    annotations = {} if value is None else {"karpenter.sh/do-not-disrupt": value}
    pod = decoded(**changes, metadata__annotations=annotations)
    assert pods.do_not_disrupt(pod, NOON) is want


GOOD, INVALID, TIMED = pods.Guard.FOR_GOOD, pods.Guard.INVALID, pods.Guard.FOR_A_TIME
READ: dict[str, tuple[str | None, dict[str, Any], pods.Guard, str]] = {
    "absent": (None, STARTED, pods.Guard.ABSENT, ""),
    "for good": ("true", STARTED, GOOD, ""),
    "until an hour from now": ("2h", STARTED, TIMED, "2026-11-21T13:00:00+00:00"),
    "until a while ago": ("10m", STARTED, TIMED, "2026-11-21T11:10:00+00:00"),
    "not started": ("2h", {}, TIMED, ""),
    "beyond the calendar, by what a kubelet says": ("2h", {"status__startTime": "9999-12-31T23:00:00Z"}, GOOD, ""),
    "no time": ("-1h", STARTED, INVALID, ""),
    "no duration": ("tomorrow", STARTED, INVALID, ""),
    "longer than Go's longest": ("99999999h", STARTED, INVALID, ""),
}


@pytest.mark.parametrize("name", READ)
def test_do_not_disrupt_is_read_as(name: str) -> None:
    value, changes, guard, until = READ[name]
    annotations = {} if value is None else {"karpenter.sh/do-not-disrupt": value}
    found = pods.read_do_not_disrupt(decoded(**changes, metadata__annotations=annotations))
    assert (found.guard, found.until.isoformat() if found.until is not None else "") == (guard, until)


def test_a_pod_is_stuck_a_minute_after_it_should_be_gone() -> None:
    pod = decoded(**DELETED)
    assert pod.deleted is not None
    assert not pods.is_stuck_terminating(pod, pod.deleted + timedelta(minutes=1))
    assert pods.is_stuck_terminating(pod, pod.deleted + timedelta(minutes=1, seconds=1))


ANY_GPU = {"key": "gpu", "operator": "Exists"}
FOR_BOTH = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "s390x"]}
NARROWED: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "no affinity": ({}, [{"matchExpressions": [FOR_BOTH]}]),
    "pod affinity alone": ({"podAffinity": {}}, [{"matchExpressions": [FOR_BOTH]}]),
    "every term": (
        affinity_of({"matchExpressions": [ANY_GPU]}, {"matchFields": [ANY_GPU]}),
        [
            {"matchExpressions": [{"key": "gpu", "operator": "Exists"}, FOR_BOTH]},
            {"matchExpressions": [FOR_BOTH], "matchFields": [ANY_GPU]},
        ],
    ),
    "an empty term matches nothing still": (
        affinity_of({}, {"matchExpressions": [ANY_GPU]}),
        [{}, {"matchExpressions": [ANY_GPU, FOR_BOTH]}],
    ),
}


@pytest.mark.parametrize(("affinity", "wanted"), NARROWED.values(), ids=NARROWED)
def test_what_became_known_of_a_pods_images_is_required_of_its_node(
    affinity: dict[str, Any], wanted: list[dict[str, Any]]
) -> None:
    known = {"dovetail.dev/image-architectures": "s390x,amd64"}
    found = shape(spec__affinity=affinity, metadata__annotations=known).affinity
    assert found is not None
    assert found.node_affinity is not None
    assert found.node_affinity.required is not None
    assert msgspec.json.decode(msgspec.json.encode(found.node_affinity.required.node_selector_terms)) == wanted


def test_a_pod_that_says_itself_for_what_it_is_knows_better() -> None:
    known = {"dovetail.dev/image-architectures": "amd64"}
    for key in ("kubernetes.io/arch", "beta.kubernetes.io/arch"):
        assert shape(spec__nodeSelector={key: "arm64"}, metadata__annotations=known).affinity == shape().affinity


@pytest.mark.parametrize(
    "text", ["", ",", "amd64,", "AMD64", "a" * 17, ",".join(["a"] * 17), "amd64\n", "amd64;arm64", "\ud800"]
)
def test_architectures_that_cannot_be_read_are_none(text: str) -> None:
    assert pods.read_architectures({"dovetail.dev/image-architectures": text}) == ()


def test_a_pod_of_a_list_is_decoded_where_it_stands() -> None:
    text = wire_bytes(wire_pod())
    assert decode_pod(cast(bytes, msgspec.Raw(text))) == decode_pod(text)
