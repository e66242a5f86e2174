"""Reboots from the condition to the end, in the times of AWS; whoever leads may die at any write, and around the call."""

from collections.abc import Callable
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.command import command_on
from provisioner.apis.karpenter import Budget
from provisioner.apis.meta import Condition, condition
from provisioner.apis.pods import Pod
from provisioner.apis.reboot import RebootEnd, reboots_of
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError, RebootRefusedError
from provisioner.cloudprovider.types import RepairAction, RepairPolicy
from provisioner.disruption.controller import METHODS
from provisioner.disruption.view import DisruptionSettings
from provisioner.nodeclaims.writer import with_conditions
from provisioner.state.pause import Activity, Pause, PauseValue
from provisioner.values.message import ConditionMessage
from tests.support.clock import NOON
from tests.support.cluster import node, pod
from tests.support.disrupting import DisruptedNodes
from tests.support.disrupting import Make as Staged
from tests.support.worldserver import ServerDied

REPAIR = tuple(one for one in METHODS if one.name == "repair")
GPU = "AcceleratedHardwareReady"
TEN, FIVE = timedelta(minutes=10), timedelta(minutes=5)
POLICIES = (
    RepairPolicy(names.READY, "False", timedelta(minutes=30), termination_grace_period=TEN),
    RepairPolicy(GPU, "False", TEN, "XID46", FIVE, action=RepairAction.REBOOT),
    RepairPolicy(GPU, "False", TEN, "XID79", FIVE),
    RepairPolicy(GPU, "False", timedelta(minutes=30), "", TEN),
)
OLD = (NOON - timedelta(days=1)).isoformat()
_NONE = Budget(nodes="0")
Make = Callable[..., DisruptedNodes]


def says(
    stage: DisruptedNodes,
    name: str,
    *,
    boot: str = "first",
    ready: bool = True,
    reason: str = "",
    since: datetime | None = None,
) -> None:
    """What the kubelet of a Node says now; the taints and labels stay."""
    server = stage.server
    known = server.node(name) if server.has("nodes", name) else None
    made = known or node(
        name, labels={names.NODEPOOL_LABEL: "general", names.INITIALIZED_LABEL: "true"}, creationTimestamp=OLD
    )
    told = [Condition(type=names.READY, status=str(ready), reason="x", last_transition_time=NOON)]
    if reason:
        told.append(
            Condition(type=GPU, status="False", reason=reason, last_transition_time=since or stage.world.clock.now())
        )
    info = changed(made.status.node_info, boot_id=boot)
    server.put(changed(made, status=changed(made.status, conditions=tuple(told), node_info=info)))


def web(name: str, **more: Any) -> Pod:
    return pod(f"web-{name}", cpu="3", ready=True, labels={"app": "web"}, **more)


@pytest.fixture
def five(stages: Staged) -> Make:
    """Five nodes with a pod each, of which `a` needs a reboot since ten minutes."""

    def make(*, annotations: Any = None, **options: Any) -> DisruptedNodes:
        found = stages(
            *"abcde",
            **{"methods": REPAIR, "consolidations": (), "policies": POLICIES, "after": "Never", **options},
        )
        for name in "abcde":
            says(found, name)
            found.bind(web(name, annotations=annotations or {}), name)
        says(found, "a", reason="NvidiaXID46Error")
        found.disruption.run_once()
        found.world.clock.advance(600)
        return found

    return make


def turn(stage: DisruptedNodes, seconds: float = 0) -> None:
    """So much later, a pass, and what comes of it."""
    stage.world.clock.advance(seconds)
    stage.disruption.run_once()
    for name in "abcde":
        if stage.server.has("nodeclaims", name):
            stage.reboots.queue.offer(name)
    stage.settle()
    stage.server.work_off()


def told(stage: DisruptedNodes, kind: str = names.REBOOTING, name: str = "a") -> tuple[str, str]:
    found = condition(stage.server.claim(name).status.conditions, kind)
    return ("", "") if found is None else (found.status, found.reason)


