"""Interrupted nodes: what is written, in which order, and what a crash or a refusal leaves."""

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandRecord
from provisioner.apis.interruption import Interruption, interruption_of
from provisioner.apis.pods import Pod
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.interruption.controller import PATIENCE_SECONDS, Interruptions
from provisioner.kube.errors import ApiError
from provisioner.runtime.live_reads import INTERRUPTED_SECONDS
from provisioner.support.metrics import REGISTRY
from provisioner.support.workers import WorkerPool, pool
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pod
from tests.support.cluster import pool as pool_of
from tests.support.eventually import eventually
from tests.support.kube import Sent
from tests.support.worldserver import ServerDied, WorldServer

SPOT = Interruption(
    "spot_interrupted", replaced=True, evicts=NOON + timedelta(seconds=45), ends=NOON + timedelta(seconds=120)
)
LATER = Interruption("scheduled_change", begins=NOON + timedelta(hours=1), budgeted=True, replaced=True)
ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


class Stage:
    """Interruptions over a world and its API server; called in this thread, pass by pass."""

    def __init__(self, workers: WorkerPool, patience: float = PATIENCE_SECONDS) -> None:
        self.patience = patience
        self.world = World()
        self.server = WorldServer(self.world)
        self.planned: list[str] = []
        self.interruptions = self.another(workers)

    def another(self, workers: WorkerPool) -> Interruptions:
        """The next leader's."""
        return self.server.interruptions(workers, self.planned.append, patience=self.patience)

    def existing_node(self, name: str, *pods: Pod, promised: tuple[Pod, ...] = (), **metadata: Any) -> None:
        self.server.put(
            claim(name, pods=promised, provider_id=f"kwok://{name}", true=ALL_TRUE, **metadata),
            node(name, labels={names.NODEPOOL_LABEL: "general"}, finalizers=[names.TERMINATION_FINALIZER]),
        )
        self.world.add(*pods)

    def mark(self, name: str, mark: Interruption = SPOT) -> bool:
        return self.interruptions.mark(self.server.claim(name), mark)

    def is_closed(self, name: str) -> bool:
        return names.DISRUPTED_TAINT.key in {taint.key for taint in self.server.node(name).spec.taints}


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    with pool(2) as threads:
        yield threads


