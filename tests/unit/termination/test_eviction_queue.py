"""What a drain wants next, and the taint that a Node gets and loses."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Node, PodDisruptionBudget, PodGroup
from provisioner.apis.interruption import Interruption
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod
from provisioner.scheduling.drainability import eviction_order
from provisioner.simulator import json_patch
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.pause import DISRUPTION, NOTHING, Pause, PauseValue
from provisioner.support.metrics import REGISTRY
from provisioner.termination.disrupted_taint import disruption_patch, healing_patch
from provisioner.termination.eviction_queue import GIVEN_SECONDS, LEAVING_SECONDS, deadline_of, drain_step, grace_end
from provisioner.values.taints import Toleration
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pod
from tests.support.fleets import budget
from tests.support.problems import shape
from tests.support.worldserver import WorldServer

CRITICAL = shape(priority_class_name="system-cluster-critical")
STAYS = shape(tolerations=(Toleration(operator="Exists"),))
ORDINARY = pod("ordinary", node="n")
DAEMON = pod("daemon", node="n", kind="DaemonSet", owner="ds")
CRITICAL_POD = pod("critical", node="n", shape=CRITICAL)
CRITICAL_DAEMON = pod("critical-daemon", node="n", kind="DaemonSet", owner="ds", shape=CRITICAL)
PROTECTED = pod("protected", node="n", annotations={names.DO_NOT_DISRUPT: "true"})
PROTECTED_FOR_AN_HOUR = pod(
    "for-an-hour", node="n", annotations={names.DO_NOT_DISRUPT: "1h"}, start_time=NOON - timedelta(minutes=59)
)
PROTECTED_LONG_AGO = pod(
    "long-ago", node="n", annotations={names.DO_NOT_DISRUPT: "1h"}, start_time=NOON - timedelta(minutes=61)
)
ENDING = pod("ending", node="n", deleted=NOON - timedelta(seconds=59))
STUCK = pod("stuck", node="n", deleted=NOON - timedelta(seconds=61))
MIRROR = pod("mirror", node="n", owner="n", kind="Node")
MARKED_MIRROR = pod("marked-mirror", node="n", annotations={names.CONFIG_MIRROR: "x"})
DONE = pod("done", node="n", phase="Succeeded")
FAILED = pod("failed", node="n", phase="Failed")
TOLERANT = pod("tolerant", node="n", shape=STAYS)

CASES: dict[str, tuple[tuple[Pod, ...], list[str], int]] = {
    "an empty node is drained": ((), [], 0),
    "ordinary pods leave first": (
        (CRITICAL_DAEMON, CRITICAL_POD, DAEMON, ORDINARY),
        ["ordinary"],
        4,
    ),
    "then ordinary daemons": ((CRITICAL_DAEMON, CRITICAL_POD, DAEMON), ["daemon"], 3),
    "then critical pods": ((CRITICAL_DAEMON, CRITICAL_POD), ["critical"], 2),
    "critical daemons last": ((CRITICAL_DAEMON,), ["critical-daemon"], 1),
    "a protected pod holds the drain and is not asked": ((PROTECTED, ORDINARY), ["ordinary"], 2),
    "a protected pod holds back the tiers behind it": ((PROTECTED, DAEMON, CRITICAL_POD), [], 3),
    "a pod protected for an hour holds while that lasts": ((PROTECTED_FOR_AN_HOUR,), [], 1),
    "and is asked afterwards": ((PROTECTED_LONG_AGO,), ["long-ago"], 1),
    "a pod that ends already is waited for, not asked again": ((ENDING, ORDINARY), ["ordinary"], 2),
    "a pod that ends holds back the next tier": ((ENDING, DAEMON), [], 2),
    "a pod that should have ended a minute ago holds nothing": ((STUCK,), [], 0),
    "mirror pods hold nothing": ((MIRROR, MARKED_MIRROR), [], 0),
    "pods that are done hold nothing": ((DONE, FAILED), [], 0),
    "a pod that tolerates the taint stays": ((TOLERANT, DAEMON), ["daemon"], 1),
    "pods are asked in a fixed order": ((pod("b", node="n"), pod("a", node="n")), ["a", "b"], 2),
    "the largest of a tier first": (
        (pod("a", node="n"), pod("b", node="n", shape=shape("2")), pod("c", node="n", shape=shape("4")), DAEMON),
        ["c", "b", "a"],
        4,
    ),
}


@pytest.mark.parametrize(("pods", "evict", "waiting"), CASES.values(), ids=CASES.keys())
def test_a_drain_goes_tier_by_tier(pods: tuple[Pod, ...], evict: list[str], waiting: int) -> None:
    step = drain_step(pods, NOON)
    assert [one.name for one in step.evict] == evict
    assert step.waiting == waiting


def test_a_drain_that_is_foreseen_has_the_order_of_the_drain() -> None:
    """Critical pods have the highest priority, and leave last."""
    critical = pod("critical", node="n", shape=shape(priority_class_name="system-cluster-critical", priority=2 * 10**9))
    urgent = pod("urgent", node="n", shape=shape(priority=1000))
    left, happened = [critical, pod("large", node="n", shape=shape("4")), urgent, ORDINARY], list[str]()
    foreseen = [one.name for one in sorted(left, key=eviction_order)]
    while left:
        step = drain_step(left, NOON).evict
        happened += [one.name for one in step]
        left = [one for one in left if one not in step]
    assert foreseen == happened == ["urgent", "large", "ordinary", "critical"]


GENTLE = pod("gentle", node="n", grace_seconds=30)
SLOW = pod("slow", node="n", grace_seconds=600)
HELD = pod("held", node="n", annotations={names.DO_NOT_DISRUPT: "true"}, grace_seconds=30)
LATE_DAEMON = pod("late-daemon", node="n", kind="DaemonSet", owner="ds", grace_seconds=600)
ENDS_TOO_LATE = pod("too-late", node="n", deleted=NOON + timedelta(seconds=61), grace_seconds=600)
ENDS_IN_TIME = pod("in-time", node="n", deleted=NOON + timedelta(seconds=60), grace_seconds=600)
TOLERANT_LATE = pod("tolerant-late", node="n", shape=STAYS, grace_seconds=600)
WITHOUT_GRACE = pod("without", node="n", grace_seconds=None)

IN_A_MINUTE: dict[str, tuple[tuple[Pod, ...], list[str], list[str]]] = {
    "a pod with time to end is asked": ((GENTLE,), ["gentle"], []),
    "a pod that needs longer is deleted": ((SLOW, GENTLE), ["gentle"], ["slow"]),
    "of whatever tier": ((LATE_DAEMON, GENTLE), ["gentle"], ["late-daemon"]),
    "a protected pod still holds": ((HELD,), [], []),
    "a pod that ends too late is told a shorter time": ((ENDS_TOO_LATE,), [], ["too-late"]),
    "a pod that ends in time is left": ((ENDS_IN_TIME,), [], []),
    "a pod that tolerates the taint is never touched": ((TOLERANT_LATE,), [], []),
    "a pod of unknown grace is asked": ((WITHOUT_GRACE,), ["without"], []),
}


@pytest.mark.parametrize(("pods", "evict", "force"), IN_A_MINUTE.values(), ids=IN_A_MINUTE.keys())
def test_a_node_that_ends_in_a_minute_deletes_what_needs_longer(
    pods: tuple[Pod, ...], evict: list[str], force: list[str]
) -> None:
    step = drain_step(pods, NOON, NOON + timedelta(seconds=60))
    assert [one.name for one in step.evict] == evict
    assert [one.name for one in step.force] == force


def test_a_pod_that_ends_this_second_is_not_told_so_again_and_again() -> None:
    past = NOON - timedelta(seconds=10)
    told = pod("told", node="n", deleted=NOON + timedelta(seconds=1), grace_seconds=600)
    late = pod("late", node="n", deleted=NOON + timedelta(seconds=30), grace_seconds=600)
    assert drain_step((told, late), NOON, past).force == (late,)


def test_protection_ends_when_the_grace_period_begins() -> None:
    deadline = NOON + timedelta(seconds=60)
    assert drain_step((HELD,), NOON + timedelta(seconds=30), deadline).force == ()
    assert drain_step((HELD,), NOON + timedelta(seconds=30.1), deadline).force == (HELD,)


ABSURD = 2**63 - 1
LAST = datetime.max.replace(tzinfo=UTC)
ODD = {
    "a grace period of 292 billion years": pod("p", node="n", grace_seconds=ABSURD),
    "no grace at all": pod("p", node="n", grace_seconds=0),
    "a negative grace period": pod("p", node="n", grace_seconds=-ABSURD),
    "a deletion in the last microsecond of time": pod("p", node="n", deleted=LAST, grace_seconds=ABSURD),
    "a protection of 292 years": pod("p", node="n", annotations={names.DO_NOT_DISRUPT: "2562047h"}, start_time=LAST),
}


@pytest.mark.parametrize("deadline", [None, NOON - timedelta(days=1), NOON + timedelta(minutes=1), LAST])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_pod_with_absurd_times_does_not_stop_the_drain_of_its_node(odd: Pod, deadline: datetime | None) -> None:
    step = drain_step((odd, GENTLE), NOON, deadline)
    assert step.waiting == 2
    assert GENTLE in (*step.evict, *step.force)


def test_a_pod_with_an_absurd_grace_period_is_deleted_for_the_deadline() -> None:
    absurd = pod("absurd", node="n", grace_seconds=ABSURD)
    assert drain_step((absurd,), NOON, NOON + timedelta(minutes=1)).force == (absurd,)


DEADLINES = {
    "Kubernetes' form": ("2026-11-21T12:00:00Z", NOON),
    "with an offset": ("2026-11-21T13:00:00+01:00", NOON),
    "not a time": ("noon", None),
    "a time without a zone": ("2026-11-21T12:00:00", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("text", "want"), DEADLINES.values(), ids=DEADLINES)
def test_a_deadline_is_read_from_the_claim(text: str, want: datetime | None) -> None:
    assert deadline_of(claim("c", annotations={names.TERMINATION_TIMESTAMP: text})) == want


GRACES = {
    "its own": ("1m", timedelta(hours=1), NOON + timedelta(minutes=1)),
    "none of its own, so the default": (None, timedelta(hours=1), NOON + timedelta(hours=1)),
    "none at all": (None, None, None),
    "none that can be read": ("soon", timedelta(hours=1), None),
}


def in_deletion(grace: str | None, **metadata: Any) -> NodeClaim:
    made = claim("c", deletionTimestamp=NOON.isoformat(), **metadata)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, termination_grace_period=grace))


@pytest.mark.parametrize(("grace", "longest", "want"), GRACES.values(), ids=GRACES)
def test_a_termination_grace_period_counts_from_the_deletion(
    grace: str | None, longest: timedelta | None, want: datetime | None
) -> None:
    assert grace_end(in_deletion(grace), longest) == want


def test_a_claim_that_stays_has_no_deadline_whatever_its_grace_period() -> None:
    made = claim("c")
    spec = msgspec.structs.replace(made.spec, termination_grace_period="1m")
    assert grace_end(msgspec.structs.replace(made, spec=spec), None) is None


@pytest.mark.parametrize("text", ["", "noon"])
def test_before_the_deadline_is_written_the_grace_period_counts(text: str) -> None:
    one = in_deletion("90s", annotations={names.TERMINATION_TIMESTAMP: text} if text else {})
    assert deadline_of(one) == NOON + timedelta(seconds=90)


DEDICATED = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
DISRUPTED = {"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"}
OF_OTHER_EFFECT = {"key": names.DISRUPTED_TAINT.key, "effect": "NoExecute"}


def taints_after(joined: Node, operations: list[dict[str, Any]]) -> list[dict[str, str]]:
    document = msgspec.json.decode(msgspec.json.encode(joined))
    taints: list[dict[str, str]] = json_patch.apply(document, operations)["spec"].get("taints", [])
    return taints


TAINTING: dict[str, tuple[tuple[dict[str, str], ...], list[dict[str, str]]]] = {
    "a node without taints": ((), [DISRUPTED]),
    "other taints stay": ((DEDICATED,), [DEDICATED, DISRUPTED]),
    "one of the same key is replaced": ((OF_OTHER_EFFECT, DEDICATED), [DEDICATED, DISRUPTED]),
}


@pytest.mark.parametrize(("taints", "wanted"), TAINTING.values(), ids=TAINTING.keys())
def test_a_disrupted_node_is_tainted_once(taints: tuple[dict[str, str], ...], wanted: list[dict[str, str]]) -> None:
    joined = node("n", taints=taints)
    assert taints_after(joined, disruption_patch(joined)) == wanted
    assert disruption_patch(node("n", taints=tuple(wanted))) == []


def test_healing_takes_the_taint_off_and_leaves_the_others() -> None:
    joined = node("n", taints=(DISRUPTED, DEDICATED, OF_OTHER_EFFECT))
    assert taints_after(joined, healing_patch(joined)) == [DEDICATED]
    assert healing_patch(node("n", taints=(DEDICATED,))) == []


def test_both_patches_are_guarded_by_the_taints_they_saw() -> None:
    seen, now = node("n", taints=(DISRUPTED,)), node("n", taints=(DISRUPTED, DEDICATED))
    with pytest.raises(json_patch.PatchError, match="test failed"):
        taints_after(now, healing_patch(seen))


class Asking:
    """Evictions over an API server, and caches that the test keeps behind it."""

    def __init__(self) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.server.ends_at_once = False

    def has(self, *pods: Pod) -> None:
        """Pods that the server knows, still as they were unless one has another UID."""
        for one in pods:
            if (known := self.server.get("pods", one.name, "default")) is None or known["metadata"]["uid"] != one.uid:
                self.server.bind(one.name, one.node_name, metadata__uid=one.uid)

    def ask(self, *pods: Pod) -> list[str]:
        self.has(*pods)
        self.server.evictions.add(pods)
        self.server.work_off()
        return self.server.done


def test_a_pod_that_only_the_api_server_knows_is_evicted() -> None:
    assert Asking().ask(pod("p", node="n")) == ["POST evictions/p"]


@pytest.mark.parametrize("status", [404, 409])
def test_a_pod_that_is_gone_or_another_one_is_counted_by_the_answer(status: int) -> None:
    def answers() -> float:
        return REGISTRY.get_sample_value("karpenter_pods_eviction_requests_total", {"code": str(status)}) or 0.0

    asking, before = Asking(), answers()
    asking.server.refuse["p"] = status
    asking.ask(pod("p", node="n"))
    assert answers() == before + 1


def test_a_pod_that_the_caches_know_to_end_is_not_asked_again() -> None:
    asking, listed = Asking(), pod("p", node="n")
    asking.world.add(pod("p", node="n", deleted=NOON))
    assert asking.ask(listed) == []


def test_a_pod_that_left_is_not_asked_again_while_the_caches_show_it_as_it_was() -> None:
    asking = Asking()
    asking.world.add(pod("p", node="n"))  # a watch that lags tells nothing of the eviction
    for _ in range(3):
        asking.ask(pod("p", node="n"))
    assert asking.server.done == ["POST evictions/p"]
    assert len(asking.server.recorder.events) == 1


def test_a_pod_that_never_left_is_asked_again_in_the_end() -> None:
    asking = Asking()
    asking.world.add(pod("p", node="n"))
    asking.ask(pod("p", node="n"))
    asking.world.clock.advance(LEAVING_SECONDS)
    assert asking.ask(pod("p", node="n")) == ["POST evictions/p"] * 2


def test_a_successor_of_the_same_name_is_asked_for_itself() -> None:
    """A pod of a StatefulSet: the eviction names the UID, so that one for its predecessor cannot end it."""
    asking = Asking()
    for uid in ("first", "second"):
        asking.ask(pod("web-0", node="n", uid=uid))
    assert asking.server.done == ["POST evictions/web-0"] * 2
    evicted = [sent.body["deleteOptions"]["preconditions"]["uid"] for sent in asking.server.api.sent]
    assert evicted == ["first", "second"]


def test_a_deadline_is_told_once_and_again_only_when_it_comes_nearer() -> None:
    asking = Asking()
    asking.world.add(SLOW)
    asking.ask(SLOW)  # evicted first: a deadline is another matter
    for deadline in (60, 60, 90, 30):
        asking.server.evictions.force([SLOW], NOON + timedelta(seconds=deadline))
        asking.server.work_off()
    assert asking.server.done == ["POST evictions/slow", "DELETE pods/slow", "DELETE pods/slow"]


def test_a_pod_that_is_gone_is_forgotten() -> None:
    asking = Asking()
    asking.server.refuse["p"] = 404
    assert asking.ask(pod("p", node="n")) == []
    assert asking.server.evictions._given == {}


def test_a_refused_pod_that_no_drain_wants_any_more_is_forgotten() -> None:
    """Its node was taken back, or it finished where the caches saw it: no answer of the API server would ever say so."""
    asking = Asking()
    asking.server.refuse["p"] = 429
    asking.ask(pod("p", node="n"))
    asking.world.clock.advance(LEAVING_SECONDS + 1)
    for _ in range(2):
        asking.server.evictions.queue.add("p")
        asking.server.work_off()
    assert asking.server.evictions._given == {}
    assert asking.server.evictions.queue.failures("p") == 0


@pytest.mark.parametrize(
    ("status", "said", "want"),
    [
        (429, "Cannot evict pod as it would violate the pod's disruption budget.", "evicting pod violates a PDB"),
        (429, "too many requests, please try again later", "evicting pod default/p failed: too many requests"),
        (500, 'failed calling webhook "evictions.example"', "evicting pod default/p failed: failed calling webhook"),
        (422, "policy 'fridays' denied request", "evicting pod default/p failed: policy 'fridays' denied request"),
        (403, "the provisioner may not", "evicting pod default/p failed: the provisioner may not"),
    ],
)
def test_who_refuses_an_eviction_is_told_on_the_node(status: int, said: str, want: str) -> None:
    asking = Asking()
    asking.server.refuse["p"], asking.server.refusal = status, said
    asking.ask(pod("p", node="n"))
    assert asking.server.recorder.events == [("Node", "n", "Warning", "FailedDraining")]
    assert asking.server.recorder.messages[0].startswith(f"Failed to drain node, {want}")


def test_a_refused_eviction_is_not_hastened_by_asking_again() -> None:
    asking = Asking()
    asking.server.refuse["p"] = 429
    for _ in range(10):
        asking.ask(pod("p", node="n"))
    asked = [sent for sent in asking.server.api.sent if sent.path.endswith("/eviction")]
    assert len(asked) == 1


class Budgeted(Asking):
    """Pods of one app under a PodDisruptionBudget that refuses all of them, and changes when the test says so."""

    def __init__(
        self, count: int, why: str = "Cannot evict pod as it would violate the pod's disruption budget."
    ) -> None:
        super().__init__()
        self.server.refusal = why
        self.pods = tuple(
            pod(f"p{number}", node="n", phase="Running", ready=True, labels={"app": "web"}) for number in range(count)
        )
        self.server.refuse |= dict.fromkeys((one.name for one in self.pods), 429)
        self.known: PodDisruptionBudget | None = None
        self.allow(0)
        self.ask(*self.pods)

    def allow(self, pods: int) -> None:
        before, self.known = self.known, budget("guard", "web", pods)
        self.world.cluster.budget_changed(before, self.known)

    def try_again(self, after: float) -> None:
        """The back-off of every pod is over, and the drain of its Node has looked again."""
        self.world.clock.advance(after)
        known = (self.world.cluster.pod(one.uid) or one for one in self.pods)
        self.server.evictions.add(self.server.evictions.due(known))
        for one in self.pods:
            self.server.evictions.queue.add(one.uid)
        self.server.work_off()

    def asked(self) -> int:
        return sum(sent.path.endswith("/eviction") for sent in self.server.api.sent)


def test_pods_that_a_budget_refused_are_asked_as_soon_as_it_allows_them() -> None:
    held = Budgeted(5)
    assert held.asked() == 5
    held.allow(2)
    for _ in range(3):  # by the drains of several Nodes, or of one again: the change is spent once
        held.ask(*held.pods)
    assert held.asked() == 7
    held.ask(*held.pods)
    held.allow(1)
    held.server.refuse.clear()
    held.ask(*held.pods)
    assert held.server.done == ["POST evictions/p0"]


def test_an_api_server_that_is_busy_is_not_asked_sooner_whatever_a_budget_allows() -> None:
    held = Budgeted(2, "the server has received too many requests")
    held.allow(2)
    held.ask(*held.pods)
    assert held.asked() == 2


def test_a_budget_that_still_allows_nothing_hastens_nobody() -> None:
    held = Budgeted(3)
    held.allow(0)
    held.ask(*held.pods)
    assert held.asked() == 3


def test_while_the_caches_show_that_a_budget_allows_nothing_the_api_server_is_asked_every_two_minutes() -> None:
    held = Budgeted(3)
    for _ in range(11):
        held.try_again(after=10.0)
    assert held.asked() == 3
    held.try_again(after=10.0)
    assert held.asked() == 6, "caches may be behind"


def test_a_pod_is_not_asked_again_before_the_drain_of_its_node_has_looked_once_more() -> None:
    held = Budgeted(1)
    held.allow(1)
    held.world.clock.advance(GIVEN_SECONDS + 1)
    held.server.evictions.queue.add("p0")
    held.server.work_off()
    assert held.asked() == 1
    held.try_again(after=0.0)
    assert held.asked() == 2


@pytest.mark.parametrize("ended", ["the budget is gone", "the pod is not ready, and the others are enough"])
def test_a_pod_that_its_budget_would_let_go_by_now_is_asked_with_the_next_try(ended: str) -> None:
    held = Budgeted(1)
    assert held.known is not None
    if ended == "the budget is gone":
        held.world.cluster.budget_changed(held.known, None)
    else:
        status = msgspec.structs.replace(held.known.status, current_healthy=2, desired_healthy=2)
        held.world.cluster.budget_changed(held.known, msgspec.structs.replace(held.known, status=status))
        held.world.add(msgspec.structs.replace(held.pods[0], ready=False, resource_version="1000000"))
    held.try_again(after=10.0)
    assert held.asked() == 2


def test_a_pod_under_several_budgets_is_asked_again_once_it_has_one() -> None:
    several, other = (
        Budgeted(1, "This pod has more than one PodDisruptionBudget, which is not supported."),
        budget("b", "web", 1),
    )
    several.server.refuse["p0"] = 500
    several.allow(1)
    several.world.cluster.budget_changed(None, other)
    several.try_again(after=10.0)
    asked = several.asked()
    several.try_again(after=60.0)
    assert several.asked() == asked
    several.world.cluster.budget_changed(other, None)
    several.try_again(after=10.0)
    assert several.asked() == asked + 1


MARKED = {names.COMMAND_MEMBER_ANNOTATION: "0123456789ab"}
PAUSES: dict[str, tuple[Pause, dict[str, str], bool]] = {
    "of a command, nothing is paused": (NOTHING, MARKED, False),
    "of a command, its pool is paused": (Pause(pools={"general": PauseValue(DISRUPTION)}), MARKED, True),
    "of a command, everything is paused": (Pause(PauseValue(DISRUPTION)), MARKED, True),
    "of a command, another pool is paused": (Pause(pools={"other": PauseValue(DISRUPTION)}), MARKED, False),
    "of a command, another Karpenter leads": (Pause(beside="Karpenter runs"), MARKED, False),
    "that has expired": (Pause(PauseValue(DISRUPTION)), {names.ENDED_FOR: "expired"}, True),
    "of a static pool that is scaled down": (Pause(PauseValue(DISRUPTION)), {names.ENDED_FOR: "scaled-down"}, True),
    "that is repaired": (Pause(PauseValue(DISRUPTION)), {names.ENDED_FOR: "unhealthy"}, True),
    "that a user deletes": (Pause(PauseValue(DISRUPTION)), {}, False),
    "that is interrupted": (Pause(PauseValue(DISRUPTION)), {**MARKED, names.INTERRUPTION_ANNOTATION: "{}"}, False),
    "whose interruption has not begun": (
        Pause(PauseValue(DISRUPTION)),
        {
            **MARKED,
            names.INTERRUPTION_ANNOTATION: str(Interruption("scheduled_change", begins=NOON + timedelta(days=1))),
        },
        True,
    ),
}


@pytest.mark.parametrize(("pause", "annotations", "held"), PAUSES.values(), ids=PAUSES)
def test_a_pause_holds_the_pods_of_a_node(pause: Pause, annotations: dict[str, str], held: bool) -> None:
    asking = Asking()
    asking.server.pause = pause
    asking.server.put(claim("a", provider_id="kwok://a", annotations=annotations), node("a"))
    one = pod("p", node="a")
    assert asking.ask(one) == ([] if held else ["POST evictions/p"])
    assert [event[0] for event in asking.server.recorder.events if event[3] == "DisruptionBlocked"] == (
        ["NodeClaim", "Node"] if held else []
    )
    asking.server.pause = NOTHING
    assert asking.ask(one)[-1:] == ["POST evictions/p"], "and lets them go when it is over"


@pytest.mark.parametrize(("pause", "annotations", "held"), PAUSES.values(), ids=PAUSES)
def test_no_deadline_ends_what_a_pause_holds(pause: Pause, annotations: dict[str, str], held: bool) -> None:
    asking, deadline = Asking(), NOON - timedelta(seconds=1)
    asking.server.put(claim("a", provider_id="kwok://a", annotations=annotations), node("a"))
    one = pod("p", node="a", grace_seconds=30)
    asking.has(one)
    asking.server.evictions.force((one,), deadline)  # before the pause is known
    asking.server.pause = pause
    asking.server.work_off()
    assert asking.server.done == ([] if held else ["DELETE pods/p"])
    asking.server.pause = NOTHING
    asking.server.evictions.force((one,), deadline)
    asking.server.work_off()
    assert asking.server.done == ["DELETE pods/p"], "when it is over, the deadline counts"


class OneNode(Asking):
    """Three pods of a PodGroup on a node that is drained until an hour is over; a PodDisruptionBudget lets one of them go at a time."""

    def __init__(
        self,
        key: str = names.HOSTNAME_LABEL,
        annotations: Mapping[str, str] = MappingProxyType({}),
        *,
        ends: bool = True,
    ) -> None:
        super().__init__()
        cluster = self.world.cluster
        cluster.pod_groups_known(KindKnowledge.READ)
        spec = {"schedulingPolicy": {"gang": {"minCount": 3}}, "schedulingConstraints": {"topology": [{"key": key}]}}
        metadata = {"name": "g", "namespace": "default"}
        cluster.pod_group_changed(None, msgspec.convert({"metadata": metadata, "spec": spec}, PodGroup))
        self.pods = [pod(name, node="a", group="g", labels={"app": "web"}, grace_seconds=30) for name in "xyz"]
        self.world.add(*self.pods)
        end = (NOON + timedelta(hours=1)).isoformat()
        marks = {**({names.TERMINATION_TIMESTAMP: end} if ends else {}), **annotations}
        self.server.put(claim("a", provider_id="kwok://a", annotations=marks), node("a"))
        self.known = budget("pdb", "web", 1)
        cluster.budget_changed(None, self.known)

    def allow(self, pods: int) -> None:
        before, self.known = self.known, budget("pdb", "web", pods)
        self.world.cluster.budget_changed(before, self.known)


ALL_THREE = [f"POST evictions/{name}" for name in "xyz"]


def test_pods_that_must_run_on_one_node_leave_it_together() -> None:
    asking = OneNode()
    assert asking.ask(*asking.pods) == []
    told = {event for event in asking.server.recorder.events if event[3] == "FailedDraining"}
    assert told == {("Node", "a", "Warning", "FailedDraining")}
    assert "the 3 pods of PodGroup default/g must run on one node" in asking.server.recorder.messages[-1]
    asking.allow(3)
    assert sorted(asking.ask(*asking.pods)) == ALL_THREE


def test_at_the_end_of_the_drain_they_are_deleted() -> None:
    asking = OneNode()
    asking.has(*asking.pods)
    asking.server.evictions.force(asking.pods, NOON)
    asking.server.work_off()
    assert sorted(asking.server.done) == [f"DELETE pods/{name}" for name in "xyz"]


INTERRUPTED = {names.INTERRUPTION_ANNOTATION: str(Interruption("spot_interrupted", begins=NOON))}
ONE_BY_ONE = {
    "of another domain than a node": lambda: OneNode(names.ZONE_LABEL),
    "where nothing ends the drain": lambda: OneNode(ends=False),
    "where the instance is taken away": lambda: OneNode(annotations=INTERRUPTED),
}


@pytest.mark.parametrize("made", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_others_leave_one_by_one(made: Callable[[], OneNode]) -> None:
    asking = made()
    assert sorted(asking.ask(*asking.pods)) == ALL_THREE, "the budget refuses at the API server"


@pytest.mark.parametrize("how", ["it is ending", "its successor waits"])
def test_once_one_of_them_has_left_the_others_follow_as_they_may(how: str) -> None:
    asking = OneNode()
    gone, *left = asking.pods
    if how == "it is ending":
        asking.world.add(msgspec.structs.replace(gone, deleted=NOON + timedelta(minutes=1)))
    else:
        asking.world.cluster.pod_changed(gone, None)
        asking.world.add(pod("w", group="g", labels={"app": "web"}))
    assert sorted(asking.ask(*left)) == ALL_THREE[1:]


def test_a_pod_that_may_not_be_disrupted_keeps_the_others() -> None:
    asking = OneNode()
    asking.allow(3)
    kept = msgspec.structs.replace(asking.pods[0], annotations={names.DO_NOT_DISRUPT: "true"})
    asking.world.add(kept)
    assert asking.ask(*asking.pods[1:]) == []