def drained(stage: DisruptedNodes) -> None:
    """The pods of `a` are gone, as the caches show."""
    for one in [*stage._pods.values()]:
        if one.node_name == "a":
            stage.world.cluster.pod_changed(stage._pods.pop(one.uid), None)


def to_the_call(stage: DisruptedNodes) -> None:
    """Until the cloud was called, or may have been."""
    turn(stage)
    drained(stage)
    turn(stage, 6)
    turn(stage, 1)


def back(stage: DisruptedNodes, boot: str = "second") -> None:
    """The node comes back, well."""
    says(stage, "a", boot=boot)
    turn(stage, 1)


def _patient() -> DisruptionSettings:
    """The breaker lets two of five be unhealthy."""
    return DisruptionSettings(repair_breaker=Fraction(1, 2))


def _raises(stage: DisruptedNodes, error: Exception) -> None:
    def rebooting(*_: object) -> None:
        raise error

    stage.cloud.rebooting = rebooting


def _end(stage: DisruptedNodes) -> RebootEnd | None:
    episode = reboots_of(stage.server.claim("a")).episode
    return episode.end if episode is not None else None


def _restart(stage: DisruptedNodes) -> None:
    at = stage.world.clock.now()
    stage.restart()
    stage.world.clock.advance((at - stage.world.clock.now()).total_seconds())
    stage.settle()


def initialized(stage: DisruptedNodes) -> None:
    """As lifecycle does once the node is back."""
    found = stage.server.claim("a")
    now = stage.world.clock.now()
    stage.server.writer.status(found, with_conditions(found, ConditionMessage(names.INITIALIZED, names.TRUE), now=now))


def _left(stage: DisruptedNodes, reason: str, annotations: dict[str, str]) -> None:
    """What Karpenter leaves of a reboot."""
    says(stage, "a")
    found = stage.server.node("a")
    stage.server.put(changed(found, spec=changed(found.spec, taints=(names.REBOOTING_TAINT,))))
    kept = stage.server.claim("a")
    told = ConditionMessage(names.REBOOTING, names.TRUE, reason, "rebooting for x/y")
    conditions = with_conditions(kept, told, now=stage.world.clock.now())
    stage.server.put(
        changed(
            kept,
            metadata=changed(kept.metadata, annotations={**kept.metadata.annotations, **annotations}),
            status=changed(kept.status, conditions=conditions),
        )
    )


def test_a_node_is_drained_rebooted_and_taken_back(five: Make) -> None:
    """Source: Karpenter 1.15: the same NodeClaim and Node, another boot ID, the taint gone; one NodeClaim throughout."""
    stage = five()
    turn(stage)
    assert told(stage) == ("True", "RebootRequested")
    assert told(stage, names.DISRUPTION_REASON) == ("True", "Unhealthy")
    assert stage.taints() == [names.REBOOTING_TAINT.key]
    assert "POST evictions/web-a" in stage.server.done
    assert stage.cloud.reboots == []
    drained(stage)
    turn(stage, 1)
    assert stage.cloud.reboots == [], "not before five seconds, however soon the pods are gone"
    turn(stage, 4)
    assert len(stage.cloud.reboots) == 1
    assert told(stage) == ("True", "RebootIssued")
    assert told(stage, names.INITIALIZED) == ("Unknown", "Rebooting")
    assert names.INITIALIZED_LABEL not in stage.server.node("a").metadata.labels
    assert stage.server.claim("a").metadata.annotations[names.REBOOT_PRE_BOOT_ID] == "first"
    turn(stage, 300)
    says(stage, "a", boot="second", ready=False)
    turn(stage, 1)
    assert stage.taints() == []
    assert told(stage) == ("True", "RebootIssued")
    back(stage)
    assert told(stage) == ("False", "RebootSucceeded")
    assert told(stage, names.DISRUPTION_REASON) == ("", "")
    assert names.REBOOT_PRE_BOOT_ID not in stage.server.claim("a").metadata.annotations
    assert stage.server.recorder.said("RebootObserved", "NodeClaim")
    assert len(stage.cloud.reboots) == 1
    assert list(stage.server.objects["nodeclaims"]) == [*"abcde"]
    record = reboots_of(stage.server.claim("a"))
    assert record.episode is None
    assert len(record.times) == 1


