"""The verbs over a board with a clock that stands still."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from extender import board as board_module
from extender.answering import HUNG_SECONDS, PROMPT_BYTES, Answerer
from extender.app import create_app, prompt
from extender.board import MAX_OUTAGE_SECONDS, MAX_SILENCE_SECONDS, Board
from extender.breaker import SLOW_IN_A_ROW, SLOW_SECONDS
from extender.facts import ExtenderNode, FamilyMember, claim_facts, node_facts
from extender.nodes import SETTLE_SECONDS
from extender.placement import SAMPLE
from extender.plan import ASSUMED_SECONDS, MAX_SUPPOSED
from extender.protocol import MAX_BODY_BYTES, ExtenderProtocolError
from extender.vetoes import JOINED_SECONDS
from provisioner.apis import names
from provisioner.apis.core import Node, NodeSpec, NodeStatus
from provisioner.apis.meta import ObjectMeta
from provisioner.apis.reports import PodReport, ReportReason
from provisioner.kube.lag import BEHIND_SECONDS
from provisioner.support import metrics
from provisioner.support.http.values import HttpRequest
from provisioner.values.taints import Taint
from tests.support.clock import FakeClock
from tests.support.extender import Watch, World, entry, member
from tests.support.kube import deep


class Outbox:
    def __init__(self) -> None:
        self.reports: list[PodReport] = []

    def put(self, report: PodReport) -> None:
        self.reports.append(report)


class Bench:
    """An answerer whose table is a World's."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.watch = Watch()
        self.board = Board(self.clock)
        self.board.depend_on([self.watch])
        self.world = World()
        self.world.now = self.clock.monotonic()
        self.world.table = self.board.table
        self.outbox = Outbox()
        self.answerer = Answerer(self.board, self.outbox)

    def filter(self, pod: FamilyMember, *names: str) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.answerer.filter(question(pod, *names)))
        assert reply["Error"] == ""
        assert reply["FailedNodes"] == {}
        return reply


@pytest.fixture
def bench() -> Bench:
    return Bench()


def wire(pod: FamilyMember, *, pinned: bool = True) -> dict[str, Any]:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet" if pod.daemon else "ReplicaSet",
        "name": "o",
        "controller": True,
    }
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    return {
        "metadata": {
            "name": f"o-{pod.uid}",
            "namespace": "ns",
            "uid": pod.uid,
            "ownerReferences": [{**owner, "uid": pod.owner}],
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{pod.requests['cpu']}m"}}}],
            "affinity": {"nodeAffinity": required if pinned and pod.daemon else {}},
        },
        "status": {"phase": "Pending"},
    }


def question(pod: FamilyMember, *names: str) -> bytes:
    return json.dumps({"Pod": wire(pod), "Nodes": None, "NodeNames": list(names)}).encode()


STRANGER = member("x", owner="other", klass="other")


def test_a_node_that_a_command_takes_away_is_taken_off_the_answer(bench: Bench) -> None:
    bench.world.node("n1", 4)
    bench.world.claim("c-n1", node="n1", disrupted=True)
    assert bench.filter(STRANGER, "n1", "n2")["NodeNames"] == ["n2"]
    reply = bench.filter(STRANGER, "n1")
    assert reply["NodeNames"] == []
    assert reply["FailedAndUnresolvableNodes"] == {"n1": "is being disrupted"}
    assert [(report.uid, report.reason) for report in bench.outbox.reports] == [("x", ReportReason.HELD)]


def crowd(bench: Bench, count: int) -> list[str]:
    """Many nodes, of which the last has a pod."""
    listed = [f"n{i:03}" for i in range(count)]
    for name in listed:
        bench.world.node(name, 4)
    bench.world.pods(member("old", owner="old", node=listed[-1]))
    return listed


def test_of_many_nodes_as_many_pass_as_are_enough_the_full_ones_among_them(bench: Bench) -> None:
    listed = crowd(bench, 300)
    first, second = (bench.filter(STRANGER, *listed)["NodeNames"] for _ in range(2))
    assert len(first) == len(second) == SAMPLE
    assert listed[-1] in first
    assert listed[-1] in second
    assert set(first) != set(second), "others come in turn"
    assert set(first) | set(second) <= set(listed)
    assert bench.filter(STRANGER, *listed[:100])["NodeNames"] == listed[:100], "what kube-scheduler sampled itself"


def test_of_many_nodes_all_pass_for_a_pod_that_wishes_something(bench: Bench) -> None:
    listed = crowd(bench, 300)
    pod = wire(STRANGER)
    soft = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}
    pod["spec"]["topologySpreadConstraints"] = [soft]
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": listed}).encode()
    assert json.loads(bench.answerer.filter(body))["NodeNames"] == listed


