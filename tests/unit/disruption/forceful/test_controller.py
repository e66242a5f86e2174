"""Expiration and node repair: what is deleted, what counts it, and what keeps it back."""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.core import Node, NodeStatus
from provisioner.apis.interruption import Interruption
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import RepairPolicy
from provisioner.disruption.forceful.controller import STALE_SECONDS, ForcefulDisruption
from provisioner.disruption.node_health import NodeHealth, repair_policies_of
from provisioner.kube.errors import ServerError
from provisioner.options import Options
from provisioner.runtime.live_reads import CHOSEN_SECONDS, DECIDED_SECONDS
from provisioner.state.pause import DISRUPTION, NOTHING, Pause, PauseValue
from provisioner.support.metrics import REGISTRY
from provisioner.termination.unfinished import INSTANCE_TERMINATING
from tests.support.clock import NOON
from tests.support.cluster import claim, node
from tests.support.disrupting import ALL_TRUE, DisruptedNodes
from tests.support.eventually import eventually
from tests.support.kube import Sent

POLICY = RepairPolicy(names.READY, names.FALSE, timedelta(minutes=10), termination_grace_period=timedelta(0))


@pytest.fixture
def stages() -> Iterator[Callable[..., tuple[DisruptedNodes, ForcefulDisruption]]]:
    made: list[tuple[DisruptedNodes, ForcefulDisruption]] = []

    def make(
        *nodes: str, policies: tuple[RepairPolicy, ...] = (), legacy: bool = True, **options: Any
    ) -> tuple[DisruptedNodes, ForcefulDisruption]:
        stage = DisruptedNodes(*nodes, **options)
        server = stage.server
        forceful = ForcefulDisruption(
            stage.world.cluster,
            server.writer,
            server.recorder,
            stage.ledger,
            stage.world.clock,
            health=NodeHealth(stage.world.cluster, stage.world.clock, policies),
            legacy=legacy,
            stale=lambda: stage.behind,
            pause=lambda: stage.pause,
            postponed=server.postponed,
        )
        forceful.queue.start()
        made.append((stage, forceful))
        return made[-1]

    yield make
    for stage, forceful in made:
        forceful.queue.stop(5.0)
        stage.stop()


Make = Callable[..., tuple[DisruptedNodes, ForcefulDisruption]]


def expiring(stage: DisruptedNodes, name: str, after: str) -> None:
    made = claim(name, provider_id=f"kwok://{name}", true=ALL_TRUE)
    spec = msgspec.structs.replace(made.spec, expire_after=after)
    changed: NodeClaim = msgspec.structs.replace(made, spec=spec)
    stage.server.put(changed, node(name, labels={names.NODEPOOL_LABEL: "general"}))


def turn(forceful: ForcefulDisruption) -> None:
    forceful.run_once()
    eventually(forceful.queue.idle, "what was decided is done", 10.0, 0.005)


def disrupted(reason: str) -> float:
    labels = {
        "reason": reason,
        "nodepool": "general",
        "capacity_type": "",
        "consolidation_policy": "",
        "termination_mode": "graceful",
    }
    return REGISTRY.get_sample_value("karpenter_nodeclaims_disrupted_total", labels) or 0.0


def test_a_node_goes_when_its_time_is_over_whatever_budgets_say(stages: Make) -> None:
    stage, forceful = stages("a", "b", budget="0")
    expiring(stage, "a", "1h")
    before = disrupted("expired")
    stage.world.clock.advance(3599)
    turn(forceful)
    assert not stage.goes("a")
    stage.world.clock.advance(1)
    turn(forceful)
    assert (stage.goes("a"), stage.goes("b")) == (True, False)
    assert disrupted("expired") == before + 1
    assert stage.server.recorder.messages == ["Disrupting Node: Expired"] * 2


