"""A Node that is being deleted: cordoned, drained, ended, let go; from caches that may be behind."""

from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.meta import condition
from provisioner.cloudprovider.errors import CloudError
from provisioner.cloudprovider.types import CloudProvider
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.ec2.instances.instances import UNSEEN_SECONDS, InstanceUnseenError
from provisioner.kube.errors import NotFound
from provisioner.runtime.live_reads import DECIDED_SECONDS
from provisioner.state.pause import DISRUPTION, NOTHING, Pause, PauseValue
from provisioner.support.metrics import REGISTRY
from provisioner.support.workers import DONE, ReconcileResult
from provisioner.termination.controller import (
    DRAIN_REQUEUE_SECONDS,
    INSTANCE_REQUEUE_SECONDS,
    STALE_REQUEUE_SECONDS,
    TELL_SECONDS,
    Termination,
)
from provisioner.termination.terminator import HELD_SECONDS, MIN_TAINTED_SECONDS, VOLUMES_SECONDS
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pod, pod_budget
from tests.support.fleets import budget
from tests.support.instances import FakeInstances, Lingering
from tests.support.worldserver import WorldServer

ID = "kwok://n"
ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
GOING: dict[str, Any] = {"deletionTimestamp": NOON.isoformat(), "finalizers": [names.TERMINATION_FINALIZER]}


class Stage:
    """One Node that is being deleted."""

    def __init__(
        self, *, with_claim: bool = True, ready: bool = True, cloud: FakeInstances | None = None, **of_claim: Any
    ) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.cloud = cloud or FakeInstances(ID)
        self.stale = False
        label = names.nodeclass_label("karpenter.kwok.sh", "KWOKNodeClass")
        if with_claim:
            self.server.put(claim("c", provider_id=ID, true=ALL_TRUE, **of_claim))
        self.server.put(node("n", provider_id=ID, ready=ready, labels={label: "default"}, **GOING))
        self.lead()

    def lead(self) -> None:
        """A process that remembers nothing leads."""
        self.termination = Termination(
            self.world.cluster,
            self.server.client,
            cast(CloudProvider, self.cloud),
            self.server.writer,
            self.server.evictions,
            self.server.taints,
            self.server.terminator(self.cloud),
            self.server.recorder,
            self.world.clock,
            pods_are_stale=lambda: self.stale,
            postponed=self.server.postponed,
        )

    def look(self) -> ReconcileResult:
        return self.termination.reconcile("n")

    @property
    def stays(self) -> bool:
        return self.server.get("nodes", "n") is not None

    def drained(self) -> str:
        found = condition(self.server.claim("c").status.conditions, names.DRAINED)
        return "" if found is None else found.status


def test_a_node_that_ends_is_no_host_to_spread_pods_over() -> None:
    """It loses the label in the write that closes it, before anybody is asked to leave."""
    stage = Stage()
    node = stage.server.node("n")
    labels = {**node.metadata.labels, names.HOSTNAME_LABEL: "n.example"}
    stage.server.put(msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels)))
    stage.look()
    closed = stage.server.node("n").metadata.labels
    assert names.HOSTNAME_LABEL not in closed
    assert {*closed} == {*labels, names.EXCLUDE_BALANCERS_LABEL} - {names.HOSTNAME_LABEL}
    stage.look()
    assert [one for one in stage.server.done if one == "PATCH nodes/n"] == ["PATCH nodes/n"], "once"


def test_the_way_of_an_empty_node() -> None:
    stage = Stage()
    assert stage.look() == ReconcileResult(requeue_after=MIN_TAINTED_SECONDS)
    closed = stage.server.node("n")
    assert names.DISRUPTED_TAINT.key in {taint.key for taint in closed.spec.taints}
    assert names.EXCLUDE_BALANCERS_LABEL in closed.metadata.labels
    assert not stage.server.has("nodeclaims", "c")
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.look() == DONE
    assert (stage.cloud.ended, stage.stays) == ([ID], False)


