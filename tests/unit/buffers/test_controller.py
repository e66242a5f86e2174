"""CapacityBuffers end to end in process: resolved, placed last, written on, kept from emptiness and consolidation, and gone."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.buffer import CapacityBuffer
from provisioner.apis.core import Affinity, NodeSelectorRequirement
from provisioner.apis.meta import condition
from provisioner.apis.stamping import StampFacts
from provisioner.buffers.controller import RECHECK_SECONDS, UNKNOWN_SECONDS, CapacityBuffers
from provisioner.disruption.methods.emptiness import emptiness
from provisioner.disruption.view import DisruptionView
from provisioner.kube.store import Store
from provisioner.simulator.api_server import ServerChange
from provisioner.state.keys import NodeKey
from provisioner.support.workers import DONE
from tests.support.batches import Batches
from tests.support.cluster import pod

KEY = "default/room"
CONTAINERS = [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]
TEMPLATE = {
    "metadata": {"name": "t", "namespace": "default", "generation": 4},
    "template": {"spec": {"containers": CONTAINERS}},
}
DEPLOYMENT = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"replicas": 7, "template": {"spec": {"containers": CONTAINERS}}},
}
POD_TEMPLATE = {"podTemplateRef": {"name": "t"}}


class Watch:
    """What the buffers are read from."""

    def __init__(self) -> None:
        self.store: Store[CapacityBuffer] = Store()


class Stage(Batches):
    """A NodePool of nodes with 4 CPUs, one buffer, and the objects that it may refer to."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(
            requirements=({"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-4x-amd64-linux"]},)
        )
        self.watch = Watch()
        for plural, wire in (("podtemplates", TEMPLATE), ("deployments", DEPLOYMENT)):
            self.server.store(plural, wire)
        self._heard, self.server.told = self.server.told, self._told
        self.buffers = CapacityBuffers(
            self.server.client,
            self.world.clock,
            self.watch.store,
            admission=self.world.cluster.admission,
            facts=lambda namespace: StampFacts(namespace, {}),
            plan_again=self.again.append,
        )
        self.put(**spec)

    def put(self, **spec: Any) -> None:
        body = {"metadata": {"name": "room", "namespace": "default", "uid": "u"}, "spec": spec}
        self.server.store("capacitybuffers", body)

    def _told(self, change: ServerChange) -> None:
        if change.plural == "capacitybuffers":
            self.watch.store.put(KEY, msgspec.convert(change.after, CapacityBuffer, strict=False))
        self._heard(change)

    @property
    def writes(self) -> list[str]:
        """Of the status of buffers."""
        return [one for one in self.server.done if "capacitybuffers" in one]

    def plan(self) -> None:
        """One run of provisioning, its creates included."""
        self.run(buffers=self.buffers)

    def claims(self) -> list[str]:
        return sorted(self.server.objects["nodeclaims"])

    def says(self, kind: str) -> tuple[str, str, str]:
        known = self.watch.store.get(KEY)
        assert known is not None
        found = condition(known.status.conditions, kind)
        assert found is not None
        return found.status, found.reason, found.message


def test_a_buffer_that_changes_asks_for_one_plan() -> None:
    stage = Stage(replicas=2, **POD_TEMPLATE)
    for step in ("new", "larger", "gone"):
        if step == "larger":
            stage.put(replicas=5, **POD_TEMPLATE)
        elif step == "gone":
            stage.watch.store.remove(KEY)
        stage.again.clear()
        stage.buffers.reconcile(KEY)
        assert stage.again == [f"buffer/{KEY}"], step


def test_room_is_launched_once_and_kept_and_nobody_is_told_of_pods_that_do_not_exist() -> None:
    stage = Stage(**POD_TEMPLATE, replicas=2)
    assert stage.buffers.reconcile(KEY).requeue_after == RECHECK_SECONDS
    assert stage.says(names.READY_FOR_PROVISIONING)[:2] == ("True", "Resolved")
    assert stage.says(names.PROVISIONING)[:2] == ("False", "RequiresNewCapacity")
    assert f"buffer/{KEY}" in stage.again
    stage.plan()
    made = stage.claims()
    assert len(made) == 2
    for name in made:
        assert names.PLAN_ANNOTATION not in stage.server.claim(name).metadata.annotations
    stage.plan()
    assert stage.claims() == made, "room that is on its way is bought again"
    assert stage.server.recorder.events == []
    known = stage.watch.store.get(KEY)
    assert known is not None
    assert (known.status.replicas, known.status.pod_template_generation) == (2, 4)