@pytest.mark.parametrize("status", [200, 500])
def test_an_expired_node_says_why_it_ends_and_ends_though_it_cannot(stages: Make, status: int) -> None:
    stage, forceful = stages("a")
    expiring(stage, "a", "1h")
    stage.server.objects["nodeclaims"]["a"]["metadata"]["finalizers"] = [names.TERMINATION_FINALIZER]
    stage.world.clock.advance(3600)
    if status != 200:
        patch = stage.server.client.patch

        def refused(resource: object, name: str, *args: object, **more: object) -> object:
            if str(resource).startswith("nodeclaims"):
                raise ServerError(500, "InternalError", "no")
            return patch(resource, name, *args, **more)  # type: ignore[arg-type]

        stage.server.client.patch = refused  # type: ignore[assignment,method-assign]
    turn(forceful)
    one = stage.server.claim("a")
    assert one.metadata.deletion_timestamp is not None
    assert one.metadata.annotations.get(names.ENDED_FOR, "") == ("expired" if status == 200 else "")
    assert "Disrupting Node: Expired" in stage.server.recorder.messages


@pytest.mark.parametrize("broken", [False, True], ids=["expired", "broken"])
def test_a_node_that_the_caches_do_not_show_as_it_is_stays(stages: Make, broken: bool) -> None:
    stage, forceful = stages("a", policies=(POLICY,) if broken else ())
    if broken:
        break_node(stage, forceful, "a")
        stage.world.clock.advance(600)
    else:
        expiring(stage, "a", "1h")
        stage.world.clock.advance(3600)
    stage.server.postpone = "the cache does not have the current version of Node a yet"
    forceful.run_once()
    eventually(lambda: bool(stage.server.patience), "it is asked", 10.0, 0.005)
    assert not stage.goes("a")
    assert set(stage.server.patience) == {DECIDED_SECONDS if broken else CHOSEN_SECONDS}
    stage.server.postpone = ""
    stage.world.clock.advance(STALE_SECONDS)
    eventually(lambda: stage.goes("a"), "it goes", 10.0, 0.005)


def test_nothing_expires_while_a_watch_is_behind(stages: Make) -> None:
    stage, forceful = stages("a")
    expiring(stage, "a", "1h")
    stage.world.clock.advance(3600)
    stage.behind = "nodes were last heard of 80 s ago"
    turn(forceful)
    assert not stage.goes("a")


def test_an_expired_node_counts_against_the_budget_from_the_moment_it_begins(stages: Make) -> None:
    stage, forceful = stages("a", "b", budget="1")
    expiring(stage, "a", "1h")
    stage.world.clock.advance(3600)
    counted: list[int] = []

    def look(sent: Sent) -> None:
        if sent.method == "DELETE":
            counted.append(stage.ledger.at(stage.world.cluster.snapshot()).allowed("general", names.REASON_EMPTY))

    stage.server.intercept = look
    assert stage.ledger.at(stage.world.cluster.snapshot()).allowed("general", names.REASON_EMPTY) == 1
    turn(forceful)
    assert counted == [0]


def test_a_deletion_that_fails_is_tried_again_and_gives_the_budget_back_meanwhile(stages: Make) -> None:
    stage, forceful = stages("a", "b", budget="1")
    expiring(stage, "a", "1h")
    stage.world.clock.advance(3600)
    stage.server.refuse["a"] = 500
    turn(forceful)
    assert not stage.goes("a")
    assert stage.ledger.at(stage.world.cluster.snapshot()).allowed("general", names.REASON_EMPTY) == 1
    del stage.server.refuse["a"]
    stage.world.clock.advance(10)
    eventually(lambda: stage.goes("a"), "it is tried again", 10.0, 0.01)


def break_node(stage: DisruptedNodes, forceful: ForcefulDisruption, *those: str) -> None:
    """Their kubelets say so, and that is seen."""
    for name in those:
        stage.server.put(node(name, ready=False, labels={names.NODEPOOL_LABEL: "general"}))
    forceful.run_once()