def test_whoever_asks_in_turn_sees_every_node_in_the_end(bench: Bench) -> None:
    """Twenty pods that are refused elsewhere ask again and again in the same order."""
    listed = crowd(bench, 400)
    pods = [member(f"x{number}", owner="other", klass="other") for number in range(20)]
    seen: set[str] = set()
    for _ in range(60):
        for pod in pods:
            passed = bench.filter(pod, *listed)["NodeNames"]
            if pod is pods[0]:
                seen.update(passed)
    assert seen == set(listed)


def test_of_many_nodes_all_pass_where_kube_scheduler_would_rather_not_have_some(bench: Bench) -> None:
    listed = crowd(bench, 300)
    taints = (Taint(key="old", effect="PreferNoSchedule"),)
    old = node_facts(Node(metadata=ObjectMeta(name="n000"), spec=NodeSpec(taints=taints)))
    bench.board.node_changed(None, old)
    assert bench.filter(STRANGER, *listed)["NodeNames"] == listed
    bench.board.node_changed(old, None)
    assert len(bench.filter(STRANGER, *listed[1:])["NodeNames"]) == SAMPLE


def test_of_many_nodes_the_planned_one_passes_and_a_sample_has_none_that_refuses(bench: Bench) -> None:
    listed = crowd(bench, 300)
    full_plan(bench)
    assert bench.filter(member("a"), *listed, "n1")["NodeNames"] == ["n1"]
    bench.world.claim("c-going", node=listed[-1], disrupted=True)
    left = bench.filter(STRANGER, *listed)["NodeNames"]
    assert listed[-1] not in left
    assert len(left) == SAMPLE


def thousands(bench: Bench) -> list[str]:
    """So many nodes that not every question reads the names of all."""
    listed = [f"ip-10-0-0-{number:04}.eu-central-1.compute.internal" for number in range(3000)]
    for name in listed:
        bench.world.node(name, 4)
    return listed


def compact(pod: FamilyMember, names: list[str]) -> bytes:
    """A question as kube-scheduler writes it, without a blank."""
    return json.dumps({"Pod": wire(pod), "Nodes": None, "NodeNames": names}, separators=(",", ":")).encode()


def test_of_thousands_of_nodes_some_are_read_and_the_fullest_of_them_pass(bench: Bench) -> None:
    listed = thousands(bench)
    full = listed[::20]  # fifty of each thousand, of which half of a sample could be
    bench.world.pods(*(member(f"old-{name}", owner="old", node=name) for name in full))
    seen: set[str] = set()
    for _ in range(60):
        passed = json.loads(bench.answerer.filter(compact(STRANGER, listed)))["NodeNames"]
        assert len(passed) == len(set(passed)) == SAMPLE
        assert len(set(passed) & set(full)) >= SAMPLE // 2 - 1
        seen.update(passed)
    assert len(seen) > 1500
    assert seen <= set(listed)


def test_of_thousands_of_nodes_all_are_read_where_most_refuse(bench: Bench) -> None:
    listed = thousands(bench)
    for number, name in enumerate(listed):
        if number % 20:
            bench.world.claim(f"c-{name}", node=name, disrupted=True)
    passed = json.loads(bench.answerer.filter(compact(STRANGER, listed)))["NodeNames"]
    assert len(passed) == SAMPLE
    assert set(passed) <= set(listed[::20])


def test_of_thousands_of_nodes_the_place_of_an_equal_pod_is_found(bench: Bench) -> None:
    listed = thousands(bench)
    bench.world.pods(member("a"), member("b"))
    for name in (listed[7], listed[2900]):
        bench.world.claim(f"c-{name}", entry(count=1), node=name)
    for uid in "ab":
        passed = json.loads(bench.answerer.filter(compact(member(uid), listed)))["NodeNames"]
        assert len(passed) == 1
        assert passed[0] in (listed[7], listed[2900])


def full_plan(bench: Bench) -> None:
    bench.world.pods(member("a"))
    bench.world.planned_node("n1", entry("a"), cores=1)


def test_a_planned_pod_is_steered(bench: Bench) -> None:
    full_plan(bench)
    assert bench.filter(member("a"), "n0", "n1")["NodeNames"] == ["n1"]


def two_brothers(bench: Bench) -> None:
    """`a` is planned on n1 and `b` on n2, each of which has room for one."""
    bench.world.pods(member("a"), member("b"))
    bench.world.planned_node("n1", entry("a"), cores=1)
    bench.world.planned_node("n2", entry("b"), cores=1)
    bench.clock.advance(SETTLE_SECONDS)


def test_a_place_that_a_brother_was_sent_to_is_taken_before_the_binding_shows(bench: Bench) -> None:
    two_brothers(bench)
    assert bench.filter(member("a"), "n2")["NodeNames"] == ["n2"], "a hard spread forbids its own"
    assert bench.filter(member("b"), "n1", "n2")["NodeNames"] == ["n1"]