def ready(stage: Stage, *names_of: str) -> None:
    for name in names_of:
        stage.world.existing_node(name, age=3600)


def test_a_pod_takes_the_room_at_once_and_the_room_is_bought_again() -> None:
    stage = Stage(**POD_TEMPLATE, replicas=1)
    ready(stage, "a")
    stage.buffers.reconcile(KEY)
    stage.plan()
    assert stage.claims() == []
    stage.buffers.reconcile(KEY)
    assert stage.says(names.PROVISIONING) == ("True", "FitsExistingCapacity", "")
    stage.world.add(pod("late", cpu="3"))
    stage.plan()
    assert stage.world.assigned("a") == ["late"], "buffers are placed after pods"
    assert len(stage.claims()) == 1
    stage.buffers.reconcile(KEY)
    assert stage.says(names.PROVISIONING)[:2] == ("False", "RequiresNewCapacity")


def test_its_status_is_written_only_when_it_changes() -> None:
    stage = Stage(**POD_TEMPLATE, replicas=1)
    for _ in range(3):
        stage.buffers.reconcile(KEY)
    assert len(stage.writes) == 1


def goes(stage: Stage) -> list[str]:
    snapshot = stage.world.cluster.snapshot()
    seen = {one.key.name: timedelta(hours=1) for one in snapshot.nodes}
    view = DisruptionView(snapshot, None, lambda _pool, _reason: 9, empty_for=seen, buffered=stage.buffers.keeps)
    return [name for one in emptiness(view).proposals for name in one.candidates]


def test_an_empty_node_that_keeps_room_stays_until_its_buffer_is_gone() -> None:
    stage = Stage(**POD_TEMPLATE, replicas=1)
    ready(stage, "a", "b")
    assert goes(stage) == [], "a new leader does not know yet"
    stage.buffers.reconcile(KEY)
    stage.plan()
    assert len(goes(stage)) == 1
    assert stage.watch.store.get(KEY) is not None
    stage.watch.store.remove(KEY)
    assert stage.buffers.reconcile(KEY) == DONE
    assert stage.buffers.pods() == ()
    stage.plan()
    assert goes(stage) == ["a", "b"]


def test_a_node_that_is_bought_for_a_buffer_keeps_its_room_before_the_next_run_finds_it() -> None:
    """It may be ready, and empty for long enough, by then."""
    stage = Stage(**POD_TEMPLATE, replicas=2)
    stage.buffers.reconcile(KEY)
    stage.plan()
    assert len(stage.claims()) == 2
    assert all(stage.buffers.keeps(str(NodeKey(name))) for name in stage.claims())
    assert not stage.buffers.keeps(str(NodeKey("other")))
    stage.plan()
    assert all(stage.buffers.keeps(str(NodeKey(name))) for name in stage.claims())
    stage.watch.store.remove(KEY)
    stage.buffers.reconcile(KEY)
    stage.plan()
    assert not any(stage.buffers.keeps(str(NodeKey(name))) for name in stage.claims())


def test_units_are_stamped_by_the_defaults_of_the_cluster_as_they_are_now() -> None:
    stage = Stage(**POD_TEMPLATE, replicas=1)

    def selected() -> list[str]:
        stage.buffers.reconcile(KEY)
        stage.world.clock.advance(RECHECK_SECONDS)
        affinity = stage.buffers.pods()[0].shape.affinity
        return [] if affinity is None else [one.key for one in required_of(affinity)]

    assert selected() == []
    of = {"name": names.DEFAULTS_CONFIGMAP, "namespace": "dovetail-system"}
    stage.server.store("configmaps", {"metadata": of, "data": {"arch": "arm64"}})
    assert selected() == [names.ARCH_LABEL]