def break_with_time(stage: DisruptedNodes, name: str, at: datetime) -> None:
    broken = node(name, ready=False, labels={names.NODEPOOL_LABEL: "general"})
    conditions = tuple(msgspec.structs.replace(one, last_transition_time=at) for one in broken.status.conditions)
    status = msgspec.structs.replace(broken.status, conditions=conditions)
    metadata = msgspec.structs.replace(broken.metadata, creation_timestamp=NOON - timedelta(days=1))
    stage.world.cluster.node_changed(
        stage.world.cluster.node(name), msgspec.structs.replace(broken, status=status, metadata=metadata)
    )


TIMES = {
    "the last date of calendars": (datetime.max.replace(tzinfo=UTC), 600),
    "a time that cannot be compared": (datetime(2020, 1, 1), 600),  # noqa: DTZ001 - a time without a zone
    "in an hour, by a clock that is fast": (NOON + timedelta(hours=1), 600),
    # as after a change of leader; or its kubelet's clock is slow, and it began to restart just now
    "an hour ago": (NOON - timedelta(hours=1), 60),
}


@pytest.mark.parametrize(("at", "seconds"), TIMES.values(), ids=TIMES)
def test_a_broken_node_is_repaired_so_long_after_it_was_seen_and_no_less_than_a_minute_whatever_its_kubelet_says(
    stages: Make, at: datetime, seconds: int
) -> None:
    stage, forceful = stages("a", policies=(POLICY,))
    break_with_time(stage, "a", at)
    turn(forceful)
    stage.world.clock.advance(seconds - 1)
    turn(forceful)
    assert not stage.goes("a")
    stage.world.clock.advance(1)
    turn(forceful)
    assert stage.goes("a")