def test_a_watch_that_lags_does_not_free_the_place(bench: Bench) -> None:
    two_brothers(bench)
    bench.filter(member("a"), "n2")
    bench.world.pods(member("a"))
    assert bench.filter(member("b"), "n1", "n2")["NodeNames"] == ["n1"]


def test_a_pod_that_is_asked_about_again_was_not_bound(bench: Bench) -> None:
    two_brothers(bench)
    bench.filter(member("a"), "n2")
    assert bench.filter(member("a"), "n1", "n2")["NodeNames"] == ["n1"]
    assert bench.filter(member("b"), "n1", "n2")["NodeNames"] == ["n2"]


@pytest.mark.parametrize("ended", [member("a", over=True), None], ids=["being deleted", "gone"])
def test_a_pod_that_will_not_be_bound_frees_the_place(bench: Bench, ended: FamilyMember | None) -> None:
    two_brothers(bench)
    bench.filter(member("a"), "n2")
    bench.board.pod_changed(member("a"), ended)
    assert bench.filter(member("b"), "n1", "n2")["NodeNames"] == ["n2"]


def test_what_was_never_bound_is_not_assumed_for_ever(bench: Bench) -> None:
    two_brothers(bench)
    bench.filter(member("a"), "n2")
    bench.clock.advance(ASSUMED_SECONDS)
    assert bench.filter(member("b"), "n1", "n2")["NodeNames"] == ["n2"]


def test_a_binding_that_shows_changes_nothing(bench: Bench) -> None:
    two_brothers(bench)
    bench.filter(member("a"), "n2")
    bench.world.pods(member("a", node="n2"))
    bench.clock.advance(ASSUMED_SECONDS)
    assert bench.filter(member("b"), "n1", "n2")["NodeNames"] == ["n1"]
    assert bench.board.table.ledger.room("n2")["cpu"] == 0


def strangers(bench: Bench) -> tuple[FamilyMember, FamilyMember]:
    """On n1 and n2 a core each is held for a planned pod, and a core is over."""
    bench.world.pods(member("a"), member("b"))
    bench.world.planned_node("n1", entry("a"), cores=2)
    bench.world.planned_node("n2", entry("b"), cores=2)
    bench.world.node("n3", 2)
    pair = (member("x", owner="other", klass="other"), member("y", owner="other", klass="other"))
    bench.world.pods(*pair)
    return pair


def test_spare_room_beside_held_room_is_not_given_twice_before_the_binding_shows(bench: Bench) -> None:
    """kube-scheduler knows nothing of holds: two strangers in one moment took a planned pod's room between them."""
    x, y = strangers(bench)
    assert bench.filter(x, "n1")["NodeNames"] == ["n1"]
    assert bench.filter(y, "n1")["NodeNames"] == []
    bench.world.bind(x, "n1")
    assert bench.filter(y, "n1", "n2")["NodeNames"] == ["n2"]
    assert bench.filter(member("a"), "n1", "n2", "n3")["NodeNames"] == ["n1"], "whose room it is"


def test_nor_where_nobody_knows_which_of_several_nodes_it_was(bench: Bench) -> None:
    x, y = strangers(bench)
    assert bench.filter(x, "n1", "n2", "n3")["NodeNames"] == ["n1", "n2", "n3"]
    assert bench.filter(y, "n1", "n2", "n3")["NodeNames"] == ["n3"]
    bench.world.bind(x, "n3")
    assert bench.filter(y, "n1", "n2", "n3")["NodeNames"] == ["n1", "n2", "n3"]


@pytest.mark.parametrize("asked", [("n1",), ("n1", "n2")], ids=len)
def test_a_stranger_that_is_asked_about_again_or_is_gone_takes_no_room(bench: Bench, asked: tuple[str, ...]) -> None:
    x, y = strangers(bench)
    for _ in range(2):
        assert bench.filter(x, *asked)["NodeNames"] == list(asked)
    bench.board.pod_changed(x, None)
    assert bench.filter(y, *asked)["NodeNames"] == list(asked)


def test_a_stranger_that_was_never_bound_takes_no_room_for_ever(bench: Bench) -> None:
    x, y = strangers(bench)
    bench.filter(x, "n1")
    bench.clock.advance(ASSUMED_SECONDS)
    assert bench.filter(y, "n1")["NodeNames"] == ["n1"]


def test_who_may_be_bound_somewhere_counts_only_there(bench: Bench) -> None:
    x, y = strangers(bench)
    bench.filter(x, "n1")
    assert bench.filter(y, "n2")["NodeNames"] == ["n2"]


