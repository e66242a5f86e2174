"""A pod whose Deployment is restarted before it is evicted: what is read and written, and what a restart of the provisioner finds."""

from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.interruption import Interruption
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.support.workers import WorkerPool
from provisioner.termination.surge import OWNER_SECONDS, Surges
from provisioner.termination.surge_steps import LONGEST
from tests.support.clock import NOON
from tests.support.cluster import World, claim, pod
from tests.support.kube import Sent
from tests.support.worldserver import WorldServer

WEB = pod("web-1", owner="web-abc", node="a", ready=True)
_DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"


class Stage:
    """A draining node `a` with a pod of a Deployment."""

    def __init__(self, **deployment: Any) -> None:
        self.server = WorldServer(World())
        owners = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}]
        asks: dict[str, Any] = {"namespace": "default", "annotations": {names.SURGE: "true"}}
        self.restart()
        self.server.store(
            "deployments",
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web", **asks},
                "spec": {"replicas": 1, **deployment},
                "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1},
            },
        )
        for kind in ("replicasets", "statefulsets"):
            wire = {"metadata": {"name": "web-abc", "uid": "web-abc", **asks, "ownerReferences": owners}}
            self.server.store(kind, wire)

    def restart(self) -> None:
        """Another process goes on."""
        self.world = World()
        self.world.existing_node("a")
        self.world.existing_node("b")
        self.world.add(WEB)
        self.server = WorldServer(self.world, self.server)
        plans = PlanWriter(self.world.cluster, self.server.writer, WorkerPool(1, "plans"))
        self.surges = Surges(
            self.world.cluster, self.server.client, self.server.writer, plans, self.server.recorder, self.world.clock
        )

    def change(self, kind: str, name: str, **patch: Any) -> None:
        """Somebody writes the Deployment, or its owner."""
        self.server.change(kind, name, patch, "default")

    def holds(self, **more: Any) -> bool:
        given = {"pod": WEB, "claim": None, "deadline": None, **more}
        return self.surges.holds(**given)

    @property
    def restarts(self) -> list[Sent]:
        return [one for one in self.server.api.sent if one.method == "PATCH"]

    @property
    def said(self) -> list[tuple[str, str]]:
        told = zip(self.server.recorder.events, self.server.recorder.messages, strict=True)
        return [(event[3], message) for event, message in told]


def test_a_deployment_is_restarted_once_and_waited_for() -> None:
    stage = Stage()
    assert [stage.holds() for _ in range(3)] == [True] * 3
    (sent,) = stage.restarts
    assert sent.body["spec"]["template"]["metadata"]["annotations"] == {
        names.RESTARTED_AT: NOON.strftime("%Y-%m-%dT%H:%M:%SZ")
    }
    assert [reason for reason, _ in stage.said] == ["SurgeStarted"]
    assert "Deployment default/web" in stage.said[0][1]


def test_whoever_leads_next_goes_on_with_it() -> None:
    stage = Stage()
    stage.holds()
    stage.restart()
    assert (stage.holds(), stage.restarts) == (True, [])


def test_though_its_owner_takes_the_mark_off_it_is_not_restarted_again() -> None:
    stage = Stage()
    stage.holds()
    stage.change("deployments", "web", metadata={"annotations": {names.SURGED_FOR: None}})
    assert stage.holds()
    assert len(stage.restarts) == 1


def test_the_wait_is_bounded_by_a_clock_that_nobody_sets() -> None:
    stage = Stage()
    assert stage.holds()
    stage.change("deployments", "web", metadata={"annotations": {names.SURGED_FOR: f"{WEB.uid} 2199-01-01T00:00:00Z"}})
    stage.world.clock.advance(LONGEST.total_seconds())
    assert (stage.holds(), stage.holds()) == (False, False)
    assert stage.said[1:] == [
        ("SurgeNotPossible", "Evicting the pod without a surge: its new pod was not available in time")
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"replicas": 2}, "does not have exactly one replica"),
        ({"strategy": {"type": "Recreate"}}, "is Recreate; set it to RollingUpdate"),
        ({"strategy": {"rollingUpdate": {"maxSurge": 0}}}, "maxSurge of the Deployment is 0; set it to 1 or more"),
        ({"paused": True}, "is paused; resume it"),
    ],
)
def test_it_says_why_a_pod_is_evicted_without(change: dict[str, Any], words: str) -> None:
    stage = Stage(**change)
    assert (stage.holds(), stage.holds(), stage.restarts) == (False, False, [])
    ((reason, message),) = stage.said
    assert reason == "SurgeNotPossible"
    assert words in message