def test_who_asks_why_meanwhile_gets_the_same_answer_and_changes_none(
    stages: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any thread may ask, also between two Nodes of another one's question."""
    stage, forceful = stages(*"abcdefghijkl", policies=(POLICY,))
    break_node(stage, forceful, "a", "b")
    stage.world.clock.advance(600)
    snapshot = stage.world.cluster.snapshot()
    answers: list[list[str]] = []

    class Interrupted:
        """A Node; whoever comes to its conditions first lets another one ask."""

        def __init__(self, real: Node) -> None:
            self.metadata, self.real = real.metadata, real

        @property
        def status(self) -> NodeStatus:
            if not answers:
                answers.append([])
                answers[0] = [one.key for one in forceful.decide_repairs(snapshot).repair]
            return self.real.status

    find = stage.world.cluster.node

    def found(name: str) -> Node | Interrupted | None:
        real = find(name)
        return Interrupted(real) if real is not None and name == "b" else real

    monkeypatch.setattr(stage.world.cluster, "node", found)
    answers.append([one.key for one in forceful.decide_repairs(snapshot).repair])
    assert answers == [["a", "b"], ["a", "b"]]


@pytest.mark.parametrize("at", [at for at, _ in TIMES.values()], ids=TIMES)
def test_what_a_kubelet_writes_keeps_no_other_node_from_its_repair_or_its_end(
    stages: Make, caplog: pytest.LogCaptureFixture, at: datetime
) -> None:
    stage, forceful = stages(*"abcdef", policies=(POLICY,))
    expiring(stage, "b", "1h")
    break_node(stage, forceful, "c")
    stage.world.clock.advance(3600)
    break_with_time(stage, "a", at)
    turn(forceful)
    assert [name for name in "abcdef" if stage.goes(name)] == ["b", "c"]
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_nodes_expire_though_repairs_cannot_be_decided(
    stages: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OverflowError("date value out of range")

    monkeypatch.setattr("provisioner.disruption.forceful.controller.decide_repairs", fail)
    stage, forceful = stages("a", policies=(POLICY,))
    expiring(stage, "a", "1h")
    stage.world.clock.advance(3600)
    turn(forceful)
    assert stage.goes("a")
    assert [record.levelname for record in caplog.records if "node repair pass failed" in record.message] == ["ERROR"]


def test_nodes_are_repaired_though_expirations_cannot_be_decided(stages: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OverflowError("date value out of range")

    monkeypatch.setattr("provisioner.disruption.forceful.controller.decide_expirations", fail)
    stage, forceful = stages(*"abcde", policies=(POLICY,))
    break_node(stage, forceful, "a")
    stage.world.clock.advance(600)
    turn(forceful)
    assert stage.goes("a")


def test_a_broken_node_ends_at_once(stages: Make) -> None:
    labels = {
        "condition": "ready",
        "nodepool": "general",
        "capacity_type": "",
        "image_id": "",
        "termination_mode": "graceful",
    }
    before = REGISTRY.get_sample_value("karpenter_nodeclaims_unhealthy_disrupted_total", labels) or 0.0
    stage, forceful = stages(*"abcde", policies=(POLICY,), budget="0")
    break_node(stage, forceful, "a")
    stage.world.clock.advance(599)
    turn(forceful)
    assert not stage.goes("a")
    stage.world.clock.advance(1)
    ends: list[tuple[str, ...]] = []

    def look(sent: Sent) -> None:
        if sent.method == "DELETE":
            written = stage.server.claim("a").metadata.annotations
            ends.append((written[names.TERMINATION_TIMESTAMP], written[names.ENDED_FOR]))

    stage.server.intercept = look
    turn(forceful)
    assert [stage.goes(name) for name in "abcde"] == [True, False, False, False, False]
    assert ends == [((NOON + timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ"), "unhealthy")]
    assert REGISTRY.get_sample_value("karpenter_nodeclaims_unhealthy_disrupted_total", labels) == before + 1


def test_a_node_that_recovers_before_its_repair_is_whole_keeps_no_deadline_of_it(stages: Make) -> None:
    """Else whatever ends the node later would delete its pods at once, past PodDisruptionBudgets and do-not-disrupt."""
    stage, forceful = stages(*"abcde", policies=(POLICY,))
    break_node(stage, forceful, "a")
    stage.world.clock.advance(600)
    stage.server.refuse["DELETE"] = 503
    turn(forceful)
    assert {names.TERMINATION_TIMESTAMP, names.ENDED_FOR} <= stage.server.claim("a").metadata.annotations.keys()
    stage.server.refuse.clear()
    stage.server.put(node("a", labels={names.NODEPOOL_LABEL: "general"}))
    forceful.run_once()
    stage.world.clock.advance(10)
    eventually(forceful.queue.idle, "what was decided is done", 10.0, 0.005)
    turn(forceful)
    assert not stage.goes("a")
    kept = stage.server.claim("a").metadata.annotations
    assert not {names.TERMINATION_TIMESTAMP, names.ENDED_FOR} & kept.keys(), "and no pause holds its deletion by a user"


def test_an_expired_node_ends_by_its_own_grace_period_whatever_deadline_a_repair_left(stages: Make) -> None:
    stage, forceful = stages("a")
    expiring(stage, "a", "1h")
    old = {names.TERMINATION_TIMESTAMP: NOON.strftime("%Y-%m-%dT%H:%M:%SZ")}
    stage.server.writer.metadata(stage.server.claim("a"), annotations=old)
    stage.world.clock.advance(3600)
    turn(forceful)
    assert stage.goes("a")
    assert names.TERMINATION_TIMESTAMP not in stage.server.objects["nodeclaims"]["a"]["metadata"]["annotations"]


def test_the_deadline_of_an_interruption_stays(stages: Make) -> None:
    stage, forceful = stages("a")
    mark = str(Interruption("spot_interrupted", replaced=True, ends=NOON))
    wanted = {names.TERMINATION_TIMESTAMP: NOON.strftime("%Y-%m-%dT%H:%M:%SZ"), names.INTERRUPTION_ANNOTATION: mark}
    stage.server.writer.metadata(stage.server.claim("a"), annotations=wanted)
    stage.world.clock.advance(60)
    turn(forceful)
    assert wanted.items() <= stage.server.claim("a").metadata.annotations.items()


def test_a_node_that_breaks_while_it_is_drained_is_drained_at_once(stages: Make) -> None:
    """A PodDisruptionBudget keeps pods that do not run, and whoever deletes the node has no more to say."""
    stage, forceful = stages(*"abcdef", policies=(POLICY,))
    before = disrupted("unhealthy")
    stage.server.writer.delete(stage.server.claim("a"))
    break_node(stage, forceful, "a")
    stage.world.clock.advance(599)
    turn(forceful)
    assert names.TERMINATION_TIMESTAMP not in stage.server.claim("a").metadata.annotations
    stage.world.clock.advance(1)
    stage.server.done.clear()
    for _ in range(2):
        turn(forceful)
    assert stage.server.done == ["PATCH nodeclaims/a"]
    annotations = stage.server.claim("a").metadata.annotations
    assert annotations[names.TERMINATION_TIMESTAMP] == "2026-11-21T12:10:00Z"
    assert names.ENDED_FOR not in annotations, "no pause holds what a user deletes"
    assert stage.server.recorder.messages == ["Disrupting Node: Unhealthy"] * 2
    assert disrupted("unhealthy") == before, "whoever deleted it has counted it"


def test_a_node_whose_instance_ends_is_not_repaired(stages: Make) -> None:
    stage, forceful = stages("a", policies=(POLICY,))
    stage.server.writer.delete(stage.server.claim("a"))
    one = stage.server.claim("a")
    ends = CLAIM_CONDITIONS.set(one.status.conditions, *INSTANCE_TERMINATING, generation=1, now=NOON)
    stage.server.writer.status(one, ends)
    break_node(stage, forceful, "a")
    stage.world.clock.advance(600)
    stage.server.done.clear()
    turn(forceful)
    assert stage.server.done == []


def test_where_too_many_are_broken_none_is_repaired_and_it_is_said(stages: Make) -> None:
    stage, forceful = stages(*"abcde", policies=(POLICY,))
    break_node(stage, forceful, "a", "b")
    stage.world.clock.advance(600)
    turn(forceful)
    assert not any(stage.goes(name) for name in "abcde")
    assert ("Node", "a", "Warning", "NodeRepairBlocked") in stage.server.recorder.events


def test_without_policies_no_node_is_repaired(stages: Make) -> None:
    stage, forceful = stages(*"abcde")
    break_node(stage, forceful, "a")
    stage.world.clock.advance(3600)
    turn(forceful)
    assert not stage.goes("a")


def test_nothing_expires_while_its_pool_is_paused(stages: Make) -> None:
    stage, forceful = stages("a")
    expiring(stage, "a", "1h")
    stage.world.clock.advance(3600)
    stage.pause = Pause(pools={"general": PauseValue(DISRUPTION)})
    turn(forceful)
    assert not stage.goes("a")
    stage.pause = NOTHING
    turn(forceful)
    assert stage.goes("a")


def test_no_repair_begins_while_its_pool_is_paused(stages: Make) -> None:
    stage, forceful = stages(*"abcde", policies=(POLICY,))
    break_node(stage, forceful, "a")
    stage.world.clock.advance(600)
    stage.pause = Pause(pools={"general": PauseValue(DISRUPTION)})
    turn(forceful)
    assert not stage.goes("a")
    assert names.TERMINATION_TIMESTAMP not in stage.server.claim("a").metadata.annotations
    stage.pause = NOTHING
    turn(forceful)
    assert stage.goes("a")


def test_flags_become_repair_policies() -> None:
    gate = "--feature-gates=NodeRepair=true"
    assert repair_policies_of(Options.parse(["--repair-timeout=5s"], {}), (POLICY,)) == ()
    assert repair_policies_of(Options.parse([gate], {}), (POLICY,)) == (POLICY,)
    (one,) = repair_policies_of(Options.parse([gate, "--repair-timeout=5s"], {}), (POLICY,))
    assert (one.condition_type, one.toleration) == (POLICY.condition_type, timedelta(seconds=5))