def test_a_pod_that_waits_for_those_that_may_be_bound_is_woken_once_they_are(bench: Bench) -> None:
    x, y = strangers(bench)
    bench.filter(x, "n1", "n3")
    bench.filter(y, "n1")
    table, refusals = bench.board.table, bench.board.refusals
    (kind,) = refusals.kinds()
    assert refusals.due(kind, table, bench.clock.monotonic()) == ""
    bench.world.bind(x, "n3")
    assert refusals.due(kind, table, bench.clock.monotonic()) == "n1"


def test_or_once_nobody_believes_in_their_bindings_any_more(bench: Bench) -> None:
    x, y = strangers(bench)
    bench.filter(x, "n1")
    bench.filter(y, "n1")
    (kind,) = bench.board.refusals.kinds()
    table, began = bench.board.table, bench.clock.monotonic()
    assert bench.board.refusals.due(kind, table, began) == ""
    assert bench.board.refusals.due(kind, table, began + ASSUMED_SECONDS) == "n1"


def test_what_is_supposed_is_bounded(bench: Bench) -> None:
    table = bench.board.table
    for number in range(100):
        table.suppose(member(str(number)), frozenset(f"n{node}" for node in range(1000)), 0.0)
    assert sum(len(one.nodes) for one in table.supposed) == MAX_SUPPOSED


def test_a_pod_that_no_watch_told_of_is_read_from_the_message(bench: Bench) -> None:
    full_plan(bench)
    reply = bench.filter(STRANGER, "n1", "n2")
    assert (reply["NodeNames"], reply["FailedAndUnresolvableNodes"]) == (["n2"], {})
    daemon = member("ds", owner="ds", daemon=True)
    assert bench.filter(daemon, "n1")["NodeNames"] == ["n1"]


def test_a_pod_that_names_a_daemonset_as_its_owner_walks_over_no_hold(bench: Bench) -> None:
    full_plan(bench)
    fake = json.dumps({"Pod": wire(member("ds", owner="ds", daemon=True), pinned=False), "NodeNames": ["n1"]}).encode()
    assert json.loads(bench.answerer.filter(fake))["NodeNames"] == []
    node = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1", "controller": True}
    static = wire(STRANGER)
    static["metadata"]["ownerReferences"] = [node]
    body = json.dumps({"Pod": static, "NodeNames": ["n1"]}).encode()
    assert json.loads(bench.answerer.filter(body))["NodeNames"] == []


def test_a_nominated_node_does_not_open_held_room(bench: Bench) -> None:
    full_plan(bench)
    nominated = wire(STRANGER)
    nominated["status"]["nominatedNodeName"] = "n1"
    body = json.dumps({"Pod": nominated, "NodeNames": ["n1"]}).encode()
    assert json.loads(bench.answerer.filter(body))["NodeNames"] == []


def test_a_pod_left_with_nothing_is_told_why_remembered_and_reported(bench: Bench) -> None:
    full_plan(bench)
    reply = bench.filter(STRANGER, "n1")
    assert reply["NodeNames"] == []
    assert reply["FailedAndUnresolvableNodes"] == {"n1": "held for planned pods"}
    assert bench.outbox.reports == [PodReport(uid="x", node="n1", reason=ReportReason.HELD)]
    assert len(bench.board.refusals) == 1


def test_a_pod_that_waits_for_its_own_node_is_reported_as_emptied(bench: Bench) -> None:
    full_plan(bench)
    bench.world.pods(member("b"))
    bench.world.claim("c2", entry("b"))
    reply = bench.filter(member("b"), "n1")
    assert reply["FailedAndUnresolvableNodes"] == {"n1": "waiting for its own room on c2"}
    assert bench.outbox.reports == [PodReport(uid="b", node="n1", reason=ReportReason.EMPTIED)]


def test_the_same_question_twice_has_the_same_answer(bench: Bench) -> None:
    full_plan(bench)
    for pod in (STRANGER, member("a")):
        for asked in (("n1",), ("n1", "n2"), ("n3",)):
            first = bench.answerer.filter(question(pod, *asked))
            assert bench.answerer.filter(question(pod, *asked)) == first
            scores = bench.answerer.prioritize(question(pod, *asked))
            assert bench.answerer.prioritize(question(pod, *asked)) == scores


def test_prioritize_scores_the_planned_node(bench: Bench) -> None:
    full_plan(bench)
    assert json.loads(bench.answerer.prioritize(question(member("a"), "n0", "n1"))) == [
        {"Host": "n1", "Score": 10},
    ]
    assert json.loads(bench.answerer.prioritize(question(STRANGER, "n0", "n1"))) == []