def test_a_drain_that_the_caches_do_not_show_as_it_is_waits_before_each_round() -> None:
    stage = Stage()
    stage.server.bind("web", "n")
    stage.world.add(pod("web", node="n"))
    stage.server.postpone = "the cache does not have the current version of Pod default/web yet"
    assert stage.look() == ReconcileResult(requeue_after=DRAIN_REQUEUE_SECONDS)
    assert stage.server.done == [], "neither closed nor deleted"
    stage.server.postpone = ""
    stage.look()
    stage.server.postpone = "the cache does not have the current version of Pod default/other yet"
    stage.server.done.clear()
    stage.server.bind("other", "n")
    stage.world.add(pod("other", node="n"))
    stage.look()
    stage.server.work_off()
    assert stage.server.done == ["POST evictions/web"], "what was asked for before goes on"
    stage.stale = True  # then pods are listed at the API server, and nothing is left to compare
    stage.look()
    stage.server.work_off()
    assert stage.server.done == ["POST evictions/web", "POST evictions/other"]
    assert set(stage.server.patience) == {DECIDED_SECONDS}


def test_of_pods_that_a_budget_refuses_nothing_is_read() -> None:
    stage = Stage()
    stage.world.cluster.budget_changed(None, budget("guard", "web", 0))
    stage.server.refuse["web"] = 429
    stage.server.refusal = "Cannot evict pod as it would violate the pod's disruption budget."
    stage.server.bind("web", "n")
    stage.world.add(pod("web", node="n", phase="Running", ready=True, labels={"app": "web"}))
    stage.look()
    stage.server.work_off()
    asked = len(stage.server.patience)
    for _ in range(10):
        stage.look()
    assert len(stage.server.patience) == asked


HELD = "example.com/hold"


@pytest.mark.parametrize("ready", [True, False], ids=["at once", "already gone"])
def test_a_node_that_others_hold_says_that_its_instance_has_ended_however_fast_that_was(ready: bool) -> None:
    """Of three nodes with such a finalizer and a budget of half of them, two went and the third never."""
    stage = Stage(ready=ready, cloud=FakeInstances(*([ID] if ready else [])))
    held = stage.server.node("n")
    metadata = msgspec.structs.replace(held.metadata, finalizers=(names.TERMINATION_FINALIZER, HELD))
    stage.server.put(msgspec.structs.replace(held, metadata=metadata))
    stage.look()
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    stage.look()
    assert stage.server.node("n").metadata.finalizers == (HELD,)
    told = {one.type: one.status for one in stage.server.claim("c").status.conditions}
    ends = (names.DRAINED, names.VOLUMES_DETACHED, names.INSTANCE_TERMINATING)
    assert [told.get(one) for one in ends] == (["True"] * 3 if ready else [None, None, "True"])
    budget = AllowanceLedger(stage.world.cluster.snapshot()).budget("general", names.REASON_DRIFTED)
    assert (budget.nodes, budget.consuming) == (0, 0)


@pytest.mark.parametrize("status", [422, 500])
def test_a_node_without_an_instance_goes_though_its_claim_cannot_be_told(status: int) -> None:
    stage = Stage(ready=False, cloud=FakeInstances())
    stage.server.writer.delete(stage.server.claim("c"))
    stage.server.refuse["c"] = status
    stage.look()
    assert not stage.server.has("nodes", "n")


def test_pods_leave_before_the_instance_is_ended() -> None:
    stage = Stage()
    stage.server.bind("web", "n")
    known = pod("web", node="n")
    stage.world.add(known)
    assert stage.look() == ReconcileResult(requeue_after=DRAIN_REQUEUE_SECONDS)
    assert stage.drained() == "Unknown"
    stage.server.work_off()
    stage.world.cluster.pod_changed(known, None)
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.look() == DONE
    assert stage.cloud.ended == [ID]


@pytest.mark.parametrize("grace", [None, "0s"], ids=["evicted", "deleted at the deadline"])
def test_what_cannot_be_told_keeps_no_pod(grace: str | None) -> None:
    """An admission policy, say, refuses what is said on the NodeClaim."""
    stage = Stage()
    if grace is not None:
        spec = stage.server.claim("c").spec
        one = msgspec.structs.replace(spec, termination_grace_period=grace)
        stage.server.put(msgspec.structs.replace(stage.server.claim("c"), spec=one))
    stage.server.writer.delete(stage.server.claim("c"))
    stage.server.bind("web", "n", spec__terminationGracePeriodSeconds=30)
    stage.world.add(pod("web", node="n", uid="web", grace_seconds=30))
    stage.server.refuse["c"] = 422
    assert stage.look() == ReconcileResult(failed=True)
    stage.server.work_off()
    assert stage.server.done[-1] == ("POST evictions/web" if grace is None else "DELETE pods/web")