def test_after_two_reboots_within_a_day_the_node_is_replaced(five: Make) -> None:
    """Source: Karpenter 1.15, a persistent fault: exactly two boots, then a new NodeClaim."""
    stage = five()
    for number in (1, 2):
        to_the_call(stage)
        assert len(stage.cloud.reboots) == number
        says(stage, "a", boot=f"boot {number}", reason="NvidiaXID46Error")
        turn(stage, 60)
        assert told(stage) == ("False", "RebootSucceeded")
        initialized(stage)
        stage.bind(web("a"), "a")
        turn(stage, 590)
        assert told(stage) == ("False", "RebootSucceeded"), "what it said before is tolerated anew"
        stage.world.clock.advance(60)
    turn(stage, 60)
    assert len(stage.cloud.reboots) == 2
    assert command_on(stage.server.claim("a")) is not None
    assert len(stage.replacements()) == 1


def test_protected_pods_stay_and_ride_along(five: Make) -> None:
    """Source: Karpenter 1.15: a pod with do-not-disrupt keeps its UID and its node."""
    stage = five(annotations={names.DO_NOT_DISRUPT: "true"})
    turn(stage)
    turn(stage, 299)
    assert stage.cloud.reboots == []
    turn(stage, 1)
    assert len(stage.cloud.reboots) == 1
    assert "POST evictions/web-a" not in stage.server.done
    back(stage)
    assert told(stage) == ("False", "RebootSucceeded")


def test_never_more_nodes_are_away_than_the_budget_allows(five: Make) -> None:
    """Source: Karpenter 1.15: two of ten are faulty, the budget is 1, and never two are in flight."""
    stage = five(budget="1", settings=_patient())
    says(stage, "b", reason="NvidiaXID46Error", since=NOON)
    turn(stage)
    turn(stage, 600)
    away = [name for name in "ab" if told(stage, name=name)[0] == "True"]
    assert len(away) == 1
    for _ in range(3):
        turn(stage, 60)
        assert [name for name in "ab" if told(stage, name=name)[0] == "True"] == away


def test_a_node_that_does_not_come_back_is_replaced_within_the_budget(five: Make) -> None:
    stage = five(annotations={names.DO_NOT_DISRUPT: "true"})
    turn(stage)
    turn(stage, 300)
    turn(stage, 20 * 60 - 10)
    assert told(stage) == ("True", "RebootIssued")
    turn(stage, 20)
    assert told(stage) == ("False", "RebootFailed")
    assert stage.server.recorder.said("RebootFailed", "NodeClaim")
    turn(stage, 1)
    assert command_on(stage.server.claim("a")) is not None
    assert stage.server.claim("a").metadata.deletion_timestamp is None, "replaced first"
    assert len(stage.replacements()) == 1
    assert len(stage.cloud.reboots) == 1


def test_a_failed_reboot_waits_for_a_budget(five: Make) -> None:
    stage = five()
    to_the_call(stage)
    closed = changed(
        stage._pool, spec=changed(stage._pool.spec, disruption=changed(stage._pool.spec.disruption, budgets=(_NONE,)))
    )
    stage.world.cluster.pool_changed(stage._pool, closed)
    turn(stage, 21 * 60)
    turn(stage, 60)
    assert told(stage) == ("False", "RebootFailed")
    assert command_on(stage.server.claim("a")) is None
    stage.world.cluster.pool_changed(closed, stage._pool)
    turn(stage, 60)
    assert command_on(stage.server.claim("a")) is not None


@pytest.mark.parametrize(
    "error", [InstanceNotFoundError("kwok://a"), RebootRefusedError("denied", final=True)], ids=["not there", "denied"]
)
def test_what_the_cloud_refuses_for_good_fails_at_once(five: Make, error: CloudError) -> None:
    stage = five()
    _raises(stage, error)
    to_the_call(stage)
    assert told(stage) == ("False", "RebootFailed")
    assert _end(stage) is RebootEnd.PROVIDER_ERROR