def test_missing_rights_are_said_and_hold_nothing() -> None:
    stage = Stage()
    stage.server.refuse["PATCH"] = 403
    assert not stage.holds()
    ((_, message),) = stage.said
    assert message.endswith("may not patch Deployments; add the component manifests/components/surge")
    stage.server.refuse["GET"] = 403
    stage.world.clock.advance(OWNER_SECONDS)
    assert not stage.holds()


def test_other_owners_are_evicted_and_hear_why() -> None:
    stage = Stage()
    for kind in ("replicasets", "statefulsets"):
        stage.change(kind, "web-abc", metadata={"ownerReferences": []})
    database = pod("db-0", owner="web-abc", kind="StatefulSet", node="a", ready=True)
    lone = pod("lone", owner="", node="a", ready=True, annotations={names.SURGE: "true"})
    assert [stage.holds(pod=one) for one in (database, lone, WEB)] == [False] * 3
    assert {message.split(": ")[1] for _, message in stage.said} == {
        "only Deployments can be restarted; use more replicas and a PodDisruptionBudget instead"
    }
    assert len(stage.said) == 3


def test_who_does_not_ask_costs_one_read_for_all_its_pods() -> None:
    stage = Stage()
    stage.change("replicasets", "web-abc", metadata={"annotations": None})
    others = [pod(f"web-{number}", owner="web-abc", node="a", ready=True) for number in range(20)]
    assert not any(stage.holds(pod=one) for one in others)
    assert [one.path for one in stage.server.api.sent] == ["/apis/apps/v1/namespaces/default/replicasets/web-abc"]


def test_a_deployment_that_changes_at_this_moment_is_looked_at_again() -> None:
    stage = Stage()
    stage.server.refuse["PATCH"] = 409
    assert stage.holds()
    stage.server.refuse.clear()
    assert stage.holds()
    assert len(stage.restarts) == 2
    assert [reason for reason, _ in stage.said] == ["SurgeStarted"]


def test_what_cannot_be_read_holds_for_as_long_as_a_surge_at_most() -> None:
    stage = Stage()
    stage.server.refuse["GET"] = 400
    assert stage.holds()
    stage.world.clock.advance(LONGEST.total_seconds())
    assert not stage.holds()


def test_a_user_s_deadline_and_an_interruption_are_not_outwaited() -> None:
    grace = pod("web-1", owner="web-abc", node="a", ready=True, grace_seconds=30)
    assert not Stage().holds(pod=grace, deadline=NOON + timedelta(seconds=30))
    now = Interruption("spot_interrupted", evicts=NOON, ends=NOON + timedelta(minutes=2))
    marked = claim("a", annotations={names.INTERRUPTION_ANNOTATION: str(now)})
    stage = Stage()
    assert (stage.holds(claim=marked), stage.restarts) == (False, [])


@pytest.mark.parametrize("known", [False, True], ids=["nobody knows who asks", "it asks"])
def test_they_are_not_outwaited_though_nothing_can_be_read(known: bool) -> None:
    stage = Stage()
    if known:
        stage.surges.holds(WEB, None, None)
    stage.server.refuse["GET"] = 500
    grace = pod("web-1", owner="web-abc", node="a", ready=True, grace_seconds=30)
    now = Interruption("spot_interrupted", evicts=NOON, ends=NOON + timedelta(minutes=2))
    assert not stage.holds(claim=claim("a", annotations={names.INTERRUPTION_ANNOTATION: str(now)}))
    assert not stage.holds(pod=grace, deadline=NOON + timedelta(seconds=30))
    assert stage.holds(deadline=NOON + timedelta(minutes=4))


def test_the_pod_needs_no_other_place_and_its_room_is_free_for_its_successor() -> None:
    stage = Stage()
    cluster = stage.world.cluster
    key = stage.world.view("b").key
    going = claim(
        "a",
        provider_id="kwok://a",
        true=(names.LAUNCHED, names.REGISTERED, names.INITIALIZED),
        deletionTimestamp=NOON.isoformat(),
    )
    cluster.claim_changed(cluster.claim("a"), going)
    assert cluster.snapshot().leaving == (WEB,)
    assert cluster.assign(key, [WEB]) == []
    assert stage.world.view("b").planned
    stage.holds()
    assert (cluster.snapshot().leaving, stage.world.assigned("b")) == ((), [])
    stage.change("deployments", "web", spec={"replicas": 2})
    stage.holds()
    assert cluster.snapshot().leaving == (WEB,), "it is evicted after all"