def test_a_node_whose_instance_the_cloud_does_not_end_says_that_it_is_drained() -> None:
    stage = Stage()
    stage.server.bind("web", "n")
    known = pod("web", node="n")
    stage.world.add(known)
    stage.look()
    stage.server.work_off()
    stage.world.cluster.pod_changed(known, None)
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    stage.cloud.broken = CloudError("TerminateInstances is not allowed")
    for _ in range(2):
        assert stage.look().failed
    assert stage.drained() == "True"
    assert ("NodeClaim", "c", "Warning", "FailedTermination") in stage.server.recorder.events
    assert stage.stays


def test_a_pod_that_no_watch_has_told_of_is_drained_as_any_other() -> None:
    stage = Stage()
    stage.server.bind("web", "n")
    stage.look()
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.look() == ReconcileResult(requeue_after=HELD_SECONDS)
    assert (stage.cloud.ended, stage.drained()) == ([], "Unknown")
    stage.server.work_off()
    assert stage.look() == DONE
    assert stage.cloud.ended == [ID]


def test_what_was_written_into_a_pod_before_its_nodeclaim_was_deleted_holds_though_no_cache_has_it() -> None:
    stage = Stage()
    cached = pod("web", node="n", resource_version="9")
    stage.world.add(cached)
    protection = {names.DO_NOT_DISRUPT: "true"}
    stage.server.bind("web", "n", metadata__annotations=protection)
    for _ in range(3):  # the caches are behind for a while
        assert stage.look() == ReconcileResult(requeue_after=DRAIN_REQUEUE_SECONDS)
        stage.world.clock.advance(TELL_SECONDS)
    stage.server.work_off()
    assert "do-not-disrupt" in told(stage)[2]
    assert "POST evictions/web" not in stage.server.done
    seen = msgspec.structs.replace(cached, resource_version=stage.server.next_version())  # it is taken off again
    stage.world.cluster.pod_changed(cached, seen)
    stage.look()
    stage.server.work_off()
    assert "POST evictions/web" in stage.server.done


def test_while_the_watch_of_pods_is_behind_a_drain_goes_on_with_what_the_api_server_has() -> None:
    stage = Stage()
    stage.world.add(pod("gone", node="n"))  # the server knows better
    stage.server.bind("web", "n")
    stage.stale = True
    assert stage.look() == ReconcileResult(requeue_after=STALE_REQUEUE_SECONDS)
    stage.server.work_off()
    assert "POST evictions/web" in stage.server.done
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.look() == DONE


@pytest.mark.parametrize("stale", [False, True])
def test_a_list_that_fails_means_wait(stale: bool) -> None:
    stage = Stage()
    stage.stale = stale
    stage.look()
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    stage.server.refuse["pods"] = 500
    assert stage.look() == ReconcileResult(failed=True)
    assert stage.cloud.ended == []


def test_a_disruption_that_was_healed_gives_the_next_one_no_head_start() -> None:
    stage = Stage()
    stage.server.taints.close(stage.server.node("n"))
    stage.world.clock.advance(600)
    stage.server.taints.reopen(stage.server.node("n"))
    assert stage.look() == ReconcileResult(requeue_after=MIN_TAINTED_SECONDS)
    assert stage.cloud.ended == []


def test_a_node_of_nobody_is_drained_before_it_is_let_go() -> None:
    stage = Stage(with_claim=False)
    stage.server.bind("web", "n")
    stage.look()
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    stage.look()
    assert stage.stays
    stage.server.work_off()
    assert stage.look() == DONE
    assert not stage.stays


def test_a_node_whose_instance_is_gone_is_let_go_at_once() -> None:
    stage = Stage(ready=False)
    stage.cloud.there.clear()
    stage.server.bind("web", "n")
    assert stage.look() == DONE
    assert not stage.stays


def test_a_node_whose_instance_ec2_does_not_describe_now_is_drained_as_any_other() -> None:
    """Its kubelet is not ready either, and its pods may live all the same."""
    stage = Stage(ready=False)
    stage.cloud.broken = InstanceUnseenError("i-1", 300.0)
    stage.server.bind("web", "n")
    stage.look()
    assert stage.stays
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.look() == ReconcileResult(requeue_after=HELD_SECONDS)
    stage.server.work_off()
    assert "POST evictions/web" in stage.server.done
    assert stage.look() == ReconcileResult(requeue_after=UNSEEN_SECONDS)
    assert stage.stays, "it may run"
    stage.cloud.broken = None
    stage.cloud.there.clear()
    assert stage.look() == DONE
    assert not stage.stays