def required_of(affinity: Affinity) -> tuple[NodeSelectorRequirement, ...]:
    assert affinity.node_affinity is not None
    assert affinity.node_affinity.required is not None
    return affinity.node_affinity.required.node_selector_terms[0].match_expressions


def test_what_nobody_knows_keeps_nodes_for_a_minute_only() -> None:
    stage = Stage(**POD_TEMPLATE, replicas=1)
    ready(stage, "a")
    stage.world.clock.advance(UNKNOWN_SECONDS)
    assert goes(stage) == ["a"]


def test_without_the_gate_there_are_none() -> None:
    stage = Stage()
    off = CapacityBuffers(
        stage.server.client,
        stage.world.clock,
        None,
        admission=stage.world.cluster.admission,
        facts=lambda namespace: StampFacts(namespace, {}),
        plan_again=stage.again.append,
    )
    assert off.pods() == ()
    assert not off.keeps("a")
    assert off.reconcile(KEY) == DONE


UNRESOLVED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a PodTemplate that does not exist": ({"podTemplateRef": {"name": "x"}, "replicas": 1}, "PodTemplateNotFound", "x"),
    "a workload that does not exist": (
        {"scalableRef": {"kind": "Deployment", "name": "x"}, "replicas": 1},
        "ScalableRefNotFound",
        'Deployment "x" does not exist',
    ),
    "a kind that is none": ({"scalableRef": {"kind": "Job", "name": "x"}, "replicas": 1}, "ScalableRefNotFound", "Job"),
    "a group that is none": (
        {"scalableRef": {"apiGroup": "example.com", "kind": "Deployment", "name": "web"}, "replicas": 1},
        "ScalableRefNotFound",
        "apps",
    ),
    "nothing": ({"replicas": 1}, "ScalableRefNotFound", "spec.podTemplateRef"),
    "limits": ({**POD_TEMPLATE, "limits": {"cpu": "many"}}, "ResolutionFailed", "many"),
}


@pytest.mark.parametrize("case", UNRESOLVED.values(), ids=UNRESOLVED)
def test_a_buffer_that_cannot_be_resolved_says_why_and_keeps_nothing(case: tuple[dict[str, Any], str, str]) -> None:
    spec, reason, words = case
    stage = Stage(**POD_TEMPLATE, replicas=1)
    stage.buffers.reconcile(KEY)
    assert len(stage.buffers.pods()) == 1
    stage.put(**spec)
    assert stage.buffers.reconcile(KEY).requeue_after == RECHECK_SECONDS, "what it needs may come"
    status, why, message = stage.says(names.READY_FOR_PROVISIONING)
    assert (status, why) == ("False", reason)
    assert words in message or words == "Job"
    assert stage.says(names.PROVISIONING)[:2] == ("False", "NotReadyForProvisioning")
    assert stage.buffers.pods() == ()


def test_what_cannot_be_read_now_changes_nothing() -> None:
    stage = Stage(**POD_TEMPLATE, replicas=1)
    stage.buffers.reconcile(KEY)
    before = stage.buffers.pods()
    stage.server.refuse["GET"] = 403
    assert stage.buffers.reconcile(KEY).failed
    assert stage.buffers.pods() is before


def test_a_share_of_a_workload_follows_its_replicas() -> None:
    stage = Stage(scalableRef={"apiGroup": "apps", "kind": "Deployment", "name": "web"}, percentage=50)
    stage.buffers.reconcile(KEY)
    assert len(stage.buffers.pods()) == 4
    same = stage.buffers.pods()
    stage.buffers.reconcile(KEY)
    assert stage.buffers.pods() is same
    stage.server.change("deployments", "web", {"spec": {"replicas": 2}}, "default")
    stage.buffers.reconcile(KEY)
    assert len(stage.buffers.pods()) == 1


def test_a_buffer_without_units_is_empty() -> None:
    stage = Stage(**POD_TEMPLATE, replicas=0)
    stage.buffers.reconcile(KEY)
    assert stage.says(names.PROVISIONING)[:2] == ("False", "BufferEmpty")