def test_a_call_that_is_known_to_have_failed_is_another_attempt(five: Make) -> None:
    stage = five()
    _raises(stage, RebootRefusedError("throttled", final=False))
    to_the_call(stage)
    assert len(stage.cloud.reboots) == 1
    stage.cloud.rebooting = lambda *_: None
    turn(stage, 2)
    assert len(stage.cloud.reboots) == 2
    assert len(set(stage.cloud.reboots)) == 2
    turn(stage, 60)
    assert len(stage.cloud.reboots) == 2
    back(stage)
    assert told(stage) == ("False", "RebootSucceeded")


def test_what_nobody_knows_is_never_asked_again(five: Make) -> None:
    stage = five()
    _raises(stage, CloudError("no answer"))
    to_the_call(stage)
    for _ in range(5):
        turn(stage, 60)
    assert len(stage.cloud.reboots) == 1
    back(stage)
    assert told(stage) == ("False", "RebootSucceeded")


def test_a_node_that_is_well_again_is_not_rebooted(five: Make) -> None:
    stage = five()
    turn(stage)
    says(stage, "a")
    turn(stage, 10)
    assert stage.cloud.reboots == []
    assert stage.is_open()
    assert told(stage) == ("", "")
    assert names.REBOOT_ANNOTATION not in stage.server.claim("a").metadata.annotations


def test_a_pause_calls_off_what_has_not_come_to_a_call(five: Make) -> None:
    stage = five()
    turn(stage)
    stage.pause = Pause(PauseValue(frozenset({Activity.REPAIR})))
    turn(stage, 10)
    assert stage.cloud.reboots == []
    assert stage.is_open()


def test_a_reboot_of_a_karpenter_that_leads_is_left_to_it(five: Make) -> None:
    stage = five()
    says(stage, "a")
    stage.pause = Pause(beside="Karpenter leads")
    known = stage.server.node("a")
    stage.server.put(changed(known, spec=changed(known.spec, taints=(names.REBOOTING_TAINT,))))
    turn(stage, 10)
    assert not stage.is_open()
    stage.pause = Pause()
    turn(stage, 60)
    assert stage.is_open()


def test_a_pause_does_not_leave_a_node_that_is_away(five: Make) -> None:
    stage = five()
    to_the_call(stage)
    stage.pause = Pause(PauseValue(frozenset({Activity.REPAIR})))
    back(stage)
    assert told(stage) == ("False", "RebootSucceeded")


@pytest.mark.parametrize("boot", ["", "b" * 257], ids=["none", "too long to be recorded"])
def test_a_node_without_a_boot_id_is_replaced(five: Make, boot: str) -> None:
    stage = five()
    says(stage, "a", boot=boot, reason="NvidiaXID46Error", since=NOON)
    turn(stage)
    assert told(stage) == ("", "")
    assert command_on(stage.server.claim("a")) is not None
    assert len(stage.replacements()) == 1


def test_other_methods_leave_a_node_alone_that_is_rebooting(stages: Staged) -> None:
    """It is empty and would be consolidated."""
    stage = stages(*"abcde", policies=POLICIES, consolidations=())
    for name in "abcde":
        says(stage, name)
    for name in "bcde":
        stage.bind(web(name), name)
    says(stage, "a", reason="NvidiaXID46Error")
    stage.disruption.run_once()
    turn(stage, 0)
    assert stage.goes() or told(stage)[0] != "True"


# ---------------------------------------------------------------------- leaders


def test_a_leader_that_finds_an_intent_never_calls(five: Make) -> None:
    """Killed after the intent was written, before the call: nobody knows that."""
    stage = five()

    def dies(*_: object) -> None:
        stage.cloud.reboots.clear()  # it never left
        raise ServerDied

    stage.cloud.rebooting = dies
    to_the_call(stage)
    stage.cloud.rebooting = lambda *_: None
    _restart(stage)
    for _ in range(19):
        turn(stage, 60)
        assert stage.cloud.reboots == []
        assert told(stage) == ("True", "RebootIssued")
    turn(stage, 60)
    turn(stage, 1)
    assert told(stage) == ("False", "RebootFailed")
    assert stage.cloud.reboots == []
    assert command_on(stage.server.claim("a")) is not None