def test_a_node_that_is_gone_costs_nothing_more() -> None:
    stage = Stage()
    del stage.server.objects["nodes"]["n"]
    assert stage.look() == DONE
    with pytest.raises(NotFound):
        stage.server.taints.close(node("n"))


def test_a_deadline_that_has_passed_forces_pods_out() -> None:
    past = (NOON - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    stage = Stage(annotations={names.TERMINATION_TIMESTAMP: past})
    stage.server.bind("web", "n", metadata__annotations={names.DO_NOT_DISRUPT: "true"})
    stage.look()
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    stage.look()
    stage.server.work_off()
    assert "DELETE pods/web" in stage.server.done


def test_a_pause_holds_a_drain_beyond_its_deadline() -> None:
    """A protected pod is not deleted, and the instance stays, until the pause is over."""
    past = (NOON - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    stage = Stage(annotations={names.TERMINATION_TIMESTAMP: past, names.ENDED_FOR: "expired"})
    stage.server.bind("web", "n", metadata__annotations={names.DO_NOT_DISRUPT: "true"})
    stage.server.pause = Pause(PauseValue(DISRUPTION))
    for _ in range(3):
        stage.look()
        stage.server.work_off()
        stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert "DELETE pods/web" not in stage.server.done
    assert stage.cloud.ended == []
    stage.server.pause = NOTHING
    stage.look()
    stage.server.work_off()
    assert "DELETE pods/web" in stage.server.done


def test_a_paused_drain_asks_the_api_server_nothing_and_says_what_it_waits_for() -> None:
    """Looks come every second, of each Node: with a hundred Nodes their reads would take all that the client may send."""
    stage = Stage(annotations={names.ENDED_FOR: "expired"})
    stage.server.bind("web", "n")
    stage.world.add(pod("web", node="n"))
    stage.server.pause = Pause(PauseValue(DISRUPTION))
    stage.look()
    stage.server.patience.clear()
    stage.server.recorder.messages.clear()
    for _ in range(3):
        stage.look()
        stage.server.work_off()
    assert stage.server.patience == []
    assert any("paused" in message for message in stage.server.recorder.messages)
    stage.server.pause = NOTHING
    stage.look()
    stage.server.work_off()
    assert stage.server.patience
    assert "POST evictions/web" in stage.server.done


def test_a_kubelet_that_writes_nonsense_into_its_status_does_not_keep_its_node() -> None:
    stage = Stage()
    stage.server.tell = False  # a watch skips what it cannot decode
    stage.server.objects["nodes"]["n"]["status"]["conditions"] = 7
    for _ in range(3):
        stage.look()
        stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.cloud.ended == [ID]


# ------------------------------------------------------------------ what holds a drain, as users see it


def blocked(cause: str) -> float:
    return REGISTRY.get_sample_value("dovetail_nodes_drain_blocked", {"nodepool": "general", "cause": cause}) or 0.0


def told(stage: Stage, kind: str = names.DRAINED) -> tuple[str, str, str]:
    found = condition(stage.server.claim("c").status.conditions, kind)
    return ("", "", "") if found is None else (found.status, found.reason, found.message)


def guarded(stage: Stage, *, healthy: int = 3, required: int = 2, allowed: int = 0) -> None:
    stage.world.cluster.budget_changed(None, pod_budget(healthy=healthy, required=required, allowed=allowed))


def test_a_drain_says_which_budget_of_which_pod_holds_it() -> None:
    stage = Stage()
    guarded(stage)
    stage.world.add(pod("web-1", node="n", owner="web", ready=True))
    stage.look()
    status, reason, message = told(stage)
    assert (status, reason) == ("Unknown", "Draining")
    assert message == (
        "PodDisruptionBudget default/guard allows no eviction now (minAvailable 2, 3 of 3 pods healthy, 2 required) "
        "of pod default/web-1 of ReplicaSet web, blocked since 2026-11-21T12:00:00Z"
    )
    assert [one[:2] for one in stage.server.recorder.events if one[3] == "FailedDraining"] == [
        ("Node", "n"),
        ("NodeClaim", "c"),
    ]
    assert stage.server.recorder.messages[-1] == f"Failed to drain node, 1 pods are waiting to be evicted: {message}"
    assert blocked("pod-budget") == 1.0
    guarded(stage, allowed=1)
    stage.look()
    assert blocked("pod-budget") == 0.0


def test_a_budget_that_can_never_allow_an_eviction_is_called_so() -> None:
    stage = Stage()
    guarded(stage, healthy=2, required=2)
    stage.world.add(pod("web-1", node="n", owner="web", ready=True))
    stage.look()
    assert "never allows an eviction" in told(stage)[2]
    assert told(stage)[2].endswith(", blocked since 2026-11-21T12:00:00Z; change the budget or add replicas")
    assert blocked("impossible-pod-budget") == 1.0
    del stage.server.objects["nodes"]["n"]
    stage.world.cluster.node_changed(stage.world.cluster.node("n"), None)
    stage.look()
    assert blocked("impossible-pod-budget") == 0.0, "a Node that is gone is blocked by nothing"


def test_what_holds_a_drain_is_written_again_when_it_changes_and_not_too_often() -> None:
    stage = Stage()
    first, second = (pod(name, node="n", annotations={names.DO_NOT_DISRUPT: "true"}) for name in "ab")
    stage.world.add(first, second)
    stage.look()
    both = told(stage)[2]
    stage.world.cluster.pod_changed(first, None)
    stage.look()
    assert told(stage)[2] == both
    stage.world.clock.advance(TELL_SECONDS)
    stage.look()
    assert told(stage)[2] == (
        "pod default/b of ReplicaSet rs has the annotation karpenter.sh/do-not-disrupt, blocked since 2026-11-21T12:00:00Z"
    )
    writes = stage.server.done.count("PATCH nodeclaims/c")
    stage.world.clock.advance(TELL_SECONDS)
    stage.look()
    assert stage.server.done.count("PATCH nodeclaims/c") == writes, "nothing has changed"


def test_until_when_a_drain_is_held_is_said() -> None:
    stage = Stage(annotations={names.TERMINATION_TIMESTAMP: "2026-11-21T12:30:00Z"})
    stage.world.add(pod("a", node="n", annotations={names.DO_NOT_DISRUPT: "1h"}, start_time=NOON, grace_seconds=30))
    stage.look()
    assert told(stage)[2] == (
        "pod default/a of ReplicaSet rs has the annotation karpenter.sh/do-not-disrupt until 2026-11-21T13:00:00Z, "
        "blocked since 2026-11-21T12:00:00Z; all pods will be deleted by 2026-11-21T12:30:00Z"
    )


def test_since_when_a_drain_is_held_stays_the_same_for_whoever_leads_and_is_one_event() -> None:
    stage = Stage()
    guarded(stage)
    stage.world.add(pod("web-1", node="n", owner="web", ready=True))
    stage.look()
    first, events = told(stage)[2], list(stage.server.recorder.messages)
    assert first.endswith(", blocked since 2026-11-21T12:00:00Z")
    stage.world.clock.advance(10 * TELL_SECONDS)
    stage.lead()
    stage.look()
    assert told(stage)[2] == first
    assert set(stage.server.recorder.messages) == set(events)


def attachment() -> dict[str, Any]:
    return {
        "metadata": {"name": "csi-1", "uid": "1"},
        "spec": {"nodeName": "n", "source": {"persistentVolumeName": "pv-1"}},
    }


def test_a_drained_node_says_that_it_waits_for_its_volumes() -> None:
    stage = Stage()
    stage.server.only("volumeattachments", attachment())
    stage.look()
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.look() == ReconcileResult(requeue_after=VOLUMES_SECONDS)
    assert told(stage)[0] == "True"
    awaited = "Waiting for 1 volume to detach: pv-1"
    assert told(stage, names.VOLUMES_DETACHED) == ("Unknown", "AwaitingVolumeDetachment", awaited)
    assert ("Node", "n", "Normal", "AwaitingVolumeDetachment") in stage.server.recorder.events
    assert stage.cloud.ended == []
    stage.server.only("volumeattachments")
    assert stage.look() == DONE
    assert stage.cloud.ended == [ID]


def test_volumes_that_are_attached_when_the_grace_period_is_over_are_named_and_not_awaited() -> None:
    past = (NOON - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    stage = Stage(cloud=Lingering(ID), annotations={names.TERMINATION_TIMESTAMP: past})
    stage.server.only("volumeattachments", attachment())
    stage.look()
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    for _ in range(2):
        assert stage.look() == ReconcileResult(requeue_after=INSTANCE_REQUEUE_SECONDS)
        assert told(stage, names.VOLUMES_DETACHED)[:2] == ("False", "TerminationGracePeriodElapsed")