def test_the_mark_is_written_once_however_often_it_is_told(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a")
    assert stage.mark("a")
    assert not stage.mark("a")
    assert stage.server.done == ["PATCH nodeclaims/a"]
    assert interruption_of(stage.server.claim("a").metadata.annotations) == SPOT


def test_two_notices_of_one_node_are_merged_although_both_saw_it_unmarked(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a")
    seen = stage.server.claim("a")
    stage.interruptions.mark(seen, LATER)
    stage.interruptions.mark(seen, SPOT)
    found = interruption_of(stage.server.claim("a").metadata.annotations)
    assert found is not None
    assert (found.reason, found.begins, found.evicts) == ("spot_interrupted", None, SPOT.evicts)


def test_what_the_caches_do_not_show_as_it_is_is_neither_closed_nor_evicted_yet(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a")
    stage.mark("a")
    stage.server.postpone = "the cache does not have the current version of Node a yet"
    stage.interruptions.run_once()
    assert not stage.is_closed("a")
    stage.server.postpone = ""
    stage.interruptions.run_once()
    assert stage.is_closed("a")
    stage.server.postpone = "the cache does not have the current version of Pod default/p yet"
    stage.world.clock.advance(45)
    stage.interruptions.run_once()
    assert stage.server.has("nodeclaims", "a")
    stage.server.postpone = ""
    stage.interruptions.run_once()
    assert not stage.server.has("nodeclaims", "a")
    assert set(stage.server.patience) == {INTERRUPTED_SECONDS}


def test_a_mark_that_cannot_be_written_is_an_error(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a")
    stage.server.refuse["a"] = 403
    with pytest.raises(ApiError):
        stage.mark("a")


def test_a_claim_that_is_gone_needs_no_mark(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a")
    del stage.server.objects["nodeclaims"]["a"]
    assert not stage.interruptions.mark(claim("a"), SPOT)


def test_the_way_of_an_interrupted_node(workers: WorkerPool) -> None:
    stage = Stage(workers)
    moving = pod("p", node="a")
    stage.existing_node("a", moving)
    stage.mark("a")

    stage.interruptions.run_once()
    assert stage.is_closed("a")
    assert stage.server.has("nodeclaims", "a"), "its pods still run"
    assert stage.planned == []

    stage.interruptions.run_once()
    assert stage.planned == ["interrupted/a"]
    assert stage.world.cluster.snapshot().leaving == (moving,)
    stage.interruptions.run_once()
    assert stage.planned == ["interrupted/a"], "asked for once in a while"
    stage.world.clock.advance(10)
    stage.interruptions.run_once()
    assert stage.planned == ["interrupted/a"] * 2

    stage.existing_node("b", promised=(moving,))
    stage.interruptions.run_once()
    assert not stage.server.has("nodeclaims", "a")
    assert stage.server.claim("a").metadata.annotations[names.TERMINATION_TIMESTAMP] == "2026-11-21T12:02:00Z"
    assert stage.server.recorder.events == [
        ("NodeClaim", "a", "Warning", "TerminatingOnInterruption"),
        ("Node", "a", "Warning", "TerminatingOnInterruption"),
    ]
    stage.server.done.clear()
    stage.interruptions.run_once()
    assert stage.server.done == [], "the rest is termination's"


def disrupted_pods() -> float:
    """So many pods were on claims of the tests' pool when these were interrupted."""
    family = next(one for one in REGISTRY.collect() if one.name == "karpenter_pods_disruption_initiated")
    return sum(one.value for one in family.samples if one.labels["reason"] == SPOT.reason)


def test_without_a_replacement_it_is_drained_when_time_runs_out(workers: WorkerPool) -> None:
    stage = Stage(workers)
    before = disrupted_pods()
    stage.existing_node("a", pod("p", node="a"), pod("daemon", node="a", kind="DaemonSet"))
    stage.mark("a")
    stage.interruptions.run_once()
    stage.world.clock.advance(45)
    stage.interruptions.run_once()
    assert not stage.server.has("nodeclaims", "a")
    assert disrupted_pods() == before + 1


def test_an_earlier_end_that_is_written_already_stays(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a", annotations={names.TERMINATION_TIMESTAMP: "2026-11-21T12:01:00Z"})
    stage.mark("a", Interruption("instance_status", ends=NOON + timedelta(minutes=2)))
    stage.interruptions.run_once()
    assert stage.server.claim("a").metadata.annotations[names.TERMINATION_TIMESTAMP] == "2026-11-21T12:01:00Z"


@pytest.mark.parametrize("first", ["deleted", "interrupted"])
def test_a_node_that_somebody_deletes_ends_no_later_than_its_instance(workers: WorkerPool, first: str) -> None:
    """A PodDisruptionBudget may hold the drain, and what runs there then is killed unasked."""
    stage = Stage(workers)
    stage.existing_node("a", pod("p", node="a"))
    if first == "interrupted":
        assert stage.mark("a")
    stage.server.writer.delete(stage.server.claim("a"))
    if first == "deleted":
        assert stage.mark("a")
    stage.server.done.clear()
    for _ in range(2):
        stage.interruptions.run_once()
    assert stage.server.done == ["PATCH nodeclaims/a"]
    assert stage.server.claim("a").metadata.annotations[names.TERMINATION_TIMESTAMP] == "2026-11-21T12:02:00Z"
    assert stage.server.recorder.events == [], "it is not deleted for that"


def test_a_node_that_is_deleted_already_keeps_its_time_until_its_interruption_begins(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a")
    begins = NOON + timedelta(hours=1)
    stage.mark("a", Interruption("scheduled_change", begins=begins, ends=begins + timedelta(hours=1)))
    stage.server.writer.delete(stage.server.claim("a"))
    stage.interruptions.run_once()
    assert names.TERMINATION_TIMESTAMP not in stage.server.claim("a").metadata.annotations
    stage.world.clock.advance(3600)
    stage.interruptions.run_once()
    assert stage.server.claim("a").metadata.annotations[names.TERMINATION_TIMESTAMP] == "2026-11-21T14:00:00Z"


def test_what_says_no_more_than_a_deletion_is_not_written_on_a_claim_that_is_deleted(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a")
    stage.server.writer.delete(stage.server.claim("a"))
    assert not stage.mark("a", Interruption("rebalance_recommended", replaced=True))


def test_the_next_leader_goes_on(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a", pod("p", node="a"))
    stage.mark("a")
    stage.interruptions.run_once()
    successor = stage.another(workers)
    successor.run_once()
    assert stage.planned == ["interrupted/a"]
    stage.world.clock.advance(45)
    successor.run_once()
    assert not stage.server.has("nodeclaims", "a")


@pytest.mark.parametrize("writes", range(5))
def test_a_crash_after_any_write_is_made_good_by_the_next_leader(workers: WorkerPool, writes: int) -> None:
    stage = Stage(workers)
    moving = pod("p", node="a")
    stage.existing_node("a", moving)

    def live(one: Interruptions) -> None:
        one.mark(stage.server.claim("a"), SPOT)
        one.run_once()
        if "b" not in {claim.name for claim in stage.world.cluster.claims()}:
            stage.existing_node("b", promised=(moving,))
        one.run_once()

    stage.server.dies_after = writes
    with contextlib.suppress(ServerDied):
        live(stage.interruptions)
    assert len(stage.server.done) <= writes
    stage.server.dies_after = None
    live(stage.another(workers))
    found = stage.server.claim("a")
    assert found.metadata.deletion_timestamp is not None
    assert found.metadata.annotations[names.TERMINATION_TIMESTAMP] == "2026-11-21T12:02:00Z"
    assert stage.is_closed("a")
    writes_of_one_life = ["PATCH nodeclaims/a", "PATCH nodes/a", "PATCH nodeclaims/a", "DELETE nodeclaims/a"]
    assert stage.server.done == writes_of_one_life, "nothing is done twice"


def test_a_refused_write_is_tried_again_and_holds_up_no_other(workers: WorkerPool) -> None:
    stage = Stage(workers)
    for name in ("a", "b"):
        stage.existing_node(name)
        stage.mark(name)
    stage.server.refuse["a"] = 403
    stage.interruptions.run_once()
    assert (stage.is_closed("a"), stage.is_closed("b")) == (False, True)
    stage.server.refuse.clear()
    stage.interruptions.run_once()
    assert stage.is_closed("a")


def test_what_has_not_begun_can_be_called_off(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a")
    stage.mark("a", LATER)
    assert stage.interruptions.call_off(stage.server.claim("a"))
    assert names.INTERRUPTION_ANNOTATION not in stage.server.claim("a").metadata.annotations
    assert not stage.interruptions.call_off(stage.server.claim("a")), "nothing is left to call off"
    stage.mark("a", SPOT)
    assert not stage.interruptions.call_off(stage.server.claim("a")), "it has begun"


def test_a_node_that_a_budget_holds_says_so(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.existing_node("a", annotations={names.DO_NOT_DISRUPT: "true"})
    stage.mark("a", Interruption("event_status", budgeted=True, replaced=True))
    stage.interruptions.run_once()
    assert not stage.is_closed("a")
    assert ("NodeClaim", "a", "Normal", "DisruptionBlocked") in stage.server.recorder.events


def test_an_allowance_that_a_command_has_spent_meanwhile_closes_nothing(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.world.cluster.pool_changed(None, pool_of(disruption={"budgets": [{"nodes": "1"}]}))
    for name in ("a", "b"):
        stage.existing_node(name)
    mark = Interruption("event_status", budgeted=True, replaced=True)
    stage.mark("a", mark)
    record = CommandRecord(id="c", reason="Drifted", method="drift", candidates=(CandidateRecord("b", "uid-b"),))
    assert stage.world.cluster.command_begun(record)
    stage.interruptions._close("a", mark)  # decided a moment before
    assert not stage.is_closed("a")
    stage.world.cluster.command_dropped(record)
    stage.interruptions._close("a", mark)
    assert stage.is_closed("a")


@pytest.mark.parametrize("reason", names.BUDGET_REASONS)
def test_a_spot_interruption_asks_no_budget_and_uses_it_up(workers: WorkerPool, reason: str) -> None:
    stage = Stage(workers)
    cluster = stage.world.cluster
    cluster.pool_changed(None, pool_of(disruption={"budgets": [{"nodes": "2"}]}))
    for name in "abcd":
        stage.existing_node(name)
    left = []
    for name in "abc":
        left.append(BudgetLedger(cluster).at(cluster.snapshot()).allowed("general", reason))
        stage.mark(name)
        stage.interruptions.run_once()
        assert stage.is_closed(name)
    assert left == [2, 1, 0]


def test_the_loop_ends_when_it_is_told_to(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.interruptions.poller.start()
    stage.interruptions.poller.stop()
    assert "interruption" not in {one.name for one in threading.enumerate()}


def test_one_node_whose_write_hangs_holds_up_no_other(workers: WorkerPool) -> None:
    stage, may_go = Stage(workers, patience=0.2), threading.Event()
    for name in ("a", "b"):
        stage.existing_node(name, pod(f"p-{name}", node=name))
        stage.mark(name)

    def hang(sent: Sent) -> None:
        if sent.path == "/api/v1/nodes/a":
            assert may_go.wait(20)

    stage.server.intercept = hang
    for _ in range(3):
        stage.interruptions.run_once()
    assert stage.is_closed("b")
    hanging = [sent for sent in stage.server.api.sent if sent.path == "/api/v1/nodes/a"]
    assert len(hanging) == 1, "it is written again while it hangs"
    may_go.set()
    eventually(lambda: stage.is_closed("a"), "it is closed in the end")