def preemption(pod: FamilyMember, **victims: int) -> bytes:
    meta = {
        node: {"Pods": [{"UID": f"v{i}"} for i in range(count)], "NumPDBViolations": 0}
        for node, count in victims.items()
    }
    return json.dumps({"Pod": wire(pod), "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}).encode()


def preempted(bench: Bench, pod: FamilyMember, **victims: int) -> list[str]:
    """The nodes where pods may be evicted for `pod`."""
    return list(json.loads(bench.answerer.preempt(preemption(pod, **victims)))["NodeNameToMetaVictims"])


def test_preempt_keeps_victims_off_planned_room_and_reports(bench: Bench) -> None:
    full_plan(bench)
    assert preempted(bench, STRANGER, n1=1, n2=1, n3=0) == ["n2"]
    assert bench.outbox.reports == [PodReport(uid="x", node="n1", reason=ReportReason.PREEMPTED)]


def coming_plan(bench: Bench, *, launched: bool = True) -> None:
    """The node of a's claim is on its way."""
    bench.world.pods(member("a"))
    bench.world.claim("c", entry("a"), provider_id="p" if launched else "")


def test_a_needless_preemption_is_put_off_once_for_a_pod_and_plan(bench: Bench) -> None:
    bench.board.vetoes.begin(())
    coming_plan(bench)
    assert preempted(bench, member("a"), n1=1) == []
    assert preempted(bench, member("a"), n1=1) == ["n1"], "it is asked again: what was planned did not come in time"
    bench.world.table.drop_claim("c")
    bench.world.claim("d", entry("a"), provider_id="q")
    assert preempted(bench, member("a"), n1=1) == [], "of another plan it knows nothing yet"
    assert preempted(bench, member("a"), n1=1) == ["n1"]


def test_a_node_that_joins_puts_it_off_until_its_taints_can_be_gone(bench: Bench) -> None:
    bench.board.vetoes.begin(())
    coming_plan(bench)
    assert preempted(bench, member("a"), n1=1) == []
    bench.world.node("n2", ready=False, provider_id="p")
    assert preempted(bench, member("a"), n1=1) == [], "kube-scheduler asks because of it, before its taints fall"
    assert preempted(bench, member("a"), n1=1) == [], "and again as soon as the first of them has gone"
    bench.clock.advance(JOINED_SECONDS)
    assert preempted(bench, member("a"), n1=1) == ["n1"]


def test_a_node_that_joins_this_very_moment_is_waited_for(bench: Bench) -> None:
    bench.board.vetoes.begin(())
    coming_plan(bench)
    assert preempted(bench, member("a"), n1=1) == []
    board = bench.board
    joined = ExtenderNode(name="n2", provider_id="p")
    with board.lock:  # the other thread gets in when we begin to wait
        arrival = threading.Thread(target=board.node_changed, args=(None, joined))
        arrival.start()
        assert preempted(bench, member("a"), n1=1) == []
    arrival.join(5)


def test_a_plan_without_a_node_puts_no_preemption_off(bench: Bench) -> None:
    bench.board.vetoes.begin(())
    coming_plan(bench, launched=False)
    assert preempted(bench, member("a"), n1=1) == ["n1"]


def test_a_plan_that_was_there_before_us_puts_no_preemption_off(bench: Bench) -> None:
    coming_plan(bench)
    assert preempted(bench, member("a"), n1=1) == ["n1"], "nobody has looked yet at what was there"
    bench.board.vetoes.begin(bench.board.table.live_plans)
    assert preempted(bench, member("a"), n1=1) == ["n1"]


def test_held_room_puts_a_preemption_off_once_where_there_is_no_other(bench: Bench) -> None:
    bench.board.vetoes.begin(())
    full_plan(bench)
    assert preempted(bench, STRANGER, n1=1) == []
    assert preempted(bench, STRANGER, n1=1) == ["n1"]
    assert preempted(bench, member("y", owner="other", klass="other"), n1=1) == []


def test_what_victims_take_counts_as_free_beside_the_plan(bench: Bench) -> None:
    bench.world.pods(member("a"), member("v0", owner="v", klass="v", node="n1"))
    bench.world.planned_node("n1", entry("a"), cores=2)
    assert preempted(bench, STRANGER, n1=1, n2=1) == ["n1", "n2"]


STALE = {
    "not synced": lambda bench: bench.watch.synced.clear(),
    "silent for too long": lambda bench: setattr(bench.watch, "silence", MAX_SILENCE_SECONDS + 1),
    "bringing what happened long ago": lambda bench: setattr(bench.watch, "behind", BEHIND_SECONDS + 1),
    "no watches at all": lambda bench: bench.board.depend_on([]),
}


@pytest.mark.parametrize("how", STALE.values(), ids=STALE)
def test_stale_data_lets_everything_pass(bench: Bench, how: Any) -> None:
    full_plan(bench)
    how(bench)
    assert bench.board.problem()
    assert bench.filter(STRANGER, "n1")["NodeNames"] == ["n1"]
    assert bench.filter(member("a"), "n0", "n1")["NodeNames"] == ["n0", "n1"]
    assert json.loads(bench.answerer.prioritize(question(member("a"), "n1"))) == []
    kept = json.loads(bench.answerer.preempt(preemption(STRANGER, n1=1)))
    assert list(kept["NodeNameToMetaVictims"]) == ["n1"]


def test_a_short_interruption_is_bridged_and_a_long_one_is_not(bench: Bench) -> None:
    full_plan(bench)
    bench.watch.error = ConnectionError("cut")
    assert bench.filter(STRANGER, "n1")["NodeNames"] == []
    bench.clock.advance(MAX_OUTAGE_SECONDS + 0.1)
    assert bench.filter(STRANGER, "n1")["NodeNames"] == ["n1"]
    bench.watch.error = None
    assert bench.filter(STRANGER, "n1")["NodeNames"] == []
    bench.watch.error = ConnectionError("cut again")
    assert bench.filter(STRANGER, "n1")["NodeNames"] == []


def passed(reason: str) -> float:
    return metrics.REGISTRY.get_sample_value("dovetail_extender_passed_total", {"reason": reason}) or 0.0


def test_whatever_fails_inside_lets_everything_pass_and_is_counted(bench: Bench) -> None:
    full_plan(bench)
    before = passed("error")
    del bench.board.table.families.houses  # an invariant that is broken for good
    assert bench.filter(STRANGER, "n1")["NodeNames"] == ["n1"]
    assert bench.filter(member("a"), "n0", "n1")["NodeNames"] == ["n0", "n1"]
    assert json.loads(bench.answerer.prioritize(question(member("a"), "n1"))) == []
    assert list(json.loads(bench.answerer.preempt(preemption(STRANGER, n1=1)))["NodeNameToMetaVictims"]) == ["n1"]
    assert passed("error") >= before + 3


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"Pod":{}}'])
def test_a_message_that_cannot_be_read_gets_an_error_in_the_reply(bench: Bench, body: bytes) -> None:
    reply = json.loads(bench.answerer.filter(body))
    assert reply["Error"]
    assert reply["NodeNames"] is None
    assert json.loads(bench.answerer.prioritize(body)) == []
    with pytest.raises(ExtenderProtocolError):  # an empty answer would forbid the preemption
        bench.answerer.preempt(body)


def test_a_pod_nested_too_deeply_is_answered_like_any_other(bench: Bench) -> None:
    """Also where it is nested just so deeply that only the innermost of several decoders cannot take it."""
    full_plan(bench)
    evil = wire(STRANGER)
    evil["metadata"] = {**evil["metadata"], "name": "evil"}
    asked = json.dumps({"Pod": evil, "Nodes": None, "NodeNames": ["n1", "n2"]}).encode()
    victims = {"n1": {"Pods": [{"UID": "v1"}], "NumPDBViolations": 0}}
    preempting = json.dumps({"Pod": evil, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}).encode()
    answerer = bench.answerer
    for levels in range(800, 1001):
        assert answerer.filter(deep(asked, levels)) == answerer.filter(asked), levels
        assert answerer.prioritize(deep(asked, levels)) == answerer.prioritize(asked), levels
        assert answerer.preempt(deep(preempting, levels)) == answerer.preempt(preempting), levels


def test_a_question_of_which_only_the_pod_cannot_be_read_lets_everything_pass(bench: Bench) -> None:
    full_plan(bench)
    asked = b'{"Pod":{"metadata":{"uid":5}},"Nodes":null,"NodeNames":["n0","n1"]}'
    reply = json.loads(bench.answerer.filter(asked))
    assert (reply["NodeNames"], reply["Error"]) == (["n0", "n1"], "")
    victims = b'{"n1":{"Pods":[{"UID":"v1"}],"NumPDBViolations":0}}'
    asked = b'{"Pod":{"metadata":{"uid":5}},"NodeNameToVictims":null,"NodeNameToMetaVictims":' + victims + b"}"
    assert json.loads(bench.answerer.preempt(asked)) == {"NodeNameToMetaVictims": json.loads(victims)}


def node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name), status=NodeStatus(allocatable={"cpu": "1", "pods": "110"}))