def test_a_leader_takes_back_a_node_that_another_one_has_rebooted(five: Make) -> None:
    stage = five()
    to_the_call(stage)
    _restart(stage)
    back(stage)
    assert told(stage) == ("False", "RebootSucceeded")
    assert len(stage.cloud.reboots) == 1
    assert len(reboots_of(stage.server.claim("a")).times) == 1, "and remembers it"


@pytest.mark.parametrize("write", range(1, 5))
def test_a_node_that_came_back_is_not_replaced_while_that_is_being_told(five: Make, write: int) -> None:
    """It is back, what it said before still stands, and one of the last writes is held up: until it is told, conditions are not tolerated anew."""
    stage = five()
    to_the_call(stage)
    says(stage, "a", boot="second", reason="NvidiaXID46Error", since=NOON)
    stage.server.dies_after = len(stage.server.done) + write
    turn(stage, 1)
    stage.server.dies_after = None
    stage.disruption.run_once()
    for _ in range(3):
        turn(stage, 1)
        assert command_on(stage.server.claim("a")) is None
    assert told(stage) == ("False", "RebootSucceeded")
    assert len(stage.cloud.reboots) == 1


@pytest.mark.parametrize("write", range(1, 15))
def test_killed_at_every_write_it_calls_once_at_most(five: Make, write: int) -> None:
    """By the count of the cloud; the node comes back where it was called, and is replaced or rebooted later where not."""
    stage = five()
    stage.server.dies_after = len(stage.server.done) + write
    booted = 0
    for second in (0, 1, 1, 1, 1, 1, 1, 1, 1, *[15] * 10):
        turn(stage, second)
        if reboots_of(stage.server.claim("a")).under_way:
            drained(stage)
        if stage.server.dies_after is not None and len(stage.server.done) >= stage.server.dies_after:
            stage.server.dies_after = None
            _restart(stage)
        if len(stage.cloud.reboots) > booted:
            booted = len(stage.cloud.reboots)
            says(stage, "a", boot="second")
    record = reboots_of(stage.server.claim("a"))
    assert len(stage.cloud.reboots) == len(record.times), (
        "each intent has its call, but for one that the leader took with it"
    )
    assert len(stage.cloud.reboots) == 1
    assert record.episode is None
    assert told(stage) == ("False", "RebootSucceeded")
    assert stage.is_open()


# ---------------------------------------------------------------------- what Karpenter left


def test_a_reboot_that_karpenter_has_issued_is_finished(five: Make) -> None:
    stage = five()
    _left(stage, names.REBOOT_ISSUED, {names.REBOOT_PRE_BOOT_ID: "zero", names.REBOOT_GRACE_PERIOD: "5m0s"})
    turn(stage)
    turn(stage, 1)
    assert told(stage) == ("False", "RebootSucceeded")
    assert stage.taints("a") == []
    assert {names.REBOOT_PRE_BOOT_ID, names.REBOOT_GRACE_PERIOD}.isdisjoint(
        stage.server.claim("a").metadata.annotations
    )
    assert stage.cloud.reboots == []


def test_a_reboot_that_karpenter_has_only_requested_is_cleared(five: Make) -> None:
    stage = five()
    _left(stage, names.REBOOT_REQUESTED, {names.REBOOT_GRACE_PERIOD: "nonsense"})
    turn(stage)
    turn(stage, 1)
    assert told(stage) == ("", "")
    assert stage.taints("a") == []
    assert names.REBOOT_GRACE_PERIOD not in stage.server.claim("a").metadata.annotations
    assert stage.cloud.reboots == []


def test_a_taint_that_nobody_owns_is_removed(five: Make) -> None:
    stage = five()
    says(stage, "a")
    found = stage.server.node("a")
    stage.server.put(changed(found, spec=changed(found.spec, taints=(names.REBOOTING_TAINT,))))
    turn(stage)
    assert stage.taints("a") == []