def test_an_unknown_name_is_waited_for_once_while_nodes_are_expected(bench: Bench) -> None:
    bench.world.pods(member("a"))
    bench.world.claim("c", entry("a"))
    outcome = "dovetail_extender_unknown_nodes_total"
    before = metrics.REGISTRY.get_sample_value(outcome, {"outcome": "passed"}) or 0.0
    for _ in range(3):
        assert bench.filter(STRANGER, "unknown")["NodeNames"] == ["unknown"]
    assert metrics.REGISTRY.get_sample_value(outcome, {"outcome": "passed"}) == before + 1


def test_a_node_that_appears_while_it_is_waited_for_ends_the_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_module, "UNKNOWN_NODE_SECONDS", 20.0)  # the other thread may get no processor for long
    outcome = "dovetail_extender_unknown_nodes_total"
    before = metrics.REGISTRY.get_sample_value(outcome, {"outcome": "known"}) or 0.0
    board = bench.board
    with board.lock:  # the other thread gets in when we begin to wait
        arrival = threading.Thread(target=board.node_changed, args=(None, ExtenderNode(name="n9")))
        arrival.start()
        board.await_nodes(["n9"])
    arrival.join(5)
    assert metrics.REGISTRY.get_sample_value(outcome, {"outcome": "known"}) == before + 1


def test_a_plan_that_cannot_be_read_is_left_out_and_counted_once(bench: Bench) -> None:
    from tests.support.cluster import claim

    before = metrics.REGISTRY.get_sample_value("dovetail_extender_bad_objects_total", {"kind": "NodeClaim"}) or 0.0
    bad = claim_facts(claim("c1", annotations={names.PLAN_ANNOTATION: "{"}), bench.board.timeline)
    bench.board.claim_changed(None, bad)
    bench.board.claim_changed(bad, bad)
    assert metrics.REGISTRY.get_sample_value("dovetail_extender_bad_objects_total", {"kind": "NodeClaim"}) == before + 1
    bench.board.claim_changed(bad, None)
    assert not bench.board.table.live_plans


# --- answers without waiting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_who_must_not_wait_is_told_the_same(bench: Bench, verb: str) -> None:
    full_plan(bench)
    bench.world.pods(member("old", node="n2"))
    for pod in (member("a"), STRANGER, member("new")):
        body = question(pod, "n1", "n2")
        before = asked(verb)
        wanted = getattr(bench.answerer, verb)(body)
        assert bench.answerer.promptly(verb, body) == wanted
        assert asked(verb) == before + 2


def asked(verb: str) -> float:
    samples = [one for one in metrics.REGISTRY.collect() if one.name == "dovetail_extender_requests"]
    return sum(
        one.value for each in samples for one in each.samples if one.labels["verb"] == verb and "total" in one.name
    )


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_who_must_not_wait_is_told_nothing_while_somebody_has_the_table(bench: Bench, verb: str) -> None:
    holder = Holder(bench.board)
    before = asked(verb)
    try:
        assert bench.answerer.promptly(verb, question(STRANGER, "n1")) is None
    finally:
        holder.give_back()
    assert asked(verb) == before, "whoever asks a thread next is counted there"
    assert bench.answerer.promptly(verb, question(STRANGER, "n1")) is not None


def test_nor_while_a_node_is_waited_for(bench: Bench) -> None:
    bench.world.pods(member("a"))
    bench.world.claim("c", entry("a"))
    body = question(STRANGER, "unknown")
    assert bench.answerer.promptly("filter", body) is None
    assert bench.answerer.promptly("prioritize", body) == b"[]"
    bench.filter(STRANGER, "unknown")
    assert bench.answerer.promptly("filter", body) is not None, "it was waited for once"


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("body", [b"{", b'{"Pod":{"metadata":{}},"NodeNames":["n1"]}', b" " * PROMPT_BYTES])
def test_nor_where_the_message_is_no_usual_one(bench: Bench, verb: str, body: bytes) -> None:
    assert bench.answerer.promptly(verb, body + question(STRANGER, "n1")) is None


def test_only_what_is_asked_for_each_pod_is_answered_before_the_application(bench: Bench) -> None:
    answer = prompt(bench.answerer, "/scheduler")
    body = question(STRANGER, "n1")
    found = answer(HttpRequest("POST", "/scheduler/filter", body=body))
    assert found is not None
    assert (found.status, found.content_type) == (200, "application/json")
    assert found.body == bench.answerer.filter(body)
    assert answer(HttpRequest("POST", "/scheduler/prioritize", body=body)) is not None
    for method, target in [
        ("GET", "/scheduler/filter"),
        ("POST", "/filter"),
        ("POST", "/scheduler/filter?a"),
        ("POST", "/scheduler/preempt"),
        ("GET", "/healthz"),
    ]:
        assert answer(HttpRequest(method, target, body=body)) is None


# --- over HTTP, without a socket ------------------------------------------------------------------------------------


@pytest.fixture
def http(bench: Bench) -> Iterator[Any]:
    with create_app(bench.answerer, bench.board.problem, "/scheduler").test_client() as client:
        yield client


def test_the_routes_stand_under_the_prefix(bench: Bench, http: Any) -> None:
    full_plan(bench)
    answer = http.post("/scheduler/filter", data=question(member("a"), "n1", "n2"), content_type="application/json")
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    assert json.loads(answer.data)["NodeNames"] == ["n1"]
    assert answer.headers["content-length"] == str(len(answer.data))
    assert json.loads(http.post("/scheduler/prioritize", data=question(STRANGER, "n1")).data) == [
        {"Host": "n1", "Score": 10}
    ]
    assert http.post("/scheduler/preempt", data=preemption(STRANGER, n2=1)).status_code == 200
    assert http.post("/filter", data=b"").status_code == 404
    assert http.get("/scheduler/filter").status_code == 405


def test_a_body_that_is_too_long_is_no_http_error(http: Any) -> None:
    answer = http.post("/scheduler/filter", data=b" " * (MAX_BODY_BYTES + 1))
    assert answer.status_code == 200
    assert "longer than" in json.loads(answer.data)["Error"]
    assert answer.headers["connection"] == "close"
    assert http.post("/scheduler/prioritize", data=b" " * (MAX_BODY_BYTES + 1)).data == b"[]"


@pytest.mark.parametrize("body", [b"{", b" " * (MAX_BODY_BYTES + 1)], ids=["not JSON", "too long"])
def test_a_preemption_that_cannot_be_read_is_not_vetoed(http: Any, body: bytes) -> None:
    assert http.post("/scheduler/preempt", data=body).status_code == 400  # kube-scheduler goes on without us


def test_health_and_readiness(bench: Bench, http: Any) -> None:
    assert http.get("/healthz").data == b"ok\n"
    assert http.get("/readyz").status_code == 200
    bench.watch.synced.clear()
    answer = http.get("/readyz")
    assert (answer.status_code, answer.data) == (503, b"the watch has not synced\n")
    assert http.get("/healthz").status_code == 200


class Holder:
    """A thread that has the table and does not give it back."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._has, self._give_back = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)
        self._thread.start()
        assert self._has.wait(20)

    def _hold(self) -> None:
        with self._board.lock:
            self._has.set()
            self._give_back.wait(20)

    def give_back(self) -> None:
        self._give_back.set()
        self._thread.join(20)


def test_a_table_that_cannot_be_had_lets_every_node_pass_and_is_seen_by_the_probe(bench: Bench, http: Any) -> None:
    """It cost each question of kube-scheduler's a second, and liveness noticed nothing."""
    full_plan(bench)
    holder = Holder(bench.board)
    try:
        assert bench.filter(STRANGER, "n1", "n2")["NodeNames"] == ["n1", "n2"]
        assert json.loads(http.post("/scheduler/prioritize", data=question(STRANGER, "n1")).data) == []
        kept = json.loads(http.post("/scheduler/preempt", data=preemption(STRANGER, n2=1)).data)
        assert list(kept["NodeNameToMetaVictims"]) == ["n2"]
        answer = http.get("/healthz")
        assert (answer.status_code, answer.data) == (503, b"the plan table was locked for 1 s\n")
    finally:
        holder.give_back()
    assert http.get("/healthz").status_code == 200
    assert bench.filter(STRANGER, "n1", "n2")["NodeNames"] == ["n2"]


def test_slow_judgements_in_a_row_let_everything_pass_at_once(bench: Bench, http: Any) -> None:
    full_plan(bench)
    for _ in range(SLOW_IN_A_ROW):
        bench.answerer.breaker.record(SLOW_SECONDS)
    assert bench.filter(STRANGER, "n1", "n2")["NodeNames"] == ["n1", "n2"]
    assert http.get("/healthz").status_code == 200, "it may get better by itself"
    bench.clock.advance(HUNG_SECONDS)
    assert http.get("/healthz").data == b"no request was answered in time for 30 s\n"
    assert bench.filter(STRANGER, "n1", "n2")["NodeNames"] == ["n2"], "one is tried after the pause"
    assert http.get("/healthz").status_code == 200


def test_a_judgement_that_fails_fast_does_not_let_others_pass(bench: Bench) -> None:
    """Or one tenant's odd pod would cost everybody the plan."""
    full_plan(bench)
    houses = bench.board.table.families.houses
    del bench.board.table.families.houses  # every judgement fails
    for _ in range(SLOW_IN_A_ROW * 2):
        assert bench.filter(STRANGER, "n1", "n2")["NodeNames"] == ["n1", "n2"]
    bench.board.table.families.houses = houses
    assert bench.filter(STRANGER, "n1", "n2")["NodeNames"] == ["n2"]


@pytest.mark.parametrize("prefix", ["scheduler", "/scheduler/", "/"])
def test_a_bad_prefix_is_refused(bench: Bench, prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        create_app(bench.answerer, bench.board.problem, prefix)
